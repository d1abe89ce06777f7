"""Choice of the prefix of the ensemble that is returned, and of its shift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.choose import PRICE_OF_SCORES, VIOLATION_PRICE
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.priorities import PriorityLevels
from gbm_constrained.decision.rule import Choice, shift_scores
from gbm_constrained.decision.standard_errors import standard_error_of, standard_errors
from gbm_constrained.decision.threshold_search import Shift, ShiftSearch
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.row_owners import compares_groups, is_priced
from gbm_constrained.statistics.counts import CellCounts, functionals_of

Criterion: TypeAlias = Literal["error", "auc"]
CRITERIA: tuple[Criterion, ...] = ("error", "auc")
Chosen = TypeVar("Chosen")
N_PREFIXES = 12  # Prefixes that a free choice looks at.
# Times that a table of scores is split for shifts that are compared and not returned.
FEW_SPLITS = 1
# Multiples of the cross-fitted violation by which a shift leaves room, tried one after the other.
ROOM = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
# Further errors, as a share of rows, at which a shift still aims inside the bounds, and beyond
# which held comparisons are dear.
MAX_ERROR_INCREASE = 0.02


@dataclass(frozen=True)
class Prefixes:
    """The prefixes of an ensemble that a choice may return.

    Without `has_free_choice` the whole ensemble is kept, unless comparisons of groups are to be
    met at any price and no shift of it meets them at :data:`MAX_ERROR_INCREASE` further errors.
    """

    rounds: int  # Boosting rounds of the whole ensemble.
    rounds_per_iteration: int  # Boosting rounds of an outer iteration.
    has_free_choice: bool = False
    criterion: Criterion = "error"  # What is best among prefixes that meet the constraints.

    @property
    def candidates(self) -> list[int]:
        """Rounds of the candidates: few, and denser where models change fast."""
        step = self.rounds_per_iteration
        last = max(self.rounds // step, 1)
        iterations = np.unique(np.geomspace(min(3, last), last, N_PREFIXES).round().astype(int))
        return [*(int(k) * step for k in iterations[:-1]), self.rounds]


def choose_prefix(
    scored: ScoredRows,
    prefixes: Prefixes,
    *,
    refit_violation: Callable[[int, Float], float] = lambda rounds, shift: 0.0,
    found: dict[int, Choice] | None = None,
) -> Choice:
    """Find the prefix and shift with the smallest error that satisfy the constraints.

    A comparison of groups that only a costly shift would meet is violated: a shift is common to
    all groups, and closes gaps between them by deciding nearly all rows alike. Each such violation
    costs its :data:`~gbm_constrained.decision.choose.VIOLATION_PRICE`.

    `refit_violation` is the violation beyond sampling error by the model of all rows, given rounds
    and a shift, which has the same price. `found` holds prefixes at
    their best shift by the same scores, and missing ones are added.
    """
    found = {} if found is None else found
    rows, rounds, criterion = scored.rows, prefixes.rounds, prefixes.criterion

    def at(prefix: int) -> Choice:
        if prefix not in found:
            found[prefix] = _choose_shift(scored, prefix, criterion, is_final=prefix == rounds)
        return found[prefix]

    def with_refit(choice: Choice) -> Choice:
        return replace(choice, refit_violation=refit_violation(choice.rounds, choice.shift))

    def rank(choice: Choice) -> tuple[bool, float, float]:
        # The later of equal prefixes comes first, for the user asked for so many rounds.
        penalised = choice.loss + VIOLATION_PRICE * choice.refit_violation
        return (choice.has_rate_violation, penalised, -choice.rounds)

    whole = at(rounds)
    if not (prefixes.has_free_choice or _is_dear(rows, scored.margins(rounds), whole)):
        return whole
    best = with_refit(whole)
    for other in sorted(map(at, prefixes.candidates[:-1]), key=rank):
        if rank(other) > rank(best):
            break  # A violation after refitting only makes the following prefixes worse.
        best = min(best, with_refit(other), key=rank)
    if best.rounds == rounds or rows.cells.communicator.holds_all_rows:
        return best
    found[best.rounds] = _choose_shift(scored, best.rounds, criterion, is_final=True)
    return with_refit(found[best.rounds])


def _is_dear(rows: EvaluationSet, margin: Array, whole: Choice) -> bool:
    """Whether comparisons of groups that are to be met at any price cost a whole ensemble much."""
    compiled = rows.compiled
    is_held = compares_groups(compiled) & ~is_priced(compiled)
    if not (is_held.any() or PriorityLevels.of(compiled, rows.cells).are_several):
        return False
    cost = whole.error - rows.error(rows.decisions(margin))
    return whole.violation > 0.0 or cost > MAX_ERROR_INCREASE


def _choose_shift(
    scored: ScoredRows, prefix: int, criterion: Criterion, *, is_final: bool
) -> Choice:
    """Find the best shift of one prefix, its error and violations, and its loss as a prefix.

    Where machines hold different rows, the shift is exact only of a prefix that may be the final
    one.
    """
    rows, margin = scored.rows, scored.margins(prefix)
    compiled = rows.compiled
    tightened = tightened_bounds(compiled, rows.counts(rows.decisions(margin)))
    most_splits = None if is_final else FEW_SPLITS
    search = ShiftSearch(margin, rows.cells, compiled, most_splits=most_splits)
    best, bounds = _search_inside(search, tightened)
    left = compiled.rows_of(np.nan_to_num(best.functionals)) - compiled.b
    left[list(best.uncalibrated)] = 0.0
    of_tables = _violation_of_tables(rows, margin)
    has_violation = bool((left[~is_priced(compiled)] > ROUNDING).any())
    loss = best.loss if best.violation > 0.0 else best.error
    if criterion == "auc":
        loss += (1.0 - rows.auc(margin, search.table)) - best.error
    return Choice(
        prefix,
        best.value,
        best.error,
        best.violation,
        bounds=bounds,
        loss=loss + PRICE_OF_SCORES * of_tables,
        has_rate_violation=has_violation or of_tables > ROUNDING,
    )


def _violation_of_tables(rows: EvaluationSet, margin: Array) -> float:
    """Find the largest violation of pair rates and calibration errors, which no shift changes."""
    if not rows.compiled.has_tables.any():
        return 0.0
    return float(rows.violations(margin)[rows.compiled.has_tables].max(initial=0.0))


def find_at_a_price(search: ShiftSearch, bounds: Float | None = None) -> Shift:
    """Find the best shift under the price of violations.

    Comparisons of groups of two classes have it also where they can be met.
    """
    cells = search.cells
    compares = is_priced(search.compiled) if cells.classes.size == 2 else None
    return search.find(bounds=bounds, penalty=VIOLATION_PRICE, is_penalised=compares)


def _search_inside(search: ShiftSearch, tightened: Float) -> tuple[Shift, Float]:
    """Find the best shift for tightened bounds if that costs little, for the bounds otherwise.

    Comparisons of groups have their penalty, unless a standard error of the errors is enough for a
    shift that meets them. The right-hand sides that the shift was chosen by are returned with it.
    """
    cells, compiled = search.cells, search.compiled
    found = find_at_a_price(search)
    has_price = cells.classes.size == 2 and is_priced(compiled).any()
    if has_price and not found.is_feasible:
        met = search.find()
        affordable = found.error + standard_error_of(found.error, cells.n_rows)
        if met.is_feasible and met.error <= affordable:
            found = met
    if (tightened < compiled.b).any():
        inside = search.find(bounds=tightened)
        if inside.is_feasible and inside.error <= found.error + MAX_ERROR_INCREASE:
            return inside, tightened
    if search.levels.are_several and not found.is_feasible:
        return _leave_room_above(search, found)
    return found, compiled.b


def _leave_room_above(search: ShiftSearch, found: Shift) -> tuple[Shift, Float]:
    """Tighten the bounds that are met while those of a priority that follows are not.

    Such a bound is met with nothing to spare, since another one pulls against it, and half of all
    samples would find it violated. A standard error of room is left, which costs no more than
    constraints that are given up anyway. Comparisons of groups, which have a price, have none.
    """
    cells, compiled = search.cells, search.compiled
    violations = compiled.rows_of(np.nan_to_num(found.functionals)) - compiled.b
    violations[[*found.uncalibrated]] = 0.0
    above = search.levels.find_met_above(violations) & ~compares_groups(compiled)
    errors = standard_errors(compiled, CellCounts.of_shares(cells, found.shares))
    room = np.where(above, errors, 0.0)
    moved = find_at_a_price(search, compiled.b - room)
    left = compiled.rows_of(np.nan_to_num(moved.functionals)) - compiled.b + room
    is_met = bool((left[above] <= ROUNDING).all())
    return (moved, compiled.b - room) if is_met else (found, compiled.b)


def cross_fitted_decisions(
    rows: EvaluationSet,
    margin: Array,
    choice: Choice,
    search_others: Callable[[int], ShiftSearch] | None = None,
) -> Codes:
    """Decide each fold by the shift that the other folds would have chosen.

    A shift looks a little better on the rows that chose it than on new ones. The other folds
    search with the bounds of the choice: of a gap that no common threshold closes, they would not
    have gone inside the bound at any penalty. Several classes, whose shifts take longer to find,
    are decided by their common one. So are rows under constraints that the choice violates: a fold
    might choose another way out there.

    `search_others` gives the search of all folds but one, given its position.
    """
    is_common = len(rows.folds) < 2 or not choice.shift.any()
    if margin.ndim > 1 or is_common or choice.violation > 0.0:
        return rows.decisions(shift_scores(margin, choice.shift))
    bounds = rows.compiled.b if choice.bounds is None else choice.bounds
    search_others = search_others or partial(_search_others, rows, margin)
    decisions = np.empty(margin.size, dtype=np.intp)
    for k, fold in enumerate(rows.folds):
        found, _ = _search_inside(search_others(k), bounds)
        decisions[fold] = rows.decisions(margin[fold] + found.value[0])
    return decisions


def _search_others(rows: EvaluationSet, margin: Array, k: int) -> ShiftSearch:
    """Search all folds but one, not to the last score where machines hold different rows."""
    others = np.setdiff1d(np.arange(margin.size), rows.folds[k], assume_unique=True)
    cells = rows.cells.take(others)
    return ShiftSearch(margin[others], cells, rows.compiled.on(cells), most_splits=FEW_SPLITS)


def choose_with_room(rows: EvaluationSet, margin: Array, choice: Choice) -> tuple[Choice, Codes]:
    """Move a shift until cross-fitted decisions satisfy the constraints, too.

    A shift that meets a constraint exactly misses it by little on rows that have not chosen it.
    The shift is moved as long as that costs no more than a standard error of the errors. Decisions
    of :func:`cross_fitted_decisions` are returned with the choice.
    """
    search_others: Callable[[int], ShiftSearch] = partial(_search_others, rows, margin)
    if not rows.cells.communicator.holds_all_rows:  # Tables are kept, and sorted scores are not.
        search_others = cache(search_others)
    decisions = cross_fitted_decisions(rows, margin, choice, search_others)
    if margin.ndim > 1 or choice.violation > 0.0:
        return choice, decisions
    violations = _violations(rows, margin, choice, decisions)
    if violations.max(initial=0.0) <= ROUNDING:
        return choice, decisions
    bounds = rows.compiled.b if choice.bounds is None else choice.bounds
    affordable = choice.error + standard_error_of(choice.error, rows.cells.n_rows)
    search = ShiftSearch(margin, rows.cells, rows.compiled)

    def move(tighter: Float) -> tuple[tuple[Choice, Codes], Float] | None:
        found = search.find(bounds=tighter)
        if not found.is_feasible or found.error > affordable:
            return None
        moved = replace(choice, shift=found.value, error=found.error, bounds=tighter)
        decided = cross_fitted_decisions(rows, margin, moved, search_others)
        return (moved, decided), _violations(rows, margin, moved, decided)

    return leave_room((choice, decisions), bounds, violations, move)


def leave_room(
    chosen: Chosen,
    bounds: Float,
    violations: Float,
    move: Callable[[Float], tuple[Chosen, Float] | None],
) -> Chosen:
    """Tighten bounds by more and more of the cross-fitted violations, until there are none.

    Parameters
    ----------
    chosen : object
        What was chosen under the bounds; returned if no move succeeds.
    bounds, violations : ndarray of shape (m,)
        Right-hand sides of the constraints, and their cross-fitted violations.
    move : callable
        Given tighter bounds, finds another choice with its cross-fitted violations; None if none
        is affordable.
    """
    for share in ROOM:
        found = move(bounds - share * violations)
        if found is None:
            break
        moved, violated = found
        if violated.max() <= ROUNDING:
            return moved
    return chosen


def _violations(rows: EvaluationSet, margin: Array, choice: Choice, decisions: Codes) -> Float:
    """Compute the violation of each row of constraints, apart from those on scores."""
    found = rows.violations(shift_scores(margin, choice.shift), rows.counts(decisions))
    return np.where(rows.compiled.has_scores, 0.0, np.maximum(found, 0.0))


def tightened_bounds(compiled: LinearConstraints, counts: CellCounts) -> Float:
    """Tighten the bounds of comparisons of groups for held-out rows.

    A comparison of groups is broken from two sides: whichever group is ahead, noise of the sample
    and of the model pushes the gap up and never down. A gap brought to its bound out of fold lies
    beyond the bound on new rows, on average. Such bounds are therefore tightened by one standard
    error (the rule of Breiman et al., 1984, section 3.4.3), but by no more than half of the way to
    equality. All other bounds stay.
    """
    compares = compares_groups(compiled)
    if not compares.any():
        return compiled.b
    filled = np.nan_to_num(functionals_of(compiled, counts))
    equal = filled.copy()
    for constraint, span in zip(compiled.constraints, compiled.spans, strict=True):
        by_group = filled[span].reshape(-1, max(len(constraint.rates), 1))
        equal[span] = np.tile(by_group.mean(axis=0), len(by_group))
    room = np.maximum(compiled.b - compiled.rows_of(equal), 0.0)
    margin = np.minimum(standard_errors(compiled, counts), 0.5 * room)
    return np.asarray(compiled.b - np.where(compares, margin, 0.0))
