"""Decisions of fitted models: shifts inside and beside them, and early stopping."""

from __future__ import annotations

import pickle

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH, RULES, margins_of, quiet
from scipy import special
from sklearn.base import clone
from small_fits import DEMANDING, ROUNDS, decided, make

import gbm_constrained as gc
from gbm_constrained.solvers import AutoSolver

# Each library and each kind of problem once.
EACH = pytest.mark.parametrize(
    ("library", "kind"), [("xgboost", "several"), ("lightgbm", "binary")]
)
CLOSE = {"xgboost": 2e-6, "lightgbm": 1e-12}


def plain(library, model, tmp_path):
    """Decisions and probabilities of the saved file, by the library alone."""
    if library == "xgboost":
        model.save_model(tmp_path / "model.json")
        loaded = xgb.XGBClassifier()
        loaded.load_model(tmp_path / "model.json")
        return loaded.predict, loaded.predict_proba
    model.booster_.save_model(tmp_path / "model.txt")
    booster = lgb.Booster(model_file=tmp_path / "model.txt")

    def probabilities(X):
        p = booster.predict(X)
        return np.column_stack([1 - p, p]) if p.ndim == 1 else p

    return lambda X: decided(booster.predict(X, raw_score=True)), probabilities


@pytest.mark.parametrize(
    ("library", "kind", "measure_on"),
    [
        ("xgboost", "binary", "crossfit"),
        ("lightgbm", "binary", "holdout"),
        ("xgboost", "several", "holdout"),
        ("lightgbm", "several", "crossfit"),
    ],
)
def test_the_saved_file_decides_as_the_model_does(library, kind, measure_on, table, tmp_path):
    """Shifted in the model itself, or beside it: the decisions are the same."""
    X, y = table[0], table[1][kind]
    model = make(library, DEMANDING[kind], measure_on=measure_on).fit(X, y)
    beside = make(library, DEMANDING[kind], measure_on=measure_on, probabilities="calibrated")
    beside.fit(X, y)
    assert model.shift_.any()
    np.testing.assert_array_equal(model.shift_, beside.shift_)
    predict, probabilities = plain(library, model, tmp_path)
    np.testing.assert_array_equal(predict(X), model.predict(X))
    np.testing.assert_allclose(probabilities(X), model.predict_proba(X), atol=1e-7)
    margin, unmoved = margins_of(model, X), margins_of(beside, X)
    shift = model.shift_ if kind == "several" else model.shift_[0]
    np.testing.assert_allclose(margin, unmoved + shift, atol=CLOSE[library])
    np.testing.assert_array_equal(model.predict(X), decided(margin))
    np.testing.assert_array_equal(model.predict(X), beside.predict(X))
    if measure_on == "crossfit":
        assert (decided(unmoved) != beside.predict(X)).any()
    # What is beside the model leaves its probabilities alone.
    if kind == "binary":
        p = special.expit(unmoved)
        np.testing.assert_allclose(beside.predict_proba(X)[:, 1], p, atol=1e-6)
    else:
        p = special.softmax(unmoved, axis=1)
        np.testing.assert_allclose(beside.predict_proba(X), p, atol=1e-6)


@EACH
def test_a_threshold_beside_the_model_travels_with_it(library, kind, table):
    X, y = table[0], table[1][kind]
    labels = y if library == "xgboost" else np.array(["a", "b", "c"])[y]
    rule = RULES["binary"] if kind == "binary" else [gc.class_error(labels[y == 2][0]) <= 0.2]
    model = make(library, rule, probabilities="calibrated").fit(X, labels)
    expected = model.predict(X)
    assert set(expected) <= set(labels)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), expected)
    again = clone(copy)
    assert again.probabilities == "calibrated"
    assert not hasattr(again, "_threshold")
    np.testing.assert_array_equal(again.fit(X, labels).predict(X), expected)
    some = {"iteration_range": (0, 5)} if library == "xgboost" else {"num_iteration": 5}
    scores = margins_of(model, X, 5) + (model.shift_ if kind == "several" else model.shift_[0])
    np.testing.assert_array_equal(model.predict(X, **some), model.classes_[decided(scores)])
    again.set_params(constraints=[]).fit(X, labels)
    assert not hasattr(again, "_threshold")
    assert not hasattr(again, "shift_")


@EACH
def test_early_stopping_and_the_shift(library, kind, table):
    """The best iteration is the parent's; it is shifted as a whole, and reported as such."""
    X, y = table[0], table[1][kind]
    stopping = {"early_stopping_rounds": 4} if library == "xgboost" else {}
    given = {"eval_set": [(X[:200], y[:200])], **quiet(library)}
    if library == "lightgbm":
        given["callbacks"] = [lgb.early_stopping(4, verbose=False)]
    options = {"n_estimators": 60, "learning_rate": 0.6, **stopping}
    model = make(library, DEMANDING[kind], **options).fit(X[200:], y[200:], **given)
    best = model.best_iteration + 1 if library == "xgboost" else model.best_iteration_
    assert best < 55
    assert model.shift_.any()
    assert model.history_["rounds"].iloc[-1] == best
    margin = margins_of(model, X)
    np.testing.assert_allclose(margin, margins_of(model, X, best), atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), decided(margin))
    target = 1 if kind == "binary" else 2
    report = model.constraint_report_
    for name, part in (("train", slice(200, None)), ("held_out", slice(200))):
        wrong = decided(margin[part]) != y[part]
        rate = wrong[y[part] == target].mean()
        assert report[name][0] == pytest.approx(rate, abs=1e-9)
    assert report["rows"][0] == "eval_set[0]"


