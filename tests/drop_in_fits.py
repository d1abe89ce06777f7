"""Classifiers of every kind on a problem whose labels depend on a group."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import in_turn
from sklearn.metrics import f1_score, precision_score

import gbm_constrained as gc
from gbm_constrained.solvers import AutoSolver

CLASSIFIERS = {
    "xgboost": gc.ConstrainedXGBClassifier,
    "lightgbm": gc.ConstrainedLGBMClassifier,
    "logistic": gc.ConstrainedLogisticRegression,
}
DEFAULTS = {
    "xgboost": {"n_estimators": 40, "max_depth": 2, "n_jobs": 1, "measure_on": "train"},
    "lightgbm": {
        "n_estimators": 40, "num_leaves": 4, "learning_rate": 0.3, "n_jobs": 1, "verbose": -1,
        "measure_on": "train",
    },
    "logistic": {"n_iterations": 80},
}  # fmt: skip
ANY = in_turn("library", list(CLASSIFIERS))
BOOSTERS = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
# Boosters also where the default says: on rows that the trees have not seen.
WHERE = pytest.mark.parametrize(
    ("library", "where"),
    [
        *((library, {"measure_on": "auto"}) for library in ("xgboost", "lightgbm")),
        *((library, {}) for library in CLASSIFIERS),
    ],
)
PARITY = gc.gap(gc.selection_rate(), min_group_size=1) <= 0.04
SLACK = 0.025  # A few rows of a group.


def with_solver(library, **options):
    """Parameter that gives a classifier a solver with options."""
    name = "constraint_solver" if library == "logistic" else "solver"
    return {name: AutoSolver(**options)}


def make(library, rules, **options):
    """Constraints are measured on training rows, unless `options` say otherwise."""
    return CLASSIFIERS[library](constraints=rules, **{**DEFAULTS[library], **options})


def rates_of(decisions, groups, weight=None):
    """Selection rate of each group, by counting; no value is a group."""
    groups = pd.Series(groups).astype(object)
    weight = np.ones(len(decisions)) if weight is None else weight
    table = pd.DataFrame({"w": weight, "wd": weight * decisions, "g": groups.to_numpy()})
    sums = table.groupby("g", dropna=False)[["wd", "w"]].sum()
    return sums.wd / sums.w


def apart(values):
    return float(np.max(values) - np.min(values))


def gap_of(decisions, groups, weight=None):
    return apart(rates_of(decisions, groups, weight))


def counted(rules, y, decisions, sex, old):
    """Values of the constraints below, by counting."""
    selected = [decisions[sex == s].mean() for s in (0, 1)]
    hits = [decisions[(sex == s) & (y == 1)].mean() for s in (0, 1)]
    wrong = [(decisions != y)[sex == s].mean() for s in (0, 1)]
    values = [
        apart(selected),
        min(1.0, min(hits) / max(hits)),
        max(wrong),
        min(hits),
        precision_score(y, decisions),
        f1_score(y, decisions),
        (decisions != old).mean(),
        decisions[(sex == 1) & (y == 0)].mean(),
    ]
    assert len(values) == len(rules)
    return values
