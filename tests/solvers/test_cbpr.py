"""CBPR: feasible descent to KKT points of problems whose constraints are not convex."""

from functools import lru_cache

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.linear_model import DictionaryLearner, LinearLearner
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers import AutoSolver, CBPRSolver

TOL = 2.5e-5


# kind of learner, classes, groups, sample weights, bound of the gap
CASES = {
    "linear": ("linear", 2, 2, False, 0.01),
    "linear_groups_weights": ("linear", 2, 4, True, 0.03),
    "linear_classes_groups_weights": ("linear", 3, 3, True, 0.03),
    "dictionary_weights": ("full", 2, 2, True, 0.01),
    "dictionary_classes": ("full", 3, 2, False, 0.02),
    "dictionary_deficient_groups": ("deficient", 2, 3, True, 0.02),
    "dictionary_deficient_classes": ("deficient", 3, 2, True, 0.02),
}


SLOW = {"linear_classes_groups_weights", "dictionary_classes"}
cases = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES]
)


def loss_gap(bound):
    return gc.gap(gc.log_loss(), by="s", min_group_size=1) <= bound


def make(n_classes=2, n_groups=2, *, weighted=False, rule=None, n=90, seed=0, **options):
    """Lagrangian and features of noisy rows, noisier in some groups."""
    rng = np.random.default_rng(seed)
    s = np.arange(n) % n_groups
    X = rng.normal(size=(n, 3))
    z = X @ [2.0, -1.0, 0.5] + (0.3 + 1.5 * s) * rng.normal(size=n)
    y = np.digitize(z, np.quantile(z, np.arange(1, n_classes) / n_classes)).astype(np.intp)
    weight = rng.exponential(size=n) + 0.1 if weighted else None
    rows = Rows(y, np.arange(n_classes), weight, {"s": s})
    cells, compiled = compile_constraints([loss_gap(0.02) if rule is None else rule], rows)
    return Lagrangian(y, cells, compiled, weight=weight, **options), X


def learner_of(name):
    kind, n_classes, n_groups, weighted, bound = CASES[name]
    lagrangian, X = make(n_classes, n_groups, weighted=weighted, rule=loss_gap(bound))
    if kind == "linear":
        return LinearLearner(lagrangian, X, l2=0.05, metric="scores")
    scores = np.column_stack([np.tanh(X), np.sign(X[:, :2]), np.ones(len(X))])
    if kind == "deficient":
        scores = np.column_stack([scores, 0.3 * scores @ np.ones(6), scores[:, 0]])
    return DictionaryLearner(lagrangian, scores, l2=0.05)


@lru_cache
def solved(name):
    """Learner, solver, and all outer iterates from zero scores."""
    learner = learner_of(name)
    solver = learner.solver(CBPRSolver)
    outer = []
    for solution in learner.path(3000, TOL, solver=solver):
        outer.append(solution)
        if solution.converged:
            break
    return learner, solver, outer


def rho_of(lagrangian):
    rows = np.eye(len(lagrangian.constraints))
    return max(lagrangian.constants.concavity(y).max() for y in rows)


def centred(scores):
    return scores if scores.ndim == 1 else scores - scores.mean(axis=1, keepdims=True)


def differences(function, x, h=1e-5):
    gradient = np.empty(x.size)
    for i in range(x.size):
        step = np.zeros(x.size)
        step[i] = h
        step = step.reshape(x.shape)
        gradient[i] = (function(x + step) - function(x - step)) / (2 * h)
    return gradient


@cases
def test_outer_iterates_are_feasible_and_descend(name):
    """Lemma 6, strictly: g <= -0.9 L D up to rounding, and f falls by L D or more."""
    learner, solver, outer = solved(name)
    assert outer[-1].converged
    f = [learner.objective(s.weights) for s in outer]
    for t in range(1, len(outer)):
        before, now = (learner.margin(s.weights) for s in outer[t - 1 : t + 1])
        moved = solver.strength * learner.lagrangian.bregman(now, before)
        assert learner.violations(outer[t].weights).max() <= -0.9 * moved + 1e-12
        assert f[t] <= f[t - 1] - moved + 1e-13


