"""The decision of a trained booster: the prefix and shift, or the mixture, that is returned."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from gbm_constrained._typing import Array, Codes
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.affine import Affine
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.group_shifts import GroupOffsets, choose_prefix_for_groups
from gbm_constrained.decision.guarantees import certify, conformal_bounds, control_risk
from gbm_constrained.decision.mixtures import find_best_prefix, find_last_prefix
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.decision.prefix_choice import Prefixes, choose_prefix, choose_with_room
from gbm_constrained.decision.probability_map import choose_map
from gbm_constrained.decision.refit_transfer import match_positive_rate, rows_to_match
from gbm_constrained.decision.rule import Choice, Scores, shift_scores
from gbm_constrained.evaluation.assessment import ReturnedModel, assess
from gbm_constrained.training.final_model import FinalModel
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.group_decisions import transfer_offsets
from gbm_constrained.training.mixture import choose_mixture, training_prefixes
from gbm_constrained.training.model_scores import ModelScores
from gbm_constrained.training.records import errors_and_violations
from gbm_constrained.training.report_layout import ReportLayout
from gbm_constrained.training.training_evidence import find_refit_violation


def choose_decision(fit: ConstrainedFit, scores: ModelScores, rounds: int) -> FinalModel:
    """Choose prefix, shift or mixture."""
    layout = ReportLayout(fit.problem.compiled, fit.evaluation_sets)
    model = FinalModel(rounds, np.zeros(fit.data.columns), layout)
    if fit.options.iterate == "randomized":
        prefixes, violations = choose_mixture(fit, scores, rounds)
        return replace(model, prefixes=prefixes, mixture_violations=violations)
    if fit.measured.rows is not None:
        model = _choose_by_held_out_rows(fit, scores, model, fit.measured.rows)
        return _transfer_shift(fit, scores, model)
    if fit.options.iterate == "best" or _may_swing(fit, rounds):
        return replace(model, rounds=_choose_prefix(fit, scores, rounds))
    return model


def final_scores(fit: ConstrainedFit, margin: Array, model: FinalModel) -> Scores:
    """Shift scores as the model does, which folds the shift in or keeps it beside.

    A map of probabilities leaves decisions as they are.
    """
    found = Scores.of(margin, model.shift, beside=fit.options.probabilities == "calibrated")
    if model.affine.is_identity:
        return found
    return found._replace(for_probabilities=model.affine(margin))


def _choose_by_held_out_rows(
    fit: ConstrainedFit, scores: ModelScores, model: FinalModel, held_out: EvaluationSet
) -> FinalModel:
    """Choose prefix and shift by the rows that moved the multipliers, or certify them."""
    options = fit.options
    scored = _score(scores, held_out)
    prefixes = options.prefixes(model.rounds)
    is_idle = not any(r.multipliers.any() for r in fit.solver.history)
    choice, decisions, offsets = _choose_shift(fit, scores, scored, prefixes, is_idle=is_idle)
    if offsets is not None:
        scores = scores.with_offsets(offsets, fit.data.rows)
        scored = _score(scores, held_out)
    reported, margin, bounds = held_out, scored.margins(choice.rounds), None
    decided = decisions
    if fit.run.certification is not None:
        reported = fit.run.certification
        certification = ScoredRows(reported, _score(scores, reported).margins)
        if options.guarantee == "expected":
            choice = control_risk(scored, certification, choice)
            bounds = conformal_bounds(reported.compiled, reported.cells)
        else:
            choice = certify(scored, certification, choice, prefixes, options.delta)
        margin = certification.margins(choice.rounds)
        decided = held_out.decisions(shift_scores(scored.margins(choice.rounds), choice.shift))
        decisions = reported.decisions(shift_scores(margin, choice.shift))
    affine = Affine() if fit.has_offset else choose_map(held_out, margin)
    model = replace(
        model, rounds=choice.rounds, shift=choice.shift, affine=affine, offsets=offsets
    )
    outcome = Outcome.of(reported, final_scores(fit, margin, model), decisions)
    is_unconstrained = is_idle and not model.is_shifted and choice.rounds == prefixes.rounds
    returned = ReturnedModel(choice, reported, decisions, outcome, bounds, is_unconstrained)
    stated = ScoredRows(held_out, scored.margins)
    feasibility = assess(stated, prefixes, returned, fit.measured.plain)
    held_out.functionals_in[choice.rounds] = outcome.functionals
    return replace(model, choice=choice, decided=decided, outcome=outcome, feasibility=feasibility)


def _choose_shift(
    fit: ConstrainedFit,
    scores: ModelScores,
    scored: ScoredRows,
    prefixes: Prefixes,
    *,
    is_idle: bool,
) -> tuple[Choice, Codes, GroupOffsets | None]:
    """Choose prefix and shift without regard to a guarantee, and decide the held-out rows.

    With thresholds of groups, their offsets come third.
    """
    held_out, rounds, groups = scored.rows, prefixes.rounds, fit.run.groups
    margin = scored.margins(rounds)
    decisions = held_out.decisions(margin)
    # Errors decide about a threshold only if a constraint stands in the way of the model's own.
    is_at_rest = is_idle or not (prefixes.has_free_choice or fit.solver.multipliers.any())
    if is_at_rest and held_out.violations(margin).max(initial=0.0) <= ROUNDING:
        return Choice(rounds, np.zeros(fit.data.columns), np.nan, 0.0), decisions, groups
    if groups is not None:
        choice, groups, decisions = choose_prefix_for_groups(scored, prefixes, groups)
        return choice, decisions, groups
    refit_violation = functools.partial(find_refit_violation, fit, scores)
    choice = choose_prefix(
        scored, prefixes, refit_violation=refit_violation, found=held_out.choices
    )
    return *choose_with_room(held_out, scored.margins(choice.rounds), choice), None


def _score(scores: ModelScores, rows: EvaluationSet) -> ScoredRows:
    """Score held-out rows, whose groups act as far as they can, by prefix; each once."""
    margins = functools.cache(functools.partial(scores.held_out, rows))
    return ScoredRows(rows.credible, margins)


def _transfer_shift(fit: ConstrainedFit, scores: ModelScores, model: FinalModel) -> FinalModel:
    """Transfer shifts that were chosen on the folds to the model of all rows.

    Shifts stay as they are where some rows are never held out, such as those of an early period.
    """
    boosters, cells = fit.measured.boosters, fit.problem.cells
    if boosters is None or boosters.compared:
        return model
    if fit.run.certification is not None or not model.is_shifted:
        return model
    matched = rows_to_match(fit.problem.compiled, cells)
    if matched is None:
        return model
    of_folds, margin = boosters.scores(model.rounds), scores.training(model.rounds)
    if model.offsets is None:
        shift = match_positive_rate(of_folds, model.shift, margin, matched, cells)
        return replace(model, shift=shift)
    shift, offsets = transfer_offsets(of_folds, model.shift, model.offsets, margin, matched, cells)
    return replace(model, shift=shift, offsets=offsets)


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
    records = training_prefixes(fit, scores, rounds)
    errors, violations = errors_and_violations(records)
    is_best = fit.options.iterate == "best"
    chosen = find_best_prefix(errors, violations) if is_best else find_last_prefix(violations)
    return records[chosen].rounds
