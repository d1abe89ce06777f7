"""What solvers share: their protocol, the options of their methods, and records of iterations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.data.validation import check_choice, check_integer, is_finite_number
from gbm_constrained.problem.kernels.proxies import PROXIES, ProxyName
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.point import Point


@dataclass(frozen=True)
class Subproblem:
    """Everything that a gradient depends on beside the scores.

    Parameters
    ----------
    multipliers : ndarray of shape (m,)
        Multipliers y.
    centre : ndarray like the scores, default=None
        Centre of the proximal term; the scores themselves by default.
    proximal_weight : float or ndarray of shape (n_cells,), default=0
        Weight of the proximal term, of all rows or of the rows of each cell.
    """

    multipliers: Float
    centre: Array | None = None
    proximal_weight: float | Float = 0.0


class DualMethod(Protocol):
    """A method that moves the multipliers of a solver."""

    def change_step_sizes(self) -> None:
        """Change the step sizes from one iteration to the next."""

    def ascend(self, multipliers: Float, g: Float, change: Float) -> Float:
        """Move the multipliers by the constraints g and their change since the last iteration."""

    @property
    def ergodic_weight(self) -> float:
        """Weight of the iterate in the ergodic average."""


class Solver(Protocol):
    """An outer loop on one problem, which answers scores with gradients and Hessians."""

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
        """Answer one boosting round: gradient and Hessian at `margin`, multiplied by W."""

    def look(self, margin: Callable[[], Array]) -> None:
        """Pass a boosting round that needs no answer: that of the library's own objective."""

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
        """Calls answered so far."""

    @property
    def elapsed(self) -> float:
        """Seconds since the solver was made."""


@dataclass(eq=False, repr=False, kw_only=True)
class SolverMethod(BaseEstimator):  # type: ignore[misc]
    """Options of a method, which makes the solver of a problem from them.

    See :class:`~gbm_constrained.solvers.ABPP` for the parameters.
    """

    tau: float | None = None
    sigma: float | None = None
    mu: float = 0.0
    proxy: ProxyName = "auto"
    rounds_per_iteration: int = 2
    outlier_clip: float | None = None
    initial_multipliers: Any = None

    @abstractmethod
    def begin(self, lagrangian: Lagrangian, **running: Any) -> Solver:
        """Make the solver of a problem."""

    def check(self) -> None:
        """Refuse options of a wrong type or value.

        Raises
        ------
        ValueError
            If there is one; the message names it and what it may be.
        """
        check_choice("proxy", self.proxy, ["auto", *PROXIES])
        check_integer("rounds_per_iteration", self.rounds_per_iteration, 1)
        for name in ("tau", "sigma", "outlier_clip"):
            check_positive(name, getattr(self, name), is_optional=True)
        if not (is_finite_number(self.mu) and self.mu >= 0):
            raise ValueError(f"mu must be a non-negative number, got {self.mu!r}.")
        start = self.start
        if start is not None and not (
            start.ndim == 1 and (np.isfinite(start) & (start >= 0)).all()
        ):
            raise ValueError(
                f"initial_multipliers must hold finite, non-negative numbers, as multipliers_ of "
                f"an earlier fit does; got {start.tolist()}."
            )

    @property
    def start(self) -> Float | None:
        """Initial multipliers as an array; None where they are zero."""
        given = self.initial_multipliers
        return None if given is None else np.asarray(given, dtype=np.float64)

    def step_sizes(self) -> dict[str, Any]:
        """Give the options that solvers take under the same names."""
        names = ("tau", "sigma", "mu", "rounds_per_iteration")
        return {name: getattr(self, name) for name in names}


def check_positive(name: str, value: object, *, is_optional: bool = False) -> None:
    """Refuse what is no positive number; None is one where the option `is_optional`."""
    if value is None and is_optional:
        return
    if not (is_finite_number(value) and value > 0):  # type: ignore[operator]
        kind = "a positive number or None" if is_optional else "a positive number"
        raise ValueError(f"{name} must be {kind}, got {value!r}.")


@dataclass(frozen=True)
class Record:
    """One outer iteration: the state x_k it started from, and its dual step.

    Parameters
    ----------
    iteration : int
        k, from 0.
    rounds : int
        Calls answered before this iteration: boosting rounds, for a booster.
    objective : float
        f(x_k), weighted mean cross-entropy in nats.
    error : float
        0-1 error of the training rows at x_k.
    rates : ndarray of shape (m,)
        Left-hand side of each row of constraints at x_k, exact.
    functionals : ndarray of shape (n_functionals,)
        Value of each rate (of each group) at x_k.
    bounds : ndarray of shape (m,)
        The right-hand sides in force.
    multipliers : ndarray of shape (m,)
        y_{k+1}, the multipliers of the subproblem that follows.
    bregman : float
        D(x_k, x_{k-1}).
    seconds : float
        Since the solver was made.
    fritz_john : float
        Residual of the outer problem of CBPR that ended at x_k; NaN otherwise.
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


def columns_of_records(records: Sequence[Record]) -> dict[str, Array]:
    """Make a table of records, one array for each field."""
    names = [f.name for f in fields(Record)]
    return {name: np.array([getattr(r, name) for r in records]) for name in names}


def records_of_columns(columns: Mapping[str, Array]) -> list[Record]:
    """Make records of such a table."""
    rows = zip(*(columns[f.name] for f in fields(Record)), strict=True)
    return [Record(*(v.copy() if v.ndim else v.item() for v in row)) for row in rows]
