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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, inf, log, sqrt
from typing import Any

import numpy as np
from scipy import optimize, sparse, stats
from scipy.special import expit, logit

from gbm_constrained._typing import Array, Codes, Float
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
from gbm_constrained.statistics.counts import CellCounts, are_equal, effective_rows
from gbm_constrained.statistics.intervals import SampledIntervals, correlation_of, worst_interval


def cell_sizes(cells: Array, weight: Array | None, n_cells: int) -> CellCounts:
    """Count the rows of each cell, which are not decided, given the cell of each row."""
    w = np.ones(np.size(cells)) if weight is None else np.asarray(weight, dtype=np.float64)
    tables = (np.bincount(cells, x, n_cells).astype(np.float64) for x in (w, w**2, w > 0))
    return CellCounts(*(table[:, None] for table in tables))


def _effective_rows(sizes: CellCounts, inside: Any) -> Float:
    """Compute Kish's effective number of rows in unions of cells, (n_unions, n_cells)."""
    return effective_rows(inside @ sizes.weight.ravel(), inside @ sizes.square.ravel())


class PairMoments:
    """Table of pairs of a sample, with moments of its cells.

    Parameters
    ----------
    scores, cells, weight, n_cells
        As in :func:`gbm_constrained.problem.pairs.pair_table`.

    Attributes
    ----------
    sizes : CellCounts
        Rows of the cells, which are not decided.
    table : ndarray of shape (n_cells, n_cells)
        The exact table of pairs, NaN for cells without weight.
    second : ndarray of shape (n_cells, n_cells + 1, n_cells + 1)
        Second moments S of the shares of each cell below a row, and of one.
    """

    def __init__(self, scores: Array, cells: Array, weight: Array | None, n_cells: int) -> None:
        self.sizes = cell_sizes(cells, weight, n_cells)
        w = np.ones(np.size(scores)) if weight is None else np.asarray(weight, dtype=np.float64)
        divisor = np.where(self.sizes.weight > 0, self.sizes.weight, 1.0).ravel()
        wins = np.zeros((n_cells, n_cells))
        self.second = np.zeros((n_cells, n_cells + 1, n_cells + 1))
        for block in ranked_blocks(scores, cells, weight, n_cells):
            wins += block.wins
            shares = np.column_stack([block.lower / divisor, np.ones(len(block.lower))])
            squares = np.bincount(block.entry, w[block.rows] ** 2, block.weight.size)
            for c, of_cell in enumerate(squares.reshape(block.weight.shape).T):
                at = np.flatnonzero(of_cell)
                self.second[c] += shares[at].T @ (of_cell[at, None] * shares[at])
        self.table = table_of_wins(wins)


def _list_pair_rates(compiled: LinearConstraints) -> tuple[PairRates, Codes, Any]:
    """List the distinct pair rates of constraints, by the cells of all views.

    Also returned are the position of the block of the table of pairs that each rate depends on,
    and the coefficient of each rate in each functional, csr_array (n_functionals, n_rates).
    """
    column = dict[tuple[int, bytes, bytes], int]()
    found, entries = list[WeightedPairs](), list[tuple[float, int, int]]()
    for k, terms in enumerate(compiled.terms):
        for term in terms or ():
            if isinstance(term, WeightedPairs):
                key = term.target, term.first.tobytes(), term.second.tobytes()
                if key not in column:
                    column[key] = len(found)
                    found.append(term)
                entries.append((term.coefficient, k, column[key]))
    first, second = np.zeros((2, len(found), compiled.V.shape[1]), dtype=bool)
    block = np.zeros(len(found), dtype=np.intp)
    for i, term in enumerate(found):
        first[i, term.first] = second[i, term.second] = True
        block[i] = next(
            b
            for b, of_target in enumerate(compiled.pair_blocks)
            if of_target.target == term.target and term.first[0] in of_target.cells
        )
    values, rows, columns = zip(*entries, strict=True) if entries else ((), (), ())
    shape = compiled.constant.size, len(found)
    coefficients = sparse.csr_array((values, (rows, columns)), shape=shape)
    return PairRates(first, second), block, coefficients


