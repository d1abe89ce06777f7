"""Intercepts with which decisions meet the constraints that their ramps meet."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.solvers.cutting_plane import FEASIBLE
from gbm_constrained.solvers.dataset_rates import Losses, RateProblem

N_TRIED = 200  # Shifts with which decisions meet all constraints, and whose ramps are looked at.


def find_intercept_shift(problem: RateProblem, z: Float, losses: Losses) -> float | None:
    """Find the least shift of scores with which decisions and ramps meet all constraints.

    Parameters
    ----------
    problem : RateProblem
        The constraints.
    z : ndarray of shape (n_samples,)
        Scores whose ramps meet the constraints.
    losses : Losses
        What stands for decisions in the constraints.

    Returns
    -------
    float or None
        Zero where the decisions meet the constraints already; None if no shift was found.
    """

    def meets(shift: float) -> bool:
        hard = problem.violations(problem.hard_values(z + shift))
        soft = problem.violations(losses.values(problem, z + shift))
        return bool((hard <= ROUNDING).all() and (soft <= FEASIBLE).all())

    if meets(0.0):
        return 0.0
    shifts = _find_shifts_of_decisions(problem, z)
    nearest = shifts[np.argsort(np.abs(shifts))[:N_TRIED]]
    return next((float(shift) for shift in nearest if meets(shift)), None)


def _find_shifts_of_decisions(problem: RateProblem, z: Float) -> Float:
    """Find the middles between two scores at which decisions meet all constraints.

    Rows become positive one after the other as the shift grows, and each adds its costs.
    """
    order = np.argsort(-z)
    ends = -z[order]
    is_met = ends[1:] > ends[:-1]
    for j, bound in enumerate(problem.bounds, start=1):
        none = problem.negative[j] @ problem.total + problem.constant[j]
        added = problem.shares.T @ (problem.positive[j] - problem.negative[j])
        is_met &= none + np.cumsum(added[order])[:-1] - bound <= ROUNDING
    return np.asarray((ends[1:] + ends[:-1])[is_met] / 2)
