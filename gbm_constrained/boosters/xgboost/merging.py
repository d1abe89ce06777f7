r"""The mean of several boosters of XGBoost, as one booster.

.. math:: s(x) = \frac{1}{K} \sum_k \Big( b_k + \sum_t f_{kt}(x) \Big)

The trees of all boosters stand one after another, their leaves are divided by :math:`K`, and the
intercept is the mean of the intercepts :math:`b_k`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xgboost as xgb
from scipy.special import expit

from gbm_constrained._typing import Array
from gbm_constrained.boosters import ubjson
from gbm_constrained.boosters.xgboost.model import (
    has_dropped_trees,
    keep_first_rounds,
    shift_intercept,
)

OF_PROBABILITIES = ("binary:logistic", "binary:logitraw", "reg:logistic")
"""Objectives whose ``base_score`` is a probability."""
MAX_ROUNDING = 1e-6  # Rounding of the intercept that single precision leaves in other scores.


def merge_boosters(boosters: Sequence[xgb.Booster]) -> xgb.Booster:
    """Merge boosters into one whose raw score is the mean of their raw scores.

    Parameters
    ----------
    boosters : sequence of Booster
        Boosters of ``gbtree`` for the same columns and classes; of each, the rounds up to its
        best iteration are taken.

    Raises
    ------
    ValueError
        If the boosters have no trees whose leaves could be divided, or number the categories of
        a column differently.
    """
    boosters = [best_rounds(booster) for booster in boosters]
    for booster in boosters:
        _check_trees(booster)
    models = [ubjson.read(booster.save_raw("ubj")) for booster in boosters]
    first = models[0]
    forests = [model["learner"]["gradient_booster"]["model"] for model in models]
    _check_categories(forests)
    for forest in forests:
        for tree in forest["trees"]:
            scale_leaves(tree, np.float32(1.0 / len(forests)))
    concatenate(forests)
    intercept = np.mean([intercept_of(model) for model in models], axis=0)
    rounding = _set_intercept(first, intercept)
    merged = xgb.Booster()
    merged.load_model(ubjson.write(first))
    merged.load_config(config_of(boosters[0], first))
    merged.set_attr(best_iteration=None, best_score=None)  # of the first booster
    if np.abs(rounding).max() > MAX_ROUNDING and merged.num_boosted_rounds():
        shift_intercept(merged, rounding)
    return merged


def best_rounds(booster: xgb.Booster) -> xgb.Booster:
    """Cut a booster to the rounds that ``predict`` takes."""
    best = booster.attr("best_iteration")
    if best is None or int(best) + 1 == booster.num_boosted_rounds():
        return booster
    return keep_first_rounds(booster, int(best) + 1)


def _check_trees(booster: xgb.Booster) -> None:
    """Refuse a booster that is not a plain sum of trees."""
    name = json.loads(booster.save_config())["learner"]["gradient_booster"]["name"]
    name = "dart" if has_dropped_trees(booster) else name
    if name != "gbtree":
        raise ValueError(
            f"ensemble='folds' divides the leaves of trees, and booster={name!r} has its own "
            f"weights beside them: use booster='gbtree', or ensemble=None."
        )


def _check_categories(forests: list[dict[str, Any]]) -> None:
    """Refuse models that number the categories of a column differently."""
    if len({bytes(ubjson.write(forest.get("cats"))) for forest in forests}) > 1:
        raise ValueError(
            "ensemble='folds' merges boosters that number categories alike, and the rows of the "
            "folds have other lists of categories: give each column one fixed list of categories "
            "(pandas Categorical, polars Enum), or ensemble=None."
        )


def concatenate(forests: list[dict[str, Any]]) -> None:
    """Put the trees of all forests into the first one."""
    trees, info, sizes = [], [], [0]
    for forest in forests:
        trees += forest["trees"]
        info += list(forest["tree_info"])
        sizes += np.diff(forest["iteration_indptr"]).tolist()
    for i, tree in enumerate(trees):
        tree["id"] = i
    first = forests[0]
    if "weight_drop" in first:  # There from XGBoost 3.4 on, and ones for all but DART.
        first["weight_drop"] = np.concatenate([forest["weight_drop"] for forest in forests])
    first.update(trees=trees, tree_info=info, iteration_indptr=np.cumsum(sizes).tolist())
    first["gbtree_model_param"]["num_trees"] = str(len(trees))


def scale_leaves(tree: dict[str, Any], scale: Any) -> None:
    """Multiply the leaves of a tree of a model that has been read."""
    tree["base_weights"] *= scale
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:  # all classes in one tree
        tree["leaf_weights"] *= scale
    else:
        tree["split_conditions"][tree["left_children"] == -1] *= scale


def intercept_of(model: dict[str, Any]) -> Array:
    """Scores that the trees are added to, of shape (1,) or (n_classes,), as XGBoost computes."""
    learner = model["learner"]
    forest = learner["gradient_booster"]["model"]
    parameters = {**forest["gbtree_model_param"], "num_trees": "0"}
    empty = {
        **forest, "trees": [], "tree_info": [], "iteration_indptr": [0],
        "gbtree_model_param": parameters,
    }  # fmt: skip
    without_trees = {
        **learner,
        "gradient_booster": {"name": "gbtree", "model": empty},
        # Without trees XGBoost would find the intercept anew.
        "learner_model_param": {**learner["learner_model_param"], "boost_from_average": "0"},
    }
    booster = xgb.Booster()
    booster.load_model(ubjson.write({**model, "learner": without_trees}))
    row = xgb.DMatrix(np.zeros((1, booster.num_features())))
    found = booster.predict(row, output_margin=True, validate_features=False)
    return np.ravel(found).astype(np.float64)


def _set_intercept(model: dict[str, Any], intercept: Array) -> Array:
    """Set the intercept of a model, and return what single precision leaves out of it."""
    learner = model["learner"]
    is_probability = learner["objective"]["name"] in OF_PROBABILITIES
    base_score = expit(intercept) if is_probability else intercept
    parameters = learner["learner_model_param"]
    parameters["base_score"] = json.dumps(base_score.tolist())
    parameters["boost_from_average"] = "0"
    return np.asarray(intercept - intercept_of(model))


def config_of(booster: xgb.Booster, model: dict[str, Any]) -> str:
    """Write the configuration of a booster as that of the model that takes its place."""
    config = json.loads(booster.save_config())
    learner, merged = config["learner"], model["learner"]
    learner["learner_model_param"] = merged["learner_model_param"]
    n_trees = merged["gradient_booster"]["model"]["gbtree_model_param"]
    if "gbtree_model_param" in learner["gradient_booster"]:
        learner["gradient_booster"]["gbtree_model_param"] = n_trees
    return json.dumps(config)