def pair_p_value(sizes: CellCounts, rates: PairRates, coefficients: Float, room: float) -> float:
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
    changes, matched = _find_deviations(sizes, rates, coefficients)
    if room <= 0.0 or changes == inf:
        return 1.0
    if changes == 0.0:
        return 0.0
    together = exp(-2.0 * room**2 / changes)
    return min(together, np.count_nonzero(coefficients) * exp(-((room / matched) ** 2)), 1.0)


def pair_deviation(
    sizes: CellCounts, rates: PairRates, coefficients: Float, delta: float
) -> float:
    """Bound the random error of a sum of pair rates.

    A bound on the sum is certified where the estimate plus the deviation is within it.

    Parameters
    ----------
    sizes : CellCounts
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
    changes, matched = _find_deviations(sizes, rates, coefficients)
    together = sqrt(log(1.0 / delta) * changes / 2.0)
    if matched in (0.0, inf):
        return together
    return min(together, matched * sqrt(log(np.count_nonzero(coefficients) / delta)))


def _find_deviations(
    sizes: CellCounts, rates: PairRates, coefficients: Float
) -> tuple[float, float]:
    """Find what both deviations of a sum depend on, beside delta.

    These are the sum of the squared changes c of all rows, and that of ``|a_k| / sqrt(2 m_k)``,
    infinite where sets overlap or weights differ.
    """
    some = np.flatnonzero(coefficients)
    if some.size == 0:
        return 0.0, 0.0
    scale = np.abs(coefficients[some])
    sides = [inside[some] for inside in rates]
    weight, square, count = (x.ravel() for x in (sizes.weight, sizes.square, sizes.count))
    totals = [inside @ weight for inside in sides]
    if min(total.min() for total in totals) <= 0.0:
        return inf, inf
    change = sum((scale / total) @ inside for inside, total in zip(sides, totals, strict=True))
    changes = float(change**2 @ square)
    is_matched = not (sides[0] & sides[1]).any() and all(
        are_equal(total, inside @ square, inside @ count).all()
        for inside, total in zip(sides, totals, strict=True)
    )
    smaller = np.minimum(*(_effective_rows(sizes, inside) for inside in sides))
    return changes, float(scale @ np.sqrt(0.5 / smaller)) if is_matched else inf


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
        rate, variance = self.rates, np.diag(self.covariance)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = np.sqrt(np.maximum(variance, 0.0)) / (rate * (1.0 - rate))
            half = stats.t.isf((1.0 - level) / 2.0, self.degrees) * spread
            half = np.where(spread == 0.0, 0.0, half)  # All scores tie, as those of a constant.
            ends = expit(logit(rate)[:, None] + half[:, None] * [-1.0, 1.0])
        certain = (rate <= 0.0) | (rate >= 1.0)
        exact = np.stack(clopper_pearson(rate * self.smaller, self.smaller, level), axis=-1)
        ends = np.where(certain[:, None], exact, ends)
        ends = np.where(np.isnan(variance)[:, None], [0.0, 1.0], ends)
        return np.where(np.isnan(rate)[:, None], np.nan, ends)

    def interval_of_sum(self, a: Float, constant: float, level: float) -> Float:
        """Compute the interval of a sum of the rates with coefficients a, within its range."""
        ends, some = self.intervals(level), np.flatnonzero(a)
        value, a = self.value_of_sum(a) + constant, a[some]
        correlation = correlation_of(np.nan_to_num(self.covariance))[np.ix_(some, some)]
        down, up = (np.abs(ends[some, end] - self.rates[some]) for end in (0, 1))
        lower, upper = np.where(a > 0, [down, up], [up, down]) * a
        sizes = [np.sqrt(max(d @ correlation @ d, 0.0)) for d in (lower, upper)]
        limits = constant + np.array([a[a < 0].sum(), a[a > 0].sum()])
        return np.asarray(np.clip([value - sizes[0], value + sizes[1]], *limits))

    def value_of_sum(self, a: Float) -> float:
        """Compute a sum of the rates with coefficients a; NaN where a rate in it is undefined."""
        return float(np.where(a != 0, a * self.rates, 0.0).sum())

    def sums(self, coefficients: Float, constant: Float) -> PairSums:
        """Add up pair rates, each sum with its own coefficients, (n_sums, n_rates)."""
        covariance = coefficients @ np.nan_to_num(self.covariance) @ coefficients.T
        parts = [[(self, a)] for a in coefficients]
        return PairSums(parts, constant, correlation_of(covariance))


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums and differences of pair rates, such as the functionals of a constraint.

    Parameters
    ----------
    parts : list of list of (PairEstimates, ndarray of shape (n_rates,))
        Of each sum its parts, which are estimated apart: rates with their coefficients.
    constant : ndarray of shape (n_sums,)
        Number that is added to each sum.
    correlation : ndarray of shape (n_sums, n_sums)
        Correlation of the sums.
    """

    parts: list[list[tuple[PairEstimates, Float]]]
    constant: Float
    correlation: Float

    @property
    def values(self) -> Float:
        """Value of each sum, (n_sums,); NaN where a rate in it is undefined."""
        totals = [sum(own.value_of_sum(a) for own, a in parts) for parts in self.parts]
        return np.asarray(totals + self.constant)

    def intervals(self, level: float = 0.95) -> Float:
        """Compute the interval of each sum, (n_sums, 2); NaN where a rate in it is undefined.

        It is the sum of those of its parts.
        """
        found = []
        for parts, constant in zip(self.parts, self.constant.tolist(), strict=True):
            if len(parts) == 1:
                own, a = parts[0]
                found.append(own.interval_of_sum(a, constant, level))
            else:
                ends = [own.interval_of_sum(a, 0.0, level) for own, a in parts]
                found.append(constant + np.sum([np.zeros(2), *ends], axis=0))
        return np.array(found)


