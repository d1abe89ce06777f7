"""What is made of a trained booster: the model that is returned, and what is reported of it."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy.stats import norm

from gbm_constrained._messages import level_of_the_user
from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.decision.evaluation_set import UNKNOWN, UnseenRows
from gbm_constrained.decision.guarantee_checks import expected
from gbm_constrained.decision.guarantees import certify, hold_in_the_mean
from gbm_constrained.decision.mixtures import best_prefix, last_prefix, prefix_mixture
from gbm_constrained.decision.outcome import Outcome, told_elsewhere
from gbm_constrained.decision.prefix_choice import choose, choose_with_room, standard_errors
from gbm_constrained.decision.refit_transfer import match_positive_rate, rows_to_match
from gbm_constrained.decision.rule import MET, Choice, Scores, shifted
from gbm_constrained.evaluation.assessment import judge
from gbm_constrained.evaluation.feasibility import Feasibility, RuleReached
from gbm_constrained.evaluation.report_tables import (
    groups_frame,
    history_frame,
    rules_frame,
    small_groups_frame,
)
from gbm_constrained.evaluation.sample_size import TooFewRows, find_too_few_rows
from gbm_constrained.evaluation.verdicts import (
    TRAINING_ROWS,
    Verdict,
    rows_of_constraint,
    rows_of_smallest_group,
)
from gbm_constrained.exceptions import InfeasibleConstraintsWarning
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.base import Record
from gbm_constrained.statistics.between_folds import (
    broken_in_training,
    of_predictions,
    values_by_training,
)
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.intervals import constraint_intervals, functional_intervals
from gbm_constrained.statistics.loss_intervals import LossIntervals
from gbm_constrained.training.fit import ConstrainedFit

MIXED = 1e-6  # Violation by a mixture of prefixes that the linear programme leaves.
CHANCE = 0.025  # Probability below which a violation is none, on each side of a gap.
# What a constrained fit leaves on an estimator.
FITTED_ATTRIBUTES = (
    "constraint_report_", "group_report_", "history_", "multipliers_", "prefixes_",
    "shift_", "unseen_accuracy_", "feasibility_", "small_groups_", "stopping_message_",
    "_threshold",
)  # fmt: skip


class Trained(Protocol):
    """A booster that the library has trained, as far as its constrained fit looks into it.

    Rounds are those of this fit, without the rounds of a model that was continued.
    """

    def margin(self, rounds: int) -> Array:
        """Scores of the training rows after some rounds."""

    def held_margin(self, rows: UnseenRows, rounds: int) -> Array:
        """Scores of an evaluation set, or of rows kept for certificates, after some rounds."""

    def cut(self, rounds: int) -> None:
        """Keep the first rounds."""

    def shift(self, shift: Float) -> None:
        """Add to all scores."""


def forget(estimator: Any) -> None:
    """Remove from an estimator what an earlier constrained fit left on it."""
    for name in FITTED_ATTRIBUTES:
        estimator.__dict__.pop(name, None)


class Conclusion:
    """What a constrained fit comes to: the model returned, what is known of it, the reports.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, whose booster is trained.

    Attributes
    ----------
    choice : Choice or None
        Prefix and shift, where unseen rows chose them.
    outcome : Outcome or None
        What the rules are worth on unseen rows.
    feasibility : Feasibility or None
        Whether they can be met.
    multipliers : ndarray of shape (m,)
        Those under which the model was trained last.
    """

    def __init__(self, fit: ConstrainedFit) -> None:
        self.fit = fit
        self.choice: Choice | None = None
        self.outcome: Outcome | None = None
        self.feasibility: Feasibility | None = None
        self._mixed = np.zeros(len(fit.driven))  # violations by a mixture of prefixes
        self._too_few_rows: list[TooFewRows] = []  # of an evaluation set, or the training rows
        self._mean_counts: Callable[[UnseenRows | None], CellCounts]  # of a randomised classifier
        self._training_intervals = np.full((len(fit.reported.constraints), 2), np.nan)
        self._own_margin: Callable[[int], Array]
        self._final: Record
        self._functionals: Float
        self.multipliers: Float

    def conclude(
        self, estimator: Any, trained: Trained, rounds: int, margin: Array | None
    ) -> pd.DataFrame | None:
        """Choose what is returned of a trained booster, make it so, and describe it.

        Parameters
        ----------
        estimator : classifier
            Which is given the fitted attributes.
        trained : Trained
            Its booster.
        rounds : int
            Boosting rounds of the whole ensemble; fewer than were trained after early stopping.
        margin : ndarray, default=None
            Scores of the training rows under it, where they are known.

        Returns
        -------
        DataFrame or None
            Prefixes of a randomised classifier: rounds of this fit, and probability.
        """

        def held_margin(rows: UnseenRows, upto: int) -> Array:
            if rows is self.fit.unseen and self.fit.scouts is not None:
                return self.fit.scouts.held_margin(upto)
            return trained.held_margin(rows, upto)

        scored = {} if margin is None or self.fit.has_offset else {rounds: margin}

        def own_margin(upto: int) -> Array:
            if upto not in scored:
                scored[upto] = trained.margin(upto)
            return scored[upto]

        self._own_margin = own_margin
        choice = self.settle(rounds, held_margin, own_margin)
        kept, shift, prefixes = rounds, np.zeros(self.fit.columns), None
        if choice is not None:
            kept, shift = choice.rounds, choice.shift
            matched = self._matched(shift)
            if matched is not None:
                assert self.fit.scouts is not None
                shift = match_positive_rate(
                    self.fit.scouts.scores(kept),
                    shift,
                    own_margin(kept),
                    matched,
                    self.fit.rows.weight,
                )
        elif self.fit.options.iterate in ("best", "randomized") or self._swings(rounds):
            if self.fit.options.iterate == "randomized":
                prefixes = self.mixture(own_margin(rounds), rounds, held_margin)
            else:
                kept = self.prefix_rounds(own_margin(rounds), rounds)
        for held in self.fit.evaluation_sets:
            reports = held is self.fit.evaluation_sets[-1]
            if reports or kept not in held.functionals_in or shift.any():
                self.look_at(held, kept, self._scores(held_margin(held, kept), shift), prefixes)
        # Scoring all rows again takes as long as a fifth of a fit.
        unknown = (
            shift.any()
            or prefixes is not None
            or self._may_be_refuted
            or self._is_judged_by_training
        )
        seen = None if unknown else self._seen(kept)
        final = None if seen is not None else own_margin(kept)
        if kept != rounds:
            trained.cut(kept)
        estimator.shift_ = shift
        if shift.any() and self.fit.options.probabilities == "calibrated":
            estimator._threshold = shift
        elif shift.any():
            trained.shift(shift)
        if seen is not None:
            self._take(seen, seen.functionals)
        else:
            assert final is not None
            if prefixes is not None:
                self._mean_counts = functools.partial(
                    self._count_mean_decisions, prefixes, own_margin, held_margin
                )
            self.finish(self._scores(final, shift), kept, prefixes)
        self.describe(estimator)
        if self.fit.checkpoint is not None:
            self.fit.checkpoint.finish()
        return prefixes

    def complain(self) -> None:
        """Warn or raise where rules cannot be met."""
        if (self._mixed > MIXED).any():
            worst = int(self._mixed.argmax())
            warnings.warn(
                f"No mixture of this model's prefixes meets all rules: the one returned violates "
                f"{self.fit.driven.rows[worst]} by {self._mixed[worst]:.3g}. Relax the bounds, or "
                f"use iterate='last', which moves the threshold as well.",
                InfeasibleConstraintsWarning,
                stacklevel=level_of_the_user(),
            )
        if self.feasibility is not None:
            self.feasibility.complain(raises=self.fit.options.on_infeasible == "raise")

    def describe(self, estimator: Any, rounds: int | None = None) -> None:
        """Set the fitted attributes that tell of the constraints.

        Parameters
        ----------
        estimator : classifier
            Which is given them.
        rounds : int, default=None
            Boosting rounds that were trained; those of the solver by default.
        """
        self.feasibility = self._as_reported(self.fit.solver.rounds if rounds is None else rounds)
        outcome = None if self.outcome is None else self._laid_out(self.outcome)
        functionals = self._spread(self._functionals)
        verdicts = [rule.verdict for rule in self.feasibility.rules]
        estimator.constraint_report_ = rules_frame(
            self._layout, functionals, self.multipliers, outcome, verdicts
        )
        estimator.group_report_ = groups_frame(self._layout, functionals, outcome)
        estimator.small_groups_ = small_groups_frame(self.fit.reported)
        estimator.history_ = self._history()
        estimator.unseen_accuracy_ = UNKNOWN if self.outcome is None else self.outcome.accuracy
        estimator.feasibility_ = self.feasibility
        estimator.stopping_message_ = self.fit.announcer.message
        multipliers = pd.Series(self.multipliers, list(self.fit.reported.rows), name="multiplier")
        estimator.multipliers_ = multipliers.reindex(self.fit.reported.all_rows, fill_value=0.0)

    def settle(
        self,
        rounds: int,
        margins: Callable[[UnseenRows, int], Array],
        own_margin: Callable[[int], Array],
    ) -> Choice | None:
        """Choose the prefix and the shift of the model that is returned.

        Parameters
        ----------
        rounds : int
            Boosting rounds of the whole ensemble.
        margins : callable
            Scores of unseen rows after some rounds, of boosters that have not seen them.
        own_margin : callable
            Scores of the training rows after some rounds.

        Returns
        -------
        Choice or None
            None where nothing was measured on unseen rows, or an average is returned.
        """
        unseen, options = self.fit.unseen, self.fit.options
        if unseen is None or options.iterate in ("ergodic", "randomized"):
            return None
        R = options.rounds_per_iteration
        after = functools.cache(functools.partial(margins, unseen))
        choice = Choice(rounds, np.zeros(self.fit.columns), np.nan, 0.0)
        reported, margin = unseen, after(rounds)
        decisions = unseen.decisions(margin)
        among = options.iterate == "best"
        # Errors decide about a threshold only where a rule stands in the way of the model's own.
        at_rest = self.is_idle or not (among or self.fit.solver.multipliers.any())
        if not at_rest or unseen.violations(margin).max(initial=0.0) > MET:
            stray = functools.partial(self._stray, own_margin)
            choice = choose(
                unseen, after, rounds, R, among_prefixes=among, stray=stray, found=unseen.choices
            )
            margin = after(choice.rounds)
            choice, decisions = choose_with_room(unseen, margin, choice)
        scores, bounds = self._scores(margin, choice.shift), None
        if self.fit.fresh is not None:
            fresh = functools.cache(functools.partial(margins, self.fit.fresh))
            given = unseen, after, self.fit.fresh, fresh, choice
            if options.guarantee == "expected":
                choice = hold_in_the_mean(*given)
                bounds = expected(self.fit.fresh.compiled, self.fit.fresh.cells)
            else:
                choice = certify(*given, rounds, R, options.delta, among_prefixes=among)
            reported, scores = self.fit.fresh, self._scores(fresh(choice.rounds), choice.shift)
            decisions = self.fit.fresh.decisions(scores.deciding)
        outcome = Outcome.of(reported, scores, decisions)
        moved = choice.shift.any() or choice.rounds != rounds
        untouched = self.is_idle and not moved
        self.feasibility = judge(
            unseen,
            after,
            rounds,
            R,
            choice,
            reported,
            decisions,
            outcome,
            bounds,
            untouched,
            self.fit.plain_error,
        )
        self.choice, self.outcome = choice, outcome
        unseen.functionals_in[choice.rounds] = outcome.functionals
        return choice

    def finish(self, scores: Scores, rounds: int, prefixes: pd.DataFrame | None = None) -> None:
        """Take the scores of all rows under the model that is returned.

        Parameters
        ----------
        scores : Scores
            Of the training rows, and of further data sets.
        rounds : int
            Boosting rounds in that model; fewer than were trained after early stopping.
        prefixes : DataFrame, default=None
            Those of a randomised classifier, whose expected rates are then reported.
        """
        statistics = scores.statistics(self.fit.solver.lagrangian)
        in_full = replace(statistics, clipped_loss=statistics.loss)
        self._take(self._record(statistics, rounds), self.fit.reported.functionals(in_full))
        if prefixes is None:
            self._hold_against_training(statistics)
            if self._is_judged_by_training:
                self._measure_training_rows(scores, statistics)
            return
        records = {r.rounds: r for r in self._prefixes(statistics, rounds)}
        self._functionals = _expected({t: r.functionals for t, r in records.items()}, prefixes)
        errors = np.array([records[t].error for t in prefixes["rounds"]])
        error = float(prefixes["probability"].to_numpy() @ errors)
        self._final = replace(self._final, functionals=self._functionals, error=error)
        # Each once, also one that is watched: the mean takes the place of a value it is made of.
        for held in {*self.fit.evaluation_sets, *([self.fit.unseen] if self.fit.unseen else [])}:
            held.functionals_in[rounds] = _expected(held.functionals_in, prefixes)
        outcomes = [
            self._laid_out(Outcome.of_mean(held, rounds, self._mean_counts(held)))
            for held in self.reporting
        ]
        if outcomes:
            self.outcome = outcomes[0].completed_by(outcomes[-1], self._layout)
        if self._is_judged_by_training:
            self._judge_training_rows(self._mean_counts(None))

    def mixture(
        self, margin: Array, rounds: int, margins: Callable[[UnseenRows, int], Array]
    ) -> pd.DataFrame:
        """Choose the prefixes that a randomised classifier draws from: rounds and probability.

        Parameters
        ----------
        margin : ndarray
            Scores of the training rows under the whole ensemble.
        rounds : int
            Its boosting rounds.
        margins : callable
            Scores of unseen rows after some rounds. What is measured on such rows is chosen by
            them.
        """
        solver = self.fit.solver
        if self.fit.measurement is None:
            records = self._prefixes(self._statistics(margin), rounds)
        else:
            assert self.fit.unseen is not None
            solver = self.fit.measurement.solver
            records = self._unseen_prefixes(margins(self.fit.unseen, rounds), rounds)
        errors, violations = _outcomes(records)
        chosen, probability = prefix_mixture(errors, violations)
        asked = np.array([r.rates for r in records]) - solver.lagrangian.constraints.b
        if (probability @ violations[chosen] > MIXED).any():  # none is as far inside as aimed at
            chosen, probability = prefix_mixture(errors, asked)
        self._mixed = probability @ asked[chosen]
        return pd.DataFrame(
            {"rounds": [records[t].rounds for t in chosen], "probability": probability}
        )

    def prefix_rounds(self, margin: Array, rounds: int) -> int:
        """Boosting rounds of the prefix to keep among the first `rounds`, whose scores are given.

        The best one; or the last one, and where it violates the rules a late one that does less:
        driven on the rows they are measured on, rates swing about their bounds to the end.
        """
        records = self._prefixes(self._statistics(margin), rounds)
        errors, violations = _outcomes(records)
        best = self.fit.options.iterate == "best"
        return records[best_prefix(errors, violations) if best else last_prefix(violations)].rounds

    def look_at(
        self, held: UnseenRows, rounds: int, scores: Scores, prefixes: pd.DataFrame | None
    ) -> None:
        """Measure an evaluation set at the scores of the returned model."""
        # Rows that are watched report where nothing was chosen by them.
        untouched = self.fit.fresh is None and (held is not self.fit.unseen or self.choice is None)
        if untouched and prefixes is None and held is self.fit.evaluation_sets[-1]:
            outcome, driving = Outcome.of(held, scores), self.outcome
            self._too_few_rows = find_too_few_rows(
                held.cells,
                held.compiled,
                held.counts(held.decisions(scores.deciding)),
                outcome.functionals,
                outcome.sampled.rules,
                outcome.sampled.rates,
            )
            held.functionals_in[rounds] = outcome.functionals
            if driving is not None:
                outcome = outcome.completed_by(self._laid_out(driving), self._layout)
            self.outcome = outcome
        else:
            statistics = scores.statistics(held.lagrangian)
            held.functionals_in[rounds] = held.compiled.functionals(statistics)

    @property
    def is_idle(self) -> bool:
        """Whether no multiplier has ever been at work."""
        return not any(r.multipliers.any() for r in self.fit.solver.history)

    @property
    def reporting(self) -> list[UnseenRows]:
        """Unseen rows whose rates are reported: for each rule the first that tell of it wholly."""
        driving = [self.fit.unseen] if self.fit.unseen is not None else []
        return [*self.fit.evaluation_sets[-1:], *driving]

    @functools.cached_property
    def _layout(self) -> CompiledConstraints:
        """The constraints with the groups of the last evaluation set, which reports speak of."""
        reported, sets = self.fit.reported, self.fit.evaluation_sets
        return reported.with_groups_of(sets[-1].compiled) if sets else reported

    def _spread(self, rates: Float) -> Float:
        """Rates in the order of the report; NaN of groups that their rows do not have."""
        reported, sets = self.fit.reported, self.fit.evaluation_sets
        if not sets or len(rates) != reported.constant.size:
            return rates
        layout = sets[-1].compiled
        wide = np.full((layout.constant.size, *rates.shape[1:]), np.nan)
        wide[reported.positions_in(layout)] = rates
        return wide

    def _laid_out(self, outcome: Outcome) -> Outcome:
        """Rates of an outcome in the order of the report."""
        return replace(
            outcome,
            functionals=self._spread(outcome.functionals),
            of_functionals=self._spread(outcome.of_functionals),
        )

    def _stray(self, own_margin: Callable[[int], Array], rounds: int, shift: Float) -> float:
        """How far a model breaks gaps of error rates beyond sampling error, by its training rows.

        By what the boosters of the folds lose on unseen rows they are told to be higher on such
        rows. While multipliers are on their way a gap may be open in one booster and closed in the
        next, so that those boosters meet it together and the model does not.
        """
        solver, scouts = self.fit.solver, self.fit.scouts
        if solver.optimism is None or scouts is None:
            return 0.0
        compiled, margin = self.fit.driven, own_margin(rounds)
        functionals = compiled.functionals(self._statistics(shifted(margin, shift)))
        lost, _ = scouts.optimism(rounds // self.fit.options.rounds_per_iteration)
        violation = compiled.rows_of(functionals) + lost - compiled.b
        chance = norm.isf(CHANCE) * standard_errors(compiled, self.fit.cells, functionals)
        beyond = solver.corrected & (violation > chance)
        return float(violation[beyond].max(initial=0.0))

    def _matched(self, shift: Float) -> Bool | None:
        """Rows by which a threshold chosen on the folds is carried over to the model, if any."""
        if self.fit.scouts is None or self.fit.fresh is not None or not shift.any():
            return None
        return rows_to_match(self.fit.driven, self.fit.cells)

    @property
    def _may_be_refuted(self) -> bool:
        """Whether rules are judged by boosters of parts of the rows, and not by the model."""
        return (
            self.fit.scouts is not None and self.fit.fresh is None and self.feasibility is not None
        )

    def _hold_against_training(self, statistics: CellStatistics) -> None:
        """Doubt rules that the model returned breaks, by its training rows."""
        if not self._may_be_refuted:
            return
        assert self.fit.unseen is not None
        assert self.feasibility is not None
        counts = CellCounts.of_shares(self.fit.cells, statistics.predicted)
        compiled, rounds = self.fit.reported, self._final.rounds
        optimism = None
        if self.fit.solver.optimism is not None:
            optimism = self.fit.solver.optimism(rounds // self.fit.options.rounds_per_iteration)[0]
        of_shares = of_predictions(compiled)
        known = np.full(len(compiled), np.nan) if optimism is None else optimism
        broken = broken_in_training(compiled, counts, np.where(of_shares, 0.0, known))
        if broken[compiled.owner[of_shares]].any():
            # Only now: scoring the rows of all boosters takes long.
            known = np.where(of_shares, np.minimum(self._lost_by_scouts(), 0.0), known)
            broken = broken_in_training(compiled, counts, known)
        values = values_by_training(compiled, self._functionals, optimism)
        self.feasibility = self.feasibility.refuted_by(values, broken & self._may_be_doubted())

    def _may_be_doubted(self) -> Bool:
        """Rules with a value on unseen rows, but for those missed for the sake of a conflict."""
        assert self.fit.unseen is not None
        assert self.feasibility is not None
        found = self.fit.unseen.values(self._final.rounds)
        if not self.feasibility.conflict:
            return np.isfinite(found)
        return np.asarray(self.fit.reported.satisfied(found), dtype=bool)

    def _lost_by_scouts(self) -> Float:
        """How much higher rows of constraints are on unseen rows, by the boosters of the folds."""
        assert self.fit.scouts is not None
        assert self.fit.unseen is not None
        assert self.choice is not None
        # At the shift of the model returned: reported are decisions at one for each fold.
        return self.fit.lost_by(self.fit.scouts, self.fit.unseen, self.choice)

    @property
    def _is_judged_by_training(self) -> bool:
        """Whether constraints without a value on unseen rows are judged by the training rows."""
        if self.feasibility is not None:
            return False
        return self.outcome is None or bool(np.isnan(self._values_on(self.outcome)).any())

    def _values_on(self, outcome: Outcome) -> Float:
        return self._layout.values(self._spread(outcome.functionals))

    def _measure_training_rows(self, scores: Scores, statistics: CellStatistics) -> None:
        """Find the intervals of values on training rows, and those of too few rows."""
        counts = CellCounts.of_shares(self.fit.cells, statistics.predicted)
        if not self.fit.reported.V.nnz:
            self._judge_training_rows(counts)
            return
        lagrangian = self.fit.solver.lagrangian
        decided = lagrangian.kernel.predicted(scores.deciding).astype(np.intp)
        self._judge_training_rows(counts, decided, lagrangian.at(scores.telling).losses())

    def _judge_training_rows(
        self, counts: CellCounts, decided: Codes | None = None, loss: Float | None = None
    ) -> None:
        compiled = self.fit.reported
        intervals = constraint_intervals(compiled, counts), functional_intervals(compiled, counts)
        if decided is not None and loss is not None:
            of_losses = LossIntervals(self.fit.cells, compiled, decided, loss)
            intervals = of_losses.complete(self._functionals, *intervals)
        self._training_intervals = intervals[0]
        self._too_few_rows += find_too_few_rows(
            self.fit.cells, compiled, counts, self._functionals, *intervals
        )

    def _count_mean_decisions(
        self,
        prefixes: pd.DataFrame,
        own_margin: Callable[[int], Array],
        held_margin: Callable[[UnseenRows, int], Array],
        rows: UnseenRows | None,
    ) -> CellCounts:
        """Average the decisions of prefixes on unseen rows, or on the training rows for None."""
        tables = []
        for rounds in prefixes["rounds"]:
            if rows is not None:
                tables.append(rows.counts(rows.decisions(held_margin(rows, rounds))))
            else:
                predicted = self._statistics(own_margin(rounds)).predicted
                tables.append(CellCounts.of_shares(self.fit.cells, predicted))
        share = prefixes["probability"].to_numpy()
        means = (
            np.tensordot(share, np.stack([getattr(table, name) for table in tables]), axes=1)
            for name in ("weight", "square", "count")
        )
        return CellCounts(*means)

    def _as_reported(self, rounds: int) -> Feasibility:
        """Judge each constraint by the rows that are reported.

        These are the rows that the model was judged by, an evaluation set that the user gave, or
        the training rows where no others were measured.
        """
        found, compiled = self.feasibility, self.fit.reported
        if found is None:
            n_rows, error = len(self.fit.cells.rows), self._final.error
            unknown = (None, np.nan, np.nan)
            few = tuple(self._too_few_rows)
            found = Feasibility((), (), few, (), error, *unknown, TRAINING_ROWS, n_rows)
        rules = tuple(self._rule(found, j) for j in range(len(compiled.constraints)))
        return replace(found, rules=rules, rounds_trained=rounds, rounds_asked=self.fit.n_rounds)

    def _rule(self, found: Feasibility, j: int) -> RuleReached:
        """Judge one constraint by the rows that are reported."""
        compiled, outcome = self.fit.reported, self.outcome
        constraint, source, cells = compiled.constraints[j], TRAINING_ROWS, self.fit.cells
        value = float(compiled.values(self._functionals)[j])
        interval = self._training_intervals[j]
        if outcome is not None and (
            self.feasibility is not None or not np.isnan(self._values_on(outcome)[j])
        ):
            source, interval = outcome.sources[j], outcome.intervals[j]
            if found.rules and source == found.source:
                return found.rules[j]
            value = float(self._values_on(outcome)[j])
            rows = next(rows for rows in self.reporting if rows.source == source)
            cells, compiled = rows.cells, rows.compiled
        few = [rate.reason for rate in self._too_few_rows if rate.constraint == constraint]
        verdict = Verdict.of(
            constraint,
            value,
            interval,
            rows_of_constraint(cells, compiled, j),
            source,
            doubt=few[0] if few else "",
            conflict=found.conflict,
        )
        low, high = map(float, interval)
        if found.rules:
            return replace(found.rules[j], value=value, low=low, high=high, verdict=verdict)
        n_rows = rows_of_smallest_group(cells, compiled, j, None)
        return RuleReached(constraint, value, low, high, n_rows, verdict)

    def _take(self, final: Record, functionals: Float) -> None:
        """Take the record of the model that is returned, and the rates to report."""
        self._final, self._functionals = final, functionals
        self.multipliers = final.multipliers

    def _history(self) -> pd.DataFrame:
        """One row per outer iteration, and a last one for the model that is returned."""
        records = [r for r in self.fit.solver.history if r.rounds < self._final.rounds]
        records.append(self._final)
        losses = self.fit.options.error_form == "log_loss"
        told = [np.array([held.values(r.rounds) for r in records]) for held in self.reporting]
        held_out = None
        if told:
            last = [
                self._spread(held.functionals_after(self._final.rounds)) for held in self.reporting
            ]
            elsewhere = told_elsewhere(self._layout, last[0], last[-1])
            held_out = np.where(elsewhere, told[-1], told[0])
        return history_frame(
            records,
            self.fit.solver.lagrangian.constraints,
            None if losses else held_out,  # 0-1 rates, which no mean loss compares with
            moving_bounds=losses,
        )

    def _swings(self, rounds: int) -> bool:
        """Whether the rules were driven on training rows to the end, and earlier models exist."""
        return (
            self.fit.options.iterate == "last"
            and self.fit.options.error_form == "rate"
            and self.fit.measurement is None
            and self.fit.divisible
            and rounds == self.fit.solver.rounds
        )

    def _scores(self, margin: Array, shift: Float) -> Scores:
        """Scores under the model returned: the shift is folded into it, or kept beside it."""
        return Scores.of(margin, shift, beside=self.fit.options.probabilities == "calibrated")

    def _statistics(self, margin: Array) -> CellStatistics:
        """Cell statistics of the training rows."""
        return self.fit.solver.lagrangian.at(margin).statistics()

    def _prefixes(
        self, statistics: CellStatistics, rounds: int, solver: ABPP | None = None
    ) -> list[Record]:
        """List the records of all prefixes of one round or more, up to `rounds`.

        The statistics are those after `rounds`, of the rows of `solver`: by default the one of
        this fit.
        """
        solver = solver or self.fit.solver
        before = [r for r in solver.history if 0 < r.rounds < rounds]
        if solver is self.fit.solver and self.fit.has_offset:  # which the records were taken with
            margins = {r.rounds: self._own_margin(r.rounds) for r in before}
            before = [self._record(self._statistics(m), upto) for upto, m in margins.items()]
        return [*before, self._record(statistics, rounds, solver)]

    def _unseen_prefixes(self, margin: Array, rounds: int) -> list[Record]:
        """List the records of all prefixes on the unseen rows, whose last scores are given."""
        assert self.fit.measurement is not None
        assert self.fit.unseen is not None
        leader = self.fit.measurement.solver
        statistics = leader.lagrangian.at(margin).statistics()
        *before, whole = self._prefixes(statistics, rounds, leader)
        # The others were to meet the bounds that the iteration before them had aimed at.
        start = before[-1] if before else leader.history[0]
        whole = replace(whole, bounds=self.fit.measurement.bounds_after(start))
        self.fit.unseen.functionals_in[rounds] = whole.functionals
        return [*before, whole]

    def _seen(self, rounds: int) -> Record | None:
        """Record of a model that an outer iteration began with, before the dual step.

        None where none did, or where that is not what the report is of.
        """
        own = self.fit.driven is self.fit.reported and self.fit.options.outlier_clip is None
        if not self.fit.divisible or not own or self.fit.has_offset:
            return None
        for trained_in, found in itertools.pairwise(self.fit.solver.history):
            if found.rounds == rounds:
                return replace(
                    found,
                    bounds=trained_in.bounds,
                    multipliers=trained_in.multipliers,
                    bregman=np.nan,
                    seconds=self.fit.solver.elapsed,
                )
        return None

    def _record(
        self, statistics: CellStatistics, rounds: int, solver: ABPP | None = None
    ) -> Record:
        """State of a solver after some rounds, which begin no outer iteration."""
        solver = solver or self.fit.solver
        lagrangian = solver.lagrangian
        trained_in = [r for r in solver.history if r.rounds < rounds]
        last = trained_in[-1] if trained_in else solver.history[-1]
        functionals = lagrangian.constraints.functionals(statistics)
        reached = [r.fritz_john for r in solver.history if r.rounds == rounds]
        return replace(
            last,
            iteration=last.iteration + 1,
            rounds=rounds,
            objective=lagrangian.objective(statistics),
            error=lagrangian.error(statistics),
            rates=lagrangian.constraints.rows_of(functionals),
            functionals=functionals,
            bregman=np.nan,
            seconds=solver.elapsed,
            fritz_john=reached[0] if reached else np.nan,
        )


def _outcomes(records: Sequence[Record]) -> tuple[Float, Float]:
    """Errors of prefixes, and their violations of each row of constraints."""
    errors = np.array([r.error for r in records])
    return errors, np.array([r.rates - r.bounds for r in records])


def _expected(functionals: Mapping[int, Float], prefixes: pd.DataFrame) -> Float:
    """Rates of a randomised classifier: the mean over its prefixes."""
    stacked = np.array([functionals[rounds] for rounds in prefixes["rounds"]])
    return np.asarray(prefixes["probability"].to_numpy() @ stacked)
