"""What constraints cost: errors of the model returned, beside those that they should cost.

Constraints cost errors. The best group-wise decisions on the same scores that meet the constraints
(:mod:`.group_thresholds`) say how many they should cost: no decision could do better if it knew
the groups. If a model makes more errors than these, by :data:`COSTLY` and by two standard errors,
the fit gives a :class:`CostlyConstraintsWarning`. The warning names the constraint that costs
most: the one without which the threshold that meets the others has the fewest errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.decision.evaluation_set import UnseenRows
from gbm_constrained.decision.group_thresholds import GroupThresholds
from gbm_constrained.decision.prefix_choice import standard_error_of
from gbm_constrained.decision.threshold_search import ShiftSearch

COSTLY = 0.03  # Errors beyond those that constraints should cost, as a share of all rows.


@dataclass(frozen=True)
class Cost:
    """Errors that constraints cost, on the rows that the model was chosen by.

    Parameters
    ----------
    error : float, default=NaN
        Error of the model returned, at its own threshold.
    needed_error : float, default=NaN
        Error of the best group-wise decisions on its scores that meet the constraints; NaN where
        none meet them, and where nothing was chosen on unseen rows.
    unconstrained_error : float, default=NaN
        Error without constraints: that of boosters of the folds without multipliers, if such were
        grown, and otherwise that of the best group-wise decisions on the same scores.
    noise : float, default=NaN
        Standard error of `needed_error`.
    costliest : str, default=""
        The constraint that costs most, if they cost more than they should.
    error_without_costliest : float, default=NaN
        Error of the best threshold if that constraint were left out.
    rows : str, default=""
        Number and name of these rows.
    """

    error: float = np.nan
    needed_error: float = np.nan
    unconstrained_error: float = np.nan
    noise: float = np.nan
    costliest: str = ""
    error_without_costliest: float = np.nan
    rows: str = ""

    @property
    def is_costly(self) -> bool:
        """Whether the constraints cost more errors than they should."""
        excess = self.error - self.needed_error
        return bool(excess > max(COSTLY, 2.0 * self.noise))

    def message(self) -> str:
        """Describe it in words, with the remedy; empty unless the constraints are costly."""
        if not self.is_costly:
            return ""
        relaxed = "a bound"
        lines = [
            f"The rules cost more errors than they should, on {self.rows}: the model returned has "
            f"an error of {self.error:.4f}, {self.unconstrained_error:.4f} without rules, and "
            f"thresholds for each group on the same scores would meet the rules with "
            f"{self.needed_error:.4f}."
        ]
        if self.costliest:
            relaxed = f"the bound of {self.costliest}"
            lines.append(
                f"The rule that costs most is {self.costliest}: without it a threshold has an "
                f"error of {self.error_without_costliest:.4f}."
            )
        lines.append(f"Give more boosting rounds or a larger learning_rate, or relax {relaxed}.")
        return "\n".join(lines)


def measure_cost(
    rows: UnseenRows,
    margin: Array,
    shift: Float,
    bounds: Float,
    error: float,
    plain_error: float,
) -> Cost:
    """Measure what constraints cost.

    Parameters
    ----------
    rows : UnseenRows
        The rows that the model was chosen by.
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Their scores under the prefix that is returned, without a shift.
    shift : ndarray of shape (1,) or (n_classes,)
        The shift that is returned.
    bounds : ndarray of shape (m,)
        Right-hand sides that decisions had to meet.
    error : float
        Error of the model returned.
    plain_error : float
        Error of boosters without multipliers; NaN if there are none.
    """
    cells, compiled = rows.cells, rows.compiled
    of_groups = GroupThresholds(cells, compiled, margin, shift)
    needed = of_groups.error(bounds)
    if np.isnan(plain_error):
        plain_error = of_groups.error(np.full_like(bounds, np.inf))
    noise = standard_error_of(needed, len(cells.rows))
    where = f"{len(cells.rows):,} unseen rows ({rows.source})"
    found = Cost(error, needed, plain_error, noise, rows=where)
    names, owners = compiled.names, np.unique(compiled.owner)
    if not found.is_costly or margin.ndim > 1:
        return found
    search = ShiftSearch(margin, cells, compiled)
    without = [
        search.best(bounds=np.where(compiled.owner == j, np.inf, bounds)).error for j in owners
    ]
    least = int(np.argmin(without))
    return replace(found, costliest=names[owners[least]], error_without_costliest=without[least])
