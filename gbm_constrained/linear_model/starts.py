"""Starts of the solvers on a linear model: feasible ones for CBPR, any for ABPP."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from gbm_constrained._typing import Float
from gbm_constrained.linear_model.linear import LinearLearner
from gbm_constrained.solvers.auto import AutoSolver
from gbm_constrained.solvers.cbpr import FEASIBLE, CBPRSolver
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.options import SolverOptions

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


def choose_start(
    model: Any,
    fit: ConstrainedFit,
    coefficients: Float,
    make_fit: Callable[[SolverOptions], ConstrainedFit],
    options: SolverOptions,
) -> tuple[ConstrainedFit, LinearLearner, Float]:
    """Find the weights that the solver starts from, ABPP's where none is feasible for CBPR.

    Parameters
    ----------
    model : ConstrainedLogisticRegression or ConstrainedRidge
        The estimator.
    fit : ConstrainedFit
        Its fit.
    coefficients : ndarray of shape (n_rows, n_weights)
        Coefficients of an unconstrained solution, the intercepts last.
    make_fit : callable
        Makes the fit of other options.
    options : SolverOptions
        Options of the estimator.
    """
    learner = _make_learner(model, fit)
    start = coefficients.T.reshape(learner.shape)
    if not isinstance(fit.solver, CBPRSolver):
        return fit, learner, start
    feasible = find_feasible_start(learner, start, fit, model.n_iterations, model.tol)
    if feasible is not None:
        return fit, learner, feasible
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The first fit has issued its warnings.
        fit = make_fit(options.with_abpp())
        fit.measure()
    return fit, _make_learner(model, fit), start


def _make_learner(model: Any, fit: ConstrainedFit) -> LinearLearner:
    X = validate_data(
        model, fit.data.combined.X, accept_sparse="csr", dtype=np.float64, reset=False
    )
    lagrangian = fit.solver.lagrangian
    return LinearLearner(
        lagrangian,
        X,
        fit_intercept=model.fit_intercept,
        l2=model._l2(lagrangian.total_weight),
        metric="scores",
    )
