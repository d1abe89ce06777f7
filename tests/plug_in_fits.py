"""Fits that may do without multipliers, which several test files share."""

from __future__ import annotations

import numpy as np
from helpers import CLASSIFIERS

ROUNDS = 12
OPTIONS = {
    "xgboost": {"max_depth": 4, "n_jobs": 1},
    "lightgbm": {"num_leaves": 12, "n_jobs": 1, "verbose": -1, "min_child_samples": 5},
}
TOLERANCE = {"xgboost": 0.0, "lightgbm": 1e-12}
SOLVERS = ("threshold", "abpp", "auto")


def make(library, constraints, **options):
    options = {"n_estimators": ROUNDS, "measure_on": "crossfit", **OPTIONS[library], **options}
    return CLASSIFIERS[library](constraints=constraints, **options)


def draw_table():
    """Features, and labels by number of classes, a fifth of which are drawn."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 5))
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=900)
    y = {"binary": (score > 0.7).astype(int), "several": np.digitize(score, [-0.3, 1.0])}
    noise = rng.random(900) < 0.2
    return X, {k: np.where(noise, rng.permutation(v), v) for k, v in y.items()}
