r"""Rates of pairs of rows: exact tables, and smooth stand-ins for them in gradients.

A *pair rate* is the probability that a row of U scores above a row of V, with half the probability
of a tie. For unions U and V of cells it is linear in one table,

.. math:: P_{cd} = \Pr(f_i > f_j) + \tfrac12 \Pr(f_i = f_j), \quad i \in c, \; j \in d,

with rows drawn by their weights: with :math:`u_c` the weight of cell c within U and :math:`v_d`
that of d within V,

.. math:: \mathrm{AUC}(U, V) = \sum_{cd} u_c v_d P_{cd} \Big/ \sum_c u_c \sum_d v_d.

U and V may overlap. A row is then paired with itself too, which counts one half, so that AUC(U, U)
is one half. The table and its transpose add up to one.

Multipliers move on the exact table P (:func:`pair_table`), which is a step function of the scores.
Gradients see a smooth table: that of the density of scores, or the square surrogate.

**Density.** The step 1[u > 0] of a difference of margins u becomes the logistic function, of one
unit of margin. With C the derivative of a Lagrangian in P, :math:`M = C - C'`, :math:`W_c` the
weight of cell c and W that of all rows, the gradient of a row i of cell c, times W, is

.. math:: w_i \frac{W}{W_c} \sum_d M_{cd} \, k_d(f_i), \qquad
    k_d(x) = \sum_{j \in d} \frac{w_j}{W_d} k(x - f_j), \qquad
    k(x) = \frac{e^{-x}}{(1 + e^{-x})^2}.

The densities :math:`k_d` are read from a table over a grid of margins with linear interpolation,
so that a round costs O(n + bins n_cells^2) whatever the number of constraints. The absolute value
of the gradient is taken for the curvature. A step of this kernel alone is then one unit of margin
at most, the width of k.

**Square surrogate.** The step becomes :math:`\ell(-u)` with :math:`\ell(u) = c_1 (u - c_2)^2`, as
in Yao, Lin and Yang, "Stochastic methods for AUC optimization subject to AUC-based fairness
constraints", 2023, eq. 4 and 5. The surrogate is convex in the scores. With :math:`m_c` the mean
and :math:`v_c` the variance of the margins of cell c, it depends on the cells alone:

.. math:: E[\ell(f_i - f_j)] = c_1 \left( v_c + v_d + (m_c - m_d - c_2)^2 \right).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import fft, sparse
from scipy.special import expit, logsumexp

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.blocks import PairBlock
from gbm_constrained.problem.linear_constraints import LinearConstraints

Scores: TypeAlias = tuple[Array, Array]  # Margins, and probabilities as kernels have them.
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

    Bins are no wider than 1/64, at which this is 8e-6: gaps without any row beyond 40 units are
    closed to 40 units, which changes k by 4e-18, and then points are added. Bins are wider only if
    the rows still span more than 2,048 units.

    The parameters are those of :class:`PairKernel`.

    Attributes
    ----------
    bins : int
        Smallest number of points of the grid. Margins of boosters span about 12 units, which have
        769 points.
    """

    bins: int = 512

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
        # The derivative of the density is the density times this difference.
        table = _convolve(
            mixed, lambda x: _logistic_density(x) * (expit(-x) - expit(x)), at.width
        ).reshape(both.shape)
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
        widest = 1.0 / 64.0
        if span > widest * (self.bins - 1):
            # Neighbours are at most 40 apart, at which the density is 4e-18 and counts as zero.
            order = np.argsort(position)
            steps = np.minimum(np.diff(position[order]), 40.0)
            position = np.zeros_like(position)
            position[order[1:]] = np.cumsum(steps)
            span = float(position.max())
        n_points = int(np.clip(np.ceil(span / widest) + 1, self.bins, max(1 << 17, self.bins)))
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
    of :attr:`gbm_constrained.problem.lagrangian.ProblemConstants.sensitivities`.

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


def _convolve(tables: Float, function: Callable[[Array], Float], width: float) -> Float:
    """Compute ``sum_y tables[:, y] function((x - y) width)`` at every point x of a grid."""
    n = tables.shape[1]
    size = fft.next_fast_len(2 * n - 1, real=True)
    offsets = np.arange(size)
    offsets[n:] -= size
    kernel = fft.rfft(function(offsets * width))
    return np.asarray(fft.irfft(fft.rfft(tables, size) * kernel, size)[:, :n])


