"""Interrupted fits give the models of uninterrupted ones, bit by bit."""

import contextlib
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, quiet
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import gbm_constrained as gc
from gbm_constrained.solvers import ABPP
from gbm_constrained.training.checkpoint import CheckpointFile, describe_fit

ROUNDS = 6
N = 600


class Interruption(BaseException):
    """Stands for a kill: nothing that runs after it may write."""


@pytest.fixture(scope="module")
def rows():
    """Features with missing values, two and three classes, weights and a group."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 5))
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * rng.normal(size=N)
    X[rng.random(X.shape) < 0.05] = np.nan
    return {
        "X": X,
        "binary": (score > 0.6).astype(int),
        "several": np.digitize(score, [-0.8, 0.6]),
        "weight": rng.uniform(0.5, 2.0, size=N),
        "group": np.where(X[:, 3] + rng.normal(size=N) > 0, "a", "b"),
        "start": rng.normal(size=N) / 4,
    }


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.checkpoint"


@pytest.fixture
def grown(monkeypatch):
    """Boosting rounds that the libraries have grown, of all boosters."""
    rounds = []

    def count(kind, name):
        grow = getattr(kind, name)

        def counted(*args, **kwargs):
            found = grow(*args, **kwargs)
            if not (kind is xgb.Booster and kwargs.get("fobj")):  # which has called boost
                rounds.append(name)
            return found

        monkeypatch.setattr(kind, name, counted)

    for kind, name in ((xgb.Booster, "update"), (xgb.Booster, "boost"), (lgb.Booster, "update")):
        count(kind, name)
    return rounds


SMALL = {"max_depth": 3, "n_jobs": 1, "n_folds": 2, "learning_rate": 0.2, "n_estimators": ROUNDS}
QUIET = {"xgboost": {"verbosity": 0}, "lightgbm": {"verbose": -1, "min_child_samples": 10}}
SAMPLES = {
    "xgboost": {"subsample": 0.6, "colsample_bytree": 0.8, "colsample_bynode": 0.8},
    "lightgbm": {
        "subsample": 0.6, "subsample_freq": 2, "colsample_bytree": 0.8,
        "feature_fraction_bynode": 0.8, "extra_trees": True,
    },
}  # fmt: skip
NATIVE = {  # what each library has that the other has not, or calls otherwise
    "xgboost": {"num_parallel_tree": 2, "grow_policy": "lossguide", "max_leaves": 5},
    "lightgbm": {"boosting_type": "goss", "linear_tree": True, "path_smooth": 0.5},
}
GAP = {  # which take several passes
    "xgboost": [gc.gap(gc.fpr(), by="group") <= 0.01, gc.fnr() <= 0.1],
    "lightgbm": [gc.gap(gc.selection_rate(), by="group") <= 0.02, gc.fnr() <= 0.2],
}
OPTIONS = {
    "crossfit": {},
    "several": {"constraints": [gc.class_error(2) <= 0.1]},
    "holdout": {"measure_on": "holdout", "holdout_fraction": 0.3},
    "threshold": {"solver": "threshold"},
    "certified": {"guarantee": "high_probability", "constraints": [gc.fpr() <= 0.3]},
    "expected": {"guarantee": "expected"},
    "randomized": {"iterate": "randomized"},
    "best": {"iterate": "best"},
    "CBPR": {"solver": "cbpr", "constraints": [gc.gap(gc.log_loss(), by="group") <= 0.01]},
    "other rows": {"constraints": [gc.fnr() <= 0.1, gc.selection_rate(on=gc.dataset("d")) <= 0.2]},
}
CASES = [*OPTIONS, "samples", "passes", "native", "categories", "evaluated", "start", "schedule"]


def make(library, case, rows):
    """Make the classifier and the arguments of ``fit`` of a case."""
    X, y, more = rows["X"], rows["several" if case == "several" else "binary"], quiet(library)
    options = {"constraints": [gc.fnr() <= 0.1], **OPTIONS.get(case, {})}
    if case in ("passes", "CBPR"):
        more["sensitive_features"] = pd.Series(rows["group"], name="group")
    if case in ("holdout", "passes"):
        more["sample_weight"] = rows["weight"]
    if case == "samples":
        options |= SAMPLES[library]
    elif case == "passes":
        options |= {"constraints": GAP[library], "subsample": 0.8}
        options |= {"subsample_freq": 1} if library == "lightgbm" else {}
    elif case == "native":
        options |= NATIVE[library]
    elif case == "other rows":
        more["datasets"] = {"d": X[:100]}
    elif case == "categories":
        X = pd.DataFrame(X, columns=list("abcde")).assign(f=pd.Categorical(rows["group"]))
        options |= {"enable_categorical": True} if library == "xgboost" else {}
    elif case == "evaluated":
        options |= {"measure_on": "crossfit", "learning_rate": 0.9, "n_estimators": 20}
        more |= {"eval_set": [(X[:200], y[300:500])]}  # labels of other rows: it stops soon
        if library == "xgboost":
            options |= {"early_stopping_rounds": 2, "eval_metric": "auc"}
        else:
            more |= {"callbacks": [lgb.early_stopping(2, verbose=False)], "eval_metric": "auc"}
    elif case == "start":
        more["base_margin" if library == "xgboost" else "init_score"] = rows["start"]
    elif case == "schedule":
        if library == "xgboost":
            options["callbacks"] = [xgb.callback.LearningRateScheduler(lambda r: 0.3 / (1 + r))]
        else:
            more["callbacks"] = [lgb.reset_parameter(learning_rate=lambda r: 0.3 / (1 + r))]
    return CLASSIFIERS[library](**SMALL | QUIET[library] | options), (X, y), more


def fit(library, case, rows, **others):
    model, data, more = make(library, case, rows)
    return model.fit(*data, **more | others)


def interrupt(call, n):
    """Interrupt a fit in the outer iteration of a number, of all passes together."""
    seen = []

    def callback(state):
        seen.append(state)
        if len(seen) > n:
            raise Interruption

    with pytest.raises(Interruption):
        call(constraint_callbacks=[callback])


def bytes_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return bytes(model.get_booster().save_raw("ubj"))
    return model.booster_.model_to_string(num_iteration=-1).encode()


def assert_same(one, other):
    assert bytes_of(one) == bytes_of(other)
    for name in ("evals_result_", "best_iteration_", "best_score_", "best_iteration"):
        assert getattr(one, name, None) == getattr(other, name, None)
    histories = [model.history_.drop(columns="seconds") for model in (one, other)]
    pd.testing.assert_frame_equal(*histories, check_exact=True)
    reports = [model.constraint_report_ for model in (one, other)]
    pd.testing.assert_frame_equal(*reports, check_exact=True)
    np.testing.assert_array_equal(one.shift_, other.shift_)
    assert one.feasibility_.cost == other.feasibility_.cost
    assert getattr(one, "prefixes_", pd.DataFrame()).equals(
        getattr(other, "prefixes_", pd.DataFrame())
    )


@BOTH
@pytest.mark.parametrize("case", CASES)
def test_resumed_is_the_uninterrupted_model(library, case, rows, path, grown):
    """Interrupted at the end of each pass: saved passes are not grown again."""
    seen, again = [], []

    def note(states):
        def callback(state):
            values = state.record.multipliers.tolist()
            states.append((state.phase, state.iteration, state.total, values, len(grown)))

        return [callback]

    whole = fit(library, case, rows, constraint_callbacks=note(seen))
    n_rounds = len(grown)
    starts = [i for i, state in enumerate(seen) if state[1] == 0]
    assert len(starts) >= (3 if case == "passes" else 2)
    for i in {starts[1], starts[-1]}:
        interrupt(lambda **more: fit(library, case, rows, checkpoint=path, **more), i)
        assert path.exists()
        grown.clear(), again.clear()
        resumed = fit(library, case, rows, checkpoint=path, constraint_callbacks=note(again))
        assert len(grown) == n_rounds - (seen[i][-1] - seen[0][-1])
        assert [state[:-1] for state in again] == [state[:-1] for state in seen]
        assert_same(resumed, whole)
        assert not os.listdir(path.parent)


@BOTH
def test_interrupted_again_and_again(library, rows, path, grown):
    """Each time in the pass after the one that the file ends with."""
    seen = []
    whole = fit(library, "passes", rows, constraint_callbacks=[seen.append])
    n_rounds = len(grown)
    starts = [i for i, state in enumerate(seen) if state.iteration == 0]
    grown.clear()
    for i in starts[1:]:
        interrupt(lambda **more: fit(library, "passes", rows, checkpoint=path, **more), i + 1)
    assert_same(fit(library, "passes", rows, checkpoint=path), whole)
    assert len(grown) < n_rounds + 3 * len(starts) * SMALL["n_folds"]


@BOTH
def test_a_callback_that_ends_a_later_pass(library, rows, path):
    """What ended one pass is no state of the passes before."""

    def end(states):
        def callback(state):
            states.append(state)
            return state.total > 3 * ROUNDS + ROUNDS and state.rounds >= 2

        return callback

    seen = []
    whole = fit(library, "passes", rows, constraint_callbacks=[end(seen)])
    assert whole.stopping_message_
    i = [i for i, state in enumerate(seen) if state.iteration == 0][-1]
    call = [end([])]

    def interrupted(constraint_callbacks):
        fit(
            library,
            "passes",
            rows,
            checkpoint=path,
            constraint_callbacks=[*constraint_callbacks, *call],
        )

    interrupt(interrupted, i)
    resumed = fit(library, "passes", rows, checkpoint=path, constraint_callbacks=call)
    assert_same(resumed, whole)
    assert resumed.stopping_message_ == whole.stopping_message_


@BOTH
@pytest.mark.parametrize("source", [np.random.RandomState, np.random.default_rng])
def test_a_source_of_randomness_is_drawn_from_as_without(library, source, rows, path):
    left = []
    for checkpoint in (None, path):
        model, data, more = make(library, "samples", rows)
        model.set_params(random_state=source(0)).fit(*data, checkpoint=checkpoint, **more)
        left.append(model.random_state.random(5))
    np.testing.assert_array_equal(*left)


SCRIPT = """
    import os, random, signal, sys, threading, time
    import numpy as np
    import gbm_constrained as gc

    library, folder, n_kills, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 6))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * rng.normal(size=1000) > 0.8).astype(int)
    kind = {"xgboost": gc.ConstrainedXGBClassifier, "lightgbm": gc.ConstrainedLGBMClassifier}
    samples = {"subsample": 0.7, "colsample_bytree": 0.7}
    samples |= {"verbose": -1, "subsample_freq": 1} if library == "lightgbm" else {}
    constraints = [gc.gap(gc.selection_rate(), by="g") <= 0.02, gc.fnr() <= 0.2]

    def child(name, checkpoint=None, seconds=None):
        # A fit in a process of its own, which is killed after some seconds if asked.
        pid = os.fork()
        if pid:
            return os.waitpid(pid, 0)[1] == signal.SIGKILL
        if seconds is not None:
            kill = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
            kill.start()
        model = kind[library](constraints=constraints, n_estimators=24, n_jobs=1, **samples)
        model.fit(X, y, sensitive_features={"g": X[:, 3] > 0}, checkpoint=checkpoint)
        booster = model.get_booster() if library == "xgboost" else model.booster_
        booster.save_model(os.path.join(folder, name))
        os._exit(0)

    suffix = ".json" if library == "xgboost" else ".txt"
    began = time.perf_counter()
    child("whole" + suffix)
    seconds = time.perf_counter() - began
    moments, killed, saved = random.Random(seed), 0, 0
    while killed < n_kills or not saved:
        checkpoint = os.path.join(folder, f"{killed}.checkpoint")
        if not child("early" + suffix, checkpoint, moments.uniform(0.0, seconds)):
            continue
        saved += os.path.exists(checkpoint)
        child(f"{killed}{suffix}", checkpoint)
        killed += 1
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.parametrize("n_kills", [2, pytest.param(20, marks=pytest.mark.slow)])
@BOTH
def test_killed_at_random_moments(library, n_kills, tmp_path):
    """Killed within a pass, a write or the training of the model; then run again."""
    arguments = [library, str(tmp_path), str(n_kills), "2"]
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), *arguments]
    subprocess.run(command, check=True, timeout=500)
    whole = next(tmp_path.glob("whole.*")).read_bytes()
    resumed = list(tmp_path.glob("[0-9]*"))
    assert len(resumed) >= n_kills
    assert not list(tmp_path.glob("*.checkpoint*"))
    assert all(file.read_bytes() == whole for file in resumed)


