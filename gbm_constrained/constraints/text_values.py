"""Values, names and calls as text that constraints are written in."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from gbm_constrained.constraints.selectors import MISSING
from gbm_constrained.constraints.text_reader import CONSTANTS


class NotTextError(ValueError):
    """Error of a constraint that cannot be written as text."""


def write_number(value: float) -> str:
    """Write a number with all its digits."""
    return repr(float(value)).removesuffix(".0")


def write_value(value: Any) -> str:
    """Write a label, or the value or name of a column."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise NotTextError(f"{value!r} as a value has no text")
    if value == MISSING:
        return "None"
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    if type(value) is not str:
        raise NotTextError(
            f"{value!r} is of type {type(value).__name__}, and only texts, numbers, true and "
            f"false can be written"
        )
    if re.fullmatch(r"[^\W\d]\w*", value) and value not in (*CONSTANTS, "overall"):
        return value
    return f'"{"".join(map(_escape, value))}"'


def _escape(character: str) -> str:
    if character in '\\"':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    escape = f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, escape)


def write_call(name: str, *positional: str, **named: str | None) -> str:
    """Write the call of a function, without brackets where it has no arguments."""
    given = [*positional, *(f"{name}={value}" for name, value in named.items() if value)]
    return f"{name}({', '.join(given)})" if given else name
