r"""A fit whose objective is a metric of the confusion matrix.

The boosters are the library's own. What is found is a decision rule on their probabilities
(Narasimhan et al., "Consistent Multiclass Algorithms for Complex Metrics and Constraints"):

1. Boosters of the folds score the rows that they have not seen.
2. A reduction finds the mixture of rules that optimises the metric there, under the constraints.
3. The library trains on all rows, and the rules decide by its scores.

Constraints and metrics that look at groups need the probability of each pair of label and group.
That of the label is from the boosters of the label. That of the group, given the label, is from
boosters of the pairs, so that prediction needs no groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.splits import Fold, folds_of
from gbm_constrained.decision.cell_scores import CellScores
from gbm_constrained.decision.cost_rule import CostRule, mixture_shares
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS
from gbm_constrained.metrics.base import Metric
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.reductions.base import FEASIBLE, Solution
from gbm_constrained.reductions.solve import check_reduction
from gbm_constrained.training.checkpoint import CheckpointFile, open_checkpoint
from gbm_constrained.training.held_out_boosters import HeldOutBoosters
from gbm_constrained.training.metric_boosters import BoosterSet, ConstrainedBoosters
from gbm_constrained.training.metric_checks import check_denominator, check_folds, check_function
from gbm_constrained.training.metric_oracles import OracleSearch, choose_oracle
from gbm_constrained.training.metric_problem import HeldOutProblem, MetricProblem
from gbm_constrained.training.metric_search import Decisions, MetricSearch
from gbm_constrained.training.metric_sets_search import search_weights
from gbm_constrained.training.metric_weights import costs_of_weights
from gbm_constrained.training.native_growth import NativeGrowth
from gbm_constrained.training.native_models import FitPart, Merge, Merger, NativeModel
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.problem import HOLDOUT_FRACTION, LibrarySettings, has_many_rows
from gbm_constrained.training.search_notifier import SearchNotifier, SearchWatch


@dataclass(frozen=True, eq=False)
class MetricResult:
    """The decision rules of a metric, and how they were found.

    Parameters
    ----------
    held : HeldOutProblem
        The metric and the constraints on the held-out rows.
    source : str
        Name of these rows in reports.
    candidates : list of Decisions
        Rules without a search, and the optimised ones.
    chosen : Decisions
        The rules that are returned.
    mixed_value : float
        The metric of the mixture that was found, before one rule took its place.
    solution : Solution
        What the reduction found.
    bound : float
        Best value of the metric for the distribution that the probabilities describe.
    cell_model : bytes or None
        Booster of the joint cells; None where the label's own booster decides alone.
    label_model : NativeModel or None
        Booster of the labels that is merged, or grown in stages; None where the library trains on
        all rows by itself.
    factors : ndarray of shape (n_joint_cells,)
        Factor of each joint cell in the objective of the booster that decides; ones where two
        boosters do.
    scale : float, default=1
        Factor by which scores become log-odds.
    exact : Solution, default=None
        What the reduction found for the distribution that the probabilities describe.
    row_factor : ndarray of shape (n_samples,), default=None
        Factor of the weight of each training row in the library's model of the labels; ones by
        default.
    cell_scores : CellScores, default=None
        How scores of the labels and of the joint cells are combined, where there are both.
    decided : ndarray of shape (n_rows,), intp, default=None
        Decisions about the held-out rows of the one rule that is returned; None of several.
    search : MetricSearch, default=None
        The search on the scores that decide.
    least : ndarray of shape (n_rows, n_classes), default=None
        Probability of each decision about the held-out rows that violates the constraints least,
        where no decisions were found that meet them.
    booster_set : BoosterSet, default=None
        Fold boosters that the library's model is grown as, where they are those of a fit without
        a metric.
    """

    held: HeldOutProblem
    source: str
    candidates: list[Decisions]
    chosen: Decisions
    mixed_value: float
    solution: Solution
    bound: float
    cell_model: bytes | None
    label_model: NativeModel | None
    factors: Float
    scale: float = 1.0
    exact: Solution | None = None
    row_factor: Float | None = None
    cell_scores: CellScores | None = None
    decided: Codes | None = None
    search: MetricSearch | None = None
    least: Float | None = None
    booster_set: BoosterSet | None = None

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

    def with_chosen(self, chosen: Decisions) -> MetricResult:
        """Return other decisions by the same scores."""
        decided = None
        if len(chosen.costs) == 1 and self.search is not None:
            decided = self.search.oracle.decide(chosen.costs[0])
        return replace(self, chosen=chosen, decided=decided)

    def transfer(self, boosters: ConstrainedBoosters, margin: Array) -> MetricResult:
        """Let the model of all rows decide as many rows as the fold boosters do, by each rule.

        Parameters
        ----------
        boosters : ConstrainedBoosters
            The boosters of the folds, and the model.
        margin : ndarray
            Scores of the training rows by the model.
        """
        assert self.booster_set is not None
        of_set, log_factors = self.booster_set, np.log(self.factors)

        def moved(decisions: Decisions) -> Decisions:
            if decisions.oracle != of_set.oracle or self.factors.size > 2:
                return decisions
            shift = CostRule(decisions.costs[0], self.factors, scale=self.scale).as_shift()
            if shift is None:
                return decisions
            shift = boosters.transfer(of_set, shift, margin)
            weights = np.exp(self.scale * np.append(0.0, shift) + log_factors)
            return replace(decisions, costs=costs_of_weights(weights)[None])

        candidates = [moved(one) for one in self.candidates]
        return replace(self, candidates=candidates, chosen=moved(self.chosen))


class MetricFit:
    """A fit whose objective is a metric of the confusion matrix.

    Parameters
    ----------
    options : SolverOptions
        The constructor's parameters.
    metric : Metric or None
        The objective; by default the error rate, which the library's own objective stands for.
    arguments : FitArguments
        The rows that the user gave.
    library : LibrarySettings
        What the library says of its fit.
    are_log_odds : bool, default=True
        Whether scores of the boosters are log-odds of the classes, or are calibrated first.
    notifier : SearchNotifier, default=None
        Callbacks and time limit.

    Attributes
    ----------
    checkpoint : CheckpointFile or None
        File that finished boosters are saved to, once there is one.
    """

    checkpoint: CheckpointFile | None = None

    def __init__(
        self,
        options: SolverOptions,
        metric: Metric | None,
        arguments: FitArguments,
        library: LibrarySettings,
        *,
        are_log_odds: bool = True,
        notifier: SearchNotifier | None = None,
    ) -> None:
        self.notifier = SearchNotifier([], library.n_rounds, 1) if notifier is None else notifier
        self.problem = MetricProblem.of(options, metric, arguments, library)
        self.options = self.problem.options
        check_function(self.problem)
        check_reduction(self.problem.loss.kind, options.solver)
        check_denominator(self.problem)
        self.are_log_odds = are_log_odds
        self.has_own_objective = metric is None
        self.oracle = choose_oracle(self.options.oracle, metric, library)
        self.library = library

    def save_to(self, path: Any, estimator: Any, arguments: Mapping[str, Any]) -> None:
        """Save finished boosters to a file from now on, and resume from those in the file.

        Parameters of the `estimator` and `arguments` of its ``fit`` must be those of the fit in
        the file. With a `path` of None nothing is saved.
        """
        problem = self.problem
        self.checkpoint = open_checkpoint(
            path, estimator, problem.data.with_folds(arguments), problem.compiled, problem.cells
        )

    @property
    def may_have_multipliers(self) -> bool:
        """Whether the boosters are those of a fit without a metric, under its multipliers.

        Under comparisons of three groups and more there may be too few rows of each joint cell for
        its probability. Metrics that look at groups, amounts or further data sets, and mixtures of
        decisions, need that probability in any case. Boosters that may end before their rounds
        take no multipliers.
        """
        problem, options = self.problem, self.options
        is_asked = options.oracle in ("plug_in", "auto") and options.solver == "auto"
        is_divided = options.ensemble is None and options.measure_on != "train"
        is_one_rule = options.deterministic is not False
        if not (problem.compiled.mixing is not None and is_asked and is_divided and is_one_rule):
            return False
        if self.has_own_objective or self.library.without_stages is not None:
            return False
        has_others = len(problem.data.rows) > problem.data.y.size
        if has_others or problem.convex_bounds or problem.joint.are_labels:
            return False
        return problem.is_metric_of_labels

    def run(
        self,
        fit_part: FitPart,
        merger: Merger | None = None,
        constrained: ConstrainedBoosters | None = None,
    ) -> MetricResult:
        """Find the decision rules.

        Parameters
        ----------
        fit_part : callable
            Trains the library's own model on some of the rows.
        merger : Merger, default=None
            Merges the boosters of the folds, which ``ensemble="folds"`` returns.
        constrained : ConstrainedBoosters, default=None
            Boosters of a fit without a metric, where these are taken.
        """
        if constrained is not None:
            return self._search_sets(constrained)
        problem, options = self.problem, self.options
        merge = None if merger is None else merger.merge
        growth = NativeGrowth(fit_part, merger, self.notifier, self.checkpoint)
        boosters = self._boosters(growth)
        boosters.plan()
        held = self._hold_out(boosters.rows, boosters.source)
        if self.has_own_objective:
            own = self._keep_decisions(boosters, held, merge)
            if own is not None:
                return own
        is_single = options.deterministic
        if self.has_own_objective and is_single is None:
            is_single = True  # Constraints alone have never made decisions random.
        search = MetricSearch(
            held, held.oracle(np.empty((0, len(problem.joint)))), options.solver, boosters.parts,
            has_baselines=not self.has_own_objective, deterministic=is_single,
            watch=self._watch(held, boosters.source, lambda: growth.reserved),
            **options.search_options,
        )  # fmt: skip
        found = OracleSearch(
            search, boosters, has_stages=self.library.without_stages is None,
            has_time=lambda: not search.is_over and growth.has_time_for(boosters.work),
        ).run(self.oracle)  # fmt: skip
        best, weights = found[0], found[0].weights
        cell_model, label_model = self._final_models(boosters, weights, merge)
        row_factor = boosters.row_factor(weights) if label_model is None else None
        if row_factor is not None:
            row_factor = row_factor[: problem.data.y.size]
        factors, scale, cell_scores = boosters.link(weights)
        chosen = best.chosen
        mixed_value = chosen.value if np.isnan(chosen.mixed_value) else chosen.mixed_value
        least = None
        if all(one.status == "infeasible" for one in (best.solution, best.exact)):
            rules, probability = np.array(best.solution.rules), best.solution.probability
            least = best.search.of_rules("least", rules, probability).shares
        result = MetricResult(
            held, boosters.source, [*best.candidates, *(one.chosen for one in found[1:])],
            chosen, mixed_value, best.solution,
            problem.loss.to_metric(best.exact.bound), cell_model, label_model,
            factors, scale, best.exact, row_factor, cell_scores,
            search=best.search, least=least,
        )  # fmt: skip
        return result.with_chosen(chosen)

    def _search_sets(self, constrained: ConstrainedBoosters) -> MetricResult:
        """Find decisions on the scores of each set of boosters of a fit without a metric."""
        folds, source = self._folds()
        sets = constrained.grow(folds, source)
        held = self._hold_out(np.sort(np.concatenate([fold.held for fold in folds])), source)
        of_folds = folds if len(folds) > 1 else ()
        parts = [np.searchsorted(held.rows, fold.held) for fold in of_folds]
        watch = self._watch(held, source, lambda: 0.0)
        found = [search_weights(one, held, parts, watch) for one in sets]
        candidates = [candidate for result in found for candidate in result.candidates]
        chosen = candidates[found[0].search.choose(candidates)]
        at = [one.oracle for one in sets].index(chosen.oracle)
        search = found[at].search
        solution = replace(search.solution_of(chosen), history=found[at].steps)
        result = MetricResult(
            held, source, candidates, chosen, chosen.value, solution, np.nan,
            None, None,
            found[at].factors, found[at].scale, search=search, booster_set=sets[at],
        )  # fmt: skip
        return result.with_chosen(chosen)

    def _hold_out(self, rows: Codes, source: str) -> HeldOutProblem:
        """Bind the metric and the constraints to the rows that boosters hold out."""
        given = self.problem.data.given_folds
        held = self.problem.on(rows, None if given is None else given.recency)
        held.check(source)
        return held

    def keep_promise(self, result: MetricResult, margin: Array) -> MetricResult:
        """Choose again by what the model of all rows does, if that is worse than was promised.

        Trees are at their best on their training rows. Decisions whose metric is there outside of
        the interval out of fold, on the bad side, are others than those of the boosters of the
        folds: few distinct rows, for instance, have their scores on another side of a threshold.
        So are decisions that violate a constraint there by more than out of fold, beyond two
        standard errors. What they reach on the training rows then takes the place of the promise,
        also in reports.

        Parameters
        ----------
        result : MetricResult
            The decision rules.
        margin : ndarray
            Scores of the training rows by the model that decides.
        """
        problem, chosen = self.problem, result.chosen
        if result.search is None:
            return result
        everyone, sign = problem.on(np.arange(len(problem.data.rows))), problem.loss.sign

        def reached(decisions: Decisions) -> Decisions:
            shares = result.with_chosen(decisions).shares(margin)
            counts = problem.joint.count_shares(shares, problem.data.rows.weight)
            u = everyone.functionals(counts[None])[0]
            value, violations = problem.metric.function(u[problem.loss.at]), everyone.violations(u)
            worst = decisions.low if sign < 0.0 else decisions.high
            if sign * (value - worst) > 0.0:
                decisions = replace(decisions, value=value)
            promised = decisions.violations
            if promised.shape == violations.shape:
                is_broken = violations > np.maximum(promised, 0.0) + 2.0 * decisions.errors
                if (is_broken & (violations > FEASIBLE)).any():
                    violations = np.where(is_broken, violations, promised)
                    decisions = replace(decisions, violations=violations)
            return decisions

        if reached(chosen) is chosen:
            return result
        same = [one for one in result.candidates if one.oracle == chosen.oracle]
        same = [reached(chosen if one.name == chosen.name else one) for one in same]
        best = same[result.search.choose(same)]
        low, high = np.fmin(best.low, best.value), np.fmax(best.high, best.value)
        return result.with_chosen(replace(best, low=float(low), high=float(high)))

    def _watch(
        self, held: HeldOutProblem, source: str, reserved: Callable[[], float]
    ) -> SearchWatch | None:
        """Watch the search, if somebody is to be notified or time is limited."""
        notifier, problem = self.notifier, self.problem
        if not notifier.callbacks and notifier.limit.seconds is None:
            return None
        cells, compiled = compile_constraints(self.options.constraints, problem.data.rows)
        own = compiled.on(cells.take(held.rows, held.factor))
        return SearchWatch(notifier, source, own, problem.loss.to_metric, reserved)

    def _keep_decisions(
        self, boosters: HeldOutBoosters, held: HeldOutProblem, merge: Merge | None
    ) -> MetricResult | None:
        """Keep the decisions of the library's own boosters if they satisfy the constraints."""
        problem = self.problem
        margin = boosters.boosters(is_joint=False).margin
        k = problem.factors.size
        costs = ((1.0 - np.eye(k)) * problem.factors[:, None])[None]
        decisions = CostRule(costs[0], problem.factors).decide(lambda _: margin)
        shares = mixture_shares([decisions], np.ones(1), k)
        counts = problem.joint.count_shares(shares, held.weight, held.rows)
        u = held.functionals(counts[None])[0]
        if held.violations(u).max(initial=0.0) > FEASIBLE:
            return None
        search = MetricSearch(held, held.oracle(np.empty((0, len(problem.joint)))))
        (kept,), _ = search.assess([Decisions("argmax", costs, np.ones(1), shares)])
        value = problem.loss.value(u / problem.units)
        solution = Solution(
            (costs[0],), np.ones(1), u, value, -np.inf, 0.0, "optimal", (), u[None]
        )
        return MetricResult(
            held, boosters.source, [kept], kept, kept.value, solution,
            np.nan, None, self._label_model(boosters, None, merge), problem.factors,
            decided=decisions,
        )  # fmt: skip

    def _final_models(
        self, boosters: HeldOutBoosters, weights: Float | None, merge: Merge | None
    ) -> tuple[bytes | None, NativeModel | None]:
        """Make the booster of the joint cells, and that of the labels if `fit` does not.

        A checkpoint keeps the first one, which is therefore made first.
        """
        cell_model = None
        if boosters.is_joint and self.options.ensemble is None:
            cell_model = boosters.write_cells(weights)
        elif boosters.is_joint:
            assert merge is not None
            cell_model = merge(boosters.boosters(weights, is_joint=True).models).to_bytes()
        return cell_model, self._label_model(boosters, weights, merge)

    def _label_model(
        self, boosters: HeldOutBoosters, weights: Float | None, merge: Merge | None
    ) -> NativeModel | None:
        """Make the booster of the labels, if the library does not train it by itself."""
        if self.options.ensemble is None:
            is_moved = weights is not None and weights.ndim > 1
            return boosters.train_labels(weights) if is_moved else None
        assert merge is not None
        return merge(boosters.boosters(weights, is_joint=False).models)

    def _folds(self) -> tuple[Sequence[Fold], str]:
        """Decide which rows are held out, and name them."""
        problem = self.problem
        given = problem.data.given_folds
        if given is not None:
            folds, source = given.folds, given.source
        else:
            folds = folds_of(self._held_parts(), len(problem.data.rows))
            source = "out of fold" if len(folds) > 1 else "holdout"
        check_folds(problem, folds, source)
        return folds, source

    def _boosters(self, growth: NativeGrowth) -> HeldOutBoosters:
        """Make the boosters of the folds, or of all rows."""
        problem = self.problem
        if self.options.measure_on != "train":
            return self._held_out(growth, *self._folds())
        if not self.library.has_few_parameters:
            issue_warning(
                f"measure_on='train' optimises {problem.metric.metric} on decisions about rows "
                f"that the trees have learned, and promises more than new rows give: use "
                f"'crossfit' or 'holdout'.",
                "GC118",
            )
        everyone = np.arange(len(problem.data.rows))
        return self._held_out(growth, [Fold(everyone, everyone)], TRAINING_ROWS)

    def _held_out(
        self, growth: NativeGrowth, folds: Sequence[Fold], source: str
    ) -> HeldOutBoosters:
        return HeldOutBoosters(self.problem, growth, folds, source, are_log_odds=self.are_log_odds)

    def _held_parts(self) -> list[Codes]:
        """Split the rows into parts that are held out, each by another booster."""
        problem, options = self.problem, self.options
        everyone = np.arange(len(problem.data.rows))
        every = range(len(problem.compiled.parts))
        is_holdout = options.measure_on == "holdout" or (
            options.measure_on == "auto"
            and not options.ensemble
            and has_many_rows(problem.cells, problem.compiled, every)
        )
        if is_holdout:
            share = options.holdout_fraction or HOLDOUT_FRACTION
            return problem.data.split(everyone, problem.cells, share)[:1]
        n = min(options.n_folds, everyone.size)
        return problem.data.split(everyone, problem.cells, 1.0 / n, n)