# The file


def written(path, *states, fingerprint=None):
    file = CheckpointFile(path, {"X": "hash:1", "learning_rate": "0.1"} | (fingerprint or {}))
    for state in states:
        file.save(state)
    return file


def passes(path):
    return CheckpointFile(path, {"X": "hash:1", "learning_rate": "0.1"}).passes


STATE = {"t": 1, "scores": np.arange(5.0), "text": "tree\n", "more": [None, True, 0.1, {"a": {}}]}


def test_states_are_read_as_written(path):
    arrays = [
        np.asfortranarray(np.arange(6, dtype="i2").reshape(2, 3)), np.zeros(0), np.float32(0.1),
        np.array([np.nan, -0.0, np.inf]), np.frombuffer(b"bytes\0", np.uint8), np.bool_(True),
    ]  # fmt: skip
    written(path, STATE, {"arrays": arrays})
    first, second = passes(path)
    np.testing.assert_array_equal(first.pop("scores"), STATE["scores"])
    assert first == {name: value for name, value in STATE.items() if name != "scores"}
    for read, array in zip(second["arrays"], arrays, strict=True):
        assert type(read) is type(array)
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)
        assert np.isfortran(read) == np.isfortran(array)


def test_nothing_is_pickled(path, rows):
    with pytest.raises(TypeError, match=r"cannot hold builtins\.set"):
        written(path, {"a": {1, 2}})
    with pytest.raises(TypeError, match=r"cannot hold numpy\.ndarray"):
        written(path, {"a": np.array([None])})
    interrupt(lambda **more: fit("lightgbm", "passes", rows, checkpoint=path, **more), 4)
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "biuf" for name in arrays.files)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_torn_file_is_noticed(data, tmp_path_factory):
    """Cut short anywhere, or with any bit changed: the states are as written, or refused."""
    path = tmp_path_factory.mktemp("torn") / "file"
    written(path, STATE)
    whole = path.read_bytes()
    if data.draw(st.booleans()):
        torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        bit = data.draw(st.integers(0, 8 * len(whole) - 1))
        torn = bytearray(whole)
        torn[bit // 8] ^= 1 << bit % 8
    path.write_bytes(torn)
    with contextlib.suppress(ValueError):
        np.testing.assert_equal(passes(path), [STATE])


def test_files_of_something_else_are_left_alone(path, tmp_path):
    path.write_text("my only data")
    np.save(tmp_path / "array.npy", np.arange(3))
    np.savez(tmp_path / "arrays.npz", a=np.arange(3))
    np.savez(tmp_path / "list.npz", document=np.frombuffer(b"[1]", np.uint8))
    (tmp_path / "empty").touch()
    for file in tmp_path.iterdir():
        before = file.read_bytes()
        with pytest.raises(ValueError, match="is not a checkpoint, or is damaged"):
            passes(file)
        assert file.read_bytes() == before
    text = np.frombuffer(b'{"format": 1}', np.uint8)
    np.savez(tmp_path / "old.npz", document=text)
    with pytest.raises(ValueError, match="has format 1, and this version reads"):
        passes(tmp_path / "old.npz")


def test_a_file_of_another_fit_is_refused(path):
    written(path, STATE, fingerprint={"learning_rate": "0.2"})
    with pytest.raises(ValueError, match=r"of another fit: learning_rate was 0\.2 and is 0\.1\. "):
        passes(path)
    path.unlink()
    written(path, STATE, fingerprint={"X": "hash:2", "y": "hash:3"})
    with pytest.raises(ValueError, match="X differs; y was given, and is not now"):
        passes(path)


def test_another_machine_is_a_warning(path, monkeypatch):
    written(path, STATE)
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    with pytest.warns(gc.CheckpointWarning, match="the number of threads differs"):
        assert len(passes(path)) == 1


@pytest.mark.parametrize("obstacle", ["a folder", "a full disk"])
def test_a_file_that_cannot_be_written_is_a_warning(obstacle, rows, path):
    partial = path.with_name(path.name + ".partial")
    if obstacle == "a folder":
        partial.mkdir()
    elif Path("/dev/full").exists():
        partial.symlink_to("/dev/full")
    else:
        pytest.skip("there is no disk that is always full")
    with pytest.warns(gc.CheckpointWarning, match="could not be written, and the fit goes on"):
        model = fit("lightgbm", "crossfit", rows, checkpoint=path)
    assert_same(model, fit("lightgbm", "crossfit", rows))
    assert not path.exists()


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (3, TypeError, "path of a file, got 3"),
        (b"file", TypeError, "path of a file, got b'file'"),
        ("no/such/folder/file", ValueError, "a folder that is not there"),
        (".", ValueError, "is a folder"),
    ],
)
@BOTH
def test_bad_paths(library, value, error, match, rows):
    with pytest.raises(error, match=match):
        fit(library, "crossfit", rows, checkpoint=value)


