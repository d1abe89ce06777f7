"""Metrics of any model in an audit: values of scikit-learn, intervals that cover, and files."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score, recall_score

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.evaluation.audit import MetricOnRows
from gbm_constrained.metrics import f1_macro, f_beta, g_mean, h_mean, metric
from gbm_constrained.metrics.reading import read_metric


def draw(n=600, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    X = pd.DataFrame({"x": rng.normal(size=n) + (y == "b") + 2 * (y == "c")})
    X["region"] = rng.choice([0, 1], n)
    return X, y, rng.integers(1, 4, n).astype(float)


@pytest.fixture(scope="module")
def audited():
    X, y, w = draw()
    model = LogisticRegression().fit(X, y)
    others = {"prior": DummyClassifier().fit(X, y)}
    asked = ["g_mean", f1_macro(), gc.recall("c"), "precision(b)", h_mean(on={"region": 1})]
    report = gc.audit(model, X, y, sample_weight=w, others=others, metrics=asked)
    return report, model.predict(X), X, y, w


def test_values_are_those_of_scikit_learn(audited):
    report, decided, X, y, w = audited
    recalls = recall_score(y, decided, average=None, sample_weight=w)
    there = X["region"] == 1
    within = recall_score(y[there], decided[there], average=None, sample_weight=w[there])
    expected = [
        np.prod(recalls) ** (1 / 3),
        f1_score(y, decided, average="macro", sample_weight=w),
        recalls[2],
        np.average(y[decided == "b"] == "b", weights=w[decided == "b"]),
        3 / np.sum(1 / within),
    ]
    own = report.metrics[report.metrics["model"] == "LogisticRegression"]
    assert own["metric"].tolist() == [
        "g_mean", "f1_macro", "recall('c')", "precision('b')", "h_mean[region=1]"
    ]  # fmt: skip
    np.testing.assert_allclose(own["value"], expected, atol=1e-12)
    assert ((own["low"] < own["value"]) & (own["value"] < own["high"])).all()
    of_prior = report.metrics[report.metrics["model"] == "prior"]
    assert of_prior["value"].tolist()[0] == 0.0
    assert len(report.metrics) == 10


def test_reports_hold_metrics_in_text_page_and_file(audited):
    report, *_ = audited
    assert "f1_macro" in str(report)
    assert "<h2>Metrics</h2>" in report.to_html()
    again = gc.Audit.from_json(report.to_json())
    pd.testing.assert_frame_equal(again.metrics, report.metrics)
    old = report.to_json().replace('"metrics"', '"unknown"')
    assert gc.Audit.from_json(old).metrics.empty


def test_an_audit_without_metrics_says_nothing_of_them():
    X, y, _ = draw()
    report = gc.audit(DummyClassifier().fit(X, y), X, y, [gc.error_rate() <= 0.6])
    assert report.metrics.empty
    assert "Metrics" not in report.to_html()


def test_intervals_cover_the_value_of_the_population():
    X, y, _ = draw(50_000)
    model = LogisticRegression().fit(*draw(seed=9)[:2])
    decided = model.predict(X)
    truth = balanced_accuracy_score(y, decided)
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        at = rng.integers(y.size, size=300)
        codes = np.unique(y[at], return_inverse=True)[1]
        bound = MetricOnRows(
            read_metric("metrics", "balanced_accuracy"),
            Rows(codes, np.array(["a", "b", "c"]), None, {}),
        )
        found = bound.estimate(np.searchsorted(["a", "b", "c"], decided[at]), 0.9)
        covered += found.low <= truth <= found.high
    assert 168 <= covered <= 192  # 180 are expected, with a standard error of 4.2


def test_decisions_and_shares_of_one_have_one_value():
    X, y, w = draw()
    codes = np.searchsorted(["a", "b", "c"], y)
    decided = np.roll(codes, 7)
    rows = Rows(codes, np.array(["a", "b", "c"]), w, {}, [X])
    of_groups = metric(lambda C: sum(map(np.trace, C.values())), kind="linear", by="region")
    for found in (g_mean(), f_beta(2, "b"), of_groups):
        value = MetricOnRows(found, rows).value(np.eye(3)[decided])
        assert MetricOnRows(found, rows).estimate(decided, 0.95).value == pytest.approx(
            value, abs=1e-12
        )


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ("gmean", ValueError, "metrics='gmean': unknown metric gmean: did you mean g_mean"),
        ([gc.gap(gc.tpr(), by="region")], TypeError, "metrics must be a metric such as g_mean"),
        (3, TypeError, "metrics must be a metric"),
        (gc.log_loss(), ValueError, "metrics=log_loss is a mean loss"),
        (gc.recall("z"), ValueError, r"metrics: recall\('z'\): .*which is not in y"),
        ("tpr", ValueError, "metrics: tpr: .*positive="),
    ],
)
def test_metrics_that_are_none_are_refused(asked, error, words):
    X, y, _ = draw()
    with pytest.raises(error, match=f"(?s){words}"):
        gc.audit(DummyClassifier().fit(X, y), X, y, metrics=asked)


def test_rows_without_a_class_are_named_and_no_rule_that_nobody_wrote():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 2)), np.repeat([0, 1, 2], 30)
    model = gc.ConstrainedXGBClassifier(
        n_estimators=2, maximize="g_mean", measure_on=gc.CrossFit(2)
    ).fit(X, y)
    X, y = X[:60], y[:60]
    message = r"g_mean has no value .* class 2\. Give rows of every class, \[0, 1, 2\]"
    for measure in (
        lambda: model.score(X, y),
        lambda: pickle.loads(pickle.dumps(model)).score(X, y),
        lambda: gc.audit(model, X, y, [], metrics=["g_mean"]),
    ):
        with pytest.raises(ValueError, match=message) as refused:
            measure()
        assert ">= 0" not in str(refused.value)
