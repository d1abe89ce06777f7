r"""Tests of constraints on means of row functions whose ranges are stated.

A value h between `low` and `high` counts as the share ``(h - low) / (high - low)`` of a row with
the value `high`; the rest of the row has the value `low`. The mean stays what it is, and what
:mod:`gbm_constrained.statistics.p_values` knows of counted decisions holds for these shares: a
mean of bounded values has the p-value of Hoeffding and Bentkus (Bates, Angelopoulos, Lei, Malik
and Jordan, "Distribution-free, risk-controlling prediction sets", 2021, section 3.1), a sum over
several base sets that of a union bound. Steps are events, and have the exact binomial test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.functionals import WeightedFraction
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.sparse_products import find_opposites
from gbm_constrained.statistics.counts import Block, CellCounts, blocks_of
from gbm_constrained.statistics.p_values import largest_of_rows, p_value_of_blocks

ROUNDING = 1e-9  # Distance beyond an end of a range, in its width, that is due to rounding.


class Outside(NamedTuple):
    """Values of a constraint outside of their stated range."""

    constraint: int  # Position of the constraint.
    n_rows: int
    limits: tuple[float, float]
    observed: tuple[float, float]  # Smallest and largest of the values outside.


@dataclass(frozen=True, eq=False)
class _Row:
    """One row of constraints, whose columns are the corners of the ranges of its functions."""

    parts: Sequence[WeightedFraction]
    functions: Codes  # (k,), positions of the row functions that it has means of.
    limits: Float  # (k, 2), their ranges.
    is_high: Bool  # (2^k, k), whether each function has its high value at a corner.
    blocks: tuple[Block, ...]  # Scores are in units of the largest range.
    unit: float
    bound: float  # In the same unit.

    @classmethod
    def of(cls, compiled: LinearConstraints, j: int) -> _Row:
        """Read a row of constraints, all of whose functionals have rows."""
        R = compiled.R
        at = slice(R.indptr[j], R.indptr[j + 1])
        parts = [
            replace(part, coefficient=float(a) * part.coefficient)
            for k, a in zip(R.indices[at], R.data[at], strict=True)
            for part in compiled.parts[k] or ()
        ]
        used = np.flatnonzero(np.any([part.event.any(axis=0) for part in parts], axis=0))
        functions = [compiled.row_functions[s] for s in used]
        limits = np.array([function.stated_range for function in functions])
        is_high = (np.arange(2**used.size)[:, None] >> np.arange(used.size)) % 2 == 1
        corners = np.where(is_high, limits[:, 1], limits[:, 0])
        unit = max(abs(part.coefficient) for part in parts) * float(np.ptp(limits, axis=1).max())
        scaled = [
            replace(
                part, coefficient=part.coefficient / unit, event=part.event[:, used] @ corners.T
            )
            for part in parts
        ]
        is_counted = all(function.is_step for function in functions)
        blocks = tuple(replace(block, is_counted=is_counted) for block in blocks_of(scaled))
        return cls(parts, used, limits, is_high, blocks, unit, float(compiled.b[j]) / unit)

    def shares(self, values: Float) -> Float:
        """Compute the share of each row of data that is at each corner, (n_samples, 2^k)."""
        low, width = self.limits[:, 0], np.ptp(self.limits, axis=1)
        share = np.clip((values[:, self.functions] - low) / width, 0.0, 1.0)[:, None]
        return np.asarray(np.where(self.is_high, share, 1.0 - share).prod(axis=-1))

    @property
    def low(self) -> float:
        """Smallest value that predictions can give."""
        return self.unit * sum(block.low for block in self.blocks)

    @property
    def high(self) -> float:
        """Largest value that predictions can give."""
        return self.unit * sum(block.high for block in self.blocks)

    def counts_at(self, cells: Cells, value: float) -> CellCounts:
        """Count the rows of data as if the row of constraints had a value."""
        cost = np.zeros((len(cells), len(self.is_high)))
        for block in self.blocks:
            cost[block.cells] += block.score / cells.weight[block.cells].sum()
        corners, share = np.eye(cost.shape[1]), (value - self.low) / (self.high - self.low)
        best, worst = corners[cost.argmin(axis=1)], corners[cost.argmax(axis=1)]
        return CellCounts.of_shares(cells, (1.0 - share) * best + share * worst)


class BoundedMeans:
    """Tests of constraints on bounded means on some rows of data.

    Parameters
    ----------
    cells : Cells
        Partition of the rows, which were used for nothing else.
    compiled : LinearConstraints
        The constraints on them. Each row function is a step, or has a stated range.
    """

    def __init__(self, cells: Cells, compiled: LinearConstraints) -> None:
        self.cells, self.compiled = cells, compiled
        is_known = ~np.isnan(compiled.constant)
        # Constraints of groups without rows stay untested.
        self._rows = {
            j: _Row.of(compiled, j)
            for j, owner in enumerate(compiled.owner)
            if is_known[compiled.spans[owner]].all()
        }

    @cached_property
    def opposites(self) -> list[tuple[int, int]]:
        """Pairs of rows that bound the same mean from both sides, also of two constraints."""
        return find_opposites(self.compiled.A, np.ones(len(self.compiled), dtype=bool))

    def p_values(self, values: Float) -> Float:
        """Compute the p-value of the violation of each constraint, (n_constraints,).

        Parameters
        ----------
        values : ndarray of shape (n_samples, n_functions)
            Row functions of each row, in the order of the classes of the cells.

        Returns
        -------
        ndarray of shape (n_constraints,)
            One where a value is outside of its stated range.
        """
        p = self._test({
            row: CellCounts.of_probabilities(self.cells, row.shares(values))
            for row in self._rows.values()
        })  # fmt: skip
        p[[outside.constraint for outside in self.find_outside(values)]] = 1.0
        return p

    def smallest_p_values(self) -> Float:
        """Compute the smallest p-value that any predictions could give, (n_constraints,).

        Two rows of opposite sides, such as those of a gap, leave room between their bounds, whose
        middle is best for both. Counted events may be certified more easily than there, and are
        taken one by one.
        """
        at = {j: row.low for j, row in self._rows.items()}
        b = self.compiled.b
        for i, j in self.opposites:
            for k, other in ((i, j), (j, i)):
                row = self._rows.get(k)
                if row is not None and not all(block.is_counted for block in row.blocks):
                    at[k] = float(np.clip((b[k] - b[other]) / 2.0, row.low, row.high))
        return self._test({row: row.counts_at(self.cells, at[j]) for j, row in self._rows.items()})

    def _test(self, counts: Mapping[_Row, CellCounts]) -> Float:
        """Compute the p-value of each constraint, given the counts of each of its rows."""
        of_rows = np.ones(len(self.compiled))
        for j, row in self._rows.items():
            of_rows[j] = p_value_of_blocks(row.blocks, row.bound, counts[row])
        return largest_of_rows(self.compiled, of_rows)

    def smallest_values(self) -> Float:
        """Compute the smallest value that any predictions could give each row, (m,)."""
        found = np.full(len(self.compiled), -np.inf)
        for j, row in self._rows.items():
            found[j] = row.low
        return found

    def deviations(self) -> Float:
        """Compute the standard deviation that the tests allow the value of each row, (m,).

        It is that of shares whose mean is at the bound, and largest for several base sets.
        """
        found = np.zeros(len(self.compiled))
        for j, row in self._rows.items():
            counts = row.counts_at(self.cells, row.low)
            for block in row.blocks:
                share = 0.5
                if len(row.blocks) == 1 and block.low < row.bound < block.high:
                    share = (row.bound - block.low) / block.width
                n = float(block.effective_rows(counts))
                if block.largest_amount is not None:  # Rows of less than the cap tell less.
                    n = float(block.sum(counts.weight)) ** 2 / float(block.sum(counts.count))
                    n /= block.largest_amount**2
                found[j] += block.width**2 * share * (1.0 - share) / n
            found[j] = row.unit * np.sqrt(found[j])
        return found

    def find_outside(self, values: Float) -> list[Outside]:
        """List the constraints with values outside of their stated range."""
        found = dict[int, Outside]()
        for (owner, s), (taken, (low, high)) in self._bounded.items():
            slack, h = ROUNDING * (high - low), values[taken, s]
            h = h[(h < low - slack) | (h > high + slack)]
            if h.size and owner not in found:
                observed = float(h.min()), float(h.max())
                found[owner] = Outside(owner, h.size, (low, high), observed)
        return list(found.values())

    @cached_property
    def _bounded(self) -> dict[tuple[int, int], tuple[Bool, tuple[float, float]]]:
        """Rows of data that a mean with a stated range is taken over, by constraint and function.

        Steps have no other values than their two.
        """
        found = dict[tuple[int, int], tuple[Bool, tuple[float, float]]]()
        for j, row in self._rows.items():
            for s, (low, high) in zip(row.functions.tolist(), row.limits.tolist(), strict=True):
                if not self.compiled.row_functions[s].is_step:
                    key, taken = (int(self.compiled.owner[j]), s), self._taken(row.parts, s)
                    before = found[key][0] if key in found else np.zeros_like(taken)
                    found[key] = before | taken, (low, high)
        return found

    def _taken(self, parts: Sequence[WeightedFraction], function: int) -> Bool:
        """Find the rows of data that a mean of a row function is taken over, (n_samples,)."""
        cells, inside = self.cells, np.zeros(len(self.cells), dtype=bool)
        for part in parts:
            inside[part.cells[part.event[:, function] != 0.0]] = True
        taken = np.any([inside[view.codes] for view in cells.views], axis=0)
        return np.asarray(taken if cells.rows.weight is None else taken & (cells.rows.weight > 0))
