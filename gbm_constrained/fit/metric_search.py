r"""The search for the decisions of a metric: what the reductions find, against rules without one.

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

The class of the largest weighted probability :math:`w_k P(k \mid x)` is decided. With all other
weights at rest, a row with the largest other logarithm :math:`m_j(x)` is decided as class j from

.. math:: \log w_j = m_j(x) - \log P(j \mid x)

on. One sort of the rows and a running sum give every functional of every such decision, and the
criterion of all fits chooses among them. Of two classes that is the best threshold. Of several,
the weights of the classes are found in turn. Weights of each group by itself say what constraints
should cost, as thresholds of groups do (:mod:`gbm_constrained.decision.groups`).

Boosters may be grown for the metric as well:

- ``"plug_in"``: boosters are grown once, and rules of decision are found on their probabilities.
- ``"refit"``: boosters are grown anew, with weights of classes (or of classes and groups) that are
  the costs of the plug-in optimum, and rules are found on their probabilities.
- ``"in_training"``: the boosters of the folds are grown once and in step. After each stage of
  training the weights of classes (or of classes and groups) move towards the costs of the optimum
  on the held-out probabilities so far. The model of all rows is grown with the same weights.
- ``"auto"``: the plug-in oracle, unless another is better on held-out rows by more than one
  standard error of the paired difference. The other is the one in training, or the refit where a
  model cannot be grown in stages. All its boosters are grown, for one fold has too few rows of
  rare classes to tell.

Where a linear objective counts amounts, rows of the boosters count for theirs with any oracle.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.splits import parts_by_cell
from gbm_constrained.decision.choose import (
    choose,
    choose_unbeaten,
    choose_with_room,
    find_at_a_price,
)
from gbm_constrained.decision.groups import encode_groups
from gbm_constrained.decision.rules import (
    CellScores,
    CostRule,
    calibrate_scores,
    mixture_shares,
    probabilities_of,
)
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.evaluation.audit import worst_rate_interval
from gbm_constrained.fit.callbacks import SearchWatch
from gbm_constrained.fit.cross_fit import Grown, choose_by_held_out
from gbm_constrained.fit.metric_problem import HeldOutProblem
from gbm_constrained.fit.native_models import HeldOutBoosters, NativeModel
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.metrics.callables import check_convexity
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
    improve_rule,
    list_rules_between,
    mean_costs,
    move_weights,
    weigh_cells,
)
from gbm_constrained.solvers.base import OracleName
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.influence import RowGroups

MAX_CROSS_FITTED_ROWS = 100_000
"""Held-out rows beyond which optimised decisions are assessed by the rows that chose them: with
fewer than 50 parameters their optimism is below a tenth of a standard error."""
MIN_GAIN = 1e-5  # Loss that counts by labels must gain: far below any sampling error.
MAX_ROWS_OF_AUTO = 20_000
"""Rows beyond which "auto" tries no other oracle: boosters are then well calibrated, and grown at
a high price. Of rows that count for amounts, few may hold most of the value."""
SMALLEST_PROBABILITY = 1e-15  # Of a class, by whose logarithm weights are searched.

Rules: TypeAlias = tuple[Float, Float]  # Costs of several rules, and the probability of each.


def costs_of_weights(weights: Float) -> Float:
    """Write weights of the classes as the cost of each decision in each class."""
    return np.asarray((1.0 - np.eye(weights.size)) * (weights / weights.max())[:, None])


def weights_of(costs: Float) -> Float | None:
    """Find the weights of the classes of a rule; None if it is not of the largest weighted one."""
    return CostRule(costs, np.ones(len(costs))).class_weights


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
        LinearOracle on these rows.
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
    is_whole : bool, default=True
        Whether these are all held-out rows: callbacks are not notified of a search on some of
        them, which assesses another.
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
    is_whole: bool = True

    @property
    def is_over(self) -> bool:
        """Whether a callback or the time limit has ended the search."""
        return self.watch is not None and self.watch.is_over

    @cached_property
    def criterion(self) -> dict[str, Any]:
        """Weights of the violations, and the rows of constraints that are strict."""
        compiled, bounds = self.held.compiled, self.held.problem.convex_bounds
        weights = [*violation_weights(compiled), *(bound.weight for bound in bounds)]
        is_strict = [*~is_priced(compiled), *(True for _ in bounds)]
        return {"weights": np.array(weights), "is_strict": np.array(is_strict, dtype=bool)}

    # --- reductions -----------------------------------------------------------------------------

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
        exact, answers = self.oracle.by_probabilities(), list[Float]()

        def answer(cost: Float) -> tuple[Float, Float]:
            costs, u = exact.minimise(cost)
            answers.append(costs)
            return costs, u

        found = self.minimise(self.held.programme(), answer, "probabilities")
        joint = self.held.problem.joint
        constant = 1.0 - np.eye(joint.n_classes)
        rules = self.oracle.restate(answers)
        return found, [*rules, *(np.tile(one, (len(joint), 1)) for one in constant)]

    def solve(self, rules: Sequence[Float], room: Float | float = 0.0) -> RuleMixture:
        """Run the reduction on counts by labels.

        Once the search is over, the solution is the best mixture of the known rules.

        Parameters
        ----------
        rules : sequence of ndarray
            Rules that are known already.
        room : float or ndarray of shape (n_rows,), default=0
            What each row of constraints is relaxed by.
        """
        counted_by = "labels" if self.is_whole and not np.any(room) else None
        oracle, programme = self.oracle, self.held.programme(room)
        known = self.count(rules)
        if programme.objective.kind == "linear":
            slope = programme.objective.gradient(programme.middle)
            best = int(np.argmin(np.array([u for _, u in known]) @ slope))
            known += self.count([improve_rule(oracle, known[best][0], slope)])

        def search(start: Sequence[Float] = ()) -> RuleMixture:
            new: tuple[Float, ...] = ()
            if not self.is_over:
                rules = {"known": known, "start": self.count(start)}
                solution = self.minimise(programme, oracle.minimise, counted_by, **rules)
                if not self.is_over:
                    return solution
                new = solution.rules
            return mix_rules(programme, oracle.minimise, [*known, *self.count(new)])

        found = search()
        is_bound = np.max(programme.constraints(found.u), initial=-np.inf) > -MIN_GAIN
        # Where no constraint binds, a second search with the rules between those of the mixture
        # gains on the rows that choose the rules, and not on others.
        for _ in range(3 if is_bound else 1):
            more = [] if self.is_over else list_rules_between(oracle, found.rules)
            if not more:
                break
            known += more
            refined = search(found.rules)
            is_better = refined.violation < found.violation - FEASIBLE or (
                refined.violation <= found.violation + FEASIBLE
                and refined.value < found.value - MIN_GAIN
            )
            if not is_better:
                break
            found = refined
        return found

    def count(self, rules: Sequence[Float]) -> list[tuple[Float, Float]]:
        """Pair rules with their functionals, counted by labels."""
        return [(costs, self.oracle.functionals(costs)) for costs in rules]

    def minimise(
        self,
        programme: MixtureProgramme,
        oracle: LinearOracle,
        counted_by: str | None,
        **rules: Sequence[tuple[Float, Float]],
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
            "tolerance": tolerance, **rules, **self.settings,
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

    # --- decisions ------------------------------------------------------------------------------

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
        return [*found, self.cross_fit("thresholds", MetricSearch._find_thresholds)]

    def _find_thresholds(self) -> Rules:
        """Find the threshold or biases that a fit without a metric would choose."""
        joint, inside = self.held.problem.joint, self.held.problem.in_objective
        of_label = inside[:, None] & (joint.labels[:, None] == np.arange(joint.n_classes))
        scores = np.log(np.maximum(self.oracle.probabilities @ of_label, SMALLEST_PROBABILITY))
        of_two = joint.n_classes == 2
        margin = scores[:, 1] - scores[:, 0] if of_two else scores
        shift = find_at_a_price(ShiftSearch(margin, self.held.cells, self.held.compiled)).value
        shift = np.append(0.0, shift) if of_two else shift
        weight = np.exp(shift - shift.max())
        costs = (inside[:, None] & ~of_label) * weight[joint.labels][:, None]
        return costs[None], np.ones(1)

    def of_rules(self, name: str, costs: Float, probability: Float | None = None) -> Decisions:
        """Decide on the held-out rows by rules, by default by a single one."""
        probability = np.ones(1) if probability is None else probability
        decisions = [self.oracle.decide(one) for one in costs]
        return Decisions(
            name, costs, probability, mixture_shares(decisions, probability, costs.shape[2])
        )

    def cross_fit(
        self,
        name: str,
        find: Callable[[MetricSearch], Rules],
        found: RuleMixture | None = None,
    ) -> Decisions:
        """Decide each part of the held-out rows by the rules that are found on the others.

        Those of all held-out rows are found as well, unless they are known.
        """
        rules = find(self) if found is None else (np.array(found.rules), found.probability)
        whole = replace(self.of_rules(name, *rules), is_chosen=True)
        n = len(self.held.rows)
        if n > MAX_CROSS_FITTED_ROWS:
            return whole
        shares, parts = whole.shares.copy(), self.parts
        if not parts:
            random = np.random.RandomState(0)
            parts = parts_by_cell(np.arange(n), self.held.cells, [0.2] * 5, random)
            parts = [part for part in parts if part.size]
        for part in parts:
            rest = np.setdiff1d(np.arange(n), part, assume_unique=True)
            others = self.held.take(rest)
            if np.isnan(others.compiled.constant[self.held.problem.loss.at]).any():
                return whole
            oracle = self.oracle.take(rest, others.coefficients)
            costs, probability = find(replace(self, held=others, oracle=oracle, is_whole=False))
            shares[part] = mixture_shares(
                [self.oracle.decide(one)[part] for one in costs], probability, shares.shape[1]
            )
        return replace(whole, shares=shares)

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
        held, joint = self.held, self.held.problem.joint
        metric, at = held.problem.metric, held.problem.loss.at
        levels, codes = [], []
        for shares in (candidate.shares for candidate in candidates):
            # Different rows are told apart by their products with random numbers, sorted fast.
            key = shares @ np.random.RandomState(0).uniform(1.0, 2.0, shares.shape[1])
            _, first, of_level = np.unique(key, return_index=True, return_inverse=True)
            levels.append(shares[first])
            codes.append(np.ravel(of_level))
        cells = joint.codes[held.rows]
        groups = RowGroups(cells, np.array(codes), held.weight, joint.amounts(held.rows))
        weights = np.vstack([groups.weight, groups.resample()])  # The rows as they are come first.
        found, replicates = [], []
        for candidate, level, decided in zip(candidates, levels, groups.decisions, strict=True):
            u = held.functionals(groups.tables(weights, level[decided], len(joint)))
            values = np.array([metric.function(one) for one in u[:, at]])
            value, interval = values[0], np.nanpercentile(values[1:], (2.5, 97.5))
            if candidate.is_chosen:
                tangent = (u[1:, at] - u[0, at]) @ metric.derivative(u[0, at])
                value = value + np.nanmean(values[1:] - value - tangent)
            elif metric.metric.form == "worst":
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

    def solution_of(self, chosen: Decisions) -> RuleMixture:
        """Describe decisions as a reduction describes what it finds."""
        u = self.held.functionals_of_shares(chosen.shares) / self.held.problem.units
        return RuleMixture(
            tuple(chosen.costs), chosen.probability, u[0], self.loss(chosen), -np.inf,
            chosen.violation, "optimal", (), u,
        )  # fmt: skip

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
        between = list_rules_between(self.oracle, list(chosen.costs))
        pool = [*self.count(list(chosen.costs)), *between]
        u = np.array([of_rule for _, of_rule in pool])
        loss, held = self.held.problem.loss, self.held
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
            self.of_rules(chosen.name, pool[best][0][None]),
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

    # --- weights of the classes -----------------------------------------------------------------

    def optimise_weights(self, known: list[Decisions]) -> tuple[list[Decisions], list[SearchStep]]:
        """Add optimised weights of the classes to decisions that are measured.

        Parameters
        ----------
        known : list of Decisions
            Decisions of one rule each; the search begins at the best of those by weights.

        Returns
        -------
        candidates : list of Decisions
            All of them, measured.
        steps : list of SearchStep
            What the search on all rows reached by each weight.
        """
        loss, errors = self.held.problem.loss, known[0].errors
        # By all rows, since parts of them are drawn by their order.
        weighing = [one.costs[0] for one in known if weights_of(one.costs[0]) is not None]
        u = np.array([self.oracle.functionals(costs) for costs in weighing])
        losses, violations = np.array([loss.value(one) for one in u]), self.held.violations(u)
        start = weights_of(weighing[choose(losses, violations, errors, **self.criterion)])
        assert start is not None
        steps, begun = list[SearchStep](), time.perf_counter()
        rooms = {"optimised": np.zeros_like(errors), "relaxed": errors}
        if not self.criterion["is_strict"].any():
            del rooms["relaxed"]
        found = []
        for name, room in rooms.items():

            def find(search: MetricSearch, room: Float = room) -> Rules:
                watch, counted_by = search.watch, "labels" if search.is_whole else None

                def observe(u: Float) -> bool:
                    worst = float(self.held.violations(u).max(initial=0.0))
                    step = SearchStep(loss.value(u), -np.inf, worst, time.perf_counter() - begun)
                    if search.is_whole:
                        steps.append(step)
                    return watch is not None and watch.notify(counted_by, step.value, u)

                weights = search.find_weights(start, room, is_over=observe)
                return costs_of_weights(weights[0])[None], np.ones(1)

            found.append(self.cross_fit(name, find))
        return [*known, *self.assess(found)[0]], steps

    @cached_property
    def _scores(self) -> Float:
        """Logarithms of the probabilities, shape (n_rows, n_classes)."""
        return np.log(np.maximum(self.oracle.probabilities, SMALLEST_PROBABILITY))

    def find_weights(
        self,
        start: Float,
        errors: Float,
        groups: Codes | None = None,
        is_over: Callable[[Float], bool] | None = None,
    ) -> Float:
        """Find the weights of the classes of least merit, beginning at some.

        Parameters
        ----------
        start : ndarray of shape (n_classes,)
            Weights to begin at.
        errors : ndarray of shape (n_rows_of_constraints,)
            Violations within which strict rows count as met.
        groups : ndarray of shape (n_rows,), intp, default=None
            Group of each row that has weights of its own; by default all rows have the same.
        is_over : callable, default=None
            Sees the functionals at each step, and may end the search.

        Returns
        -------
        ndarray of shape (n_groups, n_classes)
        """
        n_passes = 1 if start.size == 2 and groups is None else 3
        groups = np.zeros(len(self._scores), dtype=np.intp) if groups is None else groups
        members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
        bias = np.tile(np.log(start / start.max()), (len(members), 1))
        classes = [1] if start.size == 2 else range(start.size)
        for _ in range(n_passes):
            before = bias.copy()
            for g, j in itertools.product(range(len(members)), classes):
                u = self._move(bias, members, g, j, errors)
                if is_over is not None and is_over(u):
                    return np.asarray(np.exp(bias))
            if (bias == before).all():
                break
        return np.asarray(np.exp(bias))

    def measure_groups(self, chosen: Decisions) -> float:
        """Measure the loss of the best weights of each group that keep the constraints as well.

        Parameters
        ----------
        chosen : Decisions
            Decisions to begin at, whose violations are allowed.

        Returns
        -------
        float
            NaN if none are found.
        """
        held, groups = self.held, encode_groups(self.held.cells)
        allowed, start = np.maximum(chosen.violations, 0.0), weights_of(chosen.costs[0])
        assert start is not None
        weights = self.find_weights(start, allowed, groups)
        members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
        u = self.oracle.functionals_of(self._decide(np.log(weights), members))
        violation = held.violations(u * held.problem.units).max(initial=0.0)
        is_kept = violation <= allowed.max(initial=0.0) + FEASIBLE
        return held.problem.loss.value(u) if is_kept else np.nan

    def _decide(self, bias: Float, members: Sequence[Codes]) -> Codes:
        """Decide each row by the biases of its group."""
        found = np.zeros(len(self._scores), dtype=np.intp)
        for own, of_group in zip(bias, members, strict=True):
            found[of_group] = (self._scores[of_group] + own).argmax(axis=1)
        return found

    def _move(self, bias: Float, members: Sequence[Codes], g: int, j: int, errors: Float) -> Float:
        """Move the bias of one class in one group to the best, and give the functionals there."""
        inside = members[g]
        rivals = self._scores[inside] + bias[g]
        rivals[:, j] = -np.inf
        other = rivals.argmax(axis=1)
        turn = rivals[np.arange(other.size), other] - self._scores[inside, j]
        order = np.argsort(turn, kind="stable")
        turn = turn[order]
        decided = self._decide(bias, members) if len(members) > 1 else other.copy()
        decided[inside] = other
        start = self.oracle.functionals_of(decided)
        gained = np.cumsum(self._gains(inside, other, j)[:, order], axis=1)
        ends = np.flatnonzero(np.diff(turn, append=np.inf) > 0.0) + 1
        cuts = np.append(0, ends)  # Numbers of rows that are decided as the class.
        at = np.concatenate([[turn[0] - 1.0], (turn[1:] + turn[:-1]) / 2.0, [turn[-1] + 1.0]])
        now = int(np.searchsorted(cuts, np.searchsorted(turn, bias[g, j], side="right")))

        def measure(points: Codes) -> Float:
            rows = cuts[points]
            return start + np.where(rows > 0, gained[:, rows - 1], 0.0).T

        loss, units = self.held.problem.loss, self.held.problem.units
        low, high, best = 0, cuts.size - 1, now
        n_points = 64  # Measured at once along the line, and again between two of them.
        while True:
            points = np.unique(np.linspace(low, high, n_points).astype(int))
            points = np.append(best, points)
            u = measure(points)
            losses = np.array([loss.value(one) for one in u])
            violations = self.held.violations(u * units)
            best = int(points[choose(losses, violations, errors, **self.criterion)])
            step = -(-(high - low) // (n_points - 1))
            if step <= 1:
                break
            low, high = max(best - step, 0), min(best + step, cuts.size - 1)
        if best != now:
            bias[g, j] = at[cuts[best]]
        return np.asarray(measure(np.array([best]))[0])

    def _gains(self, inside: Codes, other: Codes, j: int) -> Float:
        """Change of each functional where a row is decided as a class, (n_functionals, n)."""
        oracle = self.oracle
        rows = oracle.rows[inside]
        codes, table = oracle.joint.codes[rows], oracle.coefficients.table
        table = table.reshape(len(table), len(oracle.joint.measures), len(oracle.joint), -1)
        measures = [None, *oracle.joint.amounts(rows)]
        gains = np.zeros((len(table), codes.size))
        for of_measure, amount in zip(np.moveaxis(table, 1, 0), measures, strict=True):
            change = (of_measure[:, :, [j]] - of_measure)[:, codes, other]
            gains += change if amount is None else amount * change
        return gains if oracle.weight is None else oracle.weight[inside] * gains


@dataclass(frozen=True, eq=False)
class MetricResult:
    """The decision rules of a metric, and how they were found.

    Parameters
    ----------
    search : MetricSearch
        The search on the scores that decide.
    candidates : list of Decisions
        Rules without a search, and the optimised ones.
    chosen : Decisions
        The rules that are returned.
    solution : RuleMixture
        What the reduction found by the labels.
    exact : RuleMixture, default=None
        What the reduction found for the distribution that the probabilities describe.
    weights : ndarray of shape (n_joint_cells,) or (n_stages, n_joint_cells), default=None
        Weight of each joint cell in the objective of the boosters; None stands for ones.
    grown : tuple of FoldBoosters and EvaluationSet, default=None
        Fold boosters that the library's model is grown as, where they are those of a fit without
        a metric.
    rounds : int, default=0
        Rounds of their prefix that decides.
    factors : ndarray of shape (n_joint_cells,), default=ones
        Factor of each joint cell in the objective of the booster that decides; ones where two
        boosters do.
    scale : float, default=1
        Factor by which scores become log-odds.
    cell_scores : CellScores, default=None
        How scores of the labels and of the joint cells are combined, where there are both.
    cell_model : bytes, default=None
        Booster of the joint cells; None where the label's own booster decides alone.
    label_model : NativeModel, default=None
        Booster of the labels that is merged, or grown in stages; None where the library trains on
        all rows by itself.
    row_factor : ndarray of shape (n_samples,), default=None
        Factor of the weight of each training row in the library's model of the labels; ones by
        default.
    decided : ndarray of shape (n_rows,), intp, default=None
        Decisions about the held-out rows of the one rule that is returned; None of several.
    """

    search: MetricSearch
    candidates: list[Decisions]
    chosen: Decisions
    solution: RuleMixture
    exact: RuleMixture | None = None
    weights: Float | None = None
    grown: Grown | None = None
    rounds: int = 0
    factors: Float = field(default_factory=lambda: np.ones(1))
    scale: float = 1.0
    cell_scores: CellScores | None = None
    cell_model: bytes | None = None
    label_model: NativeModel | None = None
    row_factor: Float | None = None
    decided: Codes | None = None

    @property
    def held(self) -> HeldOutProblem:
        """The metric and the constraints on the held-out rows."""
        return self.search.held

    @property
    def is_searched(self) -> bool:
        """Whether decisions were searched, and are not those of the library's own boosters."""
        return self.exact is not None or self.grown is not None

    @property
    def least(self) -> Float | None:
        """Shares of the decisions that violate the constraints least, where none meet them."""
        both = (self.exact, self.solution)
        if any(one is None or one.status != "infeasible" for one in both):
            return None
        rules, probability = np.array(self.solution.rules), self.solution.probability
        return self.search.of_rules("least", rules, probability).shares

    @property
    def rules(self) -> tuple[CostRule, ...]:
        """The rules that are returned."""
        return tuple(
            CostRule(costs, self.factors, scale=self.scale) for costs in self.chosen.costs
        )

    def shares(self, margin: Array) -> Float:
        """Probability of each decision, given scores of the booster that decides."""
        decisions = [rule.decide(lambda _: margin) for rule in self.rules]
        return mixture_shares(decisions, self.chosen.probability, self.chosen.costs.shape[2])

    def with_chosen(self, chosen: Decisions, **found: Any) -> MetricResult:
        """Return other decisions by the same scores; `found` are further fields."""
        decided = None
        if len(chosen.costs) == 1:
            decided = self.search.oracle.decide(chosen.costs[0])
        return replace(self, chosen=chosen, decided=decided, **found)


