"""Hashes of row numbers, by which a row is in a part or a sample wherever it is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def hash_numbers(numbers: NDArray[Any], seed: int = 0) -> NDArray[np.uint64]:
    """Hash integers to 64 bits that look random (splitmix64: Steele, Lea and Flood, 2014).

    Parameters
    ----------
    numbers : ndarray of int
        Numbers of rows.
    seed : int, default=0
        Hashes under different seeds are unrelated.

    Returns
    -------
    ndarray of uint64
        Hashes; those of different numbers differ.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) + golden * np.uint64((seed + 1) & 0xFFFFFFFFFFFFFFFF)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def hash_texts(texts: Sequence[str], seed: int = 0) -> NDArray[np.uint64]:
    """Hash texts to 64 bits that look random, alike in every process."""
    first = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    return hash_numbers(np.frombuffer(b"".join(first), dtype="<u8"), seed)
