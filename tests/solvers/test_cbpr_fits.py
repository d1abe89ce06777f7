"""Fits by CBPR, of boosters and of the linear model."""

from functools import lru_cache

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.exceptions import ConvergenceWarning

import gbm_constrained as gc
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
from gbm_constrained.solvers import AutoSolver


def loss_gap(bound):
    return gc.gap(gc.log_loss(), by="s", min_group_size=1) <= bound


ROUNDS = 60
CLASSES = {"xgb": gc.ConstrainedXGBClassifier, "lgb": gc.ConstrainedLGBMClassifier}
PARENTS = {"xgb": xgb.XGBClassifier, "lgb": lgb.LGBMClassifier}
OPTIONS = {
    "xgb": {"n_estimators": ROUNDS, "max_depth": 3, "learning_rate": 0.1, "n_jobs": 1},
    "lgb": {"n_estimators": ROUNDS, "num_leaves": 8, "n_jobs": 1, "verbose": -1},
}
boosters = pytest.mark.parametrize("library", CLASSES)


@lru_cache
def table(n=2000):
    rng = np.random.default_rng(5)
    s = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 4))
    y = (X @ [2.0, -1.0, 0.5, 0.0] + (0.5 + s) * rng.normal(size=n) > 0.3).astype(int)
    return X, y, s


def fitted(library, bound, **options):
    X, y, s = table()
    rule = gc.gap(gc.log_loss(), by="s") <= bound
    options = {**OPTIONS[library], "measure_on": "train", **options}
    model = CLASSES[library](constraints=[rule], **options)
    return model.fit(X, y, sensitive_features={"s": s})


@boosters
def test_boosters_meet_a_loss_gap_by_cbpr(library):
    """solver="auto" runs CBPR; 60 rounds of long steps suffice for a third of the plain gap."""
    X, y, s = table()
    plain = fitted(library, 10.0, learning_rate=0.3)
    assert plain.constraint_report_.train[0] > 0.1
    model = fitted(library, 0.03, learning_rate=0.3, solver=AutoSolver(rounds_per_iteration=1))
    assert model.constraint_report_.train[0] <= 0.03 + 1e-3
    finite = model.history_.fritz_john.dropna()
    assert finite.size >= 4
    assert np.isfinite(finite).all()
    assert model.multipliers_.max() > 0.1
    p = model.predict_proba(X)[np.arange(y.size), y]
    own = abs(np.log(p[s == 1]).mean() - np.log(p[s == 0]).mean())
    assert own == pytest.approx(model.constraint_report_.train[0], abs=1e-6)


@boosters
@pytest.mark.parametrize("solver", ["auto", "cbpr", "abpp"])
def test_vacuous_gap_leaves_the_plain_fit(library, solver):
    X, y, _ = table()
    plain = PARENTS[library](**OPTIONS[library]).fit(X, y)
    model = fitted(library, 10.0, solver=solver)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), rtol=0, atol=2e-7)
    assert not model.multipliers_.any()


@boosters
def test_solver_can_be_forced(library):
    assert fitted(library, 0.05, solver="abpp").history_.fritz_john.isna().all()
    assert fitted(library, 0.05, solver="cbpr").history_.fritz_john.notna().any()
    X, y, _ = table()
    model = CLASSES[library](constraints=gc.error_rate() <= 0.2, solver="cbpr", **OPTIONS[library])
    assert model.fit(X, y).history_.fritz_john.notna().any()
    with pytest.raises(ValueError, match="solver must be one of"):
        fitted(library, 0.05, solver="newton")


def logistic(bound=0.02, **options):
    X, y, s = table()
    rule = options.pop("rule", gc.gap(gc.log_loss(), by="s") <= bound)
    model = ConstrainedLogisticRegression(constraints=rule, **options)
    return model.fit(X, y, sensitive_features={"s": s})


def test_logistic_regression_under_a_loss_gap():
    """The parent's fit breaks the constraint; a KKT point is reached from one that meets it."""
    X, y, _ = table()
    model = logistic()
    report = model.constraint_report_
    assert report.train[0] <= 0.02
    assert report.train[0] == pytest.approx(0.02, abs=1e-6)
    assert report.multiplier[0] > 0
    assert model.history_.fritz_john.iloc[-1] <= model.tol
    assert model.coef_.shape == (1, 4)
    loss = -np.log(model.predict_proba(X)[np.arange(y.size), y]).mean()
    assert loss < np.log(2) - 0.02


