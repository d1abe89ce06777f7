r"""Kernels of pair rates: smooth stand-ins for the table of pairs in gradients.

Multipliers move on the exact table P of :mod:`gbm_constrained.problem.pair_statistics`, which is a
step function of the scores. Gradients see a smooth table: the one of this module, or the square
surrogate of :mod:`gbm_constrained.problem.kernels.pair_squares`.

The step 1[u > 0] of a difference of margins u becomes the logistic function, of one unit of
margin. With C the derivative of a Lagrangian in P, :math:`M = C - C'`, :math:`W_c` the
weight of cell c and W that of all rows, the gradient of a row i of cell c, times W, is

.. math:: w_i \frac{W}{W_c} \sum_d M_{cd} \, k_d(f_i), \qquad
    k_d(x) = \sum_{j \in d} \frac{w_j}{W_d} k(x - f_j), \qquad
    k(x) = \frac{e^{-x}}{(1 + e^{-x})^2}.

The densities :math:`k_d` are read from a table over a grid of margins with linear interpolation,
so that a round costs O(n + bins n_cells^2) whatever the number of constraints. The absolute value
of the gradient is taken for the curvature. A step of this kernel alone is then one unit of margin
at most, the width of k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import fft, sparse
from scipy.special import expit

from gbm_constrained._typing import Array, Codes, Float

BINS = 2_048  # Points of a grid. Margins of boosters span about 12 units; bins are then 1/170.
WIDEST = 1.0 / 32.0  # Largest width of a bin in units of margin, for an error of 3e-5.
MOST_BINS = 1 << 17  # Most points of a grid: margins that span 4,096 units.
FAR = 40.0  # Distance of margins at which the logistic density is 4e-18, and counts as zero.
STEEPEST = 0.25  # Largest value of the logistic density.


class PairKernel:
    """Rows of a kernel of pair rates.

    Parameters
    ----------
    cells : ndarray of int, shape (n_samples,)
        Cell of each row, from 0 to ``n_cells - 1``.
    weight : ndarray of shape (n_samples,) or None
        Weight of each row; ones where None.
    n_cells : int
        Number of cells.
    total_weight : float, default=None
        Weight W that gradients are multiplied by, that of all rows by default.

    Attributes
    ----------
    cell_weight : ndarray of shape (n_cells,)
        Weight of each cell.
    density : ndarray of shape (n_cells,)
        W over the weight of each cell; zero for cells without weight.
    """

    def __init__(
        self,
        cells: Array,
        weight: Array | None,
        n_cells: int,
        *,
        total_weight: float | None = None,
    ) -> None:
        self.cells: Codes = np.asarray(cells, dtype=np.intp)
        self.weight = weight
        self.n_cells = n_cells
        self.cell_weight: Float = np.bincount(self.cells, weight, n_cells).astype(np.float64)
        total = float(self.cell_weight.sum()) if total_weight is None else total_weight
        self.density = self._divide(np.full(n_cells, total))

    def means(self, values: Array) -> Float:
        """Compute the weighted mean of values of rows in each cell, zero without weight."""
        weighted = values if self.weight is None else values * self.weight
        return self._divide(np.bincount(self.cells, weighted, self.n_cells))

    def apply_weights(self, values: Array) -> Array:
        """Multiply values of rows by the rows' weights, in place."""
        if self.weight is not None:
            values *= self.weight
        return values

    def _divide(self, sums: Array) -> Float:
        """Divide tables of (n_cells, ...) by the weights of the cells; zero without weight."""
        weight = self.cell_weight.reshape(-1, *[1] * (sums.ndim - 1))
        return np.divide(sums, weight, out=np.zeros(sums.shape), where=weight > 0)


class _Position(NamedTuple):
    """Where rows lie on a grid of margins."""

    left: Codes  # (n_samples,). Number of the point below each row.
    share: Float  # (n_samples,). Distance from that point in bins, from 0 to 1.
    width: float  # Width of a bin in units of margin.
    n_points: int


