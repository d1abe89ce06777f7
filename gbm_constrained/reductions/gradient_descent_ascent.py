r"""Gradient descent and ascent, for any convex objective (Algorithms 2 and 6 of the paper).

A copy xi of u takes the objective and the constraints, and multipliers join the two:

.. math:: \max_{\lambda, \mu \ge 0} \min_{u, \xi} \psi(\xi) + \lambda^T (u - \xi)
    + \mu^T (A \xi - b, \phi(\xi)) .

Without constraints there is no mu, and Algorithm 6 is Algorithm 2. The result is the average of
all rules, re-weighted over the pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.reductions.base import TOLERANCE, Observe, Oracle, Programme, Solution
from gbm_constrained.reductions.columns import find_feasible, finish_convex, finish_early
from gbm_constrained.reductions.lagrangian import SplitLagrangian
from gbm_constrained.reductions.search import Search

# Steps of xi and of the multipliers: the grid of Section 8 of the paper without 0.001, which is
# too short to arrive in thousands of calls.
STEPS = ((0.01, 0.1), (0.1, 0.1), (0.1, 0.01), (0.01, 0.01))
# Largest multiplier at the start: a tenth of the losses' range.
START = 0.1
# Points at which the first gradient is averaged: enough to name every class of dozens.
N_START_POINTS = 200
# Balls of the multipliers. Lemma 33 asks for L (1 + 1 / r), with L below n and slack r above 0.01.
RADIUS = 1000.0


def solve_by_gradient_descent_ascent(
    programme: Programme,
    oracle: Oracle,
    max_calls: int = 5000,
    tolerance: float = TOLERANCE,
    steps: Sequence[tuple[float, float]] = STEPS,
    observe: Observe | None = None,
) -> Solution:
    """Minimise a convex objective under convex constraints by gradient descent and ascent.

    Parameters
    ----------
    programme : Programme
        Objective of kind ``"linear"``, ``"smooth"`` or ``"convex"``, and constraints.
    oracle : Oracle
        Where rules come from.
    max_calls : int, default=5000
        Calls of the oracle, divided among the steps.
    tolerance : float, default=1e-7
        Value minus bound that counts as optimal.
    steps : sequence of (float, float)
        Steps of xi and of the multipliers, each tried from the start.
    observe : callable, default=None
        As in :class:`~gbm_constrained.reductions.search.Search`.

    Returns
    -------
    Solution
        The best mixture of all rules found. The history has the averages of each pair of steps.
    """
    search = Search(programme, oracle, max_calls, observe)
    if failure := find_feasible(search):
        return finish_early(search, failure)
    n_calls = max((search.n_left - 1) // len(steps), 1)
    for descent, ascent in steps:
        _run(search, n_calls, descent, ascent)
    return finish_convex(search, tolerance)


def _run(search: Search, n_calls: int, descent: float, ascent: float) -> None:
    """Run Algorithm 6 for some calls, and note the average after each."""
    programme = search.programme
    lagrangian = SplitLagrangian(programme)
    xi = programme.middle
    joint = _start_multipliers(programme)
    mu = np.zeros(programme.n_constraints)
    average = np.zeros(programme.size)
    for t in range(n_calls):
        if search.n_left <= 1:
            break
        _, u = search.call(joint)
        average += (u - average) / (t + 1)
        slope = lagrangian.slope(xi, joint, mu)
        bound = float(joint @ u) + lagrangian.bound(xi, joint, mu, slope)
        step_joint, step_mu = u - xi, lagrangian.constraints(xi)
        xi = np.clip(xi - descent * slope, programme.low, programme.high)
        joint = project_on_ball(joint + ascent * step_joint, RADIUS)
        mu = project_on_corner(np.maximum(mu + ascent * step_mu, 0.0), RADIUS)
        search.note(average, bound)


def _start_multipliers(programme: Programme) -> Float:
    """Take the direction of the mean gradient over the box, and a small length.

    One subgradient of a worst recall would name one class, which the average would remember.
    """
    rng = np.random.default_rng(0)
    points = rng.uniform(programme.low, programme.high, (N_START_POINTS, programme.size))
    mean = np.mean([programme.objective.gradient(u) for u in points], axis=0)
    largest = np.abs(mean).max(initial=0.0)
    return np.asarray(START * mean / largest if largest > 0 else mean, dtype=float)


def project_on_ball(x: Float, radius: float) -> Float:
    """Project on the ball around zero."""
    length = float(np.linalg.norm(x))
    return x * (radius / length) if length > radius else x


def project_on_corner(x: Float, total: float) -> Float:
    """Project non-negative numbers on those whose sum is at most `total`."""
    if x.sum() <= total:
        return x
    # The projection is max(x - s, 0), with s such that it sums to `total` (Held et al., 1974).
    descending = np.sort(x)[::-1]
    shift = (np.cumsum(descending) - total) / np.arange(1, len(x) + 1)
    last = np.flatnonzero(descending > shift)[-1]
    return np.asarray(np.maximum(x - shift[last], 0.0), dtype=float)
