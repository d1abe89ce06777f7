"""The program, its help and its exit codes, and one line on any input that it refuses."""

from __future__ import annotations

import gzip
import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import MODEL, write_rows

import gbm_constrained as gc
from gbm_constrained.cli.main import main


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target=incme"], "--target: TABLE has no column 'incme': did you mean 'income'?"),
        (["--target=capital-gain", "--drop=sx"], "--drop: TABLE has no column 'sx': did you mean"),
        (["--drop=income"], "--drop income: this column is --target already."),
        (["--weight=sex"], "--weight sex must hold numbers."),
        (["--constraint=gap(fpr, by=sx) <= 0.1"], "TABLE has no column 'sx': did you mean 'sex'?"),
        (["--constraint=gap(fpr) <= 0.1"], "name the columns of the groups, by=..., or give"),
        (["--constraint=gap(fpr, by=income) <= 0.1"], "column 'income' is --target, and const"),
        (["--drop=sex", "--constraint=fpr(on={sex: Male}) <= 0.1"], "column 'sex' is --drop, and"),
        (["--constraint=fpr(on=dataset(a)) <= 0.1"], "which only Python can give"),
        (["--constraint=churn(to=sex) <= 0.1"], "which is not among the labels ['<=50K', '>50K']"),
        (["--constraint=churn(to=ol) <= 0.1"], "--constraint churn(to='ol') <= 0.1: TABLE has no"),
        (["--param=n_estimators"], "--param 'n_estimators' must be NAME=VALUE"),
        (["--param=n_estimator=3"], "XGBoost has no parameter n_estimator: did you mean n_est"),
        (["--library=lightgbm", "--out=m", "--param=num_leave=3"], "did you mean num_leaves?"),
        (["--param=max_depth=deep"], "Invalid Parameter format for max_depth expect int but"),
        (["--param=n_estimators=abc"], "--param n_estimators must be an integer >= 1, got 'abc'."),
        (["--param=delta=0.1"], "--param 'delta=0.1': use --delta."),
        (["--param=positive=1"], "--param 'positive=1': use --positive."),
        (
            ["--param=solver=fast"],
            "solver must be one of ['auto', 'abpp', 'cbpr', 'threshold'], or an object",
        ),
        (
            ["--param=solver=threshold", "--param=solver__proxy=ramp"],
            "--param solver__proxy: options are of solver=auto, abpp or cbpr, or of a reduction",
        ),
        (["--param=solver__prox=ramp"], "solver=auto has no option solver__prox: use one of sol"),
        (["--param=solver__initial_multipliers=x"], "--param solver__initial_multipliers must h"),
        (
            ["--param=solver__proxy=slope"],
            "--param solver__proxy must be one of ['auto', 'logistic', 'sigmoid',",
        ),
        (
            ["--constraint=fpr <= 0.1", "--delta=2", "--guarantee=high_probability"],
            "delta of HighProbability must lie strictly between 0 and 1, got 2",
        ),
        (["--delta=0.1"], "--delta: the option is of --guarantee high_probability, and it is n"),
        (["--delta=0.1", "--guarantee=expected"], "high_probability, and got expected."),
        (
            ["--param=guarantee__delt=0.1", "--guarantee=high_probability"],
            "--guarantee takes fraction of expected, delta of high_probability, fraction of hi",
        ),
        (
            ["--measure-on=holdout"],
            "--param measure_on__n_folds: the option is of --measure-on crossfit or forward, and ",
        ),
        (
            ["--param=measure_on__fraction=0.1"],
            "--param measure_on__fraction: --measure-on takes fraction of holdout, n_folds of cr",
        ),
        (["--param=n_folds=3"], "XGBoost has no parameter n_folds: give measure_on__n_folds=...."),
        (["--param=oracle=refit"], "has no parameter oracle: give solver__oracle=...."),
        (["--param=deterministic=True"], "parameter deterministic: give solver__deterministic"),
        (
            ["--param=solver__oracle=best", "--maximize=g_mean"],
            "--param solver__oracle of Reduction must be one of",
        ),
        (
            ["--param=solver__oracles=refit", "--param=solver=gda", "--maximize=g_mean"],
            "solver=gda has no option solver__oracles: use one of solver__max_calls, ",
        ),
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
        (["--seed=-1"], "--seed must be 0 or more, got -1."),
        (["--library=catboost"], "argument --library: invalid choice: 'catboost'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(more, message, run):
    done = run.fit("xgboost", "--constraint=accuracy >= 0.5", *more)
    assert done.code == 2
    *usage, line = done.err.strip().split("\n")
    assert not usage or usage[0].startswith("usage: ")
    assert line.startswith("gbm-constrained fit: error: ")
    assert message.replace("TABLE", str(run.files / "train.csv")) in line
    assert not Path("model.json").exists()


# --- files --------------------------------------------------------------------------------------


def test_nothing_is_written_where_something_does_not_fit(run):
    """Trying whether files can be written leaves those that are there, and makes none."""
    Path("model.json").write_text("old")
    done = run.fit("xgboost", "--html=a.html", "--json=.", "--constraint=fpr <= 0.5")
    assert done.code == 2
    assert [(path.name, path.read_text()) for path in Path().iterdir()] == [("model.json", "old")]


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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xls", None, "must be a table that ends in .parquet or .csv"),
        ("train.cvs", None, "must be a table that ends in .parquet or .csv"),
        ("trian.csv", None, "does not exist: did you mean train.csv?"),
        ("none/train.csv", None, "does not exist: check its name and folder."),
        ("folder.csv", None, "is a folder: name a file in it."),
        ("empty.csv", b"", "is empty: give a file with content."),
        ("empty.parquet", b"", "is empty: give a file with content."),
        ("t.parquet", b"no table", "cannot be read as Parquet: "),
        ("t.csv.gz", b"no table", "cannot be read as CSV in UTF-8: "),
        ("cut.csv.gz", "cut", "cannot be read as CSV in UTF-8: "),
        ("t.csv", "y,a\n1,Köln\n".encode("latin-1"), "cannot be read as CSV in UTF-8: 'utf-8'"),
        ("t.csv", b"income\n", "t.csv has no rows."),
        ("t.csv", b"y,a\nr1,1,0\nr2,0,1\n", "has rows with more fields than its header has name"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "audit"])
