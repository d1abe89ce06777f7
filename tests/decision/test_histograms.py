"""Histograms of scores, against counts of the rows themselves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import run_on_machines
from shift_problems import EXACT, Problem, random, seeds

from gbm_constrained.data.exact_sums import Communicator, round_weights
from gbm_constrained.decision.histograms import (
    Candidates,
    JointRows,
    ScoreHistogram,
    add_counts,
    edges_between,
)
from gbm_constrained.decision.violations import ErrorAndViolations

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")

KINDS = np.array([0, 0, 1])  # Strata of three kinds.


def draw(seed, n):
    """Scores of very different sizes, of which some tie, with kinds and weights."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n) * 10.0 ** rng.uniform(-3, 3, n)
    scores[::4] = np.round(scores[::4])
    return scores, rng.integers(0, 3, n), rng.integers(1, 2**20, n) / 2**10


def histogram_of(data, index, communicator, size=None):
    scores, kinds, weight = (x[index] for x in data)
    weight = round_weights(weight, communicator)
    return ScoreHistogram(scores, kinds, KINDS, weight, communicator, data[0].size, size)


@random(25)
@given(seed=seeds, n=st.integers(1, 3000), splits=st.integers(0, 3))
def test_bins_have_the_rows_between_their_edges(seed, n, splits):
    data = draw(seed, n)
    table = histogram_of(data, slice(None), Communicator())
    rng = np.random.default_rng(seed)
    for _ in range(splits):
        wide = np.flatnonzero((table.high > table.low)[table.bins])
        if wide.size:
            chosen = rng.choice(wide, min(wide.size, 5), replace=False)
            table = table.split(np.isin(np.arange(table.bins.size), chosen))
    assert 0.0 in table.edges
    assert (np.diff(table.edges) > 0).all()
    scores, kinds, weight = data
    bins = np.searchsorted(table.edges, scores)
    for b in range(table.edges.size + 1):
        inside = bins == b
        np.testing.assert_array_equal(
            table.tables[0][:, b], np.bincount(kinds[inside], minlength=3)
        )
        own = np.bincount(kinds[inside], weight[inside], 3)
        np.testing.assert_array_equal(table.tables[1][:, b], own)
        assert table.low[b] == np.min(scores[inside], initial=np.inf)
        assert table.high[b] == np.max(scores[inside], initial=-np.inf)


@random(30)
@given(seed=seeds, n=st.integers(0, 500), size=st.booleans())
def test_tables_are_the_same_on_any_machines(seed, n, size):
    data = draw(seed, n + 1)
    rng = np.random.default_rng(seed)
    found = []
    for m in (1, 2, 4):
        deal = rng.integers(0, m, n + 1)

        def work(communicator, deal=deal):
            index = rng.permutation(np.flatnonzero(deal == communicator.rank))
            magnitude = 2.0 * np.abs(data[0][index]) if size else None
            table = histogram_of(data, index, communicator, magnitude)
            table = table.split(np.arange(table.bins.size) >= table.bins.size - 3)
            return table.edges, table.tables, table.low, table.high, table.size, table.weight

        found += run_on_machines(work, m)
    for one in found:
        for array, expected in zip(one, found[0], strict=True):
            np.testing.assert_array_equal(array, expected)


def test_bins_divide_each_stratum_evenly():
    """A rare class, whose scores are among the largest of the other."""
    rng = np.random.default_rng(0)
    n, rare = 100_000, 500
    scores = np.concatenate([rng.normal(size=n), rng.normal(4.0, 0.3, rare)])
    kinds = np.repeat([0, 2], [n, rare])
    table = ScoreHistogram(scores, kinds, KINDS, None, Communicator(), scores.size)
    assert table.edges.size <= 512
    assert (table.tables[0][0] / n).max() < 0.01
    assert (table.tables[0][2] / rare).max() < 0.04


@random(40)
@given(low=st.floats(-1e300, 1e300), high=st.floats(-1e300, 1e300), parts=st.integers(2, 600))
def test_edges_lie_between_the_ends(low, high, parts):
    low, high = sorted([low, high])
    edges = edges_between(low, high, parts)
    assert ((edges >= low) & (edges < high)).all()
    assert (np.diff(edges) > 0).all()
    if high - low > 1e-6 * max(abs(low), abs(high), 1.0):
        assert edges.size == parts - 1


