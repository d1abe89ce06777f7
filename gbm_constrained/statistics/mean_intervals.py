"""Intervals of means of row functions, by their empirical variance and Student's distribution."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.events import Event
from gbm_constrained.constraints.selectors import Levels
from gbm_constrained.data.cells import View
from gbm_constrained.statistics.loss_intervals import LossIntervals


@dataclass(frozen=True)
class MeanIntervals(LossIntervals):
    """Intervals of constraints on means of row functions.

    A mean over n rows of equal weight has Student's distribution with n - 1 degrees of freedom.
    Unequal weights and amounts leave an effective number of rows (Kish).

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_functions)
        Row functions at the targets and predictions, in the order of the classes of the cells.
    """

    decided: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    loss: Float = field(default_factory=lambda: np.zeros(0))
    values: Float = field(default_factory=lambda: np.zeros((0, 0)))

    def has_values(self, constraint: Constraint) -> bool:
        """Whether the intervals of a constraint are those of values of rows: of all of them."""
        return True

    def values_of(self, event: Event, view: View, levels: Levels) -> Float:
        """Find what each row adds to the mean of an event."""
        column = int(event.cost(levels)[0].argmax())
        return self.values[:, column]

    def widen(self, j: int, spread: Float, level: float) -> Float:
        """Widen covariances by the ratio of quantiles of Student's and the normal distribution."""
        deviation = self._deviations(j)
        parts = (deviation != 0.0).sum(axis=0)
        square = np.einsum("ik,ik->k", deviation, deviation)
        fourth = np.einsum("ik,ik->k", deviation**2, deviation**2)
        # Kish: equal deviations of n rows have (sum of squares)^2 / (sum of fourth powers) = n,
        # which a few large ones make smaller.
        effective = np.divide(square**2, fourth, out=parts.astype(np.float64), where=fourth > 0)
        tail = (1.0 - level) / 2.0
        factor = stats.t.isf(tail, np.maximum(effective - 1.0, 1.0)) / stats.norm.isf(tail)
        return np.asarray(spread * np.outer(factor, factor))

    def influence(self, j: int) -> Float:
        """Find each row's part in the random errors of a constraint's functionals, (n, k)."""
        return self._deviations(j)

    def whole(self, functionals: Float) -> tuple[Float, Float]:
        """Find the intervals of all constraints and of all functionals."""
        of_constraints = np.full((len(self.compiled.constraints), 2), np.nan)
        of_functionals = np.full((functionals.size, 2), np.nan)
        return self.complete(functionals, of_constraints, of_functionals)
