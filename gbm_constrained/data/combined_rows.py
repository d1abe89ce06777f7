"""Training rows and those of further data sets, as one table for the library.

A constraint may be about rows that are not in the objective: rows without labels (coverage,
churn), or rows that must nearly all be right. The library must score these rows in every round, so
they follow the training rows, with gradients of the constraints alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from narwhals.dependencies import is_polars_dataframe
from numpy.typing import NDArray
from scipy import sparse

from gbm_constrained._dataframes import (
    categories_of,
    foreign_categories,
    is_frame,
    named_columns,
    names_of,
    number_of_rows,
    take_rows,
)
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.attributes import codes_among
from gbm_constrained.data.validation import as_labels, check_features, refuse_strange

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
    """

    X: Any
    y: Any
    sample_weight: Any
    codes: Codes
    features: list[Any]
    names: tuple[str, ...]
    sizes: list[int]

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
    ) -> CombinedRows:
        """Append the rows of `datasets` to the training rows, whose class indices are `codes`."""
        if datasets is not None and not isinstance(datasets, Mapping):
            raise TypeError(
                f"datasets must be a dict from name to X or (X, y), got {type(datasets).__name__}."
            )
        if not datasets:
            return cls(X, y, sample_weight, codes, [X], (), [codes.size])
        features, all_codes = [X], [codes]
        for name, given in datasets.items():
            X_i, y_i = _split(name, given)
            n = number_of_rows(X_i)
            if n == 0:
                raise ValueError(f"datasets[{name!r}] has no rows.")
            _check_alike(X, X_i, f"datasets[{name!r}]")
            _warn_if_far(X, X_i, f"datasets[{name!r}]")
            known = np.full(n, -1) if y_i is None else encode(y_i, classes, f"datasets[{name!r}]")
            if known.size != n:
                raise ValueError(
                    f"datasets[{name!r}] has {n} rows of features and {known.size} labels."
                )
            features.append(X_i)
            all_codes.append(known)
        stacked = np.concatenate(all_codes).astype(np.intp)
        training = np.arange(stacked.size) < codes.size
        weight = np.ones(codes.size) if sample_weight is None else np.asarray(sample_weight)
        library_weight = np.zeros(stacked.size)
        library_weight[training] = np.ravel(weight)  # XGBoost also takes a column.
        return cls(
            concatenate_rows(features),
            classes[np.maximum(stacked, 0)],
            library_weight,
            stacked,
            features,
            tuple(datasets),
            [part.size for part in all_codes],
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
        )

    def _extend(self, weight: Float | None, fill: Callable[[Float], float]) -> Float | None:
        n = self.sizes[0]
        if weight is None or not self.names:
            return weight
        return np.concatenate([np.ravel(weight), np.full(self.codes.size - n, fill(weight))])

    def with_ones(self, weight: Float | None) -> Float | None:
        """Extend weights in rates by ones for further rows."""
        return self._extend(weight, lambda _: 1.0)

    def with_mean(self, weight: Float | None) -> Float | None:
        """Extend weights in the distance of scores by the mean weight for further rows."""
        return self._extend(weight, lambda found: float(found.mean()))

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
    if _kind(X) != _kind(other):
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


def _kind(table: Any) -> str:
    """Find the kind of a table: tables of one kind can be appended to each other."""
    if is_frame(table):
        return _library(table)
    return "sparse" if sparse.issparse(table) else "array"


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


def _set_categories(table: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Set the categories of another table; other categories become missing values."""
    table = table.copy(deep=False)
    for name, dtype in like.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            given = table[name].astype("category").cat
            table[name] = given.set_categories(dtype.categories, ordered=dtype.ordered)
    return table


def concatenate_rows(features: Sequence[Any]) -> Any:
    """Stack tables of one kind; columns of the later ones take the categories of the first."""
    first = features[0]
    if isinstance(first, pd.DataFrame):
        return pd.concat([first, *(_set_categories(f, first) for f in features[1:])])
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
