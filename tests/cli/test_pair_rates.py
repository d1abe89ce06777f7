"""Constraints on pair rates from a shell: trained, audited, and refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import write_rows
from helpers import BOTH
from sklearn.metrics import roc_auc_score

from gbm_constrained.cli.model_files import open_model

GAP = "gap(auc, by=sex) <= 0.3"


@pytest.fixture
def table(run):
    """A file whose label follows the first feature, with a group."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 500))
    y = (a + 0.5 * rng.normal(size=500) > 0).astype(int)
    write_rows(n=500, x=a, b=b, sex=rng.choice(["F", "M"], 500), y=y)
    return "t.csv"


@BOTH
def test_a_pair_rate_is_trained_and_audited(library, run, table):
    trained = run.report_of("fit", library, f"--constraint={GAP}", "--sensitive=sex", table=table)
    (constraint,) = trained["constraints"]
    assert constraint["constraint"] == "gap(auc, by='sex') <= 0.3"
    assert 0.0 <= constraint["low"] <= constraint["value"] <= constraint["high"] <= 1.0
    assert [group["group"] for group in trained["groups"]] == ["sex=F", "sex=M"]
    rules = "auc >= 0.6; gap(cross_auc(group=negatives), by=sex) <= 0.5"
    found = run.report_of("audit", library, f"--constraint={rules}", "--html=p.html", table=table)
    assert "gap(cross_auc" in Path("p.html").read_text()
    assert found["constraints"][0]["rows"] == 500
    assert found["constraints"][0]["verdict"] == "met"


def test_the_auc_is_that_of_the_model_s_probabilities(run, table):
    trained = run.fit("xgboost", "--constraint=auc >= 0.6", "--sensitive=sex", table=table)
    assert trained.code == 0
    found = run.report_of("audit", "xgboost", "--constraint=auc >= 0.6", table=table)
    rows = pd.read_csv(table)
    model = open_model(Path("model.json"))
    p = model.predict_proba(rows[["x", "b"]])[:, 1]
    expected = roc_auc_score(rows["y"], p)
    assert found["constraints"][0]["value"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("auc >= 1.2", "an AUC of 80 per cent is written 0.8"),
        ("cross_auc <= 0.1", "compares a group with other rows"),
        ("auc + fpr <= 0.1", "one is a pair rate"),
        ("gap(auc, by=zzz) <= 0.1", "'zzz'"),
        ("auc(maybe) >= 0.5", "maybe"),
    ],
)
def test_what_pair_rates_refuse(rule, message, run, table):
    done = run.fit("xgboost", f"--constraint={rule}", table=table)
    assert done.code == 2
    assert message in done.err
