"""Rules that are no linear functions of rates: fits of both libraries, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import EITHER, alternate

import gbm_constrained as gc
from gbm_constrained.metrics import f1_macro, g_mean, metric

AVERAGE_ODDS = (gc.gap(gc.fpr(), by="g") + gc.gap(gc.tpr(), by="g")) / 2
OPTIONS = {"n_estimators": 40, "random_state": 0, "n_jobs": 1}
CLASSIFIERS = {
    "xgboost": lambda **given: gc.ConstrainedXGBClassifier(**OPTIONS, **given),
    "lightgbm": lambda **given: gc.ConstrainedLGBMClassifier(verbose=-1, **OPTIONS, **given),
}
LIBRARY = pytest.mark.parametrize("library", CLASSIFIERS)
RULES = {
    "average odds": AVERAGE_ODDS <= 0.05,
    "norm": gc.gap_norm([gc.fpr(), gc.tpr()], by="g") <= 0.08,
    "f1": gc.gap(gc.f1(), by="g") <= 0.05,
    "g_mean": g_mean() >= 0.8,
    "own": metric(lambda C: np.sqrt(C[1, 1] / C[1].sum() * C[0, 0] / C[0].sum()), kind="other")
    >= 0.8,
}


def draw(seed, n=3000):
    """Rows whose rates differ by group without a rule, and whose classes are unequal."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b"], n)
    score = rng.normal(size=n) + 0.7 * (group == "a") - 0.9
    X = pd.DataFrame({"x": score, "z": rng.normal(size=n), "is_a": (group == "a").astype(float)})
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-2.5 * score))).astype(int)
    return X, y, pd.DataFrame({"g": group})


TRAIN, TEST = draw(0), draw(1, 12_000)


def fit(library, rule, **given):
    model = CLASSIFIERS[library](constraints=[rule], **given)
    return model.fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])


def value(model, rule):
    report = gc.audit(model, TEST[0], TEST[1], constraints=[rule], sensitive_features=TEST[2])
    return report.frame.loc[0, "value"]


@alternate("name", RULES)
def test_rules_hold_on_unseen_rows_that_the_plain_model_violates(library, name):
    rule = RULES[name]
    plain = CLASSIFIERS[library](constraints=[]).fit(TRAIN[0], TRAIN[1])
    sign = 1.0 if rule.sense == "<=" else -1.0
    assert sign * (value(plain, rule) - rule.bound) > 0.01
    model = fit(library, rule)
    assert sign * (value(model, rule) - rule.bound) < 0.025  # Two standard errors of 3000 rows.
    accuracy = (model.predict(TEST[0]) == TEST[1]).mean()
    assert accuracy > (plain.predict(TEST[0]) == TEST[1]).mean() - 0.06


@EITHER
def test_a_rule_that_always_holds_changes_nothing(library):
    free = CLASSIFIERS[library](constraints=[]).fit(TRAIN[0], TRAIN[1])
    model = fit(library, g_mean() >= 0.0)
    assert np.array_equal(model.predict_proba(TEST[0]), free.predict_proba(TEST[0]))


def test_logistic_regression_takes_curved_rules():
    rule = gc.gap_norm([gc.fpr(), gc.tpr()], by="g") <= 0.08
    model = gc.ConstrainedLogisticRegression(constraints=[rule], n_iterations=300)
    plain = gc.ConstrainedLogisticRegression(constraints=[]).fit(TRAIN[0], TRAIN[1])
    model.fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])
    assert value(plain, rule) > 0.2
    assert value(model, rule) < 0.11


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"guarantee": "high_probability"}, "guarantee='high_probability' would take"),
        ({"iterate": "randomized"}, "iterate='randomized' would take"),
        ({"maximize": "g_mean"}, "decisions by maximize would take: leave maximize out"),
    ],
)
def test_what_needs_linear_rows_is_refused_before_training(given, message):
    with pytest.raises(ValueError, match=message):
        fit("xgboost", gc.gap(gc.precision(), by="g") <= 0.05, **given)


def test_sums_of_gaps_have_guarantees():
    model = fit("xgboost", AVERAGE_ODDS <= 0.3, guarantee="high_probability")
    assert value(model, AVERAGE_ODDS <= 0.3) <= 0.3


def test_the_svm_and_thresholds_of_groups_refuse_curved_rules():
    rule = gc.gap(gc.precision(), by="g") <= 0.05
    with pytest.raises(ValueError, match="ConstrainedLinearSVC would take"):
        gc.ConstrainedLinearSVC(constraints=[rule]).fit(
            TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2]
        )
    X = TRAIN[0].assign(g=TRAIN[2]["g"].astype("category"))
    model = gc.ConstrainedLGBMClassifier(
        constraints=[rule], group_thresholds=True, verbose=-1, **OPTIONS
    )
    with pytest.raises(ValueError, match="group_thresholds=True would take"):
        model.fit(X, TRAIN[1])


@EITHER
@pytest.mark.parametrize(
    "rule",
    [AVERAGE_ODDS <= 0.1, gc.gap(gc.precision(), by="g") <= 0.1, f1_macro() >= 0.6],
    ids=str,
)
def test_models_are_saved_with_their_rules(library, rule, tmp_path):
    model = CLASSIFIERS[library](constraints=[rule], measure_on="train")
    model.fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])
    path = tmp_path / ("model.json" if library == "xgboost" else "model.txt")
    model.save_model(path)
    loaded = CLASSIFIERS[library]()
    loaded.load_model(path)
    assert loaded.constraints == [rule]
    assert np.array_equal(loaded.predict(TEST[0]), model.predict(TEST[0]))


def test_a_page_of_a_model_has_the_formula():
    model = fit("xgboost", gc.gap_norm([gc.fpr(), gc.precision()], by="g") <= 0.3)
    assert "\N{DOUBLE VERTICAL LINE}" in model._repr_html_()
    assert "g_mean" in fit("xgboost", g_mean() >= 0.5)._repr_html_()
