"""Ridge regression under rules: the parent's fit, exact optima, reports, and refused input."""

import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from regressions import loss_of
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

import gbm_constrained as gc
from gbm_constrained import ConstrainedRidge, each, gap, mean_loss, mean_prediction
from gbm_constrained.constraints.selectors import dataset
from gbm_constrained.solvers import ABPP


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 400
    group = rng.choice(["a", "b"], n)
    X = rng.normal(size=(n, 4))
    X[:, 3] += group == "a"
    y = X[:, 0] + 0.8 * (group == "a") + X[:, 1] * X[:, 2] + rng.normal(size=n)
    return X, y, rng.uniform(0.5, 1.5, n), {"group": group}


def fit(rows, rules, *, unit=1.0, weighted=True, **parameters):
    """Fit under rules; no warning is one of missed rules."""
    X, y, weight, table = rows
    model = ConstrainedRidge(constraints=rules, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*training rows.*")
        return model.fit(X, unit * y, weight if weighted else None, sensitive_features=table)


def reference(rows, loss, parameter, make_rules, alpha):
    """Find coefficients, intercept last, by cvxpy."""
    X, y, weight, table = rows
    S = np.hstack([X, np.ones((len(X), 1))])
    x = cp.Variable(S.shape[1])
    half = 0.5 if loss == "squared" else 1.0
    objective = half * weight @ loss_of(loss, parameter, y - S @ x)
    objective += alpha / 2 * cp.sum_squares(x[:-1])
    a, b = (weight * (table["group"] == g) for g in "ab")
    rules = make_rules(a / a.sum(), b / b.sum(), S @ x, y)
    cp.Problem(cp.Minimize(objective), rules).solve("CLARABEL")
    return x.value


@pytest.mark.parametrize("given", [{}, {"fit_intercept": False}, {"alpha": 10.0}])
@pytest.mark.parametrize("constraints", [None, []])
def test_without_constraints_the_fit_is_the_parents(rows, constraints, given):
    X, y, weight, _ = rows
    ours = ConstrainedRidge(constraints=constraints, **given).fit(X, y, weight)
    theirs = Ridge(**given).fit(X, y, weight)
    np.testing.assert_array_equal(ours.coef_, theirs.coef_)
    assert ours.intercept_ == theirs.intercept_
    assert not hasattr(ours, "constraint_report_")


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rules_that_never_bind_leave_the_parents_solution(rows, fit_intercept):
    X, y, weight, _ = rows
    ours = fit(rows, mean_loss() <= 100.0, fit_intercept=fit_intercept)  # One, not in a list.
    theirs = Ridge(fit_intercept=fit_intercept).fit(X, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-8)
    assert ours.coef_.shape == theirs.coef_.shape
    assert type(ours.intercept_) is float
    assert (ours.multipliers_ == 0).all()


MOST = 2.32  # A bound on the squared errors of groups that binds in one of them.
LOSSES = [("squared", None, {}), ("huber", 0.8, {"huber_delta": 0.8})]
LOSSES.append(("pinball", 0.7, {"quantile": 0.7}))


@pytest.mark.parametrize(("loss", "parameter", "given"), LOSSES)
def test_optimum_is_that_of_cvxpy(rows, loss, parameter, given):
    """A gap of mean predictions and a bound on the squared error of each group."""
    bound, most = 0.02, MOST

    def rules(a, b, f, y):
        losses = [g @ cp.square(y - f) <= most for g in (a, b)]
        return [cp.abs((a - b) @ f) <= bound, *losses]

    model = fit(
        rows,
        [gap(mean_prediction(), by="group") <= bound, each(mean_loss(), by="group") <= most],
        loss="quantile" if loss == "pinball" else loss,
        alpha=2.0,
        tol=1e-7,
        **given,
    )
    expected = reference(rows, loss, parameter, rules, 2.0)
    found = np.append(model.coef_, model.intercept_)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert model.multipliers_.max() > 0.01


@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_other_losses_need_no_rules(rows, loss):
    expected = reference(
        rows, {"quantile": "pinball"}.get(loss, loss), {"huber": 1.0}.get(loss, 0.5),
        lambda *_: [], 1.0,
    )  # fmt: skip
    model = fit(rows, [], loss=loss, tol=1e-7)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), expected, atol=1e-5)
    assert not hasattr(model, "constraint_report_")


def test_unit_of_the_target_does_not_matter(rows):
    rules = [gap(mean_prediction(), by="group") <= 0.1, each(mean_loss(), by="group") <= MOST]
    one = fit(rows, rules)
    large = [
        gap(mean_prediction(), by="group") <= 1e3,
        each(mean_loss(), by="group") <= 1e8 * MOST,
    ]
    many = fit(rows, large, unit=1e4)
    np.testing.assert_allclose(many.coef_, 1e4 * one.coef_, rtol=1e-6)
    assert many.n_iter_[0] == one.n_iter_[0]


