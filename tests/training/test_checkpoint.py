"""Interrupted fits give the models of uninterrupted ones, bit by bit."""

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from gbm_constrained.training.fingerprint import digest
from helpers import BOTH, CLASSIFIERS, quiet
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from gbm_constrained import (
    Checkpoint,
    CheckpointWarning,
    InfeasibleConstraintsError,
    as_log_loss,
    class_error,
    dataset,
    fnr,
    fpr,
    gap,
    log_loss,
    selection_rate,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.training.checkpoint import CheckpointFile

ROUNDS = 6


class Interruption(BaseException):
    """Stands for a kill: nothing that runs after it may write."""


@pytest.fixture
def interrupted(monkeypatch):
    """Call something and interrupt it after so many rounds of boosting, of all stages."""

    def run(call, after, write_every=1):
        offer, rounds = CheckpointFile.offer, 0

        def counted(self, make_state):
            nonlocal rounds
            rounds += 1
            if rounds % write_every == 0:
                offer(self, make_state)
            if rounds == after:
                raise Interruption

        monkeypatch.setattr(CheckpointFile, "offer", counted)
        with pytest.raises(Interruption):
            call()
        monkeypatch.setattr(CheckpointFile, "offer", offer)

    return run


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.checkpoint"


@pytest.fixture(scope="module")
def rows():
    """Features with missing values, two and three classes, weights and a group."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 5))
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * rng.normal(size=600)
    X[rng.random(X.shape) < 0.05] = np.nan
    group = np.where(X[:, 3] + rng.normal(size=600) > 0, "a", "b")
    return {
        "X": X,
        "binary": (score > 0.6).astype(int),
        "several": np.digitize(score, [-0.8, 0.6]),
        "weight": rng.uniform(0.5, 2.0, size=600),
        "group": group,
        "start": rng.normal(size=600) / 4,
    }


def bytes_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return bytes(model.get_booster().save_raw("ubj"))
    return model.booster_.model_to_string(num_iteration=-1).encode()


def evaluations_of(model):
    if isinstance(model, lgb.LGBMClassifier):
        return model.evals_result_, model.best_iteration_, model.best_score_
    try:
        return model.evals_result(), getattr(model, "best_iteration", None)
    except xgb.core.XGBoostError:
        return None


def assert_same(one, other):
    assert bytes_of(one) == bytes_of(other)
    assert evaluations_of(one) == evaluations_of(other)
    pd.testing.assert_frame_equal(
        one.history_.drop(columns="seconds"), other.history_.drop(columns="seconds"),
        check_exact=True,
    )  # fmt: skip
    pd.testing.assert_frame_equal(
        one.constraint_report_, other.constraint_report_, check_exact=True
    )
    np.testing.assert_array_equal(one.shift_, other.shift_)
    assert getattr(one, "prefixes_", pd.DataFrame()).equals(
        getattr(other, "prefixes_", pd.DataFrame())
    )


SAMPLES = {
    "xgboost": {"subsample": 0.6, "colsample_bytree": 0.8, "colsample_bynode": 0.8},
    "lightgbm": {
        "subsample": 0.6, "subsample_freq": 2, "colsample_bytree": 0.8,
        "feature_fraction_bynode": 0.8, "extra_trees": True,
    },
}  # fmt: skip


def learning_rates(library):
    def rate(rounds):
        return 0.3 / (1 + rounds)

    if library == "xgboost":
        return xgb.callback.LearningRateScheduler(rate)
    return lgb.reset_parameter(learning_rate=rate)


class ChangedSamples(xgb.callback.TrainingCallback):
    """Turns samples on in the second round, which parameters do not tell."""

    def before_iteration(self, model, epoch, evals_log):
        if epoch > 0:
            model.set_param({"subsample": 0.8 - 0.1 * (epoch // 3), "colsample_bynode": 0.8})
        return False


def changed_samples(library):
    if library == "xgboost":
        return ChangedSamples()
    # The bags of rounds 2 and 3, and of 4 and 5, are one; the fraction falls within the last.
    return lgb.reset_parameter(
        bagging_freq=lambda rounds: 2 if rounds > 0 else 0,
        bagging_fraction=lambda rounds: 0.8 - 0.1 * (rounds // 5),
        feature_fraction=lambda rounds: 1.0 if rounds < 3 else 0.6,
    )


NATIVE = {  # what each library has that the other has not, or calls otherwise
    "xgboost": {"num_parallel_tree": 2, "grow_policy": "lossguide", "max_leaves": 5},
    "lightgbm": {"linear_tree": True, "path_smooth": 0.5},
}
SEVERAL_VIEWS = [
    gap(fpr(), by="group", min_group_size=1) <= 0.05,
    *(fpr(on={f"part{j}": 1}) <= 0.1 for j in range(12)),
]


def make(library, case, rows):
    """Make the classifier and the arguments of ``fit`` of a case."""
    X, y, more = rows["X"], rows["binary"], quiet(library)
    options = {"constraints": [fnr() <= 0.1]}
    start = "base_margin" if library == "xgboost" else "init_score"
    if case == "train":
        options.update(measure_on="train")
    elif case == "several":
        y = rows["several"]
        options.update(constraints=[class_error(2) <= 0.1])
    elif case == "several, watched":
        y = rows["several"]
        options.update(constraints=[class_error(2) <= 0.1], measure_on="holdout")
        more.update(eval_set=[(X[:200], y[:200])])
    elif case == "holdout, weights":
        options.update(measure_on="holdout", holdout_fraction=0.3)
        more.update(sample_weight=rows["weight"])
    elif case == "watched, early stopping":
        options.update(measure_on="holdout", learning_rate=0.9, n_estimators=30)
        # Labels of other rows: what is learned does not help, so that training stops soon.
        more.update(eval_set=[(X[:200], y[:200]), (X[100:300], y[300:500])])
        if library == "xgboost":
            options.update(early_stopping_rounds=2, eval_metric=["error", "auc"])
        else:
            more.update(callbacks=[lgb.early_stopping(2, verbose=False)], eval_metric="auc")
    elif case.startswith("stopping on "):
        options.update(early_stopping_on=case.split()[-1], n_estimators=30, learning_rate=0.5)
        more.update(eval_set=[(X[:300], y[300:])])
        if library == "xgboost":
            options.update(early_stopping_rounds=2)
        else:
            more.update(callbacks=[lgb.early_stopping(2, verbose=False)])
    elif case == "samples, threshold":
        options.update(solver="threshold", n_estimators=30, learning_rate=0.5, **SAMPLES[library])
        more.update(eval_set=[(X[:300], y[300:])], sample_weight=rows["weight"])
        more[start] = rows["start"]
        if library == "xgboost":
            options.update(early_stopping_rounds=3, eval_metric=["error", "auc"])
        else:
            more.update(callbacks=[lgb.early_stopping(3, verbose=False)], eval_metric="auc")
    elif case == "threshold, watched":
        y = rows["several"]
        options.update(solver="threshold", measure_on="holdout")
        options.update(constraints=[class_error(2) <= 0.1])
        more.update(eval_set=[(X[:200], y[:200])])
    elif case == "training rows evaluated":
        more.update(eval_set=[(X, y), (X[:200], y[:200])])
    elif case == "certified":
        options.update(guarantee="high_probability", constraints=[fpr() <= 0.3])
    elif case == "expected":
        options.update(guarantee="expected")
    elif case == "groups":
        more.update(groups=np.arange(600) // 3)
    elif case in ("best", "ergodic", "randomized"):
        options.update(iterate=case)
    elif case == "gap, weights":
        options.update(constraints=[gap(fpr(), by="group") <= 0.02])
        more.update(
            sensitive_features=pd.Series(rows["group"], name="group"), sample_weight=rows["weight"]
        )
    elif case == "several views, weights":
        parts = {f"part{j}": np.random.default_rng(j).integers(2, size=600) for j in range(12)}
        table = pd.DataFrame({"group": rows["group"], **parts})
        name = "sample_weight_eval_set" if library == "xgboost" else "eval_sample_weight"
        options.update(constraints=SEVERAL_VIEWS, n_estimators=10)
        more.update(
            sensitive_features=table,
            sample_weight=rows["weight"],
            eval_set=[(X[:300], y[:300])],
            sensitive_features_eval_set=[table[:300]],
        )
        more[name] = [rows["weight"][:300] ** 20]  # sums depend on their order
    elif case == "cbpr":
        options.update(constraints=[gap(log_loss(), by="group") <= 0.01])
        more.update(sensitive_features=pd.Series(rows["group"], name="group"))
    elif case == "log_loss":
        options.update(constraints=as_log_loss([fnr() <= 0.1], n_classes=2))
    elif case == "categories":
        X = pd.DataFrame(X, columns=list("abcde"))
        X["f"] = pd.Categorical(rows["group"])
        options.update({"enable_categorical": True} if library == "xgboost" else {})
    elif case == "features by name":
        X = pd.DataFrame(X, columns=list("abcde"))
        together = [["a", "b", "c"], ["d", "e"]]
        if library == "xgboost":
            options.update(monotone_constraints={"a": 1}, interaction_constraints=together)
    elif case == "other rows":
        options.update(constraints=[fnr() <= 0.1, selection_rate(on=dataset("new")) <= 0.2])
        more.update(datasets={"new": X[:100]})
    elif case == "start":
        more[start] = rows["start"]
    elif case == "schedule":
        schedules = [learning_rates(library)]
        if library == "xgboost":
            options.update(callbacks=schedules)
        else:
            more.update(callbacks=schedules)
    elif case == "ended while measuring":
        more.update(constraint_callbacks=[lambda state: state.rounds == 2])
    elif case == "ended while training":
        options.update(measure_on="train")
        more.update(constraint_callbacks=[lambda state: state.rounds == 2])
    elif case.startswith("samples"):
        options.update(SAMPLES[library])
        if case == "samples, schedule":
            schedules = [learning_rates(library)]
        elif case == "samples by a callback":
            options = {name: v for name, v in options.items() if name not in SAMPLES[library]}
            schedules = [changed_samples(library)]
        else:
            schedules = []
        if library == "xgboost":
            options.update(callbacks=schedules)
        else:
            more.update(callbacks=schedules)
    elif case == "native":
        options.update(NATIVE[library])
    kind = CLASSIFIERS[library]
    small = {"max_depth": 3, "n_jobs": 1, "n_folds": 2, "learning_rate": 0.2, "verbosity": 0}
    small |= {"verbosity": -1, "min_child_samples": 10} if library == "lightgbm" else {}
    return kind(**{"n_estimators": ROUNDS, **small, **options}), (X, y), more


CASES = [
    "crossfit", "train", "several", "several, watched", "holdout, weights",
    "watched, early stopping", "stopping on constraints", "stopping on both",
    "samples, threshold", "threshold, watched",
    "training rows evaluated", "certified", "expected", "groups", "best",
    "ergodic", "randomized", "gap, weights", "several views, weights", "cbpr", "log_loss",
    "categories", "features by name", "other rows", "start", "schedule",
    "ended while measuring", "ended while training", "samples", "samples, schedule",
    "samples by a callback", "native",
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("case", CASES)
def test_resumed_is_the_uninterrupted_model(library, case, rows, path, interrupted):
    """Interrupted as the fold boosters grow, as they are done, and in the fit of the model."""

    def fit(checkpointed=True):
        model, data, more = make(library, case, rows)
        checkpoint = Checkpoint(path, seconds=0) if checkpointed else None
        return model.fit(*data, checkpoint=checkpoint, **more)

    calls, offer = [], CheckpointFile.offer

    def counted(self, make_state):
        calls.append(None)
        offer(self, make_state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointFile, "offer", counted)
        whole = fit()
    if not case.startswith("samples"):
        assert_same(whole, fit(checkpointed=False))
    for after in sorted({1, len(calls) // 2 + 2, len(calls)}):
        interrupted(fit, after)
        assert path.exists()
        assert_same(fit(), whole)
        assert not os.listdir(path.parent)


def test_sums_that_depend_on_the_path_are_restored(rows, conclusions):
    """Of several views, only decisions that change are moved: rounding remembers the others."""
    model, data, more = make("lightgbm", "several views, weights", rows)
    model.fit(*data, **more)
    held = conclusions[0].fit.evaluation_sets[0]
    margins = np.random.default_rng(0).normal(size=(6, 300))

    def decisions(rows, margins):
        for margin in margins:
            rows.lagrangian.at(margin).statistics()
        return rows.lagrangian._decisions

    whole, begun, resumed = (EvaluationSet(held.cells, held.compiled, "") for _ in range(3))
    expected = decisions(whole, margins)
    decisions(begun, margins[:4])
    resumed.restore(begun.state())
    np.testing.assert_array_equal(decisions(resumed, margins[4:]), expected)
    fresh = EvaluationSet(held.cells, held.compiled, "")
    assert (decisions(fresh, margins[4:]) != expected).any()


def test_early_stopping_stops_early(rows):
    """The case above is one where training stops before its last round."""
    for library in CLASSIFIERS:
        model, data, more = make(library, "watched, early stopping", rows)
        model.fit(*data, **more)
        rounds = len(next(iter(next(iter(evaluations_of(model)[0].values())).values())))
        assert rounds < 30


@BOTH
@pytest.mark.parametrize("which", ["second", "last"])
def test_interrupted_inside_a_further_pass(library, which, rows, path, interrupted, monkeypatch):
    """Boosters of the folds are grown several times: passes that have ended are not made again."""
    rules = {
        "xgboost": [gap(fpr(), by="group") <= 0.01, fnr() <= 0.1],
        "lightgbm": [gap(selection_rate(), by="group") <= 0.02, fnr() <= 0.2],
    }[library]
    offer, offered = CheckpointFile.offer, []

    def fit():
        model = CLASSIFIERS[library](
            constraints=rules, n_estimators=ROUNDS, n_jobs=1, max_depth=3,
            **({"verbose": -1} if library == "lightgbm" else {}),
        )  # fmt: skip
        return model.fit(
            rows["X"], rows["binary"], sensitive_features={"group": rows["group"]},
            checkpoint=Checkpoint(path, seconds=0),
        )  # fmt: skip

    def counted(self, make_state):
        offered.append(self)
        offer(self, make_state)

    monkeypatch.setattr(CheckpointFile, "offer", counted)
    whole = fit()
    in_all = len(offered)  # once after each round of each pass, and of the model but the last
    passes = in_all // ROUNDS
    assert passes >= 3
    monkeypatch.setattr(CheckpointFile, "offer", offer)
    after = ((2 if which == "second" else passes) - 1) * ROUNDS + 3
    interrupted(fit, after)
    offered.clear()
    monkeypatch.setattr(CheckpointFile, "offer", counted)
    resumed = fit()
    assert len(offered) == in_all - after
    assert_same(resumed, whole)
    assert resumed.feasibility_.cost == whole.feasibility_.cost
    assert not path.exists()


@BOTH
def test_interrupted_again_and_again(library, rows, path, interrupted):
    """Each time a few rounds further, from a file older than the interruption."""

    def fit():
        model, data, more = make(library, "samples", rows)
        return model.fit(*data, checkpoint=Checkpoint(path, seconds=0), **more)

    whole = fit()
    for _ in range(3):
        interrupted(fit, 3, write_every=2)
    assert_same(fit(), whole)


@BOTH
@pytest.mark.parametrize("case", ["samples", "samples, schedule", "samples by a callback"])
def test_samples_stay_samples(library, case, rows, path):
    """Renewed streams draw other rows in each round, and the model has the user's parameters."""
    model, data, more = make(library, case, rows)
    model.set_params(measure_on="train").fit(*data, checkpoint=path, **more)
    other, _, without = make(library, "schedule" if "schedule" in case else "train", rows)
    other.set_params(measure_on="train").fit(*data, **without)
    assert bytes_of(model) != bytes_of(other)
    if library == "lightgbm":
        given, _, _ = make(library, case, rows)
        given.set_params(measure_on="train").fit(*data, **more)
        parameters = bytes_of(given).partition(b"parameters:")[2]
        assert bytes_of(model).partition(b"parameters:")[2] == parameters
        assert model.booster_.params == given.booster_.params


@BOTH
@pytest.mark.parametrize("case", ["train", "crossfit", "samples"])
@pytest.mark.parametrize("source", [np.random.RandomState, np.random.default_rng])
def test_a_source_of_randomness_is_drawn_from_as_without(library, case, source, rows, path):
    left = []
    for checkpoint in (None, path):
        model, data, more = make(library, case, rows)
        model.set_params(random_state=source(0)).fit(*data, checkpoint=checkpoint, **more)
        left.append(model.random_state.random(5))
    np.testing.assert_array_equal(*left)


BAGS = {  # which of six rounds have the bag of the round before, and what changes besides
    "of each round": (1, [], [False] * 5),
    "of two rounds": (2, [], [True, False, True, False, True]),
    "of two rounds, other rates": (
        2, [lgb.reset_parameter(learning_rate=lambda r: 0.3 / (1 + r))],
        [True, False, True, False, True],
    ),
    "of two rounds, from the third on": (
        1, [lgb.reset_parameter(bagging_freq=lambda r: 1 if r < 2 else 2)],
        [False, False, True, False, True],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAGS)
def test_bags_of_lightgbm_are_drawn_when_it_would_draw_them(case, path):
    """The root of a tree counts the rows in its bag."""
    every, callbacks, expected = BAGS[case]
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 1)), rng.integers(2, size=4000)
    for more in ({}, {"checkpoint": path}):
        model = CLASSIFIERS["lightgbm"](
            constraints=[fnr() <= 0.9], n_estimators=6, subsample=0.5, subsample_freq=every,
            verbose=-1, measure_on="train", n_jobs=1, num_leaves=2,
        )  # fmt: skip
        model.fit(X, y, callbacks=callbacks, **more)
        trees = model.booster_.dump_model()["tree_info"]
        sizes = [tree["tree_structure"]["internal_count"] for tree in trees]
        assert [a == b for a, b in pairwise(sizes)] == expected
        assert max(sizes) < 2200


