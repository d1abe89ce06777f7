"""Normal intervals of mean losses and of costs in amounts, and of what constraints make of them.

Mean cross-entropies and amounts have no bounded range, so that counted decisions
(:mod:`gbm_constrained.statistics.intervals`) do not suffice. The intervals use the loss, or the
cost, of each row: they have the empirical variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats
from sklearn.utils import check_random_state

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import Constraint, Expression
from gbm_constrained.constraints.events import Event
from gbm_constrained.constraints.gaps import Gap, Ratio
from gbm_constrained.constraints.grouped import Each
from gbm_constrained.constraints.selectors import Levels
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.data.exact_sums import Values
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import sum_by_column
from gbm_constrained.statistics.worst_intervals import (
    correlation_of,
    level_of_all,
    worst_interval,
)

DRAWS = 2000  # Draws of the value of a constraint of losses that is no single mean.


@dataclass(frozen=True)
class LossIntervals:
    """Intervals of constraints on losses and costs, which complete those of other constraints."""

    cells: Cells
    compiled: LinearConstraints
    decided: Codes  # Class index that each row is decided for.
    loss: Float | None  # Cross-entropy of each row, in nats; None without constraints on it.
    level: float = 0.95

    def complete(
        self, functionals: Float, intervals: Float, of_functionals: Float
    ) -> tuple[Float, Float]:
        """Fill in the intervals of mean losses, which are NaN for counted decisions."""
        intervals, of_functionals = intervals.copy(), of_functionals.copy()
        moments = None if self.cells.communicator.holds_all_rows else self._moments()
        for j, constraint in enumerate(self.compiled.constraints):
            if not self.has_values(constraint):
                continue
            span = self.compiled.spans[j]
            f = functionals[span]
            if not np.isfinite(f).all():
                continue  # A base set has no rows, or is not known on these rows.
            spread = self._spread(j, moments)
            if not np.isfinite(spread).all():
                continue
            wide = self.widen(j, spread, self.level)
            of_functionals[span] = _normal_of_rates(constraint, f, wide, self.level)
            if _is_worst_of_several(constraint.expression, f.size):
                of_all = level_of_all(constraint, f.size, self.level)
                wide = self.widen(j, spread, of_all)
                strict = _normal_of_rates(constraint, f, wide, of_all)
                own, together = of_functionals[span], correlation_of(spread)
                intervals[j] = worst_interval(constraint, f, own, strict, together)
            else:
                intervals[j] = _loss_interval(constraint, f, wide, self.level)
        return intervals, of_functionals

    def has_values(self, constraint: Constraint) -> bool:
        """Whether the intervals of a constraint are those of values of rows."""
        return constraint.has_loss or constraint.has_costs_of_amounts

    def widen(self, j: int, spread: Float, level: float) -> Float:
        """Widen covariances by what a normal interval of a level lacks; here by nothing."""
        return spread

    def values_of(self, event: Event, view: View, levels: Levels) -> Float:
        """Find what each row adds to the mean of an event."""
        if event.is_loss:
            assert self.loss is not None
            return self.loss
        return np.asarray(event.cost(levels)[view.small_codes, self.decided])

    def _spread(self, j: int, moments: Float | None) -> Float:
        """Compute the covariances of the random errors of a constraint's functionals."""
        if moments is None:
            deviation = self._deviations(j)
            return np.asarray(deviation.T @ deviation)
        return self._spread_by_moments(j, moments)

    def _deviations(self, j: int) -> Float:
        """Compute each row's part in the random error of a constraint's functionals.

        A weighted mean e over rows i has the linearised error ``sum w_i (e_i - e) / sum w_i``.
        Amounts are parts of the weights, and of costs parts of what is averaged. The result has
        shape (n_samples, n_functionals).
        """
        cells, constraint = self.cells, self.compiled.constraints[j]
        views = cells.views_by_amount(j)
        weight = np.ones(len(cells.rows)) if cells.rows.weight is None else cells.rows.weight
        functionals = constraint.expression.functionals(self.compiled.groups[j])
        result = np.zeros((len(cells.rows), len(functionals)))
        for k, (rate, group) in enumerate(functionals):
            for a, term in rate.terms:
                view = views[term.amount]
                inside = cells.select(view, term.base)
                if group is not None:
                    inside &= group.holds(view)
                w = weight if term.event.is_cost else view.weigh(weight)
                w = w * inside[view.small_codes]
                counted = cells.select(view, term.where)[view.small_codes]
                values = self.values_of(term.event, view, cells.levels_of(view))
                event = np.where(counted, values, 0.0)
                if term.event.is_cost:
                    event = view.weigh(event)
                mean = w @ event / w.sum()
                result[:, k] += a * w * (event - mean) / w.sum()
        return result

    def _moments(self) -> Float:
        """Sum w, w e, w^2, w^2 e and w^2 e^2 of the rows of all machines by cell and decision.

        w are weights and e losses. The result has shape (5, n_cells, n_classes).
        """
        cells, loss, w = self.cells, self.loss, self.cells.rows.weight
        assert loss is not None, "amounts are on one machine"
        first: list[Values] = [None, loss] if w is None else [w, w * loss]
        second: list[Values] = [None, loss, loss**2]
        if w is not None:
            second = [w**2, w**2 * loss, (w * loss) ** 2]
        return sum_by_column(cells, self.decided, cells.classes.size, [*first, *second])

    def _spread_by_moments(self, j: int, moments: Float) -> Float:
        """Compute the products of :meth:`_deviations` from sums over the rows of all machines.

        The deviation of a row with loss e is ``w (constant + slope e)``, with a constant and a
        slope of its cell and decision.
        """
        cells, constraint = self.cells, self.compiled.constraints[j]
        view = cells.views[cells.view_of[j]]
        w, we, ww, wwe, wwee = moments[:, view.cells]
        functionals = constraint.expression.functionals(self.compiled.groups[j])
        levels = cells.levels_of(view)
        constant, slope = np.zeros((2, len(functionals), *w.shape))
        for k, (rate, group) in enumerate(functionals):
            for a, term in rate.terms:
                inside = cells.select(view, term.base)
                if group is not None:
                    inside &= group.holds(view)
                counted = cells.select(view, term.where)[:, None]
                event, of_loss = np.zeros((2, *w.shape))
                if term.event.is_loss:
                    of_loss += counted
                else:
                    event += term.event.cost(levels) * counted
                total = w[inside].sum()
                mean = (event * w + of_loss * we)[inside].sum() / total
                constant[k, inside] += a * (event - mean)[inside] / total
                slope[k, inside] += a * of_loss[inside] / total
        crossed = np.einsum("kcd,lcd,cd->kl", constant, slope, wwe)
        squares = np.einsum("kcd,lcd,cd->kl", constant, constant, ww)
        squares += np.einsum("kcd,lcd,cd->kl", slope, slope, wwee)
        return np.asarray(squares + crossed + crossed.T)