# Fits


CHANGES = {
    "X": lambda model, data, more: data[0].__setitem__((5, 0), 9.0),
    "y": lambda model, data, more: data[1].__setitem__(5, 1 - data[1][5]),
    "sample_weight": lambda model, data, more: more.update(sample_weight=np.ones(N)),
    "groups": lambda model, data, more: more.update(groups=np.arange(N)),
    "sensitive_features": lambda model, data, more: more.update(
        sensitive_features=more["sensitive_features"].iloc[::-1].reset_index(drop=True)
    ),
    "eval_set": lambda model, data, more: more.update(eval_set=[(data[0][:50], data[1][:50])]),
    "learning_rate": lambda model, data, more: model.set_params(learning_rate=0.21),
    "n_folds": lambda model, data, more: model.set_params(n_folds=3),
    "n_jobs": lambda model, data, more: model.set_params(n_jobs=2),
    "random_state": lambda model, data, more: model.set_params(random_state=1),
    "solver": lambda model, data, more: model.set_params(solver=ABPP(tau=0.5)),
    "constraints": lambda model, data, more: model.set_params(
        constraints=[gc.gap(gc.fpr(), by="group") <= 0.011, gc.fnr() <= 0.1]
    ),
}


@BOTH
def test_other_data_and_parameters_are_refused(library, rows, path):
    interrupt(lambda **more: fit(library, "passes", rows, checkpoint=path, **more), 4)
    before = path.read_bytes()
    for what, change in CHANGES.items():
        model, data, more = make(library, "passes", rows)
        data = [values.copy() for values in data]
        change(model, data, more)
        with pytest.raises(ValueError, match=rf"of another fit: (.*; )?{what} (was|differs)"):
            model.fit(*data, checkpoint=path, **more)
    assert path.read_bytes() == before
    model, data, more = make(library, "passes", rows)
    model.set_params(**{"verbosity": 1} if library == "xgboost" else {"verbose": 0})
    model.fit(*data, checkpoint=path, **more)
    assert model.history_.drop(columns="seconds").equals(
        fit(library, "passes", rows).history_.drop(columns="seconds")
    )


