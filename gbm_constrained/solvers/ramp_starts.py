r"""Coefficients that majorisation and minimisation starts from.

Algorithm 1 of Goh et al. (2016) is given coefficients whose ramp rates meet all constraints. Here
they are, in this order,

- given ones, as of a deployed model, multiplied by a factor. A row whose score is beyond
  :math:`\pm\tfrac12` on the side of its cost has a constant bound, and a start where all rows are
  such is a fixed point. The factor nearest to one is taken with which the ramp constraints are met
  and enough rows are between;
- a constant score :math:`p - \tfrac12`. The violation of each constraint is linear in p, and of
  the interval that meets all constraints the p nearest to :math:`\tfrac12` is taken;
- what Algorithm 1 itself finds, started at the constant of the least largest violation, without an
  objective and with a limit of the multipliers in its place, so that it lowers the largest
  violation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.exceptions import InfeasibleConstraintsError
from gbm_constrained.solvers.cutting_plane import FEASIBLE
from gbm_constrained.solvers.dataset_rates import Losses, RateProblem
from gbm_constrained.solvers.majorization_minimization import (
    MajorizationMinimization,
    ScoreModel,
    Step,
)

FACTORS = 2.0 ** np.linspace(-12, 12, 385)  # Neighbours differ by 4.4 %.
MOVING_SHARE = 0.1  # Share of rows within the ramp at which a given start moves.
MAX_STEPS = 100  # Steps that lower the largest violation.
PRICE = 1000.0  # Limit of the multipliers where violations are all there is to pay for.
IN_CONFLICT = 1e-3  # Least share of the multipliers of a constraint that is named in a conflict.


@dataclass(frozen=True, eq=False)
class Start:
    """Coefficients that meet the ramp constraints.

    Parameters
    ----------
    coefficients : (n_features + 1,). The coefficients.
    factor : Factor of the given coefficients; NaN where the start is not one of them.
    n_iter : Steps that lowered the largest violation.
    """

    coefficients: Float
    factor: float = np.nan
    n_iter: int = 0


def find_start(
    problem: RateProblem,
    model: ScoreModel,
    method: MajorizationMinimization,
    given: Float | None = None,
) -> Start:
    """Find coefficients whose ramp rates meet the constraints.

    Parameters
    ----------
    problem : RateProblem
        Objective and constraints.
    model : ScoreModel
        Scores of the problem's rows.
    method : MajorizationMinimization
        Options of the steps that lower the largest violation.
    given : ndarray of shape (n_features + 1,), default=None
        Coefficients to start from, if a multiple of them meets the constraints.

    Raises
    ------
    InfeasibleConstraintsError
        If no coefficients were found, with the constraints in conflict.
    """
    if given is not None:
        factor = find_factor(problem, model.scores(given), method.losses)
        if factor is not None:
            return Start(factor * given, factor)
    constant = np.zeros(model.n_features + 1)
    interval = problem.feasible_shares()
    if interval is not None:
        constant[-1] = np.clip(0.5, *interval) - 0.5
        return Start(constant)
    constant[-1] = problem.least_violating_share() - 0.5
    return _lower_violation(problem, model, method, constant)


def find_factor(problem: RateProblem, scores: Float, losses: Losses) -> float | None:
    """Find the factor of given scores that a start is multiplied by; None if there is none."""
    best, most_moving = None, 0.0
    for factor in sorted(FACTORS, key=lambda factor: abs(np.log(factor))):
        z = factor * scores
        if (problem.violations(losses.values(problem, z)) > FEASIBLE).any():
            continue
        moving = float((np.abs(z) <= 0.5).mean())
        if moving >= MOVING_SHARE:
            return float(factor)
        if moving > most_moving:
            best, most_moving = float(factor), moving
    return best


def _lower_violation(
    problem: RateProblem, model: ScoreModel, method: MajorizationMinimization, constant: Float
) -> Start:
    """Take steps without an objective until the constraints are met, or the violation is still."""
    search = replace(method.search, limit=PRICE, max_limit=PRICE)
    priced = replace(
        method, search=search, gap=PRICE * method.gap, first_gap=PRICE * method.first_gap
    )
    steps = priced.iterate(problem.without_objective(), model, constant)
    last = next(steps)
    for n_iter, step in enumerate(islice(steps, MAX_STEPS), 1):
        if step.violation <= 0:
            return Start(step.coefficients, n_iter=n_iter)
        is_still = last.violation - step.violation <= method.tol * step.violation
        last = step
        if search.is_over():
            raise InfeasibleConstraintsError(
                f"no linear scores were found in time whose expected rates meet all constraints: "
                f"the largest violation is {step.violation:.3g}. Give more time, relax the "
                f"constraints, or give coefficients that meet them to start from."
            )
        if is_still:
            break
    raise InfeasibleConstraintsError(_explain(problem, last))


def _explain(problem: RateProblem, step: Step) -> str:
    """Name the constraints whose multipliers say that they are in conflict."""
    shares = step.multipliers / PRICE
    named = [
        name for name, share in zip(problem.names, shares, strict=True) if share > IN_CONFLICT
    ]
    conflict = " and ".join(named or problem.names)
    return (
        f"no linear scores were found whose expected rates meet all constraints: the largest "
        f"violation is {step.violation:.3g}, with {conflict} in conflict. Relax one of them, "
        f"weaken the penalty of the coefficients or scale the features up, or give coefficients "
        f"that meet them to start from."
    )
