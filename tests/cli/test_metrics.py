"""Metrics and pair rates from a shell: trained, audited, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import LABELS, MODEL, write_rows
from helpers import CLASSIFIERS, EITHER
from sklearn.metrics import recall_score, roc_auc_score

from gbm_constrained.cli.model_files import open_model
from gbm_constrained.metrics import parse_metric
from gbm_constrained.solvers import Reduction


def metrics_of(path="report.json"):
    records = json.loads(Path(path).read_text())["metrics"]
    return {record["metric"]: record for record in records}


@EITHER
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


@EITHER
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


def test_options_are_those_of_the_objects_of_parameters(run):
    library = "xgboost"
    done = run.fit(library, "--maximize=g_mean", "--param=solver__oracle=refit", "--quiet")
    assert done.code == 0, done.err
    loaded = CLASSIFIERS[library]().load_model(MODEL[library])
    assert loaded.solver == Reduction(oracle="refit")
    assert "refit" in set(loaded.metric_report_["oracle"])
    assert repr(loaded.measure_on) == "CrossFit(n_folds=2)"
    done = run.fit(
        library, "--constraint=fpr <= 0.3", "--guarantee=high_probability", "--delta=0.2",
        "--param=guarantee__fraction=0.4", "--param=measure_on__n_folds=3", "--quiet",
    )  # fmt: skip
    assert done.code in (0, 1), done.err
    loaded = CLASSIFIERS[library]().load_model(MODEL[library])
    assert repr(loaded.measure_on) == "CrossFit(n_folds=3)"
    assert repr(loaded.guarantee) == "HighProbability(delta=0.2, fraction=0.4)"
    assert loaded.feasibility_.level == 0.2


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


GAP = "gap(auc, by=sex) <= 0.3"


@pytest.fixture
def table(run):
    """A file whose label follows the first feature, with a group."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 500))
    y = (a + 0.5 * rng.normal(size=500) > 0).astype(int)
    write_rows(n=500, x=a, b=b, sex=rng.choice(["F", "M"], 500), y=y)
    return "t.csv"


def test_a_pair_rate_is_trained_and_audited(run, table):
    library = "lightgbm"
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
