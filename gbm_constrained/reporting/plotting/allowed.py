"""What a constraint between groups allows their rates to be."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any, TypeAlias

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.gaps import Gap, Ratio
from gbm_constrained.constraints.grouped import Each

Ends: TypeAlias = tuple[float, float]


@singledispatch
def find_allowed(e: Any, constraint: Constraint, rates: Float, reference: float | None) -> Ends:
    """Find the ends between which a constraint allows the rates of groups to be."""
    raise TypeError(f"A {type(e).__name__} compares no groups.")


@find_allowed.register
def _(e: Each, constraint: Constraint, rates: Float, reference: float | None) -> Ends:
    b = constraint.bound
    return (-math.inf, b) if constraint.sense == "<=" else (b, math.inf)


@find_allowed.register
def _(e: Gap, constraint: Constraint, rates: Float, reference: float | None) -> Ends:
    b = constraint.bound
    if reference is not None:
        return reference - b, reference + b
    middle = (float(rates.min()) + float(rates.max())) / 2
    return middle - b / 2, middle + b / 2


@find_allowed.register
def _(e: Ratio, constraint: Constraint, rates: Float, reference: float | None) -> Ends:
    b, high = constraint.bound, float(rates.max())
    if reference is None:
        return b * high - e.slack, high
    return b * reference - e.slack, (reference + e.slack) / b if b > 0 else math.inf