@cases
def test_limit_is_a_kkt_point(name):
    """Gradient of f + <y, g> by differences, signs and complementarity."""
    learner, _, outer = solved(name)
    x, y = outer[-1].weights, outer[-1].multipliers
    slope = differences(lambda v: learner.objective(v) + y @ learner.violations(v), x)
    assert np.linalg.norm(slope) <= 1e-4
    g = learner.violations(x)
    assert (y >= 0).all()
    assert y.max() > 0.01  # the constraint binds
    assert g.max() <= 0
    assert np.abs(y * g).max() <= 1e-8


@cases
def test_agrees_with_slsqp(name):
    """Same objective and scores as SLSQP from the same start; same weights if these are unique."""
    learner, _, outer = solved(name)
    f, x = learner.objective(outer[-1].weights), outer[-1].weights

    def shaped(v):
        return v.reshape(learner.shape)

    found = minimize(
        lambda v: learner.objective(shaped(v)),
        np.zeros(x.size),
        jac=lambda v: differences(learner.objective, shaped(v)),
        constraints={
            "type": "ineq",
            "fun": lambda v: -learner.violations(shaped(v)),
        },
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-13},
    )
    assert found.status in (0, 8), found.message  # 8: no further descent at machine precision
    assert learner.violations(shaped(found.x)).max() <= 1e-7
    assert f == pytest.approx(found.fun, abs=1e-6)
    theirs = learner.margin(shaped(found.x))
    np.testing.assert_allclose(
        centred(learner.margin(x)), centred(theirs), rtol=0, atol=0.02 * np.abs(theirs).max()
    )
    if CASES[name][0] != "deficient" and x.ndim == 1:
        np.testing.assert_allclose(x, found.x, rtol=0, atol=0.02 * np.abs(found.x).max())


@cases
def test_outer_iterations_of_theorem_2(name):
    """T <= 4 L^2 (f(x^0) - inf f) / (3 (L - rho) eps^2), and the sharper bound of the module.

    The paper's f and distance are sums over rows. Ours are both divided by W, with L and rho per
    unit of that distance, and gradients are measured in its dual norm: a common factor cancels.
    D is taken between scores, so that W'W is the identity on them and sigma_max = sigma_min = 1.
    The last objective on the path stands for inf f, which makes the bounds smaller.
    """
    learner, solver, outer = solved(name)
    L, rho = solver.strength, rho_of(learner.lagrangian)
    decrease = learner.objective(outer[0].weights) - learner.objective(outer[-1].weights)
    residuals = np.array(solver.residuals)
    for eps in (0.1, 1e-2, 1e-3, 1e-4):
        first = int(np.argmax(residuals <= eps)) + 1
        assert residuals[first - 1] <= eps
        assert first <= np.ceil(4 * L**2 * decrease / (3 * (L - rho) * eps**2))
        assert first <= np.ceil(decrease * max(2 * L, 1.1) / eps**2)


@cases
def test_few_inner_iterations(name):
    """A subproblem takes a few dual steps, for steps are nearly those of Newton."""
    _, solver, outer = solved(name)
    assert len(solver.history) <= 5 * len(outer)


@pytest.mark.parametrize("factor", [1.2, 4.0])
def test_any_strength_above_rho_descends(factor):
    """L > rho suffices; more distance takes more outer iterations."""
    learner = learner_of("linear")
    rho = rho_of(learner.lagrangian)
    solver = learner.solver(CBPRSolver, strength=factor * rho)
    outer = list(zip(range(25), learner.path(200, solver=solver), strict=False))
    f = [learner.objective(s.weights) for _, s in outer]
    assert (np.diff(f) < 0).all()
    assert max(learner.violations(s.weights).max() for _, s in outer) <= 0


