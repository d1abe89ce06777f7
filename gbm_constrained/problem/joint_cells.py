r"""One partition of the rows by everything that a metric and its constraints look at.

Views divide rows by few attributes each. A decision rule of least cost needs the cost of deciding
class j for a row of *one* cell c, which is the product of all views that have rows. With the
weight :math:`m_{cj}` of the rows of cell c that are decided as class j, every functional is

.. math:: u_k = \sum_{c, j} T_{kcj} m_{cj} + \text{constant}_k .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.problem.linear_constraints import LinearConstraints

MOST_JOINT_CELLS = 200
"""Cells beyond which no booster can be expected to estimate the probability of each."""


@dataclass(frozen=True, eq=False)
class JointCells:
    """Joint partition of the rows, without empty cells.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,), intp
        The joint cell of each row.
    of_views : ndarray of shape (n_joint_cells, n_views), intp
        The cell of each view that a joint cell lies in, counted over all views.
    labels : ndarray of shape (n_joint_cells,), intp
        Class index of the rows of each joint cell.
    n_classes : int
        Number of classes.
    """

    codes: Codes
    of_views: Codes
    labels: Codes
    n_classes: int

    @classmethod
    def of(cls, cells: Cells) -> JointCells:
        """Divide rows by all views.

        Raises
        ------
        ValueError
            If there are too many joint cells to estimate the probability of each.
        """
        codes = np.stack([view.codes for view in cells.views], axis=1)
        of_views, joint = np.unique(codes, axis=0, return_inverse=True)
        if not cells.communicator.holds_all_rows:  # Other machines may have other combinations.
            found = np.concatenate([*cells.communicator.gather(of_views), codes])
            of_views, joint = np.unique(found, axis=0, return_inverse=True)
            joint = joint.ravel()[len(found) - len(codes) :]
        if len(of_views) > MOST_JOINT_CELLS:
            raise ValueError(
                f"the metric and its constraints divide the rows into {len(of_views)} "
                f"combinations of label and groups, more than {MOST_JOINT_CELLS}, and decisions "
                f"need the probability of each: compare fewer groups, or use "
                f"small_groups='merge'."
            )
        labels = cells.labels[of_views[:, 0]]
        return cls(np.ravel(joint).astype(np.intp), of_views, labels, cells.classes.size)

    @property
    def are_labels(self) -> bool:
        """Whether the joint cells are the classes themselves, in their order."""
        return np.array_equal(self.labels, np.arange(self.n_classes))

    def __len__(self) -> int:
        return len(self.labels)

    def counts(self, decisions: Codes, weight: Float | None, rows: Codes) -> Float:
        """Sum the weights of some rows by joint cell and decision.

        Parameters
        ----------
        decisions : ndarray of shape (n_rows,), intp
            Class index that each of the rows is decided as.
        weight : ndarray of shape (n_rows,) or None
            Weight of each of the rows.
        rows : ndarray of shape (n_rows,), intp
            Positions of the rows.
        """
        size = len(self) * self.n_classes
        at = self.codes[rows] * self.n_classes + decisions
        return np.bincount(at, weight, size).reshape(len(self), -1).astype(np.float64)

    def count_shares(
        self, shares: Float, weight: Float | None, rows: Codes | slice = slice(None)
    ) -> Float:
        """Sum the weights of some rows by joint cell and randomised decision.

        Parameters
        ----------
        shares : ndarray of shape (n_rows, n_classes)
            Probability of each decision on each of the rows.
        weight : ndarray of shape (n_rows,) or None
            Weight of each of the rows.
        rows : ndarray of shape (n_rows,), intp, default=all
            Positions of the rows.
        """
        codes = self.codes[rows]
        w = np.ones(len(shares)) if weight is None else weight
        found = [np.bincount(codes, w * share, len(self)) for share in shares.T]
        return np.stack(found, axis=1).astype(np.float64)

    def spread(self, counts: Float, n_cells: int) -> Float:
        """Add weights of joint cells up to those of the cells of all views.

        Parameters
        ----------
        counts : ndarray of shape (..., n_joint_cells, n_classes)
            Weights.
        n_cells : int
            Number of cells of all views.

        Returns
        -------
        ndarray of shape (..., n_cells, n_classes)
        """
        tables = np.zeros((*counts.shape[:-2], n_cells, self.n_classes))
        for cells in self.of_views.T:
            for cell, of_cell in zip(cells, np.moveaxis(counts, -2, 0), strict=True):
                tables[..., cell, :] += of_cell
        return tables

    def coefficients(self, cells: Cells, compiled: LinearConstraints) -> Coefficients:
        """Write functionals on (part of) the rows in weights of joint cells.

        Parameters
        ----------
        cells : Cells
            The views of these rows.
        compiled : LinearConstraints
            Functionals compiled against them.
        """
        n, k = len(cells), self.n_classes
        share = np.divide(1.0, cells.weight, out=np.zeros(n), where=cells.weight > 0)
        by_view = compiled.U.toarray().reshape(-1, n, k) * share[:, None]
        table = by_view[:, self.of_views, :].sum(axis=2)
        return Coefficients(table, np.nan_to_num(compiled.constant))


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Functionals in weights of joint cells.

    Parameters
    ----------
    table : ndarray of shape (n_functionals, n_joint_cells, n_classes)
        Coefficient of the weight of each cell's rows that are decided as each class.
    constant : ndarray of shape (n_functionals,)
        Constant parts; zero of functionals that the rows do not define.
    """

    table: Float
    constant: Float

    def functionals(self, counts: Float) -> Float:
        """Compute the functionals from weights of shape (..., n_joint_cells, n_classes)."""
        found = np.tensordot(counts, self.table, axes=([-2, -1], [1, 2]))
        return np.asarray(found + self.constant)

    def costs(self, cost: Float) -> Float:
        """Cost of each decision in each cell, given the cost of each functional."""
        return np.asarray(np.tensordot(cost, self.table, axes=1))