REFUSED = [
    ({"constraints": []}, "there are none: give constraints"),
    ({"measure_on": "train"}, "on the training rows or on an evaluation set"),
    ({"measure_on": "holdout"}, "on the training rows or on an evaluation set"),
]


@BOTH
@pytest.mark.parametrize(("options", "match"), REFUSED)
def test_fits_without_boosters_of_folds_are_refused(library, options, match, rows, path):
    model, (X, y), more = make(library, "crossfit", rows)
    with pytest.raises(ValueError, match=match):
        model.set_params(**options).fit(X, y, checkpoint=path, eval_set=[(X, 1 - y)], **more)
    assert not path.exists()


@BOTH
def test_the_file_is_removed_where_constraints_cannot_be_met(library, rows, path):
    """The fit is done then, and to resume it would be of no use."""
    model, data, more = make(library, "crossfit", rows)
    model.set_params(constraints=[gc.fnr() <= 0.01, gc.fpr() <= 0.01], on_infeasible="raise")
    with pytest.raises(gc.InfeasibleConstraintsError):
        model.fit(*data, checkpoint=path, **more)
    assert not os.listdir(path.parent)


@BOTH
def test_nothing_is_left_on_the_estimator(library, rows, path):
    plain = fit(library, "crossfit", rows)
    interrupt(lambda **more: fit(library, "crossfit", rows, checkpoint=path, **more), 4)
    model = fit(library, "crossfit", rows, checkpoint=path)
    assert set(vars(model)) == set(vars(plain))
    boosters = [m.get_booster() if library == "xgboost" else m.booster_ for m in (model, plain)]
    assert set(vars(boosters[0])) == set(vars(boosters[1]))


def test_example_of_the_documentation(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "checkpoint.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(block, found)
    assert found["clf"].constraint_report_["held_out"].notna().all()
    assert not os.listdir(tmp_path)


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


@pytest.mark.parametrize("package", ["polars", "pyarrow"])
def test_hashes_of_other_tables(package):
    module = pytest.importorskip(package)
    kind = module.DataFrame if package == "polars" else module.table
    one, same, other = ({"a": [1, 2], "b": ["u", v]} for v in "vvw")
    assert hash_of(kind(one)) == hash_of(kind(same))
    assert hash_of(kind(one)) != hash_of(kind(other))
