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

from collections.abc import Mapping
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.regression_constants import RegressionConstants
from gbm_constrained.problem.regression_point import RegressionPoint, SmoothRegressionPoint
from gbm_constrained.problem.regression_rows import RegressionRows


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
