"""Blocks of functionals beyond rates: pairs of rows, and residuals of probabilities.

A pair rate compares cells of one view by their scores for one class. The cells that the pair rates
of a view and a class compare make a *block*. Cells that are on the same sides of all these rates
are one *part* of the block, whatever else divides them. A block has a table of pairs of its parts
(:mod:`gbm_constrained.problem.pairs`); the tables of all blocks, one after the other and
flat, are the statistic ``pairs`` that pair rates are linear in.

A calibration error has the mean residual of each bin of probabilities. The mean residuals of the
cells of one view in one number of bins make a *block*. The tables of all blocks, one after the
other and flat, are the statistic ``residuals`` that calibration errors are functions of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.problem.functionals import (
    Functional,
    FunctionalInView,
    MeanResidual,
    RatePart,
    WeightedPairs,
)
from gbm_constrained.problem.kernels import over_classes

_Member: TypeAlias = tuple[float, FunctionalInView, Codes]  # With a factor and cells that count.


def find_row_properties(
    cells: Cells,
    functionals: Sequence[Functional],
    rows: Sequence[Mapping[int, float]],
    is_curved: Bool,
) -> dict[str, Any]:
    """Find the properties of linear rows, as fields of ``LinearConstraints``.

    A row is given by the coefficients of its functionals. Directions of one curve have one proxy,
    the bounded one: it serves directions of both signs, of which one rewards errors.
    """
    reached = [
        [(one, _cells_reached(one.view, one.predicted, one.imitation)) for one in found.in_views]
        for found in functionals
    ]
    found = [_properties_of_row(cells, reached, row) for row in rows]
    widths, touched, *properties = zip(*found, strict=True) if found else [()] * 5
    may, must, splits = (np.array(of, dtype=bool) for of in properties)
    return {
        "cost_range": make_csr(widths, touched, len(cells)),
        "may_reward_errors": may | is_curved,
        "must_reward_errors": must & ~is_curved,
        "splits_targets": splits,
    }


def make_csr(values: Sequence[Float], columns: Sequence[Codes], width: int) -> Any:
    """Make a sparse matrix of the values of each row, given their columns."""
    ends = np.cumsum([0, *(at.size for at in columns)])
    empty: list[Any] = [np.zeros(0)]
    return sparse.csr_array(
        (np.concatenate(values or empty), np.concatenate(columns or empty).astype(np.intp), ends),
        shape=(len(columns), width),
    )


def _properties_of_row(
    cells: Cells,
    reached: Sequence[Sequence[tuple[FunctionalInView, Codes]]],
    row: Mapping[int, float],
) -> tuple[Float, Codes, bool, bool, bool]:
    """Find the positive cost ranges of a row, their cells, and its three properties."""
    by_view: dict[int, list[_Member]] = {}
    for k, a in row.items():
        for one, at in reached[k]:
            by_view.setdefault(one.view.cells.start, []).append((a, one, at))
    found = [_properties_in_view(cells, by_view[start]) for start in sorted(by_view)]
    nothing = np.zeros(0), np.zeros(0, dtype=np.intp), False, False, False
    widths, touched, *properties = zip(*(found or [nothing]), strict=True)
    may, must, splits = map(any, properties)
    return np.concatenate(widths), np.concatenate(touched), may, must, splits


def _properties_in_view(
    cells: Cells, members: Sequence[_Member]
) -> tuple[Float, Codes, bool, bool, bool]:
    """Find the properties of the part of a row in one view."""
    view = members[0][1].view
    # A row compares few of many groups, and all labels of a group are taken together.
    parts = [at for _, _, at in members]
    at = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
    combined = np.zeros((at.size, cells.classes.size))
    imitation = np.zeros_like(combined)
    for a, one, _ in members:
        combined += a * one.predicted[at]
        imitation += a * one.imitation[at]
    own = combined - imitation if (imitation >= 0).all() else combined
    is_rewarded = _find_rewarded(own, cells.labels[view.cells][at])
    least = over_classes(np.minimum, own)
    suits: Bool = (own <= least[:, None]) | ~is_rewarded[:, None]
    by_label = suits.reshape(_n_labels(view), at.size // _n_labels(view), cells.classes.size)
    largest = over_classes(np.maximum, combined)
    width = largest - over_classes(np.minimum, combined)
    differs = np.flatnonzero(width)
    return (
        width[differs],
        at[differs] + view.cells.start,
        bool(is_rewarded.any()),
        not by_label.all(axis=0).any(axis=-1).all(),
        bool(((combined < largest[:, None]).sum(axis=1) > 1).any()),
    )


def _n_labels(view: View) -> int:
    """Count the levels of the label, the first attribute of every view."""
    return int(view.levels["label"][-1]) + 1


def _cells_reached(view: View, *tables: Float) -> Codes:
    """Find the cells with entries in tables, and those with another label alone."""
    others = len(view) // _n_labels(view)
    has_entry = np.any([table.any(axis=1) for table in tables], axis=0)
    columns = np.flatnonzero(has_entry.reshape(-1, others).any(axis=0))
    return np.ravel(np.arange(_n_labels(view))[:, None] * others + columns)


def _find_rewarded(cost: Float, labels: Codes) -> Bool:
    """Find the cells whose errors a row rewards, or whose labels are unknown."""
    own = cost[np.arange(labels.size), np.maximum(labels, 0)]
    largest, least = over_classes(np.maximum, cost), over_classes(np.minimum, cost)
    return np.asarray((largest > least) & ((labels < 0) | (own >= largest)))


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
    rows = [_pair_coefficients(blocks, terms, weight) for terms in functionals]
    values, columns = zip(*rows, strict=True) if rows else ((), ())
    found = make_csr(values, columns, blocks[-1].entries.stop if blocks else 0)
    found.sum_duplicates()
    found.eliminate_zeros()  # A stored zero times the NaN of an empty cell would be NaN.
    return found


def _pair_coefficients(
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
    rows = [_residual_coefficients(blocks, terms, weight) for terms in functionals]
    values, columns = zip(*rows, strict=True) if rows else ((), ())
    return make_csr(values, columns, blocks[-1].entries.stop if blocks else 0)


def _residual_coefficients(
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
