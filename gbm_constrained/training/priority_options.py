"""Checks of constraints with priorities that need no rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.priorities import refuse_priorities


def check_priorities(constraints: Sequence[Constraint], options: Mapping[str, Any]) -> None:
    """Refuse priorities where no threshold on unseen rows decides what is given up.

    Parameters
    ----------
    constraints : sequence of Constraint
        The constraints.
    options : mapping
        Constructor parameters that were given; linear models lack most.

    Raises
    ------
    ValueError
        If a constraint has a priority, and the options do not go with it, or if one of several
        priorities is about scores.
    """
    measure_on, iterate = options.get("measure_on"), options.get("iterate")
    for is_refused, reason in (
        (
            measure_on is None,
            "a linear model has no held-out rows that decide what is given up: leave "
            "with_priority out, or use a booster",
        ),
        (measure_on == "train", no_held_out_rows("measure_on='train'")),
        (
            iterate in ("ergodic", "randomized"),
            f"iterate={iterate!r} is a mean of several models, which have no common "
            f"threshold: use iterate='last' or 'best'",
        ),
        (
            options.get("group_thresholds", False),
            "group_thresholds=True meets all constraints or none: leave it out, or leave "
            "with_priority out",
        ),
    ):
        if is_refused:
            refuse_priorities(constraints, reason)
    _refuse_scores(constraints)


def no_held_out_rows(where: str) -> str:
    """Say why priorities need held-out rows, and what else can be done."""
    return (
        f"what is given up is decided on rows that the trees have not seen, which {where} does "
        f"not have: use measure_on='crossfit' or 'holdout', or leave with_priority out"
    )


def _refuse_scores(constraints: Sequence[Constraint]) -> None:
    """Refuse constraints on scores beside priorities, since no threshold gives one up."""
    if len({constraint.priority for constraint in constraints}) < 2:
        return
    for constraint in constraints:
        if constraint.is_of_scores:
            raise ValueError(
                f"constraints: {constraint} is about scores, and constraints with priorities "
                f"are met or given up by a threshold, which changes no score: leave "
                f"with_priority out, or bound rates of decisions alone."
            )
