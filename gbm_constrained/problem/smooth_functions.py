r"""Row functions and objectives of exact learners, whose derivatives belong together.

An exact learner minimises one function, whose value, slope and second derivative belong together.
The kink of an absolute or pinball loss is rounded to a parabola, as Huber's loss is:

.. math:: |r| \approx r^2 / (2 \epsilon) + \epsilon / 2 \quad \text{for } |r| \le \epsilon .

The value is too large by at most :math:`\epsilon / 2` (Madsen and Nielsen, "A finite smoothing
algorithm for linear l1 estimation", 1993). More generally the parabola is about a slope
:math:`s \in [-1, 1]` at the kink,

.. math:: |r| \approx \max_{|u| \le 1} u r - \tfrac{\epsilon}{2} (u - s)^2 + \tfrac{\epsilon}{2} ,

which is the augmented Lagrangian of :math:`|r|` at the multiplier s (Rockafellar, "Augmented
Lagrangians and applications of the proximal point algorithm", 1976). Its minimiser is that of
:math:`|r|` where s is the slope there, whatever :math:`\epsilon`. A step is its sigmoid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from scipy.special import expit

from gbm_constrained._typing import Float
from gbm_constrained.constraints.row_means import (
    Above,
    Covered,
    LossName,
    Prediction,
    Residual,
    RowFunction,
    RowLoss,
)
from gbm_constrained.problem.regression_objectives import RegressionObjective
from gbm_constrained.problem.row_functions import (
    STEP_WIDTH,
    loss_derivatives,
    loss_values,
    row_derivatives,
    row_values,
)

EXACT_WIDTH = 1e-6  # Width of a rounded kink, in standard deviations of the targets.


@dataclass(frozen=True)
class Smooth:
    """A function of each row at its prediction, (n,) each.

    Parameters
    ----------
    value, slope, curvature : The function, its first and its second derivative.
    """

    value: Float
    slope: Float
    curvature: Float

    def times(self, factor: Float) -> Smooth:
        """Multiply the function of each row by a number."""
        return Smooth(self.value * factor, self.slope * factor, self.curvature * factor)

    def plus(self, other: Smooth) -> Smooth:
        """Add another function."""
        return Smooth(
            self.value + other.value,
            self.slope + other.slope,
            self.curvature + other.curvature,
        )


def smooth_objective(
    objective: RegressionObjective,
    y: Float,
    score: Float,
    width: float,
    slopes: Float | float = 0.0,
) -> Smooth:
    """Compute an objective whose predictions are the scores.

    Parameters
    ----------
    objective : RegressionObjective
        The objective.
    y, score : ndarray of shape (n,)
        Targets and scores.
    width : float
        Width of a rounded kink, in the unit of the target.
    slopes : ndarray of shape (n,) or float, default=0
        Slope of the distance of target and score that a kink is rounded about.
    """
    if objective.name in ("squared", "pseudo_huber"):
        slope, curvature = objective.derivatives(y, score, 1.0)
        return Smooth(objective.values(y, score), slope, curvature)
    return smooth_loss(*objective.row_loss, y, score, width, slopes)


def smooth_loss(
    loss: LossName,
    parameter: float | None,
    y: Float,
    f: Float,
    width: float,
    slopes: Float | float = 0.0,
) -> Smooth:
    """Compute a loss of rows; the arguments are those of :func:`smooth_objective`."""
    if loss in ("squared", "poisson"):  # Their parabolas have the second derivative.
        found = loss_derivatives(loss, parameter, y, f, 1.0)
        return Smooth(loss_values(loss, parameter, y, f), found.slope, found.curvature)
    residual = y - f
    distance = np.abs(residual)
    if loss == "huber":
        assert parameter is not None
        inside = (distance <= parameter).astype(np.float64)
        value = loss_values(loss, parameter, y, f)
        return Smooth(value, -np.clip(residual, -parameter, parameter), inside)
    u = np.clip(slopes + residual / width, -1.0, 1.0)
    value = u * residual + width / 2.0 * (1.0 - (u - slopes) ** 2)
    absolute = Smooth(value, -u, (np.abs(u) < 1.0) / width)
    if parameter is None:
        return absolute
    half, tilt = np.full_like(f, 0.5), parameter - 0.5  # alpha r - r / 2 + |r| / 2
    linear = Smooth(tilt * residual, np.full_like(f, -tilt), np.zeros_like(f))
    return absolute.times(half).plus(linear)


@singledispatch
def smooth_function(
    function: RowFunction,
    y: Float,
    f: Float,
    scale: float,
    width: float,
    slopes: Float | float = 0.0,
) -> Smooth:
    """Compute a row function.

    Parameters
    ----------
    function : RowFunction
        The function.
    y, f : ndarray of shape (n,)
        Targets and predictions.
    scale : float
        Standard deviation of the targets, of which the proxy of a step has a share as its width.
    width : float
        Width of a rounded kink, in the unit of the target.
    slopes : ndarray of shape (n,) or float, default=0
        Slope of the distance of target and score that a kink is rounded about.
    """
    raise NotImplementedError


@smooth_function.register
def _(
    function: RowLoss, y: Float, f: Float, scale: float, width: float, slopes: Float | float = 0.0
) -> Smooth:
    return smooth_loss(function.loss, function.parameter, y, f, width, slopes)


@smooth_function.register(Prediction)
@smooth_function.register(Residual)
def _(
    function: Prediction | Residual,
    y: Float,
    f: Float,
    scale: float,
    width: float,
    slopes: Float | float = 0.0,
) -> Smooth:
    found = row_derivatives(function, y, f, scale)
    return Smooth(row_values(function, y, f), found.slope, found.curvature)


@smooth_function.register
def _(
    function: Above, y: Float, f: Float, scale: float, width: float, slopes: Float | float = 0.0
) -> Smooth:
    return _sigmoid(f - function.threshold, STEP_WIDTH * scale)


@smooth_function.register
def _(
    function: Covered, y: Float, f: Float, scale: float, width: float, slopes: Float | float = 0.0
) -> Smooth:
    return _sigmoid(f - y, STEP_WIDTH * scale)


def _sigmoid(distance: Float, width: float) -> Smooth:
    p = expit(distance / width)
    slope = p * (1.0 - p) / width
    return Smooth(p, slope, slope * (1.0 - 2.0 * p) / width)
