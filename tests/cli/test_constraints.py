"""Constraints of commands: the positive class, decisions of other models, groups, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import LABELS, MODEL, coded_rows, equal
from helpers import EITHER
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained.cli.model_files import open_model


def test_groups_that_are_not_named_are_those_of_the_sensitive_columns(run):
    run.fit("xgboost", "--sensitive=sex", "--sensitive=race", "--quiet")
    done = run.audit("xgboost", "--sensitive=sex", "--constraint=gap(fpr) <= 0.9")
    assert "gap(fpr('>50K'), by='sex') <= 0.9" in done.out


@pytest.mark.parametrize(
    ("library", "table"), [("xgboost", "train.csv"), ("lightgbm", "train_01.csv")]
)
def test_decisions_of_another_model_are_a_column(library, table, run):
    column, target = ("old", "income") if table == "train.csv" else ("old model", "y")
    rows = pd.read_csv(run.files / table)
    if target == "y":
        rows[column] = (rows[column] == LABELS[1]).astype(int)
    rows.to_csv("t.csv", index=False)
    text = f'--constraint=churn(to="{column}") <= 0.3; wins(over="{column}") >= 0.01'
    given = {"table": "t.csv", "target": target}
    report = run.report_of("fit", library, f"--sensitive={column}", text, **given)
    _, test = train_test_split(
        np.arange(2000), test_size=0.2, stratify=rows[target], random_state=0
    )
    model = open_model(MODEL[library]).name_classes(np.unique(rows[target]).tolist())
    predicted = model.predict(model.take_features(rows.iloc[test]))
    old, y = rows[column].to_numpy()[test], rows[target].to_numpy()[test]
    churned, won = (row["value"] for row in report["constraints"])
    assert churned == equal(np.mean(predicted != old))
    assert won == equal(np.mean((predicted == y) & (old != y)))


@EITHER
@pytest.mark.parametrize(
    "text", ['fpr(on={old: ">50K"}) <= 0.9', 'gap(error_rate, by=old, reference=">50K") <= 0.9']
)
def test_rows_are_selected_by_decisions_that_are_compared_too(library, text, run):
    more = "--sensitive=old", f"--constraint=churn(to=old) <= 0.9; {text}"
    assert run.fit(library, *more).code == 0
    rows = pd.read_csv(run.files / "train.csv")
    bools = {name: rows[name] == LABELS[1] for name in ("old", "income")}
    rows.assign(**bools).to_csv("t.csv", index=False)
    of_bools = more[0], more[1].replace('">50K"', "true")
    assert run.fit(library, *of_bools, table="t.csv", target="income").code == 0


def test_missing_decisions_of_another_model_are_named(run):
    pytest.importorskip("pyarrow", reason="parquet is read by pyarrow")
    table = pd.DataFrame({"x": [1, 2, 3], "y": [0, 1, 0]})
    table["old"] = pd.array([1, 0, None], dtype="Int64")
    table.to_parquet("t.parquet")
    more = ["--sensitive=old", "--constraint=churn(to=old) <= 0.1"]
    done = run.fit("xgboost", *more, table="t.parquet")
    assert done.code == 2
    assert "holds a missing value, which is not among the labels [0, 1]." in done.err


def trees_of(path):
    return open_model(path).booster.save_raw("json")


def test_positive_is_the_label_that_is_named(run):
    text = "--constraint=fnr <= 0.2"
    done = run.fit("xgboost", text, f"--positive={LABELS[0]}")
    assert "fnr('<=50K') <= 0.2" in done.out
    first = trees_of("model.json")
    run.fit("xgboost", f'--constraint=fnr("{LABELS[0]}") <= 0.2')
    assert trees_of("model.json") == first
    done = run.fit("xgboost", text, f"--positive={LABELS[1]}")
    assert "\nfnr('>50K') <= 0.2" in done.out
    assert trees_of("model.json") != first
    done = run.fit("xgboost", text, "--positive=rich")
    assert (done.code, done.err) == (
        2,
        "gbm-constrained fit: error: --positive rich: the labels are '<=50K', '>50K'.\n",
    )
    preset = "--constraint=EqualOpportunity(by=sex)"
    done = run.fit("xgboost", preset, f"--positive={LABELS[0]}")
    assert "gap(tpr('<=50K'), by='sex') <= 0.02" in done.out


def test_rates_name_the_class_that_they_are_about(run):
    """By default as well; in the report, in that of the saved model, and in JSON."""
    library = "xgboost"
    text = "--constraint=fnr <= 0.2"
    assert "\nfnr('>50K') <= 0.2" in run.fit(library, text).out
    report = run.report_of("fit", library, text)
    assert report["constraints"][0]["constraint"] == "fnr('>50K') <= 0.2"
    assert "value[fnr('>50K') <= 0.2]" in report["history"]
    assert "\nfnr('>50K') <= 0.2" in run.audit(library).out
    done = run.audit(library, text, f"--positive={LABELS[0]}")
    assert "\nfnr('<=50K') <= 0.2" in done.out
    # 0 and 1 speak for themselves.
    assert "\nfnr <= 0.2" in run.fit(library, text, table=run.files / "train_01.csv").out


def test_the_positive_class_of_the_training_is_that_of_its_own_constraints(run):
    library = "lightgbm"
    run.fit(library, "--constraint=fnr <= 0.5", f"--positive={LABELS[0]}", "--quiet")
    assert "\nfnr('<=50K') <= 0.5" in run.audit(library).out
    assert "\nfnr('>50K') <= 0.5" in run.audit(library, "--constraint=fnr <= 0.5").out


def test_constraints_are_printed_as_python_prints_them(run):
    text = "gap(tpr, by=[sex, race], min_group_size=5) <= 0.9"
    report = run.report_of("fit", "xgboost", f"--constraint={text}")
    constraint = gc.parse_constraint(text, positive=LABELS[1])
    assert report["constraints"][0]["constraint"] == str(constraint)


def test_small_groups_have_an_option(run):
    """The option is in the warning, which is given once for all constraints."""
    coded_rows([*range(40)], 1200).to_csv("t.csv", index=False)
    texts = ["--constraint=gap(fpr, by=g) <= 0.9", "--constraint=gap(tpr, by=g) <= 0.9"]

    def fit(*more):
        given = ["--sensitive=g", *texts, "--test-fraction=0", *more]
        return run.fit("lightgbm", *given, table="t.csv")

    done = fit()
    (line,) = [line for line in done.err.splitlines() if "min_group_size" in line]
    assert "and 35 more, 40 groups in all. They are kept (--small-groups keep)." in line
    assert "small_groups" not in done.err
    done = fit("--small-groups=merge")
    assert "They are merged into one group (--small-groups merge)." in done.err
    done = fit("--small-groups=drop")
    assert done.code == 2
    assert "--small-groups drop" in done.err


def test_constraints_without_a_value_on_a_part_of_the_rows_are_refused(run):
    library = "lightgbm"
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=300), "city": "a", "y": np.arange(300) % 2})
    table.loc[:1, "city"] = "rare"
    table.to_csv("t.csv", index=False)
    text = "--constraint=selection_rate(on={city: rare}) <= 1"
    codes = set()
    for seed in range(6):
        done = run.fit(library, text, f"--seed={seed}", table="t.csv")
        codes.add(done.code)
        assert Path(MODEL[library]).exists() == (done.code != 2)
        Path(MODEL[library]).unlink(missing_ok=True)
        if done.code == 2:
            assert "This is about the 60 rows that are held out" in done.err or (
                "This is about the 240 rows that are trained on" in done.err
            )
            assert "give another --seed or --test-fraction, such as 0." in done.err
    assert 2 in codes
    assert codes != {2}  # Another seed is a remedy.
    assert run.fit(library, text, "--test-fraction=0", table="t.csv").code == 0
    text = "--constraint=selection_rate(on={city: none}) <= 1"
    done = run.fit(library, text, table="t.csv")
    assert done.code == 2
    assert "another --seed" not in done.err


def test_errors_of_constraints_are_marked(run):
    text = "--constraint=fpr <= 0.1; fprr <= 0.1"
    done = run.fit("xgboost", text, table="none/train.csv")
    assert done.code == 2
    assert done.err == (
        "gbm-constrained fit: error: --constraint: unknown rate fprr: did you mean fpr?\n"
        "  fpr <= 0.1; fprr <= 0.1\n"
        "              ^^^^\n"
    )
    done = run.fit("xgboost", "--constraint=precision(rich) <= 0.1")
    assert done.err.split("\n")[:2] == [
        "gbm-constrained fit: error: --constraint: no class is labelled 'rich': the labels are "
        "'<=50K', '>50K'",
        "  precision(rich) <= 0.1",
    ]
