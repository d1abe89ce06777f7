r"""The best mixture of a finite pool of rules, with few rules.

The post-processing of the paper's Section 8.2,

.. math:: \min_\lambda \psi(\sum_i \lambda_i u_i) \quad \text{s.t.} \quad
    A \sum_i \lambda_i u_i \le b, \; \phi(\sum_i \lambda_i u_i) \le 0 ,

with the objective itself by cutting planes in place of the paper's :math:`\sum_i \lambda_i \psi(u_i)`,
and with one row for each linear constraint.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog, minimize, minimize_scalar

from gbm_constrained._typing import Float
from gbm_constrained.reductions.base import (
    FEASIBLE,
    LinearObjective,
    Objective,
    Programme,
    RatioObjective,
)
from gbm_constrained.reductions.master import LP_TOLERANCES, Master

# What a linear programme with 1e-10 as tolerance can tell apart.
PRUNING_TOLERANCE = 1e-9
# Dinkelbach's steps converge superlinearly, line searches linearly.
MAX_STEPS = 100


def find_best_mixture(programme: Programme, points: Float, start: Float | None = None) -> Float:
    """Find the probabilities of the best mixture of a pool, or of the least infeasible one.

    Parameters
    ----------
    programme : Programme
        Objective of any kind, and constraints.
    points : ndarray of shape (n, d)
        Functionals of the rules.
    start : ndarray of shape (n,), default=None
        A feasible mixture, from which an objective of kind ``"other"`` descends.

    Returns
    -------
    ndarray of shape (n,)
        Probabilities, of which at most d + 1 are positive, and at most one more than there are
        active linear constraints where the objective is linear or a ratio.
    """
    slack = find_slack(programme, points)
    if programme.objective.kind == "ratio":
        weight = _minimise_ratio(programme, points, slack)
    elif programme.objective.kind == "other":
        weight = _descend(programme, points, slack, start)
    else:
        weight = _optimise(programme, points, slack)
    return reduce_support(weight, points)


def find_slack(programme: Programme, points: Float) -> float:
    """Find the least violation of a mixture, zero if it is rounding."""
    point = Master(programme.with_objective(_constant(programme))).find_least_violation(points)
    if point is None:
        return np.inf
    return point.model if point.model > FEASIBLE else 0.0


def reduce_support(weight: Float, points: Float) -> Float:
    """Find a mixture of the same u with at most d + 1 rules (Carathéodory's theorem)."""
    chosen = np.flatnonzero(weight)
    if len(chosen) <= points.shape[1] + 1:
        return weight
    found = linprog(
        np.arange(len(chosen), dtype=float),
        A_eq=np.vstack([points[chosen].T, np.ones(len(chosen))]),
        b_eq=np.append(weight[chosen] @ points[chosen], weight.sum()),
        method="highs-ds",
        options=LP_TOLERANCES,
    )
    if found.x is None:
        return weight
    few = np.zeros_like(weight)
    few[chosen] = np.maximum(found.x, 0.0)
    return np.asarray(few / few.sum(), dtype=float)


def _constant(programme: Programme) -> LinearObjective:
    """Objective zero."""
    return LinearObjective(np.zeros(programme.size))


def _optimise(programme: Programme, points: Float, slack: float) -> Float:
    """Minimise a convex objective over the mixtures of the pool."""
    if not np.isfinite(slack):
        return np.full(len(points), 1 / len(points))
    # The slack is a minimum, and a linear programme finds no point at its exact value.
    for margin in (0.0, FEASIBLE, 10 * FEASIBLE):
        point = Master(programme).optimise(points, PRUNING_TOLERANCE, slack + margin)
        if point is not None:
            return point.weight
    raise RuntimeError("the pool has no mixture of its own least violation")


def _minimise_ratio(programme: Programme, points: Float, slack: float) -> Float:
    """Minimise a ratio by Dinkelbach's steps: gamma <- psi(argmin (a - gamma b)^T u)."""
    weight = _optimise(programme.with_objective(_constant(programme)), points, slack)
    value = programme.objective.value(weight @ points)
    for _ in range(MAX_STEPS):
        level = programme.with_objective(make_level(programme.objective, value))
        new = _optimise(level, points, slack)
        reached = programme.objective.value(new @ points)
        if not reached < value:
            break
        weight, value = new, reached
    return weight


def make_level(objective: Objective, gamma: float) -> LinearObjective:
    r"""Make :math:`(a - \gamma b)^T u + a_0 - \gamma b_0`, whose sign is that of psi - gamma."""
    assert isinstance(objective, RatioObjective)
    a, a0, b, b0 = objective.ratio()
    return LinearObjective(np.asarray(a - gamma * b, dtype=float), float(a0 - gamma * b0))


def _descend(programme: Programme, points: Float, slack: float, start: Float | None) -> Float:
    """Descend from a mixture to the best one on each segment towards a vertex (Frank-Wolfe)."""
    objective = programme.objective
    if start is None:
        weight = _optimise(programme.with_objective(_constant(programme)), points, slack)
    else:
        weight = np.append(start, np.zeros(len(points) - len(start)))
    for _ in range(MAX_STEPS):
        u = weight @ points
        slope = np.asarray(objective.gradient(u), dtype=float)
        target = _optimise(programme.with_objective(LinearObjective(slope)), points, slack)
        step = search_segment(objective.value, u, target @ points)
        if slope @ (u - target @ points) <= PRUNING_TOLERANCE or step == 0.0:
            break
        weight = (1 - step) * weight + step * target
        weight = _polish(programme, points, slack, weight)
    return np.asarray(weight, dtype=float)


def _polish(programme: Programme, points: Float, slack: float, weight: Float) -> Float:
    """Improve the probabilities of the rules that a mixture has (SLSQP), if that keeps it feasible."""
    weight = reduce_support(weight, points)
    chosen = np.flatnonzero(weight)
    part, n_rows = points[chosen], len(programme.b)
    rows = {"type": "ineq", "fun": lambda w: slack - programme.constraints(w @ part)}
    if not programme.convex:
        rows["jac"] = lambda w: -(programme.A @ part.T)
    total = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones((1, len(w)))}
    found = minimize(
        lambda w: programme.objective.value(w @ part),
        weight[chosen],
        jac=lambda w: part @ programme.objective.gradient(w @ part),
        bounds=[(0.0, 1.0)] * len(chosen),
        constraints=[total, rows] if n_rows or programme.convex else [total],
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    new = np.zeros_like(weight)
    new[chosen] = np.maximum(found.x, 0.0)
    if not (np.isfinite(new).all() and new.sum() > 0):
        return weight
    new /= new.sum()
    u = new @ points
    better = programme.objective.value(u) < programme.objective.value(weight @ points)
    return new if better and programme.violation(u) <= slack + FEASIBLE else weight


def search_segment(value: Callable[[Float], float], u: Float, end: Float) -> float:
    """Find the step in [0, 1] from u towards `end` with the smallest value."""

    def along(step: float) -> float:
        return value((1 - step) * u + step * end)

    found = minimize_scalar(along, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12})
    # A bounded search never tries the ends.
    return float(min((0.0, 1.0, float(found.x)), key=along))
