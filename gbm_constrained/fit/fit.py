"""One constrained fit, in stages.

The libraries read evaluation sets when their own training starts, which is after the fold boosters
have been grown, and some of their messages name no argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any, ClassVar, get_args

import numpy as np
import pandas as pd
from scipy import sparse

from gbm_constrained._dataframes import categories_of, foreign_categories, is_frame, names_of
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.constraints.selectors import MISSING, Columns
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.data.validation import (
    as_labels,
    check_features,
    check_sensitive_sets,
    refuse_strange,
)
from gbm_constrained.decision.choose import FoldScores, match_positive_rate
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.groups import GroupOffsets, number_of
from gbm_constrained.decision.guarantees import GuaranteeRequest, check_guarantee
from gbm_constrained.fit.callbacks import CallbackNotifier, Progress, TimeLimit, check_callbacks
from gbm_constrained.fit.checkpoint import open_checkpoint
from gbm_constrained.fit.cross_fit import (
    Dividing,
    EvaluationRows,
    FitRun,
    FoldBoosterFactory,
    HeldOutRows,
    Measured,
    MeasurementStrategy,
    TrainingRows,
    resolve_measurement,
)
from gbm_constrained.fit.options import (
    GROUP_PARAMETERS,
    EarlyStoppingOn,
    RoundMerit,
    SolverOptions,
    find_merit,
)
from gbm_constrained.fit.problem import FitProblem, LibrarySettings, TreeLimits
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import Solver


def begin_groups(problem: FitProblem, parameter: str, library: LibrarySettings) -> GroupOffsets:
    """Find the groups that decide, with offsets of zero.

    Parameters
    ----------
    problem : FitProblem
        Constraints bound to the rows.
    parameter : str
        One of :data:`~gbm_constrained.fit.options.GROUP_PARAMETERS`.
    library : LibrarySettings
        Settings of the library, which limit what trees may split by.

    Raises
    ------
    ValueError
        If groups cannot decide: by the constraints, the classes, the machines, the columns, or
        the library's parameters.
    """
    data, of_group = problem.data, GROUP_PARAMETERS[parameter]
    if not problem.cells.communicator.holds_all_rows:
        raise ValueError(
            f"{parameter}=True searches {of_group}s on one machine, and the rows are on several: "
            f"train on one, or use {parameter}=False."
        )
    if data.rows.sources:
        raise ValueError(
            f"{parameter}=True decides by groups of the training rows, and constraints are about "
            f"the data sets {list(data.rows.sources)}: leave these constraints out, or use "
            f"{parameter}=False."
        )
    if parameter == "group_thresholds":
        _check_thresholds(problem)
    columns = _columns_of(problem.cells, parameter)
    _check_columns(data, columns, parameter)
    X, groups = data.arguments.X, GroupOffsets.none(columns, data.whole_rows)
    limits = TreeLimits() if library.tree_limits is None else library.tree_limits(names_of(X))
    _check_limits(columns, limits, parameter)
    _check_values(X, groups, limits.missing, parameter)
    warn_of_groups(parameter)
    return groups


def _check_thresholds(problem: FitProblem) -> None:
    """Refuse what no threshold of two classes serves."""
    asked, otherwise = "group_thresholds=True", "use group_thresholds=False"
    compiled, n_classes = problem.compiled, problem.data.classes.size
    if n_classes > 2:
        raise ValueError(
            f"{asked} moves a threshold of two classes, and y has {n_classes}: {otherwise}, or "
            f"label one class against the others."
        )
    for j, constraint in enumerate(compiled.constraints):
        if compiled.has_scores[compiled.owner == j].any():
            raise ValueError(
                f"{asked} moves decisions, and {constraint} is about scores: bound a rate of "
                f"decisions instead, or {otherwise}."
            )
    check_straight(compiled.constraints, asked, otherwise)


def _columns_of(cells: Cells, parameter: str) -> Columns:
    """List the columns that constraints group by, in their order."""
    keys = [key for need in cells.needs for key in need if isinstance(key, tuple)]
    columns = tuple(dict.fromkeys(column for key in keys for column in key))
    if not columns:
        raise ValueError(
            f"{parameter}=True decides by the columns that constraints group by, and no "
            f"constraint names one: give one, such as a gap with by='sex', or use "
            f"{parameter}=False."
        )
    return columns


def _check_columns(data: FitData, columns: Columns, parameter: str) -> None:
    """Refuse columns that trees cannot split by."""
    X = data.arguments.X
    for column in columns:
        if column in data.whole_rows.columns or column not in names_of(X):
            where = "of sensitive_features" if column in data.whole_rows.columns else "not of X"
            raise ValueError(
                f"{parameter}=True decides by the column {column!r}, which is {where}, and the "
                f"model sees X alone: give the column in X, a table with names, and not in "
                f"sensitive_features; or use {parameter}=False."
            )
        if column in foreign_categories(X):
            raise ValueError(
                f"{parameter}=True splits by the categories of {column!r} as pandas numbers them: "
                f"give X as a table of pandas."
            )


def _check_limits(columns: Columns, limits: TreeLimits, parameter: str) -> None:
    """Refuse columns that the library's parameters let no tree split by so."""
    if bound := [column for column in columns if column in limits.monotone]:
        raise ValueError(
            f"{parameter}=True adds a {GROUP_PARAMETERS[parameter]} for each value of "
            f"{bound[0]!r}, which need not be monotone in it, as monotone_constraints asks: take "
            f"the column out of them, or use {parameter}=False."
        )
    together = limits.together
    if together and len(columns) > 1 and not any(each.issuperset(columns) for each in together):
        raise ValueError(
            f"{parameter}=True splits by {list(columns)} in one tree, and no set of "
            f"interaction_constraints holds all of these: add one that does, or use "
            f"{parameter}=False."
        )


