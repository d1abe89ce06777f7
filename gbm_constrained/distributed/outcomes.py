"""Work of a rank that an engine runs, and what the engine brings back to the driver.

A rank that fails breaks the sums of all others. An engine would report any of these errors, and run
the work again. So a rank returns its failure as a value, and the driver raises the one that was
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from xgboost.collective import CommunicatorContext
from xgboost.core import XGBoostError
from xgboost.tracker import RabitTracker

from gbm_constrained.data.communicator import Communicator
from gbm_constrained.distributed.collective import CollectiveCommunicator
from gbm_constrained.distributed.failures import describe_failure
from gbm_constrained.distributed.rank import Plan, RankResult, Shard
from gbm_constrained.exceptions import MachineError

TIME_OUT = 2  # Minutes in which LightGBM's machines must have found each other.

RankFunction = Callable[[Shard, Plan, Communicator], RankResult]
"""Trains on the rows of one machine."""


@dataclass(frozen=True)
class Outcome:
    """What a rank brings back: its result, or why it has none.

    Parameters
    ----------
    result : RankResult, default=None
        Result of a rank that did not fail.
    failure : MachineError, default=None
        What went wrong on the rank.
    is_echo : bool, default=False
        Whether the failure may only be that of another rank, which broke a sum.
    """

    result: RankResult | None = None
    failure: MachineError | None = None
    is_echo: bool = False

    @property
    def has_failed_first(self) -> bool:
        """Whether the rank has failed by itself."""
        return self.failure is not None and not self.is_echo


@dataclass(frozen=True)
class Seat:
    """Place of a rank among the others.

    Parameters
    ----------
    rank, size : int
        Number of the rank, and number of ranks.
    tracker : mapping
        Arguments by which XGBoost's communicator finds the tracker.
    network : mapping
        Parameters by which LightGBM finds the other ranks; empty for XGBoost.
    """

    rank: int
    size: int
    tracker: Mapping[str, Any]
    network: Mapping[str, Any]

    def complete(self, plan: Plan, n_jobs: int) -> Plan:
        """Complete a plan by the network of this rank, and threads of the engine if it has none."""
        params = {**plan.params, "n_jobs": plan.params.get("n_jobs") or n_jobs}
        return replace(plan, params=params, network=self.network)

    def run(self, work: Callable[[Communicator], RankResult]) -> Outcome:
        """Do the work of this rank inside the communicator of all ranks."""
        task = f"{self.rank:09d}"  # The tracker orders ranks by this text.
        try:
            with CommunicatorContext(**self.tracker, dmlc_task_id=task):
                return Outcome(work(CollectiveCommunicator()))
        except Exception as error:
            is_echo = isinstance(error, XGBoostError)
            return Outcome(failure=describe_failure(error, self.rank, self.size), is_echo=is_echo)


@contextmanager
def tracking(size: int, host: str) -> Iterator[dict[str, Any]]:
    """Track ranks while they find each other and until they end, at an address of this machine.

    Parameters
    ----------
    size : int
        Number of ranks.
    host : str
        Address of this machine that the ranks can reach.

    Yields
    ------
    dict
        Arguments by which the communicator of a rank finds the tracker.
    """
    tracker = RabitTracker(n_workers=size, host_ip=host, sortby="task")
    tracker.start()
    try:
        yield tracker.worker_args()
    finally:
        with suppress(XGBoostError):  # The tracker complains of ranks that have not come.
            tracker.free()


def lightgbm_networks(addresses: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """List the parameters of each rank by which LightGBM finds the others.

    Parameters
    ----------
    addresses : sequence of (str, int)
        Host and free port of each rank.
    """
    machines = ",".join(f"{host}:{port}" for host, port in addresses)
    shared = {"machines": machines, "num_machines": len(addresses), "time_out": TIME_OUT}
    return [{**shared, "local_listen_port": port} for _, port in addresses]


def result_of(outcomes: Sequence[Outcome]) -> RankResult:
    """Return the result of the first rank.

    Raises
    ------
    MachineError
        The failure of a rank, of one that failed by itself if there is one.
    """
    failures = sorted((o for o in outcomes if o.failure is not None), key=lambda o: o.is_echo)
    for outcome in failures:
        assert outcome.failure is not None
        raise outcome.failure
    result = outcomes[0].result
    assert result is not None
    return result
