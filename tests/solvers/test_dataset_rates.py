"""Rates of data sets against counting, bounds of ramps, and constants that meet rules."""

from __future__ import annotations

import numpy as np
import pytest
from dataset_rate_problems import RateProblemDraw
from hypothesis import given
from hypothesis import strategies as st
from references import random, seeds
from scipy import sparse

from gbm_constrained.solvers.dataset_rates import RateProblem, ramp, ramp_bound

SCORES = st.one_of(st.sampled_from([-0.5, 0.0, 0.5]), st.floats(-3, 3))


@given(SCORES, SCORES)
@random(500)
def test_bounds_are_above_the_ramp_and_equal_it_at_the_reference(z, reference):
    z, reference = np.array([z]), np.array([reference])
    for sign in (1, -1):
        assert ramp_bound(sign * z, sign * reference) >= ramp(sign * z) - 1e-15
        at_reference = ramp_bound(sign * reference, sign * reference)
        assert at_reference == pytest.approx(ramp(sign * reference), abs=1e-15)
    assert ramp(z) + ramp(-z) == pytest.approx(1.0, abs=1e-15)


def test_the_hinge_is_taken_at_ties():
    ties = np.array([-0.5, 0.5])
    np.testing.assert_array_equal(ramp_bound(np.full(2, 2.0), ties), [2.5, 2.5])
    np.testing.assert_array_equal(ramp_bound(np.full(2, -2.0), ties), [0.0, 0.0])
    assert ramp_bound(np.array([-2.0]), np.array([0.5 + 1e-12])) == 1.0


def count(draw, positive_share):
    """Add up costs row by row, given each row's probability of a positive decision."""
    total = draw.members.sum(axis=1)
    values = np.zeros(draw.costs.shape[0])
    for cell in range(draw.members.shape[0]):
        for row in np.flatnonzero(draw.members[cell]):
            p = positive_share[row]
            weight = draw.members[cell, row] / total[cell]
            values += weight * (draw.costs[:, cell, 1] * p + draw.costs[:, cell, 0] * (1 - p))
    return values


@random(30)
@given(seeds)
def test_values_against_counting(seed):
    draw = RateProblemDraw(seed, m=3, n=40)
    z = draw.rng.normal(size=40) * draw.rng.choice([0.3, 3.0])
    z[::5] = np.round(z[::5])
    problem = draw.problem
    np.testing.assert_allclose(problem.hard_values(z), count(draw, z > 0), atol=1e-12)
    np.testing.assert_allclose(problem.ramp_values(z), count(draw, ramp(z)), atol=1e-12)
    np.testing.assert_allclose(problem.bound_values(z, z), problem.ramp_values(z), atol=1e-12)
    reference = draw.rng.normal(size=40)
    assert (problem.bound_values(z, reference) >= problem.ramp_values(z) - 1e-12).all()
    assert (problem.positive >= 0).all()
    assert (problem.negative >= 0).all()
    assert (np.minimum(problem.positive, problem.negative) == 0).all()
    ramps = problem.without_objective().ramp_values(z)
    np.testing.assert_allclose(ramps, problem.ramp_values(z) * [0, 1, 1, 1], atol=1e-15)


def test_costs_of_rows():
    draw = RateProblemDraw(3, m=2, n=50)
    weights, z = np.array([1.0, 0.3, 2.0]), draw.rng.normal(size=50)
    positive, negative = draw.problem.row_costs(weights)
    value = positive @ ramp(z) + negative @ ramp(-z) + weights @ draw.problem.constant
    assert value == pytest.approx(weights @ draw.problem.ramp_values(z), abs=1e-12)


def test_an_empty_data_set_costs_nothing():
    shares = sparse.csr_array(np.array([[0.5, 0.5], [0.0, 0.0]]))
    costs = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    problem = RateProblem.of(shares, costs, np.zeros(0), ())
    np.testing.assert_allclose(problem.hard_values(np.array([-1.0, 1.0])), [1.5])


@random(40)
@given(seeds, st.integers(1, 5))
def test_constants_against_a_grid(seed, m):
    draw = RateProblemDraw(seed, m, n=80, slack=0.0)
    draw.problem.bounds[:] += draw.rng.normal(size=m) * 0.3
    grid = np.linspace(0, 1, 401)
    violations = np.array(
        [draw.problem.violations(draw.problem.ramp_values(np.full(80, p - 0.5))) for p in grid]
    )
    meets = grid[violations.max(axis=1) <= 1e-12]
    interval = draw.problem.feasible_shares()
    if meets.size:
        np.testing.assert_allclose(interval, [meets[0], meets[-1]], atol=1 / 400)
    elif interval is not None:
        assert interval[1] - interval[0] < 1 / 400
    best = draw.problem.least_violating_share()
    at_best = draw.problem.violations(draw.problem.ramp_values(np.full(80, best - 0.5)))
    assert at_best.max() <= violations.max(axis=1).min() + 1e-12


def test_bad_input():
    shares = sparse.csr_array(np.ones((1, 1)))
    negative = -np.ones((1, 1))
    with pytest.raises(ValueError, match=r"positive must hold finite .* got -1.0: write costs"):
        RateProblem(shares, negative, -negative, np.zeros(1), np.zeros(0), ())
    with pytest.raises(ValueError, match=r"bounds must be finite, got \[nan\]"):
        RateProblem(shares, np.ones((2, 1)), np.ones((2, 1)), np.zeros(2), np.array([np.nan]), "r")
