"""Fitted attributes that report on the constraints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.decision.evaluation_set import (
    UNKNOWN,
    Estimate,
    Outcome,
    PlainModel,
    find_incomplete,
)
from gbm_constrained.evaluation.assessment import (
    FRAGILE_GAIN,
    Feasibility,
    describe_missing_guarantee,
)
from gbm_constrained.evaluation.audit import (
    constraints_frame,
    costs_frame,
    determination,
    drifting,
    groups_frame,
    history_frame,
    small_groups_frame,
)
from gbm_constrained.evaluation.verdicts import (
    TRAINING_ROWS,
    ConstraintResult,
    assess_constraint,
)
from gbm_constrained.fit.finalize import MAX_MIXTURE_VIOLATION, FinalModel, ReportLayout
from gbm_constrained.fit.fit import ConstrainedFit, RegressionFit, tabulate_shifts
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import Record


class FittedAttribute:
    """Attribute of a classifier that is missing until a fit under constraints has set it.

    The value lives in the instance, where Python looks first. ``hasattr`` is false before the
    fit, for ``NotFittedError`` is an ``AttributeError``.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Raise for an instance that holds no value."""
        if instance is None:
            return self
        kind = type(instance).__name__
        if {"constraint_report_", "blackbox_report_"} & vars(instance).keys():
            raise AttributeError(f"This {kind} has no {self.name}: its last fit has not set it.")
        raise NotFittedError(
            f"This {kind} has no {self.name} yet: call fit with constraints, which sets it."
        )


class ConstrainedFitAttributes:
    """The fitted attributes of all classifiers under constraints.

    Attributes
    ----------
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on the training rows (``train``), its value
        on held-out rows (``held_out``) with a 95% interval (``low``, ``high``), the rows that the
        verdict is by (``rows``: those of a certificate, else the last evaluation set, else those
        that measured the constraints; out of fold the interval is that of one more booster than
        those of the folds), its multiplier, whether the value is within the bound on the training
        rows (``train_satisfied``) and on held-out ones (``satisfied``, missing without any), and
        the ``verdict``; see :class:`~gbm_constrained.evaluation.verdicts.Verdict`.
    cost_report_ : DataFrame
        What the constraints cost: the error on held-out rows and the value of each constraint
        there, of the plain model (row ``plain``, NaN where none was grown) and of the one returned
        (row ``returned``). With `maximize` or `minimize` there is none.
    shift_ : ndarray of shape (1,) or (n_classes,)
        Shift that was added to the scores; zero where the decisions stayed.
    adjustment_ : Series
        With bounds of ``calibration_error()``: ``scale`` and ``shift`` of the scores, one and zero
        where these stayed.
    group_shifts_ : DataFrame
        With `group_thresholds`: one row per group, with its values of the columns, the ``shift``
        of its scores, which contains ``shift_``, and its training ``rows``. Groups that have too
        few rows or a missing value have the common shift, as have values that training lacks.
    history_ : DataFrame
        One row per outer iteration: objective, values, bounds and multipliers of the constraints,
        Bregman distance, seconds.
    group_report_ : DataFrame
        One row per group of each constraint that compares groups: its training rows and its
        rates, with the interval of that on held-out rows. Groups of the last evaluation set that
        no training row is of have no training rows.
    period_report_ : DataFrame
        With ``measure_on="forward"``: one row per constraint and held-out period, with its number
        (``period``), its ``first`` and ``last`` time, its ``rows``, and the ``value`` of the
        constraint with its 95% interval (``low``, ``high``), by the decisions of the boosters
        before the period. In the last period also the interval that earlier ones leave for the
        value (``expected_low``, ``expected_high``), and whether the value is outside
        (``drifts``). Decisions that optimise a metric have rows of it after the constraints.
    small_groups_ : DataFrame
        One row per group of each constraint that compares groups, in which its rate is taken over
        fewer than `min_group_size` training rows: their number, and whether the group is kept,
        merged with others or left out.
    multipliers_ : Series
        Multipliers of the returned model, by linear row that the constraints compile to.
    unseen_accuracy_ : Estimate
        Accuracy on the rows of ``constraint_report_["held_out"]``, and its interval; NaN where
        there are none, and of a randomised classifier.
    feasibility_ : Feasibility
        Verdict on each constraint as an object, the constraints that conflict, and the values
        that were reached instead. The ``status`` is the gravest verdict.
    stopping_message_ : str or None
        Cause of an end before all rounds (a constraint callback, ``time_limit``), the rounds
        until then, and what was given up for the time limit; None without such an end.
    metric_report_ : DataFrame
        With `maximize` or `minimize`: one row per candidate (decisions by the largest
        probability, by the largest one divided by the share of the class, by the optimum for the
        model's probabilities, and by the optimum for the labels), with the metric on held-out
        rows and its 95% interval, the largest violation of a constraint there, the number of
        rules, and which one is returned; of that one also its value on the training rows, the
        bound for the model's probabilities, and the value of the mixture that one rule stands
        for. One more row per evaluation set has the value of the returned decisions there.
    mixture_ : DataFrame
        With `maximize` or `minimize`: the rules that decisions are drawn from, with their
        probability and, where a rule weighs classes, its weights.
    blackbox_report_ : DataFrame
        With a :class:`~gbm_constrained.metrics.BlackBox`: one row per model (the library's own,
        its best threshold, the best threshold of each group, and the returned one), with the
        metric on rows that chose nothing (``evaluation``) and its 95% interval (``low``,
        ``high``), by how much the returned model is better there (``gain``, with the interval of
        the paired difference, and the ``verdict``), the metric on the rows that chose
        (``validation``), the largest ``violation`` of a constraint on the rows of evidence, both
        numbers of rows, and the number of ``calls``. Intervals are of standard errors by a
        bootstrap within each label of each group.
    blackbox_parameters_ : DataFrame
        With a black box: each parameter of the model ``before`` and ``after``, the offset of each
        group, and what is added to all scores. ``history_`` then has one row per iteration, with
        the metric on the rows that choose (and the price of violations), the surrogates, their
        targets and the estimated gradient of the metric in them.
    prefixes_ : DataFrame
        With ``iterate="randomized"``: boosting rounds of each prefix, and its probability.

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023,
       Algorithm 1 and section 5.
    """

    constraint_report_: Any = FittedAttribute()
    cost_report_: Any = FittedAttribute()
    group_report_: Any = FittedAttribute()
    history_: Any = FittedAttribute()
    multipliers_: Any = FittedAttribute()
    unseen_accuracy_: Any = FittedAttribute()
    feasibility_: Any = FittedAttribute()
    stopping_message_: Any = FittedAttribute()
    shift_: Any = FittedAttribute()
    group_shifts_: Any = FittedAttribute()
    prefixes_: Any = FittedAttribute()
    metric_report_: Any = FittedAttribute()
    mixture_: Any = FittedAttribute()
    achieved_rates_: Any = FittedAttribute()
    unseen_r2_: Any = FittedAttribute()
    adjustment_: Any = FittedAttribute()
    blackbox_report_: Any = FittedAttribute()
    blackbox_parameters_: Any = FittedAttribute()


FITTED_ATTRIBUTES = (
    "constraint_report_", "group_report_", "history_", "multipliers_", "prefixes_",
    "shift_", "unseen_accuracy_", "feasibility_", "small_groups_", "stopping_message_",
    "metric_report_", "mixture_", "achieved_rates_", "certificate_", "ramp_values_",
    "period_report_", "adjustment_", "unseen_r2_",
    "cost_report_", "blackbox_report_", "blackbox_parameters_", "group_shifts_",
    "_rules", "_threshold", "_group_offsets",
)  # fmt: skip


def remove_report(estimator: Any) -> None:
    """Remove the fitted attributes of an earlier constrained fit."""
    for name in FITTED_ATTRIBUTES:
        estimator.__dict__.pop(name, None)


def hand_over_report(estimator: Any, booster: Any) -> None:
    """Set the fitted attributes of an estimator as attributes of its booster."""
    for name in FITTED_ATTRIBUTES:
        if name in vars(estimator):
            setattr(booster, name, vars(estimator)[name])


def set_reports(
    estimator: Any,
    compiled: LinearConstraints,
    functionals: Float,
    multipliers: Float,
    outcome: Outcome | None,
    feasibility: Feasibility,
    objective: tuple[str, float],
    plain: PlainModel | None,
) -> None:
    """Set the fitted attributes that all fits under constraints report by.

    Parameters
    ----------
    estimator : estimator
        It is given the attributes.
    compiled : LinearConstraints
        The constraints, with the groups of the last evaluation set.
    functionals, multipliers : ndarray
        Rates on the training rows, and the multiplier of each row of constraints.
    outcome : Outcome or None
        Values of the constraints on held-out rows, if there are any.
    feasibility : Feasibility
        The verdicts.
    objective : tuple of str and float
        Name of the objective, and its value.
    plain : PlainModel or None
        What the plain model does.
    """
    verdicts = [found.verdict for found in feasibility.rules]
    table = constraints_frame(compiled, functionals, multipliers, outcome, verdicts)
    source, (name, value) = feasibility.source, objective
    values = table["train" if source == TRAINING_ROWS else "held_out"].to_numpy()
    estimator.constraint_report_ = table
    estimator.group_report_ = groups_frame(compiled, functionals, outcome)
    estimator.cost_report_ = costs_frame(
        compiled.names, name, PlainModel(value, values), plain, source
    )
    estimator.feasibility_ = feasibility


def set_fit(
    estimator: Any, fit: ConstrainedFit, multipliers: Float, periods: pd.DataFrame | None
) -> None:
    """Set the fitted attributes of a fit by multipliers."""
    compiled = fit.problem.compiled
    estimator.small_groups_ = small_groups_frame(compiled)
    if periods is not None:
        estimator.period_report_ = periods
    estimator.stopping_message_ = fit.notifier.message
    found = pd.Series(multipliers, list(compiled.rows), name="multiplier")
    estimator.multipliers_ = found.reindex(compiled.all_rows, fill_value=0.0)


def report(
    estimator: Any, fit: ConstrainedFit, model: FinalModel, rounds: int | None = None
) -> Feasibility:
    """Set the fitted attributes that report on the constraints, and return the verdicts.

    `rounds` are those that were trained; by default those of the solver.
    """
    assert model.record is not None
    assert model.functionals is not None
    layout, outcome, multipliers = model.layout, model.outcome, model.record.multipliers
    functionals = layout.spread(model.functionals)
    if outcome is not None:
        outcome = layout.lay_out(outcome)
        if model.feasibility is None:  # The only other rows are those of the trees.
            outcome = outcome.leave_out_incomplete(functionals, layout.compiled)
    feasibility = assess_as_reported(fit, replace(model, outcome=outcome), rounds)
    set_reports(
        estimator, layout.compiled, functionals, multipliers, outcome, feasibility,
        ("error", feasibility.error), feasibility.plain,
    )  # fmt: skip
    set_fit(estimator, fit, multipliers, model.periods)
    estimator.history_ = make_history(fit, layout, model.record)
    estimator.unseen_accuracy_ = UNKNOWN if outcome is None else outcome.accuracy
    return feasibility


def report_regressor(
    estimator: Any, fit: RegressionFit, model: FinalModel, rounds: int | None = None
) -> Feasibility:
    """Set the fitted attributes that report on the constraints, as :func:`report` does."""
    assert model.record is not None
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
        statistics = rows.lagrangian.at(rows.plain_score).exact_statistics()
        values = rows.compiled.values(rows.compiled.functionals(statistics))
        plain = PlainModel(float(statistics.loss[0]), values)
    set_reports(
        estimator, layout.compiled, layout.spread(record.functionals), record.multipliers,
        None if outcome is None else layout.lay_out(outcome), feasibility,
        ("loss", rows.measure_scores(model.score)[0]), plain,
    )  # fmt: skip
    set_fit(estimator, fit, record.multipliers, model.periods)
    estimator.history_ = make_history(fit, layout, record, outcome).drop(columns="error")
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
        assert model.record is not None
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
    )


def _assess_rule(
    fit: ConstrainedFit, model: FinalModel, found: Feasibility, j: int, doubt: str
) -> ConstraintResult:
    """Assess one constraint by the rows that are reported."""
    compiled, outcome, source = fit.problem.compiled, model.outcome, TRAINING_ROWS
    rows = fit.problem.cells, compiled
    assert model.functionals is not None
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


def make_history(
    fit: ConstrainedFit, layout: ReportLayout, final: Record, outcome: Outcome | None = None
) -> pd.DataFrame:
    """Make a table with one row per outer iteration, and a last one for the returned model.

    The rows of evidence know the returned model by its rounds, unless there is an `outcome` of it.
    """
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
    return history_frame(records, fit.solver.lagrangian.constraints, held_out)


def with_constraints(tags: Any, constraints: Any, positive: Any = None) -> Any:
    """Restrict the tags of a parent to what its constraints allow, in place.

    Constraints are on one label of a row, and some of them on two classes. The constructor
    parameters may be invalid.
    """
    try:
        checked = check_constraints(constraints)
    except (TypeError, ValueError):
        return tags
    if checked:
        tags.target_tags.multi_output = False
    if checked and tags.classifier_tags is not None:
        tags.classifier_tags.multi_label = False
        is_binary = positive is None and any(constraint.is_binary for constraint in checked)
        tags.classifier_tags.multi_class &= not is_binary
    return tags
