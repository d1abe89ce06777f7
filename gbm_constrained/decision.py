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

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, log
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gbm_constrained.calibration import (
    RESOLUTION,
    Shift,
    are_apart,
    best_shift,
    threshold_curve,
)
from gbm_constrained.cells import Cells, CellStatistics
from gbm_constrained.certificates import (
    expected_bounds,
    expected_threshold,
    learn_then_test,
    minimum_rows,
    umbrella_threshold,
)
from gbm_constrained.compiler import CompiledConstraints
from gbm_constrained.counts import Block, CellCounts, blocks_of_rows, functionals_of
from gbm_constrained.disagreement import disagreement, of_one_booster
from gbm_constrained.intervals import clopper_pearson, constraint_intervals, functional_intervals
from gbm_constrained.lagrangian import Lagrangian
from gbm_constrained.loss_intervals import add_loss_intervals
from gbm_constrained.losses import Array
from gbm_constrained.p_values import p_value_of_blocks, rule_p_value
from gbm_constrained.rates import Gap
from gbm_constrained.rows import Bool, Codes, Float
from gbm_constrained.selection import MET

Guarantee: TypeAlias = Literal["expected", "high_probability"] | None
GUARANTEES: tuple[Guarantee, ...] = (None, "expected", "high_probability")

PREFIXES = 12  # Prefixes that are looked at where one is to be chosen.
FEW_PREFIXES = 3  # The last of these, for several classes.
# Errors that a violation is worth where not all rules can be met: the last of it would otherwise
# cost any number of them. Of several classes, and of one that is told by training rows; of two
# classes, where a gap or ratio of groups has this price also if it can be met.
PRICE, DEAR = 3.0, 10.0
# Shares of a violation by which a shift leaves room, one after the other.
ROOM = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
COSTLY = 0.02  # Further errors by a shift beyond which other prefixes are looked at, too.
TESTED_PREFIXES = 3  # Of these, how many are tested: each has its share of delta.
THRESHOLDS = 400  # Thresholds of each that are tested, at most.
TIGHTENINGS = (4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5, 0.0)  # Of several classes, standard errors.


def shifted(margin: Array, shift: Float) -> Array:
    """Scores with a shift added to them."""
    return np.asarray(margin + (shift if margin.ndim > 1 else shift[0]))


def decided(margin: Array, shift: Float) -> Array:
    """Class index that shifted scores decide for."""
    scores = shifted(margin, shift)
    return np.asarray(scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(np.intp))


class Scores(NamedTuple):
    """Scores of rows under a model whose decisions may be shifted.

    Parameters
    ----------
    deciding : ndarray
        Those that ``predict`` decides by.
    telling : ndarray
        Those that ``predict_proba`` tells of, and that mean losses are taken of; the same object
        unless the shift is kept beside the model.
    """

    deciding: Array
    telling: Array

    @classmethod
    def of(cls, margin: Array, shift: Float, *, beside: bool) -> Scores:
        """Shift scores, or keep the shift beside those that probabilities are of."""
        deciding = shifted(margin, shift)
        return cls(deciding, margin if beside and shift.any() else deciding)

    def statistics(self, lagrangian: Lagrangian) -> CellStatistics:
        """Cell statistics of the decisions, and of the losses of the probabilities."""
        found = lagrangian.at(self.deciding).statistics()
        if self.telling is self.deciding:
            return found
        return replace(lagrangian.at(self.telling).statistics(), predicted=found.predicted)


class Estimate(NamedTuple):
    """A value on a sample of rows, and the interval for its value on all such rows.

    Parameters
    ----------
    value, low, high : float
        The value, and the ends of the interval.
    """

    value: float
    low: float
    high: float

    def __float__(self) -> float:
        """The value alone, as ``float(estimator.unseen_accuracy_)`` asks for."""  # noqa: D401
        return float(self.value)


UNKNOWN = Estimate(np.nan, np.nan, np.nan)


