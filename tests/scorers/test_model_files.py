"""What model files keep, what is refused in them, and what other programs make of them."""

from __future__ import annotations

import functools
import json
import re

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import sklearn
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, alternate, margins_of, quiet
from saved_models import (
    FILES,
    assert_same_attributes,
    assert_same_model,
    fit_small,
    has_note,
    make,
    save_and_load,
    table_of,
    text_of,
    train_plain,
)
from scipy.special import expit
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError

import gbm_constrained as gc
from gbm_constrained.fit.fitted_report import FITTED_ATTRIBUTES
from gbm_constrained.solvers import AutoSolver, Reduction


@pytest.fixture(scope="module")
def problem():
    return table_of("binary", np.random.default_rng(5))


@functools.cache
def fit_once(library):
    """A fit that tests save and compare with, and leave as it is."""
    return fit_small(library, table_of("binary", np.random.default_rng(5)))


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


@alternate("name", ["Tree=1", "Tree=", "Tree", "end of trees", "objective"])
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
    model = fit_small(library, problem, n_estimators=4)
    path, torn = tmp_path / name, tmp_path / f"torn-{name}"
    model.save_model(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in [0, 1, 2, len(content) - 2, *rng.integers(3, len(content) - 2, 40).tolist()]:
        if content[:cut].endswith((b"end of parameters\n", b"end of parameters\n\n")):
            continue  # This is a whole file of LightGBM's command line.
        torn.write_bytes(content[:cut])
        assert_left_as_it_was(model, torn, problem[0][:5], "cannot be loaded")
    hole = content[: len(content) // 3] + content[len(content) // 3 + 9 :]
    torn.write_bytes(hole)
    assert_left_as_it_was(model, torn, problem[0][:5], "cannot be loaded|cannot be read")


def test_a_change_to_the_model_in_a_lightgbm_file_is_noticed(problem, tmp_path):
    """LightGBM would abort the process on some, and predict otherwise after others."""
    fitted = fit_small("lightgbm", problem)
    X, path, changed = problem[0], tmp_path / "model.txt", tmp_path / "changed.txt"
    fitted.save_model(path)
    content = path.read_bytes()
    note = range(content.index(b"\ngbm_constrained:"), content.index(b"\n\npandas_categorical:"))
    rng = np.random.default_rng(0)
    for at in rng.permutation([i for i in range(len(content)) if i not in note])[:100]:
        other = bytes([content[at] ^ (1 << rng.integers(7))])
        changed.write_bytes(content[:at] + other + content[at + 1 :])
        assert_left_as_it_was(fitted, changed, X[:5], "cannot be (loaded|read)")
    changed.write_bytes(content.replace(b"[num_leaves: 31]", b"[num_leaves: 32]"))
    assert_left_as_it_was(fitted, changed, X[:5], "changed since .* wrote it: delete the")
    changed.write_bytes(content.replace(b"\n", b"\r\n"))  # Some programs copy texts like that.
    loaded = gc.ConstrainedLGBMClassifier().load_model(changed)
    assert_same_attributes("lightgbm", vars(loaded), vars(fitted))


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
        gc.ConstrainedLGBMClassifier().load_model(tmp_path / "m.txt")


@BOTH
def test_a_missing_file_is_named(library, tmp_path):
    error = xgb.core.XGBoostError if library == "xgboost" else FileNotFoundError
    with pytest.raises(error, match="nothing-here"):
        CLASSIFIERS[library]().load_model(tmp_path / f"nothing-here-{FILES[library]}")


def rewrite(path, library, change):
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
        (lambda note: {**note, "left_out": 1}, "must have names"),
        (lambda note: {**note, "classes": [0, 1]}, "its classes are not the 2 of the model"),
        (within("parameters", fit=1), "'fit' is no parameter"),
        (within("parameters", __class__="x"), "'__class__' is no parameter"),
        (within("parameters", constraints=["fnr"]), "constraints: expected `<=` or `>=`"),
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
        (
            lambda note: {**note, "format": 1, "version": "0.1", "fitted": {"$": "Feasibility"}},
            r"saved by gbm_constrained 0\.1, in format 1, and this is .*load it by 0\.1",
        ),
    ],
)  # fmt: skip
def test_a_forged_note_is_refused(library, change, message, problem, tmp_path):
    model = fit_once(library)
    path = tmp_path / FILES[library]
    model.save_model(path)
    rewrite(path, library, change)
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
        gc.ConstrainedLGBMClassifier().load_model(path)


