"""Interrupted fits give the models of uninterrupted ones, bit by bit."""

import functools
import itertools
import os
import subprocess
import sys
import textwrap

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, alternate, interrupt, quiet

import gbm_constrained as gc

N, ROUNDS, FOLDS = 600, 6, 2
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 5))
SCORE = X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * RNG.normal(size=N)
X[RNG.random(X.shape) < 0.05] = np.nan
Y = (SCORE > 0.6).astype(int)
GROUP = pd.Series(np.where(np.nan_to_num(X[:, 3]) + RNG.normal(size=N) > 0, "a", "b"), name="g")
WEIGHT = RNG.uniform(0.5, 2.0, size=N)


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


def rate(rounds):
    return 0.3 / (1 + rounds)


OWN = {  # what each library calls otherwise, or has alone
    "xgboost": {
        "small": {"verbosity": 0},
        "samples": {"subsample": 0.6, "colsample_bytree": 0.8, "colsample_bynode": 0.8},
        "native": {"num_parallel_tree": 2, "grow_policy": "lossguide", "max_leaves": 5},
        "categories": {"enable_categorical": True},
        "schedule": {"callbacks": [xgb.callback.LearningRateScheduler(rate)]},
        "stopping": {"early_stopping_rounds": 2, "eval_metric": "auc"},
        "several passes": {
            "constraints": [gc.gap(gc.fpr(), by="g") <= 0.01, gc.fnr() <= 0.1],
            "measure_on": "holdout",
        },
    },
    "lightgbm": {
        "small": {"verbose": -1, "min_child_samples": 10},
        "samples": {"subsample": 0.6, "subsample_freq": 2, "colsample_bytree": 0.8,
                    "feature_fraction_bynode": 0.8, "extra_trees": True},
        "native": {"boosting_type": "goss", "linear_tree": True, "path_smooth": 0.5},
        "stopping": {"early_stopping_round": 2, "metric": "auc"},
        "several passes": {
            "constraints": [gc.gap(gc.selection_rate(), by="g") <= 0.02, gc.fnr() <= 0.2],
            "measure_on": "holdout",
        },
    },
}  # fmt: skip
CASES = {  # parameters, and arguments of fit
    "crossfit": ({}, {}),
    "several classes": (
        {"constraints": [gc.class_error(2) <= 0.1]}, {"y": np.digitize(SCORE, [-0.8, 0.6])}
    ),
    "holdout": ({"measure_on": gc.Holdout(0.3)}, {"sample_weight": WEIGHT}),
    "threshold": ({"solver": "threshold"}, {}),
    "certified": ({"guarantee": "high_probability", "constraints": [gc.fpr() <= 0.3]}, {}),
    "in the mean": ({"guarantee": "expected"}, {}),
    "best": ({"iterate": "best"}, {}),
    "randomized": ({"iterate": "randomized"}, {}),
    "convexified": (
        {"solver": "cbpr", "constraints": [gc.gap(gc.log_loss(), by="g") <= 0.01]},
        {"sensitive_features": GROUP},
    ),
    "other rows": (
        {"constraints": [gc.fnr() <= 0.1, gc.selection_rate(on=gc.dataset("d")) <= 0.2]},
        {"datasets": {"d": X[:100]}},
    ),
    "samples": ({}, {}),
    "native": ({}, {}),
    "categories": ({}, {"X": pd.DataFrame(X, columns=list("abcde")).assign(
        f=GROUP.astype("category"))}),
    "schedule": ({}, {}),
    "stopping": (  # soon, for the labels are of other rows
        {"learning_rate": 0.9, "n_estimators": 20},
        {"eval_set": [(X[:200], Y[300:500])]},
    ),
    "several passes": (
        {"subsample": 0.8, "colsample_bytree": 0.8},
        {"sensitive_features": GROUP, "sample_weight": WEIGHT},
    ),
}  # fmt: skip


def make(library, case):
    """Make the classifier and the arguments of ``fit`` of a case."""
    options, given = CASES[case]
    small = {"max_depth": 3, "n_jobs": 1, "measure_on": gc.CrossFit(FOLDS), "learning_rate": 0.2}
    small |= {"n_estimators": ROUNDS, "constraints": [gc.fnr() <= 0.1], **OWN[library]["small"]}
    if library == "lightgbm":
        small |= {"subsample_freq": 1}
        if case == "schedule":
            given = {"callbacks": [lgb.reset_parameter(learning_rate=rate)]}
    model = CLASSIFIERS[library](**small | options | OWN[library].get(case, {}))
    return model, {"X": X, "y": Y, **quiet(library), **given}


