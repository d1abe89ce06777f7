r"""Intervals of pair rates, of their sums, and of what constraints bound.

The variance of one pair rate of disjoint sets is that of DeLong, DeLong and Clarke-Pearson [1]_,
with its factors n / (n - 1). The influence of each row covers overlapping sets as well (see
:mod:`gbm_constrained.statistics.pair_moments`).

- One pair rate has a normal interval of its logit, with a quantile of Student's t. The degrees of
  freedom are Satterthwaite's, of the rows in U alone, in V alone and in both.
- Where all pairs are in the right order, or none is, the variance is zero. The smaller set then
  has m rows, with m pairs of different rows, all in one order: independent events, which give
  Clopper and Pearson's interval.
- Sums and differences are combined by squares (Newcombe; Zou [2]_), and by products where rates
  are correlated because they share rows.
- The worst of several groups or pairs of groups has the interval of
  :mod:`gbm_constrained.statistics.worst_intervals`.

Unequal weights are taken as given, and numbers of rows are Kish's effective ones. Where few pairs
are in the wrong order, small samples underestimate the variance, and the truth is covered less
often than the level says.

References
----------
.. [1] DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated
   receiver operating characteristic curves: a nonparametric approach", Biometrics 44, 1988.
.. [2] Zou, "Toward using confidence intervals to compare correlations", Psychological Methods 12,
   2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import stats
from scipy.special import expit, logit

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.problem.pair_statistics import PairRates
from gbm_constrained.statistics.binomial import clopper_pearson
from gbm_constrained.statistics.pair_moments import PairMoments
from gbm_constrained.statistics.worst_intervals import correlation_of, level_of_all, worst_interval


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
