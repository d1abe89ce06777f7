"""Tables in CSV and Parquet: columns, features, groups and labels, and times of rows."""

from __future__ import annotations

import json
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from command_line import MODEL, TINY, coded_rows, write_rows
from helpers import CLASSIFIERS, EITHER

import gbm_constrained as gc
from gbm_constrained.cli.model_files import open_model


def model_of_file(library):
    """The library's own part of the file, without the seconds that training took."""
    if library == "xgboost":
        return open_model("model.json").booster.save_raw("json")
    return lgb.Booster(model_file="model.txt").model_to_string()


def needs_pyarrow():
    pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")


# --- reading ------------------------------------------------------------------------------------


@EITHER
def test_parquet_is_read_as_csv_is(library, run, adult_rows):
    needs_pyarrow()
    adult_rows.iloc[:2000].drop(columns="y").to_parquet("train.parquet")
    run.fit(library, "--constraint=fpr <= 0.1")
    first = model_of_file(library)
    run.fit(library, "--constraint=fpr <= 0.1", table="train.parquet", target="income")
    assert model_of_file(library) == first


def test_columns_of_large_csv_are_of_one_kind(run):
    """Pandas would read such a table in two chunks."""
    zeros = pd.DataFrame(np.zeros((1200, 1000), dtype=int))
    zeros["zip"] = ["010"] * 1100 + ["A1"] * 100
    zeros["y"] = np.arange(1200) % 2
    zeros.to_csv("train.csv", index=False)
    done = run.fit("xgboost", "--test-fraction=0", table="train.csv")
    assert done.code == 0, done.err
    assert open_model("model.json").find_categories(zeros)["zip"] == ["010", "A1"]


def test_rows_of_csv_may_end_in_a_comma(run):
    """For pandas they have an index in front, and each name the values of the next column."""
    library = "lightgbm"
    for name in ("train.csv", "new.csv"):
        header, *rows = (run.files / name).read_text().splitlines()
        Path(name).write_text("\n".join([header, *(f"{row}," for row in rows)]))
    constraint = ["--constraint", "gap(fpr, by=sex) <= 0.1", "--sensitive=sex"]
    whole = run.fit(library, *constraint)
    assert "accuracy" in whole.out
    assert run.fit(library, *constraint, table="train.csv", target="income").out == whole.out
    whole = run.audit(library, *constraint)
    audited = run.audit(library, *constraint, table="new.csv", target="income")
    assert (audited.out, audited.err) == (whole.out, whole.err)


def test_names_that_several_columns_have_are_refused(run):
    """Pandas would number them: a second target among the features gives the label away."""
    library = "lightgbm"
    for name in ("y", "NA", "1"):
        Path("t.csv").write_text(f"{name},y,{name}\n1,0,0\n2,1,1\n")
        done = run.fit(library, table="t.csv")
        assert (done.code, done.out) == (2, "")
        assert f"error: t.csv has several columns {name!r}: give each its" in done.err
    rows = "".join(f"{i},{i % 3},{i % 2},,\n" for i in range(40))
    Path("t.csv").write_text(f"1,1.0,y,,\n{rows}")
    unnamed = ["--drop=Unnamed: 3", "--drop=Unnamed: 4"]
    assert run.fit(library, *unnamed, "--quiet", table="t.csv").code == 0


def test_endings_in_capitals_are_the_same_endings(run):
    library = "lightgbm"
    Path("TRAIN.CSV").write_bytes((run.files / "train.csv").read_bytes())
    capitals = run.fit(library, table="TRAIN.CSV", target="income")
    assert capitals.code == 0
    assert capitals.out == run.fit(library).out


def test_named_indices_of_parquet_are_columns(run):
    needs_pyarrow()
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=100), "b": rng.normal(size=100)})
    table["y"] = (table["a"] > 0.0).astype(int)
    table.set_index("a").to_parquet("one.parquet")
    table.set_index(["a", table.index]).to_parquet("two.parquet")
    table[table["b"] > -9.0].to_parquet("none.parquet")
    for name in ("one", "two", "none"):
        run.fit("xgboost", "--quiet", table=f"{name}.parquet")
        assert open_model("model.json").features == ["a", "b"]


def test_columns_of_parquet_with_several_levels_have_one_name(run):
    needs_pyarrow()
    rng = np.random.default_rng(0)
    table = pd.DataFrame({("x", "a"): rng.normal(size=200), ("x", "b"): rng.normal(size=200)})
    table["y", ""] = (table["x", "a"] > 0.0).astype(int)
    table.to_parquet("t.parquet")
    done = run.fit("xgboost", "--test-fraction=0", table="t.parquet", target="('y', '')")
    assert done.code == 0, done.err
    assert open_model("model.json").features == ["('x', 'a')", "('x', 'b')"]
    done = run.fit("xgboost", table="t.parquet")
    assert "t.parquet has no column 'y'" in done.err


