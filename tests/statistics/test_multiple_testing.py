"""Tests of many hypotheses."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import by
from scipy import stats

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.binomial import learn_then_test
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.p_values import constraint_p_values


def test_sequences_stop_at_the_first_failure():
    p = np.array([0.001, 0.02, 0.06, 0.001])
    assert learn_then_test([p], 0.05).tolist() == [[True, True, False, False]]
    assert not learn_then_test([p], 0.0001).any()
    two = learn_then_test([p, p[::-1]], 0.05)
    assert two.tolist() == [[True, True, False, False], [True, False, False, False]]
    assert not learn_then_test([p, p], 0.03)[:, 1].any()
    assert learn_then_test([[0.01, np.nan, 0.01]], 0.05).tolist() == [[True, False, False]]


@pytest.mark.parametrize("n_sequences", [1, 2])
def test_the_chance_of_any_error_is_held(n_sequences):
    """Correlated p-values, of which the last six of ten are of true null hypotheses."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(20000, 1))
    z = 0.6 * common + 0.8 * rng.normal(size=(20000, 10)) - np.repeat([3.0, 0.0], [4, 6])
    p = stats.norm.cdf(z)
    sequences = p[:5000].reshape(5000, n_sequences, -1)
    certified = np.array([learn_then_test(q, 0.1).ravel() for q in sequences])
    assert certified[:, 4:].any(axis=1).mean() <= 0.1 + 3 * np.sqrt(0.1 / 5000)
    assert certified[:, 0].mean() > 0.7


def test_a_gap_over_thresholds_is_certified_rightly():
    """Fixed sequence on thresholds from above: the lowest certified one holds, 0.9 of the time."""
    rng = np.random.default_rng(0)
    grid = np.linspace(3.0, 0.0, 16)
    truth = stats.norm.sf(grid - 0.5) - stats.norm.sf(grid)
    sex = np.repeat(["F", "M"], 200)
    rows = Rows(np.arange(400) % 2, np.arange(2), None, {"sex": sex})
    cells, compiled = compile_constraints([by(gc.selection_rate()) <= 0.1], rows)
    violated = certified = 0
    for _ in range(200):
        scores = rng.normal(size=400) + 0.5 * (sex == "M")
        counts = CellCounts.at_thresholds(cells, scores, grid)
        p = constraint_p_values(compiled, counts).max(axis=-1)
        found = np.flatnonzero(learn_then_test(p[None], 0.1)[0])
        certified += found.size > 0
        violated += found.size > 0 and truth[found[-1]] > 0.1
    assert certified == 200
    assert violated <= 200 * 0.1 + 3 * np.sqrt(200 * 0.1)
