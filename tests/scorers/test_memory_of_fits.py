"""Memory of fits that grow fold boosters: each stage frees what none reads later."""

from __future__ import annotations

import gc as garbage
import tracemalloc
import warnings

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS

import gbm_constrained as gc

OPTIONS = {"xgboost": {"max_depth": 3}, "lightgbm": {"num_leaves": 7, "verbose": -1}}
# Bytes of numpy's arrays for each row while the model is trained.
MOST_BYTES = {"xgboost": 135, "lightgbm": 165}


def draw(n):
    """Two groups with scores and shares of positives of their own."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, n)
    X = np.column_stack([rng.normal(size=(n, 5)), sex + 0.3 * rng.normal(size=n)])
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 1.2 * sex + 0.5 * rng.normal(size=n) > 1.2).astype(int)
    return X.astype(np.float32), y, {"sex": sex}


def fit(library, watch, table, **options):
    X, y, columns = table
    constraints = [gc.gap(gc.fpr(), by="sex") <= 0.02, gc.fnr() <= 0.2]
    options = {"n_jobs": 1, **OPTIONS[library], **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CLASSIFIERS[library](constraints=constraints, **options)
        model.fit(X, y, sensitive_features=columns, constraint_callbacks=[watch])


def rows_of_matrices():
    """Count the rows of all matrices of both libraries that are alive."""
    found = [one for one in garbage.get_objects() if isinstance(one, xgb.DMatrix | lgb.Dataset)]
    return sum(one.num_row() if isinstance(one, xgb.DMatrix) else one.num_data() for one in found)


@pytest.mark.parametrize(
    ("library", "measure_on", "n_boosters"),
    [("xgboost", gc.CrossFit(3), 3), ("lightgbm", gc.CrossFit(2), 2)],
)
def test_matrices_of_fold_boosters_are_freed(library, measure_on, n_boosters):
    """Those of a pass before the next one, and all of them before the model is trained."""
    garbage.collect()  # What the fit itself leaves must need no collection.
    alive, n, n_passes, before = {}, 1500, 0, rows_of_matrices()

    def watch(state):
        nonlocal n_passes
        if state.iteration == 0:
            n_passes += state.phase == "measuring"
            found = rows_of_matrices() - before
            alive[state.phase] = max(found, alive.get(state.phase, 0))

    fit(library, watch, draw(n), n_estimators=14, measure_on=measure_on)
    assert n_passes > 1
    # LightGBM bins all rows once and copies parts. XGBoost keeps the bins of a row.
    shared = n if library == "lightgbm" else 1
    assert alive == {"measuring": n_boosters * n + shared, "training": n}


@BOTH
def test_arrays_of_fold_boosters_are_freed(library):
    """Labels, scores and positions stay; gradients and buffers of finished solvers do not."""
    n, alive = 40_000, []

    def watch(state):
        if state.phase == "training" and state.rounds == 2:
            alive.append(tracemalloc.get_traced_memory()[0] / n)

    options = {"n_estimators": 4, "measure_on": "holdout"}
    fit(library, watch, draw(500), **options)  # It imports what is imported late.
    table = draw(n)
    tracemalloc.start()
    try:
        fit(library, watch, table, **options)
    finally:
        tracemalloc.stop()
    assert alive[1] < MOST_BYTES[library]


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
def test_training_rows_as_an_evaluation_set_have_one_matrix(kind, has_weights, monkeypatch):
    """As in the parent, which recognises them by the very objects, and predicts them once."""
    X, y, _ = draw(60)
    made, make_matrix = [], xgb.QuantileDMatrix.__init__

    def count(matrix, *args, **given):
        made.append(matrix)
        make_matrix(matrix, *args, **given)

    monkeypatch.setattr(xgb.QuantileDMatrix, "__init__", count)
    rule = gc.fnr() <= 1.0 if kind == "Classifier" else gc.mean_loss() <= 9.0
    model = getattr(gc, f"ConstrainedXGB{kind}")(constraints=rule, measure_on="train")
    given = {"eval_set": [(X, y), (X[:20], y[:20])], "verbose": False}
    if has_weights:
        weight = np.linspace(0.5, 1.5, 60)
        given |= {"sample_weight": weight, "sample_weight_eval_set": [weight, weight[:20]]}
    model.set_params(n_estimators=2).fit(X, y, **given)
    assert len(made) == 2
