"""Which model to return: the prefix of the ensemble, and the shift of its scores.

Training leaves a row of models, one for each outer iteration, and each gives a family of
decisions as its threshold (or its class biases) moves. The choice among them is made by rows that
the trees have not seen: the decision of smallest error under which all rules hold there. What is
asked beyond that is a guarantee, by rows that were used for nothing else:

- ``"expected"``: the threshold is moved until each rule holds on them with what one more row could
  add, so that it holds in the mean over samples (conformal risk control; see
  :func:`~.certificates.expected_bounds`).
- ``"high_probability"``: they test a sequence of decisions, from the safest to the boldest, and
  the best one that passes is returned: all rules then hold in the population with probability
  ``1 - delta``.

The bound of one rate of one class has an exact order-statistic threshold in both
(:func:`~.certificates.expected_threshold`, :func:`~.certificates.umbrella_threshold`), and
decisions stay where they are if they are on its safe side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.evaluation_set import UnseenRows
from gbm_constrained.decision.guarantee_checks import expected
from gbm_constrained.decision.lines import RESOLUTION, are_apart
from gbm_constrained.decision.prefix_choice import Margins, prefixes, price, standard_errors
from gbm_constrained.decision.rule import MET, Choice, shifted
from gbm_constrained.decision.threshold_search import ShiftSearch, best_shift, threshold_curve
from gbm_constrained.statistics.multiple_testing import learn_then_test
from gbm_constrained.statistics.order_statistics import expected_threshold, umbrella_threshold
from gbm_constrained.statistics.p_values import rule_p_value

Guarantee: TypeAlias = Literal["expected", "high_probability"] | None
GUARANTEES: tuple[Guarantee, ...] = (None, "expected", "high_probability")
TESTED_PREFIXES = 3  # Of these, how many are tested: each has its share of delta.
THRESHOLDS = 400  # Thresholds of each that are tested, at most.
TIGHTENINGS = (4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5, 0.0)  # Of several classes, standard errors.


def _monotone(rows: UnseenRows) -> tuple[Codes, int, float] | None:
    """Rows of a single rate that only falls as decisions move towards one class.

    Returns
    -------
    rows : ndarray of int
        The rows that the rate is taken over.
    towards : int
        The class that decisions must move towards for the rate to fall.
    bound : float
        Largest fraction of those rows that may be decided otherwise.
    """
    compiled = rows.compiled
    if len(compiled) != 1 or compiled.R.nnz != 1 or rows.cells.classes.size > 2:
        return None
    parts = compiled.parts[int(compiled.R.indices[0])]
    if parts is None or len(parts) != 1:
        return None
    (part,) = parts
    factor = float(compiled.R.data[0]) * part.coefficient
    counted = set(map(tuple, part.event.tolist()))
    if factor == 0.0 or counted not in ({(True, False)}, {(False, True)}):
        return None
    when = int((False, True) in counted)  # the class whose prediction is counted
    bound = float(compiled.b[0]) / factor
    inside = np.zeros(len(rows.cells), dtype=bool)
    inside[part.cells] = True
    view = next(v for v in rows.cells.views if v.cells.start <= part.cells[0] < v.cells.stop)
    taken = np.flatnonzero(inside[view.codes])
    weight = rows.cells.rows.weight
    if weight is not None:
        taken = taken[weight[taken] > 0]
        if taken.size and np.ptp(weight[taken]) > 0:
            return None  # the binomial argument is for rows that count alike
    if not 0.0 < bound < 1.0:
        return None
    return (taken, 1 - when, bound) if factor > 0 else (taken, when, 1.0 - bound)


@dataclass(frozen=True)
class _Limit:
    """The boldest shift of a threshold under which one rate keeps what is promised.

    Parameters
    ----------
    shift : ndarray of shape (1,)
        The shift.
    towards : int
        The class that decisions move towards as the rate falls.
    """

    shift: Float
    towards: int

    def clamp(self, shift: Float) -> Float:
        """Shift nearest to another on the safe side."""
        nearer = np.minimum if self.towards == 0 else np.maximum
        return np.asarray(nearer(shift, self.shift))


def _limit(
    rows: UnseenRows, margin: Array, threshold: Callable[[Array, float], float]
) -> _Limit | None:
    """Find the shift of an order-statistic threshold of one rate; None where it is not for."""
    found = _monotone(rows)
    if found is None:
        return None
    taken, towards, bound = found
    wrong = margin[taken].astype(np.float64) * (1.0 if towards == 0 else -1.0)
    # Decided otherwise are the rows beyond it. The threshold lies as near to it as the saved model
    # tells the two apart: of the other class many rows may be between this score and the next.
    reached = np.sort(wrong[wrong >= threshold(wrong, bound)])
    cuts = np.append(np.flatnonzero(are_apart(reached, np.abs(reached))), reached.size - 1)
    score = reached[cuts[0]]
    cut = score + 0.5 * RESOLUTION * max(abs(score), 1.0)
    return _Limit(np.array([-cut if towards == 0 else cut]), towards)


def _within(limit: _Limit, chosen: UnseenRows, margin: Array, start: Choice) -> Choice:
    """Decision of smallest error on the safe side of a limit, on the rows it is chosen by.

    The library's own threshold stays where it is safe; and the limit is not left for fewer errors
    that may be chance.
    """
    shift = limit.clamp(start.shift)
    if start.shift.any():
        curve = threshold_curve(margin, chosen.cells, chosen.compiled)
        safe = limit.clamp(curve.shift) == curve.shift
        at_limit = chosen.error(chosen.decisions(margin + limit.shift[0]))
        fewest = curve.error[safe].min(initial=np.inf)
        shift = limit.shift
        if fewest < at_limit - np.sqrt(at_limit * (1.0 - at_limit) / len(margin)):
            best = curve.shift[safe & (curve.error <= fewest + MET)]
            shift = best[[np.abs(best).argmin()]]  # neither class comes first among equals
    return replace(start, shift=shift, error=chosen.error(chosen.decisions(margin + shift[0])))


def hold_in_the_mean(
    chosen: UnseenRows, margins: Margins, fresh: UnseenRows, fresh_margins: Margins, start: Choice
) -> Choice:
    """Move a decision until rules hold in the mean over samples of fresh rows.

    Conformal risk control (Angelopoulos et al., 2024, Theorem 1): exact for one rate, whose
    thresholds are nested; several rules and gaps meet the bounds of
    :func:`~.certificates.expected_bounds` together.

    Parameters
    ----------
    chosen, margins, fresh, fresh_margins, start
        As for :func:`certify`.
    """
    margin = fresh_margins(start.rounds)
    limit = _limit(fresh, margin, expected_threshold)
    if limit is not None:
        return _within(limit, chosen, margins(start.rounds), replace(start, excess=0.0))
    bounds = expected(fresh.compiled, fresh.cells)
    scores = shifted(margin, start.shift)
    held = fresh.functionals(scores, fresh.counts(fresh.decisions(scores)))
    if (fresh.compiled.rows_of(np.nan_to_num(held)) <= bounds + MET).all():
        return replace(start, excess=0.0)
    found = best_shift(
        margin, fresh.cells, fresh.compiled, bounds=bounds, price=price(fresh.cells)
    )
    return replace(start, shift=found.value, error=found.error, excess=found.excess)


def certify(
    chosen: UnseenRows,
    margins: Margins,
    fresh: UnseenRows,
    fresh_margins: Margins,
    start: Choice,
    rounds: int,
    rounds_per_iteration: int,
    delta: float,
    *,
    among_prefixes: bool,
) -> Choice:
    """Find the decision of smallest error that fresh rows certify.

    Learn then Test (Angelopoulos et al., 2021, section 2.3): decisions are put in order by how
    safe they look on the rows they were chosen by, and tested in that order on fresh rows until
    one fails; if any prefix may be better, some of them share `delta`. Of those that passed, the
    one of least error on the first rows is returned, unless `start` leaves the model's own
    decisions and these are among them; where none did, the one of smallest p-value. One rate has
    an exact threshold instead.

    Parameters
    ----------
    chosen, margins
        Rows that decisions are ordered by, and their scores.
    fresh, fresh_margins
        Rows used for nothing else, and their scores.
    start : Choice
        The best decision without a guarantee.
    rounds, rounds_per_iteration : int
        Length of the whole ensemble, and of an outer iteration.
    delta : float
        Probability of a false certificate, at most.
    among_prefixes : bool
        Whether any prefix may be better than the one of `start`.
    """
    margin = fresh_margins(start.rounds)
    limit = _limit(fresh, margin, partial(umbrella_threshold, delta=delta))
    if limit is not None:
        best = _within(limit, chosen, margins(start.rounds), start)
        return replace(best, p_value=_p_value(fresh, margin, best.shift), level=delta)
    candidates = prefixes(rounds, rounds_per_iteration)
    near = sorted(candidates, key=lambda prefix: abs(np.log(prefix / start.rounds)))
    tested = [start.rounds, *(p for p in near if p != start.rounds)]
    tested = tested[: sequences_of(fresh, len(candidates) if among_prefixes else 1)]
    at_rest = not start.shift.any()
    sequences = [_sequence(chosen, margins(p), fresh, p, at_rest) for p in tested]
    longest = max(len(sequence) for sequence in sequences)
    p_values = np.ones((len(sequences), longest))
    for i, (prefix, sequence) in enumerate(zip(tested, sequences, strict=True)):
        margin = fresh_margins(prefix)
        for j, choice in enumerate(sequence):
            p_values[i, j] = _p_value(fresh, margin, choice.shift)
            if p_values[i, j] > delta:  # none behind it can pass
                break
    passed = learn_then_test(p_values, delta)
    if not passed.any():  # nor has what is behind a failure, however small its own p-value
        p_values = np.maximum.accumulate(p_values, axis=1)
    all_choices = [
        replace(choice, p_value=float(p_values[i, j]), level=delta / len(sequences))
        for i, sequence in enumerate(sequences)
        for j, choice in enumerate(sequence)
        if passed[i, j] or not passed.any()
    ]
    if passed.any():
        own = [c for c in all_choices if c.rounds == start.rounds and not c.shift.any()]
        return own[0] if at_rest and own else min(all_choices, key=lambda c: c.error)
    return min(all_choices, key=lambda c: c.p_value)


def sequences_of(fresh: UnseenRows, n_prefixes: int) -> int:
    """Sequences that share `delta`, one for each prefix; one alone if thresholds are exact."""
    one = fresh.cells.classes.size > 2 or _monotone(fresh)
    return 1 if one else min(n_prefixes, TESTED_PREFIXES)


def _p_value(rows: UnseenRows, margin: Array, shift: Float) -> float:
    decided = rows.decisions(shifted(margin, shift))
    return float(rule_p_value(rows.compiled, rows.counts(decided)))


def _sequence(
    chosen: UnseenRows, margin: Array, fresh: UnseenRows, prefix: int, at_rest: bool
) -> list[Choice]:
    """Decisions of one prefix, from the safest to the boldest, by the rows they are chosen by."""
    compiled = chosen.compiled
    if margin.ndim > 1:
        return _tightened(chosen, margin, fresh, prefix, at_rest)
    curve = threshold_curve(margin, chosen.cells, compiled, most=THRESHOLDS)
    # By how many standard errors of the fresh rows each rule holds, at the worst of them.
    spread = np.maximum(standard_errors(fresh.compiled, fresh.cells), 1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
        safety = np.min((-curve.violations / spread)[:, compiled.is_known], axis=1, initial=np.inf)
    safety = np.round(safety, 9)  # running sums of the same numbers
    # Where these rows tell no difference, as between thresholds at which none of them breaks a
    # rule, those come first that are further from where they do, and then those of fewer errors.
    bolder = safety < safety[:, None]
    apart = np.abs(curve.n_positive - curve.n_positive[:, None])
    distance = np.where(bolder, apart, len(margin)).min(axis=1)
    order = np.lexsort((curve.error, -distance, -safety))
    # Nothing that fails on the rows it is chosen by will be certified; a few for good measure.
    order = order[safety[order] > -1.0] if (safety > -1.0).any() else order[:1]
    excess = np.maximum(curve.violations.max(axis=1, initial=0.0), 0.0)
    return [
        Choice(prefix, curve.shift[[i]], float(curve.error[i]), float(excess[i])) for i in order
    ]


def _tightened(
    chosen: UnseenRows, margin: Array, fresh: UnseenRows, prefix: int, at_rest: bool
) -> list[Choice]:
    """Best biases under bounds that are less and less tight; none, at rest, where these hold."""
    compiled, decisions = chosen.compiled, chosen.decisions(margin)
    held = chosen.functionals(margin, chosen.counts(decisions))
    rates = compiled.rows_of(np.nan_to_num(held))
    own = Choice(prefix, np.zeros(margin.shape[1]), chosen.error(decisions), 0.0)
    spread = standard_errors(fresh.compiled, fresh.cells)
    search = ShiftSearch(margin, chosen.cells, compiled)
    choices = []
    for t in TIGHTENINGS:
        bounds = compiled.b - t * spread
        if at_rest and (rates <= bounds).all():
            choices.append(own)
            continue
        found = search.best(bounds=bounds)
        choices.append(Choice(prefix, found.value, found.error, found.excess))
    return choices
