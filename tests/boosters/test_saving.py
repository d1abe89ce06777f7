"""A saved model is whole for this package, and plain for everybody else."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import sklearn
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, RULES, margins_of, quiet
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError

import gbm_constrained
from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    churn,
    fnr,
    fpr,
    gap,
    selection_rate,
)
from gbm_constrained.boosters.ubjson import read, write
from gbm_constrained.reporting.audit import audit
from gbm_constrained.solvers import AutoSolver
from gbm_constrained.training.fitted_report import FITTED_ATTRIBUTES

FILES = {"xgboost": "model.ubj", "lightgbm": "model.txt"}
# Of LightGBM's fit; XGBoost's own file has all but the last.
OF_LIBRARY = {
    "xgboost": ("n_classes_", "evals_result_"),
    "lightgbm": ("_classes", "_n_classes", "_objective", "_evals_result", "_best_iteration",
                 "_best_score", "_n_features", "_n_features_in", "_fitted_with_feature_names",
                 "_class_map"),
}  # fmt: skip


def make(library, rules, **options):
    options = {"n_estimators": 12, "max_depth": 3, "n_jobs": 1, "random_state": 0, **options}
    if library == "lightgbm":
        options.setdefault("verbose", -1)
    return CLASSIFIERS[library](constraints=rules, **options)


def table_of(kind, rng):
    """A small problem: features (n, 4), labels, and what the classifier is told besides."""
    X = pd.DataFrame(rng.normal(size=(700, 4)), columns=list("abcd"))
    noisy = X.a + X.b * X.c + 0.7 * rng.normal(size=700)
    y = (noisy > 0.8).astype(int).to_numpy()
    if kind == "several":
        y = np.digitize(noisy, np.quantile(noisy, [0.4, 0.7, 0.9]))
    if kind == "categories":
        X["c"] = pd.Categorical(np.where(X.c > 0.5, "x", np.where(X.c < -0.5, "é=y", "z")))
    if kind == "missing":
        X = X.mask(rng.random(X.shape) < 0.2)
    return X, y


SCENARIOS = {
    "binary": {},
    "several": {},
    "categories": {},
    "missing": {},
    "calibrated": {"probabilities": "calibrated"},
    "calibrated several": {"probabilities": "calibrated"},
    "randomized": {"iterate": "randomized"},
    "costly": {"n_estimators": 4, "learning_rate": 0.05},
    "guaranteed": {"guarantee": "high_probability", "calibration_fraction": 0.4},
}


def rules_of(scenario):
    if scenario == "costly":
        return [gap(fpr(), by="group") <= 0.005, fnr() <= 0.05]
    if "several" in scenario:
        return RULES["several"]
    if scenario == "categories":
        return [gap(selection_rate(), by="group") <= 0.2, fpr(on={"group": 1}) <= 0.3]
    return [fnr() <= 0.4] if scenario == "guaranteed" else RULES["binary"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Fitted classifiers of all scenarios, their features and files."""
    found = {}
    folder = tmp_path_factory.mktemp("saved")
    for library in CLASSIFIERS:
        for scenario, options in SCENARIOS.items():
            kind = "several" if "several" in scenario else scenario
            X, y = table_of(kind, np.random.default_rng(3))
            if library == "xgboost" and kind == "categories":
                options = {**options, "enable_categorical": True}
            model = make(library, rules_of(scenario), **options)
            fit = {"sensitive_features": {"group": (X.a > 0).to_numpy().astype(int)}}
            if library == "lightgbm" and kind == "several":
                y = np.array(["lo", "mid", "hi", "top"])[y]
                model.set_params(constraints=[fnr("top") <= 0.3])
            model.fit(X, y, **fit)
            path = folder / f"{library} {scenario}{FILES[library][5:]}"
            model.save_model(path)
            found[library, scenario] = SimpleNamespace(
                model=model, X=X, y=y, fit=fit, path=path, library=library, scenario=scenario
            )
    return found


