"""What a fit for a metric returns and says: one criterion, and no promise that the rows refute."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS, quiet

import gbm_constrained as gc
from gbm_constrained.datasets import load_dry_bean
from gbm_constrained.metrics import min_recall

FAST = {"xgboost": {"max_depth": 3}, "lightgbm": {"num_leaves": 8, "verbose": -1}}


def make(library, **options):
    return CLASSIFIERS[library](n_jobs=1, random_state=0, **FAST[library], **options)


@BOTH
def test_class_errors_are_not_met_to_the_last_row_at_the_price_of_other_classes(library):
    """Plain boosters are right on .92 of these rows, and biases meet the bounds with .87."""
    try:
        data = load_dry_bean(download=False)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    bounds = {1: 0.01, 2: 0.03, 3: 0.02, 4: 0.02}
    train = np.random.default_rng(0).permutation(len(data.target))[:3000]
    X, y = data.data.iloc[train], np.unique(data.target, return_inverse=True)[1][train]
    constraints = [gc.class_error(k) <= bound for k, bound in bounds.items()]
    model = make(library, n_estimators=20, maximize=gc.accuracy(), constraints=constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    report = model.metric_report_.set_index("decisions")
    returned = report[report["is_returned"]].iloc[0]
    assert returned["held_out"] > 0.75
    assert np.unique(model.predict(X)).size == 7


@BOTH
@pytest.mark.parametrize(("n", "is_refuted"), [(80, False), (1500, True)])
def test_constraints_cannot_be_met_where_rows_refute_them(library, n, is_refuted):
    """Labels are noise, and the errors of both classes add up to one."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(n, 3)), np.arange(n) % 2
    constraints = [gc.class_error(k) <= 0.4 for k in (0, 1)]
    model = make(library, n_estimators=10, maximize=gc.accuracy(), constraints=constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    report = model.constraint_report_
    assert (report["verdict"] == "cannot be met").tolist() == [is_refuted] * 2
    if is_refuted:
        assert (report["low"] > report["bound"]).all()
        assert model.feasibility_.conflict == tuple(constraints)


def test_the_worst_of_many_recalls_is_promised_without_the_optimism_of_its_choice():
    """The recalls of twelve classes are balanced to the last row, on the rows that are told of."""
    promised, reached = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        centres = rng.normal(size=(12, 4)) * 1.2

        def draw(n, rng=rng, centres=centres):
            y = rng.integers(0, len(centres), n)
            return centres[y] + rng.normal(size=(n, centres.shape[1])), y

        (X, y), (X_new, y_new) = draw(900), draw(40_000)
        model = gc.ConstrainedLogisticRegression(maximize=min_recall()).fit(X, y)
        report = model.metric_report_
        assert (report["low"] <= report["held_out"]).all()
        assert (report["held_out"] <= report["high"]).all()
        optimised = report.set_index("decisions").loc["optimised"]
        promised.append(optimised["held_out"])
        model = gc.ConstrainedLogisticRegression(maximize=min_recall()).fit(X, y)
        reached.append(model.score(X_new, y_new))
    # A standard error of the worst recall is about 0.05, and of the mean of six 0.02.
    assert np.mean(promised) - np.mean(reached) < 0.03


@BOTH
def test_a_model_of_all_rows_that_decides_otherwise_keeps_no_promise(library):
    """Six atoms have six scores, which the boosters of the folds put in another order."""
    rng = np.random.default_rng(14)
    joint = rng.dirichlet(np.full(3, 0.7), 6) * rng.dirichlet(np.full(6, 3.0))[:, None]
    drawn = rng.choice(18, 600, p=joint.ravel() / joint.sum())
    atom, y = drawn // 3, drawn % 3
    model = make(library, n_estimators=20, measure_on=gc.CrossFit(5), maximize=min_recall())
    model.fit(np.eye(6)[atom], y, **quiet(library))
    report = model.metric_report_
    returned = report[report["is_returned"]].iloc[0]
    shares = model.decision_probabilities(np.eye(6))
    recalls = (joint * shares).sum(axis=0) / joint.sum(axis=0)
    assert returned["train"] >= returned["low"]
    assert returned["held_out"] - recalls.min() < 0.08


@BOTH
def test_costs_and_fragility_are_told_of_a_metric(library):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=3000) > 0.0).astype(int)
    constraints = [gc.selection_rate() <= 0.1, gc.fnr() <= 0.2]
    model = make(library, n_estimators=20, maximize=gc.accuracy(), constraints=constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    feasibility, report = model.feasibility_, model.metric_report_
    returned = report[report["is_returned"]].iloc[0]
    plain = report.set_index("decisions").loc["argmax"]
    assert feasibility.cost.error == pytest.approx(1.0 - returned["held_out"])
    assert feasibility.cost.unconstrained_error <= 1.0 - plain["held_out"] + 1e-9
    assert np.isnan(feasibility.cost.needed_error)  # No decisions should meet both, either.
    assert feasibility.constant_class is None  # No constant decision meets both.
    constraints = [gc.selection_rate() <= 0.05]
    model = make(library, n_estimators=20, maximize=gc.accuracy(), constraints=constraints)
    with pytest.warns(gc.FragileConstraintsWarning, match=r"objective \(1 - accuracy\)"):
        model.fit(X, y)
    assert model.feasibility_.is_fragile
    assert model.feasibility_.constant_class == 0
    cost = model.feasibility_.cost
    assert cost.unconstrained_error + 0.2 < cost.needed_error <= cost.error + 0.03