def _is_worst_of_several(expression: Expression, n_functionals: int) -> bool:
    """Whether the value is the worst of several; the gap of two groups is one difference."""
    if not isinstance(expression, (Each, Gap, Ratio)):  # A norm of gaps is a function of all.
        return False
    return not (expression.is_difference and n_functionals == 2)


def _normal(values: Float, spread: Float, level: float) -> Float:
    """Find the normal intervals of values with a covariance matrix."""
    half = stats.norm.isf((1.0 - level) / 2) * np.sqrt(np.diag(spread))
    return np.column_stack([values - half, values + half])


def _normal_of_rates(constraint: Constraint, f: Float, spread: Float, level: float) -> Float:
    """Find intervals of rates within their ranges: mean losses are positive."""
    ranges = np.resize([rate.range for rate in constraint.rates], (f.size, 2))
    return np.clip(_normal(f, spread, level), ranges[:, :1], ranges[:, 1:])


def _loss_interval(constraint: Constraint, f: Float, spread: Float, level: float) -> Float:
    """Find the interval of a constraint of mean losses, whose functionals are normal."""
    if f.size == 1:
        return np.asarray(_normal_of_rates(constraint, f, spread, level)[0])
    if constraint.expression.is_difference and f.size == 2:
        contrast = np.array([[1.0], [-1.0]])
        low, high = _normal(f @ contrast, contrast.T @ spread @ contrast, level)[0]
        return np.array([max(low, -high, 0.0), max(high, -low)])
    noise = check_random_state(0).multivariate_normal(np.zeros(f.size), spread, DRAWS)
    draws = [constraint.value(f + shift) for shift in noise]
    return np.nanquantile(draws, [(1.0 - level) / 2, (1.0 + level) / 2])
