"""Checks of ``group_thresholds`` that need no rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbm_constrained.constraints.base import Constraint


def check_group_thresholds(asked: Any, constraints: Sequence[Constraint], iterate: str) -> None:
    """Refuse thresholds of groups where there are none, or where several models decide.

    Raises
    ------
    ValueError
        If `asked` is no boolean, or there are no constraints, or `iterate` gives several models.
    """
    if not isinstance(asked, bool):
        raise ValueError(f"group_thresholds must be True or False, got {asked!r}.")
    if not asked:
        return
    if not constraints:
        raise ValueError(
            "group_thresholds=True decides by the columns that constraints group by, and there "
            "are no constraints: give some, or use group_thresholds=False."
        )
    if iterate in ("ergodic", "randomized"):
        raise ValueError(
            f"group_thresholds=True gives one model a threshold for each group, and "
            f"iterate={iterate!r} is a mean of several: use iterate='last' or 'best'."
        )
