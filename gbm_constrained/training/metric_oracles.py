"""Oracles of a metric: rules on the probabilities of one booster, or boosters grown at its costs.

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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.metrics.base import Metric
from gbm_constrained.reductions.base import FEASIBLE, Solution
from gbm_constrained.reductions.cost_sensitive import (
    CostSensitive,
    mean_costs,
    move_weights,
)
from gbm_constrained.training.held_out_boosters import Move
from gbm_constrained.training.metric_search import Decisions, MetricSearch
from gbm_constrained.training.metric_sets_search import optimise_weights
from gbm_constrained.training.options import OracleName
from gbm_constrained.training.problem import LibrarySettings

MAX_ROWS_OF_AUTO = 20_000
"""Rows beyond which "auto" tries no other oracle: boosters are then well calibrated, and grown at
a high price. Of rows that count for amounts, few may hold most of the value."""
N_STAGES = 3
"""Stages of training. More of them find no better decisions, and each takes time to begin."""
SHARE_OF_COSTS = 0.75  # In the weights of the next stage: those of the last are 15/16 costs.
MAX_CALLS_OF_STAGE = 20
"""Calls of the plug-in oracle after a stage: weights need costs to a few digits."""


class Boosters(Protocol):
    """Boosters that are grown at weights of the joint cells, and score held-out rows."""

    def grow(self, weights: Float | None = None) -> Float:
        """Grow boosters and compute the held-out probabilities of the joint cells."""

    def grow_in_step(self, n_stages: int, move: Move) -> tuple[Float, Float]:
        """Grow boosters in stages; return the weights of each, and the probabilities at last."""


def choose_oracle(
    oracle: OracleName, metric: Metric | None, library: LibrarySettings
) -> OracleName:
    """Check that boosters can be grown at weights, which "auto" does not ask for otherwise.

    Parameters
    ----------
    oracle : {"auto", "plug_in", "refit", "in_training"}
        The constructor's parameter.
    metric : Metric or None
        The objective; without one the library's own objective stands for the error rate.
    library : LibrarySettings
        What the library says of its fit.

    Raises
    ------
    ValueError
        If the oracle needs weights, or stages, that the fit has not.
    """
    if metric is None or (oracle == "auto" and not library.takes_weights):
        return "plug_in"
    if oracle in ("refit", "in_training") and not library.takes_weights:
        raise ValueError(
            f"oracle={oracle!r} grows boosters with weights of rows, and the function that was "
            f"given as objective takes none: give it a parameter for sample weights, or use "
            f"oracle='plug_in'."
        )
    if oracle == "in_training" and library.without_stages is not None:
        raise ValueError(
            f"oracle='in_training' grows a model in stages, in which its rows have other weights, "
            f"and {library.without_stages} does not allow it: use oracle='refit' or 'plug_in'."
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
    weights : ndarray of shape (n_joint_cells,) or (n_stages, n_joint_cells), or None
        Weight of each joint cell in the objective of the boosters; None stands for ones.
    exact, solution : Solution
        The optimum of the distribution that the probabilities describe, and that by counts.
    candidates : list of Decisions
        Rules without a search, and the optimised ones.
    chosen : Decisions
        The best of them.
    """

    oracle: OracleName
    search: MetricSearch
    weights: Float | None
    exact: Solution
    solution: Solution
    candidates: list[Decisions]
    chosen: Decisions


def search_decisions(
    oracle: OracleName, search: MetricSearch, weights: Float | None = None
) -> OracleResult:
    """Find rules on the probabilities of boosters, and choose between them and simple rules."""
    exact, rules = search.solve_by_probabilities()
    search.check_kind(exact)
    simple = search.baselines()
    # Each search knows the rules without one, so that what it finds is no worse on its rows.
    rules += [costs for decisions in simple for costs in decisions.costs]
    if search.weighs_classes and search.binds(rules):
        return _search_weights(oracle, search, weights, exact, simple)
    solution = search.solve(rules)
    candidates, _ = search.assess(
        [*simple, search.by_probabilities(exact), search.optimum("optimised", solution, rules)]
    )
    if search.is_bound(solution):
        room = solution.violation + candidates[-1].errors
        relaxed = search.solve(rules, room=room)
        candidates += search.assess([search.optimum("relaxed", relaxed, rules, room)])[0]
    candidates = [replace(candidate, oracle=oracle) for candidate in candidates]
    if search.deterministic:
        candidates = [search.as_single(one, is_forced=True) for one in candidates]
    chosen = candidates[search.choose(candidates)]
    if search.deterministic is None:
        chosen = search.as_single(chosen, is_forced=False)
    return OracleResult(oracle, search, weights, exact, solution, candidates, chosen)


