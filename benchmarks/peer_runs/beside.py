"""What runs beside this package: the plain booster, ours, and rules of thumb over the booster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import sklearn
from npmc import NPMC
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    error_rate,
    fnr,
    fpr,
    gap,
    selection_rate,
    tpr,
)
from gbm_constrained.statistics.order_statistics import umbrella_threshold

from .booster import fitted_without_calibration, plain, positive_scores
from .rules import Rule, value
from .split import Fitted, Split

RATES = {
    "selection_rate": selection_rate, "fpr": fpr, "fnr": fnr, "tpr": tpr, "error_rate": error_rate
}  # fmt: skip


class Plain:
    """The booster as it is."""

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._model = plain(booster).fit(split.X, split.y)

    def fit(self, rule: Rule, asked: float) -> Fitted:
        return Fitted(lambda X, groups: self._model.predict(X))


class _Ours:
    """The recommended setting: all defaults, with the benchmark's booster."""

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._split, self._booster = split, booster

    def fit(self, rule: Rule, asked: float) -> Fitted:
        split = self._split
        rules = [
            gap(RATES[rate](), by="group") <= asked if rule.is_gap else RATES[rate]() <= asked
            for rate in rule.rates
        ]
        clf = self._classifier(rules)
        clf.fit(split.X, split.y, sensitive_features={"group": split.groups})
        held_out = float(clf.constraint_report_["held_out"].max())
        return Fitted(lambda X, groups: clf.predict(X), held_out)

    def _classifier(self, rules: Any) -> Any:
        raise NotImplementedError


class OursLightGBM(_Ours):
    """Ours over LightGBM."""

    def _classifier(self, rules: Any) -> Any:
        return ConstrainedLGBMClassifier(
            constraints=rules, n_jobs=1, random_state=0, verbose=-1, **self._booster
        )


class OursXGBoost(_Ours):
    """Ours over XGBoost: the same trees, learning rate and depth."""

    def _classifier(self, rules: Any) -> Any:
        shared = {k: self._booster[k] for k in ("n_estimators", "learning_rate", "max_depth")}
        return ConstrainedXGBClassifier(
            constraints=rules, n_jobs=1, random_state=0, verbosity=0, **shared
        )


class _WithGroups(_Ours):
    """Ours with thresholds of groups; the group is one more column of the features."""

    def fit(self, rule: Rule, asked: float) -> Fitted:
        split = self._split
        rules = [gap(RATES[rate](), by="group") <= asked for rate in rule.rates]
        clf = self._classifier(rules).set_params(group_thresholds=True)
        clf.fit(_with_group(split.X, split.groups), split.y)
        held_out = float(clf.constraint_report_["held_out"].max())
        return Fitted(lambda X, groups: clf.predict(_with_group(X, groups)), held_out)


def _with_group(X: np.ndarray, groups: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])]).assign(group=groups)


class GroupsLightGBM(_WithGroups, OursLightGBM):
    """Thresholds of groups over LightGBM."""


class GroupsXGBoost(_WithGroups, OursXGBoost):
    """Thresholds of groups over XGBoost."""


class TunedThreshold:
    """Scikit-learn's tuned threshold on the calibration rows; one threshold for all groups.

    The scorer is the accuracy where the rule holds, and less than any accuracy where it does not.
    """

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._model = fitted_without_calibration(split, booster)
        self._rows = split.part(split.calibration)

    def fit(self, rule: Rule, asked: float) -> Fitted:
        def score(y: Any, decisions: Any, groups: Any) -> float:
            excess = value(rule, y, decisions, groups) - asked
            return -excess if excess > 0 else float(np.mean(y == decisions))

        X, y, groups = self._rows
        with sklearn.config_context(enable_metadata_routing=True):
            scorer = make_scorer(score).set_score_request(groups=True)
            tuned = TunedThresholdClassifierCV(
                self._model, scoring=scorer, thresholds=300, cv="prefit", refit=False
            ).fit(X, y, groups=groups)
        return Fitted(lambda X, groups: tuned.predict(X))


class Umbrella:
    """The order-statistic threshold of Tong, Feng and Li (2018), confidence 0.95.

    Certified on the calibration rows of the bounded class. The package ``nproc`` keeps half of
    that class; this is its rule, from the paper, with a quarter.
    """

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._model = fitted_without_calibration(split, booster)
        X, self._y, _ = split.part(split.calibration)
        self._scores = positive_scores(self._model, X)

    def fit(self, rule: Rule, asked: float) -> Fitted:
        if rule.rates == ("fpr",):
            cut = umbrella_threshold(self._scores[self._y == 0], asked, 0.05)
            return Fitted(lambda X, groups: positive_scores(self._model, X) > cut)
        cut = -umbrella_threshold(-self._scores[self._y == 1], asked, 0.05)
        return Fitted(lambda X, groups: positive_scores(self._model, X) >= cut)


class _NPMC:
    """Costs of classes (Tian and Feng, 2021), our small reimplementation, over the booster."""

    variant: Any

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._split, self._booster, self._seed = split, booster, seed

    def fit(self, rule: Rule, asked: float) -> Fitted:
        bounded = {("fpr",): 0, ("fnr",): 1}[rule.rates]
        clf = NPMC(
            plain(self._booster), {bounded: asked}, method=self.variant, random_state=self._seed
        ).fit(self._split.X, self._split.y)
        return Fitted(lambda X, groups: clf.predict(X))


class NPMCCX(_NPMC):
    """Multipliers from the posteriors of the training rows."""

    variant = "CX"


class NPMCER(_NPMC):
    """Multipliers from errors on half of the rows; posteriors learnt anew from all."""

    variant = "ER"
