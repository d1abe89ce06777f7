"""The square surrogate of pair rates, against sums over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_problems import (
    METRICS,
    N_SETS,
    PairProblem,
    count_functions,
    rules_of,
)
from references import random, seeds

from gbm_constrained.solvers.level_set import (
    Moments,
    PairRule,
    PairTerm,
    SquareSurrogate,
    density_ratios,
)

C1 = [0.3, 0.5, 1.0, 2.0]
cases = pytest.mark.parametrize("metric", METRICS)


def surrogate_of(rules, c1=0.5, c2=1.0):
    return SquareSurrogate.of(rules, N_SETS, c1, c2)


@cases
@pytest.mark.parametrize("c1", C1)
@pytest.mark.parametrize("c2", [1.0, 0.6])
def test_functions_are_those_of_all_pairs(metric, c1, c2):
    problem, rules = PairProblem(), rules_of(metric, 0.1)
    surrogate = surrogate_of(rules, c1, c2)
    values = surrogate.values(surrogate.moments(problem.scores, problem.ratios))
    counted, _, limits = count_functions(problem.scores, problem.members, rules, c1, c2)
    np.testing.assert_allclose(values, counted, rtol=1e-12)
    np.testing.assert_allclose(surrogate.limits, limits, rtol=1e-15)


@given(seeds, st.integers(1, 4), st.sampled_from(C1))
@random(40)
def test_sums_of_any_multiples_of_pair_rates(seed, n_terms, c1):
    rng = np.random.default_rng(seed)
    problem = PairProblem(seed, n=60)
    terms = tuple(PairTerm(rng.normal(), *rng.choice(N_SETS, 2)) for _ in range(n_terms))
    rules = [PairRule(terms, 0.3), PairRule(terms[:1], 0.7)]
    surrogate = surrogate_of(rules, c1)
    values = surrogate.values(surrogate.moments(problem.scores, problem.ratios))
    counted, _, limits = count_functions(problem.scores, problem.members, rules, c1, 1.0)
    np.testing.assert_allclose(values, counted, rtol=1e-10)
    np.testing.assert_allclose(surrogate.limits, limits, rtol=1e-12)


@cases
@pytest.mark.parametrize("c1", C1)
def test_row_gradient_is_that_of_all_pairs_and_of_the_saddle_form(metric, c1):
    problem, rules = PairProblem(1), rules_of(metric, 0.1)
    surrogate = surrogate_of(rules, c1)
    share = np.array([0.5, 0.2, 0.3])
    moments = surrogate.moments(problem.scores, problem.ratios)
    best = surrogate.best_scalars(moments)
    rows = surrogate.row_gradient(problem.scores, problem.ratios, share, best)
    _, gradients, _ = count_functions(problem.scores, problem.members, rules, c1, 1.0)
    np.testing.assert_allclose(rows / rows.size, share @ gradients, rtol=0, atol=1e-10)


@cases
def test_the_saddle_form_has_the_functions_for_its_optimum(metric):
    """At the scalars of Lemma 1 the derivatives by a, b and alpha vanish, and the value is f."""
    problem, rules = PairProblem(2), rules_of(metric, 0.1)
    surrogate = surrogate_of(rules)
    moments = surrogate.moments(problem.scores, problem.ratios)
    a, b, alpha = best = surrogate.best_scalars(moments)
    F, G = surrogate.saddle_terms(moments, a, b)
    found = F + surrogate.limits + surrogate.sum_by_function(alpha * G - alpha**2)
    np.testing.assert_allclose(found, surrogate.values(moments), rtol=1e-12)
    np.testing.assert_allclose(G - 2 * alpha, 0.0, atol=1e-12)
    share = np.array([0.5, 0.2, 0.3])
    np.testing.assert_allclose(surrogate.scalar_gradient(moments, share, best), 0.0, atol=1e-12)


def maximise_pair(problem, c1, slope, penalty):
    """Evaluate min over a, b of max over alpha of F + alpha G - penalty alpha^2 for the AUC."""
    surrogate = surrogate_of([], c1)
    moments = surrogate.moments(problem.scores, problem.ratios)
    a, b, _ = surrogate.best_scalars(moments)
    F, _ = surrogate.saddle_terms(moments, a, b)
    G = slope * (moments.first[0] - moments.first[1])
    return F[0] + G**2 / (4 * penalty)


def test_lemma_1_as_printed_fails_for_other_c1_than_one():
    problem = PairProblem(3)

    def exact(c1):
        return count_functions(problem.scores, problem.members, [], c1, 1.0)[0][0]

    printed = {c1: maximise_pair(problem, c1, slope=2 * c1, penalty=1.0) for c1 in C1}
    assert printed[1.0] == pytest.approx(exact(1.0), rel=1e-12)
    moments = surrogate_of([]).moments(problem.scores, problem.ratios)
    difference = moments.first[0] - moments.first[1]
    assert abs(difference) > 0.1
    for c1 in (0.3, 0.5, 2.0):
        error = (c1**2 - c1) * difference**2
        assert printed[c1] - exact(c1) == pytest.approx(error, rel=1e-9)
        for slope, penalty in ((2 * np.sqrt(c1), 1.0), (2 * c1, c1)):  # Either mends it.
            assert maximise_pair(problem, c1, slope, penalty) == pytest.approx(
                exact(c1), rel=1e-12
            )


def test_scalar_gradient_is_that_of_differences_on_a_batch():
    problem, rules = PairProblem(4), rules_of("inter-group", 0.1)
    surrogate, share = surrogate_of(rules), np.array([0.5, 0.2, 0.3])
    moments = surrogate.moments(problem.scores[:20], problem.ratios[:20])
    rng = np.random.default_rng(0)
    x, alpha = rng.normal(size=2 * surrogate.n_pairs), rng.normal(size=surrogate.n_pairs)

    def value(x, h=problem.scores[:20]):
        a, b = x.reshape(2, -1)
        F, G = surrogate.saddle_terms(surrogate.moments(h, problem.ratios[:20]), a, b)
        return share @ F + (share[surrogate.owner] * alpha) @ G

    scalars = (*x.reshape(2, -1), alpha)
    eye = np.eye(x.size) * 1e-5
    numerical = [(value(x + e) - value(x - e)) / 2e-5 for e in eye]
    found = surrogate.scalar_gradient(moments, share, scalars)
    np.testing.assert_allclose(found, numerical, atol=1e-7)
    h, step = problem.scores[:20], np.eye(20) * 1e-5
    by_rows = [(value(x, h + e) - value(x, h - e)) / 2e-5 for e in step]
    rows = surrogate.row_gradient(h, problem.ratios[:20], share, scalars)
    np.testing.assert_allclose(rows / 20, by_rows, atol=1e-7)


@given(seeds, st.sampled_from(sorted(METRICS)))
@random(40)
def test_no_scores_have_a_smaller_worst_side_than_constant_ones(seed, metric):
    """max(f1, f2) >= 2 c1 c2^2, with equality at constant scores; section 2 of the docstring."""
    problem = PairProblem(seed % 1000, n=60)
    c1, c2 = 0.7, 1.3
    surrogate = surrogate_of(rules_of(metric, 0.0), c1, c2)
    least = 2 * c1 * c2**2
    scores = np.random.default_rng(seed).normal(size=60)
    assert surrogate.values(surrogate.moments(scores, problem.ratios))[1:].max() >= least
    constant = surrogate.values(surrogate.moments(np.full(60, 0.4), problem.ratios))
    np.testing.assert_allclose(constant[1:], least, rtol=1e-12)


def test_added_constants_and_copies_of_rows_change_nothing():
    problem, rules = PairProblem(5, n=80), rules_of("BPSN - BNSP", 0.1)
    surrogate = surrogate_of(rules)
    values = surrogate.values(surrogate.moments(problem.scores, problem.ratios))
    moved = surrogate.values(surrogate.moments(problem.scores + 3.0, problem.ratios))
    np.testing.assert_allclose(moved, values, rtol=1e-12)
    times = np.random.default_rng(0).integers(1, 4, 80)
    weighted = density_ratios(problem.members * times[:, None])
    copied = density_ratios(np.repeat(problem.members, times, axis=0))
    of_copies = surrogate.moments(np.repeat(problem.scores, times), copied)
    of_weights = surrogate.moments(problem.scores, weighted)
    for one, other in zip(of_weights, of_copies, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_sets_without_weight_are_refused():
    members = np.ones((5, 3))
    members[:, 2] = 0.0
    with pytest.raises(ValueError, match="set 2 of the pair rules has no row"):
        density_ratios(members)


def test_moments_of_a_batch_are_means_over_its_rows():
    problem, surrogate = PairProblem(6), surrogate_of([])
    h, ratios = problem.scores[:7], problem.ratios[:7]
    found = surrogate.moments(h, ratios)
    expected = Moments(*((h[:, None] ** j * ratios).mean(axis=0) for j in range(3)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
