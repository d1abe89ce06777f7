"""XGBoost's own fit, and the parameters of its booster, for a black-box metric."""

from __future__ import annotations

from typing import ClassVar

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Codes
from gbm_constrained.boosters.black_box import BoosterBlackBoxAdapter
from gbm_constrained.boosters.xgboost.checks import find_without_gradients
from gbm_constrained.boosters.xgboost.leaf_values import XGBLeafValues
from gbm_constrained.boosters.xgboost.tree_weights import XGBTreeWeights


class XGBoostBlackBoxAdapter(BoosterBlackBoxAdapter):
    """``AdjustableAdapter`` of one ``fit`` of XGBoost.

    See :class:`~gbm_constrained.boosters.black_box.BoosterBlackBoxAdapter`.
    """

    models: ClassVar = {"trees": XGBTreeWeights, "leaves": XGBLeafValues}

    def check_adjustable(self, space: str) -> None:
        """Refuse boosters that are no sum of trees, and scores that training starts from."""
        super().check_adjustable(space)
        if self.adapter.arguments["base_margin"] is not None:
            raise ValueError(
                "base_margin= starts training from scores that are no part of the model, and a "
                "black-box metric is called with scores of the model alone: leave it out."
            )
        if (booster := find_without_gradients(self.model)) is not None:
            raise ValueError(
                f"space={space!r} changes a sum of trees whose scores are log odds, which "
                f"{booster} does not make: use objective='binary:logistic' and booster='gbtree'."
            )

    def restrict(self, rows: Codes) -> None:
        """Leave out all training rows but some."""
        adapter, weight = self.adapter, self.adapter.arguments["sample_weight"]
        adapter.X, adapter.y = take_rows(adapter.X, rows), take_rows(adapter.y, rows)
        if weight is not None:
            adapter.arguments["sample_weight"] = take_rows(weight, rows)
