"""Audits and reports of regressors by period: those of the rows of each period alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from drawing import Fixed
from regressor_fits import EACH, fit, make_problem

import gbm_constrained as gc

RULES = [
    gc.each(gc.mean_loss("absolute"), by="group") <= 1.0,
    gc.gap(gc.mean_prediction(), by="group") <= 0.5,
    gc.coverage() >= 0.4,
]
COLUMNS = ["constraint", "sense", "bound", "rows", "value", "low", "high"]


def draw(n=1200, late=0.0):
    """Errors of predictions, moved in the last of three periods."""
    rng = np.random.default_rng(0)
    time, group = rng.permutation(np.arange(n) % 3), rng.choice(["a", "b"], n)
    y = rng.normal(size=n)
    return time, y, group, y + rng.normal(0.0, 0.3, n) + late * (time == 2)


def audit(y, predicted, group, **options):
    table = {"group": group, **options.pop("columns", {})}
    X = np.zeros((y.size, 1))
    return gc.audit(Fixed(predicted), X, y, RULES, sensitive_features=table, **options)


def test_each_period_has_the_audit_of_its_rows():
    time, y, group, predicted = draw()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, y.size)
    report = audit(
        y, predicted, group, columns={"day": time}, time="day", n_periods=3, sample_weight=weight
    )
    for k in range(3):
        own = time == k
        alone = audit(y[own], predicted[own], group[own], sample_weight=weight[own])
        found = report.periods[report.periods["period"] == k + 1]
        pd.testing.assert_frame_equal(
            found[COLUMNS].reset_index(drop=True), alone.frame[COLUMNS], rtol=1e-12
        )
    assert not report.periods["drifts"].any()
    again = gc.Audit.from_json(report.to_json())
    pd.testing.assert_frame_equal(again.periods, report.periods)


def test_drift_is_found_and_named():
    time, y, group, predicted = draw(late=0.4)
    report = audit(y, predicted, group, time=time, n_periods=3)
    drifts = report.periods.groupby("constraint")["drifts"].last()
    assert drifts["coverage >= 0.4"]
    assert "GC121" in [finding.code for finding in report.findings]
    assert "<svg" in report.to_html()


@EACH
def test_a_fit_over_time_reports_each_held_out_period(library):
    """Held-out rows of all periods together are those of the report."""
    problem, time = make_problem(900), np.arange(900) // 10
    model = fit(
        library, [gc.mean_loss("squared") <= 4.0], problem,
        given={"time": time}, measure_on="forward", n_folds=2, n_estimators=15,
    )  # fmt: skip
    periods = model.period_report_
    assert periods["period"].tolist() == [1, 2]
    assert periods[["first", "last"]].to_numpy().tolist() == [[30, 59], [60, 89]]
    assert periods["rows"].tolist() == [300, 300]
    # The later period counts twice.
    expected = np.average(periods["value"], weights=[1.0, 2.0])
    assert model.constraint_report_["held_out"][0] == pytest.approx(expected)
    assert model.feasibility_.drifting == ()
