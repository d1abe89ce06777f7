"""Outer loop of all solvers, options of their methods, and records of iterations.

The learner calls a :class:`Solver` with its current scores, and the solver computes gradients and
Hessians. Every few calls an outer iteration starts, in which multipliers move by a dual step on
exact rates.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from sklearn.base import BaseEstimator

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.data.validation import check_choice, check_integer, is_finite_number
from gbm_constrained.problem.kernels import CONCAVITIES, RAMP, SQUARE, ProxyName
from gbm_constrained.problem.lagrangian import Lagrangian, Point
from gbm_constrained.problem.linear_constraints import LinearConstraints


@dataclass(frozen=True)
class Record:
    """One outer iteration: the state x_k that it starts from, and its dual step.

    Parameters
    ----------
    iteration : k, from 0.
    rounds : Boosting rounds before this iteration.
    objective : f(x_k), weighted mean cross-entropy in nats.
    error : 0-1 error of the training rows at x_k.
    rates : (m,). Exact left-hand side of each row of constraints at x_k.
    functionals : (n_functionals,). Value of each rate, in each group, at x_k.
    bounds : (m,). Right-hand sides in force.
    multipliers : (m,). y_{k+1}, the multipliers of the subproblem that follows.
    bregman : D(x_k, x_{k-1}).
    seconds : Time since the start of the solver.
    fritz_john : Residual of the outer problem of CBPR that ended at x_k; NaN otherwise.
    predicted : (n_cells, n_classes). Share of each cell that is predicted as each class at x_k;
        no rows where it is unknown.
    """

    iteration: int
    rounds: int
    objective: float
    error: float
    rates: Float
    functionals: Float
    bounds: Float
    multipliers: Float
    bregman: float
    seconds: float
    fritz_john: float = np.nan
    predicted: Float = field(default_factory=lambda: np.zeros((0, 0)))


def columns_of_records(records: Sequence[Record]) -> dict[str, Array]:
    """Convert records to a table with one array for each field."""
    names = [f.name for f in fields(Record)]
    return {name: np.array([getattr(r, name) for r in records]) for name in names}


def records_of_columns(columns: Mapping[str, Array]) -> list[Record]:
    """Convert a table of :func:`columns_of_records` to records."""
    rows = zip(*(columns[f.name] for f in fields(Record)), strict=True)
    return [Record(*(v.copy() if v.ndim else v.item() for v in row)) for row in rows]


# Largest violation that leaves a multiplier at zero. Mean losses are summed in single precision,
# and a weighted rate of 1 may be above 1 by rounding.
ROUNDING = 1e-6


@dataclass
class Solver(ABC):
    """Outer loop on one problem, which computes gradients and Hessians at the scores of a learner.

    Parameters
    ----------
    rounds_per_iteration : Number R of calls answered in each outer iteration.
    progress : Fraction p of the way to the solution of a subproblem that one outer iteration goes.
    lazy : Whether the learner is a booster, whose own fit must not change under constraints that
        never bind. A multiplier at zero then stays there until its constraint is violated, and
        there is no proximal term while all multipliers are zero.
    initial_multipliers : (m,). Warm start y_0; zeros by default.
    fixed : (m,). Multipliers that stay as they were started; none by default.
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
    ergodic_weights : Weight of x_{k+1} in the ergodic average.
    rounds : Boosting rounds so far.
    centre : Scores at which the current iteration began.
    slopes : (n_cells,). Root mean square slope of the class probabilities in each cell at the
        scores of a booster's path, as last observed.
    pair_slopes : (n_cells,). The same of pair rates.
    loss_curvature : Root mean square slope of all rows, near the mean curvature of the loss.
    derivatives : (m,). Multiplier of each row under a price of one, at the last functionals.
    """

    lagrangian: Lagrangian
    rounds_per_iteration: int = 1
    progress: float = 1.0
    lazy: bool = False
    initial_multipliers: Float | None = None
    fixed: Bool | None = None
    schedule: Sequence[Float] | None = None
    optimism: Callable[[int], tuple[Float, Float]] | None = None
    corrected: Bool | bool = False
    max_departure: float = 0.1
    callback: Callable[[Record], object] | None = None
    has_rates: bool = True
    start: Float = field(init=False)
    multipliers: Float = field(init=False)
    prices: Float = field(init=False)
    bounds: Float = field(init=False)
    history: list[Record] = field(default_factory=list, init=False)
    ergodic_weights: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        m = len(self.lagrangian.constraints)
        start = self.initial_multipliers
        self.start = np.zeros(m) if start is None else np.array(start, dtype=np.float64)
        self.multipliers = self.start.copy()
        curved = self.lagrangian.constraints.curves.is_curved
        self.prices = np.where(curved, 0.0, self.start)
        self._is_unpriced = curved & (self.start > 0.0)
        self.bounds = self.lagrangian.constraints.b.copy()
        self.slopes: Float = np.zeros(0)
        self.pair_slopes: Float = np.zeros(0)
        self.loss_curvature = 0.0
        self.derivatives: Float = np.ones(m)
        self.rounds = 0
        self.centre: Array | None = None
        self._previous_values: Float | None = None
        self._proximal_term: tuple[Array | None, float | Float] | None = None
        self._started = time.perf_counter()

    @abstractmethod
    def begin_iteration(self, point: Point) -> None:
        """Start an outer iteration at the current scores."""

    @abstractmethod
    def find_proximal_term(self) -> tuple[Array | None, float | Float]:
        """Find centre and weight of the proximal term of the current subproblem."""

    @abstractmethod
    def change_step_sizes(self) -> None:
        """Change the step sizes from one iteration to the next."""

    @abstractmethod
    def ascend(self, multipliers: Float, g: Float, change: Float) -> Float:
        """Move the multipliers, given g and its change since the last iteration, (m,) each."""

    @property
    @abstractmethod
    def ergodic_weight(self) -> float:
        """Weight of the iterate in the ergodic average."""

    @property
    def proximal_term(self) -> tuple[Array | None, float | Float]:
        """Centre and weight of the current proximal term, which is found when it is first used.

        The centre is that of the iteration by default, and the weight is one number, or one for
        each cell, (n_cells,).
        """
        if self._proximal_term is None:
            self._proximal_term = self.find_proximal_term()
        return self._proximal_term

    def __call__(self, margin: Array) -> tuple[Array, Array]:
        """Compute gradient and Hessian of one boosting round at `margin`, multiplied by W."""
        if self.lazy and self.multipliers.any():
            self.lagrangian.narrow()  # The fit need no longer equal the library's own, bit by bit.
        point = self.lagrangian.at(margin)
        if self.rounds % self.rounds_per_iteration == 0:
            self.begin_iteration(point)
        self.rounds += 1
        return self.gradient(point)

    def count_round(self, margin: Callable[[], Array]) -> None:
        """Count a boosting round whose gradient is that of the library's own objective."""
        if self.rounds % self.rounds_per_iteration == 0:
            self.begin_iteration(self.lagrangian.at(margin()))
        self.rounds += 1

    def gradient(self, point: Point) -> tuple[Array, Array]:
        """Compute gradient and Hessian of the current subproblem at a point, multiplied by W."""
        centre, weight = self.proximal_term
        if centre is self.centre and (self.rounds - 1) % self.rounds_per_iteration == 0:
            centre = None  # The centre is the point.
        # While all multipliers are zero, a booster's fit is the library's own.
        own = not self.lazy or not self.multipliers.any()
        rate = 0.0 if own else 1.0 - (1.0 - self.progress) ** (1.0 / self.rounds_per_iteration)
        return point.gradient(self.multipliers, centre, weight, learning_rate=rate)

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the solver."""
        return time.perf_counter() - self._started

    def take_dual_step(
        self,
        point: Point,
        statistics: CellStatistics | None,
        offset: float | Float = 0.0,
        fritz_john: float = np.nan,
    ) -> None:
        """Move step sizes, multipliers and proximal centre; `offset` is added to g.

        Without statistics the multipliers follow the schedule, and the record has no rates.
        """
        self._proximal_term = None
        if self.history:
            self.change_step_sizes()
        k, constraints = len(self.history), self.lagrangian.constraints
        scheduled = None
        if self.schedule is not None:
            scheduled = self.schedule[min(k, len(self.schedule) - 1)]
        functionals, moved = None, np.nan
        if statistics is None:
            assert scheduled is not None
            if self.lazy and (scheduled.any() or self.multipliers.any()):
                self._observe_slopes(point.margin, has_dual_steps=False)
            self.multipliers = scheduled
        else:
            functionals = constraints.functionals(statistics)
            values = constraints.rows_of(functionals) + offset
            self._find_derivatives(functionals)
            if self.optimism is not None:
                higher, self.bounds = self.optimism(k)
                values = values + higher
            before = values if self._previous_values is None else self._previous_values
            g, self._previous_values = values - self.bounds, values
            self._move_multipliers(point.margin, g, values - before, scheduled)
            moved = 0.0
            if self.centre is not None:
                moved = self.lagrangian.bregman(point.margin, self.centre)
        self.ergodic_weights.append(self.ergodic_weight)
        if self.centre is not None and self.centre.dtype == point.margin.dtype:
            self.centre[...] = point.margin
        else:
            self.centre = point.margin.copy()
        self.add_record(statistics, functionals, bregman=moved, fritz_john=fritz_john)

    def add_record(
        self,
        statistics: CellStatistics | None,
        functionals: Float | None = None,
        *,
        bregman: float = np.nan,
        fritz_john: float = np.nan,
    ) -> None:
        """Append the record of an iteration to the history, and hand it to the callback.

        Without statistics, what it says of the scores is NaN, and the callback is not called.
        """
        k, lagrangian = len(self.history), self.lagrangian
        constraints = lagrangian.constraints
        known: dict[str, Any] = {
            "objective": np.nan,
            "error": np.nan,
            "rates": np.full(len(constraints), np.nan),
            "functionals": np.full(constraints.constant.size, np.nan),
        }
        if statistics is not None:
            if functionals is None:
                functionals = constraints.functionals(statistics)
            known = {
                "objective": lagrangian.objective(statistics),
                "error": lagrangian.error(statistics),
                "rates": constraints.rows_of(functionals),
                "functionals": constraints.find_stated(statistics, functionals),
                "predicted": statistics.predicted,
            }
        record = Record(
            iteration=k,
            rounds=k * self.rounds_per_iteration,
            bounds=self.bounds,
            multipliers=self.multipliers,
            bregman=bregman,
            seconds=self.elapsed,
            fritz_john=fritz_john,
            **known,
        )
        self.history.append(record)
        if self.callback is not None and statistics is not None:
            self.callback(record)

    def _observe_slopes(self, margin: Array, *, has_dual_steps: bool = True) -> None:
        """Compute the slopes at the current scores; those of pair rates for dual steps alone."""
        pairs, constants = self.lagrangian.rows.pairs, self.lagrangian.constants
        if has_dual_steps and pairs is not None:
            self.pair_slopes = pairs.slopes(margin)
        self.slopes = constants.slopes()
        self.loss_curvature = constants.loss_curvature(self.slopes)

    def _find_derivatives(self, functionals: Float) -> None:
        """Average the derivatives of curved rows over iterations, and price what they start from.

        A derivative jumps where another group or term becomes the largest. Scores would follow
        such jumps there and back.
        """
        curves = self.lagrangian.constraints.curves
        if not curves.items:
            return
        found = curves.derivatives(functionals)
        # Scores of the first iterations are nearly alike, and their derivatives not averaged.
        weight = 0.25 if len(self.history) >= 5 else 1.0
        self.derivatives = self.derivatives + weight * (found - self.derivatives)
        priced = curves.prices(self.start, self.derivatives)
        now = self._is_unpriced & (priced > 0.0)
        self.prices[now] = np.maximum(self.prices[now], priced[now])
        self._is_unpriced &= ~now

    def _move_multipliers(
        self, margin: Array, g: Float, change: Float, scheduled: Float | None
    ) -> None:
        """Take the multipliers of the schedule, or a dual step."""
        # Slopes matter if a multiplier is above zero, or if one is about to be.
        comes = (g > ROUNDING).any() if scheduled is None else scheduled.any()
        if self.lazy and (comes or self.multipliers.any()):
            self._observe_slopes(margin)
        # Before the middle of the schedule, multipliers still oscillate.
        is_settled = len(self.history) >= 0.5 * len(self.schedule or ())
        if scheduled is not None and not (np.any(self.corrected) and is_settled):
            self.multipliers = self.prices = scheduled
            return
        ahead = self.ascend(self.prices, g, change)
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
        self.prices, self.multipliers = ahead, ahead * self.derivatives
        if self.fixed is not None:
            self.multipliers[self.fixed] = self.start[self.fixed]

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


@dataclass(eq=False, repr=False, kw_only=True)
class SolverMethod(BaseEstimator):  # type: ignore[misc]
    """Options of a method, from which the solver of a problem is made.

    See :class:`~gbm_constrained.solvers.ABPP` for the parameters.

    Attributes
    ----------
    kind : Class of the solver.
    needs : Names of the cell statistics that the method reads, checked before training.
    runs_beyond_theory : Whether the method also runs, as a heuristic, on problems that its theory
        does not cover.
    """

    tau: float | None = None
    sigma: float | None = None
    mu: float = 0.0
    proxy: ProxyName = "auto"
    rounds_per_iteration: int = 2
    outlier_clip: float | None = None
    initial_multipliers: Any = None

    runs_beyond_theory: ClassVar[bool] = False
    kind: ClassVar[type[Any]]

    def begin(self, lagrangian: Lagrangian, **running: Any) -> Solver:
        """Make the solver of a problem; `running` are other parameters of its class."""
        solver: Solver = self.kind(lagrangian, **self.solver_options(), **running)
        return solver

    def supports(self, constraints: LinearConstraints, iterate: str = "last") -> str | None:
        """Explain why the theory of the method does not cover a problem; None where it does."""
        return None

    def choose(self, constraints: LinearConstraints, iterate: str = "last") -> SolverMethod:
        """Choose the method that solves a problem: this one, unless it stands for several."""
        return self

    def check_problem(self, constraints: LinearConstraints, iterate: str = "last") -> None:
        """Refuse a problem that the method cannot solve.

        A method that `runs_beyond_theory` is not refused where the user asks for it by name.
        """
        method = self.choose(constraints, iterate)
        if self.proxy == SQUARE and not constraints.pair_blocks:
            raise ValueError(
                f"proxy={SQUARE!r} is a surrogate of pair rates such as auc(), and no constraint "
                f"is on one: use proxy='auto', or add such a constraint."
            )
        if iterate in ("ergodic", "randomized"):
            check_straight(constraints.constraints, f"iterate={iterate!r}", "use iterate='last'")
        reason = method.supports(constraints, iterate)
        if reason is not None and not method.runs_beyond_theory:
            raise ValueError(reason)

    def check_classes(self, n_classes: int) -> None:
        """Refuse options that have no meaning for so many classes."""
        if self.proxy == RAMP and n_classes > 2:
            raise ValueError(
                f"proxy={RAMP!r} is a function of the margin of two classes, and y has "
                f"{n_classes}: use proxy='sigmoid', which is bounded as well."
            )

    def check(self) -> None:
        """Refuse options of a wrong type or value."""
        check_choice("proxy", self.proxy, ["auto", *CONCAVITIES, SQUARE])
        check_integer("rounds_per_iteration", self.rounds_per_iteration, 1)
        for name in ("tau", "sigma", "outlier_clip"):
            check_positive(name, getattr(self, name), is_optional=True)
        if not (is_finite_number(self.mu) and self.mu >= 0):
            raise ValueError(f"mu must be a non-negative number, got {self.mu!r}.")
        try:
            start = np.zeros(1) if self.start is None else self.start
        except (TypeError, ValueError):  # They are no numbers.
            start = np.full(1, np.nan)
        if start.ndim != 1 or not (np.isfinite(start) & (start >= 0)).all():
            raise ValueError(
                f"initial_multipliers must hold finite, non-negative numbers, as multipliers_ of "
                f"an earlier fit does; got {self.initial_multipliers!r}."
            )

    @property
    def start(self) -> Float | None:
        """Initial multipliers as an array; None where they are zero."""
        given = self.initial_multipliers
        return None if given is None else np.asarray(given, dtype=np.float64)

    def solver_options(self) -> dict[str, Any]:
        """Collect the options that solvers have under the same names."""
        others = ("proxy", "outlier_clip", "initial_multipliers")
        return {k: v for k, v in self.get_params(deep=False).items() if k not in others}


def check_positive(name: str, value: object, *, is_optional: bool = False) -> None:
    """Refuse a value that is no positive number, nor None for an optional one."""
    if value is None and is_optional:
        return
    if not (is_finite_number(value) and value > 0):  # type: ignore[operator]
        kind = "a positive number or None" if is_optional else "a positive number"
        raise ValueError(f"{name} must be {kind}, got {value!r}.")


ReductionName: TypeAlias = Literal[
    "auto", "columns", "frank_wolfe", "gda", "ellipsoid", "bisection"
]
STEP_RULES = "line_search", "open_loop"
# The reduction that each option belongs to.
OracleName: TypeAlias = Literal["auto", "plug_in", "refit", "in_training"]
Ensemble: TypeAlias = Literal[None, "folds"]
SEARCH_OPTIONS = ("oracle", "ensemble", "deterministic")  # Of every reduction.
OWNERS = {"step": "frank_wolfe", "steps": "gda", "radius": "ellipsoid"}


@dataclass(frozen=True)
class Reduction:
    """A reduction of a metric to costs of decisions, with its own options.

    It is given as ``solver=`` beside ``maximize=`` or ``minimize=``, in the place of its name. See
    Narasimhan et al., "Consistent Multiclass Algorithms for Complex Metrics and Constraints",
    section 8, for the values of the paper's experiments.

    Parameters
    ----------
    name : {"auto", "columns", "frank_wolfe", "gda", "ellipsoid", "bisection"}, default="auto"
        The reduction; "auto" takes the one that the metric and the constraints allow.
    max_calls : int, default=200
        Most calls of the oracle in each search.
    step : {"line_search", "open_loop"}, default=None
        Of ``"frank_wolfe"``: the exact step, which is the default, or the paper's 2 / (t + 2).
    steps : sequence of (float, float), default=None
        Of ``"gda"``: steps of the copy of the confusion matrix and of the multipliers. Each pair
        is tried from the start, with its share of the calls. By default four pairs of the paper's
        grid.
    radius : float, default=None
        Of ``"ellipsoid"``: radius of the first ball of multipliers, 20 by default.
    oracle : {"plug_in", "refit", "in_training", "auto"}, default="plug_in"
        How boosters take part in the search for rules. "plug_in" grows them once. "refit" grows
        them anew, with weights of classes, or of classes and groups, that are the costs of the
        optimum: `predict_proba` is then that of weighted rows. "in_training" grows them once, in
        stages, and after each stage the weights move towards the costs of the optimum. It takes no
        early stopping and no callbacks. "auto" takes "plug_in", unless "in_training" (or "refit",
        where a model cannot be grown in stages) is better on held-out rows by more than one
        standard error. Up to 20,000 rows it grows twice as many boosters to find out; beyond, it
        tries no other. See :mod:`gbm_constrained.fit.metric_search`.
    ensemble : {None, "folds"}, default=None
        Which model the rules decide by. None trains on all rows. "folds" merges the boosters of
        the folds into one model of the library, whose raw score is the mean of theirs: no model
        of all rows is trained, and the scores are those that the rules were found on. The model
        has as many times the trees as there are folds, and predicts better on small data with rare
        classes (evidence page, "Boosters of the folds merged"). The value on held-out rows is that
        of the boosters one by one. Needs ``measure_on="crossfit"`` and leaves of trees: neither
        ``dart`` nor ``gblinear`` of XGBoost.
    deterministic : bool, default=None
        Whether one rule is returned where the optimum draws from several. By default, if the one
        rule loses next to nothing.

    Examples
    --------
    >>> from gbm_constrained import ConstrainedLGBMClassifier
    >>> from gbm_constrained.solvers import Reduction
    >>> solver = Reduction("gda", max_calls=2000, steps=[(0.1, 0.1)])
    >>> clf = ConstrainedLGBMClassifier(maximize="q_mean", solver=solver)
    """

    name: ReductionName = "auto"
    max_calls: int = 200
    step: str | None = None
    steps: Sequence[tuple[float, float]] | None = None
    radius: float | None = None
    oracle: OracleName = "plug_in"
    ensemble: Ensemble = None
    deterministic: bool | None = None

    def check(self) -> None:
        """Refuse options of a wrong value, and those of another reduction."""
        check_choice("name of Reduction", self.name, get_args(ReductionName))
        check_choice("oracle of Reduction", self.oracle, get_args(OracleName))
        check_choice("ensemble of Reduction", self.ensemble, get_args(Ensemble))
        check_choice("deterministic of Reduction", self.deterministic, (None, True, False))
        check_integer("max_calls of Reduction", self.max_calls, 2)
        for option in self.settings:
            if self.name != OWNERS[option]:
                raise ValueError(
                    f"{option}={getattr(self, option)!r} is of Reduction({OWNERS[option]!r}), and "
                    f"this one is {self.name!r}: leave it out."
                )
        if self.step is not None:
            check_choice("step of Reduction", self.step, STEP_RULES)
        check_positive("radius of Reduction", self.radius, is_optional=True)
        if self.steps is not None:
            try:
                pairs = [tuple(pair) for pair in self.steps]
            except TypeError:
                pairs = []
            if not pairs or any(len(pair) != 2 for pair in pairs):
                raise ValueError(
                    f"steps of Reduction must be pairs of numbers, such as [(0.1, 0.1)], got "
                    f"{self.steps!r}."
                )
            for step in (step for pair in pairs for step in pair):
                check_positive("each of the steps of Reduction", step)

    @property
    def settings(self) -> dict[str, Any]:
        """The options of this reduction that were given."""
        given = {name: getattr(self, name) for name in OWNERS}
        return {name: value for name, value in given.items() if value is not None}
