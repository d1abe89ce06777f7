"""The command line: against the same fit in Python, the plain libraries; what it refuses."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS
from sklearn.model_selection import train_test_split

from gbm_constrained import churn, fpr, gap, parse_constraint, tpr
from gbm_constrained.cli import main as cli
from gbm_constrained.cli import model_files
from gbm_constrained.datasets import load_adult
from gbm_constrained.reporting.audit import Audit
from gbm_constrained.training.progress import Progress

ROOT = Path(__file__).parents[2]
MODEL = {"xgboost": "model.json", "lightgbm": "model.txt"}
LABELS = ["<=50K", ">50K"]
TINY = {"n_estimators": 10, "n_jobs": 1, "n_folds": 2, "learning_rate": 0.3}
TEXTS = [
    "workclass", "education", "marital-status", "occupation", "relationship", "race", "sex",
    "native-country",
]  # fmt: skip


@pytest.fixture(scope="module")
def adult_rows():
    """Adult with texts and named labels, as a file holds them, and the decisions of a rule."""
    data = load_adult(download=False)
    table = data.data.iloc[:3000].copy()
    for name in TEXTS:
        table[name] = table[name].astype(object)
    table["income"] = np.array(LABELS)[data.target.iloc[:3000]]
    table["old"] = np.where(table["education-num"] > 12, *LABELS[::-1])
    table["y"] = data.target.iloc[:3000]
    return table


@pytest.fixture(scope="module")
def files(adult_rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adult")
    for part, rows in (("train", slice(0, 2000)), ("new", slice(2000, None))):
        table = adult_rows.iloc[rows]
        table.drop(columns="y").to_csv(folder / f"{part}.csv", index=False)
        table.drop(columns="income").rename(columns={"old": "old model"}).to_csv(
            folder / f"{part}_01.csv", index=False
        )
    return folder


@pytest.fixture
def run(files, tmp_path, capsys, monkeypatch):
    """Run a command in an empty folder; exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        try:
            code = cli.main([str(a) for a in arguments])
        except SystemExit as stopped:
            code = stopped.code
        found = capsys.readouterr()
        assert "Traceback" not in found.err
        return SimpleNamespace(code=code, out=found.out, err=found.err)

    return command


def fit(library, files, *more, table="train.csv", target="income"):
    parameters = [f"--param={name}={value}" for name, value in TINY.items()]
    return [
        "fit", files / table, "--target", target, "--library", library, "--out", MODEL[library],
        *parameters, *more,
    ]  # fmt: skip


def equal(value):
    """The same number, summed in another order."""
    return pytest.approx(value, rel=1e-12, abs=1e-15)


def decisions(library, X):
    """Decisions of the plain library, as class positions, on text columns made categories."""
    if library == "xgboost":
        plain = xgb.XGBClassifier(n_jobs=1)
        plain.load_model("model.json")
        return plain.predict(X)
    return (lgb.Booster(model_file="model.txt").predict(X) > 0.5).astype(int)


def model_of_file(library):
    """The library's own part of the file, without the seconds that training took."""
    if library == "xgboost":
        booster = xgb.Booster(model_file="model.json")
        booster.set_attr(gbm_constrained=None)
        return booster.save_raw("json")
    return lgb.Booster(model_file="model.txt").model_to_string()


# --- against Python ---------------------------------------------------------------------------


@BOTH
def test_a_fit_is_the_fit_of_python(library, run, files, adult_rows):
    done = run(
        *fit(library, files, "--constraint", "fpr <= 0.08; gap(tpr, by=[sex]) <= 0.2"),
        "--sensitive=sex", "--sensitive=old", "--drop=fnlwgt", "--weight=age", "--seed=3",
        "--measure-on=crossfit", "--html=page.html", "--json=report.json",
    )  # fmt: skip
    assert done.code in (0, 1)
    assert "text columns as categories: workclass, education, marital-status" in done.out
    assert "1,600 rows to train on, 400 held out" in done.out

    table = adult_rows.iloc[:2000].reset_index(drop=True)
    X = table.drop(columns=["income", "old", "y", "sex", "fnlwgt", "age"])
    X = X.astype(dict.fromkeys([name for name in TEXTS if name != "sex"], "category"))
    rows, test = train_test_split(
        np.arange(2000), test_size=0.2, stratify=table["income"], random_state=3
    )
    rows, test = np.sort(rows), np.sort(test)
    more = {"enable_categorical": True} if library == "xgboost" else {"verbose": -1}
    rules = [fpr() <= 0.08, gap(tpr(), by="sex") <= 0.2]
    clf = CLASSIFIERS[library](
        constraints=rules, measure_on="crossfit", random_state=3, **TINY, **more
    )
    clf.fit(
        X.iloc[rows],
        table["y"][rows],
        sample_weight=table["age"][rows],
        sensitive_features=table[["sex"]].iloc[rows],
    )
    expected = clf.predict(X.iloc[test])
    np.testing.assert_array_equal(decisions(library, X.iloc[test]), expected)
    report = json.loads(Path("report.json").read_text())
    assert report["n_rows"] == 400
    assert report["weighted"] is True
    assert report["classes"] == LABELS
    y, w = table["y"][test].to_numpy(), table["age"][test].to_numpy()
    accuracy = np.average(expected == y, weights=w)
    assert report["accuracy"]["value"] == equal(accuracy)
    rate = np.average(expected[y == 0], weights=w[y == 0])
    assert report["constraints"][0]["value"] == equal(rate)
    assert report["history"] is not None
    assert Path("page.html").read_text(encoding="utf-8").startswith("<!")
    held = all(row["verdict"] == "met" for row in report["constraints"])
    assert done.code == (0 if held else 1)


@BOTH
def test_an_audit_is_of_the_decisions_of_the_plain_library(library, run, files, adult_rows):
    assert run(*fit(library, files, "--constraint=fpr <= 0.1", "--quiet")).out == ""
    done = run(
        "audit", MODEL[library], files / "new.csv", "--target=income", "--json=report.json",
        "--level=0.9", "--constraint=fpr <= 0.5", f'--constraint=recall("{LABELS[1]}") >= 0.1',
    )  # fmt: skip
    assert done.code == 0
    assert "Both constraints are met on 1,000 held-out rows." in done.out
    assert "does not name its classes" not in done.out
    table = adult_rows.iloc[2000:]
    known = {n: sorted(adult_rows.iloc[:2000][n].dropna().unique()) for n in TEXTS}
    X = table.drop(columns=["income", "y"]).assign(old=table["old"].astype("category"))
    for name, categories in known.items():
        known_value = X[name].isin(categories)
        X[name] = pd.Categorical(X[name].where(known_value), categories=categories)
    predicted = decisions(library, X)
    report = Audit.from_json(Path("report.json").read_text())
    assert report.accuracy.value == equal(np.mean(predicted == table["y"]))
    assert report.frame["value"][0] == equal(np.mean(predicted[table["y"] == 0]))
    assert report.level == 0.9


@BOTH
def test_parquet_is_read_as_csv_is(library, run, files, adult_rows):
    pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    adult_rows.iloc[:2000].drop(columns="y").to_parquet("train.parquet")
    rule = "--constraint=fpr <= 0.1"
    run(*fit(library, files, rule))
    first = model_of_file(library)
    run(*fit(library, files, rule, table=Path("train.parquet").absolute()))
    assert model_of_file(library) == first


def test_columns_of_large_csv_are_of_one_kind(run):
    """Pandas would read such a table in two chunks."""
    zeros = pd.DataFrame(np.zeros((1200, 1000), dtype=int))
    zeros["zip"] = ["010"] * 1100 + ["A1"] * 100
    zeros["y"] = np.arange(1200) % 2
    zeros.to_csv("train.csv", index=False)
    done = run(*fit("xgboost", Path().absolute(), "--test-fraction=0", target="y"))
    assert done.code == 0, done.err
    model = model_files.open_model("model.json")
    assert model.categories(zeros)["zip"] == ["010", "A1"]


