"""Plain processes on one computer, each of which runs a function on its own rows."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from time import monotonic
from typing import Any

from gbm_constrained.distributed.failures import FailureLine, collect_outcomes
from gbm_constrained.distributed.networks import NETWORKS, Seat
from gbm_constrained.exceptions import MachineError

EXIT_LIMIT = 2.0  # Seconds that a process has to end after its last word.


def run_processes(
    function: Callable[..., Any],
    shards: Sequence[Any],
    plan: Any,
    *,
    time_limit: float = 600.0,
) -> list[Any]:
    """Run ``function(shard, plan, communicator)`` in one new process for each shard.

    The processes are spawned, so that a script calls this under ``if __name__ == "__main__"``.
    They listen on the loopback address, and end with the calling process whatever ends it.

    Parameters
    ----------
    function : callable
        Function of a module, which a new process can import.
    shards : sequence of any
        What each rank works on; it is pickled once, on its way to its process.
    plan : dataclass instance
        What all ranks are told. Its field ``library`` names the network, "xgboost" or
        "lightgbm"; its field ``network``, a dict, is replaced by the native parameters that a
        rank needs to join it.
    time_limit : float, default=600.0
        Seconds that a rank waits for the others before it fails, at least 1. LightGBM's own
        waits end after whole minutes, at least one.

    Returns
    -------
    list
        Results by rank.

    Raises
    ------
    ValueError
        If there are no shards, the library is not known, or the time limit is too short.
    MachineError
        If a rank has raised or was lost. The error names it, and the traceback is a note.
    """
    if not shards:
        raise ValueError("shards is empty: pass one shard for each process")
    if plan.library not in NETWORKS:
        raise ValueError(f"plan.library is {plan.library!r}: choose one of {sorted(NETWORKS)}")
    if not time_limit >= 1:
        raise ValueError(f"time_limit is {time_limit!r}: pass at least 1 second")
    with NETWORKS[plan.library](len(shards), time_limit) as seats:
        ranks: list[tuple[SpawnProcess, Connection]] = []
        try:
            for seat, shard in zip(seats, shards, strict=True):
                ranks.append(_start(function, shard, plan, seat))
            processes, lines = zip(*ranks, strict=True)
            outcomes = collect_outcomes(
                list(lines), lambda rank: _describe_loss(processes[rank], rank, len(shards))
            )
        finally:
            _end(ranks)
    if outcomes.failure is not None:
        raise outcomes.failure
    return outcomes.by_rank


def _start(
    function: Callable[..., Any], shard: Any, plan: Any, seat: Seat
) -> tuple[SpawnProcess, Connection]:
    """Start the process of a rank; the connection ends when the process does."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(theirs, function, shard, plan, seat), daemon=True
    )
    with theirs:
        process.start()
    return process, ours


def _serve(
    connection: Connection, function: Callable[..., Any], shard: Any, plan: Any, seat: Seat
) -> None:
    """Be a rank: the whole life of its process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    echoes = seat.echoes()
    line = FailureLine(connection, seat.rank, seat.size, echoes)
    # What goes wrong on the way out of the network follows from a failure that is reported.
    with suppress(MachineError, *echoes), ExitStack() as network, line.guard():
        communicator, parameters = network.enter_context(seat.join())
        line.report(function(shard, replace(plan, network=parameters), communicator))


def _end_with_parent() -> None:
    """End this process if its parent ends without a word, wherever this process is then."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _describe_loss(process: SpawnProcess, rank: int, size: int) -> MachineError:
    """Say how a process has ended that has sent neither a result nor a failure."""
    process.join(EXIT_LIMIT)
    code = process.exitcode
    cause = f" ({signal.Signals(-code).name})" if code is not None and code < 0 else ""
    reason = f"process {process.pid} ended with exit code {code}{cause}"
    return MachineError(rank, size, socket.gethostname(), reason)


def _end(ranks: list[tuple[SpawnProcess, Connection]]) -> None:
    """Wait until all processes are gone; those that hang are killed."""
    end = monotonic() + EXIT_LIMIT
    for process, connection in ranks:
        process.join(max(end - monotonic(), 0))
        process.kill()
        process.join()
        connection.close()
