"""Sums over machines."""

from __future__ import annotations

from collections.abc import Callable

from gbm_constrained._typing import Float

ReduceSum = Callable[[Float], Float]


def local_sum(x: Float) -> Float:
    """Sum of a table of cell sums over one machine: the table itself."""
    return x
