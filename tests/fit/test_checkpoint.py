"""The file of a checkpoint: what is written, what is read, and what is refused."""

import contextlib
import functools
import os
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, interrupt, quiet
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import gbm_constrained as gc
from gbm_constrained.fit.checkpoint import CheckpointFile, describe_fit
from gbm_constrained.solvers import ABPP

N = 600
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 5))
Y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * RNG.normal(size=N) > 0.6).astype(int)
GROUP = pd.Series(np.where(X[:, 3] > 0, "a", "b"), name="g")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.checkpoint"


def make(library):
    """Make a classifier and the arguments of its ``fit``."""
    constraints = [gc.gap(gc.fpr(), by="g") <= 0.1, gc.fnr() <= 0.2]
    options = {
        "constraints": constraints,
        "n_estimators": 6,
        "max_depth": 3,
        "measure_on": gc.CrossFit(2),
    }
    options |= {"verbosity": 0} if library == "xgboost" else {"verbose": -1}
    arguments = {"X": X, "y": Y, "sensitive_features": GROUP, **quiet(library)}
    return CLASSIFIERS[library](n_jobs=1, **options), arguments


def fit(library, **others):
    model, arguments = make(library)
    return model.fit(**arguments | others)


def interrupt_training(library, path):
    """Interrupt a fit that has saved its passes."""
    resumable = functools.partial(fit, library, checkpoint=path)
    interrupt(resumable, lambda state: state.phase == "training")


# The file


def write_states(path, *states, fingerprint=None):
    file = CheckpointFile(path, {"X": "hash:1", "learning_rate": "0.1"} | (fingerprint or {}))
    for state in states:
        file.save(state)
    return file


def read_passes(path):
    return CheckpointFile(path, {"X": "hash:1", "learning_rate": "0.1"}).passes


STATE = {"t": 1, "scores": np.arange(5.0), "text": "tree\n", "more": [None, True, 0.1, {"a": {}}]}


def test_states_are_read_as_written(path):
    arrays = [
        np.asfortranarray(np.arange(6, dtype="i2").reshape(2, 3)), np.zeros(0), np.float32(0.1),
        np.array([np.nan, -0.0, np.inf]), np.frombuffer(b"bytes\0", np.uint8), np.bool_(True),
    ]  # fmt: skip
    write_states(path, STATE, {"arrays": arrays})
    first, second = read_passes(path)
    np.testing.assert_array_equal(first.pop("scores"), STATE["scores"])
    assert first == {name: value for name, value in STATE.items() if name != "scores"}
    for read, array in zip(second["arrays"], arrays, strict=True):
        assert type(read) is type(array)
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)
        assert np.isfortran(read) == np.isfortran(array)


