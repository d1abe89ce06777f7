"""Scores of each round of LightGBM's boosters, and boosters with other weights of the rounds."""

from __future__ import annotations

import re
from typing import Any

import lightgbm as lgb
import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.boosters.lightgbm.merging import scale_tree
from gbm_constrained.boosters.lightgbm.model_text import (
    add_intercept,
    join_trees,
    split_trees,
    with_text,
)
from gbm_constrained.boosters.tree_weights import check_number, collect_rounds
from gbm_constrained.training.black_box_model import ScoreColumns


class LGBMTreeWeights:
    """Weights of the rounds of a trained classifier, up to its best iteration.

    Parameters
    ----------
    model : LGBMClassifier
        A classifier of two classes.

    Raises
    ------
    ValueError
        If the booster averages its trees, or has several trees in a round.
    """

    takes_offsets = True

    def __init__(self, model: Any) -> None:
        self.model = model
        _check(model.booster_.model_to_string(num_iteration=1))
        best = model.booster_.best_iteration
        n_rounds = best if best > 0 else model.booster_.current_iteration()
        self.names = [f"tree[{t}]" for t in range(n_rounds)]
        self.start = np.ones(n_rounds)

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Score rows by each round, and put further columns beside the scores."""
        return ScoreColumns(score_rounds(self.model.booster_, X, beside), 0.0)

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Weigh the rounds, and add to all scores."""
        self._take(weight_rounds(self.model.booster_, parameters, intercept))

    def append_offsets(self, table: Any, offsets: Float) -> None:
        """Append a tree with the offsets of groups."""
        self._take(append_offsets(self.model.booster_, table, offsets))

    def _take(self, booster: lgb.Booster) -> None:
        self.model._Booster, self.model._best_iteration = booster, booster.best_iteration


def score_rounds(booster: lgb.Booster, X: Any, beside: Array) -> Array:
    """Score rows by each round, up to the best iteration.

    Parameters
    ----------
    booster : Booster
        A booster of two classes that is the sum of its trees.
    X : array-like of shape (n_samples, n_features)
        Rows.
    beside : ndarray of shape (n_samples, k)
        Columns to put beside the scores.

    Returns
    -------
    ndarray of float32 of shape (n_samples, n_rounds + k)
    """
    best = booster.best_iteration
    n_rounds = best if best > 0 else booster.current_iteration()
    table = np.asarray(X) if isinstance(X, list) else X

    def score(t: int) -> Array:
        found = booster.predict(table, raw_score=True, start_iteration=t, num_iteration=1)
        return np.asarray(found)

    return collect_rounds(score, n_rounds, beside)


def weight_rounds(booster: lgb.Booster, weights: Float, intercept: float) -> lgb.Booster:
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
        Its file is read by LightGBM alone.

    Raises
    ------
    ValueError
        If the booster averages its trees, or has several trees in a round.
    """
    text = booster.model_to_string()
    _check(text)
    head, trees, rest = split_trees(text)
    check_number(weights, len(trees))
    scaled = [scale_tree(tree, w) for tree, w in zip(trees, weights.tolist(), strict=True)]
    text = add_intercept(join_trees(head, scaled, rest), [intercept])
    weighted = with_text(booster, text)
    weighted.best_iteration = len(trees) if booster.best_iteration > 0 else 0
    return weighted


def append_offsets(booster: lgb.Booster, table: Any, offsets: Float) -> lgb.Booster:
    """Append a tree that adds an offset to the scores of each group.

    Parameters
    ----------
    booster : Booster
        A booster of two classes.
    table : array-like of shape (n_groups, n_features)
        A row of each group. The rows differ in the one feature that makes the groups, and
        categories are listed as in the booster's own training rows.
    offsets : ndarray of shape (n_groups,)
        Offset of each group.

    Returns
    -------
    Booster
        Its file is read by LightGBM alone.

    Raises
    ------
    ValueError
        If the booster averages its trees, or has several trees in a round.
    """
    if not offsets.any():
        return booster
    (tree,) = split_trees(_grow_offsets(table, offsets).model_to_string())[1]
    return append_tree(booster, tree)


def append_tree(booster: lgb.Booster, tree: str) -> lgb.Booster:
    """Append a tree in LightGBM's text, up to the best iteration.

    Raises
    ------
    ValueError
        If the booster averages its trees, or has several trees in a round.
    """
    text = booster.model_to_string()
    _check(text)
    head, trees, rest = split_trees(text)
    trees = [*trees, re.sub(r"\ATree=0", f"Tree={len(trees)}", tree)]
    appended = with_text(booster, join_trees(head, trees, rest))
    appended.best_iteration = len(trees) if booster.best_iteration > 0 else 0
    return appended


def _grow_offsets(table: Any, offsets: Float) -> lgb.Booster:
    """Let LightGBM find the splits between groups, and set the leaves to the very offsets."""
    n_groups = len(offsets)
    parameters = {
        "objective": "regression", "boost_from_average": False, "learning_rate": 1.0,
        "num_leaves": max(n_groups, 2), "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0.0,
        "min_data_in_bin": 1, "min_data_per_group": 1, "cat_l2": 0.0, "cat_smooth": 0.0,
        "max_cat_to_onehot": n_groups + 1, "feature_pre_filter": False, "num_threads": 1,
        "verbosity": -1,
    }  # fmt: skip
    found = lgb.train(parameters, lgb.Dataset(table, offsets), num_boost_round=1)
    leaves = np.ravel(found.predict(table, pred_leaf=True)).astype(int)
    for leaf, offset in zip(leaves.tolist(), offsets.tolist(), strict=True):
        found.set_leaf_output(0, leaf, offset)
    return found


def _check(text: str) -> None:
    """Refuse boosters that are not the sum of one tree in each round."""
    head = split_trees(text)[0]
    if "\naverage_output\n" in head:
        raise ValueError(
            "space='trees' weighs the trees of a sum, and boosting_type='rf' averages its trees: "
            "use another boosting_type."
        )
    if "\nnum_tree_per_iteration=1\n" not in head:
        raise ValueError(
            "space='trees' takes boosters of two classes, and this one has a tree for each of "
            "several classes in a round."
        )
