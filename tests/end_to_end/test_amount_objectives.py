"""Fits for the expected cost of amounts: both libraries, linear models, reports, files, audits."""

import functools

import numpy as np
import pandas as pd
import pytest
from helpers import CLASSIFIERS, EITHER, PARENTS, margins_of

import gbm_constrained as gc
from gbm_constrained.cli.main import ALL_MET, main
from gbm_constrained.solvers import Reduction

SMALL = {
    "xgboost": {"n_estimators": 6, "max_depth": 3, "n_jobs": 1, "measure_on": gc.CrossFit(3)},
    "lightgbm": {
        "n_estimators": 6,
        "num_leaves": 6,
        "n_jobs": 1,
        "verbose": -1,
        "measure_on": gc.CrossFit(3),
    },
}
REVIEW = 0.4  # Price of each alarm; a missed row costs its amount.
MISSED = gc.cost([[0, 0], [1, 0]], weight="amount")
COST = MISSED + gc.cost([[0, REVIEW], [0, REVIEW]])
ORACLES = pytest.mark.parametrize("oracle", ["plug_in", "refit", "in_training"])


@functools.cache
def draw(n=900, seed=0):
    """Rows whose amounts depend on their features, as the value of a fraud does."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    amount = np.where(rng.random(n) < 0.05, 0.0, np.exp(0.5 * rng.normal(size=n) + 0.7 * X["c"]))
    y = (X["a"] + 0.7 * rng.normal(size=n) > 0.8).astype(int).to_numpy()
    group = np.where(X["b"] + rng.normal(size=n) > 0, "u", "v")
    return X, y, pd.DataFrame({"amount": amount, "one": np.ones(n), "group": group})


def make(library, **options):
    return CLASSIFIERS[library](**{**SMALL[library], **options})


def cost_of(model, X, y, amount):
    alarm = model.predict(X) == 1
    return np.where(alarm, REVIEW, amount * (y == 1)).mean()


def returned(model):
    report = model.metric_report_
    return report[report["is_returned"]].iloc[0]


@EITHER
@ORACLES
def test_amounts_of_one_are_rows(library, oracle):
    X, y, table = draw()
    matrix = [[0, 1], [4, 0.5]]
    options = {"solver": Reduction(oracle=oracle), "random_state": 0}
    ones = make(library, minimize=gc.cost(matrix, weight="one"), **options)
    ones.fit(X, y, sensitive_features=table)
    rows = make(library, minimize=gc.cost(matrix), **options).fit(X, y)
    np.testing.assert_array_equal(margins_of(ones, X), margins_of(rows, X))
    columns = ["held_out", "low", "high", "train", "bound"]
    np.testing.assert_allclose(
        ones.metric_report_[columns], rows.metric_report_[columns], rtol=1e-12
    )


@EITHER
@ORACLES
def test_reports_scores_and_audits_are_in_the_unit_of_the_amounts(library, oracle):
    X, y, table = draw(seed=3)
    X = X.assign(amount=table["amount"])
    model = make(library, minimize=COST, solver=Reduction(oracle=oracle), random_state=0).fit(X, y)
    X_new, y_new, new = draw(3000, seed=1)
    X_new = X_new.assign(amount=new["amount"])
    assert returned(model)["train"] == pytest.approx(cost_of(model, X, y, table["amount"]))
    found = cost_of(model, X_new, y_new, new["amount"])
    assert -model.score(X_new, y_new) == pytest.approx(found, abs=1e-12)
    audited = gc.audit(model, X_new, y_new, [COST <= 1.0], metrics=[COST])
    of_metric, of_rule = audited.metrics.iloc[0], audited.frame.iloc[0]
    assert of_metric["value"] == pytest.approx(found, abs=1e-12)
    assert of_rule["value"] == pytest.approx(found, abs=1e-12)
    # The bootstrap of rows and the empirical variance find the same error.
    widths = [one["high"] - one["low"] for one in (of_metric, of_rule, returned(model))]
    assert widths[0] == pytest.approx(widths[1], rel=0.15)
    error = np.hypot(widths[0], widths[2]) / 3.92  # Of the new rows and of those held out.
    assert abs(returned(model)["held_out"] - found) <= 3.0 * error
    # Decisions that ignore the amounts, or alarm of all rows or of none, cost more.
    plain = make(library).fit(X, y)
    base = min(cost_of(plain, X_new, y_new, new["amount"]), REVIEW)
    assert found < min(base, (new["amount"] * y_new).mean()) - 0.02


@EITHER
@pytest.mark.parametrize("oracle", ["plug_in", "refit"])
def test_rows_weigh_what_their_errors_cost(library, oracle):
    X, y, table = draw()
    model = make(library, minimize=COST, solver=Reduction(oracle=oracle)).fit(
        X, y, sensitive_features=table
    )
    amount = table["amount"].to_numpy()
    lost = np.where(y == 1, np.maximum(amount - REVIEW, 0.0), REVIEW)
    lost = np.maximum(lost, 0.01 * lost[y == 1].mean() * (y == 1))
    mean = amount[y == 1].mean() - REVIEW if oracle == "refit" else REVIEW
    lost[y == 1] *= mean / lost[y == 1].mean()
    own = {k: v for k, v in SMALL[library].items() if k != "measure_on"}
    plain = PARENTS[library](**own).fit(X, y, sample_weight=lost / lost.mean())
    shift = margins_of(model, X) - margins_of(plain, X)
    np.testing.assert_allclose(shift, np.full(len(X), shift[0]), atol=1e-4)


def test_the_currency_changes_no_decision():
    X, y, table = draw()
    found = []
    for unit in (1.0, 1e-7, 1e7):
        amounts = pd.DataFrame({"amount": table["amount"] * unit})
        price = REVIEW * unit
        objective = MISSED + gc.cost([[0, price], [0, price]])
        model = make(
            "xgboost", minimize=objective, solver=Reduction(oracle="refit"), random_state=0
        )
        found.append(model.fit(X, y, sensitive_features=amounts))
    for unit, model in zip((1e-7, 1e7), found[1:], strict=True):
        np.testing.assert_array_equal(model.predict(X), found[0].predict(X))
        one, other = returned(model), returned(found[0])
        for name in ("held_out", "low", "high", "bound"):
            assert one[name] == pytest.approx(unit * other[name], rel=1e-6)


@EITHER
def test_constraints_join_those_of_amounts_and_of_groups_among_them(library):
    X, y, table = draw()
    rules = [
        gc.selection_rate() <= 0.15,
        gc.fnr(weight="amount") <= 0.6,
        gc.gap(gc.fnr(), by="group") <= 0.1,
    ]
    model = make(library, minimize=COST, constraints=rules, solver=Reduction(deterministic=True))
    model.fit(X, y, sensitive_features=table)
    report = model.constraint_report_
    alarm, amount = model.predict(X) == 1, table["amount"].to_numpy()
    missed = amount[(y == 1) & ~alarm].sum() / amount[y == 1].sum()
    np.testing.assert_allclose(report["train"][:2], [alarm.mean(), missed], atol=1e-9)
    assert report["verdict"].isin(["met", "missed within sampling error"]).all()
    # Candidates within one standard error of the bounds count as meeting them.
    errors = [np.sqrt(0.15 * 0.85 / y.size), 0.05, 0.05]
    assert (report["held_out"] <= np.array([0.15, 0.6, 0.1]) + errors).all()


def test_several_classes_and_gains():
    X, y, table = draw()
    three = y + (X["a"] > 1.5).to_numpy() * y
    gains = gc.cost([[1, 0, 0], [-1, 2, 0], [-4, 1, 3]], weight="amount")
    model = make("lightgbm", maximize=gains, solver=Reduction(oracle="refit"))
    model.fit(X, three, sensitive_features=table)
    gain = np.array([[1, 0, 0], [-1, 2, 0], [-4, 1, 3]])[three, model.predict(X)]
    expected = (table["amount"] * gain).mean()
    assert returned(model)["train"] == pytest.approx(expected, abs=1e-12)
    score = model.score(X, three, sensitive_features=table)
    assert score == pytest.approx(expected, abs=1e-12)


def test_the_linear_model_minimises_costs_of_an_array():
    X, y, table = draw()
    objective = gc.cost([[0, 0], [1, 0]], weight=table["amount"].to_numpy())
    objective = objective + gc.cost([[0, REVIEW], [0, REVIEW]])
    costs = []
    for oracle in ("plug_in", "refit"):
        model = gc.ConstrainedLogisticRegression(
            minimize=objective, constraint_solver=Reduction(oracle=oracle)
        ).fit(X, y)
        costs.append(cost_of(model, X, y, table["amount"]))
        assert returned(model)["train"] == pytest.approx(costs[-1], abs=1e-12)
    plain = gc.ConstrainedLogisticRegression().fit(X, y)
    assert max(costs) < cost_of(plain, X, y, table["amount"])
    with pytest.raises(ValueError, match="was given 900 amounts, but"):
        model.score(X[:100], y[:100])


def test_evaluation_sets_files_curves_and_checkpoints(tmp_path):
    X, y, table = draw()
    X = X.assign(amount=table["amount"])
    X_new, y_new, new = draw(700, seed=2)
    X_new = X_new.assign(amount=new["amount"])
    model = make("xgboost", minimize=COST, solver=Reduction(oracle="refit"), random_state=0)
    model.fit(X, y, eval_set=[(X_new, y_new)], verbose=False)
    last = model.metric_report_.iloc[-1]
    assert last["held_out"] == pytest.approx(cost_of(model, X_new, y_new, new["amount"]))
    model.save_model(tmp_path / "model.json")
    loaded = gc.ConstrainedXGBClassifier()
    loaded.load_model(tmp_path / "model.json")
    assert loaded.minimize == COST
    np.testing.assert_array_equal(loaded.predict(X_new), model.predict(X_new))
    again = make("xgboost", minimize=COST, solver=Reduction(oracle="refit"), random_state=0)
    again.fit(X, y, checkpoint=tmp_path / "fit")
    np.testing.assert_array_equal(again.predict(X_new), model.predict(X_new))
    model.set_params(constraints=[gc.selection_rate() <= 0.2], solver=Reduction(oracle="plug_in"))
    curve = gc.tradeoff_curve(model, X, y, bounds=[0.2, 0.05])
    assert curve["bound"].tolist() == [0.2, 0.05]
    with pytest.raises(ValueError, match="amounts of 1 of 900 rows are negative"):
        model.fit(X.assign(amount=np.where(X.index == 3, -1.0, X["amount"])), y)


def test_the_command_line_reads_an_objective_of_amounts(tmp_path, capsys):
    X, y, table = draw()
    path, model = tmp_path / "rows.csv", tmp_path / "model.json"
    X.assign(amount=table["amount"], y=y).to_csv(path, index=False)
    text = f"cost([[0, 0], [1, 0]], weight=amount) + cost([[0, {REVIEW}], [0, {REVIEW}]])"
    arguments = ["fit", str(path), "--target", "y", "--sensitive", "amount", "--out", str(model)]
    arguments += ["--library", "xgboost", "--param", "n_estimators=3", "--minimize", text]
    assert main(arguments) == ALL_MET
    assert str(COST) in capsys.readouterr().out
    audit = ["audit", str(model), str(path), "--target", "y", "--sensitive", "amount"]
    assert main(audit) == ALL_MET
    assert str(COST) in capsys.readouterr().out
