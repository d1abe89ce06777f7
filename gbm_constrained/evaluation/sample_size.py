"""Rates taken over too few rows to judge their constraints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.data.cells import Cells
from gbm_constrained.evaluation.verdicts import DOUBT, rows_of_functional, rows_of_smallest_group
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.order_statistics import minimum_rows

FEWEST = 20  # Rows below which a rate cannot be judged: it moves by 0.05 with each of them.
WIDE = 0.15  # Half-width from which an interval is too wide to judge a rate.


@dataclass(frozen=True)
class TooFewRows:
    """A rate that is taken over too few rows to judge its constraint.

    Parameters
    ----------
    constraint : Constraint
        The constraint.
    group : str
        The group whose rate it is; empty where the constraint has none.
    rows : int
        Number of rows that the rate is taken over.
    value, low, high : float
        The rate, and its 95% interval by the sampling of these rows alone.
    """

    constraint: Constraint
    group: str
    rows: int
    value: float
    low: float
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
    compiled: CompiledConstraints,
    counts: CellCounts,
    functionals: Float,
    intervals: Float,
    of_functionals: Float,
) -> list[TooFewRows]:
    """Find the rates that are taken over too few rows to judge their constraints.

    The bound of such a constraint lies inside the interval of its value. Besides, the rate is
    taken over fewer than 20 rows, or its interval reaches further than 0.15 to either side, or not
    even rows without a single event would confirm the bound
    (:func:`~gbm_constrained.statistics.order_statistics.minimum_rows`).

    Parameters
    ----------
    cells : Cells
        The partition of the rows.
    compiled : CompiledConstraints
        The constraints.
    counts : CellCounts
        Decisions on the rows.
    functionals : ndarray of shape (n_functionals,)
        Values of the rates.
    intervals : ndarray of shape (n_constraints, 2)
        Intervals of the constraints' values, by the sampling of rows alone.
    of_functionals : ndarray of shape (n_functionals, 2)
        Intervals of the rates, likewise.

    Returns
    -------
    list of TooFewRows
        Nothing of mean losses, and of constraints that no decision violates.
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
            if _cannot_judge(rate, ends, minimum=0):
                found.append(rate)
            continue
        names = [str(group) for group in compiled.groups[j]]
        for k in range(span.start, span.stop):
            name = names[k - span.start] if k - span.start < len(names) else ""
            n = rows_of_functional(cells, compiled, k)
            own = of_functionals[k]
            value = float(functionals[k])
            rate = TooFewRows(constraint, name, n, value, *map(float, own))
            if _cannot_judge(
                rate, own if expression.bounds_each_rate else ends, minimum=_minimum(constraint)
            ):
                found.append(rate)
    return found


def _minimum(constraint: Constraint) -> int:
    """Rows that could confirm the bound of one rate, none of them with an event."""
    rates = constraint.rates
    plain = len(rates) == 1 and len(rates[0].terms) == 1 and not rates[0].constant
    if not constraint.expression.bounds_each_rate or not plain:
        return 0
    room = constraint.bound if constraint.sense == "<=" else 1.0 - constraint.bound
    if rates[0].terms[0][0] != 1.0 or not 0.0 < room < 1.0:
        return 0
    return minimum_rows(room, 2.0 * DOUBT)


def _cannot_judge(rate: TooFewRows, of_rule: Float, minimum: int) -> bool:
    """Whether a rate leaves its constraint open, for want of rows."""
    if not np.isnan(of_rule).any():
        low, high = of_rule  # which may be infinite, of a quotient
        if not low <= rate.constraint.bound <= high:
            return False
    if rate.rows < FEWEST or rate.rows < minimum:
        return True
    return bool((rate.high - rate.low) / 2.0 > WIDE)
