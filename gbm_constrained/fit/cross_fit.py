"""Out-of-fold boosters, by which constraints are measured and multipliers are found.

The multiplier of a constraint that cannot be met grows without bound, and takes those of the
constraints that it contradicts along: scores are then shaped by a conflict that no decision
resolves. Priorities say what becomes of each constraint. So the multipliers of those that follow
aim at what the best threshold reaches on the held-out scores at hand, and are at rest there.

Constraints on labels and decisions of all rows, such as the bound of a miss rate, ask for nothing
that the scores of the unconstrained model lack. The best decisions under them compare the
probability of a class with a threshold, or probabilities times a factor for each class (Neyman and
Pearson, 1933; for linear rates Narasimhan et al., "Consistent multiclass algorithms for complex
performance measures", 2015), which the loss of all rows estimates. Multipliers weigh the rows of a
constraint against the others. Weights help where trees are too few or too small for the whole:
trees then go where the constraint puts the decision. But weighed rows that are memorised carry no
more information than before: multipliers rise until their rate is met out of fold, and the
information of the other rows is lost.

With ``solver="auto"`` the fold boosters are therefore first grown without multipliers, and their
threshold is moved as the constraints ask. The model is trained without multipliers if that meets
the constraints and the boosters have memorised the rows of a violated one: its rate is better on
their own rows than out of fold by more than :data:`MEMORISED_SHARE` of the room that its bound
leaves. Nor may the threshold make more errors than deciding all rows alike. In all other cases,
and of several classes (whose biases are no more than searched for), boosters are grown with
multipliers as well, and the model is trained as those that make fewer errors out of fold,
violations having their price.

Measured on validation rows of training parts (``benchmarks/unseen.py thresholds``): see
docs/evidence.md.

The plain boosters of the folds come first. Their thresholds are always a candidate, and what
decisions of groups would cost on their scores
(:mod:`gbm_constrained.decision.groups`) says what the constraints should cost. Where
some threshold costs no more than that by :data:`AFFORDABLE`, or by sampling error, the fit goes on
without multipliers. Otherwise boosters are grown under multipliers. Where rounds are few
these end on their way, and trees have followed smaller ones for most of it; where constraints pull
against each other, or one is hardly moved until a whole group tips over, they swing. So a further
pass is made as long as the difference is more than :data:`AFFORDABLE` and the fit has grown fewer
than :data:`MOST_SETS` sets of boosters. One more is grown if the last one is no better than those
before and the difference exceeds :data:`COSTLY`.

Multipliers start at :data:`START` times the errors that a unit of each constraint costs group
thresholds on the plain scores. To have such prices counts as a set of boosters: constraints on
scores alone, such as pair rates, have none, and may have one pass more. Neither have those on the
decisions of another model or on some of the rows, which are to be met at any price: while the last
pass misses one that group thresholds meet, twice as many sets may be grown. A further pass starts
at the mean of the multipliers in the last quarter of the one before.

Constraints on labels and decisions of all rows, such as a bound on the selection rate, ask for
another threshold, and comparisons of groups are to hold at that threshold. Multipliers for both
would flatten the scores in between. So where both are there and the plain boosters break the
former, these have no multipliers, and the shift that they need is added to the log-odds that the
objective aims at, by weights of the classes.

The set of boosters of least cost is taken, the first of equals. Sets whose best decision meets all
constraints on decisions that compare no groups come before the others.

Measured on random constraints and tables (``benchmarks/sweep.py``): see docs/evidence.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from scipy.stats import norm

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitData
from gbm_constrained.data.splits import Fold, folds_of
from gbm_constrained.decision.choose import (
    VIOLATION_PRICE,
    FoldScores,
    choose_prefix,
    choose_with_room,
    estimate_optimism,
    estimate_optimism_of_decisions,
    find_at_a_price,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.groups import GroupOffsets, GroupThresholds
from gbm_constrained.decision.guarantees import conformal_bounds
from gbm_constrained.decision.rules import Choice, shift_scores
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.decision.violations import standard_error_of, standard_errors
from gbm_constrained.fit.checkpoint import State
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import HOLDOUT_FRACTION, FitProblem
from gbm_constrained.problem.linear_constraints import (
    LinearConstraints,
    compares_groups,
    find_first,
    is_priced,
    violation_weights,
)
from gbm_constrained.solvers.base import Record, Solver
from gbm_constrained.statistics.counts import CellCounts, functionals_of


def find_attainable_excess(margin: Array, cells: Cells, compiled: LinearConstraints) -> Float:
    """Find what rows of constraints exceed their bounds by at the best shift of scores, (m,).

    Rows of the first priority keep their bounds.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of held-out rows.
    cells : Cells
        Partition of these rows.
    compiled : LinearConstraints
        Constraints on these rows.
    """
    found = find_at_a_price(ShiftSearch(margin, cells, compiled, most_splits=1))
    violations = compiled.rows_of(np.nan_to_num(found.functionals)) - compiled.b
    violations[[*found.ignored]] = 0.0
    return np.where(find_first(compiled), 0.0, np.maximum(violations, 0.0))


BoundsAt: TypeAlias = Callable[[Record], Float]


@dataclass
class DualController:
    """Solver that moves multipliers by held-out rates, and the path that they take.

    Boosters follow the path; the solver is never asked for gradients (Cotter et al., "Training
    well-generalizing classifiers for fairness metrics and other data-dependent constraints", 2019,
    let the two players of a Lagrangian game look at two data sets in the same way).

    Attributes
    ----------
    solver : Solver
        Solver whose Lagrangian is that of the held-out rows.
    rows : ndarray of int or None
        Positions of the held-out rows among all rows of the fit; None if they are other rows.
    bounds_at : callable or None
        Given the record of an iteration, the bounds that the multipliers move towards; None stands
        for the bounds of the constraints.
    attainable : LinearConstraints or None
        Constraints with priorities on the held-out rows, whose bounds are relaxed by what the best
        threshold exceeds them by.
    path : list of ndarray of shape (m,)
        Multipliers of each outer iteration.
    """

    solver: Solver
    rows: Codes | None = None
    bounds_at: BoundsAt | None = None
    attainable: LinearConstraints | None = None
    path: list[Float] = field(default_factory=list)
    _excess: Float = field(init=False, repr=False)

    def observe(self, margin: Array) -> None:
        """Begin an outer iteration with a dual step at the scores of the held-out rows.

        Scores change most at first. So shifts that say what is attainable are searched in outer
        iterations 1, 2, 4, 8 and so on, and hold until the next one.
        """
        solver, n_before = self.solver, len(self.path)
        if self.attainable is not None:
            if n_before & (n_before + 1) == 0:  # The number of this iteration is a power of two.
                cells = solver.lagrangian.cells
                self._excess = find_attainable_excess(margin, cells, self.attainable)
            solver.bounds = solver.bounds + self._excess
        solver.begin_iteration(solver.lagrangian.at(margin))
        self.path.append(solver.multipliers)
        solver.bounds = self.bounds_after(solver.history[-1])

    def bounds_after(self, record: Record) -> Float:
        """Bounds that the multipliers move towards in the iteration after a record."""
        if self.bounds_at is None:
            return self.solver.lagrangian.constraints.b
        return self.bounds_at(record)

    def restore(self, state: Any) -> None:
        """Take over the state of the solver, and with it the path."""
        self.solver.restore(state)
        self.path[:] = [record.multipliers for record in self.solver.history]


class FoldBooster(Protocol):
    """A booster that is grown on part of the rows and measured on the others.

    Attributes
    ----------
    solver : Solver or None
        Solver that gives the gradients; None stands for the library's own objective.
    """

    solver: Solver | None

    def grow(self, rounds: int) -> None:
        """Grow the boosting round that follows the given number of rounds."""

    def held_margin(self, rounds: int | None = None) -> Array:
        """Scores of the held-out rows after the given number of rounds, by default all."""

    def own_margin(self, rounds: int) -> Array:
        """Scores of the rows that the booster is grown on, after the given number of rounds."""

    def state(self) -> State:
        """Trees and scores of a booster that is fully grown."""

    def restore(self, state: State) -> None:
        """Take over the trees and scores of an equal booster."""

    def release(self) -> None:
        """Free what growing alone needs; the scores after all rounds are kept."""


FoldBoosterFactory: TypeAlias = Callable[[Fold, Solver | None], FoldBooster]


class FoldBoosters:
    """Boosters grown in step that share the multipliers of a :class:`DualController`.

    Parameters
    ----------
    controller : DualController
        Controller of the rows that the boosters hold out, all together.
    folds : sequence of Fold
        Rows of each booster.
    members : sequence of FoldBooster
        The boosters.
    n_rows : int
        Number of rows that the model is trained on.
    kept_rounds : collection of int, default=()
        Rounds of the prefixes that a choice may look at, whose held-out scores are kept.
    log_odds : float, default=0
        Log-odds that the weights of the objective add to the second of two classes.

    Attributes
    ----------
    positions : list of ndarray of int
        Positions of each booster's held-out rows among those of the controller.
    compared : list of ndarray of int
        Positions of those training rows of each booster that others hold out, if some rows are
        never held out: rates on these differ by optimism alone. Empty otherwise.
    rounds : int
        Number of rounds that have been grown.
    remaining_optimism : float
        Share of the boosters' optimism that a model of all rows has.
    """

    def __init__(
        self,
        controller: DualController,
        folds: Sequence[Fold],
        members: Sequence[FoldBooster],
        n_rows: int,
        kept_rounds: Collection[int] = (),
        log_odds: float = 0.0,
    ) -> None:
        self.controller, self.folds, self.members = controller, folds, members
        self.kept_rounds, self.log_odds, self.rounds = kept_rounds, log_odds, 0
        rows, cells = controller.rows, controller.solver.lagrangian.cells
        assert rows is not None
        self.positions = [np.searchsorted(rows, fold.held) for fold in folds]
        is_whole = not cells.communicator.holds_all_rows  # Several machines divide all rows.
        self.compared = [] if is_whole else _find_compared(folds, rows)
        sizes = np.array([fold.training.size for fold in folds], dtype=np.float64)
        sizes = cells.reduce_sum(sizes)
        if self.compared:
            sizes = sizes[[part.size > 0 for part in self.compared]]
        self.remaining_optimism = float(1.0 / np.mean(n_rows / sizes))
        # Boosters that have the library's own objective have no solvers.
        self._solvers = [member.solver for member in members if member.solver is not None]
        self._histories = [solver.history for solver in self._solvers]
        self._held: dict[int, Array] = {}
        self._own: tuple[int, list[Array]] | None = None

    def grow(
        self, n_rounds: int, rounds_per_iteration: int, is_over: Callable[[int], bool]
    ) -> None:
        """Grow all boosters in step, until an iteration at which training is over."""
        while self.rounds < n_rounds:
            if self.rounds % rounds_per_iteration == 0:
                if is_over(self.rounds):
                    break
                margin = self.held_margin()
                self.controller.observe(margin)
                if self.rounds in self.kept_rounds:  # Scoring rows again takes much longer.
                    self._held[self.rounds] = margin
            for member in self.members:
                member.grow(self.rounds)
            self.rounds += 1

    def optimism(self, iteration: int) -> tuple[Float, Float]:
        """Estimate by how much rates of a model of all rows are higher on new rows.

        Returns the difference for each row of constraints, and the bounds that were aimed at. The
        last iteration stands for all that follow.
        """
        history = self.controller.solver.history
        k = min(iteration, len(history) - 1)
        own = [records[k].rates for records in self._histories]
        return estimate_optimism(history[k].rates, own, self.remaining_optimism), history[k].bounds

    @property
    def has_multipliers(self) -> bool:
        """Whether these boosters are grown under multipliers that move."""
        return self.controller.solver.schedule is None

    def state(self) -> State:
        """Give the state of boosters that are fully grown."""
        return {
            "rounds": self.rounds,
            "controller": self.controller.solver.state(),
            "members": [member.state() for member in self.members],
            "solvers": [solver.state() for solver in self._solvers],
            "held": {str(rounds): margin for rounds, margin in self._held.items()},
        }

    def restore(self, state: State) -> None:
        """Take over the state of equal boosters."""
        self.rounds = state["rounds"]
        self.controller.restore(state["controller"])
        for member, of_member in zip(self.members, state["members"], strict=True):
            member.restore(of_member)
        for solver, of_solver in zip(self._solvers, state["solvers"], strict=True):
            solver.restore(of_solver)
        self._held = {int(rounds): margin for rounds, margin in state["held"].items()}

    def release(self) -> None:
        """Free what growing alone needs, such as bins, gradients and buffers of the solvers."""
        self._solvers = []
        for member in self.members:
            member.release()

    def held_margin(self, rounds: int | None = None) -> Array:
        """Scores of all held-out rows, each by the booster that has not seen the row."""
        if rounds is not None and rounds in self._held:
            return self._held[rounds]
        parts = [member.held_margin(rounds) for member in self.members]
        shape = (sum(map(len, parts)), *parts[0].shape[1:])
        pooled = np.empty(shape, parts[0].dtype, order="F" if len(shape) > 1 else "C")
        for positions, part in zip(self.positions, parts, strict=True):
            pooled[positions] = part
        if rounds is not None:  # Choices look at the same prefixes several times.
            self._held[rounds] = pooled
        return pooled

    def scores(self, rounds: int) -> FoldScores:
        """Scores after some rounds, out of fold and of each booster's training rows."""
        held, margin = self.controller.rows, self.held_margin(rounds)
        assert held is not None
        if self._own is None or self._own[0] != rounds:  # The last asked for are kept.
            self._own = rounds, [member.own_margin(rounds) for member in self.members]
        own = [(fold.training, of) for fold, of in zip(self.folds, self._own[1], strict=True)]
        unseen: list[tuple[Codes, Array]] = []
        if self.compared:
            own = [
                (part, scores[np.searchsorted(rows, part)])
                for part, (rows, scores) in zip(self.compared, own, strict=True)
                if part.size
            ]
            unseen = [(part, margin[np.searchsorted(held, part)]) for part, _ in own]
        return FoldScores(
            (held, margin), own, self.remaining_optimism, unseen, self.has_multipliers
        )


