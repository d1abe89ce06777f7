"""From a trained booster to the model that is returned: prefix, shift or mixture."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.guarantees import certify, conformal_bounds, control_risk
from gbm_constrained.decision.mixtures import find_best_prefix, find_last_prefix, find_mixture
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.decision.prefix_choice import Prefixes, choose_prefix, choose_with_room
from gbm_constrained.decision.refit_transfer import match_positive_rate, rows_to_match
from gbm_constrained.decision.rule import Choice, Scores
from gbm_constrained.evaluation.assessment import ReturnedModel, assess
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.evaluation.sample_size import TooFewRows, find_too_few_rows
from gbm_constrained.solvers.base import Record
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.model_scores import ModelScores, TrainedModel
from gbm_constrained.training.records import (
    errors_and_violations,
    find_record,
    list_prefixes,
    make_record,
)
from gbm_constrained.training.report_layout import ReportLayout
from gbm_constrained.training.training_evidence import (
    TrainingEvidence,
    find_intervals,
    find_refit_violation,
    measure_training_rows,
    refute_by_training_rows,
)

MAX_MIXTURE_VIOLATION = 1e-6  # Violation by a mixture that the linear programme leaves.


@dataclass(frozen=True, eq=False)
class FinalModel:
    """The model that is returned, and what is known of it.

    Parameters
    ----------
    rounds : int
        Boosting rounds of the model.
    shift : ndarray of shape (1,) or (n_classes,)
        Shift of its scores.
    layout : ReportLayout
        Order of constraints and groups in reports.
    prefixes : DataFrame, default=None
        Rounds and probability of each prefix of a randomised classifier.
    choice : Choice, default=None
        Prefix and shift, if held-out rows chose them.
    outcome : Outcome, default=None
        Values of the constraints on held-out rows.
    feasibility : Feasibility, default=None
        Verdicts on the constraints by held-out rows.
    mixture_violations : ndarray of shape (m,), default=None
        Violations by a mixture of prefixes.
    too_few_rows : tuple of TooFewRows, default=()
        Rates that the reported rows are too few for.
    record : Record, default=None
        State of the solver at the model.
    functionals : ndarray of shape (n_functionals,), default=None
        Rates on the training rows.
    training_intervals : ndarray of shape (n_constraints, 2), default=None
        Intervals of values on the training rows, if these are reported.
    """

    rounds: int
    shift: Float
    layout: ReportLayout
    prefixes: pd.DataFrame | None = None
    choice: Choice | None = None
    outcome: Outcome | None = None
    feasibility: Feasibility | None = None
    mixture_violations: Float | None = None
    too_few_rows: tuple[TooFewRows, ...] = ()
    record: Record | None = None
    functionals: Float | None = None
    training_intervals: Float | None = None

    @property
    def is_judged_by_training(self) -> bool:
        """Whether constraints without a held-out value are judged by the training rows."""
        if self.feasibility is not None:
            return False
        return self.outcome is None or bool(np.isnan(self.layout.values(self.outcome)).any())


def finalize(
    fit: ConstrainedFit, trained: TrainedModel, rounds: int, margin: Array | None
) -> FinalModel:
    """Choose what is returned of a trained booster, and fold the decision into the booster.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, whose booster is trained.
    trained : TrainedModel
        The booster.
    rounds : int
        Boosting rounds of the whole ensemble; fewer than were trained after early stopping.
    margin : ndarray, default=None
        Scores of the training rows under the booster, if they are known.

    Returns
    -------
    FinalModel
    """
    known = {} if margin is None or fit.has_offset else {rounds: margin}
    scores = ModelScores(trained, fit.measured, known)
    model = _choose(fit, scores, rounds)
    for held in fit.evaluation_sets:
        model = _measure_evaluation_set(fit, scores, model, held)
    # Scoring all rows again takes as long as a fifth of a fit.
    needs_scores = (
        model.shift.any()
        or model.prefixes is not None
        or _is_refutable(fit, model)
        or model.is_judged_by_training
    )
    seen = None if needs_scores else _find_seen(fit, model.rounds)
    final = None if seen is not None else scores.training(model.rounds)
    if model.rounds != rounds:
        trained.truncate(model.rounds)
    if model.shift.any() and fit.options.probabilities != "calibrated":
        trained.add_to_margin(model.shift)
    if seen is not None:
        model = replace(model, record=seen, functionals=seen.functionals)
    else:
        assert final is not None
        model = describe_training_rows(fit, model, _scores(fit, final, model.shift), scores)
    if fit.run.checkpoint is not None:
        fit.run.checkpoint.remove()
    return model


def describe_training_rows(
    fit: ConstrainedFit, model: FinalModel, final: Scores, scores: ModelScores | None = None
) -> FinalModel:
    """Measure the training rows under the model that is returned.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit.
    model : FinalModel
        The model.
    final : Scores
        Scores of the training rows, and of further data sets.
    scores : ModelScores, default=None
        Scores of prefixes; None for a learner that has none.
    """
    solver = fit.solver
    statistics = final.statistics(solver.lagrangian)
    in_full = replace(statistics, clipped_loss=statistics.loss)
    model = replace(
        model,
        record=make_record(solver, statistics, model.rounds),
        functionals=fit.problem.compiled.functionals(in_full),
    )
    if model.prefixes is not None:
        assert scores is not None
        return _describe_mixture(fit, model, scores, final)
    evidence = TrainingEvidence(fit.run, fit.measured)
    assert model.record is not None
    assert model.functionals is not None
    if _is_refutable(fit, model):
        assert model.feasibility is not None
        assert model.choice is not None
        refuted = refute_by_training_rows(
            evidence,
            statistics,
            model.functionals,
            model.record.rounds,
            model.feasibility,
            model.choice,
        )
        model = replace(model, feasibility=refuted)
    if model.is_judged_by_training:
        assert model.functionals is not None
        found = measure_training_rows(evidence, statistics, model.functionals, final)
        model = _with_intervals(model, *found)
    return model


def reporting_rows(fit: ConstrainedFit) -> list[EvaluationSet]:
    """List the held-out rows whose rates are reported; the first that have a value count."""
    driving = [] if fit.measured.rows is None else [fit.measured.rows]
    return [*fit.evaluation_sets[-1:], *driving]


# --- prefix and shift -------------------------------------------------------------------------


def _choose(fit: ConstrainedFit, scores: ModelScores, rounds: int) -> FinalModel:
    """Choose prefix, shift or mixture."""
    layout = ReportLayout(fit.problem.compiled, fit.evaluation_sets)
    model = FinalModel(rounds, np.zeros(fit.data.columns), layout)
    if fit.measured.rows is not None and fit.options.iterate != "randomized":
        model = _choose_by_held_out_rows(fit, scores, model)
        return replace(model, shift=_transfer_shift(fit, scores, model))
    if fit.options.iterate == "randomized":
        prefixes, violations = _choose_mixture(fit, scores, rounds)
        return replace(model, prefixes=prefixes, mixture_violations=violations)
    if fit.options.iterate == "best" or _may_swing(fit, rounds):
        return replace(model, rounds=_choose_prefix(fit, scores, rounds))
    return model


def _choose_by_held_out_rows(
    fit: ConstrainedFit, scores: ModelScores, model: FinalModel
) -> FinalModel:
    """Choose prefix and shift by the rows that moved the multipliers."""
    unseen, options, rounds = fit.measured.rows, fit.options, model.rounds
    assert unseen is not None
    scored = _score(scores, unseen)
    is_free = options.iterate == "best"
    prefixes = Prefixes(rounds, options.rounds_per_iteration, is_free)
    choice = Choice(rounds, model.shift, np.nan, 0.0)
    reported, margin = unseen, scored.margins(rounds)
    decisions = unseen.decisions(margin)
    is_idle = not any(r.multipliers.any() for r in fit.solver.history)
    # Errors decide about a threshold only if a constraint stands in the way of the model's own.
    is_at_rest = is_idle or not (is_free or fit.solver.multipliers.any())
    if not is_at_rest or unseen.violations(margin).max(initial=0.0) > ROUNDING:
        evidence = TrainingEvidence(fit.run, fit.measured)
        refit = functools.partial(find_refit_violation, evidence, scores)
        choice = choose_prefix(scored, prefixes, refit_violation=refit, found=unseen.choices)
        margin = scored.margins(choice.rounds)
        choice, decisions = choose_with_room(unseen, margin, choice)
    bounds = None
    if fit.run.certification is not None:
        reported = fit.run.certification
        certification = _score(scores, reported)
        if options.guarantee == "expected":
            choice = control_risk(scored, certification, choice)
            bounds = conformal_bounds(reported.compiled, reported.cells)
        else:
            choice = certify(scored, certification, choice, prefixes, options.delta)
        margin = certification.margins(choice.rounds)
        decisions = reported.decisions(_scores(fit, margin, choice.shift).for_decisions)
    outcome = Outcome.of(reported, _scores(fit, margin, choice.shift), decisions)
    is_unconstrained = is_idle and not choice.shift.any() and choice.rounds == rounds
    returned = ReturnedModel(choice, reported, decisions, outcome, bounds, is_unconstrained)
    feasibility = assess(scored, prefixes, returned, fit.measured.plain_error)
    unseen.functionals_in[choice.rounds] = outcome.functionals
    return replace(
        model,
        rounds=choice.rounds,
        shift=choice.shift,
        choice=choice,
        outcome=outcome,
        feasibility=feasibility,
    )


def _score(scores: ModelScores, rows: EvaluationSet) -> ScoredRows:
    """Score held-out rows by prefix; each prefix is scored once."""
    return ScoredRows(rows, functools.cache(functools.partial(scores.held_out, rows)))


def _transfer_shift(fit: ConstrainedFit, scores: ModelScores, model: FinalModel) -> Float:
    """Transfer a shift that was chosen on the folds to the model of all rows."""
    boosters, shift = fit.measured.boosters, model.shift
    if boosters is None or fit.run.certification is not None or not shift.any():
        return shift
    matched: Bool | None = rows_to_match(fit.problem.compiled, fit.problem.cells)
    if matched is None:
        return shift
    return match_positive_rate(
        boosters.scores(model.rounds),
        shift,
        scores.training(model.rounds),
        matched,
        fit.data.rows.weight,
    )


def _may_swing(fit: ConstrainedFit, rounds: int) -> bool:
    """Whether training rows moved the multipliers to the end, and earlier models exist."""
    is_whole = rounds == fit.solver.rounds
    return (
        fit.options.iterate == "last"
        and fit.measured.controller is None
        and fit.is_divisible
        and is_whole
    )


def _choose_prefix(fit: ConstrainedFit, scores: ModelScores, rounds: int) -> int:
    """Choose the rounds of the prefix to keep, by the training rows.

    Under multipliers that move by the same rows, rates swing about their bounds to the end.
    """
    errors, violations = errors_and_violations(records := _prefixes(fit, scores, rounds))
    is_best = fit.options.iterate == "best"
    return records[
        find_best_prefix(errors, violations) if is_best else find_last_prefix(violations)
    ].rounds


def _choose_mixture(
    fit: ConstrainedFit, scores: ModelScores, rounds: int
) -> tuple[pd.DataFrame, Float]:
    """Choose the prefixes that a randomised classifier draws from.

    Returns
    -------
    prefixes : DataFrame
        Rounds and probability of each.
    violations : ndarray of shape (m,)
        Violations by the mixture.
    """
    if fit.measured.controller is None:
        solver, records = fit.solver, _prefixes(fit, scores, rounds)
    else:
        solver = fit.measured.controller.solver
        records = _held_out_prefixes(fit, scores, rounds)
    errors, violations = errors_and_violations(records)
    chosen, probability = find_mixture(errors, violations)
    asked = np.array([r.rates for r in records]) - solver.lagrangian.constraints.b
    # If no mixture is as far inside as the multipliers aimed at, the bounds themselves count.
    if (probability @ violations[chosen] > MAX_MIXTURE_VIOLATION).any():
        chosen, probability = find_mixture(errors, asked)
    table = {"rounds": [records[t].rounds for t in chosen], "probability": probability}
    return pd.DataFrame(table), np.asarray(probability @ asked[chosen])


def _prefixes(fit: ConstrainedFit, scores: ModelScores, rounds: int) -> list[Record]:
    """List the records of all prefixes on the training rows."""
    solver = fit.solver

    def statistics(upto: int) -> Any:
        return solver.lagrangian.at(scores.training(upto)).statistics()

    found = list_prefixes(solver, statistics(rounds), rounds)
    if fit.has_offset:  # the records were taken with the offset, which predict does not add
        before = [r.rounds for r in found[:-1]]
        found[:-1] = [make_record(solver, statistics(upto), upto) for upto in before]
    return found


def _held_out_prefixes(fit: ConstrainedFit, scores: ModelScores, rounds: int) -> list[Record]:
    """List the records of all prefixes on the rows that moved the multipliers."""
    measured = fit.measured
    assert measured.controller is not None
    assert measured.rows is not None
    leader = measured.controller.solver
    margin = scores.held_out(measured.rows, rounds)
    *before, whole = list_prefixes(leader, leader.lagrangian.at(margin).statistics(), rounds)
    # The others were to meet the bounds that the iteration before them had aimed at.
    start = before[-1] if before else leader.history[0]
    whole = replace(whole, bounds=measured.controller.bounds_after(start))
    measured.rows.functionals_in[rounds] = whole.functionals
    return [*before, whole]


# --- what is known of the model ---------------------------------------------------------------


def _measure_evaluation_set(
    fit: ConstrainedFit, scores: ModelScores, model: FinalModel, held: EvaluationSet
) -> FinalModel:
    """Measure an evaluation set at the scores of the returned model."""
    is_last = held is fit.evaluation_sets[-1]
    if not (is_last or model.rounds not in held.functionals_in or model.shift.any()):
        return model
    final = _scores(fit, scores.held_out(held, model.rounds), model.shift)
    # Rows that moved the multipliers report if nothing was chosen by them.
    is_evidence = held is not fit.measured.rows or model.choice is None
    if fit.run.certification is not None or not is_evidence or model.prefixes is not None:
        is_last = False
    if not is_last:
        statistics = final.statistics(held.lagrangian)
        held.functionals_in[model.rounds] = held.compiled.functionals(statistics)
        return model
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
    return replace(model, outcome=outcome, too_few_rows=tuple(few))


def _is_refutable(fit: ConstrainedFit, model: FinalModel) -> bool:
    """Whether fold boosters, and not the model itself, gave the verdicts."""
    return (
        fit.measured.boosters is not None
        and fit.run.certification is None
        and model.feasibility is not None
    )


def _find_seen(fit: ConstrainedFit, rounds: int) -> Record | None:
    """Find the record of a model that an outer iteration began with.

    None if there is none, or if the record is not what the report is of.
    """
    if not fit.is_divisible or fit.has_offset or fit.options.method.outlier_clip is not None:
        return None
    return find_record(fit.solver, rounds)


def _describe_mixture(
    fit: ConstrainedFit, model: FinalModel, scores: ModelScores, final: Scores
) -> FinalModel:
    """Average rates, error and verdicts over the prefixes of a randomised classifier."""
    prefixes, rounds = model.prefixes, model.rounds
    assert prefixes is not None
    assert model.record is not None
    records = {r.rounds: r for r in _prefixes(fit, scores, rounds)}
    functionals = _average({t: r.functionals for t, r in records.items()}, prefixes)
    errors = np.array([records[t].error for t in prefixes["rounds"]])
    error = float(prefixes["probability"].to_numpy() @ errors)
    record = replace(model.record, functionals=functionals, error=error)
    model = replace(model, record=record, functionals=functionals)
    # Each once, since the mean takes the place of a value that it is made of.
    driving = [] if fit.measured.rows is None else [fit.measured.rows]
    for held in {*fit.evaluation_sets, *driving}:
        held.functionals_in[rounds] = _average(held.functionals_in, prefixes)

    def count_held_out(held: EvaluationSet) -> CellCounts:
        return _average_counts(
            prefixes, lambda upto: held.counts(held.decisions(scores.held_out(held, upto)))
        )

    outcomes = [
        model.layout.lay_out(Outcome.of_mean(held, rounds, count_held_out(held)))
        for held in reporting_rows(fit)
    ]
    if outcomes:
        outcome = outcomes[0].complete_by(outcomes[-1], model.layout.compiled)
        model = replace(model, outcome=outcome)
    if model.is_judged_by_training:
        lagrangian, cells = fit.solver.lagrangian, fit.problem.cells
        counts = _average_counts(
            prefixes,
            lambda upto: CellCounts.of_shares(
                cells, lagrangian.at(scores.training(upto)).statistics().predicted
            ),
        )
        evidence = TrainingEvidence(fit.run, fit.measured)
        model = _with_intervals(model, *find_intervals(evidence, counts, functionals))
    return model


def _average_counts(prefixes: pd.DataFrame, counts: Callable[[int], CellCounts]) -> CellCounts:
    """Average the counted decisions of prefixes."""
    tables = [counts(rounds) for rounds in prefixes["rounds"]]
    share = prefixes["probability"].to_numpy()
    means = (
        np.tensordot(share, np.stack([getattr(table, name) for table in tables]), axes=1)
        for name in ("weight", "square", "count")
    )
    return CellCounts(*means)


def _with_intervals(model: FinalModel, intervals: Float, few: Sequence[TooFewRows]) -> FinalModel:
    """Add what the training rows say where no held-out rows do."""
    few = (*model.too_few_rows, *few)
    return replace(model, training_intervals=intervals, too_few_rows=few)


def _scores(fit: ConstrainedFit, margin: Array, shift: Float) -> Scores:
    """Scores under the model returned: the shift is folded in, or kept beside the model."""
    return Scores.of(margin, shift, beside=fit.options.probabilities == "calibrated")


def _average(functionals: Mapping[int, Float], prefixes: pd.DataFrame) -> Float:
    """Rates of a randomised classifier: the mean over its prefixes."""
    stacked = np.array([functionals[rounds] for rounds in prefixes["rounds"]])
    return np.asarray(prefixes["probability"].to_numpy() @ stacked)
