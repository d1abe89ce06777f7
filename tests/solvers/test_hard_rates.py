"""Shifts of the intercept with which decisions meet rules, against trying all of them."""

from __future__ import annotations

import numpy as np
import pytest
from dataset_rate_problems import RateProblemDraw
from scipy import sparse

from gbm_constrained.solvers.dataset_rates import Losses, RateProblem, find_intercept_shift


def test_least_shift_that_meets_all_rules():
    """Every shift between two scores is tried here."""
    shifted, impossible = 0, 0
    for seed in range(100):
        draw = RateProblemDraw(seed, 1 + seed % 3, n=80)
        problem = draw.problem
        z = draw.rng.normal(size=80) * 0.6
        ramps = problem.violations(problem.ramp_values(z))
        problem.bounds[:] += np.maximum(ramps, 0.0) + 0.06 * draw.rng.random()
        ends = np.unique(-z)
        tried = [0.0, *(ends[1:] + ends[:-1]) / 2]
        meets = [
            s
            for s in tried
            if problem.violations(problem.hard_values(z + s)).max() <= 1e-12
            and problem.violations(problem.ramp_values(z + s)).max() <= 1e-9
        ]
        found = find_intercept_shift(problem, z, Losses())
        if not meets:
            assert found is None
            impossible += 1
            continue
        assert found == min(meets, key=abs)
        shifted += found != 0.0
    assert shifted >= 4
    assert impossible >= 4


def test_a_shift_may_pass_many_scores():
    """Thousands of rows change sides before the decisions meet the bound that ramps meet."""
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.uniform(0.0, 0.05, 3000), np.full(7000, -0.5)])
    shares, costs = np.full((1, 10_000), 1e-4), np.array([[[0.0, 0.0]], [[0.0, 1.0]]])
    problem = RateProblem.of(sparse.csr_array(shares), costs, np.array([0.2]), ("selected",))
    assert problem.violations(problem.ramp_values(z))[0] < 0 < problem.hard_values(z)[1] - 0.2
    shift = find_intercept_shift(problem, z, Losses())
    assert problem.hard_values(z + shift)[1] == pytest.approx(0.2, abs=1e-12)
    assert shift == pytest.approx(-np.sort(z[:3000])[999:1001].mean(), abs=1e-12)
