r"""The Bayesian bootstrap of counted decisions.

Each row has the weight :math:`w_i E_i` with independent standard exponential :math:`E_i` (Rubin,
"The Bayesian Bootstrap", 1981). Rows that fall into one cell and are decided alike by every rule
that is looked at form a group. The weight of a group of equal rows is gamma distributed; of rows
of unequal weights, a gamma variable has the same mean :math:`\sum w_i` and variance
:math:`\sum w_i^2`. Where rows also count for amounts, those of a group are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import ROUNDING

N_REPLICATES = 400  # Their 2.5% quantile has a standard error of .1 standard deviations.
MAX_RATIO = 1.1  # Of the amounts of a group: the variance within it is 1e-3 of their square.


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Rows that share a cell and all decisions, and count for about the same amounts.

    Parameters
    ----------
    cells : ndarray of shape (n_groups,), intp
        Cell of each group.
    decisions : ndarray of shape (n_columns, n_groups), intp
        Decisions of each group.
    weight, square : ndarray of shape (n_groups,)
        Sums of weights and of squared weights.
    amounts : tuple of ndarray of shape (n_groups,), default=()
        Mean amounts of each group, for each of several kinds of amounts.
    """

    cells: Codes
    decisions: Codes
    weight: Float
    square: Float
    amounts: tuple[Float, ...] = ()

    @classmethod
    def of(
        cls,
        cells: Codes,
        decisions: Codes,
        weight: Float | None,
        amounts: Sequence[Float] = (),
    ) -> RowGroups:
        """Group rows by their cell, their amounts and their decisions, (n_columns, n_rows)."""
        group = np.asarray(cells, dtype=np.int64)
        for column in (*decisions, *map(_grade, amounts)):
            # Renumbered after each column, so that no number overflows.
            pair = group * (int(column.max(initial=0)) + 1) + column
            _, first, group = np.unique(pair, return_index=True, return_inverse=True)
        square = None if weight is None else weight**2
        n = len(first)
        total = np.bincount(group, weight, n).astype(np.float64)
        weighed = [one if weight is None else weight * one for one in amounts]
        sums = [np.bincount(group, one, n) for one in weighed]
        return cls(
            cells[first],
            decisions[:, first],
            total,
            np.bincount(group, square, n).astype(np.float64),
            tuple(np.divide(s, total, out=np.zeros(n), where=total > 0) for s in sums),
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
        """Add up weights by measure, cell and class; ones are the first measure.

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
        ndarray of shape (n_replicates, n_measures * n_cells, n_classes)
        """
        measured = [shares, *(shares * amount[:, None] for amount in self.amounts)]
        found = np.zeros((len(weights), len(measured) * n_cells, shares.shape[1]))
        for cell in range(n_cells):
            inside = self.cells == cell
            for m, counted in enumerate(measured):
                found[:, m * n_cells + cell] = weights[:, inside] @ counted[inside]
        return found


def _grade(amount: Float) -> Codes:
    """Grade amounts by the powers of `MAX_RATIO` above the smallest one; zeros are apart."""
    is_positive = amount > 0.0
    found = np.zeros(amount.size, dtype=np.int64)
    size = np.log(amount[is_positive])
    power = (size - size.min(initial=np.inf)) / np.log(MAX_RATIO)
    found[is_positive] = 1 + np.floor(power + ROUNDING).astype(np.int64)
    return found
