"""Fits on the workers of a Dask cluster.

Each worker trains on the partitions that it holds. Partitions stay where the scheduler has placed
them, and workers that hold none take part without rows.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from distributed import Client, Future, MultiLock, get_worker, wait
from distributed.comm import get_address_host

from gbm_constrained.distributed.dask_rows import DaskRows, PlacedRows
from gbm_constrained.distributed.outcomes import (
    Outcome,
    RankFunction,
    Seat,
    lightgbm_networks,
    make_tracker,
    result_of,
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
    placed = PlacedRows.of(client, rows)
    sets = [PlacedRows.of(client, one) for one in evaluation]
    # The worker of the first partition comes first. Others follow in an order of no meaning.
    workers = sorted(client.nthreads(), key=lambda worker: (worker != placed.workers[0], worker))
    with MultiLock(workers, client):  # Two fits that each hold some workers would never end.
        ranks = []
        for worker, seat in zip(workers, _seats(client, workers, plan), strict=True):
            held = placed.on(worker), [one.on(worker) for one in sets]
            # A key of its own makes the scheduler compute anew, and a retry would find no peers.
            ranks.append(
                client.submit(
                    _run, seat, function, plan, *held, workers=[worker], pure=False, retries=0
                )
            )
        try:
            return result_of(_collect(client, ranks, workers))
        finally:
            client.cancel(ranks)


def _seats(client: Client, workers: list[str], plan: Plan) -> list[Seat]:
    """Give each worker its place among the others."""
    n = len(workers)
    host = get_address_host(client.scheduler.address)
    tracker = client.run_on_scheduler(_track, n, host)
    networks: list[dict[str, Any]] = [{}] * n
    if plan.library == "lightgbm":
        found = client.run(_find_address, workers=workers)
        networks = lightgbm_networks([found[worker] for worker in workers])
    return [Seat(rank, n, tracker, networks[rank]) for rank in range(n)]


def _track(size: int, host: str) -> dict[str, Any]:
    """Start a tracker that lives as long as the ranks do."""
    tracker = make_tracker(size, host)
    threading.Thread(target=tracker.wait_for, daemon=True).start()
    return dict(tracker.worker_args())


def _find_address() -> tuple[str, int]:
    """Find the host of this worker, and a port of it that is free."""
    host = get_worker().ip
    with socket.create_server((host, 0)) as server:
        return host, server.getsockname()[1]


def _run(
    seat: Seat,
    function: RankFunction,
    plan: Plan,
    held: tuple[list[Shard], list[int]],
    sets: list[tuple[list[Shard], list[int]]],
) -> Outcome:
    """Train on the partitions of this worker."""
    shard = replace(_join(*held), evaluation=[_join(*one) for one in sets])
    return seat.run(function, shard, plan, get_worker().state.nthreads)


def _join(shards: list[Shard], offsets: list[int]) -> Shard:
    return join_shards(list(map(renumber, shards, offsets)))


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
