"""Values of constraints by period, and whether they drift.

A constraint drifts if its value in the last period is outside of the interval that the periods
before it, all together, leave for a period of so many rows. The interval has the level for all
constraints together (Bonferroni), so that one of them drifts by chance as rarely as one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.times import Period
from gbm_constrained.evaluation.measured_rows import MeasuredRows
from gbm_constrained.evaluation.sample_size import rows_of_constraint
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.sampled_intervals import ScoredDecisions

PERIOD_COLUMNS = (
    "constraint", "sense", "bound", "period", "first", "last", "rows", "value", "low", "high",
    "expected_low", "expected_high", "drifts",
)  # fmt: skip


def period_frame(
    rows: Rows,
    compiled: LinearConstraints,
    scored: ScoredDecisions,
    periods: Sequence[Period],
    level: float = 0.95,
) -> pd.DataFrame:
    """Tabulate the values of constraints in each period.

    Parameters
    ----------
    rows : Rows
        The rows of all periods.
    compiled : LinearConstraints
        The constraints, on these or on training rows, whose groups are kept.
    scored : ScoredDecisions
        Decisions about the rows.
    periods : sequence of Period
        Positions of the rows of each period, in the order of time.
    level : float, default=0.95
        Level of each interval, and of all that are expected together.

    Returns
    -------
    DataFrame
        One row per constraint and period, with PERIOD_COLUMNS. The last period has the interval
        that the earlier ones leave for its value, and whether the value is outside (``drifts``).
    """
    by_period = _ByPeriod(rows, compiled, scored)
    found = [by_period.measure(period.rows, level) for period in periods]
    constraints, records = compiled.constraints, []
    expected, drifts = by_period.find_drift(periods, level)
    for j, constraint in enumerate(constraints):
        stated = str(constraint), constraint.sense, constraint.bound
        for k, (period, (measured, sizes)) in enumerate(zip(periods, found, strict=True)):
            is_last = k == len(periods) - 1
            records.append((
                *stated, k + 1, plain_time(period.first), plain_time(period.last), sizes[j],
                measured.values[j], *measured.sampled.constraints[j],
                *(expected[j] if is_last else (np.nan, np.nan)),
                drifts[j] if is_last else None,
            ))  # fmt: skip
    return set_period_types(pd.DataFrame(records, columns=list(PERIOD_COLUMNS)))


def set_period_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Set the types of the columns of a table of periods, which do not depend on its rows."""
    integers, texts = ("period", "rows"), ("constraint", "sense")
    for name in PERIOD_COLUMNS:
        if name == "drifts":
            frame[name] = frame[name].astype("boolean")
        elif name in integers:
            frame[name] = frame[name].astype(np.int64)
        elif name in texts:
            frame[name] = frame[name].astype(str)
        elif name not in ("first", "last"):
            frame[name] = frame[name].astype(np.float64)
    return frame


def drifting(frame: pd.DataFrame) -> list[str]:
    """List the constraints that drift, by a table of periods."""
    return frame.loc[frame["drifts"].fillna(value=False).astype(bool), "constraint"].tolist()


@dataclass(frozen=True, eq=False)
class _ByPeriod:
    """Rows of several periods, with the decisions about them."""

    rows: Rows
    compiled: LinearConstraints
    scored: ScoredDecisions

    def measure(self, index: Codes, level: float) -> tuple[MeasuredRows, list[int]]:
        """Measure the constraints on some of the rows, and count the rows of each."""
        rows, constraints = self.rows.take(index), self.compiled.constraints
        cells, compiled = compile_constraints(constraints, rows, self.compiled, warning=None)
        measured = MeasuredRows.of(cells, compiled, self.scored.take(index), level)
        sizes = [rows_of_constraint(cells, compiled, j) for j in range(len(constraints))]
        return measured, sizes

    def find_drift(self, periods: Sequence[Period], level: float) -> tuple[Float, list[Any]]:
        """Find the interval of each value in the last period, and whether the value is outside."""
        n = len(self.compiled.constraints)
        joint = 1.0 - (1.0 - level) / max(n, 1)
        before = np.sort(np.concatenate([period.rows for period in periods[:-1]]))
        (earlier, _), (last, _) = (
            self.measure(index, joint) for index in (before, periods[-1].rows)
        )
        (low, high), (last_low, last_high) = (
            measured.sampled.constraints.T for measured in (earlier, last)
        )
        value, now = earlier.values, last.values
        # The difference of two values varies as both of them do.
        expected = np.column_stack([
            value - np.hypot(value - low, last_high - now),
            value + np.hypot(high - value, now - last_low),
        ])  # fmt: skip
        is_outside = (now < expected[:, 0]) | (now > expected[:, 1])
        is_known = np.isfinite(expected).all(axis=1) & np.isfinite(now)
        return expected, [
            bool(o) if k else None for o, k in zip(is_outside, is_known, strict=True)
        ]


def plain_time(value: Any) -> Any:
    """Convert a time to what every table and file can hold: a number, or a text."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(pd.Series([value]).iloc[0])
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (int, float)) else str(value)
