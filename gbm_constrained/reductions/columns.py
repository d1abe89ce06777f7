"""Columns: a master programme over the rules found, whose multipliers are the next cost.

The method serves linear, smooth and non-smooth convex objectives under any constraints. Value and
bound enclose the optimum after every call, and the method ends when they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.reductions.base import (
    FEASIBLE,
    TOLERANCE,
    Observe,
    Oracle,
    Programme,
    Solution,
    Status,
)
from gbm_constrained.reductions.master import Master, MasterPoint
from gbm_constrained.reductions.pruning import find_best_mixture, reduce_support
from gbm_constrained.reductions.search import Search

# Inner cuts are added until they miss the objective by this share of what is left to gain.
INNER_SHARE = 0.1
# First tolerance of the inner cuts: losses lie between 0 and 1.
MAX_INNER = 1e-3
# Share of the multipliers of the best bound in the next cost: those of the master jump from one
# call to the next (Wentges, "Weighted Dantzig-Wolfe decomposition", 1997).
SMOOTHING = 0.5
# Share of the tolerance that the inner cuts may miss at the end.
LAST_SHARE = 0.01
# What a linear programme with 1e-10 as tolerance can tell apart.
MIN_INNER = 1e-9


class Columns(NamedTuple):
    """A mixture of the pool, its value and a bound, and the Lagrangian ``cost @ u + constant``."""

    weight: Float
    u: Float
    value: float
    bound: float
    cost: Float
    constant: float


def find_last_inner(tolerance: float) -> float:
    """Find what the inner cuts may miss at the end, given the tolerance of value minus bound."""
    return max(LAST_SHARE * tolerance, MIN_INNER)


def start_pool(search: Search) -> None:
    """Call the oracle at the gradient in the middle of the box, if the pool is empty.

    For means of recalls this is the balanced rule, where no recall is zero.
    """
    if not search.rules:
        programme = search.programme
        gradient = np.asarray(programme.objective.gradient(programme.middle), dtype=float)
        _, u = search.call(gradient)
        search.note(u)


def find_feasible(search: Search) -> Status | None:
    """Add rules until a mixture of the pool meets the constraints, or none can (phase 1).

    Parameters
    ----------
    search : Search
        The pool.

    Returns
    -------
    {"infeasible", "limit"} or None
        None where a mixture is feasible; ``"limit"`` where the calls ended before either is known.
    """
    start_pool(search)
    master = Master(search.programme, search.constraint_cuts)
    bound = 0.0
    while True:
        n = len(search.rules)
        point = master.find_least_violation(search.points)
        u = search.points.mean(axis=0) if point is None else point.u
        cost = find_descent(search.programme, u) if point is None else point.cost
        search.note(u)
        if point is not None and point.model <= FEASIBLE:
            return None
        if point is not None and point.model - bound <= FEASIBLE:
            return "infeasible"
        if search.is_exhausted:
            return "infeasible" if bound > FEASIBLE else "limit"
        _, added = search.call(cost)
        search.note(u)
        if point is not None:
            bound = max(bound, float(cost @ added) + point.constant)
        if len(search.rules) == n:
            return "infeasible"


def find_descent(programme: Programme, u: Float) -> Float:
    """Sum the gradients of the convex constraints that are infinite at u."""
    infinite = [phi for phi in programme.convex if not np.isfinite(phi.value(u))]
    total = sum((phi.gradient(u) for phi in infinite), np.zeros(programme.size))
    return np.asarray(total, dtype=float)


def finish_early(search: Search, status: Status) -> Solution:
    """Make the solution of a programme without a feasible mixture: the least infeasible one."""
    return search.finish(find_mixture(search), status)


def find_mixture(search: Search, start: Float | None = None) -> Float:
    """Find the best mixture of the pool."""
    return find_best_mixture(search.programme, search.points, start, search.constraint_cuts)


def mix_rules(
    programme: Programme, oracle: Oracle, rules: Sequence[Any], points: Sequence[Float]
) -> Solution:
    """Find the best mixture of known rules, given their functionals, without further calls."""
    search = Search(programme, oracle, 0)
    for rule, u in zip(rules, points, strict=True):
        search.add(rule, u)
    return search.finish(find_mixture(search), "limit")


def finish_convex(search: Search, tolerance: float) -> Solution:
    """Make the solution of a convex objective: the best mixture of the pool, and its bound.

    One more call of the oracle, at the multipliers of that mixture, gives the bound.
    """
    programme = search.programme
    point = _optimise(
        Master(programme, search.constraint_cuts), search.points, find_last_inner(tolerance)
    )
    if not search.is_exhausted:
        _, u = search.call(point.cost)
        search.note(point.u, float(point.cost @ u) + point.constant)
    is_optimal = programme.objective.value(point.u) - search.bound <= tolerance
    weight = reduce_support(point.weight, search.points[: len(point.weight)])
    return search.finish(weight, "optimal" if is_optimal else "limit")


def _optimise(master: Master, points: Float, tolerance: float) -> MasterPoint:
    """Find the best mixture of a pool that has a feasible one, up to rounding."""
    for slack in (0.0, FEASIBLE / 2, FEASIBLE):
        point = master.optimise(points, tolerance, slack)
        if point is not None:
            return point
    raise RuntimeError("the pool has no feasible mixture; call find_feasible before")


def minimise_over_columns(
    programme: Programme,
    search: Search,
    tolerance: float = TOLERANCE,
    stop: Callable[[float, float], bool] = lambda value, bound: False,
    note: Callable[[Float, float], None] = lambda u, bound: None,
) -> Columns:
    """Minimise a convex objective over mixtures of all rules; the pool must have a feasible one.

    Parameters
    ----------
    programme : Programme
        The objective, under the constraints of the search.
    search : Search
        The pool, which grows.
    tolerance : float, default=1e-7
        Value minus bound at the end.
    stop : callable of (value, bound) -> bool
        Ends the method earlier.
    note : callable of (u, bound)
        Called after each call of the oracle.

    Returns
    -------
    Columns
        The best mixture.
    """
    master, bound = Master(programme, search.constraint_cuts), -np.inf
    inner, least = MAX_INNER, find_last_inner(tolerance)

    def optimise(tolerance: float) -> Columns:
        point = _optimise(master, search.points, tolerance)
        value = programme.objective.value(point.u)
        return Columns(point.weight, point.u, value, bound, point.cost, point.constant)

    centre: tuple[Float, float] | None = None
    is_smooth = False
    while True:
        found = optimise(inner)
        if found.value - bound <= tolerance or search.is_exhausted:
            found = optimise(least)
        note(found.u, bound)
        n = len(search.rules)
        if stop(found.value, bound) or found.value - bound <= tolerance or search.is_exhausted:
            return found
        cost, constant = found.cost, found.constant
        if is_smooth and centre is not None:
            cost = SMOOTHING * centre[0] + (1 - SMOOTHING) * cost
            constant = SMOOTHING * centre[1] + (1 - SMOOTHING) * constant
        _, u = search.call(cost)
        if float(cost @ u) + constant > bound:
            bound, centre = float(cost @ u) + constant, (cost, constant)
        note(found.u, bound)
        is_new = len(search.rules) > n
        if not (is_new or is_smooth) and inner <= least:
            return found._replace(bound=bound)
        gap = INNER_SHARE * (found.value - bound) if is_new or is_smooth else INNER_SHARE * inner
        inner = max(min(inner, gap), least)
        # A rule that the multipliers themselves do not ask for is followed by one that they do.
        is_smooth = is_new and float(found.cost @ u) + found.constant < found.value - inner


def solve_by_columns(
    programme: Programme,
    oracle: Oracle,
    max_calls: int = 300,
    tolerance: float = TOLERANCE,
    observe: Observe | None = None,
) -> Solution:
    """Minimise a linear or convex objective by columns.

    Parameters
    ----------
    programme : Programme
        Objective of kind ``"linear"``, ``"smooth"`` or ``"convex"``, and constraints.
    oracle : Oracle
        Where rules come from.
    max_calls : int, default=300
        Calls of the oracle.
    tolerance : float, default=1e-7
        Value minus bound at which the method ends.
    observe : callable, default=None
        As in :class:`~gbm_constrained.reductions.search.Search`.

    Returns
    -------
    Solution
        The mixture, with a bound.
    """
    search = Search(programme, oracle, max_calls, observe)
    if failure := find_feasible(search):
        return finish_early(search, failure)
    found = minimise_over_columns(programme, search, tolerance, note=search.note)
    status: Status = "optimal" if found.value - search.bound <= tolerance else "limit"
    weight = reduce_support(found.weight, search.points[: len(found.weight)])
    return search.finish(weight, status)
