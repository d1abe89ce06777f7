"""NPMC-CX and NPMC-ER (Tian and Feng, 2021): costs of classes for bounds on their errors.

A small reimplementation for comparison, written from the description of the method; the authors'
own is the R package ``npcs``. Nothing of the package under test is used here.

The problem is ``min sum_k w_k P(phi(X) != k | Y = k)`` under ``P(phi(X) != k | Y = k) <= alpha_k``
for some classes k. With multipliers ``lambda_k >= 0`` and class frequencies ``pi_k``, the best
classifier is ``argmax_k c_k P(k | x)`` with costs ``c_k = (w_k + lambda_k) / pi_k``, and the
multipliers maximise the dual function G(lambda), which is estimated

- by CX from the posteriors of the very rows that these were learnt from,
- by ER from errors counted on the half of the rows that they were not learnt from.

G above one means that no classifier meets the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import train_test_split

LARGEST = 200.0  # of a multiplier, for weights that sum to one


class Multipliers(NamedTuple):
    """Multipliers of all K classes (zero without a bound), and what they say of the problem.

    Parameters
    ----------
    values : ndarray of shape (K,)
        Multipliers, in units of the weights.
    costs : ndarray of shape (K,)
        What the posteriors are multiplied by.
    dual : float
        G, for weights that sum to one.
    """

    values: np.ndarray
    costs: np.ndarray
    dual: float

    @property
    def feasible(self) -> bool:
        """Whether the dual does not refute that the bounds can be met."""
        return self.dual <= 1.0


def cx_multipliers(
    posteriors: np.ndarray,
    labels: np.ndarray,
    levels: Mapping[int, float],
    weights: np.ndarray | None = None,
) -> Multipliers:
    """Multipliers from the posteriors of rows, by the convex dual.

    Parameters
    ----------
    posteriors : ndarray of shape (n, K)
        Probabilities of the classes.
    labels : ndarray of shape (n,)
        Classes 0..K-1; only their frequencies count.
    levels : mapping of int to float
        Bounds on the errors of some of the classes.
    weights : ndarray of shape (K,), default=None
        w; by default the frequencies, with which the objective is the error of all rows.
    """
    frequencies = np.bincount(labels, minlength=posteriors.shape[1]) / labels.size

    def gain(total: np.ndarray) -> float:
        return float((posteriors * (total / frequencies)).max(axis=1).mean())

    return _maximise(gain, levels, frequencies if weights is None else weights, frequencies)


def er_multipliers(
    posteriors: np.ndarray,
    labels: np.ndarray,
    levels: Mapping[int, float],
    weights: np.ndarray | None = None,
    priors: np.ndarray | None = None,
) -> Multipliers:
    """Multipliers from errors on rows that the posteriors were not learnt from.

    Parameters
    ----------
    posteriors, labels, levels, weights
        As for :func:`cx_multipliers`.
    priors : ndarray of shape (K,), default=None
        Class frequencies of the costs; by default those of `labels`.
    """
    counts = np.bincount(labels, minlength=posteriors.shape[1])
    frequencies = counts / labels.size
    divided_by = frequencies if priors is None else priors

    def gain(total: np.ndarray) -> float:
        decided = (posteriors * (total / divided_by)).argmax(axis=1)
        right = np.bincount(labels[decided == labels], minlength=counts.size) / counts
        return float(total @ right)

    return _maximise(gain, levels, frequencies if weights is None else weights, divided_by)


def _maximise(
    gain: Callable[[np.ndarray], float],
    levels: Mapping[int, float],
    weights: Any,
    priors: np.ndarray,
) -> Multipliers:
    """Maximise the dual, which is a linear function less the gain of weights and multipliers."""
    weights = np.asarray(weights, dtype=float)
    scale, bounded = float(weights.sum()), np.array(sorted(levels))
    slack = np.array([1.0 - levels[k] for k in bounded])

    def total(multipliers: np.ndarray) -> np.ndarray:
        found = weights / scale
        found[bounded] += multipliers
        return found

    def dual(multipliers: np.ndarray) -> float:
        return float(1.0 + multipliers @ slack - gain(total(multipliers)))

    # The search can get stuck where two classes change places.
    starts = (np.full(bounded.size, start) for start in (0.0, 1.0, 10.0))
    ends = [hooke_jeeves(dual, start, 0.0, LARGEST) for start in starts]
    value, found = max(((dual(end), end) for end in ends), key=lambda pair: pair[0])
    # No class of weight zero is given up altogether.
    found = np.maximum(found, 1e-3)
    values = np.zeros(weights.size)
    values[bounded] = scale * found
    return Multipliers(values, total(found) / priors, value)


def hooke_jeeves(
    f: Callable[[np.ndarray], float], start: np.ndarray, low: float, high: float
) -> np.ndarray:
    """Maximise f over a box by Hooke and Jeeves' pattern search with steps 1, 1/2, ..., 2^-18.

    Parameters
    ----------
    f : callable
        Takes an array of shape (m,).
    start : ndarray of shape (m,)
        A point of the box.
    low, high : float
        The box, the same for every coordinate.

    Returns
    -------
    ndarray of shape (m,)
    """

    def explore(point: np.ndarray, value: float, step: float) -> tuple[np.ndarray, float]:
        """Move each coordinate up or down by a step where that pays."""
        for j in range(point.size):
            for move in (step, -step):
                tried = point.copy()
                tried[j] = np.clip(tried[j] + move, low, high)
                reached = f(tried)
                if reached > value:
                    point, value = tried, reached
                    break
        return point, value

    best, value = start, f(start)
    for step in 0.5 ** np.arange(19):
        found, reached = explore(best, value, step)
        while reached > value:
            # As far again in the direction that helped; where that does not pay, from here.
            ahead = np.clip(2.0 * found - best, low, high)
            best, value = found, reached
            found, reached = explore(ahead, f(ahead), step)
            if reached <= value:
                found, reached = explore(best, value, step)
    return best


class NPMC(ClassifierMixin, BaseEstimator):
    """A classifier whose posteriors are multiplied by costs of the classes.

    Parameters
    ----------
    estimator : classifier
        Gives the posteriors; cloned.
    levels : mapping of label to float
        Bounds on the errors of some of the classes.
    method : {"CX", "ER"}, default="CX"
        Whether the costs come from the posteriors of the training rows, or from errors on half of
        the rows of each class, which are then kept from the estimator.
    refit : bool, default=True
        With "ER": learn the posteriors anew from all rows once the multipliers are known.
    weights : array-like of shape (K,), default=None
        w, in the order of the sorted labels; by default the class frequencies.
    random_state : int, default=None
        Of the halves.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
    estimator_ : classifier
    multipliers_ : Multipliers
    costs_ : ndarray of shape (K,)
    """

    def __init__(
        self,
        estimator: Any,
        levels: Mapping[Any, float],
        method: Literal["CX", "ER"] = "CX",
        refit: bool = True,
        weights: Any = None,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.levels = levels
        self.method = method
        self.refit = refit
        self.weights = weights
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> NPMC:
        """Learn the posteriors and the costs."""
        if self.method not in ("CX", "ER"):
            raise ValueError(f"method must be 'CX' or 'ER', got {self.method!r}.")
        self.classes_, labels = np.unique(np.asarray(y), return_inverse=True)
        unknown = sorted(set(self.levels) - set(self.classes_.tolist()))
        if unknown:
            raise ValueError(f"levels names {unknown}, which are not among the labels of y.")
        levels = {k: self.levels[c] for k, c in enumerate(self.classes_) if c in self.levels}
        if self.method == "CX":
            self.estimator_ = clone(self.estimator).fit(X, labels)
            posteriors = self.estimator_.predict_proba(X)
            self.multipliers_ = cx_multipliers(posteriors, labels, levels, self.weights)
        else:
            X_fit, X_search, fit, search = train_test_split(
                X, labels, test_size=0.5, stratify=labels, random_state=self.random_state
            )
            # The costs are those of the posteriors that they will be multiplied with.
            base = labels if self.refit else fit
            priors = np.bincount(base, minlength=self.classes_.size) / base.size
            self.estimator_ = clone(self.estimator).fit(X_fit, fit)
            posteriors = self.estimator_.predict_proba(X_search)
            self.multipliers_ = er_multipliers(posteriors, search, levels, self.weights, priors)
            if self.refit:
                self.estimator_ = clone(self.estimator).fit(X, labels)
        self.costs_ = self.multipliers_.costs
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Posteriors after the costs, of shape (n, K)."""
        weighted = self.estimator_.predict_proba(X) * self.costs_
        return np.asarray(weighted / weighted.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> np.ndarray:
        """Labels, of shape (n,)."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])
