"""Model files of both libraries: labels, categories and constraints, and files that are none."""

from __future__ import annotations

import json

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from command_line import LABELS, MODEL, decisions, equal, write_rows
from helpers import CLASSIFIERS, EITHER

import gbm_constrained as gc
from gbm_constrained.cli.model_files import open_model, save_estimator

CITIES = ["A", "Berlin", "Köln", "Zürich", "aé1", "ß", "日本語"]


@EITHER
def test_an_audit_is_of_the_decisions_of_the_plain_library(library, run, adult_rows):
    assert run.fit(library, "--constraint=fpr <= 0.1", "--quiet").out == ""
    done = run.audit(
        library, "--json=report.json", "--level=0.9", "--constraint=fpr <= 0.5",
        f'--constraint=recall("{LABELS[1]}") >= 0.1',
    )  # fmt: skip
    assert done.code == 0
    assert "Both constraints are met on 1,000 held-out rows." in done.out
    assert "does not name its classes" not in done.out
    table = adult_rows.iloc[2000:]
    X = table.drop(columns=["income", "y"])
    for name in X.select_dtypes(exclude="number"):
        known = sorted(adult_rows.iloc[:2000][name].dropna().unique())
        X[name] = pd.Categorical(X[name].where(X[name].isin(known)), categories=known)
    predicted = decisions(library, X)
    with open("report.json", encoding="utf-8") as file:
        report = gc.Audit.from_json(file.read())
    assert report.accuracy.value == equal(np.mean(predicted == table["y"]))
    assert report.frame["value"][0] == equal(np.mean(predicted[table["y"] == 0]))
    assert report.level == 0.9


# --- features -----------------------------------------------------------------------------------


@EITHER
def test_categories_that_are_new_to_the_model_are_missing(library, run, adult_rows):
    run.fit(library, "--constraint=fpr <= 0.1", "--quiet")
    model = open_model(MODEL[library])
    rows = adult_rows.iloc[2000:].copy()
    rows["occupation"] = np.where(np.arange(1000) % 2, rows["occupation"], None)
    missing = model.predict_proba(model.take_features(rows))
    rows["occupation"] = np.where(np.arange(1000) % 2, rows["occupation"], "Astronaut")
    np.testing.assert_array_equal(model.predict_proba(model.take_features(rows)), missing)
    rows["occupation"] = 7.0
    with pytest.raises(ValueError, match=r"'occupation' holds none of the values .* trained on"):
        model.take_features(rows)


@EITHER
def test_columns_are_of_the_kind_they_were_trained_on(library, run):
    """Texts are not taken for the codes that a table gives them, nor empty columns for others."""
    run.fit(library, "--constraint=fpr <= 0.5", "--quiet")
    rows = pd.read_csv(run.files / "new.csv")
    rows.assign(age=rows["age"].astype(str).mask(rows.index == 7, "?")).to_csv("t.csv")
    done = run.audit(library, table="t.csv", target="income")
    assert done.code == 2
    assert "column 'age' holds texts such as '?', " in done.err
    assert f"and {MODEL[library]} was trained on numbers there." in done.err
    rows.assign(age=np.nan, race=np.nan).to_csv("t.csv")
    assert run.audit(library, table="t.csv", target="income").code == 0
    rows.drop(columns="age").to_csv("t.csv", index=False)
    done = run.audit(library, table="t.csv", target="income")
    missing = f"the data have no column 'age', which {MODEL[library]} was trained on"
    assert missing in done.err


@EITHER
def test_categories_of_numbers_and_unused_columns_are_found_in_the_file(library, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "constant": 0.0,
            "empty": pd.Categorical(["only"] * 400),
            "code": pd.Categorical(rng.integers(3, 6, 400)),
            "kind": pd.Categorical(rng.choice(["a", "b"], 400)),
        }
    )
    y = ((X["code"] == 4) ^ (X["kind"] == "a")).astype(int)
    more = {"enable_categorical": True} if library == "xgboost" else {"verbose": -1}
    model = CLASSIFIERS[library](n_estimators=5, n_jobs=1, **more).fit(X, y)
    save_estimator(model, tmp_path / MODEL[library], X)
    found = open_model(tmp_path / MODEL[library]).name_classes([0, 1])
    table = X.astype({"code": int, "kind": object}).assign(constant=1.0)
    np.testing.assert_array_equal(found.predict(found.take_features(table)), model.predict(X))


