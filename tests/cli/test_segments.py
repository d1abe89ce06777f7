"""Segments on the command line: found in an audit, and as columns of constraints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

SEGMENT = "`age` <= 40 and `sex` == 'Male'"


def test_an_audit_finds_segments_and_shows_them(run):
    run.fit("lightgbm", "--constraint=selection_rate <= 0.5")
    done = run.audit("lightgbm", "--segments=selection_rate", "--json=r.json", "--html=p.html")
    assert "segments differ from the rest in selection_rate" in done.out
    (first, *_) = json.loads(Path("r.json").read_text())["segments"]
    assert first["p_value"] <= 0.05
    assert first["segment"] in done.out
    assert "<h2>Segments</h2>" in Path("p.html").read_text()


def test_conditions_are_a_column_of_constraints_and_of_saved_models(run):
    text = f'selection_rate(on={{"{SEGMENT}": true}}) <= 0.05'
    done = run.fit("xgboost", f"--constraint={text}", "--json=fit.json")
    assert done.code in (0, 1)
    done = run.audit("xgboost", "--json=audit.json")  # The note of the model has the constraint.
    (row,) = json.loads(Path("audit.json").read_text())["constraints"]
    assert SEGMENT in row["constraint"]
    table = pd.read_csv(run.files / "new.csv")
    inside = (table["age"] <= 40) & (table["sex"] == "Male")
    assert row["rows"] == inside.sum()
    refused = run.audit("xgboost", '--constraint=fpr(on={"`agee` <= 40": true}) <= 0.05')
    assert refused.code == 2
    assert "has no column 'agee': did you mean 'age'?" in refused.err


def test_a_column_of_that_very_name_comes_first(run):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.integers(0, 9, 400), "b": rng.normal(size=400)})
    table["y"] = (table["b"] + rng.normal(size=400) > 0).astype(int)
    table["`a` <= 4"] = rng.choice(["u", "v"], 400)
    table.to_csv("t.csv", index=False)
    constraint = '--constraint=gap(tpr, by="`a` <= 4") <= 0.9'
    done = run.fit(
        "xgboost", "--sensitive=`a` <= 4", constraint, "--json=r.json", table="t.csv", target="y"
    )
    assert done.code == 0, done.err
    groups = json.loads(Path("r.json").read_text())["groups"]
    assert {row["group"] for row in groups} == {"`a` <= 4=u", "`a` <= 4=v"}


@pytest.mark.parametrize("text", ["fpr +", "gap(fpr, by=sex) <= 0.1"])
def test_what_has_no_segments_is_refused(run, text):
    run.fit("lightgbm", "--constraint=selection_rate <= 0.5")
    assert run.audit("lightgbm", f"--segments={text}").code == 2
