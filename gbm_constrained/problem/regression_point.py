"""A regression's Lagrangian at fixed scores: value, gradient and Hessian."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.problem.regression_rows import RegressionRows
from gbm_constrained.problem.row_functions import row_derivatives, row_values
from gbm_constrained.problem.smooth_functions import (
    EXACT_WIDTH,
    Smooth,
    smooth_function,
    smooth_objective,
)


class RegressionPoint:
    """A regression's Lagrangian at fixed scores."""

    def __init__(self, problem: RegressionRows, margin: Array) -> None:
        self.problem, self.margin = problem, margin
        self.prediction = problem.objective.predict(margin)

    def statistics(self) -> CellStatistics:
        """Compute the mean of each row function in each cell, and the mean loss."""
        p = self.problem
        means = np.empty((len(p.cells), len(p.functions)))
        for s, function in enumerate(p.functions):
            values = p.row_weight * row_values(function, p.targets, self.prediction)
            means[:, s] = p.cells.total(values) / p.cell_weight
        loss = p.mean(p.objective.values(p.targets, self.margin))
        every = np.full(len(p.cells), loss)
        return CellStatistics(means, every, every)

    exact_statistics = statistics

    def gradient(
        self,
        multipliers: Float,
        anchor: Array | None = None,
        inverse_tau: float | Float = 0.0,
        *,
        learning_rate: float = 0.0,
    ) -> tuple[Array, Array]:
        """Compute gradient and Hessian majoriser of each row, multiplied by W.

        The centre `anchor` is by default the scores; ``1 / tau`` is one number or one by cell. The
        Hessian is that of a parabola above the function at any `learning_rate`.
        """
        p = self.problem
        grad, hess = p.objective.derivatives(p.targets, self.margin, p.scale)
        if not p.is_whole:  # Rows of further data sets are in no objective.
            inside = p.objective_weight > 0
            grad, hess = np.where(inside, grad, 0.0), np.where(inside, hess, 0.0)
        if multipliers.any():
            of_rules, curvature = self._of_rules(multipliers)
            grad, hess = grad + of_rules, hess + curvature
        grad, hess = self._weigh(grad, hess, anchor, inverse_tau)
        return grad.astype(p.dtype), hess.astype(p.dtype)

    def _of_rules(self, multipliers: Float) -> tuple[Float, Float]:
        """Compute what the rules add to gradients and Hessians."""
        p, f = self.problem, self.prediction
        coefficients = p.coefficients(multipliers)
        grad, hess = np.zeros_like(f), np.zeros_like(f)
        for s, function in enumerate(p.functions):
            a = coefficients[:, s]
            if not a.any():
                continue
            found = row_derivatives(function, p.targets, f, p.scale)
            slope, curvature = found.slope, found.curvature
            if p.objective.has_log_link:  # f' and f'' in the score are f
                slope, curvature = slope * f, curvature * f**2 + np.abs(slope) * f
            grad += a * slope
            hess += np.abs(a) * curvature
        return grad, hess

    def _weigh(
        self, grad: Float, hess: Float, anchor: Array | None, inverse_tau: float | Float
    ) -> tuple[Float, Float]:
        """Add the proximal term to gradients and Hessians, and multiply by the rows' weights."""
        pull = self._proximal_weight(inverse_tau)
        if pull is not None:
            hess = hess + pull
            if anchor is not None:
                grad = grad + pull * (self.margin - anchor)
        return grad * self.problem.row_weight, hess * self.problem.row_weight

    def _proximal_weight(self, inverse_tau: float | Float) -> Float | None:
        """Look up the weight of the proximal term of each row; None without a term."""
        if not np.any(inverse_tau):
            return None
        if np.ndim(inverse_tau) == 0:
            return np.full(self.problem.n_samples, float(inverse_tau))
        return self.problem.per_row(np.asarray(inverse_tau))


class SmoothRegressionPoint(RegressionPoint):
    """The Lagrangian of an exact learner, whose value, gradient and Hessian are of one function.

    Kinks are rounded within a width, and steps have their proxies. Statistics stay exact.

    Parameters
    ----------
    problem : Rows of the problem.
    margin : (n_samples,). Scores, which are the predictions.
    width : Distance from a kink, in standard deviations of the targets, within which it is round.
    slopes : (n_samples,) or a number. Slopes that the kinks are rounded about.
    """

    def __init__(
        self,
        problem: RegressionRows,
        margin: Array,
        width: float = EXACT_WIDTH,
        slopes: Float | float = 0.0,
    ) -> None:
        super().__init__(problem, margin)
        self.width, self.slopes = width, slopes

    def value(
        self, multipliers: Float, anchor: Array | None = None, inverse_tau: float = 0.0
    ) -> float:
        """Compute the Lagrangian, up to a constant."""
        p = self.problem
        total = float(p.row_weight @ self._sum(multipliers).value) / p.total_weight
        if anchor is not None and inverse_tau > 0:
            total += inverse_tau * p.bregman(self.margin, anchor)
        return total

    def gradient(
        self,
        multipliers: Float,
        anchor: Array | None = None,
        inverse_tau: float | Float = 0.0,
        *,
        learning_rate: float = 0.0,
    ) -> tuple[Array, Array]:
        """Compute gradient and second derivative of each row, multiplied by W."""
        found = self._sum(multipliers)
        return self._weigh(found.slope, found.curvature, anchor, inverse_tau)

    def hessian_product(self, multipliers: Float, u: Array, inverse_tau: float = 0.0) -> Array:
        """Compute the exact Hessian times `u` and W."""
        _, hess = self.gradient(multipliers, None, inverse_tau)
        return hess * u

    def _sum(self, multipliers: Float) -> Smooth:
        """Add up objective and rules of each row."""
        p = self.problem
        width = self.width * p.scale
        total = smooth_objective(p.objective, p.targets, self.margin, width, self.slopes)
        if not p.is_whole:  # Rows of further data sets are in no objective.
            total = total.times((p.objective_weight > 0).astype(np.float64))
        if multipliers.any():
            coefficients = p.coefficients(multipliers)
            for s, function in enumerate(p.functions):
                a = coefficients[:, s]
                if a.any():
                    found = smooth_function(
                        function, p.targets, self.margin, p.scale, width, self.slopes
                    )
                    total = total.plus(found.times(a))
        return total
