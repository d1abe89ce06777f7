"""The level-set method: levels, feasible iterates, and the exact optimum."""

from __future__ import annotations

import numpy as np
import pytest
from pair_problems import N_SETS, PairProblem, members_of, rules_of

from gbm_constrained.linear_model.auc_scorer import LinearScore, SigmoidNetwork
from gbm_constrained.solvers.level_set import (
    DualGeometry,
    LevelSchedule,
    LevelSetSearch,
    Primal,
    SaddleProblem,
    SquareSurrogate,
    density_ratios,
    find_optimum,
    follow_levels,
    follow_proximal_points,
    shuffled_batches,
)

N, BATCH = 500, 100


def make_saddle(problem, rules, score, learning_rate=0.5, proximal_weight=0.0):
    surrogate = SquareSurrogate.of(rules, N_SETS)
    geometry = DualGeometry(surrogate.owner, surrogate.n_functions, 3.0)
    start = Primal(score.start(np.random.RandomState(0)), np.zeros(2 * surrogate.n_pairs))
    scale = score.mean_squared_gradient(start.parameters, problem.X)
    steps = learning_rate, 2.0, scale, BATCH
    return SaddleProblem(surrogate, score, geometry, *steps, proximal_weight), start


def evaluate(saddle, problem, level):
    scores = saddle.score.scores(level.point.parameters, problem.X)
    values = saddle.surrogate.values(saddle.surrogate.moments(scores, problem.ratios))
    return values - saddle.surrogate.limits


@pytest.mark.parametrize(
    ("metric", "theta"), [("group AUC", 2.0), ("inter-group", 1.0), ("BPSN - BNSP", 1.0)]
)
def test_levels_fall_to_the_optimum_by_feasible_iterates(metric, theta):
    problem = PairProblem(1, n=N)
    saddle, start = make_saddle(problem, rules_of(metric, 0.1), LinearScore.of(problem.X))
    schedule = LevelSchedule(40_000, BATCH, theta, tol=3e-3, max_levels=40)
    search = LevelSetSearch(saddle, schedule, start, 0.5)
    batches = shuffled_batches(N, BATCH, np.random.RandomState(0))
    levels = list(follow_levels(search, problem.X, problem.ratios, batches))
    exact = find_optimum(saddle.surrogate, problem.X, problem.ratios)
    values = np.array([evaluate(saddle, problem, level) for level in levels])
    assert (values[:, 1:] <= 0).all()  # The method is feasible.
    r = np.array([level.level for level in levels])
    assert (np.diff(r) < 0).all()
    moves = [level.upper_bound / (2 * theta) for level in levels[:-1]]
    np.testing.assert_allclose(np.diff(r), moves, rtol=1e-9)
    assert levels[-1].upper_bound >= -3e-3
    assert exact.values[0] <= values[-1, 0] <= 1.03 * exact.values[0]
    np.testing.assert_allclose(levels[-1].multipliers, exact.multipliers, atol=0.15)


def test_the_number_of_levels_has_an_end():
    problem = PairProblem(2, n=N)
    saddle, start = make_saddle(problem, rules_of("group AUC", 0.1), LinearScore.of(problem.X))
    schedule = LevelSchedule(2_000, BATCH, 2.0, 0.0, max_levels=3)
    search = LevelSetSearch(saddle, schedule, start, 0.5)
    batches = shuffled_batches(N, BATCH, np.random.RandomState(0))
    levels = list(follow_levels(search, problem.X, problem.ratios, batches))
    assert [level.number for level in levels] == [0, 1, 2]
    assert [level.n_rows for level in levels] == [2_000, 4_000, 6_000]
    assert search.is_over


def test_steps_that_are_too_long_are_refused_by_name():
    problem = PairProblem(3, n=N)
    saddle, start = make_saddle(
        problem, rules_of("group AUC", 0.1), LinearScore.of(problem.X), learning_rate=1e6
    )
    search = LevelSetSearch(saddle, LevelSchedule(4_000, BATCH, 2.0, 1e-3, 3), start, 0.5)
    batches = shuffled_batches(N, BATCH, np.random.RandomState(0))
    with (
        np.errstate(all="ignore"),
        pytest.raises(FloatingPointError, match="smaller learning_rate"),
    ):
        list(follow_levels(search, problem.X, problem.ratios, batches))


def test_the_proximal_method_trains_a_network():
    """A score that no linear one matches: two features must both be large."""
    problem = PairProblem(4, n=N)
    problem.y = ((problem.X[:, 0] > -0.3) & (problem.X[:, 2] > -0.3)).astype(int)
    problem.ratios = density_ratios(members_of(problem.y, problem.group, problem.weight))
    network = SigmoidNetwork.of(problem.X, 10)
    saddle, start = make_saddle(problem, rules_of("group AUC", 0.3), network, proximal_weight=1e-5)
    schedule = LevelSchedule(50_000, BATCH, 1.0, 1e-3, 6)
    batches = shuffled_batches(N, BATCH, np.random.RandomState(0))
    points = follow_proximal_points(
        saddle, schedule, start, 2, (problem.X, problem.ratios), batches
    )
    levels = list(points)
    values = np.array([evaluate(saddle, problem, level) for level in levels])
    assert (values[:, 1:] <= 1e-3).all()
    linear = find_optimum(saddle.surrogate, problem.X, problem.ratios)
    assert values[-1, 0] < 0.9 * linear.values[0]
    assert max(level.proximal_point for level in levels) == 1


def test_batches_hold_each_row_once_in_a_pass():
    batches = shuffled_batches(60, 20, np.random.RandomState(0))
    for _ in range(3):
        rows = np.concatenate([next(batches) for _ in range(3)])
        np.testing.assert_array_equal(np.sort(rows), np.arange(60))
    last = shuffled_batches(50, 20, np.random.RandomState(0))
    sizes = [next(last).size for _ in range(6)]
    assert sizes == [20, 20, 10, 20, 20, 10]
