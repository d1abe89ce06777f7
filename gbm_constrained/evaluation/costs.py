"""Errors that constraints cost, beside those that they should cost.

The best group-wise decisions on the same scores (:mod:`gbm_constrained.decision.group_thresholds`)
say how many errors the constraints should cost. If a model makes more errors than these, by
:data:`MAX_EXCESS_ERROR` and by two standard errors, the fit gives a
:class:`~gbm_constrained.exceptions.CostlyConstraintsWarning`. The warning names the constraint
that costs most: the one without which the threshold that meets the others has the fewest errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.decision.affine import PredictedRows, find_deviance
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.group_thresholds import GroupThresholds
from gbm_constrained.decision.standard_errors import standard_error_of
from gbm_constrained.decision.threshold_search import ShiftSearch
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS

MAX_EXCESS_ERROR = 0.03  # Share of rows decided wrongly beyond what constraints should cost.


@dataclass(frozen=True)
class Cost:
    """Errors that constraints cost, on the rows that the model was chosen by."""

    error: float = np.nan  # Error of the model returned, at its own threshold.
    # Error of the best group-wise decisions on its scores that meet the constraints; NaN if none.
    needed_error: float = np.nan
    # Error of boosters without multipliers, or else of the best group-wise decisions.
    unconstrained_error: float = np.nan
    noise: float = np.nan  # Standard error of `needed_error`.
    costliest: str = ""  # Constraint that costs most, if they cost more than they should.
    error_without_costliest: float = np.nan  # Error of the best threshold without it.
    rows: str = ""  # Number and name of the rows.
    objective: str = "error"  # What all errors are; with a metric its loss.
    decisions: str = "thresholds for each group"  # Which ones need `needed_error`.
    # Whether these are no errors, but shares of the deviance that a regressor leaves unexplained.
    is_of_numbers: bool = False

    @property
    def is_costly(self) -> bool:
        """Whether the constraints cost more errors than they should."""
        excess_error = self.error - self.needed_error
        return bool(excess_error > max(MAX_EXCESS_ERROR, 2.0 * self.noise))


def measure_cost_of_numbers(rows: PredictedRows, score: Array) -> Cost:
    """Measure what constraints cost a regressor beside its own model, on the same rows.

    Shares are of the deviance, the mean loss beyond that of perfect predictions: one minus
    :math:`R^2` for the squared error.
    """
    plain, (least, deviance) = rows.plain_score, find_deviance(rows.lagrangian.rows)
    assert plain is not None
    more, noise = rows.compare_losses(score, plain)
    free = (rows.measure_scores(plain)[0] - least) / deviance
    where = f"{rows.cells.n_rows:,} unseen rows ({rows.source})"
    if rows.source == TRAINING_ROWS:
        where = f"{rows.cells.n_rows:,} {TRAINING_ROWS}"
    return Cost(
        free + more / deviance, free, free, noise / deviance, rows=where, is_of_numbers=True
    )


def measure_cost(
    rows: EvaluationSet,
    margin: Array,
    shift: Float,
    bounds: Float,
    error: float,
    unconstrained_error: float,
) -> Cost:
    """Measure the errors that constraints cost on the rows that the model was chosen by.

    `margin` are the scores under the prefix that is returned, without the `shift`. `bounds` are
    the right-hand sides that decisions had to meet. `unconstrained_error` is that of boosters
    without multipliers, NaN if there are none.
    """
    cells, compiled = rows.cells, rows.compiled
    group_thresholds = GroupThresholds(cells, compiled, margin, shift)
    needed = group_thresholds.find_error(bounds)
    if np.isnan(unconstrained_error):
        unconstrained_error = group_thresholds.find_error(np.full_like(bounds, np.inf))
    n_rows = cells.n_rows
    noise = standard_error_of(needed, n_rows)
    where = f"{n_rows:,} unseen rows ({rows.source})"
    found = Cost(error, needed, unconstrained_error, noise, rows=where)
    names, owners = compiled.names, np.unique(compiled.owner)
    if not found.is_costly or margin.ndim > 1:
        return found
    search = ShiftSearch(margin, cells, compiled)
    without = [
        search.find(bounds=np.where(compiled.owner == j, np.inf, bounds)).error for j in owners
    ]
    least = int(np.argmin(without))
    return replace(found, costliest=names[owners[least]], error_without_costliest=without[least])
