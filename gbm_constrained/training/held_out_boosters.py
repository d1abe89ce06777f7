"""Boosters that the library trains on part of the rows, and that score the other rows.

Boosters may be grown in stages. In each of them the library goes on with other weights of the
rows. No formula says how weights that move change the scores, so that factors and scale, by which
scores become probabilities of the rows as they are, are those of largest likelihood on the
held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.cost_rule import probabilities_of
from gbm_constrained.decision.score_calibration import calibrate_scores
from gbm_constrained.training.metric_checks import check_cells, spread_margin
from gbm_constrained.training.metric_problem import MetricProblem
from gbm_constrained.training.native_growth import NativeGrowth
from gbm_constrained.training.native_models import NativeModel, PartRows

Move: TypeAlias = Callable[[Float, Float], Float]
"""Given the weights of the joint cells in a stage, and the held-out probabilities after it, finds
the weights of the next stage."""
NOBODY: Codes = np.zeros(0, dtype=np.intp)  # The fold that a model of all rows leaves out.


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
    stages : tuple of int, default=()
        Rounds of each stage; empty where boosters are grown in one go.
    """

    margin: Array
    factors: Float
    scale: float
    models: list[NativeModel]
    stages: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class HeldOutBoosters:
    """Boosters of the folds, which can be grown anew at other weights of the joint cells.

    Weights have the shape (n_joint_cells,), or (n_stages, n_joint_cells) where they move. None
    stands for ones.

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
        """Work of a round of the boosters of all folds that rules are found on."""
        return sum(self._part(held, None, is_joint=self.is_joint).work for held in self.folds)

    def plan(self, *, has_labels: bool) -> None:
        """Say how much work all boosters are, with the library's own on all rows.

        Parameters
        ----------
        has_labels : bool
            Whether boosters of the labels are grown in any case.
        """
        merges = self._merges
        kinds = [True] * self.is_joint + [False] * (has_labels or merges or not self.is_joint)
        parts = [self._part(held, None, is_joint=kind) for kind in kinds for held in self.folds]
        if not merges:
            finals = [True] * self.is_joint + [False]
            parts += [self._part(NOBODY, None, is_joint=kind) for kind in finals]
        self.growth.planned = sum(part.work for part in parts)

    def train(self, weights: Float | None = None) -> NativeModel:
        """Train the model that decides on all rows."""
        return self.growth.train(self._stages(weights))

    def write(self, weights: Float | None = None) -> bytes:
        """Train the model that decides on all rows, and write it as the library does."""
        return self.growth.write(self._stages(weights))

    def grow(self, weights: Float | None = None) -> Float:
        """Grow the boosters of all folds.

        Parameters
        ----------
        weights : ndarray, default=None
            Weights of the joint cells in the boosters' objective.

        Returns
        -------
        ndarray of shape (n_held_out, n_joint_cells)
            Probabilities of the joint cells, as the rows are and not as weighted.
        """
        grown = self.boosters(weights, is_joint=self.is_joint)
        return probabilities_of(grown.margin, grown.factors, grown.scale)

    def grow_in_step(self, n_stages: int, move: Move) -> tuple[Float, Float]:
        """Grow the boosters of all folds in step, with weights that move after each stage.

        Parameters
        ----------
        n_stages : int
            Number of stages; the first one has weights of one.
        move : callable
            Finds the weights of the next stage.

        Returns
        -------
        weights : ndarray of shape (n_stages, n_joint_cells)
            Weights of the joint cells in each stage. There are no more stages than rounds, and
            fewer where a time limit leaves no rounds for them.
        probabilities : ndarray of shape (n_held_out, n_joint_cells)
            Probabilities of the joint cells after the last stage, as of :meth:`grow`.
        """
        growth, path, done = self.growth, [np.ones(len(self.problem.joint))], 0
        stages: list[int] = []
        models: Sequence[NativeModel | None] = [None] * len(self.folds)
        while True:
            rounds = -(-(growth.n_rounds - done) // (n_stages - len(stages)))
            parts = [
                replace(part, start=model, n_before=done, rounds=rounds)
                for part, model in zip(
                    self._parts(path[-1], is_joint=self.is_joint), models, strict=True
                )
            ]
            is_kept = self._merges or done + rounds < growth.n_rounds
            margin, models = self._score(parts, is_kept=is_kept)
            growth.settle(rounds)
            stages.append(min(rounds, growth.n_rounds - done))
            done += stages[-1]
            weights = np.array(path)
            link = self._link(margin, weights, is_joint=self.is_joint)
            probabilities = probabilities_of(margin, *link)
            if done == growth.n_rounds:
                break
            path.append(move(path[-1], probabilities))
        merged = [model for model in models if model is not None] if self._merges else []
        self._grown[self.is_joint, weights.tobytes()] = Grown(margin, *link, merged, tuple(stages))
        return weights, probabilities

    def boosters(self, weights: Float | None = None, *, is_joint: bool) -> Grown:
        """Grow the boosters of all folds, once for given weights.

        Parameters
        ----------
        weights : ndarray, default=None
            Weights of the joint cells in the boosters' objective. Those that move are of a path
            along which :meth:`grow_in_step` has grown the boosters.
        is_joint : bool
            Whether the boosters learn labels and groups together, or labels alone.
        """
        key = is_joint, b"" if weights is None else weights.tobytes()
        if key not in self._grown:
            parts = self._parts(weights, is_joint=is_joint)
            margin, models = self._score(parts, is_kept=self._merges)
            link = self._link(margin, weights, is_joint=is_joint)
            merged = [model for model in models if model is not None]
            self._grown[key] = Grown(margin, *link, merged)
        return self._grown[key]

    @property
    def _merges(self) -> bool:
        """Whether boosters of the folds are merged into the model that decides."""
        return self.problem.options.ensemble is not None

    def _stages(self, weights: Float | None) -> list[PartRows]:
        """List the stages in which the model of all rows is trained."""
        if weights is None or weights.ndim == 1:
            return [self._part(NOBODY, weights, is_joint=self.is_joint)]
        stages = self._grown[self.is_joint, weights.tobytes()].stages
        before = [sum(stages[:i]) for i in range(len(stages))]
        return [
            replace(self._part(NOBODY, one, is_joint=self.is_joint), n_before=n, rounds=rounds)
            for one, n, rounds in zip(weights, before, stages, strict=True)
        ]

    def _parts(self, weights: Float | None, *, is_joint: bool) -> list[PartRows]:
        return [self._part(held, weights, is_joint=is_joint) for held in self.folds]

    def _score(
        self, parts: Sequence[PartRows], *, is_kept: bool
    ) -> tuple[Array, list[NativeModel | None]]:
        """Score the held-out rows in order, each by a model that has not seen it."""
        margins, models = [], []
        for held, part in zip(self.folds, parts, strict=True):
            if part.is_joint:
                known = np.unique(self.problem.joint.codes[part.rows])
                check_cells(self.problem, known)
            margin, model = self.growth.score(part, held, is_kept=is_kept)
            if part.is_joint:
                margin = spread_margin(margin, known, len(self.problem.joint))
            margins.append(margin)
            models.append(model)
        return np.concatenate(margins)[np.argsort(np.concatenate(self.folds))], models

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
        self, margin: Array, weights: Float | None, *, is_joint: bool
    ) -> tuple[Float, float]:
        """Find the factors and the scale by which scores become probabilities."""
        joint, rows = self.problem.joint, self.rows
        is_moved = weights is not None and weights.ndim > 1
        if is_joint == self.is_joint and (is_moved or not self.are_log_odds):
            weight = self.problem.data.rows.weight
            weight = None if weight is None else weight[rows]
            return calibrate_scores(margin, joint.codes[rows], len(joint), weight)
        own = np.ones(len(joint)) if is_joint else self.problem.factors
        return own if weights is None else np.asarray(own * weights), 1.0
