"""What XGBoost does under its own objective: intercept, probabilities for metrics, notes."""

from __future__ import annotations

import functools
import json
import os
from typing import Any

import numpy as np
import xgboost as xgb
from scipy.special import expit, softmax

from gbm_constrained._typing import Array

EXACT_COUNTS = 2**24  # Rows of which sums in single precision are exact.


def find_intercept(y: Array, weight: Array | None, params: dict[str, Any]) -> Any:
    """``base_score`` as XGBoost fits it under its own objective, to its last digit.

    It depends on labels and weights only: XGBoost is asked, with one stump on a constant feature.
    """
    if weight is None and y.size < EXACT_COUNTS:
        count = np.bincount(y)
        y = np.flatnonzero(count)
        weight = count[y]
    rows = xgb.DMatrix(np.zeros((y.size, 1), dtype=np.float32), label=y, weight=weight)
    with xgb.config_context(verbosity=0):
        booster = xgb.train({**params, "max_depth": 1}, rows, 1)
    config = json.loads(booster.save_config())
    base_score = json.loads(config["learner"]["learner_model_param"]["base_score"])
    return base_score if isinstance(base_score, float) or len(base_score) > 1 else base_score[0]


def booster_of(model: Any) -> xgb.Booster | None:
    """Give the booster that training continues from: itself, in a file or in a classifier."""
    if isinstance(model, (str, os.PathLike)):
        return xgb.Booster(model_file=model)
    if isinstance(model, xgb.XGBModel):
        return model.get_booster()
    return model if isinstance(model, xgb.Booster) else None


def on_probabilities(metric: Any) -> Any:
    """Let metrics of probabilities, one or a list, work on margins; leave names as they are."""
    if isinstance(metric, (list, tuple)):
        return [on_probabilities(m) for m in metric]
    if not callable(metric):
        return metric

    @functools.wraps(metric)
    def on_margins(y_true: Array, margin: Array, *args: Any, **kwargs: Any) -> Any:
        p = expit(margin) if margin.ndim == 1 else softmax(margin, axis=1)
        return metric(y_true, p, *args, **kwargs)

    return on_margins
