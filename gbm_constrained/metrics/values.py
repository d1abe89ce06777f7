"""The value of a metric as an expression that constraints bound."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Expression, Sense
from gbm_constrained.constraints.curves import CurvedRow, LinearRow
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.positive_class import with_label
from gbm_constrained.constraints.selectors import Column, Columns, to_python_scalar

STEEPEST = 30.0
"""Largest derivative of a metric in one of its rates: means of recalls grow without bound at zero,
where no class has been found yet."""
BOUND_METRICS = 256  # Metrics that are kept with their classes.


@dataclass(frozen=True, repr=False)
class MetricValue(Expression):
    """The value of a metric of the confusion matrix.

    Parameters
    ----------
    metric : Metric
        The metric.
    classes : tuple of labels, default=None
        The sorted classes; None until they are known.
    positive : hashable, default=None
        Label of the positive class, where rates print with one.
    """

    metric: Any  # Metrics make their values, and so are not known here.
    classes: tuple[Hashable, ...] | None = None
    positive: Hashable | None = None

    def __post_init__(self) -> None:
        if reason := self.metric.no_rule:
            raise TypeError(f"{self.metric} cannot be bounded: {reason}.")

    @property
    def needs_classes(self) -> bool:
        """Whether the rates are unknown until the classes are known."""
        return self.classes is None

    def with_classes(self, classes: Sequence[Any] | NDArray[Any]) -> MetricValue:
        """Name the classes, now that they are known."""
        return replace(self, classes=tuple(map(to_python_scalar, classes)))

    @property
    def bound(self) -> Any:
        """The metric with its rates."""
        assert self.classes is not None
        return _bind(self.metric, self.classes, self.positive)

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rates that the metric is a function of; none until the classes are known."""
        if self.classes is None:
            return ()
        return tuple(rate for e in self.bound.expressions for rate in e.rates)

    @property
    def columns(self) -> Columns:
        """Names of the columns that select the rows of the metric."""
        on = getattr(self.metric, "on", ())
        return tuple(part.name for part in on if isinstance(part, Column))

    @property
    def senses(self) -> tuple[Sense, ...]:  # type: ignore[override]
        """Senses of the bounds; the worst of several rates is bounded from below alone."""
        return (">=",) if self.metric.form == "worst" else ("<=", ">=")

    @property
    def is_curved(self) -> bool:  # type: ignore[override]
        """Whether a bound has curved rows."""
        return bool(self.metric.form == "curved")

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of the metric over all predictions."""
        return cast("tuple[float, float]", self.metric.range)

    def rows(
        self, sense: Sense, bound: float, at: Sequence[int], names: Sequence[str]
    ) -> list[LinearRow]:
        """Write a bound as linear rows; none if it is curved."""
        form, sign = self.metric.form, 1.0 if sense == "<=" else -1.0
        if form == "curved":
            return []
        if form == "worst":
            return [
                LinearRow(f"{name} >= {bound:g}", {k: -1.0}, -bound)
                for name, k in zip(names, at, strict=True)
            ]
        name = f"{self} {sense} {bound:g}"
        if form == "ratio":
            return [LinearRow(name, {at[0]: sign, at[1]: -sign * bound}, 0.0)]
        nothing = np.zeros(len(at))
        slope, constant = self.bound.derivative(nothing), self.bound.function(nothing)
        coefficients = dict(zip(at, (sign * slope).tolist(), strict=True))
        return [LinearRow(name, coefficients, sign * (bound - constant))]

    def branches(self, sense: Sense, bound: float, at: Sequence[int]) -> list[CurvedRow]:
        """Write a bound as a row of the metric."""
        sign = 1.0 if sense == "<=" else -1.0
        return [CurvedRow(tuple(at), MetricFunction(self, sign), sign * bound)]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Compute the metric, NaN where one of its rates is undefined."""
        return float(self.values(functionals[:, None])[0])

    def values(self, columns: Float) -> Float:
        """Compute the same of several choices of functionals, shape (n_functionals, n)."""
        found = np.full(columns.shape[1], np.nan)
        is_known = ~np.isnan(columns).any(axis=0)
        low, high = self._ranges[:, :, None]
        # Running sums of rates are beyond their ends by rounding.
        found[is_known] = self.bound.values(np.clip(columns[:, is_known], low, high))
        return found

    @property
    def _ranges(self) -> Float:
        """Smallest and largest value of each rate, shape (2, n_rates)."""
        return _find_ranges(self)

    @property
    def reason_and_remedy(self) -> str:
        """Why the value has no arithmetic, and what is written instead."""
        return str(self.metric.reason_and_remedy)

    def __str__(self) -> str:
        return str(self.metric)


@dataclass(frozen=True)
class MetricFunction:
    """A metric, or its negative, as a function of functionals.

    Parameters
    ----------
    of : MetricValue
        The metric, whose classes are known.
    sign : float
        Factor of the metric: one, or minus one where larger values are asked for.
    """

    of: MetricValue
    sign: float

    @property
    def signs(self) -> tuple[int, ...]:
        """Sign of the derivative in each functional, which is not known."""
        return (0,) * len(self.of.rates)

    @property
    def denominators(self) -> tuple[int, ...]:
        """Positions of functionals by which others are divided: metrics are defined at zero."""
        return ()

    def values(self, functionals: Float) -> Float:
        """Compute the values of several choices of functionals."""
        return self.sign * self.of.values(functionals)

    def gradient(self, functionals: Float) -> Float:
        """Compute the gradient, no entry of which is larger than :data:`STEEPEST`."""
        found = self.sign * self.of.bound.derivative(functionals)
        largest = float(np.abs(found).max(initial=0.0))
        return np.asarray(found * (STEEPEST / max(largest, STEEPEST)))

    def opposite(self, at: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return None, since no groups are compared."""
        return None


@lru_cache(maxsize=BOUND_METRICS)
def _bind(metric: Any, classes: tuple[Hashable, ...], positive: Hashable | None) -> Any:
    """Name the classes in the rates of a metric."""
    labels = np.array(classes)
    bound = metric.bind(labels, np.full(labels.size, 1.0 / labels.size))
    return bound if positive is None else bound.with_positive_class(labels, positive)


@lru_cache(maxsize=BOUND_METRICS)
def _find_ranges(of: MetricValue) -> Float:
    """Find the smallest and the largest value of each rate of a metric."""
    return np.array([rate.range for rate in of.rates], dtype=np.float64).T


@with_label.register
def _(value: MetricValue, label: Hashable) -> Expression:
    return replace(value, positive=label)
