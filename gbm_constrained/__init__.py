"""Gradient-boosted classifiers trained under constraints on their error rates."""

from gbm_constrained.lightgbm import ConstrainedLGBMClassifier
from gbm_constrained.logistic import ConstrainedLogisticRegression
from gbm_constrained.rates import Constraint, class_error, error_rate, fnr, fpr, label, log_loss
from gbm_constrained.xgboost import ConstrainedXGBClassifier

__version__ = "0.1.0"

__all__ = [
    "ConstrainedLGBMClassifier",
    "ConstrainedLogisticRegression",
    "ConstrainedXGBClassifier",
    "Constraint",
    "class_error",
    "error_rate",
    "fnr",
    "fpr",
    "label",
    "log_loss",
]
