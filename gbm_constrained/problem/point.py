"""A Lagrangian at fixed scores: value, gradient and Hessian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.data.devices import to_host
from gbm_constrained.problem.kernels.base import Block
from gbm_constrained.problem.problem_rows import ProblemRows
from gbm_constrained.problem.row_coefficients import RowCoefficients
from gbm_constrained.problem.statistics_of_cells import CellStatistic, compute_statistics


class Point:
    """A Lagrangian at fixed scores, whose probabilities `problem` holds."""

    def __init__(
        self,
        problem: ProblemRows,
        coefficients: RowCoefficients,
        statistics: Sequence[CellStatistic],
        margin: Array,
    ) -> None:
        self.problem = problem
        self.coefficients = coefficients
        self._statistics = statistics
        self.margin = margin

    def statistics(self) -> CellStatistics:
        """Compute cell statistics: exact 0-1 fractions and mean losses."""
        return compute_statistics(self.problem, self._statistics, self.margin)

    def exact_statistics(self) -> CellStatistics:
        """Compute cell statistics as reports show them: no table of pairs is from bins."""
        exact = tuple(one.exact() for one in self._statistics)
        return compute_statistics(self.problem, exact, self.margin)

    def losses(self) -> Float:
        """Compute the cross-entropy of each row."""
        problem = self.problem

        def loss(rows: slice) -> Array:
            p, labels = problem.probability[rows], problem.labels[rows]
            return to_host(problem.kernel.loss(p, self.margin[rows], labels))

        return np.concatenate([np.zeros(0), *problem.sum_blocks(loss)], dtype=np.float64)

    def value(
        self, multipliers: Float, anchor: Array | None = None, inverse_tau: float = 0.0
    ) -> float:
        """Compute the Lagrangian with proxies for 0-1 rates and pair rates, up to a constant.

        Mean residuals have no proxy, and their bins are those of the scores. The gradient of this
        function is :meth:`gradient`, divided by W.
        """
        problem = self.problem
        t = self.coefficients.tables(multipliers)

        total = problem.mean(lambda rows: problem.kernel.value(self._block(rows, t)))
        if problem.pairs is not None:
            total += problem.pairs.value(multipliers, self.margin)
        if problem.residuals is not None:
            total += problem.residuals.value(multipliers, self.margin)
        if anchor is not None and inverse_tau > 0:
            total += inverse_tau * problem.bregman(self.margin, anchor)
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

        The centre `anchor` is by default the scores; ``1 / tau`` is one number or one by cell.
        A positive `learning_rate` bounds the Hessian from below for steps of that share
        (:mod:`gbm_constrained.problem.kernels.base`). The next call but one overwrites the arrays.
        """
        problem = self.problem
        gradient, hessian = problem.take_buffers()
        t = self.coefficients.tables(multipliers)
        proximal = self._proximal_table(inverse_tau)

        def fill(rows: slice) -> None:
            grad, hess = gradient[rows], hessian[rows]
            if grad.dtype != problem.dtype:  # round once, at the end
                grad, hess = np.empty_like(grad, problem.dtype), np.empty_like(hess, problem.dtype)
            block = self._block(rows, t)
            problem.kernel.gradient(block, grad, hess, learning_rate)
            if proximal is not None:
                pull = problem.kernel.look_up(block, proximal)
                if grad.ndim == 2 and pull.ndim == 1:
                    pull = pull[:, None]
                if anchor is not None:
                    distance = self.margin[rows] - anchor[rows]
                    distance *= pull
                    grad += distance
                hess += pull
            elif problem.hessian_floor > 0:
                hess += problem.hessian_floor
            problem.apply_weights(grad, rows)
            problem.apply_weights(hess, rows)
            if grad.dtype != gradient.dtype:
                gradient[rows], hessian[rows] = grad, hess

        problem.write_blocks(fill)
        if problem.pairs is not None and multipliers.any():
            out = gradient, hessian
            problem.pairs.add_gradient(multipliers, self.margin, problem.probability, out)
        if problem.residuals is not None:
            problem.residuals.add_gradient(multipliers, self.margin, (gradient, hessian))
        return gradient, hessian

    def _proximal_table(self, inverse_tau: float | Float) -> Array | None:
        """Make the table of proximal weights that rows look up; None without a term."""
        problem = self.problem
        table = np.empty(len(problem.cells), dtype=problem.dtype)
        table[...] = inverse_tau
        if not table.any():
            return None
        if problem.has_several_views:
            return self.coefficients.per_row(table).reshape(-1)
        of_cells: Array = table[problem.cells.views[0].cells]
        return of_cells

    def _block(self, rows: slice, tables: Any) -> Block:
        """Collect the arguments of the kernels for a block of rows."""
        problem = self.problem
        return Block(
            problem.probability[rows],
            self.margin[rows],
            problem.labels[rows],
            self.coefficients.codes(rows),
            tables,
            problem.cap,
        )

    def hessian_product(self, multipliers: Float, u: Array, inverse_tau: float = 0.0) -> Array:
        """Compute the exact Hessian, with proxies for rates, times `u` and W."""
        problem = self.problem
        t = self.coefficients.tables(multipliers)
        product = np.empty_like(u)
        for rows in problem.blocks():
            of_block = problem.kernel.hessian_product(self._block(rows, t), u[rows])
            product[rows] = problem.apply_weights(of_block + inverse_tau * u[rows], rows)
        if problem.pairs is not None:
            problem.pairs.add_hessian_product(
                multipliers, self.margin, problem.probability, u, product
            )
        if problem.residuals is not None:
            problem.residuals.add_hessian_product(multipliers, self.margin, u, product)
        return product
