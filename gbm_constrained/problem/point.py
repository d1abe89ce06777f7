"""A Lagrangian at fixed scores: value, gradient and Hessian."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.problem.kernels.base import Block, over_classes
from gbm_constrained.problem.problem_rows import ProblemRows
from gbm_constrained.problem.row_coefficients import RowCoefficients


class Decisions:
    """Weight that is predicted as each class but the first in each cell of several views.

    Few decisions change from one outer iteration to the next: only those are moved.

    Parameters
    ----------
    rows : ProblemRows
        Rows of the problem.

    Attributes
    ----------
    decided : ndarray of shape (n_samples,)
        Predicted class of each row at the last scores.
    sums : ndarray of shape (n_classes - 1, n_cells)
        Weights of the decisions by cell.
    """

    def __init__(self, rows: ProblemRows) -> None:
        self.rows = rows
        self.decided: Array | None = None
        self.sums = np.zeros((rows.n_classes - 1, len(rows.cells)))

    def update(self, margin: Array) -> Float:
        """Move the decisions that other scores change; return the sums."""
        problem = self.rows
        decided = problem.kernel.predicted(margin).astype(np.min_scalar_type(problem.n_classes))
        before = np.zeros_like(decided) if self.decided is None else self.decided
        moved = np.flatnonzero(decided != before)
        came, left = moved[decided[moved] > 0], moved[before[moved] > 0]
        rows = np.concatenate([came, left])
        classes = np.concatenate([decided[came], before[left]]).astype(np.intp) - 1
        weight = np.repeat([1.0, -1.0], [came.size, left.size])
        if problem.decision_weight is not None:
            weight *= problem.decision_weight[rows]
        for view in problem.cells.views:
            codes = view.small_codes[rows].astype(np.intp)
            codes += classes * len(view)
            sums = self.sums[:, view.cells]
            sums += np.bincount(codes, weight, sums.size).reshape(sums.shape)
        self.decided = decided
        return self.sums


def bregman(rows: ProblemRows, margin: Array, other: Array) -> float:
    """Bregman distance ``(1/2W) sum_i w_i ||F_i - F'_i||^2`` between two score matrices."""
    total = 0.0
    for part in rows.blocks():
        difference = margin[part] - other[part]
        difference *= difference
        square = difference if difference.ndim == 1 else difference.sum(axis=1)
        total += float(rows.weighted(square, part).sum())
    return float(rows.reduce_sum(np.array([total]))[0]) / (2.0 * rows.total_weight)


