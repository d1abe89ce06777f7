r"""Searches for the thresholds and class biases of smallest error under constraints.

A shift is added to the scores: a number to the margin of two classes, which moves the threshold,
or one bias to each class's score. The error and every 0-1 rate are step functions of the shift:

.. math:: \min_v e(v) \quad \text{s.t.} \quad A \, \text{predicted}(v) \le b .

As a shift grows along a line, each row changes its decision once. Rows sorted by these changes
give all values on the line as running sums. Shifts that decide alike are one candidate, put midway
between its neighbours' scores. Two classes have one line, several are searched line by line.

.. math:: \min_{t_1, \dots, t_G} \sum_g e_{g t_g} \quad \text{s.t.} \quad
    \sum_g a_{g t_g} \le b

Errors :math:`e_{gt}` and rates :math:`a_{gt}` are what the rows of group g add at the candidate t.
Mixtures of candidates make this a linear programme, whose optimum is a lower bound.

- **Two groups** are searched exactly. For a candidate of the first group, each constraint whose
  rates rise or fall with the candidates of the second one leaves an interval of these. A table of
  minima over intervals then finds the best one, at a cost of :math:`T \log T` for T candidates.
  Where rates do both, as errors do, some candidates of each group are paired.
- **More groups** start at the candidates nearest to the optimum of the linear programme. Two of
  them at a time are then searched while the others keep theirs, until no pair improves.

Of each group its thresholds are listed, with what its rows add to errors and rates at each.
:mod:`gbm_constrained.decision.search` finds the best ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, cycle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import Communicator, sum_over_machines
from gbm_constrained.decision.histograms import (
    ENTRIES,
    Candidates,
    DecisionFunctionals,
    JointRows,
    ScoreHistogram,
    ThresholdCandidates,
    list_thresholds,
    sort_along_line,
)
from gbm_constrained.decision.violations import (
    ErrorAndViolations,
    PriorityLevels,
    PriorityStep,
    best_of,
    keep_least,
    measure_parts,
    restate_ratios,
)
from gbm_constrained.problem.linear_constraints import LinearConstraints, solve_linear_programme


class ClassScores:
    """Scores of several classes on this machine.

    Where others hold further rows, decisions are counted by joint cell, and a line has a table of
    bins by joint cell and the classes between which rows change. It is not refined: the next line
    has other bins.

    Attributes
    ----------
    cells : Cells of the rows that decisions are first measured on.
    n_rows : Number of rows of all machines.
    reach : Difference of the largest and the smallest score.
    """

    def __init__(self, margin: Float, cells: Cells) -> None:
        self.scores = np.ascontiguousarray(margin.T)
        self.size = np.abs(self.scores).max(axis=0)
        ends = np.min(self.scores, initial=np.inf), np.max(self.scores, initial=-np.inf)
        low, high = zip(*cells.communicator.gather(ends), strict=True)
        self.reach = float(max(high) - min(low))
        self.cells, self._own, self.n_rows, self._rows = cells, cells, cells.n_rows, None
        if not cells.communicator.holds_all_rows:
            self._rows = JointRows(cells)
            kinds = np.arange(len(self._rows.joint))
            weight = self._rows.add(self._rows.joint.codes, kinds.size)
            self.cells = self._rows.stand_in(kinds, weight)

    def decide(self, value: Float, merits: ErrorAndViolations) -> tuple[ErrorAndViolations, Codes]:
        """Decide rows under biases, and say how decisions on these rows are measured.

        Of several machines, each joint cell has a row of each class.
        """
        decided = self._decide(value)
        if self._rows is None:
            return merits, decided
        joint, k = self._rows.joint, len(self.scores)
        kinds = np.arange(len(joint) * k)
        weight = self._rows.add(joint.codes * k + decided, kinds.size)
        return merits.on(self._rows.stand_in(kinds // k, weight)), kinds % k

    def errors_saved(
        self, value: Float, other: Float, merits: ErrorAndViolations
    ) -> tuple[float, float]:
        """Compute the errors that other biases make more, and the sum of their squares by row."""
        errors = merits.linear.on(self._own).errors
        fewer = errors(self._decide(other)) - errors(self._decide(value))
        saved, squares = sum_over_machines(np.sum, [fewer, fewer**2], self._own.communicator)
        return float(saved), float(squares)

    def line(
        self, value: Float, raised: Codes, merits: ErrorAndViolations
    ) -> tuple[ErrorAndViolations, Candidates]:
        """Raise some classes against all others, starting from biases."""
        scores = self.scores + value[:, None]
        after, high = _highest(scores[raised])
        scores[raised] = -np.inf
        before, low = _highest(scores)
        above = high - low
        if self._rows is None:
            return merits, sort_along_line(-above, self.size, before, np.asarray(raised)[after])
        others = np.delete(np.arange(len(self.scores)), raised)
        joint, pairs = self._rows.joint, others.size * raised.size
        codes = joint.codes * pairs + np.searchsorted(others, before) * raised.size + after
        kinds = np.arange(len(joint) * pairs)
        table = ScoreHistogram(
            above,
            codes,
            joint.labels[kinds // pairs],
            self._rows.weight,
            self._rows.communicator,
            self.n_rows,
            self.size,
            before=others[kinds // raised.size % others.size],
            after=raised[kinds % raised.size],
        )
        return merits.on(self._rows.stand_in(table.kinds // pairs, table.weight)), table.line

    def _decide(self, value: Float) -> Codes:
        return np.asarray((self.scores + value[:, None]).argmax(axis=0))


def _highest(scores: Float) -> tuple[Codes, Float]:
    """Find the class of the highest score of each row, and the score."""
    if len(scores) == 1:
        return np.zeros(scores.shape[1], dtype=np.intp), scores[0]
    highest = scores.argmax(axis=0)
    return highest, scores[highest, np.arange(highest.size)]


PENALTY = 2.5  # Errors that a unit of violation is worth on the way to feasible biases.
RESTARTS = 4  # Starts in a row that find nothing better and end a search.
# Standard errors of the errors saved by biases between classes that no constraint distinguishes.
# Chance reaches less for probabilities, where there is nothing to gain (evidence, Decisions).
SURELY = 4.0


class _Merits(NamedTuple):
    """What biases are compared by, each of shape (..., n) for n of them, or of one."""

    merit: Any  # Error and the price of the largest priced violation.
    violations: Any  # Largest violation of each priority, that come first ahead.
    total: Any  # Sum of the violations of these, at the prices of their priorities.
    loss: Any  # Error and the price of the largest violation of all rows of constraints.

    def at(self, i: int) -> _Merits:
        """Take those at a position."""
        return _Merits(*(values[..., i] for values in self))


@dataclass(frozen=True)
class _Biases:
    """Biases, and what they are compared by."""

    value: Float
    merits: _Merits

    @property
    def is_feasible(self) -> bool:
        """Whether no constraint is violated."""
        return not self.merits.violations.any()

    def beats(self, other: _Biases) -> bool:
        """Whether the first that differs is smaller: violations, the merit, the biases' range."""
        own, others = (
            (*one.merits.violations, one.merits.merit, np.ptp(one.value)) for one in (self, other)
        )
        differs = [(a, b) for a, b in zip(own, others, strict=True) if abs(a - b) > ROUNDING]
        return bool(differs) and differs[0][0] < differs[0][1]


