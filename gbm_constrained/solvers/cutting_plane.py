r"""Multipliers of a convex problem by cutting planes, with bounds of the optimum.

The superlevel hypograph of a model h at the level L, equation (12) of Goh et al. (2016), is the
convex body

.. math:: H(h, L) = \{ (v, z) : v \ge 0, \; \sum_j v_j \le Y, \; L \le z \le h(v) \} .

A half-space that does not hold the centre of mass in its interior has at most
:math:`1 - 1/e < .633` of the volume (Gruenbaum, 1960). An exact answer to the multipliers of the
centre either cuts the model there or raises the level beyond it, and so leaves at most that share.

With up to three constraints the centre is exact, by the corners of the body and simplices between
them. The exact centre takes exponential time in the number of constraints, so that beyond three it
is the mean of points that hit-and-run draws.

The dual function of the problem of least :math:`f(x)` under :math:`g(x) \le 0`,

.. math::

   z(v) = \min_x \Psi(x, v), \qquad \Psi(x, v) = f(x) + \langle v, g(x) \rangle, \quad v \ge 0,

is concave. An oracle answers multipliers :math:`v_t` with any :math:`x_t` and any
:math:`l_t \le z(v_t)`. As :math:`\Psi` is linear in v, :math:`\Psi(x_t, \cdot)` is above z however
inexact :math:`x_t` is. Algorithm 2 of Goh et al. (2016) keeps the model
:math:`h(v) = \min_t \Psi(x_t, v)`, an upper bound :math:`U = \max_v h(v)` and a lower bound
:math:`L = \max_t l_t`, asks the oracle for half of what is between them, and ends with
:math:`U - L \le \epsilon`.

**The returned point.** The multipliers are at least zero and add up to at most a limit Y, so that
U is a linear programme, whose dual is

.. math::

   \min_{\theta, s} \; \sum_t \theta_t f(x_t) + Y s \quad \text{s.t.} \quad
   \sum_t \theta_t g(x_t) \le s, \; \sum_t \theta_t = 1, \; \theta, s \ge 0 .

For convex f and g the point :math:`\sum_t \theta_t x_t` costs at most U and violates no constraint
by more than s. The last :math:`x_t`, which the paper returns, may violate the constraints. Where
the limit binds, s is positive, and the limit is raised. Where it may not be raised, the point is
that of least s, for what it costs.

References
----------
.. [1] Goh, Cotter, Gupta and Friedlander, "Satisfying Real-world Goals with Dataset Constraints",
   2016, Algorithm 2 and appendix E.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import factorial
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.spatial import ConvexHull, HalfspaceIntersection, QhullError

from gbm_constrained._typing import Float
from gbm_constrained.problem.linear_constraints import solve_linear_programme


def _minimize(costs: Float, normals: Float, offsets: Float) -> Float:
    """Minimise a linear function where ``normals @ x <= offsets``; its value is the last entry."""
    found = solve_linear_programme(costs, normals, offsets, (None, None))
    return np.full(costs.size + 1, np.nan) if found.x is None else np.append(found.x, found.fun)


def hypograph_of(
    objectives: Float, violations: Float, limit: float, level: float
) -> tuple[Float, Float]:
    """Describe the superlevel hypograph of a model by half-spaces.

    Parameters
    ----------
    objectives, violations : ndarray of shape (n_cuts,) and (n_cuts, m)
        The model is the minimum over cuts of ``objective + <v, violations>``.
    limit : float
        Limit of the sum of v.
    level : float
        Level L.

    Returns
    -------
    normals, offsets : ndarray of shape (n_faces, m + 1) and (n_faces,)
        The set is ``{x : normals @ x <= offsets}``.
    """
    n, m = violations.shape
    normals = np.zeros((n + m + 2, m + 1))
    normals[:n] = np.column_stack([-violations, np.ones(n)])
    normals[n : n + m, :m] = -np.eye(m)
    normals[-2, :m] = 1.0
    normals[-1, m] = -1.0
    return normals, np.concatenate([objectives, np.zeros(m), [limit, -level]])


def find_centroid(normals: Float, offsets: Float, rng: np.random.Generator) -> Float | None:
    """Find the centre of mass, exactly in up to four dimensions; None for a body without volume.

    Parameters
    ----------
    normals, offsets : ndarray of shape (n_faces, d) and (n_faces,)
        The bounded body ``{x : normals @ x <= offsets}``.
    rng : Generator
        Source of the samples in more than four dimensions.
    """
    # Find the least and the largest value of each coordinate.
    d = normals.shape[1]
    low, high = (
        np.array([sign * _minimize(sign * axis, normals, offsets)[-1] for axis in np.eye(d)])
        for sign in (1.0, -1.0)
    )
    if not (high > low).all():
        return None
    # Write the body in the coordinates in which its box is the unit cube.
    sides = high - low
    normals, offsets = normals * sides, offsets - normals @ low
    norms = np.linalg.norm(normals, axis=1)
    is_kept = norms > 0
    norms = norms[is_kept]
    normals, offsets = normals[is_kept] / norms[:, None], offsets[is_kept] / norms
    # The centre of the largest ball in the body is an inner point.
    lengths = np.linalg.norm(normals, axis=1)
    ball = _minimize(-np.eye(d + 1)[d], np.column_stack([normals, lengths]), offsets)
    inner = ball[:d]
    if not ball[d] > 1e-10:  # No ball of that radius, relative to the box, is in the body.
        return None
    # A body of more than four dimensions has too many simplices.
    if d > 4:
        centre: Float | None = _sample_mean(normals, offsets, inner, rng)
    else:
        centre = _mean_of_simplices(normals, offsets, inner)
    return None if centre is None else low + sides * centre


def _mean_of_simplices(normals: Float, offsets: Float, inner: Float) -> Float | None:
    """Average the simplices between an inner point and the faces; None for next to no volume."""
    try:
        halfspaces = np.column_stack([normals, -offsets])
        corners = HalfspaceIntersection(halfspaces, inner).intersections
        faces = ConvexHull(corners[np.isfinite(corners).all(axis=1)])
    except QhullError:
        return None
    edges = faces.points[faces.simplices] - inner
    volumes = np.abs(np.linalg.det(edges)) / factorial(inner.size)
    centres = inner + edges.sum(axis=1) / (inner.size + 1)
    return np.asarray(volumes @ centres / volumes.sum())


def _sample_mean(normals: Float, offsets: Float, inner: Float, rng: np.random.Generator) -> Float:
    """Average points that chains of hit-and-run visit from an inner point."""
    n_chains, n_steps, n_ignored = 200, 200, 100  # Those are the first steps of each chain.
    points = np.tile(inner, (n_chains, 1))
    total = np.zeros(inner.size)
    for step in range(n_ignored + n_steps):
        directions = rng.normal(size=points.shape)
        slack = np.maximum(offsets - points @ normals.T, 0.0)
        slope = directions @ normals.T
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = slack / slope
        farthest = np.where(slope > 0, ends, np.inf).min(axis=1)
        nearest = np.where(slope < 0, ends, -np.inf).max(axis=1)
        share = rng.random(n_chains)
        points = points + (nearest + share * (farthest - nearest))[:, None] * directions
        if step >= n_ignored:
            total += points.mean(axis=0)
    return total / n_steps


Chooser: TypeAlias = Literal["maximum", "centroid"]

FEASIBLE = 1e-9  # Violation of the constraints that the linear programme leaves.


class DualCut(NamedTuple):
    """A point x, and what the oracle knows of the dual function from it.

    Parameters
    ----------
    point : (n,). The point.
    objective : f(x).
    violations : (m,). g(x).
    lower : Lower bound of the dual function at the multipliers that were asked for; of a point
        that was given, a lower bound of its maximum.
    """

    point: Float
    objective: float
    violations: Float
    lower: float = -np.inf


# Finds a point whose Lagrangian, at some multipliers, is at most a tolerance above the lower bound
# of its cut.
LagrangianOracle: TypeAlias = Callable[[Float, float], DualCut]


def never() -> bool:
    """Let a search go on."""
    return False


@dataclass(frozen=True)
class CuttingPlane:
    """Options of the search.

    Parameters
    ----------
    tolerance : float, default=1e-5
        Difference of the bounds at which the search ends.
    chooser : {"maximum", "centroid"}, default="maximum"
        Which multipliers are asked next: those of the largest model, or the centre of mass of what
        is between the model and the lower bound, whose volume falls by a constant factor with
        every exact cut. Ramp problems of one or two constraints need about as many cuts by
        either. With three to five the maximum needs about half as many, and it costs nothing.
    limit : float, default=10.0
        First limit of the sum of the multipliers.
    max_limit : float, default=1e5
        Largest limit. Where constraints can be met only beyond it, or not at all, the returned
        point violates them.
    max_cuts : int, default=200
        Most answers of the oracle.
    random_state : int, default=0
        Seed of the chooser "centroid", which samples where there are more than three constraints.
    is_over : callable, default=never
        Called before each question to the oracle; the search ends early where it returns True.
    """

    tolerance: float = 1e-5
    chooser: Chooser = "maximum"
    limit: float = 10.0
    max_limit: float = 1e5
    max_cuts: int = 200
    random_state: int = 0
    is_over: Callable[[], bool] = never

    def solve(self, oracle: LagrangianOracle, start: Sequence[DualCut]) -> Saddle:
        """Search for the multipliers of the largest dual function.

        Parameters
        ----------
        oracle : callable
            Finds a point whose Lagrangian, at some multipliers, is at most a tolerance above the
            lower bound of its cut.
        start : sequence of DualCut
            Points that are known before, at least one, and lower bounds of the optimum.
        """
        rng = np.random.default_rng(self.random_state)
        cuts, limit, best = list(start), self.limit, np.zeros(start[0].violations.size)
        lower = max(cut.lower for cut in start)
        for n_cuts in range(self.max_cuts + 1):
            top = maximize_model(cuts, limit)
            while top.value - lower <= self.tolerance and self._may_raise(limit, top):
                limit = min(10.0 * limit, self.max_limit)
                top = maximize_model(cuts, limit)
            if top.value - lower <= self.tolerance or n_cuts == self.max_cuts or self.is_over():
                break
            asked, tolerance = self._choose(cuts, limit, top, lower, rng)
            cut = oracle(asked, tolerance)
            cuts.append(cut)
            if cut.lower > lower:
                lower, best = cut.lower, asked
            grows = asked.sum() >= (1 - FEASIBLE) * limit and asked @ cut.violations > 0
            if grows and self._may_raise(limit, top):  # The dual function grows at the limit.
                limit = min(10.0 * limit, self.max_limit)
        points, objectives, violations, _ = map(np.array, zip(*cuts, strict=True))
        return Saddle(
            point=top.shares @ points,
            multipliers=best,
            lower=lower,
            upper=top.value,
            objective=float(top.shares @ objectives),
            violations=top.shares @ violations,
            limit=limit,
            n_cuts=n_cuts,
            cuts=tuple(cuts),
        )

    def _may_raise(self, limit: float, top: Top) -> bool:
        """Say whether a limit of the multipliers binds, and may be raised."""
        return top.excess > FEASIBLE and limit < self.max_limit

    def _choose(
        self,
        cuts: Sequence[DualCut],
        limit: float,
        top: Top,
        lower: float,
        rng: np.random.Generator,
    ) -> tuple[Float, float]:
        """Choose the next multipliers, and the tolerance of the oracle's answer."""
        if self.chooser == "centroid" and np.isfinite(lower) and top.multipliers.size:
            _, objectives, violations, _ = map(np.array, zip(*cuts, strict=True))
            centre = find_centroid(*hypograph_of(objectives, violations, limit, lower), rng)
            if centre is not None:  # The body is thinner than its centre can be computed.
                return np.maximum(centre[:-1], 0.0), (centre[-1] - lower) / 2
        between = top.value - lower
        return top.multipliers, between / 2 if np.isfinite(between) else abs(top.value) + 1.0


