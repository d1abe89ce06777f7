"""What a rate counts, and over which rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gbm_constrained.constraints.selectors import ClassPosition, Deployed, Label, Selector


@dataclass(frozen=True)
class Predicted:
    """A row is predicted as a class, or as any but one: a label, or the binary position."""

    target: Label | ClassPosition


@dataclass(frozen=True)
class Differs:
    """A row is predicted otherwise than another model decides."""

    deployed: Deployed


Event: TypeAlias = Predicted | Differs | Literal["error", "correct", "log_loss"]


@dataclass(frozen=True)
class Term:
    """Weighted mean of an event over rows.

    Parameters
    ----------
    name : str
        How it prints, without `on`.
    event : event
        What is counted, or the cross-entropy.
    rows : tuple of selectors
        The rows that the rate itself is taken over, as ``y = 0`` of a false positive rate.
    on : tuple of selectors
        The user's restriction.
    where : tuple of selectors
        Among those rows, the ones on which the event counts.
    """

    name: str
    event: Event
    rows: tuple[Selector, ...] = ()
    on: tuple[Selector, ...] = ()
    where: tuple[Selector, ...] = ()

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """All that says which rows count."""
        return (*self.rows, *self.on, *self.where)

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.on))}]" if self.on else self.name
