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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gbm_constrained._dataframes import take_rows
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.cost_rule import CostRule, mixture_shares, probabilities_of
from gbm_constrained.metrics.base import Metric
from gbm_constrained.reductions.base import Solution
from gbm_constrained.training.metric_problem import HeldOutProblem, MetricProblem
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
    factors : ndarray of shape (n_joint_cells,)
        Factor of each joint cell in the objective of the booster that decides.
    """

    held: HeldOutProblem
    source: str
    candidates: list[Decisions]
    chosen: Decisions
    mixed_value: float
    solution: Solution
    bound: float
    cell_model: NativeModel | None
    factors: Float

    @property
    def rules(self) -> tuple[CostRule, ...]:
        """The rules that are returned."""
        return tuple(CostRule(costs, self.factors) for costs in self.chosen.costs)

    def shares(self, margin: Array) -> Float:
        """Probability of each decision, given scores of the booster that decides."""
        decisions = [rule.decide(lambda _: margin) for rule in self.rules]
        return mixture_shares(decisions, self.chosen.probability, self.chosen.costs.shape[2])


class MetricFit:
    """A fit whose objective is a metric of the confusion matrix.

    Parameters
    ----------
    options : SolverOptions
        The constructor's parameters.
    metric : Metric
        The objective.
    arguments : FitArguments
        The rows that the user gave.
    library : LibrarySettings
        What the library says of its fit.
    """

    def __init__(
        self,
        options: SolverOptions,
        metric: Metric,
        arguments: FitArguments,
        library: LibrarySettings,
    ) -> None:
        self.problem = MetricProblem.of(options, metric, arguments, library)
        self.options = self.problem.options
        self.X, self.y = arguments.X, self.problem.data.y
        self.has_few_parameters = library.has_few_parameters

    def run(
        self, fit_part: FitPart, solver: str, *, is_single: bool | None = None
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
        """
        problem = self.problem
        everyone = np.arange(len(problem.data.rows))
        is_joint = not problem.joint.are_labels
        target = problem.joint.codes if is_joint else None
        factors = np.ones(len(problem.joint)) if is_joint else problem.factors
        cell_model: NativeModel | None = None
        parts: list[Codes] = []
        if self.options.measure_on == "train":
            source, rows = "training rows", everyone
            model = fit_part(everyone, target, is_joint)
            margin = model.margin(self.X, everyone)
            cell_model = model if is_joint else None
            if not self.has_few_parameters:
                issue_warning(
                    f"measure_on='train' optimises {problem.metric.metric} on decisions about "
                    f"rows that the trees have learned, and promises more than new rows give: use "
                    f"'crossfit' or 'holdout'.",
                    "GC118",
                )
        else:
            source, rows, margin, parts = self._score_held_out(fit_part, target, is_joint)
        held = problem.on(rows)
        held.check(source)
        probabilities = probabilities_of(margin, factors)
        search = MetricSearch(held, held.oracle(probabilities), solver, parts)
        exact, rules = search.solve_by_probabilities()
        search.check_kind(exact)
        solution = search.solve(rules)
        candidates, replicates = search.assess(
            [
                *search.baselines(),
                search.by_probabilities(exact),
                search.optimum(solution, rules),
            ]
        )
        chosen = candidates[search.choose(candidates, replicates)]
        mixed_value = chosen.value
        if len(chosen.costs) > 1 and is_single is not False:
            single = search.single_rule(chosen, is_forced=bool(is_single))
            if single is not None:
                assessed, _ = search.assess([single])
                chosen = replace(assessed[0], low=chosen.low, high=chosen.high)
        if is_joint and cell_model is None:
            cell_model = fit_part(everyone, target, True)
        return MetricResult(
            held, source, candidates, chosen, mixed_value, solution,
            problem.loss.of_metric(exact.bound), cell_model, factors,
        )  # fmt: skip

    def _score_held_out(
        self, fit_part: FitPart, target: Any, is_joint: bool
    ) -> tuple[str, Codes, Array, list[Codes]]:
        """Score rows by boosters that have not seen them.

        Returns
        -------
        source : str
            Name of the rows in reports.
        rows : ndarray of shape (n_rows,), intp
            Positions of the rows, in order.
        margin : ndarray
            Their scores.
        parts : list of ndarray of int
            Positions in `rows` of those of each booster; empty for a single one.
        """
        folds = self._folds()
        found: list[tuple[Codes, Array]] = []
        everyone = np.arange(len(self.problem.data.rows))
        for held in folds:
            training = np.setdiff1d(everyone, held, assume_unique=True)
            model = fit_part(training, target, is_joint)
            found.append((held, model.margin(take_rows(self.X, held), held)))
        rows = np.concatenate([held for held, _ in found])
        margin = np.concatenate([margin for _, margin in found])
        order = np.argsort(rows)
        rows, margin = rows[order], margin[order]
        if len(folds) == 1:
            return "holdout", rows, margin, []
        return "out of fold", rows, margin, [np.searchsorted(rows, held) for held in folds]

    def _folds(self) -> list[Codes]:
        """Split the rows into parts that are held out, each by another booster."""
        problem, options = self.problem, self.options
        everyone = np.arange(len(problem.data.rows))
        is_holdout = options.measure_on == "holdout" or (
            options.measure_on == "auto" and self._has_many_rows
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
