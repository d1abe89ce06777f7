"""Lines of decisions where machines hold different rows: tables take the place of sorted rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.joint_rows import JointRows
from gbm_constrained.decision.lines import Line, are_apart, stop_at, with_no_shift
from gbm_constrained.decision.score_tables import ScoredKinds, ScoreTable


@dataclass(frozen=True, eq=False)
class LineTable:
    """The rows of all machines by kind and bin of their scores, from the highest bin down.

    Each entry with rows stands for them: they change their decision together. The candidates of
    the line are the shifts between two bins.

    Parameters
    ----------
    table : ScoreTable
        Counts and weights. A row changes its decision where the shift exceeds minus its score.
    before, after : ndarray of shape (n_kinds,) or int
        Decision of each kind at the beginning and at the end of the line.
    """

    table: ScoreTable
    before: Codes | int
    after: Codes | int

    def split(self, bins: Bool) -> Self:
        """Split some of the bins with rows."""
        return replace(self, table=self.table.split(self.bins[bins]))

    @cached_property
    def bins(self) -> Codes:
        """The bins with rows, from the highest one down."""
        return np.flatnonzero(self.table.count.any(axis=0))[::-1]

    @cached_property
    def _entries(self) -> tuple[Codes, Codes]:
        """Bin and kind of each entry with rows."""
        at, kinds = np.nonzero(self.table.count[:, self.bins].T)
        return self.bins[at], kinds

    @property
    def kinds(self) -> Codes:
        """Kind of the rows of each entry."""
        return self._entries[1]

    @property
    def weight(self) -> Float:
        """Sum of the weights of the rows of each entry."""
        bins, kinds = self._entries
        return np.asarray(self.table.weight[kinds, bins])

    @cached_property
    def scores(self) -> Float:
        """Largest score of the rows of each entry."""
        return np.asarray(self.table.high[self._entries[0]])

    @cached_property
    def count(self) -> Codes:
        """Number of rows of each entry."""
        bins, kinds = self._entries
        return np.asarray(self.table.count[kinds, bins], dtype=np.intp)

    def count_rows(self, line: Line) -> Codes:
        """Count the rows that have changed their decision at each candidate of a line."""
        changed: Codes = np.concatenate([[0], np.cumsum(self.count)])
        return changed[line.flipped]

    @property
    def line(self) -> Line:
        """The candidates between bins."""
        at = self._ends
        cut = 2 * np.flatnonzero(self._are_apart[1::2]) + 1
        return replace(
            self.stops,
            shift=stop_at(at, cut),
            flipped=self.stops.flipped[[0, *(cut + 1) // 2, -1]],
        )

    @property
    def thresholds(self) -> Line:
        """The same of two classes, no shift among them."""
        return with_no_shift(self.line, int(np.count_nonzero(self.scores > 0)))

    @cached_property
    def stops(self) -> Line:
        """The line with a stop between any two bins, whether or not a candidate fits there."""
        n_entries = np.count_nonzero(self.table.count[:, self.bins], axis=0)
        flipped = np.concatenate([[0], np.cumsum(n_entries)])
        before, after = (
            of_kinds if isinstance(of_kinds, int) else of_kinds[self.kinds]
            for of_kinds in (self.before, self.after)
        )
        return Line(np.arange(flipped[-1]), before, after, np.zeros(flipped.size), flipped)

    @property
    def may_be_split(self) -> Bool:
        """Whether a candidate may lie inside of each bin with rows."""
        return self._are_apart[::2]

    @property
    def least_shift(self) -> Float:
        """Smallest magnitude of a shift inside of each bin with rows."""
        return np.asarray(np.abs(self._ends).reshape(-1, 2).min(axis=1))

    @cached_property
    def _ends(self) -> Float:
        """Shifts at which the first and the last row of each bin change their decision."""
        return -np.stack([self.table.high[self.bins], self.table.low[self.bins]], axis=1).ravel()

    @cached_property
    def _are_apart(self) -> Bool:
        """Whether these shifts are so far apart that a candidate lies between them."""
        size = self.table.size
        of_ends = np.abs(self._ends) if size is None else np.repeat(size[self.bins], 2)
        return are_apart(self._ends, of_ends, int(self.table.count.sum()))


@dataclass(frozen=True, eq=False)
class MarginTable(LineTable):
    """A table of the margins of two classes, whose kinds are joint cells."""

    rows: JointRows

    @classmethod
    def of(cls, margin: Array, cells: Cells) -> MarginTable:
        """Count the rows of all machines, given margins and cells of those of this one."""
        rows, scores = JointRows(cells), np.asarray(margin)
        joint, machines, n_rows = rows.joint, cells.communicator, cells.n_rows
        kinds = ScoredKinds(scores, joint.codes, joint.labels, rows.weight, None, machines, n_rows)
        return cls(ScoreTable.of(kinds), 0, 1, rows)

    @cached_property
    def cells(self) -> Cells:
        """Cells of the entries, which have the weights of their rows."""
        return self.rows.stand_in(self.kinds, self.weight)