def _search_weights(
    oracle: OracleName,
    search: MetricSearch,
    weights: Float | None,
    exact: Solution,
    simple: list[Decisions],
) -> OracleResult:
    """Find weights of the classes, beginning at the best of other decisions."""
    known, _ = search.assess([*simple, search.by_probabilities(exact)])
    known = [search.as_single(one, is_forced=True) for one in known]
    found, steps = optimise_weights(search, known)
    candidates = [replace(one, oracle=oracle) for one in found]
    chosen = candidates[search.choose(candidates)]
    least = min(candidates, key=lambda one: one.violation)
    if least.violation > FEASIBLE:
        solution = replace(search.solution_of(least), status="infeasible")
    else:
        best = next(one for one in candidates if one.name == "optimised")
        whole = search.of_rules("optimised", best.costs, best.probability)
        solution = search.solution_of(search.assess([whole])[0][0])
    solution = replace(solution, history=tuple(steps))
    return OracleResult(oracle, search, weights, exact, solution, candidates, chosen)


@dataclass(frozen=True, eq=False)
class OracleSearch:
    """Find decisions with one oracle, or with the best of several.

    Parameters
    ----------
    search : MetricSearch
        A search on the held-out rows, whose probabilities are replaced by those of boosters.
    boosters : Boosters
        Grows boosters at given weights.
    has_stages : bool
        Whether boosters can be grown in stages.
    has_time : callable, default=True
        Whether there is time for boosters of all folds at other weights.
    """

    search: MetricSearch
    boosters: Boosters
    has_stages: bool
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
        if oracle == "in_training":
            return [self._grow_in_training()]
        plug_in = search_decisions("plug_in", self._search_on(self.boosters.grow()))
        problem = self.search.held.problem
        is_calibrated = len(problem.data.rows) > MAX_ROWS_OF_AUTO
        has_many = is_calibrated and problem.relative_amounts is None
        if oracle == "plug_in" or (oracle == "auto" and has_many) or not self.has_time():
            return [plug_in]
        if oracle == "refit":
            return [self._refit(plug_in), plug_in]
        other = self._grow_in_training() if self.has_stages else self._refit(plug_in)
        is_better = _is_better(plug_in.search, plug_in.chosen, other.chosen)
        return [other, plug_in] if is_better else [plug_in, other]

    def _search_on(self, probabilities: Float) -> MetricSearch:
        """Make the search on the probabilities of boosters."""
        oracle = replace(self.search.oracle, probabilities=probabilities)
        return replace(self.search, oracle=oracle)

    def _refit(self, plug_in: OracleResult) -> OracleResult:
        """Grow boosters at the costs of the plug-in optimum."""
        start = plug_in.search.oracle
        plain = CostSensitive(start, self.boosters.grow, np.ones(len(start.joint)))
        refit = plain.grow_at(mean_costs(plug_in.exact))
        search = replace(self.search, oracle=refit.oracle)
        return search_decisions("refit", search, refit.weights)

    def _grow_in_training(self) -> OracleResult:
        """Grow boosters whose weights follow the costs of the optimum."""
        mass = self.search.oracle.mass

        def move(weights: Float, probabilities: Float) -> Float:
            search = self._search_on(probabilities)
            # Nobody watches: what would end this search would end the one for decisions.
            search = replace(search, max_calls=MAX_CALLS_OF_STAGE, watch=None)
            found, _ = search.solve_by_probabilities()
            return move_weights(weights, mean_costs(found), mass, SHARE_OF_COSTS)

        weights, probabilities = self.boosters.grow_in_step(N_STAGES, move)
        return search_decisions("in_training", self._search_on(probabilities), weights)


def _is_better(search: MetricSearch, base: Decisions, other: Decisions) -> bool:
    """Whether other decisions beat the base by more than one standard error."""
    (base, other), replicates = search.assess([base, other])
    gain = -search.held.problem.loss.sign * (replicates[1] - replicates[0])
    is_feasible = other.violation <= max(base.violation, FEASIBLE)
    return bool(is_feasible and gain.mean() > gain.std())
