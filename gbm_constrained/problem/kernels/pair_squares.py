r"""Square surrogate of pair rates.

The step 1[u > 0] of a difference of margins u becomes :math:`\ell(-u)` with :math:`\ell(u) = c_1
(u - c_2)^2`, as in Yao, Lin and Yang, "Stochastic methods for AUC optimization subject to
AUC-based fairness constraints", 2023, eq. 4 and 5. The surrogate is convex in the scores. With
:math:`m_c` the mean and :math:`v_c` the variance of the margins of cell c, it depends on the cells
alone:

.. math:: E[\ell(f_i - f_j)] = c_1 \left( v_c + v_d + (m_c - m_d - c_2)^2 \right).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Float
from gbm_constrained.problem.kernels.pairs import PairKernel, make_antisymmetric


class SquareKernel(PairKernel):
    """Pair rates under the square surrogate of the source paper, by sums of cells.

    Parameters
    ----------
    cells, weight, n_cells, total_weight
        As :class:`~gbm_constrained.problem.kernels.pairs.PairKernel`.
    c1, c2 : float, default=0.5, 1.0
        Scale and margin of the surrogate ``c1 (u - c2) ** 2``, which is 1/2 at ties by default.
    """

    def __init__(
        self,
        cells: Array,
        weight: Array | None,
        n_cells: int,
        *,
        total_weight: float | None = None,
        c1: float = 0.5,
        c2: float = 1.0,
    ) -> None:
        super().__init__(cells, weight, n_cells, total_weight=total_weight)
        self.c1, self.c2 = c1, c2

    def table(self, margin: Array) -> Float:
        """Compute the surrogate of each entry of the table of pairs, (n_cells, n_cells).

        The mean of two opposite entries is at least ``c1 c2 ** 2``; NaN for cells without weight.
        """
        centred = margin - np.mean(margin, dtype=np.float64)
        means = self.means(centred)
        variances = self.means((centred - means[self.cells]) ** 2)
        for of_cells in (means, variances):
            of_cells[self.cell_weight <= 0] = np.nan
        apart = means - means[:, None] - self.c2
        return np.asarray(self.c1 * (variances + variances[:, None] + apart**2))

    def gradient(self, margin: Array, prices: Float) -> tuple[Float, Float]:
        """Compute the gradient and the curvature of each row, times the weight of all rows.

        Means of cells hold the rows' interactions: the full Hessian is at most twice the diagonal
        one that is returned, and never negative.

        Parameters
        ----------
        margin : ndarray of shape (n_samples,)
            Margins.
        prices : ndarray of shape (n_cells, n_cells)
            What a large entry of the table of pairs costs, not negative (:func:`find_prices`).

        Returns
        -------
        gradient, curvature : ndarray of shape (n_samples,)
        """
        prices = self._known(prices)
        curvature = self._curvature(prices)
        # A row of c is above one of d, for the price of (c, d), and below it for that of (d, c).
        ahead = 2.0 * self.c1 * self.c2 * self.density * (prices - prices.T).sum(axis=1)
        gradient = self._product(margin, prices, curvature) + ahead[self.cells]
        return self.apply_weights(gradient), self.apply_weights(curvature[self.cells])

    def hessian_product(self, margin: Array, prices: Float, direction: Array) -> Float:
        """Compute the Hessian times a direction of the rows, times the weight of all rows.

        It is the same at all margins.

        Parameters
        ----------
        margin, direction : ndarray of shape (n_samples,)
        prices : ndarray of shape (n_cells, n_cells)
            As in :meth:`gradient`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        prices = self._known(prices)
        return self.apply_weights(self._product(direction, prices, self._curvature(prices)))

    def slopes(self, margin: Array) -> Float:
        """Compute the root mean square slope against other cells at the rows of each, (n_cells,).

        Of several other cells, and of the two signs of a price, the largest counts. Cells without
        weight have no slope.
        """
        means = self.means(margin)
        variances = self.means((margin - means[self.cells]) ** 2)
        known = self.cell_weight > 0
        others = known & ~np.eye(self.n_cells, dtype=bool)
        apart = np.where(others, np.abs(means - means[:, None]) + self.c2, 0.0).max(axis=1)
        return np.asarray(2.0 * self.c1 * np.sqrt(np.where(known, variances + apart**2, 0.0)))

    def _known(self, prices: Float) -> Float:
        """Set the prices of cells without weight to zero."""
        known = self.cell_weight > 0
        return np.where(known & known[:, None], prices, 0.0)

    def _curvature(self, prices: Float) -> Float:
        """Compute the curvature of rows of weight one in each cell, (n_cells,)."""
        slope = prices.sum(axis=1) + prices.sum(axis=0)
        return np.asarray(2.0 * self.c1 * self.density * slope)

    def _product(self, values: Array, prices: Float, curvature: Float) -> Float:
        """Compute the Hessian times values of rows, but for the rows' weights."""
        means = 2.0 * self.c1 * self.density * ((prices + prices.T) @ self.means(values))
        return np.asarray(curvature[self.cells] * values - means[self.cells])


def find_prices(coefficients: Any, n_cells: int) -> Any:
    """Find prices, not negative, of the entries of the table of pairs in each constraint.

    A negative coefficient of P[c, d] is a positive one of P[d, c], up to a constant, so that the
    opposite coefficients of one constraint are taken together. The square surrogates of opposite
    constraints do not cancel as their rates do. Their prices are therefore added after the split,
    and not before.

    Parameters
    ----------
    coefficients : csr_array of shape (n_constraints, n_cells * n_cells)
        Derivative of each constraint in the table of pairs, row after row of the table.
    n_cells : int
        Number of cells.

    Returns
    -------
    csr_array of shape (n_constraints, n_cells * n_cells)
    """
    return sparse.csr_array(make_antisymmetric(coefficients, n_cells).maximum(0.0))
