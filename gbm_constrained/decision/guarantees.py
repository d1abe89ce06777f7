"""Certified and conformal decisions: guarantees by rows that were used for nothing else.

- ``"expected"``: the threshold is moved until each constraint holds on the certification rows with
  what one more row could add. Each constraint then holds in the mean over samples (conformal risk
  control; see :func:`~gbm_constrained.statistics.order_statistics.expected_bounds`).
- ``"high_probability"``: the certification rows test a sequence of decisions, from the safest on,
  and the best one that passes is returned. All constraints then hold in the population with
  probability ``1 - delta``.

The bound of one rate of one class has an exact order-statistic threshold in both
(:func:`~gbm_constrained.statistics.order_statistics.expected_threshold`,
:func:`~gbm_constrained.statistics.order_statistics.umbrella_threshold`). Decisions stay where they
are if they are on its safe side.

Pair rates depend on no threshold. ``"high_probability"`` tests them at the scores of the prefix
(:mod:`gbm_constrained.statistics.pairs`), and moves the threshold for other
constraints alone. Whatever their number, constraints share no `delta`: where one of them does not
hold, its own test passes with probability `delta` at most.

Of constraints with priorities, those that come first are guaranteed. Others are met as well as the
decisions with the guarantee allow.

A decision that is the same for all rows meets each comparison of groups, and is of no use. It
earns no guarantee, unless it has the fewest errors of all. Neither does a decision of as many
errors. Such decisions are left out before any test, by the selection rows, so that the tests of
the others stay valid.

As for decisions (:mod:`gbm_constrained.decision.guarantees`), candidates are put in order by the
selection rows from the safest on, and tested in that order on certification rows until one fails
(Angelopoulos et al., "Learn then test", 2021, fixed sequence testing). A candidate is the map of
least loss under bounds that are less and less tight. Of the maps that passed, the one of least
loss is returned. Values of rows are bounded by ranges that the user states, and observed values
outside of them are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from math import ceil, log
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from scipy.stats import norm

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.constraints.rates import row_functions_of
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import Communicator
from gbm_constrained.decision.choose import (
    VIOLATION_PRICE,
    Prefixes,
    find_at_a_price,
    room_to_equality,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows, score_decisions
from gbm_constrained.decision.histograms import RESOLUTION, are_apart
from gbm_constrained.decision.regression import (
    Affine,
    AffineChoice,
    PredictedRows,
    choose_affine,
    standard_errors_of_numbers,
)
from gbm_constrained.decision.rules import Choice, Scores, shift_scores
from gbm_constrained.decision.search import MOST_CANDIDATES, Shift, ShiftSearch, threshold_curve
from gbm_constrained.decision.violations import (
    PriorityLevels,
    anticipate_standard_errors,
    standard_error_of,
    standard_errors,
)
from gbm_constrained.problem.linear_constraints import (
    LinearConstraints,
    compares_groups,
    find_first,
    find_first_constraints,
    is_priced,
)
from gbm_constrained.statistics.binomial import learn_then_test
from gbm_constrained.statistics.counts import CellCounts, MeanScore, blocks_of_rows
from gbm_constrained.statistics.order_statistics import (
    expected_bounds,
    expected_threshold,
    minimum_rows,
    umbrella_threshold,
)
from gbm_constrained.statistics.p_values import (
    BoundedMeans,
    constraint_p_values,
    p_value_of_blocks,
)
from gbm_constrained.statistics.pairs import pair_p_values, rows_to_certify
from gbm_constrained.statistics.sampled_intervals import Sampled

Guarantee: TypeAlias = Literal[None, "expected", "high_probability"]
Candidate = TypeVar("Candidate")
# Standard errors by which bounds are tightened in turn, from the safest decisions on: biases of
# several classes have no order of their own.
TIGHTENINGS = (4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5, 0.0)


def conformal_bounds(compiled: LinearConstraints, cells: Cells) -> Float:
    """Compute right-hand sides whose satisfaction on these rows holds in the mean over samples.

    Where none is known, the right-hand side is the constraint's own. It is infinite for priorities
    that do not come first, which have no guarantee.
    """
    counts = CellCounts.of(cells, np.zeros(len(cells.rows), dtype=np.intp))
    bounds = expected_bounds(compiled, counts)
    bounds = np.where(np.isnan(bounds), compiled.b, bounds)
    return np.where(find_first(compiled), bounds, np.inf)


def find_room(rows: EvaluationSet, margin: Array, n_errors: float) -> Float:
    r"""Find how far inside of their bounds rows of constraints are aimed at, (m,).

    .. math:: \min\left(z s_j, \frac{b_j - l_j}{2}\right)

    with the standard error :math:`s_j` of the row at the best shift of the scores under the
    constraints as they are stated, and the best value :math:`l_j` that predictions can have.
    Comparisons of groups are at their best where the groups are equal. Where a shift meets all
    constraints that have no price and none meets them from so far inside, it is the largest
    quarter of this that one meets.

    Parameters
    ----------
    rows : EvaluationSet
        Rows that the scores have not seen.
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of a model without multipliers.
    n_errors : float
        Number of standard errors, z.
    """
    compiled = rows.compiled
    if isinstance(rows, PredictedRows):
        functionals = compiled.functionals(rows.lagrangian.at(margin).statistics(is_exact=True))
        errors = n_errors * standard_errors_of_numbers(rows, margin)
        return limit_room(errors, compiled, functionals)
    search = ShiftSearch(margin, rows.cells, compiled, most_splits=1)
    is_strict = ~is_priced(compiled)

    def find_met(room: Float | float) -> tuple[Shift, bool]:
        found = find_at_a_price(search, compiled.b - room)
        excess = found.excess(compiled, compiled.b - room)[is_strict]
        return found, bool((excess <= ROUNDING).all())

    best, is_met = find_met(0.0)
    functionals, errors = _measure_errors(rows, Scores.of(margin, best.value, beside=True))
    room = limit_room(n_errors * errors, compiled, functionals)
    if is_met:
        share = next((s for s in (1.0, 0.75, 0.5, 0.25) if find_met(s * room)[1]), 0.0)
        room = np.where(is_strict, share * room, room)
    return room


def _measure_errors(rows: EvaluationSet, scores: Scores) -> tuple[Float, Float]:
    """Measure the functionals, and the standard error of each row of constraints, (m,).

    Counts do not tell the errors of constraints on scores, and intervals of their values do.
    """
    compiled, decided = rows.compiled, rows.decisions(scores.for_decisions)
    counts = rows.counts(decided)
    functionals = rows.functionals(scores.for_probabilities, counts)
    scored = score_decisions(rows.lagrangian, compiled, scores, decided)
    sampled = Sampled.of(compiled, counts).complete(rows.cells, compiled, functionals, scored)
    low, high = sampled.constraints.T
    of_values = np.nan_to_num(high - low) / (2.0 * norm.isf(0.025))
    of_scores = of_values[compiled.owner] / compiled.unit
    errors = np.where(compiled.has_scores, of_scores, standard_errors(compiled, counts))
    return functionals, errors


def limit_room(room: Float, compiled: LinearConstraints, functionals: Float) -> Float:
    """Limit the room inside of bounds, (m,), to half of the way to the best possible values."""
    best = np.array([c.expression.range[c.sign < 0] for c in compiled.constraints])
    to_best = np.abs(compiled.bounds - best)[compiled.owner] / compiled.unit
    to_equality = room_to_equality(compiled, functionals)
    return np.minimum(room, 0.5 * np.where(compares_groups(compiled), to_equality, to_best))


def _find_monotone_rate(rows: EvaluationSet) -> tuple[Codes, int, float] | None:
    """Find the rows of the only guaranteed rate if it falls as decisions move towards one class.

    Returned are the positions of the rows, the class that decisions must move towards, and the
    largest fraction of the rows that may be decided otherwise.
    """
    compiled = rows.compiled
    first = np.flatnonzero(find_first(compiled))
    R = compiled.R[first]
    if len(first) != 1 or R.nnz != 1 or rows.cells.classes.size > 2:
        return None
    parts = compiled.parts[int(R.indices[0])]
    if parts is None or len(parts) != 1:
        return None
    (part,) = parts
    factor = float(R.data[0]) * part.coefficient
    counted = set(map(tuple, part.event.tolist()))
    if factor == 0.0 or counted not in ({(True, False)}, {(False, True)}):
        return None
    when = int((False, True) in counted)  # The class whose prediction is counted.
    bound = float(compiled.b[first[0]]) / factor
    inside = np.zeros(len(rows.cells), dtype=bool)
    inside[part.cells] = True
    view = next(v for v in rows.cells.views if v.cells.start <= part.cells[0] < v.cells.stop)
    taken = np.flatnonzero(inside[view.codes])
    if view.amount is not None or not 0.0 < bound < 1.0:
        return None  # The binomial argument is for rows that count alike.
    weight = rows.cells.rows.weight
    if weight is not None:
        taken = taken[weight[taken] > 0]
        own = weight[taken]
        ends = float(own.min(initial=np.inf)), float(own.max(initial=0.0))
        lowest, highest = zip(*rows.cells.communicator.gather(ends), strict=True)
        if max(highest) > min(lowest):
            return None  # The binomial argument is for rows of equal weight.
    return (taken, 1 - when, bound) if factor > 0 else (taken, when, 1.0 - bound)


# The last shift of a threshold under which the guarantee for one rate holds, and what takes the
# nearer of it and another shift on the safe side: the smaller or the larger one.
Limit: TypeAlias = tuple[Float, Callable[[Float, Float], Float]]


def _find_limit(
    rows: EvaluationSet, margin: Array, threshold: Callable[..., float]
) -> Limit | None:
    """Find the limit by an order-statistic threshold; None unless one rate is bounded."""
    found = _find_monotone_rate(rows)
    if found is None:
        return None
    taken, towards, bound = found
    wrong = margin[taken].astype(np.float64) * (1.0 if towards == 0 else -1.0)
    # The rows beyond the threshold are decided otherwise. The threshold lies as near to this score
    # as the saved model can resolve: many rows of the other class may lie before the next score.
    communicator = rows.cells.communicator
    first = threshold(wrong, bound, communicator=communicator)
    score = _end_of_run(np.sort(wrong[wrong >= first]), communicator)
    cut = score + 0.5 * RESOLUTION * max(abs(score), 1.0)
    shift = np.array([-cut if towards == 0 else cut])
    return shift, np.minimum if towards == 0 else np.maximum


def _end_of_run(reached: Array, communicator: Communicator) -> float:
    """Find the last of the sorted scores of all machines before the first gap between them.

    Machines show each other some scores at once, for mostly the first ones have a gap.
    """
    n_reached = int(communicator.sum(np.array([reached.size], dtype=np.float64))[0])
    left, start = np.unique(reached), -np.inf
    while True:
        left = left[left >= start]
        of_machines = communicator.gather((left[:64], left.size > 64))
        # Beyond the last score of a machine that has more of them, some may be missing.
        known = min((some[-1] for some, has_more in of_machines if has_more), default=np.inf)
        scores = np.unique(np.concatenate([some for some, _ in of_machines]))
        scores = scores[scores <= known]
        cuts = np.flatnonzero(are_apart(scores, np.abs(scores), n_reached))
        if cuts.size or known == np.inf:
            return float(scores[cuts[0] if cuts.size else -1])
        start = scores[-1]


def _choose_within(limit: Limit, selection: ScoredRows, start: Choice) -> Choice:
    """Find the decision with the smallest error on the safe side of a limit.

    The library's own threshold stays where it is safe. The limit is not left for fewer errors that
    may be chance. Violations of later priorities have a price in errors.
    """
    rows, margin = selection.rows, selection.margins(start.rounds)
    last, nearer = limit
    shift = nearer(start.shift, last)
    if start.shift.any():
        curve = threshold_curve(margin, rows.cells, rows.compiled)
        is_safe = nearer(curve.shift, last) == curve.shift
        scores = margin + last[0]
        error = rows.error(rows.decisions(scores))
        at_limit = float(_add_prices(rows, error, rows.violations(scores)))
        priced = _add_prices(rows, curve.error, curve.violations)
        fewest = priced[is_safe].min(initial=np.inf)
        shift = last
        if fewest < at_limit - standard_error_of(error, rows.cells.n_rows):
            best = curve.shift[is_safe & (priced <= fewest + ROUNDING)]
            shift = best[[np.abs(best).argmin()]]  # Neither class comes first among equals.
    return replace(start, shift=shift, error=rows.error(rows.decisions(margin + shift[0])))


def control_risk(selection: ScoredRows, certification: ScoredRows, start: Choice) -> Choice:
    """Move a decision until the constraints hold in the mean over samples.

    Conformal risk control (Angelopoulos et al., 2024, Theorem 1) is exact for one rate, whose
    thresholds are nested. Several constraints and gaps meet their :func:`conformal_bounds`
    together. `start` is the best decision without a guarantee, chosen by the selection rows.
    """
    rows, margin = certification.rows, certification.margins(start.rounds)
    limit = _find_limit(rows, margin, expected_threshold)
    if limit is not None:
        return _choose_within(limit, selection, replace(start, violation=0.0))
    bounds, own = conformal_bounds(rows.compiled, rows.cells), rows.compiled.b
    scores = shift_scores(margin, start.shift)
    values = np.nan_to_num(rows.functionals(scores))
    if (rows.compiled.rows_of(values) <= bounds + ROUNDING).all():
        return replace(start, violation=0.0)
    search = ShiftSearch(margin, rows.cells, rows.compiled)
    found = search.find(bounds=np.minimum(bounds, own), penalty=VIOLATION_PRICE)
    violation = _violation_of_first(rows.compiled, found, bounds)
    decided = rows.decisions(shift_scores(margin, found.value))
    if _minority(rows, decided) == 0.0 < _minority(rows, rows.decisions(scores)):
        left = (rows.compiled.rows_of(values) - bounds)[find_first(rows.compiled)]
        return replace(start, violation=float(left.max()))
    return replace(start, shift=found.value, error=found.error, violation=violation)


def _minority(rows: EvaluationSet, decisions: Codes) -> float:
    """Compute the share of the rows that are not decided as the commonest class."""
    of_classes = rows.counts(decisions).weight[rows.cells.views[0].cells].sum(axis=0)
    return float(1.0 - of_classes.max() / of_classes.sum())


def _violation_of_first(compiled: LinearConstraints, found: Shift, bounds: Float) -> float:
    """Find the largest violation of the constraints that have the guarantee."""
    left = found.excess(compiled, bounds)
    left[(left <= ROUNDING) | ~find_first(compiled)] = 0.0
    return float(left.max(initial=0.0))


def certify(
    selection: ScoredRows,
    certification: ScoredRows,
    start: Choice,
    prefixes: Prefixes,
    delta: float,
) -> Choice:
    """Find the decision with the smallest error that the certification rows certify.

    Learn then Test (Angelopoulos et al., 2021, section 2.3): decisions are put in order by how
    safe they look on the selection rows, and tested in that order on the certification rows until
    one fails. Where any prefix may be returned, some prefixes share `delta`. Of the decisions that
    passed, the one with the smallest error on the selection rows is returned, with a price of the
    violations of later priorities, unless `start` keeps the model's own decisions and these
    passed. Where none passed, `start` is returned with the smallest p-value. One rate has an exact
    threshold instead, and where all constraints are on pair rates, `start` is tested as it is.
    """
    rows, margin = certification.rows, certification.margins(start.rounds)
    if _is_without_threshold(rows):
        return replace(start, p_value=_make_test(rows, margin)(start), level=delta)
    limit = _find_limit(rows, margin, partial(umbrella_threshold, delta=delta))
    if limit is not None:
        best = _choose_within(limit, selection, start)
        p_value = _make_test(rows, margin)(best)
        decided, free = (
            selection.rows.decisions(shift_scores(selection.margins(start.rounds), shift))
            for shift in (best.shift, np.zeros(1))
        )
        if _minority(selection.rows, decided) == 0.0 < _minority(selection.rows, free):
            p_value = 1.0
        return replace(best, p_value=p_value, level=delta)
    # The prefix that was chosen shares delta with those nearest to it.
    near = sorted(prefixes.candidates, key=lambda prefix: abs(np.log(prefix / start.rounds)))
    tested = [start.rounds, *(prefix for prefix in near if prefix != start.rounds)]
    tested = tested[: count_sequences(rows, prefixes)]
    keeps_own = not start.shift.any()
    sequences = [
        _order_decisions(selection, rows, prefix, delta, keeps_own=keeps_own) for prefix in tested
    ]
    tests = [_make_test(rows, certification.margins(prefix)) for prefix in tested]
    passed, smallest = _test_in_order(sequences, tests, delta)
    level = delta / len(sequences)
    if not passed:
        return replace(start, p_value=smallest, level=level)
    choices = [replace(choice, p_value=p_value, level=level) for choice, p_value in passed]
    own = [c for c in choices if c.rounds == start.rounds and not c.shift.any()]
    if keeps_own and own:
        return own[0]
    rows, errors = selection.rows, np.array([c.error for c in choices])
    shifted = [shift_scores(selection.margins(c.rounds), c.shift) for c in choices]
    violations = np.array([rows.violations(scores) for scores in shifted])
    return choices[int(_add_prices(rows, errors, violations).argmin())]


def _test_in_order(
    sequences: Sequence[Sequence[Candidate]],
    tests: Sequence[Callable[[Candidate], float]],
    delta: float,
) -> tuple[list[tuple[Candidate, float]], float]:
    """Test the candidates of each sequence in order, until one fails.

    Sequences share `delta`, and each has a test of its own, which finds a p-value. Returned are
    the candidates that passed with their p-values, and the smallest p-value of the first ones: a
    candidate behind a failure fails, however small its own p-value.
    """
    p_values = np.ones((len(sequences), max(1, *map(len, sequences))))
    for i, (sequence, test) in enumerate(zip(sequences, tests, strict=True)):
        for j, candidate in enumerate(sequence):
            p_values[i, j] = test(candidate)
            if p_values[i, j] > delta:
                break
    passed = learn_then_test(p_values, delta)
    found = [
        (candidate, float(p_values[i, j]))
        for i, sequence in enumerate(sequences)
        for j, candidate in enumerate(sequence)
        if passed[i, j]
    ]
    return found, float(p_values[:, 0].min())


def _add_prices(rows: EvaluationSet, error: float | Float, violations: Float) -> Float:
    """Add the price of violations of later priorities, (..., m), to errors, (...)."""
    levels = PriorityLevels.from_constraints(rows.compiled, rows.cells)
    if not levels.are_several:
        return np.asarray(error + VIOLATION_PRICE * np.zeros(violations.shape[:-1]))
    later = np.where(levels.rows[0], 0.0, np.maximum(np.nan_to_num(violations), 0.0))
    return np.asarray(error + VIOLATION_PRICE * levels.price_rows(later))


def count_sequences(rows: EvaluationSet, prefixes: Prefixes) -> int:
    """Count the prefixes that share delta: one where no threshold is searched, and by default."""
    is_single = rows.cells.classes.size > 2 or _find_monotone_rate(rows) is not None
    is_single |= _is_without_threshold(rows)
    if is_single or not prefixes.has_free_choice:
        return 1
    return min(len(prefixes.candidates), 3)  # With more, each has too small a share of delta.


def _is_without_threshold(rows: EvaluationSet) -> bool:
    """Whether all constraints are on scores, so that no threshold is moved for them."""
    return bool(len(rows.compiled) and rows.compiled.has_scores.all())


def violation_p_values(
    compiled: LinearConstraints, cells: Cells, counts: CellCounts, functionals: Float
) -> Float:
    """Compute the p-value of the violation of each constraint, of decisions or of pair rates."""
    is_pair = ["pair" in constraint.kinds for constraint in compiled.constraints]
    of_pairs = pair_p_values(compiled, cells, functionals)
    return np.where(is_pair, of_pairs, constraint_p_values(compiled, counts))


def _make_test(rows: EvaluationSet, margin: Array) -> Callable[[Choice], float]:
    """Make the test of shifted scores: the largest p-value of the guaranteed constraints."""
    tested = find_first_constraints(rows.compiled)
    tested &= ["pair" not in constraint.kinds for constraint in rows.compiled.constraints]

    def test_pairs(scores: Array) -> float:
        if not rows.compiled.pair_blocks:
            return 0.0
        found = pair_p_values(rows.compiled, rows.cells, rows.functionals(scores))
        return float(found.max(initial=0.0))

    # A shift of two classes leaves the order of rows as it is.
    of_pairs = test_pairs(margin) if margin.ndim == 1 else None

    def test(choice: Choice) -> float:
        scores = shift_scores(margin, choice.shift)
        p = constraint_p_values(rows.compiled, rows.counts(rows.decisions(scores)))
        pairs = test_pairs(scores) if of_pairs is None else of_pairs
        return max(pairs, float(p[tested].max(initial=0.0)))

    return test


def _order_decisions(
    selection: ScoredRows,
    certification: EvaluationSet,
    prefix: int,
    delta: float,
    *,
    keeps_own: bool,
) -> list[Choice]:
    """Order the decisions of one prefix from the safest on, by the selection rows."""
    rows, margin = selection.rows, selection.margins(prefix)
    if margin.ndim > 1:
        return _order_biases(rows, margin, certification, prefix, delta, keeps_own=keeps_own)
    curve = threshold_curve(margin, rows.cells, rows.compiled, most=MOST_CANDIDATES)
    # Distance from each bound in standard errors of the certification rows, at the nearest bound.
    spread = anticipate_standard_errors(certification.compiled, certification.cells)
    spread = np.maximum(spread, 1e-9)
    first = find_first(rows.compiled)
    measured = rows.compiled.is_known & ~rows.compiled.has_scores & first
    with np.errstate(divide="ignore", invalid="ignore"):
        safety = np.min((-curve.violations / spread)[:, measured], axis=1, initial=np.inf)
    safety = np.round(safety, 9)  # Running sums of the same numbers differ by rounding.
    # Where the selection rows show no difference, as between thresholds at which none of them
    # violates a constraint, thresholds come first that are further from where rows do, and then
    # those of fewer errors.
    is_less_safe = safety < safety[:, None]
    apart = np.abs(curve.n_positive - curve.n_positive[:, None])
    distance = np.where(is_less_safe, apart, rows.cells.n_rows).min(axis=1)
    order = np.lexsort((curve.error, -distance, -safety))
    # A decision that fails on the selection rows will hardly be certified; a few are kept.
    order = order[safety[order] > -1.0] if (safety > -1.0).any() else order[:1]
    share = curve.n_positive / rows.cells.n_rows
    # Decisions may be the same for all certification rows, with probability `delta`.
    minority = np.minimum(share, 1.0 - share)
    useless = (1.0 - minority) ** certification.cells.n_rows > delta
    if not useless[curve.error.argmin()]:
        useless |= curve.error >= rows.find_best_constant(first & ~rows.compiled.has_scores)[1]
        order = order[~useless[order]]
    violation = np.maximum(curve.violations[:, first].max(axis=1, initial=0.0), 0.0)
    return [
        Choice(prefix, curve.shift[[i]], float(curve.error[i]), float(violation[i])) for i in order
    ]


def _order_biases(
    rows: EvaluationSet,
    margin: Array,
    certification: EvaluationSet,
    prefix: int,
    delta: float,
    *,
    keeps_own: bool,
) -> list[Choice]:
    """Find the best biases under bounds that are less and less tight.

    The model's own decisions, where they are to be kept, stand for each bound that they meet.
    """
    compiled = rows.compiled
    rates = compiled.rows_of(np.nan_to_num(rows.functionals(margin)))
    own = Choice(prefix, np.zeros(margin.shape[1]), rows.error(rows.decisions(margin)), 0.0)
    first = find_first(compiled)
    spread = anticipate_standard_errors(certification.compiled, certification.cells)
    spread = np.where(first, spread, 0.0)
    search = ShiftSearch(margin, rows.cells, compiled)
    choices = []
    for t in TIGHTENINGS:
        bounds = compiled.b - t * spread
        if keeps_own and (rates <= bounds)[first].all():
            choices.append(own)
            continue
        found = search.find(bounds=bounds)
        violation = _violation_of_first(compiled, found, bounds)
        choices.append(Choice(prefix, found.value, found.error, violation))
    decided = [rows.decisions(shift_scores(margin, c.shift)) for c in (own, *choices)]
    minority = np.array([_minority(rows, one) for one in decided])
    useless = (1.0 - minority) ** certification.cells.n_rows > delta
    if useless[0]:
        return choices
    _, least = rows.find_best_constant(first & ~compiled.has_scores)
    return [
        c for c, drop in zip(choices, useless[1:], strict=True) if not (drop or c.error >= least)
    ]


@dataclass(frozen=True)
class GuaranteeRequest:
    """Guarantee that was asked for, and the prefixes to choose from."""

    kind: str  # "expected" or "high_probability".
    calibration_fraction: float  # Share of the rows that is set aside for certification.
    delta: float  # Largest probability of a false certificate.
    prefixes: Prefixes

    def refuse(self, constraint: Any, reason: str) -> ValueError:
        """Make the error that the guarantee cannot be given for a constraint."""
        return ValueError(f"guarantee={self.kind!r} cannot be given for {constraint}: {reason}")

    @property
    def set_aside(self) -> str:
        """The share of the rows that is set aside, in the words of messages."""
        return f"fraction={self.calibration_fraction:g} sets aside"


def check_guarantee(
    rows: EvaluationSet, training: LinearConstraints, asked: GuaranteeRequest
) -> None:
    """Refuse a guarantee that the certification rows can never give.

    Only constraints of the priority that comes first have it. `training` are the constraints on
    the rows that are trained on.
    """
    compiled = rows.compiled
    if not isinstance(rows, PredictedRows):
        guarantee = f"guarantee={asked.kind!r}"
        check_straight(compiled.constraints, guarantee, "leave the guarantee out")
    is_first = find_first_constraints(compiled)
    for j, constraint in enumerate(compiled.constraints):
        reasons = _list_reasons(constraint, asked, is_regression=isinstance(rows, PredictedRows))
        if constraint.amounts and not constraint.is_always_met and is_first[j]:
            reasons += _list_reasons_of_amounts(constraint, rows.cells, j, asked)
        for is_refused, reason in reasons:
            if is_refused:
                raise asked.refuse(constraint, reason)
    _check_rows_set_aside(rows, training, asked)
    if asked.kind == "high_probability":
        _check_equalities(compiled, asked)
        _check_p_values(rows, asked)
        return
    bounds = conformal_bounds(compiled, rows.cells) + ROUNDING
    for j in np.flatnonzero(bounds < smallest_values(compiled))[:1]:
        raise asked.refuse(
            compiled.rows[j],
            f"the {rows.cells.n_rows} rows that {asked.set_aside} are too few for it, even "
            f"without a single error. {_remedy(compiled, j)}",
        )


def _list_reasons(
    constraint: Constraint, asked: GuaranteeRequest, *, is_regression: bool
) -> list[tuple[bool, str]]:
    """List reasons to refuse a constraint whatever the rows, and whether each holds."""
    is_expected = asked.kind == "expected"
    if is_regression:
        ranges = [function.stated_range for function in row_functions_of([constraint])]
        return [
            (
                is_expected,
                "it holds in the mean over samples only where values fall along the maps of "
                "scores, as losses do not. Use guarantee='high_probability', or leave the "
                "guarantee out.",
            ),
            (
                not np.isfinite(ranges).all(),
                "values of a row may be as large as they like. Give the smallest and the largest "
                "of them, as in mean_loss('squared', range=(0, 25)) or mean_prediction(range=(0, "
                "100)), or leave the guarantee out.",
            ),
        ]
    return [
        (
            "loss" in constraint.kinds,
            "a mean loss may be as large as it likes. Bound an error rate, or leave the guarantee "
            "out.",
        ),
        (
            "pair" in constraint.kinds and is_expected,
            "it compares scores, whose order no threshold changes, and a threshold is all that "
            "this guarantee chooses. Use guarantee='high_probability', which certifies the scores "
            "as they are, or leave the guarantee out.",
        ),
    ]


def _list_reasons_of_amounts(
    constraint: Constraint, cells: Cells, j: int, asked: GuaranteeRequest
) -> list[tuple[bool, str]]:
    """List reasons to refuse amounts: without a bound, or of a kind that no test is known for."""
    amounts = cells.views[cells.view_of[j]].weigh(None)
    if amounts is None:  # The matrix of a cost has the amounts, and its rows have none.
        amounts = np.zeros(1)
    return [
        (
            constraint.has_costs_of_amounts,
            "a mean of amounts is no rate, and its certificate is not known here. Bound the rates "
            "of amounts that the costs are made of, such as fnr(weight=..., cap=...), or leave "
            "the guarantee out.",
        ),
        (
            constraint.amounts[0].cap is None,
            f"amounts without a bound may be as large as they like, however few rows have large "
            f"ones. Those seen lie between {amounts.min():g} and {amounts.max():g}: give a cap "
            f"that no row exceeds, as in fnr(weight=..., cap={amounts.max():g}).",
        ),
        (
            asked.kind == "expected",
            "rows count for unequal amounts, and this guarantee counts rows. Use "
            "guarantee='high_probability', or leave the guarantee out.",
        ),
        (
            cells.rows.weight is not None,
            "amounts have no certificate beside sample weights: leave sample_weight out, or "
            "multiply the amounts by it.",
        ),
        (
            constraint.expression.compares_pairs,
            "it compares the amounts of groups, for which no certificate is known. Bound the rate "
            "of each group, or leave the guarantee out.",
        ),
    ]


def _check_rows_set_aside(
    rows: EvaluationSet, training: LinearConstraints, asked: GuaranteeRequest
) -> None:
    """Refuse constraints that lack rows, among those set aside or those left for training."""
    compiled = rows.compiled
    for group in compiled.further_groups(training)[:1]:
        raise ValueError(
            f"guarantee={asked.kind!r} sets aside all rows of {group}: the model would "
            f"be trained on none. Give more rows of this group, drop them, or leave the "
            f"guarantee out."
        )
    is_first = find_first_constraints(compiled)
    for j, constraint in enumerate(compiled.constraints):
        is_undefined = np.isnan(compiled.constant[compiled.spans[j]])
        # A constraint that no decision violates has no rows.
        if j not in training.owner or not is_undefined.any() or not is_first[j]:
            continue
        where = merge = ""
        if compiled.groups[j]:
            by_group = np.reshape(is_undefined, (-1, len(constraint.rates)))
            of_groups = np.any(by_group, axis=1).tolist()
            where = f" in {next(compress(compiled.groups[j], list(of_groups)))}"
            merge = ", or put small groups together with small_groups='merge'"
        raise asked.refuse(
            constraint,
            f"of the {rows.cells.n_rows} rows that {asked.set_aside} it is taken over "
            f"none{where}. Give more rows or a larger fraction of the guarantee{merge}.",
        )


def _check_equalities(compiled: LinearConstraints, asked: GuaranteeRequest) -> None:
    """Refuse constraints that two values are equal."""
    first = find_first(compiled)
    for i, j in zip(*compiled.opposites, strict=True):
        if compiled.b[i] + compiled.b[j] <= ROUNDING and first[i] and first[j]:
            raise asked.refuse(
                compiled.constraints[compiled.owner[i]],
                "that two values are equal no number of rows certifies. Relax the bound.",
            )


def _check_p_values(rows: EvaluationSet, asked: GuaranteeRequest) -> None:
    """Refuse constraints that even the best predictions could not certify."""
    compiled = rows.compiled
    if isinstance(rows, PredictedRows):
        of_best = BoundedMeans(rows.cells, compiled).smallest_p_values()
        for j in np.flatnonzero(of_best > asked.delta).tolist():
            raise asked.refuse(
                compiled.constraints[j],
                f"even the best predictions of the {rows.cells.n_rows} rows that "
                f"{asked.set_aside} leave a p-value of {of_best[j]:.2g}, above "
                f"delta={asked.delta:g}. Give more rows or a larger fraction of the guarantee, "
                f"state a smaller range, or relax the bound or delta.",
            )
        return
    level = asked.delta / count_sequences(rows, asked.prefixes)
    found = smallest_p_values(compiled, rows.cells, level)
    for j in np.flatnonzero(find_first_constraints(compiled)).tolist():
        p_value, why = found[j]
        if p_value > level:
            raise asked.refuse(
                compiled.constraints[j],
                f"{why}. With not a single error the {rows.cells.n_rows} rows that "
                f"{asked.set_aside} leave a p-value of {p_value:.2g}, above {level:.2g}, which "
                f"delta={asked.delta:g} leaves to it. "
                f"{_remedy(compiled, compiled.owner == j, ' or delta')}",
            )
    cells, n = rows.cells, rows.cells.n_rows
    for j, needed in enumerate(rows_to_certify(compiled, cells, level)):
        if needed > n:
            side, name = min(
                (int(cells.weighted_count[base].sum()), compiled.functional_names[k])
                for k in range(*compiled.spans[j].indices(compiled.constant.size))
                for term in compiled.terms[k] or ()
                for base in term.bases
            )
            remedy = "No number of rows is enough for it: relax the bound."
            if np.isfinite(needed):
                remedy = (
                    f"It takes {needed:,.0f} rows of this kind. Give more rows or a larger "
                    f"fraction, or relax the bound or delta."
                )
            raise asked.refuse(
                compiled.constraints[j],
                f"not even perfect scores earn it on the {n:,} rows that {asked.set_aside}, with "
                f"{side} on the smaller side of {name}. {remedy}",
            )


def _remedy(compiled: LinearConstraints, at: Any, others: str = "") -> str:
    """Describe a remedy for some rows of constraints."""
    if (compiled.b <= smallest_values(compiled) + ROUNDING)[at].any():
        return "No number of rows is enough for it: relax the bound."
    return f"Give more rows or a larger fraction of the guarantee, or relax the bound{others}."


def smallest_values(compiled: LinearConstraints) -> Float:
    """Compute the smallest value that any decisions could give each row of constraints."""
    return np.array(
        [
            -np.inf if blocks is None else sum(block.low for block in blocks)
            for blocks in blocks_of_rows(compiled)
        ]
    )


def smallest_p_values(
    compiled: LinearConstraints, cells: Cells, level: float
) -> list[tuple[float, str]]:
    """Compute the smallest p-value that any decisions could give each constraint, and say why.

    It is zero for constraints on scores.

    The reason for the bound of one rate names the number of rows that would reach the level; rows
    of unequal weights count as their effective number.
    """
    smallest = [(0.0, "")] * len(compiled.constraints)
    shape = (len(cells), cells.classes.size)
    for j, blocks in enumerate(blocks_of_rows(compiled)):
        if compiled.has_scores[j]:
            continue
        cost = compiled.A[[j]].toarray().reshape(shape)
        counts = CellCounts.of_shares(cells, np.eye(shape[1])[cost.argmin(axis=1)])
        p = float(p_value_of_blocks(blocks, float(compiled.b[j]), counts))
        owner = int(compiled.owner[j])
        if p > smallest[owner][0]:
            n = int(cells.weighted_count[np.ptp(cost, axis=1) > 0].sum())
            needed, is_of_rows = "", not blocks or blocks[0].largest_amount is None
            if blocks is not None and len(blocks) == 1 and is_of_rows and blocks[0].is_binomial:
                needed = _describe_rows_needed(blocks[0], float(compiled.b[j]), counts, level)
            smallest[owner] = p, f"{compiled.rows[j]} is taken over {n} of these rows{needed}"
    return smallest


def _describe_rows_needed(block: MeanScore, bound: float, counts: CellCounts, level: float) -> str:
    """Describe how many rows without an event would certify a bound; empty where none would."""
    room = (bound - block.low) / block.width
    if not 0.0 < room < 1.0:
        return ""
    if block.has_equal_weights(counts):
        return f" and needs {minimum_rows(room, level)}"
    n, needed = block.effective_rows(counts), ceil(-log(level) / (2.0 * room**2))  # Hoeffding
    return f", which count as {n:.0f} for their weights, and needs {needed}"


class CertifiedAffine(NamedTuple):
    """A map of scores with the p-values of the constraints on the certification rows.

    Parameters
    ----------
    affine : Affine
        The map.
    p_values : ndarray of shape (n_constraints,)
        P-value of the violation of each constraint.
    level : float
        Largest p-value that earns the certificate.
    """

    affine: Affine
    p_values: Float
    level: float


def check_observed(rows: PredictedRows, score: Array) -> None:
    """Refuse stated ranges that rows leave at some scores."""
    values = rows.row_values(score)
    for j, (low, high), found in BoundedMeans(rows.cells, rows.compiled).find_outside(values):
        raise ValueError(
            f"constraints: {rows.compiled.constraints[j]} states that the value of each row is "
            f"from {low:g} to {high:g}, and {found.size} of {rows.cells.n_rows} unseen rows "
            f"({rows.source}) have others, from {found.min():g} to {found.max():g}: give a range "
            f"that no row leaves."
        )


def tighten_for_certificate(
    compiled: LinearConstraints, certification: PredictedRows, delta: float
) -> LinearConstraints:
    """Give rows of constraints the bounds at which certification rows would certify them, about.

    No bound is tightened by more than half of what predictions could reach, and pairs of rows with
    opposite sides leave half of the room between them.
    """
    tests = BoundedMeans(certification.cells, certification.compiled)
    # A standard deviation lies between the bounds of training and what just earns a certificate.
    step = (norm.isf(delta) + 1.0) * tests.deviations()
    step = np.minimum(step, (compiled.b - tests.smallest_values()) / 2.0)
    for pair in tests.opposites:
        step[[*pair]] = np.minimum(step[[*pair]], compiled.b[[*pair]].sum() / 4.0)
    return replace(compiled, b=compiled.b - np.maximum(step, 0.0))


def certify_affine(
    selection: tuple[PredictedRows, Array],
    certification: tuple[PredictedRows, Array],
    delta: float,
    *,
    has_scale: bool = True,
) -> CertifiedAffine:
    """Find the map of least loss that the certification rows certify.

    Where the first one fails, the map that is chosen without a guarantee is returned, for it costs
    less. Its p-values are no smaller than those that failed.

    Parameters
    ----------
    selection, certification : tuple of PredictedRows and ndarray of shape (n_samples,)
        Rows that order the maps, and rows that were used for nothing else, with their scores.
    delta : float
        Probability of a false certificate.
    has_scale : bool, default=True
        Whether scores can be scaled, and not only shifted.
    """
    rows, score = certification
    tests = BoundedMeans(rows.cells, rows.compiled)

    def test(choice: AffineChoice) -> Float:
        return tests.p_values(rows.row_values(choice.affine(score)))

    order = _order_maps(selection, tests.deviations(), has_scale=has_scale)
    passed, _ = _test_in_order([order], [lambda choice: float(test(choice).max())], delta)
    if passed:
        choice, _ = min(passed, key=lambda one: one[0].loss)
        return CertifiedAffine(choice.affine, test(choice), delta)
    choice = choose_affine(*selection, has_scale=has_scale)
    failed = test(order[0]) if order else 1.0
    return CertifiedAffine(choice.affine, np.maximum(test(choice), failed), delta)


def _order_maps(
    selection: tuple[PredictedRows, Array], deviations: Float, *, has_scale: bool
) -> list[AffineChoice]:
    """List the maps of least loss under bounds that are less and less tight, the safest first.

    Of bounds that are too tight, the map is returned whose nearest bound is furthest away, in
    deviations of the tests. Maps under which rows leave a stated range would fail, and are not
    allowed. Maps that lose no less than the mean score for all rows are left out, unless the
    scores themselves do: equal predictions have no gaps, and are of no use.
    """
    rows, score = selection
    errors = np.maximum(deviations, np.finfo(np.float64).eps)

    def pick(losses: Float, violations: Float) -> int:
        worst = (violations / errors).max(axis=1, initial=0.0)
        return int(np.lexsort((losses, np.maximum(worst, 0.0)))[0])

    tests, choices = BoundedMeans(rows.cells, rows.compiled), dict[Affine, AffineChoice]()
    # The safest maps come first: the model of all rows may be further from its bounds than the
    # models of the folds are, and a sequence that begins with a failure certifies nothing.
    for t in (16.0, 8.0, *TIGHTENINGS):
        choice = choose_affine(
            rows.with_bounds(rows.compiled.b - t * deviations),
            score,
            pick,
            has_scale=has_scale,
            is_allowed=lambda affine: not tests.find_outside(rows.row_values(affine(score))),
        )
        choices.setdefault(choice.affine, choice)
    constant = np.full_like(score, rows.lagrangian.rows.mean(score))
    least, own = rows.measure_scores(constant)[0], rows.measure_scores(score)[0]
    return [one for one in choices.values() if one.loss < least or own >= least]
