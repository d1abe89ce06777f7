"""The parameters that the drop-in classifiers add: their documentation, types and checks."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.positive_class import resolve_positive_class
from gbm_constrained.data.validation import check_share, is_finite_number
from gbm_constrained.decision.guarantees import GUARANTEES, Guarantee
from gbm_constrained.problem.kernels.base import PROXIES, Proxy
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.cbpr import CBPR
from gbm_constrained.training.early_stopping import EARLY_STOPPING_ON, EarlyStoppingOn
from gbm_constrained.training.measurement import MEASURE_ON, MeasureOn

ErrorForm: TypeAlias = Literal["rate", "log_loss"]
Iterate: TypeAlias = Literal["last", "best", "ergodic", "randomized"]
ITERATES: tuple[Iterate, ...] = ("last", "best", "ergodic", "randomized")
SolverName: TypeAlias = Literal["auto", "abpp", "cbpr", "threshold"]
SOLVERS: tuple[SolverName, ...] = ("auto", "abpp", "cbpr", "threshold")
Probabilities: TypeAlias = Literal["shifted", "calibrated"]
PROBABILITIES: tuple[Probabilities, ...] = ("shifted", "calibrated")
OnInfeasible: TypeAlias = Literal["warn", "raise"]
ON_INFEASIBLE: tuple[OnInfeasible, ...] = ("warn", "raise")
ALIKE = 0.8  # Similarity of names, by difflib, from which on one is taken for the other misspelt.


@dataclass(frozen=True)
class SolverOptions:
    """The constructor parameters that the drop-in classifiers add, checked."""

    constraints: tuple[Constraint, ...]
    positive: Hashable | None = None
    proxy: Proxy = "auto"
    rounds_per_iteration: int = 2
    tau: float | None = None
    sigma: float | None = None
    mu: float = 0.0
    iterate: Iterate = "last"
    error_form: ErrorForm = "rate"
    outlier_clip: float | None = None
    initial_multipliers: Float | None = None
    measure_on: MeasureOn = "train"
    n_folds: int = 4
    holdout_fraction: float | None = None
    guarantee: Guarantee = None
    delta: float = 0.05
    calibration_fraction: float = 0.2
    probabilities: Probabilities = "shifted"
    on_infeasible: OnInfeasible = "warn"
    early_stopping_on: EarlyStoppingOn = "metric"
    solver: SolverName = "auto"

    @classmethod
    def of(cls, estimator: Any) -> SolverOptions:
        """Read and check the options of an estimator.

        Raises
        ------
        TypeError, ValueError
            If an option has the wrong type or value; the message names it and what it may be.
        """
        constraints = check_constraints(estimator.constraints)
        # The linear classifier is measured on training rows, having few parameters to learn them
        # by heart with; and its parent has a parameter called solver.
        asked = [name for name in SOLVER_PARAMETERS[1:-1] if hasattr(estimator, name)]
        own = {name: getattr(estimator, name) for name in asked}
        name = "constraint_solver" if hasattr(estimator, "constraint_solver") else "solver"
        options = cls(constraints, solver=getattr(estimator, name), **own)
        _check_choice("proxy", options.proxy, PROXIES)
        _check_choice("iterate", options.iterate, ITERATES)
        _check_choice(name, options.solver, SOLVERS if name == "solver" else SOLVERS[:-1])
        _check_choice("error_form", options.error_form, ("rate", "log_loss"))
        _check_choice("measure_on", options.measure_on, MEASURE_ON)
        check_integer("n_folds", options.n_folds, 2)
        if options.holdout_fraction is not None:
            check_share("holdout_fraction", options.holdout_fraction)
        _check_choice("guarantee", options.guarantee, GUARANTEES)
        check_share("delta", options.delta)
        check_share("calibration_fraction", options.calibration_fraction)
        _check_choice("probabilities", options.probabilities, PROBABILITIES)
        _check_choice("on_infeasible", options.on_infeasible, ON_INFEASIBLE)
        _check_choice("early_stopping_on", options.early_stopping_on, EARLY_STOPPING_ON)
        if options.error_form == "log_loss" and options.iterate in ("best", "randomized"):
            raise ValueError(
                f"iterate={options.iterate!r} chooses by 0-1 rates, which error_form='log_loss' "
                f"does not hold: use error_form='rate', or iterate='last'."
            )
        if options.outlier_clip is not None and options.iterate == "randomized":
            raise ValueError(
                "iterate='randomized' weighs prefixes by losses in full, and outlier_clip clips "
                "them: leave outlier_clip out, or use another iterate."
            )
        if options.guarantee is not None and options.iterate in ("ergodic", "randomized"):
            raise ValueError(
                f"guarantee={options.guarantee!r} is given for one prefix and threshold, and "
                f"iterate={options.iterate!r} is a mean of several: use iterate='last' or 'best'."
            )
        if options.solver == "threshold":
            _check_threshold(name, options)
        if options.on_infeasible == "raise" and options.iterate in ("ergodic", "randomized"):
            raise ValueError(
                f"on_infeasible='raise' judges one prefix and threshold, and "
                f"iterate={options.iterate!r} is a mean of several: use iterate='last' or 'best', "
                f"or on_infeasible='warn'."
            )
        check_integer("rounds_per_iteration", options.rounds_per_iteration, 1)
        for name in ("tau", "sigma", "outlier_clip"):
            value = getattr(options, name)
            if value is not None and not (is_finite_number(value) and value > 0):
                raise ValueError(f"{name} must be a positive number or None, got {value!r}.")
        if not (is_finite_number(options.mu) and options.mu >= 0):
            raise ValueError(f"mu must be a non-negative number, got {options.mu!r}.")
        start = options.initial_multipliers
        if start is None:
            return options
        start = np.asarray(start, dtype=np.float64)
        if start.ndim != 1 or not (np.isfinite(start) & (start >= 0)).all():
            raise ValueError(
                f"initial_multipliers must hold finite, non-negative numbers, as multipliers_ of "
                f"an earlier fit does; got {start.tolist()}."
            )
        return replace(options, initial_multipliers=start)

    def with_classes(self, classes: NDArray[np.generic]) -> SolverOptions:
        """Name the positive class of the constraints, now that the classes are known.

        Parameters
        ----------
        classes : ndarray of shape (n_classes,)
            Sorted labels.

        Raises
        ------
        TypeError, ValueError
            If `positive` is not one of them.
        """
        named = resolve_positive_class(self.constraints, classes, self.positive)
        return replace(self, constraints=named)

    def solver_class(self, lagrangian: Lagrangian) -> type[ABPP]:
        """Choose the outer loop: CBPR for differences of losses, ABPP otherwise.

        The sigmoid proxy of a rate is not convex either, but its curvature, 0.06 per unit of a
        multiplier, is less than that of ABPP's own proximal term, which makes subproblems convex.
        """
        solver = self.solver
        if solver == "auto":
            solver = "abpp" if lagrangian.constraints.is_convex else "cbpr"
        if solver == "cbpr" and self.iterate == "ergodic":
            raise ValueError(
                "iterate='ergodic' is an average that means nothing for rules that are not "
                "convex, which CBPR is for: use iterate='last'."
            )
        return CBPR if solver == "cbpr" else ABPP


SOLVER_PARAMETERS = tuple(SolverOptions.__dataclass_fields__)


def check_spelling(estimator: Any, others: Iterable[str], known: Collection[str] = ()) -> None:
    """Refuse a parameter that one of ours was meant by: the library would train without it.

    Parameters
    ----------
    estimator : classifier
        Whose parameters they are.
    others : iterable of str
        Names that its constructor does not know, and hands on to the library.
    known : collection of str, default=()
        Those of the library that are spelt like one of ours.

    Raises
    ------
    TypeError
        If one is nearly the name of a parameter of ours, or of something inside one, such as
        ``constraints__bound``: rules are set whole.
    """
    for name in others:
        near = get_close_matches(name.partition("__")[0], SOLVER_PARAMETERS, 1, ALIKE)
        if near and name not in (*near, *known):  # LightGBM's set_params hands on all names
            raise TypeError(
                f"{type(estimator).__name__} has no parameter {name!r}: did you mean {near[0]}=?"
            )


def with_constraints(tags: Any, constraints: Any, positive: Any) -> Any:
    """Tags of a parent as a classifier under constraints has them.

    Constraints are about one label of a row, and some of them about two classes.

    Parameters
    ----------
    tags : sklearn.utils.Tags
        The parent's, changed in place.
    constraints, positive : object
        The constructor parameters, which nothing has checked yet.
    """
    try:
        checked = check_constraints(constraints)
    except (TypeError, ValueError):
        return tags
    if checked:
        tags.classifier_tags.multi_label = tags.target_tags.multi_output = False
        is_binary = positive is None and any(rule.is_binary for rule in checked)
        tags.classifier_tags.multi_class &= not is_binary
    return tags


def _check_threshold(name: str, options: SolverOptions) -> None:
    """Refuse to move a threshold where none is moved, and what is about multipliers."""
    start = options.initial_multipliers
    for other, fits, choices in (
        ("measure_on", options.measure_on != "train", "'auto', 'holdout' or 'crossfit'"),
        ("iterate", options.iterate in ("last", "best"), "'last' or 'best'"),
        ("error_form", options.error_form == "rate", "'rate'"),
        ("initial_multipliers", start is None, "None"),
    ):
        if not fits:
            raise ValueError(
                f"{name}='threshold' moves the threshold of a model that was trained without "
                f"multipliers, on rows that its trees have not seen, and "
                f"{other}={getattr(options, other)!r} has no place there: use {choices}, or "
                f"another solver."
            )


def _check_choice(name: str, value: object, choices: Sequence[str | None]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")


def check_integer(name: str, value: object, least: int) -> None:
    """Refuse what is no integer, or too small a one."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}.")


def check_number(name: str, value: Any) -> float:
    """Read a number that a library takes as text, too.

    Raises
    ------
    ValueError
        If it is none.
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}.") from None
