r"""The best mixture of a pool for a smooth objective without constraints.

Simplicial decomposition (von Hohenbalken, "Simplicial Decomposition in Nonlinear Programming
Algorithms", 1977) mixes the rules of few columns anew, and adds those of smallest cost
:math:`\nabla \psi(u)^T u_i`, until no rule of the pool costs less than the mixture. There are no
linear programmes to solve.
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.reductions.base import Programme
from gbm_constrained.reductions.segments import polish

# Rules that join the mixture in one step: each step costs one search for probabilities.
N_NEW = 3
# Probability of all of them, where that search starts.
START = 1e-3
# Steps until a mixture of some ten rules is found are about five.
MAX_STEPS = 30
# Steeper objectives are near a point where they have no gradient.
MAX_SLOPE = 1e4


def mix_smoothly(
    programme: Programme, points: Float, start: Float | None, tolerance: float
) -> tuple[Float, float]:
    """Minimise a smooth objective over mixtures of a pool.

    Parameters
    ----------
    programme : Programme
        A smooth objective, and no constraints.
    points : ndarray of shape (n, d)
        Functionals of the rules.
    start : ndarray of shape (k,) or None
        A mixture of the first k rules; None for the rule of least cost in the middle of the pool.
    tolerance : float
        Gap at the end.

    Returns
    -------
    weight : ndarray of shape (n,)
        The mixture.
    gap : float
        Value of the mixture minus a lower bound of all of them. The gap exceeds the tolerance
        where the objective is too steep, or where rounding ends the descent.
    """
    objective = programme.objective
    if start is None:
        slope = np.asarray(objective.gradient(points.mean(axis=0)), dtype=float)
        start = np.eye(1, len(points), int((points @ slope).argmin()))[0]
    weight = np.append(start, np.zeros(len(points) - len(start)))
    best, least, gap = weight, np.inf, np.inf
    for _ in range(MAX_STEPS):
        u = weight @ points
        value, slope = objective.value(u), np.asarray(objective.gradient(u), dtype=float)
        if not value < least:
            break
        gains = (u - points) @ slope
        best, least, gap = weight, value, float(gains.max())
        if gap <= tolerance or not np.abs(slope).max() <= MAX_SLOPE:
            break
        new = np.zeros_like(weight)
        new[np.argsort(-gains, kind="stable")[:N_NEW]] = 1.0
        new *= gains > 0.0
        mixed = (1.0 - START) * weight + START * new / new.sum()
        weight = polish(programme, points, mixed, 0.0)
    return best, gap
