r"""A fit whose objective is a metric of the confusion matrix.

The boosters are the library's own. What is found is a decision rule on their probabilities
(Narasimhan et al., "Consistent Multiclass Algorithms for Complex Metrics and Constraints"):

1. Boosters of the folds score the rows that they have not seen.
2. A reduction finds the mixture of rules that optimises the metric there, under the constraints.
3. The library trains on all rows, and the rules decide by its scores.

Constraints and metrics that look at groups need the probability of each pair of label and group.
Boosters of that joint label are grown beside those of the label, so that prediction needs no
groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from gbm_constrained._dataframes import take_rows
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.cost_rule import CostRule, mixture_shares, probabilities_of
from gbm_constrained.decision.score_calibration import calibrate_scores
from gbm_constrained.metrics.base import Metric
from gbm_constrained.reductions.base import FEASIBLE, Solution
from gbm_constrained.reductions.solve import check_reduction
from gbm_constrained.training.metric_checks import (
    check_cells,
    check_folds,
    check_function,
    spread_margin,
)
from gbm_constrained.training.metric_problem import HeldOutProblem, MetricProblem, count_shares
from gbm_constrained.training.metric_search import Decisions, MetricSearch
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.problem import MIN_ROWS_FOR_HOLDOUT, LibrarySettings

HOLDOUT_FRACTION = 0.25


class NativeModel(Protocol):
    """A booster that the library has trained by its own means."""

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X; `rows` are their positions among the training rows."""

    def to_bytes(self) -> bytes:
        """Write the booster as the library does."""


