"""Checks of the parameters by which groups decide, that need no rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gbm_constrained.constraints.base import Constraint

# Parameters of classifiers and of regressors, and what each group gets by them.
GROUP_PARAMETERS = {"group_thresholds": "threshold", "group_shifts": "shift"}


def check_group_parameters(
    asked: Mapping[str, Any], constraints: Sequence[Constraint], iterate: str
) -> None:
    """Refuse decisions by groups where there are none, or where several models decide.

    Parameters
    ----------
    asked : dict
        Parameters of an estimator, by name.
    constraints : sequence of Constraint
        The constraints.
    iterate : str
        Which iterate is returned.

    Raises
    ------
    ValueError
        If a parameter is no boolean, or there are no constraints, or `iterate` gives several
        models, or shifts of groups would need a guarantee.
    """
    for parameter in GROUP_PARAMETERS.keys() & asked.keys():
        if not isinstance(asked[parameter], bool):
            raise ValueError(f"{parameter} must be True or False, got {asked[parameter]!r}.")
        if not asked[parameter]:
            continue
        if not constraints:
            raise ValueError(
                f"{parameter}=True decides by the columns that constraints group by, and there "
                f"are no constraints: give some, or use {parameter}=False."
            )
        if iterate in ("ergodic", "randomized"):
            raise ValueError(
                f"{parameter}=True gives one model a {GROUP_PARAMETERS[parameter]} for each "
                f"group, and iterate={iterate!r} is a mean of several: use iterate='last' or "
                f"'best'."
            )
        if parameter == "group_shifts" and asked.get("guarantee") is not None:
            raise ValueError(
                f"group_shifts=True chooses a shift of each group, and "
                f"guarantee={asked['guarantee']!r} certifies one scale and shift of all rows: "
                f"leave one of them out."
            )
