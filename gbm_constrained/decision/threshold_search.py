r"""Move the decisions of a trained model until the rules hold on rows it has not seen.

A shift is added to the scores: a number to the margin of two classes, which moves the threshold,
or one bias to each class's score. The error and every 0-1 rate are step functions of it,

.. math:: \min_v e(v) \quad \text{s.t.} \quad A \, \text{predicted}(v) \le b,

and as a shift grows along a line each row changes its decision once: sorted by where they do,
rows give all values on the line as running sums. Two classes have one line, and its best shift is
found exactly. Several classes are searched line by line, raising one class or two against the
others. Shifts that decide alike are one candidate, put midway between its neighbours' scores.
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
from gbm_constrained.decision.lines import Line, _check_scores, _functionals_needed, threshold_line
from gbm_constrained.decision.merits import ErrorAndViolations, best_of
from gbm_constrained.decision.score_counts import DecisionCounts, FunctionalsAlongLine
from gbm_constrained.problem.linear_constraints import CompiledConstraints


@dataclass(frozen=True)
class Shift:
    """What to add to the scores, and what comes of it.

    Parameters
    ----------
    value : ndarray of shape (1,) or (n_classes,)
        Added to the margin of two classes, or to the scores of several, where it sums to zero.
    error : float
        Weighted 0-1 error after it, of labelled rows that are in the objective.
    functionals : ndarray of shape (n_functionals,)
        Value of each functional after it; NaN for those with a mean loss.
    excess : float
        Largest violation of a row of constraints after it; 0 if all hold.
    loss : float
        What was made smallest where no shift is feasible: the excess, or the error plus a price of
        violations.
    uncalibrated : tuple of int, default=()
        Rows of constraints with a mean loss, which decisions do not determine, or with a rate over
        none of the rows: they were left out.
    """

    value: Float
    error: float
    functionals: Float
    excess: float
    loss: float
    uncalibrated: tuple[int, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether all rows of constraints hold that were calibrated."""
        return self.excess == 0.0


@dataclass(frozen=True)
class Curve:
    """Error and functionals of two classes as the threshold moves.

    Parameters
    ----------
    shift : ndarray of shape (T,)
        Shifts of the margin, ascending: from no row decided as the second class to all.
    n_positive : ndarray of shape (T,), intp
        Rows decided as the second class at each.
    error : ndarray of shape (T,)
        Weighted 0-1 error of labelled rows that are in the objective.
    functionals : ndarray of shape (T, n_functionals)
        Value of each functional; NaN for those with a mean loss.
    """

    shift: Float
    n_positive: Codes
    error: Float
    functionals: Float
    _compiled: CompiledConstraints = field(repr=False)
    _order: Codes = field(repr=False)
    _decisions: DecisionCounts = field(repr=False)

    def __len__(self) -> int:
        return self.shift.size

    @cached_property
    def violations(self) -> Float:
        """Left-hand minus right-hand side of each row of constraints, shape (T, m)."""
        compiled = self._compiled
        return np.array([compiled.rows_of(f) - compiled.b for f in self.functionals])

    def counts(self, i: int) -> Float:
        """Weighted fraction of each cell predicted as each class at shift i."""
        decided = np.zeros(self._order.size, dtype=np.intp)
        decided[self._order[: self.n_positive[i]]] = 1
        return self._decisions.fractions(decided)


def best_shift(
    margin: NDArray[Any],
    cells: Cells,
    compiled: CompiledConstraints,
    weight: NDArray[Any] | None = None,
    *,
    bounds: NDArray[Any] | None = None,
    price: float | None = None,
    priced: Bool | None = None,
) -> Shift:
    """Shift of smallest error under which all constraints hold on these rows.

    Where none is found that meets them all, the largest violation is made smallest, and then the
    error; or the error plus a price of violations: of the largest for two classes, and of all for
    several. Rows of constraints may be `priced` in any case, two classes only: a shift that
    violates them is taken if meeting them costs more errors than the price of the violation. No
    shift is preferred to others as good. The search is exact for two classes, where among equals
    the shift nearest to zero is taken; several classes are searched from several starts, and the
    outcome is never worse than no shift.

    Of several classes, those that no constraint tells apart keep their scores relative to each
    other, as long as that costs no errors beyond chance. The best decisions under constraints on
    rates weigh the probability of each class by what the constraints say of it (its multipliers in
    the Lagrangian), so that such classes have equal weights, and biases between them mostly fit
    noise. Where scores are no probabilities, far from where they decide alone, biases of their own
    may spare many errors: they are taken if the rules hold under both and the errors, compared row
    by row, fall by more than :data:`SURELY` standard errors.

    Rows of constraints with a mean loss, or with a rate over none of these rows, are left out and
    listed in the result; where no others are, the scores stay.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of rows that the model was not trained on.
    cells : Cells
        The rows' partition.
    compiled : CompiledConstraints
        The constraints on them.
    weight : ndarray of shape (n_samples,), default=None
        Sample weights; those of the cells' rows by default.
    bounds : ndarray of shape (m,), default=None
        Right-hand sides instead of those of the constraints, for instance tighter ones.
    price : float, default=None
        Errors that a violation is worth where not all constraints can be met. By default any
        number, to the last digit of the largest violation.
    priced : ndarray of shape (m,), bool, default=None
        Rows of constraints whose violation has its price also where they can be met; none by
        default. Only with two classes, and with a price.

    Raises
    ------
    ValueError
        If the scores or bounds do not fit the rows or constraints.
    """
    search = ShiftSearch(margin, cells, compiled, weight)
    return search.best(bounds=bounds, price=price, priced=priced)


