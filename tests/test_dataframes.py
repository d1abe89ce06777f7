"""Tables of every library: their columns, their rows, and whether they hold the same values."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from gbm_constrained._dataframes import (
    column_at,
    foreign_categories,
    is_frame,
    names_of,
    tables_equal,
    take_rows,
)

X = np.random.default_rng(0).normal(size=(20, 3))
FRAME = pd.DataFrame(X, columns=list("abc"))


def polars():
    return pytest.importorskip("polars", reason="polars is in the extra 'ecosystem'")


def pyarrow():
    return pytest.importorskip("pyarrow", reason="pyarrow is in the extra 'datasets'")


FRAMES = {
    "pandas": lambda x: x,
    "polars": lambda x: polars().from_pandas(x),
    "pyarrow": lambda x: pyarrow().Table.from_pandas(x),
    "batch": lambda x: pyarrow().RecordBatch.from_pandas(x),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_columns_and_rows_of_frames(make):
    table = make(FRAME)
    assert is_frame(table)
    assert names_of(table) == list("abc")
    np.testing.assert_array_equal(column_at(table, 2), X[:, 2])
    rows = take_rows(table, np.array([5, 2, 5]))
    np.testing.assert_array_equal(column_at(rows, 0), X[[5, 2, 5], 0])


@pytest.mark.parametrize(
    "make", [np.ndarray.tolist, sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix]
)
def test_rows_of_tables_without_names(make):
    table = make(X)
    assert not is_frame(table)
    assert names_of(table) == []
    rows = take_rows(table, np.array([5, 2, 5]))
    dense = rows.toarray() if sparse.issparse(rows) else rows
    np.testing.assert_array_equal(dense, X[[5, 2, 5]])


@pytest.mark.parametrize("library", FRAMES)
def test_categories_of_other_libraries(library):
    frame = FRAME.assign(kind=pd.Categorical(["u", "v", "w", "u"] * 5))
    found = foreign_categories(FRAMES[library](frame))
    assert found == ([] if library == "pandas" else ["kind"])


def test_tables_are_the_same_whatever_holds_them():
    X = np.random.default_rng(0).normal(size=(20, 3))
    X[:4, 1], X[4:9, 2] = np.nan, 0.0
    frame = pd.DataFrame(X, columns=list("abc"))
    same = [X, X.copy(), X.astype("f4"), X.tolist(), frame, frame.set_axis(np.arange(20) + 7)]
    assert all(tables_equal(one, other) for one, other in itertools.product(same, same))
    compressed = [sparse.csr_matrix(X), sparse.csc_matrix(X), sparse.coo_matrix(X)]
    assert all(
        tables_equal(one, other) for one, other in itertools.product(compressed, compressed)
    )
    moved = X.copy()
    moved[7, 0] += 0.1
    for other in (moved, X[:19], X[::-1], frame[["b", "a", "c"]], pd.DataFrame(moved)):
        assert not any(tables_equal(one, other) for one in same)
    assert not tables_equal(compressed[0], sparse.csr_matrix(moved))
    named = pd.Series(["x", None, "y"], dtype="category")
    assert tables_equal(named, np.array(["x", None, "y"], dtype=object))
    assert not tables_equal(named, ["x", "z", "y"])
    assert tables_equal([0, 1, 1], np.array([False, True, True]))