class BiasSearch:
    """Search for the biases of several classes, one line after the other.

    A line raises one class against all others. Classes that no constraint distinguishes are one
    here, until feasible biases are found. A line is searched exactly for the smallest error plus
    penalised violations, and from where that ends for the smallest violation and error. The best
    biases by largest violation and error are remembered on every line. Where no biases found are
    feasible, and with a `violation_penalty` (errors per unit of violation), the best by the error
    plus that are returned. Rows that `is_penalised` names need not hold: the largest violation of
    them is part of the error at that price. Of constraints with priorities, all of which are to
    hold, the best by largest violation of each in turn are returned.
    """

    def __init__(
        self,
        scores: ClassScores,
        merits: ErrorAndViolations,
        levels: PriorityLevels,
        violation_penalty: float | None = None,
        is_penalised: Bool | None = None,
    ) -> None:
        self.scores, self.merits, self.levels = scores, merits, levels
        self.violation_penalty = None if levels.are_several else violation_penalty
        self.parts = levels.split(merits)
        self.steps = [PriorityStep(part) for part in self.parts]
        has_price = self.violation_penalty is not None and is_penalised is not None
        if has_price and (priced := np.asarray(is_penalised)).any():
            # What is asked to hold comes first, and the last part has a price.
            self.parts = [merits.part(~priced), merits.part(priced)]
        self.n_classes = merits.linear.n_classes
        # Lines of a search that takes about half a second, or 60 of many rows.
        visits = scores.n_rows * (self.n_classes + merits.right.size)
        self.lines_left = int(np.clip(50_000_000 // visits, 60, 1500))
        self.best = self.penalised = self._measure(np.zeros(self.n_classes))

    def _measure(self, value: Float) -> _Biases:
        merits, decided = self.scores.decide(value, self.merits)
        values = merits.linear.measure(decided)[:, None]
        return _Biases(value, self._price(*measure_parts(self.parts, values)).at(0))

    def _price(self, error: Float, largest: Float, total: Float) -> _Merits:
        """Price violations of parts, (n_parts, n); those of a further part add to the error."""
        n, price = len(self.steps), self.violation_penalty or 0.0
        loss = error + price * largest.max(axis=0)
        merit = error + price * largest[n] if len(self.parts) > n else error
        return _Merits(merit, largest[:n], self.levels.price(total[:n]), loss)

    def run(self) -> Float:
        """Find the best biases, which sum to zero."""
        classes = self.merits.indistinct_classes
        if len(classes) > 1:
            self._search(classes)
            if self.best.is_feasible and len(classes) < self.n_classes:
                together = self.best
                self._search([(j,) for j in range(self.n_classes)])
                saved, square = self.scores.errors_saved(
                    self.best.value, together.value, self.merits
                )
                if not saved > SURELY * np.sqrt(square):
                    self.best = together
        far = self.scores.reach + 1.0
        for unit in np.eye(self.n_classes):
            always = self._measure(far * unit)  # All rows are decided as one class.
            if always.beats(self.best):
                self.best = always
        unmet = not self.best.is_feasible and self.violation_penalty is not None
        value = (self.penalised if unmet else self.best).value
        return np.asarray(value - value.mean())

    def _search(self, directions: Sequence[tuple[int, ...]]) -> None:
        """Search from the best biases, and from others near them, until it stalls."""
        rng, start, stalled = np.random.default_rng(0), self.best, 0
        while self.lines_left and stalled < RESTARTS:
            before = self.best
            self._descend(start, lambda one: one.merit + PENALTY * one.total, directions)
            self._descend(self.best, None, directions)
            if (price := self.violation_penalty) is not None and not self.best.is_feasible:
                # A sum leads further than a maximum, along one line after the other.
                self._descend(
                    self.penalised, lambda one: one.merit + price * one.total, directions
                )
                self._descend(self.penalised, lambda one: one.loss, directions)
            stalled = 0 if self.best.beats(before) else stalled + 1
            noise = np.zeros(self.n_classes)
            for raised in directions:
                noise[list(raised)] = rng.normal() * 2.0 * 0.5**stalled
            start = self._measure(self.best.value + noise)

    def _descend(
        self,
        at: _Biases,
        objective: Callable[[_Merits], Any] | None,
        directions: Sequence[tuple[int, ...]],
    ) -> None:
        """Search lines in turn until none leads further."""
        stalled = 0
        for raised in cycle(directions):
            if stalled == len(directions) or not self.lines_left:
                break
            found = self._along(at, raised, objective)
            stalled = 1 if found is not at else stalled + 1  # A searched line has no more to give.
            at = found

    def _along(
        self, at: _Biases, raised: tuple[int, ...], objective: Callable[[_Merits], Any] | None
    ) -> _Biases:
        """Find the best biases on a line; those it starts from unless others are better."""
        self.lines_left -= 1
        inside = np.array(raised)
        merits, line = self.scores.line(at.value, inside, self.merits)
        found = self._price(*merits.measure_along(line, self.parts))

        def biases(i: int) -> _Biases:
            value = at.value.copy()
            value[inside] += line.shift[i]
            return _Biases(value, found.at(i))

        kept = keep_least(self.steps, found.merit, found.violations)
        best = biases(best_of(found.merit, line.shift, kept))
        if best.beats(self.best):
            self.best = best
        least = int(found.loss.argmin())
        if found.loss[least] < self.penalised.merits.loss - ROUNDING:
            self.penalised = biases(least)
        if objective is None:
            return best if best.beats(at) else at
        values = objective(found)
        i = best_of(values, line.shift, np.ones_like(values, dtype=bool))
        return biases(i) if values[i] < objective(at.merits) - ROUNDING else at


class ThresholdCriterion:
    """The smallest error under constraints, with a penalty (errors per unit of violation) or not.

    Constraints that are penalised have the penalty also where they can be met, and the others,
    which are strict, have it where they cannot. Both are of the last priority. Steps limit the
    violations of those before, and at last those of strict constraints. Of what they leave, the
    error plus penalised violation decides, which is the error alone where all constraints hold.
    """

    def __init__(
        self,
        merits: ErrorAndViolations,
        penalty: float | None,
        is_penalised: Bool | None,
        levels: PriorityLevels,
    ) -> None:
        self.merits, self.penalty = merits, penalty or 0.0
        last = strict = levels.split(merits)[-1]
        if is_penalised is not None and is_penalised.any():
            strict = last.part(~is_penalised)
        self.steps = levels.list_steps(merits, penalty, is_penalised)
        self.steps.append(PriorityStep(strict, yields=penalty is not None))
        # What is measured: violations in each step, and those of the last priority, which are the
        # last ones in any case.
        self.parts = [step.merits for step in self.steps]
        if strict is not last:
            self.parts.append(last)

    def measure(self, line: Candidates) -> tuple[Float, Float, Float, Bool]:
        """Measure errors, violations of each part and merits, and say what the steps leave."""
        error, violations, _ = self.merits.measure_along(line, self.parts, has_total=False)
        merit = error + self.penalty * violations[-1]
        return error, violations, merit, keep_least(self.steps, error, violations)

    def find_open_bins(self, table: ScoreHistogram) -> Bool:
        """Find the bins with rows inside of which a better threshold may lie than between bins."""
        line = table.thresholds
        error, violations, merit, kept = self.measure(line)
        least = merit[kept].min()
        nearest = np.abs(line.shift[kept & (merit <= least + ROUNDING)]).min()

        # Error, violations and merit inside of each bin, bounded from below.
        between = self.merits.linear.between(table.stops)
        bounds = [measure_parts(self.parts, *ends, has_total=False)[:2] for ends in between]
        low, inside = (np.concatenate(of_bins, axis=-1) for of_bins in zip(*bounds, strict=True))
        merit = low + self.penalty * inside[-1]
        is_better = merit < least - ROUNDING
        is_better |= (merit <= least + ROUNDING) & (table.least_shift < nearest)
        found, may_be_left = np.zeros_like(is_better), np.ones_like(is_better)
        for k, (step, of_bins) in enumerate(zip(self.steps, inside, strict=False)):
            left = keep_least(self.steps[:k], error, violations)
            known = error[left], violations[k][left]
            found |= may_be_left & step.is_open(*known, (low, of_bins))
            may_be_left &= of_bins <= step.find_limit(*known)
        return np.asarray((found | (is_better & may_be_left)) & table.may_be_split)


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
    ignored: tuple[int, ...] = ()  # Rows of constraints that were left out.

    @property
    def is_feasible(self) -> bool:
        """Whether all rows of constraints hold that were not left out."""
        return self.violation == 0.0

    def excess(self, compiled: LinearConstraints, bounds: Float | None = None) -> Float:
        """Compute left-hand minus right-hand side of rows of constraints, zero for those left out.

        The right-hand sides are those of the constraints by default.
        """
        bounds = compiled.b if bounds is None else bounds
        found = compiled.rows_of(np.nan_to_num(self.functionals)) - bounds
        found[[*self.ignored]] = 0.0
        return found


class ThresholdCurve(NamedTuple):
    """Error, functionals and violations of two classes as the threshold moves."""

    shift: Float  # Shifts of the margin, ascending, (T,): from no row of class 1 to all.
    n_positive: Codes  # Number of rows decided as class 1 at each.
    error: Float  # Weighted 0-1 error of labelled rows that are in the objective.
    functionals: Float  # Value of each functional, (T, n_functionals); NaN for mean losses.
    violations: Float  # Left-hand minus right-hand side of each row of constraints, (T, m).


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
        self.cells, self.compiled, self.most_splits = cells, compiled, most_splits
        self.classes: ClassScores | None = None
        self.table: ThresholdCandidates | None = None
        if np.ndim(margin) == 1:
            self.table = list_thresholds(margin, cells)
            cells = self.table.cells
        else:
            self.classes = ClassScores(np.asarray(margin, dtype=np.float64), cells)
            cells = self.classes.cells
        self.merits = ErrorAndViolations(cells, compiled, compiled.b)
        self.levels = PriorityLevels.from_constraints(compiled, self.cells)

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
        is made smallest instead. Rows of constraints that are `is_penalised` are penalised also
        where they can be met: a shift that violates them is taken if meeting them costs more
        errors.

        Of constraints with priorities, the violations of each are made smallest in turn, and the
        above is about the last one (:mod:`gbm_constrained.decision.violations`).
        """
        compiled, merits = self.compiled, self.merits
        if bounds is not None:
            merits = merits.with_bounds(np.asarray(bounds, dtype=np.float64))
        if self.classes is None:
            criterion = ThresholdCriterion(merits, penalty, is_penalised, self.levels)
            value, merits, scores = self._find_threshold(criterion)
            decided = (scores + value > 0).astype(np.intp)
        else:
            search = BiasSearch(self.classes, merits, self.levels, penalty, is_penalised)
            value = search.run()
            merits, decided = self.classes.decide(value, merits)
        error, largest, _ = merits.measure(decided)
        shares = merits.linear.fractions(decided)
        functionals = compiled.U @ shares.ravel() + compiled.constant
        functionals[compiled.is_of_scores] = np.nan
        found = Shift(value, error, functionals, shares, largest, largest, merits.ignored)
        if penalty is None:
            return found
        penalised = largest
        if self.levels.are_several:
            excess = found.excess(compiled, merits.bounds)
            stated = restate_ratios(compiled, self.cells, excess, functionals)
            penalised = float(self.levels.price_rows(stated))
        return replace(found, loss=error + penalty * penalised)

    def _find_threshold(
        self, criterion: ThresholdCriterion
    ) -> tuple[Float, ErrorAndViolations, Float]:
        """Find the best shift of two classes, what measures decisions on entries, and scores."""
        table, merits = self.table, criterion.merits
        assert table is not None
        if merits.ignored and not merits.right.size:
            return np.zeros(1), merits, table.scores  # Decisions determine no constraint.
        n_splits = 0
        while isinstance(table, ScoreHistogram) and n_splits != self.most_splits:
            if not (bins := criterion.find_open_bins(table)).any():
                break
            self.table, n_splits = table.split(bins), n_splits + 1
            table, self.merits = self.table, self.merits.on(self.table.cells)
            criterion.merits = merits = merits.on(table.cells)
        line = table.thresholds
        _, _, merit, kept = criterion.measure(line)
        return line.shift[[best_of(merit, line.shift, kept)]], merits, table.scores


def threshold_curve(
    margin: NDArray[Any], cells: Cells, compiled: LinearConstraints, *, most: int | None = None
) -> ThresholdCurve:
    """Compute error, functionals and violations at every threshold of two classes.

    With `most`, so many thresholds at most (three or more) are kept, evenly spread over the rows.
    No shift, and a shift to either side of all rows, are always among them. Where machines hold
    different rows, the thresholds are those between the bins of a table.
    """
    table = list_thresholds(margin, cells)
    line = table.thresholds
    if most is not None and line.shift.size > most:
        line = line.thin(most)
    measure = DecisionFunctionals(table.cells, compiled.U)
    values = np.concatenate([*measure.along(line)], axis=1)
    functionals = values[1:].T + np.where(compiled.is_of_scores, np.nan, compiled.constant)
    violations = np.array([compiled.rows_of(f) - compiled.b for f in functionals])
    n_positive = line.flipped
    if table.count is not None:
        n_positive = np.concatenate([[0], np.cumsum(table.count)])[n_positive]
    return ThresholdCurve(line.shift, n_positive, values[0], functionals, violations)


def spread_thresholds(margin: Array, cells: Cells, n: int) -> Float:
    """Spread n thresholds over the quantiles of the scores of each class, and one below all.

    Where machines hold different rows, these are quantiles of the bins of a table, which divide
    the scores of each class evenly.
    """
    table = list_thresholds(margin, cells)
    grid, labels = np.linspace(0.0, 1.0, n), table.cells.labels[table.cells.codes]
    at = [np.quantile(table.scores[labels == k], grid, method="lower") for k in np.unique(labels)]
    lowest = min(cells.communicator.gather(float(np.min(margin, initial=np.inf))))
    return np.unique(np.concatenate([*at, [lowest - 1.0]]))


# Candidates of each group in the linear programme, of each of two groups whose rates neither rise
# nor fall, and thresholds of each prefix that a guarantee tests.
MOST_CANDIDATES = 512


@dataclass(frozen=True, eq=False)
class GroupCandidates:
    """Shifts of one group, and what its rows add to the error and to the constraints.

    Parameters
    ----------
    shift : ndarray of shape (T,)
        Shifts of the scores, ascending.
    error : ndarray of shape (T,)
        Errors at each shift.
    parts : ndarray of shape (n_functionals, T)
        Parts in the functionals that the constraints depend on.
    rates : ndarray of shape (m, T)
        Parts in the left-hand sides of the constraints.
    """

    shift: Float
    error: Float
    parts: Float
    rates: Float

    def take(self, at: Codes) -> GroupCandidates:
        """Take the shifts at some positions."""
        of_each = self.parts[:, at], self.rates[:, at]
        return GroupCandidates(self.shift[at], self.error[at], *of_each)

    def spread(self, most: int) -> Codes:
        """List positions of at most so many shifts, evenly spread."""
        n = self.shift.size
        return np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(np.intp))

    @cached_property
    def is_monotone(self) -> bool:
        """Whether the part in each constraint rises or falls with the shift."""
        steps = np.diff(self.rates, axis=1)
        rises, falls = (steps >= -ROUNDING).all(axis=1), (steps <= ROUNDING).all(axis=1)
        return bool((rises | falls).all())

    @cached_property
    def rises(self) -> Bool:
        """Whether each rate is at least as large at the last shift as at the first one."""
        return np.asarray(self.rates[:, -1] >= self.rates[:, 0])

    @cached_property
    def ascending(self) -> Float:
        """Rates in the order in which they rise, each at least as large as those before it."""
        ordered = np.where(self.rises[:, None], self.rates, self.rates[:, ::-1])
        return np.asarray(np.maximum.accumulate(ordered, axis=1))

    @cached_property
    def is_constant(self) -> Bool:
        """Whether each rate is the same at all shifts."""
        return np.asarray((self.rates == self.rates[:, :1]).all(axis=1))

    @cached_property
    def least(self) -> Float:
        """Smallest value of each rate."""
        return np.asarray(self.rates.min(axis=1))

    @cached_property
    def most(self) -> Float:
        """Largest value of each rate."""
        return np.asarray(self.rates.max(axis=1))

    @cached_property
    def by_error(self) -> Codes:
        """Positions by the error, and of equals by the size of the shift."""
        return np.lexsort((np.abs(self.shift), np.round(self.error / ROUNDING)))


@dataclass(frozen=True)
class GroupShifts:
    """A shift of each group, and the error and largest violation under them."""

    values: Float  # (n_groups,)
    error: float
    violation: float


@dataclass(frozen=True, eq=False)
class PerGroupSearch:
    """Search for shifts of groups, under one right-hand side of constraints after another.

    Parameters
    ----------
    tables : list of GroupCandidates
        GroupCandidates of each group that has some.
    present : list of int
        Numbers of these groups.
    common : ndarray of shape (n_groups,)
        Shifts, which groups without candidates keep.
    fixed : ndarray of shape (1 + n_kept,)
        Error of all other rows, and what they add to the constraints that are kept.
    kept : ndarray of int of shape (n_kept,)
        Rows of constraints that are searched under, in the order of the rates.
    combine : sparse array of shape (n_kept, n_functionals)
        Coefficients of the functionals in these rows.
    starts : sequence of int
        Positions that all groups start a search at, beside the optimum of mixtures.
    """

    tables: list[GroupCandidates]
    present: Sequence[int]
    common: Float
    fixed: Float
    kept: Codes
    combine: Any
    starts: Sequence[int]

    def find(self, bounds: Float) -> GroupShifts | None:
        """Find the shifts of smallest error that satisfy the constraints; None if none are found.

        Among equals the smaller shifts are taken.
        """
        right = bounds[self.kept] - self.fixed[1:]
        if len(self.tables) <= 2:
            nothing = np.zeros((self.combine.shape[1], 1)), np.zeros((right.size, 1))
            none = GroupCandidates(np.zeros(1), np.zeros(1), *nothing)
            first, second = [*self.tables, none, none][:2]
            found = best_pair(first, second, right)
            return None if found is None else self._describe(found[: len(self.tables)], right)
        starts = [self._round(right), *([end] * len(self.tables) for end in self.starts)]
        described = []
        for start in starts:
            at = [i % table.shift.size for i, table in zip(start, self.tables, strict=True)]
            described.append(self._describe(self._improve(at, right), right))
        feasible = [found for found in described if found.violation == 0.0]
        return min(feasible, key=lambda found: found.error) if feasible else None

    def _describe(self, at: Sequence[int], right: Float) -> GroupShifts:
        """Collect the shifts at some positions."""
        values, error, left = self.common.copy(), float(self.fixed[0]), -right
        for g, table, i in zip(self.present, self.tables, at, strict=True):
            values[g] = table.shift[i]
            error, left = error + table.error[i], left + table.rates[:, i]
        violation = float(left.max(initial=0.0))
        return GroupShifts(values, float(error), violation if violation > ROUNDING else 0.0)

    def _improve(self, at: list[int], right: Float) -> list[int]:
        """Search two groups at a time while the others keep their thresholds."""
        tables, at = self.tables, [*at]
        total = sum((table.rates[:, i] for table, i in zip(tables, at, strict=True)), -right)
        seen: set[tuple[int, ...]] = set()
        while tuple(at) not in seen:
            seen.add(tuple(at))
            for g, h in combinations(range(len(tables)), 2):
                own = tables[g].rates[:, at[g]] + tables[h].rates[:, at[h]]
                found = best_pair(tables[g], tables[h], own - total)
                if found is not None:
                    at[g], at[h] = found
                    total = total - own + tables[g].rates[:, at[g]] + tables[h].rates[:, at[h]]
        return at

    def _round(self, right: Float) -> list[int]:
        """Round the best mixture of thresholds to the thresholds nearest to its rates."""
        few = [table.take(table.spread(MOST_CANDIDATES)) for table in self.tables]
        sizes = [table.shift.size for table in few]
        errors, n = np.concatenate([table.error for table in few]), self.combine.shape[1]
        allowed, at = right.copy(), [0] * len(few)
        is_bounded = np.isfinite(right)
        # Functionals are variables of their own, so that comparisons of many groups stay sparse.
        functionals = sparse.csr_array(np.concatenate([table.parts for table in few], axis=1))
        ones: Any = sparse.block_diag([np.ones((1, size)) for size in sizes])
        equal: Any = sparse.block_array([[functionals, -sparse.eye_array(n)], [ones, None]])
        none: Any = sparse.csr_array((int(is_bounded.sum()), errors.size))
        rows = sparse.hstack([none, self.combine[is_bounded]], format="csc")
        free: Any = np.repeat([[0.0, np.inf], [-np.inf, np.inf]], [errors.size, n], axis=0)
        for _ in self.tables:
            found = solve_linear_programme(
                np.append(errors, np.zeros(n)), rows, allowed[is_bounded], free,
                A_eq=equal.tocsc(), b_eq=np.repeat([0.0, 1.0], [n, len(few)]),
            )  # fmt: skip
            if found.x is None:
                return at
            parts = np.split(found.x[: errors.size], np.cumsum(sizes)[:-1])
            wanted = [table.rates @ part for table, part in zip(few, parts, strict=True)]
            at = [  # The thresholds whose rates are nearest to wanted ones.
                int(np.abs(table.rates - own[:, None]).sum(axis=0).argmin())
                for table, own in zip(self.tables, wanted, strict=True)
            ]
            left = sum(table.rates[:, i] for table, i in zip(self.tables, at, strict=True))
            excess = np.maximum(left - right, 0.0)
            if excess.max(initial=0.0) <= ROUNDING:
                return at
            allowed = allowed - excess
        return at


def best_pair(
    first: GroupCandidates, second: GroupCandidates, right: Float
) -> tuple[int, int] | None:
    """Find the best thresholds of two groups.

    Parameters
    ----------
    first, second : GroupCandidates
        Thresholds of the groups.
    right : ndarray of shape (m,)
        What the rates of both may add up to.

    Returns
    -------
    tuple of int or None
        Positions of the thresholds of the smallest error, with the smallest shifts among equals;
        None if no pair satisfies the constraints.
    """
    if not second.is_monotone and first.is_monotone:
        swapped = best_pair(second, first, right)
        return None if swapped is None else (swapped[1], swapped[0])
    if second.is_monotone:
        partner, is_met = _best_partners(first, second, right)
        rows = np.flatnonzero(is_met)
        columns = partner[rows]
    else:
        some, others = first.spread(MOST_CANDIDATES), second.spread(MOST_CANDIDATES)
        is_allowed = np.ones((some.size, others.size), dtype=bool)
        for a, c, most in zip(first.rates, second.rates, right, strict=True):
            is_allowed &= a[some][:, None] + c[others] <= most + ROUNDING
        at = np.nonzero(is_allowed)
        rows, columns = some[at[0]], others[at[1]]
    if not rows.size:
        return None
    error = first.error[rows] + second.error[columns]
    size = np.abs(first.shift[rows]) + np.abs(second.shift[columns])
    best = int(np.where(error <= error.min() + ROUNDING, size, np.inf).argmin())
    return int(rows[best]), int(columns[best])


def _best_partners(
    first: GroupCandidates, second: GroupCandidates, right: Float
) -> tuple[Codes, Array]:
    """Find the best threshold of the second group for each of the first, if there is one."""
    n = second.shift.size
    low, high = np.zeros(first.shift.size, np.intp), np.full(first.shift.size, n, np.intp)
    if (first.least + second.least > right + ROUNDING).any():
        return low, np.zeros(first.shift.size, dtype=bool)
    # Of many groups most constraints are about neither of the two, or about one of them.
    for i in np.flatnonzero(first.most + second.most > right):
        c, a = second.ascending[i], first.rates[i]
        left = right[i] - (a[:1] if first.is_constant[i] else a) + ROUNDING
        if second.is_constant[i]:
            reached = np.where(left < c[0], 0, n)
        else:
            reached = np.searchsorted(c, left, side="right")
        if second.rises[i]:
            high = np.minimum(high, reached)
        else:
            low = np.maximum(low, n - reached)
    is_met = low < high
    order = second.by_error
    rank = np.empty(n, dtype=np.intp)
    rank[order] = np.arange(n)
    partner = np.zeros(first.shift.size, np.intp)
    partner[is_met] = order[_minima(rank, low[is_met], high[is_met])]
    return partner, is_met


def _minima(values: Codes, low: Codes, high: Codes) -> Codes:
    """Compute the minimum over each of some intervals, by minima over powers of two."""
    levels, width = [values], 1
    while 2 * width <= values.size:
        before = levels[-1]
        following = np.append(before[width:], np.full(width, values.size))
        levels.append(np.minimum(before, following))
        width *= 2
    table = np.array(levels)
    k = np.frexp(high - low)[1] - 1
    return np.asarray(np.minimum(table[k, low], table[k, high - (1 << k)]))


def search_group_thresholds(
    margin: Array, cells: Cells, compiled: LinearConstraints, groups: Codes, common: Float
) -> PerGroupSearch:
    """Prepare a search for thresholds of groups, as shifts of their scores.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,)
        Scores of two classes.
    cells : Cells
        Partition of the rows.
    compiled : LinearConstraints
        Constraints on these rows. Rows of mean losses, and of rates without rows, are left out.
    groups : ndarray of int of shape (n_samples,)
        Group of each row; -1 for rows of no group, which have the common shift.
    common : ndarray of shape (n_groups,)
        The common shift, which groups without rows keep.
    """
    kept = np.flatnonzero(compiled.is_known & ~compiled.has_scores)
    margin = np.asarray(margin, dtype=np.float64)
    combine = compiled.R[kept]
    used = np.unique(combine.indices)
    combine, measure = combine[:, used], DecisionFunctionals(cells, compiled.U[used])
    present = [g for g in range(common.size) if (groups == g).any()]
    most = max(ENTRIES // ((1 + kept.size) * max(len(present), 1)), MOST_CANDIDATES)
    tables = []
    for g in present:
        rows = np.flatnonzero(groups == g)
        part = cells.take(rows)
        line = ThresholdCandidates(margin[rows], part).thresholds
        if line.shift.size > most:
            line = line.thin(most)
        values = np.concatenate([*measure.on(part).along(line)], axis=1)
        parts = values[1:]
        tables.append(GroupCandidates(line.shift, values[0], parts, combine @ parts))
    others = np.flatnonzero(groups < 0)
    decided = (margin[others] + (common[0] if common.size else 0.0) > 0).astype(np.intp)
    fixed = measure.on(cells.take(others)).measure(decided)
    fixed = np.append(fixed[0], combine @ fixed[1:])
    # Of many groups, all rows of one class are a start as well.
    return PerGroupSearch(tables, present, common, fixed, kept, combine, starts=(0, -1))


def match_selection_rate(
    margin: Array,
    share: float,
    weight: Array,
    communicator: Communicator = Communicator(),  # noqa: B008 - has no state
) -> Float:
    """Find the shift under which about a given share of the weight is decided as class 1.

    Bins of the scores are split where the threshold may lie. A sort of all scores, which would
    find the same shift, takes ten times their memory, and needs the rows of all machines. There
    the weights have to add up without rounding.
    """
    kinds, n_rows = np.zeros(margin.size, dtype=np.intp), sum(communicator.gather(margin.size))
    most = 1e30  # Stands for infinite scores, which bins cannot be split between.
    scores = np.nan_to_num(margin, posinf=most, neginf=-most)
    table = ScoreHistogram(scores, kinds, np.zeros(1, np.intp), weight, communicator, n_rows)
    while True:
        line, reached = table.thresholds, np.concatenate([[0.0], np.cumsum(table.weight)])
        missed = reached / reached[-1] - share
        chosen = int(np.abs(missed[line.flipped]).argmin())
        least, shift = abs(missed[line.flipped[chosen]]), line.shift[chosen]
        # The share grows with the shift: inside of a bin it is between those at its ends.
        first, last = missed[table.stops.flipped[:-1]], missed[table.stops.flipped[1:]]
        nearest = np.maximum(np.maximum(first, -last), 0.0)
        is_before = -table.high[table.bins] < shift
        is_better = (nearest < least) | ((nearest == least) & is_before)
        if not (is_open := is_better & table.may_be_split).any():
            return np.array([shift if abs(shift) < most else np.copysign(np.inf, shift)])
        table = table.split(is_open)
