"""Fits of both libraries with groups."""

from __future__ import annotations

import numpy as np
from helpers import in_turn

from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier

OPTIONS = (
    "measure_on", "iterate", "guarantee", "early_stopping_on", "early_stopping_rounds",
)  # fmt: skip
BOOSTER = in_turn("booster", ["lightgbm", "xgboost"])


def problem(n=600):
    rng = np.random.default_rng(0)
    sex = rng.choice(["F", "M"], n)
    X = rng.normal(size=(n, 3)) + (sex == "F")[:, None]
    return X, (X[:, 0] + rng.normal(size=n) > 0.5).astype(int), sex


def fitted(rules, X, y, booster="lightgbm", **given):
    if booster == "lightgbm":
        model = ConstrainedLGBMClassifier(
            constraints=rules, n_estimators=40, n_jobs=1, num_leaves=7, verbose=-1
        )
    else:
        model = ConstrainedXGBClassifier(
            constraints=rules, n_estimators=40, n_jobs=1, max_depth=2, enable_categorical=True
        )
        given |= {"verbose": False}
    options = {name: given.pop(name) for name in [*given] if name in OPTIONS}
    return model.set_params(**options).fit(X, y, **given)
