r"""What intervals and certificates of pair rates depend on: moments of cells.

The rate of U and V is a function of the sample whose linear part is a sum over rows, row i adding

.. math:: \varepsilon_i = w_i \left[ \frac{1(i \in U)}{W_U} (F_V(f_i) - \theta)
    + \frac{1(i \in V)}{W_V} (1 - F_U(f_i) - \theta) \right],

with :math:`F_V(f)` the share of V's weight below f, half of that at f included. The sum of squares
estimates the variance. U and V may overlap, and products of the parts of two pair rates give their
covariance. Within a cell the parts are linear in :math:`\varphi_i = (F_1(f_i), ..., F_C(f_i), 1)`,
whatever the rate. Therefore the moments :math:`S_c = \sum_{i \in c} w_i^2 \varphi_i \varphi_i'`
suffice for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.problem.pair_statistics import ranked_blocks, table_of_wins
from gbm_constrained.statistics.counts import EQUAL


@dataclass(frozen=True, eq=False)
class CellSizes:
    """Sizes of the cells of a sample.

    Parameters
    ----------
    weight, square : ndarray of shape (n_cells,)
        Sum of the weights and of their squares.
    count : ndarray of shape (n_cells,)
        Number of rows with a positive weight.
    """

    weight: Float
    square: Float
    count: Float

    @classmethod
    def of(cls, cells: Array, weight: Array | None, n_cells: int) -> CellSizes:
        """Count rows and sum their weights."""
        w = np.ones(np.size(cells)) if weight is None else np.asarray(weight, dtype=np.float64)
        return cls(*(np.bincount(cells, x, n_cells).astype(np.float64) for x in (w, w**2, w > 0)))

    def effective_rows(self, inside: Bool) -> Float:
        """Compute Kish's effective number of rows in unions of cells; zero without weight.

        Parameters
        ----------
        inside : ndarray of bool, shape (n_unions, n_cells)
            Whether a cell is in each union.

        Returns
        -------
        ndarray of shape (n_unions,)
        """
        total, squares = inside @ self.weight, inside @ self.square
        return np.divide(total**2, squares, out=np.zeros(total.shape), where=squares > 0)

    def has_equal_weights(self, inside: Bool) -> Bool:
        """Find unions of cells whose rows all weigh the same, (n_unions,)."""
        return np.asarray(inside @ self.count <= self.effective_rows(inside) * (1.0 + EQUAL))


@dataclass(frozen=True, eq=False)
class PairMoments:
    """Table of pairs of a sample, with moments of its cells.

    Parameters
    ----------
    sizes : CellSizes
        Sizes of the cells.
    table : ndarray of shape (n_cells, n_cells)
        The exact table of pairs, NaN for cells without weight.
    second : ndarray of shape (n_cells, n_cells + 1, n_cells + 1)
        Second moments S of the shares of each cell below a row, and of one.
    """

    sizes: CellSizes
    table: Float
    second: Float

    @classmethod
    def of(cls, scores: Array, cells: Array, weight: Array | None, n_cells: int) -> PairMoments:
        """Compute the moments of a sample.

        Parameters
        ----------
        scores, cells, weight, n_cells
            As in :func:`gbm_constrained.problem.pair_statistics.pair_table`.
        """
        sizes = CellSizes.of(cells, weight, n_cells)
        w = np.ones(np.size(scores)) if weight is None else np.asarray(weight, dtype=np.float64)
        divisor = np.where(sizes.weight > 0, sizes.weight, 1.0)
        wins = np.zeros((n_cells, n_cells))
        second = np.zeros((n_cells, n_cells + 1, n_cells + 1))
        for block in ranked_blocks(scores, cells, weight, n_cells):
            wins += block.wins
            shares = np.column_stack([block.lower / divisor, np.ones(len(block.lower))])
            squares = np.bincount(block.entry, w[block.rows] ** 2, block.weight.size)
            for c, of_cell in enumerate(squares.reshape(block.weight.shape).T):
                at = np.flatnonzero(of_cell)
                second[c] += shares[at].T @ (of_cell[at, None] * shares[at])
        return cls(sizes, table_of_wins(wins), second)