SCRIPT = """
    import os, signal, sys
    import numpy as np
    from gbm_constrained import Checkpoint, ConstrainedLGBMClassifier, ConstrainedXGBClassifier
    from gbm_constrained import fnr
    from gbm_constrained.training.checkpoint import CheckpointFile

    library, path, out, rounds, after = sys.argv[1:]
    offer, offered = CheckpointFile.offer, 0

    def deadly(self, make_state):
        global offered
        offered += 1
        offer(self, make_state)
        if offered == int(after):
            os.kill(os.getpid(), signal.SIGKILL)

    CheckpointFile.offer = deadly
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 6))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * rng.normal(size=2000) > 0.8).astype(int)
    kind = {"xgboost": ConstrainedXGBClassifier, "lightgbm": ConstrainedLGBMClassifier}[library]
    model = kind(
        constraints=[fnr() <= 0.1], n_estimators=int(rounds), n_jobs=1, subsample=0.8,
        verbosity=0 if library == "xgboost" else -1, **{"subsample_freq": 1} if library ==
        "lightgbm" else {},
    )
    more = {"verbose": False} if library == "xgboost" else {}
    model.fit(X, y, checkpoint=Checkpoint(path, seconds=0), **more)
    booster = model.get_booster() if library == "xgboost" else model.booster_
    booster.save_model(out)
"""


