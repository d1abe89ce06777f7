"""Classifiers of a metric are saved, loaded, pickled, cloned and searched over."""

from __future__ import annotations

import functools
import pickle

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, quiet
from saved_models import FILES, assert_same_attributes, make, save_and_load, table_of
from sklearn.base import clone
from sklearn.metrics import recall_score
from sklearn.model_selection import GridSearchCV

import gbm_constrained as gc
from gbm_constrained.fit.model_note import dumps, loads
from gbm_constrained.metrics import (
    cost,
    f1_micro,
    f_beta,
    g_mean,
    h_mean,
    metric,
    min_recall,
    q_mean,
)
from gbm_constrained.metrics.reading import read_objective
from gbm_constrained.presets import Coverage
from gbm_constrained.solvers import Reduction

# A shift in the model, a shift beside it, rules beside it, one rule, a mixture, rules of groups.
SCENARIOS = {
    "shift": ("several", {"maximize": h_mean()}),
    "calibrated": ("several", {"maximize": "g_mean", "probabilities": "calibrated"}),
    "offsets": ("several", {"maximize": h_mean(), "constraints": [Coverage(within=0.005)]}),
    "beside": (
        "several",
        {"maximize": h_mean(), "constraints": [Coverage(within=0.005)],
         "solver": Reduction(deterministic=True)},
    ),
    "mixture": (
        "several",
        {"maximize": min_recall(), "constraints": [Coverage(within=0.005)],
         "solver": Reduction(deterministic=False)},
    ),
    "groups": (
        "categories",
        {"maximize": q_mean(), "solver": "columns",
         "constraints": [gc.gap(gc.tpr(), by="c") <= 0.05]},
    ),
}  # fmt: skip


# Each with one library, and what the libraries keep in other ways with both.
CASES = [
    ("xgboost", "shift"), ("lightgbm", "shift"), ("xgboost", "calibrated"),
    ("xgboost", "offsets"), ("lightgbm", "offsets"), ("lightgbm", "beside"),
    ("xgboost", "mixture"), ("xgboost", "groups"), ("lightgbm", "groups"),
]  # fmt: skip


@functools.cache
def fitted(library, scenario):
    """Fit a classifier of a scenario; its features and labels as well."""
    kind, options = SCENARIOS[scenario]
    X, y = table_of(kind, np.random.default_rng(3))
    if library == "xgboost" and kind == "categories":
        options = {**options, "enable_categorical": True}
    options = {"constraints": None, "measure_on": gc.CrossFit(2), **options}
    return make(library, **options).fit(X, y), X, y


@pytest.mark.parametrize(("library", "scenario"), CASES)
def test_a_loaded_model_decides_alike(library, scenario, tmp_path):
    model, X, _ = fitted(library, scenario)
    loaded = save_and_load(model, tmp_path)
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(
            other.predict(X, random_state=0), model.predict(X, random_state=0)
        )
        np.testing.assert_array_equal(
            other.decision_probabilities(X), model.decision_probabilities(X)
        )
        np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
        assert_same_attributes(library, vars(other), vars(model))
        assert other.maximize == model.maximize
        assert other.constraints == model.constraints


def test_the_scenarios_are_what_they_are_called():
    """Otherwise the test above would save the same thing nine times."""
    known = {case: vars(fitted(*case)[0]) for case in CASES}
    for library in CLASSIFIERS:
        assert "_rules" not in known[library, "shift"]
        assert known[library, "shift"]["shift_"].any()
        assert known[library, "offsets"]["_rules"]["cell_model"] is None
        assert known[library, "groups"]["_rules"]["cell_model"] is not None
    assert "_threshold" in known["xgboost", "calibrated"]
    assert len(known["lightgbm", "beside"]["_rules"]["probability"]) == 1
    assert len(known["xgboost", "mixture"]["_rules"]["probability"]) > 1


@pytest.mark.parametrize(
    ("library", "scenario"),
    [("lightgbm", "shift"), ("xgboost", "calibrated"), ("lightgbm", "beside")],
)
def test_one_rule_decides_the_same_with_every_random_state(library, scenario, tmp_path):
    model, X, _ = fitted(library, scenario)
    expected = model.predict(X)
    for other in (model, save_and_load(model, tmp_path), pickle.loads(pickle.dumps(model))):
        source = np.random.RandomState(5)
        for given in (0, 1, source):
            np.testing.assert_array_equal(other.predict(X, random_state=given), expected)
    with pytest.raises(ValueError, match="'first' cannot be used to seed"):
        model.predict(X, random_state="first")


@EITHER
def test_damaged_rules_are_refused(library, tmp_path):
    model, _, _ = fitted(library, "offsets")
    whole = model._rules
    for name, value, words in (
        ("probability", np.array([0.5]), "costs of shape"),
        ("costs", whole["costs"][..., :2], "costs of shape"),
        ("cell_model", "text", "bytes of a booster"),
    ):
        damaged = pickle.loads(pickle.dumps(model))
        damaged._rules = {**whole, name: value}
        damaged.save_model(tmp_path / FILES[library])
        with pytest.raises(ValueError, match=words):
            type(model)().load_model(tmp_path / FILES[library])


