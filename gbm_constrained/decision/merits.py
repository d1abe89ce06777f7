"""Errors and violations of many decisions at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.lines import Line
from gbm_constrained.decision.score_counts import (
    ROWS_AT_ONCE,
    DecisionCounts,
    FunctionalsAlongLine,
)
from gbm_constrained.problem.curved_rows import Curve
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.row_owners import violation_weights

FEWEST_ROWS = 20  # Rows of a quotient that decide: below, one row moves it by 0.05 and more.


class ErrorAndViolations:
    """Errors and violations of decisions on some rows, for given right-hand sides.

    Violations are multiplied by the weights of their constraints.
    """

    def __init__(
        self, decisions: DecisionCounts, compiled: LinearConstraints, right: Float
    ) -> None:
        of_decisions = compiled.is_known & ~compiled.has_scores
        self.uncalibrated = tuple(np.flatnonzero(~of_decisions).tolist())
        kept = np.flatnonzero(of_decisions)
        self._compiled, self._kept = compiled, kept
        self._weights = violation_weights(compiled)[kept]
        self._rows = _scale_rows(compiled.R[kept], self._weights)
        self._used = np.unique(self._rows.indices)
        self._is_curved = compiled.curves.is_curved[kept]
        self._takes_rows = kept.size <= self._used.size and not self._is_curved.any()
        rows = compiled.U[self._used]
        if self._takes_rows:
            rows = _scale_rows(compiled.A[kept], self._weights)
        self.linear = FunctionalsAlongLine(decisions, rows)
        self._set_bounds(right)

    def _set_bounds(self, right: Float) -> None:
        """Set the right-hand sides of all rows of constraints."""
        self.bounds, self.right = right, right[self._kept] * self._weights
        self.pairs = list[_Pairs]()
        self.parts: list[_Part]
        self.others: list[_Part]
        if self._takes_rows:
            self.parts = self.others = [_Combined(None, self.right)]
            return
        combine, owner = self._rows[:, self._used], self._compiled.owner[self._kept]
        left = ~self._is_curved  # Rows that are neither curved nor recognised as pairs.
        straight = left.copy()
        for j in np.unique(owner):
            mine = (owner == j) & straight
            if pairs := _Pairs.of(combine[mine], self.right[mine]):
                self.pairs.append(pairs)
                left[mine] = False
        curves = _Curves.of(self._compiled, self.linear.decisions.cells, self._used, right)
        self.parts = [*_Combined.split(combine[straight], self.right[straight]), *curves]
        self.others = [*_Combined.split(combine[left], self.right[left]), *curves]

    def with_bounds(self, right: Float) -> ErrorAndViolations:
        """Return the same decisions measured by other right-hand sides."""
        other = copy.copy(self)
        other._set_bounds(right)
        return other

    def on(self, decisions: DecisionCounts) -> ErrorAndViolations:
        """Return the same of decisions on other rows, whose cells weigh the same."""
        other = copy.copy(self)
        other.linear = self.linear.on(decisions)
        return other

    @property
    def indistinct_classes(self) -> list[tuple[int, ...]]:
        """Sets of classes that no constraint distinguishes in any cell."""
        by_class, k = self._compiled.A[self._kept].tocsc(), self.linear.decisions.n_classes
        groups: list[tuple[int, ...]] = []
        for j in range(k):
            for i, group in enumerate(groups):
                if (by_class[:, group[0] :: k] != by_class[:, j::k]).nnz == 0:
                    groups[i] = (*group, j)
                    break
            else:
                groups.append((j,))
        return groups

    def largest_violation(self, values: Float) -> Float:
        """Compute the largest violation from the values of the linear map."""
        values = np.ascontiguousarray(values[1:])
        worst = np.zeros(values.shape[1])
        for part in self.others:
            np.maximum(worst, part.violation(values).max(axis=0, initial=0.0), out=worst)
        for pairs in self.pairs:
            np.maximum(worst, pairs.violation(values), out=worst)
        worst[worst <= ROUNDING] = 0.0
        return worst

    def least_violation(self, low: Float, high: Float) -> Float:
        """Bound the largest violation from below, for values of the map between two ends."""
        low, high = low[1:], high[1:]
        worst = np.zeros(low.shape[1])
        for part in self.others:
            np.maximum(worst, part.least(low, high).max(axis=0, initial=0.0), out=worst)
        for pairs in self.pairs:
            np.maximum(worst, pairs.least(low, high), out=worst)
        worst[worst <= ROUNDING] = 0.0
        return worst

    def largest_and_total_violation(self, values: Float) -> tuple[Float, Float]:
        """Compute the largest violation and the sum of all from the values of the linear map."""
        values = np.ascontiguousarray(values[1:])
        largest, total = np.zeros(values.shape[1]), np.zeros(values.shape[1])
        for part in self.parts:
            violation = part.violation(values)
            # Bounds of constraints that are left out are infinite, and so would be the product.
            np.maximum(violation, 0.0, out=violation)
            violation *= violation > ROUNDING
            np.maximum(largest, violation.max(axis=0, initial=0.0), out=largest)
            violation[:1] += total
            total = violation.sum(axis=0)
        return largest, total

    def measure(self, decided: Codes) -> tuple[float, float, float]:
        """Compute the error, largest violation and sum of violations of some decisions."""
        values = self.linear.measure(decided)[:, None]
        largest, total = self.largest_and_total_violation(values)
        return float(values[0, 0]), float(largest[0]), float(total[0])

    def measure_along(self, line: Line, *measures: Callable[[Float], Float]) -> tuple[Float, ...]:
        """Compute the error and further measures of each candidate, which comes last."""
        parts = [
            (values[0], *(measure(values) for measure in measures))
            for _, values in self.linear.along(line)
        ]
        return tuple(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))


@dataclass(frozen=True)
class _Combined:
    """Rows of constraints as sums of values; without `combine` the rows are the values."""

    combine: Any
    right: Float

    @classmethod
    def split(cls, combine: Any, right: Float) -> list[_Combined]:
        """Make parts of few rows, so that what is made of each stays in cache."""
        some = [slice(i, i + ROWS_AT_ONCE) for i in range(0, right.size, ROWS_AT_ONCE)]
        return [cls(combine[part], right[part]) for part in some]

    def violation(self, values: Float) -> Float:
        """Compute left-hand minus right-hand side of each row, shape (rows, candidates)."""
        rates = values if self.combine is None else self.combine @ values
        return np.asarray(rates - self.right[:, None])

    def least(self, low: Float, high: Float) -> Float:
        """Bound the same from below, for values between two ends."""
        if self.combine is None:
            return np.asarray(low - self.right[:, None])
        rates = self.combine.maximum(0.0) @ low + self.combine.minimum(0.0) @ high
        return np.asarray(rates - self.right[:, None])


@dataclass(frozen=True)
class _Curves:
    """Curved rows, whose functionals are values and constants.

    Quotients over few rows decide nothing: noise closes some gap of theirs. Such a row is violated
    by all that rates can be apart.
    """

    curves: Sequence[Curve]
    at: Sequence[Codes]  # Positions of the functionals of each among the values.
    constants: Sequence[Float]
    smallest: Sequence[Float]  # Smallest denominators of each.
    right: Float
    weights: Float  # Of the violations of each.

    @classmethod
    def of(
        cls, compiled: LinearConstraints, cells: Cells, used: Codes, right: Float
    ) -> list[_Curves]:
        """Collect the curved rows of rates, if there are any: decisions change no others."""
        curves = compiled.curves.without(compiled.has_scores).items
        if not curves:
            return []
        return [
            cls(
                curves,
                [np.searchsorted(used, curve.at) for curve in curves],
                [compiled.constant[curve.at] for curve in curves],
                [_least_denominators(compiled, cells, curve) for curve in curves],
                right[[curve.first for curve in curves]],
                violation_weights(compiled)[[curve.first for curve in curves]],
            )
        ]

    def violation(self, values: Float) -> Float:
        """Compute left-hand minus right-hand side of each row, shape (rows, candidates)."""
        found = []
        parts = zip(self.curves, self.at, self.constants, self.smallest, self.right, strict=True)
        for curve, at, constant, smallest, right in parts:
            function, f = curve.row.function, values[at] + constant[:, None]
            over = function.values(f) - right
            is_open = (f[list(function.denominators)] < (1.0 - ROUNDING) * smallest[:, None]).any(
                axis=0
            )
            over[is_open] = np.maximum(over[is_open], 1.0)
            over[np.isnan(over)] = 1.0
            found.append(over if np.isfinite(right) else np.full(over.size, -np.inf))
        return np.array(found) * self.weights[:, None]

    def least(self, low: Float, high: Float) -> Float:
        """Bound the same from below, for values between two ends: by nothing."""
        return np.full((len(self.curves), low.shape[1]), -np.inf)


def _least_denominators(compiled: LinearConstraints, cells: Cells, curve: Curve) -> Float:
    """Find the smallest denominators of a curve, which have :data:`FEWEST_ROWS` rows."""
    found = []
    for i in curve.row.function.denominators:
        bases = [part.cells for part in compiled.parts[curve.row.at[i]] or ()]
        n_rows = min((float(cells.weighted_count[base].sum()) for base in bases), default=0.0)
        found.append(FEWEST_ROWS / n_rows if n_rows > 0.0 else np.inf)
    return np.array(found, dtype=np.float64)


_Part: TypeAlias = _Combined | _Curves


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
        order = np.argsort(factor, axis=1)  # The subtracted value comes first.
        at, factor = (np.take_along_axis(x, order, axis=1) for x in (at, factor))
        if (factor != factor[0]).any() or not factor[0, 0] < 0.0 < factor[0, 1]:
            return None
        if len(set(map(tuple, at.tolist()))) < m:
            return None
        return cls(values, float(factor[0, 1]), -float(factor[0, 0]), float(right[0]))

    def violation(self, values: Float) -> Float:
        """Compute the violation of the pair that violates most, or holds least."""
        mine = values[self.values]
        return np.asarray(self.up * mine.max(axis=0) - self.down * mine.min(axis=0) - self.right)

    def least(self, low: Float, high: Float) -> Float:
        """Bound the same from below, for values between two ends."""
        least, most = low[self.values].max(axis=0), high[self.values].min(axis=0)
        return np.asarray(self.up * least - self.down * most - self.right)


def _scale_rows(matrix: Any, factors: Float) -> Any:
    """Multiply the rows of a sparse matrix by factors, which are mostly one."""
    if (factors == 1.0).all():
        return matrix
    return sparse.csr_array(matrix.multiply(factors[:, None]))


def best_of(error: Float, violation: Float, shift: Float, penalty: float | None = None) -> int:
    """Find the candidate of smallest violation, then error, then shift, equal up to rounding.

    With a penalty, and where all candidates violate, the smallest error plus penalised violation
    comes first.
    """
    least = violation.min()
    if least > 0.0 and penalty is not None:
        error, good = error + penalty * violation, np.ones(error.size, dtype=bool)
    else:
        good = violation <= (least + ROUNDING if least > 0.0 else 0.0)
    good &= error <= error[good].min() + ROUNDING
    return int(np.where(good, np.abs(shift), np.inf).argmin())
