r"""The Lagrangian of a constrained problem as a function of the scores of the training rows.

.. math:: \mathcal{L}(F, y) = f(F) + \langle y, g(F) \rangle + \frac{1}{\tau} D(F, \bar F)

with :math:`f = \frac{1}{W} \sum_i w_i \ell(F_i, b_i)`, :math:`g` a linear map of cell statistics
and :math:`D(F, \bar F) = \frac{1}{2W} \sum_i w_i \|F_i - \bar F_i\|^2` the Bregman distance
between score matrices (Lin and Deng, section 5: W = F~(A)). Gradients and Hessians are given per
row and multiplied by W, so that a booster's ``min_child_weight`` and ``reg_lambda`` keep their
meaning:

    grad_i = w_i [ l'(F_i) + coef_c k'(F_i) + (F_i - anchor_i) / tau ],  coef = (W / W_c) (A' y)_c
    hess_i = w_i [ l''(F_i) + |coef_c| k''(F_i) + 1 / tau ]

The second derivatives of convex kernels are bounded from below for boosters, so that their steps
do not overshoot; see :mod:`gbm_constrained.problem.kernels`.

Rows are visited in blocks that stay in cache; nothing of size n x m is ever made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.lipschitz import ProblemConstants
from gbm_constrained.problem.point import Point
from gbm_constrained.problem.problem_rows import ProblemRows
from gbm_constrained.problem.row_coefficients import RowCoefficients
from gbm_constrained.problem.statistics_of_cells import make_statistics


class Lagrangian:
    """Objective, constraints and proximal term over one set of rows.

    The arguments are those of :class:`~gbm_constrained.problem.problem_rows.ProblemRows`.

    Attributes
    ----------
    rows : Rows of the problem with what does not depend on scores.
    cells, constraints, kernel, n_samples, n_classes, cell_weight, total_weight
        As those of `rows`.
    constants : Constants that step sizes are computed from.
    coefficients : Tables of coefficients that the kernels look up.
    statistics : Statistics that constraints and objective depend on.
    """

    def __init__(
        self, y: Array, cells: Cells, constraints: LinearConstraints, **options: Any
    ) -> None:
        rows = self.rows = ProblemRows(y, cells, constraints, **options)
        self.cells, self.constraints, self.kernel = cells, constraints, rows.kernel
        self.n_samples, self.n_classes = rows.n_samples, rows.n_classes
        self.cell_weight, self.total_weight = rows.cell_weight, rows.total_weight
        self.constants = ProblemConstants(rows)
        self.coefficients = RowCoefficients(rows)
        self.statistics = make_statistics(rows)

    def narrow(self) -> None:
        """Compute in the precision of the returned gradients from now on, for two classes only."""
        before = self.rows.dtype
        self.rows.narrow()
        if self.rows.dtype != before:
            self.coefficients.forget()

    def state(self) -> dict[str, Any]:
        """Collect what the last scores have changed in statistics, to go on to the last bit."""
        return {one.name: one.state() for one in self.statistics}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of a Lagrangian that was made with the same arguments."""
        for one in self.statistics:
            one.restore(state[one.name])

    def at(self, margin: Array) -> Point:
        """Fix the scores of all rows; the point is valid until the next call."""
        rows = self.rows
        if margin.shape != rows.probability.shape:
            raise ValueError(
                f"The Lagrangian was built on scores of shape {rows.probability.shape}, got "
                f"{margin.shape}: the learner must pass every training row, in order."
            )
        margin = rows.array_module.asarray(margin).astype(rows.dtype, copy=False)

        def link(part: slice) -> None:
            rows.kernel.link(margin[part], rows.labels[part], rows.probability[part])

        rows.write_blocks(link)
        return Point(rows, self.coefficients, self.statistics, margin)

    def per_row(self, table: Float) -> Array:
        """Look up a table of cells, (n_cells,), for each row, shaped to multiply scores."""
        return self.coefficients.per_row(table)

    def objective(self, statistics: CellStatistics) -> float:
        """Compute ``f``, the weighted mean cross-entropy of all rows."""
        loss = statistics.loss[self.cells.views[0].cells]
        return float(self.rows.objective_weight @ loss) / self.total_weight

    def error(self, statistics: CellStatistics) -> float:
        """Compute the weighted fraction of training rows that are misclassified."""
        cells = self.cells
        n = cells.views[0].cells.stop
        weight = np.where(cells.in_objective[:n], cells.weight[:n], 0.0)
        right = statistics.predicted[np.arange(n), np.maximum(cells.labels[:n], 0)]
        return float(weight @ (1.0 - right) / weight.sum())

    def bregman(self, margin: Array, other: Array) -> float:
        """Compute the Bregman distance between two score matrices."""
        return self.rows.bregman(margin, other)
