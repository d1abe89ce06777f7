r"""The criterion by which one of several measured candidates is returned.

Every candidate c, be it the plain model, a model under multipliers or one of these with another
decision, is measured once on rows that it has not seen: its objective :math:`o_c`, as a share of
that of the plain model, and its violation :math:`v_{cj}` of each row j of constraints, with the
standard error :math:`s_j`. Let

.. math:: J_c = o_c + \pi \max_j w_j \max(v_{cj}, 0)

with the weights :math:`w_j` of the violations and their price :math:`\pi`. Where the violations of
some candidates are all within one standard error, :math:`v_{cj} \le s_j`, the candidate of least J
among these is returned; otherwise the one of least J among all. Of equals the first is.
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING


def choose(
    objective: Float, violation: Float, error: Float, price: float, weight: Float | float = 1.0
) -> int:
    """Choose the candidate that the criterion of this module prefers.

    Parameters
    ----------
    objective : ndarray of shape (n_candidates,)
        Objective of each candidate, as a share of that of the plain model.
    violation : ndarray of shape (n_candidates, m)
        Left-hand minus right-hand side of each row of constraints.
    error : ndarray of shape (m,) or (n_candidates, m)
        Standard errors of the violations.
    price : float
        Objective that a violation of one is worth.
    weight : float or ndarray of shape (m,), default=1.0
        Factor on the violation of each row.

    Returns
    -------
    int
        Position of the candidate.
    """
    is_near = (violation <= error + ROUNDING).all(axis=1)
    worst = (weight * violation).max(axis=1, initial=0.0)
    sums = objective + price * np.maximum(worst - ROUNDING, 0.0)
    if is_near.any():
        sums = np.where(is_near, sums, np.inf)
    return int(np.argmin(sums))
