"""Audits by period: values of each period alone, and how often drift is found by chance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from drawing import Fixed
from regressor_fits import EACH, fit, make_problem

import gbm_constrained as gc


def draw(seed, n=2000, late=0.1):
    """Errors of decisions, at another rate in the last of four periods."""
    rng = np.random.default_rng(seed)
    time = rng.permutation(np.repeat(np.arange(4), n // 4))
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b"], n)
    wrong = rng.random(n) < np.where(time == 3, late, 0.1)
    return time, y, group, np.where(wrong, 1 - y, y)


RULES = [gc.fnr() <= 0.2, gc.gap(gc.fpr(), by="group") <= 0.1]


def by_period(seed, rules=RULES, **options):
    time, y, group, decided = draw(seed, **options)
    return gc.audit(
        Fixed(decided), np.zeros((y.size, 1)), y, rules, time=time, n_periods=4,
        sensitive_features={"group": group},
    )  # fmt: skip


def test_each_period_has_the_audit_of_its_rows():
    time, y, group, decided = draw(0)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, y.size)
    season = pd.Categorical.from_codes(time, list("dcba"), ordered=True)
    periods = gc.audit(
        Fixed(decided), np.zeros((y.size, 1)), y, RULES, time="season", n_periods=4,
        sensitive_features={"group": group, "season": season}, sample_weight=weight,
    ).periods  # fmt: skip
    columns = ["constraint", "sense", "bound", "rows", "value", "low", "high"]
    for k in range(4):
        own = time == k
        alone = gc.audit(
            Fixed(decided[own]), np.zeros((own.sum(), 1)), y[own], RULES,
            sensitive_features={"group": group[own]}, sample_weight=weight[own],
        )  # fmt: skip
        found = periods[periods["period"] == k + 1]
        pd.testing.assert_frame_equal(
            found[columns].reset_index(drop=True), alone.frame[columns], rtol=1e-12
        )
        assert (found[["first", "last"]] == "dcba"[k]).all(axis=None)


def test_what_is_expected_of_the_last_period_is_by_all_before():
    time, y, _, decided = draw(3)
    (rule,) = rules = [gc.fnr() <= 0.2]
    last = by_period(3, rules).periods.iloc[-1]
    before, now = (
        gc.audit(Fixed(decided[own]), np.zeros((own.sum(), 1)), y[own], rule).frame.iloc[0]
        for own in (time < 3, time == 3)
    )
    half = np.hypot(before.value - before.low, now.high - now.value)
    assert last.expected_low == pytest.approx(before.value - half, abs=1e-12)
    half = np.hypot(before.high - before.value, now.value - now.low)
    assert last.expected_high == pytest.approx(before.value + half, abs=1e-12)
    # No rate is below zero, where few rows leave more room.
    assert by_period(3, rules, n=80).periods["expected_low"].iloc[-1] == 0.0


@pytest.mark.slow
def test_drift_is_found_by_chance_as_rarely_as_the_level_says():
    """Clopper-Pearson intervals are wider than needed, and so are the expected ones."""
    rules = [gc.fnr() <= 0.2, gc.fpr() <= 0.2]
    found = [by_period(seed, rules).periods["drifts"].any() for seed in range(150)]
    assert np.mean(found) <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 150)


def test_drift_that_is_there_is_found_and_named():
    report = by_period(0, late=0.3)
    drifts = report.periods.groupby("constraint")["drifts"].last()
    assert drifts["fnr <= 0.2"]
    assert "GC121" in [finding.code for finding in report.findings]
    assert "The last period leaves the interval of those before: fnr <= 0.2" in str(report)
    assert "GC121" not in [finding.code for finding in by_period(0).findings]


def test_a_period_without_a_group_has_no_value_and_does_not_drift():
    time, y, group, decided = draw(0)
    group[time == 3] = "a"
    periods = gc.audit(
        Fixed(decided), np.zeros((y.size, 1)), y, RULES[1:], time=time, n_periods=4,
        sensitive_features={"group": group},
    ).periods  # fmt: skip
    assert np.isfinite(periods["value"][:3]).all()
    assert pd.isna(periods["drifts"].iloc[-1])


def test_tables_survive_json():
    report = by_period(0)
    again = gc.Audit.from_json(report.to_json())
    pd.testing.assert_frame_equal(again.periods, report.periods)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"time": [1, 2]}, ValueError, r"time .*shape \(2,\)"),
        ({"time": np.zeros(2000)}, ValueError, "time has 1 different values.*n_periods=5"),
        ({"time": np.arange(2000), "n_periods": 1}, ValueError, "n_periods"),
        ({"time": "day"}, ValueError, "time='day': column 'day' is neither"),
    ],
)
def test_bad_times_are_refused(options, error, message):
    _, y, _, decided = draw(0)
    with pytest.raises(error, match=message):
        gc.audit(Fixed(decided), np.zeros((y.size, 1)), y, RULES[:1], **options)


OF_NUMBERS = [
    gc.each(gc.mean_loss("absolute"), by="group") <= 1.0,
    gc.gap(gc.mean_prediction(), by="group") <= 0.5,
    gc.coverage() >= 0.4,
]
COLUMNS = ["constraint", "sense", "bound", "rows", "value", "low", "high"]


def draw_numbers(n=1200, late=0.0):
    """Errors of predictions, moved in the last of three periods."""
    rng = np.random.default_rng(0)
    time, group = rng.permutation(np.arange(n) % 3), rng.choice(["a", "b"], n)
    y = rng.normal(size=n)
    return time, y, group, y + rng.normal(0.0, 0.3, n) + late * (time == 2)


def audit_numbers(y, predicted, group, **options):
    table = {"group": group, **options.pop("columns", {})}
    X = np.zeros((y.size, 1))
    return gc.audit(Fixed(predicted), X, y, OF_NUMBERS, sensitive_features=table, **options)


def test_each_period_has_the_audit_of_its_numbers():
    time, y, group, predicted = draw_numbers()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, y.size)
    report = audit_numbers(
        y, predicted, group, columns={"day": time}, time="day", n_periods=3, sample_weight=weight
    )
    for k in range(3):
        own = time == k
        alone = audit_numbers(y[own], predicted[own], group[own], sample_weight=weight[own])
        found = report.periods[report.periods["period"] == k + 1]
        pd.testing.assert_frame_equal(
            found[COLUMNS].reset_index(drop=True), alone.frame[COLUMNS], rtol=1e-12
        )
    assert not report.periods["drifts"].any()
    again = gc.Audit.from_json(report.to_json())
    pd.testing.assert_frame_equal(again.periods, report.periods)


def test_drift_is_found_and_named():
    time, y, group, predicted = draw_numbers(late=0.4)
    report = audit_numbers(y, predicted, group, time=time, n_periods=3)
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
        given={"time": time}, measure_on=gc.Forward(2), n_estimators=15,
    )  # fmt: skip
    periods = model.period_report_
    assert periods["period"].tolist() == [1, 2]
    assert periods[["first", "last"]].to_numpy().tolist() == [[30, 59], [60, 89]]
    assert periods["rows"].tolist() == [300, 300]
    # The later period counts twice.
    expected = np.average(periods["value"], weights=[1.0, 2.0])
    assert model.constraint_report_["held_out"][0] == pytest.approx(expected)
    assert model.feasibility_.drifting == ()
