"""Values and intervals of all constraints on the decisions of some rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.data.exact_sums import sum_over_machines
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pair_rows import PairRows
from gbm_constrained.problem.residual_rows import ResidualRows
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.sampled_intervals import Sampled, ScoredDecisions


@dataclass(frozen=True, eq=False)
class MeasuredRows:
    """Values and intervals of what constraints bound, and of their functionals.

    Parameters
    ----------
    counts : CellCounts
        Counts of the decisions.
    functionals : ndarray of shape (n_functionals,)
        Rates, mean losses, pair rates and mean residuals.
    values : ndarray of shape (n_constraints,)
        What the constraints bound.
    sampled : Sampled
        Intervals of both.
    """

    counts: CellCounts
    functionals: Float
    values: Float
    sampled: Sampled

    @classmethod
    def of(
        cls, cells: Cells, compiled: LinearConstraints, scored: ScoredDecisions, level: float
    ) -> MeasuredRows:
        """Measure decisions, and losses and scores of rows where constraints need them."""
        counts, loss = CellCounts.of(cells, scored.decided), scored.loss
        weight, mean_loss = cells.rows.weight, np.zeros(len(cells))
        pairs = residuals = None
        if loss is not None:
            weighted = loss if weight is None else loss * weight
            (total,) = sum_over_machines(cells.total, [weighted], cells.communicator)
            np.divide(total, cells.weight, out=mean_loss, where=cells.weight > 0)
        if scored.margin is not None:
            rows = PairRows(compiled, cells, weight, float(cells.weight.sum()))
            pairs = rows.tables(scored.margin)
        if scored.probability is not None:
            of_bins = ResidualRows(compiled, cells, weight, float(cells.weight.sum()))
            residuals = of_bins.tables(scored.probability)
        statistics = CellStatistics(counts.shares, mean_loss, mean_loss, pairs, residuals)
        functionals = compiled.functionals(statistics)
        sampled = Sampled.of(compiled, counts, level)
        sampled = sampled.complete(cells, compiled, functionals, scored, level)
        return cls(counts, functionals, compiled.values(functionals), sampled)
