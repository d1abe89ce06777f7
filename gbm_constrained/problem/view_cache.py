"""Coefficients of rows from several views, by what constraints at work look at.

The coefficient of a row is the sum of entries of its cells in all views, and looking them up is
most of what a dual step with many constraints costs. A hundred constraints are in ten views; but
of these constraints some dozens are at work, and entries of a view differ by what those look at
alone. Views then share one partition, by these attributes, with the sum of their entries: one
look-up for several.

That holds where weights of cells are in one proportion to those that constraints were compiled
against. In folds they are not, and there each view is looked up by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.selectors import Key
from gbm_constrained.data.cells import VIEW_CELLS, Cells, View

# Relative difference of proportions that weights in single precision explain.
PROPORTION = 1e-6
IDLE = 2  # Packed constraints for one at work from which on partitions are made anew.


class _Shared:
    """One partition for several views.

    Attributes
    ----------
    keys : list of attribute keys
        What it is by.
    members : list of int
        The views.
    view : View or None
        The partition, once it is made.
    stand_ins : dict from int to ndarray of shape (n_cells of the partition,), intp
        For each of its cells one of each member.
    matrices : list of csr_array of shape (n_cells of the partition, m)
        The sums of the members' entries; none while they are to be made.
    """

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.members: list[int] = []
        self.view: View | None = None
        self.stand_ins: dict[int, Codes] = {}
        self.matrices: list[Any] = []


class WorkingViews:
    """Views as rows are looked up in them.

    Parameters
    ----------
    cells : Cells
        The cells.
    weight : ndarray of shape (n_cells,)
        Weight of each cell.
    matrices : sequence of csr_array of shape (n_cells, m)
        What a unit multiplier of each row of constraints adds to coefficients of each cell.
    owner : ndarray of shape (m,), intp
        The constraint that each of these belongs to.

    Attributes
    ----------
    packed : list of int
        The constraints whose attributes partitions are by, in the order that they are made in.
    """

    def __init__(self, cells: Cells, weight: Float, matrices: Sequence[Any], owner: Codes) -> None:
        self.cells = cells
        self.packed: list[int] = []
        self._matrices = matrices
        self._owner = owner
        self._filled = weight > 0
        self._looked_at: dict[int, list[Key]] = {}  # in each view
        # A cell of a view for each combination of these; that of each of its own cells.
        self._stand_ins: dict[int, tuple[Codes, Codes]] = {}
        self._shared: list[_Shared] = []
        self._are_shared = self._in_proportion(weight)
        self._alone = [
            (view, [matrix[view.cells] for matrix in matrices])
            for view in ([] if self._are_shared else cells.views)
        ]

    def _in_proportion(self, weight: Float) -> bool:
        """Whether cells of a label have, to what they had when compiled, one proportion."""
        cells, filled = self.cells, self._filled
        proportion = weight[filled] / cells.whole_weight[filled]
        kind = 2 * (cells.labels[filled] + 1) + cells.in_objective[filled]
        largest = np.zeros(kind.max(initial=0) + 1)
        np.maximum.at(largest, kind, proportion)
        return bool((proportion >= largest[kind] * (1.0 - PROPORTION)).all())

    def look_up(self, multipliers: Float) -> Iterator[tuple[View, list[Float]]]:
        """Give partitions whose entries of a row add up to its coefficients.

        Parameters
        ----------
        multipliers : ndarray of shape (m, k)
            Several vectors of multipliers.

        Yields
        ------
        view : View
            A partition.
        tables : list of ndarray of shape (n_cells of the partition, k)
            Its entries, of each of the matrices.
        """
        if self._are_shared:
            self._include(self._owner[multipliers.any(axis=1)])
        shared = ((s.view, s.matrices) for s in self._shared)
        for view, matrices in [*self._alone, *shared]:
            tables = [np.asarray(matrix @ multipliers) for matrix in matrices]
            if any(table.any() for table in tables):
                assert view is not None
                yield view, tables

    def pack(self, constraints: Sequence[int]) -> None:
        """Make partitions by what constraints look at, in this order, as if they came one by one.

        Parameters
        ----------
        constraints : sequence of int
            The constraints.
        """
        self.packed, self._looked_at, self._stand_ins, self._shared = [], {}, {}, []
        for j in constraints:
            self._place(j)
        self._make()

    def _include(self, at_work: Codes) -> None:
        """Take what constraints at work look at into account."""
        now = set(at_work.tolist())
        if new := sorted(now.difference(self.packed)):
            for j in new:
                self._place(j)
            self._make()
        elif len(self.packed) > IDLE * len(now):
            self.pack(sorted(now))

    def _place(self, j: int) -> None:
        """Find a partition for the view of a constraint, with what it looks at."""
        cells = self.cells
        self.packed.append(j)
        v = cells.view_of[j]
        keys = list(dict.fromkeys([*self._looked_at.get(v, cells.base), *cells.needs[j]]))
        if keys == self._looked_at.get(v):
            return
        self._looked_at[v] = keys
        self._stand_ins.pop(v, None)
        place = next((s for s in self._shared if v in s.members), None)
        if place is not None and not self._fits(place, keys):
            place.members.remove(v)
            place.matrices = []
            self._shared = [s for s in self._shared if s.members]
            place = None
        if place is None:
            place = next((s for s in self._shared if self._fits(s, keys)), None)
        if place is None:
            place = _Shared()
            self._shared.append(place)
        if v not in place.members:
            place.members.append(v)
        place.keys = list(dict.fromkeys([*place.keys, *keys]))
        place.matrices = []

    def _fits(self, place: _Shared, keys: Sequence[Key]) -> bool:
        """Whether a partition by further attributes is small enough; a first view always is."""
        union = list(dict.fromkeys([*place.keys, *keys]))
        return prod(self.cells.shape_of(union)) <= VIEW_CELLS

    def _make(self) -> None:
        """Make partitions that are not up to date."""
        for place in self._shared:
            if place.matrices:
                continue
            place.view = self.cells.divided(place.keys, place.view)
            place.stand_ins = {
                v: self._stand_ins_of(v)[0][self._combination(place.view, v)]
                for v in place.members
            }
            n = len(place.view)
            at = np.stack(list(place.stand_ins.values()), axis=1)
            ends = np.arange(n + 1) * len(place.members)
            sums = sparse.csr_array(
                (np.ones(at.size), at.ravel(), ends), shape=(n, len(self.cells))
            )
            place.matrices = [sums @ matrix for matrix in self._matrices]

    def _combination(self, view: View, v: int) -> Codes:
        """Give the number of what is looked at in a view for each cell of a partition by it."""
        keys = self._looked_at[v]
        levels = tuple(view.levels[key] for key in keys)
        return np.ravel_multi_index(levels, self.cells.shape_of(keys))

    def _stand_ins_of(self, v: int) -> tuple[Codes, Codes]:
        """Find a cell with rows for each combination of what is looked at in a view.

        And the one that stands for each of its own cells. The first cell of the view stands for
        combinations without rows.
        """
        if v not in self._stand_ins:
            view = self.cells.views[v]
            combination = self._combination(view, v)
            filled = np.flatnonzero(self._filled[view.cells])
            shape = self.cells.shape_of(self._looked_at[v])
            found = np.full(prod(shape), view.cells.start)
            found[combination[filled]] = filled + view.cells.start
            self._stand_ins[v] = found, found[combination]
        return self._stand_ins[v]

    def largest(self, table: NDArray[Any]) -> Iterator[tuple[View, NDArray[Any]]]:
        """Give partitions whose largest entry of a row is that of its cells in all views.

        Parameters
        ----------
        table : ndarray of shape (n_cells,)
            Any table. Views whose entries differ by more than what constraints at work look at
            are looked up by themselves.
        """
        told = {v for s in self._shared for v in s.members if self._is_told(v, table)}
        for v, view in enumerate(self.cells.views):
            if v not in told:
                yield view, table[view.cells]
        for place in self._shared:
            parts = [table[at] for v, at in place.stand_ins.items() if v in told]
            if parts:
                assert place.view is not None
                yield place.view, reduce(np.maximum, parts)

    def _is_told(self, v: int, table: NDArray[Any]) -> bool:
        """Whether entries of a view differ by what is looked at alone, where there are rows."""
        view = self.cells.views[v]
        differs = table[self._stand_ins_of(v)[1]] != table[view.cells]
        return not (differs & self._filled[view.cells]).any()
