"""Metrics on the command line: as objectives of fits, and measured by audits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import LABELS, MODEL
from helpers import BOTH, CLASSIFIERS
from sklearn.metrics import recall_score

from gbm_constrained.cli.model_files import open_model
from gbm_constrained.metrics import parse_metric


def metrics_of(path="report.json"):
    records = json.loads(Path(path).read_text())["metrics"]
    return {record["metric"]: record for record in records}


@BOTH
def test_a_fit_maximises_and_audits_measure_the_same_decisions(library, run):
    name = LABELS[-1]
    done = run.fit(
        library, "--maximize=g_mean", f'--metric=recall("{name}")', "--metric=f1_macro",
        "--sensitive=sex", "--json=report.json",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = metrics_of()
    assert list(found) == ["g_mean", f"recall({name!r})", "f1_macro"]
    assert all(one["low"] <= one["value"] <= one["high"] for one in found.values())
    loaded = CLASSIFIERS[library]().load_model(MODEL[library])
    assert loaded.maximize == parse_metric("g_mean")
    assert loaded.metric_report_["is_returned"].sum() == 1

    audited = run.audit(library, f'--metric=recall("{name}")', "--json=new.json")
    assert audited.code == 0, audited.err
    model = open_model(MODEL[library]).name_classes(LABELS)
    table = pd.read_csv(run.files / "new.csv")
    decided = model.predict(model.take_features(table))
    expected = recall_score(table["income"], decided, labels=[name], average=None)[0]
    assert metrics_of("new.json")[f"recall({name!r})"]["value"] == pytest.approx(expected)
    # Without metrics of its own, an audit measures the objective of the model.
    assert run.audit(library, "--json=own.json").code == 0
    recalls = recall_score(table["income"], decided, average=None)
    value = metrics_of("own.json")["g_mean"]["value"]
    assert value == pytest.approx(np.sqrt(np.prod(recalls)))


@BOTH
def test_rules_beside_a_model_are_those_of_the_file(library, run):
    """A gap of groups is met by rules that no shift of the scores makes."""
    done = run.fit(
        library, "--maximize=balanced_accuracy", "--constraint=gap(selection_rate, by=sex) <= 0.1",
        "--sensitive=sex", "--test-fraction=0", "--param=solver=columns",
    )  # fmt: skip
    assert "balanced_accuracy" in done.out
    model = open_model(MODEL[library]).name_classes(LABELS)
    assert model.estimator._rules["cell_model"] is not None
    table = pd.read_csv(run.files / "new.csv")
    decided = model.predict(model.take_features(table)) == LABELS[-1]
    rates = pd.Series(decided).groupby(table["sex"]).mean()
    audited = run.audit(library, "--json=report.json")
    assert audited.code in (0, 1)
    report = json.loads(Path("report.json").read_text())
    assert report["constraints"][0]["value"] == pytest.approx(rates.max() - rates.min())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--maximize=gmean"], "--maximize: unknown metric gmean: did you mean g_mean?"),
        (["--metric=g_mean <= 0.5"], "--metric: a metric has no bound"),
        (["--minimize=g_mean"], "minimize=g_mean: larger values of it are better"),
        (["--maximize=g_mean", "--minimize=error_rate"], "cannot both be given"),
        (["--maximize=recall(zzz)"], "--maximize: no class is labelled 'zzz'"),
        (["--maximize=h_mean(on={zzz: 1})"], "zzz"),
        (["--param=maximize=g_mean"], "use --maximize"),
        (["--maximize=g_mean", "--constraint=Coverage(within=0.1, to={a: 1})"], "labelled 'a'"),
        (["--constraint=Quantification(within=0.1)"], "give maximize= or minimize="),
    ],
)
def test_objectives_that_do_not_fit_are_refused(arguments, words, run):
    done = run.fit("lightgbm", "--sensitive=sex", *arguments)
    assert done.code == 2
    assert words in done.err
