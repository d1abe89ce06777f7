"""Standard errors of errors and of rows of constraints, by the numbers of rows."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.influence import Influence


def standard_error_of(error: float, n_rows: int) -> float:
    """Compute the standard error of an error on so many rows; NaN for an error that is NaN."""
    return float(np.sqrt(error * (1.0 - error) / n_rows))


def standard_errors(compiled: LinearConstraints, counts: CellCounts) -> Float:
    """Compute the standard error of each row of constraints at counted decisions, shape (m,).

    Rows that are no straight lines have the error of their tangents. It is zero for rows on scores
    or on no rows of data, whose errors counts do not tell.
    """
    influence = Influence.of(compiled, counts)
    tangents = compiled.tangent(influence.fractions.of(counts.weight.ravel()))
    variances = influence.variances(tangents.R)
    return np.sqrt(np.nan_to_num(variances))


def anticipate_standard_errors(compiled: LinearConstraints, cells: Cells) -> Float:
    """Approximate the standard error of each row of constraints before decisions are known.

    Rates are taken to be 0.1, and independent.
    """
    effective = _effective_counts(cells)
    squares = np.zeros(len(compiled.parts))
    for k, parts in enumerate(compiled.parts):
        for part in parts or ():
            n = max(effective[part.cells].sum(), 1.0)
            squares[k] += part.coefficient**2 * 0.09 / n
    return np.asarray(np.sqrt(compiled.R.power(2) @ squares))


def _effective_counts(cells: Cells) -> Float:
    """Count the rows of each cell; rows that count for amounts as if these were alike."""
    if not cells.has_amounts:
        return cells.weighted_count
    ones, squares = cells.total(), cells.total(power=2)
    return np.divide(ones**2, squares, out=np.zeros_like(ones), where=squares > 0)
