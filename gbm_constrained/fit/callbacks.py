"""Callbacks, progress and time limit of a fit.

Fold boosters are grown first, and their rates hold for a model of as many rounds. Their growth
ends while there is time to train the model for the same rounds, by the seconds that their own
rounds took; the model then has these rounds. A second set of boosters, with multipliers, is grown
only where there is time for all of it.

A limit that leaves hardly a model is an error as soon as that is known, and no model: the rounds
then have gone less than half of the way that all rounds would go, by the learning rate.

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

A reduction calls an oracle again and again. Callbacks are notified before each call of the current
mixture of decision rules, and a callback that returns True ends the search: the best mixture of
the rules found so far is taken. The time limit ends the search in the same way.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.data.exact_sums import Communicator, is_any
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import Record

__all__ = ["ConstraintCallback", "ConstraintState"]


# Share of the limit that is left for choosing the decision and for the reports.
FINALIZING_SHARE = 0.1


def refuse_without_constraints(
    *, time_limit: Any = None, max_cost: Any = None, checkpoint: Any = None
) -> None:
    """Refuse limits and a checkpoint of a fit that is left to the library."""
    for name, value, does in (
        ("checkpoint", checkpoint, "saves"),
        ("time_limit", time_limit, "ends"),
        ("max_cost", max_cost, "bounds"),
    ):
        if value is not None:
            raise ValueError(
                f"{name}={value!r} {does} fits under constraints or for a metric, and there are "
                f"none: give constraints, maximize= or minimize=, or leave {name} out."
            )


# Time of a booster under constraints over that of the library's own on the same rows.
COST_OF_BOOSTER = 1.2


class TimeLimit:
    """Seconds and plain fits that a fit may take, from the moment at which this object is made.

    Seconds end phases and searches. Plain fits are counted by the rows of trees, so that they
    leave out whole sets of boosters, the same ones on any machine.

    Attributes
    ----------
    seconds : float or None
        The limit; None stands for no limit.
    max_cost : float or None
        Plain fits that boosters may take together; None stands for any number.
    has_no_multipliers, has_fewer_passes : bool
        Whether boosters with multipliers, or further passes with better ones, were given up.
    given_up_for : str
        The limit that they were given up for, as messages name it.
    communicator : Communicator
        Machines that fit together. None of them has time for what another has none for.
    """

    def __init__(self, seconds: Any, max_cost: Any = None) -> None:
        for name, value, unit in (
            ("time_limit", seconds, "seconds"), ("max_cost", max_cost, "plain fits")
        ):  # fmt: skip
            remedy = f"give a positive number of {unit}, or None for no limit."
            if isinstance(value, bool) or not isinstance(value, (Real, type(None))):
                raise TypeError(f"{name} is {value!r}, which is no number: {remedy}")
            if value is not None and not 0.0 < float(value) < math.inf:
                raise ValueError(f"{name} is {value!r}: {remedy}")
        self.seconds, self.max_cost = seconds, max_cost
        self.has_no_multipliers = False
        self.has_fewer_passes = False
        self.communicator: Communicator = Communicator()
        self.started = time.perf_counter()
        self.pace: tuple[float, float] | None = None  # Seconds before the rounds, and of each.
        self._left = math.inf if seconds is None else (1.0 - FINALIZING_SHARE) * float(seconds)
        self.given_up_for = str(self)

    def __str__(self) -> str:
        return "no time_limit" if self.seconds is None else f"time_limit={self.seconds:g}"

    def check_cost(self, plain_fits: float, how: str) -> None:
        """Refuse boosters that take more plain fits, the model among them, than are allowed."""
        if not self.affords(plain_fits):
            least = COST_OF_BOOSTER * plain_fits
            otherwise = "leave max_cost out" if plain_fits <= 1.0 else "use measure_on='train'"
            raise ValueError(
                f"max_cost={self.max_cost!r} plain fits are fewer than the {least:.2g} that {how} "
                f"takes at least: allow more, or {otherwise}."
            )

    def affords(self, plain_fits: float) -> bool:
        """Whether boosters that take so many plain fits, the model among them, are allowed."""
        most = math.inf if self.max_cost is None else self.max_cost + ROUNDING
        is_allowed = COST_OF_BOOSTER * plain_fits <= most
        if not is_allowed:
            self.given_up_for = f"max_cost={self.max_cost:g}"
        return is_allowed

    def has_time_for(self, seconds: float) -> bool:
        """Whether there is time for so many more seconds."""
        if self.seconds is None:
            return True
        is_late = time.perf_counter() - self.started + seconds > self._left
        return not is_any(self.communicator, is_late)


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


# What each attribute of the time limit says that was given up, in a fit by multipliers and in one
# for a metric.
GIVEN_UP = {
    "has_no_multipliers": "left no time to try multipliers: the constraints are left to the "
    "threshold, and of a regressor to scale and shift, alone.",
    "has_fewer_passes": "left no time to measure with better multipliers: the constraints may "
    "cost more errors than they have to.",
}
GIVEN_UP_IN_SEARCH = {
    "has_fewer_passes": "left no time to grow boosters at the costs of the metric: the "
    "decisions are those of Reduction(oracle='plug_in').",
}


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
    communicator : Communicator, default=Communicator()
        Machines that fit together. A callback on any of them ends training on all.
    learning_rate : float, default=1
        That of the rounds; with one, a single round is a model.
    given_up : mapping, default=GIVEN_UP
        What each attribute of the time limit says that was given up.

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
    end_of_search : str or None
        What has ended the search for decisions by a metric, if anything has.
    n_calls : int
        Calls of the oracle of such a search that callbacks were notified of.
    """

    def __init__(
        self,
        callbacks: Sequence[ConstraintCallback],
        n_rounds: int,
        rounds_per_iteration: int,
        limit: TimeLimit | None = None,
        unit: str = "rounds",
        communicator: Communicator = Communicator(),  # noqa: B008 - has no state
        learning_rate: float = 1.0,
        given_up: Mapping[str, str] = GIVEN_UP,
    ) -> None:
        self.callbacks, self.given_up = callbacks, given_up
        self.n_rounds = self._asked = n_rounds
        self.rounds_per_iteration = rounds_per_iteration
        self.limit = TimeLimit(None) if limit is None else limit
        self.communicator = self.limit.communicator = communicator
        self.unit, self.learning_rate = unit, learning_rate
        self.n_growing = self.n_grown = self.n_calls = 0
        self.is_stopped = False
        self.stops: list[list[Any]] = []
        self.end_of_search: str | None = None
        self._training_since: tuple[int, float] | None = None

    def begin_pass(self, n_boosters: int) -> None:
        """Count fold boosters that are grown in step from now on."""
        self.n_grown += self.n_growing
        self.n_growing = n_boosters

    def notify(self, phase: Phase, rows: str, record: Record, compiled: LinearConstraints) -> bool:
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
        limit, asked, left = self.limit, self._asked, 1.0 - self.learning_rate
        if self.unit == "rounds" and left**rounds > 0.5 * (1.0 + left**asked):
            elapsed = time.perf_counter() - limit.started
            before, each = limit.pace or (0.0, elapsed / max(rounds, 1))
            needed = (before + asked * each) / (1.0 - FINALIZING_SHARE)
            raise ValueError(
                f"{limit} leaves time for {rounds} of {asked} rounds, which at a learning rate of "
                f"{self.learning_rate:g} are hardly a model. By the first rounds, all take about "
                f"{needed:,.1f} seconds: give more time, or ask for fewer rounds at a larger "
                f"learning rate."
            )
        self.end_after(rounds, str(limit), phase)

    def end_after(self, rounds: int, cause: str, phase: Phase) -> None:
        """End this phase and all later ones after so many rounds, and note the cause."""
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
        found += [
            f"{self.limit.given_up_for} {text}"
            for name, text in self.given_up.items()
            if getattr(self.limit, name)
        ]
        if self.end_of_search is not None:
            found.append(
                f"{self.end_of_search} ended the search for decisions: they are the best mixture "
                f"of the rules found until then."
            )
        return " ".join(found) or None

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time limit ended a phase, or the search for decisions."""
        causes = [self.end_of_search or "", *(cause for cause, _, _ in self.stops)]
        return any(cause.startswith("time_limit") for cause in causes)

    def warn(self) -> None:
        """Warn of what the time limit ended; an end by a callback is the user's own."""
        limit, is_linear = self.limit, self.unit == "iterations"
        if self.is_out_of_time or limit.has_no_multipliers or limit.has_fewer_passes:
            faster = "a larger tol" if is_linear else "fewer rounds at a larger learning rate"
            is_costly = not self.is_out_of_time and limit.given_up_for != str(limit)
            more = "a larger max_cost" if is_costly else "more time"
            issue_warning(f"{self.message} Give {more}, or ask for {faster}.", "GC303")

    def state(self) -> dict[str, Any]:
        """Give what has ended, for a checkpoint."""
        limit = self.limit
        return {
            "stops": [*self.stops],
            "has_no_multipliers": limit.has_no_multipliers,
            "has_fewer_passes": limit.has_fewer_passes,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what has ended; seconds are counted anew."""
        self.limit.has_no_multipliers = state["has_no_multipliers"]
        self.limit.has_fewer_passes = state["has_fewer_passes"]
        for cause, phase, rounds in state["stops"]:
            self.end_after(rounds, cause, phase)


class Progress:
    """A constraint callback that shows the progress of fits longer than a few seconds.

    One tqdm bar counts the rounds of all boosters of the fit, with the objective and the worst
    violation. Where tqdm is not installed, or a bar would fill a file, lines take its place. After
    the first rounds of a fit that will take more than ten seconds, a line says what the fit does
    and how long it takes.

    Parameters
    ----------
    unit : str
        Unit of the count, in the singular.
    lines : bool, default=False
        Whether lines are shown in any case, as beside lines of the library.
    """

    DELAY = 5.0  # Seconds before a bar is shown, and between lines.
    LONG = 10.0  # Seconds of a fit from which on its first rounds are followed by a forecast.

    def __init__(self, unit: str, *, lines: bool = False) -> None:
        self.unit = unit
        shows_bars = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
        self._lines = lines or not shows_bars
        self._last = time.perf_counter()
        self._bar: Any = None
        self._has_forecast = False

    def __call__(self, state: ConstraintState) -> None:
        """Show one outer iteration."""
        if state.done and state.seconds > 0.1 * self.LONG and not self._has_forecast:
            self._has_forecast = True
            self._forecast(state)
        if self._bar is None and time.perf_counter() - self._last < self.DELAY:
            return
        if self._bar is None and not self._lines:
            try:
                from tqdm.auto import tqdm  # Its import takes longer than many a fit.
            except ImportError:
                self._lines = True
            else:
                self._bar = bar = tqdm(
                    total=state.total,
                    initial=state.done,
                    unit=self.unit,
                    leave=False,
                    dynamic_ncols=True,
                )
                # The rounds before the bar appeared count for the time that is left.
                bar.initial, bar.start_t = 0, bar.start_t - state.seconds
        if self._lines:
            self._last = time.perf_counter()
            left = "?"  # Before the first round there is nothing to estimate from.
            if state.done:
                left = _clock((state.total - state.done) * state.seconds / state.done)
            done = f"[{state.done}/{state.total} {self.unit}s, {left} left]"
            print(f"{done} {_summary(state)}", file=sys.stderr, flush=True)
            return
        self._bar.total = state.total
        self._bar.set_postfix_str(_summary(state), refresh=False)
        self._bar.update(state.done - self._bar.n)

    def _forecast(self, state: ConstraintState) -> None:
        """Say what the fit does, and how long it will take by its rounds so far."""
        seconds = state.seconds * state.total / state.done
        if seconds <= self.LONG:
            return
        n_boosters = state.total // state.n_rounds - 1
        boosters = f"{n_boosters} booster{'s' if n_boosters > 1 else ''}"
        first = f"{boosters} to measure the constraints, and then " if n_boosters else ""
        more = ""
        if state.rows.endswith("without multipliers"):
            later = seconds * (1.0 + n_boosters / (n_boosters + 1.0))
            more = f", and {_clock(later)} if boosters under multipliers are tried as well"
        message = f"The fit grows {first}the model: {_clock(seconds)} in all{more}."
        print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar; the next call makes a new one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _clock(seconds: float) -> str:
    """Write seconds as minutes and seconds, after hours if there are any."""
    return str(timedelta(seconds=round(seconds))).removeprefix("0:").removeprefix("0")


def _summary(state: ConstraintState) -> str:
    """Write rows, objective and worst violation of a state."""
    violations = state.violations.to_numpy()
    undefined = int(np.isnan(violations).sum())
    if undefined == violations.size:
        worst = "constraints undefined"
    else:
        j = int(np.nanargmax(violations))
        worst = "all constraints met"
        if undefined:
            worst = f"no constraint violated, {undefined} undefined"
        if violations[j] > ROUNDING:
            worst = f"worst violation {violations[j]:.4f} ({state.violations.index[j]})"
    return f"{state.rows}: objective {state.objective:.4f}, {worst}"


@dataclass(frozen=True, eq=False)
class SearchWatch:
    """Watches the searches of one fit on some rows.

    Parameters
    ----------
    notifier : CallbackNotifier
        Notifies callbacks of each call of an oracle, and knows the time limit.
    rows : str
        Name of the rows in reports.
    compiled : LinearConstraints
        The user's constraints on these rows, whose functionals come first in the programme.
    to_metric : callable
        Computes the metric from the loss that the reduction minimises.
    reserved : callable
        Estimates the seconds that boosters will take after the search.
    """

    notifier: CallbackNotifier
    rows: str
    compiled: LinearConstraints
    to_metric: Callable[[float], float]
    reserved: Callable[[], float]

    @property
    def is_over(self) -> bool:
        """Whether a callback or the time limit has ended the search; the limit may end it now."""
        notifier = self.notifier
        if notifier.end_of_search is None and not notifier.limit.has_time_for(self.reserved()):
            notifier.end_of_search = str(notifier.limit)
        return notifier.end_of_search is not None

    def notify(self, counted_by: str | None, value: float, u: Float) -> bool:
        """Notify callbacks of a mixture before a call of the oracle; say whether the search ends.

        Parameters
        ----------
        counted_by : {"probabilities", "labels"} or None
            How decisions are counted. With None callbacks are not notified: the search is one on
            some of the rows, which assesses another.
        value : float
            Loss of the mixture.
        u : ndarray
            Its functionals.
        """
        notifier, compiled = self.notifier, self.compiled
        if counted_by is None or not notifier.callbacks or notifier.end_of_search is not None:
            return self.is_over
        functionals = u[: compiled.constant.size]
        record = Record(
            iteration=notifier.n_calls,
            rounds=notifier.n_rounds,
            objective=self.to_metric(value),
            error=np.nan,
            rates=compiled.rows_of(functionals),
            functionals=functionals,
            bounds=compiled.b,
            multipliers=np.full(len(compiled), np.nan),
            bregman=np.nan,
            seconds=time.perf_counter() - notifier.limit.started,
        )
        notifier.n_calls += 1
        rows = f"{self.rows}, counted by {counted_by}"
        if notifier.notify("measuring", rows, record, compiled):
            notifier.end_of_search = CALLBACK
        return self.is_over
