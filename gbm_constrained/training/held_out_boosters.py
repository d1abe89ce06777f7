"""Boosters that the library trains on part of the rows, and that score the other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.cost_rule import probabilities_of
from gbm_constrained.training.metric_problem import MetricProblem


class NativeModel(Protocol):
    """A model that the library has trained by its own means."""

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X; `rows` are their positions among the training rows."""

    def to_bytes(self) -> bytes:
        """Write the model as the library does."""


class FitPart(Protocol):
    """Trains the library's own model on some of the rows."""

    def __call__(
        self, rows: Codes, target: Codes | None, is_joint: bool, factor: Float | None = None
    ) -> NativeModel:
        """Train a model.

        Parameters
        ----------
        rows : ndarray of int
            Positions of the rows.
        target : ndarray of shape (n_samples,), intp or None
            Joint labels of all rows; None for the labels that the user gave.
        is_joint : bool
            Whether these are joint labels.
        factor : ndarray of shape (n_samples,), default=None
            Factor of the weight of each of all rows.
        """


@dataclass(frozen=True, eq=False)
class HeldOutBoosters:
    """Boosters of the folds, which can be grown anew at other weights of the joint cells.

    Parameters
    ----------
    problem : MetricProblem
        The metric and the constraints on all rows.
    X : array-like
        The features of all rows.
    fit_part : callable
        Trains the library's own model on some of the rows.
    folds : sequence of ndarray of int
        Rows that each booster scores. One fold of all rows is scored by the model that is trained
        on them.
    source : str
        Name of the held-out rows in reports.
    """

    problem: MetricProblem
    X: Any
    fit_part: FitPart
    folds: Sequence[Codes]
    source: str

    @property
    def is_joint(self) -> bool:
        """Whether the boosters learn labels and groups together."""
        return not self.problem.joint.are_labels

    @property
    def rows(self) -> Codes:
        """Positions of the held-out rows, in order."""
        return np.sort(np.concatenate(self.folds))

    @property
    def parts(self) -> list[Codes]:
        """Positions in `rows` of those of each booster; empty for a single one."""
        rows = self.rows
        folds = self.folds if len(self.folds) > 1 else ()
        return [np.searchsorted(rows, held) for held in folds]

    def factors(self, weights: Float | None = None) -> Float:
        """Factor of each joint cell in the boosters' objective, given its weight."""
        own = np.ones(len(self.problem.joint)) if self.is_joint else self.problem.factors
        return own if weights is None else np.asarray(own * weights)

    def train(self, weights: Float | None = None, held: Codes | None = None) -> NativeModel:
        """Train a model on all rows, or on all but those of a fold."""
        joint = self.problem.joint
        rows = np.arange(len(self.problem.data.rows))
        if held is not None and held.size < rows.size:
            rows = np.setdiff1d(rows, held, assume_unique=True)
        factor = None if weights is None else weights[joint.codes]
        target = joint.codes if self.is_joint else None
        return self.fit_part(rows, target, self.is_joint, factor)

    def grow(self, weights: Float | None = None) -> Float:
        """Grow the boosters of all folds.

        Parameters
        ----------
        weights : ndarray of shape (n_joint_cells,), default=None
            Weight of each joint cell in the boosters' objective; ones by default.

        Returns
        -------
        ndarray of shape (n_held_out, n_joint_cells)
            Probabilities of the joint cells, as the rows are and not as weighted.
        """
        order = np.argsort(np.concatenate(self.folds))
        found = [self._score(weights, held) for held in self.folds]
        return np.asarray(np.concatenate(found)[order])

    def grow_part(self, weights: Float | None = None) -> tuple[Codes, Float]:
        """Grow the booster of the first fold, and score its rows."""
        held = self.folds[0]
        return np.searchsorted(self.rows, held), self._score(weights, held)

    def _score(self, weights: Float | None, held: Codes) -> Float:
        margin = self.train(weights, held).margin(take_rows(self.X, held), held)
        return probabilities_of(margin, self.factors(weights))