@BOTH
def test_rows_of_csv_may_end_in_a_comma(library, run, files):
    """For pandas they have an index in front, and each name the values of the next column."""
    header, *rows = (files / "train.csv").read_text().splitlines()
    Path("t.csv").write_text("\n".join([header, *(f"{row}," for row in rows)]))
    rule = ["--constraint", "gap(fpr, by=sex) <= 0.1", "--sensitive=sex"]
    plain = run(*fit(library, files, *rule))
    assert "accuracy" in plain.out
    assert run(*fit(library, Path(), *rule, table="t.csv")).out == plain.out
    audited = run("audit", MODEL[library], "t.csv", "--target=income", *rule)
    whole = run("audit", MODEL[library], files / "train.csv", "--target=income", *rule)
    assert (audited.out, audited.err) == (whole.out, whole.err)


@BOTH
def test_names_that_several_columns_have_are_refused(library, run):
    """Pandas would number them: a second target among the features tells the label."""
    arguments = ["--target=y", f"--out={MODEL[library]}", f"--library={library}"]
    for name in ("y", "NA", "1"):
        Path("t.csv").write_text(f"{name},y,{name}\n1,0,0\n2,1,1\n")
        done = run("fit", "t.csv", *arguments)
        assert (done.code, done.out) == (2, "")
        assert f"error: t.csv has several columns {name!r}: give each its" in done.err
    rows = "".join(f"{i},{i % 3},{i % 2},,\n" for i in range(40))
    Path("t.csv").write_text(f"1,1.0,y,,\n{rows}")
    parameters = [f"--param={name}={value}" for name, value in TINY.items()]
    unnamed = ["--drop=Unnamed: 3", "--drop=Unnamed: 4"]
    assert run("fit", "t.csv", *arguments, *parameters, *unnamed, "--quiet").code == 0


@BOTH
def test_endings_in_capitals_are_the_same_endings(library, run, files):
    Path("TRAIN.CSV").write_bytes((files / "train.csv").read_bytes())
    capitals = run(*fit(library, files, table=Path("TRAIN.CSV").absolute()))
    assert capitals.code == 0
    assert capitals.out == run(*fit(library, files)).out


@BOTH
@pytest.mark.parametrize("name", ["a, b", "a[0]", "a < b"])
def test_columns_that_a_library_does_not_train_on_are_named(library, name, run):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=40), name: rng.normal(size=40), "y": [0, 1] * 20})
    table.to_csv("t.csv", index=False)
    arguments = ["--target=y", f"--out={MODEL[library]}", f"--library={library}"]
    parameters = [f"--param={name}={value}" for name, value in TINY.items()]
    done = run("fit", "t.csv", *arguments, *parameters)
    taken = {"xgboost": ["a, b"], "lightgbm": ["a < b"]}[library]
    assert done.code == (0 if name in taken else 2)
    said = f"in their names, as {name!r} has: rename or --drop it."
    assert (said in done.err) == (name not in taken)
    assert run("fit", "t.csv", *arguments, *parameters, f"--drop={name}").code == 0


@BOTH
def test_monotone_constraints_are_a_list(library, run):
    """JSON has no tuples, which XGBoost takes only."""
    x = np.random.default_rng(0).normal(size=300)
    pd.DataFrame({"x": x, "y": (np.abs(x) > 0.5).astype(int)}).to_csv("t.csv", index=False)
    arguments = ["fit", "t.csv", "--target=y", f"--out={MODEL[library]}", f"--library={library}"]
    arguments += ["--param=monotone_constraints=[1]", "--param=n_estimators=10", "--quiet"]
    assert run(*arguments).code == 0
    model = model_files.open_model(MODEL[library]).named([0, 1])
    probability = model.predict_proba(pd.DataFrame({"x": np.sort(x)}))[:, 1]
    assert (np.diff(probability) >= 0.0).all()
    assert np.ptp(probability) > 0.1


def test_an_index_among_the_features_is_told(run):
    """It is what DataFrame.to_csv writes first, and tells in what order the rows came."""
    table = pd.DataFrame({"a": np.random.default_rng(0).normal(size=200), "y": np.arange(200) % 2})
    table.to_csv("train.csv")
    arguments = [*fit("xgboost", Path().absolute(), target="y"), "--test-fraction=0"]
    assert "'Unnamed: 0' is a feature: --drop it" in run(*arguments).out
    assert "is a feature" not in run(*arguments, "--drop=Unnamed: 0").out
    assert model_files.open_model("model.json").features == ["a"]


def test_texts_that_name_rows_are_told(run):
    """Dates of CSV are texts, and a tree knows nothing of a row by the text that it alone has."""
    table = pd.DataFrame({"a": np.random.default_rng(0).normal(size=200), "y": np.arange(200) % 2})
    table["day"] = pd.date_range("2026-01-01", periods=200)
    table["half"] = [f"h{i // 2}" for i in range(200)]
    table.to_csv("train.csv", index=False)
    said = run(*fit("xgboost", Path().absolute(), "--test-fraction=0", target="y")).out
    assert "day has 200 distinct texts: --drop it if it names rows" in said
    assert "half has" not in said


@BOTH
@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_columns_without_any_value_are_trained_on(library, missing, run):
    pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=200), "g": rng.choice(["u", "v"], 200)})
    table["empty"] = pd.Series([missing] * 200, dtype=object)
    table["y"] = (table["a"] > 0.0).astype(int)
    table.to_parquet("rows.parquet")
    table.to_csv("rows.csv", index=False)
    rule = "--constraint=fpr <= 0.9"
    for written in ("rows.parquet", "rows.csv"):
        done = run(*fit(library, Path().absolute(), rule, table=written, target="y"))
        assert done.code == 0, done.err
        for read in ("rows.parquet", "rows.csv"):
            done = run("audit", MODEL[library], read, "--target=y", rule)
            assert done.code == 0, done.err


def test_named_indices_of_parquet_are_columns(run):
    pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=100), "b": rng.normal(size=100)})
    table["y"] = (table["a"] > 0.0).astype(int)
    table.set_index("a").to_parquet("one.parquet")
    table.set_index(["a", table.index]).to_parquet("two.parquet")
    table[table["b"] > -9.0].to_parquet("none.parquet")
    for name in ("one", "two", "none"):
        run(*fit("xgboost", Path().absolute(), table=f"{name}.parquet", target="y"), "--quiet")
        assert model_files.open_model("model.json").features == ["a", "b"]


def test_columns_of_parquet_with_several_levels_have_one_name(run):
    pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({("x", "a"): rng.normal(size=200), ("x", "b"): rng.normal(size=200)})
    table["y", ""] = (table["x", "a"] > 0.0).astype(int)
    table.to_parquet("t.parquet")
    done = run(*fit("xgboost", Path(), table="t.parquet", target="('y', '')"), "--test-fraction=0")
    assert done.code == 0, done.err
    assert model_files.open_model("model.json").features == ["('x', 'a')", "('x', 'b')"]
    done = run(*fit("xgboost", Path(), table="t.parquet", target="y"))
    assert "t.parquet has no column 'y'" in done.err


# --- exit codes -------------------------------------------------------------------------------


@BOTH
def test_exit_codes_are_those_of_the_verdicts(library, run, files):
    assert run(*fit(library, files, "--constraint=fpr <= 0.2")).code == 0
    new = ["audit", MODEL[library], files / "new.csv", "--target=income"]
    for rule, code, verdict in (("fpr <= 0.5", 0, "met"), ("recall >= 0.99", 1, "missed")):
        done = run(*new, f"--constraint={rule}")
        assert done.code == code
        assert f"The constraint is {verdict} on" in done.out
    value = json.loads(_json_of(run, *new, "--constraint=fpr <= 0.5"))["constraints"][0]["value"]
    assert run(*new, f"--constraint=fpr <= {value}").code == 0
    done = run(*new, f"--constraint=fpr <= {0.99 * value}")
    assert done.code == 1
    assert "The constraint is missed within sampling error" in done.out


def _json_of(run, *arguments):
    run(*arguments, "--json=found.json", "--quiet")
    return Path("found.json").read_text()


