"""The benchmark of ACSIncome: what freezes it, its groups, and accuracies beside peers."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import acs_income
import numpy as np
import pandas as pd
import pytest
from peer_runs import acs_report
from peer_runs.catalogue import ACS, split_of
from peer_runs.frozen import digest_of, freeze

needs_data = pytest.mark.skipif(
    not os.environ.get("GBM_CONSTRAINED_DATA"), reason="ACSIncome is not bundled"
)


def test_the_hash_is_of_code_and_settings(tmp_path):
    files = [tmp_path / name for name in ("a.py", "b.py")]
    for file in files:
        file.write_text(file.name)
    first = digest_of(files, {"seeds": (0, 1)})
    assert digest_of(reversed(files), {"seeds": [0, 1]}) == first
    assert digest_of(files, {"seeds": (0, 2)}) != first
    files[1].write_text("changed")
    assert digest_of(files, {"seeds": (0, 1)}) != first


def test_rows_of_another_hash_are_refused_unless_started_anew(tmp_path):
    results, beside = tmp_path / "found.csv", tmp_path / "found.frozen.json"
    freeze(results, "first", {"seeds": [0]})
    assert json.loads(beside.read_text()) == {"digest": "first", "settings": {"seeds": [0]}}
    results.write_text("a row")
    freeze(results, "first", {"seeds": [0]})
    with pytest.raises(
        SystemExit, match="is of first, and code, settings or seeds are now second"
    ):
        freeze(results, "second", {})
    assert results.read_text() == "a row"
    assert json.loads(beside.read_text())["digest"] == "first"
    freeze(results, "second", {}, anew=True)
    assert not results.exists()
    assert json.loads(beside.read_text())["digest"] == "second"


def test_rows_without_a_hash_are_refused(tmp_path):
    results = tmp_path / "found.csv"
    results.write_text("a row")
    with pytest.raises(SystemExit, match="is of no hash"):
        freeze(results, "first", {})


def test_the_files_of_the_hash_exist_and_have_no_tables():
    names = {file.name for file in acs_income.code()}
    assert all(file.is_file() for file in acs_income.code())
    assert {"report.py", "others.py", "requirements-linearpost.txt"} <= names
    assert "acs_report.py" not in names


@needs_data
@pytest.mark.parametrize(
    ("name", "columns", "groups"),
    [
        ("acs_by_sex", 9, 2), ("acs_by_race", 9, 9), ("acs_by_race_and_sex", 8, 8),
        ("acs_of_eight_columns", 8, 8),
    ],
)  # fmt: skip
def test_groups_are_hidden_from_the_features(name, columns, groups):
    split, y_test = split_of(name, 0)
    assert split.X.shape[1] == columns
    assert np.unique(split.groups).size == groups
    assert y_test.size / (y_test.size + split.y.size) == pytest.approx(0.7, abs=1e-3)
    assert ACS[name].hides_group == (name != "acs_of_eight_columns")
    known = split.with_group()
    np.testing.assert_array_equal(known.X[:, -1], split.groups)
    np.testing.assert_array_equal(known.X_test[:, :-1], split.X_test)


def test_many_groups_change_how_some_peers_run():
    assert acs_income.peer_of("fairgbm", "acs_by_sex") is acs_income.METHODS["fairgbm"]
    found = acs_income.peer_of("fairgbm", "acs_by_race")
    assert found == replace(acs_income.METHODS["fairgbm"], method="others.FairGBMOfManyGroups")
    assert acs_income.peer_of("groups_lightgbm", "acs_by_race").is_slow


def test_methods_are_compared_on_the_splits_that_both_have():
    rows = [
        {"data": "acs_by_sex", "task": "tpr_gap", "split": split, "peer": peer, "asked": asked,
         "test_value": value, "test_accuracy": accuracy, "majority_accuracy": 0.6, "error": None}
        for peer, asked, value, accuracy, splits in (
            ("plain", np.inf, 0.1, 0.8, range(3)), ("ours_lightgbm", 0.05, 0.05, 0.79, range(3)),
            ("linearpost", 0.05, 0.05, 0.78, range(2)),
        )
        for split in splits
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    found = acs_report.at_equal_gaps(table, acs_income.METHODS)
    (row,) = found[found["share"] == 0.5].itertuples()
    assert (row.best, row.splits) == ("linearpost", 2)
    assert row.accuracy == pytest.approx(79)
    assert found.loc[found["share"] == 0.5, "ahead by"].item() == pytest.approx(1.0)
    assert row.error == pytest.approx(0.0)
