"""Values of the leaves of a trained booster, as parameters of a black-box metric."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Codes


def indicate_leaves(leaves: Codes, sizes: Codes, beside: Array) -> Any:
    """Make a column for each leaf, which is one for its rows, and put further columns beside them.

    Parameters
    ----------
    leaves : ndarray of int of shape (n_samples, n_trees)
        Leaf of each row in each tree, counted from zero within the tree.
    sizes : ndarray of int of shape (n_trees,)
        Number of leaves of each tree.
    beside : ndarray of shape (n_samples, k)
        Further columns.

    Returns
    -------
    sparse array of float32 of shape (n_samples, n_leaves + k)
    """
    n_samples, n_trees = leaves.shape
    columns = leaves + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    ones = np.ones(n_samples * n_trees, dtype=np.float32)
    ends = np.arange(n_samples + 1) * n_trees
    shape = n_samples, int(sizes.sum())
    indicators = sparse.csr_array((ones, columns.ravel(), ends), shape=shape)
    return sparse.hstack([indicators, sparse.csr_array(beside)], format="csr")


def name_leaves(sizes: Codes) -> list[str]:
    """Name the leaves of all trees, as in ``leaf[3, 0]`` for the first leaf of tree 3."""
    return [f"leaf[{t}, {i}]" for t, size in enumerate(sizes.tolist()) for i in range(size)]