def test_without_held_out_rows_the_fit_reports_itself(run, files):
    done = run(*fit("xgboost", files, "--test-fraction=0", "--constraint=fpr <= 0.2"))
    assert done.code == 0
    assert "2,000 rows to train on, 0 held out" in done.out
    assert "out of fold" in done.out
    # The verdict is by the training rows, and says so.
    given = ["--test-fraction=0", "--measure-on=train", "--constraint=fpr <= 0.9"]
    done = run(*fit("xgboost", files, *given))
    assert done.code == 0
    assert (
        "All constraints are met, on 2,000 training rows.\nTraining rows are optimistic"
        in done.out
    )
    done = run(*fit("xgboost", files, *given[:2], "--constraint=fnr <= 0.001"))
    assert done.code == 1
    assert "warning: The model returned misses constraints beyond sampling error" in done.err
    done = run(*fit("xgboost", files, "--test-fraction=0", "--constraint=recall >= 1; fpr <= 0"))
    assert done.code == 1
    assert done.err.startswith("gbm-constrained: warning: Cannot be met: no decision")
    assert done.err.count("warning:") == 1  # though more boosters than one were trained


@BOTH
def test_what_is_said_of_a_fit_names_the_labels_that_were_written(library, run, files):
    """XGBoost is trained on codes, which nobody has asked about. Each rule has a line."""
    rules = ["class_error('<=50K') <= 0.001", "class_error('>50K') <= 0.001"]
    asked = [part for rule in rules for part in ("--constraint", rule)]
    done = run(*fit(library, files, *asked, "--test-fraction", "0"))
    first, *others = done.err.splitlines()
    assert first.startswith("gbm-constrained: warning: Cannot be met: no decision")
    assert all(rule in first for rule in rules)
    assert [line.partition(": at best")[0] for line in others[:2]] == [f"  {r}" for r in rules]
    assert "class_error(0)" not in done.err
    done = run(*fit(library, files, *asked, "--guarantee", "high_probability"))
    assert done.code == 2
    assert f"cannot be given for {rules[0]}" in done.err
    assert "class_error(0)" not in done.err


def test_rules_are_named_by_their_labels_where_these_are_codes_of_others(run):
    """XGBoost knows 1 and 2 as 0 and 1. The rule about 1 is not the one about code 1."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=400), "g": np.where(rng.random(400) < 0.1, *"ab")})
    table["y"] = np.where(table["x"] + rng.normal(size=400) > 0, 2, 1)
    table.to_csv("t.csv", index=False)
    rules = [f"each(class_error({label}), by=g) <= 0.3" for label in (1, 2)]
    done = run(*fit("xgboost", Path(), *map("--constraint={}".format, rules), "--sensitive=g",
                    table="t.csv", target="y"))  # fmt: skip
    named = re.findall(r"class_error\((.)\), by='g'.* fewer than min_group_size", done.err)
    assert named == ["1", "1"]  # of the fit, then of the audit
    assert len(re.findall(r"class_error\(2\), by='g'\) <= 0.3: some groups", done.err)) == 2


@BOTH
def test_groups_and_histories_are_named_by_the_labels_of_the_file(library, run):
    """Decisions of another model are codes for XGBoost as the labels are; other columns not."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=400), "bold": np.arange(400) % 2})
    table["y"] = np.where(table["x"] + rng.normal(size=400) > 0, 2, 1)
    table["old"] = np.where(table.index < 200, 1, 2)
    table.to_csv("t.csv", index=False)
    rules = ["churn(to=old) <= 0.9", "each(recall(1), by=[bold, old], min_group_size=400) >= 0"]
    arguments = [*map("--constraint={}".format, rules), "--sensitive=bold", "--sensitive=old"]
    done = run(*fit(library, Path(), *arguments, table="t.csv", target="y"), "--json=a.json")
    named = [f"bold={bold}, old={old}" for bold in (0, 1) for old in (1, 2)]
    assert re.findall(r"bold=., old=.", done.err) == named * 2  # of the fit, then of the audit
    report = json.loads(Path("a.json").read_text())
    values = [name[6:-1] for name in report["history"] if name.startswith("value[")]
    assert values == [row["constraint"] for row in report["constraints"]]


def test_without_rules_the_model_is_the_librarys_own(run, files):
    done = run(*fit("xgboost", files, table="train_01.csv", target="y"))
    assert done.code == 0
    assert "No constraint was given; accuracy is" in done.out
    assert run(*fit("xgboost", files, "--test-fraction=0")).code == 0


# --- columns and labels -----------------------------------------------------------------------


@BOTH
def test_columns_of_several_roles(library, run, files):
    done = run(
        *fit(library, files, "--sensitive=sex", "--drop=fnlwgt", "--weight=age"),
        "--constraint=gap(fpr, by=sex) <= 0.5; each(fpr, by=race) <= 0.5",
    )
    assert "rules look at features: race (--sensitive takes them out)" in done.out
    model = model_files.open_model(MODEL[library])
    left_out = {"sex", "fnlwgt", "age", "income"}
    assert not left_out & set(model.features)
    assert len(model.features) == 12
    assert model.n_classes == 2


def test_groups_that_are_not_named_are_those_of_the_sensitive_columns(run, files):
    run(*fit("xgboost", files, "--sensitive=sex", "--sensitive=race"), "--quiet")
    new = ["audit", "model.json", files / "new.csv", "--target=income", "--sensitive=sex"]
    done = run(*new, "--constraint=gap(fpr) <= 0.9")
    assert "gap(fpr('>50K'), by='sex') <= 0.9" in done.out


@BOTH
@pytest.mark.parametrize("table", ["train.csv", "train_01.csv"])
def test_decisions_of_another_model_are_a_column(library, table, run, files, adult_rows):
    column, target = ("old", "income") if table == "train.csv" else ("old model", "y")
    path = files / table
    if target == "y":
        rows = pd.read_csv(path)
        rows[column] = (rows[column] == LABELS[1]).astype(int)
        path = Path("coded.csv").absolute()
        rows.to_csv(path, index=False)
    rule = f'--constraint=churn(to="{column}") <= 0.3; wins(over="{column}") >= 0.01'
    arguments = fit(library, files, f"--sensitive={column}", table=path, target=target)
    report = json.loads(_json_of(run, *arguments, rule))
    rows = pd.read_csv(path)
    _, test = train_test_split(
        np.arange(2000), test_size=0.2, stratify=rows[target], random_state=0
    )
    model = model_files.open_model(MODEL[library]).named(np.unique(rows[target]).tolist())
    predicted = model.predict(model.take(rows.iloc[test]))
    old, y = rows[column].to_numpy()[test], rows[target].to_numpy()[test]
    churned, won = (row["value"] for row in report["constraints"])
    assert churned == equal(np.mean(predicted != old))
    assert won == equal(np.mean((predicted == y) & (old != y)))


@pytest.mark.parametrize(
    "rule", ['fpr(on={old: ">50K"}) <= 0.9', 'gap(error_rate, by=old, reference=">50K") <= 0.9']
)
def test_rows_are_selected_by_decisions_where_these_are_not_coded(rule, run, files):
    """XGBoost has the codes of the labels, and so of the decisions that are compared with it."""
    more = "--sensitive=old", f"--constraint=churn(to=old) <= 0.9; {rule}"
    assert run(*fit("lightgbm", files, *more)).code == 0
    done = run(*fit("xgboost", files, *more))
    assert done.code == 2
    assert rule.partition("(")[0] in done.err
    assert "column 'old' holds another model's decisions" in done.err
    assert run(*fit("xgboost", files, *more[:1], f"--constraint={rule}")).code == 0
    rows = pd.read_csv(files / "train.csv")
    bools = {name: rows[name] == LABELS[1] for name in ("old", "income")}
    rows.assign(**bools).to_csv("bools.csv", index=False)
    path = Path("bools.csv").absolute()
    of_bools = more[0], more[1].replace('">50K"', "true")
    assert run(*fit("xgboost", files, *of_bools, table=path)).code == 0


