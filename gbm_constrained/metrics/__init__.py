"""Objectives: functions of the confusion matrix, and metrics that are only a function to call."""

from gbm_constrained.constraints.rates import cost
from gbm_constrained.metrics.black_box import BlackBox
from gbm_constrained.metrics.callables import (
    balanced_accuracy,
    f1_macro,
    f1_micro,
    f_beta,
    g_mean,
    h_mean,
    metric,
    min_recall,
    q_mean,
)
from gbm_constrained.metrics.surrogates import surrogate
from gbm_constrained.metrics.text import format_metric, parse_metric

__all__ = [
    "BlackBox",
    "balanced_accuracy",
    "cost",
    "f1_macro",
    "f1_micro",
    "f_beta",
    "format_metric",
    "g_mean",
    "h_mean",
    "metric",
    "min_recall",
    "parse_metric",
    "q_mean",
    "surrogate",
]
