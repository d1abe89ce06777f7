r"""Pair rates in the population: intervals, certificates and p-values.

The rate of U and V is a function of the sample whose linear part is a sum over rows, row i adding

.. math:: \varepsilon_i = w_i \left[ \frac{1(i \in U)}{W_U} (F_V(f_i) - \theta)
    + \frac{1(i \in V)}{W_V} (1 - F_U(f_i) - \theta) \right],

with :math:`F_V(f)` the share of V's weight below f, half of that at f included. The sum of squares
estimates the variance. U and V may overlap, and products of the parts of two pair rates give their
covariance. Within a cell the parts are linear in :math:`\varphi_i = (F_1(f_i), ..., F_C(f_i), 1)`,
whatever the rate. Therefore the moments :math:`S_c = \sum_{i \in c} w_i^2 \varphi_i \varphi_i'`
suffice for all of them.

Let :math:`\sum_k a_k \theta_k \le b` be a bound on K pair rates, such as one row of a gap. On rows
that were used for nothing else, each of two deviations is exceeded with probability
:math:`\delta` at most, whatever the scores:

- An estimate of one pair rate of disjoint sets is a mean over matchings of
  :math:`m_k = \min(n_{U_k}, n_{V_k})` pairs without a common row [1]_. Each rate gets the share
  :math:`\delta / K`, which gives

  .. math:: \sum_k |a_k| \sqrt{\log(K / \delta) / (2 m_k)}.

- With :math:`c_i = w_i \sum_k |a_k| (1(i \in U_k) / W_{U_k} + 1(i \in V_k) / W_{V_k})`, another
  score of row i changes the whole sum by :math:`c_i` at most. Bounded differences [2]_ give

  .. math:: \sqrt{\log(1 / \delta) \sum_i c_i^2 / 2}.

The first deviation needs equal weights and disjoint sets. The second covers weights and overlaps:
one rate of disjoint sets has :math:`\sum_i c_i^2 = 1 / n_U + 1 / n_V`, with Kish's effective
numbers of rows. The smaller deviation is taken, and scores have no influence on which one is.
Weights and the sizes of the sets are taken as given. A certificate is therefore about rows with
the weights of the sample, and with its shares of the parts of overlapping sets.

A constraint of several rows, such as a gap of two groups, needs no further share of delta. If the
constraint does not hold, some row does not hold, and the certificate overlooks that row with
probability delta at most.

References
----------
.. [1] Hoeffding, "Probability inequalities for sums of bounded random variables", JASA 58, 1963,
   section 5b.
.. [2] McDiarmid, "On the method of bounded differences", Surveys in Combinatorics, 1989.

The variance of one pair rate of disjoint sets is that of DeLong, DeLong and Clarke-Pearson [1]_,
with its factors n / (n - 1). The influence of each row covers overlapping sets as well (see
:mod:`gbm_constrained.statistics.pairs`).

- One pair rate has a normal interval of its logit, with a quantile of Student's t. The degrees of
  freedom are Satterthwaite's, of the rows in U alone, in V alone and in both.
- Where all pairs are in the right order, or none is, the variance is zero. The smaller set then
  has m rows, with m pairs of different rows, all in one order: independent events, which give
  Clopper and Pearson's interval.
- Sums and differences are combined by squares (Newcombe; Zou [2]_), and by products where rates
  are correlated because they share rows.
- The worst of several groups or pairs of groups has the interval of
  :mod:`gbm_constrained.statistics.intervals`.

Unequal weights are taken as given, and numbers of rows are Kish's effective ones. Where few pairs
are in the wrong order, small samples underestimate the variance, and the truth is covered less
often than the level says.

References
----------
.. [1] DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated
   receiver operating characteristic curves: a nonparametric approach", Biometrics 44, 1988.
.. [2] Zou, "Toward using confidence intervals to compare correlations", Psychological Methods 12,
   2007.

The pair rates of a block are estimated together, so that their covariance counts where groups
share rows, as in ``gap(cross_auc(), by="sex")``. The moments of a block grow with the third power
of the number of its parts, and rates for several classes have scores of their own. Rates of a
block of more than 64 parts, and those for several classes in one constraint, are therefore
estimated one by one, and their covariance is taken to be the worst one.

Both follow from the deviations of :mod:`gbm_constrained.statistics.pairs`. They depend
on scores through the values of the constraints alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, inf, log, sqrt
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import optimize, sparse, stats
from scipy.special import expit, logit

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.blocks import PairBlock
from gbm_constrained.problem.functionals import WeightedPairs
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pairs import (
    PairRates,
    log_odds_of_class,
    ranked_blocks,
    table_of_wins,
)
from gbm_constrained.statistics.binomial import clopper_pearson
from gbm_constrained.statistics.counts import EQUAL
from gbm_constrained.statistics.intervals import correlation_of, level_of_all, worst_interval


@dataclass(frozen=True, eq=False)
class CellSizes:
    """Sizes of the cells of a sample.

    Parameters
    ----------
    weight, square : ndarray of shape (n_cells,)
        Sum of the weights and of their squares.
    count : ndarray of shape (n_cells,)
        Number of rows with a positive weight.
    """

    weight: Float
    square: Float
    count: Float

    @classmethod
    def of(cls, cells: Array, weight: Array | None, n_cells: int) -> CellSizes:
        """Count rows and sum their weights."""
        w = np.ones(np.size(cells)) if weight is None else np.asarray(weight, dtype=np.float64)
        return cls(*(np.bincount(cells, x, n_cells).astype(np.float64) for x in (w, w**2, w > 0)))

    def effective_rows(self, inside: Bool) -> Float:
        """Compute Kish's effective number of rows in unions of cells; zero without weight.

        Parameters
        ----------
        inside : ndarray of bool, shape (n_unions, n_cells)
            Whether a cell is in each union.

        Returns
        -------
        ndarray of shape (n_unions,)
        """
        total, squares = inside @ self.weight, inside @ self.square
        return np.divide(total**2, squares, out=np.zeros(total.shape), where=squares > 0)

    def has_equal_weights(self, inside: Bool) -> Bool:
        """Find unions of cells whose rows all weigh the same, (n_unions,)."""
        return np.asarray(inside @ self.count <= self.effective_rows(inside) * (1.0 + EQUAL))


@dataclass(frozen=True, eq=False)
class PairMoments:
    """Table of pairs of a sample, with moments of its cells.

    Parameters
    ----------
    sizes : CellSizes
        Sizes of the cells.
    table : ndarray of shape (n_cells, n_cells)
        The exact table of pairs, NaN for cells without weight.
    second : ndarray of shape (n_cells, n_cells + 1, n_cells + 1)
        Second moments S of the shares of each cell below a row, and of one.
    """

    sizes: CellSizes
    table: Float
    second: Float

    @classmethod
    def of(cls, scores: Array, cells: Array, weight: Array | None, n_cells: int) -> PairMoments:
        """Compute the moments of a sample.

        Parameters
        ----------
        scores, cells, weight, n_cells
            As in :func:`gbm_constrained.problem.pairs.pair_table`.
        """
        sizes = CellSizes.of(cells, weight, n_cells)
        w = np.ones(np.size(scores)) if weight is None else np.asarray(weight, dtype=np.float64)
        divisor = np.where(sizes.weight > 0, sizes.weight, 1.0)
        wins = np.zeros((n_cells, n_cells))
        second = np.zeros((n_cells, n_cells + 1, n_cells + 1))
        for block in ranked_blocks(scores, cells, weight, n_cells):
            wins += block.wins
            shares = np.column_stack([block.lower / divisor, np.ones(len(block.lower))])
            squares = np.bincount(block.entry, w[block.rows] ** 2, block.weight.size)
            for c, of_cell in enumerate(squares.reshape(block.weight.shape).T):
                at = np.flatnonzero(of_cell)
                second[c] += shares[at].T @ (of_cell[at, None] * shares[at])
        return cls(sizes, table_of_wins(wins), second)


@dataclass(frozen=True, eq=False)
class PairParts:
    """Distinct pair rates of constraints, and what functionals add up of them.

    Parameters
    ----------
    rates : PairRates
        The pair rates, by the cells of all views.
    block : ndarray of int, shape (n_rates,)
        Position of the block of the table of pairs that each rate depends on.
    coefficients : csr_array of shape (n_functionals, n_rates)
        Coefficient of each rate in each functional.
    """

    rates: PairRates
    block: Codes
    coefficients: Any

    @classmethod
    def of(cls, compiled: LinearConstraints) -> PairParts:
        """List the pair rates of constraints."""
        n_cells = compiled.V.shape[1]
        column = dict[tuple[int, bytes, bytes], int]()
        found = list[WeightedPairs]()
        rows, columns, values = list[int](), list[int](), list[float]()
        for k, terms in enumerate(compiled.terms):
            for term in terms or ():
                if not isinstance(term, WeightedPairs):
                    continue
                key = term.target, term.first.tobytes(), term.second.tobytes()
                if key not in column:
                    column[key] = len(found)
                    found.append(term)
                rows.append(k)
                columns.append(column[key])
                values.append(term.coefficient)
        shape = compiled.constant.size, len(found)
        rates = PairRates(
            _indicate([term.first for term in found], n_cells),
            _indicate([term.second for term in found], n_cells),
        )
        block = np.array([_find_block(compiled, term) for term in found], dtype=np.intp)
        return cls(rates, block, sparse.csr_array((values, (rows, columns)), shape=shape))

    def rates_at(self, at: Array, cells: Any = slice(None)) -> PairRates:
        """Take some of the rates, by some of the cells."""
        return PairRates(*(inside[at][:, cells] for inside in self.rates))


def sizes_of(cells: Cells) -> CellSizes:
    """Find the sizes of the cells of all views."""
    weight = cells.rows.weight
    square = cells.count if weight is None else cells.total(weight**2)
    return CellSizes(cells.weight, square, cells.weighted_count)


def _find_block(compiled: LinearConstraints, term: WeightedPairs) -> int:
    """Find the position of the block that a pair rate depends on."""
    return next(
        i
        for i, block in enumerate(compiled.pair_blocks)
        if block.target == term.target and term.first[0] in block.cells
    )


def _indicate(sets: list[Codes], n_cells: int) -> Bool:
    """Mark the cells of sets, (n_sets, n_cells)."""
    inside = np.zeros((len(sets), n_cells), dtype=bool)
    for row, cells in zip(inside, sets, strict=True):
        row[cells] = True
    return inside


class _Deviations(NamedTuple):
    """What both deviations of a sum depend on, beside delta.

    Parameters
    ----------
    n_rates : Number K of pair rates in the sum.
    changes : Sum of the squared changes c of all rows.
    matched : Sum of ``|a_k| / sqrt(2 m_k)``; infinite where sets overlap or weights differ.
    """

    n_rates: int
    changes: float
    matched: float

    def at(self, delta: float) -> float:
        """Compute the smaller deviation; no pair rate has none."""
        together = sqrt(log(1.0 / delta) * self.changes / 2.0)
        if self.matched in (0.0, inf):
            return together
        return min(together, self.matched * sqrt(log(self.n_rates / delta)))

    def p_value(self, room: float) -> float:
        """Compute the smallest delta at which the smaller deviation fits some room."""
        if room <= 0.0 or self.changes == inf:
            return 1.0
        if self.changes == 0.0:
            return 0.0
        together = exp(-2.0 * room**2 / self.changes)
        return min(together, self.n_rates * exp(-((room / self.matched) ** 2)), 1.0)


def pair_p_value(sizes: CellSizes, rates: PairRates, coefficients: Float, room: float) -> float:
    """Compute the p-value of "a sum of pair rates exceeds a bound".

    It is the smallest delta at which :func:`pair_deviation` fits the room. Which deviation that is
    does not depend on scores, so that the p-value is valid.

    Parameters
    ----------
    sizes, rates, coefficients
        As in :func:`pair_deviation`.
    room : float
        The bound less the estimate.

    Returns
    -------
    float
        One where there is no room, or where a set has no weight.
    """
    return _find_deviations(sizes, rates, coefficients).p_value(room)


def pair_deviation(sizes: CellSizes, rates: PairRates, coefficients: Float, delta: float) -> float:
    """Bound the random error of a sum of pair rates.

    A bound on the sum is certified where the estimate plus the deviation is within it.

    Parameters
    ----------
    sizes : CellSizes
        Weights and numbers of the rows that the rates are estimated on.
    rates : PairRates
        The K pair rates.
    coefficients : ndarray of shape (K,)
        Coefficient a of each pair rate; rates with coefficient zero are in no sum.
    delta : float
        Probability, in (0, 1), that the true sum exceeds the estimate by more than the bound.

    Returns
    -------
    float
        Infinite where a set has no weight.
    """
    return _find_deviations(sizes, rates, coefficients).at(delta)


def _find_deviations(sizes: CellSizes, rates: PairRates, coefficients: Float) -> _Deviations:
    """Find what both deviations of a sum depend on."""
    some = np.flatnonzero(coefficients)
    if some.size == 0:
        return _Deviations(0, 0.0, 0.0)
    scale = np.abs(coefficients[some])
    sides = [inside[some] for inside in rates]
    totals = [inside @ sizes.weight for inside in sides]
    if min(total.min() for total in totals) <= 0.0:
        return _Deviations(some.size, inf, inf)
    change = sum((scale / total) @ inside for inside, total in zip(sides, totals, strict=True))
    changes = float(change**2 @ sizes.square)
    smaller = np.minimum(*(sizes.effective_rows(inside) for inside in sides))
    is_matched = ~(sides[0] & sides[1]).any(axis=1)
    for inside in sides:
        is_matched &= sizes.has_equal_weights(inside)
    matched = float(scale @ np.sqrt(0.5 / smaller)) if is_matched.all() else inf
    return _Deviations(some.size, changes, matched)


def rows_needed(n_rows: float, deviation: float, room: float) -> float:
    """Compute the number of rows at which a deviation fits the room below a bound.

    Deviations shrink with the root of the number of rows, if the sizes of all sets grow alike.

    Parameters
    ----------
    n_rows : float
        Number of rows at hand.
    deviation : float
        Deviation with these rows (:func:`pair_deviation`).
    room : float
        The bound less the smallest value that any scores can have: what a perfect score leaves.

    Returns
    -------
    float
        A whole number; infinite where there is no room, or where a set has no rows.
    """
    if room <= 0.0 or deviation == inf:
        return inf
    return float(ceil(n_rows * (deviation / room) ** 2))


class SumsOfPairs(Protocol):
    """Sums and differences of pair rates with their intervals."""

    @property
    def values(self) -> Float:
        """Value of each sum, (n_sums,)."""

    @property
    def correlation(self) -> Float:
        """Correlation of the sums, (n_sums, n_sums)."""

    def intervals(self, level: float = 0.95) -> Float:
        """Compute the interval of each sum, (n_sums, 2)."""


@dataclass(frozen=True, eq=False)
class PairEstimates:
    """Pair rates of a sample with their covariance.

    Parameters
    ----------
    rates : ndarray of shape (n_rates,)
        Pair rates; NaN where a side has no weight.
    covariance : ndarray of shape (n_rates, n_rates)
        Their estimated covariance; NaN where a side has no more than one row.
    degrees : ndarray of shape (n_rates,)
        Satterthwaite's degrees of freedom of each variance.
    smaller : ndarray of shape (n_rates,)
        Effective number of rows of the smaller side.
    """

    rates: Float
    covariance: Float
    degrees: Float
    smaller: Float

    @cached_property
    def variance(self) -> Float:
        """Variance of each rate, (n_rates,)."""
        return np.diag(self.covariance)

    def intervals(self, level: float = 0.95) -> Float:
        """Compute the interval of each pair rate.

        Parameters
        ----------
        level : float, default=0.95
            Probability that an interval covers the truth.

        Returns
        -------
        ndarray of shape (n_rates, 2)
            Within [0, 1]; all of it where a side has one row, and NaN where a side has none.
        """
        rate = self.rates
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = np.sqrt(np.maximum(self.variance, 0.0)) / (rate * (1.0 - rate))
            half = stats.t.isf((1.0 - level) / 2.0, self.degrees) * spread
            half = np.where(spread == 0.0, 0.0, half)  # All scores tie, as those of a constant.
            ends = expit(logit(rate)[:, None] + half[:, None] * [-1.0, 1.0])
        certain = (rate <= 0.0) | (rate >= 1.0)
        exact = np.stack(clopper_pearson(rate * self.smaller, self.smaller, level), axis=-1)
        ends = np.where(certain[:, None], exact, ends)
        ends = np.where(np.isnan(self.variance)[:, None], [0.0, 1.0], ends)
        return np.where(np.isnan(rate)[:, None], np.nan, ends)

    def sums(self, coefficients: Float, constant: Float) -> PairSums:
        """Add up pair rates, each sum with its own coefficients; see :class:`PairSums`."""
        return PairSums(self, coefficients, constant)


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums and differences of pair rates, such as the functionals of a constraint.

    Parameters
    ----------
    estimates : PairEstimates
        The pair rates.
    coefficients : ndarray of shape (n_sums, n_rates)
        Coefficient of each pair rate in each sum.
    constant : ndarray of shape (n_sums,)
        Number that is added to each sum.
    """

    estimates: PairEstimates
    coefficients: Float
    constant: Float

    @cached_property
    def values(self) -> Float:
        """Value of each sum, (n_sums,); NaN where a rate in it is undefined."""
        terms = np.where(self.coefficients != 0, self.coefficients * self.estimates.rates, 0.0)
        return np.asarray(terms.sum(axis=1) + self.constant)

    @cached_property
    def correlation(self) -> Float:
        """Correlation of the sums, (n_sums, n_sums)."""
        covariance = np.nan_to_num(self.estimates.covariance)
        return correlation_of(self.coefficients @ covariance @ self.coefficients.T)

    def intervals(self, level: float = 0.95) -> Float:
        """Compute the interval of each sum.

        Parameters
        ----------
        level : float, default=0.95
            Probability that an interval covers the truth.

        Returns
        -------
        ndarray of shape (n_sums, 2)
            Within the range of the sum; NaN where a rate in it is undefined.
        """
        rates = self.estimates.rates
        ends = self.estimates.intervals(level)
        correlation = correlation_of(np.nan_to_num(self.estimates.covariance))
        found = np.empty((len(self.coefficients), 2))
        for k, (a, value) in enumerate(zip(self.coefficients, self.values, strict=True)):
            some = np.flatnonzero(a)
            a, of_all = a[some], correlation[np.ix_(some, some)]
            down, up = (np.abs(ends[some, end] - rates[some]) for end in (0, 1))
            lower, upper = np.where(a > 0, [down, up], [up, down]) * a
            sizes = [np.sqrt(max(d @ of_all @ d, 0.0)) for d in (lower, upper)]
            limits = self.constant[k] + np.array([a[a < 0].sum(), a[a > 0].sum()])
            found[k] = np.clip([value - sizes[0], value + sizes[1]], *limits)
        return found


