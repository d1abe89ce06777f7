"""Coefficients of row kernels from multipliers, by cell or by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import compress
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.data.cells import View
from gbm_constrained.data.devices import array_module, look_up
from gbm_constrained.problem.kernels.proxies import PROXIES, ProxyName
from gbm_constrained.problem.kernels.tables import BinaryRowTables, KernelTables, RowTables
from gbm_constrained.problem.problem_rows import ProblemRows
from gbm_constrained.problem.view_cache import ViewCache


def _rank_entries(table: Float) -> tuple[Array, Array]:
    """Find the sorted distinct entries of a table, and the rank of each, in the smallest type."""
    low, high = table.min(), table.max()
    is_high = table == high
    if (is_high | (table == low)).all():  # The usual case needs no sorting.
        return np.array([low, high]), is_high.view(np.uint8)
    levels, ranks = np.unique(table, return_inverse=True)
    return levels, ranks.astype(np.min_scalar_type(levels.size))


class RowCoefficients:
    """Tables of coefficients that the kernels of all rows look up."""

    def __init__(self, problem: ProblemRows) -> None:
        self.problem = problem
        self._row_tables: BinaryRowTables | None = None
        self._ranks: list[tuple[View, bytes, Array]] = []
        self.forget()

    def forget(self) -> None:
        """Forget all tables, whose precision has changed."""
        self._tables: tuple[Float, Any] | None = None
        self._row_tables = None
        self._entries: tuple[bytes, Array] | None = None

    def tables(self, multipliers: Float) -> Any:
        """Compute the coefficients of the row kernels of ``W (f + <y, g>)``."""
        if self._tables is None or not np.array_equal(multipliers, self._tables[0]):
            self._tables = (multipliers.copy(), self._make_tables(multipliers))
        return self._tables[1]

    def _make_tables(self, multipliers: Float) -> KernelTables | BinaryRowTables:
        problem = self.problem
        if problem.has_several_views:
            binary = problem.n_classes == 2
            return (self._binary_row_tables if binary else self._several_row_tables)(multipliers)
        first = problem.cells.views[0].cells  # Views of idle constraints follow.
        shape = (len(problem.cells), problem.n_classes)
        costs: dict[ProxyName, Array] = {}
        with_proxy: dict[ProxyName, Bool] = {
            "logistic": ~problem.is_bounded,
            problem.bounded_proxy: problem.is_bounded,
        }
        for name, rows in with_proxy.items():
            of_proxy = problem.constraints.costs(np.where(rows, multipliers, 0.0)).reshape(shape)
            costs[name] = (problem.density[:, None] * of_proxy)[first]
        loss = problem.density * problem.constraints.loss_costs(multipliers)
        labels = np.maximum(problem.cells.labels, 0)
        in_objective = problem.cells.in_objective[first]
        return self._kernel_tables(KernelTables, costs, loss[first], labels[first], in_objective)

    def _kernel_tables(
        self,
        kind: type[KernelTables],
        costs: Mapping[ProxyName, Array],
        loss: Array,
        labels: Array,
        in_objective: Array,
    ) -> KernelTables:
        """Make tables of cells, or of rows that are each its own cell, from costs by proxy."""
        clipped = loss if np.isfinite(self.problem.cap) else np.zeros_like(loss)
        positions = array_module(loss).arange(labels.size)
        parts = [PROXIES[name].coefficients(of_proxy) for name, of_proxy in costs.items()]
        target, cost = (reduce(np.add, tables) for tables in zip(*parts, strict=True))
        target[positions, labels] += in_objective + loss - clipped
        return kind(target, cost, clipped, labels, self.problem.dtype)

    def _several_row_tables(self, multipliers: Float) -> KernelTables:
        """Make tables of more than two classes and several views."""
        problem, K = self.problem, self.problem.n_classes
        width = 2 * K + 1
        xp = problem.array_module
        sums = xp.empty((problem.n_samples, width), dtype=problem.dtype)
        for rows, total in self._sum_by_block(self._parts(multipliers, [True] * width), width):
            sums[rows] = total
        costs: dict[ProxyName, Array] = {
            "logistic": sums[:, :K],
            problem.bounded_proxy: sums[:, K:-1],
        }
        in_objective = xp.asarray(problem.cells.in_objective)[problem.cells.codes]
        return self._kernel_tables(
            RowTables, costs, sums[:, -1], problem.label_of_row, in_objective
        )

    def _binary_row_tables(self, multipliers: Float) -> BinaryRowTables:
        """Make tables of two classes and several views, in place of the last ones."""
        problem = self.problem
        if self._row_tables is None:
            self._row_tables = BinaryRowTables(problem.labels)
        t, clips = self._row_tables, bool(np.isfinite(problem.cap))
        at_work = multipliers != 0
        present = [
            bool((at_work & ~problem.is_bounded).any()),
            bool((at_work & problem.is_bounded).any()),
            bool(problem.has_loss_by_cell and at_work.any()),
        ]
        parts = self._parts(multipliers, present)
        # The other label is a target only where predicting the row's own label has a cost.
        has_other = present[0] and any(
            (table[:, 0] * np.where(view.levels["label"] == 1, 1, -1) > 0).any()
            for view, table in parts
        )
        t.begin((has_other, present[1], present[2] and clips))
        for rows, total in self._sum_by_block(parts, sum(present)):
            found = iter(total.T)
            rate, bounded, losses = (next(found) if is_there else None for is_there in present)
            own = 1.0 if problem.row_in_objective is None else problem.row_in_objective[rows]
            if losses is not None and not clips:
                own = own + losses
            t.fill(rows, own, rate, bounded, losses if clips else None)
        return t

    @cached_property
    def views(self) -> ViewCache:
        """Views with what a unit multiplier adds to the coefficients of a cell.

        There is a matrix for the cost of each class (for their difference if there are two), and
        one for the loss.
        """
        problem = self.problem
        scale = sparse.diags_array(problem.density)
        A, K = problem.constraints.A, problem.n_classes
        costs = [A[:, k::K] for k in range(K)]
        added = [costs[1] - costs[0]] if K == 2 else costs
        if problem.has_loss_by_cell:
            added.append(problem.constraints.B)
        matrices = [sparse.csr_array(scale @ of_rows.T) for of_rows in added]
        return ViewCache(problem.cells, problem.cell_weight, matrices, problem.constraints.owner)

    def _parts(self, multipliers: Float, wanted: Sequence[bool]) -> list[tuple[View, Array]]:
        """Compute tables of coefficients by partition, with the columns that are wanted.

        The columns are costs under the logistic proxy (of each class, or the difference of two),
        the same under the bounded proxy, and the coefficient of the loss.
        """
        problem, parts = self.problem, []
        of_proxy = np.column_stack([~problem.is_bounded, problem.is_bounded])
        by_proxy = of_proxy * multipliers[:, None]
        for view, tables in self.views.look_up(by_proxy):
            has_loss = problem.has_loss_by_cell
            loss = tables.pop().sum(axis=1) if has_loss else np.zeros(len(view))
            columns = [*(costs[:, proxy] for proxy in (0, 1) for costs in tables), loss]
            table = np.column_stack(list(compress(columns, wanted)))
            parts.append((view, table.astype(problem.dtype)))
        return parts

    def _sum_by_block(
        self, parts: Sequence[tuple[View, Array]], width: int
    ) -> Iterator[tuple[slice, Array]]:
        """Sum `width` columns of coefficients over partitions, block by block."""
        xp = self.problem.array_module
        for rows in self.problem.blocks():
            total = xp.empty((rows.stop - rows.start, width), dtype=self.problem.dtype)
            found = np.empty_like(total)
            if not parts:
                total.fill(0.0)
            for i, (view, table) in enumerate(parts):
                if i == 0:
                    total = view.weigh(view.look_up(table, rows, total), rows)
                else:
                    total += view.weigh(view.look_up(table, rows, found), rows)
            yield rows, total

    def codes(self, rows: slice) -> Any:
        """Find the keys by which kernels look up a block of rows."""
        if self.problem.has_several_views:
            return rows
        return self.problem.cells.views[0].small_codes[rows]

    def per_row(self, table: Float) -> Array:
        """Look up a table of cells for each row, shaped to multiply scores.

        In several views a row has the largest entry of its cells.
        """
        key = table.tobytes()
        if self._entries is None or self._entries[0] != key:
            levels, ranks = _rank_entries(table)
            largest = self._largest(ranks)
            levels = levels.astype(self.problem.dtype)
            low, step = levels[0], levels[-1] - levels[0]
            if levels.size == 2 and low + step == levels[1]:  # Faster than a look-up.
                found = np.multiply(largest, step, dtype=self.problem.dtype)
                found += low
            else:
                found = look_up(levels, largest)
            self._entries = (key, np.broadcast_to(found, (self.problem.n_samples,)))
        entries = self._entries[1]
        return entries if self.problem.n_classes == 2 else entries[:, None]

    def _largest(self, ranks: Array) -> Array:
        """Find the largest rank of each row's cells; one entry if all rows agree.

        Ranks by row are kept for views whose table has not changed since the last iteration.
        """
        found, xp = [], self.problem.array_module
        for view, part in self.views.largest(ranks):
            key = part.tobytes()
            known = [kept for of, was, kept in self._ranks if of is view and was == key]
            of_rows = known[0] if known else xp.asarray(part[:1])
            if not known and (part != part[0]).any():
                of_rows = xp.empty(self.problem.n_samples, dtype=ranks.dtype)
                for rows in self.problem.blocks():
                    view.look_up(part, rows, of_rows[rows])
            found.append((view, key, of_rows))
        self._ranks = found
        largest = reduce(np.maximum, (of_rows for _, _, of_rows in found))
        return largest[:1] if (largest == largest[:1]).all() else largest
