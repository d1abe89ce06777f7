"""Constrained logistic regression: the parent's fit without constraints, optima, refits."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from helpers import fit_linear
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss as mean_log_loss
from sklearn.model_selection import cross_val_score

import gbm_constrained as gc
from gbm_constrained.solvers import ABPP, AutoSolver


@pytest.mark.parametrize("none", [None, [], ()])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("options", [{}, {"C": 0.1, "solver": "newton-cg"}, {"solver": "saga"}])
def test_no_constraint_is_the_parents_fit(data, none, n_classes, options):
    X, y, weight = data
    y = y if n_classes == 3 else y == 2
    options = {"random_state": 0, "max_iter": 1000, **options}
    own = gc.ConstrainedLogisticRegression(constraints=none, **options).fit(X, y, weight)
    parent = LogisticRegression(**options).fit(X, y, weight)
    for name in ("coef_", "intercept_", "classes_", "n_iter_"):
        np.testing.assert_array_equal(getattr(own, name), getattr(parent, name))
    np.testing.assert_array_equal(own.predict_proba(X), parent.predict_proba(X))
    assert not hasattr(own, "multipliers_")


def test_parameters_are_the_parents_and_more():
    own, parent = (
        gc.ConstrainedLogisticRegression().get_params(),
        LogisticRegression().get_params(),
    )
    parent.pop("multi_class", None)
    assert own.items() >= parent.items()
    constraints = [gc.fnr() <= 0.1]
    model = clone(
        gc.ConstrainedLogisticRegression(
            C=3.0, constraints=constraints, constraint_solver=ABPP(tau=2.0)
        )
    )
    assert (model.C, model.constraints, model.constraint_solver.tau) == (3.0, constraints, 2.0)
    assert isinstance(model, LogisticRegression)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    ("options", "class_weight"),
    [
        ({}, "balanced"),
        ({"C": 0.05}, {2: 4.0}),
        ({"fit_intercept": False}, None),
        ({"C": np.inf}, "balanced"),
    ],
)
def test_slack_constraints_give_the_parents_optimum(data, n_classes, options, class_weight):
    X, y, weight = data
    y = y if n_classes == 3 else 2 * (y == 2)
    options = {"class_weight": class_weight, "tol": 1e-7, "max_iter": 1000, **options}
    weight = None if class_weight == "balanced" else weight  # scikit-learn < 1.7 leaves them out
    own = fit_linear(X, y, gc.log_loss(on=gc.label(0)) <= 50.0, sample_weight=weight, **options)
    parent = LogisticRegression(**options).fit(X, y, weight)
    np.testing.assert_allclose(own.predict_proba(X), parent.predict_proba(X), atol=1e-5)
    assert own.coef_.shape == parent.coef_.shape
    assert own.intercept_.shape == parent.intercept_.shape
    assert own.multipliers_.tolist() == [0.0]


def _exact(X, y, weight, factor, constraints, C):
    """scikit-learn's objective over total weight, with bounds on mean losses, by SLSQP."""
    n_classes = factor.size
    A, w = np.hstack([X, np.ones((len(y), 1))]), weight * factor[y]
    ridge = np.append(np.ones(X.shape[1]), 0.0)[:, None] / (C * w.sum())

    def mean_loss(x, share):
        F = A @ x.reshape(-1, n_classes)
        p = softmax(F, axis=1)
        gradient = A.T @ (share[:, None] * (p - np.eye(n_classes)[y]))
        return share @ -np.log(p[np.arange(len(y)), y]), gradient.ravel()

    def objective(x):
        value, gradient = mean_loss(x, w / w.sum())
        W = x.reshape(-1, n_classes)
        return value + (ridge * W**2).sum() / 2, gradient + (ridge * W).ravel()

    shares = [weight * on / (weight * on).sum() for on, _ in constraints]
    constraints = [
        {
            "type": "ineq",
            "fun": lambda x, s=share, b=bound: b - mean_loss(x, s)[0],
            "jac": lambda x, s=share: -mean_loss(x, s)[1],
        }
        for share, (_, bound) in zip(shares, constraints, strict=True)
    ]
    found = minimize(
        objective, np.zeros(A.shape[1] * n_classes), jac=True, constraints=constraints,
        method="SLSQP", options={"ftol": 1e-13, "maxiter": 1000},
    )  # fmt: skip
    assert found.success
    return found


