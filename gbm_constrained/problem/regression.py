r"""The Lagrangian of a regression as a function of the scores of the training rows.

.. math:: \mathcal{L}(F, y) = \frac{1}{W} \sum_i w_i \ell(t_i, F_i) + \langle y, g(F) \rangle
          + \frac{1}{\tau} D(F, \bar F)

with targets t, a loss :math:`\ell` (Lin and Deng, Remark 3, name least squares and Huber's loss),
and :math:`g` a linear map of the cells' means of row functions h(t, f), where f is the prediction
of the score F. As for classifiers, gradients and Hessians are given per row and times W:

    grad_i = w_i [ l'(F_i) + sum_s coef_cs h_s'(f_i) f'(F_i) + (F_i - anchor_i) / tau ]
    hess_i = w_i [ l''(F_i) + sum_s |coef_cs| (h_s'' f'^2 + |h_s' f''|) + 1 / tau ]

with coef = (W / W_c) (A' y)_cs. The Hessian is that of a parabola above the Lagrangian, also where
a row function is concave. Of the statistics of cells there is one table: the weighted mean of each
row function, where classifiers have predicted fractions.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.rates import RowFunction, RowLoss
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.problem.lagrangian import Lagrangian, Units, norms_of
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.losses import (
    KINKS,
    RegressionObjective,
    curvature_range,
    row_derivatives,
    row_values,
    smooth_function,
    smooth_objective,
    unit_of,
)
from gbm_constrained.problem.rows import WeightedCells


class RegressionRows(WeightedCells):
    """Rows of a regression with what does not depend on scores.

    Parameters
    ----------
    targets : (n_samples,). Targets; any number for rows without one.
    cells, constraints : Partition of the rows, and the constraints compiled against it.
    functions : Row functions that the constraints take means of, in the order of the classes of
        `cells`.
    objective : The objective.
    weight : (n_samples,). Weight of each row in the objective; ones by default.
    dtype : Type of the returned gradients and Hessians.

    Attributes
    ----------
    scale : Weighted standard deviation of the targets; one where they are all alike.
    row_weight : (n_samples,). Weight of each row, also of rows that are in no objective.
    """

    n_scores = 1
    pairs = None  # No constraint of a regression compares the scores of two rows.

    def __init__(
        self,
        targets: Float,
        cells: Cells,
        constraints: LinearConstraints,
        *,
        functions: tuple[RowFunction, ...],
        objective: RegressionObjective,
        weight: Float | None = None,
        dtype: Any = np.float64,
    ) -> None:
        self.targets, self.cells, self.constraints = targets, cells, constraints
        self.functions, self.objective, self.dtype = functions, objective, np.dtype(dtype)
        self.weight = weight
        self.n_samples, self.reduce_sum = targets.size, cells.reduce_sum
        view = cells.views[0]
        inside = cells.in_objective[view.cells][view.small_codes]
        self.row_weight = np.ones(targets.size) if weight is None else weight
        self.objective_weight = np.where(inside, self.row_weight, 0.0)
        self.total_weight = float(self.objective_weight.sum())
        self.is_whole = bool(inside.all())
        share = self.objective_weight / self.total_weight
        self.scale = float(np.sqrt(share @ (targets - share @ targets) ** 2))
        # A deviation of so little of the largest target is due to rounding.
        if self.scale <= 1e-12 * float(np.abs(targets[share > 0]).max(initial=0.0)):
            self.scale = 1.0
        self.cell_weight = cells.total(weight)
        self.square_weight = cells.total(weight, power=2)

    @cached_property
    def constant_score(self) -> float:
        """Score of the mean target."""
        mean = self.objective_weight @ self.targets / self.total_weight
        return float(self.objective.score_of(mean))

    def apply_weights(self, x: Array, rows: slice) -> Array:
        """Multiply values of some rows by their weights, in place."""
        x *= self.row_weight[rows]
        return x

    def mean(self, values: Float) -> float:
        """Compute the weighted mean of values of the rows of the objective."""
        return float(self.objective_weight @ values) / self.total_weight

    def per_row(self, table: Float) -> Float:
        """Look up a table of cells, (n_cells,), for each row: the largest entry of its cells."""
        views = self.cells.views[: self.cells.n_binding]
        found = [table[view.cells][view.small_codes] for view in views]
        return np.asarray(np.max(found, axis=0))

    def gram(self, vectors: Float) -> Float:
        """Compute the products of vectors with an entry for each score, (m, n_samples)."""
        return np.asarray(vectors @ vectors.T)

    def coefficients(self, multipliers: Float) -> Float:
        """Compute the coefficient of each row function at each row, (n_samples, n_functions).

        The entries of a row's cells are added over views, times the row's amounts.
        """
        table = self.constraints.costs(multipliers).reshape(len(self.cells), -1)
        table = self.density[:, None] * table
        total = np.zeros((self.n_samples, table.shape[1]))
        for view in self.cells.views[: self.cells.n_binding]:
            total += view.weigh(table[view.cells][view.small_codes])
        return total

    def kink_weights(self, multipliers: Float) -> Float:
        """Compute what the kinks of objective and constraints at each target add up to, (n,)."""
        of_objective = KINKS.get(self.objective.name, 0.0)
        found = np.where(self.objective_weight > 0, of_objective, 0.0)
        coefficients = self.coefficients(multipliers)
        for s, function in enumerate(self.functions):
            if isinstance(function, RowLoss):
                found += KINKS.get(function.loss, 0.0) * coefficients[:, s]
        return found

    def bregman(self, margin: Array, other: Array) -> float:
        """Compute the Bregman distance ``(1/2W) sum_i w_i (F_i - F'_i)^2``, over all rows."""
        return float(self.row_weight @ np.square(margin - other)) / (2.0 * self.total_weight)


class RegressionPoint:
    """A regression's Lagrangian at fixed scores.

    With a `width`, as exact learners need it, value, gradient and Hessian are of one function:
    kinks are rounded within it, and steps have their proxies. Statistics stay exact.

    Parameters
    ----------
    problem : Rows of the problem.
    margin : (n_samples,). Scores, which are the predictions of an exact learner.
    width : Distance from a kink, in standard deviations of the targets, within which it is round;
        by default derivatives are those of parabolas above the function.
    slopes : (n_samples,) or a number. Slopes that the kinks are rounded about.
    """

    def __init__(
        self,
        problem: RegressionRows,
        margin: Array,
        width: float | None = None,
        slopes: Float | float = 0.0,
    ) -> None:
        self.problem, self.margin, self.width, self.slopes = problem, margin, width, slopes
        self.prediction = problem.objective.predict(margin)

    def statistics(self, *, is_exact: bool = True) -> CellStatistics:
        """Compute the mean of each row function in each cell, and the mean loss: always exact."""
        p = self.problem
        means = np.empty((len(p.cells), len(p.functions)))
        for s, function in enumerate(p.functions):
            values = p.row_weight * row_values(function, p.targets, self.prediction)
            means[:, s] = p.cells.total(values) / p.divisor
        loss = p.mean(p.objective.values(p.targets, self.margin))
        every = np.full(len(p.cells), loss)
        return CellStatistics(means, every, every)

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
        grad, hess = self._derivatives(multipliers)
        if np.any(inverse_tau):
            pull = inverse_tau if np.ndim(inverse_tau) == 0 else p.per_row(np.asarray(inverse_tau))
            hess = hess + pull
            if anchor is not None:
                grad = grad + pull * (self.margin - anchor)
        return (grad * p.row_weight).astype(p.dtype), (hess * p.row_weight).astype(p.dtype)

    def _derivatives(self, multipliers: Float) -> tuple[Float, Float]:
        """Add up slopes and curvatures of objective and constraints, by row of weight one."""
        if self.width is not None:
            _, grad, hess = self._sum(multipliers, self.width)
            return grad, hess
        p, f = self.problem, self.prediction
        grad, hess = p.objective.derivatives(p.targets, self.margin, p.scale)
        if not p.is_whole:  # Rows of further data sets are in no objective.
            inside = p.objective_weight > 0
            grad, hess = np.where(inside, grad, 0.0), np.where(inside, hess, 0.0)
        if not multipliers.any():
            return grad, hess
        added, bent = np.zeros_like(f), np.zeros_like(f)
        for function, a in zip(p.functions, p.coefficients(multipliers).T, strict=True):
            if a.any():
                slope, curvature = row_derivatives(function, p.targets, f, p.scale)
                if p.objective.has_log_link:  # f' and f'' in the score are f
                    slope, curvature = slope * f, curvature * f**2 + np.abs(slope) * f
                added += a * slope
                bent += np.abs(a) * curvature
        return grad + added, hess + bent

    def value(
        self, multipliers: Float, anchor: Array | None = None, inverse_tau: float = 0.0
    ) -> float:
        """Compute the Lagrangian, up to a constant."""
        p = self.problem
        assert self.width is not None
        total = float(p.row_weight @ self._sum(multipliers, self.width)[0]) / p.total_weight
        if anchor is not None and inverse_tau > 0:
            total += inverse_tau * p.bregman(self.margin, anchor)
        return total

    def hessian_product(self, multipliers: Float, u: Array, inverse_tau: float = 0.0) -> Array:
        """Compute the exact Hessian times `u` and W."""
        _, hess = self.gradient(multipliers, None, inverse_tau)
        return hess * u

    def _sum(self, multipliers: Float, width: float) -> Float:
        """Add up value, slope and curvature of objective and constraints, (3, n_samples)."""
        p = self.problem
        width *= p.scale
        total = np.stack(smooth_objective(p.objective, p.targets, self.margin, width, self.slopes))
        if not p.is_whole:  # Rows of further data sets are in no objective.
            total *= p.objective_weight > 0
        if multipliers.any():
            for function, a in zip(p.functions, p.coefficients(multipliers).T, strict=True):
                if a.any():
                    given = function, p.targets, self.margin, p.scale, width, self.slopes
                    total += np.stack(smooth_function(*given)) * a
        return total


class RegressionConstants:
    """Slopes and curvatures at the last scores, as losses of numbers have no largest slope.

    The root mean square slope of a cell's rows is a Lipschitz constant of the mean at these
    scores. It is a convex function of the scores, if the row function is a squared or linear one.
    The larger of its values at two scores then holds between them.

    Attributes
    ----------
    score : (n_samples,). The last scores.
    constant_scores : Score of the best constant model for the squared error, the mean target.
    constant_curvature, primal_step : Mean curvature of the loss at the mean target, and one over
        it.
    strong_convexity : Strong convexity of the loss, relative to the distance of scores.
    """

    are_global: ClassVar[bool] = False
    slope_on_path = None  # Slopes are those of the row functions.

    def __init__(self, rows: RegressionRows) -> None:
        self.rows = rows
        self.score: Array = np.full(rows.n_samples, rows.constant_score)
        self.constant_scores = rows.constant_score
        self.strong_convexity = 1.0 if rows.objective.name == "squared" else 0.0
        self.constant_curvature = self.loss_curvature(self.score)
        self.primal_step = 1.0 / self.constant_curvature

    def slopes(self) -> Float:
        """Root mean square slope of each row function in each cell, (n_cells * n_functions,)."""
        rows = self.rows
        f = rows.objective.predict(self.score)
        inner = f if rows.objective.has_log_link else 1.0
        own = np.where(rows.square_weight > 0, rows.square_weight, 1.0)
        found = np.empty((len(rows.cells), len(rows.functions)))
        for s, function in enumerate(rows.functions):
            slope = row_derivatives(function, rows.targets, f, rows.scale)[0] * inner
            found[:, s] = np.sqrt(rows.cells.total(rows.row_weight * slope**2, power=2) / own)
        return found.ravel()

    def loss_curvature(self, slopes: Float) -> float:
        """Mean curvature of the loss at the last scores."""
        rows = self.rows
        return rows.mean(rows.objective.derivatives(rows.targets, self.score, rows.scale)[1])

    @cached_property
    def units(self) -> Units:
        """Units of rows of constraints, objective and scores, which follow that of the targets."""
        rows = self.rows
        held = abs(rows.constraints.A)
        of_rows = np.ones(held.shape[0])
        if held.nnz:
            of_functions = np.array([unit_of(one, rows.scale) for one in rows.functions])
            unit = of_functions[held.indices % of_functions.size]
            held.data = np.where(held.data > 0.0, unit, 0)
            of_rows = held.max(axis=1).toarray().ravel()
        objective = rows.objective.values(np.array([rows.scale]), np.zeros(1))
        return Units(np.where(of_rows > 0, of_rows, 1.0), float(objective[0]), rows.scale)

    @property
    def sensitivities(self) -> Any:
        """Lipschitz constants of each row of constraints in the scores of each cell."""
        return self._reaction(self.slopes())

    def lipschitz(self, loss_slope: float | None = None) -> tuple[Float, float]:
        """Compute Lipschitz constants of the rows, (m,), and of all rows scaled to one."""
        return norms_of(self.sensitivities, self.rows.cells.views)

    def lipschitz_at(self, slopes: Float, of_pairs: Float) -> Float:
        """Compute Lipschitz constants with observed slopes, (m,)."""
        return np.asarray(sparse.linalg.norm(self._reaction(slopes), axis=1), dtype=np.float64)

    def observe_lipschitz(self, point: Any) -> Float:
        """Compute Lipschitz constants at the last scores, which are those of the point, (m,)."""
        return self.lipschitz_at(self.slopes(), np.zeros(0))

    def concavity(self, multipliers: Float) -> Float:
        r"""Bound the negative curvature of the constraints' Lagrangian in each cell.

        With a coefficient a, a row function whose second derivative lies in [l, u] bends downwards
        by at most :math:`\max(0, -a l, -a u)`. Losses whose curvature has no bound, as those with
        a kink, are left out.
        """
        rows = self.rows
        a = rows.constraints.costs(multipliers).reshape(len(rows.cells), -1)
        total = np.zeros(len(rows.cells))
        for s, function in enumerate(rows.functions):
            lowest, highest = curvature_range(function, rows.scale)
            if np.isfinite(highest):
                total += np.maximum(0.0, np.maximum(-a[:, s] * lowest, -a[:, s] * highest))
        return rows.scale_concavity(total)

    def _reaction(self, slopes: Float) -> Any:
        """Multiply coefficients, slopes and densities of cells, csr_array (m, n_cells)."""
        rows = self.rows
        if not rows.functions:  # There are no constraints.
            return sparse.csr_array((len(rows.constraints), len(rows.cells)))
        sloped = abs(rows.constraints.A) @ sparse.diags_array(slopes)
        scale = sparse.diags_array(np.sqrt(rows.effective_density))
        add = sparse.kron(scale, np.ones((len(rows.functions), 1)), format="csr")
        return sparse.csr_array(sloped @ add)


class RegressionLagrangian(Lagrangian):
    """Objective, constraints and proximal term over the rows of a regression.

    The arguments are those of :class:`RegressionRows`. With `is_smooth`, which exact learners
    need, kinks are rounded (:mod:`.losses`).
    """

    rows: RegressionRows  # type: ignore[assignment]
    constants: RegressionConstants  # type: ignore[assignment]

    def __init__(
        self,
        targets: Float,
        cells: Cells,
        constraints: LinearConstraints,
        *,
        is_smooth: bool = False,
        **options: Any,
    ) -> None:
        rows = self.rows = RegressionRows(targets, cells, constraints, **options)
        self.width = 1e-6 if is_smooth else None
        self.cells, self.constraints = cells, constraints
        self.n_samples, self.total_weight = rows.n_samples, rows.total_weight
        self.constants = RegressionConstants(rows)
        self.is_tracked = False

    def narrow(self) -> None:
        """Keep the precision, which gradients alone are rounded from."""

    def per_row(self, table: Float) -> Array:
        """Look up a table of cells, (n_cells,), for each row: the largest entry of its cells."""
        return self.rows.per_row(table)

    def at(self, margin: Array) -> RegressionPoint:  # type: ignore[override]
        """Fix the scores of all rows."""
        self.check_scores(margin, (self.n_samples,))
        margin = self.constants.score = np.asarray(margin, dtype=np.float64)
        return RegressionPoint(self.rows, margin, self.width)

    def objective(self, statistics: CellStatistics) -> float:
        """Return ``f``, the weighted mean loss of the training rows."""
        return float(statistics.loss[0])

    def error(self, statistics: CellStatistics) -> float:
        """Return nothing: numbers are not misclassified."""
        return np.nan
