"""Which prefix of an ensemble to keep, or with which probability each.

Every outer iteration leaves a model behind: the ensemble as far as it had grown. Rates jump from
one to the next, so that none need meet all rules and be the best; a distribution over them can. As
prefixes of one ensemble they cost nothing to store.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from gbm_constrained._typing import Float
from gbm_constrained.decision.rule import MET

# By default programmes are solved to 1e-7, and smaller violations are traded for errors.
FINE: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
LATE = 0.5  # Share of the prefixes that may stand for the last one.


def best_prefix(errors: Float, violations: Float) -> int:
    """Prefix of smallest error among those that meet all constraints.

    Parameters
    ----------
    errors : ndarray of shape (n_prefixes,)
        0-1 error of each prefix.
    violations : ndarray of shape (n_prefixes, m)
        Left-hand minus right-hand side of each row of constraints.

    Returns
    -------
    int
        Its position: the last of equals. Where none meets all constraints, the one whose largest
        violation is smallest.
    """
    worst = violations.max(axis=1, initial=0.0)
    rank = np.where(worst <= MET, errors, np.inf) if (worst <= MET).any() else worst
    return int(rank.size - 1 - rank[::-1].argmin())


def last_prefix(violations: Float) -> int:
    """Last prefix, or where it violates constraints, the last of the late ones that does least.

    Parameters
    ----------
    violations : ndarray of shape (n_prefixes, m)
        As in :func:`best_prefix`.

    Returns
    -------
    int
        Its position, in the later half.
    """
    worst = violations.max(axis=1, initial=0.0)
    late = np.where(worst > MET, worst, 0.0)[int(len(worst) * (1 - LATE)) :]
    least = late <= late.min() + MET
    return len(worst) - 1 - int(least[::-1].argmax())


def prefix_mixture(errors: Float, violations: Float) -> tuple[NDArray[np.intp], Float]:
    r"""Distribution over prefixes of least expected error that meets the constraints in the mean.

    The linear programme of Cotter et al., "Two-Player Games for Efficient Non-Convex Constrained
    Optimization" (2019), Lemma 2:

    .. math:: \min_\lambda \sum_t \lambda_t e_t \quad \text{s.t.} \quad
        \sum_t \lambda_t g_j(x_t) \le 0, \; \sum_t \lambda_t = 1, \; \lambda \ge 0 .

    A vertex of its feasible set has at most m + 1 prefixes. Where no mixture is feasible, the
    largest expected violation is made as small as it can be, and the error as small as that
    allows.

    Parameters
    ----------
    errors, violations
        As in :func:`best_prefix`.

    Returns
    -------
    chosen : ndarray of int
        Positions of the prefixes with positive probability.
    probability : ndarray
        Theirs; sums to one.
    """
    n, m = violations.shape
    one, unit = np.ones(n), np.array([1.0])
    excess = 0.0
    if violations.max(axis=1).min() > 0:
        # The smallest s >= 0 with sum_t lambda_t g_j(x_t) <= s for all j.
        found = linprog(
            np.append(np.zeros(n), 1.0),
            A_ub=np.hstack([violations.T, -np.ones((m, 1))]),
            b_ub=np.zeros(m),
            A_eq=np.append(one, 0.0)[None],
            b_eq=unit,
            method="highs-ds",
            options=FINE,
        )
        assert found.fun is not None
        # No slack: it would buy error with violations that count, and tiny probabilities.
        excess = float(found.fun) if found.fun > MET else 0.0
    found = linprog(
        errors,
        A_ub=violations.T,
        b_ub=np.full(m, excess),
        A_eq=one[None],
        b_eq=unit,
        method="highs-ds",
        options=FINE,
    )
    assert found.x is not None  # the simplex is not empty
    weight = np.maximum(found.x, 0.0)
    chosen = np.flatnonzero(weight > 1e-9)
    return chosen, weight[chosen] / weight[chosen].sum()