class Top(NamedTuple):
    """Maximum of the model, and the convex combination of points that attains it.

    Parameters
    ----------
    value : U, the largest model.
    multipliers : (m,). Where it is attained.
    shares : (n_cuts,). Shares theta of the points.
    excess : Violation s of the combination, which is positive where the limit binds.
    """

    value: float
    multipliers: Float
    shares: Float
    excess: float


def maximize_model(cuts: Sequence[DualCut], limit: float) -> Top:
    """Maximise the model ``h(v) = min over cuts of f(x) + <v, g(x)>`` for v >= 0 of limited sum.

    It is a linear programme.
    """
    _, objectives, violations, _ = map(np.array, zip(*cuts, strict=True))
    m = violations.shape[1]
    if m == 0:
        shares = np.zeros(objectives.size)
        shares[objectives.argmin()] = 1.0
        return Top(float(objectives.min()), np.zeros(0), shares, 0.0)
    found = solve_linear_programme(
        np.append(objectives, limit),
        np.hstack([violations.T, np.full((m, 1), -1.0)]),
        np.zeros(m),
        (0, None),
        A_eq=np.append(np.ones(objectives.size), 0.0)[None],
        b_eq=[1.0],
    )
    multipliers = np.maximum(-found.ineqlin.marginals, 0.0)
    shares = np.maximum(found.x[:-1], 0.0)
    return Top(float(found.fun), multipliers, shares / shares.sum(), float(found.x[-1]))


@dataclass(frozen=True, eq=False)
class Saddle:
    """What the search has found.

    Parameters
    ----------
    point : (n,). A convex combination of the oracle's points.
    multipliers : (m,). Multipliers of the largest lower bound.
    lower, upper : Bounds of the largest dual function, over multipliers up to `limit`.
    objective : Upper bound of f at the point.
    violations : (m,). Upper bounds of g at the point.
    limit : Limit of the sum of the multipliers.
    n_cuts : Answers of the oracle.
    cuts : Points that were given, and the oracle's answers.
    """

    point: Float
    multipliers: Float
    lower: float
    upper: float
    objective: float
    violations: Float
    limit: float
    n_cuts: int
    cuts: Sequence[DualCut] = field(repr=False, default=())
