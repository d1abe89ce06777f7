"""Fits by whose fold boosters several test files measure, and their rows."""

from __future__ import annotations

import numpy as np
import xgboost as xgb
from helpers import CLASSIFIERS

ROUNDS = 9


OPTIONS = {
    "xgboost": {"max_depth": 3, "n_jobs": 1, "enable_categorical": True},
    "lightgbm": {"num_leaves": 7, "n_jobs": 1, "verbose": -1, "min_data_in_bin": 1},
}


TOLERANCE = {"xgboost": 2e-7, "lightgbm": 1e-12}


def make(library, constraints, **options):
    options = {"n_estimators": ROUNDS, **OPTIONS[library], **options}
    return CLASSIFIERS[library](constraints=constraints, **options)


def draw_table():
    """Features of few values, so that all parts are cut at the same; labels by number of classes.

    A third of the labels are drawn, so that constraints cost errors.
    """
    rng = np.random.default_rng(0)
    X = np.round(2 * rng.normal(size=(600, 5)).clip(-2, 2)) / 2
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=600)
    y = {"binary": (score > 0.7).astype(int), "several": np.digitize(score, [-0.3, 1.0])}
    noise = rng.random(600) < 0.3
    return X, {k: np.where(noise, rng.permutation(v), v) for k, v in y.items()}


def population(rng, n):
    """Labels that the second group's features say less of."""
    group, X = rng.integers(0, 2, n), rng.normal(size=(n, 6))
    score = 2.5 * X[:, 0] * np.where(group == 1, 0.4, 1.6) - 0.8 * X[:, 1] + 0.3
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-score))).astype(int)
    return np.column_stack([X, group]), y, group


def score(library, member, X, rounds):
    """Scores of held-out rows by one of the fold boosters, by the library itself."""
    if library == "xgboost":
        return member.booster.predict(
            xgb.DMatrix(X), output_margin=True, iteration_range=(0, rounds)
        )
    return member.booster.predict(X, raw_score=True, num_iteration=rounds) + member.start[0]
