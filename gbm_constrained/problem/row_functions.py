r"""Row functions of regression rules: values, slopes and curvatures in the prediction.

A row function h(y, f) of a target y and a prediction f enters a Lagrangian by its weighted mean
over the rows of a cell. Multipliers move by exact means. Gradients see

- the function itself, if it is a loss or linear in the prediction;
- :math:`\sigma((f - c) / s)` for a step at c, with s a quarter of the targets' deviation.

Curvatures are those of the least parabola that touches the function and is nowhere below it, so
that Newton steps do not overshoot. Of :math:`|r|` it is :math:`1 / |r|` (Lange, "MM Optimization
Algorithms", 2016, section 4.3), at most one over a hundredth of the targets' deviation. Of a
sigmoid it is at most :math:`\sigma (1 - \sigma)` over the square of its width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from scipy.special import expit, xlogy

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

STEP_WIDTH = 0.25  # Width of the sigmoid of a step, in standard deviations of the targets.
KINK_WIDTH = 0.2  # Distance from a kink below which its curvature grows no further, likewise.
SMALLEST = 1e-12  # Prediction below which the Poisson deviance is that of this one.


@dataclass(frozen=True)
class Derivatives:
    """Slope and curvature of a row function in the prediction, (n,) each.

    Parameters
    ----------
    slope : First derivative of the function, or of its proxy.
    curvature : Curvature of a parabola that touches the function and is nowhere below it.
    """

    slope: Float
    curvature: Float


@singledispatch
def row_values(function: RowFunction, y: Float, f: Float) -> Float:
    """Compute a row function, exactly, (n,).

    Parameters
    ----------
    function : RowFunction
        The function.
    y, f : ndarray of shape (n,)
        Targets and predictions, in one unit.
    """
    raise NotImplementedError


@singledispatch
def row_derivatives(function: RowFunction, y: Float, f: Float, scale: float) -> Derivatives:
    """Compute slope and curvature of a row function or of its proxy.

    Parameters
    ----------
    function : RowFunction
        The function.
    y, f : ndarray of shape (n,)
        Targets and predictions.
    scale : float
        Standard deviation of the targets.
    """
    raise NotImplementedError


@row_values.register
def _(function: RowLoss, y: Float, f: Float) -> Float:
    return loss_values(function.loss, function.parameter, y, f)


@row_derivatives.register
def _(function: RowLoss, y: Float, f: Float, scale: float) -> Derivatives:
    return loss_derivatives(function.loss, function.parameter, y, f, scale)


def loss_values(loss: LossName, parameter: float | None, y: Float, f: Float) -> Float:
    """Compute a loss of rows; the arguments are those of :class:`RowLoss`."""
    residual = y - f
    if loss == "squared":
        return np.square(residual)
    if loss == "absolute":
        return np.abs(residual)
    if loss == "poisson":
        f = np.maximum(f, SMALLEST)
        return np.asarray(2.0 * (xlogy(y, y) - y * np.log(f) - y + f))
    assert parameter is not None
    if loss == "pinball":
        return np.maximum(parameter * residual, (parameter - 1.0) * residual)
    distance = np.abs(residual)
    return np.where(
        distance <= parameter, residual**2 / 2.0, parameter * (distance - parameter / 2.0)
    )


def loss_derivatives(
    loss: LossName, parameter: float | None, y: Float, f: Float, scale: float
) -> Derivatives:
    """Compute slope and curvature of a loss; the arguments are those of :class:`RowLoss`."""
    residual = y - f
    if loss == "squared":
        return Derivatives(-2.0 * residual, np.full_like(residual, 2.0))
    if loss == "poisson":
        f = np.maximum(f, SMALLEST)
        return Derivatives(2.0 * (1.0 - y / f), 2.0 * y / f**2)
    distance = np.maximum(np.abs(residual), KINK_WIDTH * scale)
    if loss == "absolute":
        return Derivatives(-np.sign(residual), 1.0 / distance)
    assert parameter is not None
    if loss == "pinball":
        slope = np.where(residual > 0, -parameter, np.where(residual < 0, 1.0 - parameter, 0.0))
        return Derivatives(slope, 0.5 / distance)
    slope = -np.clip(residual, -parameter, parameter)
    return Derivatives(slope, np.minimum(1.0, parameter / distance))


@row_values.register
def _(function: Prediction, y: Float, f: Float) -> Float:
    return f


@row_derivatives.register
def _(function: Prediction, y: Float, f: Float, scale: float) -> Derivatives:
    return Derivatives(np.ones_like(f), np.zeros_like(f))


@row_values.register
def _(function: Residual, y: Float, f: Float) -> Float:
    return y - f


@row_derivatives.register
def _(function: Residual, y: Float, f: Float, scale: float) -> Derivatives:
    return Derivatives(np.full_like(f, -1.0), np.zeros_like(f))


@row_values.register
def _(function: Above, y: Float, f: Float) -> Float:
    return (f > function.threshold).astype(np.float64)


@row_derivatives.register
def _(function: Above, y: Float, f: Float, scale: float) -> Derivatives:
    return _sigmoid((f - function.threshold), STEP_WIDTH * scale)


@row_values.register
def _(function: Covered, y: Float, f: Float) -> Float:
    return (y <= f).astype(np.float64)


@row_derivatives.register
def _(function: Covered, y: Float, f: Float, scale: float) -> Derivatives:
    return _sigmoid(f - y, STEP_WIDTH * scale)


def _sigmoid(distance: Float, width: float) -> Derivatives:
    p = expit(distance / width)
    variance = p * (1.0 - p)
    return Derivatives(variance / width, variance / width**2)
