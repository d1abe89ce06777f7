"""fairlearn's reduction and its thresholds by group, over the plain booster."""

from __future__ import annotations

from typing import Any

import numpy as np
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import (
    DemographicParity,
    EqualizedOdds,
    ErrorRateParity,
    ExponentiatedGradient,
    FalsePositiveRateParity,
    TruePositiveRateParity,
)

from .booster import fitted_without_calibration, plain
from .rules import Rule
from .split import Fitted, Split

MOMENTS = {
    "selection_rate_gap": DemographicParity,
    "fpr_gap": FalsePositiveRateParity,
    "tpr_gap": TruePositiveRateParity,
    "error_rate_gap": ErrorRateParity,
    "equalized_odds": EqualizedOdds,
}
CONSTRAINTS = {
    "selection_rate_gap": "demographic_parity",
    "fpr_gap": "false_positive_rate_parity",
    "tpr_gap": "true_positive_rate_parity",
    "equalized_odds": "equalized_odds",
}


class Reduction:
    """ExponentiatedGradient with its defaults.

    Its bound is one of each group against all rows. Of two groups, the smaller is further from
    all rows, by the gap times the share of the larger: that is the bound asked for.
    """

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._split, self._booster, self._seed = split, booster, seed

    def fit(self, rule: Rule, asked: float) -> Fitted:
        split = self._split
        larger = np.bincount(split.groups).max() / split.groups.size
        moment = MOMENTS[rule.task](difference_bound=asked * larger)
        model = ExponentiatedGradient(plain(self._booster), moment)
        model.fit(split.X, split.y, sensitive_features=split.groups)
        return Fitted(lambda X, groups: model.predict(X, random_state=self._seed))


class GroupThresholds:
    """ThresholdOptimizer on the calibration rows; of equalized odds it takes no tolerance."""

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._model = fitted_without_calibration(split, booster)
        self._rows, self._seed = split.part(split.calibration), seed

    def fit(self, rule: Rule, asked: float) -> Fitted:
        if rule.task == "equalized_odds":
            if asked > 0:
                raise NotImplementedError("no tolerance for equalized odds")
            tolerance = {}
        else:
            tolerance = {"tol": asked} if asked > 0 else {}
        X, y, groups = self._rows
        model = ThresholdOptimizer(
            estimator=self._model, constraints=CONSTRAINTS[rule.task], prefit=True,
            predict_method="predict_proba", **tolerance,
        )  # fmt: skip
        model.fit(X, y, sensitive_features=groups)
        return Fitted(
            lambda X, groups: model.predict(X, sensitive_features=groups, random_state=self._seed)
        )
