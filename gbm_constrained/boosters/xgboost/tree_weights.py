"""Scores of each round of XGBoost's boosters, and boosters with other weights of the rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._typing import Codes, Float
from gbm_constrained.boosters import ubjson
from gbm_constrained.boosters.tree_weights import RoundScores, check_number
from gbm_constrained.boosters.xgboost.merging import best_rounds, intercept_of, scale_leaves
from gbm_constrained.boosters.xgboost.model import has_dropped_trees, shift_intercept


def score_rounds(model: xgb.XGBClassifier, X: Any, groups: Codes | None = None) -> RoundScores:
    """Score rows by each round, up to the best iteration.

    Parameters
    ----------
    model : XGBClassifier
        A classifier of two classes.
    X : array-like of shape (n_samples, n_features)
        Rows.
    groups : ndarray of int of shape (n_samples,), default=None
        Group of each row.

    Returns
    -------
    RoundScores

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """
    base = _check(model.get_booster())
    booster = best_rounds(model.get_booster())
    # A base margin takes the place of the intercept, so that none is rounded away.
    start = np.zeros(X.shape[0], dtype=np.float32)
    columns = [
        model.predict(X, output_margin=True, base_margin=start, iteration_range=(t, t + 1))
        for t in range(booster.num_boosted_rounds())
    ]
    return RoundScores(np.stack(columns, axis=1), base, groups)


def weight_rounds(booster: xgb.Booster, weights: Float, intercept: float) -> xgb.Booster:
    """Make a booster whose rounds have weights, up to its best iteration.

    Parameters
    ----------
    booster : Booster
        A booster of two classes.
    weights : ndarray of shape (n_rounds,)
        Weight of each round up to the best iteration.
    intercept : float
        What is added to all scores.

    Returns
    -------
    Booster
        Its file is read by XGBoost alone.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """
    _check(booster)
    booster = best_rounds(booster)
    config, data = booster.save_config(), booster.save_raw("ubj")
    forest = ubjson.read(data)["learner"]["gradient_booster"]["model"]
    sizes = np.diff(forest["iteration_indptr"])
    check_number(weights, sizes.size)
    for tree, weight in zip(forest["trees"], np.repeat(weights, sizes), strict=True):
        scale_leaves(tree, np.float32(weight))  # The arrays are views of the data.
    weighted = xgb.Booster()
    weighted.load_model(data)
    weighted.load_config(config)
    weighted.set_attr(best_iteration=None, best_score=None)
    shift_intercept(weighted, np.array([intercept]))
    return weighted


def _check(booster: xgb.Booster) -> float:
    """Refuse boosters that are no sum of trees for two classes, or return the intercept."""
    read = ubjson.read(booster.save_raw("ubj"))
    name = "dart" if has_dropped_trees(booster) else read["learner"]["gradient_booster"]["name"]
    if name != "gbtree":
        raise ValueError(
            f"space='trees' gives trees their weights, and booster={name!r} has weights of its "
            f"own: use booster='gbtree'."
        )
    intercept = intercept_of(read)
    if intercept.size > 1:
        raise ValueError(
            "space='trees' takes boosters of two classes, and this one has scores of several "
            "classes."
        )
    return float(intercept[0])
