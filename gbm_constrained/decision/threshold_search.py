r"""Search for the shift of scores with the smallest error that satisfies the constraints.

A shift is added to the scores: a number to the margin of two classes, which moves the threshold,
or one bias to each class's score. The error and every 0-1 rate are step functions of the shift:

.. math:: \min_v e(v) \quad \text{s.t.} \quad A \, \text{predicted}(v) \le b .

As a shift grows along a line, each row changes its decision once. Rows sorted by these changes
give all values on the line as running sums. Shifts that decide alike are one candidate, put midway
between its neighbours' scores. Two classes have one line, several are searched line by line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.bias_search import BiasSearch
from gbm_constrained.decision.lines import Line, check_margin, threshold_line
from gbm_constrained.decision.merits import ErrorAndViolations, best_of
from gbm_constrained.decision.score_counts import DecisionCounts, FunctionalsAlongLine
from gbm_constrained.problem.linear_constraints import LinearConstraints


@dataclass(frozen=True)
class Shift:
    """A shift of the scores, with the error and the violations under it."""

    value: Float  # Shift of the margin (1,), or of the scores of each class, which sums to zero.
    error: float  # Weighted 0-1 error of labelled rows that are in the objective.
    functionals: Float  # Value of each functional; NaN for those with a mean loss.
    violation: float  # Largest violation of a row of constraints; 0 if all hold.
    loss: float  # Violation, or error plus penalised violations: smallest if none is feasible.
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
    """

    def __init__(self, margin: NDArray[Any], cells: Cells, compiled: LinearConstraints) -> None:
        self.margin, self.compiled = check_margin(margin, cells), compiled
        self.decisions = DecisionCounts(cells)
        self.merits = ErrorAndViolations(self.decisions, compiled, compiled.b)

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
        """
        margin, compiled, merits = self.margin, self.compiled, self.merits
        if bounds is not None and np.shape(bounds) != (len(compiled),):
            raise ValueError(
                f"bounds has shape {np.shape(bounds)}, but there are {len(compiled)} rows of "
                f"constraints: give one right-hand side for each."
            )
        if bounds is not None:
            merits = merits.with_bounds(np.asarray(bounds, dtype=np.float64))
        if margin.ndim == 1:
            value = np.array([self._best_threshold(merits, penalty, is_penalised)])
            decided = (margin + value > 0).astype(np.intp)
        else:
            value = BiasSearch(margin, merits, penalty).run()
            decided = (margin + value).argmax(axis=1)
        error, largest, total = merits.measure(decided)
        functionals = compiled.U @ self.decisions.fractions(decided).ravel() + compiled.constant
        functionals[compiled.is_of_scores] = np.nan
        penalised = largest if margin.ndim == 1 else total
        loss = largest if penalty is None else error + penalty * penalised
        return Shift(value, error, functionals, largest, loss, merits.uncalibrated)

    @cached_property
    def _thresholds(self) -> Line:
        return threshold_line(self.margin)

    def _best_threshold(
        self, merits: ErrorAndViolations, penalty: float | None, is_penalised: Bool | None
    ) -> float:
        """Find the best shift of two classes."""
        if merits.uncalibrated and not merits.right.size:
            return 0.0  # Decisions on these rows determine no constraint.
        line = self._thresholds
        if is_penalised is None or not is_penalised.any():
            error, violation = merits.measure_along(line, merits.largest_violation)
            return float(line.shift[best_of(error, violation, line.shift, penalty)])
        assert penalty is not None
        strict = merits.with_bounds(np.where(is_penalised, np.inf, merits.bounds))
        error, violation, broken = merits.measure_along(
            line, merits.largest_violation, strict.largest_violation
        )
        if (broken == 0.0).any():
            return float(line.shift[best_of(error + penalty * violation, broken, line.shift)])
        return float(line.shift[best_of(error, violation, line.shift, penalty)])


def threshold_curve(
    margin: NDArray[Any],
    cells: Cells,
    compiled: LinearConstraints,
    *,
    most: int | None = None,
) -> Curve:
    """Compute the error and functionals at every threshold of two classes.

    With `most`, so many thresholds at most are kept, evenly spread over the rows. No shift, and a
    shift to either side of all rows, are always among them.
    """
    margin = check_margin(margin, cells)
    if margin.ndim == 2:
        raise ValueError(
            f"a threshold curve is for two classes, and there are {cells.classes.size}."
        )
    if most is not None and most < 3:
        raise ValueError(f"most={most!r}: keep at least three thresholds.")
    line = threshold_line(margin)
    if most is not None and line.shift.size > most:
        line = line.thin(most)
    measure = FunctionalsAlongLine(DecisionCounts(cells), compiled.U)
    values = np.concatenate([block for _, block in measure.along(line)], axis=1)
    constant = np.where(compiled.is_of_scores, np.nan, compiled.constant)
    return Curve(line.shift, line.flipped, values[0], values[1:].T + constant, compiled)
