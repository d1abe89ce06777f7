"""Positive class of rates that name no class."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

from numpy.typing import NDArray

from gbm_constrained.constraints.base import Constraint, Expression
from gbm_constrained.constraints.events import Term
from gbm_constrained.constraints.expressions import Quotient, Rate
from gbm_constrained.constraints.gaps import GapNorm
from gbm_constrained.constraints.grouped import GroupedRate
from gbm_constrained.constraints.rate_parts import name_with_label
from gbm_constrained.constraints.selectors import (
    ClassPosition,
    Label,
    check_hashable,
    to_python_scalar,
)

# Rates whose printed names hold their class; the parts of quotients do not print.
_RATES_OF_A_CLASS = (
    "auc", "cross_auc", "fnr", "fpr", "mean_rank", "recall", "selection_rate", "tnr", "tpr",
)  # fmt: skip
_QUOTIENTS_OF_A_CLASS = ("f1", "precision")


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


def name_positive_class(constraint: Constraint, label: Hashable) -> Constraint:
    """Write ``fnr(label) <= 0.05`` for ``fnr() <= 0.05``, and other rates alike."""
    if not constraint.is_binary:
        return constraint
    return replace(
        constraint, expression=with_label(constraint.expression, to_python_scalar(label))
    )


def resolve_positive_class(
    constraints: Sequence[Constraint],
    classes: Sequence[Any] | NDArray[Any],
    positive: Hashable | None = None,
) -> tuple[Constraint, ...]:
    """Name the classes of constraints on all classes, and the positive class where it is not 1."""
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
def with_label(expression: Expression, label: Hashable) -> Expression:
    """Name the positive class in an expression."""
    raise NotImplementedError


@with_label.register
def _quotient_with_label(quotient: Quotient, label: Hashable) -> Quotient:
    numerator = _rate_with_label(quotient.numerator, label)
    denominator = _rate_with_label(quotient.denominator, label)
    name, bracket, rows = quotient.name.partition("[")
    if name not in _QUOTIENTS_OF_A_CLASS:
        named: Quotient = numerator / denominator
        return named
    return Quotient(f"{name_with_label(name, label)}{bracket}{rows}", numerator, denominator)


@with_label.register
def _(grouped: GroupedRate, label: Hashable) -> Expression:
    return replace(grouped, rate=_rate_with_label(grouped.rate, label))


@with_label.register
def _(norm: GapNorm, label: Hashable) -> Expression:
    def named(of: Rate | Quotient) -> Rate | Quotient:
        if isinstance(of, Quotient):
            return _quotient_with_label(of, label)
        return _rate_with_label(of, label)

    parts = tuple((weight, named(of)) for weight, of in norm.parts)
    return replace(norm, parts=parts)


@with_label.register
def _rate_with_label(rate: Rate, label: Hashable) -> Rate:
    """Name the positive class in the terms of a rate, and add up equal terms."""
    found = Rate((), rate.constant)
    for a, term in rate.terms:
        found = found + Rate(((a, _term_with_label(term, label)),))
    return found


def _term_with_label(term: Term, label: Hashable) -> Term:
    """Name the positive class in a term, and in the name of the term."""

    def name_class(part: Any) -> Any:
        return Label(label, excluded=part.index == 0) if isinstance(part, ClassPosition) else part

    event = term.event.map_classes(name_class)
    rows, on, where = (tuple(map(name_class, part)) for part in (term.rows, term.on, term.where))
    is_named = (event, rows) != (term.event, term.rows) and term.name in _RATES_OF_A_CLASS
    name = name_with_label(term.name, label) if is_named else term.name
    return Term(name, event, rows, on, where, term.amount)
