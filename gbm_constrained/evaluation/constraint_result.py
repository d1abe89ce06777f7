"""The result of one constraint: value, interval and verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained.constraints.expressions import Constraint, Quotient
from gbm_constrained.evaluation.sample_size import MIN_ROWS
from gbm_constrained.evaluation.verdicts import Verdict
from gbm_constrained.problem.linear_constraints import ROUNDING


@dataclass(frozen=True)
class ConstraintResult:
    """Value, interval and verdict of one constraint under the model returned.

    Parameters
    ----------
    constraint : Constraint
        The constraint.
    value, low, high : float
        Value on the rows that are reported, and its 95% interval.
    rows : int
        Number of rows of the smallest group; of precision and other quotients, the number of rows
        that the model's decisions put into numerator or denominator.
    verdict : Verdict
        Verdict on these figures; its text is ``str(verdict)``.
    alone : float, default=NaN
        Best value that any decision of the model has; of constraints in conflict.
    with_others : float, default=NaN
        Best value of decisions that satisfy the other constraints in conflict.
    trained : float, default=NaN
        Value on training rows, where these refute the constraint.
    unshifted : float, default=NaN
        Value without the shift, of mean losses that the shift breaks.
    """

    constraint: Constraint
    value: float
    low: float
    high: float
    rows: int
    verdict: Verdict
    alone: float = np.nan
    with_others: float = np.nan
    trained: float = np.nan
    unshifted: float = np.nan

    @property
    def is_met(self) -> bool:
        """Whether the value is within the bound."""
        sign, bound = self.constraint.sign, self.constraint.bound
        return bool(sign * self.value <= sign * bound + ROUNDING)

    @property
    def is_vacuous(self) -> bool:
        """Whether this is a quotient of next to no rows, such as precision on none selected."""
        return isinstance(self.constraint.expression, Quotient) and self.rows < MIN_ROWS

    def __str__(self) -> str:
        known = f"{self.value:.4f}" if np.isfinite(self.value) else "undefined"
        interval = f" ({self.low:.4f} to {self.high:.4f})" if np.isfinite(self.low) else ""
        few = f", of {self.rows} row{'s' * (self.rows != 1)}" if self.rows < MIN_ROWS else ""
        return f"{known}{interval}{few}"
