"""A fit whose objective is a metric of the confusion matrix, its report, and its classifiers.

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

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.selectors import to_python_scalar
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import OF_EVALUATION_SETS, FitArguments, encode
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import (
    as_labels,
    check_sensitive_sets,
    check_weight,
    columns_of,
)
from gbm_constrained.decision.choose import (
    find_training_violations,
    match_positive_rate,
    rows_to_match,
)
from gbm_constrained.decision.evaluation_set import UNKNOWN, Estimate, Outcome, PlainModel
from gbm_constrained.decision.guarantees import limit_room
from gbm_constrained.decision.rules import (
    CellScores,
    CostRule,
    Margins,
    MarginShift,
    Mixture,
    mixture_shares,
)
from gbm_constrained.evaluation.assessment import Feasibility, is_hardly_better
from gbm_constrained.evaluation.audit import (
    MetricOnRows,
    drifting,
    encode_labels,
    small_groups_frame,
)
from gbm_constrained.evaluation.verdicts import (
    MAX_EXCESS_ERROR,
    TRAINING_ROWS,
    Cost,
    assess_constraint,
    find_too_few_rows,
    reaches,
    rows_of_constraint,
)
from gbm_constrained.fit.callbacks import (
    GIVEN_UP_IN_SEARCH,
    CallbackNotifier,
    ConstraintCallback,
    SearchWatch,
    TimeLimit,
    check_callbacks,
)
from gbm_constrained.fit.checkpoint import CheckpointFile, open_checkpoint
from gbm_constrained.fit.cross_fit import divide_into_folds
from gbm_constrained.fit.finalize import report_periods_of_metric
from gbm_constrained.fit.fit import ConstrainedFit, FoldGrowth
from gbm_constrained.fit.fitted_report import remove_report, set_reports
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
from gbm_constrained.fit.model_note import unchanged_on_error
from gbm_constrained.fit.native_models import (
    EvaluationRows,
    HeldOutBoosters,
    NativeAdapter,
    NativeGrowth,
)
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import LibrarySettings, has_many_rows
from gbm_constrained.metrics.reading import read_black_box, read_objective
from gbm_constrained.problem.compiler import JointCells, compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.reductions.mixtures import FEASIBLE
from gbm_constrained.solvers.base import OracleName
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.intervals import constraint_intervals, level_of_all


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
        find = partial(
            search_oracles, self.oracle, boosters=boosters,
            has_stages=self.library.without_stages is None,
            has_time=lambda: not search.is_over and growth.has_time_for(boosters.work),
        )  # fmt: skip
        best, *others = find(search)
        if options.standard_errors and problem.constraints:
            inside = find(search=self._leave_room(search, best.chosen))
            (u,) = held.functionals_of_shares(inside[0].chosen.shares)
            more = held.violations(u) - np.maximum(best.chosen.violations, ROUNDING)
            if (more[search.criterion["is_strict"]] <= 0.0).all():
                best, *others = inside
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
        if growth.problem.room is not None:
            aimed = self.problem.leave_room(growth.problem.room)
            held = aimed.on(held.rows, held.factor, held.source)
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
        if not result.is_searched:
            return result
        problem, chosen = result.held.problem, result.chosen
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

    def _leave_room(self, search: MetricSearch, found: Decisions) -> MetricSearch:
        """Aim from inside of the bounds, by the errors of decisions that were found at them."""
        held, n = search.held, len(search.held.compiled)
        room = self.options.standard_errors * found.errors
        (u,) = held.functionals_of_shares(found.shares)
        convex = 0.5 * np.array([one.bound for one in self.problem.convex_bounds])
        most = np.append(limit_room(room[:n], held.compiled, u), convex)
        aimed = self.problem.leave_room(np.minimum(room, most))
        return replace(search, held=aimed.on(held.rows, held.factor, held.source))

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
        room = self.options.standard_errors * kept.errors
        if (kept.violations + room).max(initial=0.0) > FEASIBLE:
            return None
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


MetricMargin = Callable[[Any, Any], Array]
"""Scores rows of a table, given the scores that the user has them start from, or None."""


EvaluationProblem: TypeAlias = tuple[EvaluationRows, HeldOutProblem | None]
"""An evaluation set, and the metric and the constraints on it, bound before training.

