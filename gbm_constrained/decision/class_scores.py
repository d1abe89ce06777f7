"""Scores of several classes, whose biases change decisions along lines."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import round_weights
from gbm_constrained.decision.joint_rows import JointRows
from gbm_constrained.decision.line_tables import LineTable
from gbm_constrained.decision.lines import Line, sort_along_line
from gbm_constrained.decision.merits import ErrorAndViolations
from gbm_constrained.decision.score_counts import DecisionCounts
from gbm_constrained.decision.score_tables import ScoredKinds, ScoreTable


class ClassScores:
    """Scores of several classes where one machine holds all rows.

    Attributes
    ----------
    cells : Cells of the rows that decisions are first measured on.
    n_rows : Number of rows.
    reach : Difference of the largest and the smallest score.
    """

    def __init__(self, margin: Float, cells: Cells) -> None:
        self.scores = np.ascontiguousarray(margin.T)
        self.size = np.abs(self.scores).max(axis=0)
        self.cells, self.n_rows = cells, len(margin)

    @property
    def reach(self) -> float:
        """Difference of the largest and the smallest score."""
        return float(np.ptp(self.scores))

    def decide(self, value: Float, merits: ErrorAndViolations) -> tuple[ErrorAndViolations, Codes]:
        """Decide rows under biases, and say how decisions on these rows are measured."""
        return merits, self._decide(value)

    def errors_saved(
        self, value: Float, other: Float, merits: ErrorAndViolations
    ) -> tuple[float, float]:
        """Compute the errors that other biases make more, and the sum of their squares by row."""
        errors = merits.linear.decisions.errors
        fewer = errors(self._decide(other)) - errors(self._decide(value))
        return float(fewer.sum()), float((fewer**2).sum())

    def line(
        self, value: Float, raised: Codes, merits: ErrorAndViolations
    ) -> tuple[ErrorAndViolations, Line]:
        """Raise some classes against all others, starting from biases."""
        before, after, above = self._compare(value, raised)
        return merits, sort_along_line(-above, self.size, before, after)

    def _decide(self, value: Float) -> Codes:
        return np.asarray((self.scores + value[:, None]).argmax(axis=0))

    def _compare(self, value: Float, raised: Codes) -> tuple[Codes, Codes, Float]:
        """Find the best class that is not raised, the best that is, and how far it is above."""
        scores = self.scores + value[:, None]
        after, high = _highest(scores[raised])
        scores[raised] = -np.inf
        before, low = _highest(scores)
        return before, np.asarray(raised)[after], high - low


class ClassScoreTables(ClassScores):
    """Scores of several classes on this machine, where others hold further rows.

    A line has a table of bins by joint cell and the classes between which rows change. It is not
    refined: the next line has other bins.
    """

    def __init__(self, margin: Float, cells: Cells) -> None:
        super().__init__(margin, cells)
        self._rows, self.n_rows = JointRows(cells), cells.n_rows
        kinds = np.arange(len(self._rows.joint))
        self.cells = self._rows.stand_in(kinds, self._rows.add(self._rows.joint.codes, kinds.size))

    @property
    def reach(self) -> float:
        """Difference of the largest and the smallest score."""
        ends = np.min(self.scores, initial=np.inf), np.max(self.scores, initial=-np.inf)
        low, high = zip(*self._rows.communicator.gather(ends), strict=True)
        return float(max(high) - min(low))

    def decide(self, value: Float, merits: ErrorAndViolations) -> tuple[ErrorAndViolations, Codes]:
        """Count decisions under biases: each joint cell has a row of each class."""
        joint, k = self._rows.joint, len(self.scores)
        kinds = np.arange(len(joint) * k)
        weight = self._rows.add(joint.codes * k + self._decide(value), kinds.size)
        cells = self._rows.stand_in(kinds // k, weight)
        return merits.on(DecisionCounts(cells)), kinds % k

    def errors_saved(
        self, value: Float, other: Float, merits: ErrorAndViolations
    ) -> tuple[float, float]:
        """Compute the errors that other biases make more, and the sum of their squares by row."""
        rows, decisions, k = self._rows, merits.linear.decisions, len(self.scores)
        at = (rows.joint.codes * k + self._decide(value)) * k + self._decide(other)
        kinds = np.arange(len(rows.joint) * k * k)
        cells, one, two = kinds // (k * k), kinds // k % k, kinds % k
        labels, cost = rows.joint.labels[cells], decisions.cost[rows.joint.of_views[cells, 0]]
        fewer = cost * ((two != labels) * 1.0 - (one != labels))
        square = None
        if rows.weight is not None:
            square = round_weights(rows.weight**2, rows.communicator)
        squares = rows.communicator.sum(np.bincount(at, square, kinds.size).astype(np.float64))
        return float(fewer @ rows.add(at, kinds.size)), float(fewer**2 @ squares)

    def line(
        self, value: Float, raised: Codes, merits: ErrorAndViolations
    ) -> tuple[ErrorAndViolations, Line]:
        """Raise some classes against all others, starting from biases."""
        before, after, above = self._compare(value, raised)
        others = np.delete(np.arange(len(self.scores)), raised)
        joint, pairs = self._rows.joint, others.size * raised.size
        codes = joint.codes * pairs + np.searchsorted(others, before) * raised.size
        kinds = np.arange(len(joint) * pairs)
        of_rows = ScoredKinds(
            above,
            codes + np.searchsorted(raised, after),
            joint.labels[kinds // pairs],
            self._rows.weight,
            self.size,
            self._rows.communicator,
            self.n_rows,
        )
        classes = others[kinds // raised.size % others.size], raised[kinds % raised.size]
        table = LineTable(ScoreTable.of(of_rows), *classes)
        cells = self._rows.stand_in(table.kinds // pairs, table.weight)
        return merits.on(DecisionCounts(cells)), table.line


def scores_of_classes(margin: Float, cells: Cells) -> ClassScores:
    """Take the scores of several classes, of all rows or of those of one of many machines."""
    of_rows = ClassScores if cells.communicator.holds_all_rows else ClassScoreTables
    return of_rows(margin, cells)


def _highest(scores: Float) -> tuple[Codes, Float]:
    """Find the class of the highest score of each row, and the score."""
    if len(scores) == 1:
        return np.zeros(scores.shape[1], dtype=np.intp), scores[0]
    highest = scores.argmax(axis=0)
    return highest, scores[highest, np.arange(highest.size)]
