"""Boosters that the library trains on part of the rows, and that score the other rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.cost_rule import probabilities_of
from gbm_constrained.decision.score_calibration import calibrate_scores
from gbm_constrained.training.metric_checks import check_cells, spread_margin
from gbm_constrained.training.metric_problem import MetricProblem


class NativeModel(Protocol):
    """A model that the library has trained by its own means."""

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X; `rows` are their positions among the training rows."""

    def to_bytes(self) -> bytes:
        """Write the model as the library does."""


@dataclass(frozen=True, eq=False)
class PartRows:
    """Rows that a model is trained on, and what it is to learn.

    Parameters
    ----------
    rows : ndarray of int
        Positions of the rows.
    target : ndarray of shape (n_samples,), intp or None
        Joint labels of all rows; None for the labels that the user gave.
    is_joint : bool
        Whether these are joint labels, which no parameter about classes is for.
    factor : ndarray of shape (n_samples,), default=None
        Factor of the weight of each of all rows.
    """

    rows: Codes
    target: Codes | None
    is_joint: bool
    factor: Float | None = None

    def take_labels(self, y: Any) -> Any:
        """Take the labels of these rows."""
        return take_rows(y, self.rows) if self.target is None else self.target[self.rows]

    def take_weight(self, weight: Any) -> Any:
        """Take the weights of these rows, given those of all, and multiply them by the factors."""
        weight = multiply_weight(weight, self.factor)
        return None if weight is None else take_rows(weight, self.rows)


def multiply_weight(weight: Any, factor: Float | None) -> Any:
    """Multiply the weights of rows, ones where weight is None, by factors if there are any."""
    if factor is None:
        return weight
    return factor if weight is None else np.asarray(weight, dtype=np.float64) * factor


FitPart = Callable[[PartRows], NativeModel]
"""Trains the library's own model on some of the rows."""
Merge = Callable[[Sequence[NativeModel]], NativeModel]
"""Merges models into one whose raw score is the mean of theirs."""


class Grown(NamedTuple):
    """Boosters of all folds.

    Parameters
    ----------
    margin : ndarray
        Scores of the held-out rows, in order.
    factors : ndarray
        Factor of each class or joint cell by which scores become probabilities.
    scale : float
        Factor by which scores become log-odds.
    models : list of NativeModel
        The boosters, where they are to be merged; empty otherwise.
    """

    margin: Array
    factors: Float
    scale: float
    models: list[NativeModel]


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
    are_log_odds : bool, default=True
        Whether scores of the boosters are log-odds of the classes, or are calibrated first.
    """

    problem: MetricProblem
    X: Any
    fit_part: FitPart
    folds: Sequence[Codes]
    source: str
    are_log_odds: bool = True
    _grown: dict[tuple[bool, bytes], Grown] = field(default_factory=dict, init=False, repr=False)

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

    def train(self, weights: Float | None = None) -> NativeModel:
        """Train a model of the joint cells on all rows."""
        everyone = np.arange(len(self.problem.data.rows))
        codes = self.problem.joint.codes
        factor = None if weights is None else weights[codes]
        return self.fit_part(PartRows(everyone, codes, self.is_joint, factor))

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
        grown = self.boosters(weights, is_joint=self.is_joint)
        return probabilities_of(grown.margin, grown.factors, grown.scale)

    def grow_part(self, weights: Float | None = None) -> tuple[Codes, Float]:
        """Grow the booster of the first fold, and give its rows with their probabilities."""
        held = self.folds[0]
        margin, _ = self._score(held, weights, is_joint=self.is_joint)
        link = self._link(margin, held, weights, is_joint=self.is_joint)
        return np.searchsorted(self.rows, held), probabilities_of(margin, *link)

    def boosters(self, weights: Float | None = None, *, is_joint: bool) -> Grown:
        """Grow the boosters of all folds, once for given weights.

        Parameters
        ----------
        weights : ndarray of shape (n_joint_cells,), default=None
            Weight of each joint cell in the boosters' objective; ones by default.
        is_joint : bool
            Whether the boosters learn labels and groups together, or labels alone.
        """
        key = is_joint, b"" if weights is None else weights.tobytes()
        if key not in self._grown:
            order = np.argsort(np.concatenate(self.folds))
            found = [self._score(held, weights, is_joint=is_joint) for held in self.folds]
            margin = np.concatenate([of_fold for of_fold, _ in found])[order]
            link = self._link(margin, self.rows, weights, is_joint=is_joint)
            is_kept = self.problem.options.ensemble is not None
            self._grown[key] = Grown(margin, *link, [one for _, one in found if is_kept])
        return self._grown[key]

    def _score(
        self, held: Codes, weights: Float | None, *, is_joint: bool
    ) -> tuple[Array, NativeModel]:
        """Score the rows of a fold by a model of the others."""
        joint = self.problem.joint
        rows = np.arange(len(self.problem.data.rows))
        if held.size < rows.size:
            rows = np.setdiff1d(rows, held, assume_unique=True)
        factor = None if weights is None else weights[joint.codes]
        if not is_joint:
            model = self.fit_part(PartRows(rows, None, is_joint, factor))
            return model.margin(take_rows(self.X, held), held), model
        # A small cell may have no rows outside of one fold.
        known, codes = np.unique(joint.codes[rows], return_inverse=True)
        target = np.zeros(len(joint.codes), dtype=np.intp)
        target[rows] = codes
        check_cells(self.problem, known)
        model = self.fit_part(PartRows(rows, target, is_joint, factor))
        margin = model.margin(take_rows(self.X, held), held)
        return spread_margin(margin, known, len(joint)), model

    def _link(
        self, margin: Array, rows: Codes, weights: Float | None, *, is_joint: bool
    ) -> tuple[Float, float]:
        """Find the factors and the scale by which scores of rows become probabilities."""
        joint = self.problem.joint
        if is_joint == self.is_joint and not self.are_log_odds:
            weight = self.problem.data.rows.weight
            weight = None if weight is None else weight[rows]
            return calibrate_scores(margin, joint.codes[rows], len(joint), weight)
        own = np.ones(len(joint)) if is_joint else self.problem.factors
        return own if weights is None else np.asarray(own * weights), 1.0
