"""Constants of a regression that step sizes are computed from."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Float
from gbm_constrained.problem.lipschitz import Units, norms_of
from gbm_constrained.problem.regression_rows import RegressionRows
from gbm_constrained.problem.row_functions import curvature_range, row_derivatives, unit_of


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
