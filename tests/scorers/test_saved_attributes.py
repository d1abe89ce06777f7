"""Fitted attributes, parameters and labels that a model file keeps, case by case."""

from __future__ import annotations

import re

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import sklearn
from helpers import BOTH, CLASSIFIERS, quiet
from saved_models import (
    FILES,
    assert_same_attributes,
    assert_same_model,
    fit_small,
    make,
    save_and_load,
    table_of,
)
from sklearn.dummy import DummyClassifier

import gbm_constrained as gc
from gbm_constrained.fit.fitted_report import FITTED_ATTRIBUTES
from gbm_constrained.solvers import AutoSolver


@pytest.fixture
def problem():
    return table_of("binary", np.random.default_rng(5))


@BOTH
def test_early_stopping_is_kept(library, problem, tmp_path):
    X, y = problem
    model = make(
        library, [gc.fnr() <= 0.1], n_estimators=60, early_stopping_rounds=3, learning_rate=0.9,
        measure_on="train",
    )  # fmt: skip
    model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], **quiet(library))
    loaded = save_and_load(model, tmp_path)
    name = "best_iteration" if library == "xgboost" else "best_iteration_"
    assert 0 < getattr(loaded, name) == getattr(model, name) < 57
    assert_same_model(loaded, model, X)


@BOTH
@pytest.mark.parametrize("constraints", [[], None])
def test_a_model_without_constraints_is_kept_as_well(library, constraints, problem, tmp_path):
    model = make(library, constraints, learning_rate=0.25).fit(*problem)
    loaded = save_and_load(model, tmp_path, constraints=[gc.fnr() <= 0.1])
    assert loaded.constraints == constraints
    assert loaded.learning_rate == 0.25
    assert_same_model(loaded, model, problem[0])


@pytest.mark.parametrize(
    "options", [{"booster": "dart", "rate_drop": 0.3}, {"booster": "gblinear", "max_depth": None}]
)
def test_other_boosters_of_xgboost(options, problem, tmp_path):
    model = make("xgboost", [], **options).fit(*problem)
    loaded = save_and_load(model, tmp_path, "model.json")
    assert loaded.get_params()["booster"] == options["booster"]
    assert_same_model(loaded, model, problem[0])


@pytest.mark.parametrize(
    "options",
    [{"boosting_type": "dart"}, {"linear_tree": True}, {"objective": "multiclassova"},
     {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1}],
)  # fmt: skip
def test_other_boosters_of_lightgbm(options, problem, tmp_path):
    X, y = problem
    model = make("lightgbm", [], **options).fit(X, y + (X.a > 1))
    loaded = save_and_load(model, tmp_path)
    assert loaded.get_params() == model.get_params()
    assert loaded.objective_ == model.objective_
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    "names",
    [np.array(["no", "yes"]), np.array(["no", "yes"], object), np.array([-1, 5], np.int8),
     np.array([False, True]), np.array([1.0, 2.0]), pd.Index(["no", "yes"])],
    ids=lambda names: str(names.dtype),
)  # fmt: skip
def test_labels_keep_their_type(names, problem, tmp_path):
    X, codes = problem
    model = fit_small("lightgbm", (X, names[codes]))
    loaded = save_and_load(model, tmp_path)
    assert type(loaded.classes_) is type(model.classes_)
    assert loaded.classes_.dtype == model.classes_.dtype
    expected, decisions = model.predict(X), loaded.predict(X)
    assert decisions.dtype == expected.dtype
    np.testing.assert_array_equal(decisions, expected)
    assert [type(c) for c in loaded._class_map] == [type(c) for c in model._class_map]


@BOTH
def test_parameters_of_any_name_are_kept(library, problem, tmp_path):
    own = {
        "xgboost": {"max_delta_step": 2, "eta": 0.2, "monotone_constraints": (1, 0, 0, 0)},
        "lightgbm": {"eta": 0.2, "class_weight": {0: 1.0, 1: 2.5}, "feature_fraction": 0.9},
    }[library]
    constraints = [gc.fnr(on=np.arange(700) % 3 == 0) <= 0.2, gc.fpr() <= np.float32(0.9)]
    solver = AutoSolver(initial_multipliers=np.zeros(2))
    model = make(library, constraints, measure_on="train", solver=solver, **own).fit(*problem)
    loaded = save_and_load(model, tmp_path, seed=3)
    parameters, expected = loaded.get_params(), model.get_params()
    assert parameters.keys() == expected.keys()  # The seed is gone.
    np.testing.assert_array_equal(parameters.pop("solver__initial_multipliers"), [0, 0])
    del expected["solver__initial_multipliers"]
    assert repr(parameters) == repr(expected)
    assert loaded.constraints == constraints


