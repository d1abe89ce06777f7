"""Decisions of a metric on the scores of boosters that a fit without a metric grows.

Candidates are what that fit would decide, the class of the largest probability, that of the
largest probability divided by the share of the class, and optimised weights of the classes: under
the bounds, and under bounds that count as met within sampling error.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.decision.choose import choose
from gbm_constrained.decision.cost_rule import CostRule, mixture_shares, probabilities_of
from gbm_constrained.decision.group_thresholds import encode_groups
from gbm_constrained.decision.score_calibration import calibrate_scores
from gbm_constrained.reductions.base import FEASIBLE, Step
from gbm_constrained.reductions.plug_in import PlugIn
from gbm_constrained.training.metric_boosters import BoosterSet
from gbm_constrained.training.metric_problem import HeldOutProblem
from gbm_constrained.training.metric_search import Decisions, MetricSearch, Rules
from gbm_constrained.training.metric_weights import WeightSearch, costs_of_weights
from gbm_constrained.training.search_notifier import SearchWatch


@dataclass(frozen=True, eq=False)
class SetResult:
    """Decisions that were found on the scores of one set of boosters.

    Parameters
    ----------
    search : MetricSearch
        Measures decisions on these scores.
    candidates : list of Decisions
        The decisions, measured.
    factors : ndarray of shape (n_classes,)
        Factor of each class by which scores become probabilities.
    scale : float
        Factor by which scores become log-odds.
    steps : tuple of Step
        What the search for weights reached on the way.
    """

    search: MetricSearch
    candidates: list[Decisions]
    factors: Float
    scale: float
    steps: tuple[Step, ...]


def search_weights(
    boosters: BoosterSet,
    held: HeldOutProblem,
    parts: Sequence[Codes],
    watch: SearchWatch | None = None,
) -> SetResult:
    """Find decisions on the scores of one set of boosters, and measure them.

    Parameters
    ----------
    boosters : BoosterSet
        The boosters.
    held : HeldOutProblem
        The metric and the constraints on the rows that they hold out.
    parts : sequence of ndarray of int
        Positions of the held-out rows of each booster, if there are several.
    watch : SearchWatch, default=None
        Notifies callbacks, and may end the search.
    """
    problem, margin = held.problem, boosters.margin
    labels, k = problem.data.y[held.rows], problem.factors.size
    factors, scale = problem.factors, 1.0
    if boosters.grown[0].has_multipliers:  # Their scores are no log-odds of the labels.
        factors, scale = calibrate_scores(margin, labels, k, held.weight)
    oracle = held.oracle(probabilities_of(margin, factors, scale))
    search = MetricSearch(held, oracle, parts=parts, watch=watch)

    def decide(name: str, weights: Float) -> Decisions:
        return search.of_rules(name, costs_of_weights(weights)[None], np.ones(1))

    shift = np.append(0.0, boosters.shift) if k == 2 else boosters.shift
    of_default = np.exp(scale * (shift - shift.max()) + np.log(factors))
    default = decide("thresholds", of_default)
    shares = mixture_shares([boosters.decisions], np.ones(1), k)
    known = [replace(default, shares=shares, is_chosen=bool(boosters.shift.any()))]
    if not boosters.grown[0].has_multipliers:
        per_share = 1.0 / np.bincount(labels, held.weight, k)
        known += [decide("argmax", np.ones(k)), decide("prior", per_share)]
    known, _ = search.assess(known)
    found, steps = optimise_weights(search, known)
    candidates = [replace(one, oracle=boosters.oracle) for one in found]
    return SetResult(search, candidates, factors, scale, tuple(steps))


def optimise_weights(
    search: MetricSearch, known: list[Decisions]
) -> tuple[list[Decisions], list[Step]]:
    """Add optimised weights of the classes to decisions that are measured.

    Parameters
    ----------
    search : MetricSearch
        Measures decisions by the probabilities of the classes.
    known : list of Decisions
        Decisions of one rule each; the search begins at the best of those by weights.

    Returns
    -------
    candidates : list of Decisions
        All of them, measured.
    steps : list of Step
        What the search on all rows reached by each weight.
    """
    watch, loss = search.watch, search.held.problem.loss
    errors = known[0].errors
    # By all rows, since parts of them are drawn by their order.
    weighing = [one.costs[0] for one in known if is_by_weights(one)]
    u = np.array([search.oracle.functionals(costs) for costs in weighing])
    losses, violations = np.array([loss.value(one) for one in u]), search.held.violations(u)
    best = choose(losses, violations, errors, **search.criterion)
    start = weights_of(weighing[best])
    steps, begun = list[Step](), time.perf_counter()
    rooms = {"optimised": np.zeros_like(errors), "relaxed": errors}
    if not search.criterion["is_strict"].any():
        del rooms["relaxed"]
    found = []
    for name, room in rooms.items():

        def find(
            oracle: PlugIn, held: HeldOutProblem, room: Float = room, *, is_shown: bool = False
        ) -> Rules:
            notify = None
            if watch is not None:
                notify = watch.observe_decisions(loss.value, is_shown=is_shown)

            def observe(u: Float) -> bool:
                if is_shown:
                    worst = float(search.held.violations(u).max(initial=0.0))
                    seconds = time.perf_counter() - begun
                    steps.append(Step(loss.value(u), -np.inf, worst, seconds))
                return notify is not None and notify(u)

            of_rows = WeightSearch(held, oracle, search.criterion, observe)
            return costs_of_weights(of_rows.find(start, room)[0])[None], np.ones(1)

        whole = search.of_rules(name, *find(search.oracle, search.held, is_shown=True))
        found.append(search.cross_fit(whole, find))
    return [*known, *search.assess(found)[0]], steps


def is_by_weights(decisions: Decisions) -> bool:
    """Whether the class of the largest weighted probability is decided."""
    return CostRule(decisions.costs[0], np.ones(len(decisions.costs[0]))).class_weights is not None


def measure_groups(search: MetricSearch, chosen: Decisions) -> float:
    """Measure the loss of the best weights of each group that keep the constraints as well.

    Parameters
    ----------
    search : MetricSearch
        Measures decisions on the scores.
    chosen : Decisions
        Decisions to begin at, whose violations are allowed.

    Returns
    -------
    float
        NaN if none are found.
    """
    held, oracle = search.held, search.oracle
    groups = encode_groups(held.cells)
    of_rows = WeightSearch(held, oracle, search.criterion)
    allowed = np.maximum(chosen.violations, 0.0)
    weights = of_rows.find(weights_of(chosen.costs[0]), allowed, groups)
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    u = oracle.functionals_of(of_rows.decide(np.log(weights), members))
    violation = held.violations(u * held.problem.units).max(initial=0.0)
    is_kept = violation <= allowed.max(initial=0.0) + FEASIBLE
    return held.problem.loss.value(u) if is_kept else np.nan


def weights_of(costs: Float) -> Float:
    """Find the weights of the classes of a rule that has them."""
    weights = CostRule(costs, np.ones(len(costs))).class_weights
    assert weights is not None
    return weights
