"""Passes: sets of fold boosters, and the errors that the constraints cost them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.choose import VIOLATION_PRICE
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.group_thresholds import GroupThresholds
from gbm_constrained.decision.prefix_choice import choose_with_room
from gbm_constrained.decision.rule import Choice, shift_scores
from gbm_constrained.decision.standard_errors import standard_error_of, standard_errors
from gbm_constrained.decision.threshold_search import ShiftSearch
from gbm_constrained.problem.row_owners import (
    compares_groups,
    is_priced,
    violation_weights,
)
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.training.fold_boosters import FoldBoosters
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.plug_in import choose_by_held_out, cost_of, tighten_bounds

# The end of a pass is one part in so many of its iterations, and at least so many of them.
LAST, FEWEST = 4, 4
Grown: TypeAlias = tuple[FoldBoosters, EvaluationSet]


@dataclass(frozen=True)
class Pass:
    """Fold boosters, and what the constraints cost them.

    Parameters
    ----------
    grown : tuple of FoldBoosters and EvaluationSet
        The boosters, and the rows that they hold out.
    cost : float
        Errors of their best decision, with the price of violations, of swings and of curved gaps
        that thresholds close by chance.
    needed : float
        Errors of group thresholds on their scores, or of their decisions where all constraints are
        on pair rates; NaN where no thresholds meet the constraints.
    noise : float
        Standard error of `needed`.
    prices : ndarray of shape (m,)
        Errors that a unit of each row of constraints costs group thresholds.
    asked : EvaluationSet
        The rows with the bounds that were to be met, those of a guarantee if there is one.
    misses : bool
        Whether the best decision violates a constraint on decisions that neither compares groups
        nor is on labels alone.
    """

    grown: Grown
    cost: float
    needed: float
    noise: float
    prices: Float
    asked: EvaluationSet
    misses: bool = False

    @property
    def violations(self) -> Float:
        """Violations of the rows of constraints by the boosters' own decisions."""
        boosters = self.grown[0]
        return self.asked.violations(boosters.held_margin(boosters.rounds))

    @property
    def end(self) -> Float:
        """Mean of the multipliers in the last quarter of the pass."""
        history = self.grown[0].controller.solver.history
        last = history[-max(len(history) // LAST, 1) :]
        return np.asarray(np.mean([record.multipliers for record in last], axis=0))

    @property
    def of_labels(self) -> Bool:
        """Rows of constraints on labels and decisions of all rows, of two classes."""
        held_out = self.grown[1].credible
        compiled = held_out.compiled
        of_labels = [constraint.is_of_labels for constraint in compiled.constraints]
        alike: Bool = np.array(of_labels, dtype=bool)[compiled.owner]
        return alike & (held_out.cells.classes.size == 2)

    def is_broken(self, rows: Bool) -> bool:
        """Whether some rows of constraints are violated without a shift."""
        boosters, held_out = self.grown[0], self.grown[1].credible
        violations = held_out.violations(boosters.held_margin(boosters.rounds))
        return bool((violations[rows] > ROUNDING).any())

    def shift_for(self, rows: Bool) -> float:
        """Find the shift of two classes that some rows of constraints need by themselves."""
        boosters, held_out = self.grown[0], self.grown[1].credible
        margin = boosters.held_margin(boosters.rounds)
        found = ShiftSearch(margin, held_out.cells, held_out.compiled).find(
            bounds=np.where(rows, held_out.compiled.b, np.inf),
            penalty=VIOLATION_PRICE,
        )
        return float(found.value[0])


def measure_pass(
    grown: Grown, options: SolverOptions, certification: EvaluationSet | None
) -> Pass:
    """Measure what the constraints cost fold boosters, at the bounds of a guarantee if any."""
    boosters, held_out = grown[0], grown[1].credible
    choice, tightened = choose_by_held_out(grown, options), None
    if certification is not None:
        tightened = tighten_bounds(grown, certification, choice, options)
    asked = held_out if tightened is None else tightened
    margin, shift = boosters.held_margin(boosters.rounds), held_out.choices[boosters.rounds].shift
    if asked.compiled.has_tables_alone:  # Thresholds do not change what the constraints bound.
        needed, prices = choice.error, np.zeros(len(asked.compiled))
    else:
        thresholds = GroupThresholds(asked.cells, asked.compiled, margin, shift)
        needed, prices = thresholds.find_error_and_prices()
    noise = standard_error_of(needed, asked.cells.n_rows)
    cost = cost_of(choice, boosters, tightened)
    cost += VIOLATION_PRICE * measure_curved_excess(grown, choice)
    if boosters.has_multipliers:
        cost += VIOLATION_PRICE * measure_swing(grown)
    compiled = asked.compiled
    violations = asked.violations(shift_scores(boosters.held_margin(choice.rounds), choice.shift))
    is_of_labels = np.array([c.is_of_labels for c in compiled.constraints], dtype=bool)
    is_strict = ~(is_priced(compiled) | compiled.has_scores | is_of_labels[compiled.owner])
    misses = bool((violations[is_strict] > ROUNDING).any())
    return Pass(grown, cost, needed, float(np.nan_to_num(noise)), prices, asked, misses)


def measure_curved_excess(grown: Grown, choice: Choice) -> float:
    """Measure how much further curved gaps are open by shifts that other folds would have chosen.

    A gap of quotients is over the few rows that are selected, so that noise closes it at some
    threshold of boosters that have not learned to close it.
    """
    boosters, rows = grown[0], grown[1].credible
    compiled = rows.compiled
    is_gap = compiled.curves.is_curved & compares_groups(compiled)
    if not is_gap.any():
        return 0.0
    margin = boosters.held_margin(choice.rounds)
    _, decisions = choose_with_room(rows, margin, choice)
    violations = violation_weights(compiled) * rows.violations(margin, rows.counts(decisions))
    return max(float(violations[is_gap].max()) - choice.violation, 0.0)


def measure_swing(grown: Grown) -> float:
    """Measure how far rates of the last iterations are from a line, beyond sampling error.

    A rate that only falls or rises does not swing. Swings are no evidence of what the model of all
    rows will do.
    """
    boosters, held_out = grown[0], grown[1].credible
    history = boosters.controller.solver.history
    last = history[-max(len(history) // LAST, FEWEST) :]
    rates = np.array([record.rates for record in last])
    line = np.vander(np.arange(len(last)), 2)
    residual = rates - line @ np.linalg.lstsq(line, rates, rcond=None)[0]
    counts = CellCounts.of_shares(held_out.cells, history[-1].predicted)
    noise = standard_errors(held_out.compiled, counts)
    return float(np.maximum(np.std(residual, axis=0) - noise, 0.0).max(initial=0.0))
