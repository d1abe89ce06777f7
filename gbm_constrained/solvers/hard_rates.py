"""Intercepts with which decisions meet the constraints that their ramps meet."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.solvers.cutting_plane import FEASIBLE
from gbm_constrained.solvers.dataset_rates import Losses, RateProblem

N_TRIED = 200  # Shifts that are tried in either direction, one row changing with each.


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
        Zero where the decisions meet the constraints already; None if no shift that was tried
        does.
    """

    def meets(shift: float) -> bool:
        hard = problem.violations(problem.hard_values(z + shift))
        soft = problem.violations(losses.values(problem, z + shift))
        return bool((hard <= ROUNDING).all() and (soft <= FEASIBLE).all())

    if meets(0.0):
        return 0.0
    ends = np.unique(-z)
    between = (ends[1:] + ends[:-1]) / 2
    for shift in sorted(_nearest(between), key=abs):
        if meets(shift):
            return float(shift)
    return None


def _nearest(shifts: Float) -> list[float]:
    """List the shifts nearest to zero in either direction."""
    at = int(np.searchsorted(shifts, 0.0))
    return [float(shift) for shift in shifts[max(at - N_TRIED, 0) : at + N_TRIED]]
