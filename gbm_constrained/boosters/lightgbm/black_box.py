"""LightGBM's own fit, and the parameters of its booster, for a black-box metric."""

from __future__ import annotations

from typing import Any, ClassVar

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Codes
from gbm_constrained.boosters.black_box import BoosterBlackBoxAdapter
from gbm_constrained.boosters.lightgbm.checks import find_without_gradients
from gbm_constrained.boosters.lightgbm.leaf_values import LGBMLeafValues
from gbm_constrained.boosters.lightgbm.native_fits import can_fold
from gbm_constrained.boosters.lightgbm.parameters import find_objective, find_parameter
from gbm_constrained.boosters.lightgbm.tree_weights import LGBMTreeWeights


class LightGBMBlackBoxAdapter(BoosterBlackBoxAdapter):
    """``AdjustableAdapter`` of one ``fit`` of LightGBM.

    See :class:`~gbm_constrained.boosters.black_box.BoosterBlackBoxAdapter`.
    """

    models: ClassVar = {"trees": LGBMTreeWeights, "leaves": LGBMLeafValues}

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the parent's ``fit``, with the weights, which the adapter keeps apart."""
        return {**super().arguments, "sample_weight": self.adapter.sample_weight}

    def check_adjustable(self, space: str) -> None:
        """Refuse boosters that are no sum of trees, and scores that training starts from."""
        super().check_adjustable(space)
        if self.adapter.arguments["init_score"] is not None:
            raise ValueError(
                "init_score= starts training from scores that predict does not add, and a "
                "black-box metric is called with scores of the model alone: leave it out."
            )
        if self.model.constraints and (booster := find_without_gradients(self.model)):
            raise ValueError(
                f"{booster} takes no gradients but its own, and constraints= beside a black-box "
                f"metric moves multipliers in them: use boosting_type='gbdt'."
            )
        if can_fold(self.model):
            return
        objective = find_objective(self.model)
        kind = find_parameter(self.model, "boosting", "gbdt")
        asked = f"objective={objective!r}" if callable(objective) else f"boosting_type={kind!r}"
        raise ValueError(
            f"space={space!r} changes a sum of trees whose scores are log odds, which {asked} "
            f"does not make: use objective='binary' and boosting_type='gbdt' or 'dart'."
        )

    def restrict(self, rows: Codes) -> None:
        """Leave out all training rows but some."""
        adapter = self.adapter
        adapter.X, adapter.y = take_rows(adapter.X, rows), take_rows(adapter.y, rows)
        if adapter.sample_weight is not None:
            adapter.sample_weight = take_rows(adapter.sample_weight, rows)
