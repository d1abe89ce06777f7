"""Estimates of a metric's gradient in its surrogates, against functions that are known."""

from typing import get_args

import numpy as np
import pytest
from black_box_problems import Coordinates, by_label, draw_rows, on_parameters, on_rows
from scipy.stats import norm

from gbm_constrained.metrics import surrogate
from gbm_constrained.metrics.surrogates import SurrogateLosses
from gbm_constrained.solvers.black_box import (
    AdaptiveSurrogates,
    BlackBoxProblem,
    EstimatorName,
    estimate_gradient,
    solve_least_norm,
)

WEIGHTS = np.array([0.7, -0.3])
PARAMETERS = np.array([0.3, -0.5, 0.2, 0.1])


def random(seed=0):
    return np.random.RandomState(seed)


def count_calls(estimator, m):
    options = AdaptiveSurrogates(estimator=estimator, n_perturbations=m)
    return options.calls_per_iteration - 1


@pytest.mark.parametrize("sigma", [0.1, 3.0])
@pytest.mark.parametrize("count", [2, 10])
@pytest.mark.parametrize("loss", ["log_loss", "hinge", "sigmoid", "squared"])
def test_interpolation_of_a_linear_metric_is_exact(sigma, count, loss):
    problem = on_rows(0, lambda u: WEIGHTS @ u + 0.4, loss)
    found = estimate_gradient("interpolation", problem, PARAMETERS, sigma, 0.0, count, random())
    np.testing.assert_allclose(found.gradient, WEIGHTS, rtol=0, atol=1e-8)
    assert problem.metric.calls == count_calls("interpolation", count)
    assert not found.is_flat
    assert not found.moves_together.any()


def test_the_error_of_interpolation_of_a_quadratic_metric_falls_with_sigma():
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    problem = on_rows(0, lambda u: u @ matrix @ u / 2 + WEIGHTS @ u)
    exact = matrix @ problem.profile(PARAMETERS) + WEIGHTS
    errors = [
        np.mean(
            [
                np.linalg.norm(
                    estimate_gradient(
                        "interpolation", problem, PARAMETERS, sigma, 0.0, 100, random(seed)
                    ).gradient
                    - exact
                )
                for seed in range(20)
            ]
        )
        for sigma in (0.4, 0.2, 0.1, 0.05)
    ]
    assert (np.divide(errors[:-1], errors[1:]) >= 1.7).all(), errors


TOY_ERRORS = {1: 7e-32, 2: 1.4e-5, 4: 3.0e-5, 8: 3.4e-5, 16: 5.4e-5, 32: 5.7e-5}


@pytest.mark.parametrize(("K", "expected"), TOY_ERRORS.items())
def test_errors_of_a_geometric_mean_are_known(K, expected):
    """The toy problem of appendix D.3; the figures were found by another implementation."""
    rng, squares = np.random.default_rng(0), []
    for seed in range(200):
        z = 0.1 + 0.9 * rng.random(K)
        problem = on_parameters(Coordinates(K), K, lambda z: np.prod(z) ** (1 / len(z)))
        found = estimate_gradient("interpolation", problem, z, 0.01, 0.0, 100, random(seed))[0]
        squares.append(np.sum((found - np.prod(z) ** (1 / K) / (K * z)) ** 2))
    if K == 1:
        assert np.mean(squares) < 1e-24
    else:
        assert expected / 2 < np.mean(squares) < 2 * expected


def test_surrogates_that_move_together_share_their_weight():
    _, rows = draw_rows(0)
    one, other = surrogate("log_loss"), surrogate("squared")
    twice = SurrogateLosses([one, other, one], rows)
    problem = on_rows(0, lambda u: 0.0)
    scores_loss = problem.metric
    scores_loss.function = lambda scores: twice.values(scores)[:2] @ [0.6, 0.2]
    problem = BlackBoxProblem(problem.space, twice, scores_loss)
    found = estimate_gradient("interpolation", problem, PARAMETERS, 0.3, 0.0, 20, random())
    np.testing.assert_allclose(found.gradient, [0.3, 0.2, 0.3], atol=1e-8)
    np.testing.assert_array_equal(found.moves_together, [True, False, True])


