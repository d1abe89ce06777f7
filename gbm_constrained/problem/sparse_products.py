"""Sparse matrices: fast products with vectors, matrices without some rows, opposite rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Bool, Float

# Entries up to which scipy's checks of a product cost more than the product (a timing of both).
SMALL_MATRIX = 10_000


def product_with(matrix: Any, *, transposed: bool = False) -> Callable[[Float], Float]:
    """Make a function that multiplies vectors by a sparse matrix, or by its transpose.

    A small matrix is multiplied without scipy's checks, in the same order of additions.
    """
    if matrix.nnz > SMALL_MATRIX:
        large = matrix.T if transposed else matrix
        return lambda vector: np.asarray(large @ vector)
    n_rows = matrix.shape[transposed]
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    # The entries are copied, because scipy may sort those of a matrix in place.
    columns, values = matrix.indices.astype(np.intp), matrix.data.copy()
    if transposed:
        rows, columns = columns, rows
    return lambda vector: np.asarray(
        np.bincount(rows, values * vector[columns], n_rows), dtype=np.float64
    )


def keep_rows(table: Any, is_kept: Bool) -> Any:
    """Empty the other rows of a sparse matrix."""
    kept = sparse.csr_array(table.multiply(is_kept[:, None]))
    kept.eliminate_zeros()  # A stored zero times NaN would be NaN.
    return kept


def find_opposites(matrix: Any, is_compared: Bool) -> list[tuple[int, int]]:
    """List the pairs of rows of a sparse matrix with opposite coefficients, each row once."""
    pairs, alone = list[tuple[int, int]](), dict[tuple[bytes, bytes], int]()
    ordered = matrix.sorted_indices()
    for j, (start, end) in enumerate(pairwise(ordered.indptr)):
        if not is_compared[j]:
            continue
        at, value = ordered.indices[start:end].tobytes(), ordered.data[start:end]
        i = alone.pop((at, (-value).tobytes()), None)
        if i is None:
            alone[at, value.tobytes()] = j
        else:
            pairs.append((i, j))
    return pairs
