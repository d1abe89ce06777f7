"""Fits under rules of expected costs: both libraries, linear models, reports, files, audits."""

import numpy as np
import pandas as pd
import pytest

import gbm_constrained as gc
from gbm_constrained.cli.main import ALL_MET, BAD_INPUT, NOT_MET, main

BOOSTERS = {
    "xgboost": (gc.ConstrainedXGBClassifier, {"verbosity": 0, "n_jobs": 1}),
    "lightgbm": (gc.ConstrainedLGBMClassifier, {"verbose": -1, "n_jobs": 1, "num_leaves": 7}),
}
REVIEW = 0.5  # Price of each alarm; a missed row costs its amount.
COST = gc.cost([[0, 0], [1, 0]], weight="amount") + gc.cost([[0, REVIEW], [0, REVIEW]])


def draw(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    amount = np.exp(rng.normal(size=n) + 0.5 * X["a"].to_numpy())
    y = (X["a"] + X["b"] + 1.2 * rng.normal(size=n) > 1.0).astype(int).to_numpy()
    return X, y, pd.DataFrame({"amount": amount, "group": rng.integers(0, 2, n)})


def costs_of(model, X, y, table):
    decided = model.predict(X)
    missed = table["amount"].to_numpy() * ((decided == 0) & (y == 1))
    return missed + REVIEW * (decided == 1)


@pytest.mark.parametrize("library", BOOSTERS)
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
    path = tmp_path / "model.json"
    model.save_model(path)
    loaded = kind()
    loaded.load_model(path)
    assert loaded.constraints == model.constraints
    pd.testing.assert_frame_equal(loaded.constraint_report_, model.constraint_report_)


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


def test_the_command_line_reads_costs(tmp_path, capsys):
    X, y, table = draw(600)
    path, model = tmp_path / "rows.csv", tmp_path / "model.json"
    X.assign(amount=table["amount"], y=y).to_csv(path, index=False)
    arguments = ["fit", path, "--target", "y", "--sensitive", "amount", "--library", "xgboost"]
    arguments += ["--param", "n_estimators=3", "--out", model, "--constraint"]
    arguments = list(map(str, arguments))
    text = "cost([[0, 0], [1, 0]], weight=amount) + cost([[0, 0.5], [0, 0.5]]) <= 0.5"
    assert main([*arguments, text]) in (ALL_MET, NOT_MET)
    assert "cost([[0, 0], [1, 0]])[weight=amount]" in capsys.readouterr().out
    audit = ["audit", str(model), str(path), "--target", "y", "--sensitive", "amount"]
    assert main(audit) in (ALL_MET, NOT_MET)
    assert "cost([[0, 0], [1, 0]])[weight=amount]" in capsys.readouterr().out
    model.unlink()
    assert main([*arguments, "cost([[0, 1]]) <= 0.5"]) == BAD_INPUT
    assert "square matrix" in capsys.readouterr().err