def in_another_process(script, saved, folder):
    """Run a script that maps {name: (library, path, X)} to {name: anything}."""
    given = {key: (s.library, str(s.path), s.X) for key, s in saved.items()}
    (folder / "in.pkl").write_bytes(pickle.dumps(given))
    package = str(Path(gbm_constrained.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": package},
    )
    return pickle.loads((folder / "out.pkl").read_bytes())


LOADER = """
import pickle
from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier
given, out = pickle.load(open("in.pkl", "rb")), {}
for key, (library, path, X) in given.items():
    cls = ConstrainedXGBClassifier if library == "xgboost" else ConstrainedLGBMClassifier
    model = cls().load_model(path)
    decisions = model.predict(X, random_state=0) if key[1] == "randomized" else model.predict(X)
    known = {k: v for k, v in vars(model).items() if k not in ("_Booster", "_le")}
    properties = ["classes_", "feature_names_in_", "n_features_in_", "feature_importances_"]
    properties = {name: getattr(model, name) for name in properties}
    out[key] = model.get_params(), known, properties, model.predict_proba(X), decisions
pickle.dump(out, open("out.pkl", "wb"))
"""

READER = """
import json, pickle, sys
sys.modules["gbm_constrained"] = None
import lightgbm, xgboost
given, out = pickle.load(open("in.pkl", "rb")), {}
for key, (library, path, X) in given.items():
    if library == "xgboost":
        model = xgboost.XGBClassifier()
        model.load_model(path)
        p, margin = model.predict_proba(X), model.predict(X, output_margin=True)
        decisions = model.predict(X)
        note = json.loads(model.get_booster().attr("gbm_constrained"))
    else:
        model = lightgbm.Booster(model_file=path)
        p, margin = model.predict(X), model.predict(X, raw_score=True)
        decisions = (p > 0.5).astype(int) if p.ndim == 1 else p.argmax(axis=1)
        line = next(l for l in open(path) if l.startswith("gbm_constrained:"))
        note = json.loads(line.partition(":")[2])
    out[key] = p, margin, decisions, note
pickle.dump(out, open("out.pkl", "wb"))
"""


@pytest.fixture(scope="module")
def loaded_elsewhere(saved, tmp_path_factory):
    return in_another_process(LOADER, saved, tmp_path_factory.mktemp("loaded"))


@pytest.fixture(scope="module")
def read_elsewhere(saved, tmp_path_factory):
    return in_another_process(READER, saved, tmp_path_factory.mktemp("read"))


def assert_same_attribute(value, other):
    if isinstance(value, pd.DataFrame):
        pd.testing.assert_frame_equal(other, value, check_exact=True)
    elif isinstance(value, pd.Series):
        pd.testing.assert_series_equal(other, value, check_exact=True)
    elif isinstance(value, np.ndarray):
        assert other.dtype == value.dtype
        np.testing.assert_array_equal(other, value)
    else:  # Estimate, Feasibility: repr for the sake of NaN
        assert repr(other) == repr(value) or other == value


def assert_same_state(library, known, expected):
    """Fitted attributes are there, all of them and no others, and equal."""
    for name in (*FITTED_ATTRIBUTES, *OF_LIBRARY[library]):
        assert (name in known) == (name in expected), name
        if name in known:
            assert_same_attribute(expected[name], known[name])


SAVED = pytest.mark.parametrize("scenario", SCENARIOS)


@BOTH
@SAVED
def test_everything_is_there_again_in_another_process(library, scenario, saved, loaded_elsewhere):
    model, X = saved[library, scenario].model, saved[library, scenario].X
    parameters, known, properties, p, decisions = loaded_elsewhere[library, scenario]
    assert {k: repr(v) for k, v in parameters.items()} == {
        k: repr(v) for k, v in model.get_params().items()
    }
    assert parameters["constraints"] == model.constraints
    assert_same_state(library, known, vars(model))
    for name, value in properties.items():
        assert_same_attribute(getattr(model, name), value)
    if scenario == "costly":
        assert model.feasibility_.cost.costliest
        assert known["feasibility_"].cost == model.feasibility_.cost
    np.testing.assert_array_equal(p, model.predict_proba(X))
    source = {"random_state": 0} if scenario == "randomized" else {}
    expected = model.predict(X, **source)
    assert decisions.dtype == expected.dtype
    np.testing.assert_array_equal(decisions, expected)


@BOTH
@SAVED
def test_a_plain_library_reads_the_same_file(library, scenario, saved, read_elsewhere):
    """Same probabilities and decisions; a threshold kept beside the model is in its note."""
    model, X = saved[library, scenario].model, saved[library, scenario].X
    p, margin, decisions, note = read_elsewhere[library, scenario]
    p = np.column_stack([1 - p, p]) if p.ndim == 1 else p
    np.testing.assert_allclose(p, model.predict_proba(X), atol=1e-6)
    assert note["constraints"] == [str(rule) for rule in model.constraints]
    assert note["classes"]["values"] == model.classes_.tolist()
    shift = np.array(note["decision_shift"])
    assert shift.any() == scenario.startswith("calibrated")
    if shift.any() and margin.ndim == 1:
        assert (decisions != (margin + shift > 0)).any()  # the threshold matters
        decisions = (p[:, 1] > expit(-shift)).astype(int)  # as docs/saving.md has it
    elif shift.any():
        decisions = (margin + shift).argmax(axis=1)
    if scenario != "randomized":  # which draws, where a plain reader has the whole ensemble
        np.testing.assert_array_equal(model.classes_[decisions], model.predict(X))


@BOTH
@pytest.mark.parametrize("scenario", ["binary", "categories", "calibrated several", "randomized"])
def test_a_loaded_model_is_fitted_again_as_the_original(library, scenario, saved):
    of = saved[library, scenario]
    loaded = CLASSIFIERS[library]().load_model(of.path)
    again, original = (clone(m).fit(of.X, of.y, **of.fit) for m in (loaded, of.model))
    assert text_of(again) == text_of(original)
    assert_same_attribute(original.multipliers_, again.multipliers_)


def text_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return model.get_booster().save_raw("json")
    return model.booster_.model_to_string()


@pytest.fixture
def problem():
    return table_of("binary", np.random.default_rng(5))


@pytest.fixture
def fitted(library, problem):
    return make(library, [fnr() <= 0.1], measure_on="train").fit(*problem)


# --- what is kept, case by case ---------------------------------------------------------------


@BOTH
def test_early_stopping_is_kept(library, problem, tmp_path):
    (X, y), path = problem, tmp_path / FILES[library]
    model = make(
        library, [fnr() <= 0.1], n_estimators=60, early_stopping_rounds=3, learning_rate=0.9,
        measure_on="train",
    )  # fmt: skip
    model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], **quiet(library))
    model.save_model(path)
    loaded = CLASSIFIERS[library]().load_model(path)
    name = "best_iteration" if library == "xgboost" else "best_iteration_"
    assert 0 < getattr(loaded, name) == getattr(model, name) < 57
    assert_same_state(library, vars(loaded), vars(model))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@BOTH