def search_decisions(
    oracle: OracleName, search: MetricSearch, weights: Float | None = None
) -> MetricResult:
    """Find rules on the probabilities of boosters, and choose between them and simple rules."""
    exact, rules = search.solve_by_probabilities()
    # What a user's function was said to be is tested on the points that were found.
    problem = search.held.problem
    check_convexity(problem.metric, np.asarray(exact.pool)[:, problem.loss.at])
    simple = search.baselines()
    # Each search knows the rules without one, so that what it finds is no worse on its rows.
    rules += [costs for decisions in simple for costs in decisions.costs]
    of_exact = np.array(search.oracle.restate(exact.rules))
    simple.append(search.of_rules("model", of_exact, exact.probability))
    # Constraints may be met by weights of the classes, which are one rule. They are searched where
    # the best decisions without constraints violate these or have no value.
    is_single = search.deterministic is not False and search.solver == "auto"
    weighs_classes = is_single and search.has_baselines and problem.joint.are_labels
    weighs_classes = weighs_classes and bool(problem.constraints)
    if weighs_classes:
        known = search.count(rules)
        with suppress(ZeroDenominatorError):
            free = search.held.programme().without_constraints()
            found = search.minimise(free, search.oracle.minimise, None, known=known)
            weighs_classes = search.is_bound(found)
    if weighs_classes:
        single = [search.as_single(one, is_forced=True) for one in search.assess(simple)[0]]
        candidates, steps = search.optimise_weights(single)
        least = min(candidates, key=lambda one: one.violation)
        if least.violation > FEASIBLE:
            solution = replace(search.solution_of(least), status="infeasible")
        else:
            best = next(one for one in candidates if one.name == "optimised")
            whole = search.of_rules("optimised", best.costs, best.probability)
            solution = search.solution_of(search.assess([whole])[0][0])
        solution = replace(solution, history=tuple(steps))
    else:

        def find(rest: MetricSearch, room: Float | float = 0.0) -> Rules:
            of_rest = rest.solve(rules, room)
            return np.array(of_rest.rules), of_rest.probability

        solution = search.solve(rules)
        optimum = search.cross_fit("optimised", find, solution)
        candidates, _ = search.assess([*simple, optimum])
        if search.is_bound(solution):
            room = solution.violation + candidates[-1].errors
            relaxed = search.cross_fit("relaxed", partial(find, room=room))
            candidates += search.assess([relaxed])[0]
        if search.deterministic:
            candidates = [search.as_single(one, is_forced=True) for one in candidates]
    candidates = [replace(candidate, oracle=oracle) for candidate in candidates]
    chosen = candidates[search.choose(candidates)]
    if search.deterministic is None:
        chosen = search.as_single(chosen, is_forced=False)
    return MetricResult(search, candidates, chosen, solution, exact, weights)


