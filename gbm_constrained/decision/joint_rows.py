"""Rows that stand for many: all rows of one joint cell whose scores are in one bin.

Where machines hold different rows, none of them can sort the scores of all. They add tables of
weights instead. An entry of such a table becomes a row with that weight, and a search runs on
these rows as it does on real ones.
"""

from __future__ import annotations

import copy

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.cells import MOST_CELLS, Cells, View
from gbm_constrained.data.communicator import SingleMachine
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.joint_cells import JointCells


class JointRows:
    """The rows of this machine by the joint cells that occur on any of the machines.

    Attributes
    ----------
    joint : JointCells
        The joint cells, and that of each row of this machine.
    weight : ndarray of shape (n_samples,) or None
        Weights of the rows of this machine, which add up without rounding; ones where None.
    communicator : Communicator
        Adds tables over machines.
    """

    def __init__(self, cells: Cells) -> None:
        self._cells, self.communicator = cells, cells.communicator
        self.joint, self.weight = _divide_jointly(cells), cells.rows.weight

    def add(self, codes: Codes, n_codes: int) -> Float:
        """Add up the weights of the rows of all machines by a code of each row."""
        weight = np.bincount(codes, self.weight, n_codes)
        return self.communicator.sum(weight.astype(np.float64))

    def stand_in(self, joint_cells: Codes, weight: Float) -> Cells:
        """Make the cells of rows that stand for others, given the joint cell of each.

        Counts and weights of cells stay those of the rows that they stand for.
        """
        cells = copy.copy(self._cells)
        codes = self.joint.of_views[joint_cells]
        cells.views = tuple(
            View(codes[:, v] - view.cells.start, view.cells, view.levels)
            for v, view in enumerate(cells.views)
        )
        cells.rows = Rows(self.joint.labels[joint_cells], cells.classes, weight)
        cells.communicator = SingleMachine()
        cells.reduce_sum = cells.communicator.sum
        return cells


def _divide_jointly(cells: Cells) -> JointCells:
    """Divide the rows by all views, into the joint cells that occur on any of the machines."""
    codes, of_views = np.zeros(len(cells.rows), dtype=np.intp), np.zeros((1, 0), dtype=np.intp)
    for view in cells.views:
        size = len(of_views) * len(view)
        occurring, codes = _number(codes * len(view) + view.small_codes, size)
        own = occurring % len(view) + view.cells.start
        of_views = np.column_stack([of_views[occurring // len(view)], own])
    found = cells.communicator.gather(of_views)
    united, position = np.unique(np.concatenate(found), axis=0, return_inverse=True)
    start = sum(map(len, found[: cells.communicator.rank]))
    codes = np.ravel(position)[start : start + len(of_views)][codes]
    return JointCells(codes, united, cells.labels[united[:, 0]], cells.classes.size)


def _number(codes: Codes, size: int) -> tuple[Codes, Codes]:
    """List the codes that occur, of so many, and find the position of each code among them."""
    if size <= MOST_CELLS:  # A table of all codes is faster than a sort.
        has_rows = np.bincount(codes, minlength=size) > 0
        return np.flatnonzero(has_rows), (np.cumsum(has_rows) - 1)[codes]
    occurring, position = np.unique(codes, return_inverse=True)
    return occurring, np.asarray(np.ravel(position), dtype=np.intp)
