"""Scores of rows as differentiable functions of one vector of parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from gbm_constrained._typing import Array, Float

# Norm that features of the hidden units have on average. With a norm of one the units would hardly
# move while their output weights do; twice the norm changes little.
INPUT_NORM = 8.0


@dataclass(frozen=True, eq=False)
class LinearScore:
    """The score ``(x - centre) . w``.

    An order of rows does not depend on the centre; steps of w and of a constant do not mix there.

    Parameters
    ----------
    centre : (n_features,). A typical row.
    """

    centre: Float

    @classmethod
    def of(cls, X: Array) -> LinearScore:
        """Centre the features by some rows."""
        return cls(X.mean(axis=0))

    def start(self, random_state: np.random.RandomState) -> Float:
        """Make the parameters of a score of zero."""
        return np.zeros(self.centre.size)

    def scores(self, parameters: Float, X: Array) -> Float:
        """Compute the score of each row; (n,)."""
        return np.asarray((X - self.centre) @ parameters)

    def pull_back(self, parameters: Float, X: Array, rows: Float) -> Float:
        """Compute the sum over rows of ``rows[i]`` times the gradient of score i."""
        return np.asarray(rows @ (X - self.centre))

    def mean_squared_gradient(self, parameters: Float, X: Array) -> float:
        """Compute the mean over rows of the squared norm of the score's gradient."""
        return float(((X - self.centre) ** 2).sum(axis=1).mean())


@dataclass(frozen=True, eq=False)
class SigmoidNetwork:
    """The score ``sum_j v_j sigmoid((x - centre) / scale . w_j + b_j)`` of sigmoid units.

    Parameters
    ----------
    centre : (n_features,). A typical row.
    scale : Divisor of the features.
    hidden : Number of units.
    """

    centre: Float
    scale: float
    hidden: int

    @classmethod
    def of(cls, X: Array, hidden: int) -> SigmoidNetwork:
        """Centre and scale the features by some rows."""
        centre = X.mean(axis=0)
        spread = float(((X - centre) ** 2).sum(axis=1).mean())
        return cls(centre, np.sqrt(spread) / INPUT_NORM if spread > 0 else 1.0, hidden)

    def unpack(self, parameters: Float) -> tuple[Float, Float, Float]:
        """Split the parameters into w (n_features, hidden), b (hidden,) and v (hidden,)."""
        first = parameters[: -2 * self.hidden].reshape(-1, self.hidden)
        return first, parameters[-2 * self.hidden : -self.hidden], parameters[-self.hidden :]

    def start(self, random_state: np.random.RandomState) -> Float:
        """Draw units at random, with output weights of zero: a score of zero, which is feasible.

        Equal units would stay equal for ever.
        """
        d = self.centre.size
        first = random_state.normal(size=d * self.hidden) / INPUT_NORM
        return np.concatenate([first, np.zeros(2 * self.hidden)])

    def scores(self, parameters: Float, X: Array) -> Float:
        """Compute the score of each row; (n,)."""
        return np.asarray(self._units(parameters, X) @ self.unpack(parameters)[2])

    def pull_back(self, parameters: Float, X: Array, rows: Float) -> Float:
        """Compute the sum over rows of ``rows[i]`` times the gradient of score i."""
        units = self._units(parameters, X)
        inner = rows[:, None] * units * (1 - units) * self.unpack(parameters)[2]
        return np.concatenate(
            [(self._normalise(X).T @ inner).ravel(), inner.sum(axis=0), rows @ units]
        )

    def mean_squared_gradient(self, parameters: Float, X: Array) -> float:
        """Compute the mean over rows of the squared norm of the score's gradient."""
        units = self._units(parameters, X)
        inner = (units * (1 - units) * self.unpack(parameters)[2]) ** 2
        squares = (self._normalise(X) ** 2).sum(axis=1, keepdims=True) + 1
        return float(((units**2).sum(axis=1) + (inner * squares).sum(axis=1)).mean())

    def _normalise(self, X: Array) -> Float:
        return np.asarray((X - self.centre) / self.scale)

    def _units(self, parameters: Float, X: Array) -> Float:
        """Compute the output of each unit; (n, hidden)."""
        first, bias, _ = self.unpack(parameters)
        return np.asarray(expit(self._normalise(X) @ first + bias))
