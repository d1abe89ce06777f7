"""Scores of rows as differentiable functions of one vector of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.preprocessing import StandardScaler

from gbm_constrained._typing import Float

# Norm that features of the hidden units have on average. With a norm of one the units would hardly
# move while their output weights do; twice the norm changes little.
INPUT_NORM = 8.0


def is_sparse(X: Any) -> bool:
    """Whether features are a sparse matrix or array."""
    return bool(sparse.issparse(X))


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Features minus a typical row, each divided by a scale of its own.

    Steps then do not depend on the units of any feature. Sparse features stay sparse.

    Parameters
    ----------
    centre : (n_features,). A typical row.
    scale : (n_features,). Divisors of the features.
    """

    centre: Float
    scale: Float

    @classmethod
    def of(cls, X: Any, weight: Float | None = None) -> Standardiser:
        """Find mean and standard deviation of each feature; the divisor of a constant is one."""
        found = StandardScaler(with_mean=not is_sparse(X)).fit(X, sample_weight=weight)
        return cls(np.asarray(found.mean_), np.asarray(found.scale_))

    def divide(self, X: Any) -> Any:
        """Divide the features by their scales, and centre those that are not sparse."""
        if is_sparse(X):
            return X.multiply(1 / self.scale).tocsr()
        return (X - self.centre) / self.scale

    def multiply(self, X: Any, weights: Float) -> Float:
        """Multiply the standardised rows by weights of shape (n_features,) or (n_features, k)."""
        weights = (weights.T / self.scale).T
        if is_sparse(X):
            return np.asarray(X @ weights - self.centre @ weights)
        return np.asarray((X - self.centre) @ weights)

    def pull_back(self, X: Any, rows: Float) -> Float:
        """Multiply the transposed standardised rows by numbers of shape (n,) or (n, k)."""
        if is_sparse(X):
            found = X.T @ rows - np.multiply.outer(self.centre, rows.sum(axis=0))
        else:
            found = (X - self.centre).T @ rows
        return np.asarray((found.T / self.scale).T)

    def squared_norms(self, X: Any) -> Float:
        """Compute the squared norm of each standardised row; (n,)."""
        if is_sparse(X):
            slope, squares = self.centre / self.scale**2, 1 / self.scale**2
            return np.asarray(X.multiply(X) @ squares - 2 * (X @ slope) + slope @ self.centre)
        return np.asarray((self.divide(X) ** 2).sum(axis=1))


@dataclass(frozen=True, eq=False)
class LinearScore:
    """The score ``(x - centre) / scale . w``.

    An order of rows does not depend on the centre; steps of w and of a constant do not mix there.

    Parameters
    ----------
    features : Centre and scale.
    """

    features: Standardiser

    @classmethod
    def of(cls, X: Any, weight: Float | None = None) -> LinearScore:
        """Standardise the features by some rows."""
        return cls(Standardiser.of(X, weight))

    def start(self, random_state: np.random.RandomState) -> Float:
        """Make the parameters of a score of zero."""
        return np.zeros(self.features.centre.size)

    def scores(self, parameters: Float, X: Any) -> Float:
        """Compute the score of each row; (n,)."""
        return self.features.multiply(X, parameters)

    def pull_back(self, parameters: Float, X: Any, rows: Float) -> Float:
        """Compute the sum over rows of ``rows[i]`` times the gradient of score i."""
        return self.features.pull_back(X, rows)

    def mean_squared_gradient(self, parameters: Float, X: Any) -> float:
        """Compute the mean over rows of the squared norm of the score's gradient."""
        return float(self.features.squared_norms(X).mean())


@dataclass(frozen=True, eq=False)
class SigmoidNetwork:
    """The score ``sum_j v_j sigmoid((x - centre) / scale . w_j + b_j)`` of sigmoid units.

    Parameters
    ----------
    features : Centre and scale.
    hidden : Number of units.
    """

    features: Standardiser
    hidden: int

    @classmethod
    def of(cls, X: Any, hidden: int, weight: Float | None = None) -> SigmoidNetwork:
        """Standardise the features by some rows."""
        features = Standardiser.of(X, weight)
        norm = float(np.sqrt(features.squared_norms(X).mean()))
        factor = norm / INPUT_NORM if norm > 0 else 1.0
        return cls(Standardiser(features.centre, features.scale * factor), hidden)

    def unpack(self, parameters: Float) -> tuple[Float, Float, Float]:
        """Split the parameters into w (n_features, hidden), b (hidden,) and v (hidden,)."""
        first = parameters[: -2 * self.hidden].reshape(-1, self.hidden)
        return first, parameters[-2 * self.hidden : -self.hidden], parameters[-self.hidden :]

    def start(self, random_state: np.random.RandomState) -> Float:
        """Draw units at random, with output weights of zero: a score of zero, which is feasible.

        Equal units would stay equal for ever.
        """
        d = self.features.centre.size
        first = random_state.normal(size=d * self.hidden) / INPUT_NORM
        return np.concatenate([first, np.zeros(2 * self.hidden)])

    def scores(self, parameters: Float, X: Any) -> Float:
        """Compute the score of each row; (n,)."""
        return np.asarray(self._units(parameters, X) @ self.unpack(parameters)[2])

    def pull_back(self, parameters: Float, X: Any, rows: Float) -> Float:
        """Compute the sum over rows of ``rows[i]`` times the gradient of score i."""
        units = self._units(parameters, X)
        inner = rows[:, None] * units * (1 - units) * self.unpack(parameters)[2]
        by_first = self.features.pull_back(X, inner)
        return np.concatenate([by_first.ravel(), inner.sum(axis=0), rows @ units])

    def mean_squared_gradient(self, parameters: Float, X: Any) -> float:
        """Compute the mean over rows of the squared norm of the score's gradient."""
        units = self._units(parameters, X)
        inner = (units * (1 - units) * self.unpack(parameters)[2]) ** 2
        squares = self.features.squared_norms(X)[:, None] + 1
        return float(((units**2).sum(axis=1) + (inner * squares).sum(axis=1)).mean())

    def _units(self, parameters: Float, X: Any) -> Float:
        """Compute the output of each unit; (n, hidden)."""
        first, bias, _ = self.unpack(parameters)
        return np.asarray(expit(self.features.multiply(X, first) + bias))
