"""Fits under rules of amounts: both libraries, linear models, reports, files and audits."""

import numpy as np
import pandas as pd
import pytest

import gbm_constrained as gc
from gbm_constrained.cli.main import ALL_MET, BAD_INPUT, NOT_MET, main

BOOSTERS = {
    "xgboost": (gc.ConstrainedXGBClassifier, {"verbosity": 0, "n_jobs": 1}),
    "lightgbm": (gc.ConstrainedLGBMClassifier, {"verbose": -1, "n_jobs": 1, "num_leaves": 7}),
}


def draw(n=2000, seed=0):
    """Rows whose positives are harder to find where amounts are small."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    amount = np.exp(rng.normal(size=n) + 0.5 * X["a"].to_numpy())
    y = (X["a"] + X["b"] + 1.2 * rng.normal(size=n) > 1.0).astype(int).to_numpy()
    return X, y, pd.DataFrame({"amount": amount, "group": rng.integers(0, 2, n)})


def missed_value(model, X, y, amount):
    missed = (model.predict(X) == 0) & (y == 1)
    return amount[missed].sum() / amount[y == 1].sum()


@pytest.mark.parametrize("library", BOOSTERS)
def test_a_booster_misses_so_much_of_the_value_of_new_rows(library, tmp_path):
    kind, quiet = BOOSTERS[library]
    X, y, table = draw()
    model = kind(constraints=[gc.fnr(weight="amount") <= 0.15], n_estimators=20, **quiet)
    model.fit(X, y, sensitive_features=table)
    report = model.constraint_report_.iloc[0]
    assert report["constraint"] == "fnr[weight=amount] <= 0.15"
    train = missed_value(model, X, y, table["amount"].to_numpy())
    assert report["train"] == pytest.approx(train, abs=1e-9)
    assert report["low"] <= report["held_out"] <= report["high"]
    assert report["held_out"] <= 0.15 + 1e-12
    X_new, y_new, new = draw(4000, seed=1)
    amount = new["amount"].to_numpy()
    value = missed_value(model, X_new, y_new, amount)
    positive = amount[y_new == 1]
    error = np.sqrt((positive**2).sum()) / positive.sum() / 2.0
    assert value <= 0.15 + 3.0 * error
    audited = gc.audit(model, X_new, y_new, model.constraints, sensitive_features=new).frame.iloc[
        0
    ]
    assert audited["value"] == pytest.approx(value, abs=1e-12)
    path = tmp_path / "model.json"
    model.save_model(path)
    loaded = kind()
    loaded.load_model(path)
    assert loaded.constraints == model.constraints


def test_amounts_of_one_train_the_same_model():
    X, y, table = draw(800)
    table["amount"] = 1.0
    decided = []
    for options in ({}, {"weight": "amount"}):
        model = gc.ConstrainedXGBClassifier(
            constraints=[gc.fnr(**options) <= 0.1], n_estimators=8, n_jobs=1
        )
        decided.append(model.fit(X, y, sensitive_features=table).predict(X))
    assert np.mean(decided[0] != decided[1]) <= 0.005


def test_logistic_regression_meets_a_bound_of_amounts_exactly():
    X, y, table = draw(300)
    rules = [gc.log_loss(on=gc.label(1), weight="amount") <= 0.3]
    model = gc.ConstrainedLogisticRegression(constraints=rules, tol=1e-8, max_iter=4000)
    model.fit(X, y, sensitive_features=table)
    loss, inside = -np.log(model.predict_proba(X)[:, 1]), y == 1
    mean = np.average(loss[inside], weights=table["amount"].to_numpy()[inside])
    assert mean == pytest.approx(0.3, abs=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "rule",
    [
        gc.log_loss(on=gc.label(1), weight="amount") <= 0.4,
        gc.fnr(weight="amount") <= 0.1,
        gc.cost([[0, 0], [1, 0]], weight="amount") + gc.cost([[0, 0.4], [0, 0.4]]) <= 0.3,
    ],
)
def test_multipliers_of_whole_amounts_are_those_of_repeated_rows(rule):
    """The copies of a row weigh as much as it does: powers of two make their shares exact."""
    X, y, _ = draw(100)
    amount = np.random.default_rng(0).choice([1.0, 2.0, 4.0], y.size)
    copies = np.repeat(np.arange(y.size), amount.astype(int))
    once, often = (
        gc.ConstrainedLogisticRegression(constraints=[rule], n_iterations=20).fit(
            X.iloc[at], y[at], sample_weight=weight, sensitive_features={"amount": amount[at]}
        )
        for at, weight in ((np.arange(y.size), None), (copies, 1.0 / amount[copies]))
    )
    assert once.multipliers_.iloc[0] > 0.0
    np.testing.assert_allclose(once.multipliers_, often.multipliers_, rtol=1e-12)
    np.testing.assert_allclose(once.coef_, often.coef_, rtol=1e-10)


def test_a_support_vector_machine_bounds_amounts():
    X, y, table = draw(400)
    model = gc.ConstrainedLinearSVC(constraints=[gc.fnr(weight="amount") <= 0.1])
    model.fit(X, y, sensitive_features=table)
    assert missed_value(model, X, y, table["amount"].to_numpy()) <= 0.1 + 1e-9


def test_data_sets_count_amounts_of_a_column_of_theirs():
    X, y, table = draw(600)
    X = X.assign(amount=table["amount"])
    other, y_other, _ = draw(400, seed=3)
    other = other.assign(amount=np.linspace(0.0, 10.0, 400))
    rule = gc.fnr(on=gc.dataset("later"), weight="amount") <= 0.2
    model = gc.ConstrainedXGBClassifier(constraints=[rule], n_estimators=5, measure_on="train")
    model.fit(X, y, datasets={"later": (other, y_other)})
    found = missed_value(model, other, y_other, other["amount"].to_numpy())
    assert model.constraint_report_["train"][0] == pytest.approx(found, abs=1e-9)


def test_the_command_line_reads_amounts_from_a_column(tmp_path, capsys):
    X, y, table = draw(600)
    path, model = tmp_path / "rows.csv", tmp_path / "model.json"
    X.assign(amount=table["amount"], y=y).to_csv(path, index=False)
    arguments = ["fit", path, "--target", "y", "--sensitive", "amount", "--library", "xgboost"]
    arguments += ["--param", "n_estimators=3", "--out", model, "--constraint"]
    arguments = list(map(str, arguments))
    assert main([*arguments, "fnr(weight=amount) <= 0.3"]) in (ALL_MET, NOT_MET)
    assert "fnr[weight=amount] <= 0.3" in capsys.readouterr().out
    model.unlink()
    assert main([*arguments, "fnr(weight=value) <= 0.3"]) == BAD_INPUT
    assert "fnr(weight='value') <= 0.3" in capsys.readouterr().err
