r"""Row functions of regression rules: values, slopes and curvatures in the prediction.

A row function h(y, f) of a target y and a prediction f enters a Lagrangian by its weighted mean
over the rows of a cell. Multipliers move by exact means. Gradients see

- the function itself, if it is a loss or linear in the prediction;
- :math:`\sigma((f - c) / s)` for a step at c, with s a quarter of the targets' deviation.

Curvatures are those of the least parabola that touches the function and is nowhere below it, so
that Newton steps do not overshoot. Of :math:`|r|` it is :math:`1 / |r|` (Lange, "MM Optimization
Algorithms", 2016, section 4.3), at most one over a fifth of the targets' deviation, so that
the parabola is below a kink by less than twice that distance. Of a sigmoid at u widths from its
step it is the largest second derivative, :math:`1 / (6 \sqrt 3)`, or :math:`2 / u^2` far away,
over the square of the width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from scipy.special import expit, xlogy

from gbm_constrained._typing import Bool, Float
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
STEEPEST_CHANGE = 1.0 / np.sqrt(108.0)  # Largest second derivative of a sigmoid.
# Half the change of slope where prediction and target are equal, by loss or objective.
KINKS = {"absolute": 1.0, "pinball": 0.5, "quantile": 0.5}
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
    return _sigmoid(f - function.threshold, STEP_WIDTH * scale)


@row_values.register
def _(function: Covered, y: Float, f: Float) -> Float:
    return (y <= f).astype(np.float64)


@row_derivatives.register
def _(function: Covered, y: Float, f: Float, scale: float) -> Derivatives:
    return _sigmoid(f - y, STEP_WIDTH * scale)


def _sigmoid(distance: Float, width: float) -> Derivatives:
    u = distance / width
    p = expit(u)
    # At a distance u from the step a parabola of curvature 2 / u^2 rises by one up to the step.
    curvature = np.minimum(STEEPEST_CHANGE, 2.0 / np.maximum(u**2, 1.0))
    return Derivatives(p * (1.0 - p) / width, curvature / width**2)


def unit_of(function: RowFunction, scale: float) -> float:
    """Find the size of a row function where the prediction is one deviation below the target."""
    if function.is_step:
        return 1.0
    if not isinstance(function, RowLoss) or function.loss == "poisson":
        return scale
    return float(loss_values(function.loss, function.parameter, np.array([scale]), np.zeros(1))[0])


def curvature_range(function: RowFunction, scale: float) -> tuple[float, float]:
    """Find the smallest and the largest second derivative of a row function or of its proxy.

    The largest is infinite where there is no bound: at a kink, or near a prediction of zero.
    """
    if function.is_linear:
        return 0.0, 0.0
    if function.is_step:
        largest = STEEPEST_CHANGE / (STEP_WIDTH * scale) ** 2
        return -largest, largest
    assert isinstance(function, RowLoss)
    known = {"squared": (2.0, 2.0), "huber": (0.0, 1.0)}
    return known.get(function.loss, (0.0, np.inf))


def has_steps(A: Any, functions: Sequence[RowFunction]) -> Bool:
    """Whether each row of constraints holds means of steps, (m,).

    Parameters
    ----------
    A : csr_array of shape (m, n_cells * n_functions)
        Coefficients of the means of cells.
    functions : sequence of RowFunction
        The functions, in the order of their columns.
    """
    is_step = np.array([function.is_step for function in functions])
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    found = is_step[A.indices % len(functions)] & (A.data != 0.0)
    return np.asarray(np.bincount(rows, found, A.shape[0]) > 0)


def has_concave_means(A: Any, functions: Sequence[RowFunction]) -> bool:
    """Whether a convex function of bounded curvature has a negative coefficient.

    The arguments are those of :func:`has_steps`.
    """
    highest = np.array([curvature_range(function, scale=1.0)[1] for function in functions])
    is_convex = np.array([function.is_convex for function in functions])
    is_curved = is_convex & (highest > 0.0) & np.isfinite(highest)
    return bool((A.data[is_curved[A.indices % len(functions)]] < 0.0).any())
