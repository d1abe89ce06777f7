r"""The best mixture of a finite pool of rules, with few rules.

The post-processing of the paper's Section 8.2,

.. math:: \min_\lambda \psi(\sum_i \lambda_i u_i) \quad \text{s.t.} \quad
    A \sum_i \lambda_i u_i \le b, \; \phi(\sum_i \lambda_i u_i) \le 0 ,

with the objective itself by cutting planes, where the paper has the linear function
:math:`\sum_i \lambda_i \psi(u_i)`, and with one row for each linear constraint.
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.problem.linear_programme import solve_linear_programme
from gbm_constrained.reductions.base import (
    FEASIBLE,
    LinearObjective,
    Objective,
    Programme,
    RatioObjective,
)
from gbm_constrained.reductions.master import Cut, Master
from gbm_constrained.reductions.segments import polish, search_segment

# What a linear programme with 1e-10 as tolerance can tell apart.
PRUNING_TOLERANCE = 1e-9
# Dinkelbach's steps converge superlinearly, line searches linearly.
MAX_STEPS = 100


class Pruning:
    """Mixtures of one pool under the constraints of one programme.

    Parameters
    ----------
    programme : Programme
        Objective of any kind, and constraints.
    points : ndarray of shape (n, d)
        Functionals of the rules.
    constraint_cuts : list of Cut, default=None
        Cuts of the convex constraints that are known, to which new ones are added.

    Attributes
    ----------
    slack : float
        Least violation of a mixture, zero if it is rounding.
    """

    def __init__(
        self, programme: Programme, points: Float, constraint_cuts: list[Cut] | None = None
    ) -> None:
        self.programme, self.points = programme, points
        self._cuts = [] if constraint_cuts is None else constraint_cuts
        self._zero = LinearObjective(np.zeros(programme.size))
        point = self._master(self._zero).find_least_violation(points)
        self.slack = np.inf if point is None else point.model
        if self.slack <= FEASIBLE:
            self.slack = 0.0

    def _master(self, objective: Objective) -> Master:
        """Make the master programme of another objective."""
        return Master(self.programme.with_objective(objective), self._cuts)

    def optimise(self, objective: Objective) -> Float:
        """Minimise a convex objective; the result is a vertex if it is linear."""
        if not np.isfinite(self.slack):
            return np.full(len(self.points), 1 / len(self.points))
        if isinstance(objective, LinearObjective) and not self.programme.n_constraints:
            values = self.points @ objective.slope
            return np.asarray(np.eye(1, len(values), int(values.argmin()))[0], dtype=float)
        # The slack is a minimum, and a linear programme finds no point at its exact value.
        for margin in (0.0, FEASIBLE, 10 * FEASIBLE):
            master = self._master(objective)
            point = master.optimise(self.points, PRUNING_TOLERANCE, self.slack + margin)
            if point is not None:
                return point.weight
        raise RuntimeError("the pool has no mixture of its own least violation")

    def minimise_ratio(self) -> Float:
        """Minimise a ratio by Dinkelbach's steps: gamma <- psi(argmin (a - gamma b)^T u)."""
        objective = self.programme.objective
        weight = self.optimise(self._zero)
        value = objective.value(weight @ self.points)
        for _ in range(MAX_STEPS):
            new = self.optimise(make_level(objective, value))
            reached = objective.value(new @ self.points)
            if not reached < value:
                break
            weight, value = new, reached
        return weight

    def descend(self, start: Float | None) -> Float:
        """Descend from a mixture to the best one on the segment to a vertex, repeatedly."""
        objective, points = self.programme.objective, self.points
        weight = self.optimise(self._zero) if start is None else start
        weight = np.append(weight, np.zeros(len(points) - len(weight)))
        for _ in range(MAX_STEPS):
            u = weight @ points
            slope = np.asarray(objective.gradient(u), dtype=float)
            target = self.optimise(LinearObjective(slope))
            step = search_segment(objective.value, u, target @ points)
            if slope @ (u - target @ points) <= PRUNING_TOLERANCE or step == 0.0:
                break
            weight = reduce_support((1 - step) * weight + step * target, points)
            weight = polish(self.programme, points, weight, self.slack)
        return weight


def find_best_mixture(
    programme: Programme,
    points: Float,
    start: Float | None = None,
    constraint_cuts: list[Cut] | None = None,
) -> Float:
    """Find the probabilities of the best mixture of a pool, or of the least infeasible one.

    Parameters
    ----------
    programme : Programme
        Objective of any kind, and constraints.
    points : ndarray of shape (n, d)
        Functionals of the rules.
    start : ndarray of shape (k,), default=None
        A feasible mixture of the first k rules, where the descent of kind ``"other"`` starts.
    constraint_cuts : list of Cut, default=None
        As in :class:`Pruning`.

    Returns
    -------
    ndarray of shape (n,)
        Probabilities, of which at most d + 1 are positive, and at most one more than there are
        active constraints where the objective is linear or a ratio.
    """
    pruning = Pruning(programme, points, constraint_cuts)
    if programme.objective.kind == "ratio":
        weight = pruning.minimise_ratio()
    elif programme.objective.kind == "other":
        weight = pruning.descend(start)
    else:
        weight = pruning.optimise(programme.objective)
    return reduce_support(weight, points)


def reduce_support(weight: Float, points: Float) -> Float:
    """Find a mixture of the same u with at most d + 1 rules (Carathéodory's theorem)."""
    chosen = np.flatnonzero(weight)
    if len(chosen) <= points.shape[1] + 1:
        return weight
    found = solve_linear_programme(
        np.arange(len(chosen), dtype=float),
        None,
        None,
        (0, None),
        A_eq=np.vstack([points[chosen].T, np.ones(len(chosen))]),
        b_eq=np.append(weight[chosen] @ points[chosen], weight.sum()),
    )
    if found.x is None:
        return weight
    few = np.zeros_like(weight)
    few[chosen] = np.maximum(found.x, 0.0)
    return np.asarray(few / few.sum(), dtype=float)


def make_level(objective: Objective, gamma: float) -> LinearObjective:
    r"""Make :math:`(a - \gamma b)^T u + a_0 - \gamma b_0`, whose sign is that of psi - gamma."""
    assert isinstance(objective, RatioObjective)
    a, a0, b, b0 = objective.ratio()
    return LinearObjective(np.asarray(a - gamma * b, dtype=float), float(a0 - gamma * b0))
