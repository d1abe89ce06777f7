"""mmm-fair's gradient boosting: a penalty on the squared gap of mean scores."""

from __future__ import annotations

from typing import Any

from mmm_fair import MMM_Fair_GradientBoostedClassifier

from .rules import Rule
from .split import Fitted, Split

CONSTRAINTS = {
    "selection_rate_gap": "DP", "fpr_gap": "FPR", "tpr_gap": "TPR", "equalized_odds": "EO"
}  # fmt: skip


class MMMFair:
    """The same trees from scikit-learn's histograms; what is asked is the rate of the penalty.

    A rate of 1 makes the penalty's gradients as large as those of the loss, on average.
    """

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._split = split
        self._trees = {
            "max_iter": booster["n_estimators"],
            "learning_rate": booster["learning_rate"],
            "max_depth": booster["max_depth"],
            "max_leaf_nodes": booster["num_leaves"],
            "early_stopping": False,
            "random_state": 0,
        }

    def fit(self, rule: Rule, asked: float) -> Fitted:
        split = self._split
        model = MMM_Fair_GradientBoostedClassifier(
            constraint=CONSTRAINTS[rule.task], alpha=asked,
            saIndex=split.groups[:, None], store_iter_metrics=False, **self._trees,
        )  # fmt: skip
        model.fit(split.X, split.y)
        return Fitted(lambda X, groups: model.predict(X))