def estimate_pair_rates(moments: PairMoments, rates: PairRates) -> PairEstimates:
    """Estimate pair rates and their covariance from the moments of cells.

    Parameters
    ----------
    moments : PairMoments
        Moments of rows that were used for nothing else.
    rates : PairRates
        The pair rates.
    """
    values = rates.values(moments.table, moments.sizes.weight.ravel())
    sizes = [_effective_rows(moments.sizes, inside) for inside in rates]
    parts = _linear_parts(moments, rates, values, sizes)
    products = np.einsum("kcd,cde->kce", parts, moments.second)
    covariance = np.tensordot(products, parts, axes=((1, 2), (1, 2)))
    of_cells = np.einsum("kce,kce->kc", products, parts)
    smaller = np.minimum(*sizes)
    unknown = smaller <= 1.0
    covariance[unknown] = covariance[:, unknown] = np.nan
    # Satterthwaite's degrees of freedom are infinite where nothing varies.
    first, second = rates
    total, squares = of_cells.sum(axis=1), np.zeros(len(of_cells))
    for stratum in (first & ~second, second & ~first, first & second):
        freedom = np.maximum(_effective_rows(moments.sizes, stratum) - 1.0, 1.0)
        squares += (of_cells * stratum).sum(axis=1) ** 2 / freedom
    degrees = np.full(total.shape, np.inf)
    np.divide(total**2, squares, out=degrees, where=squares > 0)
    return PairEstimates(values, covariance, degrees, smaller)