def test_solutions_of_least_norm_are_those_of_numpy():
    rng = np.random.default_rng(0)
    for rank in (1, 2, 3):
        H = rng.normal(size=(9, rank)) @ rng.normal(size=(rank, 3))
        losses = rng.normal(size=9)
        found, moves_together = solve_least_norm(H, losses)
        np.testing.assert_allclose(found, np.linalg.lstsq(H, losses, rcond=1e-10)[0], atol=1e-10)
        assert moves_together.any() == (rank < 3)


@pytest.mark.parametrize("estimator", ["finite_differences", "two_step"])
@pytest.mark.parametrize("share", [0.05, 2.0])
def test_shifted_scores_of_a_linear_metric_give_its_gradient(estimator, share):
    """Wide draws ask for surrogates below zero, and those that are drawn anew bias no estimate."""
    problem = on_rows(1, lambda u: np.array([1.0, 2.0]) @ u + 0.4)
    sigma = share * problem.profile(PARAMETERS).max()
    found = estimate_gradient(estimator, problem, PARAMETERS, sigma, sigma, 10, random())
    np.testing.assert_allclose(found.gradient, [1.0, 2.0], rtol=1e-8)
    assert (found.redrawn > 0) == (share > 1)
    assert problem.metric.calls == count_calls(estimator, 10)


def test_two_steps_at_a_kink_are_right_in_the_mean():
    """Of max(u1, u2), the smoothed gradient is the probability that each is the larger."""
    problem = on_rows(1, np.max)
    scores = problem.space.validation_scores(PARAMETERS)
    start, is_out = problem.surrogates.move(scores, np.array([0.6, 0.5]))
    assert not is_out.any()
    at_start = type(problem.space)(np.zeros((40, 1)), np.zeros((40, 1)), start, start)
    problem = BlackBoxProblem(at_start, problem.surrogates, problem.metric, problem.surrogates)
    given = "two_step", problem, np.zeros(1), 0.1, 0.05, 20, random()
    draws = np.array([estimate_gradient(*given).gradient for _ in range(150)])
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    p = norm.cdf(0.1 / np.sqrt(2 * (0.1**2 + 0.05**2)))
    assert p == pytest.approx(0.7365, abs=1e-4)
    assert (np.abs(draws.mean(axis=0) - [p, 1 - p]) < 4 * error).all()
    assert (error < 0.04).all()
    assert problem.metric.calls == 150 * count_calls("two_step", 20)


def test_a_sigma_without_targets_in_range_is_refused():
    _X, rows = draw_rows(0)
    bounded = by_label(rows, "sigmoid")
    problem = on_rows(0, np.sum)
    problem = BlackBoxProblem(problem.space, bounded, problem.metric, bounded)
    with pytest.raises(ValueError, match=r"sigma=1e\+09 asks for values .*give a smaller sigma"):
        estimate_gradient("finite_differences", problem, PARAMETERS, 1e9, 0.0, 5, random())


@pytest.mark.parametrize("name", ["finite_differences", "two_step"])
def test_shifts_of_scores_need_their_own_surrogates(name):
    problem = on_rows(0, np.sum)
    without = BlackBoxProblem(problem.space, problem.surrogates, problem.metric)
    with pytest.raises(ValueError, match="use estimator='interpolation'"):
        estimate_gradient(name, without, PARAMETERS, 0.1, 0.1, 5, random())
    shared = SurrogateLosses([surrogate(), surrogate("hinge")], draw_rows(0)[1])
    overlapping = BlackBoxProblem(problem.space, shared, problem.metric, shared)
    with pytest.raises(ValueError, match="share rows"):
        estimate_gradient(name, overlapping, PARAMETERS, 0.1, 0.1, 5, random())


@pytest.mark.parametrize("name", get_args(EstimatorName))
def test_a_constant_metric_is_flat(name):
    problem = on_rows(0, lambda u: 1.0)
    found = estimate_gradient(name, problem, PARAMETERS, 0.1, 0.1, 5, random())
    assert found.is_flat
    assert not found.gradient.any()
