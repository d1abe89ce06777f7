"""Black-box metrics: gradients in surrogates, projections, descent and shifts of scores.

Lemmas 1, 5 and 13 and equation (5) are those of Jiang et al. (ICML 2020).
"""

import itertools
import warnings
from typing import get_args

import numpy as np
import pytest
from black_box_problems import (
    Coordinates,
    Loss,
    Quadratics,
    by_label,
    draw_rows,
    on_parameters,
    on_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize
from scipy.stats import norm

from gbm_constrained.constraints.selectors import label
from gbm_constrained.metrics import surrogate
from gbm_constrained.metrics.surrogates import SurrogateLosses
from gbm_constrained.solvers.black_box import (
    ACCURACY,
    AdaptiveSurrogates,
    BlackBoxProblem,
    EstimatorName,
    LinearSpace,
    estimate_gradient,
    excess,
    find_group_shifts,
    find_shift,
    minimize_black_box,
    project,
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


TOY_ERRORS = {1: 7e-32, 4: 3.0e-5, 16: 5.4e-5}


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
    at_start = type(problem.space)(np.zeros((40, 1)), np.zeros((40, 1)), start)
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
def test_shifts_of_scores_need_surrogates_of_different_rows(name):
    problem = on_rows(0, np.sum)
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


TRUE_WEIGHTS = np.array([0.2, 0.5, 0.3])


def descend(problem, start, candidates=(), seed=0, **options):
    options = {"n_iterations": 20, "n_perturbations": 10, **options}
    return minimize_black_box(
        problem, start, candidates, AdaptiveSurrogates(**options), np.random.RandomState(seed)
    )


def quadratic_problem(psi, **options):
    quadratics = Quadratics(0, 3, 4)
    return on_parameters(quadratics, 4, lambda p: psi(quadratics.values(p)), **options)


def best_weighted(quadratics, weights):
    """The minimum of a weighted sum of quadratic functions, by its linear equations."""
    matrix = np.einsum("k,kij->ij", weights, quadratics.matrices)
    right = np.einsum("k,kij,kj->i", weights, quadratics.matrices, quadratics.centres)
    return np.linalg.solve(matrix, right)


def test_a_linear_metric_ends_at_its_minimum():
    problem = quadratic_problem(lambda u: TRUE_WEIGHTS @ u)
    found = descend(problem, np.ones(4), n_iterations=40, step_size=2.0)
    best = best_weighted(problem.surrogates, TRUE_WEIGHTS)
    np.testing.assert_allclose(found.parameters, best, atol=0.02)
    assert found.loss == pytest.approx(TRUE_WEIGHTS @ problem.profile(best), abs=1e-4)
    assert found.ended == "iterations"


def test_a_nonlinear_metric_ends_at_a_stationary_point():
    """At the end, the surrogates weighed by the metric's gradient have no slope."""
    problem = quadratic_problem(lambda u: np.sum(np.sqrt(u + 1.0)))
    found = descend(problem, np.ones(4), n_iterations=40, step_size=2.0, sigma=0.02)
    slopes = 0.5 / np.sqrt(problem.profile(found.parameters) + 1.0)
    start = 0.5 / np.sqrt(problem.profile(np.ones(4)) + 1.0)
    last, first = (
        np.linalg.norm(s @ problem.surrogates.jacobian(p))
        for s, p in ((slopes, found.parameters), (start, np.ones(4)))
    )
    assert last < 0.02 * first


@pytest.mark.parametrize("estimator", ["finite_differences", "two_step"])
def test_shifted_scores_lead_to_the_minimum_as_well(estimator):
    problem = on_rows(0, lambda u: 0.5 * u[0] + 0.3 * u[1])
    found = descend(
        problem, np.ones(4), estimator=estimator, sigma=0.05, n_perturbations=30, n_iterations=20
    )
    exact = descend(problem, np.ones(4), n_iterations=20, step_size=1.0)
    assert found.loss == pytest.approx(exact.loss, abs=0.01)
    assert found.iterates[0].loss > exact.loss + 0.2


def test_iterates_hold_what_made_them():
    problem = quadratic_problem(lambda u: TRUE_WEIGHTS @ u)
    found = descend(problem, np.ones(4), n_iterations=3)
    assert len(found.iterates) == 4
    assert problem.metric.budget.place == "iteration 3"
    for before, after in zip(found.iterates[:-1], found.iterates[1:], strict=True):
        np.testing.assert_allclose(after.gradient, TRUE_WEIGHTS, atol=1e-8)
        np.testing.assert_allclose(after.target, before.profile - 0.5 * after.gradient)
        np.testing.assert_array_equal(after.profile, problem.profile(after.parameters))
        assert after.loss == problem.loss(after.parameters)
    assert found.loss == min(i.loss for i in found.iterates)


def test_the_same_seed_gives_the_same_parameters():
    first, again, other = (
        descend(quadratic_problem(lambda u: np.max(u)), np.ones(4), seed=seed).parameters
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_candidates_win_where_they_are_better():
    problem = quadratic_problem(lambda u: TRUE_WEIGHTS @ u)
    best = best_weighted(problem.surrogates, TRUE_WEIGHTS)
    found = descend(problem, np.ones(4), [np.zeros(4), best], n_iterations=2)
    np.testing.assert_array_equal(found.parameters, best)
    assert found.loss == problem.loss(best)


@pytest.mark.parametrize(
    ("estimator", "each"), [("interpolation", 20), ("finite_differences", 11)]
)
def test_calls_end_the_search(estimator, each):
    problem = on_rows(0, lambda u: 0.5 * u[0] + 0.3 * u[1])
    problem.metric.budget.limit = 1 + 3 * (each + 1) + 5
    found = descend(problem, np.ones(4), estimator=estimator, sigma=0.05)
    assert found.ended == "calls"
    assert len(found.iterates) == 4
    assert problem.metric.calls == 1 + 3 * (each + 1)


def test_plateaus_end_the_search_with_a_warning():
    seen = []
    problem = quadratic_problem(lambda u: seen.append(u) or 0.75)
    with pytest.warns(UserWarning, match=r"sigma=0.3 doubled up to 3 times.*\[GC306\]"):
        found = descend(problem, np.ones(4), [np.zeros(4)])
    assert found.ended == "plateau"
    assert found.loss == 0.75
    assert len(found.iterates) == 1
    assert problem.metric.calls == 2 + 4 * 20
    spreads = [np.std(seen[2 + 20 * i : 22 + 20 * i]) for i in range(4)]
    assert (np.diff(spreads) > 0).all(), "each estimate perturbs more"


def test_surrogates_that_move_together_are_named_once():
    problem = on_rows(0, np.sum)
    rows = draw_rows(0)[1]
    names = [surrogate(on=label(1)), surrogate("hinge"), surrogate(on=label(1))]
    problem = BlackBoxProblem(problem.space, SurrogateLosses(names, rows), problem.metric)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        descend(problem, np.ones(4), n_iterations=3)
    (warning,) = caught
    assert str(warning.message).count("log_loss") == 2
    assert "hinge" not in str(warning.message)
    assert "[GC305]" in str(warning.message)


def test_estimates_are_clipped_and_truncated_on_demand():
    signed = np.array([0.5, -0.3, 0.2])
    for options, expected in (
        ({}, signed),
        ({"is_clipped": True}, [0.5, 0.0, 0.2]),
        ({"lipschitz": 1.0}, signed),
        ({"lipschitz": 0.1}, np.zeros(3)),
    ):
        problem = quadratic_problem(lambda u: signed @ u)
        found = descend(problem, np.ones(4), n_iterations=1, **options)
        np.testing.assert_allclose(found.iterates[1].gradient, expected, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_iterations": 0}, "n_iterations must be an integer >= 1, got 0"),
        ({"n_perturbations": 2}, "n_perturbations=2 is fewer than the 3 surrogates"),
        (
            {"n_perturbations": 2, "estimator": "two_step"},
            "n_perturbations=2 is fewer than the 3 surrogates",
        ),
        ({"estimator": "adam"}, "estimator must be one of"),
        ({"sigma": 0.0}, "sigma must be a number above 0, got 0.0"),
        ({"second_sigma": -1.0}, "second_sigma must be a number above 0"),
        ({"step_size": np.inf}, "step_size must be a number above 0"),
        ({"step_size": None}, "step_size must be a number above 0, got None"),
        ({"proximal_weight": "small"}, "proximal_weight must be a number above 0"),
        ({"lipschitz": 0}, "lipschitz must be a number above 0"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        descend(quadratic_problem(np.sum), np.ones(4), **options)


def test_too_few_calls_for_one_estimate_are_refused():
    problem = quadratic_problem(np.sum, max_calls=22)
    with pytest.raises(ValueError, match=r"leaves 22 calls .* take 23: raise max_calls"):
        descend(problem, np.ones(4), [np.zeros(4)])
    assert problem.metric.calls == 0


def test_perturbations_are_in_units_of_the_scores():
    """With sigma = 1, a perturbation changes the scores by their own standard deviation."""
    X, _rows = draw_rows(0)
    space, at = LinearSpace(X, X), np.array([0.3, -0.5, 0.2, 0.1])
    steps = space.perturbation_scale(at) * np.random.default_rng(0).normal(size=(4000, 4))
    changes = steps @ X.T
    assert np.sqrt(np.mean(changes**2)) == pytest.approx(np.std(X @ at), rel=0.03)
    assert space.perturbation_scale(np.zeros(4)) > 0


def draw(seed, n=60):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    return y, np.round(rng.normal(size=n) + y, 1), np.arange(n) % 2


def g_mean_loss(y, decided):
    return 1.0 - np.sqrt(decided[y].mean() * (~decided[~y]).mean())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_one_threshold_is_the_best_of_all(seed):
    y, scores, _ = draw(seed)
    loss = Loss(lambda s: g_mean_loss(y, s > 0))
    shift, value = find_shift(loss, scores, 100)
    every = [g_mean_loss(y, scores > t) for t in [*np.unique(scores), -np.inf]]
    assert loss.calls == len(every)
    assert value == min(every)
    assert g_mean_loss(y, scores + shift > 0) == value


def test_few_calls_find_the_best_of_a_loss_with_one_valley():
    scores = np.linspace(-3.0, 5.0, 2000)
    loss = Loss(lambda s: abs((s > 0).mean() - 0.3))
    shift, value = find_shift(loss, scores, 90)
    assert loss.calls <= 90
    assert value <= 1.5 / 2000, "an even spread of 45 thresholds would be off by 1 / 90"
    assert (scores + shift > 0).mean() == pytest.approx(0.3, abs=1.5 / 2000)


def test_equal_losses_take_the_smallest_shift():
    scores = np.array([-2.0, -1.0, 3.0])
    assert find_shift(lambda s: 0.0, scores, 10) == (-1.0, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_thresholds_of_groups_are_best_group_by_group(seed):
    y, scores, groups = draw(seed, n=24)

    def by_group(s):
        return max(g_mean_loss(y[groups == g], s[groups == g] > 0) for g in (0, 1))

    y[:4] = [True, True, False, False]
    loss = Loss(by_group)
    shifts, value = find_group_shifts(loss, scores, groups, 2, 200)
    assert loss.calls <= 200
    assert by_group(scores + shifts[groups]) == value
    levels = [[*np.unique(scores[groups == g]), -np.inf] for g in (0, 1)]
    best = min(
        max(g_mean_loss(y[groups == g], scores[groups == g] > t[g]) for g in (0, 1))
        for t in itertools.product(*levels)
    )
    assert value == best


def test_rows_of_no_group_and_groups_without_rows_are_not_shifted():
    y, scores, groups = draw(3, n=24)
    y[:4] = [True, True, False, False]
    known = groups == 0

    def of_known(s):
        return g_mean_loss(y[known], s[known] > 0)

    asked = np.where(known, 0, 7)  # Group 1 has no row, and 7 is none of the three groups.
    shifts, value = find_group_shifts(Loss(of_known), scores, asked, 3, 300)
    assert shifts.shape == (3,)
    np.testing.assert_array_equal(shifts[1:], 0.0)
    expected = min(of_known(scores - t) for t in [*(scores[known] - 1e-9), scores.max() + 1.0])
    assert value == of_known(scores + shifts[0]) == pytest.approx(expected)