@EITHER
def test_categories_of_any_alphabet_are_found_in_the_file(library, run):
    """XGBoost before 3.4 cuts the names of categories that are not ASCII, and shifts them."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"city": rng.choice(CITIES, 700), "größe": rng.normal(size=700)})
    table["y"] = (table["city"].isin(CITIES[::2]) ^ (table["größe"] > 1.0)).astype(int)
    table.to_csv("train.csv", index=False)
    fitted = run.fit(library, table="train.csv")
    assert fitted.code == 0, fitted.err
    X = table[["city", "größe"]].astype({"city": "category"})
    expected = np.mean(decisions(library, X) == table["y"])
    assert expected > 0.95
    report = run.report_of("audit", library, "--constraint=accuracy >= 0.5", table="train.csv")
    assert report["accuracy"]["value"] == equal(expected)
    assert open_model(MODEL[library]).find_categories(X) == {"city": CITIES}


@pytest.mark.parametrize("form", ["json", "ubj"])
@pytest.mark.parametrize("names", [CITIES, ["aé1", "b"], ["x", "é"]], ids=len)
def test_names_that_xgboost_cuts_in_its_own_files_are_refused(form, names, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"n": 0.0, "city": pd.Categorical(rng.choice(names, 300))})
    y = (X["city"] == names[-1]).astype(int)
    plain = xgb.XGBClassifier(n_estimators=2, n_jobs=1, enable_categorical=True).fit(X, y)
    plain.save_model(tmp_path / f"m.{form}")
    model = open_model(tmp_path / f"m.{form}")
    if json.loads(plain.get_booster().save_raw("json"))["version"] >= [3, 4]:
        assert model.find_categories(X) == {"city": names}
        return
    with pytest.raises(ValueError, match=r"cuts the names .* 'city'.* by XGBoost 3\.4 or"):
        model.take_features(X)


def test_numbers_that_lightgbm_takes_as_categories(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"n": rng.integers(0, 4, 400), "c": rng.choice(list("uv"), 400)})
    X["unused"] = 0.0
    y = (X["n"] == 2) ^ (X["c"] == "u")
    given = lgb.Dataset(X.astype({"c": "category"}), y, categorical_feature=["n", "c"])
    booster = lgb.train({"objective": "binary", "verbose": -1}, given, 3)
    booster.save_model(tmp_path / "m.txt")
    model = open_model(tmp_path / "m.txt")
    assert model.find_categories(model.take_features(X)) == {"c": ["u", "v"]}
    found = model.predict_proba(model.take_features(X))[:, 1]
    np.testing.assert_array_equal(found, booster.predict(X.astype({"c": "category"})))
    with pytest.raises(ValueError, match=r"on 1 columns of texts .* have 0 that these may"):
        model.take_features(X.assign(c=0))


def test_categories_that_a_slice_of_xgboost_lost_are_not_made_up(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"c": pd.Categorical(rng.choice(list("xyz"), 100))})
    rows = xgb.DMatrix(X, X["c"] == "y", enable_categorical=True)
    part = xgb.train({"objective": "binary:logistic"}, rows, 4)[:2]
    part.save_model(tmp_path / "m.json")
    model = open_model(tmp_path / "m.json")
    if json.loads(part.save_raw("json"))["learner"]["gradient_booster"]["model"]["cats"]["enc"]:
        # XGBoost 3.4 keeps them.
        assert model.take_features(X)["c"].cat.categories.tolist() == list("xyz")
        return
    with pytest.raises(ValueError, match="does not say which categories column 'c' had"):
        model.take_features(X)


def test_categories_of_xgboost_need_pyarrow(run, monkeypatch):
    run.fit("xgboost", "--quiet")

    def refuse(self, export_to_arrow=False):
        raise ImportError("pyarrow")

    monkeypatch.setattr(xgb.Booster, "get_categories", refuse)
    assert run.fit("xgboost").code == 0  # The fit knows the categories.
    done = run.audit("xgboost", "--constraint=fpr <= 0.1")
    assert done.code == 2
    assert "reading these from XGBoost needs pyarrow" in done.err


def test_lightgbm_writes_spaces_as_underscores(run):
    more = {"table": run.files / "train_01.csv"}
    assert run.fit("lightgbm", "--constraint=fpr <= 0.3", **more).code == 0
    assert "old_model" in open_model("model.txt").features


@EITHER
@pytest.mark.parametrize("role", ["sensitive", "drop"])
def test_columns_may_differ_by_space_and_underscore_only(library, role, run):
    write_rows(**{"age group": ["old", "young"] * 100, "age_group": ["young", "old"] * 100})
    done = run.fit(library, f"--{role}=age_group", "--constraint=fpr <= 0.9", table="t.csv")
    assert done.code == 0
    done = run.audit(library, table="t.csv")
    if library == "xgboost":  # XGBoost writes names as they are.
        assert done.code == 0
    else:
        assert done.code == 2
        assert "columns 'age group' and 'age_group' of the data have one name in" in done.err


# --- labels and constraints ---------------------------------------------------------------------


@EITHER
def test_labels_that_equal_numbers_are_named(library, run):
    table = write_rows()
    table.assign(y=table["y"] == 1).to_csv("t.csv", index=False)
    run.fit(library, "--quiet", table="t.csv")
    assert open_model(MODEL[library]).labels == [False, True]
    done = run.audit(library, "--constraint=fpr <= 0.9", table="t.csv")
    assert done.code == 0
    assert "does not name its classes" not in done.out


def test_a_model_without_names_needs_rows_of_all_classes(run):
    rows = pd.read_csv(run.files / "new.csv")
    run.fit("lightgbm", "--quiet")
    lgb.Booster(model_file="model.txt").save_model("model.txt")  # The note is lost.
    rows[rows["income"] == LABELS[0]].to_csv("one.csv", index=False)
    done = run.audit("lightgbm", "--constraint=fpr <= 0.1", table="one.csv", target="income")
    assert "has 2 classes and does not name them" in done.err
    assert "give rows of all classes" in done.err


@EITHER
def test_constraints_in_a_model_file_are_the_default(library, run):
    texts = ("--constraint=precision(label='>50K') >= 0.1", "--constraint=fpr <= 0.9")
    run.fit(library, *texts, "--quiet")
    done = run.audit(library)
    assert done.code == 0
    assert "does not name" not in done.out
    assert "precision('>50K') >= 0.1" in done.out
    assert "fpr('>50K') <= 0.9" in done.out
    assert "--positive is for --constraint" in run.audit(library, "--positive=>50K").err
    assert "precision" not in run.audit(library, "--constraint=fpr <= 0.8").out


@EITHER
def test_python_reads_the_model_and_its_reports(library, run):
    table = write_rows()
    labels = np.array(["no", "yes"])
    table.assign(y=labels[table["y"]]).to_csv("t.csv", index=False)
    run.fit(library, "--constraint=fnr <= 0.5", "--quiet", table="t.csv")
    model = CLASSIFIERS[library]().load_model(MODEL[library])
    assert list(model.constraints) == [gc.fnr() <= 0.5]
    assert model.constraint_report_["constraint"].tolist() == ["fnr('yes') <= 0.5"]
    predicted = model.predict(table[["x"]])
    named = open_model(MODEL[library]).name_classes(["no", "yes"])
    expected = named.predict(table[["x"]])
    answers = labels[predicted] if library == "xgboost" else predicted
    np.testing.assert_array_equal(answers, expected)


def test_constraints_on_a_model_that_a_file_does_not_hold_are_refused(run):
    table = write_rows()
    X, y = table[["x"]], table["y"]
    old = lgb.LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1).fit(X, y)
    model = CLASSIFIERS["lightgbm"](
        constraints=[gc.churn(to=old) <= 0.5], n_estimators=2, n_jobs=1, verbose=-1
    )
    model.fit(X, y).save_model("model.txt")
    write_rows(old=old.predict(X))
    done = run.audit("lightgbm", table="t.csv")
    assert done.code == 2
    assert "the constraint churn <= 0.5 of model.txt speaks of another model, which" in done.err
    again = ["--sensitive=old", "--constraint=churn(to=old) <= 0.5"]
    assert run.audit("lightgbm", *again, table="t.csv").code == 0


@EITHER
def test_a_file_of_the_library_has_no_constraints(library, run):
    rows = pd.read_csv(run.files / "train.csv")
    X, y = rows[["age", "education-num"]], (rows["income"] == LABELS[1]).astype(int)
    if library == "xgboost":
        xgb.XGBClassifier(n_estimators=2, n_jobs=1).fit(X, y).save_model("model.json")
    else:
        fitted = lgb.LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1).fit(X, y)
        fitted.booster_.save_model("model.txt")
    done = run.audit(library)
    assert done.code == 2
    missing = f"{MODEL[library]} has no constraints with it: give at least one --constraint."
    assert missing in done.err
    assert "does not name its classes: taken as the sorted labels" in done.out


# --- files that are none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("table.csv", "a,b\n1,2\n", "is neither a model of XGBoost"),
        ("other.json", '{"a": 1}', "is no classifier or regressor of XGBoost"),
    ],
)
def test_files_that_hold_no_model_are_refused(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        open_model(tmp_path / name)
    with pytest.raises(OSError, match="none"):
        open_model(tmp_path / "none")


def test_models_without_named_columns_are_refused(tmp_path, binary):
    X, y = binary
    xgb.XGBClassifier(n_estimators=1, n_jobs=1).fit(X, y).save_model(tmp_path / "m.json")
    with pytest.raises(ValueError, match="names no features: train it on a table"):
        open_model(tmp_path / "m.json")


@pytest.mark.parametrize(
    ("objective", "is_classifier"),
    [
        ("binary:logistic", True),
        ("binary:hinge", True),
        ("reg:logistic", True),
        ("multi:softmax", True),
        ("binary:logitraw", False),
        ("rank:pairwise", False),
    ],
)
def test_only_classifiers_of_xgboost_are_audited(objective, is_classifier, binary, tmp_path):
    """The objective decides: the answers of any model could be cut at 0.5."""
    X, y = pd.DataFrame(binary[0]).add_prefix("x"), binary[1]
    rows = xgb.DMatrix(X, y, group=[y.size] if objective == "rank:pairwise" else None)
    settings = {"objective": objective, "nthread": 1}
    settings |= {"num_class": 3} if objective.startswith("multi") else {}
    booster = xgb.train(settings, rows, 3)
    booster.save_model(tmp_path / "m.json")
    if not is_classifier:
        with pytest.raises(ValueError, match=f"no classifier .* trained with '{objective}'"):
            open_model(tmp_path / "m.json")
        return
    model = open_model(tmp_path / "m.json")
    scores = booster.predict(rows, output_margin=True)
    decided = scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0.0).astype(int)
    predicted = model.name_classes(list(range(model.n_classes))).predict(X)
    np.testing.assert_array_equal(predicted, decided)
