"""Constraints of fairlearn."""

from __future__ import annotations

from typing import Any

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.grouped import overall
from gbm_constrained.constraints.presets import BoundedGroupLoss, name_of_loss
from gbm_constrained.constraints.rates import error_rate, fpr, gap, ratio, selection_rate, tpr

__all__ = ["from_fairlearn"]


def from_fairlearn(moment: Any) -> tuple[Constraint, ...]:
    """Read a constraint of ``fairlearn.reductions``, with its meaning and its bounds.

    Parameters
    ----------
    moment : DemographicParity, TruePositiveRateParity, FalsePositiveRateParity, EqualizedOdds, \
ErrorRateParity or BoundedGroupLoss
        A moment. Those with ``SquareLoss`` or ``AbsoluteLoss`` are about regressors, and are read
        without the range that fairlearn clips targets and predictions to.

    Raises
    ------
    TypeError, ValueError
        If the constraint is another one, or has no bound.
    """
    name = type(moment).__name__
    rates = {
        "DemographicParity": (selection_rate(),),
        "TruePositiveRateParity": (tpr(),),
        "FalsePositiveRateParity": (fpr(),),
        "EqualizedOdds": (tpr(), fpr()),
        "ErrorRateParity": (error_rate(),),
    }
    if name == "BoundedGroupLoss" and isinstance(name_of_loss(moment.reduction_loss), str):
        if moment.upper_bound is None:
            raise ValueError(
                "BoundedGroupLoss of fairlearn has no upper_bound: give it one, or use "
                "each(error_rate()) <= bound, or each(mean_loss()) <= bound."
            )
        loss = moment.reduction_loss
        return (BoundedGroupLoss(loss, upper_bound=float(moment.upper_bound)),)
    if name not in rates:
        raise TypeError(
            f"fairlearn's {moment!r} is not a constraint on a classifier's rates that is known "
            f"here: {list(rates)} and BoundedGroupLoss are."
        )
    if moment.ratio == 1.0:
        return tuple(gap(rate, reference=overall) <= float(moment.eps) for rate in rates[name])
    return tuple(
        ratio(rate, reference=overall, slack=float(moment.eps)) >= float(moment.ratio)
        for rate in rates[name]
    )
