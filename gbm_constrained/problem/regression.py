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

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.rates import RowFunction, RowLoss
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.problem.lagrangian import Units, norms_of
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.losses import (
    EXACT_WIDTH,
    KINKS,
    RegressionObjective,
    Smooth,
    curvature_range,
    row_derivatives,
    row_values,
    smooth_function,
    smooth_objective,
    unit_of,
)

ROUNDING = 1e-12  # Deviation of targets, relative to the largest, that is due to rounding.


class RegressionRows:
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
        functions: Sequence[RowFunction],
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
        own = np.ones(targets.size) if weight is None else weight
        self.objective_weight = np.where(inside, own, 0.0)
        self.total_weight = float(self.objective_weight.sum())
        self.row_weight = own
        self.is_whole = bool(inside.all())
        self.scale = self._deviation()
        sums = cells.total(weight)
        self.cell_weight = np.where(sums > 0, sums, 1.0)
        self.density = self._density_of(sums)
        self.square_weight = cells.total(weight, power=2)

    def _deviation(self) -> float:
        w, t = self.objective_weight / self.total_weight, self.targets
        found = float(np.sqrt(w @ (t - w @ t) ** 2))
        is_rounding = found <= ROUNDING * float(np.abs(t[w > 0]).max(initial=0.0))
        return 1.0 if is_rounding else found

    def _density_of(self, weight: Float) -> Float:
        return np.divide(self.total_weight, weight, out=np.zeros_like(weight), where=weight > 0)

    @cached_property
    def effective_density(self) -> Float:
        """Total weight over that of each cell, if its amounts were all alike (Kish)."""
        square = np.where(self.square_weight > 0, self.square_weight, 1.0)
        return self._density_of(np.where(self.density > 0, self.cell_weight**2 / square, 0.0))

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

    def spread(self, table: Float) -> Float:
        """Look up a table of cells, (n_cells, k), for each row, (n_samples, k).

        The entries of a row's cells are added over views, times the row's amounts.
        """
        total = np.zeros((self.n_samples, table.shape[1]))
        for view in self.cells.views[: self.cells.n_binding]:
            total += view.weigh(table[view.cells][view.small_codes])
        return total

    def per_row(self, table: Float) -> Float:
        """Look up a table of cells, (n_cells,), for each row: the largest entry of its cells."""
        views = self.cells.views[: self.cells.n_binding]
        found = [table[view.cells][view.small_codes] for view in views]
        return np.asarray(np.max(found, axis=0))

    def gram(self, vectors: Float) -> Float:
        """Compute the products of vectors with an entry for each score, (m, n_samples)."""
        return np.asarray(vectors @ vectors.T)

    def coefficients(self, multipliers: Float) -> Float:
        """Compute the coefficient of each row function at each row, (n_samples, n_functions)."""
        table = self.constraints.costs(multipliers).reshape(len(self.cells), -1)
        return self.spread(self.density[:, None] * table)

    def kink_weights(self, multipliers: Float) -> Float:
        """Compute what the kinks of objective and rules at each row's target add up to, (n,)."""
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


