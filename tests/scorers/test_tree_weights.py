"""Weights of rounds and values of leaves: parts of scores, and native boosters with others."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from black_box_fits import LIBRARIES, draw, make, mean_g_mean_loss

from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.scorers.lightgbm import models as of_lightgbm
from gbm_constrained.scorers.trained_models import LeafValues, TreeWeights, make_group_tree
from gbm_constrained.scorers.xgboost import models as of_xgboost
from gbm_constrained.solvers import AdaptiveSurrogates

N_ROWS = 600
RANDOM = np.random.default_rng(0)
X = pd.DataFrame(RANDOM.normal(size=(N_ROWS, 3)), columns=["a", "b", "c"])
X.loc[RANDOM.random(N_ROWS) < 0.1, "b"] = np.nan
X["d"] = pd.Categorical(RANDOM.choice(list("wxyz"), N_ROWS))
Y = (X.a + X.b.fillna(1.0) * X.c + (X.d == "x") > 1.5).astype(int)
GROUPS = np.arange(N_ROWS) % 3
ROUNDS = 8
WITHOUT_MORE = np.empty((N_ROWS, 0), dtype=np.float32)


def grow_lightgbm(**options):
    model = lgb.LGBMClassifier(n_estimators=ROUNDS, num_leaves=6, verbose=-1, n_jobs=1, **options)
    return model.fit(X.drop(columns="d") if "linear_tree" in options else X, Y)


def grow_xgboost(**options):
    return xgb.XGBClassifier(
        n_estimators=ROUNDS, max_depth=3, n_jobs=1, enable_categorical=True, **options
    ).fit(X, Y)


@pytest.mark.parametrize(
    "options",
    [{}, {"boosting_type": "dart", "drop_rate": 0.5}, {"linear_tree": True}],
    ids=["gbdt", "dart", "linear"],
)
def test_weighted_boosters_of_lightgbm(options, tmp_path):
    model = grow_lightgbm(**options)
    table = X[model.feature_name_]
    parts = TreeWeights(of_lightgbm, model).score_columns(table, WITHOUT_MORE)
    assert parts.shape == (N_ROWS, ROUNDS)
    assert parts.dtype == np.float32
    raw = model.predict(table, raw_score=True)
    np.testing.assert_allclose(parts.sum(axis=1), raw, atol=1e-6)
    weights = RANDOM.normal(size=ROUNDS)
    weighted = of_lightgbm.weight_rounds(model.booster_, weights, 0.7)
    weighted.save_model(tmp_path / "model.txt")
    read = lgb.Booster(model_file=tmp_path / "model.txt")
    exact = [
        model.booster_.predict(table, raw_score=True, start_iteration=t, num_iteration=1)
        for t in range(ROUNDS)
    ]
    scores = read.predict(table, raw_score=True)
    np.testing.assert_allclose(scores, weights @ exact + 0.7, rtol=0, atol=1e-12)
    np.testing.assert_allclose(scores, parts @ weights + 0.7, atol=1e-5)
    assert read.num_trees() == ROUNDS


@pytest.mark.parametrize(
    "options",
    [{}, {"base_score": 0.9}, {"num_parallel_tree": 2, "subsample": 0.5}],
    ids=["plain", "base_score", "forest"],
)
def test_weighted_boosters_of_xgboost(options, tmp_path):
    model = grow_xgboost(**options)
    parts = TreeWeights(of_xgboost, model).score_columns(X, WITHOUT_MORE)
    base = TreeWeights(of_xgboost, model).base
    assert parts.shape == (N_ROWS, ROUNDS)
    raw = model.predict(X, output_margin=True)
    np.testing.assert_allclose(parts.sum(axis=1) + base, raw, atol=2e-6)
    weights = RANDOM.normal(size=ROUNDS)
    weighted = of_xgboost.weight_rounds(model.get_booster(), weights, 0.7)
    weighted.save_model(tmp_path / "model.ubj")
    read = xgb.XGBClassifier()
    read.load_model(tmp_path / "model.ubj")
    scores = read.predict(X, output_margin=True)
    expected = parts.astype(float) @ weights + base + 0.7
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(model.predict(X, output_margin=True), raw)


OFFSETS = GroupOffsets(("d",), tuple((level,) for level in "wxyz"), np.arange(4.0))
LEVEL = X["d"].cat.codes.to_numpy()


def append(library, booster):
    models = {"lightgbm": of_lightgbm, "xgboost": of_xgboost}[library]
    return models.append_group_tree(booster, make_group_tree(X, OFFSETS, LEVEL))


def test_rounds_after_the_best_one_are_left_out():
    model = grow_lightgbm()
    model.booster_.best_iteration = 5
    assert TreeWeights(of_lightgbm, model).score_columns(X, WITHOUT_MORE).shape[1] == 5
    assert of_lightgbm.weight_rounds(model.booster_, np.ones(5), 0.0).num_trees() == 5
    model = grow_xgboost()
    model.get_booster().set_attr(best_iteration="4")
    assert TreeWeights(of_xgboost, model).score_columns(X, WITHOUT_MORE).shape[1] == 5
    weighted = of_xgboost.weight_rounds(model.get_booster(), np.ones(5), 0.0)
    assert weighted.num_boosted_rounds() == 5
    appended = append("xgboost", model.get_booster())
    assert appended.num_boosted_rounds() == 6
    expected = model.predict(X, output_margin=True) + LEVEL
    matrix = xgb.DMatrix(X, enable_categorical=True)
    np.testing.assert_allclose(appended.predict(matrix, output_margin=True), expected, atol=2e-6)


def test_the_best_round_is_the_last_one_and_counts_offsets():
    booster = grow_lightgbm().booster_
    booster.best_iteration = 5
    weighted = of_lightgbm.weight_rounds(booster, np.ones(5), 0.0)
    appended = append("lightgbm", weighted)
    assert (weighted.best_iteration, appended.best_iteration) == (5, 6)
    booster = grow_xgboost().get_booster()
    booster.set_attr(best_iteration="4", best_score="0.5")
    weighted = of_xgboost.weight_rounds(booster, np.ones(5), 0.0)
    appended = append("xgboost", weighted)
    assert (weighted.best_iteration, appended.best_iteration) == (4, 5)
    assert weighted.best_score == appended.best_score == 0.5


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_parameters_of_a_classifier(library):
    model = grow_lightgbm() if library == "lightgbm" else grow_xgboost()
    weights = TreeWeights(of_lightgbm if library == "lightgbm" else of_xgboost, model)
    raw = {"lightgbm": "raw_score", "xgboost": "output_margin"}[library]
    before = model.predict(X, **{raw: True})
    groups = np.eye(3, dtype=np.float32)[GROUPS]
    columns = weights.score_columns(X, groups)
    assert columns.dtype == np.float32
    np.testing.assert_array_equal(columns[:, ROUNDS:], groups)
    assert len(weights.names) == weights.start.size == ROUNDS
    scores = columns[:, :ROUNDS] @ weights.start + weights.base
    np.testing.assert_allclose(scores, before, atol=2e-6)
    weights.set_parameters(weights.start, 0.0)
    np.testing.assert_array_equal(model.predict(X, **{raw: True}), before)
    weights.set_parameters(2.0 * weights.start, 0.5)
    expected = 2.0 * (before - weights.base) + weights.base + 0.5
    np.testing.assert_allclose(model.predict(X, **{raw: True}), expected, rtol=0, atol=4e-6)
    before = model.predict(X, **{raw: True})
    weights.append_offsets(X, OFFSETS, LEVEL)
    np.testing.assert_allclose(model.predict(X, **{raw: True}), before + LEVEL, atol=2e-6)


def test_what_is_no_sum_of_trees_for_two_classes_is_refused():
    forest = grow_lightgbm(boosting_type="rf", subsample=0.5, subsample_freq=1)
    several = lgb.LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1).fit(X, GROUPS)
    for model, message in ((forest, "boosting_type='rf' averages"), (several, "two classes")):
        with pytest.raises(ValueError, match=message):
            TreeWeights(of_lightgbm, model)
        with pytest.raises(ValueError, match=message):
            of_lightgbm.weight_rounds(model.booster_, np.ones(2), 0.0)
    dart = grow_xgboost(booster="dart", rate_drop=0.5)
    several = xgb.XGBClassifier(n_estimators=2, enable_categorical=True).fit(X, GROUPS)
    linear = xgb.XGBClassifier(n_estimators=2, booster="gblinear").fit(X[["a", "c"]], Y)
    for model, message in (
        (dart, "booster='dart' has weights"),
        (linear, "booster='gblinear' has weights"),
        (several, "two classes"),
    ):
        with pytest.raises(ValueError, match=message):
            TreeWeights(of_xgboost, model)
        with pytest.raises(ValueError, match=message):
            of_xgboost.weight_rounds(model.get_booster(), np.ones(2), 0.0)
    with pytest.raises(ValueError, match="one number for each of the 8 rounds"):
        of_lightgbm.weight_rounds(grow_lightgbm().booster_, np.ones(3), 0.0)
    with pytest.raises(ValueError, match="one number for each of the 8 rounds"):
        of_xgboost.weight_rounds(grow_xgboost().get_booster(), np.ones(3), 0.0)


NUMBERS, LABELS, HALVES = draw(0, 500)
NUMBERS = NUMBERS.assign(c=np.where(NUMBERS.a > 1, np.nan, NUMBERS.b * NUMBERS.a))
FEW = 6


def grow_leaves(library, **options):
    if library == "lightgbm":
        model = lgb.LGBMClassifier(n_estimators=FEW, num_leaves=5, verbose=-1, n_jobs=1)
        models, raw = of_lightgbm, {"raw_score": True}
    else:
        model = xgb.XGBClassifier(n_estimators=FEW, max_depth=3, n_jobs=1)
        models, raw = of_xgboost, {"output_margin": True}
    return model.set_params(**options).fit(NUMBERS, LABELS), models, raw


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
    model, models, raw = grow_leaves(library, **options)
    before = model.predict(NUMBERS, **raw)
    leaves = LeafValues(models, model)
    groups = np.eye(2, dtype=np.float32)[HALVES]
    columns = leaves.score_columns(NUMBERS, groups)
    assert columns.shape == (len(NUMBERS), leaves.start.size + 2)
    assert columns.dtype == np.float32
    np.testing.assert_array_equal(columns[:, leaves.start.size :].toarray(), groups)
    scores = columns[:, : leaves.start.size] @ leaves.start + leaves.base
    np.testing.assert_allclose(scores, before, atol=2e-6)
    values = np.random.default_rng(0).normal(size=leaves.start.size)
    leaves.set_parameters(values, 0.5)
    expected = columns[:, : values.size].astype(float) @ values + leaves.base + 0.5
    np.testing.assert_allclose(model.predict(NUMBERS, **raw), expected, atol=4e-6)
    path = tmp_path / ("model.txt" if library == "lightgbm" else "model.json")
    if library == "lightgbm":
        model.booster_.save_model(path)
        read = lgb.Booster(model_file=path).predict(NUMBERS, **raw)
    else:
        model.get_booster().save_model(path)
        read = xgb.Booster(model_file=path).predict(xgb.DMatrix(NUMBERS), **raw)
    np.testing.assert_array_equal(read, model.predict(NUMBERS, **raw))


@pytest.mark.parametrize("library", LIBRARIES)
def test_leaves_after_the_best_round_are_left_out(library):
    model, models, raw = grow_leaves(library)
    if library == "lightgbm":
        model.booster_.best_iteration = model._best_iteration = 4
    else:
        model.get_booster().set_attr(best_iteration="3")
    before = model.predict(NUMBERS, **raw)
    leaves = LeafValues(models, model)
    assert {name.split(",")[0] for name in leaves.names} == {f"leaf[{t}" for t in range(4)}
    leaves.set_parameters(leaves.start, 0.0)
    np.testing.assert_allclose(model.predict(NUMBERS, **raw), before, atol=1e-6)


def test_linear_leaves_are_refused():
    model = grow_leaves("lightgbm", linear_tree=True)[0]
    with pytest.raises(ValueError, match="linear_tree=True has a linear function"):
        LeafValues(of_lightgbm, model)


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
