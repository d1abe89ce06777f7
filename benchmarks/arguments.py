"""Types of the arguments of benchmark scripts."""

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def at_least(least: Number, most: float = math.inf) -> Callable[[str], Number]:
    """Make the type of a number within limits; a whole number where `least` is one."""
    kind = type(least)
    limits = f"{least:,g} or more" if math.isinf(most) else f"between {least:,g} and {most:,g}"

    def number(text: str) -> Number:
        if not least <= (value := kind(text)) <= most:
            raise argparse.ArgumentTypeError(f"must be {limits}, got {text}")
        return value

    number.__name__ = kind.__name__  # Messages of argparse contain this name.
    return number
