"""Checks of the arguments of ``fit``, with messages that name argument, value and remedy.

Labels, weights, sensitive features and masks are taken by position, as in XGBoost, LightGBM and
scikit-learn. A pandas index that has the row labels of X in another order means wrong positions,
and no result would show the mistake.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from gbm_constrained._dataframes import (
    as_array,
    as_column,
    fill_masked,
    index_of,
    is_frame,
    is_masked,
    names_of,
    native_column_at,
    order_of,
    repeated_names,
)
from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import check_choice as check_choice
from gbm_constrained._messages import check_integer as check_integer
from gbm_constrained._messages import is_finite
from gbm_constrained._typing import Array
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.selectors import Mask, to_python_scalar
from gbm_constrained.data.exact_sums import Communicator


def is_finite_number(value: Any) -> bool:
    """Whether a value is a number, and finite as a float."""
    return isinstance(value, Real) and is_finite(value)


def check_share(name: str, value: Any) -> None:
    """Refuse a value that is no number strictly between 0 and 1."""
    if not (is_finite_number(value) and 0.0 < value < 1.0):
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}.")


def check_labels(
    y: Any,
    communicator: Communicator = Communicator(),  # noqa: B008 - has no state
) -> tuple[NDArray[np.generic], Array]:
    """Find the sorted classes of the labels of all machines, and the class index of each row."""
    labels = as_labels(y)
    if labels.dtype.kind == "f" and (labels != np.round(labels)).any():
        raise ValueError(
            "Unknown label type: y is continuous, with values such as "
            f"{labels[labels != np.round(labels)][0]}: a classifier needs class labels."
        )
    try:
        classes = np.unique(labels)
        if not communicator.holds_all_rows:
            classes = np.unique(np.concatenate(communicator.gather(classes)))
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            f"y holds labels of several types ({', '.join(kinds)}), which have no order: "
            f"make them all numbers or all texts."
        ) from None
    if classes.size < 2:
        raise ValueError(
            f"y holds one class only ({classes.tolist()}): a constrained classifier needs "
            f"rows of at least two."
        )
    return classes, np.searchsorted(classes, labels).astype(np.intp)


def as_labels(y: Any, name: str = "y") -> NDArray[Any]:
    """Convert labels, or targets, to an array with one value for each row."""
    if y is None:
        raise ValueError(
            f"A constrained estimator requires {name} to be passed, but the target {name} is "
            f"None: give one value for each row."
        )
    refuse_lazy(y, name)
    if isinstance(y, pd.DataFrame) and y.shape[1] == 1:
        y = y.iloc[:, 0]
    labels = as_array(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            f"{name} must be one-dimensional, one value for each row; got shape {labels.shape}. "
            f"Constraints on several outputs are not supported."
        )
    missing = np.flatnonzero(pd.isna(as_column(y)))
    if missing.size:
        raise ValueError(
            f"{name} has {missing.size} missing values (NaN or None), the first in row "
            f"{missing[0]}: drop those rows."
        )
    return labels


def labels_and_decisions(
    y_true: Any, y_pred: Any, names: tuple[str, str] = ("y_true", "y_pred")
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Convert labels and decisions to arrays of one length; `names` are those in messages."""
    true, decided = as_labels(y_true, names[0]), as_labels(y_pred, names[1])
    if true.size != decided.size:
        raise ValueError(
            f"There are {true.size} labels and {decided.size} decisions: give one of each for "
            f"every row, as {names[0]} and {names[1]}."
        )
    check_no_scores(decided, f"{names[1]} holds", "give decisions, not scores")
    return true, decided


def check_no_scores(decided: NDArray[Any], found: str, remedy: str) -> None:
    """Refuse fractions in the place of labels, with a message that begins with `found`."""
    if decided.dtype.kind == "f" and (decided != np.round(decided)).any():
        score = decided[decided != np.round(decided)][0].item()
        raise ValueError(f"{found} {score!r}, which is no label: {remedy}.")


def refuse_lazy(values: Any, name: str) -> None:
    """Refuse a table that has not been computed."""
    if type(values).__name__ == "LazyFrame":
        raise TypeError(
            f"{name} is a LazyFrame, which holds no values yet: give {name}={name}.collect()."
        )