@pytest.mark.parametrize("rules", [[], None])
def test_a_model_without_rules_is_kept_as_well(library, rules, problem, tmp_path):
    (X, y), path = problem, tmp_path / FILES[library]
    model = make(library, rules, learning_rate=0.25).fit(X, y)
    model.save_model(path)
    loaded = CLASSIFIERS[library](constraints=[fnr() <= 0.1]).load_model(path)
    assert loaded.constraints == rules
    assert loaded.learning_rate == 0.25
    assert_same_state(library, vars(loaded), vars(model))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    "options", [{"booster": "dart", "rate_drop": 0.3}, {"booster": "gblinear", "max_depth": None}]
)
def test_other_boosters_of_xgboost(options, problem, tmp_path):
    model = make("xgboost", [], **options).fit(*problem)
    model.save_model(tmp_path / "model.json")
    loaded = ConstrainedXGBClassifier().load_model(tmp_path / "model.json")
    assert loaded.get_params()["booster"] == options["booster"]
    np.testing.assert_array_equal(
        loaded.predict_proba(problem[0]), model.predict_proba(problem[0])
    )


@pytest.mark.parametrize(
    "options",
    [{"boosting_type": "dart"}, {"linear_tree": True}, {"objective": "multiclassova"},
     {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1}],
)  # fmt: skip
def test_other_boosters_of_lightgbm(options, problem, tmp_path):
    X, y = problem
    model = make("lightgbm", [], **options).fit(X, y + (X.a > 1))
    model.save_model(tmp_path / "model.txt")
    loaded = ConstrainedLGBMClassifier().load_model(tmp_path / "model.txt")
    assert loaded.get_params() == model.get_params()
    assert loaded.objective_ == model.objective_
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    "names",
    [np.array(["no", "yes"]), np.array(["no", "yes"], object), np.array([-1, 5], np.int8),
     np.array([False, True]), np.array([1.0, 2.0]),
     pd.Index(["no", "yes"])],
    ids=lambda names: str(names.dtype),
)  # fmt: skip
def test_labels_keep_their_type(names, problem, tmp_path):
    (X, codes), path = problem, tmp_path / "model.txt"
    model = make("lightgbm", [fnr() <= 0.1], measure_on="train").fit(X, names[codes])
    model.save_model(path)
    loaded = ConstrainedLGBMClassifier().load_model(path)
    assert type(loaded.classes_) is type(model.classes_)
    assert loaded.classes_.dtype == model.classes_.dtype
    expected = model.predict(X)
    decisions = loaded.predict(X)
    assert decisions.dtype == expected.dtype
    np.testing.assert_array_equal(decisions, expected)
    assert [type(c) for c in loaded._class_map] == [type(c) for c in model._class_map]