class Point:
    """A Lagrangian at fixed scores; made by :meth:`Lagrangian.at`.

    Parameters
    ----------
    problem : ProblemRows
        Rows of the problem, with the probabilities at the scores.
    coefficients : RowCoefficients
        Tables that the kernels look up.
    decisions : Decisions
        Decisions at the last scores.
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores.
    """

    def __init__(
        self,
        problem: ProblemRows,
        coefficients: RowCoefficients,
        decisions: Decisions,
        margin: Array,
    ) -> None:
        self.problem = problem
        self.coefficients = coefficients
        self.decisions = decisions
        self.margin = margin

    def statistics(self) -> CellStatistics:
        """Cell statistics: exact 0-1 fractions and mean losses."""
        problem = self.problem
        n_cells, n_classes = len(problem.cells), problem.n_classes
        by_class, by_loss = self._sums()
        sums = problem.reduce_sum(np.concatenate([by_class.ravel(), by_loss.ravel()]))
        by_class = sums[: by_class.size].reshape(by_class.shape)
        by_loss = sums[by_class.size :].reshape(by_loss.shape)
        predicted = np.empty((n_cells, n_classes))
        np.divide(by_class.T, problem.divisor[:, None], out=predicted[:, 1:])
        predicted[:, 0] = 1.0 - over_classes(np.add, predicted[:, 1:])
        if problem.has_loss_by_cell:
            by_loss = by_loss / problem.divisor
        else:
            by_loss = np.broadcast_to(by_loss / problem.total_weight, (1, n_cells))
        return CellStatistics(predicted, by_loss[0], by_loss[-1])

    def losses(self) -> Float:
        """Cross-entropy of each row."""
        problem = self.problem
        parts = [
            problem.kernel.loss(problem.probability[rows], self.margin[rows], problem.labels[rows])
            for rows in problem.blocks()
        ]
        return np.concatenate(parts, dtype=np.float64)

    def _sums(self) -> tuple[Float, Float]:
        """Weight predicted as each class but the first in each cell, and sums of losses.

        Of losses by cell, and clipped ones if there is a cap, or of all rows at once where no
        constraint is about them.
        """
        problem = self.problem
        n_cells, n_classes = len(problem.cells), problem.n_classes
        clips = problem.has_loss_by_cell and bool(np.isfinite(problem.cap))
        by_class = np.zeros((n_classes - 1, n_cells))
        by_loss = np.zeros((1 + clips, n_cells if problem.has_loss_by_cell else 1))
        for rows in problem.blocks():
            margin = self.margin[rows]
            loss = problem.kernel.loss(problem.probability[rows], margin, problem.labels[rows])
            if clips:
                clipped = problem.weighted(np.minimum(loss, problem.cap), rows)
                by_loss[1] += problem.cells.sum_by_cell(clipped, rows)
            loss = problem.weighted(loss, rows)
            if problem.has_loss_by_cell:
                by_loss[0] += problem.cells.sum_by_cell(loss, rows)
            else:
                inside = problem.row_in_objective
                by_loss[0] += (loss if inside is None else loss * inside[rows]).sum()
            if problem.has_several_views:
                continue
            predicted = problem.kernel.predicted(margin)
            for k in range(1, n_classes):
                chosen = predicted if predicted.dtype == np.bool_ else predicted == k
                if problem.decision_weight is not None:  # in single precision sums are off by 1e-7
                    chosen = np.multiply(chosen, problem.decision_weight[rows], dtype=np.float64)
                by_class[k - 1] += problem.cells.sum_by_cell(chosen, rows)
        by_class = self.decisions.update(self.margin) if problem.has_several_views else by_class
        return by_class, by_loss

    def value(
        self, multipliers: Float, anchor: Array | None = None, inverse_tau: float = 0.0
    ) -> float:
        """Value of the Lagrangian with 0-1 rates replaced by their proxies, up to a constant.

        It is the function that :meth:`gradient` (divided by W) is the gradient of.
        """
        problem = self.problem
        t = self.coefficients.tables(multipliers)
        total = 0.0
        for rows in problem.blocks():
            row_value = problem.kernel.value(self._block(rows, t))
            total += float(problem.weighted(row_value, rows).sum())
        total = float(problem.reduce_sum(np.array([total]))[0]) / problem.total_weight
        if anchor is not None and inverse_tau > 0:
            total += inverse_tau * bregman(problem, self.margin, anchor)
        return total

    def gradient(
        self,
        multipliers: Float,
        anchor: Array | None = None,
        inverse_tau: float | Float = 0.0,
        *,
        learning_rate: float = 0.0,
    ) -> tuple[Array, Array]:
        """Gradient and Hessian majoriser of each row, multiplied by W.

        Parameters
        ----------
        multipliers : ndarray of shape (m,)
            Multipliers y.
        anchor : ndarray like the margin, default=None
            Centre of the proximal term; the margin itself by default.
        inverse_tau : float or ndarray of shape (n_cells,), default=0
            1 / tau, of all rows or of the rows of each cell.
        learning_rate : float, default=0
            Share of a Newton step that is taken: the Hessian of a convex kernel of a binary margin
            is then large enough for that not to overshoot, see
            :mod:`gbm_constrained.problem.kernels`.

        Returns
        -------
        grad, hess : ndarray like the margin
            Buffers that the call after the next one overwrites.
        """
        problem = self.problem
        gradient, hessian = problem.take_buffers()
        t = self.coefficients.tables(multipliers)
        proximal = self._proximal_table(inverse_tau)
        for rows in problem.blocks():
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
            problem.weighted(grad, rows)
            problem.weighted(hess, rows)
            if grad.dtype != gradient.dtype:
                gradient[rows], hessian[rows] = grad, hess
        return gradient, hessian

    def _proximal_table(self, inverse_tau: float | Float) -> Array | None:
        """Make the table of the proximal term that rows look up; None without a term."""
        problem = self.problem
        table = np.empty(len(problem.cells), dtype=problem.dtype)
        table[...] = inverse_tau
        if not table.any():
            return None
        if problem.has_several_views:
            return self.coefficients.per_row(table).reshape(-1)
        return np.asarray(table[problem.cells.views[0].cells])

    def _block(self, rows: slice, tables: Any) -> Block:
        """Give a block of rows as kernels take it."""
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
        """Exact Hessian of the Lagrangian (proxies for 0-1 rates) times `u`, multiplied by W."""
        problem = self.problem
        t = self.coefficients.tables(multipliers)
        product = np.empty_like(u)
        for rows in problem.blocks():
            of_block = problem.kernel.hessian_product(self._block(rows, t), u[rows])
            product[rows] = problem.weighted(of_block + inverse_tau * u[rows], rows)
        return product
