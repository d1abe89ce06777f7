"""Progress and callbacks: what a fit tells while it runs, and that it changes nothing."""

import copy
import sys
from types import SimpleNamespace

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, margins_of, quiet

from gbm_constrained import (
    ConstrainedLogisticRegression,
    fnr,
    fpr,
    gap,
    label,
    log_loss,
    precision,
)
from gbm_constrained.training.callbacks import ConstraintState
from gbm_constrained.training.progress import Progress

ROUNDS, R, FOLDS = 10, 2, 3
WHERE = pytest.mark.parametrize("measure_on", ["train", "holdout", "crossfit", "watch"])


def make(library, rules, **options):
    if library == "linear":
        return ConstrainedLogisticRegression(constraints=rules, n_iterations=40, **options)
    size = {"xgboost": {"max_depth": 3}, "lightgbm": {"num_leaves": 7, "verbose": -1}}[library]
    given = {"n_estimators": ROUNDS, "n_jobs": 1, "n_folds": FOLDS, **size, **options}
    return CLASSIFIERS[library](constraints=rules, **given)


def split(data):
    X, y = data
    return X[:1000], y[:1000], X[1000:], y[1000:]


def fit_at(library, data, rules, measure_on, **given):
    """Fit with the rules measured somewhere, and the last rows held out."""
    X, y, X_held, y_held = split(data)
    where = "holdout" if measure_on == "watch" else measure_on
    options = {"holdout_fraction": 0.3} if measure_on == "holdout" else {}
    own = given.pop("options", {})
    model = make(library, rules, measure_on=where, **options, **own)
    arguments = {**quiet(library), "eval_set": [(X_held, y_held)], **given}
    return model.fit(X, y, **arguments)


# --- constraint callbacks -----------------------------------------------------------------------


@BOTH
@WHERE
def test_callbacks_see_the_iterations_of_every_booster(library, measure_on, binary, conclusions):
    states = []
    rules = [fnr() <= 0.1, fpr() <= 0.2]
    model = fit_at(
        library, binary, rules, measure_on, constraint_callbacks=[states.append],
        options={"solver": "abpp"},
    )  # fmt: skip
    n_scouts = {"crossfit": FOLDS, "holdout": 1}.get(measure_on, 0)
    measuring = [s for s in states if s.phase == "measuring"]
    training = [s for s in states if s.phase == "training"]
    assert states == measuring + training
    assert [s.rounds for s in measuring] == (list(range(0, ROUNDS, R)) if n_scouts else [])
    last = [ROUNDS] if measure_on == "watch" else []
    assert [s.rounds for s in training] == [*range(0, ROUNDS, R), *last]
    assert [s.iteration for s in training] == list(range(len(training)))
    assert {s.rows for s in measuring} <= {{"crossfit": "out of fold"}.get(measure_on, "holdout")}
    on = "eval_set[0], watched" if measure_on == "watch" else "training rows"
    assert {s.rows for s in training} == {on}
    assert {s.n_rounds for s in states} == {ROUNDS}
    assert {s.total for s in states} == {(n_scouts + 1) * ROUNDS}
    assert [s.done for s in measuring] == [n_scouts * s.rounds for s in measuring]
    assert [s.done for s in training] == [n_scouts * ROUNDS + s.rounds for s in training]
    seconds = [s.seconds for s in states]
    assert seconds == sorted(seconds)
    # What was seen last of the multipliers is what the model has, and the values are the history.
    (fit,) = (found.fit for found in conclusions)
    path = [r.multipliers for r in fit.solver.history]
    followed = measuring or training[: len(path)]
    for state, multipliers in zip(followed, path, strict=True):
        np.testing.assert_array_equal(state.multipliers, multipliers)
    if measure_on != "watch":
        columns = [f"value[{rule}]" for rule in rules]
        before = model.history_[columns].to_numpy()[:-1]  # of the model that is returned
        assert len(before) > 2
        np.testing.assert_array_equal([s.values for s in training[: len(before)]], before)


@BOTH
def test_callbacks_change_nothing(library, binary):
    told = fit_at(library, binary, [fnr() <= 0.1], "crossfit", constraint_callbacks=[print])
    plain = fit_at(library, binary, [fnr() <= 0.1], "crossfit")
    X = binary[0]
    np.testing.assert_array_equal(margins_of(told, X), margins_of(plain, X))


