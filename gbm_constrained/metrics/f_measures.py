r"""F-measures: quotients of entries of the confusion matrix, and their mean over classes.

With joint fractions :math:`C_{ij} = P(y = i, \hat y = j)`,

- :math:`F_\beta = (1 + \beta^2) TP / ((1 + \beta^2) TP + \beta^2 FN + FP)` of one class,
- micro F1 is :math:`2 \sum_{i \ne d} C_{ii} / (2 - \sum_i C_{di} - \sum_i C_{id})` with a default
  class d that counts as "nothing found" (Narasimhan et al., Table 1, Example 4),
- macro F1 is the mean of :math:`2 C_{ii} / (\sum_j C_{ij} + \sum_j C_{ji})` over the classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._messages import is_finite, is_number
from gbm_constrained._typing import Float
from gbm_constrained.constraints.expressions import Quotient, Rate
from gbm_constrained.constraints.factories import make_factory
from gbm_constrained.constraints.rate_parts import Taken, joint_rates, name_with_rows
from gbm_constrained.constraints.rates import confusion
from gbm_constrained.constraints.selectors import as_selectors, to_python_scalar
from gbm_constrained.metrics.base import BoundMetric, Metric, bind_quotient


@dataclass(frozen=True, repr=False)
class FBeta(Metric):
    """The F-measure of one class.

    Parameters
    ----------
    beta : float
        Weight of recall against precision.
    label : hashable or None
        The class; the positive one when None.
    on : tuple of Selector
        Rows that are counted.
    """

    form = "ratio"

    beta: float
    label: Hashable | None = None
    on: tuple[Any, ...] = ()

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the true positives, false positives and false negatives."""
        tp, fp, fn = joint_rates(self.label, Taken(self.on or None))
        square = self.beta**2
        found = tp * (1.0 + square)
        return bind_quotient(self, Quotient(str(self), found, found + fn * square + fp))

    def __str__(self) -> str:
        label = "" if self.label is None else f", {self.label!r}"
        return name_with_rows(f"f_beta({self.beta:g}{label})", Taken(self.on or None))


@dataclass(frozen=True, repr=False)
class MicroF1(Metric):
    """Micro F1 with a default class that is not counted as found.

    Parameters
    ----------
    default : hashable or None
        The default class; the most frequent one when None.
    on : tuple of Selector
        Rows that are counted.
    """

    form = "ratio"

    default: Hashable | None = None
    on: tuple[Any, ...] = ()

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
        return bind_quotient(self, Quotient(str(self), numerator, denominator))

    def __str__(self) -> str:
        default = "" if self.default is None else f"(default={self.default!r})"
        return name_with_rows(f"f1_micro{default}", Taken(self.on or None))


@dataclass(frozen=True, repr=False)
class MacroF1(Metric):
    """The mean of the classes' F1, which is neither concave nor a quotient."""

    on: tuple[Any, ...] = ()

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the numerator and the denominator of each class."""
        rates: list[Rate] = []
        for label in classes.tolist():
            tp, fp, fn = joint_rates(label, Taken(self.on or None))
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

    def __str__(self) -> str:
        return name_with_rows("f1_macro", Taken(self.on or None))


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
    return FBeta(float(beta), None if label is None else to_python_scalar(label), as_selectors(on))


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
    default = None if default is None else to_python_scalar(default)
    return MicroF1(default, as_selectors(on))


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
    return MacroF1(as_selectors(on))
