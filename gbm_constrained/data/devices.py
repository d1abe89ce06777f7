"""Arrays in main memory or on a graphics card: one source of code for numpy and CuPy.

A function of numpy hands arrays of CuPy to CuPy. The code of the kernels therefore names numpy
alone. Only where an array is made, or is moved from one memory to the other, is the module of its
rows asked for. Arrays with an entry for each row stay on the card, and tables with an entry for
each cell stay in main memory.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

from gbm_constrained._typing import Array


def array_module(x: Any) -> Any:
    """Find the module that makes arrays of the kind of `x`: numpy or CuPy."""
    return np if isinstance(x, np.ndarray) else sys.modules[type(x).__module__.partition(".")[0]]


def to_host(x: Any) -> Array:
    """Copy an array to main memory, unless it is there."""
    return x if isinstance(x, np.ndarray) else np.asarray(x.get())


def look_up(table: Array, codes: Any, out: Any = None) -> Any:
    """Look up entries of a table in main memory for codes of rows, none of which is out of range.

    The result is where the codes are.
    """
    xp = array_module(codes)
    if xp is np:  # numpy is fastest without a check of the range.
        return table.take(codes, axis=0, out=out, mode="wrap")
    return xp.asarray(table).take(codes, axis=0, out=out)


def address_of(x: Any) -> int:
    """Find the address of an array in its memory."""
    if isinstance(x, np.ndarray):
        return int(x.__array_interface__["data"][0])
    return int(x.data.ptr)


def find_cupy() -> Any | None:
    """Import CuPy; None where it is not installed or finds no card."""
    try:
        cupy = import_module("cupy")
        return cupy if cupy.cuda.is_available() else None
    except ImportError:
        return None
