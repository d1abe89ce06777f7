"""Scores that are linear in weights, and their geometry."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import svds

from gbm_constrained._typing import Array, Float
from gbm_constrained.problem.lagrangian import Lagrangian

MAX_DENSE = 1500  # Largest number of weights whose second moments are factorised.


class LinearScores:
    """A fixed set of weak learners on the rows of a problem.

    Parameters
    ----------
    lagrangian : Lagrangian
        The problem on the rows of the score matrix, in float64.
    scores : array or sparse array of shape (n_samples, N) or (n_samples * K, N)
        Scores of the N weak learners. One row per sample gives the margin of a binary problem, or
        a basis that all K > 2 classes share, with weights of shape (N, K). K rows per sample
        (row ``i * K + k`` for class k of sample i) let each weak learner act on its own classes,
        with weights of shape (N,).
    offset : array-like, default=0
        Fixed part of the scores, broadcast against (n_samples,) or (n_samples, K).
    l2 : float, default=0
        Ridge penalty ``l2 / 2 ||x||^2`` of the objective, which is a mean over rows.
    penalised : bool array of shape (N,), default=None
        The weak learners it falls on; all by default.
    metric : {"scores", "weights"}, default="scores"
        What the Bregman distance is taken between.

    Attributes
    ----------
    shape : tuple of int
        Shape of the weights.
    """

    def __init__(
        self,
        lagrangian: Lagrangian,
        scores: Any,
        *,
        offset: ArrayLike = 0.0,
        l2: float = 0.0,
        penalised: ArrayLike | None = None,
        metric: Literal["scores", "weights"] = "scores",
    ) -> None:
        n, n_classes = lagrangian.n_samples, lagrangian.n_classes
        heights = [n] if n_classes == 2 else [n, n * n_classes]
        if scores.ndim != 2 or scores.shape[0] not in heights:
            raise ValueError(
                f"scores must have {' or '.join(map(str, heights))} rows for {n} samples of "
                f"{n_classes} classes, got shape {scores.shape}."
            )
        if metric not in ("scores", "weights"):
            raise ValueError(f"metric must be 'scores' or 'weights', got {metric!r}.")
        self.lagrangian = lagrangian
        self.metric = metric
        self.l2 = l2
        self._sparse = bool(sparse.issparse(scores))
        as_array: Any = sparse.csr_array if self._sparse else np.asarray
        self.scores: Any = as_array(scores, dtype=np.float64)
        N = scores.shape[1]
        self.shape = (N, n_classes) if n_classes > 2 and scores.shape[0] == n else (N,)
        self.margin_shape = (n,) if n_classes == 2 else (n, n_classes)
        self.offset = np.asarray(offset, dtype=np.float64)
        on = np.ones(N, dtype=bool) if penalised is None else np.asarray(penalised, dtype=bool)
        self.ridge = (l2 * on).reshape(-1, *[1] * (len(self.shape) - 1))
        self.row_weight = lagrangian.rows.apply_weights(np.ones(n), slice(None))

    def margin(self, weights: Float) -> Float:
        """Scores of the training rows at given weights.

        Parameters
        ----------
        weights : ndarray of shape ``shape``
            Weights of the weak learners.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        return np.asarray((self.scores @ weights).reshape(self.margin_shape) + self.offset)

    def objective(self, weights: Float) -> float:
        """Objective f at given weights: weighted mean cross-entropy plus ridge.

        Parameters
        ----------
        weights : ndarray of shape ``shape``
            Weights of the weak learners.

        Returns
        -------
        float
        """
        fit = self.lagrangian.objective(self.lagrangian.at(self.margin(weights)).statistics())
        return fit + float((self.ridge * weights**2).sum()) / 2

    def violations(self, weights: Float) -> Float:
        """Constraints g at given weights: rate minus bound.

        Parameters
        ----------
        weights : ndarray of shape ``shape``
            Weights of the weak learners.

        Returns
        -------
        ndarray of shape (m,)
        """
        statistics = self.lagrangian.at(self.margin(weights)).statistics()
        return self.lagrangian.constraints.violations(statistics)

    def pull_back(self, rows: Array) -> Float:
        """Pull per-row derivatives, which the Lagrangian multiplies by W, back to weights."""
        pulled = self.scores.T @ rows.reshape(-1, *self.shape[1:])
        return np.asarray(pulled / self.lagrangian.total_weight)

    def root_weighted(self, row_weight: Float) -> Any:
        """Score matrix with row i multiplied by the root of its weight."""
        root = np.sqrt(np.repeat(row_weight, self.scores.shape[0] // row_weight.size))
        multiply = self.scores.multiply if self._sparse else self.scores.__mul__
        return multiply(root[:, None])

    def largest_eigenvalue(self, row_weight: Float) -> float:
        """Largest eigenvalue of ``sum_i row_weight_i S_i' S_i``."""
        rooted = self.root_weighted(row_weight)
        if rooted.shape[1] > MAX_DENSE:
            start = np.ones(min(rooted.shape))
            return float(svds(rooted, k=1, v0=start, return_singular_vectors=False)[0] ** 2)
        return float(np.linalg.eigvalsh(self._second_moment(rooted))[-1])

    def _second_moment(self, rooted: Any) -> Float:
        moment = rooted.T @ rooted
        return np.asarray(moment.toarray() if self._sparse else moment)

    @cached_property
    def smoothness(self) -> float:
        """Largest eigenvalue of the mean second moment of scores: 2 D = it, for a unit change."""
        return self.largest_eigenvalue(self.row_weight / self.row_weight.sum())

    @cached_property
    def coordinates(self) -> Any:
        """Matrix T whose columns are orthonormal in the second moment of scores plus ridge.

        In ``x = x_k + T z`` the Hessian of every subproblem is nearly a multiple of the identity,
        whatever the units and correlations of the weak learners; directions that change no score
        and no penalty are left out. Large dictionaries are only scaled.
        """
        rooted = self.root_weighted(self.row_weight / self.row_weight.sum())
        extra = self.ridge.ravel() + (self.smoothness if self.metric == "weights" else 0.0)
        N = rooted.shape[1]
        diagonal = np.asarray((rooted**2).sum(axis=0)) + extra
        scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros(N), where=diagonal > 0)
        if N > MAX_DENSE:
            return sparse.diags_array(scale)
        gram = self._second_moment(rooted) + np.diag(extra)
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        kept = values > N * np.finfo(float).eps * values[-1]
        return scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
