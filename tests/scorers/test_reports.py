"""Reports are what counting gives, and travel with the classifier."""

from __future__ import annotations

import inspect
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from drop_in_fits import ANY, PARITY, SLACK, WHERE, counted, gap_of, make, with_solver
from helpers import EITHER, quiet
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import gbm_constrained as gc
from gbm_constrained.solvers import ABPP, AutoSolver


@ANY
def test_reports_are_what_counting_gives(library, problem):
    X, y, sex = problem
    old = LogisticRegression().fit(X[:, ::-1], y)

    class Deployed:
        def predict(self, rows):
            return old.predict(np.asarray(rows)[:, ::-1])

    size = {"by": "sex", "min_group_size": 1}
    rules = [
        gc.gap(gc.selection_rate(), **size) <= 0.2,
        gc.ratio(gc.tpr(), **size) >= 0.9,
        gc.each(gc.error_rate(), **size) <= 0.3,
        gc.each(gc.recall(), **size) >= 0.7,
        gc.precision() >= 0.7,
        gc.f1() >= 0.6,
        gc.churn(to=Deployed()) <= 0.3,
        gc.fpr(on={"sex": 1}) <= 0.5,
    ]
    held, train = slice(0, 200), slice(200, 600)
    given = {"sensitive_features": {"sex": sex[train]}}
    if library != "logistic":
        given.update(
            eval_set=[(X[held], y[held])],
            sensitive_features_eval_set=[{"sex": sex[held]}],
            **quiet(library),
        )
    options = (
        {}
        if library == "logistic"
        else {"n_estimators": 14, "solver": AutoSolver(rounds_per_iteration=3)}
    )
    fitted = make(library, rules, **options).fit(X[train], y[train], **given)
    report, history, groups = fitted.constraint_report_, fitted.history_, fitted.group_report_
    parts = {"train": train} if library == "logistic" else {"train": train, "held_out": held}
    for name, part in parts.items():
        decisions = fitted.predict(X[part])
        y_part, sex_part = y[part], sex[part]
        values = counted(rules, y_part, decisions, sex_part, Deployed().predict(X[part]))
        np.testing.assert_allclose(report[name], values, atol=1e-6)
        column = "value" if name == "train" else name
        last = [history[f"{column}[{rule}]"].iloc[-1] for rule in rules]
        np.testing.assert_array_equal(last, report[name])
        of_groups = [
            what[rows & (sex_part == s)].mean()
            for what, rows in (
                (decisions, y_part >= 0),
                (decisions, y_part == 1),
                (decisions != y_part, y_part >= 0),
                (decisions, y_part == 1),
            )
            for s in (0, 1)
        ]
        np.testing.assert_allclose(groups[name], of_groups, atol=1e-6)
    sizes = [((y[train] >= k) & (sex[train] == s)).sum() for k in (0, 1, 0, 1) for s in (0, 1)]
    assert groups.rows.tolist() == sizes
    assert groups.constraint.tolist() == [str(rule) for rule in rules[:4] for _ in range(2)]
    assert groups.group.tolist() == ["sex=0", "sex=1"] * 4
    met = [
        v <= rule.bound if rule.sense == "<=" else v >= rule.bound
        for rule, v in zip(rules, report.train, strict=True)
    ]
    assert report.train_satisfied.tolist() == met


@ANY
def test_multipliers_are_of_linear_rows(library, problem):
    X, y, sex = problem
    rules = [gc.gap(gc.selection_rate(), by="sex", min_group_size=1) <= 0.04, gc.fnr() <= 0.3]
    fitted = make(library, rules).fit(X, y, sensitive_features={"sex": sex})
    multipliers = fitted.multipliers_
    assert multipliers.index.tolist() == [
        "selection_rate[sex=0] - selection_rate[sex=1] <= 0.04",
        "selection_rate[sex=1] - selection_rate[sex=0] <= 0.04",
        "fnr <= 0.3",
    ]
    assert multipliers.iloc[1] > 0
    report = fitted.constraint_report_
    totals = [multipliers.iloc[:2].sum(), multipliers.iloc[2]]
    np.testing.assert_allclose(report.multiplier, totals, atol=1e-12)
    last = fitted.history_.iloc[-1]
    assert [last[f"multiplier[{rule}]"] for rule in rules] == report.multiplier.tolist()

    # A warm start takes them as they are, and names the rows where their number is wrong.
    warm = make(library, rules, **with_solver(library, initial_multipliers=multipliers))
    warm.fit(X, y, sensitive_features={"sex": sex})
    assert warm.history_[f"multiplier[{rules[0]}]"].iloc[0] > 0.5 * report.multiplier[0]
    assert warm.constraint_report_.train[0] <= 0.04 + SLACK
    assert repr(clone(warm))
    warm.set_params(**with_solver(library, initial_multipliers=multipliers.iloc[:2]))
    with pytest.raises(ValueError, match=r"3 rows.*got 2.*selection_rate\[sex=1\] - .*fnr <= 0.3"):
        warm.fit(X, y, sensitive_features={"sex": sex})


