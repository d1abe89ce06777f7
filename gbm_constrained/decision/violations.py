r"""Errors and violations of many decisions at once.

Of all decisions, those are kept whose violation of the first priority is smallest, of these those
whose violation of the second one is smallest, and so on. The last priority and the error decide
between those left. Violations within a standard error of the smallest one count as equal where no
decision meets a priority: the last part of a violation is chance, and is not worth a constraint
that comes after.

A comparison of groups that only a costly threshold would meet is violated: one threshold closes a
gap by deciding nearly all rows alike. So a penalised violation need not be smallest. It may be as
large as where error and penalised violation are smallest together, and a standard error larger.

A bound k on the ratio of two rates is the linear row :math:`k f_j - f_i \le 0`. The smaller the
rates, the less it is violated, whatever their ratio is, so that a threshold that selects hardly
anybody would do. Violations are therefore divided by :math:`f_j`, which gives k less the ratio.
Where the rate of no group is that of :data:`MIN_ROWS` decisions among all rows, it is k.

With calibrated probabilities :math:`p` of the scores :math:`x`, the rates of randomised decisions
fill a convex set. The least violation over this set,

.. math:: \min_h \max_i \; (A \, \text{predicted}(h) - b)_i ,

is a linear programme over all decisions :math:`h`. It is solved by columns: its multipliers
:math:`\mu` are the costs of the next decision, :math:`\arg\min_k \sum_y p_y(x) L_{yk}`, and the
Lagrangian at that decision is a lower bound. Biases are among the decisions.

The bound is that of the distribution that the probabilities describe. It counts as proved where
the labels of the rows agree: counted by them, none of the decisions has a smaller Lagrangian than
zero.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, CurveFunction
from gbm_constrained.constraints.comparisons import Ratio
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.histograms import Candidates, DecisionFunctionals
from gbm_constrained.decision.rules import calibrate_scores, decide_by_costs, probabilities_of
from gbm_constrained.problem.linear_constraints import (
    LinearConstraints,
    find_levels,
    solve_linear_programme,
    violation_weights,
)
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.influence import Influence

CURVES = 16  # Curved rows that are measured at once.
NEAR = 512  # Candidates that are near enough for most rows to be violated by none of them.
MIN_ROWS = 20  # Rows to assess a rate: below, one row moves it by 0.05 and more.
# Violations of some rows of constraints at the values of a linear map, (rows, candidates); with
# two ends of the values bounded from below.
_Part: TypeAlias = Callable[..., Float]


@dataclass(frozen=True, eq=False)
class BoundedRatio:
    """The rows of constraints that bound one ratio of rates, multiplied by a rate.

    Attributes
    ----------
    rows : ndarray of int of shape (n_pairs,)
        Positions of the rows.
    divisors : ndarray of int of shape (n_pairs,)
        Functional that the ratio of each row divides by.
    rates : ndarray of int of shape (n_groups,)
        Functionals of all groups.
    bound : float
        Smallest ratio that is allowed.
    least : float
        Rate that some group reaches, unless decisions are too few. Zero with a slack.
    """

    rows: Codes
    divisors: Codes
    rates: Codes
    bound: float
    least: float

    @classmethod
    def list_all(cls, compiled: LinearConstraints, cells: Cells) -> list[BoundedRatio]:
        """List the ratios that decisions change."""
        found, kept = list[BoundedRatio](), compiled.is_known & ~compiled.has_scores
        for j, constraint in enumerate(compiled.constraints):
            rows = np.flatnonzero(kept & (compiled.owner == j))
            ratio = constraint.expression
            if not isinstance(ratio, Ratio) or not constraint.bound or not rows.size:
                continue
            entries, inside = compiled.R[rows].tocoo(), np.zeros(len(cells), dtype=bool)
            for part in chain.from_iterable(p or () for p in compiled.parts[compiled.spans[j]]):
                inside[part.cells] = True
            n_rows = max(float(cells.weighted_count[inside].sum()), 1.0)
            least = 0.0 if ratio.slack else (1.0 - ROUNDING) * MIN_ROWS / n_rows
            divisors, rates = entries.col[entries.data > 0.0], np.unique(entries.col)
            found.append(cls(rows, divisors, rates, constraint.bound, least))
        return found

    def divide(self, over: Float, divisor: Float, largest: Float, weight: float = 1.0) -> Float:
        """Divide what the rows exceed their bounds by; `largest` is the rate of some group."""
        found = np.divide(over, divisor, out=np.minimum(over, 0.0), where=divisor > ROUNDING)
        is_few = (largest < self.least) & np.isfinite(over)
        return np.where(is_few, weight * self.bound, found)


def restate_ratios(
    compiled: LinearConstraints, cells: Cells, violations: Float, functionals: Float
) -> Float:
    """Give violations, (m,), of which those of ratios are in units of the ratio."""
    found = violations.copy()
    for ratio in BoundedRatio.list_all(compiled, cells):
        largest = functionals[ratio.rates].max()
        over, divisor = violations[ratio.rows], functionals[ratio.divisors]
        found[ratio.rows] = ratio.divide(over, divisor, largest)
    return found


class ErrorAndViolations:
    """Errors and violations of decisions on some rows, for given right-hand sides.

    Violations are multiplied by the weights of their constraints. Those of ratios are in units of
    the ratio.
    """

    def __init__(self, cells: Cells, compiled: LinearConstraints, right: Float) -> None:
        of_decisions = compiled.is_known & ~compiled.has_scores
        self.ignored = tuple(np.flatnonzero(~of_decisions).tolist())
        kept = np.flatnonzero(of_decisions)
        self._compiled, self._kept = compiled, kept
        self._weights = violation_weights(compiled)[kept]
        self._rows = scale_rows(compiled.R[kept], self._weights)
        self._used = np.unique(self._rows.indices)
        self._is_curved = compiled.curves.is_curved[kept]
        self._ratios = BoundedRatio.list_all(compiled, cells)
        is_straight = not self._is_curved.any() and not self._ratios
        self._takes_rows = kept.size <= self._used.size and is_straight
        rows = compiled.U[self._used]
        if self._takes_rows:
            rows = scale_rows(compiled.A[kept], self._weights)
        self.linear = DecisionFunctionals(cells, rows)
        self._set_bounds(right)

    def _set_bounds(self, right: Float) -> None:
        """Set the right-hand sides of all rows of constraints."""
        self.bounds, self.right = right, right[self._kept] * self._weights
        # What tells all violations, and what tells the largest one fastest.
        self._each: tuple[_StraightRows, list[_Part]]
        self._fastest: tuple[_StraightRows, list[_Part]]
        if self._takes_rows:
            self._each = self._fastest = _StraightRows(None, self.right), []
            return
        combine, owner = self._rows[:, self._used], self._compiled.owner[self._kept]
        straight, pairs = ~self._is_curved, []
        ratios, of_pairs = self._collect_ratios(combine)
        for ratio in self._ratios:
            straight[np.searchsorted(self._kept, ratio.rows)] = False
        left = straight.copy()  # Rows that are not recognised as pairs.
        for j in np.unique(owner):
            mine = (owner == j) & straight
            if found := _recognise_pairs(combine[mine], self.right[mine]):
                pairs.append(partial(_violate_pairs, *found))
                left[mine] = False
        curves = self._collect_curves(right)
        each, fewest = (
            _StraightRows(combine[rows], self.right[rows]) for rows in (straight, left)
        )
        self._each = each, [*curves, *ratios]
        self._fastest = fewest, [*curves, *pairs, *of_pairs]

    def _collect_ratios(self, combine: Any) -> tuple[list[_Part], list[_Part]]:
        """Collect the ratios of rates by pair, and in parts that tell the largest one fastest."""
        each, fastest = list[_Part](), list[_Part]()
        for ratio in self._ratios:
            own = np.searchsorted(self._kept, ratio.rows)
            at, divisors = (np.searchsorted(self._used, x) for x in (ratio.rates, ratio.divisors))
            constant = float(self._compiled.constant[ratio.rates[0]])
            violate = partial(_violate_ratio, ratio, float(self._weights[own[0]]), constant, at)
            parts = [
                partial(violate, divisors[some], rows)
                for some, rows in zip(
                    _blocks_of(own.size), _split(combine[own], self.right[own]), strict=True
                )
            ]
            each += parts
            found = _recognise_pairs(combine[own], self.right[own])
            fastest += (
                [partial(violate, None, partial(_violate_pairs, *found))] if found else parts
            )
        return each, fastest

    def _collect_curves(self, right: Float) -> list[_Part]:
        """Collect the curved rows of rates: decisions change no others.

        Quotients over few rows decide nothing: noise closes some gap of theirs. Such a row is
        violated by all that rates can be apart.
        """
        compiled, found = self._compiled, list[_Part]()
        weights, count = violation_weights(compiled), self.linear.cells.weighted_count
        curves = compiled.curves.without(compiled.has_scores)
        rows = np.array([curve.first for curve in curves.items], dtype=np.intp)

        def find_least(k: int) -> float:
            """Find the rate of a functional below which there are too few rows."""
            bases = [part.cells for part in compiled.parts[k] or ()]
            n_rows = min((float(count[base].sum()) for base in bases), default=0.0)
            return MIN_ROWS / n_rows if n_rows > 0.0 else np.inf

        for function, own, at in curves.alike:
            below = at[list(function.denominators)]
            least = np.reshape([find_least(k) for k in below.ravel().tolist()], below.shape)
            used = np.searchsorted(self._used, at)
            for some in _blocks_of(own.size, CURVES):
                of_some = used[:, some], compiled.constant[at[:, some]], least[:, some]
                first = rows[own[some]]
                given = *of_some, right[first], weights[first]
                found.append(partial(_violate_curves, function, *given))
        return found

    def with_bounds(self, right: Float) -> ErrorAndViolations:
        """Return the same decisions measured by other right-hand sides."""
        other = copy.copy(self)
        other._set_bounds(right)
        return other

    def part(self, rows: Bool) -> ErrorAndViolations:
        """Measure the violations of some rows of constraints alone, given as shape (m,)."""
        return self.with_bounds(np.where(rows, self.bounds, np.inf))

    def on(self, cells: Cells) -> ErrorAndViolations:
        """Return the same of decisions on other rows, whose cells weigh the same."""
        other = copy.copy(self)
        other.linear = self.linear.on(cells)
        return other

    @property
    def indistinct_classes(self) -> list[tuple[int, ...]]:
        """Sets of classes that no constraint distinguishes in any cell."""
        by_class, k = self._compiled.A[self._kept].tocsc(), self.linear.n_classes
        groups: list[tuple[int, ...]] = []
        for j in range(k):
            for i, group in enumerate(groups):
                if (by_class[:, group[0] :: k] != by_class[:, j::k]).nnz == 0:
                    groups[i] = (*group, j)
                    break
            else:
                groups.append((j,))
        return groups

    def violations(
        self, low: Float, high: Float | None = None, *, has_total: bool = True
    ) -> tuple[Float, Float]:
        """Compute the largest violation and the sum of all from the values of the linear map.

        Between two ends of the values both are bounded from below. The largest one is found faster
        without the sum.
        """
        rows, others = self._each if has_total else self._fastest
        if rows.has_blocks and low.shape[1] > NEAR:
            found = [
                self.violations(
                    low[:, i : i + NEAR],
                    None if high is None else high[:, i : i + NEAR],
                    has_total=has_total,
                )
                for i in range(0, low.shape[1], NEAR)
            ]
            largest, total = map(np.concatenate, zip(*found, strict=True))
            return largest, total
        low = np.ascontiguousarray(low[1:])
        high = None if high is None else high[1:]
        largest, total = np.zeros((2, low.shape[1]))
        for part in (*rows.list_open(low, high), *others):
            violation = part(low, high)
            # Bounds of constraints that are left out are infinite, and so would be the product.
            np.maximum(violation, 0.0, out=violation)
            violation *= violation > ROUNDING
            np.maximum(largest, violation.max(axis=0, initial=0.0), out=largest)
            violation[:1] += total
            total = violation.sum(axis=0)
        return largest, total

    def measure(self, decided: Codes) -> tuple[float, float, float]:
        """Compute the error, largest violation and sum of violations of some decisions."""
        error, largest, total = measure_parts([self], self.linear.measure(decided)[:, None])
        return float(error[0]), float(largest[0, 0]), float(total[0, 0])

    def measure_along(
        self, line: Candidates, parts: Sequence[ErrorAndViolations], *, has_total: bool = True
    ) -> tuple[Float, Float, Float]:
        """Compute the error of each candidate, and its violations in each part."""
        along = self.linear.along(line)
        blocks = [measure_parts(parts, values, has_total=has_total) for values in along]
        error, largest, total = (np.concatenate(of, axis=-1) for of in zip(*blocks, strict=True))
        return error, largest, total


def measure_parts(
    parts: Sequence[ErrorAndViolations],
    low: Float,
    high: Float | None = None,
    *,
    has_total: bool = True,
) -> tuple[Float, Float, Float]:
    """Read errors (n,) and violations of each part from values of the linear map, (1 + r, n).

    Of the violations, the largest one and the sum are returned, of shape (n_parts, n). Between two
    ends of the values all are bounded from below. Sums are left out unless `has_total`.
    """
    found = [part.violations(low, high, has_total=has_total) for part in parts]
    largest, total = zip(*found, strict=True)
    return low[0], np.array(largest), np.array(total)


def _violate_rows(combine: Any, right: Float, low: Float, high: Float | None = None) -> Float:
    """Compute the violation of rows that are sums of values, or the values without `combine`."""
    if combine is None:
        rates = low
    elif high is None:
        rates = combine @ low
    else:
        rates = combine.maximum(0.0) @ low + combine.minimum(0.0) @ high
    return np.asarray(rates - right[:, None])


def _violate_ratio(
    ratio: BoundedRatio,
    weight: float,
    constant: float,
    at: Codes,
    divisors: Codes | None,
    rows: _Part,
    low: Float,
    high: Float | None = None,
) -> Float:
    """Compute the violation of a ratio, whose rates are values and a constant.

    `at` are the positions of all rates, and `divisors` those of the rates that the rows divide by.
    None stands for the largest one.
    """
    ends = low if high is None else high
    largest = ends[at].max(axis=0) + constant
    divisor = largest[None] if divisors is None else ends[divisors] + constant
    return ratio.divide(rows(low, high), divisor, largest, weight)


class _StraightRows:
    """Rows that are sums of values, or the values themselves without `combine`."""

    def __init__(self, combine: Any, right: Float) -> None:
        self.combine, self.right = combine, right

    @property
    def has_blocks(self) -> bool:
        """Whether there are more rows than one part has."""
        return self.combine is not None and len(_blocks_of(self.right.size)) > 1

    @cached_property
    def _above_and_below(self) -> tuple[Any, Any]:
        return self.combine.maximum(0.0), self.combine.minimum(0.0)

    def list_open(self, low: Float, high: Float | None) -> list[_Part]:
        """List the parts of those rows that some candidate may violate.

        A candidate violates few of the pairs of many groups.
        """
        if self.combine is None:
            return [partial(_violate_rows, None, self.right)]
        if not self.has_blocks:
            return _split(self.combine, self.right)
        above, below = self._above_and_below
        ends = low if high is None else high
        most = above @ low.max(axis=1) + below @ ends.min(axis=1)
        is_open = most > self.right
        return _split(self.combine[is_open], self.right[is_open])


def _split(combine: Any, right: Float) -> list[_Part]:
    """Make parts of few rows, so that what is made of each block of candidates stays in cache."""
    return [partial(_violate_rows, combine[some], right[some]) for some in _blocks_of(right.size)]


def _blocks_of(size: int, most: int = 64) -> list[slice]:
    return [slice(i, i + most) for i in range(0, size, most)]


def _violate_curves(
    function: CurveFunction,
    at: Codes,
    constant: Float,
    least: Float,
    right: Float,
    weight: Float,
    low: Float,
    high: Float | None = None,
) -> Float:
    """Compute the violations of n curved rows of one function of k values and constants.

    Positions and constants are (k, n), and `least` is the smallest value of each denominator that
    is enough. No bound is known between two ends of the values.
    """
    if high is not None:
        return np.full((1, low.shape[1]), -np.inf)
    f = low[at] + constant[..., None]
    found = function.values(f.reshape(len(f), -1)).reshape(f.shape[1:])
    over = found - right[:, None]
    is_few = f[list(function.denominators)] < (1.0 - ROUNDING) * least[..., None]
    is_open = is_few.any(axis=0)
    over[is_open] = np.maximum(over[is_open], 1.0)
    over[np.isnan(over)] = 1.0
    over[~np.isfinite(right)] = -np.inf
    return np.asarray(over * weight[:, None])


def _recognise_pairs(rows: Any, right: Float) -> tuple[Codes, float, float, float] | None:
    """Recognise rows ``up v_i - down v_j <= right`` for all i, j that differ, as in gaps.

    Returned are the positions of the values, `up`, `down` and `right`; None if rows are no such
    pairs.
    """
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
    return values, float(factor[0, 1]), -float(factor[0, 0]), float(right[0])


def _violate_pairs(
    values: Codes, up: float, down: float, right: float, low: Float, high: Float | None = None
) -> Float:
    """Compute the violation of the pair that violates most.

    With both factors positive the largest and the smallest value decide.
    """
    least = low[values]
    most = least if high is None else high[values]
    return np.asarray(up * least.max(axis=0) - down * most.min(axis=0) - right)[None]


def best_of(merit: Float, shift: Float, kept: Bool) -> int:
    """Find the candidate of smallest merit, up to rounding, of those kept; then of least shift."""
    best = kept & (merit <= merit[kept].min() + ROUNDING)
    return int(np.where(best, np.abs(shift), np.inf).argmin())


def scale_rows(matrix: Any, factors: Float) -> Any:
    """Multiply the rows of a sparse array by factors, in less time than a diagonal matrix does."""
    found = matrix.copy()
    found.data = found.data * np.repeat(factors, np.diff(found.indptr))
    return found


def standard_error_of(error: float, n_rows: int) -> float:
    """Compute the standard error of an error on so many rows; NaN for an error that is NaN."""
    return float(np.sqrt(error * (1.0 - error) / n_rows))


def standard_errors(compiled: LinearConstraints, counts: CellCounts) -> Float:
    """Compute the standard error of each row of constraints at counted decisions, shape (m,).

    Rows that are no straight lines have the error of their tangents. It is zero for rows on scores
    or on no rows of data, whose errors counts do not tell.
    """
    influence, tangents = Influence(compiled, counts), compiled
    if compiled.curves.items:
        tangents = compiled.tangent(influence.fractions.of(counts.weight.ravel()))
    variances = influence.variances(tangents.R)
    return np.sqrt(np.nan_to_num(variances))


def anticipate_standard_errors(compiled: LinearConstraints, cells: Cells) -> Float:
    """Approximate the standard error of each row of constraints before decisions are known.

    Rates are taken to be 0.1, and independent.
    """
    effective = cells.weighted_count
    if cells.has_amounts:  # Rows that count for amounts are counted as if these were alike.
        ones, total = cells.total(), cells.total(power=2)
        effective = np.divide(ones**2, total, out=np.zeros_like(ones), where=total > 0)
    squares = np.zeros(len(compiled.parts))
    for k, parts in enumerate(compiled.parts):
        for part in parts or ():
            n = max(effective[part.cells].sum(), 1.0)
            squares[k] += part.coefficient**2 * 0.09 / n
    return np.asarray(np.sqrt(compiled.R.power(2) @ squares))


@dataclass(frozen=True, eq=False)
class PriorityStep:
    """Rows of constraints whose violation is limited before what follows is looked at.

    Attributes
    ----------
    merits : ErrorAndViolations
        Measures the violations of these rows alone.
    tolerance : float
        Violation beyond the smallest one that counts as equal, where that is above zero.
    penalty : float or None
        Errors that a unit of violation is worth; None where the violation is to be smallest.
    yields : bool
        Whether nothing is limited where all candidates violate the rows.
    """

    merits: ErrorAndViolations
    tolerance: float = 0.0
    penalty: float | None = None
    yields: bool = False

    def find_limit(self, error: Float, violation: Float) -> float:
        """Find the largest violation that candidates may have."""
        if self.penalty is None:
            least = float(violation.min())
            if self.yields and least > 0.0:
                return np.inf
            return least + max(self.tolerance, ROUNDING) if least > 0.0 else 0.0
        merit = error + self.penalty * violation
        return float(violation[merit <= merit.min() + ROUNDING].min()) + self.tolerance

    def is_open(self, error: Float, violation: Float, inside: tuple[Float, Float]) -> Bool:
        """Find the bins inside of which a candidate may lower the limit.

        `inside` bounds error and violation in each bin from below.
        """
        low, least = inside
        if self.penalty is None:
            smallest = violation.min()
            is_left = self.yields and smallest > 0.0
            return np.asarray(least == 0.0 if is_left else least < smallest)
        merit, of_bins = error + self.penalty * violation, low + self.penalty * least
        smallest = merit.min()
        affordable = violation[merit <= smallest + ROUNDING].min()
        is_equal = of_bins <= smallest + ROUNDING
        return np.asarray((of_bins < smallest - ROUNDING) | (is_equal & (least < affordable)))


@dataclass(frozen=True, eq=False)
class PriorityLevels:
    """The rows of constraints of each priority.

    Attributes
    ----------
    rows : list of ndarray of shape (m,), bool
        Rows of each priority, that come first ahead.
    weights : ndarray of shape (m,)
        Factor on the violation of each row.
    tolerance : list of float
        Violation beyond the smallest one that counts as equal, for each priority but the last.
    """

    rows: list[Bool]
    weights: Float
    tolerance: list[float]

    @classmethod
    def from_constraints(cls, compiled: LinearConstraints, cells: Cells) -> PriorityLevels:
        """Read the priorities of constraints on these rows of data."""
        rows, weights = find_levels(compiled), violation_weights(compiled)
        if len(rows) < 2:
            return cls(rows, weights, [])
        errors = weights * anticipate_standard_errors(compiled, cells)
        return cls(rows, weights, [float(errors[one].max()) for one in rows[:-1]])

    @property
    def are_several(self) -> bool:
        """Whether there is more than one priority."""
        return len(self.rows) > 1

    def split(self, merits: ErrorAndViolations) -> list[ErrorAndViolations]:
        """Measure the violations of each priority alone."""
        return [merits.part(rows) for rows in self.rows] if self.are_several else [merits]

    def list_steps(
        self, merits: ErrorAndViolations, penalty: float | None, is_penalised: Bool | None
    ) -> list[PriorityStep]:
        """List the steps of a search before its last priority; penalised rows have their own."""
        if is_penalised is None:
            is_penalised = np.zeros(self.weights.size, dtype=bool)
        steps = []
        for rows, tolerance in zip(self.rows[:-1], self.tolerance, strict=True):
            for part, price in ((rows & ~is_penalised, None), (rows & is_penalised, penalty)):
                if part.any():
                    steps.append(PriorityStep(merits.part(part), tolerance, price))
        return steps

    def price(self, violations: Float | Sequence[Float]) -> Float:
        """Add up violations of each priority, tenfold those of the priority that follows."""
        n = len(violations)
        prices = 10.0 ** np.arange(n - 1, -1, -1.0)
        return np.asarray(np.tensordot(prices, np.asarray(violations), 1))

    def price_rows(self, violations: Float) -> Float:
        """Price the largest violation of each priority, given those of all rows, (..., m)."""
        weighed = self.weights * violations
        return self.price([weighed[..., rows].max(axis=-1, initial=0.0) for rows in self.rows])

    def find_met_above(self, violations: Float) -> Bool:
        """Find the rows that are met, of priorities before one that is not; shape (m,)."""
        met = violations <= ROUNDING
        broken = [level for level, rows in enumerate(self.rows) if not met[rows].all()]
        above = np.zeros_like(met)
        for rows in self.rows[: max(broken, default=0)]:
            above |= rows
        return np.asarray(above & met)


def keep_least(steps: Sequence[PriorityStep], error: Float, violations: Float) -> Bool:
    """Find the candidates that are left after some steps, shape (n,).

    Parameters
    ----------
    steps : sequence of PriorityStep
        The steps.
    error : ndarray of shape (n,)
        Error of each candidate.
    violations : ndarray of shape (n_steps or more, n)
        Violation of each candidate in each step; further ones are ignored.
    """
    kept = np.ones(error.size, dtype=bool)
    for step, found in zip(steps, violations, strict=False):
        kept &= found <= step.find_limit(error[kept], found[kept])
    return kept


class ViolationBound:
    """Decisions of least cost on some rows, and the violations that they leave at least.

    Use :meth:`of`, which knows where there is such a bound.

    Attributes
    ----------
    decisions : list of ndarray of shape (n_samples,)
        The decisions found.
    """

    def __init__(self, probabilities: Float, labels: Codes, weight: Float, costs: Float) -> None:
        self._probabilities, self._labels, self._weight = probabilities, labels, weight
        self._costs = costs  # What a row of unit weight adds, (m, n_labels, n_classes).
        self.decisions: list[Codes] = []
        self._by_model = self._by_labels = np.zeros((0, len(costs)))
        k = probabilities.shape[1]
        for always in range(k):
            self._add(np.full(len(labels), always))
        self._add(probabilities.argmax(axis=1))

    @classmethod
    def of(cls, margin: Array, cells: Cells, compiled: LinearConstraints) -> ViolationBound | None:
        """Calibrate scores; None where rates are of more than labels and decisions."""
        is_linear = compiled.is_known & ~compiled.has_scores & ~compiled.curves.is_curved
        if not (cells.communicator.holds_all_rows and is_linear.all() and cells.labelled.all()):
            return None
        labels, k = cells.labels[cells.views[0].codes], int(cells.classes.size)
        table = compiled.A.toarray().reshape(len(compiled), len(cells), k)
        total, costs = cells.total(cells.rows.weight), np.zeros((len(compiled), k, k))
        density = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        for view in cells.views:
            of_label = np.zeros(k, dtype=np.intp)
            of_label[labels] = view.codes
            if view.amount is not None or (of_label[labels] != view.codes).any():
                return None
            costs += (table * density[:, None])[:, of_label]
        weight = np.ones(labels.size) if cells.rows.weight is None else cells.rows.weight
        probabilities = probabilities_of(margin, *calibrate_scores(margin, labels, k, weight))
        mass, expected = np.bincount(labels, weight, k), weight @ probabilities
        probabilities *= np.divide(mass, expected, out=np.zeros(k), where=expected > 0.0)
        return cls(probabilities, labels, weight, costs)

    def find_refuted(self, bounds: Float) -> Bool | None:
        """Find rows of constraints that no decisions meet together.

        Parameters
        ----------
        bounds : ndarray of shape (m,)
            Right-hand sides; infinite ones are left out.

        Returns
        -------
        ndarray of shape (m,), bool, or None
            The rows that have multipliers; None where no bound is proved.
        """
        kept = np.flatnonzero(np.isfinite(bounds))
        while len(self.decisions) < 200:  # of all programmes together: about a second
            # The least violation of some rows by mixtures of the decisions, and multipliers.
            n = len(self.decisions)
            found = solve_linear_programme(
                np.append(np.zeros(n), 1.0),
                np.hstack([self._by_model[:, kept].T, -np.ones((kept.size, 1))]),
                bounds[kept],
                [(0, None)] * (n + 1),
                A_eq=np.append(np.ones(n), 0.0)[None],
                b_eq=[1.0],
            )
            least, multipliers = float(found.x[n]), np.zeros(bounds.size)
            multipliers[kept] = np.maximum(-found.ineqlin.marginals, 0.0)
            multipliers /= max(multipliers.sum(), ROUNDING)
            if least <= ROUNDING:
                break
            costs = np.tensordot(multipliers, self._costs, axes=1)
            self._add(decide_by_costs(self._probabilities, costs))
            has_price = multipliers > 0.0  # Infinite bounds have none.
            surely, by_labels = (
                ((rates - bounds)[:, has_price] @ multipliers[has_price]).min()
                for rates in (self._by_model[-1:], self._by_labels)
            )
            if min(surely, by_labels) > ROUNDING:
                return np.asarray(has_price)
            if least - surely <= ROUNDING:
                break
        return None

    def _add(self, decided: Codes) -> None:
        k = self._probabilities.shape[1]
        is_decided = (decided[:, None] == np.arange(k)) * self._weight[:, None]
        labelled = np.bincount(self._labels * k + decided, self._weight, k * k).reshape(k, k)
        of_model = np.tensordot(self._costs, self._probabilities.T @ is_decided, axes=2)
        self.decisions.append(decided)
        self._by_model = np.vstack([self._by_model, of_model])
        self._by_labels = np.vstack([self._by_labels, np.tensordot(self._costs, labelled, axes=2)])
