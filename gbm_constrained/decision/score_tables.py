r"""Scores of the rows of many machines, as tables of bins that are split where it matters.

A bin holds the scores above one edge and up to the next. The first edges are equally many floats
apart, counted in the bits of :math:`1 + |s|`: the distance of scores that count as equal grows in
the same way with their size. Of these edges those are kept that divide the rows of each stratum
evenly, so that bins are narrow where a rare class has its scores. Zero is always an edge. Each
table also has the smallest and the largest score of each bin, so that a threshold between two bins
lies midway between scores, as one between two rows does.

Tables add up over machines in any order to the same floats, since weights of rows on many machines
are rounded to a grid (:mod:`gbm_constrained.data.exact_sums`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.communicator import Communicator
from gbm_constrained.decision.score_counts import ENTRIES

MOST_BINS, FEWEST_BINS = 512, 64  # Bins of a table, and of what a step splits bins into.
PACKED = 2.0**26  # Rows below which two counts travel in one number, of 53 bits.


@dataclass(frozen=True, eq=False)
class ScoredKinds:
    """Scores of the rows of this machine, each of which is of one kind.

    Parameters
    ----------
    scores : ndarray of shape (n_samples,)
        Score of each row, in single or double precision.
    kinds : ndarray of shape (n_samples,), intp
        Kind of each row, such as its joint cell.
    strata : ndarray of shape (n_kinds,), intp
        Stratum of each kind, such as its label. Each of them is divided about evenly.
    weight : ndarray of shape (n_samples,) or None
        Weight of each row, which add up without rounding; ones where None.
    size : ndarray of shape (n_samples,) or None
        Magnitude by which scores count as equal; that of the score itself where None.
    communicator : Communicator
        Adds tables over machines.
    n_rows : int
        Number of rows of all machines.
    """

    scores: Array
    kinds: Codes
    strata: Codes
    weight: Float | None
    size: Float | None
    communicator: Communicator
    n_rows: int

    @property
    def n_kinds(self) -> int:
        """Number of kinds on all machines."""
        return self.strata.size

    @property
    def most_bins(self) -> int:
        """Number of bins of a table of these kinds."""
        return int(np.clip(ENTRIES // max(self.n_kinds, 1), FEWEST_BINS, MOST_BINS))

    def count(self, column: Codes, n_columns: int, rows: Any = slice(None)) -> Float:
        """Count rows, and add up weights if there are any, by kind and column.

        The result is of shape (1 or 2, n_kinds, n_columns); weights come last.
        """
        at, size = self.kinds[rows] * n_columns + column, self.n_kinds * n_columns
        tables = [self.add_counts(np.bincount(at, minlength=size))]
        if self.weight is not None:
            weight = np.bincount(at, self.weight[rows], size).astype(np.float64)
            tables.append(self.communicator.sum(weight))
        return np.reshape(tables, (len(tables), self.n_kinds, n_columns))

    def add_counts(self, counts: Codes) -> Float:
        """Add numbers of rows of this machine up over all machines."""
        if self.n_rows >= PACKED:
            return self.communicator.sum(counts.astype(np.float64))
        padded: Float = np.append(counts, np.zeros(counts.size % 2)).astype(np.float64)
        first, second = np.split(padded, 2)
        packed = self.communicator.sum(first + PACKED * second)
        second = np.floor(packed / PACKED)
        return np.concatenate([packed - PACKED * second, second])[: counts.size]

    def find_ends(self, column: Codes, n_columns: int, rows: Any = slice(None)) -> Float:
        """Find the smallest and largest score, and the largest size if given, by column."""
        scores = self.scores[rows]
        ends = np.full((2 if self.size is None else 3, n_columns), -np.inf, scores.dtype)
        np.maximum.at(ends[0], column, -scores)  # The smallest one, with its sign changed.
        np.maximum.at(ends[1], column, scores)
        if self.size is not None:
            np.maximum.at(ends[2], column, self.size[rows])
        found = np.max(self.communicator.gather(ends), axis=0).astype(np.float64)
        return np.concatenate([-found[:1], found[1:]])


class ScoreTable:
    """Weights and counts of the rows of all machines by kind and bin of their scores.

    Attributes
    ----------
    edges : ndarray of shape (n_bins - 1,)
        Largest score that a bin may have, ascending.
    count, weight : ndarray of shape (n_kinds, n_bins)
        Number of rows, and sum of their weights.
    low, high : ndarray of shape (n_bins,)
        Smallest and largest score of each bin; infinite without rows.
    size : ndarray of shape (n_bins,) or None
        Largest magnitude of the rows of each bin; None where it is that of the score.
    """

    def __init__(self, rows: ScoredKinds, edges: Float, tables: Float, ends: Float) -> None:
        self.rows, self.edges, self._tables, self._ends = rows, edges, tables, ends
        self.count, self.weight = tables[0], tables[-1]
        self.low, self.high = ends[:2]
        self.size = None if rows.size is None else ends[2]

    @classmethod
    def of(cls, rows: ScoredKinds) -> ScoreTable:
        """Divide scores into bins of about equally many rows."""
        edges = _divide_evenly(rows)
        column = np.searchsorted(edges, rows.scores)
        n_bins = edges.size + 1
        return cls(rows, edges, rows.count(column, n_bins), rows.find_ends(column, n_bins))

    def split(self, bins: Codes) -> ScoreTable:
        """Split some bins, each into equally many."""
        parts = max(self.rows.most_bins // bins.size, 2)
        inner = [edges_between(self.low[b], self.high[b], parts) for b in bins]
        edges = np.unique(np.concatenate([self.edges, *inner]))
        # The old bin of each new one, and the place of the new ones among those counted here.
        old = np.searchsorted(self.edges, np.append(edges, np.inf))
        is_new = np.isin(old, bins)
        place = np.cumsum(is_new) - 1
        bin_of_row = np.searchsorted(edges, self.rows.scores)
        rows = np.flatnonzero(is_new[bin_of_row])
        column, n_new = place[bin_of_row[rows]], int(is_new.sum())
        tables, ends = self._tables[:, :, old], self._ends[:, old]
        tables[:, :, is_new] = self.rows.count(column, n_new, rows)
        ends[:, is_new] = self.rows.find_ends(column, n_new, rows)
        return ScoreTable(self.rows, edges, tables, ends)


def _divide_evenly(rows: ScoredKinds) -> Float:
    """Find edges between which each stratum has about equally many rows of all machines."""
    scores, communicator = rows.scores, rows.communicator
    low = min(communicator.gather(float(np.min(scores, initial=np.inf))))
    high = max(communicator.gather(float(np.max(scores, initial=-np.inf))))
    # Bins of equal width, twice as many as will be kept.
    edges = np.union1d(edges_between(low, high, 2 * MOST_BINS), [0.0])
    _, strata = np.unique(rows.strata, return_inverse=True)
    width = edges.size + 1
    at = strata[rows.kinds] * width + np.searchsorted(edges, scores)
    counted = np.bincount(at, minlength=(strata.max(initial=0) + 1) * width)
    reached = rows.add_counts(counted).reshape(-1, width).cumsum(axis=1).T
    share = (reached / np.maximum(reached[-1], 1.0)).sum(axis=1)
    wanted = np.arange(1, rows.most_bins) * (share[-1] / rows.most_bins)
    kept = np.searchsorted(share[:-1], wanted)
    return np.union1d(edges[kept[kept < edges.size]], [0.0])


def edges_between(low: float, high: float, parts: int) -> Float:
    """Divide the floats from the lowest to the highest score into parts; list the inner edges."""
    ends = _position_of(np.array([low, high]))
    position = np.rint(np.linspace(ends[0], ends[1], parts + 1))[1:-1].astype(np.int64)
    edges = np.unique(_score_at(position))
    return np.asarray(edges[(edges >= low) & (edges < high)])


def _position_of(scores: Float) -> NDArray[np.int64]:
    """Find the position of floats in their order, by the bits of one plus their magnitude."""
    bits = (1.0 + np.abs(scores)).view(np.int64) - np.float64(1.0).view(np.int64)
    return np.where(scores < 0, -bits, bits)


def _score_at(position: NDArray[np.int64]) -> Float:
    """Find the score at a position."""
    size = (np.abs(position) + np.float64(1.0).view(np.int64)).view(np.float64) - 1.0
    return np.where(position < 0, -size, size)
