r"""Smooth proxies of 0-1 rates in gradients.

A 0-1 rate with cost ``a_k`` of predicting class k is replaced by coefficients T and Q of the row
kernel (see :mod:`gbm_constrained.problem.kernels.base`). Multipliers always move on exact rates.

``"logistic"``
    :math:`T_k = (\max_l a_l - a_k) / \log 2`. With :math:`1[\text{prediction} \ne k] \le
    -\log(p_k) / \log 2` the proxy is a convex upper bound of the cost, up to a constant. Of three
    or more classes, a cost of predicting one of them makes all others equal targets, and pulls
    their probabilities together. Such constraints have the sigmoid proxy by default
    (evidence, Proxies).
``"sigmoid"``
    :math:`Q = a`. "k is predicted" becomes a probability, the mean of p_k and of q_k at half the
    scores. The proxy is bounded, so that a row far on the wrong side pulls little. With p alone
    constraints are met by flipping the few nearest rows, for which multipliers grow large; q alone
    reaches far and costs accuracy (evidence, Proxies).
``"ramp"``
    :math:`Q = a`. "Class 1 is predicted" becomes a ramp of the margin of two classes
    (:mod:`gbm_constrained.problem.kernels.ramp`). A row beyond the ramp's ends does not pull.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import numpy as np

from gbm_constrained._typing import Array
from gbm_constrained.problem.kernels.base import LOG2, over_classes
from gbm_constrained.problem.kernels.ramp import END, KINK

ProxyName: TypeAlias = Literal["auto", "logistic", "sigmoid", "ramp", "square"]

RAMP: ProxyName = "ramp"  # It is of one margin, and has no form for several classes.
SQUARE: ProxyName = "square"  # That of pair rates, which have no proxy by the row.


class Proxy(Protocol):
    """Smooth proxy of the cost of predictions, as coefficients of the row kernel."""

    def coefficients(self, cost: Array) -> tuple[Array, Array]:
        """Compute soft targets T and expected costs Q from costs, (n_cells, n_classes) each."""

    def concavity(self, n_classes: int) -> float:
        """Bound the negative curvature of the proxy of a unit cost in the scores."""


class LogisticProxy:
    """Cross-entropy with soft targets: a convex upper bound of the cost."""

    def coefficients(self, cost: Array) -> tuple[Array, Array]:
        """Compute soft targets from costs; there are no expected costs."""
        return (over_classes(np.maximum, cost)[:, None] - cost) / LOG2, np.zeros_like(cost)

    def concavity(self, n_classes: int) -> float:
        """Return zero: the proxy is convex."""
        return 0.0


class BoundedProxy:
    """Expected cost of a soft decision, which the kernel computes: bounded, and not convex."""

    def coefficients(self, cost: Array) -> tuple[Array, Array]:
        """Return the costs as expected costs; there are no soft targets."""
        return np.zeros_like(cost), cost


class SigmoidProxy(BoundedProxy):
    """Expected cost under softened probabilities."""

    def concavity(self, n_classes: int) -> float:
        """Bound the negative curvature by the mean of the bounds of p and q.

        The bound of p is 1 / (6 sqrt 3) in a binary margin, and in softmax scores the range 1
        times the largest variance 1/2. The bound of q is a quarter of the bound of p.
        """
        return 0.625 / (6.0 * 3.0**0.5) if n_classes == 2 else 0.3125


class RampProxy(BoundedProxy):
    """Expected cost under a ramp of the margin, of two classes."""

    def concavity(self, n_classes: int) -> float:
        """Bound the negative curvature of the ramp with its ends rounded over a distance `KINK`.

        The ramp itself has a corner at its upper end, which no curvature bounds. The rounded one
        is within ``KINK / 16`` of it.
        """
        return 1.0 / (2.0 * END**2 * KINK)


PROXIES: dict[ProxyName, Proxy] = {
    "logistic": LogisticProxy(),
    "sigmoid": SigmoidProxy(),
    RAMP: RampProxy(),
}
