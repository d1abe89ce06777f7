r"""Intervals of rates, losses and calibration errors in the population.

The rows of the counts were used for nothing else, neither to train nor to choose. Nothing is
resampled: an event that never occurred on some rows never occurs in replicates.

Sample weights that are equal in each base set change nothing. Unequal weights are taken as given,
and intervals use the effective number of rows, ``(sum w)^2 / sum w^2``, an approximation.

The error of a sample, :math:`\sum_b |\hat r_b|`, is larger than that of the population,
:math:`\sum_b |r_b|`, by chance: noise has no sign in a bin that is calibrated. With errors
:math:`e_b = \hat r_b - r_b`, which are nearly normal and independent, the difference is

.. math:: D = \sum_b \left( |r_b + e_b| - |r_b| \right) .

**Upper end.** An absolute value is above its tangent, so that :math:`D \ge \sum_b s_b e_b` with
:math:`s_b` the sign of :math:`r_b`. That sum is normal with the variances of all :math:`e_b`
together. The end is that of the tangent, and covers the truth at least as often as it says.

**Lower end.** D falls with each :math:`|r_b|`. Mean residuals are therefore taken nearer to zero
by :data:`SHRINKAGE` standard errors, and the quantile of D there, which is drawn, is subtracted.
This is the correction of the bias, and is more than needed where bins are off by little.

Errors of groups are compared without the median of D, by which noise makes that of a small group
larger. A mean residual has the normal interval of a mean of rows.

Mean cross-entropies and amounts have no bounded range, so that counted decisions
(:mod:`gbm_constrained.statistics.intervals`) do not suffice. The intervals use the loss, or the
cost, of each row: they have the empirical variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, stats
from sklearn.utils import check_random_state

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import (
    ROUNDING,
    Constraint,
    CurvedRow,
    Expression,
    Quotient,
    Rate,
    Sense,
)
from gbm_constrained.constraints.comparisons import Each, Gap, GapNorm, Grouped, Paired, Ratio
from gbm_constrained.constraints.presets import CoverageDifference, CoverageDivergence
from gbm_constrained.constraints.rates import (
    CalibrationErrors,
    CalibrationGap,
    EachCalibrationError,
)
from gbm_constrained.constraints.selectors import Event, Levels
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.data.exact_sums import Values
from gbm_constrained.problem.functionals import MeanResidual, WeightedFraction
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.rows import find_bins
from gbm_constrained.statistics.binomial import clopper_pearson, interval_of_binomials
from gbm_constrained.statistics.counts import (
    EQUAL,
    Block,
    CellCounts,
    blocks_of,
    functionals_of,
    sum_by_column,
)
from gbm_constrained.statistics.influence import Influence, scale_parts

__all__ = ["constraint_intervals", "functional_intervals"]


def level_of_all(constraint: Constraint, n_groups: int, level: float) -> float:
    """Compute the level of single intervals at which those of all groups or pairs hold at once.

    `n_groups` includes the reference; the correction is Bonferroni's.
    """
    return 1.0 - (1.0 - level) / max(constraint.expression.n_comparisons(n_groups), 1)


def worst_interval(
    constraint: Constraint,
    f: Float,
    at: Float,
    strict: Float,
    correlation: Float | None = None,
) -> NDArray[np.float64]:
    """Find the interval of the worst group, or the worst pair; NaN where the value is undefined.

    `at` and `strict` are intervals of the groups' rates `f`, shape (n_groups, 2), at the level
    asked for and at that of :func:`level_of_all`; the reference comes last. Rates that share no
    rows need no `correlation`, shape (n_groups, n_groups).

    The worst group (or pair) of the population is one and not chosen by the data. Its value lies
    above its own upper end, and so above the largest of all, no more often than any one value. The
    lower end is that of a worst group chosen by the data, among intervals that all hold at once.

    The interval of an absolute difference is conservative where that of the population is above
    zero and below some two standard errors: no upper end lies below it, so that half of the
    intervals that miss the signed difference hold its size.
    """
    if np.isnan(constraint.value(f)):
        return np.full(2, np.nan)
    return interval_of_worst(constraint.expression, constraint.sense, f, (at, strict), correlation)


def interval_of_worst(
    expression: Expression,
    sense: Sense,
    f: Float,
    ends: tuple[Float, Float],
    correlation: Float | None = None,
) -> NDArray[np.float64]:
    """Find the interval of :func:`worst_interval` where some value is defined.

    `ends` are `at` and `strict`. `f` are the values of groups, of which each may be a function of
    several functionals.
    """
    rates = _Rates(f, np.eye(f.size) if correlation is None else correlation)
    return _worst(expression, sense, rates, *ends)


def correlation_of(covariance: Float) -> Float:
    """Compute correlations; zero with what does not vary."""
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.outer(deviation, deviation)
    found = np.divide(covariance, scale, out=np.zeros(covariance.shape), where=scale > 0)
    np.fill_diagonal(found, 1.0)
    return np.asarray(np.clip(found, -1.0, 1.0))


class _Rates(NamedTuple):
    """Rates of groups and their correlation."""

    f: Float
    correlation: Float


@singledispatch
def _worst(expression: Expression, sense: Sense, rates: _Rates, at: Float, strict: Float) -> Float:
    """Find the interval of the worst of several values; see :func:`worst_interval`."""
    raise NotImplementedError


@_worst.register(Each)
@_worst.register(EachCalibrationError)
def _(expression: Expression, sense: Sense, rates: _Rates, at: Float, strict: Float) -> Float:
    if sense == "<=":
        return np.array([np.nanmax(strict[:, 0]), np.nanmax(at[:, 1])])
    return np.array([np.nanmin(at[:, 0]), np.nanmin(strict[:, 1])])


@_worst.register(Gap)
@_worst.register(CalibrationGap)
def _(
    expression: Gap | CalibrationGap, sense: Sense, rates: _Rates, at: Float, strict: Float
) -> Float:
    lowest = np.nanmax(_difference_intervals(expression, rates, strict)[0])
    return np.array([max(lowest, 0.0), np.nanmax(_difference_intervals(expression, rates, at)[1])])


@_worst.register
def _(expression: Ratio, sense: Sense, rates: _Rates, at: Float, strict: Float) -> Float:
    # A ratio is k at least where first - k second + slack >= 0 for all pairs (Fieller).
    def holds(intervals: Float, end: int, k: float) -> bool:
        ends = _difference_intervals(expression, rates, intervals, k)[end]
        return bool(np.nanmin(ends) + expression.slack >= 0.0)

    return np.array([_largest(partial(holds, at, 0)), _largest(partial(holds, strict, 1))])


def _difference_intervals(
    expression: Paired, rates: _Rates, intervals: Float, factor: float = 1.0
) -> tuple[Float, Float]:
    """Find the ends of ``first - factor * second`` of all pairs; deviations add by squares."""
    f = rates.f
    first, second = np.array(expression.pairs(f.size), dtype=np.intp).reshape(-1, 2).T
    down, up = f - intervals[:, 0], intervals[:, 1] - f
    difference, correlation = f[first] - factor * f[second], rates.correlation[first, second]

    def size(of_first: Float, of_second: Float) -> Float:
        x, y = of_first[first], factor * of_second[second]
        return np.asarray(np.sqrt(np.maximum(x**2 + y**2 - 2.0 * correlation * x * y, 0.0)))

    return difference - size(down, up), difference + size(up, down)


def _largest(holds: Callable[[float], bool]) -> float:
    """Find the largest number in [0, 1] that something holds for, which holds for smaller ones."""
    if holds(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


MOST_BRANCHES = 64  # Largest values among which the worst is looked for: others lie far below.


def _correlation(rates: Float) -> Float:
    """Compute correlations of events that imply each other, zero for certain events."""
    with np.errstate(invalid="ignore", divide="ignore"):
        odds = rates / (1.0 - rates)
        quotient = odds[:, None] / odds
        found = np.nan_to_num(np.sqrt(np.minimum(quotient, 1.0 / quotient)))
    np.fill_diagonal(found, 1.0)
    return found


def _effective(
    counts: CellCounts, cells: Codes, inside: Bool, event: Bool
) -> tuple[np.float64, np.float64]:
    """Count events and rows among some entries of a table, as if their weights were equal."""
    weight, square = counts.weight[cells][inside], counts.square[cells][inside]
    n, total, squares = counts.count[cells][inside].sum(), weight.sum(), square.sum()
    if squares * n <= total**2 * (1.0 + EQUAL):
        return counts.count[cells][inside & event].sum(), n
    effective = total**2 / squares
    return effective * (counts.weight[cells][inside & event].sum() / total), effective


def _interval_of_sum(
    parts: Sequence[WeightedFraction] | None, constant: float, counts: CellCounts, level: float
) -> NDArray[np.float64]:
    """Find the interval of a sum of fractions of rows; NaN for mean losses and empty base sets.

    Each row adds the sum of its parts in the fractions. Rows of the same base sets that add one of
    two numbers are a binomial. One binomial has an exact interval, and several have that of a sum.
    Where rows add one of three numbers, as in wins minus losses, that they add the second at least
    is one binomial, and that they add the third is another, which implies the first.

    The numbers of rows that are in several base sets are random as well. One such row more or less
    changes the sum by their mean, less what they would add with the means of their base sets.
    """
    if parts is None:
        return np.full(2, np.nan)
    blocks = blocks_of(parts)
    if not blocks:
        return np.full(2, constant)
    totals = [float(block.sum(counts.weight)) for block in blocks]
    if min(totals) == 0.0:
        return np.full(2, np.nan)
    cells, added, usual, sets = _add_up(blocks, totals, counts)
    unit = float(np.abs(added).max()) or 1.0
    added, usual = np.round(added / unit, 12), usual / unit
    sure, variance = constant, 0.0
    scales, events, rows, correlations = [], [], [], []
    for i in np.unique(sets):
        own = np.flatnonzero(sets == i)
        weight = counts.weight[cells[own]]
        total = weight.sum()
        if total == 0.0:
            continue
        mean = (added[own] * weight).sum() / total
        variance += (unit * (mean - usual[own[0]])) ** 2 * counts.square[cells[own]].sum()
        least, *others = np.unique(added[own])
        sure += least * unit * total
        reached = [
            _effective(counts, cells[own], np.ones_like(added[own], bool), added[own] >= value)
            for value in others
        ]
        scales.append(np.diff([least, *others]) * unit * total)
        events += [e for e, _ in reached]
        rows += [n for _, n in reached]
        correlations.append(_correlation(np.array([e / n for e, n in reached])))
    if not events:
        return np.full(2, sure)
    scale, e, n = np.concatenate(scales), np.array(events), np.array(rows)
    if scale.size == 1 and variance <= ROUNDING**2 * scale[0] ** 2:
        return np.asarray(sure + scale * np.ravel(clopper_pearson(e, n, level)))
    found = interval_of_binomials(scale, e, n, level, variance, linalg.block_diag(*correlations))
    low, high = sum(b.low for b in blocks), sum(b.high for b in blocks)
    return np.clip(sure + np.array(found), constant + low, constant + high)


def _add_up(
    blocks: Sequence[Block], totals: Sequence[float], counts: CellCounts
) -> tuple[Codes, Float, Float, Codes]:
    """Add up what rows of each cell add to a sum of fractions.

    Returned are the n cells in some base set, the contribution of a row of weight one (n,
    n_classes), the mean contribution of rows of the same base sets (n,), and the number of this
    combination of base sets (n,).
    """
    cells = np.unique(np.concatenate([block.cells for block in blocks]))
    added = np.zeros((cells.size, counts.weight.shape[-1]))
    usual, sets = np.zeros(cells.size), np.zeros(cells.size, dtype=np.intp)
    for block, total in zip(blocks, totals, strict=True):
        at = np.searchsorted(cells, block.cells)
        added[at] += block.score / total
        usual[at] += block.sum(counts.weight, block.score) / total**2
        sets *= 2
        sets[at] += 1
        sets = np.unique(sets, return_inverse=True)[1]
    return cells, added, usual, sets


def functional_intervals(
    compiled: LinearConstraints, counts: CellCounts, level: float = 0.95
) -> NDArray[np.float64]:
    """Compute two-sided intervals of functionals, such as the rate of each group.

    One fraction of rows has Clopper and Pearson's interval. Sums and differences of several have
    Newcombe's.

    Parameters
    ----------
    compiled : LinearConstraints
        The constraints.
    counts : CellCounts
        Decisions.
    level : float, default=0.95
        Probability that an interval covers the truth.

    Returns
    -------
    ndarray of shape (n_functionals, 2)
        NaN for mean losses and undefined rates.
    """
    found = _Values(compiled.constant, compiled.parts, compiled.constant, counts, level)
    return found.intervals(level)


def constraint_intervals(
    compiled: LinearConstraints,
    counts: CellCounts,
    level: float = 0.95,
) -> NDArray[np.float64]:
    """Compute two-sided intervals of what each constraint bounds.

    A rate has the interval of its functional (:func:`functional_intervals`). The gap of two groups
    has Newcombe's interval of the signed difference, folded to its absolute value. The worst of
    several groups or pairs has one from the intervals of all of them (Bonferroni).

    Precision, and other shares of the rows that a decision selects, have Clopper and Pearson's
    interval among these rows. So have odds such as wins over losses. So has F1, which rises with
    the share of true positives among true positives and errors. Other quotients, such as those of
    rates of two groups, are compared with each number in turn (Fieller).

    Parameters
    ----------
    compiled : LinearConstraints
        The constraints.
    counts : CellCounts
        Decisions.
    level : float, default=0.95
        Probability that an interval covers the truth.

    Returns
    -------
    ndarray of shape (n_constraints, 2)
        NaN where a mean loss is bounded.
    """
    ends = np.full((len(compiled.constraints), 2), np.nan)
    functionals = functionals_of(compiled, counts)
    for j, (constraint, span) in enumerate(zip(compiled.constraints, compiled.spans, strict=True)):
        values = _Values(
            functionals[span], compiled.parts[span], compiled.constant[span], counts, level
        )
        is_known = [parts is not None for parts in values.parts]
        if all(is_known) or (any(is_known) and not constraint.expression.is_quotient):
            ends[j] = _interval_of(constraint.expression, constraint, values)
    return ends


class _Values(NamedTuple):
    """Functionals of a constraint, and what their intervals depend on."""

    functionals: Float
    parts: Sequence[tuple[WeightedFraction, ...] | None]
    constant: Float
    counts: CellCounts
    level: float
    mixing: None = None
    stated: None = None

    def intervals(self, level: float) -> Float:
        """Find the interval of each functional."""
        some = zip(self.parts, self.constant, strict=True)
        ends = [_interval_of_sum(parts, c, self.counts, level) for parts, c in some]
        return np.array(ends, dtype=np.float64).reshape(-1, 2)


@singledispatch
def _interval_of(expression: Expression, constraint: Constraint, values: _Values) -> Float:
    """Find the interval of what a constraint bounds.

    A function of several functionals has the interval of its tangent, a sum of fractions. Of
    several functions whose largest value is bounded, the interval is that of the worst one: see
    :func:`~gbm_constrained.statistics.intervals.worst_interval`.
    """
    f = values.functionals
    value = constraint.value(f)
    if np.isnan(value):
        return np.full(2, np.nan)
    branches = constraint.branches(range(f.size))
    known = [row for row in branches if not np.isnan(f[list(row.at)]).any()]
    known.sort(key=lambda row: -float(row.function.values(f[list(row.at)][:, None])[0]))
    of_all = level_of_all(constraint, f.size, values.level)
    low, high = -np.inf, -np.inf
    for row in known[:MOST_BRANCHES]:
        low = max(low, _tangent_interval(row, values, of_all)[0])
        high = max(high, _tangent_interval(row, values, values.level)[1])
    ends = np.sort(constraint.sign * np.array([low, high]))
    # Rounding must not leave the value outside.
    ends = np.array([min(ends[0], value), max(ends[1], value)])
    return np.asarray(np.clip(ends, *constraint.range))


@_interval_of.register
def _(expression: Rate, constraint: Constraint, values: _Values) -> Float:
    return np.asarray(values.intervals(values.level)[0])


@_interval_of.register
def _(expression: Quotient, constraint: Constraint, values: _Values) -> Float:
    exact = _quotient_interval(values)
    return _fieller_interval(values, constraint) if exact is None else exact


@_interval_of.register
def _(expression: Grouped, constraint: Constraint, values: _Values) -> Float:
    of_all = level_of_all(constraint, values.functionals.size, values.level)
    at, strict = (values.intervals(level) for level in (values.level, of_all))
    correlation = None
    if constraint.expression.compares_with_overall:  # Each group is a part of all rows.
        correlation = correlation_of(Influence.of(values, values.counts).covariance())
    return worst_interval(constraint, values.functionals, at, strict, correlation)


@_interval_of.register
def _(expression: Each, constraint: Constraint, values: _Values) -> Float:
    if values.functionals.size == 1:
        return np.asarray(values.intervals(values.level)[0])
    return _interval_of.dispatch(Grouped)(expression, constraint, values)


@_interval_of.register
def _(expression: Gap, constraint: Constraint, values: _Values) -> Float:
    exact = _gap_interval(values) if expression.is_difference else None
    if exact is None:
        return _interval_of.dispatch(Grouped)(expression, constraint, values)
    return exact


@_interval_of.register
def _(expression: GapNorm, constraint: Constraint, values: _Values) -> Float:
    return _interval_of.dispatch(Expression)(expression, constraint, values)


@_interval_of.register
def _(expression: CoverageDifference, constraint: Constraint, values: _Values) -> Float:
    of_all = level_of_all(constraint, values.functionals.size, values.level)
    at, strict = (values.intervals(level) for level in (values.level, of_all))
    least = np.maximum(np.maximum(strict[:, 0], -strict[:, 1]), 0.0)
    return np.array([least.max(), np.abs(at).max()])


@_interval_of.register
def _(expression: CoverageDivergence, constraint: Constraint, values: _Values) -> Float:
    return np.full(2, np.nan)


def _tangent_interval(row: CurvedRow, values: _Values, level: float) -> Float:
    """Find the interval of a function from that of its tangent at the functionals."""
    at = list(row.at)
    f, constant = values.functionals[at], values.constant[at]
    slope = row.function.gradient(f)
    scaled = scale_parts([values.parts[k] for k in at], slope)
    ends = _interval_of_sum(scaled, 0.0, values.counts, level)
    moved = float(row.function.values(f[:, None])[0]) - float(slope @ (f - constant))
    return np.asarray(ends + moved)


def _gap_interval(values: _Values) -> Float | None:
    """Find the interval of the absolute difference of two functionals; None for others."""
    parts, counts, level = values.parts, values.counts, values.level
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        return None
    other = [replace(p, coefficient=-p.coefficient) for p in parts[1]]
    if not any(block.score.any() for block in blocks_of([*parts[0], *other])):
        return None  # The group has all rows.
    signed = _interval_of_sum([*parts[0], *other], 0.0, counts, level)
    sizes = np.sort(np.abs(signed))
    return np.array([0.0, sizes[1]]) if signed[0] <= 0.0 <= signed[1] else sizes


def _quotient_interval(values: _Values) -> Float | None:
    """Find the interval of a quotient that rows of two kinds decide about; None for others.

    With a binomial probability p of the first kind the quotient is
    ``(a p + c (1 - p)) / (b p + d (1 - p))``, which is monotone in p. A row of the first kind adds
    a to the numerator and b to the denominator, one of the second adds c and d. Right and wrong
    rows among those selected decide about precision, true positives and errors about F1.
    """
    (numerator, denominator), counts = values.parts, values.counts
    if numerator is None or denominator is None:
        return None
    top, bottom = blocks_of(numerator), blocks_of(denominator)
    if len(top) != 1 or len(bottom) != 1 or not np.array_equal(top[0].cells, bottom[0].cells):
        return None
    # A constant is a part of every row. Adding zero makes negative zeros equal to others.
    scores = np.stack([top[0].score, bottom[0].score], axis=-1) + values.constant
    scores = np.round(scores, 12) + 0.0
    kinds = np.unique(scores[scores.any(axis=-1)], axis=0)
    if len(kinds) != 2:
        return None
    first, second = ((scores == kind).all(axis=-1) for kind in kinds)
    p = np.array(
        clopper_pearson(*_effective(counts, top[0].cells, first | second, first), values.level)
    )
    above, below = (kind[0] * p + kind[1] * (1.0 - p) for kind in kinds.T)
    with np.errstate(divide="ignore"):
        return np.sort(above / below)


def _fieller_interval(values: _Values, constraint: Constraint) -> Float:
    """Find the interval of a quotient from the sums that compare it with numbers (Fieller, 1954).

    The quotient is k at least where ``numerator - k denominator >= 0``. With k = t / (1 - |t|) for
    t from -1 to 1, the sum compared with zero is ``(1 - |t|) numerator - t denominator``.
    """
    value = constraint.value(values.functionals)
    if np.isnan(value):
        return np.full(2, np.nan)

    def end(i: int) -> float:
        def compared(t: float) -> float:
            factors = 1.0 - abs(t), -t
            both = [
                replace(part, coefficient=factor * part.coefficient)
                for factor, of_one in zip(factors, values.parts, strict=True)
                for part in of_one or ()
                if factor
            ]
            total = float(values.constant @ factors)
            return float(_interval_of_sum(both, total, values.counts, values.level)[i])

        if compared(1.0) >= 0.0:
            return np.inf
        start = 0.0 if compared(0.0) >= 0.0 else -1.0
        t = start if compared(start) <= 0.0 else float(optimize.brentq(compared, start, 1.0))
        return t / (1.0 - abs(t)) if t > -1.0 else -np.inf

    # Rounding must not leave the value outside.
    return np.clip([min(end(0), value), max(end(1), value)], *constraint.range)


DRAWS = 2000  # Draws of the noise of bins.
SHRINKAGE = 2.0  # Standard errors that mean residuals are taken nearer to zero by.


@dataclass(frozen=True)
class CalibrationIntervals:
    """Intervals of constraints on calibration errors, which complete those of other constraints.

    Parameters
    ----------
    cells : Cells
        Partition of the rows.
    compiled : LinearConstraints
        The constraints.
    probability : ndarray of shape (n_samples,)
        Probability of the positive class of each row.
    level : float, default=0.95
        Probability that an interval covers the truth.
    """

    cells: Cells
    compiled: LinearConstraints
    probability: Float
    level: float = 0.95

    def complete(
        self, functionals: Float, intervals: Float, of_functionals: Float
    ) -> tuple[Float, Float]:
        """Fill in the intervals of calibration errors, which are NaN for counted decisions."""
        intervals, of_functionals = intervals.copy(), of_functionals.copy()
        for j, constraint in enumerate(self.compiled.constraints):
            expression = constraint.expression
            if isinstance(expression, CalibrationErrors):
                span, bins = self.compiled.spans[j], expression.rates
                errors = self._standard_errors(j)
                half = stats.norm.isf((1.0 - self.level) / 2.0) * errors
                ends = functionals[span] + np.stack([-half, half])
                ranges = np.resize([rate.range for rate in bins], (half.size, 2))
                of_functionals[span] = np.clip(ends.T, ranges[:, :1], ranges[:, 1:])
                intervals[j] = self._interval(constraint, expression, functionals[span], errors)
        return intervals, of_functionals

    def _interval(
        self, constraint: Constraint, expression: CalibrationErrors, f: Float, errors: Float
    ) -> Float:
        """Find the interval of what a constraint bounds, from residuals and standard errors."""
        if np.isnan(constraint.value(f)):
            return np.full(2, np.nan)
        shape = (-1, len(expression.rates))
        groups = list(zip(f.reshape(shape), errors.reshape(shape), strict=True))
        of_all = level_of_all(constraint, f.size, self.level)
        at, strict = (
            np.array([estimate_error(*group, level) for group in groups])
            for level in (self.level, of_all)
        )
        if not expression.compares_groups:
            return np.asarray(at[0, 1:])
        # What noise adds has to be out of the errors of groups before these are compared.
        ends = at[:, 1:], strict[:, 1:]
        found = interval_of_worst(expression, constraint.sense, at[:, 0], ends)
        value = constraint.value(f)
        return np.array([min(found[0], value), max(found[1], value)])

    def _standard_errors(self, j: int) -> Float:
        """Compute the standard errors of the mean residuals of a constraint.

        The mean r of values v of rows of weights w has the linearised error ``sum w (v - r) / sum
        w``, and v is zero outside of the bin.
        """
        cells, terms = self.cells, self.compiled.terms[self.compiled.spans[j]]
        view = cells.views[cells.view_of[j]]
        n, bins = len(view), len(self.compiled.constraints[j].rates)
        weight = np.ones(len(cells.rows)) if cells.rows.weight is None else cells.rows.weight
        codes = np.asarray(view.small_codes).astype(np.intp)
        entries = codes * bins + find_bins(self.probability, bins)
        residual = weight * ((cells.rows.y == 1) - self.probability)
        values, crossed, squares = (
            np.bincount(entries, of_rows, n * bins).reshape(n, bins)
            for of_rows in (residual, weight * residual, residual**2)
        )
        total, square = (np.bincount(codes, of_rows, n) for of_rows in (weight, weight**2))
        found = np.full(len(terms), np.nan)
        for k, parts in enumerate(terms):
            for part in parts or ():
                assert isinstance(part, MeanResidual)
                own, b = part.cells - view.cells.start, part.position
                mean = values[own, b].sum() / total[own].sum()
                variance = squares[own, b].sum() - 2.0 * mean * crossed[own, b].sum()
                variance += mean**2 * square[own].sum()
                found[k] = np.sqrt(max(variance, 0.0)) / total[own].sum()
        return found


class ErrorEstimate(NamedTuple):
    """Estimate of a calibration error.

    Parameters
    ----------
    corrected : float
        The error of the sample without the median of what noise adds.
    low, high : float
        Ends of the interval.
    """

    corrected: float
    low: float
    high: float


def estimate_error(residuals: Float, standard_errors: Float, level: float) -> ErrorEstimate:
    """Estimate a calibration error, NaN where a residual is.

    Parameters
    ----------
    residuals : ndarray of shape (n_bins,)
        Mean residuals of the bins of a sample.
    standard_errors : ndarray of shape (n_bins,)
        Their standard errors.
    level : float
        Probability that the interval covers the truth.
    """
    value, tail = float(np.abs(residuals).sum()), (1.0 - level) / 2.0
    if np.isnan(value) or np.isnan(standard_errors).any():
        return ErrorEstimate(np.nan, np.nan, np.nan)
    high = value + stats.norm.isf(tail) * float(np.sqrt((standard_errors**2).sum()))
    shrunk = np.maximum(np.abs(residuals) - SHRINKAGE * standard_errors, 0.0)
    noise = check_random_state(0).standard_normal((DRAWS, residuals.size)) * standard_errors
    difference = (np.abs(shrunk + noise) - shrunk).sum(axis=1)
    added, most = np.quantile(difference, [0.5, 1.0 - tail])
    return ErrorEstimate(*np.clip([value - added, value - most, high], 0.0, 1.0).tolist())


@dataclass(frozen=True)
class LossIntervals:
    """Intervals of constraints on losses and costs, which complete those of other constraints."""

    cells: Cells
    compiled: LinearConstraints
    decided: Codes  # Class index that each row is decided for.
    loss: Float | None  # Cross-entropy of each row, in nats; None without constraints on it.
    level: float = 0.95

    def complete(
        self, functionals: Float, intervals: Float, of_functionals: Float
    ) -> tuple[Float, Float]:
        """Fill in the intervals of mean losses, which are NaN for counted decisions."""
        intervals, of_functionals = intervals.copy(), of_functionals.copy()
        moments = None if self.cells.communicator.holds_all_rows else self._moments()
        for j, constraint in enumerate(self.compiled.constraints):
            if not self.has_values(constraint):
                continue
            span = self.compiled.spans[j]
            f = functionals[span]
            if not np.isfinite(f).all():
                continue  # A base set has no rows, or is not known on these rows.
            spread = self._spread(j, moments)
            if not np.isfinite(spread).all():
                continue
            wide = self.widen(j, spread, self.level)
            of_functionals[span] = _normal_of_rates(constraint, f, wide, self.level)
            if _is_worst_of_several(constraint.expression, f.size):
                of_all = level_of_all(constraint, f.size, self.level)
                wide = self.widen(j, spread, of_all)
                strict = _normal_of_rates(constraint, f, wide, of_all)
                own, together = of_functionals[span], correlation_of(spread)
                intervals[j] = worst_interval(constraint, f, own, strict, together)
            else:
                intervals[j] = _loss_interval(constraint, f, wide, self.level)
        return intervals, of_functionals

    def has_values(self, constraint: Constraint) -> bool:
        """Whether the intervals of a constraint are those of values of rows."""
        return constraint.has_loss or constraint.has_costs_of_amounts

    def widen(self, j: int, spread: Float, level: float) -> Float:
        """Widen covariances by what a normal interval of a level lacks; here by nothing."""
        return spread

    def values_of(self, event: Event, view: View, levels: Levels) -> Float:
        """Find what each row adds to the mean of an event."""
        if event.is_loss:
            assert self.loss is not None
            return self.loss
        return np.asarray(event.cost(levels)[view.small_codes, self.decided])

    def _spread(self, j: int, moments: Float | None) -> Float:
        """Compute the covariances of the random errors of a constraint's functionals."""
        if moments is None:
            deviation = self._deviations(j)
            return np.asarray(deviation.T @ deviation)
        return self._spread_by_moments(j, moments)

    def _deviations(self, j: int) -> Float:
        """Compute each row's part in the random error of a constraint's functionals.

        A weighted mean e over rows i has the linearised error ``sum w_i (e_i - e) / sum w_i``.
        Amounts are parts of the weights, and of costs parts of what is averaged. The result has
        shape (n_samples, n_functionals).
        """
        cells, constraint = self.cells, self.compiled.constraints[j]
        views = cells.views_by_amount(j)
        weight = np.ones(len(cells.rows)) if cells.rows.weight is None else cells.rows.weight
        functionals = constraint.expression.functionals(self.compiled.groups[j])
        result = np.zeros((len(cells.rows), len(functionals)))
        for k, (rate, group) in enumerate(functionals):
            for a, term in rate.terms:
                view = views[term.amount]
                inside = cells.select(view, term.base)
                if group is not None:
                    inside &= group.holds(view)
                w = weight if term.event.is_cost else view.weigh(weight)
                w = w * inside[view.small_codes]
                counted = cells.select(view, term.where)[view.small_codes]
                values = self.values_of(term.event, view, cells.levels_of(view))
                event = np.where(counted, values, 0.0)
                if term.event.is_cost:
                    event = view.weigh(event)
                mean = w @ event / w.sum()
                result[:, k] += a * w * (event - mean) / w.sum()
        return result

    def _moments(self) -> Float:
        """Sum w, w e, w^2, w^2 e and w^2 e^2 of the rows of all machines by cell and decision.

        w are weights and e losses. The result has shape (5, n_cells, n_classes).
        """
        cells, loss, w = self.cells, self.loss, self.cells.rows.weight
        assert loss is not None, "amounts are on one machine"
        first: list[Values] = [None, loss] if w is None else [w, w * loss]
        second: list[Values] = [None, loss, loss**2]
        if w is not None:
            second = [w**2, w**2 * loss, (w * loss) ** 2]
        return sum_by_column(cells, self.decided, cells.classes.size, [*first, *second])

    def _spread_by_moments(self, j: int, moments: Float) -> Float:
        """Compute the products of :meth:`_deviations` from sums over the rows of all machines.

        The deviation of a row with loss e is ``w (constant + slope e)``, with a constant and a
        slope of its cell and decision.
        """
        cells, constraint = self.cells, self.compiled.constraints[j]
        view = cells.views[cells.view_of[j]]
        w, we, ww, wwe, wwee = moments[:, view.cells]
        functionals = constraint.expression.functionals(self.compiled.groups[j])
        levels = cells.levels_of(view)
        constant, slope = np.zeros((2, len(functionals), *w.shape))
        for k, (rate, group) in enumerate(functionals):
            for a, term in rate.terms:
                inside = cells.select(view, term.base)
                if group is not None:
                    inside &= group.holds(view)
                counted = cells.select(view, term.where)[:, None]
                event, of_loss = np.zeros((2, *w.shape))
                if term.event.is_loss:
                    of_loss += counted
                else:
                    event += term.event.cost(levels) * counted
                total = w[inside].sum()
                mean = (event * w + of_loss * we)[inside].sum() / total
                constant[k, inside] += a * (event - mean)[inside] / total
                slope[k, inside] += a * of_loss[inside] / total
        crossed = np.einsum("kcd,lcd,cd->kl", constant, slope, wwe)
        squares = np.einsum("kcd,lcd,cd->kl", constant, constant, ww)
        squares += np.einsum("kcd,lcd,cd->kl", slope, slope, wwee)
        return np.asarray(squares + crossed + crossed.T)


