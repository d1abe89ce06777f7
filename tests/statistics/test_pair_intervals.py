"""Intervals of pair rates, against DeLong over all pairs, by hand and by repetition."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

import gbm_constrained as gc
from gbm_constrained.problem.pairs import PairRates
from gbm_constrained.statistics.intervals import level_of_all
from gbm_constrained.statistics.pairs import (
    PairMoments,
    estimate_pair_rates,
    pair_constraint_interval,
)

EACH = np.eye(4, dtype=bool)
# Cells are (group, label) in the order of (0, 0), (0, 1), (1, 0), (1, 1).
POSITIVE, NEGATIVE = EACH[1] | EACH[3], EACH[0] | EACH[2]
WITHIN = PairRates(EACH[[1, 3]], EACH[[0, 2]])
CROSS = PairRates(EACH[[1, 3]], EACH[[2, 0]])
SUBGROUP = PairRates(np.array([POSITIVE, EACH[3]]), np.array([EACH[2], NEGATIVE]))
MEAN_RANK = PairRates(np.array([EACH[0] | EACH[1], EACH[2] | EACH[3]]), np.ones((2, 4), bool))
GAP = np.array([[1.0, -1.0]])
AT_MOST = gc.gap(gc.selection_rate(), by="group") <= 0.1


def draw(seed, n=80, weighted=False):
    """Draw scores with ties, cells and weights."""
    rng = np.random.default_rng(seed)
    cells = np.concatenate([np.repeat(np.arange(4), 2), rng.integers(0, 4, n - 8)])
    scores = (rng.normal(size=n) + np.array([0.0, 1.0, 0.3, 0.8])[cells]).round(1)
    return scores, cells, rng.gamma(2.0, size=n) if weighted else None


def estimate(case, rates):
    return estimate_pair_rates(PairMoments.of(*case, 4), rates)


def all_pairs(scores):
    return (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)


def delong(scores, positive, *negatives):
    """Covariance of the AUCs of the same positives against disjoint sets of negatives."""
    wins = [all_pairs(scores)[np.ix_(positive, of_one)] for of_one in negatives]
    found = np.atleast_2d(np.cov([w.mean(axis=1) for w in wins])) / positive.size
    return found + np.diag([w.mean(axis=0).var(ddof=1) / w.shape[1] for w in wins])


def influences(case, first, second):
    """Part of each row in the error of a pair rate, with the factors n / (n - 1) of both sides."""
    scores, cells, weight = case
    weight = np.ones(scores.size) if weight is None else weight
    u, v = weight * first[cells], weight * second[cells]
    theta = u @ all_pairs(scores) @ v / u.sum() / v.sum()
    parts = (all_pairs(scores) @ v / v.sum() - theta, u @ all_pairs(scores) / u.sum() - theta)
    result = np.zeros(scores.size)
    for side, part in zip((u, v), parts, strict=True):
        n = side.sum() ** 2 / (side**2).sum()
        result += side / side.sum() * part * np.sqrt(n / (n - 1))
    return result


@pytest.mark.parametrize("seed", range(5))
def test_variance_of_one_auc_is_that_of_delong(seed):
    scores, cells, _ = case = draw(seed)
    rows = [np.flatnonzero(cells == c) for c in range(4)]
    found = estimate(case, WITHIN)
    expected = [delong(scores, rows[1], rows[0])[0, 0], delong(scores, rows[3], rows[2])[0, 0]]
    np.testing.assert_allclose(found.variance, expected, rtol=1e-12)
    assert abs(found.covariance[0, 1]) < 1e-15
    shared = estimate(case, PairRates(EACH[[1, 1]], EACH[[0, 2]]))
    np.testing.assert_allclose(
        shared.covariance, delong(scores, rows[1], rows[0], rows[2]), rtol=1e-11
    )
    # Doubled weights are a matter of units.
    doubled = estimate((scores, cells, np.full(cells.size, 2.0)), WITHIN)
    np.testing.assert_allclose(doubled.variance, expected, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rates", [WITHIN, CROSS, SUBGROUP, MEAN_RANK])
def test_covariance_is_that_of_the_influences_of_rows(weighted, rates):
    case = draw(6, weighted=weighted)
    parts = np.array([influences(case, *sides) for sides in zip(*rates, strict=True)])
    found = estimate(case, rates)
    np.testing.assert_allclose(found.covariance, parts @ parts.T, rtol=1e-10, atol=1e-16)


def test_one_rate_has_the_logit_interval_with_degrees_of_satterthwaite():
    scores, cells, _ = case = draw(7)
    found = estimate(case, WITHIN)
    rows = [np.flatnonzero(cells == c) for c in range(4)]
    for k, (u, v) in enumerate(((rows[1], rows[0]), (rows[3], rows[2]))):
        wins = all_pairs(scores)[np.ix_(u, v)]
        parts = [wins.mean(axis=1).var(ddof=1) / u.size, wins.mean(axis=0).var(ddof=1) / v.size]
        degrees = sum(parts) ** 2 / (parts[0] ** 2 / (u.size - 1) + parts[1] ** 2 / (v.size - 1))
        auc = wins.mean()
        half = stats.t.isf(0.05, degrees) * np.sqrt(sum(parts)) / (auc * (1 - auc))
        expected = expit(logit(auc) + half * np.array([-1, 1]))
        np.testing.assert_allclose(found.intervals(0.9)[k], expected, rtol=1e-10)


@pytest.mark.parametrize("rates", [WITHIN, SUBGROUP])
def test_differences_are_combined_by_squares_with_their_correlation(rates):
    found = estimate(draw(8), rates)
    low, high = found.intervals().T
    f, deviation = found.rates, np.sqrt(found.variance)
    rho = found.covariance[0, 1] / deviation.prod()
    assert (abs(rho) > 0.2) == (rates is SUBGROUP)

    def size(x, y):
        return np.sqrt(x**2 + y**2 - 2 * rho * x * y)

    difference = f[0] - f[1]
    down, up = size(f[0] - low[0], high[1] - f[1]), size(high[0] - f[0], f[1] - low[1])
    sums = found.sums(np.array([[1.0, -1.0], [-2.0, 0.0]]), np.array([0.25, 1.0]))
    expected = [
        [0.25 + difference - down, 0.25 + difference + up],
        [1 - 2 * high[0], 1 - 2 * low[0]],
    ]
    np.testing.assert_allclose(sums.intervals(), expected, rtol=1e-10)
    np.testing.assert_allclose(sums.values, [0.25 + difference, 1 - 2 * f[0]], rtol=1e-12)


def test_pairs_in_one_order_leave_an_interval():
    scores = np.arange(40.0)
    cells = np.repeat([0, 1], [29, 11])
    found = estimate((scores, cells, None), PairRates(EACH[[1, 0]], EACH[[0, 1]]))
    np.testing.assert_array_equal(found.rates, [1.0, 0.0])
    lowest = 0.025 ** (1 / 11)  # Eleven pairs without a common row would all be in order.
    np.testing.assert_allclose(found.intervals(), [[lowest, 1.0], [0.0, 1 - lowest]], rtol=1e-12)


def test_one_row_on_a_side_says_nothing_and_none_has_no_interval():
    scores, cells = np.array([0.0, 1.0, 2.0, 0.5]), np.array([0, 0, 0, 1])
    found = estimate((scores, cells, None), PairRates(EACH[[1, 3]], EACH[[0, 0]]))
    np.testing.assert_array_equal(found.intervals(), [[0.0, 1.0], [np.nan, np.nan]])
    assert np.isnan(found.sums(GAP, np.zeros(1)).intervals()).all()


def test_sets_that_are_one_have_a_rate_of_one_half():
    everyone = np.ones((1, 4), bool)
    found = estimate(draw(9), PairRates(everyone, everyone))
    np.testing.assert_allclose(found.intervals(), [[0.5, 0.5]], atol=1e-7)


def test_empty_cells_and_rows_without_weight_change_nothing():
    scores, cells, weight = draw(10, weighted=True)
    found = estimate((scores, cells, weight), SUBGROUP)
    more = np.concatenate([scores, [9.0, -9.0]]), np.concatenate([cells, [3, 1]])
    other = estimate((*more, np.concatenate([weight, [0.0, 0.0]])), SUBGROUP)
    np.testing.assert_allclose(other.covariance, found.covariance, rtol=1e-12)
    np.testing.assert_allclose(other.intervals(), found.intervals(), rtol=1e-12)
    wider = PairMoments.of(scores, cells, weight, 6)
    first, second = (np.pad(inside, ((0, 0), (0, 2))) for inside in SUBGROUP)
    first[:, 5] = True
    padded = estimate_pair_rates(wider, PairRates(first, second))
    np.testing.assert_allclose(padded.covariance, found.covariance, rtol=1e-12)


def test_gap_of_two_groups_is_the_folded_difference():
    sums = estimate(draw(11), SUBGROUP).sums(np.eye(2), np.zeros(2))
    low, high = estimate(draw(11), SUBGROUP).sums(GAP, np.zeros(1)).intervals()[0]
    expected = [max(low, -high, 0.0), max(high, -low)]
    np.testing.assert_allclose(pair_constraint_interval(AT_MOST, sums), expected, rtol=1e-10)


def test_largest_gap_of_groups_takes_all_pairs_with_their_correlations():
    case = draw(12, n=200)
    rates = PairRates(EACH, np.ones((4, 4), bool))
    found = estimate(case, rates)
    interval = pair_constraint_interval(AT_MOST, found.sums(np.eye(4), np.zeros(4)))
    pairs = np.array([np.eye(4)[i] - np.eye(4)[j] for i, j in permutations(range(4), 2)])
    strict = level_of_all(AT_MOST, 4, 0.95)
    at = found.sums(pairs, np.zeros(12))
    expected = [max(at.intervals(strict)[:, 0].max(), 0.0), at.intervals()[:, 1].max()]
    np.testing.assert_allclose(interval, expected, rtol=1e-10)
    each = gc.each(gc.recall(), by="group") >= 0.8
    interval = pair_constraint_interval(each, found.sums(np.eye(4), np.zeros(4)))
    ends = found.intervals()[:, 0].min(), found.intervals(level_of_all(each, 4, 0.95))[:, 1].min()
    np.testing.assert_allclose(interval, ends, rtol=1e-10)


LOCATION, SHARE = np.array([0.0, 1.5, -0.4, 0.8]), np.array([0.49, 0.21, 0.264, 0.036])
TRUTH = stats.norm.cdf((LOCATION[:, None] - LOCATION) / np.sqrt(2.0))


@pytest.mark.parametrize(
    "rates", [WITHIN, CROSS, SUBGROUP, MEAN_RANK], ids=["auc", "cross", "subgroup", "mean rank"]
)
def test_gaps_are_covered_as_often_as_the_level_says(rates):
    """About 11 rows are in the smallest cell; 500 draws have a standard error of 0.01."""
    rng = np.random.default_rng(13)
    truth = GAP @ rates.values(TRUTH, SHARE)
    inside = 0
    for _ in range(500):
        cells = rng.choice(4, 300, p=SHARE)
        case = LOCATION[cells] + rng.normal(size=300), cells, None
        low, high = estimate(case, rates).sums(GAP, np.zeros(1)).intervals()[0]
        inside += low <= truth <= high
    assert 0.92 <= inside / 500 <= 0.985


def test_weighted_rows_are_covered_as_often_as_the_level_says():
    """Positives are sampled at one third of their frequency in half of all cases, and weighted."""
    rng = np.random.default_rng(14)
    truth = WITHIN.values(TRUTH, SHARE)[0]
    inside = 0
    for _ in range(500):
        cells = rng.choice(4, 400, p=SHARE)
        scores = LOCATION[cells] + rng.normal(size=400)
        keep = (scores < LOCATION[cells]) | (rng.random(400) < 1 / 3)
        weight = np.where(scores < LOCATION[cells], 1.0, 3.0)
        low, high = estimate((scores[keep], cells[keep], weight[keep]), WITHIN).intervals()[0]
        inside += low <= truth <= high
    assert 0.92 <= inside / 500 <= 0.985
