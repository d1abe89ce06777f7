"""Frank-Wolfe, for objectives with gradients (Algorithms 1 and 5 of the paper).

Frank-Wolfe mixes the current mixture with the rule that minimises the objective's linear
approximation. A subgradient of the worst recall's loss names one class, so that the method ends at
the uniform mixture there: objectives with kinks are served by columns.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.reductions.base import (
    FEASIBLE,
    TOLERANCE,
    LinearObjective,
    Observe,
    Oracle,
    Programme,
    Solution,
)
from gbm_constrained.reductions.columns import (
    find_feasible,
    find_mixture,
    finish_convex,
    finish_early,
    minimise_over_columns,
)
from gbm_constrained.reductions.search import Search
from gbm_constrained.reductions.segments import search_segment
from gbm_constrained.reductions.split_constraints import ConstraintSet

StepRule: TypeAlias = Literal["line_search", "open_loop"]

# Starts of an objective that is not convex; the first one is the balanced rule.
N_STARTS = 5
# Calls of one start before its mixture is re-weighted over the whole pool.
CALLS_PER_START = 20
# Steps of the multipliers of Algorithm 5, by thirds of the calls (the paper's Section 8).
SPLIT_STEPS = (0.5, 0.1, 0.001)
PENALTY = 10.0  # Weight zeta of the squared distance in Algorithm 5.


def solve_by_frank_wolfe(
    programme: Programme,
    oracle: Oracle,
    max_calls: int = 500,
    tolerance: float = TOLERANCE,
    step: StepRule = "line_search",
    observe: Observe | None = None,
) -> Solution:
    """Minimise a smooth or any differentiable objective by Frank-Wolfe.

    Parameters
    ----------
    programme : Programme
        Objective of kind ``"linear"``, ``"smooth"`` or ``"other"``. Algorithm 5 meets the
        constraints of a convex objective, the linear programme of each step those of the others.
    oracle : Oracle
        Where rules come from.
    max_calls : int, default=500
        Calls of the oracle, of all starts together.
    tolerance : float, default=1e-7
        Frank-Wolfe gap at which the method ends.
    step : {"line_search", "open_loop"}, default="line_search"
        The exact step, or 2 / (t + 2), with the guarantee of the paper's Theorem 12.
    observe : callable, default=None
        As in :class:`~gbm_constrained.reductions.search.Search`.

    Returns
    -------
    Solution
        The best mixture of all rules found. Its status is ``"local"`` for kind ``"other"``.
    """
    if programme.objective.kind == "other":
        return _solve_from_several_starts(Search(programme, oracle, max_calls, observe), tolerance)
    if programme.n_constraints:
        return solve_by_split_frank_wolfe(programme, oracle, max_calls, tolerance, step, observe)
    search = Search(programme, oracle, max_calls, observe)
    find_feasible(search)
    run_frank_wolfe(search, np.array([1.0]), search.n_left - 1, tolerance, step)
    return finish_convex(search, tolerance)


def run_frank_wolfe(
    search: Search, weight: Float, n_calls: int, tolerance: float, step: StepRule
) -> tuple[Float, float]:
    """Run Algorithm 1 from a mixture.

    Parameters
    ----------
    search : Search
        The pool, which grows.
    weight : ndarray of shape (k,)
        Probabilities of the first k rules at the start.
    n_calls : int
        Calls of the oracle.
    tolerance : float
        Frank-Wolfe gap at which the method ends.
    step : {"line_search", "open_loop"}
        As in :func:`solve_by_frank_wolfe`.

    Returns
    -------
    weight : ndarray of shape (n,)
        Probabilities of the rules at the end.
    gap : float
        Frank-Wolfe gap before the last step.
    """
    objective, gap = search.programme.objective, np.inf
    u = weight @ search.points[: len(weight)]
    is_convex = objective.kind != "other"
    end = len(search.history) + n_calls
    for t in range(n_calls):
        slope = np.asarray(objective.gradient(u), dtype=float)
        target, v = _find_target(search, slope, tolerance)
        gap = float(slope @ (u - v))
        bound = objective.value(u) - gap if is_convex else -np.inf
        if gap <= tolerance:
            search.note(u, bound)
            break
        size = 2 / (t + 2) if step == "open_loop" else search_segment(objective.value, u, v)
        weight = np.append(weight, np.zeros(len(target) - len(weight)))
        weight = (1 - size) * weight + size * target
        u = (1 - size) * u + size * v
        search.note(u, bound)
        is_stuck = size == 0.0 and step == "line_search"
        if is_stuck or search.is_exhausted or len(search.history) >= end:
            break
    return weight, gap


def _find_target(search: Search, slope: Float, tolerance: float) -> tuple[Float, Float]:
    """Find the mixture that minimises a linear function under the constraints, and its u."""
    if not search.programme.n_constraints:
        index, u = search.call(slope)
        return np.eye(1, len(search.rules), index)[0], u
    linear = search.programme.with_objective(LinearObjective(slope))
    found = minimise_over_columns(linear, search, tolerance)
    weight = np.append(found.weight, np.zeros(len(search.rules) - len(found.weight)))
    return weight, found.u


def _solve_from_several_starts(search: Search, tolerance: float) -> Solution:
    """Find a stationary point of an objective that is not convex."""
    programme = search.programme
    if failure := find_feasible(search):
        return finish_early(search, failure)
    ends: list[Float] = []
    for slope in _draw_slopes(programme):
        if search.n_left <= 1:
            break
        start, u = _find_target(search, slope, tolerance)
        search.note(u)
        n_calls = min(CALLS_PER_START, search.n_left)
        ends.append(run_frank_wolfe(search, start, n_calls, tolerance, "line_search")[0])
    points = search.points
    ends = [find_mixture(search, end) for end in ends] or [find_mixture(search)]
    weight = min(ends, key=lambda end: programme.objective.value(end @ points))
    gap, value, before = np.inf, programme.objective.value(weight @ points), np.inf
    while gap > tolerance and value < before and not search.is_exhausted:
        before = value
        weight, gap = run_frank_wolfe(
            search, weight, min(CALLS_PER_START, search.n_left), tolerance, "line_search"
        )
        weight = find_mixture(search, weight)
        value = programme.objective.value(weight @ search.points)
    return search.finish(weight, "local" if gap <= tolerance else "limit")


def _draw_slopes(programme: Programme) -> list[Float]:
    """Take gradients at the middle of the box and at random points, one for each start."""
    rng = np.random.default_rng(0)
    at = [programme.middle]
    at += [rng.uniform(programme.low, programme.high) for _ in range(N_STARTS - 1)]
    return [np.asarray(programme.objective.gradient(u), dtype=float) for u in at]


def solve_by_split_frank_wolfe(
    programme: Programme,
    oracle: Oracle,
    max_calls: int = 10_000,
    tolerance: float = TOLERANCE,
    step: StepRule = "open_loop",
    observe: Observe | None = None,
) -> Solution:
    r"""Minimise a smooth convex objective under constraints (Algorithm 5, SplitFW).

    Achievable u and feasible f are moved towards each other on

    .. math:: \psi(u) + \psi(f) + \lambda^T (u - f) + \tfrac{\zeta}{2} \lVert u - f \rVert^2 .

    The multipliers take the step :math:`\eta` that the paper's experiments use, by thirds of the
    calls. Algorithm 5 prints :math:`\eta / t`, which leaves u and f apart.

    Parameters
    ----------
    programme, oracle, max_calls, tolerance, observe
        As in :func:`solve_by_frank_wolfe`.
    step : {"line_search", "open_loop"}, default="open_loop"
        The step along both segments.

    Returns
    -------
    Solution
        The best mixture of all rules found.
    """
    search = Search(programme, oracle, max_calls, observe)
    if failure := find_feasible(search):
        return finish_early(search, failure)
    u = find_mixture(search) @ search.points
    state = _Split(programme, u)
    for t in range(n_steps := search.n_left - 1):
        if search.n_left <= 1:
            break
        eta = SPLIT_STEPS[min(3 * t // n_steps, 2)]
        _, v = search.call(state.slope)
        bound = state.move(v, 2 / (t + 2) if step == "open_loop" else None)
        state.multipliers += eta * (state.u - state.f)
        search.note(state.u, bound)
        if programme.violation(state.u) <= FEASIBLE and (
            programme.objective.value(state.u) - search.bound <= tolerance
        ):
            break
    return finish_convex(search, tolerance)


class _Split:
    """The augmented Lagrangian of Algorithm 5 at achievable u and feasible f."""

    def __init__(self, programme: Programme, u: Float) -> None:
        self.objective = programme.objective
        self.u, self.f = u.copy(), u.copy()
        self.multipliers = np.zeros(programme.size)
        self._constraints = ConstraintSet(programme, u)

    @property
    def pull(self) -> Float:
        """Derivative by u of everything that joins u and f."""
        return self.multipliers + PENALTY * (self.u - self.f)

    @property
    def slope(self) -> Float:
        """Derivative by u."""
        return np.asarray(self.objective.gradient(self.u) + self.pull, dtype=float)

    def value(self, u: Float, f: Float) -> float:
        """Augmented Lagrangian at u and f."""
        apart = u - f
        joined = self.multipliers @ apart + PENALTY / 2 * apart @ apart
        return self.objective.value(u) + self.objective.value(f) + float(joined)

    def move(self, v: Float, size: float | None) -> float:
        """Move u towards v, and f towards its own target; give a lower bound of the optimum.

        None as size is a line search. The bound is half the minimum of both linear approximations.
        """
        slope = self.slope
        slope_f = np.asarray(self.objective.gradient(self.f) - self.pull, dtype=float)
        w = self._constraints.minimise(slope_f)
        at_u = self.objective.value(self.u) - self.objective.gradient(self.u) @ self.u + slope @ v
        at_f = (
            self.objective.value(self.f) - self.objective.gradient(self.f) @ self.f + slope_f @ w
        )
        if size is None:
            both, ends = np.concatenate([self.u, self.f]), np.concatenate([v, w])
            size = search_segment(lambda x: self.value(*np.split(x, 2)), both, ends)
        self.u, self.f = (1 - size) * self.u + size * v, (1 - size) * self.f + size * w
        return float(at_u + at_f) / 2
