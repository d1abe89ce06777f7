"""The smallest set of constraints that no decision meets together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.decision.evaluation_set import UnseenRows
from gbm_constrained.decision.prefix_choice import Margins
from gbm_constrained.decision.rule import Choice, shifted
from gbm_constrained.decision.threshold_search import best_shift
from gbm_constrained.evaluation.sample_size import FEWEST
from gbm_constrained.evaluation.verdicts import DOUBT, rows_of_quotient
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.violations import find_violated_rows

QUANTILES = 120  # Thresholds looked at of each prefix, for each class of labels.
BIASES = 150  # Of several classes, for each prefix.
COVER_STEPS = 5000  # Of the search for the smallest conflict.
SEARCHED_ROWS = 30_000_000  # Rows times searches, about, with which thresholds are looked for.
SEARCHES = 16  # For the biases of several classes, which take longer.


def _told(compiled: CompiledConstraints, counts: CellCounts) -> Bool:
    """Whether decisions put enough rows into a quotient to speak of it, for each constraint."""
    told = np.ones((*counts.count.shape[:-2], len(compiled.constraints)), dtype=bool)
    for j, constraint in enumerate(compiled.constraints):
        if constraint.expression.is_quotient:
            told[..., j] = rows_of_quotient(compiled, j, counts) >= FEWEST
    return told


class DecisionPool:
    """Decisions that a model can make, and the rules that each brings to within sampling error.

    Parameters
    ----------
    rows : UnseenRows
        The rows.
    margins : callable
        Their scores after some rounds.
    candidates : sequence of int
        Rounds of the prefixes that are looked at.
    choice : Choice
        The least violating decision; one of those looked at.
    """

    def __init__(
        self, rows: UnseenRows, margins: Margins, candidates: Sequence[int], choice: Choice
    ) -> None:
        self.rows, self.margins = rows, margins
        compiled = rows.compiled
        self.n_rules = len(compiled.constraints)
        self.several = rows.cells.classes.size > 2
        self.functionals = np.zeros((0, compiled.constant.size))
        self.told = np.zeros((0, self.n_rules), dtype=bool)
        self.reached = np.zeros((0, self.n_rules), dtype=bool)
        # Of several classes, whose search takes longer: the longest prefix, and the one chosen.
        self.searched = sorted({choice.rounds, candidates[-1]}) if self.several else candidates
        self.left = SEARCHES
        if not self.several:
            self.left = int(np.clip(SEARCHED_ROWS // len(rows.cells.rows), 36, 600))
        self._add_shifted(choice.rounds, [choice.shift])  # the first is the one chosen
        for prefix in candidates:
            if self.several:
                self._add_shifted(prefix, self._biases())
            else:
                self._add_thresholds(prefix)

    def _biases(self) -> list[Float]:
        """Shifts of several classes, all ways round: nothing, always one class, random ones."""
        k = self.rows.cells.classes.size
        rng = np.random.default_rng(0)
        always = [*(1e6 * np.eye(k)), np.zeros(k)]
        return [*always, *rng.normal(size=(BIASES, k)) * rng.exponential(2.0, (BIASES, 1))]

    def _add_shifted(self, prefix: int, shifts: Sequence[Float]) -> None:
        margin, cells = self.margins(prefix), self.rows.cells
        counts = [
            CellCounts.of(cells, self.rows.decisions(shifted(margin, shift))) for shift in shifts
        ]
        self._add(
            CellCounts(
                np.stack([c.weight for c in counts]),
                np.stack([c.square for c in counts]),
                np.stack([c.count for c in counts]),
            )
        )

    def _add_thresholds(self, prefix: int) -> None:
        """Look at thresholds that are dense where either class has its scores."""
        margin, cells = self.margins(prefix), self.rows.cells
        grid = np.linspace(0.0, 1.0, QUANTILES)
        labels = cells.labels[cells.codes]
        parts = [margin[labels == k] for k in np.unique(labels)]
        at = [np.quantile(part, grid, method="lower") for part in parts]
        thresholds = np.unique(np.concatenate([*at, [margin.min() - 1.0]]))
        self._add(CellCounts.at_thresholds(cells, margin, thresholds))

    def _add(self, counts: CellCounts) -> None:
        compiled = self.rows.compiled
        told = _told(compiled, counts)
        reached = told.copy()
        # A rule of many rows, as a gap of many groups, is refuted by any of them.
        levels = DOUBT / np.bincount(compiled.owner, minlength=self.n_rules)[compiled.owner]
        beyond = find_violated_rows(compiled, counts, levels, one_test_each=True)
        for j in range(self.n_rules):
            reached[:, j] &= ~beyond[:, compiled.owner == j].any(axis=1)
        found = functionals_of(compiled, counts)
        self.functionals = np.concatenate([self.functionals, found])
        self.told = np.concatenate([self.told, told])
        self.reached = np.concatenate([self.reached, reached])

    def conflict(self) -> tuple[int, ...]:
        """Give the fewest rules that no decision meets together, as far as is proved; or none."""
        if self._can_meet(tuple(range(self.n_rules))):
            return ()
        # Either no decision meets the fewest that none is known to, or one that does is found,
        # which rules them out: each turn has another answer, or is the last.
        while (fewest := self._fewest_unreached()) and self.left > 0:
            if not self._can_meet(fewest):
                return fewest
        return fewest and tuple(np.flatnonzero(~self.reached.all(axis=0)).tolist())

    def _fewest_unreached(self) -> tuple[int, ...]:
        """Give the fewest rules of which each decision looked at misses one; or none."""
        missed = np.unique(~self.reached, axis=0)  # decisions that miss the same rules are one
        return _smallest_cover(missed) if missed.any(axis=1).all() else ()

    def _can_meet(self, subset: tuple[int, ...]) -> bool:
        """Whether a decision meets some rules together, if others need not be."""
        if self.reached[:, subset].all(axis=1).any():
            return True
        compiled = self.rows.compiled
        bounds = np.where(np.isin(compiled.owner, subset), compiled.b, np.inf)
        for prefix in self.searched:
            if self.left == 0:
                return True  # not proved, and so not claimed
            self.left -= 1
            found = best_shift(self.margins(prefix), self.rows.cells, compiled, bounds=bounds)
            self._add_shifted(prefix, [found.value])
            if self.reached[-1, subset].all():
                return True
        return False

    def best(self, j: int, conflict: Sequence[int]) -> tuple[float, float]:
        """Best value of a rule in conflict, and the best while the others in it are met."""
        compiled = self.rows.compiled
        others = [i for i in conflict if i != j]
        met = self.reached[:, others].all(axis=1) & self.told[:, j]
        values = np.full(len(self.told), np.nan)
        for i in np.flatnonzero(self.told[:, j]):
            values[i] = compiled.constraints[j].value(self.functionals[i, compiled.spans[j]])
        sign = compiled.constraints[j].sign

        def best(of: Float) -> float:
            known = of[np.isfinite(of)]
            return sign * float((sign * known).min()) if known.size else np.nan

        return best(values), best(values[met]) if others else np.nan


def _smallest_cover(missed: Bool, most_steps: int = COVER_STEPS) -> tuple[int, ...]:
    """Columns of which each row has one: the fewest, by branch and bound.

    After too many steps, columns of which none can be spared, which may not be the fewest.

    Parameters
    ----------
    missed : ndarray of bool of shape (n_rows, n_columns)
        Without a row that is False throughout.
    most_steps : int
        Parts of the search that are looked at.
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