class SquareKernel(PairKernel):
    """Pair rates under the square surrogate of the source paper, by sums of cells.

    The parameters are those of :class:`PairKernel`.

    Attributes
    ----------
    c1, c2 : float
        Scale and margin of the surrogate ``c1 (u - c2) ** 2``, which is 1/2 at ties by default.
    """

    c1: float = 0.5
    c2: float = 1.0

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
        prices, curvature = self._curvature(prices)
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
        return self.apply_weights(self._product(direction, *self._curvature(prices)))

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

    def _curvature(self, prices: Float) -> tuple[Float, Float]:
        """Compute the curvature of rows of weight one in each cell, (n_cells,).

        The prices of cells without weight are zero, and are returned first.
        """
        known = self.cell_weight > 0
        prices = np.where(known & known[:, None], prices, 0.0)
        slope = prices.sum(axis=1) + prices.sum(axis=0)
        return prices, np.asarray(2.0 * self.c1 * self.density * slope)

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


class PairBlockRows:
    """Rows of the cells of one block.

    Attributes
    ----------
    rows : Positions of the rows; a slice of all of them where no other cell has rows.
    density : Kernel of the density, which gives the slopes of the true pair rates as well.
    proxy : Kernel that gradients are of.
    """

    def __init__(
        self,
        block: PairBlock,
        cells: Cells,
        weight: Array | None,
        total_weight: float,
        *,
        is_square: bool,
    ) -> None:
        self.block = block
        view = cells.views[block.view]
        position = np.full(len(view), -1)
        position[block.cells - view.cells.start] = block.parts
        codes = position[view.small_codes]
        self.rows: Any = slice(None)
        if (codes < 0).any():
            self.rows = np.flatnonzero(codes >= 0)
            codes, weight = codes[self.rows], None if weight is None else weight[self.rows]
        given = codes, weight, block.n_parts
        self.density = DensityKernel(*given, total_weight=total_weight)
        self.proxy: DensityKernel | SquareKernel = self.density
        if is_square:
            self.proxy = SquareKernel(*given, total_weight=total_weight)

    def scores(self, margin: Array) -> Array:
        """Find the scores of the block's class."""
        return log_odds_of_class(margin[self.rows], self.block.target)

    def chain(self, probability: Array) -> Array:
        """Compute the derivative of the scores of several classes in the margins.

        The log-odds of a class fall with another margin by its share of the other classes.
        """
        k, p = self.block.target, probability[self.rows]
        chain = -p / np.maximum(1.0 - p[:, [k]], np.finfo(p.dtype).tiny)
        chain[:, k] = 1.0
        return np.asarray(chain)

    def slopes(self, margin: Array) -> Float:
        """Compute the slopes that dual steps depend on, (n_parts,).

        A multiplier moves scores by the slope of the proxy, and scores move the rate by its own
        slope: the geometric mean of the two is returned. Where scores are close together, a rate
        is steeper than the density of one unit of margin. It is read at their own width then.
        """
        scores = self.scores(margin)
        of_proxy = self.proxy.slopes(scores)
        centred = scores - np.average(scores, weights=self.density.weight)
        spread = float(np.sqrt(np.average(centred**2, weights=self.density.weight)))
        width = min(spread / 2.0, 1.0) or 1.0  # Scores that all tie have no width.
        if width == 1.0 and self.proxy is self.density:
            return of_proxy
        return np.asarray(np.sqrt(of_proxy * self.density.slopes(scores / width) / width))


