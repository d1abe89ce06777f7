"""Violations by priority: decisions that come first violate what comes first least.

Of all decisions, those are kept whose violation of the first priority is smallest, of these those
whose violation of the second one is smallest, and so on. The last priority and the error decide
between those left. Violations within a standard error of the smallest one count as equal where no
decision meets a priority: the last part of a violation is chance, and is not worth a constraint
that comes after.

A comparison of groups that only a costly threshold would meet is violated: one threshold closes a
gap by deciding nearly all rows alike. So a penalised violation need not be smallest. It may be as
large as where error and penalised violation are smallest together, and a standard error larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.merits import ErrorAndViolations, best_of
from gbm_constrained.decision.standard_errors import anticipate_standard_errors
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.row_owners import find_levels, violation_weights

PRICE_RATIO = 10.0  # Price of a violation, in violations of the priority that follows.


@dataclass(frozen=True, eq=False)
class Step:
    """Rows of constraints whose violation is limited before what follows is looked at.

    Attributes
    ----------
    merits : ErrorAndViolations
        Measures the violations of these rows alone.
    tolerance : float
        Violation beyond the smallest one that counts as equal, where that is above zero.
    penalty : float or None
        Errors that a unit of violation is worth; None where the violation is to be smallest.
    """

    merits: ErrorAndViolations
    tolerance: float = 0.0
    penalty: float | None = None

    def find_limit(self, error: Float, violation: Float) -> float:
        """Find the largest violation that candidates may have."""
        if self.penalty is None:
            least = float(violation.min())
            return least + max(self.tolerance, ROUNDING) if least > 0.0 else 0.0
        return self._find_affordable(error, violation) + self.tolerance

    def _find_affordable(self, error: Float, violation: Float) -> float:
        """Find the violation where error and penalised violation are smallest together."""
        merit = error + (self.penalty or 0.0) * violation
        return float(violation[merit <= merit.min() + ROUNDING].min())

    def is_open(self, error: Float, violation: Float, inside: tuple[Float, Float]) -> Bool:
        """Find the bins inside of which a candidate may lower the limit.

        `inside` bounds error and violation in each bin from below.
        """
        low, least = inside
        if self.penalty is None:
            return np.asarray(least < violation.min())
        merit = float((error + self.penalty * violation).min())
        of_bins = low + self.penalty * least
        is_equal = of_bins <= merit + ROUNDING
        is_lower = least < self._find_affordable(error, violation)
        return np.asarray((of_bins < merit - ROUNDING) | (is_equal & is_lower))


@dataclass(frozen=True, eq=False)
class PriorityLevels:
    """The rows of constraints of each priority.

    Attributes
    ----------
    rows : list of ndarray of shape (m,), bool
        Rows of each priority, that come first ahead.
    weights : ndarray of shape (m,)
        Factor on the violation of each row.
    tolerance : list of float
        Violation beyond the smallest one that counts as equal, for each priority but the last.
    """

    rows: list[Bool]
    weights: Float
    tolerance: list[float]

    @classmethod
    def of(cls, compiled: LinearConstraints, cells: Cells) -> PriorityLevels:
        """Read the priorities of constraints on these rows of data."""
        rows, weights = find_levels(compiled), violation_weights(compiled)
        if len(rows) < 2:
            return cls(rows, weights, [])
        errors = weights * anticipate_standard_errors(compiled, cells)
        return cls(rows, weights, [float(errors[one].max()) for one in rows[:-1]])

    @property
    def are_several(self) -> bool:
        """Whether there is more than one priority."""
        return len(self.rows) > 1

    def split(self, merits: ErrorAndViolations) -> list[ErrorAndViolations]:
        """Measure the violations of each priority alone."""
        if not self.are_several:
            return [merits]
        return [_part(merits, rows) for rows in self.rows]

    def list_steps(
        self, merits: ErrorAndViolations, penalty: float | None, is_penalised: Bool | None
    ) -> list[Step]:
        """List the steps of a search before its last priority; penalised rows have their own."""
        if is_penalised is None:
            is_penalised = np.zeros(self.weights.size, dtype=bool)
        steps = []
        for rows, tolerance in zip(self.rows[:-1], self.tolerance, strict=True):
            for part, price in ((rows & ~is_penalised, None), (rows & is_penalised, penalty)):
                if part.any():
                    steps.append(Step(_part(merits, part), tolerance, price))
        return steps

    def price(self, violations: Sequence[Float]) -> Float:
        """Add up violations of each priority at their prices, in units of the last one."""
        n = len(violations)
        prices = PRICE_RATIO ** np.arange(n - 1, -1, -1.0)
        return np.asarray(np.tensordot(prices, np.asarray(violations), 1))

    def price_rows(self, violations: Float) -> Float:
        """Price the largest violation of each priority, given those of all rows, (..., m)."""
        weighed = self.weights * violations
        return self.price([weighed[..., rows].max(axis=-1, initial=0.0) for rows in self.rows])

    def price_later(self, violations: Float) -> Float:
        """Price violations of all rows, (..., m), without those of the first priority."""
        if not self.are_several:
            return np.zeros(violations.shape[:-1])
        return self.price_rows(np.where(self.rows[0], 0.0, np.maximum(violations, 0.0)))

    def find_met_above(self, violations: Float) -> Bool:
        """Find the rows that are met, of priorities before one that is not; shape (m,)."""
        met = violations <= ROUNDING
        broken = [level for level, rows in enumerate(self.rows) if not met[rows].all()]
        above = np.zeros_like(met)
        for rows in self.rows[: max(broken, default=0)]:
            above |= rows
        return np.asarray(above & met)


def _part(merits: ErrorAndViolations, rows: Bool) -> ErrorAndViolations:
    """Measure the violations of some rows of constraints alone."""
    return merits.with_bounds(np.where(rows, merits.bounds, np.inf))


def keep_least(steps: Sequence[Step], error: Float, violations: Sequence[Float]) -> Bool:
    """Find the candidates that are left after some steps, shape (n,).

    Parameters
    ----------
    steps : sequence of Step
        The steps.
    error : ndarray of shape (n,)
        Error of each candidate.
    violations : sequence of ndarray of shape (n,)
        Violation of each candidate in each step.
    """
    kept = np.ones(error.size, dtype=bool)
    for step, found in zip(steps, violations, strict=True):
        kept &= found <= step.find_limit(error[kept], found[kept])
    return kept


def best_by_priority(
    steps: Sequence[Step], error: Float, violations: Sequence[Float], shift: Float
) -> int:
    """Find the candidate that is left after some steps, then by violation, error and shift."""
    *above, last = violations
    kept = np.flatnonzero(keep_least(steps, error, above))
    return int(kept[best_of(error[kept], last[kept], shift[kept])])
