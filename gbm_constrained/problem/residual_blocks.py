"""Blocks of mean residuals that calibration errors depend on, and coefficients of their entries.

A calibration error has the mean residual of each bin of probabilities. The mean residuals of the
cells of one view in one number of bins make a *block*. The tables of all blocks, one after the
other and flat, are the statistic ``residuals`` that calibration errors are functions of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.cells import View
from gbm_constrained.problem.functionals import MeanResidual, RatePart
from gbm_constrained.problem.row_properties import make_csr


@dataclass(frozen=True, eq=False)
class ResidualBlock:
    """Mean residuals of the cells of a view in bins.

    Parameters
    ----------
    view : Position of the view.
    bins : Number of bins.
    cells : Cells of the view, counted over all views.
    start : Position of the block's first entry among those of all blocks.
    """

    view: int
    bins: int
    cells: slice
    start: int

    @property
    def entries(self) -> slice:
        """Positions of the entries of the flat table, (n_cells * bins,)."""
        return slice(self.start, self.start + (self.cells.stop - self.cells.start) * self.bins)

    def table(self, of_entries: Float) -> Float:
        """Shape what all entries have as the table of the block, (..., n_cells, bins)."""
        own = of_entries[..., self.entries]
        return own.reshape(*own.shape[:-1], -1, self.bins)


def find_residual_blocks(
    functionals: Iterable[Sequence[RatePart] | None], views: Sequence[View]
) -> tuple[ResidualBlock, ...]:
    """Find the blocks of the mean residuals among the terms of all functionals."""
    ends = [view.cells.stop for view in views]
    kinds = {
        (int(np.searchsorted(ends, term.cells[0], side="right")), term.bins)
        for terms in functionals
        for term in terms or ()
        if isinstance(term, MeanResidual)
    }
    blocks: list[ResidualBlock] = []
    for view, bins in sorted(kinds):
        start = blocks[-1].entries.stop if blocks else 0
        blocks.append(ResidualBlock(view, bins, views[view].cells, start))
    return tuple(blocks)


def residual_matrix(
    blocks: Sequence[ResidualBlock],
    functionals: Sequence[Sequence[RatePart] | None],
    weight: Float,
) -> Any:
    """Compute the coefficients of functionals in the flat tables, csr_array (n, n_entries).

    Functionals are given by their terms, and `weight` has the weight of each cell of all views.
    """
    rows = [_coefficients(blocks, terms, weight) for terms in functionals]
    values, columns = zip(*rows, strict=True) if rows else ((), ())
    return make_csr(values, columns, blocks[-1].entries.stop if blocks else 0)


def _coefficients(
    blocks: Sequence[ResidualBlock], terms: Sequence[RatePart] | None, weight: Float
) -> tuple[Float, Codes]:
    """Compute the coefficients of one functional, and the positions of their entries."""
    values, columns = [np.zeros(0)], [np.zeros(0, dtype=np.intp)]
    for term in terms or ():
        if not isinstance(term, MeanResidual):
            continue
        block = next(
            b
            for b in blocks
            if b.bins == term.bins and b.cells.start <= term.cells[0] < b.cells.stop
        )
        at = term.cells[weight[term.cells] > 0.0]
        values.append(term.coefficient * weight[at] / weight[at].sum())
        columns.append(block.start + (at - block.cells.start) * block.bins + term.position)
    return np.concatenate(values), np.concatenate(columns)


def largest_by_cell(blocks: Sequence[ResidualBlock], coefficients: Float, n_cells: int) -> Float:
    """Find the size of the largest coefficient of each cell, (..., n_cells)."""
    found = np.zeros((*coefficients.shape[:-1], n_cells))
    for block in blocks:
        own = np.abs(block.table(coefficients)).max(axis=-1)
        found[..., block.cells] = np.maximum(found[..., block.cells], own)
    return found