def test_integer_weights_equal_repetition(rows):
    X, y, _, table = rows
    times = np.random.default_rng(1).integers(0, 4, y.size)
    rules = [gap(mean_prediction(), by="group") <= 0.1]
    weighed = fit((X, y, times.astype(float), table), rules, tol=1e-9)
    group = {"group": np.repeat(table["group"], times)}
    repeated = fit((np.repeat(X, times, 0), np.repeat(y, times), None, group), rules, tol=1e-9)
    np.testing.assert_allclose(weighed.coef_, repeated.coef_, rtol=1e-9)


def test_sparse_features_are_those_of_dense_ones(rows):
    X, y, weight, table = rows
    rules = [gap(mean_prediction(), by="group") <= 0.1]
    dense = fit(rows, rules, tol=1e-9)
    thin = fit((sparse.csr_array(X), y, weight, table), rules, tol=1e-9)
    np.testing.assert_allclose(thin.coef_, dense.coef_, rtol=1e-8)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_differences_of_losses_go_to_a_feasible_point(rows, loss):
    """CBPR takes gaps of mean losses, and each of its iterates meets them."""
    plain = fit(rows, [mean_loss() <= 100.0])
    X, y, weight, table = rows
    r = y - plain.predict(X)
    losses = r**2 if loss == "squared" else np.where(abs(r) < 1, r**2 / 2, abs(r) - 0.5)
    means = [np.average(losses[table["group"] == g], weights=weight[table["group"] == g])
             for g in "ab"]  # fmt: skip
    bound = abs(means[0] - means[1]) / 2
    model = fit(rows, [gap(mean_loss(loss), by="group") <= bound])
    assert model.constraint_report_["train"][0] <= bound + 1e-4 * y.var()
    assert model.multipliers_.max() > 0
    better = ((y - model.predict(X)) ** 2 * weight).sum()
    assert better < 1.05 * ((y - plain.predict(X)) ** 2 * weight).sum()


@pytest.mark.parametrize("bound", [0.08, 0.02])
def test_kkt_point_of_a_difference_is_that_of_scipy(rows, bound):
    """Sequential quadratic programming from the parent's solution goes to the same optimum."""
    X, y, weight, table = rows
    S = np.hstack([X, np.ones((len(X), 1))])
    a, b = (weight * (table["group"] == g) for g in "ab")
    a, b = a / a.sum(), b / b.sum()

    def objective(x):
        return weight @ (y - S @ x) ** 2 + x[:-1] @ x[:-1]

    def difference(x):
        return (a - b) @ (y - S @ x) ** 2

    sides = [{"type": "ineq", "fun": lambda x, s=s: bound - s * difference(x)} for s in (1, -1)]
    plain = Ridge().fit(X, y, weight)
    start = np.append(plain.coef_, plain.intercept_)
    assert abs(difference(start)) > 0.1
    exact = minimize(objective, start, constraints=sides, method="SLSQP", tol=1e-12)
    model = fit(rows, [gap(mean_loss(), by="group") <= bound], constraint_solver="cbpr", tol=1e-5)
    found = np.append(model.coef_, model.intercept_)
    assert abs(difference(found)) <= bound + 1e-9  # Each iterate of CBPR meets the rule.
    assert objective(found) == pytest.approx(exact.fun, rel=1e-6)


def test_shares_are_met_by_exact_counts(rows):
    X, _, weight, _ = rows
    model = fit(rows, [gc.share_above(1.0) <= 0.1])
    share = np.average(model.predict(X) > 1.0, weights=weight)
    assert share <= 0.1 + 1e-9
    assert share == pytest.approx(model.constraint_report_["train"][0])
    assert share > 0.08  # and not by giving up


def test_further_data_sets(rows):
    X, y, weight, table = rows
    later = X[:50] + 1.0
    model = ConstrainedRidge(constraints=[mean_prediction(on=dataset("later")) <= 0.5])
    model.fit(X, y, weight, sensitive_features=table, datasets={"later": later})
    assert Ridge().fit(X, y, weight).predict(later).mean() > 0.6
    assert model.predict(later).mean() == pytest.approx(0.5, abs=1e-3)


def test_reports(rows):
    X, y, _, table = rows
    rules = [gap(mean_prediction(), by="group") <= 0.1, mean_loss("absolute") <= 5.0]
    model = fit(rows, rules, weighted=False)
    report = model.constraint_report_
    f = model.predict(X)
    of_groups = [f[table["group"] == g].mean() for g in "ab"]
    assert report["train"][0] == pytest.approx(abs(of_groups[0] - of_groups[1]))
    assert report["train"][1] == pytest.approx(np.abs(y - f).mean())
    assert len(model.history_) == model.n_iter_[0] + 1
    assert {"a", "b"} <= set(" ".join(map(str, model.group_report_.iloc[:, 0].tolist())))
    assert model.feasibility_.status
    assert model.stopping_message_ is None
    assert list(model.multipliers_.index) == [
        "mean_prediction[group=a] - mean_prediction[group=b] <= 0.1",
        "mean_prediction[group=b] - mean_prediction[group=a] <= 0.1",
        "mean_loss(absolute) <= 5",
    ]


