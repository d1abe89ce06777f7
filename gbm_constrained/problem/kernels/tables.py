"""Coefficients of kernels by cell, looked up by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from gbm_constrained._typing import Array
from gbm_constrained.data.devices import address_of, array_module, look_up
from gbm_constrained.problem.kernels.base import LOG2, over_classes


@dataclass(frozen=True)
class KernelTables:
    """Coefficients of the row kernel of every cell, with what kernels derive from them.

    Parameters
    ----------
    target : (n_cells, n_classes). Soft targets T, non-negative.
    cost : (n_cells, n_classes). Expected-cost coefficients Q.
    clipped : (n_cells,). Coefficients of the clipped cross-entropy min(-log p_label, cap), whose
        gradient is zero beyond the cap.
    cell_labels : (n_cells,). The class index of each cell.
    dtype : Precision of what :meth:`rows` returns.
    """

    target: Array
    cost: Array
    clipped: Array
    cell_labels: Array
    dtype: np.dtype[Any]
    _looked_up: dict[tuple[bytes, int, int], Array] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _by_sign: dict[bytes, tuple[float, float] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def label_target(self) -> Array:
        """T at the cell's own label, (n_cells,)."""
        found: Array = self.target[self._positions, self.cell_labels]
        return found

    @cached_property
    def other_target(self) -> Array:
        """T with zeros at the cell's own label, (n_cells, n_classes)."""
        other = self.target.copy()
        other[self._positions, self.cell_labels] = 0.0
        return other

    @cached_property
    def _positions(self) -> Array:
        """Positions of the cells, (n_cells,)."""
        found: Array = array_module(self.target).arange(self.cell_labels.size)
        return found

    @cached_property
    def margin_cost(self) -> Array:
        """Binary: cost of predicting 1 over predicting 0, (n_cells,)."""
        found: Array = self.cost[:, 1] - self.cost[:, 0]
        return found

    @cached_property
    def signed_target(self) -> Array:
        """Binary: minus T at the cell's own label, times that label's sign, (n_cells,)."""
        return np.where(self.cell_labels > 0, -self.label_target, self.label_target)

    @cached_property
    def signed_other(self) -> Array:
        """Binary: T at the other label, times the sign of the cell's own, (n_cells,)."""
        return np.where(self.cell_labels > 0, self.other_total, -self.other_total)

    @cached_property
    def curvature(self) -> Array:
        """Factor of ``p (1 - p)`` in the Hessian majoriser, (n_cells,)."""
        return over_classes(np.add, np.abs(self.target))

    @cached_property
    def parts(self) -> tuple[bool, bool, bool]:
        """Whether there is a target of another label, an expected cost, a clipped loss."""
        return bool(self.other_target.any()), bool(self.cost.any()), bool(self.clipped.any())

    @cached_property
    def total_target(self) -> Array:
        """Sum of T over classes, (n_cells,)."""
        return over_classes(np.add, self.target)

    @cached_property
    def other_total(self) -> Array:
        """Sum of T over the classes other than the cell's own, (n_cells,)."""
        return over_classes(np.add, self.other_target)

    @cached_property
    def cost_range(self) -> Array:
        """Range of Q over classes, (n_cells,)."""
        found: Array = np.ptp(self.cost, axis=1)
        return found

    def rows(self, table: Array, codes: Any) -> Array:
        """Look up a table of cells for each row; a one-dimensional constant becomes shape ()."""
        if table.ndim == 1 and (table == table[0]).all():
            return np.asarray(table[0], dtype=self.dtype)[()]
        found: Array = look_up(table.astype(self.dtype), codes)
        return found

    def kept_rows(self, table: Array, codes: Any) -> Array:
        """Look up a one-dimensional table once for all rounds with the same multipliers.

        The codes of a block must be in the same memory each time, and the result is read-only.
        """
        key = (table.tobytes(), address_of(codes), codes.size)
        if key not in self._looked_up:
            self._looked_up[key] = self.rows(table, codes)
        return self._looked_up[key]

    def by_sign(self, table: Array) -> tuple[float, float] | None:
        """Find (u, v) with ``table = u + v s``, s the signs of labels; None if there are none."""
        key = table.tobytes()
        if key not in self._by_sign:
            of_label = [table[self.cell_labels == k] for k in (0, 1)]
            low, high = (float(entries[0]) for entries in of_label)
            found = (of_label[0] == low).all() and (of_label[1] == high).all()
            self._by_sign[key] = ((high + low) / 2, (high - low) / 2) if found else None
        return self._by_sign[key]


