"""From a returned model and its held-out rows to a verdict on each constraint."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import norm

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.selectors import to_python_scalar
from gbm_constrained.decision.evaluation_set import Estimate, EvaluationSet, PlainModel, ScoredRows
from gbm_constrained.decision.guarantees import violation_p_values
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.decision.prefix_choice import Prefixes
from gbm_constrained.decision.rule import Choice, shift_scores
from gbm_constrained.decision.standard_errors import standard_errors
from gbm_constrained.decision.threshold_search import ShiftSearch
from gbm_constrained.evaluation.conflicts import DecisionPool, is_measured
from gbm_constrained.evaluation.constraint_result import ConstraintResult
from gbm_constrained.evaluation.costs import Cost, measure_cost
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.evaluation.messages import describe_missing_guarantee
from gbm_constrained.evaluation.sample_size import (
    TooFewRows,
    find_too_few_rows,
    rows_of_constraint,
    rows_of_smallest_group,
)
from gbm_constrained.evaluation.verdicts import Verdict, reaches_beyond
from gbm_constrained.problem.row_owners import (
    compares_groups,
    find_first,
    find_first_constraints,
)
from gbm_constrained.statistics.counts import CellCounts, functionals_of

FRAGILE_ERROR = 0.8  # Share of a constant decision's error above which decisions are fragile.
FRAGILE_GAIN = 0.5  # Share of the unconstrained gain over it below which decisions are fragile.


@dataclass(frozen=True)
class ReturnedModel:
    """The model that a fit returns, and its decisions and values on the rows that are reported."""

    choice: Choice
    rows: EvaluationSet  # The rows that are reported: those that chose, or certification rows.
    decisions: Codes  # Decisions of the model on these rows.
    outcome: Outcome  # Values of the constraints there.
    bounds: Float | None = None  # Tighter right-hand sides of ``guarantee="expected"``.
    is_unconstrained: bool = False  # Whether the model is the one without constraints.

    @property
    def counts(self) -> CellCounts:
        """Decisions counted by cell and class."""
        return CellCounts.of(self.rows.cells, self.decisions)

    @property
    def has_guarantee(self) -> bool:
        """Whether a guarantee was asked for and is given."""
        is_expected = self.bounds is not None and not self.misses_conformal_bounds
        return self.choice.is_certified or is_expected

    @property
    def misses_conformal_bounds(self) -> bool:
        """Whether ``guarantee="expected"`` was asked for and is not given."""
        return self.bounds is not None and self.choice.violation > 0.0

    @property
    def keeps(self) -> Bool:
        """Whether each constraint is guaranteed, or met on the rows that are reported."""
        compiled, values = self.rows.compiled, np.nan_to_num(self.outcome.functionals)
        missed = compiled.rows_of(values) > compiled.b + ROUNDING
        found = find_first_constraints(compiled) & self.has_guarantee
        found[np.setdiff1d(np.arange(found.size), compiled.owner[missed])] = True
        return found


@dataclass(frozen=True)
class _Conflict:
    """Positions of constraints in conflict, or not certified, and of violations that are left."""

    named: tuple[int, ...] = ()  # In conflict, or not certified.
    unmet: tuple[int, ...] = ()  # In conflict, as is proved.
    best: dict[int, tuple[float, float]] = field(default_factory=dict)  # Alone, and with others.
    left: tuple[int, ...] = ()  # Violated, although all constraints can be met.
    given_up: dict[int, tuple[int, ...]] = field(default_factory=dict)  # For which ones.
    is_proved: bool = True  # Whether no decision resolves the conflict, or none was found.

    def of(self, j: int) -> tuple[int, ...]:
        """List the constraints that one cannot be met together with, itself among them."""
        if not self.given_up:
            return self.unmet
        return (j, *self.given_up[j]) if j in self.given_up else ()


def assess(
    scored: ScoredRows,
    prefixes: Prefixes,
    returned: ReturnedModel,
    plain: PlainModel | None = None,
) -> Feasibility:
    """Assess the constraints by the decisions that a model can make on rows that it has not seen.

    The rows of `scored` chose the model; `plain` is what boosters without multipliers do there,
    None if there are none. No decision of the model returned violates the
    constraints less.
    """
    compiled, choice = scored.rows.compiled, returned.choice
    n_rows = returned.rows.cells.n_rows
    conflict = _find_conflict(scored, prefixes, returned)
    error = returned.rows.error(returned.decisions)
    constant: tuple[Any, float] = (None, np.nan)
    free_error, is_fragile = np.nan, False
    if not conflict.named:
        constant = _find_best_constant(returned.rows)
        if error > FRAGILE_ERROR * constant[1] and not returned.is_unconstrained:
            free_error = _measure_free_error(scored, prefixes.candidates)
            is_fragile = is_hardly_better(error, constant[1], free_error, n_rows)
    few = _find_too_few_rows(returned, conflict)
    unsteady = () if conflict.named else _find_unsteady(returned.outcome, compiled.constraints)
    doubts = _list_doubts(returned, few, [compiled.constraints[j] for j in unsteady])
    results = _list_results(scored, returned, conflict, doubts)
    return Feasibility(
        conflict=tuple(compiled.constraints[j] for j in conflict.named),
        rules=results,
        too_few_rows=tuple(few),
        unsteady=tuple(results[j] for j in unsteady),
        error=error,
        constant_class=constant[0],
        constant_error=constant[1],
        free_error=free_error,
        source=returned.rows.source,
        n_rows=n_rows,
        p_value=choice.p_value,
        level=choice.level,
        left=tuple(results[j] for j in conflict.left if results[j].verdict.kind == "missed"),
        is_fragile=is_fragile,
        cost=_measure_cost(scored, returned, error, np.nan if plain is None else plain.objective),
        plain=plain,
        is_proved=conflict.is_proved,
    )


def _find_conflict(scored: ScoredRows, prefixes: Prefixes, returned: ReturnedModel) -> _Conflict:
    """Find the constraints in conflict, and those that are violated although all can be met."""
    choice, counts = returned.choice, returned.counts
    has_rows = is_measured(returned.rows.compiled, counts).all()
    is_met = choice.violation == 0.0 and not choice.is_uncertified and has_rows
    misses_later = returned.has_guarantee and not returned.keeps.all()
    if (choice.is_certified or is_met) and not misses_later:
        return _Conflict()
    is_met_by_constant = _is_met_by_constant(returned.rows)
    pool = DecisionPool(scored, () if is_met_by_constant else prefixes.candidates, choice)
    if not is_met_by_constant and (found := pool.conflict()):
        reached = returned.keeps if returned.has_guarantee else pool.reached[0]
        given_up = _find_given_up(pool, scored.rows.compiled.constraints, reached)
        if given_up:
            found = tuple(sorted({*given_up, *itertools.chain(*given_up.values())}))
        best = {j: pool.best(j, found) for j in found}
        unmet = found if pool.is_proved else ()
        return _Conflict(found, unmet, best, given_up=given_up, is_proved=pool.is_proved)
    if choice.is_uncertified:
        rows, values = returned.rows, returned.outcome.functionals
        p_values = violation_p_values(rows.compiled, rows.cells, counts, values)
        first = find_first_constraints(rows.compiled)
        is_named = (p_values > choice.level) & first
        if not is_named.any():  # The model passes by itself, behind safer decisions that failed.
            is_named = first
        return _Conflict(tuple(np.flatnonzero(is_named).tolist()))
    if returned.has_guarantee:
        return _Conflict()
    left = np.flatnonzero(pool.measured[0] & ~pool.reached[0])
    return _Conflict(left=tuple(left.tolist()))


def _find_given_up(
    pool: DecisionPool, constraints: Sequence[Constraint], reached: Bool
) -> dict[int, tuple[int, ...]]:
    """Find the constraints that are given up for others of priorities that come first."""
    given_up: dict[int, tuple[int, ...]] = {}
    for j in np.flatnonzero(pool.measured[0] & ~reached).tolist():
        first = [constraint.priority < constraints[j].priority for constraint in constraints]
        above = np.flatnonzero(np.array(first) & reached).tolist()
        if above and (opponents := pool.find_opponents(j, above)):
            given_up[j] = opponents
    return given_up


def _find_too_few_rows(returned: ReturnedModel, conflict: _Conflict) -> list[TooFewRows]:
    """Find the rates over too few rows, apart from those of constraints in conflict."""
    if np.isfinite(returned.choice.p_value):
        return []
    rows, outcome, counts = returned.rows, returned.outcome, returned.counts
    values = outcome.functionals
    found = find_too_few_rows(rows.cells, rows.compiled, counts, values, *outcome.sampled)
    named = {rows.compiled.constraints[j] for j in conflict.named}
    found = [rate for rate in found if rate.constraint not in named]
    if returned.misses_conformal_bounds and not named:
        known = {rate.constraint for rate in found}
        found += [rate for rate in _list_out_of_reach(returned) if rate.constraint not in known]
    return found


def _list_out_of_reach(returned: ReturnedModel) -> list[TooFewRows]:
    """List the constraints that hold on these rows, but not as tightly as a guarantee needs."""
    rows, outcome, counts = returned.rows, returned.outcome, returned.counts
    compiled, bounds = rows.compiled, returned.bounds
    assert bounds is not None
    left = compiled.rows_of(np.nan_to_num(outcome.functionals))
    values = compiled.values(outcome.functionals)
    return [
        TooFewRows(
            compiled.constraints[j],
            "",
            rows_of_smallest_group(rows.cells, compiled, j, counts),
            float(values[j]),
            *map(float, outcome.intervals[j]),
        )
        for j in np.unique(compiled.owner[left > bounds + ROUNDING])
    ]


def _find_unsteady(outcome: Outcome, constraints: Sequence[Constraint]) -> tuple[int, ...]:
    """Find the constraints on which the folds differ, and that the interval may violate."""
    differ = np.flatnonzero(outcome.is_unsteady).tolist()
    return tuple(j for j in differ if reaches_beyond(constraints[j], outcome.intervals[j]))


def _list_doubts(
    returned: ReturnedModel, few: Sequence[TooFewRows], unsteady: Sequence[Constraint]
) -> dict[Constraint, str]:
    """List the evidence that speaks against the values of constraints."""
    choice = returned.choice
    if choice.is_uncertified or returned.misses_conformal_bounds:
        asked = "high_probability" if returned.bounds is None else "expected"
        reason, compiled = describe_missing_guarantee(asked), returned.rows.compiled
        named = itertools.compress(compiled.constraints, find_first_constraints(compiled))
        return dict.fromkeys(named, reason)
    differ = dict.fromkeys(unsteady, "the boosters of the folds differ beyond chance")
    return {**differ, **{rate.constraint: rate.reason for rate in reversed(few)}}


def _list_results(
    scored: ScoredRows,
    returned: ReturnedModel,
    conflict: _Conflict,
    doubts: dict[Constraint, str],
) -> tuple[ConstraintResult, ...]:
    """List the value, interval and verdict of each constraint."""
    compiled, rows, outcome = scored.rows.compiled, returned.rows, returned.outcome
    values, counts = compiled.values(outcome.functionals), returned.counts
    unshifted = _find_broken_by_shift(scored, returned.choice, values)
    results = []
    for j, constraint in enumerate(compiled.constraints):
        estimate = Estimate(float(values[j]), *map(float, outcome.intervals[j]))
        verdict = Verdict.of(
            constraint,
            estimate,
            rows_of_constraint(rows.cells, rows.compiled, j),
            rows.source,
            doubt=doubts.get(constraint, ""),
            conflict=[compiled.constraints[k] for k in conflict.of(j)],
            left_out=compiled.left_out(j),
        )
        n_rows = rows_of_smallest_group(rows.cells, compiled, j, counts)
        alone, with_others = conflict.best.get(j, (np.nan, np.nan))
        results.append(
            ConstraintResult(
                constraint,
                *estimate,
                n_rows,
                verdict,
                alone=alone,
                with_others=with_others,
                given_up_for=tuple(compiled.constraints[k] for k in conflict.given_up.get(j, ())),
                unshifted=float(unshifted[j]),
            )
        )
    return tuple(results)


def _find_broken_by_shift(scored: ScoredRows, choice: Choice, values: Float) -> Float:
    """Find the value without the shift of each mean loss that the shift breaks; NaN for others.

    The shift is chosen by what decisions do, and mean losses are of probabilities.
    """
    rows, compiled = scored.rows, scored.rows.compiled
    is_loss: Bool = np.array([constraint.is_loss for constraint in compiled.constraints], bool)
    if not (choice.shift.any() and is_loss.any()):
        return np.full(is_loss.size, np.nan)
    margin = scored.margins(choice.rounds)
    before = compiled.values(rows.functionals(margin))
    sign = np.array([constraint.sign for constraint in compiled.constraints])
    is_broken = is_loss & ~compiled.is_satisfied(values) & (sign * (values - before) > 0.0)
    return np.where(is_broken, before, np.nan)


def _is_met_by_constant(rows: EvaluationSet) -> bool:
    """Whether all constraints are gaps of rates, which one class for all rows meets."""
    compiled = rows.compiled
    is_binary = rows.cells.classes.size == 2
    are_gaps = bool((compares_groups(compiled) & ~compiled.has_scores).all())
    return is_binary and are_gaps and not compiled.curves.items and not np.any(compiled.b < 0.0)


def _find_best_constant(rows: EvaluationSet) -> tuple[Any, float]:
    """Find the class and error of the best constant decision that meets the constraints."""
    best, best_error = None, np.nan
    for k, label in enumerate(rows.cells.classes):
        decided = np.full(len(rows.cells.rows), k, dtype=np.intp)
        functionals = functionals_of(rows.compiled, CellCounts.of(rows.cells, decided))
        left = rows.compiled.rows_of(np.nan_to_num(functionals))
        left = np.where(rows.compiled.has_scores, -np.inf, left)
        error = rows.error(decided)
        if (left <= rows.compiled.b + ROUNDING).all() and not error >= best_error:
            best, best_error = to_python_scalar(label), error
    return best, best_error


def _measure_free_error(scored: ScoredRows, candidates: Sequence[int]) -> float:
    """Measure the error of the best decision of a model without constraints."""
    rows = scored.rows
    free = np.full(len(rows.compiled), np.inf)

    def at(margin: Array) -> float:
        if margin.ndim > 1:  # Biases of several classes take longer to find, and matter less.
            return rows.error(rows.decisions(margin))
        return ShiftSearch(margin, rows.cells, rows.compiled).find(bounds=free).error

    return min(at(scored.margins(prefix)) for prefix in candidates)


def is_hardly_better(error: float, constant_error: float, free_error: float, n: int) -> bool:
    """Whether constraints cost most of what a model gains over a constant decision."""
    gain = constant_error - free_error
    noise = 2.0 * np.sqrt(max(constant_error * (1.0 - constant_error), 0.0) / n)
    is_near = error > FRAGILE_ERROR * constant_error
    has_gain = free_error < FRAGILE_ERROR * constant_error and gain > noise
    return bool(is_near and has_gain and constant_error - error < FRAGILE_GAIN * gain)


def _measure_cost(
    scored: ScoredRows, returned: ReturnedModel, error: float, unconstrained_error: float
) -> Cost:
    """Measure the errors that the constraints cost on the rows that the model was chosen by."""
    if returned.is_unconstrained:
        return Cost(error, error, error)
    rows, choice = scored.rows.credible, returned.choice
    if rows.compiled.has_tables_alone:
        return Cost(error, unconstrained_error=unconstrained_error)  # Thresholds move none.
    margin = scored.margins(choice.rounds)
    # The shift is the one returned: those of the folds may be far from it, and cost more.
    own = rows.error(rows.decisions(shift_scores(margin, choice.shift)))
    bounds = rows.compiled.b
    if returned.bounds is not None:
        bounds = np.minimum(bounds, returned.bounds)
    if np.isfinite(choice.level):
        spread = standard_errors(returned.rows.compiled, returned.counts)
        spread[~find_first(rows.compiled)] = 0.0
        bounds = rows.compiled.b - norm.isf(choice.level) * spread
    return measure_cost(rows, margin, choice.shift, bounds, own, unconstrained_error)