@BOTH
def test_parameters_of_any_name_are_kept(library, problem, tmp_path):
    own = {
        "xgboost": {"max_delta_step": 2, "eta": 0.2, "monotone_constraints": (1, 0, 0, 0)},
        "lightgbm": {"eta": 0.2, "class_weight": {0: 1.0, 1: 2.5}, "feature_fraction": 0.9},
    }[library]
    mask = np.arange(700) % 3 == 0
    rules = [fnr(on=mask) <= 0.2, fpr() <= np.float32(0.9)]
    model = make(
        library,
        rules,
        measure_on="train",
        solver=AutoSolver(initial_multipliers=np.zeros(2)),
        **own,
    )
    model.fit(*problem).save_model(tmp_path / FILES[library])
    loaded = CLASSIFIERS[library](seed=3).load_model(tmp_path / FILES[library])
    parameters, expected = loaded.get_params(), model.get_params()
    assert parameters.keys() == expected.keys()  # seed=3 is gone
    np.testing.assert_array_equal(parameters.pop("solver__initial_multipliers"), [0, 0])
    del expected["solver__initial_multipliers"]
    assert repr(parameters) == repr(expected)
    assert loaded.constraints == rules


@BOTH
def test_what_a_file_cannot_hold_is_named(library, problem, tmp_path):
    """A source of randomness or a function stays as the loading estimator has it."""
    source = np.random.RandomState(0)
    own = {"eval_metric": np.mean} if library == "xgboost" else {"machines": object}
    model = make(library, [], n_estimators=2, random_state=source)
    model.fit(*problem).set_params(**own)
    before = source.get_state()[2]
    path = tmp_path / FILES[library]
    with pytest.warns(UserWarning, match="save_model does not keep ") as told:
        model.save_model(path)
    assert {"random_state", *own} <= set(re.findall(r"\w+", str(told[0].message)))
    assert source.get_state()[2] == before
    loaded = CLASSIFIERS[library](random_state=7).load_model(path)
    assert loaded.random_state == 7
    assert loaded.n_estimators == 2


@BOTH
@pytest.mark.parametrize("name", ["Tree=1", "Tree=", "Tree", "end of trees", "objective"])
def test_columns_may_be_called_as_parts_of_the_file(library, name, problem, tmp_path):
    """LightGBM writes a line of each feature, with its importance."""
    (X, y), path = problem, tmp_path / FILES[library]
    X = X.rename(columns={"a": name})
    model = make(library, [fnr() <= 0.1], measure_on="train", probabilities="calibrated")
    model.fit(X, y).save_model(path)
    loaded = CLASSIFIERS[library]().load_model(path)
    assert loaded.constraints == model.constraints
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_dart_takes_columns_that_are_called_as_parts_of_the_file(problem):
    X, y = problem
    one, other = (
        make("lightgbm", [fnr() <= 0.1], boosting_type="dart").fit(X.rename(columns={"a": a}), y)
        for a in ("a", "num_leaves")
    )
    np.testing.assert_array_equal(other.booster_.predict(X), one.booster_.predict(X))


@BOTH
def test_a_rule_about_a_model_is_stored_by_its_name(library, problem, tmp_path):
    (X, y), path = problem, tmp_path / FILES[library]
    deployed = DummyClassifier(strategy="prior").fit(X, y)
    model = make(library, [churn(to=deployed) <= 0.9], measure_on="train").fit(X, y)
    model.save_model(path)
    loaded = CLASSIFIERS[library]().load_model(path)
    assert repr(loaded.constraints) == repr(model.constraints)
    assert_same_state(library, vars(loaded), vars(model))
    with pytest.raises(ValueError, match="does not hold that model: state the constraint anew"):
        loaded.fit(X, y)
    with pytest.raises(ValueError, match="does not hold that model: state the constraint anew"):
        audit(loaded, X, y, loaded.constraints)
    loaded.set_params(constraints=model.constraints).fit(X, y)


@BOTH
def test_a_label_that_no_file_can_hold_is_refused(library, problem, tmp_path):
    X, y = problem
    model = make(library, [fpr(on={"group": 1 + 2j}) <= 0.9], measure_on="train")
    model.fit(X, y, sensitive_features={"group": np.full(y.size, 1 + 2j)})
    with pytest.raises(TypeError, match=r"The constraints cannot be saved: \(1\+2j\) of type"):
        model.save_model(tmp_path / FILES[library])
    assert not (tmp_path / FILES[library]).exists()


@BOTH
def test_requests_of_metadata_are_not_of_the_file(library, fitted, tmp_path):
    fitted.save_model(tmp_path / FILES[library])
    with sklearn.config_context(enable_metadata_routing=True):
        model = CLASSIFIERS[library]().set_fit_request(sensitive_features=True)
        request = model.load_model(tmp_path / FILES[library]).get_metadata_routing().fit.requests
    assert request["sensitive_features"] is True


