"""Rows whose scores pair rates compare: tables of pairs, gradients and slopes at given scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.kernels.pair_squares import SquareKernel, find_prices
from gbm_constrained.problem.kernels.pairs import STEEPEST, DensityKernel
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pair_blocks import PairBlock
from gbm_constrained.problem.pair_statistics import log_odds_of_class, pair_table

# Rows up to which training uses exact tables, and bins of scores beyond: an error of 2e-6.
EXACT_ROWS, BINS = 50_000, 4096


@dataclass(frozen=True, eq=False)
class _BlockRows:
    """Rows of the cells of one block.

    Attributes
    ----------
    rows : Positions of the rows; all rows where None.
    density : Kernel of the density, which gives the slopes of the true pair rates as well.
    proxy : Kernel that gradients are of.
    """

    block: PairBlock
    rows: Codes | None
    density: DensityKernel
    proxy: DensityKernel | SquareKernel

    @classmethod
    def of(
        cls,
        block: PairBlock,
        cells: Cells,
        weight: Array | None,
        total_weight: float,
        *,
        is_square: bool,
    ) -> _BlockRows:
        """Find the rows of a block."""
        view = cells.views[block.view]
        position = np.full(len(view), -1)
        position[block.cells - view.cells.start] = block.parts
        codes = position[view.small_codes]
        rows = None
        if (codes < 0).any():
            rows = np.flatnonzero(codes >= 0)
            codes, weight = codes[rows], None if weight is None else weight[rows]
        options: Any = {"total_weight": total_weight}
        density = DensityKernel(codes, weight, block.n_parts, **options)
        square = SquareKernel(codes, weight, block.n_parts, **options) if is_square else None
        return cls(block, rows, density, square or density)

    def take(self, of_rows: Array) -> Array:
        """Take the rows of the block."""
        return of_rows if self.rows is None else of_rows[self.rows]

    def scores(self, margin: Array) -> Array:
        """Find the scores of the block's class."""
        return log_odds_of_class(self.take(margin), self.block.target)

    def chain(self, probability: Array) -> Array:
        """Compute the derivative of the scores of several classes in the margins.

        The log-odds of a class fall with another margin by its share of the other classes.
        """
        k, p = self.block.target, self.take(probability)
        chain = -p / np.maximum(1.0 - p[:, [k]], np.finfo(p.dtype).tiny)
        chain[:, k] = 1.0
        return np.asarray(chain)

    def add_gradient(
        self, costs: Float, margin: Array, probability: Array, out: tuple[Array, Array]
    ) -> None:
        """Add gradients and Hessians of rows, given the cost of each entry of the table."""
        gradient, hessian = out
        rows = slice(None) if self.rows is None else self.rows
        slope, curvature = self.proxy.gradient(self.scores(margin), costs)
        if gradient.ndim == 1:
            gradient[rows] += slope
            hessian[rows] += curvature
            return
        chain = self.chain(probability)
        gradient[rows] += chain * slope[:, None]
        # The curvature of the log-odds in another margin is at most its share times the rest.
        share = np.abs(chain)
        hessian[rows] += share * (
            curvature[:, None] * share + np.abs(slope)[:, None] * (1.0 - share)
        )

    def add_hessian_product(
        self, costs: Float, margin: Array, probability: Array, direction: Array, out: Array
    ) -> None:
        """Add the exact Hessian times a direction of the rows, (n_samples,) or (.., n_classes)."""
        rows = slice(None) if self.rows is None else self.rows
        scores, direction = self.scores(margin), self.take(direction)
        if direction.ndim == 1:
            out[rows] += self.proxy.hessian_product(scores, costs, direction)
            return
        chain = self.chain(probability)
        along = (chain * direction).sum(axis=1)
        out[rows] += chain * self.proxy.hessian_product(scores, costs, along)[:, None]
        slope, _ = self.proxy.gradient(scores, costs)
        k = self.block.target
        share, others = np.delete(chain, k, axis=1), np.delete(direction, k, axis=1)
        bend = share * (others + (share * others).sum(axis=1, keepdims=True))
        out[rows] += np.insert(bend * slope[:, None], k, 0.0, axis=1)

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
            _BlockRows.of(block, cells, weight, total_weight, is_square=is_square)
            for block in blocks
        ]
        self._constraints = constraints
        self._prices: Any = None  # of one multiplier each, (m, n_pairs)
        if is_square:
            of_blocks = (constraints.C[:, block.entries] for block in blocks)
            prices = map(find_prices, of_blocks, (block.n_parts for block in blocks))
            self._prices = sparse.csr_array(sparse.hstack([*prices]))
        self.n_cells = len(cells)

    def tables(self, margin: Array, *, is_exact: bool = True) -> Float:
        """Compute the tables of all blocks, flat, (n_pairs,); one half for empty parts.

        Those of many rows may be from bins of scores instead of exact.
        """
        found = []
        for part in self._parts:
            scores, kernel = part.scores(margin), part.density
            bins = None if is_exact or scores.size <= EXACT_ROWS else BINS
            table = pair_table(scores, kernel.cells, kernel.weight, kernel.n_cells, bins=bins)
            found.append(np.nan_to_num(table, nan=0.5).ravel())
        return np.concatenate(found)

    def value(self, multipliers: Float, margin: Array) -> float:
        """Compute the proxy of the constraints on pair rates, whose gradient is that of rows."""
        total = 0.0
        for part, costs in self._at_work(multipliers):
            table = part.proxy.table(part.scores(margin))
            total += float((costs * np.nan_to_num(table)).sum())
        return total

    def add_gradient(
        self, multipliers: Float, margin: Array, probability: Array, out: tuple[Array, Array]
    ) -> None:
        """Add gradients and Hessian majorisers of rows, times the weight of all rows."""
        for part, costs in self._at_work(multipliers):
            part.add_gradient(costs, margin, probability, out)

    def add_hessian_product(
        self,
        multipliers: Float,
        margin: Array,
        probability: Array,
        direction: Array,
        out: Array,
    ) -> None:
        """Add the exact Hessian times a direction of the rows and the weight of all rows."""
        for part, costs in self._at_work(multipliers):
            part.add_hessian_product(costs, margin, probability, direction, out)

    def _at_work(self, multipliers: Float) -> Iterator[tuple[_BlockRows, Float]]:
        """Iterate over the blocks with a cost, each with its table of costs."""
        costs = self._constraints.pair_costs(multipliers)
        if self._prices is not None:
            costs = self._prices.T @ multipliers
        for part in self._parts:
            of_block = costs[part.block.entries]
            if of_block.any():
                yield part, of_block.reshape(part.block.n_parts, -1)

    @property
    def steepest(self) -> float:
        """Largest slope of a pair rate that dual steps depend on."""
        return STEEPEST if self._prices is None else np.inf

    def slopes(self, margin: Array) -> Float:
        """Compute the root mean square slope of the pair rates of each cell, (n_cells,).

        A cell has the largest slope against any other one, and zero where it is in no pair.
        """
        slopes = np.zeros(self.n_cells)
        for part in self._parts:
            of_parts = part.slopes(margin)
            np.maximum.at(slopes, part.block.cells, of_parts[part.block.parts])
        return slopes
