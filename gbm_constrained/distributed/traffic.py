"""What a fit sends between machines: calls, bytes and seconds."""

from __future__ import annotations

import pickle
from time import perf_counter
from typing import Any

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.data.communicator import Communicator


class MeasuredCommunicator:
    """A communicator that counts what this machine sends through another one.

    Parameters
    ----------
    communicator : Communicator
        Does the work.
    barrier : bool, default=False
        Whether machines wait for each other before the clock starts, so that ``seconds`` leaves
        out the time in which this machine waits for a slower one. The barriers are not counted.

    Attributes
    ----------
    n_calls : int
        Number of sums and of collected values.
    n_bytes : int
        Bytes of the tables and of the pickled values that this machine has handed over.
    seconds : float
        Time in these calls.
    """

    def __init__(self, communicator: Communicator, *, barrier: bool = False) -> None:
        self.rank = communicator.rank
        self.size = communicator.size
        self.holds_all_rows = communicator.holds_all_rows
        self.n_calls, self.n_bytes, self.seconds = 0, 0, 0.0
        self._communicator, self._barrier = communicator, barrier

    def sum(self, table: Float) -> Float:
        """Add the tables of all machines."""
        start = self._begin(table.nbytes)
        total = self._communicator.sum(table)
        self.seconds += perf_counter() - start
        return total

    def gather(self, value: Any) -> list[Any]:
        """Collect a small value of each machine, by rank."""
        start = self._begin(len(pickle.dumps(value)))
        values = self._communicator.gather(value)
        self.seconds += perf_counter() - start
        return values

    def _begin(self, n_bytes: int) -> float:
        """Count a call, and start the clock."""
        self.n_calls += 1
        self.n_bytes += n_bytes
        if self._barrier:
            self._communicator.sum(np.zeros(1))
        return perf_counter()
