"""Objectives: functions of the confusion matrix, and metrics that are only a function to call."""

from gbm_constrained.constraints.rates import cost
from gbm_constrained.metrics import callables as _callables
from gbm_constrained.metrics.black_box import BlackBox
from gbm_constrained.metrics.callables import *  # noqa: F403 - `__all__` there lists the names
from gbm_constrained.metrics.callables import metric
from gbm_constrained.metrics.surrogates import surrogate
from gbm_constrained.metrics.text import format_metric, parse_metric

__all__ = ["BlackBox", "cost", "format_metric", "metric", "parse_metric", "surrogate"]
__all__ += _callables.__all__
