"""The exact optimum of linear scores, against a conic solver."""

from __future__ import annotations

import numpy as np
import pytest
from pair_problems import METRICS, N_SETS, PairProblem, rules_of

from gbm_constrained.solvers.level_set import PairRule, Quadratics, SquareSurrogate, find_optimum


def solve_with_cvxpy(surrogate, X, ratios):
    """Solve the quadratically constrained problem, each function as a sum of squares of rows."""
    cp = pytest.importorskip("cvxpy")
    w = cp.Variable(X.shape[1])
    n = X.shape[0]
    functions = [0.0] * surrogate.n_functions
    pairs = (surrogate.owner, surrogate.upper, surrogate.lower, surrogate.curvature)
    mean = ratios.T @ X / n
    for o, upper, lower, c in zip(*pairs, strict=True):
        spread = [
            cp.sum_squares(cp.multiply(np.sqrt(ratios[:, s] / n), (X - mean[s]) @ w))
            for s in (upper, lower)
        ]
        shift = (mean[upper] - mean[lower]) @ w - surrogate.c2
        functions[o] += c * (spread[0] + spread[1] + cp.square(shift))
    rules = [f <= b for f, b in zip(functions[1:], surrogate.limits[1:], strict=True)]
    return cp.Problem(cp.Minimize(functions[0]), rules).solve(solver="CLARABEL")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bound", [1.0, 0.3, 0.1, 0.03])
def test_optimum_is_that_of_a_conic_solver(metric, bound):
    problem = PairProblem(7, n=500, d=6)
    surrogate = SquareSurrogate.of(rules_of(metric, bound), N_SETS)
    found = find_optimum(surrogate, problem.X, problem.ratios)
    expected = solve_with_cvxpy(surrogate, problem.X, problem.ratios)
    assert found.values[0] == pytest.approx(expected, rel=1e-5)
    assert (found.values - surrogate.limits)[1:].max() <= 1e-7
    slack = (surrogate.limits - found.values)[1:]
    np.testing.assert_allclose(found.multipliers * slack, 0.0, atol=1e-6)
    scores = surrogate.moments(problem.X @ found.weights, problem.ratios)
    np.testing.assert_allclose(surrogate.values(scores), found.values, rtol=1e-10)


def test_several_metrics_at_once():
    problem = PairProblem(8, n=500, d=6)
    rules = [rule for metric in METRICS for rule in rules_of(metric, 0.15)]
    surrogate = SquareSurrogate.of(rules, N_SETS)
    found = find_optimum(surrogate, problem.X, problem.ratios)
    expected = solve_with_cvxpy(surrogate, problem.X, problem.ratios)
    assert found.values[0] == pytest.approx(expected, rel=1e-5)


def test_a_tighter_bound_costs_and_opposite_rules_exchange():
    problem = PairProblem(9, n=300)
    objectives = []
    for bound in (1.0, 0.3, 0.1, 0.03, 0.01, 0.003):
        first, second = rules_of("intra-group", bound)
        one, other = (
            find_optimum(SquareSurrogate.of(rules, N_SETS), problem.X, problem.ratios)
            for rules in ([first, second], [second, first])
        )
        np.testing.assert_allclose(one.multipliers, other.multipliers[::-1], rtol=1e-6, atol=1e-9)
        objectives.append(one.values[0])
    assert (np.diff(objectives) >= -1e-12).all()
    assert objectives[-1] > objectives[0] + 0.05


def test_without_rules_the_optimum_has_no_slope():
    problem = PairProblem(10, n=300)
    surrogate = SquareSurrogate.of([], N_SETS)
    found = find_optimum(surrogate, problem.X, problem.ratios)
    quadratics = Quadratics.of(surrogate, problem.X, problem.ratios)
    np.testing.assert_allclose(quadratics.Q[0] @ found.weights, quadratics.q[0], atol=1e-12)
    assert found.multipliers.size == 0


def test_columns_that_others_determine_change_nothing():
    problem = PairProblem(11, n=300)
    surrogate = SquareSurrogate.of(rules_of("inter-group", 0.1), N_SETS)
    alone = find_optimum(surrogate, problem.X, problem.ratios)
    more = np.hstack([problem.X, problem.X[:, :2] @ [[1.0], [2.0]], np.ones((300, 1))])
    found = find_optimum(surrogate, more, problem.ratios)
    np.testing.assert_allclose(found.values, alone.values, rtol=1e-9)
    np.testing.assert_allclose(
        (more - more.mean(axis=0)) @ found.weights,
        (problem.X - problem.X.mean(axis=0)) @ alone.weights,
        atol=1e-6,
    )


def test_rules_that_no_score_meets_are_refused():
    problem = PairProblem(12, n=200)
    floor = PairRule(((-1.0, 0, 1),), -0.999)
    surrogate = SquareSurrogate.of([floor], N_SETS)
    with pytest.raises(ValueError, match="no linear score meets the surrogate rules"):
        find_optimum(surrogate, problem.X, problem.ratios)
