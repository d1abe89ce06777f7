"""The result of one constraint: value, interval and verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.evaluation.sample_size import MIN_ROWS
from gbm_constrained.evaluation.verdicts import Verdict


@dataclass(frozen=True)
class ConstraintResult:
    """Value, interval and verdict of one constraint under the model returned."""

    constraint: Constraint
    value: float  # Value on the rows that are reported.
    low: float  # Ends of its 95% interval.
    high: float
    rows: int  # Rows of the smallest group, or those that decisions put into a quotient.
    verdict: Verdict  # Its text is ``str(verdict)``.
    alone: float = np.nan  # Best value of any decision of the model, for constraints in conflict.
    with_others: float = np.nan  # Best value while the others in conflict are satisfied.
    trained: float = np.nan  # Value on training rows, where these refute the constraint.
    given_up_for: tuple[Constraint, ...] = ()  # Constraints of priorities that come first.
    unshifted: float = np.nan  # Value without the shift, for mean losses that the shift breaks.

    @property
    def is_met(self) -> bool:
        """Whether the value is within the bound."""
        sign, bound = self.constraint.sign, self.constraint.bound
        return bool(sign * self.value <= sign * bound + ROUNDING)

    @property
    def is_vacuous(self) -> bool:
        """Whether the value is a quotient of few rows, such as precision on none selected."""
        return self.constraint.expression.is_quotient and self.rows < MIN_ROWS

    def __str__(self) -> str:
        known = f"{self.value:.4f}" if np.isfinite(self.value) else "undefined"
        interval = f" ({self.low:.4f} to {self.high:.4f})" if np.isfinite(self.low) else ""
        few = f", of {self.rows} row{'s' * (self.rows != 1)}" if self.rows < MIN_ROWS else ""
        return f"{known}{interval}{few}"
