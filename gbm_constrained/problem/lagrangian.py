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

from gbm_constrained._typing import Array
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.lipschitz import ProblemConstants
from gbm_constrained.problem.point import Decisions, Point, bregman
from gbm_constrained.problem.problem_rows import ProblemRows
from gbm_constrained.problem.row_coefficients import RowCoefficients


class Lagrangian:
    """Objective, constraints and proximal term over one set of rows.

    Parameters
    ----------
    y : ndarray of shape (n_samples,), intp
        Class index of each row; -1 for rows without a label, which are in no objective.
    cells : Cells
        Partition of the rows.
    constraints : LinearConstraints
        Constraints on the model.
    **options
        Weights and kernel options, as in
        :class:`~gbm_constrained.problem.problem_rows.ProblemRows`.

    Attributes
    ----------
    rows : ProblemRows
        Rows of the problem with what does not depend on scores.
    cells, constraints, kernel, n_samples, n_classes, cell_weight, total_weight
        As those of `rows`.
    constants : ProblemConstants
        Constants that step sizes are computed from.
    coefficients : RowCoefficients
        Tables of coefficients that the kernels look up.
    decisions : Decisions
        Weight that is predicted as each class, where there are several views.
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
        self.decisions = Decisions(rows)

    def narrow(self) -> None:
        """Compute in the precision of the returned gradients from now on, two classes only."""
        before = self.rows.dtype
        self.rows.narrow()
        if self.rows.dtype != before:
            self.coefficients.forget()

    def state(self) -> dict[str, Any]:
        """Collect the decisions at the last scores, from which sums go on to the last bit."""
        return {"decided": self.decisions.decided, "decisions": self.decisions.sums}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of a Lagrangian that was made with the same arguments."""
        self.decisions.decided, self.decisions.sums = state["decided"], state["decisions"]

    def at(self, margin: Array) -> Point:
        """Fix the scores at which the Lagrangian is looked at.

        Parameters
        ----------
        margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores of the rows the object was built on.

        Returns
        -------
        Point
            Valid until the next call: its probabilities live in a buffer of the Lagrangian.

        Raises
        ------
        ValueError
            If `margin` has another shape.
        """
        rows = self.rows
        if margin.shape != rows.probability.shape:
            raise ValueError(
                f"The Lagrangian was built on scores of shape {rows.probability.shape}, got "
                f"{margin.shape}: the learner must pass every training row, in order."
            )
        margin = margin.astype(rows.dtype, copy=False)
        with np.errstate(over="ignore"):
            for part in rows.blocks():
                rows.kernel.link(margin[part], rows.labels[part], rows.probability[part])
        return Point(rows, self.coefficients, self.decisions, margin)

    def objective(self, statistics: CellStatistics) -> float:
        """``f``: weighted mean cross-entropy of all rows."""
        loss = statistics.loss[self.cells.views[0].cells]
        return float(self.rows.objective_weight @ loss) / self.total_weight

    def error(self, statistics: CellStatistics) -> float:
        """Weighted fraction of training rows that are misclassified."""
        cells = self.cells
        n = cells.views[0].cells.stop
        weight = np.where(cells.in_objective[:n], cells.weight[:n], 0.0)
        right = statistics.predicted[np.arange(n), np.maximum(cells.labels[:n], 0)]
        return float(weight @ (1.0 - right) / weight.sum())

    def bregman(self, margin: Array, other: Array) -> float:
        """Bregman distance ``(1/2W) sum_i w_i ||F_i - F'_i||^2`` between two score matrices."""
        return bregman(self.rows, margin, other)
