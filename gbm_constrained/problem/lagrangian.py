r"""The Lagrangian of a classification as a function of the scores of the training rows.

The coefficient of a row is the sum of entries of its cells in all views, and these look-ups are
most of the cost of a dual step with many constraints. A hundred constraints are in ten views, but
only some dozens are active, that is, have a multiplier above zero. The entries of a view then
differ only by the attributes of its active constraints. Several views share one partition by these
attributes, with the sum of their entries, and one look-up.

Shared partitions need weights of cells in one proportion to those that constraints were compiled
against. In folds the proportions differ, and each view is looked up by itself. On a graphics card
a look-up costs less than a partition, and each view is looked up by itself as well. So are views
beside one whose rows count for amounts, by which their entries are multiplied.

A statistic sums a quantity of the rows of each cell. A fit computes a statistic only if a
constraint or the objective depends on it: predicted fractions for rates and for the 0-1 error of
the history, mean losses for the objective and for constraints on losses, tables of pairs for pair
rates, tables of mean residuals for calibration errors.

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import compress
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.selectors import Key
from gbm_constrained.data.cells import (
    VIEW_CELLS,
    Cells,
    CellStatistics,
    View,
    array_module,
    look_up,
    to_host,
)
from gbm_constrained.data.splits import hash_numbers
from gbm_constrained.problem.kernels import (
    CONCAVITIES,
    BinaryRowTables,
    KernelBlock,
    KernelTables,
    logistic_targets,
    loss_lipschitz,
    over_classes,
    rate_lipschitz,
)
from gbm_constrained.problem.linear_constraints import LinearConstraints, LinearMap
from gbm_constrained.problem.pairs import STEEPEST, pair_sensitivities
from gbm_constrained.problem.rows import ProblemRows, find_probabilities


@dataclass(eq=False)
class _SharedPartition:
    """One partition for several views.

    Attributes
    ----------
    keys : Attributes that the rows are divided by.
    members : Positions of the views.
    view : The partition, once it is made.
    representatives : For each member, one of its cells for each cell of the partition.
    matrices : (n_cells of the partition, m). Sums of the members' entries.
    """

    keys: list[Key] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    view: View | None = None
    representatives: dict[int, Codes] = field(default_factory=dict)
    matrices: list[Any] = field(default_factory=list)


class ViewCache:
    """Partitions that rows are looked up in, shared by several views where possible.

    Parameters
    ----------
    cells : Partitions of the rows, with their views.
    weight : (n_cells,). Weight of each cell.
    matrices : (n_cells, n_functionals). What a unit multiplier of each functional adds to
        coefficients of each cell.
    owner : (n_functionals,). Constraint of each of these functionals.

    Attributes
    ----------
    packed : Constraints that the partitions are made for, in order.
    """

    def __init__(self, cells: Cells, weight: Float, matrices: Sequence[Any], owner: Codes) -> None:
        self.cells = cells
        self._matrices = matrices
        self._owner = owner
        self._filled = weight > 0
        self._made: dict[Any, _SharedPartition] = {}  # By the attributes of it and its members.
        self.pack(())
        is_on_host = isinstance(cells.views[0].small_codes, np.ndarray)
        self._are_shared = is_on_host and not cells.has_amounts and self._is_in_proportion(weight)
        self._alone = [
            (view, [matrix[view.cells] for matrix in matrices])
            for view in ([] if self._are_shared else cells.views)
        ]

    def _is_in_proportion(self, weight: Float) -> bool:
        """Whether weights of cells of one label are in one proportion to those when compiled."""
        cells, filled = self.cells, self._filled
        proportion = weight[filled] / cells.whole_weight[filled]
        kind = 2 * (cells.labels[filled] + 1) + cells.in_objective[filled]
        largest = np.zeros(kind.max(initial=0) + 1)
        np.maximum.at(largest, kind, proportion)
        # Weights in single precision differ by less than a millionth.
        return bool((proportion >= largest[kind] * (1.0 - 1e-6)).all())

    def look_up(self, multipliers: Float) -> Iterator[tuple[View, list[Float]]]:
        """Iterate over partitions and tables whose entries add up to the coefficients of a row.

        The multipliers are k vectors, (n_functionals, k); each matrix has a table, (n_cells, k).
        """
        if self._are_shared:
            active = set(self._owner[multipliers.any(axis=1)].tolist())
            if new := sorted(active.difference(self.packed)):
                self.pack([*self.packed, *new])
            elif len(self.packed) > 2 * len(active):  # Most are idle now.
                self.pack(sorted(active))
        shared = ((s.view, s.matrices) for s in self._made.values())
        for view, matrices in [*self._alone, *shared]:
            tables = [np.asarray(matrix @ multipliers) for matrix in matrices]
            if any(table.any() for table in tables):
                assert view is not None
                yield view, tables

    def pack(self, constraints: Sequence[int]) -> None:
        """Make partitions for constraints in this order, as if they became active one by one."""
        cells, made = self.cells, self._made
        self.packed, self._made = list(constraints), {}
        shared = list[_SharedPartition]()
        self._active_keys: dict[int, list[Key]] = {}  # of each view
        # A cell of a view for each combination of these; that of each of its own cells.
        self._representatives: dict[int, tuple[Codes, Codes]] = {}
        for j in constraints:
            v = cells.view_of[j]
            keys = list(dict.fromkeys([*self._active_keys.get(v, cells.base), *cells.needs[j]]))
            if keys == self._active_keys.get(v):
                continue
            self._active_keys[v] = keys
            own = [place for place in shared if v in place.members]
            unions = [
                (place, list(dict.fromkeys([*place.keys, *keys]))) for place in [*own, *shared]
            ]
            fitting = [one for one in unions if prod(cells.shape_of(one[1])) <= VIEW_CELLS]
            place, union = fitting[0] if fitting else (_SharedPartition(), keys)
            if not fitting:
                shared.append(place)
            for other in (other for other in own if other is not place):
                other.members.remove(v)
            if v not in place.members:
                place.members.append(v)
            place.keys = union
            shared = [one for one in shared if one.members]
        for place in shared:
            members = tuple((v, *self._active_keys[v]) for v in place.members)
            key = tuple(place.keys), members
            self._made[key] = made.get(key) or self._make(place)

    def _make(self, place: _SharedPartition) -> _SharedPartition:
        """Divide the rows by the attributes of a partition, and add up its members' entries."""
        place.view = self.cells.divide(place.keys)
        place.representatives = {
            v: self._find_representatives(v)[0][self._combination(place.view, v)]
            for v in place.members
        }
        n = len(place.view)
        at = np.stack(list(place.representatives.values()), axis=1)
        ends = np.arange(n + 1) * len(place.members)
        sums = sparse.csr_array((np.ones(at.size), at.ravel(), ends), shape=(n, len(self.cells)))
        place.matrices = [sums @ matrix for matrix in self._matrices]
        return place

    def _combination(self, view: View, v: int) -> Codes:
        """Find the combination of a view's active attributes of each cell of a partition."""
        keys = self._active_keys[v]
        levels = tuple(view.levels[key] for key in keys)
        return np.ravel_multi_index(levels, self.cells.shape_of(keys))

    def _find_representatives(self, v: int) -> tuple[Codes, Codes]:
        """Find a cell with rows for each combination of a view's active attributes.

        The second array is the representative of each cell of the view. The first cell of the view
        represents combinations without rows.
        """
        if v not in self._representatives:
            view = self.cells.views[v]
            combination = self._combination(view, v)
            filled = np.flatnonzero(self._filled[view.cells])
            shape = self.cells.shape_of(self._active_keys[v])
            found = np.full(prod(shape), view.cells.start)
            found[combination[filled]] = filled + view.cells.start
            self._representatives[v] = found, found[combination]
        return self._representatives[v]

    def largest(self, table: NDArray[Any]) -> Iterator[tuple[View, NDArray[Any]]]:
        """Iterate over partitions and tables whose largest entry is that of a row's cells.

        A view whose entries differ by other attributes than active ones is looked up by itself.
        """
        shared = set()
        for v in (v for place in self._made.values() for v in place.members):
            view = self.cells.views[v]
            differs = table[self._find_representatives(v)[1]] != table[view.cells]
            if not (differs & self._filled[view.cells]).any():
                shared.add(v)
        for v, view in enumerate(self.cells.views):
            if v not in shared:
                yield view, table[view.cells]
        for place in self._made.values():
            parts = [table[at] for v, at in place.representatives.items() if v in shared]
            if parts:
                assert place.view is not None
                yield place.view, reduce(np.maximum, parts)


