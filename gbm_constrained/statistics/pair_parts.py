"""The distinct pair rates that compiled constraints are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Bool, Codes
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.functionals import WeightedPairs
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pair_statistics import PairRates
from gbm_constrained.statistics.pair_moments import CellSizes


@dataclass(frozen=True, eq=False)
class PairParts:
    """Distinct pair rates of constraints, and what functionals add up of them.

    Parameters
    ----------
    rates : PairRates
        The pair rates, by the cells of all views.
    block : ndarray of int, shape (n_rates,)
        Position of the block of the table of pairs that each rate depends on.
    coefficients : csr_array of shape (n_functionals, n_rates)
        Coefficient of each rate in each functional.
    """

    rates: PairRates
    block: Codes
    coefficients: Any

    @classmethod
    def of(cls, compiled: LinearConstraints) -> PairParts:
        """List the pair rates of constraints."""
        n_cells = compiled.V.shape[1]
        column = dict[tuple[int, bytes, bytes], int]()
        found = list[WeightedPairs]()
        rows, columns, values = list[int](), list[int](), list[float]()
        for k, terms in enumerate(compiled.terms):
            for term in terms or ():
                if not isinstance(term, WeightedPairs):
                    continue
                key = term.target, term.first.tobytes(), term.second.tobytes()
                if key not in column:
                    column[key] = len(found)
                    found.append(term)
                rows.append(k)
                columns.append(column[key])
                values.append(term.coefficient)
        shape = compiled.constant.size, len(found)
        rates = PairRates(
            _indicate([term.first for term in found], n_cells),
            _indicate([term.second for term in found], n_cells),
        )
        block = np.array([_find_block(compiled, term) for term in found], dtype=np.intp)
        return cls(rates, block, sparse.csr_array((values, (rows, columns)), shape=shape))

    def rates_at(self, at: Array, cells: Any = slice(None)) -> PairRates:
        """Take some of the rates, by some of the cells."""
        return PairRates(*(inside[at][:, cells] for inside in self.rates))


def sizes_of(cells: Cells) -> CellSizes:
    """Find the sizes of the cells of all views."""
    weight = cells.rows.weight
    square = cells.count if weight is None else cells.total(weight**2)
    return CellSizes(cells.weight, square, cells.weighted_count)


def _find_block(compiled: LinearConstraints, term: WeightedPairs) -> int:
    """Find the position of the block that a pair rate depends on."""
    return next(
        i
        for i, block in enumerate(compiled.pair_blocks)
        if block.target == term.target and term.first[0] in block.cells
    )


def _indicate(sets: list[Codes], n_cells: int) -> Bool:
    """Mark the cells of sets, (n_sets, n_cells)."""
    inside = np.zeros((len(sets), n_cells), dtype=bool)
    for row, cells in zip(inside, sets, strict=True):
        row[cells] = True
    return inside
