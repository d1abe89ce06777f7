r"""One partition of the rows by everything that a metric and its constraints look at.

Views divide rows by few attributes each. A decision rule of least cost needs the cost of deciding
class j for a row of *one* cell c, which is the product of all views that have rows. With the
weight :math:`m_{cj}` of the rows of cell c that are decided as class j, every functional is

.. math:: u_k = \sum_{c, j} T_{kcj} m_{cj} + \text{constant}_k .

Where rows count for amounts, each *measure* has such weights: that of ones, and one for each
amount. Tables have the rows of all measures, one measure after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    measures : sequence of ndarray of shape (n_samples,) or None, default=(None,)
        What each row counts for; None for ones, which are the first measure.
    of_measures : ndarray of shape (n_views,), intp, default=None
        Measure of each view; the first one of all views by default.
    """

    codes: Codes
    of_views: Codes
    labels: Codes
    n_classes: int
    measures: Sequence[Float | None] = (None,)
    of_measures: Codes | None = None

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
        labels, codes = cells.labels[of_views[:, 0]], np.ravel(joint).astype(np.intp)
        measures = {id(None): None} | {id(view.amount): view.amount for view in cells.views}
        position = {key: m for m, key in enumerate(measures)}
        of_measures = np.array([position[id(view.amount)] for view in cells.views])
        amounts = tuple(measures.values())
        return cls(codes, of_views, labels, cells.classes.size, amounts, of_measures)

    @property
    def are_labels(self) -> bool:
        """Whether the joint cells are the classes themselves, in their order."""
        return np.array_equal(self.labels, np.arange(self.n_classes))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_counted(self) -> int:
        """Number of joint cells times that of measures."""
        return len(self) * len(self.measures)

    def amounts(self, rows: Codes | slice = slice(None)) -> list[Float]:
        """List the amounts of some of the rows in each measure but that of ones."""
        return [measure[rows] for measure in self.measures if measure is not None]

    def totals(self, weight: Float | None, rows: Codes | slice = slice(None)) -> Float:
        """Sum the weights of some rows by measure and joint cell, (n_measures, n_joint_cells)."""
        codes, weighed = self.codes[rows], self._weigh(weight, rows)
        return np.array([np.bincount(codes, w, len(self)) for w in weighed], dtype=np.float64)

    def mean_amounts(self, weight: Float | None, rows: Codes) -> Float:
        """Average what some rows of each joint cell count for, (n_measures, n_joint_cells)."""
        totals = self.totals(weight, rows)
        has_weight = totals[0] > 0.0
        return np.asarray(np.divide(totals, totals[0], np.ones_like(totals), where=has_weight))

    def costs_of_rows(self, costs: Float, rows: Codes | slice = slice(None)) -> Float:
        """Add up the cost of each decision about some rows, (n_rows, n_classes).

        Parameters
        ----------
        costs : ndarray of shape (n_measures * n_joint_cells, n_classes)
            Cost of each decision in each measure and cell.
        rows : ndarray of shape (n_rows,), intp, default=all
            Positions of the rows.
        """
        codes = self.codes[rows]
        ones, *others = costs.reshape(len(self.measures), len(self), -1)
        found = ones[codes]
        for of_measure, amount in zip(others, self.amounts(rows), strict=True):
            found += amount[:, None] * of_measure[codes]
        return np.asarray(found)

    def _weigh(self, weight: Float | None, rows: Codes | slice) -> list[Float | None]:
        """Multiply weights of some rows by what they count for in each measure."""
        amounts = self.amounts(rows)
        return [weight, *(one if weight is None else weight * one for one in amounts)]

    def counts(self, decisions: Codes, weight: Float | None, rows: Codes) -> Float:
        """Sum the weights of some rows by measure, joint cell and decision.

        Parameters
        ----------
        decisions : ndarray of shape (n_rows,), intp
            Class index that each of the rows is decided as.
        weight : ndarray of shape (n_rows,) or None
            Weight of each of the rows.
        rows : ndarray of shape (n_rows,), intp
            Positions of the rows.

        Returns
        -------
        ndarray of shape (n_measures * n_joint_cells, n_classes)
        """
        size = len(self) * self.n_classes
        at = self.codes[rows] * self.n_classes + decisions
        found = [np.bincount(at, w, size) for w in self._weigh(weight, rows)]
        return np.concatenate(found).reshape(self.n_counted, -1).astype(np.float64)

    def count_shares(
        self, shares: Float, weight: Float | None, rows: Codes | slice = slice(None)
    ) -> Float:
        """Sum the weights of some rows by measure, joint cell and randomised decision.

        Parameters
        ----------
        shares : ndarray of shape (n_rows, n_classes)
            Probability of each decision on each of the rows.
        weight : ndarray of shape (n_rows,) or None
            Weight of each of the rows.
        rows : ndarray of shape (n_rows,), intp, default=all
            Positions of the rows.

        Returns
        -------
        ndarray of shape (n_measures * n_joint_cells, n_classes)
        """
        codes = self.codes[rows]
        weight = np.ones(len(shares)) if weight is None else weight
        found = [
            np.stack([np.bincount(codes, w * share, len(self)) for share in shares.T], axis=1)
            for w in self._weigh(weight, rows)
        ]
        return np.concatenate(found).astype(np.float64)

    def spread(self, counts: Float, n_cells: int, *, as_ones: bool = False) -> Float:
        """Add weights of joint cells up to those of the cells of all views.

        Parameters
        ----------
        counts : ndarray of shape (..., n_measures * n_joint_cells, n_classes)
            Weights.
        n_cells : int
            Number of cells of all views.
        as_ones : bool, default=False
            Whether rows count as one in every view, instead of for its amounts.

        Returns
        -------
        ndarray of shape (..., n_cells, n_classes)
        """
        tables = np.zeros((*counts.shape[:-2], n_cells, self.n_classes))
        by_cell = np.moveaxis(counts, -2, 0)
        for v, cells in enumerate(self.of_views.T):
            start = 0 if as_ones else self._measure_of(v) * len(self)
            for cell, of_cell in zip(cells, by_cell[start : start + len(self)], strict=True):
                tables[..., cell, :] += of_cell
        return tables

    def _measure_of(self, view: int) -> int:
        """Find the position of the measure of a view."""
        return 0 if self.of_measures is None else int(self.of_measures[view])

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
        by_cell = compiled.U.toarray().reshape(-1, n, k) * share[:, None]
        of_view = np.array([self._measure_of(v) for v in range(self.of_views.shape[1])])
        tables = [
            by_cell[:, self.of_views[:, of_view == m], :].sum(axis=2)
            for m in range(len(self.measures))
        ]
        return Coefficients(np.concatenate(tables, axis=1), np.nan_to_num(compiled.constant))


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Functionals in weights of joint cells.

    Parameters
    ----------
    table : ndarray of shape (n_functionals, n_measures * n_joint_cells, n_classes)
        Coefficient of the weight, in a measure, of each cell's rows that are decided as each
        class.
    constant : ndarray of shape (n_functionals,)
        Constant parts; zero of functionals that the rows do not define.
    """

    table: Float
    constant: Float

    def in_units(self, units: Float) -> Coefficients:
        """Divide each functional by its unit."""
        return Coefficients(self.table / units[:, None, None], self.constant / units)

    def functionals(self, counts: Float) -> Float:
        """Compute the functionals from weights, in the shape (..., *table.shape[1:])."""
        found = np.tensordot(counts, self.table, axes=([-2, -1], [1, 2]))
        return np.asarray(found + self.constant)

    def costs(self, cost: Float) -> Float:
        """Cost of each decision in each measure and cell, given the cost of each functional."""
        return np.asarray(np.tensordot(cost, self.table, axes=1))