def test_tables_that_cannot_be_read_are_named(command, name, content, message, run):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    write_rows("train.csv")
    if command == "audit":
        assert run.fit("lightgbm", "--quiet", table="train.csv").code == 0
    Path("folder.csv").mkdir()
    if content == "cut":
        content = gzip.compress((run.files / "train.csv").read_bytes())[:5000]
    if content is not None:
        Path(name).write_bytes(content)
    done = getattr(run, command)("lightgbm", "--constraint=fpr <= 0.1", table=name)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert name in done.err
    assert message in done.err


def test_tables_without_features_are_refused(run):
    Path("t.csv").write_text("y\n1\n0\n")
    assert "t.csv has no columns left to train on." in run.fit("xgboost", table="t.csv").err


def test_parquet_needs_pyarrow(run, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name)
    )
    Path("t.parquet").write_bytes(b"PAR1")
    done = run.fit("xgboost", table="t.parquet")
    assert done.code == 2
    assert "reading t.parquet needs pyarrow: pip install 'gbm_constrained[datasets]'" in done.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "MODEL new.json does not exist: did you mean model.json?"),
        ("folder", "MODEL new.json is a folder: name a file in it."),
        (b"", "MODEL new.json is empty: give a file with content."),
        (b"PAR1", "new.json is neither a model of XGBoost (JSON, UBJSON) nor one of LightGBM."),
    ],
)
def test_models_that_cannot_be_read_are_named(content, message, run):
    Path("model.json").write_text("{}")
    if content == "folder":
        Path("new.json").mkdir()
    elif content is not None:
        Path("new.json").write_bytes(content)
    text = "--constraint=fpr <= 0.1"
    done = run("audit", "new.json", run.files / "new.csv", "--target=income", text)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"gbm-constrained audit: error: {message}\n"


def test_files_without_permission_are_named(run, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *given: False)
    done = run.fit("xgboost")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"DATA {run.files / 'train.csv'} cannot be read: permission is denied." in done.err


# --- columns ------------------------------------------------------------------------------------


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
    done = run.fit("xgboost", table="t.parquet")
    assert done.code == 2
    assert done.err.startswith(f"gbm-constrained fit: error: {message}")


@pytest.mark.parametrize("value", [-1.0, np.nan])
def test_weights_that_are_none_are_named_by_their_row_of_the_table(value, run):
    weight = np.ones(200)
    weight[7] = value
    write_rows(w=weight)
    done = run.fit("xgboost", "--weight=w", "--constraint=fpr <= 0.1", table="t.csv")
    assert done.code == 2
    assert f"error: --weight w must be finite and non-negative, got {value} in row 7" in done.err
    assert MODEL["xgboost"] not in os.listdir()


ROOT = Path(__file__).parents[2]


def test_it_is_a_program(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = ["audit", "none.json", "none.csv", "--target=y", "--constraint=fpr <= 0.1"]
    done = subprocess.run(
        [sys.executable, "-m", "gbm_constrained", *arguments],
        capture_output=True, text=True, cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "gbm-constrained audit: error: MODEL none.json does not exist: check its name and "
        "folder.\n"
    )
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"gbm-constrained": f"{main.__module__}:{main.__name__}"}


def test_help_and_version(run):
    assert run("--version").out == f"gbm-constrained {gc.__version__}\n"
    done = run("fit", "--help")
    assert done.code == 0
    assert "exit codes: 0 all constraints are met" in run("--help").out
    for option in ("--constraint CONSTRAINT", "--sensitive COLUMN", "--param NAME=VALUE"):
        assert option in done.out
    assert run().code == 2


def test_exit_codes_are_those_of_the_verdicts(run):
    library = "lightgbm"
    assert run.fit(library, "--constraint=fpr <= 0.2").code == 0
    for text, code, verdict in (("fpr <= 0.5", 0, "met"), ("recall >= 0.99", 1, "missed")):
        done = run.audit(library, f"--constraint={text}")
        assert done.code == code
        assert f"The constraint is {verdict} on" in done.out
    report = run.report_of("audit", library, "--constraint=fpr <= 0.5")
    value = report["constraints"][0]["value"]
    assert run.audit(library, f"--constraint=fpr <= {value}").code == 0
    done = run.audit(library, f"--constraint=fpr <= {0.99 * value}")
    assert done.code == 1
    assert "The constraint is missed within sampling error" in done.out