def start(library, path, out, rounds, after=0):
    """Start a fit in a process of its own, which kills itself after so many rounds if asked."""
    arguments = [library, str(path), str(out), str(rounds), str(after)]
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(SCRIPT), *arguments])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system knows no SIGKILL")
@BOTH
def test_killed_at_any_time(library, tmp_path):
    """Killed from outside at some moment, within a write or not; twice, then left alone."""
    path, out, rounds = tmp_path / "checkpoint", [tmp_path / f"{i}.json" for i in range(2)], 60
    assert start(library, path, out[0], rounds).wait(60) == 0
    for seconds in random.Random(0).sample([0.0, 0.05, 0.1, 0.2, 0.3], 2):
        process = start(library, path, out[1], rounds)
        found = path.stat().st_mtime_ns if path.exists() else None
        while process.poll() is None and (not path.exists() or path.stat().st_mtime_ns == found):
            pass_a_moment(process)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(seconds + 1e-3)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert start(library, path, out[1], rounds).wait(60) == 0
    assert out[0].read_bytes() == out[1].read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["0.json", "1.json"]


def pass_a_moment(process):
    try:
        process.wait(0.002)
    except subprocess.TimeoutExpired:
        return


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system knows no SIGKILL")
@BOTH
def test_killed_at_twenty_random_rounds(library, tmp_path):
    """A process killed at a random round of 80, and its fit resumed by another one."""
    rounds = 40  # of the fold boosters, and again as many of the model
    whole = tmp_path / "whole.json"
    assert start(library, tmp_path / "checkpoint", whole, rounds).wait(120) == 0
    for after in sorted(random.Random(1).sample(range(1, 2 * rounds - 1), 20)):
        path, out = tmp_path / f"checkpoint{after}", tmp_path / f"{after}.json"
        assert start(library, path, out, rounds, after).wait(120) == -signal.SIGKILL
        assert not out.exists()
        assert start(library, path, out, rounds).wait(120) == 0
        assert out.read_bytes() == whole.read_bytes()
        assert not path.exists()