class DensityKernel(PairKernel):
    r"""Pair rates smoothed by the logistic function of one unit of margin.

    A row is spread over the two points of the grid around it, in proportion. The density of a cell
    at a point is then the mean of linear interpolations of k, and is interpolated in turn between
    points. With bins of width h each interpolation is off by :math:`h^2 \max |k''| / 8 = h^2 / 64`
    at most, so that

    .. math:: |\hat k_d(x) - k_d(x)| \le h^2 / 32.

    For margins that span 12 units this is 1e-6. Bins are no wider than 1/32, whatever the margins:
    gaps without any row beyond 40 units are closed to 40 units, which changes k by 4e-18, and then
    points are added. Bins are wider only if the rows still span more than 4,096 units.

    Parameters
    ----------
    cells, weight, n_cells, total_weight
        As :class:`PairKernel`.
    bins : int, default=2048
        Smallest number of points of the grid.
    """

    def __init__(
        self,
        cells: Array,
        weight: Array | None,
        n_cells: int,
        *,
        total_weight: float | None = None,
        bins: int = BINS,
    ) -> None:
        super().__init__(cells, weight, n_cells, total_weight=total_weight)
        self.bins = bins

    def gradient(self, margin: Array, coefficients: Float) -> tuple[Float, Float]:
        """Compute the gradient and the curvature of each row, times the weight of all rows.

        Parameters
        ----------
        margin : ndarray of shape (n_samples,)
            Margins.
        coefficients : ndarray of shape (n_cells, n_cells)
            Derivative of the Lagrangian in the table of pairs.

        Returns
        -------
        gradient, curvature : ndarray of shape (n_samples,)
            The curvature is the absolute value of the gradient.

        Raises
        ------
        ValueError
            If a margin is not finite.
        """
        antisymmetric = coefficients - coefficients.T
        if not antisymmetric.any():
            return np.zeros(self.cells.size), np.zeros(self.cells.size)
        at = self._locate(margin)
        mixed = antisymmetric @ self._histogram(at)
        table = _convolve(mixed, _logistic_density, at.width)
        table *= self.density[:, None]
        gradient = self.apply_weights(self._look_up(table, at))
        return gradient, np.abs(gradient)

    def hessian_product(self, margin: Array, coefficients: Float, direction: Array) -> Float:
        r"""Compute the Hessian times a direction u of the rows, times the weight of all rows.

        The derivative of the gradient of a row i of cell c is

        .. math:: w_i \frac{W}{W_c} \sum_d M_{cd} \sum_{j \in d} \frac{w_j}{W_d}
            k'(f_i - f_j) (u_i - u_j) .

        Parameters
        ----------
        margin, direction : ndarray of shape (n_samples,)
        coefficients : ndarray of shape (n_cells, n_cells)
            As in :meth:`gradient`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        antisymmetric = coefficients - coefficients.T
        if not antisymmetric.any():
            return np.zeros(self.cells.size)
        at = self._locate(margin)
        both = np.stack([self._histogram(at), self._histogram(at, direction)])
        mixed = (antisymmetric @ both).reshape(2 * self.n_cells, -1)
        table = _convolve(mixed, _logistic_curvature, at.width).reshape(both.shape)
        table *= self.density[:, None]
        product = self._look_up(table[0], at) * direction
        product -= self._look_up(table[1], at)
        return self.apply_weights(product)

    def table(self, margin: Array) -> Float:
        r"""Compute the smoothed table of pairs, (n_cells, n_cells); NaN for cells without weight.

        The error is :math:`h^2 / 41` at most, from :math:`h^2 \max |\sigma''| / 8` for each of the
        two rows of a pair.
        """
        at = self._locate(margin)
        histogram = self._histogram(at)
        table = np.asarray(histogram @ _convolve(histogram, expit, at.width).T)
        empty = self.cell_weight <= 0
        table[empty] = table[:, empty] = np.nan
        return table

    def slopes(self, margin: Array) -> Float:
        """Compute the root mean square density of other cells at the rows of each, (n_cells,).

        Of several other cells the largest counts. Cells without weight have no slope.
        """
        at = self._locate(margin)
        histogram = self._histogram(at)
        square = _convolve(histogram, _logistic_density, at.width) ** 2
        found = histogram @ square.T
        np.fill_diagonal(found, 0.0)
        return np.asarray(np.sqrt(np.maximum(found, 0.0).max(axis=1, initial=0.0)))

    def _locate(self, margin: Array) -> _Position:
        """Lay a grid over the margins."""
        low, high = float(margin.min()), float(margin.max())
        if not np.isfinite(high - low):
            raise ValueError(
                f"margin must hold finite numbers, got numbers from {low} to {high}: densities of "
                f"margins need distances. Clip the margins that training starts from."
            )
        position = np.subtract(margin, low, dtype=np.float64)
        span = high - low
        if span > WIDEST * (self.bins - 1):
            position = _close_gaps(position)
            span = float(position.max())
        n_points = int(np.clip(np.ceil(span / WIDEST) + 1, self.bins, max(MOST_BINS, self.bins)))
        width = span / (n_points - 1) if span > 0 else 1.0
        position /= width
        left = position.astype(np.intp)
        np.minimum(left, n_points - 2, out=left)
        position -= left
        return _Position(left, position, width, n_points)

    def _look_up(self, table: Float, at: _Position) -> Float:
        """Interpolate each row's entry of a table of cells by points."""
        entry = self.cells * at.n_points
        entry += at.left
        left = table.ravel().take(entry)
        entry += 1
        found = table.ravel().take(entry)
        found -= left
        found *= at.share
        found += left
        return np.asarray(found)

    def _histogram(self, at: _Position, values: Array | None = None) -> Float:
        """Compute the mean over each cell of values of rows, ones by default, by points.

        The sum over the points, (n_cells, n_points), is the mean of the cell.
        """
        entry = self.cells * at.n_points
        entry += at.left
        mass = self.weight
        if values is not None:
            mass = values if mass is None else values * mass
        right = at.share if mass is None else at.share * mass
        size = self.n_cells * at.n_points
        sums = np.bincount(entry, mass, size) - np.bincount(entry, right, size)
        sums[1:] += np.bincount(entry, right, size)[:-1]
        return self._divide(sums.reshape(self.n_cells, at.n_points))


