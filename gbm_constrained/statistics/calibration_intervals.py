r"""Intervals of calibration errors.

The error of a sample, :math:`\sum_b |\hat r_b|`, is larger than that of the population,
:math:`\sum_b |r_b|`, by chance: noise has no sign in a bin that is calibrated. With errors
:math:`e_b = \hat r_b - r_b`, which are nearly normal and independent, the difference is

.. math:: D = \sum_b \left( |r_b + e_b| - |r_b| \right) .

**Upper end.** An absolute value is above its tangent, so that :math:`D \ge \sum_b s_b e_b` with
:math:`s_b` the sign of :math:`r_b`. That sum is normal with the variances of all :math:`e_b`
together. The end is that of the tangent, and covers the truth at least as often as it says.

**Lower end.** D falls with each :math:`|r_b|`. Mean residuals are therefore taken nearer to zero
by :data:`SHRINKAGE` standard errors, and the quantile of D there, which is drawn, is subtracted.
This is the correction of the bias, and is more than needed where bins are off by little.

Errors of groups are compared without the median of D, by which noise makes that of a small group
larger. A mean residual has the normal interval of a mean of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn.utils import check_random_state

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.calibration import CalibrationErrors
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.functionals import MeanResidual
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.residual_rows import find_bins
from gbm_constrained.statistics.worst_intervals import interval_of_worst, level_of_all

DRAWS = 2000  # Draws of the noise of bins.
SHRINKAGE = 2.0  # Standard errors that mean residuals are taken nearer to zero by.


@dataclass(frozen=True)
class CalibrationIntervals:
    """Intervals of constraints on calibration errors, which complete those of other constraints.

    Parameters
    ----------
    cells : Cells
        Partition of the rows.
    compiled : LinearConstraints
        The constraints.
    probability : ndarray of shape (n_samples,)
        Probability of the positive class of each row.
    level : float, default=0.95
        Probability that an interval covers the truth.
    """

    cells: Cells
    compiled: LinearConstraints
    probability: Float
    level: float = 0.95

    def complete(
        self, functionals: Float, intervals: Float, of_functionals: Float
    ) -> tuple[Float, Float]:
        """Fill in the intervals of calibration errors, which are NaN for counted decisions."""
        intervals, of_functionals = intervals.copy(), of_functionals.copy()
        for j, constraint in enumerate(self.compiled.constraints):
            expression = constraint.expression
            if isinstance(expression, CalibrationErrors):
                span, bins = self.compiled.spans[j], expression.rates
                errors = self._standard_errors(j)
                half = stats.norm.isf((1.0 - self.level) / 2.0) * errors
                ends = functionals[span] + np.stack([-half, half])
                ranges = np.resize([rate.range for rate in bins], (half.size, 2))
                of_functionals[span] = np.clip(ends.T, ranges[:, :1], ranges[:, 1:])
                intervals[j] = self._interval(constraint, expression, functionals[span], errors)
        return intervals, of_functionals

    def _interval(
        self, constraint: Constraint, expression: CalibrationErrors, f: Float, errors: Float
    ) -> Float:
        """Find the interval of what a constraint bounds, from residuals and standard errors."""
        if np.isnan(constraint.value(f)):
            return np.full(2, np.nan)
        shape = (-1, len(expression.rates))
        groups = list(zip(f.reshape(shape), errors.reshape(shape), strict=True))
        of_all = level_of_all(constraint, f.size, self.level)
        at, strict = (
            np.array([estimate_error(*group, level) for group in groups])
            for level in (self.level, of_all)
        )
        if not expression.compares_groups:
            return np.asarray(at[0, 1:])
        # What noise adds has to be out of the errors of groups before these are compared.
        ends = at[:, 1:], strict[:, 1:]
        found = interval_of_worst(expression, constraint.sense, at[:, 0], ends)
        value = constraint.value(f)
        return np.array([min(found[0], value), max(found[1], value)])

    def _standard_errors(self, j: int) -> Float:
        """Compute the standard errors of the mean residuals of a constraint.

        The mean r of values v of rows of weights w has the linearised error ``sum w (v - r) / sum
        w``, and v is zero outside of the bin.
        """
        cells, terms = self.cells, self.compiled.terms[self.compiled.spans[j]]
        view = cells.views[cells.view_of[j]]
        n, bins = len(view), len(self.compiled.constraints[j].rates)
        weight = np.ones(len(cells.rows)) if cells.rows.weight is None else cells.rows.weight
        codes = np.asarray(view.small_codes).astype(np.intp)
        entries = codes * bins + find_bins(self.probability, bins)
        residual = weight * ((cells.rows.y == 1) - self.probability)
        values, crossed, squares = (
            np.bincount(entries, of_rows, n * bins).reshape(n, bins)
            for of_rows in (residual, weight * residual, residual**2)
        )
        total, square = (np.bincount(codes, of_rows, n) for of_rows in (weight, weight**2))
        found = np.full(len(terms), np.nan)
        for k, parts in enumerate(terms):
            for part in parts or ():
                assert isinstance(part, MeanResidual)
                own, b = part.cells - view.cells.start, part.position
                mean = values[own, b].sum() / total[own].sum()
                variance = squares[own, b].sum() - 2.0 * mean * crossed[own, b].sum()
                variance += mean**2 * square[own].sum()
                found[k] = np.sqrt(max(variance, 0.0)) / total[own].sum()
        return found


class ErrorEstimate(NamedTuple):
    """Estimate of a calibration error.

    Parameters
    ----------
    corrected : float
        The error of the sample without the median of what noise adds.
    low, high : float
        Ends of the interval.
    """

    corrected: float
    low: float
    high: float


def estimate_error(residuals: Float, standard_errors: Float, level: float) -> ErrorEstimate:
    """Estimate a calibration error, NaN where a residual is.

    Parameters
    ----------
    residuals : ndarray of shape (n_bins,)
        Mean residuals of the bins of a sample.
    standard_errors : ndarray of shape (n_bins,)
        Their standard errors.
    level : float
        Probability that the interval covers the truth.
    """
    value, tail = float(np.abs(residuals).sum()), (1.0 - level) / 2.0
    if np.isnan(value) or np.isnan(standard_errors).any():
        return ErrorEstimate(np.nan, np.nan, np.nan)
    high = value + stats.norm.isf(tail) * float(np.sqrt((standard_errors**2).sum()))
    shrunk = np.maximum(np.abs(residuals) - SHRINKAGE * standard_errors, 0.0)
    noise = check_random_state(0).standard_normal((DRAWS, residuals.size)) * standard_errors
    difference = (np.abs(shrunk + noise) - shrunk).sum(axis=1)
    added, most = np.quantile(difference, [0.5, 1.0 - tail])
    return ErrorEstimate(*np.clip([value - added, value - most, high], 0.0, 1.0).tolist())
