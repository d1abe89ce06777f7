"""Regressors of both libraries on a problem whose targets and errors depend on a group."""

from __future__ import annotations

from types import SimpleNamespace

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

import gbm_constrained as gc

REGRESSORS = {"xgboost": gc.ConstrainedXGBRegressor, "lightgbm": gc.ConstrainedLGBMRegressor}
PARENTS = {"xgboost": xgb.XGBRegressor, "lightgbm": lgb.LGBMRegressor}
DEFAULTS = {
    "xgboost": {"n_estimators": 60, "max_depth": 3, "learning_rate": 0.15, "n_jobs": 1},
    "lightgbm": {
        "n_estimators": 60, "num_leaves": 8, "learning_rate": 0.15, "n_jobs": 1, "verbose": -1,
    },
}  # fmt: skip
EACH = pytest.mark.parametrize("library", list(REGRESSORS))
# Objectives of each library that rules can be added to, and their parameters.
OBJECTIVES = {
    "xgboost": {
        "squared": {"objective": "reg:squarederror"},
        "huber": {"objective": "reg:pseudohubererror", "huber_slope": 0.7},
        "poisson": {"objective": "count:poisson"},
        "tweedie": {"objective": "reg:tweedie", "tweedie_variance_power": 1.3},
        "absolute": {"objective": "reg:absoluteerror"},
        "quantile": {"objective": "reg:quantileerror", "quantile_alpha": 0.8},
    },
    "lightgbm": {
        "squared": {"objective": "regression"},
        "huber": {"objective": "huber", "alpha": 0.7},
        "poisson": {"objective": "poisson"},
        "tweedie": {"objective": "tweedie", "tweedie_variance_power": 1.3},
        "absolute": {"objective": "regression_l1"},
        "quantile": {"objective": "quantile", "alpha": 0.8},
    },
}
SMOOTH = ("squared", "huber", "poisson", "tweedie")
HAVE_LOG_LINK = ("poisson", "tweedie")


def make_problem(n=1500, seed=0, *, is_positive=False):
    """Draw rows: features X, of which the first two tell of the group; targets y; the group.

    Targets of group 1 are larger by one and noisier. Positive targets are Poisson counts.
    """
    rng = np.random.default_rng(seed)
    group = (rng.random(n) < 0.35).astype(int)
    X = rng.normal(size=(n, 4))
    X[:, 0] += 1.2 * group
    X[:, 1] += 0.8 * group
    signal = X[:, 0] + 0.5 * X[:, 1] * X[:, 2]
    y = signal + group + (0.5 + 0.5 * group) * rng.normal(size=n)
    if is_positive:
        y = rng.poisson(np.exp(0.4 * signal + 0.3 * group)).astype(float)
    return SimpleNamespace(X=X, y=y, group=group, frame=pd.DataFrame(X, columns=list("abcd")))


def options_of(library, objective="squared", **more):
    return {**DEFAULTS[library], **OBJECTIVES[library][objective], **more}


def make(library, rules, objective="squared", **more):
    return REGRESSORS[library](constraints=rules, **options_of(library, objective, **more))


def fit(library, rules, problem, objective="squared", *, given=None, **more):
    """Fit a regressor to a problem, whose groups are ``sensitive_features``."""
    model = make(library, rules, objective, **more)
    groups = pd.DataFrame({"g": problem.group})
    return model.fit(problem.X, problem.y, **{"sensitive_features": groups, **(given or {})})


def score_of(model, X, **more):
    """Scores before the link of the objective."""
    if isinstance(model, xgb.XGBModel):
        return model.predict(X, output_margin=True, **more)
    return model.predict(X, raw_score=True, **more)
