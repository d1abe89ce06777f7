r"""Outer loop of all solvers: dual steps on exact rates, and their history.

**Shrinkage is a proximal term.** A Newton step of curvature h, shrunk to the fraction p, is the
full step with a proximal term of weight :math:`h (1/p - 1)` around its start. The learning rate of
a booster is therefore taken as part of D / tau, and only what it leaves of 1 / tau is added, with
the curvature h of the loss at the scores of the path. At a rate of 0.1 nothing is added while most
rows are uncertain. At a rate of one, for a rare class, or once most rows are learnt, all of
1 / tau is added (evidence, Step sizes).

**Returning proximal weight.** Steps of full length also memorise the few rows that a multiplier
weighs. On a long path the term therefore returns between 10 and 30 exact iterations; an
iteration of R rounds counts as p of one. Constraints that are measured on the training rows of the
trees do not detect memorised rows, and the term returns between 5 and 10 (evidence, Step sizes).

**Several classes.** The loss of several classes has little curvature once most rows are learnt,
and a term of that weight stops the learning. Dual steps need the term, :math:`1 / \tau \ge \sigma
L_g^2`, but rates are then as flat. The weight therefore falls with the square of the root mean
square slope of the probabilities, where it is below the slope at the constant model. Two classes
keep the weight (evidence, Step sizes).

**Slopes on the path.** A Lipschitz constant holds for any scores; boosters use the slopes at
their own scores. Probabilities of the rows of a cell have the slope :math:`p (1 - p)`. Its root
mean square is far below 1/4 once most rows are learnt, and dual steps are longer by the square of
the ratio. Gaps of error rates, the steepest constraints, pull rows towards the decision, and their
steps become shorter again (evidence, Step sizes).

**Longer steps of constraints that do not move.** The rows of some rates pull against each other,
as those of a gap of error rates do, and such a rate moves a hundred times less than its Lipschitz
constant allows. The dual step of a constraint therefore grows by a factor 1 + p in every iteration
that leaves its violation unchanged, or its slack while its multiplier is above zero. The step is
halved when the constraint crosses its bound, and is never below the step of the theory, as in
resilient backpropagation (Riedmiller and Braun, 1993; evidence, Step sizes).

**Opposite rows.** At most one of the two rows ``g`` and ``-g`` of a gap can bind, but a rate that
oscillates beyond both bounds leaves both with a multiplier. The gradient depends on the difference
of the two multipliers only. Their common part would still lengthen dual steps, until noise causes
a jump, and is therefore subtracted from both (evidence, Step sizes).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.problem.lagrangian import SLOPE_FACTOR, Lagrangian, Point
from gbm_constrained.solvers.base import (
    DualMethod,
    Record,
    Subproblem,
    columns_of_records,
    records_of_columns,
)

MAX_STRIDE, MAX_STRIDE_OF_CURVES = 50.0, 4.0  # Largest factors on dual steps.
# Numbers of exact iterations at which the proximal term begins to return, and has returned.
RETURN_ON_HELD_OUT_ROWS = (10.0, 30.0)
RETURN_ON_TRAINING_ROWS = (5.0, 10.0)


class PathSlopes:
    """Slopes of the class probabilities at the scores of a booster's path.

    Attributes
    ----------
    by_cell : (n_cells,). Root mean square slope in each cell, as last observed.
    of_pairs : (n_cells,). Root mean square slope of pair rates in each cell, as last observed.
    loss_curvature : Root mean square slope of all rows, near the mean curvature of the loss.
    derivatives : (m,). Multiplier of each row under a price of one, at the last functionals.
    """

    def __init__(self, lagrangian: Lagrangian) -> None:
        self.lagrangian = lagrangian
        self.by_cell: Float = np.zeros(0)
        self.of_pairs: Float = np.zeros(0)
        self.loss_curvature = 0.0
        self.derivatives: Float = np.ones(len(lagrangian.constraints))
        self._of_curves = np.zeros(len(lagrangian.constraints))

    def observe(self, margin: Array, *, has_dual_steps: bool = True) -> None:
        """Compute the slopes at the current scores; those of pair rates for dual steps alone."""
        pairs = self.lagrangian.rows.pairs
        if has_dual_steps and pairs is not None:
            self.of_pairs = pairs.slopes(margin)
        constants = self.lagrangian.constants
        self.by_cell = constants.slopes()
        self.loss_curvature = constants.loss_curvature(self.by_cell)

    def lipschitz(self) -> Float:
        """Compute Lipschitz constants of the constraints with the observed slopes, (m,)."""
        return self.lagrangian.constants.lipschitz_at(self.by_cell, self.of_pairs)

    def with_curves(self, lipschitz: Float) -> Float:
        """Replace the Lipschitz constants of directions of curves by those of the curves.

        A derivative may be near zero where the curve has a kink and be large on its other side.
        The constant of a curve therefore falls slowly.
        """
        constants, curves = self.lagrangian.constants, self.lagrangian.constraints.curves
        if not curves.items:
            return lipschitz
        slopes = constants.relative_slopes(self.by_cell) if self.by_cell.size else None
        found = constants.curve_lipschitz(lipschitz, self.derivatives, slopes)
        # Share of a curve's Lipschitz constant that is kept in each iteration.
        kept = np.maximum(found, 0.9 * self._of_curves)
        self._of_curves = np.where(curves.is_curved, kept, 0.0)
        return np.where(curves.is_curved, kept, found)

    @property
    def steepness(self) -> float:
        """Square of the slope of rates over that of the constant model; at most one."""
        constant = max(self.lagrangian.constants.constant_slope, np.finfo(float).tiny)
        return min(1.0, (SLOPE_FACTOR * self.loss_curvature / constant) ** 2)


class Strides:
    """Factors on dual steps, (m,), which grow from one on while the constraints do not move.

    `progress` is the fraction of the way to the solution of a subproblem in one iteration. Of rows
    that are `is_curved` derivatives jump, and factors stay small.
    """

    def __init__(self, is_curved: Bool, progress: float) -> None:
        self.progress = progress
        self.largest = np.where(is_curved, MAX_STRIDE_OF_CURVES, MAX_STRIDE)
        self.factors = np.ones(is_curved.size)
        self.previous_violation = np.zeros(is_curved.size)

    def adapt(self, g: Float, multipliers: Float) -> None:
        """Adapt the factors to the movement of the constraints since the last iteration."""
        before, self.previous_violation = self.previous_violation, g.copy()
        # Share of its last distance to the bound above which a constraint counts as not moving.
        stuck = (g * before > 0) & (np.abs(g) > 0.9 * np.abs(before))
        stuck &= (g > 0) | (multipliers > 0)
        # The dual step of such a constraint doubles in one exact iteration.
        factor = np.where(stuck, 1.0 + self.progress, 1.0)
        factor[g * before < 0] = 0.5
        self.factors = np.clip(self.factors * factor, 1.0, self.largest)


def cancel_opposites(multipliers: Float, opposites: tuple[Array, Array]) -> None:
    """Subtract the common part of the multipliers of opposite rows, in place."""
    first, second = opposites
    common = np.minimum(multipliers[first], multipliers[second])
    multipliers[first] -= common
    multipliers[second] -= common


MAX_DEPARTURE = 0.1  # Largest distance of multipliers from their schedule, as a share of it.
# Largest violation that leaves a multiplier at zero. Mean losses are summed in single precision,
# and a weighted rate of 1 may be above 1 by rounding.
ROUNDING = 1e-6
# Weight of the last derivative of a curved row in the average over iterations, and the first
# iterations, whose scores are nearly alike and whose derivatives are not averaged.
LAST_DERIVATIVE, UNSETTLED = 0.25, 5


@dataclass
class OuterLoop(ABC):
    """Solver that computes gradients and Hessians at the scores of a learner.

    Parameters
    ----------
    tau : Primal step size tau_0. By default one over the smoothness of the cross-entropy in the
        score, 4 for a binary margin and 2 for softmax scores: the proximal term is then as curved
        as the loss itself at most is.
    sigma : Dual step size sigma_0, for constraints scaled to Lipschitz constant one. By default
        the largest that the theory allows, ``1 / (tau L^2)``.
    lipschitz : (m,). Lipschitz constant L_j of each constraint, for a learner that has its own; by
        default those of the cells. When it is given, the default of `sigma` takes ``L^2 = m``:
        always safe.
    mu : Strong convexity of the objective relative to the Bregman distance; above zero the method
        accelerates.
    rounds_per_iteration : Number R of calls answered in each outer iteration.
    progress : Fraction p of the way to the solution of a subproblem that one outer iteration goes.
    lazy : Whether the learner is a booster, whose own fit must not change under constraints that
        never bind. A multiplier at zero then stays there until its constraint is violated, and
        there is no proximal term while all multipliers are zero.
    initial_multipliers : (m,). Warm start y_0; zeros by default.
    fixed : (m,). Multipliers that stay as they were started; none by default.
    largest : (m,). Multipliers whose shares dual steps hold to a sum of one,
        ``sum(y / largest) <= 1``; unbounded by default.
    schedule : Multipliers of each outer iteration, (m,), in place of dual steps: those of another
        solver, which measures the constraints on other rows. The sequence may grow while that
        solver runs, and the last multipliers hold beyond its end.
    optimism : Function of the number of an outer iteration. It returns by how much each row of
        constraints is higher on the rows where it is measured than at the given scores, and the
        bounds there, (m,) each.
    corrected : (m,). Rows that take dual steps of their own from the middle of a `schedule`, with
        the values and bounds of `optimism`.
    max_departure : Largest distance of such rows from the schedule, as a share of their
        constraint's largest multiplier there.
    callback : Called with the :class:`Record` of each outer iteration.
    has_rates : Whether records hold the rates at the given scores. Without rates, which needs a
        `schedule`, records hold NaN.

    Attributes
    ----------
    start : (m,). Multipliers that the solver was started with.
    multipliers : (m,). y, those of the current subproblem.
    prices : (m,). What dual steps move: the multipliers of straight rows, and the price of its
        curved row for each direction of one (:mod:`gbm_constrained.problem.linear_constraints`).
    bounds : (m,). Bounds in force.
    history : One entry per outer iteration.
    ergodic_weights : t_k = sigma_k / sigma_0: the weight of x_{k+1} in the ergodic average.
    dual : The method that moves the multipliers.
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
    largest: Float | None = None
    schedule: Sequence[Float] | None = None
    optimism: Callable[[int], tuple[Float, Float]] | None = None
    corrected: Bool | bool = False
    max_departure: float = MAX_DEPARTURE
    callback: Callable[[Record], object] | None = None
    has_rates: bool = True
    start: Float = field(init=False)
    multipliers: Float = field(init=False)
    prices: Float = field(init=False)
    bounds: Float = field(init=False)
    history: list[Record] = field(default_factory=list, init=False)
    ergodic_weights: list[float] = field(default_factory=list, init=False)
    dual: DualMethod = field(init=False)

    def __post_init__(self) -> None:
        m = len(self.lagrangian.constraints)
        start = self.initial_multipliers
        self.start = np.zeros(m) if start is None else np.array(start, dtype=np.float64)
        self.multipliers = self.start.copy()
        curved = self.lagrangian.constraints.curves.is_curved
        self.prices = np.where(curved, 0.0, self.start)
        self._is_unpriced = curved & (self.start > 0.0)
        self.bounds = self.lagrangian.constraints.b.copy()
        self.slopes = PathSlopes(self.lagrangian)
        self._active_cells: tuple[Array, Array] | None = None  # by active multipliers
        self._rounds = 0
        self._centre: Array | None = None
        self._previous_values: Float | None = None
        self._subproblem: Subproblem | None = None  # computed when it is first used
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

    def compute_proximal_weights(self, inverse_tau: float) -> Float:
        """Compute the weights of a booster's proximal term, where a multiplier is above zero.

        Cells that a multiplier weighs have the weight 1 / tau, which the dual step needs there.
        The sensitivity of the other cells is zero, so that their step may have any length
        (diagonal preconditioning). Their weight is at most the curvature of the loss at the
        constant model. With a rare class this is far less than 1 / tau, and the booster keeps its
        pace on the many rows that no constraint depends on. The part that shrinkage plays already
        is subtracted from both.
        """
        lagrangian, active = self.lagrangian, self.multipliers > 0
        if self._active_cells is None or not np.array_equal(active, self._active_cells[0]):
            self._active_cells = (active, active @ lagrangian.constants.sensitivities > 0)
        at_rest = min(inverse_tau, lagrangian.constants.constant_curvature)
        held = np.array([at_rest, inverse_tau])
        if lagrangian.rows.n_scores > 1:
            held *= self.slopes.steepness
        left = held - self.slopes.loss_curvature * (1.0 / self.progress - 1.0)
        # With a schedule, constraints are measured on rows that trees are not grown on.
        begins, ends = (
            RETURN_ON_TRAINING_ROWS if self.schedule is None else RETURN_ON_HELD_OUT_ROWS
        )
        path = len(self.history) * self.progress
        back = min(max((path - begins) / (ends - begins), 0.0), 1.0)
        at_rest, weighed = np.maximum(left, held * back)
        return np.asarray(np.where(self._active_cells[1], weighed, at_rest))

    @property
    def subproblem(self) -> Subproblem:
        """Current subproblem, which is computed when it is first used."""
        if self._subproblem is None:
            self._subproblem = Subproblem(self.multipliers, *self.find_proximal_term())
        return self._subproblem

    def __call__(self, margin: Array) -> tuple[Array, Array]:
        """Compute gradient and Hessian of one boosting round at `margin`, multiplied by W."""
        if self.lazy and self.multipliers.any():
            self.lagrangian.narrow()  # The fit need no longer equal the library's own, bit by bit.
        point = self.lagrangian.at(margin)
        if self._rounds % self.rounds_per_iteration == 0:
            self.begin_iteration(point)
        self._rounds += 1
        return self.gradient(point)

    def count_round(self, margin: Callable[[], Array]) -> None:
        """Count a boosting round whose gradient is that of the library's own objective."""
        if self._rounds % self.rounds_per_iteration == 0:
            self.begin_iteration(self.lagrangian.at(margin()))
        self._rounds += 1

    def gradient(self, point: Point) -> tuple[Array, Array]:
        """Compute gradient and Hessian of the current subproblem at a point, multiplied by W."""
        subproblem = self.subproblem
        if subproblem.centre is self._centre and (
            (self._rounds - 1) % self.rounds_per_iteration == 0
        ):
            subproblem = replace(subproblem, centre=None)  # The centre is the point.
        # While all multipliers are zero, a booster's fit is the library's own.
        own = not self.lazy or not self.multipliers.any()
        rate = 0.0 if own else 1.0 - (1.0 - self.progress) ** (1.0 / self.rounds_per_iteration)
        return point.gradient(
            self.multipliers, subproblem.centre, subproblem.proximal_weight, learning_rate=rate
        )

    @property
    def rounds(self) -> int:
        """Boosting rounds so far."""
        return self._rounds

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the solver."""
        return time.perf_counter() - self._started

    @property
    def centre(self) -> Array | None:
        """Scores at which the current iteration began."""
        return self._centre

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
        self._find_derivatives(functionals)
        if self.optimism is not None:
            higher, self.bounds = self.optimism(k)
            values = values + higher
        before = values if self._previous_values is None else self._previous_values
        self._move_multipliers(point.margin, values - self.bounds, values - before)
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
            functionals=constraints.find_stated(statistics, functionals),
            bounds=self.bounds,
            multipliers=self.multipliers,
            bregman=moved,
            seconds=self.elapsed,
            fritz_john=fritz_john,
            predicted=statistics.predicted,
        )
        self.history.append(record)
        if self.callback is not None:
            self.callback(record)

    def _find_derivatives(self, functionals: Float) -> None:
        """Average the derivatives of curved rows over iterations, and price what they start from.

        A derivative jumps where another group or term becomes the largest. Scores would follow
        such jumps there and back.
        """
        curves, slopes = self.lagrangian.constraints.curves, self.slopes
        if not curves.items:
            return
        found = curves.derivatives(functionals)
        weight = LAST_DERIVATIVE if len(self.history) >= UNSETTLED else 1.0
        slopes.derivatives = slopes.derivatives + weight * (found - slopes.derivatives)
        priced = curves.prices(self.start, slopes.derivatives)
        now = self._is_unpriced & (priced > 0.0)
        self.prices[now] = np.maximum(self.prices[now], priced[now])
        self._is_unpriced &= ~now

    def _move_multipliers(self, margin: Array, g: Float, change: Float) -> None:
        """Take the multipliers of the schedule, or a dual step."""
        scheduled = self._look_up_schedule()
        # Slopes matter if a multiplier is above zero, or if one is about to be.
        comes = (g > ROUNDING).any() if scheduled is None else scheduled.any()
        if self.lazy and (comes or self.multipliers.any()):
            self.slopes.observe(margin)
        # Before the middle of the schedule, multipliers still oscillate.
        is_settled = len(self.history) >= 0.5 * len(self.schedule or ())
        if scheduled is not None and not (np.any(self.corrected) and is_settled):
            self.multipliers = self.prices = scheduled
            return
        ahead = self.dual.ascend(self.prices, g, change)
        if scheduled is not None:
            # Move multipliers of corrected rows from the schedule towards their own dual steps.
            owner = self.lagrangian.constraints.owner
            largest = np.zeros(owner.max(initial=-1) + 1)
            np.maximum.at(largest, owner, scheduled)
            reach = self.max_departure * largest[owner]
            near = np.clip(ahead, np.maximum(scheduled - reach, 0.0), scheduled + reach)
            self.multipliers = self.prices = np.where(self.corrected, near, scheduled)
            return
        if self.fixed is not None:
            ahead[self.fixed] = self.start[self.fixed]
        self.prices, self.multipliers = ahead, ahead * self.slopes.derivatives
        if self.fixed is not None:
            self.multipliers[self.fixed] = self.start[self.fixed]

    def follow_schedule(self, point: Point) -> None:
        """Take the multipliers of the schedule without computing rates."""
        scheduled = self._look_up_schedule()
        assert scheduled is not None
        self._subproblem = None
        if self.history:
            self.dual.change_step_sizes()
        if self.lazy and (scheduled.any() or self.multipliers.any()):
            self.slopes.observe(point.margin, has_dual_steps=False)
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

    def _look_up_schedule(self) -> Float | None:
        """Look up the multipliers of the iteration that begins; None without a schedule."""
        if self.schedule is None:
            return None
        return self.schedule[min(len(self.history), len(self.schedule) - 1)]

    def _move_centre(self, margin: Array) -> None:
        """Copy the scores x_k as the proximal centre."""
        if self._centre is not None and self._centre.dtype == margin.dtype:
            self._centre[...] = margin
        else:
            self._centre = margin.copy()

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
