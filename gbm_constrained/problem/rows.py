r"""Rows of a problem as kernels see them: labels, weights, buffers, and blocks of rows.

While a booster asks for gradients, the threads of its library wait. numpy releases the lock of the
interpreter in its loops, so that threads of Python can take their place. They sleep between two
rounds: a pool that spins would take cores from the library. The library's threads do spin for a
while after their own loops, and half of the cores are left to them. Two cores are therefore used
by one thread (evidence, Cost).

With C the derivative of a Lagrangian in the mean residual of a cell and a bin, the gradient of a
row i of cell c whose probability is in bin b, times the weight W of all rows, is

.. math:: - w_i \frac{W}{W_c} \, C_{cb} \, p_i (1 - p_i) .

The bin of a row is that of its current probability: a mean residual jumps where a row goes over an
edge, and is smooth elsewhere. The absolute value of the gradient is taken for the curvature, which
is smaller: a step of a residual alone is then one unit of margin at most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.special import expit

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.selectors import find_edges
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import ExactSums
from gbm_constrained.problem.blocks import ResidualBlock
from gbm_constrained.problem.kernels import (
    CONCAVITIES,
    RAMP,
    SQUARE,
    BinaryKernel,
    ProxyName,
    RampKernel,
    SoftmaxKernel,
    clip_cap,
)
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pairs import PairRows, Scores

T = TypeVar("T")

MIN_ROWS = 200_000  # Rows from which on a fit gains by several threads.


def count_threads(n_jobs: int | None) -> int:
    """Count the threads beside a booster whose ``n_jobs`` is given: half of its own.

    Zero and None ask for all cores, and a negative number for all but so many, less one.
    """
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = (len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count()) or 1
    if n_jobs:
        cores = min(n_jobs, cores) if n_jobs > 0 else max(cores + 1 + n_jobs, 1)
    return max(cores // 2, 1)


@lru_cache(maxsize=4)
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="gbm_constrained")


if hasattr(os, "register_at_fork"):  # A child of a fork has none of the threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def find_bins(probability: Array, bins: int) -> Codes:
    """Find the bin of each probability; the lower one of an edge."""
    return np.searchsorted(find_edges(bins)[1:-1], probability).astype(np.intp)


def find_probabilities(margin: Array) -> Float:
    """Find the probability of the positive class from scores of two classes."""
    return np.asarray(expit(np.asarray(margin, dtype=np.float64)))


class ResidualRows:
    """Rows of all blocks of mean residuals, and what these are at the rows' probabilities.

    Parameters
    ----------
    constraints : Linear constraints, with the blocks.
    cells : Partitions of the rows.
    weight : (n_samples,). Weight of each row; ones where None.
    total_weight : Weight that gradients are multiplied by.
    """

    def __init__(
        self,
        constraints: LinearConstraints,
        cells: Cells,
        weight: Array | None,
        total_weight: float,
    ) -> None:
        self._constraints, self._weight = constraints, weight
        self._total_weight = total_weight
        # Block, first entry of each row's cell, label of each row, weight of each entry's cell.
        self._rows: list[tuple[ResidualBlock, Codes, Float, Float]] = []
        for block in constraints.residual_blocks:
            view = cells.views[block.view]
            codes = np.asarray(view.small_codes).astype(np.intp)
            labels = (cells.labels[view.cells] == 1).astype(np.float64)[codes]
            of_cells = np.bincount(codes, weight, len(view)).astype(np.float64)
            of_entries = np.repeat(of_cells, block.bins)
            self._rows.append((block, codes * block.bins, labels, of_entries))

    def tables(self, probability: Float) -> Float:
        """Compute the mean residuals of all blocks, flat, (n_entries,); zero without weight."""
        found = []
        for block, first, labels, weight in self._rows:
            residual = labels - probability
            if self._weight is not None:
                residual *= self._weight
            entry = first + find_bins(probability, block.bins)
            sums = np.bincount(entry, residual, weight.size)
            found.append(np.divide(sums, weight, out=np.zeros(weight.size), where=weight > 0))
        return np.concatenate(found)

    def value(self, multipliers: Float, margin: Array) -> float:
        """Compute the part of a Lagrangian that is linear in mean residuals."""
        tables = self.tables(find_probabilities(margin))
        return float(self._constraints.costs(multipliers, "residuals") @ tables)

    def add_gradient(self, multipliers: Float, at: Scores, out: tuple[Array, Array]) -> None:
        """Add gradients and Hessian majorisers of rows, times the weight of all rows.

        Those of two classes need margins alone, for kernels have probabilities of the wrong class.
        """
        gradient, hessian = out
        for cost, p in self._costs_of_rows(multipliers, at[0]):
            slope = cost * p * (1.0 - p)
            gradient += slope
            hessian += np.abs(slope)

    def add_hessian_product(self, multipliers: Float, at: Scores, u: Array, out: Array) -> None:
        """Add the exact Hessian times a direction u of the rows and the weight of all rows."""
        for cost, p in self._costs_of_rows(multipliers, at[0]):
            out += cost * (p * (1.0 - p) * (1.0 - 2.0 * p)) * u

    def _costs_of_rows(self, multipliers: Float, margin: Array) -> Iterator[tuple[Float, Float]]:
        """Iterate over the derivatives of rows in their probabilities, by block with a cost.

        Derivatives are multiplied by the weights of the row and of all rows.
        """
        costs = self._constraints.costs(multipliers, "residuals")
        if not costs.any():
            return
        probability = find_probabilities(margin)
        for block, first, _, weight in self._rows:
            if (own := costs[block.entries]).any():
                density = np.zeros_like(weight)
                np.divide(self._total_weight, weight, out=density, where=weight > 0)
                found = -(own * density)[first + find_bins(probability, block.bins)]
                yield (found if self._weight is None else found * self._weight), probability


# Rows of a block: few enough for temporary arrays to stay in cache, and many enough for the cost
# of a call not to matter. A block has half as many where each row has several scores.
BLOCK = 65_536


class WeightedCells:
    """Weights of the cells of a problem's rows.

    Attributes
    ----------
    cells : Partitions of the rows.
    total_weight : Weight of all rows of the objective.
    cell_weight : (n_cells,). Weight of each cell, times amounts in views that have some.
    square_weight : (n_cells,). The same, times squared amounts; `cell_weight` itself where no row
        counts for an amount.
    """

    cells: Cells
    total_weight: float
    cell_weight: Float
    square_weight: Float

    @cached_property
    def divisor(self) -> Float:
        """Total weight of each cell, where sums are divided by it: one for empty cells."""
        return np.where(self.cell_weight > 0, self.cell_weight, 1.0)

    @cached_property
    def density(self) -> Float:
        """Total weight over that of each cell; zero for empty cells."""
        weight = self.cell_weight
        return np.divide(self.total_weight, weight, out=np.zeros_like(weight), where=weight > 0)

    @cached_property
    def effective_weight(self) -> Float:
        """Weight of each cell, if its amounts were all alike and as certain (Kish)."""
        weight, square = self.cell_weight, self.square_weight
        if square is weight:
            return weight
        return np.asarray(weight**2 / np.where(square > 0, square, 1.0))

    @cached_property
    def effective_density(self) -> Float:
        """Total weight over the effective one of each cell; zero for empty cells."""
        weight = self.effective_weight
        return np.divide(self.total_weight, weight, out=np.zeros_like(weight), where=weight > 0)

    def scale_concavity(self, of_cells: Float) -> Float:
        """Scale negative curvatures of means of cells to those of rows of weight one."""
        if self.cells.has_amounts:
            views = self.cells.views
            of_cells = of_cells * np.concatenate([view.largest_amount for view in views])
        return np.asarray(of_cells * self.density)


class ProblemRows(WeightedCells):
    """Rows of a problem with what does not depend on scores.

    Parameters
    ----------
    y : (n_samples,). Class index of each row; -1 for rows without a label, which are in no
        objective.
    weight : (n_samples,). Weight of each row in the objective and the Bregman distance; ones by
        default. It may differ from the sample weights of `cells` by a factor of each label
        (``class_weight``, ``scale_pos_weight``): constraints are about sample weights alone.
    proxy : Smooth proxy of 0-1 rates in gradients. "auto" takes the sigmoid for constraints
        that may reward errors or split targets (see :class:`LinearConstraints`), and the logistic
        proxy for all others. "ramp" is for two classes. "square" is "auto" with the square
        surrogate of pair rates, which have the density otherwise.
    outlier_clip : Margin beyond which a row on the wrong side stops adding to mean-loss
        constraints.
    dtype : Precision of the kernels.
    gradient_dtype : Type of the returned gradients and Hessians; that of the kernels by default.
    order : Memory order of multiclass scores and gradients.
    majoriser_factor : Factor on the Hessian of softmax scores: 2 in XGBoost, which makes the
        diagonal an upper bound of the full Hessian, K / (K - 1) in LightGBM.
    hessian_floor : Number added to the Hessian of a row of weight one; below its rounding unless
        it is nearly zero.
    array_module : Module of the arrays with an entry for each row: numpy, or CuPy for a booster
        that is trained on a graphics card. Pair rates are computed by numpy.
    n_threads : Number of threads that blocks of many rows are shared by.
    """

    def __init__(
        self,
        y: Array,
        cells: Cells,
        constraints: LinearConstraints,
        *,
        weight: Array | None = None,
        proxy: ProxyName = "auto",
        outlier_clip: float | None = None,
        dtype: Any = np.float64,
        gradient_dtype: Any = None,
        order: Literal["C", "F"] = "C",
        majoriser_factor: float = 1.0,
        hessian_floor: float = 0.0,
        array_module: Any = np,
        n_threads: int = 1,
    ) -> None:
        has_tables = bool(constraints.pair_blocks or constraints.residual_blocks)
        xp = self.array_module = np if has_tables else array_module
        self.cells, self.constraints = cells.on(xp), constraints
        self.bounded_proxy: ProxyName = RAMP if proxy == RAMP else "sigmoid"
        self.is_bounded: Bool = constraints.may_reward_errors | constraints.splits_targets
        if proxy in CONCAVITIES:
            self.is_bounded = np.full(len(constraints), proxy == self.bounded_proxy)
        self.reduce_sum = cells.reduce_sum
        self.sums = ExactSums(cells.communicator, cells.n_rows)
        self.dtype, self.n_samples = np.dtype(dtype), int(y.size)
        self.n_threads = n_threads if xp is np and self.n_samples >= MIN_ROWS else 1
        self.n_classes = int(cells.classes.size)
        self.n_scores = 1 if self.n_classes == 2 else self.n_classes
        self.kernel: BinaryKernel | SoftmaxKernel = SoftmaxKernel(majoriser_factor)
        if self.n_classes == 2:
            self.kernel = RampKernel() if proxy == RAMP else BinaryKernel()
        self.cap = clip_cap(outlier_clip)
        self.hessian_floor = hessian_floor
        self.has_several_views = cells.n_binding > 1
        self.has_loss_by_cell = "loss" in constraints.statistics
        self.has_clipped_loss = self.has_loss_by_cell and bool(np.isfinite(self.cap))
        known = y if y.min(initial=0) >= 0 else np.maximum(y, 0)
        self.labels = xp.asarray(self.kernel.encode(known, self.dtype))
        self.label_of_row = xp.asarray(known)  # That of rows without a label is zero.
        self._set_weight(weight, cells)
        given = constraints, cells, self.weight, self.total_weight
        self.pairs: PairRows | None = None
        if constraints.pair_blocks:
            self.pairs = PairRows(*given, is_square=proxy == SQUARE)
        self.residuals = ResidualRows(*given) if constraints.residual_blocks else None
        # What constraints depend on beside predictions and losses.
        self.tables = [table for table in (self.pairs, self.residuals) if table is not None]
        self._make_buffers(gradient_dtype or dtype, order)

    def _set_weight(self, weight: Array | None, cells: Cells) -> None:
        """Store the weights of the rows, and sum them by cell."""
        self.weight, self.largest_weight = None, 1.0
        self.cell_weight = cells.total() if cells.has_amounts else cells.count  # of all machines
        if weight is not None:
            if self.sums.are_rounded:
                self.largest_weight = self.sums.largest(float(weight.max(initial=0.0)))
            # Fewer bits leave multiples of a step what they are.
            rounded = self.sums.round(weight, self.largest_weight)
            weight = np.asarray(rounded, dtype=self.dtype)
            self.cell_weight = self.reduce_sum(cells.total(weight))
            self.weight = self.array_module.asarray(weight)
        self.decision_weight = self.weight
        # Cells of the first view are enough. A product of vectors as long as the rows would start
        # threads of another library, and these keep a core busy that the booster needs.
        first = self.cells.views[0].cells
        inside = self.cells.in_objective[first]
        self.objective_weight = np.where(inside, self.cell_weight[first], 0.0)
        self.total_weight = float(self.objective_weight.sum())

    def _make_buffers(self, gradient_dtype: Any, order: Literal["C", "F"]) -> None:
        """Make the arrays that probabilities, gradients and Hessians are written to."""
        xp = self.array_module
        shape = (self.n_samples,) if self.n_classes == 2 else (self.n_samples, self.n_classes)
        self.probability = xp.empty(shape, dtype=self.dtype, order=order)
        gradient = xp.empty(shape, dtype=gradient_dtype, order=order)
        self.gradient_dtype = gradient.dtype
        self.buffers = gradient, np.empty_like(gradient)
        # Two pairs of arrays are written to in turns, because the caches of a booster's threads
        # hold the pair that they have just read. Writing to that pair can double the time of a
        # gradient of two classes. Gradients of several classes take longer by themselves, and
        # caches hold a small part of more than a million rows.
        self.idle_buffers = self.buffers
        if self.n_classes == 2 and self.n_samples < 1 << 20 and xp is np:
            self.idle_buffers = np.empty_like(gradient), np.empty_like(gradient)

    def blocks(self, size: int = BLOCK) -> list[slice]:
        """List blocks of rows that fit in cache, or on a graphics card in its memory."""
        if self.array_module is not np:  # A call costs as much as an operation on a million rows.
            size = 1 << 22
        if self.n_classes > 2:
            size = max(size // 2, 1)
        n = self.n_samples
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def map_blocks(self, function: Callable[[slice], T], *, are_summed: bool = True) -> list[T]:
        """Apply a function to all blocks of rows, each thread to a run of them; in their order.

        Blocks whose results are summed have the size that one thread has, so that no sum depends
        on the number of threads, and more than two threads take longer. Where values of rows are
        written, several threads wait for each other to call numpy, and have larger blocks. More
        than eight take longer.
        """
        size = BLOCK if are_summed or self.n_threads == 1 else 1 << 18
        blocks = self.blocks(size)
        n_threads = min(self.n_threads, 2 if are_summed else 8, len(blocks))
        if n_threads <= 1:
            return list(map(function, blocks))
        ends = [len(blocks) * i // n_threads for i in range(n_threads + 1)]
        runs = [blocks[slice(*run)] for run in pairwise(ends)]
        return [
            *chain.from_iterable(_pool(n_threads).map(lambda run: [*map(function, run)], runs))
        ]

    def apply_weights(self, x: Array, rows: slice) -> Array:
        """Multiply per-row values of a block by the rows' weights, in place."""
        if self.weight is not None:
            weight = self.weight[rows]
            x *= weight if x.ndim == 1 else weight[:, None]
        return x

    def mean(self, function: Callable[[slice], Array]) -> float:
        """Compute ``(1/W) sum_i w_i v_i``, given a function of the values v of a block of rows."""

        def weighted(part: slice) -> Array:
            return self.apply_weights(function(part), part)

        def size(part: slice) -> float:
            values = weighted(part)
            return max(float(values.max()), -float(values.min()))

        bound = 0.0
        if self.sums.are_rounded:
            bound = self.sums.largest(max(self.map_blocks(size), default=0.0))
        parts = self.map_blocks(lambda part: float(self.sums.round(weighted(part), bound).sum()))
        return float(self.reduce_sum(np.array([sum(parts, 0.0)]))[0]) / self.total_weight

    def bregman(self, margin: Array, other: Array) -> float:
        """Compute the Bregman distance ``(1/2W) sum_i w_i ||F_i - F'_i||^2``."""

        def square(part: slice) -> Array:
            difference = margin[part] - other[part]
            difference *= difference
            return difference if difference.ndim == 1 else difference.sum(axis=1)

        return self.mean(square) / 2.0

    def gram(self, vectors: Float) -> Float:
        """Compute the products of vectors with an entry for each score, (m, n_scores)."""
        if not self.sums.are_rounded:
            return np.asarray(vectors @ vectors.T)
        bound = self.n_scores * self.sums.largest(float(np.abs(vectors).max(initial=0.0))) ** 2
        products = [self.sums.round(vectors * one, bound).sum(axis=1) for one in vectors]
        return np.asarray(self.reduce_sum(np.array(products)))

    @cached_property
    def square_weight(self) -> Float:  # type: ignore[override]
        """Sum of the weights of each cell, times squared amounts; its weight without amounts."""
        if not self.cells.has_amounts:
            return self.cell_weight
        return self.cells.total(self.weight, power=2)

    @cached_property
    def row_in_objective(self) -> Array | None:
        """Whether each row is in the objective; None where all are."""
        view = self.cells.views[0]
        inside = self.cells.in_objective[view.cells]
        if inside.all():
            return None
        found: Array = self.array_module.asarray(inside)[view.small_codes]
        return found.astype(self.gradient_dtype)
