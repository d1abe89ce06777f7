"""Errors and violations of many decisions at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.decision.lines import Line
from gbm_constrained.decision.rule import MET
from gbm_constrained.decision.score_counts import (
    ROWS_AT_ONCE,
    DecisionCounts,
    FunctionalsAlongLine,
)
from gbm_constrained.problem.linear_constraints import CompiledConstraints


class ErrorAndViolations:
    """Error and violations of decisions.

    Parameters
    ----------
    decisions : _Decisions
        The rows.
    compiled : CompiledConstraints
        The constraints.
    right : ndarray of shape (m,)
        Their right-hand sides.
    """

    def __init__(
        self, decisions: DecisionCounts, compiled: CompiledConstraints, right: Float
    ) -> None:
        of_decisions = compiled.is_known & (np.diff(compiled.B.indptr) == 0)
        self.uncalibrated = tuple(np.flatnonzero(~of_decisions).tolist())
        kept = np.flatnonzero(of_decisions)
        self._compiled, self._kept = compiled, kept
        self._rows = compiled.R[kept]
        self._used = np.unique(self._rows.indices)
        few = kept.size <= self._used.size
        self.linear = FunctionalsAlongLine(
            decisions, compiled.A[kept] if few else compiled.U[self._used]
        )
        self._bound_by(right)

    def _bound_by(self, right: Float) -> None:
        """Take right-hand sides of all rows of constraints."""
        self.bounds, self.right = right, right[self._kept]
        self.pairs = list[_Pairs]()
        if self._kept.size <= self._used.size:
            self.parts = self.others = [_Combined(None, self.right)]
            return
        combine, owner = self._rows[:, self._used], self._compiled.owner[self._kept]
        left = np.ones(self._kept.size, dtype=bool)  # gaps of many groups are pairs
        for j in np.unique(owner):
            mine = owner == j
            if pairs := _Pairs.of(combine[mine], self.right[mine]):
                self.pairs.append(pairs)
                left[mine] = False
        self.parts = _Combined.split(combine, self.right)
        self.others = _Combined.split(combine[left], self.right[left])

    def under(self, right: Float) -> ErrorAndViolations:
        """Give the merits of the same decisions under other right-hand sides."""
        other = copy.copy(self)
        other._bound_by(right)
        return other

    @property
    def alike(self) -> list[tuple[int, ...]]:
        """Classes that no constraint tells apart."""
        return _alike(self._compiled.A[self._kept], self.linear.decisions.n_classes)

    @property
    def stays(self) -> bool:
        """Whether there are constraints, none of which decisions on these rows determine."""
        return self.right.size == 0 and bool(self.uncalibrated)

    def worst(self, values: Float) -> Float:
        """Largest violation, from the values of the linear map."""
        values = np.ascontiguousarray(values[1:])
        worst = np.zeros(values.shape[1])
        for part in self.others:
            np.maximum(worst, part.excess(values).max(axis=0, initial=0.0), out=worst)
        for pairs in self.pairs:
            np.maximum(worst, pairs.excess(values), out=worst)
        worst[worst <= MET] = 0.0
        return worst

    def total(self, values: Float) -> Float:
        """Sum of violations, from the values of the linear map."""
        values = np.ascontiguousarray(values[1:])
        total = np.zeros(values.shape[1])
        for part in self.parts:
            excess = part.excess(values)
            np.maximum(excess, 0.0, out=excess)  # bounds of rules that are left out are infinite
            excess *= excess > MET
            excess[:1] += total
            total = excess.sum(axis=0)
        return total

    def of(self, decided: Codes) -> tuple[float, float, float]:
        """Error, largest violation, and sum of violations of some decisions."""
        values = self.linear.of(decided)[:, None]
        return float(values[0, 0]), float(self.worst(values)[0]), float(self.total(values)[0])

    def along(self, line: Line, *measures: Callable[[Float], Float]) -> tuple[Float, ...]:
        """Error and further measures of each candidate of a line."""
        parts = [
            (values[0], *(measure(values) for measure in measures))
            for _, values in self.linear.along(line)
        ]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


@dataclass(frozen=True)
class _Combined:
    """Rows of constraints as sums of values; with no `combine` they are the values."""

    combine: Any
    right: Float

    @classmethod
    def split(cls, combine: Any, right: Float) -> list[_Combined]:
        """Make parts of few rows, so that what is made of each stays in cache."""
        some = [slice(i, i + ROWS_AT_ONCE) for i in range(0, right.size, ROWS_AT_ONCE)]
        return [cls(combine[part], right[part]) for part in some]

    def excess(self, values: Float) -> Float:
        """Left-hand minus right-hand side of each row, (rows, candidates)."""
        rates = values if self.combine is None else self.combine @ values
        return np.asarray(rates - self.right[:, None])


@dataclass(frozen=True)
class _Pairs:
    """Rows ``up v_i - down v_j <= right`` for all i, j that differ, as in gaps and ratios.

    With both factors positive the largest and the smallest value decide.
    """

    values: Codes
    up: float
    down: float
    right: float

    @classmethod
    def of(cls, rows: Any, right: Float) -> _Pairs | None:
        """Recognise the rows of a constraint as all pairs of its values; None if they are not."""
        values = np.unique(rows.indices)
        n, m = values.size, right.size
        if n < 2 or m != n * (n - 1) or (np.diff(rows.indptr) != 2).any():
            return None
        if (right != right[0]).any():
            return None
        at, factor = rows.indices.reshape(m, 2), rows.data.reshape(m, 2)
        order = np.argsort(factor, axis=1)  # what is subtracted comes first
        at, factor = (np.take_along_axis(x, order, axis=1) for x in (at, factor))
        if (factor != factor[0]).any() or not factor[0, 0] < 0.0 < factor[0, 1]:
            return None
        if len(set(map(tuple, at.tolist()))) < m:
            return None
        return cls(values, float(factor[0, 1]), -float(factor[0, 0]), float(right[0]))

    def excess(self, values: Float) -> Float:
        """Violation of the pair that violates most, or holds least."""
        mine = values[self.values]
        return np.asarray(self.up * mine.max(axis=0) - self.down * mine.min(axis=0) - self.right)


def _alike(costs: Any, n_classes: int) -> list[tuple[int, ...]]:
    """Classes that no constraint tells apart, whatever the cell, as sets."""
    by_class = costs.tocsc()
    groups: list[tuple[int, ...]] = []
    for j in range(n_classes):
        mine = by_class[:, j::n_classes]
        for i, group in enumerate(groups):
            if (by_class[:, group[0] :: n_classes] != mine).nnz == 0:
                groups[i] = (*group, j)
                break
        else:
            groups.append((j,))
    return groups


def best_of(error: Float, excess: Float, shift: Float, price: float | None = None) -> int:
    """Candidate of smallest violation, then error, then shift, equal up to rounding.

    With a price, of smallest error plus that of the violation where all violate.
    """
    least = excess.min()
    if least > 0.0 and price is not None:
        error, good = error + price * excess, np.ones(error.size, dtype=bool)
    else:
        good = excess <= (least + MET if least > 0.0 else 0.0)
    good &= error <= error[good].min() + MET
    return int(np.where(good, np.abs(shift), np.inf).argmin())
