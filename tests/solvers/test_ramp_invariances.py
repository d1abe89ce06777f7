"""What must not change a solution: order and number of rows, scale of columns, loose rules."""

from __future__ import annotations

import numpy as np
import pytest
from dataset_rate_problems import RateProblemDraw
from scipy import sparse

from gbm_constrained.linear_model.hinge import WeightedSVM
from gbm_constrained.solvers.dataset_rates import MajorizationMinimization, RateProblem

GAP, L2 = 1e-8, 0.1
METHOD = MajorizationMinimization(tol=0.0, gap=GAP, first_gap=GAP, max_iter=2)
# By strong convexity a step is known to sqrt(2 GAP / L2), which is 4.5e-4. It is nearer than that.
NEAR = 2e-5
SEEDS = range(4)


def draw(seed):
    return RateProblemDraw(seed, 2, n=60, d=2, l2=L2)


def solve(members, X, costs, bounds, l2=L2):
    shares = sparse.csr_array(members / members.sum(axis=1, keepdims=True))
    names = tuple(f"rule {j}" for j in range(len(bounds)))
    problem = RateProblem.of(shares, costs, bounds, names)
    return METHOD.solve(problem, WeightedSVM(X, l2), np.zeros(X.shape[1] + 1))


def assert_equal_steps(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one.coefficients, other.coefficients, atol=NEAR)
        assert one.objective == pytest.approx(other.objective, abs=10 * GAP)


@pytest.mark.parametrize("seed", SEEDS)
def test_order_of_rows(seed):
    d, order = draw(seed), np.random.default_rng(0).permutation(60)
    given = solve(d.members, d.X, d.costs, d.bounds)
    assert_equal_steps(given, solve(d.members[:, order], d.X[order], d.costs, d.bounds))


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_are_repetitions(seed):
    d, times = draw(seed), np.random.default_rng(1).integers(0, 4, 60)
    weighted = solve(d.members * times, d.X, d.costs, d.bounds)
    repeated = d.members.repeat(times, axis=1), d.X.repeat(times, axis=0)
    assert_equal_steps(weighted, solve(*repeated, d.costs, d.bounds))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rule_that_holds_anyway(seed):
    d = draw(seed)
    costs = np.concatenate([d.costs, d.costs[1:2]])
    loose = np.append(d.bounds, d.bounds[0] + 1.0)
    given = solve(d.members, d.X, d.costs, d.bounds)
    added = solve(d.members, d.X, costs, loose)
    assert_equal_steps(given, added)
    assert added[-1].multipliers[-1] == 0.0


@pytest.mark.parametrize("seed", SEEDS)
def test_scale_of_a_column_next_to_no_penalty(seed):
    d, scale = draw(seed), np.array([8.0, 1.0])
    given = solve(d.members, d.X, d.costs, d.bounds, l2=1e-6)
    scaled = solve(d.members, d.X * scale, d.costs, d.bounds, l2=1e-6)
    one, other = given[1].coefficients, scaled[1].coefficients
    assert given[1].objective == pytest.approx(scaled[1].objective, abs=1e-6)
    np.testing.assert_allclose(one, other * np.append(scale, 1.0), rtol=1e-3, atol=1e-3)
