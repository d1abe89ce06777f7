r"""The choice among measured candidates: prefixes and shifts.

Every candidate c, be it the plain model, a model under multipliers or one of these with another
decision, is measured once on rows that it has not seen: its objective :math:`o_c`, which is to be
small, and its violation :math:`v_{cj}` of each row j of constraints, whose standard error is
:math:`s_{cj}`. Comparisons of groups are measured by credible rates
(:mod:`gbm_constrained.problem.linear_constraints`), and ratios by their distance to the bound
(:mod:`gbm_constrained.decision.violations`). With the weights :math:`w_j` of violations
and their price :math:`\pi`, the merit of a candidate is

.. math:: J_c = o_c + \pi \max_j w_j \max(v_{cj}, 0) .

Constraints that no comparison of groups makes, and of regressors those that say nothing of groups,
are strict: where some candidate meets all of them to within sampling error,
:math:`v_{cj} \le s_{cj}`, candidates that do not are left out. Of those left, the candidate of
least merit is returned, and the first of equals. Comparisons of groups have their price alone,
since a constant decision meets any of them.

A bound on sampling error has an edge: of two candidates whose violations differ by nothing that
rows show, one may be within it and the other beyond. Where candidates are few, the choice r is
therefore compared with those that violate no strict row by more than it does beyond two errors,
:math:`v_{cj} \le \max(v_{rj}, 0) + 2 s_{cj}`. The one of least merit among them takes its place,
until there is none of smaller merit (:func:`choose_unbeaten`).

**Optimism.** A rate of a trained model is lower on its training rows than on new ones. The
boosters of the folds show by how much:

.. math:: \mathrm{optimism} = s \, (r_{\text{held out}} - \bar{r}_{\text{training}}) .

Efron, "Estimating the error rate of a prediction rule" (1983), adds such a difference to the
training error. The difference falls with one over the number of rows (Akaike, 1974), so that the
share s of the rows that a booster is trained on is what a model of all rows loses. Of boosters
with different shares it is the harmonic mean.

Folds of the user, such as periods of time, need not hold out every row. Rows that are held out and
rows that are trained on then differ by more than optimism. So the rates of each booster are
compared on those of its training rows that others hold out. A threshold stays as the boosters
chose it: that the model decides its own training rows as often says nothing of later ones.

**Transfer of a threshold.** Where constraints bound one class alone, as the bound of a miss rate
does, its few rows are weighted and memorised. The model of all rows gives rows that look like them
higher scores than the boosters of the folds do, and at their threshold pays with errors on the
other class. The rows of the other class are more and not weighted. If the model decides as many of
them for the bounded class as the boosters did out of fold, it misses no more rows of the bounded
class: trees of more rows rank them no worse. So the threshold is moved to where the shares agree,
up to optimism (evidence, Decisions). Under all other constraints the share of all rows is matched.

**Offsets of groups.** Where groups may decide, each has a threshold of its own
(:mod:`gbm_constrained.decision.groups`). Bounds of comparisons are tightened, cross-fitted
decisions are reported and room is left as for the common shift, which stays where it meets the
constraints at no more errors.

**Violations after refitting.** The model of all rows may violate constraints that the boosters of
the folds meet. Rates of errors are at their lowest on training rows, so that a violation there is
one. Gaps of error rates, and shares of predictions, are first corrected by their optimism.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import norm

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import sum_over_machines
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.decision.rules import Choice, shift_scores
from gbm_constrained.decision.search import (
    Shift,
    ShiftSearch,
    match_selection_rate,
    search_group_thresholds,
)
from gbm_constrained.decision.violations import PriorityLevels, standard_error_of, standard_errors
from gbm_constrained.problem.linear_constraints import (
    LinearConstraints,
    compares_groups,
    is_priced,
)
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.p_values import find_violated_rows

VIOLATION_PRICE = 1.0
"""Objective that a unit of violation is worth: a point of a rate counts as one of accuracy."""
PRICE_OF_SCORES = 3.0
"""The same for constraints on scores, which deciding nearly all rows alike does not meet."""


def choose(
    objectives: Float,
    violations: Float,
    errors: Float,
    *,
    price: float = VIOLATION_PRICE,
    weights: Float | float = 1.0,
    is_strict: Bool | None = None,
) -> int:
    """Choose the candidate that a fit returns.

    Parameters
    ----------
    objectives : ndarray of shape (n_candidates,)
        Objective of each candidate; candidates without one, NaN, come last.
    violations : ndarray of shape (n_candidates, m)
        Left-hand minus right-hand side of each row of constraints.
    errors : ndarray of shape (m,) or (n_candidates, m)
        Standard errors of the violations.
    price : float, default=VIOLATION_PRICE
        Objective that a unit of violation is worth.
    weights : float or ndarray of shape (m,), default=1.0
        Factors on the violations.
    is_strict : ndarray of shape (m,), bool, default=None
        Rows that are met where they can be; all of them by default.

    Returns
    -------
    int
        Position of the candidate.
    """
    beyond = violations > errors + ROUNDING
    if is_strict is not None:
        beyond = beyond & is_strict
    reaches = ~beyond.any(axis=1) & np.isfinite(objectives)
    worst = (weights * violations).max(axis=1, initial=0.0)
    merits = np.nan_to_num(objectives, nan=np.inf) + price * np.where(worst > ROUNDING, worst, 0.0)
    if reaches.any():
        merits = np.where(reaches, merits, np.inf)
    return int(np.argmax(merits <= merits.min() + ROUNDING))


def choose_unbeaten(
    objectives: Float,
    violations: Float,
    errors: Float,
    *,
    weights: Float | float = 1.0,
    is_strict: Bool,
) -> int:
    """Choose the candidate that no other beats without being worse in the strict rows.

    Parameters are those of :func:`choose`, with errors of shape (n_candidates, m).
    """
    over = np.maximum(violations[:, is_strict], 0.0)
    chosen = choose(objectives, violations, errors, weights=weights, is_strict=is_strict)
    for _ in objectives:
        is_rival = (over <= over[chosen] + 2.0 * errors[:, is_strict] + ROUNDING).all(axis=1)
        of_rivals = np.where(is_rival, objectives, np.nan)
        is_priced = np.zeros_like(is_strict)
        best = choose(of_rivals, violations, errors, weights=weights, is_strict=is_priced)
        if best == chosen:
            break
        chosen = best
    return chosen


Criterion: TypeAlias = Literal["error", "auc"]
CRITERIA: tuple[Criterion, ...] = ("error", "auc")
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
        """Rounds of the candidates: at most twelve, and denser where models change fast."""
        step = self.rounds_per_iteration
        last = max(self.rounds // step, 1)
        iterations = np.unique(np.geomspace(min(3, last), last, 12).round().astype(int))
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

    whole, is_free = at(rounds), prefixes.has_free_choice
    is_held = compares_groups(rows.compiled) & ~is_priced(rows.compiled)
    if is_held.any() or PriorityLevels.from_constraints(rows.compiled, rows.cells).are_several:
        # Whether comparisons of groups that are to be met at any price cost much.
        cost = whole.error - rows.error(rows.decisions(scored.margins(rounds)))
        is_free = is_free or whole.violation > 0.0 or cost > MAX_ERROR_INCREASE
    if not is_free:
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
    search = ShiftSearch(margin, rows.cells, compiled, most_splits=None if is_final else 1)
    best, bounds = _search_inside(search, tightened)
    of_tables = 0.0  # Largest violation of pair rates and calibration errors: no shift changes it.
    if compiled.has_tables.any():
        of_tables = float(rows.violations(margin)[compiled.has_tables].max(initial=0.0))
    has_violation = bool((best.excess(compiled)[~is_priced(compiled)] > ROUNDING).any())
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


def find_at_a_price(search: ShiftSearch, bounds: Float | None = None) -> Shift:
    """Find the best shift under the price of violations.

    Comparisons of groups have it also where they can be met.
    """
    compares = is_priced(search.compiled)
    return search.find(bounds=bounds, penalty=VIOLATION_PRICE, is_penalised=compares)


def _search_inside(search: ShiftSearch, tightened: Float) -> tuple[Shift, Float]:
    """Find the best shift for tightened bounds if that costs little, for the bounds otherwise.

    Comparisons of groups have their penalty, unless a standard error of the errors is enough for a
    shift that meets them. The right-hand sides that the shift was chosen by are returned with it.
    """
    cells, compiled = search.cells, search.compiled
    found = find_at_a_price(search)
    if is_priced(compiled).any() and not found.is_feasible:
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
    above = search.levels.find_met_above(found.excess(compiled)) & ~compares_groups(compiled)
    errors = standard_errors(compiled, CellCounts.of_shares(cells, found.shares))
    room = np.where(above, errors, 0.0)
    moved = find_at_a_price(search, compiled.b - room)
    left = compiled.rows_of(np.nan_to_num(moved.functionals)) - compiled.b + room
    is_met = bool((left[above] <= ROUNDING).all())
    return (moved, compiled.b - room) if is_met else (found, compiled.b)


Search: TypeAlias = Callable[[Float], Choice | None]
"""Finds the choice by some rows under bounds; None where none meets them."""


def cross_fitted_decisions(
    rows: EvaluationSet,
    margin: Array,
    choice: Choice,
    search_others: Callable[[int], Search] | None = None,
) -> Codes:
    """Decide each fold by the shift that the other folds would have chosen.

    A shift looks a little better on the rows that chose it than on new ones. The other folds
    search with the bounds of the choice: of a gap that no common threshold closes, they would not
    have gone inside the bound at any penalty. Several classes, whose shifts take longer to find,
    are decided by their common one. So are rows under constraints that the choice violates: a fold
    might choose another way out there.

    `search_others` gives the search of all folds but one, given its position.
    """
    decisions = rows.decisions(choice.apply(margin, rows.cells.rows))
    is_common = len(rows.folds) < 2 or not choice.is_moved
    if margin.ndim > 1 or is_common or choice.violation > 0.0:
        return decisions
    bounds = rows.compiled.b if choice.bounds is None else choice.bounds
    search_others = search_others or partial(_search, rows, margin, choice)
    for k, fold in enumerate(rows.folds):
        if found := search_others(k)(bounds):
            decisions[fold] = rows.decisions(found.apply(margin, rows.cells.rows)[fold])
    return decisions


def _search(rows: EvaluationSet, margin: Array, choice: Choice, k: int | None = None) -> Search:
    """Search all rows, or all folds but one, for choices that meet the constraints.

    Where machines hold different rows, the folds are not searched to the last score.
    """
    everyone = np.arange(margin.size)
    others = everyone if k is None else np.setdiff1d(everyone, rows.folds[k], assume_unique=True)
    if choice.offsets is not None:
        return _search_groups(rows, margin, choice, others)
    if k is not None:
        cells = rows.cells.take(others)
        of_others = ShiftSearch(margin[others], cells, rows.compiled.on(cells), most_splits=1)
        return lambda bounds: replace(choice, shift=_search_inside(of_others, bounds)[0].value)
    search = ShiftSearch(margin, rows.cells, rows.compiled)

    def find(bounds: Float) -> Choice | None:
        found = search.find(bounds=bounds)
        moved = replace(choice, shift=found.value, error=found.error, bounds=bounds)
        return moved if found.is_feasible else None

    return find


def _search_groups(rows: EvaluationSet, margin: Array, choice: Choice, index: Codes) -> Search:
    """Search some of the rows for offsets of groups beyond the common shift."""
    offsets, cells = choice.offsets, rows.cells.take(index)
    assert offsets is not None
    own = offsets.searchable(rows.cells.rows)[index]
    common = np.full(len(offsets.levels), choice.shift[0])
    search = search_group_thresholds(margin[index], cells, rows.compiled.on(cells), own, common)

    def find(bounds: Float) -> Choice | None:
        found = search.find(bounds)
        if found is None:
            return None
        return replace(
            choice,
            error=found.error,
            loss=found.error,
            violation=found.violation,
            bounds=bounds,
            has_rate_violation=False,
            offsets=replace(offsets, values=found.values - choice.shift[0]),
        )

    return find


def choose_with_room(rows: EvaluationSet, margin: Array, choice: Choice) -> tuple[Choice, Codes]:
    """Move shifts of all rows, or of groups, until cross-fitted decisions satisfy the constraints.

    A shift that meets a constraint exactly misses it by little on rows that have not chosen it.
    Bounds are tightened by more and more of the cross-fitted violations, as long as that costs no
    more than a standard error of the errors. Decisions of :func:`cross_fitted_decisions` are
    returned with the choice.
    """
    search_others: Callable[[int], Search] = partial(_search, rows, margin, choice)
    # Tables, and thresholds of groups, are kept, and sorted scores are not.
    if choice.offsets is not None or not rows.cells.communicator.holds_all_rows:
        search_others = cache(search_others)

    def decide(choice: Choice) -> tuple[Codes, Float]:
        decided = cross_fitted_decisions(rows, margin, choice, search_others)
        moved = choice.apply(margin, rows.cells.rows)
        found = rows.violations(moved, rows.counts(decided))
        return decided, np.where(rows.compiled.has_scores, 0.0, np.maximum(found, 0.0))

    is_settled = choice.offsets is not None and (
        len(rows.folds) < 2 or not choice.offsets.values.any()
    )
    if margin.ndim > 1 or choice.violation > 0.0 or is_settled:
        return choice, cross_fitted_decisions(rows, margin, choice, search_others)
    decisions, violations = decide(choice)
    if violations.max(initial=0.0) <= ROUNDING:
        return choice, decisions
    bounds = rows.compiled.b if choice.bounds is None else choice.bounds
    affordable = choice.error + standard_error_of(choice.error, rows.cells.n_rows)
    find = _search(rows, margin, choice)
    for share in (0.25, 0.5, 0.75, 1.0, 1.5, 2.0):
        found = find(bounds - share * violations)
        if found is None or found.error > affordable:
            break
        decided, violated = decide(found)
        if violated.max() <= ROUNDING:
            return found, decided
    return choice, decisions


def choose_for_groups(scored: ScoredRows, prefixes: Prefixes, groups: GroupOffsets) -> Choice:
    """Choose prefix, shift and offsets of groups.

    Of the prefixes that may be chosen, the one is taken whose errors and penalised violations are
    smallest under offsets of groups.
    """
    candidates = prefixes.candidates if prefixes.has_free_choice else [prefixes.rounds]
    found = []
    for rounds in candidates:
        common = choose_prefix(scored, Prefixes(rounds, rounds), found=scored.rows.choices)
        found.append(_choose_offsets(scored.rows, scored.margins(rounds), common, groups))
    return min(found, key=lambda choice: (choice.loss, -choice.rounds))


def _choose_offsets(
    rows: EvaluationSet, margin: Array, common: Choice, groups: GroupOffsets
) -> Choice:
    """Choose offsets of groups for the scores of one prefix, beside its best common shift.

    The common shift is zero where it does not meet the constraints. Offsets are zero where no
    thresholds of groups meet the constraints, or the common one does at no more errors.
    """
    compiled = rows.compiled
    decisions = rows.decisions(shift_scores(margin, common.shift))
    error = rows.error(decisions)
    violations = rows.violations_as_stated(margin, rows.counts(decisions))
    violation = float(violations.max(initial=0.0))
    loss = error + VIOLATION_PRICE * max(violation, 0.0)
    common = replace(common, loss=loss, offsets=replace(groups, values=0.0 * groups.values))
    # Rows of no group keep the model's own threshold, where no common one does what is asked.
    kept = common if violation <= ROUNDING else replace(common, shift=np.zeros(1))
    find = _search(rows, margin, kept)
    found = find(compiled.b)
    tightened = tightened_bounds(compiled, rows.counts(rows.decisions(margin)))
    if (tightened < compiled.b).any():
        inside = find(tightened)
        if inside and (not found or inside.error <= found.error + MAX_ERROR_INCREASE):
            found = inside
    if found is None or found.violation > 0.0 or found.error >= loss:
        return common
    return found


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
    room = room_to_equality(compiled, functionals_of(compiled, counts))
    margin = np.minimum(standard_errors(compiled, counts), 0.5 * room)
    return np.asarray(compiled.b - np.where(compares, margin, 0.0))


def room_to_equality(compiled: LinearConstraints, functionals: Float) -> Float:
    """Compute how far inside its bound each row of constraints is if groups are equal, (m,).

    The groups have the mean of their functionals then. It is zero beyond the bound.
    """
    filled = np.nan_to_num(functionals)
    equal = filled.copy()
    for constraint, span in zip(compiled.constraints, compiled.spans, strict=True):
        by_group = filled[span].reshape(-1, max(len(constraint.rates), 1))
        equal[span] = np.tile(by_group.mean(axis=0), len(by_group))
    return np.maximum(compiled.b - compiled.rows_of(equal), 0.0)


SIGNIFICANCE = 0.025  # Probability of each side below which a violation is beyond sampling error.


def estimate_optimism(
    held_out: Float | float, training: Sequence[Float | float], share: float = 1.0
) -> Float:
    """Estimate how much higher rates of a model are on new rows than on its training rows.

    `held_out` are rates on rows that the boosters of the folds have not seen, `training` those of
    each booster on its training rows. `share` is the part of the difference that is left in the
    model: 1 for the boosters themselves.
    """
    return np.asarray(share * (held_out - np.mean(np.asarray(training), axis=0)))


def estimate_optimism_of_decisions(
    compiled: LinearConstraints,
    cells: Cells,
    training: Sequence[tuple[Codes, Codes]],
    held_out: Float,
) -> Float:
    """Estimate the optimism of each row of constraints by decisions at one shift.

    Trees that memorise labels select another share of their training rows than of new ones, at one
    threshold. All of the difference is taken, though a model of more rows loses less: a constraint
    that holds is not to be doubted. `training` pairs the positions of each booster's training rows
    with its decisions there; `held_out` are functionals on rows that the boosters have not seen.
    Undefined values are NaN.
    """
    rates = [
        compiled.rows_of(functionals_of(compiled, CellCounts.of(cells.take(rows), decisions)))
        for rows, decisions in training
    ]
    return np.asarray(estimate_optimism(compiled.rows_of(held_out), rates))


def rows_to_match(compiled: LinearConstraints, cells: Cells) -> Bool | None:
    """Find the rows whose positive rate a transferred threshold has to keep.

    Where constraints look at rows of one of two classes only, deciding for that class violates
    none, and the class is the smaller one, these are all rows of the other class. Otherwise they
    are all rows of the objective. The result is None for mean losses, and for several classes,
    whose biases are taken as they are.
    """
    if cells.classes.size > 2 or compiled.B.nnz or not len(compiled):
        return None
    everyone = np.asarray(cells.in_objective[cells.codes])
    towards_one = (compiled.A[:, 1::2] - compiled.A[:, 0::2]).tocoo()
    at_stake = towards_one.data != 0.0
    labels, signs = cells.labels[towards_one.col[at_stake]], np.sign(towards_one.data[at_stake])
    asked = 1 if (signs < 0).all() else 0
    if not labels.size or (labels != asked).any() or (signs != 1 - 2 * asked).any():
        return everyone
    mass = [cells.weight[cells.labelled & (cells.labels == k)].sum() for k in (0, 1)]
    if mass[asked] >= mass[1 - asked]:
        return everyone
    other = cells.in_objective & (cells.labels == 1 - asked)
    return np.asarray(other[cells.codes])


@dataclass(frozen=True)
class FoldScores:
    """Scores by the boosters of the folds, out of fold and in training."""

    held_out: tuple[Codes, Array]  # Positions and scores of rows that some booster has not seen.
    training: Sequence[tuple[Codes, Array]]  # The same of each booster's training rows.
    share: float  # Share of the optimism that is left in a model of all rows.
    # Out-of-fold scores of the rows in `training`, if some rows are never held out.
    compared: Sequence[tuple[Codes, Array]] = ()
    has_multipliers: bool = True  # Whether multipliers weigh the rows that boosters memorise.


def match_positive_rate(
    scores: FoldScores, shift: Float, margin: Array, inside: Bool, cells: Cells
) -> Float:
    """Find the shift under which the model of all rows has the positive rate of the folds.

    `shift` was chosen for the boosters of the folds, `margin` are scores of all rows under the
    model, `inside` are the rows of :func:`rows_to_match`, and `cells` are those of all rows.
    Without multipliers no rows are weighted, and a model of more rows needs no larger shift.
    """
    weight = inside.astype(np.float64)
    if cells.rows.weight is not None:
        weight = np.where(inside, cells.rows.weight, 0.0)

    def positive_rate(rows: Codes, scores: Array) -> float:
        w = weight[rows]
        positive = w * (scores + shift[0] > 0)
        positive, total = sum_over_machines(np.sum, [positive, w], cells.communicator)
        return float(positive / total) if total > 0 else np.nan

    held_out, *training = (positive_rate(*part) for part in (scores.held_out, *scores.training))
    if np.isnan([held_out, *training]).any():
        return shift  # Folds of whole groups may leave a booster without such rows.
    if not 0.0 < held_out < 1.0:  # Many thresholds have this rate.
        return shift
    wanted = held_out - float(estimate_optimism(held_out, training, scores.share))
    found = match_selection_rate(margin[inside], wanted, weight[inside], cells.communicator)
    if scores.has_multipliers:
        return found
    return np.clip(found, np.minimum(shift, 0.0), np.maximum(shift, 0.0))


def refit_violation(
    compiled: LinearConstraints, counts: CellCounts, functionals: Float, optimism: Float
) -> Float:
    """Compute the violation of each row of constraints by the model of all rows.

    While multipliers are on their way, a gap may be open in one booster and closed in the next.
    These boosters then meet the constraint together, and the model of all rows does not. The
    violation is that of the functionals on the training rows plus optimism, and zero within
    sampling error of the counted decisions there.
    """
    violation = compiled.rows_of(functionals) + optimism - compiled.b
    chance = norm.isf(SIGNIFICANCE) * standard_errors(compiled, counts)
    return np.where(violation > chance, violation, 0.0)


def find_training_violations(
    compiled: LinearConstraints, counts: CellCounts, optimism: Float | None = None
) -> Bool:
    """Find the constraints that a model violates on its training rows beyond sampling error.

    Other constraints that may ask for errors, such as gaps, are not at their best on training rows
    and give False. The optimism is that of rows of constraints that reward all errors, and of
    those that look at no label; NaN where unknown.
    """
    is_tested, b = ~compiled.may_reward_errors, compiled.b
    if optimism is not None:
        is_moved = compiled.must_reward_errors | _are_of_predictions(compiled)
        is_moved &= compiled.may_reward_errors & np.isfinite(optimism)
        is_tested = is_tested | is_moved
        b = np.where(is_moved, b - optimism, b)
    violated = np.zeros(len(compiled.constraints), dtype=bool)
    is_beyond = find_violated_rows(
        replace(compiled, b=b), counts, SIGNIFICANCE, where=is_tested, one_test_each=True
    )
    violated[compiled.owner[is_beyond]] = True
    return violated


def find_refit_violations(
    compiled: LinearConstraints,
    counts: CellCounts,
    optimism: Float | None,
    optimism_of_decisions: Callable[[], Float],
) -> Bool:
    """Find the constraints that the model of all rows violates by its training rows.

    `optimism` is that of rows of constraints that reward all errors. That of rows that look at no
    label needs scores of all boosters, and is computed only if such a row is violated without.
    """
    of_predictions = _are_of_predictions(compiled)
    known = np.full(len(compiled), np.nan) if optimism is None else optimism
    violated = find_training_violations(compiled, counts, np.where(of_predictions, 0.0, known))
    if violated[compiled.owner[of_predictions]].any():
        known = np.where(of_predictions, np.minimum(optimism_of_decisions(), 0.0), known)
        violated = find_training_violations(compiled, counts, known)
    return violated


def _are_of_predictions(compiled: LinearConstraints) -> Bool:
    """Find the rows of constraints that look at predictions alone, such as selection rates."""
    is_one = np.array([c.is_of_predictions for c in compiled.constraints], dtype=bool)
    return np.asarray(is_one[compiled.owner])


def correct_training_values(
    compiled: LinearConstraints, functionals: Float, optimism: Float | None
) -> Float:
    """Correct the values on training rows of constraints that reward all errors by optimism."""
    values = compiled.values(functionals)
    if optimism is None:
        return values
    rows = compiled.rows_of(functionals) + optimism
    for j in np.unique(compiled.owner[compiled.must_reward_errors]):
        own, constraint = compiled.owner == j, compiled.constraints[j]
        if constraint.expression.is_difference:
            values[j] = rows[own].max()
        elif own.sum() == 1:
            values[j] += constraint.sign * optimism[own][0]
    return values
