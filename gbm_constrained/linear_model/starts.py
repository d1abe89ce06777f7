"""Feasible starts of CBPR on a linear model."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.linear_model.linear import LinearLearner
from gbm_constrained.solvers.auto import AutoSolver
from gbm_constrained.solvers.cbpr import FEASIBLE, CBPRSolver
from gbm_constrained.training.fit import ConstrainedFit

N_SHARES = 40  # Number of models that are tried on the way to a constant one.


def find_feasible_start(
    learner: LinearLearner, start: Float, fit: ConstrainedFit, n_iterations: int, tol: float
) -> Float | None:
    """Find weights that satisfy the constraints, which CBPR starts from.

    None is returned where no start was found and "auto" can take ABPP instead.
    """
    lagrangian = learner.lagrangian
    prior, uniform = np.zeros(learner.shape), np.zeros(learner.shape)
    if learner.fit_intercept:
        prior[-1] = lagrangian.constants.constant_scores
    for share in np.linspace(1.0, 0.0, N_SHARES + 1):
        for constant in (prior, uniform):
            weights = share * start + (1.0 - share) * constant
            if learner.violations(weights).max() <= FEASIBLE:
                return np.asarray(weights)
    # Groups have the same loss at equal probabilities. From there CBPR lowers the objective,
    # and what is bounded with it, while no constraint is violated more.
    solver = learner.solver(CBPRSolver)
    g = learner.violations(uniform)
    solver.bounds = solver.bounds + np.maximum(g, 0.0)

    def is_over(n_iterations: int) -> bool:
        return not fit.notifier.limit.has_time_for(0.0)

    for solution in learner.path(n_iterations, tol, uniform, solver, is_over=is_over):
        g = learner.violations(solution.weights)
        if g.max() <= FEASIBLE:
            return solution.weights
        if solution.converged:
            break
    if isinstance(fit.options.method, AutoSolver):
        return None
    worst = int(g.argmax())
    raise ValueError(
        f"CBPR starts from a model that meets the constraints, and none was found: the last "
        f"one tried violates {lagrangian.constraints.rows[worst]} by {g[worst]:.3g}. Give one "
        f"as coef_ and intercept_ with warm_start=True, relax the bound, or use "
        f"constraint_solver='abpp', which starts anywhere."
    )
