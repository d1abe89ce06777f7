"""Which failure of several ranks is told, and how it travels."""

import pickle
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xgboost as xgb

from gbm_constrained.distributed.networks import (
    Outcome,
    RankTask,
    results_of,
    xgboost_network,
)
from gbm_constrained.distributed.ranks import Plan
from gbm_constrained.exceptions import MachineError

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
    assert [outcome.is_echo for outcome in outcomes] == [rank != 1 for rank in range(n)]
    assert [outcome.has_failed_first for outcome in outcomes] == [rank == 1 for rank in range(n)]
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
    with pytest.raises(MachineError, match="rank 2 of 3"):
        results_of([Outcome(1), Outcome(2), Outcome(failure=failure, is_echo=True)])


def test_the_error_survives_its_way_between_processes():
    error = RankTask(2, 4, {}, Plan("xgboost", {}), None).fail(ValueError("bad weights")).failure
    again = pickle.loads(pickle.dumps(error))
    assert (again.rank, again.size, again.host) == (2, 4, HOST)
    assert again.reason == "ValueError: bad weights"
    assert str(again) == str(error)
    assert again.__notes__ == error.__notes__
