r"""Metrics by name: F-measures, means of recalls, and functions of the confusion matrix.

With joint fractions :math:`C_{ij} = P(y = i, \hat y = j)`,

- :math:`F_\beta = (1 + \beta^2) TP / ((1 + \beta^2) TP + \beta^2 FN + FP)` of one class,
- micro F1 is :math:`2 \sum_{i \ne d} C_{ii} / (2 - \sum_i C_{di} - \sum_i C_{id})` with a default
  class d that counts as "nothing found" (Narasimhan et al., Table 1, Example 4),
- macro F1 is the mean of :math:`2 C_{ii} / (\sum_j C_{ij} + \sum_j C_{ji})` over the classes.

With the recall :math:`u_i = C_{ii} / \sum_j C_{ij}` of class i of n,

- the G-mean is :math:`(\prod_i u_i)^{1/n}`,
- the H-mean is :math:`n / \sum_i u_i^{-1}`,
- the Q-mean is :math:`1 - \sqrt{\sum_i (1 - u_i)^2 / n}`,
- the worst recall is :math:`\min_i u_i`,
- the balanced accuracy is :math:`\sum_i u_i / n`.

All are concave (Narasimhan et al., "Consistent Multiclass Algorithms for Complex Metrics and
Constraints", Table 1 and section 4.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

from gbm_constrained._messages import is_finite, is_number
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Expression, Quotient, Rate, make_factory
from gbm_constrained.constraints.comparisons import Each
from gbm_constrained.constraints.rates import (
    confusion,
    joint_rates,
    name_with_rows,
    read_columns,
    recall,
)
from gbm_constrained.constraints.selectors import (
    Columns,
    as_selectors,
    to_python_scalar,
    write_selectors,
)
from gbm_constrained.constraints.writing import write_call, write_number, write_value
from gbm_constrained.metrics.base import KINDS, BoundMetric, Form, Kind, Metric, bind_expression
from gbm_constrained.problem.functionals import Group

__all__ = [
    "balanced_accuracy",
    "f1_macro",
    "f1_micro",
    "f_beta",
    "g_mean",
    "h_mean",
    "min_recall",
    "q_mean",
]


@dataclass(frozen=True, repr=False)
class FunctionMetric(Metric):
    """A function of the joint confusion matrix, or of the matrix of each group.

    Parameters
    ----------
    function : callable
        Given the matrix of shape (n_classes, n_classes), or a dict of one for each group, its
        value.
    kind : str
        Kind of the function.
    gradient : callable or None
        Given the same, its gradient in the same shape.
    by : tuple of column names or None
        Columns that make the groups.
    on : tuple of Selector
        Rows that are counted.
    greater_is_better : bool
        Whether the function is maximised.
    """

    function: Callable[[Any], float]
    kind: str
    gradient: Callable[[Any], Any] | None = None
    by: Columns | None = None
    on: tuple[Any, ...] = ()
    greater_is_better: bool = True
    range = (-math.inf, math.inf)  # It is not known.

    @property
    def no_rule(self) -> str:  # type: ignore[override]
        """Why the function cannot be bounded, with the remedy."""
        reason = "its function takes the matrices of groups"
        return "" if self.by is None else f"{reason}: bound one of each, with on={{column: value}}"

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the entries of the confusion matrices."""
        rates = [
            confusion(i, j, normalize="all", on=self.on or None)
            for i, j in itertools.product(classes.tolist(), repeat=2)
        ]
        grouped = [rate if self.by is None else Each(rate=rate, by=self.by) for rate in rates]
        return self._bind(tuple(grouped), None)

    def with_groups(self, bound: BoundMetric, groups: Sequence[tuple[Group, ...]]) -> BoundMetric:
        """Hand the function a dict with the matrix of each group."""
        if self.by is None:
            return bound
        names = [group.name for group in groups[0]]
        keys = [name[0] if len(name) == 1 else name for name in names]
        return self._bind(bound.expressions, keys)

    def _bind(
        self, expressions: tuple[Expression, ...], keys: Sequence[Any] | None
    ) -> BoundMetric:
        n = math.isqrt(len(expressions))

        def matrices(u: Float) -> Any:
            if keys is None:
                return u.reshape(n, n)
            return dict(zip(keys, u.reshape(n, n, -1).transpose(2, 0, 1), strict=True))

        def function(u: Float) -> float:
            value = self.function(matrices(u))
            try:
                return float(value)
            except (TypeError, ValueError):
                raise TypeError(
                    f"function of {self} must return a number, got {value!r}: return one for the "
                    f"whole confusion matrix."
                ) from None

        def derivative(u: Float) -> Float:
            if self.gradient is None:
                found = approx_fprime(u, function)
            else:
                given = self.gradient(matrices(u))
                if keys is not None:
                    given = np.stack([np.asarray(given[key]) for key in keys], axis=-1)
                found = np.asarray(given, dtype=np.float64)
                if found.size != u.size:
                    raise ValueError(
                        f"gradient= of {self} returned an array of shape {found.shape}: it must "
                        f"have the shape of the confusion matrix."
                    )
            if not np.isfinite(found).all():
                raise ValueError(
                    f"the gradient of {self} is {np.ravel(found).tolist()} at the confusion "
                    f"matrix {np.round(u, 6).tolist()}: give metric(..., gradient=) one that is "
                    f"finite there."
                )
            return np.ravel(found)

        kind: Kind = "convex" if self.kind in ("concave", "convex") else self.kind  # type: ignore[assignment]
        return BoundMetric(self, expressions, function, derivative, kind)

    def __str__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        by = "" if self.by is None else f", by={list(self.by)!r}"
        return name_with_rows(f"metric({name}{by})", self.on or None)


