r"""Losses of margins, which surrogates are means of.

A margin is :math:`m_i = y_i f_i`, with labels :math:`y_i = \pm 1` and scores :math:`f_i`. Each
loss has its value :math:`\phi(m)`, its slope :math:`\phi'(m)` and a bound of its curvature
:math:`|\phi''(m)|`, all of the shape of the margins. A shift :math:`\delta` of all margins moves
the weighted mean :math:`\sum_i w_i \phi(m_i + \delta)` to a target.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from gbm_constrained._typing import Float

LossName: TypeAlias = Literal["log_loss", "hinge", "sigmoid", "squared", "quantile"]
LARGEST_SHIFT = 2.0**20  # A loss that is still off its target there has no root in reach.


class MarginLoss(ABC):
    """A loss of margins that falls as they grow."""

    supremum: ClassVar[float] = math.inf

    @abstractmethod
    def value(self, margins: Float) -> Float:
        """Compute the loss of each margin."""

    @abstractmethod
    def slope(self, margins: Float) -> Float:
        """Compute the derivative at each margin; a subgradient at kinks."""

    @abstractmethod
    def curvature(self, margins: Float) -> Float:
        """Compute the second derivative's absolute value at each margin; zero at kinks."""

    def find_shift(self, margins: Float, weights: Float, target: float) -> float:
        r"""Solve :math:`\sum_i w_i \phi(m_i + \delta) = u` for the shift :math:`\delta`.

        Parameters
        ----------
        margins : ndarray of shape (n_samples,)
            Margins.
        weights : ndarray of shape (n_samples,)
            Weights, whose sum is one.
        target : float
            Target u of the mean.

        Returns
        -------
        float
            The shift; NaN where no shift reaches the target.
        """
        if not 0.0 < target < self.supremum:
            return math.nan

        def excess(shift: float) -> float:
            return float(weights @ self.value(margins + shift)) - target

        at_zero = excess(0.0)
        if at_zero == 0.0:
            return 0.0
        step = math.copysign(1.0, at_zero)
        while excess(step) * at_zero > 0.0:
            step *= 2.0
            if abs(step) > LARGEST_SHIFT:
                return math.nan
        return float(brentq(excess, 0.0, step, xtol=1e-14))


class LogLoss(MarginLoss):
    r"""The cross-entropy, :math:`\log(1 + e^{-m})`."""

    def value(self, margins: Float) -> Float:
        """Compute the loss of each margin."""
        return np.asarray(np.logaddexp(0.0, -margins))

    def slope(self, margins: Float) -> Float:
        """Compute minus the probability of the wrong class."""
        return np.asarray(-expit(-margins))

    def curvature(self, margins: Float) -> Float:
        """Compute the product of both probabilities."""
        return np.asarray(expit(margins) * expit(-margins))


class Hinge(MarginLoss):
    r"""The hinge, :math:`\max(0, 1 - m)`, which is neither smooth nor bounded."""

    def value(self, margins: Float) -> Float:
        """Compute the loss of each margin."""
        return np.maximum(1.0 - margins, 0.0)

    def slope(self, margins: Float) -> Float:
        """Return -1 below a margin of one, and 0 from there."""
        return np.where(margins < 1.0, -1.0, 0.0)

    def curvature(self, margins: Float) -> Float:
        """Return zeros: the loss is linear on both sides of its kink."""
        return np.zeros_like(margins)


class Sigmoid(MarginLoss):
    r"""The sigmoid, :math:`1 / (1 + e^m)`, which is bounded and not convex."""

    supremum = 1.0

    def value(self, margins: Float) -> Float:
        """Compute the probability of the wrong class."""
        return np.asarray(expit(-margins))

    def slope(self, margins: Float) -> Float:
        """Compute minus the product of both probabilities."""
        return np.asarray(-expit(margins) * expit(-margins))

    def curvature(self, margins: Float) -> Float:
        """Compute the absolute value of the second derivative."""
        return np.asarray(expit(margins) * expit(-margins) * np.abs(np.tanh(margins / 2.0)))


class Squared(MarginLoss):
    r"""The squared error :math:`(1 - m)^2`, which rises again beyond a margin of one."""

    def value(self, margins: Float) -> Float:
        """Compute the loss of each margin."""
        return np.square(1.0 - margins)

    def slope(self, margins: Float) -> Float:
        """Compute the derivative at each margin."""
        return 2.0 * (margins - 1.0)

    def curvature(self, margins: Float) -> Float:
        """Return twos."""
        return np.full_like(margins, 2.0)

    def find_shift(self, margins: Float, weights: Float, target: float) -> float:
        """Solve the quadratic equation on the side of its minimum where no shift is zero."""
        mean = float(weights @ margins)
        least = float(weights @ np.square(margins - mean))
        if target < least:
            return math.nan
        return (1.0 - mean) - math.copysign(math.sqrt(target - least), 1.0 - mean)


MARGIN_LOSSES: dict[LossName, MarginLoss] = {
    "log_loss": LogLoss(),
    "hinge": Hinge(),
    "sigmoid": Sigmoid(),
    "squared": Squared(),
}
