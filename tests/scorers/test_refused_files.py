"""Model files that are damaged, forged or of something else: refused, and nothing changes."""

from __future__ import annotations

import json

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS
from saved_models import FILES, assert_same_attributes, fit_small, make, table_of
from scipy.special import expit
from sklearn.exceptions import NotFittedError

import gbm_constrained as gc


@pytest.fixture
def problem():
    return table_of("binary", np.random.default_rng(5))


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
        (
            lambda note: {**note, "format": 1, "version": "0.1", "fitted": {"$": "Feasibility"}},
            r"saved by gbm_constrained 0\.1, in format 1, and this is .*load it by 0\.1",
        ),
    ],
)  # fmt: skip
def test_a_forged_note_is_refused(library, change, message, problem, tmp_path):
    model = fit_small(library, problem)
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
