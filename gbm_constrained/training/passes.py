"""Boosters of the folds grown anew, where constraints cost more errors than they should.

Multipliers move with the boosters. Where rounds are few they end on their way, and trees have
followed smaller ones for most of it; where constraints pull against each other, or one is hardly
moved until a whole group tips over, they swing. What decisions then meet the constraints may be
far worse than others that the same scores allow
(:mod:`gbm_constrained.decision.group_thresholds`). As long as the difference is more than
:data:`AFFORDABLE`, further passes are made, and the best is taken:

- A pass starts at the multipliers that are expected to end where they began, by the secant method
  on the *drift*, the distance from the start of a pass to the mean of its last quarter.
- Boosters without multipliers, whose threshold may be moved, are a candidate as well unless a
  solver was asked for: after two passes, or after one where constraints are of both kinds that
  follow.
- Constraints on labels and decisions of all rows, such as a bound on the selection rate, ask for
  another threshold, and comparisons of groups are to hold at that threshold. Multipliers for both
  would flatten the scores in between. So where both are there, further passes leave the former
  without multipliers and add the shift that they need to the log-odds that the objective aims at,
  by weights of the classes.

A pass whose rates still swing from iteration to iteration is no evidence of what the model of all
rows will do: its cost includes the price of the swing beyond sampling error.

Measured on random rules and tables (``benchmarks/sweep.py``): see docs/evidence.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.group_thresholds import GroupThresholds
from gbm_constrained.decision.prefix_choice import (
    standard_error_of,
    standard_errors,
    violation_penalty,
)
from gbm_constrained.decision.threshold_search import ShiftSearch
from gbm_constrained.problem.linear_constraints import ROUNDING
from gbm_constrained.training.fold_boosters import FoldBoosters
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.plug_in import as_certified, choice_by, cost_of

PASSES = 5  # Times that boosters of the folds are grown with multipliers, at most.
BEFORE_PLAIN = 2  # Passes after which boosters without multipliers are looked at.
# Errors by which the constraints may cost more than those of group thresholds before boosters are
# grown anew.
AFFORDABLE = 0.01
SHORT = 2.0  # Exact iterations up to which a second pass begins twice as far as the first ended.
FARTHEST = 3.0  # Drifts that a pass begins beyond the one before, at most.
STALLED = 0.25  # Share of a multiplier below which a drift is none.
PUSH = 1.5  # By how much a multiplier is raised that is at rest while its constraint is violated.
LAST = 4  # The part of a pass that its end is read from: one of so many.
FEWEST = 4  # Iterations of it at least.
Grown: TypeAlias = tuple[FoldBoosters, EvaluationSet]


@dataclass(frozen=True)
class Pass:
    """Boosters of the folds, and what the constraints cost them.

    Parameters
    ----------
    grown : tuple of FoldBoosters and EvaluationSet
        The boosters.
    cost : float
        Errors of their best decision, with the price of violations and of swings.
    needed : float
        Errors of group thresholds on their scores; NaN where none meet the constraints.
    noise : float
        Standard error of that.
    """

    grown: Grown
    cost: float
    needed: float
    noise: float

    @property
    def start(self) -> Float:
        """Multipliers that it began with."""
        return self.grown[0].controller.solver.start

    @property
    def drift(self) -> Float:
        """How far its multipliers have moved from there, at the end."""
        history = self.grown[0].controller.solver.history
        last = history[-max(len(history) // LAST, 1) :]
        return np.asarray(np.mean([record.multipliers for record in last], axis=0) - self.start)

    @property
    def pushed(self) -> Float:
        """Least multipliers of the next pass: more of those that stall beyond a bound.

        At first scores are alike, few rates are far apart and multipliers fall; they rise again
        later. They may so end where they began although a constraint is still violated.
        """
        record = self.grown[0].controller.solver.history[-1]
        end = self.start + self.drift
        is_stalled = (np.abs(self.drift) < STALLED * end) & (record.rates > record.bounds)
        return np.asarray(np.where(is_stalled, PUSH * end, 0.0))

    @property
    def of_labels(self) -> Bool:
        """Rows of constraints on labels and decisions of all rows, of two classes."""
        unseen = self.grown[1]
        compiled = unseen.compiled
        of_labels = [constraint.is_of_labels for constraint in compiled.constraints]
        alike: Bool = np.array(of_labels, dtype=bool)[compiled.owner]
        return alike & (unseen.cells.classes.size == 2)

    def is_broken(self, rows: Bool) -> bool:
        """Whether some rows of constraints are violated without a shift."""
        boosters, unseen = self.grown
        return bool(
            (unseen.violations(boosters.held_margin(boosters.rounds))[rows] > ROUNDING).any()
        )

    def shift_for(self, rows: Bool) -> float:
        """Shift of two classes that some rows of constraints need, if there were no others."""
        boosters, unseen = self.grown
        margin = boosters.held_margin(boosters.rounds)
        found = ShiftSearch(margin, unseen.cells, unseen.compiled).find(
            bounds=np.where(rows, unseen.compiled.b, np.inf),
            penalty=violation_penalty(unseen.cells),
        )
        return float(found.value[0])


class PassSearch:
    """The search for multipliers under which constraints cost no more errors than they should.

    Parameters
    ----------
    grow : callable
        Grows boosters of the folds, ``weighed`` by multipliers or not, from a ``start`` of
        multipliers, with ``log_odds`` added in the objective.
    path : float
        Length of the way that the boosters go, in exact iterations.
    options : SolverOptions
        What was asked.
    certification : EvaluationSet or None
        Rows that are kept for a guarantee.
    has_time : callable
        Tells whether there is time for one more pass.
    plain : tuple of FoldBoosters and EvaluationSet, default=None
        Boosters without multipliers, if they are there already.
    """

    def __init__(
        self,
        grow: Callable[..., Grown],
        path: float,
        options: SolverOptions,
        certification: EvaluationSet | None,
        has_time: Callable[[], bool],
        plain: Grown | None = None,
    ) -> None:
        self.grow, self.path, self.options, self.certification = grow, path, options, certification
        self.has_time, self.plain = has_time, plain

    def run(self, boosters: FoldBoosters, unseen: EvaluationSet) -> Grown:
        """Give the best of some boosters and those of further passes."""
        best = self._measured((boosters, unseen))
        least = best.needed
        for found in self._passes(best):
            if found.grown[0].rounds < boosters.rounds:  # ended before its time
                break
            least = float(np.fmin(least, found.needed))
            best = min(best, found, key=lambda p: p.cost)
            if not best.cost - least > max(AFFORDABLE, best.noise):
                break
        return best.grown

    def _passes(self, first: Pass) -> Iterator[Pass]:
        """Make one pass after the other; the first is there already."""
        yield first
        made, log_odds = [first], 0.0
        of_labels = first.of_labels
        is_mixed = of_labels.any() and not of_labels.all()
        may_be_plain = self.options.solver == "auto"  # others ask for multipliers
        for count in range(1, PASSES):
            if not self.has_time():
                return
            if may_be_plain and count == (1 if is_mixed else BEFORE_PLAIN):
                plain = self._measured(self.plain or self.grow(has_multipliers=False))
                yield plain
                if not self.has_time():
                    return
                if is_mixed and plain.is_broken(of_labels):
                    log_odds = plain.shift_for(of_labels)
                    start = np.where(of_labels, 0.0, made[-1].start + made[-1].drift)
                    made = []
            elif log_odds:
                log_odds += made[-1].shift_for(of_labels)
            if made:
                start = next_start([p.start for p in made], [p.drift for p in made], self.path)
                start = np.maximum(start, made[-1].pushed)
            fixed = of_labels if log_odds else None
            grown = self.grow(has_multipliers=True, start=start, fixed=fixed, log_odds=log_odds)
            made.append(self._measured(grown))
            yield made[-1]

    def _measured(self, grown: Grown) -> Pass:
        boosters, unseen = grown
        choice, certified = choice_by(boosters, unseen, self.options), None
        if self.certification is not None:
            certified = as_certified(unseen, self.certification, boosters, choice, self.options)
        asked = unseen if certified is None else certified
        margin, shift = (
            boosters.held_margin(boosters.rounds),
            unseen.choices[boosters.rounds].shift,
        )
        needed = GroupThresholds(asked.cells, asked.compiled, margin, shift).find_error()
        noise = standard_error_of(needed, len(asked.cells.rows))
        cost = cost_of(choice, boosters, certified)
        if boosters.has_multipliers:
            cost += violation_penalty(unseen.cells) * _swing(unseen, boosters)
        return Pass(grown, cost, needed, float(np.nan_to_num(noise)))


def _swing(unseen: EvaluationSet, boosters: FoldBoosters) -> float:
    """How far rates of the last iterations stray from a line beyond sampling error.

    A rate that only falls or rises does not swing.
    """
    history = boosters.controller.solver.history
    last = history[-max(len(history) // LAST, FEWEST) :]
    rates = np.array([record.rates for record in last])
    line = np.vander(np.arange(len(last)), 2)
    residual = rates - line @ np.linalg.lstsq(line, rates, rcond=None)[0]
    noise = standard_errors(unseen.compiled, unseen.cells, history[-1].functionals)
    return float(np.maximum(np.std(residual, axis=0) - noise, 0.0).max(initial=0.0))


def next_start(starts: Sequence[Float], drifts: Sequence[Float], path: float) -> Float:
    """Multipliers to start from so that they end where they began, by the secant method.

    Parameters
    ----------
    starts, drifts : sequence of ndarray of shape (m,)
        Multipliers that passes began with, and how far they moved from there.
    path : float
        Length of the way that the boosters go, in exact iterations.

    Returns
    -------
    ndarray of shape (m,)
    """
    start, drift = starts[-1], drifts[-1]
    if len(starts) == 1:
        return np.maximum(start + (1.0 + min(1.0, SHORT / path)) * drift, 0.0)
    moved = start - starts[-2]
    slope = np.divide(drift - drifts[-2], moved, out=np.zeros_like(moved), where=moved != 0.0)
    flattest = -1.0 / FARTHEST
    step = np.where(slope < flattest, -drift / np.minimum(slope, flattest), drift)
    return np.asarray(np.maximum(start + step, 0.0))
