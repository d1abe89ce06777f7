"""p-values of the null hypotheses that constraints are violated, or hold, in the population.

The rows of the counts were used for nothing else, neither to train nor to choose among models or
thresholds, unless the choice itself is a procedure of
:mod:`gbm_constrained.statistics.order_statistics`.

A p-value ``p`` is *valid*: ``P(p <= delta) <= delta`` for every ``delta`` where the null
hypothesis is true. A p-value of delta at most certifies that the constraint holds, with confidence
``1 - delta``. Sample weights that are equal in each base set change nothing.

A value h between `low` and `high` counts as the share ``(h - low) / (high - low)`` of a row with
the value `high`; the rest of the row has the value `low`. The mean stays what it is, and what
:mod:`gbm_constrained.statistics.p_values` knows of counted decisions holds for these shares: a
mean of bounded values has the p-value of Hoeffding and Bentkus (Bates, Angelopoulos, Lei, Malik
and Jordan, "Distribution-free, risk-controlling prediction sets", 2021, section 3.1), a sum over
several base sets that of a union bound. Steps are events, and have the exact binomial test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial, reduce
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import LinearConstraints, find_opposites
from gbm_constrained.statistics.binomial import GAMMA, Binomial, sum_p_value, upper_limit
from gbm_constrained.statistics.counts import (
    CellCounts,
    MeanScore,
    blocks_of,
    blocks_of_rows,
    functionals_of,
    scaled_parts,
)
from gbm_constrained.statistics.influence import find_violated_curves


def _tail(events: Float, n: Float, bound: Any) -> Float:
    """Compute ``P(Bin(n, bound) <= events)``."""
    inside = events < n
    left = np.where(inside, n - events, 1.0)
    return np.where(inside, special.betaincc(events + 1.0, left, bound), 1.0)


def hoeffding_bentkus_p_value(mean: ArrayLike, n: ArrayLike, bound: ArrayLike) -> Any:
    r"""Compute the p-value of "a mean of n variables in [0, 1] exceeds a bound"; 1 if n is 0.

    .. math:: p = \min\left(e^{-n\, h(\min(r, b),\, b)},\; e\, P(\mathrm{Bin}(n, b)
        \le \lceil n r \rceil)\right), \qquad
        h(r, b) = r \log\frac{r}{b} + (1 - r) \log\frac{1 - r}{1 - b} ,

    with r the mean and b the bound (Bates, Angelopoulos, Lei, Malik and Jordan,
    "Distribution-free, risk-controlling prediction sets", 2021, section 3.1; "Learn then test",
    2021, Proposition 3).
    """
    r, n, b = (np.asarray(x, dtype=np.float64) for x in (mean, n, bound))
    below = np.minimum(r, b)
    h = special.rel_entr(below, b) + special.rel_entr(1.0 - below, 1.0 - b)
    events = np.ceil(np.round(n * r, 9))  # The mean of n events must give their number back.
    with np.errstate(invalid="ignore"):
        hoeffding = np.exp(-n * h)
    p = np.minimum(hoeffding, math.e * _tail(events, n, b))
    return np.where(n > 0, np.minimum(p, 1.0), 1.0)[()]


def _p_of_mean(block: MeanScore, bound: float, counts: CellCounts) -> Float:
    r"""Compute the p-value of "the mean score exceeds a bound" with equal weights.

    A row with amount a and score s adds to the mean where :math:`E[a (s - b)] > 0`. With amounts
    up to a cap, this variable is bounded, and so is its mean.
    """
    n = block.sum(counts.count)
    if block.high <= bound + ROUNDING:  # The mean cannot exceed the bound.
        return np.where(n > 0, 0.0, 1.0)
    if block.low > bound:
        return np.ones(n.shape)
    scaled = (bound - block.low) / block.width
    if block.largest_amount is not None:
        excess = block.sum(counts.weight, block.score) - bound * block.sum(counts.weight)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = scaled + excess / (n * block.largest_amount * block.width)
    else:
        reached = block.sum(counts.count, block.reaches(block.high))
        middle = float(block.values[1])
        decides_nothing = block.values.size == 3 and abs(middle - bound) < ROUNDING
        if block.is_counted and decides_nothing:
            # Rows at the bound decide nothing. Among the others the mean exceeds it if the upper
            # value is likelier than `scaled`: given their number, a binomial.
            n = n - block.sum(counts.count, block.reaches(middle))
        if block.is_binomial or (block.is_counted and decides_nothing):
            return np.where(n > 0, _tail(reached, n, scaled), 1.0)
        mean = (block.mean(counts.count) - block.low) / block.width
    mean = np.where(n > 0, np.clip(mean, 0.0, 1.0), 1.0)
    return np.asarray(hoeffding_bentkus_p_value(mean, n, scaled))


def _are_two_binomials(blocks: Sequence[MeanScore], counts: CellCounts) -> bool:
    """Whether blocks are two binomials of different rows: parts of a row are of one view."""
    if len(blocks) != 2 or not all(b.is_binomial and b.has_equal_weights(counts) for b in blocks):
        return False
    first, second = blocks
    return first.members.isdisjoint(second.members)


def _p_of_two_binomials(
    blocks: Sequence[MeanScore], bound: float, counts: CellCounts, where: Bool | None = None
) -> Float:
    """Compute the p-value of "the sum of two mean scores exceeds a bound"; 1 outside of `where`.

    The scores are binomials over disjoint base sets. A mean score is its low value plus its width
    times the probability of its high value.
    """
    first, second = blocks
    (events_1, n_1), (events_2, n_2) = (block.count_events(counts) for block in blocks)
    limit = bound - first.low - second.low
    p = np.ones(n_1.shape)
    for at in map(tuple, np.argwhere(np.ones(p.shape, bool) if where is None else where)):
        x_1, of_1, x_2, of_2 = (float(x[at]) for x in (events_1, n_1, events_2, n_2))
        p[at] = sum_p_value(
            Binomial(x_1, of_1, first.width), Binomial(x_2, of_2, second.width), limit
        )
    return p


def _make_upper_limit(block: MeanScore, counts: CellCounts) -> Callable[[Any], Float]:
    """Make what finds the upper limit of the mean of a score at a level; infinite over no row.

    Rows of unequal weights count as their effective number.
    """
    if block.has_equal_weights(counts):
        (events, n), mean = block.count_events(counts), block.mean(counts.count)
    else:
        n, mean = block.effective_rows(counts), block.mean(counts.weight)
        events = n * np.clip((np.nan_to_num(mean) - block.low) / block.width, 0.0, 1.0)

    def find(delta: Any) -> Float:
        if block.is_binomial:
            limit = block.low + block.width * upper_limit(events, n, delta)
        else:
            with np.errstate(invalid="ignore", divide="ignore"):
                limit = mean + block.width * np.sqrt(-np.log(delta) / (2.0 * n))
        return np.where(n > 0, np.fmin(limit, block.high), np.inf)

    return find


def _p_of_union(blocks: Sequence[MeanScore], bound: float, counts: CellCounts) -> Float:
    """Compute the p-value of "the sum of mean scores exceeds a bound" by a union bound.

    Weights are equal in each base set. Each mean exceeds its own upper limit with probability
    delta / K at most. If the limits add up to the bound at most, then so do the means.
    """
    limits = [_make_upper_limit(block, counts) for block in blocks]

    def excess(log_delta: Float) -> Float:
        delta = np.exp(log_delta) / len(blocks)
        return np.asarray(sum((limit(delta) for limit in limits), np.full(delta.shape, -bound)))

    # Limits tighten as delta grows: bisection for the smallest one that certifies, down to 1e-15.
    high = np.zeros(counts.weight.shape[:-2])
    low = np.full(high.shape, log(1e-15))
    possible = excess(high) <= 0.0
    high = np.where(excess(low) <= 0.0, low, high)
    for _ in range(45 if possible.any() else 0):
        middle = (low + high) / 2.0
        met = excess(middle) <= 0.0
        high, low = np.where(met, middle, high), np.where(met, low, middle)
    return np.where(possible, np.exp(high), 1.0)


def _p_weighted(blocks: Sequence[MeanScore], bound: float, counts: CellCounts) -> Float:
    """Compute the p-value of "the sum of weighted mean scores exceeds a bound" (Hoeffding).

    Given weights and base sets, a row with weight w adds an independent variable to the estimate.
    Its range is w times that of the score over the base sets that the row is in, each divided by
    the base set's weight.
    """
    totals = [block.sum(counts.weight) for block in blocks]
    n_cells, n_classes = counts.weight.shape[-2:]
    empty = np.any([total <= 0 for total in totals], axis=0)
    totals = [np.where(total > 0, total, 1.0) for total in totals]
    estimate = sum(
        (block.sum(counts.weight, block.score) / total)
        for block, total in zip(blocks, totals, strict=True)
    )
    inside = np.zeros((len(blocks), n_cells), dtype=bool)
    scores = np.zeros((len(blocks), n_cells, n_classes))
    for k, block in enumerate(blocks):
        inside[k, block.cells] = True
        scores[k, block.cells] = block.score
    variance = np.zeros(totals[0].shape)
    for member in np.unique(inside[:, inside.any(axis=0)], axis=1).T:
        cells = np.flatnonzero((inside == member[:, None]).all(axis=0))
        score = sum(scores[k, cells] / totals[k][..., None, None] for k in np.flatnonzero(member))
        spread = np.ptp(np.asarray(score), axis=(-2, -1))
        variance = variance + spread**2 * counts.square[..., cells, :].sum(axis=(-2, -1))
    distance = np.maximum(bound - np.asarray(estimate), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.exp(-2.0 * distance**2 / variance)
    return np.where(empty | (distance == 0.0), 1.0, p)


def row_p_values(compiled: LinearConstraints, counts: CellCounts) -> NDArray[np.float64]:
    """Compute the p-value of the violation of each row of constraints, shape (..., m).

    A row ``sum_k c_k part_k <= b`` is tested by its blocks. With equal weights in each base set:

    - one fraction of rows: the binomial tail ``P(Bin(n, bound) <= events)``, exact;
    - several fractions over one base set, as in quotients: the binomial of the rows that decide
      where there are two kinds of these (precision, F1, shares of predictions and of changes),
      exact given their number; :func:`hoeffding_bentkus_p_value` otherwise;
    - fractions over two disjoint base sets, as in the gap or the ratio of two groups: the exact
      unconditional test of :func:`gbm_constrained.statistics.binomial.sum_p_value`;
    - other fractions over K base sets, overlapping or not: the smallest delta at which the
      one-sided Clopper-Pearson limits at delta / K together meet the bound. Hoeffding's limit
      takes their place where a base set has fractions that make no binomial.

    With amounts up to a cap, over one base set: :func:`hoeffding_bentkus_p_value` of what a row
    adds to the excess over the bound; 1 without a cap, or over several base sets, whose totals of
    amounts are random as well.

    With unequal weights: Hoeffding's inequality ("Probability inequalities for sums of bounded
    random variables", 1963, Theorem 2), valid given the weights, though conservative.

    The p-value is 1 where a base set has no rows and for mean losses, 0 for rows that bind no
    prediction. Union bounds end at 1e-15, tests of two groups at 1e-5.
    """
    p = np.ones((*counts.weight.shape[:-2], len(compiled)))
    for j, blocks in enumerate(blocks_of_rows(compiled)):
        p[..., j] = p_value_of_blocks(blocks, float(compiled.b[j]), counts)
    return p


def p_value_of_blocks(
    blocks: Sequence[MeanScore] | None, bound: float, counts: CellCounts
) -> Float:
    """Compute the p-value of one row of constraints, the sum of mean scores of blocks.

    See :func:`row_p_values`. The result has the shape of the counts' leading axes.
    """
    if not blocks:
        return np.ones(counts.weight.shape[:-2])
    cap = blocks[0].largest_amount
    if cap is not None and (len(blocks) > 1 or not math.isfinite(cap)):
        return np.ones(counts.weight.shape[:-2])
    if cap is None and not all(block.has_equal_weights(counts) for block in blocks):
        return _p_weighted(blocks, bound, counts)
    if len(blocks) == 1:
        return _p_of_mean(blocks[0], bound, counts)
    if _are_two_binomials(blocks, counts):
        return _p_of_two_binomials(blocks, bound, counts)
    return _p_of_union(blocks, bound, counts)


def constraint_p_values(compiled: LinearConstraints, counts: CellCounts) -> NDArray[np.float64]:
    """Compute the p-value of the violation of each constraint, shape (..., n_constraints).

    A constraint is violated if one of its rows is, and certified if all of them are. The violated
    row is certified wrongly with probability delta at most, and all rows together no more often.
    The largest p-value therefore needs no correction for their number (the intersection-union test
    of Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24,
    1982). By the same argument the largest p-value of several constraints needs none.

    The p-value is 1 where a functional is undefined, as the rate of a group without rows is, and 0
    for constraints that no decisions violate.
    """
    return largest_of_rows(compiled, row_p_values(compiled, counts))


def largest_of_rows(compiled: LinearConstraints, of_rows: Float) -> NDArray[np.float64]:
    """Find the largest p-value of the rows of each constraint, given those of shape (..., m)."""
    p = np.ones((*of_rows.shape[:-1], len(compiled.constraints)))
    for j, (constraint, span) in enumerate(zip(compiled.constraints, compiled.spans, strict=True)):
        if constraint.is_always_met:
            p[..., j] = 0.0
        elif not np.isnan(compiled.constant[span]).any():
            p[..., j] = of_rows[..., compiled.owner == j].max(axis=-1, initial=0.0)
    return p


def find_violated_rows(
    compiled: LinearConstraints,
    counts: CellCounts,
    delta: ArrayLike,
    *,
    where: Bool | None = None,
    one_test_each: bool = False,
) -> Bool:
    """Find the rows of constraints that are violated in the population beyond doubt.

    The test rejects that a row *holds*, at level `delta` each: a number, or one for each row. One
    base set has the p-value of :func:`row_p_values` with both sides of the row negated. Several
    base sets have lower limits at ``delta / K`` each, whose sum must exceed the bound. Two
    disjoint ones have the exact test of :func:`row_p_values` where these limits leave the row
    open. Rows with unequal weights count as their effective number in limits. Mean losses and
    empty base sets give False. The result has shape (..., m).

    The exact test takes time. With `one_test_each`, one of a constraint's rows that need it is
    tested: the row furthest beyond its limits, and none where limits refute a row. Curved rows
    have a normal test by their tangents.
    """
    curved = find_violated_curves(compiled, counts, delta)
    negated = replace(compiled, R=-compiled.R, b=-compiled.b)
    levels = np.broadcast_to(delta, len(compiled)).tolist()
    beyond = np.zeros((*counts.weight.shape[:-2], len(compiled)), dtype=bool)
    stated = compiled.stated or compiled
    values = (functionals_of(stated, counts) - stated.constant) @ compiled.R.T
    # A row that holds in the sample is not refuted by it.
    may_be = (values > compiled.b + ROUNDING).reshape(-1, len(compiled)).any(axis=0)
    asked_for = True if where is None else where
    rows = blocks_of_rows(negated, may_be & asked_for)
    room = np.full(beyond.shape, -np.inf)  # Where positive, the exact test may reject.

    # Rows share blocks.
    make_limit = cache(partial(_make_upper_limit, counts=counts))

    @cache
    def upper(block: MeanScore, level: float) -> Float:
        return make_limit(block)(level)

    def total(blocks: Sequence[MeanScore], level: float) -> Float:
        return reduce(np.add, [upper(block, level) for block in blocks])

    for j, (blocks, bound, level) in enumerate(zip(rows, negated.b.tolist(), levels, strict=True)):
        if not blocks:
            continue
        if len(blocks) == 1 and blocks[0].largest_amount is None:
            is_apart = blocks[0].mean(counts.weight) < bound - ROUNDING
            beyond[..., j] = is_apart & (p_value_of_blocks(blocks, bound, counts) <= level)
            continue
        beyond[..., j] = total(blocks, level / len(blocks)) < bound - ROUNDING
        if level > GAMMA and _are_two_binomials(blocks, counts):
            # At limits of level sqrt(delta) as few events of both have the probability delta. If
            # the null hypothesis allows these, the p-value is no smaller.
            room[..., j] = bound - ROUNDING - total(blocks, sqrt(level))
    asked = (room > 0.0) & ~beyond
    for own in np.unique(compiled.owner)[:, None] == compiled.owner if one_test_each else ():
        furthest = room[..., own].argmax(axis=-1)[..., None] == np.arange(own.sum())
        asked[..., own] &= furthest & ~beyond[..., own].any(axis=-1, keepdims=True)
    for j in np.flatnonzero(asked.reshape(-1, len(rows)).any(axis=0)).tolist():
        p = _p_of_two_binomials(rows[j] or (), negated.b[j], counts, asked[..., j])
        beyond[..., j] |= p <= levels[j]
    return np.asarray((beyond | curved) & asked_for)


class _BoundedRow:
    """One row of constraints, whose columns are the corners of the ranges of its functions.

    Parameters
    ----------
    compiled : LinearConstraints
        The constraints.
    j : int
        Position of the row, all of whose functionals have rows of data.
    """

    def __init__(self, compiled: LinearConstraints, j: int) -> None:
        at = slice(compiled.R.indptr[j], compiled.R.indptr[j + 1])
        own = [compiled.parts[k] or () for k in compiled.R.indices[at]]
        self.parts = scaled_parts(own, compiled.R.data[at].tolist()) or []
        # Positions of the row functions that it has means of, and their ranges, (k, 2).
        used = np.flatnonzero(np.any([part.event.any(axis=0) for part in self.parts], axis=0))
        functions = [compiled.row_functions[s] for s in used]
        self.functions, limits = used, np.array([function.stated_range for function in functions])
        # Whether each function has its high value at a corner, (2^k, k).
        is_high = (np.arange(2**used.size)[:, None] >> np.arange(used.size)) % 2 == 1
        self.limits, self.is_high = limits, is_high
        corners = np.where(is_high, limits[:, 1], limits[:, 0])
        # Scores and the bound are in units of the largest range.
        largest = max(abs(part.coefficient) for part in self.parts)
        self.unit = unit = largest * float(np.ptp(limits, axis=1).max())
        self.bound = float(compiled.b[j]) / unit
        scaled = [
            replace(
                part, coefficient=part.coefficient / unit, event=part.event[:, used] @ corners.T
            )
            for part in self.parts
        ]
        is_counted = all(function.is_step for function in functions)
        self.blocks = tuple(replace(block, is_counted=is_counted) for block in blocks_of(scaled))
        # Smallest and largest value that predictions can give.
        self.low = unit * sum(block.low for block in self.blocks)
        self.high = unit * sum(block.high for block in self.blocks)

    def shares(self, values: Float) -> Float:
        """Compute the share of each row of data that is at each corner, (n_samples, 2^k)."""
        low, width = self.limits[:, 0], np.ptp(self.limits, axis=1)
        share = np.clip((values[:, self.functions] - low) / width, 0.0, 1.0)[:, None]
        return np.asarray(np.where(self.is_high, share, 1.0 - share).prod(axis=-1))

    def counts_at(self, cells: Cells, value: float) -> CellCounts:
        """Count the rows of data as if the row of constraints had a value."""
        cost = np.zeros((len(cells), len(self.is_high)))
        for block in self.blocks:
            cost[block.cells] += block.score / cells.weight[block.cells].sum()
        corners, share = np.eye(cost.shape[1]), (value - self.low) / (self.high - self.low)
        best, worst = corners[cost.argmin(axis=1)], corners[cost.argmax(axis=1)]
        return CellCounts.of_shares(cells, (1.0 - share) * best + share * worst)


class BoundedMeans:
    """Tests of constraints on bounded means on some rows of data.

    Parameters
    ----------
    cells : Cells
        Partition of the rows, which were used for nothing else.
    compiled : LinearConstraints
        The constraints on them. Each row function is a step, or has a stated range.
    """

    def __init__(self, cells: Cells, compiled: LinearConstraints) -> None:
        self.cells, self.compiled = cells, compiled
        is_known = ~np.isnan(compiled.constant)
        # Constraints of groups without rows stay untested.
        self._rows = {
            j: _BoundedRow(compiled, j)
            for j, owner in enumerate(compiled.owner)
            if is_known[compiled.spans[owner]].all()
        }

    @cached_property
    def opposites(self) -> list[tuple[int, int]]:
        """Pairs of rows that bound the same mean from both sides, also of two constraints."""
        return find_opposites(self.compiled.A, np.ones(len(self.compiled), dtype=bool))

    def p_values(self, values: Float) -> Float:
        """Compute the p-value of the violation of each constraint, (n_constraints,).

        Parameters
        ----------
        values : ndarray of shape (n_samples, n_functions)
            Row functions of each row, in the order of the classes of the cells.

        Returns
        -------
        ndarray of shape (n_constraints,)
            One where a value is outside of its stated range.
        """
        shares = (row.shares(values) for row in self._rows.values())
        p = self._test([CellCounts.of_probabilities(self.cells, of_row) for of_row in shares])
        p[[j for j, *_ in self.find_outside(values)]] = 1.0
        return p

    def smallest_p_values(self) -> Float:
        """Compute the smallest p-value that any predictions could give, (n_constraints,).

        Two rows of opposite sides, such as those of a gap, leave room between their bounds, whose
        middle is best for both. Counted events may be certified more easily than there, and are
        taken one by one.
        """
        at = {j: row.low for j, row in self._rows.items()}
        b = self.compiled.b
        for i, j in self.opposites:
            for k, other in ((i, j), (j, i)):
                row = self._rows.get(k)
                if row is not None and not all(block.is_counted for block in row.blocks):
                    at[k] = float(np.clip((b[k] - b[other]) / 2.0, row.low, row.high))
        return self._test([row.counts_at(self.cells, at[j]) for j, row in self._rows.items()])

    def _test(self, counts: Sequence[CellCounts]) -> Float:
        """Compute the p-value of each constraint, given the counts of each tested row."""
        of_rows = np.ones(len(self.compiled))
        for (j, row), own in zip(self._rows.items(), counts, strict=True):
            of_rows[j] = p_value_of_blocks(row.blocks, row.bound, own)
        return largest_of_rows(self.compiled, of_rows)

    def smallest_values(self) -> Float:
        """Compute the smallest value that any predictions could give each row, (m,)."""
        low = {j: row.low for j, row in self._rows.items()}
        return np.array([low.get(j, -np.inf) for j in range(len(self.compiled))])

    def deviations(self) -> Float:
        """Compute the standard deviation that the tests allow the value of each row, (m,).

        It is that of shares whose mean is at the bound, and largest for several base sets.
        """
        found = np.zeros(len(self.compiled))
        for j, row in self._rows.items():
            counts = row.counts_at(self.cells, row.low)
            for block in row.blocks:
                share = 0.5
                if len(row.blocks) == 1 and block.low < row.bound < block.high:
                    share = (row.bound - block.low) / block.width
                n = float(block.effective_rows(counts))
                if block.largest_amount is not None:  # Rows of less than the cap tell less.
                    n = float(block.sum(counts.weight)) ** 2 / float(block.sum(counts.count))
                    n /= block.largest_amount**2
                found[j] += block.width**2 * share * (1.0 - share) / n
            found[j] = row.unit * np.sqrt(found[j])
        return found

    def find_outside(self, values: Float) -> list[tuple[int, tuple[float, float], Float]]:
        """List the constraints with values outside of their stated range.

        Each has its position, the range, and the values outside of it.
        """
        found = dict[int, tuple[int, tuple[float, float], Float]]()
        for (owner, s), (taken, (low, high)) in self._bounded.items():
            slack, h = 1e-9 * (high - low), values[taken, s]  # The slack is due to rounding.
            h = h[(h < low - slack) | (h > high + slack)]
            if h.size:
                found.setdefault(owner, (owner, (low, high), h))
        return list(found.values())

    @cached_property
    def _bounded(self) -> dict[tuple[int, int], tuple[Bool, tuple[float, float]]]:
        """Rows of data that a mean with a stated range is taken over, by constraint and function.

        Steps have no other values than their two.
        """
        found = dict[tuple[int, int], tuple[Bool, tuple[float, float]]]()
        cells, weight = self.cells, self.cells.rows.weight
        for j, row in self._rows.items():
            for s, (low, high) in zip(row.functions.tolist(), row.limits.tolist(), strict=True):
                if self.compiled.row_functions[s].is_step:
                    continue
                inside = np.zeros(len(cells), dtype=bool)
                for part in row.parts:
                    inside[part.cells[part.event[:, s] != 0.0]] = True
                taken = np.any([inside[view.codes] for view in cells.views], axis=0)
                if weight is not None:
                    taken &= weight > 0
                key = int(self.compiled.owner[j]), s
                before, _ = found.get(key, (np.zeros_like(taken), None))
                found[key] = before | taken, (low, high)
        return found
