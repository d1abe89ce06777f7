"""Several machines that each hold part of the rows, as threads that exchange tables."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

PATIENCE = 60  # Seconds after which a machine gives up waiting for the others.


class Exchange:
    """What the machines have in common: a place for the value of each of them."""

    def __init__(self, n):
        self.values = [None] * n
        self.barrier = threading.Barrier(n, timeout=PATIENCE)


class ThreadCommunicator:
    """A communicator of one of several threads, which records what it is asked to add.

    Attributes
    ----------
    shapes : Shape of each table that was added, in order.
    n_gathered : Number of values that were collected.
    """

    holds_all_rows = False

    def __init__(self, rank, exchange):
        self.rank, self.size, self._exchange = rank, len(exchange.values), exchange
        self.shapes, self.n_gathered = [], 0

    def _collect(self, value):
        exchange = self._exchange
        exchange.values[self.rank] = value
        exchange.barrier.wait()
        found = list(exchange.values)
        exchange.barrier.wait()
        return found

    def sum(self, table):
        self.shapes.append(table.shape)
        return np.sum(self._collect(table.copy()), axis=0)

    def gather(self, value):
        self.n_gathered += 1
        return self._collect(value)


def run_on_machines(work, n):
    """Call ``work(communicator)`` on each of n machines, and return the results by rank."""
    exchange = Exchange(n)

    def run(rank):
        try:
            return work(ThreadCommunicator(rank, exchange))
        except BaseException:
            exchange.barrier.abort()  # The others stop waiting.
            raise

    with ThreadPoolExecutor(n) as pool:
        futures = [pool.submit(run, rank) for rank in range(n)]
    failures = [future.exception() for future in futures if future.exception()]
    own = [e for e in failures if not isinstance(e, threading.BrokenBarrierError)]
    for failure in own or failures:
        raise failure
    return [future.result() for future in futures]
