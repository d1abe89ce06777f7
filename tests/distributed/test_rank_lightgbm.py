"""Fits of LightGBM on several machines, whose bins and trees differ from those of one."""

from __future__ import annotations

import threading

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from shard_fits import N, Problem, plan_of, train_on

import gbm_constrained as gc

RULES = [gc.fpr() <= 0.08, gc.gap(gc.fpr(), by="sex") <= 0.02]
HALVES = [np.arange(N)[i::2] for i in range(2)]


def train(problem, parts=HALVES, **params):
    shards = [problem.shard(rows) for rows in parts]
    return train_on(plan_of("lightgbm", **params), shards)[0].load()


@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_decisions_agree_with_one_machine_as_those_of_the_library(measure_on, is_weighted):
    problem, agreement = Problem(2, is_weighted), {}
    for name, constraints in {"plain": [], "ours": RULES}.items():
        one, two = (
            train(problem, parts, constraints=constraints, measure_on=measure_on)
            for parts in ([np.arange(N)], HALVES)
        )
        agreement[name] = np.mean(one.predict(problem.X) == two.predict(problem.X))
    assert two.multipliers_.max() > 0.01
    assert two.constraint_report_["verdict"].isin(["met", "missed within sampling error"]).all()
    assert agreement["ours"] >= agreement["plain"] - 0.02


def test_one_machine_is_the_library_itself():
    """Up to the order of sums: bins and trees are LightGBM's own."""
    problem = Problem()
    ours = train(problem, [np.arange(N)], constraints=[])
    plain = lgb.LGBMClassifier(n_estimators=16, max_depth=3, n_jobs=1, verbosity=-1)
    plain.fit(problem.X, problem.y)
    np.testing.assert_array_equal(
        ours.predict(problem.X, raw_score=True), plain.predict(problem.X, raw_score=True)
    )


@pytest.mark.parametrize("class_weight", ["balanced", {"no": 1.0, "yes": 3.0}])
def test_a_machine_may_lack_a_class(class_weight):
    """Labels are texts; class weights and the intercept are of the rows of both machines."""
    problem = Problem()
    first = np.flatnonzero(problem.y == 0)[::2]
    parts = [first, np.setdiff1d(np.arange(N), first)]
    problem.y = np.array(["no", "yes"])[problem.y]
    params = {"constraints": RULES, "measure_on": "train", "class_weight": class_weight}
    model = train(problem, parts, **params)
    assert model.classes_.tolist() == ["no", "yes"]
    one = train(problem, [np.arange(N)], **params)
    assert np.mean(model.predict(problem.X) == one.predict(problem.X)) > 0.9
    shares = [np.mean(m.predict(problem.X) == "yes") for m in (model, one)]
    assert abs(shares[0] - shares[1]) < 0.03


def test_early_stopping_is_by_the_constraints_of_all_machines():
    problem = Problem()
    params = {"constraints": RULES, "measure_on": "train", "learning_rate": 0.5}
    shards = [problem.with_evaluation(rows) for rows in HALVES]
    plan = plan_of("lightgbm", early_stopping_round=3, early_stopping_on="constraints", **params)
    results = train_on(plan, shards)
    model = results[0].load()
    assert 0 < model.best_iteration_ <= 16
    assert model.constraint_report_["held_out"].notna().all()
    with pytest.raises(ValueError, match="early_stopping_on='constraints'"):
        train_on(plan_of("lightgbm", early_stopping_round=3, **params), shards)


def test_the_saved_model_is_read_by_plain_lightgbm(tmp_path):
    problem = Problem()
    model = train(problem, constraints=RULES, measure_on="crossfit")
    assert type(model) is gc.ConstrainedLGBMClassifier
    model.save_model(tmp_path / "model.txt")
    plain = lgb.Booster(model_file=tmp_path / "model.txt")
    np.testing.assert_array_equal(plain.predict(problem.X) > 0.5, model.predict(problem.X) == 1)
    again = gc.ConstrainedLGBMClassifier()
    again.load_model(tmp_path / "model.txt")
    pd.testing.assert_frame_equal(again.constraint_report_, model.constraint_report_)


def test_all_machines_have_the_same_multipliers():
    """Each rank hands out what its own solver has done, in a callback."""
    problem, seen = Problem(), {}

    def record(state):
        path = seen.setdefault(threading.get_ident(), [])
        path.append(state.multipliers.copy())

    shards = [problem.shard(rows) for rows in HALVES]
    plan = plan_of(
        "lightgbm", {"constraint_callbacks": [record]}, constraints=RULES, measure_on="crossfit"
    )
    train_on(plan, shards)
    first, second = seen.values()
    np.testing.assert_array_equal(first, second)
    assert np.max(first) > 0.01


@pytest.mark.parametrize("learner", ["feature", "voting"])
def test_other_ways_to_divide_the_work_are_refused(learner):
    with pytest.raises(ValueError, match="tree_learner"):
        train(Problem(), constraints=RULES, measure_on="train", tree_learner=learner)


def test_addresses_given_by_hand_name_the_class_to_take():
    model = gc.ConstrainedLGBMClassifier(constraints=RULES, num_machines=2)
    with pytest.raises(ValueError, match=r"gbm_constrained\.dask\.ConstrainedLGBMClassifier"):
        model.fit(Problem().X, Problem().y)


def test_a_machine_with_one_row_is_refused():
    parts = [np.arange(1), np.arange(1, N)]
    with pytest.raises(ValueError, match="fewer machines"):
        train(Problem(), parts, constraints=RULES, measure_on="train")
