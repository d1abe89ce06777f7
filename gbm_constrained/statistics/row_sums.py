r"""Sums of values of rows over machines, in which the order of the rows plays no part.

A sum of float64 numbers depends on their order as soon as one addition is rounded. Where rows are
on several machines, each value x is therefore split into two whole numbers,

.. math:: 2^{52 - e} x \approx 2^{26} h + l , \qquad |h| \le 2^{26}, \quad 0 \le l < 2^{26} ,

with :math:`2^e` above every value. Sums of up to :math:`2^{27}` such numbers are at most
:math:`2^{53}` and so exact, whichever machine holds which row. A value is off by no more than
:math:`2^{-52}` of the largest one, and not at all if it is a multiple of :math:`2^{e - 52}`. Equal
values stay equal, so that a test of equal weights has the same result as on one machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.communicator import Communicator

HALF = 2.0**26  # Whole numbers up to it are added without rounding, 2^27 of them.
TINY = 2.0**-1000  # Least unit, by which values can be divided.

Values: TypeAlias = NDArray[Any] | None  # One number or boolean for each row; None for ones.


def sum_over_machines(
    add: Callable[[Any], Any], values: Sequence[Values], communicator: Communicator
) -> Float:
    """Sum values of the rows of all machines.

    Parameters
    ----------
    add : callable
        Adds values of the rows of this machine up in a table, whose shape all machines share.
    values : sequence of ndarray or None
        Values that are added up, each in a table of its own. Booleans and None, which stands for
        ones, are counted.
    communicator : Communicator
        Adds tables over the machines.

    Returns
    -------
    ndarray of shape (n_values, ...)
        Tables of all rows. Where one machine holds these, they are its own tables.
    """
    if communicator.holds_all_rows:
        return np.array([add(x) for x in values], dtype=np.float64)
    units = _find_units(values, communicator)
    parts: list[Float] = []
    for x, unit in zip(values, units, strict=True):
        parts += [add(x)] if _is_counted(x) else map(add, _split(np.asarray(x), unit))
    tables = iter(communicator.sum(np.array(parts, dtype=np.float64)))
    found = []
    for x, unit in zip(values, units, strict=True):
        table = next(tables)
        found.append(table if _is_counted(x) else (HALF * table + next(tables)) * unit)
    return np.array(found)


def _is_counted(x: Values) -> bool:
    """Whether values are ones or booleans, whose sums are exact as they are."""
    return x is None or x.dtype == np.bool_


def _find_units(values: Sequence[Values], communicator: Communicator) -> list[float]:
    """Find a power of two for each kind of values, of which they are less than 2^52 times."""
    if all(map(_is_counted, values)):
        return [1.0] * len(values)
    own = [1.0 if x is None else float(np.abs(x).max(initial=0.0)) for x in values]
    largest = [max(found) for found in zip(*communicator.gather(own), strict=True)]
    return [max(math.ldexp(1.0, math.frexp(x)[1] - 52), TINY) for x in largest]


def _split(x: NDArray[Any], unit: float) -> tuple[Float, Float]:
    """Split values into whole numbers, the higher and the lower half of their digits."""
    whole = np.rint(x / unit)
    high = np.floor(whole / HALF)
    return high, whole - HALF * high


def count_rows(cells: Cells) -> int:
    """Count the rows of all machines."""
    return int(cells.count[cells.views[0].cells].sum())
