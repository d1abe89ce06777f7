"""Projected descent in the space of surrogates: known optima, calls, plateaus and options."""

import warnings

import numpy as np
import pytest
from black_box_problems import Quadratics, draw_rows, on_parameters, on_rows

from gbm_constrained.constraints.selectors import label
from gbm_constrained.metrics import surrogate
from gbm_constrained.metrics.surrogates import SurrogateLosses
from gbm_constrained.solvers.black_box import (
    AdaptiveSurrogates,
    BlackBoxProblem,
    LinearSpace,
    minimize_black_box,
)

WEIGHTS = np.array([0.2, 0.5, 0.3])


def minimize(problem, start, candidates=(), seed=0, **options):
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
    problem = quadratic_problem(lambda u: WEIGHTS @ u)
    found = minimize(problem, np.ones(4), n_iterations=40, step_size=2.0)
    best = best_weighted(problem.surrogates, WEIGHTS)
    np.testing.assert_allclose(found.parameters, best, atol=0.02)
    assert found.loss == pytest.approx(WEIGHTS @ problem.profile(best), abs=1e-4)
    assert found.ended == "iterations"


def test_a_nonlinear_metric_ends_at_a_stationary_point():
    """At the end, the surrogates weighed by the metric's gradient have no slope."""
    problem = quadratic_problem(lambda u: np.sum(np.sqrt(u + 1.0)))
    found = minimize(problem, np.ones(4), n_iterations=40, step_size=2.0, sigma=0.02)
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
    found = minimize(
        problem, np.ones(4), estimator=estimator, sigma=0.05, n_perturbations=30, n_iterations=20
    )
    exact = minimize(problem, np.ones(4), n_iterations=20, step_size=1.0)
    assert found.loss == pytest.approx(exact.loss, abs=0.01)
    assert found.iterates[0].loss > exact.loss + 0.2


def test_iterates_hold_what_made_them():
    problem = quadratic_problem(lambda u: WEIGHTS @ u)
    found = minimize(problem, np.ones(4), n_iterations=3)
    assert len(found.iterates) == 4
    assert problem.metric.iterations == [0, 1, 2, 3]
    for before, after in zip(found.iterates[:-1], found.iterates[1:], strict=True):
        np.testing.assert_allclose(after.gradient, WEIGHTS, atol=1e-8)
        np.testing.assert_allclose(after.target, before.profile - 0.5 * after.gradient)
        np.testing.assert_array_equal(after.profile, problem.profile(after.parameters))
        assert after.loss == problem.loss(after.parameters)
    assert found.loss == min(i.loss for i in found.iterates)


def test_the_same_seed_gives_the_same_parameters():
    first, again, other = (
        minimize(quadratic_problem(lambda u: np.max(u)), np.ones(4), seed=seed).parameters
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_candidates_win_where_they_are_better():
    problem = quadratic_problem(lambda u: WEIGHTS @ u)
    best = best_weighted(problem.surrogates, WEIGHTS)
    found = minimize(problem, np.ones(4), [np.zeros(4), best], n_iterations=2)
    np.testing.assert_array_equal(found.parameters, best)
    assert found.candidate_losses == (problem.loss(np.zeros(4)), problem.loss(best))


@pytest.mark.parametrize(
    ("estimator", "each"), [("interpolation", 20), ("finite_differences", 11)]
)
def test_calls_end_the_search(estimator, each):
    problem = on_rows(0, lambda u: 0.5 * u[0] + 0.3 * u[1])
    problem.metric.max_calls = 1 + 3 * (each + 1) + 5
    found = minimize(problem, np.ones(4), estimator=estimator, sigma=0.05)
    assert found.ended == "calls"
    assert len(found.iterates) == 4
    assert problem.metric.calls == 1 + 3 * (each + 1)


def test_plateaus_end_the_search_with_a_warning():
    seen = []
    problem = quadratic_problem(lambda u: seen.append(u) or 0.75)
    with pytest.warns(UserWarning, match=r"sigma=0.3 doubled up to 3 times.*\[GC306\]"):
        found = minimize(problem, np.ones(4), [np.zeros(4)])
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
        minimize(problem, np.ones(4), n_iterations=3)
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
        found = minimize(problem, np.ones(4), n_iterations=1, **options)
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
        minimize(quadratic_problem(np.sum), np.ones(4), **options)


def test_too_few_calls_for_one_estimate_are_refused():
    problem = quadratic_problem(np.sum, max_calls=22)
    with pytest.raises(ValueError, match=r"leaves 22 calls .* take 23: raise max_calls"):
        minimize(problem, np.ones(4), [np.zeros(4)])
    assert problem.metric.calls == 0


def test_spaces_refuse_other_features():
    with pytest.raises(ValueError, match="validation has 2 columns and the training rows have 3"):
        LinearSpace(np.ones((4, 3)), np.ones((4, 2)))


def test_perturbations_are_in_units_of_the_scores():
    """With sigma = 1, a perturbation changes the scores by their own standard deviation."""
    X, _rows = draw_rows(0)
    space, at = LinearSpace(X, X), np.array([0.3, -0.5, 0.2, 0.1])
    steps = space.perturbation_scale(at) * np.random.default_rng(0).normal(size=(4000, 4))
    changes = steps @ X.T
    assert np.sqrt(np.mean(changes**2)) == pytest.approx(np.std(X @ at), rel=0.03)
    assert space.perturbation_scale(np.zeros(4)) > 0
