"""Warnings and errors of fits, and of attributes that rows do not have."""

from __future__ import annotations

from typing import Any

__all__ = [
    "FragileConstraintsWarning",
    "InfeasibleConstraintsError",
    "InfeasibleConstraintsWarning",
    "MissedConstraintsWarning",
]


class InfeasibleConstraintsWarning(UserWarning):
    """No decision that the model can make meets the rules, or none was found."""


class MissedConstraintsWarning(UserWarning):
    """The model returned misses a rule beyond sampling error, on the rows that are reported."""


class FragileConstraintsWarning(UserWarning):
    """The rules hold at the price of knowing nothing, or on too few rows to tell."""


class InfeasibleConstraintsError(ValueError):
    """No decision that the model can make meets the rules; with ``on_infeasible="raise"``.

    It is raised after training: the estimator is fitted, and has all its reports.

    Parameters
    ----------
    message : str
        What conflicts.
    feasibility : Feasibility, default=None
        The same as an object.
    """

    def __init__(self, message: str, feasibility: Any = None) -> None:
        super().__init__(message)
        self.feasibility = feasibility


class CostlyConstraintsWarning(UserWarning):
    """The constraints cost more errors than group-wise decisions on the same scores would."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or comes from another machine; the fit goes on."""


class TimeLimitWarning(UserWarning):
    """A fit ended because of its ``time_limit``, and gave something up."""


class UnavailableError(ValueError):
    """A constraint looks at something that these rows do not have."""
