r"""Rows whose probabilities calibration errors compare with labels, at given probabilities.

With C the derivative of a Lagrangian in the mean residual of a cell and a bin, the gradient of a
row i of cell c whose probability is in bin b, times the weight W of all rows, is

.. math:: - w_i \frac{W}{W_c} \, C_{cb} \, p_i (1 - p_i) .

The bin of a row is that of its current probability: a mean residual jumps where a row goes over an
edge, and is smooth elsewhere. The absolute value of the gradient is taken for the curvature, which
is smaller: a step of a residual alone is then one unit of margin at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.calibration import find_edges
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.residual_blocks import ResidualBlock


def find_bins(probability: Array, bins: int) -> Codes:
    """Find the bin of each probability; the lower one of an edge."""
    return np.searchsorted(find_edges(bins)[1:-1], probability).astype(np.intp)


def find_probabilities(margin: Array) -> Float:
    """Find the probability of the positive class from scores of two classes."""
    return np.asarray(expit(np.asarray(margin, dtype=np.float64)))


@dataclass(frozen=True, eq=False)
class _BlockRows:
    """Rows of the cells of one block.

    Attributes
    ----------
    codes : Cell of each row, counted within the view.
    label : Whether each row is of the positive class.
    weight : Weight of each row; ones where None.
    cell_weight : Weight of each cell.
    """

    block: ResidualBlock
    codes: Codes
    label: Float
    weight: Array | None
    cell_weight: Float

    @classmethod
    def of(cls, block: ResidualBlock, cells: Cells, weight: Array | None) -> _BlockRows:
        """Find the rows of a block."""
        view = cells.views[block.view]
        codes = np.asarray(view.small_codes).astype(np.intp)
        label = (cells.labels[view.cells] == 1).astype(np.float64)[codes]
        cell_weight = np.bincount(codes, weight, len(view)).astype(np.float64)
        return cls(block, codes, label, weight, cell_weight)

    def entries(self, probability: Array) -> Codes:
        """Find the entry of the block's flat table that each row is in."""
        return self.codes * self.block.bins + find_bins(probability, self.block.bins)

    def table(self, probability: Array) -> Float:
        """Compute the mean residuals, (n_cells * bins,); zero for cells without weight."""
        residual = self.label - probability
        if self.weight is not None:
            residual *= self.weight
        n = self.cell_weight.size * self.block.bins
        sums = np.bincount(self.entries(probability), residual, n)
        divisor = np.repeat(self.cell_weight, self.block.bins)
        return np.divide(sums, divisor, out=np.zeros(n), where=divisor > 0)

    def look_up(self, costs: Float, probability: Array, total_weight: float) -> Float:
        """Find the derivative of each row in its own probability, times the weight of all rows."""
        density = np.divide(
            total_weight,
            self.cell_weight,
            out=np.zeros_like(self.cell_weight),
            where=self.cell_weight > 0,
        )
        found = -(costs * np.repeat(density, self.block.bins))[self.entries(probability)]
        return np.asarray(found if self.weight is None else found * self.weight)


class ResidualRows:
    """Rows of all blocks of mean residuals, and what these are at the rows' probabilities.

    Parameters
    ----------
    constraints : Linear constraints, with the blocks.
    cells : Partitions of the rows.
    weight : (n_samples,). Weight of each row; ones where None.
    total_weight : Weight that gradients are multiplied by.
    """

    def __init__(
        self,
        constraints: LinearConstraints,
        cells: Cells,
        weight: Array | None,
        total_weight: float,
    ) -> None:
        blocks = constraints.residual_blocks
        self._parts = [_BlockRows.of(block, cells, weight) for block in blocks]
        self._constraints, self._total_weight = constraints, total_weight

    def tables(self, probability: Float) -> Float:
        """Compute the mean residuals of all blocks, flat, (n_entries,)."""
        return np.concatenate([part.table(probability) for part in self._parts])

    def value(self, multipliers: Float, margin: Array) -> float:
        """Compute the part of a Lagrangian that is linear in mean residuals."""
        tables = self.tables(find_probabilities(margin))
        return float(self._constraints.residual_costs(multipliers) @ tables)

    def add_gradient(self, multipliers: Float, margin: Array, out: tuple[Array, Array]) -> None:
        """Add gradients and Hessian majorisers of rows, times the weight of all rows."""
        gradient, hessian = out
        for cost, probability in self._at_work(multipliers, margin):
            slope = cost * probability * (1.0 - probability)
            gradient += slope
            hessian += np.abs(slope)

    def add_hessian_product(
        self, multipliers: Float, margin: Array, direction: Array, out: Array
    ) -> None:
        """Add the exact Hessian times a direction of the rows and the weight of all rows."""
        for cost, probability in self._at_work(multipliers, margin):
            curvature = probability * (1.0 - probability) * (1.0 - 2.0 * probability)
            out += cost * curvature * direction

    def _at_work(self, multipliers: Float, margin: Array) -> Iterator[tuple[Float, Float]]:
        """Iterate over the derivatives of rows in their probabilities, by block with a cost."""
        costs = self._constraints.residual_costs(multipliers)
        if not costs.any():
            return
        probability = find_probabilities(margin)
        for part in self._parts:
            of_block = costs[part.block.entries]
            if of_block.any():
                yield part.look_up(of_block, probability, self._total_weight), probability