@pytest.mark.parametrize(
    ("class_weight", "bounds"), [(None, (0.6, 0.526)), ({0: 2.0, 1: 0.5}, (0.6, 0.55))]
)
def test_mean_loss_constraints_reach_the_exact_optimum(data, class_weight, bounds):
    """Sample weights are in the rates, class weights in the objective alone."""
    X, y, weight = data
    mask = X[:, 0] > 0
    constraints = [(y == 2, bounds[0]), (mask, bounds[1])]
    own = fit_linear(
        X, y, gc.log_loss(on=gc.label(2)) <= bounds[0], gc.log_loss(on=mask) <= bounds[1],
        sample_weight=weight, class_weight=class_weight, tol=1e-5, n_iterations=3000,
    )  # fmt: skip
    factor = np.array([1.0, 1.0, 1.0] if class_weight is None else [2.0, 0.5, 1.0])
    exact = _exact(X, y, weight, factor, constraints, C=1.0)
    probability = softmax(np.hstack([X, np.ones((600, 1))]) @ exact.x.reshape(5, 3), axis=1)
    np.testing.assert_allclose(own.predict_proba(X), probability, atol=3e-4)
    duals, h = [], 1e-3
    for j in range(2):  # a multiplier is what its bound is worth
        shifted = [
            [(on, b + sign * h * (i == j)) for i, (on, b) in enumerate(constraints)]
            for sign in (-1, 1)
        ]
        tight, loose = (_exact(X, y, weight, factor, r, C=1.0).fun for r in shifted)
        duals.append((tight - loose) / (2 * h))
    assert min(duals) > 0.05
    np.testing.assert_allclose(own.multipliers_, duals, rtol=2e-2)
    np.testing.assert_allclose(own.constraint_report_.train, bounds, atol=2e-5)


def test_units_and_shifts_of_features_do_not_matter(data):
    """Without penalty: the same model, at the same iteration."""
    X, y, _ = data
    constraint = gc.log_loss(on=gc.label(2)) <= 0.5
    options = {"C": np.inf, "tol": 1e-5, "max_iter": 5000, "n_iterations": 2000}
    plain = fit_linear(X, y, constraint, **options)
    scaled = fit_linear(
        X * [1e3, 1.0, 1e-2, 30.0] + [5.0, 0.0, 0.01, 100.0], y, constraint, **options
    )
    np.testing.assert_allclose(
        scaled.decision_function(X * [1e3, 1.0, 1e-2, 30.0] + [5.0, 0.0, 0.01, 100.0]),
        plain.decision_function(X),
        atol=1e-3,
    )


@pytest.mark.parametrize(
    ("iterate", "proxy"), [("last", "logistic"), ("ergodic", "sigmoid"), ("last", "ramp")]
)
def test_zero_one_rates_are_met_within_a_few_rows(data, iterate, proxy):
    X, y, _ = data
    y = np.where(y == 2, "yes", "no")
    plain = LogisticRegression().fit(X, y)
    assert (plain.predict(X)[y == "yes"] == "no").mean() > 0.2
    own = fit_linear(
        X,
        y,
        gc.fnr() <= 0.1,
        constraint_solver=AutoSolver(proxy=proxy),
        iterate=iterate,
        n_iterations=150,
    )
    missed = (own.predict(X)[y == "yes"] == "no").mean()
    assert own.constraint_report_.train[0] == pytest.approx(missed)
    assert abs(missed - 0.1) <= 3.5 / (y == "yes").sum()


