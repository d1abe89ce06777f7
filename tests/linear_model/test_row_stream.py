"""Bounded samples of rows that arrive in parts."""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from scipy.stats import chi2

from gbm_constrained.linear_model.auc_scorer import fit_log_odds
from gbm_constrained.linear_model.pair_sets import PairSample, Reservoir


def rows(first, last):
    numbers = np.arange(first, last)
    return PairSample(numbers[:, None] * 1.0, numbers[:, None], numbers * 1.0)


def test_all_rows_are_kept_while_there_is_room():
    reservoir = Reservoir(10, np.random.RandomState(0))
    for first, last in ((0, 3), (3, 3), (3, 9)):
        reservoir.add(rows(first, last))
    np.testing.assert_array_equal(reservoir.rows.weight, np.arange(9))


def test_every_row_is_kept_with_the_same_probability():
    times = np.zeros(40)
    for seed in range(2000):
        reservoir = Reservoir(8, np.random.RandomState(seed))
        for first in range(0, 40, 5):
            reservoir.add(rows(first, first + 5))
        kept = reservoir.rows
        assert np.unique(kept.weight).size == len(kept) == 8
        np.testing.assert_array_equal(kept.X[:, 0], kept.weight)
        times[kept.weight.astype(int)] += 1
    expected = 2000 * 8 / 40
    statistic = ((times - expected) ** 2 / (expected * (1 - 8 / 40))).sum()
    assert statistic < chi2.isf(1e-3, 39)


def test_log_odds_are_those_of_the_rows_and_never_fall():
    rng = np.random.default_rng(0)
    scores = 3.0 + 0.2 * rng.normal(size=20_000)
    is_positive = rng.random(20_000) < 1 / (1 + np.exp(-5 * (scores - 3.1)))
    slope, intercept = fit_log_odds(scores, is_positive, np.ones(20_000), 0.3)
    np.testing.assert_allclose(slope, 5.0, rtol=0.1)
    np.testing.assert_allclose(-intercept / slope, 3.1, atol=0.02)
    assert fit_log_odds(-scores, is_positive, np.ones(20_000), 0.3)[0] > 0
    slope, intercept = fit_log_odds(scores, np.ones(20_000, dtype=bool), np.ones(20_000), 0.01)
    assert slope > 0
    np.testing.assert_allclose(expit(slope * scores + intercept).mean(), 0.01, rtol=0.01)
