"""Constraints that are met by tangents, against a convex solver and their optimality conditions.

Decisions are steps of the scores, and no solution of theirs is stationary. So the solver sees, in
the place of fractions of decisions, the proxies that its gradients are of: one smooth problem.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.linear_model import LinearLearner
from gbm_constrained.metrics import g_mean, h_mean, metric
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")

LOG2 = np.log(2.0)
N = 300
EXACTLY = dict.fromkeys(["tol_gap_abs", "tol_gap_rel", "tol_feas"], 1e-12)


class ProxyLagrangian(Lagrangian):
    """A Lagrangian whose cells have the share of rows that a proxy counts for class 1."""

    def __init__(self, *given, proxy):
        super().__init__(*given, proxy=proxy.__name__)
        self.is_tracked, self.count = True, proxy

    def track_decisions(self, margin):
        shares = self.count(margin, self.rows.labels)
        return self.cells.sum_by_cell(shares, slice(None))[None]


def logistic(z, y):
    """The right class has one less the cross-entropy in bits, which is concave in the score."""
    return np.where(y == 1, 1.0 - np.logaddexp(0.0, -z) / LOG2, np.logaddexp(0.0, z) / LOG2)


def sigmoid(z, y):
    return (expit(z) + expit(z / 2.0)) / 2.0


def draw():
    rng = np.random.default_rng(0)
    y, group = (rng.random(N) < 0.35).astype(int), rng.integers(0, 2, N)
    X = rng.normal(size=(N, 3)) + 0.8 * y[:, None]
    X[:, 2] += group
    return X, y, group


def solve(rule, proxy, **options):
    """Solve for a rule; returns the learner, the solution, and the excess at given weights."""
    X, y, group = draw()
    if rule.expression.needs_classes:
        expression = rule.expression.with_classes(np.arange(2))
        rule = gc.Constraint(expression, rule.sense, rule.bound)
    rows = Rows(y, np.arange(2), columns={"g": group})
    cells, compiled = compile_constraints([rule], rows)
    lagrangian = ProxyLagrangian(y, cells, compiled, proxy=proxy)
    learner = LinearLearner(lagrangian, X, l2=0.01, metric="scores")
    solution = learner.solve(1000, tol=1e-7, **options)

    def functionals(weights):
        return compiled.functionals(lagrangian.at(learner.margin(weights)).statistics())

    def excess(weights):
        return rule.sign * (rule.value(functionals(weights)) - rule.bound)

    derivatives = compiled.curves.derivatives(functionals(solution.weights))
    price = compiled.curves.prices(solution.multipliers, derivatives).max()
    return learner, solution, price, excess


@pytest.mark.parametrize("mean", [g_mean, h_mean])
def test_means_of_concave_recalls_are_bounded_as_by_a_convex_solver(mean):
    cp = pytest.importorskip("cvxpy")
    learner, solution, price, _ = solve(mean() >= 0.2, logistic)
    assert solution.converged
    X, y, _ = draw()
    w, intercept = cp.Variable(3), cp.Variable()
    loss = cp.logistic(cp.multiply(1 - 2 * y, X @ w + intercept))
    recalls = cp.hstack([1 - cp.sum(loss[y == k]) / (y == k).sum() / LOG2 for k in (0, 1)])
    of_recalls = cp.geo_mean if mean is g_mean else cp.harmonic_mean
    bound = of_recalls(recalls) >= 0.2
    objective = cp.sum(loss) / N + 0.005 * cp.sum_squares(w)
    cp.Problem(cp.Minimize(objective), [bound]).solve(solver="CLARABEL", **EXACTLY)
    coefficients, (constant,) = learner.coefficients(solution.weights)
    np.testing.assert_allclose(coefficients[0], w.value, atol=1e-5)
    assert constant == pytest.approx(float(intercept.value), abs=1e-5)
    assert price == pytest.approx(float(bound.dual_value), rel=1e-4)
    assert price > 0.1


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        (gc.gap(gc.f1(), by="g") <= 0.03, {}),
        pytest.param(gc.gap(gc.precision(), by="g") <= 0.05, {"tau": 0.3}, marks=pytest.mark.slow),
        (gc.gap_norm([gc.fpr(), gc.tpr()], by="g", p=2) <= 0.15, {}),
        (g_mean() >= 0.62, {}),
        (metric(lambda C: C[1, 1] / np.sqrt(C[:, 1].sum() * C[1].sum()), kind="other") >= 0.5, {}),
    ],
    ids=str,
)
def test_solutions_of_smooth_rates_are_stationary(rule, options):
    """The gradient of the objective plus that of the rule, times its price, vanishes."""
    learner, solution, price, excess = solve(rule, sigmoid, **options)
    assert excess(solution.weights) == pytest.approx(0.0, abs=1e-5)
    slope, of_rule = (
        approx_fprime(solution.weights, function, 1e-7) for function in (learner.objective, excess)
    )
    np.testing.assert_allclose(slope + price * of_rule, 0.0, atol=1e-5)
    assert price > 0.05
