"""A fit whose objective is a metric of the confusion matrix.

The boosters are the library's own. What is found is a decision rule on their probabilities
(Narasimhan et al., "Consistent Multiclass Algorithms for Complex Metrics and Constraints"):

1. Boosters of the folds score the rows that they have not seen
   (:mod:`gbm_constrained.fit.native_models`).
2. A reduction finds the mixture of rules that optimises the metric there, under the constraints
   (:mod:`gbm_constrained.fit.metric_search`).
3. The library trains on all rows, and the rules decide by its scores.

Constraints and metrics that look at groups need the probability of each pair of label and group.
That of the label is from the boosters of the label. That of the group, given the label, is from
boosters of the pairs, so that prediction needs no groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.splits import Fold
from gbm_constrained.decision.choose import match_positive_rate, rows_to_match
from gbm_constrained.decision.rules import CostRule, mixture_shares
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS
from gbm_constrained.fit.callbacks import (
    GIVEN_UP_IN_SEARCH,
    CallbackNotifier,
    ConstraintCallback,
    SearchWatch,
    TimeLimit,
)
from gbm_constrained.fit.checkpoint import CheckpointFile
from gbm_constrained.fit.cross_fit import divide_into_folds
from gbm_constrained.fit.fit import ConstrainedFit, FoldGrowth
from gbm_constrained.fit.metric_problem import (
    HeldOutProblem,
    MetricProblem,
    check_folds,
    check_objective,
)
from gbm_constrained.fit.metric_search import (
    Decisions,
    MetricResult,
    MetricSearch,
    costs_of_weights,
    search_fold_boosters,
    search_oracles,
)
from gbm_constrained.fit.native_models import HeldOutBoosters, NativeAdapter, NativeGrowth
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import LibrarySettings, has_many_rows
from gbm_constrained.problem.compiler import JointCells, compile_constraints
from gbm_constrained.reductions.mixtures import FEASIBLE
from gbm_constrained.solvers.base import OracleName


def choose_oracle(options: SolverOptions, library: LibrarySettings) -> OracleName:
    """Choose the oracle, and check that its boosters can be grown.

    Without a metric the library's own objective stands for the error rate.

    Raises
    ------
    ValueError
        If the oracle needs weights, or stages, that the fit has not.
    """
    oracle = options.oracle
    if options.metric is None or (oracle == "auto" and not library.takes_weights):
        return "plug_in"
    if oracle in ("refit", "in_training") and not library.takes_weights:
        raise ValueError(
            f"Reduction(oracle={oracle!r}) grows boosters with weights of rows, and the function "
            f"that was given as objective takes none: give it a parameter for sample weights, or "
            f"use Reduction(oracle='plug_in')."
        )
    if oracle == "in_training" and library.without_stages is not None:
        raise ValueError(
            f"Reduction(oracle='in_training') grows a model in stages, in which its rows have "
            f"other weights, and {library.without_stages} does not allow it: use "
            f"Reduction(oracle='refit') or 'plug_in'."
        )
    return oracle


class MetricFit:
    """A fit whose objective is a metric of the confusion matrix.

    Without a metric it is the error rate, which the library's own objective stands for.

    Parameters
    ----------
    options : SolverOptions
        The constructor's parameters.
    arguments : FitArguments
        The rows that the user gave.
    library : LibrarySettings
        What the library says of its fit.
    are_log_odds : bool, default=True
        Whether scores of the boosters are log-odds of the classes, or are calibrated first.
    callbacks : sequence of callable, default=()
        Notified before each call of the oracle.
    limit : TimeLimit, default=None
        Time after which training and the search end.

    Attributes
    ----------
    problem : MetricProblem
        The metric and the constraints, bound to the rows.
    notifier : CallbackNotifier
        Notifies callbacks, and ends the search when one of them or the time limit asks for it.
    checkpoint : CheckpointFile or None
        File that finished boosters are saved to, once there is one.
    """

    checkpoint: CheckpointFile | None = None

    def __init__(
        self,
        options: SolverOptions,
        arguments: FitArguments,
        library: LibrarySettings,
        *,
        are_log_odds: bool = True,
        callbacks: Sequence[ConstraintCallback] = (),
        limit: TimeLimit | None = None,
    ) -> None:
        self.notifier = CallbackNotifier(
            callbacks, library.n_rounds, 1, limit,
            "iterations" if library.is_linear else "rounds", learning_rate=library.learning_rate,
            given_up=GIVEN_UP_IN_SEARCH,
        )  # fmt: skip
        self.problem = MetricProblem.of(options, arguments, library)
        self.options = self.problem.options
        check_objective(self.problem)
        self.are_log_odds = are_log_odds
        self.has_own_objective = options.metric is None
        self.oracle = choose_oracle(self.options, library)
        self.library = library

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
        # The metric must look at labels and decisions alone, and count rows.
        rates = problem.metric.constraints
        if any(one.amounts or one.data_sets or one.n_rows_held for one in rates):
            return False
        cells, _ = compile_constraints(rates, problem.data.rows, warning=None)
        return JointCells.of(cells).are_labels

    def run(self, adapter: NativeAdapter) -> MetricResult:
        """Find the decision rules on scores of boosters that the library trains by its own means.

        Parameters
        ----------
        adapter : NativeAdapter
            Drives the library.
        """
        problem, options = self.problem, self.options
        growth = NativeGrowth(adapter, self.notifier, self.checkpoint)
        folds, held, parts = self._hold_out()
        boosters = HeldOutBoosters(problem, growth, folds, are_log_odds=self.are_log_odds)
        nothing = MetricSearch(held, held.oracle(np.empty((0, len(problem.joint)))))
        if self.has_own_objective:
            own = self._keep_decisions(boosters, nothing)
            if own is not None:
                return own
        is_single = options.deterministic
        if self.has_own_objective and is_single is None:
            is_single = True  # Constraints alone have never made decisions random.
        search = replace(
            nothing, solver=options.solver, parts=parts, has_baselines=not self.has_own_objective,
            deterministic=is_single, watch=self._watch(held, growth.seconds_left),
            max_calls=options.reduction.max_calls, settings=options.reduction.settings,
        )  # fmt: skip
        best, *others = search_oracles(
            self.oracle, search, boosters, has_stages=self.library.without_stages is None,
            has_time=lambda: not search.is_over and growth.has_time_for(boosters.work),
        )  # fmt: skip
        weights = best.weights
        cell_model = boosters.cell_model(weights)  # A checkpoint keeps it: it is made first.
        label_model = boosters.label_model(weights)
        row_factor = boosters.row_factor(weights) if label_model is None else None
        if row_factor is not None:
            row_factor = row_factor[: problem.data.y.size]
        factors, scale, cell_scores = boosters.link(weights)
        return best.with_chosen(
            best.chosen,
            candidates=[*best.candidates, *(one.chosen for one in others)],
            cell_model=cell_model,
            label_model=label_model,
            row_factor=row_factor,
            factors=factors,
            scale=scale,
            cell_scores=cell_scores,
        )

    def run_with_multipliers(
        self, fit: ConstrainedFit, adapter: Any
    ) -> tuple[MetricResult, FoldGrowth]:
        """Find decisions on the scores of each set of boosters of a fit without a metric.

        The set that such a fit takes comes first, and the one without multipliers after it.

        Parameters
        ----------
        fit : ConstrainedFit
            The fit under the same constraints, without a metric.
        adapter : BoosterAdapter
            Drives the library, and has taken the rows of the fit.
        """
        folds, held, parts = self._hold_out()
        with adapter.measuring():
            growth = FoldGrowth(fit, adapter.make_factory(), folds, held.source)
            best, plain = fit.find_best(growth), growth.plain_boosters
        sets = [best] if plain is None or plain[0] is best[0] else [best, plain]
        watch = self._watch(held, lambda: 0.0)
        found = [search_fold_boosters(one, fit.options, held, parts, watch) for one in sets]
        candidates = [candidate for of_set in found for candidate in of_set.candidates]
        chosen = candidates[found[0].search.choose(candidates)]
        result = next(one for one in found if one.candidates[0].oracle == chosen.oracle)
        solution = replace(result.search.solution_of(chosen), history=result.solution.history)
        return result.with_chosen(chosen, candidates=candidates, solution=solution), growth

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
        if not result.is_searched:
            return result
        everyone, sign = problem.on(np.arange(len(problem.data.rows))), problem.loss.sign

        def reached(decisions: Decisions) -> Decisions:
            shares = replace(result, chosen=decisions).shares(margin)
            (u,) = everyone.functionals_of_shares(shares)
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
        found = chosen.value if np.isnan(chosen.mixed_value) else chosen.mixed_value
        best = replace(best, low=float(low), high=float(high), mixed_value=found)
        return result.with_chosen(best)

    def _watch(self, held: HeldOutProblem, reserved: Callable[[], float]) -> SearchWatch | None:
        """Watch the search, if somebody is to be notified or time is limited."""
        notifier, problem = self.notifier, self.problem
        if not notifier.callbacks and notifier.limit.seconds is None:
            return None
        cells, compiled = compile_constraints(self.options.constraints, problem.data.rows)
        own = compiled.on(cells.take(held.rows, held.factor))
        return SearchWatch(notifier, held.source, own, problem.loss.to_metric, reserved)

    def _keep_decisions(
        self, boosters: HeldOutBoosters, search: MetricSearch
    ) -> MetricResult | None:
        """Keep the decisions of the library's own boosters if they satisfy the constraints."""
        problem, held = self.problem, search.held
        margin = boosters.boosters(is_joint=False).margin
        k = problem.factors.size
        costs = ((1.0 - np.eye(k)) * problem.factors[:, None])[None]
        decisions = CostRule(costs[0], problem.factors).decide(lambda _: margin)
        shares = mixture_shares([decisions], np.ones(1), k)
        if held.violations(held.functionals_of_shares(shares)).max(initial=0.0) > FEASIBLE:
            return None
        (kept,), _ = search.assess([Decisions("argmax", costs, np.ones(1), shares)])
        return MetricResult(
            search, [kept], kept, search.solution_of(kept), factors=problem.factors,
            decided=decisions, label_model=boosters.label_model(None),
        )  # fmt: skip

    def _hold_out(self) -> tuple[Sequence[Fold], HeldOutProblem, list[Codes]]:
        """Decide which rows are held out, each by another booster, and bind the problem to them.

        The positions of the rows of each booster among these are listed where there are several.
        """
        problem, options = self.problem, self.options
        everyone, given = np.arange(len(problem.data.rows)), problem.data.given_folds
        folds: Sequence[Fold] = [Fold(everyone, everyone)]
        source = TRAINING_ROWS
        if options.measure_on != "train":
            is_holdout = options.measure_on == "holdout" or (
                options.measure_on == "auto"
                and not options.ensemble
                and has_many_rows(
                    problem.cells, problem.compiled, range(len(problem.compiled.parts))
                )
            )
            folds, source = divide_into_folds(
                problem.data, problem.cells, options, is_holdout=is_holdout
            )
            check_folds(problem, folds, self.library)
        elif not self.library.is_linear:
            issue_warning(
                f"measure_on='train' optimises {problem.metric.metric} on decisions about "
                f"rows that the trees have learned, and promises more than new rows give: use "
                f"'crossfit' or 'holdout'.",
                "GC118",
            )
        rows = np.sort(np.concatenate([fold.held for fold in folds]))
        held = problem.on(rows, None if given is None else given.recency, source)
        if np.isnan(held.compiled.constant[problem.loss.at]).any():
            remedy = "use measure_on='crossfit'" if given is None else "hold out other rows"
            raise ValueError(
                f"{problem.metric.metric} has no value on the rows held out ({source}): a class, "
                f"or a group of a class, has none of them. Give more rows of the rarest class, "
                f"merge it with another one, or {remedy}."
            )
        parts = [np.searchsorted(rows, fold.held) for fold in folds] if len(folds) > 1 else []
        return folds, held, parts


