"""The decision rules of a metric: what the reductions find, against rules without a search.

Candidates are the class of the largest probability; that of the largest probability divided by
the share of the class; under constraints the thresholds that a fit without a metric would choose
on these scores; the optimum of the distribution that the probabilities describe; and the optimum
by the labels of the held-out rows. Constraints may be met to the last row only by decisions that
give up the metric. So there is one more optimum, that of bounds that are relaxed by the least
violation and one standard error.

A metric that is optimised on held-out rows fits their noise. So optimised decisions are assessed
by cross-fitting: rules found on all parts of the held-out rows but one decide on that part. One
criterion chooses among all candidates (:func:`~gbm_constrained.decision.choose.choose`).

Fold boosters are grown without multipliers, and with them while constraints cost more errors than
they should (:mod:`gbm_constrained.fit.cross_fit`). Decisions of a metric begin at what the
fit without a metric would decide on the best of these sets, and on the set without multipliers.

Candidates are what that fit would decide, the class of the largest probability, that of the
largest probability divided by the share of the class, and optimised weights of the classes: under
the bounds, and under bounds that count as met within sampling error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.splits import Fold, parts_by_cell
from gbm_constrained.decision.choose import (
    choose,
    choose_unbeaten,
    choose_with_room,
    find_at_a_price,
)
from gbm_constrained.decision.groups import encode_groups
from gbm_constrained.decision.rules import (
    CostRule,
    calibrate_scores,
    mixture_shares,
    probabilities_of,
)
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.evaluation.audit import worst_rate_interval
from gbm_constrained.fit.callbacks import SearchWatch
from gbm_constrained.fit.cross_fit import Grown, choose_by_held_out
from gbm_constrained.fit.fit import ConstrainedFit, FoldGrowth
from gbm_constrained.fit.metric_problem import (
    SMALLEST_PROBABILITY,
    HeldOutProblem,
    WeightSearch,
    costs_of_weights,
)
from gbm_constrained.problem.linear_constraints import is_priced, violation_weights
from gbm_constrained.reductions.methods import ZeroDenominatorError, mix_rules, solve
from gbm_constrained.reductions.mixtures import (
    FEASIBLE,
    TOLERANCE,
    LinearOracle,
    MixtureProgramme,
    RuleMixture,
    SearchStep,
)
from gbm_constrained.reductions.plug_in import (
    PlugIn,
    PooledOracle,
    improve_rule,
    list_rules_between,
)
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.influence import RowGroups

MAX_CROSS_FITTED_ROWS = 100_000
"""Held-out rows beyond which optimised decisions are assessed by the rows that chose them: with
fewer than 50 parameters their optimism is below a tenth of a standard error."""
MIN_GAIN = 1e-5  # Loss that counts by labels must gain: far below any sampling error.

Rules: TypeAlias = tuple[Float, Float]  # Costs of several rules, and the probability of each.


@dataclass(frozen=True, eq=False)
class Decisions:
    """Rules to draw from, and what they reach on held-out rows.

    Parameters
    ----------
    name : str
        Name in reports.
    costs : ndarray of shape (n_rules, n_joint_cells, n_classes)
        The rules.
    probability : ndarray of shape (n_rules,)
        Probability of each.
    shares : ndarray of shape (n_rows, n_classes)
        Probability of each decision on each held-out row; cross-fitted ones for the optimum.
    value, low, high : float, default=nan
        The metric with its interval.
    violations, errors : ndarray of shape (n_rows,)
        Left-hand minus right-hand side of each row of constraints, with its standard error.
    oracle : str, default="plug_in"
        Name of the oracle whose boosters the rules are for.
    mixed_value : float, default=nan
        The metric of the mixture that one rule stands for.
    is_chosen : bool, default=False
        Whether the held-out rows have chosen the rules.
    """

    name: str
    costs: Float
    probability: Float
    shares: Float
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    violations: Float = field(default_factory=lambda: np.full(1, np.nan))
    errors: Float = field(default_factory=lambda: np.full(1, np.nan))
    oracle: str = "plug_in"
    mixed_value: float = np.nan
    is_chosen: bool = False

    @property
    def violation(self) -> float:
        """The largest violation of a row of constraints; zero where all hold."""
        return float(self.violations.max(initial=0.0))


@dataclass(frozen=True, eq=False)
class MetricSearch:
    """Search for the rules of a metric.

    Parameters
    ----------
    held : HeldOutProblem
        The metric and the constraints on the held-out rows.
    oracle : PlugIn
        Oracle on these rows.
    solver : str
        Name of the reduction.
    parts : sequence of ndarray of int, default=()
        Positions of the held-out rows of each booster, if there are several. Rules found on the
        rows of some boosters then decide on those of another, as they will on new rows.
    max_calls : int, default=200
        Largest number of oracle calls.
    settings : mapping, default=empty
        Further options of the reduction.
    has_baselines : bool, default=True
        Whether rules without a search are candidates.
    deterministic : bool, default=None
        Whether one rule must take the place of each mixture. By default one takes that of the
        mixture that is chosen, if it loses next to nothing.
    watch : SearchWatch, default=None
        Notifies callbacks, and may end the search.
    """

    held: HeldOutProblem
    oracle: PlugIn
    solver: str = "auto"
    parts: Sequence[Codes] = ()
    max_calls: int = 200
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_baselines: bool = True
    deterministic: bool | None = None
    watch: SearchWatch | None = None

    @property
    def is_over(self) -> bool:
        """Whether a callback or the time limit has ended the search."""
        return self.watch is not None and self.watch.is_over

    def solve_by_probabilities(self) -> tuple[RuleMixture, list[Float]]:
        """Run the reduction on the distribution that the probabilities describe.

        Returns
        -------
        solution : RuleMixture
            The optimum, with a bound that holds for this distribution.
        rules : list of ndarray of shape (n_joint_cells, n_classes)
            All rules that were found on the way, and the constant ones. Counted by labels, no
            rule of a finite cost may satisfy constraints that a constant decision satisfies.
        """
        oracle = PooledOracle(self.oracle.by_probabilities())
        found = self._minimise(self.held.programme(), oracle, "probabilities")
        joint = self.held.problem.joint
        constant = 1.0 - np.eye(joint.n_classes)
        rules = self.oracle.restate(oracle.answers)
        return found, [*rules, *(np.tile(one, (len(joint), 1)) for one in constant)]

    def solve(
        self,
        rules: Sequence[Float],
        oracle: PlugIn | None = None,
        held: HeldOutProblem | None = None,
        room: Float | float = 0.0,
    ) -> RuleMixture:
        """Run the reduction on counts by labels, by default of all held-out rows.

        Once the search is over, the solution is the best mixture of the known rules.

        Parameters
        ----------
        rules : sequence of ndarray
            Rules that are known already.
        oracle : PlugIn, default=None
            Oracle of some of the rows.
        held : HeldOutProblem, default=None
            The problem on these rows.
        room : float or ndarray of shape (n_rows,), default=0
            What each row of constraints is relaxed by.
        """
        is_shown = held is None and not np.any(room)
        counted_by = "labels" if is_shown else None
        held = self.held if held is None else held
        oracle = self.oracle if oracle is None else oracle
        programme, known = held.programme(room), list(rules)
        points = [oracle.functionals(costs) for costs in known]
        if programme.objective.kind == "linear":
            slope = programme.objective.gradient(programme.middle)
            best = int(np.argmin(np.array(points) @ slope))
            known.append(improve_rule(oracle, known[best], slope))
            points.append(oracle.functionals(known[-1]))

        def search(start: Sequence[Float] = ()) -> RuleMixture:
            new: tuple[Float, ...] = ()
            if not self.is_over:
                first = [(costs, oracle.functionals(costs)) for costs in start]
                pooled = PooledOracle(oracle, known, np.array(points), first)
                solution = self._minimise(programme, pooled, counted_by)
                if not self.is_over:
                    return solution
                new = solution.rules
            of_new = map(oracle.functionals, new)
            return mix_rules(programme, oracle, [*known, *new], [*points, *of_new])

        found = search()
        is_bound = np.max(programme.constraints(found.u), initial=-np.inf) > -MIN_GAIN
        # Where no constraint binds, a second search with the rules between those of the mixture
        # gains on the rows that choose the rules, and not on others.
        for _ in range(3 if is_bound else 1):
            if self.is_over:
                break
            more, of_more = list_rules_between(oracle, found.rules)
            if not more:
                break
            known += more
            points += of_more
            refined = search(found.rules)
            is_better = refined.violation < found.violation - FEASIBLE or (
                refined.violation <= found.violation + FEASIBLE
                and refined.value < found.value - MIN_GAIN
            )
            if not is_better:
                break
            found = refined
        return found

    def binds(self, rules: Sequence[Float]) -> bool:
        """Whether the best decisions without constraints violate them, or have no value."""
        points = np.array([self.oracle.functionals(costs) for costs in rules])
        pooled = PooledOracle(self.oracle, rules, points)
        with suppress(ZeroDenominatorError):
            free = self._minimise(self.held.programme().without_constraints(), pooled, None)
            return self.is_bound(free)
        return True

    def _minimise(
        self, programme: MixtureProgramme, oracle: LinearOracle, counted_by: str | None
    ) -> RuleMixture:
        """Run the reduction, first without constraints: those that do not bind change nothing."""
        watch = self.watch
        observe = (
            None if watch is None else lambda step, u: watch.notify(counted_by, step.value, u)
        )
        # The bound by probabilities is reported, and the same for every order of the classes.
        tolerance = TOLERANCE if counted_by == "probabilities" else MIN_GAIN
        given: dict[str, Any] = {
            "solver": self.solver, "max_calls": self.max_calls, "observe": observe,
            "tolerance": tolerance, **self.settings,
        }  # fmt: skip
        if programme.n_constraints:
            # A rule that never predicts a class has no precision, and no constraints exclude it.
            with suppress(ZeroDenominatorError):
                free = programme.without_constraints()
                found = solve(free, oracle, **given)
                if programme.violation(found.u) <= FEASIBLE:
                    return found
        return solve(programme, oracle, **given)

    def is_bound(self, solution: RuleMixture) -> bool:
        """Whether a constraint binds a solution, or is violated by it."""
        constraints = self.held.programme().constraints(solution.u)
        return bool(np.max(constraints, initial=-np.inf) > -MIN_GAIN)

    def baselines(self) -> list[Decisions]:
        """Make the rules without a search: largest probability, and divided by class shares."""
        if not self.has_baselines:
            return []
        joint, inside = self.held.problem.joint, self.held.problem.in_objective
        weight = np.bincount(joint.labels[inside], self.oracle.mass[inside], joint.n_classes)
        is_wrong = inside[:, None] & (joint.labels[:, None] != np.arange(joint.n_classes))
        per_share = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0)
        rules = {
            "argmax": is_wrong.astype(np.float64),
            "prior": is_wrong * (per_share / per_share.max())[joint.labels][:, None],
        }
        found = [self.of_rules(name, costs[None]) for name, costs in rules.items()]
        of_plain = self.held.violations(self.oracle.functionals(rules["argmax"]))
        if of_plain.max(initial=0.0) <= FEASIBLE:
            return found
        thresholds = self.of_rules("thresholds", *self._thresholds(self.oracle, self.held))
        return [*found, self.cross_fit(thresholds, self._thresholds)]

    def _thresholds(self, oracle: PlugIn, held: HeldOutProblem) -> Rules:
        """Find the threshold or biases that a fit without a metric would choose."""
        joint, inside = held.problem.joint, held.problem.in_objective
        of_label = inside[:, None] & (joint.labels[:, None] == np.arange(joint.n_classes))
        scores = np.log(np.maximum(oracle.probabilities @ of_label, SMALLEST_PROBABILITY))
        of_two = joint.n_classes == 2
        margin = scores[:, 1] - scores[:, 0] if of_two else scores
        shift = find_at_a_price(ShiftSearch(margin, held.cells, held.compiled)).value
        shift = np.append(0.0, shift) if of_two else shift
        weight = np.exp(shift - shift.max())
        costs = (inside[:, None] & ~of_label) * weight[joint.labels][:, None]
        return costs[None], np.ones(1)

    def of_rules(self, name: str, costs: Float, probability: Float | None = None) -> Decisions:
        """Decide on the held-out rows by rules, by default by a single one."""
        probability = np.ones(1) if probability is None else probability
        shares = mixture_shares(
            [self.oracle.decide(one) for one in costs], probability, costs.shape[2]
        )
        return Decisions(name, costs, probability, shares)

    def by_probabilities(self, solution: RuleMixture) -> Decisions:
        """Take the rules of a solution that has looked at no label of the held-out rows."""
        rules = np.array(self.oracle.restate(solution.rules))
        return self.of_rules("model", rules, solution.probability)

    def optimum(
        self,
        name: str,
        solution: RuleMixture,
        rules: Sequence[Float],
        room: Float | float = 0.0,
    ) -> Decisions:
        """Take the rules of a solution, with cross-fitted decisions."""

        def find(oracle: PlugIn, held: HeldOutProblem) -> Rules:
            of_rest = self.solve(rules, oracle, held, room)
            return np.array(of_rest.rules), of_rest.probability

        found = self.of_rules(name, np.array(solution.rules), solution.probability)
        return self.cross_fit(found, find)

    def cross_fit(
        self, found: Decisions, find: Callable[[PlugIn, HeldOutProblem], Rules]
    ) -> Decisions:
        """Decide each part of the held-out rows by the rules that are found on the others."""
        n, found = len(self.held.rows), replace(found, is_chosen=True)
        if n > MAX_CROSS_FITTED_ROWS:
            return found
        shares, parts = found.shares.copy(), self.parts
        if not parts:
            random = np.random.RandomState(0)
            parts = parts_by_cell(np.arange(n), self.held.cells, [0.2] * 5, random)
            parts = [part for part in parts if part.size]
        for part in parts:
            rest = np.setdiff1d(np.arange(n), part, assume_unique=True)
            others = self.held.take(rest)
            if np.isnan(others.compiled.constant[self.held.problem.loss.at]).any():
                return found
            costs, probability = find(self.oracle.take(rest, others.coefficients), others)
            shares[part] = mixture_shares(
                [self.oracle.decide(one)[part] for one in costs], probability, shares.shape[1]
            )
        return replace(found, shares=shares)

    def assess(self, candidates: list[Decisions]) -> tuple[list[Decisions], Float]:
        """Measure candidates on the held-out rows, with intervals by one bootstrap.

        Rules that the rows have chosen balance the rates of these rows, noise included: the worst
        rate of new rows is lower. So their value is the mean over resampled rows, corrected for
        the noise of resampling by the metric's tangent. Parts that decide about each other do not
        help, since what one part lacks is what the others have.

        Returns
        -------
        candidates : list of Decisions
            The same, with values, intervals and violations.
        replicates : ndarray of shape (n_candidates, n_replicates)
            The metric of each on resampled rows.
        """
        held = self.held
        metric = held.problem.metric.function
        at = held.problem.loss.at
        found, replicates = [], []
        for candidate, u in zip(candidates, self._resample(candidates), strict=True):
            values = np.array([metric(one) for one in u[:, at]])
            value, interval = values[0], np.nanpercentile(values[1:], (2.5, 97.5))
            if candidate.is_chosen:
                tangent = (u[1:, at] - u[0, at]) @ held.problem.metric.derivative(u[0, at])
                value = value + np.nanmean(values[1:] - value - tangent)
            elif held.problem.metric.metric.form == "worst":
                counted = CellCounts.of_probabilities(held.cells, candidate.shares)
                interval = worst_rate_interval(held.compiled, counted, at)
            violations = held.violations(u)
            with np.errstate(invalid="ignore"):  # Some may be without end, as divergences are.
                errors = np.nan_to_num(violations[1:].std(axis=0))
            found.append(
                replace(
                    candidate,
                    value=float(value),
                    low=float(np.fmin(interval[0], value)),
                    high=float(np.fmax(interval[1], value)),
                    violations=violations[0],
                    errors=errors,
                )
            )
            replicates.append(values[1:])
        return found, np.array(replicates)

    def _resample(self, candidates: Sequence[Decisions]) -> Iterator[Float]:
        """Compute the functionals of candidates on the rows, and after it on resampled rows."""
        held, joint = self.held, self.held.problem.joint
        levels, codes = [], []
        for shares in (candidate.shares for candidate in candidates):
            # Different rows are told apart by their products with random numbers, sorted fast.
            key = shares @ np.random.RandomState(0).uniform(1.0, 2.0, shares.shape[1])
            _, first, of_level = np.unique(key, return_index=True, return_inverse=True)
            levels.append(shares[first])
            codes.append(np.ravel(of_level))
        cells = joint.codes[held.rows]
        groups = RowGroups(cells, np.array(codes), held.weight, joint.amounts(held.rows))
        weights = np.vstack([groups.weight, groups.resample()])
        for level, of_candidate in zip(levels, groups.decisions, strict=True):
            yield held.functionals(groups.tables(weights, level[of_candidate], len(joint)))

    def choose(self, candidates: Sequence[Decisions]) -> int:
        """Choose the candidate to return by the criterion of all fits."""
        return choose_unbeaten(
            np.array([self.loss(c) for c in candidates]),
            np.array([c.violations for c in candidates]),
            np.array([c.errors for c in candidates]),
            **self.criterion,
        )

    def loss(self, decisions: Decisions) -> float:
        """Compute the loss of assessed decisions, in its unit."""
        value = decisions.value / self.held.problem.loss.unit
        return 1.0 - value if self.held.problem.loss.sign < 0.0 else value

    def find_constant(self) -> tuple[int | None, float]:
        """Find the class and loss of the best constant decision that meets the constraints."""
        best, best_loss = None, np.nan
        for k, one in enumerate(1.0 - np.eye(self.held.problem.joint.n_classes)):
            u = self.oracle.functionals(np.tile(one, (self.oracle.probabilities.shape[1], 1)))
            loss = self.held.problem.loss.value(u)
            is_met = self.held.violations(u).max(initial=0.0) <= FEASIBLE
            if is_met and not loss >= best_loss:
                best, best_loss = k, loss
        return best, best_loss

    def solution_of(self, chosen: Decisions) -> RuleMixture:
        """Describe decisions as a reduction describes what it finds."""
        counts = self.held.problem.joint.count_shares(
            chosen.shares, self.held.weight, self.held.rows
        )
        u = self.held.functionals(counts[None])
        return RuleMixture(
            tuple(chosen.costs), chosen.probability, u[0] / self.held.problem.units,
            self.loss(chosen), -np.inf, chosen.violation, "optimal", (),
            u / self.held.problem.units,
        )  # fmt: skip

    @property
    def criterion(self) -> dict[str, Any]:
        """Weights of the violations, and the rows of constraints that are strict."""
        compiled, bounds = self.held.compiled, self.held.problem.convex_bounds
        weights = [*violation_weights(compiled), *(bound.weight for bound in bounds)]
        is_strict = [*~is_priced(compiled), *(True for _ in bounds)]
        return {"weights": np.array(weights), "is_strict": np.array(is_strict, dtype=bool)}

    def as_single(self, chosen: Decisions, *, is_forced: bool) -> Decisions:
        """Put one rule in the place of a mixture, if it may stand for it.

        Parameters
        ----------
        chosen : Decisions
            The decisions, assessed.
        is_forced : bool
            Whether one rule must be found. Otherwise it takes the place of a mixture only if it
            keeps the constraints as well on held-out rows, and loses next to nothing.
        """
        if len(chosen.costs) == 1:
            return chosen
        between, of_between = list_rules_between(self.oracle, list(chosen.costs))
        pool = [*chosen.costs, *between]
        points = [*(self.oracle.functionals(costs) for costs in chosen.costs), *of_between]
        loss, held = self.held.problem.loss, self.held
        u = np.array(points)
        losses = np.array([loss.value(one) for one in u])
        violations = held.violations(u)
        if is_forced:
            errors = np.broadcast_to(chosen.errors, violations.shape)
            best = choose(losses, violations, errors, **self.criterion)
        else:
            mixed = chosen.probability @ u[: len(chosen.costs)]
            allowed = held.violations(mixed).max(initial=FEASIBLE)
            losses[(violations > allowed).any(axis=1)] = np.inf
            best = int(losses.argmin())
            if not np.isfinite(losses[best]):
                return chosen
        pair = [
            self.of_rules(chosen.name, pool[best][None]),
            self.of_rules(chosen.name, chosen.costs, chosen.probability),
        ]
        (one, mixture), _ = self.assess([replace(rules, is_chosen=True) for rules in pair])
        # Both by the rows that chose the rule: their difference is what it loses, and no gain.
        moved = loss.sign * max(
            loss.sign * (chosen.value + one.value - mixture.value), loss.sign * one.value
        )
        error = (chosen.high - chosen.low) / (2 * 1.96)
        if not is_forced and loss.sign * (moved - chosen.value) > 0.25 * error:
            return chosen
        return replace(
            one,
            value=moved,
            low=one.low + moved - one.value,
            high=one.high + moved - one.value,
            violations=chosen.violations + one.violations - mixture.violations,
            oracle=chosen.oracle,
            mixed_value=chosen.value,
        )


@dataclass(frozen=True, eq=False)
class BoosterSet:
    """A set of fold boosters, and what a fit without a metric decides on its scores.

    Parameters
    ----------
    grown : tuple of FoldBoosters and EvaluationSet
        The boosters, and the rows that they hold out.
    rounds : int
        Rounds of the prefix that decides.
    shift : ndarray
        Shift of its scores.
    decisions : ndarray of shape (n_rows,), intp
        Decisions about the held-out rows, cross-fitted.
    """

    grown: Grown
    rounds: int
    shift: Float
    decisions: Codes

    @property
    def oracle(self) -> str:
        """Name of the boosters in reports."""
        return "multipliers" if self.grown[0].has_multipliers else "plug_in"


class ConstrainedBoosters:
    """Grows fold boosters as a fit without a metric does, and then the model of one set.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit under the same constraints, without a metric.
    adapter : BoosterAdapter
        Drives the library, and has taken the rows of the fit.
    """

    def __init__(self, fit: ConstrainedFit, adapter: Any) -> None:
        self.fit, self.adapter = fit, adapter
        self._growth: FoldGrowth

    def grow(self, folds: Sequence[Fold], source: str) -> list[BoosterSet]:
        """Grow sets of boosters on folds; the one that a fit without a metric takes comes first.

        Parameters
        ----------
        folds : sequence of Fold
            Rows of each booster.
        source : str
            Name of the held-out rows in reports.
        """
        with self.adapter.measuring():
            self._growth = FoldGrowth(self.fit, self.adapter.make_factory(), folds, source)
            best, plain = self._growth.find_best(), self._growth.plain_boosters
        sets = [best] if plain is None or plain[0] is best[0] else [best, plain]
        found = []
        for grown in sets:
            boosters, held_out = grown
            # As a fit without a metric decides before it has trained its model.
            choice = choose_by_held_out(grown, self.fit.options)
            margin = boosters.held_margin(choice.rounds)
            choice, decisions = choose_with_room(held_out.credible, margin, choice)
            found.append(BoosterSet(grown, choice.rounds, choice.shift, decisions))
        return found

    def train(self, chosen: BoosterSet) -> None:
        """Train the model of all rows as a set of boosters was grown."""
        self.fit.measured = self._growth.follow(chosen.grown)
        self.adapter.train()
        if chosen.rounds != self.adapter.rounds:
            self.adapter.truncate(chosen.rounds)
        if self.fit.checkpoint is not None:
            self.fit.checkpoint.remove()


def search_weights(
    boosters: BoosterSet,
    held: HeldOutProblem,
    parts: Sequence[Codes],
    watch: SearchWatch | None = None,
) -> tuple[MetricSearch, list[Decisions], list[SearchStep], tuple[Float, float]]:
    """Find decisions on the scores of one set of boosters, and measure them.

    Parameters
    ----------
    boosters : BoosterSet
        The boosters.
    held : HeldOutProblem
        The metric and the constraints on the rows that they hold out.
    parts : sequence of ndarray of int
        Positions of the held-out rows of each booster, if there are several.
    watch : SearchWatch, default=None
        Notifies callbacks, and may end the search.

    Returns
    -------
    search : MetricSearch
        Measures decisions on these scores.
    candidates : list of Decisions
        The decisions, measured.
    steps : list of SearchStep
        What the search for weights reached on the way.
    link : tuple of ndarray of shape (n_classes,) and float
        Factors of the classes by which scores become probabilities, and that by which they become
        log-odds.
    """
    problem, margin = held.problem, boosters.grown[0].held_margin(boosters.rounds)
    labels, k = problem.data.y[held.rows], problem.factors.size
    factors, scale = problem.factors, 1.0
    if boosters.grown[0].has_multipliers:  # Their scores are no log-odds of the labels.
        factors, scale = calibrate_scores(margin, labels, k, held.weight)
    oracle = held.oracle(probabilities_of(margin, factors, scale))
    search = MetricSearch(held, oracle, parts=parts, watch=watch)

    def decide(name: str, weights: Float) -> Decisions:
        return search.of_rules(name, costs_of_weights(weights)[None])

    shift = np.append(0.0, boosters.shift) if k == 2 else boosters.shift
    of_default = np.exp(scale * (shift - shift.max()) + np.log(factors))
    default = decide("thresholds", of_default)
    shares = mixture_shares([boosters.decisions], np.ones(1), k)
    known = [replace(default, shares=shares, is_chosen=bool(boosters.shift.any()))]
    if not boosters.grown[0].has_multipliers:
        per_share = 1.0 / np.bincount(labels, held.weight, k)
        known += [decide("argmax", np.ones(k)), decide("prior", per_share)]
    known, _ = search.assess(known)
    found, steps = optimise_weights(search, known)
    candidates = [replace(one, oracle=boosters.oracle) for one in found]
    return search, candidates, steps, (factors, scale)


def optimise_weights(
    search: MetricSearch, known: list[Decisions]
) -> tuple[list[Decisions], list[SearchStep]]:
    """Add optimised weights of the classes to decisions that are measured.

    Parameters
    ----------
    search : MetricSearch
        Measures decisions by the probabilities of the classes.
    known : list of Decisions
        Decisions of one rule each; the search begins at the best of those by weights.

    Returns
    -------
    candidates : list of Decisions
        All of them, measured.
    steps : list of SearchStep
        What the search on all rows reached by each weight.
    """
    watch, loss = search.watch, search.held.problem.loss
    errors = known[0].errors
    # By all rows, since parts of them are drawn by their order.
    weighing = [one.costs[0] for one in known if weights_of(one.costs[0]) is not None]
    u = np.array([search.oracle.functionals(costs) for costs in weighing])
    losses, violations = np.array([loss.value(one) for one in u]), search.held.violations(u)
    best = choose(losses, violations, errors, **search.criterion)
    start = weights_of(weighing[best])
    assert start is not None
    steps, begun = list[SearchStep](), time.perf_counter()
    rooms = {"optimised": np.zeros_like(errors), "relaxed": errors}
    if not search.criterion["is_strict"].any():
        del rooms["relaxed"]
    found = []
    for name, room in rooms.items():

        def find(
            oracle: PlugIn, held: HeldOutProblem, room: Float = room, *, is_shown: bool = False
        ) -> Rules:
            def observe(u: Float) -> bool:
                if is_shown:
                    worst = float(search.held.violations(u).max(initial=0.0))
                    seconds = time.perf_counter() - begun
                    steps.append(SearchStep(loss.value(u), -np.inf, worst, seconds))
                counted_by = "labels" if is_shown else None
                return watch is not None and watch.notify(counted_by, loss.value(u), u)

            of_rows = WeightSearch(held, oracle, search.criterion, observe)
            return costs_of_weights(of_rows.find(start, room)[0])[None], np.ones(1)

        whole = search.of_rules(name, *find(search.oracle, search.held, is_shown=True))
        found.append(search.cross_fit(whole, find))
    return [*known, *search.assess(found)[0]], steps


def measure_groups(search: MetricSearch, chosen: Decisions) -> float:
    """Measure the loss of the best weights of each group that keep the constraints as well.

    Parameters
    ----------
    search : MetricSearch
        Measures decisions on the scores.
    chosen : Decisions
        Decisions to begin at, whose violations are allowed.

    Returns
    -------
    float
        NaN if none are found.
    """
    held, oracle = search.held, search.oracle
    groups = encode_groups(held.cells)
    of_rows = WeightSearch(held, oracle, search.criterion)
    allowed, start = np.maximum(chosen.violations, 0.0), weights_of(chosen.costs[0])
    assert start is not None
    weights = of_rows.find(start, allowed, groups)
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    u = oracle.functionals_of(of_rows.decide(np.log(weights), members))
    violation = held.violations(u * held.problem.units).max(initial=0.0)
    is_kept = violation <= allowed.max(initial=0.0) + FEASIBLE
    return held.problem.loss.value(u) if is_kept else np.nan


def weights_of(costs: Float) -> Float | None:
    """Find the weights of the classes of a rule; None if it is not of the largest weighted one."""
    return CostRule(costs, np.ones(len(costs))).class_weights
