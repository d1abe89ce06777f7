"""Standard errors of errors and of rows of constraints, by the numbers of rows."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import LinearConstraints


def standard_error_of(error: float, n_rows: int) -> float:
    """Compute the standard error of an error on so many rows; NaN for an error that is NaN."""
    return float(np.sqrt(error * (1.0 - error) / n_rows))


def standard_errors(
    compiled: LinearConstraints, cells: Cells, functionals: Float | None = None
) -> Float:
    """Approximate the standard error of each row of constraints, taking groups as disjoint.

    Variances are taken at the values of functionals that are one rate, and at a rate of 0.1 for
    others and without values. Rows that are no straight lines have the error of their tangents.
    """
    if functionals is not None:
        compiled = compiled.tangent(functionals)
    squares, effective = np.zeros(compiled.constant.size), _effective_counts(cells)
    for k, parts in enumerate(compiled.parts):
        for part in parts or ():
            variance, n = 0.09, max(effective[part.cells].sum(), 1.0)
            if functionals is not None and len(parts or ()) == 1 and part.coefficient:
                rate = (functionals[k] - compiled.constant[k]) / part.coefficient
                rate = 0.0 if np.isnan(rate) else min(max(float(rate), 0.0), 1.0)
                variance = rate * (1.0 - rate)
            squares[k] += part.coefficient**2 * variance / n
    return np.asarray(np.sqrt(compiled.R.power(2) @ squares))


def _effective_counts(cells: Cells) -> Float:
    """Count the rows of each cell; rows that count for amounts as if these were alike."""
    if not cells.has_amounts:
        return cells.weighted_count
    ones, squares = cells.total(), cells.total(power=2)
    return np.divide(ones**2, squares, out=np.zeros_like(ones), where=squares > 0)
