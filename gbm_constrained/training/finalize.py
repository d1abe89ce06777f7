"""From a trained booster to the model that is returned, and to what rows say of it."""

from __future__ import annotations

from dataclasses import replace

from gbm_constrained._typing import Array
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.evaluation.sample_size import find_too_few_rows
from gbm_constrained.solvers.base import Record
from gbm_constrained.training.decision_choice import choose_decision, final_scores
from gbm_constrained.training.final_model import FinalModel
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.mixture import describe_mixture
from gbm_constrained.training.model_scores import ModelScores, TrainedModel
from gbm_constrained.training.period_report import report_periods
from gbm_constrained.training.records import find_record
from gbm_constrained.training.training_evidence import describe_training_rows, is_refutable


def finalize(
    fit: ConstrainedFit, trained: TrainedModel, rounds: int, margin: Array | None
) -> FinalModel:
    """Choose what is returned of a trained booster, and fold the decision into the booster.

    `rounds` are those of the whole ensemble, fewer than were trained after early stopping;
    `margin` are the scores of the training rows after these rounds, if they are known.
    """
    known = {} if margin is None or fit.has_offset else {rounds: margin}
    scores = ModelScores(trained, fit.measured, known)
    model = choose_decision(fit, scores, rounds)
    if model.offsets is not None:
        scores = scores.with_offsets(model.offsets, fit.data.rows)
    model = replace(model, periods=report_periods(fit, scores, model))
    for held in fit.evaluation_sets:
        model = _measure_evaluation_set(fit, scores, model, held)
    record = _find_sufficient_record(fit, model)
    # Scores of the booster before it is cut and shifted.
    final = None if record is not None else scores.training(model.rounds)
    if model.rounds != rounds:
        trained.truncate(model.rounds)
    if not model.affine.is_identity:
        trained.rescale(model.affine)
    is_folded = fit.options.probabilities != "calibrated"
    if model.shift.any() and is_folded:
        trained.add_to_margin(model.shift)
    if model.offsets is not None and model.has_offsets and is_folded:
        trained.add_to_groups(model.offsets)
    if final is None:
        assert record is not None
        model = replace(model, record=record, functionals=record.functionals)
    elif model.prefixes is not None:
        model = describe_mixture(fit, model, scores, final_scores(fit, final, model))
    else:
        model = describe_training_rows(fit, model, final_scores(fit, final, model))
    if fit.run.checkpoint is not None:
        fit.run.checkpoint.remove()
    return model


def _find_sufficient_record(fit: ConstrainedFit, model: FinalModel) -> Record | None:
    """Find the solver's record of the returned model, if the report needs nothing beside it.

    To score all training rows again takes as long as a fifth of a fit. Pair rates of a record are
    from bins of scores where rows are many
    (:meth:`gbm_constrained.problem.pair_rows.PairRows.tables`), and exact in all other reports.
    """
    is_changed = model.is_changed or model.prefixes is not None
    if is_changed or is_refutable(fit, model) or model.has_training_verdicts:
        return None
    if not fit.is_divisible or fit.has_offset or fit.options.method.outlier_clip is not None:
        return None
    return find_record(fit.solver, model.rounds)


def _measure_evaluation_set(
    fit: ConstrainedFit, scores: ModelScores, model: FinalModel, held: EvaluationSet
) -> FinalModel:
    """Measure an evaluation set at the scores of the returned model."""
    is_last = held is fit.evaluation_sets[-1]
    if not (is_last or model.rounds not in held.functionals_in or model.is_changed):
        return model
    final = final_scores(fit, scores.held_out(held, model.rounds), model)
    # Rows that moved the multipliers report if nothing was chosen by them.
    is_evidence = held is not fit.measured.rows or model.choice is None
    is_reported = is_last and is_evidence and model.prefixes is None
    if not is_reported or fit.run.certification is not None:
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