def test_logistic_regression_under_a_gap_that_never_binds():
    """The parent's solution is feasible, and CBPR starts and ends there."""
    X, y, _ = table()
    model = logistic(10.0, C=10.0)
    parent = ConstrainedLogisticRegression(C=10.0, constraints=[]).fit(X, y)
    np.testing.assert_allclose(model.coef_, parent.coef_, rtol=0, atol=2e-3)
    assert not model.multipliers_.any()


def test_logistic_regression_solver_choices():
    assert logistic(10.0, constraint_solver="cbpr").history_.fritz_john.notna().any()
    with pytest.raises(ValueError, match="solver must be one of"):
        logistic(constraint_solver="newton")
    with pytest.raises(ValueError, match="ergodic"):
        logistic(iterate="ergodic")


@pytest.mark.parametrize(
    ("widest", "largest", "where"),
    [(0.05, 0.55, "between the parent's solution and a constant"), (0.02, 0.6, "beyond these")],
)
def test_logistic_regression_finds_a_start_that_no_constant_model_is(widest, largest, where):
    rules = [gc.gap(gc.log_loss(), by="s") <= widest, gc.log_loss() <= largest]
    model = logistic(rule=rules)
    assert model.history_.fritz_john.iloc[-1] <= model.tol
    assert model.constraint_report_.train_satisfied.all()
    first = model.history_.objective.iloc[0]
    assert (largest - 0.05 < first < largest - 0.02) == where.startswith("between"), where


def test_logistic_regression_without_a_feasible_start():
    """Left to ABPPSolver, which starts anywhere, and refused where CBPR is asked for by name."""
    rules = [gc.gap(gc.log_loss(), by="s") <= 0.02, gc.log_loss() <= 0.55]
    with pytest.warns(ConvergenceWarning):
        model = logistic(rule=rules, n_iterations=60)
    assert model.history_.fritz_john.isna().all()
    with pytest.raises(ValueError, match=r"none was found: .*log_loss <= 0\.55 by .* warm_start"):
        logistic(rule=rules, n_iterations=60, constraint_solver="cbpr")


@pytest.mark.parametrize(
    "rule",
    [
        gc.fpr() <= 0.05,
        gc.class_error(0) <= 0.1,
        gc.precision() >= 0.9,
        gc.gap(gc.selection_rate(), by="s") <= 0.05,
        gc.gap(gc.fpr(), by="s") <= 0.02,
    ],
    ids=str,
)
def test_zero_one_rates_of_a_linear_model(rule):
    """Met as ABPP meets them: proxies that go flat send no multiplier to infinity."""
    rng = np.random.default_rng(1)
    s = rng.integers(0, 2, 2000)
    X = rng.normal(size=(2000, 4))
    X[:, 0] += s
    y = X @ [1.0, 0.5, -0.5, 0.0] + rng.logistic(size=2000) + 0.5 * s > 0.5
    of_cbpr, of_abpp = (
        ConstrainedLogisticRegression(constraints=rule, constraint_solver=solver).fit(
            X, y, sensitive_features={"s": s}
        )
        for solver in ("cbpr", "abpp")
    )
    assert of_cbpr.constraint_report_.train_satisfied.all()
    assert of_cbpr.multipliers_.max() < 2.0 * of_abpp.multipliers_.max() + 1.0
    assert of_cbpr.score(X, y) > of_abpp.score(X, y) - 0.05


def test_logistic_regression_starts_from_a_given_model():
    """From a KKT point there is nothing to do; a start that is none of those tried is taken."""
    X, y, s = table()
    rules = [gc.gap(gc.log_loss(), by="s") <= 0.02, gc.log_loss() <= 0.6]
    found = logistic(rule=rules)
    again = ConstrainedLogisticRegression(
        constraints=rules,
        warm_start=True,
        constraint_solver=AutoSolver(initial_multipliers=found.multipliers_),
    )
    again.coef_, again.intercept_ = found.coef_, found.intercept_
    again.fit(X, y, sensitive_features={"s": s})
    assert again.n_iter_[0] < found.n_iter_[0] / 4
    np.testing.assert_allclose(again.coef_, found.coef_, atol=2e-3)
    first = again.history_.iloc[0]
    loss = -np.log(found.predict_proba(X)[np.arange(y.size), y]).mean()
    assert first.objective == pytest.approx(loss, abs=1e-9)
