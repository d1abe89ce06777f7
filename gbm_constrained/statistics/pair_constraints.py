"""Intervals of constraints on pair rates, at the scores of rows.

The pair rates of a block are estimated together, so that their covariance counts where groups
share rows, as in ``gap(cross_auc(), by="sex")``. The moments of a block grow with the third power
of the number of its parts, and rates for several classes have scores of their own. Rates of a
block of more than 64 parts, and those for several classes in one constraint, are therefore
estimated one by one, and their covariance is taken to be the worst one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pair_blocks import PairBlock
from gbm_constrained.problem.pair_statistics import PairRates, log_odds_of_class
from gbm_constrained.statistics.pair_intervals import (
    PairEstimates,
    PairSums,
    SumsOfPairs,
    estimate_pair_rates,
    pair_constraint_interval,
)
from gbm_constrained.statistics.pair_moments import PairMoments
from gbm_constrained.statistics.pair_parts import PairParts

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
