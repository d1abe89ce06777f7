r"""Centre of mass of what a concave model leaves above a lower bound.

The superlevel hypograph of a model h at the level L, equation (12) of Goh et al. (2016), is the
convex body

.. math:: H(h, L) = \{ (v, z) : v \ge 0, \; \sum_j v_j \le Y, \; L \le z \le h(v) \} .

A half-space that does not hold the centre of mass in its interior has at most
:math:`1 - 1/e < .633` of the volume (Gruenbaum, 1960). An exact answer to the multipliers of the
centre either cuts the model there or raises the level beyond it, and so leaves at most that share.

With up to three constraints the centre is exact, by the corners of the body and simplices between
them. The exact centre takes exponential time in the number of constraints, so that beyond three it
is the mean of points that hit-and-run draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import numpy as np
from scipy.spatial import ConvexHull, HalfspaceIntersection, QhullError

from gbm_constrained._typing import Float
from gbm_constrained.problem.linear_programme import solve_linear_programme

MAX_EXACT = 4  # Largest dimension of a body that is cut into simplices: three constraints.
N_CHAINS = 200
N_BURN_IN = 100  # Steps of each chain before the first that is averaged.
N_STEPS = 200
THIN = 1e-10  # Least radius of a ball in a body, relative to its box, that has a centre.


@dataclass(frozen=True, eq=False)
class Body:
    """A bounded set ``{x : normals @ x <= offsets}``.

    Parameters
    ----------
    normals : (n_faces, d). Outer normals of the half-spaces.
    offsets : (n_faces,). Their offsets.
    """

    normals: Float
    offsets: Float

    def find_box(self) -> tuple[Float, Float]:
        """Find the least and the largest value of each coordinate."""
        d = self.normals.shape[1]
        ends = np.empty((2, d))
        for j in range(d):
            for i, sign in enumerate((1.0, -1.0)):
                found = self._minimize(sign * np.eye(d)[j], self.normals)
                ends[i, j] = sign * found[-1]
        return ends[0], ends[1]

    def find_ball(self) -> tuple[Float, float]:
        """Find the centre and the radius of the largest ball in the body."""
        norms = np.linalg.norm(self.normals, axis=1)
        d = self.normals.shape[1]
        found = self._minimize(-np.eye(d + 1)[d], np.column_stack([self.normals, norms]))
        return found[:d], float(found[d])

    def _minimize(self, costs: Float, normals: Float) -> Float:
        """Minimise a linear function over the body; the minimum is the last entry."""
        found = solve_linear_programme(costs, normals, self.offsets, (None, None))
        if found.x is None:
            return np.full(costs.size + 1, np.nan)
        return np.append(found.x, found.fun)

    def scale_to(self, low: Float, high: Float) -> Body:
        """Write the body in the coordinates in which a box is the unit cube."""
        normals = self.normals * (high - low)
        offsets = self.offsets - self.normals @ low
        norms = np.linalg.norm(normals, axis=1)
        is_kept = norms > 0
        norms = norms[is_kept]
        return Body(normals[is_kept] / norms[:, None], offsets[is_kept] / norms)


def hypograph_of(objectives: Float, violations: Float, limit: float, level: float) -> Body:
    """Describe the superlevel hypograph of a model by half-spaces.

    Parameters
    ----------
    objectives, violations : ndarray of shape (n_cuts,) and (n_cuts, m)
        The model is the minimum over cuts of ``objective + <v, violations>``.
    limit : float
        Limit of the sum of v.
    level : float
        Level L.
    """
    n, m = violations.shape
    normals = np.zeros((n + m + 2, m + 1))
    normals[:n] = np.column_stack([-violations, np.ones(n)])
    normals[n : n + m, :m] = -np.eye(m)
    normals[-2, :m] = 1.0
    normals[-1, m] = -1.0
    return Body(normals, np.concatenate([objectives, np.zeros(m), [limit, -level]]))


def find_centroid(body: Body, rng: np.random.Generator) -> Float | None:
    """Find the centre of mass, exactly in up to four dimensions; None for a body without volume.

    Parameters
    ----------
    body : Body
        A bounded convex body.
    rng : Generator
        Source of the samples in more than four dimensions.
    """
    found = _scale_to_cube(body)
    if found is None:
        return None
    low, sides, cube, inner = found
    if low.size > MAX_EXACT:
        return low + sides * _sample_mean(cube, inner, rng)
    centre, _ = _triangulate(cube, inner)
    return None if centre is None else low + sides * centre


def find_volume(body: Body) -> float:
    """Compute the volume of a body of up to four dimensions."""
    found = _scale_to_cube(body)
    if found is None:
        return 0.0
    _, sides, cube, inner = found
    return _triangulate(cube, inner)[1] * float(np.prod(sides))


def _scale_to_cube(body: Body) -> tuple[Float, Float, Body, Float] | None:
    """Find the box of a body, the body in coordinates of the box, and an inner point there."""
    low, high = body.find_box()
    if not (high > low).all():
        return None
    cube = body.scale_to(low, high)
    inner, radius = cube.find_ball()
    return (low, high - low, cube, inner) if radius > THIN else None


def _triangulate(body: Body, inner: Float) -> tuple[Float | None, float]:
    """Compute centre and volume by simplices between an inner point and the faces."""
    try:
        halfspaces = np.column_stack([body.normals, -body.offsets])
        corners = HalfspaceIntersection(halfspaces, inner).intersections
        faces = ConvexHull(corners[np.isfinite(corners).all(axis=1)])
    except QhullError:  # The body has next to no volume.
        return None, 0.0
    edges = faces.points[faces.simplices] - inner
    volumes = np.abs(np.linalg.det(edges)) / factorial(inner.size)
    centres = inner + edges.sum(axis=1) / (inner.size + 1)
    return volumes @ centres / volumes.sum(), float(volumes.sum())


def _sample_mean(body: Body, inner: Float, rng: np.random.Generator) -> Float:
    """Average points that chains of hit-and-run visit from an inner point."""
    points = np.tile(inner, (N_CHAINS, 1))
    total = np.zeros(inner.size)
    for step in range(N_BURN_IN + N_STEPS):
        directions = rng.normal(size=points.shape)
        slack = np.maximum(body.offsets - points @ body.normals.T, 0.0)
        slope = directions @ body.normals.T
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = slack / slope
        farthest = np.where(slope > 0, ends, np.inf).min(axis=1)
        nearest = np.where(slope < 0, ends, -np.inf).max(axis=1)
        share = rng.random(N_CHAINS)
        points = points + (nearest + share * (farthest - nearest))[:, None] * directions
        if step >= N_BURN_IN:
            total += points.mean(axis=0)
    return total / N_STEPS
