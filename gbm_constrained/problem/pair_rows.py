"""Rows whose scores pair rates compare: tables of pairs, gradients and slopes at given scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.kernels.pairs import DensityKernel
from gbm_constrained.problem.pair_blocks import PairBlock
from gbm_constrained.problem.pair_statistics import pair_table

# Rows up to which training uses exact tables, and bins of scores beyond: an error of 2e-6.
EXACT_ROWS, BINS = 50_000, 4096


@dataclass(frozen=True, eq=False)
class _BlockRows:
    """Rows of the cells of one block.

    Attributes
    ----------
    rows : Positions of the rows; all rows where None.
    codes : Part of the block that each row is in.
    weight : Weight of each row; ones where None.
    """

    block: PairBlock
    rows: Codes | None
    codes: Codes
    weight: Array | None
    kernel: DensityKernel

    @classmethod
    def of(
        cls, block: PairBlock, cells: Cells, weight: Array | None, total_weight: float
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
        kernel = DensityKernel(codes, weight, block.n_parts, total_weight=total_weight)
        return cls(block, rows, codes, weight, kernel)

    def take(self, of_rows: Array) -> Array:
        """Take the rows of the block."""
        return of_rows if self.rows is None else of_rows[self.rows]

    def scores(self, margin: Array) -> Array:
        """Find the scores of the block's class.

        Of two classes the score is the margin. Of several it is the log-odds of the class, which
        order the rows as its probability does.
        """
        margin = self.take(margin)
        if margin.ndim == 1:
            return margin
        others = np.delete(margin, self.block.target, axis=1)
        return np.asarray(margin[:, self.block.target] - logsumexp(others, axis=1))

    def add(self, slope: Float, probability: Array, gradient: Array, hessian: Array) -> None:
        """Add the gradient of each row, given that in its score, and its size to the Hessian."""
        rows = slice(None) if self.rows is None else self.rows
        if gradient.ndim == 1:
            gradient[rows] += slope
            hessian[rows] += np.abs(slope)
            return
        k, p = self.block.target, self.take(probability)
        # The log-odds of class k fall with another margin by its share of the other classes.
        chain = -p / np.maximum(1.0 - p[:, [k]], np.finfo(p.dtype).tiny)
        chain[:, k] = 1.0
        chain *= slope[:, None]
        gradient[rows] += chain
        hessian[rows] += np.abs(chain)


class PairRows:
    """Rows of all blocks of pair rates, and what pair rates are at their scores.

    Parameters
    ----------
    blocks : Blocks of cells whose scores are compared.
    cells : Partitions of the rows.
    weight : (n_samples,). Weight of each row; ones by default.
    total_weight : Weight that gradients are multiplied by.
    """

    def __init__(
        self,
        blocks: Sequence[PairBlock],
        cells: Cells,
        weight: Array | None,
        total_weight: float,
    ) -> None:
        self._parts = [_BlockRows.of(block, cells, weight, total_weight) for block in blocks]
        self.n_cells = len(cells)

    def tables(self, margin: Array, *, is_exact: bool = True) -> Float:
        """Compute the tables of all blocks, flat, (n_pairs,); one half for empty parts.

        Those of many rows may be from bins of scores instead of exact.
        """
        found = []
        for part in self._parts:
            scores, k = part.scores(margin), part.block.n_parts
            bins = None if is_exact or scores.size <= EXACT_ROWS else BINS
            table = pair_table(scores, part.codes, part.weight, k, bins=bins)
            found.append(np.nan_to_num(table, nan=0.5).ravel())
        return np.concatenate(found)

    def smooth_tables(self, margin: Array) -> Float:
        """Compute the tables whose gradient is :meth:`add_gradient`, flat, (n_pairs,)."""
        found = [part.kernel.table(part.scores(margin)) for part in self._parts]
        return np.concatenate([np.nan_to_num(table, nan=0.5).ravel() for table in found])

    def add_gradient(
        self, costs: Float, margin: Array, probability: Array, out: tuple[Array, Array]
    ) -> None:
        """Add gradients and Hessians of rows, given the cost of each entry of the tables."""
        for part in self._parts:
            of_block = costs[part.block.entries]
            if of_block.any():
                table = of_block.reshape(part.block.n_parts, -1)
                slope, _ = part.kernel.gradient(part.scores(margin), table)
                part.add(slope, probability, *out)

    def slopes(self, margin: Array) -> Float:
        """Compute the root mean square slope of the pair rates of each cell, (n_cells,).

        A cell has the largest slope against any other one, and zero where it is in no pair.
        """
        slopes = np.zeros(self.n_cells)
        for part in self._parts:
            of_parts = part.kernel.slopes(part.scores(margin))
            np.maximum.at(slopes, part.block.cells, of_parts[part.block.parts])
        return slopes