# The file


FINGERPRINT = {"X": "sha256:1", "learning_rate": "0.1"}


def opened(path, fingerprint=FINGERPRINT, machine=None):
    return CheckpointFile(Checkpoint(path, seconds=0), fingerprint, machine)


def written(path, *states):
    file = opened(path)
    for state in states:
        file.offer(lambda state=state: state)
    return file


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False),
    st.text(max_size=4), st.binary(max_size=6),
    st.floats(width=32, allow_nan=False).map(np.float32),
    st.lists(st.floats(allow_nan=False), max_size=6).map(np.array),
    st.integers(0, 3).map(lambda n: np.asfortranarray(np.arange(2 * n, dtype="i2").reshape(2, n))),
)  # fmt: skip
STATES = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
        max_leaves=8,
    ),
)


def assert_equal(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for name in a:
            assert_equal(a[name], b[name])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.flags.f_contiguous == b.flags.f_contiguous
        np.testing.assert_array_equal(a, b)
        assert b.flags.writeable
    else:
        assert a == b


@settings(max_examples=60, deadline=None)
@given(state=STATES)
def test_states_are_read_as_written(state, tmp_path_factory):
    path = tmp_path_factory.mktemp("states") / "file"
    written(path, state)
    assert_equal(state, opened(path).state)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_torn_file_is_noticed_and_the_previous_one_used(data, tmp_path_factory):
    """Cut short anywhere, or with any bit changed."""
    path = tmp_path_factory.mktemp("torn") / "file"
    written(path, {"t": 1, "scores": np.arange(5.0)}, {"t": 2, "scores": np.arange(6.0)})
    whole = path.read_bytes()
    if data.draw(st.booleans()):
        torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        bit = data.draw(st.integers(0, 8 * len(whole) - 1))
        torn = bytearray(whole)
        torn[bit // 8] ^= 1 << bit % 8
    path.write_bytes(torn)
    with pytest.warns(CheckpointWarning, match="the previous one is used"):
        file = opened(path)
    assert file.state["t"] == 1
    file.offer(lambda: {"t": 3})  # and the torn one does not become the previous one
    assert file.previous.read_bytes() != bytes(torn)
    assert opened(path).state == {"t": 3}


def test_killed_between_two_renamings(path):
    file = written(path, {"t": 1}, {"t": 2})
    path.replace(file.previous)
    assert opened(path).state == {"t": 2}


def test_two_torn_files(path):
    file = written(path, {"t": 1}, {"t": 2})
    for each in (path, file.previous):
        each.write_bytes(each.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"cannot be resumed from.*bytes.*previous.*Delete"):
        opened(path)


def test_file_of_something_else_is_left_alone(path):
    path.write_text("my only data, and more than a header has: " + "1, 2, 3, " * 20)
    with pytest.raises(ValueError, match="is not a checkpoint"):
        opened(path)
    assert path.read_text().startswith("my only data")


def test_file_of_another_fit_is_refused(path):
    written(path, {"t": 1})
    with pytest.raises(ValueError, match=r"of another fit: learning_rate was 0\.1 and is 0\.2\. "):
        opened(path, {**FINGERPRINT, "learning_rate": "0.2"})
    with pytest.raises(ValueError, match="of another fit: X differs; y was not given"):
        opened(path, {**FINGERPRINT, "X": "sha256:2", "y": "sha256:1"})
    with pytest.raises(ValueError, match="X was given, and is not now"):
        opened(path, {"learning_rate": "0.1"})


def test_another_machine_is_a_warning(path):
    opened(path, machine={"the processor": "a"}).offer(lambda: {"t": 1})
    with pytest.warns(CheckpointWarning, match="the processor differs"):
        assert opened(path, machine={"the processor": "b"}).state == {"t": 1}


def test_two_fits_on_one_file(path):
    one, other = opened(path), opened(path)
    one.offer(lambda: {"t": 1})
    with pytest.raises(RuntimeError, match="by another fit"):
        other.offer(lambda: {"t": 2})
    other.finish()
    assert opened(path).state == {"t": 1}
    one.finish()
    assert not os.listdir(path.parent)


def test_writes_are_few(path, monkeypatch):
    """No more often than asked, and never for more than a twentieth of the time."""
    now = 0.0
    monkeypatch.setattr("gbm_constrained.training.checkpoint.time.monotonic", lambda: now)
    file = CheckpointFile(Checkpoint(path, seconds=5), FINGERPRINT)
    times = []

    def make():
        nonlocal now
        times.append(now)
        now += 1.0  # seconds that a write takes
        return {}

    for _ in range(100):
        now += 0.5
        file.offer(make)
    assert times[0] == 5.0
    assert np.diff(times).min() >= 21.0
    assert len(times) == 3


def test_full_disk_is_a_warning(path, monkeypatch):
    file = written(path, {"t": 1})

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(CheckpointWarning, match="No space left"):
        file.offer(lambda: {"t": 2})
    monkeypatch.undo()
    assert opened(path).state == {"t": 1}


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (Checkpoint, TypeError, "path or a Checkpoint"),
        (3, TypeError, "path or a Checkpoint, got 3"),
        ("no/such/folder/file", ValueError, "a folder that is not there"),
        (".", ValueError, "is a folder"),
    ],
)
@BOTH
def test_bad_paths(library, value, error, match, rows):
    model, data, more = make(library, "train", rows)
    with pytest.raises(error, match=match):
        model.fit(*data, checkpoint=value, **more)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "5", None])
