"""The best mixture of a finite pool, by references that try mixtures."""

from __future__ import annotations

import numpy as np
import pytest
from reference_losses import GMean, HMean, KullbackLeibler, MacroF1, MinMax, QMean, micro_f1
from scipy.optimize import minimize

from gbm_constrained.reductions.mixtures import (
    LinearObjective,
    MixtureProgramme,
    find_best_mixture,
    reduce_support,
)

N = 30


def draw_pool(seed, d=6):
    """Points of which the first three coordinates are recalls, and the last three shares."""
    rng = np.random.default_rng(seed)
    return np.hstack([rng.uniform(0.05, 0.95, (N, 3)), rng.dirichlet(np.ones(3), N)])[:, :d]


def rows_at(points, m, rng):
    """Rows that a random mixture of the pool meets with little room."""
    A = rng.normal(size=(m, points.shape[1]))
    return A, A @ (rng.dirichlet(np.ones(N)) @ points) + 0.01


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("objective", [QMean(3, 6), HMean(3, 6), GMean(3, 6)])
def test_the_true_objective_is_minimised(objective, seed):
    """SLSQP over all probabilities finds nothing better; the linearised objective is worse."""
    points, rng = draw_pool(seed), np.random.default_rng(seed)
    A, b = rows_at(points, 2, rng)
    programme = MixtureProgramme(objective, A, b)
    weight = find_best_mixture(programme, points)
    value = objective.value(weight @ points)
    assert programme.violation(weight @ points) <= 1e-9
    assert weight.sum() == pytest.approx(1)
    rough = minimize(
        lambda w: objective.value(w @ points),
        np.full(N, 1 / N),
        jac=lambda w: points @ objective.gradient(w @ points),
        bounds=[(0, 1)] * N,
        constraints=[
            {"type": "eq", "fun": lambda w: w.sum() - 1},
            {"type": "ineq", "fun": lambda w: b - A @ (w @ points)},
        ],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert value == pytest.approx(rough.fun, abs=1e-6)
    losses = np.array([objective.value(u) for u in points])
    linear = find_best_mixture(
        MixtureProgramme(LinearObjective(np.eye(7)[6]), np.hstack([A, np.zeros((2, 1))]), b),
        np.hstack([points, losses[:, None]]),
    )
    assert value <= objective.value(linear @ points) + 1e-9


@pytest.mark.parametrize("m", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_linear_objective_or_a_ratio_mixes_at_most_one_rule_more_than_rows(seed, m):
    points, rng = draw_pool(seed), np.random.default_rng(seed)
    A, b = rows_at(points, m, rng)
    linear = LinearObjective(rng.normal(size=6))
    for objective in (linear, micro_f1(np.array([0.5, 0.3, 0.2]))):
        weight = find_best_mixture(MixtureProgramme(objective, A, b), points)
        assert 1 <= (weight > 0).sum() <= m + 1
        assert MixtureProgramme(objective, A, b).violation(weight @ points) <= 1e-9


@pytest.mark.parametrize("objective", [QMean(3, 6), MinMax(3, 6), MacroF1([0.5, 0.3, 0.2])])
def test_at_most_d_plus_one_rules(objective):
    for seed in range(3):
        points = draw_pool(seed)
        weight = find_best_mixture(
            MixtureProgramme(objective, np.zeros((0, 6)), np.zeros(0)), points
        )
        assert (weight > 0).sum() <= 7


def test_fewer_rules_with_the_same_functionals():
    points, rng = draw_pool(0), np.random.default_rng(0)
    weight = rng.dirichlet(np.ones(N))
    few = reduce_support(weight, points)
    assert (few > 0).sum() <= 7 < (weight > 0).sum()
    np.testing.assert_allclose(few @ points, weight @ points, atol=1e-10)
    assert few.sum() == pytest.approx(1)


def test_one_row_for_a_maximum_would_be_infeasible():
    """Two rules that differ by .4 in opposite directions: only their mixture is fair."""
    points = np.array([[0.9, 0.4], [0.8, -0.4]])  # an objective, and a signed difference
    A, b = np.array([[0.0, 1.0], [0.0, -1.0]]), np.full(2, 0.05)
    programme = MixtureProgramme(LinearObjective(np.array([1.0, 0.0])), A, b, low=-1)
    weight = find_best_mixture(programme, points)
    np.testing.assert_allclose(weight, [0.4375, 0.5625], atol=1e-12)
    assert programme.violation(weight @ points) <= 1e-9
    assert min(programme.violation(u) for u in points) == pytest.approx(0.35)


def test_an_infeasible_pool_gives_the_least_violation_and_then_the_least_loss():
    points = np.array([[0.9, 0.4], [0.3, 0.4], [0.1, 0.8]])
    programme = MixtureProgramme(
        LinearObjective(np.array([1.0, 0.0])), np.array([[0.0, 1.0]]), np.zeros(1)
    )
    np.testing.assert_allclose(find_best_mixture(programme, points), [0, 1, 0], atol=1e-7)


@pytest.mark.parametrize("objective", [QMean(3, 6), MacroF1([0.5, 0.3, 0.2])])
def test_a_convex_constraint_holds_exactly(objective):
    points = draw_pool(3)
    phi = KullbackLeibler([0.5, 0.3, 0.2], 0.01, 3)
    programme = MixtureProgramme(objective, np.zeros((0, 6)), np.zeros(0), convex=[phi])
    free = find_best_mixture(MixtureProgramme(objective, np.zeros((0, 6)), np.zeros(0)), points)
    weight = find_best_mixture(programme, points)
    assert phi.value(free @ points) > 1e-3
    assert phi.value(weight @ points) <= 1e-9
    assert objective.value(weight @ points) > objective.value(free @ points)
