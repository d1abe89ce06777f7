"""From an evaluation set to a verdict on each constraint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.evaluation_set import UnseenRows
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.decision.prefix_choice import Margins, prefixes, standard_errors
from gbm_constrained.decision.rule import MET, Choice, shifted
from gbm_constrained.decision.threshold_search import best_shift
from gbm_constrained.evaluation.conflicts import DecisionPool, _told
from gbm_constrained.evaluation.costs import Cost, measure_cost
from gbm_constrained.evaluation.feasibility import Feasibility, RuleReached
from gbm_constrained.evaluation.sample_size import TooFewRows, find_too_few_rows
from gbm_constrained.evaluation.verdicts import (
    Verdict,
    reaches_beyond,
    rows_of_constraint,
    rows_of_smallest_group,
)
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.p_values import constraint_p_values

HARDLY = 0.8  # Of the error of a constant decision.
GAIN_KEPT = 0.5  # Of what the model knows.


def judge(
    rows: UnseenRows,
    margins: Margins,
    rounds: int,
    rounds_per_iteration: int,
    choice: Choice,
    reported: UnseenRows,
    decisions: Codes,
    outcome: Outcome,
    bounds: Float | None = None,
    untouched: bool = False,
    plain_error: float = np.nan,
) -> Feasibility:
    """Judge rules by what a model can do on rows that it has not seen.

    Parameters
    ----------
    rows : UnseenRows
        The rows that the model was chosen by.
    margins : callable
        Their scores after some rounds.
    rounds, rounds_per_iteration : int
        Length of the whole ensemble, and of an outer iteration.
    choice : Choice
        The model returned: it violates the rules least.
    reported : UnseenRows
        The rows that report on it: the same, or those of a certificate.
    decisions : ndarray of int
        Its decisions on them.
    outcome : Outcome
        What the rules are worth on them.
    bounds : ndarray of shape (m,), default=None
        Tighter right-hand sides that the choice had to meet.
    untouched : bool, default=False
        Whether the model and its decisions are those without rules, which then cost nothing.
    plain_error : float, default=NaN
        Error of boosters without multipliers on `rows`, if there are any.
    """
    compiled = rows.compiled
    reached: list[tuple[float, float]] = [(np.nan, np.nan)] * len(compiled.constraints)
    conflict: tuple[int, ...] = ()
    unmet: tuple[int, ...] = ()
    broken = np.zeros(len(compiled.constraints), dtype=bool)
    certified = choice.p_value <= choice.level
    counts = CellCounts.of(reported.cells, decisions)
    told = _told(reported.compiled, counts).all()
    if not certified and (choice.excess > 0.0 or choice.uncertified or not told):
        pool = DecisionPool(rows, margins, prefixes(rounds, rounds_per_iteration), choice)
        conflict = unmet = pool.conflict()
        for j in conflict:
            reached[j] = pool.best(j, conflict)
        if not conflict:
            broken = pool.told[0] & ~pool.reached[0]
        if not conflict and choice.uncertified:
            p_values = constraint_p_values(reported.compiled, counts)
            conflict = tuple(np.flatnonzero(p_values > choice.level).tolist())
            broken[:] = False  # what is not certified is told of as that
    named = {compiled.constraints[j] for j in conflict}
    error = reported.error(decisions)
    constant, constant_error, free_error = None, np.nan, np.nan
    is_fragile = False
    few: list[TooFewRows] = []
    if not conflict:
        constant, constant_error = _best_constant(reported)
        if error > HARDLY * constant_error and not untouched:
            free_error = _free_error(rows, margins, prefixes(rounds, rounds_per_iteration))
            is_fragile = _is_fragile(error, constant_error, free_error, len(decisions))
    if not np.isfinite(choice.p_value):
        few = find_too_few_rows(
            reported.cells,
            reported.compiled,
            counts,
            outcome.functionals,
            outcome.sampled.rules,
            outcome.sampled.rates,
        )
        # A rule in conflict is told of already.
        few = [rate for rate in few if rate.constraint not in named]
        if bounds is not None and choice.excess > 0.0 and not conflict:
            few += _out_of_reach(reported, counts, outcome, bounds, few)
    values = compiled.values(outcome.functionals)
    unshifted = _broken_by_shift(rows, margins, choice, values)
    doubts = {rate.constraint: rate.reason for rate in reversed(few)}
    unsteady: list[int] = []
    if not conflict:  # what gives way to other rules is no promise
        for j in np.flatnonzero(outcome.unsteady).tolist():
            constraint = compiled.constraints[j]
            if reaches_beyond(constraint, outcome.intervals[j]):
                unsteady.append(j)
                doubts.setdefault(constraint, "the boosters of the folds differ beyond chance")
    if choice.uncertified or (bounds is not None and choice.excess > 0.0):
        asked = "expected" if bounds is not None else "high_probability"
        not_given = f"guarantee={asked!r} was asked for and is not given"
        doubts = dict.fromkeys(compiled.constraints, not_given)
    rules = tuple(
        RuleReached(
            constraint,
            float(values[j]),
            float(outcome.intervals[j, 0]),
            float(outcome.intervals[j, 1]),
            rows_of_smallest_group(reported.cells, compiled, j, counts),
            Verdict.of(
                constraint,
                values[j],
                outcome.intervals[j],
                rows_of_constraint(reported.cells, reported.compiled, j),
                reported.source,
                doubt=doubts.get(constraint, ""),
                conflict=[compiled.constraints[k] for k in unmet],
            ),
            *reached[j],
            unshifted=float(unshifted[j]),
        )
        for j, constraint in enumerate(compiled.constraints)
    )
    left = [rules[j] for j in np.flatnonzero(broken) if rules[j].verdict.kind == "missed"]
    cost = Cost(error, error, error)
    if not untouched:
        chosen = margins(choice.rounds)
        # By the shift that is returned: those of the folds may be far from it, and cost more.
        own = rows.decisions(shifted(chosen, choice.shift))
        right = compiled.b if bounds is None else bounds
        if np.isfinite(choice.level):
            right = compiled.b - norm.isf(choice.level) * standard_errors(
                reported.compiled, reported.cells, outcome.functionals
            )
        cost = measure_cost(rows, chosen, choice.shift, right, rows.error(own), plain_error)
    return Feasibility(
        tuple(compiled.constraints[j] for j in conflict),
        rules,
        tuple(few),
        tuple(rules[j] for j in unsteady),
        error,
        constant,
        constant_error,
        free_error,
        reported.source,
        len(decisions),
        choice.p_value,
        choice.level,
        left=tuple(left),
        is_fragile=is_fragile,
        cost=cost,
    )


def _broken_by_shift(rows: UnseenRows, margins: Margins, choice: Choice, values: Float) -> Float:
    """Value of each constraint without the shift, if it is a mean loss that the shift breaks.

    The shift is chosen by what decisions do, and mean losses are of probabilities. NaN for all
    other constraints.
    """
    compiled = rows.compiled
    is_loss = np.array([constraint.is_loss for constraint in compiled.constraints], dtype=bool)
    if not (choice.shift.any() and is_loss.any()):
        return np.full(is_loss.size, np.nan)
    margin = margins(choice.rounds)
    before = compiled.values(rows.functionals(margin, rows.counts(rows.decisions(margin))))
    sign = np.array([constraint.sign for constraint in compiled.constraints])
    broken = is_loss & ~compiled.satisfied(values) & (sign * (values - before) > 0.0)
    return np.where(broken, before, np.nan)


def _best_constant(rows: UnseenRows) -> tuple[Any, float]:
    """Class and error of the best constant decision that meets the rules; None without one."""
    best, best_error = None, np.nan
    for k, label in enumerate(rows.cells.classes):
        decided = np.full(len(rows.cells.rows), k, dtype=np.intp)
        functionals = functionals_of(rows.compiled, CellCounts.of(rows.cells, decided))
        losses = np.diff(rows.compiled.V.indptr) > 0
        left = rows.compiled.rows_of(np.where(losses, -np.inf, np.nan_to_num(functionals)))
        error = rows.error(decided)
        if (left <= rows.compiled.b + MET).all() and not error >= best_error:
            best, best_error = getattr(label, "item", lambda label=label: label)(), error
    return best, best_error


def _free_error(rows: UnseenRows, margins: Margins, candidates: Sequence[int]) -> float:
    """Error of the best decision of a model if there were no rules."""
    several = rows.cells.classes.size > 2
    free = np.full(len(rows.compiled), np.inf)

    def at(margin: Array) -> float:
        if several:  # whose biases take longer to find, and matter less
            return rows.error(rows.decisions(margin))
        return best_shift(margin, rows.cells, rows.compiled, bounds=free).error

    return min(at(margins(prefix)) for prefix in candidates)


def _is_fragile(error: float, constant_error: float, free_error: float, n: int) -> bool:
    """Whether rules cost most of what a model knows more than a constant decision."""
    gain = constant_error - free_error
    noise = 2.0 * np.sqrt(constant_error * (1.0 - constant_error) / n)
    knows = free_error < HARDLY * constant_error and gain > noise
    return bool(knows and constant_error - error < GAIN_KEPT * gain)


def _out_of_reach(
    rows: UnseenRows,
    counts: CellCounts,
    outcome: Outcome,
    bounds: Float,
    known: Sequence[TooFewRows],
) -> list[TooFewRows]:
    """Rules that hold on these rows, but not as tightly as a guarantee asks for."""
    compiled = rows.compiled
    left = compiled.rows_of(np.nan_to_num(outcome.functionals))
    short = np.unique(compiled.owner[left > bounds + MET])
    named = {few.constraint for few in known}
    values = compiled.values(outcome.functionals)
    return [
        TooFewRows(
            compiled.constraints[j],
            "",
            rows_of_smallest_group(rows.cells, compiled, j, counts),
            float(values[j]),
            *map(float, outcome.intervals[j]),
        )
        for j in short
        if compiled.constraints[j] not in named
    ]