@EITHER
def test_history_is_of_the_ensemble_as_it_grew(library, problem):
    """Rates after r rounds are those of the first r rounds of the returned booster."""
    X, y, sex = problem
    options = {"n_estimators": 10, "solver": AutoSolver(rounds_per_iteration=3)}
    fitted = make(library, PARITY, **options)
    fitted.fit(
        X[200:], y[200:], sensitive_features=sex[200:], eval_set=[(X[:200], y[:200])],
        sensitive_features_eval_set=[sex[:200]], **quiet(library),
    )  # fmt: skip
    history = fitted.history_
    assert history["rounds"].tolist() == [0, 3, 6, 9, 10]
    for _, row in history.iloc[1:].iterrows():
        r = int(row["rounds"])
        some = {"iteration_range": (0, r)} if library == "xgboost" else {"num_iteration": r}
        for column, part in (("value", slice(200, 600)), ("held_out", slice(200))):
            value = gap_of(fitted.predict(X[part], **some), sex[part])
            assert row[f"{column}[{PARITY}]"] == pytest.approx(value, abs=1e-9)


# --- copies and parameters ----------------------------------------------------------------------


@WHERE
def test_a_fitted_classifier_survives_a_file(library, where, problem):
    X, y, sex = problem
    options = {"n_iterations": 20} if library == "logistic" else {"n_estimators": 20}
    fitted = make(library, [PARITY, gc.log_loss() <= 2.0], **options, **where)
    fitted.fit(X, y, sensitive_features=sex)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    for name in ("constraint_report_", "group_report_", "history_"):
        pd.testing.assert_frame_equal(getattr(copy, name), getattr(fitted, name))
    pd.testing.assert_series_equal(copy.multipliers_, fitted.multipliers_)
    assert copy.constraints == fitted.constraints
    again = clone(copy)
    assert not hasattr(again, "multipliers_")
    again.fit(X, y, sensitive_features=sex)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


@ANY
def test_parameters_of_the_solver(library, problem):
    """They are set, cloned and refused by name, act, and never reach the parent's learner."""
    X, y, sex = problem
    solver = "constraint_solver" if library == "logistic" else "solver"
    options = {"n_iterations": 30} if library == "logistic" else {"n_estimators": 40}
    model = make(library, PARITY, **options)
    names = set(inspect.signature(type(model)).parameters) - {"kwargs"}
    assert names <= set(model.get_params())
    model.set_params(**{solver: ABPP(proxy="sigmoid")})
    copy = clone(model)
    assert copy.get_params()[f"{solver}__proxy"] == "sigmoid"
    given = {"sensitive_features": sex}
    default = make(library, PARITY, **options).fit(X, y, **given).predict_proba(X)
    np.testing.assert_array_equal(copy.fit(X, y, **given).predict_proba(X), default)
    convex = (
        clone(model)
        .set_params(**{f"{solver}__proxy": "logistic"})
        .fit(X, y, **given)
        .predict_proba(X)
    )
    assert abs(convex - default).max() > 0.01
    if library == "xgboost":
        assert not any(map(re.compile("solver|constraints").match, copy.get_xgb_params()))
    elif library == "lightgbm":
        assert not any(map(re.compile("solver|constraints").match, copy.booster_.params))
    else:
        own = clone(model).set_params(solver="newton-cg").fit(X, y, **given)
        np.testing.assert_allclose(own.predict_proba(X), default, atol=0.02)
    with pytest.raises(ValueError, match=rf"^{solver} must be one of .*'newton'"):
        clone(model).set_params(**{solver: "newton"}).fit(X, y, **given)
