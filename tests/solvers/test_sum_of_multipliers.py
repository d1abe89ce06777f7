"""Multipliers whose shares sum to one at most: the nearest ones in the metric of their steps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

from gbm_constrained.solvers.abpp import hold_sum


@pytest.mark.parametrize("seed", range(20))
def test_the_nearest_multipliers_have_one_violation_in_common(seed):
    """They are max(y - theta s c, 0) with the theta that a root finder gives."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 30))
    y, step, shares = rng.exponential(5.0, (3, m))
    shares[rng.random(m) < 0.2] = 0.0  # of strict rows
    y[rng.random(m) < 0.2] = 0.0

    def moved(theta):
        return np.maximum(y - theta * step * shares, 0.0)

    expected = y
    if shares @ y > 1.0:
        expected = moved(brentq(lambda theta: shares @ moved(theta) - 1.0, 0.0, 1e6, xtol=1e-14))
        assert shares @ expected == pytest.approx(1.0)
    np.testing.assert_allclose(hold_sum(y, step, shares), expected, rtol=1e-6, atol=1e-9)


def test_multipliers_within_the_sum_stay_as_they_are():
    y = np.array([0.5, 0.0, 3.0])
    assert hold_sum(y, np.ones(3), np.array([1.0, 9.0, 0.0])) is y
    stuck = np.array([4.0])  # No step moves it.
    np.testing.assert_array_equal(hold_sum(stuck, np.zeros(1), np.ones(1)), stuck)
