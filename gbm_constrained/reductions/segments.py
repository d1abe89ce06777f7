"""Searches between few mixtures, which need no linear programme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from gbm_constrained._typing import Float
from gbm_constrained.reductions.base import FEASIBLE, Programme


def search_segment(value: Callable[[Float], float], u: Float, end: Float) -> float:
    """Find the step in [0, 1] from u towards `end` with the smallest value."""

    def along(step: float) -> float:
        return value((1 - step) * u + step * end)

    found = minimize_scalar(along, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12})
    # A bounded search never tries the ends.
    return float(min((0.0, 1.0, float(found.x)), key=along))


def polish(programme: Programme, points: Float, weight: Float, slack: float) -> Float:
    """Improve the probabilities of a mixture's rules (SLSQP), if that keeps it feasible.

    Parameters
    ----------
    programme : Programme
        Objective and constraints.
    points : ndarray of shape (n, d)
        Functionals of the rules.
    weight : ndarray of shape (n,)
        The mixture; rules without probability stay without. Where it violates a constraint, any
        mixture that does not is an improvement.
    slack : float
        Violation that is allowed.

    Returns
    -------
    ndarray of shape (n,)
    """
    objective: Any = programme.objective
    chosen = np.flatnonzero(weight)
    part = points[chosen]
    total: Any = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
    rows: Any = {
        "type": "ineq",
        "fun": lambda w: slack - programme.constraints(w @ part),
        "jac": lambda w: -programme.slopes(w @ part) @ part.T,
    }

    def value(w: Float) -> float:
        return float(objective.value(w @ part))

    def slope(w: Float) -> Float:
        return np.asarray(part @ objective.gradient(w @ part), dtype=float)

    with np.errstate(invalid="ignore", over="ignore"):
        found = minimize(
            value,
            weight[chosen],
            jac=slope,
            bounds=[(0.0, 1.0)] * len(chosen),
            constraints=[total, rows] if programme.n_constraints else [total],
            method="SLSQP",
            options={"ftol": 1e-12},
        )
    new = np.zeros_like(weight)
    new[chosen] = np.maximum(found.x, 0.0)
    if not (np.isfinite(new).all() and new.sum() > 0):
        return weight
    new /= new.sum()
    u, before = new @ points, weight @ points
    is_better = objective.value(u) < objective.value(before)
    was_feasible = programme.violation(before) <= slack + FEASIBLE
    is_feasible = programme.violation(u) <= slack + FEASIBLE
    return new if is_feasible and (is_better or not was_feasible) else weight