def test_what_a_state_says(binary):
    X, y = binary
    group = np.where(X[:, 3] > 0.2, "a", "b")
    states = []
    rules = [fnr() <= 0.1, gap(fpr(), by="g") <= 0.02, precision() >= 0.9]
    make("xgboost", rules, measure_on="train").fit(
        X, y, sensitive_features={"g": group}, constraint_callbacks=[states.append]
    )
    model = make("xgboost", rules, measure_on="train", n_estimators=4).fit(
        X, y, sensitive_features={"g": group}
    )
    state = states[2]  # after four rounds
    assert isinstance(state, ConstraintState)
    assert state.rounds == 4
    predicted = model.predict(X) if not model.shift_.any() else None
    assert predicted is not None
    names = ["fnr <= 0.1", "gap(fpr, by='g') <= 0.02", "precision >= 0.9"]
    assert [str(c) for c in state.constraints] == names
    negative, positive = y == 0, y == 1
    by_group = [predicted[negative & (group == g)].mean() for g in ("a", "b")]
    expected = [
        1.0 - predicted[positive].mean(),
        abs(by_group[0] - by_group[1]),
        y[predicted == 1].mean(),
    ]
    np.testing.assert_allclose(state.values, expected, atol=1e-12)
    assert list(state.values.index) == list(state.bounds.index) == names
    np.testing.assert_allclose(state.bounds, [0.1, 0.02, 0.9])
    beyond = [expected[0] - 0.1, expected[1] - 0.02, 0.9 - expected[2]]
    np.testing.assert_allclose(state.violations, beyond, atol=1e-12)
    rates = state.rates
    np.testing.assert_allclose(rates[["fpr[g=a]", "fpr[g=b]"]], by_group, atol=1e-12)
    assert rates.size == 5  # precision has two: its numerator and its denominator
    assert list(state.multipliers.index) == list(model.multipliers_.index)
    assert state.error == pytest.approx((predicted != y).mean())
    p = model.predict_proba(X)[:, 1]
    assert state.objective == pytest.approx(-np.log(np.where(y == 1, p, 1 - p)).mean(), rel=1e-5)
    with pytest.raises(AttributeError):
        state.rounds = 3


STOPS = [("train", "training", 4), ("crossfit", "measuring", 2), ("crossfit", "training", 4),
         ("holdout", "measuring", 0), ("watch", "training", 4)]  # fmt: skip


@BOTH
@pytest.mark.parametrize(("measure_on", "phase", "rounds"), STOPS)
def test_true_ends_training_with_the_iteration(library, measure_on, phase, rounds, binary):
    """The model is that of as many rounds asked for in the first place."""
    states = []

    def stop(state):
        return state.phase == phase and state.rounds >= rounds

    rules = [fnr() <= 0.1]
    callbacks = [stop, states.append]
    stopped = fit_at(library, binary, rules, measure_on, constraint_callbacks=callbacks)
    # Watched rows are measured at both ends of an iteration, all others where one begins.
    assert states[-1].rounds == (rounds + R if measure_on == "watch" else rounds)
    booster = stopped.get_booster() if library == "xgboost" else stopped.booster_
    count = booster.num_boosted_rounds if library == "xgboost" else booster.current_iteration
    assert count() == rounds + R
    assert stopped.history_["rounds"].iloc[-1] == rounds + R
    assert stopped.constraint_report_["held_out"].notna().all()
    if phase == "training" and measure_on == "crossfit":
        return  # the fold boosters had more rounds, and thresholds more prefixes to choose from
    short = fit_at(library, binary, rules, measure_on, options={"n_estimators": rounds + R})
    X = binary[0]
    np.testing.assert_array_equal(margins_of(stopped, X), margins_of(short, X))
    np.testing.assert_array_equal(stopped.predict(X), short.predict(X))


@BOTH
@pytest.mark.parametrize("answer", [None, 0, 1, "yes", np.float64(1.0), False, np.False_, [True]])
def test_only_true_ends_training(library, answer, binary):
    model = fit_at(
        library, binary, [fnr() <= 0.2], "train", constraint_callbacks=[lambda state: answer]
    )
    assert model.history_["rounds"].iloc[-1] == ROUNDS


@BOTH
def test_stopping_with_another_iterate(library, binary):
    options = {"iterate": "best"}
    stopped, short = (
        fit_at(library, binary, [fnr() <= 0.1], "train", options={**options, **extra}, **given)
        for extra, given in (
            ({}, {"constraint_callbacks": [lambda state: state.rounds == 4]}),
            ({"n_estimators": 6}, {}),
        )
    )
    X = binary[0]
    np.testing.assert_allclose(margins_of(stopped, X), margins_of(short, X), atol=1e-6)


