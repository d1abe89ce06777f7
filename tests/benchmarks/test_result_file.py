"""Tables of the benchmarks: rows are measured once, and lines show their figures."""

import argparse

import numpy as np
import pandas as pd
import pytest
import result_file
from result_file import Measurements, ResultFile, Table, add_parts


def test_parts_are_those_named_or_all_of_them(capsys):
    parser = argparse.ArgumentParser()
    add_parts(parser, "parts", {"gaps": 1, "cost": 2})
    assert parser.parse_args([]).parts == ["gaps", "cost"]
    assert parser.parse_args(["cost"]).parts == ["cost"]
    assert "some of gaps, cost; all by default" in parser.format_help()
    with pytest.raises(SystemExit):
        parser.parse_args(["gap"])
    assert capsys.readouterr().err.endswith("argument parts: 'gap' is none of gaps, cost\n")


def test_a_file_of_other_columns_is_left_alone(tmp_path):
    file = tmp_path / "results.csv"
    file.write_text("run,value\n1,0.5\n")
    with pytest.raises(ValueError, match="give another file"):
        ResultFile(file, ("run", "value"))
    assert file.read_text() == "run,value\n1,0.5\n"


def test_a_row_that_was_cut_short_is_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr("result_file.commit", lambda: "1a2b3c")
    file = ResultFile(tmp_path / "results.csv", ("run", "of", "value"))
    for run in (1, 2):
        file.append({"run": run, "value": 0.1 + 0.2})
    whole = file.path.read_text()
    file.path.write_text(whole[:-3])
    again = ResultFile(file.path, ("run", "of", "value"))
    assert again.rows() == [
        {"run": "1", "of": "", "value": "0.30000000000000004", "commit": "1a2b3c"}
    ]
    again.append({"run": 2, "value": 0.1 + 0.2})
    assert file.path.read_text() == whole


def test_what_is_there_is_not_measured_again_and_names_the_commit_that_made_it(
    tmp_path, monkeypatch, capsys
):
    measured = []

    def measure(value):
        measured.append(value)
        return {"value": value, "none": np.nan}

    monkeypatch.setattr("result_file.commit", lambda: "1a2b3c")
    arguments = (tmp_path / "results.csv", ("library", "split"))
    first = Measurements(*arguments)
    assert first.once(lambda *_: measure(0.1 + 0.2), "xgboost", 0)["value"] == 0.1 + 0.2
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("result_file.commit", lambda: "4d5e6f")
    again = Measurements(*arguments)
    assert capsys.readouterr().out.endswith("keeps its rows of 1a2b3c\n")
    assert again.once(lambda *_: measure(1.0), "xgboost", 0)["value"] == 0.1 + 0.2
    assert np.isnan(again.once(lambda *_: measure(1.0), "xgboost", 0)["none"])
    assert again.once(lambda *_: measure(2.0), "xgboost", 1)["value"] == 2.0
    assert measured == [0.1 + 0.2, 2.0]
    assert [row["commit"] for row in again.rows()] == ["1a2b3c", "4d5e6f"]


def square(way, x, seed):
    return {"value": float(x**2 + seed), "spread": np.nan}


TABLE = Table(
    square,
    {"way x": [("up", 2), ("down", 3)], "seed": range(2)},
    "{way} {x}: {value:.1f} ({value sem:.1f}) of {value each}, beyond {beyond}",
    lambda found, way, x, _: {"beyond": int((found["value"] > x**2).sum())},
    lambda rows: f"{len(rows)} rows, {rows['way'].nunique()} ways",
)


def test_a_table_has_a_line_for_each_case_and_a_summary(tmp_path, capsys):
    TABLE.run(tmp_path / "table.csv", {})
    assert capsys.readouterr().out.splitlines() == [
        "up 2: 4.5 (0.5) of [4.0, 5.0], beyond 1",
        "down 3: 9.5 (0.5) of [9.0, 10.0], beyond 1",
        "4 rows, 2 ways",
    ]
    TABLE.run(tmp_path / "table.csv", {"way": ["down"], "seed": range(1)})
    assert "down 3: 9.0 (nan) of [9.0], beyond 0\n1 rows" in capsys.readouterr().out
    rows = pd.read_csv(tmp_path / "table.csv")
    assert rows.columns.tolist() == ["way", "x", "seed", "value", "spread", "commit"]
    assert len(rows) == 4


def test_options_are_names_of_the_rows(tmp_path, monkeypatch, capsys):
    given = ["table.py", "squares", "--way", "up", "--seeds", "1", "--output", str(tmp_path)]
    monkeypatch.setattr("sys.argv", given)
    result_file.run_tables(
        {"squares": TABLE}, "", argparse.ArgumentParser(), way=("up", "down"), seed=int
    )
    assert "1 rows, 1 ways" in capsys.readouterr().out
    assert len(pd.read_csv(tmp_path / "squares.csv")) == 1


def test_figures_are_those_of_the_file(tmp_path):
    file = tmp_path / "table.csv"
    Measurements(file, ("x",)).once(lambda x: {"a": x, "b": "text"}, 1)
    again = Measurements(file, ("x",))
    assert again.once(lambda x: {"a": x}, 1) == {"a": 1.0, "b": "text"}
    with pytest.raises(ValueError, match="has columns x,a,b,commit, not x,a,commit"):
        again.once(lambda x: {"a": x}, 2)
