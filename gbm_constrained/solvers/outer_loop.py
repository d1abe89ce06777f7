"""The outer loop that all solvers share: dual steps on exact rates, and their history."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.point import Point
from gbm_constrained.solvers.base import (
    DualMethod,
    Record,
    Subproblem,
    columns_of_records,
    records_of_columns,
)
from gbm_constrained.solvers.step_sizes import PathSlopes

MAX_DEPARTURE = 0.1  # Largest distance of multipliers from their schedule, as a share of it.
# Share of the schedule after which multipliers may leave it: before, they swing on their way.
SETTLED = 0.5
# Violation up to which a constraint at rest stays there: mean losses are summed in single
# precision, and a weighted rate that is 1 may come out above it.
ROUNDING = 1e-6


@dataclass
class OuterLoop(ABC):
    """A solver that is called with scores and answers with gradients and Hessians.

    Parameters
    ----------
    lagrangian : Lagrangian
        The problem on the training rows.
    tau : float, default=None
        Primal step size tau_0. By default one over the smoothness of the cross-entropy in the
        score, 4 for a binary margin and 2 for softmax scores: the proximal term is then as curved
        as the loss itself at most is.
    sigma : float, default=None
        Dual step size sigma_0, for constraints scaled to Lipschitz constant one. By default the
        largest that the theory allows, ``1 / (tau L^2)``.
    lipschitz : ndarray of shape (m,), default=None
        Lipschitz constant L_j of each constraint, for a learner that has its own; by default those
        of the cells. When it is given, the default of `sigma` takes ``L^2 = m``: always safe.
    mu : float, default=0
        Strong convexity of the objective relative to the Bregman distance; above zero the method
        accelerates.
    rounds_per_iteration : int, default=1
        Number R of calls answered in each outer iteration.
    progress : float, default=1
        Fraction p of the way to the solution of a subproblem that one outer iteration goes.
    lazy : bool, default=False
        Whether the learner is a booster, whose own fit a constraint that never binds must leave
        untouched. A multiplier at zero then stays there until its constraint is violated, and
        there is no proximal term while every multiplier is zero.
    initial_multipliers : ndarray of shape (m,), default=None
        Warm start y_0; zeros by default.
    fixed : ndarray of shape (m,), bool, default=None
        Multipliers that stay as they were started; none by default.
    schedule : sequence of ndarray of shape (m,), default=None
        Multipliers of each outer iteration, taken instead of dual steps: those of another solver,
        which measures the constraints elsewhere. The sequence may grow as that solver goes on; the
        last ones hold beyond its end.
    optimism : callable, default=None
        Given the number of an outer iteration, how much higher each row of constraints is taken
        to be where it is measured than at the scores given, and the bounds to aim at there, both
        (m,). Beside a `schedule`, and from the middle of it, rows in `corrected` then take dual
        steps of their own. They leave the schedule by :data:`MAX_DEPARTURE` times their
        constraint's largest multiplier there at most.
    corrected : ndarray of shape (m,), bool, default=False
        Rows that take dual steps of their own.
    callback : callable, default=None
        Called with the :class:`Record` of each outer iteration.
    has_rates : bool, default=True
        Whether the history has the rates at the scores given. Without them, which takes a
        `schedule`, records hold NaN in their place.

    Attributes
    ----------
    start : ndarray of shape (m,)
        Multipliers that the solver was started with.
    multipliers : ndarray of shape (m,)
        y, those of the current subproblem.
    bounds : ndarray of shape (m,)
        Bounds in force.
    history : list of Record
        One entry per outer iteration.
    ergodic_weights : list of float
        t_k = sigma_k / sigma_0: the weight of x_{k+1} in the ergodic average.
    dual : DualMethod
        The method that moves the multipliers.
    """

    lagrangian: Lagrangian
    tau: float | None = None
    sigma: float | None = None
    lipschitz: Float | None = None
    mu: float = 0.0
    rounds_per_iteration: int = 1
    progress: float = 1.0
    lazy: bool = False
    initial_multipliers: Float | None = None
    fixed: Bool | None = None
    schedule: Sequence[Float] | None = None
    optimism: Callable[[int], tuple[Float, Float]] | None = None
    corrected: Bool | bool = False
    callback: Callable[[Record], object] | None = None
    has_rates: bool = True
    start: Float = field(init=False)
    multipliers: Float = field(init=False)
    bounds: Float = field(init=False)
    history: list[Record] = field(default_factory=list, init=False)
    ergodic_weights: list[float] = field(default_factory=list, init=False)
    dual: DualMethod = field(init=False)

    def __post_init__(self) -> None:
        m = len(self.lagrangian.constraints)
        start = self.initial_multipliers
        self.start = np.zeros(m) if start is None else np.array(start, dtype=np.float64)
        self.multipliers = self.start.copy()
        self.bounds = self.lagrangian.constraints.b.copy()
        self.slopes = PathSlopes(self.lagrangian)
        self._rounds = 0
        self._centre: Array | None = None
        self._previous_values: Float | None = None
        self._subproblem: Subproblem | None = None  # of this iteration, once something asks
        self._started = time.perf_counter()
        self.dual = self.make_dual_method()

    @abstractmethod
    def make_dual_method(self) -> DualMethod:
        """Make the method that moves the multipliers."""

    @abstractmethod
    def begin_iteration(self, point: Point) -> None:
        """Start an outer iteration at the current scores."""

    @abstractmethod
    def find_proximal_term(self) -> tuple[Array | None, float | Float]:
        """Find centre and weight of the proximal term of the current subproblem."""

    @property
    def subproblem(self) -> Subproblem:
        """The current subproblem: computed when a learner asks for it first."""
        if self._subproblem is None:
            self._subproblem = Subproblem(self.multipliers, *self.find_proximal_term())
        return self._subproblem

    # -- calls ------------------------------------------------------------------------------------

    def __call__(self, margin: Array) -> tuple[Array, Array]:
        """Answer one boosting round: gradient and Hessian at `margin`, multiplied by W."""
        if self.lazy and self.multipliers.any():
            self.lagrangian.narrow()  # no longer the library's own fit, bit by bit
        point = self.lagrangian.at(margin)
        if self._rounds % self.rounds_per_iteration == 0:
            self.begin_iteration(point)
        self._rounds += 1
        return self.gradient(point)

    def look(self, margin: Callable[[], Array]) -> None:
        """Pass a boosting round that needs no answer: that of the library's own objective.

        Parameters
        ----------
        margin : callable
            Gives the scores before the round, where an outer iteration begins with it.
        """
        if self._rounds % self.rounds_per_iteration == 0:
            self.begin_iteration(self.lagrangian.at(margin()))
        self._rounds += 1

    def gradient(self, point: Point) -> tuple[Array, Array]:
        """Gradient and Hessian of the current subproblem at `point`, multiplied by W.

        Parameters
        ----------
        point : Point
            The Lagrangian at the current scores, from :meth:`Lagrangian.at`.

        Returns
        -------
        gradient, hessian : ndarray like the scores
        """
        subproblem = self.subproblem
        if subproblem.centre is self._centre and self._is_first_round:
            subproblem = replace(subproblem, centre=None)  # the point itself
        # With no multiplier at work a booster's fit is the library's own.
        own = not self.lazy or not self.multipliers.any()
        rate = 0.0 if own else 1.0 - (1.0 - self.progress) ** (1.0 / self.rounds_per_iteration)
        return point.gradient(
            self.multipliers, subproblem.centre, subproblem.proximal_weight, learning_rate=rate
        )

    @property
    def _is_first_round(self) -> bool:
        return (self._rounds - 1) % self.rounds_per_iteration == 0

    @property
    def rounds(self) -> int:
        """Calls answered so far."""
        return self._rounds

    @property
    def elapsed(self) -> float:
        """Seconds since the solver was made."""
        return time.perf_counter() - self._started

    @property
    def centre(self) -> Array | None:
        """Scores at which the current iteration began."""
        return self._centre

    # -- steps ------------------------------------------------------------------------------------

    def take_dual_step(
        self,
        point: Point,
        statistics: CellStatistics,
        offset: float | Float = 0.0,
        fritz_john: float = np.nan,
    ) -> None:
        """Move step sizes, multipliers and proximal centre; `offset` is added to g."""
        self._subproblem = None
        if self.history:
            self.dual.change_step_sizes()
        k, constraints = len(self.history), self.lagrangian.constraints
        functionals = constraints.functionals(statistics)
        rates = constraints.rows_of(functionals)
        values = rates + offset
        if self.optimism is not None:
            higher, self.bounds = self.optimism(k)
            values = values + higher
        before = values if self._previous_values is None else self._previous_values
        self._move_multipliers(values - self.bounds, values - before)
        self._previous_values = values
        self.ergodic_weights.append(self.dual.ergodic_weight)
        moved = 0.0
        if self._centre is not None:
            moved = self.lagrangian.bregman(point.margin, self._centre)
        self._move_centre(point.margin)
        record = Record(
            iteration=k,
            rounds=k * self.rounds_per_iteration,
            objective=self.lagrangian.objective(statistics),
            error=self.lagrangian.error(statistics),
            rates=rates,
            functionals=functionals,
            bounds=self.bounds,
            multipliers=self.multipliers,
            bregman=moved,
            seconds=self.elapsed,
            fritz_john=fritz_john,
        )
        self.history.append(record)
        if self.callback is not None:
            self.callback(record)

    def _move_multipliers(self, g: Float, change: Float) -> None:
        """Take the multipliers of the schedule, or a dual step."""
        scheduled = self._scheduled()
        # With no multiplier at work, nor one that is about to be, no slope matters.
        comes = (g > ROUNDING).any() if scheduled is None else scheduled.any()
        if self.lazy and (comes or self.multipliers.any()):
            self.slopes.observe()
        if scheduled is not None and not self._may_leave_schedule():
            self.multipliers = scheduled
            return
        ahead = self.dual.ascend(self.multipliers, g, change)
        if self.fixed is not None:
            ahead[self.fixed] = self.start[self.fixed]
        self.multipliers = ahead if scheduled is None else self._correct(scheduled, ahead)

    def follow_schedule(self, point: Point) -> None:
        """Take the multipliers of the schedule, and measure nothing."""
        scheduled = self._scheduled()
        assert scheduled is not None
        self._subproblem = None
        if self.history:
            self.dual.change_step_sizes()
        if self.lazy and (scheduled.any() or self.multipliers.any()):
            self.slopes.observe()
        self.multipliers, k = scheduled, len(self.history)
        self._move_centre(point.margin)
        self.ergodic_weights.append(self.dual.ergodic_weight)
        self.history.append(
            Record(
                iteration=k,
                rounds=k * self.rounds_per_iteration,
                objective=np.nan,
                error=np.nan,
                rates=np.full(scheduled.size, np.nan),
                functionals=np.full(self.lagrangian.constraints.constant.size, np.nan),
                bounds=self.bounds,
                multipliers=scheduled,
                bregman=np.nan,
                seconds=self.elapsed,
            )
        )

    def _scheduled(self) -> Float | None:
        """Multipliers that the schedule has for the iteration that begins."""
        if self.schedule is None:
            return None
        return self.schedule[min(len(self.history), len(self.schedule) - 1)]

    def _may_leave_schedule(self) -> bool:
        settled = SETTLED * len(self.schedule or ())
        return bool(np.any(self.corrected)) and len(self.history) >= settled

    def _correct(self, scheduled: Float, ahead: Float) -> Float:
        """Keep scheduled multipliers, and of some rows take own ones near to them."""
        owner = self.lagrangian.constraints.owner
        largest = np.zeros(owner.max(initial=-1) + 1)
        np.maximum.at(largest, owner, scheduled)
        reach = MAX_DEPARTURE * largest[owner]
        near = np.clip(ahead, np.maximum(scheduled - reach, 0.0), scheduled + reach)
        return np.where(self.corrected, near, scheduled)

    def _move_centre(self, margin: Array) -> None:
        """Make x_k the proximal centre."""
        if self._centre is not None and self._centre.dtype == margin.dtype:
            self._centre[...] = margin
        else:
            self._centre = margin.copy()

    # -- state ------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Collect what later stages of a fit read of a solver that is done."""
        return {
            "history": columns_of_records(self.history),
            "elapsed": self.elapsed,
            "lagrangian": self.lagrangian.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of a solver that was made with the same arguments, and is done.

        The callback receives the records of the history once more.
        """
        self.history[:] = records_of_columns(state["history"])
        self._started = time.perf_counter() - state["elapsed"]
        self.lagrangian.restore(state["lagrangian"])
        if self.callback is not None:
            for record in self.history:
                self.callback(record)
