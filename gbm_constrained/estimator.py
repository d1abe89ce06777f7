"""What the drop-in classifiers share: checks, one constrained fit, its report and history."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, check_random_state

from gbm_constrained.compiler import CompiledConstraints, as_losses, compile_constraints
from gbm_constrained.lagrangian import Lagrangian
from gbm_constrained.losses import PROXIES, Array, Proxy
from gbm_constrained.presets import from_fairlearn, is_fairlearn
from gbm_constrained.rates import Constraint
from gbm_constrained.rows import Float, Rows, columns_of
from gbm_constrained.selection import best_prefix, prefix_mixture
from gbm_constrained.solvers import ABPP, CBPR
from gbm_constrained.solvers.abpp import Record
from gbm_constrained.stacking import Stack, encode

ErrorForm: TypeAlias = Literal["rate", "log_loss"]
FactorOfClass: TypeAlias = Callable[[Array, Array], Array]
Iterate: TypeAlias = Literal["last", "best", "ergodic", "randomized"]
ITERATES: tuple[Iterate, ...] = ("last", "best", "ergodic", "randomized")
SolverName: TypeAlias = Literal["auto", "abpp", "cbpr"]

SOLVER_PARAMETERS_DOC = """
    constraints : Constraint or sequence of Constraint, default=None
        The rules, such as ``[fnr() <= 0.05]`` (see :mod:`gbm_constrained.rates`). With none, the
        parent's own ``fit`` is called and nothing else happens.
    proxy : {"auto", "logistic", "sigmoid"}, default="auto"
        Smooth stand-in for a 0-1 rate in gradients; multipliers always move on the exact rate.
        "logistic" is convex and amounts to re-weighting rows; "sigmoid" is bounded, so that rows
        beyond hope pull less. "auto" takes "sigmoid" for rules that may ask for errors (gaps,
        selection rates) and "logistic" for those that never do (error rates, precision, churn).
    rounds_per_iteration : int, default=2
        Boosting rounds in each outer iteration: how well each proximal subproblem is solved. The
        constraints are measured and the multipliers moved once in an iteration.
    tau, sigma : float, default=None
        Primal and dual step sizes; see :class:`gbm_constrained.solvers.ABPP`. The defaults come
        from the loss and the cells and need no tuning.
    mu : float, default=0
        Relative strong convexity claimed for the objective; above zero ABPP accelerates.
    iterate : {"last", "best", "ergodic", "randomized"}, default="last"
        Which iterate is returned: the last one; the one of smallest training error among those
        that meet all constraints; the average of all that the theory of ABPP speaks of; or a
        distribution over prefixes of the ensemble that meets the constraints in the mean
        (``prefixes_``), from which ``predict(..., random_state=)`` draws one for each row.
    error_form : {"rate", "log_loss"}, default="rate"
        "rate" bounds 0-1 error rates themselves. "log_loss" is the source paper's heuristic: an
        error bound e is replaced by mean cross-entropy <= e log(n_classes), re-estimated half-way
        as e times the current mean cross-entropy.
    outlier_clip : float, default=None
        Margin beyond which a row on the wrong side stops adding to mean-loss constraints (paper,
        Appendix G; 7 to 30 in its experiments).
    initial_multipliers : array-like of shape (n_rows,), default=None
        Warm start of the multipliers, for instance ``multipliers_`` of an earlier fit.
    solver : {"auto", "abpp", "cbpr"}, default="auto"
        The outer loop. "auto" takes CBPR for differences of mean losses, such as
        ``gap(log_loss(), by=...)``, which are not convex, and ABPP for everything else."""

FITTED_ATTRIBUTES_DOC = """
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on the training rows, its value on the last
        evaluation set (if any was given), its multiplier, whether it is met on the training rows
        and whether it is satisfied on the evaluation set (missing without one: training rows
        prove nothing).
    history_ : DataFrame
        One row per outer iteration: objective, values, bounds and multipliers of the constraints,
        Bregman distance, seconds.
    group_report_ : DataFrame
        One row per group of each constraint that compares groups: its rows and its rate.
    multipliers_ : Series
        Multipliers of the returned model, by linear row that the constraints compile to.
    prefixes_ : DataFrame
        With ``iterate="randomized"``: boosting rounds of each prefix, and its probability.

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023,
       Algorithm 1 and section 5."""


@dataclass(frozen=True)
class SolverOptions:
    """The constructor parameters that the drop-in classifiers add, checked."""

    constraints: tuple[Constraint, ...]
    proxy: Proxy = "auto"
    rounds_per_iteration: int = 2
    tau: float | None = None
    sigma: float | None = None
    mu: float = 0.0
    iterate: Iterate = "last"
    error_form: ErrorForm = "rate"
    outlier_clip: float | None = None
    initial_multipliers: Float | None = None
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
        # The parent of the linear classifier has a parameter called solver.
        own = {name: getattr(estimator, name) for name in SOLVER_PARAMETERS[1:-1]}
        name = "constraint_solver" if hasattr(estimator, "constraint_solver") else "solver"
        options = cls(constraints, solver=getattr(estimator, name), **own)
        _check_choice("proxy", options.proxy, PROXIES)
        _check_choice("iterate", options.iterate, ITERATES)
        _check_choice(name, options.solver, ("auto", "abpp", "cbpr"))
        _check_choice("error_form", options.error_form, ("rate", "log_loss"))
        if options.error_form == "log_loss" and options.iterate in ("best", "randomized"):
            raise ValueError(
                f"iterate={options.iterate!r} chooses by 0-1 rates, which error_form='log_loss' "
                f"does not hold: use error_form='rate', or iterate='last'."
            )
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
        if start.ndim != 1 or not (np.isfinite(start) & (start >= 0)).all():
            raise ValueError(
                f"initial_multipliers must hold finite, non-negative numbers, as multipliers_ of "
                f"an earlier fit does; got {start.tolist()}."
            )
        return replace(options, initial_multipliers=start)

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


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")


def check_constraints(constraints: Any) -> tuple[Constraint, ...]:
    """Constraints as a tuple: from None, one constraint, or a sequence of them."""
    if constraints is None:
        return ()
    if isinstance(constraints, Constraint) or is_fairlearn(constraints):
        return check_constraints((constraints,))
    if isinstance(constraints, str) or not isinstance(constraints, Iterable):
        raise TypeError(
            f"constraints must be a sequence of constraints such as [fnr() <= 0.05], got "
            f"{constraints!r}."
        )
    checked: list[Constraint] = []
    for item in constraints:
        item = from_fairlearn(item) if is_fairlearn(item) else item
        if isinstance(item, (list, tuple)):  # presets may make several
            checked += check_constraints(item)
        elif isinstance(item, Constraint):
            checked.append(item)
        else:
            raise TypeError(
                f"constraints holds {item!r}, which is not a constraint: bound a rate, as in "
                f"fnr() <= 0.05."
            )
    return tuple(checked)


def check_labels(y: Any, name: str = "y") -> tuple[NDArray[np.generic], Array]:
    """Sorted classes of the labels, and each row's class index.

    Raises
    ------
    ValueError
        If `y` is not one-dimensional, has missing labels, or holds fewer than two classes.
    """
    labels = as_labels(y, name)
    classes = np.unique(labels)
    if classes.size < 2:
        raise ValueError(
            f"{name} holds one class only ({classes.tolist()}): a constrained classifier needs "
            f"rows of at least two."
        )
    return classes, np.searchsorted(classes, labels).astype(np.intp)


def as_labels(y: Any, name: str = "y") -> NDArray[Any]:
    """Labels as an array, one for each row.

    Raises
    ------
    ValueError
        If `y` is not one-dimensional, or has missing labels.
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
    return labels


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
        raise ValueError(f"{name} is zero on every row: no row is left.")
    return values