def search_oracles(
    oracle: OracleName,
    search: MetricSearch,
    boosters: HeldOutBoosters,
    *,
    has_stages: bool,
    has_time: Callable[[], bool] = lambda: True,
) -> list[MetricResult]:
    """Find decisions with one oracle, or with the best of several.

    Parameters
    ----------
    oracle : {"auto", "plug_in", "refit", "in_training"}
        Name of the oracle.
    search : MetricSearch
        A search on the held-out rows, whose probabilities are replaced by those of boosters.
    boosters : HeldOutBoosters
        Grows boosters at given weights.
    has_stages : bool
        Whether boosters can be grown in stages.
    has_time : callable, default=True
        Whether there is time for boosters of all folds at other weights.

    Returns
    -------
    list of MetricResult
        What was tried, the one to return first.
    """

    def search_on(probabilities: Float, **changes: Any) -> MetricSearch:
        changes["oracle"] = replace(search.oracle, probabilities=probabilities)
        return replace(search, **changes)

    def grow_in_training() -> MetricResult:
        """Grow boosters whose weights follow the costs of the optimum."""

        def move(weights: Float, probabilities: Float) -> Float:
            # Nobody watches: what would end this search would end the one for decisions. Weights
            # need costs to a few digits, which so many calls give. The weights of the last stage
            # are 15/16 costs.
            of_stage = search_on(probabilities, max_calls=20, watch=None)
            found, _ = of_stage.solve_by_probabilities()
            return move_weights(weights, mean_costs(found), search.oracle.mass, 0.75)

        # More stages find no better decisions, and each takes time to begin.
        weights, probabilities = boosters.grow_in_step(3, move)
        return search_decisions("in_training", search_on(probabilities), weights)

    def refit(plug_in: MetricResult) -> MetricResult:
        """Grow boosters at the costs of the plug-in optimum."""
        assert plug_in.exact is not None
        weights = weigh_cells(mean_costs(plug_in.exact), search.oracle.mass)
        return search_decisions("refit", search_on(boosters.grow(weights)), weights)

    if oracle == "in_training":
        return [grow_in_training()]
    plug_in = search_decisions("plug_in", search_on(boosters.grow()))
    problem = search.held.problem
    has_many = len(problem.data.rows) > MAX_ROWS_OF_AUTO and problem.relative_amounts is None
    if oracle == "plug_in" or (oracle == "auto" and has_many) or not has_time():
        return [plug_in]
    if oracle == "refit":
        return [refit(plug_in), plug_in]
    other = grow_in_training() if has_stages else refit(plug_in)
    # The other must be better by more than one standard error.
    (base, better), replicates = plug_in.search.assess([plug_in.chosen, other.chosen])
    gain = -problem.loss.sign * (replicates[1] - replicates[0])
    is_feasible = better.violation <= max(base.violation, FEASIBLE)
    is_better = is_feasible and gain.mean() > gain.std()
    return [other, plug_in] if is_better else [plug_in, other]


