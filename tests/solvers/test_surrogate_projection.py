"""The over-constrained projection, against a solver of convex programmes and lemmas of the paper.

Lemmas 1, 5 and 13 and equation (5) are those of Jiang et al. (ICML 2020).
"""

import numpy as np
import pytest
from black_box_problems import Quadratics, draw_rows, on_parameters, on_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize

from gbm_constrained.solvers.black_box import ACCURACY, LinearSpace, excess, project

CASES = [(0, 2, 2), (1, 2, 5), (2, 3, 4), (3, 3, 2)]


def exact(problem, target):
    """The projection by many restarts, each from a start nearer to the target."""
    found = np.zeros(problem.surrogates.centres.shape[1])
    for _ in range(6):
        found = project(problem, found, target, 1e-13)[0]
    return found


def by_epigraph(surrogates, target, start):
    """Minimise the squares of slacks above the surrogates' excess, by sequential programming."""
    K, d = len(target), start.size
    found = minimize(
        lambda x: x[d:] @ x[d:],
        np.concatenate([start, np.ones(K)]),
        jac=lambda x: np.concatenate([np.zeros(d), 2 * x[d:]]),
        bounds=[(None, None)] * d + [(0, None)] * K,
        constraints={
            "type": "ineq",
            "fun": lambda x: x[d:] - surrogates.values(x[:d]) + target,
            "jac": lambda x: np.hstack([-surrogates.jacobian(x[:d]), np.eye(K)]),
        },
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return found.fun, surrogates.values(found.x[:d])


@pytest.mark.parametrize(("seed", "K", "d"), CASES)
def test_projections_are_those_of_the_epigraph_form(seed, K, d):
    problem = on_parameters(quadratics := Quadratics(seed, K, d), d)
    target = 0.3 * quadratics.values(np.zeros(d)) - 0.5
    found = exact(problem, target)
    value, gradient = excess(problem, found, target)
    expected, profile = by_epigraph(quadratics, target, np.zeros(d))
    assert value == pytest.approx(expected, abs=1e-6)
    assert value > 0.1, "the target is out of reach"
    np.testing.assert_allclose(quadratics.values(found), profile, atol=1e-6)
    multipliers = 2 * np.maximum(quadratics.values(found) - target, 0)
    # Steps end where they gain no 1e-11 of Q, whose root bounds the slope.
    np.testing.assert_allclose(multipliers @ quadratics.jacobian(found), 0, atol=1e-5)
    np.testing.assert_allclose(gradient, 0, atol=1e-5)


@pytest.mark.parametrize(("seed", "K", "d"), CASES)
def test_targets_in_reach_are_reached(seed, K, d):
    problem = on_parameters(quadratics := Quadratics(seed, K, d), d)
    target = quadratics.values(np.full(d, 0.5)) + 0.01
    found = exact(problem, target)
    assert excess(problem, found, target)[0] < 1e-12
    assert (quadratics.values(found) <= target + 1e-6).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(2, 2), (2, 5), (3, 3)]))
def test_lemmas_1_and_5(seed, shape):
    """The larger of target and surrogates is the nearest point of the convex epigraph."""
    K, d = shape
    problem = on_parameters(quadratics := Quadratics(seed, K, d), d)
    rng = np.random.default_rng(seed)
    target = rng.uniform(0, 1, size=K) * quadratics.values(rng.normal(size=d))
    profile = quadratics.values(exact(problem, target))
    nearest = np.maximum(target, profile)
    assert (profile <= nearest).all()
    for _ in range(50):
        inside = quadratics.values(rng.normal(size=d)) + rng.exponential(size=K)
        bound = 1e-9 * (1 + np.linalg.norm(inside - nearest) ** 2)
        assert (target - nearest) @ (inside - nearest) <= bound


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 3.0))
def test_lemma_13(seed, step_size):
    """The projection of a gradient step is weighted training with a proximal term."""
    K, d = 3, 4
    problem = on_parameters(quadratics := Quadratics(seed, K, d), d)
    rng = np.random.default_rng(seed)
    at, gradient = quadratics.values(rng.normal(size=d)), rng.normal(size=K)
    target = at - step_size * gradient
    for parameters in rng.normal(size=(10, d)):
        u = quadratics.values(parameters)
        above, below = np.maximum(u - target, 0), np.maximum(target - u, 0)
        distance = (np.sum((u - at) ** 2) + above @ above - below @ below) / (2 * step_size)
        reading = step_size * (gradient @ (u - at) + distance)
        reading += step_size**2 / 2 * gradient @ gradient
        assert excess(problem, parameters, target)[0] == pytest.approx(reading, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("loss", ["log_loss", "sigmoid", "squared"])
def test_the_gradient_of_the_excess_is_its_difference(loss):
    problem = on_rows(0, np.sum, loss)
    parameters = np.array([0.3, -0.5, 0.2, 0.1])
    target = problem.profile(parameters) - [0.2, -0.1]
    found = approx_fprime(parameters, lambda p: excess(problem, p, target)[0], 1e-7)
    np.testing.assert_allclose(excess(problem, parameters, target)[1], found, atol=1e-6)


def test_separable_rows_have_finite_parameters():
    """The log loss of rows that a line separates has no minimum."""
    problem = on_rows(0, np.sum)
    X, rows = draw_rows(0)
    X[:, 0] = 2 * rows.y - 1
    problem = type(problem)(type(problem.space)(X, X), problem.surrogates, problem.metric)
    sizes = [
        np.linalg.norm(project(problem, np.zeros(4), np.full(2, -0.5), weight)[0])
        for weight in (1e-2, 1e-4, 1e-6)
    ]
    assert 1 < min(sizes) <= max(sizes) < 20


@pytest.mark.parametrize("weight", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("seed", [0, 5])
def test_the_accuracy_is_of_the_objective_without_its_proximal_term(seed, weight):
    """The surrogates exceed those of the exact projection by no more than the bound (Lemma 1)."""
    problem = on_parameters(quadratics := Quadratics(seed, 3, 4), 4)
    target = 0.3 * quadratics.values(np.zeros(4)) - 0.5
    found, accuracy = project(problem, np.zeros(4), target, weight)
    best, start = exact(problem, target), excess(problem, np.zeros(4), target)[0]
    value, least = excess(problem, found, target)[0], excess(problem, best, target)[0]
    assert value - least <= accuracy <= ACCURACY * (start - value) * (1 + 1e-9)
    exceeds = quadratics.values(found) - np.maximum(target, quadratics.values(best))
    assert exceeds.max() <= np.sqrt(accuracy)


def test_columns_that_move_together_cost_no_accuracy():
    """Steps are in units of scores, whatever columns make them."""
    problem = on_rows(0, np.sum)
    X, _ = draw_rows(0)
    X = np.hstack([X, X + 1e-3 * np.random.default_rng(0).normal(size=X.shape), 1e4 * X])
    target = problem.profile(np.zeros(4)) - 0.2
    found = [
        project(type(problem)(LinearSpace(given, given), problem.surrogates, problem.metric),
                np.zeros(given.shape[1]), target, 1e-3)
        for given in (X[:, :4], X[:, :4] * [1, 1e3, 1e-3, 1], X)
    ]  # fmt: skip
    values = [
        np.square(np.maximum(problem.surrogates.values(given @ one[0]) - target, 0)).sum()
        for given, one in zip((X[:, :4], X[:, :4] * [1, 1e3, 1e-3, 1], X), found, strict=True)
    ]
    assert max(one[1] for one in found) < 0.01
    assert values[1] == pytest.approx(values[0], abs=found[0][1])
    assert values[2] <= values[0] + found[2][1]
