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
from sklearn.svm import LinearSVC

from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier, CrossFit
from gbm_constrained.constraints.rates import error_rate, fpr, gap, selection_rate
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
from gbm_constrained.linear_model.svm import ConstrainedLinearSVC


def groups_of(X, n_samples):
    """Two groups that depend on X alone and not on the classes, or else every other row."""
    values = X[:, [0]].toarray() if sparse.issparse(X) and X.format in ("csr", "csc") else X
    try:
        first = np.asarray(values, dtype=float)[:, 0]
    except (TypeError, ValueError, IndexError):
        first = np.arange(n_samples)
    with np.errstate(invalid="ignore"):
        found = np.floor(100 * first) % 2 == 0
    return found if 0 < found.sum() < n_samples == found.size else np.arange(n_samples) % 2 == 0


class WithGroups:
    """Gives ``fit`` the groups that a gap compares."""

    def __init_subclass__(cls):
        parents_fit = cls.__mro__[2].fit

        @functools.wraps(parents_fit)  # the checks look for sample_weight in the signature
        def fit(self, X, y, *args, **kwargs):
            n_samples = X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))
            groups = {"half": groups_of(X, n_samples)}
            return parents_fit(self, X, y, *args, sensitive_features=groups, **kwargs)

        cls.fit = fit


class GroupedXGB(WithGroups, ConstrainedXGBClassifier):
    pass


class GroupedLGBM(WithGroups, ConstrainedLGBMClassifier):
    pass


class GroupedLogistic(WithGroups, ConstrainedLogisticRegression):
    pass


class GroupedSVC(WithGroups, ConstrainedLinearSVC):
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


class BinarySVC(_TwoClasses, LinearSVC):
    """The parent on the data that the checks make for two classes."""


OPTIONS = {
    "xgboost": {"n_estimators": 3, "n_jobs": 1},
    "lightgbm": {"n_estimators": 5, "n_jobs": 1, "verbose": -1},
    "logistic": {},
    "svm": {},
}
# Fewer folds and iterations than by default, for the sake of time.
CONSTRAINED_OPTIONS = {
    "xgboost": {"measure_on": CrossFit(2)},
    "lightgbm": {"measure_on": CrossFit(2)},
    "logistic": {"n_iterations": 5},
    "svm": {"n_iterations": 3},
}
OWN = {
    "xgboost": ConstrainedXGBClassifier,
    "lightgbm": ConstrainedLGBMClassifier,
    "logistic": ConstrainedLogisticRegression,
    "svm": ConstrainedLinearSVC,
}
GROUPED = {
    "xgboost": GroupedXGB,
    "lightgbm": GroupedLGBM,
    "logistic": GroupedLogistic,
    "svm": GroupedSVC,
}
PARENTS = {
    "xgboost": xgb.XGBClassifier,
    "lightgbm": lgb.LGBMClassifier,
    "logistic": LogisticRegression,
    "svm": LinearSVC,
}
BINARY_PARENTS = {
    "xgboost": BinaryXGB,
    "lightgbm": BinaryLGBM,
    "logistic": BinaryLogistic,
    "svm": BinarySVC,
}


def library_of(estimator):
    """Name of the library whose class an estimator is of."""
    return next(name for name, parent in PARENTS.items() if isinstance(estimator, parent))


def estimators():
    """Each classifier without constraints, with a Neyman-Pearson one and with gaps."""
    made = []
    for library, options in OPTIONS.items():
        more = {**options, **CONSTRAINED_OPTIONS[library]}
        made += [
            OWN[library](constraints=[], **options),
            OWN[library](constraints=[fpr() <= 0.1], **more),
            GROUPED[library](
                constraints=[gap(selection_rate(), by="half", min_group_size=1) <= 0.1], **more
            ),
        ]
        if library not in ("logistic", "svm"):  # of any number of classes
            rule = gap(error_rate(), by="half", min_group_size=1) <= 0.5
            made.append(GROUPED[library](constraints=[rule], measure_on="holdout", **options))
    return made
