"""Linear models under pair rates, with both proxies."""

from __future__ import annotations

import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest
from pair_references import count_pairs
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from gbm_constrained import auc, cross_auc, fnr, gap, label, mean_rank, overall
from gbm_constrained.data.rows import Rows
from gbm_constrained.linear_model import ConstrainedLogisticRegression, LinearLearner
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers import ABPP

PROXIES = ("auto", "square")
L2 = 0.01


def draw(seed=0, n=500, signal=0.6):
    """Features that say something of label and group, both labels in both groups, and weights."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["F", "M"], n, p=[0.4, 0.6])
    y = (rng.random(n) < np.where(group == "M", 0.5, 0.3)).astype(int)
    X = rng.normal(size=(n, 5))
    X += signal * y[:, None] * rng.random(5) + 0.7 * (group == "M")[:, None] * rng.random(5)
    return X, y, group, rng.integers(32, 128, n) / 64


@pytest.fixture(scope="module")
def data():
    return draw()


def sides(y, group):
    """Masks U, V, U', V' of AUC(U, V) - AUC(U', V') for the six metrics of the source paper."""
    F, P = group == "F", y == 1
    M, N, every = ~F, ~P, np.ones(y.size, dtype=bool)
    return {
        "group": (F, every, M, every),
        "inter-group": (P & F, N & M, P & M, N & F),
        "intra-group": (P & F, N & F, P & M, N & M),
        "positive equality": (P & F, P, P, P),
        "negative equality": (N & F, N, N, N),
        "background": (P, N & F, P & F, N),
    }


RULES = {
    "group": gap(mean_rank(), by="g") <= 0.05,
    "inter-group": gap(cross_auc(), by="g") <= 0.05,
    "intra-group": gap(auc(), by="g") <= 0.05,
    "positive equality": gap(mean_rank(on=label(1)), by="g", reference=overall) <= 0.05,
    "negative equality": gap(mean_rank(on=label(0)), by="g", reference=overall) <= 0.05,
    "background": auc(negatives={"g": "F"}) - auc(positives={"g": "F"}) <= 0.05,
}


def make_learner(data, rule, proxy, metric="scores"):
    X, y, group, weight = data
    cells, compiled = compile_constraints([rule], Rows(y, np.array([0, 1]), weight, {"g": group}))
    lagrangian = Lagrangian(y, cells, compiled, weight=weight, proxy=proxy)
    return LinearLearner(lagrangian, X, l2=L2, metric=metric)


def first_row(learner, margin, masks, weight):
    """Position of the row that bounds AUC(U, V) - AUC(U', V')."""
    U, V, U2, V2 = masks
    expected = count_pairs(margin, U, V, weight) - count_pairs(margin, U2, V2, weight)
    lagrangian = learner.lagrangian
    rates = lagrangian.constraints.rates(lagrangian.at(margin).statistics())
    (at,) = np.flatnonzero(np.isclose(rates, expected, rtol=0, atol=1e-12))
    return at


class SquareReference:
    """The surrogate of one difference of pair rates of a linear score, as a quadratic form."""

    def __init__(self, X, masks, weight):
        U, V, U2, V2 = masks
        mass = [np.outer(weight * first, weight * second) for first, second in ((U, V), (U2, V2))]
        net = mass[0] / mass[0].sum() - mass[1] / mass[1].sum()
        at = np.nonzero(np.maximum(net - net.T, 0.0))
        share = (net - net.T)[at]
        apart = X[at[0]] - X[at[1]]
        self.quadratic = (apart * share[:, None]).T @ apart
        self.linear, self.constant = share @ apart, share.sum() / 2

    def value(self, w):
        return w @ self.quadratic @ w / 2 + self.linear @ w + self.constant

    def minimise(self, data, bound):
        """Minimise the mean loss and the ridge penalty under a bound, with cvxpy."""
        X, y, _, weight = data
        w, intercept = cp.Variable(X.shape[1]), cp.Variable()
        loss = cp.logistic(cp.multiply(1 - 2 * y, X @ w + intercept))
        objective = weight @ loss / weight.sum() + L2 / 2 * cp.sum_squares(w)
        root = np.linalg.cholesky(self.quadratic + 1e-12 * np.eye(w.size)).T
        rule = cp.sum_squares(root @ w) / 2 + self.linear @ w + self.constant <= bound
        problem = cp.Problem(cp.Minimize(objective), [rule])
        problem.solve(solver="CLARABEL", tol_gap_rel=1e-7, tol_gap_abs=1e-7, tol_feas=1e-7)
        return problem.value, np.asarray(rule.dual_value).item(), w.value


@pytest.mark.parametrize("name", RULES)
def test_square_proxy_reaches_the_optimum_of_its_own_constraint(data, name):
    """At fixed multipliers the optimum is that of a bound on the surrogate, its KKT point."""
    X, y, group, weight = data
    learner = make_learner(data, RULES[name], "square")
    masks = sides(y, group)[name]
    at = first_row(learner, X[:, 0] - X[:, 1], masks, weight)
    reference = SquareReference(X, masks, weight)
    for multiplier in (0.02, 0.3):
        start = np.zeros(len(learner.lagrangian.constraints))
        start[at] = multiplier
        fixed = np.ones(start.size, dtype=bool)
        solution = learner.solve(3, tau=1e8, initial_multipliers=start, fixed=fixed)
        coefficients = solution.weights[:-1]
        bound = reference.value(coefficients)
        objective, dual, expected = reference.minimise(data, bound)
        assert learner.objective(solution.weights) == pytest.approx(objective, rel=1e-6)
        assert dual == pytest.approx(multiplier, rel=1e-3)
        np.testing.assert_allclose(coefficients, expected, atol=1e-4)


@pytest.mark.parametrize("metric", ["scores", "weights"])
@pytest.mark.parametrize("proxy", PROXIES)
def test_subproblems_are_solved_exactly(data, proxy, metric):
    """The gradient of f + <y, g> + D / tau vanishes at every iterate."""
    learner = make_learner(data, RULES["inter-group"], proxy, metric)
    lagrangian, x = learner.lagrangian, np.zeros(learner.shape)
    tau = learner.solver().tau
    for solution in learner.path(8):
        new, margin = solution.weights, learner.margin(solution.weights)
        rows, _ = lagrangian.at(margin).gradient(solution.multipliers)
        gradient = learner.pull_back(rows) + learner.ridge * new
        pull = new - x
        if metric == "scores":
            pull = learner.pull_back(learner.row_weight * (margin - learner.margin(x)))
        np.testing.assert_allclose(gradient + pull / tau, 0.0, atol=1e-9)
        x = new
    assert solution.multipliers.any()


def test_observed_slopes_are_below_the_bound(data):
    """Those of the density; the square surrogate is steeper than any bound of the rates."""
    for proxy, is_below in (("auto", True), ("square", False)):
        learner = make_learner(data, RULES["inter-group"], proxy)
        point = learner.lagrangian.at(4 * learner.margin(np.ones(learner.shape)))
        bound, _ = learner.lagrangian.constants.lipschitz()
        assert (learner.lagrangian.constants.observe_lipschitz(point) <= bound).all() == is_below


def fit(data, rule, *, proxy="auto", weighted=True, **options):
    X, y, group, weight = data
    model = ConstrainedLogisticRegression(
        constraints=rule, constraint_solver=ABPP(proxy=proxy), **options
    )
    given = weight if weighted else None
    return model.fit(X, y, sample_weight=given, sensitive_features={"g": group})


def gap_of(margin, masks, weight):
    U, V, U2, V2 = masks
    return count_pairs(margin, U, V, weight) - count_pairs(margin, U2, V2, weight)


@pytest.mark.parametrize("name", ["group", "inter-group", "background"])
def test_bounds_are_met_and_reported(data, name):
    X, y, group, weight = data
    found = {}
    for proxy in PROXIES:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = fit(data, RULES[name], proxy=proxy)
        value = gap_of(model.decision_function(X), sides(y, group)[name], weight)
        bounded = value if name == "background" else abs(value)
        assert bounded <= 0.05
        report = model.constraint_report_.iloc[0]
        assert report["train"] == pytest.approx(bounded, abs=1e-10)
        assert report["verdict"] == "met on training rows"
        assert report["multiplier"] > 0
        found[proxy] = model.history_["objective"].iloc[-1]
    # The bound is used up by both, and the density pays less for it.
    assert found["auto"] <= found["square"] + 1e-6
    parent = LogisticRegression().fit(X, y, sample_weight=weight)
    before = gap_of(parent.decision_function(X), sides(y, group)[name], weight)
    assert abs(before) > 0.06


def test_a_slack_rule_gives_the_parents_optimum(data):
    X, y, _, weight = data
    rule = [auc() >= 0.6, RULES["group"].expression <= 0.9]
    model = fit(data, rule, tol=1e-6)
    parent = LogisticRegression(tol=1e-8, max_iter=1000).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.coef_, parent.coef_, atol=1e-4)
    np.testing.assert_allclose(model.intercept_, parent.intercept_, atol=1e-4)
    assert not model.multipliers_.any()


@pytest.mark.parametrize("beside", [(), (fnr() <= 0.3,)])
def test_no_multiple_of_the_scores_has_a_smaller_objective(data, beside):
    """An order of rows has no scale, and decisions by the sign have none either."""
    X, y, _, weight = data
    rules = [gap(mean_rank(), by="g") <= 0.02, *beside]
    model = fit(data, rules, n_iterations=10, C=0.1)
    assert model.multipliers_.any()

    def objective(factor, shift=0.0):
        margin = factor * model.decision_function(X) + shift
        loss = weight @ np.logaddexp(0.0, np.where(y == 1, -margin, margin))
        return loss + factor**2 * (model.coef_**2).sum() / (2 * model.C)

    moves = [(0.999, 0.0), (1.001, 0.0)] + [(1.0, 1e-3), (1.0, -1e-3)] * (not beside)
    assert objective(1.0) < min(objective(*move) for move in moves)


def test_the_model_is_a_plain_one(data):
    """Without groups: copies, pickles, and a parent with the same coefficients."""
    X, _, group, _ = data
    model = fit(data, RULES["inter-group"])
    parent = LogisticRegression()
    parent.classes_, parent.coef_ = model.classes_, model.coef_
    parent.intercept_ = model.intercept_
    np.testing.assert_array_equal(parent.predict(X), model.predict(X))
    np.testing.assert_allclose(parent.predict_proba(X), model.predict_proba(X))
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.decision_function(X), model.decision_function(X))
    assert restored.constraint_report_.equals(model.constraint_report_)
    again = clone(model).fit(X, data[1], sample_weight=data[3], sensitive_features={"g": group})
    np.testing.assert_array_equal(again.coef_, model.coef_)


@pytest.mark.parametrize("proxy", PROXIES)
def test_sample_weights_are_repetitions(proxy):
    X, y, group, _ = draw(1, n=200)
    times = np.random.default_rng(0).integers(0, 3, y.size)
    rule = gap(cross_auc(), by="g", min_group_size=1) <= 0.05
    options = {"proxy": proxy, "n_iterations": 12}
    weighted = fit((X, y, group, times.astype(float)), rule, **options)
    rows = np.repeat(np.arange(y.size), times)
    repeated = fit((X[rows], y[rows], group[rows], None), rule, weighted=False, **options)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5, atol=1e-6)


def test_pair_rates_beside_others():
    data = X, y, group, weight = draw(2, signal=2.0)
    plain = fit(data, auc() >= 0.5).decision_function(X)
    masks, positive = sides(y, group)["group"], y == 1
    assert np.average(plain[positive] <= 0, weights=weight[positive]) > 0.07
    assert abs(gap_of(plain, masks, weight)) > 0.2
    model = fit(data, [RULES["group"].expression <= 0.15, fnr() <= 0.05], n_iterations=60)
    margin = model.decision_function(X)
    assert abs(gap_of(margin, masks, weight)) <= 0.15
    assert np.average(margin[positive] <= 0, weights=weight[positive]) <= 0.05


@pytest.mark.parametrize("proxy", PROXIES)
def test_one_class_of_several_is_ranked(data, proxy):
    X, y, group, weight = data
    y = np.where(np.random.default_rng(3).random(y.size) < 0.3, 2, y)
    rule = gap(mean_rank(1), by="g") <= 0.05
    model = fit((X, y, group, weight), rule, proxy=proxy, n_iterations=120)
    p, masks = model.predict_proba(X)[:, 1], sides(y, group)["group"]
    assert abs(gap_of(p, masks, weight)) <= 0.05
    parent = LogisticRegression().fit(X, y, sample_weight=weight)
    assert abs(gap_of(parent.predict_proba(X)[:, 1], masks, weight)) > 0.06


@pytest.mark.parametrize("bound", [0.05, 0.02])
def test_weak_rules_take_few_iterations(bound):
    """No direction of the weights moves the gap much, so that its multiplier has far to go."""
    rng = np.random.default_rng(0)
    group, X = rng.choice(["F", "M"], 1000), rng.normal(size=(1000, 3))
    told = np.where(group == "M", 1.5 * X[:, 0], 0.3 * (X[:, 0] + X[:, 1]))
    y = (told + rng.logistic(size=1000) > 0).astype(int)
    data = X, y, group, None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fit(data, gap(auc(), by="g") <= bound, weighted=False, n_iterations=40)
    assert len(model.history_) < 40
    assert model.multipliers_.max() > 0.5
    value = gap_of(model.decision_function(X), sides(y, group)["intra-group"], None)
    assert bound - 3e-4 <= abs(value) <= bound


def test_bounds_out_of_reach_are_named(data):
    with pytest.warns(UserWarning, match="no iterate met the constraints"):
        model = fit(data, auc() >= 0.95, n_iterations=20)
    X, y, _, weight = data
    expected = roc_auc_score(y, model.decision_function(X), sample_weight=weight)
    assert model.constraint_report_["train"].iloc[0] == pytest.approx(expected, abs=1e-10)
    assert model.constraint_report_["verdict"].iloc[0] == "missed"


def test_unsuitable_solvers_are_refused(data):
    with pytest.raises(ValueError, match="proxy='square' is a surrogate of pair rates"):
        fit(data, fnr() <= 0.4, proxy="square")
    X, y, group, _ = data
    model = ConstrainedLogisticRegression(constraints=auc() >= 0.6, constraint_solver="cbpr")
    with pytest.raises(ValueError, match="compares scores"):
        model.fit(X, y, sensitive_features={"g": group})
