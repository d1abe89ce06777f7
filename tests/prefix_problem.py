"""A problem whose prefixes differ, for tests of mixtures and prefixes of fits."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from helpers import CLASSIFIERS

import gbm_constrained as gc
from gbm_constrained.solvers import AutoSolver

DEFAULTS = {
    "xgboost": {"max_depth": 3, "n_jobs": 1},
    "lightgbm": {"num_leaves": 7, "n_jobs": 1, "verbose": -1},
}


ROUNDS = 61
LENGTHS = range(ROUNDS, ROUNDS + 20, 2)  # the last iterate of some is not the best
OPTIONS = {
    "n_estimators": ROUNDS,
    "learning_rate": 0.3,
    "solver": AutoSolver(rounds_per_iteration=2),
    "measure_on": "train",  # what is chosen by unseen rows is tested in test_decision.py
}


RULES = [
    gc.fnr() <= 0.1,
    gc.fpr() <= 0.3,
    gc.gap(gc.selection_rate(), min_group_size=1, small_groups="hold") <= 0.05,
]


def make(library, rules=RULES, **options):
    options = {**DEFAULTS[library], **OPTIONS, **options}
    return CLASSIFIERS[library](constraints=rules, **options)


def first(library, rounds):
    """Argument of predict for the first rounds."""
    if library == "xgboost":
        return {"iteration_range": (0, int(rounds))}
    return {"num_iteration": int(rounds)}


def plain(library, model, tmp_path):
    """The saved model, read by the library alone."""
    if library == "xgboost":
        model.save_model(tmp_path / "model.json")
        loaded = xgb.XGBClassifier()
        loaded.load_model(tmp_path / "model.json")
        return lambda X: loaded.predict_proba(X)[:, 1]
    model.booster_.save_model(tmp_path / "model.txt")
    return lgb.Booster(model_file=tmp_path / "model.txt").predict


def split(problem, n=200):
    """Training rows, and what held-out rows are given as."""
    X, y, sex = problem
    given = {
        "sensitive_features": sex[n:],
        "eval_set": [(X[:n], y[:n])],
        "sensitive_features_eval_set": [sex[:n]],
    }
    return X[n:], y[n:], sex[n:], (X[:n], y[:n], sex[:n]), given


def functionals(decisions, y, sex):
    """Rates that the rules speak of: misses, alarms, selected of each group."""
    return np.array([
        (decisions == 0)[y == 1].mean(),
        decisions[y == 0].mean(),
        decisions[sex == 0].mean(),
        decisions[sex == 1].mean(),
    ])  # fmt: skip


def values(rates):
    return [rates[0], rates[1], abs(rates[2] - rates[3])]
