"""Parameters that a black-box metric is optimised over, and the functions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from gbm_constrained._typing import Bool, Float

MOST_WHITENED = 2_000
"""Parameters whose mean products are stored; the steps of more are scaled one by one."""
BLOCK = 250  # Rows whose products are added up at once.
RIDGE = 1e-3  # Share of the square of each column that keeps columns apart that move together.


@dataclass(frozen=True)
class ScoreUnit:
    r"""Steps of parameters in units of what they change the scores by.

    With the mean products :math:`G = \Phi^T \Phi / n = L L^T` of the columns of scores, a step z
    moves the parameters by :math:`\sigma L^{-T} z` and the scores by a root mean square of
    :math:`\sigma \|z\|`, where :math:`\sigma` is the standard deviation of the scores.

    Parameters
    ----------
    root : ndarray of shape (d, d) or (d,)
        The lower triangle L, or the roots of the diagonal of G alone.
    spread : float
        Standard deviation of the scores.
    """

    root: Float
    spread: float

    def parameters(self, step: Float) -> Float:
        """Turn a step into a change of the parameters."""
        if self.root.ndim == 1:
            return self.spread * step / self.root
        return np.asarray(self.spread * solve_triangular(self.root, step, trans=1, lower=True))

    def pull_back(self, gradient: Float) -> Float:
        """Turn a gradient in the parameters into one in the step."""
        if self.root.ndim == 1:
            return self.spread * gradient / self.root
        return np.asarray(self.spread * solve_triangular(self.root, gradient, lower=True))


class ParameterSpace(Protocol):
    """Parameters of a model whose structure is frozen."""

    def training_scores(self, parameters: Float) -> Float:
        """Compute the scores of the training rows."""

    def validation_scores(self, parameters: Float) -> Float:
        """Compute the scores of the validation rows."""

    def pull_back(self, gradient: Float) -> Float:
        """Turn a gradient in the scores of the training rows into one in the parameters."""

    def perturbation_scale(self, parameters: Float) -> float:
        """Find the size of a change of one parameter that ``sigma`` is in units of."""

    def score_unit(self, parameters: Float) -> ScoreUnit:
        """Find the units in which steps change the scores by their standard deviation."""


class Surrogates(Protocol):
    """Surrogates as functions of the scores of some rows."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the surrogates."""

    def __len__(self) -> int: ...

    def values(self, scores: Float) -> Float:
        """Compute the surrogates."""

    def gradient(self, scores: Float, coefficients: Float) -> Float:
        """Compute the gradient in the scores of the surrogates' weighted sum."""

    def check_disjoint(self) -> None:
        """Refuse surrogates that share rows."""

    def move(self, scores: Float, targets: Float) -> tuple[Float, Bool]:
        """Shift scores so that the surrogates have targets, and find those out of range."""


class CountedMetric(Protocol):
    """A loss of the validation rows that is only a function to call."""

    @property
    def calls_left(self) -> int:
        """Number of calls that are left."""

    def begin_iteration(self, iteration: int) -> None:
        """Note the iteration, which errors name."""

    def __call__(self, scores: Float) -> float:
        """Compute the loss."""