def test_a_part_of_a_model_has_no_reports(problem, tmp_path):
    """They would be those of the whole; classes and parameters are the same."""
    X, y = problem
    model = make("lightgbm", [fnr() <= 0.1], probabilities="calibrated")
    model.fit(X, np.array(["no", "yes"])[y])
    for k, part in enumerate([{"num_iteration": 5}, {"start_iteration": 4}]):
        path = tmp_path / f"{k}.txt"
        model.save_model(path, **part)
        loaded = ConstrainedLGBMClassifier().load_model(path)
        assert not any(hasattr(loaded, name) for name in FITTED_ATTRIBUTES)
        assert loaded.get_params() == model.get_params()
        expected = lgb.LGBMClassifier.predict(model, X, **part)
        np.testing.assert_array_equal(loaded.predict(X), expected)
    model.save_model(tmp_path / "whole.txt", num_iteration=12, importance_type="gain")
    loaded = ConstrainedLGBMClassifier().load_model(tmp_path / "whole.txt")
    assert_same_state("lightgbm", vars(loaded), vars(model))


# --- files of others, and models that others changed -------------------------------------------


@BOTH
def test_the_booster_itself_has_no_note(library, fitted, tmp_path):
    """Neither after saving nor after loading; what the user saves of it is a plain model."""
    before = text_of(fitted)
    fitted.save_model(tmp_path / FILES[library])
    assert text_of(fitted) == before
    loaded = CLASSIFIERS[library]().load_model(tmp_path / FILES[library])
    assert b"gbm_constrained" not in bytes(str(text_of(loaded)), "utf-8")


@BOTH
@pytest.mark.parametrize("kind", ["binary", "several"])
def test_a_plain_file_is_loaded_and_all_else_forgotten(library, kind, tmp_path):
    X, y = table_of(kind, np.random.default_rng(5))
    path = tmp_path / FILES[library]
    if library == "xgboost":
        plain = xgb.XGBClassifier(n_estimators=3, n_jobs=1).fit(X, y)
        plain.save_model(path)
    else:
        plain = lgb.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(X, y)
        plain.booster_.save_model(path)
    model = make(library, [fnr() <= 0.1], probabilities="calibrated")
    binary = table_of("binary", np.random.default_rng(5))
    model.fit(*binary, eval_set=[binary], **quiet(library))
    ours = tmp_path / f"ours-{FILES[library]}"
    make(library, [fpr() <= 0.2]).fit(*binary, **quiet(library)).save_model(ours)
    booster = model._Booster
    margins = margins_of(model, binary[0])
    assert model.load_model(path) is model
    assert not any(hasattr(model, name) for name in FITTED_ATTRIBUTES)
    assert model.constraints == [fnr() <= 0.1]  # a parameter, as n_estimators
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    np.testing.assert_array_equal(model.classes_, plain.classes_)
    np.testing.assert_array_equal(model.feature_names_in_, plain.feature_names_in_)
    assert model.n_features_in_ == 4
    assert not getattr(model, "evals_result_", None)
    model.load_model(ours)
    assert model.constraints == [fpr() <= 0.2]
    model.load_model(path)
    assert not model.constraints  # those of a file are not the next one's
    model._Booster = booster  # the booster itself was not loaded into
    if kind == "binary":
        np.testing.assert_array_equal(margins_of(model, binary[0]), margins)


@BOTH
def test_a_model_continued_from_a_file_is_a_model_of_its_own(library, problem, fitted, tmp_path):
    """Whoever continues it, the old note is not taken for that of the new model."""
    (X, y), path = problem, tmp_path / FILES[library]
    fitted.save_model(path)
    start = {"xgb_model" if library == "xgboost" else "init_model": path}
    if library == "xgboost":
        start = {"xgb_model": str(path)}
    for rules in ([fpr() <= 0.2], []):
        model = make(library, rules, n_estimators=4).fit(X, y, **start)
        assert b"gbm_constrained" not in bytes(str(text_of(model)), "utf-8")
        model.save_model(tmp_path / f"mine-{FILES[library]}")
        loaded = CLASSIFIERS[library]().load_model(tmp_path / f"mine-{FILES[library]}")
        assert loaded.constraints == rules
        assert_same_state(library, vars(loaded), vars(model))
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_a_note_that_plain_xgboost_carried_on_is_not_believed(problem, fitted_xgboost, tmp_path):
    (X, y), path = problem, tmp_path / "model.json"
    fitted_xgboost.save_model(path)
    plain = xgb.XGBClassifier(n_estimators=4, n_jobs=1).fit(X, y, xgb_model=str(path))
    assert plain.get_booster().attr("gbm_constrained") is not None  # the library's own doing
    plain.save_model(path)
    rounds = fitted_xgboost.get_booster().num_boosted_rounds()
    said = rf"holds {rounds + 4} boosting rounds, and .* speaks of {rounds}"
    with pytest.warns(UserWarning, match=said):
        loaded = ConstrainedXGBClassifier().load_model(path)
    assert loaded.constraints is None
    assert not hasattr(loaded, "constraint_report_")
    np.testing.assert_array_equal(loaded.predict_proba(X), plain.predict_proba(X))
    assert loaded.get_booster().attributes() == {}


