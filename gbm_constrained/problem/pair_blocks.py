"""Blocks of the table of pairs that pair rates depend on, and coefficients of their entries.

A pair rate compares cells of one view by their scores for one class. The cells that the pair rates
of a view and a class compare make a *block*, with a table of pairs
(:mod:`gbm_constrained.problem.pair_statistics`); the tables of all blocks, one after the other and
flat, are the statistic ``pairs`` that pair rates are linear in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    cells : (k,). The cells, sorted and counted over all views.
    start : Position of the block's first entry among those of all blocks.
    """

    view: int
    target: int
    cells: Codes
    start: int

    def __len__(self) -> int:
        return self.cells.size

    @property
    def entries(self) -> slice:
        """Positions of the entries of the flat table, (k * k,)."""
        return slice(self.start, self.start + len(self) ** 2)

    def flat(self, first: Codes, second: Codes) -> Codes:
        """Find the positions of all pairs of some cells with others."""
        rows, columns = (np.searchsorted(self.cells, side) for side in (first, second))
        return np.asarray(self.start + rows[:, None] * len(self) + columns).ravel()


def find_pair_blocks(
    functionals: Iterable[Sequence[RatePart] | None], views: Sequence[View]
) -> tuple[PairBlock, ...]:
    """Find the blocks of the pair rates among the terms of all functionals."""
    ends = [view.cells.stop for view in views]
    compared: dict[tuple[int, int], list[Codes]] = {}
    for terms in functionals:
        for term in terms or ():
            if isinstance(term, WeightedPairs):
                view = int(np.searchsorted(ends, term.first[0], side="right"))
                compared.setdefault((view, term.target), []).extend(term.bases)
    blocks, start = [], 0
    for (view, target), cells in sorted(compared.items()):
        blocks.append(PairBlock(view, target, np.unique(np.concatenate(cells)), start))
        start = blocks[-1].entries.stop
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
            u, v = weight[term.first], weight[term.second]
            values.append(term.coefficient * np.outer(u / u.sum(), v / v.sum()).ravel())
            columns.append(block.flat(term.first, term.second))
    return np.concatenate(values), np.concatenate(columns)
