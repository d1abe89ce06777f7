"""Held-out rows, and the values of constraints there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.rule import Choice, Margins
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.binomial import clopper_pearson
from gbm_constrained.statistics.counts import CellCounts, functionals_of


class Estimate(NamedTuple):
    """A value on a sample of rows, and the interval for its value on all such rows.

    Parameters
    ----------
    value, low, high : float
        The value, and the ends of the interval.
    """

    value: float
    low: float
    high: float

    def __float__(self) -> float:
        """The value alone, as ``float(estimator.unseen_accuracy_)`` asks for."""  # noqa: D401
        return float(self.value)


UNKNOWN = Estimate(np.nan, np.nan, np.nan)


class EvaluationSet:
    """Rows that the trees have not seen, and the values of constraints there.

    Parameters
    ----------
    cells : Cells
        The partition of the rows.
    compiled : LinearConstraints
        The constraints on the rows.
    source : str
        Name of the rows in reports.
    folds : sequence of ndarray of int, default=()
        Parts of the rows, each scored by another booster.

    Attributes
    ----------
    functionals_in : dict from int to ndarray
        Value of each functional after the rounds that were measured.
    choices : dict from int to Choice
        Prefixes at their best shift, as far as the choice of a prefix has searched them.
    """

    def __init__(
        self,
        cells: Cells,
        compiled: LinearConstraints,
        source: str,
        folds: Sequence[Codes] = (),
    ) -> None:
        self.cells, self.compiled, self.source, self.folds = cells, compiled, source, folds
        rows = cells.rows
        self.lagrangian = Lagrangian(rows.y, cells, compiled, weight=rows.weight)
        self.functionals_in: dict[int, Float] = {}
        self.choices: dict[int, Choice] = {}

    def measure(self, rounds: int, margin: Array) -> None:
        """Measure the rates at the scores that the rows have after some rounds."""
        statistics = self.lagrangian.at(margin).statistics()
        self.functionals_in[rounds] = self.compiled.functionals(statistics)

    def values(self, rounds: int) -> Float:
        """Return the value of each constraint after some rounds, shape (n_constraints,)."""
        return self.compiled.values(self.functionals_after(rounds))

    def functionals_after(self, rounds: int) -> Float:
        """Return the value of each functional after some rounds; NaN if not measured."""
        unknown = np.full(self.compiled.constant.size, np.nan)
        return self.functionals_in.get(rounds, unknown)

    def functionals(self, margin: Array, counts: CellCounts) -> Float:
        """Compute each functional: rates from counts of decisions, mean losses from scores."""
        compiled = self.compiled
        functionals = functionals_of(compiled, counts)
        if compiled.V.nnz:
            total = counts.weight.sum(axis=1, keepdims=True)
            shares = np.divide(
                counts.weight, total, out=np.zeros_like(counts.weight), where=total > 0
            )
            statistics = replace(self.lagrangian.at(margin).statistics(), predicted=shares)
            with_loss = np.diff(compiled.V.indptr) > 0
            functionals = np.where(with_loss, compiled.functionals(statistics), functionals)
        return functionals

    def counts(self, decisions: Codes) -> CellCounts:
        """Count decisions on these rows."""
        return CellCounts.of(self.cells, decisions)

    def decisions(self, margin: Array) -> Codes:
        """Decide the class index of each row by its scores."""
        return np.asarray(self.lagrangian.kernel.predict(margin)).astype(np.intp)

    def violations(self, margin: Array) -> Float:
        """Compute left-hand minus right-hand side of each row of constraints, shape (m,)."""
        functionals = self.functionals(margin, self.counts(self.decisions(margin)))
        return self.compiled.rows_of(np.nan_to_num(functionals)) - self.compiled.b

    def error(self, decisions: Codes) -> float:
        """Compute the share of the labelled rows of the objective that is decided wrongly.

        Rows count by the weights of rows and of classes, as in the objective.
        """
        inside = self.cells.labelled
        labels = self.cells.labels[inside]
        weight = self.counts(decisions).weight[inside] * self.cells.class_weight[labels][:, None]
        total = weight.sum()
        right = weight[np.arange(len(weight)), labels].sum()
        return float(1.0 - right / total) if total > 0 else np.nan

    def accuracy(self, counts: CellCounts) -> Estimate:
        """Estimate the share of the labelled rows of the objective that is decided rightly.

        The interval is Clopper and Pearson's at level 0.95; rows of unequal weights count as their
        effective number.
        """
        inside = self.cells.labelled
        weight, square = counts.weight[inside], counts.square[inside].sum()
        total = weight.sum()
        if not total > 0:
            return UNKNOWN
        right = weight[np.arange(len(weight)), self.cells.labels[inside]].sum() / total
        n = total**2 / square
        low, high = clopper_pearson(n * right, n)
        return Estimate(float(right), float(low), float(high))


@dataclass(frozen=True)
class ScoredRows:
    """Held-out rows, and their scores under each prefix of an ensemble.

    Parameters
    ----------
    rows : EvaluationSet
        The rows.
    margins : callable
        Scores of the rows under the prefix of so many rounds.
    """

    rows: EvaluationSet
    margins: Margins
