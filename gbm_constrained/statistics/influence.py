"""Influence of rows on functionals, by which these vary from sample to sample."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Bool, Float
from gbm_constrained.statistics.counts import CellCounts, Fractions, SumsOfFractions


@dataclass(frozen=True, eq=False)
class Influence:
    """Influence of rows on functionals, and the sampling variances that it makes (delta method).

    A row's influence on a fraction is its event less the fraction, over the weight of the base
    set. A sum of fractions has the sum of these influences, row by row, so that the numerator and
    the denominator of a quotient vary together, and so do rates of groups that share rows.

    Parameters
    ----------
    fractions : Fractions
        The functionals as fractions of rows.
    together : CellCounts
        Decisions that the fractions, and the shares of decisions in a cell, are taken of. Those of
        a few of the rows would be small by chance where the rates of these are.
    """

    fractions: Fractions
    together: CellCounts

    @classmethod
    def of(cls, compiled: SumsOfFractions, together: CellCounts) -> Influence:
        """Find the influence of rows on the functionals of constraints."""
        return cls(Fractions.of_constraints(compiled, together.weight.shape), together)

    def variances(self, combine: Any, counts: CellCounts | None = None) -> Float:
        """Compute the sampling variances of sums of functionals.

        Parameters
        ----------
        combine : sparse array of shape (n, n_functionals)
            Coefficients of the functionals in each sum.
        counts : CellCounts, default=None
            Decisions about part of the rows that the sums are taken of; None stands for all rows.

        Returns
        -------
        ndarray of shape (n,)
            NaN for sums with a mean loss, or with a fraction over no rows.
        """
        of_sums, square = self._influence(combine, counts)
        found = np.asarray(of_sums.power(2) @ square, dtype=np.float64)
        found[combine.astype(bool) @ self._is_loss] = np.nan
        return found

    def covariance(self) -> Float:
        """Compute the covariances of all functionals, (n_functionals, n_functionals).

        They are NaN for mean losses and fractions over no rows.
        """
        everything = sparse.eye_array(self._is_loss.size, format="csr")
        of_rates, square = self._influence(everything, None)
        found: Float = (of_rates @ sparse.diags_array(square) @ of_rates.T).toarray()
        found[self._is_loss] = found[:, self._is_loss] = np.nan
        return found

    def _influence(self, combine: Any, counts: CellCounts | None) -> tuple[Any, Float]:
        """Find the influence on sums of rows of weight one, and the squared weights of rows."""
        weight, square = self.together.weight, self.together.square
        if counts is not None:
            weight, square = counts.weight, counts.decide(self.together.shares).square
        events, bases = self.fractions.events, self.fractions.bases
        together = self.together.weight.ravel()
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = (events @ together) / (bases @ together)
            of_fractions = events - _scale_rows(bases, rates)
            of_fractions = _scale_rows(of_fractions, 1.0 / (bases @ weight.ravel()))
        return combine @ (self.fractions.sum @ of_fractions), square.ravel()

    @cached_property
    def _is_loss(self) -> Bool:
        return np.isnan(self.fractions.constant)


def _scale_rows(matrix: Any, factors: Float) -> Any:
    """Multiply the rows of a sparse array, in less time than a diagonal matrix does."""
    found = matrix.copy()
    found.data = found.data * np.repeat(factors, np.diff(found.indptr))
    return found
