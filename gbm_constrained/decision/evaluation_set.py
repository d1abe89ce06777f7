"""Held-out rows, the values of constraints on them, and the outcome of a fit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.histograms import ThresholdCandidates, list_thresholds
from gbm_constrained.decision.rules import Choice, Margins, Scores
from gbm_constrained.decision.violations import restate_ratios
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pairs import pair_table
from gbm_constrained.problem.rows import find_probabilities
from gbm_constrained.statistics.binomial import clopper_pearson
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.influence import (
    estimate_between_fold_deviation,
    prediction_intervals,
)
from gbm_constrained.statistics.sampled_intervals import Sampled, ScoredDecisions


class Estimate(NamedTuple):
    """A value on a sample of rows, and the interval for its value on all such rows.

    Parameters
    ----------
    value, low, high : float
        The value, and the ends of the interval.
    """

    value: float
    low: float
    high: float

    def __float__(self) -> float:
        """The value alone, as ``float(estimator.unseen_accuracy_)`` asks for."""  # noqa: D401
        return float(self.value)


UNKNOWN = Estimate(np.nan, np.nan, np.nan)


class PlainModel(NamedTuple):
    """The library's own model, as rows that it has not seen measure it.

    Parameters
    ----------
    objective : float
        The 0-1 error of a classifier, or the mean loss of a regressor.
    values : ndarray of shape (n_constraints,)
        Value of each constraint.
    """

    objective: float
    values: Float


class EvaluationSet:
    """Rows that the trees have not seen, and the values of constraints there.

    `source` names the rows in reports. `folds` are the positions of the parts that different
    boosters score. `functionals_in` holds the functionals by rounds measured, and `choices` the
    prefixes that a choice has searched, at their best shift. With `holds_groups` every group acts
    in full, as a certificate needs. The Lagrangian is that of classification by default.
    """

    half: Float | None = None  # Rows at which a group counts as much as all; by default known.
    room: Float | None = None  # What choices take off the right-hand sides, (m,).

    def __init__(
        self,
        cells: Cells,
        compiled: LinearConstraints,
        source: str,
        folds: Sequence[Codes] = (),
        *,
        holds_groups: bool = False,
        lagrangian: Lagrangian | None = None,
    ) -> None:
        self.holds_groups = holds_groups
        self.cells, self.compiled, self.source, self.folds = cells, compiled, source, folds
        rows = cells.rows
        if lagrangian is None:
            lagrangian = Lagrangian(rows.y, cells, compiled, weight=rows.weight)
        self.lagrangian = lagrangian
        self.functionals_in: dict[int, Float] = {}
        self.choices: dict[int, Choice] = {}

    @property
    def credible(self) -> Self:
        """The same rows under constraints as they act: groups as far as their rows can tell."""
        return self._apart or self

    @cached_property
    def _apart(self) -> Self | None:
        """The credible rows, or None if they are these: a cycle would outlive its last reader."""
        if self.holds_groups:
            return None
        compiled = self.compiled.make_credible(self.cells, self.half).leave_room(self.room)
        return None if compiled is self.compiled else self.under(compiled)

    def under(self, compiled: LinearConstraints) -> Self:
        """Return the same rows under other constraints on them."""
        return type(self)(self.cells, compiled, self.source, self.folds)

    def with_bounds(self, bounds: Float) -> Self:
        """Return the same rows with other right-hand sides of the constraints, (m,)."""
        return self.under(replace(self.compiled, b=bounds))

    def measure(self, rounds: int, margin: Array) -> None:
        """Measure the rates at the scores that the rows have after some rounds."""
        statistics = self.lagrangian.at(margin).statistics(is_exact=True)
        self.functionals_in[rounds] = self.compiled.functionals(statistics)

    def values(self, rounds: int) -> Float:
        """Return the value of each constraint after some rounds."""
        return self.compiled.values(self.functionals_after(rounds))

    def functionals_after(self, rounds: int) -> Float:
        """Return the value of each functional after some rounds; NaN if not measured."""
        unknown = np.full(self.compiled.constant.size, np.nan)
        return self.functionals_in.get(rounds, unknown)

    def find_best_constant(self, kept: Bool) -> tuple[int | None, float]:
        """Find the class and error of the best decision for all rows; None and NaN without any.

        It has to meet the rows of constraints that are `kept`, shape (m,).
        """
        best, fewest = None, np.nan
        for k in range(self.cells.classes.size):
            decided = np.full(len(self.cells.rows), k, dtype=np.intp)
            functionals = functionals_of(self.compiled, self.counts(decided))
            left = self.compiled.rows_of(np.nan_to_num(functionals))
            error = self.error(decided)
            if (left <= self.compiled.b + ROUNDING)[kept].all() and not error >= fewest:
                best, fewest = k, error
        return best, fewest

    def functionals(self, margin: Array, counts: CellCounts | None = None) -> Float:
        """Compute each functional: rates from counts of decisions, others from scores.

        The decisions are those of the scores by default.
        """
        compiled = self.compiled
        counts = self.counts(self.decisions(margin)) if counts is None else counts
        functionals = functionals_of(compiled, counts)
        if compiled.is_of_scores.any():
            statistics = self.lagrangian.at(margin).statistics(is_exact=True)
            statistics = replace(statistics, predicted=counts.shares)
            from_scores = compiled.functionals(statistics)
            weight = self.cells.weight
            if compiled.V.nnz and not np.allclose(weight, self.cells.whole_weight):
                own = compiled.weigh_losses(weight)  # Labels have other shares in other rows.
                from_scores = from_scores + (own - compiled.V) @ statistics.clipped_loss
            functionals = np.where(compiled.is_of_scores, from_scores, functionals)
        return functionals

    def counts(self, decisions: Codes) -> CellCounts:
        """Count decisions on these rows."""
        return CellCounts.of(self.cells, decisions)

    def decisions(self, margin: Array) -> Codes:
        """Decide the class index of each row by its scores."""
        return np.asarray(self.lagrangian.kernel.predict(margin)).astype(np.intp)

    def violations(self, margin: Array, counts: CellCounts | None = None) -> Float:
        """Compute left-hand minus right-hand side of each row of constraints."""
        functionals = np.nan_to_num(self.functionals(margin, counts))
        return self.compiled.rows_of(functionals) - self.compiled.b

    def violations_as_stated(self, margin: Array, counts: CellCounts | None = None) -> Float:
        """Compute violations, (m,), of which those of ratios are in units of the ratio."""
        functionals = np.nan_to_num(self.functionals(margin, counts))
        violations = self.compiled.rows_of(functionals) - self.compiled.b
        return restate_ratios(self.compiled, self.cells, violations, functionals)

    def error(self, decisions: Codes) -> float:
        """Compute the share of the labelled rows of the objective that is decided wrongly.

        Rows have the weights of the objective, those of rows times those of classes.
        """
        of_class = self.cells.class_weight[self.cells.labels][:, None]
        right, total = self._sum_right(self.counts(decisions).weight * of_class)
        return 1.0 - right / total if total > 0 else np.nan

    def auc(self, margin: Array, table: ThresholdCandidates | None = None) -> float:
        """Compute the AUC of the labelled rows of the objective, of two classes.

        Where machines hold different rows, scores in the same bin of a histogram count as ties.
        That of a search of these scores may be given.
        """
        table = list_thresholds(margin, self.cells) if table is None else table
        cells, margin = table.cells, table.scores
        rows, inside = cells.rows, cells.labelled[cells.codes]
        weight = None if rows.weight is None else rows.weight[inside]
        return float(pair_table(margin[inside], rows.y[inside], weight, 2)[1, 0])

    def accuracy(self, counts: CellCounts) -> Estimate:
        """Estimate the share of the labelled rows of the objective that is decided rightly.

        The interval is Clopper and Pearson's at level 0.95, on the effective number of rows.
        """
        right, total = self._sum_right(counts.weight)
        if not total > 0:
            return UNKNOWN
        share, n = right / total, total**2 / counts.square[self.cells.labelled].sum()
        low, high = clopper_pearson(n * share, n)
        return Estimate(share, float(low), float(high))

    def _sum_right(self, weight: Float) -> tuple[float, float]:
        """Sum the weight that is decided rightly, and all weight, of rows with a label."""
        inside = self.cells.labelled
        of_labels = weight[inside]
        right = of_labels[np.arange(len(of_labels)), self.cells.labels[inside]].sum()
        return float(right), float(of_labels.sum())


@dataclass(frozen=True)
class ScoredRows:
    """Held-out rows, and their scores under each prefix of an ensemble."""

    rows: EvaluationSet
    margins: Margins


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
            np.full(values.size, rows.source, dtype=object),
            sampled,
            rows.accuracy(counts),
            differ.is_beyond_chance,
        )

    @classmethod
    def of_counts(cls, compiled: LinearConstraints, counts: CellCounts, source: str) -> Outcome:
        """Measure counted decisions, which may be those of a randomised classifier.

        The rate of a mean, such as one over several models, varies no more than a binomial one, so
        that its intervals are conservative.
        """
        sampled = Sampled.of(compiled, counts)
        sources = np.full(len(compiled.constraints), source, dtype=object)
        return cls(functionals_of(compiled, counts), *sampled, sources, sampled)

    def complete_by(self, other: Outcome, compiled: LinearConstraints) -> Outcome:
        """Take constraints that these rows measure incompletely from other rows."""
        return self.leave_out_incomplete(other.functionals, compiled, other)

    def leave_out_incomplete(
        self, there: Float, compiled: LinearConstraints, other: Outcome | None = None
    ) -> Outcome:
        """Leave out constraints that these rows measure less completely than others, or take them.

        `there` are the functionals of the others, which are training rows or those of `other`.
        """
        is_incomplete = find_incomplete(compiled, self.functionals, there)
        of_these = np.zeros(self.functionals.size, dtype=bool)
        for span in itertools.compress(compiled.spans, is_incomplete):
            of_these[span] = True

        def take(name: str, where: Bool) -> Any:
            own = getattr(self, name)
            others = np.nan if other is None else getattr(other, name)
            return np.where(where[:, None] if own.ndim > 1 else where, others, own)

        return replace(
            self,
            functionals=take("functionals", of_these),
            intervals=take("intervals", is_incomplete),
            of_functionals=take("of_functionals", of_these),
            sources=self.sources if other is None else take("sources", is_incomplete),
        )


def score_decisions(
    lagrangian: Lagrangian, compiled: LinearConstraints, scores: Scores, decisions: Codes
) -> ScoredDecisions:
    """Collect what constraints on scores need beside decisions."""
    margin = scores.for_probabilities
    return ScoredDecisions(
        decisions,
        lagrangian.at(margin).losses() if compiled.V.nnz else None,
        margin if compiled.tables["pairs"].nnz else None,
        find_probabilities(margin) if compiled.tables["residuals"].nnz else None,
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