def test_a_lightgbm_model_of_ones_own_objective_is_not_saved(problem, tmp_path):
    def objective(y, margin):
        p = expit(margin)
        return p - y, p * (1 - p)

    model = make("lightgbm", [], objective=objective).fit(*problem)
    with pytest.raises(ValueError, match=r"predicts .*are raw scores"):
        model.save_model(tmp_path / "model.txt")


def test_a_file_of_the_other_library_is_refused(problem, tmp_path):
    model = make("xgboost", None).fit(*problem)
    model.save_model(tmp_path / "m.json")
    model.save_model(tmp_path / "m.ubj")
    make("lightgbm", None).fit(*problem).save_model(tmp_path / "m.txt")
    for name in ("m.json", "m.ubj"):
        with pytest.raises(ValueError, match="it is a model of XGBoost, which ConstrainedXGB"):
            gc.ConstrainedLGBMClassifier().load_model(tmp_path / name)
    with pytest.raises(ValueError, match="it is a model of LightGBM, which ConstrainedLGBM"):
        gc.ConstrainedXGBClassifier().load_model(tmp_path / "m.txt")


@pytest.fixture
def fitted(library):
    return fit_once(library)


@BOTH
def test_the_booster_itself_has_no_note(library, fitted, tmp_path):
    """Neither after saving nor after loading; what the user saves of it is a plain model."""
    before = text_of(fitted)
    fitted.save_model(tmp_path / FILES[library])
    assert text_of(fitted) == before
    assert not has_note(CLASSIFIERS[library]().load_model(tmp_path / FILES[library]))


@BOTH
@pytest.mark.parametrize("kind", ["binary", "several"])
def test_a_plain_file_is_loaded_and_all_else_forgotten(library, kind, tmp_path):
    X, y = table_of(kind, np.random.default_rng(5))
    path = tmp_path / FILES[library]
    plain = train_plain(library, X, y, path)
    model = make(library, [gc.fnr() <= 0.1], probabilities="calibrated")
    binary = table_of("binary", np.random.default_rng(5))
    model.fit(*binary, eval_set=[binary], **quiet(library))
    ours = tmp_path / f"ours-{FILES[library]}"
    make(library, [gc.fpr() <= 0.2]).fit(*binary, **quiet(library)).save_model(ours)
    booster = model._Booster
    margins = margins_of(model, binary[0])
    assert model.load_model(path) is model
    assert not any(hasattr(model, name) for name in FITTED_ATTRIBUTES)
    assert model.constraints == [gc.fnr() <= 0.1]  # They are a parameter, as n_estimators.
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    np.testing.assert_array_equal(model.classes_, plain.classes_)
    np.testing.assert_array_equal(model.feature_names_in_, plain.feature_names_in_)
    assert model.n_features_in_ == 4
    assert not getattr(model, "evals_result_", None)
    model.load_model(ours)
    assert model.constraints == [gc.fpr() <= 0.2]
    model.load_model(path)
    assert not model.constraints  # Those of a file are not the next one's.
    model._Booster = booster  # The booster itself was not loaded into.
    if kind == "binary":
        np.testing.assert_array_equal(margins_of(model, binary[0]), margins)


@BOTH
def test_a_model_continued_from_a_file_is_a_model_of_its_own(library, problem, fitted, tmp_path):
    """Whoever continues it, the old note is not taken for that of the new model."""
    (X, y), path = problem, tmp_path / FILES[library]
    fitted.save_model(path)
    start = {"xgb_model": str(path)} if library == "xgboost" else {"init_model": path}
    for constraints in ([gc.fpr() <= 0.2], []):
        model = make(library, constraints, n_estimators=4).fit(X, y, **start)
        assert not has_note(model)
        loaded = save_and_load(model, tmp_path, f"mine-{FILES[library]}")
        assert loaded.constraints == constraints
        assert_same_model(loaded, model, X)


def test_a_note_that_plain_xgboost_carried_on_is_not_believed(problem, tmp_path):
    fitted = fit_small("xgboost", problem)
    (X, y), path = problem, tmp_path / "model.json"
    fitted.save_model(path)
    plain = xgb.XGBClassifier(n_estimators=4, n_jobs=1).fit(X, y, xgb_model=str(path))
    assert plain.get_booster().attr("gbm_constrained") is not None  # The library does that itself.
    plain.save_model(path)
    rounds = fitted.get_booster().num_boosted_rounds()
    warning = rf"holds {rounds + 4} boosting rounds, and .* speaks of {rounds}"
    with pytest.warns(UserWarning, match=warning):
        loaded = gc.ConstrainedXGBClassifier().load_model(path)
    assert loaded.constraints is None
    assert not hasattr(loaded, "constraint_report_")
    np.testing.assert_array_equal(loaded.predict_proba(X), plain.predict_proba(X))
    assert loaded.get_booster().attributes() == {}


