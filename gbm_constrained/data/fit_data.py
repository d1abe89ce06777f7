"""All arguments of ``fit`` about rows, checked and encoded once.

A constraint may be about rows that are not in the objective: rows without labels (coverage,
churn), or rows that must nearly all be right. The library must score these rows in every round, so
they follow the training rows, with gradients of the constraints alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from narwhals.dependencies import is_polars_dataframe
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_consistent_length

from gbm_constrained._dataframes import (
    categories_of,
    foreign_categories,
    is_frame,
    named_columns,
    names_of,
    number_of_rows,
    tables_equal,
    take_rows,
)
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.rates import row_functions_of
from gbm_constrained.constraints.selectors import to_python_scalar
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import Machine, sum_over_machines
from gbm_constrained.data.rows import Rows, codes_among
from gbm_constrained.data.splits import (
    GivenFolds,
    Times,
    parts_by_cell,
    parts_by_group,
    parts_by_hash,
)
from gbm_constrained.data.validation import (
    RowAlignment,
    as_groups,
    as_labels,
    check_features,
    check_labels,
    check_weight,
    columns_of,
    copy_random_state,
    refuse_lazy,
    refuse_strange,
    row_labels_of,
)

PREPARED = (
    "rows of datasets= are taken as they are given, and no step of a Pipeline transforms them: "
    "prepare them as X is"
)


def encode(y: Any, classes: NDArray[np.generic], name: str) -> Codes:
    """Find the class index of each label of further rows, and refuse labels that are no class."""
    codes, unknown = codes_among(classes, as_labels(y, name), f"The labels of {name}")
    if unknown:
        raise ValueError(
            f"{name} holds label {unknown[0]!r}, which is not among the classes of y: "
            f"{classes.tolist()}."
        )
    return codes


def _split(name: Any, given: Any) -> tuple[Any, Any]:
    """Split a data set into features and labels; None without labels."""
    if isinstance(given, tuple):
        if len(given) != 2:
            raise ValueError(
                f"datasets[{name!r}] must be X, or a tuple (X, y); got {len(given)} elements."
            )
        features, labels = given
    else:
        features, labels = given, None
    if features is None:
        raise TypeError(f"datasets[{name!r}] has no features: give X, or a tuple (X, y).")
    if isinstance(features, list) and features and np.ndim(features[0]) == 2:
        raise TypeError(
            f"datasets[{name!r}] is a list that begins with a table: give X, or a tuple (X, y)."
        )
    return features, labels


@dataclass(frozen=True)
class CombinedRows:
    """All rows of a fit: the training rows first.

    Parameters
    ----------
    X, y, sample_weight : Arguments for the library. Rows without a label have some label, and rows
        of further data sets have weight zero.
    codes : (n_rows,). Class index of each row, -1 without a label.
    features : Features of the training rows, and of each further data set.
    names : Names of the further data sets.
    sizes : Number of rows of each part.
    targets : (n_rows,). Target of each row of a regression, zero without one; None of classes.
    """

    X: Any
    y: Any
    sample_weight: Any
    codes: Codes
    features: list[Any]
    names: tuple[str, ...]
    sizes: list[int]
    targets: Float | None = None

    @property
    def classes_of_rows(self) -> Codes:
        """Class index of each row; the first class for rows without a label, (n_rows,)."""
        return self.codes if self.codes.min(initial=0) >= 0 else np.maximum(self.codes, 0)

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        sample_weight: Any,
        codes: Codes,
        classes: NDArray[np.generic],
        datasets: Any,
        targets: Float | None = None,
    ) -> CombinedRows:
        """Append the rows of `datasets` to the training rows, whose class indices are `codes`.

        Rows of a regression have `targets` instead, and the codes zero, or -1 without a target.
        """
        if datasets is not None and not isinstance(datasets, Mapping):
            raise TypeError(
                f"datasets must be a dict from name to X or (X, y), got {type(datasets).__name__}."
            )
        if not datasets:
            return cls(X, y, sample_weight, codes, [X], (), [codes.size], targets)
        features, known = [X], [np.asarray(codes if targets is None else targets)]
        for name, given in datasets.items():
            X_i, y_i = _split(name, given)
            of_set, n = f"datasets[{name!r}]", number_of_rows(X_i)
            if n == 0:
                raise ValueError(f"{of_set} has no rows.")
            _check_alike(X, X_i, of_set)
            _warn_if_far(X, X_i, of_set)
            if y_i is None:
                values: Array = np.full(n, -1 if targets is None else np.nan)
            elif targets is None:
                values = encode(y_i, classes, of_set)
            else:
                values = check_targets(y_i, f"y of {of_set}")
            if values.size != n:
                what = "labels" if targets is None else "targets"
                raise ValueError(f"{of_set} has {n} rows of features and {values.size} {what}.")
            features.append(X_i)
            known.append(values)
        stacked = np.concatenate(known)
        if targets is None:
            all_codes = stacked.astype(np.intp)
            y = classes[np.maximum(all_codes, 0)]
        else:
            all_codes = np.where(np.isnan(stacked), -1, 0)
            y = targets = np.nan_to_num(stacked)
        library_weight = np.zeros(stacked.size)
        # XGBoost also takes a column.
        library_weight[: codes.size] = 1.0 if sample_weight is None else np.ravel(sample_weight)
        return cls(
            concatenate_rows(features),
            y,
            library_weight,
            all_codes,
            features,
            tuple(datasets),
            [part.size for part in known],
            targets,
        )

    def take(self, index: Codes) -> CombinedRows:
        """Take some of the rows, in ascending order."""
        ends = np.cumsum(self.sizes)
        parts = [
            index[(index >= end - size) & (index < end)] - (end - size)
            for size, end in zip(self.sizes, ends, strict=True)
        ]
        weight = self.sample_weight
        return CombinedRows(
            take_rows(self.X, index),
            take_rows(self.y, index),
            None if weight is None else np.asarray(weight)[index],
            self.codes[index],
            [take_rows(X, part) for X, part in zip(self.features, parts, strict=True)],
            self.names,
            [part.size for part in parts],
            None if self.targets is None else self.targets[index],
        )

    def extend(self, weight: Float | None, fill: float | None = None) -> Float | None:
        """Extend weights of the training rows to further rows, by their mean by default."""
        if weight is None or not self.names:
            return weight
        value = float(weight.mean()) if fill is None else fill
        return np.concatenate([np.ravel(weight), np.full(sum(self.sizes[1:]), value)])

    def refuse_with(self, **given: Any) -> None:
        """Refuse arguments with a value for each row, which further rows do not have."""
        for name, value in given.items():
            if self.names and value is not None:
                raise ValueError(
                    f"{name} cannot be given together with datasets={list(self.names)}, whose "
                    f"rows have none: leave one of them out."
                )


def _check_alike(X: Any, other: Any, name: str) -> None:
    """Refuse a table that cannot be appended to X."""
    check_features(other, name)
    kinds = {
        _library(table) if is_frame(table) else "sparse" if sparse.issparse(table) else "array"
        for table in (X, other)
    }
    if len(kinds) > 1:
        raise TypeError(
            f"{name} is a {_describe(other)} and X a {_describe(X)}: give both as the same kind "
            f"of table. Inside of a Pipeline X is what the step before makes of it: {PREPARED}."
        )
    if is_frame(X):
        if names_of(X) != names_of(other):
            raise ValueError(
                f"{name} must have the columns of X in the same order: {names_of(X)}; got "
                f"{names_of(other)} ({PREPARED})."
            )
        foreign = foreign_categories(X)
        if foreign:
            raise TypeError(
                f"X has the categorical columns {foreign} of a {_describe(X)}, whose categories "
                f"{name} need not share: give both as pandas DataFrames."
            )
        for j, categories in categories_of(X).items():
            found = other.iloc[:, j].astype("category").cat.categories
            refuse_strange(names_of(X)[j], categories, found, name)
        return
    columns = [
        np.shape(table)[1] if np.ndim(table) == 2 or sparse.issparse(table) else 0
        for table in (X, other)
    ]
    if columns[0] != columns[1]:
        raise ValueError(
            f"{name} must have the {columns[0]} columns of X, got {columns[1]} ({PREPARED})."
        )


def _library(table: Any) -> str:
    return type(table).__module__.partition(".")[0]


def _describe(table: Any) -> str:
    """Describe a table in messages, as in ``polars DataFrame``."""
    library, name = _library(table), type(table).__name__
    return name if library == "builtins" else f"{library} {name}"


def _warn_if_far(X: Any, other: Any, name: str) -> None:
    """Warn of rows far outside the range of X, which are probably prepared in another way.

    Drift moves rows by less than the range of the training rows.
    """
    if sparse.issparse(X) or not (is_frame(X) or np.ndim(X) == 2):
        return  # The library itself refuses one dimension.
    for (column, ours), (_, theirs) in zip(named_columns(X), named_columns(other), strict=True):
        if ours.dtype.kind not in "iuf" or theirs.dtype.kind not in "iuf":
            continue
        low, high = float(np.fmin.reduce(ours)), float(np.fmax.reduce(ours))
        span = high - low
        is_far = (theirs < low - span) | (theirs > high + span)
        if span > 0 and is_far.mean() > 0.5:
            row = int(is_far.argmax())
            issue_warning(
                f"{name} is unlike X: in column {column!r} X goes from {low:.4g} to "
                f"{high:.4g}, and more than half of these rows are further off than X is wide, "
                f"as row {row} with {theirs[row]:.4g}. Trees know nothing of such rows; "
                f"{PREPARED}.",
                "GC203",
            )
            return


def concatenate_rows(features: Sequence[Any]) -> Any:
    """Stack tables of one kind; columns of the later ones take the categories of the first."""
    first = features[0]
    if isinstance(first, pd.DataFrame):
        others = [table.copy(deep=False) for table in features[1:]]
        for name, dtype in first.dtypes.items():
            if isinstance(dtype, pd.CategoricalDtype):  # Other categories become missing values.
                for table in others:
                    given = table[name].astype("category").cat
                    table[name] = given.set_categories(dtype.categories, ordered=dtype.ordered)
        return pd.concat([first, *others])
    if sparse.issparse(first):
        return sparse.vstack(features, format="csr")
    if is_frame(first):
        library = importlib.import_module(_library(first))
        if is_polars_dataframe(first):
            return library.concat(features, how="vertical_relaxed")
        return library.concat_tables(features, promote_options="permissive")
    if not isinstance(first, (np.ndarray, list)):
        raise TypeError(
            f"datasets can be stacked below arrays, sparse matrices and tables of pandas, polars "
            f"and pyarrow, not below a {_describe(first)}."
        )
    return np.concatenate([np.asarray(f) for f in features])


OF_EVALUATION_SETS = "in sensitive_features_eval_set=[...], one entry for each set"


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
class Weights:
    """Every weight vector of a fit; None stands for ones.

    Parameters
    ----------
    library : (n_samples,). Sample weights times the library's class factors, rounded to single
        precision as the library holds them.
    objective : (n_rows,). Weights of all rows in the objective and in the distance between scores;
        a row of a further data set has the mean weight of the training rows.
    """

    library: Float | None
    objective: Float | None

    @classmethod
    def of(cls, data: FitData, library_factors: Float, objective_factors: Float) -> Weights:
        """Combine sample weights and factors of the classes.

        The library multiplies the first factors into the weights of its data set, and applies the
        second ones in its own objective.
        """

        def multiply(weight: Float | None, factors: Float) -> Float | None:
            if (factors == 1.0).all():
                return weight
            return factors[data.y] if weight is None else weight * factors[data.y]

        library = multiply(data.sample_weight, library_factors)
        if library is not None:
            library = library.astype(np.float32).astype(float)
        objective = multiply(library, objective_factors)
        return cls(library, data.combined.extend(objective))

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

    In a regression the row functions of the constraints, whose keys stand in the place of classes,
    are the columns of a table of cell statistics. All rows have the first "class"; rows without a
    target have none.

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
        cls,
        arguments: FitArguments,
        constraints: Sequence[Constraint],
        random_state: Any = None,
        *,
        has_targets: bool = False,
    ) -> FitData:
        """Check and encode rows of classes or targets; no random state is the same as 0."""
        X, y, datasets = arguments.X, arguments.y, arguments.datasets
        communicator, targets = arguments.machine.communicator, None
        check_features(X)
        refuse_lazy(y, "y")
        if has_targets:
            targets = check_targets(y)
        check_consistent_length(X, y if targets is None else targets)
        if datasets is not None and not communicator.holds_all_rows:
            raise ValueError(
                "datasets= cannot be used where rows are on several "
                "machines: train on one machine, or append their rows with a column that says "
                "which data set a row is of, and give on= that column."
            )
        if targets is None:
            classes, labels = check_labels(y, communicator=communicator)
        else:
            keys = [function.key for function in row_functions_of(constraints)]
            classes, labels = np.array(keys or ["none"]), np.zeros(targets.size, dtype=np.intp)
        n = labels.size
        weight = check_weight(arguments.sample_weight, n, communicator=communicator)
        combined = CombinedRows.of(
            X, y, arguments.sample_weight, labels, classes, datasets, targets
        )
        source = copy_random_state(random_state)
        rows = Rows(
            combined.codes,
            classes,
            combined.extend(weight, 1.0),
            columns_of(arguments.sensitive_features, n),
            combined.features,
            combined.names,
            combined.sizes,
            machine=arguments.machine,
        )
        alignment = RowAlignment()
        alignment.check({**arguments.by_row(), **row_labels_of(constraints)})
        for name, given in (datasets or {}).items():
            if isinstance(given, tuple):
                parts = (f"{part} of datasets[{name!r}]" for part in ("X", "y"))
                alignment.check(dict(zip(parts, given, strict=True)))
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
    def targets(self) -> Float | None:
        """Target of each row of `combined`, zero for rows without one; None of classes."""
        return self.combined.targets

    @property
    def columns(self) -> int:
        """Number of scores of a row: one for two classes or a target, else one for each class."""
        is_one = self.targets is not None or self.classes.size == 2
        return 1 if is_one else self.classes.size

    def without_certification_rows(self, cells: Cells, share: float) -> FitData:
        """Set a share of the rows of each cell, or the latest rows, aside for certificates."""
        if self.times is None:
            certification, training = self.split(np.arange(len(self.rows)), cells, share)
        else:
            remedy = "the fraction of a guarantee sets the latest rows aside; give finer times"
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
        # Split groups into so many parts that some of them have nearly a share of the rows.
        most, smaller = min(20, np.unique(self.groups[:n_samples]).size), min(share, 1.0 - share)
        n_made = Fraction(share).limit_denominator(most).denominator
        if smaller * most < 1.0:
            n_made = max(round(1.0 / smaller), 2)
        parts = parts_by_group(
            rows,
            cells,
            n_parts or n_made,
            self.groups,
            n_samples,
            self.random_state,
        )
        if n_parts:
            return parts
        reached = np.cumsum([part.size for part in parts[:-1]])
        joined = int(np.abs(reached - share * rows.size).argmin()) + 1
        return [np.sort(np.concatenate(some)) for some in (parts[:joined], parts[joined:])]

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
        communicator = self.rows.machine.communicator
        if self.targets is None:
            codes = encode(y, self.classes, name)
        else:
            codes = np.zeros(check_targets(y, f"y of {name}").size, dtype=np.intp)
        return Rows(
            codes,
            self.classes,
            check_weight(weight, codes.size, f"sample weight of {name}", communicator),
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


def check_targets(y: Any, name: str = "y") -> Float:
    """Convert targets to float64, one finite number for each row.

    Raises
    ------
    ValueError
        If there are several targets for a row, or some are missing, infinite or no numbers.
    """
    given = as_labels(y, name)
    try:
        targets = given.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} holds {to_python_scalar(given[0])!r}, which is no number: a regressor needs "
            f"numbers."
        ) from None
    infinite = np.flatnonzero(~np.isfinite(targets))
    if infinite.size:
        raise ValueError(
            f"{name} is {targets[infinite[0]]} in row {infinite[0]}: drop those rows, or clip "
            f"them."
        )
    return targets
