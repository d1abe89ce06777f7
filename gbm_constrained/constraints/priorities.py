"""Priorities of constraints: which of them is given up for which, where not all can be met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from gbm_constrained._messages import is_finite, is_number


@dataclass(frozen=True, kw_only=True)
class Prioritised:
    """Base of what has a priority among others of its kind."""

    priority: int = field(default=1)
    violation_weight: float = field(default=1.0)

    def __post_init__(self) -> None:
        """Check priority and weight, and store them as numbers of Python."""
        priority, weight = self.priority, self.violation_weight
        if isinstance(priority, bool) or not isinstance(priority, (int, np.integer)):
            raise TypeError(
                f"priority must be a whole number, got {priority!r}: 1 comes first, then 2."
            )
        if priority < 1:
            raise ValueError(f"priority must be at least 1, which comes first; got {priority}.")
        if not is_number(weight):
            raise TypeError(f"weight must be a number, got {weight!r}: 1 is the default.")
        if not (weight > 0 and is_finite(weight)):
            raise ValueError(
                f"weight must be positive and finite, got {weight!r}: a constraint without "
                f"weight is left out of the list."
            )
        object.__setattr__(self, "priority", int(priority))
        object.__setattr__(self, "violation_weight", float(weight))

    def with_priority(self, priority: int, *, weight: float = 1.0) -> Self:
        """Return the same constraint with a priority.

        Where not all constraints can be met, those of priority 2 are met as well as those of
        priority 1 allow, and so on.

        Parameters
        ----------
        priority : int
            Its priority: 1 comes first, and is that of constraints without any.
        weight : float, default=1.0
            Factor on its violation, beside those of constraints of the same priority.

        Returns
        -------
        Constraint
            The constraint; the one it is called on stays as it is.

        Raises
        ------
        TypeError
            If `priority` is not a whole number, or `weight` not a number.
        ValueError
            If `priority` is below 1, or `weight` not positive and finite.

        Examples
        --------
        >>> from gbm_constrained import recall, selection_rate
        >>> [selection_rate() <= 0.05, (recall() >= 0.3).with_priority(2)]
        [selection_rate() <= 0.05, (recall() >= 0.3).with_priority(2)]
        """
        changed: dict[str, Any] = {"priority": priority, "violation_weight": weight}
        return replace(self, **changed)


def write_priority(constraint: Prioritised, bound: str, weight: str) -> str:
    """Write a bound with its priority and the number `weight`, unless it has the defaults."""
    has_weight = constraint.violation_weight != 1.0
    if constraint.priority == 1 and not has_weight:
        return bound
    given = f"{constraint.priority}" + (f", weight={weight}" if has_weight else "")
    return f"({bound}).with_priority({given})"


def refuse_priorities(constraints: Iterable[Prioritised], reason: str) -> None:
    """Refuse constraints with priorities or weights where nothing serves these.

    Parameters
    ----------
    constraints : iterable of Constraint
        The constraints.
    reason : str
        What stands in the way, as a sentence without its end, and what else can be done.

    Raises
    ------
    ValueError
        If one of them has another priority or weight than 1.
    """
    for constraint in constraints:
        if constraint.priority != 1 or constraint.violation_weight != 1.0:
            raise ValueError(f"constraints: {constraint!r} has a priority, and {reason}.")
