"""The iterate of an exact learner that becomes the model."""

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

    0-1 rates jump about their bounds to the end. Where the last iterate violates a rule, the best
    that met all takes its place: that of least objective, or if none did, of least violation. The
    average of all iterates converges as one over their number, after the last one.
    """

    def __init__(self, learner: LinearLearner, options: SolverOptions, tol: float) -> None:
        self.learner = learner
        self.ergodic = options.iterate == "ergodic"
        is_loss = np.array([c.is_loss for c in options.constraints])
        self.has_rates = not is_loss.all()
        # Mean losses end within `tol` of their bounds, on either side.
        self._slack = np.where(is_loss[learner.lagrangian.constraints.owner], tol, ROUNDING)
        self.tol = tol
        self._best: tuple[tuple[float, bool, float], Float, int] | None = None

    def excess(self, weights: Float) -> Float:
        """Violation of each row of constraints, zero where it is rounding."""
        g = self.learner.violations(weights)
        return np.where(g > self._slack, g, 0.0)

    def add(self, solution: Solution) -> None:
        """Take note of the next iterate."""
        weights, n = solution.weights, len(solution.history)
        self.residual, self.converged = solution.residual, solution.converged
        if self.ergodic:
            weights = solution.average_weights
            self.residual = max(self.residual, self._residual_of_average(solution))
            self.converged &= self.residual <= self.tol
        self._last = weights, n
        if self.ergodic or not self.has_rates:
            return
        worst = float(self.excess(weights).max(initial=0.0))
        self._is_met = worst == 0.0
        # A constant model, which CBPR may start from, has the least loss where rules ask for much.
        is_start = np.isinf(solution.residual)
        rank = worst, is_start, self.learner.objective(weights) if self._is_met else 0.0
        if self._best is None or rank <= self._best[0]:
            self._best = rank, weights, n

    def _residual_of_average(self, solution: Solution) -> float:
        """Feasibility and complementarity of the ergodic iterates."""
        moved = solution.history[-1].bounds - self.learner.lagrangian.constraints.b
        g = self.learner.violations(solution.average_weights) - moved
        return float(np.abs(np.maximum(g, -solution.average_multipliers)).max(initial=0.0))

    def chosen(self) -> tuple[Float, int]:
        """Weights of the returned model, and after how many iterations they were reached."""
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
    ends = IterateChoice(learner, fit.options, tol)
    notifier = fit.notifier
    notifier.is_training_over(0)  # which begins to count the time

    def is_over(n_iterations: int) -> bool:
        return notifier.is_training_over(n_iterations) or notifier.is_stopped

    try:
        for solution in learner.path(n_iterations, tol, start, fit.solver, adaptive, is_over):
            ends.add(solution)
            if ends.converged:
                break
    finally:
        fit.run.hide_progress()
    return ends, solution


def warn_of_convergence(
    choice: IterateChoice, weights: Float, announcer: CallbackNotifier, n_iterations: int
) -> bool:
    """Warn where the solver has not converged; return whether a violated constraint was named.

    Parameters
    ----------
    choice : IterateChoice
        Iterates of the solver.
    weights : ndarray like ``learner.shape``
        Weights of the model returned.
    announcer : CallbackNotifier
        Progress of the fit, which says whether its time is over.
    n_iterations : int
        Most iterations that the solver may take.
    """
    stopped = f"The solver stopped after n_iterations={n_iterations}"
    more = "increase n_iterations"
    if announcer.is_out_of_time:
        stopped, more = f"The solver stopped at {announcer.limit}", "increase time_limit"
    remedy = f"{more}, scale the features, or relax constraints that cannot all"
    if not choice.has_rates and not choice.converged:
        what = "an average whose residual is" if choice.ergodic else "a residual of"
        issue_warning(
            f"{stopped} with {what} {choice.residual:.1e} > tol={choice.tol}: {remedy} be met.",
            "GC304",
        )
    excess = choice.excess(weights)
    is_missed = bool(choice.has_rates and excess.any())
    if is_missed:
        worst = int(excess.argmax())
        rule = choice.learner.lagrangian.constraints.rows[worst]
        if choice.ergodic:
            found, remedy = "the average of all iterates", f"use iterate='last', {remedy}"
        else:
            found = "no iterate met the rules. The one that is returned"
        issue_warning(
            f"{stopped}, and {found} violates {rule} by {excess[worst]:.3g} on the training "
            f"rows: {remedy} be met.",
            "GC107",
        )
    return is_missed
