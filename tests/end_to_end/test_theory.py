"""ABPP against exact solutions: the rates, the multipliers and the step sizes of the theory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from gbm_constrained.constraints.rates import fnr, log_loss
from gbm_constrained.constraints.selectors import label
from gbm_constrained.data.rows import Rows
from gbm_constrained.linear_model import DictionaryLearner, LinearLearner, leaf_indicators
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers import ABPPSolver

CASES = [
    (n_classes, kind, l2)
    for n_classes in (2, 7)
    for kind in ("linear", "dictionary")
    for l2 in (0.0, 0.3)
]
NAMES = [f"{k}-{kind}-{'mu>0' if l2 else 'mu=0'}" for k, kind, l2 in CASES]
SLOW = ("7-linear-mu=0", "7-dictionary-mu=0", "7-dictionary-mu>0")
# About the multipliers of the three constraints, over the fractions of their rows; small where
# convergence is slow (mu = 0), so that it reaches 1e-4.
EMPHASIS = {(2, 0.0): (0.1, 0.1, 0.1), (2, 0.3): (0.5, 0.5, 0.5)}
EMPHASIS |= {(7, l2): (0.4, 0.2, 0.1) for l2 in (0.0, 0.3)}


@dataclass
class Problem:
    """A learner, and the exact solution of its problem."""

    learner: DictionaryLearner
    optimum: float
    weights: np.ndarray
    multipliers: np.ndarray


def _lagrangian(y, n_classes, constraints, weight=None, **options) -> Lagrangian:
    cells, compiled = compile_constraints(constraints, Rows(y, np.arange(n_classes), weight))
    return Lagrangian(y, cells, compiled, weight=weight, **options)


def _minimise(S, offset, y, n_classes, shares, l2, bounds=None) -> tuple[Any, float, Any]:
    """Minimise ``shares[0] @ loss`` subject to ``shares[j] @ loss <= b_j``, with cvxpy."""
    if n_classes == 2:
        x = cp.Variable(S.shape[1])
        loss = cp.logistic(cp.multiply(1 - 2 * y, S @ x + offset))
    else:
        x = cp.Variable((S.shape[1], n_classes))
        F = S @ x + np.broadcast_to(offset, (len(y), n_classes))
        loss = cp.log_sum_exp(F, axis=1) - cp.sum(cp.multiply(F, np.eye(n_classes)[y]), axis=1)
    rules = [] if bounds is None else [
        s @ loss <= b for s, b in zip(shares[1:], bounds, strict=True)
    ]  # fmt: skip
    objective = shares[0] @ loss + l2 / 2 * cp.sum_squares(x)
    problem = cp.Problem(cp.Minimize(objective), rules)
    problem.solve("CLARABEL")  # gap and feasibility to 1e-8
    assert problem.status == "optimal"
    duals = np.array([float(rule.dual_value) for rule in rules])
    return x.value, float(problem.value), duals if rules else loss.value


@cache
def problem(n_classes: int, kind: str, l2: float) -> Problem:
    """Three constraints on overlapping rows, with the values of a re-weighted fit as bounds."""
    rng = np.random.default_rng(n_classes)
    prior = np.arange(9, n_classes + 9) / np.arange(9, n_classes + 9).sum()
    n = 40 * n_classes + 120
    y = rng.choice(n_classes, n, p=prior)
    X = 0.3 * rng.normal(size=(n_classes, 3))[y] + rng.normal(size=(n, 3))
    weight = rng.uniform(0.5, 1.5, n)
    mask = X[:, 0] > 0
    other = y == 1 if n_classes > 2 else X[:, 1] > 0.5  # binding both classes leaves no interior
    offset: Any = 0.0
    S = X
    if kind == "linear" and l2 == 0:
        S = np.hstack([X, np.ones((n, 1))])
    elif kind == "dictionary":
        S = leaf_indicators(np.digitize(X[:, :2], [-0.5, 0.5])).toarray()
    shares = [weight, weight * (y == 0), weight * other, weight * mask]
    emphasis = (1.0, *EMPHASIS[n_classes, l2])
    mixed = np.einsum("j,ji->i", emphasis, shares)
    shares = [s / s.sum() for s in shares]
    *_, loss = _minimise(S, offset, y, n_classes, [mixed / weight.sum()], l2)
    bounds = [float(np.ceil(1e3 * (s @ loss)) / 1e3) for s in shares[1:]]
    x, optimum, duals = _minimise(S, offset, y, n_classes, shares, l2, bounds)
    rules = [
        log_loss(on=on) <= b
        for on, b in zip((label(0), other, mask), bounds, strict=True)
    ]  # fmt: skip
    lagrangian = _lagrangian(y, n_classes, rules, weight)
    learner = (
        LinearLearner(lagrangian, X, fit_intercept=l2 == 0, l2=l2)
        if kind == "linear"
        else DictionaryLearner(lagrangian, S, offset=offset, l2=l2)
    )
    return Problem(learner, optimum, x, duals)


def _ergodic_errors(case: Problem, n_iterations: int, at: np.ndarray, **options):
    """Larger of objective gap and violation of the ergodic iterate, at some iterations."""
    learner, errors = case.learner, []
    for k, state in enumerate(learner.path(n_iterations, **options), 1):
        if k in at:
            gap = abs(learner.objective(state.average_weights) - case.optimum)
            errors.append(max(gap, learner.violations(state.average_weights).max()))
    return np.array(errors), state


def _slope(k: np.ndarray, errors: np.ndarray) -> float:
    return float(np.polyfit(np.log(k), np.log(errors), 1)[0])


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_reference_satisfies_the_optimality_conditions(case):
    p = problem(*case)
    learner, lag = p.learner, p.learner.lagrangian
    g = learner.violations(p.weights)
    assert g.max() <= 1e-8
    assert np.abs(p.multipliers * g).max() <= 1e-7
    assert (p.multipliers > 0.01).sum() >= 2
    rows, _ = lag.at(learner.margin(p.weights)).gradient(p.multipliers)
    gradient = learner.pull_back(rows) + learner.l2 * p.weights * (learner.ridge > 0)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
    assert learner.objective(p.weights) == pytest.approx(p.optimum, abs=1e-8)


# Of seven classes, the everyday suite takes the linear learner at its fast rate.
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] * (name in SLOW))
        for case, name in zip(CASES, NAMES, strict=True)
    ],
)
def test_rates_of_the_theory(case):
    """Corollary 1: O(1/k) for mu = 0 and O(1/k^2) for mu > 0, down to 1e-4; exact multipliers."""
    p, accelerated = problem(*case), case[-1] > 0
    n_iterations = 2000 if not accelerated else 1500 if case[0] == 7 else 1000
    at = np.unique(np.geomspace(n_iterations // 20, n_iterations, 40).astype(int))
    errors, state = _ergodic_errors(p, n_iterations, at)
    assert (p.learner.mu > 0) == accelerated
    assert errors[-1] > 1e-8  # the fitted range is free of rounding
    assert errors[0] > 10 * errors[-1]
    assert _slope(at, errors) <= (-1.8 if accelerated else -0.9)
    assert errors[-1] <= 1e-4
    assert state.residual <= 1e-4
    assert p.learner.objective(state.weights) == pytest.approx(p.optimum, abs=1e-4)
    size = np.abs(p.multipliers).max()
    np.testing.assert_allclose(state.multipliers, p.multipliers, rtol=0, atol=1e-2 * size)


@pytest.mark.parametrize("kind", ["linear", pytest.param("dictionary", marks=pytest.mark.slow)])
def test_acceleration_comes_from_mu(kind):
    """The same strongly convex problem with mu = 0 converges, but as 1/k."""
    p = problem(2, kind, 0.3)
    at = np.unique(np.geomspace(40, 800, 20).astype(int))
    slow, _ = _ergodic_errors(p, 800, at, mu=0.0)
    fast, _ = _ergodic_errors(p, 800, at)
    assert -1.5 < _slope(at, slow) < -0.7
    assert _slope(at, fast) < _slope(at, slow) - 0.3
    assert fast[-1] < slow[-1] / 2


@pytest.mark.parametrize("n_classes", [2, 7])
@pytest.mark.parametrize("metric", ["scores", "weights"])
def test_lipschitz_constants_bound_every_step(n_classes, metric):
    r"""\|g(x) - g(x')\| <= L sqrt(2 D(x, x')), one by one and together, scaled to one."""
    learner = problem(n_classes, "dictionary", 0.0).learner
    lag = learner.lagrangian
    learner = DictionaryLearner(lag, learner.scores, metric=metric)
    if metric == "weights":
        own, together = learner.lipschitz
    else:
        own, together = lag.constants.lipschitz()
    assert 1 - 1e-12 <= together <= np.sqrt(3)
    generator, ratios, joint = np.random.default_rng(n_classes), [], []
    for scale in (0.01, 0.1, 1.0, 10.0) * 10:
        x, other = scale * generator.normal(size=(2, *learner.shape))
        x += 3 * generator.normal(size=learner.shape)
        other = x + other
        D = (
            lag.bregman(learner.margin(x), learner.margin(other))
            if metric == "scores"
            else ((x - other) ** 2).sum() / 2
        )
        change = (learner.violations(x) - learner.violations(other)) / own / np.sqrt(2 * D)
        ratios.append(np.abs(change))
        joint.append(np.linalg.norm(change))
    assert np.max(ratios) <= 1.0
    assert np.max(joint) <= together
    assert np.max(ratios) > 0.1  # and the bound is not idle


def test_lipschitz_constant_is_attained():
    """One row, far on the wrong side: |g(x) - g(x')| = |s| |x - x'|."""
    lag = _lagrangian(np.array([0, 1]), 2, [log_loss(on=label(1)) <= 1.0])
    learner = DictionaryLearner(lag, np.array([[0.0, 0.0], [3.0, 4.0]]), metric="weights")
    own, together = learner.lipschitz
    assert own == pytest.approx([5.0])
    assert together == pytest.approx(1.0)
    x = np.array([-30.0, -40.0])
    change = learner.violations(x) - learner.violations(1.01 * x)
    assert -change == pytest.approx(5.0 * 0.5)


def _linear_recursion(L_g: float, tau_sigma: float) -> np.ndarray:
    """Distance to the saddle point when f = -x and g = L_g x, so that y* = 1 / L_g and x* = 0."""
    tau, sigma = 1.0, tau_sigma
    x = before = 0.1
    y, distances = 1.0 / L_g, []
    for _ in range(300):
        y = max(y + sigma * L_g * (2 * x - before), 0.0)
        x, before = x - tau * (L_g * y - 1.0), x
        distances.append(abs(x) + abs(y - 1.0 / L_g))
    return np.array(distances)


@pytest.mark.parametrize("L_g", [1.5, 2.0, 5.0])
def test_step_sizes_as_printed_diverge_and_the_square_converges(L_g):
    """tau sigma = 1 / L_g, as in Corollary 1, fails for L_g > 1; 1 / L_g^2 does not."""
    assert _linear_recursion(L_g, 1.0 / L_g**2)[-1] < 1e-6
    printed = _linear_recursion(L_g, 1.0 / L_g)
    assert printed[200:].max() > 0.1
    assert _linear_recursion(1.0, 1.0)[-1] < 1e-6  # the two rules agree at L_g = 1


def _one_feature(L_g: float) -> LinearLearner:
    """One constant feature; class 1 is rare and its loss bounded, so that rows react strongly."""
    y = (np.arange(100) >= 96).astype(int)
    lag = _lagrangian(y, 2, [log_loss(on=label(1)) <= 2.0])
    return LinearLearner(lag, np.full((100, 1), L_g), fit_intercept=False)


@pytest.mark.parametrize("power", [1, 2])
def test_step_sizes_through_the_solver(power):
    """The same through ABPPSolver, in units of g: constraints are not scaled to one."""
    L_g, tau = 20.0, 0.01
    learner = _one_feature(L_g)
    assert learner.lipschitz[0] == pytest.approx([L_g])
    steps = {"tau": tau, "sigma": 1.0 / (tau * L_g**power), "lipschitz": np.ones(1)}
    solutions = list(learner.path(300, **steps))
    tail = [s.residual for s in solutions[-50:]]
    if power == 2:
        assert max(tail) < 1e-6
    else:
        assert min(tail) > 1e-2


def test_default_steps_meet_the_condition():
    for case in CASES:
        learner = problem(*case).learner
        solver = learner.solver()
        own, together = learner.lagrangian.constants.lipschitz()
        if learner.metric == "weights":
            own, together = learner.lipschitz
        np.testing.assert_allclose(solver.current_lipschitz, own)
        assert solver.tau * solver.sigma * together**2 == pytest.approx(1.0)
        assert solver.mu == learner.mu


def test_lipschitz_without_sigma_assumes_the_worst_coupling():
    lag = problem(2, "linear", 0.0).learner.lagrangian
    solver = ABPPSolver(lag, tau=2.0, lipschitz=np.array([1.0, 2.0, 3.0]))
    assert solver.sigma == pytest.approx(1.0 / (2.0 * 3))


@pytest.mark.parametrize("kind", ["linear", "dictionary"])
def test_warm_start_saves_iterations(kind):
    p = problem(2, kind, 0.3)
    cold = p.learner.solve(tol=1e-4)
    warm = p.learner.solve(tol=1e-4, initial_multipliers=p.multipliers)
    both = p.learner.solve(tol=1e-4, initial_multipliers=p.multipliers, start=p.weights)
    assert cold.converged
    assert warm.converged
    assert len(warm.history) < 0.75 * len(cold.history)
    assert len(both.history) == 1


def test_more_iterations_do_not_move_a_saddle_point():
    p = problem(7, "linear", 0.3)
    for state in p.learner.path(20, start=p.weights, initial_multipliers=p.multipliers):
        assert state.residual < 1e-6


def test_slack_constraints_change_nothing():
    """A constraint that never binds leaves the unconstrained optimum and a zero multiplier."""
    learner = problem(2, "linear", 0.3).learner
    y = (learner.lagrangian.rows.labels > 0).astype(int)
    lag = _lagrangian(y, 2, [log_loss() <= 10.0])
    free = DictionaryLearner(lag, learner.scores, l2=0.3)
    solution = free.solve(500, tol=1e-7)
    assert solution.converged
    assert (solution.multipliers == 0).all()
    x, optimum, _ = _minimise(learner.scores, 0.0, y, 2, [np.full(y.size, 1 / y.size)], 0.3)
    assert free.objective(solution.weights) == pytest.approx(optimum, abs=1e-6)
    np.testing.assert_allclose(solution.weights, x, atol=1e-3)


def test_history_and_callback():
    p = problem(2, "dictionary", 0.3)
    learner, seen = p.learner, []
    states = list(learner.path(6, callback=seen.append))
    history = states[-1].history
    assert seen == history
    assert [r.iteration for r in history] == [r.rounds for r in history] == list(range(6))
    np.testing.assert_array_equal(history[0].multipliers, states[0].multipliers)
    assert history[0].bregman == 0.0
    for before, record, after in zip(states, history[1:], states[1:], strict=False):
        x = before.weights
        statistics = learner.lagrangian.at(learner.margin(x)).statistics()
        assert record.objective == pytest.approx(learner.lagrangian.objective(statistics))
        np.testing.assert_allclose(record.rates - record.bounds, learner.violations(x))
        np.testing.assert_array_equal(record.multipliers, after.multipliers)
    distance = learner.lagrangian.bregman(
        learner.margin(states[0].weights), learner.margin(np.zeros(learner.shape))
    )
    assert history[1].bregman == pytest.approx(distance)
    assert all(a.seconds <= b.seconds for a, b in pairwise(history))


def test_dual_steps_are_those_of_algorithm_1():
    """Multipliers, t_k and gamma recomputed from the history, by the formulas of the paper."""
    learner = problem(2, "linear", 0.3).learner
    solver = learner.solver()
    tau, sigma, mu, L = solver.tau, solver.sigma, solver.mu, solver.current_lipschitz
    states = list(learner.path(30))
    gamma, sigma_before = sigma / tau, sigma
    y, previous, weights = np.zeros(3), states[0].history[0].rates, []
    for record in states[-1].history:
        sigma_k = gamma * tau
        theta = sigma_before / sigma_k
        g, g_before = (r - record.bounds for r in (record.rates, previous))
        y = np.maximum(y + sigma_k / L**2 * ((1 + theta) * g - theta * g_before), 0)
        np.testing.assert_allclose(record.multipliers, y)
        weights.append(sigma_k / sigma)
        previous, sigma_before = record.rates, sigma_k
        gamma, tau = gamma * (1 + mu * tau), tau / np.sqrt(1 + mu * tau)
    average = np.average([s.weights for s in states], axis=0, weights=weights)
    np.testing.assert_allclose(states[-1].average_weights, average)
    average = np.average([s.multipliers for s in states], axis=0, weights=weights)
    np.testing.assert_allclose(states[-1].average_multipliers, average)
    assert weights[-1] > 2  # it accelerates


def test_outlier_clip_ignores_hopeless_rows():
    """Appendix G: one row that no line reaches breaks the bound, unless its loss is clipped."""
    rng = np.random.default_rng(5)
    y = np.repeat([0, 1], 60)
    X = np.where(y, 2.0, -2.0)[:, None] + rng.normal(size=(120, 1))
    X[-1] = -20.0
    rules = [log_loss(on=label(1)) <= 0.2]
    plain, clipped = (
        LinearLearner(_lagrangian(y, 2, rules, outlier_clip=clip), X, metric="scores")
        for clip in (None, 5.0)
    )
    start = np.array([2.0, 0.0])
    before, after = plain.violations(start)[0], clipped.violations(start)[0]
    assert before - after == pytest.approx((40.0 - np.logaddexp(0, 5.0)) / 60)
    assert plain.objective(start) == clipped.objective(start)
    bent, straight = plain.solve(200), clipped.solve(200)
    assert max(bent.residual, straight.residual) < 1e-3
    assert bent.weights[0] < 0.5 < 1.0 < straight.weights[0]
    assert bent.multipliers[0] > 10 * straight.multipliers[0]


def test_zero_one_rates_move_on_exact_values():
    """The dual step sees the exact rate; the subproblem its convex proxy; the rate is met."""
    rng = np.random.default_rng(6)
    y = (rng.random(400) < 0.3).astype(int)
    X = y[:, None] + rng.normal(size=(400, 2))
    learner = LinearLearner(_lagrangian(y, 2, [fnr() <= 0.1]), X, metric="scores")
    states = list(learner.path(150))
    for record, state in zip(states[-1].history[1:], states, strict=False):
        predicted = learner.margin(state.weights) > 0
        assert record.rates[0] == pytest.approx((~predicted[y == 1]).mean())
    rates = np.array([r.rates[0] for r in states[-1].history])
    assert rates[0] == 1.0
    assert abs(rates[-50:].mean() - 0.1) <= 1.5 / y.sum()
    assert states[-1].multipliers[0] > 0