class UnseenRows:
    """Rows that the trees have not seen, and what the rules are worth on them.

    Parameters
    ----------
    cells : Cells
        Their partition.
    compiled : CompiledConstraints
        The constraints.
    source : str
        What the rows are called in reports.
    folds : sequence of ndarray of int, default=()
        Parts of the rows, each scored by another booster.

    Attributes
    ----------
    functionals_in : dict from int to ndarray
        Value of each functional after the rounds that were measured.
    choices : dict from int to Choice
        Prefixes at their best shift, as far as :func:`choose` has looked at them.
    """

    def __init__(
        self,
        cells: Cells,
        compiled: CompiledConstraints,
        source: str,
        folds: Sequence[Codes] = (),
    ) -> None:
        self.cells, self.compiled, self.source, self.folds = cells, compiled, source, folds
        rows = cells.rows
        self.lagrangian = Lagrangian(rows.y, cells, compiled, weight=rows.weight)
        self.functionals_in: dict[int, Float] = {}
        self.choices: dict[int, Choice] = {}

    def measure(self, rounds: int, margin: Array) -> None:
        """Measure the rates at the scores that the rows have after some rounds."""
        statistics = self.lagrangian.at(margin).statistics()
        self.functionals_in[rounds] = self.compiled.functionals(statistics)

    def state(self) -> dict[str, Any]:
        """Give what has been measured so far, for :meth:`restore`."""
        return {
            "rounds": list(self.functionals_in),
            "functionals": list(self.functionals_in.values()),
            "lagrangian": self.lagrangian.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what was measured on the same rows."""
        self.functionals_in = dict(zip(state["rounds"], state["functionals"], strict=True))
        self.lagrangian.restore(state["lagrangian"])

    def values(self, rounds: int) -> Float:
        """Value of each constraint after some rounds, shape (n_constraints,)."""
        return self.compiled.values(self.functionals_after(rounds))

    def functionals_after(self, rounds: int) -> Float:
        """Value of each functional after some rounds; NaN where these were not looked at."""
        unknown = np.full(self.compiled.constant.size, np.nan)
        return self.functionals_in.get(rounds, unknown)

    def functionals(self, telling: Array, counts: CellCounts) -> Float:
        """Value of each functional: rates as counted, mean losses of the scores given."""
        compiled = self.compiled
        functionals = functionals_of(compiled, counts)
        if compiled.V.nnz:
            total = counts.weight.sum(axis=1, keepdims=True)
            shares = np.divide(
                counts.weight, total, out=np.zeros_like(counts.weight), where=total > 0
            )
            statistics = replace(self.lagrangian.at(telling).statistics(), predicted=shares)
            with_loss = np.diff(compiled.V.indptr) > 0
            functionals = np.where(with_loss, compiled.functionals(statistics), functionals)
        return functionals

    def counts(self, decisions: Codes) -> CellCounts:
        """Count decisions on these rows."""
        return CellCounts.of(self.cells, decisions)

    def decisions(self, margin: Array) -> Codes:
        """Class index that each row's scores decide for."""
        return np.asarray(self.lagrangian.kernel.predicted(margin)).astype(np.intp)

    def violations(self, margin: Array) -> Float:
        """Left-hand minus right-hand side of each row of constraints at some scores, (m,)."""
        functionals = self.functionals(margin, self.counts(self.decisions(margin)))
        return self.compiled.rows_of(np.nan_to_num(functionals)) - self.compiled.b

    def error(self, decisions: Codes) -> float:
        """Fraction of the labelled rows of the objective that is decided wrongly.

        By the weights of rows and of classes: what decisions are chosen by.
        """
        inside = self.cells.labelled
        labels = self.cells.labels[inside]
        weight = self.counts(decisions).weight[inside] * self.cells.class_weight[labels][:, None]
        total = weight.sum()
        right = weight[np.arange(len(weight)), labels].sum()
        return float(1.0 - right / total) if total > 0 else np.nan

    def accuracy(self, counts: CellCounts) -> Estimate:
        """Weighted fraction of the labelled rows of the objective that is decided rightly.

        Clopper and Pearson's interval at level 0.95; unequal weights count as their effective
        number of rows.
        """
        inside = self.cells.labelled
        weight, square = counts.weight[inside], counts.square[inside].sum()
        total = weight.sum()
        if not total > 0:
            return UNKNOWN
        right = weight[np.arange(len(weight)), self.cells.labels[inside]].sum() / total
        n = total**2 / square
        low, high = clopper_pearson(n * right, n)
        return Estimate(float(right), float(low), float(high))


class Sampled(NamedTuple):
    """Intervals by the sampling of rows alone.

    Parameters
    ----------
    rules : ndarray of shape (n_constraints, 2)
        Of what the constraints bound.
    rates : ndarray of shape (n_functionals, 2)
        Of the rates that they are made of.
    """

    rules: Float
    rates: Float


@dataclass(frozen=True)
class Outcome:
    """What the rules are worth on unseen rows, at the returned decisions.

    Parameters
    ----------
    functionals : ndarray of shape (n_functionals,)
        Rates.
    intervals : ndarray of shape (n_constraints, 2)
        Of what the constraints bound; NaN where there is none. Of cross-fitted rows those of one
        more booster, but for mean losses; see :mod:`gbm_constrained.disagreement`.
    of_functionals : ndarray of shape (n_functionals, 2)
        Of the rates.
    sources : ndarray of str, shape (n_constraints,)
        The rows, for each constraint.
    sampled : Sampled
        The intervals without what differs from booster to booster.
    accuracy : Estimate
        Fraction of these rows decided rightly.
    unsteady : ndarray of shape (n_constraints,), bool
        Whether the boosters differ by more than chance.
    """

    functionals: Float
    intervals: Float
    of_functionals: Float
    sources: NDArray[np.object_]
    sampled: Sampled
    accuracy: Estimate = UNKNOWN
    unsteady: Bool = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def of(
        cls,
        rows: UnseenRows,
        scores: Scores,
        decisions: Codes | None = None,
    ) -> Outcome:
        """Measure the decisions and the mean losses of scores.

        Parameters
        ----------
        rows : UnseenRows
            The rows.
        scores : Scores
            Of these rows, by one shift on all folds: boosters are compared by it.
        decisions : ndarray of int, default=None
            What rates are of, if not of decisions by these scores: those of cross-fitted rows by
            shifts of their own.
        """
        alike = rows.decisions(scores.deciding)
        decisions = alike if decisions is None else decisions
        counts, compiled, folds = rows.counts(decisions), rows.compiled, rows.folds
        functionals = rows.functionals(scores.telling, counts)
        sampled = Sampled(
            constraint_intervals(compiled, counts), functional_intervals(compiled, counts)
        )
        if compiled.V.nnz:
            loss = rows.lagrangian.at(scores.telling).losses()
            given = rows.cells, compiled, functionals, decisions, loss
            sampled = Sampled(*add_loss_intervals(*given, *sampled))
        differ = disagreement(compiled, rows.cells, folds, alike, decisions)
        values, n = compiled.values(functionals), len(folds)
        return cls(
            functionals,
            of_one_booster(sampled.rules, values, differ.rules, n, compiled.ranges),
            of_one_booster(sampled.rates, functionals, differ.rates, n, compiled.ranges_of_rates),
            _sources(rows),
            sampled,
            rows.accuracy(counts),
            differ.beyond_chance,
        )

    @classmethod
    def of_mean(cls, rows: UnseenRows, rounds: int, counts: CellCounts) -> Outcome:
        """Take the rates of a mean over models.

        Parameters
        ----------
        rows : UnseenRows
            The rows, whose mean rates are known.
        rounds : int
            The rounds that these are known for.
        counts : CellCounts
            The mean of the models' decisions. The rate of a mean varies no more than a binomial
            one, so that the intervals of rates are conservative.
        """
        compiled = rows.compiled
        sampled = Sampled(
            constraint_intervals(compiled, counts), functional_intervals(compiled, counts)
        )
        return cls(rows.functionals_in[rounds], *sampled, _sources(rows), sampled)

    def completed_by(self, other: Outcome, compiled: CompiledConstraints) -> Outcome:
        """Tell of the constraints that other rows tell better by those.

        Parameters
        ----------
        other : Outcome
            Of rows where some of them may have one.
        compiled : CompiledConstraints
            The constraints, which say whose a functional is.

        Returns
        -------
        Outcome
            The accuracy is that of these rows.
        """
        untold = told_elsewhere(compiled, self.functionals, other.functionals)
        of_these = np.zeros(self.functionals.size, dtype=bool)
        for span in itertools.compress(compiled.spans, untold):
            of_these[span] = True
        return replace(
            self,
            functionals=np.where(of_these, other.functionals, self.functionals),
            intervals=np.where(untold[:, None], other.intervals, self.intervals),
            of_functionals=np.where(of_these[:, None], other.of_functionals, self.of_functionals),
            sources=np.where(untold, other.sources, self.sources),
        )


def told_elsewhere(compiled: CompiledConstraints, here: Float, there: Float) -> Bool:
    """Find the constraints that rows do not tell of as wholly as other rows do.

    Those that have no value there, and comparisons of which a group is missing.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    here, there : ndarray of shape (n_functionals,)
        Their functionals on these rows and on the others; NaN of groups without rows.

    Returns
    -------
    ndarray of shape (n_constraints,), bool
    """
    lacking, lacking_there = (
        np.array([np.isnan(f[span]).any() for span in compiled.spans], dtype=bool)
        for f in (here, there)
    )
    has_none, has_none_there = (np.isnan(compiled.values(f)) for f in (here, there))
    return np.asarray((has_none | (lacking & ~lacking_there)) & ~has_none_there)


def _sources(rows: UnseenRows) -> NDArray[np.object_]:
    return np.full(len(rows.compiled.constraints), rows.source, dtype=object)


@dataclass(frozen=True)
class Choice:
    """A prefix of the ensemble and a shift of its scores.

    Parameters
    ----------
    rounds : int
        Boosting rounds of the prefix.
    shift : ndarray of shape (1,) or (n_classes,)
        Added to the scores.
    error : float
        0-1 error on the rows it was chosen by.
    excess : float
        Largest violation of a row of constraints there; 0 if all hold.
    p_value : float, default=NaN
        Of the null hypothesis that a rule is violated, on rows used for nothing else.
    level : float, default=NaN
        What it had to be at most for a certificate.
    bounds : ndarray of shape (m,), default=None
        Right-hand sides that the shift was chosen by; those of the constraints by default.
    loss : float, default=nan
        Error plus the price of the largest violation, if there is one; see :func:`price`.
    breaks_rates : bool, default=False
        Whether a constraint is violated that compares no groups: its violation is accepted only
        where no decision meets all such constraints.
    stray : float, default=0
        Largest violation beyond sampling error by the model that would be returned, which may be
        elsewhere than those that scored the rows.
    """

    rounds: int
    shift: Float
    error: float
    excess: float
    p_value: float = np.nan
    level: float = np.nan
    bounds: Float | None = None
    loss: float = np.nan
    breaks_rates: bool = False
    stray: float = 0.0

    @property
    def uncertified(self) -> bool:
        """Whether a certificate was asked for and not given."""
        return self.p_value > self.level


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
    kinds = [isinstance(c.expression, Gap) for c in compiled.constraints]  # ratios are gaps
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
    found = best_shift(margin, cells, compiled, bounds=asked, price=price(cells), priced=priced)
    if priced is not None and priced.any() and not found.feasible:
        firm = best_shift(margin, cells, compiled, bounds=asked)
        if firm.feasible and firm.error <= found.error + standard_error_of(
            found.error, len(margin)
        ):
            found = firm
    if (aimed < asked).any():
        inside = best_shift(margin, cells, compiled, bounds=aimed)
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
    for share in ROOM:
        bounds = aimed - share * missed
        found = best_shift(margin, rows.cells, rows.compiled, bounds=bounds)
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


def expected(compiled: CompiledConstraints, cells: Cells) -> Float:
    """Right-hand sides under which rules that hold on these rows hold in the mean."""
    counts = CellCounts.of(cells, np.zeros(len(cells.rows), dtype=np.intp))
    bounds = expected_bounds(compiled, counts)
    return np.where(np.isnan(bounds), compiled.b, bounds)


def least_values(rows: UnseenRows) -> Float:
    """Smallest value that any decisions could give each row of constraints."""
    return np.array(
        [
            -np.inf if blocks is None else sum(block.low for block in blocks)
            for blocks in blocks_of_rows(rows.compiled)
        ]
    )


def least_p_values(
    compiled: CompiledConstraints, cells: Cells, level: float
) -> list[tuple[float, str]]:
    """Smallest p-value that any decisions on these rows could give each constraint, and why.

    With the rows that would bring it down to `level`, for the bound of one rate; rows of unequal
    weights count as their effective number.
    """
    least = [(0.0, "")] * len(compiled.constraints)
    shape = (len(cells), cells.classes.size)
    for j, blocks in enumerate(blocks_of_rows(compiled)):
        cost = compiled.A[[j]].toarray().reshape(shape)
        counts = CellCounts.of_shares(cells, np.eye(shape[1])[cost.argmin(axis=1)])
        p = float(p_value_of_blocks(blocks, float(compiled.b[j]), counts))
        owner = int(compiled.owner[j])
        if p > least[owner][0]:
            n = int(cells.weighted_count[np.ptp(cost, axis=1) > 0].sum())
            needed = ""
            if blocks is not None and len(blocks) == 1 and blocks[0].is_binomial:
                needed = _rows_needed(blocks[0], float(compiled.b[j]), counts, level)
            least[owner] = p, f"{compiled.rows[j]} is taken over {n} of these rows{needed}"
    return least


def _rows_needed(block: Block, bound: float, counts: CellCounts, level: float) -> str:
    """Say how many rows without an event would certify a bound; nothing where none would."""
    room = (bound - block.low) / block.width
    if not 0.0 < room < 1.0:
        return ""
    if block.equal_weights(counts):
        return f" and needs {minimum_rows(room, level)}"
    n, needed = block.effective_rows(counts), ceil(-log(level) / (2.0 * room**2))  # Hoeffding
    return f", which count as {n:.0f} for their weights, and needs {needed}"


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
        safety = np.min((-curve.violations / spread)[:, compiled.is_told], axis=1, initial=np.inf)
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
                variance = float(np.clip(np.nan_to_num(rate), 0.0, 1.0))
                variance *= 1.0 - variance
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
    compares = np.array([isinstance(c.expression, Gap) for c in compiled.constraints], dtype=bool)
    if not compares.any():
        return right
    filled = np.nan_to_num(functionals)
    equal = filled.copy()
    for span in compiled.spans:
        equal[span] = filled[span].mean()
    room = np.maximum(right - compiled.rows_of(equal), 0.0)
    margin = np.minimum(standard_errors(compiled, cells, functionals), 0.5 * room)
    return np.asarray(right - np.where(compares[compiled.owner], margin, 0.0))


def _tightened(
    chosen: UnseenRows, margin: Array, fresh: UnseenRows, prefix: int, at_rest: bool
) -> list[Choice]:
    """Best biases under bounds that are less and less tight; none, at rest, where these hold."""
    compiled, decisions = chosen.compiled, chosen.decisions(margin)
    held = chosen.functionals(margin, chosen.counts(decisions))
    rates = compiled.rows_of(np.nan_to_num(held))
    own = Choice(prefix, np.zeros(margin.shape[1]), chosen.error(decisions), 0.0)
    spread = standard_errors(fresh.compiled, fresh.cells)
    choices = []
    for t in TIGHTENINGS:
        bounds = compiled.b - t * spread
        if at_rest and (rates <= bounds).all():
            choices.append(own)
            continue
        found = best_shift(margin, chosen.cells, compiled, bounds=bounds)
        choices.append(Choice(prefix, found.value, found.error, found.excess))
    return choices
