"""What runs beside this package: the plain booster, ours, and rules of thumb over the booster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import sklearn
from libraries import make
from npmc import NPMC
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV

from gbm_constrained import error_rate, fnr, fpr, gap, recall, selection_rate, tpr
from gbm_constrained.statistics.order_statistics import umbrella_threshold

from .methods import Calibrated, Fitted, Method, Rule, plain, value

RATES = {
    "selection_rate": selection_rate, "fpr": fpr, "fnr": fnr, "tpr": tpr, "error_rate": error_rate,
    "share": selection_rate, "recall": recall,
}  # fmt: skip


class Plain(Method):
    """The booster as it is."""

    def fit(self, rule: Rule, asked: float) -> Fitted:
        model = plain(self.booster).fit(self.split.X, self.split.y)
        return Fitted(lambda X, groups: model.predict(X))


class OursLightGBM(Method):
    """Ours over LightGBM in the recommended setting: all defaults, with the benchmark's booster.

    Where thresholds of groups are asked for, the group is one more column of the features.
    """

    library, shared = "lightgbm", ("n_estimators", "learning_rate", "max_depth", "num_leaves")
    has_group_thresholds = False

    def fit(self, rule: Rule, asked: float) -> Fitted:
        split = self.split
        names = [rate.partition(":") for rate in rule.rates]
        rates = [RATES[name](int(k)) if k else RATES[name]() for name, _, k in names]
        rules = [(gap(rate, by="group") if rule.is_gap else rate) <= asked for rate in rates]
        booster = {name: self.booster[name] for name in self.shared}
        clf = make(self.library, rules, n_jobs=1, random_state=0, **booster)
        if self.has_group_thresholds:
            clf.set_params(group_thresholds=True)
            clf.fit(_with_group(split.X, split.groups), split.y)
        else:
            clf.fit(split.X, split.y, sensitive_features={"group": split.groups})
        return Fitted(
            lambda X, groups: clf.predict(
                _with_group(X, groups) if self.has_group_thresholds else X
            ),
            float(clf.constraint_report_["held_out"].max()),
        )


def _with_group(X: np.ndarray, groups: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])]).assign(group=groups)


class OursXGBoost(OursLightGBM):
    """Ours over XGBoost: the same trees, learning rate and depth."""

    library, shared = "xgboost", ("n_estimators", "learning_rate", "max_depth")


class GroupsLightGBM(OursLightGBM):
    """Thresholds of groups over LightGBM."""

    has_group_thresholds = True


class GroupsXGBoost(OursXGBoost):
    """Thresholds of groups over XGBoost."""

    has_group_thresholds = True


class TunedThreshold(Calibrated):
    """Scikit-learn's tuned threshold on the calibration rows; one threshold for all groups.

    The scorer is the accuracy where the rule holds, and less than any accuracy where it does not.
    """

    def fit(self, rule: Rule, asked: float) -> Fitted:
        def score(y: Any, decisions: Any, groups: Any) -> float:
            excess = value(rule, y, decisions, groups) - asked
            return -excess if excess > 0 else float(np.mean(y == decisions))

        X, y, groups = self.rows
        with sklearn.config_context(enable_metadata_routing=True):
            scorer = make_scorer(score).set_score_request(groups=True)
            tuned = TunedThresholdClassifierCV(
                self.model, scoring=scorer, thresholds=300, cv="prefit", refit=False
            ).fit(X, y, groups=groups)
        return Fitted(lambda X, groups: tuned.predict(X))


class Umbrella(Calibrated):
    """The order-statistic threshold of Tong, Feng and Li (2018), confidence 0.95.

    Certified on the calibration rows of the bounded class. The package ``nproc`` keeps half of
    that class; this is its rule, from the paper, with a quarter.
    """

    def fit(self, rule: Rule, asked: float) -> Fitted:
        X, y, _ = self.rows
        scores = self.scores(X)
        if rule.rates == ("fpr",):
            cut = umbrella_threshold(scores[y == 0], asked, 0.05)
            return Fitted(lambda X, groups: self.scores(X) > cut)
        cut = -umbrella_threshold(-scores[y == 1], asked, 0.05)
        return Fitted(lambda X, groups: self.scores(X) >= cut)


class NPMCCX(Method):
    """Costs of classes (Tian and Feng, 2021), our small reimplementation, over the booster.

    Multipliers are from the posteriors of the training rows.
    """

    variant: Any = "CX"

    def fit(self, rule: Rule, asked: float) -> Fitted:
        bounded = {("fpr",): 0, ("fnr",): 1}[rule.rates]
        clf = NPMC(
            plain(self.booster), {bounded: asked}, method=self.variant, random_state=self.seed
        ).fit(self.split.X, self.split.y)
        return Fitted(lambda X, groups: clf.predict(X))


class NPMCER(NPMCCX):
    """Multipliers from errors on half of the rows; posteriors learnt anew from all."""

    variant = "ER"
