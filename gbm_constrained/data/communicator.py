"""Machines that hold different rows of one fit, add tables, and collect small values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gbm_constrained._typing import Codes, Float


class Communicator(Protocol):
    """Adds tables of cells over machines, and collects small values; rows never move.

    Every machine calls the methods in the same order, with tables of the same shape.

    Attributes
    ----------
    rank : int
        Number of this machine, from zero on.
    size : int
        Number of machines.
    holds_all_rows : bool
        Whether there are no other machines. If false, numbers are computed in ways that do not
        depend on the number of machines, which may be one.
    """

    rank: int
    size: int
    holds_all_rows: bool

    def sum(self, table: Float) -> Float:
        """Add the tables of all machines; each machine is given the total."""

    def gather(self, value: Any) -> list[Any]:
        """Collect a small value of each machine, such as the groups of its rows, by rank."""


class SingleMachine:
    """The one machine that holds all rows."""

    rank = 0
    size = 1
    holds_all_rows = True

    def sum(self, table: Float) -> Float:
        """Return the table itself."""
        return table

    def gather(self, value: Any) -> list[Any]:
        """Return the value of this machine."""
        return [value]


def is_any(communicator: Communicator, flag: bool) -> bool:  # noqa: FBT001 - a value, no option
    """Whether a condition holds on any of the machines."""
    return any(communicator.gather(bool(flag)))


@dataclass(frozen=True, eq=False)
class Machine:
    """The machine that holds some rows, and the numbers of these rows among those of all.

    Parameters
    ----------
    communicator : Communicator, default=SingleMachine()
        Adds tables over the machines.
    numbers : ndarray of shape (n_samples,), int64, default=None
        Number of each row, different for each row of all machines. It decides alone which part a
        row is in, wherever the row is. None where one machine holds all rows.
    numbers_of_sets : mapping from str to ndarray, default=empty
        Numbers of the rows of each evaluation set, by the name of the set.
    """

    communicator: Communicator = field(default_factory=SingleMachine)
    numbers: Codes | None = None
    numbers_of_sets: Mapping[str, Codes] = field(default_factory=dict)

    def take(self, index: Codes) -> Machine:
        """Describe some of the rows."""
        numbers = None if self.numbers is None else self.numbers[index]
        return Machine(self.communicator, numbers, self.numbers_of_sets)

    def of_set(self, name: str) -> Machine:
        """Describe the rows of an evaluation set."""
        return Machine(self.communicator, self.numbers_of_sets.get(name))
