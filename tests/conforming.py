"""Classifiers as scikit-learn's estimator checks are given them, and the parents to compare with.

A gap needs groups, which the checks do not give: subclasses here make them of X. The checks find
classes by name when they pickle, so that these live in a module.
"""

from __future__ import annotations

import functools

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier
from gbm_constrained.logistic import ConstrainedLogisticRegression
from gbm_constrained.rates import error_rate, fpr, gap, selection_rate


def groups_of(X, n_samples):
    """Two groups: rows above the median of the first column of X, or every other row."""
    values = X[:, [0]].toarray() if sparse.issparse(X) and X.format in ("csr", "csc") else X
    try:
        first = np.asarray(values, dtype=float)[:, 0]
    except (TypeError, ValueError, IndexError):
        first = np.arange(n_samples)
    found = first > np.median(first)
    return found if 0 < found.sum() < n_samples == found.size else np.arange(n_samples) % 2 == 0


class _WithGroups:
    """Gives ``fit`` the groups that a gap compares."""

    def __init_subclass__(cls):
        parents_fit = cls.__mro__[2].fit

        @functools.wraps(parents_fit)  # the checks look for sample_weight in the signature
        def fit(self, X, y, *args, **kwargs):
            n_samples = X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))
            groups = {"half": groups_of(X, n_samples)}
            return parents_fit(self, X, y, *args, sensitive_features=groups, **kwargs)

        cls.fit = fit


class GroupedXGB(_WithGroups, ConstrainedXGBClassifier):
    pass


class GroupedLGBM(_WithGroups, ConstrainedLGBMClassifier):
    pass


class GroupedLogistic(_WithGroups, ConstrainedLogisticRegression):
    pass


class _TwoClasses:
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class BinaryXGB(_TwoClasses, xgb.XGBClassifier):
    """The parent on the data that the checks make for two classes."""


class BinaryLGBM(_TwoClasses, lgb.LGBMClassifier):
    """The parent on the data that the checks make for two classes."""


class BinaryLogistic(_TwoClasses, LogisticRegression):
    """The parent on the data that the checks make for two classes."""


LIBRARIES = {
    "xgboost": (
        ConstrainedXGBClassifier, GroupedXGB, xgb.XGBClassifier, BinaryXGB,
        {"n_estimators": 5, "n_jobs": 1}, {},
    ),
    "lightgbm": (
        ConstrainedLGBMClassifier, GroupedLGBM, lgb.LGBMClassifier, BinaryLGBM,
        {"n_estimators": 5, "n_jobs": 1, "verbose": -1}, {},
    ),
    "logistic": (
        ConstrainedLogisticRegression, GroupedLogistic, LogisticRegression, BinaryLogistic,
        {}, {"n_iterations": 20},
    ),
}  # fmt: skip
NEYMAN_PEARSON = fpr() <= 0.1
GAP = gap(selection_rate(), by="half", min_group_size=1) <= 0.1
GAP_OF_SEVERAL = gap(error_rate(), by="half", min_group_size=1) <= 0.5