def test_nothing_is_pickled(path):
    with pytest.raises(TypeError, match=r"cannot hold builtins\.set"):
        write_states(path, {"a": {1, 2}})
    with pytest.raises(TypeError, match=r"cannot hold numpy\.ndarray"):
        write_states(path, {"a": np.array([None])})
    interrupt_training("lightgbm", path)
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "biuf" for name in arrays.files)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_torn_file_is_noticed(data, tmp_path_factory):
    """Cut short anywhere, or with any bit changed: the states are as written, or refused."""
    path = tmp_path_factory.mktemp("torn") / "file"
    write_states(path, STATE)
    whole = path.read_bytes()
    if data.draw(st.booleans()):
        torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        bit = data.draw(st.integers(0, 8 * len(whole) - 1))
        torn = bytearray(whole)
        torn[bit // 8] ^= 1 << bit % 8
    path.write_bytes(torn)
    with contextlib.suppress(ValueError):
        np.testing.assert_equal(read_passes(path), [STATE])


def test_files_of_something_else_are_left_alone(path, tmp_path):
    path.write_text("my only data")
    np.save(tmp_path / "array.npy", np.arange(3))
    np.savez(tmp_path / "arrays.npz", a=np.arange(3))
    np.savez(tmp_path / "list.npz", document=np.frombuffer(b"[1]", np.uint8))
    (tmp_path / "empty").touch()
    for file in tmp_path.iterdir():
        before = file.read_bytes()
        with pytest.raises(ValueError, match="is not a checkpoint, or is damaged"):
            read_passes(file)
        assert file.read_bytes() == before
    text = np.frombuffer(b'{"format": 1}', np.uint8)
    np.savez(tmp_path / "old.npz", document=text)
    with pytest.raises(ValueError, match="has format 1, and this version reads"):
        read_passes(tmp_path / "old.npz")


def test_a_file_of_another_fit_is_refused(path):
    write_states(path, STATE, fingerprint={"learning_rate": "0.2"})
    with pytest.raises(ValueError, match=r"of another fit: learning_rate was 0\.2 and is 0\.1\. "):
        read_passes(path)
    path.unlink()
    write_states(path, STATE, fingerprint={"X": "hash:2", "y": "hash:3"})
    with pytest.raises(ValueError, match="X differs; y was given, and is not now"):
        read_passes(path)


def test_another_machine_is_a_warning(path, monkeypatch):
    write_states(path, STATE)
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    with pytest.warns(gc.CheckpointWarning, match="the number of threads differs"):
        assert len(read_passes(path)) == 1


@pytest.mark.parametrize("obstacle", ["a folder", "a full disk"])
def test_a_file_that_cannot_be_written_is_a_warning(obstacle, path):
    partial = path.with_name(path.name + ".partial")
    if obstacle == "a folder":
        partial.mkdir()
    elif Path("/dev/full").exists():
        partial.symlink_to("/dev/full")
    else:
        pytest.skip("there is no disk that is always full")
    with pytest.warns(gc.CheckpointWarning, match="could not be written, and the fit goes on"):
        model = fit("lightgbm", checkpoint=path)
    plain = fit("lightgbm")
    assert model.booster_.model_to_string() == plain.booster_.model_to_string()
    assert not path.exists()


BAD_PATHS = [
    (3, TypeError, "path of a file, got 3"),
    (b"file", TypeError, "path of a file, got b'file'"),
    ("no/such/folder/file", ValueError, "a folder that is not there"),
    (".", ValueError, "is a folder"),
]


@EITHER
@pytest.mark.parametrize(("value", "error", "match"), BAD_PATHS)
def test_bad_paths(library, value, error, match):
    with pytest.raises(error, match=match):
        fit(library, checkpoint=value)


# Fits


OTHER_X, OTHER_Y = (
    np.where(np.arange(N)[:, None] == 5, 9.0, X),
    np.where(np.arange(N) == 5, 1 - Y, Y),
)
CHANGES = {
    "X": {"X": OTHER_X},
    "y": {"y": OTHER_Y},
    "sample_weight": {"sample_weight": np.ones(N)},
    "groups": {"groups": np.arange(N)},
    "sensitive_features": {"sensitive_features": GROUP.iloc[::-1].reset_index(drop=True)},
    "eval_set": {"eval_set": [(X[:50], Y[:50])]},
    "learning_rate": 0.21,
    "measure_on": gc.CrossFit(3),
    "n_jobs": 2,
    "random_state": 1,
    "solver": ABPP(tau=0.5),
    "constraints": [gc.gap(gc.fpr(), by="g") <= 0.011, gc.fnr() <= 0.1],
}


@EITHER
def test_other_data_and_parameters_are_refused(library, path):
    interrupt_training(library, path)
    before = path.read_bytes()
    for what, value in CHANGES.items():
        model, arguments = make(library)
        if isinstance(value, dict):
            arguments |= value
        else:
            model.set_params(**{what: value})
        with pytest.raises(ValueError, match=rf"of another fit: (.*; )?{what} (was|differs)"):
            model.fit(checkpoint=path, **arguments)
    assert path.read_bytes() == before
    model, arguments = make(library)
    model.set_params(**{"verbosity": 1} if library == "xgboost" else {"verbose": 0})
    model.fit(checkpoint=path, **arguments)
    assert model.constraint_report_.equals(fit(library).constraint_report_)


REFUSED = [
    ({"constraints": []}, "there are none: give constraints"),
    ({"measure_on": "train"}, "on the training rows or on an evaluation set"),
    ({"measure_on": "holdout"}, "on the training rows or on an evaluation set"),
]


@EITHER
@pytest.mark.parametrize(("options", "match"), REFUSED)
def test_fits_without_boosters_of_folds_are_refused(library, options, match, path):
    model, arguments = make(library)
    with pytest.raises(ValueError, match=match):
        model.set_params(**options).fit(checkpoint=path, eval_set=[(X, 1 - Y)], **arguments)
    assert not path.exists()


@EITHER
def test_the_file_is_removed_where_constraints_cannot_be_met(library, path):
    """The fit is done then, and to resume it would be of no use."""
    model, arguments = make(library)
    model.set_params(constraints=[gc.fnr() <= 0.01, gc.fpr() <= 0.01], on_infeasible="raise")
    with pytest.raises(gc.InfeasibleConstraintsError):
        model.fit(checkpoint=path, **arguments)
    assert not os.listdir(path.parent)


@EITHER
def test_nothing_is_left_on_the_estimator(library, path):
    plain = fit(library)
    interrupt_training(library, path)
    model = fit(library, checkpoint=path)
    assert set(vars(model)) == set(vars(plain))
    boosters = [m.get_booster() if library == "xgboost" else m.booster_ for m in (model, plain)]
    assert set(vars(boosters[0])) == set(vars(boosters[1]))


# What is hashed


def hash_of(value):
    estimator = gc.ConstrainedLGBMClassifier(constraints=[gc.fnr() <= 0.1])
    return describe_fit(estimator, {"value": value}, {"constraints": []})["value"]


def test_hashes_differ_by_values_types_and_names():
    X = np.arange(6.0).reshape(3, 2)
    table = pd.DataFrame(X, columns=["a", "b"])
    category = pd.Series(pd.Categorical(["u", "v", "u"]))
    days = np.arange("2020-01-01", "2020-01-04", dtype="datetime64[D]")
    different = [
        X, X.astype(np.float32), X.view(np.int64), X.T, X.ravel(), X.reshape(2, 3), X + 1,
        table, table.rename(columns={"b": "c"}), table.astype(np.float32), X.tolist(),
        sparse.csr_array(X), sparse.csr_array(X + 1), {"a": X}, {"b": X}, [X, X],
        category, category.cat.rename_categories(["v", "u"]), pd.Series(["u", "v", "u"]),
        category.cat.reorder_categories(["v", "u"]), days, days + 1, days - days[0],
        np.array(["u", "v", None], dtype=object), np.array(["u", "v", "w"], dtype=object),
        np.random.RandomState(0), np.random.RandomState(1), np.random.default_rng(0),
        gc.fnr, gc.fpr, ABPP(), ABPP(tau=0.1), lgb.early_stopping(2), [lgb.early_stopping(2)],
    ]  # fmt: skip
    hashes = [hash_of(value) for value in different]
    assert len(set(hashes)) == len(hashes)


def test_hashes_do_not_depend_on_copies_and_layout():
    X = np.arange(6.0).reshape(3, 2)
    assert hash_of(np.asfortranarray(X)) == hash_of(X)
    assert hash_of(np.repeat(X, 2, axis=1)[:, ::2]) == hash_of(X)
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": list("uvu")})
    table["new"] = 1.0
    assert hash_of(table.copy()) == hash_of(table)
    matrix = sparse.csr_array(X)
    before = hash_of(matrix)
    assert matrix.has_sorted_indices
    assert hash_of(matrix) == before
    y = np.array(["a", "b"] * 100, dtype=object)
    assert hash_of(y) == hash_of(np.array(["".join(["a"]), "".join(["b"])] * 100, dtype=object))


def test_callbacks_are_compared_by_their_names():
    """For their attributes change as they are called."""
    stopping = xgb.callback.EarlyStopping(rounds=2)
    model = gc.ConstrainedXGBClassifier(constraints=[gc.fnr() <= 0.1], callbacks=[stopping])
    found = describe_fit(model, {}, {"constraints": []})
    stopping.best_scores = {"auc": 0.9}
    assert describe_fit(model, {}, {"constraints": []}) == found
    model.set_params(callbacks=[xgb.callback.EvaluationMonitor()])
    assert describe_fit(model, {}, {"constraints": []}) != found


@pytest.mark.parametrize("package", ["polars", "pyarrow"])
def test_hashes_of_other_tables(package):
    module = pytest.importorskip(package)
    kind = module.DataFrame if package == "polars" else module.table
    one, same, other = ({"a": [1, 2], "b": ["u", v]} for v in "vvw")
    assert hash_of(kind(one)) == hash_of(kind(same))
    assert hash_of(kind(one)) != hash_of(kind(other))
