"""Scores of each round of LightGBM's boosters, and boosters with other weights of the rounds."""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.boosters.group_tree import GroupTree
from gbm_constrained.boosters.lightgbm.group_tree import append_group_tree, split_sum
from gbm_constrained.boosters.lightgbm.merging import scale_tree
from gbm_constrained.boosters.lightgbm.model_text import (
    add_intercept,
    join_trees,
    with_text,
)
from gbm_constrained.boosters.tree_weights import check_number, collect_rounds
from gbm_constrained.decision.group_shifts import GroupOffsets
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
        split_sum(model.booster_.model_to_string(num_iteration=1))
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

    def append_offsets(self, X: Any, offsets: GroupOffsets, groups: Codes) -> None:
        """Append a tree with the offsets of groups."""
        self._take(append_group_tree(self.model.booster_, GroupTree.of(X, offsets, groups)))

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
    head, trees, rest = split_sum(booster.model_to_string())
    check_number(weights, len(trees))
    scaled = [scale_tree(tree, w) for tree, w in zip(trees, weights.tolist(), strict=True)]
    text = add_intercept(join_trees(head, scaled, rest), [intercept])
    weighted = with_text(booster, text)
    weighted.best_iteration = len(trees) if booster.best_iteration > 0 else 0
    return weighted
