"""The best mixture of a finite pool, by references that try mixtures and by projections."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_losses import (
    GMean,
    HMean,
    KullbackLeibler,
    MacroF1,
    MinMax,
    QMean,
    Quadratic,
    micro_f1,
)
from scipy.optimize import minimize

from gbm_constrained.reductions.mixtures import (
    LinearFunction,
    Master,
    MixtureProgramme,
    find_best_mixture,
    mix_smoothly,
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
        MixtureProgramme(LinearFunction(np.eye(7)[6]), np.hstack([A, np.zeros((2, 1))]), b),
        np.hstack([points, losses[:, None]]),
    )
    assert value <= objective.value(linear @ points) + 1e-9


@pytest.mark.parametrize("m", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_linear_objective_or_a_ratio_mixes_at_most_one_rule_more_than_rows(seed, m):
    points, rng = draw_pool(seed), np.random.default_rng(seed)
    A, b = rows_at(points, m, rng)
    linear = LinearFunction(rng.normal(size=6))
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
    programme = MixtureProgramme(LinearFunction(np.array([1.0, 0.0])), A, b, low=-1)
    weight = find_best_mixture(programme, points)
    np.testing.assert_allclose(weight, [0.4375, 0.5625], atol=1e-12)
    assert programme.violation(weight @ points) <= 1e-9
    assert min(programme.violation(u) for u in points) == pytest.approx(0.35)


def test_an_infeasible_pool_gives_the_least_violation_and_then_the_least_loss():
    points = np.array([[0.9, 0.4], [0.3, 0.4], [0.1, 0.8]])
    programme = MixtureProgramme(
        LinearFunction(np.array([1.0, 0.0])), np.array([[0.0, 1.0]]), np.zeros(1)
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


def make_programme(objective, d):
    return MixtureProgramme(objective, np.zeros((0, d)), np.zeros(0))


def project_onto_simplex(target):
    """Project onto the probability simplex by sorting (Held, Wolfe and Crowder, 1974)."""
    ordered = np.sort(target)[::-1]
    shift = (np.cumsum(ordered) - 1) / np.arange(1, len(target) + 1)
    return np.maximum(target - shift[np.flatnonzero(ordered > shift)[-1]], 0.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1, 2), min_size=2, max_size=12))
def test_distance_to_the_simplex_is_that_of_the_projection(target):
    target = np.array(target)
    d = len(target)
    weight, gap = mix_smoothly(make_programme(Quadratic(target), d), np.eye(d), None, 1e-6)
    expected = project_onto_simplex(target)
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert (weight >= 0.0).all()
    assert Quadratic(target).value(weight) <= Quadratic(target).value(expected) + max(gap, 1e-12)
    assert gap <= 1e-5


@pytest.mark.parametrize("make", [GMean, HMean, QMean])
@pytest.mark.parametrize("seed", range(3))
def test_no_mixture_is_below_the_value_minus_the_gap(make, seed):
    random = np.random.default_rng(seed)
    points, loss = random.uniform(size=(40, 4)), make(4, 4)
    weight, gap = mix_smoothly(make_programme(loss, 4), points, None, 1e-5)
    bound = loss.value(weight @ points) - gap
    assert gap <= 1e-5
    mixtures = np.concatenate([np.eye(40), random.dirichlet(np.full(40, 0.05), 3000)])
    assert min(map(loss.value, mixtures @ points)) >= bound


@pytest.mark.parametrize("make", [GMean, HMean, QMean])
def test_a_pool_that_has_grown_is_searched_from_the_last_mixture(make):
    points, loss = np.random.default_rng(0).uniform(size=(40, 4)), make(4, 4)
    start, _ = mix_smoothly(make_programme(loss, 4), points[:20], None, 1e-6)
    warm, _ = mix_smoothly(make_programme(loss, 4), points, start, 1e-6)
    cold, _ = mix_smoothly(make_programme(loss, 4), points, None, 1e-6)
    assert warm.shape == cold.shape
    assert loss.value(warm @ points) == pytest.approx(loss.value(cold @ points), abs=2e-6)


def test_a_gap_below_the_tolerance_is_left_to_linear_programmes():
    points, loss = np.random.default_rng(0).uniform(size=(40, 4)), HMean(4, 4)
    programme = make_programme(loss, 4)
    exact = Master(programme).optimise(points, 1e-9)
    assert exact is not None
    assert loss.value(exact.u) - exact.model <= 1e-9
    weight, gap = mix_smoothly(programme, points, None, 1e-6)
    assert loss.value(weight @ points) - gap <= loss.value(exact.u) + 1e-12


@pytest.mark.parametrize("recall", [0.0, 1e-12])
def test_a_pool_without_a_class_has_no_gap_in_the_others(recall):
    """The G-mean has no gradient where a recall is zero."""
    points = np.random.default_rng(0).uniform(size=(10, 3))
    points[:, 0] = recall
    weight, gap = mix_smoothly(make_programme(GMean(3, 3), 3), points, None, 1e-6)
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert GMean(3, 3).value(weight @ points) - gap <= GMean(3, 3).value(points.mean(axis=0))
