"""Parts of XGBoost's own objective: the intercept, and the scores that metrics see."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._typing import Array
from gbm_constrained.boosters.metrics import map_scores

EXACT_COUNTS = 2**24  # rows; up to so many, counts in single precision are exact


def find_intercept(y: Array, weight: Array | None, params: dict[str, Any]) -> Any:
    """Find ``base_score`` as XGBoost fits it under its own objective, to the last digit.

    ``base_score`` depends on labels and weights only, so one stump on a constant feature has it.
    """
    if weight is None and y.dtype.kind in "iu" and y.size < EXACT_COUNTS:
        count = np.bincount(y)
        y = np.flatnonzero(count)
        weight = count[y]
    rows = xgb.DMatrix(np.zeros((y.size, 1), dtype=np.float32), label=y, weight=weight)
    with xgb.config_context(verbosity=0):
        booster = xgb.train({**params, "max_depth": 1}, rows, 1)
    config = json.loads(booster.save_config())
    base_score = json.loads(config["learner"]["learner_model_param"]["base_score"])
    return base_score if isinstance(base_score, float) or len(base_score) > 1 else base_score[0]


def factors_of_labels(model: Any, classes: Array) -> Array:
    """Give the factors by ``scale_pos_weight`` of two classes, (n_classes,)."""
    factor = np.ones(classes.size)
    if classes.size == 2 and model.scale_pos_weight is not None:
        factor[1] = model.scale_pos_weight
    return factor


def open_booster(model: Any) -> xgb.Booster | None:
    """Give the booster that training continues from: itself, in a file or in a classifier."""
    if model is None:
        return None
    if isinstance(model, (str, os.PathLike)):
        return xgb.Booster(model_file=model)
    if isinstance(model, xgb.XGBModel):
        return model.get_booster()
    return model if isinstance(model, xgb.Booster) else None


def map_metrics(metrics: Any, function: Callable[[Array], Array]) -> Any:
    """Hand functions of scores to metrics, one or several; leave names as they are."""
    if isinstance(metrics, (list, tuple)):
        return [map_metrics(metric, function) for metric in metrics]
    return map_scores(metrics, function) if callable(metrics) else metrics


def find_classes(scores: Array) -> Array:
    """Find the class of the largest score, as ``multi:softmax`` hands it to metrics."""
    return np.asarray(scores.argmax(axis=1), dtype=np.float32)