@BOTH
def test_a_callback_that_fails_ends_the_fit_with_its_error(library, binary):
    def fail(state):
        raise KeyError("mine")

    for measure_on in ("train", "crossfit"):
        with pytest.raises(KeyError, match="mine"):
            fit_at(library, binary, [fnr() <= 0.1], measure_on, constraint_callbacks=[fail])
    fit_at(library, binary, [fnr() <= 0.1], "train")


@pytest.mark.parametrize("library", [*CLASSIFIERS, "linear"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (print, "must be a list of functions"),
        (3, "must be a list of functions"),
        ([3], "holds 3, which is not a function"),
        ([xgb.callback.EvaluationMonitor()], "own callbacks belong into callbacks="),
        ([ConstraintState], "which is not a function"),
    ],
)
def test_callbacks_that_are_none(library, given, message, binary):
    with pytest.raises(TypeError, match=message):
        make(library, [fnr() <= 0.1]).fit(*binary, constraint_callbacks=given)


@BOTH
def test_no_constraint_no_call(library, binary):
    model = make(library, []).fit(*binary, constraint_callbacks=[pytest.fail])
    assert not hasattr(model, "history_")


def test_linear_learner_tells_and_stops(binary):
    X, y = binary
    rules = [log_loss(on=label(1)) <= 0.7]
    states = []
    whole = make("linear", rules).fit(X, y, constraint_callbacks=[states.append])
    assert len(states) == whole.n_iter_[0] > 3
    assert [s.rounds for s in states] == list(range(len(states)))
    assert {(s.phase, s.rows, s.total) for s in states} == {("training", "training rows", 40)}
    column = f"value[{rules[0]}]"
    np.testing.assert_array_equal([s.values.iloc[0] for s in states], whole.history_[column][:-1])
    stopped = make("linear", rules).fit(X, y, constraint_callbacks=[lambda s: s.iteration == 2])
    assert stopped.n_iter_ == [3]
    short = make("linear", rules).set_params(n_iterations=3)
    with pytest.warns(UserWarning, match="n_iterations=3"):
        short.fit(X, y)
    np.testing.assert_array_equal(stopped.coef_, short.coef_)


# --- the parents' own callbacks -----------------------------------------------------------------


class Log(xgb.callback.TrainingCallback):
    """Everything that XGBoost calls."""

    def __init__(self, stop_at=None):
        super().__init__()
        self.calls, self.stop_at = [], stop_at

    def before_training(self, model):
        self.calls.append(("before", model.num_boosted_rounds()))
        return model

    def before_iteration(self, model, epoch, evals_log):
        self.calls.append(("begin", epoch))
        return False

    def after_iteration(self, model, epoch, evals_log):
        self.calls.append(("end", epoch, copy.deepcopy(evals_log)))
        return epoch == self.stop_at

    def after_training(self, model):
        self.calls.append(("after", model.num_boosted_rounds()))
        return model


@WHERE
def test_xgboost_callbacks_are_called_as_by_the_parent(measure_on, binary):
    """The fold boosters are no business of theirs, and nothing is called twice."""
    log, own = Log(), xgb.callback.EvaluationMonitor(period=4)
    options = {"callbacks": [log, own], "eval_metric": ["logloss", "auc"]}
    model = fit_at("xgboost", binary, [fnr() <= 0.1], measure_on, options=options)
    assert log.calls[0] == ("before", 0)
    assert log.calls[-1] == ("after", ROUNDS)
    assert [c[:2] for c in log.calls[1:-1]] == [
        (name, epoch) for epoch in range(ROUNDS) for name in ("begin", "end")
    ]
    seen = log.calls[-2][2]["validation_0"]
    recorded = model.evals_result()["validation_0"]
    assert list(seen) == list(recorded) == ["logloss", "auc"]
    assert [len(values) for values in seen.values()] == [ROUNDS, ROUNDS]
    assert model.callbacks == [log, own]


def test_xgboost_callback_may_stop_training(binary):
    model = fit_at("xgboost", binary, [fnr() <= 0.1], "crossfit", options={"callbacks": [Log(5)]})
    assert model.get_booster().num_boosted_rounds() == 6
    assert model.history_["rounds"].iloc[-1] == 6
    assert model.constraint_report_["held_out"].notna().all()