def test_a_model_in_memory_is_loaded(problem, tmp_path):
    fitted = fit_small("xgboost", problem)
    fitted.save_model(tmp_path / "model.json")
    content = bytearray((tmp_path / "model.json").read_bytes())
    loaded = gc.ConstrainedXGBClassifier().load_model(content)
    assert_same_attributes("xgboost", vars(loaded), vars(fitted))


def test_the_line_in_a_lightgbm_file_disturbs_no_reader(problem, tmp_path):
    """As file and as string; next to the text that LightGBM writes there is one line more."""
    fitted = fit_small("lightgbm", problem)
    X, path = problem[0], tmp_path / "model.txt"
    fitted.save_model(path)
    text = path.read_text()
    expected = fitted.booster_.predict(X)
    for booster in (lgb.Booster(model_file=path), lgb.Booster(model_str=text)):
        np.testing.assert_array_equal(booster.predict(X), expected)
        assert booster.model_to_string() == fitted.booster_.model_to_string()
    line = re.search(r"\ngbm_constrained:.*\n(?=\npandas_categorical:)", text)
    assert text.replace(line[0], "") == fitted.booster_.model_to_string()
    assert "=" not in line[0]  # Simple readers split lines there.


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


OLD = {  # Parameters of version 0.1, and those that have taken their place.
    "folds": (
        {"measure_on": "crossfit", "n_folds": 3}, {"measure_on": "CrossFit(n_folds=3)"},
    ),
    "folds by default": ({"measure_on": "crossfit", "n_folds": 4}, {"measure_on": "'crossfit'"}),
    "folds of auto": ({"measure_on": "auto", "n_folds": 2}, {"measure_on": "CrossFit(n_folds=2)"}),
    "periods": ({"measure_on": "forward", "n_folds": 2}, {"measure_on": "Forward(n_folds=2)"}),
    "a share": (
        {"measure_on": "holdout", "holdout_fraction": 0.3},
        {"measure_on": "Holdout(fraction=0.3)"},
    ),
    "pairs": (
        {"measure_on": "auto", "cv": [[[0, 1], [2, 3]]]}, {"measure_on": "[[[0, 1], [2, 3]]]"},
    ),
    "a certificate": (
        {"guarantee": "high_probability", "delta": 0.1, "calibration_fraction": 0.3},
        {"guarantee": "HighProbability(delta=0.1, fraction=0.3)"},
    ),
    "an expectation": (
        {"guarantee": "expected", "calibration_fraction": 0.3},
        {"guarantee": "Expected(fraction=0.3)"},
    ),
    "a search": (
        {"maximize": "g_mean", "solver": "columns", "oracle": "refit", "deterministic": True},
        {"solver": repr(Reduction("columns", oracle="refit", deterministic=True))},
    ),
    "merged folds": (
        {"minimize": "error_rate", "ensemble": "folds"},
        {"solver": repr(Reduction(ensemble="folds"))},
    ),
    "a search by default": ({"maximize": "g_mean"}, {"solver": "'auto'"}),
    "no search": ({"oracle": "refit"}, {"solver": "'auto'"}),
}  # fmt: skip


@alternate("case", OLD)
def test_parameters_of_version_0_1_are_put_into_their_objects(library, case, problem, tmp_path):
    given, expected = OLD[case]
    model, path = fit_once(library), tmp_path / FILES[library]
    model.save_model(path)
    all_of_then = {
        "n_folds": 4, "cv": None, "holdout_fraction": None, "delta": 0.05,
        "calibration_fraction": 0.2, "deterministic": None, "ensemble": None, "oracle": "plug_in",
    }  # fmt: skip
    rewrite(path, library, within("parameters", **{**all_of_then, **given}))
    loaded = CLASSIFIERS[library]().load_model(path)
    assert_same_model(loaded, model, problem[0])
    np.testing.assert_array_equal(loaded.predict(problem[0]), model.predict(problem[0]))
    found = loaded.get_params()
    assert not all_of_then.keys() & found.keys()
    assert {name: repr(found[name]) for name in expected} == expected


def test_the_parameter_deterministic_of_lightgbm_is_kept(problem, tmp_path):
    model = fit_small("lightgbm", problem, deterministic=True)
    loaded = save_and_load(model, tmp_path)
    assert loaded.get_params()["deterministic"] is True
    assert loaded.solver == "auto"
    assert_same_model(loaded, model, problem[0])
