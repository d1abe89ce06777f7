"""Values of constraints by period, and whether they drift.

A constraint drifts if its value in the last period is outside of the interval that the periods
before it, all together, leave for a period of so many rows. The interval has the level for all
constraints together (Bonferroni), so that one of them drifts by chance as rarely as one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.times import Period
from gbm_constrained.decision.affine import PredictedRows
from gbm_constrained.evaluation.measured_rows import MeasuredRows
from gbm_constrained.evaluation.sample_size import rows_of_constraint
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.sampled_intervals import ScoredDecisions

PERIOD_COLUMNS = (
    "constraint", "sense", "bound", "period", "first", "last", "rows", "value", "low", "high",
    "expected_low", "expected_high", "drifts",
)  # fmt: skip

Measure: TypeAlias = Callable[[Codes, Cells, LinearConstraints, float], tuple[Float, Float]]
"""Measures constraints on rows at some positions, given their cells, the constraints on them and a
level: values, shape (n_constraints,), and intervals, shape (n_constraints, 2)."""


def measure_decisions(scored: ScoredDecisions) -> Measure:
    """Make what measures decisions about some of the rows."""

    def measure(
        index: Codes, cells: Cells, compiled: LinearConstraints, level: float
    ) -> tuple[Float, Float]:
        found = MeasuredRows.of(cells, compiled, scored.take(index), level)
        return found.values, found.sampled.constraints

    return measure


def measure_predictions(rows: PredictedRows, score: Array) -> Measure:
    """Make what measures predictions of numbers for some of the rows, given their scores."""

    def measure(
        index: Codes, cells: Cells, compiled: LinearConstraints, level: float
    ) -> tuple[Float, Float]:
        part = PredictedRows(cells, compiled, rows.source, rows.targets[index], rows.objective)
        functionals, intervals, _ = part.intervals(score[index], level)
        return compiled.values(functionals), intervals

    return measure


def period_frame(
    rows: Rows,
    compiled: LinearConstraints,
    measure: Measure,
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
    measure : callable
        Measures decisions or predictions (:func:`measure_decisions`, :func:`measure_predictions`).
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
    by_period = _ByPeriod(rows, compiled, measure)
    found = [by_period.measure_rows(period.rows, level) for period in periods]
    constraints, records = compiled.constraints, []
    expected, drifts = by_period.find_drift(periods, level)
    for j, constraint in enumerate(constraints):
        stated = str(constraint), constraint.sense, constraint.bound
        for k, (period, (values, intervals, sizes)) in enumerate(zip(periods, found, strict=True)):
            is_last = k == len(periods) - 1
            records.append((
                *stated, k + 1, plain_time(period.first), plain_time(period.last), sizes[j],
                values[j], *intervals[j],
                *(expected[j] if is_last else (np.nan, np.nan)),
                drifts[j] if is_last else None,
            ))  # fmt: skip
    return set_period_types(pd.DataFrame(records, columns=list(PERIOD_COLUMNS)))


def empty_period_frame() -> pd.DataFrame:
    """Make a table of no periods."""
    return set_period_types(pd.DataFrame(columns=list(PERIOD_COLUMNS)))


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
    """Rows of several periods, with what measures constraints on them."""

    rows: Rows
    compiled: LinearConstraints
    measure: Measure

    def measure_rows(self, index: Codes, level: float) -> tuple[Float, Float, list[int]]:
        """Measure the constraints on some rows: values, intervals, and numbers of rows."""
        rows, constraints = self.rows.take(index), self.compiled.constraints
        cells, compiled = compile_constraints(constraints, rows, self.compiled, warning=None)
        sizes = [rows_of_constraint(cells, compiled, j) for j in range(len(constraints))]
        return *self.measure(index, cells, compiled, level), sizes

    def find_drift(self, periods: Sequence[Period], level: float) -> tuple[Float, list[Any]]:
        """Find the interval of each value in the last period, and whether the value is outside."""
        n = len(self.compiled.constraints)
        joint = 1.0 - (1.0 - level) / max(n, 1)
        before = np.sort(np.concatenate([period.rows for period in periods[:-1]]))
        value, earlier, _ = self.measure_rows(before, joint)
        now, last, _ = self.measure_rows(periods[-1].rows, joint)
        (low, high), (last_low, last_high) = earlier.T, last.T
        # The difference of two values varies as both of them do.
        expected = np.column_stack([
            value - np.hypot(value - low, last_high - now),
            value + np.hypot(high - value, now - last_low),
        ])  # fmt: skip
        ranges = self.compiled.ranges
        expected = np.clip(expected, ranges[:, :1], ranges[:, 1:])
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