def estimate_pair_rates(moments: PairMoments, rates: PairRates) -> PairEstimates:
    """Estimate pair rates and their covariance from the moments of cells.

    Parameters
    ----------
    moments : PairMoments
        Moments of rows that were used for nothing else.
    rates : PairRates
        The pair rates.
    """
    values = rates.values(moments.table, moments.sizes.weight)
    sizes = [moments.sizes.effective_rows(inside) for inside in rates]
    parts = _linear_parts(moments, rates, values, sizes)
    products = np.einsum("kcd,cde->kce", parts, moments.second)
    covariance = np.tensordot(products, parts, axes=((1, 2), (1, 2)))
    of_cells = np.einsum("kce,kce->kc", products, parts)
    smaller = np.minimum(*sizes)
    unknown = smaller <= 1.0
    covariance[unknown] = covariance[:, unknown] = np.nan
    degrees = _degrees_of_freedom(moments, rates, of_cells)
    return PairEstimates(values, covariance, degrees, smaller)


def pair_constraint_interval(
    constraint: Constraint, sums: SumsOfPairs, level: float = 0.95
) -> Float:
    """Compute the two-sided interval of what a constraint on pair rates bounds.

    Parameters
    ----------
    constraint : Constraint
        The constraint.
    sums : SumsOfPairs
        Its functionals: one, or that of each group with the reference at the end.
    level : float, default=0.95
        Probability that the interval covers the truth.

    Returns
    -------
    ndarray of shape (2,)
        NaN where the value is undefined.
    """
    at = sums.intervals(level)
    if not constraint.expression.compares_groups or len(at) == 1:
        return np.asarray(at[0])
    strict = sums.intervals(level_of_all(constraint, len(at), level))
    return worst_interval(constraint, sums.values, at, strict, sums.correlation)


