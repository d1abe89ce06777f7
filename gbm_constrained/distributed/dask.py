"""Fits on the workers of a Dask cluster.

Each worker trains on the partitions that it holds. Partitions stay where the scheduler has placed
them, and workers that hold none take part without rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

from distributed import Client, Future, MultiLock, Scheduler, Worker, get_worker, wait
from distributed.comm.addressing import get_address_host

from gbm_constrained.distributed.dask_rows import DaskRows, PlacedRows
from gbm_constrained.distributed.networks import (
    XGBoostSeat,
    find_free_ports,
    lightgbm_networks,
    xgboost_network,
)
from gbm_constrained.distributed.outcomes import (
    TIME_LIMIT,
    Outcome,
    RankFunction,
    RankTask,
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
    placed, *sets = [PlacedRows.of(client, one) for one in (rows, *evaluation)]
    workers = placed.holders()
    if plan.library == "xgboost":  # LightGBM refuses machines without rows.
        workers += sorted(client.nthreads().keys() - workers)
    held = zip(*(one.assign(workers) for one in (placed, *sets)), strict=True)
    # Two fits that each hold some of the workers would never end.
    with MultiLock(workers, client), _network(client, len(workers)) as seats:
        networks: list[dict[str, Any]] = [{}] * len(workers)
        if plan.library == "lightgbm":
            found = client.run(_find_address, workers=workers)
            networks = lightgbm_networks([found[worker] for worker in workers], TIME_LIMIT)
        ranks = []
        for seat, network, parts, worker in zip(seats, networks, held, workers, strict=True):
            task = RankTask(seat, plan, function, network)
            ranks.append(
                client.submit(_run, task, list(parts), workers=[worker], pure=False, retries=0)
            )
        try:
            return result_of(_collect(client, ranks, workers))
        finally:
            client.cancel(ranks)


@contextmanager
def _network(client: Client, size: int) -> Iterator[list[XGBoostSeat]]:
    """Run the tracker of a network beside the scheduler, which all workers can reach."""
    name = f"gbm_constrained-{uuid4()}"
    try:
        yield client.run_on_scheduler(_open_network, name, size)
    finally:
        client.run_on_scheduler(_close_network, name)


_NETWORKS: dict[str, ExitStack] = {}  # In the process of a scheduler: those of running fits.


def _open_network(name: str, size: int, dask_scheduler: Scheduler) -> list[XGBoostSeat]:
    host = get_address_host(dask_scheduler.address)
    _NETWORKS[name] = ExitStack()
    return _NETWORKS[name].enter_context(xgboost_network(size, TIME_LIMIT, host))


def _close_network(name: str) -> None:
    # The tracker may wait for ranks that do not know yet of the loss of another one.
    threading.Thread(target=_NETWORKS.pop(name).close, daemon=True).start()


def _find_address(dask_worker: Worker) -> tuple[str, int]:
    """Find the host of a worker, and a port of it that is free; Dask gives the argument."""
    (port,) = find_free_ports(dask_worker.ip, 1)
    return dask_worker.ip, port


def _run(task: RankTask, held: list[list[tuple[Shard, int]]]) -> Outcome:
    """Train on the rows of this worker; `held` are its partitions of each set of rows."""

    def read() -> Shard:
        shard, *sets = [join_shards([renumber(*part) for part in parts]) for parts in held]
        return replace(shard, evaluation=sets)

    return task.run(read, get_worker().state.nthreads)


def _collect(client: Client, ranks: list[Future[Outcome]], workers: list[str]) -> list[Outcome]:
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
