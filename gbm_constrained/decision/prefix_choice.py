"""Which prefix of the ensemble is returned, with which shift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.evaluation_set import UnseenRows
from gbm_constrained.decision.rule import MET, Choice, shifted
from gbm_constrained.decision.threshold_search import Shift, ShiftSearch
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.statistics.counts import functionals_of

PREFIXES = 12  # Prefixes that are looked at where one is to be chosen.
FEW_PREFIXES = 3  # The last of these, for several classes.
# Errors that a violation is worth where not all rules can be met: the last of it would otherwise
# cost any number of them. Of several classes, and of one that is told by training rows; of two
# classes, where a gap or ratio of groups has this price also if it can be met.
PRICE, DEAR = 3.0, 10.0
# Shares of a violation by which a shift leaves room, one after the other.
ROOM = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
COSTLY = 0.02  # Further errors by a shift beyond which other prefixes are looked at, too.
Margins: TypeAlias = Callable[[int], Array]


def prefixes(rounds: int, rounds_per_iteration: int) -> list[int]:
    """List the rounds of the prefixes to look at: few, and denser where models change fast."""
    last = max(rounds // rounds_per_iteration, 1)
    iterations = np.unique(np.geomspace(min(3, last), last, PREFIXES).round().astype(int))
    return [*(int(k) * rounds_per_iteration for k in iterations[:-1]), rounds]


def price(cells: Cells) -> float:
    """Errors that a violation on these rows is worth where not all rules can be met."""
    return DEAR if cells.classes.size == 2 else PRICE


def choose(
    rows: UnseenRows,
    margins: Margins,
    rounds: int,
    rounds_per_iteration: int,
    *,
    among_prefixes: bool,
    stray: Callable[[int, Float], float] = lambda rounds, shift: 0.0,
    found: dict[int, Choice] | None = None,
) -> Choice:
    """Prefix and shift of smallest error under which the rules hold on unseen rows.

    A comparison of groups that only a costly shift would meet is violated: a shift is common to
    all groups, and closes gaps between them by deciding nearly all rows alike. Each such violation
    has its :func:`price`.

    Parameters
    ----------
    rows : UnseenRows
        The rows.
    margins : callable
        Their scores after some rounds.
    rounds, rounds_per_iteration : int
        Length of the whole ensemble, and of an outer iteration.
    among_prefixes : bool
        Whether any prefix may be better; otherwise the whole ensemble is kept if some shift of it
        meets the rules, at the cost of no more than :data:`COSTLY` further errors.
    stray : callable, default=0
        Given rounds and a shift, how far the model that would be returned breaks a rule beyond
        sampling error, although those that scored the rows may not; worth :data:`PRICE` errors.
    found : dict from int to Choice, default=None
        Prefixes at their best shift that an earlier call has found by the same scores; those that
        are missing are added.
    """
    found = {} if found is None else found

    def at(prefix: int) -> Choice:
        if prefix not in found:
            margin = margins(prefix)
            start = functionals_of(rows.compiled, rows.counts(rows.decisions(margin)))
            aimed = aims(rows.compiled, rows.cells, start)
            best, used = _aimed_shift(margin, rows.cells, rows.compiled, aimed)
            found[prefix] = _choice_of(rows, prefix, best, used)
        return found[prefix]

    def told(choice: Choice) -> Choice:
        return replace(choice, stray=stray(choice.rounds, choice.shift))

    def rank(choice: Choice) -> tuple[bool, float, float]:
        # The later of equals, for that is what was asked for.
        return (choice.breaks_rates, choice.loss + PRICE * choice.stray, -choice.rounds)

    whole = at(rounds)
    cost = whole.error - rows.error(rows.decisions(margins(rounds)))
    if whole.excess == 0.0 and cost <= COSTLY and not among_prefixes:
        return whole
    others = prefixes(rounds, rounds_per_iteration)[:-1]
    if rows.cells.classes.size > 2:  # whose shifts take longer to find
        others = others[-FEW_PREFIXES:]
    best = told(whole)
    for other in sorted(map(at, others), key=rank):
        if rank(other) > rank(best):
            break  # nor are those that follow better, whether they stray or not
        best = min(best, told(other), key=rank)
    return best


def compares_groups(compiled: CompiledConstraints) -> Bool:
    """Whether each row of constraints is of a gap or a ratio of groups, shape (m,)."""
    kinds = [c.expression.compares_pairs for c in compiled.constraints]
    return np.asarray(np.array(kinds, dtype=bool)[compiled.owner])


def _choice_of(rows: UnseenRows, prefix: int, best: Shift, bounds: Float) -> Choice:
    """Give a prefix at its best shift, and what that is worth."""
    compiled = rows.compiled
    loss = best.loss if best.excess > 0.0 else best.error
    left = compiled.rows_of(np.nan_to_num(best.functionals)) - compiled.b
    left[list(best.uncalibrated)] = 0.0
    broken = bool((left[~compares_groups(compiled)] > MET).any())
    return Choice(
        prefix, best.value, best.error, best.excess, bounds=bounds, loss=loss, breaks_rates=broken
    )


def _aimed_shift(
    margin: Array, cells: Cells, compiled: CompiledConstraints, aimed: Float
) -> tuple[Shift, Float]:
    """Aim inside the bounds if that is possible and costs little, and at them otherwise.

    Comparisons of groups have their price, unless a standard error of the errors is enough for a
    shift that meets them.

    Returns
    -------
    shift : Shift
        The best shift to there.
    bounds : ndarray of shape (m,)
        The right-hand sides that it was chosen by.
    """
    asked = compiled.b
    priced = compares_groups(compiled) if margin.ndim == 1 else None
    search = ShiftSearch(margin, cells, compiled)
    found = search.best(price=price(cells), priced=priced)
    if priced is not None and priced.any() and not found.feasible:
        firm = search.best()
        if firm.feasible and firm.error <= found.error + standard_error_of(
            found.error, len(margin)
        ):
            found = firm
    if (aimed < asked).any():
        inside = search.best(bounds=aimed)
        if inside.feasible and inside.error <= found.error + COSTLY:
            return inside, aimed
    return found, asked


def standard_error_of(error: float, n_rows: int) -> float:
    """Give the standard error of an error on so many rows; NaN for an error that is NaN.

    Parameters
    ----------
    error : float
        Share of the rows that is decided wrongly.
    n_rows : int
        Number of rows.
    """
    return float(np.sqrt(error * (1.0 - error) / n_rows))


def honest_decisions(rows: UnseenRows, margin: Array, choice: Choice) -> Codes:
    """Decisions on cross-fitted rows by shifts that were chosen without them.

    A shift chosen by the very rows that report it looks a little better than it is. So each fold
    is decided by the shift that the other folds would have chosen, with the aims of the choice: of
    a gap that no common threshold closes, they would not have gone inside the bound at any price.
    Several classes, whose shifts take longer to find, are decided by their common one. So are rows
    under rules that the choice violates: what a fold would choose there may be another way out.
    """
    alone = len(rows.folds) < 2 or not choice.shift.any()
    if margin.ndim > 1 or alone or choice.excess > 0.0:
        return rows.decisions(shifted(margin, choice.shift))
    aimed = rows.compiled.b if choice.bounds is None else choice.bounds
    decided = np.empty(margin.size, dtype=np.intp)
    everyone = np.arange(margin.size)
    for fold in rows.folds:
        others = np.setdiff1d(everyone, fold, assume_unique=True)
        cells = rows.cells.take(others)
        found, _ = _aimed_shift(margin[others], cells, rows.compiled.on(cells), aimed)
        decided[fold] = rows.decisions(margin[fold] + found.value[0])
    return decided


def choose_with_room(rows: UnseenRows, margin: Array, choice: Choice) -> tuple[Choice, Codes]:
    """Move a shift until decisions by shifts that were chosen without them meet the rules, too.

    A shift that meets a rule exactly misses it by a hair on rows that have not chosen it. It is
    moved as long as that costs no more than a standard error of the errors.

    Parameters
    ----------
    rows : UnseenRows
        The rows.
    margin : ndarray
        Their scores under the prefix of the choice.
    choice : Choice
        The best decision by all of these rows.

    Returns
    -------
    choice : Choice
        With a shift that leaves room, where that is possible.
    decisions : ndarray of int
        See :func:`honest_decisions`.
    """
    decisions = honest_decisions(rows, margin, choice)
    if margin.ndim > 1 or choice.excess > 0.0:
        return choice, decisions
    missed = _missed(rows, margin, choice, decisions)
    if missed.max(initial=0.0) <= MET:
        return choice, decisions
    aimed = rows.compiled.b if choice.bounds is None else choice.bounds
    affordable = choice.error + standard_error_of(choice.error, len(margin))
    search = ShiftSearch(margin, rows.cells, rows.compiled)
    for share in ROOM:
        bounds = aimed - share * missed
        found = search.best(bounds=bounds)
        if not found.feasible or found.error > affordable:
            break
        roomy = replace(choice, shift=found.value, error=found.error, bounds=bounds)
        decided = honest_decisions(rows, margin, roomy)
        if _missed(rows, margin, roomy, decided).max() <= MET:
            return roomy, decided
    return choice, decisions


def _missed(rows: UnseenRows, margin: Array, choice: Choice, decisions: Codes) -> Float:
    """How far decisions violate each row of constraints, apart from those on mean losses."""
    compiled = rows.compiled
    functionals = rows.functionals(shifted(margin, choice.shift), rows.counts(decisions))
    left = compiled.rows_of(np.nan_to_num(functionals)) - compiled.b
    return np.where(np.diff(compiled.B.indptr) > 0, 0.0, np.maximum(left, 0.0))


def standard_errors(
    compiled: CompiledConstraints, cells: Cells, functionals: Float | None = None
) -> Float:
    """Rough standard error of each row of constraints on these rows, groups being disjoint.

    At given rates where a functional is one rate; at a rate of 0.1 otherwise.
    """
    squares = np.zeros(compiled.constant.size)
    for k, parts in enumerate(compiled.parts):
        for part in parts or ():
            variance = 0.09
            if functionals is not None and len(parts or ()) == 1 and part.coefficient:
                rate = (functionals[k] - compiled.constant[k]) / part.coefficient
                rate = 0.0 if np.isnan(rate) else min(max(float(rate), 0.0), 1.0)
                variance = rate * (1.0 - rate)
            squares[k] += (
                part.coefficient**2 * variance / max(cells.weighted_count[part.cells].sum(), 1.0)
            )
    return np.asarray(np.sqrt(compiled.R.power(2) @ squares))


def aims(compiled: CompiledConstraints, cells: Cells, functionals: Float) -> Float:
    """Right-hand sides to aim at on unseen rows: those of comparisons lie a little further in.

    A comparison of groups is broken from two sides: whichever group is ahead, noise of the sample
    and of the model pushes the gap up and never down, so that a gap brought to its bound out of
    fold lies beyond it on new rows, on average. It is therefore held one standard error inside
    (the rule of Breiman et al., 1984, section 3.4.3), but no further than half of the way to
    equality. All other rules are aimed at as they are.
    """
    right = compiled.b
    compares = np.array([c.expression.compares_pairs for c in compiled.constraints], dtype=bool)
    if not compares.any():
        return right
    filled = np.nan_to_num(functionals)
    equal = filled.copy()
    for span in compiled.spans:
        equal[span] = filled[span].mean()
    room = np.maximum(right - compiled.rows_of(equal), 0.0)
    margin = np.minimum(standard_errors(compiled, cells, functionals), 0.5 * room)
    return np.asarray(right - np.where(compares[compiled.owner], margin, 0.0))