class LinearSpace:
    r"""Weights of the columns of a score matrix, :math:`f = \Phi \theta + f_0`.

    Coefficients of features, weights of trees and offsets of groups are such parameters.

    Parameters
    ----------
    training : array or sparse array of shape (n_training, d)
        Score matrix of the training rows; a column of ones is an intercept.
    validation : array or sparse array of shape (n_validation, d)
        Score matrix of the validation rows. Products with matrices in single precision are
        in single precision.
    training_base, validation_base : ndarray of shape (n_training,), (n_validation,), default=0
        Scores that no parameter changes.
    weight : ndarray of shape (n_training,), default=None
        Weights of the training rows in the unit of perturbations; ones by default.
    """

    def __init__(
        self,
        training: Any,
        validation: Any,
        training_base: Float | float = 0.0,
        validation_base: Float | float = 0.0,
        weight: Float | None = None,
    ) -> None:
        if training.shape[1] != validation.shape[1]:
            raise ValueError(
                f"validation has {validation.shape[1]} columns and the training rows have "
                f"{training.shape[1]}: give the same features for both."
            )
        self._training, self._validation = training, validation
        self._training_base, self._validation_base = training_base, validation_base
        self._weight = weight

    def training_scores(self, parameters: Float) -> Float:
        """Compute the scores of the training rows."""
        return _multiply(self._training, parameters) + self._training_base

    def validation_scores(self, parameters: Float) -> Float:
        """Compute the scores of the validation rows."""
        return _multiply(self._validation, parameters) + self._validation_base

    def pull_back(self, gradient: Float) -> Float:
        """Multiply a gradient in the training scores by the transposed score matrix."""
        return _multiply(self._training.T, gradient)

    def perturbation_scale(self, parameters: Float) -> float:
        """Divide the standard deviation of the scores by that of unit perturbations of them.

        Scores without a spread count as those of a standard deviation of one.
        """
        return self._spread(parameters) / float(np.sqrt(self._mean_squares.sum()))

    def score_unit(self, parameters: Float) -> ScoreUnit:
        """Find the units in which steps change the scores by their standard deviation."""
        return ScoreUnit(self._root, self._spread(parameters))

    def _spread(self, parameters: Float) -> float:
        scores = self.training_scores(parameters)
        mean = np.average(scores, weights=self._weight)
        spread = float(np.sqrt(np.average(np.square(scores - mean), weights=self._weight)))
        return spread if spread > 0.0 else 1.0

    @cached_property
    def _shares(self) -> Float:
        n = self._training.shape[0]
        return np.full(n, 1.0 / n) if self._weight is None else self._weight / self._weight.sum()

    @cached_property
    def _mean_squares(self) -> Float:
        """Mean square of each column of the score matrix."""
        matrix: Any = self._training
        if sparse.issparse(matrix):
            return np.ravel(cast(Any, matrix).multiply(matrix).T @ self._shares)
        # This makes no copy of the matrix.
        return np.asarray(np.einsum("ij,ij,i->j", matrix, matrix, self._shares))

    @cached_property
    def _root(self) -> Float:
        """Root of the mean products of the columns, or of their diagonal where that is large."""
        squares, matrix = self._mean_squares, self._training
        squares = np.where(squares > 0.0, squares, 1.0).astype(np.float64)
        if squares.size > MOST_WHITENED:
            return np.asarray(np.sqrt(squares))
        dense = np.zeros((squares.size, squares.size))
        for start in range(0, matrix.shape[0], BLOCK):  # No copy of the whole matrix.
            part: Any = matrix[start : start + BLOCK]
            products = part.T @ (part * self._shares[start : start + BLOCK, None])
            dense += cast(Any, products).toarray() if sparse.issparse(products) else products
        np.fill_diagonal(dense, squares * (1.0 + RIDGE))
        return np.asarray(np.linalg.cholesky(dense), dtype=np.float64)


def _multiply(matrix: Any, vector: Float) -> Float:
    """Multiply in the precision of the matrix, of which no copy is made."""
    return np.asarray(matrix @ vector.astype(matrix.dtype, copy=False), dtype=np.float64)


@dataclass(frozen=True)
class BlackBoxProblem:
    """A black-box loss as a function of parameters, and its surrogates.

    Parameters
    ----------
    space : ParameterSpace
        Parameters.
    surrogates : Surrogates
        Surrogates on the training rows, K of them.
    metric : CountedMetric
        Loss of the validation rows.
    validation_surrogates : Surrogates, default=None
        The same surrogates on the validation rows, for estimators that shift scores.
    """

    space: ParameterSpace
    surrogates: Surrogates
    metric: CountedMetric
    validation_surrogates: Surrogates | None = None

    def profile(self, parameters: Float) -> Float:
        """Compute the surrogates, (K,)."""
        return self.surrogates.values(self.space.training_scores(parameters))

    def loss(self, parameters: Float) -> float:
        """Call the metric."""
        return self.metric(self.space.validation_scores(parameters))
