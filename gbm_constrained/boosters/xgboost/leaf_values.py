"""Values of the leaves of XGBoost's boosters, and boosters with other values."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.boosters import ubjson
from gbm_constrained.boosters.leaf_values import indicate_leaves, name_leaves
from gbm_constrained.boosters.xgboost.merging import best_rounds
from gbm_constrained.boosters.xgboost.model import keep_attributes, shift_intercept
from gbm_constrained.boosters.xgboost.tree_weights import XGBTreeWeights
from gbm_constrained.training.black_box_model import ScoreColumns


class XGBLeafValues(XGBTreeWeights):
    """Values of the leaves of a trained classifier, up to its best iteration.

    Parameters
    ----------
    model : XGBClassifier
        A classifier of two classes.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        trees = _trees_of(ubjson.read(best_rounds(model.get_booster()).save_raw("ubj")))
        self._nodes = [_leaf_nodes(tree) for tree in trees]
        self._sizes = np.array([nodes.size for nodes in self._nodes])
        self.names = name_leaves(self._sizes)
        values = [
            tree["split_conditions"][nodes] for tree, nodes in zip(trees, self._nodes, strict=True)
        ]
        self.start = np.concatenate(values).astype(np.float64)

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Make a column for each leaf, and put further columns beside them."""
        nodes = xgb.XGBClassifier.apply(self.model, X).reshape(len(beside), -1)
        leaves = [np.searchsorted(of_tree, nodes[:, t]) for t, of_tree in enumerate(self._nodes)]
        matrix = indicate_leaves(np.stack(leaves, axis=1), self._sizes, beside)
        return ScoreColumns(matrix, self._base)

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the values of the leaves, and add to all scores."""
        booster = best_rounds(self.model.get_booster())
        config, data = booster.save_config(), booster.save_raw("ubj")
        values = np.split(parameters.astype(np.float32), np.cumsum(self._sizes)[:-1])
        read = ubjson.read(data)
        for tree, nodes, of_tree in zip(_trees_of(read), self._nodes, values, strict=True):
            tree["split_conditions"][nodes] = of_tree  # The arrays are views of the data.
            tree["base_weights"][nodes] = of_tree
        changed = xgb.Booster()
        changed.load_model(data)
        changed.load_config(config)
        shift_intercept(changed, np.array([intercept]))
        self._take(keep_attributes(changed, booster))


def _trees_of(model: dict[str, Any]) -> list[dict[str, Any]]:
    trees: list[dict[str, Any]] = model["learner"]["gradient_booster"]["model"]["trees"]
    return trees


def _leaf_nodes(tree: dict[str, Any]) -> Codes:
    """List the nodes of a tree that are leaves."""
    return np.flatnonzero(np.asarray(tree["left_children"]) == -1)
