"""Intervals of the worst of many groups, or of the worst pair, from those of groups' rates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint, Expression, Sense
from gbm_constrained.constraints.calibration import CalibrationGap, EachCalibrationError
from gbm_constrained.constraints.gaps import Gap, Ratio
from gbm_constrained.constraints.grouped import Each, Paired


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