class PairRows:
    """Rows of all blocks of pair rates, and what pair rates are at their scores.

    Parameters
    ----------
    constraints : Linear constraints, with the blocks of cells whose scores are compared.
    cells : Partitions of the rows.
    weight : (n_samples,). Weight of each row; ones by default.
    total_weight : Weight that gradients are multiplied by.
    is_square : Whether gradients are of the square surrogate and not of the density.

    Attributes
    ----------
    steepest : Largest slope of a pair rate that dual steps depend on.
    """

    def __init__(
        self,
        constraints: LinearConstraints,
        cells: Cells,
        weight: Array | None,
        total_weight: float,
        *,
        is_square: bool = False,
    ) -> None:
        blocks = constraints.pair_blocks
        self._parts = [
            PairBlockRows(block, cells, weight, total_weight, is_square=is_square)
            for block in blocks
        ]
        self._constraints = constraints
        self.steepest = np.inf if is_square else STEEPEST
        self._prices: Any = None  # of one multiplier each, (m, n_pairs)
        if is_square:
            table = constraints.row_table("pairs")
            of_blocks = [find_prices(table[:, one.entries], one.n_parts) for one in blocks]
            self._prices = sparse.csr_array(sparse.hstack(of_blocks))
        self.n_cells = len(cells)

    def tables(self, margin: Array, *, is_exact: bool = True) -> Float:
        """Compute the tables of all blocks, flat, (n_pairs,); one half for empty parts.

        Those of more than 50,000 rows are from bins of scores unless they are exact, with an error
        of 2e-6.
        """
        found = []
        for part in self._parts:
            scores, kernel = part.scores(margin), part.density
            bins = None if is_exact or scores.size <= 50_000 else 4096
            table = pair_table(scores, kernel.cells, kernel.weight, kernel.n_cells, bins=bins)
            found.append(np.nan_to_num(table, nan=0.5).ravel())
        return np.concatenate(found)

    def value(self, multipliers: Float, margin: Array) -> float:
        """Compute the proxy of the constraints on pair rates, whose gradient is that of rows."""
        parts = (
            float((costs * np.nan_to_num(part.proxy.table(part.scores(margin)))).sum())
            for part, costs in self._at_work(multipliers)
        )
        return sum(parts, 0.0)

    def add_gradient(self, multipliers: Float, at: Scores, out: tuple[Array, Array]) -> None:
        """Add gradients and Hessian majorisers of rows, times the weight of all rows."""
        (margin, probability), (gradient, hessian) = at, out
        for part, costs in self._at_work(multipliers):
            slope, curvature = part.proxy.gradient(part.scores(margin), costs)
            if gradient.ndim == 1:
                gradient[part.rows] += slope
                hessian[part.rows] += curvature
                continue
            chain = part.chain(probability)
            gradient[part.rows] += chain * slope[:, None]
            # The curvature of the log-odds in another margin is at most its share times the rest.
            share = np.abs(chain)
            hessian[part.rows] += share * (
                curvature[:, None] * share + np.abs(slope)[:, None] * (1.0 - share)
            )

    def add_hessian_product(self, multipliers: Float, at: Scores, u: Array, out: Array) -> None:
        """Add the exact Hessian times a direction u of the rows and the weight of all rows."""
        margin, probability = at
        for part, costs in self._at_work(multipliers):
            scores, along = part.scores(margin), u[part.rows]
            if along.ndim == 1:
                out[part.rows] += part.proxy.hessian_product(scores, costs, along)
                continue
            chain, k = part.chain(probability), part.block.target
            of_scores = (chain * along).sum(axis=1)
            product = part.proxy.hessian_product(scores, costs, of_scores)
            out[part.rows] += chain * product[:, None]
            slope, _ = part.proxy.gradient(scores, costs)
            share, others = np.delete(chain, k, axis=1), np.delete(along, k, axis=1)
            bend = share * (others + (share * others).sum(axis=1, keepdims=True))
            out[part.rows] += np.insert(bend * slope[:, None], k, 0.0, axis=1)

    def _at_work(self, multipliers: Float) -> Iterator[tuple[PairBlockRows, Float]]:
        """Iterate over the blocks with a cost, each with its table of costs."""
        if self._prices is None:
            costs = self._constraints.costs(multipliers, "pairs")
        else:
            costs = self._prices.T @ multipliers
        for part in self._parts:
            of_block = costs[part.block.entries]
            if of_block.any():
                yield part, of_block.reshape(part.block.n_parts, -1)

    def slopes(self, margin: Array) -> Float:
        """Compute the root mean square slope of the pair rates of each cell, (n_cells,).

        A cell has the largest slope against any other one, and zero where it is in no pair.
        """
        slopes = np.zeros(self.n_cells)
        for part in self._parts:
            of_parts = part.slopes(margin)
            np.maximum.at(slopes, part.block.cells, of_parts[part.block.parts])
        return slopes
