"""Warnings and errors of fits and of missing attributes."""

from __future__ import annotations

from typing import Any

__all__ = [
    "CheckpointWarning",
    "CostlyConstraintsWarning",
    "FragileConstraintsWarning",
    "InfeasibleConstraintsError",
    "InfeasibleConstraintsWarning",
    "MachineError",
    "MissedConstraintsWarning",
    "TimeLimitWarning",
]


class InfeasibleConstraintsWarning(UserWarning):
    """No decision of the model meets the constraints, or none was found."""


class MissedConstraintsWarning(UserWarning):
    """The returned model misses a constraint beyond sampling error, on the reported rows."""


class FragileConstraintsWarning(UserWarning):
    """The constraints hold by a model near a constant one, or on too few rows to assess them."""


class InfeasibleConstraintsError(ValueError):
    """No decision of the model meets the constraints; with ``on_infeasible="raise"``.

    The error is raised after training: the estimator is fitted, and has all its reports.

    Parameters
    ----------
    message : str
        Constraints in conflict, in words.
    feasibility : Feasibility, default=None
        Constraints in conflict, as an object.
    """

    def __init__(self, message: str, feasibility: Any = None) -> None:
        super().__init__(message)
        self.feasibility = feasibility


class CostlyConstraintsWarning(UserWarning):
    """The constraints cost more errors than group-wise decisions on the same scores would."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or comes from another machine; the fit goes on."""


class TimeLimitWarning(UserWarning):
    """A fit ended at its ``time_limit``, with fewer rounds or measurements than planned."""


class UnavailableError(ValueError):
    """A constraint needs an attribute that the rows do not have."""


class MachineError(RuntimeError):
    """One of several machines has failed or was lost; the error is the same on all of them.

    Parameters
    ----------
    rank : int
        Number of the machine, from zero on.
    size : int
        Number of machines.
    host : str
        Name of the computer.
    reason : str
        What happened there, such as the type and the message of an error.
    """

    is_echo = False  # Whether this may be the failure of another machine, which broke a sum.

    def __init__(self, rank: int, size: int, host: str, reason: str) -> None:
        super().__init__(rank, size, host, reason)
        self.rank, self.size, self.host, self.reason = rank, size, host, reason

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size} ({self.host}): {self.reason}"
