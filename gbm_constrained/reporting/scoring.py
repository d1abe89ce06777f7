r"""Scores by which searches over parameters choose a model that meets its constraints.

Accuracy alone picks the loosest bound of a grid. :func:`constraint_scorer` scores a fitted model
on rows that it has not seen by

.. math:: \begin{cases} q & \text{if } \max_j z_j \le 0, \\
    q_{\min} - \max_j z_j & \text{otherwise,} \end{cases} \qquad
    z_j = \frac{v_j - b_j}{\sigma_j}

with the objective q, its smallest value :math:`q_{\min}`, and the value :math:`v_j` of a
constraint, its bound :math:`b_j` and its standard error :math:`\sigma_j`. A search takes the mean
of the folds, where a model that meets the constraints in each fold is above every other one. Of
models whose rates are at their bounds, a share of :math:`2^{-K}` meets one constraint in each of K
folds by chance, so that no fold needs a margin of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.metrics import check_scoring
from sklearn.utils.validation import check_is_fitted

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.evaluation.audit import innermost
from gbm_constrained.reporting.audit import audit

__all__ = ["constraint_scorer", "violations_of"]

LEVEL = 0.95


def constraint_scorer(
    constraints: Any = None, objective: Any = None, *, worst: float = 0.0
) -> ConstraintScorer:
    """Make a scorer that prefers models whose constraints are met on unseen rows.

    Parameters
    ----------
    constraints : Constraint, str or sequence of these, default=None
        Constraints that every model of the search is measured by. By default those of the model
        itself, so that a grid over bounds needs the ones that the user asks for in the end.
    objective : str or callable, default=None
        Scorer of the models that meet them, as scikit-learn's ``scoring=`` takes it. By default
        the model's own ``score``: accuracy, the metric of `maximize`, or R^2.
    worst : float, default=0.0
        Smallest value that the objective counts with: models that miss a constraint score less.
        Losses such as "neg_log_loss" need a smaller one.

    Returns
    -------
    ConstraintScorer
        A callable ``scorer(model, X, y, sensitive_features=None)`` for ``scoring=`` of
        scikit-learn's searches. With metadata routing,
        ``.set_score_request(sensitive_features=True)`` asks for the columns of groups.

    Raises
    ------
    ValueError
        When a model is scored, if it has no constraints and none are given.

    Examples
    --------
    >>> from gbm_constrained import ConstrainedLGBMClassifier, constraint_scorer, fpr
    >>> from sklearn.model_selection import GridSearchCV
    >>> grid = {"constraints": [[fpr() <= b] for b in (0.02, 0.05)], "num_leaves": [7, 31]}
    >>> search = GridSearchCV(
    ...     ConstrainedLGBMClassifier(), grid, scoring=constraint_scorer(fpr() <= 0.05)
    ... )
    """
    return ConstraintScorer(constraints, objective, worst)


class ConstraintScorer(BaseEstimator):  # type: ignore[misc]
    """Scores a fitted model by its objective and its constraints: see :func:`constraint_scorer`.

    Parameters
    ----------
    constraints : Constraint, str or sequence of these, default=None
        Constraints to measure; by default those of the model.
    objective : str or callable, default=None
        Scorer of scikit-learn; by default the model's own ``score``.
    worst : float, default=0.0
        Smallest value that the objective counts with.
    """

    def __init__(self, constraints: Any = None, objective: Any = None, worst: float = 0.0) -> None:
        self.constraints = constraints
        self.objective = objective
        self.worst = worst

    def score(self, model: Any, X: Any, y: Any, sensitive_features: Any = None) -> float:
        """Score a fitted model on rows that it has not seen.

        Parameters
        ----------
        model : fitted classifier or regressor
            The model, or a pipeline that ends with it.
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels or targets.
        sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
            Columns that constraints group by, next to those of `X`.

        Returns
        -------
        float
            The larger, the better.
        """
        asked = self.constraints
        if asked is None:
            asked = getattr(innermost(model), "constraints", None)
        if not check_constraints(asked):
            raise ValueError(
                f"The {type(model).__name__} has no constraints to score: give them, as in "
                f"constraint_scorer([fpr() <= 0.05])."
            )
        found = audit(model, X, y, asked, sensitive_features=sensitive_features, level=LEVEL)
        excess = float(violations_in_errors(found.frame).max())
        if excess > 0.0:
            return float(self.worst - excess)
        objective = check_scoring(model, scoring=self.objective)
        return max(float(objective(model, X, y)), self.worst)

    __call__ = score


def violations_in_errors(table: pd.DataFrame) -> Float:
    """Give the violation of each constraint of a report in standard errors of its value.

    It is zero where the constraint is met, and infinite where its value cannot be told.
    """
    sign = np.where(table["sense"] == "<=", 1.0, -1.0)
    value = table["value"].to_numpy(np.float64)
    violation = sign * (value - table["bound"])
    towards_bound = np.where(sign > 0.0, value - table["low"], table["high"] - value)
    error = np.maximum(towards_bound, 0.0) / norm.ppf(0.5 + LEVEL / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(violation <= ROUNDING, 0.0, violation / error)
    return np.asarray(np.where(np.isnan(found), np.inf, found))


def violations_of(model: Any) -> pd.Series:
    """Give the violations of a fitted model's constraints, as Optuna's trials state them.

    Parameters
    ----------
    model : fitted estimator of this package
        The model, or a pipeline that ends with it.

    Returns
    -------
    Series of shape (n_constraints,)
        Value minus bound of each constraint ``<= bound``, and bound minus value of each
        ``>= bound``, on held-out rows where the fit has them and on training rows elsewhere: at
        most zero where the constraint is met.

    Raises
    ------
    NotFittedError
        If the model is not fitted.
    """
    model = innermost(model)
    check_is_fitted(model)
    results = model.feasibility_.rules
    found = [
        result.constraint.sign * (result.value - result.constraint.bound) for result in results
    ]
    return pd.Series(found, [str(result.constraint) for result in results], name="violation")
