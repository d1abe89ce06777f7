"""Boosters that the library trains on part of the rows, and that score the other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.cost_rule import probabilities_of
from gbm_constrained.decision.score_calibration import calibrate_scores
from gbm_constrained.training.metric_checks import check_cells, spread_margin
from gbm_constrained.training.metric_problem import MetricProblem
from gbm_constrained.training.native_growth import NativeGrowth
from gbm_constrained.training.native_models import NativeModel, PartRows


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
    growth : NativeGrowth
        Trains the library's own models on some of the rows.
    folds : sequence of ndarray of int
        Rows that each booster scores. One fold of all rows is scored by the model that is trained
        on them.
    source : str
        Name of the held-out rows in reports.
    are_log_odds : bool, default=True
        Whether scores of the boosters are log-odds of the classes, or are calibrated first.
    """

    problem: MetricProblem
    growth: NativeGrowth
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

    @property
    def work(self) -> float:
        """Work of the boosters of all folds that rules are found on."""
        return sum(self._part(held, None, is_joint=self.is_joint).work for held in self.folds)

    def plan(self, *, has_labels: bool) -> None:
        """Say how much work all boosters are, with the library's own on all rows.

        Parameters
        ----------
        has_labels : bool
            Whether boosters of the labels are grown in any case.
        """
        nothing = np.zeros(0, dtype=np.intp)
        merges = self.problem.options.ensemble is not None
        kinds = [True] * self.is_joint + [False] * (has_labels or merges or not self.is_joint)
        parts = [self._part(held, None, is_joint=kind) for kind in kinds for held in self.folds]
        if not merges:
            finals = [True] * self.is_joint + [False]
            parts += [self._part(nothing, None, is_joint=kind) for kind in finals]
        self.growth.planned = sum(part.work for part in parts)

    def train(self, weights: Float | None = None) -> bytes:
        """Train a model of the joint cells on all rows."""
        nothing = np.zeros(0, dtype=np.intp)
        return self.growth.train(self._part(nothing, weights, is_joint=True))

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
            models = [model for _, model in found if model is not None]
            self._grown[key] = Grown(margin, *link, models)
        return self._grown[key]

    def _score(
        self, held: Codes, weights: Float | None, *, is_joint: bool
    ) -> tuple[Array, NativeModel | None]:
        """Score the rows of a fold by a model of the others."""
        joint, part = self.problem.joint, self._part(held, weights, is_joint=is_joint)
        if not is_joint:
            return self.growth.score(part, held)
        known = np.unique(joint.codes[part.rows])
        check_cells(self.problem, known)
        margin, model = self.growth.score(part, held)
        return spread_margin(margin, known, len(joint)), model

    def _part(self, held: Codes, weights: Float | None, *, is_joint: bool) -> PartRows:
        """Take the rows that a model is trained on: all but a fold, unless the fold is all rows.

        The objective of the labels leaves out the rows of further data sets.
        """
        data, joint = self.problem.data, self.problem.joint
        rows = np.arange(len(data.rows) if is_joint else data.y.size)
        if held.size < len(data.rows):
            rows = np.setdiff1d(rows, held, assume_unique=True)
        target = None
        if is_joint:  # A small cell may have no rows outside of one fold.
            target = np.zeros(len(joint.codes), dtype=np.intp)
            target[rows] = np.unique(joint.codes[rows], return_inverse=True)[1]
        factor = None if weights is None else weights[joint.codes]
        return PartRows(data.combined, rows, target, factor)

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
