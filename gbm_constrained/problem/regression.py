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
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.row_means import RowFunction
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.regression_objectives import RegressionObjective
from gbm_constrained.problem.row_functions import row_derivatives, row_values


class RegressionRows:
    """Rows of a regression with what does not depend on scores.

    Parameters
    ----------
    targets : (n_samples,). Targets; any number for rows without one.
    cells, constraints : Partition of the rows, and the rules compiled against it.
    functions : Row functions that the rules take means of, in the order of the classes of `cells`.
    objective : The objective.
    weight : (n_samples,). Weight of each row in the objective; ones by default.
    dtype : Type of the returned gradients and Hessians.

    Attributes
    ----------
    scale : Weighted standard deviation of the targets.
    """

    n_scores = 1
    pairs = None  # No rule of a regression compares the scores of two rows.

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
        self.n_samples = targets.size
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
        self.density = np.divide(self.total_weight, sums, out=np.zeros_like(sums), where=sums > 0)

    def _deviation(self) -> float:
        w, t = self.objective_weight / self.total_weight, self.targets
        return float(np.sqrt(w @ (t - w @ t) ** 2)) or 1.0

    @cached_property
    def constant_score(self) -> float:
        """Score of the mean target."""
        mean = self.objective_weight @ self.targets / self.total_weight
        return float(self.objective.score_of(mean))

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


class RegressionConstants:
    """Slopes and curvatures that step sizes are computed from."""

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
        own = rows.cells.total(rows.weight, power=2)
        own = np.where(own > 0, own, 1.0)
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
    def primal_step(self) -> float:
        """One over the curvature of the loss."""
        return 1.0 / self.constant_curvature

    @property
    def sensitivities(self) -> Any:
        """Lipschitz constants of each row of constraints in the scores of each cell."""
        return self._reaction(self.slopes())

    slope_on_path = None  # Slopes are those of the row functions.

    def lipschitz(self, loss_slope: float | None = None) -> tuple[Float, float]:
        """Compute Lipschitz constants of the rows, (m,), and of all rows scaled to constant one.

        They hold near the last scores, as losses of numbers have no largest slope.
        """
        reaction = self._reaction(self.slopes())
        own = self._norms(reaction)
        inverse = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0)
        scaled = sparse.csr_array(sparse.diags_array(inverse) @ reaction)
        gram = (scaled @ scaled.T).toarray()
        square = float(np.linalg.eigvalsh(gram)[-1]) if gram.size else 1.0
        return own, float(np.sqrt(max(square, 1.0)))

    def lipschitz_at(self, slopes: Float, of_pairs: Float) -> Float:
        """Compute Lipschitz constants with observed slopes, (m,)."""
        return self._norms(self._reaction(slopes))

    def _norms(self, reaction: Any) -> Float:
        return np.asarray(sparse.linalg.norm(reaction, axis=1), dtype=np.float64)

    def _reaction(self, slopes: Float) -> Any:
        """Multiply coefficients, slopes and densities of cells, csr_array (m, n_cells)."""
        rows = self.rows
        n_cells, n_functions = len(rows.cells), len(rows.functions)
        sloped = abs(rows.constraints.A) @ sparse.diags_array(slopes)
        add = sparse.csr_array(
            (
                np.repeat(np.sqrt(rows.density), n_functions),
                (np.arange(n_cells * n_functions), np.repeat(np.arange(n_cells), n_functions)),
            ),
            shape=(n_cells * n_functions, n_cells),
        )
        return sparse.csr_array(sloped @ add)


class RegressionLagrangian:
    """Objective, constraints and proximal term over the rows of a regression.

    It has the interface of :class:`~gbm_constrained.problem.lagrangian.Lagrangian`, and the
    solvers do not tell one from the other. The arguments are those of :class:`RegressionRows`.
    """

    def __init__(
        self, targets: Float, cells: Cells, constraints: LinearConstraints, **options: Any
    ) -> None:
        self.rows = RegressionRows(targets, cells, constraints, **options)
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
        return RegressionPoint(self.rows, margin)

    def objective(self, statistics: CellStatistics) -> float:
        """Return ``f``, the weighted mean loss of the training rows."""
        return float(statistics.loss[0])

    def error(self, statistics: CellStatistics) -> float:
        """Return nothing: numbers are not misclassified."""
        return np.nan

    def bregman(self, margin: Array, other: Array) -> float:
        """Compute the Bregman distance between two vectors of scores."""
        return self.rows.mean(np.square(margin - other)) / 2.0


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

    def value(
        self, multipliers: Float, anchor: Array | None = None, inverse_tau: float = 0.0
    ) -> float:
        """Compute the Lagrangian of convex functions, up to a constant."""
        statistics, p = self.statistics(), self.problem
        total = float(statistics.loss[0]) + float(multipliers @ p.constraints.rates(statistics))
        if anchor is not None and inverse_tau > 0:
            total += inverse_tau * p.mean(np.square(self.margin - anchor)) / 2.0
        return total

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
        pull = self._proximal_weight(inverse_tau)
        if pull is not None:
            hess = hess + pull
            if anchor is not None:
                grad = grad + pull * (self.margin - anchor)
        weight = p.row_weight
        return (grad * weight).astype(p.dtype), (hess * weight).astype(p.dtype)

    def _of_rules(self, multipliers: Float) -> tuple[Float, Float]:
        """Compute what the rules add to gradients and Hessians."""
        p, f = self.problem, self.prediction
        table = p.constraints.costs(multipliers).reshape(len(p.cells), -1)
        coefficients = p.spread(p.density[:, None] * table)
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

    def _proximal_weight(self, inverse_tau: float | Float) -> Float | None:
        """Look up the weight of the proximal term of each row; None without a term."""
        if not np.any(inverse_tau):
            return None
        if np.ndim(inverse_tau) == 0:
            return np.full(self.problem.n_samples, float(inverse_tau))
        views = self.problem.cells.views[: self.problem.cells.n_binding]
        table = np.asarray(inverse_tau)
        found = [table[view.cells][view.small_codes] for view in views]
        return np.asarray(np.max(found, axis=0))
