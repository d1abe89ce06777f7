"""Rows that no tree has seen, and what constraints are worth there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.rule import Choice
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import CompiledConstraints
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


class UnseenRows:
    """Rows that the trees have not seen, and what the rules are worth on them.

    Parameters
    ----------
    cells : Cells
        Their partition.
    compiled : CompiledConstraints
        The constraints.
    source : str
        What the rows are called in reports.
    folds : sequence of ndarray of int, default=()
        Parts of the rows, each scored by another booster.

    Attributes
    ----------
    functionals_in : dict from int to ndarray
        Value of each functional after the rounds that were measured.
    choices : dict from int to Choice
        Prefixes at their best shift, as far as :func:`choose` has looked at them.
    """

    def __init__(
        self,
        cells: Cells,
        compiled: CompiledConstraints,
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

    def state(self) -> dict[str, Any]:
        """Give what has been measured so far, for :meth:`restore`."""
        return {
            "rounds": list(self.functionals_in),
            "functionals": list(self.functionals_in.values()),
            "lagrangian": self.lagrangian.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what was measured on the same rows."""
        self.functionals_in = dict(zip(state["rounds"], state["functionals"], strict=True))
        self.lagrangian.restore(state["lagrangian"])

    def values(self, rounds: int) -> Float:
        """Value of each constraint after some rounds, shape (n_constraints,)."""
        return self.compiled.values(self.functionals_after(rounds))

    def functionals_after(self, rounds: int) -> Float:
        """Value of each functional after some rounds; NaN where these were not looked at."""
        unknown = np.full(self.compiled.constant.size, np.nan)
        return self.functionals_in.get(rounds, unknown)

    def functionals(self, telling: Array, counts: CellCounts) -> Float:
        """Value of each functional: rates as counted, mean losses of the scores given."""
        compiled = self.compiled
        functionals = functionals_of(compiled, counts)
        if compiled.V.nnz:
            total = counts.weight.sum(axis=1, keepdims=True)
            shares = np.divide(
                counts.weight, total, out=np.zeros_like(counts.weight), where=total > 0
            )
            statistics = replace(self.lagrangian.at(telling).statistics(), predicted=shares)
            with_loss = np.diff(compiled.V.indptr) > 0
            functionals = np.where(with_loss, compiled.functionals(statistics), functionals)
        return functionals

    def counts(self, decisions: Codes) -> CellCounts:
        """Count decisions on these rows."""
        return CellCounts.of(self.cells, decisions)

    def decisions(self, margin: Array) -> Codes:
        """Class index that each row's scores decide for."""
        return np.asarray(self.lagrangian.kernel.predicted(margin)).astype(np.intp)

    def violations(self, margin: Array) -> Float:
        """Left-hand minus right-hand side of each row of constraints at some scores, (m,)."""
        functionals = self.functionals(margin, self.counts(self.decisions(margin)))
        return self.compiled.rows_of(np.nan_to_num(functionals)) - self.compiled.b

    def error(self, decisions: Codes) -> float:
        """Fraction of the labelled rows of the objective that is decided wrongly.

        By the weights of rows and of classes: what decisions are chosen by.
        """
        inside = self.cells.labelled
        labels = self.cells.labels[inside]
        weight = self.counts(decisions).weight[inside] * self.cells.class_weight[labels][:, None]
        total = weight.sum()
        right = weight[np.arange(len(weight)), labels].sum()
        return float(1.0 - right / total) if total > 0 else np.nan

    def accuracy(self, counts: CellCounts) -> Estimate:
        """Weighted fraction of the labelled rows of the objective that is decided rightly.

        Clopper and Pearson's interval at level 0.95; unequal weights count as their effective
        number of rows.
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
