"""Constrained logistic regression: refits, warm starts, reports, and refused arguments."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers import fit_linear
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss as mean_log_loss
from sklearn.model_selection import cross_val_score

import gbm_constrained as gc
from gbm_constrained.solvers import ABPP, AutoSolver


def test_refitting_forgets(data):
    X, y, _ = data
    model = fit_linear(X, y, gc.log_loss(on=gc.label(2)) <= 0.5)
    assert hasattr(model, "history_")
    model.set_params(constraints=None).fit(X, y)
    assert not hasattr(model, "history_")
    np.testing.assert_array_equal(model.coef_, LogisticRegression().fit(X, y).coef_)


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("at", [0, 3])
def test_a_failed_fit_leaves_the_estimator_as_it_was(data, fitted, at):
    """A failed fit leaves no fit, or the earlier one, and never the parent's solution."""
    X, y, _ = data
    model = gc.ConstrainedLogisticRegression(constraints=[gc.log_loss(on=gc.label(2)) <= 0.4])
    if fitted:
        model.fit(X, y)
    before = dict(vars(model))

    def interrupt(state):
        if state.iteration == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], y, constraint_callbacks=[interrupt])
    assert vars(model).keys() == before.keys()
    assert [name for name, value in vars(model).items() if value is not before[name]] == []


def test_a_refused_refit_leaves_the_earlier_fit(data):
    X, y, _ = data
    model = fit_linear(X, y, gc.log_loss(on=gc.label(2)) <= 0.4)
    report = model.constraint_report_
    model.set_params(constraints=[gc.gap(gc.fpr(), by="elsewhere") <= 0.1])
    with pytest.raises(ValueError, match="elsewhere"):
        model.fit(X, y == 2)
    assert model.constraint_report_ is report


def test_warm_start_from_multipliers(data):
    X, y, _ = data
    constraint = gc.log_loss(on=gc.label(2)) <= 0.4
    cold = fit_linear(X, y, constraint)
    warm = fit_linear(
        X, y, constraint, constraint_solver=AutoSolver(initial_multipliers=cold.multipliers_)
    )
    assert warm.n_iter_[0] < cold.n_iter_[0]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_warm_start_from_coefficients(data, n_classes, fit_intercept):
    """scikit-learn's own: those of the last fit, or set by hand, in place of the parent's."""
    X, y, _ = data
    y = y if n_classes == 3 else y == 2
    constraint = gc.log_loss(on=gc.label(int(n_classes == 3))) <= 0.6
    options = {"warm_start": True, "fit_intercept": fit_intercept}
    cold = fit_linear(X, y, constraint, **options)
    coef, intercept = cold.coef_.copy(), cold.intercept_.copy()
    start = mean_log_loss(y, cold.predict_proba(X))
    cold.set_params(constraint_solver=AutoSolver(initial_multipliers=cold.multipliers_)).fit(X, y)
    assert cold.history_.objective[0] == pytest.approx(start, abs=1e-9)
    assert cold.n_iter_[0] <= 5
    np.testing.assert_allclose(cold.coef_, coef, atol=1e-2)
    given = gc.ConstrainedLogisticRegression(constraints=[constraint], **options)
    given.coef_, given.intercept_ = coef, intercept
    assert given.fit(X, y).history_.objective[0] == pytest.approx(start, abs=1e-9)


def test_works_in_scikit_learn(data):
    X, y, _ = data
    model = gc.ConstrainedLogisticRegression(
        constraints=[gc.class_error(2) <= 0.2], n_iterations=20
    )
    assert cross_val_score(model, X, y, cv=3).min() > 0.4
    fitted = pickle.loads(pickle.dumps(model.fit(X, y)))
    np.testing.assert_array_equal(fitted.predict(X), model.predict(X))


def test_reports_are_of_losses_in_full(data):
    """Rows that outlier_clip leaves out of a constraint are still in what it is reported to be."""
    X, y, _ = data
    constraint = gc.log_loss(on=gc.label(2)) <= 0.35
    model = fit_linear(X, y, constraint, constraint_solver=AutoSolver(outlier_clip=1.0), tol=1e-3)
    loss = mean_log_loss(y[y == 2], model.predict_proba(X[y == 2]), labels=[0, 1, 2])
    report = model.constraint_report_
    assert report.train[0] == pytest.approx(loss)
    assert loss > 0.36 > model.history_[f"value[{constraint}]"].iloc[-1]
    assert not report.train_satisfied[0]


