"""``gbm-constrained`` under means over predicted numbers: regressors, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from command_line import MODEL, TINY
from helpers import EITHER
from sklearn.model_selection import train_test_split

import gbm_constrained as gc

REGRESSORS = {"xgboost": gc.ConstrainedXGBRegressor, "lightgbm": gc.ConstrainedLGBMRegressor}
PARENTS = {"xgboost": xgb.XGBRegressor, "lightgbm": lgb.LGBMRegressor}
QUIET = {"xgboost": {"enable_categorical": True}, "lightgbm": {"verbose": -1}}
RULES = "gap(mean_prediction, by=g) <= 0.3; each(mean_loss(squared), by=g) <= 2"
GAP = "--constraint=gap(mean_prediction, by=g) <= 0.3"


@pytest.fixture
def table():
    """Write two groups whose means are one apart, a feature of texts, and weights."""
    rng = np.random.default_rng(0)
    n = 600
    g, c = rng.choice(["a", "b"], n, p=[0.7, 0.3]), rng.choice(["u", "v"], n)
    x = rng.normal(size=n) + (g == "b")
    y = x + 0.5 * (c == "u") + 0.5 * rng.normal(size=n)
    made = pd.DataFrame({"x": x, "c": c, "g": g, "w": rng.integers(1, 4, n), "y": y}).round(4)
    made.to_csv("t.csv", index=False)
    return made


def features(table):
    return table[["x", "c"]].astype({"c": "category"})


@EITHER
def test_a_fit_is_the_fit_of_python(library, run, table):
    done = run.fit(
        library, f"--constraint={RULES}", "--sensitive=g", "--weight=w", "--seed=3",
        "--measure-on=crossfit", "--json=r.json", "--html=r.html", table="t.csv",
    )  # fmt: skip
    assert done.code in (0, 1), done.err
    assert "480 rows to train on, 120 held out; targets from " in done.out
    rows, test = train_test_split(
        np.arange(600), test_size=0.2, stratify=np.zeros(600), random_state=3
    )
    rows, test = np.sort(rows), np.sort(test)
    model = REGRESSORS[library](
        constraints=gc.parse_constraints(RULES), random_state=3, **TINY, **QUIET[library]
    )
    model.fit(
        features(table).iloc[rows],
        table["y"][rows],
        sample_weight=table["w"][rows],
        sensitive_features=table[["g"]].iloc[rows],
    )
    expected = model.predict(features(table).iloc[test])
    if library == "xgboost":
        plain = xgb.XGBRegressor()
        plain.load_model("model.json")
    else:
        plain = lgb.Booster(model_file="model.txt")
    np.testing.assert_array_equal(plain.predict(features(table).iloc[test]), expected)
    report = json.loads(Path("r.json").read_text())
    assert report["quality"] == "R^2"
    assert report["classes"] == []
    g, w, y = (table[name][test].to_numpy() for name in "gwy")
    means = [np.average(expected[g == k], weights=w[g == k]) for k in "ab"]
    assert report["constraints"][0]["value"] == pytest.approx(abs(np.diff(means)[0]), rel=1e-6)
    losses = [np.average((expected - y)[g == k] ** 2, weights=w[g == k]) for k in "ab"]
    assert report["constraints"][1]["value"] == pytest.approx(max(losses), rel=1e-6)
    assert report["history"] is not None
    assert Path("r.html").read_text(encoding="utf-8").startswith("<!")
    is_met = all(row["verdict"] == "met" for row in report["constraints"])
    assert done.code == (0 if is_met else 1)


@EITHER
def test_files_keep_their_constraints(library, run, table):
    assert run.fit(library, GAP, "--sensitive=g", "--quiet", table="t.csv").code in (0, 1)
    found = run.report_of("audit", library, table="t.csv")
    assert [row["constraint"] for row in found["constraints"]] == [
        "gap(mean_prediction, by='g') <= 0.3"
    ]
    again = run.report_of("audit", library, GAP, table="t.csv")
    assert again["constraints"] == found["constraints"]


@EITHER
@pytest.mark.filterwarnings("ignore:group_.* lets the group")
def test_groups_decide_where_they_are_features(library, run, table):
    """Constraints and trees then read the group from one column."""
    asked = GAP, "--param=group_shifts=True", "--quiet"
    assert run.fit(library, *asked, table="t.csv").code in (0, 1)
    path = MODEL[library]
    model = REGRESSORS[library]()
    model.load_model(path)
    assert model.group_shifts_["g"].tolist() == ["a", "b"]
    assert model.group_shifts_["shift"].nunique() == 2
    table.assign(y=table["y"] > table["y"].mean()).to_csv("t.csv", index=False)
    asked = "--constraint=gap(selection_rate, by=g) <= 0.1", "--param=group_thresholds=True"
    assert run.fit(library, *asked, "--quiet", table="t.csv").code in (0, 1)


@EITHER
@pytest.mark.parametrize("is_bare", [False, True])
def test_any_regressor_is_audited(library, is_bare, run, table):
    """A file of the estimator names its kind; of one of a booster the objective tells it."""
    more = {"objective": "poisson" if library == "lightgbm" else "count:poisson"}
    y = table["y"] - table["y"].min()
    table.assign(y=y).to_csv("t.csv", index=False)
    model = PARENTS[library](n_estimators=5, n_jobs=1, **more, **QUIET[library])
    model.fit(features(table), y)
    booster = model.booster_ if library == "lightgbm" else model.get_booster()
    if is_bare and library == "xgboost":
        booster.set_attr(scikit_learn=None)
    booster.save_model(MODEL[library])
    report = run.report_of("audit", library, "--constraint=mean_prediction <= 9", table="t.csv")
    predicted = model.predict(features(table))
    assert report["constraints"][0]["value"] == pytest.approx(predicted.mean(), rel=1e-6)
    loss = np.mean((predicted - y) ** 2)
    assert report["accuracy"]["value"] == pytest.approx(1.0 - loss / np.var(y), rel=1e-6)


@EITHER
def test_objectives_have_parameters_of_their_own(library, run, table):
    given = {
        "xgboost": ["objective=reg:quantileerror", "quantile_alpha=0.8"],
        "lightgbm": ["objective=quantile", "alpha=0.8"],
    }[library]
    done = run.fit(
        library, *map("--param={}".format, given), "--constraint=coverage >= 0.7", "--drop=g",
        "--test-fraction=0", table="t.csv",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "600 rows to train on, 0 held out" in done.out
    assert "coverage >= 0.7" in done.out


def test_groups_that_were_not_held_out_are_refused_before_the_fit(run, table):
    table.assign(g=np.where(table.index == 0, "rare", "b")).to_csv("t.csv", index=False)
    rule = "--constraint=mean_prediction(on={g: rare}) <= 1"
    done = run.fit("xgboost", rule, "--sensitive=g", table="t.csv")
    assert done.code == 2
    assert "This is about the " in done.err
    assert not Path("model.json").exists()


def test_an_audit_has_the_periods_of_a_column(run, table):
    table.assign(day=np.arange(len(table))).to_csv("days.csv", index=False)
    done = run.fit(
        "lightgbm", GAP, "--sensitive=g", "--time=day", "--json=r.json", table="days.csv"
    )
    assert done.code in (0, 1), done.err
    periods = pd.DataFrame(json.loads(Path("r.json").read_text())["periods"])
    assert periods["period"].tolist() == [1, 2, 3, 4, 5]
    assert periods["first"].iloc[0] == 480
    assert periods["last"].iloc[-1] == 599


def test_a_guarantee_is_that_of_python(run, table):
    rule = "mean_loss(squared, range=[0, 30]) <= 9"
    done = run.fit(
        "lightgbm", f"--constraint={rule}", "--guarantee=high_probability", "--delta=0.1",
        "--json=r.json", table="t.csv",
    )  # fmt: skip
    assert done.code == 0, done.err
    loaded = gc.ConstrainedLGBMRegressor()
    loaded.load_model(MODEL["lightgbm"])
    assert loaded.get_params()["guarantee__delta"] == 0.1
    assert loaded.feasibility_.level == 0.1
    assert loaded.feasibility_.p_value <= 0.1
    assert loaded.constraints == [gc.parse_constraint(rule)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--constraint=fpr <= 0.1"], "fpr <= 0.1 bounds a rate of predicted classes, and a regr"),
        (["--positive=1"], "--positive is about classes, and --constraint gap("),
        (["--metric=g_mean"], "--metric is about classes, and"),
        (["--maximize=g_mean"], "--maximize is about classes, and"),
        (["--minimize=cost([[0, 1], [5, 0]])"], "--minimize is about classes, and"),
        (["--guarantee=high_probability"], "gap(mean_prediction, by='g') <= 0.3: values of a row"),
        (["--target=c"], "--target c holds 'v', which is no number, and the constraints are abou"),
        (["--target=missing"], "--target missing: 1 rows have no value, the first is row 7: take"),
        (["--target=infinite"], "--target infinite is inf in row 3: drop those rows, or clip"),
        (["--target=flat"], "--target flat holds one number only, 1."),
        (["--param=huber_slop=3"], "XGBoost has no parameter huber_slop: "),
        (["--param=huber_slope=3"], "XGBoost has no parameter huber_slope: "),  # of another loss
        (["--param=objective=reg:squaredlogerror"], "reg:squaredlogerror"),
        (["--test-fraction=0.9999"], "--test-fraction 0.9999 holds out 600 of 600 rows, and both"),
    ],
)
def test_bad_input_is_refused(more, message, run, table):
    others = table.assign(flat=1.0, missing=table["x"], infinite=table["x"])
    others.loc[7, "missing"] = np.nan
    others.loc[3, "infinite"] = np.inf
    others.to_csv("t.csv", index=False)
    done = run.fit("xgboost", GAP, *more, table="t.csv", target="y")
    assert done.code == 2
    assert message in done.err
    assert not Path("model.json").exists()


@EITHER
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--constraint=fpr <= 0.1"], "fpr <= 0.1 bounds a rate of predicted classes, and a regr"),
        (["--metric=g_mean"], "--metric is about classes, and {} predicts numbers: leave it out"),
        (["--positive=1", GAP], "--positive is about classes, and {} predicts numbers"),
        ([], "{} has no constraints with it: give at least one --constraint"),
        (["--target=c", GAP], "--target c holds 'v', which is no number"),
    ],
)
def test_audits_of_regressors_refuse_classes(library, more, message, run, table):
    model = PARENTS[library](n_estimators=2, n_jobs=1, **QUIET[library])
    model.fit(features(table), table["y"])
    booster = model.booster_ if library == "lightgbm" else model.get_booster()
    booster.save_model(MODEL[library])
    done = run.audit(library, *more, table="t.csv")
    assert done.code == 2
    assert message.format(MODEL[library]) in done.err


@EITHER
def test_audits_of_classifiers_refuse_means(library, run):
    assert run.fit(library, "--constraint=fpr <= 0.5", "--quiet").code == 0
    done = run.audit(library, "--constraint=mean_prediction <= 1")
    assert done.code == 2
    assert "mean_prediction <= 1 bounds a mean over predicted numbers" in done.err
