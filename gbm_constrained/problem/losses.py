r"""Functions of the prediction of one row, with slopes and curvatures.

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

The prediction f of a score F is :math:`F`, or :math:`e^F` for counts and positive targets. Each
objective has the value, gradient and Hessian that the library itself uses:

============== ============ ===================== =====================================
name           prediction   gradient              Hessian
============== ============ ===================== =====================================
squared        F            F - y                 1
huber          F            F - y, clipped        1 (LightGBM's)
pseudo_huber   F            z / sqrt(1 + (z/d)^2) (1 + (z/d)^2)^(-3/2), z = F - y
fair           F            c z / (|z| + c)       (c / (|z| + c))^2, z = F - y
absolute       F            sign(F - y)           that of the least parabola
quantile       F            1(F > y) - alpha      that of the least parabola
poisson        exp(F)       f - y                 f exp(0.7), the libraries' own factor
tweedie        exp(F)       f^(2-p) - y f^(1-p)   (2-p) f^(2-p) - (1-p) y f^(1-p)
gamma          exp(F)       1 - y / f             y / f
============== ============ ===================== =====================================

The libraries move the leaves of trees under absolute and quantile losses to medians and quantiles
of residuals after they have grown them. Gradients alone cannot do that, so that the curvature of
the least parabola above the loss takes the place of their constant one.

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
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from scipy.special import expit, xlogy

from gbm_constrained._typing import Float
from gbm_constrained.constraints.rates import (
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


def row_values(function: RowFunction, y: Float, f: Float) -> Float:
    """Compute a row function of targets y and predictions f in one unit, exactly, (n,)."""
    if isinstance(function, Prediction):
        return f
    if isinstance(function, Residual):
        return y - f
    if isinstance(function, Above):
        return (f > function.threshold).astype(np.float64)
    if isinstance(function, Covered):
        return (y <= f).astype(np.float64)
    assert isinstance(function, RowLoss)
    return loss_values(function.loss, function.parameter, y, f)


def row_derivatives(
    function: RowFunction, y: Float, f: Float, scale: float
) -> tuple[Float, Float]:
    """Compute slope and curvature of a row function or of its proxy, (n,) each.

    Parameters
    ----------
    function : RowFunction
        The function.
    y, f : ndarray of shape (n,)
        Targets and predictions.
    scale : float
        Standard deviation of the targets.

    Returns
    -------
    slope, curvature : ndarray of shape (n,)
        First derivative in the prediction, and the curvature of a parabola that touches the
        function and is nowhere below it.
    """
    if function.is_linear:
        sign = -1.0 if isinstance(function, Residual) else 1.0
        return np.full_like(f, sign), np.zeros_like(f)
    if function.is_step:
        width = STEP_WIDTH * scale
        u = _distance_from_step(function, y, f) / width
        p = expit(u)
        # At a distance u from the step a parabola of curvature 2 / u^2 rises by one up to it.
        curvature = np.minimum(STEEPEST_CHANGE, 2.0 / np.maximum(u**2, 1.0))
        return p * (1.0 - p) / width, curvature / width**2
    assert isinstance(function, RowLoss)
    return loss_derivatives(function.loss, function.parameter, y, f, scale)


def _distance_from_step(function: RowFunction, y: Float, f: Float) -> Float:
    """Compute how far each prediction is beyond the step of a share or a coverage."""
    return f - function.threshold if isinstance(function, Above) else f - y


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
) -> tuple[Float, Float]:
    """Compute slope and curvature of a loss; the arguments are those of :class:`RowLoss`."""
    residual = y - f
    if loss == "squared":
        return -2.0 * residual, np.full_like(residual, 2.0)
    if loss == "poisson":
        f = np.maximum(f, SMALLEST)
        return 2.0 * (1.0 - y / f), 2.0 * y / f**2
    distance = np.maximum(np.abs(residual), KINK_WIDTH * scale)
    if loss == "absolute":
        return -np.sign(residual), 1.0 / distance
    assert parameter is not None
    if loss == "pinball":
        slope = np.where(residual > 0, -parameter, np.where(residual < 0, 1.0 - parameter, 0.0))
        return slope, 0.5 / distance
    slope = -np.clip(residual, -parameter, parameter)
    return slope, np.minimum(1.0, parameter / distance)


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


ObjectiveName: TypeAlias = Literal[
    "squared", "huber", "pseudo_huber", "fair", "absolute", "quantile", "poisson", "tweedie",
    "gamma",
]  # fmt: skip
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)
MAX_DELTA_STEP = 0.7  # Default of both libraries, whose Poisson Hessian is taken so much further.
# Ends of the parameter of an objective, which are excluded.
RANGES: dict[ObjectiveName, tuple[float, float]] = {
    "huber": (0.0, np.inf),
    "pseudo_huber": (0.0, np.inf),
    "fair": (0.0, np.inf),
    "quantile": (0.0, 1.0),
    "tweedie": (1.0, 2.0),
}


def check_parameter(name: ObjectiveName, key: str, value: float) -> None:
    """Refuse a parameter of an objective, which a library calls `key`, that has no meaning."""
    low, high = RANGES[name]
    if not low < value < high:
        raise ValueError(
            f"{key} must lie strictly between {low:g} and {high:g}, got {value:g}: give another "
            f"value, or another objective."
        )


@dataclass(frozen=True)
class RegressionObjective:
    """An objective of regression.

    Parameters
    ----------
    name : str
        One of :data:`OBJECTIVES`.
    parameter : float, default=nan
        Threshold of Huber's losses, scale of the fair loss, level of the quantile, or power of the
        Tweedie variance.
    max_delta_step : float, default=0.7
        How much further than the score the Hessian of the Poisson objective is taken.
    """

    name: ObjectiveName
    parameter: float = np.nan
    max_delta_step: float = MAX_DELTA_STEP

    @property
    def has_log_link(self) -> bool:
        """Whether the prediction is the exponential of the score."""
        return self.name in ("poisson", "tweedie", "gamma")

    def predict(self, score: Float) -> Float:
        """Compute predictions, in the unit of the target, from scores."""
        return np.exp(score) if self.has_log_link else score

    def score_of(self, prediction: Float) -> Float:
        """Compute the scores of predictions."""
        return np.log(np.maximum(prediction, SMALLEST)) if self.has_log_link else prediction

    def refuse_negative(self, y: Float, name: str = "y") -> None:
        """Refuse negative targets where predictions are positive, and zeros under gamma."""
        is_gamma = self.name == "gamma"
        refused = np.flatnonzero(y <= 0 if is_gamma else y < 0)
        if self.has_log_link and refused.size:
            raise ValueError(
                f"{name} holds {y[refused[0]]:g} in row {refused[0]}, and the {self.name} "
                f"objective is for targets that are {'positive' if is_gamma else 'not negative'}: "
                f"drop those rows, or use the squared error."
            )

    def check_targets(self, y: Float) -> None:
        """Refuse negative targets where predictions are positive, or targets that are all zero."""
        self.refuse_negative(y)
        if self.has_log_link and not y.any():
            raise ValueError(
                f"y is zero in every row, which the {self.name} objective cannot predict: give "
                f"rows with positive targets."
            )

    def values(self, y: Float, score: Float) -> Float:
        """Compute the loss of each row, (n,)."""
        f = self.predict(score)
        if self.name == "squared":
            return np.square(y - f) / 2.0
        if self.name == "pseudo_huber":
            d = self.parameter
            return np.asarray(d**2 * (np.sqrt(1.0 + ((f - y) / d) ** 2) - 1.0))
        if self.name == "tweedie":
            p = self.parameter
            return np.asarray(f ** (2.0 - p) / (2.0 - p) - y * f ** (1.0 - p) / (1.0 - p))
        if self.name == "poisson":
            return np.asarray(f - xlogy(y, f))
        if self.name == "gamma":
            return np.asarray(y / f + score)
        if self.name == "fair":
            c, z = self.parameter, np.abs(f - y)
            return np.asarray(c * z - c**2 * np.log1p(z / c))
        return loss_values(*self.row_loss, y, f)

    def derivatives(self, y: Float, score: Float, scale: float) -> tuple[Float, Float]:
        """Compute gradient and Hessian in the score, (n,) each.

        Parameters
        ----------
        y, score : ndarray of shape (n,)
            Targets and scores.
        scale : float
            Standard deviation of the targets.
        """
        f = self.predict(score)
        if self.name == "squared":
            return f - y, np.ones_like(f)
        if self.name == "huber":
            return np.clip(f - y, -self.parameter, self.parameter), np.ones_like(f)
        if self.name == "pseudo_huber":
            z = f - y
            root = np.sqrt(1.0 + (z / self.parameter) ** 2)
            return z / root, root**-3
        if self.name == "tweedie":
            p = self.parameter
            more, less = f ** (2.0 - p), y * f ** (1.0 - p)
            return more - less, (2.0 - p) * more - (1.0 - p) * less
        if self.name == "poisson":
            return f - y, f * np.exp(self.max_delta_step)
        if self.name == "gamma":
            return 1.0 - y / f, y / f
        if self.name == "fair":
            part = self.parameter / (np.abs(f - y) + self.parameter)
            return part * (f - y), part**2
        return loss_derivatives(*self.row_loss, y, f, scale)

    @property
    def row_loss(self) -> tuple[Literal["absolute", "huber", "pinball"], float | None]:
        """Name and parameter of the row loss that the objective is."""
        if self.name == "absolute":
            return "absolute", None
        return ("huber" if self.name == "huber" else "pinball"), self.parameter


class Smooth(NamedTuple):
    """A function of each row at its prediction, with its first and second derivative, (n,)."""

    value: Float
    slope: Float
    curvature: Float


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
        return Smooth(objective.values(y, score), *objective.derivatives(y, score, 1.0))
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
    residual = y - f
    if loss in ("squared", "poisson", "huber"):  # Their parabolas have the slope of the loss.
        slope, curvature = loss_derivatives(loss, parameter, y, f, 1.0)
        if loss == "huber":
            assert parameter is not None
            curvature = (np.abs(residual) <= parameter).astype(np.float64)
        return Smooth(loss_values(loss, parameter, y, f), slope, curvature)
    assert loss in ("absolute", "pinball"), f"{loss} has no smooth form"
    u = np.clip(slopes + residual / width, -1.0, 1.0)
    value = u * residual + width / 2.0 * (1.0 - (u - slopes) ** 2)
    curvature = (np.abs(u) < 1.0) / width
    if parameter is None:
        return Smooth(value, -u, curvature)
    tilt = parameter - 0.5  # alpha r - r / 2 + |r| / 2
    return Smooth(value * 0.5 + tilt * residual, -u * 0.5 - tilt, curvature * 0.5)


def smooth_function(
    function: RowFunction,
    y: Float,
    f: Float,
    scale: float,
    width: float,
    slopes: Float | float = 0.0,
) -> Smooth:
    """Compute a row function, or the proxy of a step.

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
    if function.is_step:
        step_width = STEP_WIDTH * scale
        p = expit(_distance_from_step(function, y, f) / step_width)
        slope = p * (1.0 - p) / step_width
        return Smooth(p, slope, slope * (1.0 - 2.0 * p) / step_width)
    if function.is_linear:
        return Smooth(row_values(function, y, f), *row_derivatives(function, y, f, scale))
    assert isinstance(function, RowLoss)
    return smooth_loss(function.loss, function.parameter, y, f, width, slopes)
