r"""The over-constrained projection onto the profiles that surrogates can have.

The projection of Jiang et al. (ICML 2020), eq. (4), finds parameters whose surrogates exceed a
target u least,

.. math:: \min_\theta Q(\theta), \quad Q(\theta) = \sum_k (l_k(\theta) - u_k)_+^2 .

For convex surrogates the problem is convex. Its gradient is that of a weighted loss, with the
weights :math:`2 (l_k - u_k)_+`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from scipy.optimize import minimize

from gbm_constrained._typing import Float
from gbm_constrained.solvers.parameter_spaces import BlackBoxProblem

MOST_STEPS = 200
MOST_SHRINKS = 4  # Of the proximal weight, each to a tenth.
MEMORY = 20  # Pairs of L-BFGS; few of them cost many steps where surrogates compete.
ACCURACY = 0.05  # Largest share of the decrease of Q that may be left.
ROUNDING = 1e-10  # Share of Q that rounding leaves.
STALLED = 1e-11  # Share of the objective that a step of L-BFGS gains at least.


class Projection(NamedTuple):
    """Parameters near the target, and how near they are at least.

    Parameters
    ----------
    parameters : ndarray of shape (d,)
        Parameters.
    accuracy : float
        Largest possible difference of Q from its minimum, for convex surrogates.
    """

    parameters: Float
    accuracy: float


def excess(problem: BlackBoxProblem, parameters: Float, target: Float) -> tuple[float, Float]:
    """Compute Q and its gradient in the parameters.

    Parameters
    ----------
    problem : BlackBoxProblem
        Parameters and surrogates.
    parameters : ndarray of shape (d,)
        Parameters.
    target : ndarray of shape (K,)
        Target u.

    Returns
    -------
    value : float
    gradient : ndarray of shape (d,)
    """
    scores = problem.space.training_scores(parameters)
    over = np.maximum(problem.surrogates.values(scores) - target, 0.0)
    by_score = problem.surrogates.gradient(scores, 2.0 * over)
    return float(over @ over), problem.space.pull_back(by_score)


def project(
    problem: BlackBoxProblem, centre: Float, target: Float, proximal_weight: float
) -> Projection:
    r"""Minimise :math:`Q(\theta)` by L-BFGS, until an accuracy of Q itself is certified.

    Steps z are in units in which :math:`\|z\|` is the root mean square of the change of the
    scores, divided by their standard deviation. With the gradient g in these units, convexity
    bounds what any parameters at a distance of at most R lower Q by,

    .. math:: Q(z) - \min_{\|z'\| \le R} Q(z') \le \langle g, z \rangle + R \|g\| .

    The search ends where that is a small share of the decrease of Q so far, with R twice
    :math:`\|z\|` and at least one. The surrogates then exceed those of the exact projection by at
    most the root of the bound, so that Lemma 1 holds up to it.

    A proximal term :math:`\rho \|z\|^2 / 2` keeps the parameters finite where a target is out of
    reach: a log loss falls for ever as scores grow. Its weight is shrunk where the minimum with
    the term is not accurate.

    Parameters
    ----------
    problem : BlackBoxProblem
        Parameters and surrogates.
    centre : ndarray of shape (d,)
        Centre of the proximal term, from which the search starts.
    target : ndarray of shape (K,)
        Target u.
    proximal_weight : float
        Largest weight rho of the proximal term.

    Returns
    -------
    Projection
    """
    unit = problem.space.score_unit(centre)
    at_centre, _ = excess(problem, centre, target)
    step, value, gradient = np.zeros(centre.size), np.inf, np.zeros(centre.size)

    def objective(at: Float, weight: float) -> tuple[float, Float]:
        nonlocal value, gradient
        value, by_parameter = excess(problem, centre + unit.parameters(at), target)
        gradient = unit.pull_back(by_parameter)
        return value + 0.5 * weight * float(at @ at), gradient + weight * at

    def bound(at: Float) -> float:
        radius = max(1.0, 2.0 * float(np.linalg.norm(at)))
        return float(gradient @ at) + radius * float(np.linalg.norm(gradient))

    def is_accurate(at: Float) -> bool:
        decrease = max(at_centre - value, 0.0)
        return bound(at) <= ACCURACY * decrease + ROUNDING * at_centre

    def end_if_accurate(at: Float) -> None:  # The last point that was tried is the new iterate.
        if is_accurate(at):
            raise StopIteration

    options: Any = {"gtol": 0.0, "ftol": STALLED, "maxiter": MOST_STEPS, "maxcor": MEMORY}
    for weight in proximal_weight * 0.1 ** np.arange(MOST_SHRINKS + 1):
        # The types of SciPy know no objective that returns its gradient as well.
        step = minimize(
            cast(Any, objective), step, args=(weight,), jac=True, method="L-BFGS-B",
            options=options, callback=cast(Any, end_if_accurate),
        ).x  # fmt: skip
        objective(step, weight)
        if is_accurate(step):
            break
    return Projection(np.asarray(centre + unit.parameters(step)), bound(step))
