r"""The master linear programme: the best mixture of the rules found so far.

.. math:: \min_{\lambda, t} t \quad \text{s.t.} \quad t \ge \psi(v_k) + g_k^T (u - v_k), \;
    A u \le b, \; \phi(w_l) + h_l^T (u - w_l) \le 0, \;
    u = \sum_i \lambda_i u_i, \; \sum_i \lambda_i = 1, \; \lambda \ge 0 .

Cuts :math:`g_k` of the objective and :math:`h_l` of the convex constraints are added until the
programme is exact at its solution (Kelley). The multipliers :math:`\alpha, \mu, \nu` of the rows
give the cost of the next rule, :math:`c = \sum_k \alpha_k g_k + A^T \mu + \sum_l \nu_l h_l`. They
also give the bound that holds for every achievable u, by weak duality:

.. math:: \psi^* \ge \min_u c^T u + \sum_k \alpha_k (\psi(v_k) - g_k^T v_k) - b^T \mu
    + \sum_l \nu_l (\phi(w_l) - h_l^T w_l) .
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.problem.linear_programme import solve_linear_programme
from gbm_constrained.reductions.base import FEASIBLE, ConvexFunction, Programme
from gbm_constrained.reductions.segments import polish, search_segment
from gbm_constrained.reductions.simplicial import mix_smoothly

# Steeper cuts make a linear programme with 1e-10 as tolerance wrong in the sixth digit.
MAX_SLOPE = 1e4
# Steps from u towards the centre at which a cut is tried: u itself, then doubling ones.
CUT_STEPS = np.append(0.0, 2.0 ** -np.arange(30, -1, -1.0))
# Kelley's method adds about ten cuts for each dimension of curvature; d is below 100.
MAX_CUTS = 1000
# Rules of a pool at which a function with kinks is cut at first: their linear pieces often differ.
MAX_PIECES = 20
# Share of a violation that a cut away from the violating point must take off that point.
DEEP = 0.1
# Probability of rules that are new to a mixture, where its improvement starts.
POLISH_START = 1e-3


class Cut(NamedTuple):
    """The linear lower bound ``slope @ u + offset`` of a convex function."""

    slope: Float
    offset: float


class MasterPoint(NamedTuple):
    """A solution of the master programme.

    ``weight`` of shape (n,) over the pool has the functionals ``u``. ``model`` is the value of the
    linear programme, and its Lagrangian is ``cost @ u + constant``.
    """

    weight: Float
    u: Float
    model: float
    cost: Float
    constant: float


def make_cut(function: ConvexFunction, u: Float, centres: tuple[Float, ...]) -> Cut | None:
    """Make a cut at u, or near u where the function is infinite or has no subgradient there.

    A cut that is steep or exceeds the function at a centre is no use: the point of the cut moves
    towards the first centre that gives one, and None is returned where none does.
    """
    for centre in centres:
        at_centre = function.value(centre)
        if not np.isfinite(at_centre):
            continue
        for step in CUT_STEPS:
            v = u + step * (centre - u)
            value = function.value(v)
            if not np.isfinite(value):
                continue
            slope = np.asarray(function.gradient(v), dtype=float)
            if np.isnan(slope).any():
                raise ValueError(
                    f"gradient({v}) is {slope}, which holds NaN; return finite numbers for every "
                    "u between low and high"
                )
            if np.abs(slope).max(initial=0.0) > MAX_SLOPE:
                continue
            cut = Cut(slope, float(value - slope @ v))
            if slope @ centre + cut.offset <= at_centre + FEASIBLE * (1 + abs(at_centre)):
                return cut
    return None


class Master:
    """The master programme of one programme, with its cuts.

    Parameters
    ----------
    programme : Programme
        An objective that is linear or convex, and constraints.
    constraint_cuts : list of Cut, default=None
        Cuts of the same convex constraints from other masters, which share the list.
    """

    def __init__(self, programme: Programme, constraint_cuts: list[Cut] | None = None) -> None:
        self.programme = programme
        self._cuts: list[Cut] = []
        self._mixture: Float | None = None  # Of a smooth objective without constraints.
        self._constraint_cuts = [] if constraint_cuts is None else constraint_cuts

    def optimise(self, points: Float, tolerance: float, slack: float = 0.0) -> MasterPoint | None:
        """Find the best mixture whose violations are at most `slack`; None if there is none.

        The model misses the objective by at most `tolerance`.
        """
        if self.programme.objective.kind == "smooth" and not self.programme.n_constraints:
            mixed = self._mix_smoothly(points, tolerance)
            if mixed is not None:
                return mixed
        return self._cut_objective(points, tolerance, slack)

    def _cut_objective(self, points: Float, tolerance: float, slack: float) -> MasterPoint | None:
        """Add cuts until the model is exact enough, and no convex constraint is exceeded."""
        objective = self.programme.objective
        if not self._cuts:
            pieces = points[:MAX_PIECES] if objective.kind == "convex" else points[:0]
            for u in (points.mean(axis=0), *pieces):
                self._add_cut(u, points)
        best: MasterPoint | None = None
        best_value, allowed = np.inf, slack + FEASIBLE
        seen = np.zeros(len(points), dtype=bool)
        for _ in range(MAX_CUTS):
            point = self._solve(points, slack)
            if point is None:
                return None
            tried, seen = point, seen | (point.weight > 0)
            is_outside = any(phi.value(point.u) > allowed for phi in self.programme.convex)
            value = objective.value(point.u)
            if is_outside or (objective.kind == "smooth" and value - point.model > tolerance):
                # A cut at the optimum proves as much as many cuts around it.
                tried = self._polish(points, seen, best, point, slack)
                value = objective.value(tried.u)
            is_feasible = not is_outside or self.programme.violation(tried.u) <= allowed
            if is_feasible and value < best_value:
                best, best_value = tried, value
            if best is not None and best_value - point.model <= tolerance:
                return point._replace(weight=best.weight, u=best.u)
            inside = (tried.u, *self._centres(points))
            is_cut = is_outside and self._cut_constraints(point.u, inside, slack, allowed)
            for u in (point.u, tried.u):
                if objective.value(u) - self._model(u) > tolerance / 2:
                    is_cut |= self._add_cut(u, points)
            if not is_cut:
                break
        return best

    def _mix_smoothly(self, points: Float, tolerance: float) -> MasterPoint | None:
        """Find the best mixture without a linear programme, if that is exact enough."""
        objective = self.programme.objective
        self._mixture, gap = mix_smoothly(self.programme, points, self._mixture, tolerance)
        if not gap <= tolerance:
            return None
        u = self._mixture @ points
        value, slope = objective.value(u), np.asarray(objective.gradient(u), dtype=float)
        return MasterPoint(self._mixture, u, value - gap, slope, float(value - slope @ u))

    def _polish(
        self,
        points: Float,
        seen: Bool,
        best: MasterPoint | None,
        point: MasterPoint,
        slack: float,
    ) -> MasterPoint:
        """Find a good mixture of the rules that linear programmes have mixed so far."""
        weight = seen / seen.sum()
        if best is not None:
            weight = (1 - POLISH_START) * best.weight + POLISH_START * weight
        weight = polish(self.programme, points, weight, slack)
        return point._replace(weight=weight, u=weight @ points)

    def _model(self, u: Float) -> float:
        """Compute the lower bound of the objective at u by its cuts."""
        return max(float(cut.slope @ u) + cut.offset for cut in self._cuts)

    def find_least_violation(self, points: Float) -> MasterPoint | None:
        """Find a mixture without a violation, or the one whose largest violation is smallest.

        ``model`` is a lower bound of the violation, and up to rounding the violation itself where
        no mixture is feasible (phase 1). None where a constraint is infinite for all mixtures:
        constraints are infinite on sides of the box alone, and the mean of the pool lies on such
        a side only if the whole pool does.
        """
        violation = self.programme.violation
        weight = np.full(len(points), 1.0 / len(points))
        u = points.mean(axis=0)
        if not np.isfinite(violation(u)):
            return None
        if not self.programme.n_constraints:  # No constraint is violated where there is none.
            return MasterPoint(weight, u, 0.0, np.zeros(len(u)), 0.0)
        for _ in range(MAX_CUTS):
            found = self._solve(points, None)
            assert found is not None  # the slack is free
            point = found
            step = search_segment(violation, u, point.u)
            weight, u = (1 - step) * weight + step * point.weight, (1 - step) * u + step * point.u
            is_cut = violation(u) > point.model + FEASIBLE and self._cut_constraints(
                point.u, (u, points.mean(axis=0)), point.model, point.model + FEASIBLE
            )
            if not is_cut or violation(u) <= FEASIBLE:
                break
        return point._replace(weight=weight, u=u)

    def _centres(self, points: Float) -> tuple[Float, ...]:
        """Where every function should be finite: the mean of the pool, and the box's middle."""
        return points.mean(axis=0), self.programme.middle

    def _add_cut(self, u: Float, points: Float) -> bool:
        """Add a cut of the objective at u, unless the programme has the same one."""
        cut = make_cut(self.programme.objective, u, self._centres(points))
        if cut is None:
            raise ValueError(
                f"the objective has no finite value and bounded gradient near u={u}; make it "
                "finite in the interior of the box from low to high"
            )
        same = [c for c in self._cuts if c.offset == cut.offset and (c.slope == cut.slope).all()]
        if not same:
            self._cuts.append(cut)
        return not same

    def _cut_constraints(
        self, u: Float, inside: tuple[Float, ...], slack: float, allowed: float
    ) -> bool:
        """Cut off u by every convex constraint that exceeds what is allowed; say whether one did.

        A cut at a point inside, or between u and that point, is deeper than one at u if it cuts
        off u ("in-out separation", Ben-Ameur and Neto, 2007).
        """
        added = False
        for phi in self.programme.convex:
            excess = phi.value(u) - slack
            if excess <= allowed - slack:
                continue
            for at, share in ((inside[0], DEEP), ((u + inside[0]) / 2, DEEP), (u, 0.0)):
                cut = make_cut(phi, at, (*inside, self.programme.middle))
                if cut is not None and cut.slope @ u + cut.offset - slack > share * min(
                    excess, 1.0
                ):
                    self._constraint_cuts.append(cut)
                    added = True
                    break
        return added

    def _solve(self, points: Float, slack: float | None) -> MasterPoint | None:
        """Solve the linear programme; with None as slack, the one of phase 1."""
        n, d = points.shape
        phase_one = slack is None
        cuts = [] if phase_one else self._cuts
        slope = np.array([c.slope for c in cuts]).reshape(len(cuts), d)
        offset = np.array([c.offset for c in cuts])
        rows = np.vstack([self.programme.A, *(c.slope[None] for c in self._constraint_cuts)])
        right = np.append(self.programme.b, [-c.offset for c in self._constraint_cuts])
        t = np.append(-np.ones(len(cuts)), np.full(len(right), -1.0 if phase_one else 0.0))
        found = solve_linear_programme(
            np.append(np.zeros(n), 1.0),
            np.hstack([np.vstack([slope, rows]) @ points.T, t[:, None]]),
            np.append(-offset, right + (slack or 0.0)),
            [(0, None)] * n + [(0 if phase_one else None, None)],
            A_eq=np.append(np.ones(n), 0.0)[None],
            b_eq=[1.0],
        )
        if found.x is None:
            return None
        weight = np.maximum(found.x[:n], 0.0)
        weight /= weight.sum()
        multiplier = np.maximum(-found.ineqlin.marginals, 0.0)
        alpha, mu = multiplier[: len(offset)], multiplier[len(offset) :]
        total = alpha.sum() if not phase_one else mu.sum()
        if total > 0:
            alpha, mu = alpha / total, mu / total
        return MasterPoint(
            weight=weight,
            u=weight @ points,
            model=float(found.x[n]),
            cost=alpha @ slope + mu @ rows,
            constant=float(alpha @ offset - mu @ right),
        )
