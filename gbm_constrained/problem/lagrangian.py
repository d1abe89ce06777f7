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

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial, reduce
from itertools import compress
from typing import Any, Literal

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import Cells, CellStatistics, View
from gbm_constrained.data.communicator import ReduceSum, local_sum
from gbm_constrained.problem.kernels.base import (
    SIGMOID_CONCAVITY,
    ProxyName,
    clip_cap,
    logistic_targets,
    loss_lipschitz,
    over_classes,
    rate_lipschitz,
)
from gbm_constrained.problem.kernels.binary import BinaryKernel
from gbm_constrained.problem.kernels.softmax import SoftmaxKernel
from gbm_constrained.problem.kernels.tables import BinaryRowTables, KernelTables, RowTables
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.problem.view_cache import WorkingViews

# Rows of a block: few enough for its temporaries to stay in cache, many enough for the cost of a
# call to vanish. Half as many where each row has several scores.
BLOCK = 65_536
# Rows that mean slopes of cells are taken from, about; of several views, in which each of them
# tells of several cells.
SAMPLED, SAMPLED_OF_SEVERAL = 32_768, 16_384


def _levels(table: Float) -> tuple[Array, Array]:
    """Sorted distinct entries of a table, and the rank of each, in the smallest type."""
    low, high = table.min(), table.max()
    is_high = table == high
    if (is_high | (table == low)).all():  # the usual case, found without sorting
        return np.array([low, high]), is_high.view(np.uint8)
    levels, ranks = np.unique(table, return_inverse=True)
    return levels, ranks.astype(np.min_scalar_type(levels.size))