There is no problem where a class has no rows in the set, or the metric is one of a further data
set or of amounts of the training rows: the metric then has no value.
"""


def bind_sets(
    problem: MetricProblem, sets: Sequence[EvaluationRows], sensitive_features: Any
) -> list[EvaluationProblem]:
    """Bind the metric and the constraints to evaluation sets.

    Parameters
    ----------
    problem : MetricProblem
        The problem of the training rows.
    sets : sequence of EvaluationRows
        The evaluation sets.
    sensitive_features : list, default=None
        Sensitive features of each set.

    Raises
    ------
    TypeError, ValueError
        If labels are unknown, or columns that a constraint groups by are missing.
    """
    check_sensitive_sets(sensitive_features, len(sets))
    columns = [None] * len(sets) if sensitive_features is None else sensitive_features
    classes = problem.data.classes
    is_of_rows = not any(one.data_sets or one.n_rows_held for one in problem.metric.constraints)
    found = []
    for given, of_set in zip(sets, columns, strict=True):
        name, X, y, weight, _ = given
        codes: Codes = encode(y, classes, name)
        weight = check_weight(weight, codes.size, f"sample weight of {name}")
        of_rows = columns_of(of_set, codes.size, f"sensitive features of {name}")
        rows = Rows(codes, classes, weight, of_rows, [X], remedy=OF_EVALUATION_SETS)
        has_value = is_of_rows and np.bincount(codes, weight, classes.size).all()
        found.append((given, problem.elsewhere(rows) if has_value else None))
    return found


def report_metric(
    estimator: Any,
    fit: MetricFit,
    result: MetricResult,
    margin: MetricMargin,
    of_training: Array,
    sets: Sequence[EvaluationProblem] = (),
) -> Feasibility:
    """Set the fitted attributes that report on the metric and the constraints.

    Parameters
    ----------
    estimator : classifier
        The classifier that is given the attributes.
    fit : MetricFit
        The fit.
    result : MetricResult
        The decision rules.
    margin : callable
        Scores, of the booster that decides, of the rows of a table.
    of_training : ndarray
        The same scores of the training rows.
    sets : sequence of EvaluationProblem, default=()
        The evaluation sets.
    """
    problem, loss, held = fit.problem, fit.problem.loss, result.held
    on_training = result.shares(of_training)
    estimator.metric_report_ = _tabulate_metric(fit, result, on_training, sets, margin)
    # The rules that decisions are drawn from.
    classes = problem.data.classes.tolist()
    records = []
    for rule, probability in zip(result.rules, result.chosen.probability, strict=True):
        weights = rule.class_weights
        weights = np.full(len(classes), np.nan) if weights is None else weights
        of_classes = {f"weight[{k}]": w for k, w in zip(classes, weights, strict=True)}
        records.append({"probability": probability, **of_classes})
    estimator.mixture_ = pd.DataFrame(records)
    # Calls of the oracle, which is inexact by labels: no bound holds then.
    exact = () if result.exact is None else result.exact.history
    steps = [*exact, *result.solution.history]
    is_exact = np.arange(len(steps)) < len(exact)
    bounds = np.array([loss.to_metric(step.bound) for step in steps])
    estimator.history_ = pd.DataFrame(
        {
            "call": np.arange(1, len(steps) + 1),
            "counted_by": ["probabilities" if exactly else "labels" for exactly in is_exact],
            "value": [loss.to_metric(step.value) for step in steps],
            "bound": np.where(is_exact, bounds, np.nan),
            "violation": [step.violation for step in steps],
            "seconds": [step.seconds for step in steps],
        }
    )
    # Rates on held-out rows: of the rules found, of candidates, and of decisions.
    of_oracle = [one for one in result.candidates if one.oracle == result.chosen.oracle]
    decided = {candidate.name: candidate.shares for candidate in of_oracle}
    decided["returned"] = result.chosen.shares
    pool = result.solution.pool * problem.units
    rates = np.vstack([pool, held.functionals_of_shares(*decided.values())])
    table = pd.DataFrame(rates, columns=held.compiled.functional_names)
    table.insert(0, "decisions", ["pool"] * len(pool) + [*decided])
    estimator.achieved_rates_ = table
    feasibility = _report_constraints(estimator, fit, result, on_training)
    periods = report_periods_of_metric(fit, result)
    if periods is not None:
        estimator.period_report_ = periods
        drift = drifting(periods)
        found = tuple(rule for rule in feasibility.rules if str(rule.constraint) in drift)
        feasibility = replace(feasibility, drifting=found)
    estimator.feasibility_ = feasibility
    estimator.stopping_message_ = fit.notifier.message
    return feasibility


def _tabulate_metric(
    fit: MetricFit,
    result: MetricResult,
    on_training: Float,
    sets: Sequence[EvaluationProblem],
    margin: MetricMargin,
) -> pd.DataFrame:
    """Tabulate the metric of each candidate on held-out rows, and of the one on each set."""
    problem, chosen, source = fit.problem, result.chosen, result.held.source
    everyone = problem.on(np.arange(len(problem.data.rows)))
    (u,) = everyone.functionals_of_shares(on_training)
    value = problem.metric.function(u[problem.loss.at])

    returned_as = (chosen.oracle, chosen.name)
    rows = []
    for one in result.candidates:
        is_returned = (one.oracle, one.name) == returned_as
        rows.append((chosen if is_returned else one, source, is_returned))
    for (name, X, _, _, start), held in sets:
        shares = result.shares(margin(X, start))
        found = Decisions(
            chosen.name, chosen.costs, chosen.probability, shares, oracle=chosen.oracle
        )
        # Otherwise a class or a group that the metric looks at has no rows.
        if held is not None and not np.isnan(held.compiled.constant[held.problem.loss.at]).any():
            nothing = held.oracle(np.empty((0, len(held.problem.joint))))
            (found,), _ = MetricSearch(held, nothing).assess([found])
        rows.append((found, name, True))
    table = pd.DataFrame(
        {
            "metric": str(problem.metric.metric),
            "oracle": one.oracle,
            "decisions": one.name,
            "held_out": one.value,
            "low": one.low,
            "high": one.high,
            "violation": one.violation,
            "n_rules": len(one.costs),
            "rows": of_rows,
            "is_returned": is_returned,
        }
        for one, of_rows, is_returned in rows
    )
    is_candidate = np.arange(len(rows)) < len(result.candidates)
    returned = table["is_returned"] & is_candidate
    table["train"] = np.where(returned, value, np.nan)
    if source == TRAINING_ROWS:
        table["train"] = np.where(returned, value, table["held_out"].where(is_candidate))
        table.loc[is_candidate, ["held_out", "low", "high"]] = np.nan
    bound = np.nan if result.exact is None else problem.loss.to_metric(result.exact.bound)
    mixed_value = chosen.value if np.isnan(chosen.mixed_value) else chosen.mixed_value
    table["bound"] = np.where(returned, bound, np.nan)
    table["mixture"] = np.where(returned, mixed_value, np.nan)
    return table


def _report_constraints(
    estimator: Any, fit: MetricFit, result: MetricResult, on_training: Float
) -> Feasibility:
    """Set the reports on the constraints, and assess each one."""
    problem, held, source = fit.problem, result.held, result.held.source
    constraints = fit.options.constraints
    cells, compiled = compile_constraints(constraints, problem.data.rows)
    held_cells = cells.take(held.rows, held.factor)
    held_compiled = compiled.on(held_cells)
    training = Outcome.of_counts(
        compiled, CellCounts.of_probabilities(cells, on_training), TRAINING_ROWS
    )
    counts = CellCounts.of_probabilities(held_cells, result.chosen.shares)
    outcome = Outcome.of_counts(held_compiled, counts, source)
    values = held_compiled.values(outcome.functionals)
    if result.chosen.is_chosen:
        # Which group is the worst of many depends on the rows that have chosen. The end on the
        # side of violations is then that of intervals which all hold at once, as the other is.
        outcome = replace(outcome, intervals=outcome.intervals.copy())
        for j, (constraint, span) in enumerate(zip(constraints, held_compiled.spans, strict=True)):
            level = level_of_all(constraint, span.stop - span.start, 0.95)
            end = 1 if constraint.sign > 0 else 0
            if level > 0.95:
                widened = constraint_intervals(held_compiled, counts, level)
                outcome.intervals[j, end] = widened[j, end]
    conflict = _find_conflict(held_cells, held_compiled, result, outcome)
    few = find_too_few_rows(
        held_cells, held_compiled, counts, outcome.functionals, outcome.intervals,
        outcome.of_functionals,
    )  # fmt: skip
    results = []
    for j, constraint in enumerate(constraints):
        estimate = Estimate(float(values[j]), *map(float, outcome.intervals[j]))
        doubt = next((rate.reason for rate in few if rate.constraint == constraint), "")
        found = assess_constraint(
            (held_cells, held_compiled), j, estimate, source, doubt=doubt, conflict=conflict
        )
        n_rows = rows_of_constraint(held_cells, held_compiled, j)
        results.append(replace(found, rows=n_rows))
    # The plain model: the class of the largest probability by boosters without multipliers.
    plain = None
    for one in result.candidates:
        if (one.oracle, one.name) == ("plug_in", "argmax"):
            of_cells = CellCounts.of_probabilities(held_cells, one.shares)
            rates = functionals_of(held_compiled, of_cells)
            plain = PlainModel(one.value, held_compiled.values(rates))
            break
    # The share of held-out rows that the decisions get right. Those of further data sets need not
    # have labels.
    inside = held.rows < problem.data.y.size
    labels = problem.data.y[held.rows[inside]]
    right = result.chosen.shares[inside][np.arange(labels.size), labels]
    weight = None if held.weight is None else held.weight[inside]
    accuracy = Estimate(float(np.average(right, weights=weight)), *UNKNOWN[1:])
    is_training = source == TRAINING_ROWS
    estimator.unseen_accuracy_ = UNKNOWN if is_training else accuracy
    feasibility = Feasibility(
        conflict, tuple(results), tuple(few), (), 1.0 - float(accuracy),
        None, np.nan, np.nan, source, len(held.rows),
        plain=plain, margin=fit.options.standard_errors,
    )  # fmt: skip
    if result.is_searched and problem.constraints:
        feasibility = _add_costs(fit, result, feasibility)
    if len(compiled) and source == "out of fold":
        # Rows that are never held out contradict no verdict.
        is_broken = find_training_violations(
            compiled, CellCounts.of_probabilities(cells, on_training)
        )
        is_broken &= np.isfinite(values) & (not conflict or compiled.is_satisfied(values))
        trained = compiled.values(training.functionals)
        feasibility = feasibility.add_training_evidence(trained, is_broken)
    set_reports(
        estimator, compiled, training.functionals, np.zeros(len(compiled)),
        None if is_training else outcome, feasibility,
        (str(problem.metric.metric), result.chosen.value), feasibility.plain,
    )  # fmt: skip
    estimator.small_groups_ = small_groups_frame(compiled)
    return feasibility


def _add_costs(fit: MetricFit, result: MetricResult, feasibility: Feasibility) -> Feasibility:
    """Add what the constraints cost, as a loss of the metric on the held-out rows.

    They should cost what decisions of each group by itself lose, on the scores of boosters that a
    fit without a metric grows, and elsewhere what the decisions lose that meet them in the
    distribution of the probabilities, if there are such decisions.
    """
    search, loss, held = result.search, fit.problem.loss, result.held
    own, n_rows = search.loss(result.chosen), len(held.rows)
    losses = {one.name: search.loss(one) for one in result.candidates[::-1]}
    unconstrained = min(losses.values())
    if result.exact is None:
        needed, decisions = own, "weights of the classes for each group"
        if own - unconstrained > MAX_EXCESS_ERROR:
            needed = search.measure_groups(result.chosen)
    else:
        needed, decisions = losses["model"], "the best decisions by their probabilities"
        if result.exact.status == "infeasible":
            needed = np.nan
    # The best constant decision that meets the constraints.
    constant, of_constant = None, np.nan
    for k, one in enumerate(1.0 - np.eye(fit.problem.joint.n_classes)):
        u = search.oracle.functionals(np.tile(one, (search.oracle.probabilities.shape[1], 1)))
        of_class, is_met = loss.value(u), held.violations(u).max(initial=0.0) <= FEASIBLE
        if is_met and not of_class >= of_constant:
            constant, of_constant = to_python_scalar(fit.problem.data.classes[k]), of_class
    name = str(fit.problem.metric.metric)
    cost = Cost(
        own, needed, unconstrained,
        (result.chosen.high - result.chosen.low) / (2 * 1.96) / loss.unit,
        rows=f"{n_rows:,} unseen rows ({held.source})",
        objective=f"objective (1 - {name})" if loss.sign < 0.0 else f"objective ({name})",
        decisions=decisions,
    )  # fmt: skip
    return replace(
        feasibility, constant_class=constant, constant_error=of_constant,
        free_error=unconstrained, cost=cost,
        is_fragile=is_hardly_better(own, of_constant, unconstrained, n_rows),
    )  # fmt: skip


def _find_conflict(
    cells: Cells, compiled: LinearConstraints, result: MetricResult, outcome: Outcome
) -> tuple[Constraint, ...]:
    """List the constraints that cannot be met together, as far as the rows show it.

    The decisions of least violation are those of one sample. So all constraints that they violate
    must be refuted beyond sampling error, by them and by the decisions that are returned.
    """
    if result.least is None:
        return ()
    counts = CellCounts.of_probabilities(cells, result.least)
    least = Outcome.of_counts(compiled, counts, result.held.source)
    of_least = ~compiled.is_satisfied(compiled.values(least.functionals))
    of_chosen = ~compiled.is_satisfied(compiled.values(outcome.functionals))
    violated = [compiled.constraints[j] for j in np.flatnonzero(of_least)]
    intervals = [*least.intervals[of_least], *outcome.intervals[of_least]]
    is_refuted = of_chosen[of_least].all() and not any(map(reaches, violated * 2, intervals))
    return tuple(violated) if is_refuted else ()


class MetricMixin:
    """What a classifier with ``maximize=`` or ``minimize=`` does."""

    # Only metrics that look at groups need them in ``score``, and the user says so.
    __metadata_request__score: ClassVar = {"sensitive_features": False}

    classes_: Any
    maximize: Any
    minimize: Any
    positive: Any
    probabilities: Any
    decision_scores: Any  # of the classifier's part for black-box metrics

    # Scores of the booster, of shape (n_samples,) or (n_samples, n_classes), given a table of rows
    # and, if ``predict`` takes any, the scores that they begin at.
    _raw_margin: Callable[..., Array]
    _cell_margin: Callable[[Any, bytes], Array]  # The same of joint cells, by the booster's bytes.

    def _decision_margin(self, X: Any, start: Any = None) -> Array:
        """Scores that decisions are made by."""
        return self._with_cells(X, self._raw_margin(X, start))

    def _with_cells(self, X: Any, margin: Array) -> Array:
        """Combine scores of the labels with those of the joint cells, if decisions need them."""
        rules = self.__dict__.get("_rules")
        if rules is None or rules["cell_model"] is None:
            return margin
        scores = CellScores(**rules["cell_scores"])
        return scores.combine(margin, self._cell_margin(X, rules["cell_model"]))

    def _fit_metric(
        self,
        adapter: NativeAdapter,
        rows: FitArguments,
        options: SolverOptions,
        *,
        sensitive_features_eval_set: Any = None,
        make_fit: Callable[[TimeLimit], ConstrainedFit] | None = None,
        constraint_callbacks: Any = None,
        time_limit: float | None = None,
        max_cost: float | None = None,
        checkpoint: Any = None,
    ) -> None:
        """Fit with a metric of the confusion matrix, or the error rate, as the objective.

        Parameters
        ----------
        adapter : NativeAdapter
            Drives the library.
        rows : FitArguments
            The rows that the user gave.
        options : SolverOptions
            The constructor's parameters.
        sensitive_features_eval_set : list, default=None
            Sensitive features of each evaluation set.
        make_fit : callable, default=None
            Makes the fit under the same constraints without a metric, within a time limit, whose
            fold boosters may be taken.
        constraint_callbacks, time_limit, max_cost, checkpoint
            As ``fit`` was given them: what is notified before each call of the oracle, seconds
            after which training and the search end, plain fits that boosters may take, and the
            file of finished boosters.
        """
        limit = TimeLimit(time_limit, max_cost)  # Its time begins here.
        fit = MetricFit(
            options, rows, adapter.settings(), are_log_odds=adapter.without_gradients() is None,
            callbacks=check_callbacks(constraint_callbacks), limit=limit,
        )  # fmt: skip
        notifier = fit.notifier
        adapter.check_rows(fit.problem.data.combined)
        sets = bind_sets(fit.problem, adapter.evaluation_rows(), sensitive_features_eval_set)
        constrained = None
        if make_fit is not None and fit.may_have_multipliers:
            constrained = make_fit(limit)
        else:
            data, compiled = fit.problem.data, fit.problem.compiled
            data.alignment.warn()
            arguments = {**adapter.given(), **rows.by_name()}
            arguments["sensitive_features_eval_set"] = sensitive_features_eval_set
            fit.checkpoint = open_checkpoint(
                checkpoint, self, arguments, data, compiled, fit.problem.cells
            )
        with unchanged_on_error(self):
            if constrained is not None:
                result, growth = fit.run_with_multipliers(constrained, adapter)
                train_like_folds(result, growth, adapter)
            else:
                result = fit.run(adapter)
                if result.label_model is None:
                    is_over = notifier.is_over if notifier.is_stopped else None
                    adapter.fit_plain(result.row_factor, is_over)
                    adapter.leave_out_rounds()
                else:
                    adapter.take(result.label_model)
            remove_report(self)
            self._rules = _as_dict(result)
            start = adapter.starting_scores()
            with warnings.catch_warnings():  # Training took the same kind of table silently.
                warnings.filterwarnings("ignore", "X does not have valid feature names")
                margin = self._decision_margin(fit.problem.data.combined.X, start)
                if constrained is not None:
                    result = transfer_decisions(result, growth, margin)
                result = fit.keep_promise(result, margin)
                self._rules = _as_dict(result)
                feasibility = report_metric(self, fit, result, self._decision_margin, margin, sets)
            self._fold(adapter, result)
            adapter.finish()
        if fit.checkpoint is not None:
            fit.checkpoint.remove()
        notifier.warn()
        if constrained is not None:
            constrained.notifier.warn()
        # A tenth of the standard error of a rate of 0.5 over 2,500 rows is no matter.
        exact = result.exact
        is_early = exact is not None and exact.status == "limit" and notifier.end_of_search is None
        if exact is not None and is_early and exact.value - exact.bound > 1e-3:
            gap = (exact.value - exact.bound) * fit.problem.loss.unit
            issue_warning(
                f"solver={fit.options.solver!r} ended before the optimum of "
                f"{fit.problem.metric.metric} was certain, {gap:.2g} above its bound: use "
                f"solver='columns', or 'auto'.",
                "GC120",
            )
        feasibility.warn(raises=fit.options.on_infeasible == "raise")

    def _fold(self, adapter: NativeAdapter, result: MetricResult) -> None:
        """Put one rule that is a shift of the scores into the model, or beside it."""
        n_columns = 1 if len(self.classes_) == 2 else len(self.classes_)
        self.shift_ = np.zeros(n_columns)
        rules = result.rules
        shift = rules[0].as_shift() if len(rules) == 1 and result.cell_model is None else None
        if shift is None:
            return
        del self._rules
        if np.abs(shift).max() < ROUNDING:
            shift = np.zeros(n_columns)
        self.shift_ = shift
        is_calibrated = getattr(self, "probabilities", "shifted") == "calibrated"
        if not adapter.can_fold():
            self._threshold = shift  # Also of zero: LightGBM decides nothing by its own scores
        elif shift.any() and not is_calibrated:  # under a callable objective.
            adapter.add_to_margin(shift)
        elif shift.any():
            self._threshold = shift

    def _decide_by_rules(self, X: Any, margins: Margins, random_state: Any) -> Codes:
        """Decide the class index of each row by the rules of the metric."""
        margin = self._with_cells(X, margins(0))
        mixture = Mixture(self._cost_rules, self._rules["probability"], random_state)
        return mixture.decide(lambda _: margin)

    @property
    def _cost_rules(self) -> tuple[CostRule, ...]:
        factors, scale = self._rules["factors"], self._rules["scale"]
        return tuple(CostRule(costs, factors, scale=scale) for costs in self._rules["costs"])

    def decision_probabilities(self, X: Any) -> Float:
        """Probability that ``predict`` decides each class.

        These are no probabilities of the labels: ``predict_proba`` stays that of the booster, of
        mixtures and of rules that are kept beside the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Zeros and ones unless the decisions are randomised.
        """
        n_classes, probability = len(self.classes_), np.ones(1)
        nothing = np.zeros(1 if n_classes == 2 else n_classes)
        rules: Sequence[Any] = [MarginShift(getattr(self, "_threshold", nothing))]
        if hasattr(self, "_rules"):
            rules, probability = self._cost_rules, self._rules["probability"]
        margin = self._decision_margin(X)
        decisions = [rule.decide(lambda _: margin) for rule in rules]
        return mixture_shares(decisions, probability, n_classes)

    def score(self, X: Any, y: Any, sample_weight: Any = None, **columns: Any) -> float:
        """Compute the metric that the classifier maximises or minimises, or the accuracy.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        **columns
            ``sensitive_features``, of a metric that looks at groups which are no columns of X.

        Returns
        -------
        float
            The larger, the better: a metric that is minimised has its sign changed. Of randomised
            decisions, the metric of their probabilities.
        """
        black_box = read_black_box(self.maximize, self.minimize)
        metric = None if black_box else read_objective(self.maximize, self.minimize)
        if metric is None and black_box is None:
            return float(super().score(X, y, sample_weight, **columns))  # type: ignore[misc]
        labels, classes = as_labels(y), np.asarray(self.classes_)
        sensitive = columns.get("sensitive_features")
        codes = encode_labels(labels, classes, "y holds", "the classes of the classifier")
        weight = check_weight(sample_weight, codes.size)
        rows = Rows(codes, classes, weight, columns_of(sensitive, codes.size), [X])
        if black_box is not None:
            scores = self.decision_scores(X, sensitive)
            value = black_box.bind(rows, labels).measure(scores)
            return value if black_box.called.is_maximized else -value
        assert metric is not None
        shares = self.decision_probabilities(X)
        value = MetricOnRows(metric, rows, self.positive).value(shares)
        return value if metric.greater_is_better else -value


def _as_dict(result: MetricResult) -> dict[str, Any]:
    """Collect the rules of a fitted classifier, as its file holds them."""
    return {
        "costs": result.chosen.costs,
        "probability": result.chosen.probability,
        "factors": result.factors,
        "scale": result.scale,
        "cell_model": result.cell_model,
        "cell_scores": None if result.cell_scores is None else dict(vars(result.cell_scores)),
    }