def test_bad_intervals(seconds):
    with pytest.raises(ValueError, match="seconds of a checkpoint"):
        Checkpoint("file", seconds=seconds)


# Fits


CHANGES = {
    "X": lambda model, rows, more: rows["X"].__setitem__((5, 0), 9.0),
    "y": lambda model, rows, more: rows["binary"].__setitem__(5, 1 - rows["binary"][5]),
    "sample_weight": lambda model, rows, more: more.update(sample_weight=rows["weight"]),
    "groups": lambda model, rows, more: more.update(groups=np.arange(600)),
    "eval_set": lambda model, rows, more: more.update(
        eval_set=[(rows["X"][:50], rows["binary"][:50])]
    ),
    "learning_rate": lambda model, rows, more: model.set_params(learning_rate=0.21),
    "n_folds": lambda model, rows, more: model.set_params(n_folds=3),
    "n_jobs": lambda model, rows, more: model.set_params(n_jobs=2),
    "random_state": lambda model, rows, more: model.set_params(random_state=1),
    "constraints": lambda model, rows, more: model.set_params(constraints=[fnr() <= 0.11]),
}


@BOTH
@pytest.mark.parametrize("what", list(CHANGES))
def test_other_data_and_parameters_are_refused(library, what, rows, path, interrupted):
    own = {name: values.copy() for name, values in rows.items()}
    model, data, more = make(library, "crossfit", own)
    checkpoint = Checkpoint(path, seconds=0)
    interrupted(lambda: model.fit(*data, checkpoint=checkpoint, **more), 2)
    before = path.read_bytes()
    CHANGES[what](model, own, more)
    with pytest.raises(ValueError, match=rf"of another fit: (.*; )?{what} (was|differs)"):
        model.fit(*data, checkpoint=checkpoint, **more)
    assert path.read_bytes() == before


