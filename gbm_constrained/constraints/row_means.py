"""Means over rows of functions of target and prediction: the language of regression constraints.

A constraint of a regression bounds the weighted mean of a function h(y, f) of a row's target y and
prediction f, both in the unit of the target. Means are added, compared between groups and bounded
as rates of classifiers are.

>>> from gbm_constrained.constraints.rates import each, gap
>>> each(mean_loss("squared"), by="race") <= 0.02
each(mean_loss('squared'), by='race') <= 0.02
>>> gap(mean_prediction(), by="sex") <= 0.1
gap(mean_prediction(), by='sex') <= 0.1
>>> coverage() >= 0.9
coverage() >= 0.9
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from gbm_constrained._messages import is_finite, is_number
from gbm_constrained._typing import Bool
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.events import Event
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.rate_parts import Taken, document_rate, make_rate
from gbm_constrained.constraints.selectors import ClassSelector, Levels

__all__ = ["coverage", "mean_loss", "mean_prediction", "mean_residual", "share_above"]

LossName: TypeAlias = Literal["squared", "absolute", "huber", "pinball", "poisson"]
LOSSES: tuple[LossName, ...] = get_args(LossName)
Limits: TypeAlias = tuple[float, float]


class RowFunction(Event):
    """A function of the target and the prediction of a row, whose mean a constraint bounds.

    Attributes
    ----------
    is_convex, is_linear : Whether the function is convex, or linear, in the prediction.
    is_step : Whether the function is 1 on one side of a threshold of the prediction, and 0 else.
    limits : Smallest and largest value of a row, as the user states them; None if not stated.
    """

    is_row_function: ClassVar[bool] = True
    is_convex: ClassVar[bool] = False
    is_linear: ClassVar[bool] = False
    is_step: ClassVar[bool] = False
    limits: Limits | None = None

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of a row."""
        return -math.inf, math.inf

    @property
    def stated_range(self) -> tuple[float, float]:
        """Smallest and largest value of a row: those that the user states, if any."""
        return self.range if self.limits is None else self.limits

    @property
    def key(self) -> str:
        """Text that tells the function from all others."""
        return repr(self)

    def cost(self, levels: Levels) -> Bool:
        """Find the column of the function among those of the problem, the same in each cell."""
        n_cells = levels.of_cells["label"].size
        return np.broadcast_to(levels.classes == self.key, (n_cells, levels.classes.size))


@dataclass(frozen=True)
class RowLoss(RowFunction):
    """Loss of a prediction.

    Parameters
    ----------
    loss : Name of the loss.
    parameter : The threshold of Huber's loss, or the level of a pinball loss; None for others.
    """

    needs_labels: ClassVar[bool] = True
    is_convex: ClassVar[bool] = True

    loss: LossName = field()
    parameter: float | None = None
    limits: Limits | None = None

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of a row."""
        return 0.0, math.inf


@dataclass(frozen=True)
class Prediction(RowFunction):
    """The prediction itself."""

    is_convex: ClassVar[bool] = True
    is_linear: ClassVar[bool] = True

    limits: Limits | None = None


@dataclass(frozen=True)
class Residual(RowFunction):
    """Target minus prediction."""

    needs_labels: ClassVar[bool] = True
    is_convex: ClassVar[bool] = True
    is_linear: ClassVar[bool] = True

    limits: Limits | None = None


@dataclass(frozen=True)
class Above(RowFunction):
    """Whether the prediction is above a threshold."""

    is_step: ClassVar[bool] = True

    threshold: float = field()

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of a row."""
        return 0.0, 1.0