class RegressionConstants:
    """Slopes and curvatures at the last scores, as losses of numbers have no largest slope.

    The root mean square slope of a cell's rows is a Lipschitz constant of the mean at these
    scores. It is a convex function of the scores, if the row function is a squared or linear one.
    The larger of its values at two scores then holds between them.
    """

    are_global: ClassVar[bool] = False
    slope_on_path = None  # Slopes are those of the row functions.

    def __init__(self, rows: RegressionRows) -> None:
        self.rows = rows
        self._score: Array = np.full(rows.n_samples, rows.constant_score)

    def move_to(self, score: Array) -> None:
        """Take the slopes at other scores from now on."""
        self._score = score

    def slopes(self) -> Float:
        """Root mean square slope of each row function in each cell, (n_cells * n_functions,)."""
        rows = self.rows
        f = rows.objective.predict(self._score)
        inner = f if rows.objective.has_log_link else 1.0
        own = np.where(rows.square_weight > 0, rows.square_weight, 1.0)
        found = np.empty((len(rows.cells), len(rows.functions)))
        for s, function in enumerate(rows.functions):
            slope = row_derivatives(function, rows.targets, f, rows.scale).slope * inner
            found[:, s] = np.sqrt(rows.cells.total(rows.row_weight * slope**2, power=2) / own)
        return found.ravel()

    def loss_curvature(self, slopes: Float) -> float:
        """Mean curvature of the loss at the last scores."""
        rows = self.rows
        return rows.mean(rows.objective.derivatives(rows.targets, self._score, rows.scale)[1])

    @cached_property
    def constant_curvature(self) -> float:
        """Mean curvature of the loss at the mean target."""
        rows = self.rows
        score = np.full(rows.n_samples, rows.constant_score)
        return rows.mean(rows.objective.derivatives(rows.targets, score, rows.scale)[1])

    @property
    def constant_scores(self) -> float:
        """Score of the best constant model for the squared error, the mean target."""
        return self.rows.constant_score

    @property
    def primal_step(self) -> float:
        """One over the curvature of the loss."""
        return 1.0 / self.constant_curvature

    @property
    def strong_convexity(self) -> float:
        """Strong convexity of the loss, relative to the distance of scores."""
        return 1.0 if self.rows.objective.name == "squared" else 0.0

    @cached_property
    def units(self) -> Units:
        """Units of rows of constraints, objective and scores, which follow that of the targets."""
        rows = self.rows
        of_functions = np.array([unit_of(one, rows.scale) for one in rows.functions])
        A = abs(rows.constraints.A)
        if not A.nnz:
            of_rows = np.ones(A.shape[0])
        else:
            held = A.copy()
            held.data = np.where(
                held.data > 0.0, of_functions[held.indices % len(of_functions)], 0
            )
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
        if rows.cells.has_amounts:
            total *= np.concatenate([view.largest_amount for view in rows.cells.views])
        return np.asarray(total * rows.density)

    def _reaction(self, slopes: Float) -> Any:
        """Multiply coefficients, slopes and densities of cells, csr_array (m, n_cells)."""
        rows = self.rows
        n_cells, n_functions = len(rows.cells), len(rows.functions)
        if not n_functions:  # There are no rules.
            return sparse.csr_array((len(rows.constraints), n_cells))
        sloped = abs(rows.constraints.A) @ sparse.diags_array(slopes)
        add = sparse.csr_array(
            (
                np.repeat(np.sqrt(rows.effective_density), n_functions),
                (np.arange(n_cells * n_functions), np.repeat(np.arange(n_cells), n_functions)),
            ),
            shape=(n_cells * n_functions, n_cells),
        )
        return sparse.csr_array(sloped @ add)


class RegressionLagrangian:
    """Objective, constraints and proximal term over the rows of a regression.

    It has the interface of :class:`~gbm_constrained.problem.lagrangian.Lagrangian`, and the
    solvers do not tell one from the other. The arguments are those of :class:`RegressionRows`.
    With `is_smooth`, which exact learners need, kinks are rounded (:mod:`.smooth_functions`).
    """

    def __init__(
        self,
        targets: Float,
        cells: Cells,
        constraints: LinearConstraints,
        *,
        is_smooth: bool = False,
        **options: Any,
    ) -> None:
        self.rows = RegressionRows(targets, cells, constraints, **options)
        self.point_class = SmoothRegressionPoint if is_smooth else RegressionPoint
        self.cells, self.constraints = cells, constraints
        self.n_samples, self.total_weight = self.rows.n_samples, self.rows.total_weight
        self.constants = RegressionConstants(self.rows)

    def narrow(self) -> None:
        """Keep the precision, which gradients alone are rounded from."""

    def state(self) -> dict[str, Any]:
        """Collect nothing: statistics depend on the last scores alone."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over nothing."""

    def at(self, margin: Array) -> RegressionPoint:
        """Fix the scores of all rows."""
        if margin.shape != (self.n_samples,):
            raise ValueError(
                f"The Lagrangian was built on {self.n_samples} rows, got scores of shape "
                f"{margin.shape}: the learner must pass every training row, in order."
            )
        margin = np.asarray(margin, dtype=np.float64)
        self.constants.move_to(margin)
        return self.point_class(self.rows, margin)

    def per_row(self, table: Float) -> Array:
        """Look up a table of cells, (n_cells,), for each row, shaped to multiply scores."""
        return self.rows.per_row(table)

    def objective(self, statistics: CellStatistics) -> float:
        """Return ``f``, the weighted mean loss of the training rows."""
        return float(statistics.loss[0])

    def error(self, statistics: CellStatistics) -> float:
        """Return nothing: numbers are not misclassified."""
        return np.nan

    def bregman(self, margin: Array, other: Array) -> float:
        """Compute the Bregman distance between two vectors of scores."""
        return self.rows.bregman(margin, other)
