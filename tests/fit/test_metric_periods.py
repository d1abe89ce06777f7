"""Periods of fits whose objective is a metric, and of native training functions."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.metrics import recall_score

import gbm_constrained as gc
from gbm_constrained.lightgbm import train as train_lightgbm
from gbm_constrained.plotting import plot_periods
from gbm_constrained.solvers import Reduction
from gbm_constrained.xgboost import train as train_xgboost

KINDS = {
    "xgboost": (gc.ConstrainedXGBClassifier, {"n_estimators": 8, "n_jobs": 1}),
    "lightgbm": (gc.ConstrainedLGBMClassifier, {"n_estimators": 8, "n_jobs": 1, "verbose": -1}),
}
FORWARD = {"measure_on": gc.Forward(3), "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def draw(n=800):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = (X[:, 0] + rng.normal(size=n) > 1.0).astype(int)
    return X, y, rng.permutation(n)


@pytest.mark.parametrize("library", KINDS)
def test_a_metric_and_its_constraints_have_a_value_in_each_period(library):
    kind, more = KINDS[library]
    X, y, time = draw()
    model = kind(maximize="g_mean", constraints=[gc.fpr() <= 0.3],
                 solver=Reduction(deterministic=True), **FORWARD,
                 **more).fit(X, y, time=time)  # fmt: skip
    found = model.period_report_
    assert found["constraint"].tolist() == ["fpr <= 0.3"] * 3 + ["g_mean"] * 3
    assert found["rows"].tolist()[3:] == [200, 200, 200]
    assert found["first"].tolist()[3:] == [200, 400, 600]
    of_metric = found.iloc[3:]
    assert of_metric["bound"].isna().all()
    assert of_metric["drifts"].isna().all()
    assert (of_metric["low"] <= of_metric["value"]).all()
    assert (of_metric["value"] <= of_metric["high"]).all()
    # All periods have about as many rows of each class, so that their mean is near the whole.
    held_out = model.metric_report_.loc[model.metric_report_["is_returned"], "held_out"].iloc[0]
    assert of_metric["value"].mean() == pytest.approx(held_out, abs=0.02)
    named = [text.get_text() for text in plot_periods(found).get_legend().get_texts()]
    assert named == ["fpr <= 0.3", "g_mean", "bound"]


def test_the_value_of_a_period_is_that_of_boosters_of_the_periods_before():
    """Boosters of one period each, grown by hand, at the threshold that the fit has chosen."""
    X, y, time = draw()
    kind, more = KINDS["lightgbm"]
    model = kind(minimize=gc.fnr() + gc.fpr(), solver=Reduction(deterministic=True),
                 **FORWARD, **more).fit(X, y, time=time)  # fmt: skip
    for k, value in enumerate(model.period_report_["value"], start=1):
        past, now = time < 200 * k, (time >= 200 * k) & (time < 200 * (k + 1))
        plain = lgb.LGBMClassifier(random_state=0, **more).fit(X[past], y[past])
        score = plain.predict(X[now], raw_score=True) + model.shift_
        decided = (score > 0).astype(int)
        wrong = 2.0 - recall_score(y[now], decided) - recall_score(1 - y[now], 1 - decided)
        assert value == pytest.approx(wrong, abs=1e-9)


def test_random_folds_have_no_periods():
    X, y, time = draw(400)
    kind, more = KINDS["xgboost"]
    model = kind(maximize="g_mean", measure_on=gc.CrossFit(2), **more).fit(X, y)
    assert not hasattr(model, "period_report_")
    with pytest.raises(ValueError, match="time= orders the rows of measure_on='forward'"):
        kind(maximize="g_mean", measure_on=gc.CrossFit(2), **more).fit(X, y, time=time)


def test_native_functions_take_times():
    X, y, time = draw()
    rules = [gc.fnr() <= 0.3]
    dtrain = xgb.DMatrix(X, label=y)
    options = {"measure_on": gc.Forward(3)}
    masks = []

    def make_matrix(part):
        masks.append(part)
        return xgb.DMatrix(X[part], label=y[part])

    booster = train_xgboost(
        {"nthread": 1}, dtrain, 8, constraints=rules, time=time, verbose_eval=False,
        make_matrix=make_matrix, **options,
    )  # fmt: skip
    assert booster.period_report_["first"].tolist() == [200, 400, 600]
    windows = {(time[part].min(), time[part].max()) for part in masks}
    past = {(0, 199), (0, 399), (0, 599)}
    assert windows == past | {(200, 399), (400, 599), (600, 799)}
    quantiles = xgb.QuantileDMatrix(X, label=y)
    with pytest.raises(ValueError, match="this QuantileDMatrix cannot be divided"):
        train_xgboost({}, quantiles, 8, constraints=rules, time=time, **options)
    booster = train_lightgbm(
        {"num_threads": 1, "verbosity": -1}, lgb.Dataset(X, label=y, free_raw_data=False), 8,
        constraints=rules, time=time, **options,
    )  # fmt: skip
    kind, more = KINDS["lightgbm"]
    model = kind(constraints=rules, **options, **more).fit(X, y, time=time)
    pd.testing.assert_frame_equal(booster.period_report_, model.period_report_)


def test_doubts_about_windows_are_about_time():
    """Another column speaks of the label in the second period, which one booster has not seen."""
    rng = np.random.default_rng(1)
    n, period = 3000, np.repeat(np.arange(3), 1000)
    X = rng.normal(size=(n, 2))
    y = (np.where(period == 1, X[:, 1], X[:, 0]) + 0.3 * rng.normal(size=n) > 0).astype(int)
    kind, more = KINDS["lightgbm"]
    model = kind(constraints=[gc.fnr() <= 0.3], measure_on=gc.Forward(2), **more)
    model.fit(X, y, time=period)
    assert model.feasibility_.unsteady
    assert "period_report_ shows whether the values move with time" in str(model.feasibility_)