@dataclass(frozen=True)
class Covered(RowFunction):
    """Whether the target is at most the prediction, which is that of an upper quantile."""

    needs_labels: ClassVar[bool] = True
    is_step: ClassVar[bool] = True

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of a row."""
        return 0.0, 1.0


@document_rate
def mean_loss(
    loss: LossName = "squared",
    *,
    delta: float | None = None,
    alpha: float | None = None,
    range: Limits | None = None,
    on: Any = None,
    weight: Any = None,
    cap: float | None = None,
) -> Rate:
    """Make the mean loss of predictions, ``mean(loss(y, prediction))``.

    Parameters
    ----------
    loss : {"squared", "absolute", "huber", "pinball", "poisson"}, default="squared"
        ``(y - f)^2``; ``|y - f|``; Huber's loss, ``(y - f)^2 / 2`` up to a distance of `delta`
        and ``delta (|y - f| - delta / 2)`` beyond; the pinball loss of the quantile `alpha`,
        ``max(alpha (y - f), (alpha - 1) (y - f))``; the Poisson deviance,
        ``2 (y log(y / f) - y + f)``.
    delta : float, default=None
        Threshold of Huber's loss, in the unit of the target; 1 by default.
    alpha : float, default=None
        Level of the pinball loss, between 0 and 1; 0.5 by default.
    """
    if loss not in LOSSES:
        raise ValueError(f"mean_loss takes one of the losses {list(LOSSES)}, got {loss!r}.")
    parameter = _read_parameter(loss, delta, alpha)
    limits = read_limits(range)
    if limits is not None and limits[0] < 0.0:
        raise ValueError(
            f"range={range!r} must hold losses, which are not negative: use (0, high)."
        )
    given = [str(loss)]
    if parameter is not None:
        given.append(f"{'delta' if loss == 'huber' else 'alpha'}={parameter:g}")
    name = f"mean_loss({', '.join([*given, *_name_limits(limits)])})"
    return make_rate(name, RowLoss(loss, parameter, limits), Taken(on, weight, cap))


def read_limits(given: Any) -> Limits | None:
    """Read the smallest and largest value of a row."""
    if given is None:
        return None
    is_pair = isinstance(given, (tuple, list)) and len(given) == 2
    if not (is_pair and all(is_number(end) and is_finite(end) for end in given)):
        raise ValueError(
            f"range must hold the smallest and the largest value of a row, two finite numbers "
            f"such as (0, 25), got {given!r}."
        )
    low, high = map(float, given)
    if low >= high:
        raise ValueError(f"range must rise, got {given!r}: give the smaller number first.")
    return low, high


def _name_limits(limits: Limits | None) -> list[str]:
    """Write what a name says of the stated range of a row; nothing without any."""
    return [] if limits is None else [f"range=[{limits[0]:g}, {limits[1]:g}]"]


def _name_mean(name: str, limits: Limits | None) -> str:
    """Write the name of a mean that has no other argument than its range."""
    return name if limits is None else f"{name}({_name_limits(limits)[0]})"


def _read_parameter(loss: str, delta: float | None, alpha: float | None) -> float | None:
    """Read the parameter of a loss, and refuse that of another one."""
    for name, value, of_loss in (("delta", delta, "huber"), ("alpha", alpha, "pinball")):
        if value is not None and loss != of_loss:
            raise ValueError(
                f"mean_loss({loss!r}, {name}={value!r}): {name} is a parameter of {of_loss!r}: "
                f"leave it out."
            )
    if loss == "huber":
        found = 1.0 if delta is None else delta
        if not (is_number(found) and is_finite(found) and found > 0):
            raise ValueError(f"delta must be a positive number, got {delta!r}.")
        return float(found)
    if loss == "pinball":
        found = 0.5 if alpha is None else alpha
        if not (is_number(found) and 0.0 < found < 1.0):
            raise ValueError(f"alpha must lie strictly between 0 and 1, got {alpha!r}.")
        return float(found)
    return None


@document_rate
def mean_prediction(
    *,
    range: Limits | None = None,
    on: Any = None,
    weight: Any = None,
    cap: float | None = None,
) -> Rate:
    """Make the mean prediction, ``mean(prediction)``, in the unit of the target.

    Rows need no target: the mean can be taken over a data set without any.
    """
    limits = read_limits(range)
    name = _name_mean("mean_prediction", limits)
    return make_rate(name, Prediction(limits), Taken(on, weight, cap))


@document_rate
def mean_residual(
    *,
    range: Limits | None = None,
    on: Any = None,
    weight: Any = None,
    cap: float | None = None,
) -> Rate:
    """Make the mean residual, ``mean(y - prediction)``: how much predictions are too low."""
    limits = read_limits(range)
    name = _name_mean("mean_residual", limits)
    return make_rate(name, Residual(limits), Taken(on, weight, cap))


@document_rate
def share_above(
    threshold: float, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    """Make the share of rows whose prediction is above a threshold, ``P(prediction > c)``.

    Parameters
    ----------
    threshold : float
        The threshold c, in the unit of the target.
    """
    if not (is_number(threshold) and is_finite(threshold)):
        raise ValueError(f"share_above takes a finite threshold, got {threshold!r}.")
    found = float(threshold)
    return make_rate(f"share_above({found:g})", Above(found), Taken(on, weight, cap))


@document_rate
def coverage(*, on: Any = None, weight: Any = None, cap: float | None = None) -> Rate:
    """Make the coverage, ``P(y <= prediction)``, of a model that predicts an upper quantile."""
    return make_rate("coverage", Covered(), Taken(on, weight, cap))


def row_functions_of(constraints: Iterable[Constraint]) -> tuple[RowFunction, ...]:
    """List the row functions that constraints take means of, each once."""
    events = (term.event for constraint in constraints for term in constraint.terms)
    found = {event.key: event for event in events if isinstance(event, RowFunction)}
    return tuple(found[key] for key in sorted(found))


def refuse_row_functions(constraints: Iterable[Constraint]) -> None:
    """Refuse constraints of regression where labels are classes."""
    for constraint in constraints:
        if row_functions_of([constraint]):
            raise ValueError(
                f"{constraint} bounds a mean over predicted numbers, and a classifier predicts "
                f"classes: use ConstrainedXGBRegressor, ConstrainedLGBMRegressor or "
                f"ConstrainedRidge, or bound a rate such as selection_rate()."
            )


def refuse_rates(constraints: Iterable[Constraint]) -> None:
    """Refuse rates of classifiers where targets are numbers."""
    for constraint in constraints:
        if not all(isinstance(term.event, RowFunction) for term in constraint.terms):
            raise ValueError(
                f"{constraint} bounds a rate of predicted classes, and a regressor predicts "
                f"numbers: bound a mean such as mean_loss('squared'), mean_prediction(), "
                f"mean_residual(), share_above(c) or coverage()."
            )
        selectors = [part for term in constraint.terms for part in term.selectors]
        if any(isinstance(part, ClassSelector) for part in selectors):
            raise ValueError(
                f"{constraint} is taken over rows of a class, and targets of a regressor are "
                f"numbers: select rows by a column, as in on={{'name': value}}."
            )
