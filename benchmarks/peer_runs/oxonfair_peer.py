"""OxonFair: thresholds by group on the calibration rows, over the plain booster."""

from __future__ import annotations

from typing import Any

import numpy as np
from oxonfair import FairPredictor
from oxonfair import group_metrics as gm

from .booster import fitted_without_calibration
from .rules import Rule
from .split import Fitted, Split

RATES = {
    "selection_rate": gm.pos_pred_rate,
    "fpr": gm.false_pos_rate,
    "fnr": gm.false_neg_rate,
    "tpr": gm.true_pos_rate,
    "error_rate": gm.accuracy,
}


class OxonFair:
    """Accuracy under the rule; a bound on a rate is one of all rows."""

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._model = fitted_without_calibration(split, booster)
        self._rows = split.part(split.calibration)

    def fit(self, rule: Rule, asked: float) -> Fitted:
        X, y, groups = self._rows
        if rule.task == "equalized_odds":
            metric = gm.equalized_odds_max
        else:
            metric = RATES[rule.rates[0]].diff if rule.is_gap else RATES[rule.rates[0]].overall
        fair = FairPredictor(self._model, {"data": X, "target": y, "groups": groups})
        fair.fit(gm.accuracy, metric, asked, greater_is_better_const=False)
        # It wants labels beside the features, which do not enter the decisions.
        return Fitted(
            lambda X, groups: fair.predict(
                {"data": X, "groups": groups, "target": np.zeros(groups.size)}
            )
        )