def test_score_space_derivatives_solve_subproblems_too():
    """Without a learner's coordinates steps are shorter, and lead to the same point."""
    learner, _, outer = solved("linear")
    solver = learner.solver(CBPRSolver)
    solver.project = solver._orthonormal
    start = outer[-3].weights
    found = learner.solve(3000, TOL, start, solver=solver)
    assert found.converged
    assert learner.objective(found.weights) == pytest.approx(
        learner.objective(outer[-1].weights), abs=1e-7
    )


def test_infeasible_start_is_refused_by_name():
    learner = learner_of("linear")
    start = np.array([3.0, -2.0, 1.0, 0.0])
    row = learner.lagrangian.constraints.rows[int(learner.violations(start).argmax())]
    with pytest.raises(ValueError, match="feasible start") as error:
        learner.solve(10, start=start, solver=learner.solver(CBPRSolver))
    assert row in str(error.value)


@cases
def test_zero_scores_meet_every_gap(name):
    """The loss is log K in every group."""
    learner = learner_of(name)
    zero = np.zeros(learner.shape)
    gaps = learner.violations(zero) + learner.lagrangian.constraints.b
    np.testing.assert_allclose(gaps, 0.0, atol=1e-12)
    outer = next(learner.path(1, solver=learner.solver(CBPRSolver)))
    np.testing.assert_array_equal(outer.weights, zero)


def test_constant_scores_need_equal_classes_or_base_rates():
    """Groups of different base rates differ in the loss of a constant model that is not 0."""
    learner = learner_of("linear")
    biased = np.array([0.0, 0.0, 0.0, 0.05])
    assert learner.violations(biased).max() <= 0
    solution = learner.solve(1000, TOL, biased, solver=learner.solver(CBPRSolver))
    assert solution.converged
    np.testing.assert_allclose(
        solution.weights, solved("linear")[2][-1].weights, rtol=0, atol=5e-3
    )


def test_earlier_solution_is_accepted_and_kept():
    """From a KKT point, with its multipliers, there is nothing to do."""
    learner, _, outer = solved("linear_groups_weights")
    last = outer[-1]
    solver = learner.solver(CBPRSolver, initial_multipliers=last.multipliers)
    again = learner.solve(50, 1e-4, last.weights, solver=solver)
    assert again.converged
    assert len(solver.residuals) <= 2
    np.testing.assert_allclose(again.weights, last.weights, rtol=0, atol=1e-4)


def test_unfinished_path_returns_a_feasible_iterate():
    learner = learner_of("dictionary_classes")
    solution = learner.solve(2, solver=learner.solver(CBPRSolver))
    assert not solution.converged
    assert learner.violations(solution.weights).max() <= 0


def test_distance_of_weights_is_refused():
    lagrangian, X = make()
    with pytest.raises(ValueError, match="metric='scores'"):
        LinearLearner(lagrangian, X, metric="weights").solver(CBPRSolver)


def row_hessians(lagrangian, scores, multipliers):
    """Hessian of <y, g> in each row's scores, in units of the row's weight."""
    point = lagrangian.at(scores)
    columns = []
    for k in range(1 if scores.ndim == 1 else scores.shape[1]):
        u = np.zeros_like(scores)
        u[..., k] = 1.0
        if scores.ndim == 1:
            u = np.ones_like(scores)
        of_f = point.hessian_product(np.zeros_like(multipliers), u)
        columns.append(point.hessian_product(multipliers, u) - of_f)
    weight = lagrangian.rows.apply_weights(np.ones(lagrangian.n_samples), slice(None))
    stacked = np.stack([c.reshape(len(scores), -1) for c in columns], axis=2)
    return stacked / weight[:, None, None]


