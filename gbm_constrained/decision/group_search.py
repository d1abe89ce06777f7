"""Search for a threshold of each group of the scores of two classes.

Of each group its thresholds are listed, with what its rows add to errors and rates at each.
:mod:`gbm_constrained.decision.separable_search` finds the best ones.
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.lines import check_margin, threshold_line
from gbm_constrained.decision.score_counts import ENTRIES, DecisionCounts, FunctionalsAlongLine
from gbm_constrained.decision.separable_search import MOST_CANDIDATES, Candidates, SeparableSearch
from gbm_constrained.problem.linear_constraints import LinearConstraints


class GroupSearch(SeparableSearch):
    """Search for thresholds of groups, as shifts of their scores.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,)
        Scores of two classes.
    cells : Cells
        Partition of the rows.
    compiled : LinearConstraints
        Constraints on these rows. Rows of mean losses, and of rates without rows, are left out.
    groups : ndarray of int of shape (n_samples,)
        Group of each row; -1 for rows of no group, which have the common shift.
    common : ndarray of shape (n_groups,)
        The common shift, which groups without rows keep.
    """

    def __init__(
        self,
        margin: Array,
        cells: Cells,
        compiled: LinearConstraints,
        groups: Codes,
        common: Float,
    ) -> None:
        kept = np.flatnonzero(compiled.is_known & ~compiled.has_scores)
        self.margin = check_margin(margin, cells)
        measure = FunctionalsAlongLine(DecisionCounts(cells), compiled.A[kept])
        present = [g for g in range(common.size) if (groups == g).any()]
        most = max(ENTRIES // (measure.size * max(len(present), 1)), MOST_CANDIDATES)
        tables = [self._list(measure, cells, np.flatnonzero(groups == g), most) for g in present]
        others = np.flatnonzero(groups < 0)
        decided = (self.margin[others] + (common[0] if common.size else 0.0) > 0).astype(np.intp)
        fixed = measure.on(DecisionCounts(cells.take(others))).measure(decided)
        # Of many groups, all rows of one class are a start as well.
        super().__init__(tables, present, common, fixed, kept, starts=(0, -1))

    def _list(
        self, measure: FunctionalsAlongLine, cells: Cells, rows: Codes, most: int
    ) -> Candidates:
        """List the thresholds of the rows of one group."""
        line = threshold_line(self.margin[rows])
        if line.shift.size > most:
            line = line.thin(most)
        along = measure.on(DecisionCounts(cells.take(rows))).along(line)
        values = np.concatenate([block for _, block in along], axis=1)
        return Candidates(line.shift, values[0], values[1:])
