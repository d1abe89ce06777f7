"""Search for the smallest set of constraints that no decision meets together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
from scipy.stats import norm

from gbm_constrained._typing import Bool, Float
from gbm_constrained.decision.evaluation_set import ScoredRows
from gbm_constrained.decision.group_thresholds import N_CANDIDATES
from gbm_constrained.decision.refit_transfer import SIGNIFICANCE
from gbm_constrained.decision.rule import Choice, shift_scores
from gbm_constrained.decision.standard_errors import standard_errors
from gbm_constrained.decision.threshold_grid import spread_thresholds
from gbm_constrained.decision.threshold_search import ShiftSearch
from gbm_constrained.decision.violation_bound import ViolationBound
from gbm_constrained.evaluation.sample_size import MIN_ROWS, rows_of_quotient
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.p_values import find_violated_rows

MAX_COVER_STEPS = 5000  # Steps of the search for the smallest conflict.
SEARCHED_ROWS = 30_000_000  # Approximate number of rows times threshold searches: some seconds.
N_BIAS_SEARCHES = 4  # Searches for the biases of several classes, half a second each.


def is_measured(compiled: LinearConstraints, counts: CellCounts) -> Bool:
    """Find the constraints that decisions put enough rows into, if they are quotients."""
    measured = np.ones((*counts.count.shape[:-2], len(compiled.constraints)), dtype=bool)
    for j, constraint in enumerate(compiled.constraints):
        if constraint.expression.is_quotient:
            measured[..., j] = rows_of_quotient(compiled, j, counts) >= MIN_ROWS
    return measured


class DecisionPool:
    """Decisions that a model can make, and the constraints that each meets up to sampling error.

    `choice` is the least violating decision, which is the first of the pool.

    Attributes
    ----------
    is_proved : bool
        Whether no decision meets the constraints in conflict. Otherwise none was found.
    """

    def __init__(self, scored: ScoredRows, candidates: Sequence[int], choice: Choice) -> None:
        self.rows, self.margins = scored.rows, scored.margins
        rows = scored.rows
        compiled = rows.compiled
        self.n_constraints = len(compiled.constraints)
        self.has_several_classes = rows.cells.classes.size > 2
        self.functionals = np.zeros((0, compiled.constant.size))
        self.measured = np.zeros((0, self.n_constraints), dtype=bool)
        self.reached = np.zeros((0, self.n_constraints), dtype=bool)
        # Several classes, whose search takes longer, have the longest prefix and the one chosen.
        self.searched = (
            sorted({choice.rounds, candidates[-1]}) if self.has_several_classes else candidates
        )
        self.left, self.is_proved = N_BIAS_SEARCHES, not self.has_several_classes
        if not self.has_several_classes:
            self.left = int(np.clip(SEARCHED_ROWS // rows.cells.n_rows, 36, 600))
        self._add_shifted(choice.rounds, [choice.shift])
        decided = self.rows.decisions(shift_scores(self.margins(choice.rounds), choice.shift))
        self.of_choice = CellCounts.of(rows.cells, decided)
        for prefix in candidates:
            if self.has_several_classes:
                self._add_shifted(prefix, self._biases())
            else:
                self._add_thresholds(prefix)

    def _biases(self) -> list[Float]:
        """Draw shifts of several classes: each class always, none, and random ones."""
        k = self.rows.cells.classes.size
        rng = np.random.default_rng(0)
        always = [*(1e6 * np.eye(k)), np.zeros(k)]
        drawn = rng.normal(size=(N_CANDIDATES, k)) * rng.exponential(2.0, (N_CANDIDATES, 1))
        return [*always, *drawn]

    def _add_shifted(self, prefix: int, shifts: Sequence[Float]) -> None:
        margin, cells = self.margins(prefix), self.rows.cells
        tables = [
            astuple(CellCounts.of(cells, self.rows.decisions(shift_scores(margin, shift))))
            for shift in shifts
        ]
        self._add(CellCounts(*map(np.stack, zip(*tables, strict=True))))

    def _add_thresholds(self, prefix: int) -> None:
        """Add thresholds that are dense where either class has its scores."""
        margin, cells = self.margins(prefix), self.rows.cells
        thresholds = spread_thresholds(margin, cells, N_CANDIDATES)
        self._add(CellCounts.at_thresholds(cells, margin, thresholds))

    def _add(self, counts: CellCounts) -> None:
        compiled = self.rows.compiled
        measured = is_measured(compiled, counts)
        reached = measured.copy()
        # A constraint of many rows, as a gap of many groups, is refuted by any of them.
        levels = SIGNIFICANCE / np.bincount(compiled.owner)[compiled.owner]
        beyond = find_violated_rows(compiled, counts, levels, one_test_each=True)
        for j in range(self.n_constraints):
            reached[:, j] &= ~beyond[:, compiled.owner == j].any(axis=1)
        found = functionals_of(compiled, counts)
        self.functionals = np.concatenate([self.functionals, found])
        self.measured = np.concatenate([self.measured, measured])
        self.reached = np.concatenate([self.reached, reached])

    def conflict(self) -> tuple[int, ...]:
        """Find constraints that no decision meets together: the fewest, as far as is proved."""
        every = tuple(range(self.n_constraints))
        if not self.is_proved and (refuted := self._find_refuted()):
            self.is_proved = True
            return refuted
        if self._can_meet(every):
            return ()
        # Either no decision meets the fewest constraints that no known one does, or a further
        # decision is found that does. Each turn therefore has another answer, or is the last.
        while (fewest := self._fewest_unreached()) and self.left > 0:
            if not self._can_meet(fewest):
                return fewest
        self.is_proved = False
        return fewest

    def _find_refuted(self) -> tuple[int, ...]:
        """Find constraints that a bound refutes on each prefix; none can be left out."""
        rows = self.rows
        compiled, refuted = rows.compiled, np.zeros(self.n_constraints, dtype=bool)
        found = [
            ViolationBound.of(self.margins(prefix), rows.cells, compiled)
            for prefix in self.searched
        ]
        limits = [limit for limit in found if limit is not None]
        if len(limits) < len(found):
            return ()
        levels = SIGNIFICANCE / np.bincount(compiled.owner)[compiled.owner]
        bounds = compiled.b + norm.isf(levels) * standard_errors(compiled, self.of_choice)

        def refute(kept: Bool) -> Bool | None:
            """Find the constraints with multipliers; None where a decision may meet them."""
            named = np.zeros(self.n_constraints, dtype=bool)
            if self.reached[:, kept].all(axis=1).any():
                return None
            for limit in limits:
                priced = limit.find_refuted(np.where(kept[compiled.owner], bounds, np.inf))
                if priced is None:
                    return None
                named[compiled.owner[priced]] = True
            return None if self.reached[:, named].all(axis=1).any() else named

        fewer = refute(~refuted)
        if fewer is None:
            return ()
        refuted = fewer
        for j in reversed(range(self.n_constraints)):
            if refuted[j]:
                fewer = refute(refuted & (np.arange(self.n_constraints) != j))
                refuted = refuted if fewer is None else fewer
        return tuple(np.flatnonzero(refuted).tolist())

    def _fewest_unreached(self) -> tuple[int, ...]:
        """Find the fewest constraints such that each decision of the pool misses one; or none."""
        missed = np.unique(~self.reached, axis=0)
        return _smallest_cover(missed) if missed.any(axis=1).all() else ()

    def find_opponents(self, j: int, above: Sequence[int]) -> tuple[int, ...] | None:
        """Find the fewest of some constraints that one cannot be met together with.

        The result is None if it can be met together with all of them, or if that is not ruled out.
        """
        if self._can_meet((j, *above)):
            return None
        while True:
            missed = np.unique(~self.reached[self.reached[:, j]][:, above], axis=0)
            if not missed.any(axis=1).all():
                return None  # A further search has found a decision that meets them all.
            fewest = tuple(above[i] for i in _smallest_cover(missed))
            if self.left == 0:
                return tuple(above)
            if not self._can_meet((j, *fewest)):
                return fewest

    def _can_meet(self, subset: tuple[int, ...]) -> bool:
        """Whether a decision meets some constraints together, if others need not be."""
        if self.reached[:, subset].all(axis=1).any():
            return True
        compiled = self.rows.compiled
        bounds = np.where(np.isin(compiled.owner, subset), compiled.b, np.inf)
        for prefix in self.searched:
            if self.left == 0:
                return True  # No conflict is claimed that is not proved.
            self.left -= 1
            search = ShiftSearch(self.margins(prefix), self.rows.cells, compiled)
            found = search.find(bounds=bounds)
            self._add_shifted(prefix, [found.value])
            if self.reached[-1, subset].all():
                return True
        return False

    def best(self, j: int, conflict: Sequence[int]) -> tuple[float, float]:
        """Find the best value of a constraint in conflict, alone and while the others are met."""
        compiled = self.rows.compiled
        others = [i for i in conflict if i != j]
        met = self.reached[:, others].all(axis=1) & self.measured[:, j]
        values = np.full(len(self.measured), np.nan)
        for i in np.flatnonzero(self.measured[:, j]):
            values[i] = compiled.constraints[j].value(self.functionals[i, compiled.spans[j]])
        sign = compiled.constraints[j].sign

        def best(of: Float) -> float:
            known = of[np.isfinite(of)]
            return sign * float((sign * known).min()) if known.size else np.nan

        return best(values), best(values[met]) if others else np.nan


def _smallest_cover(missed: Bool, most_steps: int = MAX_COVER_STEPS) -> tuple[int, ...]:
    """Find the fewest columns such that each row has one of them, by branch and bound.

    After too many steps the result is a set from which no column can be left out. No row of
    `missed` may be False throughout.
    """
    steps = 0

    def cover(rows: Bool, size: int) -> tuple[int, ...] | None:
        nonlocal steps
        steps += 1
        if len(rows) == 0:
            return ()
        if steps > most_steps or size * rows.sum(axis=0).max() < len(rows):
            return None
        for j in np.flatnonzero(rows[rows.sum(axis=1).argmin()]).tolist():
            others = cover(rows[~rows[:, j]], size - 1)
            if others is not None:
                return (j, *others)
        return None

    size = 0
    while steps <= most_steps:
        found = cover(missed, size)
        if found is not None:
            return tuple(sorted(found))
        size += 1
    kept = list(range(missed.shape[1]))
    for j in range(missed.shape[1]):
        fewer = [i for i in kept if i != j]
        if missed[:, fewer].any(axis=1).all():
            kept = fewer
    return tuple(kept)
