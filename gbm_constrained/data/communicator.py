"""Sums over machines that hold different rows."""

from __future__ import annotations

from typing import Protocol

from gbm_constrained._typing import Float


class Communicator(Protocol):
    """Adds tables of cells over machines; rows never move.

    Every machine calls the methods in the same order with tables of the same shape. Each of them
    must hold rows of every class and group, so that the machines number cells alike.
    """

    def sum(self, table: Float) -> Float:
        """Add the tables of all machines; each machine is given the total."""


class SingleMachine:
    """The one machine that holds all rows."""

    def sum(self, table: Float) -> Float:
        """Return the table itself."""
        return table