@pytest.mark.parametrize(
    "constraint",
    [gc.fpr() <= 0.05, gc.fnr() <= 0.15, gc.gap(gc.selection_rate(), by="g") <= 0.02],
    ids=str,
)
def test_an_iterate_that_meets_the_constraints_is_returned(data, constraint):
    """Rates swing about their bounds; the last iterate is over them as often as not."""
    X, y, _ = data
    group = {"g": X[:, 0] > 0.3}
    for n_iterations in (50, 51):
        own = gc.ConstrainedLogisticRegression(constraints=[constraint], n_iterations=n_iterations)
        own.fit(X, y == 2, sensitive_features=group)
        report, history = own.constraint_report_, own.history_
        assert report.train_satisfied.all()
        values = history[f"value[{constraint}]"].to_numpy()
        assert values[-1] == report.train[0]
        assert history[f"multiplier[{constraint}]"].iloc[-1] == report.multiplier[0]


def test_rates_that_no_iterate_meets_are_warned_of(data):
    X, y, _ = data
    constraints = [gc.fpr() <= 0.02, gc.fnr() <= 0.02]
    with pytest.warns(
        gc.InfeasibleConstraintsWarning,
        match=r"no iterate met the constraints\. .* violates f.r <= 0\.02",
    ):
        own = fit_linear(X, y == 2, *constraints, n_iterations=40)
    assert not own.constraint_report_.train_satisfied.all()
    with pytest.warns(
        gc.InfeasibleConstraintsWarning, match=r"the average of all .*: use iterate='last', incr"
    ):
        fit_linear(X, y == 2, *constraints, n_iterations=40, iterate="ergodic")


def test_several_classes_and_rates(data):
    X, y, _ = data
    labels = np.array(["a", "b", "c"])[y]
    own = fit_linear(
        X, labels, gc.class_error("c") <= 0.1, gc.class_error("b") <= 0.25, n_iterations=100
    )
    for name, bound in (("c", 0.1), ("b", 0.25)):
        assert (own.predict(X)[labels == name] != name).mean() <= bound + 0.02
    np.testing.assert_allclose(
        own.predict_proba(X), softmax(own.decision_function(X), axis=1), atol=1e-12
    )


def test_sample_weights_are_repetitions(data):
    X, y = (values[:300] for values in data[:2])
    times = np.arange(300) % 3
    rows = np.repeat(np.arange(300), times)
    constraint = gc.log_loss(on=gc.label(2)) <= 0.5
    a = fit_linear(X, y, constraint, sample_weight=times, tol=1e-6)
    b = fit_linear(X[rows], y[rows], constraint, tol=1e-6)
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-3)
    np.testing.assert_allclose(a.multipliers_, b.multipliers_, atol=1e-3)


def test_sparse_features_and_frames(data):
    X, y, _ = data
    constraint = gc.log_loss(on=gc.label(2)) <= 0.5
    dense = fit_linear(X, y, constraint)
    np.testing.assert_allclose(
        fit_linear(sparse.csr_matrix(X), y, constraint).coef_, dense.coef_, atol=1e-4
    )
    frame = pd.DataFrame(X, columns=list("abcd"))
    named = fit_linear(frame, pd.Series(y), constraint)
    assert named.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_allclose(named.predict_proba(frame), dense.predict_proba(X), atol=1e-8)


def test_report_history_and_multipliers(data):
    X, y, _ = data
    constraints = [gc.fpr() <= 0.05, gc.log_loss() <= 5.0]
    own = fit_linear(X, y == 2, *constraints, n_iterations=50)
    names = ["fpr <= 0.05", "log_loss <= 5"]
    assert own.multipliers_.index.tolist() == names
    assert own.multipliers_["log_loss <= 5"] == 0.0
    report = own.constraint_report_
    assert report.constraint.tolist() == names
    assert report.bound.tolist() == [0.05, 5.0]
    assert report.satisfied.isna().all()  # training rows prove nothing
    assert report.multiplier.tolist() == own.multipliers_.tolist()
    assert own.n_iter_.tolist() == [50]
    assert own.history_.iteration.tolist() == list(range(len(own.history_)))
    assert len(own.history_) <= 51
    last = own.history_.iloc[-1]
    assert last["value[fpr <= 0.05]"] == report.train[0]
    wrong = own.predict(X)[y != 2].mean()
    assert report.train[0] == pytest.approx(wrong)


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
    X, y = data[0], data[1] == 2
    constraint = gc.log_loss(on=gc.label(1)) <= 0.5
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
        gc.ConstrainedLogisticRegression(constraints=0.1).fit(X, y)