def _check_values(X: Any, groups: GroupOffsets, missing: float, parameter: str) -> None:
    """Refuse numbers that trees, which split in single precision, do not tell apart."""
    names, all_categories = names_of(X), categories_of(X)
    for k, column in enumerate(groups.columns):
        categories = all_categories.get(names.index(column))
        values = [*{level[k] for level in groups.levels} - {MISSING}]
        with np.errstate(over="ignore"):
            numbers = np.array([number_of(value, categories) for value in values], np.float32)
        lost = ~np.isfinite(numbers) | (numbers == np.float32(missing))
        if lost.any():
            value = values[int(np.argmax(lost))]
            why = f"missing={missing!r}" if np.isfinite(numbers[lost]).any() else "infinite"
            raise ValueError(
                f"{parameter}=True splits by the column {column!r}, whose value {value!r} is "
                f"{why} to the trees: number its groups from 1 on."
            )
        if np.unique(numbers).size < len(values):
            raise ValueError(
                f"{parameter}=True splits by the column {column!r}, some of whose {len(values)} "
                f"values are equal in single precision: number its groups from 1 on."
            )


@functools.cache
def warn_of_groups(parameter: str) -> None:
    """Warn once in a process that decisions, or predictions, use the group."""
    issue_warning(
        f"{parameter}=True lets the group of a person decide, by a {GROUP_PARAMETERS[parameter]} "
        f"for each group. That is unlawful in places and for some purposes: make sure that it is "
        f"allowed where the model is used. {parameter}=False decides for all groups alike.",
        "GC122",
    )


def transfer_offsets(
    scores: FoldScores, shift: Float, offsets: GroupOffsets, margin: Array, inside: Bool,
    cells: Cells,
) -> tuple[Float, GroupOffsets]:  # fmt: skip
    """Find the shifts under which the model of all rows has the positive rates of the folds.

    Each group with an offset is matched by itself, and all other rows together; see
    :func:`~gbm_constrained.decision.choose.match_positive_rate`.
    """
    groups, values = offsets.groups_of(cells.rows), offsets.values
    own = np.flatnonzero(values)
    others = inside & ~np.isin(groups, own)
    common = match_positive_rate(scores, shift, margin, others, cells) if shift.any() else shift
    moved = np.zeros_like(values)
    for g in own:
        of_group = inside & (groups == g)
        found = match_positive_rate(scores, shift + values[g], margin, of_group, cells)
        moved[g] = found[0] - common[0]
    return common, replace(offsets, values=moved)


