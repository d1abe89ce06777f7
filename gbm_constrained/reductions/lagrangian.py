r"""The Lagrangian with a copy of u that takes the objective and the constraints.

.. math:: \mathcal{L}(u, \xi; \lambda, \mu) = \lambda^T u + \psi(\xi) - \lambda^T \xi
    + \mu^T (A \xi - b, \phi(\xi)) ,

equation (9) of the paper. Its first term is the oracle's; the others need no rule.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, minimize

from gbm_constrained._typing import Float
from gbm_constrained.problem.linear_programme import solve_linear_programme
from gbm_constrained.reductions.base import ConvexFunction, Programme
from gbm_constrained.reductions.master import Cut, make_cut

# A constraint that is infinite at xi counts as violated by this much.
MAX_VIOLATION = 10.0
# Cuts of one inner programme, and those of each function that are kept for the next ones.
MAX_INNER_CUTS = 100
# Share of the box next to its faces that the descent leaves out at first.
INSET = 1e-3
# Least gap of the inner programme. Supergradients are exact up to it, and bounds take it off.
INNER_TOLERANCE = 1e-6


class SplitLagrangian:
    """The part of the Lagrangian that depends on xi, for given multipliers.

    Parameters
    ----------
    programme : Programme
        A convex objective, and constraints.
    """

    def __init__(self, programme: Programme) -> None:
        self.programme = programme
        self._functions: list[ConvexFunction] = [programme.objective, *programme.convex]
        self._cuts: list[list[Cut]] = [[] for _ in self._functions]

    def constraints(self, xi: Float) -> Float:
        """Left-hand minus right-hand sides at xi, cut off where they are infinite."""
        return np.minimum(self.programme.constraints(xi), MAX_VIOLATION)

    def value(self, xi: Float, joint: Float, mu: Float) -> float:
        """Value at xi."""
        taken = mu @ self.constraints(xi) if len(mu) else 0.0
        return float(self.programme.objective.value(xi) - joint @ xi + taken)

    def slope(self, xi: Float, joint: Float, mu: Float) -> Float:
        """Subgradient at xi."""
        n_rows = len(self.programme.b)
        slope = self.programme.objective.gradient(xi) - joint + mu[:n_rows] @ self.programme.A
        for weight, phi in zip(mu[n_rows:], self.programme.convex, strict=True):
            if weight > 0:
                slope = slope + weight * phi.gradient(xi)
        return np.asarray(slope, dtype=float)

    def bound(self, xi: Float, joint: Float, mu: Float, slope: Float) -> float:
        """Lower bound over the box, by the linear approximation at xi."""
        if not np.isfinite(self.programme.constraints(xi)).all():
            return -np.inf
        least = np.where(slope > 0, self.programme.low, self.programme.high)
        return self.value(xi, joint, mu) + float(slope @ (least - xi))

    def minimise(
        self, joint: Float, mu: Float, tolerance: float = INNER_TOLERANCE
    ) -> tuple[Float, float]:
        """Find the xi in the box of smallest value, and a lower bound of that value."""
        xi, is_smooth = self.programme.middle, self.programme.objective.kind == "smooth"
        # The harmonic mean of recalls is zero where one is, and so are its slopes by the others: a
        # descent that steps on such a face of the box stays there.
        for inset in (INSET, 0.0) if is_smooth else ():
            xi, bound = self._descend(xi, joint, mu, inset)
            if self.value(xi, joint, mu) - bound <= tolerance:
                return xi, bound
        return self._cut(joint, mu, tolerance)

    def _descend(self, start: Float, joint: Float, mu: Float, inset: float) -> tuple[Float, float]:
        """Minimise by a quasi-Newton method on the box without a share of it next to its faces."""
        low, high = self.programme.low, self.programme.high
        margin = inset * (high - low)
        found = minimize(
            self.value,
            start,
            args=(joint, mu),
            jac=self.slope,
            bounds=Bounds(low + margin, high - margin),
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-10},
        )
        xi = np.clip(found.x, low, high)
        return xi, self.bound(xi, joint, mu, self.slope(xi, joint, mu))

    def _cut(self, joint: Float, mu: Float, tolerance: float) -> tuple[Float, float]:
        """Minimise by cuts of every function, which are kept for other multipliers."""
        programme, n_rows = self.programme, len(self.programme.b)
        weight = np.append(1.0, mu[n_rows:])
        linear, constant = mu[:n_rows] @ programme.A - joint, -float(mu[:n_rows] @ programme.b)
        xi, best, bound = programme.middle, np.inf, -np.inf
        for k in range(len(weight)):
            self._add_cut(k, xi)
        for _ in range(MAX_INNER_CUTS):
            model, point = self._solve(linear, weight)
            bound = max(bound, model + constant)
            value = self.value(point, joint, mu)
            if value < best:
                xi, best = point, value
            if best - bound <= tolerance:
                break
            added = [self._add_cut(int(k), point) for k in np.flatnonzero(weight)]
            if not any(added):
                break
        return xi, bound

    def _add_cut(self, k: int, point: Float) -> bool:
        """Add a cut of the k-th function where its cuts are below it at `point`."""
        function, cuts = self._functions[k], self._cuts[k]
        below = max((float(c.slope @ point) + c.offset for c in cuts), default=-np.inf)
        if function.value(point) <= below + INNER_TOLERANCE / 10:
            return False
        cut = make_cut(function, point, (self.programme.middle,))
        if cut is not None:
            cuts.append(cut)
            del cuts[:-MAX_INNER_CUTS]
        return cut is not None

    def _solve(self, linear: Float, weight: Float) -> tuple[float, Float]:
        """Minimise the linear part and the weighted models over the box."""
        programme, n = self.programme, len(weight)
        rows = [
            np.append(cut.slope, -np.eye(n)[k])
            for k, cuts in enumerate(self._cuts)
            for cut in cuts
        ]
        found = solve_linear_programme(
            np.append(linear, weight),
            np.array(rows),
            [-cut.offset for cuts in self._cuts for cut in cuts],
            np.vstack([programme.box, np.tile([-np.inf, np.inf], (n, 1))]),
        )
        assert found.x is not None  # a box, and models that are bounded on it
        return float(found.fun), np.asarray(found.x[: programme.size], dtype=float)
