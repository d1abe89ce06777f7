"""Constraint callbacks: the states they see, and what they end; callbacks of the libraries."""

from __future__ import annotations

import copy

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, margins_of
from watched_fits import FOLDS, ROUNDS, WHERE, R, fit_at, make, split

import gbm_constrained as gc


@BOTH
@WHERE
def test_callbacks_see_the_iterations_of_every_booster(library, measure_on, binary, conclusions):
    states = []
    constraints = [gc.fnr() <= 0.1, gc.fpr() <= 0.2]
    model = fit_at(
        library, binary, constraints, measure_on, constraint_callbacks=[states.append],
        options={"solver": "abpp"},
    )  # fmt: skip
    n_folds = {"crossfit": FOLDS, "holdout": 1}.get(measure_on, 0)
    measuring = [s for s in states if s.phase == "measuring"]
    training = [s for s in states if s.phase == "training"]
    assert states == measuring + training
    assert [s.rounds for s in measuring] == (list(range(0, ROUNDS, R)) if n_folds else [])
    last = [ROUNDS] if measure_on == "watch" else []
    assert [s.rounds for s in training] == [*range(0, ROUNDS, R), *last]
    assert [s.iteration for s in training] == list(range(len(training)))
    assert {s.rows for s in measuring} <= {{"crossfit": "out of fold"}.get(measure_on, "holdout")}
    on = "eval_set[0], watched" if measure_on == "watch" else "training rows"
    assert {s.rows for s in training} == {on}
    assert {s.n_rounds for s in states} == {ROUNDS}
    assert {s.total for s in states} == {(n_folds + 1) * ROUNDS}
    assert [s.done for s in measuring] == [n_folds * s.rounds for s in measuring]
    assert [s.done for s in training] == [n_folds * ROUNDS + s.rounds for s in training]
    seconds = [s.seconds for s in states]
    assert seconds == sorted(seconds)
    # What was seen last of the multipliers is what the model has, and the values are the history.
    (fit,) = (found.fit for found in conclusions)
    path = [r.multipliers for r in fit.solver.history]
    followed = measuring or training[: len(path)]
    for state, multipliers in zip(followed, path, strict=True):
        np.testing.assert_array_equal(state.multipliers, multipliers)
    if measure_on != "watch":
        columns = [f"value[{rule}]" for rule in constraints]
        before = model.history_[columns].to_numpy()[:-1]  # of the model that is returned
        assert len(before) > 2
        np.testing.assert_array_equal([s.values for s in training[: len(before)]], before)


@BOTH
def test_callbacks_change_nothing(library, binary):
    notified = fit_at(library, binary, [gc.fnr() <= 0.1], "crossfit", constraint_callbacks=[print])
    plain = fit_at(library, binary, [gc.fnr() <= 0.1], "crossfit")
    X = binary[0]
    np.testing.assert_array_equal(margins_of(notified, X), margins_of(plain, X))


def test_what_a_state_says(binary):
    X, y = binary
    group = np.where(X[:, 3] > 0.2, "a", "b")
    states = []
    constraints = [gc.fnr() <= 0.1, gc.gap(gc.fpr(), by="g") <= 0.02, gc.precision() >= 0.9]
    make("xgboost", constraints, measure_on="train").fit(
        X, y, sensitive_features={"g": group}, constraint_callbacks=[states.append]
    )
    model = make("xgboost", constraints, measure_on="train", n_estimators=4).fit(
        X, y, sensitive_features={"g": group}
    )
    state = states[2]  # after four rounds
    assert isinstance(state, gc.ConstraintState)
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
    violations = [expected[0] - 0.1, expected[1] - 0.02, 0.9 - expected[2]]
    np.testing.assert_allclose(state.violations, violations, atol=1e-12)
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

    constraints = [gc.fnr() <= 0.1]
    callbacks = [stop, states.append]
    stopped = fit_at(library, binary, constraints, measure_on, constraint_callbacks=callbacks)
    # Watched rows are measured at both ends of an iteration, all others where one begins.
    assert states[-1].rounds == (rounds + R if measure_on == "watch" else rounds)
    booster = stopped.get_booster() if library == "xgboost" else stopped.booster_
    count = booster.num_boosted_rounds if library == "xgboost" else booster.current_iteration
    assert count() == rounds + R
    assert stopped.history_["rounds"].iloc[-1] == rounds + R
    assert stopped.constraint_report_["held_out"].notna().all()
    if phase == "training" and measure_on == "crossfit":
        return  # the fold boosters had more rounds, and thresholds more prefixes to choose from
    # Boosters without multipliers come first. Once these are stopped there are no others.
    kind = {"solver": "threshold"} if phase == "measuring" else {}
    options = {"n_estimators": rounds + R, **kind}
    short = fit_at(library, binary, constraints, measure_on, options=options)
    X = binary[0]
    np.testing.assert_array_equal(margins_of(stopped, X), margins_of(short, X))
    np.testing.assert_array_equal(stopped.predict(X), short.predict(X))


@BOTH
@pytest.mark.parametrize("answer", [None, 0, 1, "yes", np.float64(1.0), False, np.False_, [True]])
def test_only_true_ends_training(library, answer, binary):
    model = fit_at(
        library, binary, [gc.fnr() <= 0.2], "train", constraint_callbacks=[lambda state: answer]
    )
    assert model.history_["rounds"].iloc[-1] == ROUNDS


