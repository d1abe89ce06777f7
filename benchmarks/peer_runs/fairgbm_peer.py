"""FairGBM, its multiplier learning rate tuned on validation rows as its authors urge."""

from __future__ import annotations

from typing import Any

import numpy as np
from fairgbm import FairGBMClassifier

from .rules import Rule, merit
from .split import Fitted, Split

# Gaps diverge from about 0.5 on, and bounds on one rate are hardly felt below 0.1.
STEPS_OF_GAPS = (0.005, 0.02, 0.05, 0.1, 0.3)
STEPS_OF_LEVELS = (0.05, 0.1, 0.3, 1.0, 3.0)
# Those of many groups diverge from about 0.001 on, where bounds are small.
STEPS_OF_MANY_GROUPS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)


class FairGBM:
    """For each bound: one fit for each step without the validation rows, and one with all rows.

    Of the steps that meet the bound on the validation rows the most accurate is taken, else the
    one that is nearest to it.
    """

    steps_of_gaps: tuple[float, ...] = STEPS_OF_GAPS

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._split, self._booster = split, booster

    def fit(self, rule: Rule, asked: float) -> Fitted:
        split = self._split
        X, y, groups = split.part(split.calibration)
        found = []
        for step in self.steps_of_gaps if rule.is_gap else STEPS_OF_LEVELS:
            decisions = self._fitted(rule, asked, step, ~split.calibration).predict(X)
            found.append((merit(rule, asked, y, decisions, groups), step))
        (_, _, at), step = min(found)
        model = self._fitted(rule, asked, step, np.ones(split.y.size, dtype=bool))
        return Fitted(lambda X, groups: model.predict(X), at)

    def _fitted(self, rule: Rule, asked: float, step: float, rows: Any) -> Any:
        X, y, groups = self._split.part(rows)
        if rule.is_gap:
            # A gap of true positive rates is one of false negative rates.
            names = {"fpr": "FPR", "tpr": "FNR"}
            options: dict[str, Any] = {
                "constraint_type": ",".join(names[rate] for rate in rule.rates),
                "constraint_fpr_tolerance": asked,
                "constraint_fnr_tolerance": asked,
            }
        else:
            rate = rule.rates[0]
            options = {
                "constraint_type": "none",
                "global_constraint_type": rate.upper(),
                f"global_target_{rate}": asked,
            }
        model = FairGBMClassifier(
            multiplier_learning_rate=step, n_jobs=1, random_state=0, verbose=-1,
            **options, **self._booster,
        )  # fmt: skip
        return model.fit(X, y, constraint_group=groups)


class FairGBMOfManyGroups(FairGBM):
    """FairGBM with smaller steps."""

    steps_of_gaps = STEPS_OF_MANY_GROUPS
