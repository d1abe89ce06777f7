"""Intervals of mean losses, which are those of means of many rows: normal.

Mean cross-entropies have no bounded range, so that counted decisions
(:mod:`gbm_constrained.statistics.intervals`) do not suffice. The intervals use each row's loss.
"""

from __future__ import annotations

import numpy as np
from scipy import stats
from sklearn.utils import check_random_state

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import Constraint, Expression
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.statistics.intervals import level_of_all, worst_interval

DRAWS = 2000  # Draws of the value of a constraint of losses that is no single mean.


def add_loss_intervals(
    cells: Cells,
    compiled: CompiledConstraints,
    functionals: Float,
    decided: Codes,
    loss: Float,
    intervals: Float,
    of_functionals: Float,
    level: float = 0.95,
) -> tuple[Float, Float]:
    """Complete the intervals of constraints by those of mean losses.

    Parameters
    ----------
    cells : Cells
        The partition of the rows.
    compiled : CompiledConstraints
        The constraints.
    functionals : ndarray of shape (n_functionals,)
        Values of the functionals.
    decided : ndarray of int of shape (n_samples,)
        Class index that each row is decided for.
    loss : ndarray of shape (n_samples,)
        Cross-entropy of each row, in nats.
    intervals : ndarray of shape (n_constraints, 2)
        Intervals of the constraints' values, of which those on mean losses are unknown.
    of_functionals : ndarray of shape (n_functionals, 2)
        Intervals of the functionals, likewise.
    level : float, default=0.95
        Probability that an interval covers the truth.

    Returns
    -------
    intervals, of_functionals : ndarray
        Both with the intervals of mean losses in place.
    """
    intervals, of_functionals = intervals.copy(), of_functionals.copy()
    for j, constraint in enumerate(compiled.constraints):
        if not constraint.has_loss:
            continue
        span = compiled.spans[j]
        f, deviation = functionals[span], _deviations(cells, compiled, j, decided, loss)
        spread = deviation.T @ deviation
        if not np.isfinite(spread).all() or not np.isfinite(f).all():  # a base set without rows
            continue
        of_functionals[span] = _normal_of_rates(constraint, f, spread, level)
        if _is_worst_of_several(constraint.expression, f.size):
            of_all = level_of_all(constraint, f.size, level)
            strict = _normal_of_rates(constraint, f, spread, of_all)
            intervals[j] = worst_interval(constraint, f, of_functionals[span], strict)
        else:
            intervals[j] = _loss_interval(constraint, f, spread, level)
    return intervals, of_functionals


def _is_worst_of_several(expression: Expression, n_functionals: int) -> bool:
    """Whether the value is the worst of several; the gap of two groups is one difference."""
    return expression.compares_groups and not (expression.is_difference and n_functionals == 2)


def _deviations(
    cells: Cells, compiled: CompiledConstraints, j: int, decided: Codes, loss: Float
) -> Float:
    """Compute each row's part in the random error of a constraint's functionals.

    A weighted mean e over rows i has the linearised error ``sum w_i (e_i - e) / sum w_i``. The
    result has shape (n_samples, n_functionals).
    """
    constraint, view = compiled.constraints[j], cells.views[cells.view_of[j]]
    weight = np.ones(len(cells.rows)) if cells.rows.weight is None else cells.rows.weight
    functionals = constraint.expression.functionals(compiled.groups[j])
    levels = cells.levels_of(view)
    result = np.zeros((len(cells.rows), len(functionals)))
    for k, (rate, group) in enumerate(functionals):
        for a, term in rate.terms:
            inside = cells.select(view, term.base)
            if group is not None:
                inside &= group.holds(view)
            w = weight * inside[view.small_codes]
            counted = cells.select(view, term.where)[view.small_codes]
            if term.event.is_loss:
                event = np.where(counted, loss, 0.0)
            else:
                event = term.event.cost(levels)[view.small_codes, decided] * counted
            mean = w @ event / w.sum()
            result[:, k] += a * w * (event - mean) / w.sum()
    return result


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
