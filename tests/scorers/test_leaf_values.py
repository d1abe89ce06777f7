"""Leaf values as parameters: indicators of leaves, and native boosters with other values."""

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from black_box_fits import LIBRARIES, draw, make, mean_g_mean_loss

from gbm_constrained.scorers.lightgbm.models import LGBMLeafValues
from gbm_constrained.scorers.xgboost.models import XGBLeafValues
from gbm_constrained.solvers import AdaptiveSurrogates

X, Y, GROUP = draw(0, 500)
X = X.assign(c=np.where(X.a > 1, np.nan, X.b * X.a))
ROUNDS = 6


def grow(library, **options):
    if library == "lightgbm":
        model = lgb.LGBMClassifier(n_estimators=ROUNDS, num_leaves=5, verbose=-1, n_jobs=1)
        return model.set_params(**options).fit(X, Y), LGBMLeafValues, {"raw_score": True}
    model = xgb.XGBClassifier(n_estimators=ROUNDS, max_depth=3, n_jobs=1)
    return model.set_params(**options).fit(X, Y), XGBLeafValues, {"output_margin": True}


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("lightgbm", {}),
        ("lightgbm", {"boosting_type": "dart"}),
        ("xgboost", {}),
        ("xgboost", {"base_score": 0.9, "num_parallel_tree": 2, "subsample": 0.5}),
    ],
)
def test_values_of_leaves_are_the_scores(library, options, tmp_path):
    model, kind, raw = grow(library, **options)
    before = model.predict(X, **raw)
    leaves = kind(model)
    groups = np.eye(2, dtype=np.float32)[GROUP]
    columns = leaves.score_columns(X, groups)
    assert columns.matrix.shape == (len(X), leaves.start.size + 2)
    assert columns.matrix.dtype == np.float32
    np.testing.assert_array_equal(columns.matrix[:, leaves.start.size :].toarray(), groups)
    scores = columns.matrix[:, : leaves.start.size] @ leaves.start + columns.base
    np.testing.assert_allclose(scores, before, atol=2e-6)
    values = np.random.default_rng(0).normal(size=leaves.start.size)
    leaves.set_parameters(values, 0.5)
    expected = columns.matrix[:, : values.size].astype(float) @ values + columns.base + 0.5
    np.testing.assert_allclose(model.predict(X, **raw), expected, atol=4e-6)
    path = tmp_path / ("model.txt" if library == "lightgbm" else "model.json")
    if library == "lightgbm":
        model.booster_.save_model(path)
        read = lgb.Booster(model_file=path).predict(X, **raw)
    else:
        model.get_booster().save_model(path)
        read = xgb.Booster(model_file=path).predict(xgb.DMatrix(X), **raw)
    np.testing.assert_array_equal(read, model.predict(X, **raw))


@pytest.mark.parametrize("library", LIBRARIES)
def test_leaves_after_the_best_round_are_left_out(library):
    model, kind, raw = grow(library)
    if library == "lightgbm":
        model.booster_.best_iteration = model._best_iteration = 4
    else:
        model.get_booster().set_attr(best_iteration="3")
    before = model.predict(X, **raw)
    leaves = kind(model)
    assert {name.split(",")[0] for name in leaves.names} == {f"leaf[{t}" for t in range(4)}
    leaves.set_parameters(leaves.start, 0.0)
    np.testing.assert_allclose(model.predict(X, **raw), before, atol=1e-6)


def test_linear_leaves_are_refused():
    model = grow("lightgbm", linear_tree=True)[0]
    with pytest.raises(ValueError, match="linear_tree=True has a linear function"):
        LGBMLeafValues(model)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_fit_over_leaf_values(library):
    (X, y, g), V, (T, t, h) = draw(0, 1000, 0.8), draw(1, 300), draw(2, 1000)
    solver = AdaptiveSurrogates(space="leaves", n_perturbations=20)
    model = make(library, solver=solver, max_calls=600)
    model.fit(X, y, sensitive_features=g, validation=V, evaluation=(T, t, h))
    report = model.blackbox_report_.set_index("model")
    value = mean_g_mean_loss(t, model.decision_scores(T, h), h.to_numpy())
    assert report.evaluation["this model"] == value
    assert report.validation["this model"] == report.validation.min()
    assert model.blackbox_parameters_.index.str.startswith("leaf").sum() > 10
