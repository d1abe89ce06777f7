"""From a trained booster to the decision that is returned, and what rows say of it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import Period
from gbm_constrained.decision.choose import (
    Prefixes,
    choose_for_groups,
    choose_prefix,
    choose_with_room,
    correct_training_values,
    find_refit_violations,
    match_positive_rate,
    refit_violation,
    rows_to_match,
)
from gbm_constrained.decision.evaluation_set import (
    UNKNOWN,
    Estimate,
    EvaluationSet,
    Outcome,
    PlainModel,
    ScoredRows,
    find_incomplete,
    score_decisions,
)
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.decision.guarantees import (
    CertifiedAffine,
    certify,
    certify_affine,
    check_observed,
    conformal_bounds,
    control_risk,
)
from gbm_constrained.decision.regression import Affine, AffineChoice, PredictedRows, choose_map
from gbm_constrained.decision.rules import (
    Choice,
    Scores,
    find_best_prefix,
    find_last_prefix,
    find_mixture,
    shift_scores,
)
from gbm_constrained.evaluation.assessment import (
    FRAGILE_GAIN,
    Feasibility,
    ReturnedModel,
    assess,
    describe_missing_guarantee,
)
from gbm_constrained.evaluation.audit import (
    PERIOD_COLUMNS,
    Measure,
    MetricOnRows,
    determination,
    drifting,
    history_frame,
    measure_decisions,
    measure_predictions,
    measure_shares,
    period_frame,
    plain_time,
    set_column_types,
    small_groups_frame,
)
from gbm_constrained.evaluation.verdicts import (
    TRAINING_ROWS,
    ConstraintResult,
    Cost,
    TooFewRows,
    assess_constraint,
    find_too_few_rows,
    measure_cost_of_numbers,
)
from gbm_constrained.fit.cross_fit import measure_optimism
from gbm_constrained.fit.fit import (
    ConstrainedFit,
    RegressionFit,
    tabulate_shifts,
    transfer_offsets,
)
from gbm_constrained.fit.fitted_report import set_reports
from gbm_constrained.fit.metric_search import MetricResult
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import Record, Solver
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.sampled_intervals import Sampled, ScoredDecisions


class TrainedModel:
    """A booster that the library has trained; each library has functions of its own.

    Rounds are those of this fit, without the rounds of a model that was continued.
    """

    margin: Callable[[int], Array]  # Scores of the training rows after some rounds.
    # Scores of an evaluation set or of certification rows after some rounds.
    held_margin: Callable[[EvaluationSet, int], Array]
    truncate: Callable[[int], None]  # Keeps the first rounds.
    add_to_margin: Callable[[Float], None]  # Adds a shift to all scores.
    rescale: Callable[[Affine], None]  # Maps all scores.
    add_to_groups: Callable[[GroupOffsets], None]  # Appends a tree that adds offsets of groups.


@dataclass(frozen=True, eq=False)
class ModelScores:
    """Scores that decisions are chosen by.

    Rows that fold boosters hold out are scored by the booster that has not seen them, all others
    by the trained model.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit.
    trained : TrainedModel
        The trained model.
    known : dict of int to ndarray
        Scores of the training rows that are known, by rounds.
    offsets : GroupOffsets, default=None
        What is added to the scores of groups.
    """

    fit: ConstrainedFit
    trained: TrainedModel
    known: dict[int, Array]
    offsets: GroupOffsets | None = None

    def training(self, rounds: int) -> Array:
        """Scores of the training rows after some rounds."""
        if rounds not in self.known:
            self.known[rounds] = self.trained.margin(rounds)
        margin = self.known[rounds]
        return margin if self.offsets is None else margin + self.offsets.of(self.fit.data.rows)

    def held_out(self, rows: EvaluationSet, rounds: int) -> Array:
        """Scores of rows that are not trained on, after some rounds."""
        measured = self.fit.measured
        if rows is measured.rows and measured.boosters is not None:
            margin = measured.boosters.held_margin(rounds)
        else:
            margin = self.trained.held_margin(rows, rounds)
        return margin if self.offsets is None else margin + self.offsets.of(rows.cells.rows)


def make_record(solver: Solver, statistics: CellStatistics, rounds: int) -> Record:
    """Make the record of a model that no outer iteration begins with."""
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
        functionals=lagrangian.constraints.find_stated(statistics, functionals),
        bregman=np.nan,
        seconds=solver.elapsed,
        fritz_john=reached[0] if reached else np.nan,
        predicted=statistics.predicted,
    )


def find_record(solver: Solver, rounds: int) -> Record | None:
    """Find the record of a model that an outer iteration began with, before its dual step."""
    for trained_in, found in itertools.pairwise(solver.history):
        if found.rounds == rounds:
            return replace(
                found,
                bounds=trained_in.bounds,
                multipliers=trained_in.multipliers,
                bregman=np.nan,
                seconds=solver.elapsed,
            )
    return None


def list_prefixes(solver: Solver, statistics: CellStatistics, rounds: int) -> list[Record]:
    """List the records of all prefixes; `statistics` are those of the longest, of `rounds`."""
    before = [r for r in solver.history if 0 < r.rounds < rounds]
    return [*before, make_record(solver, statistics, rounds)]


def errors_and_violations(records: Sequence[Record]) -> tuple[Float, Float]:
    """List the errors of prefixes, and their violations of each row of constraints."""
    errors = np.array([r.error for r in records])
    return errors, np.array([r.rates - r.bounds for r in records])


class ReportLayout:
    """The order of reports: the constraints with the groups of the last evaluation set, too.

    Parameters
    ----------
    compiled : LinearConstraints
        The constraints on the training rows.
    evaluation_sets : sequence of EvaluationSet
        Rows that the user gave to look at.

    Attributes
    ----------
    compiled : LinearConstraints
        The constraints with all groups.
    """

    def __init__(
        self, compiled: LinearConstraints, evaluation_sets: Sequence[EvaluationSet]
    ) -> None:
        self._training = compiled
        self._last = evaluation_sets[-1].compiled if evaluation_sets else None
        self.compiled = compiled
        if self._last is not None:  # It may have further groups.
            last = self._last
            self.compiled = replace(compiled, spans=last.spans, groups=last.groups)

    def spread(self, rates: Float) -> Float:
        """Bring rates into the order of the report, with NaN for groups that their rows lack."""
        if self._last is None or len(rates) != self._training.constant.size:
            return rates
        wide = np.full((self._last.constant.size, *rates.shape[1:]), np.nan)
        wide[self._training.positions_in(self._last)] = rates
        return wide

    def lay_out(self, outcome: Outcome) -> Outcome:
        """Bring the rates of an outcome into the order of the report."""
        return replace(
            outcome,
            functionals=self.spread(outcome.functionals),
            of_functionals=self.spread(outcome.of_functionals),
        )

    def values(self, outcome: Outcome) -> Float:
        """Values that the constraints bound, of shape (n_constraints,)."""
        return self.compiled.values(self.spread(outcome.functionals))


@dataclass(eq=False)
class FinalModel:
    """The model that a fit returns; each step of finalizing fills in further fields.

    Parameters
    ----------
    rounds : int
        Boosting rounds of the model.
    shift : ndarray of shape (1,) or (n_classes,)
        Shift of the scores.
    layout : ReportLayout
        Order of constraints and groups in reports.
    affine : Affine, default=Affine()
        Map of the scores behind probabilities, which leaves decisions as they are.
    offsets : GroupOffsets, default=None
        What is added to the scores of groups, if these have thresholds of their own.
    prefixes : DataFrame, default=None
        Rounds and probability of each prefix of a randomised classifier.
    choice : Choice, default=None
        Prefix and shift, if held-out rows chose them.
    decided : ndarray of shape (n_rows,), intp, default=None
        Decisions about these rows that are reported, such as cross-fitted ones.
    outcome : Outcome, default=None
        Values of the constraints on held-out rows.
    feasibility : Feasibility, default=None
        Verdicts on the constraints by held-out rows.
    mixture_violations : ndarray of shape (m,), default=None
        Violations by a mixture of prefixes.
    too_few_rows : tuple of TooFewRows, default=()
        Rates that the reported rows are too few for.
    periods : DataFrame, default=None
        Values of the constraints by period, if the held-out rows are of several.
    training_intervals : ndarray of shape (n_constraints, 2), default=None
        Intervals of values on the training rows, if these are reported.
    rows, score : PredictedRows and ndarray of shape (n_samples,), default=None
        Rows that a regressor is reported by, and their scores.
    certified : CertifiedAffine, default=None
        P-values of the constraints of a regressor on these rows, with a guarantee.
    cost : Cost, default=Cost()
        What the constraints cost a regressor on the held-out rows that chose it.

    Attributes
    ----------
    record : Record
        State of the solver at the model.
    functionals : ndarray of shape (n_functionals,)
        Rates on the training rows.
    """

    rounds: int
    shift: Float
    layout: ReportLayout
    affine: Affine = field(default_factory=Affine)
    offsets: GroupOffsets | None = None
    prefixes: pd.DataFrame | None = None
    choice: Choice | None = None
    decided: Codes | None = None
    outcome: Outcome | None = None
    feasibility: Feasibility | None = None
    mixture_violations: Float | None = None
    too_few_rows: tuple[TooFewRows, ...] = ()
    record: Record = field(init=False)
    functionals: Float = field(init=False)
    periods: pd.DataFrame | None = None
    training_intervals: Float | None = None
    rows: Any = None
    score: Any = None
    certified: CertifiedAffine | None = None
    cost: Cost = field(default_factory=Cost)

    @property
    def has_offsets(self) -> bool:
        """Whether a group has a threshold of its own."""
        return self.offsets is not None and bool(self.offsets.values.any())

    @property
    def is_shifted(self) -> bool:
        """Whether decisions differ from those of the trained booster."""
        return bool(self.shift.any()) or self.has_offsets

    @property
    def has_training_verdicts(self) -> bool:
        """Whether the verdict on some constraint is by the training rows, for want of others."""
        if self.feasibility is not None:
            return False
        return self.outcome is None or bool(np.isnan(self.layout.values(self.outcome)).any())


def describe_training_rows(fit: ConstrainedFit, model: FinalModel, final: Scores) -> FinalModel:
    """Measure the training rows at the final scores, and set them against the verdicts."""
    lagrangian, compiled = fit.solver.lagrangian, fit.problem.compiled
    counts = add_record(fit, model, final)
    if is_refutable(fit, model):
        _refute(fit, model, counts)
    if model.has_training_verdicts:
        decided = lagrangian.kernel.predict(final.for_decisions).astype(np.intp)
        scored = score_decisions(lagrangian, compiled, final, decided)
        _add_training_intervals(fit, model, counts, scored)
    return model


def add_record(fit: ConstrainedFit, model: FinalModel, final: Scores) -> CellCounts:
    """Add record and rates of the training rows at the final scores; count the decisions."""
    statistics = final.statistics(fit.solver.lagrangian)
    model.record = make_record(fit.solver, statistics, model.rounds)
    # Reports are of losses in full, whatever the solver clips them at.
    in_full = replace(statistics, clipped_loss=statistics.loss)
    model.functionals = fit.problem.compiled.functionals(in_full)
    return CellCounts.of_shares(fit.problem.cells, statistics.predicted)


def is_refutable(fit: ConstrainedFit, model: FinalModel) -> bool:
    """Whether the fold boosters gave the verdicts, rather than the model itself.

    Training rows that are never held out, such as those of an early period, contradict no verdict.
    """
    boosters = fit.measured.boosters
    is_by_folds = boosters is not None and not boosters.compared
    return is_by_folds and fit.certification is None and model.feasibility is not None


def find_refit_violation(
    fit: ConstrainedFit, scores: ModelScores, rounds: int, shift: Float
) -> float:
    """Find the largest violation of a gap of error rates by the model of all rows."""
    solver, boosters = fit.solver, fit.measured.boosters
    if solver.optimism is None or boosters is None:
        return 0.0
    compiled, margin = solver.lagrangian.constraints, scores.training(rounds)
    statistics = solver.lagrangian.at(shift_scores(margin, shift)).statistics()
    functionals = compiled.functionals(statistics)
    optimism, _ = boosters.optimism(rounds // fit.options.rounds_per_iteration)
    counts = CellCounts.of_shares(fit.problem.cells, statistics.predicted)
    violation = refit_violation(compiled, counts, functionals, optimism)
    return float(violation[solver.corrected].max(initial=0.0))


def _refute(fit: ConstrainedFit, model: FinalModel, counts: CellCounts) -> None:
    """Put verdicts in doubt that the model contradicts on its own training rows."""
    compiled, feasibility = fit.problem.compiled, model.feasibility
    boosters, held_out, choice = fit.measured.boosters, fit.measured.rows, model.choice
    assert boosters is not None and held_out is not None and choice is not None  # noqa: PT018
    assert feasibility is not None
    optimism = None
    if fit.solver.optimism is not None:
        optimism, _ = fit.solver.optimism(model.rounds // fit.options.rounds_per_iteration)
    broken = find_refit_violations(
        compiled,
        counts,
        optimism,
        # By the shift of the model returned: reported are decisions at one shift for each fold.
        lambda: measure_optimism(fit.problem, (boosters, held_out), choice, model.offsets),
    )
    values = held_out.values(model.rounds)
    may_be_doubted = np.isfinite(values)
    if feasibility.conflict:  # Constraints that are missed for a conflict stay missed.
        may_be_doubted = np.asarray(compiled.is_satisfied(values), dtype=bool)
    corrected = correct_training_values(compiled, model.functionals, optimism)
    model.feasibility = feasibility.add_training_evidence(corrected, broken & may_be_doubted)


def _add_training_intervals(
    fit: ConstrainedFit,
    model: FinalModel,
    counts: CellCounts,
    scored: ScoredDecisions | None = None,
) -> None:
    """Add intervals of values on training rows, and rates over too few of these rows."""
    cells, compiled, functionals = fit.problem.cells, fit.problem.compiled, model.functionals
    sampled = Sampled.of(compiled, counts)
    if scored is not None:
        sampled = sampled.complete(cells, compiled, functionals, scored)
    few = find_too_few_rows(cells, compiled, counts, functionals, *sampled)
    model.training_intervals = sampled.constraints
    model.too_few_rows = (*model.too_few_rows, *few)


MAX_MIXTURE_VIOLATION = 1e-6  # Violation by a mixture that the linear programme leaves.


def choose_mixture(
    fit: ConstrainedFit, scores: ModelScores, rounds: int
) -> tuple[pd.DataFrame, Float]:
    """Choose the prefixes of a randomised classifier.

    Returns their rounds and probabilities, and the violations, as they are stated, of constraints
    that no mixture meets as they act, of shape (m,).
    """
    controller, rows = fit.measured.controller, fit.measured.rows
    if controller is None:
        solver, records = fit.solver, training_prefixes(fit, scores, rounds)
    else:
        assert rows is not None
        solver = controller.solver
        statistics = solver.lagrangian.at(scores.held_out(rows, rounds)).statistics()
        records = list_prefixes(solver, statistics, rounds)
        # Each prefix was to meet the bounds that the iteration before it had aimed at.
        start = records[-2] if len(records) > 1 else solver.history[0]
        records[-1] = replace(records[-1], bounds=controller.bounds_after(start))
        rows.functionals_in[rounds] = records[-1].functionals
    errors, violations = errors_and_violations(records)
    chosen, probability = find_mixture(errors, violations)
    acting = solver.lagrangian.constraints
    asked = np.array([r.rates for r in records]) - acting.b
    # If no mixture meets the tightened bounds of the multipliers, the bounds themselves count.
    if (probability @ violations[chosen] > MAX_MIXTURE_VIOLATION).any():
        chosen, probability = find_mixture(errors, asked)
    table = {"rounds": [records[t].rounds for t in chosen], "probability": probability}
    left = probability @ asked[chosen]
    if acting.stated is not None:
        rates = np.array([acting.stated.rows_of(records[t].functionals) for t in chosen])
        left = np.where(left > MAX_MIXTURE_VIOLATION, probability @ rates - acting.b, left)
    return pd.DataFrame(table), np.asarray(left)


def training_prefixes(fit: ConstrainedFit, scores: ModelScores, rounds: int) -> list[Record]:
    """List the records of all prefixes on the training rows."""
    solver = fit.solver

    def statistics(upto: int) -> CellStatistics:
        return solver.lagrangian.at(scores.training(upto)).statistics()

    found = list_prefixes(solver, statistics(rounds), rounds)
    if fit.has_offset:  # The solver's records have the offset, which predict does not add.
        before = [r.rounds for r in found[:-1]]
        found[:-1] = [make_record(solver, statistics(upto), upto) for upto in before]
    return found


def describe_mixture(
    fit: ConstrainedFit, model: FinalModel, scores: ModelScores, final: Scores
) -> FinalModel:
    """Average rates, error and verdicts over the prefixes of a randomised classifier."""
    prefixes, rounds = model.prefixes, model.rounds
    assert prefixes is not None
    add_record(fit, model, final)
    chosen, probability = list(prefixes["rounds"]), prefixes["probability"].to_numpy()

    def average(functionals: Mapping[int, Float]) -> Float:
        return np.asarray(probability @ np.array([functionals[t] for t in chosen]))

    def average_counts(counted: Iterable[CellCounts]) -> CellCounts:
        tables = list(counted)
        means = (
            np.tensordot(probability, np.stack([getattr(t, name) for t in tables]), axes=1)
            for name in ("weight", "square", "count")
        )
        return CellCounts(*means)

    records = {r.rounds: r for r in training_prefixes(fit, scores, rounds)}
    model.functionals = average({t: r.functionals for t, r in records.items()})
    error = float(probability @ np.array([records[t].error for t in chosen]))
    model.record = replace(model.record, functionals=model.functionals, error=error)
    # A set, since a second average would be taken of the first, which replaces one of its terms.
    for held in {*fit.evaluation_sets, *fit.reporting_rows}:
        held.functionals_in[rounds] = average(held.functionals_in)

    outcomes = []
    for held in fit.reporting_rows:
        counted = (held.counts(held.decisions(scores.held_out(held, t))) for t in chosen)
        outcome = Outcome.of_counts(held.compiled, average_counts(counted), held.source)
        outcome = replace(outcome, functionals=held.functionals_in[rounds])
        outcomes.append(model.layout.lay_out(outcome))
    if outcomes:
        model.outcome = outcomes[0].complete_by(outcomes[-1], model.layout.compiled)
    if model.has_training_verdicts:
        lagrangian, cells = fit.solver.lagrangian, fit.problem.cells
        predicted = (lagrangian.at(scores.training(t)).statistics().predicted for t in chosen)
        counts = average_counts(CellCounts.of_shares(cells, shares) for shares in predicted)
        _add_training_intervals(fit, model, counts)
    return model


def choose_decision(fit: ConstrainedFit, scores: ModelScores, rounds: int) -> FinalModel:
    """Choose prefix, shift or mixture.

    Under multipliers that move by the training rows, rates swing about their bounds to the end. So
    the last prefix is chosen that meets them where earlier ones are there.
    """
    layout = ReportLayout(fit.problem.compiled, fit.evaluation_sets)
    model, iterate = FinalModel(rounds, np.zeros(fit.data.columns), layout), fit.options.iterate
    if iterate == "randomized":
        model.prefixes, model.mixture_violations = choose_mixture(fit, scores, rounds)
    elif fit.measured.rows is not None:
        _choose_by_held_out_rows(fit, scores, model, fit.measured.rows)
        _transfer_shift(fit, scores, model)
    elif iterate == "best" or (
        iterate == "last"
        and fit.measured.controller is None
        and fit.is_divisible
        and rounds == fit.solver.rounds
    ):
        records = training_prefixes(fit, scores, rounds)
        errors, violations = errors_and_violations(records)
        is_best = iterate == "best"
        chosen = find_best_prefix(errors, violations) if is_best else find_last_prefix(violations)
        model.rounds = records[chosen].rounds
    return model


def final_scores(
    fit: ConstrainedFit, margin: Array, model: FinalModel, shift: Float | None = None
) -> Scores:
    """Shift scores as the model does, which folds the shift in or keeps it beside.

    A map of probabilities leaves decisions as they are. The `shift` is by default the model's.
    """
    shift = model.shift if shift is None else shift
    found = Scores.of(margin, shift, beside=fit.options.probabilities == "calibrated")
    if model.affine.is_identity:
        return found
    return found._replace(for_probabilities=model.affine(margin))


def _choose_by_held_out_rows(
    fit: ConstrainedFit, scores: ModelScores, model: FinalModel, held_out: EvaluationSet
) -> None:
    """Choose prefix and shift by the rows that moved the multipliers, or certify them."""
    options = fit.options

    def score(rows: EvaluationSet) -> ScoredRows:
        """Score held-out rows, whose groups act as far as they can, by prefix; each once."""
        margins = functools.cache(functools.partial(scores.held_out, rows))
        return ScoredRows(rows.credible, margins)

    scored, prefixes = score(held_out), options.prefixes(model.rounds)
    is_idle = not any(r.multipliers.any() for r in fit.solver.history)
    choice, decisions = _choose_shift(fit, scores, scored, prefixes, is_idle=is_idle)
    offsets = choice.offsets
    if offsets is not None:
        scores = replace(scores, offsets=offsets)
        scored = score(held_out)
    reported, margin, bounds = held_out, scored.margins(choice.rounds), None
    decided = decisions
    if fit.certification is not None:
        reported = fit.certification
        certification = ScoredRows(reported, score(reported).margins)
        if options.guarantee == "expected":
            choice = control_risk(scored, certification, choice)
            bounds = conformal_bounds(reported.compiled, reported.cells)
        else:
            choice = certify(scored, certification, choice, prefixes, options.delta)
        margin = certification.margins(choice.rounds)
        decided = held_out.decisions(shift_scores(scored.margins(choice.rounds), choice.shift))
        decisions = reported.decisions(shift_scores(margin, choice.shift))
    model.affine = Affine() if fit.has_offset else choose_map(held_out, margin)
    model.rounds, model.shift, model.offsets = choice.rounds, choice.shift, offsets
    outcome = Outcome.of(reported, final_scores(fit, margin, model), decisions)
    is_unconstrained = is_idle and not model.is_shifted and choice.rounds == prefixes.rounds
    returned = ReturnedModel(choice, reported, decisions, outcome, bounds, is_unconstrained)
    stated = ScoredRows(held_out, scored.margins)
    model.feasibility = assess(stated, prefixes, returned, fit.measured.plain)
    held_out.functionals_in[choice.rounds] = outcome.functionals
    model.choice, model.decided, model.outcome = choice, decided, outcome


def _choose_shift(
    fit: ConstrainedFit,
    scores: ModelScores,
    scored: ScoredRows,
    prefixes: Prefixes,
    *,
    is_idle: bool,
) -> tuple[Choice, Codes]:
    """Choose prefix and shift without regard to a guarantee, and decide the held-out rows."""
    held_out, rounds, groups = scored.rows, prefixes.rounds, fit.groups
    margin = scored.margins(rounds)
    # Errors decide about a threshold only if a constraint stands in the way of the model's own.
    is_at_rest = is_idle or not (prefixes.has_free_choice or fit.solver.multipliers.any())
    if is_at_rest and held_out.violations(margin).max(initial=0.0) <= ROUNDING:
        choice = Choice(rounds, np.zeros(fit.data.columns), np.nan, 0.0, offsets=groups)
        return choice, held_out.decisions(margin)
    if groups is not None:
        choice = choose_for_groups(scored, prefixes, groups)
    else:
        refit_violation = functools.partial(find_refit_violation, fit, scores)
        choice = choose_prefix(
            scored, prefixes, refit_violation=refit_violation, found=held_out.choices
        )
    return choose_with_room(held_out, scored.margins(choice.rounds), choice)


def _transfer_shift(fit: ConstrainedFit, scores: ModelScores, model: FinalModel) -> None:
    """Transfer shifts that were chosen on the folds to the model of all rows.

    Shifts stay as they are where some rows are never held out, such as those of an early period.
    """
    boosters, cells = fit.measured.boosters, fit.problem.cells
    if boosters is None or boosters.compared:
        return
    if fit.certification is not None or not model.is_shifted:
        return
    matched = rows_to_match(fit.problem.compiled, cells)
    if matched is None:
        return
    of_folds, margin = boosters.scores(model.rounds), scores.training(model.rounds)
    if model.offsets is None:
        model.shift = match_positive_rate(of_folds, model.shift, margin, matched, cells)
    else:
        model.shift, model.offsets = transfer_offsets(
            of_folds, model.shift, model.offsets, margin, matched, cells
        )


def report_periods(fit: ConstrainedFit, measure: Callable[[], Measure]) -> pd.DataFrame | None:
    """Tabulate the constraints in each held-out period, by what `measure` makes.

    There is no table without periods.
    """
    given = fit.data.given_folds
    if given is None or not given.periods:
        return None
    rows = fit.data.rows.take(given.held)
    return period_frame(rows, fit.problem.compiled, measure(), given.held_periods)


def _measure_held_out(fit: ConstrainedFit, scores: ModelScores, model: FinalModel) -> Measure:
    """Make what measures the decisions that are reported on some of the held-out rows."""
    held, choice, decided = fit.measured.rows, model.choice, model.decided
    assert held is not None and choice is not None and decided is not None  # noqa: PT018
    final = final_scores(fit, scores.held_out(held, choice.rounds), model, choice.shift)
    return measure_decisions(score_decisions(held.lagrangian, held.compiled, final, decided))


def report_periods_of_metric(fit: Any, result: MetricResult) -> pd.DataFrame | None:
    """Tabulate the constraints, and the metric after them, in each held-out period.

    Constraints count the decisions that are reported. The metric is that of the rule that is
    returned, on probabilities of the boosters before the period. There is no table without
    periods, or of randomised decisions.
    """
    data, held, decided = fit.problem.data, result.held, result.decided
    given = data.given_folds
    if given is None or not given.periods or decided is None:
        return None
    rows, periods = data.rows.take(held.rows), given.held_periods
    constraints = fit.options.constraints
    _, compiled = compile_constraints(constraints, data.rows, warning=None)
    frame = period_frame(rows, compiled, measure_shares(result.chosen.shares), periods)
    if fit.has_own_objective:
        return frame
    of_metric = _periods_of_metric(fit, rows, decided, periods)
    return set_column_types(pd.concat([frame, of_metric], ignore_index=True))


def _periods_of_metric(
    fit: Any, rows: Rows, decided: Codes, periods: Sequence[Period]
) -> pd.DataFrame:
    """Tabulate the metric in each period, with intervals by the bootstrap of its rows."""
    metric, records = fit.problem.metric.metric, []
    for k, period in enumerate(periods):
        try:
            measured = MetricOnRows(metric, rows.take(period.rows), fit.options.positive)
            estimate = measured.estimate(decided[period.rows], 0.95)
        except ValueError:  # A class or a group of the metric has no row in the period.
            estimate = UNKNOWN
        records.append((
            str(metric), "", np.nan, k + 1, plain_time(period.first), plain_time(period.last),
            period.rows.size, *estimate, np.nan, np.nan, None,
        ))  # fmt: skip
    return set_column_types(pd.DataFrame(records, columns=list(PERIOD_COLUMNS)))


def finalize(
    fit: ConstrainedFit, trained: TrainedModel, rounds: int, margin: Array | None
) -> FinalModel:
    """Choose what is returned of a trained booster, and fold the decision into the booster.

    `rounds` are those of the whole ensemble, fewer than were trained after early stopping;
    `margin` are the scores of the training rows after these rounds, if they are known.
    """
    scores = ModelScores(
        fit, trained, {} if margin is None or fit.has_offset else {rounds: margin}
    )
    model = choose_decision(fit, scores, rounds)
    scores = replace(scores, offsets=model.offsets)
    if model.decided is not None:  # There is no table of a randomised classifier.
        model.periods = report_periods(fit, lambda: _measure_held_out(fit, scores, model))
    is_changed = model.is_shifted or not model.affine.is_identity
    for held in fit.evaluation_sets:
        is_known = model.rounds in held.functionals_in and not is_changed
        if held is fit.evaluation_sets[-1] or not is_known:
            _measure_evaluation_set(fit, scores, model, held)
    # To score all training rows again takes as long as a fifth of a fit. So the solver's record is
    # taken if the report needs nothing beside it. Pair rates of a record are from bins of scores
    # where rows are many (PairRows.tables), and exact in all other reports.
    needs_scores = (
        is_changed
        or model.prefixes is not None
        or is_refutable(fit, model)
        or model.has_training_verdicts
        or not fit.is_divisible
        or fit.has_offset
        or fit.options.method.outlier_clip is not None
    )
    record = None if needs_scores else find_record(fit.solver, model.rounds)
    # Scores of the booster before it is cut and shifted.
    final: Any = None if record is not None else scores.training(model.rounds)
    if model.rounds != rounds:
        trained.truncate(model.rounds)
    if not model.affine.is_identity:
        trained.rescale(model.affine)
    is_folded = fit.options.probabilities != "calibrated"
    if model.shift.any() and is_folded:
        trained.add_to_margin(model.shift)
    if model.offsets is not None and model.has_offsets and is_folded:
        trained.add_to_groups(model.offsets)
    if record is not None:
        model.record, model.functionals = record, record.functionals
    elif model.prefixes is None:
        describe_training_rows(fit, model, final_scores(fit, final, model))
    else:
        describe_mixture(fit, model, scores, final_scores(fit, final, model))
    if fit.checkpoint is not None:
        fit.checkpoint.remove()
    return model


def _measure_evaluation_set(
    fit: ConstrainedFit, scores: ModelScores, model: FinalModel, held: EvaluationSet
) -> None:
    """Measure an evaluation set at the scores of the returned model."""
    final = final_scores(fit, scores.held_out(held, model.rounds), model)
    # Rows that moved the multipliers report if nothing was chosen by them.
    is_evidence = held is not fit.measured.rows or model.choice is None
    is_reported = held is fit.evaluation_sets[-1] and is_evidence and model.prefixes is None
    if not is_reported or fit.certification is not None:
        statistics = final.statistics(held.lagrangian)
        held.functionals_in[model.rounds] = held.compiled.functionals(statistics)
        return
    outcome, driving = Outcome.of(held, final), model.outcome
    few = find_too_few_rows(
        held.cells,
        held.compiled,
        held.counts(held.decisions(final.for_decisions)),
        outcome.functionals,
        outcome.sampled.constraints,
        outcome.sampled.functionals,
    )
    held.functionals_in[model.rounds] = outcome.functionals
    if driving is not None:
        layout = model.layout
        outcome = outcome.complete_by(layout.lay_out(driving), layout.compiled)
    model.outcome, model.too_few_rows = outcome, tuple(few)


def finalize_regression(
    fit: RegressionFit, trained: TrainedModel, rounds: int, margin: Array | None
) -> FinalModel:
    """Choose the map of a trained booster's scores, and measure the model on all rows.

    The parameters are those of :func:`finalize`.
    """
    scores = ModelScores(
        fit, trained, {} if margin is None or fit.has_offset else {rounds: margin}
    )
    choice, certification = AffineChoice(Affine(), np.nan, np.zeros(0)), fit.certification
    measured: Any = fit.measured.rows
    held_out: tuple[Any, Array] | None = None
    reported: dict[str, Any] = {}
    if measured is not None:
        score = scores.held_out(measured, rounds)
        if certification is not None:
            unseen = certification, scores.held_out(certification, rounds)
            check_observed(*unseen)
            certified = certify_affine(
                (measured, score), unseen, fit.options.delta, has_scale=fit.library.has_scale
            )
            choice = choice._replace(affine=certified.affine)
        else:
            choice = measured.choices.get(rounds) or fit.choose_map(measured.credible, score)
        held_out = measured, choice.apply(score, measured.cells.rows)
        periods = report_periods(fit, functools.partial(measure_predictions, *held_out))
        reported = {"others": held_out, "periods": periods}
        if measured.plain_score is not None:
            reported["cost"] = measure_cost_of_numbers(*held_out)
    for rows in fit.evaluation_sets:  # The last one is reported, if there is any.
        held_out = rows, choice.apply(scores.held_out(rows, rounds), rows.cells.rows)
        rows.measure(rounds, held_out[1])
    if measured is not None and certification is not None:  # Its rows give the verdicts.
        held_out = certification, choice.apply(unseen[1], certification.cells.rows)
        reported |= {"others": None, "certified": certified}
    training = choice.apply(scores.training(rounds), fit.data.rows)
    return describe_regressor(
        fit, choice.affine, rounds, training, held_out, offsets=choice.offsets, **reported
    )


def describe_regressor(
    fit: RegressionFit,
    affine: Affine,
    rounds: int,
    training: Array,
    held_out: tuple[PredictedRows, Array] | None = None,
    others: tuple[PredictedRows, Array] | None = None,
    **reported: Any,
) -> FinalModel:
    """Measure a model by the scores of its training rows, and of held-out rows, if any.

    Constraints that the `held_out` rows measure less completely are reported by the `others`.
    Further fields of the model are given as `reported`.
    """
    solver, compiled = fit.solver, fit.problem.compiled
    statistics = solver.lagrangian.at(training).statistics(is_exact=True)
    functionals = compiled.functionals(statistics)
    record = Record(
        iteration=len(solver.history),
        rounds=rounds,
        objective=solver.lagrangian.objective(statistics),
        error=np.nan,
        rates=compiled.rows_of(functionals),
        functionals=functionals,
        bounds=solver.bounds,
        multipliers=solver.multipliers,
        bregman=np.nan,
        seconds=solver.elapsed,
    )
    rows, score = (fit.training_rows(), training) if held_out is None else held_out
    layout = ReportLayout(compiled, fit.evaluation_sets)
    model = FinalModel(rounds, np.zeros(1), layout, affine, rows=rows, score=score, **reported)
    model.record = record
    if not compiled.constraints:  # Ridge regression has other losses, too.
        return model
    outcome = _measure_predictions(rows, score)
    if rows.source == TRAINING_ROWS:
        model.functionals, model.training_intervals = outcome.functionals, outcome.intervals
        return model
    if others is not None:
        outcome = outcome.complete_by(
            layout.lay_out(_measure_predictions(*others)), layout.compiled
        )
    elif model.certified is None:  # There are no other rows but those of the trees.
        outcome = outcome.leave_out_incomplete(layout.spread(functionals), layout.compiled)
    model.functionals, model.outcome = functionals, outcome
    return model


def _measure_predictions(rows: PredictedRows, score: Array) -> Outcome:
    """Measure the constraints by the scores of a regressor."""
    functionals, intervals, of_functionals = rows.intervals(score)
    sources = np.full(len(rows.compiled.constraints), rows.source, dtype=object)
    sampled = Sampled(intervals, of_functionals)
    return Outcome(functionals, intervals, of_functionals, sources, sampled)


def report(
    estimator: Any, fit: ConstrainedFit, model: FinalModel, rounds: int | None = None
) -> Feasibility:
    """Set the fitted attributes that report on the constraints, and return the verdicts.

    `rounds` are those that were trained; by default those of the solver.
    """
    layout, outcome = model.layout, model.outcome
    functionals = layout.spread(model.functionals)
    if outcome is not None:
        outcome = layout.lay_out(outcome)
        if model.feasibility is None:  # The only other rows are those of the trees.
            outcome = outcome.leave_out_incomplete(functionals, layout.compiled)
        model.outcome = outcome
    feasibility = assess_as_reported(fit, model, rounds)
    set_reports(
        estimator, layout.compiled, functionals, model.record.multipliers, outcome, feasibility,
        ("error", feasibility.error), feasibility.plain,
    )  # fmt: skip
    _report_fit(estimator, fit, model)
    estimator.unseen_accuracy_ = UNKNOWN if outcome is None else outcome.accuracy
    return feasibility


def report_regressor(
    estimator: Any, fit: RegressionFit, model: FinalModel, rounds: int | None = None
) -> Feasibility:
    """Set the fitted attributes that report on the constraints, as :func:`report` does."""
    layout, outcome, record, rows = model.layout, model.outcome, model.record, model.rows
    uncertified: tuple[Constraint, ...] = ()
    p_value, level, cost = np.nan, np.nan, model.cost
    if (certified := model.certified) is not None:
        missing = np.flatnonzero(certified.p_values > certified.level)
        uncertified = tuple(rows.compiled.constraints[j] for j in missing)
        p_value, level = float(certified.p_values.max()), certified.level
    # Whether the constraints cost most of what the model explains beyond the mean target.
    gain, left = 1.0 - cost.unconstrained_error, 1.0 - cost.error
    is_fragile = gain > 2.0 * cost.noise and cost.is_costly and left < FRAGILE_GAIN * gain
    doubt = describe_missing_guarantee("high_probability") if uncertified else ""
    feasibility = replace(
        assess_as_reported(fit, model, rounds, doubt),
        conflict=uncertified, p_value=p_value, level=level, source=rows.source,
        n_rows=rows.cells.n_rows, is_fragile=bool(is_fragile), cost=cost, plain=fit.measured.plain,
    )  # fmt: skip
    plain = None
    if rows.plain_score is not None:
        statistics = rows.lagrangian.at(rows.plain_score).statistics(is_exact=True)
        values = rows.compiled.values(rows.compiled.functionals(statistics))
        plain = PlainModel(float(statistics.loss[0]), values)
    set_reports(
        estimator, layout.compiled, layout.spread(record.functionals), record.multipliers,
        None if outcome is None else layout.lay_out(outcome), feasibility,
        ("loss", rows.measure_scores(model.score)[0]), plain,
    )  # fmt: skip
    _report_fit(estimator, fit, model, outcome)
    estimator.history_ = estimator.history_.drop(columns="error")
    estimator.unseen_r2_ = UNKNOWN
    if outcome is not None:  # R^2, with a normal interval of the mean squared loss.
        problem = rows.lagrangian.rows
        square = (rows.targets - rows.objective.predict(np.asarray(model.score, np.float64))) ** 2
        weight = problem.objective_weight / problem.total_weight
        loss = float(weight @ square)
        half = 1.96 * float(np.sqrt(weight**2 @ (square - loss) ** 2))
        estimate = Estimate(loss, loss - half, loss + half)
        estimator.unseen_r2_ = determination(estimate, problem.scale)
    estimator.adjustment_ = model.affine.as_series()
    if (offsets := model.offsets) is not None:
        groups, shift = offsets.groups_of(fit.data.rows), np.array([model.affine.shift])
        estimator.group_shifts_ = tabulate_shifts(shift, offsets, groups)
    return feasibility


def warn(fit: ConstrainedFit, model: FinalModel, feasibility: Feasibility) -> None:
    """Warn of constraints that are violated, costly or in doubt; raise if the user asked so."""
    violations = model.mixture_violations
    if violations is not None and (violations > MAX_MIXTURE_VIOLATION).any():
        worst = int(violations.argmax())
        issue_warning(
            f"No mixture of this model's prefixes meets all constraints: the one returned "
            f"violates {fit.problem.compiled.rows[worst]} by {violations[worst]:.3g}. Relax the "
            f"bounds, or use iterate='last', which moves the threshold as well.",
            "GC106",
        )
    feasibility.warn(raises=fit.options.on_infeasible == "raise")


def assess_as_reported(
    fit: ConstrainedFit, model: FinalModel, rounds: int | None, doubt: str = ""
) -> Feasibility:
    """Assess each constraint by the rows that are reported.

    These are the rows that the model was assessed by, an evaluation set of the user, or the
    training rows if no others were measured. `rounds` are those that were trained, by default
    those of the solver, and `doubt` is what is said against all verdicts.
    """
    found, compiled = model.feasibility, fit.problem.compiled
    if found is None:
        n_rows, error = fit.problem.cells.n_rows, model.record.error
        unknown = (None, np.nan, np.nan)
        few = model.too_few_rows
        found = Feasibility((), (), few, (), error, *unknown, TRAINING_ROWS, n_rows)
    every = range(len(compiled.constraints))
    rules = tuple(_assess_rule(fit, model, found, j, doubt) for j in every)
    drift = () if model.periods is None else drifting(model.periods)
    return replace(
        found,
        rules=rules,
        drifting=tuple(rule for rule in rules if str(rule.constraint) in drift),
        rounds_trained=fit.solver.rounds if rounds is None else rounds,
        rounds_asked=fit.library.n_rounds,
        margin=fit.options.standard_errors,
    )


def _assess_rule(
    fit: ConstrainedFit, model: FinalModel, found: Feasibility, j: int, doubt: str
) -> ConstraintResult:
    """Assess one constraint by the rows that are reported."""
    compiled, outcome, source = fit.problem.compiled, model.outcome, TRAINING_ROWS
    rows = fit.problem.cells, compiled
    value = float(compiled.values(model.functionals)[j])
    interval = np.full(2, np.nan)
    if model.training_intervals is not None:
        interval = model.training_intervals[j]
    if outcome is not None and (
        model.feasibility is not None or not np.isnan(model.layout.values(outcome)[j])
    ):
        source, interval = outcome.sources[j], outcome.intervals[j]
        if found.rules and source == found.source:
            return found.rules[j]
        value = float(model.layout.values(outcome)[j])
        known = [*fit.reporting_rows, *([fit.certification] if fit.certification else [])]
        held = next(held for held in known if held.source == source)
        rows = held.cells, held.compiled
    constraint = compiled.constraints[j]
    few = [rate.reason for rate in model.too_few_rows if rate.constraint == constraint]
    estimate = Estimate(value, *map(float, interval))
    result = assess_constraint(
        rows, j, estimate, source, doubt=few[0] if few else doubt,
        conflict=found.conflict_of(constraint),
    )  # fmt: skip
    if found.rules:
        return replace(found.rules[j], **estimate._asdict(), verdict=result.verdict)
    return result


def _report_fit(
    estimator: Any, fit: ConstrainedFit, model: FinalModel, outcome: Outcome | None = None
) -> None:
    """Set the fitted attributes about multipliers and iterations.

    The history has one row per outer iteration, and a last one for the returned model. The rows of
    evidence know the returned model by its rounds, unless there is an `outcome` of it.
    """
    final, layout, compiled = model.record, model.layout, fit.problem.compiled
    estimator.small_groups_ = small_groups_frame(compiled)
    if model.periods is not None:
        estimator.period_report_ = model.periods
    estimator.stopping_message_ = fit.notifier.message
    found = pd.Series(final.multipliers, list(compiled.rows), name="multiplier")
    estimator.multipliers_ = found.reindex(compiled.all_rows, fill_value=0.0)
    records = [*(r for r in fit.solver.history if r.rounds < final.rounds), final]
    held_out = None
    if known := fit.reporting_rows:
        tables = [np.array([rows.values(r.rounds) for r in records]) for rows in known]
        if outcome is None:
            last = [layout.spread(rows.functionals_after(final.rounds)) for rows in known]
            is_elsewhere = find_incomplete(layout.compiled, last[0], last[-1])
        else:
            is_elsewhere = outcome.sources == known[-1].source
        held_out = np.where(is_elsewhere, tables[-1], tables[0])
        if outcome is not None:
            held_out[-1] = layout.values(outcome)
    estimator.history_ = history_frame(records, fit.solver.lagrangian.constraints, held_out)
