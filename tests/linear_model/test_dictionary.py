"""The exact learners: layouts, subproblems, leaves of trained ensembles."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from scipy import sparse
from scipy.optimize import check_grad, minimize
from sklearn.linear_model import LogisticRegression

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.linear_model import DictionaryLearner, LinearLearner, leaf_indicators
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian


def _data(n_classes: int, n: int = 200, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, n_classes, n))
    X = 0.7 * rng.normal(size=(n_classes, 4))[y] + rng.normal(size=(n, 4))
    return X, y, rng.uniform(0.2, 2.0, n)


def _lagrangian(y, constraints, weight=None, **options) -> Lagrangian:
    cells, compiled = compile_constraints(constraints, Rows(y, np.unique(y), weight))
    return Lagrangian(y, cells, compiled, weight=weight, **options)


def _rules(X, n_classes):
    return [
        gc.log_loss(on=gc.label(0)) <= 0.2 * n_classes,
        gc.log_loss(on=X[:, 0] > 0) <= 0.1 * n_classes,
    ]


def _learner(n_classes, kind, metric, **options) -> DictionaryLearner:
    X, y, weight = _data(n_classes)
    lag = _lagrangian(y, _rules(X, n_classes), weight, **options)
    if kind == "linear":
        return LinearLearner(lag, X, l2=0.01, metric=metric)
    if kind == "shared":
        return DictionaryLearner(lag, np.tanh(X), offset=0.3, metric=metric)
    S = leaf_indicators(np.digitize(X, [-0.5, 0.5]), n_classes)
    prior = np.log(np.bincount(y) / y.size) if n_classes > 2 else 0.1
    return DictionaryLearner(lag, S, offset=prior, l2=0.02, metric=metric)


@pytest.mark.parametrize("metric", ["scores", "weights"])
@pytest.mark.parametrize("kind", ["linear", "shared", "leaves"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_subproblems_are_solved_exactly(n_classes, kind, metric):
    """The gradient of f + <y, g> + D / tau vanishes, in weights, at every iterate."""
    learner = _learner(n_classes, kind, metric)
    lag, x = learner.lagrangian, np.zeros(learner.shape)
    for solution in learner.path(5):
        new, margin = solution.weights, learner.margin(solution.weights)
        tau = learner.solver().tau
        rows, _ = lag.at(margin).gradient(solution.multipliers)
        gradient = learner.pull_back(rows) + learner.ridge * new
        if metric == "weights":
            pull = new - x
        else:
            w = learner.row_weight if n_classes == 2 else learner.row_weight[:, None]
            pull = learner.pull_back(w * (margin - learner.margin(x)))
        if learner.mu == 0:
            np.testing.assert_allclose(gradient + pull / tau, 0.0, atol=1e-10)
        else:  # tau has moved on: the two are parallel
            k = np.argmax(np.abs(pull))
            ratio = -gradient.ravel()[k] / pull.ravel()[k]
            assert ratio >= 1 / tau * (1 - 1e-6)
            np.testing.assert_allclose(gradient + ratio * pull, 0.0, atol=1e-9)
        x = new


@pytest.mark.parametrize("n_classes", [2, 4])
def test_layouts_agree(n_classes):
    """Dense, sparse and, for K classes, the explicit (n K, N) matrix: the same iterates."""
    X, y, weight = _data(n_classes)
    lag = _lagrangian(y, _rules(X, n_classes), weight)
    expected = DictionaryLearner(lag, X).solve(8)
    other = DictionaryLearner(lag, sparse.csr_matrix(X)).solve(8)
    np.testing.assert_allclose(other.weights, expected.weights, atol=1e-9)
    if n_classes > 2:
        explicit = DictionaryLearner(
            lag, sparse.kron(sparse.coo_array(X), np.eye(n_classes), format="csc")
        )
        assert explicit.shape == (X.shape[1] * n_classes,)
        flat = explicit.solve(8).weights
        np.testing.assert_allclose(
            flat.reshape(expected.weights.shape), expected.weights, atol=1e-9
        )


def test_scores_distance_ignores_how_the_dictionary_is_written():
    """Any invertible change of weak learners, redundant ones included: the same scores."""
    X, y, weight = _data(2)
    lag = _lagrangian(y, _rules(X, 2), weight)
    change = np.diag([1e4, 1.0, 1e-4, 1.0]) + np.triu(np.ones((4, 4)), 1)
    plain, changed = DictionaryLearner(lag, X), DictionaryLearner(lag, X @ change)
    redundant = DictionaryLearner(lag, np.hstack([X, X, 0 * X]))
    margin = plain.margin(plain.solve(10).weights)
    np.testing.assert_allclose(changed.margin(changed.solve(10).weights), margin, atol=1e-7)
    np.testing.assert_allclose(redundant.margin(redundant.solve(10).weights), margin, atol=1e-7)


def test_large_dictionaries_take_the_same_steps(monkeypatch):
    """Without factorised second moments: the same iterates, the same constants."""
    expected = [_learner(4, "leaves", metric) for metric in ("scores", "weights")]
    states = [learner.solve(4) for learner in expected]
    monkeypatch.setattr("gbm_constrained.linear_model.exact.MAX_DENSE", 3)
    for before, state, metric in zip(expected, states, ("scores", "weights"), strict=True):
        learner = _learner(4, "leaves", metric)
        assert learner.smoothness == pytest.approx(before.smoothness)
        np.testing.assert_allclose(learner.lipschitz[0], before.lipschitz[0])
        np.testing.assert_allclose(learner.solve(4).weights, state.weights, atol=1e-7)


def test_weights_are_repetitions():
    X, y, _ = _data(2, 80)
    times = np.arange(80) % 3
    constraints = [gc.log_loss(on=gc.label(0)) <= 0.3]
    repeated = np.repeat(np.arange(80), times)
    a = LinearLearner(_lagrangian(y, constraints, times.astype(float)), X).solve(20)
    b = LinearLearner(_lagrangian(y[repeated], constraints), X[repeated]).solve(20)
    np.testing.assert_allclose(a.weights, b.weights, atol=1e-8)
    np.testing.assert_allclose(a.multipliers, b.multipliers, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_slack_constraint_gives_scikit_learns_solution(n_classes):
    X, y, weight = _data(n_classes)
    lag = _lagrangian(y, [gc.log_loss() <= 50.0], weight)
    learner = LinearLearner(lag, X, l2=1.0 / weight.sum(), metric="scores")
    solution = learner.solve(100, tol=1e-8, tau=1000.0)
    sk = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(X, y, weight)
    coef, intercept = learner.coefficients(solution.weights)
    assert coef.shape == sk.coef_.shape
    assert intercept.shape == sk.intercept_.shape
    np.testing.assert_allclose(coef, sk.coef_, atol=1e-5)
    np.testing.assert_allclose(intercept, sk.intercept_, atol=1e-5)


@pytest.mark.parametrize("metric", ["scores", "weights"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_a_constraint_that_no_prediction_changes(adaptive, metric):
    if adaptive and metric == "weights":
        pytest.skip("slopes are observed in scores")
    X, y, _ = _data(2)
    constant = gc.accuracy() + gc.error_rate() <= 1
    for constraints in ([constant], [gc.log_loss(on=gc.label(0)) <= 0.3, constant]):
        learner = LinearLearner(_lagrangian(y, constraints), X, metric=metric)
        *_, state = learner.path(5, adaptive=adaptive)
        assert state.multipliers[-1] == 0.0
        assert np.isfinite(state.weights).all()
        assert state.weights.any()


def test_no_constraint_is_the_proximal_point_method():
    X, y, _ = _data(2)
    solution = LinearLearner(_lagrangian(y, []), X).solve(200, tol=1e-6, tau=100.0)
    assert solution.converged
    assert solution.multipliers.shape == (0,)


@pytest.mark.parametrize("proxy", ["sigmoid", "ramp"])
def test_nonconvex_subproblems_descend(proxy):
    """With a bounded proxy a subproblem has no unique solution; its value still falls."""
    X, y, _ = _data(3)
    lag = _lagrangian(y, [gc.class_error(0) <= 0.05], proxy=proxy)
    learner = LinearLearner(lag, X, metric="scores")
    x = np.zeros(learner.shape)
    for solution in learner.path(40):
        before, after = (lag.at(learner.margin(v)) for v in (x, solution.weights))
        value = lag.at(before.margin).value(solution.multipliers)
        assert lag.at(after.margin).value(solution.multipliers) <= value + 1e-12
        x = solution.weights
    assert learner.violations(x)[0] <= 0.02


def test_observed_slopes_never_exceed_the_bounds_and_only_grow():
    learner = _learner(4, "shared", "scores")
    solver = learner.solver()
    bound, before = solver.current_lipschitz.copy(), np.zeros(2)
    for _ in learner.path(10, solver=solver, adaptive=True):
        assert (solver.current_lipschitz <= bound * (1 + 1e-12)).all()
        assert (solver.current_lipschitz >= before).all()
        before = solver.current_lipschitz
    assert (before < bound).all()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            {"scores": np.ones((7, 2))},
            r"200 rows for 200 samples of 1 score each, got shape \(7, 2\)",
        ),
        ({"scores": np.ones(200)}, r"got shape \(200,\)"),
        ({"metric": "weight"}, "metric must be 'scores' or 'weights', got 'weight'"),
    ],
)
def test_bad_dictionaries_are_refused(change, match):
    X, y, _ = _data(2)
    arguments = {"scores": X, **change}
    with pytest.raises(ValueError, match=match):
        DictionaryLearner(_lagrangian(y, _rules(X, 2)), **arguments)


@pytest.mark.parametrize(("n_classes", "metric"), [(2, "scores"), (4, "weights")])
def test_constraints_in_several_views_are_those_of_one(monkeypatch, n_classes, metric):
    """The same constants, observed ones too, and the same path."""
    together = _learner(n_classes, "linear", metric)
    monkeypatch.setattr("gbm_constrained.data.cells.VIEW_CELLS", 1)
    apart = _learner(n_classes, "linear", metric)
    views = [len(learner.lagrangian.cells.views) for learner in (together, apart)]
    assert views == [1, 2]
    np.testing.assert_allclose(apart.lipschitz[0], together.lipschitz[0])
    assert (apart.lipschitz[0] > 0).all()
    observed = [
        learner.lagrangian.constants.observe_lipschitz(
            learner.lagrangian.at(learner.margin(np.zeros(learner.shape)))
        )
        for learner in (together, apart)
    ]
    np.testing.assert_allclose(observed[1], observed[0])
    one, two = (learner.solve(60, sigma=0.2) for learner in (together, apart))
    assert one.multipliers[1] > 0  # of the constraint in the second view
    np.testing.assert_allclose(two.multipliers, one.multipliers, rtol=1e-6)
    np.testing.assert_allclose(two.weights, one.weights, rtol=1e-6, atol=1e-9)


def test_no_iterations_are_refused():
    with pytest.raises(ValueError, match="n_iterations must be at least 1, got 0"):
        _learner(2, "shared", "scores").solve(0)


# -- leaves of trained ensembles ------------------------------------------------------------------


def test_leaf_indicators():
    S = leaf_indicators([[0, 2], [1, 0]])
    assert S.toarray().tolist() == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]]
    other = leaf_indicators([[0, 0]], n_leaves=[2, 3])
    assert other.toarray().tolist() == [[1, 0, 1, 0, 0]]
    with pytest.raises(ValueError, match="of another ensemble"):
        leaf_indicators([[2, 0]], n_leaves=[2, 3])
    per_class = leaf_indicators([[0, 1, 0], [1, 0, 0]], n_classes=3)
    assert per_class.shape == (6, 5)
    assert (per_class @ np.array([10.0, 20, 30, 40, 50])).tolist() == [10, 40, 50, 20, 30, 50]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_leaves_times_their_values_are_the_ensemble(n_classes):
    X, y, _ = _data(n_classes)
    booster = lgb.LGBMClassifier(n_estimators=4, num_leaves=6, verbose=-1, n_jobs=1).fit(X, y)
    S = leaf_indicators(booster.predict(X, pred_leaf=True), n_classes)
    model = booster.booster_
    values = [
        model.get_leaf_output(tree, leaf)
        for tree, n in enumerate(booster.predict(X, pred_leaf=True).max(axis=0) + 1)
        for leaf in range(n)
    ]
    scores = (S @ np.array(values)).reshape(-1, 1 if n_classes == 2 else n_classes).squeeze()
    np.testing.assert_allclose(scores, booster.predict(X, raw_score=True))


def _exact(S, offset, y, positive_bound: float, l2: float) -> float:
    """Optimal objective under log_loss(on=label(1)) <= bound, by SLSQP on the dense problem."""
    S, sign = S.toarray(), 2.0 * y - 1.0
    share = y / y.sum()

    def part(x, weights):
        margin = sign * (S @ x + offset)
        p_wrong = 1.0 / (1.0 + np.exp(margin))
        return weights @ np.logaddexp(0, -margin), -S.T @ (weights * sign * p_wrong)

    def objective(x):
        value, gradient = part(x, np.full(y.size, 1.0 / y.size))
        return value + l2 / 2 * x @ x, gradient + l2 * x

    assert check_grad(lambda x: objective(x)[0], lambda x: objective(x)[1], 0.1 * S[0]) < 1e-6
    constraint = {
        "type": "ineq",
        "fun": lambda x: positive_bound - part(x, share)[0],
        "jac": lambda x: -part(x, share)[1],
    }
    found = minimize(
        objective, np.zeros(S.shape[1]), jac=True, constraints=[constraint], method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    assert found.success
    assert part(found.x, share)[0] <= positive_bound + 1e-8
    return float(found.fun)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_fully_corrective_reweighting_of_a_trained_ensemble(library):
    """The leaves of a plain booster, re-weighted, meet a constraint at the exact optimum."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 3))
    y = (X[:, 0] + 0.5 * X[:, 1] ** 2 + rng.normal(size=400) > 1.5).astype(int)
    common = {"n_estimators": 5, "learning_rate": 0.3, "n_jobs": 1}
    if library == "lightgbm":
        booster = lgb.LGBMClassifier(num_leaves=4, verbose=-1, **common).fit(X, y)
        leaves = booster.predict(X, pred_leaf=True)
        scores = booster.predict(X, raw_score=True)
    else:
        booster = xgb.XGBClassifier(max_depth=2, **common).fit(X, y)
        leaves = booster.apply(X)
        scores = booster.predict(X, output_margin=True)
    prior = float(np.log(y.mean() / (1 - y.mean())))
    constraints = [gc.log_loss(on=gc.label(1)) <= 0.4]
    learner = DictionaryLearner(
        _lagrangian(y, constraints), leaf_indicators(leaves), offset=prior, l2=0.01
    )
    plain = learner.lagrangian.at(scores.astype(float)).statistics()
    assert learner.lagrangian.constraints.violations(plain)[0] > 0.2  # the booster breaks it
    solution = learner.solve(2000, tol=1e-7)
    assert solution.converged
    assert learner.violations(solution.weights)[0] <= 1e-6
    assert solution.multipliers[0] > 0.1
    best = _exact(leaf_indicators(leaves), prior, y, 0.4, 0.01)
    assert learner.objective(solution.weights) <= best + 1e-6


def test_reweighting_meets_a_zero_one_rule():
    """The same with the rate users mean: at most 10 per cent of the positives missed."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1000, 3))
    y = (X[:, 0] + 0.5 * X[:, 1] ** 2 + rng.normal(size=1000) > 1.5).astype(int)
    booster = lgb.LGBMClassifier(n_estimators=10, num_leaves=6, verbose=-1, n_jobs=1).fit(X, y)
    lag = _lagrangian(y, [gc.fnr() <= 0.1])
    S = leaf_indicators(booster.predict(X, pred_leaf=True))
    learner = DictionaryLearner(lag, S, l2=1e-3)
    solution = learner.solve(150)
    rates = [r.rates[0] for r in solution.history[-30:]]
    assert abs(np.mean(rates) - 0.1) < 0.01