def test_xgboost_monitor_prints_what_the_parent_prints(binary, capfd):
    X, y, X_held, y_held = split(binary)
    rules = [fnr() <= 1.0]  # vacuous: the same model as the parent's
    for verbose in (True, 3):
        printed = []
        for model in (
            make("xgboost", rules),
            xgb.XGBClassifier(n_estimators=ROUNDS, max_depth=3, n_jobs=1),
        ):
            model.fit(X, y, eval_set=[(X_held, y_held)], verbose=verbose)
            printed.append(capfd.readouterr().out)
        assert printed[0] == printed[1]
        assert len(printed[0].splitlines()) == (ROUNDS if verbose is True else 4)


def test_lightgbm_says_once_what_it_says_while_it_trains(binary, capfd):
    """Boosters of the folds are not heard."""
    schedule = lgb.reset_parameter(learning_rate=lambda i: 0.1 / (i + 1))
    for verbose in (1, 2):
        told = []
        for measure_on in ("train", "crossfit"):
            given = {"verbose": verbose, "force_col_wise": True}  # not by what takes less time
            model = make("lightgbm", [fnr() <= 1.0], measure_on=measure_on, **given)
            model.fit(*binary, callbacks=[schedule])
            told.append(capfd.readouterr().out)
        assert told[0] == told[1]
        assert told[0].count("Total Bins") == 1


@pytest.mark.parametrize("form", ["list", "function"])
def test_learning_rate_schedules_reach_the_model(form, binary):
    """With a rate that falls to nothing, the later rounds of the model add nothing."""
    X = binary[0]
    rates = [0.3] * 4 + [1e-12] * (ROUNDS - 4)
    given = rates if form == "list" else lambda epoch: rates[epoch]
    models = {
        "xgboost": {"options": {"callbacks": [xgb.callback.LearningRateScheduler(given)]}},
        "lightgbm": {"callbacks": [lgb.reset_parameter(learning_rate=given)]},
    }
    for library, arguments in models.items():
        model = fit_at(library, binary, [fnr() <= 0.1], "train", **arguments)
        # XGBoost's scheduler sets the rate after a round, for the next one.
        before, at, end = (margins_of(model, X, rounds) for rounds in (3, 5, ROUNDS))
        assert abs(at - before).max() > 0.05
        np.testing.assert_allclose(end, at, atol=1e-6)


@WHERE
def test_lightgbm_callbacks_are_called_in_order(measure_on, binary):
    calls = []

    def callback(name, **attributes):
        def call(env):
            calls.append((name, env.iteration))

        vars(call).update(attributes)
        return call

    record = {}
    callbacks = [
        callback("late", order=50),
        callback("first", order=1, before_iteration=False),
        lgb.record_evaluation(record),
        callback("plain"),
    ]
    model = fit_at("lightgbm", binary, [fnr() <= 0.1], measure_on, callbacks=callbacks,
                   eval_metric=["auc", "binary_error"])  # fmt: skip
    names = ["plain", "first", "late"]  # LightGBM sorts those without an order first
    assert calls == [(name, i) for i in range(ROUNDS) for name in names]
    assert record == model.evals_result_
    assert set(record["valid_0"]) == {"auc", "binary_error", "binary_logloss"}
    assert {len(values) for values in record["valid_0"].values()} == {ROUNDS}


def test_lightgbm_callbacks_before_an_iteration_are_schedules(binary):
    """They may change parameters, and so they are called for the fold boosters as well."""
    calls = []

    def before(env):
        calls.append((env.iteration, env.begin_iteration, env.end_iteration))
        assert env.evaluation_result_list is None or env.evaluation_result_list == []
        env.model.reset_parameter({"learning_rate": 0.05})

    before.before_iteration = True
    fit_at("lightgbm", binary, [fnr() <= 0.1], "crossfit", callbacks=[before])
    assert len(calls) == (FOLDS + 1) * ROUNDS
    assert calls[-ROUNDS:] == [(i, 0, ROUNDS) for i in range(ROUNDS)]
    assert sorted(calls) == sorted(calls[-ROUNDS:] * (FOLDS + 1))


