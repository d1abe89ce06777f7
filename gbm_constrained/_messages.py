"""Parts of messages, and checks of arguments that several packages share."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

MOST_NAMED = 20  # Most things of one kind that a message names.


def join_truncated(things: Sequence[Any], most: int = MOST_NAMED) -> str:
    """List the first of many things, and count the others."""
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return ", ".join(map(str, things[:most])) + more


def find_stack_level() -> int:
    """Find the ``stacklevel`` of the user's line that called the package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in ("gbm_constrained", "xgboost"):
        if frame.f_back is None:
            break
        level, frame = level + 1, frame.f_back
    return level


def is_number(value: Any) -> bool:
    """Whether a value is a real number, and no truth value."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_finite(number: Any) -> bool:
    """Whether a number is finite as a float."""
    try:
        return math.isfinite(float(number))
    except OverflowError:  # An integer may have some hundred digits.
        return False


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Refuse a value that is none of the choices of a parameter."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")


def check_integer(name: str, value: object, least: int) -> None:
    """Refuse a value that is no integer, or less than `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}.")