def divide_into_folds(
    data: FitData, cells: Cells, options: SolverOptions, *, is_holdout: bool
) -> tuple[Sequence[Fold], str]:
    """Divide the rows into folds, those of the user if there are any, and name these."""
    if data.given_folds is not None:
        return data.given_folds.folds, data.given_folds.source
    everyone = np.arange(len(data.rows))
    if is_holdout:
        fraction = 0.5 if options.divides_in_halves else HOLDOUT_FRACTION
        held = data.split(everyone, cells, options.holdout_fraction or fraction)[:1]
    else:
        n = min(2 if options.divides_in_halves else options.n_folds, cells.n_rows)
        held = data.split(everyone, cells, 1.0 / n, n)
    folds = folds_of(held, everyone.size)
    sizes = np.array([[fold.training.size, fold.held.size] for fold in folds], np.float64)
    if not cells.reduce_sum(sizes).all():
        raise ValueError(
            f"Holdout(fraction={options.holdout_fraction!r}) of n_samples={cells.n_rows} "
            f"leaves none to hold out, or none to train on: give another share, or "
            f"measure_on='train'."
        )
    return folds, "holdout" if is_holdout else "out of fold"


def _find_compared(folds: Sequence[Fold], held: Codes) -> list[Codes]:
    """Find the training rows of each fold that others hold out, if some rows are never held out.

    The result is empty as well if no training row is held out, as of a single fold.
    """
    found = [fold.training[np.isin(fold.training, held)] for fold in folds]
    is_whole = all(part.size == f.training.size for part, f in zip(found, folds, strict=True))
    return [] if is_whole or not any(part.size for part in found) else found