@BOTH
def test_other_groups_are_refused(library, rows, path, interrupted):
    model, data, more = make(library, "gap, weights", rows)
    interrupted(lambda: model.fit(*data, checkpoint=Checkpoint(path, seconds=0), **more), 2)
    more["sensitive_features"] = more["sensitive_features"].iloc[::-1].reset_index(drop=True)
    with pytest.raises(ValueError, match="rows of the constraints differs; sensitive_features"):
        model.fit(*data, checkpoint=path, **more)


@BOTH
def test_printing_may_change(library, rows, path, interrupted):
    model, data, more = make(library, "train", rows)
    whole = model.fit(*data, **more)
    again, _, _ = make(library, "train", rows)
    interrupted(lambda: again.fit(*data, checkpoint=Checkpoint(path, seconds=0), **more), 3)
    again.set_params(**{"verbosity": 1} if library == "xgboost" else {"verbose": -1})
    assert_same(again.fit(*data, checkpoint=path, **more), whole)


REFUSED = {
    "xgboost": [({"booster": "dart"}, "dart")],
    "lightgbm": [
        ({"boosting_type": "dart"}, "dart"),
        ({"boosting_type": "goss"}, "goss"),
        ({"data_sample_strategy": "goss"}, "goss"),
        ({"use_quantized_grad": True}, "stochastic_rounding"),
        ({"cegb_penalty_feature_lazy": [0.1] * 5}, "cegb_penalty_feature_lazy"),
        ({"cegb_penalty_feature_coupled": [0.1] * 5}, "cegb_penalty_feature_coupled"),
    ],
}


