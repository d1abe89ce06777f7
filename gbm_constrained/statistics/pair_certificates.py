r"""Certificates of bounds on pair rates, from Hoeffding's inequality for U-statistics.

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
"""

from __future__ import annotations

from math import ceil, exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.problem.pair_statistics import PairRates
from gbm_constrained.statistics.pair_moments import CellSizes


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
