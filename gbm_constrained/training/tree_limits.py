"""What a library's parameters say about the features that trees may split by."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Features: TypeAlias = frozenset[Hashable]


@dataclass(frozen=True)
class TreeLimits:
    """Limits of the trees of a fit, as the library's parameters set them.

    Attributes
    ----------
    missing : float, default=nan
        Number that trees take for a missing value.
    monotone : frozenset of column names, default=frozenset()
        Columns under ``monotone_constraints``.
    together : tuple of frozenset of column names, default=()
        Sets of ``interaction_constraints``, of which one must have all columns of a branch;
        none without a limit.
    """

    missing: float = np.nan
    monotone: Features = frozenset()
    together: tuple[Features, ...] = ()

    @classmethod
    def read(
        cls, names: Sequence[Hashable], monotone: Any, interactions: Any, missing: float = np.nan
    ) -> TreeLimits:
        """Read parameters in the forms that the libraries take: lists, texts and dicts."""
        return cls(missing, _read_monotone(names, monotone), _read_sets(names, interactions))


def _read_monotone(names: Sequence[Hashable], given: Any) -> Features:
    if isinstance(given, Mapping):
        return frozenset(name for name in names if given.get(str(name)))
    if isinstance(given, str):
        given = map(int, re.findall(r"-?\d+", given))
    signs = () if given is None else given
    return frozenset(name for name, sign in zip(names, signs, strict=False) if sign)


def _read_sets(names: Sequence[Hashable], given: Any) -> tuple[Features, ...]:
    if isinstance(given, str):
        given = ast.literal_eval(given if given.startswith("[[") else f"[{given}]")
    of_text = {str(name): name for name in names}
    return tuple(
        frozenset(of_text[one] if isinstance(one, str) else names[int(one)] for one in members)
        for members in given or ()
    )
