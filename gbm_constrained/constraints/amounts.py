"""Amounts that rows count for in rates, such as the value of a transaction."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from gbm_constrained._dataframes import as_array, index_of
from gbm_constrained._messages import is_finite
from gbm_constrained._typing import Float
from gbm_constrained.constraints.selectors import to_python_scalar


@dataclass(frozen=True)
class Amount:
    """What each row counts for in a rate: a column, or one number for each training row."""

    column: Hashable = None
    packed: bytes = b""  # Numbers of an array, in double precision.
    cap: float | None = None  # Largest amount that a row may have.
    index: Any = field(default=None, compare=False, repr=False)  # Row labels of a given Series.

    @classmethod
    def of(cls, weight: Any, cap: Any = None) -> Self | None:
        """Read ``weight=`` and ``cap=`` of a rate; None where every row counts as one.

        Raises
        ------
        TypeError
            If `weight` is neither the name of a column nor an array of numbers, or `cap` no
            number.
        ValueError
            If there is a cap without amounts, or it is not positive.
        """
        if cap is not None and not isinstance(cap, (int, float, np.integer, np.floating)):
            raise TypeError(f"cap= is the largest amount of a row, a number; got {cap!r}.")
        if cap is not None and not (is_finite(cap) and cap > 0):
            raise ValueError(f"cap= is the largest amount of a row, above 0; got {cap!r}.")
        if weight is None:
            if cap is not None:
                raise ValueError(f"cap={cap!r} bounds amounts: give weight=, the column of them.")
            return None
        limit = None if cap is None else float(cap)
        if np.ndim(weight) == 0:
            return cls(to_python_scalar(weight), cap=limit)
        numbers = as_array(weight)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
            raise TypeError(
                f"weight= is the name of a column of amounts, or one number for each training "
                f"row; got an array of dtype {numbers.dtype} and shape {numbers.shape}."
            )
        packed = numbers.astype(np.float64).tobytes()
        return cls(None, packed, limit, index_of(weight))

    @property
    def is_array(self) -> bool:
        """Whether the amounts were given as one number for each training row."""
        return bool(self.packed)

    @property
    def largest(self) -> float:
        """Largest amount that a row may have, infinite without a cap."""
        return math.inf if self.cap is None else self.cap

    @cached_property
    def n_samples(self) -> int:
        """Number of rows that amounts were given for."""
        return len(self.packed) // np.dtype(np.float64).itemsize

    def to_array(self) -> Float:
        """Unpack the amounts of an array, (n_samples,)."""
        return np.frombuffer(self.packed, dtype=np.float64)

    def __str__(self) -> str:
        amounts = f"{self.n_samples} amounts" if self.is_array else str(self.column)
        return amounts if self.cap is None else f"{amounts}, cap={self.cap:g}"