def metric(
    function: Callable[[Any], float],
    *,
    kind: Literal["linear", "smooth", "concave", "convex", "other"],
    gradient: Callable[[Any], Any] | None = None,
    by: str | Sequence[str] | None = None,
    on: Any = None,
) -> FunctionMetric:
    """Make a metric of a function of the joint confusion matrix.

    Parameters
    ----------
    function : callable
        Given the joint confusion matrix (rows are true classes, columns predicted ones, the
        entries sum to one), returns a number. With `by`, the argument is a dict with the matrix
        of each group, whose entries sum to one within the group.
    kind : {"linear", "smooth", "concave", "convex", "other"}
        What the function is. ``"concave"`` is for functions to maximise and ``"convex"`` for those
        to minimise; ``"smooth"`` says the same of a differentiable function in either role. Of a
        function of kind ``"other"`` a local optimum is found. The kind is tested on the decision
        rules that a fit finds.
    gradient : callable, default=None
        Gradient of the function, in the shape of its argument; found by finite differences by
        default.
    by : str or list of str, default=None
        Columns that make groups.
    on : label(...), dataset(...), dict, bool array, ..., default=None
        Rows that are counted; all rows by default.

    Returns
    -------
    FunctionMetric

    Raises
    ------
    TypeError
        If `function` or `gradient` cannot be called.
    ValueError
        If `kind` is unknown.

    Examples
    --------
    >>> from gbm_constrained.metrics import metric
    >>> own = metric(lambda C: C[1, 1] / C[1].sum() - 0.3 * C[0, 1] ** 2, kind="concave")
    """
    for name, value in (("function", function), ("gradient", gradient)):
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable with a confusion matrix, got {value!r}.")
    known = ("concave", *(k for k in KINDS if k != "ratio"))
    if kind not in known:
        raise ValueError(f"kind must be one of {list(known)}, got {kind!r}.")
    return FunctionMetric(
        function, kind, gradient, read_columns(by), as_selectors(on), kind != "convex"
    )