def test_callbacks_see_the_last_round_of_a_stopped_fit(binary):
    record = {}
    fit_at(
        "lightgbm", binary, [fnr() <= 0.1], "train", callbacks=[lgb.record_evaluation(record)],
        constraint_callbacks=[lambda state: state.rounds == 4],
    )  # fmt: skip
    assert len(record["valid_0"]["binary_logloss"]) == 6
    log = Log()
    fit_at(
        "xgboost", binary, [fnr() <= 0.1], "train", options={"callbacks": [log]},
        constraint_callbacks=[lambda state: state.rounds == 4],
    )  # fmt: skip
    seen = [call[-1] for call in log.calls if call[0] == "end"]
    assert len(seen) == len(seen[-1]["validation_0"]["logloss"]) == 6


def test_lightgbm_logs_what_the_parent_logs(binary, capsys):
    X, y, X_held, y_held = split(binary)
    printed = []
    for model in (make("lightgbm", [fnr() <= 1.0]), lgb.LGBMClassifier(
        n_estimators=ROUNDS, num_leaves=7, n_jobs=1, verbose=-1
    )):  # fmt: skip
        model.fit(X, y, eval_set=[(X_held, y_held)], callbacks=[lgb.log_evaluation(2)])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) == ROUNDS // 2


# --- progress -----------------------------------------------------------------------------------