class ShiftSearch:
    """The search for shifts of some scores, under one right-hand side after another.

    Parameters
    ----------
    margin, cells, compiled, weight
        As in :func:`best_shift`.
    """

    def __init__(
        self,
        margin: NDArray[Any],
        cells: Cells,
        compiled: CompiledConstraints,
        weight: NDArray[Any] | None = None,
    ) -> None:
        self.margin, self.compiled = _check_scores(margin, cells), compiled
        self.decisions = DecisionCounts(cells, weight)
        self.merits = ErrorAndViolations(self.decisions, compiled, compiled.b)

    def best(
        self,
        *,
        bounds: NDArray[Any] | None = None,
        price: float | None = None,
        priced: Bool | None = None,
    ) -> Shift:
        """Give the best shift, as :func:`best_shift` does.

        Parameters
        ----------
        bounds, price, priced
            As there.
        """
        margin, compiled, merits = self.margin, self.compiled, self.merits
        if bounds is not None and np.shape(bounds) != (len(compiled),):
            raise ValueError(
                f"bounds has shape {np.shape(bounds)}, but there are {len(compiled)} rows of "
                f"constraints: give one right-hand side for each."
            )
        if bounds is not None:
            merits = merits.under(np.asarray(bounds, dtype=np.float64))
        if margin.ndim == 1:
            value = np.array([self._best_threshold(merits, price, priced)])
            decided = (margin + value > 0).astype(np.intp)
        else:
            value = BiasSearch(margin, merits, price).run()
            decided = (margin + value).argmax(axis=1)
        error, excess, total = merits.of(decided)
        violation = excess if margin.ndim == 1 else total
        return Shift(
            value,
            error,
            _functionals_needed(compiled, self.decisions.fractions(decided)),
            excess,
            excess if price is None else error + price * violation,
            merits.uncalibrated,
        )

    @cached_property
    def _thresholds(self) -> Line:
        return threshold_line(self.margin)

    def _best_threshold(
        self, merits: ErrorAndViolations, price: float | None, priced: Bool | None
    ) -> float:
        """Best shift of two classes."""
        if merits.stays:
            return 0.0
        line = self._thresholds
        if priced is None or not priced.any():
            error, excess = merits.along(line, merits.worst)
            return float(line.shift[best_of(error, excess, line.shift, price)])
        assert price is not None
        firm = merits.under(np.where(priced, np.inf, merits.bounds))
        error, excess, broken = merits.along(line, merits.worst, firm.worst)
        if (broken == 0.0).any():
            return float(line.shift[best_of(error + price * excess, broken, line.shift)])
        return float(line.shift[best_of(error, excess, line.shift, price)])


def threshold_curve(
    margin: NDArray[Any],
    cells: Cells,
    compiled: CompiledConstraints,
    weight: NDArray[Any] | None = None,
    *,
    most: int | None = None,
) -> Curve:
    """Error and functionals at every threshold of two classes.

    Parameters
    ----------
    margin, cells, compiled, weight
        As in :func:`best_shift`.
    most : int, default=None
        Keep at most so many thresholds, evenly spread over the rows; no shift, and one to either
        side of all rows, are always among them.

    Raises
    ------
    ValueError
        If there are more than two classes, or `most` is less than three.
    """
    margin = _check_scores(margin, cells)
    if margin.ndim == 2:
        raise ValueError(
            f"a threshold curve is for two classes, and there are {cells.classes.size}."
        )
    if most is not None and most < 3:
        raise ValueError(f"most={most!r}: keep at least three thresholds.")
    decisions = DecisionCounts(cells, weight)
    line = threshold_line(margin)
    if most is not None and line.shift.size > most:
        line = line.thinned(most)
    measure = FunctionalsAlongLine(decisions, compiled.U)
    values = np.concatenate([block for _, block in measure.along(line)], axis=1)
    has_loss = np.diff(compiled.V.indptr) > 0
    constant = np.where(has_loss, np.nan, compiled.constant)
    functionals = values[1:].T + constant
    return Curve(line.shift, line.flipped, values[0], functionals, compiled, line.order, decisions)


def shift_for_share(margin: NDArray[Any], share: float, weight: NDArray[Any]) -> Float:
    """Shift under which a share of the rows is decided as class 1, as nearly as scores allow.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,)
        Scores; a positive one decides for class 1.
    share : float
        Of the total weight.
    weight : ndarray of shape (n_samples,)
        Weights of the rows, not all zero.

    Returns
    -------
    ndarray of shape (1,)
    """
    line = threshold_line(np.asarray(margin, dtype=np.float64))
    reached = np.concatenate([[0.0], np.cumsum(weight[line.order])]) / weight.sum()
    return line.shift[[np.abs(reached[line.flipped] - share).argmin()]]
