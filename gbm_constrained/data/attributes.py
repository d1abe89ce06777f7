"""Attributes of rows, which define cells: levels, and the level of each row."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Codes
from gbm_constrained.constraints.selectors import MISSING, Mask, to_python_scalar


@dataclass(frozen=True)
class Attribute:
    """Levels of an attribute, and the level of each row.

    Parameters
    ----------
    levels : Classes (and None for rows without a label), names of data sets (None of the training
        rows), values of columns (one tuple for each group), ``(False, True)`` of a mask, or the
        decisions of another model.
    codes : (n_samples,). Position of each row's level; ``len(levels)`` for a value that is not
        among them.
    """

    levels: tuple[Any, ...]
    codes: NDArray[Any]

    @cached_property
    def size(self) -> int:
        """Number of levels, and one more if some rows have no level."""
        return len(self.levels) + int(self.codes.max(initial=0) == len(self.levels))


@dataclass(frozen=True)
class Membership:
    """Membership of all rows in a mask of training rows, unpacked when it is used.

    A fit may have a hundred masks. Rows of further data sets follow, and are in no mask.
    """

    mask: Mask
    n_samples: int
    levels: ClassVar[tuple[Any, ...]] = (False, True)
    size: ClassVar[int] = 2

    @property
    def codes(self) -> NDArray[np.int8]:
        """Level of each row, (n_samples,): 1 in the mask, and 0 elsewhere."""
        codes = np.zeros(self.n_samples, dtype=np.int8)
        codes[: self.mask.n_samples] = self.mask.to_array()
        return codes


def factorize(values: NDArray[Any], what: str) -> tuple[tuple[Any, ...], NDArray[Any]]:
    """Find the sorted distinct values, a missing one last, and the position of each value.

    Positions are in the smallest type. Error messages call the values `what`.
    """
    try:
        codes, found = pd.factorize(values, sort=False)
    except TypeError:
        odd = next(v for v in values if not pd.api.types.is_hashable(v))
        raise ValueError(
            f"{what} hold {odd!r}, a {type(odd).__name__}, which cannot be told apart from other "
            f"values: give one number or text for each row."
        ) from None
    uniques = list(map(to_python_scalar, found))
    levels = sort_values(uniques)
    rank = {value: i for i, value in enumerate(levels)}
    position = np.array([*(rank[value] for value in uniques), len(levels)], dtype=np.intp)
    small = position.astype(np.min_scalar_type(position.size))  # A code for each row is kept.
    return (*levels, MISSING) if (codes < 0).any() else levels, small[codes]


def sort_values(values: Sequence[Any]) -> tuple[Any, ...]:
    """Sort distinct values, those of several types by type; a missing one comes last."""
    known = [value for value in values if value != MISSING]
    try:
        known.sort()
    except TypeError:
        known.sort(key=lambda value: (str(type(value)), str(value)))
    return (*known, *([MISSING] if len(known) < len(values) else []))


def codes_among(
    classes: NDArray[np.generic], values: NDArray[Any], what: str
) -> tuple[Codes, list[Any]]:
    """Find the class of each value, and the values that are no class: code ``len(classes)``."""
    known = {to_python_scalar(value): i for i, value in enumerate(classes)}
    levels, codes = factorize(values, what)
    position = np.array([known.get(value, len(known)) for value in levels], dtype=np.intp)
    return position[codes], [value for value in levels if value not in known]


def normalize_text(text: str) -> str:
    """Map texts that look alike to one: by white space, invisible characters and composition."""
    visible = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return " ".join(unicodedata.normalize("NFC", visible).split())


def warn_of_similar_values(column: Hashable, values: Sequence[Any]) -> None:
    """Warn of groups whose values look like different spellings of one value."""
    if not any(isinstance(value, str) for value in values):
        return
    alike: dict[str, list[Any]] = {}
    for value in (value for value in values if value is not MISSING):
        alike.setdefault(normalize_text(str(value)).casefold(), []).append(value)
    found = [quote_values(group) for group in alike.values() if len(group) > 1]
    if found:
        issue_warning(
            f"Column {column!r} has values that look alike and are groups of their own: "
            f"{join_truncated(found)}. Spell them alike if they mean the same.",
            "GC202",
        )


def quote_values(values: Sequence[Any]) -> str:
    """List values in quotes, those that look alike in quotes in ASCII."""
    forms = {unicodedata.normalize("NFC", repr(value)) for value in values}
    return " and ".join(map(repr if len(forms) == len(values) else ascii, values))