def _linear_parts(
    moments: PairMoments, rates: PairRates, values: Float, sizes: list[Float]
) -> Float:
    """Find the coefficients of rows' parts in the shares below them, (n_rates, n_cells, ... + 1).

    The parts of rows in U are multiplied by the root of ``n / (n - 1)``, and those in V too.
    """
    shares, scales = [], []
    for inside, n in zip(rates, sizes, strict=True):
        total = inside @ moments.sizes.weight
        inverse = np.divide(1.0, total, out=np.zeros(total.shape), where=total > 0)
        shares.append(inside * moments.sizes.weight * inverse[:, None])
        factor = np.divide(n, n - 1.0, out=np.ones(n.shape), where=n > 1.0)
        scales.append(inside * (inverse * np.sqrt(factor))[:, None])
    (share_u, share_v), (u, v) = shares, scales
    of_shares = u[:, :, None] * share_v[:, None] - v[:, :, None] * share_u[:, None]
    theta = np.nan_to_num(values)[:, None]
    of_one = v * (1.0 - theta) - u * theta
    return np.concatenate([of_shares, of_one[:, :, None]], axis=2)


def _degrees_of_freedom(moments: PairMoments, rates: PairRates, of_cells: Float) -> Float:
    """Compute Satterthwaite's degrees of freedom; infinite where nothing varies."""
    first, second = rates
    total, squares = of_cells.sum(axis=1), np.zeros(len(of_cells))
    for stratum in (first & ~second, second & ~first, first & second):
        degrees = np.maximum(moments.sizes.effective_rows(stratum) - 1.0, 1.0)
        squares += (of_cells * stratum).sum(axis=1) ** 2 / degrees
    degrees = np.full(total.shape, np.inf)
    return np.asarray(np.divide(total**2, squares, out=degrees, where=squares > 0))


