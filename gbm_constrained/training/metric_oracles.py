"""Oracles of a metric: rules on the probabilities of one booster, or boosters grown at its costs.

- ``"plug_in"``: boosters are grown once, and rules of decision are found on their probabilities.
- ``"refit"``: boosters are grown anew, with weights of classes (or of classes and groups) that are
  the costs of the plug-in optimum, and rules are found on their probabilities.
- ``"in_training"``: weights follow the multipliers of the reduction over several boosters, each of
  which is grown anew: the new weights are the geometric mean of the old ones and the costs of the
  rules that are best for the boosters of these. The weights of least loss are kept.
- ``"auto"``: the plug-in oracle, unless another is better on held-out rows by more than one
  standard error of the paired difference. The refit is tried where its booster of one fold is
  better by as much on the rows of that fold, and weights are updated where the refit is better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.decision.cost_rule import decide_by_costs, mixture_shares
from gbm_constrained.metrics.base import Metric
from gbm_constrained.reductions.base import FEASIBLE, Solution
from gbm_constrained.reductions.cost_sensitive import CostSensitive, Grow, mean_costs, weigh_cells
from gbm_constrained.training.metric_search import Decisions, MetricSearch
from gbm_constrained.training.options import OracleName

MAX_ROWS_OF_AUTO = 20_000
"""Rows beyond which "auto" tries no other oracle: boosters are then well calibrated, and grown at
a high price."""
N_UPDATES = 3  # Updates of the weights: seven eighths of the way to the costs of the optimum.
SHARE_OF_UPDATE = 0.5  # Share of the costs in the new weights.

GrowPart = Callable[[Float], tuple[Codes, Float]]
"""Given the weight of each joint cell, grows the booster of one fold, and returns the positions of
its rows among the held-out ones with their probabilities."""


def choose_oracle(oracle: OracleName, metric: Metric | None, *, takes_weights: bool) -> OracleName:
    """Check that boosters can be grown at weights, which "auto" does not ask for otherwise.

    Parameters
    ----------
    oracle : {"auto", "plug_in", "refit", "in_training"}
        The constructor's parameter.
    metric : Metric or None
        The objective; without one the library's own objective stands for the error rate.
    takes_weights : bool
        Whether the objective of the boosters takes weights of rows.

    Raises
    ------
    ValueError
        If the oracle needs weights.
    """
    if metric is None or (oracle == "auto" and not takes_weights):
        return "plug_in"
    if oracle in ("refit", "in_training") and not takes_weights:
        raise ValueError(
            f"oracle={oracle!r} grows boosters with weights of rows, and the function that was "
            f"given as objective takes none: give it a parameter for sample weights, or use "
            f"oracle='plug_in'."
        )
    return oracle


@dataclass(frozen=True, eq=False)
class OracleResult:
    """Decisions that were found with one oracle.

    Parameters
    ----------
    oracle : {"plug_in", "refit", "in_training"}
        Name of the oracle.
    search : MetricSearch
        The search for rules on the probabilities of its boosters.
    weights : ndarray of shape (n_joint_cells,)
        Weight of each joint cell in the objective of the boosters.
    exact, solution : Solution
        The optimum of the distribution that the probabilities describe, and that by counts.
    candidates : list of Decisions
        Rules without a search, and the optimised ones.
    chosen : Decisions
        The best of them.
    """

    oracle: OracleName
    search: MetricSearch
    weights: Float
    exact: Solution
    solution: Solution
    candidates: list[Decisions]
    chosen: Decisions


def search_decisions(oracle: OracleName, search: MetricSearch, weights: Float) -> OracleResult:
    """Find rules on the probabilities of boosters, and choose between them and simple rules."""
    exact, rules = search.solve_by_probabilities()
    search.check_kind(exact)
    solution = search.solve(rules)
    candidates, replicates = search.assess(
        [*search.baselines(), search.by_probabilities(exact), search.optimum(solution, rules)]
    )
    candidates = [replace(candidate, oracle=oracle) for candidate in candidates]
    chosen = candidates[search.choose(candidates, replicates)]
    return OracleResult(oracle, search, weights, exact, solution, candidates, chosen)


@dataclass(frozen=True, eq=False)
class OracleSearch:
    """Find decisions with one oracle, or with the best of several.

    Parameters
    ----------
    search : MetricSearch
        The search on the probabilities of boosters without weights.
    grow : callable
        Grows boosters at given weights.
    grow_part : callable, default=None
        Grows the booster of one fold; None where there is one booster only.
    has_time : callable, default=True
        Whether there is time for boosters of all folds at other weights.
    """

    search: MetricSearch
    grow: Grow
    grow_part: GrowPart | None = None
    has_time: Callable[[], bool] = lambda: True

    def run(self, oracle: OracleName) -> list[OracleResult]:
        """Find decisions.

        Parameters
        ----------
        oracle : {"auto", "plug_in", "refit", "in_training"}
            Name of the oracle.

        Returns
        -------
        list of OracleResult
            What was tried, the one to return first.
        """
        start = CostSensitive(
            self.search.oracle, self.grow, np.ones(len(self.search.oracle.joint))
        )
        plug_in = search_decisions("plug_in", self.search, start.weights)
        if oracle == "plug_in" or not self.has_time():
            return [plug_in]
        if oracle == "auto" and not self._is_promising(plug_in):
            return [plug_in]
        if oracle == "refit":
            return [self._refit(start, plug_in), plug_in]
        if oracle == "in_training":
            return [self._update_weights(start, plug_in), plug_in]
        refit = self._refit(start, plug_in)
        if not self._is_better(plug_in.chosen, refit.chosen):
            return [plug_in, refit]
        if not self.has_time():
            return [refit, plug_in]
        follower = self._update_weights(start, plug_in)
        if self._is_better(refit.chosen, follower.chosen):
            return [follower, refit, plug_in]
        return [refit, follower, plug_in]

    def _refit(self, start: CostSensitive, plug_in: OracleResult) -> OracleResult:
        """Grow boosters at the costs of the plug-in optimum."""
        return self._search_at("refit", start.grow_at(mean_costs(plug_in.exact)))

    def _update_weights(self, start: CostSensitive, plug_in: OracleResult) -> OracleResult:
        """Grow boosters whose weights follow the costs of the optimum."""
        found, boosters, last = [], start, plug_in
        for i in range(N_UPDATES):
            if i and not self.has_time():
                break
            boosters = boosters.grow_at(mean_costs(last.exact), SHARE_OF_UPDATE)
            last = self._search_at("in_training", boosters)
            found.append(last)
        loss = self.search.held.problem.loss
        return min(
            found,
            key=lambda one: (
                max(one.chosen.violation, FEASIBLE), loss.of_metric(one.chosen.value)
            ),
        )  # fmt: skip

    def _search_at(self, oracle: OracleName, boosters: CostSensitive) -> OracleResult:
        search = replace(self.search, oracle=boosters.oracle)
        return search_decisions(oracle, search, boosters.weights)

    def _is_better(self, base: Decisions, other: Decisions) -> bool:
        """Whether other decisions beat the base by more than one standard error."""
        return _is_better(self.search, base, other)

    def _is_promising(self, plug_in: OracleResult) -> bool:
        """Whether the booster of one fold is better at the costs of the plug-in optimum."""
        held = self.search.held
        if len(held.problem.data.rows) > MAX_ROWS_OF_AUTO:
            return False
        if self.grow_part is None:
            return True
        weights = weigh_cells(mean_costs(plug_in.exact), self.search.oracle.mass)
        part, probabilities = self.grow_part(weights)
        of_part = held.problem.on(held.rows[part])
        if np.isnan(of_part.compiled.constant[held.problem.loss.at]).any():
            return False
        oracle = self.search.oracle.take(part, of_part.coefficients)
        search = replace(self.search, held=of_part, oracle=oracle, parts=())
        chosen = plug_in.chosen
        base, other = (
            replace(chosen, shares=_decide(chosen, of_rows))
            for of_rows in (oracle.probabilities, probabilities)
        )
        return _is_better(search, base, other)


def _decide(rules: Decisions, probabilities: Float) -> Float:
    """Probability of each decision on rows of given probabilities."""
    decided = [decide_by_costs(probabilities, costs) for costs in rules.costs]
    return mixture_shares(decided, rules.probability, rules.costs.shape[2])


def _is_better(search: MetricSearch, base: Decisions, other: Decisions) -> bool:
    (base, other), replicates = search.assess([base, other])
    gain = -search.held.problem.loss.sign * (replicates[1] - replicates[0])
    is_feasible = other.violation <= max(base.violation, FEASIBLE)
    return bool(is_feasible and gain.mean() > gain.std())
