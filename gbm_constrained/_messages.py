"""Parts of messages: shortened lists, and the user's line that a warning is about."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

MOST_NAMED = 20  # Things of one kind that a message names.


def join_truncated(things: Sequence[Any], most: int = MOST_NAMED) -> str:
    """List the first of many things, and tell how many more there are."""
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return ", ".join(map(str, things[:most])) + more


def find_stack_level() -> int:
    """``stacklevel`` of a warning that is about the line of the user's that called a fit."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in ("gbm_constrained", "xgboost"):
        if frame.f_back is None:
            break
        level, frame = level + 1, frame.f_back
    return level


def is_finite(number: Any) -> bool:
    """Whether a number is finite as a float."""
    try:
        return math.isfinite(float(number))
    except OverflowError:  # of an integer of some hundred digits
        return False
