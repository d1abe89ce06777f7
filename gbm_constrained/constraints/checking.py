"""Checks of the constraints that a user gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.factories import Factory
from gbm_constrained.constraints.fairlearn import from_fairlearn
from gbm_constrained.constraints.presets import is_fairlearn
from gbm_constrained.constraints.priorities import refuse_priorities
from gbm_constrained.constraints.row_means import refuse_rates, refuse_row_functions


def check_constraints(constraints: Any) -> tuple[Constraint, ...]:
    """Collect constraints in a tuple: from None, one constraint, or a sequence of them."""
    if constraints is None:
        return ()
    if isinstance(constraints, Constraint) or is_fairlearn(constraints):
        return check_constraints((constraints,))
    if isinstance(constraints, str) or not isinstance(constraints, Iterable):
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
        if not constraint.expression.has_linear_rows:
            raise ValueError(
                f"constraints: {constraint} bounds a divergence, which is not linear in the "
                f"decisions and needs an objective of the confusion matrix: give maximize= or "
                f"minimize=, such as maximize='balanced_accuracy', or bound the shares by "
                f"Coverage(within=...)."
            )


def check_task(constraints: Iterable[Constraint], *, predicts_numbers: bool) -> None:
    """Refuse rules of the other task: rates of regressors, or means over numbers of classifiers.

    Raises
    ------
    ValueError
        If there is one.
    """
    refuse = refuse_rates if predicts_numbers else refuse_row_functions
    refuse(constraints)


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
            bounded = "a pair rate" if constraint.is_pair else "a mean loss of probabilities"
            raise ValueError(
                f"{constraint} bounds {bounded}, and {reason}: leave {parameter} out, or bound a "
                f"rate of decisions."
            )


def _remedy(item: Any) -> str:
    """Write the remedy for a value that was meant as a constraint."""
    if isinstance(item, Factory):
        bound = "" if item.__name__[0].isupper() else " <= 0.05"  # Presets have their bound.
        return f" {item.__name__} is a function: write {item.call}{bound}."
    if isinstance(item, str):
        return " parse_constraint reads a constraint that is written as text."
    if isinstance(item, bool):
        return " Constraints are made by <= and >=; == says whether two rates are the same."
    return ""
