"""Partitions of rows into cells, and statistics of cells.

A function of numpy hands arrays of CuPy to CuPy. The code of the kernels therefore names numpy
alone. Only where an array is made, or is moved from one memory to the other, is the module of its
rows asked for. Arrays with an entry for each row stay on the card, and tables with an entry for
each cell stay in main memory.

A cell is a set of rows that share every attribute a constraint depends on: the label, each
grouping column, the membership in a mask or a named data set, another model's decision. Every rate
is a linear map of two tables of cell statistics,

- ``predicted`` (n_cells, n_classes): weighted fraction of the cell predicted as each class;
- ``clipped_loss`` (n_cells,): weighted mean cross-entropy of the cell,

or of the tables of pairs of cells, ``pairs``, and of mean residuals, ``residuals``. The gradient
of a Lagrangian is a cell's coefficient times a row's kernel, whatever the number of constraints.

One partition by all attributes has as many cells as the attributes have combinations. Constraints
are therefore spread over several partitions, the *views*, each by few attributes. A constraint
lives in one view, and the coefficient of a row is the sum of those of its cells. Usually one view
is enough.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.selectors import Amount, Key, Levels, Selector
from gbm_constrained.data.rows import Rows


def array_module(x: Any) -> Any:
    """Find the module that makes arrays of the kind of `x`: numpy or CuPy."""
    return np if isinstance(x, np.ndarray) else sys.modules[type(x).__module__.partition(".")[0]]


def to_host(x: Any) -> Array:
    """Copy an array to main memory, unless it is there."""
    return x if isinstance(x, np.ndarray) else np.asarray(x.get())


def look_up(table: Array, codes: Any, out: Any = None) -> Any:
    """Look up entries of a table in main memory for codes of rows, none of which is out of range.

    The result is where the codes are.
    """
    xp = array_module(codes)
    if xp is np:  # numpy is fastest without a check of the range.
        return table.take(codes, axis=0, out=out, mode="wrap")
    return xp.asarray(table).take(codes, axis=0, out=out)


def address_of(x: Any) -> int:
    """Find the address of an array in its memory."""
    if isinstance(x, np.ndarray):
        return int(x.__array_interface__["data"][0])
    return int(x.data.ptr)


def find_cupy() -> Any | None:
    """Import CuPy; None where it is not installed or finds no card."""
    try:
        cupy = import_module("cupy")
        return cupy if cupy.cuda.is_available() else None
    except ImportError:
        return None


VIEW_CELLS = 2048  # Largest number of cells of a view of several constraints.
MOST_CELLS = 1 << 20  # Largest number of cells of a view of one constraint.


@dataclass(frozen=True)
class CellStatistics:
    """Statistics of cells that constraints are linear in.

    Parameters
    ----------
    predicted : (n_cells, n_classes). Weighted fraction of each cell's rows predicted as each
        class; rows sum to one.
    loss : (n_cells,). Weighted mean cross-entropy of each cell, in nats. Where no constraint
        bounds losses, every cell has the mean of all rows.
    clipped_loss : (n_cells,). Mean of the losses clipped at a cap; `loss` itself without a cap.
    pairs : (n_pairs,). Fraction of the pairs of two cells whose first row scores higher, with half
        the ties; None where no constraint compares scores.
    residuals : (n_entries,). Mean residual of each cell in each bin of probabilities; None where
        no constraint bounds a calibration error.
    """

    predicted: Float
    loss: Float
    clipped_loss: Float
    pairs: Float | None = None
    residuals: Float | None = None


@dataclass(frozen=True)
class View:
    """Partition of all rows.

    Parameters
    ----------
    small_codes : (n_samples,). Cell of each row, counted within the view, in the smallest type.
    cells : Cells of this view, counted over all views.
    levels : Position of each cell's level, (n_cells of the view,), in each attribute of the view.
    amount : (n_samples,). What each row counts for, beside its weight; ones where None.
    """

    small_codes: NDArray[Any]
    cells: slice
    levels: dict[Key, Codes]
    amount: Array | None = None

    def __len__(self) -> int:
        return int(self.cells.stop - self.cells.start)

    @property
    def n_labels(self) -> int:
        """Number of levels of the label, the first attribute of every view."""
        return int(self.levels["label"][-1]) + 1

    def sum(self, x: Array | None, rows: slice = slice(None), power: int = 1) -> Float:
        """Sum values of rows, ones by default, times a power of their amounts, by cell."""
        codes = self.small_codes[rows]
        weighed = self.weigh(x, rows, power)
        return to_host(np.bincount(codes, weighed, len(self))).astype(np.float64)

    def weigh(self, x: Any, rows: Any = slice(None), power: int = 1) -> Any:
        """Multiply values of rows, ones by default, by a power of the rows' amounts.

        The power zero of the amount zero is zero: the row does not count.
        """
        if self.amount is None:
            return x
        amount = self.amount[rows]
        factor = amount**power if power else amount > 0
        if x is None:
            return factor
        return x * (factor if x.ndim == 1 else factor[:, None])

    @cached_property
    def largest_amount(self) -> Float:
        """Largest amount of the rows of each cell of the view; zero without rows."""
        found, view = np.zeros(len(self)), self.map(to_host)
        np.maximum.at(found, view.small_codes, 1.0 if view.amount is None else view.amount)
        return found

    def map(self, function: Callable[[Any], Any]) -> View:
        """Return the view with its codes and amounts of rows as a function makes them."""
        amount = None if self.amount is None else function(self.amount)
        return replace(self, small_codes=function(self.small_codes), amount=amount)

    @property
    def codes(self) -> Codes:
        """Cell of each row, counted over all views, (n_samples,)."""
        codes: Codes = self.small_codes.astype(np.intp)
        codes += self.cells.start
        return codes

    @cached_property
    def largest(self) -> int:
        """Cell of the view that has most rows."""
        return int(np.bincount(self.small_codes, minlength=len(self)).argmax())


class Cells:
    """Partitions of rows into cells.

    Every combination of levels has a cell, empty or not, so that machines with different rows
    agree on the numbering. A constraint must not depend on more combinations than
    :data:`MOST_CELLS`.

    Parameters
    ----------
    needs : Attributes that each constraint depends on, and amounts that its rows count for. None
        among amounts stands for ones. A constraint has a view for each of its amounts, and the
        first of all views has none.
    idle : Positions of constraints that are only reported. They have views of their own, so that
        the partitions of the other constraints do not depend on them.

    Attributes
    ----------
    views : Partitions, at least one.
    n_binding : Number of views, the first ones, of constraints that are not idle; at least one.
    base : Attributes of every view.
    has_amounts : Whether rows of some view count for amounts.
    view_of : View of each element of `needs`; the first one of several amounts.
    labels : (n_cells,). Class index of the rows of each cell; -1 for rows without a label.
    weight : (n_cells,). Total weight of each cell, times amounts in views that have some.
    whole_weight : (n_cells,). Total weight of the rows that :meth:`take` took these from, against
        which constraints are compiled.
    count : (n_cells,). Number of rows of each cell.
    weighted_count : (n_cells,). Number of rows with a positive weight, and amount.
    in_objective : (n_cells,). Whether a cell holds training rows, rather than those of a further
        data set.
    class_weight : (n_classes,). Weight of an error on each class in the choice of decisions; ones
        unless set to the weights of the objective. Rates do not depend on it.
    """

    def __init__(
        self,
        rows: Rows,
        needs: Sequence[Sequence[Key | Amount | None]] = (),
        idle: Collection[int] = (),
    ) -> None:
        self.rows = rows
        self.classes = rows.classes
        self.class_weight = np.ones(rows.classes.size)
        self.communicator = rows.machine.communicator
        self.reduce_sum = self.communicator.sum
        self.needs: list[list[Key]] = []
        self.amounts: list[list[Amount | None]] = []
        for need in needs:
            self.needs.append([key for key in need if not isinstance(key, Amount | None)])
            amounts_of_one = [key for key in need if isinstance(key, Amount | None)]
            self.amounts.append(amounts_of_one or [None])
        self.base: list[Key] = ["label", "source"] if rows.sources else ["label"]
        # Attributes have as many levels on all machines. Rows without a level, which have one
        # more, may be on some of the machines.
        keys = dict.fromkeys(key for need in (self.base, *self.needs) for key in need)
        sizes = self.communicator.gather([rows.attribute(key).size for key in keys])
        self._sizes = dict(zip(keys, map(max, zip(*sizes, strict=True)), strict=True))
        keys_of_views, amounts, view_of = self._spread_over_views(idle)
        self._views_of = [
            {amount: view_of[j, amount] for amount in of_one}
            for j, of_one in enumerate(self.amounts)
        ]
        self.view_of = tuple(next(iter(views.values())) for views in self._views_of)
        views: list[View] = []
        for of_view, amount in zip(keys_of_views, amounts, strict=True):
            view = self.divide(of_view, start=views[-1].cells.stop if views else 0)
            views.append(view if amount is None else replace(view, amount=rows.amounts(amount)))
        self.views = tuple(views)
        self.has_amounts = any(amount is not None for amount in amounts)
        label_levels = np.concatenate([view.levels["label"] for view in self.views])
        self.labels = np.where(label_levels < self.classes.size, label_levels, -1)
        self.in_objective = np.ones(self.labels.size, dtype=bool)
        if rows.sources:
            self.in_objective = np.concatenate([v.levels["source"] for v in self.views]) == 0
        self._add_up()
        self.whole_weight = self.weight

    def _add_up(self) -> None:
        """Count the rows of each cell, and sum their weights."""
        count = [np.bincount(view.small_codes, minlength=len(view)) for view in self.views]
        self.count = self.reduce_sum(np.concatenate(list(map(to_host, count))).astype(np.float64))
        self.weight = self.weighted_count = self.count
        weight = self.rows.weight
        if weight is not None or self.has_amounts:
            self.weight = self.reduce_sum(self.total(weight))
            counted = None if weight is None else weight > 0
            self.weighted_count = self.reduce_sum(self.total(counted, power=0))

    def _spread_over_views(
        self, idle: Collection[int]
    ) -> tuple[list[list[Key]], list[Amount | None], dict[tuple[int, Amount | None], int]]:
        """Choose attributes and amount of each view, and the view of each constraint's amounts."""
        keys_of_views: list[list[Key]] = []
        amounts: list[Amount | None] = []
        view_of: dict[tuple[int, Amount | None], int] = {}
        if any(map(any, self.amounts)):  # The first view, of the objective, has no amounts.
            keys_of_views, amounts = [self.base], [None]
        self.n_binding = 1
        places = [(j, amount) for j, of_one in enumerate(self.amounts) for amount in of_one]
        for j, amount in sorted(places or [(0, None)], key=lambda place: place[0] in idle):
            need = self.needs[j] if self.needs else ()
            for v, keys in enumerate(keys_of_views):
                union = list(dict.fromkeys([*keys, *need]))
                may_grow = j not in idle or v >= self.n_binding
                if amounts[v] != amount:
                    continue
                if len(union) == len(keys) or (
                    may_grow and prod(self.shape_of(union)) <= VIEW_CELLS
                ):
                    keys_of_views[v] = union
                    break
            else:
                v = len(keys_of_views)
                keys_of_views.append(list(dict.fromkeys([*self.base, *need])))
                amounts.append(amount)
                if (size := prod(self.shape_of(keys_of_views[-1]))) > MOST_CELLS:
                    raise ValueError(
                        f"one constraint looks at {len(need)} attributes with {size} "
                        f"combinations: split it into several constraints, or combine its masks."
                    )
            view_of[j, amount] = v
            if j not in idle:
                self.n_binding = len(keys_of_views)
        return keys_of_views, amounts, view_of

    def views_by_amount(self, j: int) -> dict[Amount | None, View]:
        """Find the view of each amount of a constraint."""
        return {amount: self.views[v] for amount, v in self._views_of[j].items()}

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Cells of labelled rows of the objective, in the first view alone."""
        inside = self.in_objective & (self.labels >= 0)
        inside[self.views[0].cells.stop :] = False
        return inside

    def shape_of(self, keys: Sequence[Key]) -> tuple[int, ...]:
        """Count the levels of each attribute."""
        return tuple(self._sizes[key] for key in keys)

    def divide(self, keys: Sequence[Key], start: int = 0) -> View:
        """Divide the rows by attributes, into cells that are counted from `start`."""
        shape = self.shape_of(keys)
        codes = np.zeros(len(self.rows), np.uint8)
        for i in range(len(keys)):
            # Each step is a pass over the rows, and is fastest in the smallest type.
            codes = codes.astype(np.min_scalar_type(prod(shape[: i + 1])))
            codes *= codes.dtype.type(shape[i])
            codes += self.rows.attribute(keys[i]).codes.astype(codes.dtype)
        levels = np.unravel_index(np.arange(prod(shape)), shape)
        return View(codes, slice(start, start + prod(shape)), dict(zip(keys, levels, strict=True)))

    def take(self, index: NDArray[np.intp], factor: Float | None = None) -> Cells:
        """Take some of the rows, in cells of the same numbers, with a factor of their weights.

        A rate of the part is the mean over its cells, each with its share of all rows. For cells
        without a row of the part see :meth:`LinearConstraints.on`.
        """
        part = copy.copy(self)
        part.views = tuple(view.map(lambda of_rows: of_rows[index]) for view in self.views)
        part.rows = self.rows.take(index)
        if factor is not None:
            weight = part.rows.weight
            part.rows.weight = factor if weight is None else weight * factor
        part._add_up()
        return part

    def on(self, xp: Any) -> Cells:
        """Return the same cells with the codes of rows in the memory of a module of arrays."""
        if xp is np:
            return self
        moved = copy.copy(self)
        moved.views = tuple(view.map(xp.asarray) for view in self.views)
        return moved

    @property
    def n_rows(self) -> int:
        """Number of rows on all machines."""
        return int(self.count[self.views[0].cells].sum())

    def __len__(self) -> int:
        return self.labels.size

    @property
    def codes(self) -> Codes:
        """Cell of each row in the first view."""
        return self.views[0].codes

    def total(self, x: Array | None = None, power: int = 1) -> Float:
        """Sum values of all rows, ones by default, times a power of their amounts; (n_cells,)."""
        return np.concatenate([view.sum(x, power=power) for view in self.views])

    def sum_by_cell(self, x: NDArray[Any], rows: slice) -> Float:
        """Sum values, or count booleans, of a block of rows by cell, (n_cells,)."""
        first, *others = self.views
        # Sums by masks are the faster ones for few cells, fewer where any order of additions gives
        # the exact sum.
        is_exact = x.dtype != np.bool_ and not self.communicator.holds_all_rows
        most = 4 if is_exact else 12
        if len(first) > most or self.n_binding > 1:
            return np.concatenate([view.sum(x, rows) for view in self.views])
        # Products with an indicator are faster than bincount, which adds one number after the
        # other. Their sums are pairwise, while a running sum in float32 drifts by 1e-5 when all
        # rows are alike. The cell with most rows gets the rest of the total.
        codes = first.small_codes[rows]
        total = np.count_nonzero if x.dtype == np.bool_ else np.sum
        sums = np.zeros(len(first))
        for c in range(len(first)):
            if c != first.largest:
                inside = x & (codes == c) if x.dtype == np.bool_ else x * (codes == c)
                sums[c] = float(total(inside))
        sums[first.largest] = float(total(x)) - sums.sum()
        return np.concatenate([sums, *(view.sum(x, rows) for view in others)])

    def select(self, view: View, selectors: Sequence[Selector]) -> NDArray[np.bool_]:
        """Find the cells of a view whose rows all selectors select."""
        inside = np.ones(len(view), dtype=bool)
        levels = self.levels_of(view)
        for selector in selectors:
            inside &= selector.holds(levels)
        return inside

    def levels_of(self, view: View) -> Levels:
        """Collect the levels of the cells of a view for selectors and events."""
        return Levels(self.classes, view.levels, lambda key: self.rows.attribute(key).levels)
