"""The choice between candidates that were measured on rows that they have not seen."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING


def choose(
    objectives: Float,
    violations: Float,
    errors: Float,
    price: float,
    weights: Float | float = 1.0,
) -> int:
    r"""Choose the candidate that a fit returns.

    Where some candidate c brings each row j of the constraints to within one standard error,
    :math:`v_{cj} \le s_{cj}`, the others are left out. Of those left, the one of smallest

    .. math:: o_c + p \, \max_j w_j \max(v_{cj}, 0)

    is chosen, and the earlier one of equals. Candidates without an objective come last.

    Parameters
    ----------
    objectives : ndarray of shape (n_candidates,)
        Objective o, to be made small.
    violations : ndarray of shape (n_candidates, n_rows)
        Left-hand minus right-hand side v of each row of constraints.
    errors : ndarray of shape (n_candidates, n_rows)
        Standard errors s of the violations.
    price : float
        Objective p that a unit of violation is worth.
    weights : float or ndarray of shape (n_rows,), default=1
        Factors w of the violations.

    Returns
    -------
    int
        Position of the candidate.
    """
    reaches = (violations <= errors + ROUNDING).all(axis=1) & np.isfinite(objectives)
    merit = objectives + price * (weights * violations).max(axis=1, initial=0.0)
    merit = np.where(reaches | ~reaches.any(), np.nan_to_num(merit, nan=np.inf), np.inf)
    return int(np.argmax(merit <= merit.min() + ROUNDING))
