"""Search for the class biases with the smallest error that satisfy constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, cycle

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.class_scores import ClassScores
from gbm_constrained.decision.merits import ErrorAndViolations
from gbm_constrained.decision.priorities import PriorityLevels, Step, best_by_priority

# Errors that a unit of violation is worth, phase by phase: small ones keep good trade-offs.
PENALTIES = (0.1, 0.5, 2.5, 12.0, 60.0)
# Lines of a search, times rows, times classes and rows of constraints: about half a second.
VISITS = 50_000_000
FEWEST_LINES, MOST_LINES = 60, 1500  # Lines of a search, whatever the number of rows.
RESTARTS = 4  # Starts in a row that find nothing better and end a search.
PAIRS_UP_TO = 8  # Classes up to which two are raised together: there are 28 pairs of eight.
# Standard errors of the errors saved by biases between classes that no constraint distinguishes.
# Chance reaches less for probabilities, where there is nothing to gain (evidence, Decisions).
SURELY = 4.0


@dataclass(frozen=True)
class _Biases:
    """Biases, with the error and the violations under them."""

    value: Float
    error: float
    violations: tuple[float, ...]  # Largest violation of each priority, that come first ahead.
    total: float  # Sum of all violations, at the prices of their priorities.

    @property
    def is_feasible(self) -> bool:
        """Whether no constraint is violated."""
        return not any(self.violations)

    def beats(self, other: _Biases) -> bool:
        """Whether the first violation that differs is smaller, or none does and the error is."""
        for own, others in zip(self.violations, other.violations, strict=True):
            if abs(own - others) > ROUNDING:
                return own < others
        return self.error < other.error - ROUNDING


class BiasSearch:
    """Search for the biases of several classes, one line after the other.

    A line raises one class, or two by the same amount, against all others. Classes that no
    constraint distinguishes are one here, until feasible biases are found. A line is searched
    exactly for the smallest error plus penalised violations. The penalty grows: small ones lead
    along good trade-offs to the feasible biases, where the last phase lowers the error. The best
    biases by largest violation and error are remembered on every line. Where no biases found are
    feasible, and with a `violation_penalty` (errors per unit of violation), the best by the error
    plus that are returned. Of constraints with priorities, the best by largest violation of each
    in turn are returned.
    """

    def __init__(
        self,
        scores: ClassScores,
        merits: ErrorAndViolations,
        levels: PriorityLevels,
        violation_penalty: float | None = None,
    ) -> None:
        self.scores, self.merits, self.levels = scores, merits, levels
        self.parts = levels.split(merits)
        self.steps = [Step(part) for part in self.parts[:-1]]
        self.violation_penalty = None if levels.are_several else violation_penalty
        self.n_classes = merits.linear.decisions.n_classes
        visits = scores.n_rows * (self.n_classes + merits.right.size)
        self.lines_left = int(np.clip(VISITS // visits, FEWEST_LINES, MOST_LINES))
        self.best = self.penalised = self._measure(np.zeros(self.n_classes))

    def _measure(self, value: Float) -> _Biases:
        merits, decided = self.scores.decide(value, self.merits)
        values = merits.linear.measure(decided)[:, None]
        total, *violations = self._violations(values)[:, 0].tolist()
        return _Biases(value, float(values[0, 0]), tuple(violations), total)

    def _violations(self, values: Float) -> Float:
        """Compute the sum of violations at their prices, and the largest of each priority.

        The values are those of the linear map, and the result is (1 + n_priorities, candidates).
        """
        largest, total = zip(
            *(part.largest_and_total_violation(values) for part in self.parts), strict=True
        )
        return np.array([self.levels.price(total), *largest])

    def run(self) -> Float:
        """Find the best biases, which sum to zero."""
        classes = self.merits.indistinct_classes
        if len(classes) > 1:
            self._search(classes)
            if self.best.is_feasible and len(classes) < self.n_classes:
                together = self.best
                self._search([(j,) for j in range(self.n_classes)])
                if not self._is_surely_better(together):
                    self.best = together
        far = self.scores.reach + 1.0
        for unit in np.eye(self.n_classes):
            always = self._measure(far * unit)  # All rows are decided as one class.
            if always.beats(self.best):
                self.best = always
        unmet = not self.best.is_feasible and self.violation_penalty is not None
        value = (self.penalised if unmet else self.best).value
        return np.asarray(value - value.mean())

    def _is_surely_better(self, other: _Biases) -> bool:
        """Whether the best biases make fewer errors than others, beyond chance."""
        saved, square = self.scores.errors_saved(self.best.value, other.value, self.merits)
        return bool(saved > SURELY * np.sqrt(square))

    def _search(self, single: Sequence[tuple[int, ...]]) -> None:
        """Search from the best biases, and from others near them, until it stalls."""
        every = [*single]
        if 4 <= len(single) <= PAIRS_UP_TO:  # To raise two of three is to lower the third.
            every += [(*one, *other) for one, other in combinations(single, 2)]
        rng = np.random.default_rng(0)
        start, stalled = self.best, 0
        while self.lines_left and stalled < RESTARTS:
            before = self.best
            for penalty in PENALTIES:
                start = self._descend(start, penalty, single if self.best.is_feasible else every)
            self._descend(self.best, None, every)
            if self.violation_penalty is not None and not self.best.is_feasible:
                self._descend(self.penalised, self.violation_penalty, every)
            stalled = 0 if self.best.beats(before) else stalled + 1
            noise = np.zeros(self.n_classes)
            for group in single:
                noise[list(group)] = rng.normal() * 2.0 * 0.5**stalled
            start = self._measure(self.best.value + noise)

    def _descend(
        self, at: _Biases, penalty: float | None, directions: Sequence[tuple[int, ...]]
    ) -> _Biases:
        """Search lines in turn until none leads further."""
        stalled = 0
        for raised in cycle(directions):
            if stalled == len(directions) or not self.lines_left:
                break
            found = self._along(at, raised, penalty)
            stalled = 1 if found is not at else stalled + 1  # A searched line has no more to give.
            at = found
        return at

    def _along(self, at: _Biases, raised: tuple[int, ...], penalty: float | None) -> _Biases:
        """Find the best biases on a line; those it starts from unless others are better."""
        self.lines_left -= 1
        inside = np.array(raised)
        merits, line = self.scores.line(at.value, inside, self.merits)
        error, (total, *violations) = merits.measure_along(line, self._violations)

        def biases(i: int) -> _Biases:
            value = at.value.copy()
            value[inside] += line.shift[i]
            found = tuple(float(violation[i]) for violation in violations)
            return _Biases(value, float(error[i]), found, float(total[i]))

        best = biases(best_by_priority(self.steps, error, violations, line.shift))
        if best.beats(self.best):
            self.best = best
        if self.violation_penalty is not None:
            known = self.penalised
            found = biases(int((error + self.violation_penalty * total).argmin()))
            gained = known.error - found.error
            gained += self.violation_penalty * (known.total - found.total)
            self.penalised = found if gained > ROUNDING else known
        if penalty is None:
            return best if best.beats(at) else at
        merit = error + penalty * total
        i = int(merit.argmin())
        return biases(i) if merit[i] < at.error + penalty * at.total - ROUNDING else at
