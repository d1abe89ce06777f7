"""Find the rates that are taken over too few rows to assess their constraints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.refit_transfer import SIGNIFICANCE
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, blocks_of
from gbm_constrained.statistics.order_statistics import minimum_rows

MIN_ROWS = 20  # Rows to assess a rate: below, one row moves it by 0.05 and more.
MAX_HALF_WIDTH = 0.15  # Half-width of an interval that still assesses a rate.


@dataclass(frozen=True)
class TooFewRows:
    """A rate that is taken over too few rows to assess its constraint."""

    constraint: Constraint
    group: str  # Group that the rate is of; empty where the constraint has none.
    rows: int
    value: float
    low: float  # Ends of its 95% interval by the sampling of these rows alone.
    high: float

    @property
    def reason(self) -> str:
        """The rows and the interval, as a verdict gives its reason."""
        n = f"{self.rows:,} row{'s' * (self.rows != 1)}"
        where = f" of {self.group}" if self.group else ""
        interval = f", interval {self.low:.3f} to {self.high:.3f}" if np.isfinite(self.low) else ""
        return f"{n}{where}{interval}"

    def __str__(self) -> str:
        where = f" on {self.group}" if self.group else ""
        text = f"{self.constraint}{where}: {self.rows:,} row{'s' * (self.rows != 1)}"
        if np.isfinite(self.low):
            text += f", {self.value:.3f} ({self.low:.3f} to {self.high:.3f})"
        return text


def find_too_few_rows(
    cells: Cells,
    compiled: LinearConstraints,
    counts: CellCounts,
    functionals: Float,
    intervals: Float,
    of_functionals: Float,
) -> list[TooFewRows]:
    """Find the rates that are taken over too few rows to assess their constraints.

    The bound of such a constraint lies inside the interval of its value, by the sampling of rows
    alone. Besides, the rate is taken over fewer than 20 rows, or its interval reaches further than
    0.15 to either side, or not even rows without a single event would confirm the bound
    (:func:`~gbm_constrained.statistics.order_statistics.minimum_rows`). Mean losses, and
    constraints that no decision violates, are left out.
    """
    values = compiled.values(functionals)
    found = []
    for j, (constraint, span) in enumerate(zip(compiled.constraints, compiled.spans, strict=True)):
        if constraint.is_loss or constraint.is_always_met:
            continue
        expression, ends = constraint.expression, intervals[j]
        if expression.is_quotient:
            n = rows_of_smallest_group(cells, compiled, j, counts)
            rate = TooFewRows(constraint, "", n, float(values[j]), *map(float, ends))
            if _is_open(rate, ends, minimum=0):
                found.append(rate)
            continue
        names = [str(group) for group in compiled.groups[j] for _ in constraint.rates]
        names += [""] * (span.stop - span.start - len(names))  # Those of all rows.
        for k, name in enumerate(names, span.start):
            n, own = rows_of_functional(cells, compiled, k), of_functionals[k]
            figures = float(functionals[k]), *map(float, own)
            rate = TooFewRows(
                constraint,
                name,
                n,
                *figures,
            )
            interval = own if expression.bounds_each_rate else ends
            if _is_open(rate, interval, minimum=_minimum_rows(constraint)):
                found.append(rate)
    return found


def _minimum_rows(constraint: Constraint) -> int:
    """Count the rows without a single event that would confirm the bound of one rate."""
    rates = constraint.rates
    plain = len(rates) == 1 and len(rates[0].terms) == 1 and not rates[0].constant
    if not constraint.expression.bounds_each_rate or not plain:
        return 0
    room = constraint.bound if constraint.sense == "<=" else 1.0 - constraint.bound
    if rates[0].terms[0][0] != 1.0 or not 0.0 < room < 1.0:
        return 0
    return minimum_rows(room, 2.0 * SIGNIFICANCE)


def _is_open(rate: TooFewRows, interval: Float, minimum: int) -> bool:
    """Whether a rate leaves its constraint open, for want of rows."""
    if not np.isnan(interval).any():
        low, high = interval  # Ends may be infinite for a quotient.
        if not low <= rate.constraint.bound <= high:
            return False
    if rate.rows < MIN_ROWS or rate.rows < minimum:
        return True
    return bool((rate.high - rate.low) / 2.0 > MAX_HALF_WIDTH)


def rows_of_constraint(cells: Cells, compiled: LinearConstraints, j: int) -> int:
    """Count the rows with weight that any term of a constraint is taken over, in any group."""
    constraint, view = compiled.constraints[j], cells.views[cells.view_of[j]]
    inside = np.zeros(len(view), dtype=bool)
    for term in constraint.terms:
        inside |= cells.select(view, term.base)
        if term.event.is_pair:
            inside |= cells.select(view, term.other_base)
    groups = compiled.groups[j]
    if groups and not constraint.expression.compares_with_overall:
        levels = frozenset[int]().union(*(group.levels for group in groups))
        inside &= np.isin(view.levels[groups[0].by], list(levels))
    return int(cells.weighted_count[view.cells][inside].sum())


def rows_of_functional(cells: Cells, compiled: LinearConstraints, k: int) -> int:
    """Count the rows that a functional is taken over: the fewest of its parts, and of sides."""
    if compiled.V[[k]].nnz:  # The functional is a mean loss.
        return int(cells.weighted_count[compiled.V[[k]].indices].sum())
    bases = [base for part in compiled.terms[k] or () for base in part.bases]
    return int(min((cells.weighted_count[base].sum() for base in bases), default=0))


def rows_of_smallest_group(
    cells: Cells, compiled: LinearConstraints, j: int, counts: CellCounts | None
) -> int:
    """Count the rows of a constraint's smallest group, or those inside of a quotient.

    Without the counts of decisions, the rows of a quotient are those of its terms.
    """
    if compiled.constraints[j].expression.is_quotient:
        if counts is None:
            return rows_of_constraint(cells, compiled, j)
        return int(rows_of_quotient(compiled, j, counts))
    span = compiled.spans[j]
    return min(rows_of_functional(cells, compiled, k) for k in range(span.start, span.stop))


def rows_of_quotient(compiled: LinearConstraints, j: int, counts: CellCounts) -> Float:
    """Count the rows that decisions put into a quotient, such as those selected of a precision.

    The rows of the numerator count as well: few losses are the aim of wins over losses. A constant
    is a part of every row, which an error takes out of ``1 - error_rate``.
    """
    inside = np.zeros(counts.count.shape[-2:], dtype=bool)
    span = compiled.spans[j]
    for parts, constant in zip(compiled.parts[span], compiled.constant[span], strict=True):
        blocks = blocks_of(parts or ())
        for block in blocks:
            nothing = round(-float(constant) / len(blocks), 12)
            inside[block.cells] |= ~block.reaches(nothing)
    return np.asarray((counts.count * inside).sum(axis=(-2, -1)))
