"""Fitted attributes of a fit whose objective is a metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.selectors import to_python_scalar
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.evaluation_set import UNKNOWN, Estimate, PlainModel
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.decision.refit_transfer import find_training_violations
from gbm_constrained.evaluation.assessment import is_hardly_better
from gbm_constrained.evaluation.constraint_result import ConstraintResult
from gbm_constrained.evaluation.costs import MAX_EXCESS_ERROR, Cost
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.evaluation.periods import drifting
from gbm_constrained.evaluation.report_tables import (
    constraints_frame,
    costs_frame,
    groups_frame,
    small_groups_frame,
)
from gbm_constrained.evaluation.sample_size import find_too_few_rows, rows_of_constraint
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS, Verdict, reaches_within
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.intervals import constraint_intervals
from gbm_constrained.statistics.worst_intervals import level_of_all
from gbm_constrained.training.metric_fit import MetricFit, MetricResult
from gbm_constrained.training.metric_sets import EvaluationProblem, MetricMargin, tabulate_sets
from gbm_constrained.training.metric_sets_search import measure_groups
from gbm_constrained.training.period_report import report_periods_of_metric

MAX_GAP = 1e-3
"""Distance of a loss from its bound that is no matter: a tenth of the standard error of a rate of
0.5 over 2,500 rows."""


def report_metric(
    estimator: Any,
    fit: MetricFit,
    result: MetricResult,
    margin: MetricMargin,
    of_training: Array,
    sets: Sequence[EvaluationProblem] = (),
) -> Feasibility:
    """Set the fitted attributes that report on the metric and the constraints.

    Parameters
    ----------
    estimator : classifier
        The classifier that is given the attributes.
    fit : MetricFit
        The fit.
    result : MetricResult
        The decision rules.
    margin : callable
        Scores, of the booster that decides, of the rows of a table.
    of_training : ndarray
        The same scores of the training rows.
    sets : sequence of EvaluationProblem, default=()
        The evaluation sets.
    """
    on_training = result.shares(of_training)
    table = _tabulate_metric(fit, result, on_training)
    estimator.metric_report_ = tabulate_sets(table, result, sets, margin)
    estimator.mixture_ = _tabulate_rules(fit, result)
    estimator.history_ = _tabulate_history(fit, result)
    estimator.achieved_rates_ = _tabulate_rates(fit, result)
    feasibility = _report_constraints(estimator, fit, result, on_training)
    periods = report_periods_of_metric(fit, result)
    if periods is not None:
        estimator.period_report_ = periods
        drift = drifting(periods)
        found = tuple(rule for rule in feasibility.rules if str(rule.constraint) in drift)
        feasibility = replace(feasibility, drifting=found)
    estimator.feasibility_ = feasibility
    estimator.stopping_message_ = fit.notifier.message
    return feasibility


def warn_of_metric(fit: MetricFit, result: MetricResult, feasibility: Feasibility) -> None:
    """Warn or raise where constraints are violated, or the optimum is a local one.

    Raises
    ------
    InfeasibleConstraintsError
        If no decision satisfies the constraints, with ``on_infeasible="raise"``.
    """
    found = result.exact
    is_early = found is not None and found.status == "limit" and not fit.notifier.is_search_over
    if found is not None and is_early and found.value - found.bound > MAX_GAP:
        gap = (found.value - found.bound) * fit.problem.loss.unit
        issue_warning(
            f"solver={fit.options.solver!r} ended before the optimum of "
            f"{fit.problem.metric.metric} was certain, {gap:.2g} above its bound: use "
            f"solver='columns', or 'auto'.",
            "GC120",
        )
    feasibility.warn(raises=fit.options.on_infeasible == "raise")


def _tabulate_metric(fit: MetricFit, result: MetricResult, on_training: Float) -> pd.DataFrame:
    """Tabulate the metric of each candidate on held-out rows, and of the one returned."""
    problem = fit.problem
    chosen = result.chosen
    everyone = problem.on(np.arange(len(problem.data.rows)))
    counts = problem.joint.count_shares(on_training, problem.data.rows.weight)
    u = everyone.functionals(counts[None])[0]
    value = problem.metric.function(u[problem.loss.at])
    returned_as = (chosen.oracle, chosen.name)
    is_returned = [(one.oracle, one.name) == returned_as for one in result.candidates]
    rows = [
        (chosen if is_chosen else candidate, is_chosen)
        for candidate, is_chosen in zip(result.candidates, is_returned, strict=True)
    ]
    table = pd.DataFrame(
        {
            "oracle": [candidate.oracle for candidate, _ in rows],
            "decisions": [candidate.name for candidate, _ in rows],
            "held_out": [candidate.value for candidate, _ in rows],
            "low": [candidate.low for candidate, _ in rows],
            "high": [candidate.high for candidate, _ in rows],
            "violation": [candidate.violation for candidate, _ in rows],
            "n_rules": [len(candidate.costs) for candidate, _ in rows],
            "rows": result.source,
            "is_returned": [is_chosen for _, is_chosen in rows],
        }
    )
    table.insert(0, "metric", str(problem.metric.metric))
    returned = table["is_returned"]
    table["train"] = np.where(returned, value, np.nan)
    if result.source == TRAINING_ROWS:
        table["train"] = np.where(returned, value, table["held_out"])
        table[["held_out", "low", "high"]] = np.nan
    table["bound"] = np.where(returned, result.bound, np.nan)
    table["mixture"] = np.where(returned, result.mixed_value, np.nan)
    return table


def _tabulate_rules(fit: MetricFit, result: MetricResult) -> pd.DataFrame:
    """Tabulate the rules that decisions are drawn from."""
    classes = fit.problem.data.classes.tolist()
    records = []
    for rule, probability in zip(result.rules, result.chosen.probability, strict=True):
        weights = rule.class_weights
        of_classes = dict(
            zip(
                classes, np.full(len(classes), np.nan) if weights is None else weights, strict=True
            )
        )
        records.append({"probability": probability, **{f"weight[{k}]": w for k, w in
                                                       of_classes.items()}})  # fmt: skip
    return pd.DataFrame(records)


def _tabulate_rates(fit: MetricFit, result: MetricResult) -> pd.DataFrame:
    """Tabulate rates on held-out rows: of the rules found, of candidates, and of decisions."""
    problem, held = fit.problem, result.held
    of_oracle = [one for one in result.candidates if one.oracle == result.chosen.oracle]
    decided = {candidate.name: candidate.shares for candidate in of_oracle}
    decided["returned"] = result.chosen.shares
    counts = [
        problem.joint.count_shares(shares, held.weight, held.rows) for shares in decided.values()
    ]
    pool = result.solution.pool * problem.units
    found = np.vstack([pool, held.functionals(np.array(counts))])
    table = pd.DataFrame(found, columns=held.compiled.functional_names)
    table.insert(0, "decisions", ["pool"] * len(result.solution.pool) + [*decided])
    return table


def _tabulate_history(fit: MetricFit, result: MetricResult) -> pd.DataFrame:
    """Tabulate the calls of the oracle; it is inexact by labels, where no bound holds."""
    loss = fit.problem.loss
    of_model = () if result.exact is None else result.exact.history
    counted = [*(("probabilities", step) for step in of_model),
               *(("labels", step) for step in result.solution.history)]  # fmt: skip
    is_bound = [name == "probabilities" for name, _ in counted]
    bounds = np.array([loss.to_metric(step.bound) for _, step in counted])
    return pd.DataFrame(
        {
            "call": np.arange(1, len(counted) + 1),
            "counted_by": [name for name, _ in counted],
            "value": [loss.to_metric(step.value) for _, step in counted],
            "bound": np.where(is_bound, bounds, np.nan),
            "violation": [step.violation for _, step in counted],
            "seconds": [step.seconds for _, step in counted],
        }
    )


def _report_constraints(
    estimator: Any, fit: MetricFit, result: MetricResult, on_training: Float
) -> Feasibility:
    """Set the reports on the constraints, and assess each one."""
    problem, held = fit.problem, result.held
    constraints = fit.options.constraints
    cells, compiled = compile_constraints(constraints, problem.data.rows)
    held_cells = cells.take(held.rows, held.factor)
    held_compiled = compiled.on(held_cells)
    training = Outcome.of_counts(
        compiled, CellCounts.of_probabilities(cells, on_training), TRAINING_ROWS
    )
    counts = CellCounts.of_probabilities(held_cells, result.chosen.shares)
    outcome = Outcome.of_counts(held_compiled, counts, result.source)
    values = held_compiled.values(outcome.functionals)
    if result.chosen.is_chosen:
        outcome = replace(outcome, intervals=_widen(held_compiled, counts, outcome.intervals))
    conflict = _find_conflict(held_cells, held_compiled, result, outcome)
    few = find_too_few_rows(
        held_cells, held_compiled, counts, outcome.functionals, outcome.intervals,
        outcome.of_functionals,
    )  # fmt: skip
    results = []
    for j, constraint in enumerate(constraints):
        estimate = Estimate(float(values[j]), *map(float, outcome.intervals[j]))
        n_rows = rows_of_constraint(held_cells, held_compiled, j)
        doubt = next((rate.reason for rate in few if rate.constraint == constraint), "")
        verdict = Verdict.of(
            constraint, estimate, n_rows, result.source, doubt=doubt, conflict=conflict,
            left_out=held_compiled.left_out(j),
        )  # fmt: skip
        results.append(ConstraintResult(constraint, *estimate, n_rows, verdict))
    multipliers = np.zeros(len(compiled))
    accuracy, is_training = _accuracy(fit, result), result.source == TRAINING_ROWS
    estimator.unseen_accuracy_ = UNKNOWN if is_training else accuracy
    feasibility = Feasibility(
        conflict, tuple(results), tuple(few), (), 1.0 - float(accuracy),
        None, np.nan, np.nan, result.source, len(held.rows),
        plain=_measure_plain(result, held_cells, held_compiled),
    )  # fmt: skip
    feasibility = _add_costs(fit, result, feasibility)
    if (
        len(compiled) and result.source == "out of fold"
    ):  # Rows that are never held out contradict no verdict.
        is_broken = find_training_violations(
            compiled, CellCounts.of_probabilities(cells, on_training)
        )
        is_broken &= np.isfinite(values) & (not conflict or compiled.is_satisfied(values))
        trained = compiled.values(training.functionals)
        feasibility = feasibility.add_training_evidence(trained, is_broken)
    unseen = None if is_training else outcome
    estimator.constraint_report_ = constraints_frame(
        compiled, training.functionals, multipliers, unseen,
        [r.verdict for r in feasibility.rules],
    )  # fmt: skip
    estimator.cost_report_ = costs_frame(
        compiled.names,
        str(problem.metric.metric),
        PlainModel(result.chosen.value, values),
        feasibility.plain,
        result.source,
    )
    estimator.group_report_ = groups_frame(compiled, training.functionals, unseen)
    estimator.small_groups_ = small_groups_frame(compiled)
    return feasibility


def _measure_plain(
    result: MetricResult, cells: Cells, compiled: LinearConstraints
) -> PlainModel | None:
    """Measure the class of the largest probability by boosters without multipliers or weights."""
    names = [(one.oracle, one.name) for one in result.candidates]
    if ("plug_in", "argmax") not in names:
        return None
    plain = result.candidates[names.index(("plug_in", "argmax"))]
    counts = CellCounts.of_probabilities(cells, plain.shares)
    return PlainModel(plain.value, compiled.values(functionals_of(compiled, counts)))


def _add_costs(fit: MetricFit, result: MetricResult, feasibility: Feasibility) -> Feasibility:
    """Add what the constraints cost, as a loss of the metric on the held-out rows.

    They should cost what decisions of each group by itself lose, on the scores of boosters that a
    fit without a metric grows, and elsewhere what the decisions lose that meet them in the
    distribution of the probabilities, if there are such decisions.
    """
    search, loss = result.search, fit.problem.loss
    has_boosters = result.booster_set is not None
    if search is None or not (result.exact or has_boosters) or not fit.problem.constraints:
        return feasibility
    own = search.loss(result.chosen)
    losses = {one.name: search.loss(one) for one in result.candidates[::-1]}
    unconstrained = min(losses.values())
    if has_boosters:
        needed = own
        if own - unconstrained > MAX_EXCESS_ERROR:
            needed = measure_groups(search, result.chosen)
    else:
        assert result.exact is not None
        needed = np.nan if result.exact.status == "infeasible" else losses["model"]
    constant, of_constant = search.find_constant()
    n_rows = len(result.held.rows)
    name = str(fit.problem.metric.metric)
    cost = Cost(
        own,
        needed,
        unconstrained,
        (result.chosen.high - result.chosen.low) / (2 * 1.96) / loss.unit,
        rows=f"{n_rows:,} unseen rows ({result.source})",
        objective=f"objective (1 - {name})" if loss.sign < 0.0 else f"objective ({name})",
        decisions="weights of the classes for each group"
        if has_boosters
        else "the best decisions by their probabilities",
    )
    return replace(
        feasibility,
        constant_class=None
        if constant is None
        else to_python_scalar(fit.problem.data.classes[constant]),
        constant_error=of_constant,
        free_error=unconstrained,
        is_fragile=is_hardly_better(own, of_constant, unconstrained, n_rows),
        cost=cost,
    )


def _widen(compiled: LinearConstraints, counts: CellCounts, intervals: Float) -> Float:
    """Widen the intervals of the worst of many for decisions that the rows have chosen.

    Which group is the worst one depends on the rows then, and the end on the side of violations is
    that of intervals which all hold at once, as the other end is.
    """
    found = intervals.copy()
    for j, (constraint, span) in enumerate(zip(compiled.constraints, compiled.spans, strict=True)):
        level = level_of_all(constraint, span.stop - span.start, 0.95)
        if level > 0.95:
            end = 1 if constraint.sign > 0 else 0
            found[j, end] = constraint_intervals(compiled, counts, level)[j, end]
    return found


def _find_conflict(
    cells: Cells, compiled: LinearConstraints, result: MetricResult, outcome: Outcome
) -> tuple[Constraint, ...]:
    """List the constraints that cannot be met together, as far as the rows show it.

    The decisions of least violation are those of one sample. So all constraints that they violate
    must be refuted beyond sampling error, by them and by the decisions that are returned.
    """
    if result.least is None:
        return ()
    counts = CellCounts.of_probabilities(cells, result.least)
    least = Outcome.of_counts(compiled, counts, result.source)
    values = [compiled.values(one.functionals) for one in (least, outcome)]
    violated = np.flatnonzero(~compiled.is_satisfied(values[0]))
    if not violated.size or any(
        bool(compiled.is_satisfied(value)[j])
        or reaches_within(compiled.constraints[j], one.intervals[j])
        for value, one in zip(values, (least, outcome), strict=True)
        for j in violated
    ):
        return ()
    return tuple(compiled.constraints[j] for j in violated)


def _accuracy(fit: MetricFit, result: MetricResult) -> Estimate:
    """Estimate the share of held-out rows that the returned decisions get right."""
    held, y = result.held, fit.problem.data.y
    inside = held.rows < y.size  # Rows of further data sets need not have labels.
    labels = y[held.rows[inside]]
    right = result.chosen.shares[inside][np.arange(labels.size), labels]
    value = float(np.average(right, weights=None if held.weight is None else held.weight[inside]))
    return Estimate(value, *UNKNOWN[1:])
