"""Estimators as scikit-learn's checks are given them, and the parents to compare with.

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

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedLGBMRegressor,
    ConstrainedXGBClassifier,
    ConstrainedXGBRegressor,
    CrossFit,
)
from gbm_constrained.constraints.rates import (
    error_rate,
    fpr,
    gap,
    mean_loss,
    mean_prediction,
    selection_rate,
)
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


class GroupedXGBRegressor(WithGroups, ConstrainedXGBRegressor):
    pass


class GroupedLGBMRegressor(WithGroups, ConstrainedLGBMRegressor):
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


REGRESSORS = {"xgboost": ConstrainedXGBRegressor, "lightgbm": ConstrainedLGBMRegressor}
GROUPED_REGRESSORS = {"xgboost": GroupedXGBRegressor, "lightgbm": GroupedLGBMRegressor}
PARENTS_OF_REGRESSORS = {"xgboost": xgb.XGBRegressor, "lightgbm": lgb.LGBMRegressor}
# Checks that depend on the constraints; gaps of groups pass all the others as well.
OF_EACH_SETTING = (
    "check_class_weight_classifiers", "check_classifiers_classes", "check_classifiers_one_label",
    "check_classifiers_regression_target", "check_classifiers_train",
    "check_do_not_raise_errors_in_init_or_set_param", "check_dont_overwrite_attributes",
    "check_estimators_overwrite_params", "check_estimators_pickle", "check_fit2d_1sample",
    "check_fit_idempotent", "check_no_attributes_set_in_init", "check_regressors_train",
    "check_sample_weight_equivalence_on_dense_data",
)  # fmt: skip


def library_of(estimator):
    """Name of the library whose class an estimator is of."""
    parents = [*PARENTS.items(), *PARENTS_OF_REGRESSORS.items()]
    return next(name for name, parent in parents if isinstance(estimator, parent))


def depends_on_setting(estimator, check):
    """Whether a check is of use for an estimator: all are for a gap of groups."""
    constraint = "".join(map(str, estimator.constraints))
    is_gap = constraint.startswith(("gap(selection_rate", "gap(mean_prediction"))
    return is_gap or (check.func.__name__ in OF_EACH_SETTING and not check.keywords)


def estimators():
    """Each estimator without constraints, with one on all rows, and with gaps of groups."""
    made = []
    for library, options in OPTIONS.items():
        more = {**options, **CONSTRAINED_OPTIONS[library]}
        gaps = [
            gap(rate(), by="half", min_group_size=1) <= bound
            for rate, bound in ((selection_rate, 0.1), (mean_prediction, 0.1), (error_rate, 0.5))
        ]
        made += [
            OWN[library](constraints=[], **options),
            OWN[library](constraints=[fpr() <= 0.1], **more),
            GROUPED[library](constraints=gaps[:1], **more),
        ]
        if library not in REGRESSORS:
            continue
        made += [
            REGRESSORS[library](constraints=[], **options),
            REGRESSORS[library](constraints=[mean_loss("squared") <= 0.5], **more),
            GROUPED_REGRESSORS[library](constraints=gaps[1:2], **more),
            # Of any number of classes.
            GROUPED[library](constraints=gaps[2:], measure_on="holdout", **options),
        ]
    return made