def test_the_average_of_all_iterates_takes_longer(data):
    """It is returned when it meets the constraints itself, or with a warning."""
    X, y, _ = data
    constraint = gc.log_loss(on=gc.label(2)) <= 0.5
    last = fit_linear(X, y, constraint)
    with pytest.warns(ConvergenceWarning, match=r"n_iterations=30 with an average whose residual"):
        short = fit_linear(X, y, constraint, iterate="ergodic", n_iterations=30)
    assert short.constraint_report_.train[0] > 0.5 + short.tol
    long = fit_linear(X, y, constraint, iterate="ergodic", n_iterations=5000, tol=1e-3)
    assert last.n_iter_[0] < long.n_iter_[0] < 5000
    assert long.constraint_report_.train[0] == pytest.approx(0.5, abs=1e-3)


def test_constraints_that_cannot_be_met_are_named(data):
    X, y, _ = data
    with pytest.warns(ConvergenceWarning, match=r"n_iterations=30 with a residual .* relax"):
        fit_linear(
            X,
            y,
            gc.log_loss(on=gc.label(2)) <= 0.01,
            gc.log_loss(on=gc.label(0)) <= 0.01,
            n_iterations=30,
        )


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"l1_ratio": 0.5}, r"l1_ratio=0.5 is not supported under constraints: .* l1_ratio=0"),
        ({"penalty": "l1"}, r"penalty='l1' is not supported under constraints: .* L2 penalty"),
        ({"dual": True}, "dual=True is not supported"),
        ({"solver": "liblinear"}, "solver='liblinear' is not supported .* solver='lbfgs'"),
        ({"intercept_scaling": 2.0}, "intercept_scaling=2.0 is not supported"),
        ({"n_iterations": 0}, "n_iterations must be an integer >= 1, got 0"),
        ({"constraint_solver": ABPP(tau=-1.0)}, "tau must be a positive number or None, got -1.0"),
        ({"constraint_solver": ABPP(proxy="hinge")}, "proxy must be one of"),
        ({"iterate": "first"}, "iterate must be one of"),
        ({"iterate": "best"}, "prefixes of an ensemble"),
        ({"constraint_solver": "admm"}, r"constraint_solver must be one of \['auto'.*got 'admm'"),
        (
            {"constraint_solver": AutoSolver(initial_multipliers=[1.0, 2.0])},
            "initial_multipliers must hold",
        ),
        ({"class_weight": {2: 0.0}}, "class_weight"),
    ],
)
def test_unsupported_parameters_are_refused(data, options, match):
    X, y, _ = data
    with pytest.raises(ValueError, match=match):
        fit_linear(X, y, gc.class_error(2) <= 0.1, **options)


def test_unsupported_parameters_are_the_parents_business_without_constraints(data):
    X, y, _ = data
    fit_linear(X, y == 2, solver="liblinear", intercept_scaling=2.0)


@pytest.mark.parametrize(
    ("y", "constraint", "match"),
    [
        (np.zeros(600), gc.fnr() <= 0.1, "one class only"),
        (np.linspace(0, 1, 600), gc.fnr() <= 0.1, "Unknown label type"),
        (np.arange(600) % 3, gc.fnr() <= 0.1, r"use class_error\(k\)"),
        (np.arange(600) % 3, gc.class_error(7) <= 0.1, "names class 7"),
        (np.arange(599) % 3, gc.class_error(1) <= 0.1, "inconsistent numbers of samples"),
    ],
)
def test_bad_labels_are_refused(data, y, constraint, match):
    with pytest.raises(ValueError, match=match):
        fit_linear(data[0], y, constraint)


def test_bad_weights_and_features_are_refused(data):
    X, y, weight = data
    with pytest.raises(ValueError, match="finite and non-negative"):
        fit_linear(X, y, gc.class_error(2) <= 0.1, sample_weight=-weight)
    with pytest.raises(ValueError, match="NaN"):
        fit_linear(np.where(X > 1, np.nan, X), y, gc.class_error(2) <= 0.1)
    with pytest.raises(TypeError, match="constraints must be a sequence"):
        gc.ConstrainedLogisticRegression(constraints="fnr <= 0.1").fit(X, y)
