"""Bounds that multipliers move towards where constraints that come first leave others unmet.

The multiplier of a constraint that cannot be met grows without bound, and takes those of the
constraints that it contradicts along: scores are then shaped by a conflict that no decision
resolves. Priorities say what becomes of each constraint. So the multipliers of those that follow
aim at what the best threshold reaches on the held-out scores at hand, and are at rest there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.prefix_choice import FEW_SPLITS, find_at_a_price
from gbm_constrained.decision.threshold_search import ShiftSearch
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.row_owners import find_first


@dataclass
class AttainableBounds:
    """What rows of constraints exceed their bounds by, at the best shift of held-out scores.

    Scores change most at first. So shifts are searched in outer iterations 1, 2, 4, 8 and so on,
    and hold until the next one.

    Parameters
    ----------
    cells : Cells
        Partition of the held-out rows.
    compiled : LinearConstraints
        Constraints on these rows.
    """

    cells: Cells
    compiled: LinearConstraints
    _excess: Float = field(init=False)
    _n_calls: int = field(default=0, init=False)

    def find_excess(self, margin: Array) -> Float:
        """Find what each row of constraints exceeds its bound by, shape (m,).

        Rows of the first priority keep their bounds.

        Parameters
        ----------
        margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Held-out scores in the next outer iteration.
        """
        self._n_calls += 1
        if self._n_calls & (self._n_calls - 1) == 0:  # A power of two.
            compiled = self.compiled
            search = ShiftSearch(margin, self.cells, compiled, most_splits=FEW_SPLITS)
            found = find_at_a_price(search)
            violations = compiled.rows_of(np.nan_to_num(found.functionals)) - compiled.b
            violations[[*found.uncalibrated]] = 0.0
            self._excess = np.where(find_first(compiled), 0.0, np.maximum(violations, 0.0))
        return self._excess