def _linear_parts(
    moments: PairMoments, rates: PairRates, values: Float, sizes: list[Float]
) -> Float:
    """Find the coefficients of rows' parts in the shares below them, (n_rates, n_cells, ... + 1).

    The parts of rows in U are multiplied by the root of ``n / (n - 1)``, and those in V too.
    """
    shares, scales, weight = [], [], moments.sizes.weight.ravel()
    for inside, n in zip(rates, sizes, strict=True):
        total = inside @ weight
        inverse = np.divide(1.0, total, out=np.zeros(total.shape), where=total > 0)
        shares.append(inside * weight * inverse[:, None])
        factor = np.divide(n, n - 1.0, out=np.ones(n.shape), where=n > 1.0)
        scales.append(inside * (inverse * np.sqrt(factor))[:, None])
    (share_u, share_v), (u, v) = shares, scales
    of_shares = u[:, :, None] * share_v[:, None] - v[:, :, None] * share_u[:, None]
    theta = np.nan_to_num(values)[:, None]
    of_one = v * (1.0 - theta) - u * theta
    return np.concatenate([of_shares, of_one[:, :, None]], axis=2)


def pair_constraint_interval(constraint: Constraint, sums: PairSums, level: float = 0.95) -> Float:
    """Compute the two-sided interval of what a constraint on pair rates bounds.

    Parameters
    ----------
    constraint : Constraint
        The constraint.
    sums : PairSums
        Its functionals: one, or that of each group with the reference at the end.
    level : float, default=0.95
        Probability that the interval covers the truth.

    Returns
    -------
    ndarray of shape (2,)
        NaN where the value is undefined.
    """
    f = sums.values
    if not constraint.expression.compares_groups or f.size == 1:
        return np.asarray(sums.intervals(level)[0])
    if np.isnan(constraint.value(f)):
        return np.full(2, np.nan)
    return worst_interval(constraint, f, sums.intervals, level, sums.correlation)


MAX_PARTS = 64  # Parts up to which the rates of a block are estimated together.


