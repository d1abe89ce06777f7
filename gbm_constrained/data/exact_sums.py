"""Sums of rows that depend neither on the order of the rows nor on the machines that hold them.

A sum in floating point depends on the order of its terms. Several machines therefore round the
value of each row to a multiple of one power of two, the *step*. The step is so large that float64
holds every sum of such values without error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.data.communicator import Communicator

BITS = 53  # Bits of the integers that float64 holds without error.
# The trick of rounding by a sum needs this factor between the step and the largest value.
ROOM = 2


@dataclass(frozen=True)
class ExactSums:
    """Sums of one value of each row over machines; one machine with all rows rounds nothing.

    Parameters
    ----------
    communicator : Communicator
        Connects the machines.
    n_rows : int
        Number of rows of all machines, or a larger number.
    """

    communicator: Communicator
    n_rows: int

    @property
    def are_rounded(self) -> bool:
        """Whether values are rounded before they are added."""
        return not self.communicator.holds_all_rows

    def step(self, bound: float) -> float:
        """Compute the step of values of at most `bound` in size.

        With ``2^e > bound`` and ``2^r >= n_rows`` it is ``2^(e + r - 53)``: the sum of all rows is
        at most ``2^53`` steps. Rounding changes a value by half a step, at most ``n_rows * bound *
        2^-52``.
        """
        exponent = math.frexp(bound)[1]
        return math.ldexp(1.0, exponent + max((self.n_rows - 1).bit_length(), ROOM) - BITS)

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
