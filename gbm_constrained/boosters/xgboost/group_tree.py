"""A tree of offsets of groups, appended to a booster of XGBoost."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained.boosters import ubjson
from gbm_constrained.boosters.group_tree import GroupTree
from gbm_constrained.boosters.xgboost.merging import (
    best_rounds,
    concatenate,
    config_of,
    intercept_of,
)
from gbm_constrained.boosters.xgboost.model import has_dropped_trees, keep_attributes

NO_PARENT = 2147483647  # As XGBoost writes it.


def append_group_tree(booster: xgb.Booster, tree: GroupTree) -> xgb.Booster:
    """Append a tree of offsets of groups, after the best iteration.

    Parameters
    ----------
    booster : Booster
        A booster with one score for each row.
    tree : GroupTree
        The offsets.

    Returns
    -------
    Booster
        Its file is read by XGBoost alone.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """
    intercept_of_sum(booster)
    written = _write(tree, booster.num_features())
    forest = {
        "trees": [written], "tree_info": [0], "iteration_indptr": [0, 1],
        "weight_drop": np.ones(1, dtype=">f4"),
    }  # fmt: skip
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


def intercept_of_sum(booster: xgb.Booster) -> float:
    """Find the intercept of a booster that is a sum of trees for two classes, or refuse it."""
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


def _write(tree: GroupTree, n_features: int) -> dict[str, Any]:
    """Write a tree as XGBoost does in its binary form."""
    nodes = tree.nodes
    is_leaf = np.array([node.feature is None for node in nodes])
    category = np.array([-1 if node.category is None else node.category for node in nodes])
    value = np.array([node.value for node in nodes])
    parents = np.full(len(nodes), NO_PARENT)
    for i, node in enumerate(nodes):
        parents[[j for j in (node.left, node.right) if j >= 0]] = i
    at = np.flatnonzero(category >= 0)
    threshold = np.array([_next_single(node.threshold) for node in nodes])
    flags = {
        "default_left": ~is_leaf & (category < 0) | (category >= 0),
        "split_type": category >= 0,
    }
    numbers = {
        "base_weights": value,
        "loss_changes": np.zeros(len(nodes)),
        "split_conditions": np.where(is_leaf, value, threshold),
        "sum_hessian": np.array([node.weight for node in nodes]),
    }
    positions = {
        "categories": category[at],
        "categories_nodes": at,
        "left_children": np.array([node.left for node in nodes]),
        "parents": parents,
        "right_children": np.array([node.right for node in nodes]),
        "split_indices": np.array([node.feature or 0 for node in nodes]),
    }
    places = {"categories_segments": np.arange(at.size), "categories_sizes": np.ones(at.size)}
    arrays = {
        **{name: array.astype(np.uint8) for name, array in flags.items()},
        **{name: array.astype(">f4") for name, array in numbers.items()},
        **{name: array.astype(">i4") for name, array in positions.items()},
        **{name: array.astype(">i8") for name, array in places.items()},
    }
    size = {
        "num_deleted": "0", "num_feature": str(n_features), "num_nodes": str(len(nodes)),
        "size_leaf_vector": "1",
    }  # fmt: skip
    written = {**arrays, "id": 0, "tree_param": size}
    return dict(sorted(written.items()))


def _next_single(threshold: float) -> np.float32:
    """Find the least number of single precision above a threshold: XGBoost goes left below it."""
    single = np.float32(threshold)
    return single if float(single) > threshold else np.nextafter(single, np.float32(np.inf))