def pair_sensitivities(coefficients: Any, density: Float) -> Any:
    r"""Bound how fast constraints on pair rates change with the scores of each cell.

    With :math:`M = C - C'` and P smoothed, the constraint :math:`\sum_{cd} C_{cd} P_{cd}` has the
    slope :math:`(w_i / W_c) \sum_d M_{cd} k_d(f_i)` in the score of a row of cell c. Densities are
    between 0 and 1/4, so that the sum is at most

    .. math:: s_c = \tfrac14 \max\Bigl( \sum_d \max(M_{cd}, 0), \sum_d \max(-M_{cd}, 0) \Bigr)

    in absolute value. By Cauchy and Schwarz within each cell, with :math:`\pi_c = W_c / W` and
    :math:`D = \frac{1}{2W} \sum_i w_i (f_i - f'_i)^2`, a change of scores changes the constraint
    by :math:`\sqrt{\sum_c s_c^2 / \pi_c} \sqrt{2 D}` at most. The entries
    :math:`s_c / \sqrt{\pi_c}` of all constraints stand beside those of rates in the spectral norm
    of :attr:`gbm_constrained.problem.lipschitz.ProblemConstants.sensitivities`.

    Parameters
    ----------
    coefficients : csr_array of shape (n_constraints, n_cells * n_cells)
        Derivative of each constraint in the table of pairs, row after row of the table.
    density : ndarray of shape (n_cells,)
        Weight of all rows over that of each cell; zero for cells without weight.

    Returns
    -------
    csr_array of shape (n_constraints, n_cells)
    """
    n_cells = density.size
    antisymmetric = make_antisymmetric(coefficients, n_cells)
    of_rows = sparse.kron(sparse.eye_array(n_cells), np.ones((n_cells, 1)), format="csr")
    sums = [
        sparse.csr_array(part.maximum(0.0) @ of_rows) for part in (antisymmetric, -antisymmetric)
    ]
    return sparse.csr_array(
        STEEPEST * sums[0].maximum(sums[1]) @ sparse.diags_array(np.sqrt(density))
    )


def make_antisymmetric(coefficients: Any, n_cells: int) -> Any:
    """Subtract from each constraint's derivative in the table of pairs its transpose.

    Rows are flat tables, csr_array of shape (n_constraints, n_cells * n_cells).
    """
    transposed = np.arange(n_cells**2).reshape(n_cells, n_cells).T.ravel()
    return sparse.csr_array(coefficients - coefficients[:, transposed])


def _logistic_density(x: Array) -> Float:
    """Compute the density of the logistic distribution."""
    return np.asarray(expit(x) * expit(-x))


def _logistic_curvature(x: Array) -> Float:
    """Compute the derivative of the density of the logistic distribution."""
    return np.asarray(_logistic_density(x) * (expit(-x) - expit(x)))


def _convolve(tables: Float, function: Callable[[Array], Float], width: float) -> Float:
    """Compute ``sum_y tables[:, y] function((x - y) width)`` at every point x of a grid."""
    n = tables.shape[1]
    size = fft.next_fast_len(2 * n - 1, real=True)
    offsets = np.arange(size)
    offsets[n:] -= size
    kernel = fft.rfft(function(offsets * width))
    return np.asarray(fft.irfft(fft.rfft(tables, size) * kernel, size)[:, :n])


def _close_gaps(position: Float) -> Float:
    """Shorten distances between neighbouring margins to :data:`FAR` where they are larger."""
    order = np.argsort(position)
    steps = np.diff(position[order])
    closed = np.zeros_like(position)
    closed[order[1:]] = np.cumsum(np.minimum(steps, FAR))
    return closed
