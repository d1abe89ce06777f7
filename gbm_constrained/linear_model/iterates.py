"""Choice of the iterate of an exact learner that becomes the model."""

from __future__ import annotations

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.linear_model.dictionary import Solution
from gbm_constrained.linear_model.linear import LinearLearner
from gbm_constrained.solvers.outer_loop import OuterLoop
from gbm_constrained.training.callbacks import CallbackNotifier
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.options import SolverOptions


class IterateChoice:
    """Choose the iterate that is returned.

    0-1 rates jump about their bounds to the end. Where the last iterate violates a constraint, the
    iterate of least objective among the feasible ones is returned, or the one of least violation.
    The average of k iterates converges as 1 / k, and later than the last one.
    """

    def __init__(self, learner: LinearLearner, options: SolverOptions, tol: float) -> None:
        self.learner = learner
        self.ergodic = options.iterate == "ergodic"
        compiled = learner.lagrangian.constraints
        jumps = compiled.has_rates | compiled.has_tables
        self.has_rates = bool(jumps.any())
        self.units = learner.lagrangian.constants.units.rows
        # Mean losses end within `tol` of their bounds, on either side.
        self._slack = np.where(jumps, ROUNDING, tol) * self.units
        self.tol = tol
        self._best: tuple[tuple[float, bool, float], Float, int] | None = None

    def violations(self, weights: Float) -> Float:
        """Compute the violation of each row of constraints, zero where it is rounding."""
        g = self.learner.violations(weights)
        return np.where(g > self._slack, g, 0.0)

    def add(self, solution: Solution) -> None:
        """Compare the next iterate with the best one so far."""
        weights, n = solution.weights, len(solution.history)
        self.residual, self.converged = solution.residual, solution.converged
        if self.ergodic:
            weights = solution.average_weights
            self.residual = max(self.residual, self._residual_of_average(solution))
            self.converged &= self.residual <= self.tol
        self._last = weights, n
        if self.ergodic or not self.has_rates:
            return
        worst = float((self.violations(weights) / self.units).max(initial=0.0))
        self._is_met = worst == 0.0
        # CBPR may start from a constant model, which has the least loss under tight constraints.
        is_start = np.isinf(solution.residual)
        rank = worst, is_start, self.learner.objective(weights) if self._is_met else 0.0
        if self._best is None or rank <= self._best[0]:
            self._best = rank, weights, n
        self.converged &= self._best[0][0] == 0.0  # Rates are met in full, and not within `tol`.

    def _residual_of_average(self, solution: Solution) -> float:
        """Compute the residual ``max_j |max(g_j, -y_j)|`` of the ergodic iterates."""
        moved = solution.history[-1].bounds - self.learner.lagrangian.constraints.b
        g = self.learner.violations(solution.average_weights) - moved
        of_objective = self.learner.lagrangian.constants.units.objective
        y = solution.average_multipliers * self.units / of_objective
        return float(np.abs(np.maximum(g / self.units, -y)).max(initial=0.0))

    def find_best(self) -> tuple[Float, int]:
        """Find the weights of the returned model, and the number of iterations up to them."""
        if self._best is None or self._is_met:
            return self._last
        return self._best[1:]


def follow_iterates(
    fit: ConstrainedFit, learner: LinearLearner, start: Float, n_iterations: int, tol: float
) -> tuple[IterateChoice, Solution]:
    """Iterate from a start until the solution has converged, or a callback stops.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, whose solver moves the multipliers.
    learner : LinearLearner
        The learner.
    start : ndarray like ``learner.shape``
        Weights to start from.
    n_iterations : int
        Most iterations.
    tol : float
        Residual at which the solution has converged.
    """
    assert isinstance(fit.solver, OuterLoop)
    method = fit.options.method
    adaptive = method.sigma is None and method.outlier_clip is None
    iterates = IterateChoice(learner, fit.options, tol)
    notifier = fit.notifier
    notifier.is_training_over(0)  # The call starts the clock of the time limit.

    def is_over(n_iterations: int) -> bool:
        return notifier.is_training_over(n_iterations) or notifier.is_stopped

    try:
        for solution in learner.path(
            n_iterations, tol, start, fit.solver, adaptive=adaptive, is_over=is_over
        ):
            iterates.add(solution)
            if iterates.converged:
                break
    finally:
        fit.run.hide_progress()
    return iterates, solution


def warn_of_convergence(
    choice: IterateChoice, weights: Float, notifier: CallbackNotifier, n_iterations: int
) -> bool:
    """Warn where the solver has not converged; return whether a violated constraint was named."""
    stopped = f"The solver stopped after n_iterations={n_iterations}"
    more = "increase n_iterations"
    if notifier.is_out_of_time:
        stopped, more = f"The solver stopped at {notifier.limit}", "increase time_limit"
    remedy = f"{more}, scale the features, or relax constraints that cannot all"
    if not choice.has_rates and not choice.converged:
        what = "an average whose residual is" if choice.ergodic else "a residual of"
        issue_warning(
            f"{stopped} with {what} {choice.residual:.1e} > tol={choice.tol}: {remedy} be met.",
            "GC304",
        )
    violations = choice.violations(weights)
    is_missed = bool(choice.has_rates and violations.any())
    if is_missed:
        worst = int((violations / choice.units).argmax())
        constraint = choice.learner.lagrangian.constraints.rows[worst]
        if choice.ergodic:
            found, remedy = "the average of all iterates", f"use iterate='last', {remedy}"
        else:
            found = "no iterate met the constraints. The one that is returned"
        issue_warning(
            f"{stopped}, and {found} violates {constraint} by {violations[worst]:.3g} on the "
            f"training rows: {remedy} be met.",
            "GC107",
        )
    return is_missed
