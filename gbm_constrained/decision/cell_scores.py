r"""Scores of joint cells by two boosters: one of the labels, and one of the cells.

The joint cells divide the rows by label and groups. With the probability P of the label by the
first booster, and Q of the joint cell by the second one,

.. math:: P(c \mid x) = P(y_c \mid x) \, Q(c \mid y_c, x), \qquad
    Q(c \mid y, x) = \frac{Q(c \mid x)}{\sum_{d : y_d = y} Q(d \mid x)} .

The booster of the cells divides its trees between labels and groups, so that it ranks labels worse
than a booster of the labels alone. Here it says no more than which group a row of a label is in.

Cells of further data sets are learned by the booster of the cells alone, and keep the probability
Q. The factorisation holds for the other cells, given that a row is in one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.cost_rule import probabilities_of

OTHER_DATA = -1  # In place of the label of cells of a further data set.


@dataclass(frozen=True, eq=False)
class CellScores:
    """Turns scores of two boosters into those of the joint cells.

    Parameters
    ----------
    labels : ndarray of shape (n_cells,), intp
        Class index of each cell, each class with at least one; -1 for cells of further data sets.
    label_factors : ndarray of shape (n_classes,)
        Factor of each class in the objective of the booster of the labels.
    label_scale : float
        Factor by which its scores become log-odds.
    cell_factors : ndarray of shape (n_cells,)
        Factor of each cell in the objective of the booster of the cells.
    cell_scale : float
        Factor by which its scores become log-odds.
    """

    labels: Codes
    label_factors: Float
    label_scale: float
    cell_factors: Float
    cell_scale: float

    def combine(self, label_margin: Array, cell_margin: Array) -> Float:
        """Compute logarithms of the probabilities of the cells.

        Parameters
        ----------
        label_margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores of the booster of the labels.
        cell_margin : ndarray of shape (n_samples,) or (n_samples, n_cells)
            Scores of the booster of the cells; minus infinity for cells that it has not seen.

        Returns
        -------
        ndarray of shape (n_samples, n_cells)
            Minus infinity for a probability of zero.
        """
        P = probabilities_of(label_margin, self.label_factors, self.label_scale)
        Q = probabilities_of(cell_margin, self.cell_factors, self.cell_scale)
        is_other = self.labels == OTHER_DATA
        inside = 1.0 - Q[:, is_other].sum(axis=1)
        for label in range(P.shape[1]):
            cells = np.flatnonzero(self.labels == label)
            total = Q[:, cells].sum(axis=1, keepdims=True)
            # Cells of a label that the booster thinks impossible are alike.
            share = np.full((len(Q), cells.size), 1.0 / cells.size)
            np.divide(Q[:, cells], total, out=share, where=total > 0.0)
            Q[:, cells] = share * (inside * P[:, label])[:, None]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(Q, 0.0)))
