"""What is known of the returned model, from the rows that may say so."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.decision.evaluation_set import UNKNOWN, Estimate, UnseenRows
from gbm_constrained.decision.rule import Scores
from gbm_constrained.problem.linear_constraints import CompiledConstraints
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
    rules : ndarray of shape (n_constraints, 2)
        Of what the constraints bound.
    rates : ndarray of shape (n_functionals, 2)
        Of the rates that they are made of.
    """

    rules: Float
    rates: Float


@dataclass(frozen=True)
class Outcome:
    """What the rules are worth on unseen rows, at the returned decisions.

    Parameters
    ----------
    functionals : ndarray of shape (n_functionals,)
        Rates.
    intervals : ndarray of shape (n_constraints, 2)
        Of what the constraints bound; NaN where there is none. Of cross-fitted rows those of one
        more booster, but for mean losses; see :mod:`gbm_constrained.statistics.between_folds`.
    of_functionals : ndarray of shape (n_functionals, 2)
        Of the rates.
    sources : ndarray of str, shape (n_constraints,)
        The rows, for each constraint.
    sampled : Sampled
        The intervals without what differs from booster to booster.
    accuracy : Estimate
        Fraction of these rows decided rightly.
    unsteady : ndarray of shape (n_constraints,), bool
        Whether the boosters differ by more than chance.
    """

    functionals: Float
    intervals: Float
    of_functionals: Float
    sources: NDArray[np.object_]
    sampled: Sampled
    accuracy: Estimate = UNKNOWN
    unsteady: Bool = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def of(
        cls,
        rows: UnseenRows,
        scores: Scores,
        decisions: Codes | None = None,
    ) -> Outcome:
        """Measure the decisions and the mean losses of scores.

        Parameters
        ----------
        rows : UnseenRows
            The rows.
        scores : Scores
            Of these rows, by one shift on all folds: boosters are compared by it.
        decisions : ndarray of int, default=None
            What rates are of, if not of decisions by these scores: those of cross-fitted rows by
            shifts of their own.
        """
        alike = rows.decisions(scores.deciding)
        decisions = alike if decisions is None else decisions
        counts, compiled, folds = rows.counts(decisions), rows.compiled, rows.folds
        functionals = rows.functionals(scores.telling, counts)
        sampled = Sampled(
            constraint_intervals(compiled, counts), functional_intervals(compiled, counts)
        )
        if compiled.V.nnz:
            loss = rows.lagrangian.at(scores.telling).losses()
            of_losses = LossIntervals(rows.cells, compiled, decisions, loss)
            sampled = Sampled(*of_losses.complete(functionals, *sampled))
        differ = estimate_between_fold_deviation(compiled, rows.cells, folds, alike, decisions)
        values, n = compiled.values(functionals), len(folds)
        return cls(
            functionals,
            prediction_intervals(sampled.rules, values, differ.rules, n, compiled.ranges),
            prediction_intervals(
                sampled.rates, functionals, differ.rates, n, compiled.ranges_of_rates
            ),
            _sources(rows),
            sampled,
            rows.accuracy(counts),
            differ.beyond_chance,
        )

    @classmethod
    def of_mean(cls, rows: UnseenRows, rounds: int, counts: CellCounts) -> Outcome:
        """Take the rates of a mean over models.

        Parameters
        ----------
        rows : UnseenRows
            The rows, whose mean rates are known.
        rounds : int
            The rounds that these are known for.
        counts : CellCounts
            The mean of the models' decisions. The rate of a mean varies no more than a binomial
            one, so that the intervals of rates are conservative.
        """
        compiled = rows.compiled
        sampled = Sampled(
            constraint_intervals(compiled, counts), functional_intervals(compiled, counts)
        )
        return cls(rows.functionals_in[rounds], *sampled, _sources(rows), sampled)

    def completed_by(self, other: Outcome, compiled: CompiledConstraints) -> Outcome:
        """Tell of the constraints that other rows tell better by those.

        Parameters
        ----------
        other : Outcome
            Of rows where some of them may have one.
        compiled : CompiledConstraints
            The constraints, which say whose a functional is.

        Returns
        -------
        Outcome
            The accuracy is that of these rows.
        """
        untold = told_elsewhere(compiled, self.functionals, other.functionals)
        of_these = np.zeros(self.functionals.size, dtype=bool)
        for span in itertools.compress(compiled.spans, untold):
            of_these[span] = True
        return replace(
            self,
            functionals=np.where(of_these, other.functionals, self.functionals),
            intervals=np.where(untold[:, None], other.intervals, self.intervals),
            of_functionals=np.where(of_these[:, None], other.of_functionals, self.of_functionals),
            sources=np.where(untold, other.sources, self.sources),
        )


def told_elsewhere(compiled: CompiledConstraints, here: Float, there: Float) -> Bool:
    """Find the constraints that rows do not tell of as wholly as other rows do.

    Those that have no value there, and comparisons of which a group is missing.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    here, there : ndarray of shape (n_functionals,)
        Their functionals on these rows and on the others; NaN of groups without rows.

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


def _sources(rows: UnseenRows) -> NDArray[np.object_]:
    return np.full(len(rows.compiled.constraints), rows.source, dtype=object)
