"""error-parity: a linear programme of thresholds by group, over the plain booster."""

from __future__ import annotations

from typing import Any

from error_parity import RelaxedThresholdOptimizer

from .booster import fitted_without_calibration, positive_scores
from .rules import Rule
from .split import Fitted, Split

CONSTRAINTS = {
    "selection_rate_gap": "demographic_parity",
    "fpr_gap": "false_positive_rate_parity",
    "tpr_gap": "true_positive_rate_parity",
    "equalized_odds": "equalized_odds",
}


class ErrorParity:
    """Thresholds on the calibration rows; both rates of equalized odds to within the bound."""

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._model = fitted_without_calibration(split, booster)
        self._rows, self._seed = split.part(split.calibration), seed

    def fit(self, rule: Rule, asked: float) -> Fitted:
        X, y, groups = self._rows
        model = RelaxedThresholdOptimizer(
            predictor=lambda X: positive_scores(self._model, X),
            constraint=CONSTRAINTS[rule.task], tolerance=asked, seed=self._seed,
        )  # fmt: skip
        model.fit(X, y, group=groups, y_scores=positive_scores(self._model, X))
        return Fitted(lambda X, groups: model(X, group=groups))
