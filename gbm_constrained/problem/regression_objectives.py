r"""Objectives of regressors: losses of scores, as the libraries and exact learners have them.

The prediction f of a score F is :math:`F`, or :math:`e^F` for counts and positive targets. Each
objective has the value, gradient and Hessian that the library itself uses:

============== ============ ===================== =====================================
name           prediction   gradient              Hessian
============== ============ ===================== =====================================
squared        F            F - y                 1
huber          F            F - y, clipped        1 (LightGBM's)
pseudo_huber   F            z / sqrt(1 + (z/d)^2) (1 + (z/d)^2)^(-3/2), z = F - y
fair           F            c z / (|z| + c)       (c / (|z| + c))^2, z = F - y
absolute       F            sign(F - y)           that of :mod:`.row_functions`
quantile       F            1(F > y) - alpha      that of :mod:`.row_functions`
poisson        exp(F)       f - y                 f exp(0.7), the libraries' own factor
tweedie        exp(F)       f^(2-p) - y f^(1-p)   (2-p) f^(2-p) - (1-p) y f^(1-p)
gamma          exp(F)       1 - y / f             y / f
============== ============ ===================== =====================================

The libraries move the leaves of trees under absolute and quantile losses to medians and quantiles
of residuals after they have grown them. Gradients alone cannot do that, so that the curvature of
the least parabola above the loss takes the place of their constant one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from scipy.special import xlogy

from gbm_constrained._typing import Float
from gbm_constrained.problem.row_functions import (
    SMALLEST,
    loss_derivatives,
    loss_values,
)

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
        found = loss_derivatives(*self.row_loss, y, f, scale)
        return found.slope, found.curvature

    @property
    def row_loss(self) -> tuple[Literal["absolute", "huber", "pinball"], float | None]:
        """Name and parameter of the row loss that the objective is."""
        if self.name == "absolute":
            return "absolute", None
        return ("huber" if self.name == "huber" else "pinball"), self.parameter
