r"""The ellipsoid method on the dual, for any convex objective (Algorithms 3 and 7 of the paper).

.. math:: f(\lambda, \mu) = \min_u \lambda^T u + \min_\xi \psi(\xi) - \lambda^T \xi
    + \mu^T (A \xi - b, \phi(\xi))

is concave, with the supergradient :math:`(u - \xi, \; (A \xi - b, \phi(\xi)))` at its minimisers.
Its maximum over :math:`\mu \ge 0` is the optimum. A shrinking ellipsoid holds the maximiser, and
the rules found on the way are mixed at the end.
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.reductions.base import TOLERANCE, Observe, Oracle, Programme, Solution
from gbm_constrained.reductions.columns import find_feasible, finish_convex, finish_early
from gbm_constrained.reductions.lagrangian import INNER_TOLERANCE, SplitLagrangian
from gbm_constrained.reductions.search import Search

# Radius of the first ball. Theorem 14 asks for 2 L, Theorem 18 for 2 (L + (L + 1) / r).
RADIUS = 20.0
# Cuts back to the ball and to mu >= 0 call no oracle; this many of them for each call are enough.
CUTS_PER_CALL = 10
# The inner programme is solved to this share of the dual gap before it.
INNER_SHARE = 1e-3


def solve_by_ellipsoid(
    programme: Programme,
    oracle: Oracle,
    max_calls: int = 1000,
    tolerance: float = TOLERANCE,
    radius: float = RADIUS,
    observe: Observe | None = None,
) -> Solution:
    """Minimise a convex objective under convex constraints by the ellipsoid method.

    Parameters
    ----------
    programme : Programme
        Objective of kind ``"linear"``, ``"smooth"`` or ``"convex"``, and constraints.
    oracle : Oracle
        Where rules come from.
    max_calls : int, default=1000
        Calls of the oracle.
    tolerance : float, default=1e-7
        Distance of the dual value from its maximum at which the method ends.
    radius : float, default=20
        Radius of the first ball, which holds the multipliers of the optimum.
    observe : callable, default=None
        As in :class:`~gbm_constrained.reductions.search.Search`.

    Returns
    -------
    Solution
        The best mixture of all rules found.
    """
    search = Search(programme, oracle, max_calls, observe)
    if failure := find_feasible(search):
        return finish_early(search, failure)
    d, m = programme.size, programme.n_constraints
    lagrangian = SplitLagrangian(programme)
    centre, shape, gap = np.zeros(d + m), radius**2 * np.eye(d + m), radius
    for _ in range(CUTS_PER_CALL * max_calls):
        if search.n_left <= 1:
            break
        joint, mu = centre[:d], centre[d:]
        if centre @ centre > radius**2:
            ascent = -centre
        elif (mu < 0).any():
            ascent = np.append(np.zeros(d), np.maximum(-mu, 0.0))
        else:
            _, u = search.call(joint)
            xi, bound = lagrangian.minimise(joint, mu, max(INNER_SHARE * gap, INNER_TOLERANCE))
            ascent = np.append(u - xi, lagrangian.constraints(xi))
            search.note(u, float(joint @ u) + bound)
            # By concavity, f* - f(centre) is at most the ascent along the longest chord.
            gap = np.sqrt(max(float(ascent @ shape @ ascent), 0.0))
            if gap <= tolerance:
                break
        centre, shape = cut_ellipsoid(shape, centre, ascent)
    return finish_convex(search, tolerance)


def cut_ellipsoid(shape: Float, centre: Float, ascent: Float) -> tuple[Float, Float]:
    r"""Find the smallest ellipsoid that holds half of another one (Löwner and John).

    .. math:: g = \frac{P w}{\sqrt{w^T P w}}, \quad c' = c + \frac{g}{d + 1}, \quad
        P' = \frac{d^2}{d^2 - 1} \Bigl(P - \frac{2}{d + 1} g g^T\Bigr) ,

    of the ellipsoid :math:`(x - c)^T P^{-1} (x - c) \le 1` cut by :math:`w^T (x - c) \ge 0`. The
    volume shrinks by exp(-1 / (2 d)) or more (the paper's Lemma 34).

    Parameters
    ----------
    shape : ndarray of shape (d, d)
        Matrix P.
    centre : ndarray of shape (d,)
        Centre c.
    ascent : ndarray of shape (d,)
        Direction w.

    Returns
    -------
    centre, shape : ndarray
        Centre and matrix of the new ellipsoid.
    """
    d = len(centre)
    length = float(ascent @ shape @ ascent)
    if length <= 0.0:
        return centre, shape
    g = shape @ ascent / np.sqrt(length)
    if d == 1:  # half an interval
        return centre + g / 2, shape / 4
    new = d * d / (d * d - 1) * (shape - 2 / (d + 1) * np.outer(g, g))
    return centre + g / (d + 1), (new + new.T) / 2
