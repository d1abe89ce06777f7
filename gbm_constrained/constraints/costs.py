r"""Expected costs of decisions: the matrix of a business, in money or any other unit.

The cost of a row with label i that is decided as class j is :math:`a M_{ij}`, with the amount a of
the row, or one. The expected cost is the mean over all rows, in the unit of the amounts:

.. math:: \frac{\sum_i w_i a_i M_{y_i \hat y_i}}{\sum_i w_i}

Rates of amounts divide by the sum of the amounts instead. Costs of several amounts are added, as
in ``cost([[0, 0], [1, 0]], weight="Amount") + cost([[0, 3], [0, 3]])``, where a missed row costs
its amount and each alarm 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gbm_constrained._typing import Float
from gbm_constrained.constraints.events import Event
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.rate_parts import Taken, document_rate, make_rate
from gbm_constrained.constraints.selectors import Levels

__all__ = ["cost"]


@dataclass(frozen=True)
class DecisionCost(Event):
    """What the decision of a row costs, as its label says."""

    needs_labels: ClassVar[bool] = True
    is_cost: ClassVar[bool] = True

    matrix: tuple[tuple[float, ...], ...] = ()

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest cost of a row that counts as one."""
        return float(np.min(self.matrix)), float(np.max(self.matrix))

    def cost(self, levels: Levels) -> Float:
        """Look up the cost of each decision in each cell; rows without a label cost nothing.

        Raises
        ------
        ValueError
            If the matrix is one of another number of classes.
        """
        classes = levels.classes
        if len(self.matrix) != classes.size:
            raise ValueError(
                f"cost(matrix) has {len(self.matrix)} rows and y has {classes.size} classes, "
                f"{classes.tolist()}: give one row and one column for each class."
            )
        table = np.vstack([self.matrix, np.zeros(classes.size)])
        return np.asarray(table[np.minimum(levels.of_cells["label"], classes.size)])

    def __str__(self) -> str:
        rows = [f"[{', '.join(f'{entry:g}' for entry in row)}]" for row in self.matrix]
        return f"cost([{', '.join(rows)}])"


@document_rate
def cost(
    matrix: ArrayLike, *, on: Any = None, weight: Any = None, cap: float | None = None
) -> Rate:
    r"""Make the expected cost of a row, :math:`\sum_i w_i a_i M_{y_i \hat y_i} / \sum_i w_i`.

    Without ``weight=``, this is :math:`\sum_{ij} M_{ij} C_{ij}` with the joint confusion matrix C.
    With it, the cost of a row is its amount times the entry of the matrix.

    Parameters
    ----------
    matrix : array-like of shape (n_classes, n_classes)
        Cost of predicting class j for rows of class i, by the sorted labels; of either sign.

    Raises
    ------
    ValueError
        If the matrix is not square, not finite, or zero.

    Examples
    --------
    >>> from gbm_constrained import cost
    >>> cost([[0, 0], [1, 0]], weight="Amount") + cost([[0, 3], [0, 3]]) <= 2.5
    cost([[0, 0], [1, 0]], weight='Amount') + cost([[0, 3], [0, 3]]) <= 2.5
    """
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"cost(matrix) must be a square matrix, got the shape {table.shape}.")
    if not np.isfinite(table).all() or not table.any():
        raise ValueError(
            f"cost(matrix) must have finite entries that are not all zero, got {table.tolist()}."
        )
    # Zero has no sign: that of -0.0 would be shown.
    event = DecisionCost(tuple(map(tuple, (table + 0.0).tolist())))
    return make_rate(str(event), event, Taken(on, weight, cap))