@EITHER
def test_damaged_scores_of_cells_are_refused(library, tmp_path):
    model, _, _ = fitted(library, "groups")
    whole = model._rules["cell_scores"]
    n = whole["labels"].size
    for damage, words in (
        (None, "cell_scores of _rules must come with a cell_model"),
        ({"labels": whole["labels"]}, "cell_scores must hold"),
        ({**whole, "cell_scale": 0.0}, "positive cell_scale, got 0.0"),
        ({**whole, "label_scale": "1"}, "positive label_scale, got '1'"),
        ({**whole, "cell_factors": np.ones(n - 1)}, f"cell_factors must hold {n} numbers"),
        ({**whole, "label_factors": np.ones(n)}, "label_factors must hold"),
        ({**whole, "labels": np.zeros(n, dtype=int)}, "labels must name all"),
    ):
        damaged = pickle.loads(pickle.dumps(model))
        damaged._rules = {**model._rules, "cell_scores": damage}
        damaged.save_model(tmp_path / FILES[library])
        with pytest.raises(ValueError, match=words):
            type(model)().load_model(tmp_path / FILES[library])


@EITHER
def test_training_does_not_continue_from_trees_without_their_rules(library, tmp_path):
    model, X, y = fitted(library, "offsets")
    parameter = {"xgboost": "xgb_model", "lightgbm": "init_model"}[library]
    path = tmp_path / FILES[library]
    model.save_model(path)
    for given in (model, str(path)):
        with pytest.raises(ValueError, match=f"{parameter} is a model whose decision rules"):
            make(library, [gc.class_error(2) <= 0.3]).fit(X, y, **{parameter: given})


@EITHER
def test_a_function_of_ones_own_is_left_out_with_a_warning(library, tmp_path):
    X, y = table_of("binary", np.random.default_rng(3))
    own = metric(lambda C: C[0, 0] + C[1, 1], kind="linear")
    model = make(library, None, maximize=own, measure_on=gc.CrossFit(2)).fit(X, y)
    with pytest.warns(UserWarning, match="does not keep maximize"):
        loaded = save_and_load(model, tmp_path)
    assert loaded.maximize is None
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "objective",
    [
        "g_mean", h_mean(on={"sex": "F"}), f_beta(2, "a"), f1_micro("b"), cost([[0, 1], [5, 0]]),
        gc.recall(), gc.precision("a"), 0.5 * gc.tpr() + 0.5 * gc.tnr(),
    ],
    ids=str,
)  # fmt: skip
def test_notes_give_objectives_back(objective):
    assert loads(dumps(objective)) == objective
    if not isinstance(objective, str):
        direction = {"minimize" if "cost" in str(objective) else "maximize": objective}
        read = read_objective(direction.get("maximize"), direction.get("minimize"))
        assert loads(dumps(read)) == read


@EITHER
def test_parameters_survive_clone_and_set_params(library):
    model = make(library, None, maximize=g_mean(), solver=Reduction(deterministic=True))
    copied = clone(model)
    assert copied.get_params()["maximize"] == g_mean()
    assert copied.solver == Reduction(deterministic=True)
    copied.set_params(maximize=None, minimize="error_rate")
    assert (copied.maximize, copied.minimize) == (None, "error_rate")
    assert model.maximize == g_mean()


@pytest.mark.parametrize("library", ["lightgbm"])
def test_a_search_scores_by_the_metric(library):
    X, y = table_of("several", np.random.default_rng(3))
    model = make(library, None, maximize="g_mean", measure_on=gc.CrossFit(2), n_estimators=5)
    search = GridSearchCV(model, {"maximize": ["g_mean", "min_recall"]}, cv=2).fit(X, y)
    best = search.best_estimator_
    recalls = recall_score(y, best.predict(X), average=None)
    expected = recalls.min() if best.maximize == "min_recall" else recalls.prod() ** 0.25
    assert best.score(X, y) == pytest.approx(expected, abs=1e-12)
    means = search.cv_results_["mean_test_score"]
    assert means[0] > means[1]  # the worst recall is below the geometric mean


@EITHER
def test_native_files_of_stopped_boosters_decide_alike(library, tmp_path):
    """Readers that do not know the best round find no round after it."""
    X, y = table_of("binary", np.random.default_rng(5))
    model = make(
        library, None, maximize=g_mean(), n_estimators=60, early_stopping_rounds=3,
        learning_rate=0.9, solver=Reduction(deterministic=True),
    )  # fmt: skip
    model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], **quiet(library))
    assert model.shift_.any()
    path = str(tmp_path / FILES[library])
    model.save_model(path)
    if library == "xgboost":
        native = xgb.Booster(model_file=path)
        probability = native.predict(xgb.DMatrix(X))
        assert native.num_boosted_rounds() == model.best_iteration + 1 < 57
    else:
        native = lgb.Booster(model_file=path)
        probability = native.predict(X)
        assert native.num_trees() == model.best_iteration_ < 57
    np.testing.assert_array_equal(
        model.classes_[(probability > 0.5).astype(int)], model.predict(X)
    )
