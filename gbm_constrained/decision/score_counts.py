"""Decisions counted along sorted scores."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.lines import Line

BLOCK = 4096  # Rows of one running sum: few enough for its rounding to stay below ROUNDING.
ROWS_AT_ONCE = 64  # Rows of constraints measured at once: with BLOCK candidates they fit a cache.
ENTRIES = 1 << 22  # Numbers in a table: 32 MB.


class DecisionCounts:
    """Count decisions on some rows by cell and class."""

    def __init__(self, cells: Cells) -> None:
        self.cells, self.weight = cells, cells.rows.weight
        self.n_classes = int(cells.classes.size)
        self.mass = cells.total(self.weight)
        with np.errstate(divide="ignore"):
            self.density = np.where(self.mass > 0, 1.0 / self.mass, 0.0)
        cost = np.where(cells.labelled, cells.class_weight[cells.labels], 0.0)
        total = cost @ self.mass
        # A wrong decision on a row of weight one adds the cost of its cell to the error.
        self.cost = cost / total if total > 0 else np.zeros_like(cost)

    def errors(self, decided: Codes) -> Float:
        """Compute the part of each row in the error."""
        cells = self.cells.views[0].codes
        errors = np.where(decided != self.cells.labels[cells], self.cost[cells], 0.0)
        return errors if self.weight is None else errors * self.weight

    def fractions(self, decided: Codes) -> Float:
        """Compute the weighted fraction of each cell decided as each class.

        Empty cells count as decided as the first class.
        """
        k, size = self.n_classes, self.mass.size * self.n_classes
        table = np.zeros(size)
        for view in self.cells.views:
            table += np.bincount(view.codes * k + decided, view.weigh(self.weight), size)
        table = table.reshape(-1, k) * self.density[:, None]
        table[:, 0] = 1.0 - table[:, 1:].sum(axis=1)
        return table


class FunctionalsAlongLine:
    """Compute the error, and linear maps of predicted fractions, along a line.

    `coefficients` are those of the predicted fractions, csr_array of shape (r, n_cells *
    n_classes).
    """

    def __init__(self, decisions: DecisionCounts, coefficients: Any) -> None:
        self.decisions = decisions
        views, k = decisions.cells.views, decisions.n_classes
        self.views = views
        self.size = coefficients.shape[0] + 1
        per_weight = self._per_weight(coefficients)
        self.codes = [view.codes - view.cells.start for view in views]
        # Of each view, the values it has a part in, and the coefficients.
        self.parts: list[tuple[int, Codes, Any]] = []
        for v, view in enumerate(views):
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

    def on(self, decisions: DecisionCounts) -> FunctionalsAlongLine:
        """Return the same values of decisions on other rows, whose cells weigh the same."""
        other = copy.copy(self)
        other.decisions = decisions
        other.views = decisions.cells.views
        other.codes = [view.codes - view.cells.start for view in decisions.cells.views]
        return other

    def _per_weight(self, coefficients: Any) -> Any:
        """Scale coefficients to sums of weights, the error first; an array if they are few.

        To take a sparse matrix apart takes longer than all else that a search does on few rows.
        """
        decisions = self.decisions
        wrong = np.arange(decisions.n_classes) != decisions.cells.labels[:, None]
        error = (decisions.cost[:, None] * wrong).reshape(1, -1)
        density = np.repeat(decisions.density, decisions.n_classes)
        if self.size * density.size <= BLOCK:
            return np.concatenate([error, coefficients.toarray() * density])
        scaled = coefficients.multiply(density[None])
        return sparse.csc_array(sparse.vstack([sparse.csr_array(error), scaled]))

    def measure(self, decided: Codes) -> Float:
        """Compute the values of some decisions, shape (1 + r,); the error comes first."""
        values = np.zeros(self.size)
        k, weight = self.decisions.n_classes, self.decisions.weight
        for v, members, table in self.parts:
            at = self.codes[v] * k + decided
            weighed = self.views[v].weigh(weight)
            values[members] += table @ np.bincount(at, weighed, table.shape[1])
        return values

    def along(self, line: Line) -> Iterator[tuple[slice, Float]]:
        """Yield consecutive candidates of a line with their values, shape (1 + r, candidates)."""
        n = line.order.size
        values = self.measure(np.broadcast_to(line.before, n))
        done = int(np.searchsorted(line.flipped, 0, side="right"))
        if done:
            yield slice(0, done), np.repeat(values[:, None], done, axis=1)
        for start in range(0, n, BLOCK):
            running = self._changes(line, line.order[start : start + BLOCK])
            np.cumsum(running, axis=1, out=running)
            running += values[:, None]
            values = running[:, -1].copy()
            stop = int(np.searchsorted(line.flipped, start + running.shape[1], side="right"))
            if stop > done:
                yield slice(done, stop), running[:, line.flipped[done:stop] - start - 1]
            done = stop

    def between(self, line: Line) -> Iterator[tuple[Float, Float]]:
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

    def _changes(self, line: Line, rows: Codes) -> Float:
        """Compute the change of each value when each of the rows changes its decision."""
        changes = np.zeros((self.size, rows.size))
        before = line.before if isinstance(line.before, int) else line.before[rows]
        after = line.after if isinstance(line.after, int) else line.after[rows]
        for v, members, table in self.parts:
            first = self.codes[v][rows] * self.decisions.n_classes
            part = _columns(table, first + after)
            part -= _columns(table, first + before)
            part = self.views[v].weigh(part.T, rows).T
            if members.size == self.size:
                changes = part
            else:
                changes[members] += part
        if self.decisions.weight is not None:
            changes *= self.decisions.weight[rows]
        return changes


def _columns(table: Any, at: Codes) -> Float:
    if isinstance(table, np.ndarray):
        return np.take(table, at, axis=1)
    return np.asarray(table[:, at].toarray())
