"""The network of all launchers: sums, values of any kind, and which failure is told."""

import pickle
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import run_on_collective

from gbm_constrained.data.exact_sums import is_any
from gbm_constrained.distributed.networks import RankTask, results_of, xgboost_network
from gbm_constrained.distributed.ranks import Plan
from gbm_constrained.exceptions import MachineError

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


HOST = socket.gethostname()
X = np.arange(40.0).reshape(20, 2)


def outcomes_of(function, n, plan=Plan("xgboost", {})):  # noqa: B008 - it is frozen
    """Run a function on ranks that are threads."""
    with xgboost_network(n) as tracker, ThreadPoolExecutor(n) as pool:
        tasks = [RankTask(rank, n, tracker, plan, function) for rank in range(n)]
        return list(pool.map(lambda task: task.run(lambda: X), tasks))


def test_results_are_by_rank():
    outcomes = outcomes_of(lambda shard, plan, ranks: ranks.rank + len(shard), 3)
    assert results_of(outcomes) == [20, 21, 22]


@pytest.mark.parametrize("n", [2, 4])
def test_the_cause_is_raised_and_not_its_echoes(n):
    """XGBoost's own sums break, in C++, on all ranks but the one that has raised."""

    def boost(shard, plan, ranks):
        rounds = iter(range(100))

        def gradients(scores, data):
            if ranks.rank == 1 and next(rounds) == 5:
                raise ValueError("bad weights")
            ranks.sum(np.ones(3))
            return scores - data.get_label(), np.ones_like(scores)

        matrix = xgb.DMatrix(shard, label=shard[:, 0] > 20)
        xgb.train({"nthread": 1}, matrix, 100, obj=gradients)

    outcomes = outcomes_of(boost, n)
    assert [failure.is_echo for failure in outcomes] == [rank != 1 for rank in range(n)]
    with pytest.raises(MachineError) as raised:
        results_of(outcomes)
    assert str(raised.value) == f"rank 1 of {n} ({HOST}): ValueError: bad weights"
    assert 'raise ValueError("bad weights")' in raised.value.__notes__[0]


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_errors_of_the_network_of_a_library_may_be_echoes(library):
    from lightgbm.basic import LightGBMError

    task = RankTask(0, 2, {}, Plan(library, {}), None)
    assert task.fail(LightGBMError("socket")).is_echo == (library == "lightgbm")
    assert task.fail(xgb.core.XGBoostError("socket")).is_echo


def test_an_echo_without_a_cause_is_the_failure():
    failure = MachineError(2, 3, HOST, "XGBoostError: a sum has failed")
    failure.is_echo = True
    with pytest.raises(MachineError, match="rank 2 of 3"):
        results_of([1, 2, failure])


def test_the_error_survives_its_way_between_processes():
    error = RankTask(2, 4, {}, Plan("xgboost", {}), None).fail(ValueError("bad weights"))
    again = pickle.loads(pickle.dumps(error))
    assert (again.rank, again.size, again.host) == (2, 4, HOST)
    assert again.reason == "ValueError: bad weights"
    assert str(again) == str(error)
    assert again.__notes__ == error.__notes__
