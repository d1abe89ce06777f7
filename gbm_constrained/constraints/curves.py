"""Rows that bounds compile to: linear ones, and others that training sees by their tangents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gbm_constrained._typing import Float

# Denominator at which the gradient of a quotient is taken where the quotient has a smaller one:
# it grows without bound at zero.
SMALLEST_DENOMINATOR = 1e-3
UNDEFINED = 1e-12  # Denominator up to which a quotient is undefined.
ROUNDING = 1e-12  # Norm of differences up to which groups are alike.


@dataclass(frozen=True)
class LinearRow:
    """``sum_k coefficients[k] * functionals[k] <= bound``."""

    name: str  # Printed name.
    coefficients: Mapping[int, float]  # Coefficients by the positions of their functionals.
    bound: float


class CurveFunction(Protocol):
    """A function of functionals whose values are smaller the better a constraint is met."""

    @property
    def signs(self) -> tuple[int, ...]:
        """Sign of the derivative in each functional; zero where it may have either."""

    @property
    def denominators(self) -> tuple[int, ...]:
        """Positions of functionals by which others are divided."""

    def values(self, functionals: Float) -> Float:
        """Compute the values of functionals of shape (n_functionals, n), shape (n,).

        A value is NaN where a functional is.
        """

    def gradient(self, functionals: Float) -> Float:
        """Compute the gradient at functionals of shape (n_functionals,)."""

    def opposite(self, at: tuple[int, ...]) -> tuple[int, ...] | None:
        """Exchange the groups that are compared; None where none are."""


@dataclass(frozen=True)
class CurvedRow:
    """``function(functionals at some positions) <= bound``."""

    at: tuple[int, ...]  # Positions of the functionals.
    function: CurveFunction
    bound: float


@dataclass(frozen=True)
class DifferenceNorm:
    r"""The p-norm of weighted differences of two groups, :math:`(\sum_i (w_i d_i)_+^p)^{1/p}`.

    The functionals of a difference are the rate of both groups, or the numerator and denominator
    of one group and those of the other. For p of one the differences are added with their signs.
    A difference is zero where a quotient is undefined, so that such a row holds.

    Parameters
    ----------
    weights : tuple of float
        Weight of each difference.
    is_quotient : tuple of bool
        Whether each difference is one of quotients.
    p : float
        Order of the norm, finite.
    """

    weights: tuple[float, ...]
    is_quotient: tuple[bool, ...]
    p: float = 1.0

    @property
    def signs(self) -> tuple[int, ...]:
        """Sign of the derivative in each functional; a denominator may move a quotient anyhow."""
        return tuple(
            sign for one in self.is_quotient for sign in ((1, 0, -1, 0) if one else (1, -1))
        )

    @property
    def denominators(self) -> tuple[int, ...]:
        """Positions of the denominators of quotients."""
        widths = [4 if one else 2 for one in self.is_quotient]
        starts = [sum(widths[:i]) for i in range(len(widths))]
        of_quotients = [i for i, one in zip(starts, self.is_quotient, strict=True) if one]
        return tuple(k for i in of_quotients for k in (i + 1, i + 3))

    def values(self, functionals: Float) -> Float:
        """Compute the norm of several choices of functionals."""
        found = np.array([difference for difference, _ in self._differences(functionals)])
        if self.p == 1.0:
            return np.asarray(found.sum(axis=0))
        return np.asarray((np.maximum(found, 0.0) ** self.p).sum(axis=0) ** (1.0 / self.p))

    def gradient(self, functionals: Float) -> Float:
        """Compute the gradient; zero where no difference exceeds rounding, for p above one."""
        parts = self._differences(functionals)
        if self.p == 1.0:
            return np.concatenate([slope for _, slope in parts])
        positive = np.array([max(float(difference), 0.0) for difference, _ in parts])
        total = float((positive**self.p).sum() ** (1.0 / self.p))
        if not total > ROUNDING:  # All groups alike: rounding has no direction.
            return np.zeros(functionals.shape[0])
        outer = (positive / total) ** (self.p - 1.0)
        return np.concatenate([a * slope for a, (_, slope) in zip(outer, parts, strict=True)])

    def opposite(self, at: tuple[int, ...]) -> tuple[int, ...] | None:
        """Exchange the two groups in each difference."""
        found: list[int] = []
        for is_quotient in self.is_quotient:
            width = 2 if is_quotient else 1
            first = len(found)
            found += [*at[first + width : first + 2 * width], *at[first : first + width]]
        return tuple(found)

    def _differences(self, functionals: Float) -> list[tuple[Float, Float]]:
        """Compute each weighted difference, and its gradient in its own functionals."""
        found, at = [], 0
        for weight, is_quotient in zip(self.weights, self.is_quotient, strict=True):
            width = 4 if is_quotient else 2
            own = functionals[at : at + width]
            at += width
            if not is_quotient:
                found.append((weight * (own[0] - own[1]), weight * np.array([1.0, -1.0])))
                continue
            first, second = _divide(own[0], own[1]), _divide(own[2], own[3])
            is_known = (np.abs(own[1]) > UNDEFINED) & (np.abs(own[3]) > UNDEFINED)
            difference = np.where(is_known | np.isnan(own).any(axis=0), first - second, 0.0)
            slope = np.zeros(4)
            if functionals.ndim == 1 and is_known:
                inverse = 1.0 / np.maximum(own[1::2], SMALLEST_DENOMINATOR)
                slope[::2] = inverse
                slope[1::2] = -np.array([first, second]) * inverse
                slope[2:] *= -1.0
            found.append((weight * difference, weight * slope))
        return found


def _divide(numerator: Float, denominator: Float) -> Float:
    """Divide, and give zero where the denominator is zero."""
    is_zero = np.abs(denominator) <= UNDEFINED
    return np.asarray(np.where(is_zero, 0.0, numerator / np.where(is_zero, 1.0, denominator)))
