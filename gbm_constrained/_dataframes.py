"""Reading tables of any library: columns by name, and subsets of rows.

pandas, polars and pyarrow name their columns; numpy arrays, lists and sparse matrices have none.
Tables of polars and pyarrow are read through narwhals, those of pandas by pandas: their columns
may share names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from narwhals.dependencies import get_pyarrow
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing, indexable


def _read(table: Any) -> Any:
    """Wrap a table or a series of polars or pyarrow; anything else is returned as it is."""
    if isinstance(table, pd.DataFrame | pd.Series):
        return table
    arrow = get_pyarrow()
    if arrow is not None and isinstance(table, arrow.RecordBatch):
        table = arrow.Table.from_batches([table])
    try:
        return nw.from_native(table, eager_only=True, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError:  # of columns of one name, which check_features refuses
        return table


def is_frame(table: Any) -> bool:
    """Return whether a table has named columns."""
    return isinstance(_read(table), pd.DataFrame | nw.DataFrame)


def names_of(table: Any) -> list[Hashable]:
    """Return the names of the columns of a table; none for arrays."""
    return list(_read(table).columns) if is_frame(table) else []


def index_of(values: Any) -> pd.Index[Any] | None:
    """Return the row labels of a table or series of pandas; None of anything else."""
    return values.index if isinstance(values, pd.DataFrame | pd.Series) else None


def repeated_names(table: Any) -> list[Hashable]:
    """Return the names that several columns of a table share."""
    # narwhals refuses tables of pyarrow whose columns have one name.
    given = table.column_names if hasattr(table, "column_names") else names_of(table)
    names = pd.Series(given, dtype=object)
    return list(names[names.duplicated()])


def column_at(table: Any, position: int) -> NDArray[Any]:
    """Return the values of a column of a table that names its columns."""
    return as_column(native_column_at(table, position))


def native_column_at(table: Any, position: int) -> Any:
    """Return a column of a table that names its columns, as the table's library keeps it."""
    if isinstance(table, pd.DataFrame):
        return table.iloc[:, position]
    return _read(table)[:, position].to_native()


def order_of(column: Any) -> pd.Index[Any] | None:
    """Return the categories of an ordered categorical column; None of any other column."""
    if str(getattr(column, "type", "")).startswith("dictionary"):  # of pyarrow
        column = column.to_pandas()
    dtype = getattr(_read(column), "dtype", None)
    if isinstance(dtype, nw.Enum):
        return pd.Index(dtype.categories)
    if not isinstance(dtype, pd.CategoricalDtype) or not dtype.ordered:
        return None
    found: pd.Index[Any] = dtype.categories
    return found


def named_columns(table: Any) -> Iterator[tuple[Hashable, NDArray[Any]]]:
    """Iterate over a table that is not sparse: name, or position in an array, and values."""
    if is_frame(table):
        yield from ((name, column_at(table, j)) for j, name in enumerate(names_of(table)))
    else:
        yield from enumerate(np.asarray(table).T)


def as_array(values: Any) -> NDArray[Any]:
    """Return values as an array in which None stands for what is missing or masked."""
    if str(getattr(values, "type", "")).startswith("dictionary"):  # of pyarrow
        values = values.to_pandas()
    found = np.asarray(fill_masked(values))
    # Only numpy knows what is missing in its own variable-width texts.
    return found.astype(object) if found.dtype.kind == "T" else found


def is_masked(values: Any) -> bool:
    """Return whether something is masked in an array of numpy."""
    return isinstance(values, np.ma.MaskedArray) and bool(np.ma.is_masked(values))


def fill_masked(values: Any) -> Any:
    """Replace what is masked in an array of numpy by None."""
    if not is_masked(values):
        return values
    found = values.data.astype(object)
    found[np.ma.getmaskarray(values)] = None
    return found


