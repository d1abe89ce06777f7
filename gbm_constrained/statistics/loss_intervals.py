"""Intervals of mean losses, which are those of means of many rows: normal.

Mean cross-entropies have no bounded range, so that decisions counted
(:mod:`gbm_constrained.statistics.intervals`) do not suffice: the loss of each row is looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats
from sklearn.utils import check_random_state

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.events import Differs, Term
from gbm_constrained.constraints.expressions import Constraint
from gbm_constrained.constraints.grouped import Each, Gap
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import CompiledConstraints, value_of
from gbm_constrained.statistics.intervals import level_of_all, worst_interval

DRAWS = 2000  # Draws of the values of a rule about losses that is not a single mean.


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
    """Complete intervals of constraints by those on mean losses.

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
        if not any(term.event == "log_loss" for term in constraint.terms):
            continue
        span, expression = compiled.spans[j], constraint.expression
        f, deviation = functionals[span], _deviations(cells, compiled, j, decided, loss)
        spread = deviation.T @ deviation
        if not np.isfinite(spread).all() or not np.isfinite(f).all():  # a base set without rows
            continue
        of_functionals[span] = _normal_of_rates(constraint, f, spread, level)
        # The gap of two groups is one difference, with an interval of its own.
        is_difference = type(expression) is Gap and f.size == 2
        if isinstance(expression, (Each, Gap)) and not is_difference:
            of_all = level_of_all(constraint, f.size, level)
            strict = _normal_of_rates(constraint, f, spread, of_all)
            intervals[j] = worst_interval(constraint, f, of_functionals[span], strict)
        else:
            intervals[j] = _loss_interval(constraint, f, spread, level)
    return intervals, of_functionals


def _deviations(
    cells: Cells, compiled: CompiledConstraints, j: int, decided: Codes, loss: Float
) -> Float:
    """Each row's part in the random error of a constraint's functionals, shape (n, functionals).

    A weighted mean e over rows i has the linearised error ``sum w_i (e_i - e) / sum w_i``.
    """
    constraint, view = compiled.constraints[j], cells.views[cells.view_of[j]]
    weight = np.ones(len(cells.rows)) if cells.rows.weight is None else cells.rows.weight
    rates: list[Any] = list(constraint.rates)
    members: list[Any] = [None] * len(rates)
    if compiled.groups[j]:
        members = list(compiled.groups[j])
        span = compiled.spans[j]
        members += [None] * (span.stop - span.start - len(members))  # all rows, as reference
        rates = rates * len(members)
    result = np.zeros((len(cells.rows), len(rates)))
    for k, (rate, group) in enumerate(zip(rates, members, strict=True)):
        for a, term in rate.terms:
            inside = is_in_base_set(cells, j, term)
            if group is not None:
                inside &= np.isin(view.levels[group.by], list(group.levels))
            w = weight * inside[view.small_codes]
            counted = cells.select(view, term.where)[view.small_codes]
            if term.event == "log_loss":
                event = np.where(counted, loss, 0.0)
            else:
                event = _happens(cells, j, term)[view.small_codes, decided] * counted
            mean = w @ event / w.sum()
            result[:, k] += a * w * (event - mean) / w.sum()
    return result


def _happens(cells: Cells, j: int, term: Term) -> Bool:
    """Whether a term's event happens in each cell of the view, by predicted class."""
    view, classes = cells.views[cells.view_of[j]], np.arange(cells.classes.size)
    if isinstance(term.event, Differs):
        return np.asarray(classes != view.levels[term.event.deployed][:, None])
    wrong = np.asarray(classes != cells.labels[view.cells][:, None])
    if term.event in ("error", "correct"):
        return wrong if term.event == "error" else ~wrong
    assert not isinstance(term.event, str)
    return np.broadcast_to(cells.is_class(term.event.target), wrong.shape)


def _normal(values: Float, spread: Float, level: float) -> Float:
    half = stats.norm.isf((1.0 - level) / 2) * np.sqrt(np.diag(spread))
    return np.column_stack([values - half, values + half])


def _normal_of_rates(constraint: Constraint, f: Float, spread: Float, level: float) -> Float:
    """Intervals of rates, none of which goes beyond what they can be: mean losses are positive."""
    ranges = np.resize([rate.range for rate in constraint.rates], (f.size, 2))
    return np.clip(_normal(f, spread, level), ranges[:, :1], ranges[:, 1:])


def _loss_interval(constraint: Constraint, f: Float, spread: Float, level: float) -> Float:
    """Interval for a rule about mean losses, whose functionals are normal with many rows."""
    if f.size == 1:
        return np.asarray(_normal_of_rates(constraint, f, spread, level)[0])
    if f.size == 2 and type(constraint.expression) is Gap:
        contrast = np.array([[1.0], [-1.0]])
        low, high = _normal(f @ contrast, contrast.T @ spread @ contrast, level)[0]
        return np.array([max(low, -high, 0.0), max(high, -low)])
    noise = check_random_state(0).multivariate_normal(np.zeros(f.size), spread, DRAWS)
    draws = [value_of(constraint, f + shift) for shift in noise]
    return np.nanquantile(draws, [(1.0 - level) / 2, (1.0 + level) / 2])


def is_in_base_set(cells: Cells, j: int, term: Term) -> Bool:
    """Whether the cells of a constraint's view are in the base set of one of its terms."""
    return cells.select(cells.views[cells.view_of[j]], (*term.rows, *term.on))
