"""Values of constraints and metrics by period, of the decisions that reports count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.times import Period
from gbm_constrained.decision.affine import PredictedRows
from gbm_constrained.decision.evaluation_set import UNKNOWN
from gbm_constrained.decision.outcome import score_decisions
from gbm_constrained.evaluation.metric_value import MetricOnRows
from gbm_constrained.evaluation.periods import (
    PERIOD_COLUMNS,
    measure_decisions,
    measure_predictions,
    period_frame,
    plain_time,
    set_period_types,
)
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.sampled_intervals import Sampled
from gbm_constrained.training.decision_choice import final_scores
from gbm_constrained.training.final_model import FinalModel
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.metric_fit import MetricFit, MetricResult
from gbm_constrained.training.model_scores import ModelScores


def report_periods(
    fit: ConstrainedFit, scores: ModelScores, model: FinalModel
) -> pd.DataFrame | None:
    """Tabulate the constraints in each held-out period, by the decisions that are reported.

    There is no table without periods, or of a randomised classifier.
    """
    held, given, decided = fit.measured.rows, fit.data.given_folds, model.decided
    if held is None or given is None or not given.periods or decided is None:
        return None
    assert model.choice is not None
    margin = scores.held_out(held, model.choice.rounds)
    final = final_scores(fit, margin, replace(model, shift=model.choice.shift))
    scored = score_decisions(held.lagrangian, held.compiled, final, decided)
    rows = fit.data.rows.take(given.held)
    measure = measure_decisions(scored)
    return period_frame(rows, fit.problem.compiled, measure, given.held_periods)


def report_periods_of_numbers(
    fit: ConstrainedFit, held: PredictedRows, score: Array
) -> pd.DataFrame | None:
    """Tabulate the constraints of a regressor in each held-out period, at its final scores."""
    given = fit.data.given_folds
    if given is None or not given.periods:
        return None
    rows = fit.data.rows.take(given.held)
    measure = measure_predictions(held, score)
    return period_frame(rows, fit.problem.compiled, measure, given.held_periods)


def report_periods_of_metric(fit: MetricFit, result: MetricResult) -> pd.DataFrame | None:
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
    shares = result.chosen.shares

    def measure(
        index: Codes, cells: Cells, compiled: LinearConstraints, level: float
    ) -> tuple[Float, Float]:
        counts = CellCounts.of_probabilities(cells, shares[index])
        intervals = Sampled.of(compiled, counts, level).constraints
        return compiled.values(functionals_of(compiled, counts)), intervals

    frame = period_frame(rows, compiled, measure, periods)
    if fit.has_own_objective:
        return frame
    of_metric = _periods_of_metric(fit, rows, decided, periods)
    return set_period_types(pd.concat([frame, of_metric], ignore_index=True))


def _periods_of_metric(
    fit: MetricFit, rows: Rows, decided: Codes, periods: Sequence[Period]
) -> pd.DataFrame:
    """Tabulate the metric in each period, with intervals by the bootstrap of its rows."""
    metric, records = fit.problem.metric.metric, []
    for k, period in enumerate(periods):
        try:
            measured = MetricOnRows.of(metric, rows.take(period.rows), fit.options.positive)
            estimate = measured.estimate(decided[period.rows], 0.95)
        except ValueError:  # A class or a group of the metric has no row in the period.
            estimate = UNKNOWN
        records.append((
            str(metric), "", np.nan, k + 1, plain_time(period.first), plain_time(period.last),
            period.rows.size, *estimate, np.nan, np.nan, None,
        ))  # fmt: skip
    return set_period_types(pd.DataFrame(records, columns=list(PERIOD_COLUMNS)))
