"""Gaps that the command line explains."""

import json
from pathlib import Path

import pandas as pd
import pytest

NAMES = {"sex=Male less sex=Female", "sex=Female less sex=Male"}


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("text", ["gap(tpr, by=sex)", "gap(tpr, by=sex) <= 0.1"])
def test_an_audit_explains_a_gap(run, library, text):
    bound = "--constraint=gap(tpr, by=sex) <= 0.9"
    run.fit(library, bound)
    done = run.audit(library, f"--explain={text}", bound, "--json=r.json", "--html=p.html")
    report = json.loads(Path("r.json").read_text())
    parts = pd.DataFrame(report["gap_parts"])
    (comparison,) = parts["comparison"].unique()
    names = comparison.partition(": ")[2]
    assert names in NAMES
    assert comparison in done.out
    first, second = names.split(" less ")
    rates = {group["group"]: group["rate"] for group in report["groups"]}
    assert parts["part"].sum() == pytest.approx(rates[first] - rates[second], abs=1e-9)
    assert "<h2>Parts of a gap</h2>" in Path("p.html").read_text()


@pytest.mark.parametrize("text", ["gap(tpr", "fpr", "gap(tpr, by=nobody)"])
def test_what_is_no_gap_is_refused(run, text):
    run.fit("lightgbm", "--constraint=selection_rate <= 0.5")
    assert run.audit("lightgbm", f"--explain={text}").code == 2


def test_the_positive_class_is_that_of_the_option(run):
    """Also without constraints on the command line, whose labels would be named otherwise."""
    run.fit("xgboost", "--constraint=selection_rate <= 0.5")
    texts = {}
    for label in ("<=50K", ">50K"):
        done = run.audit("xgboost", f"--positive={label}", "--explain=gap(tpr, by=sex)")
        texts[label] = done.out
        assert f"tpr({label!r}): sex=" in done.out or (label == ">50K" and "tpr: sex=" in done.out)
    assert texts["<=50K"] != texts[">50K"]
