"""Fits on the workers of a Dask cluster.

Each worker trains on the partitions that it holds. Partitions stay where the scheduler has placed
them, and workers that hold none take part without rows.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

from distributed import Client, Future, MultiLock, Scheduler, Worker, get_worker, wait
from distributed.comm import get_address_host

from gbm_constrained.data.communicator import Communicator
from gbm_constrained.distributed.dask_rows import DaskRows, PlacedRows
from gbm_constrained.distributed.outcomes import (
    Outcome,
    RankFunction,
    Seat,
    lightgbm_networks,
    result_of,
    tracking,
)
from gbm_constrained.distributed.rank import Plan, RankResult, Shard, train_rank
from gbm_constrained.distributed.shards import join_shards, renumber
from gbm_constrained.exceptions import MachineError

HEARTBEAT = 1.0  # Seconds between two looks at the workers that are still there.


def train(
    client: Client,
    rows: DaskRows,
    evaluation: Sequence[DaskRows],
    plan: Plan,
    function: RankFunction = train_rank,
) -> RankResult:
    """Train on the rows of Dask collections, each row on the worker that holds it.

    Parameters
    ----------
    client : Client
        Connected to the cluster, each worker of which takes part.
    rows : DaskRows
        Training rows. The number of a row is its position in the whole collection.
    evaluation : sequence of DaskRows
        Rows of the evaluation sets.
    plan : Plan
        The same for all workers.
    function : callable, default=train_rank
        Trains on the rows of one worker.

    Returns
    -------
    RankResult
        Result of the first worker.

    Raises
    ------
    MachineError
        If the function raises on a worker, or a worker is lost; names the worker.
    """
    placed, *sets = [PlacedRows.of(client, one) for one in (rows, *evaluation)]
    workers = placed.holders()
    if plan.library == "xgboost":  # LightGBM refuses machines without rows.
        workers += sorted(client.nthreads().keys() - workers)
    held = zip(*(one.assign(workers) for one in (placed, *sets)), strict=True)
    # Two fits that each hold some of the workers would never end.
    with MultiLock(workers, client), _tracking(client, len(workers)) as tracker:
        networks: list[dict[str, Any]] = [{}] * len(workers)
        if plan.library == "lightgbm":
            found = client.run(_find_address, workers=workers)
            networks = lightgbm_networks([found[worker] for worker in workers])
        ranks = []
        for rank, (worker, parts) in enumerate(zip(workers, held, strict=True)):
            seat = Seat(rank, len(workers), tracker, networks[rank])
            given = (_run, seat, list(parts), function, plan)
            ranks.append(client.submit(*given, workers=[worker], pure=False, retries=0))
        try:
            return result_of(_collect(client, ranks, workers))
        finally:
            client.cancel(ranks)


@contextmanager
def _tracking(client: Client, size: int) -> Iterator[dict[str, Any]]:
    """Track the ranks from the machine of the scheduler, which all workers can reach."""
    name = f"gbm_constrained-{uuid4()}"
    try:
        yield client.run_on_scheduler(_start_tracker, name, size)
    finally:
        client.run_on_scheduler(_stop_tracker, name)


_TRACKERS: dict[str, ExitStack] = {}  # In the process of a scheduler: the trackers of its fits.


def _start_tracker(name: str, size: int, dask_scheduler: Scheduler) -> dict[str, Any]:
    host = get_address_host(dask_scheduler.address)
    _TRACKERS[name] = ExitStack()
    return _TRACKERS[name].enter_context(tracking(size, host))


def _stop_tracker(name: str) -> None:
    _TRACKERS.pop(name).close()


def _find_address(dask_worker: Worker) -> tuple[str, int]:
    """Find the host of a worker, and a port of it that is free; Dask gives the argument."""
    with socket.create_server((dask_worker.ip, 0)) as server:
        return dask_worker.ip, server.getsockname()[1]


def _run(
    seat: Seat, held: list[list[tuple[Shard, int]]], function: RankFunction, plan: Plan
) -> Outcome:
    """Train on the rows of this worker; `held` are its partitions of each set of rows."""

    def work(communicator: Communicator) -> RankResult:
        shard, *sets = [join_shards([renumber(*part) for part in parts]) for parts in held]
        completed = seat.complete(plan, get_worker().state.nthreads)
        return function(replace(shard, evaluation=sets), completed, communicator)

    return seat.run(work)


def _collect(client: Client, ranks: list[Future], workers: list[str]) -> list[Outcome]:
    """Wait for the outcome of each rank, as long as there are all workers."""
    waiting = dict(enumerate(ranks))
    outcomes: dict[int, Outcome] = {}
    while waiting:
        try:
            wait(list(waiting.values()), timeout=HEARTBEAT, return_when="FIRST_COMPLETED")
        except TimeoutError:
            present = client.nthreads()
            for rank in waiting:
                if workers[rank] not in present:
                    reason = "this worker of Dask was lost: it was killed, or ran out of memory"
                    raise MachineError(rank, len(ranks), workers[rank], reason) from None
        for rank in [rank for rank, future in waiting.items() if future.done()]:
            outcomes[rank] = waiting.pop(rank).result()
            if outcomes[rank].has_failed_first:
                return [outcomes[rank]]  # The others end by themselves, at their next sum.
    return [outcomes[rank] for rank in range(len(ranks))]
