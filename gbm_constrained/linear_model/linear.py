"""Linear classifiers: features as weak learners."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.linear_model.dictionary import DictionaryLearner
from gbm_constrained.problem.lagrangian import Lagrangian


class LinearLearner(DictionaryLearner):
    r"""Coefficients of features, and an intercept.

    The "linear classifier-based" variant of Lin and Deng (2023), section 5: the score matrix is
    the table of features and the Bregman distance :math:`\frac12 \|x - x'\|^2` that of W = I, so
    that a subproblem is a ridge regression around the last iterate.

    Parameters
    ----------
    lagrangian : Lagrangian
        The problem on the rows of `X`, in float64.
    X : array or sparse array of shape (n_samples, n_features)
        Features.
    fit_intercept : bool, default=True
        Whether the last weight is an intercept. It is not penalised.
    l2 : float, default=0
        Ridge penalty ``l2 / 2 ||coef||^2`` of the objective, which is a mean over rows.
    metric : {"weights", "scores"}, default="weights"
        Space of the Bregman distance. "scores" does not depend on the units of the features.
    """

    def __init__(
        self,
        lagrangian: Lagrangian,
        X: Any,
        *,
        fit_intercept: bool = True,
        l2: float = 0.0,
        metric: Literal["scores", "weights"] = "weights",
    ) -> None:
        self.fit_intercept = fit_intercept
        self.n_features = X.shape[1]
        if fit_intercept:
            hstack: Any = sparse.hstack if sparse.issparse(X) else np.hstack
            X = hstack([X, np.ones((X.shape[0], 1))])
        penalised = np.arange(X.shape[1]) < self.n_features
        super().__init__(lagrangian, X, l2=l2, penalised=penalised, metric=metric)

    def rescale(self, weights: Float) -> Float:
        """Find the multiple of the scores, and the intercept, of least objective.

        An order of rows depends on neither, while the proxies of pair rates have a scale of their
        own. Decisions depend on the intercept. The weights stay as they are where a constraint
        moves, as a mean loss does.

        Parameters
        ----------
        weights : ndarray of shape (N,)
            Weights of a binary margin, the intercept last.
        """
        at, before = np.zeros_like(weights), self.violations(weights)
        may_shift = self.fit_intercept and self.lagrangian.constraints.has_tables_alone
        at[-1] = may_shift

        def move(step: Float) -> Float:
            return np.asarray(np.exp(step[0]) * weights + step[1] * at)

        def objective(step: Any) -> float:
            return self.objective(move(step))

        found: Any = minimize(objective, np.zeros(2), method="BFGS")
        moved = move(found.x)
        is_same = np.allclose(self.violations(moved), before, rtol=0, atol=ROUNDING)
        return moved if is_same and found.fun < self.objective(weights) else weights

    def coefficients(self, weights: Float) -> tuple[Float, Float]:
        """Split weights into coefficients and intercepts, in the shapes of scikit-learn.

        Parameters
        ----------
        weights : ndarray of shape ``shape``
            Weights of the features, and of the intercept last.

        Returns
        -------
        coef, intercept : ndarray
        """
        rows = np.atleast_2d(weights.T)
        intercept = rows[:, -1] if self.fit_intercept else np.zeros(rows.shape[0])
        return rows[:, : self.n_features].copy(), intercept.copy()