def tabulate_shifts(shift: Float, offsets: GroupOffsets, groups: Array) -> pd.DataFrame:
    """Make the table of the shift of each group, in the order of the groups."""
    table = {
        column: [None if level[k] is MISSING else level[k] for level in offsets.levels]
        for k, column in enumerate(offsets.columns)
    }
    count = np.bincount(groups, minlength=len(offsets.levels))[: len(offsets.levels)]
    return pd.DataFrame({**table, "shift": shift[0] + offsets.values, "rows": count})


def weight_of_rows(sample_weight: Any, y: Any) -> Any:
    """Repeat a single sample weight for every row, as scikit-learn reads it."""
    if not isinstance(sample_weight, Number):
        return sample_weight
    return np.full(as_labels(y).size, sample_weight, dtype=np.float64)


def _refuse_tables(compiled: LinearConstraints) -> None:
    """Refuse pair rates and calibration errors where decisions alone are moved."""
    for constraint in compiled.constraints:
        if constraint.is_calibration:
            raise ValueError(
                f"solver='threshold' moves the threshold alone, and {constraint} is about "
                f"probabilities, which no threshold changes: use solver='auto', or leave the "
                f"constraint out."
            )
        if constraint.is_pair:
            raise ValueError(
                f"solver='threshold' moves the threshold alone, and {constraint} compares scores, "
                f"whose order no threshold changes: use solver='auto', or leave the constraint "
                f"out."
            )


