"""Values and intervals of constraints at the returned decisions, on held-out rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.decision.evaluation_set import UNKNOWN, Estimate, EvaluationSet
from gbm_constrained.decision.rule import Scores
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.residual_rows import find_probabilities
from gbm_constrained.statistics.between_folds import (
    estimate_between_fold_deviation,
    prediction_intervals,
)
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.sampled_intervals import Sampled, ScoredDecisions


@dataclass(frozen=True)
class Outcome:
    """Values of the constraints on held-out rows, at the returned decisions."""

    functionals: Float
    # Intervals of what the constraints bound, NaN where there is none. Those on cross-fitted rows
    # are of one more booster, but for values of scores (statistics.between_folds).
    intervals: Float
    of_functionals: Float  # Intervals of the functionals.
    sources: NDArray[np.object_]  # Name of the rows that each constraint is measured on.
    sampled: Sampled
    accuracy: Estimate = UNKNOWN
    # Whether the boosters of the folds differ by more than chance on each constraint.
    is_unsteady: Bool = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def of(cls, rows: EvaluationSet, scores: Scores, decisions: Codes | None = None) -> Outcome:
        """Measure the decisions, the mean losses and the pair rates of scores.

        The scores have one shift on all folds, by which boosters are compared. Rates are taken of
        the `decisions`, such as cross-fitted ones, and of those of the scores by default.
        """
        by_one_shift = rows.decisions(scores.for_decisions)
        decisions = by_one_shift if decisions is None else decisions
        counts, compiled, folds = rows.counts(decisions), rows.compiled, rows.folds
        functionals = rows.functionals(scores.for_probabilities, counts)
        scored = score_decisions(rows.lagrangian, compiled, scores, decisions)
        sampled = Sampled.of(compiled, counts).complete(rows.cells, compiled, functionals, scored)
        differ = estimate_between_fold_deviation(
            compiled, rows.cells, folds, by_one_shift, decisions
        )
        values, n = compiled.values(functionals), len(folds)
        return cls(
            functionals,
            prediction_intervals(
                sampled.constraints, values, differ.constraints, n, compiled.ranges
            ),
            prediction_intervals(
                sampled.functionals, functionals, differ.rates, n, compiled.ranges_of_rates
            ),
            _sources(rows),
            sampled,
            rows.accuracy(counts),
            differ.is_beyond_chance,
        )

    @classmethod
    def of_counts(cls, compiled: LinearConstraints, counts: CellCounts, source: str) -> Outcome:
        """Measure counted decisions, which may be those of a randomised classifier.

        The rate of a mean varies no more than a binomial one, so that its intervals are
        conservative.
        """
        sampled = Sampled.of(compiled, counts)
        sources = np.full(len(compiled.constraints), source, dtype=object)
        return cls(functionals_of(compiled, counts), *sampled, sources, sampled)

    @classmethod
    def of_mean(cls, rows: EvaluationSet, rounds: int, counts: CellCounts) -> Outcome:
        """Measure the mean over several models, whose mean functionals are stored under `rounds`.

        `counts` are the mean of the models' decisions. The rate of a mean varies no more than a
        binomial one, so that the intervals of rates are conservative. Mean losses and pair rates
        have none.
        """
        compiled = rows.compiled
        sampled = Sampled.of(compiled, counts)
        return cls(rows.functionals_in[rounds], *sampled, _sources(rows), sampled)

    def complete_by(self, other: Outcome, compiled: LinearConstraints) -> Outcome:
        """Take constraints that these rows measure incompletely from other rows."""
        is_incomplete, of_these = self._find_incomplete(other.functionals, compiled)
        return replace(
            self,
            functionals=np.where(of_these, other.functionals, self.functionals),
            intervals=np.where(is_incomplete[:, None], other.intervals, self.intervals),
            of_functionals=np.where(of_these[:, None], other.of_functionals, self.of_functionals),
            sources=np.where(is_incomplete, other.sources, self.sources),
        )

    def leave_out_incomplete(self, training: Float, compiled: LinearConstraints) -> Outcome:
        """Leave out constraints that these rows measure less completely than training rows do."""
        is_incomplete, of_these = self._find_incomplete(training, compiled)
        return replace(
            self,
            functionals=np.where(of_these, np.nan, self.functionals),
            intervals=np.where(is_incomplete[:, None], np.nan, self.intervals),
            of_functionals=np.where(of_these[:, None], np.nan, self.of_functionals),
        )

    def _find_incomplete(self, there: Float, compiled: LinearConstraints) -> tuple[Bool, Bool]:
        """Find constraints that other rows measure more completely, and their functionals."""
        is_incomplete = find_incomplete(compiled, self.functionals, there)
        of_these = np.zeros(self.functionals.size, dtype=bool)
        for span in itertools.compress(compiled.spans, is_incomplete):
            of_these[span] = True
        return is_incomplete, of_these


def score_decisions(
    lagrangian: Lagrangian, compiled: LinearConstraints, scores: Scores, decisions: Codes
) -> ScoredDecisions:
    """Collect what constraints on scores need beside decisions."""
    margin = scores.for_probabilities
    return ScoredDecisions(
        decisions,
        lagrangian.at(margin).losses() if compiled.V.nnz else None,
        margin if compiled.Q.nnz else None,
        find_probabilities(margin) if compiled.S.nnz else None,
    )


def find_incomplete(compiled: LinearConstraints, here: Float, there: Float) -> Bool:
    """Find the constraints that rows measure less completely than other rows do.

    Such constraints have no value on these rows, or compare groups that are not all there. `here`
    and `there` are the functionals on both, NaN for groups without rows.
    """
    lacking, lacking_there = (
        np.array([np.isnan(f[span]).any() for span in compiled.spans], dtype=bool)
        for f in (here, there)
    )
    has_none, has_none_there = (np.isnan(compiled.values(f)) for f in (here, there))
    return np.asarray((has_none | (lacking & ~lacking_there)) & ~has_none_there)


def _sources(rows: EvaluationSet) -> NDArray[np.object_]:
    return np.full(len(rows.compiled.constraints), rows.source, dtype=object)