MAX_PARTS = 64  # Parts up to which the rates of a block are estimated together.


@dataclass(frozen=True, eq=False)
class SeparateSums:
    """Sums of pair rates whose parts are estimated one by one.

    Parameters
    ----------
    parts : list of list of PairSums
        Of each sum, its parts: each a sum of rates of one class.
    constant : ndarray of shape (n_sums,)
        Number that is added to each sum.
    """

    parts: list[list[PairSums]]
    constant: Float

    @property
    def values(self) -> Float:
        """Value of each sum, (n_sums,)."""
        totals = [sum(float(part.values[0]) for part in parts) for parts in self.parts]
        return np.asarray(self.constant + totals)

    @property
    def correlation(self) -> Float:
        """The worst correlation for differences, (n_sums, n_sums): deviations add up."""
        return 2.0 * np.eye(self.constant.size) - 1.0

    def intervals(self, level: float = 0.95) -> Float:
        """Compute the interval of each sum, (n_sums, 2): the sum of those of its parts."""
        totals = [
            np.sum([part.intervals(level)[0] for part in parts], axis=0) + np.zeros(2)
            for parts in self.parts
        ]
        return np.asarray(self.constant[:, None] + totals)


@dataclass(frozen=True, eq=False)
class PairIntervals:
    """Intervals of constraints on pair rates, which complete those of other constraints.

    Parameters
    ----------
    cells : Cells
        Partition of rows that were used for nothing else.
    compiled : LinearConstraints
        The constraints.
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of the rows.
    level : float, default=0.95
        Probability that an interval covers the truth.
    """

    cells: Cells
    compiled: LinearConstraints
    margin: Array
    level: float = 0.95

    def complete(self, intervals: Float, of_functionals: Float) -> tuple[Float, Float]:
        """Fill in the intervals of pair rates, which are NaN for counted decisions.

        Parameters
        ----------
        intervals : ndarray of shape (n_constraints, 2)
            Intervals of what constraints bound.
        of_functionals : ndarray of shape (n_functionals, 2)
            Intervals of the functionals.
        """
        intervals, of_functionals = intervals.copy(), of_functionals.copy()
        for j, constraint in enumerate(self.compiled.constraints):
            if constraint.is_pair:
                sums, span = self._sums(j), self.compiled.spans[j]
                of_functionals[span] = sums.intervals(self.level)
                intervals[j] = pair_constraint_interval(constraint, sums, self.level)
        return intervals, of_functionals

    @cached_property
    def _parts(self) -> PairParts:
        return PairParts.of(self.compiled)

    def _sums(self, j: int) -> SumsOfPairs:
        """Estimate the functionals of a constraint."""
        span, blocks = self.compiled.spans[j], self.compiled.pair_blocks
        coefficients = self._parts.coefficients[span].toarray()
        is_known = [terms is not None for terms in self.compiled.terms[span]]
        constant = np.where(is_known, self.compiled.constant[span], np.nan)
        used = np.unique(self._parts.block[coefficients.any(axis=0)])
        if used.size == 1 and blocks[used[0]].n_parts <= MAX_PARTS:
            at, estimates = self._together[used[0]]
            return estimates.sums(coefficients[:, at], constant)
        return SeparateSums([self._one_by_one(row) for row in coefficients], constant)

    @cached_property
    def _together(self) -> dict[int, tuple[Codes, PairEstimates]]:
        """Rates of each block that is estimated as a whole, with their estimates."""
        found = {}
        for i, block in enumerate(self.compiled.pair_blocks):
            if block.n_parts <= MAX_PARTS:
                at = np.flatnonzero(self._parts.block == i)
                rates = self._parts.rates_at(at, block.cells)
                found[i] = at, self._estimate(block, rates)
        return found

    def _one_by_one(self, coefficients: Float) -> list[PairSums]:
        """Estimate a sum of pair rates, those of each class by themselves."""
        sums, nothing = [], np.zeros(1)
        used = np.flatnonzero(coefficients)
        for i in np.unique(self._parts.block[used]):
            at, block = used[self._parts.block[used] == i], self.compiled.pair_blocks[i]
            estimates = self._estimate(block, self._parts.rates_at(at, block.cells))
            sums.append(estimates.sums(coefficients[None, at], nothing))
        return sums

    def _estimate(self, block: PairBlock, rates: PairRates) -> PairEstimates:
        """Estimate pair rates of a block, after cells are merged that all rates take alike."""
        view = self.cells.views[block.view]
        alike, merged = np.unique(np.concatenate(rates), axis=1, return_inverse=True)
        merged[~np.concatenate(rates).any(axis=0)] = -1
        position = np.full(len(view), -1)
        position[block.cells - view.cells.start] = merged
        codes = position[view.small_codes]
        rows = np.flatnonzero(codes >= 0)
        weight = self.cells.rows.weight
        moments = PairMoments.of(
            log_odds_of_class(self.margin[rows], block.target),
            codes[rows],
            None if weight is None else weight[rows],
            alike.shape[1],
        )
        return estimate_pair_rates(moments, PairRates(*np.split(alike, 2)))


