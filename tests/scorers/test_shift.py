"""A shift folded into a native model: plain predictions of the saved file are the shifted ones."""

from __future__ import annotations

import copy
import json
import pickle

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy.special import expit, softmax

import gbm_constrained as gc
from gbm_constrained.scorers.lightgbm import models as lightgbm_model
from gbm_constrained.scorers.xgboost import models as xgboost_model

ROUNDS = 12
SHIFTS = {2: np.array([-1.3]), 3: np.array([0.7, -1.1, 0.4])}
LARGE = {2: np.array([25.0]), 3: np.array([25.0, -30.0, 5.0])}
CLASSES = pytest.mark.parametrize("k", [2, 3])

XGB = {
    "plain": {},
    "forest": {"num_parallel_tree": 3, "subsample": 0.6, "colsample_bynode": 0.7},
    "stumps": {"max_depth": 1, "min_child_weight": 5},
    "constant trees": {"gamma": 1e9},
    "vector leaves": {"multi_strategy": "multi_output_tree"},
}
LGB = {
    "plain": {},
    "linear": {"linear_tree": True},
    "goss": {"data_sample_strategy": "goss"},
    "constant trees": {"min_gain_to_split": 1e9},
}


@pytest.fixture(scope="module")
def table():
    """Features with a category and missing values, labels of two and of three classes."""
    rng = np.random.default_rng(0)
    n = 600
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    X["kind"] = pd.Categorical(rng.choice(["x", "y", "z"], n))
    score = X.a + X.b * X.c + (X.kind == "y") + 0.5 * rng.normal(size=n)
    X.loc[::11, "d"] = np.nan
    return X, {2: (score > 0.8).astype(int).to_numpy(), 3: np.digitize(score, [0.0, 1.0])}


def features(X, options):
    """Vector leaves cannot stand categories yet."""
    return X[list("abcd")] if "multi_strategy" in options else X


def xgb_model(table, k, **options):
    X, y = table
    X = features(X, options)
    options = {"n_estimators": ROUNDS, "max_depth": 3, "learning_rate": 0.5, **options}
    return xgb.XGBClassifier(enable_categorical=True, n_jobs=1, **options).fit(X, y[k])


def lgb_model(table, k, **options):
    X, y = table
    options = {"n_estimators": ROUNDS, "num_leaves": 7, "verbose": -1, "n_jobs": 1, **options}
    return lgb.LGBMClassifier(**options).fit(X, y[k])


def close(found, before, shift):
    """Margins differ by the shift, up to the rounding of float32 sums."""
    added = shift if before.ndim == 2 else shift[0]
    scale = 1.0 + np.abs(before).max() + np.abs(shift).max()
    np.testing.assert_allclose(found, before + added, rtol=0, atol=1e-6 * scale)


def decided(margin):
    return margin.argmax(axis=1) if margin.ndim == 2 else (margin > 0).astype(int)


def probability(margin):
    p = softmax(margin, axis=1) if margin.ndim == 2 else expit(margin)
    return p if p.ndim == 2 else np.column_stack([1 - p, p])


@CLASSES
@pytest.mark.parametrize("shifts", [SHIFTS, LARGE])
@pytest.mark.parametrize("options", XGB.values(), ids=XGB)
def test_xgboost_margins_of_the_model_and_its_prefixes(table, options, shifts, k):
    X = features(table[0], options)
    clf, shift = xgb_model(table, k, **options), shifts[k]
    ranges = [(0, 0), (0, 1), (0, 5)]
    before = [clf.predict(X, output_margin=True, iteration_range=r) for r in ranges]
    xgboost_model.shift_intercept(clf.get_booster(), shift)
    for r, margin in zip(ranges, before, strict=True):
        close(clf.predict(X, output_margin=True, iteration_range=r), margin, shift)


