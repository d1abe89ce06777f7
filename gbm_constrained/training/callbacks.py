"""Callbacks of a constrained fit, which are notified of the state of its constraints.

A callback is a function of one :class:`ConstraintState`, as LightGBM's are functions of one
``CallbackEnv``; training ends when it returns True, as with XGBoost's ``TrainingCallback``. The
parents' own callbacks are arguments of the parents, and see boosters and metrics.

>>> from sklearn.datasets import make_classification
>>> from gbm_constrained import ConstrainedXGBClassifier, fnr
>>> X, y = make_classification(random_state=0)
>>> path = []
>>> def keep(state):
...     path.append((state.phase, state.rounds, state.violations.max()))
>>> clf = ConstrainedXGBClassifier(constraints=[fnr() <= 0.3], n_estimators=4, n_jobs=1)
>>> clf = clf.fit(X, y, constraint_callbacks=[keep])
>>> [step[:2] for step in path]
[('measuring', 0), ('measuring', 2), ('training', 0), ('training', 2)]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from gbm_constrained._findings import issue_warning
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.data.communicator import Communicator, SingleMachine, is_any
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import Record
from gbm_constrained.training.time_limit import GIVEN_UP, TimeLimit

__all__ = ["ConstraintCallback", "ConstraintState"]

Phase: TypeAlias = Literal["measuring", "training"]
CALLBACK = "A constraint callback"  # Cause of an end, in messages.


@dataclass(frozen=True)
class ConstraintState:
    """One outer iteration of a constrained fit, at its beginning.

    Parameters
    ----------
    phase : {"measuring", "training"}
        "measuring" while boosters are grown on parts of the rows to find the multipliers
        (``measure_on="crossfit"`` or ``"holdout"``), "training" while the model itself is.
        Several sets of boosters may be measured one after the other.
    rows : str
        Rows that all values are of: ``"out of fold"`` or ``"holdout"`` (with ``", without
        multipliers"`` for boosters that have none), ``"training rows"``, or an evaluation set
        that moves the multipliers.
        With a metric, decisions are searched on these rows, ``", counted by probabilities"`` of
        the labels or ``", counted by labels"``.
    iteration : int
        Number of the outer iteration, from 0 in each phase and set of boosters; with a metric, of
        the call of the oracle.
    rounds : int
        Boosting rounds so far of these boosters; iterations of a linear learner.
    n_rounds : int
        Boosting rounds after which this phase ends.
    done, total : int
        Boosting rounds of all boosters of the fit together, fold boosters too: grown so far, and
        in all.
    seconds : float
        Seconds since the fit began.
    record : Record
        Record of the iteration by the solver.
    compiled : LinearConstraints
        The constraints on these rows.
    """

    phase: Phase
    rows: str
    iteration: int
    rounds: int
    n_rounds: int
    done: int
    total: int
    seconds: float
    record: Record
    compiled: LinearConstraints

    @property
    def objective(self) -> float:
        """Weighted mean cross-entropy in nats; with a metric, the metric."""
        return self.record.objective

    @property
    def error(self) -> float:
        """Weighted fraction of misclassified rows; NaN with a metric."""
        return self.record.error

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Constraints in their order, whose rates name their class as the report does."""
        return self.compiled.constraints

    @cached_property
    def values(self) -> pd.Series[float]:
        """Value of what each constraint bounds, by constraint; NaN where it is undefined."""
        return self._by_constraint(self.compiled.values(self.record.functionals), "value")

    @cached_property
    def bounds(self) -> pd.Series[float]:
        """Bound of each constraint, by constraint."""
        return self._by_constraint(self.compiled.bounds, "bound")

    @cached_property
    def violations(self) -> pd.Series[float]:
        """Distance of each value beyond its bound, by constraint; negative where it is met."""
        sign = np.array([c.sign for c in self.constraints])
        violations = sign * (self.values.to_numpy() - self.bounds.to_numpy())
        return self._by_constraint(violations, "violation")

    @cached_property
    def rates(self) -> pd.Series[float]:
        """Every rate of the constraints, of each group, by its name."""
        names = self.compiled.functional_names
        return pd.Series(self.record.functionals, index=names, name="rate")

    @cached_property
    def multipliers(self) -> pd.Series[float]:
        """Multipliers of this iteration, by linear row as in ``multipliers_``.

        Without the rows of constraints that are always met, such as a rate of at most one. With a
        metric all are NaN.
        """
        index = list(self.compiled.rows)
        return pd.Series(self.record.multipliers, index=index, name="multiplier")

    def _by_constraint(self, values: Any, name: str) -> pd.Series[float]:
        return pd.Series(values, index=self.compiled.names, name=name)


ConstraintCallback: TypeAlias = Callable[[ConstraintState], object]


def check_callbacks(callbacks: Any) -> list[ConstraintCallback]:
    """Check that callbacks are functions, and list them."""
    if callbacks is None:
        return []
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        raise TypeError(
            f"constraint_callbacks must be a list of functions of one ConstraintState, got "
            f"{callbacks!r}: put it into a list."
        )
    found = list(callbacks)
    for callback in found:
        if isinstance(callback, type) or not callable(callback):
            raise TypeError(
                f"constraint_callbacks holds {callback!r}, which is not a function of one "
                f"ConstraintState: the booster's own callbacks belong into callbacks=."
            )
    return found


def check_booster_callbacks(callbacks: Any, is_one: Callable[[Any], bool], wanted: str) -> None:
    """Refuse callbacks of the booster that its library would take only when its training starts.

    `wanted` names in the message what the library takes, and `is_one` recognises it.
    """
    if callbacks is not None and not isinstance(callbacks, Collection):
        raise TypeError(
            f"callbacks must be a list of {wanted}, got {callbacks!r}: put it into a list."
        )
    for callback in callbacks or ():
        if not is_one(callback):
            raise TypeError(
                f"callbacks must be a list of {wanted}, and holds {callback!r}: leave it out."
            )


class CallbackNotifier:
    """Notifies callbacks of each outer iteration, and decides when training ends.

    Parameters
    ----------
    callbacks : sequence of callable
        Notified in this order.
    n_rounds : int
        Boosting rounds that were asked for.
    rounds_per_iteration : int
        Boosting rounds of an outer iteration.
    limit : TimeLimit, default=None
        Time that the fit may take.
    unit : {"rounds", "iterations"}, default="rounds"
        Unit of messages: boosting rounds, or iterations of a linear learner.
    communicator : Communicator, default=SingleMachine()
        Machines that fit together. A callback on any of them ends training on all.
    learning_rate : float, default=1
        That of the rounds; with one, a single round is a model.

    Attributes
    ----------
    n_growing : int
        Fold boosters that are grown in step now.
    n_grown : int
        Fold boosters that were grown before them.
    n_rounds : int
        Boosting rounds after which training ends; fewer once a callback or the time limit ends it.
    is_stopped : bool
        Whether a callback or the time limit has ended a phase.
    stops : list of [cause, phase, rounds]
        Cause, phase and rounds of each end.
    """

    def __init__(
        self,
        callbacks: Sequence[ConstraintCallback],
        n_rounds: int,
        rounds_per_iteration: int,
        limit: TimeLimit | None = None,
        unit: str = "rounds",
        communicator: Communicator = SingleMachine(),  # noqa: B008 - has no state
        learning_rate: float = 1.0,
    ) -> None:
        self.callbacks = callbacks
        self.n_rounds = self._asked = n_rounds
        self.rounds_per_iteration = rounds_per_iteration
        self.limit = TimeLimit(None) if limit is None else limit
        self.communicator = self.limit.communicator = communicator
        self.unit, self.learning_rate = unit, learning_rate
        self.n_growing = self.n_grown = 0
        self.is_stopped = False
        self.stops: list[list[Any]] = []
        self._training_since: tuple[int, float] | None = None

    def begin_pass(self, n_boosters: int) -> None:
        """Count fold boosters that are grown in step from now on."""
        self.n_grown += self.n_growing
        self.n_growing = n_boosters

    def make_callback(
        self, phase: Phase, rows: str, compiled: LinearConstraints
    ) -> Callable[[Record], None] | None:
        """Make the callback of a solver; None if nobody is to be notified."""
        if not is_any(self.communicator, bool(self.callbacks)):
            return None

        def notify(record: Record) -> None:
            if self._notify(phase, rows, record, compiled):
                end = record.rounds + self.rounds_per_iteration
                self._end_after(min(self.n_rounds, end), CALLBACK, phase)

        return notify

    def _notify(
        self, phase: Phase, rows: str, record: Record, compiled: LinearConstraints
    ) -> bool:
        """Notify all callbacks, and say whether one of them asks for the end."""
        is_measuring = phase == "measuring"
        others = self.n_grown if is_measuring else self.n_grown + self.n_growing
        growing = self.n_growing if is_measuring else 1
        state = ConstraintState(
            phase=phase,
            rows=rows,
            iteration=record.iteration,
            rounds=record.rounds,
            n_rounds=self.n_rounds,
            done=others * self.n_rounds + record.rounds * growing,
            total=(self.n_grown + self.n_growing + 1) * self.n_rounds,
            seconds=time.perf_counter() - self.limit.started,
            record=record,
            compiled=compiled,
        )
        answers = [callback(state) for callback in self.callbacks]
        # A callback asks for the end by True, and by no other value that is true.
        asked = any(isinstance(answer, (bool, np.bool_)) and answer for answer in answers)
        return is_any(self.communicator, asked)

    def is_over(self, rounds: int) -> bool:
        """Whether a callback or the time limit ends this phase after so many boosting rounds."""
        return self.is_stopped and rounds >= self.n_rounds

    def is_training_over(self, rounds: int) -> bool:
        """Whether training ends after so many rounds, also for want of time for more."""
        now = time.perf_counter()
        if self._training_since is None:
            self._training_since = rounds, now
        first, since = self._training_since
        done = rounds - first
        if done and rounds < self.n_rounds and rounds % self.rounds_per_iteration == 0:
            iteration = (now - since) * self.rounds_per_iteration / done
            if not self.limit.has_time_for(iteration):
                self.end_for_time(rounds, "training")
        return self.is_over(rounds)

    def end_for_time(self, rounds: int, phase: Phase) -> None:
        """End all later phases after so many rounds, as a phase had no time for more.

        Rounds that are hardly a model are refused.
        """
        if self.unit == "rounds":
            self.limit.refuse_stump(rounds, self._asked, self.learning_rate)
        self._end_after(rounds, str(self.limit), phase)

    def _end_after(self, rounds: int, cause: str, phase: Phase) -> None:
        if not self.is_stopped or rounds < self.n_rounds:
            self.stops.append([cause, phase, rounds])
        self.n_rounds, self.is_stopped = rounds, True

    @property
    def message(self) -> str | None:
        """Causes of an early end, and what was given up; None if there is nothing to say."""
        found = [
            f"{cause} ended {phase} after {rounds} of {self._asked} {self.unit}."
            for cause, phase, rounds in self.stops
            if rounds < self._asked
        ]
        if any(phase == "measuring" for _, phase, _ in self.stops) and found:
            found.append("The model has no more rounds than were measured.")
        return " ".join([*found, *self._given_up()]) or None

    def _given_up(self) -> list[str]:
        """Say what was given up for want of time."""
        found = []
        if self.limit.has_no_multipliers:
            found.append(
                f"{self.limit} left no time to try multipliers: the constraints are left to the "
                f"threshold alone."
            )
        if self.limit.has_fewer_passes:
            found.append(
                f"{self.limit} left no time to measure with better multipliers: the constraints "
                f"may cost more errors than they have to."
            )
        return found

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time limit ended a phase."""
        return any(cause.startswith("time_limit") for cause, _, _ in self.stops)

    def warn(self) -> None:
        """Warn of what the time limit ended; an end by a callback is the user's own."""
        limit = self.limit
        if self.is_out_of_time or limit.has_no_multipliers or limit.has_fewer_passes:
            faster = "fewer rounds at a larger learning rate"
            if self.unit == "iterations":
                faster = "a larger tol"
            issue_warning(f"{self.message} Give more time, or ask for {faster}.", "GC303")

    def state(self) -> dict[str, Any]:
        """Give what has ended, for a checkpoint."""
        given_up = {name: getattr(self.limit, name) for name in GIVEN_UP}
        return {"stops": [*self.stops], **given_up}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what has ended; seconds are counted anew."""
        for name in GIVEN_UP:
            setattr(self.limit, name, state[name])
        for cause, phase, rounds in state["stops"]:
            self._end_after(rounds, cause, phase)