def check_convexity(bound: BoundMetric, pool: Float) -> None:
    """Test the kind of a user's function on midpoints of points that a fit has found.

    Parameters
    ----------
    bound : BoundMetric
        The metric.
    pool : ndarray of shape (n_points, n_functionals)
        Functionals of decision rules.

    Raises
    ------
    ValueError
        If the function is neither linear, concave nor convex as it was said to be.
    """
    if not isinstance(bound.metric, FunctionMetric) or bound.kind == "other":
        return
    sign = -1.0 if bound.metric.greater_is_better else 1.0
    random = np.random.RandomState(0)
    weights = random.dirichlet(np.ones(len(pool)), size=(64, 2))
    consecutive = np.stack([pool, np.roll(pool, 1, axis=0)], axis=1)
    for first, second in np.concatenate([weights @ pool, consecutive]):
        middle = sign * bound.function((first + second) / 2)
        chord = sign * (bound.function(first) + bound.function(second)) / 2
        gap = middle - chord
        # A midpoint may lie above the chord by rounding.
        if gap > 1e-9 or (bound.kind == "linear" and -gap > 1e-9):
            raise ValueError(
                f"kind={bound.metric.kind!r} of {bound.metric} does not hold: between the entries "
                f"{np.round(first, 4).tolist()} and {np.round(second, 4).tolist()} of the "
                f"confusion matrix, the value at the midpoint is off by {abs(gap):.3g} on the "
                f"wrong side. Use kind='other', which finds a local optimum."
            )


@dataclass(frozen=True, repr=False)
class NamedMetric(Metric):
    """Base of metrics that functions make by name.

    Parameters
    ----------
    on : tuple of Selector
        Rows that are counted.
    """

    name = ""  # Name of the function.

    on: tuple[Any, ...] = field(default=(), kw_only=True)

    def to_python(self) -> str:
        """Write the call that makes the metric."""
        return write_call(self.name, *self.arguments(), on=write_selectors(self.on))

    def arguments(self) -> list[str]:
        """Write the arguments beside the rows."""
        return []

    def recalls(self, classes: NDArray[np.generic]) -> tuple[Rate, ...]:
        """Make the recall of each of several classes."""
        if classes.size < 2:
            raise ValueError(
                f"{self.name} needs two or more classes in y, which has {classes.tolist()}."
            )
        return tuple(recall(label, on=self.on or None) for label in classes.tolist())

    def __str__(self) -> str:
        return name_with_rows(self.name, self.on or None)


@dataclass(frozen=True, repr=False)
class FBeta(NamedMetric):
    """The F-measure of one class.

    Parameters
    ----------
    beta : float
        Weight of recall against precision.
    label : hashable or None
        The class; the positive one when None.
    """

    form = "ratio"
    name = "f_beta"

    beta: float
    label: Hashable | None = None

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the true positives, false positives and false negatives."""
        tp, fp, fn = joint_rates(self.label, self.on or None)
        square = self.beta**2
        found = tp * (1.0 + square)
        return bind_expression(self, Quotient(str(self), found, found + fn * square + fp))

    def arguments(self) -> list[str]:
        """Write the weight of recall, and the class."""
        label = [] if self.label is None else [write_value(self.label)]
        return [write_number(self.beta), *label]

    def __str__(self) -> str:
        label = "" if self.label is None else f", {self.label!r}"
        return name_with_rows(f"f_beta({self.beta:g}{label})", self.on or None)


@dataclass(frozen=True, repr=False)
class MicroF1(NamedMetric):
    """Micro F1 with a default class that is not counted as found.

    Parameters
    ----------
    default : hashable or None
        The default class; the most frequent one when None.
    """

    form = "ratio"
    name = "f1_micro"

    default: Hashable | None = None

    @property
    def no_rule(self) -> str:  # type: ignore[override]
        """Why the metric cannot be bounded, with the remedy."""
        reason = "its default class is the most frequent one of the rows, which may differ"
        return "" if self.default is not None else f"{reason}: name it, f1_micro(default=...)"

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the numerator and the denominator."""
        labels = [to_python_scalar(label) for label in classes.tolist()]
        default = labels[int(np.argmax(shares))] if self.default is None else self.default
        if default not in labels:
            raise ValueError(f"default={default!r} is not among the classes of y: {labels}.")
        others = [label for label in labels if label != default]
        if not others:
            raise ValueError(f"f1_micro needs two or more classes in y, which has {labels}.")
        numerator, denominator = Rate(()), Rate(())
        for i, j in itertools.product(labels, labels):
            rate = confusion(i, j, normalize="all", on=self.on or None)
            # Each of the two sums leaves out the default class.
            denominator = denominator + rate * float((i != default) + (j != default))
            if i == j != default:
                numerator = numerator + rate * 2.0
        return bind_expression(self, Quotient(str(self), numerator, denominator))

    def arguments(self) -> list[str]:
        """Write the default class."""
        return [] if self.default is None else [f"default={write_value(self.default)}"]

    def __str__(self) -> str:
        default = "" if self.default is None else f"(default={self.default!r})"
        return name_with_rows(f"f1_micro{default}", self.on or None)


