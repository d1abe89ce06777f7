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

from dataclasses import dataclass, replace

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.cost_rule import CostRule, mixture_shares
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS
from gbm_constrained.metrics.base import Metric
from gbm_constrained.reductions.base import Solution
from gbm_constrained.training.held_out_boosters import FitPart, HeldOutBoosters, NativeModel
from gbm_constrained.training.metric_oracles import OracleSearch
from gbm_constrained.training.metric_problem import HeldOutProblem, MetricProblem
from gbm_constrained.training.metric_search import Decisions, MetricSearch
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.problem import MIN_ROWS_FOR_HOLDOUT, LibrarySettings

HOLDOUT_FRACTION = 0.25


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
    row_factor : ndarray of shape (n_samples,) or None
        Factor of the weight of each training row in the model of the labels; None for ones.
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
    row_factor: Float | None

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

    def run(self, fit_part: FitPart) -> MetricResult:
        """Find the decision rules.

        Parameters
        ----------
        fit_part : callable
            Trains the library's own model on some of the rows.
        """
        problem, options = self.problem, self.options
        boosters = self._boosters(fit_part)
        held = problem.on(boosters.rows)
        held.check(boosters.source)
        parts = boosters.parts
        search = MetricSearch(held, held.oracle(boosters.grow()), options.solver, parts)
        oracles = OracleSearch(search, boosters.grow, boosters.grow_part if parts else None)
        found = oracles.run(options.oracle)
        best = found[0]
        chosen = best.chosen
        mixed_value = chosen.value
        if len(chosen.costs) > 1 and options.deterministic is not False:
            single = best.search.single_rule(chosen, is_forced=bool(options.deterministic))
            if single is not None:
                assessed, _ = best.search.assess([single])
                chosen = replace(
                    assessed[0], low=chosen.low, high=chosen.high, oracle=chosen.oracle
                )
        is_weighted = best.oracle != "plug_in"
        weights = best.weights if is_weighted else None
        cell_model = boosters.train(weights) if boosters.is_joint else None
        is_of_labels = is_weighted and cell_model is None
        return MetricResult(
            held, boosters.source, [*best.candidates, *(one.chosen for one in found[1:])],
            chosen, mixed_value, best.solution, problem.loss.of_metric(best.exact.bound),
            cell_model, boosters.factors(weights),
            best.weights[problem.joint.codes] if is_of_labels else None,
        )  # fmt: skip

    def _boosters(self, fit_part: FitPart) -> HeldOutBoosters:
        """Decide which rows are held out."""
        problem = self.problem
        if self.options.measure_on != "train":
            folds = self._folds()
            source = "out of fold" if len(folds) > 1 else "holdout"
            return HeldOutBoosters(problem, self.X, fit_part, folds, source)
        if not self.has_few_parameters:
            issue_warning(
                f"measure_on='train' optimises {problem.metric.metric} on decisions about "
                f"rows that the trees have learned, and promises more than new rows give: use "
                f"'crossfit' or 'holdout'.",
                "GC118",
            )
        everyone = np.arange(len(problem.data.rows))
        return HeldOutBoosters(problem, self.X, fit_part, [everyone], TRAINING_ROWS)

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
