"""Violations by priority: decisions that come first violate what comes first least.

Of all decisions, those are kept whose violation of the first priority is smallest, of these those
whose violation of the second one is smallest, and so on; of those left, the error decides. Where
no decision meets a priority, violations within a standard error of the smallest one count as
equal. The last part of such a violation is chance, and is not worth a constraint that comes after.

A violation of a comparison of groups within a standard error counts as none, unless its priority
is the last: one threshold closes a gap by deciding nearly all rows alike, and chance of the sample
opens any gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.merits import ErrorAndViolations, best_of
from gbm_constrained.decision.standard_errors import standard_errors
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.row_owners import compares_groups, find_levels, violation_weights

PRICE_RATIO = 10.0  # Price of a violation, in violations of the priority that follows.


@dataclass(frozen=True, eq=False)
class PriorityLevels:
    """The rows of constraints of each priority.

    Attributes
    ----------
    rows : list of ndarray of shape (m,), bool
        Rows of each priority, that come first ahead.
    weights : ndarray of shape (m,)
        Factor on the violation of each row.
    loosened : ndarray of shape (m,)
        Violation of each row that counts as none, where other priorities follow.
    tolerance : list of float
        Violation beyond the smallest one that counts as equal, for each priority but the last.
    """

    rows: list[Bool]
    weights: Float
    loosened: Float
    tolerance: list[float]

    @classmethod
    def of(cls, compiled: LinearConstraints, cells: Cells) -> PriorityLevels:
        """Read the priorities of constraints on these rows of data."""
        rows, weights = find_levels(compiled), violation_weights(compiled)
        if len(rows) < 2:
            return cls(rows, weights, np.zeros(len(compiled)), [])
        errors = standard_errors(compiled, cells)
        loosened = np.where(compares_groups(compiled), errors, 0.0)
        weighed = weights * errors
        return cls(rows, weights, loosened, [float(weighed[one].max()) for one in rows[:-1]])

    @property
    def are_several(self) -> bool:
        """Whether there is more than one priority."""
        return len(self.rows) > 1

    def split(self, merits: ErrorAndViolations) -> list[ErrorAndViolations]:
        """Measure the violations of each priority alone."""
        if not self.are_several:
            return [merits]
        *above, last = self.rows
        loose = merits.bounds + self.loosened
        return [
            *(merits.with_bounds(np.where(rows, loose, np.inf)) for rows in above),
            merits.with_bounds(np.where(last, merits.bounds, np.inf)),
        ]

    def price(self, violations: Sequence[Float]) -> Float:
        """Add up violations of each priority at their prices, in units of the last one."""
        n = len(violations)
        prices = PRICE_RATIO ** np.arange(n - 1, -1, -1.0)
        return np.asarray(np.tensordot(prices, np.asarray(violations), 1))

    def price_rows(self, violations: Float) -> float:
        """Price the largest violation of each priority, given those of all rows, shape (m,)."""
        weighed = self.weights * violations
        return float(self.price([weighed[rows].max(initial=0.0) for rows in self.rows]))

    def find_met_above(self, violations: Float) -> Bool:
        """Find the rows that are met, of priorities before one that is not; shape (m,)."""
        met = violations <= ROUNDING
        broken = [level for level, rows in enumerate(self.rows) if not met[rows].all()]
        above = np.zeros_like(met)
        for rows in self.rows[: max(broken, default=0)]:
            above |= rows
        return np.asarray(above & met)


def keep_least(violations: Sequence[Float], tolerance: Sequence[float], n: int) -> Bool:
    """Find the candidates that violate each priority least, given those before, shape (n,).

    Parameters
    ----------
    violations : sequence of ndarray of shape (n,)
        Largest violation of each priority.
    tolerance : sequence of float
        Violation beyond the smallest one that counts as equal, where that is above zero.
    n : int
        Number of candidates.
    """
    kept = np.ones(n, dtype=bool)
    for found, equal in zip(violations, tolerance, strict=True):
        kept &= found <= equal_to(float(found[kept].min()), equal)
    return kept


def equal_to(least: float, tolerance: float) -> float:
    """Find the largest violation that counts as equal to the smallest one."""
    return least + max(tolerance, ROUNDING) if least > 0.0 else 0.0


def best_by_priority(error: Float, violations: Sequence[Float], shift: Float) -> int:
    """Find the candidate that violates each priority least, then by error and shift."""
    *above, last = violations
    if not above:
        return best_of(error, last, shift)
    kept = np.flatnonzero(keep_least(above, [0.0] * len(above), error.size))
    return int(kept[best_of(error[kept], last[kept], shift[kept])])
