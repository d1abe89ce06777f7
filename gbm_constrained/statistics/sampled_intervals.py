"""Intervals of all constraints by the sampling of rows: of decisions and of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.intervals import (
    CalibrationIntervals,
    MeanIntervals,
    SampledIntervals,
    constraint_intervals,
    functional_intervals,
)
from gbm_constrained.statistics.pairs import PairIntervals


@dataclass(frozen=True, eq=False)
class ScoredDecisions:
    """Decisions of rows with what constraints on scores need.

    Parameters
    ----------
    decided : ndarray of int, shape (n_samples,)
        Class index that each row is decided for.
    loss : ndarray of shape (n_samples,), default=None
        Cross-entropy of each row, in nats; None without constraints on losses.
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes), default=None
        Scores of the rows; None without constraints on pair rates.
    probability : ndarray of shape (n_samples,), default=None
        Probabilities of the positive class; None without constraints on calibration errors.
    """

    decided: Codes
    loss: Float | None = None
    margin: Array | None = None
    probability: Float | None = None

    def take(self, index: Codes) -> ScoredDecisions:
        """Take the decisions of some rows."""
        scored = (
            None if of_rows is None else of_rows[index]
            for of_rows in (self.loss, self.margin, self.probability)
        )
        return ScoredDecisions(self.decided[index], *scored)


class Sampled(NamedTuple):
    """Intervals by the sampling of rows alone."""

    constraints: Float  # Intervals of what the constraints bound, (n_constraints, 2).
    functionals: Float  # Intervals of the functionals, (n_functionals, 2).

    @classmethod
    def of(cls, compiled: LinearConstraints, counts: CellCounts, level: float = 0.95) -> Sampled:
        """Compute the intervals of counted decisions; NaN for what counts do not tell.

        These are mean losses, pair rates, calibration errors and costs in amounts.
        """
        constraints = constraint_intervals(compiled, counts, level)
        functionals = functional_intervals(compiled, counts, level)
        for j, constraint in enumerate(compiled.constraints):
            if constraint.has_costs_of_amounts:
                constraints[j], functionals[compiled.spans[j]] = np.nan, np.nan
        return cls(constraints, functionals)

    def complete(
        self,
        cells: Cells,
        compiled: LinearConstraints,
        functionals: Float,
        scored: ScoredDecisions,
        level: float = 0.95,
    ) -> Sampled:
        """Fill in the intervals of all that counts do not tell."""
        kinds: list[SampledIntervals] = []
        if scored.loss is not None or any(c.has_costs_of_amounts for c in compiled.constraints):
            kinds.append(MeanIntervals(cells, compiled, scored.decided, scored.loss))
        if scored.margin is not None:
            kinds.append(PairIntervals(cells, compiled, scored.margin))
        if scored.probability is not None:
            kinds.append(CalibrationIntervals(cells, compiled, scored.probability))
        found = self
        for kind in kinds:
            found = Sampled(*kind.complete(functionals, *found, level))
        return found
