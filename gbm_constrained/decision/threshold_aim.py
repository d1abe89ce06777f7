"""What a threshold of two classes is chosen by, and where a better one may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.line_tables import LineTable
from gbm_constrained.decision.lines import Line
from gbm_constrained.decision.merits import ErrorAndViolations, best_of
from gbm_constrained.decision.priorities import PriorityLevels, Step, keep_least
from gbm_constrained.decision.score_counts import DecisionCounts


@dataclass(frozen=True, eq=False)
class ThresholdAim:
    """The smallest error under constraints, with a penalty (errors per unit of violation) or not.

    Constraints that are penalised have the penalty also where they can be met, and the others,
    which are `strict`, have it where they cannot. Both are of the `last` priority, and `steps`
    limit the violations of those before.
    """

    merits: ErrorAndViolations
    penalty: float | None
    strict: ErrorAndViolations | None
    last: ErrorAndViolations
    steps: Sequence[Step]

    @classmethod
    def of(
        cls,
        merits: ErrorAndViolations,
        penalty: float | None,
        is_penalised: Bool | None,
        levels: PriorityLevels,
    ) -> ThresholdAim:
        """Aim at few errors; rows of constraints may be penalised also where they can be met."""
        last, strict = levels.split(merits)[-1], None
        if is_penalised is not None and is_penalised.any():
            assert penalty is not None
            strict = last.with_bounds(np.where(is_penalised, np.inf, last.bounds))
        steps = levels.list_steps(merits, penalty, is_penalised)
        return cls(merits, penalty, strict, last, steps)

    def on(self, decisions: DecisionCounts) -> ThresholdAim:
        """Return the same aim of decisions on other rows, whose cells weigh the same."""
        return replace(self, merits=self.merits.on(decisions))

    def choose(self, line: Line) -> float:
        """Find the best shift of a line of thresholds."""
        penalty, shift = self.penalty, line.shift
        error, violation, broken, *above = self._measure(line)
        if above:
            kept = keep_least(self.steps, error, above)
            error, violation, broken, shift = (
                of[kept] for of in (error, violation, broken, shift)
            )
        if self.strict is not None and (broken == 0.0).any():
            assert penalty is not None
            return float(shift[best_of(error + penalty * violation, broken, shift)])
        return float(shift[best_of(error, violation, shift, penalty)])

    def _measure(self, line: Line) -> tuple[Float, ...]:
        """Measure errors, violations of the last priority, strict ones, and those of steps."""
        above = [step.merits.largest_violation for step in self.steps]
        if self.strict is None:
            error, violation, *others = self.merits.measure_along(
                line, self.last.largest_violation, *above
            )
            return error, violation, violation, *others
        return self.merits.measure_along(
            line, self.last.largest_violation, self.strict.largest_violation, *above
        )

    def find_open_bins(self, table: LineTable) -> Bool:
        """Find the bins with rows inside of which a better threshold may lie than between bins.

        The comparison is that of :func:`best_of`, whose error plus penalised violation is the
        error alone where all constraints hold.
        """
        line, penalty = table.thresholds, self.penalty or 0.0
        error, violation, broken, *above = self._measure(line)
        kept = keep_least(self.steps, error, above)
        merit, fewest = error + penalty * violation, broken[kept].min()
        if fewest > 0.0 and self.penalty is not None:
            good = kept
        else:
            good = kept & (broken <= (fewest + ROUNDING if fewest > 0.0 else 0.0))
        least = merit[good].min()
        nearest = np.abs(line.shift[good & (merit <= least + ROUNDING)]).min()

        low, merit, broken, *inside = self._bound_inside(table)
        is_better = merit < least - ROUNDING
        is_better |= (merit <= least + ROUNDING) & (table.least_shift < nearest)
        if fewest > 0.0 and self.penalty is not None:
            is_better |= broken == 0.0
        else:
            is_better = (is_better & (broken <= fewest + ROUNDING)) | (broken < fewest)
        found, may_be_left = np.zeros_like(is_better), np.ones_like(is_better)
        for k, (step, of_bins) in enumerate(zip(self.steps, inside, strict=True)):
            left = keep_least(self.steps[:k], error, above[:k])
            found |= may_be_left & step.is_open(error[left], above[k][left], (low, of_bins))
            may_be_left &= of_bins <= step.find_limit(error[left], above[k][left])
        return np.asarray((found | (is_better & may_be_left)) & table.may_be_split)

    def _bound_inside(self, table: LineTable) -> tuple[Float, ...]:
        """Bound error and merit inside of each bin from below, strict violations and steps'."""
        last, penalty = self.last, self.penalty or 0.0
        strict = last if self.strict is None else self.strict
        parts = [strict, *(step.merits for step in self.steps)]
        bounds = [
            (
                low[0],
                low[0] + penalty * last.least_violation(low, high),
                *(part.least_violation(low, high) for part in parts),
            )
            for low, high in self.merits.linear.between(table.stops)
        ]
        return tuple(np.concatenate(part) for part in zip(*bounds, strict=True))