@pytest.mark.parametrize(
    ("library", "options", "match"),
    [(library, *case) for library, cases in REFUSED.items() for case in cases],
)
def test_what_cannot_be_restored_is_refused(library, options, match, rows, path):
    model, data, more = make(library, "train", rows)
    with pytest.raises(ValueError, match=rf"checkpoint= cannot resume.*{match}"):
        model.set_params(**options).fit(*data, checkpoint=path, **more)
    assert not path.exists()
    if options.get("boosting_type") != "dart" and options.get("booster") != "dart":
        model.set_params(measure_on="crossfit")
        with pytest.raises(ValueError, match=rf"checkpoint= cannot resume.*{match}"):
            model.fit(*data, checkpoint=path, **more)


@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
def test_what_a_callback_turns_on_and_cannot_be_restored_is_refused(measure_on, rows, path):
    model, data, more = make("lightgbm", "train", rows)
    more["callbacks"] = [lgb.reset_parameter(use_quantized_grad=lambda rounds: rounds > 1)]
    with pytest.raises(ValueError, match=r"checkpoint= cannot resume.*stochastic_rounding"):
        model.set_params(measure_on=measure_on).fit(*data, checkpoint=path, **more)


@BOTH
def test_continued_training_is_refused(library, rows, path):
    model, data, more = make(library, "train", rows)
    model.fit(*data, **more)
    name = "xgb_model" if library == "xgboost" else "init_model"
    with pytest.raises(ValueError, match=f"begin with no trees, and {name}="):
        model.fit(*data, checkpoint=path, **{name: model}, **more)