@pytest.fixture
def fitted_xgboost(problem):
    return make("xgboost", [fnr() <= 0.1], measure_on="train").fit(*problem)


@pytest.fixture
def fitted_lightgbm(problem):
    return make("lightgbm", [fnr() <= 0.1], measure_on="train").fit(*problem)


def test_a_model_in_memory_is_loaded(problem, fitted_xgboost, tmp_path):
    fitted_xgboost.save_model(tmp_path / "model.json")
    content = bytearray((tmp_path / "model.json").read_bytes())
    loaded = ConstrainedXGBClassifier().load_model(content)
    assert_same_state("xgboost", vars(loaded), vars(fitted_xgboost))


def test_the_line_in_a_lightgbm_file_disturbs_no_reader(problem, fitted_lightgbm, tmp_path):
    """As file and as string; next to the text that LightGBM writes there is one line more."""
    X, path = problem[0], tmp_path / "model.txt"
    fitted_lightgbm.save_model(path)
    text = path.read_text()
    expected = fitted_lightgbm.booster_.predict(X)
    for booster in (lgb.Booster(model_file=path), lgb.Booster(model_str=text)):
        np.testing.assert_array_equal(booster.predict(X), expected)
        assert booster.model_to_string() == fitted_lightgbm.booster_.model_to_string()
    line = re.search(r"\ngbm_constrained:.*\n(?=\npandas_categorical:)", text)
    assert text.replace(line[0], "") == fitted_lightgbm.booster_.model_to_string()
    assert "=" not in line[0]  # at which simple readers split lines


def test_treelite_reads_a_lightgbm_file(problem, fitted_lightgbm, tmp_path):
    treelite = pytest.importorskip("treelite", reason="treelite is not installed")
    X, path = problem[0], tmp_path / "model.txt"
    fitted_lightgbm.save_model(path)
    p = treelite.gtil.predict(treelite.frontend.load_lightgbm_model(path), X.to_numpy())
    np.testing.assert_allclose(np.ravel(p), fitted_lightgbm.booster_.predict(X), atol=1e-6)


# --- files that are refused --------------------------------------------------------------------


@BOTH
def test_there_is_nothing_to_save_before_a_fit(library, tmp_path):
    with pytest.raises(NotFittedError):
        CLASSIFIERS[library]().save_model(tmp_path / FILES[library])


def assert_left_as_it_was(model, path, X, message):
    """Loading fails, names the file, and changes nothing."""
    before, decisions = dict(vars(model)), model.predict(X)
    with pytest.raises(ValueError, match=message) as error:
        model.load_model(path)
    assert path.name in str(error.value)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(model.predict(X), decisions)


@pytest.mark.parametrize("name", ["model.json", "model.ubj", "model.txt"])
def test_a_torn_file_is_refused(name, problem, tmp_path):
    """Some libraries crash on one, and this process would with them."""
    library = "lightgbm" if name == "model.txt" else "xgboost"
    X, y = problem
    model = make(library, [fnr() <= 0.1], measure_on="train", n_estimators=4).fit(X, y)
    path, torn = tmp_path / name, tmp_path / f"torn-{name}"
    model.save_model(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in [0, 1, 2, len(content) - 2, *rng.integers(3, len(content) - 2, 40).tolist()]:
        if content[:cut].endswith((b"end of parameters\n", b"end of parameters\n\n")):
            continue  # a whole file, of LightGBM's command line
        torn.write_bytes(content[:cut])
        assert_left_as_it_was(model, torn, X[:5], "cannot be loaded")
    hole = content[: len(content) // 3] + content[len(content) // 3 + 9 :]
    torn.write_bytes(hole)
    assert_left_as_it_was(model, torn, X[:5], "cannot be loaded|cannot be read")


def test_a_change_to_the_model_in_a_lightgbm_file_is_noticed(problem, fitted_lightgbm, tmp_path):
    """LightGBM would abort the process on some, and predict otherwise after others."""
    X, path, changed = problem[0], tmp_path / "model.txt", tmp_path / "changed.txt"
    fitted_lightgbm.save_model(path)
    content = path.read_bytes()
    note = range(content.index(b"\ngbm_constrained:"), content.index(b"\n\npandas_categorical:"))
    rng = np.random.default_rng(0)
    for at in rng.permutation([i for i in range(len(content)) if i not in note])[:100]:
        other = bytes([content[at] ^ (1 << rng.integers(7))])
        changed.write_bytes(content[:at] + other + content[at + 1 :])
        assert_left_as_it_was(fitted_lightgbm, changed, X[:5], "cannot be (loaded|read)")
    changed.write_bytes(content.replace(b"[num_leaves: 31]", b"[num_leaves: 32]"))
    assert_left_as_it_was(fitted_lightgbm, changed, X[:5], "changed since .* wrote it: delete the")
    changed.write_bytes(content.replace(b"\n", b"\r\n"))  # as some programs copy texts
    loaded = ConstrainedLGBMClassifier().load_model(changed)
    assert_same_state("lightgbm", vars(loaded), vars(fitted_lightgbm))


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("end of parameters", "end.of parameters"),
        ("[num_leaves: 31]", "[num_leaves; 31]"),
        ("[num_leaves: 31]", "[num_leaves: 31"),
        ("[num_leaves: 31]", "x"),
    ],
)
def test_a_plain_file_with_damaged_parameters_is_refused(line, other, problem, tmp_path):
    """Readers of parameters would crash on it."""
    X, y = problem
    model = lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, y)
    text = model.booster_.model_to_string()
    assert f"\n{line}\n" in text
    (tmp_path / "m.txt").write_text(text.replace(f"\n{line}\n", f"\n{other}\n"))
    with pytest.raises(ValueError, match=r"m\.txt cannot be loaded: its parameters"):
        ConstrainedLGBMClassifier().load_model(tmp_path / "m.txt")


