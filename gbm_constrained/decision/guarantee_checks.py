"""Guarantees that no decision can earn."""

from __future__ import annotations

from math import ceil, log

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.evaluation_set import UnseenRows
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.statistics.counts import Block, CellCounts, blocks_of_rows
from gbm_constrained.statistics.order_statistics import expected_bounds, minimum_rows
from gbm_constrained.statistics.p_values import p_value_of_blocks


def expected(compiled: CompiledConstraints, cells: Cells) -> Float:
    """Right-hand sides under which rules that hold on these rows hold in the mean."""
    counts = CellCounts.of(cells, np.zeros(len(cells.rows), dtype=np.intp))
    bounds = expected_bounds(compiled, counts)
    return np.where(np.isnan(bounds), compiled.b, bounds)


def least_values(rows: UnseenRows) -> Float:
    """Smallest value that any decisions could give each row of constraints."""
    return np.array(
        [
            -np.inf if blocks is None else sum(block.low for block in blocks)
            for blocks in blocks_of_rows(rows.compiled)
        ]
    )


def least_p_values(
    compiled: CompiledConstraints, cells: Cells, level: float
) -> list[tuple[float, str]]:
    """Smallest p-value that any decisions on these rows could give each constraint, and why.

    With the rows that would bring it down to `level`, for the bound of one rate; rows of unequal
    weights count as their effective number.
    """
    least = [(0.0, "")] * len(compiled.constraints)
    shape = (len(cells), cells.classes.size)
    for j, blocks in enumerate(blocks_of_rows(compiled)):
        cost = compiled.A[[j]].toarray().reshape(shape)
        counts = CellCounts.of_shares(cells, np.eye(shape[1])[cost.argmin(axis=1)])
        p = float(p_value_of_blocks(blocks, float(compiled.b[j]), counts))
        owner = int(compiled.owner[j])
        if p > least[owner][0]:
            n = int(cells.weighted_count[np.ptp(cost, axis=1) > 0].sum())
            needed = ""
            if blocks is not None and len(blocks) == 1 and blocks[0].is_binomial:
                needed = _rows_needed(blocks[0], float(compiled.b[j]), counts, level)
            least[owner] = p, f"{compiled.rows[j]} is taken over {n} of these rows{needed}"
    return least


def _rows_needed(block: Block, bound: float, counts: CellCounts, level: float) -> str:
    """Say how many rows without an event would certify a bound; nothing where none would."""
    room = (bound - block.low) / block.width
    if not 0.0 < room < 1.0:
        return ""
    if block.equal_weights(counts):
        return f" and needs {minimum_rows(room, level)}"
    n, needed = block.effective_rows(counts), ceil(-log(level) / (2.0 * room**2))  # Hoeffding
    return f", which count as {n:.0f} for their weights, and needs {needed}"