def search_fold_boosters(
    grown: Grown,
    options: SolverOptions,
    held: HeldOutProblem,
    parts: Sequence[Codes],
    watch: SearchWatch | None,
) -> MetricResult:
    """Find decisions on the scores of fold boosters of a fit without a metric.

    Parameters
    ----------
    grown : tuple of FoldBoosters and EvaluationSet
        The boosters, and the rows that they hold out.
    options : SolverOptions
        The options of that fit.
    held : HeldOutProblem
        The metric and the constraints on the rows that they hold out.
    parts : sequence of ndarray of int
        Positions of the held-out rows of each booster, if there are several.
    watch : SearchWatch or None
        Notifies callbacks, and may end the search.
    """
    problem, (boosters, rows) = held.problem, grown
    # As a fit without a metric decides before it has trained its model.
    choice = choose_by_held_out(grown, options)
    margin = boosters.held_margin(choice.rounds)
    choice, decisions = choose_with_room(rows.credible, margin, choice)
    labels, k = problem.data.y[held.rows], problem.factors.size
    factors, scale = problem.factors, 1.0
    if boosters.has_multipliers:  # Their scores are no log-odds of the labels.
        factors, scale = calibrate_scores(margin, labels, k, held.weight)
    oracle = held.oracle(probabilities_of(margin, factors, scale))
    search = MetricSearch(held, oracle, parts=parts, watch=watch)

    def decide(name: str, weights: Float) -> Decisions:
        return search.of_rules(name, costs_of_weights(weights)[None])

    shift = np.append(0.0, choice.shift) if k == 2 else choice.shift
    default = decide("thresholds", np.exp(scale * (shift - shift.max()) + np.log(factors)))
    shares = mixture_shares([decisions], np.ones(1), k)
    known = [replace(default, shares=shares, is_chosen=bool(choice.shift.any()))]
    if not boosters.has_multipliers:
        per_share = 1.0 / np.bincount(labels, held.weight, k)
        known += [decide("argmax", np.ones(k)), decide("prior", per_share)]
    found, steps = search.optimise_weights(search.assess(known)[0])
    name = "multipliers" if boosters.has_multipliers else "plug_in"
    candidates = [replace(one, oracle=name) for one in found]
    chosen = candidates[search.choose(candidates)]
    solution = replace(search.solution_of(chosen), history=tuple(steps))
    return MetricResult(
        search, candidates, chosen, solution,
        grown=grown, rounds=choice.rounds, factors=factors, scale=scale,
    )  # fmt: skip