@pytest.fixture
def bars(monkeypatch):
    """Every bar that tqdm makes, with its steps; the first one appears at once."""
    tqdm_auto = pytest.importorskip("tqdm.auto", reason="tqdm is the extra 'progress'")
    made = []

    class Bar(tqdm_auto.tqdm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.steps, self.notes, self.closed = [self.n], [], False
            made.append(self)

        def update(self, n=1):
            super().update(n)
            self.steps.append(self.n)

        def set_postfix_str(self, s="", refresh=True):
            super().set_postfix_str(s, refresh)
            self.notes.append(s)

        def close(self):
            super().close()
            self.closed = True

    monkeypatch.setattr(tqdm_auto, "tqdm", Bar)
    monkeypatch.setattr(Progress, "DELAY", 0.0)
    on_a_terminal(monkeypatch)
    return made


def on_a_terminal(monkeypatch):
    """Let the standard error stream be one, though it is captured."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


LOUD = {"xgboost": {}, "lightgbm": {"verbose": 1}, "linear": {"verbose": 1}}
EVERYONE = pytest.mark.parametrize("library", list(LOUD))


@BOTH
@pytest.mark.parametrize(("measure_on", "boosters"), [("train", 1), ("crossfit", FOLDS + 1)])
def test_one_bar_counts_the_rounds_of_all_boosters(library, measure_on, boosters, binary, bars):
    X, y = binary
    options = {**LOUD[library], "measure_on": measure_on}
    make(library, [fpr() <= 0.9, fnr() <= 0.9], **options).fit(X, y)
    assert {bar.total for bar in bars} == {boosters * ROUNDS}
    assert all(bar.closed and not bar.leave for bar in bars)
    steps = [step for bar in bars for step in bar.steps]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] == boosters * ROUNDS - R
    # After the first phase the same bar goes on where it was.
    assert len(bars) == (1 if measure_on == "train" else 2)
    assert bars[-1].steps[0] == (boosters - 1) * ROUNDS
    notes = [note for bar in bars for note in bar.notes]
    assert "training rows: objective 0.6" in notes[0 if measure_on == "train" else ROUNDS // R]
    assert notes[0].startswith("training rows" if measure_on == "train" else "out of fold")
    assert notes[0].endswith("worst violation 0.1000 (fnr <= 0.9)")  # nobody is positive yet
    assert notes[-1].endswith("all rules met")


def test_bar_shows_the_time_that_is_left(binary, bars):
    make("xgboost", [fnr() <= 0.1], measure_on="train").fit(*binary)
    (bar,) = bars
    shown = {**bar.format_dict, "n": 5, "elapsed": 10.0, "rate": None, "initial": bar.initial}
    assert "00:10<00:10" in bar.format_meter(**shown)


def test_bar_of_the_linear_learner(binary, bars):
    model = make("linear", [log_loss(on=label(1)) <= 0.7], verbose=1).fit(*binary)
    (bar,) = bars
    assert bar.total == 40
    assert bar.unit == "iteration"
    assert bar.steps[-1] == model.n_iter_[0] - 1
    assert bar.closed


@EVERYONE
@pytest.mark.parametrize("why", ["no tqdm", "no terminal"])
def test_without_a_bar_there_are_lines(library, why, binary, monkeypatch, capfd):
    if why == "no tqdm":
        on_a_terminal(monkeypatch)
        monkeypatch.setitem(sys.modules, "tqdm", None)
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(Progress, "DELAY", 0.0)
    rules = [log_loss(on=label(1)) <= 0.7] if library == "linear" else [fnr() <= 0.1]
    options = {} if library == "linear" else {"solver": "threshold"}
    make(library, rules, **LOUD[library], **options).fit(*binary)
    lines = [line for line in capfd.readouterr().err.splitlines() if "left]" in line]
    assert " ? left] " in lines[0]  # of no round so far
    if library == "linear":
        assert lines[1].startswith("[1/40 iterations, 0:")
        assert "worst violation" in lines[1]
    else:
        assert len(lines) == 2 * ROUNDS // R
        assert lines[1].startswith(f"[{R * FOLDS}/{(FOLDS + 1) * ROUNDS} rounds, 0:0")
        assert "left] out of fold, without multipliers: objective 0." in lines[1]
        assert "left] training rows: objective 0." in lines[-1]


@EVERYONE
def test_short_and_quiet_fits_show_nothing(library, binary, bars, monkeypatch, capfd):
    silent = {"xgboost": {"verbose": False}}.get(library, {})
    options = {"lightgbm": {"verbose": 0}}.get(library, {})
    rules = [log_loss(on=label(1)) <= 0.7] if library == "linear" else [fnr() <= 0.1]
    make(library, rules, **options).fit(*binary, **silent)
    if library == "xgboost":
        make(library, rules, verbosity=0).fit(*binary)
    monkeypatch.setattr(Progress, "DELAY", 100.0)
    make(library, rules, **LOUD[library]).fit(*binary)
    assert bars == []
    assert "left]" not in capfd.readouterr().err


@BOTH
def test_beside_lines_of_the_library_progress_comes_in_lines(library, binary, bars, capfd):
    X, y, X_held, y_held = split(binary)
    given = {"callbacks": [lgb.log_evaluation(5)]} if library == "lightgbm" else {"verbose": 5}
    make(library, [fnr() <= 0.1], **LOUD[library]).fit(X, y, eval_set=[(X_held, y_held)], **given)
    said = capfd.readouterr()
    assert bars == []
    assert "rounds, 0:0" in said.err
    assert "logloss" in said.out


def test_a_notebook_has_bars(binary, bars, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    make("xgboost", [fnr() <= 0.1]).fit(*binary)
    assert bars == []
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    make("xgboost", [fnr() <= 0.1]).fit(*binary)
    assert bars


@EVERYONE
def test_a_fit_that_fails_takes_its_bar_away(library, binary, bars):
    def fail(state):
        if state.rounds >= 4:
            raise KeyError("mine")

    rules = [log_loss(on=label(1)) <= 0.7] if library == "linear" else [fnr() <= 0.1]
    model = make(library, rules, **LOUD[library])
    with pytest.raises(KeyError, match="mine"):
        model.fit(*binary, constraint_callbacks=[fail])
    assert bars
    assert all(bar.closed for bar in bars)


def test_progress_of_a_rule_that_is_undefined(binary, bars):
    """Where nobody is selected, there is no precision."""
    make("xgboost", [precision() >= 0.9], measure_on="train").fit(*binary)
    assert bars[0].notes[0].endswith("rules undefined")
    assert "undefined" not in bars[0].notes[-1]


@pytest.mark.parametrize(
    ("violations", "said"),
    [
        ([0.0, -0.1], "all rules met"),
        ([1e-17, -0.1], "all rules met"),  # as the report says of it
        ([0.02, 0.1], "worst violation 0.1000 (fpr <= 0.2)"),
        ([np.nan, 0.1], "worst violation 0.1000 (fpr <= 0.2)"),
        ([np.nan, -0.1], "no rule violated, 1 undefined"),
        ([np.nan, np.nan], "rules undefined"),
    ],
)
def test_what_progress_says_of_rules(violations, said, monkeypatch, capfd):
    monkeypatch.setattr(Progress, "DELAY", 0.0)
    state = SimpleNamespace(
        violations=pd.Series(violations, index=["precision >= 0.9", "fpr <= 0.2"]),
        rows="out of fold", objective=0.5, done=0, total=1, seconds=0.0,
    )  # fmt: skip
    Progress("round", lines=True)(state)
    assert capfd.readouterr().err.endswith(f"out of fold: objective 0.5000, {said}\n")
