"""Values and intervals of constraints at the returned decisions, on held-out rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.decision.evaluation_set import UNKNOWN, Estimate, EvaluationSet
from gbm_constrained.decision.rule import Scores
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.between_folds import (
    estimate_between_fold_deviation,
    prediction_intervals,
)
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.intervals import constraint_intervals, functional_intervals
from gbm_constrained.statistics.loss_intervals import LossIntervals


class Sampled(NamedTuple):
    """Intervals by the sampling of rows alone.

    Parameters
    ----------
    constraints : ndarray of shape (n_constraints, 2)
        Intervals of what the constraints bound.
    functionals : ndarray of shape (n_functionals, 2)
        Intervals of the functionals that constraints are made of.
    """

    constraints: Float
    functionals: Float


@dataclass(frozen=True)
class Outcome:
    """Values of the constraints on held-out rows, at the returned decisions.

    Parameters
    ----------
    functionals : ndarray of shape (n_functionals,)
        Values of the functionals.
    intervals : ndarray of shape (n_constraints, 2)
        Intervals of what the constraints bound; NaN where there is none. Intervals on cross-fitted
        rows are those of one more booster, but for mean losses; see
        :mod:`gbm_constrained.statistics.between_folds`.
    of_functionals : ndarray of shape (n_functionals, 2)
        Intervals of the functionals.
    sources : ndarray of str, shape (n_constraints,)
        Name of the rows that each constraint is measured on.
    sampled : Sampled
        Intervals by the sampling of rows alone.
    accuracy : Estimate
        Share of the rows decided rightly.
    is_unsteady : ndarray of shape (n_constraints,), bool
        Whether the boosters of the folds differ by more than chance.
    """

    functionals: Float
    intervals: Float
    of_functionals: Float
    sources: NDArray[np.object_]
    sampled: Sampled
    accuracy: Estimate = UNKNOWN
    is_unsteady: Bool = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def of(
        cls,
        rows: EvaluationSet,
        scores: Scores,
        decisions: Codes | None = None,
    ) -> Outcome:
        """Measure the decisions and the mean losses of scores.

        Parameters
        ----------
        rows : EvaluationSet
            The rows.
        scores : Scores
            Scores of the rows, with one shift on all folds, by which boosters are compared.
        decisions : ndarray of int, default=None
            Decisions that rates are taken of, such as cross-fitted ones; those of the scores by
            default.
        """
        by_one_shift = rows.decisions(scores.for_decisions)
        decisions = by_one_shift if decisions is None else decisions
        counts, compiled, folds = rows.counts(decisions), rows.compiled, rows.folds
        functionals = rows.functionals(scores.for_probabilities, counts)
        sampled = Sampled(
            constraint_intervals(compiled, counts), functional_intervals(compiled, counts)
        )
        if compiled.V.nnz:
            loss = rows.lagrangian.at(scores.for_probabilities).losses()
            of_losses = LossIntervals(rows.cells, compiled, decisions, loss)
            sampled = Sampled(*of_losses.complete(functionals, *sampled))
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
    def of_mean(cls, rows: EvaluationSet, rounds: int, counts: CellCounts) -> Outcome:
        """Measure the mean over several models.

        Parameters
        ----------
        rows : EvaluationSet
            The rows, whose mean rates are known.
        rounds : int
            Rounds under which the mean rates are stored.
        counts : CellCounts
            The mean of the models' decisions. The rate of a mean varies no more than a binomial
            one, so that the intervals of rates are conservative.
        """
        compiled = rows.compiled
        sampled = Sampled(
            constraint_intervals(compiled, counts), functional_intervals(compiled, counts)
        )
        return cls(rows.functionals_in[rounds], *sampled, _sources(rows), sampled)

    def complete_by(self, other: Outcome, compiled: LinearConstraints) -> Outcome:
        """Take constraints that these rows measure incompletely from other rows.

        Parameters
        ----------
        other : Outcome
            Values on the other rows.
        compiled : LinearConstraints
            The constraints.

        Returns
        -------
        Outcome
            The accuracy is that of these rows.
        """
        is_incomplete = find_incomplete(compiled, self.functionals, other.functionals)
        of_these = np.zeros(self.functionals.size, dtype=bool)
        for span in itertools.compress(compiled.spans, is_incomplete):
            of_these[span] = True
        return replace(
            self,
            functionals=np.where(of_these, other.functionals, self.functionals),
            intervals=np.where(is_incomplete[:, None], other.intervals, self.intervals),
            of_functionals=np.where(of_these[:, None], other.of_functionals, self.of_functionals),
            sources=np.where(is_incomplete, other.sources, self.sources),
        )


def find_incomplete(compiled: LinearConstraints, here: Float, there: Float) -> Bool:
    """Find the constraints that rows measure less completely than other rows do.

    These are constraints without a value there, and comparisons of which a group is missing.

    Parameters
    ----------
    compiled : LinearConstraints
        The constraints.
    here, there : ndarray of shape (n_functionals,)
        Functionals on these rows and on the others; NaN of groups without rows.

    Returns
    -------
    ndarray of shape (n_constraints,), bool
    """
    lacking, lacking_there = (
        np.array([np.isnan(f[span]).any() for span in compiled.spans], dtype=bool)
        for f in (here, there)
    )
    has_none, has_none_there = (np.isnan(compiled.values(f)) for f in (here, there))
    return np.asarray((has_none | (lacking & ~lacking_there)) & ~has_none_there)


def _sources(rows: EvaluationSet) -> NDArray[np.object_]:
    return np.full(len(rows.compiled.constraints), rows.source, dtype=object)
