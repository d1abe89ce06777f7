"""The table of pairs, against counting of all pairs and against scikit-learn's AUC."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_references import count_pairs
from sklearn.metrics import roc_auc_score

from gbm_constrained.problem.pairs import pair_rate, pair_table

EXACT = 1e-12


@st.composite
def rows(draw):
    """Draw scores with ties and infinities, cells with empty ones, and weights with zeros."""
    n = draw(st.integers(0, 200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_cells = draw(st.integers(1, 6))
    scores = rng.normal(size=n).round(draw(st.sampled_from([0, 1, 12])))
    for extreme in draw(st.sets(st.sampled_from([-np.inf, np.inf]))):
        scores[rng.random(n) < 0.1] = extreme
    cells = rng.integers(0, draw(st.integers(1, n_cells)), n)
    weight = rng.uniform(0.0, 3.0, n) * (rng.random(n) < 0.8)
    return scores, cells, weight, n_cells


@given(rows(), st.sampled_from([1, 7, 1 << 18]))
@settings(max_examples=60, deadline=None)
def test_every_entry_is_the_count_of_all_pairs(case, entries):
    scores, cells, weight, n_cells = case
    with pytest.MonkeyPatch.context() as patch:
        # Blocks of few scores: what one block leaves to the next is part of the sum.
        patch.setattr("gbm_constrained.problem.pairs.ENTRIES", entries)
        table = pair_table(scores, cells, weight, n_cells)
    counted = [
        [count_pairs(scores, cells == c, cells == d, weight) for d in range(n_cells)]
        for c in range(n_cells)
    ]
    np.testing.assert_allclose(table, counted, rtol=0, atol=EXACT)
    known = ~np.isnan(table)
    np.testing.assert_allclose((table + table.T)[known], 1.0, rtol=0, atol=EXACT)


@given(rows(), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_pair_rates_of_overlapping_unions_are_the_count_of_all_pairs(case, seed):
    scores, cells, weight, n_cells = case
    u, v = np.random.default_rng(seed).random((2, n_cells)) < 0.6
    of_cells = np.bincount(cells, weight, n_cells)
    rate = pair_rate(pair_table(scores, cells, weight, n_cells), of_cells * u, of_cells * v)
    expected = count_pairs(scores, u[cells], v[cells], weight)
    np.testing.assert_allclose(rate, expected, rtol=0, atol=EXACT)


@given(rows(), st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_binned_tables_are_within_their_bound(case, bins):
    scores, cells, weight, n_cells = case
    exact = pair_table(scores, cells, weight, n_cells)
    binned = pair_table(scores, cells, weight, n_cells, bins=bins)
    finite = scores[np.isfinite(scores)]
    if not finite.size or np.ptp(finite) == 0:
        np.testing.assert_array_equal(binned, exact)
        return
    width = np.ptp(finite) / bins
    inside = np.clip(scores, finite.min() - width, finite.max() + width)
    at = np.floor((inside - finite.min()) / width)
    shares = np.zeros((n_cells, bins + 3))
    np.add.at(shares, (cells, at.astype(int) + 1), weight)
    with np.errstate(invalid="ignore"):
        shares /= shares.sum(axis=1, keepdims=True)
    known = ~np.isnan(exact)
    assert (known == ~np.isnan(binned)).all()
    bound = 0.5 * shares @ shares.T
    assert (np.abs(binned - exact)[known] <= bound[known] + EXACT).all()


def test_many_bins_come_close_to_the_exact_table():
    rng = np.random.default_rng(0)
    scores, cells = rng.normal(size=50_000), rng.integers(0, 8, 50_000)
    error = np.abs(
        pair_table(scores, cells, None, 8, bins=4096) - pair_table(scores, cells, None, 8)
    )
    assert error.max() < 2e-5


@pytest.fixture
def population():
    """Make scores with ties, labels, groups of two kinds and weights."""
    rng = np.random.default_rng(3)
    n = 300
    y, group = rng.integers(0, 2, n), rng.integers(0, 2, n)
    scores = (rng.normal(size=n) + y + 0.5 * group).round(1)
    return scores, y, group, rng.uniform(0.2, 2.0, n)


def rate_between(scores, weight, u, v):
    """Compute the pair rate of two masks by the table over the cells that they make."""
    cells = 2 * u.astype(int) + v
    of_cells = np.bincount(cells, weight, 4)
    table = pair_table(scores, cells, weight, 4)
    return pair_rate(table, of_cells * [0, 0, 1, 1], of_cells * [0, 1, 0, 1])


def test_auc_is_that_of_scikit_learn(population):
    scores, y, group, weight = population
    for inside in (np.ones(y.size, bool), group == 0, group == 1):
        found = rate_between(scores, weight, inside & (y == 1), inside & (y == 0))
        of_rows = y[inside], scores[inside]
        expected = roc_auc_score(*of_rows, sample_weight=weight[inside])
        assert found == pytest.approx(expected, rel=0, abs=EXACT)


def test_mean_ranks_of_two_groups_differ_by_their_auc_less_one_half(population):
    scores, _, group, weight = population
    everyone = np.ones(group.size, bool)
    ranks = [rate_between(scores, weight, group == g, everyone) for g in (0, 1)]
    auc = roc_auc_score(group, scores, sample_weight=weight)
    assert ranks[1] - ranks[0] == pytest.approx(auc - 0.5, rel=0, abs=EXACT)


def test_average_equality_gap_is_a_mean_rank_among_positives_less_one_half(population):
    scores, y, group, weight = population
    positive = y == 1
    rank = rate_between(scores, weight, positive & (group == 1), positive)
    percentile = [
        weight[positive] @ ((scores[positive] < s) + 0.5 * (scores[positive] == s))
        for s in scores[positive]
    ]
    of_group = np.where(group[positive] == 1, weight[positive], 0.0)
    mean = of_group @ percentile / of_group.sum() / weight[positive].sum()
    assert rank == pytest.approx(mean, rel=0, abs=EXACT)
    assert rate_between(scores, weight, positive, positive) == pytest.approx(0.5, abs=EXACT)


def test_background_aucs_of_the_complement_are_the_cross_aucs_of_two_groups(population):
    scores, y, group, weight = population

    def auc(positives, negatives):
        return rate_between(scores, weight, positives & (y == 1), negatives & (y == 0))

    background_positive, background_negative = (
        auc(group != 1, group == 1),
        auc(group == 1, group != 1),
    )
    pairs = [
        roc_auc_score(y[inside], scores[inside], sample_weight=weight[inside])
        for inside in (
            ((group == 1) & (y == 1)) | ((group == 0) & (y == 0)),
            ((group == 0) & (y == 1)) | ((group == 1) & (y == 0)),
        )
    ]
    assert background_negative == pytest.approx(pairs[0], abs=EXACT)
    assert background_positive == pytest.approx(pairs[1], abs=EXACT)


@pytest.mark.parametrize("bins", [None, 64])
def test_tables_do_not_depend_on_order_names_scale_and_location(population, bins):
    scores, y, group, weight = population
    cells = 2 * group + y
    table = pair_table(scores, cells, weight, 4, bins=bins)
    order = np.random.default_rng(0).permutation(y.size)
    moved = pair_table(scores[order], cells[order], weight[order], 4, bins=bins)
    renamed = pair_table(scores, np.array([2, 3, 0, 1])[cells], weight, 4, bins=bins)
    doubled = pair_table(scores, cells, 2 * weight, 4, bins=bins)
    for other in (moved, renamed[[2, 3, 0, 1]][:, [2, 3, 0, 1]], doubled):
        np.testing.assert_allclose(other, table, rtol=0, atol=EXACT)
    shifted = pair_table(scores + 4.0, cells, weight, 4)
    np.testing.assert_allclose(shifted, pair_table(scores, cells, weight, 4), rtol=0, atol=EXACT)


def test_whole_weights_are_copies_of_rows(population):
    scores, y, _, _ = population
    times = np.random.default_rng(1).integers(0, 4, y.size)
    copies = pair_table(np.repeat(scores, times), np.repeat(y, times), None, 2)
    np.testing.assert_allclose(pair_table(scores, y, times, 2), copies, rtol=0, atol=EXACT)


def test_equal_scores_are_all_ties():
    table = pair_table(np.full(5, 7.0), np.array([0, 0, 2, 2, 2]), None, 3)
    np.testing.assert_array_equal(table[[0, 0, 2, 2], [0, 2, 0, 2]], 0.5)
    assert np.isnan(table[1]).all()
    assert np.isnan(table[:, 1]).all()


def test_unions_without_weight_have_no_rate():
    table = pair_table(np.arange(4.0), np.array([0, 0, 1, 1]), None, 2)
    assert np.isnan(pair_rate(table, [2.0, 0.0], [0.0, 0.0]))
    assert pair_rate(table, [2.0, 0.0], [0.0, 2.0]) == 0.0


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="1 of 3 are NaN"):
        pair_table(np.array([0.0, np.nan, 1.0]), np.zeros(3, int), None, 1)
