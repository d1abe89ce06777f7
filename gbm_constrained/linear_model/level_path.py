"""From the parameters of a constrained AUC scorer to its saddle problem and its path of levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Float
from gbm_constrained.linear_model.pair_sets import PairSample, PairSets
from gbm_constrained.linear_model.score_functions import LinearScore, SigmoidNetwork
from gbm_constrained.solvers.level_set import (
    Level,
    LevelSchedule,
    LevelSetSearch,
    follow_levels,
    follow_proximal_points,
    shuffled_batches,
)
from gbm_constrained.solvers.square_dual import find_optimum
from gbm_constrained.solvers.square_surrogate import SquareSurrogate
from gbm_constrained.solvers.stochastic_mirror_descent import (
    DualGeometry,
    Primal,
    SaddleProblem,
    StepSizes,
)

MAX_GAP = 0.05  # Gap to the optimum, a tenth of the objective of equal scores, that is named.


def unit_of(parameters: Any) -> float:
    """Find what the objective and the limits are divided by, ``2 c1 c2^2``.

    Scores divided by c2 turn the surrogate into the one of ``c1 = 1/2`` and ``c2 = 1``, times this
    number. Step sizes and the interval of the scalars are for that one.
    """
    return float(2 * parameters.c1 * parameters.c2**2)


def make_problem(
    parameters: Any,
    sets: PairSets,
    rows: PairSample,
    random_state: np.random.RandomState,
) -> tuple[SaddleProblem, Primal]:
    """Make the saddle problem of some parameters, and its starting point: equal scores.

    Parameters
    ----------
    parameters : ConstrainedAUCScorer
        Parameters of the scorer.
    sets : PairSets
        Constraints, as rules over sets of rows.
    rows : PairSample
        Rows that features are standardised by.
    random_state : RandomState
        Source of a network's first weights.
    """
    rules, n_sets = sets.rules(parameters.slack), sets.sets.shape[1]
    surrogate = SquareSurrogate.of(rules, n_sets)
    surrogate = replace(surrogate, limits=surrogate.limits / unit_of(parameters))
    hidden, X, weight = parameters.hidden, rows.X, rows.weight
    score = SigmoidNetwork.of(X, hidden, weight) if hidden else LinearScore.of(X, weight)
    start = Primal(score.start(random_state), np.zeros(2 * surrogate.n_pairs))
    scale = score.mean_squared_gradient(start.parameters, X)
    steps = StepSizes(
        parameters.learning_rate,
        parameters.dual_learning_rate,
        scale if scale > 0 else 1.0,
        parameters.batch_size,
    )
    geometry = DualGeometry(surrogate.owner, surrogate.n_functions, parameters.interval)
    proximal_weight = parameters.proximal_weight if hidden else 0.0
    return SaddleProblem(surrogate, score, geometry, steps, proximal_weight), start


def make_search(parameters: Any, problem: SaddleProblem, start: Primal) -> LevelSetSearch:
    """Make a search from the first level, by default that of equal scores, ``c1 * c2**2``."""
    level = _first_level(parameters)
    schedule = _make_schedule(parameters)
    return LevelSetSearch(problem, schedule, start, 0.5 if level is None else level)


def follow_path(
    parameters: Any,
    problem: SaddleProblem,
    start: Primal,
    rows: tuple[Array, Float],
    random_state: np.random.RandomState,
) -> Iterator[Level]:
    """Yield the levels of a fit to rows in memory, given by their features and density ratios."""
    X, ratios = rows
    if parameters.solver == "exact":
        yield _solve_exactly(problem, X, ratios)
        return
    batches = shuffled_batches(X.shape[0], parameters.batch_size, random_state)
    if parameters.hidden:
        schedule, n_points = _make_schedule(parameters), parameters.n_proximal_points
        level = _first_level(parameters)
        yield from follow_proximal_points(problem, schedule, start, n_points, rows, batches, level)
    else:
        yield from follow_levels(make_search(parameters, problem, start), X, ratios, batches)


def _make_schedule(parameters: Any) -> LevelSchedule:
    return LevelSchedule(
        parameters.n_steps * parameters.batch_size,
        parameters.batch_size,
        parameters.theta,
        parameters.tol,
        parameters.max_levels,
        parameters.relative_tol,
    )


def _first_level(parameters: Any) -> float | None:
    level = parameters.first_level
    return None if level is None else level / unit_of(parameters)


def _solve_exactly(problem: SaddleProblem, X: Array, ratios: Float) -> Level:
    """Solve the surrogate problem of a linear score, as a search of one level."""
    surrogate, score = problem.surrogate, problem.score
    assert isinstance(score, LinearScore)
    found = find_optimum(surrogate, score.features.divide(X), ratios)
    share = np.append(1.0, found.multipliers) / (1.0 + found.multipliers.sum())
    moments = surrogate.moments(score.scores(found.weights, X), ratios)
    best = surrogate.best_scalars(moments)
    point = Primal(found.weights, np.concatenate([best.a, best.b]))
    return Level(0, float(found.values[0]), 0.0, point, share, X.shape[0], np.nan)


def warn_of_no_progress(
    parameters: Any,
    problem: SaddleProblem,
    levels: Sequence[Level],
    rows: tuple[Any, Float],
) -> None:
    """Warn of a search that ended at its first level, far from the optimum of a linear score."""
    if parameters.solver == "exact" or len(levels) > 1 or parameters.max_levels == 1:
        return
    if not isinstance(problem.score, LinearScore):
        return
    surrogate = problem.surrogate
    scores = problem.score.scores(levels[0].point.parameters, rows[0])
    values = surrogate.values(surrogate.moments(scores, rows[1]))
    if (values > surrogate.limits)[1:].any():  # The constraints are missed, which is named.
        return
    reached, least = values[0], _solve_exactly(problem, *rows).level
    if reached - least > MAX_GAP:
        unit = unit_of(parameters)
        issue_warning(
            f"The level-set search made no progress: its one level has a surrogate objective of "
            f"{reached * unit:.3g}, and the optimum is {least * unit:.3g}. Use solver='exact', "
            f"more n_steps or a smaller tol.",
            "GC304",
        )
