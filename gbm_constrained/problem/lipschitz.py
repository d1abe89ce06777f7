"""Constants of a problem that step sizes are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import View
from gbm_constrained.data.devices import to_host
from gbm_constrained.data.row_hash import hash_numbers
from gbm_constrained.problem.kernels.base import loss_lipschitz, over_classes, rate_lipschitz
from gbm_constrained.problem.kernels.pairs import STEEPEST, pair_sensitivities
from gbm_constrained.problem.kernels.proxies import PROXIES
from gbm_constrained.problem.point import Point
from gbm_constrained.problem.problem_rows import ProblemRows
from gbm_constrained.problem.residual_blocks import largest_by_cell

# Numbers of rows, about, that mean slopes of cells are estimated from. In several views each row
# is in several cells, and half as many rows are enough.
SAMPLED, SAMPLED_OF_SEVERAL = 32_768, 16_384
SAMPLE_SEED = 1 << 40  # Not that of a split, whose parts would be in the sample or not as a whole.
# Factor on slopes observed on a path, because rates become steeper while their multipliers rise.
SLOPE_FACTOR = 1.5
MIN_SLOPE = 0.15  # Smallest slope of a rate that a dual step on a path is computed from.
# Smallest slope of a mean loss or a pair rate that a dual step of an exact learner trusts.
MIN_EXACT_SLOPE = 0.05
LARGEST_SQUARE = 1.0 / 8.0  # Largest sum over classes of squared slopes, of two classes at 1/2.


class Units(NamedTuple):
    """Sizes that residuals of a solution are relative to.

    Parameters
    ----------
    rows : (m,). Unit of each row of constraints.
    objective, score : Units of the objective and of the scores.
    """

    rows: Float
    objective: float
    score: float


def norms_of(sensitivities: Any, views: Sequence[View]) -> tuple[Float, float]:
    """Compute the norms of rows of sensitivities, (m,), and that of all rows scaled to norm one.

    The second is one where no two rows share a cell; squares are added over views.
    """
    reaction = sparse.csr_array(sensitivities)
    own: Float = np.asarray(sparse.linalg.norm(reaction, axis=1), dtype=np.float64)
    inverse = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0)
    scaled: Any = sparse.csr_array(sparse.diags_array(inverse) @ reaction)
    square = 0.0
    for view in views:
        part = scaled[:, view.cells]
        part = part[np.diff(part.indptr) > 0]
        gram = part @ part.T if part.shape[0] <= part.shape[1] else part.T @ part
        square += float(np.linalg.eigvalsh(gram.toarray())[-1]) if gram.shape[0] else 0.0
    return own, float(np.sqrt(max(square, 1.0)))


class ProblemConstants:
    """Sensitivities, slopes and curvatures of the constraints of a problem.

    Attributes
    ----------
    are_global : Whether Lipschitz constants hold for any scores, and not near the last ones.
    strong_convexity : Strong convexity of the loss, relative to the distance of scores.
    """

    are_global: ClassVar[bool] = True
    strong_convexity: ClassVar[float] = 0.0

    def __init__(self, rows: ProblemRows) -> None:
        self.rows = rows

    @cached_property
    def sensitivities(self) -> Any:
        r"""Lipschitz constants of each row in the scores of each cell: csr_array (m, n_cells).

        With :math:`D(F, F') = \frac{1}{2W} \sum_i w_i \|F_i - F'_i\|^2` and a row kernel that is
        :math:`\kappa`-Lipschitz, Jensen's inequality within each cell gives
        :math:`\|g(F) - g(F')\| \le L_g \sqrt{2 D}` with :math:`L_g` the spectral norm of
        :math:`|A| \mathrm{diag}(\kappa / \sqrt{\pi_c})`, :math:`\pi_c` the cell's fraction of the
        weight, or of amounts an effective one. This is that matrix; the norms of its rows are the
        constraints' own constants.
        """
        rates, losses, pairs = self.reactions
        return sparse.csr_array(rates + loss_lipschitz(self.rows.n_classes) * losses + pairs)

    @cached_property
    def reactions(self) -> tuple[Any, Any, Any]:
        """Parts of the sensitivities: of rates and residuals, mean losses, and pair rates.

        Those of mean losses are for a slope of one.
        """
        scale = sparse.diags_array(np.sqrt(self.rows.effective_density))
        # Predicted fractions sum to one, so that a common shift of a cell's costs changes nothing:
        # the range of the coefficients counts and not their size.
        constraints = self.rows.constraints
        ranges = constraints.cost_range
        if constraints.residual_blocks:  # Probabilities are as steep as proxies of rates.
            ranges = ranges + sparse.csr_array(self._ranges_of_residuals(constraints.D.toarray()))
        rates = rate_lipschitz(self.rows.n_classes) * ranges
        return rates @ scale, abs(self.rows.constraints.B) @ scale, self._reactions_of_pairs()

    def _ranges_of_residuals(self, coefficients: Float) -> Float:
        """Find the size of the largest coefficient of each cell in its mean residuals."""
        blocks = self.rows.constraints.residual_blocks
        return largest_by_cell(blocks, coefficients, len(self.rows.cells))

    def _reactions_of_pairs(self) -> Any:
        """Compute the sensitivities of pair rates, csr_array (m, n_cells)."""
        constraints, n_cells = self.rows.constraints, len(self.rows.cells)
        total = self.rows.total_weight
        found: Any = sparse.csr_array((len(constraints), n_cells))
        for block in constraints.pair_blocks:
            weight = block.sum(self.rows.cell_weight)
            density = np.divide(total, weight, out=np.zeros_like(weight), where=weight > 0)
            of_parts = pair_sensitivities(constraints.C[:, block.entries], density)
            # A cell has its share of a part's square.
            share = np.sqrt(self.rows.cell_weight[block.cells] * density[block.parts] / total)
            at = block.parts, block.cells
            found = found + of_parts @ sparse.csr_array(
                (share, at), shape=(block.n_parts, n_cells)
            )
        return sparse.csr_array(found)

    def lipschitz(self, loss_slope: float | None = None) -> tuple[Float, float]:
        """Compute Lipschitz constants of the rows, (m,), and of all rows scaled to constant one.

        The second is one where no two rows share a cell; squares are added over views. The slope
        of the cross-entropy is by default the largest that it can have.
        """
        rates, losses, pairs = self.reactions
        slope = loss_lipschitz(self.rows.n_classes) if loss_slope is None else loss_slope
        return norms_of(rates + slope * losses + pairs, self.rows.cells.views)

    def observe_lipschitz(self, point: Point) -> Float:
        """Compute constants of the rows from root mean square slopes at the scores, (m,).

        The slope of a mean loss is that of the rows of a cell, instead of the largest one.
        """
        problem = self.rows
        rows, _ = point.gradient(np.zeros(len(problem.constraints)))
        squares = (rows.reshape(problem.n_samples, -1) ** 2).sum(axis=1)
        weight = problem.apply_weights(np.ones(problem.n_samples), slice(None))
        per_row = np.divide(squares, weight, out=np.zeros_like(squares), where=weight > 0)
        total, mass = problem.cells.total(per_row, power=2), problem.square_weight
        slope = np.sqrt(np.divide(total, mass, out=total, where=mass > 0))
        rates, losses, pairs = self.reactions
        reaction = rates + losses @ sparse.diags_array(np.maximum(slope, MIN_EXACT_SLOPE))
        if problem.pairs is not None:
            steepness = np.maximum(problem.pairs.slopes(point.margin), MIN_EXACT_SLOPE) / STEEPEST
            reaction = reaction + pairs @ sparse.diags_array(steepness)
        return np.asarray(sparse.linalg.norm(reaction, axis=1))

    @property
    def units(self) -> Units:
        """Units of rows of constraints, objective and scores: all are numbers near one."""
        return Units(np.ones(len(self.rows.constraints)), 1.0, 1.0)

    @property
    def slope_on_path(self) -> float:
        """Slope of the cross-entropy that dual steps of a booster assume.

        On a booster's path the mean slope of losses is 0.3 and not 1, near that of rates.
        """
        return rate_lipschitz(self.rows.n_classes)

    @property
    def primal_step(self) -> float:
        """One over the smoothness of the cross-entropy in the score."""
        return 4.0 if self.rows.n_classes == 2 else 2.0

    def lipschitz_at(self, slopes: Float, of_pairs: Float) -> Float:
        """Compute Lipschitz constants of the rows with slopes observed on a path, (m,).

        `slopes` are those of the class probabilities, and `of_pairs` of pair rates, by cell.
        """
        steepest, slopes = rate_lipschitz(self.rows.n_classes), self.relative_slopes(slopes)
        rates, losses, pairs = self._squared_reactions
        square = rates @ slopes**2 + losses * steepest**2
        if (at := self.rows.pairs) is not None and of_pairs.size:
            of_pairs = np.minimum(SLOPE_FACTOR * of_pairs, at.steepest) / STEEPEST
            square = square + pairs @ of_pairs**2
        return np.asarray(np.sqrt(square))

    def relative_slopes(self, slopes: Float) -> Float:
        """Give slopes observed on a path as shares of the largest slope of a rate."""
        steepest = rate_lipschitz(self.rows.n_classes)
        return np.asarray(np.maximum(SLOPE_FACTOR * slopes, MIN_SLOPE) / steepest)

    @cached_property
    def _squared_reactions(self) -> tuple[Any, Float, Any]:
        rates, losses, pairs = self.reactions
        of_losses = np.asarray(losses.power(2).sum(axis=1)).ravel()
        return rates.power(2), of_losses, pairs.power(2)

    def loss_curvature(self, slopes: Float) -> float:
        """Compute the root mean square of slopes by cell, near the mean curvature of the loss."""
        cells = self.rows.cells
        first = cells.views[0].cells  # The other views hold the same rows.
        square = np.average(slopes[first] ** 2, weights=cells.weight[first])
        return float(np.sqrt(square))

    def curve_lipschitz(
        self, lipschitz: Float, derivatives: Float, slopes: Float | None = None
    ) -> Float:
        """Replace the constants of directions of curves by those of the curves' tangents.

        Parameters
        ----------
        lipschitz : ndarray of shape (m,)
            Constants of all linear rows.
        derivatives : ndarray of shape (m,)
            Multipliers of the directions under a price of one.
        slopes : ndarray of shape (n_cells,), default=None
            Slopes of rates in each cell, as a share of the largest one.
        """
        constraints, n_cells = self.rows.constraints, len(self.rows.cells)
        found, steepest = lipschitz.copy(), rate_lipschitz(self.rows.n_classes)
        scale = np.sqrt(self.rows.effective_density) * (1.0 if slopes is None else slopes)
        for curve in constraints.curves.items:
            costs = curve.combine(derivatives) @ constraints.U[curve.at]
            width = np.ptp(np.reshape(costs, (n_cells, -1)), axis=1)
            # Derivatives in mean residuals are one in size. They change signs, and average less.
            residuals = abs(constraints.S[curve.at]).sum(axis=0)
            width += self._ranges_of_residuals(np.asarray(residuals).ravel())
            found[curve.rows] = steepest * float(np.linalg.norm(width * scale))
        return found

    @cached_property
    def _sample(self) -> tuple[Array, Array | None, list[View], Float]:
        """About as many rows of each cell, with their weights and their views.

        The last entry is the sampled weight of each cell, times squared amounts.
        """
        views = self.rows.cells.views
        rows = self._choose_rows()
        at = self.rows.array_module.asarray(rows)
        weight = None if self.rows.weight is None else to_host(self.rows.weight[at])
        sampled = [view.take(at).to_host() for view in views]
        mass = np.concatenate([view.sum(weight, power=2) for view in sampled])
        return at, weight, sampled, mass

    def _choose_rows(self) -> Codes:
        """Choose rows of each cell: evenly spaced ones, or on several machines by their hashes.

        A hash stands for a uniform number, so that a cell has about as many rows as are wanted.
        """
        cells = self.rows.cells
        codes = to_host(cells.views[0].small_codes)
        sampled = SAMPLED_OF_SEVERAL if self.rows.has_several_views else SAMPLED
        count = cells.count[cells.views[0].cells].astype(np.intp)  # of all machines
        wanted = max(sampled // int(np.count_nonzero(count)), 1)
        if self.rows.sums.are_rounded:
            numbers = cells.rows.machine.numbers
            assert numbers is not None, "rows of several machines have numbers"
            share = np.divide(wanted, count, out=np.zeros(count.size), where=count > 0)
            return np.flatnonzero(hash_numbers(numbers, SAMPLE_SEED) * 2.0**-64 < share[codes])
        order = np.argsort(codes, kind="stable")  # small types are sorted by their bits, fast
        start = count.cumsum() - count
        every = -(-count // wanted)
        chosen = [order[start[c] : start[c] + count[c] : every[c]] for c in np.flatnonzero(count)]
        return np.sort(np.concatenate(chosen))

    def slopes(self) -> Float:
        """Estimate the root mean square slope of class probabilities in each cell.

        A sample of the rows at the last scores is used; other cells have the largest slope.
        """
        problem = self.rows
        rows, weight, views, mass = self._sample
        p = problem.probability if rows.size == problem.n_samples else problem.probability[rows]
        p = to_host(p).astype(np.float64)
        square = np.subtract(1.0, p)
        square *= p
        square *= square
        square = square if square.ndim == 1 else over_classes(np.add, square)
        square = square if weight is None else square * weight
        square = problem.sums.round(square, LARGEST_SQUARE * problem.largest_weight)
        total = np.concatenate([view.sum(square, power=2) for view in views])
        total, mass = np.split(problem.reduce_sum(np.concatenate([total, mass])), 2)
        slopes = np.full(mass.size, rate_lipschitz(problem.n_classes))
        inside = mass > 0
        slopes[inside] = np.sqrt(total[inside] / mass[inside])
        return slopes

    @cached_property
    def constant_curvature(self) -> float:
        """Curvature of the mean loss in the score at the best constant model.

        ``pi_0 pi_1`` for a binary margin, with pi the classes' fractions of the weight; twice the
        mean of ``pi_k (1 - pi_k)`` for softmax scores, an upper bound as in XGBoost.
        """
        pi = self._class_fractions
        return float(pi[0] * pi[1] if pi.size == 2 else 2.0 * np.mean(pi * (1.0 - pi)))

    @cached_property
    def constant_slope(self) -> float:
        """Norm over classes of ``pi_k (1 - pi_k)``: the slope at the best constant model."""
        pi = self._class_fractions
        return float(np.linalg.norm(pi * (1.0 - pi)))

    @property
    def _class_fractions(self) -> Float:
        labels = np.maximum(self.rows.cells.labels[self.rows.cells.views[0].cells], 0)
        total = np.bincount(labels, self.rows.objective_weight, self.rows.n_classes)
        return np.asarray(total / self.rows.total_weight)

    @property
    def constant_scores(self) -> float | Float:
        """Scores of the best constant model: the logit of the class fractions, or centred logs."""
        logs = np.log(np.maximum(self._class_fractions, np.finfo(float).tiny))
        return float(logs[1] - logs[0]) if logs.size == 2 else np.asarray(logs - logs.mean())

    def concavity(self, multipliers: Float) -> Float:
        r"""Bound the negative curvature of the constraints' Lagrangian in each cell.

        The bounds :math:`\rho_c` make :math:`\sum_j y_j g_j + \sum_c \rho_c D_c` convex, with
        D_c the cell's part of the Bregman distance. A mean loss with a negative coefficient is
        concave, with curvature at most 1/4 in a binary margin and 1/2 in softmax scores. The
        bounded proxies of a rate are neither convex nor concave, and the logistic one is convex.
        """
        n_classes = self.rows.n_classes
        constraints = self.rows.constraints
        of_loss = 0.25 if n_classes == 2 else 0.5
        total = of_loss * np.maximum(-constraints.loss_costs(multipliers), 0.0)
        bounded = np.where(self.rows.is_bounded, multipliers, 0.0)
        of_rate = PROXIES[self.rows.bounded_proxy].concavity(n_classes)
        total = total + of_rate * (bounded @ constraints.cost_range)
        if self.rows.cells.has_amounts:
            total = total * np.concatenate([v.largest_amount for v in self.rows.cells.views])
        return np.asarray(total * self.rows.density)
