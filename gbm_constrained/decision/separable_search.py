r"""Search for a value of each group with the smallest error that satisfies the constraints.

.. math:: \min_{t_1, \dots, t_G} \sum_g e_{g t_g} \quad \text{s.t.} \quad
    \sum_g a_{g t_g} \le b

Errors :math:`e_{gt}` and rates :math:`a_{gt}` are what the rows of group g add at the candidate t.
Mixtures of candidates make this a linear programme, whose optimum is a lower bound.

- **Two groups** are searched exactly. For a candidate of the first group, each constraint whose
  rates rise or fall with the candidates of the second one leaves an interval of these. A table of
  minima over intervals then finds the best one, at a cost of :math:`T \log T` for T candidates.
  Where rates do both, as errors do, some candidates of each group are paired.
- **More groups** start at the candidates nearest to the optimum of the linear programme. Two of
  them at a time are then searched while the others keep theirs, until no pair improves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.problem.linear_programme import solve_linear_programme

# Candidates of each group in the linear programme, of each of two groups whose rates neither rise
# nor fall, and thresholds of each prefix that a guarantee tests.
MOST_CANDIDATES = 512


@dataclass(frozen=True, eq=False)
class Candidates:
    """Shifts of one group, and what its rows add to the error and to the constraints.

    Parameters
    ----------
    shift : ndarray of shape (T,)
        Shifts of the scores, ascending.
    error : ndarray of shape (T,)
        Errors at each shift.
    rates : ndarray of shape (m, T)
        Parts in the left-hand sides of the constraints.
    """

    shift: Float
    error: Float
    rates: Float

    def take(self, index: Codes) -> Candidates:
        """Take some of the shifts."""
        return Candidates(self.shift[index], self.error[index], self.rates[:, index])

    def spread(self, most: int) -> Codes:
        """List positions of at most so many shifts, evenly spread."""
        n = self.shift.size
        return np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(np.intp))

    @cached_property
    def is_monotone(self) -> bool:
        """Whether the part in each constraint rises or falls with the shift."""
        steps = np.diff(self.rates, axis=1)
        rises, falls = (steps >= -ROUNDING).all(axis=1), (steps <= ROUNDING).all(axis=1)
        return bool((rises | falls).all())

    @cached_property
    def rises(self) -> Bool:
        """Whether each rate is at least as large at the last shift as at the first one."""
        return np.asarray(self.rates[:, -1] >= self.rates[:, 0])

    @cached_property
    def ascending(self) -> Float:
        """Rates in the order in which they rise, each at least as large as those before it."""
        ordered = np.where(self.rises[:, None], self.rates, self.rates[:, ::-1])
        return np.asarray(np.maximum.accumulate(ordered, axis=1))

    @cached_property
    def is_constant(self) -> Bool:
        """Whether each rate is the same at all shifts."""
        return np.asarray((self.rates == self.rates[:, :1]).all(axis=1))

    @cached_property
    def by_error(self) -> Codes:
        """Positions by the error, and of equals by the size of the shift."""
        return np.lexsort((np.abs(self.shift), np.round(self.error / ROUNDING)))


@dataclass(frozen=True)
class GroupShifts:
    """A shift of each group, and the error and largest violation under them."""

    values: Float  # (n_groups,)
    error: float
    violation: float


class SeparableSearch:
    """Search for shifts of groups, under one right-hand side of constraints after another.

    Parameters
    ----------
    tables : list of Candidates
        Candidates of each group that has some.
    present : list of int
        Numbers of these groups.
    common : ndarray of shape (n_groups,)
        Shifts, which groups without candidates keep.
    fixed : ndarray of shape (1 + n_kept,)
        Error of all other rows, and what they add to the constraints that are kept.
    kept : ndarray of int of shape (n_kept,)
        Rows of constraints that are searched under, in the order of the rates.
    starts : sequence of int
        Positions that all groups start a search at, beside the optimum of mixtures.
    """

    def __init__(
        self,
        tables: list[Candidates],
        present: Sequence[int],
        common: Float,
        fixed: Float,
        kept: Codes,
        starts: Sequence[int],
    ) -> None:
        self.tables, self.present, self.common = tables, present, common
        self.fixed, self.kept, self.starts = fixed, kept, starts

    def find(self, bounds: Float) -> GroupShifts | None:
        """Find the shifts of smallest error that satisfy the constraints; None if none are found.

        Among equals the smaller shifts are taken.
        """
        right = bounds[self.kept] - self.fixed[1:]
        if len(self.tables) <= 2:
            none = Candidates(np.zeros(1), np.zeros(1), np.zeros((right.size, 1)))
            first, second = [*self.tables, none, none][:2]
            found = best_pair(first, second, right)
            return None if found is None else self._describe(found[: len(self.tables)], right)
        starts = [self._round(right), *([end] * len(self.tables) for end in self.starts)]
        described = []
        for start in starts:
            at = [i % table.shift.size for i, table in zip(start, self.tables, strict=True)]
            described.append(self._describe(self._improve(at, right), right))
        feasible = [found for found in described if found.violation == 0.0]
        return min(feasible, key=lambda found: found.error) if feasible else None

    def _describe(self, at: Sequence[int], right: Float) -> GroupShifts:
        """Collect the shifts at some positions."""
        values, error, left = self.common.copy(), float(self.fixed[0]), -right
        for g, table, i in zip(self.present, self.tables, at, strict=True):
            values[g], error, left = (
                table.shift[i],
                error + table.error[i],
                left + table.rates[:, i],
            )
        violation = float(left.max(initial=0.0))
        return GroupShifts(values, float(error), violation if violation > ROUNDING else 0.0)

    def _improve(self, at: list[int], right: Float) -> list[int]:
        """Search two groups at a time while the others keep their thresholds."""
        tables, at = self.tables, [*at]
        total = sum((table.rates[:, i] for table, i in zip(tables, at, strict=True)), -right)
        seen: set[tuple[int, ...]] = set()
        while tuple(at) not in seen:
            seen.add(tuple(at))
            for g, h in combinations(range(len(tables)), 2):
                own = tables[g].rates[:, at[g]] + tables[h].rates[:, at[h]]
                found = best_pair(tables[g], tables[h], own - total)
                if found is not None:
                    at[g], at[h] = found
                    total = total - own + tables[g].rates[:, at[g]] + tables[h].rates[:, at[h]]
        return at

    def _round(self, right: Float) -> list[int]:
        """Round the best mixture of thresholds to the thresholds nearest to its rates."""
        few = [table.take(table.spread(MOST_CANDIDATES)) for table in self.tables]
        sizes = [table.shift.size for table in few]
        rates = np.concatenate([table.rates for table in few], axis=1)
        ones = np.repeat(np.eye(len(few)), sizes, axis=1)
        errors = np.concatenate([table.error for table in few])
        allowed, at = right.copy(), [0] * len(few)
        is_bounded = np.isfinite(right)
        for _ in self.tables:
            found = solve_linear_programme(
                errors, rates[is_bounded], allowed[is_bounded], (0, None),
                A_eq=ones, b_eq=np.ones(len(few)),
            )  # fmt: skip
            if found.x is None:
                return at
            parts = np.split(found.x, np.cumsum(sizes)[:-1])
            wanted = [table.rates @ part for table, part in zip(few, parts, strict=True)]
            at = [_nearest(*pair) for pair in zip(self.tables, wanted, strict=True)]
            left = sum(table.rates[:, i] for table, i in zip(self.tables, at, strict=True))
            excess = np.maximum(left - right, 0.0)
            if excess.max(initial=0.0) <= ROUNDING:
                return at
            allowed = allowed - excess
        return at


def _nearest(table: Candidates, wanted: Float) -> int:
    """Find the threshold whose rates are nearest to wanted ones."""
    return int(np.abs(table.rates - wanted[:, None]).sum(axis=0).argmin())


def best_pair(first: Candidates, second: Candidates, right: Float) -> tuple[int, int] | None:
    """Find the best thresholds of two groups.

    Parameters
    ----------
    first, second : Candidates
        Thresholds of the groups.
    right : ndarray of shape (m,)
        What the rates of both may add up to.

    Returns
    -------
    tuple of int or None
        Positions of the thresholds of the smallest error, with the smallest shifts among equals;
        None if no pair satisfies the constraints.
    """
    if not second.is_monotone and first.is_monotone:
        swapped = best_pair(second, first, right)
        return None if swapped is None else (swapped[1], swapped[0])
    if second.is_monotone:
        partner, is_met = _best_partners(first, second, right)
        rows = np.flatnonzero(is_met)
        columns = partner[rows]
    else:
        some, others = first.spread(MOST_CANDIDATES), second.spread(MOST_CANDIDATES)
        is_allowed = np.ones((some.size, others.size), dtype=bool)
        for a, c, most in zip(first.rates, second.rates, right, strict=True):
            is_allowed &= a[some][:, None] + c[others] <= most + ROUNDING
        at = np.nonzero(is_allowed)
        rows, columns = some[at[0]], others[at[1]]
    if not rows.size:
        return None
    error = first.error[rows] + second.error[columns]
    size = np.abs(first.shift[rows]) + np.abs(second.shift[columns])
    best = int(np.where(error <= error.min() + ROUNDING, size, np.inf).argmin())
    return int(rows[best]), int(columns[best])


def _best_partners(first: Candidates, second: Candidates, right: Float) -> tuple[Codes, Array]:
    """Find the best threshold of the second group for each of the first, if there is one."""
    n = second.shift.size
    low, high = np.zeros(first.shift.size, np.intp), np.full(first.shift.size, n, np.intp)
    # Of many groups most constraints are about neither of the two, or about one of them.
    is_settled = first.is_constant & second.is_constant
    room = (right - first.rates[:, 0] + ROUNDING)[is_settled]
    if (room < second.rates[is_settled, 0]).any():
        high[:] = 0
    for i in np.flatnonzero(~is_settled):
        c, a = second.ascending[i], first.rates[i]
        left = right[i] - (a[:1] if first.is_constant[i] else a) + ROUNDING
        if second.is_constant[i]:
            reached = np.where(left < c[0], 0, n)
        else:
            reached = np.searchsorted(c, left, side="right")
        if second.rises[i]:
            high = np.minimum(high, reached)
        else:
            low = np.maximum(low, n - reached)
    is_met = low < high
    order = second.by_error
    rank = np.empty(n, dtype=np.intp)
    rank[order] = np.arange(n)
    partner = np.zeros(first.shift.size, np.intp)
    partner[is_met] = order[_minima(rank, low[is_met], high[is_met])]
    return partner, is_met


def _minima(values: Codes, low: Codes, high: Codes) -> Codes:
    """Compute the minimum over each of some intervals, by minima over powers of two."""
    levels, width = [values], 1
    while 2 * width <= values.size:
        before = levels[-1]
        following = np.append(before[width:], np.full(width, values.size))
        levels.append(np.minimum(before, following))
        width *= 2
    table = np.array(levels)
    k = np.frexp(high - low)[1] - 1
    return np.asarray(np.minimum(table[k, low], table[k, high - (1 << k)]))
