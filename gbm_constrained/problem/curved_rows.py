r"""Rows of constraints that are no straight lines, and the linear rows of their directions.

A curved row bounds a function :math:`\psi(f)` of functionals. Each functional that it depends on
has rows :math:`\pm f_k` here, its *directions*. With the price :math:`\nu` of the curved row, the
gradient of the Lagrangian is that of

.. math:: \nu \sum_k \frac{\partial \psi}{\partial f_k} f_k ,

by the chain rule. The multiplier of a direction is therefore the price times the part of the
derivative that has its sign, at the current functionals. Prices move by the values of
:math:`\psi`, which are the left-hand sides of all directions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.curves import CurvedRow


@dataclass(frozen=True)
class Curve:
    """A curved row, and its directions among the linear rows.

    Parameters
    ----------
    row : CurvedRow
        The curved row.
    first : int
        Position of the first direction; the others follow.
    directions : tuple of (int, float)
        Functional of each direction, as a position in `row`, and its sign.
    """

    row: CurvedRow
    first: int
    directions: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, row: CurvedRow, first: int) -> Curve:
        """Find the directions of a row: both ways where a derivative may have either sign."""
        directions = [
            (i, sign)
            for i, known in enumerate(row.function.signs)
            for sign in (1.0, -1.0)
            if known in (0, sign)
        ]
        return cls(row, first, tuple(directions))

    @property
    def rows(self) -> slice:
        """Positions of the directions among the linear rows."""
        return slice(*self.span)

    @property
    def span(self) -> tuple[int, int]:
        """First position of the directions, and that after the last."""
        return self.first, self.first + len(self.directions)

    @property
    def at(self) -> Codes:
        """Positions of the functionals."""
        return np.array(self.row.at, dtype=np.intp)

    def value(self, functionals: Float) -> float:
        """Compute the value of the function, given all functionals; NaN where one is unknown.

        A function without a value at known functionals, as a quotient of zeros is, holds.
        """
        return float(self.values(functionals[None])[0])

    def values(self, functionals: Float) -> Float:
        """Compute the same of several choices of functionals, shape (n, n_functionals)."""
        own = functionals[:, self.at].T
        found = self.row.function.values(own)
        is_undefined = np.isnan(found) & ~np.isnan(own).any(axis=0)
        return np.where(is_undefined, self.row.bound, found)

    def gradient(self, functionals: Float) -> Float:
        """Compute the gradient in the functionals of the row; zero where it is undefined."""
        own = functionals[self.at]
        is_undefined = np.isnan(self.row.function.values(own[:, None])[0])
        return np.zeros(own.size) if is_undefined else self.row.function.gradient(own)

    def combine(self, derivatives: Float) -> Float:
        """Add up the parts of the derivatives of the directions, by functional of the row."""
        at, sign = np.array(self.directions).T
        weight = sign * derivatives[self.rows]
        return np.bincount(at.astype(np.intp), weight, len(self.row.at)).astype(np.float64)

    def derivatives(self, functionals: Float) -> Float:
        """Compute the part of the derivative that each direction has."""
        at, sign = np.array(self.directions).T
        found = sign * self.gradient(functionals)[at.astype(np.intp)]
        return np.asarray(np.maximum(found, 0.0), dtype=np.float64)


@dataclass(frozen=True)
class Curves:
    """The curved rows of constraints.

    Parameters
    ----------
    n_rows : int, default=0
        Number of linear rows, directions among them.
    items : tuple of Curve, default=()
        The curved rows.
    """

    n_rows: int = 0
    items: tuple[Curve, ...] = ()

    @cached_property
    def is_curved(self) -> Bool:
        """Whether each linear row is a direction of a curve, shape (n_rows,)."""
        found = np.zeros(self.n_rows, dtype=bool)
        for curve in self.items:
            found[curve.rows] = True
        return found

    @cached_property
    def opposites(self) -> list[tuple[int, int]]:
        """Pairs of directions of two curves that differ in which group is ahead.

        At most one of the two curves binds, and the other has no price beside it.
        """
        known = {(curve.row.function, curve.row.at): curve for curve in self.items}
        found = []
        for curve in self.items:
            function, at = curve.row.function, curve.row.at
            other = known.get((function, function.opposite(at) or at))
            if other is not None and curve.first < other.first:
                found += [(i, i - curve.first + other.first) for i in range(*curve.span)]
        return found

    def keep(self, kept: Bool) -> Curves:
        """Keep the curves whose directions are kept, at their places among the rows left."""
        before: Codes = np.cumsum(kept) - kept
        items = tuple(
            replace(curve, first=int(before[curve.first]))
            for curve in self.items
            if kept[curve.first]
        )
        return Curves(int(kept.sum()), items)

    def without(self, left_out: Bool) -> Curves:
        """Leave out curves whose directions bind nothing, and keep the places of others."""
        return replace(self, items=tuple(c for c in self.items if not left_out[c.first]))

    def derivatives(self, functionals: Float) -> Float:
        """Compute the multiplier of each row under a price of one, shape (n_rows,).

        It is one for straight rows, and the part of the derivative for directions of curves.
        """
        found = np.ones(self.n_rows)
        for curve in self.items:
            found[curve.rows] = curve.derivatives(functionals)
        return found

    def prices(self, multipliers: Float, derivatives: Float) -> Float:
        """Find the price of each row from its multiplier; directions of a curve share theirs.

        Multipliers of a curve are its price times its derivatives, by least squares: derivatives
        may have changed since, as those of bins do that were empty.
        """
        found = multipliers.copy()
        for curve in self.items:
            slopes = derivatives[curve.rows]
            square = float(slopes @ slopes)
            found[curve.rows] = multipliers[curve.rows] @ slopes / square if square > 0.0 else 0.0
        return found

    def find_tangents(
        self, R: Any, b: Float, functionals: Float, constant: Float
    ) -> tuple[Any, Float]:
        """Replace the directions of each curve by its tangent, in one row each.

        `constant` holds the parts of the functionals that the right-hand sides have been reduced
        by.
        """
        table, right = R.tolil(), b.copy()
        for curve in self.items:
            slope, at = curve.gradient(functionals), curve.at
            moved = slope @ (np.nan_to_num(functionals[at]) - constant[at])
            for row in range(*curve.span):
                table[row] = 0.0
                for k, a in zip(at, slope, strict=True):
                    table[row, k] += a
                right[row] = curve.row.bound - curve.value(functionals) + moved
        return sparse.csr_array(table), right


NO_CURVES = Curves()
