"""XGBoost's own fit, and the parameters of its booster, for a black-box metric."""

from __future__ import annotations

from typing import Any

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Codes, Float
from gbm_constrained.boosters.xgboost.checks import find_without_gradients
from gbm_constrained.boosters.xgboost.leaf_values import XGBLeafValues
from gbm_constrained.boosters.xgboost.tree_weights import XGBTreeWeights
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.training.black_box_model import AdjustableModel


class XGBoostBlackBoxAdapter:
    """``AdjustableAdapter`` of one ``fit`` of XGBoost.

    Parameters
    ----------
    adapter : XGBoostAdapter
        The adapter of the fit.
    """

    takes_offsets = True

    def __init__(self, adapter: Any) -> None:
        self.adapter, self.model = adapter, adapter.model

    def check_adjustable(self, space: str) -> None:
        """Refuse boosters that are no sum of trees, and scores that training starts from."""
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

    def fit_plain(self, factor: Float | None = None) -> None:
        """Call the parent's own ``fit``, with the weight of each row multiplied by a factor."""
        self.adapter.fit_plain(factor)

    def fit_constrained(self, model: Any, rows: FitArguments) -> None:
        """Fit another classifier under its constraints, with the arguments of this fit."""
        given = {
            name: value for name, value in self.adapter.arguments.items() if value is not None
        }
        model.fit(
            self.adapter.X,
            self.adapter.y,
            sensitive_features=rows.sensitive_features,
            groups=rows.groups,
            **given,
        )

    def adjustable(self, space: str) -> AdjustableModel:
        """Give access to the parameters of the trained booster."""
        models: dict[str, Any] = {"trees": XGBTreeWeights, "leaves": XGBLeafValues}
        found: AdjustableModel = models[space](self.model)
        return found
