"""Groups of rows that a constraint compares."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gbm_constrained.constraints.expressions import Constraint
from gbm_constrained.constraints.selectors import Column
from gbm_constrained.data.rows import Columns, normalize_text


@dataclass(frozen=True)
class Group:
    """Rows with one of some levels of a grouping attribute.

    Parameters
    ----------
    by : tuple of column names
        The attribute.
    levels : frozenset of int
        Positions of its levels.
    name : tuple
        One value for each column.
    size : int
        Rows that the rate is taken over, without those of weight zero; of a sum of rates, those
        of the one that has fewest.
    quote : callable, default=None
        Writes its texts where another group prints alike: ``repr``, or ``ascii`` where their
        quoted forms look alike as well.
    """

    by: Columns
    levels: frozenset[int]
    name: tuple[Any, ...]
    size: int = 0
    quote: Callable[[object], str] | None = None

    @property
    def selectors(self) -> tuple[Column, ...]:
        """How the group prints in a rate."""
        return tuple(
            Column(c, self.quote(v) if self.quote is not None and isinstance(v, str) else v)
            for c, v in zip(self.by, self.name, strict=True)
        )

    def __str__(self) -> str:
        return ", ".join(map(str, self.selectors))


@dataclass(frozen=True)
class SmallGroup:
    """A group in which a rate is taken over fewer rows than `min_group_size`.

    Parameters
    ----------
    constraint : Constraint
        The constraint that compares groups.
    group : Group
        The group.
    rows : int
        Rows that the rate is taken over in the group.
    treatment : {"kept", "merged", "left out"}
        What became of the group.
    """

    constraint: Constraint
    group: Group
    rows: int
    treatment: str


def told_apart(groups: Sequence[Group]) -> list[Group]:
    """Quote the texts of groups that look alike, such as the number 0 and the text "0"."""
    looks = [normalize_text(str(group)) for group in groups]
    times = Counter(looks)
    quoted = [
        replace(group, quote=repr) if times[look] > 1 else group
        for group, look in zip(groups, looks, strict=True)
    ]
    # Two forms of one letter look alike in quotes, too.
    again = Counter(unicodedata.normalize("NFC", str(group)) for group in quoted)
    return [
        replace(group, quote=ascii)
        if again[unicodedata.normalize("NFC", str(group))] > 1
        else group
        for group in quoted
    ]