class ConstrainedFit:
    """One constrained fit, whose stages take the products of those before.

    1. The rows are encoded, 2. the constraints compiled, 3. the options checked: all three when
    the object is made. 4. and 5. :meth:`measure` finds the path of the multipliers. 6. The
    library trains with :attr:`solver` as its objective. 7.
    :func:`~gbm_constrained.fit.finalize.finalize` chooses the decision. 8.
    :func:`~gbm_constrained.fit.fitted_report.report` sets the fitted attributes.

    Parameters
    ----------
    options : SolverOptions
        Constructor parameters.
    arguments : FitArguments
        Rows that the user gave.
    library : LibrarySettings
        Settings of the library's own fit.
    progress : Progress, default=None
        Display of the progress.
    constraint_callbacks : sequence of callable, default=None
        Notified of each outer iteration.
    limit : TimeLimit, default=None
        Time after which measuring and training end.

    Attributes
    ----------
    run : FitRun
        Options, programme and observers.
    evaluation_sets : list of EvaluationSet
        Evaluation sets of the user.
    measured : Measured
        Product of :meth:`measure`.
    merits : dict of int to RoundMerit
        What early stopping on the constraints compares, by rounds.
    is_divisible : bool
        Whether a prefix of the booster is what the booster was after its rounds.
    has_offset : bool
        Whether training starts from scores of the user that ``predict`` does not add.
    """

    problem_class: ClassVar[type[FitProblem]] = FitProblem
    run_class: ClassVar[type[FitRun]] = FitRun
    held_out_rows: ClassVar[type[HeldOutRows]] = HeldOutRows
    check_guarantee: ClassVar[Callable[..., None]] = staticmethod(check_guarantee)

    def __init__(
        self,
        options: SolverOptions,
        arguments: FitArguments,
        library: LibrarySettings,
        *,
        progress: Progress | None = None,
        constraint_callbacks: Any = None,
        limit: TimeLimit | None = None,
    ) -> None:
        callbacks = check_callbacks(constraint_callbacks)
        notifier = CallbackNotifier(
            callbacks if progress is None else [*callbacks, progress],
            library.n_rounds,
            options.rounds_per_iteration,
            limit,
            library.unit,
            arguments.machine.communicator,
            library.learning_rate,
        )
        options, problem = self.problem_class.of(options, arguments, library)
        options.method.check_problem(problem.compiled, options.iterate)
        if options.solver == "threshold":
            _refuse_tables(problem.compiled)
        problem.initial_multipliers(options.method.start)
        certification = problem.certification_set()
        if certification is not None:
            prefixes = options.prefixes(library.n_rounds)
            fraction, delta = options.calibration_fraction, options.delta
            asked = GuaranteeRequest(str(options.guarantee), fraction, delta, prefixes)
            self.check_guarantee(certification, problem.compiled, asked)
        parameter = options.group_parameter
        groups = None if parameter is None else begin_groups(problem, parameter, library)
        self.run = self.run_class(
            options, problem, library, notifier, certification, groups, progress=progress
        )
        self.evaluation_sets: list[EvaluationSet] = []
        self.merits: dict[int, RoundMerit] = {}
        self.measured: Measured
        self.is_divisible = self.has_offset = False

    @property
    def options(self) -> SolverOptions:
        """Constructor parameters."""
        return self.run.options

    @property
    def problem(self) -> FitProblem:
        """Constraints bound to the rows."""
        return self.run.problem

    @property
    def data(self) -> FitData:
        """Rows of the fit."""
        return self.run.problem.data

    @property
    def notifier(self) -> CallbackNotifier:
        """Notifier of callbacks, which also ends training."""
        return self.run.notifier

    @property
    def solver(self) -> Solver:
        """Solver that gives the gradients of the model."""
        return self.measured.solver

    @property
    def reporting_rows(self) -> list[EvaluationSet]:
        """Held-out rows whose rates are reported; the first that have a value count."""
        rows = self.measured.rows
        return [*self.evaluation_sets[-1:], *([] if rows is None else [rows])]

    def add_evaluation_set(
        self, name: str, X: Any, y: Any, weight: Any = None, sensitive_features: Any = None
    ) -> EvaluationSet:
        """Attach rows that are not trained on."""
        added = self.problem.evaluation_set(name, X, y, weight, sensitive_features)
        self.evaluation_sets.append(added)
        return added

    def find_held_out(self, pairs: Sequence[tuple[Any, Any]]) -> list[int]:
        """List the positions of the evaluation sets (X_i, y_i) that are not the training rows.

        Training rows are refused there if some of them are set aside for a guarantee.
        """
        found = [i for i, pair in enumerate(pairs) if not self.data.holds(pair)]
        if len(found) < len(pairs) and self.run.certification is not None:
            raise ValueError(
                f"eval_set holds the training rows, of which guarantee={self.options.guarantee!r} "
                f"sets some aside that nothing else may look at: leave them out; history_ and "
                f"constraint_report_ have the values on training rows."
            )
        return found

    def warn_of_further_groups(self) -> None:
        """Warn of groups of the last evaluation set that constraints have no training rows of."""
        for rows in self.evaluation_sets[-1:]:
            if found := self.problem.name_further_groups(rows):
                issue_warning(
                    f"{rows.source} has groups that a constraint has no training rows of: "
                    f"{found}. Values on {rows.source} compare these groups as well, as audit "
                    f"does, and training cannot act on them. Put rows of these groups among the "
                    f"training rows, or leave them out of {rows.source}.",
                    "GC205",
                )

    def check_stopping_set(self) -> None:
        """Refuse to stop early on constraints that the last evaluation set cannot measure."""
        held, compiled = self.evaluation_sets[-1], self.problem.compiled
        compared = np.unique(compiled.R.indices)
        there = compiled.positions_in(held.compiled)[compared]
        if np.isnan(held.compiled.constant[there]).any():
            raise ValueError(
                f"early_stopping_on={self.options.early_stopping_on!r} measures the constraints "
                f"on {held.source}, where some cannot be measured (a mask, a data set, a column "
                f"or a group that is not there): give sensitive_features_eval_set, or use "
                f"'metric'."
            )

    def save_to(self, path: Any, estimator: Any, arguments: Mapping[str, Any]) -> None:
        """Save finished stages to a file from now on, and resume from its finished stages.

        Parameters of the `estimator` and `arguments` of its ``fit`` must be those of the fit in
        the file. With a `path` of None nothing is saved.
        """
        compiled, cells = self.problem.compiled, self.problem.cells
        arguments = self.data.with_folds(arguments)
        file = open_checkpoint(path, estimator, arguments, compiled, cells)
        self.run = replace(self.run, checkpoint=file)

    def measure(
        self,
        make_factory: Callable[[], FoldBoosterFactory] | None = None,
        *,
        is_divisible: bool = False,
        has_offset: bool = False,
    ) -> None:
        """Find the path of the multipliers, or the rows that will move them.

        `make_factory` makes the factory of fold boosters; None stands for a learner without any.
        The attributes of the class describe the other parameters.
        """
        self.is_divisible, self.has_offset = is_divisible, has_offset
        kind = resolve_measurement(
            self.run,
            is_divisible=is_divisible,
            has_evaluation_set=bool(self.evaluation_sets),
        )
        strategy: MeasurementStrategy = TrainingRows()
        if kind in get_args(Dividing):
            assert make_factory is not None
            n_folds = 1 if kind == "holdout" else self.options.n_folds
            strategy = self.held_out_rows(make_factory(), n_folds, has_offset)
        elif self.run.checkpoint is not None:
            raise ValueError(
                "checkpoint= saves the boosters of the folds, and this fit has none: it measures "
                "the constraints on the training rows or on an evaluation set. Leave checkpoint "
                "out, or use measure_on='crossfit'."
            )
        elif kind == "evaluation set":
            strategy = EvaluationRows(self.evaluation_sets[-1])
        self.measured = strategy.measure(self.run)

    def is_iteration_end(self, rounds: int) -> bool:
        """Whether `rounds` boosting rounds complete an outer iteration."""
        return rounds % self.options.rounds_per_iteration == 0

    def is_measured_after(self, rounds: int) -> bool:
        """Whether evaluation sets are measured after so many boosting rounds."""
        return self.options.early_stopping_on != "metric" or self.is_iteration_end(rounds)

    def measure_round(self, held: EvaluationSet, rounds: int, margin: Array) -> None:
        """Measure an evaluation set by its scores after some rounds."""
        held.measure(rounds, margin)
        if self.options.early_stopping_on != "metric" and held is self.evaluation_sets[-1]:
            self.merits[rounds] = self.find_merit(held, margin)

    def find_merit(self, held: EvaluationSet, margin: Array) -> RoundMerit:
        """Find what early stopping on the constraints compares, by the scores after a round."""
        is_shifted = self.measured.rows is not None and self.options.iterate != "randomized"
        return find_merit(held, margin, is_shifted=is_shifted)


