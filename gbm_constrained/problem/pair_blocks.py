"""Blocks of the table of pairs that pair rates depend on, and coefficients of their entries.

A pair rate compares cells of one view by their scores for one class. The cells that the pair rates
of a view and a class compare make a *block*. Cells that are on the same sides of all these rates
are one *part* of the block, whatever else divides them. A block has a table of pairs of its parts
(:mod:`gbm_constrained.problem.pair_statistics`); the tables of all blocks, one after the other and
flat, are the statistic ``pairs`` that pair rates are linear in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.cells import View
from gbm_constrained.problem.functionals import RatePart, WeightedPairs
from gbm_constrained.problem.row_properties import make_csr


@dataclass(frozen=True, eq=False)
class PairBlock:
    """Cells of a view whose scores for a class are compared.

    Parameters
    ----------
    view : Position of the view.
    target : Index of the class.
    cells : (n,). The cells, sorted and counted over all views.
    parts : (n,). Part of each cell, from 0 to the number of parts less one.
    start : Position of the block's first entry among those of all blocks.
    """

    view: int
    target: int
    cells: Codes
    parts: Codes
    start: int

    @cached_property
    def n_parts(self) -> int:
        """Number k of parts."""
        return int(self.parts.max()) + 1

    @property
    def entries(self) -> slice:
        """Positions of the entries of the flat table, (k * k,)."""
        return slice(self.start, self.start + self.n_parts**2)

    def sum(self, of_cells: Float, some: Codes | None = None) -> Float:
        """Sum a quantity of all cells of all views, or of some cells of the block, by part."""
        some = self.cells if some is None else some
        parts = self.parts[np.searchsorted(self.cells, some)]
        return np.bincount(parts, of_cells[some], self.n_parts).astype(np.float64)


def find_pair_blocks(
    functionals: Iterable[Sequence[RatePart] | None], views: Sequence[View]
) -> tuple[PairBlock, ...]:
    """Find the blocks of the pair rates among the terms of all functionals."""
    ends = [view.cells.stop for view in views]
    sides: dict[tuple[int, int], list[Codes]] = {}
    for terms in functionals:
        for term in terms or ():
            if isinstance(term, WeightedPairs):
                view = int(np.searchsorted(ends, term.first[0], side="right"))
                sides.setdefault((view, term.target), []).extend(term.bases)
    blocks: list[PairBlock] = []
    for (view, target), compared in sorted(sides.items()):
        cells = np.unique(np.concatenate(compared))
        membership = np.array([np.isin(cells, side, assume_unique=True) for side in compared])
        parts = np.unique(membership, axis=1, return_inverse=True)[1].ravel()
        start = blocks[-1].entries.stop if blocks else 0
        blocks.append(PairBlock(view, target, cells, parts, start))
    return tuple(blocks)


def pair_matrix(
    blocks: Sequence[PairBlock], functionals: Sequence[Sequence[RatePart] | None], weight: Float
) -> Any:
    """Compute the coefficients of functionals in the flat tables, csr_array (n, n_pairs).

    Functionals are given by their terms, and `weight` has the weight of each cell of all views.
    """
    rows = [_coefficients(blocks, terms, weight) for terms in functionals]
    values, columns = zip(*rows, strict=True) if rows else ((), ())
    found = make_csr(values, columns, blocks[-1].entries.stop if blocks else 0)
    found.sum_duplicates()
    found.eliminate_zeros()  # A stored zero times the NaN of an empty cell would be NaN.
    return found


def _coefficients(
    blocks: Sequence[PairBlock], terms: Sequence[RatePart] | None, weight: Float
) -> tuple[Float, Codes]:
    """Compute the coefficients of one functional, and the positions of their entries."""
    values, columns = [np.zeros(0)], [np.zeros(0, dtype=np.intp)]
    for term in terms or ():
        if isinstance(term, WeightedPairs):
            block = next(b for b in blocks if b.target == term.target and term.first[0] in b.cells)
            u, v = (block.sum(weight, side) for side in term.bases)
            shares = np.outer(u / u.sum(), v / v.sum()).ravel()
            at = np.flatnonzero(shares)
            values.append(term.coefficient * shares[at])
            columns.append(block.start + at)
    return np.concatenate(values), np.concatenate(columns)