@BOTH
def test_what_a_file_cannot_hold_is_named(library, problem, tmp_path):
    """A source of randomness or a function stays as the loading estimator has it."""
    source = np.random.RandomState(0)
    own = {"eval_metric": np.mean} if library == "xgboost" else {"machines": object}
    model = make(library, [], n_estimators=2, random_state=source)
    model.fit(*problem).set_params(**own)
    before = source.get_state()[2]
    with pytest.warns(UserWarning, match="save_model does not keep ") as warned:
        loaded = save_and_load(model, tmp_path, random_state=7)
    assert {"random_state", *own} <= set(re.findall(r"\w+", str(warned[0].message)))
    assert source.get_state()[2] == before
    assert loaded.random_state == 7
    assert loaded.n_estimators == 2


@BOTH
@pytest.mark.parametrize("name", ["Tree=1", "Tree=", "Tree", "end of trees", "objective"])
def test_columns_may_be_called_as_parts_of_the_file(library, name, problem, tmp_path):
    """LightGBM writes a line of each feature, with its importance."""
    X, y = problem[0].rename(columns={"a": name}), problem[1]
    model = fit_small(library, (X, y), probabilities="calibrated")
    loaded = save_and_load(model, tmp_path)
    assert loaded.constraints == model.constraints
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@BOTH
def test_another_model_in_a_constraint_is_stored_by_its_name(library, problem, tmp_path):
    X, y = problem
    deployed = DummyClassifier(strategy="prior").fit(X, y)
    model = make(library, [gc.churn(to=deployed) <= 0.9], measure_on="train").fit(X, y)
    loaded = save_and_load(model, tmp_path)
    assert repr(loaded.constraints) == repr(model.constraints)
    assert_same_model(loaded, model, X)
    with pytest.raises(ValueError, match="does not hold that model: state the constraint anew"):
        loaded.fit(X, y)
    with pytest.raises(ValueError, match="does not hold that model: state the constraint anew"):
        gc.audit(loaded, X, y, loaded.constraints)
    loaded.set_params(constraints=model.constraints).fit(X, y)


@BOTH
def test_a_label_that_no_file_can_hold_is_refused(library, problem, tmp_path):
    X, y = problem
    model = make(library, [gc.fpr(on={"group": 1 + 2j}) <= 0.9], measure_on="train")
    model.fit(X, y, sensitive_features={"group": np.full(y.size, 1 + 2j)})
    with pytest.raises(TypeError, match=r"The constraints cannot be saved: \(1\+2j\) of type"):
        model.save_model(tmp_path / FILES[library])
    assert not (tmp_path / FILES[library]).exists()


@BOTH
def test_requests_of_metadata_are_not_of_the_file(library, problem, tmp_path):
    fit_small(library, problem).save_model(tmp_path / FILES[library])
    with sklearn.config_context(enable_metadata_routing=True):
        model = CLASSIFIERS[library]().set_fit_request(sensitive_features=True)
        request = model.load_model(tmp_path / FILES[library]).get_metadata_routing().fit.requests
    assert request["sensitive_features"] is True


def test_a_part_of_a_model_has_no_reports(problem, tmp_path):
    """Reports would be those of the whole; classes and parameters are the same."""
    X, y = problem
    model = make("lightgbm", [gc.fnr() <= 0.1], probabilities="calibrated")
    model.fit(X, np.array(["no", "yes"])[y])
    for k, part in enumerate([{"num_iteration": 5}, {"start_iteration": 4}]):
        path = tmp_path / f"{k}.txt"
        model.save_model(path, **part)
        loaded = gc.ConstrainedLGBMClassifier().load_model(path)
        assert not any(hasattr(loaded, name) for name in FITTED_ATTRIBUTES)
        assert loaded.get_params() == model.get_params()
        expected = lgb.LGBMClassifier.predict(model, X, **part)
        np.testing.assert_array_equal(loaded.predict(X), expected)
    model.save_model(tmp_path / "whole.txt", num_iteration=12, importance_type="gain")
    loaded = gc.ConstrainedLGBMClassifier().load_model(tmp_path / "whole.txt")
    assert_same_attributes("lightgbm", vars(loaded), vars(model))
