"""Choice of one prefix of an ensemble by its records, or of a distribution over prefixes.

Every outer iteration leaves a prefix of the ensemble behind. Rates jump from one prefix to the
next, so that none may meet all constraints at the smallest error. A distribution over them can,
and prefixes of one ensemble cost nothing to store.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from gbm_constrained._typing import Float
from gbm_constrained.problem.linear_constraints import ROUNDING

# By default programmes are solved to 1e-7, and smaller violations are traded for errors.
LP_TOLERANCES: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
LATE_SHARE = 0.5  # Share of the prefixes, the last ones, that may stand for the last one.


def find_best_prefix(errors: Float, violations: Float) -> int:
    """Find the prefix with the smallest error that satisfies all constraints.

    Parameters
    ----------
    errors : ndarray of shape (n_prefixes,)
        0-1 error of each prefix.
    violations : ndarray of shape (n_prefixes, m)
        Left-hand minus right-hand side of each row of constraints.

    Returns
    -------
    int
        Position of the prefix: the last of equals. Where none meets all constraints, the one whose
        largest violation is smallest.
    """
    worst = violations.max(axis=1, initial=0.0)
    rank = np.where(worst <= ROUNDING, errors, np.inf) if (worst <= ROUNDING).any() else worst
    return int(rank.size - 1 - rank[::-1].argmin())


def find_last_prefix(violations: Float) -> int:
    """Find the last prefix, or the late one that violates least if the last one violates.

    Parameters
    ----------
    violations : ndarray of shape (n_prefixes, m)
        As in :func:`find_best_prefix`.

    Returns
    -------
    int
        Position of the prefix, in the later half.
    """
    worst = violations.max(axis=1, initial=0.0)
    late = np.where(worst > ROUNDING, worst, 0.0)[int(len(worst) * (1 - LATE_SHARE)) :]
    least = late <= late.min() + ROUNDING
    return len(worst) - 1 - int(least[::-1].argmax())


def find_mixture(errors: Float, violations: Float) -> tuple[NDArray[np.intp], Float]:
    r"""Find the mixture of prefixes with the smallest mean error that satisfies the constraints.

    The linear programme of Cotter et al., "Two-Player Games for Efficient Non-Convex Constrained
    Optimization" (2019), Lemma 2:

    .. math:: \min_\lambda \sum_t \lambda_t e_t \quad \text{s.t.} \quad
        \sum_t \lambda_t g_j(x_t) \le 0, \; \sum_t \lambda_t = 1, \; \lambda \ge 0 .

    A vertex of the feasible set has at most m + 1 prefixes. Where no mixture is feasible, the
    largest expected violation is made as small as it can be, and the error as small as that
    allows.

    Parameters
    ----------
    errors, violations
        As in :func:`find_best_prefix`.

    Returns
    -------
    chosen : ndarray of int
        Positions of the prefixes with positive probability.
    probability : ndarray
        Probability of each, summing to one.
    """
    n, m = violations.shape
    one, unit = np.ones(n), np.array([1.0])
    violation = 0.0
    if violations.max(axis=1).min() > 0:
        # The smallest s >= 0 with sum_t lambda_t g_j(x_t) <= s for all j.
        found = linprog(
            np.append(np.zeros(n), 1.0),
            A_ub=np.hstack([violations.T, -np.ones((m, 1))]),
            b_ub=np.zeros(m),
            A_eq=np.append(one, 0.0)[None],
            b_eq=unit,
            method="highs-ds",
            options=LP_TOLERANCES,
        )
        assert found.fun is not None
        # No slack: it would buy error with violations that count, and tiny probabilities.
        violation = float(found.fun) if found.fun > ROUNDING else 0.0
    found = linprog(
        errors,
        A_ub=violations.T,
        b_ub=np.full(m, violation),
        A_eq=one[None],
        b_eq=unit,
        method="highs-ds",
        options=LP_TOLERANCES,
    )
    assert found.x is not None  # the simplex is not empty
    weight = np.maximum(found.x, 0.0)
    chosen = np.flatnonzero(weight > 1e-9)
    return chosen, weight[chosen] / weight[chosen].sum()
