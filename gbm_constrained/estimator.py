"""What the drop-in classifiers share: checks, one constrained fit, its report and history."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length

from gbm_constrained.cells import Cells, CompiledConstraints, Float, compile_constraints, masks_of
from gbm_constrained.lagrangian import Lagrangian
from gbm_constrained.losses import PROXIES, Array, Proxy
from gbm_constrained.rates import Constraint, Mask
from gbm_constrained.solvers.abpp import ABPP, Record

ErrorForm: TypeAlias = Literal["rate", "log_loss"]
FactorOfClass: TypeAlias = Callable[[Array, Array], Array]
Iterate: TypeAlias = Literal["last", "ergodic"]

SOLVER_PARAMETERS_DOC = """
    constraints : Constraint or sequence of Constraint, default=None
        The rules, such as ``[fnr() <= 0.05]`` (see :mod:`gbm_constrained.rates`). With none, the
        parent's own ``fit`` is called and nothing else happens.
    proxy : {"logistic", "sigmoid"}, default="logistic"
        Smooth stand-in for a 0-1 rate in gradients; multipliers always move on the exact rate.
        "logistic" is convex and amounts to re-weighting rows; "sigmoid" is bounded, so that rows
        beyond hope pull less.
    rounds_per_iteration : int, default=2
        Boosting rounds in each outer iteration: how well each proximal subproblem is solved. The
        constraints are measured and the multipliers moved once in an iteration.
    tau, sigma : float, default=None
        Primal and dual step sizes; see :class:`gbm_constrained.solvers.ABPP`. The defaults come
        from the loss and the cells and need no tuning.
    mu : float, default=0
        Relative strong convexity claimed for the objective; above zero ABPP accelerates.
    iterate : {"last", "ergodic"}, default="last"
        Which iterate of ABPP is returned: the last one, or the average of all that the theory
        speaks of.
    error_form : {"rate", "log_loss"}, default="rate"
        "rate" bounds 0-1 error rates themselves. "log_loss" is the source paper's heuristic: an
        error bound e is replaced by mean cross-entropy <= e log(n_classes), re-estimated half-way
        as e times the current mean cross-entropy.
    outlier_clip : float, default=None
        Margin beyond which a row on the wrong side stops adding to mean-loss constraints (paper,
        Appendix G; 7 to 30 in its experiments).
    initial_multipliers : array-like of shape (n_constraints,), default=None
        Warm start of the multipliers, for instance those of an earlier fit."""

FITTED_ATTRIBUTES_DOC = """
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on the training rows, its value on the last
        evaluation set (if any was given), its multiplier, whether it is met on the training rows
        and whether it is satisfied on the evaluation set (missing without one: training rows
        prove nothing).
    history_ : DataFrame
        One row per outer iteration: objective, values, bounds and multipliers of the constraints,
        Bregman distance, seconds.
    multipliers_ : Series
        Multipliers of the returned model, by constraint.

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023,
       Algorithm 1 and section 5."""


@dataclass(frozen=True)
class SolverOptions:
    """The constructor parameters that the drop-in classifiers add, checked."""

    constraints: tuple[Constraint, ...]
    proxy: Proxy = "logistic"
    rounds_per_iteration: int = 2
    tau: float | None = None
    sigma: float | None = None
    mu: float = 0.0
    iterate: Iterate = "last"
    error_form: ErrorForm = "rate"
    outlier_clip: float | None = None
    initial_multipliers: Float | None = None

    @classmethod
    def of(cls, estimator: Any) -> SolverOptions:
        """Read and check the options of an estimator.

        Raises
        ------
        TypeError, ValueError
            If an option has the wrong type or value; the message names it and what it may be.
        """
        constraints = check_constraints(estimator.constraints)
        options = cls(
            constraints, **{name: getattr(estimator, name) for name in SOLVER_PARAMETERS[1:]}
        )
        _check_choice("proxy", options.proxy, PROXIES)
        _check_choice("iterate", options.iterate, ("last", "ergodic"))
        _check_choice("error_form", options.error_form, ("rate", "log_loss"))
        rounds = options.rounds_per_iteration
        if isinstance(rounds, bool) or not isinstance(rounds, (int, np.integer)) or rounds < 1:
            raise ValueError(f"rounds_per_iteration must be an integer >= 1, got {rounds!r}.")
        for name in ("tau", "sigma", "outlier_clip"):
            value = getattr(options, name)
            if value is not None and not (np.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number or None, got {value!r}.")
        if not (np.isfinite(options.mu) and options.mu >= 0):
            raise ValueError(f"mu must be a non-negative number, got {options.mu!r}.")
        start = options.initial_multipliers
        if start is None:
            return options
        start = np.asarray(start, dtype=np.float64)
        if start.shape != (len(constraints),) or not (np.isfinite(start) & (start >= 0)).all():
            raise ValueError(
                f"initial_multipliers must hold one finite, non-negative number for each of the "
                f"{len(constraints)} constraints, got {start.tolist()}."
            )
        return replace(options, initial_multipliers=start)


SOLVER_PARAMETERS = tuple(SolverOptions.__dataclass_fields__)


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")


def check_constraints(constraints: Any) -> tuple[Constraint, ...]:
    """Constraints as a tuple: from None, one constraint, or a sequence of them."""
    if constraints is None:
        return ()
    if isinstance(constraints, Constraint):
        return (constraints,)
    if isinstance(constraints, str) or not isinstance(constraints, Iterable):
        raise TypeError(
            f"constraints must be a sequence of constraints such as [fnr() <= 0.05], got "
            f"{constraints!r}."
        )
    checked = tuple(constraints)
    for constraint in checked:
        if not isinstance(constraint, Constraint):
            raise TypeError(
                f"constraints holds {constraint!r}, which is not a constraint: bound a rate, as "
                f"in fnr() <= 0.05."
            )
    return checked


def check_labels(y: Any, name: str = "y") -> tuple[NDArray[np.generic], Array]:
    """Sorted classes of the labels, and each row's class index.

    Raises
    ------
    ValueError
        If `y` is not one-dimensional, has missing labels, or holds fewer than two classes.
    """
    if isinstance(y, pd.DataFrame) and y.shape[1] == 1:
        y = y.iloc[:, 0]
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            f"{name} must be one-dimensional, one label per row; got shape {labels.shape}. "
            f"Constraints on several outputs are not supported."
        )
    missing = np.flatnonzero(pd.isna(labels))
    if missing.size:
        raise ValueError(
            f"{name} has {missing.size} missing labels (NaN or None), the first in row "
            f"{missing[0]}: drop those rows."
        )
    classes = np.unique(labels)
    if classes.size < 2:
        raise ValueError(
            f"{name} holds one class only ({classes.tolist()}): a constrained classifier needs "
            f"rows of at least two."
        )
    return classes, np.searchsorted(classes, labels).astype(np.intp)


def check_weight(weight: Any, n_samples: int, name: str = "sample_weight") -> Float | None:
    """Sample weights as a float64 array, or None.

    Raises
    ------
    ValueError
        If weights are not one per row, finite, non-negative and somewhere positive.
    """
    if weight is None:
        return None
    values = np.asarray(weight, dtype=np.float64)
    if values.shape != (n_samples,):
        raise ValueError(
            f"{name} must hold one weight for each of the {n_samples} rows, got shape "
            f"{values.shape}."
        )
    bad = np.flatnonzero(~np.isfinite(values) | (values < 0))
    if bad.size:
        raise ValueError(
            f"{name} must be finite and non-negative, got {values[bad[0]]} in row {bad[0]} "
            f"({bad.size} such rows): use 0 to leave a row out."
        )
    if not values.any():
        raise ValueError(f"{name} is zero on every row: no row is left to train on.")
    return values


def _product(a: Float | None, b: Float | None) -> Float | None:
    if a is None or b is None:
        return b if a is None else a
    return a * b


def encode(y: Any, classes: NDArray[np.generic], name: str) -> Array:
    """Class index of each label, for labels of an evaluation set."""
    labels = np.asarray(y).ravel()
    codes = np.minimum(np.searchsorted(classes, labels), classes.size - 1)
    unknown = labels[classes[codes] != labels]
    if unknown.size:
        raise ValueError(
            f"{name} holds label {unknown[0]!r}, which is not among the classes of y: "
            f"{classes.tolist()}."
        )
    return codes


def as_losses(compiled: CompiledConstraints, n_classes: int) -> tuple[CompiledConstraints, Float]:
    """Replace 0-1 error bounds e by mean-loss bounds, the paper's heuristic (section 6).

    The mean cross-entropy of a cell set is bounded by ``e log(n_classes)``: e times the loss of a
    model that knows nothing.

    Returns
    -------
    compiled : CompiledConstraints
        With every error rate turned into a mean loss.
    factors : ndarray of shape (m,)
        e for those, NaN for the others: what :class:`ABPP` re-estimates bounds with.
    """
    share = compiled.A.max(axis=2)
    is_error = share.any(axis=1)
    factors = np.where(is_error, compiled.b, np.nan)
    bounds = np.where(is_error, compiled.b * np.log(n_classes), compiled.b)
    return replace(compiled, A=np.zeros_like(compiled.A), B=compiled.B + share, b=bounds), factors


@dataclass
class EvaluationSet:
    """Rows with labels that are not trained on, and the constraints' values on them.

    A constraint on a mask of training rows has no value elsewhere: NaN.
    """

    name: str
    y: Array
    weight: Float | None
    classes: NDArray[np.generic]
    constraints: tuple[Constraint, ...]
    values: dict[int, Float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._known = [
            j for j, c in enumerate(self.constraints)
            if not any(isinstance(s, Mask) for s in c.rate.on)
        ]  # fmt: skip
        cells = Cells.build(self.y, self.classes, self.weight)
        occupied = [
            j for j in self._known if cells.weight[cells.select(self.constraints[j].rate)].any()
        ]
        self._known = occupied
        compiled = compile_constraints([self.constraints[j] for j in occupied], cells)
        self._lagrangian = Lagrangian(self.y, cells, compiled, weight=self.weight)

    def rates(self, margin: Array) -> Float:
        """Value of each bounded rate at the given scores of these rows, shape (m,)."""
        values = np.full(len(self.constraints), np.nan)
        statistics = self._lagrangian.at(margin).statistics()
        values[self._known] = self._lagrangian.constraints.rates(statistics)
        return values


class ConstrainedFit:
    """One constrained fit of a booster: the solver, what it saw, and what is reported of it.

    Parameters
    ----------
    options : SolverOptions
        What was asked.
    X : array-like of shape (n_samples, n_features)
        Features; only their number of rows is looked at.
    y : array-like of shape (n_samples,)
        Labels.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights.
    learning_rate : float
        Shrinkage of the booster.
    n_rounds : int
        Boosting rounds asked for.
    library_factor, objective_factor : callable, default=None
        Given the sorted classes and the class index of each row, the factor of each class in the
        objective (not in the constraints): as the library multiplies it into the weights of its
        data set, or applies it in its own objective.
    softmax_hessian : callable, default=1
        Given the number of classes, the factor of the library's softmax Hessian.
    show_progress : bool, default=False
        Whether a fit of more than a few seconds shows its progress.
    **kernel
        Options of :class:`Lagrangian` that the library decides (dtype, order, ...).

    Raises
    ------
    ValueError
        If labels, weights or constraints do not fit together; see the checks.
    """

    def __init__(
        self,
        options: SolverOptions,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        learning_rate: float,
        n_rounds: int,
        library_factor: FactorOfClass | None = None,
        objective_factor: FactorOfClass | None = None,
        softmax_hessian: Callable[[int], float] = lambda k: 1.0,
        show_progress: bool = False,
        **kernel: Any,
    ) -> None:
        self.options = options
        check_consistent_length(X, y)
        self.classes, self.y = check_labels(y)
        self.weight = check_weight(sample_weight, self.y.size)
        # As the library holds them, in single precision: gradients are then equal to its own.
        weight = _product(self.weight, self._factor(library_factor))
        self.library_weight = None if weight is None else weight.astype(np.float32).astype(float)
        self.row_weight = _product(self.library_weight, self._factor(objective_factor))
        cells = Cells.build(self.y, self.classes, self.weight, masks_of(options.constraints))
        self._reported = compile_constraints(options.constraints, cells)
        trained, factors = self._reported, None
        if options.error_form == "log_loss":
            trained, factors = as_losses(self._reported, self.classes.size)
        lagrangian = Lagrangian(
            self.y,
            cells,
            trained,
            weight=self.row_weight,
            proxy=options.proxy,
            outlier_clip=options.outlier_clip,
            majoriser_factor=softmax_hessian(self.classes.size),
            **kernel,
        )
        rounds = options.rounds_per_iteration
        self._progress = Progress(n_rounds, options.constraints) if show_progress else None
        self.solver = ABPP(
            lagrangian,
            tau=options.tau,
            sigma=options.sigma,
            mu=options.mu,
            rounds_per_iteration=rounds,
            progress=max(1.0 - (1.0 - min(learning_rate, 1.0)) ** rounds, 1e-3),
            lazy=True,
            initial_multipliers=options.initial_multipliers,
            level_update=None if factors is None else n_rounds // (2 * rounds) * rounds,
            level_factors=factors,
            callback=self._progress,
        )
        self.evaluation_sets: list[EvaluationSet] = []

    def _factor(self, factor: FactorOfClass | None) -> Float | None:
        """Each row's factor, or None if all are one."""
        if factor is None:
            return None
        values = np.asarray(factor(self.classes, self.y), dtype=np.float64)
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(
                f"class_weight (or scale_pos_weight) gives the classes {self.classes.tolist()} "
                f"the factors {values.tolist()}: under constraints they must be positive. Use "
                f"sample_weight=0 to leave rows out."
            )
        return None if (values == 1.0).all() else values[self.y]

    def add_evaluation_set(self, name: str, y: Any, weight: Any = None) -> EvaluationSet:
        """Attach rows that are not trained on."""
        codes = encode(y, self.classes, name)
        added = EvaluationSet(
            name,
            codes,
            check_weight(weight, codes.size, f"sample weight of {name}"),
            self.classes,
            self.options.constraints,
        )
        self.evaluation_sets.append(added)
        return added

    def is_iteration_end(self, rounds: int) -> bool:
        """Whether `rounds` boosting rounds complete an outer iteration."""
        return rounds % self.options.rounds_per_iteration == 0

    def finish(self, margin: Array, rounds: int) -> None:
        """Take the scores of the training rows under the model that is returned.

        Parameters
        ----------
        margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores of the training rows.
        rounds : int
            Boosting rounds in that model; fewer than were trained after early stopping.
        """
        if self._progress is not None:
            self._progress.close()
        solver, lagrangian = self.solver, self.solver.lagrangian
        statistics = lagrangian.at(margin).statistics()
        trained_in = [r for r in solver.history if r.rounds < rounds]
        last = trained_in[-1] if trained_in else solver.history[-1]
        self.multipliers = last.multipliers
        self.train_rates = self._reported.rates(statistics)
        self._final = replace(
            last,
            iteration=last.iteration + 1,
            rounds=rounds,
            objective=lagrangian.objective(statistics),
            rates=lagrangian.constraints.rates(statistics),
            bregman=np.nan,
            seconds=solver.elapsed,
        )

    @property
    def columns(self) -> int:
        """Scores of a row: one for two classes, one per class otherwise."""
        return 1 if self.classes.size == 2 else self.classes.size

    def multiplier_series(self) -> pd.Series[float]:
        """Multipliers of the returned model, by constraint."""
        names = [str(c) for c in self.options.constraints]
        return pd.Series(self.multipliers, index=names, name="multiplier")

    @staticmethod
    def forget(estimator: Any) -> None:
        """Remove from an estimator what an earlier constrained fit left on it."""
        for name in ("constraint_report_", "history_", "multipliers_"):
            estimator.__dict__.pop(name, None)

    def describe(self, estimator: Any) -> None:
        """Set the fitted attributes that tell of the constraints."""
        estimator.constraint_report_ = self.report()
        estimator.history_ = self.history()
        estimator.multipliers_ = self.multiplier_series()

    def report(self) -> pd.DataFrame:
        """One row per constraint: bound, training value, held-out value, multiplier, satisfied."""
        constraints = self.options.constraints
        bounds = self._reported.b
        held_out = np.full(len(constraints), np.nan)
        if self.evaluation_sets:
            held_out = self.evaluation_sets[-1].values[self._final.rounds]
        satisfied = pd.array(held_out <= bounds + 1e-12, dtype="boolean")
        satisfied[np.isnan(held_out)] = pd.NA
        return pd.DataFrame(
            {
                "constraint": [str(c) for c in constraints],
                "bound": bounds,
                "train": self.train_rates,
                "held_out": held_out,
                "multiplier": self.multipliers,
                "train_satisfied": self.train_rates <= bounds + 1e-12,
                "satisfied": satisfied,
            }
        )

    def history(self) -> pd.DataFrame:
        """One row per outer iteration, and a last one for the model that is returned."""
        kept = [r for r in self.solver.history if r.rounds < self._final.rounds]
        return history_frame([*kept, self._final], self.options.constraints, self.evaluation_sets)


