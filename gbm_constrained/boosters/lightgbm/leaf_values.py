"""Values of the leaves of LightGBM's boosters, and boosters with other values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.boosters.leaf_values import indicate_leaves, name_leaves
from gbm_constrained.boosters.lightgbm.model_text import shift_intercept, split_trees, with_text
from gbm_constrained.boosters.lightgbm.tree_weights import LGBMTreeWeights
from gbm_constrained.training.black_box_model import ScoreColumns


class LGBMLeafValues(LGBMTreeWeights):
    """Values of the leaves of a trained classifier, up to its best iteration.

    Parameters
    ----------
    model : LGBMClassifier
        A classifier of two classes.

    Raises
    ------
    ValueError
        If the booster averages its trees, has several trees in a round, or linear leaves.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        trees = split_trees(model.booster_.model_to_string())[1]
        if any("\nis_linear=1" in tree for tree in trees):
            raise ValueError(
                "space='leaves' changes one value of each leaf, and linear_tree=True has a linear "
                "function in it: use space='trees'."
            )
        booster = model.booster_
        values = [
            [booster.get_leaf_output(t, i) for i in range(_count_leaves(tree))]
            for t, tree in enumerate(trees)
        ]
        self._sizes = np.array([len(of_tree) for of_tree in values])
        self.names = name_leaves(self._sizes)
        self.start = np.concatenate(values).astype(np.float64)

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Make a column for each leaf, and put further columns beside them."""
        table = np.asarray(X) if isinstance(X, list) else X
        leaves = self.model.booster_.predict(table, pred_leaf=True)
        leaves = np.asarray(leaves).reshape(len(beside), -1).astype(np.intp)
        return ScoreColumns(indicate_leaves(leaves, self._sizes, beside), 0.0)

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the values of the leaves, and add to all scores."""
        booster = self.model.booster_
        changed = with_text(booster, booster.model_to_string())
        values = np.split(parameters, np.cumsum(self._sizes)[:-1])
        for t, of_tree in enumerate(values):
            for i, value in enumerate(of_tree.tolist()):
                changed.set_leaf_output(t, i, value)
        changed.best_iteration = changed.num_trees() if booster.best_iteration > 0 else 0
        self._take(shift_intercept(changed, np.array([intercept])))


def _count_leaves(tree: str) -> int:
    return int(tree.partition("\nnum_leaves=")[2].partition("\n")[0])
