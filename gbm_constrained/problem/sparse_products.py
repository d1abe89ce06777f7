"""Products of vectors with small sparse matrices, several times in each round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gbm_constrained._typing import Float

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
