r"""The table of pairs: how often a row of one cell scores above a row of another.

A *pair rate* is the probability that a row of U scores above a row of V, with half the probability
of a tie. For unions U and V of cells it is linear in one table,

.. math:: P_{cd} = \Pr(f_i > f_j) + \tfrac12 \Pr(f_i = f_j), \quad i \in c, \; j \in d,

with rows drawn by their weights: with :math:`u_c` the weight of cell c within U and :math:`v_d`
that of d within V,

.. math:: \mathrm{AUC}(U, V) = \sum_{cd} u_c v_d P_{cd} \Big/ \sum_c u_c \sum_d v_d.

U and V may overlap. A row is then paired with itself too, which counts one half, so that AUC(U, U)
is one half. The table and its transpose add up to one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from gbm_constrained._typing import Array, Float

ENTRIES = 1 << 18  # Entries of a block of a histogram: two megabytes, which stay in cache.


def pair_table(
    scores: Array,
    cells: Array,
    weight: Array | None,
    n_cells: int,
    *,
    bins: int | None = None,
) -> Float:
    r"""Compute how often a row of each cell scores above a row of each cell.

    Exact tables cost one sort and ``n_cells ** 2`` products for each distinct score, in a fixed
    amount of memory besides some arrays as long as the rows. With `bins`, scores of the same bin
    of equal width count as ties, and no sort is needed. With :math:`p_{cb}` the share of cell c's
    weight that is in bin b, an entry of that table is off by

    .. math:: \tfrac12 \sum_b p_{cb} p_{db} \le \tfrac12 \min(\max_b p_{cb}, \max_b p_{db})

    at most, since no pair of different bins is out of order. Outlying scores make all bins wide.

    Parameters
    ----------
    scores : ndarray of shape (n_samples,)
        Scores. Infinite ones are ordered as numbers are, and equal ones tie.
    cells : ndarray of int, shape (n_samples,)
        Cell of each row, from 0 to ``n_cells - 1``.
    weight : ndarray of shape (n_samples,) or None
        Weight of each row, not negative; ones where None.
    n_cells : int
        Number of cells.
    bins : int, default=None
        Number of bins of equal width between the smallest and the largest finite score. The table
        is exact by default.

    Returns
    -------
    ndarray of shape (n_cells, n_cells)
        The table; NaN in rows and columns of cells without weight.

    Raises
    ------
    ValueError
        If a score is NaN.
    """
    scores = np.asarray(scores)
    if scores.size and np.isnan(scores.min()):
        n_missing = np.count_nonzero(np.isnan(scores))
        raise ValueError(
            f"scores must be numbers, and {n_missing} of {scores.size} are NaN: pairs with them "
            f"have no order. Remove these rows, or give them scores."
        )
    wins = (
        _exact_wins(scores, cells, weight, n_cells)
        if bins is None
        else _binned_wins(scores, cells, weight, n_cells, bins)
    )
    total = wins + wins.T
    return np.divide(wins, total, out=np.full_like(wins, np.nan), where=total > 0)


def pair_rate(table: Float, weights_u: ArrayLike, weights_v: ArrayLike) -> float:
    """Compute the pair rate of two unions of cells, which may overlap.

    Parameters
    ----------
    table : ndarray of shape (n_cells, n_cells)
        What :func:`pair_table` returns.
    weights_u, weights_v : array-like of shape (n_cells,)
        Weight of each cell within U and within V: zero for cells outside. The scale of either is
        of no importance.

    Returns
    -------
    float
        Probability that a row of U scores above a row of V, with half the ties; NaN where U or V
        has no weight.
    """
    u, v = np.asarray(weights_u, dtype=np.float64), np.asarray(weights_v, dtype=np.float64)
    mass = np.outer(u, v)
    inside = mass > 0
    total = mass[inside].sum()
    return float((mass[inside] * table[inside]).sum() / total) if total > 0 else float("nan")


def _exact_wins(scores: Array, cells: Array, weight: Array | None, n_cells: int) -> Float:
    """Sum the weights of pairs by one sort, a block of distinct scores after the other."""
    order = np.argsort(scores)
    ordered = scores[order]
    at = np.zeros(scores.size, dtype=np.intp)  # Number of the distinct score of each sorted row.
    np.cumsum(ordered[1:] != ordered[:-1], out=at[1:])
    columns = np.asarray(cells)[order]
    w = None if weight is None else np.asarray(weight)[order]
    n_distinct = int(at[-1]) + 1 if at.size else 0
    size = max(ENTRIES // n_cells, 1)
    wins, below = np.zeros((n_cells, n_cells)), np.zeros(n_cells)
    for start in range(0, n_distinct, size):
        stop = min(start + size, n_distinct)
        rows = slice(*np.searchsorted(at, [start, stop]))
        entry = (at[rows] - start) * n_cells + columns[rows]
        of_rows = None if w is None else w[rows]
        table = np.bincount(entry, of_rows, (stop - start) * n_cells).reshape(-1, n_cells)
        wins += _wins(table, below)
        below += table.sum(axis=0)
    return wins


def _binned_wins(
    scores: Array, cells: Array, weight: Array | None, n_cells: int, bins: int
) -> Float:
    """Sum the weights of pairs from a histogram; infinite scores have bins of their own."""
    finite = scores
    if scores.size and not np.isfinite([scores.min(), scores.max()]).all():
        finite = scores[np.isfinite(scores)]
    low, width = 0.0, 0.0
    if finite.size:
        low = float(finite.min())
        width = (float(finite.max()) - low) / bins
    if not 0.0 < width < np.inf:
        return _exact_wins(scores, cells, weight, n_cells)
    position = np.subtract(scores, low, dtype=np.float64)
    position /= width
    if finite is not scores:
        np.clip(position, -1.0, bins + 1.0, out=position)
    position += 1.0
    # The largest finite score is the end of the last bin, and has a bin of its own too.
    entry = position.astype(np.intp)
    entry *= n_cells
    entry += cells
    table = np.bincount(entry, weight, (bins + 3) * n_cells).reshape(-1, n_cells)
    return _wins(table, np.zeros(n_cells))


def _wins(table: Array, below: Float) -> Float:
    """Sum the weights of pairs (c, d) where c has the higher score, with half those of ties.

    `table` has the weight of each cell at increasing scores, (n_scores, n_cells), and `below` the
    weight of each cell at lower scores than these.
    """
    weight = table.astype(np.float64, copy=False)
    lower = np.cumsum(weight, axis=0)
    lower += below
    lower -= 0.5 * weight
    return np.asarray(weight.T @ lower)