class RowTables(KernelTables):
    """Tables in which every row is its own cell, for several classes in several views."""

    def rows(self, table: Array, codes: Any) -> Array:
        """Take the block of rows."""
        found: Array = table[codes]
        return found

    kept_rows = rows

    def by_sign(self, table: Array) -> tuple[float, float] | None:
        """Find nothing: entries differ from row to row."""
        return None


class BinaryRowTables:
    """Tables that a binary kernel reads, in which every row is its own cell.

    Entries are written block by block, so that they stay in cache: with a hundred constraints they
    are most of the cost of a dual step. Labels are signs, in the dtype of the entries, and the
    other attributes are those of :class:`KernelTables`. The curvature is written only where there
    is a target of another label.
    """

    def __init__(self, labels: Array) -> None:
        self.labels = labels
        self.signed_target = np.empty_like(labels)
        self.curvature = np.empty_like(labels)
        # The pages of these zeros take no memory until something is written to them.
        self.signed_other: Array
        self.margin_cost: Array
        self.clipped: Array
        self.signed_other, self.margin_cost, self.clipped = (
            array_module(labels).zeros(labels.shape, dtype=labels.dtype) for _ in range(3)
        )
        self.parts = (False, False, False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the entries."""
        return np.dtype(self.labels.dtype)

    def begin(self, parts: tuple[bool, bool, bool]) -> None:
        """Set the parts that are written next; the others become zero."""
        filled = (self.signed_other, self.margin_cost, self.clipped)
        for table, was, is_ in zip(filled, self.parts, parts, strict=True):
            if was and not is_:
                table.fill(0.0)
        self.parts = parts

    def fill(
        self, rows: slice, own: Array | float, rate: Array | None, cost: Array | None, clipped: Any
    ) -> None:
        """Write a block of rows.

        `own` is the target of the rows' own label but for rates; `rate` and `cost` are costs of
        predicting 1 over predicting 0, under the logistic and a bounded proxy.
        """
        labels, target = self.labels[rows], self.signed_target[rows]
        signed_own = labels if isinstance(own, float) and own == 1.0 else labels * own
        if rate is None:
            np.negative(signed_own, out=target)
        elif not self.parts[0]:
            np.multiply(rate, 1.0 / LOG2, out=target)
            target -= signed_own
        else:
            # Predicting the row's label costs c = rate times label. The part (c + |c|) / 2 is a
            # target of the other label, and (c - |c|) / 2 one of its own; here times the label.
            half = rate * (0.5 / LOG2)
            size = np.abs(half)
            size *= labels
            other = np.add(half, size, out=self.signed_other[rows])
            np.subtract(half, size, out=target)
            target -= signed_own
            np.add(np.abs(target, out=half), np.abs(other, out=size), out=self.curvature[rows])
        if cost is not None:
            self.margin_cost[rows] = cost
        if clipped is not None:
            self.clipped[rows] = clipped

    @property
    def label_target(self) -> Array:
        """T at the row's own label."""
        return -self.labels * self.signed_target

    @property
    def other_total(self) -> Array:
        """T at the other label."""
        return self.labels * self.signed_other

    @property
    def total_target(self) -> Array:
        """Sum of T over classes."""
        return self.label_target + self.other_total

    @property
    def cost(self) -> Array:
        """Expected-cost coefficients, counted from those of the first class; (n_samples, 2)."""
        return np.stack([np.zeros_like(self.margin_cost), self.margin_cost], axis=1)

    def rows(self, table: Array, codes: slice) -> Array:
        """Take the block of rows."""
        found: Array = table[codes]
        return found

    kept_rows = rows

    def by_sign(self, table: Array) -> tuple[float, float] | None:
        """Find nothing: entries differ from row to row."""
        return None


BinaryTables: TypeAlias = KernelTables | BinaryRowTables