@dataclass(frozen=True, repr=False)
class MacroF1(NamedMetric):
    """The mean of the classes' F1, which is neither concave nor a quotient."""

    name = "f1_macro"

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the numerator and the denominator of each class."""
        rates: list[Rate] = []
        for label in classes.tolist():
            tp, fp, fn = joint_rates(label, self.on or None)
            rates += [tp * 2.0, tp * 2.0 + fp + fn]

        def parts(u: Float) -> tuple[Float, Float]:
            return u[::2], np.maximum(u[1::2], np.finfo(np.float64).tiny)

        def function(u: Float) -> Float:
            numerator, denominator = parts(u)
            return np.asarray(np.mean(numerator / denominator, axis=0))

        def derivative(u: Float) -> Float:
            numerator, denominator = parts(u)
            gradient = np.empty(u.size)
            gradient[::2] = 1.0 / denominator
            gradient[1::2] = -numerator / denominator**2
            return gradient / classes.size

        return BoundMetric(self, tuple(rates), function, derivative, "other", takes_columns=True)


@make_factory
def f_beta(beta: float = 1.0, label: Hashable | None = None, *, on: Any = None) -> FBeta:
    r"""F-measure of one class, :math:`(1+\beta^2) TP / ((1+\beta^2) TP + \beta^2 FN + FP)`.

    Parameters
    ----------
    beta : float, default=1.0
        Weight of recall against precision, positive.
    label : hashable, default=None
        The class; the positive class of the classifier by default.
    on : label(...), dataset(...), dict, bool array, ..., default=None
        Rows that are counted; all rows by default.

    Returns
    -------
    FBeta

    Raises
    ------
    ValueError
        If `beta` is not a positive finite number.
    """
    if not is_number(beta) or not is_finite(beta) or beta <= 0:
        raise ValueError(f"beta must be a positive number, got {beta!r}: 1 gives F1.")
    return FBeta(float(beta), to_python_scalar(label), on=as_selectors(on))


@make_factory
def f1_micro(default: Hashable | None = None, *, on: Any = None) -> MicroF1:
    r"""Micro F1, :math:`2 \sum_{i \ne d} C_{ii} / (2 - \sum_i C_{di} - \sum_i C_{id})`.

    Parameters
    ----------
    default : hashable, default=None
        The class d that is not counted as found; the most frequent one by default.
    on : label(...), dataset(...), dict, bool array, ..., default=None
        As in :func:`f_beta`.

    Returns
    -------
    MicroF1
    """
    return MicroF1(to_python_scalar(default), on=as_selectors(on))


@make_factory
def f1_macro(*, on: Any = None) -> MacroF1:
    r"""Mean over classes of :math:`2 C_{ii} / (\sum_j C_{ij} + \sum_j C_{ji})`.

    No solver finds its optimum for certain: the fit reports a local one.

    Parameters
    ----------
    on : label(...), dataset(...), dict, bool array, ..., default=None
        As in :func:`f_beta`.

    Returns
    -------
    MacroF1
    """
    return MacroF1(on=as_selectors(on))


# Recall at which gradients of the G-mean and the H-mean are taken where a recall is smaller: they
# grow without bound at zero.
SMALLEST_RECALL = 1e-9


def _g_mean(u: Float) -> Float:
    return np.asarray(np.prod(np.maximum(u, 0.0), axis=0) ** (1.0 / len(u)))


def _g_mean_gradient(u: Float) -> Float:
    u = np.maximum(u, SMALLEST_RECALL)
    return np.asarray(_g_mean(u) / (u.size * u))


def _h_mean(u: Float) -> Float:
    smallest = len(u) * np.finfo(np.float64).tiny  # The sum stays finite.
    mean = len(u) / np.sum(1.0 / np.maximum(u, smallest), axis=0)
    return np.where((u > 0.0).all(axis=0), mean, 0.0)


def _h_mean_gradient(u: Float) -> Float:
    u = np.maximum(u, SMALLEST_RECALL)
    return np.asarray(_h_mean(u) ** 2 / (u.size * u**2))


def _q_mean(u: Float) -> Float:
    return np.asarray(1.0 - np.sqrt(np.mean((1.0 - u) ** 2, axis=0)))


def _q_mean_gradient(u: Float) -> Float:
    norm = float(np.linalg.norm(1.0 - u))
    return np.asarray((1.0 - u) / (norm * np.sqrt(u.size)) if norm > 0.0 else np.zeros(u.size))


_MEANS: dict[str, tuple[Callable[[Float], Float], Callable[[Float], Float], Kind]] = {
    "g_mean": (_g_mean, _g_mean_gradient, "smooth"),
    "h_mean": (_h_mean, _h_mean_gradient, "smooth"),
    "q_mean": (_q_mean, _q_mean_gradient, "smooth"),
    "min_recall": (
        lambda u: u.min(axis=0),
        lambda u: (np.arange(u.size) == u.argmin()).astype(np.float64),
        "convex",
    ),
}


@dataclass(frozen=True, repr=False)
class MeanOfRecalls(NamedMetric):
    """A concave mean of the recalls of all classes.

    Parameters
    ----------
    name : {"g_mean", "h_mean", "q_mean", "min_recall"}
        Which mean.
    """

    name: str

    @property
    def form(self) -> Form:  # type: ignore[override]
        """Form of the rows of a bound: the worst recall has one of each class."""
        return "worst" if self.name == "min_recall" else "curved"

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the recall of each class."""
        function, derivative, kind = _MEANS[self.name]
        rates = self.recalls(classes)
        return BoundMetric(self, rates, function, derivative, kind, takes_columns=True)