@BOTH
def test_a_callback_that_fails_ends_the_fit_with_its_error(library, binary):
    def fail(state):
        raise KeyError("mine")

    for measure_on in ("train", "crossfit"):
        with pytest.raises(KeyError, match="mine"):
            fit_at(library, binary, [gc.fnr() <= 0.1], measure_on, constraint_callbacks=[fail])
    fit_at(library, binary, [gc.fnr() <= 0.1], "train")


@pytest.mark.parametrize("library", [*CLASSIFIERS, "linear"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (print, "must be a list of functions"),
        (3, "must be a list of functions"),
        ([3], "holds 3, which is not a function"),
        ([xgb.callback.EvaluationMonitor()], "own callbacks belong into callbacks="),
        ([gc.ConstraintState], "which is not a function"),
    ],
)
def test_callbacks_that_are_none(library, given, message, binary):
    with pytest.raises(TypeError, match=message):
        make(library, [gc.fnr() <= 0.1]).fit(*binary, constraint_callbacks=given)


@BOTH
def test_no_constraint_no_call(library, binary):
    model = make(library, []).fit(*binary, constraint_callbacks=[pytest.fail])
    assert not hasattr(model, "history_")


def test_linear_learner_notifies_and_stops(binary):
    X, y = binary
    constraints = [gc.log_loss(on=gc.label(1)) <= 0.7]
    states = []
    whole = make("linear", constraints).fit(X, y, constraint_callbacks=[states.append])
    assert len(states) == whole.n_iter_[0] > 3
    assert [s.rounds for s in states] == list(range(len(states)))
    assert {(s.phase, s.rows, s.total) for s in states} == {("training", "training rows", 40)}
    column = f"value[{constraints[0]}]"
    np.testing.assert_array_equal([s.values.iloc[0] for s in states], whole.history_[column][:-1])
    stopped = make("linear", constraints).fit(
        X, y, constraint_callbacks=[lambda s: s.iteration == 2]
    )
    assert stopped.n_iter_ == [3]
    short = make("linear", constraints).set_params(n_iterations=3)
    with pytest.warns(UserWarning, match="n_iterations=3"):
        short.fit(X, y)
    np.testing.assert_array_equal(stopped.coef_, short.coef_)


# --- callbacks of the libraries, called as by the parents ---------------------------------------


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
    """The fold boosters are not shown to them, and nothing is called twice."""
    log, own = Log(), xgb.callback.EvaluationMonitor(period=4)
    options = {"callbacks": [log, own], "eval_metric": ["logloss", "auc"]}
    model = fit_at("xgboost", binary, [gc.fnr() <= 0.1], measure_on, options=options)
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
    model = fit_at(
        "xgboost", binary, [gc.fnr() <= 0.1], "crossfit", options={"callbacks": [Log(5)]}
    )
    assert model.get_booster().num_boosted_rounds() == 6
    assert model.history_["rounds"].iloc[-1] == 6
    assert model.constraint_report_["held_out"].notna().all()


def test_xgboost_monitor_prints_what_the_parent_prints(binary, capfd):
    X, y, X_held, y_held = split(binary)
    constraints = [gc.fnr() <= 1.0]  # vacuous: the same model as the parent's
    for verbose in (True, 3):
        printed = []
        for model in (
            make("xgboost", constraints),
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
        printed = []
        for measure_on in ("train", "crossfit"):
            given = {"verbose": verbose, "force_col_wise": True}  # not by what takes less time
            model = make("lightgbm", [gc.fnr() <= 1.0], measure_on=measure_on, **given)
            model.fit(*binary, callbacks=[schedule])
            printed.append(capfd.readouterr().out)
        assert printed[0] == printed[1]
        assert printed[0].count("Total Bins") == 1


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
        model = fit_at(library, binary, [gc.fnr() <= 0.1], "train", **arguments)
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
    model = fit_at("lightgbm", binary, [gc.fnr() <= 0.1], measure_on, callbacks=callbacks,
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
    options = {"solver": "threshold"}
    fit_at("lightgbm", binary, [gc.fnr() <= 0.1], "crossfit", callbacks=[before], options=options)
    assert len(calls) == (FOLDS + 1) * ROUNDS
    assert calls[-ROUNDS:] == [(i, 0, ROUNDS) for i in range(ROUNDS)]
    assert sorted(calls) == sorted(calls[-ROUNDS:] * (FOLDS + 1))


def test_callbacks_see_the_last_round_of_a_stopped_fit(binary):
    record = {}
    fit_at(
        "lightgbm", binary, [gc.fnr() <= 0.1], "train", callbacks=[lgb.record_evaluation(record)],
        constraint_callbacks=[lambda state: state.rounds == 4],
    )  # fmt: skip
    assert len(record["valid_0"]["binary_logloss"]) == 6
    log = Log()
    fit_at(
        "xgboost", binary, [gc.fnr() <= 0.1], "train", options={"callbacks": [log]},
        constraint_callbacks=[lambda state: state.rounds == 4],
    )  # fmt: skip
    seen = [call[-1] for call in log.calls if call[0] == "end"]
    assert len(seen) == len(seen[-1]["validation_0"]["logloss"]) == 6


def test_lightgbm_logs_what_the_parent_logs(binary, capsys):
    X, y, X_held, y_held = split(binary)
    printed = []
    for model in (make("lightgbm", [gc.fnr() <= 1.0]), lgb.LGBMClassifier(
        n_estimators=ROUNDS, num_leaves=7, n_jobs=1, verbose=-1
    )):  # fmt: skip
        model.fit(X, y, eval_set=[(X_held, y_held)], callbacks=[lgb.log_evaluation(2)])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) == ROUNDS // 2