@BOTH
def test_mixtures_are_not_shifted(library, table):
    X, y = table[0], table[1]["binary"]
    model = make(library, RULES["binary"], iterate="randomized").fit(X, y)
    assert not model.shift_.any()
    for guarantee in ("expected", "high_probability"):
        with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*'randomized'"):
            make(library, RULES["binary"], iterate="randomized", guarantee=guarantee).fit(X, y)


def test_names_of_classes_do_not_matter(table):
    """In the same order; folds are drawn by position in the table, so that rows must not move."""
    X, y = table[0], table[1]["several"]
    model = make("lightgbm", RULES["several"]).fit(X, y)
    names = np.array(["ash", "birch", "elm"])
    other = make("lightgbm", [gc.class_error("elm") <= 0.2]).fit(X, names[y])
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(other.predict(X), names[model.predict(X)])


def test_flat_initial_scores_of_several_classes(table):
    """Class by class, as LightGBM takes them: certification rows are taken from each class."""
    X, y = table[0], table[1]["several"]
    start = np.random.default_rng(1).normal(size=(y.size, 3))
    rule, options = [gc.class_error(2) <= 0.5], {"guarantee": "high_probability"}
    square = make("lightgbm", rule, **options).fit(X, y, init_score=start)
    flat = make("lightgbm", rule, **options).fit(X, y, init_score=start.ravel(order="F"))
    np.testing.assert_array_equal(margins_of(square, X), margins_of(flat, X))


@pytest.mark.parametrize("save_best", [False, True])
def test_early_stopping_by_a_callback(save_best, table):
    """The model that is shifted and reported is the one that predicts."""
    X, y = table[0], table[1]["binary"]
    options = {"n_estimators": 60, "learning_rate": 0.6}
    start = make("xgboost", [gc.fnr() <= 0.1], n_estimators=4).fit(X[200:], y[200:])
    for given in ({}, {"xgb_model": start, "measure_on": "train"}):
        options["callbacks"] = [xgb.callback.EarlyStopping(rounds=3, save_best=save_best)]
        measured = {"measure_on": given.pop("measure_on", "crossfit")}
        model = make("xgboost", [gc.fnr() <= 0.1], **options, **measured)
        model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], verbose=False, **given)
        before = 4 if given else 0
        assert model.best_iteration < 50
        assert before + model.history_["rounds"].iloc[-1] == model.best_iteration + 1
        for name, part in (("train", slice(200, None)), ("held_out", slice(200))):
            missed = np.mean(model.predict(X[part])[y[part] == 1] == 0)
            assert model.constraint_report_[name][0] == pytest.approx(missed, abs=1e-9)


def test_a_model_that_stopped_early_is_continued(table):
    """XGBoost keeps the best iteration of the first fit, which would predict without the rest."""
    X, y = table[0], table[1]["binary"]
    first = xgb.XGBClassifier(
        n_estimators=60, early_stopping_rounds=3, n_jobs=1, learning_rate=0.6
    )
    first.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], verbose=False)
    model = make("xgboost", [gc.fnr() <= 0.1], n_estimators=6)
    model.fit(X[200:], y[200:], xgb_model=first)
    assert model.history_["rounds"].iloc[-1] == 6
    missed = np.mean(model.predict(X[200:])[y[200:] == 1] == 0)
    assert model.constraint_report_.train[0] == pytest.approx(missed, abs=1e-9)


@BOTH
def test_a_fit_that_is_refused_leaves_the_model_as_it_was(library, table):
    X, y = table[0], table[1]["binary"]
    model = make(library, [gc.fnr() <= 0.1], probabilities="calibrated").fit(X, y)
    decisions, shift = model.predict(X), model.shift_
    assert shift.any()
    with pytest.raises(ValueError, match="class 7"):
        model.set_params(constraints=[gc.class_error(7) <= 0.1]).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), decisions)
    np.testing.assert_array_equal(model.shift_, shift)
    model.set_params(constraints=[]).fit(X, y)
    assert not hasattr(model, "shift_")
    assert not hasattr(model, "_threshold")


@BOTH
def test_a_mixture_of_a_single_iteration_is_that_model(library, table):
    X, y = table[0], table[1]["binary"]
    model = make(
        library,
        [gc.fnr() <= 0.1],
        iterate="randomized",
        solver=AutoSolver(rounds_per_iteration=ROUNDS + 1),
    )
    model.fit(X, y)
    assert model.prefixes_["rounds"].tolist() == [ROUNDS]
    missed = np.mean(model.predict(X, random_state=0)[y == 1] == 0)
    assert model.constraint_report_.train[0] == pytest.approx(missed)
    assert 0 < model.constraint_report_.held_out[0] < 1


def test_a_threshold_is_not_that_of_a_file_loaded_later(table, tmp_path):
    X, y = table[0], table[1]["binary"]
    plain = xgb.XGBClassifier(n_estimators=3, n_jobs=1).fit(X, y)
    plain.save_model(tmp_path / "model.json")
    model = make("xgboost", [gc.fnr() <= 0.02], probabilities="calibrated").fit(X, y)
    model.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
