"""Sums and small values over the communicator of XGBoost."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from xgboost import collective

from gbm_constrained._typing import Float


class CollectiveCommunicator:
    """A communicator over ``xgboost.collective``, inside its ``CommunicatorContext``.

    The context belongs to the thread that has entered it, and so does this object.

    Attributes
    ----------
    rank : int
        Number of this machine, from zero on.
    size : int
        Number of machines.
    holds_all_rows : bool
        False, also where one machine takes part.
    """

    holds_all_rows = False

    def __init__(self) -> None:
        self.rank: int = collective.get_rank()
        self.size: int = collective.get_world_size()

    def sum(self, table: Float) -> Float:
        """Add the tables of all machines; each machine is given the same bits.

        Parameters
        ----------
        table : ndarray of float
            Table of this machine, of the same shape on all.
        """
        return np.asarray(self._reduce(np.asarray(table)).reshape(table.shape))

    def gather(self, value: Any) -> list[Any]:
        """Collect a small value of each machine, by rank, in two reductions of any size.

        Parameters
        ----------
        value : any
            Value of this machine, which is pickled.
        """
        content = np.frombuffer(pickle.dumps(value), dtype=np.uint8)
        lengths = np.zeros(self.size, dtype=np.int64)
        lengths[self.rank] = content.size
        ends = np.cumsum(self._reduce(lengths))
        starts = np.concatenate(([0], ends[:-1]))
        packed = np.zeros(ends[-1], dtype=np.uint8)  # Each machine fills its own part.
        packed[starts[self.rank] : ends[self.rank]] = content
        packed = self._reduce(packed)
        return [
            pickle.loads(packed[start:end].tobytes())
            for start, end in zip(starts, ends, strict=True)
        ]

    @staticmethod
    def _reduce(table: Any) -> Any:
        return collective.allreduce(table, collective.Op.SUM)
