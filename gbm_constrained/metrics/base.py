"""Metrics of the confusion matrix, as functions of rates.

A metric is a function :math:`f(u)` of *functionals* :math:`u_k`, which are rates of the
constraint language: the recall of each class, an entry of the confusion matrix, or the same in a
group. The metric names its rates once the classes of ``y`` are known, and the compiler of the
constraints makes the functionals.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import (
    Constraint,
    CurvedRow,
    CurveFunction,
    Expression,
    LinearRow,
    Quotient,
    Rate,
    Sense,
    WithoutArithmetic,
)
from gbm_constrained.constraints.checking import resolve_positive_class
from gbm_constrained.constraints.selectors import Column, Columns, to_python_scalar
from gbm_constrained.problem.functionals import Group

STEEPEST = 30.0
"""Largest derivative of a metric in one of its rates: means of recalls grow without bound at zero,
where no class has been found yet."""


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
    def needs_classes(self) -> bool:  # type: ignore[override]
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
    def columns(self) -> Columns:  # type: ignore[override]
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

    def rows(self, of: Constraint, at: Sequence[int], names: Sequence[str]) -> list[LinearRow]:
        """Write a bound as linear rows; none if it is curved."""
        form, name, sign = self.metric.form, str(of), of.sign
        if form == "curved":
            return []
        if form == "worst":
            return [
                LinearRow(f"{name} >= {of.bound:g}", {k: -1.0}, -of.bound)
                for name, k in zip(names, at, strict=True)
            ]
        if form == "ratio":
            return [LinearRow(name, {at[0]: sign, at[1]: -sign * of.bound}, 0.0)]
        nothing = np.zeros(len(at))
        slope, constant = self.bound.derivative(nothing), self.bound.function(nothing)
        coefficients = dict(zip(at, (sign * slope).tolist(), strict=True))
        return [LinearRow(name, coefficients, sign * (of.bound - constant))]

    def branches(self, of: Constraint, at: Sequence[int]) -> list[CurvedRow]:
        """Write a bound as a row of the metric."""
        function = CurveFunction(((of.sign, self),), is_difference=False)
        return [CurvedRow(tuple(at), function, of.sign * of.bound)]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Compute the metric, NaN where one of its rates is undefined."""
        return float(self.values(functionals[:, None])[0])

    def values(self, functionals: Float) -> Float:
        """Compute the same of several choices of functionals, shape (n_functionals, n)."""
        found = np.full(functionals.shape[1], np.nan)
        is_known = ~np.isnan(functionals).any(axis=0)
        low, high = self.bound.ranges[:, :, None]
        # Running sums of rates are beyond their ends by rounding.
        found[is_known] = self.bound.values(np.clip(functionals[:, is_known], low, high))
        return found

    def gradient(self, functionals: Float) -> Float:
        """Compute the gradients, no entry of which is larger than :data:`STEEPEST`."""
        if functionals.ndim > 1:
            return np.column_stack([self.gradient(one) for one in functionals.T])
        found = self.bound.derivative(functionals)
        largest = float(np.abs(found).max(initial=0.0))
        return np.asarray(found * (STEEPEST / max(largest, STEEPEST)))

    @property
    def reason_and_remedy(self) -> str:
        """Why the value has no arithmetic, and what is written instead."""
        return str(self.metric.reason_and_remedy)

    def with_positive_class(self, label: Hashable) -> MetricValue:
        """Name the positive class of rates that name none."""
        return replace(self, positive=label)

    def to_python(self) -> str:
        """Write the call that makes the metric."""
        return str(self.metric.to_python())

    def __str__(self) -> str:
        return str(self.metric)


@lru_cache(maxsize=256)
def _bind(metric: Any, classes: tuple[Hashable, ...], positive: Hashable | None) -> Any:
    """Name the classes in the rates of a metric."""
    labels = np.array(classes)
    bound = metric.bind(labels, np.full(labels.size, 1.0 / labels.size))
    return bound if positive is None else bound.with_positive_class(labels, positive)