def _is_worst_of_several(expression: Expression, n_functionals: int) -> bool:
    """Whether the value is the worst of several; the gap of two groups is one difference."""
    if not isinstance(expression, (Each, Gap, Ratio)):  # A norm of gaps is a function of all.
        return False
    return not (expression.is_difference and n_functionals == 2)


def _normal(values: Float, spread: Float, level: float) -> Float:
    """Find the normal intervals of values with a covariance matrix."""
    half = stats.norm.isf((1.0 - level) / 2) * np.sqrt(np.diag(spread))
    return np.column_stack([values - half, values + half])


def _normal_of_rates(constraint: Constraint, f: Float, spread: Float, level: float) -> Float:
    """Find intervals of rates within their ranges: mean losses are positive."""
    ranges = np.resize([rate.range for rate in constraint.rates], (f.size, 2))
    return np.clip(_normal(f, spread, level), ranges[:, :1], ranges[:, 1:])


def _loss_interval(constraint: Constraint, f: Float, spread: Float, level: float) -> Float:
    """Find the interval of a constraint of mean losses, whose functionals are normal."""
    if f.size == 1:
        return np.asarray(_normal_of_rates(constraint, f, spread, level)[0])
    if constraint.expression.is_difference and f.size == 2:
        contrast = np.array([[1.0], [-1.0]])
        low, high = _normal(f @ contrast, contrast.T @ spread @ contrast, level)[0]
        return np.array([max(low, -high, 0.0), max(high, -low)])
    noise = check_random_state(0).multivariate_normal(np.zeros(f.size), spread, DRAWS)
    draws = [constraint.value(f + shift) for shift in noise]
    return np.nanquantile(draws, [(1.0 - level) / 2, (1.0 + level) / 2])


