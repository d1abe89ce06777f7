r"""The Bayesian bootstrap of counted decisions.

Each row has the weight :math:`w_i E_i` with independent standard exponential :math:`E_i` (Rubin,
"The Bayesian Bootstrap", 1981). Rows that fall into one cell and are decided alike by every rule
that is looked at form a group. The weight of a group of equal rows is gamma distributed; of rows
of unequal weights, a gamma variable has the same mean :math:`\sum w_i` and variance
:math:`\sum w_i^2`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Codes, Float

N_REPLICATES = 400  # Their 2.5% quantile has a standard error of .1 standard deviations.


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Rows that share a cell and all decisions.

    Parameters
    ----------
    cells : ndarray of shape (n_groups,), intp
        Cell of each group.
    decisions : ndarray of shape (n_columns, n_groups), intp
        Decisions of each group.
    weight, square : ndarray of shape (n_groups,)
        Sums of weights and of squared weights.
    """

    cells: Codes
    decisions: Codes
    weight: Float
    square: Float

    @classmethod
    def of(cls, cells: Codes, decisions: Codes, weight: Float | None) -> RowGroups:
        """Group rows by their cell and by their decisions, of shape (n_columns, n_rows)."""
        group = np.asarray(cells, dtype=np.int64)
        for column in decisions:  # renumbered after each column, so that no number overflows
            pair = group * (int(column.max(initial=0)) + 1) + column
            _, first, group = np.unique(pair, return_index=True, return_inverse=True)
        square = None if weight is None else weight**2
        n = len(first)
        return cls(
            cells[first],
            decisions[:, first],
            np.bincount(group, weight, n).astype(np.float64),
            np.bincount(group, square, n).astype(np.float64),
        )

    def resample(self, n_replicates: int = N_REPLICATES, random_state: int = 0) -> Float:
        """Draw weights of the groups, of shape (n_replicates, n_groups)."""
        random = np.random.RandomState(random_state)
        has_weight = self.weight > 0
        shape = self.weight[has_weight] ** 2 / self.square[has_weight]
        scale = self.square[has_weight] / self.weight[has_weight]
        drawn = np.zeros((n_replicates, self.weight.size))
        drawn[:, has_weight] = random.gamma(shape, scale, (n_replicates, shape.size))
        return drawn

    def tables(self, weights: Float, shares: Float, n_cells: int) -> Float:
        """Add up weights by cell and class.

        Parameters
        ----------
        weights : ndarray of shape (n_replicates, n_groups)
            Weights of the groups.
        shares : ndarray of shape (n_groups, n_classes)
            Probability that each group is decided as each class.
        n_cells : int
            Number of cells.

        Returns
        -------
        ndarray of shape (n_replicates, n_cells, n_classes)
        """
        found = np.zeros((len(weights), n_cells, shares.shape[1]))
        for cell in range(n_cells):
            inside = self.cells == cell
            found[:, cell] = weights[:, inside] @ shares[inside]
        return found