# Rows of a bound: one of the rate; one multiplied by the denominator; one of each rate; tangents.
Form: TypeAlias = Literal["linear", "ratio", "worst", "curved"]
Kind: TypeAlias = Literal["linear", "smooth", "convex", "ratio", "other"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, eq=False)
class BoundMetric:
    """A metric whose classes are known.

    Parameters
    ----------
    metric : Metric
        The metric.
    expressions : tuple of Expression
        Rates, or rates of each group, whose functionals the metric is a function of.
    function : callable
        Value of the metric, given the functionals.
    derivative : callable
        Gradient of the metric in the functionals.
    kind : {"linear", "smooth", "convex", "ratio", "other"}
        Kind of the loss: the metric itself if it is minimised, and one minus the metric if it is
        maximised. A ratio is that of its first to its second functional.
    takes_columns : bool, default=False
        Whether `function` also takes an array whose columns are several choices of functionals.
    """

    metric: Metric
    expressions: tuple[Expression, ...]
    function: Callable[[Float], Any]
    derivative: Callable[[Float], Float]
    kind: Kind
    takes_columns: bool = False

    def values(self, columns: Float) -> Float:
        """Compute the metric of several choices of functionals, shape (n_functionals, n)."""
        if self.takes_columns:
            return np.asarray(self.function(columns), dtype=np.float64)
        return np.array([self.function(u) for u in columns.T], dtype=np.float64)

    @cached_property
    def ranges(self) -> Float:
        """Smallest and largest value of each functional, shape (2, n_functionals)."""
        ranges = [rate.range for e in self.expressions for rate in e.rates]
        return np.array(ranges, dtype=np.float64).T

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Bounds that bind nothing, by which the compiler makes the functionals."""
        lows = [e.range[0] for e in self.expressions]
        return tuple(
            Constraint(e, ">=", low if np.isfinite(low) else 0.0)
            for e, low in zip(self.expressions, lows, strict=True)
        )

    def with_positive_class(
        self, classes: NDArray[np.generic], positive: Any = None
    ) -> BoundMetric:
        """Name the positive class of rates that name none."""
        named = resolve_positive_class(self.constraints, classes, positive)
        return replace(self, expressions=tuple(c.expression for c in named))


@dataclass(frozen=True, eq=False)
class MetricLoss:
    """The loss that a reduction minimises: one minus the metric, or the metric, in a unit.

    Parameters
    ----------
    bound : BoundMetric
        The metric.
    at : slice
        Positions of its functionals among all of a programme.
    n_functionals : int
        Number of functionals of the programme.
    unit : float, default=1
        Unit in which the loss and the functionals of the metric are.
    """

    bound: BoundMetric
    at: slice
    n_functionals: int
    unit: float = 1.0

    @property
    def kind(self) -> Kind:
        """Kind of the loss."""
        return self.bound.kind

    @property
    def sign(self) -> float:
        """Factor of the metric in the loss."""
        return -1.0 if self.bound.metric.greater_is_better else 1.0

    def value(self, u: Float) -> float:
        """Compute the loss."""
        value = float(self.bound.function(self.unit * u[self.at])) / self.unit
        return 1.0 - value if self.sign < 0.0 else value

    def to_metric(self, loss: float) -> float:
        """Compute the metric from its loss."""
        return self.unit * (1.0 - loss if self.sign < 0.0 else loss)

    def gradient(self, u: Float) -> Float:
        """Compute the gradient of the loss in all functionals."""
        found = np.zeros(self.n_functionals)
        found[self.at] = self.sign * self.bound.derivative(self.unit * u[self.at])
        return found

    def ratio(self) -> tuple[Float, float, Float, float]:
        """Write the loss as ``(a . u + a0) / (b . u + b0)``; returns (a, a0, b, b0)."""
        a, b = np.zeros(self.n_functionals), np.zeros(self.n_functionals)
        a[self.at] = self.sign * np.array([1.0, 0.0])
        b[self.at] = [0.0, 1.0]
        return (a + b if self.sign < 0.0 else a), 0.0, b, 0.0


class Metric(WithoutArithmetic):
    """A function of the confusion matrix that a classifier maximises, minimises or bounds.

    ``metric <= b`` and ``metric >= b`` are constraints.
    """

    greater_is_better: bool = True
    form: Form = "curved"  # Form of the rows of a bound.
    no_rule: str = ""  # Why the metric cannot be bounded, with the remedy.
    range: tuple[float, float] = (0.0, 1.0)  # Smallest and largest value over all predictions.
    reason_and_remedy = (
        "give a function of the confusion matrix, metric(function, kind=...), or bound one of "
        "them as a constraint."
    )

    @abstractmethod
    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the rates of the metric.

        Parameters
        ----------
        classes : ndarray of shape (n_classes,)
            Sorted labels.
        shares : ndarray of shape (n_classes,)
            Share of the rows with each label.

        Raises
        ------
        ValueError
            If the metric has no value for these classes.
        """

    def with_groups(self, bound: BoundMetric, groups: Sequence[tuple[Group, ...]]) -> BoundMetric:
        """Return the bound metric, once the groups of its expressions are known."""
        return bound

    def __le__(self, bound: Any) -> Constraint:
        return Constraint(MetricValue(self), "<=", bound)

    def __ge__(self, bound: Any) -> Constraint:
        return Constraint(MetricValue(self), ">=", bound)


def bind_expression(metric: Metric, expression: Rate | Quotient) -> BoundMetric:
    """Bind a metric that is a rate, or a quotient of two."""
    if isinstance(expression, Rate):
        return BoundMetric(
            metric, (expression,), lambda u: float(u[0]), lambda u: np.ones(1), "linear"
        )

    def function(u: Float) -> float:
        return float(u[0] / u[1]) if u[1] > 0.0 else 0.0

    def derivative(u: Float) -> Float:
        return np.asarray(np.array([1.0, -u[0] / u[1]]) / u[1])

    return BoundMetric(metric, (expression,), function, derivative, "ratio")
