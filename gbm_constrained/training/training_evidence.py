"""What the training rows say of the model that is returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.decision.refit_transfer import (
    correct_training_values,
    find_refit_violations,
    refit_violation,
)
from gbm_constrained.decision.rule import Choice, Scores, shift_scores
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.evaluation.sample_size import TooFewRows, find_too_few_rows
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.intervals import constraint_intervals, functional_intervals
from gbm_constrained.statistics.loss_intervals import LossIntervals
from gbm_constrained.training.growth import measure_optimism
from gbm_constrained.training.measurement import Measured
from gbm_constrained.training.model_scores import ModelScores
from gbm_constrained.training.run import FitRun


@dataclass(frozen=True, eq=False)
class TrainingEvidence:
    """The fit whose training rows are looked at.

    Parameters
    ----------
    run : FitRun
        The fit.
    measured : Measured
        What was measured before the model was trained.
    """

    run: FitRun
    measured: Measured

    def optimism_after(self, rounds: int) -> Float | None:
        """Optimism of the fold boosters after some rounds, if the model is corrected by it."""
        optimism = self.measured.solver.optimism
        if optimism is None:
            return None
        return optimism(rounds // self.run.options.rounds_per_iteration)[0]


def find_refit_violation(
    evidence: TrainingEvidence, scores: ModelScores, rounds: int, shift: Float
) -> float:
    """Find the largest violation of a gap of error rates by the model of all rows."""
    solver, boosters = evidence.measured.solver, evidence.measured.boosters
    if solver.optimism is None or boosters is None:
        return 0.0
    problem = evidence.run.problem
    compiled, margin = problem.compiled, scores.training(rounds)
    statistics = solver.lagrangian.at(shift_scores(margin, shift)).statistics()
    functionals = compiled.functionals(statistics)
    optimism, _ = boosters.optimism(rounds // evidence.run.options.rounds_per_iteration)
    violation = refit_violation(compiled, problem.cells, functionals, optimism)
    return float(violation[solver.corrected].max(initial=0.0))


def refute_by_training_rows(
    evidence: TrainingEvidence,
    statistics: CellStatistics,
    record_functionals: Float,
    rounds: int,
    feasibility: Feasibility,
    choice: Choice,
) -> Feasibility:
    """Put verdicts in doubt that the model contradicts on its own training rows."""
    problem, unseen = evidence.run.problem, evidence.measured.rows
    assert unseen is not None
    counts = CellCounts.of_shares(problem.cells, statistics.predicted)
    compiled, optimism = problem.compiled, evidence.optimism_after(rounds)

    def optimism_of_decisions() -> Float:
        # By the shift of the model returned: reported are decisions at one shift for each fold.
        assert evidence.measured.boosters is not None
        return measure_optimism(evidence.run, evidence.measured.boosters, unseen, choice)

    broken = find_refit_violations(compiled, counts, optimism, optimism_of_decisions)
    values = correct_training_values(compiled, record_functionals, optimism)
    held_out = unseen.values(rounds)
    # But for those missed for the sake of a conflict.
    may_be_doubted: Bool = np.isfinite(held_out)
    if feasibility.conflict:
        may_be_doubted = np.asarray(compiled.is_satisfied(held_out), dtype=bool)
    return feasibility.add_training_evidence(values, broken & may_be_doubted)


def measure_training_rows(
    evidence: TrainingEvidence, statistics: CellStatistics, functionals: Float, scores: Scores
) -> tuple[Float, Sequence[TooFewRows]]:
    """Find the intervals of values on training rows, and rates over too few of them.

    Returns
    -------
    intervals : ndarray of shape (n_constraints, 2)
        Intervals of what the constraints bound.
    few : sequence of TooFewRows
        Rates over too few rows.
    """
    problem = evidence.run.problem
    counts = CellCounts.of_shares(problem.cells, statistics.predicted)
    if not problem.compiled.V.nnz:
        return find_intervals(evidence, counts, functionals)
    lagrangian = evidence.measured.solver.lagrangian
    decided = lagrangian.kernel.predict(scores.for_decisions).astype(np.intp)
    losses = lagrangian.at(scores.for_probabilities).losses()
    return find_intervals(evidence, counts, functionals, (decided, losses))


def find_intervals(
    evidence: TrainingEvidence,
    counts: CellCounts,
    functionals: Float,
    decided_and_losses: tuple[Codes, Float] | None = None,
) -> tuple[Float, Sequence[TooFewRows]]:
    """Find intervals and rates over too few rows, from counted decisions on training rows."""
    problem = evidence.run.problem
    cells, compiled = problem.cells, problem.compiled
    intervals = constraint_intervals(compiled, counts), functional_intervals(compiled, counts)
    if decided_and_losses is not None:
        decided, losses = decided_and_losses
        of_losses = LossIntervals(cells, compiled, decided, losses)
        intervals = of_losses.complete(functionals, *intervals)
    few = find_too_few_rows(cells, compiled, counts, functionals, *intervals)
    return intervals[0], few
