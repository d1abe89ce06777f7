"""Values of constraints by period, at the decisions that were chosen on later periods."""

from __future__ import annotations

import pandas as pd

from gbm_constrained.data.times import Period
from gbm_constrained.decision.outcome import score_decisions
from gbm_constrained.evaluation.periods import period_frame
from gbm_constrained.training.decision_choice import final_scores
from gbm_constrained.training.final_model import FinalModel
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.model_scores import ModelScores


def report_periods(
    fit: ConstrainedFit, scores: ModelScores, model: FinalModel
) -> pd.DataFrame | None:
    """Tabulate the constraints in each held-out period, at the shift that all folds share.

    There is no table without periods, or of a randomised classifier.
    """
    held, given = fit.measured.rows, fit.data.given_folds
    if held is None or given is None or not given.periods or model.choice is None:
        return None
    margin = scores.held_out(held, model.choice.rounds)
    final = final_scores(fit, margin, model.choice.shift)
    decisions = held.decisions(final.for_decisions)
    scored = score_decisions(held.lagrangian, held.compiled, final, decisions)
    rows = fit.data.rows.take(given.held)
    periods = [
        Period(positions, period.first, period.last)
        for positions, period in zip(held.folds, given.periods, strict=True)
    ]
    return period_frame(rows, fit.problem.compiled, scored, periods)
