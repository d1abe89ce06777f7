"""The value of a metric of the confusion matrix on given rows, and its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import Estimate
from gbm_constrained.metrics.base import BoundMetric, Metric
from gbm_constrained.problem.compiler import NoRowsError, compile_constraints
from gbm_constrained.problem.grouping import SmallGroupWarning
from gbm_constrained.problem.joint_cells import JointCells
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.bootstrap import RowGroups
from gbm_constrained.statistics.counts import CellCounts, functionals_of_weights
from gbm_constrained.statistics.intervals import functional_intervals


@dataclass(frozen=True, eq=False)
class MetricOnRows:
    """A metric bound to rows.

    Parameters
    ----------
    bound : BoundMetric
        The metric.
    cells : Cells
        Partition of the rows by what the metric looks at.
    compiled : LinearConstraints
        Its functionals.
    joint : JointCells
        The joint partition.
    """

    bound: BoundMetric
    cells: Cells
    compiled: LinearConstraints
    joint: JointCells

    @classmethod
    def of(cls, metric: Metric, rows: Rows, positive: Any = None) -> MetricOnRows:
        """Bind a metric to rows.

        Parameters
        ----------
        metric : Metric
            The metric.
        rows : Rows
            The rows.
        positive : hashable, default=None
            Label of the positive class.

        Raises
        ------
        ValueError
            If a class or a group that the metric looks at has no rows, or the metric is about a
            named data set, which only fits have.
        """
        classes = rows.classes
        of_classes = np.bincount(rows.y, rows.weight, classes.size)
        bound = metric.bind(classes, of_classes / of_classes.sum())
        bound = bound.with_positive_class(classes, positive)
        if names := sorted({name for c in bound.constraints for name in c.data_sets}):
            raise ValueError(
                f"{metric} speaks of the data set {names[0]!r}, which was given to a fit and is "
                f"no part of these rows: measure a metric without on=dataset(...) on its rows."
            )
        warning = SmallGroupWarning(f"{metric}, ")
        try:
            cells, compiled = compile_constraints(bound.constraints, rows, warning=warning)
        except NoRowsError:
            missing = ", ".join(map(repr, classes[of_classes == 0.0].tolist()))
            reason = f"is of class {missing}" if missing else "is among those of one of its rates"
            raise ValueError(
                f"{metric} has no value on these rows: none of them with positive weight "
                f"{reason}. Give rows of every class, {classes.tolist()}, or measure the accuracy."
            ) from None
        bound = bound.with_groups(compiled.groups)
        return cls(bound, cells, compiled, JointCells.of(cells))

    def value(self, shares: Float) -> float:
        """Compute the metric of (randomised) decisions.

        Parameters
        ----------
        shares : ndarray of shape (n_samples, n_classes)
            Probability of each decision on each row.
        """
        counts = self.joint.count_shares(shares, self.cells.rows.weight)
        found = self.joint.coefficients(self.cells, self.compiled).functionals(counts)
        return float(self.bound.function(found))

    def estimate(self, decisions: Codes, level: float) -> Estimate:
        """Estimate the metric of decisions, with an interval by the bootstrap of rows.

        The worst rate has an interval of its own: each replicate has another worst one.

        Parameters
        ----------
        decisions : ndarray of shape (n_samples,), intp
            Class index that each row is decided as.
        level : float
            Level of the interval.
        """
        joint, n_classes = self.joint, self.joint.n_classes
        if self.bound.metric.form == "worst":
            everyone, decided = slice(None), np.eye(n_classes)[decisions]
            counted = CellCounts.of_probabilities(self.cells, decided)
            interval = worst_rate_interval(self.compiled, counted, everyone, level)
            return Estimate(self.value(decided), *map(float, interval))
        weight = self.cells.rows.weight
        groups = RowGroups.of(joint.codes, decisions[None], weight, joint.amounts())
        weights = np.vstack([groups.weight, groups.resample()])
        shares = np.eye(n_classes)[groups.decisions[0]]
        counts = groups.tables(weights, shares, len(joint))
        tables, as_ones = (joint.spread(counts, len(self.cells), as_ones=a) for a in (False, True))
        u = functionals_of_weights(self.compiled, tables, as_ones)
        value, *resampled = (self.bound.function(one) for one in u)
        tail = 50.0 * (1.0 - level)
        return Estimate(value, *map(float, np.nanpercentile(resampled, [tail, 100.0 - tail])))


def worst_rate_interval(
    compiled: LinearConstraints, counts: CellCounts, at: slice, level: float = 0.95
) -> Float:
    """Find the interval of the smallest rate of decisions that the rows did not choose.

    It is that of :func:`~gbm_constrained.statistics.worst_intervals.worst_interval`.

    Parameters
    ----------
    compiled : LinearConstraints
        The functionals.
    counts : CellCounts
        The decisions.
    at : slice
        Positions of the rates among the functionals.
    level : float, default=0.95
        Level of the interval.
    """
    of_each = functional_intervals(compiled, counts, level)[at]
    of_all = 1.0 - (1.0 - level) / len(of_each)
    strict = functional_intervals(compiled, counts, of_all)[at]
    return np.array([of_each[:, 0].min(), strict[:, 1].min()])


def measure_metric(metric: Metric, rows: Rows, shares: Float, positive: Any = None) -> float:
    """Compute a metric of (randomised) decisions.

    Parameters
    ----------
    metric, rows, positive
        As in :meth:`MetricOnRows.of`.
    shares : ndarray of shape (n_samples, n_classes)
        Probability of each decision on each row.
    """
    return MetricOnRows.of(metric, rows, positive).value(shares)
