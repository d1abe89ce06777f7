"""The positive class of rates that name none."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

from numpy.typing import NDArray

from gbm_constrained.constraints.base import Constraint, Expression
from gbm_constrained.constraints.events import Term
from gbm_constrained.constraints.expressions import Quotient, Rate
from gbm_constrained.constraints.grouped import Grouped
from gbm_constrained.constraints.rate_parts import name_with_label
from gbm_constrained.constraints.selectors import (
    ClassPosition,
    Label,
    check_hashable,
    to_python_scalar,
)

# Rates whose names hold the class that they are of; the parts of quotients do not print.
_RATES_OF_A_CLASS = ("fnr", "fpr", "recall", "selection_rate", "tnr", "tpr")
_QUOTIENTS_OF_A_CLASS = ("f1", "precision")


def find_positive_class(
    classes: Sequence[Any] | NDArray[Any], positive: Hashable | None = None
) -> Hashable | None:
    """Find the label that rates without a label are to name as their positive class.

    Parameters
    ----------
    classes : sequence
        The sorted labels.
    positive : hashable, default=None
        The label that the user calls positive; by default the last one of two.

    Returns
    -------
    hashable or None
        The label; None where 1 is positive among 0 and 1, or True among False and True, and where
        more than two classes have no positive one.

    Raises
    ------
    TypeError
        If `positive` cannot be a label.
    ValueError
        If it is not among the classes.
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


def name_positive_class(constraint: Constraint, label: Hashable) -> Constraint:
    """Name the positive class of the rates of a constraint that name none.

    Parameters
    ----------
    constraint : Constraint
        The constraint, such as ``fnr() <= 0.05``.
    label : hashable
        The label of the positive class.

    Returns
    -------
    Constraint
        What the rates would be with the label, such as ``fnr(label) <= 0.05``.
    """
    if not constraint.is_binary:
        return constraint
    return replace(
        constraint, expression=_with_label(constraint.expression, to_python_scalar(label))
    )


def resolve_positive_class(
    constraints: Sequence[Constraint],
    classes: Sequence[Any] | NDArray[Any],
    positive: Hashable | None = None,
) -> tuple[Constraint, ...]:
    """Name the classes of constraints on all of them, and the positive class of other rates.

    The positive class is named where its name says more than ``1``.

    Parameters
    ----------
    constraints : sequence of Constraint
        The constraints.
    classes, positive
        As in :func:`find_positive_class`.

    Raises
    ------
    TypeError, ValueError
        As in :func:`find_positive_class`.
    """
    label = find_positive_class(classes, positive)
    named = tuple(name_classes(constraint, classes) for constraint in constraints)
    if label is None:
        return named
    return tuple(name_positive_class(constraint, label) for constraint in named)


def name_classes(constraint: Constraint, classes: Sequence[Any] | NDArray[Any]) -> Constraint:
    """Name the classes of a constraint on all of them."""
    expression = constraint.expression.with_classes(classes)
    if expression is constraint.expression:
        return constraint
    return replace(constraint, expression=expression)


@singledispatch
def _with_label(expression: Expression, label: Hashable) -> Expression:
    """Name the positive class in an expression."""
    raise NotImplementedError


@_with_label.register
def _(quotient: Quotient, label: Hashable) -> Expression:
    numerator = _rate_with_label(quotient.numerator, label)
    denominator = _rate_with_label(quotient.denominator, label)
    name, bracket, rows = quotient.name.partition("[")
    if name not in _QUOTIENTS_OF_A_CLASS:
        named: Expression = numerator / denominator
        return named
    return Quotient(f"{name_with_label(name, label)}{bracket}{rows}", numerator, denominator)


@_with_label.register
def _(grouped: Grouped, label: Hashable) -> Expression:
    return replace(grouped, rate=_rate_with_label(grouped.rate, label))


@_with_label.register
def _rate_with_label(rate: Rate, label: Hashable) -> Rate:
    """Name the positive class in the terms of a rate, and add up those that become equal."""
    found = Rate((), rate.constant)
    for a, term in rate.terms:
        found = found + Rate(((a, _term_with_label(term, label)),))
    return found


def _term_with_label(term: Term, label: Hashable) -> Term:
    """Name the positive class in a term, and in its name where that is of a class."""

    def named(part: Any) -> Any:
        return Label(label, excluded=part.index == 0) if isinstance(part, ClassPosition) else part

    event = term.event.with_target(named(term.event.target))
    rows, on, where = (tuple(map(named, part)) for part in (term.rows, term.on, term.where))
    is_named = (event, rows) != (term.event, term.rows) and term.name in _RATES_OF_A_CLASS
    name = name_with_label(term.name, label) if is_named else term.name
    return Term(name, event, rows, on, where)
