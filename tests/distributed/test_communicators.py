"""Both communicators over a network: sums, values, and what they count."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import run_on_collective, run_on_star

from gbm_constrained.data.exact_sums import is_any
from gbm_constrained.distributed.networks import MeasuredCommunicator

NETWORKS = pytest.mark.parametrize("run", [run_on_star, run_on_collective])
SIZES = pytest.mark.parametrize("n", [1, 2, 4])


def table_of(rank, shape=(3, 2)):
    return np.asarray(np.random.default_rng(rank).integers(-(2**40), 2**40, shape) * 2.0**-30)


@NETWORKS
@SIZES
def test_a_sum_of_exact_numbers_is_the_sum(run, n):
    def work(communicator):
        return communicator.rank, communicator.size, communicator.sum(table_of(communicator.rank))

    expected = sum(table_of(rank) for rank in range(n))
    for rank, (found_rank, size, total) in enumerate(run(work, n)):
        assert (found_rank, size) == (rank, n)
        assert total.dtype == np.float64
        np.testing.assert_array_equal(total, expected)


@NETWORKS
def test_the_table_of_a_rank_is_not_changed(run):
    tables = [table_of(rank) for rank in range(2)]
    run(lambda c: c.sum(tables[c.rank]), 2)
    for rank in range(2):
        np.testing.assert_array_equal(tables[rank], table_of(rank))


@NETWORKS
@SIZES
def test_ranks_hold_the_same_bits_of_an_inexact_sum(run, n):
    totals = run(lambda c: c.sum(np.random.default_rng(c.rank).normal(size=1000)), n)
    for total in totals[1:]:
        np.testing.assert_array_equal(total, totals[0])


def test_a_star_adds_in_the_order_of_ranks():
    values = [1.0, 1e100, 1.0, -1e100]
    for total in run_on_star(lambda c: c.sum(np.array(values[c.rank])), 4):
        assert total == ((values[0] + values[1]) + values[2]) + values[3] == 0
        assert total.shape == ()


@NETWORKS
@SIZES
def test_values_of_any_size_are_collected_by_rank(run, n):
    values = [{"group": "ä" * 5 * rank, "rows": rank or None} for rank in range(n)]
    for found in run(lambda c: c.gather(values[c.rank]), n):
        assert found == values


@NETWORKS
def test_a_condition_on_one_machine_holds_on_any(run):
    assert run(lambda c: (is_any(c, c.rank == 1), is_any(c, False)), 2) == [(True, False)] * 2


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=4),
    st.integers(0, 2**31),
)
def test_both_networks_agree_on_any_series_of_tables(n, shapes, seed):
    def work(communicator):
        return [communicator.sum(table_of(seed + communicator.rank, shape)) for shape in shapes]

    expected = [sum(table_of(seed + rank, shape) for rank in range(n)) for shape in shapes]
    for run in (run_on_star, run_on_collective):
        for found in run(work, n):
            assert len(found) == len(expected)
            for total, reference in zip(found, expected, strict=True):
                np.testing.assert_array_equal(total, reference)


@NETWORKS
@pytest.mark.parametrize("barrier", [False, True])
def test_calls_bytes_and_seconds_are_counted(run, barrier):
    def work(communicator):
        measured = MeasuredCommunicator(communicator, barrier=barrier)
        total = measured.sum(np.ones((12, 2)))
        measured.gather("abc")
        assert (measured.rank, measured.size) == (communicator.rank, 2)
        assert measured.holds_all_rows is False
        np.testing.assert_array_equal(total, 2 * np.ones((12, 2)))
        return measured.n_calls, measured.n_bytes, measured.seconds

    for n_calls, n_bytes, seconds in run(work, 2):
        assert n_calls == 2
        assert 12 * 2 * 8 + 3 < n_bytes < 12 * 2 * 8 + 50
        assert 0 < seconds < 5


def test_a_barrier_leaves_out_the_wait_for_a_slow_machine():
    def work(communicator, barrier):
        measured = MeasuredCommunicator(communicator, barrier=barrier)
        time.sleep(0.4 * communicator.rank)
        measured.sum(np.ones(3))
        return measured.seconds

    waiting = run_on_star(lambda c: work(c, barrier=False), 2)
    free = run_on_star(lambda c: work(c, barrier=True), 2)
    assert waiting[0] > 0.3
    assert free[0] < 0.2
