"""The communicator over XGBoost's network: sums, and values of any kind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import run_on_collective

from gbm_constrained.data.exact_sums import is_any

SIZES = pytest.mark.parametrize("n", [1, 2, 4])


def table_of(rank, shape=(3, 2)):
    return np.asarray(np.random.default_rng(rank).integers(-(2**40), 2**40, shape) * 2.0**-30)


@SIZES
def test_a_sum_of_exact_numbers_is_the_sum_and_leaves_the_tables(n):
    tables = [table_of(rank) for rank in range(n)]

    def work(communicator):
        return communicator.rank, communicator.size, communicator.sum(tables[communicator.rank])

    expected = sum(table_of(rank) for rank in range(n))
    for rank, (found_rank, size, total) in enumerate(run_on_collective(work, n)):
        assert (found_rank, size) == (rank, n)
        assert total.dtype == np.float64
        np.testing.assert_array_equal(total, expected)
        np.testing.assert_array_equal(tables[rank], table_of(rank))


@SIZES
def test_ranks_hold_the_same_bits_of_an_inexact_sum(n):
    totals = run_on_collective(lambda c: c.sum(np.random.default_rng(c.rank).normal(size=1000)), n)
    for total in totals[1:]:
        np.testing.assert_array_equal(total, totals[0])


@SIZES
def test_values_of_any_size_are_collected_by_rank(n):
    values = [{"group": "ä" * 5 * rank, "rows": rank or None} for rank in range(n)]
    for found in run_on_collective(lambda c: c.gather(values[c.rank]), n):
        assert found == values


def test_a_condition_on_one_machine_holds_on_any():
    found = run_on_collective(lambda c: (is_any(c, c.rank == 1), is_any(c, False)), 2)
    assert found == [(True, False)] * 2


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=4),
    st.integers(0, 2**31),
)
def test_sums_of_any_series_of_tables(n, shapes, seed):
    def work(communicator):
        return [communicator.sum(table_of(seed + communicator.rank, shape)) for shape in shapes]

    expected = [sum(table_of(seed + rank, shape) for rank in range(n)) for shape in shapes]
    for found in run_on_collective(work, n):
        assert len(found) == len(expected)
        for total, reference in zip(found, expected, strict=True):
            np.testing.assert_array_equal(total, reference)
