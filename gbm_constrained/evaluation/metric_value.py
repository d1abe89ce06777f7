"""The value of a metric of the confusion matrix on given rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.data.rows import Rows
from gbm_constrained.metrics.base import Metric
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.joint_cells import JointCells


def measure_metric(metric: Metric, rows: Rows, shares: Float, positive: Any = None) -> float:
    """Compute a metric of (randomised) decisions.

    Parameters
    ----------
    metric : Metric
        The metric.
    rows : Rows
        The rows.
    shares : ndarray of shape (n_samples, n_classes)
        Probability of each decision on each row.
    positive : hashable, default=None
        Label of the positive class.

    Raises
    ------
    ValueError
        If a class or a group that the metric looks at has no rows.
    """
    classes = rows.classes
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    of_classes = np.bincount(rows.y, weight, classes.size)
    bound = metric.bind(classes, of_classes / of_classes.sum())
    bound = bound.with_positive_class(classes, positive)
    cells, compiled = compile_constraints(bound.constraints, rows)
    bound = bound.with_groups(compiled.groups)
    joint = JointCells.of(cells)
    counts = np.stack(
        [np.bincount(joint.codes, weight * share, len(joint)) for share in shares.T],
        axis=1,
        dtype=np.float64,
    )
    return bound.function(joint.coefficients(cells, compiled).functionals(counts))