def check_pairs(eval_set: Any, X: Any, *, by_name: bool) -> list[tuple[Any, Any]]:
    """Check evaluation sets against the training rows `X`, and list them as pairs (X_i, y_i).

    `by_name` says whether the library compares the names of columns.
    """
    if eval_set is None:
        return []
    pairs = list(eval_set) if isinstance(eval_set, Iterable) else [eval_set]
    for i, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            length = f" of {len(pair)}" if isinstance(pair, (list, tuple)) else ""
            raise TypeError(
                f"eval_set must be a list of pairs (X, y), got a {type(eval_set).__name__} whose "
                f"entry {i} is a {type(pair).__name__}{length}: give "
                f"eval_set=[(X_valid, y_valid)]."
            )
        X_i, y_i = pair
        check_pair(f"eval_set[{i}]", X_i, y_i, X, by_name=by_name)
    return pairs


def check_pair(name: str, X_i: Any, y_i: Any, X: Any, *, by_name: bool) -> None:
    """Check further rows of a name against the training rows `X`.

    `by_name` says whether the names of columns are compared.
    """
    n_values = as_labels(y_i, f"y of {name}").size
    shape, training = _shape(X_i), _shape(X)
    if len(shape) != 2:
        raise ValueError(
            f"X of {name} must have two dimensions, one row for each label and the columns of X; "
            f"got shape {shape}."
        )
    if shape[0] != n_values:
        raise ValueError(
            f"{name} has {shape[0]} rows of X and {n_values} values of y: give one for each row."
        )
    if shape[1:] != training[1:] and len(training) == 2:
        raise ValueError(
            f"X of {name} has {shape[1]} columns, and the training rows have {training[1]}: give "
            f"the same columns."
        )
    check_features(X_i, f"X of {name}")
    found, expected = _names(X_i), _names(X)
    if by_name and found is not None and expected is not None and found != expected:
        raise ValueError(
            f"X of {name} has the columns {found or 'without names'}, and the training rows have "
            f"{expected or 'columns without names'}: give tables of the same columns, in the "
            f"same order."
        )
    if not isinstance(X_i, pd.DataFrame):
        return  # Tables of other libraries have categories of their own kind.
    theirs = categories_of(X_i)
    for j, categories in categories_of(X).items():
        column = X.columns[j]
        if j not in theirs:
            raise TypeError(
                f"X of {name} has no categories in column {column!r}, where X has some: give the "
                f"column as a category."
            )
        refuse_strange(column, categories, theirs[j], f"X of {name}")


