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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, stats
from sklearn.utils import check_random_state

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.comparisons import Each, Gap, GapNorm, Grouped, Paired, Ratio
from gbm_constrained.constraints.presets import CoverageDifference, CoverageDivergence
from gbm_constrained.constraints.selectors import Term
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.data.exact_sums import sum_over_machines
from gbm_constrained.problem.functionals import MeanResidual, WeightedFraction
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.rows import find_bins
from gbm_constrained.statistics.binomial import clopper_pearson, interval_of_binomials
from gbm_constrained.statistics.counts import (
    CellCounts,
    MeanScore,
    are_equal,
    blocks_of,
    effective_rows,
    functionals_of,
    scaled_parts,
)
from gbm_constrained.statistics.influence import Influence

__all__ = ["constraint_intervals", "functional_intervals"]

DRAWS = 2000  # Draws of random errors where an interval has no formula.
SHRINKAGE = 2.0  # Standard errors that mean residuals are taken nearer to zero by.


def level_of_all(constraint: Constraint, n_groups: int, level: float) -> float:
    """Compute the level of single intervals at which those of all groups or pairs hold at once.

    `n_groups` includes the reference; the correction is Bonferroni's.
    """
    return 1.0 - (1.0 - level) / max(constraint.expression.n_comparisons(n_groups), 1)


def worst_interval(
    constraint: Constraint,
    f: Float,
    intervals: Callable[[float], Float],
    level: float,
    correlation: Float | None = None,
) -> NDArray[np.float64]:
    """Find the interval of the worst group, or the worst pair, where some value is defined.

    `intervals` finds those of the groups' values `f` at a level, shape (n_groups, 2); the
    reference comes last. Values that share no rows need no `correlation`, shape (n_groups,
    n_groups).

    The worst group (or pair) of the population is one and not chosen by the data. Its value lies
    above its own upper end, and so above the largest of all, no more often than any one value. The
    lower end is that of a worst group chosen by the data, among intervals that all hold at once.

    The interval of an absolute difference is conservative where that of the population is above
    zero and below some two standard errors: no upper end lies below it, so that half of the
    intervals that miss the signed difference hold its size.
    """
    expression, n_rates = constraint.expression, len(constraint.rates)
    at, strict = map(intervals, (level, level_of_all(constraint, f.size * n_rates, level)))
    if isinstance(expression, Each):
        if constraint.sense == "<=":
            return np.array([np.nanmax(strict[:, 0]), np.nanmax(at[:, 1])])
        return np.array([np.nanmin(at[:, 0]), np.nanmin(strict[:, 1])])
    assert isinstance(expression, Paired)
    correlation = np.eye(f.size) if correlation is None else correlation
    differences = partial(_difference_intervals, expression.pairs(f.size), f, correlation)
    if not isinstance(expression, Ratio):
        return np.array([
            max(np.nanmax(differences(strict)[0]), 0.0), np.nanmax(differences(at)[1])
        ])  # fmt: skip
    slack = expression.slack

    # A ratio is k at least where first - k second + slack >= 0 for all pairs (Fieller).
    def holds(intervals: Float, end: int, k: float) -> bool:
        return bool(np.nanmin(differences(intervals, k)[end]) + slack >= 0.0)

    return np.array(
        [_largest_share(partial(holds, at, 0)), _largest_share(partial(holds, strict, 1))]
    )


def correlation_of(covariance: Float) -> Float:
    """Compute correlations; zero with what does not vary."""
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.outer(deviation, deviation)
    found = np.divide(covariance, scale, out=np.zeros(covariance.shape), where=scale > 0)
    np.fill_diagonal(found, 1.0)
    return np.asarray(np.clip(found, -1.0, 1.0))


def _difference_intervals(
    pairs: Sequence[tuple[int, int]],
    f: Float,
    correlation: Float,
    intervals: Float,
    factor: float = 1.0,
) -> tuple[Float, Float]:
    """Find the ends of ``first - factor * second`` of all pairs; deviations add by squares."""
    first, second = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    down, up = f - intervals[:, 0], intervals[:, 1] - f
    difference, of_pairs = f[first] - factor * f[second], correlation[first, second]

    def size(of_first: Float, of_second: Float) -> Float:
        x, y = of_first[first], factor * of_second[second]
        return np.asarray(np.sqrt(np.maximum(x**2 + y**2 - 2.0 * of_pairs * x * y, 0.0)))

    return difference - size(down, up), difference + size(up, down)


