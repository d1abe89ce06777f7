"""Fits of XGBoost on several machines: the same model, wherever the rows are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from shard_fits import N, Problem, plan_of, train_on
from sklearn.model_selection import KFold

import gbm_constrained as gc

RULES = [gc.fpr() <= 0.08, gc.gap(gc.fpr(), by="sex") <= 0.02]
SEVERAL = [gc.class_error(2) <= 0.7, gc.gap(gc.error_rate(), by="sex") <= 0.05]

CASES = {
    "training rows": (2, {"constraints": RULES, "measure_on": "train"}),
    "crossfit": (2, {"constraints": RULES, "measure_on": "crossfit"}),
    "multipliers": (2, {"constraints": RULES, "measure_on": "crossfit", "solver": "abpp"}),
    "holdout, guarantee": (
        2,
        {
            "constraints": [gc.fpr() <= 0.15],
            "measure_on": "holdout",
            "guarantee": "high_probability",
        },
    ),
    "mean losses": (
        2,
        {"constraints": [gc.gap(gc.log_loss(), by="sex") <= 0.01], "measure_on": "crossfit"},
    ),
    "priorities": (
        2,
        {
            "constraints": [gc.selection_rate() <= 0.1, (gc.recall() >= 0.8).with_priority(2)],
            "measure_on": "crossfit",
            "solver": "abpp",
        },
    ),
    "several classes": (3, {"constraints": SEVERAL, "measure_on": "train"}),
    "no constraints": (2, {"constraints": []}),
}


def load(results):
    assert [result.model is None for result in results] == [False] + [True] * (len(results) - 1)
    return results[0].load()


def describe(model, X):
    """Everything of a model that must not depend on the machines."""
    scores = model.predict(X, output_margin=True)
    if not hasattr(model, "history_"):
        return scores, model.predict(X)
    history = model.history_.select_dtypes("number").drop(columns="seconds")
    report = model.constraint_report_.select_dtypes("number")
    return (
        scores, model.predict(X), model.shift_, model.multipliers_.to_numpy(),
        history.to_numpy(), report.to_numpy(), np.array(model.unseen_accuracy_),
    )  # fmt: skip


WEIGHTED = [(name, i % 2 == 0) for i, name in enumerate(CASES)]


@pytest.mark.parametrize(("name", "is_weighted"), WEIGHTED)
def test_the_model_does_not_depend_on_the_machines(name, is_weighted):
    n_classes, params = CASES[name]
    problem = Problem(n_classes, is_weighted)
    found = {}
    for deal in ("one", "four", "by group"):
        shards = [problem.shard(rows) for rows in problem.deals()[deal]]
        model = load(train_on(plan_of(**params, n_estimators=8), shards))
        found[deal] = describe(model, problem.X)
    for deal, values in found.items():
        scores, expected = values[0], found["one"][0]
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6, err_msg=deal)
        for value, of_one in zip(values[1:4], found["one"][1:4], strict=True):
            np.testing.assert_array_equal(value, of_one, err_msg=deal)
        for value, of_one in zip(values[4:], found["one"][4:], strict=True):
            # Sums of XGBoost's single precision differ, and mean losses with them.
            np.testing.assert_allclose(value, of_one, rtol=0, atol=1e-6, err_msg=deal)


def test_multipliers_move():
    """Otherwise equal multipliers would prove nothing."""
    problem = Problem()
    plan = plan_of(**CASES["multipliers"][1], n_estimators=8)
    model = load(train_on(plan, [problem.shard(np.arange(N))]))
    assert model.multipliers_.max() > 0.05


@pytest.mark.parametrize(
    "params",
    [
        {"measure_on": "holdout"},
        {"measure_on": "train", "early_stopping_rounds": 3, "learning_rate": 1.0},
        {
            "measure_on": "train",
            "early_stopping_rounds": 3,
            "early_stopping_on": "constraints",
            "learning_rate": 1.0,
        },
    ],
)
def test_evaluation_sets_are_those_of_all_machines(params):
    """Also where a machine has no rows, so that its evaluation set equals its training rows."""
    problem, found = Problem(), []
    for deal in ("one", "four"):
        shards = [problem.with_evaluation(rows) for rows in problem.deals()[deal]]
        found.append(load(train_on(plan_of(constraints=RULES, **params), shards)))
    one, four = found
    if "early_stopping_rounds" in params:
        assert one.best_iteration == four.best_iteration < 15
    np.testing.assert_array_equal(one.multipliers_, four.multipliers_)
    held_out = one.constraint_report_["held_out"]
    assert held_out.notna().all()
    np.testing.assert_array_equal(held_out, four.constraint_report_["held_out"])


def test_the_result_is_a_classifier_of_one_machine(tmp_path):
    """It holds nothing of the length of the rows; plain XGBoost decides as it does."""
    problem = Problem()
    plan = plan_of(constraints=RULES, measure_on="crossfit")
    small, large = (
        train_on(plan, [problem.shard(np.arange(n)[i::2]) for i in range(2)])[0]
        for n in (N // 4, N)
    )
    assert len(large.model) < 1.2 * len(small.model)
    model = large.load()
    assert type(model) is gc.ConstrainedXGBClassifier
    assert model.get_params()["constraints"] == RULES
    model.save_model(tmp_path / "model.ubj")
    plain = xgb.XGBClassifier()
    plain.load_model(tmp_path / "model.ubj")
    np.testing.assert_array_equal(plain.predict(problem.X), model.predict(problem.X))
    again = gc.ConstrainedXGBClassifier()
    again.load_model(tmp_path / "model.ubj")
    pd.testing.assert_frame_equal(again.constraint_report_, model.constraint_report_)


def test_warnings_are_issued_once_by_whoever_loads_the_result():
    problem = Problem()
    plan = plan_of(constraints=[gc.fpr() <= 0.001, gc.fnr() <= 0.001], measure_on="train")
    results = train_on(plan, [problem.shard(np.arange(N)[i::2]) for i in range(2)])
    assert [bool(result.issued) for result in results] == [True, False]
    with pytest.warns(gc.MissedConstraintsWarning, match="GC103"):
        results[0].load()


def test_a_fit_goes_on_from_the_checkpoints_of_its_machines(tmp_path):
    """A callback ends the fit of all machines after the boosters of the folds."""
    problem = Problem()
    params = {"constraints": RULES, "measure_on": "crossfit"}
    shards = [problem.shard(np.arange(N)[i::2]) for i in range(2)]
    whole = load(train_on(plan_of(**params), shards))
    path = tmp_path / "fit.npz"

    def interrupt(state):
        if state.phase == "training":
            raise RuntimeError("the machine is wanted for something else")

    with pytest.raises(RuntimeError, match="something else"):
        train_on(
            plan_of(fit={"checkpoint": path, "constraint_callbacks": [interrupt]}, **params),
            shards,
        )
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["fit.npz.1-of-2", "fit.npz.2-of-2"]
    resumed = load(train_on(plan_of(fit={"checkpoint": path}, **params), shards))
    np.testing.assert_array_equal(
        resumed.predict(problem.X, output_margin=True),
        whole.predict(problem.X, output_margin=True),
    )
    assert not list(tmp_path.iterdir())


REFUSED = {
    "data sets": ({"fit": {"datasets": {"new": np.zeros((9, 5))}}}, "datasets"),
    "mask": (
        {"constraints": [gc.fpr(on=np.arange(N // 2) % 2 == 0) <= 0.1]},
        "column of sensitive_features",
    ),
    "decisions": (
        {"constraints": [gc.churn(to=np.zeros(N // 2, dtype=int)) <= 0.1]},
        "column of sensitive_features",
    ),
    "pairs": ({"constraints": [gc.auc() >= 0.5]}, "train on one machine"),
    "metric": ({"maximize": "g_mean", "constraints": []}, "train on one machine"),
    "dart": ({"booster": "dart"}, "booster='dart'"),
    "linear": ({"booster": "gblinear"}, "booster='gblinear'"),
    "columns": ({"data_split_mode": "col"}, "data_split_mode"),
    "update": ({"process_type": "update"}, "process_type"),
    "ergodic": ({"iterate": "ergodic"}, "iterate='ergodic'"),
    "splitter": ({"measure_on": KFold(3)}, "measure_on=KFold"),
    "forward": ({"measure_on": "forward", "fit": {"time": np.arange(N // 2)}}, "forward"),
    "groups": ({"group_thresholds": True}, "group_thresholds"),
    "amounts": ({"constraints": [gc.fnr(weight="sex") <= 0.1]}, "machine"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_machines_cannot_do_is_refused_with_a_way_out(name):
    params, message = REFUSED[name]
    problem = Problem()
    plan = plan_of(**{"constraints": RULES, "measure_on": "train", **params})
    with pytest.raises((ValueError, TypeError), match=message):
        train_on(plan, [problem.shard(np.arange(N)[i::2]) for i in range(2)])
