"""The last stages of a regressor's fit: scale and shift, and what rows say of the model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.decision.affine import NORMAL, Affine, AffineChoice, PredictedRows
from gbm_constrained.decision.affine_guarantees import (
    CertifiedAffine,
    certify_affine,
    check_observed,
)
from gbm_constrained.decision.evaluation_set import UNKNOWN, Estimate, PlainModel
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.evaluation.assessment import FRAGILE_GAIN
from gbm_constrained.evaluation.constraint_result import ConstraintResult
from gbm_constrained.evaluation.costs import Cost, measure_cost_of_numbers
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.evaluation.messages import describe_missing_guarantee
from gbm_constrained.evaluation.periods import drifting
from gbm_constrained.evaluation.regression_audit import determination
from gbm_constrained.evaluation.report_tables import (
    constraints_frame,
    costs_frame,
    groups_frame,
    history_frame,
    small_groups_frame,
)
from gbm_constrained.evaluation.sample_size import rows_of_constraint, rows_of_smallest_group
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS, Verdict
from gbm_constrained.solvers.base import Record
from gbm_constrained.statistics.sampled_intervals import Sampled
from gbm_constrained.training.group_decisions import tabulate_shifts
from gbm_constrained.training.model_scores import ModelScores, TrainedModel
from gbm_constrained.training.period_report import report_periods_of_numbers
from gbm_constrained.training.regression import RegressionFit
from gbm_constrained.training.report_layout import ReportLayout

IDENTITY = AffineChoice(Affine(), np.nan, np.zeros(0))


@dataclass(frozen=True, eq=False)
class FinalRegressor:
    """The regressor that a fit returns.

    Parameters
    ----------
    affine : Affine
        Scale and shift of its scores.
    record : Record
        State of the solver at the model, with values on the training rows.
    rows : PredictedRows
        Rows that are reported.
    score : ndarray of shape (n_samples,)
        Scores of these rows.
    others : tuple of PredictedRows and ndarray, or None, default=None
        Further held-out rows and their scores. Constraints that the reported rows measure less
        completely are reported by these.
    offsets : GroupOffsets or None, default=None
        What is added to the scores of each group, if groups may decide.
    certified : CertifiedAffine or None
        P-values of the constraints on these rows; None without a guarantee.
    periods : DataFrame or None
        Values of the constraints by period, if the held-out rows are of several.
    cost : Cost
        What the constraints cost on the held-out rows that chose the model.
    """

    affine: Affine
    record: Record
    rows: PredictedRows
    score: Array
    others: tuple[PredictedRows, Array] | None = None
    offsets: GroupOffsets | None = None
    certified: CertifiedAffine | None = None
    periods: pd.DataFrame | None = None
    cost: Cost = field(default_factory=Cost)


def finalize_regression(
    fit: RegressionFit, trained: TrainedModel, rounds: int, margin: Array | None
) -> FinalRegressor:
    """Choose the map of a trained booster's scores, and measure the model on all rows.

    `rounds` are those of the whole ensemble; `margin` are the scores of the training rows after
    these rounds, if they are known.
    """
    known = {} if margin is None or fit.has_offset else {rounds: margin}
    scores = ModelScores(trained, fit.measured, known)
    choice, measured = IDENTITY, fit.measured.rows
    held_out: tuple[PredictedRows, Array] | None = None
    others = None
    certification, certified, periods = fit.run.certification, None, None
    cost = Cost()
    if isinstance(measured, PredictedRows):
        score = scores.held_out(measured, rounds)
        if isinstance(certification, PredictedRows):
            unseen = certification, scores.held_out(certification, rounds)
            check_observed(*unseen)
            has_scale = fit.run.library.has_scale
            certified = certify_affine(
                (measured, score), unseen, fit.options.delta, has_scale=has_scale
            )
            choice = IDENTITY._replace(affine=certified.affine)
        else:
            choice = measured.choices.get(rounds) or fit.run.choose_map(measured.credible, score)
        held_out = others = measured, choice.apply(score, measured.cells.rows)
        periods = report_periods_of_numbers(fit, *held_out)
        if measured.plain_score is not None:
            cost = measure_cost_of_numbers(*held_out)
    for rows in fit.evaluation_sets:  # The last one is reported, if there is any.
        assert isinstance(rows, PredictedRows)
        held_out = rows, choice.apply(scores.held_out(rows, rounds), rows.cells.rows)
        rows.measure(rounds, held_out[1])
    if certified is not None:  # Verdicts are by the rows of the certificate.
        held_out = unseen[0], choice.apply(unseen[1], unseen[0].cells.rows)
        others = None
    training = choice.apply(scores.training(rounds), fit.data.rows)
    model = describe_regressor(fit, choice.affine, rounds, training, held_out)
    return replace(
        model,
        others=others,
        offsets=choice.offsets,
        certified=certified,
        periods=periods,
        cost=cost,
    )


def describe_regressor(
    fit: RegressionFit,
    affine: Affine,
    rounds: int,
    training: Array,
    held_out: tuple[PredictedRows, Array] | None = None,
) -> FinalRegressor:
    """Measure a model by the scores of its training rows, and of held-out rows, if any."""
    solver = fit.solver
    lagrangian, compiled = solver.lagrangian, fit.problem.compiled
    statistics = lagrangian.at(training).exact_statistics()
    functionals = compiled.functionals(statistics)
    record = Record(
        iteration=len(solver.history),
        rounds=rounds,
        objective=lagrangian.objective(statistics),
        error=np.nan,
        rates=compiled.rows_of(functionals),
        functionals=functionals,
        bounds=solver.bounds,
        multipliers=solver.multipliers,
        bregman=np.nan,
        seconds=solver.elapsed,
    )
    if held_out is None:
        held_out = fit.training_rows(), training
    return FinalRegressor(affine, record, *held_out)


def report_regressor(
    estimator: Any, fit: RegressionFit, model: FinalRegressor, rounds: int | None = None
) -> Feasibility:
    """Set the fitted attributes that report on the constraints, and return the verdicts.

    `rounds` are those that were trained; by default those of the solver.
    """
    compiled, record, rows = fit.problem.compiled, model.record, model.rows
    layout = ReportLayout(compiled, fit.evaluation_sets)
    outcome = _measure(rows, model.score)
    spread, is_training = layout.spread(record.functionals), rows.source == TRAINING_ROWS
    if model.others is not None:
        outcome = outcome.complete_by(layout.lay_out(_measure(*model.others)), layout.compiled)
    elif not is_training and model.certified is None:  # No other rows but those of the trees.
        outcome = outcome.leave_out_incomplete(spread, layout.compiled)
    uncertified, p_value, level = _read_certificate(model, rows)
    doubt = describe_missing_guarantee("high_probability") if uncertified else ""
    results = _assess(fit, layout, outcome, model, doubt)
    drift = () if model.periods is None else drifting(model.periods)
    feasibility = Feasibility(
        uncertified, results, (), (), np.nan, None, np.nan, np.nan, rows.source,
        rows.cells.n_rows, p_value, level,
        drifting=tuple(result for result in results if str(result.constraint) in drift),
        rounds_trained=fit.solver.rounds if rounds is None else rounds,
        rounds_asked=fit.run.library.n_rounds,
        is_fragile=_is_fragile(model.cost), cost=model.cost, plain=fit.measured.plain,
    )  # fmt: skip
    laid_out = None if is_training else layout.lay_out(outcome)
    verdicts = [result.verdict for result in results]
    estimator.constraint_report_ = constraints_frame(
        layout.compiled, spread, record.multipliers, laid_out, verdicts
    )
    mean_loss = rows.measure_scores(model.score)[0]
    estimator.cost_report_ = costs_frame(
        compiled.names,
        "loss",
        PlainModel(mean_loss, layout.values(outcome)),
        _describe_plain(rows),
        rows.source,
    )
    estimator.group_report_ = groups_frame(layout.compiled, spread, laid_out)
    estimator.small_groups_ = small_groups_frame(compiled)
    estimator.history_ = _make_history(fit, record, layout.values(outcome), outcome.sources)
    estimator.feasibility_ = feasibility
    if model.periods is not None:
        estimator.period_report_ = model.periods
    estimator.stopping_message_ = fit.notifier.message
    estimator.unseen_r2_ = UNKNOWN if is_training else _determination(rows, model.score)
    estimator.adjustment_ = model.affine.as_series()
    if (offsets := model.offsets) is not None:
        groups, shift = offsets.groups_of(fit.data.rows), np.array([model.affine.shift])
        estimator.group_shifts_ = tabulate_shifts(shift, offsets, groups)
    found = pd.Series(record.multipliers, list(compiled.rows), name="multiplier")
    estimator.multipliers_ = found.reindex(compiled.all_rows, fill_value=0.0)
    return feasibility


def _describe_plain(rows: PredictedRows) -> PlainModel | None:
    """Describe the model without constraints by the rows that know its scores."""
    if rows.plain_score is None:
        return None
    statistics = rows.lagrangian.at(rows.plain_score).exact_statistics()
    values = rows.compiled.values(rows.compiled.functionals(statistics))
    return PlainModel(float(statistics.loss[0]), values)


def _is_fragile(cost: Cost) -> bool:
    """Whether constraints cost most of what a model explains beyond the mean target."""
    gain, left = 1.0 - cost.unconstrained_error, 1.0 - cost.error
    return bool(gain > 2.0 * cost.noise and cost.is_costly and left < FRAGILE_GAIN * gain)


def _read_certificate(
    model: FinalRegressor, rows: PredictedRows
) -> tuple[tuple[Constraint, ...], float, float]:
    """Find the constraints without their certificate, and its p-value and level, if any."""
    certified = model.certified
    if certified is None:
        return (), np.nan, np.nan
    missing = np.flatnonzero(certified.p_values > certified.level)
    found = tuple(rows.compiled.constraints[j] for j in missing)
    return found, float(certified.p_values.max()), certified.level


def _measure(rows: PredictedRows, score: Array) -> Outcome:
    """Measure the constraints by the scores of rows."""
    functionals, intervals, of_functionals = rows.intervals(score)
    sources = np.full(len(rows.compiled.constraints), rows.source, dtype=object)
    sampled = Sampled(intervals, of_functionals)
    return Outcome(functionals, intervals, of_functionals, sources, sampled)


def _assess(
    fit: RegressionFit, layout: ReportLayout, outcome: Outcome, model: FinalRegressor, doubt: str
) -> tuple[ConstraintResult, ...]:
    """Assess each constraint by the rows that measure it, training rows where no others do."""
    values = layout.values(outcome)
    on_training = fit.problem.compiled.values(model.record.functionals)
    known = [model.rows, *([] if model.others is None else model.others[:1])]
    results = []
    for j, constraint in enumerate(fit.problem.constraints):
        rows = next(rows for rows in known if rows.source == outcome.sources[j])
        estimate = Estimate(float(values[j]), *map(float, outcome.intervals[j]))
        if np.isnan(values[j]):
            rows, estimate = fit.training_rows(), Estimate(float(on_training[j]), np.nan, np.nan)
        n = rows_of_constraint(rows.cells, rows.compiled, j)
        left_out = rows.compiled.left_out(j)
        verdict = Verdict.of(constraint, estimate, n, rows.source, doubt=doubt, left_out=left_out)
        smallest = rows_of_smallest_group(rows.cells, rows.compiled, j, None)
        results.append(ConstraintResult(constraint, *estimate, smallest, verdict))
    return tuple(results)


def _determination(rows: PredictedRows, score: Array) -> Estimate:
    """Estimate R^2 on rows, with a normal interval of the mean squared loss."""
    problem = rows.lagrangian.rows
    square = (rows.targets - rows.objective.predict(np.asarray(score, np.float64))) ** 2
    weight = problem.objective_weight / problem.total_weight
    loss = float(weight @ square)
    half = NORMAL * float(np.sqrt(weight**2 @ (square - loss) ** 2))
    return determination(Estimate(loss, loss - half, loss + half), problem.scale)


def _make_history(
    fit: RegressionFit, final: Record, values: Float, sources: NDArray[np.object_]
) -> pd.DataFrame:
    """Make a table with one row per outer iteration, and a last one for the returned model.

    `values` are those of the constraints under that model, on rows with the names `sources`.
    """
    records = [r for r in fit.solver.history if r.rounds < final.rounds]
    records.append(final)
    held_out: Float | None = None
    if known := fit.reporting_rows:
        tables = [np.array([rows.values(r.rounds) for r in records]) for rows in known]
        held_out = np.where(sources == known[-1].source, tables[-1], tables[0])
        held_out[-1] = values
    table = history_frame(records, fit.solver.lagrangian.constraints, held_out)
    return table.drop(columns="error")
