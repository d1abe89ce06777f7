"""Choice of one prefix of an ensemble by its records, or of a distribution over prefixes.

Every outer iteration leaves a prefix of the ensemble behind. Rates jump from one prefix to the
next, so that none may meet all constraints at the smallest error. A distribution over them can,
and prefixes of one ensemble cost nothing to store.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING

# By default programmes are solved to 1e-7, and smaller violations are traded for errors.
LP_TOLERANCES: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
LATE_SHARE = 0.5  # Share of the prefixes, the last ones, that may stand for the last one.


def find_best_prefix(errors: Float, violations: Float) -> int:
    """Find the position of the prefix with the smallest error that satisfies all constraints.

    `violations` are left-hand minus right-hand sides, (n_prefixes, m). The last of equals is
    taken. Where no prefix meets all constraints, the one with the smallest largest violation is.
    """
    worst = violations.max(axis=1, initial=0.0)
    rank = np.where(worst <= ROUNDING, errors, np.inf) if (worst <= ROUNDING).any() else worst
    return int(rank.size - 1 - rank[::-1].argmin())


def find_last_prefix(violations: Float) -> int:
    """Find the position of the last prefix, or of the late one that violates least."""
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
    largest expected violation is made smallest, and then the error. Returned are the positions of
    the prefixes with positive probability, and their probabilities.
    """
    n, m = violations.shape
    one, violation = np.ones(n), 0.0
    solve: Any = partial(linprog, b_eq=np.ones(1), method="highs-ds", options=LP_TOLERANCES)
    if violations.max(axis=1).min() > 0:
        # The programme finds the smallest s >= 0 with sum_t lambda_t g_j(x_t) <= s for all j.
        found = solve(
            np.append(np.zeros(n), 1.0),
            A_ub=np.hstack([violations.T, -np.ones((m, 1))]),
            b_ub=np.zeros(m),
            A_eq=np.append(one, 0.0)[None],
        )
        # A slack would buy error with violations that count, and tiny probabilities.
        violation = float(found.fun) if found.fun > ROUNDING else 0.0
    found = solve(errors, A_ub=violations.T, b_ub=np.full(m, violation), A_eq=one[None])
    weight = np.maximum(found.x, 0.0)
    chosen = np.flatnonzero(weight > 1e-9)
    return chosen, weight[chosen] / weight[chosen].sum()
