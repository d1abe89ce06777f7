"""Coefficients of rows from several views, shared by the attributes of active constraints.

The coefficient of a row is the sum of entries of its cells in all views, and these look-ups are
most of the cost of a dual step with many constraints. A hundred constraints are in ten views, but
only some dozens are active, that is, have a multiplier above zero. The entries of a view then
differ only by the attributes of its active constraints. Several views share one partition by these
attributes, with the sum of their entries, and one look-up.

Shared partitions need weights of cells in one proportion to those that constraints were compiled
against. In folds the proportions differ, and each view is looked up by itself. On a graphics card
a look-up costs less than a partition, and each view is looked up by itself as well. So are views
beside one whose rows count for amounts, by which their entries are multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.selectors import Key
from gbm_constrained.data.cells import VIEW_CELLS, Cells, View

# Relative difference of proportions that is due to weights in single precision.
PROPORTION = 1e-6
# Constraints that partitions are made for, over the active ones, above which they are made anew.
MAX_PACKED_RATIO = 2


@dataclass(eq=False)
class _SharedPartition:
    """One partition for several views.

    Attributes
    ----------
    keys : Attributes that the rows are divided by.
    members : Positions of the views.
    view : The partition, once it is made.
    representatives : For each member, one of its cells for each cell of the partition.
    matrices : (n_cells of the partition, m). Sums of the members' entries; empty while outdated.
    """

    keys: list[Key] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    view: View | None = None
    representatives: dict[int, Codes] = field(default_factory=dict)
    matrices: list[Any] = field(default_factory=list)


class ViewCache:
    """Partitions that rows are looked up in, shared by several views where possible.

    Parameters
    ----------
    cells : Partitions of the rows, with their views.
    weight : (n_cells,). Weight of each cell.
    matrices : (n_cells, m). What a unit multiplier of each row of constraints adds to coefficients
        of each cell.
    owner : (m,). Constraint of each of these rows.

    Attributes
    ----------
    packed : Constraints that the partitions are made for, in order.
    """

    def __init__(self, cells: Cells, weight: Float, matrices: Sequence[Any], owner: Codes) -> None:
        self.cells = cells
        self.packed: list[int] = []
        self._matrices = matrices
        self._owner = owner
        self._filled = weight > 0
        self._active_keys: dict[int, list[Key]] = {}  # of each view
        # A cell of a view for each combination of these; that of each of its own cells.
        self._representatives: dict[int, tuple[Codes, Codes]] = {}
        self._shared: list[_SharedPartition] = []
        is_on_host = isinstance(cells.views[0].small_codes, np.ndarray)
        self._are_shared = is_on_host and not cells.has_amounts and self._is_in_proportion(weight)
        self._alone = [
            (view, [matrix[view.cells] for matrix in matrices])
            for view in ([] if self._are_shared else cells.views)
        ]

    def _is_in_proportion(self, weight: Float) -> bool:
        """Whether weights of cells of one label are in one proportion to those when compiled."""
        cells, filled = self.cells, self._filled
        proportion = weight[filled] / cells.whole_weight[filled]
        kind = 2 * (cells.labels[filled] + 1) + cells.in_objective[filled]
        largest = np.zeros(kind.max(initial=0) + 1)
        np.maximum.at(largest, kind, proportion)
        return bool((proportion >= largest[kind] * (1.0 - PROPORTION)).all())

    def look_up(self, multipliers: Float) -> Iterator[tuple[View, list[Float]]]:
        """Iterate over partitions and tables whose entries add up to the coefficients of a row.

        The multipliers are k vectors, (m, k); each matrix has a table, (n_cells, k).
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
        """Make partitions for constraints in this order, as if they became active one by one."""
        self.packed, self._active_keys, self._representatives, self._shared = [], {}, {}, []
        for j in constraints:
            self._place(j)
        self._make()

    def _include(self, active: Codes) -> None:
        """Add the attributes of active constraints to the partitions."""
        now = set(active.tolist())
        if new := sorted(now.difference(self.packed)):
            for j in new:
                self._place(j)
            self._make()
        elif len(self.packed) > MAX_PACKED_RATIO * len(now):
            self.pack(sorted(now))

    def _place(self, j: int) -> None:
        """Find a partition for the view of a constraint, and add the constraint's attributes."""
        cells = self.cells
        self.packed.append(j)
        v = cells.view_of[j]
        keys = list(dict.fromkeys([*self._active_keys.get(v, cells.base), *cells.needs[j]]))
        if keys == self._active_keys.get(v):
            return
        self._active_keys[v] = keys
        self._representatives.pop(v, None)
        place = next((s for s in self._shared if v in s.members), None)
        if place is not None and not self._fits(place, keys):
            place.members.remove(v)
            place.matrices = []
            self._shared = [s for s in self._shared if s.members]
            place = None
        if place is None:
            place = next((s for s in self._shared if self._fits(s, keys)), None)
        if place is None:
            place = _SharedPartition()
            self._shared.append(place)
        if v not in place.members:
            place.members.append(v)
        place.keys = list(dict.fromkeys([*place.keys, *keys]))
        place.matrices = []

    def _fits(self, place: _SharedPartition, keys: Sequence[Key]) -> bool:
        """Whether a partition by further attributes is small enough."""
        union = list(dict.fromkeys([*place.keys, *keys]))
        return prod(self.cells.shape_of(union)) <= VIEW_CELLS

    def _make(self) -> None:
        """Make partitions that are outdated."""
        for place in self._shared:
            if place.matrices:
                continue
            place.view = self.cells.divide(place.keys, place.view)
            place.representatives = {
                v: self._find_representatives(v)[0][self._combination(place.view, v)]
                for v in place.members
            }
            n = len(place.view)
            at = np.stack(list(place.representatives.values()), axis=1)
            ends = np.arange(n + 1) * len(place.members)
            sums = sparse.csr_array(
                (np.ones(at.size), at.ravel(), ends), shape=(n, len(self.cells))
            )
            place.matrices = [sums @ matrix for matrix in self._matrices]

    def _combination(self, view: View, v: int) -> Codes:
        """Find the combination of a view's active attributes of each cell of a partition."""
        keys = self._active_keys[v]
        levels = tuple(view.levels[key] for key in keys)
        return np.ravel_multi_index(levels, self.cells.shape_of(keys))

    def _find_representatives(self, v: int) -> tuple[Codes, Codes]:
        """Find a cell with rows for each combination of a view's active attributes.

        The second array is the representative of each cell of the view. The first cell of the view
        represents combinations without rows.
        """
        if v not in self._representatives:
            view = self.cells.views[v]
            combination = self._combination(view, v)
            filled = np.flatnonzero(self._filled[view.cells])
            shape = self.cells.shape_of(self._active_keys[v])
            found = np.full(prod(shape), view.cells.start)
            found[combination[filled]] = filled + view.cells.start
            self._representatives[v] = found, found[combination]
        return self._representatives[v]

    def largest(self, table: NDArray[Any]) -> Iterator[tuple[View, NDArray[Any]]]:
        """Iterate over partitions and tables whose largest entry is that of a row's cells.

        A view whose entries differ by other attributes than active ones is looked up by itself.
        """
        members = (v for place in self._shared for v in place.members)
        shared = {v for v in members if self._depends_on_active_keys(v, table)}
        for v, view in enumerate(self.cells.views):
            if v not in shared:
                yield view, table[view.cells]
        for place in self._shared:
            parts = [table[at] for v, at in place.representatives.items() if v in shared]
            if parts:
                assert place.view is not None
                yield place.view, reduce(np.maximum, parts)

    def _depends_on_active_keys(self, v: int, table: NDArray[Any]) -> bool:
        """Whether entries of cells with rows differ by active attributes of a view alone."""
        view = self.cells.views[v]
        differs = table[self._find_representatives(v)[1]] != table[view.cells]
        return not (differs & self._filled[view.cells]).any()