@BOTH
def test_without_constraints_there_is_no_checkpoint(library, rows, path):
    model, data, more = make(library, "train", rows)
    with pytest.raises(ValueError, match="there are none: give constraints"):
        model.set_params(constraints=[]).fit(*data, checkpoint=path, **more)


@BOTH
def test_file_is_removed_where_rules_cannot_be_met(library, rows, path):
    """The fit is done then, and to resume it would be of no use."""
    model, data, more = make(library, "crossfit", rows)
    model.set_params(constraints=[fnr() <= 0.01, fpr() <= 0.01], on_infeasible="raise")
    with pytest.raises(InfeasibleConstraintsError):
        model.fit(*data, checkpoint=Checkpoint(path, seconds=0), **more)
    assert not os.listdir(path.parent)


@BOTH
def test_nothing_is_left_on_the_estimator(library, rows, path, interrupted):
    """Nor on the booster, which can be pickled, copied and trained further."""
    model, data, more = make(library, "crossfit", rows)
    interrupted(lambda: model.fit(*data, checkpoint=Checkpoint(path, seconds=0), **more), 9)
    model.fit(*data, checkpoint=Checkpoint(path, seconds=0), **more)
    plain, _, _ = make(library, "crossfit", rows)
    plain.fit(*data, **more)
    assert set(vars(model)) == set(vars(plain))
    booster = model.get_booster() if library == "xgboost" else model.booster_
    other = plain.get_booster() if library == "xgboost" else plain.booster_
    assert set(vars(booster)) == set(vars(other))


def test_example_of_the_documentation(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "checkpoint.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(block, found)
    assert found["clf"].constraint_report_["held_out"].notna().all()
    assert not os.listdir(tmp_path)


# Fingerprints


def test_digest_tells_values_types_and_names():
    X = np.arange(6.0).reshape(3, 2)
    table = pd.DataFrame(X, columns=["a", "b"])
    category = pd.Series(pd.Categorical(["u", "v", "u"]))
    different = [
        X, X.astype(np.float32), X.view(np.int64), X.T, X.ravel(), X.reshape(2, 3), X + 1,
        table, table.rename(columns={"b": "c"}),
        sparse.csr_array(X), sparse.csc_array(X), X.tolist(), {"a": X}, {"b": X}, [X, X], None,
        category, category.cat.rename_categories(["v", "u"]), pd.Series(["u", "v", "u"]),
        np.array(["u", "v", None], dtype=object), np.array(["u", "v", "w"], dtype=object),
        np.random.RandomState(0), np.random.RandomState(1), np.random.default_rng(0), fnr, fpr,
    ]  # fmt: skip
    digests = [digest(value) for value in different]
    assert len(set(digests)) == len(digests)


def test_digest_does_not_mind_the_layout():
    X = np.arange(6.0).reshape(3, 2)
    assert digest(np.asfortranarray(X)) == digest(X)
    assert digest(np.repeat(X, 2, axis=1)[:, ::2]) == digest(X)
    y = np.array(["a", "b"] * 100, dtype=object)
    assert digest(y) == digest(np.array(["".join(["a"]), "".join(["b"])] * 100, dtype=object))
    assert digest(list(range(500))) == digest(np.arange(500))


def test_digest_of_times():
    days = np.arange("2020-01-01", "2020-01-05", dtype="datetime64[D]")
    later = days + np.timedelta64(1, "D")
    different = [
        days, later, days.astype("datetime64[s]"), days - days[0], days[::2],
        pd.Series(pd.Categorical(days)), pd.Series(pd.Categorical(later)),
    ]  # fmt: skip
    assert len({digest(value) for value in different}) == len(different)
    assert digest(np.repeat(days, 2)[::2]) == digest(days)


def test_labels_that_are_times(rows, path, interrupted):
    days = np.array(["2020-01-01", "2020-02-01"], dtype="datetime64[D]")
    model, (X, y), more = make("lightgbm", "train", rows)
    whole = bytes_of(model.fit(X, days[y], **more))
    interrupted(lambda: model.fit(X, days[y], checkpoint=Checkpoint(path, seconds=0), **more), 2)
    assert bytes_of(model.fit(X, days[y], checkpoint=path, **more)) == whole


@pytest.mark.parametrize("package", ["polars", "pyarrow"])
def test_digest_of_other_tables(package):
    pytest.importorskip(package, reason=f"{package} is an optional package")
    module = __import__(package)
    kind = module.DataFrame if package == "polars" else module.table
    one, same, other = ({"a": [1, 2], "b": ["u", v]} for v in "vvw")
    assert digest(kind(one)) == digest(kind(same))
    assert digest(kind(one)) != digest(kind(other))
