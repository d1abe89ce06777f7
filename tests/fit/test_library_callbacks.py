"""Callbacks of the libraries under constraints: called as by the parents, printing the same."""

from __future__ import annotations

import copy

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import margins_of
from watched_fits import FOLDS, ROUNDS, WHERE, fit_at, make, split

import gbm_constrained as gc


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
    fit_at("lightgbm", binary, [gc.fnr() <= 0.1], "crossfit", callbacks=[before])
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