def check_features(X: Any, name: str = "X") -> None:
    """Refuse features without columns, with a mask, or with equal names of columns.

    The libraries ignore masks, and refuse the others at different times and in different words.
    A file, and a matrix of a library, are refused with the function that takes them.
    """
    kind = type(X).__name__
    if isinstance(X, (str, os.PathLike)):
        raise TypeError(
            f"{name} is the path {os.fspath(X)!r}: read the file into a table, or stream it into "
            f"a matrix for gbm_constrained.xgboost.train."
        )
    if kind.endswith("DMatrix"):
        raise TypeError(f"{name} is a {kind} of XGBoost: take gbm_constrained.xgboost.train.")
    if kind == "Dataset" and type(X).__module__.startswith("lightgbm"):
        raise TypeError(f"{name} is a Dataset of LightGBM: take gbm_constrained.lightgbm.train.")
    refuse_lazy(X, name)
    if is_masked(X):
        raise ValueError(
            f"{name} is a masked array, of which the library would take the values below the "
            f"mask: give {name}.filled(np.nan)."
        )
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    if len(shape) == 2 and shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required."
        )
    repeated = repeated_names(X)
    if repeated:
        raise ValueError(
            f"{name} has several columns called {repeated[0]!r}: rename them, or drop all but one."
        )


def refuse_strange(
    column: Any, categories: pd.Index[Any], found: pd.Index[Any], name: str
) -> None:
    """Refuse a column whose values are of another type than the categories of X.

    The libraries would take all of these values as missing.
    """
    kinds = {
        "number" if pd.api.types.is_numeric_dtype(values) else pd.api.types.infer_dtype(values)
        for values in (categories, found)
    }
    if len(found) and len(kinds) > 1 and not found.isin(categories).any():
        raise TypeError(
            f"{name} has {found.tolist()[0]!r} in column {column!r}, where the categories of X "
            f"are of another type, such as {categories.tolist()[0]!r}: give values of that type."
        )