# Cross-entropy above which a row counts as this, in nats, where several machines add losses.
LARGEST_LOSS = 64.0


class Point:
    """A Lagrangian at fixed scores, whose probabilities its rows hold."""

    def __init__(self, lagrangian: Lagrangian, margin: Array) -> None:
        self.lagrangian, self.problem, self.margin = lagrangian, lagrangian.rows, margin

    def statistics(self, *, is_exact: bool = False) -> CellStatistics:
        """Compute cell statistics: exact 0-1 fractions and mean losses, in one pass over the rows.

        Losses are those of each cell, or of all rows where no constraint needs cells; under a cap,
        they are summed a second time, clipped. Tables of pairs may be from bins of scores unless
        `is_exact`, as reports show them.
        """
        rows, n_cells = self.problem, len(self.problem.cells)
        decided = self.lagrangian.track_decisions(self.margin)
        if decided is None:
            decided = np.zeros((rows.n_classes - 1, n_cells))
        losses = np.zeros((1 + rows.has_clipped_loss, n_cells if rows.has_loss_by_cell else 1))
        for of_decisions, of_losses in rows.map_blocks(self._sum_block):
            decided += of_decisions
            losses += of_losses
        total = rows.reduce_sum(np.concatenate([decided.ravel(), losses.ravel()]))
        of_classes = total[: decided.size].reshape(decided.shape).T / rows.divisor[:, None]
        first = 1.0 - over_classes(np.add, of_classes)  # The first class has the rest.
        means = total[decided.size :].reshape(losses.shape)
        if rows.has_loss_by_cell:
            means = means / rows.divisor
        else:
            means = np.broadcast_to(means / rows.total_weight, (1, n_cells))
        tables: list[Float | None] = [None, None]
        if rows.pairs is not None:
            tables[0] = rows.pairs.tables(self.margin, is_exact=is_exact)
        if rows.residuals is not None:
            tables[1] = rows.residuals.tables(find_probabilities(self.margin))
        return CellStatistics(np.column_stack([first, of_classes]), means[0], means[-1], *tables)

    def _sum_block(self, block: slice) -> tuple[Any, Float]:
        """Sum the weights of decisions for each class but the first, and losses, of some rows.

        Decisions that are tracked add nothing.
        """
        rows, margin, decided = self.problem, self.margin[block], list[Float]()
        if not self.lagrangian.is_tracked:
            predicted = rows.kernel.predict(margin)
            for k in range(1, rows.n_classes):
                chosen = predicted if predicted.dtype == np.bool_ else predicted == k
                if rows.decision_weight is not None:  # Sums in single precision are off by 1e-7.
                    chosen = np.multiply(chosen, rows.decision_weight[block], dtype=np.float64)
                decided.append(rows.cells.sum_by_cell(chosen, block))
        loss = rows.kernel.loss(rows.probability[block], margin, rows.labels[block])
        if rows.sums.are_rounded:
            np.minimum(loss, LARGEST_LOSS, out=loss)
        losses = [loss, np.minimum(loss, rows.cap)] if rows.has_clipped_loss else [loss]
        bound = LARGEST_LOSS * rows.largest_weight
        losses = [rows.sums.round(rows.apply_weights(one, block), bound) for one in losses]
        if rows.has_loss_by_cell:
            sums = [rows.cells.sum_by_cell(one, block) for one in losses]
        else:
            inside = rows.row_in_objective
            of_rows = losses[0] if inside is None else losses[0] * inside[block]
            sums = [np.array([float(of_rows.sum())])]
        return np.stack(decided) if decided else 0.0, np.stack(sums)

    def losses(self) -> Float:
        """Compute the cross-entropy of each row."""
        problem = self.problem

        def loss(rows: slice) -> Array:
            p, labels = problem.probability[rows], problem.labels[rows]
            return to_host(problem.kernel.loss(p, self.margin[rows], labels))

        return np.concatenate([np.zeros(0), *problem.map_blocks(loss)], dtype=np.float64)

    def value(
        self, multipliers: Float, anchor: Array | None = None, inverse_tau: float = 0.0
    ) -> float:
        """Compute the Lagrangian with proxies for 0-1 rates and pair rates, up to a constant.

        Mean residuals have no proxy, and their bins are those of the scores. The gradient of this
        function is :meth:`gradient`, divided by W.
        """
        problem = self.problem
        t = self.lagrangian.tables(multipliers)

        total = problem.mean(lambda rows: problem.kernel.value(self._block(rows, t)))
        for table in problem.tables:
            total += table.value(multipliers, self.margin)
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
        (:mod:`gbm_constrained.problem.kernels`). The next call but one overwrites the arrays.
        """
        problem = self.problem
        problem.buffers, problem.idle_buffers = problem.idle_buffers, problem.buffers
        gradient, hessian = problem.buffers
        t = self.lagrangian.tables(multipliers)
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

        problem.map_blocks(fill, are_summed=False)
        for table in problem.tables:
            table.add_gradient(
                multipliers, (self.margin, problem.probability), (gradient, hessian)
            )
        return gradient, hessian

    def _proximal_table(self, inverse_tau: float | Float) -> Array | None:
        """Make the table of proximal weights that rows look up; None without a term."""
        if isinstance(inverse_tau, float) and inverse_tau == 0.0:
            return None
        problem = self.problem
        table = np.empty(len(problem.cells), dtype=problem.dtype)
        table[...] = inverse_tau
        if not table.any():
            return None
        if problem.has_several_views:
            return self.lagrangian.per_row(table).reshape(-1)
        of_cells: Array = table[problem.cells.views[0].cells]
        return of_cells

    def _block(self, rows: slice, tables: Any) -> KernelBlock:
        """Collect the arguments of the kernels for a block of rows."""
        problem = self.problem
        codes: Any = rows
        if not problem.has_several_views:
            codes = problem.cells.views[0].small_codes[rows]
        probability, labels = problem.probability[rows], problem.labels[rows]
        return KernelBlock(probability, self.margin[rows], labels, codes, tables, problem.cap)

    def hessian_product(self, multipliers: Float, u: Array, inverse_tau: float = 0.0) -> Array:
        """Compute the exact Hessian, with proxies for rates, times `u` and W."""
        problem = self.problem
        t = self.lagrangian.tables(multipliers)
        product = np.empty_like(u)
        for rows in problem.blocks():
            of_block = problem.kernel.hessian_product(self._block(rows, t), u[rows])
            product[rows] = problem.apply_weights(of_block + inverse_tau * u[rows], rows)
        for table in problem.tables:
            table.add_hessian_product(multipliers, (self.margin, problem.probability), u, product)
        return product


# Number of rows, about, that mean slopes of cells are estimated from. In several views each row is
# in several cells, and half as many rows are enough.
SAMPLED = 32_768
# Factor on slopes observed on a path, because rates become steeper while their multipliers rise.
SLOPE_FACTOR = 1.5
MIN_SLOPE = 0.15  # Smallest slope of a rate that a dual step on a path is computed from.
# Smallest slope of a mean loss or a pair rate that a dual step of an exact learner trusts.
MIN_EXACT_SLOPE = 0.05


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

    The best constant model predicts the fractions of the classes in the weight, pi.

    Attributes
    ----------
    are_global : Whether Lipschitz constants hold for any scores, and not near the last ones.
    strong_convexity : Strong convexity of the loss, relative to the distance of scores.
    units : Units of rows of constraints, objective and scores: all are numbers near one.
    slope_on_path : Slope of the cross-entropy that dual steps of a booster assume. On a booster's
        path the mean slope of losses is 0.3 and not 1, near that of rates.
    primal_step : One over the smoothness of the cross-entropy in the score.
    constant_curvature : Curvature of the mean loss in the score at the best constant model:
        ``pi_0 pi_1`` for a binary margin; twice the mean of ``pi_k (1 - pi_k)`` for softmax
        scores, an upper bound as in XGBoost.
    constant_slope : Norm over classes of ``pi_k (1 - pi_k)``: the slope at that model.
    constant_scores : Scores of that model: the logit of its fractions, or centred logs.
    """

    are_global: ClassVar[bool] = True
    strong_convexity: ClassVar[float] = 0.0

    def __init__(self, rows: ProblemRows) -> None:
        self.rows = rows
        self.units = Units(np.ones(len(rows.constraints)), 1.0, 1.0)
        self.slope_on_path = rate_lipschitz(rows.n_classes)
        self.primal_step = 4.0 if rows.n_classes == 2 else 2.0
        labels = np.maximum(rows.cells.labels[rows.cells.views[0].cells], 0)
        total = np.bincount(labels, rows.objective_weight, rows.n_classes)
        pi = total / (rows.total_weight or 1.0)
        variance = pi * (1.0 - pi)
        logs = np.log(np.maximum(pi, np.finfo(float).tiny))
        self.constant_curvature = float(2.0 * np.mean(variance))
        self.constant_slope = float(np.linalg.norm(variance))
        self.constant_scores: float | Float = logs - logs.mean()
        if pi.size == 2:
            self.constant_curvature = float(pi[0] * pi[1])
            self.constant_scores = float(logs[1] - logs[0])

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
            ranges = ranges + sparse.csr_array(
                self._ranges_of_residuals(constraints.row_table("residuals").toarray())
            )
        rates = rate_lipschitz(self.rows.n_classes) * ranges
        return rates @ scale, abs(self.rows.constraints.B) @ scale, self._reactions_of_pairs()

    def _ranges_of_residuals(self, coefficients: Float) -> Float:
        """Find the size of the largest coefficient of each cell in its mean residuals."""
        found = np.zeros((*coefficients.shape[:-1], len(self.rows.cells)))
        for block in self.rows.constraints.residual_blocks:
            own = coefficients[..., block.entries]
            largest = np.abs(own.reshape(*own.shape[:-1], -1, block.bins)).max(axis=-1)
            found[..., block.cells] = np.maximum(found[..., block.cells], largest)
        return found

    def _reactions_of_pairs(self) -> Any:
        """Compute the sensitivities of pair rates, csr_array (m, n_cells)."""
        constraints, n_cells = self.rows.constraints, len(self.rows.cells)
        total = self.rows.total_weight
        found: Any = sparse.csr_array((len(constraints), n_cells))
        for block in constraints.pair_blocks:
            weight = block.sum(self.rows.cell_weight)
            density = np.divide(total, weight, out=np.zeros_like(weight), where=weight > 0)
            of_parts = pair_sensitivities(
                constraints.row_table("pairs")[:, block.entries], density
            )
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

    def lipschitz_at(self, slopes: Float, of_pairs: Float) -> Float:
        """Compute Lipschitz constants of the rows with slopes observed on a path, (m,).

        `slopes` are those of the class probabilities, and `of_pairs` of pair rates, by cell.
        """
        steepest, slopes = rate_lipschitz(self.rows.n_classes), self.relative_slopes(slopes)
        rates, losses, pairs = self._squared_reactions
        square = rates(slopes**2) + losses * steepest**2
        if (at := self.rows.pairs) is not None and of_pairs.size:
            of_pairs = np.minimum(SLOPE_FACTOR * of_pairs, at.steepest) / STEEPEST
            square = square + pairs(of_pairs**2)
        return np.asarray(np.sqrt(square))

    @cached_property
    def _squared_reactions(self) -> tuple[LinearMap, Float, LinearMap]:
        """Squared parts of the sensitivities, those of mean losses added up."""
        rates, losses, pairs = (reaction.power(2) for reaction in self.reactions)
        total = np.asarray(losses.sum(axis=1)).ravel()
        return LinearMap.from_csr(rates), total, LinearMap.from_csr(pairs)

    def relative_slopes(self, slopes: Float) -> Float:
        """Give slopes observed on a path as shares of the largest slope of a rate."""
        steepest = rate_lipschitz(self.rows.n_classes)
        return np.asarray(np.maximum(SLOPE_FACTOR * slopes, MIN_SLOPE) / steepest)

    def loss_curvature(self, slopes: Float) -> float:
        """Compute the root mean square of slopes by cell, near the mean curvature of the loss."""
        cells = self.rows.cells
        first = cells.views[0].cells  # The other views hold the same rows.
        weight = cells.weight[first]
        return float(np.sqrt((slopes[first] ** 2 * weight).sum() / weight.sum()))

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
            residuals = abs(constraints.tables["residuals"][curve.at]).sum(axis=0)
            width += self._ranges_of_residuals(np.asarray(residuals).ravel())
            found[curve.rows] = steepest * float(np.linalg.norm(width * scale))
        return found

    @cached_property
    def _sample(self) -> tuple[Array, Array | None, list[View], Float]:
        """About as many rows of each cell, with their weights and their views.

        The last entry is the sampled weight of each cell, times squared amounts. Rows are evenly
        spaced in each cell. On several machines they are chosen by their hashes: a hash stands for
        a uniform number, so that a cell has about as many rows as are wanted.
        """
        cells = self.rows.cells
        codes = to_host(cells.views[0].small_codes)
        sampled = SAMPLED // 2 if self.rows.has_several_views else SAMPLED
        count = cells.count[cells.views[0].cells].astype(np.intp)  # of all machines
        wanted = max(sampled // int(np.count_nonzero(count)), 1)
        if self.rows.sums.are_rounded:
            numbers = cells.rows.machine.numbers
            assert numbers is not None, "rows of several machines have numbers"
            share = np.divide(wanted, count, out=np.zeros(count.size), where=count > 0)
            # Not the seed of a split, whose parts would be in the sample or not as a whole.
            rows = np.flatnonzero(hash_numbers(numbers, 1 << 40) * 2.0**-64 < share[codes])
        else:
            order = np.argsort(codes, kind="stable")  # small types are sorted by their bits, fast
            ends, every = count.cumsum(), -(-count // wanted)
            cut = [order[ends[c] - count[c] : ends[c] : every[c]] for c in np.flatnonzero(count)]
            rows = np.sort(np.concatenate(cut))
        at = self.rows.array_module.asarray(rows)
        weight = None if self.rows.weight is None else to_host(self.rows.weight[at])
        views = [view.map(lambda of_rows: to_host(of_rows[at])) for view in cells.views]
        mass = np.concatenate([view.sum(weight, power=2) for view in views])
        return at, weight, views, mass

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
        # The largest sum over classes of squared slopes is that of two classes at 1/2.
        square = problem.sums.round(square, problem.largest_weight / 8.0)
        total = np.concatenate([view.sum(square, power=2) for view in views])
        total, mass = np.split(problem.reduce_sum(np.concatenate([total, mass])), 2)
        slopes = np.full(mass.size, rate_lipschitz(problem.n_classes))
        inside = mass > 0
        slopes[inside] = np.sqrt(total[inside] / mass[inside])
        return slopes

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
        total = of_loss * np.maximum(-constraints.costs(multipliers, "loss"), 0.0)
        bounded = np.where(self.rows.is_bounded, multipliers, 0.0)
        of_rate = CONCAVITIES[self.rows.bounded_proxy][n_classes > 2]
        total = total + of_rate * (bounded @ constraints.cost_range)
        return self.rows.scale_concavity(total)


class Lagrangian:
    """Objective, constraints and proximal term over one set of rows.

    The arguments are those of :class:`~gbm_constrained.problem.rows.ProblemRows`.

    Attributes
    ----------
    rows : Rows of the problem with what does not depend on scores.
    cells, constraints, kernel, n_samples, n_classes, cell_weight, total_weight
        As those of `rows`.
    constants : Constants that step sizes are computed from.
    is_tracked : Whether weights of decisions are found from those at the last scores.
    """

    def __init__(
        self, y: Array, cells: Cells, constraints: LinearConstraints, **options: Any
    ) -> None:
        rows = self.rows = ProblemRows(y, cells, constraints, **options)
        self.cells, self.constraints, self.kernel = cells, constraints, rows.kernel
        self.n_samples, self.n_classes = rows.n_samples, rows.n_classes
        self.cell_weight, self.total_weight = rows.cell_weight, rows.total_weight
        self.constants = ProblemConstants(rows)
        # On a graphics card, counting all rows takes less time than finding those that change.
        self.is_tracked = rows.has_several_views and rows.array_module is np
        self._decided: Array | None = None
        self._decided_weight = np.zeros((rows.n_classes - 1, len(cells) * self.is_tracked))
        self._tables: tuple[bytes, KernelTables] | None = None
        self._row_tables: BinaryRowTables | None = None
        self._entries: tuple[bytes, Array] | None = None

    def narrow(self) -> None:
        """Compute in the precision of the returned gradients from now on, for two classes only.

        A margin keeps its sign in single precision, but scores of several classes may tie, and
        their exponentials are taken in double precision anyway.
        """
        rows = self.rows
        if rows.dtype == rows.gradient_dtype or rows.n_classes > 2:
            return
        rows.dtype = rows.gradient_dtype
        rows.labels = rows.labels.astype(rows.dtype)
        rows.probability = np.empty_like(rows.buffers[0])
        if rows.weight is not None:
            rows.weight = rows.weight.astype(rows.dtype)
        self._tables = self._row_tables = self._entries = None  # They have the old precision.

    def state(self) -> dict[str, Any]:
        """Collect what the last scores have changed in statistics, to go on to the last bit."""
        if not self.is_tracked:
            return {}
        return {"predicted": {"decided": self._decided, "sums": self._decided_weight}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of a Lagrangian that was made with the same arguments."""
        if self.is_tracked:
            self._decided, self._decided_weight = map(state["predicted"].get, ("decided", "sums"))

    def track_decisions(self, margin: Array) -> Float | None:
        """Sum the weights of decisions for each class but the first by cell, in several views.

        Few decisions change from one outer iteration to the next, and only the changes are
        computed. In one view, blocks of rows are counted anew.
        """
        if not self.is_tracked:
            return None
        rows = self.rows
        decided = rows.kernel.predict(margin).astype(np.min_scalar_type(rows.n_classes))
        before = np.zeros_like(decided) if self._decided is None else self._decided
        moved = np.flatnonzero(decided != before)
        came, left = moved[decided[moved] > 0], moved[before[moved] > 0]
        changed = np.concatenate([came, left])
        classes = np.concatenate([decided[came], before[left]]).astype(np.intp) - 1
        weight = np.repeat([1.0, -1.0], [came.size, left.size])
        if rows.decision_weight is not None:
            weight *= rows.decision_weight[changed]
        for view in rows.cells.views:
            codes = view.small_codes[changed].astype(np.intp)
            codes += classes * len(view)
            sums = self._decided_weight[:, view.cells]
            weighed = view.weigh(weight, changed)
            sums += np.bincount(codes, weighed, sums.size).reshape(sums.shape)
        self._decided = decided
        return self._decided_weight

    def tables(self, multipliers: Float) -> Any:
        """Compute the coefficients of the row kernels of ``W (f + <y, g>)``."""
        key = multipliers.tobytes()
        if self._tables is None or self._tables[0] != key:
            self._tables = key, self._make_tables(multipliers)
        return self._tables[1]

    def _make_tables(self, multipliers: Float) -> KernelTables:
        """Make tables of cells, or in several views of rows that are each its own cell."""
        problem, cells, K = self.rows, self.rows.cells, self.n_classes
        if problem.has_several_views and K == 2:
            return self._binary_row_tables(multipliers)
        if problem.has_several_views:
            width, xp = 2 * K + 1, problem.array_module
            sums = xp.empty((problem.n_samples, width), dtype=problem.dtype)
            for rows, total in self._sum_by_block(self._parts(multipliers, [True] * width), width):
                sums[rows] = total
            costs, loss = [sums[:, :K], sums[:, K:-1]], sums[:, -1]
            labels, inside = problem.label_of_row, xp.asarray(cells.in_objective)[cells.codes]
        else:
            first = cells.views[0].cells  # Views of idle constraints follow.
            by_proxy = (
                problem.constraints.costs(np.where(of_proxy, multipliers, 0.0)).reshape(-1, K)
                for of_proxy in (~problem.is_bounded, problem.is_bounded)
            )
            costs = [(problem.density[:, None] * of_cells)[first] for of_cells in by_proxy]
            loss = (problem.density * problem.constraints.costs(multipliers, "loss"))[first]
            labels, inside = np.maximum(cells.labels, 0)[first], cells.in_objective[first]
        target = logistic_targets(costs[0])
        clipped = loss if np.isfinite(problem.cap) else np.zeros_like(loss)
        target[array_module(loss).arange(labels.size), labels] += inside + loss - clipped
        by_row = problem.has_several_views
        return KernelTables(target, costs[1], clipped, labels, problem.dtype, is_by_row=by_row)

    def _binary_row_tables(self, multipliers: Float) -> BinaryRowTables:
        """Make tables of two classes and several views, in place of the last ones."""
        problem = self.rows
        if self._row_tables is None:
            self._row_tables = BinaryRowTables(problem.labels)
        t, clips = self._row_tables, bool(np.isfinite(problem.cap))
        at_work = multipliers != 0
        present = [
            bool((at_work & ~problem.is_bounded).any()),
            bool((at_work & problem.is_bounded).any()),
            bool(problem.has_loss_by_cell and at_work.any()),
        ]
        parts = self._parts(multipliers, present)
        # The other label is a target only where predicting the row's own label has a cost.
        has_other = present[0] and any(
            (table[:, 0] * np.where(view.levels["label"] == 1, 1, -1) > 0).any()
            for view, table in parts
        )
        t.begin((has_other, present[1], present[2] and clips))
        for rows, total in self._sum_by_block(parts, sum(present)):
            found = iter(total.T)
            rate, bounded, losses = (next(found) if is_there else None for is_there in present)
            own = 1.0 if problem.row_in_objective is None else problem.row_in_objective[rows]
            if losses is not None and not clips:
                own = own + losses
            t.fill(rows, own, rate, bounded, losses if clips else None)
        return t

    @cached_property
    def views(self) -> ViewCache:
        """Views with what a unit multiplier adds to the coefficients of a cell.

        There is a matrix for the cost of each class (for their difference if there are two), and
        one for the loss.
        """
        problem, constraints = self.rows, self.rows.constraints
        scale = sparse.diags_array(problem.density)
        U, K = constraints.U, problem.n_classes
        costs = [U[:, k::K] for k in range(K)]
        added = [costs[1] - costs[0]] if K == 2 else costs
        if problem.has_loss_by_cell:
            added.append(constraints.V)
        matrices = [sparse.csr_array(scale @ table.T) for table in added]
        size = [span.stop - span.start for span in constraints.spans]
        owner = np.repeat(np.arange(len(size)), size)
        return ViewCache(problem.cells, problem.cell_weight, matrices, owner)

    def _parts(self, multipliers: Float, wanted: Sequence[bool]) -> list[tuple[View, Array]]:
        """Compute tables of coefficients by partition, with the columns that are wanted.

        The columns are costs under the logistic proxy (of each class, or the difference of two),
        the same under the bounded proxy, and the coefficient of the loss.
        """
        problem, parts = self.rows, []
        of_proxy = np.column_stack([~problem.is_bounded, problem.is_bounded])
        by_proxy = problem.constraints.R.T @ (of_proxy * multipliers[:, None])
        for view, tables in self.views.look_up(by_proxy):
            has_loss = problem.has_loss_by_cell
            loss = tables.pop().sum(axis=1) if has_loss else np.zeros(len(view))
            columns = [*(costs[:, proxy] for proxy in (0, 1) for costs in tables), loss]
            table = np.column_stack(list(compress(columns, wanted)))
            parts.append((view, table.astype(problem.dtype)))
        return parts

    def _sum_by_block(
        self, parts: Sequence[tuple[View, Array]], width: int
    ) -> Iterator[tuple[slice, Array]]:
        """Sum `width` columns of coefficients over partitions, block by block."""
        xp = self.rows.array_module
        for rows in self.rows.blocks():
            total = xp.empty((rows.stop - rows.start, width), dtype=self.rows.dtype)
            found = np.empty_like(total)
            if not parts:
                total.fill(0.0)
            for i, (view, table) in enumerate(parts):
                if i == 0:
                    total = view.weigh(look_up(table, view.small_codes[rows], total), rows)
                else:
                    total += view.weigh(look_up(table, view.small_codes[rows], found), rows)
            yield rows, total

    def per_row(self, table: Float) -> Array:
        """Look up a table of cells, (n_cells,), for each row, shaped to multiply scores.

        In several views a row has the largest entry of its cells.
        """
        rows, xp = self.rows, self.rows.array_module
        table = table.astype(rows.dtype)
        key = table.tobytes()
        if self._entries is None or self._entries[0] != key:
            found = []
            for view, part in self.views.largest(table):
                entries = xp.asarray(part[:1])
                if (part != part[0]).any():
                    entries = xp.empty(rows.n_samples, dtype=table.dtype)
                    for block in rows.blocks():
                        look_up(part, view.small_codes[block], entries[block])
                found.append(entries)
            self._entries = (key, np.broadcast_to(reduce(np.maximum, found), (rows.n_samples,)))
        of_rows = self._entries[1]
        return of_rows if rows.n_classes == 2 else of_rows[:, None]

    def at(self, margin: Array) -> Point:
        """Fix the scores of all rows; the point is valid until the next call."""
        rows = self.rows
        self.check_scores(margin, rows.probability.shape)
        margin = rows.array_module.asarray(margin).astype(rows.dtype, copy=False)

        def link(part: slice) -> None:
            rows.kernel.link(margin[part], rows.labels[part], rows.probability[part])

        rows.map_blocks(link, are_summed=False)
        return Point(self, margin)

    def check_scores(self, margin: Array, shape: tuple[int, ...]) -> None:
        """Refuse scores of another shape than those of the rows."""
        if margin.shape != shape:
            raise ValueError(
                f"The Lagrangian was built on scores of shape {shape}, got {margin.shape}: the "
                f"learner must pass every training row, in order."
            )

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