# Share of the room a bound leaves, by which rates of own rows are better than those of others.
MEMORISED_SHARE = 0.3


def choose_by_held_out(
    grown: tuple[FoldBoosters, EvaluationSet], options: SolverOptions
) -> Choice:
    """Choose the prefix and shift of fold boosters by the rows that they hold out."""
    boosters, held_out = grown
    prefixes = options.prefixes(boosters.rounds)
    scored = ScoredRows(held_out.credible, boosters.held_margin)
    return choose_prefix(scored, prefixes, found=scored.rows.choices)


def tighten_bounds(
    grown: tuple[FoldBoosters, EvaluationSet],
    certification: EvaluationSet,
    choice: Choice,
    options: SolverOptions,
) -> EvaluationSet:
    """Give held-out rows the bounds that their rates would have to meet for a guarantee, about.

    `choice` is that without a guarantee: certificates are as sure as its rates allow.
    """
    boosters, held_out = grown
    compiled = held_out.compiled
    if options.guarantee == "expected":
        b = conformal_bounds(certification.compiled, certification.cells)
    else:
        margin = shift_scores(boosters.held_margin(choice.rounds), choice.shift)
        reached = held_out.counts(held_out.decisions(margin)).shares
        counts = CellCounts.of_shares(certification.cells, reached)
        errors = standard_errors(certification.compiled, counts)
        b = compiled.b - np.where(find_first(compiled), norm.isf(options.delta) * errors, 0.0)
    tighter = np.where(compiled.is_known, np.minimum(b, compiled.b), compiled.b)
    return EvaluationSet(held_out.cells, replace(compiled, b=tighter), held_out.source)


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
        Errors of their best decision, with the price of violations, of swings and of gaps that
        thresholds close by chance.
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
    def is_open(self) -> bool:
        """Whether the pass misses strict constraints that thresholds of groups meet."""
        return self.misses and bool(np.isfinite(self.needed))

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
    scored, tightened = ScoredRows(held_out, boosters.held_margin), None
    prefixes = options.prefixes(boosters.rounds)
    choice = choose_prefix(scored, prefixes, found=held_out.choices)
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
    chosen, cost = boosters.held_margin(choice.rounds), choice.loss
    if tightened is not None:  # Errors at the shift that meets the bounds of the guarantee.
        found = ShiftSearch(chosen, asked.cells, asked.compiled).find(penalty=VIOLATION_PRICE)
        cost = found.error if found.is_feasible else found.loss
    cost += VIOLATION_PRICE * measure_excess(grown, choice)
    if boosters.has_multipliers:
        cost += VIOLATION_PRICE * measure_swing(grown)
    compiled = asked.compiled
    violations = asked.violations(shift_scores(chosen, choice.shift))
    is_of_labels = np.array([c.is_of_labels for c in compiled.constraints], dtype=bool)
    is_strict = ~(is_priced(compiled) | compiled.has_scores | is_of_labels[compiled.owner])
    misses = bool((violations[is_strict] > ROUNDING).any())
    return Pass(grown, cost, needed, float(np.nan_to_num(noise)), prices, asked, misses)


