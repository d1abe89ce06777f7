"""Exact solution of the proximal subproblems of a solver."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from gbm_constrained._typing import Float
from gbm_constrained.linear_model.linear_scores import MAX_DENSE, LinearScores
from gbm_constrained.linear_model.newton_step import solve_by_newton
from gbm_constrained.linear_model.proximal_problem import ProximalSubproblem
from gbm_constrained.problem.regression import RegressionLagrangian
from gbm_constrained.solvers.base import Solver
from gbm_constrained.solvers.cbpr import CBPRSolver

NEAR = 1e-6  # Norm of the gradient from which Newton steps are taken.


def solve_subproblem(learner: LinearScores, solver: Solver, weights: Float) -> Float:
    """Minimise the current subproblem of a solver: a trust region, then Newton steps.

    A regression takes Newton steps alone, whose Hessians are factorised.
    """
    problem = ProximalSubproblem(learner, solver, weights)
    if isinstance(learner.lagrangian, RegressionLagrangian) and learner.shape[0] <= MAX_DENSE:
        return np.asarray(weights + problem.at(solve_by_newton(problem))[0])
    z = np.zeros(int(np.prod(problem.shape)))
    gradient = problem.value_and_gradient(z)[1]
    if isinstance(solver, CBPRSolver):  # strongly convex, and the start is near
        z, gradient = problem.take_newton_steps(z, gradient)
    if np.linalg.norm(gradient) > NEAR:
        found = minimize(
            problem.value_and_gradient,
            z,
            jac=True,
            hessp=problem.hessian_product,
            method="trust-ncg",
            options={"gtol": NEAR, "maxiter": 200},
        )
        z, gradient = found.x, found.jac
    z, _ = problem.take_newton_steps(z, gradient)
    return np.asarray(weights + problem.at(z)[0])
