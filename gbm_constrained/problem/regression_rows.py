"""Rows of a regression, with what does not depend on scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.row_means import RowFunction, RowLoss
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.regression_objectives import RegressionObjective
from gbm_constrained.problem.row_functions import KINKS

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