def as_column(values: Any) -> NDArray[Any]:
    """Return a column as an array of values, also of categories.

    In a list of texts numpy would turn missing values into the text "nan", and whole numbers
    beside them into floats, in which the largest ones are equal.
    """
    dtype = getattr(values, "dtype", None)
    found = as_array(values)
    if found.ndim == 1 and found.dtype.kind == "f" and getattr(dtype, "kind", "") != "f":
        if not np.isnan(found).any():
            return found
        items = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
        return np.array(items, dtype=object)
    keeps = isinstance(dtype, pd.CategoricalDtype) or (dtype is None and found.dtype.kind in "US")
    return np.asarray(values, dtype=object) if keeps else found


def foreign_categories(table: Any) -> list[Hashable]:
    """Return the names of the categorical columns of a table of polars or pyarrow."""
    found = _read(table)
    schema = found.schema if isinstance(found, nw.DataFrame) else {}
    return [name for name, dtype in schema.items() if dtype in (nw.Categorical, nw.Enum)]


def categories_of(table: Any) -> dict[int, pd.Index[Any]]:
    """Return the categories of each categorical column of pandas, by its position."""
    return {
        j: dtype.categories
        for j, dtype in enumerate(table.dtypes if isinstance(table, pd.DataFrame) else ())
        if isinstance(dtype, pd.CategoricalDtype)
    }


def as_numbers(table: pd.DataFrame) -> NDArray[np.float64]:
    """Return a table of pandas as LightGBM reads it, sooner than LightGBM: categories by codes."""
    numbers = np.empty(table.shape, dtype=np.float64)
    for j, (_, column) in enumerate(table.items()):
        if isinstance(column.dtype, pd.CategoricalDtype):
            numbers[:, j] = column.cat.codes.where(column.notna())
        else:
            numbers[:, j] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers


def categories_beyond_ascii(table: Any) -> list[Hashable]:
    """Return the names of the categorical columns of pandas with a category beyond ASCII."""
    return [
        table.columns[j]
        for j, categories in categories_of(table).items()
        if not all(str(category).isascii() for category in categories)
    ]


def number_of_rows(table: Any) -> int:
    """Count the rows of a table, or of a list of rows."""
    return int(table.shape[0]) if hasattr(table, "shape") else len(table)


def with_rows(table: Any) -> Any:
    """Return a table whose rows can be taken: sparse matrices in rows, lists as arrays."""
    if sparse.issparse(table):
        as_rows: Any = sparse.csr_matrix  # LightGBM takes rows of no other sparse type
        return as_rows(table)
    return np.asarray(table) if isinstance(table, list | tuple) else indexable(table)[0]


def take_rows(table: Any, index: Any) -> Any:
    """Take some of the rows of a table, or some entries of a series or array."""
    found = _read(table)
    if isinstance(found, nw.DataFrame | nw.Series):
        return found[index].to_native()
    return _safe_indexing(with_rows(table), index)


def tables_equal(table: Any, other: Any) -> bool:
    """Return whether two tables, or arrays of labels, have the same values, whatever holds them.

    Numbers are compared as the libraries keep them, in single precision.
    """
    if table is other:
        return True
    if np.shape(table) != np.shape(other):
        return False
    for one, its in zip(_parts(table), _parts(other), strict=False):
        if one.shape == its.shape and set(one.dtype.kind + its.dtype.kind) <= set("biuf"):
            first, second = one.astype(np.float32), its.astype(np.float32)
            if not np.array_equal(first, second, equal_nan=True):
                return False
        elif not pd.Series(one, dtype=object).equals(pd.Series(its, dtype=object)):
            return False
    return True


def _parts(table: Any) -> Iterator[NDArray[Any]]:
    """Iterate over the values of a table: its columns, or the three arrays of a sparse one."""
    if sparse.issparse(table):
        rows = with_rows(table).copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
        yield from (rows.indptr, rows.indices, rows.data)
    elif is_frame(table) or np.ndim(table) == 2:
        yield from (values for _, values in named_columns(table))
    else:
        yield np.asarray(table)
