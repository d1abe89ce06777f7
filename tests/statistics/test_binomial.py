"""Intervals of binomials: published examples and simulated populations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gbm_constrained.statistics.binomial import clopper_pearson, newcombe_difference


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_clopper_pearson_is_scipys(level):
    for n in (1, 7, 100, 20000):
        for events in {0, 1, n // 3, n - 1, n}:
            expected = stats.binomtest(events, n).proportion_ci(level, "exact")
            np.testing.assert_allclose(
                clopper_pearson(events, n, level), (expected.low, expected.high), atol=1e-11
            )
    assert np.isnan(clopper_pearson(0, 0)).all()


def test_clopper_pearson_covers():
    """By enumeration, at every probability of a grid."""
    n, p = 40, np.linspace(0.0, 1.0, 401)
    low, high = clopper_pearson(np.arange(n + 1), np.full(n + 1, n), 0.9)
    covered = (low <= p[:, None] + 1e-12) & (p[:, None] <= high + 1e-12)
    chance = (covered * stats.binom.pmf(np.arange(n + 1), n, p[:, None])).sum(axis=1)
    assert chance.min() >= 0.9 - 1e-12


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((6, 7, 2, 7), 0.0582, 0.8062),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((0, 10, 0, 20), -0.1611, 0.2775),
        ((0, 10, 0, 10), -0.2775, 0.2775),
        ((10, 10, 0, 20), 0.6791, 1.0),
        ((10, 10, 0, 10), 0.6075, 1.0),
    ],
)
def test_newcombe_published_examples(counts, low, high):
    """Table II of the paper, method 10."""
    assert np.round(newcombe_difference(*counts), 4).tolist() == [low, high]
    assert np.isnan(newcombe_difference(*counts[:2], 0, 0)).all()


def test_newcombe_covers_about():
    """By enumeration: 0.95 on average and 0.92 at worst for moderate probabilities."""
    m, n = 40, 60
    i, j = np.mgrid[: m + 1, : n + 1]
    low, high = newcombe_difference(i, m, j, n)
    chances = []
    for p in np.linspace(0.05, 0.95, 19):
        for q in np.linspace(0.05, 0.95, 19):
            weight = np.outer(stats.binom.pmf(range(m + 1), m, p), stats.binom.pmf(j[0], n, q))
            chances.append(weight[(low <= p - q) & (p - q <= high)].sum())
    assert min(chances) > 0.92
    assert np.mean(chances) == pytest.approx(0.95, abs=0.01)