def check_weight(
    weight: Any,
    n_samples: int,
    name: str = "sample_weight",
    communicator: Communicator = Communicator(),  # noqa: B008 - has no state
) -> NDArray[np.float64] | None:
    """Convert sample weights to float64, and refuse weights that single precision cannot hold.

    The rows of all machines together must have a weight.
    """
    if weight is None:
        return None
    try:
        values = np.asarray(fill_masked(weight), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers: {error}.") from None
    if values.shape == (n_samples, 1):  # XGBoost takes such a column.
        values = values[:, 0]
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
    largest = max(communicator.gather(float(values.max(initial=0.0))))
    if largest == 0.0:
        raise ValueError(f"{name} is zero on every row: no row is left.")
    # The libraries hold and sum weights in single precision.
    with np.errstate(over="ignore"):
        total = sum(communicator.gather(float(values.sum())))
        vanishes = not np.float32(largest)
    if vanishes or total > float(np.finfo(np.float32).max):
        what, remedy = ("zero", "multiply") if vanishes else ("too much", "divide")
        found = np.flatnonzero(values == largest)  # On this machine.
        row = f" (row {found[0]})" if found.size else ""
        raise ValueError(
            f"{name} is {largest:g} at most{row} and {total:g} in total, "
            f"which is {what} for single precision, in which the libraries hold weights: {remedy} "
            f"all weights by a common factor."
        )
    return values


def check_scores(
    scores: Any, n_samples: int, columns: int, name: str, order: Literal["C", "F"]
) -> Any:
    """Check the shape of scores to start from: one for each row, or one column for each class.

    The `order` is that in which the library reads scores of several classes in one dimension: row
    by row ("C") or class by class ("F").
    """
    if scores is None:
        return None
    expected = (n_samples,) if columns == 1 else (n_samples, columns)
    shape = np.shape(scores)
    if shape == expected and hasattr(scores, "shape"):
        return scores
    values = np.asarray(scores)
    if values.size != n_samples * columns or shape not in (
        expected, (n_samples, columns), (n_samples * columns,)
    ):  # fmt: skip
        raise ValueError(
            f"{name} must hold {'one score' if columns == 1 else f'{columns} scores'} for each of "
            f"the {n_samples} rows, got shape {shape}: give an array of shape {expected}."
        )
    return values.reshape(expected, order=order if values.ndim == 1 else "C")


def check_sensitive_sets(
    given: Any, n_sets: int, name: str = "sensitive_features_eval_set"
) -> None:
    """Refuse sensitive features of evaluation sets that are not one entry for each set."""
    if given is None or (isinstance(given, (list, tuple)) and len(given) == n_sets):
        return
    count = f" of {len(given)}" if isinstance(given, (list, tuple)) else ""
    raise ValueError(
        f"{name} must be a list with one entry for each of the {n_sets} evaluation sets, got a "
        f"{type(given).__name__}{count}: put it in a list, with None for sets that have none."
    )


def as_groups(groups: Any, n_samples: int, n_rows: int) -> NDArray[Any]:
    """Encode the group of each row; each row of a further data set is a group."""
    given = as_column(groups)
    if given.shape != (n_samples,):
        raise ValueError(
            f"groups must hold one value for each of the {n_samples} training rows, got shape "
            f"{given.shape}."
        )
    values = pd.factorize(given)[0]
    missing = np.flatnonzero(values < 0)
    if missing.size:
        raise ValueError(
            f"groups has {missing.size} missing values (NaN or None), the first in row "
            f"{missing[0]}: give a row that belongs to no other a value of its own."
        )
    more = values.max(initial=0) + 1 + np.arange(n_rows - n_samples)
    return np.concatenate([values, more])


def copy_random_state(random_state: Any) -> np.random.RandomState:
    """Copy a source of randomness, so that the library's own fit draws from an unchanged one."""
    source = copy.deepcopy(random_state)
    if isinstance(source, np.random.Generator):
        source = int(source.integers(2**31))
    elif isinstance(source, Integral):  # XGBoost takes negative seeds.
        source = int(source) % 2**32
    found: np.random.RandomState = check_random_state(0 if source is None else source)
    return found


@contextmanager
def preserve_random_state(estimator: Any) -> Iterator[None]:
    """Restore the user's source of randomness, from which the library's own fit draws a seed."""
    source = estimator.random_state
    state: Any = None
    if isinstance(source, np.random.Generator):
        state = source.bit_generator.state
    elif isinstance(source, np.random.RandomState):
        state = source.get_state()
    try:
        yield
    finally:
        if isinstance(source, np.random.Generator):
            source.bit_generator.state = state
        elif isinstance(source, np.random.RandomState):
            source.set_state(state)


def columns_of(
    sensitive_features: Any, n_samples: int, argument: str = "sensitive_features"
) -> dict[Hashable, NDArray[Any]]:
    """Split sensitive features into columns by name; `argument` names them in messages."""
    columns = {}
    # The tools of scikit-learn do not split the columns of a dict.
    remedy = ", in cross-validation a Series or DataFrame" * isinstance(
        sensitive_features, Mapping
    )
    for name, column in _as_table(sensitive_features, argument).items():
        values = as_column(column)
        if values.shape != (n_samples,):
            raise ValueError(
                f"{argument}: column {name!r} has shape {values.shape}, but there are "
                f"{n_samples} rows: give one value per row{remedy}."
            )
        columns[name] = values
    return columns


def order_of_column(name: str, sensitive_features: Any, X: Any) -> pd.Index[Any] | None:
    """Find the order of the values of a column, if it is an ordered categorical one."""
    columns, names = _as_table(sensitive_features, "sensitive_features"), names_of(X)
    if name in columns:
        return order_of(columns[name])
    return order_of(native_column_at(X, names.index(name))) if name in names else None


def _as_table(sensitive_features: Any, argument: str) -> dict[Hashable, Any]:
    """Split sensitive features into columns without checks of the values.

    Unnamed columns are called ``sensitive_feature_0`` and so on, as in fairlearn.
    """
    if sensitive_features is None:
        return {}
    refuse_lazy(sensitive_features, argument)
    if is_frame(sensitive_features):
        names = names_of(sensitive_features)
        if repeated := repeated_names(sensitive_features):
            raise ValueError(
                f"{argument} has several columns called {repeated[0]!r}: rename them."
            )
        return {name: native_column_at(sensitive_features, j) for j, name in enumerate(names)}
    if isinstance(sensitive_features, Mapping):
        return dict(sensitive_features)
    if hasattr(sensitive_features, "name"):  # The name of a series of polars may be "".
        name = sensitive_features.name
        return {"sensitive_feature_0" if name in (None, "") else name: sensitive_features}
    values = as_column(sensitive_features)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise ValueError(f"{argument} must have one or two dimensions, got shape {values.shape}.")
    return {f"sensitive_feature_{j}": values[:, j] for j in range(values.shape[1])}


class RowAlignment:
    """Comparison of the row labels of arguments, with one warning for a whole fit."""

    def __init__(self) -> None:
        self._different: dict[str, str] = {}

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments, by name, that have equal row labels in different orders."""
        found: list[tuple[str, pd.Index[Any]]] = []
        for name, values in arguments.items():
            refuse_lazy(values, name)
            columns = {name: values}
            if isinstance(values, Mapping):
                columns = {f"{name}[{column!r}]": each for column, each in values.items()}
            indexes = [(each, index_of(of_each)) for each, of_each in columns.items()]
            found += [(each, index) for each, index in indexes if index is not None]
        for name, index in found[1:]:
            self._compare(*found[0], name, index)

    def _compare(
        self, reference: str, expected: pd.Index[Any], name: str, found: pd.Index[Any]
    ) -> None:
        if len(found) != len(expected) or found.equals(expected):
            return  # Other checks raise errors about lengths.
        n = len(expected)
        codes, _ = pd.factorize(expected.append(found), use_na_sentinel=False)
        moved = np.flatnonzero(codes[:n] != codes[n:])
        if not moved.size:
            return  # The labels are equal, of two types.
        examples = [
            f"row {i} is {to_python_scalar(expected[i])!r} in {reference} "
            f"and {to_python_scalar(found[i])!r} in {name}"
            for i in moved[:2].tolist()
        ]
        one, other = (
            np.bincount(part, minlength=codes.max() + 1) for part in (codes[:n], codes[n:])
        )
        if not np.array_equal(one, other):  # One is no permutation of the other.
            self._different.setdefault(name, f"{name} ({examples[0]})")
            return
        what = "it" if " " in name else name
        of = f"{reference}.index" if reference.isidentifier() else f"the index of {reference}"
        by_label = f"give {what}.loc[{of}]" if expected.is_unique else "give both in one order"
        # An array of sensitive features would have no column names.
        by_position = f"set_axis({of})" if name.startswith("sensitive") else "to_numpy()"
        raise ValueError(
            f"{name} has the row labels of {reference} in another order: {', '.join(examples)}. "
            f"Rows are taken by position. If the labels are right, {by_label}; if the positions "
            f"are, {what}.{by_position}."
        )

    def warn(self) -> None:
        """Warn of arguments that are taken by position although their row labels differ."""
        if self._different:
            issue_warning(
                f"Rows are taken by position, although the pandas indexes differ: "
                f"{'; '.join(self._different.values())}. If the positions are right, give "
                f"arguments without an index (to_numpy()), or with equal ones (set_axis).",
                "GC201",
            )


def check_alignment(arguments: Mapping[str, Any]) -> None:
    """Refuse equal row labels in different orders, and warn of different labels."""
    alignment = RowAlignment()
    alignment.check(arguments)
    alignment.warn()


def row_labels_of(constraints: Iterable[Constraint]) -> dict[str, pd.DataFrame]:
    """Find the row labels of masks and decisions in constraints, as tables without columns."""
    found: dict[str, pd.DataFrame] = {}
    for constraint in constraints:
        masks = [part for part in constraint.selectors if isinstance(part, Mask)]
        for what, holders in (("the mask", masks), ("the decisions", constraint.reference_models)):
            for index in (holder.index for holder in holders):
                if index is not None:
                    found[f"{what} of {constraint}"] = pd.DataFrame(index=index)
    return found