def measure_excess(grown: Grown, choice: Choice) -> float:
    """Measure how much further gaps are open by shifts that other folds would have chosen.

    A shift may close a gap on the very rows that have chosen it, by chance. Boosters that have
    learned to close the gap need no such shift.
    """
    boosters, rows = grown[0], grown[1].credible
    compiled = rows.compiled
    is_gap = compares_groups(compiled) & ~compiled.has_scores
    if not is_gap.any():
        return 0.0
    margin = boosters.held_margin(choice.rounds)
    _, decisions = choose_with_room(rows, margin, choice)
    violations = rows.violations_as_stated(margin, rows.counts(decisions))
    violations = violation_weights(compiled) * violations
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


MOST_SETS = 3  # Sets of fold boosters of a fit, at most.
# Errors by which the constraints may cost more than those of group thresholds, and from which one
# more set is grown if multipliers have gained nothing.
AFFORDABLE, COSTLY = 0.005, 0.03
# Multipliers of the first pass over the prices of group thresholds. A proxy is half as steep as
# the loss at the decision, and features tell groups apart only in part.
START = 4.0


def search_passes(
    grow: Callable[..., Grown],
    measure: Callable[[Grown], Pass],
    has_time: Callable[[], bool],
    is_enough: Callable[[Pass], bool],
    *,
    may_be_plain: bool = True,
) -> Grown:
    """Search for multipliers under which constraints cost no more errors than they should.

    Parameters
    ----------
    grow : callable
        Grows fold boosters, as :meth:`~gbm_constrained.fit.fit.FoldGrowth.grow` does.
    measure : callable
        Makes the :class:`Pass` of grown boosters.
    has_time : callable
        Whether there is time for one more pass.
    is_enough : callable
        Whether a :class:`Pass` without multipliers needs no other one beside it.
    may_be_plain : bool, default=True
        Whether boosters without multipliers are a candidate.

    Returns
    -------
    tuple of FoldBoosters and EvaluationSet
        The best of the passes that are made.
    """
    n_sets = int(not may_be_plain)  # Boosters without multipliers count, grown or not.
    least, rounds, log_odds = np.inf, 0, 0.0
    best: Pass | None = None
    of_labels = np.zeros(0, dtype=bool)
    asked: dict[str, Any] = {"has_multipliers": False}
    if not may_be_plain:
        asked = {"has_multipliers": True, "start": None}
    while True:
        found = measure(grow(**asked))
        if best is not None and found.grown[0].rounds < rounds:
            break  # The pass was ended before its time.
        n_sets, rounds = n_sets + 1, found.grown[0].rounds
        least = float(np.fmin(least, found.needed))
        best = found if best is None else min(best, found, key=lambda p: (p.misses, p.cost))
        if not asked["has_multipliers"]:
            if is_enough(found) or not has_time():
                break
            # Without prices, a pass has to find where the next one starts.
            n_sets += bool(found.prices.any())
            # Under constraints on labels alone, thresholds have done the rest.
            of_labels = found.of_labels
            start = np.where(of_labels, 0.0, START * found.prices)
            if of_labels.any() and not of_labels.all() and found.is_broken(of_labels):
                log_odds = found.shift_for(of_labels)
        else:
            is_costly = best.cost - least > max(AFFORDABLE, best.noise)
            most = (2 if found.is_open else 1) * MOST_SETS
            most += found is not best and best.cost - least > COSTLY
            if not (is_costly or best.is_open) or n_sets >= most or not has_time():
                break
            if log_odds:
                log_odds += found.shift_for(of_labels)
            start = found.end
        fixed = of_labels if log_odds else None
        asked = {"has_multipliers": True, "start": start, "fixed": fixed, "log_odds": log_odds}
    return best.grown


