"""Thresholds that are dense where either class has its scores."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.line_tables import MarginTable


def spread_thresholds(margin: Array, cells: Cells, n: int) -> Float:
    """Spread n thresholds over the quantiles of the scores of each class, and one below all.

    Where machines hold different rows, these are quantiles of the bins of a table, which divide
    the scores of each class evenly.
    """
    lowest = np.min(margin, initial=np.inf)
    if not cells.communicator.holds_all_rows:
        table = MarginTable.of(margin, cells)
        margin, cells, lowest = table.scores, table.cells, table.table.low.min()
    grid, labels = np.linspace(0.0, 1.0, n), cells.labels[cells.codes]
    at = [np.quantile(margin[labels == k], grid, method="lower") for k in np.unique(labels)]
    return np.unique(np.concatenate([*at, [lowest - 1.0]]))
