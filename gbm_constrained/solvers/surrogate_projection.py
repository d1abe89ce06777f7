r"""The over-constrained projection onto the profiles that surrogates can have.

The projection of Jiang et al. (ICML 2020), eq. (4), finds parameters whose surrogates exceed a
target u least,

.. math:: \min_\theta Q(\theta), \quad Q(\theta) = \sum_k (l_k(\theta) - u_k)_+^2 .

For convex surrogates the problem is convex. Its gradient is that of a weighted loss, with the
weights :math:`2 (l_k - u_k)_+`.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from scipy.optimize import minimize

from gbm_constrained._typing import Float
from gbm_constrained.solvers.parameter_spaces import BlackBoxProblem

MOST_STEPS = 500
MEMORY = 20  # Pairs of L-BFGS; few of them cost many steps where surrogates compete.


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
    problem: BlackBoxProblem,
    centre: Float,
    target: Float,
    proximal_weight: float,
    tolerance: float,
) -> Float:
    r"""Minimise :math:`Q(\theta) + \frac{\rho}{2} \|(\theta - \theta_0) / s\|^2` by L-BFGS.

    The proximal term keeps the parameters finite where a target is out of reach: a log loss falls
    for ever as scores grow. The term is strongly convex, so that a gradient g of the objective
    certifies an accuracy of :math:`\|g\|^2 / 2 \rho`, for convex surrogates (Theorem 2 asks for
    one of order 1 / T).

    Parameters
    ----------
    problem : BlackBoxProblem
        Parameters and surrogates.
    centre : ndarray of shape (d,)
        Centre of the proximal term, from which the search starts.
    target : ndarray of shape (K,)
        Target u.
    proximal_weight : float
        Weight rho of the proximal term, in units s of perturbations.
    tolerance : float
        Accuracy of the objective.

    Returns
    -------
    ndarray of shape (d,)
    """
    scale = problem.space.perturbation_scale(centre)

    def objective(step: Float) -> tuple[float, Float]:
        value, gradient = excess(problem, centre + scale * step, target)
        value += 0.5 * proximal_weight * float(step @ step)
        return value, scale * gradient + proximal_weight * step

    gtol = np.sqrt(2.0 * proximal_weight * tolerance / centre.size)
    options: Any = {"gtol": gtol, "ftol": 0.0, "maxiter": MOST_STEPS, "maxcor": MEMORY}
    # The types of SciPy know no objective that returns its gradient as well.
    found = minimize(
        cast(Any, objective), np.zeros(centre.size), jac=True, method="L-BFGS-B", options=options
    )
    return np.asarray(centre + scale * found.x)
