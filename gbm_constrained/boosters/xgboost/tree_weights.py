"""Scores of each round of XGBoost's boosters, and boosters with other weights of the rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._typing import Array, Float
from gbm_constrained.boosters import ubjson
from gbm_constrained.boosters.tree_weights import check_number, collect_rounds
from gbm_constrained.boosters.xgboost.merging import (
    best_rounds,
    concatenate,
    config_of,
    intercept_of,
    scale_leaves,
)
from gbm_constrained.boosters.xgboost.model import (
    has_dropped_trees,
    keep_attributes,
    shift_intercept,
)
from gbm_constrained.training.black_box_model import ScoreColumns


class XGBTreeWeights:
    """Weights of the rounds of a trained classifier, up to its best iteration.

    Parameters
    ----------
    model : XGBClassifier
        A classifier of two classes.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """

    takes_offsets = True

    def __init__(self, model: Any) -> None:
        self.model = model
        self._base = _check(model.get_booster())
        n_rounds = best_rounds(model.get_booster()).num_boosted_rounds()
        self.names = [f"tree[{t}]" for t in range(n_rounds)]
        self.start = np.ones(n_rounds)

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Score rows by each round, and put further columns beside the scores."""
        return ScoreColumns(score_rounds(self.model, X, beside), self._base)

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Weigh the rounds, and add to all scores."""
        self._take(weight_rounds(self.model.get_booster(), parameters, intercept))

    def append_offsets(self, table: Any, offsets: Float) -> None:
        """Append a tree with the offsets of groups."""
        rows = xgb.DMatrix(table, missing=self.model.missing, enable_categorical=True)
        self._take(append_offsets(self.model.get_booster(), rows, offsets))

    def _take(self, booster: xgb.Booster) -> None:
        self.model._Booster = booster


def score_rounds(model: xgb.XGBClassifier, X: Any, beside: Array) -> Array:
    """Score rows by each round, up to the best iteration, without the intercept.

    Parameters
    ----------
    model : XGBClassifier
        A classifier of two classes that is a sum of trees.
    X : array-like of shape (n_samples, n_features)
        Rows.
    beside : ndarray of shape (n_samples, k)
        Columns to put beside the scores.

    Returns
    -------
    ndarray of float32 of shape (n_samples, n_rounds + k)
    """
    # A base margin takes the place of the intercept, so that none is rounded away.
    start = np.zeros(len(beside), dtype=np.float32)

    def score(t: int) -> Array:
        found = xgb.XGBClassifier.predict(
            model, X, output_margin=True, base_margin=start, iteration_range=(t, t + 1)
        )
        return np.asarray(found)

    return collect_rounds(score, best_rounds(model.get_booster()).num_boosted_rounds(), beside)


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
    shift_intercept(weighted, np.array([intercept]))
    return keep_attributes(weighted, booster)


def append_offsets(booster: xgb.Booster, rows: xgb.DMatrix, offsets: Float) -> xgb.Booster:
    """Append a tree that adds an offset to the scores of each group.

    Parameters
    ----------
    booster : Booster
        A booster of two classes.
    rows : DMatrix of shape (n_groups, n_features)
        A row of each group. The rows differ in the one feature that makes the groups, and
        categories are listed as in the booster's own training rows.
    offsets : ndarray of shape (n_groups,)
        Offset of each group.

    Returns
    -------
    Booster
        Its file is read by XGBoost alone.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """
    if not offsets.any():
        return booster
    rows.set_label(offsets)
    parameters = {
        "base_score": 0.0, "learning_rate": 1.0, "reg_lambda": 0.0, "min_child_weight": 0.0,
        "max_depth": 0, "max_leaves": len(offsets), "grow_policy": "lossguide",
        "max_cat_to_onehot": len(offsets) + 1, "nthread": 1,
    }  # fmt: skip
    by_group = xgb.train(parameters, rows, num_boost_round=1)
    read = ubjson.read(by_group.save_raw("ubj"))
    return append_forest(booster, read["learner"]["gradient_booster"]["model"])


def append_forest(booster: xgb.Booster, forest: dict[str, Any]) -> xgb.Booster:
    """Append the trees of a forest in XGBoost's binary form, up to the best iteration.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """
    _check(booster)
    booster = best_rounds(booster)
    read = ubjson.read(booster.save_raw("ubj"))
    concatenate([read["learner"]["gradient_booster"]["model"], forest])
    appended = xgb.Booster()
    appended.load_model(ubjson.write(read))
    appended.load_config(config_of(booster, read))
    keep_attributes(appended, booster)
    if booster.attr("best_iteration") is not None:  # ``predict`` takes the rounds up to it.
        appended.set_attr(best_iteration=str(appended.num_boosted_rounds() - 1))
    return appended


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
