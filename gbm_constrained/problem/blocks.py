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
_Entries: TypeAlias = tuple[Float, Codes]  # Coefficients, and their positions.


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
    reached = [[(one, _cells_reached(one)) for one in found.in_views] for found in functionals]
    ranges: list[_Entries] = []
    properties = np.zeros((len(rows), 3), dtype=bool)
    for i, row in enumerate(rows):
        by_view: dict[int, list[_Member]] = {}
        for k, a in row.items():
            for one, at in reached[k]:
                by_view.setdefault(one.view.cells.start, []).append((a, one, at))
        values, columns = [np.zeros(0)], [np.zeros(0, dtype=np.intp)]
        for start in sorted(by_view):
            (width, at), of_view = _properties_in_view(cells, by_view[start])
            values.append(width)
            columns.append(at)
            properties[i] |= of_view
        ranges.append((np.concatenate(values), np.concatenate(columns)))
    may_reward, must_reward, splits = properties.T
    return {
        "cost_range": make_csr(ranges, len(cells)),
        "may_reward_errors": may_reward | is_curved,
        "must_reward_errors": must_reward & ~is_curved,
        "splits_targets": splits.copy(),
    }


def make_csr(rows: Sequence[_Entries], width: int) -> Any:
    """Make a sparse matrix of the values of each row, given with their columns."""
    ends = np.cumsum([0, *(columns.size for _, columns in rows)])
    values = np.concatenate([np.zeros(0), *(values for values, _ in rows)])
    columns = np.concatenate([np.zeros(0, dtype=np.intp), *(columns for _, columns in rows)])
    return sparse.csr_array((values, columns.astype(np.intp), ends), shape=(len(rows), width))


def _properties_in_view(
    cells: Cells, members: Sequence[_Member]
) -> tuple[_Entries, tuple[bool, bool, bool]]:
    """Find the positive cost ranges of a row in one view, their cells, and its properties there.

    The properties are those of ``LinearConstraints``: whether the row may reward errors, must
    reward errors, and splits targets.
    """
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
    labels, least = cells.labels[view.cells][at], over_classes(np.minimum, own)
    # A row rewards errors on cells where an own label costs most, or may do so without labels.
    most, of_label = over_classes(np.maximum, own), own[np.arange(at.size), np.maximum(labels, 0)]
    is_rewarded = (most > least) & ((labels < 0) | (of_label >= most))
    suits: Bool = (own <= least[:, None]) | ~is_rewarded[:, None]
    by_label = suits.reshape(view.n_labels, -1, cells.classes.size)
    largest = over_classes(np.maximum, combined)
    width = largest - over_classes(np.minimum, combined)
    differs = np.flatnonzero(width)
    return (width[differs], at[differs] + view.cells.start), (
        bool(is_rewarded.any()),
        not by_label.all(axis=0).any(axis=-1).all(),
        bool(((combined < largest[:, None]).sum(axis=1) > 1).any()),
    )


def _cells_reached(found: FunctionalInView) -> Codes:
    """Find the cells of a view with coefficients, and those with another label alone."""
    n_labels = found.view.n_labels
    others = len(found.view) // n_labels
    has_entry = found.predicted.any(axis=1) | found.imitation.any(axis=1)
    columns = np.flatnonzero(has_entry.reshape(-1, others).any(axis=0))
    return np.ravel(np.arange(n_labels)[:, None] * others + columns)


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

    def coefficients(self, term: RatePart, weight: Float) -> _Entries | None:
        """Compute the coefficients of a pair rate in the table; None where it is of another one.

        `weight` has the weight of each cell of all views.
        """
        if not isinstance(term, WeightedPairs):
            return None
        if term.target != self.target or term.first[0] not in self.cells:
            return None
        u, v = (self.sum(weight, side) for side in term.bases)
        shares = np.outer(u / u.sum(), v / v.sum()).ravel()
        at = np.flatnonzero(shares)
        return term.coefficient * shares[at], self.start + at


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

    def coefficients(self, term: RatePart, weight: Float) -> _Entries | None:
        """Compute the coefficients of a mean residual; None where it is of another table.

        `weight` has the weight of each cell of all views.
        """
        if not isinstance(term, MeanResidual) or term.bins != self.bins:
            return None
        if not self.cells.start <= term.cells[0] < self.cells.stop:
            return None
        at = term.cells[weight[term.cells] > 0.0]
        entries = self.start + (at - self.cells.start) * self.bins + term.position
        return term.coefficient * weight[at] / weight[at].sum(), entries


def find_blocks(
    functionals: Iterable[Sequence[RatePart] | None], views: Sequence[View]
) -> tuple[tuple[PairBlock, ...], tuple[ResidualBlock, ...]]:
    """Find the blocks of the pair rates and of the mean residuals among terms of functionals."""
    ends = [view.cells.stop for view in views]
    sides: dict[tuple[int, int], list[Codes]] = {}
    bins: set[tuple[int, int]] = set()
    for term in (term for terms in functionals for term in terms or ()):
        view = int(np.searchsorted(ends, term.bases[0][0], side="right"))
        if isinstance(term, WeightedPairs):
            sides.setdefault((view, term.target), []).extend(term.bases)
        elif isinstance(term, MeanResidual):
            bins.add((view, term.bins))
    pairs: list[PairBlock] = []
    for (view, target), compared in sorted(sides.items()):
        cells = np.unique(np.concatenate(compared))
        membership = np.array([np.isin(cells, side, assume_unique=True) for side in compared])
        parts = np.unique(membership, axis=1, return_inverse=True)[1].ravel()
        start = pairs[-1].entries.stop if pairs else 0
        pairs.append(PairBlock(view, target, cells, parts, start))
    residuals: list[ResidualBlock] = []
    for view, n_bins in sorted(bins):
        start = residuals[-1].entries.stop if residuals else 0
        residuals.append(ResidualBlock(view, n_bins, views[view].cells, start))
    return tuple(pairs), tuple(residuals)


def block_matrix(
    blocks: Sequence[PairBlock] | Sequence[ResidualBlock],
    functionals: Sequence[Sequence[RatePart] | None],
    weight: Float,
) -> Any:
    """Compute the coefficients of functionals in the flat tables of blocks, csr_array.

    Functionals are given by their terms, and `weight` has the weight of each cell of all views.
    """
    rows: list[_Entries] = []
    for terms in functionals:
        found = [one.coefficients(term, weight) for term in terms or () for one in blocks]
        values, columns = [np.zeros(0)], [np.zeros(0, dtype=np.intp)]
        for of_term, at in (entries for entries in found if entries is not None):
            values.append(of_term)
            columns.append(at)
        rows.append((np.concatenate(values), np.concatenate(columns)))
    matrix = make_csr(rows, blocks[-1].entries.stop if blocks else 0)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()  # A stored zero times the NaN of an empty cell would be NaN.
    return matrix