def measure_optimism(
    problem: FitProblem, grown: Grown, choice: Choice, offsets: GroupOffsets | None = None
) -> Float:
    """Estimate by how much rows of constraints are higher on held-out than on training rows.

    `choice` gives prefix and shift of the decisions that are compared, and `offsets` what is added
    to the scores of groups; the result is (m,).
    """
    boosters, held_out = grown
    everyone, cells, compiled = problem.data.rows, problem.cells, problem.compiled
    added = np.zeros(len(everyone)) if offsets is None else offsets.of(everyone)

    def decisions(margin: Array, rows: Codes) -> Codes:
        shifted = shift_scores(margin, choice.shift)
        return held_out.decisions(shifted if offsets is None else shifted + added[rows])

    scores = boosters.scores(choice.rounds)
    if scores.compared:
        on_each = [
            functionals_of(compiled, CellCounts.of(cells.take(rows), decisions(margin, rows)))
            for rows, margin in scores.compared
        ]
        unseen = np.mean(on_each, axis=0)
    else:
        rows, margin = scores.held_out
        unseen = functionals_of(held_out.compiled, held_out.counts(decisions(margin, rows)))
    own = [(rows, decisions(margin, rows)) for rows, margin in scores.training]
    return estimate_optimism_of_decisions(compiled, cells, own, unseen)
