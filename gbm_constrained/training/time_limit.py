"""The time limit of a fit: when measuring and training end, and what is given up for it.

Fold boosters are grown first, and their rates hold for a model of as many rounds. Their growth
ends while there is time to train the model for the same rounds, by the seconds that their own
rounds took; the model then has these rounds. A second set of boosters, with multipliers, is grown
only where there is time for all of it.

A limit that leaves hardly a model is an error as soon as that is known, and no model: the rounds
then have gone less than half of the way that all rounds would go, by the learning rate.
"""

from __future__ import annotations

import math
import time
from numbers import Real
from typing import Any

from gbm_constrained.data.communicator import Communicator, SingleMachine, is_any

# Share of the limit that is left for choosing the decision and for the reports.
FINALIZING_SHARE = 0.1
GIVEN_UP = ("has_no_multipliers", "has_fewer_passes")  # Attributes of a limit.


def refuse_time_limit_without_constraints(time_limit: Any) -> None:
    """Refuse a time limit of a fit that is left to the library."""
    if time_limit is not None:
        raise ValueError(
            f"time_limit={time_limit!r} ends fits under constraints or for a metric, and there "
            f"are none: give constraints, maximize= or minimize=, or leave time_limit out."
        )


class TimeLimit:
    """Seconds that a fit may take, from the moment at which this object is made.

    Attributes
    ----------
    seconds : float or None
        The limit; None stands for no limit.
    has_no_multipliers, has_fewer_passes : bool
        Whether boosters with multipliers, or further passes with better ones, were given up.
    communicator : Communicator
        Machines that fit together. None of them has time for what another has none for.
    """

    def __init__(self, seconds: Any) -> None:
        if seconds is not None:
            remedy = "give a positive number of seconds, or None for no limit."
            if isinstance(seconds, bool) or not isinstance(seconds, Real):
                raise TypeError(f"time_limit is {seconds!r}, which is no number: {remedy}")
            if not 0.0 < float(seconds) < math.inf:
                raise ValueError(f"time_limit is {seconds!r}: {remedy}")
        self.seconds = seconds
        self.has_no_multipliers = False
        self.has_fewer_passes = False
        self.communicator: Communicator = SingleMachine()
        self.started = time.perf_counter()
        self.pace: tuple[float, float] | None = None  # Seconds before the rounds, and of each.
        self._left = math.inf if seconds is None else (1.0 - FINALIZING_SHARE) * float(seconds)

    def __str__(self) -> str:
        return f"time_limit={self.seconds:g}"

    def has_time_for(self, seconds: float) -> bool:
        """Whether there is time for so many more seconds."""
        if self.seconds is None:
            return True
        is_late = time.perf_counter() - self.started + seconds > self._left
        return not is_any(self.communicator, is_late)

    def refuse_stump(self, rounds: int, asked: int, learning_rate: float) -> None:
        """Refuse a model of so few of the rounds that were asked for that it is hardly one."""
        if (1.0 - learning_rate) ** rounds <= 0.5 * (1.0 + (1.0 - learning_rate) ** asked):
            return
        elapsed = time.perf_counter() - self.started
        before, each = self.pace or (0.0, elapsed / max(rounds, 1))
        needed = (before + asked * each) / (1.0 - FINALIZING_SHARE)
        raise ValueError(
            f"{self} leaves time for {rounds} of {asked} rounds, which at a learning rate of "
            f"{learning_rate:g} are hardly a model. By the first rounds, all take about "
            f"{needed:,.1f} seconds: give more time, or ask for fewer rounds at a larger learning "
            f"rate."
        )


class MeasuringClock:
    """Time that a set of boosters takes, and that the model of all rows will take.

    `model_share` is the number of rows of the model over that of all boosters of the set together.
    """

    def __init__(self, limit: TimeLimit, model_share: float, rounds_per_iteration: int) -> None:
        self.limit, self.model_share = limit, model_share
        self.rounds_per_iteration = rounds_per_iteration
        self._begun = time.perf_counter()
        self._growing_since = self._begun

    @property
    def spent(self) -> float:
        """Seconds that the set of boosters has taken."""
        return time.perf_counter() - self._begun

    def restore(self, spent: float) -> None:
        """Count the seconds that a set of a checkpoint took in an earlier fit."""
        self._begun = time.perf_counter() - spent

    def is_over(self, rounds: int) -> bool:
        """Whether one more outer iteration would take time that the model needs."""
        now = time.perf_counter()
        if not rounds:
            self._growing_since = now
            return False
        iteration = (now - self._growing_since) * self.rounds_per_iteration / rounds
        each = (1.0 + self.model_share) * iteration / self.rounds_per_iteration
        self.limit.pace = self._growing_since - self.limit.started, each
        model = self.model_share * (now - self._begun + iteration)
        return not self.limit.has_time_for(iteration + model)

    def has_time_again(self) -> bool:
        """Whether there is time for another such set of boosters, and then for the model."""
        return self.limit.has_time_for((1.0 + self.model_share) * self.spent)