RULES = {
    "loss": (loss_gap(0.02), {}),
    "sigmoid": (gc.gap(gc.error_rate(), by="s", min_group_size=1) <= 0.02, {"proxy": "sigmoid"}),
}


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("rule", RULES)
def test_concavity_is_the_most_negative_eigenvalue(rule, n_classes, n_groups):
    """It bounds the eigenvalues at any scores, and is attained for losses, nearly for proxies."""
    constraint, options = RULES[rule]
    lagrangian, _ = make(n_classes, n_groups, weighted=True, rule=constraint, n=600, **options)
    rng = np.random.default_rng(1)
    shape = (600,) if n_classes == 2 else (600, n_classes)
    for y in np.eye(len(lagrangian.constraints))[:3]:
        bound = lagrangian.constants.concavity(y)[lagrangian.cells.codes]
        lowest = np.zeros(600)
        for scale in (0.1, 1.0, 2.0, 4.0):
            scores = scale * rng.normal(size=shape)
            if n_classes == 3:
                scores[:300, 2] -= 8.0  # two classes share the mass: the most curved case
            values = np.linalg.eigvalsh(row_hessians(lagrangian, scores, y))[:, 0]
            assert (values >= -bound - 1e-12).all()
            lowest = np.minimum(lowest, values)
        # The sigmoid proxy's bound adds the worst of p and of softmax(F / 2), at other scores;
        # with three classes it is that of any costs, not of 0 and 1.
        share = {"loss": 0.98, "sigmoid": 0.8 if n_classes == 2 else 0.35}[rule]
        assert -lowest.min() >= share * bound.max()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_default_strength_is_twice_the_concavity(n_classes):
    """Rho = W / (4 W_group) in a binary margin, and twice that in softmax scores."""
    lagrangian, _ = make(n_classes, 3, weighted=True)
    rows = [np.flatnonzero(lagrangian.cells.rows.columns["s"] == v) for v in range(3)]
    weight = lagrangian.rows.apply_weights(np.ones(90), slice(None))
    smallest = min(weight[r].sum() for r in rows) / weight.sum()
    rho = (0.25 if n_classes == 2 else 0.5) / smallest
    assert rho_of(lagrangian) == pytest.approx(rho, rel=1e-12)
    assert CBPRSolver(lagrangian).strength == pytest.approx(2 * rho, rel=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("rule", RULES)
def test_subproblems_are_convex(rule, n_classes):
    """With L = rho the Hessian of f + <y, g> + L (1 + sum y) D has no negative eigenvalue."""
    constraint, options = RULES[rule]
    lagrangian, _ = make(n_classes, 3, weighted=True, rule=constraint, n=24, **options)
    L, m = rho_of(lagrangian), len(lagrangian.constraints)
    rng = np.random.default_rng(2)
    shape = (24,) if n_classes == 2 else (24, n_classes)
    for scale in (0.1, 1.0, 3.0, 10.0):
        y = rng.exponential(size=m) * (rng.random(m) < 0.5) * scale
        point = lagrangian.at(scale * rng.normal(size=shape))
        weight = L * (1 + y.sum())
        hessian = [
            point.hessian_product(y, u.reshape(shape), weight).ravel()
            for u in np.eye(int(np.prod(shape)))
        ]
        values = np.linalg.eigvalsh(np.array(hessian))
        assert values[0] >= -1e-12 * values[-1]


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


@lru_cache
def with_most_loss(widest, largest):
    """A model under a loss gap and a bound on the loss of all rows, and its constraints."""
    rules = [gc.gap(gc.log_loss(), by="s") <= widest, gc.log_loss() <= largest]
    return logistic(rule=rules), rules


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
    model, _ = with_most_loss(widest, largest)
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
        gc.precision() >= 0.9,
        gc.gap(gc.fpr(), by="s") <= 0.02,
        pytest.param(gc.fpr() <= 0.05, marks=pytest.mark.slow),
        pytest.param(gc.class_error(0) <= 0.1, marks=pytest.mark.slow),
        pytest.param(gc.gap(gc.selection_rate(), by="s") <= 0.05, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_zero_one_rates_of_a_linear_model(rule):
    """Met as ABPP meets them: proxies that go flat send no multiplier to infinity."""
    rng = np.random.default_rng(1)
    s = rng.integers(0, 2, 1000)
    X = rng.normal(size=(1000, 4))
    X[:, 0] += s
    y = X @ [1.0, 0.5, -0.5, 0.0] + rng.logistic(size=1000) + 0.5 * s > 0.5
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
    found, rules = with_most_loss(0.02, 0.6)
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