def test_positive_is_the_label_that_is_named(run, files):
    rule = "--constraint=fnr <= 0.2"
    named = [*fit("xgboost", files, rule), f"--positive={LABELS[0]}"]
    done = run(*named)
    assert "fnr('<=50K') <= 0.2" in done.out
    first = model_of_file("xgboost")
    run(*fit("xgboost", files, f'--constraint=fnr("{LABELS[0]}") <= 0.2'))
    assert model_of_file("xgboost") == first
    done = run(*fit("xgboost", files, rule), f"--positive={LABELS[1]}")
    assert "\nfnr('>50K') <= 0.2" in done.out
    assert model_of_file("xgboost") != first
    done = run(*fit("xgboost", files, rule), "--positive=rich")
    assert (done.code, done.err) == (
        2,
        "gbm-constrained fit: error: --positive rich: the labels are '<=50K', '>50K'.\n",
    )
    done = run(*fit("xgboost", files, "--constraint=EqualOpportunity(by=sex)", *named[-1:]))
    assert "gap(tpr('<=50K'), by='sex') <= 0.02" in done.out


@BOTH
def test_rates_name_the_class_that_they_are_about(library, run, files):
    """By default as well; in the report, in that of the saved model, and in JSON."""
    done = run(*fit(library, files, "--constraint=fnr <= 0.2", "--json=report.json"))
    assert "\nfnr('>50K') <= 0.2" in done.out
    report = json.loads(Path("report.json").read_text())
    assert report["constraints"][0]["constraint"] == "fnr('>50K') <= 0.2"
    assert "value[fnr('>50K') <= 0.2]" in report["history"]
    new = ["audit", MODEL[library], files / "new.csv", "--target=income"]
    assert "\nfnr('>50K') <= 0.2" in run(*new).out
    done = run(*new, "--constraint=fnr <= 0.2", f"--positive={LABELS[0]}")
    assert "\nfnr('<=50K') <= 0.2" in done.out
    numbers = fit(library, files, "--constraint=fnr <= 0.2", table="train_01.csv", target="y")
    assert "\nfnr <= 0.2" in run(*numbers).out  # 0 and 1 speak for themselves


def test_progress_names_labels_as_the_report_does(run, files, monkeypatch):
    """XGBoost knows codes of the labels only."""
    library = "xgboost"
    monkeypatch.setattr(Progress, "DELAY", 0.0)
    done = run(*fit(library, files, "--constraint=fnr <= 0.001"))
    lines = [line for line in done.err.splitlines() if " rounds, " in line]
    assert any("(fnr('>50K') <= 0.001)" in line for line in lines)
    assert not any("(1)" in line for line in lines)
    assert not run(*fit(library, files, "--constraint=fnr <= 0.001", "--quiet")).out
    assert " rounds, " not in run(*fit(library, files), "--quiet").err


@BOTH
def test_labels_of_any_kind_and_several_classes(library, run, adult_rows):
    table = adult_rows.iloc[:1500].select_dtypes("number").drop(columns="y")
    several = pd.cut(adult_rows["hours-per-week"].iloc[:1500], [0, 39, 40, 99])
    names = np.array(["part", "full", "more"])[several.cat.codes]
    for target in (names, several.cat.codes * 2 + 5, adult_rows["y"].iloc[:1500].astype(bool)):
        table["kind"] = target
        table.to_csv("table.csv", index=False)
        labels = np.unique(target).tolist()
        wanted = f'"{labels[-1]}"' if isinstance(labels[-1], str) else labels[-1]
        rule = f"--constraint=class_error({wanted}) <= 0.6"
        given = fit(library, Path().absolute(), rule, table="table.csv", target="kind")
        done = run(*given, "--json=r.json")
        assert done.code in (0, 1)
        report = json.loads(Path("r.json").read_text())
        assert report["classes"] == labels
        assert report["constraints"][0]["constraint"] == f"class_error({labels[-1]!r}) <= 0.6"
        # The hours tell the classes, and each class is predicted by its own label.
        assert report["accuracy"]["value"] > 0.7


# --- model files ------------------------------------------------------------------------------


@BOTH
def test_categories_that_are_new_to_the_model_are_missing(library, run, files, adult_rows):
    run(*fit(library, files, "--constraint=fpr <= 0.1"), "--quiet")
    model = model_files.open_model(MODEL[library]).named(LABELS)
    rows = adult_rows.iloc[2000:].copy()
    rows["occupation"] = np.where(np.arange(1000) % 2, rows["occupation"], None)
    missing = model.predict_proba(model.take(rows))
    rows["occupation"] = np.where(np.arange(1000) % 2, rows["occupation"], "Astronaut")
    np.testing.assert_array_equal(model.predict_proba(model.take(rows)), missing)
    rows["occupation"] = 7.0
    with pytest.raises(ValueError, match=r"'occupation' holds none of the values .* trained on"):
        model.take(rows)


@BOTH
def test_columns_are_of_the_kind_they_were_trained_on(library, run, files):
    """Texts are not taken for the codes that a table gives them, nor empty columns for others."""
    run(*fit(library, files, "--constraint=fpr <= 0.1"), "--quiet")
    rows = pd.read_csv(files / "new.csv")
    new = ["audit", MODEL[library], "t.csv", "--target=income", "--constraint=fpr <= 0.5"]
    rows.assign(age=rows["age"].astype(str).mask(rows.index == 7, "?")).to_csv("t.csv")
    done = run(*new)
    assert done.code == 2
    assert "column 'age' holds texts such as '?', " in done.err
    assert f"and {MODEL[library]} was trained on numbers there." in done.err
    rows.assign(age=np.nan, race=np.nan).to_csv("t.csv")
    assert run(*new).code == 0


