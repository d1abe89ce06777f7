"""``--time``: rows in the order of a column, for folds, the rows held out and audits."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import TINY
from helpers import BOTH, CLASSIFIERS

import gbm_constrained as gc

N = 600


def write(name="t.csv", n=N, **columns):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    y = (x + rng.normal(size=n) > 0.5).astype(int)
    days = pd.date_range("2026-01-01", periods=n // 4).repeat(4)
    table = pd.DataFrame({"x": x, "y": y, "day": days.strftime("%Y-%m-%d")})
    table = table.assign(**columns).sample(frac=1.0, random_state=1)
    table.to_csv(name, index=False)
    return table.reset_index(drop=True)


@BOTH
def test_a_fit_over_time_is_that_of_python(library, run):
    table = write()
    done = run.fit(library, "--constraint", "fnr <= 0.3", "--time=day", "--json=report.json",
                   table="t.csv", target="y")  # fmt: skip
    assert done.code in (0, 1), done.err
    assert "480 rows to train on, 120 held out" in done.out
    order = np.argsort(table["day"], kind="stable")
    train, later = np.sort(order[:480]), np.sort(order[480:])
    more = {} if library == "xgboost" else {"verbose": -1}
    model = CLASSIFIERS[library](
        constraints=[gc.fnr() <= 0.3],
        random_state=0,
        **{**TINY, "measure_on": gc.Forward(2)},
        **more,
    )
    X, y, day = table[["x"]], table["y"], table["day"]
    model.fit(X.iloc[train], y[train], time=day[train])
    expected = gc.audit(
        model, X.iloc[later], y[later], [gc.fnr() <= 0.3], time=day[later].to_numpy()
    ).periods
    report = json.loads(Path("report.json").read_text())
    found = pd.DataFrame(report["periods"])
    assert found["value"].tolist() == pytest.approx(expected["value"].tolist())
    assert found["last"].tolist() == expected["last"].tolist()
    assert found["last"].iloc[-1] == day.max()


def test_an_audit_has_as_many_periods_as_times(run):
    write()
    done = run.fit("xgboost", "--constraint=fnr <= 0.3", "--drop=day", table="t.csv", target="y")
    assert done.code in (0, 1), done.err
    for name, n_periods in (("all", 5), ("three", 3), ("one", 0)):
        times = {"all": np.arange(N), "three": np.arange(N) % 3, "one": np.zeros(N, int)}[name]
        write(f"{name}.csv", day=times)
        report = run.report_of("audit", "xgboost", "--time=day", table=f"{name}.csv", target="y")
        assert len(report["periods"]) == n_periods


def test_random_folds_go_with_later_rows_to_audit(run):
    write()
    more = ["--constraint=fnr <= 0.3", "--time=day", "--measure-on=crossfit"]
    report = run.report_of("fit", "xgboost", *more, table="t.csv", target="y")
    assert report["n_rows"] == 120
    assert len(report["periods"]) == 5


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        (["--measure-on=forward"], {}, "--measure-on forward trains on earlier"),
        (["--time=month"], {}, "--time: .*no column 'month'"),
        (["--time=day", "--drop=day"], {}, "this column is --time already"),
        (["--time=day"], {"day": np.where(np.arange(N) < 9, "", "2026-01-01")}, "is missing in 9"),
        (["--time=day"], {"day": 1}, "1 different values.* give finer times"),
        (["--time=day"], {"y": (np.arange(N) < 300).astype(int)}, "leaves rows of .0. alone"),
    ],
)
def test_times_that_order_no_rows_are_refused(options, columns, message, run):
    write(**columns)
    done = run.fit("xgboost", "--constraint=fnr <= 0.3", *options, table="t.csv", target="y")
    assert done.code == 2
    assert pd.Series([done.err]).str.contains(message).all(), done.err
