"""All arguments of ``fit`` about rows, checked and encoded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length

from gbm_constrained._dataframes import tables_equal, take_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.data.alignment import RowAlignment, row_labels_of
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.combined_rows import CombinedRows, encode
from gbm_constrained.data.communicator import Machine
from gbm_constrained.data.exact_sums import sum_over_machines
from gbm_constrained.data.given_folds import GivenFolds
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.splits import parts_by_cell, parts_by_group, parts_by_hash
from gbm_constrained.data.times import Times
from gbm_constrained.data.validation import (
    as_groups,
    check_features,
    check_labels,
    check_weight,
    copy_random_state,
    refuse_lazy,
)

ClassFactor: TypeAlias = Callable[[Array, Array], Array]
OF_EVALUATION_SETS = "in sensitive_features_eval_set=[...], one entry for each set"
MAX_GROUPED_PARTS = 20  # Largest number of parts of whole groups that a share is composed of.


@dataclass(frozen=True)
class FitArguments:
    """Arguments of ``fit`` that describe rows.

    Constraints may group by `sensitive_features`, and be about the rows of `datasets`. Rows of one
    of the `groups` stay together where rows are split. A black-box metric chooses by the rows of
    `validation`, and is reported on those of `evaluation`. The `time` of each row orders them. The
    `machine` may hold a part of the rows.
    """

    X: Any
    y: Any
    sample_weight: Any = None
    sensitive_features: Any = None
    datasets: Any = None
    groups: Any = None
    validation: Any = None
    evaluation: Any = None
    time: Any = None
    machine: Machine = field(default_factory=Machine)

    def by_row(self) -> dict[str, Any]:
        """Collect the arguments with one value for each training row, by name."""
        names = ("X", "y", "sample_weight", "sensitive_features", "groups")
        found = {name: getattr(self, name) for name in names}
        return found if isinstance(self.time, str) else {**found, "time": self.time}

    def by_name(self) -> dict[str, Any]:
        """Collect the arguments as the user gave them, by name."""
        return {name: value for name, value in vars(self).items() if name != "machine"}

    def take(self, index: Codes) -> FitArguments:
        """Take some of the training rows."""
        given = {name: value for name, value in self.by_row().items() if value is not None}
        taken = {name: take_values(value, index) for name, value in given.items()}
        return replace(self, machine=self.machine.take(index), **taken)


def take_values(values: Any, index: Codes) -> Any:
    """Take the entries of some rows from a table, an array, or a dict of columns."""
    if isinstance(values, Mapping):
        return {name: take_rows(column, index) for name, column in values.items()}
    return take_rows(values, index)


@dataclass(frozen=True)
class ClassFactors:
    """Factors of the classes in the objective, which constraints do not have.

    Parameters
    ----------
    library : (n_classes,). Factors that the library multiplies into the weights of its data set.
    objective : (n_classes,). Factors that the library applies in its own objective.
    """

    library: Float
    objective: Float

    @classmethod
    def of(
        cls,
        classes: Array,
        y: Codes,
        library: ClassFactor | None = None,
        objective: ClassFactor | None = None,
    ) -> ClassFactors:
        """Evaluate the factors for the given classes and labels."""
        return cls(_evaluate_factor(library, classes, y), _evaluate_factor(objective, classes, y))

    @property
    def both(self) -> Float:
        """Product of both factors of each class, (n_classes,)."""
        return self.library * self.objective


@dataclass(frozen=True)
class Weights:
    """Every weight vector of a fit; None stands for ones.

    Parameters
    ----------
    samples : (n_samples,). Sample weights of the training rows.
    library : (n_samples,). Sample weights times the library's class factors, rounded to single
        precision as the library holds them.
    objective : (n_rows,). Weights of all rows in the objective and in the distance between scores;
        a row of a further data set has the mean weight of the training rows.
    """

    samples: Float | None
    library: Float | None
    objective: Float | None

    @classmethod
    def of(cls, data: FitData, factors: ClassFactors) -> Weights:
        """Combine sample weights and class factors."""
        y = data.y
        library = _multiply(data.sample_weight, factors.library, y)
        if library is not None:
            library = library.astype(np.float32).astype(float)
        objective = _multiply(library, factors.objective, y)
        return cls(data.sample_weight, library, data.combined.with_mean(objective))

    def with_log_odds(self, rows: Rows, log_odds: float) -> Float | None:
        """Compute objective weights that add to the log-odds of the second of two classes."""
        if not log_odds:
            return self.objective
        weight = np.ones(len(rows)) if self.objective is None else self.objective
        leaning = weight * np.exp(np.where(rows.y == 1, 0.5, -0.5) * log_odds)
        communicator = rows.machine.communicator
        if communicator.holds_all_rows:
            return np.asarray(leaning * (weight.sum() / leaning.sum()))

        def by_class(values: Float) -> Any:
            return np.bincount(rows.y, values, 2)

        (of_class,) = sum_over_machines(by_class, [weight], communicator)
        total = of_class @ np.exp(np.array([-0.5, 0.5]) * log_odds)
        return np.asarray(leaning * (of_class.sum() / total))


@dataclass(frozen=True, eq=False)
class FitData:
    """Rows of a fit, encoded once; all subsets of rows are made here.

    Parameters
    ----------
    arguments : Arguments of the user.
    classes : (n_classes,). Sorted labels.
    combined : Training rows and rows of further data sets, as arguments for the library.
    whole : The same with the rows that are set aside for certificates.
    rows, whole_rows : Attributes of the rows of `combined`, and of `whole`.
    sample_weight : (n_samples,). Sample weights of the training rows of `combined`.
    groups : (n_rows,). Groups of rows that stay together where rows are split.
    random_state : Source of randomness of the splits.
    alignment : Comparison of the row labels of all arguments.
    times : Times of the rows of `combined`; None where the user gave none.
    given_folds : Folds by the user's splitter or by times; None where rows are divided at random.
    training, certification : Positions in `whole` of the rows that are trained on, and of those
        set aside.
    """

    arguments: FitArguments
    classes: NDArray[np.generic]
    combined: CombinedRows
    whole: CombinedRows
    rows: Rows
    whole_rows: Rows
    sample_weight: Float | None
    groups: NDArray[Any] | None
    random_state: np.random.RandomState
    alignment: RowAlignment
    times: Times | None = None
    given_folds: GivenFolds | None = None
    training: Codes | None = None
    certification: Codes | None = None

    @classmethod
    def of(
        cls, arguments: FitArguments, constraints: Sequence[Constraint], random_state: Any = None
    ) -> FitData:
        """Check and encode the rows; no random state is the same as 0."""
        X, y = arguments.X, arguments.y
        check_features(X)
        refuse_lazy(y, "y")
        check_consistent_length(X, y)
        communicator = arguments.machine.communicator
        if arguments.datasets is not None and not communicator.holds_all_rows:
            raise ValueError(
                "datasets= cannot be used where rows are on several "
                "machines: train on one machine, or append their rows with a column that says "
                "which data set a row is of, and give on= that column."
            )
        classes, labels = check_labels(y, communicator=communicator)
        weight = check_weight(arguments.sample_weight, labels.size, communicator=communicator)
        combined = CombinedRows.of(
            X, y, arguments.sample_weight, labels, classes, arguments.datasets
        )
        return cls.assemble(arguments, constraints, combined, classes, weight, random_state)

    @classmethod
    def assemble(
        cls,
        arguments: FitArguments,
        constraints: Sequence[Constraint],
        combined: CombinedRows,
        classes: NDArray[Any],
        weight: Float | None,
        random_state: Any,
    ) -> Self:
        """Encode what is known of the rows beside features, labels and their weights."""
        n = combined.sizes[0]
        source = copy_random_state(random_state)
        rows = Rows(
            combined.codes,
            classes,
            combined.with_ones(weight),
            columns_of(arguments.sensitive_features, n),
            combined.features,
            combined.names,
            combined.sizes,
            machine=arguments.machine,
        )
        alignment = RowAlignment()
        alignment.check({**arguments.by_row(), **row_labels_of(constraints)})
        alignment.check_data_sets(arguments.datasets)
        groups = arguments.groups
        groups = None if groups is None else as_groups(groups, n, len(rows))
        times = None
        if arguments.time is not None:
            times = Times.of(arguments.time, rows, arguments.sensitive_features)
        return cls(
            arguments, classes, combined, combined, rows, rows, weight, groups, source, alignment,
            times,
        )  # fmt: skip

    def without_other_data_sets(self, constraints: Sequence[Constraint]) -> FitData:
        """Leave out the data sets that no constraint is about."""
        used = {name for constraint in constraints for name in constraint.data_sets}
        given = self.arguments.datasets or {}
        if used.issuperset(given):
            return self
        kept = {name: rows for name, rows in given.items() if name in used}
        arguments = replace(self.arguments, datasets=kept)
        return FitData.of(arguments, constraints, self.random_state)

    @property
    def y(self) -> Codes:
        """Class indices of the training rows, of shape (n_samples,)."""
        return self.combined.codes[: self.combined.sizes[0]]

    @property
    def columns(self) -> int:
        """Number of scores of a row: one for two classes, one for each class otherwise."""
        return 1 if self.classes.size == 2 else self.classes.size

    def without_certification_rows(self, cells: Cells, share: float) -> FitData:
        """Set a share of the rows of each cell, or the latest rows, aside for certificates."""
        if self.times is None:
            certification, training = self.split(np.arange(len(self.rows)), cells, share)
        else:
            remedy = "calibration_fraction= sets the latest rows aside; give finer times"
            earlier, latest = self.times.cut([1.0 - share, share], remedy)
            training, certification = earlier.rows, latest.rows
        combined = self.combined.take(training)
        n = combined.sizes[0]
        weight = self.sample_weight
        return replace(
            self,
            combined=combined,
            rows=self.rows.take(training),
            sample_weight=None if weight is None else weight[training[:n]],
            times=None if self.times is None else self.times.take(training),
            training=training,
            certification=certification,
        )

    def take(self, values: Any) -> Any:
        """Select the training rows from values of all rows."""
        if values is None or self.training is None:
            return values
        return take_rows(values, self.training)

    def split(
        self, rows: Codes, cells: Cells, share: float, n_parts: int | None = None
    ) -> list[Codes]:
        """Split rows by cell, keeping groups together.

        There are `n_parts` parts of this share, or one part of this share and the rest.
        """
        shares = [share] * n_parts if n_parts else [share, 1.0 - share]
        if not cells.communicator.holds_all_rows:
            return parts_by_hash(rows, cells, shares, self.random_state, self.groups)
        if self.groups is None:
            return parts_by_cell(rows, cells, shares, self.random_state)
        n_samples = self.combined.sizes[0]
        n_groups = np.unique(self.groups[:n_samples]).size
        parts = parts_by_group(
            rows,
            cells,
            n_parts or _count_parts(share, n_groups),
            self.groups,
            n_samples,
            self.random_state,
        )
        if n_parts:
            return parts
        reached = np.cumsum([part.size for part in parts[:-1]])
        joined = int(np.abs(reached - share * rows.size).argmin()) + 1
        return [np.sort(np.concatenate(some)) for some in (parts[:joined], parts[joined:])]

    def check_folds(self, given: GivenFolds) -> None:
        """Refuse folds whose training rows lack a class."""
        given.check_classes(self.y, self.classes)

    def with_folds(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add given folds to the arguments of ``fit``: a splitter may draw others each time."""
        if self.given_folds is None:
            return arguments
        folds = [(fold.training, fold.held) for fold in self.given_folds.folds]
        return {**arguments, "folds": folds}

    def evaluation_rows(
        self,
        name: str,
        X: Any,
        y: Any,
        weight: Any = None,
        sensitive_features: Any = None,
        remedy: str = OF_EVALUATION_SETS,
    ) -> Rows:
        """Encode the rows of an evaluation set; `remedy` says how columns of it are given."""
        codes = encode(y, self.classes, name)
        return Rows(
            codes,
            self.classes,
            check_weight(
                weight, codes.size, f"sample weight of {name}", self.rows.machine.communicator
            ),
            columns_of(sensitive_features, codes.size, f"sensitive features of {name}"),
            [X],
            like=self.rows,
            remedy=remedy,
            machine=self.arguments.machine.of_set(name),
        )

    def holds(self, pair: tuple[Any, Any]) -> bool:
        """Whether a pair (X, y) is that of the training rows, on all machines."""
        is_equal = all(map(tables_equal, pair, (self.arguments.X, self.arguments.y)))
        return all(self.rows.machine.communicator.gather(is_equal))


def _multiply(weight: Float | None, factors: Float, y: Codes) -> Float | None:
    """Multiply weights of rows, None for ones, by the factors of their classes."""
    if (factors == 1.0).all():
        return weight
    return factors[y] if weight is None else weight * factors[y]


def _evaluate_factor(factor: ClassFactor | None, classes: Array, y: Codes) -> Float:
    """Evaluate the factor of each class, of shape (n_classes,)."""
    if factor is None:
        return np.ones(classes.size)
    values = np.asarray(factor(classes, y), dtype=np.float64)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"class_weight (or scale_pos_weight) gives the classes {classes.tolist()} the factors "
            f"{values.tolist()}: under constraints they must be positive. Use sample_weight=0 to "
            f"leave rows out."
        )
    return values


def _count_parts(share: float, n_groups: int) -> int:
    """Count the parts to split groups into, so that some parts have nearly a share of the rows."""
    most, smaller = min(MAX_GROUPED_PARTS, n_groups), min(share, 1.0 - share)
    if smaller * most < 1.0:
        return max(round(1.0 / smaller), 2)
    return Fraction(share).limit_denominator(most).denominator
