"""Bounds on error rates as bounds on mean cross-entropies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.events import CrossEntropy, Misclassified, Term
from gbm_constrained.constraints.expressions import Rate

__all__ = ["as_log_loss"]


def as_log_loss(
    constraints: Any, n_classes: int, losses: Sequence[float] | None = None
) -> list[Constraint]:
    r"""Replace bounds on error rates by bounds on the mean cross-entropy of the same rows.

    An error rate bounded by e becomes ``log_loss(on=rows) <= e * log(n_classes)``, that is e times
    the loss of equal probabilities: the loss form of [1]_, section 6. Bounds on mean losses stay
    as they are.

    Parameters
    ----------
    constraints : Constraint or sequence of Constraint
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
    if constraint.is_loss:
        return constraint
    rate = constraint.expression
    if isinstance(rate, Rate) and constraint.sense == "<=" and len(rate.terms) == 1:
        ((multiple, term),) = rate.terms
        if multiple > 0.0 and _is_error(term, n_classes):
            loss = Term("log_loss", CrossEntropy(), on=(*term.rows, *term.on), amount=term.amount)
            level = math.log(n_classes) if value is None else value / multiple
            bound = (constraint.bound - rate.constant) * level
            return replace(constraint, expression=Rate(((multiple, loss),)), bound=bound)
    raise ValueError(
        f"as_log_loss is for upper bounds of error rates, and {constraint} is not one: leave it "
        f"as it is, beside those that are."
    )


def _is_error(term: Term, n_classes: int) -> bool:
    """Whether a term counts misclassified rows and nothing else."""
    is_fpr_of_two = n_classes == 2 and term.name.partition("(")[0] == "fpr"
    return not term.where and (term.event == Misclassified() or is_fpr_of_two)
