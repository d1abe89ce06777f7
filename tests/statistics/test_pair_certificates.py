"""Certificates of pair rates, against the inequalities that they come from and by repetition."""

from __future__ import annotations

from math import inf, log, sqrt

import numpy as np
import pytest
from scipy.stats import norm

from gbm_constrained.problem.pairs import PairRates, pair_table
from gbm_constrained.statistics.pairs import cell_sizes, pair_deviation

DELTA = 0.1
EACH = np.eye(4, dtype=bool)
# Cells are (group, label) in the order of (0, 0), (0, 1), (1, 0), (1, 1).
WITHIN = PairRates(EACH[[1, 3]], EACH[[0, 2]])
SUBGROUP = PairRates(
    np.array([EACH[1] | EACH[3], EACH[3]]), np.array([EACH[2], EACH[0] | EACH[2]])
)
MEAN_RANK = PairRates(np.array([EACH[0] | EACH[1], EACH[2] | EACH[3]]), np.ones((2, 4), bool))
GAP = np.array([1.0, -1.0])


def sizes_of(counts, weight=None):
    cells = np.repeat(np.arange(4), counts)
    return cell_sizes(cells, weight, 4)


def test_one_rate_has_the_deviation_of_hoeffding():
    sizes = sizes_of([50, 20, 30, 11])
    deviation = pair_deviation(sizes, WITHIN, np.array([1.0, 0.0]), DELTA)
    assert deviation == pytest.approx(sqrt(log(1 / DELTA) / (2 * 20)), rel=1e-12)
    scaled = pair_deviation(sizes, WITHIN, np.array([-3.0, 0.0]), DELTA)
    assert scaled == pytest.approx(3 * deviation, rel=1e-12)
    doubled = sizes_of([50, 20, 30, 11], np.full(111, 2.0))
    assert pair_deviation(doubled, WITHIN, np.array([1.0, 0.0]), DELTA) == pytest.approx(deviation)


def test_differences_take_the_smaller_of_both_deviations():
    few, alike = sizes_of([500, 20, 300, 11]), sizes_of([20, 20, 20, 20])
    changes = sqrt(log(1 / DELTA) / 2 * (1 / 500 + 1 / 20 + 1 / 300 + 1 / 11))
    assert pair_deviation(few, WITHIN, GAP, DELTA) == pytest.approx(changes, rel=1e-12)
    strict = 1e-6
    split = 2 * sqrt(log(2 / strict) / (2 * 20))
    changes = sqrt(log(1 / strict) / 2 * 4 / 20)
    assert pair_deviation(alike, WITHIN, GAP, strict) == pytest.approx(min(split, changes))
    one_small = np.array([1.0, -1e-3])
    split = (1 + 1e-3) * sqrt(log(2 / DELTA) / 40)
    assert pair_deviation(alike, WITHIN, one_small, DELTA) == pytest.approx(split, rel=1e-12)


def test_weights_and_overlaps_have_bounded_differences():
    counts = [40, 20, 30, 10]
    rng = np.random.default_rng(0)
    cells, weight = np.repeat(np.arange(4), counts), rng.uniform(0.5, 2.0, 100)
    for rates in (WITHIN, SUBGROUP, MEAN_RANK):
        change = np.zeros(100)
        for inside in (*rates.first, *rates.second):
            change += weight * inside[cells] / weight[inside[cells]].sum()
        expected = sqrt(log(1 / DELTA) / 2 * (change**2).sum())
        found = pair_deviation(sizes_of(counts, weight), rates, GAP, DELTA)
        assert found == pytest.approx(expected, rel=1e-12)


def test_no_row_changes_a_sum_by_more_than_its_bound():
    counts = np.array([8, 5, 6, 4])
    cells, n = np.repeat(np.arange(4), counts), counts.sum()
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, n)
    scores = rng.normal(size=n)
    of_cells = np.bincount(cells, weight)
    for rates in (WITHIN, SUBGROUP, MEAN_RANK):
        change = np.zeros(n)
        for inside in (*rates.first, *rates.second):
            change += weight * inside[cells] / weight[inside[cells]].sum()
        start = GAP @ rates.values(pair_table(scores, cells, weight, 4), of_cells)
        for i in range(n):
            for moved in (-9.0, 9.0):
                other = scores.copy()
                other[i] = moved
                value = GAP @ rates.values(pair_table(other, cells, weight, 4), of_cells)
                assert abs(value - start) <= change[i] + 1e-12


@pytest.mark.parametrize(
    "rates", [WITHIN, SUBGROUP, MEAN_RANK], ids=["within", "subgroup", "mean rank"]
)
def test_false_certificates_are_rare(rates):
    """The bound lies just below the truth, so that every certificate is false."""
    rng = np.random.default_rng(2)
    location, share = np.array([0.0, 1.2, -0.3, 0.5]), np.array([0.45, 0.25, 0.2, 0.1])
    truth = norm.cdf((location[:, None] - location) / sqrt(2.0))
    gap = abs(GAP @ rates.values(truth, share))
    false = 0
    for _ in range(1000):
        cells = rng.choice(4, 400, p=share)
        scores = location[cells] + rng.normal(size=400)
        sizes = cell_sizes(cells, None, 4)
        value = GAP @ rates.values(pair_table(scores, cells, None, 4), sizes.weight[:, 0])
        deviation = pair_deviation(sizes, rates, GAP, DELTA)
        false += max(value, -value) + deviation <= gap * (1 - 1e-9)
    assert false <= 1000 * DELTA


def test_hoeffding_is_nearly_reached_by_pairs_that_agree():
    """Few positives that are all above or all below: a pair rate is then a mean of coin throws."""
    rng = np.random.default_rng(3)
    m, false = 30, 0
    sizes = cell_sizes(np.repeat([0, 1], [m, 3000]), None, 2)
    one = PairRates(np.array([[True, False]]), np.array([[False, True]]))
    deviation = pair_deviation(sizes, one, np.ones(1), DELTA)
    for _ in range(1000):
        scores = np.concatenate([rng.choice([-1.0, 1.0], m), np.zeros(3000)])
        cells = np.repeat([0, 1], [m, 3000])
        value = one.values(pair_table(scores, cells, None, 2), sizes.weight[:, 0])[0]
        false += value + deviation < 0.5
    assert 20 <= false <= 1000 * DELTA


def test_empty_sets_are_never_certified():
    sizes = sizes_of([50, 20, 30, 0])
    assert pair_deviation(sizes, WITHIN, GAP, DELTA) == inf
    assert pair_deviation(sizes, WITHIN, np.array([1.0, 0.0]), DELTA) < 1.0
    assert pair_deviation(sizes, WITHIN, np.zeros(2), DELTA) == 0.0