FitPart = Callable[[Codes, Any, bool], NativeModel]
"""Given rows, the labels of all rows, and whether these are joint labels, trains a model."""
Merge = Callable[[Sequence[NativeModel]], NativeModel]
"""Merges models into one whose raw score is the mean of theirs."""


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
    cell_model : NativeModel or None
        Booster of the joint labels; None where the label's own booster decides.
    label_model : NativeModel or None
        Merged boosters of the labels; None where the library trains on all rows.
    factors : ndarray of shape (n_joint_cells,)
        Factor of each joint cell in the objective of the booster that decides.
    scale : float, default=1
        Factor by which its scores become log-odds.
    exact : Solution, default=None
        What the reduction found for the distribution that the probabilities describe.
    """

    held: HeldOutProblem
    source: str
    candidates: list[Decisions]
    chosen: Decisions
    mixed_value: float
    solution: Solution
    bound: float
    cell_model: NativeModel | None
    label_model: NativeModel | None
    factors: Float
    scale: float = 1.0
    exact: Solution | None = None

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


class Scored(NamedTuple):
    """Scores of rows by boosters.

    Parameters
    ----------
    source : str
        Name of the rows in reports.
    rows : ndarray of shape (n_rows,), intp
        Positions of the rows, in order.
    margin : ndarray
        Their scores.
    parts : list of ndarray of int
        Positions in `rows` of those of each booster; empty for a single one.
    """

    source: str
    rows: Codes
    margin: Array
    parts: list[Codes]


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
    """

    def __init__(
        self,
        options: SolverOptions,
        metric: Metric | None,
        arguments: FitArguments,
        library: LibrarySettings,
        *,
        are_log_odds: bool = True,
    ) -> None:
        self.problem = MetricProblem.of(options, metric, arguments, library)
        self.options = self.problem.options
        check_function(self.problem)
        check_reduction(self.problem.loss.kind, options.solver)
        self.X, self.y = arguments.X, self.problem.data.y
        self.are_log_odds = are_log_odds
        self.has_own_objective = metric is None
        self._is_train = self.options.measure_on == "train"
        self._scored: dict[bool, Scored] = {}
        self.fold_models: dict[bool, list[NativeModel]] = {False: [], True: []}

    def run(
        self,
        fit_part: FitPart,
        solver: str,
        *,
        is_single: bool | None = None,
        merge: Merge | None = None,
    ) -> MetricResult:
        """Find the decision rules.

        Parameters
        ----------
        fit_part : callable
            Trains the library's own model on some of the rows.
        solver : str
            Name of the reduction.
        is_single : bool, default=None
            Whether one rule is returned; by default, if it loses next to nothing.
        merge : callable, default=None
            Merges the boosters of the folds, which ``ensemble="folds"`` returns.
        """
        problem = self.problem
        is_joint = not problem.joint.are_labels
        if self.has_own_objective:
            own = self._keep_decisions(fit_part, merge)
            if own is not None:
                return own
        source, rows, margin, parts = self._score(fit_part, is_joint=is_joint)
        held = problem.on(rows)
        factors, scale = self._link(held, margin)
        probabilities = probabilities_of(margin, factors, scale)
        search = MetricSearch(held, held.oracle(probabilities), solver, parts)
        exact, rules = search.solve_by_probabilities()
        search.check_kind(exact)
        solution = search.solve(rules)
        baselines = search.baselines()
        if self.has_own_objective:
            baselines = []
        candidates, replicates = search.assess(
            [*baselines, search.by_probabilities(exact), search.optimum(solution, rules)]
        )
        chosen = candidates[search.choose(candidates, replicates)]
        mixed_value = chosen.value
        if len(chosen.costs) > 1 and is_single is not False:
            single = search.single_rule(chosen, is_forced=bool(is_single))
            if single is not None:
                assessed, _ = search.assess([single])
                chosen = replace(assessed[0], low=chosen.low, high=chosen.high)
        cell_model, label_model = self._final_models(fit_part, merge, is_joint=is_joint)
        return MetricResult(
            held, source, candidates, chosen, mixed_value, solution,
            problem.loss.of_metric(exact.bound), cell_model, label_model, factors, scale, exact,
        )  # fmt: skip

    def _link(self, held: HeldOutProblem, margin: Array) -> tuple[Float, float]:
        """Find factors of the joint cells and the scale by which scores become probabilities."""
        joint = self.problem.joint
        if not self.are_log_odds:
            return calibrate_scores(margin, joint.codes[held.rows], len(joint), held.weight)
        return self.problem.factors if joint.are_labels else np.ones(len(joint)), 1.0

    def _keep_decisions(self, fit_part: FitPart, merge: Merge | None) -> MetricResult | None:
        """Keep the decisions of the library's own boosters if they satisfy the constraints."""
        problem = self.problem
        source, rows, margin, _ = self._score(fit_part, is_joint=False)
        held = problem.on(rows)
        k = problem.factors.size
        costs = ((1.0 - np.eye(k)) * problem.factors[:, None])[None]
        decisions = CostRule(costs[0], problem.factors).decide(lambda _: margin)
        shares = mixture_shares([decisions], np.ones(1), k)
        counts = count_shares(problem.joint.codes[rows], shares, held.weight, len(problem.joint))
        u = held.functionals(counts[None])[0]
        if held.violations(u).max(initial=0.0) > FEASIBLE:
            return None
        search = MetricSearch(held, held.oracle(np.empty((0, len(problem.joint)))))
        (kept,), _ = search.assess([Decisions("argmax", costs, np.ones(1), shares)])
        value = problem.loss.value(u)
        solution = Solution(
            (costs[0],), np.ones(1), u, value, -np.inf, 0.0, "optimal", (), u[None]
        )
        _, label_model = self._final_models(fit_part, merge, is_joint=False)
        return MetricResult(
            held, source, [kept], kept, kept.value, solution,
            np.nan, None, label_model, problem.factors,
        )  # fmt: skip

    def _final_models(
        self, fit_part: FitPart, merge: Merge | None, *, is_joint: bool
    ) -> tuple[NativeModel | None, NativeModel | None]:
        """Make the booster of the joint labels, and that of the labels if it is merged."""
        everyone = np.arange(len(self.problem.data.rows))
        codes = self.problem.joint.codes
        if self.options.ensemble is None:
            return fit_part(everyone, codes, True) if is_joint else None, None
        assert merge is not None
        self._score(fit_part, is_joint=False)
        cell_model = merge(self.fold_models[True]) if is_joint else None
        return cell_model, merge(self.fold_models[False])

    def _score(self, fit_part: FitPart, *, is_joint: bool) -> Scored:
        """Score the rows that the metric is measured on, once for labels and for joint labels."""
        if is_joint not in self._scored:
            target = self.problem.joint.codes if is_joint else None
            of_rows = self._score_training if self._is_train else self._score_held_out
            self._scored[is_joint] = of_rows(fit_part, target, is_joint=is_joint)
        return self._scored[is_joint]

    def _score_training(self, fit_part: FitPart, target: Any, *, is_joint: bool) -> Scored:
        """Score the training rows by a booster of all of them."""
        everyone = np.arange(len(self.problem.data.rows))
        issue_warning(
            f"measure_on='train' optimises {self.problem.metric.metric} on decisions about rows "
            f"that the trees have learned, and promises more than new rows give: use "
            f"'crossfit' or 'holdout'.",
            "GC118",
        )
        margin = fit_part(everyone, target, is_joint).margin(self.X, everyone)
        return Scored("training rows", everyone, margin, [])

    def _score_held_out(self, fit_part: FitPart, target: Any, *, is_joint: bool) -> Scored:
        """Score rows by boosters that have not seen them."""
        folds = self._folds()
        source = "holdout" if len(folds) == 1 else "out of fold"
        check_folds(self.problem, folds, source)
        found: list[tuple[Codes, Array]] = []
        joint = self.problem.joint
        for held in folds:
            training = self._rest(held)
            if is_joint:  # A small cell may have no rows outside of one fold.
                known, codes = np.unique(joint.codes[training], return_inverse=True)
                target = np.zeros(len(joint.codes), dtype=np.intp)
                target[training] = codes
            model = fit_part(training, target, is_joint)
            margin = model.margin(take_rows(self.X, held), held)
            if is_joint:
                check_cells(self.problem, known)
                margin = spread_margin(margin, known, len(joint))
            found.append((held, margin))
            if self.options.ensemble is not None:
                self.fold_models[is_joint].append(model)
        rows = np.concatenate([held for held, _ in found])
        margin = np.concatenate([margin for _, margin in found])
        order = np.argsort(rows)
        rows, margin = rows[order], margin[order]
        if len(folds) == 1:
            return Scored(source, rows, margin, [])
        parts = [np.searchsorted(rows, held) for held in folds]
        return Scored(source, rows, margin, parts)

    def _rest(self, held: Codes) -> Codes:
        """List the rows that are not held out."""
        return np.setdiff1d(np.arange(len(self.problem.data.rows)), held, assume_unique=True)

    def _folds(self) -> list[Codes]:
        """Split the rows into parts that are held out, each by another booster."""
        problem, options = self.problem, self.options
        everyone = np.arange(len(problem.data.rows))
        is_holdout = options.measure_on == "holdout" or (
            options.measure_on == "auto" and not options.ensemble and self._has_many_rows
        )
        if is_holdout:
            share = options.holdout_fraction or HOLDOUT_FRACTION
            return problem.data.split(everyone, problem.cells, share)[:1]
        n = min(options.n_folds, everyone.size)
        return problem.data.split(everyone, problem.cells, 1.0 / n, n)

    @property
    def _has_many_rows(self) -> bool:
        """Whether every functional is taken over enough rows for a holdout."""
        sizes = [
            self.problem.cells.weighted_count[part.cells].sum()
            for parts in self.problem.compiled.parts
            for part in parts or ()
        ]
        return bool(min(sizes, default=0) >= MIN_ROWS_FOR_HOLDOUT)