@dataclass(frozen=True, eq=False)
class PairIntervals(SampledIntervals):
    """Intervals of constraints on pair rates, on rows that were used for nothing else.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of the rows.
    """

    margin: Array

    def of_constraint(self, j: int, f: Float, level: float) -> tuple[Float, Float] | None:
        """Find the intervals from the estimated pair rates of a constraint."""
        constraint = self.compiled.constraints[j]
        if "pair" not in constraint.kinds:
            return None
        sums = self._sums(j)
        return sums.intervals(level), pair_constraint_interval(constraint, sums, level)

    @cached_property
    def _rates(self) -> tuple[PairRates, Codes, Any]:
        return _list_pair_rates(self.compiled)

    def _sums(self, j: int) -> PairSums:
        """Estimate the functionals of a constraint."""
        span, blocks = self.compiled.spans[j], self.compiled.pair_blocks
        _, block, every = self._rates
        coefficients = every[span].toarray()
        is_known = [terms is not None for terms in self.compiled.terms[span]]
        constant = np.where(is_known, self.compiled.constant[span], np.nan)
        used = np.unique(block[coefficients.any(axis=0)])
        if used.size == 1 and blocks[used[0]].n_parts <= MAX_PARTS:
            own = block == used[0]
            return self._together[used[0]].sums(coefficients[:, own], constant)
        parts = []
        for a in coefficients:
            own_blocks = [(blocks[i], np.flatnonzero((block == i) & (a != 0))) for i in used]
            parts.append([(self._estimate(b, at), a[at]) for b, at in own_blocks if at.size])
        # The worst correlation for differences: deviations add up.
        return PairSums(parts, constant, 2.0 * np.eye(constant.size) - 1.0)

    @cached_property
    def _together(self) -> dict[int, PairEstimates]:
        """Estimates of all rates of each block that is estimated as a whole."""
        _, of_rates, _ = self._rates
        return {
            i: self._estimate(block, np.flatnonzero(of_rates == i))
            for i, block in enumerate(self.compiled.pair_blocks)
            if block.n_parts <= MAX_PARTS
        }

    def _estimate(self, block: PairBlock, at: Codes) -> PairEstimates:
        """Estimate pair rates of a block, after cells are merged that all rates take alike."""
        view = self.cells.views[block.view]
        sides = np.concatenate([inside[at][:, block.cells] for inside in self._rates[0]])
        alike, merged = np.unique(sides, axis=1, return_inverse=True)
        merged[~sides.any(axis=0)] = -1
        position = np.full(len(view), -1)
        position[block.cells - view.cells.start] = merged
        codes = position[view.small_codes]
        rows = np.flatnonzero(codes >= 0)
        weight = self.cells.rows.weight
        moments = PairMoments(
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
    p, sizes = np.zeros(len(compiled.constraints)), CellCounts.undecided(cells)
    room = compiled.b - compiled.rows_of(np.nan_to_num(functionals))
    for j, rows, sums, _ in _rows_of_pairs(compiled):
        of_rows = [
            pair_p_value(sizes, *of_row, float(room[i]))
            for i, of_row in zip(rows, sums, strict=True)
        ]
        is_undefined = np.isnan(functionals[compiled.spans[j]]).any()
        p[j] = 1.0 if is_undefined else max(of_rows, default=0.0)
    return p


def rows_to_certify(compiled: LinearConstraints, cells: Cells, delta: float) -> Float:
    """Compute the number of rows that would certify each constraint on pair rates at best.

    The best scores are those whose pair rates leave most room on all rows of the constraint: a
    linear programme over pair rates between zero and one. With as many rows in all, in the shares
    of these, the deviations at `delta` fit that room: they shrink with the root of the number of
    rows, if the sizes of all sets grow alike.

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
    needed, sizes = np.zeros(len(compiled.constraints)), CellCounts.undecided(cells)
    for j, rows, sums, coefficients in _rows_of_pairs(compiled):
        if rows.size:
            deviations = np.array([pair_deviation(sizes, *of_row, delta) for of_row in sums])
            share = _find_room(coefficients, compiled.b[rows], deviations)
            needed[j] = ceil(len(cells.rows) * (1.0 / share) ** 2) if share > 0.0 else inf
    return needed


def _rows_of_pairs(
    compiled: LinearConstraints,
) -> Iterator[tuple[int, Codes, list[tuple[PairRates, Float]], Any]]:
    """List the rows of each constraint on pair rates that some scores violate.

    These are the positions of the constraint and of its known rows, the pair rates of each row
    with their coefficients, and the coefficients of all rates in these rows.
    """
    rates, _, of_functionals = _list_pair_rates(compiled)
    every = sparse.csr_array(compiled.R @ of_functionals)
    for j, constraint in enumerate(compiled.constraints):
        if "pair" in constraint.kinds and not constraint.is_always_met:
            rows = np.flatnonzero((compiled.owner == j) & compiled.is_known)
            found = [every[[i]] for i in rows]
            sums = [(PairRates(*(x[row.indices] for x in rates)), row.data) for row in found]
            yield j, rows, sums, every[rows]


def _find_room(coefficients: Any, bounds: Float, deviations: Float) -> float:
    """Find the largest factor of deviations that the best pair rates leave room for.

    It is the largest k with ``coefficients @ rates + k * deviations <= bounds`` for some rates
    between zero and one.
    """
    if not np.isfinite(deviations).all():
        return 0.0
    left = sparse.hstack([coefficients, sparse.csr_array(deviations[:, None])]).tocsr()
    cost = np.append(np.zeros(coefficients.shape[1]), -1.0)
    limits = [(0.0, 1.0)] * coefficients.shape[1] + [(0.0, inf)]
    found = optimize.linprog(cost, A_ub=left, b_ub=bounds, bounds=limits)
    return 0.0 if found.x is None else float(found.x[-1])