def _largest_share(holds: Callable[[float], bool]) -> float:
    """Find the largest number in [0, 1] that something holds for, which holds for smaller ones."""
    if holds(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _effective(counts: CellCounts, cells: Codes, inside: Bool, event: Bool) -> tuple[float, float]:
    """Count events and rows among some entries of a table, as if their weights were equal."""
    weight, square, n = (
        table[cells][inside].sum() for table in (counts.weight, counts.square, counts.count)
    )
    if are_equal(weight, square, n):
        return counts.count[cells][inside & event].sum(), n
    effective = float(effective_rows(weight, square))
    return effective * (counts.weight[cells][inside & event].sum() / weight), effective


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
        everyone = np.ones_like(added[own], bool)
        reached = np.array([
            _effective(counts, cells[own], everyone, added[own] >= value) for value in others
        ]).reshape(-1, 2)  # fmt: skip
        scales.append(np.diff([least, *others]) * unit * total)
        events.append(reached[:, 0])
        rows.append(reached[:, 1])
        correlations.append(_correlation_of_nested(reached[:, 0] / reached[:, 1]))
    scale, e, n = np.concatenate(scales), np.concatenate(events), np.concatenate(rows)
    if not scale.size:
        return np.full(2, sure)
    if scale.size == 1 and variance <= ROUNDING**2 * scale[0] ** 2:
        return np.asarray(sure + scale * np.ravel(clopper_pearson(e, n, level)))
    found = interval_of_binomials(scale, e, n, level, variance, linalg.block_diag(*correlations))
    low, high = sum(b.low for b in blocks), sum(b.high for b in blocks)
    return np.clip(sure + np.array(found), constant + low, constant + high)


def _correlation_of_nested(rates: Float) -> Float:
    """Compute correlations of events that imply each other, zero for certain events."""
    with np.errstate(invalid="ignore", divide="ignore"):
        odds = rates / (1.0 - rates)
        quotient = odds[:, None] / odds
        found = np.nan_to_num(np.sqrt(np.minimum(quotient, 1.0 / quotient)))
    np.fill_diagonal(found, 1.0)
    return found


def _add_up(
    blocks: Sequence[MeanScore], totals: Sequence[float], counts: CellCounts
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
    compiled: LinearConstraints, counts: CellCounts, level: float = 0.95, at: slice = slice(None)
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
    at : slice, default=slice(None)
        Positions of the functionals; all by default.

    Returns
    -------
    ndarray of shape (n_functionals, 2)
        NaN for mean losses and undefined rates.
    """
    found = [
        _interval_of_sum(parts, constant, counts, level)
        for parts, constant in zip(compiled.parts[at], compiled.constant[at], strict=True)
    ]
    return np.array(found, dtype=np.float64).reshape(-1, 2)


def constraint_intervals(
    compiled: LinearConstraints, counts: CellCounts, level: float = 0.95
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
        is_known = [parts is not None for parts in compiled.parts[span]]
        if all(is_known) or (any(is_known) and not constraint.expression.is_quotient):
            ends[j] = _CountedConstraint(compiled, counts, level, j, functionals).interval()
    return ends


class _CountedConstraint:
    """A constraint on counted decisions, at a position among others.

    `functionals` are the values of all functionals.
    """

    def __init__(
        self,
        compiled: LinearConstraints,
        counts: CellCounts,
        level: float,
        j: int,
        functionals: Float,
    ) -> None:
        self.compiled, self.counts, self.level = compiled, counts, level
        self.constraint, self.span = compiled.constraints[j], compiled.spans[j]
        self.functionals, self.parts = functionals[self.span], compiled.parts[self.span]
        self.constant = compiled.constant[self.span]

    def interval(self) -> Float:
        """Find the interval of what the constraint bounds."""
        expression, f = self.constraint.expression, self.functionals
        if np.isnan(self.constraint.value(f)) or isinstance(expression, CoverageDivergence):
            return np.full(2, np.nan)
        if expression.is_quotient:
            exact = self._find_binomial_quotient()
            return self._find_fieller_interval() if exact is None else exact
        if expression.bounds_each_rate and f.size == 1:
            return np.asarray(self.of_functionals(self.level)[0])
        if isinstance(expression, CoverageDifference):
            strict = self.of_functionals(level_of_all(self.constraint, f.size, self.level))
            least = np.maximum(np.maximum(strict[:, 0], -strict[:, 1]), 0.0)
            return np.array([least.max(), np.abs(self.of_functionals(self.level)).max()])
        if isinstance(expression, GapNorm) or not isinstance(expression, Grouped):
            return self._find_interval_of_tangents()
        exact = self._find_difference() if expression.is_difference else None
        return self._find_worst() if exact is None else exact

    def of_functionals(self, level: float) -> Float:
        """Find the interval of each functional."""
        return functional_intervals(self.compiled, self.counts, level, self.span)

    def _find_worst(self) -> Float:
        """Find the interval of the worst of several groups or pairs."""
        f, correlation = self.functionals, None
        if self.constraint.expression.compares_with_overall:  # Each group is a part of all rows.
            covariance = Influence(self.compiled, self.counts).covariance()
            correlation = correlation_of(covariance[self.span, self.span])
        return worst_interval(self.constraint, f, self.of_functionals, self.level, correlation)

    def _find_interval_of_tangents(self) -> Float:
        """Find the interval of a function of several functionals from that of its tangent.

        The tangent is a sum of fractions. Of several functions whose largest value is bounded, the
        interval is that of the worst one: see :func:`worst_interval`. The worst is looked for
        among the 64 largest values: others lie far below.
        """
        f, constraint = self.functionals, self.constraint
        branches = constraint.expression.branches(constraint, range(f.size))
        known = [row for row in branches if not np.isnan(f[list(row.at)]).any()]
        known.sort(key=lambda row: -float(row.function.values(f[list(row.at)][:, None])[0]))
        levels = level_of_all(constraint, f.size, self.level), self.level
        low, high = -np.inf, -np.inf
        for row in known[:64]:
            at = list(row.at)
            own, slope = f[at], row.function.gradient(f[at])
            moved = float(row.function.values(own[:, None])[0])
            moved -= float(slope @ (own - self.constant[at]))
            parts = self._scale(slope, at)
            strict, ends = (_interval_of_sum(parts, 0.0, self.counts, level) for level in levels)
            low, high = max(low, strict[0] + moved), max(high, ends[1] + moved)
        return self._within_range(*np.sort(constraint.sign * np.array([low, high])))

    def _scale(self, slope: Float, at: Sequence[int]) -> list[WeightedFraction] | None:
        """List the parts of a sum of functionals; None where one is undefined."""
        scaled = scaled_parts([self.parts[k] for k in at], slope.tolist())
        return None if scaled is None else [part for part in scaled if part.coefficient]

    def _within_range(self, low: float, high: float) -> Float:
        """Clip an interval to the range; rounding must not leave the value outside."""
        value = self.constraint.value(self.functionals)
        return np.clip([min(low, value), max(high, value)], *self.constraint.expression.range)

    def _find_difference(self) -> Float | None:
        """Find the interval of the absolute difference of two functionals; None for others."""
        if len(self.parts) != 2:
            return None
        both = self._scale(np.array([1.0, -1.0]), (0, 1))
        if both is None or not any(block.score.any() for block in blocks_of(both)):
            return None  # The group has all rows.
        return _fold(*_interval_of_sum(both, 0.0, self.counts, self.level))

    def _find_binomial_quotient(self) -> Float | None:
        """Find the interval of a quotient that rows of two kinds decide about; None for others.

        With a binomial probability p of the first kind the quotient is
        ``(a p + c (1 - p)) / (b p + d (1 - p))``, which is monotone in p. A row of the first kind
        adds a to the numerator and b to the denominator, one of the second adds c and d. Right and
        wrong rows among those selected decide about precision, true positives and errors about F1.
        """
        top, bottom = (blocks_of(parts or ()) for parts in self.parts)
        if len(top) != 1 or len(bottom) != 1 or not np.array_equal(top[0].cells, bottom[0].cells):
            return None
        # A constant is a part of every row. Adding zero makes negative zeros equal to others.
        scores = np.stack([top[0].score, bottom[0].score], axis=-1) + self.constant
        scores = np.round(scores, 12) + 0.0
        kinds = np.unique(scores[scores.any(axis=-1)], axis=0)
        if len(kinds) != 2:
            return None
        first, second = ((scores == kind).all(axis=-1) for kind in kinds)
        events = _effective(self.counts, top[0].cells, first | second, first)
        p = np.array(clopper_pearson(*events, self.level))
        above, below = (kind[0] * p + kind[1] * (1.0 - p) for kind in kinds.T)
        with np.errstate(divide="ignore"):
            return np.sort(above / below)

    def _find_fieller_interval(self) -> Float:
        """Find the interval of a quotient from the sums that compare it with numbers (Fieller).

        The quotient is k at least where ``numerator - k denominator >= 0``. With k = t / (1 - |t|)
        for t from -1 to 1, the sum compared with zero is ``(1 - |t|) numerator - t denominator``
        (Fieller, 1954).
        """

        def end(i: int) -> float:
            def compared(t: float) -> float:
                factors = np.array([1.0 - abs(t), -t])
                both, total = self._scale(factors, (0, 1)), float(self.constant @ factors)
                return float(_interval_of_sum(both, total, self.counts, self.level)[i])

            if compared(1.0) >= 0.0:
                return np.inf
            start = 0.0 if compared(0.0) >= 0.0 else -1.0
            t = start if compared(start) <= 0.0 else float(optimize.brentq(compared, start, 1.0))
            return t / (1.0 - abs(t)) if t > -1.0 else -np.inf

        return self._within_range(end(0), end(1))


def _fold(low: float, high: float) -> Float:
    """Find the interval of an absolute value from that of a signed one; NaN stays."""
    return np.array([max(low, -high, 0.0), max(high, -low)])


@dataclass(frozen=True, eq=False)
class SampledIntervals:
    """Base of intervals of constraints that counts of decisions do not tell.

    Parameters
    ----------
    cells : Cells
        Partition of the rows.
    compiled : LinearConstraints
        The constraints.
    """

    cells: Cells
    compiled: LinearConstraints

    def of_constraint(self, j: int, f: Float, level: float) -> tuple[Float, Float] | None:
        """Find the intervals of functionals f, and of what bounds them; None for other kinds."""
        raise NotImplementedError

    def complete(
        self,
        functionals: Float,
        intervals: Float | None = None,
        of_functionals: Float | None = None,
        level: float = 0.95,
    ) -> tuple[Float, Float]:
        """Fill in intervals of constraints and of functionals, which are NaN for other kinds.

        Parameters
        ----------
        functionals : ndarray of shape (n_functionals,)
            Values of the functionals.
        intervals : ndarray of shape (n_constraints, 2), default=None
            Intervals of what constraints bound.
        of_functionals : ndarray of shape (n_functionals, 2), default=None
            Intervals of the functionals.
        level : float, default=0.95
            Probability that an interval covers the truth.
        """
        compiled = self.compiled
        of_constraints = np.full((len(compiled.constraints), 2), np.nan)
        of_all = np.full((functionals.size, 2), np.nan)
        if intervals is not None and of_functionals is not None:
            of_constraints, of_all = intervals.copy(), of_functionals.copy()
        for j, span in enumerate(compiled.spans):
            found = self.of_constraint(j, functionals[span], level)
            if found is not None:
                of_all[span], of_constraints[j] = found
        return of_constraints, of_all


@dataclass(frozen=True, eq=False)
class CalibrationIntervals(SampledIntervals):
    """Intervals of constraints on calibration errors.

    Parameters
    ----------
    probability : ndarray of shape (n_samples,)
        Probability of the positive class of each row.
    """

    probability: Float

    def of_constraint(self, j: int, f: Float, level: float) -> tuple[Float, Float] | None:
        """Find the intervals from mean residuals f and their standard errors."""
        constraint = self.compiled.constraints[j]
        bins = constraint.rates
        if "residual" not in constraint.kinds:
            return None
        errors = self._standard_errors(j)
        of_residuals = _normal(f, errors, [rate.range for rate in bins], level)
        value = constraint.value(f)
        if np.isnan(value):
            return of_residuals, np.full(2, np.nan)
        shape = -1, len(bins)
        groups = list(zip(f.reshape(shape), errors.reshape(shape), strict=True))

        @cache  # The level asked for comes twice.
        def estimates(level: float) -> Float:
            return np.array([estimate_error(own, of_bins, level) for own, of_bins in groups])

        if not constraint.expression.compares_groups:
            return of_residuals, estimates(level)[0, 1:]
        # What noise adds has to be out of the errors of groups before these are compared.
        low, high = worst_interval(
            constraint, estimates(level)[:, 0], lambda level: estimates(level)[:, 1:], level
        )
        return of_residuals, np.array([min(low, value), max(high, value)])

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


def estimate_error(
    residuals: Float, standard_errors: Float, level: float
) -> tuple[float, float, float]:
    """Estimate a calibration error, and find its interval; NaN where a residual is.

    Parameters
    ----------
    residuals : ndarray of shape (n_bins,)
        Mean residuals of the bins of a sample.
    standard_errors : ndarray of shape (n_bins,)
        Their standard errors.
    level : float
        Probability that the interval covers the truth.

    Returns
    -------
    corrected, low, high : float
        The error of the sample without the median of what noise adds, and the ends.
    """
    value, tail = float(np.abs(residuals).sum()), (1.0 - level) / 2.0
    if np.isnan(value) or np.isnan(standard_errors).any():
        return np.nan, np.nan, np.nan
    high = value + stats.norm.isf(tail) * float(np.sqrt((standard_errors**2).sum()))
    shrunk = np.maximum(np.abs(residuals) - SHRINKAGE * standard_errors, 0.0)
    noise = check_random_state(0).standard_normal((DRAWS, residuals.size)) * standard_errors
    difference = (np.abs(shrunk + noise) - shrunk).sum(axis=1)
    added, most = np.quantile(difference, [0.5, 1.0 - tail])
    corrected, low, high = np.clip([value - added, value - most, high], 0.0, 1.0).tolist()
    return corrected, low, high


@dataclass(frozen=True, eq=False)
class MeanIntervals(SampledIntervals):
    """Intervals of constraints on means of values of rows: losses, costs and row functions.

    A mean over n rows of equal weight has Student's distribution with n - 1 degrees of freedom.
    Unequal weights and amounts leave an effective number of rows (Kish). Means of losses and costs
    are taken to be normal.

    Parameters
    ----------
    decided : ndarray of shape (n_samples,), default=None
        Class index that each row is decided for; None for regression.
    loss : ndarray of shape (n_samples,), default=None
        Cross-entropy of each row, in nats; None without constraints on it.
    values : ndarray of shape (n_samples, n_functions), default=None
        Row functions at the targets and predictions, in the order of the classes of the cells;
        None for classification.
    """

    decided: Codes | None = None
    loss: Float | None = None
    values: Float | None = None

    def of_constraint(self, j: int, f: Float, level: float) -> tuple[Float, Float] | None:
        """Find the intervals from means f and the covariance of their random errors."""
        constraint = self.compiled.constraints[j]
        has_values = "loss" in constraint.kinds or constraint.has_costs_of_amounts
        if not np.isfinite(f).all() or not (has_values or self.values is not None):
            return None  # A base set has no rows, or is not known on these rows.
        influence, communicator = self.influence(j), self.cells.communicator
        if communicator.holds_all_rows:
            covariance = influence.T @ influence
        else:
            products = [influence * own[:, None] for own in influence.T]
            covariance = sum_over_machines(partial(np.sum, axis=0), products, communicator)
        if not np.isfinite(covariance).all():
            return None
        expression, ranges = constraint.expression, [rate.range for rate in constraint.rates]

        @cache  # The level asked for comes twice.
        def at(level: float) -> tuple[Float, Float]:
            """Find the covariance that has normal intervals of a level, and these."""
            wide = covariance
            if self.values is not None:
                factor = _widening(influence, level)
                wide = covariance * np.outer(factor, factor)
            return wide, _normal(f, np.sqrt(np.diag(wide)), ranges, level)

        wide, of_functionals = at(level)
        is_difference = expression.is_difference and f.size == 2
        # A norm of gaps is a function of all.
        if isinstance(expression, Each | Gap) and not is_difference:
            if np.isnan(constraint.value(f)):
                return of_functionals, np.full(2, np.nan)
            correlation = correlation_of(covariance)
            return of_functionals, worst_interval(
                constraint, f, lambda level: at(level)[1], level, correlation
            )
        if f.size == 1:
            return of_functionals, of_functionals[0]
        if is_difference:
            contrast = np.array([1.0, -1.0])
            error = np.sqrt(contrast @ wide @ contrast)
            half = stats.norm.isf((1.0 - level) / 2) * error
            return of_functionals, _fold(f @ contrast - half, f @ contrast + half)
        noise = check_random_state(0).multivariate_normal(np.zeros(f.size), wide, DRAWS)
        draws = [constraint.value(f + shift) for shift in noise]
        tail = (1.0 - level) / 2
        return of_functionals, np.nanquantile(draws, [tail, (1.0 + level) / 2])

    def _terms(self, j: int) -> Iterator[tuple[int, float, Term, View, Bool, Bool]]:
        """List the terms of a constraint's functionals.

        Each has the position of the functional, the coefficient, the term, its view, and the cells
        that its mean is taken over, and that its event may happen in.
        """
        cells, expression = self.cells, self.compiled.constraints[j].expression
        views = cells.views_by_amount(j)
        for k, (rate, group) in enumerate(expression.functionals(self.compiled.groups[j])):
            for a, term in rate.terms:
                view = views[term.amount]
                inside = cells.select(view, term.base)
                if group is not None:
                    inside = inside & group.holds(view)
                yield k, a, term, view, inside, cells.select(view, term.where)

    def row_terms(self, j: int) -> Iterator[tuple[int, float, Float, Float]]:
        """List the terms of a constraint's functionals, row by row.

        Each has the position of the functional, the coefficient, and (n_samples,) each the weights
        of rows in the mean, zero outside of its base set, and what is averaged.
        """
        cells = self.cells
        weight = np.ones(len(cells.rows)) if cells.rows.weight is None else cells.rows.weight
        for k, a, term, view, inside, counted in self._terms(j):
            w = weight if term.event.kind == "cost" else view.weigh(weight)
            w = w * inside[view.small_codes]
            if self.values is not None:
                values: Array = self.values[:, term.event.cost(cells.levels_of(view))[0].argmax()]
            elif term.event.kind == "loss":
                assert self.loss is not None
                values = self.loss
            else:
                values = term.event.cost(cells.levels_of(view))[view.small_codes, self.decided]
            event = np.where(counted[view.small_codes], values, 0.0)
            yield k, a, w, view.weigh(event) if term.event.kind == "cost" else event

    def influence(self, j: int) -> Float:
        """Compute each row's part in the random errors of a constraint's functionals.

        A weighted mean e over rows i has the linearised error ``sum w_i (e_i - e) / sum w_i``.
        Amounts are parts of the weights, and of costs parts of what is averaged. The result has
        shape (n_samples, n_functionals).
        """
        cells, span = self.cells, self.compiled.spans[j]
        result = np.zeros((len(cells.rows), span.stop - span.start))
        for k, a, w, event in self.row_terms(j):
            total, of_events = w.sum(), w @ event
            if not cells.communicator.holds_all_rows:
                total, of_events = sum_over_machines(np.sum, [w, w * event], cells.communicator)
            result[:, k] += a * w * (event - of_events / total) / total
        return result


def _widening(influence: Float, level: float) -> Float:
    """Compute the ratios of quantiles of Student's and the normal distribution.

    Equal influences of n rows have (sum of squares)^2 / (sum of fourth powers) = n, which a few
    large ones make smaller (Kish).
    """
    parts = (influence != 0.0).sum(axis=0)
    square = np.einsum("ik,ik->k", influence, influence)
    fourth = np.einsum("ik,ik->k", influence**2, influence**2)
    effective = np.divide(square**2, fourth, out=parts.astype(np.float64), where=fourth > 0)
    tail = (1.0 - level) / 2.0
    return np.asarray(stats.t.isf(tail, np.maximum(effective - 1.0, 1.0)) / stats.norm.isf(tail))


def _normal(f: Float, errors: Float, ranges: Sequence[tuple[float, float]], level: float) -> Float:
    """Find normal intervals of values with standard errors, within the ranges of their rates."""
    half = stats.norm.isf((1.0 - level) / 2) * errors
    low, high = np.resize(ranges, (f.size, 2)).T
    return np.clip([f - half, f + half], low, high).T