def history_frame(
    records: Sequence[Record],
    constraints: Sequence[Constraint],
    evaluation_sets: Sequence[EvaluationSet] = (),
) -> pd.DataFrame:
    """History of a solver as a table, one row per record."""
    table = pd.DataFrame(
        {
            "iteration": [r.iteration for r in records],
            "rounds": [r.rounds for r in records],
            "objective": [r.objective for r in records],
            "bregman": [r.bregman for r in records],
            "seconds": [r.seconds for r in records],
        }
    )
    for j, constraint in enumerate(constraints):
        table[f"value[{constraint}]"] = [r.rates[j] for r in records]
        table[f"bound[{constraint}]"] = [r.bounds[j] for r in records]
        table[f"multiplier[{constraint}]"] = [r.multipliers[j] for r in records]
        for held in evaluation_sets[-1:]:
            nothing = np.full(len(constraints), np.nan)
            table[f"held_out[{constraint}]"] = [
                held.values.get(r.rounds, nothing)[j] for r in records
            ]
    return table


class Progress:
    """Progress of a fit that takes longer than a few seconds, on the standard error stream.

    A tqdm bar where tqdm is installed, a line every few seconds otherwise.
    """

    DELAY = 5.0  # seconds

    def __init__(self, n_rounds: int, constraints: Sequence[Constraint]) -> None:
        self.n_rounds = n_rounds
        self.constraints = constraints
        self._last = time.perf_counter()
        self._bar: Any = None

    def __call__(self, record: Record) -> None:
        """Show one outer iteration."""
        due = time.perf_counter() - self._last > self.DELAY
        if self._bar is None and not due:
            return
        values = ", ".join(
            f"{c.rate} {value:.4f} (<= {c.bound:g})"
            for c, value in zip(self.constraints, record.rates, strict=True)
        )
        if self._bar is None:
            try:
                from tqdm import tqdm  # here, for importing it takes longer than many a fit
            except ImportError:
                self._last = time.perf_counter()
                line = f"[{record.rounds}/{self.n_rounds}] {values}"
                print(line, file=sys.stderr, flush=True)
                return
            self._bar = tqdm(total=self.n_rounds, initial=record.rounds, unit="round", leave=False)
        self._bar.set_postfix_str(values, refresh=False)
        self._bar.update(record.rounds - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
