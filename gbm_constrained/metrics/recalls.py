r"""Means of the recalls of all classes.

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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Float
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.factories import make_factory
from gbm_constrained.constraints.rate_parts import Taken, name_with_rows
from gbm_constrained.constraints.rates import recall
from gbm_constrained.constraints.selectors import as_selectors
from gbm_constrained.metrics.base import BoundMetric, Form, Kind, Metric, bind_linear

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


def _min_recall(u: Float) -> Float:
    return np.asarray(u.min(axis=0))


def _min_recall_gradient(u: Float) -> Float:
    return np.asarray((np.arange(u.size) == u.argmin()).astype(np.float64))


_MEANS: dict[str, tuple[Callable[[Float], Float], Callable[[Float], Float], Kind]] = {
    "g_mean": (_g_mean, _g_mean_gradient, "smooth"),
    "h_mean": (_h_mean, _h_mean_gradient, "smooth"),
    "q_mean": (_q_mean, _q_mean_gradient, "smooth"),
    "min_recall": (_min_recall, _min_recall_gradient, "convex"),
}


def _check_several(name: str, classes: NDArray[np.generic]) -> None:
    if classes.size < 2:
        raise ValueError(f"{name} needs two or more classes in y, which has {classes.tolist()}.")


@dataclass(frozen=True, repr=False)
class MeanOfRecalls(Metric):
    """A concave mean of the recalls of all classes.

    Parameters
    ----------
    name : {"g_mean", "h_mean", "q_mean", "min_recall"}
        Which mean.
    on : tuple of Selector
        Rows that the recalls are taken over.
    """

    name: str
    on: tuple[Any, ...] = ()

    @property
    def form(self) -> Form:  # type: ignore[override]
        """Form of the rows of a bound: the worst recall has one of each class."""
        return "worst" if self.name == "min_recall" else "curved"

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the recall of each class."""
        _check_several(self.name, classes)
        function, derivative, kind = _MEANS[self.name]
        rates = tuple(recall(label, on=self.on or None) for label in classes.tolist())
        return BoundMetric(self, rates, function, derivative, kind, takes_columns=True)

    def __str__(self) -> str:
        return name_with_rows(self.name, Taken(self.on or None))


@dataclass(frozen=True, repr=False)
class BalancedAccuracy(Metric):
    """The mean of the recalls of all classes."""

    form = "linear"

    on: tuple[Any, ...] = ()

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the sum of the recalls."""
        _check_several("balanced_accuracy", classes)
        total = Rate(())
        for label in classes.tolist():
            total = total + recall(label, on=self.on or None)
        return bind_linear(self, total / classes.size)

    def __str__(self) -> str:
        return name_with_rows("balanced_accuracy", Taken(self.on or None))


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
    return MeanOfRecalls("g_mean", as_selectors(on))


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
    return MeanOfRecalls("h_mean", as_selectors(on))


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
    return MeanOfRecalls("q_mean", as_selectors(on))


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
    return MeanOfRecalls("min_recall", as_selectors(on))


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
    return BalancedAccuracy(as_selectors(on))