def fit(library, case, **others):
    model, given = make(library, case)
    return model.fit(**given | others)


def interrupt_at(n, library, case, path, callbacks=()):
    """Interrupt a fit in the outer iteration of a number, of all passes together."""
    calls = itertools.count()
    resumable = functools.partial(fit, library, case, checkpoint=path)
    interrupt(resumable, lambda state: next(calls) == n, callbacks)


def bytes_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return bytes(model.get_booster().save_raw("ubj"))
    return model.booster_.model_to_string(num_iteration=-1).encode()


def assert_same(one, other):
    assert bytes_of(one) == bytes_of(other)
    for name in ("evals_result_", "best_iteration_", "best_score_", "best_iteration"):
        assert getattr(one, name, None) == getattr(other, name, None)
    tables = [
        (model.history_.drop(columns="seconds"), model.constraint_report_,
         getattr(model, "prefixes_", pd.DataFrame()))
        for model in (one, other)
    ]  # fmt: skip
    for a, b in zip(*tables, strict=True):
        pd.testing.assert_frame_equal(a, b, check_exact=True)
    np.testing.assert_array_equal(one.shift_, other.shift_)
    assert one.feasibility_.cost == other.feasibility_.cost


@alternate("case", CASES)
def test_resumed_is_the_uninterrupted_model(library, case, path, grown):
    """Interrupted after the first and the last pass: saved passes are not grown again."""
    seen, again = [], []

    def note(states):
        def callback(state):
            values = state.record.multipliers.tolist()
            states.append((state.phase, state.iteration, state.total, values, len(grown)))

        return [callback]

    whole = fit(library, case, constraint_callbacks=note(seen))
    n_rounds = len(grown)
    starts = [i for i, state in enumerate(seen) if state[1] == 0]
    assert len(starts) >= (3 if case == "several passes" else 2)
    for i in {starts[1], starts[-1]}:
        interrupt_at(i, library, case, path)
        assert path.exists()
        grown.clear()
        again.clear()
        resumed = fit(library, case, checkpoint=path, constraint_callbacks=note(again))
        assert len(grown) == n_rounds - (seen[i][-1] - seen[0][-1])
        assert [state[:-1] for state in again] == [state[:-1] for state in seen]
        assert_same(resumed, whole)
        assert not os.listdir(path.parent)


@EITHER
def test_interrupted_again_and_again(library, path, grown):
    """Each time in the pass after the one that the file ends with."""
    seen = []
    whole = fit(library, "several passes", constraint_callbacks=[seen.append])
    n_rounds = len(grown)
    starts = [i for i, state in enumerate(seen) if state.iteration == 0]
    grown.clear()
    for i in starts[1:]:
        interrupt_at(i + 1, library, "several passes", path)
    assert_same(fit(library, "several passes", checkpoint=path), whole)
    assert len(grown) < n_rounds + 3 * len(starts) * FOLDS


@EITHER
def test_what_ended_one_pass_did_not_end_the_passes_before(library, path):
    seen = []

    def end(state):
        seen.append(state)
        return state.total > 2 * ROUNDS and state.rounds >= 2  # That of the second pass.

    whole = fit(library, "several passes", constraint_callbacks=[end])
    starts = [i for i, state in enumerate(seen) if state.iteration == 0]
    assert len(starts) >= 3
    interrupt_at(starts[-1], library, "several passes", path, [end])
    resumed = fit(library, "several passes", checkpoint=path, constraint_callbacks=[end])
    assert_same(resumed, whole)
    assert resumed.stopping_message_ == whole.stopping_message_ is not None


@EITHER
@pytest.mark.parametrize("source", [np.random.RandomState, np.random.default_rng])
def test_a_source_of_randomness_is_drawn_from_as_without(library, source, path):
    left = []
    for checkpoint in (None, path):
        model, given = make(library, "samples")
        model.set_params(random_state=source(0)).fit(checkpoint=checkpoint, **given)
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
@pytest.mark.parametrize("n_kills", [1, pytest.param(20, marks=pytest.mark.slow)])
@EITHER
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
