"""Classifiers of few rounds for tests of both libraries."""

import pytest
from helpers import in_turn

import gbm_constrained as gc
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
from gbm_constrained.solvers import AutoSolver

FEW_ROUNDS = {
    "n_estimators": 15,
    "solver": AutoSolver(rounds_per_iteration=1),
    "n_jobs": 1,
    "measure_on": "train",
}


def make_xgb(constraints, **options):
    return gc.ConstrainedXGBClassifier(constraints=constraints, **{**FEW_ROUNDS, **options})


def make_lgb(constraints, **options):
    options = {**FEW_ROUNDS, "verbose": -1, **options}
    return gc.ConstrainedLGBMClassifier(constraints=constraints, **options)


BOTH = pytest.mark.parametrize("make", [make_xgb, make_lgb], ids=["xgboost", "lightgbm"])
EITHER = in_turn("make", [make_xgb, make_lgb], ids=["xgboost", "lightgbm"])
# On training rows, and where the default says: on rows that the trees have not seen.
WHERE = pytest.mark.parametrize("measure_on", ["train", "auto"])


ALL = {
    "xgboost": lambda rules: make_xgb(rules),
    "lightgbm": lambda rules: make_lgb(rules),
    "logistic": lambda rules: ConstrainedLogisticRegression(constraints=rules, n_iterations=50),
}
EVERY = pytest.mark.parametrize("kind", list(ALL))
