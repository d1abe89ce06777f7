"""Dictionaries of the leaves of trained ensembles."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse


def leaf_indicators(
    leaves: ArrayLike, n_classes: int = 2, n_leaves: ArrayLike | None = None
) -> sparse.csr_array:
    """Make the score matrix whose weak learners are the leaves of a trained ensemble.

    Parameters
    ----------
    leaves : int array-like of shape (n_samples, n_trees)
        The leaf each row falls into: ``apply(X)`` of XGBoost, ``predict(X, pred_leaf=True)`` of
        LightGBM.
    n_classes : int, default=2
        Classes of the ensemble. With more than two, tree t belongs to class ``t % n_classes``.
    n_leaves : int array-like of shape (n_trees,), default=None
        Leaves of each tree; by default one more than the largest seen. Give it to score other
        rows with the same weights.

    Returns
    -------
    csr_array of shape (n_samples, sum(n_leaves)) or (n_samples * n_classes, sum(n_leaves))
        For :class:`~gbm_constrained.linear_model.DictionaryLearner`; times the leaf values the
        matrix is the ensemble's own score.
    """
    leaves = np.asarray(leaves).astype(np.intp)
    n, n_trees = leaves.shape
    counts = leaves.max(axis=0) + 1 if n_leaves is None else np.asarray(n_leaves)
    if (leaves >= counts).any():
        raise ValueError("leaves holds a leaf beyond n_leaves: they are of another ensemble.")
    columns = leaves + np.concatenate([[0], np.cumsum(counts)[:-1]])
    per_sample = 1 if n_classes == 2 else n_classes
    rows = np.arange(n)[:, None] * per_sample + np.arange(n_trees) % per_sample
    shape = (n * per_sample, int(np.sum(counts)))
    ones = np.ones(leaves.size)
    return sparse.csr_array((ones, (rows.ravel(), columns.ravel())), shape=shape)
