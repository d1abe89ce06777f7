"""Checks that arguments with a value for each row are in the order of the rows.

Labels, weights, sensitive features and masks are taken by position, as in XGBoost, LightGBM and
scikit-learn. A pandas index that has the row labels of X in another order means wrong positions,
and no result would show the mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._dataframes import index_of
from gbm_constrained._findings import issue_warning
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.selectors import to_python_scalar
from gbm_constrained.data.validation import refuse_lazy


class RowAlignment:
    """Comparison of the row labels of arguments, with one warning for a whole fit."""

    def __init__(self) -> None:
        self._different: dict[str, str] = {}

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments, by name, that have equal row labels in different orders."""
        first: tuple[str, pd.Index[Any]] | None = None
        for name, values in arguments.items():
            refuse_lazy(values, name)
        for name, index in _indexes(arguments):
            if first is None:
                first = name, index
            else:
                self._compare(*first, name, index)

    def check_data_sets(self, datasets: Mapping[str, Any] | None) -> None:
        """Refuse features and labels of a further data set that are in different orders."""
        for name, given in (datasets or {}).items():
            if isinstance(given, tuple):
                parts = (f"{part} of datasets[{name!r}]" for part in ("X", "y"))
                self.check(dict(zip(parts, given, strict=True)))

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
        if not _is_permutation(codes[:n], codes[n:]):
            self._different.setdefault(name, f"{name} ({examples[0]})")
            return
        remedies = _describe_remedies(reference, name, is_unique=bool(expected.is_unique))
        raise ValueError(
            f"{name} has the row labels of {reference} in another order: {', '.join(examples)}. "
            f"Rows are taken by position. {remedies}"
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
        masks = [mask for term in constraint.terms for mask in term.masks]
        for what, holders in (("the mask", masks), ("the decisions", constraint.reference_models)):
            for index in (holder.index for holder in holders):
                if index is not None:
                    found[f"{what} of {constraint}"] = pd.DataFrame(index=index)
    return found


def _indexes(arguments: Mapping[str, Any]) -> Iterator[tuple[str, pd.Index[Any]]]:
    """Iterate over names and row labels of arguments, and of the columns of a dict."""
    for name, values in arguments.items():
        columns = {name: values}
        if isinstance(values, Mapping):
            columns = {f"{name}[{column!r}]": each for column, each in values.items()}
        for each, of_each in columns.items():
            index = index_of(of_each)
            if index is not None:
                yield each, index


def _is_permutation(one: NDArray[np.intp], other: NDArray[np.intp]) -> bool:
    """Whether two arrays of codes hold the same codes equally often."""
    size = int(max(one.max(), other.max())) + 1
    return np.array_equal(np.bincount(one, minlength=size), np.bincount(other, minlength=size))


def _describe_remedies(reference: str, name: str, *, is_unique: bool) -> str:
    """Describe how to align by label, and how to take positions."""
    what = "it" if " " in name else name
    index = f"{reference}.index" if reference.isidentifier() else f"the index of {reference}"
    by_label = f"give {what}.loc[{index}]" if is_unique else "give both in one order"
    # An array of sensitive features would have no column names.
    by_position = f"set_axis({index})" if name.startswith("sensitive") else "to_numpy()"
    return f"If the labels are right, {by_label}; if the positions are, {what}.{by_position}."