def test_three_splits_separate_any_two_scores_that_count_as_different():
    """Between the outermost floats, by bins as equally wide as the scores' resolution is."""
    scores = np.array([-1e300, -1.00002, -1.0, 0.0, 2e-5, 1e-3, 5.0, 5.0001, 1e300])
    kinds = np.zeros(scores.size, dtype=np.intp)
    table = ScoreHistogram(scores, kinds, np.zeros(1, int), None, Communicator(), 9)
    for _ in range(3):
        is_wide = (table.high > table.low)[table.bins]
        if is_wide.any():
            table = table.split(is_wide)
    assert (table.low == table.high)[table.bins].all()


@random(15)
@given(seed=seeds, many=st.booleans(), weighted=st.booleans())
def test_values_between_stops_stay_within_their_bounds(seed, many, weighted):
    """Rows of each stretch in all orders that come up: values and violations are not less."""
    problem = Problem(seed, weighted=weighted)
    cells, compiled = problem.compiled(problem.rules(many))
    merits = ErrorAndViolations(cells, compiled, compiled.b)
    order = np.argsort(-problem.margin)
    flipped = np.append(np.arange(0, problem.n, 7), problem.n)
    line = Candidates(order, 0, 1, np.zeros(flipped.size), flipped)
    low, high = (np.concatenate(x, axis=1) for x in zip(*merits.linear.between(line), strict=True))
    least, _ = merits.violations(low, high)
    for k, (first, last) in enumerate(pairwise(flipped)):
        for _ in range(5):
            decided = np.zeros(problem.n, dtype=np.intp)
            decided[order[:first]] = 1
            inside = order[first:last]
            decided[inside] = problem.rng.integers(0, 2, inside.size)
            values = merits.linear.measure(decided)
            assert (values >= low[:, k] - 1e-12).all()
            assert (values <= high[:, k] + 1e-12).all()
            assert merits.measure(decided)[1] >= least[k] - 1e-12


def test_bounds_are_reached_by_one_row():
    """A stretch of one row has its values at both ends, and no others."""
    problem = Problem(3)
    cells, compiled = problem.compiled(problem.rules())
    merits = ErrorAndViolations(cells, compiled, compiled.b)
    order = np.argsort(-problem.margin)
    line = Candidates(order, 0, 1, np.zeros(problem.n + 1), np.arange(problem.n + 1))
    low, high = (np.concatenate(x, axis=1) for x in zip(*merits.linear.between(line), strict=True))
    values = np.concatenate([*merits.linear.along(line)], axis=1)
    np.testing.assert_allclose(low, np.minimum(values[:, :-1], values[:, 1:]), **EXACT)
    np.testing.assert_allclose(high, np.maximum(values[:, :-1], values[:, 1:]), **EXACT)


@pytest.mark.parametrize("n", [1, 50])
def test_a_machine_that_holds_few_rows_has_a_table(n):
    problem = Problem(0)
    cells, _ = problem.compiled(problem.rules())
    rows, margin = JointRows(cells.take(np.arange(n))), problem.margin[:n]
    joint, one = rows.joint, Communicator()
    table = ScoreHistogram(margin, joint.codes, joint.labels, rows.weight, one, n, rows=rows)
    assert table.count.sum() == n


@pytest.mark.parametrize("n_rows", [2**26 - 1, 2**26])
@pytest.mark.parametrize("size", [1, 4, 5])
def test_counts_add_up_exactly_however_many_rows_there_are(n_rows, size):
    """Two counts travel in one number while both fit in, and each one by itself beyond that."""
    counts = np.zeros((2, size), dtype=np.intp)
    counts[0, -1], counts[1, -1] = n_rows - 10, 3
    counts[1, 0] += 7

    def work(communicator):
        total = add_counts(counts[communicator.rank], communicator, n_rows)
        return total, communicator.shapes[0]

    for total, shape in run_on_machines(work, 2):
        np.testing.assert_array_equal(total, counts.sum(axis=0))
        assert shape == ((size + 1) // 2 if n_rows < 2**26 else size,)
