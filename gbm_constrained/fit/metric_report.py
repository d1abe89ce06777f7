"""Classifiers whose objective is a metric, and what they report."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from gbm_constrained.data.validation import (
    as_labels,
    check_sensitive_sets,
    check_weight,
    columns_of,
)
from gbm_constrained.decision.choose import find_training_violations
from gbm_constrained.decision.evaluation_set import UNKNOWN, Estimate, Outcome, PlainModel
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
    drifting,
    encode_labels,
    measure_metric,
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
from gbm_constrained.fit.callbacks import TimeLimit, check_callbacks
from gbm_constrained.fit.checkpoint import open_checkpoint
from gbm_constrained.fit.finalize import report_periods_of_metric
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.fit.fitted_report import remove_report, set_reports
from gbm_constrained.fit.metric_fit import MetricFit, train_like_folds, transfer_decisions
from gbm_constrained.fit.metric_problem import HeldOutProblem, MetricProblem
from gbm_constrained.fit.metric_search import Decisions, MetricResult, MetricSearch
from gbm_constrained.fit.model_note import unchanged_on_error
from gbm_constrained.fit.native_models import EvaluationRows, NativeAdapter
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.metrics.reading import read_black_box, read_objective
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.reductions.mixtures import FEASIBLE
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.intervals import constraint_intervals, level_of_all

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
        plain=plain,
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
        constraint_callbacks, time_limit, checkpoint
            As ``fit`` was given them: what is notified before each call of the oracle, seconds
            after which training and the search end, and the file of finished boosters.
        """
        limit = TimeLimit(time_limit)  # Its time begins here.
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
        n_classes = len(self.classes_)
        if hasattr(self, "_rules"):
            margin = self._decision_margin(X)
            decisions = [rule.decide(lambda _: margin) for rule in self._cost_rules]
            return mixture_shares(decisions, self._rules["probability"], n_classes)
        margin = self._raw_margin(X)
        shift = getattr(self, "_threshold", np.zeros(1 if n_classes == 2 else n_classes))
        codes = MarginShift(shift).decide(lambda _: margin)
        return mixture_shares([codes], np.ones(1), n_classes)

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
        value = measure_metric(metric, rows, self.decision_probabilities(X), self.positive)
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
