"""Properties of linear rows of constraints that solvers and proxies depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.problem.functionals import Functional
from gbm_constrained.problem.kernels.base import over_classes


def find_row_properties(
    cells: Cells,
    functionals: Sequence[Functional],
    rows: Sequence[Mapping[int, float]],
    is_curved: Bool,
) -> dict[str, Any]:
    """Find the properties of linear rows, as fields of ``LinearConstraints``.

    A row is given by the coefficients of its functionals. Directions of one curve have one proxy,
    the bounded one: it serves directions of both signs, of which one rewards errors.
    """
    reached = [_cells_reached(one.view, one.predicted, one.imitation) for one in functionals]
    found = [_properties_of_row(cells, functionals, reached, row) for row in rows]
    widths, touched, *properties = zip(*found, strict=True) if found else [()] * 5
    may, must, splits = (np.array(of, dtype=bool) for of in properties)
    return {
        "cost_range": make_csr(widths, touched, len(cells)),
        "may_reward_errors": may | is_curved,
        "must_reward_errors": must & ~is_curved,
        "splits_targets": splits,
    }


def make_csr(values: Sequence[Float], columns: Sequence[Codes], width: int) -> Any:
    """Make a sparse matrix of the values of each row, given their columns."""
    ends = np.cumsum([0, *(at.size for at in columns)])
    empty: list[Any] = [np.zeros(0)]
    return sparse.csr_array(
        (np.concatenate(values or empty), np.concatenate(columns or empty).astype(np.intp), ends),
        shape=(len(columns), width),
    )


def _properties_of_row(
    cells: Cells,
    functionals: Sequence[Functional],
    reached: Sequence[Codes],
    row: Mapping[int, float],
) -> tuple[Float, Codes, bool, bool, bool]:
    """Find the positive cost ranges of a row, their cells, and its three properties."""
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
    return (
        width[differs],
        at[differs] + view.cells.start,
        bool(is_rewarded.any()),
        not by_label.all(axis=0).any(axis=-1).all(),
        bool(((combined < largest[:, None]).sum(axis=1) > 1).any()),
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
