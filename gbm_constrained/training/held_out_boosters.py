"""Boosters that the library trains on part of the rows, and that score the other rows.

Where decisions need the probability of label and group, each part has two boosters: one of the
labels and one of the joint cells.

Boosters may be grown in stages. In each of them the library goes on with other weights of the
rows. No formula says how weights that move change the scores, so that factors and scale, by which
scores become probabilities of the rows as they are, are those of largest likelihood on the
held-out rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.splits import Fold
from gbm_constrained.decision.cell_scores import OTHER_DATA, CellScores
from gbm_constrained.decision.cost_rule import probabilities_of
from gbm_constrained.decision.score_calibration import calibrate_scores
from gbm_constrained.training.metric_checks import check_cells, spread_margin
from gbm_constrained.training.metric_problem import MetricProblem
from gbm_constrained.training.native_growth import NativeGrowth
from gbm_constrained.training.native_models import NativeModel, PartRows, multiply_weight

Move: TypeAlias = Callable[[Float, Float], Float]
"""Given the weights of the joint cells in a stage, and the held-out probabilities after it, finds
the weights of the next stage."""


class Grown(NamedTuple):
    """Boosters of all folds, of one kind.

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
    stands for ones. Where a linear objective counts amounts, rows have those as weights as well.

    Parameters
    ----------
    problem : MetricProblem
        The metric and the constraints on all rows.
    growth : NativeGrowth
        Trains the library's own models on some of the rows.
    folds : sequence of Fold
        Rows that each booster is trained on, and that it scores. These are all rows, both times,
        where the model that is trained on them scores them.
    source : str
        Name of the held-out rows in reports.
    are_log_odds : bool, default=True
        Whether scores of the boosters are log-odds of the classes, or are calibrated first.
    """

    problem: MetricProblem
    growth: NativeGrowth
    folds: Sequence[Fold]
    source: str
    are_log_odds: bool = True
    _grown: dict[tuple[bool, bytes], Grown] = field(default_factory=dict, init=False, repr=False)

    @property
    def is_joint(self) -> bool:
        """Whether there are boosters of the joint cells beside those of the labels."""
        return not self.problem.joint.are_labels

    @property
    def rows(self) -> Codes:
        """Positions of the held-out rows, in order."""
        return np.sort(np.concatenate([fold.held for fold in self.folds]))

    @property
    def parts(self) -> list[Codes]:
        """Positions in `rows` of those of each booster; empty for a single one."""
        rows = self.rows
        folds = self.folds if len(self.folds) > 1 else ()
        return [np.searchsorted(rows, fold.held) for fold in folds]

    @property
    def work(self) -> float:
        """Work of a round of the boosters of all folds."""
        return sum(self._part(fold, None, is_joint=kind).work for kind, fold in self._members)

    @property
    def _kinds(self) -> tuple[bool, ...]:
        """Whether boosters learn the joint cells, for each kind of boosters."""
        return (False, True) if self.is_joint else (False,)

    @property
    def _everyone(self) -> Fold:
        """The fold of a model of all rows, which holds none out."""
        everyone = np.arange(len(self.problem.data.rows))
        return Fold(everyone, everyone[:0])

    @property
    def _members(self) -> list[tuple[bool, Fold]]:
        """Kind and fold of each booster."""
        return list(itertools.product(self._kinds, self.folds))

    def plan(self) -> None:
        """Say how much work all boosters are, with the library's own on all rows."""
        members = self._members
        if not self._merges:
            members += [(kind, self._everyone) for kind in self._kinds]
        parts = [self._part(fold, None, is_joint=kind) for kind, fold in members]
        self.growth.planned = sum(part.work for part in parts)

    def train_labels(self, weights: Float | None = None) -> NativeModel:
        """Train the model of the labels on all rows."""
        return self.growth.train(self._stages(weights, is_joint=False))

    def write_cells(self, weights: Float | None = None) -> bytes:
        """Train the model of the joint cells on all rows, and write it as the library does."""
        return self.growth.write(self._stages(weights, is_joint=True))

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
        return self._probabilities([self.boosters(weights, is_joint=k) for k in self._kinds])

    def link(self, weights: Float | None = None) -> tuple[Float, float, CellScores | None]:
        """Say how scores that decide become probabilities: factors, scale and combination.

        Without joint cells there is nothing to combine. Combined scores are log-probabilities.
        """
        grown = [self.boosters(weights, is_joint=k) for k in self._kinds]
        if not self.is_joint:
            return grown[0].factors, grown[0].scale, None
        return np.ones(len(self.problem.joint)), 1.0, self._combination(grown)

    def row_factor(self, weights: Float | None, *, is_joint: bool = False) -> Float | None:
        """Factor of each row's weight in the boosters of the labels, or of the joint cells."""
        joint, amounts = self.problem.joint, self.problem.relative_amounts
        if weights is None:
            return amounts
        of_cells = weights if is_joint else self._of_labels(weights)[joint.labels]
        return np.asarray(multiply_weight(of_cells[joint.codes], amounts))

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
        models: dict[bool, Sequence[NativeModel | None]]
        models = {kind: [None] * len(self.folds) for kind in self._kinds}
        while True:
            rounds = -(-(growth.n_rounds - done) // (n_stages - len(stages)))
            margins = {}
            for kind in self._kinds:
                parts = [
                    replace(part, start=model, n_before=done, rounds=rounds)
                    for part, model in zip(
                        self._parts(path[-1], is_joint=kind), models[kind], strict=True
                    )
                ]
                is_kept = self._merges or done + rounds < growth.n_rounds
                margins[kind], models[kind] = self._score(parts, is_kept=is_kept)
            growth.settle(rounds)
            stages.append(min(rounds, growth.n_rounds - done))
            done += stages[-1]
            weights = np.array(path)
            grown = [
                self._grown_with(margin, models[kind], weights, tuple(stages), is_joint=kind)
                for kind, margin in margins.items()
            ]
            probabilities = self._probabilities(grown)
            if done == growth.n_rounds:
                break
            path.append(move(path[-1], probabilities))
        for kind, of_kind in zip(self._kinds, grown, strict=True):
            self._grown[kind, weights.tobytes()] = of_kind
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
            self._grown[key] = self._grown_with(margin, models, weights, is_joint=is_joint)
        return self._grown[key]

    def _grown_with(
        self,
        margin: Array,
        models: Sequence[NativeModel | None],
        weights: Float | None,
        stages: tuple[int, ...] = (),
        *,
        is_joint: bool,
    ) -> Grown:
        """Link the scores of boosters to probabilities."""
        link = self._link(margin, weights, is_joint=is_joint)
        merged = [model for model in models if model is not None] if self._merges else []
        return Grown(margin, *link, merged, stages)

    def _probabilities(self, grown: Sequence[Grown]) -> Float:
        """Compute the probabilities of the joint cells by the boosters of each kind."""
        if len(grown) == 1:
            return probabilities_of(grown[0].margin, grown[0].factors, grown[0].scale)
        margin = self._combination(grown).combine(*(one.margin for one in grown))
        return probabilities_of(margin, np.ones(len(self.problem.joint)))

    def _combination(self, grown: Sequence[Grown]) -> CellScores:
        """Say how the boosters of labels and of joint cells are combined."""
        labels, cells = grown
        return CellScores(
            np.where(self.problem.in_objective, self.problem.joint.labels, OTHER_DATA),
            labels.factors, labels.scale, cells.factors, cells.scale,
        )  # fmt: skip

    @property
    def _merges(self) -> bool:
        """Whether boosters of the folds are merged into the model that decides."""
        return self.problem.options.ensemble is not None

    def _stages(self, weights: Float | None, *, is_joint: bool) -> list[PartRows]:
        """List the stages in which the model of all rows is trained."""
        if weights is None or weights.ndim == 1:
            return [self._part(self._everyone, weights, is_joint=is_joint)]
        stages = self._grown[is_joint, weights.tobytes()].stages
        before = [sum(stages[:i]) for i in range(len(stages))]
        return [
            replace(self._part(self._everyone, one, is_joint=is_joint), n_before=n, rounds=rounds)
            for one, n, rounds in zip(weights, before, stages, strict=True)
        ]

    def _parts(self, weights: Float | None, *, is_joint: bool) -> list[PartRows]:
        return [self._part(fold, weights, is_joint=is_joint) for fold in self.folds]

    def _score(
        self, parts: Sequence[PartRows], *, is_kept: bool
    ) -> tuple[Array, list[NativeModel | None]]:
        """Score the held-out rows in order, each by a model that has not seen it."""
        margins, models = [], []
        for fold, part in zip(self.folds, parts, strict=True):
            if part.is_joint:
                known = np.unique(self.problem.joint.codes[part.rows])
                check_cells(self.problem, known)
            margin, model = self.growth.score(part, fold.held, is_kept=is_kept)
            if part.is_joint:
                margin = spread_margin(margin, known, len(self.problem.joint))
            margins.append(margin)
            models.append(model)
        order = np.argsort(np.concatenate([fold.held for fold in self.folds]))
        return np.concatenate(margins)[order], models

    def _part(self, fold: Fold, weights: Float | None, *, is_joint: bool) -> PartRows:
        """Take the rows that a model is trained on.

        The objective of the labels leaves out the rows of further data sets.
        """
        data, joint = self.problem.data, self.problem.joint
        rows = fold.training
        if not is_joint:
            rows = rows[rows < data.y.size]
        target = None
        if is_joint:  # A small cell may have no rows outside of one fold.
            target = np.zeros(len(joint.codes), dtype=np.intp)
            target[rows] = np.unique(joint.codes[rows], return_inverse=True)[1]
        factor = self.row_factor(weights, is_joint=is_joint)
        return PartRows(data.combined, rows, target, factor)

    def _link(
        self, margin: Array, weights: Float | None, *, is_joint: bool
    ) -> tuple[Float, float]:
        """Find the factors and the scale by which scores become probabilities."""
        problem, rows = self.problem, self.rows
        codes, n = problem.joint.codes, len(problem.joint)
        own = np.ones(n)
        if not is_joint:
            codes, own = problem.joint.labels[codes], problem.factors
            is_own = rows < problem.data.y.size
            margin, rows, n = margin[is_own], rows[is_own], own.size
        if (weights is not None and weights.ndim > 1) or not self.are_log_odds:
            weight = multiply_weight(problem.data.rows.weight, problem.relative_amounts)
            weight = None if weight is None else weight[rows]
            return calibrate_scores(margin, codes[rows], n, weight)
        if weights is None:
            return own, 1.0
        return np.asarray(own * (weights if is_joint else self._of_labels(weights))), 1.0

    def _of_labels(self, weights: Float) -> Float:
        """Average weights of joint cells over the training rows of each label."""
        if not self.is_joint:
            return weights
        problem, joint = self.problem, self.problem.joint
        mass = np.bincount(joint.codes, problem.data.rows.weight, len(joint))
        mass = mass * problem.in_objective
        k = problem.factors.size
        total, of_label = (np.bincount(joint.labels, m, k) for m in (mass * weights, mass))
        return np.divide(total, of_label, out=np.ones(k), where=of_label > 0.0)
