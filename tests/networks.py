"""Networks of the package whose ranks are threads, on the loopback address."""

import socket
from concurrent.futures import ThreadPoolExecutor

from xgboost.collective import CommunicatorContext
from xgboost.tracker import RabitTracker

from gbm_constrained.distributed.networks import (
    CollectiveCommunicator,
    TCPStar,
    accept_peers,
    connect_to_peer,
)

KEY = b"known to all ranks"
LIMIT = 20.0  # Seconds.


def in_threads(work, n):
    """Call ``work(rank)`` in one thread for each rank; results or exceptions by rank."""
    with ThreadPoolExecutor(n) as pool:
        futures = [pool.submit(work, rank) for rank in range(n)]
    return [future.exception() or future.result() for future in futures]


def raised(outcomes):
    """Raise the first exception among outcomes; else give them back."""
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes


def listen():
    return socket.create_server(("127.0.0.1", 0))


def outcomes_on_star(work, n, *, limit=LIMIT):
    """Call ``work(communicator)`` on each rank of a star; results or exceptions by rank."""
    server = listen()
    address = server.getsockname()

    def run(rank):
        if rank == 0:
            peers = accept_peers(server, n, KEY, limit)
        else:
            peers = connect_to_peer(address, rank, KEY, limit)
        with TCPStar(rank, n, peers) as star:
            return work(star)

    return in_threads(run, n)


def run_on_star(work, n):
    return raised(outcomes_on_star(work, n))


def run_on_collective(work, n):
    """Call ``work(communicator)`` on each rank of XGBoost's communicator, which is a thread's."""
    tracker = RabitTracker(n, "127.0.0.1", sortby="task")
    tracker.start()

    def run(rank):
        with CommunicatorContext(**tracker.worker_args(), dmlc_task_id=f"{rank:09d}"):
            return work(CollectiveCommunicator())

    try:
        return raised(in_threads(run, n))
    finally:
        tracker.free()
