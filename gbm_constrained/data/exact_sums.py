"""Sums over the rows of several machines, whichever machine holds which row.

A sum in floating point depends on the order of its terms. Several machines therefore round the
value of each row to a multiple of one power of two, the *step*. The step is so large that float64
holds every sum of such values without error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Codes, Float


class Communicator:
    """Adds tables of cells over machines, and collects small values; rows never move.

    This one is that of the one machine that holds all rows; subclasses connect several.

    Every machine calls the methods in the same order, with tables of the same shape.

    Attributes
    ----------
    rank : int
        Number of this machine, from zero on.
    size : int
        Number of machines.
    holds_all_rows : bool
        Whether there are no other machines. If false, numbers are computed in ways that do not
        depend on the number of machines, which may be one.
    """

    rank: int = 0
    size: int = 1
    holds_all_rows: bool = True

    def sum(self, table: Float) -> Float:
        """Add the tables of all machines; each machine is given the total."""
        return table

    def gather(self, value: Any) -> list[Any]:
        """Collect a small value of each machine, such as the groups of its rows, by rank."""
        return [value]


def is_any(communicator: Communicator, flag: bool) -> bool:  # noqa: FBT001 - a value, no option
    """Whether a condition holds on any of the machines."""
    return any(communicator.gather(bool(flag)))


@dataclass(frozen=True, eq=False)
class Machine:
    """The machine that holds some rows, and the numbers of these rows among those of all.

    Parameters
    ----------
    communicator : Communicator, default=Communicator()
        Adds tables over the machines.
    numbers : ndarray of shape (n_samples,), int64, default=None
        Number of each row, different for each row of all machines. It decides alone which part a
        row is in, wherever the row is. None where one machine holds all rows.
    numbers_of_sets : mapping from str to ndarray, default=empty
        Numbers of the rows of each evaluation set, by the name of the set.
    """

    communicator: Communicator = field(default_factory=Communicator)
    numbers: Codes | None = None
    numbers_of_sets: Mapping[str, Codes] = field(default_factory=dict)

    def take(self, index: Codes) -> Machine:
        """Describe some of the rows."""
        numbers = None if self.numbers is None else self.numbers[index]
        return Machine(self.communicator, numbers, self.numbers_of_sets)

    def of_set(self, name: str) -> Machine:
        """Describe the rows of an evaluation set."""
        return Machine(self.communicator, self.numbers_of_sets.get(name))


Values: TypeAlias = NDArray[Any] | None  # One number or boolean for each row; None for ones.

HALF = 2.0**26  # Whole numbers up to it are added without rounding, 2^27 of them.
BITS = 53  # Bits of the integers that float64 holds without error.


class ExactSums:
    """Sums of one value of each row over machines; one machine with all rows rounds nothing.

    Parameters
    ----------
    communicator : Communicator
        Connects the machines.
    n_rows : int
        Number of rows of all machines, or a larger number.

    Attributes
    ----------
    are_rounded : bool
        Whether values are rounded before they are added.
    """

    def __init__(self, communicator: Communicator, n_rows: int) -> None:
        self.communicator, self.n_rows = communicator, n_rows
        self.are_rounded = not communicator.holds_all_rows

    def step(self, bound: float) -> float:
        """Compute the step of values of at most `bound` in size.

        With ``2^e > bound`` and ``2^r >= n_rows`` it is ``2^(e + r - 53)``: the sum of all rows is
        at most ``2^53`` steps. Rounding changes a value by half a step, at most ``n_rows * bound *
        2^-52``.
        """
        # Rounding by a sum needs two bits between the step and the largest value.
        room = max((self.n_rows - 1).bit_length(), 2)
        return math.ldexp(1.0, math.frexp(bound)[1] + room - BITS)

    def round(self, values: Any, bound: float) -> Any:
        """Round values of at most `bound` in size to multiples of the step, as float64.

        The bound must be the same on all machines. The arrays may be of numpy or CuPy.
        """
        if not self.are_rounded:
            return values
        # Numbers near the offset are one step apart.
        offset = 1.5 * 2.0 ** (BITS - 1) * self.step(bound)
        rounded = values.astype(np.float64)  # Faster than a sum that converts.
        rounded += offset
        rounded -= offset
        return rounded

    def largest(self, value: float) -> float:
        """Find the largest of one number of each machine."""
        return float(max(self.communicator.gather(value)))


def round_weights(weight: Float, communicator: Communicator) -> Float:
    """Round weights of rows, so that machines add them without error.

    Parameters
    ----------
    weight : ndarray of shape (n_samples,), float64
        Weights of the rows of this machine.
    communicator : Communicator
        Connects the machines. Where there is one that holds all rows, nothing is rounded.

    Returns
    -------
    ndarray of shape (n_samples,), float64
        Weights that differ by at most ``n * w * 2^-52``, with n the number of rows of all machines
        and w the largest weight.
    """
    if communicator.holds_all_rows:
        return weight
    found = communicator.gather((weight.size, float(weight.max(initial=0.0))))
    sizes, largest = zip(*found, strict=True)
    rounded: Float = ExactSums(communicator, sum(sizes)).round(weight, max(largest))
    return rounded


def sum_over_machines(
    add: Callable[[Any], Any], values: Sequence[Values], communicator: Communicator
) -> Float:
    r"""Sum values of the rows of all machines.

    Each value x is split into two whole numbers, the higher and the lower half of its digits,

    .. math:: 2^{52 - e} x \approx 2^{26} h + l , \qquad |h| \le 2^{26}, \quad 0 \le l < 2^{26} ,

    with :math:`2^e` above every value. Sums of up to :math:`2^{27}` of them are exact. Unlike by
    :class:`ExactSums`, a value is off by :math:`2^{-52}` of the largest one, however many rows
    there are, so that tests of equal weights have their results of one machine.

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
    # A power of two for each kind of values, of which they are less than 2^52 times; at least
    # 2^-1000, by which values can be divided.
    units = [1.0] * len(values)
    if not all(map(_is_counted, values)):
        own = [1.0 if x is None else float(np.abs(x).max(initial=0.0)) for x in values]
        largest = [max(found) for found in zip(*communicator.gather(own), strict=True)]
        units = [max(math.ldexp(1.0, math.frexp(x)[1] - 52), 2.0**-1000) for x in largest]
    parts: list[Float] = []
    for x, unit in zip(values, units, strict=True):
        if x is None or _is_counted(x):
            parts.append(add(x))
        else:
            whole = np.rint(x / unit)
            high = np.floor(whole / HALF)
            parts += [add(high), add(whole - HALF * high)]
    tables = iter(communicator.sum(np.array(parts, dtype=np.float64)))
    found = []
    for x, unit in zip(values, units, strict=True):
        table = next(tables)
        found.append(table if _is_counted(x) else (HALF * table + next(tables)) * unit)
    return np.array(found)


def _is_counted(x: Values) -> bool:
    """Whether values are ones or booleans, whose sums are exact as they are."""
    return x is None or x.dtype == np.bool_