class Lagrangian:
    """Objective, constraints and proximal term over one set of rows.

    Parameters
    ----------
    y : ndarray of shape (n_samples,), intp
        Class index of each row; -1 for rows without a label, which are in no objective.
    cells : Cells
        The rows' partition.
    constraints : CompiledConstraints
        What binds the model.
    weight : ndarray of shape (n_samples,), default=None
        Weight of each row in the objective and the Bregman distance; ones by default. It may
        differ from the sample weights of `cells` by a factor of each label (``class_weight``,
        ``scale_pos_weight``): constraints are about sample weights alone.
    proxy : {"auto", "logistic", "sigmoid"}, default="auto"
        Smooth proxy of 0-1 rates in gradients; "auto" takes the sigmoid for rows of constraints
        that reward errors or split targets (see :class:`CompiledConstraints`) and the logistic one
        for all others.
        Values of 0-1 rates are always exact.
    outlier_clip : float, default=None
        Margin beyond which a row on the wrong side stops adding to mean-loss constraints.
    dtype : dtype, default=float64
        Precision of the kernels.
    gradient_dtype : dtype, default=None
        Type of the returned gradients and Hessians; that of the kernels by default.
    order : {"C", "F"}, default="C"
        Memory order of multiclass scores and gradients.
    majoriser_factor : float, default=1
        Multiplies the Hessian of softmax scores: 2 in XGBoost, which makes the diagonal an upper
        bound of the full Hessian, K / (K - 1) in LightGBM.
    hessian_floor : float, default=0
        Added to the Hessian of a row of weight one; below its rounding unless it is nearly zero.
    reduce_sum : callable, default=identity
        Sums a table of cell sums over machines.
    """

    def __init__(
        self,
        y: Array,
        cells: Cells,
        constraints: CompiledConstraints,
        *,
        weight: Array | None = None,
        proxy: ProxyName = "auto",
        outlier_clip: float | None = None,
        dtype: Any = np.float64,
        gradient_dtype: Any = None,
        order: Literal["C", "F"] = "C",
        majoriser_factor: float = 1.0,
        hessian_floor: float = 0.0,
        reduce_sum: ReduceSum = local_sum,
    ) -> None:
        self.cells = cells
        self.constraints = constraints
        m = len(constraints)
        self.is_sigmoid = {
            "auto": constraints.rewards_errors | constraints.splits_targets,
            "logistic": np.zeros(m, dtype=bool),
            "sigmoid": np.ones(m, dtype=bool),
        }[proxy]
        self.reduce_sum = reduce_sum
        self.dtype = np.dtype(dtype)
        self.n_samples = int(y.size)
        self.n_classes = int(cells.classes.size)
        self.kernel: BinaryKernel | SoftmaxKernel = (
            BinaryKernel() if self.n_classes == 2 else SoftmaxKernel(majoriser_factor)
        )
        self.cap = clip_cap(outlier_clip)
        self._tables: tuple[Float, Any] | None = None
        self._row_tables: BinaryRowTables | None = None
        self._ranks: list[tuple[View, bytes, Array]] = []
        self._entries: tuple[bytes, Array] | None = None
        self._several_views = cells.n_binding > 1
        self._loss_by_cell = bool(constraints.B.nnz)
        self._label_of_row = np.maximum(y, 0)
        self._decided: Array | None = None
        self._decisions = np.zeros((int(cells.classes.size) - 1, len(cells)))
        self.hessian_floor = hessian_floor
        self._labels = self.kernel.encode(self._label_of_row, self.dtype)
        self._weight = None if weight is None else np.asarray(weight, dtype=self.dtype)
        self._decision_weight = self._weight  # stays as cells were weighed: shares must end at one
        self.cell_weight = cells.count  # of all machines
        if self._weight is not None:
            self.cell_weight = reduce_sum(cells.total(self._weight))
        # Of the first view. Products of long vectors would wake threads of another library, which
        # then keep a core busy that the booster waits for.
        first = cells.views[0].cells
        self._objective_weight = np.where(cells.in_objective[first], self.cell_weight[first], 0.0)
        self.total_weight = float(self._objective_weight.sum())
        shape = (self.n_samples,) if self.n_classes == 2 else (self.n_samples, self.n_classes)
        self._probability = np.empty(shape, dtype=self.dtype, order=order)
        self._gradient = np.empty(shape, dtype=gradient_dtype or dtype, order=order)
        self._hessian = np.empty_like(self._gradient)
        # Written to in turns: a booster's threads have just read the last ones, and to take these
        # back from the caches of other cores may take as long as all else in a gradient. (Those
        # of several classes are as large as the probabilities, and more is done for each entry.)
        self._others = self._gradient, self._hessian
        if self.n_classes == 2:
            self._others = np.empty_like(self._gradient), np.empty_like(self._gradient)

    def narrow(self) -> None:
        """Compute in the precision of the returned gradients from now on, two classes only.

        A margin keeps its sign in single precision, but scores of several classes may tie, and
        their exponentials are taken in double precision anyway.
        """
        narrow = self._gradient.dtype
        if self.dtype == narrow or self.n_classes > 2:
            return
        self.dtype = narrow
        self._tables = self._row_tables = self._entries = None
        self._labels = self._labels.astype(narrow)
        self._probability = np.empty_like(self._gradient)
        if self._weight is not None:
            self._weight = self._weight.astype(narrow)

    def state(self) -> dict[str, Any]:
        """Give what the scores seen so far have changed, for :meth:`restore`."""
        return {
            "dtype": self.dtype.str,
            "decided": self._decided,
            "decisions": self._decisions,
            "packed": np.array(self._working_views.packed if self._several_views else [], np.intp),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of a Lagrangian that was made with the same arguments."""
        if state["dtype"] != self.dtype.str:
            self.narrow()
        self._decided, self._decisions = state["decided"], state["decisions"]
        if self._several_views:
            self._working_views.pack(state["packed"].tolist())

    def _blocks(self) -> Iterator[slice]:
        size = BLOCK if self.n_classes == 2 else max(BLOCK // 2, 1)
        for start in range(0, self.n_samples, size):
            yield slice(start, min(start + size, self.n_samples))

    def _weighted(self, x: Array, rows: slice) -> Array:
        """Multiply per-row values of a block by the rows' weights, in place."""
        if self._weight is not None:
            weight = self._weight[rows]
            x *= weight if x.ndim == 1 else weight[:, None]
        return x

    @cached_property
    def _divisor(self) -> Float:
        """Total weight of each cell, where sums are divided by it: one for empty cells."""
        return np.where(self.cell_weight > 0, self.cell_weight, 1.0)

    @cached_property
    def _density(self) -> Float:
        """Total weight over that of each cell; zero for empty cells."""
        weight = self.cell_weight
        return np.divide(self.total_weight, weight, out=np.zeros_like(weight), where=weight > 0)

    @cached_property
    def sensitivities(self) -> Any:
        r"""How strongly each row of constraints reacts to each cell: csr_array (m, n_cells).

        With :math:`D(F, F') = \frac{1}{2W} \sum_i w_i \|F_i - F'_i\|^2` and a row kernel that is
        :math:`\kappa`-Lipschitz, Jensen's inequality within each cell gives
        :math:`\|g(F) - g(F')\| \le L_g \sqrt{2 D}` with :math:`L_g` the spectral norm of
        :math:`|A| \mathrm{diag}(\kappa / \sqrt{\pi_c})`, :math:`\pi_c` the cell's fraction of the
        weight. This is that matrix; the norms of its rows are the constraints' own constants.
        """
        rates, losses = self.reactions
        return sparse.csr_array(rates + loss_lipschitz(self.n_classes) * losses)

    @cached_property
    def reactions(self) -> tuple[Any, Any]:
        """Parts of the sensitivities: of 0-1 rates, and of mean losses of unit slope."""
        scale = sparse.diags_array(np.sqrt(self._density))
        # A common shift of a cell's costs changes nothing, for predicted fractions sum to one:
        # hence the spread of the coefficients and not their size.
        rates = rate_lipschitz(self.n_classes) * self.constraints.spread
        return rates @ scale, abs(self.constraints.B) @ scale

    def lipschitz(self, loss_slope: float | None = None) -> tuple[Float, float]:
        """Lipschitz constants of the rows of constraints, and of all of them scaled to one.

        Parameters
        ----------
        loss_slope : float, default=None
            Slope of the cross-entropy in the score; by default the largest that it can have.

        Returns
        -------
        own : ndarray of shape (m,)
            Constant of each row; zero if no prediction changes it.
        together : float
            Norm of all rows, each scaled to constant one: one where no two of them share a cell.
            Of several views, squares are added.
        """
        rates, losses = self.reactions
        slope = loss_lipschitz(self.n_classes) if loss_slope is None else loss_slope
        reaction = sparse.csr_array(rates + slope * losses)
        own: Float = np.asarray(sparse.linalg.norm(reaction, axis=1), dtype=np.float64)
        inverse = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0)
        scaled: Any = sparse.csr_array(sparse.diags_array(inverse) @ reaction)
        square = 0.0
        for view in self.cells.views:
            part = scaled[:, view.cells]
            part = part[np.diff(part.indptr) > 0]
            gram = part @ part.T if part.shape[0] <= part.shape[1] else part.T @ part
            square += float(np.linalg.eigvalsh(gram.toarray())[-1]) if gram.shape[0] else 0.0
        return own, float(np.sqrt(max(square, 1.0)))

    @cached_property
    def _sample(self) -> tuple[Array, Array | None, list[Array], Float, Codes]:
        """Rows that stand for their cells, evenly spaced in each.

        With their weights, their cells in each view, the weight in each cell, and the cells
        without any.
        """
        codes = self.cells.views[0].small_codes
        order = np.argsort(codes, kind="stable")  # small types are sorted by their bits, fast
        count = np.bincount(codes)
        start = count.cumsum() - count
        sampled = SAMPLED_OF_SEVERAL if self._several_views else SAMPLED
        wanted = max(sampled // int(np.count_nonzero(count)), 1)
        every = -(-count // wanted)
        chosen = [order[start[c] : start[c] + count[c] : every[c]] for c in np.flatnonzero(count)]
        rows = np.sort(np.concatenate(chosen))
        weight = None if self._weight is None else self._weight[rows]
        views = self.cells.views
        cells = [view.small_codes[rows].astype(np.intp) for view in views]
        mass = [np.bincount(at, weight, len(v)) for at, v in zip(cells, views, strict=True)]
        total = np.concatenate(mass).astype(np.float64)
        without = np.flatnonzero(total <= 0)
        total[without] = 1.0
        return rows, weight, cells, total, without

    def slopes(self) -> Float:
        """Root mean square slope of class probabilities in each cell, at the last scores.

        Of a sample of the rows; the largest that it can be in cells without one.
        """
        rows, weight, cells, mass, without = self._sample
        p = self._probability if rows.size == self.n_samples else self._probability[rows]
        p = p.astype(np.float64)
        square = np.subtract(1.0, p)
        square *= p
        square *= square
        square = square if square.ndim == 1 else over_classes(np.add, square)
        square = square if weight is None else square * weight
        total = np.concatenate(
            [
                np.bincount(at, square, len(view))
                for at, view in zip(cells, self.cells.views, strict=True)
            ]
        )
        slopes = np.sqrt(total / mass)
        slopes[without] = rate_lipschitz(self.n_classes)
        return np.asarray(slopes)

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
        """Slope of the probabilities of several classes at the best constant model.

        As in :meth:`slopes`: the norm over classes of ``pi_k (1 - pi_k)``.
        """
        pi = self._class_fractions
        return float(np.linalg.norm(pi * (1.0 - pi)))

    @property
    def _class_fractions(self) -> Float:
        labels = np.maximum(self.cells.labels[self.cells.views[0].cells], 0)
        total = np.bincount(labels, self._objective_weight, self.n_classes)
        return np.asarray(total / self.total_weight)

    @property
    def constant_scores(self) -> float | Float:
        """Scores of the best constant model: the logit of the class fractions, or centred logs."""
        logs = np.log(np.maximum(self._class_fractions, np.finfo(float).tiny))
        return float(logs[1] - logs[0]) if logs.size == 2 else np.asarray(logs - logs.mean())

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
        if margin.shape != self._probability.shape:
            raise ValueError(
                f"The Lagrangian was built on scores of shape {self._probability.shape}, got "
                f"{margin.shape}: the learner must pass every training row, in order."
            )
        margin = margin.astype(self.dtype, copy=False)
        with np.errstate(over="ignore"):
            for rows in self._blocks():
                self.kernel.link(margin[rows], self._labels[rows], self._probability[rows])
        return Point(self, margin)

    def objective(self, statistics: CellStatistics) -> float:
        """``f``: weighted mean cross-entropy of all rows."""
        loss = statistics.loss[self.cells.views[0].cells]
        return float(self._objective_weight @ loss) / self.total_weight

    def error(self, statistics: CellStatistics) -> float:
        """Weighted fraction of training rows that are misclassified."""
        cells = self.cells
        n = cells.views[0].cells.stop
        weight = np.where(cells.in_objective[:n], cells.weight[:n], 0.0)
        right = statistics.predicted[np.arange(n), np.maximum(cells.labels[:n], 0)]
        return float(weight @ (1.0 - right) / weight.sum())

    def concavity(self, multipliers: Float) -> Float:
        r"""Most negative curvature of the constraints' Lagrangian in each cell, (n_cells,).

        The largest :math:`\rho_c` with :math:`\sum_j y_j g_j + \sum_c \rho_c D_c` convex, D_c the
        cell's part of the Bregman distance. A mean loss with a negative coefficient is concave,
        with curvature at most 1/4 in a binary margin and 1/2 in softmax scores; the sigmoid proxy
        of a rate is both; the logistic one is convex.
        """
        several = int(self.n_classes > 2)
        constraints = self.constraints
        total = (0.25, 0.5)[several] * np.maximum(-constraints.loss_costs(multipliers), 0.0)
        bounded = np.where(self.is_sigmoid, multipliers, 0.0)
        total = total + SIGMOID_CONCAVITY[several] * (bounded @ constraints.spread)
        return np.asarray(total * self._density)

    def per_row(self, table: Float) -> Array:
        """Look up a table of cells for each row, shaped to multiply scores.

        Of several views, the largest entry.
        """
        key = table.tobytes()
        if self._entries is None or self._entries[0] != key:
            levels, ranks = _levels(table)
            largest = self._largest(ranks)
            levels = levels.astype(self.dtype)
            low, step = levels[0], levels[-1] - levels[0]
            if levels.size == 2 and low + step == levels[1]:  # to look two numbers up takes longer
                found = np.multiply(largest, step, dtype=self.dtype)
                found += low
            else:
                found = levels.take(largest, mode="wrap")
            self._entries = (key, np.broadcast_to(found, (self.n_samples,)))
        entries = self._entries[1]
        return entries if self.n_classes == 2 else entries[:, None]

    def _largest(self, ranks: Array) -> Array:
        """Largest entry of a table of ranks in each row's cells; one entry if all rows agree.

        From one iteration to the next few views change theirs: those of the others are kept.
        """
        found = []
        for view, part in self._working_views.largest(ranks):
            key = part.tobytes()
            known = [kept for of, was, kept in self._ranks if of is view and was == key]
            of_rows = known[0] if known else part[:1]
            if not known and (part != part[0]).any():
                of_rows = np.empty(self.n_samples, dtype=ranks.dtype)
                for rows in self._blocks():
                    view.look_up(part, rows, of_rows[rows])
            found.append((view, key, of_rows))
        self._ranks = found
        largest = reduce(np.maximum, (of_rows for _, _, of_rows in found))
        return largest[:1] if (largest == largest[0]).all() else largest

    def codes(self, rows: slice) -> Any:
        """Give what kernels look a block of rows up by."""
        return rows if self._several_views else self.cells.views[0].small_codes[rows]

    @cached_property
    def _working_views(self) -> WorkingViews:
        """Views by what multipliers add to coefficients of a row.

        To the cost of each class, of two classes to its difference, and to that of the loss.
        """
        scale = sparse.diags_array(self._density)
        A, K = self.constraints.A, self.n_classes
        costs = [A[:, k::K] for k in range(K)]
        added = [costs[1] - costs[0]] if K == 2 else costs
        if self._loss_by_cell:
            added.append(self.constraints.B)
        matrices = [sparse.csr_array(scale @ of_rows.T) for of_rows in added]
        return WorkingViews(self.cells, self.cell_weight, matrices, self.constraints.owner)

    def _parts(self, multipliers: Float, wanted: Sequence[bool]) -> list[tuple[View, Array]]:
        """Give views and tables of coefficients: a column of each kind that is wanted.

        Costs of convex proxies, of each class or of two classes their difference; the same of
        bounded ones; the coefficient of the loss.
        """
        by_proxy = np.column_stack([~self.is_sigmoid, self.is_sigmoid]) * multipliers[:, None]
        parts = []
        for view, tables in self._working_views.look_up(by_proxy):
            loss = tables.pop().sum(axis=1) if self._loss_by_cell else np.zeros(len(view))
            columns = [*(costs[:, proxy] for proxy in (0, 1) for costs in tables), loss]
            table = np.column_stack(list(compress(columns, wanted)))
            parts.append((view, table.astype(self.dtype)))
        return parts

    def _added_up(
        self, parts: Sequence[tuple[View, Array]], width: int
    ) -> Iterator[tuple[slice, Array]]:
        """Sum the coefficients of each row of each block, `width` columns of them."""
        for rows in self._blocks():
            total = np.empty((rows.stop - rows.start, width), dtype=self.dtype)
            found = np.empty_like(total)
            if not parts:
                total.fill(0.0)
            for i, (view, table) in enumerate(parts):
                if i == 0:
                    view.look_up(table, rows, total)
                else:
                    total += view.look_up(table, rows, found)
            yield rows, total

    def tables(self, multipliers: Float) -> Any:
        """Coefficients of the row kernels of ``W (f + <y, g>)``, in the form the kernel reads."""
        if self._tables is None or not np.array_equal(multipliers, self._tables[0]):
            self._tables = (multipliers.copy(), self._make_tables(multipliers))
        return self._tables[1]

    def _make_tables(self, multipliers: Float) -> KernelTables | BinaryRowTables:
        if self._several_views:
            kind = self._binary_row_tables if self.n_classes == 2 else self._several_row_tables
            return kind(multipliers)
        first = self.cells.views[0].cells  # what is only reported has views behind it
        density = self._density
        shape = (len(self.cells), self.n_classes)
        convex = self.constraints.costs(np.where(self.is_sigmoid, 0.0, multipliers))
        convex = density[:, None] * convex.reshape(shape)
        cost = np.zeros(shape)
        if self.is_sigmoid.any():
            bounded = self.constraints.costs(np.where(self.is_sigmoid, multipliers, 0.0))
            cost = density[:, None] * bounded.reshape(shape)
        loss = density * self.constraints.loss_costs(multipliers)
        labels, in_objective = np.maximum(self.cells.labels, 0), self.cells.in_objective
        return self._kernel_tables(
            KernelTables, convex[first], cost[first], loss[first], labels[first],
            in_objective[first],
        )  # fmt: skip

    def _kernel_tables(
        self, kind: type[KernelTables], convex: Array, cost: Array, loss: Array, labels: Array,
        in_objective: Array,
    ) -> KernelTables:  # fmt: skip
        """Tables of cells, or of rows that are each its own cell."""
        clipped = loss if np.isfinite(self.cap) else np.zeros_like(loss)
        target = logistic_targets(convex)
        target[np.arange(labels.size), labels] += in_objective + loss - clipped
        return kind(target, cost, clipped, labels, self.dtype)

    def _several_row_tables(self, multipliers: Float) -> KernelTables:
        """Tables of more than two classes and several views."""
        K = self.n_classes
        width = 2 * K + 1
        sums = np.empty((self.n_samples, width), dtype=self.dtype)
        for rows, total in self._added_up(self._parts(multipliers, [True] * width), width):
            sums[rows] = total
        in_objective = self.cells.in_objective[self.cells.codes]
        return self._kernel_tables(
            RowTables, sums[:, :K], sums[:, K:-1], sums[:, -1], self._label_of_row, in_objective
        )

    def _binary_row_tables(self, multipliers: Float) -> BinaryRowTables:
        """Tables of two classes and several views; the last ones are overwritten."""
        if self._row_tables is None:
            self._row_tables = BinaryRowTables(self._labels)
        t, clips = self._row_tables, bool(np.isfinite(self.cap))
        at_work = multipliers != 0
        present = [
            bool((at_work & ~self.is_sigmoid).any()),
            bool((at_work & self.is_sigmoid).any()),
            bool(self._loss_by_cell and at_work.any()),
        ]
        parts = self._parts(multipliers, present)
        # The other label is a target only where it costs something to predict the own one.
        has_other = present[0] and any(
            (table[:, 0] * np.where(view.levels["label"] == 1, 1, -1) > 0).any()
            for view, table in parts
        )
        t.begin((has_other, present[1], present[2] and clips))
        for rows, total in self._added_up(parts, sum(present)):
            found = iter(total.T)
            rate, bounded, losses = (next(found) if is_there else None for is_there in present)
            own = 1.0 if self._row_in_objective is None else self._row_in_objective[rows]
            if losses is not None and not clips:
                own = own + losses
            t.fill(rows, own, rate, bounded, losses if clips else None)
        return t

    @cached_property
    def _row_in_objective(self) -> Array | None:
        """Whether each row is in the objective; None where all are."""
        view = self.cells.views[0]
        inside = self.cells.in_objective[view.cells]
        return None if inside.all() else inside[view.small_codes].astype(self._gradient.dtype)

    def bregman(self, margin: Array, other: Array) -> float:
        """Bregman distance ``(1/2W) sum_i w_i ||F_i - F'_i||^2`` between two score matrices."""
        total = 0.0
        for rows in self._blocks():
            difference = margin[rows] - other[rows]
            difference *= difference
            square = difference if difference.ndim == 1 else difference.sum(axis=1)
            total += float(self._weighted(square, rows).sum())
        return float(self.reduce_sum(np.array([total]))[0]) / (2.0 * self.total_weight)


class Point:
    """A Lagrangian at fixed scores; made by :meth:`Lagrangian.at`."""

    def __init__(self, lagrangian: Lagrangian, margin: Array) -> None:
        self.lagrangian = lagrangian
        self.margin = margin

    def statistics(self) -> CellStatistics:
        """Cell statistics: exact 0-1 fractions and mean losses."""
        lag = self.lagrangian
        n_cells, n_classes = len(lag.cells), lag.n_classes
        by_class, by_loss = self._sums()
        sums = lag.reduce_sum(np.concatenate([by_class.ravel(), by_loss.ravel()]))
        by_class = sums[: by_class.size].reshape(by_class.shape)
        by_loss = sums[by_class.size :].reshape(by_loss.shape)
        predicted = np.empty((n_cells, n_classes))
        np.divide(by_class.T, lag._divisor[:, None], out=predicted[:, 1:])
        predicted[:, 0] = 1.0 - over_classes(np.add, predicted[:, 1:])
        if lag._loss_by_cell:
            by_loss = by_loss / lag._divisor
        else:
            by_loss = np.broadcast_to(by_loss / lag.total_weight, (1, n_cells))
        return CellStatistics(predicted, by_loss[0], by_loss[-1])

    def losses(self) -> Float:
        """Cross-entropy of each row."""
        lag = self.lagrangian
        parts = [
            lag.kernel.loss(lag._probability[rows], self.margin[rows], lag._labels[rows])
            for rows in lag._blocks()
        ]
        return np.concatenate(parts, dtype=np.float64)

    def _sums(self) -> tuple[Float, Float]:
        """Weight predicted as each class but the first in each cell, and sums of losses.

        Of losses by cell, and clipped ones if there is a cap, or of all rows at once where no
        constraint is about them.
        """
        lag = self.lagrangian
        n_cells, n_classes = len(lag.cells), lag.n_classes
        clips = lag._loss_by_cell and bool(np.isfinite(lag.cap))
        by_class = np.zeros((n_classes - 1, n_cells))
        by_loss = np.zeros((1 + clips, n_cells if lag._loss_by_cell else 1))
        for rows in lag._blocks():
            margin = self.margin[rows]
            loss = lag.kernel.loss(lag._probability[rows], margin, lag._labels[rows])
            if clips:
                clipped = lag._weighted(np.minimum(loss, lag.cap), rows)
                by_loss[1] += lag.cells.sum_by_cell(clipped, rows)
            loss = lag._weighted(loss, rows)
            if lag._loss_by_cell:
                by_loss[0] += lag.cells.sum_by_cell(loss, rows)
            else:
                inside = lag._row_in_objective
                by_loss[0] += (loss if inside is None else loss * inside[rows]).sum()
            if lag._several_views:
                continue
            predicted = lag.kernel.predicted(margin)
            for k in range(1, n_classes):
                chosen = predicted if predicted.dtype == np.bool_ else predicted == k
                if lag._decision_weight is not None:  # in single precision sums are off by 1e-7
                    chosen = np.multiply(chosen, lag._decision_weight[rows], dtype=np.float64)
                by_class[k - 1] += lag.cells.sum_by_cell(chosen, rows)
        return self._decisions() if lag._several_views else by_class, by_loss

    def _decisions(self) -> Float:
        """Weight predicted as each class but the first in each cell of several views.

        Few decisions change from one outer iteration to the next: only those are moved.
        """
        lag = self.lagrangian
        decided = lag.kernel.predicted(self.margin).astype(np.min_scalar_type(lag.n_classes))
        before = np.zeros_like(decided) if lag._decided is None else lag._decided
        moved = np.flatnonzero(decided != before)
        came, left = moved[decided[moved] > 0], moved[before[moved] > 0]
        rows = np.concatenate([came, left])
        classes = np.concatenate([decided[came], before[left]]).astype(np.intp) - 1
        weight = np.repeat([1.0, -1.0], [came.size, left.size])
        if lag._decision_weight is not None:
            weight *= lag._decision_weight[rows]
        for view in lag.cells.views:
            codes = view.small_codes[rows].astype(np.intp)
            codes += classes * len(view)
            sums = lag._decisions[:, view.cells]
            sums += np.bincount(codes, weight, sums.size).reshape(sums.shape)
        lag._decided = decided
        return lag._decisions

    def value(
        self, multipliers: Float, anchor: Array | None = None, inverse_tau: float = 0.0
    ) -> float:
        """Value of the Lagrangian with 0-1 rates replaced by their proxies, up to a constant.

        It is the function that :meth:`gradient` (divided by W) is the gradient of.
        """
        lag = self.lagrangian
        t = lag.tables(multipliers)
        total = 0.0
        for rows in lag._blocks():
            row_value = lag.kernel.value(
                lag._probability[rows], self.margin[rows], lag._labels[rows],
                lag.codes(rows), t, lag.cap,
            )  # fmt: skip
            total += float(lag._weighted(row_value, rows).sum())
        total = float(lag.reduce_sum(np.array([total]))[0]) / lag.total_weight
        if anchor is not None and inverse_tau > 0:
            total += inverse_tau * lag.bregman(self.margin, anchor)
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
        lag = self.lagrangian
        before = lag._gradient, lag._hessian
        (lag._gradient, lag._hessian), lag._others = lag._others, before
        t = lag.tables(multipliers)
        kernel = lag.kernel.gradient
        if isinstance(lag.kernel, BinaryKernel):
            kernel = partial(lag.kernel.gradient, learning_rate=learning_rate)
        proximal = np.empty(len(lag.cells), dtype=lag.dtype)
        proximal[...] = inverse_tau
        is_proximal = bool(proximal.any())
        if not lag._several_views:
            proximal = proximal[lag.cells.views[0].cells]
        elif is_proximal:
            proximal = lag.per_row(proximal).reshape(-1)
        for rows in lag._blocks():
            grad, hess = lag._gradient[rows], lag._hessian[rows]
            if grad.dtype != lag.dtype:  # round once, at the end
                grad, hess = np.empty_like(grad, lag.dtype), np.empty_like(hess, lag.dtype)
            kernel(
                lag._probability[rows], self.margin[rows], lag._labels[rows],
                lag.codes(rows), t, lag.cap, grad, hess,
            )  # fmt: skip
            if is_proximal:
                pull = lag.kernel.look_up(t, proximal, lag.codes(rows), lag._labels[rows])
                if grad.ndim == 2 and pull.ndim == 1:
                    pull = pull[:, None]
                if anchor is not None:
                    distance = self.margin[rows] - anchor[rows]
                    distance *= pull
                    grad += distance
                hess += pull
            elif lag.hessian_floor > 0:
                hess += lag.hessian_floor
            lag._weighted(grad, rows)
            lag._weighted(hess, rows)
            if grad.dtype != lag._gradient.dtype:
                lag._gradient[rows], lag._hessian[rows] = grad, hess
        return lag._gradient, lag._hessian

    def hessian_product(self, multipliers: Float, u: Array, inverse_tau: float = 0.0) -> Array:
        """Exact Hessian of the Lagrangian (proxies for 0-1 rates) times `u`, multiplied by W."""
        lag = self.lagrangian
        t = lag.tables(multipliers)
        product = np.empty_like(u)
        for rows in lag._blocks():
            block = lag.kernel.hessian_product(
                lag._probability[rows], self.margin[rows], lag._labels[rows],
                lag.codes(rows), t, lag.cap, u[rows],
            )  # fmt: skip
            product[rows] = lag._weighted(block + inverse_tau * u[rows], rows)
        return product