def test_callbacks_and_time_limits_end_the_iterations(rows):
    X, y, _, table = rows
    seen = []
    rule = gap(mean_prediction(), by="group") <= 0.01
    model = ConstrainedRidge(constraints=[rule], tol=1e-12)
    given = {"sensitive_features": table}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, constraint_callbacks=[lambda s: seen.append(s) or len(seen) == 3], **given)
        assert len(seen) == 3
        assert model.n_iter_[0] <= 4
        model.fit(X, y, time_limit=1e-9, **given)
    assert "time_limit" in model.stopping_message_


def test_audits_and_curves(rows):
    X, y, _, table = rows
    model = fit(rows, [gap(mean_prediction(), by="group") <= 0.1])
    report = gc.audit(model, X, y, sensitive_features=table, constraints=model.constraints).frame
    assert report["value"][0] == pytest.approx(
        abs(np.subtract(*(model.predict(X)[table["group"] == g].mean() for g in "ab")))
    )
    curve = gc.tradeoff_curve(
        ConstrainedRidge(),
        X,
        y,
        [0.02, 0.1],
        constraint=lambda bound: gap(mean_prediction(), by="group") <= bound,
        sensitive_features=table,
    )
    assert len(curve) == 2


def test_solver_objects_and_set_params(rows):
    rule = gap(mean_prediction(), by="group") <= 0.1
    model = clone(ConstrainedRidge(constraints=[rule], constraint_solver=ABPP(tau=0.5)))
    model.set_params(constraint_solver__tau=0.7, alpha=3.0)
    assert model.constraint_solver.tau == 0.7
    X, y, _, table = rows
    model.fit(X, y, sensitive_features=table)
    assert model.constraint_report_["train"][0] <= 0.1001


def test_frames_group_by_their_columns(rows):
    X, y, _, table = rows
    frame = pd.DataFrame(X, columns=list("wxyz")).assign(group=(table["group"] == "a") * 1)
    model = ConstrainedRidge(constraints=[gap(mean_prediction(), by="group") <= 0.1])
    model.fit(frame, y)
    f = model.predict(frame)
    a, b = (f[frame["group"] == k].mean() for k in (0, 1))
    assert abs(a - b) <= 0.1 + 1e-4 * y.std()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"constraints": [gc.fpr() <= 0.1]},
            "bounds a rate of predicted classes, and a regressor",
        ),
        ({"loss": "cubic"}, r"loss must be one of \['squared', 'huber', 'quantile'\]"),
        ({"loss": "huber", "huber_delta": 0.0}, "huber_delta must be a positive number"),
        ({"loss": "quantile", "quantile": 1.0}, "quantile must lie strictly between 0 and 1"),
        ({"alpha": -1.0}, "alpha must be one number of at least zero under constraints"),
        ({"alpha": [1.0, 2.0]}, "alpha must be one number of at least zero under constraints"),
        ({"positive": True}, "positive=True is not supported under constraints"),
        ({"tol": -1.0}, "tol must be a number of at least zero"),
        ({"n_iterations": 0}, "n_iterations"),
        ({"iterate": "best"}, "iterate"),
        ({"constraint_solver": "newton"}, "constraint_solver must be one of"),
        ({"constraint_solver": ABPP(proxy="logistic")}, "about probabilities of classes"),
        (
            {"constraints": [gap(mean_loss("absolute"), by="group") <= 0.1]},
            r"subtracts mean_loss\(absolute\), whose curvature has no bound: use mean_loss\('hub",
        ),
        ({"constraints": [mean_loss("pinball") >= 0.1]}, "whose curvature has no bound"),
    ],
)
def test_refused_before_training(rows, given, message):
    X, y, _, table = rows
    model = ConstrainedRidge(**{"constraints": [mean_loss() <= 5.0], **given})
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, sensitive_features=table)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("y", [np.array(["low", "high"] * 200), np.ones((400, 2))])
def test_refused_targets(rows, y):
    with pytest.raises(ValueError, match="y"):
        ConstrainedRidge(constraints=[mean_loss() <= 5.0]).fit(rows[0], y)


def test_classifiers_refuse_means_over_numbers(rows):
    X, y, _, _ = rows
    rules = [mean_loss() <= 1.0]
    for classifier in (
        gc.ConstrainedLogisticRegression(constraints=rules),
        gc.ConstrainedLinearSVC(constraints=rules),
        gc.ConstrainedLGBMClassifier(constraints=rules),
        gc.ConstrainedLGBMClassifier(constraints=rules, maximize="f1"),
    ):
        with pytest.raises(ValueError, match="a classifier predicts classes"):
            classifier.fit(X, y > 0)
    with pytest.raises(ValueError, match="a classifier predicts classes"):
        gc.audit(LogisticRegression().fit(X, y > 0), X, y > 0, constraints=rules)
    with pytest.raises(ValueError, match="a regressor predicts numbers"):
        gc.audit(Ridge().fit(X, y), X, y, constraints=[gc.fpr() <= 0.1])


# Some solvers of the parent count no iterations, which a check asks for.
@parametrize_with_checks([ConstrainedRidge(solver="lsqr"), ConstrainedRidge(loss="huber")])
def test_conventions_of_scikit_learn(estimator, check):
    check(estimator)
