"""Checks of the parameters by which groups decide, that need no rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbm_constrained.constraints.base import Constraint

# Parameters of classifiers and of regressors, and what each group gets by them.
GROUP_PARAMETERS = {"group_thresholds": "threshold", "group_shifts": "shift"}


def check_group_parameter(
    parameter: str, asked: Any, constraints: Sequence[Constraint], iterate: str
) -> None:
    """Refuse decisions by groups where there are none, or where several models decide.

    Raises
    ------
    ValueError
        If `asked` is no boolean, or there are no constraints, or `iterate` gives several models.
    """
    if not isinstance(asked, bool):
        raise ValueError(f"{parameter} must be True or False, got {asked!r}.")
    if not asked:
        return
    if not constraints:
        raise ValueError(
            f"{parameter}=True decides by the columns that constraints group by, and there are "
            f"no constraints: give some, or use {parameter}=False."
        )
    if iterate in ("ergodic", "randomized"):
        raise ValueError(
            f"{parameter}=True gives one model a {GROUP_PARAMETERS[parameter]} for each group, "
            f"and iterate={iterate!r} is a mean of several: use iterate='last' or 'best'."
        )