@BOTH
def test_a_file_that_a_plain_library_wrote_anew_is_loaded(library, problem, fitted, tmp_path):
    """XGBoost carries the note on, beside what else changes; LightGBM leaves it out."""
    X, path = problem[0], tmp_path / FILES[library]
    fitted.save_model(path)
    if library == "xgboost":
        booster = xgb.Booster(model_file=path)
        booster.set_attr(mine="1")
    else:
        booster = lgb.Booster(model_file=path)
    booster.save_model(path)
    loaded = CLASSIFIERS[library]().load_model(path)
    assert loaded.constraints == (fitted.constraints if library == "xgboost" else None)
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


def test_binary_models_are_read_and_written_and_every_cut_is_seen(problem, tmp_path):
    X, y = problem
    options = {"n_estimators": 3, "max_depth": 2, "n_jobs": 1}
    for model in (
        xgb.XGBClassifier(booster="dart", **options).fit(X, y),
        xgb.XGBClassifier(multi_strategy="multi_output_tree", **options).fit(X, y + (X.a > 1)),
        xgb.XGBClassifier(booster="gblinear", n_estimators=3, n_jobs=1).fit(X, y),
        xgb.XGBClassifier(enable_categorical=True, **options).fit(
            X.assign(a=pd.Categorical(np.where(X.a > 0, "x", "y"))), y
        ),
    ):
        content = bytes(model.get_booster().save_raw("ubj"))
        assert write(read(content)) == content
        for cut in range(len(content)):
            with pytest.raises(ValueError, match="too early"):
                read(content[:cut])
        with pytest.raises(ValueError, match="1 bytes follow its end"):
            read(content + b"}")


def test_binary_models_of_many_rounds_are_written_as_xgboost_does(problem):
    X, y = problem
    model = xgb.XGBClassifier(n_estimators=300, max_depth=1, n_jobs=1).fit(
        X.rename(columns={"a": "größe"}), y
    )
    content = bytes(model.get_booster().save_raw("ubj"))
    assert write(read(content)) == content


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(-(2**62), 2**62),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)
def test_values_in_ubjson_come_back(value):
    assert read(write(value)) == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{LL\0\0", "there should be a length|too early"),
        (b"{i\xff", "negative length"),
        (b"{i\x01a?}", "no value at byte 4"),
        (b"{i\x01a[$Z#L\x7f\0\0\0\0\0\0\0", "too early|no value"),
        (b"{i\x01a" * 70, "nested too deeply"),
        (b"[#i\x01" * 9999, "nested too deeply"),
        (b"[[", "there should be a length"),
    ],
)
def test_bytes_that_are_no_ubjson(content, message):
    with pytest.raises(ValueError, match=message):
        read(content)


@BOTH
def test_a_missing_file_is_told(library, tmp_path):
    error = xgb.core.XGBoostError if library == "xgboost" else FileNotFoundError
    with pytest.raises(error, match="nothing-here"):
        CLASSIFIERS[library]().load_model(tmp_path / f"nothing-here-{FILES[library]}")


