"""Statistics of cells, which constraints and the objective are functions of.

A statistic sums a quantity of the rows of each cell. A fit computes a statistic only if a
constraint or the objective depends on it: predicted fractions for rates and for the 0-1 error of
the history, mean losses for the objective and for constraints on losses, tables of pairs for pair
rates, tables of mean residuals for calibration errors.

A further statistic, such as the mean margin, is one more implementation of :class:`CellStatistic`
in :func:`make_statistics`, a field of :class:`~gbm_constrained.data.cells.CellStatistics`, and a
matrix and a name in :class:`~gbm_constrained.problem.linear_constraints.LinearConstraints`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.problem.kernels.base import over_classes
from gbm_constrained.problem.pair_rows import PairRows
from gbm_constrained.problem.problem_rows import ProblemRows
from gbm_constrained.problem.residual_rows import ResidualRows, find_probabilities

# Cross-entropy above which a row counts as this, in nats, where several machines add losses.
LARGEST_LOSS = 64.0


class CellStatistic(Protocol):
    """A statistic of the rows of each cell, as sums over blocks of rows and over machines."""

    name: ClassVar[str]

    def begin(self, margin: Array) -> Float:
        """Make the table of sums, to which those of blocks of rows are added."""

    def sum_block(self, margin: Array, block: slice) -> Float | None:
        """Compute the sums of a block of rows, given their scores; None where there are none."""

    def values(self, sums: Float) -> dict[str, Float]:
        """Compute fields of ``CellStatistics`` from the sums over all machines."""

    def exact(self) -> CellStatistic:
        """Return the statistic as reports show it, without approximation."""
        return self

    def state(self) -> dict[str, Any]:
        """Collect what the scores seen so far have changed, for :meth:`restore`."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of an equal statistic."""
        return


class PredictedFractions(CellStatistic):
    """Weighted fraction of each cell's rows that are predicted as each class, exact."""

    name: ClassVar[str] = "predicted"

    def __init__(self, rows: ProblemRows) -> None:
        self.rows = rows

    def begin(self, margin: Array) -> Float:
        """Make a table of zeros for each class but the first, (n_classes - 1, n_cells)."""
        return np.zeros((self.rows.n_classes - 1, len(self.rows.cells)))

    def sum_block(self, margin: Array, block: slice) -> Float | None:
        """Sum the weights of the rows that are predicted as each class but the first."""
        rows = self.rows
        predicted, sums = rows.kernel.predict(margin), []
        for k in range(1, rows.n_classes):
            chosen = predicted if predicted.dtype == np.bool_ else predicted == k
            if rows.decision_weight is not None:  # Sums in single precision are off by 1e-7.
                chosen = np.multiply(chosen, rows.decision_weight[block], dtype=np.float64)
            sums.append(rows.cells.sum_by_cell(chosen, block))
        return np.stack(sums)

    def values(self, sums: Float) -> dict[str, Float]:
        """Divide by the weights of the cells; the first class has the rest."""
        predicted = np.empty((len(self.rows.cells), self.rows.n_classes))
        np.divide(sums.T, self.rows.divisor[:, None], out=predicted[:, 1:])
        predicted[:, 0] = 1.0 - over_classes(np.add, predicted[:, 1:])
        return {"predicted": predicted}


