"""Checks of the constraints that a user gives, and the forms in which a fit takes them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from gbm_constrained.constraints.base import (
    Constraint,
    Factory,
    Rate,
    name_positive_class,
    refuse_priorities,
)
from gbm_constrained.constraints.presets import CoverageDivergence, from_fairlearn, is_fairlearn
from gbm_constrained.constraints.selectors import (
    ClassSelector,
    CrossEntropy,
    Misclassified,
    Term,
    check_hashable,
    to_python_scalar,
)
from gbm_constrained.constraints.text import parse_constraints

__all__ = ["as_log_loss"]


def check_constraints(constraints: Any) -> tuple[Constraint, ...]:
    """Collect constraints in a tuple: from None, one constraint or text, or a sequence of them."""
    if constraints is None:
        return ()
    if isinstance(constraints, (Constraint, str)) or is_fairlearn(constraints):
        return check_constraints((constraints,))
    if not isinstance(constraints, Iterable):
        raise TypeError(
            f"constraints must be a sequence of constraints such as [fnr() <= 0.05], got "
            f"{constraints!r}.{_remedy(constraints)}"
        )
    if isinstance(constraints, Iterator):
        raise TypeError(
            f"constraints is an iterator ({type(constraints).__name__}), which is empty once it "
            f"has been read: give a list, constraints=list(...)."
        )
    checked: list[Constraint] = []
    for item in constraints:
        item = from_fairlearn(item) if is_fairlearn(item) else item
        if isinstance(item, (list, tuple)):  # Presets may make several constraints.
            checked += check_constraints(item)
        elif isinstance(item, Constraint):
            checked.append(item)
        elif isinstance(item, str):
            try:
                checked += parse_constraints(item)
            except ValueError as error:
                raise ValueError(f"constraints: {error}") from None
        else:
            raise TypeError(
                f"constraints holds {item!r}, which is not a constraint: bound a rate, as in "
                f"fnr() <= 0.05.{_remedy(item)}"
            )
    return tuple(checked)


def check_linear(constraints: Iterable[Constraint]) -> None:
    """Refuse constraints that multipliers of linear rows cannot serve.

    Raises
    ------
    ValueError
        If the bound of one is no linear row.
    """
    for constraint in constraints:
        if isinstance(constraint.expression, CoverageDivergence):
            raise ValueError(
                f"constraints: {constraint} bounds a divergence, which is not linear in the "
                f"decisions and needs an objective of the confusion matrix: give maximize= or "
                f"minimize=, such as maximize='balanced_accuracy', or bound the shares by "
                f"Coverage(within=...)."
            )


def check_task(constraints: Iterable[Constraint], *, predicts_numbers: bool) -> None:
    """Refuse constraints of the other task.

    These are rates of classes where numbers are predicted, and means over predicted numbers where
    classes are.

    Raises
    ------
    ValueError
        If there is one.
    """
    for constraint in constraints:
        if not predicts_numbers and "number" in constraint.kinds:
            raise ValueError(
                f"{constraint} bounds a mean over predicted numbers, and a classifier predicts "
                f"classes: use ConstrainedXGBRegressor, ConstrainedLGBMRegressor or "
                f"ConstrainedRidge, or bound a rate such as selection_rate()."
            )
        if predicts_numbers and constraint.kinds - {"number"}:
            raise ValueError(
                f"{constraint} bounds a rate of predicted classes, and a regressor predicts "
                f"numbers: bound a mean such as mean_loss('squared'), mean_prediction(), "
                f"mean_residual(), share_above(c) or coverage()."
            )
        if predicts_numbers and any(isinstance(s, ClassSelector) for s in constraint.selectors):
            raise ValueError(
                f"{constraint} is taken over rows of a class, and targets of a regressor are "
                f"numbers: select rows by a column, as in on={{'name': value}}."
            )


def check_straight(constraints: Iterable[Constraint], what: str, remedy: str) -> None:
    """Refuse constraints that are no linear functions of rates.

    Parameters
    ----------
    constraints : iterable of Constraint
        The constraints.
    what : str
        What asks for linear rows, as the subject of a sentence.
    remedy : str
        What may be done beside bounding the rates themselves.

    Raises
    ------
    ValueError
        If one of them has curved rows.
    """
    for constraint in constraints:
        if constraint.expression.is_curved:
            raise ValueError(
                f"{constraint} is no linear function of rates, which {what} would take: "
                f"{remedy}, or bound the rates themselves."
            )


def check_decisions(constraints: Sequence[Constraint], parameter: str, reason: str) -> None:
    """Refuse constraints on scores, priorities or curves where a fit chooses decisions alone.

    Parameters
    ----------
    constraints : sequence of Constraint
        The constraints.
    parameter : str
        The parameter that asks for decisions alone.
    reason : str
        Why scores are left alone, as a part of a sentence.

    Raises
    ------
    ValueError
        If one of them bounds pair rates or mean losses, has a priority, or is no linear function
        of rates.
    """
    refuse_priorities(
        constraints,
        f"decisions by {parameter} meet all constraints alike: leave with_priority or "
        f"{parameter} out",
    )
    for constraint in constraints:
        check_straight([constraint], f"decisions by {parameter}", f"leave {parameter} out")
        if constraint.is_of_scores:
            bounded = (
                "a pair rate" if "pair" in constraint.kinds else "a mean loss of probabilities"
            )
            raise ValueError(
                f"{constraint} bounds {bounded}, and {reason}: leave {parameter} out, or bound a "
                f"rate of decisions."
            )


def _remedy(item: Any) -> str:
    """Write the remedy for a value that was meant as a constraint."""
    if isinstance(item, Factory):
        bound = "" if item.__name__[0].isupper() else " <= 0.05"  # Presets have their bound.
        return f" {item.__name__} is a function: write {item.call}{bound}."
    if isinstance(item, bool):
        return " Constraints are made by <= and >=; == says whether two rates are the same."
    return ""


def find_positive_class(
    classes: Sequence[Any] | NDArray[Any], positive: Hashable | None = None
) -> Hashable | None:
    """Find the label that rates without a label name as their positive class.

    The label is None where rates print without one: 1 among 0 and 1, True among False and True,
    and more than two classes without `positive`.
    """
    known = [to_python_scalar(label) for label in classes]
    if positive is not None:
        check_hashable(positive, "positive= takes one label of y")
        label = to_python_scalar(positive)
        if label not in known:
            raise ValueError(
                f"positive={label!r} is not among the classes of y: give one of {known}."
            )
        positive = known[known.index(label)]
    elif len(known) == 2:
        positive = known[1]
    return None if known == [0, 1] and positive == 1 else positive


def resolve_positive_class(
    constraints: Sequence[Constraint],
    classes: Sequence[Any] | NDArray[Any],
    positive: Hashable | None = None,
) -> tuple[Constraint, ...]:
    """Name the classes of constraints on all classes, and the positive class where it is not 1."""
    label, named = find_positive_class(classes, positive), []
    for constraint in constraints:
        of_classes = constraint.expression.with_classes(classes)
        if of_classes is not constraint.expression:
            constraint = replace(constraint, expression=of_classes)
        named.append(constraint if label is None else name_positive_class(constraint, label))
    return tuple(named)


def as_log_loss(
    constraints: Any, n_classes: int, losses: Sequence[float] | None = None
) -> list[Constraint]:
    r"""Replace bounds on error rates by bounds on the mean cross-entropy of the same rows.

    An error rate bounded by e becomes ``log_loss(on=rows) <= e * log(n_classes)``, that is e times
    the loss of equal probabilities: the loss form of [1]_, section 6. Bounds on mean losses stay
    as they are.

    Parameters
    ----------
    constraints : Constraint, str or sequence of these
        Upper bounds of error rates, such as ``class_error(0) <= 0.05``, and constraints on mean
        losses. A multiple of an error rate is allowed, and a number added to it.
    n_classes : int
        Number of classes of the labels.
    losses : sequence of float, default=None
        Values of the constraints in their loss form under an earlier model, as the column
        ``train`` of its ``constraint_report_`` has them. They take the place of the loss of equal
        probabilities. The paper does so with the model of half of the iterations.

    Returns
    -------
    list of Constraint
        The constraints to give to a classifier.

    Raises
    ------
    ValueError
        If a constraint is neither an upper bound of one error rate nor about mean losses, or if
        there are fewer than two classes, or not one loss for each constraint.

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023.

    Examples
    --------
    >>> from gbm_constrained import as_log_loss, class_error
    >>> as_log_loss([class_error(0) <= 0.25], n_classes=4)
    [log_loss(on=label(0)) <= 0.34657359027997264]
    """
    if isinstance(n_classes, bool) or n_classes < 2:
        raise ValueError(f"n_classes must be an integer >= 2, got {n_classes!r}.")
    given = check_constraints(constraints)
    if losses is not None and len(losses) != len(given):
        raise ValueError(
            f"losses has {len(losses)} values for {len(given)} constraints: give one for each, as "
            f"in constraint_report_['train']."
        )
    of_each = [None] * len(given) if losses is None else map(float, losses)
    return [_as_log_loss(c, n_classes, loss) for c, loss in zip(given, of_each, strict=True)]


def _as_log_loss(constraint: Constraint, n_classes: int, value: float | None) -> Constraint:
    """Replace one constraint, given its value in the loss form under an earlier model, if any."""
    if constraint.kinds == {"loss"}:
        return constraint
    rate = constraint.expression
    if isinstance(rate, Rate) and constraint.sense == "<=" and len(rate.terms) == 1:
        ((multiple, term),) = rate.terms
        is_fpr_of_two = n_classes == 2 and term.name.partition("(")[0] == "fpr"
        is_error = not term.where and (term.event == Misclassified() or is_fpr_of_two)
        if multiple > 0.0 and is_error:
            loss = Term("log_loss", CrossEntropy(), on=(*term.rows, *term.on), amount=term.amount)
            level = math.log(n_classes) if value is None else value / multiple
            bound = (constraint.bound - rate.constant) * level
            return replace(constraint, expression=Rate(((multiple, loss),)), bound=bound)
    raise ValueError(
        f"as_log_loss is for upper bounds of error rates, and {constraint} is not one: leave it "
        f"as it is, beside those that are."
    )
