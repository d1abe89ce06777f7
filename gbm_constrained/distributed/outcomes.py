"""Work of a rank that an engine runs, and what the engine brings back to the driver.

A rank that fails breaks the sums of all others. An engine would report any of these errors, and
run the work again. So a rank returns its failure as a value, and the driver raises the one that
was first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gbm_constrained.data.communicator import Communicator
from gbm_constrained.distributed.failures import describe_failure
from gbm_constrained.distributed.networks import XGBoostSeat
from gbm_constrained.distributed.rank import Plan, RankResult, Shard
from gbm_constrained.exceptions import MachineError

RankFunction = Callable[[Shard, Plan, Communicator], RankResult]
"""Trains on the rows of one machine."""

TIME_LIMIT = 600.0  # Seconds that a rank waits for the others before it fails.


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
class RankTask:
    """Task of an engine that trains on the rows of one machine.

    Parameters
    ----------
    seat : XGBoostSeat
        Place in the network over which tables are added, also those of LightGBM's machines.
    plan : Plan
        The same for all ranks.
    function : callable
        Trains on the rows.
    network : mapping
        Parameters by which LightGBM finds the other machines; empty for XGBoost.
    """

    seat: XGBoostSeat
    plan: Plan
    function: RankFunction
    network: Mapping[str, Any]

    def run(self, read: Callable[[], Shard], n_jobs: int) -> Outcome:
        """Train on the rows that a function reads.

        `n_jobs` are the threads that the engine has for the task, used where the plan names none.
        """
        params = {**self.plan.params, "n_jobs": self.plan.params.get("n_jobs") or n_jobs}
        plan = replace(self.plan, params=params, network=self.network)
        try:
            with self.seat.join() as (communicator, _):
                return Outcome(self.function(read(), plan, communicator))
        except Exception as error:
            failure = describe_failure(error, self.seat.rank, self.seat.size)
            return Outcome(failure=failure, is_echo=isinstance(error, self._echoes()))

    def _echoes(self) -> tuple[type[Exception], ...]:
        """List the errors that the end of another rank may cause."""
        if not self.network:
            return self.seat.echoes()
        from lightgbm.basic import LightGBMError

        return (*self.seat.echoes(), LightGBMError)


def result_of(outcomes: Sequence[Outcome]) -> RankResult:
    """Return the result of the first rank.

    Raises
    ------
    MachineError
        The failure of a rank, of one that failed by itself if there is one.
    """
    for outcome in sorted(outcomes, key=lambda outcome: outcome.is_echo):
        if outcome.failure is not None:
            raise outcome.failure
    result = outcomes[0].result
    assert result is not None
    return result
