r"""The criterion by which a fit returns one of several measured candidates.

Every candidate c, be it the plain model, a model under multipliers or one of these with another
decision, is measured once on rows that it has not seen: its objective :math:`o_c`, which is to be
small, and its violation :math:`v_{cj}` of each row j of constraints, whose standard error is
:math:`s_{cj}`. Comparisons of groups are measured by credible rates
(:mod:`gbm_constrained.problem.credibility`). With the weights :math:`w_j` of violations and their
price :math:`\pi`, the merit of a candidate is

.. math:: J_c = o_c + \pi \max_j w_j \max(v_{cj}, 0) .

Constraints that no comparison of groups makes, and of regressors those that say nothing of groups,
are strict: where some candidate meets all of them to within sampling error,
:math:`v_{cj} \le s_{cj}`, candidates that do not are left out. Of those left, the candidate of
least merit is returned, and the first of equals. Comparisons of groups have their price alone,
since a constant decision meets any of them.

A bound on sampling error has an edge: of two candidates whose violations differ by nothing that
rows show, one may be within it and the other beyond. Where candidates are few, the choice r is
therefore compared with those that violate no strict row by more than it does beyond two errors,
:math:`v_{cj} \le \max(v_{rj}, 0) + 2 s_{cj}`. The one of least merit among them takes its place,
until there is none of smaller merit (:func:`choose_unbeaten`).
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING

VIOLATION_PRICE = 1.0
"""Objective that a unit of violation is worth: a point of a rate counts as one of accuracy."""
PRICE_OF_SCORES = 3.0
"""The same for constraints on scores, which deciding nearly all rows alike does not meet."""


def choose(
    objectives: Float,
    violations: Float,
    errors: Float,
    *,
    price: float = VIOLATION_PRICE,
    weights: Float | float = 1.0,
    is_strict: Bool | None = None,
) -> int:
    """Choose the candidate that a fit returns.

    Parameters
    ----------
    objectives : ndarray of shape (n_candidates,)
        Objective of each candidate; candidates without one, NaN, come last.
    violations : ndarray of shape (n_candidates, m)
        Left-hand minus right-hand side of each row of constraints.
    errors : ndarray of shape (m,) or (n_candidates, m)
        Standard errors of the violations.
    price : float, default=VIOLATION_PRICE
        Objective that a unit of violation is worth.
    weights : float or ndarray of shape (m,), default=1.0
        Factors on the violations.
    is_strict : ndarray of shape (m,), bool, default=None
        Rows that are met where they can be; all of them by default.

    Returns
    -------
    int
        Position of the candidate.
    """
    beyond = violations > errors + ROUNDING
    if is_strict is not None:
        beyond = beyond & is_strict
    reaches = ~beyond.any(axis=1) & np.isfinite(objectives)
    worst = (weights * violations).max(axis=1, initial=0.0)
    merits = np.nan_to_num(objectives, nan=np.inf) + price * np.where(worst > ROUNDING, worst, 0.0)
    if reaches.any():
        merits = np.where(reaches, merits, np.inf)
    return int(np.argmax(merits <= merits.min() + ROUNDING))


def choose_unbeaten(
    objectives: Float,
    violations: Float,
    errors: Float,
    *,
    weights: Float | float = 1.0,
    is_strict: Bool,
) -> int:
    """Choose the candidate that no other beats without being worse in the strict rows.

    Parameters are those of :func:`choose`, with errors of shape (n_candidates, m).
    """
    over = np.maximum(violations[:, is_strict], 0.0)
    chosen = choose(objectives, violations, errors, weights=weights, is_strict=is_strict)
    for _ in objectives:
        is_rival = (over <= over[chosen] + 2.0 * errors[:, is_strict] + ROUNDING).all(axis=1)
        of_rivals = np.where(is_rival, objectives, np.nan)
        is_priced = np.zeros_like(is_strict)
        best = choose(of_rivals, violations, errors, weights=weights, is_strict=is_priced)
        if best == chosen:
            break
        chosen = best
    return chosen
