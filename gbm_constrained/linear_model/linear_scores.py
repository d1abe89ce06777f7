"""Scores that are linear in weights, and their geometry."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import svds

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.problem.lagrangian import Lagrangian

MAX_DENSE = 1500  # Largest number of weights whose second moments are factorised.


class LinearScores:
    """A fixed set of weak learners on the rows of a problem.

    Parameters and attributes are those of
    :class:`~gbm_constrained.linear_model.DictionaryLearner`.
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
        n, n_scores = lagrangian.n_samples, lagrangian.rows.n_scores
        heights = [n] if n_scores == 1 else [n, n * n_scores]
        if scores.ndim != 2 or scores.shape[0] not in heights:
            raise ValueError(
                f"scores must have {' or '.join(map(str, heights))} rows for {n} samples of "
                f"{n_scores} score{'s' * (n_scores > 1)} each, got shape {scores.shape}."
            )
        if metric not in ("scores", "weights"):
            raise ValueError(f"metric must be 'scores' or 'weights', got {metric!r}.")
        if metric == "weights" and not lagrangian.constants.are_global:
            raise ValueError(
                "metric='weights' needs losses whose slopes are bounded, and those of numbers are "
                "not: use metric='scores'."
            )
        self.lagrangian = lagrangian
        self.metric = metric
        self.l2 = l2
        self._sparse = bool(sparse.issparse(scores))
        as_array: Any = sparse.csr_array if self._sparse else np.asarray
        self.scores: Any = as_array(scores, dtype=np.float64)
        N = scores.shape[1]
        self.shape = (N, n_scores) if n_scores > 1 and scores.shape[0] == n else (N,)
        self.margin_shape = (n,) if n_scores == 1 else (n, n_scores)
        self.offset = np.asarray(offset, dtype=np.float64)
        on = np.ones(N, dtype=bool) if penalised is None else np.asarray(penalised, dtype=bool)
        self.ridge = (l2 * on).reshape(-1, *[1] * (len(self.shape) - 1))
        self.row_weight = lagrangian.rows.apply_weights(np.ones(n), slice(None))

    def margin(self, weights: Float) -> Float:
        """Compute the scores of rows; shape (n_samples,) or (n_samples, n_classes)."""
        return np.asarray((self.scores @ weights).reshape(self.margin_shape) + self.offset)

    def objective(self, weights: Float) -> float:
        """Compute the objective f: weighted mean loss plus ridge."""
        fit = self.lagrangian.objective(self.lagrangian.at(self.margin(weights)).statistics())
        return fit + float((self.ridge * weights**2).sum()) / 2

    def violations(self, weights: Float) -> Float:
        """Compute the constraints g, rate minus bound; shape (m,)."""
        statistics = self.lagrangian.at(self.margin(weights)).statistics()
        return self.lagrangian.constraints.violations(statistics)

    def pull_back(self, rows: Array) -> Float:
        """Pull per-row derivatives, which the Lagrangian multiplies by W, back to weights."""
        pulled = self.scores.T @ rows.reshape(-1, *self.shape[1:])
        return np.asarray(pulled / self.lagrangian.total_weight)

    def weight_by_root(self, row_weight: Float, index: Codes | None = None) -> Any:
        """Multiply rows of the score matrix, all or those of some samples, by roots of weights."""
        scores = self.scores if index is None else self.scores[index]
        root = np.sqrt(np.repeat(row_weight, scores.shape[0] // max(row_weight.size, 1)))
        multiply = scores.multiply if self._sparse else scores.__mul__
        return multiply(root[:, None])

    def largest_eigenvalue(self, row_weight: Float) -> float:
        """Compute the largest eigenvalue of ``sum_i row_weight_i S_i' S_i``."""
        rooted = self.weight_by_root(row_weight)
        if rooted.shape[1] > MAX_DENSE:
            start = np.ones(min(rooted.shape))
            return float(svds(rooted, k=1, v0=start, return_singular_vectors=False)[0] ** 2)
        return float(np.linalg.eigvalsh(self.second_moment(rooted))[-1])

    def second_moment(self, rooted: Any) -> Float:
        """Multiply a score matrix whose rows have weights by its transpose."""
        moment = rooted.T @ rooted
        return np.asarray(moment.toarray() if self._sparse else moment)

    @cached_property
    def smoothness(self) -> float:
        """Largest eigenvalue of the mean second moment of scores, which is 2 D of a unit step."""
        return self.largest_eigenvalue(self.row_weight / self.row_weight.sum())

    @cached_property
    def coordinates(self) -> Any:
        """Matrix T whose columns are orthonormal in the second moment of scores plus ridge.

        In ``x = x_k + T z`` the Hessian of every subproblem is nearly a multiple of the identity,
        whatever the units and correlations of the weak learners. Directions that change no score
        and no penalty are left out; large dictionaries are only scaled.
        """
        rooted = self.weight_by_root(self.row_weight / self.row_weight.sum())
        extra = self.ridge.ravel() + (self.smoothness if self.metric == "weights" else 0.0)
        N = rooted.shape[1]
        diagonal = np.asarray((rooted**2).sum(axis=0)) + extra
        scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros(N), where=diagonal > 0)
        if N > MAX_DENSE:
            return sparse.diags_array(scale)
        gram = self.second_moment(rooted) + np.diag(extra)
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        kept = values > N * np.finfo(float).eps * values[-1]
        return scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