def _shape(table: Any) -> tuple[int, ...]:
    shape = tuple(table.shape if hasattr(table, "shape") else np.shape(table))
    return (*shape, 1) if hasattr(table, "to_frame") and len(shape) == 1 else shape


def _names(table: Any) -> list[str] | None:
    """List the names of columns as XGBoost compares them; None for tables of unknown kinds."""
    if is_frame(table) or isinstance(table, (np.ndarray, list)) or sparse.issparse(table):
        return list(map(str, names_of(table)))
    return None


@dataclass(frozen=True)
class EvaluationArguments:
    """Evaluation sets as they were given, and how they end training early.

    Attributes
    ----------
    pairs : sequence of (X_i, y_i)
        All evaluation sets.
    weights : sequence
        Sample weights of each evaluation set, or None.
    initial_scores : sequence
        Scores that the booster starts from in each evaluation set, or None.
    has_patience : bool
        Whether the parent has a number of rounds after which to stop early.
    parameter : str
        Parameter that gives this number.
    is_evaluated : bool
        Whether there is an evaluation set, and a metric of it.
    """

    pairs: Sequence[tuple[Any, Any]]
    weights: Sequence[Any]
    initial_scores: Sequence[Any]
    has_patience: bool
    parameter: str
    is_evaluated: bool

    def check_early_stopping(self, on: EarlyStoppingOn, *, has_held_out: bool) -> None:
        """Refuse early stopping that lacks a patience, a metric or rows to look at."""
        if on == "metric":
            if self.has_patience and not self.is_evaluated:
                raise ValueError(
                    f"Early stopping ({self.parameter}) looks at a metric of an evaluation set, "
                    f"and there is none: give eval_set=[(X_valid, y_valid)], or evals= and "
                    f"valid_sets= of train, or leave early stopping out."
                )
            return
        asked = f"early_stopping_on={on!r}"
        if not self.has_patience:
            raise ValueError(
                f"{asked} does not say after how many rounds without improvement to stop: give "
                f"{self.parameter}, or leave early_stopping_on at 'metric'."
            )
        if not has_held_out:
            raise ValueError(
                f"{asked} measures the constraints on the last evaluation set, and there is none "
                f"besides the training rows: give eval_set=[(X_valid, y_valid)]."
            )


def take_evaluation_sets(
    fit: ConstrainedFit, given: EvaluationArguments, sensitive_features: Any
) -> list[int]:
    """Attach to a fit the evaluation sets that are not its training rows; list their positions."""
    pairs = given.pairs
    check_sensitive_sets(sensitive_features, len(pairs))
    sensitive = [None] * len(pairs) if sensitive_features is None else sensitive_features
    for i, (X_i, y_i) in enumerate(pairs):
        name = f"eval_set[{i}]"
        fit.data.alignment.check(
            {
                f"X of {name}": X_i,
                f"y of {name}": y_i,
                f"sample weight of {name}": given.weights[i],
                f"initial scores of {name}": given.initial_scores[i],
                f"sensitive features of {name}": sensitive[i],
            }
        )
    held_out = fit.find_held_out(pairs)
    on = fit.options.early_stopping_on
    given.check_early_stopping(on, has_held_out=bool(held_out))
    for i in held_out:
        fit.add_evaluation_set(f"eval_set[{i}]", *pairs[i], given.weights[i], sensitive[i])
    fit.warn_of_further_groups()
    if on != "metric":
        fit.check_stopping_set()
    return held_out
