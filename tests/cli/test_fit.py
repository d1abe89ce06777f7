"""``gbm-constrained fit`` against the same fit in Python, and what it prints of the fit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import LABELS, MODEL, TEXTS, TINY, decisions, equal, write_rows
from helpers import CLASSIFIERS, EITHER
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained.cli.model_files import LabelledXGBClassifier, open_model


@EITHER
def test_a_fit_is_the_fit_of_python(library, run, adult_rows):
    done = run.fit(
        library, "--constraint", "fpr <= 0.08; gap(tpr, by=[sex]) <= 0.2",
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
    clf = CLASSIFIERS[library](
        constraints=[gc.fpr() <= 0.08, gc.gap(gc.tpr(), by="sex") <= 0.2],
        random_state=3,
        **TINY,
        **more,
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
    assert report["accuracy"]["value"] == equal(np.average(expected == y, weights=w))
    rate = np.average(expected[y == 0], weights=w[y == 0])
    assert report["constraints"][0]["value"] == equal(rate)
    assert report["history"] is not None
    page = Path("page.html").read_text(encoding="utf-8")
    assert page.startswith("<!")
    file = report["provenance"]["file"]
    assert Path(file).exists()
    assert f"<dt>Model file</dt><dd>{file}</dd>" in page
    is_met = all(row["verdict"] == "met" for row in report["constraints"])
    assert done.code == (0 if is_met else 1)


@pytest.mark.parametrize("constraints", [[], ["class_error('no') <= 0.2; fpr <= 0.1"]])
def test_models_of_xgboost_do_not_depend_on_the_labels(constraints, run):
    """Constraints, reports and predictions are in the labels; the booster sees positions."""
    table = write_rows("t.csv", 400)
    constraints = [c for text in constraints for c in gc.parse_constraints(text)]
    labels = np.array(["no", "yes"])
    named = LabelledXGBClassifier(constraints=constraints, **TINY)
    named.fit(table[["x"]], labels[table["y"]])
    coded = [gc.class_error(0) <= 0.2, gc.fpr() <= 0.1][: len(constraints)]
    plain = gc.ConstrainedXGBClassifier(constraints=coded, **TINY).fit(table[["x"]], table["y"])
    assert named.get_booster().save_raw() == plain.get_booster().save_raw()
    np.testing.assert_array_equal(named.predict(table[["x"]]), labels[plain.predict(table[["x"]])])
    if constraints:
        values = named.constraint_report_.iloc[:, 1:]
        pd.testing.assert_frame_equal(values, plain.constraint_report_.iloc[:, 1:])
        assert named.constraint_report_["constraint"].tolist() == [
            "class_error('no') <= 0.2",
            "fpr('yes') <= 0.1",
        ]


def test_progress_names_labels_as_the_report_does(run):
    table, seen = write_rows(), []
    model = LabelledXGBClassifier(constraints=[gc.fnr() <= 0.001], **TINY)
    labels = np.array(["no", "yes"])[table["y"]]
    model.fit(table[["x"]], labels, constraint_callbacks=[seen.append])
    assert {name for state in seen for name in state.violations.index} == {"fnr('yes') <= 0.001"}


def test_quiet_fits_print_nothing(run):
    library = "lightgbm"
    write_rows()
    done = run.fit(library, "--constraint=fnr <= 0.5", "--quiet", table="t.csv")
    assert (done.out, done.err) == ("", "")


def test_without_held_out_rows_the_fit_reports_itself(run):
    def fit(*more):
        return run.fit("xgboost", "--test-fraction=0", *more)

    done = fit("--constraint=fpr <= 0.2")
    assert done.code == 0
    assert "2,000 rows to train on, 0 held out" in done.out
    assert "out of fold" in done.out
    # The verdict is by the training rows, and the command says so.
    done = fit("--measure-on=train", "--constraint=fpr <= 0.9")
    assert done.code == 1
    assert "met on training rows" in done.out
    assert (
        "All constraints are met, on 2,000 training rows.\nTraining rows are optimistic"
        in done.out
    )
    done = fit("--measure-on=train", "--constraint=fnr <= 0.001")
    assert done.code == 1
    assert "warning: The model returned misses constraints beyond sampling error" in done.err
    done = fit("--constraint=recall >= 1; fpr <= 0")
    assert done.code == 1
    assert done.err.startswith("gbm-constrained: warning: Cannot be met: no decision")
    assert done.err.count("warning:") == 1  # though several boosters were trained


def test_without_constraints_the_model_is_the_librarys_own(run):
    done = run.fit("xgboost", table=run.files / "train_01.csv")
    assert done.code == 0
    assert "No constraint was given; accuracy is" in done.out
    assert run.fit("xgboost", "--test-fraction=0").code == 0


@EITHER
def test_warnings_and_errors_name_the_labels_of_the_table(library, run):
    constraints = ["class_error('<=50K') <= 0.001", "class_error('>50K') <= 0.001"]
    given = [part for text in constraints for part in ("--constraint", text)]
    done = run.fit(library, *given, "--test-fraction", "0")
    first, *others = done.err.splitlines()
    assert first.startswith("gbm-constrained: warning: Cannot be met: no decision")
    assert all(text in first for text in constraints)
    # Each constraint has a line.
    assert [line.partition(": at best")[0] for line in others[:2]] == [
        f"  {text}" for text in constraints
    ]
    assert "class_error(0)" not in done.err
    done = run.fit(library, *given, "--guarantee", "high_probability")
    assert done.code == 2
    assert f"cannot be given for {constraints[0]}" in done.err
    assert "class_error(0)" not in done.err


def test_constraints_are_named_by_labels_that_are_positions_of_others(run):
    """XGBoost knows 1 and 2 as 0 and 1. The constraint on 1 is not the one on position 1."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=400), "g": np.where(rng.random(400) < 0.1, *"ab")})
    table["y"] = np.where(table["x"] + rng.normal(size=400) > 0, 2, 1)
    table.to_csv("t.csv", index=False)
    texts = [f"each(class_error({label}), by=g) <= 0.3" for label in (1, 2)]
    given = [*map("--constraint={}".format, texts), "--sensitive=g"]
    done = run.fit("xgboost", *given, table="t.csv")
    named = re.findall(r"class_error\((.)\), by='g'.* fewer than min_group_size", done.err)
    assert named == ["1", "1"]  # of the fit, then of the audit
    assert len(re.findall(r"class_error\(2\), by='g'\) <= 0.3: some groups", done.err)) == 2


