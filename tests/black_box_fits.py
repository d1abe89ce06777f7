"""Rows of two groups, the labels of one of them wrong in training, and losses of clean rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from helpers import CLASSIFIERS

from gbm_constrained.metrics import BlackBox

OWN = {
    "xgboost": {"max_depth": 2, "learning_rate": 0.1},
    "lightgbm": {"num_leaves": 5, "verbose": -1},
}
ROUNDS = 10
LIBRARIES = list(OWN)


def draw(seed, n, flipped=0.0):
    """Features, labels and groups; a share of the positives of group 1 are called negative."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    group = (rng.random(n) < 0.5).astype(int)
    y = (X.a + X.b**2 / 2 + rng.normal(size=n) / 2 > 1.0).to_numpy().astype(int)
    y = np.where((group == 1) & (rng.random(n) < flipped), 0, y)
    return X, y, pd.Series(group, name="group")


def g_mean_loss(y_true, scores):
    decided = scores > 0
    return float(1 - np.sqrt(decided[y_true == 1].mean() * (~decided[y_true == 0]).mean()))


def mean_g_mean_loss(y_true, scores, sensitive):
    """One minus the mean of the groups' G-means."""
    parts = [sensitive == group for group in (0, 1)]
    return float(np.mean([g_mean_loss(y_true[part], scores[part]) for part in parts]))


def make(library, function=mean_g_mean_loss, by="group", solver="auto", **options):
    """A classifier for a black-box metric; `options` are of the metric."""
    options = {"max_calls": 900, **options}
    return CLASSIFIERS[library](
        minimize=BlackBox(function, by=by, **options),
        solver=solver,
        n_estimators=ROUNDS,
        n_jobs=1,
        random_state=0,
        **OWN[library],
    )


def with_group(X, group, kind=float):
    """Make the group a feature, as a number or as a category."""
    return X.assign(group=group.astype(kind))