def pair_p_values(compiled: LinearConstraints, cells: Cells, functionals: Float) -> Float:
    """Compute the p-value of the violation of each constraint on pair rates.

    The largest p-value of a constraint's rows needs no correction for their number, nor does that
    of several constraints (:func:`gbm_constrained.statistics.p_values.constraint_p_values`).

    Parameters
    ----------
    compiled : LinearConstraints
        The constraints.
    cells : Cells
        Partition of rows that were used for nothing else.
    functionals : ndarray of shape (n_functionals,)
        Values of the functionals on these rows.

    Returns
    -------
    ndarray of shape (n_constraints,)
        One where a functional is undefined; zero for other constraints, and for those that no
        scores violate.
    """
    p = np.zeros(len(compiled.constraints))
    rows = _PairRows.of(compiled, cells)
    room = compiled.b - compiled.rows_of(np.nan_to_num(functionals))
    for j, (constraint, span) in enumerate(zip(compiled.constraints, compiled.spans, strict=True)):
        if constraint.is_pair and not constraint.is_always_met:
            of_rows = [
                pair_p_value(rows.cells, *rows.sum_of(i), float(room[i])) for i in rows.of_owner(j)
            ]
            p[j] = 1.0 if np.isnan(functionals[span]).any() else max(of_rows, default=0.0)
    return p


