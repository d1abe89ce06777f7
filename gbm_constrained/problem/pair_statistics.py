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

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from gbm_constrained._typing import Array, Bool, Codes, Float

ENTRIES = 1 << 18  # Entries of a block of a histogram: two megabytes, which stay in cache.


def log_odds_of_class(margin: Array, target: int) -> Array:
    """Compute the scores by which rows are ranked for a class, (n_samples,).

    Of two classes the score is the margin. Of several it is the log-odds of the class, which order
    rows as its probability does.
    """
    if margin.ndim == 1:
        return margin
    others = np.delete(margin, target, axis=1)
    return np.asarray(margin[:, target] - logsumexp(others, axis=1))


class PairRates(NamedTuple):
    """Pair rates, by the cells of the sets that they compare; the two may overlap.

    Parameters
    ----------
    first, second : ndarray of bool, shape (n_rates, n_cells)
        Whether a cell is in U, and whether it is in V.
    """

    first: Bool
    second: Bool

    def values(self, table: Float, cell_weight: Float) -> Float:
        """Compute each pair rate, (n_rates,), from the table and the weights of the cells."""
        sides = zip(cell_weight * self.first, cell_weight * self.second, strict=True)
        return np.array([pair_rate(table, u, v) for u, v in sides], dtype=np.float64)


class RankedBlock(NamedTuple):
    """Rows whose scores are in one block of increasing scores.

    Parameters
    ----------
    rows : ndarray of int, shape (n_rows,)
        Numbers of the rows.
    entry : ndarray of int, shape (n_rows,)
        Entry of the flat tables below that each row is in.
    weight : ndarray of shape (n_scores, n_cells)
        Weight of each cell at each distinct score.
    lower : ndarray of shape (n_scores, n_cells)
        Weight of each cell at lower scores of all rows, with half of the weight at the same score.
    """

    rows: Codes
    entry: Codes
    weight: Float
    lower: Float

    @property
    def wins(self) -> Float:
        """Weights of pairs of a row of the block and a lower row, with half of the ties."""
        return np.asarray(self.weight.T @ self.lower)


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
    if bins is not None:
        return table_of_wins(_binned_wins(scores, cells, weight, n_cells, bins))
    wins = np.zeros((n_cells, n_cells))
    for block in ranked_blocks(scores, cells, weight, n_cells):
        wins += block.wins
    return table_of_wins(wins)


def table_of_wins(wins: Float) -> Float:
    """Divide the weights of pairs that the first cell wins by those of all pairs of two cells."""
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


def ranked_blocks(
    scores: Array, cells: Array, weight: Array | None, n_cells: int
) -> Iterator[RankedBlock]:
    """Iterate over blocks of distinct scores in increasing order, after one sort.

    Parameters
    ----------
    scores, cells, weight, n_cells
        As in :func:`pair_table`, which says what is refused.
    """
    scores = _check_scores(scores)
    order = np.argsort(scores)
    ordered = scores[order]
    at = np.zeros(scores.size, dtype=np.intp)  # Number of the distinct score of each sorted row.
    np.cumsum(ordered[1:] != ordered[:-1], out=at[1:])
    columns = np.asarray(cells)[order]
    w = None if weight is None else np.asarray(weight)[order]
    n_distinct = int(at[-1]) + 1 if at.size else 0
    size = max(ENTRIES // n_cells, 1)
    below = np.zeros(n_cells)
    for start in range(0, n_distinct, size):
        stop = min(start + size, n_distinct)
        rows = slice(*np.searchsorted(at, [start, stop]))
        entry = (at[rows] - start) * n_cells + columns[rows]
        table = _histogram(entry, None if w is None else w[rows], stop - start, n_cells)
        yield RankedBlock(order[rows], entry, table, _lower(table, below))
        below += table.sum(axis=0)


def _binned_wins(
    scores: Array, cells: Array, weight: Array | None, n_cells: int, bins: int
) -> Float:
    """Sum the weights of pairs from a histogram; infinite scores have bins of their own."""
    scores = finite = _check_scores(scores)
    if scores.size and not np.isfinite([scores.min(), scores.max()]).all():
        finite = scores[np.isfinite(scores)]
    low = high = 0.0
    if finite.size:
        low, high = float(finite.min()), float(finite.max())
    width = (high - low) / bins if high > low else 1.0
    position = np.subtract(scores, low, dtype=np.float64)
    position /= width
    if finite is not scores:
        np.clip(position, -1.0, bins + 1.0, out=position)
    position += 1.0
    # The largest finite score is the end of the last bin, and has a bin of its own too.
    entry = position.astype(np.intp)
    entry *= n_cells
    entry += cells
    table = _histogram(entry, weight, bins + 3, n_cells)
    return np.asarray(table.T @ _lower(table, np.zeros(n_cells)))


def _check_scores(scores: Array) -> Array:
    """Refuse scores that have no order."""
    scores = np.asarray(scores)
    if scores.size and np.isnan(scores.min()):
        n_missing = np.count_nonzero(np.isnan(scores))
        raise ValueError(
            f"scores must be numbers, and {n_missing} of {scores.size} are NaN: pairs with them "
            f"have no order. Remove these rows, or give them scores."
        )
    return scores


def _histogram(entry: Codes, weight: Array | None, n_scores: int, n_cells: int) -> Float:
    """Sum weights by score and cell, (n_scores, n_cells)."""
    table = np.bincount(entry, weight, n_scores * n_cells).reshape(n_scores, n_cells)
    return np.asarray(table, dtype=np.float64)


def _lower(weight: Float, below: Float) -> Float:
    """Sum the weight of each cell at lower scores, and half of the weight at the same score.

    `weight` has the weight of each cell at increasing scores, (n_scores, n_cells), and `below` the
    weight of each cell at lower scores than these.
    """
    lower = np.cumsum(weight, axis=0)
    lower += below
    lower -= 0.5 * weight
    return np.asarray(lower)
