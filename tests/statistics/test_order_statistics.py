"""Certified thresholds, and thresholds in expectation."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import Data, by, random
from dealt_rows import measure_deals
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import gbm_constrained as gc
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.order_statistics import (
    expected_bounds,
    expected_rank,
    expected_threshold,
    kth_smallest,
    minimum_rows,
    umbrella_rank,
    umbrella_threshold,
)


@pytest.mark.parametrize(
    ("bound", "delta", "rows"), [(0.05, 0.05, 59), (0.1, 0.05, 29), (0.01, 0.05, 299)]
)
def test_the_fewest_rows(bound, delta, rows):
    """The numbers that are quoted; and they are the fewest."""
    assert minimum_rows(bound, delta) == rows == umbrella_rank(rows, bound, delta)
    message = rf"bound of {bound:g} cannot be certified .* on {rows - 1} rows: it needs {rows} at"
    with pytest.raises(ValueError, match=message):
        umbrella_rank(rows - 1, bound, delta)
    with pytest.raises(ValueError, match="bound must lie strictly between 0 and 1, got 1"):
        minimum_rows(1, delta)


@pytest.mark.parametrize("bound", [0.01, 0.05, 0.3, 0.8])
@pytest.mark.parametrize("delta", [0.01, 0.1, 0.5])
def test_the_rank_by_brute_force(bound, delta):
    fewest = minimum_rows(bound, delta)
    for n in (fewest, fewest + 1, fewest + 17, 1000):
        tails = stats.binom.sf(np.arange(n), n, 1 - bound)  # from k = 1 on
        expected = 1 + int(np.flatnonzero(tails <= delta)[0])
        assert umbrella_rank(n, bound, delta) == expected


@pytest.mark.parametrize("bound", [0.0, 1.0, -0.1, 1.1, np.nan, None, "x"])
def test_a_bound_in_expectation_is_a_probability(bound):
    message = f"bound must lie strictly between 0 and 1, got {bound!r}"
    with pytest.raises(ValueError, match=message):
        expected_rank(100, bound)


@pytest.mark.parametrize("n", [1, 9, 100])
def test_the_rank_in_expectation_by_exact_fractions(n):
    """``k >= (n + 1)(1 - bound)``, from the smallest score, where all bounds lie in (0, 1)."""
    for m in range(1, n + 1):
        assert expected_rank(n, m / (n + 1)) == n + 1 - m
    assert expected_rank(n, 1.0 - 1e-12) == 1
    with pytest.raises(ValueError, match=f"by {n} rows: it needs {n + 1} at least"):
        expected_rank(n, 1 / (n + 2))


def test_the_umbrella_threshold_is_the_lowest_certified_one():
    """By the exact p-values of the thresholds at each score; ties do no harm."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=300)
    threshold = umbrella_threshold(scores, 0.1, 0.05)
    above = (scores > scores[:, None]).sum(axis=1)
    p = np.array([stats.binomtest(int(e), 300, 0.1, "less").pvalue for e in above])
    assert threshold == scores[p <= 0.05].min()
    draws = np.floor(10 * rng.random((2000, 80)))  # the rate above t is 1 - (t + 1) / 10
    thresholds = [umbrella_threshold(d, 0.2, 0.1) for d in draws]
    assert np.mean(np.array(thresholds) < 7.0) <= 0.1 + 3 * np.sqrt(0.1 / 2000)
    with pytest.raises(ValueError, match="scores must be one-dimensional and not NaN"):
        umbrella_threshold([np.nan] * 100, 0.1, 0.05)


def test_expected_bounds_are_those_of_the_empirical_rate_plus_one():
    """``(n r + 1) / (n + 1) <= bound``, from above and below; gaps by both groups' slack."""
    data = Data(8)
    n = (data.y == 0).sum()
    rules = [gc.fpr() <= 0.1, gc.tnr() >= 0.9, by(gc.fpr()) <= 0.1, by(2 * gc.fpr()) <= 0.3]
    compiled, counts = data.measured(*rules)
    bounds = expected_bounds(compiled, counts)
    assert bounds[0] == pytest.approx((0.1 * (n + 1) - 1) / n)
    assert bounds[1] == pytest.approx(bounds[0] - 1.0)  # of minus the rate of true negatives
    sizes = [((data.y == 0) & (data.sex == sex)).sum() for sex in "FM"]
    slack = sum(1 / (n + 1) for n in sizes)
    assert bounds[2:4] == pytest.approx(0.1 - slack)
    assert bounds[4:] == pytest.approx(0.3 - 2 * slack)


def test_the_expected_threshold_holds_in_expectation():
    """Lowest threshold that meets the tightened bound: the mean of true rates is at most it."""
    rng = np.random.default_rng(0)
    n, bound = 50, 0.1
    compiled, counts = Data().measured(gc.fpr() <= bound)
    table = np.zeros_like(counts.weight)
    table[0, 0] = n
    allowed = int(expected_bounds(compiled, CellCounts(table, table, table))[0] * n + 1e-9)
    scores = np.sort(rng.random((20000, n)), axis=1)
    rates = 1.0 - scores[:, n - 1 - allowed]
    assert rates.mean() <= bound + 3 * rates.std() / np.sqrt(20000)
    assert rates.mean() > 0.07
    plain = 1.0 - scores[:, n - 1 - int(bound * n)]
    assert plain.mean() > bound + 0.01


def draw_scores(seed, n=80):
    """Scores of all magnitudes and signs, with ties, zeros of both signs, and infinities."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, n)
    x[::3] = np.round(rng.normal(size=x[::3].size), 1)
    x[:5] = [0.0, -0.0, np.inf, -np.inf, 5e-324]
    return x


@random(20)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_kth_smallest_is_that_of_a_sort(seed):
    x = draw_scores(seed)
    ranks = [1, 2, 40, 79, 80]

    def measure(at, communicator):
        return [kth_smallest(x[at], k, communicator) for k in ranks]

    expected = np.sort(x)[np.array(ranks) - 1]
    np.testing.assert_array_equal(measure_deals(measure, x.size, seed), expected)


def test_no_score_travels():
    """Each search adds eight tables of counts, however many scores there are."""
    x = draw_scores(0)

    def measure(at, communicator):
        kth_smallest(x[at], 7, communicator)
        return [np.array(communicator.shapes)]

    assert measure_deals(measure, x.size)[0].tolist() == [[256]] * 8


@pytest.mark.parametrize("n", [20, 300])
def test_thresholds_of_all_machines_are_those_of_all_scores(n):
    x = np.random.default_rng(n).normal(size=n).round(2)
    thresholds = [
        lambda scores, **machine: expected_threshold(scores, 0.1, **machine),
        lambda scores, **machine: umbrella_threshold(scores, 0.2, 0.05, **machine),
    ]
    for threshold in thresholds:

        def measure(at, communicator, threshold=threshold):
            return [threshold(x[at], communicator=communicator)]

        assert measure_deals(measure, n)[0] == threshold(x)


def test_too_few_scores_of_all_machines_are_refused():
    x = np.random.default_rng(0).normal(size=8)
    with pytest.raises(ValueError, match="by 8 rows: it needs 9 at least"):
        measure_deals(lambda at, machine: [expected_threshold(x[at], 0.1, machine)], 8)