def rows_to_certify(compiled: LinearConstraints, cells: Cells, delta: float) -> Float:
    """Compute the number of rows that would certify each constraint on pair rates at best.

    The best scores are those whose pair rates leave most room on all rows of the constraint: a
    linear programme over pair rates between zero and one. With as many rows in all, in the shares
    of these, the deviations at `delta` fit that room.

    Parameters
    ----------
    compiled, cells
        As in :func:`pair_p_values`.
    delta : float
        Largest probability of a false certificate.

    Returns
    -------
    ndarray of shape (n_constraints,)
        Whole numbers; infinite where no number of rows is enough, and zero for other constraints,
        for those that no scores violate, and for those whose groups have no rows.
    """
    needed = np.zeros(len(compiled.constraints))
    rows = _PairRows.of(compiled, cells)
    for j, constraint in enumerate(compiled.constraints):
        own = rows.of_owner(j)
        if constraint.is_pair and not constraint.is_always_met and own.size:
            deviations = [pair_deviation(rows.cells, *rows.sum_of(i), delta) for i in own]
            share = _find_room(rows.coefficients[own], compiled.b[own], np.array(deviations))
            needed[j] = rows_needed(len(cells.rows), 1.0, share)
    return needed


@dataclass(frozen=True, eq=False)
class _PairRows:
    """Rows of constraints as sums of distinct pair rates."""

    compiled: LinearConstraints
    parts: PairParts
    cells: Any  # Sizes of the cells.
    coefficients: Any  # Coefficients of the rates in each row, csr_array (m, n_rates).

    @classmethod
    def of(cls, compiled: LinearConstraints, cells: Cells) -> _PairRows:
        """List the pair rates of each row of constraints."""
        parts = PairParts.of(compiled)
        coefficients = sparse.csr_array(compiled.R @ parts.coefficients)
        return cls(compiled, parts, sizes_of(cells), coefficients)

    def of_owner(self, j: int) -> Codes:
        """Find the rows of a constraint that are known."""
        return np.flatnonzero((self.compiled.owner == j) & self.compiled.is_known)

    def sum_of(self, i: int) -> tuple[PairRates, Float]:
        """Find the pair rates of a row, and their coefficients."""
        row = self.coefficients[[i]]
        return self.parts.rates_at(row.indices), row.data


def _find_room(coefficients: Any, bounds: Float, deviations: Float) -> float:
    """Find the largest factor of deviations that the best pair rates leave room for.

    It is the largest k with ``coefficients @ rates + k * deviations <= bounds`` for some rates
    between zero and one.
    """
    if not np.isfinite(deviations).all():
        return 0.0
    of_factor: Any = sparse.csr_array(deviations[:, None])
    left = sparse.hstack([coefficients, of_factor]).tocsr()
    cost = np.append(np.zeros(coefficients.shape[1]), -1.0)
    limits = [(0.0, 1.0)] * coefficients.shape[1] + [(0.0, inf)]
    found = optimize.linprog(cost, A_ub=left, b_ub=bounds, bounds=limits)
    return 0.0 if found.x is None else float(found.x[-1])