@CLASSES
@pytest.mark.parametrize("extension", ["json", "ubj"])
@pytest.mark.parametrize("options", XGB.values(), ids=XGB)
def test_xgboost_file_decides_alike(table, options, extension, k, tmp_path):
    """In a plain classifier, with the probabilities that belong to the shifted margins."""
    X = features(table[0], options)
    clf = xgb_model(table, k, **options)
    wanted = clf.predict(X, output_margin=True) + SHIFTS[k]
    xgboost_model.shift_intercept(clf.get_booster(), SHIFTS[k])
    clf.save_model(tmp_path / f"model.{extension}")
    plain = xgb.XGBClassifier(n_jobs=1)
    plain.load_model(tmp_path / f"model.{extension}")
    np.testing.assert_array_equal(plain.predict(X), decided(wanted))
    np.testing.assert_allclose(plain.predict_proba(X), probability(wanted), atol=1e-5)
    np.testing.assert_array_equal(plain.predict_proba(X), clf.predict_proba(X))
    for other in (copy.deepcopy(clf), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(other.predict_proba(X), clf.predict_proba(X))


@CLASSES
def test_xgboost_model_is_otherwise_the_same(table, k):
    """Attributes, names, types, configuration, structure, importances; caches are fresh."""
    X, y = table
    clf = xgb.XGBClassifier(
        enable_categorical=True, n_jobs=1, early_stopping_rounds=2, learning_rate=0.5, max_depth=3
    )
    clf.fit(X[:300], y[k][:300], eval_set=[(X[300:], y[k][300:])], verbose=False)
    booster = clf.get_booster()
    booster.set_attr(note="kept")
    rows = xgb.DMatrix(X, enable_categorical=True, nthread=1)
    before = booster.predict(rows, output_margin=True)  # kept by XGBoost for these rows
    config, model = booster.save_config(), json.loads(booster.save_raw("json"))
    stopped, importances = clf.best_iteration, clf.feature_importances_
    margin = clf.predict(X, output_margin=True)
    assert stopped + 1 < booster.num_boosted_rounds()
    xgboost_model.shift_intercept(booster, SHIFTS[k])
    close(booster.predict(rows, output_margin=True), before, SHIFTS[k])
    close(clf.predict(X, output_margin=True), margin, SHIFTS[k])
    assert clf.best_iteration == booster.best_iteration == stopped
    assert json.loads(booster.save_config()) == json.loads(config)
    np.testing.assert_array_equal(clf.feature_importances_, importances)
    shifted = json.loads(booster.save_raw("json"))
    for m in (model, shifted):
        for tree in m["learner"]["gradient_booster"]["model"]["trees"][:k]:
            leaves = [i for i, child in enumerate(tree["left_children"]) if child == -1]
            for i in leaves:
                tree["split_conditions"][i] = None
            del tree["base_weights"]
    assert shifted == model


@CLASSES
def test_xgboost_contributions_add_up(table, k):
    """Also where they are made of the weights of inner nodes."""
    X, _ = table
    booster = xgb_model(table, k).get_booster()
    xgboost_model.shift_intercept(booster, SHIFTS[k])
    rows = xgb.DMatrix(X, enable_categorical=True, nthread=1)
    margin = booster.predict(rows, output_margin=True)
    for approx in (False, True):
        parts = booster.predict(rows, pred_contribs=True, approx_contribs=approx)
        np.testing.assert_allclose(parts.sum(axis=-1), margin, atol=1e-4)


@CLASSES
def test_xgboost_sliced_and_continued(table, k):
    X, y = table
    clf = xgb_model(table, k)
    rows = xgb.DMatrix(X, y[k], enable_categorical=True, nthread=1)
    part = clf.get_booster()[:4]
    before = part.predict(rows, output_margin=True)
    xgboost_model.shift_intercept(part, SHIFTS[k])
    close(part.predict(rows, output_margin=True), before, SHIFTS[k])
    longer = xgb.XGBClassifier(enable_categorical=True, n_estimators=4, n_jobs=1)
    longer.fit(X, y[k], xgb_model=clf.get_booster())
    before = longer.predict(X, output_margin=True)
    xgboost_model.shift_intercept(longer.get_booster(), SHIFTS[k])
    close(longer.predict(X, output_margin=True), before, SHIFTS[k])


@CLASSES
@pytest.mark.parametrize("several_rounds", [False, True])
def test_xgboost_without_trees(table, several_rounds, k):
    """The intercept takes the shift; two in a row are their sum."""
    X, y = table
    rows = xgb.DMatrix(X, y[k], enable_categorical=True, nthread=1)
    params = {"objective": "binary:logistic", "base_score": 0.3, "nthread": 1}
    if k == 3:
        params |= {"objective": "multi:softprob", "num_class": 3, "base_score": [0.1, 0.2, 0.3]}
    booster = xgb.train(params, rows, ROUNDS * several_rounds)
    before = booster.predict(rows, output_margin=True)
    xgboost_model.shift_intercept(booster, SHIFTS[k])
    xgboost_model.shift_intercept(booster, SHIFTS[k])
    loaded = xgb.Booster()
    loaded.load_model(booster.save_raw("ubj"))
    for b in (booster, loaded):
        close(b.predict(rows, output_margin=True), before, 2 * SHIFTS[k])


@CLASSES
@pytest.mark.parametrize("shifts", [SHIFTS, LARGE])
@pytest.mark.parametrize("options", LGB.values(), ids=LGB)
def test_lightgbm_scores_of_the_model_and_its_prefixes(table, options, shifts, k, tmp_path):
    """In memory and in a plain booster that reads the file; of linear leaves on missing values."""
    X, _ = table
    clf = lgb_model(table, k, **options)
    booster = clf.booster_
    lengths = [1, 5, -1]
    before = [booster.predict(X, raw_score=True, num_iteration=i, num_threads=1) for i in lengths]
    shifted = lightgbm_model.shift_intercept(booster, shifts[k])
    shifted.save_model(tmp_path / "model.txt")
    plain = lgb.Booster(model_file=tmp_path / "model.txt")
    for b in (shifted, plain):
        for i, scores in zip(lengths, before, strict=True):
            found = b.predict(X, raw_score=True, num_iteration=i, num_threads=1)
            np.testing.assert_allclose(found, scores + shifts[k], rtol=1e-12, atol=1e-12)
        p = b.predict(X, num_threads=1)
        p = p if k > 2 else np.column_stack([1 - p, p])
        np.testing.assert_allclose(p, probability(before[-1] + shifts[k]), atol=1e-12)
        if "linear_tree" not in options:  # which has no contributions
            parts = b.predict(X, pred_contrib=True, num_threads=1).reshape(
                len(X), -1, X.shape[1] + 1
            )
            total = parts.sum(axis=-1).squeeze()
            np.testing.assert_allclose(total, before[-1] + shifts[k], atol=1e-8)


@CLASSES
def test_lightgbm_booster_is_otherwise_the_same(table, k):
    """Best iteration and score, parameters, categories, names, importances."""
    X, y = table
    clf = lgb.LGBMClassifier(n_estimators=200, learning_rate=0.5, verbose=-1, n_jobs=1)
    clf.fit(
        X[:300], y[k][:300], eval_set=[(X[300:], y[k][300:])],
        callbacks=[lgb.early_stopping(2, verbose=False)],
    )  # fmt: skip
    before = clf.booster_
    assert before.best_iteration > 0
    scores = clf.predict(X, raw_score=True)
    after = lightgbm_model.shift_intercept(before, SHIFTS[k])
    for name in ("best_iteration", "best_score", "params", "pandas_categorical"):
        assert getattr(after, name) == getattr(before, name), name
    assert after._train_data_name == before._train_data_name
    assert after.feature_name() == before.feature_name()
    assert after.num_trees() == before.num_trees()
    for kind in ("split", "gain"):
        np.testing.assert_array_equal(
            after.feature_importance(kind), before.feature_importance(kind)
        )
    clf._Booster = after
    np.testing.assert_allclose(clf.predict(X, raw_score=True), scores + SHIFTS[k], atol=1e-12)
    np.testing.assert_array_equal(clf.predict(X), decided(scores + SHIFTS[k]))
    structure = before.dump_model()["tree_info"][0]["tree_structure"]
    root = after.dump_model()["tree_info"][0]["tree_structure"]
    assert root["internal_value"] == pytest.approx(structure["internal_value"] + SHIFTS[k][0])


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_constrained_models(table, library):
    """A model that this package trains is a native model, and shifts as one."""
    X, y = table
    options = {"measure_on": "train"}
    if library == "xgboost":
        clf = gc.ConstrainedXGBClassifier(
            constraints=[gc.fnr() <= 0.1],
            n_estimators=ROUNDS,
            enable_categorical=True,
            n_jobs=1,
            **options,
        ).fit(X, y[2])
        before = clf.predict(X, output_margin=True)
        xgboost_model.shift_intercept(clf.get_booster(), SHIFTS[2])
        after = clf.predict(X, output_margin=True)
    else:
        clf = gc.ConstrainedLGBMClassifier(
            constraints=[gc.fnr() <= 0.1], n_estimators=ROUNDS, verbose=-1, n_jobs=1, **options
        ).fit(X, y[2])
        before = clf.predict(X, raw_score=True)
        clf._Booster = lightgbm_model.shift_intercept(clf.booster_, SHIFTS[2])
        after = clf.predict(X, raw_score=True)
    close(after, before, SHIFTS[2])
    np.testing.assert_array_equal(clf.predict(X), decided(before + SHIFTS[2]))