# --- features -----------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("name", ["a, b", "a[0]", "a < b"])
def test_columns_that_a_library_does_not_train_on_are_named(library, name, run):
    write_rows(n=40, **{name: np.arange(40)})
    done = run.fit(library, table="t.csv")
    is_taken = name == {"xgboost": "a, b", "lightgbm": "a < b"}[library]
    assert done.code == (0 if is_taken else 2)
    said = f"in their names, as {name!r} has: rename or --drop it."
    assert (said in done.err) == (not is_taken)
    assert run.fit(library, f"--drop={name}", table="t.csv").code == 0


def test_an_index_among_the_features_is_named(run):
    """DataFrame.to_csv writes the index first, which holds in what order the rows came."""
    write_rows().to_csv("t.csv")
    given = {"table": "t.csv"}
    done = run.fit("xgboost", "--test-fraction=0", **given)
    assert "'Unnamed: 0' is a feature: --drop it" in done.out
    done = run.fit("xgboost", "--test-fraction=0", "--drop=Unnamed: 0", **given)
    assert "is a feature" not in done.out
    assert open_model("model.json").features == ["x"]


def test_texts_that_name_rows_are_named(run):
    """Dates of CSV are texts, and a text that a single row has says nothing of other rows."""
    days, halves = pd.date_range("2026-01-01", periods=200), [f"h{i // 2}" for i in range(200)]
    write_rows(day=days, half=halves)
    done = run.fit("xgboost", "--test-fraction=0", table="t.csv")
    assert "day has 200 distinct texts: --drop it if it names rows" in done.out
    assert "half has" not in done.out


@EITHER
@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_columns_without_any_value_are_trained_on(library, missing, run):
    needs_pyarrow()
    more = {"g": ["u", "v"] * 100, "empty": pd.Series([missing] * 200, dtype=object)}
    for name in ("t.parquet", "t.csv"):
        write_rows(name, **more)
    for written in ("t.parquet", "t.csv"):
        done = run.fit(library, "--constraint=fpr <= 0.9", table=written)
        assert done.code == 0, done.err
        for read in ("t.parquet", "t.csv"):
            done = run.audit(library, table=read)
            assert done.code == 0, done.err


# --- values of groups and labels ----------------------------------------------------------------


def groups_of(report):
    return [row["group"] for row in report["groups"]]


GAP = "--constraint=gap(selection_rate, by=g) <= 0.9"


@EITHER
@pytest.mark.parametrize(
    ("codes", "groups"),
    [
        (["01", "1", "00001"], ["g=00001", "g=01", "g=1"]),
        (["02134", "90210"], ["g=02134", "g=90210"]),
        (["1e5", "2e5"], ["g=1e5", "g=2e5"]),
        (["1.10", "1.1", "2"], ["g=1.1", "g=1.10", "g=2"]),
        (["+1", "1"], ["g=+1", "g=1"]),
        (["1", "2", "10"], ["g=1", "g=2", "g=10"]),
        (["1.0", "2.0"], ["g=1", "g=2"]),
        (["1.50", "2.25", "3"], ["g=1.5", "g=2.25", "g=3.0"]),
        (["1", "2", ""], ["g=1", "g=2", "g=missing"]),
        (["01", "02", ""], ["g=01", "g=02", "g=missing"]),
        (["True", "False"], ["g=False", "g=True"]),
        (["true", "FALSE", ""], ["g=False", "g=True", "g=missing"]),
        (["9007199254740993", "9007199254740992", ""],
         ["g=9007199254740992", "g=9007199254740993", "g=missing"]),
    ],
    ids=str,
)  # fmt: skip
def test_groups_of_csv_are_as_they_are_written(library, codes, groups, run):
    """pandas reads 01, 1 and 00001 as the number 1, and they were one group."""
    coded_rows(codes).to_csv("t.csv", index=False)
    report = run.report_of("fit", library, GAP, "--sensitive=g", table="t.csv")
    assert groups_of(report) == groups
    assert groups_of(run.report_of("audit", library, table="t.csv")) == groups


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, 2, 3]),
        pd.Series([1.0, 2.0, np.nan]),
        pd.Series([1.5, 2.0, 4.0]),
        pd.Series([1, 2, None], dtype="Int64"),
        pd.Series(["1", "2", "10"]),
        pd.Series(["01", "1", None]),
        pd.Series([True, False, True]),
        pd.Series([True, False, None], dtype="boolean"),
        pd.Series(["a", "b", None]).astype("category"),
        pd.Series([3, 1, 2]).astype("category"),
        pd.to_datetime(pd.Series(["2020-01-01", "2021-01-01", None])),
    ],
    ids=lambda column: f"{column.dtype}-{column[0]}",
)
def test_groups_of_parquet_and_csv_are_named_alike(column, run):
    needs_pyarrow()
    table = coded_rows([0, 1, 2]).drop(columns="g")
    table.to_csv("x.csv", index=False)
    run.fit("lightgbm", "--quiet", table="x.csv")
    table["g"] = column.take(np.arange(len(table)) % 3).reset_index(drop=True)
    table.to_csv("t.csv", index=False)
    table.to_parquet("t.parquet")
    csv, parquet = (
        sorted(
            (row["group"], row["rate"])
            for row in run.report_of("audit", "lightgbm", GAP, table=name)["groups"]
        )
        for name in ("t.csv", "t.parquet")
    )
    assert len(csv) > 1
    assert csv == parquet