@BOTH
def test_texts_that_all_look_like_numbers_are_texts(library, run, tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.choice(["012", "120", "1e1", "K1A"], 400)
    table = pd.DataFrame({"zip": codes, "x": rng.normal(size=400)})
    table["y"] = ((codes == "012") ^ (table["x"] > 1.0)).astype(int)
    table.to_csv("train.csv", index=False)
    run(*fit(library, tmp_path, target="y"), "--quiet")
    model = model_files.open_model(MODEL[library]).named([0, 1])
    known = table[table["zip"].isin(["012", "120"])]
    expected = np.mean(model.predict(model.take(known)) == known["y"])
    new = ["audit", MODEL[library], "new.csv", "--target=y", "--constraint=accuracy >= 0.5"]
    known.to_csv("new.csv", index=False)
    assert json.loads(_json_of(run, *new))["accuracy"]["value"] == expected
    # Numbers of a table that has types are compared as they are written.
    numbers = pd.DataFrame({"zip": [120.0, 12.0, np.nan], "x": 0.0})
    assert model.take(numbers)["zip"].isna().tolist() == [False, True, True]


@BOTH
@pytest.mark.parametrize("labels", [["0", "1", "2+"], ["01", "02", "x"]])
def test_labels_that_all_look_like_numbers_are_those_of_the_model(library, labels, run, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    table = pd.DataFrame({"x": x, "y": np.array(labels)[np.digitize(x, [-0.5, 0.5])]})
    table.to_csv("train.csv", index=False)
    run(*fit(library, tmp_path, target="y"), "--quiet")
    table[table["y"] != labels[2]].to_csv("new.csv", index=False)
    rule = f'--constraint=class_error("{labels[1]}") <= 0.5'
    done = run("audit", MODEL[library], "new.csv", "--target=y", rule)
    assert done.code == 0, done.err


@BOTH
def test_categories_of_numbers_and_unused_columns_are_found_in_the_file(library, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "constant": 0.0,
            "empty": pd.Categorical(["only"] * 400),
            "code": pd.Categorical(rng.integers(3, 6, 400)),
            "kind": pd.Categorical(rng.choice(["a", "b"], 400)),
        }
    )
    y = ((X["code"] == 4) ^ (X["kind"] == "a")).astype(int)
    more = {"enable_categorical": True} if library == "xgboost" else {"verbose": -1}
    model = CLASSIFIERS[library](n_estimators=5, n_jobs=1, **more).fit(X, y)
    model_files.save_classifier(model, tmp_path / MODEL[library], [0, 1], X)
    found = model_files.open_model(tmp_path / MODEL[library]).named([0, 1])
    table = X.astype({"code": int, "kind": object}).assign(constant=1.0)
    np.testing.assert_array_equal(found.predict(found.take(table)), model.predict(X))


CITIES = ["A", "Berlin", "Köln", "Zürich", "aé1", "ß", "日本語"]


@BOTH
def test_categories_of_any_alphabet_are_found_in_the_file(library, run, tmp_path):
    """XGBoost before 3.4 cuts the names of categories that are not ASCII, and shifts them."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"city": rng.choice(CITIES, 700), "größe": rng.normal(size=700)})
    table["y"] = (table["city"].isin(CITIES[::2]) ^ (table["größe"] > 1.0)).astype(int)
    table.to_csv("train.csv", index=False)
    fitted = run(*fit(library, tmp_path, target="y"))
    assert fitted.code == 0, fitted.err
    X = table[["city", "größe"]].astype({"city": "category"})
    expected = np.mean(decisions(library, X) == table["y"])
    assert expected > 0.95
    new = ["audit", MODEL[library], "train.csv", "--target=y", "--constraint=accuracy >= 0.5"]
    assert json.loads(_json_of(run, *new))["accuracy"]["value"] == equal(expected)
    known = model_files.open_model(MODEL[library]).categories(X)
    assert known == {"city": CITIES}


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_names_that_xgboost_cuts_in_its_own_files_are_refused(form, tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / f"m.{form}"
    for names in (CITIES, ["aé1", "b"], ["x", "é"]):
        X = pd.DataFrame({"n": 0.0, "city": pd.Categorical(rng.choice(names, 300))})
        y = (X["city"] == names[-1]).astype(int)
        plain = xgb.XGBClassifier(n_estimators=2, n_jobs=1, enable_categorical=True).fit(X, y)
        plain.save_model(path)
        model = model_files.open_model(path)
        if json.loads(plain.get_booster().save_raw("json"))["version"] >= [3, 4]:
            assert model.categories(X) == {"city": names}
            continue
        with pytest.raises(ValueError, match=r"cuts the names .* 'city'.* by XGBoost 3\.4 or"):
            model.take(X)


def test_numbers_that_lightgbm_was_told_to_take_as_categories(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"n": rng.integers(0, 4, 400), "c": rng.choice(list("uv"), 400)})
    X["unused"] = 0.0
    y = (X["n"] == 2) ^ (X["c"] == "u")
    given = lgb.Dataset(X.astype({"c": "category"}), y, categorical_feature=["n", "c"])
    booster = lgb.train({"objective": "binary", "verbose": -1}, given, 3)
    booster.save_model(tmp_path / "m.txt")
    model = model_files.open_model(tmp_path / "m.txt")
    assert model.categories(model.take(X)) == {"c": ["u", "v"]}
    found = model.predict_proba(model.take(X))[:, 1]
    np.testing.assert_array_equal(found, booster.predict(X.astype({"c": "category"})))
    with pytest.raises(ValueError, match=r"on 1 columns of texts .* have 0 that these may"):
        model.take(X.assign(c=0))


def test_categories_that_a_slice_of_xgboost_lost_are_not_made_up(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"c": pd.Categorical(rng.choice(list("xyz"), 100))})
    rows = xgb.DMatrix(X, X["c"] == "y", enable_categorical=True)
    part = xgb.train({"objective": "binary:logistic"}, rows, 4)[:2]
    part.save_model(tmp_path / "m.json")
    model = model_files.open_model(tmp_path / "m.json")
    if json.loads(part.save_raw("json"))["learner"]["gradient_booster"]["model"]["cats"]["enc"]:
        assert model.take(X)["c"].cat.categories.tolist() == list("xyz")  # XGBoost 3.4 keeps them
        return
    with pytest.raises(ValueError, match="does not say which categories column 'c' had"):
        model.take(X)


def test_lightgbm_writes_spaces_as_underscores(run, files):
    done = run(
        *fit("lightgbm", files, "--constraint=fpr <= 0.3", table="train_01.csv", target="y")
    )
    assert done.code == 0
    assert "old_model" in model_files.open_model("model.txt").features


@BOTH
@pytest.mark.parametrize("role", ["sensitive", "drop"])
def test_columns_may_differ_by_space_and_underscore_only(library, role, run, files, tmp_path):
    rows = pd.read_csv(files / "train.csv")[["age", "sex", "hours-per-week", "income"]]
    rows["age_group"] = np.where(rows["age"] > 40, "old", "young")
    rows.rename(columns={"age": "age group"}).to_csv("t.csv", index=False)
    given = fit(library, tmp_path, f"--{role}=age_group", "--constraint=fpr <= 0.9", table="t.csv")
    assert run(*given).code == 0
    done = run("audit", MODEL[library], "t.csv", "--target=income", "--constraint=fpr <= 0.9")
    if library == "xgboost":  # which writes names as they are
        assert done.code == 0
    else:
        assert done.code == 2
        assert "columns 'age group' and 'age_group' of the data have one name in" in done.err


def test_labels_of_lightgbm_that_equal_numbers_are_named(run, files, tmp_path):
    rows = pd.read_csv(files / "train.csv")[["age", "education-num", "income"]]
    rows["rich"] = rows.pop("income") == LABELS[1]
    rows.to_csv("t.csv", index=False)
    run(*fit("lightgbm", tmp_path, table="t.csv", target="rich"), "--quiet")
    assert model_files.open_model("model.txt").labels == [False, True]
    done = run("audit", "model.txt", "t.csv", "--target=rich", "--constraint=fpr <= 0.9")
    assert done.code == 0
    assert "does not name its classes" not in done.out


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_rules_in_a_model_file_are_the_default(library, run, files):
    rules = ("--constraint=precision(label='>50K') >= 0.1", "--constraint=fpr <= 0.9")
    run(*fit(library, files, *rules), "--quiet")
    name = "model.json" if library == "xgboost" else "model.txt"
    new = ["audit", name, files / "new.csv", "--target=income"]
    done = run(*new)
    assert done.code == 0
    assert "does not name" not in done.out
    assert "precision('>50K') >= 0.1" in done.out
    assert "fpr('>50K') <= 0.9" in done.out
    assert "--positive is for --constraint" in run(*new, "--positive=>50K").err
    done = run(*new, "--constraint=fpr <= 0.8")
    assert "precision" not in done.out


def test_rules_about_a_model_that_a_file_does_not_hold_are_refused(run, binary):
    X, y = pd.DataFrame(binary[0]).add_prefix("x"), binary[1]
    old = lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, y)
    model = CLASSIFIERS["lightgbm"](constraints=[churn(to=old) <= 0.5], n_estimators=2, verbose=-1)
    model.fit(X, y).save_model("model.txt")
    X.assign(y=y, old=old.predict(X)).to_csv("t.csv", index=False)
    done = run("audit", "model.txt", "t.csv", "--target=y")
    assert done.code == 2
    assert "the rule churn <= 0.5 of model.txt speaks of another model, which the file" in done.err
    again = "--constraint=churn(to=old) <= 0.5"
    assert run("audit", "model.txt", "t.csv", "--target=y", "--sensitive=old", again).code == 0


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_file_of_the_library_has_no_rules(library, run, files):
    rows = pd.read_csv(files / "train.csv")
    X, y = rows[["age", "education-num"]], (rows["income"] == LABELS[1]).astype(int)
    if library == "xgboost":
        xgb.XGBClassifier(n_estimators=2).fit(X, y).save_model("model.json")
    else:
        fitted = lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, y)
        fitted.booster_.save_model("model.txt")
    name = "model.json" if library == "xgboost" else "model.txt"
    done = run("audit", name, files / "new.csv", "--target=income")
    assert done.code == 2
    assert f"{name} has no rules with it: give at least one --constraint RULE." in done.err
    assert "does not name its classes: taken as the sorted labels" in done.out


def test_files_that_hold_no_classifier_are_refused(tmp_path, binary):
    X, y = binary
    for name, text, message in (
        ("table.csv", "a,b\n1,2\n", "is neither a model of XGBoost"),
        ("other.json", '{"a": 1}', "is no classifier of XGBoost"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=message):
            model_files.open_model(tmp_path / name)
    lgb.LGBMRegressor(n_estimators=1, verbose=-1).fit(X, y).booster_.save_model(tmp_path / "m.txt")
    with pytest.raises(ValueError, match="'regression', which makes no classifier"):
        model_files.open_model(tmp_path / "m.txt")
    xgb.XGBClassifier(n_estimators=1).fit(X, y).save_model(tmp_path / "m.json")
    with pytest.raises(ValueError, match="names no features: train it on a table"):
        model_files.open_model(tmp_path / "m.json")
    with pytest.raises(OSError, match="none"):
        model_files.open_model(tmp_path / "none")


@pytest.mark.parametrize(
    ("objective", "is_classifier"),
    [
        ("binary:logistic", True),
        ("binary:hinge", True),
        ("reg:logistic", True),
        ("multi:softmax", True),
        ("binary:logitraw", False),
        ("reg:squarederror", False),
        ("count:poisson", False),
        ("rank:pairwise", False),
    ],
)
def test_of_xgboost_only_classifiers_are_audited(objective, is_classifier, binary, tmp_path):
    """By the objective: the answers of any model could be cut at 0.5."""
    X, y = pd.DataFrame(binary[0]).add_prefix("x"), binary[1]
    rows = xgb.DMatrix(X, y, group=[y.size] if objective == "rank:pairwise" else None)
    settings = {"objective": objective, "nthread": 1}
    settings |= {"num_class": 3} if objective.startswith("multi") else {}
    booster = xgb.train(settings, rows, 3)
    booster.save_model(tmp_path / "m.json")
    if not is_classifier:
        with pytest.raises(ValueError, match=f"no classifier .* trained with '{objective}'"):
            model_files.open_model(tmp_path / "m.json")
        return
    model = model_files.open_model(tmp_path / "m.json")
    scores = booster.predict(rows, output_margin=True)
    decided = scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0.0).astype(int)
    predicted = model.named(list(range(model.n_classes))).predict(X)
    np.testing.assert_array_equal(predicted, decided)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target=incme"], "--target: TABLE has no column 'incme': did you mean 'income'?"),
        (["--target=capital-gain", "--drop=sx"], "--drop: TABLE has no column 'sx': did you mean"),
        (["--drop=income"], "--drop income: this column is --target already."),
        (["--weight=sex"], "--weight sex must hold numbers."),
        (["--constraint=gap(fpr, by=sx) <= 0.1"], "TABLE has no column 'sx': did you mean 'sex'?"),
        (["--constraint=gap(fpr) <= 0.1"], "name the columns of the groups, by=..., or give"),
        (["--constraint=gap(fpr, by=income) <= 0.1"], "column 'income' is --target, and rules"),
        (["--drop=sex", "--constraint=fpr(on={sex: Male}) <= 0.1"], "column 'sex' is --drop, and"),
        (["--constraint=fpr(on=dataset(a)) <= 0.1"], "which only Python can give"),
        (["--constraint=churn(to=sex) <= 0.1"], "which is not among the labels ['<=50K', '>50K']"),
        (["--constraint=churn(to=ol) <= 0.1"], "--constraint churn(to=ol) <= 0.1: TABLE has no"),
        (["--param=n_estimators"], "--param 'n_estimators' must be NAME=VALUE"),
        (["--param=n_estimator=3"], "XGBoost has no parameter n_estimator: did you mean n_est"),
        (["--library=lightgbm", "--out=m", "--param=num_leave=3"], "did you mean num_leaves?"),
        (["--param=max_depth=deep"], "Invalid Parameter format for max_depth expect int but"),
        (["--param=n_estimators=abc"], "--param n_estimators must be an integer >= 1, got 'abc'."),
        (["--param=delta=0.1"], "--param 'delta=0.1': use --delta."),
        (
            ["--param=solver=fast"],
            "solver must be one of ['auto', 'abpp', 'cbpr', 'threshold'], or an object",
        ),
        (["--constraint=fpr <= 0.1", "--delta=2"], "delta must lie strictly between 0 and 1"),
        (["--test-fraction=1"], "--test-fraction must be at least 0 and below 1, got 1."),
        (["--test-fraction=0.0001"], "--test-fraction 0.0001 holds out 1 of 2000 rows, and both"),
        (["--test-fraction=0.9999"], "--test-fraction 0.9999 holds out 2000 of 2000 rows, and"),
        (["--level=95"], "--level must lie strictly between 0 and 1, such as 0.95, got 95."),
        (["--json=."], "--json . is a folder: name a file in it."),
        (["--html=/proc/x.html"], "--html /proc/x.html"),
        (["--test-fraction=0", "--json=a.json"], "of which --test-fraction 0 leaves none"),
        (["--out=none/m.json"], "--out none/m.json: there is no folder none."),
        (["--out=m.txt"], "--out m.txt must end in .json or .ubj for XGBoost."),
        (["--json=none/r.json"], "--json none/r.json: there is no folder none."),
        (["--target=capital-gain"], "The least populated class"),
        (["--seed=x"], "argument --seed: invalid int value: 'x'"),
        (["--seed=-1"], "argument --seed: must be 0 or more, got -1"),
        (["--library=catboost"], "argument --library: invalid choice: 'catboost'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(more, message, run, files):
    done = run(*fit("xgboost", files, "--constraint=accuracy >= 0.5", *more))
    assert done.code == 2
    *usage, line = done.err.strip().split("\n")
    assert not usage or usage[0].startswith("usage: ")
    assert line.startswith("gbm-constrained fit: error: ")
    assert message.replace("TABLE", str(files / "train.csv")) in line
    assert not Path("model.json").exists()


def test_nothing_is_written_where_something_does_not_fit(run, files):
    """Trying whether files can be written leaves those that are there, and makes none."""
    Path("model.json").write_text("old")
    done = run(*fit("xgboost", files, "--html=a.html", "--json=.", "--constraint=fpr <= 0.5"))
    assert done.code == 2
    assert [(path.name, path.read_text()) for path in Path().iterdir()] == [("model.json", "old")]


@pytest.mark.parametrize(
    ("library", "objective", "code"),
    [
        ("xgboost", "binary:logitraw", 2),
        ("xgboost", "binary:hinge", 0),
        ("lightgbm", "mse", 2),
        ("lightgbm", "xentropy", 0),
    ],
)
def test_only_classifiers_are_written(library, objective, code, run, files):
    done = run(
        *fit(library, files, f"--param=objective={objective}", table="train_01.csv", target="y"),
    )
    assert done.code == code
    assert Path(MODEL[library]).exists() == (code == 0)
    assert ("is no classifier" in done.err) == (code == 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "t.csv", "--out=./t.csv"], "--out t.csv would be written over DATA t.csv"),
        (["fit", "t.csv", "--out=l.csv"], "--out l.csv would be written over DATA t.csv"),
        (["fit", "t.csv", "--out=a.json", "--json=a.json"], "--json a.json would be written over"),
        (["fit", "t.csv", "--out=a.json", "--html=h", "--json=h"], "over --html h: name another"),
        (["audit", "m.json", "t.csv", "--html=t.csv"], "--html t.csv would be written over DATA"),
        (["audit", "m.json", "t.csv", "--json=m.json"], "m.json would be written over MODEL"),
    ],
)
def test_no_file_is_written_over_another(arguments, message, run):
    Path("t.csv").write_text("a,y\n1,0\n2,1\n")
    Path("l.csv").symlink_to("t.csv")
    Path("m.json").write_text("{}")
    before = {path.name: path.read_text() for path in Path().iterdir()}
    done = run(*arguments, "--target=y", "--constraint=fpr <= 0.1")
    assert done.code == 2
    assert message in done.err
    assert {path.name: path.read_text() for path in Path().iterdir()} == before


@BOTH
def test_rules_that_a_part_of_the_rows_cannot_judge_are_refused_before_the_fit(library, run):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=300), "city": "a", "y": np.arange(300) % 2})
    table.loc[:1, "city"] = "rare"
    table.to_csv("t.csv", index=False)
    here = Path().absolute()
    rule = "--constraint=selection_rate(on={city: rare}) <= 1"
    given = fit(library, here, rule, table="t.csv", target="y")
    seeds = [f"--seed={seed}" for seed in range(6)]
    codes = []
    for seed in seeds:
        done = run(*given, seed)
        codes.append(done.code)
        assert Path(MODEL[library]).exists() == (done.code != 2)
        Path(MODEL[library]).unlink(missing_ok=True)
        if done.code == 2:
            assert "This is about the 60 rows that are held out" in done.err or (
                "This is about the 240 rows that are trained on" in done.err
            )
            assert "give another --seed or --test-fraction, such as 0." in done.err
    assert 2 in codes
    assert set(codes) != {2}  # the remedy is one
    assert run(*given, "--test-fraction=0").code == 0
    done = run(*given[:-1], "--constraint=selection_rate(on={city: none}) <= 1")
    assert done.code == 2
    assert "another --seed" not in done.err


def test_errors_of_rules_are_marked(run, files):
    done = run(*fit("xgboost", Path("none"), "--constraint=fpr <= 0.1; fprr <= 0.1"))
    assert done.code == 2
    assert done.err == (
        "gbm-constrained fit: error: --constraint: unknown rate fprr: did you mean fpr?\n"
        "  fpr <= 0.1; fprr <= 0.1\n"
        "              ^^^^\n"
    )
    done = run(*fit("xgboost", files, "--constraint=precision(rich) <= 0.1"))
    assert done.err.split("\n")[:2] == [
        "gbm-constrained fit: error: --constraint: no class is labelled 'rich': the labels are "
        "'<=50K', '>50K'",
        "  precision(rich) <= 0.1",
    ]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (
            "y",
            [0, 1, None],
            "--target y: 1 rows have no label, the first is row 2: take them out.",
        ),
        ("y", [0.5, 1, 2], "--target y must hold texts, whole numbers or bools as labels"),
        ("y", [1, 1, 1], "--target y holds one label only, 1."),
        ("x", pd.to_datetime(["2020-01-01"] * 3), "column 'x' holds datetime64 values"),
    ],
)
def test_tables_that_cannot_be_trained_on(column, values, message, run):
    pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    pd.DataFrame({"x": [1, 2, 3], "y": [0, 1, 0], column: values}).to_parquet("t.parquet")
    done = run("fit", "t.parquet", "--target=y", "--out=model.json")
    assert done.code == 2
    assert done.err.startswith(f"gbm-constrained fit: error: {message}")


def test_missing_decisions_of_another_model_are_named(run):
    pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    table = pd.DataFrame({"x": [1, 2, 3], "y": [0, 1, 0]})
    table["old"] = pd.array([1, 0, None], dtype="Int64")
    table.to_parquet("t.parquet")
    rule = "--constraint=churn(to=old) <= 0.1"
    done = run("fit", "t.parquet", "--target=y", "--out=model.json", "--sensitive=old", rule)
    assert done.code == 2
    assert "holds a missing value, which is not among the labels [0, 1]." in done.err


@pytest.mark.parametrize("value", [-1.0, np.nan])
def test_weights_that_are_none_are_named_by_their_row_of_the_table(value, run, files):
    weight = np.ones(2000)
    weight[7] = value
    pd.read_csv(files / "train.csv").assign(w=weight).to_csv("t.csv", index=False)
    path = Path("t.csv").absolute()
    done = run(*fit("xgboost", files, "--weight=w", "--constraint=fpr <= 0.1", table=path))
    assert done.code == 2
    assert f"error: --weight w must be finite and non-negative, got {value} in row 7" in done.err


def test_tables_that_cannot_be_read(run, monkeypatch):
    arguments = ["--target=y", "--out=m.json"]
    assert "must be a table that ends in .parquet or .csv" in run("fit", "t.xls", *arguments).err
    done = run("fit", "t.csv", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "DATA t.csv does not exist: check its name and folder." in done.err
    Path("t.csv").write_text("y\n")
    assert "t.csv has no rows." in run("fit", "t.csv", *arguments).err
    Path("t.csv").write_text("y\n1\n0\n")
    assert "t.csv has no columns left to train on." in run("fit", "t.csv", *arguments).err
    Path("t.csv").write_text("y,a\nr1,1,0\nr2,0,1\n")
    done = run("fit", "t.csv", *arguments)
    assert done.code == 2
    assert "t.csv has rows with more fields than its header has names" in done.err
    Path("t.csv").write_text("")
    done = run("fit", "t.csv", *arguments)
    assert "DATA t.csv is empty: give a file with content." in done.err
    Path("t.csv").write_bytes("y,a\n1,Köln\n".encode("latin-1"))
    done = run("fit", "t.csv", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "t.csv cannot be read as CSV in UTF-8: 'utf-8' codec can't decode" in done.err
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name)
    )
    Path("t.parquet").write_bytes(b"PAR1")
    done = run("fit", "t.parquet", *arguments)
    assert done.code == 2
    assert "reading t.parquet needs pyarrow: pip install 'gbm_constrained[datasets]'" in done.err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.cvs", None, "must be a table that ends in .parquet or .csv"),
        ("trian.csv", None, "does not exist: did you mean train.csv?"),
        ("none/train.csv", None, "does not exist: check its name and folder."),
        ("folder.csv", None, "is a folder: name a file in it."),
        ("empty.csv", b"", "is empty: give a file with content."),
        ("empty.parquet", b"", "is empty: give a file with content."),
        ("t.parquet", b"no table", "cannot be read as Parquet: "),
        ("t.csv.gz", b"no table", "cannot be read as CSV in UTF-8: "),
        ("cut.csv.gz", "cut", "cannot be read as CSV in UTF-8: "),
    ],
)
@pytest.mark.parametrize("command", ["fit", "audit"])
def test_files_that_cannot_be_read_are_named(command, name, content, message, run, files):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    run(*fit("lightgbm", files), "--quiet")
    Path("folder.csv").mkdir()
    Path("train.csv").write_text("y\n1\n")
    if content == "cut":
        content = gzip.compress((files / "train.csv").read_bytes())[:5000]
    if content is not None:
        Path(name).write_bytes(content)
    more = ["--out=m.json"] if command == "fit" else ["--constraint=fpr <= 0.1"]
    given = [MODEL["lightgbm"], name] if command == "audit" else [name]
    done = run(command, *given, "--target=income", *more)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert name in done.err
    assert message in done.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "MODEL new.json does not exist: did you mean model.json?"),
        ("folder", "MODEL new.json is a folder: name a file in it."),
        (b"", "MODEL new.json is empty: give a file with content."),
        (b"PAR1", "new.json is neither a model of XGBoost (JSON, UBJSON) nor one of LightGBM."),
    ],
)
def test_models_that_cannot_be_read_are_named(content, message, run, files):
    run(*fit("xgboost", files), "--quiet")
    if content == "folder":
        Path("new.json").mkdir()
    elif content is not None:
        Path("new.json").write_bytes(content)
    rule = "--constraint=fpr <= 0.1"
    done = run("audit", "new.json", files / "new.csv", "--target=income", rule)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"gbm-constrained audit: error: {message}\n"


def test_files_without_permission_are_named(run, files, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *given: False)
    done = run(*fit("xgboost", files))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"DATA {files / 'train.csv'} cannot be read: permission is denied." in done.err


# --- values of groups and labels in files -------------------------------------------------------


def coded_rows(codes, n=400):
    """Rows whose groups have these codes in turn, and decide much of the label."""
    rng = np.random.default_rng(0)
    turn = np.arange(n) % len(codes)
    x = rng.normal(size=n)
    y = (x + (turn == 0) + 0.5 * rng.normal(size=n) > 0.5).astype(int)
    return pd.DataFrame({"x": x, "g": pd.Series(codes, dtype=object).to_numpy()[turn], "y": y})


def groups_printed(run, library, table, *more, rule="gap(selection_rate, by=g) <= 0.9"):
    given = ["fit", table, "--target=y", "--library", library, "--out", MODEL[library]]
    parameters = [f"--param={name}={value}" for name, value in TINY.items()]
    done = run(
        *given, *parameters, f"--constraint={rule}", "--json=r.json", "--html=r.html", *more
    )
    assert done.code in (0, 1), done.err
    return [row["group"] for row in json.loads(Path("r.json").read_text())["groups"]]


@BOTH
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
    assert groups_printed(run, library, "t.csv", "--sensitive=g") == groups
    done = run("audit", MODEL[library], "t.csv", "--target=y", "--json=a.json")
    assert done.code in (0, 1), done.err
    assert [row["group"] for row in json.loads(Path("a.json").read_text())["groups"]] == groups


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
    pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    table = coded_rows([0, 1, 2]).drop(columns="g")
    table["g"] = column.take(np.arange(len(table)) % 3).reset_index(drop=True)
    table[["x", "y"]].to_csv("x.csv", index=False)
    run(*fit("lightgbm", Path(), table="x.csv", target="y"), "--quiet")
    table.to_csv("t.csv", index=False)
    table.to_parquet("t.parquet")
    found = {}
    for name in ("t.csv", "t.parquet"):
        rule = "--constraint=gap(selection_rate, by=g) <= 0.9"
        done = run("audit", MODEL["lightgbm"], name, "--target=y", rule, "--json=r.json")
        assert done.code in (0, 1), done.err
        found[name] = sorted(
            (row["group"], row["rate"]) for row in json.loads(Path("r.json").read_text())["groups"]
        )
    assert len(found["t.csv"]) > 1
    assert found["t.csv"] == found["t.parquet"]


@BOTH
def test_numbers_that_rules_group_by_are_numbers_to_the_model(library, run):
    """The groups are texts, the feature is what pandas makes of it."""
    table = coded_rows(["01", "1", "2"])
    table.to_csv("t.csv", index=False)
    assert groups_printed(run, library, "t.csv") == ["g=01", "g=1", "g=2"]
    model = model_files.open_model(MODEL[library])
    assert model.features == ["x", "g"]
    assert model.categories(pd.read_csv("t.csv")[["x", "g"]]) == {}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rules_that_name_a_value_by_its_text_find_it(form, run):
    """Whole numbers are texts where a rule says so."""
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    table = coded_rows([1, 2])
    table["g"] = table["g"].astype(int)
    getattr(table, f"to_{form}")(f"t.{form}", index=False)
    for rule in ('selection_rate(on={g: "1"}) <= 0.9', "selection_rate(on={g: 1}) <= 0.9",
                 'gap(selection_rate, by=g, reference="1") <= 0.9'):  # fmt: skip
        done = run(*fit("lightgbm", Path(), f"--constraint={rule}", table=f"t.{form}", target="y"))
        assert done.code in (0, 1), done.err
    table = coded_rows(["01", "2"])
    getattr(table, f"to_{form}")(f"t.{form}", index=False)
    rule = "--constraint=selection_rate(on={g: 1}) <= 0.9"
    done = run(*fit("lightgbm", Path(), rule, table=f"t.{form}", target="y"))
    assert done.code == 2
    assert "selects no row: the values of 'g' are ['01', '2']." in done.err


@BOTH
def test_labels_and_decisions_of_csv_are_as_they_are_written(library, run):
    table = coded_rows(["a", "b"])
    table["y"] = np.where(table["y"] == 1, "01", "1")
    table["old"] = np.where(table["x"] > 0, "01", "1")
    table["same"] = "1"
    table.to_csv("t.csv", index=False)
    more = ["--constraint=churn(to=old) <= 0.9; churn(to=same) <= 1", "--sensitive=old"]
    done = run(*fit(library, Path(), *more, "--sensitive=same", table="t.csv", target="y"))
    assert done.code in (0, 1), done.err
    assert "labels ['01', '1']" in done.out


def test_texts_that_pandas_takes_as_missing_are_told(run):
    """NA may be a region; the group is called missing, as in the documentation."""
    coded_rows(["NA", "EU", "", "None"]).to_csv("t.csv", index=False)
    rule = "--constraint=gap(selection_rate, by=g) <= 0.9"
    done = run(*fit("lightgbm", Path(), "--sensitive=g", rule, table="t.csv", target="y"))
    assert "g: 'NA' is a missing value (100 rows)" in done.out
    assert "g: 'None' is a missing value (100 rows)" in done.out
    assert done.out.count("is a missing value") == 2
    assert "g=missing" in done.out


def test_small_groups_have_an_option(run):
    """Its name is in the warning, which is given once for all rules."""
    table = coded_rows([*range(40)], 1200)
    table.to_csv("t.csv", index=False)
    rules = ["--constraint=gap(fpr, by=g) <= 0.9", "--constraint=gap(tpr, by=g) <= 0.9"]
    given = [*fit("lightgbm", Path(), "--sensitive=g", *rules, table="t.csv", target="y")]
    done = run(*given, "--test-fraction=0")
    (line,) = [line for line in done.err.splitlines() if "min_group_size" in line]
    assert "and 35 more, 40 groups in all. They are kept (--small-groups keep)." in line
    assert "small_groups" not in done.err
    done = run(*given, "--test-fraction=0", "--small-groups=merge")
    assert "They are merged into one group (--small-groups merge)." in done.err
    done = run(*given, "--test-fraction=0", "--small-groups=drop")
    assert done.code == 2
    assert "--small-groups drop" in done.err


def test_categories_of_xgboost_need_pyarrow(run, files, monkeypatch):
    run(*fit("xgboost", files), "--quiet")

    def refuse(self, export_to_arrow=False):
        raise ImportError("pyarrow")

    monkeypatch.setattr(xgb.Booster, "get_categories", refuse)
    assert run(*fit("xgboost", files)).code == 0  # of known categories, none need be read
    new = ["audit", "model.json", files / "new.csv", "--target=income"]
    done = run(*new, "--constraint=fpr <= 0.1")
    assert done.code == 2
    assert "reading these from XGBoost needs pyarrow" in done.err


def test_audits_refuse_what_does_not_fit_the_model(run, files):
    run(*fit("lightgbm", files), "--quiet")
    rule = "--constraint=fpr <= 0.1"
    rows = pd.read_csv(files / "new.csv")
    rows.drop(columns="age").to_csv("short.csv", index=False)
    done = run("audit", "model.txt", "short.csv", "--target=income", rule)
    assert "the data have no column 'age', which model.txt was trained on" in done.err
    lgb.Booster(model_file="model.txt").save_model("model.txt")  # without our note
    rows[rows["income"] == LABELS[0]].to_csv("one.csv", index=False)
    done = run("audit", "model.txt", "one.csv", "--target=income", rule)
    assert "tells 2 classes apart and does not name them" in done.err
    assert "give rows of all classes" in done.err


# --- as a program -----------------------------------------------------------------------------


def test_it_is_a_program(files, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def program(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "gbm_constrained", *arguments],
            capture_output=True, text=True, cwd=tmp_path, env=environment, check=False,
        )  # fmt: skip

    done = program("audit", "none.json", "none.csv", "--target=y", "--constraint=fpr <= 0.1")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "gbm-constrained audit: error: MODEL none.json does not exist: check its name and "
        "folder.\n"
    )
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"gbm-constrained": f"{cli.__name__}:{cli.main.__name__}"}


def test_help_and_version(run):
    assert run("--version").out == f"gbm-constrained {cli.__version__}\n"
    done = run("fit", "--help")
    assert done.code == 0
    assert "exit codes: 0 all rules are met" in run("--help").out
    for option in ("--constraint RULE", "--sensitive COLUMN", "--param NAME=VALUE"):
        assert option in done.out
    assert run().code == 2


def test_what_is_printed_of_a_rule_is_a_rule(run, files):
    text = "gap(tpr, by=[sex, race], min_group_size=5) <= 0.9"
    run(*fit("xgboost", files, f"--constraint={text}", "--quiet"), "--json=r.json")
    report = json.loads(Path("r.json").read_text())
    rule = parse_constraint(text, positive=LABELS[1])
    assert report["constraints"][0]["constraint"] == str(rule)
