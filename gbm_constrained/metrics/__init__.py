"""Objectives that are functions of the confusion matrix, for ``maximize=`` and ``minimize=``."""

from gbm_constrained.metrics.callables import cost, metric
from gbm_constrained.metrics.f_measures import f1_macro, f1_micro, f_beta
from gbm_constrained.metrics.recalls import (
    balanced_accuracy,
    g_mean,
    h_mean,
    min_recall,
    q_mean,
)

__all__ = [
    "balanced_accuracy",
    "cost",
    "f1_macro",
    "f1_micro",
    "f_beta",
    "g_mean",
    "h_mean",
    "metric",
    "min_recall",
    "q_mean",
]
