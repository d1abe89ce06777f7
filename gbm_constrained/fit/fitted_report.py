"""Fitted attributes that report on the constraints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Float
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.decision.evaluation_set import (
    UNKNOWN,
    Estimate,
    Outcome,
    PlainModel,
    find_incomplete,
)
from gbm_constrained.evaluation.assessment import Feasibility
from gbm_constrained.evaluation.audit import (
    constraints_frame,
    costs_frame,
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
from gbm_constrained.fit.finalize import MAX_MIXTURE_VIOLATION, FinalModel
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.problem.linear_constraints import LinearConstraints


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
    """The fitted attributes of all classifiers under constraints."""

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
    feasibility = _assess_as_reported(
        fit, replace(model, outcome=outcome), fit.solver.rounds if rounds is None else rounds
    )
    set_reports(
        estimator, layout.compiled, functionals, multipliers, outcome, feasibility,
        ("error", feasibility.error), feasibility.plain,
    )  # fmt: skip
    set_fit(estimator, fit, multipliers, model.periods)
    estimator.history_ = _make_history(fit, model)
    estimator.unseen_accuracy_ = UNKNOWN if outcome is None else outcome.accuracy
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


def _assess_as_reported(fit: ConstrainedFit, model: FinalModel, rounds: int) -> Feasibility:
    """Assess each constraint by the rows that are reported.

    These are the rows that the model was assessed by, an evaluation set of the user, or the
    training rows if no others were measured.
    """
    found, compiled = model.feasibility, fit.problem.compiled
    if found is None:
        assert model.record is not None
        n_rows, error = fit.problem.cells.n_rows, model.record.error
        unknown = (None, np.nan, np.nan)
        few = model.too_few_rows
        found = Feasibility((), (), few, (), error, *unknown, TRAINING_ROWS, n_rows)
    rules = tuple(_assess_rule(fit, model, found, j) for j in range(len(compiled.constraints)))
    drift = () if model.periods is None else drifting(model.periods)
    return replace(
        found,
        rules=rules,
        drifting=tuple(rule for rule in rules if str(rule.constraint) in drift),
        rounds_trained=rounds,
        rounds_asked=fit.library.n_rounds,
    )


def _assess_rule(
    fit: ConstrainedFit, model: FinalModel, found: Feasibility, j: int
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
        held = next(held for held in fit.reporting_rows if held.source == source)
        rows = held.cells, held.compiled
    constraint = compiled.constraints[j]
    few = [rate.reason for rate in model.too_few_rows if rate.constraint == constraint]
    estimate = Estimate(value, *map(float, interval))
    result = assess_constraint(
        rows, j, estimate, source, doubt=few[0] if few else "",
        conflict=found.conflict_of(constraint),
    )  # fmt: skip
    if found.rules:
        return replace(found.rules[j], **estimate._asdict(), verdict=result.verdict)
    return result


def _make_history(fit: ConstrainedFit, model: FinalModel) -> pd.DataFrame:
    """Make a table with one row per outer iteration, and a last one for the returned model."""
    final, layout = model.record, model.layout
    assert final is not None
    records = [r for r in fit.solver.history if r.rounds < final.rounds]
    records.append(final)
    sources = fit.reporting_rows
    values = [np.array([held.values(r.rounds) for r in records]) for held in sources]
    held_out = None
    if values:
        last = [layout.spread(held.functionals_after(final.rounds)) for held in sources]
        is_elsewhere = find_incomplete(layout.compiled, last[0], last[-1])
        held_out = np.where(is_elsewhere, values[-1], values[0])
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
