"""Tables of functionals: what each adds up, as coefficients of the statistics of cells.

The fractions of rows that are predicted as each class have an entry for each cell and class, and
mean losses one for each cell.

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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.problem.functionals import (
    MeanResidual,
    RateParts,
    WeightedFraction,
    WeightedLoss,
    WeightedPairs,
)

_Entries: TypeAlias = tuple[Float, Codes]  # Coefficients, and their positions.
NOTHING: _Entries = np.zeros(0), np.zeros(0, dtype=np.intp)


def find_row_properties(
    cells: Cells, rows: Any, imitating: Any, is_curved: Bool
) -> dict[str, Any]:
    """Find the properties of linear rows, as fields of ``LinearConstraints``.

    Directions of one curve have one proxy, the bounded one: it serves directions of both signs, of
    which one rewards errors.

    Parameters
    ----------
    cells : Partitions of the data.
    rows : (m, n_cells * n_classes). Coefficients of the predicted fractions in each row.
    imitating : (m, n_cells * n_classes). The part of them that comes from decisions of other
        models.
    is_curved : (m,). Whether each row is a direction of a curve.
    """
    m, n_classes = rows.shape[0], cells.classes.size
    may_reward, must_reward, splits = np.zeros((3, m), dtype=bool)
    widths: list[tuple[Float, Codes, Codes]] = [(*NOTHING, NOTHING[1])]
    for view in cells.views if m else ():
        # Tables of all labels of each combination of other levels that a row has coefficients of,
        # (n_combinations, n_labels, n_classes). A row compares few of many groups.
        shape = view.n_labels, len(view) // view.n_labels, n_classes
        columns = slice(view.cells.start * n_classes, view.cells.stop * n_classes)
        parts = [sparse.coo_array(part[:, columns]) for part in (rows, imitating)]
        at = [np.unravel_index(part.col, shape) for part in parts]
        keys = [
            part.row * shape[1] + others for part, (_, others, _) in zip(parts, at, strict=True)
        ]
        combinations = np.unique(np.concatenate(keys))
        row, other = np.divmod(combinations, shape[1])
        combined, imitation = np.zeros((2, combinations.size, view.n_labels, n_classes))
        for table, part, key, (label, _, k) in zip(
            (combined, imitation), parts, keys, at, strict=True
        ):
            table[np.searchsorted(combinations, key), label, k] = part.data
        has_negative = np.bincount(row, (imitation < 0).any(axis=(1, 2)), m) > 0
        own = np.where(has_negative[row, None, None], combined, combined - imitation)
        labels = cells.labels[view.cells].reshape(shape[:2])[:, other].T
        least, most = own.min(axis=2), own.max(axis=2)
        of_label = np.take_along_axis(own, np.maximum(labels, 0)[..., None], axis=2)[..., 0]
        # A row rewards errors on cells where an own label costs most, or may do so without labels.
        is_rewarded = (most > least) & ((labels < 0) | (of_label >= most))
        suits = (own <= least[..., None]) | ~is_rewarded[..., None]
        may_reward[row[is_rewarded.any(axis=1)]] = True
        must_reward[row[~suits.all(axis=1).any(axis=1)]] = True
        largest = combined.max(axis=2)
        splits[row[((combined < largest[..., None]).sum(axis=2) > 1).any(axis=1)]] = True
        width = largest - combined.min(axis=2)
        differs, label = np.nonzero(width)
        cell = view.cells.start + label * shape[1] + other[differs]
        widths.append((width[differs, label], row[differs], cell))
    values, row, cell = map(np.concatenate, zip(*widths, strict=True))
    cost_range = sparse.csr_array((values, (row, cell)), shape=(m, len(cells)))
    cost_range.sort_indices()
    return {
        "cost_range": cost_range,
        "may_reward_errors": may_reward | is_curved,
        "must_reward_errors": must_reward & ~is_curved,
        "splits_targets": splits,
    }


def make_csr(rows: Sequence[_Entries], width: int) -> Any:
    """Make a sparse matrix of the values of each row, given with their columns."""
    ends = np.cumsum([0, *(columns.size for _, columns in rows)])
    values, columns = (np.concatenate(one) for one in zip(NOTHING, *rows, strict=True))
    return sparse.csr_array((values, columns.astype(np.intp), ends), shape=(len(rows), width))


@dataclass(frozen=True, eq=False)
class PairBlock:
    """Cells of a view whose scores for a class are compared.

    Parameters
    ----------
    view : Position of the view.
    target : Index of the class.
    cells : (n,). The cells, sorted and counted over all views.
    parts : (n,). Part of each cell, from 0 to the number of parts less one.
    n_parts : Number k of parts.
    entries : Positions of the entries of the flat table, (k * k,), among those of all blocks.
    """

    view: int
    target: int
    cells: Codes
    parts: Codes
    n_parts: int
    entries: slice

    def sum(self, of_cells: Float, some: Codes | None = None) -> Float:
        """Sum a quantity of all cells of all views, or of some cells of the block, by part."""
        some = self.cells if some is None else some
        parts = self.parts[np.searchsorted(self.cells, some)]
        return np.bincount(parts, of_cells[some], self.n_parts).astype(np.float64)

    def holds(self, term: WeightedPairs) -> bool:
        """Whether the table has the entries of a pair rate."""
        return term.target == self.target and term.first[0] in self.cells

    def coefficients(self, term: WeightedPairs, weight: Float) -> _Entries:
        """Compute the coefficients of a pair rate in the table, given weights of all cells."""
        u, v = (self.sum(weight, side) for side in term.bases)
        shares = np.outer(u / u.sum(), v / v.sum()).ravel()
        at = np.flatnonzero(shares)
        return term.coefficient * shares[at], self.entries.start + at


@dataclass(frozen=True, eq=False)
class ResidualBlock:
    """Mean residuals of the cells of a view in bins.

    Parameters
    ----------
    view : Position of the view.
    bins : Number of bins.
    cells : Cells of the view, counted over all views.
    entries : Positions of the entries of the flat table, (n_cells * bins,), among those of all
        blocks.
    """

    view: int
    bins: int
    cells: slice
    entries: slice

    def holds(self, term: MeanResidual) -> bool:
        """Whether the table has the entries of a mean residual."""
        return term.bins == self.bins and self.cells.start <= term.cells[0] < self.cells.stop

    def coefficients(self, term: MeanResidual, weight: Float) -> _Entries:
        """Compute the coefficients of a mean residual, given weights of all cells."""
        at = term.cells[weight[term.cells] > 0.0]
        entries = self.entries.start + (at - self.cells.start) * self.bins + term.position
        return term.coefficient * weight[at] / weight[at].sum(), entries


def find_blocks(
    functionals: Iterable[RateParts], views: Sequence[View]
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
        start, n = pairs[-1].entries.stop if pairs else 0, int(parts.max()) + 1
        pairs.append(PairBlock(view, target, cells, parts, n, slice(start, start + n**2)))
    residuals: list[ResidualBlock] = []
    for view, n_bins in sorted(bins):
        start, n = residuals[-1].entries.stop if residuals else 0, len(views[view]) * n_bins
        entries = slice(start, start + n)
        residuals.append(ResidualBlock(view, n_bins, views[view].cells, entries))
    return tuple(pairs), tuple(residuals)


def tabulate(
    functionals: Sequence[RateParts],
    weight: Float,
    n_classes: int,
    pair_blocks: Sequence[PairBlock],
    residual_blocks: Sequence[ResidualBlock],
) -> dict[str, Any]:
    """Compute the coefficients of functionals in each cell statistic, csr_array by name.

    Functionals are given by their parts, and `weight` has the weight of each cell of all views.
    """
    widths = {
        "predicted": weight.size * n_classes,
        "loss": weight.size,
        "pairs": pair_blocks[-1].entries.stop if pair_blocks else 0,
        "residuals": residual_blocks[-1].entries.stop if residual_blocks else 0,
    }
    rows: dict[str, list[_Entries]] = {name: [] for name in widths}
    for parts in functionals:
        entries: dict[str, list[_Entries]] = {name: [] for name in widths}
        for part in parts or ():
            if isinstance(part, WeightedFraction):
                values = part.shares(weight)[:, None] * part.event
                at = part.cells[:, None] * n_classes + np.arange(n_classes)
                entries["predicted"].append((values.ravel(), at.ravel()))
            elif isinstance(part, WeightedLoss):
                entries["loss"].append((part.shares(weight), part.cells))
            elif isinstance(part, WeightedPairs):
                of_pairs = next(block for block in pair_blocks if block.holds(part))
                entries["pairs"].append(of_pairs.coefficients(part, weight))
            else:
                of_bins = next(block for block in residual_blocks if block.holds(part))
                entries["residuals"].append(of_bins.coefficients(part, weight))
        for name, found in entries.items():  # Coefficients of the same position add up.
            if not found:
                rows[name].append(NOTHING)
                continue
            values, columns = (np.concatenate(one) for one in zip(*found, strict=True))
            at, position = np.unique(columns, return_inverse=True)
            total = np.bincount(position, values, at.size).astype(np.float64)
            is_kept = total != 0.0  # A stored zero times the NaN of an empty cell would be NaN.
            rows[name].append((total[is_kept], at[is_kept]))
    return {name: make_csr(rows[name], width) for name, width in widths.items()}
