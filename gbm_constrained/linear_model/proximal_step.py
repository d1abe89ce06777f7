"""Exact solution of the proximal subproblems of a solver."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from gbm_constrained._typing import Float
from gbm_constrained.linear_model.linear_scores import MAX_DENSE, LinearScores
from gbm_constrained.linear_model.newton_step import NewtonSolver
from gbm_constrained.linear_model.proximal_problem import ProximalSubproblem
from gbm_constrained.problem.regression import RegressionLagrangian
from gbm_constrained.solvers.base import Solver
from gbm_constrained.solvers.cbpr import CBPRSolver

NEAR = 1e-6  # Norm of the gradient from which Newton steps are taken.


class SubproblemSolver:
    """Minimiser of the subproblems of a solver: a trust region, then Newton steps.

    A regression takes Newton steps alone, whose Hessians are factorised.

    Parameters
    ----------
    learner : LinearScores
        The learner.
    solver : Solver
        The solver, which has a subproblem in each of its iterations.
    """

    def __init__(self, learner: LinearScores, solver: Solver) -> None:
        self.learner, self.solver = learner, solver
        is_regression = isinstance(learner.lagrangian, RegressionLagrangian)
        is_small = learner.shape[0] <= MAX_DENSE
        self.newton = NewtonSolver(learner) if is_regression and is_small else None

    def solve(self, weights: Float) -> Float:
        """Minimise the current subproblem of the solver, from some weights."""
        problem = ProximalSubproblem(self.learner, self.solver, weights)
        if self.newton is not None:
            return self.newton.solve(problem)
        z = np.zeros(int(np.prod(problem.shape)))
        gradient = problem.value_and_gradient(z)[1]
        if isinstance(self.solver, CBPRSolver):  # strongly convex, and the start is near
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
