"""What ranks are told of each other's failures, over pipes between threads."""

import pickle
import socket
import time
from multiprocessing import Pipe

import numpy as np
import pytest
import xgboost as xgb
from networks import in_threads, run_on_collective

from gbm_constrained.distributed.ranks import (
    PATIENCE,
    FailureLine,
    collect_outcomes,
    describe_failure,
)
from gbm_constrained.exceptions import MachineError

HOST = socket.gethostname()


def lost(rank):
    return MachineError(rank, 3, HOST, "has gone")


def run_guarded(work, n, echoes=()):
    """Run guarded ranks in threads; what each has raised or returned, and the outcomes."""
    pipes = [Pipe() for _ in range(n)]

    def run(rank):
        with pipes[rank][1] as connection:
            line = FailureLine(connection, rank, n, echoes)
            with line.guard():
                result = work(rank, line)
                line.report(result)
            return result

    def act(rank):
        return run(rank) if rank < n else collect_outcomes([pipe[0] for pipe in pipes], lost)

    *ranks, outcomes = in_threads(act, n + 1)
    return ranks, outcomes


def test_results_are_collected_by_rank():
    ranks, outcomes = run_guarded(lambda rank, line: rank**2, 3)
    assert ranks == outcomes.by_rank == [0, 1, 4]
    assert outcomes.failure is None


def test_the_cause_is_raised_on_every_rank_and_not_its_echo():
    def work(rank, line):
        if rank == 1:
            raise ValueError("bad weights")
        raise KeyError("a sum has failed")  # What a broken communicator says.

    start = time.monotonic()
    ranks, outcomes = run_guarded(work, 3, echoes=(KeyError,))
    assert time.monotonic() - start < PATIENCE
    for error in (*ranks, *outcomes.by_rank, outcomes.failure):
        assert isinstance(error, MachineError)
        assert str(error) == f"rank 1 of 3 ({HOST}): ValueError: bad weights"
    assert isinstance(ranks[0].__cause__, KeyError)
    assert 'raise ValueError("bad weights")' in outcomes.failure.__notes__[0]


def test_an_error_that_looks_like_an_echo_is_reported_after_a_while():
    def work(rank, line):
        if rank == 2:
            raise KeyError("own")
        line.connection.poll(20)  # Still at work.
        raise MachineError(2, 3, "elsewhere", "closed its connection")

    ranks, outcomes = run_guarded(work, 3, echoes=(KeyError,))
    assert {str(error) for error in (*ranks, outcomes.failure)} == {
        f"rank 2 of 3 ({HOST}): KeyError: 'own'"
    }


def test_a_rank_without_a_word_is_lost():
    def work(rank, line):
        if rank == 1:
            line.connection.close()  # As the end of its process does.
        raise KeyError("a sum has failed")

    ranks, outcomes = run_guarded(work, 3, echoes=(KeyError,))
    assert str(ranks[0]) == str(ranks[2]) == f"rank 1 of 3 ({HOST}): has gone"
    assert str(outcomes.failure) == str(ranks[0])


def test_a_rank_that_hangs_is_not_waited_for():
    start = time.monotonic()
    ours, theirs = zip(*(Pipe() for _ in range(2)), strict=True)
    FailureLine(theirs[1], 1, 2).report(describe_failure(ValueError("bad weights"), 1, 2))
    outcomes = collect_outcomes(list(ours), lost)
    assert time.monotonic() - start < 2 * PATIENCE + 1
    assert outcomes.by_rank == [outcomes.failure] * 2
    assert "No answer from rank 0" in outcomes.failure.__notes__[-1]


def test_a_failure_that_is_told_is_not_told_as_ones_own():
    failure = MachineError(2, 4, "elsewhere", "ValueError: no")
    assert describe_failure(failure, 0, 4) is failure


def test_the_error_survives_its_way_between_processes():
    error = describe_failure(ValueError("bad weights"), 2, 4)
    again = pickle.loads(pickle.dumps(error))
    assert (again.rank, again.size, again.host) == (2, 4, HOST)
    assert again.reason == "ValueError: bad weights"
    assert str(again) == str(error)
    assert again.__notes__ == error.__notes__


@pytest.mark.parametrize("n", [2, 4])
def test_ranks_inside_boosting_hear_of_a_failure(n):
    """XGBoost's own sums break, in C++, on all ranks but the one that has raised."""
    pipes = [Pipe() for _ in range(n)]
    X = np.arange(40.0).reshape(20, 2)

    def objective(communicator):
        rounds = iter(range(100))

        def gradients(scores, data):
            if communicator.rank == 1 and next(rounds) == 5:
                raise ValueError("bad weights")
            communicator.sum(np.ones(3))
            return scores - data.get_label(), np.ones_like(scores)

        return gradients

    def work(communicator):
        line = FailureLine(
            pipes[communicator.rank][1], communicator.rank, n, (xgb.core.XGBoostError,)
        )
        with line.guard():
            matrix = xgb.DMatrix(X, label=X[:, 0] > 20)
            xgb.train({"nthread": 1}, matrix, 100, obj=objective(communicator))

    def act(part):
        if part:
            return collect_outcomes([pipe[0] for pipe in pipes], lost)
        with pytest.raises(MachineError):
            run_on_collective(work, n)
        return None

    start = time.monotonic()
    _, outcomes = in_threads(act, 2)
    assert time.monotonic() - start < 10
    assert {str(error) for error in outcomes.by_rank} == {
        f"rank 1 of {n} ({HOST}): ValueError: bad weights"
    }
