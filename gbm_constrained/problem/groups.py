"""Groups of rows that a constraint compares."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gbm_constrained._typing import Bool
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.selectors import Column, Columns
from gbm_constrained.data.attributes import normalize_text
from gbm_constrained.data.cells import View


@dataclass(frozen=True)
class Group:
    """Rows whose level of a grouping attribute is one of several.

    Parameters
    ----------
    by : Key of the attribute.
    levels : Positions of the levels.
    name : One value for each column.
    size : Number of rows that the rate is taken over, without those of weight zero. Among the
        terms of a sum of rates, the smallest number.
    quote : Function that prints texts of the name where another group prints alike: ``repr``, or
        ``ascii`` where the quoted forms look alike as well.
    """

    by: Columns
    levels: frozenset[int]
    name: tuple[Any, ...]
    size: int = 0
    quote: Callable[[object], str] | None = None

    @property
    def selectors(self) -> tuple[Column, ...]:
        """Values of columns that print the group in a rate."""
        return tuple(
            Column(c, self.quote(v) if self.quote is not None and isinstance(v, str) else v)
            for c, v in zip(self.by, self.name, strict=True)
        )

    def holds(self, view: View) -> Bool:
        """Find the cells of a view whose rows are in the group; shape (n_cells,)."""
        return np.isin(view.levels[self.by], list(self.levels))

    def __str__(self) -> str:
        return ", ".join(map(str, self.selectors))


@dataclass(frozen=True)
class SmallGroup:
    """A group in which a rate is taken over fewer rows than `min_group_size`.

    Parameters
    ----------
    rows : Number of rows that the rate is taken over in the group.
    treatment : {"kept", "merged", "left out"}.
    """

    constraint: Constraint
    group: Group
    rows: int
    treatment: str


def quote_lookalikes(groups: Sequence[Group]) -> list[Group]:
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
