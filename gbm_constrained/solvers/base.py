"""Protocol of solvers, options of their methods, and records of iterations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args

import numpy as np
from sklearn.base import BaseEstimator

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.data.validation import check_choice, check_integer, is_finite_number
from gbm_constrained.problem.kernels import PROXIES, RAMP, SQUARE, ProxyName
from gbm_constrained.problem.lagrangian import STATISTICS, Lagrangian, Point
from gbm_constrained.problem.linear_constraints import LinearConstraints


@dataclass(frozen=True)
class Subproblem:
    """Arguments of a gradient beside the scores.

    Parameters
    ----------
    multipliers : (m,). Multipliers y.
    centre : Centre of the proximal term; the scores themselves by default.
    proximal_weight : Weight of the proximal term: one number, or one for each cell, (n_cells,).
    """

    multipliers: Float
    centre: Array | None = None
    proximal_weight: float | Float = 0.0


class DualMethod(Protocol):
    """Method that moves the multipliers of a solver."""

    def change_step_sizes(self) -> None:
        """Change the step sizes from one iteration to the next."""

    def ascend(self, multipliers: Float, g: Float, change: Float) -> Float:
        """Move the multipliers, given g and its change since the last iteration, (m,) each."""

    @property
    def ergodic_weight(self) -> float:
        """Weight of the iterate in the ergodic average."""


class Solver(Protocol):
    """Outer loop on one problem, which computes gradients and Hessians at given scores."""

    lagrangian: Lagrangian
    progress: float
    start: Float
    multipliers: Float
    bounds: Float
    history: list[Record]
    schedule: Sequence[Float] | None
    optimism: Callable[[int], tuple[Float, Float]] | None
    corrected: Bool | bool
    callback: Callable[[Record], object] | None

    def __call__(self, margin: Array) -> tuple[Array, Array]:
        """Compute gradient and Hessian of one boosting round at `margin`, multiplied by W."""

    def count_round(self, margin: Callable[[], Array]) -> None:
        """Count a boosting round whose gradient is that of the library's own objective."""

    def begin_iteration(self, point: Point) -> None:
        """Start an outer iteration at the current scores."""

    def state(self) -> dict[str, Any]:
        """Collect what later stages of a fit read of a solver that is done."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of a solver that was made with the same arguments, and is done."""

    @property
    def subproblem(self) -> Subproblem:
        """The current subproblem."""

    @property
    def rounds(self) -> int:
        """Boosting rounds so far."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the solver."""


@dataclass(eq=False, repr=False, kw_only=True)
class SolverMethod(BaseEstimator):  # type: ignore[misc]
    """Options of a method, from which the solver of a problem is made.

    See :class:`~gbm_constrained.solvers.ABPP` for the parameters.

    Attributes
    ----------
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

    needs: ClassVar[frozenset[str]] = frozenset(STATISTICS)
    runs_beyond_theory: ClassVar[bool] = False

    @abstractmethod
    def begin(self, lagrangian: Lagrangian, **running: Any) -> Solver:
        """Make the solver of a problem."""

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
        missing = sorted(method.needs.difference(STATISTICS))
        if missing:
            raise ValueError(
                f"{type(method).__name__} needs the cell statistics {missing}, and there are "
                f"{list(STATISTICS)}: add them to gbm_constrained.problem.lagrangian."
            )
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
        check_choice("proxy", self.proxy, ["auto", *PROXIES, SQUARE])
        check_integer("rounds_per_iteration", self.rounds_per_iteration, 1)
        for name in ("tau", "sigma", "outlier_clip"):
            check_positive(name, getattr(self, name), is_optional=True)
        if not (is_finite_number(self.mu) and self.mu >= 0):
            raise ValueError(f"mu must be a non-negative number, got {self.mu!r}.")
        if not self._has_start():
            raise ValueError(
                f"initial_multipliers must hold finite, non-negative numbers, as multipliers_ of "
                f"an earlier fit does; got {self.initial_multipliers!r}."
            )

    def _has_start(self) -> bool:
        """Whether the initial multipliers are none, or may be multipliers."""
        try:
            start = self.start
        except (TypeError, ValueError):  # They are no numbers.
            return False
        return start is None or bool(start.ndim == 1 and (np.isfinite(start) & (start >= 0)).all())

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
