"""What a threshold of two classes is chosen by, and where a better one may be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.line_tables import LineTable
from gbm_constrained.decision.lines import Line
from gbm_constrained.decision.merits import ErrorAndViolations, best_of
from gbm_constrained.decision.score_counts import DecisionCounts


@dataclass(frozen=True, eq=False)
class ThresholdAim:
    """The smallest error under constraints, with a penalty (errors per unit of violation) or not.

    Constraints that are penalised have the penalty also where they can be met, and the others,
    which are `strict`, have it where they cannot.
    """

    merits: ErrorAndViolations
    penalty: float | None
    strict: ErrorAndViolations | None

    @classmethod
    def of(
        cls, merits: ErrorAndViolations, penalty: float | None, is_penalised: Bool | None
    ) -> ThresholdAim:
        """Aim at few errors; rows of constraints may be penalised also where they can be met."""
        if is_penalised is None or not is_penalised.any():
            return cls(merits, penalty, None)
        assert penalty is not None
        strict = merits.with_bounds(np.where(is_penalised, np.inf, merits.bounds))
        return cls(merits, penalty, strict)

    def on(self, decisions: DecisionCounts) -> ThresholdAim:
        """Return the same aim of decisions on other rows, whose cells weigh the same."""
        strict = None if self.strict is None else self.strict.on(decisions)
        return replace(self, merits=self.merits.on(decisions), strict=strict)

    def choose(self, line: Line) -> float:
        """Find the best shift of a line of thresholds."""
        merits, penalty = self.merits, self.penalty
        if self.strict is None:
            error, violation = merits.measure_along(line, merits.largest_violation)
            return float(line.shift[best_of(error, violation, line.shift, penalty)])
        assert penalty is not None
        error, violation, broken = merits.measure_along(
            line, merits.largest_violation, self.strict.largest_violation
        )
        if (broken == 0.0).any():
            return float(line.shift[best_of(error + penalty * violation, broken, line.shift)])
        return float(line.shift[best_of(error, violation, line.shift, penalty)])

    def find_open_bins(self, table: LineTable) -> Bool:
        """Find the bins with rows inside of which a better threshold may lie than between bins.

        The comparison is that of :func:`best_of`, whose error plus penalised violation is the
        error alone where all constraints hold.
        """
        line, penalty = table.thresholds, self.penalty or 0.0
        strict = self.merits if self.strict is None else self.strict
        error, violation, broken = self.merits.measure_along(
            line, self.merits.largest_violation, strict.largest_violation
        )
        merit, fewest = error + penalty * violation, broken.min()
        if fewest > 0.0 and self.penalty is not None:
            good = np.ones(merit.size, dtype=bool)
        else:
            good = broken <= (fewest + ROUNDING if fewest > 0.0 else 0.0)
        least = merit[good].min()
        nearest = np.abs(line.shift[good & (merit <= least + ROUNDING)]).min()

        merit, broken = self._bound_inside(table, strict)
        is_better = merit < least - ROUNDING
        is_better |= (merit <= least + ROUNDING) & (table.least_shift < nearest)
        if fewest > 0.0 and self.penalty is not None:
            is_better |= broken == 0.0
        else:
            is_better = (is_better & (broken <= fewest + ROUNDING)) | (broken < fewest)
        return np.asarray(is_better & table.may_be_split)

    def _bound_inside(self, table: LineTable, strict: ErrorAndViolations) -> tuple[Float, Float]:
        """Bound merits and violations of strict constraints inside of each bin from below."""
        merits, penalty = self.merits, self.penalty or 0.0
        bounds = [
            (
                low[0] + penalty * merits.least_violation(low, high),
                strict.least_violation(low, high),
            )
            for low, high in merits.linear.between(table.stops)
        ]
        merit, broken = (np.concatenate(part) for part in zip(*bounds, strict=True))
        return merit, broken
