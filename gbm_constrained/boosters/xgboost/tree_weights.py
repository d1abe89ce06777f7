"""Scores of each round of XGBoost's boosters, and boosters with other weights of the rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.boosters import ubjson
from gbm_constrained.boosters.group_tree import GroupTree
from gbm_constrained.boosters.tree_weights import check_number, collect_rounds
from gbm_constrained.boosters.xgboost.group_tree import append_group_tree, intercept_of_sum
from gbm_constrained.boosters.xgboost.merging import (
    best_rounds,
    scale_leaves,
)
from gbm_constrained.boosters.xgboost.model import (
    keep_attributes,
    shift_intercept,
)
from gbm_constrained.decision.group_shifts import GroupOffsets
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
        self._base = intercept_of_sum(model.get_booster())
        n_rounds = best_rounds(model.get_booster()).num_boosted_rounds()
        self.names = [f"tree[{t}]" for t in range(n_rounds)]
        self.start = np.ones(n_rounds)

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Score rows by each round, and put further columns beside the scores."""
        return ScoreColumns(score_rounds(self.model, X, beside), self._base)

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Weigh the rounds, and add to all scores."""
        self._take(weight_rounds(self.model.get_booster(), parameters, intercept))

    def append_offsets(self, X: Any, offsets: GroupOffsets, groups: Codes) -> None:
        """Append a tree with the offsets of groups."""
        self._take(append_group_tree(self.model.get_booster(), GroupTree.of(X, offsets, groups)))

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
    intercept_of_sum(booster)
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
