"""From the parameters of a constrained AUC scorer to its saddle problem and its path of levels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.linear_model.pair_sets import PairSets
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


def make_problem(
    parameters: Any,
    sets: PairSets,
    X: Array,
    random_state: np.random.RandomState,
) -> tuple[SaddleProblem, Primal]:
    """Make the saddle problem of some parameters, and its starting point: equal scores.

    Parameters
    ----------
    parameters : ConstrainedAUCScorer
        Parameters of the scorer.
    sets : PairSets
        Constraints, as rules over sets of rows.
    X : ndarray of shape (n_samples, n_features)
        Rows that features are centred by.
    random_state : RandomState
        Source of a network's first weights.
    """
    rules, n_sets = sets.rules(parameters.slack), sets.sets.shape[1]
    surrogate = SquareSurrogate.of(rules, n_sets, parameters.c1, parameters.c2)
    hidden = parameters.hidden
    score = SigmoidNetwork.of(X, hidden) if hidden else LinearScore.of(X)
    start = Primal(score.start(random_state), np.zeros(2 * surrogate.n_pairs))
    scale = score.mean_squared_gradient(start.parameters, X)
    steps = StepSizes(
        parameters.learning_rate,
        parameters.dual_learning_rate,
        scale if scale > 0 else 1.0,
        parameters.batch_size,
    )
    geometry = DualGeometry(surrogate.owner, surrogate.n_functions, parameters.interval)
    weight = parameters.proximal_weight if hidden else 0.0
    return SaddleProblem(surrogate, score, geometry, steps, weight), start


def make_search(parameters: Any, problem: SaddleProblem, start: Primal) -> LevelSetSearch:
    """Make a search from the level of equal scores, ``c1 * c2**2``."""
    level = parameters.c1 * parameters.c2**2
    return LevelSetSearch(problem, _make_schedule(parameters), start, level)


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
    batches = shuffled_batches(len(X), parameters.batch_size, random_state)
    if parameters.hidden:
        schedule, n_points = _make_schedule(parameters), parameters.n_proximal_points
        yield from follow_proximal_points(problem, schedule, start, n_points, rows, batches)
    else:
        yield from follow_levels(make_search(parameters, problem, start), X, ratios, batches)


def _make_schedule(parameters: Any) -> LevelSchedule:
    return LevelSchedule(
        parameters.n_steps * parameters.batch_size,
        parameters.batch_size,
        parameters.theta,
        parameters.tol,
        parameters.max_levels,
    )


def _solve_exactly(problem: SaddleProblem, X: Array, ratios: Float) -> Level:
    """Solve the surrogate problem of a linear score, as a search of one level."""
    surrogate = problem.surrogate
    found = find_optimum(surrogate, X, ratios)
    share = np.append(1.0, found.multipliers) / (1.0 + found.multipliers.sum())
    moments = surrogate.moments(problem.score.scores(found.weights, X), ratios)
    best = surrogate.best_scalars(moments)
    point = Primal(found.weights, np.concatenate([best.a, best.b]))
    return Level(0, float(found.values[0]), 0.0, point, share, len(X))