def train_like_folds(result: MetricResult, growth: FoldGrowth, adapter: Any) -> None:
    """Train the model of all rows as the fold boosters of a result were grown."""
    fit = growth.fit
    assert result.grown is not None
    fit.measured = growth.follow(result.grown)
    adapter.train()
    if result.rounds != adapter.rounds:
        adapter.truncate(result.rounds)
    if fit.checkpoint is not None:
        fit.checkpoint.remove()


def transfer_decisions(result: MetricResult, growth: FoldGrowth, margin: Array) -> MetricResult:
    """Let the model of all rows decide as many rows as the fold boosters do, by each rule.

    Parameters
    ----------
    result : MetricResult
        The decision rules.
    growth : FoldGrowth
        Has grown the boosters of the folds.
    margin : ndarray
        Scores of the training rows by the model.
    """
    assert result.grown is not None
    factors, of_folds, problem = result.factors, result.grown[0], growth.fit.problem
    matched, oracle = rows_to_match(problem.compiled, problem.cells), result.chosen.oracle

    def moved(decisions: Decisions) -> Decisions:
        if decisions.oracle != oracle or factors.size > 2:
            return decisions
        shift = CostRule(decisions.costs[0], factors, scale=result.scale).as_shift()
        if shift is None:
            return decisions
        if matched is not None and not of_folds.compared and shift.any():
            scores = of_folds.scores(result.rounds)
            shift = np.asarray(match_positive_rate(scores, shift, margin, matched, problem.cells))
        weights = np.exp(result.scale * np.append(0.0, shift) + np.log(factors))
        return replace(decisions, costs=costs_of_weights(weights)[None])

    candidates = [moved(one) for one in result.candidates]
    return replace(result, candidates=candidates, chosen=moved(result.chosen))