class TrackedFractions(PredictedFractions):
    """Predicted fractions in several views, of which only the changes are computed.

    Few decisions change from one outer iteration to the next.

    Attributes
    ----------
    decided : (n_samples,). Predicted class of each row at the last scores.
    sums : (n_classes - 1, n_cells). Weights of the decisions by cell.
    """

    def __init__(self, rows: ProblemRows) -> None:
        super().__init__(rows)
        self.decided: Array | None = None
        self.sums = np.zeros((rows.n_classes - 1, len(rows.cells)))

    def begin(self, margin: Array) -> Float:
        """Move the decisions that other scores change; return the sums of all rows."""
        problem = self.rows
        decided = problem.kernel.predict(margin).astype(np.min_scalar_type(problem.n_classes))
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
            weighed = view.weigh(weight, rows)
            sums += np.bincount(codes, weighed, sums.size).reshape(sums.shape)
        self.decided = decided
        return self.sums

    def sum_block(self, margin: Array, block: slice) -> Float | None:
        """Return nothing: the sums hold all rows from the beginning."""
        return None

    def state(self) -> dict[str, Any]:
        """Collect the decisions at the last scores, and their sums."""
        return {"decided": self.decided, "sums": self.sums}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the decisions of an equal statistic."""
        self.decided, self.sums = state["decided"], state["sums"]


class MeanLosses(CellStatistic):
    """Weighted mean cross-entropy: of each cell, or of all rows where no constraint needs cells.

    Under a cap, the losses of cells are summed a second time, clipped.
    """

    name: ClassVar[str] = "loss"

    def __init__(self, rows: ProblemRows) -> None:
        self.rows = rows
        self.is_by_cell = self.name in rows.constraints.statistics
        self.is_clipped = self.is_by_cell and bool(np.isfinite(rows.cap))

    def begin(self, margin: Array) -> Float:
        """Make a table of zeros: losses, and clipped losses if there is a cap."""
        return np.zeros((1 + self.is_clipped, len(self.rows.cells) if self.is_by_cell else 1))

    def sum_block(self, margin: Array, block: slice) -> Float | None:
        """Sum the losses of a block of rows, times their weights in the objective."""
        rows = self.rows
        loss = rows.kernel.loss(rows.probability[block], margin, rows.labels[block])
        if rows.sums.are_rounded:
            np.minimum(loss, LARGEST_LOSS, out=loss)
        clipped = np.minimum(loss, rows.cap) if self.is_clipped else None
        loss = self._weigh(loss, block)
        if self.is_by_cell:
            sums = [rows.cells.sum_by_cell(loss, block)]
        else:
            inside = rows.row_in_objective
            total = float((loss if inside is None else loss * inside[block]).sum())
            sums = [np.array([total])]
        if clipped is not None:
            sums.append(rows.cells.sum_by_cell(self._weigh(clipped, block), block))
        return np.stack(sums)

    def _weigh(self, loss: Array, block: slice) -> Array:
        """Multiply losses by weights, in place, and round them to what machines add exactly."""
        rows = self.rows
        bound = LARGEST_LOSS * rows.largest_weight
        weighted: Array = rows.sums.round(rows.apply_weights(loss, block), bound)
        return weighted

    def values(self, sums: Float) -> dict[str, Float]:
        """Divide by the weights of the cells, or by that of all rows."""
        if self.is_by_cell:
            means = sums / self.rows.divisor
        else:
            means = np.broadcast_to(sums / self.rows.total_weight, (1, len(self.rows.cells)))
        return {"loss": means[0], "clipped_loss": means[-1]}


class PairTables(CellStatistic):
    """Tables of pairs: how often a row of one cell scores above a row of another.

    A table is no sum over blocks of rows. It is computed from all rows at once, from scores in
    bins where rows are many (:mod:`gbm_constrained.problem.pair_statistics`) unless it `is_exact`.
    """

    name: ClassVar[str] = "pairs"

    def __init__(self, pairs: PairRows, *, is_exact: bool = False) -> None:
        self.pairs, self.is_exact = pairs, is_exact

    def begin(self, margin: Array) -> Float:
        """Compute the tables."""
        return self.pairs.tables(margin, is_exact=self.is_exact)

    def exact(self) -> PairTables:
        """Return the statistic without bins."""
        return PairTables(self.pairs, is_exact=True)

    def sum_block(self, margin: Array, block: slice) -> Float | None:
        """Return nothing: the tables are of all rows from the beginning."""
        return None

    def values(self, sums: Float) -> dict[str, Float]:
        """Return the tables."""
        return {"pairs": sums}


class ResidualTables(CellStatistic):
    """Tables of mean residuals: labels less probabilities of each cell, by bin of probability."""

    name: ClassVar[str] = "residuals"

    def __init__(self, residuals: ResidualRows) -> None:
        self.residuals = residuals

    def begin(self, margin: Array) -> Float:
        """Compute the tables."""
        return self.residuals.tables(find_probabilities(margin))

    def sum_block(self, margin: Array, block: slice) -> Float | None:
        """Return nothing: the tables are of all rows from the beginning."""
        return None

    def values(self, sums: Float) -> dict[str, Float]:
        """Return the tables."""
        return {"residuals": sums}


STATISTICS = (PredictedFractions.name, MeanLosses.name, PairTables.name, ResidualTables.name)


def make_statistics(rows: ProblemRows) -> tuple[CellStatistic, ...]:
    """Make the statistics that constraints, objective and history of a problem depend on."""
    # On a graphics card, counting all rows takes less time than finding those that change.
    is_tracked = rows.has_several_views and rows.array_module is np
    fractions = TrackedFractions if is_tracked else PredictedFractions
    found: list[CellStatistic] = [fractions(rows), MeanLosses(rows)]
    if rows.pairs is not None:
        found.append(PairTables(rows.pairs))
    if rows.residuals is not None:
        found.append(ResidualTables(rows.residuals))
    return tuple(found)


def compute_statistics(
    rows: ProblemRows, statistics: Sequence[CellStatistic], margin: Array
) -> CellStatistics:
    """Compute statistics at scores whose probabilities `rows` hold, in one pass over the rows."""
    tables = [statistic.begin(margin) for statistic in statistics]

    def sum_block(block: slice) -> list[Float | None]:
        of_block = margin[block]
        return [statistic.sum_block(of_block, block) for statistic in statistics]

    for parts_of_block in rows.sum_blocks(sum_block):
        for sums, part in zip(tables, parts_of_block, strict=True):
            if part is not None:
                sums += part
    total = rows.reduce_sum(np.concatenate([sums.ravel() for sums in tables]))
    parts = np.split(total, np.cumsum([sums.size for sums in tables])[:-1])
    values: dict[str, Float] = {}
    for statistic, sums, part in zip(statistics, tables, parts, strict=True):
        values |= statistic.values(part.reshape(sums.shape))
    return CellStatistics(**values)