@dataclass(frozen=True)
class MeanIntervals(LossIntervals):
    """Intervals of constraints on means of row functions.

    A mean over n rows of equal weight has Student's distribution with n - 1 degrees of freedom.
    Unequal weights and amounts leave an effective number of rows (Kish).

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_functions)
        Row functions at the targets and predictions, in the order of the classes of the cells.
    """

    decided: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    loss: Float = field(default_factory=lambda: np.zeros(0))
    values: Float = field(default_factory=lambda: np.zeros((0, 0)))

    def has_values(self, constraint: Constraint) -> bool:
        """Whether the intervals of a constraint are those of values of rows: of all of them."""
        return True

    def values_of(self, event: Event, view: View, levels: Levels) -> Float:
        """Find what each row adds to the mean of an event."""
        column = int(event.cost(levels)[0].argmax())
        return self.values[:, column]

    def widen(self, j: int, spread: Float, level: float) -> Float:
        """Widen covariances by the ratio of quantiles of Student's and the normal distribution."""
        deviation = self._deviations(j)
        parts = (deviation != 0.0).sum(axis=0)
        square = np.einsum("ik,ik->k", deviation, deviation)
        fourth = np.einsum("ik,ik->k", deviation**2, deviation**2)
        # Kish: equal deviations of n rows have (sum of squares)^2 / (sum of fourth powers) = n,
        # which a few large ones make smaller.
        effective = np.divide(square**2, fourth, out=parts.astype(np.float64), where=fourth > 0)
        tail = (1.0 - level) / 2.0
        factor = stats.t.isf(tail, np.maximum(effective - 1.0, 1.0)) / stats.norm.isf(tail)
        return np.asarray(spread * np.outer(factor, factor))

    def influence(self, j: int) -> Float:
        """Find each row's part in the random errors of a constraint's functionals, (n, k)."""
        return self._deviations(j)

    def whole(self, functionals: Float) -> tuple[Float, Float]:
        """Find the intervals of all constraints and of all functionals."""
        of_constraints = np.full((len(self.compiled.constraints), 2), np.nan)
        of_functionals = np.full((functionals.size, 2), np.nan)
        return self.complete(functionals, of_constraints, of_functionals)
