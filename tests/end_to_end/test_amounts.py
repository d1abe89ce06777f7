"""Fits under rules of amounts and of costs: both libraries, linear models, reports, files."""

import numpy as np
import pandas as pd
import pytest
from helpers import EITHER

import gbm_constrained as gc
from gbm_constrained.cli.main import ALL_MET, BAD_INPUT, NOT_MET, main

BOOSTERS = {
    "xgboost": (gc.ConstrainedXGBClassifier, {"verbosity": 0, "n_jobs": 1}),
    "lightgbm": (gc.ConstrainedLGBMClassifier, {"verbose": -1, "n_jobs": 1, "num_leaves": 7}),
}
REVIEW = 0.5  # Price of each alarm; a missed row costs its amount.
COST = gc.cost([[0, 0], [1, 0]], weight="amount") + gc.cost([[0, REVIEW], [0, REVIEW]])


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


def assert_saved(model, folder):
    """Constraints and report are in the file of a model."""
    model.save_model(folder / "model.json")
    loaded = type(model)().load_model(folder / "model.json")
    assert loaded.constraints == model.constraints
    pd.testing.assert_frame_equal(loaded.constraint_report_, model.constraint_report_)


@EITHER
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
    assert_saved(model, tmp_path)


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


def costs_of(model, X, y, table):
    decided = model.predict(X)
    missed = table["amount"].to_numpy() * ((decided == 0) & (y == 1))
    return missed + REVIEW * (decided == 1)


@EITHER
def test_a_booster_costs_so_much_on_new_rows(library, tmp_path):
    kind, quiet = BOOSTERS[library]
    X, y, table = draw()
    model = kind(constraints=[COST <= 0.3], n_estimators=20, **quiet)
    model.fit(X, y, sensitive_features=table)
    report = model.constraint_report_.iloc[0]
    assert report["train"] == pytest.approx(costs_of(model, X, y, table).mean(), abs=1e-9)
    assert report["low"] <= min(report["held_out"], 0.3)
    assert report["held_out"] <= report["high"]
    X_new, y_new, new = draw(4000, seed=1)
    cost = costs_of(model, X_new, y_new, new)
    error = cost.std() / np.sqrt(cost.size)
    assert cost.mean() <= 0.3 + 3.0 * np.hypot(error, (report["high"] - report["low"]) / 3.92)
    audited = gc.audit(model, X_new, y_new, model.constraints, sensitive_features=new)
    row = audited.frame.iloc[0]
    assert row["value"] == pytest.approx(cost.mean(), abs=1e-12)
    np.testing.assert_allclose(
        [row["low"], row["high"]], cost.mean() + 1.96 * error * np.array([-1, 1]), rtol=1e-3
    )
    assert "cost([[0, 0], [1, 0]])" in audited._repr_html_()
    assert_saved(model, tmp_path)


def test_the_gap_of_costs_between_groups_is_bounded():
    X, y, table = draw()
    table["group"] = group = (X["a"].to_numpy() > 0).astype(int)
    gaps = []
    for rules in ([], [gc.gap(COST, by="group") <= 0.05]):
        model = gc.ConstrainedXGBClassifier(
            constraints=rules, n_estimators=150, measure_on="train", n_jobs=1
        )
        model.fit(X, y, sensitive_features=table)
        cost = costs_of(model, X, y, table)
        gaps.append(abs(cost[group == 0].mean() - cost[group == 1].mean()))
    assert model.constraint_report_["train"][0] == pytest.approx(gaps[1], abs=1e-9)
    assert gaps[0] > 0.15
    assert gaps[1] <= 0.05 + 1e-9


def test_linear_models_bound_costs():
    X, y, table = draw(400)
    for kind in (gc.ConstrainedLogisticRegression, gc.ConstrainedLinearSVC):
        model = kind(constraints=[COST <= 0.3]).fit(X, y, sensitive_features=table)
        value = costs_of(model, X, y, table).mean()
        assert value <= 0.3 + 1e-9
        assert model.constraint_report_["train"][0] == pytest.approx(value, abs=1e-9)


def test_a_curve_of_bounds_on_the_cost():
    X, y, table = draw(600)
    model = gc.ConstrainedXGBClassifier(constraints=[COST <= 0.3], n_estimators=5)
    curve = gc.tradeoff_curve(model, X, y, bounds=[0.4, 0.2], sensitive_features=table)
    assert curve["bound"].tolist() == [0.4, 0.2]
    assert curve["value"].is_monotonic_decreasing


def test_a_cost_of_amounts_has_no_certificate():
    X, y, table = draw(300)
    model = gc.ConstrainedXGBClassifier(
        constraints=[COST <= 0.3], n_estimators=2, guarantee="high_probability"
    )
    with pytest.raises(ValueError, match="a mean of amounts is no rate"):
        model.fit(X, y, sensitive_features=table)


def test_a_cost_of_rows_has_a_certificate():
    X, y, _ = draw(3000)
    rule = gc.cost([[0, 1], [4, 0]]) <= 1.0
    model = gc.ConstrainedXGBClassifier(
        constraints=[rule], n_estimators=10, guarantee="high_probability", random_state=0
    ).fit(X, y)
    X_new, y_new, _ = draw(4000, seed=1)
    decided = model.predict(X_new)
    cost = np.where(y_new == 1, 4 * (decided == 0), decided == 1)
    assert cost.mean() <= 1.0


@pytest.mark.parametrize(
    ("text", "shown", "wrong", "said"),
    [
        (
            "fnr(weight=amount) <= 0.3",
            "fnr[weight=amount] <= 0.3",
            "fnr(weight=value) <= 0.3",
            "fnr(weight='value') <= 0.3",
        ),
        (
            "cost([[0, 0], [1, 0]], weight=amount) + cost([[0, 0.5], [0, 0.5]]) <= 0.5",
            "cost([[0, 0], [1, 0]])[weight=amount]",
            "cost([[0, 1]]) <= 0.5",
            "square matrix",
        ),
    ],
)
def test_the_command_line_reads_amounts_from_a_column(text, shown, wrong, said, tmp_path, capsys):
    X, y, table = draw(600)
    path, model = tmp_path / "rows.csv", tmp_path / "model.json"
    X.assign(amount=table["amount"], y=y).to_csv(path, index=False)
    columns = [str(path), "--target", "y", "--sensitive", "amount"]
    fit = ["fit", *columns, "--library", "xgboost", "--param", "n_estimators=3"]
    fit += ["--out", str(model), "--constraint"]
    for arguments in ([*fit, text], ["audit", str(model), *columns]):
        assert main(arguments) in (ALL_MET, NOT_MET)
        assert shown in capsys.readouterr().out
    model.unlink()
    assert main([*fit, wrong]) == BAD_INPUT
    assert said in capsys.readouterr().err
