"""Compiled constraints as rates of data sets, with the weighted error rate as objective."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.dataset_rates import RateProblem


def rate_problem_of(
    cells: Cells, constraints: LinearConstraints, class_factor: Array | None = None
) -> RateProblem:
    """Write the error rate under compiled constraints as Problem 1 of Goh et al. (2016).

    Parameters
    ----------
    cells : Cells
        Partitions of the rows, those of further data sets with them.
    constraints : LinearConstraints
        Constraints that are linear in the shares of rows decided positively.
    class_factor : ndarray of shape (2,), default=None
        Factor of each class in the objective; ones by default.

    Returns
    -------
    RateProblem
        Its objective is the error rate of the rows that are in the objective.

    Raises
    ------
    ValueError
        If there are more than two classes, or a constraint is on something other than decisions.
    """
    if cells.classes.size != 2:
        raise ValueError(
            f"ramp rates are of a positive and a negative decision, and y has "
            f"{cells.classes.size} classes: fit one class against all others."
        )
    refuse_other_statistics(constraints)
    of_constraints = np.reshape(constraints.A.toarray(), (-1, len(cells), 2))
    of_errors = _error_costs(cells, np.ones(2) if class_factor is None else class_factor)
    costs = np.concatenate([of_errors[None], of_constraints])
    return RateProblem.of(_shares(cells), costs, constraints.b, constraints.rows)


def refuse_other_statistics(constraints: LinearConstraints) -> None:
    """Refuse constraints on mean losses, or on pairs of rows, by name."""
    for matrix, what in ((constraints.B, "a mean loss"), (constraints.C, "pairs of scores")):
        found = np.flatnonzero(np.diff(matrix.indptr))
        if found.size:
            raise ValueError(
                f"{constraints.rows[found[0]]} bounds {what}, which no ramp of decisions "
                f"approximates: use ConstrainedLogisticRegression, or leave it out."
            )


def _error_costs(cells: Cells, class_factor: Array) -> Float:
    """Compute the share of each cell of the first view in the errors; (n_cells, 2)."""
    costs = np.zeros((len(cells), 2))
    inside = np.flatnonzero(cells.labelled)
    labels = cells.labels[inside]
    weight = cells.weight[inside] * class_factor[labels]
    costs[inside, 1 - labels] = weight / weight.sum()
    return costs


def _shares(cells: Cells) -> Any:
    """Compute the share of each row in the weight of its cell of each view."""
    n = cells.codes.size
    weight = np.ones(n) if cells.rows.weight is None else cells.rows.weight
    weighed = np.concatenate([view.weigh(weight) for view in cells.views])
    codes = np.concatenate([view.codes for view in cells.views])
    rows = np.tile(np.arange(n), len(cells.views))
    total = cells.weight[codes]
    share = np.divide(weighed, total, out=np.zeros(codes.size), where=total > 0)
    return sparse.csr_array((share, (codes, rows)), shape=(len(cells), n))
