"""Rates of the returned model on its own training rows, and what they say of its verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.decision.outcome import score_decisions
from gbm_constrained.decision.refit_transfer import (
    correct_training_values,
    find_refit_violations,
    refit_violation,
)
from gbm_constrained.decision.rule import Scores, shift_scores
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.evaluation.sample_size import TooFewRows, find_too_few_rows
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.sampled_intervals import Sampled, ScoredDecisions
from gbm_constrained.training.final_model import FinalModel
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.growth import measure_optimism
from gbm_constrained.training.model_scores import ModelScores
from gbm_constrained.training.records import make_record


def describe_training_rows(fit: ConstrainedFit, model: FinalModel, final: Scores) -> FinalModel:
    """Measure the training rows at the final scores, and set them against the verdicts."""
    model, statistics = add_record(fit, model, final)
    if is_refutable(fit, model):
        model = replace(model, feasibility=_refute(fit, model, statistics))
    if model.has_training_verdicts:
        counts = CellCounts.of_shares(fit.problem.cells, statistics.predicted)
        decided = fit.solver.lagrangian.kernel.predict(final.for_decisions).astype(np.intp)
        lagrangian, compiled = fit.solver.lagrangian, fit.problem.compiled
        scored = score_decisions(lagrangian, compiled, final, decided)
        found = find_intervals(fit, model, counts, scored)
        model = model.with_training_intervals(*found)
    return model


def add_record(
    fit: ConstrainedFit, model: FinalModel, final: Scores
) -> tuple[FinalModel, CellStatistics]:
    """Add record and rates of the training rows at the final scores; return statistics, too."""
    statistics = final.statistics(fit.solver.lagrangian)
    # Reports are of losses in full, whatever the solver clips them at.
    in_full = replace(statistics, clipped_loss=statistics.loss)
    record = make_record(fit.solver, statistics, model.rounds)
    functionals = fit.problem.compiled.functionals(in_full)
    return replace(model, record=record, functionals=functionals), statistics


def is_refutable(fit: ConstrainedFit, model: FinalModel) -> bool:
    """Whether the fold boosters gave the verdicts, rather than the model itself.

    Training rows that are never held out, such as those of an early period, contradict no verdict.
    """
    return (
        fit.measured.boosters is not None
        and not fit.measured.boosters.compared
        and fit.run.certification is None
        and model.feasibility is not None
    )


def find_refit_violation(
    fit: ConstrainedFit, scores: ModelScores, rounds: int, shift: Float
) -> float:
    """Find the largest violation of a gap of error rates by the model of all rows."""
    solver, boosters = fit.solver, fit.measured.boosters
    if solver.optimism is None or boosters is None:
        return 0.0
    compiled, margin = fit.problem.acting, scores.training(rounds)
    statistics = solver.lagrangian.at(shift_scores(margin, shift)).statistics()
    functionals = compiled.functionals(statistics)
    optimism, _ = boosters.optimism(rounds // fit.options.rounds_per_iteration)
    counts = CellCounts.of_shares(fit.problem.cells, statistics.predicted)
    violation = refit_violation(compiled, counts, functionals, optimism)
    return float(violation[solver.corrected].max(initial=0.0))


def _refute(fit: ConstrainedFit, model: FinalModel, statistics: CellStatistics) -> Feasibility:
    """Put verdicts in doubt that the model contradicts on its own training rows."""
    problem, measured, choice = fit.problem, fit.measured, model.choice
    boosters, held_out = measured.boosters, measured.rows
    assert held_out is not None
    assert boosters is not None
    assert choice is not None
    assert model.feasibility is not None
    assert model.functionals is not None
    optimism = None
    if fit.solver.optimism is not None:
        optimism, _ = fit.solver.optimism(model.rounds // fit.options.rounds_per_iteration)
    broken = find_refit_violations(
        problem.compiled,
        CellCounts.of_shares(problem.cells, statistics.predicted),
        optimism,
        # By the shift of the model returned: reported are decisions at one shift for each fold.
        lambda: measure_optimism(fit.run, (boosters, held_out), choice, model.offsets),
    )
    values = held_out.values(model.rounds)
    may_be_doubted = np.isfinite(values)
    if model.feasibility.conflict:  # Constraints that are missed for a conflict stay missed.
        may_be_doubted = np.asarray(problem.compiled.is_satisfied(values), dtype=bool)
    corrected = correct_training_values(problem.compiled, model.functionals, optimism)
    return model.feasibility.add_training_evidence(corrected, broken & may_be_doubted)


def find_intervals(
    fit: ConstrainedFit,
    model: FinalModel,
    counts: CellCounts,
    scored: ScoredDecisions | None = None,
) -> tuple[Float, tuple[TooFewRows, ...]]:
    """Find intervals of values on training rows, (n_constraints, 2), and rates over too few."""
    cells, compiled, functionals = fit.problem.cells, fit.problem.compiled, model.functionals
    assert functionals is not None
    sampled = Sampled.of(compiled, counts)
    if scored is not None:
        sampled = sampled.complete(cells, compiled, functionals, scored)
    few = find_too_few_rows(cells, compiled, counts, functionals, *sampled)
    return sampled.constraints, tuple(few)
