"""Decisions counted along lines of thresholds, on sorted rows and on bins of scores.

A bin holds the scores above one edge and up to the next. The first edges are equally many floats
apart, counted in the bits of :math:`1 + |s|`: the distance of scores that count as equal grows in
the same way with their size. Of these edges those are kept that divide the rows of each stratum
evenly, so that bins are narrow where a rare class has its scores. Zero is always an edge. Each
table also has the smallest and the largest score of each bin, so that a threshold between two bins
lies midway between scores, as one between two rows does.

Tables add up over machines in any order to the same floats, since weights of rows on many machines
are rounded to a grid (:mod:`gbm_constrained.data.exact_sums`).

Where machines hold different rows, none of them can sort the scores of all. They add tables of
weights instead. An entry of such a table becomes a row with that weight, and a search runs on
these rows as it does on real ones.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.data.exact_sums import Communicator
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import JointCells

# Scores closer to each other than this, relative to their size (at least one), count as equal: a
# threshold between them would not survive the rounding of a booster's float32 sums, up to 1e-6 of
# the scores after some hundred trees. Beyond a million rows the few that are rounded to the other
# side no longer count, while all gaps are small.
RESOLUTION = 1e-5


@dataclass(frozen=True)
class Candidates:
    """Candidate shifts along a line, and the rows in the order in which they change decision."""

    order: Codes  # The rows, (n_samples,).
    before: Codes | int  # Decision of each row, not ordered, at the beginning of the line.
    after: Codes | int  # The same at the end.
    shift: Float  # Candidates, ascending, (T,).
    flipped: Codes  # Number of rows that have changed at each candidate.

    def thin(self, most: int) -> Candidates:
        """Keep about `most` of the candidates, evenly spread over the rows."""
        wanted = np.linspace(0, self.order.size, most - 1)
        middle = np.searchsorted((self.flipped[1:] + self.flipped[:-1]) / 2, wanted)
        keep = np.unique(np.append(middle, np.flatnonzero(self.shift == 0.0)))
        return replace(self, shift=self.shift[keep], flipped=self.flipped[keep])


def are_apart(at: Float, size: Float, n_rows: int = 0) -> Bool:
    """Find the sorted scores that a threshold midway separates from the next ones, shape (n - 1,).

    `at` are the ascending shifts at which rows change their decision, `size` the magnitudes of the
    scores of these rows. They may be some of `n_rows`.
    """
    resolution = RESOLUTION * min(1.0, 1_000_000 / max(at.size, n_rows, 1))
    larger = np.maximum(np.maximum(size[1:], size[:-1]), 1.0)
    return np.asarray(np.diff(at) > resolution * larger)


def sort_along_line(at: Float, size: Float, before: Codes | int, after: Codes | int) -> Candidates:
    """Sort rows that change their decision where the shift exceeds `at`.

    A threshold lies between two scores of magnitude `size` only if they differ by more than their
    rounding.
    """
    order = np.argsort(at)
    at = at[order]
    cut = np.flatnonzero(are_apart(at, size[order]))
    flipped = np.concatenate([[0], cut + 1, [at.size]])
    return Candidates(order, before, after, stop_at(at, cut), flipped)


def stop_at(at: Float, cut: Codes) -> Float:
    """Put a shift midway after each of some positions, and one by 1 past either end."""
    middle = (at[cut] + at[cut + 1]) / 2
    return np.concatenate([[at[0] - 1.0], middle, [at[-1] + 1.0]])


BLOCK = 4096  # Rows of one running sum: few enough for its rounding to stay below ROUNDING.
ENTRIES = 1 << 22  # Numbers in a table: 32 MB.


class DecisionFunctionals:
    """Compute the error, and linear maps of predicted fractions, of decisions and along lines.

    `coefficients` are those of the predicted fractions, csr_array of shape (r, n_cells *
    n_classes).
    """

    def __init__(self, cells: Cells, coefficients: Any) -> None:
        self.n_classes = k = int(cells.classes.size)
        self.mass = cells.total(cells.rows.weight)
        with np.errstate(divide="ignore"):
            self.density = np.where(self.mass > 0, 1.0 / self.mass, 0.0)
        cost = np.where(cells.labelled, cells.class_weight[cells.labels], 0.0)
        total = cost @ self.mass
        # A wrong decision on a row of weight one adds the cost of its cell to the error.
        self.cost = cost / total if total > 0 else np.zeros_like(cost)
        self._look_at(cells)
        self.size = coefficients.shape[0] + 1
        # Coefficients of sums of weights, the error first. They are an array if they are few: to
        # take a sparse matrix apart takes longer than all else that a search does on few rows.
        wrong = np.arange(k) != cells.labels[:, None]
        error = (self.cost[:, None] * wrong).reshape(1, -1)
        density = np.repeat(self.density, k)
        per_weight: Any
        if self.size * density.size <= BLOCK:
            per_weight = np.concatenate([error, coefficients.toarray() * density])
        else:
            scaled = coefficients.multiply(density[None])
            per_weight = sparse.csc_array(sparse.vstack([sparse.csr_array(error), scaled]))
        # Of each view, the values it has a part in, and the coefficients.
        self.parts: list[tuple[int, Codes, Any]] = []
        for v, view in enumerate(cells.views):
            table: Any = per_weight[:, view.cells.start * k : view.cells.stop * k]
            members = np.unique(table.nonzero()[0]).astype(np.intp)
            if members.size == 0:
                continue
            table = table[members]
            if isinstance(table, np.ndarray):
                table = np.asfortranarray(table)  # Columns are looked up.
            elif members.size * table.shape[1] <= ENTRIES:
                table = table.toarray()
            self.parts.append((v, members, table))

    def _look_at(self, cells: Cells) -> None:
        """Measure decisions on the rows of a partition."""
        self.cells, self.views, self.weight = cells, cells.views, cells.rows.weight
        self.codes = [view.codes - view.cells.start for view in cells.views]

    def on(self, cells: Cells) -> DecisionFunctionals:
        """Return the same values of decisions on other rows, whose cells weigh the same."""
        other = copy.copy(self)
        other._look_at(cells)
        return other

    def errors(self, decided: Codes) -> Float:
        """Compute the part of each row in the error."""
        cells = self.views[0].codes
        errors = np.where(decided != self.cells.labels[cells], self.cost[cells], 0.0)
        return errors if self.weight is None else errors * self.weight

    def fractions(self, decided: Codes) -> Float:
        """Compute the weighted fraction of each cell decided as each class.

        Empty cells count as decided as the first class.
        """
        k, size = self.n_classes, self.mass.size * self.n_classes
        table = np.zeros(size)
        for view in self.views:
            table += np.bincount(view.codes * k + decided, view.weigh(self.weight), size)
        table = table.reshape(-1, k) * self.density[:, None]
        table[:, 0] = 1.0 - table[:, 1:].sum(axis=1)
        return table

    def measure(self, decided: Codes) -> Float:
        """Compute the values of some decisions, shape (1 + r,); the error comes first."""
        values = np.zeros(self.size)
        for v, members, table in self.parts:
            at = self.codes[v] * self.n_classes + decided
            weighed = self.views[v].weigh(self.weight)
            values[members] += table @ np.bincount(at, weighed, table.shape[1])
        return values

    def along(self, line: Candidates) -> Iterator[Float]:
        """Yield the values of consecutive candidates of a line, shape (1 + r, candidates)."""
        n = line.order.size
        values = self.measure(np.broadcast_to(line.before, n))
        done = int(np.searchsorted(line.flipped, 0, side="right"))
        if done:
            yield np.repeat(values[:, None], done, axis=1)
        for start in range(0, n, BLOCK):
            running = self._changes(line, line.order[start : start + BLOCK])
            np.cumsum(running, axis=1, out=running)
            running += values[:, None]
            values = running[:, -1].copy()
            stop = int(np.searchsorted(line.flipped, start + running.shape[1], side="right"))
            if stop > done:
                yield running[:, line.flipped[done:stop] - start - 1]
            done = stop

    def between(self, line: Candidates) -> Iterator[tuple[Float, Float]]:
        """Yield the lowest and the highest values between consecutive candidates of a line.

        Between candidates, any part of the weight of the rows there may have changed its decision.
        The arrays are of shape (1 + r, candidates).
        """
        values = self.measure(np.broadcast_to(line.before, line.order.size))
        start, last = 0, line.flipped.size - 1
        while start < last:
            first = line.flipped[start]
            stop = int(np.searchsorted(line.flipped, first + BLOCK, side="right")) - 1
            stop = max(stop, start + 1)
            changes = self._changes(line, line.order[first : line.flipped[stop]])
            at = line.flipped[start:stop] - first
            total = np.add.reduceat(changes, at, axis=1)
            falls = np.add.reduceat(np.minimum(changes, 0.0), at, axis=1)
            after = values[:, None] + total.cumsum(axis=1)
            before = np.concatenate([values[:, None], after[:, :-1]], axis=1)
            yield before + falls, before + (total - falls)
            values, start = after[:, -1], stop

    def _changes(self, line: Candidates, rows: Codes) -> Float:
        """Compute the change of each value when each of the rows changes its decision."""
        changes = np.zeros((self.size, rows.size))
        before = line.before if isinstance(line.before, int) else line.before[rows]
        after = line.after if isinstance(line.after, int) else line.after[rows]
        for v, members, table in self.parts:
            first = self.codes[v][rows] * self.n_classes
            if isinstance(table, np.ndarray):
                part = np.take(table, first + after, axis=1)
                part -= np.take(table, first + before, axis=1)
            else:
                part = (table[:, first + after] - table[:, first + before]).toarray()
            part = self.views[v].weigh(part.T, rows).T
            if members.size == self.size:
                changes = part
            else:
                changes[members] += part
        if self.weight is not None:
            changes *= self.weight[rows]
        return changes


class ThresholdCandidates:
    """Thresholds of two classes between the sorted rows of one machine, each of them an entry.

    Attributes
    ----------
    scores : ndarray of shape (n_entries,)
        Score of each entry.
    cells : Cells
        Cells of the entries.
    count : ndarray of shape (n_entries,) or None
        Number of rows of each entry; None where it is one.
    """

    count: Codes | None = None

    def __init__(self, margin: Array, cells: Cells) -> None:
        self.scores, self.cells = np.asarray(margin, dtype=np.float64), cells

    @cached_property
    def line(self) -> Candidates:
        """The candidates between entries."""
        return sort_along_line(-self.scores, np.abs(self.scores), 0, 1)

    @property
    def thresholds(self) -> Candidates:
        """The same of two classes, no shift among them."""
        line, positive = self.line, int(np.count_nonzero(self.scores > 0))
        i = int(np.searchsorted(line.flipped, positive))
        shift, flipped = line.shift.copy(), line.flipped
        if flipped[i] == positive:  # The candidate decides as no shift does.
            shift[i] = 0.0
        else:
            shift, flipped = np.insert(shift, i, 0.0), np.insert(flipped, i, positive)
        return Candidates(line.order, 0, 1, shift, flipped)


class ScoreHistogram(ThresholdCandidates):
    """Rows of all machines by kind and bin of their scores, and the candidates between bins.

    Each kind of a bin that has rows is an entry, which stands for them: they change their decision
    together, where the shift exceeds minus their score. Entries are in the order of bins, from the
    highest down.

    Parameters
    ----------
    scores : ndarray of shape (n_samples,)
        Score of each row of this machine, in single or double precision.
    kinds : ndarray of shape (n_samples,), intp
        Kind of each row, such as its joint cell.
    strata : ndarray of shape (n_kinds,), intp
        Stratum of each kind, such as its label. Bins divide each of them about evenly.
    weight : ndarray of shape (n_samples,) or None
        Weight of each row, which add up without rounding; ones where None.
    communicator : Communicator
        Adds tables over machines.
    n_rows : int
        Number of rows of all machines.
    magnitudes : ndarray of shape (n_samples,), default=None
        Magnitude by which scores count as equal; that of the score itself where None.
    before, after : ndarray of shape (n_kinds,) or int
        Decision of each kind at the beginning and at the end of the line.
    rows : JointRows, default=None
        The rows, where kinds are joint cells.

    Attributes
    ----------
    edges : ndarray of shape (n_bins - 1,)
        Largest score that a bin may have, ascending.
    tables : ndarray of shape (1 or 2, n_kinds, n_bins)
        Number of rows, and sum of their weights if there are any.
    low, high : ndarray of shape (n_bins,)
        Smallest and largest score of each bin; infinite without rows.
    size : ndarray of shape (n_bins,) or None
        Largest magnitude of the rows of each bin; None where it is that of the score.
    bins : ndarray of shape (n,), intp
        The bins with rows.
    may_be_split : ndarray of shape (n,), bool
        Whether a candidate may lie inside of each.
    least_shift : ndarray of shape (n,)
        Smallest magnitude of a shift inside of each.
    stops : Candidates
        A stop between any two bins, whether or not a candidate fits there.
    kinds, weight, scores, count : ndarray of shape (n_entries,)
        Kind of the rows of each entry, the sum of their weights, their largest score, and number.
    """

    def __init__(
        self,
        scores: Array,
        kinds: Codes,
        strata: Codes,
        weight: Float | None,
        communicator: Communicator,
        n_rows: int,
        magnitudes: Float | None = None,
        *,
        before: Codes | int = 0,
        after: Codes | int = 1,
        rows: JointRows | None = None,
    ) -> None:
        self._scores, self._kinds, self._row_weight = scores, kinds, weight
        self._communicator, self._n_rows, self._magnitudes = communicator, n_rows, magnitudes
        self._n_kinds, self._before, self._after = strata.size, before, after
        self._rows = rows
        # Bins, and what a step splits bins into: at most 512, and at least 64, so that a table of
        # many kinds still tells scores apart.
        self._most_bins = int(np.clip(ENTRIES // max(strata.size, 1), 64, 512))
        edges = self._divide_evenly(strata)
        self._fill(edges, *self._tabulate(np.searchsorted(edges, scores), edges.size + 1))

    def _fill(self, edges: Float, tables: Float, ends: Float) -> None:
        """Make entries of the kinds and bins that have rows."""
        self.edges, self.tables, self._ends = edges, tables, ends
        self.low, self.high = ends[:2]
        self.size = None if self._magnitudes is None else ends[2]
        self.bins = np.flatnonzero(tables[0].any(axis=0))[::-1]
        has_rows = tables[0][:, self.bins].T > 0
        at, self.kinds = np.nonzero(has_rows)
        entries = self.kinds, self.bins[at]
        self.weight = np.asarray(tables[-1][entries])
        self.scores = np.asarray(self.high[self.bins[at]])
        self.count = tables[0][entries].astype(np.intp)
        # Shifts at which the first and the last row of each bin change their decision.
        self._turns = -np.stack([self.high, self.low], axis=1)[self.bins].ravel()
        sizes = np.abs(self._turns)
        if self.size is not None:
            sizes = np.repeat(self.size[self.bins], 2)
        self._are_apart = are_apart(self._turns, sizes, int(self.count.sum()))
        self.may_be_split = self._are_apart[::2]
        self.least_shift = np.abs(self._turns).reshape(-1, 2).min(axis=1)
        flipped = np.concatenate([[0], np.cumsum(has_rows.sum(axis=1))])
        first, last = (
            of_kinds if isinstance(of_kinds, int) else of_kinds[self.kinds]
            for of_kinds in (self._before, self._after)
        )
        stops = np.zeros(flipped.size)
        self.stops = Candidates(np.arange(self.kinds.size), first, last, stops, flipped)
        if self._rows is not None:
            self.cells = self._rows.stand_in(self.kinds, self.weight)

    @cached_property
    def line(self) -> Candidates:
        """The candidates between bins."""
        cut = 2 * np.flatnonzero(self._are_apart[1::2]) + 1
        flipped = self.stops.flipped[[0, *(cut + 1) // 2, -1]]
        return replace(self.stops, shift=stop_at(self._turns, cut), flipped=flipped)

    def _divide_evenly(self, strata: Codes) -> Float:
        """Find edges between which each stratum has about equally many rows of all machines."""
        scores, communicator = self._scores, self._communicator
        low = min(communicator.gather(float(np.min(scores, initial=np.inf))))
        high = max(communicator.gather(float(np.max(scores, initial=-np.inf))))
        # Bins of equal width, twice as many as will be kept at most.
        edges = np.union1d(edges_between(low, high, 1024), [0.0])
        _, strata = np.unique(strata, return_inverse=True)
        width = edges.size + 1
        at = strata[self._kinds] * width + np.searchsorted(edges, scores)
        counted = np.bincount(at, minlength=(strata.max(initial=0) + 1) * width)
        reached = add_counts(counted, communicator, self._n_rows)
        reached = reached.reshape(-1, width).cumsum(axis=1).T
        share = (reached / np.maximum(reached[-1], 1.0)).sum(axis=1)
        wanted = np.arange(1, self._most_bins) * (share[-1] / self._most_bins)
        kept = np.searchsorted(share[:-1], wanted)
        return np.union1d(edges[kept[kept < edges.size]], [0.0])

    def _tabulate(
        self, column: Codes, n_columns: int, rows: Any = slice(None)
    ) -> tuple[Float, Float]:
        """Add up rows by kind and column, and find the ends of each column.

        Returned are counts, and sums of weights if there are any, of shape (1 or 2, n_kinds,
        n_columns), and the smallest and largest score, and the largest magnitude if given.
        """
        at, size = self._kinds[rows] * n_columns + column, self._n_kinds * n_columns
        counts = np.bincount(at, minlength=size)
        tables = [add_counts(counts, self._communicator, self._n_rows)]
        if self._row_weight is not None:
            weight = np.bincount(at, self._row_weight[rows], size).astype(np.float64)
            tables.append(self._communicator.sum(weight))
        scores = self._scores[rows]
        ends = np.full((2 if self._magnitudes is None else 3, n_columns), -np.inf, scores.dtype)
        np.maximum.at(ends[0], column, -scores)  # The smallest one, with its sign changed.
        np.maximum.at(ends[1], column, scores)
        if self._magnitudes is not None:
            np.maximum.at(ends[2], column, self._magnitudes[rows])
        ends = np.max(self._communicator.gather(ends), axis=0).astype(np.float64)
        ends[0] = -ends[0]
        return np.reshape(tables, (len(tables), self._n_kinds, n_columns)), ends

    def split(self, is_open: Bool) -> ScoreHistogram:
        """Split some of the bins with rows, each into equally many."""
        bins = self.bins[is_open]
        parts = max(self._most_bins // bins.size, 2)
        inner = [edges_between(self.low[b], self.high[b], parts) for b in bins]
        edges = np.unique(np.concatenate([self.edges, *inner]))
        # The old bin of each new one, and the place of the new ones among those counted here.
        old = np.searchsorted(self.edges, np.append(edges, np.inf))
        is_new = np.isin(old, bins)
        place = np.cumsum(is_new) - 1
        bin_of_row = np.searchsorted(edges, self._scores)
        rows = np.flatnonzero(is_new[bin_of_row])
        tables, ends = self.tables[:, :, old], self._ends[:, old]
        tables[:, :, is_new], ends[:, is_new] = self._tabulate(
            place[bin_of_row[rows]], int(is_new.sum()), rows
        )
        other = copy.copy(self)
        other.__dict__.pop("line", None)
        other._fill(edges, tables, ends)
        return other


def add_counts(counts: Codes, communicator: Communicator, n_rows: int) -> Float:
    """Add numbers of rows of this machine up over all machines, which have so many rows."""
    packed = 2.0**26  # Below so many rows two counts travel in one number, of 53 bits.
    if n_rows >= packed:
        return communicator.sum(counts.astype(np.float64))
    padded: Float = np.append(counts, np.zeros(counts.size % 2)).astype(np.float64)
    first, second = np.split(padded, 2)
    both = communicator.sum(first + packed * second)
    second = np.floor(both / packed)
    return np.concatenate([both - packed * second, second])[: counts.size]


def edges_between(low: float, high: float, parts: int) -> Float:
    """Divide the floats from the lowest to the highest score into parts; list the inner edges."""
    ends, one = np.array([low, high]), np.float64(1.0).view(np.int64)
    # The position of floats in their order, by the bits of one plus their magnitude.
    bits = (1.0 + np.abs(ends)).view(np.int64) - one
    first, last = np.where(ends < 0, -bits, bits)
    position = np.rint(np.linspace(first, last, parts + 1))[1:-1].astype(np.int64)
    size = (np.abs(position) + one).view(np.float64) - 1.0
    edges = np.unique(np.where(position < 0, -size, size))
    return np.asarray(edges[(edges >= low) & (edges < high)])


class JointRows:
    """The rows of this machine by the joint cells that occur on any of the machines.

    Attributes
    ----------
    joint : JointCells
        The joint cells, and that of each row of this machine.
    weight : ndarray of shape (n_samples,) or None
        Weights of the rows of this machine, which add up without rounding; ones where None.
    communicator : Communicator
        Adds tables over machines.
    """

    def __init__(self, cells: Cells) -> None:
        self._cells, self.communicator, self.weight = cells, cells.communicator, cells.rows.weight
        codes, of_views = np.zeros(len(cells.rows), dtype=np.intp), np.zeros((1, 0), dtype=np.intp)
        for view in cells.views:
            joint = codes * len(view) + view.small_codes
            occurring, codes = np.unique(joint, return_inverse=True)
            own = occurring % len(view) + view.cells.start
            of_views = np.column_stack([of_views[occurring // len(view)], own])
        found = self.communicator.gather(of_views)
        united, position = np.unique(np.concatenate(found), axis=0, return_inverse=True)
        start = sum(map(len, found[: self.communicator.rank]))
        codes = np.ravel(position)[start : start + len(of_views)][codes]
        labels = cells.labels[united[:, 0]]
        self.joint = JointCells(codes, united, labels, cells.classes.size)

    def add(self, codes: Codes, n_codes: int) -> Float:
        """Add up the weights of the rows of all machines by a code of each row."""
        weight = np.bincount(codes, self.weight, n_codes)
        return self.communicator.sum(weight.astype(np.float64))

    def stand_in(self, joint_cells: Codes, weight: Float) -> Cells:
        """Make the cells of rows that stand for others, given the joint cell of each.

        Counts and weights of cells stay those of the rows that they stand for.
        """
        cells = copy.copy(self._cells)
        codes = self.joint.of_views[joint_cells]
        cells.views = tuple(
            View(codes[:, v] - view.cells.start, view.cells, view.levels)
            for v, view in enumerate(cells.views)
        )
        cells.rows = Rows(self.joint.labels[joint_cells], cells.classes, weight)
        cells.communicator = Communicator()
        cells.reduce_sum = cells.communicator.sum
        return cells


def list_thresholds(margin: Array, cells: Cells) -> ThresholdCandidates:
    """List thresholds of two classes, given margins and cells of the rows of this machine."""
    if cells.communicator.holds_all_rows:
        return ThresholdCandidates(margin, cells)
    rows = JointRows(cells)
    joint, one = rows.joint, cells.communicator
    return ScoreHistogram(
        np.asarray(margin), joint.codes, joint.labels, rows.weight, one, cells.n_rows, rows=rows
    )
