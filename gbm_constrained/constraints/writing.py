"""Values and calls as Python text, which :mod:`gbm_constrained.constraints.text` reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


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
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    if type(value) is not str:
        raise NotTextError(
            f"{value!r} is of type {type(value).__name__}, and only texts, numbers, true and "
            f"false can be written"
        )
    quote = '"' if "'" in value and '"' not in value else "'"
    return f"{quote}{''.join(_escape(character, quote) for character in value)}{quote}"


def _escape(character: str, quote: str) -> str:
    if character in ("\\", quote):
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    escape = f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, escape)


def write_sum(
    parts: Iterable[tuple[float, str]],
    constant: float = 0.0,
    write: Callable[[float], str] = "{:g}".format,
) -> str:
    """Write a sum of what is written already, each with its coefficient, and of a number."""
    text = ""
    for a, part in parts:
        size = "" if abs(a) == 1.0 else f"{write(abs(a))} * "
        sign = ("-" if a < 0 else "") if not text else (" - " if a < 0 else " + ")
        text += f"{sign}{size}{part}"
    if not text:
        return write(constant)
    return f"{text}{' - ' if constant < 0 else ' + '}{write(abs(constant))}" if constant else text


def write_list(written: list[str]) -> str:
    """Write a list of what is written already."""
    return f"[{', '.join(written)}]"


def write_call(name: str, *positional: str, **named: str | None) -> str:
    """Write the call of a function."""
    given = [*positional, *(f"{name}={value}" for name, value in named.items() if value)]
    return f"{name}({', '.join(given)})"
