"""Order statistics of values that several machines hold, by counts of the bits of the values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gbm_constrained.data.communicator import Communicator

DIGIT = 8  # Bits that a table of counts decides at once.


def kth_smallest(values: NDArray[np.float64], k: int, communicator: Communicator) -> float:
    """Find the k-th smallest of the values of all machines, counted from 1.

    On many machines the bits of the value are found from the highest on, by counts of the values
    that agree so far: a radix selection, which moves no value.
    """
    if communicator.holds_all_rows:
        return float(np.partition(values, k - 1)[k - 1])
    keys, key = _to_keys(values), np.uint64(0)
    for shift in range(64 - DIGIT, -1, -DIGIT):
        digits = keys >> np.uint64(shift) & np.uint64(2**DIGIT - 1)
        counts = np.bincount(digits.astype(np.intp), None, 2**DIGIT).astype(np.float64)
        counts = communicator.sum(counts)
        below = counts.cumsum()
        digit = int(np.searchsorted(below, k))
        k -= int(below[digit] - counts[digit])
        keys = keys[digits == digit]
        key |= np.uint64(digit << shift)
    return _from_key(key)


def _to_keys(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Map numbers to integers in the same order; there is one zero."""
    bits = (values + 0.0).view(np.uint64)
    is_negative = bits >> np.uint64(63) == 1
    return np.where(is_negative, ~bits, bits | np.uint64(1 << 63))


def _from_key(key: np.uint64) -> float:
    """Map an integer back to its number."""
    is_negative = key >> np.uint64(63) == 0
    bits = ~key if is_negative else key ^ np.uint64(1 << 63)
    return float(np.array([bits], dtype=np.uint64).view(np.float64)[0])
