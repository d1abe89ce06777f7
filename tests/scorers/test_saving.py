"""A saved model is whole for this package, and plain for everybody else."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS, RULES
from saved_models import (
    FILES,
    assert_same_attribute,
    assert_same_attributes,
    make,
    table_of,
    text_of,
)
from scipy.special import expit
from sklearn.base import clone

import gbm_constrained as gc

SCENARIOS = {
    "binary": {},
    "several": {},
    "categories": {},
    "missing": {},
    "calibrated": {"probabilities": "calibrated"},
    "calibrated several": {"probabilities": "calibrated"},
    "randomized": {"iterate": "randomized"},
    "costly": {"n_estimators": 4, "learning_rate": 0.05},
    "guaranteed": {"guarantee": gc.HighProbability(fraction=0.4)},
}


def constraints_of(scenario):
    if scenario == "costly":
        return [gc.gap(gc.fpr(), by="group") <= 0.005, gc.fnr() <= 0.05]
    if "several" in scenario:
        return RULES["several"]
    if scenario == "categories":
        return [gc.gap(gc.selection_rate(), by="group") <= 0.2, gc.fpr(on={"group": 1}) <= 0.3]
    return [gc.fnr() <= 0.4] if scenario == "guaranteed" else RULES["binary"]


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
            options = {"measure_on": gc.CrossFit(2), **options}
            model = make(library, constraints_of(scenario), **options)
            fit = {"sensitive_features": {"group": (X.a > 0).to_numpy().astype(int)}}
            if library == "lightgbm" and kind == "several":
                y = np.array(["lo", "mid", "hi", "top"])[y]
                model.set_params(constraints=[gc.fnr("top") <= 0.3])
            model.fit(X, y, **fit)
            path = folder / f"{library} {scenario}{FILES[library][5:]}"
            model.save_model(path)
            found[library, scenario] = SimpleNamespace(model=model, X=X, y=y, fit=fit, path=path)
    return found


def in_another_process(script, saved, folder):
    """Run a script that maps the files and the features of all scenarios to what it finds."""
    given = {key: (str(s.path), s.X) for key, s in saved.items()}
    (folder / "in.pkl").write_bytes(pickle.dumps(given))
    package = str(Path(gc.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": package}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=folder, env=environment)
    return pickle.loads((folder / "out.pkl").read_bytes())


LOADER = """
import pickle
from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier
given, out = pickle.load(open("in.pkl", "rb")), {}
for (library, scenario), (path, X) in given.items():
    cls = ConstrainedXGBClassifier if library == "xgboost" else ConstrainedLGBMClassifier
    model = cls().load_model(path)
    source = {"random_state": 0} if scenario == "randomized" else {}
    decisions = model.predict(X, **source)
    known = {k: v for k, v in vars(model).items() if k not in ("_Booster", "_le")}
    properties = ["classes_", "feature_names_in_", "n_features_in_", "feature_importances_"]
    properties = {name: getattr(model, name) for name in properties}
    p = model.predict_proba(X)
    out[library, scenario] = model.get_params(), known, properties, p, decisions
pickle.dump(out, open("out.pkl", "wb"))
"""

READER = """
import json, pickle, sys
sys.modules["gbm_constrained"] = None
import lightgbm, xgboost
given, out = pickle.load(open("in.pkl", "rb")), {}
for (library, scenario), (path, X) in given.items():
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
    out[library, scenario] = p, margin, decisions, note
pickle.dump(out, open("out.pkl", "wb"))
"""


@pytest.fixture(scope="module")
def loaded_elsewhere(saved, tmp_path_factory):
    return in_another_process(LOADER, saved, tmp_path_factory.mktemp("loaded"))


@pytest.fixture(scope="module")
def read_elsewhere(saved, tmp_path_factory):
    return in_another_process(READER, saved, tmp_path_factory.mktemp("read"))


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
    assert_same_attributes(library, known, vars(model))
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
    assert note["constraints"] == list(map(str, model.constraints))
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
@pytest.mark.parametrize("scenario", ["categories", "calibrated several", "randomized"])
def test_a_loaded_model_is_fitted_again_as_the_original(library, scenario, saved):
    of = saved[library, scenario]
    loaded = CLASSIFIERS[library]().load_model(of.path)
    again, original = (clone(m).fit(of.X, of.y, **of.fit) for m in (loaded, of.model))
    assert text_of(again) == text_of(original)
    assert_same_attribute(original.multipliers_, again.multipliers_)


@pytest.mark.parametrize(
    "model",
    [
        gc.ConstrainedXGBClassifier(constraints=gc.fnr() <= 0.1),
        gc.ConstrainedXGBClassifier(maximize="g_mean"),
        gc.ConstrainedXGBRegressor(constraints=gc.mean_prediction() <= 0.4),
        gc.ConstrainedLGBMClassifier(constraints=gc.fnr() <= 0.1, verbose=-1),
        gc.ConstrainedLGBMClassifier(maximize="g_mean", verbose=-1),
        gc.ConstrainedLGBMRegressor(constraints=gc.mean_prediction() <= 0.4, verbose=-1),
    ],
    ids=lambda model: f"{type(model).__name__} {model.get_params().get('maximize')}",
)
def test_equal_fits_write_equal_files(model, tmp_path):
    X, y = table_of("binary", np.random.default_rng(3))
    written = []
    for name in ("one.json", "two.json"):
        fitted = (
            clone(model)
            .set_params(n_estimators=3, n_jobs=1, measure_on=gc.CrossFit(2))
            .fit(X[:300], y[:300])
        )
        fitted.save_model(tmp_path / name)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