def rewritten(path, library, change):
    """Change the note of a file."""
    if library == "xgboost":
        booster = xgb.Booster(model_file=path)
        note = change(json.loads(booster.attr("gbm_constrained")))
        booster.set_attr(gbm_constrained=note if isinstance(note, str) else json.dumps(note))
        booster.save_model(path)
        return
    head, _, rest = path.read_text().partition("gbm_constrained:")
    line, _, rest = rest.partition("\n")
    note = change(json.loads(line))
    note = note if isinstance(note, str) else json.dumps(note)
    path.write_text(f"{head}gbm_constrained:{note}\n{rest}")


def within(name, **changes):
    return lambda note: {**note, name: {**note[name], **changes}}


@BOTH
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda note: "", "Expecting value|cannot be loaded: an attribute is empty"),
        (lambda note: " ", "holds a note of gbm_constrained that cannot be read, .*Expecting v"),
        (lambda note: "[]", "cannot be read, so that the file must be damaged"),
        (lambda note: json.dumps(note)[:-20], "cannot be read"),
        (lambda note: {"version": "9"}, "cannot be read.*'format'"),
        (lambda note: {**note, "format": "1"}, "it says format '1'"),
        (lambda note: {**note, "rounds": None}, "and None rounds"),
        (lambda note: {**note, "parameters": []}, "must have names"),
        (lambda note: {**note, "classes": [0, 1]}, "its classes are not the 2 of the model"),
        (within("parameters", fit=1), "'fit' is no parameter"),
        (within("parameters", __class__="x"), "'__class__' is no parameter"),
        (within("parameters", constraints=["fnr"]), "which is not a constraint"),
        (within("parameters", constraints={"$": "exec", "code": ""}), "There is no 'exec'"),
        (within("fitted", _Booster=None), "fitted cannot hold '_Booster'"),
        (within("fitted", prefixes_=[1]), "fitted cannot hold 'prefixes_', or not as list"),
        (within("library", fit=None), "library cannot hold 'fit'"),
        (within("library", evals_result_="a", _best_iteration="a"), "or not as str"),
        (within("fitted", _threshold="a"), "_threshold must hold 1 numbers, got 'a'"),
        (
            lambda note: {**note, "format": 99, "version": "7.1", "fitted": "unheard of"},
            r"saved by gbm_constrained 7\.1, in format 99, and this is .*update the package",
        ),
        (  # whose verdicts had other fields
            lambda note: {**note, "format": 1, "version": "0.1", "fitted": {"$": "Feasibility"}},
            r"saved by gbm_constrained 0\.1, in format 1, and this is .*load it by 0\.1",
        ),
    ],
)  # fmt: skip
def test_a_forged_note_is_refused(library, change, message, problem, request, tmp_path):
    model = request.getfixturevalue(f"fitted_{library}")
    path = tmp_path / FILES[library]
    model.save_model(path)
    rewritten(path, library, change)
    assert_left_as_it_was(model, path, problem[0], message)


@pytest.mark.parametrize("objective", ["regression", "lambdarank", "a function"])
def test_a_lightgbm_model_that_is_no_classifier_is_refused(objective, problem, tmp_path):
    X, y = problem
    path, data = tmp_path / "model.txt", {"group": [700]} if objective == "lambdarank" else {}
    if objective == "a function":
        objective = lambda margin, data: (margin, np.ones_like(margin))  # noqa: E731
    rows = lgb.Dataset(X, y, **data)
    lgb.train({"objective": objective, "verbose": -1}, rows, 2).save_model(path)
    with pytest.raises(ValueError, match=r"model\.txt cannot be loaded: its objective is "):
        ConstrainedLGBMClassifier().load_model(path)


def test_a_lightgbm_model_of_ones_own_objective_is_not_saved(problem, tmp_path):
    def objective(y, margin):
        p = expit(margin)
        return p - y, p * (1 - p)

    model = make("lightgbm", [], objective=objective).fit(*problem)
    with pytest.raises(ValueError, match=r"predicts .*are raw scores"):
        model.save_model(tmp_path / "model.txt")


def test_a_file_of_the_other_library_is_told(problem, tmp_path):
    ConstrainedXGBClassifier(n_estimators=2).fit(*problem).save_model(tmp_path / "m.json")
    ConstrainedXGBClassifier(n_estimators=2).fit(*problem).save_model(tmp_path / "m.ubj")
    ConstrainedLGBMClassifier(n_estimators=2, verbose=-1).fit(*problem).save_model(
        tmp_path / "m.txt"
    )
    for name in ("m.json", "m.ubj"):
        with pytest.raises(ValueError, match="it is a model of XGBoost, which ConstrainedXGB"):
            ConstrainedLGBMClassifier().load_model(tmp_path / name)
    with pytest.raises(ValueError, match="it is a model of LightGBM, which ConstrainedLGBM"):
        ConstrainedXGBClassifier().load_model(tmp_path / "m.txt")
