r"""The kernel of two classes whose expected costs are ramps of the margin.

"Class 1 is predicted" becomes :math:`r(m) = \max(0, \min(1, 1/2 + m / 4))`, which is as steep at a
margin of zero as the probability of class 1 (Goh, Cotter, Gupta and Friedlander, section 2, with a
ramp four times as wide). A row with the expected cost Q of class 1 over class 0 contributes
``Q r(m)``. Rows beyond the ends of the ramp have no gradient: a row far on the wrong side does
not pull at all, where the sigmoid lets it pull a little.

**Hessian.** The second derivative is zero, or does not exist, and leaves need a number above zero.
Let s be the sign of Q. The convex bound of the ramp that is tight where one stands (the paper's
equation 4) is constant where ``s m >= 2``, and up to a constant the hinge
``|Q| max(0, 1/2 + s m / 4)`` elsewhere. The hinge is nowhere above the parabola that touches it
and has the curvature

.. math:: \frac{|Q|}{8 |s m + 2|}

(Groenen, Nalbantov and Bioch, "SVM-Maj: a majorization approach to linear support vector machines
with different hinge errors", 2008). A full step from inside the ramp mirrors the margin at the
ramp's lower end, and is at most 8 long.

Near that end the curvature has no limit, and a row there would hold its whole leaf. The distance
is therefore taken as ``KINK`` at least, which is the sharpest for a ramp whose ends are rounded
over that distance. Where the bound is constant, the Hessian is zero: such a row is left to the
objective. Gradient and Hessian are thus those of the paper's Algorithm 1 with bounds that are
renewed in every round.
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Array
from gbm_constrained.problem.kernels.base import Block
from gbm_constrained.problem.kernels.binary import BinaryKernel

SLOPE = 0.25  # In a margin; that of the probability at zero.
END = 0.5 / SLOPE  # Margin at which the ramp reaches one.
KINK = 0.5  # Distance from the lower end within which the Hessian grows no more.


class RampKernel(BinaryKernel):
    """The row kernel on a binary margin of shape (n,), with ramps for expected costs."""

    @staticmethod
    def decision(margin: Array) -> Array:
        """Compute what stands for the prediction of class 1: the ramp."""
        return np.clip(0.5 + SLOPE * margin, 0.0, 1.0)

    @classmethod
    def add_cost(cls, block: Block, variance: Array, grad: Array) -> list[Array]:
        """Add the slope of the expected cost; return the curvature of a parabola above it."""
        margin, cost = block.margin, cls.look_up(block, block.tables.margin_cost)
        grad += (SLOPE * cost) * (np.abs(margin) < END)
        ahead = np.sign(cost) * margin
        curvature = np.abs(cost) * (ahead < END)
        ahead += END  # In place: new arrays of a block take longer than what is done to them.
        distance = np.abs(ahead, out=ahead)
        np.maximum(distance, KINK, out=distance)
        distance *= 2.0 * END**2
        curvature /= distance
        return [curvature]

    @classmethod
    def cost_curvature(cls, variance: Array, margin: Array) -> Array:
        """Return the second derivative of the ramp, zero but at its ends."""
        return np.zeros_like(margin)
