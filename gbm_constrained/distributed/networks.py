"""Networks of machines: how ranks add their tables, and what becomes of a rank that fails.

A rank that fails breaks the sums of all others. An engine would report any of these errors, and
run the work again. So a rank returns its failure as a value, and the launcher raises the one that
was first.
"""

from __future__ import annotations

import math
import pickle
import random
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np
from xgboost import collective
from xgboost.core import XGBoostError
from xgboost.tracker import RabitTracker

from gbm_constrained._typing import Float
from gbm_constrained.data.exact_sums import Communicator
from gbm_constrained.distributed.ranks import Plan, RankResult, Shard
from gbm_constrained.exceptions import MachineError

TIME_LIMIT = 600.0  # Seconds that a rank waits for the others before it fails.
LOOPBACK = "127.0.0.1"

RankFunction = Callable[[Shard, Plan, Communicator], RankResult]
"""Trains on the rows of one machine."""


class CollectiveCommunicator(Communicator):
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
        total = collective.allreduce(np.asarray(table), collective.Op.SUM)
        return np.asarray(total.reshape(table.shape))

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
        ends = np.cumsum(collective.allreduce(lengths, collective.Op.SUM))
        packed = np.zeros(ends[-1], dtype=np.uint8)  # Each machine fills its own part.
        packed[ends[self.rank] - content.size : ends[self.rank]] = content
        packed = collective.allreduce(packed, collective.Op.SUM)
        return [pickle.loads(part.tobytes()) for part in np.split(packed, ends[:-1])]


@contextmanager
def xgboost_network(size: int, host: str = LOOPBACK) -> Iterator[dict[str, Any]]:
    """Run XGBoost's tracker at an address of this host; gives the arguments that lead to it."""
    tracker = RabitTracker(size, host, sortby="task", timeout=round(TIME_LIMIT))
    tracker.start()
    try:
        yield tracker.worker_args()
    finally:
        with suppress(XGBoostError):  # The tracker complains of processes that were killed.
            tracker.free()


def find_free_ports(host: str, n: int) -> tuple[int, ...]:
    """Find ports on which LightGBM can listen a moment later.

    LightGBM ends its process if a port is taken. Ports that systems give to outgoing connections
    are left out, since one of them may be taken at any time.
    """
    ports = range(12_400, 32_000)  # From LightGBM's own default on, below those of connections.
    found: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(ports, len(ports)):
            if len(found) == n:
                break
            with suppress(OSError):  # It is taken.
                held.enter_context(socket.create_server((host, port)))
                found.append(port)
    return tuple(found)


def lightgbm_networks(addresses: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """List the parameters of each rank by which LightGBM finds the others; none for one rank.

    Parameters
    ----------
    addresses : sequence of (str, int)
        Host and free port of each rank.
    """
    if len(addresses) == 1:
        return [{}]
    shared = {
        "machines": ",".join(f"{host}:{port}" for host, port in addresses),
        "num_machines": len(addresses),
        "time_out": round(TIME_LIMIT / 60),  # In minutes.
    }
    return [{**shared, "local_listen_port": port} for _, port in addresses]


@dataclass(frozen=True)
class RankTask:
    """Task that trains on the rows of one machine, in the network of XGBoost.

    LightGBM's own network adds no tables of the package, so that its machines are in both.

    Parameters
    ----------
    rank : int
        Number of the machine, from zero on.
    size : int
        Number of machines.
    tracker : dict
        Arguments that lead to the tracker, by which machines find each other.
    plan : Plan
        What the machine is told, with the parameters of LightGBM's network.
    function : callable
        Trains on the rows.
    """

    rank: int
    size: int
    tracker: dict[str, Any]
    plan: Any
    function: Callable[[Any, Any, Communicator], Any]

    def run(self, read: Callable[[], Any], n_jobs: int | None = None) -> Any:
        """Train on the rows that a function reads; the result, or the failure as a value.

        `n_jobs` are the threads that the engine has for the task, used where the plan names none.
        """
        plan, failure = self.plan, None
        if n_jobs is not None:
            params = {**plan.params, "n_jobs": plan.params.get("n_jobs") or n_jobs}
            plan = replace(plan, params=params)
        try:
            with collective.CommunicatorContext(
                **self.tracker, dmlc_task_id=f"{self.rank:09d}", dmlc_timeout=round(TIME_LIMIT)
            ):
                try:
                    return self.function(read(), plan, CollectiveCommunicator())
                except Exception as error:  # The way out of a broken network may fail as well.
                    failure = error
                    raise
        except Exception as error:
            return self.fail(failure or error)

    def fail(self, error: Exception) -> MachineError:
        """Describe an error of this rank; the traceback is a note of the failure."""
        # Its name tells the error of LightGBM without loading the library.
        names = ("XGBoostError", "LightGBMError" if self.plan.library == "lightgbm" else "")
        reason = f"{type(error).__name__}: {error}"
        failure = MachineError(self.rank, self.size, socket.gethostname(), reason)
        failure.is_echo = type(error).__name__ in names
        failure.add_note("".join(traceback.format_exception(error)))
        return failure


def results_of(outcomes: Sequence[Any]) -> list[Any]:
    """Return the outcomes by rank if all of them are results.

    Raises
    ------
    MachineError
        The failure of a rank, of one that failed by itself if there is one.
    """
    failures = [outcome for outcome in outcomes if isinstance(outcome, MachineError)]
    if failures:
        raise min(failures, key=lambda failure: failure.is_echo)
    return list(outcomes)


def collect(
    read: Callable[[set[int], float], Mapping[int, Any]], size: int, patience: float
) -> list[Any]:
    """Wait for the outcomes of all ranks, and return their results.

    Parameters
    ----------
    read : callable
        Waits for one of some ranks for so many seconds at most, and returns outcomes by rank.
    size : int
        Number of ranks.
    patience : float
        Seconds in which the cause of a failure is heard of that may be an echo.

    Raises
    ------
    MachineError
        The failure of a rank, of one that failed by itself if there is one.
    """
    outcomes: dict[int, Any] = {}
    waiting, end = set(range(size)), math.inf
    while waiting and monotonic() < end:
        for rank, outcome in read(waiting, end - monotonic()).items():
            waiting.remove(rank)
            outcomes[rank] = outcome
            if isinstance(outcome, MachineError):
                if not outcome.is_echo:  # The others end by themselves, at their next sum.
                    raise outcome
                end = min(end, monotonic() + patience)
    return results_of([outcomes[rank] for rank in sorted(outcomes)])
