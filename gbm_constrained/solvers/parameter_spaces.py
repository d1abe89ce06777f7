"""Parameters that a black-box metric is optimised over, and the functions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Bool, Float


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
        scores = self.training_scores(parameters)
        mean = np.average(scores, weights=self._weight)
        spread = float(np.sqrt(np.average(np.square(scores - mean), weights=self._weight)))
        return (spread if spread > 0.0 else 1.0) / self._size_of_rows

    @cached_property
    def _size_of_rows(self) -> float:
        """Root mean square of the norms of the rows of the score matrix."""
        matrix: Any = self._training
        if sparse.issparse(matrix):
            norms = np.ravel(cast(Any, matrix).multiply(matrix).sum(axis=1))
        else:
            norms = np.einsum("ij,ij->i", matrix, matrix)  # which makes no copy of the matrix
        return float(np.sqrt(np.average(norms.astype(np.float64), weights=self._weight)))


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