@EITHER
def test_groups_and_histories_are_named_by_the_labels_of_the_table(library, run):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=400), "sex": np.arange(400) % 2})
    table["y"] = np.where(table["x"] + rng.normal(size=400) > 0, 2, 1)
    table["old"] = np.where(table.index < 200, 1, 2)
    table.to_csv("t.csv", index=False)
    texts = ["churn(to=old) <= 0.9", "each(recall(1), by=[sex, old], min_group_size=400) >= 0"]
    given = [*map("--constraint={}".format, texts), "--sensitive=sex", "--sensitive=old"]
    done = run.fit(library, *given, "--json=a.json", table="t.csv")
    named = [f"sex={sex}, old={old}" for sex in (0, 1) for old in (1, 2)]
    assert re.findall(r"sex=., old=.", done.err) == named * 2  # of the fit, then of the audit
    report = json.loads(Path("a.json").read_text())
    values = [name[6:-1] for name in report["history"] if name.startswith("value[")]
    assert values == [row["constraint"] for row in report["constraints"]]


def test_columns_of_several_roles(run):
    library = "lightgbm"
    done = run.fit(
        library, "--sensitive=sex", "--drop=fnlwgt", "--weight=age",
        "--constraint=gap(fpr, by=sex) <= 0.5; each(fpr, by=race) <= 0.5",
    )  # fmt: skip
    assert "constraints use features: race (--sensitive takes them out)" in done.out
    model = open_model(MODEL[library])
    assert not {"sex", "fnlwgt", "age", "income"} & set(model.features)
    assert len(model.features) == 12
    assert model.n_classes == 2


@EITHER
@pytest.mark.parametrize("kind", ["texts", "numbers", "bools"])
def test_labels_of_any_kind_and_several_classes(library, kind, run, adult_rows):
    table = adult_rows.iloc[:1500].select_dtypes("number").drop(columns="y")
    several = pd.cut(table["hours-per-week"], [0, 39, 40, 99]).cat.codes
    target = {
        "texts": np.array(["part", "full", "more"])[several],
        "numbers": several * 2 + 5,
        "bools": adult_rows["y"].iloc[:1500].astype(bool),
    }[kind]
    table.assign(kind=target).to_csv("table.csv", index=False)
    labels = np.unique(target).tolist()
    wanted = f'"{labels[-1]}"' if kind == "texts" else labels[-1]
    constraint = f"--constraint=class_error({wanted}) <= 0.6"
    report = run.report_of("fit", library, constraint, table="table.csv", target="kind")
    assert report["classes"] == labels
    assert report["constraints"][0]["constraint"] == f"class_error({labels[-1]!r}) <= 0.6"
    # The hours decide the class, and each class is predicted by its own label.
    assert report["accuracy"]["value"] > 0.7


@EITHER
def test_monotone_constraints_are_a_list(library, run):
    """JSON has no tuples, which XGBoost takes only."""
    x = np.random.default_rng(0).normal(size=300)
    pd.DataFrame({"x": x, "y": (np.abs(x) > 0.5).astype(int)}).to_csv("t.csv", index=False)
    arguments = ["fit", "t.csv", "--target=y", f"--out={MODEL[library]}", f"--library={library}"]
    arguments += ["--param=monotone_constraints=[1]", "--param=n_estimators=10", "--quiet"]
    assert run(*arguments).code == 0
    model = open_model(MODEL[library])
    probability = model.predict_proba(pd.DataFrame({"x": np.sort(x)}))[:, 1]
    assert (np.diff(probability) >= 0.0).all()
    assert np.ptp(probability) > 0.1


@pytest.mark.parametrize(
    ("library", "objective", "code"),
    [
        ("xgboost", "binary:logitraw", 2),
        ("xgboost", "binary:hinge", 0),
        ("lightgbm", "mse", 2),
        ("lightgbm", "xentropy", 0),
    ],
)
def test_only_classifiers_are_written(library, objective, code, run):
    done = run.fit(library, f"--param=objective={objective}", table=run.files / "train_01.csv")
    assert done.code == code
    assert Path(MODEL[library]).exists() == (code == 0)
    assert ("is no classifier" in done.err) == (code == 2)


def test_options_of_the_solver_are_parameters(run, adult_rows):
    """A proxy and a name of the solver; the ramp decides otherwise than the default."""
    library = "lightgbm"
    rule, decided = "gap(selection_rate, by=sex) <= 0.02", {}
    table = adult_rows.iloc[2000:].drop(columns=["income", "old", "y"]).reset_index(drop=True)
    X = table.astype(dict.fromkeys(TEXTS, "category"))
    for proxy in ("ramp", "sigmoid", None):
        more = ["--param=solver=abpp", *([f"--param=solver__proxy={proxy}"] if proxy else [])]
        done = run.fit(library, f"--constraint={rule}", "--drop=old", *more)
        assert done.code in (0, 1)
        decided[proxy] = decisions(library, X)
    assert np.array_equal(decided["sigmoid"], decided[None])
    assert not np.array_equal(decided["ramp"], decided[None])