@EITHER
def test_numbers_that_constraints_group_by_are_numbers_to_the_model(library, run):
    """The groups are texts, the feature is what pandas makes of it."""
    coded_rows(["01", "1", "2"]).to_csv("t.csv", index=False)
    report = run.report_of("fit", library, GAP, table="t.csv")
    assert groups_of(report) == ["g=01", "g=1", "g=2"]
    model = open_model(MODEL[library])
    assert model.features == ["x", "g"]
    assert model.find_categories(pd.read_csv("t.csv")[["x", "g"]]) == {}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_constraints_that_name_a_value_by_its_text_find_it(form, run):
    """Whole numbers are texts where a constraint says so."""
    if form == "parquet":
        needs_pyarrow()
    write = f"to_{form}"
    table = coded_rows([1, 2])
    getattr(table.astype({"g": int}), write)(f"t.{form}", index=False)
    for text in ('selection_rate(on={g: "1"}) <= 0.9', "selection_rate(on={g: 1}) <= 0.9",
                 'gap(selection_rate, by=g, reference="1") <= 0.9'):  # fmt: skip
        done = run.fit("lightgbm", f"--constraint={text}", table=f"t.{form}")
        assert done.code in (0, 1), done.err
    getattr(coded_rows(["01", "2"]), write)(f"t.{form}", index=False)
    text = "--constraint=selection_rate(on={g: 1}) <= 0.9"
    done = run.fit("lightgbm", text, table=f"t.{form}")
    assert done.code == 2
    assert "selects no row: the values of 'g' are ['01', '2']." in done.err


@EITHER
def test_labels_and_decisions_of_csv_are_as_they_are_written(library, run):
    table = coded_rows(["a", "b"])
    table["y"] = np.where(table["y"] == 1, "01", "1")
    table["old"] = np.where(table["x"] > 0, "01", "1")
    table["same"] = "1"
    table.to_csv("t.csv", index=False)
    more = ["--constraint=churn(to=old) <= 0.9; churn(to=same) <= 1", "--sensitive=old"]
    done = run.fit(library, *more, "--sensitive=same", table="t.csv")
    assert done.code in (0, 1), done.err
    assert "labels ['01', '1']" in done.out


def test_texts_that_pandas_takes_as_missing_are_named(run):
    """NA may be a region; the group is called missing, as in the documentation."""
    coded_rows(["NA", "EU", "", "None"]).to_csv("t.csv", index=False)
    done = run.fit("lightgbm", "--sensitive=g", GAP, table="t.csv")
    assert "g: 'NA' is a missing value (100 rows)" in done.out
    assert "g: 'None' is a missing value (100 rows)" in done.out
    assert done.out.count("is a missing value") == 2
    assert "g=missing" in done.out


@EITHER
def test_texts_that_all_look_like_numbers_are_texts(library, run):
    rng = np.random.default_rng(0)
    codes = rng.choice(["012", "120", "1e1", "K1A"], 400)
    table = pd.DataFrame({"zip": codes, "x": rng.normal(size=400)})
    table["y"] = ((codes == "012") ^ (table["x"] > 1.0)).astype(int)
    table.to_csv("train.csv", index=False)
    run.fit(library, "--quiet", table="train.csv")
    model = open_model(MODEL[library]).name_classes([0, 1])
    known = table[table["zip"].isin(["012", "120"])]
    expected = np.mean(model.predict(model.take_features(known)) == known["y"])
    known.to_csv("new.csv", index=False)
    report = run.report_of("audit", library, "--constraint=accuracy >= 0.5", table="new.csv")
    assert report["accuracy"]["value"] == expected
    # Numbers of a table that has types are compared as they are written.
    numbers = pd.DataFrame({"zip": [120.0, 12.0, np.nan], "x": 0.0})
    assert model.take_features(numbers)["zip"].isna().tolist() == [False, True, True]


@EITHER
@pytest.mark.parametrize("labels", [["0", "1", "2+"], ["01", "02", "x"]])
def test_labels_that_all_look_like_numbers_are_those_of_the_model(library, labels, run):
    x = np.random.default_rng(0).normal(size=400)
    table = pd.DataFrame({"x": x, "y": np.array(labels)[np.digitize(x, [-0.5, 0.5])]})
    table.to_csv("train.csv", index=False)
    run.fit(library, "--quiet", table="train.csv")
    table[table["y"] != labels[2]].to_csv("new.csv", index=False)
    text = f'--constraint=class_error("{labels[1]}") <= 0.5'
    done = run.audit(library, text, table="new.csv")
    assert done.code == 0, done.err


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


@EITHER
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