@dataclass(frozen=True, repr=False)
class BalancedAccuracy(NamedMetric):
    """The mean of the recalls of all classes."""

    form = "linear"
    name = "balanced_accuracy"

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the sum of the recalls."""
        total = sum(self.recalls(classes), Rate(()))
        return bind_expression(self, total / classes.size)


@make_factory
def g_mean(*, on: Any = None) -> MeanOfRecalls:
    r"""Geometric mean of the recalls, :math:`(\prod_i u_i)^{1/n}`.

    Parameters
    ----------
    on : label(...), dataset(...), dict, bool array, ..., default=None
        Rows that the recalls are taken over; all rows by default.

    Returns
    -------
    MeanOfRecalls
    """
    return MeanOfRecalls("g_mean", on=as_selectors(on))


@make_factory
def h_mean(*, on: Any = None) -> MeanOfRecalls:
    r"""Harmonic mean of the recalls, :math:`n / \sum_i u_i^{-1}`.

    Parameters
    ----------
    on : label(...), dataset(...), dict, bool array, ..., default=None
        As in :func:`g_mean`.

    Returns
    -------
    MeanOfRecalls
    """
    return MeanOfRecalls("h_mean", on=as_selectors(on))


@make_factory
def q_mean(*, on: Any = None) -> MeanOfRecalls:
    r"""One minus the quadratic mean of the class errors, :math:`1 - \sqrt{\sum_i (1-u_i)^2/n}`.

    Parameters
    ----------
    on : label(...), dataset(...), dict, bool array, ..., default=None
        As in :func:`g_mean`.

    Returns
    -------
    MeanOfRecalls
    """
    return MeanOfRecalls("q_mean", on=as_selectors(on))


@make_factory
def min_recall(*, on: Any = None) -> MeanOfRecalls:
    r"""Worst recall of a class, :math:`\min_i u_i`.

    Parameters
    ----------
    on : label(...), dataset(...), dict, bool array, ..., default=None
        As in :func:`g_mean`.

    Returns
    -------
    MeanOfRecalls
    """
    return MeanOfRecalls("min_recall", on=as_selectors(on))


@make_factory
def balanced_accuracy(*, on: Any = None) -> BalancedAccuracy:
    r"""Mean of the recalls, :math:`\sum_i u_i / n`, as scikit-learn's.

    Parameters
    ----------
    on : label(...), dataset(...), dict, bool array, ..., default=None
        As in :func:`g_mean`.

    Returns
    -------
    BalancedAccuracy
    """
    return BalancedAccuracy(on=as_selectors(on))
