"""Boosters that the library trains on part of the rows, and that score the other rows.

Boosters may be grown in stages. In each of them the library goes on with other weights of the
rows. No formula says how weights that move change the scores, so that factors and scale, by which
scores become probabilities of the rows as they are, are those of largest likelihood on the
held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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

    @property
    def model(self) -> Any:
        """The library's classifier."""

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
    start : NativeModel, default=None
        Model of the same rows that training goes on with.
    rounds : int, default=None
        Rounds to grow; by default all that the classifier asks for.
    """

    rows: Codes
    target: Codes | None
    is_joint: bool
    factor: Float | None = None
    start: NativeModel | None = None
    rounds: int | None = None

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
Move = Callable[[Float, Float], Float]
"""Given the weights of the joint cells in a stage, and the held-out probabilities after it, finds
the weights of the next stage."""
Merge = Callable[[Sequence[NativeModel]], NativeModel]
"""Merges models into one whose raw score is the mean of theirs."""


class Fold(NamedTuple):
    """Rows that a booster scores, rows that it learns, and the joint cells that it sees there.

    The cells are None for a booster of the labels.
    """

    held: Codes
    part: PartRows
    known: Codes | None


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

    Weights have the shape (n_joint_cells,), or (n_stages, n_joint_cells) where they move. None
    stands for ones.

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
    n_rounds : int, default=1
        Boosting rounds, which stages divide.
    are_log_odds : bool, default=True
        Whether scores of the boosters are log-odds of the classes, or are calibrated first.
    """

    problem: MetricProblem
    X: Any
    fit_part: FitPart
    folds: Sequence[Codes]
    source: str
    n_rounds: int = 1
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
        target = self.problem.joint.codes if self.is_joint else None
        return self._fit(PartRows(everyone, target, self.is_joint), weights)

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
            Weights of the joint cells in each stage. There are no more stages than rounds.
        probabilities : ndarray of shape (n_held_out, n_joint_cells)
            Probabilities of the joint cells after the last stage, as of :meth:`grow`.
        """
        folds = [self._fold(held, is_joint=self.is_joint) for held in self.folds]
        path, stages = [np.ones(len(self.problem.joint))], self._divide_rounds(n_stages)
        models: list[NativeModel] = []
        for i, rounds in enumerate(stages):
            starts: Sequence[NativeModel | None] = models or [None] * len(folds)
            models = [
                self._fit_stage(fold.part, path[i], rounds, start)
                for fold, start in zip(folds, starts, strict=True)
            ]
            weights = np.array(path)
            grown = self._pool(folds, models, weights, is_joint=self.is_joint)
            probabilities = probabilities_of(grown.margin, grown.factors, grown.scale)
            if i + 1 < len(stages):
                path.append(move(path[i], probabilities))
        self._grown[self.is_joint, weights.tobytes()] = grown
        return weights, probabilities

    def boosters(self, weights: Float | None = None, *, is_joint: bool) -> Grown:
        """Grow the boosters of all folds, once for given weights.

        Parameters
        ----------
        weights : ndarray, default=None
            Weights of the joint cells in the boosters' objective.
        is_joint : bool
            Whether the boosters learn labels and groups together, or labels alone.
        """
        key = is_joint, b"" if weights is None else weights.tobytes()
        if key not in self._grown:
            folds = [self._fold(held, is_joint=is_joint) for held in self.folds]
            models = [self._fit(fold.part, weights) for fold in folds]
            self._grown[key] = self._pool(folds, models, weights, is_joint=is_joint)
        return self._grown[key]

    def _fold(self, held: Codes, *, is_joint: bool) -> Fold:
        """Describe the booster that scores some rows and learns the others."""
        joint = self.problem.joint
        rows = np.arange(len(self.problem.data.rows))
        if held.size < rows.size:
            rows = np.setdiff1d(rows, held, assume_unique=True)
        if not is_joint:
            return Fold(held, PartRows(rows, None, is_joint), None)
        # A small cell may have no rows outside of one fold.
        known, codes = np.unique(joint.codes[rows], return_inverse=True)
        target = np.zeros(len(joint.codes), dtype=np.intp)
        target[rows] = codes
        check_cells(self.problem, known)
        return Fold(held, PartRows(rows, target, is_joint), known)

    def _fit(self, part: PartRows, weights: Float | None) -> NativeModel:
        """Train a model, in stages where the weights move."""
        if weights is None or weights.ndim == 1:
            return self._fit_stage(part, weights)
        model = None
        for of_stage, rounds in zip(weights, self._divide_rounds(len(weights)), strict=False):
            model = self._fit_stage(part, of_stage, rounds, model)
        assert model is not None
        return model

    def _fit_stage(
        self,
        part: PartRows,
        weights: Float | None,
        rounds: int | None = None,
        start: NativeModel | None = None,
    ) -> NativeModel:
        """Train a model with weights of the joint cells, or go on with one."""
        factor = None if weights is None else weights[self.problem.joint.codes]
        return self.fit_part(replace(part, factor=factor, rounds=rounds, start=start))

    def _divide_rounds(self, n_stages: int) -> list[int]:
        """Divide the rounds into stages, each of one or more."""
        n_stages = min(n_stages, self.n_rounds)
        return [len(rounds) for rounds in np.array_split(np.arange(self.n_rounds), n_stages)]

    def _pool(
        self,
        folds: Sequence[Fold],
        models: Sequence[NativeModel],
        weights: Float | None,
        *,
        is_joint: bool,
    ) -> Grown:
        """Score the held-out rows, each by the model that has not seen it."""
        order = np.argsort(np.concatenate(self.folds))
        margins = [self._score(fold, model) for fold, model in zip(folds, models, strict=True)]
        margin = np.concatenate(margins)[order]
        link = self._link(margin, weights, is_joint=is_joint)
        is_kept = self.problem.options.ensemble is not None
        return Grown(margin, *link, list(models) if is_kept else [])

    def _score(self, fold: Fold, model: NativeModel) -> Array:
        """Score the rows of a fold, with one column for each joint cell or label."""
        margin = model.margin(take_rows(self.X, fold.held), fold.held)
        if fold.known is None:
            return margin
        return spread_margin(margin, fold.known, len(self.problem.joint))

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
