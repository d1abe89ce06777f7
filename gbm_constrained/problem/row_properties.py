"""Properties of linear rows of constraints that solvers and proxies depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.problem.functionals import Functional
from gbm_constrained.problem.kernels.base import over_classes


@dataclass(frozen=True)
class RowProperties:
    """Properties of one linear row.

    Parameters
    ----------
    may_reward_errors, must_reward_errors, splits_targets : As in
        :class:`gbm_constrained.problem.linear_constraints.LinearConstraints`.
    cost_range : (n_touched,). Largest difference of the row's coefficients between two predicted
        classes, positive.
    touched : (n_touched,). Cells with such a difference, counted over all views.
    """

    may_reward_errors: bool
    must_reward_errors: bool
    splits_targets: bool
    cost_range: Float
    touched: Codes


def find_row_properties(
    cells: Cells, functionals: Sequence[Functional], rows: Sequence[Mapping[int, float]]
) -> list[RowProperties]:
    """Find the properties of linear rows, given the coefficients of their functionals."""
    reached = [_cells_reached(one.view, one.predicted, one.imitation) for one in functionals]
    return [_properties_of_row(cells, functionals, reached, row) for row in rows]


def _properties_of_row(
    cells: Cells,
    functionals: Sequence[Functional],
    reached: Sequence[Codes],
    row: Mapping[int, float],
) -> RowProperties:
    """Find the properties of one linear row, all functionals of which are of one view."""
    view = functionals[next(iter(row), 0)].view
    # A row compares few of many groups, and all labels of a group are taken together.
    parts = [reached[k] for k in row] or [np.zeros(0, dtype=np.intp)]
    at = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
    combined = np.zeros((at.size, cells.classes.size))
    imitation = np.zeros_like(combined)
    for k, a in row.items():
        combined += a * functionals[k].predicted[at]
        imitation += a * functionals[k].imitation[at]
    own = combined - imitation if (imitation >= 0).all() else combined
    is_rewarded = _find_rewarded(own, cells.labels[view.cells][at])
    least = over_classes(np.minimum, own)
    suits: Bool = (own <= least[:, None]) | ~is_rewarded[:, None]
    by_label = suits.reshape(_n_labels(view), at.size // _n_labels(view), cells.classes.size)
    largest = over_classes(np.maximum, combined)
    width = largest - over_classes(np.minimum, combined)
    differs = np.flatnonzero(width)
    return RowProperties(
        may_reward_errors=bool(is_rewarded.any()),
        must_reward_errors=not by_label.all(axis=0).any(axis=-1).all(),
        splits_targets=bool(((combined < largest[:, None]).sum(axis=1) > 1).any()),
        cost_range=width[differs],
        touched=at[differs] + view.cells.start,
    )


def _n_labels(view: View) -> int:
    """Count the levels of the label, the first attribute of every view."""
    return int(view.levels["label"][-1]) + 1


def _cells_reached(view: View, *tables: Float) -> Codes:
    """Find the cells with entries in tables, and those with another label alone."""
    others = len(view) // _n_labels(view)
    has_entry = np.any([table.any(axis=1) for table in tables], axis=0)
    columns = np.flatnonzero(has_entry.reshape(-1, others).any(axis=0))
    return np.ravel(np.arange(_n_labels(view))[:, None] * others + columns)


def _find_rewarded(cost: Float, labels: Codes) -> Bool:
    """Find the cells whose errors a row rewards, or whose labels are unknown."""
    own = cost[np.arange(labels.size), np.maximum(labels, 0)]
    largest, least = over_classes(np.maximum, cost), over_classes(np.minimum, cost)
    return np.asarray((largest > least) & ((labels < 0) | (own >= largest)))