def _product(a: Float | None, b: Float | None) -> Float | None:
    if a is None or b is None:
        return b if a is None else a
    return a * b


class EvaluationSet:
    """Rows with labels that are not trained on, and the constraints' values on them.

    A constraint that looks at what these rows do not have (a mask of training rows, a named data
    set, a column that was not given) has the value NaN.

    Parameters
    ----------
    rows : Rows
        The rows.
    trained : CompiledConstraints
        The constraints on the training rows.
    """

    def __init__(self, rows: Rows, trained: CompiledConstraints) -> None:
        cells, self._compiled = compile_constraints(trained.constraints, rows, like=trained)
        self._lagrangian = Lagrangian(rows.y, cells, self._compiled, weight=rows.weight)
        self.functionals_in: dict[int, Float] = {}

    def measure(self, rounds: int, margin: Array) -> None:
        """Measure the rates at the scores that the rows have after some rounds."""
        statistics = self._lagrangian.at(margin).statistics()
        self.functionals_in[rounds] = self._compiled.functionals(statistics)

    def values(self, rounds: int) -> Float:
        """Value of each constraint after some rounds, shape (n_constraints,)."""
        if rounds not in self.functionals_in:
            return np.full(len(self._compiled.constraints), np.nan)
        return self._compiled.values(self.functionals_in[rounds])


