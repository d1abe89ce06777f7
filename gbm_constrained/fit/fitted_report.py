"""Fitted attributes that report on the constraints."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import NotFittedError

from gbm_constrained._typing import Float
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.decision.evaluation_set import Outcome, PlainModel
from gbm_constrained.evaluation.assessment import Feasibility
from gbm_constrained.evaluation.audit import constraints_frame, costs_frame, groups_frame
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS
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
