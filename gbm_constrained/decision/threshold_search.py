r"""Search for the shift of scores with the smallest error that satisfies the constraints.

A shift is added to the scores: a number to the margin of two classes, which moves the threshold,
or one bias to each class's score. The error and every 0-1 rate are step functions of the shift:

.. math:: \min_v e(v) \quad \text{s.t.} \quad A \, \text{predicted}(v) \le b .

As a shift grows along a line, each row changes its decision once. Rows sorted by these changes
give all values on the line as running sums. Shifts that decide alike are one candidate, put midway
between its neighbours' scores. Two classes have one line, several are searched line by line.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.bias_search import BiasSearch
from gbm_constrained.decision.class_scores import ClassScores, scores_of_classes
from gbm_constrained.decision.line_tables import MarginTable
from gbm_constrained.decision.lines import Line, check_margin, threshold_line
from gbm_constrained.decision.merits import ErrorAndViolations
from gbm_constrained.decision.priorities import PriorityLevels
from gbm_constrained.decision.score_counts import DecisionCounts, FunctionalsAlongLine
from gbm_constrained.decision.threshold_aim import ThresholdAim
from gbm_constrained.problem.linear_constraints import LinearConstraints


@dataclass(frozen=True)
class Shift:
    """A shift of the scores, with the error and the violations under it."""

    value: Float  # Shift of the margin (1,), or of the scores of each class, which sums to zero.
    error: float  # Weighted 0-1 error of labelled rows that are in the objective.
    functionals: Float  # Value of each functional; NaN for those with a mean loss.
    shares: Float  # Share of each cell that is decided as each class, (n_cells, n_classes).
    violation: float  # Largest violation of a row of constraints by its weight; 0 if all hold.
    # Violation, or error plus penalised violations: smallest if none is feasible. Each priority
    # has its price (decision.priorities).
    loss: float
    uncalibrated: tuple[int, ...] = ()  # Rows of constraints that were left out.

    @property
    def is_feasible(self) -> bool:
        """Whether all rows of constraints hold that were not left out."""
        return self.violation == 0.0


@dataclass(frozen=True)
class Curve:
    """Error and functionals of two classes as the threshold moves."""

    shift: Float  # Shifts of the margin, ascending, (T,): from no row of class 1 to all.
    n_positive: Codes  # Number of rows decided as class 1 at each.
    error: Float  # Weighted 0-1 error of labelled rows that are in the objective.
    functionals: Float  # Value of each functional, (T, n_functionals); NaN for mean losses.
    _compiled: LinearConstraints = field(repr=False)

    @cached_property
    def violations(self) -> Float:
        """Left-hand minus right-hand side of each row of constraints, shape (T, m)."""
        compiled = self._compiled
        return np.array([compiled.rows_of(f) - compiled.b for f in self.functionals])


class ShiftSearch:
    """Search for shifts of given scores, under one right-hand side of constraints after another.

    The search is exact for two classes, where among equals the shift nearest to zero is taken.
    Several classes are searched from several starts, and the outcome is never worse than no shift.

    Classes that no constraint distinguishes keep their scores relative to each other, as long as
    that costs no errors beyond chance. The best decisions under constraints on rates weigh the
    probability of each class by its multipliers in the Lagrangian. Such classes have equal
    weights, and biases between them mostly fit noise. Where scores are no probabilities, biases
    between them may spare many errors: they are taken if the constraints hold under both and the
    errors, compared row by row, fall by more than :data:`SURELY` standard errors.

    Rows of constraints with a mean loss, or with a rate over none of the rows, are left out and
    listed in the result. Where no other rows are left, no shift is applied.

    Where machines hold different rows, all of them find the same shift. That of two classes is the
    one that a sort of all scores finds, unless bins of a table are split at most `most_splits`
    times: then it lies between two of them, and may not be the best one.
    """

    def __init__(
        self,
        margin: NDArray[Any],
        cells: Cells,
        compiled: LinearConstraints,
        *,
        most_splits: int | None = None,
    ) -> None:
        self.margin, self.cells = check_margin(margin, cells), cells
        self.compiled, self.most_splits = compiled, most_splits
        self.classes: ClassScores | None = None
        self.table: MarginTable | None = None
        if self.margin.ndim == 2:
            self.classes = scores_of_classes(self.margin, cells)
            cells = self.classes.cells
        elif not cells.communicator.holds_all_rows:
            self.table = MarginTable.of(margin, cells)
            self.margin, cells = self.table.scores, self.table.cells
        self.merits = ErrorAndViolations(DecisionCounts(cells), compiled, compiled.b)
        self.levels = PriorityLevels.of(compiled, self.cells)

    def find(
        self,
        *,
        bounds: NDArray[Any] | None = None,
        penalty: float | None = None,
        is_penalised: Bool | None = None,
    ) -> Shift:
        """Find the shift with the smallest error that satisfies the constraints.

        Where no shift satisfies them all, the largest violation is made smallest, and then the
        error. With a penalty (errors per unit of violation), the error plus penalised violations
        is made smallest instead: the largest violation of two classes, the sum of all violations
        of several. Rows of constraints that are `is_penalised` are penalised also where they can
        be met: a shift of two classes that violates them is taken if meeting them costs more
        errors.

        Of constraints with priorities, the violations of each are made smallest in turn, and the
        above is about the last one (:mod:`gbm_constrained.decision.priorities`).
        """
        compiled, merits = self.compiled, self.merits
        if bounds is not None and np.shape(bounds) != (len(compiled),):
            raise ValueError(
                f"bounds has shape {np.shape(bounds)}, but there are {len(compiled)} rows of "
                f"constraints: give one right-hand side for each."
            )
        if bounds is not None:
            merits = merits.with_bounds(np.asarray(bounds, dtype=np.float64))
        if self.classes is None:
            aim = ThresholdAim.of(merits, penalty, is_penalised, self.levels)
            value, merits = self._find_threshold(aim)
            decided = (self.margin + value > 0).astype(np.intp)
        else:
            value = BiasSearch(self.classes, merits, self.levels, penalty).run()
            merits, decided = self.classes.decide(value, merits)
        error, largest, total = merits.measure(decided)
        shares = merits.linear.decisions.fractions(decided)
        functionals = compiled.U @ shares.ravel() + compiled.constant
        functionals[compiled.is_of_scores] = np.nan
        penalised = largest if self.classes is None else total
        if self.levels.are_several:
            violations = compiled.rows_of(np.nan_to_num(functionals)) - merits.bounds
            violations[[*merits.uncalibrated]] = 0.0
            penalised = float(self.levels.price_rows(violations))
        loss = largest if penalty is None else error + penalty * penalised
        return Shift(value, error, functionals, shares, largest, loss, merits.uncalibrated)

    @cached_property
    def _thresholds(self) -> Line:
        return threshold_line(self.margin)

    def _find_threshold(self, aim: ThresholdAim) -> tuple[Float, ErrorAndViolations]:
        """Find the best shift of two classes, and what measures decisions about the rows."""
        if aim.merits.uncalibrated and not aim.merits.right.size:
            return np.zeros(1), aim.merits  # Decisions on these rows determine no constraint.
        if self.table is None:
            return np.array([aim.choose(self._thresholds)]), aim.merits
        most = self.most_splits
        for _ in itertools.count() if most is None else range(most):
            if not (bins := aim.find_open_bins(self.table)).any():
                break
            self.table = self.table.split(bins)
            self.margin, decisions = self.table.scores, DecisionCounts(self.table.cells)
            self.merits, aim = self.merits.on(decisions), aim.on(decisions)
        return np.array([aim.choose(self.table.thresholds)]), aim.merits


def threshold_curve(
    margin: NDArray[Any],
    cells: Cells,
    compiled: LinearConstraints,
    *,
    most: int | None = None,
) -> Curve:
    """Compute the error and functionals at every threshold of two classes.

    With `most`, so many thresholds at most are kept, evenly spread over the rows. No shift, and a
    shift to either side of all rows, are always among them. Where machines hold different rows,
    the thresholds are those between the bins of a table.
    """
    margin = check_margin(margin, cells)
    if margin.ndim == 2:
        raise ValueError(
            f"a threshold curve is for two classes, and there are {cells.classes.size}."
        )
    if most is not None and most < 3:
        raise ValueError(f"most={most!r}: keep at least three thresholds.")
    table = None
    if cells.communicator.holds_all_rows:
        line = threshold_line(margin)
    else:
        table = MarginTable.of(margin, cells)
        line, cells = table.thresholds, table.cells
    if most is not None and line.shift.size > most:
        line = line.thin(most)
    measure = FunctionalsAlongLine(DecisionCounts(cells), compiled.U)
    values = np.concatenate([block for _, block in measure.along(line)], axis=1)
    constant = np.where(compiled.is_of_scores, np.nan, compiled.constant)
    n_positive = line.flipped if table is None else table.count_rows(line)
    return Curve(line.shift, n_positive, values[0], values[1:].T + constant, compiled)