class ConstrainedFit:
    """One constrained fit of a booster: the solver, what it saw, and what is reported of it.

    Parameters
    ----------
    options : SolverOptions
        What was asked.
    X : array-like of shape (n_samples, n_features)
        Features.
    y : array-like of shape (n_samples,)
        Labels.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights.
    sensitive_features, datasets : default=None
        What constraints may look at besides; see the classifiers' ``fit``.
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
    lazy : bool, default=True
        Whether constraints that never bind leave the library's own fit untouched.
    **kernel
        Options of :class:`Lagrangian` that the library decides (dtype, order, ...).

    Attributes
    ----------
    stack : Stack
        Training rows and those of further data sets, as the library is to be given them.
    classes : ndarray of shape (n_classes,)
        Sorted labels.
    y, weight, library_weight : ndarray of shape (n_samples,)
        Class indices, sample weights, and these times the class weights; of training rows.
    solver : ABPP or CBPR
        The outer loop.

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
        sensitive_features: Any = None,
        datasets: Any = None,
        *,
        learning_rate: float,
        n_rounds: int,
        library_factor: FactorOfClass | None = None,
        objective_factor: FactorOfClass | None = None,
        softmax_hessian: Callable[[int], float] = lambda k: 1.0,
        show_progress: bool = False,
        lazy: bool = True,
        **kernel: Any,
    ) -> None:
        self.options = options
        check_consistent_length(X, y)
        self.classes, self.y = check_labels(y)
        self.weight = check_weight(sample_weight, self.y.size)
        self.stack = Stack.of(X, y, sample_weight, self.y, self.classes, datasets)
        # As the library holds them, in single precision: gradients are then equal to its own.
        weight = _product(self.weight, self._factor(library_factor))
        self.library_weight = None if weight is None else weight.astype(np.float32).astype(float)
        row_weight = _product(self.library_weight, self._factor(objective_factor))
        self._rows = Rows(
            self.stack.codes,
            self.classes,
            self.stack.with_ones(self.weight),
            columns_of(sensitive_features, self.y.size),
            self.stack.features,
            self.stack.names,
            self.stack.sizes,
        )
        cells, self._reported = compile_constraints(options.constraints, self._rows)
        trained, factors = self._reported, None
        if options.error_form == "log_loss":
            trained, factors = as_losses(self._reported, self.classes.size)
        start = options.initial_multipliers
        if start is not None and start.shape != (len(trained),):
            raise ValueError(
                f"initial_multipliers must hold one number for each of the {len(trained)} rows "
                f"that the constraints compile to, got {start.size}: the rows are "
                f"{list(trained.rows)}."
            )
        lagrangian = Lagrangian(
            self._rows.y,
            cells,
            trained,
            weight=self.stack.with_mean(row_weight),
            proxy=options.proxy,
            outlier_clip=options.outlier_clip,
            majoriser_factor=softmax_hessian(self.classes.size),
            **kernel,
        )
        rounds = options.rounds_per_iteration
        self._progress = Progress(n_rounds, self._reported) if show_progress else None
        self.solver = options.solver_class(lagrangian)(
            lagrangian,
            tau=options.tau,
            sigma=options.sigma,
            mu=options.mu,
            rounds_per_iteration=rounds,
            progress=max(1.0 - (1.0 - min(learning_rate, 1.0)) ** rounds, 1e-3),
            lazy=lazy,
            initial_multipliers=start,
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

    def add_evaluation_set(
        self, name: str, X: Any, y: Any, weight: Any = None, sensitive_features: Any = None
    ) -> EvaluationSet:
        """Attach rows that are not trained on."""
        codes = encode(y, self.classes, name)
        rows = Rows(
            codes,
            self.classes,
            check_weight(weight, codes.size, f"sample weight of {name}"),
            columns_of(sensitive_features, codes.size),
            [X],
            like=self._rows,
        )
        added = EvaluationSet(rows, self._reported)
        self.evaluation_sets.append(added)
        return added

    def is_iteration_end(self, rounds: int) -> bool:
        """Whether `rounds` boosting rounds complete an outer iteration."""
        return rounds % self.options.rounds_per_iteration == 0

    def best_rounds(self, margin: Array, rounds: int) -> int:
        """Boosting rounds of the best prefix among the first `rounds`, whose scores are given."""
        records = self._prefixes(margin, rounds)
        return records[best_prefix(*_outcomes(records))].rounds

    def mixture(self, margin: Array, rounds: int) -> pd.DataFrame:
        """Choose the prefixes that a randomised classifier draws from: rounds and probability."""
        records = self._prefixes(margin, rounds)
        chosen, probability = prefix_mixture(*_outcomes(records))
        return pd.DataFrame(
            {"rounds": [records[t].rounds for t in chosen], "probability": probability}
        )

    def _prefixes(self, margin: Array, rounds: int) -> list[Record]:
        """List the records of all prefixes of one round or more, up to `rounds`."""
        before = [r for r in self.solver.history if 0 < r.rounds < rounds]
        return [*before, self._record(margin, rounds)]

    def _record(self, margin: Array, rounds: int) -> Record:
        """State of the solver after some rounds, which end no outer iteration."""
        solver, lagrangian = self.solver, self.solver.lagrangian
        statistics = lagrangian.at(margin).statistics()
        trained_in = [r for r in solver.history if r.rounds < rounds]
        last = trained_in[-1] if trained_in else solver.history[-1]
        functionals = lagrangian.constraints.functionals(statistics)
        reached = [r.fritz_john for r in solver.history if r.rounds == rounds]
        return replace(
            last,
            iteration=last.iteration + 1,
            rounds=rounds,
            objective=lagrangian.objective(statistics),
            error=lagrangian.error(statistics),
            rates=lagrangian.constraints.rows_of(functionals),
            functionals=functionals,
            bregman=np.nan,
            seconds=solver.elapsed,
            fritz_john=reached[0] if reached else np.nan,
        )

    def finish(self, margin: Array, rounds: int, prefixes: pd.DataFrame | None = None) -> None:
        """Take the scores of all rows under the model that is returned.

        Parameters
        ----------
        margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores of the training rows, and of further data sets.
        rounds : int
            Boosting rounds in that model; fewer than were trained after early stopping.
        prefixes : DataFrame, default=None
            Those of a randomised classifier, whose expected rates are then reported.
        """
        if self._progress is not None:
            self._progress.close()
        self._final = self._record(margin, rounds)
        self.multipliers = self._final.multipliers
        statistics = self.solver.lagrangian.at(margin).statistics()
        self._functionals = self._reported.functionals(statistics)
        if prefixes is None:
            return
        records = {r.rounds: r for r in self._prefixes(margin, rounds)}
        self._functionals = _expected({t: r.functionals for t, r in records.items()}, prefixes)
        errors = np.array([records[t].error for t in prefixes["rounds"]])
        error = float(prefixes["probability"].to_numpy() @ errors)
        self._final = replace(self._final, functionals=self._functionals, error=error)
        for held in self.evaluation_sets:
            held.functionals_in[rounds] = _expected(held.functionals_in, prefixes)

    @property
    def columns(self) -> int:
        """Scores of a row: one for two classes, one per class otherwise."""
        return 1 if self.classes.size == 2 else self.classes.size

    @staticmethod
    def forget(estimator: Any) -> None:
        """Remove from an estimator what an earlier constrained fit left on it."""
        names = ("constraint_report_", "group_report_", "history_", "multipliers_", "prefixes_")
        for name in names:
            estimator.__dict__.pop(name, None)

    def describe(self, estimator: Any) -> None:
        """Set the fitted attributes that tell of the constraints."""
        estimator.constraint_report_ = self.report()
        estimator.group_report_ = self.group_report()
        estimator.history_ = self.history()
        estimator.multipliers_ = pd.Series(
            self.multipliers, index=list(self._reported.rows), name="multiplier"
        )

    def report(self) -> pd.DataFrame:
        """One row per constraint: bound, training value, held-out value, multiplier, satisfied."""
        compiled = self._reported
        train = compiled.values(self._functionals)
        held_out = np.full(len(train), np.nan)
        if self.evaluation_sets:
            held_out = self.evaluation_sets[-1].values(self._final.rounds)
        satisfied = pd.array(compiled.satisfied(held_out), dtype="boolean")
        satisfied[np.isnan(held_out)] = pd.NA
        return pd.DataFrame(
            {
                "constraint": [str(c) for c in compiled.constraints],
                "bound": compiled.bounds,
                "train": train,
                "held_out": held_out,
                "multiplier": compiled.totals(self.multipliers),
                "train_satisfied": compiled.satisfied(train),
                "satisfied": satisfied,
            }
        )

    def group_report(self) -> pd.DataFrame:
        """One row per group of each constraint: its size and its rate."""
        compiled, held = self._reported, self.evaluation_sets[-1:]
        records = []
        for constraint, span, groups in zip(
            compiled.constraints, compiled.spans, compiled.groups, strict=True
        ):
            for position, group in zip(range(span.start, span.stop), groups, strict=False):
                on_held = [h.functionals_in[self._final.rounds][position] for h in held]
                records.append(
                    {
                        "constraint": str(constraint),
                        "group": str(group),
                        "rows": group.size,
                        "train": self._functionals[position],
                        "held_out": on_held[0] if on_held else np.nan,
                    }
                )
        return pd.DataFrame(records, columns=["constraint", "group", "rows", "train", "held_out"])

    def history(self) -> pd.DataFrame:
        """One row per outer iteration, and a last one for the model that is returned."""
        kept = [r for r in self.solver.history if r.rounds < self._final.rounds]
        held = self.evaluation_sets[-1:]
        return history_frame(
            [*kept, self._final],
            self.solver.lagrangian.constraints,
            held[0] if held else None,
            moving_bounds=self.options.error_form == "log_loss",
        )


def _outcomes(records: Sequence[Record]) -> tuple[Float, Float]:
    """Errors of prefixes, and their violations of each row of constraints."""
    errors = np.array([r.error for r in records])
    return errors, np.array([r.rates - r.bounds for r in records])


def _expected(functionals: Mapping[int, Float], prefixes: pd.DataFrame) -> Float:
    """Rates of a randomised classifier: the mean over its prefixes."""
    stacked = np.array([functionals[rounds] for rounds in prefixes["rounds"]])
    return np.asarray(prefixes["probability"].to_numpy() @ stacked)


def drawn(decide: Callable[[int], Array], prefixes: pd.DataFrame, random_state: Any) -> Array:
    """Decisions of a randomised classifier: each row by a prefix drawn for it.

    Parameters
    ----------
    decide : callable
        Decisions on all rows of the prefix of so many rounds.
    prefixes : DataFrame
        Rounds and probability of each prefix.
    random_state : int, RandomState or None
        As in scikit-learn.
    """
    decisions = np.array([decide(int(rounds)) for rounds in prefixes["rounds"]])
    uniform = check_random_state(random_state).random_sample(decisions.shape[1])
    which = np.searchsorted(np.cumsum(prefixes["probability"])[:-1], uniform, side="right")
    return np.asarray(decisions[which, np.arange(uniform.size)])


def refuse_random_state(random_state: Any) -> None:
    """Refuse a source of randomness where nothing is drawn."""
    if random_state is not None:
        raise ValueError(
            f"random_state={random_state!r} draws from the prefixes of a classifier fitted with "
            f"constraints and iterate='randomized', which this one was not: leave it out."
        )


def history_frame(
    records: Sequence[Record],
    compiled: CompiledConstraints,
    held_out: EvaluationSet | None = None,
    moving_bounds: bool = False,
) -> pd.DataFrame:
    """History of a solver as a table, one row per record."""
    table = pd.DataFrame(
        {
            "iteration": [r.iteration for r in records],
            "rounds": [r.rounds for r in records],
            "objective": [r.objective for r in records],
            "error": [r.error for r in records],
            "bregman": [r.bregman for r in records],
            "fritz_john": [r.fritz_john for r in records],
            "seconds": [r.seconds for r in records],
        }
    )
    values = np.array([compiled.values(r.functionals) for r in records])
    multipliers = np.array([compiled.totals(r.multipliers) for r in records])
    held = [held_out.values(r.rounds) for r in records] if held_out is not None else []
    columns: dict[str, Any] = {}
    for j, constraint in enumerate(compiled.constraints):
        columns[f"value[{constraint}]"] = values[:, j]
        columns[f"bound[{constraint}]"] = (
            np.array([r.bounds[j] for r in records]) if moving_bounds else constraint.bound
        )
        columns[f"multiplier[{constraint}]"] = multipliers[:, j]
        if held:
            columns[f"held_out[{constraint}]"] = np.array(held)[:, j]
    return pd.concat([table, pd.DataFrame(columns, index=table.index)], axis=1)


class Progress:
    """Progress of a fit that takes longer than a few seconds, on the standard error stream.

    A tqdm bar where tqdm is installed, a line every few seconds otherwise.
    """

    DELAY = 5.0  # seconds

    def __init__(self, n_rounds: int, compiled: CompiledConstraints) -> None:
        self.n_rounds = n_rounds
        self.compiled = compiled
        self._last = time.perf_counter()
        self._bar: Any = None

    def __call__(self, record: Record) -> None:
        """Show one outer iteration."""
        due = time.perf_counter() - self._last > self.DELAY
        if self._bar is None and not due:
            return
        values = ", ".join(
            f"{c.expression} {value:.4f} ({c.sense} {c.bound:g})"
            for c, value in zip(
                self.compiled.constraints, self.compiled.values(record.functionals), strict=True
            )
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
