"""Intervals of rates, and of what constraints bound, in the population.

The rows of the counts were used for nothing else, neither to train nor to choose. Nothing is
resampled: an event that never occurred on some rows never occurs in replicates.

Sample weights that are equal in each base set change nothing. Unequal weights are taken as given,
and intervals use the effective number of rows, ``(sum w)^2 / sum w^2``, an approximation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint, Expression
from gbm_constrained.constraints.coverage import CoverageDifference, CoverageDivergence
from gbm_constrained.constraints.curves import CurvedRow
from gbm_constrained.constraints.expressions import Quotient, Rate
from gbm_constrained.constraints.gaps import Gap, GapNorm
from gbm_constrained.constraints.grouped import Each, Grouped
from gbm_constrained.problem.functionals import WeightedFraction
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.binomial import clopper_pearson, interval_of_binomials
from gbm_constrained.statistics.counts import EQUAL, Block, CellCounts, blocks_of, functionals_of
from gbm_constrained.statistics.influence import Influence
from gbm_constrained.statistics.tangents import scale_parts
from gbm_constrained.statistics.worst_intervals import (
    correlation_of,
    level_of_all,
    worst_interval,
)

MOST_BRANCHES = 64  # Largest values among which the worst is looked for: others lie far below.

__all__ = ["constraint_intervals", "functional_intervals"]


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
    :func:`~gbm_constrained.statistics.worst_intervals.worst_interval`.
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
