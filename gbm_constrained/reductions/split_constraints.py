r"""The points that meet the constraints, achievable or not.

.. math:: F = \{u: low \le u \le high, \; A u \le b, \; \phi(u) \le 0\} .

Algorithm 5 of the paper splits achievable points from F.
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.problem.linear_programme import solve_linear_programme
from gbm_constrained.reductions.base import Programme
from gbm_constrained.reductions.master import MAX_CUTS, Cut, make_cut

# Points of F only lead achievable points, which are re-weighted exactly at the end.
VIOLATION = 1e-6
# Cuts of the convex constraints that are kept for the next cost: the last ones are near.
MAX_KEPT = 100


class ConstraintSet:
    """Minimises linear functions over F by linear programmes and cuts of the convex constraints.

    Parameters
    ----------
    programme : Programme
        Constraints and box.
    inside : ndarray of shape (d,)
        A point that meets the constraints.
    """

    def __init__(self, programme: Programme, inside: Float) -> None:
        self.programme = programme
        self._centres = (inside, programme.middle)
        self._cuts: list[Cut] = []

    def minimise(self, cost: Float) -> Float:
        """Find the point of F with the smallest ``cost @ u``."""
        programme = self.programme
        if not programme.n_constraints:
            return np.where(cost > 0, programme.low, programme.high)
        for _ in range(MAX_CUTS):
            u = self._solve(cost)
            added = False
            for phi in programme.convex:
                if phi.value(u) > VIOLATION:
                    cut = make_cut(phi, u, self._centres)
                    if cut is not None and cut.slope @ u + cut.offset > 0:
                        self._cuts.append(cut)
                        added = True
            if not added:
                break
        del self._cuts[:-MAX_KEPT]
        return u

    def _solve(self, cost: Float) -> Float:
        """Solve the linear programme over the box, the rows and the cuts."""
        found = solve_linear_programme(
            cost,
            np.vstack([self.programme.A, *(c.slope[None] for c in self._cuts)]),
            np.append(self.programme.b, [-c.offset for c in self._cuts]),
            self.programme.box,
        )
        if found.x is None:
            raise RuntimeError(
                "no point of the box meets the constraints; call find_feasible before"
            )
        return np.asarray(found.x, dtype=float)
