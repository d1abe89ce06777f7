"""Protocol of solvers, options of their methods, and records of iterations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.data.validation import check_choice, check_integer, is_finite_number
from gbm_constrained.problem.kernels.proxies import PROXIES, RAMP, SQUARE, ProxyName
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.point import Point
from gbm_constrained.problem.statistics_of_cells import STATISTICS


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
                f"{list(STATISTICS)}: add them to gbm_constrained.problem.statistics_of_cells."
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
