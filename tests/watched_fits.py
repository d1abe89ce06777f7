"""Fits whose constraints are measured somewhere, as callbacks and progress see them."""

from __future__ import annotations

import pytest
from helpers import CLASSIFIERS, quiet

import gbm_constrained as gc

ROUNDS, R, FOLDS = 10, 2, 3
WHERE = pytest.mark.parametrize("measure_on", ["train", "holdout", "crossfit", "watch"])


def make(library, constraints, **options):
    if library == "linear":
        return gc.ConstrainedLogisticRegression(
            constraints=constraints, n_iterations=40, **options
        )
    size = {"xgboost": {"max_depth": 3}, "lightgbm": {"num_leaves": 7, "verbose": -1}}[library]
    given = {"n_estimators": ROUNDS, "n_jobs": 1, "measure_on": "crossfit", **size, **options}
    if given["measure_on"] == "crossfit":
        given["measure_on"] = gc.CrossFit(FOLDS)
    return CLASSIFIERS[library](constraints=constraints, **given)


def split(data):
    X, y = data
    return X[:1000], y[:1000], X[1000:], y[1000:]


def fit_at(library, data, constraints, measure_on, **given):
    """Fit with the constraints measured somewhere, and the last rows held out."""
    X, y, X_held, y_held = split(data)
    where = {"watch": "holdout", "holdout": gc.Holdout(0.3)}.get(measure_on, measure_on)
    own = given.pop("options", {})
    model = make(library, constraints, measure_on=where, **own)
    arguments = {**quiet(library), "eval_set": [(X_held, y_held)], **given}
    return model.fit(X, y, **arguments)
