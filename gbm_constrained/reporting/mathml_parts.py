"""Parts of formulas in MathML: operators, fractions, numbers and texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MINUS = "\N{MINUS SIGN}"


def write_over(name: str, index: str) -> str:
    """Write an operator with an index below it."""
    return f"<munder><mo movablelimits='false'>{name}</mo><mrow>{index}</mrow></munder>"


def write_fraction(above: str, below: str) -> str:
    """Write a fraction."""
    return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"


def write_list(parts: Sequence[str]) -> str:
    """Write parts between commas."""
    return "<mo>,</mo>".join(f"<mrow>{part}</mrow>" for part in parts)


def write_tuple(parts: Iterable[str]) -> str:
    """Write parts in brackets, and one part without."""
    written = list(parts)
    return written[0] if len(written) == 1 else f"<mo>(</mo>{write_list(written)}<mo>)</mo>"


def write_operator(sign: str) -> str:
    """Write an operator."""
    return f"<mo>{sign}</mo>"


def write_number(value: float) -> str:
    """Write a number."""
    return f"<mn>{value:g}</mn>".replace("-", MINUS)


def write_text(value: Any) -> str:
    """Write a text of the user, escaped."""
    return f"<mtext>{escape(str(value))}</mtext>"
