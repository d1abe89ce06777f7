"""Closed forms of the dual steps, and stochastic mirror descent, against other optimisers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from pair_problems import N_SETS, PairProblem, rules_of
from references import random, seeds
from scipy.optimize import minimize
from scipy.special import rel_entr, softmax

from gbm_constrained.linear_model.auc_scorer import LinearScore
from gbm_constrained.solvers.level_set import (
    Dual,
    DualGeometry,
    MirrorDescent,
    Primal,
    SaddleProblem,
    SquareSurrogate,
    find_optimum,
)


def draw(rng):
    """Draw a geometry with one to three scalars of each function, a point and coefficients."""
    n = rng.integers(2, 6)
    owner = np.sort(np.append(np.arange(n), rng.integers(0, n, n)))
    geometry = DualGeometry(owner, n, interval=rng.uniform(0.3, 3.0))
    y = Dual(
        softmax(rng.normal(size=n)),
        rng.uniform(-1, 1, owner.size) * geometry.interval,
    )
    return geometry, y, rng.normal(size=n), 3 * rng.normal(size=owner.size)


def maximise(function, geometry, start):
    """Maximise over Y by L-BFGS in the shares' logits and the bounded alphas."""
    n, interval = geometry.n_functions, geometry.interval

    def loss(x):
        return -function(Dual(softmax(x[:n]), x[n:]))

    x = np.concatenate([np.log(start.share), start.alpha])
    bounds = [(-40, 40)] * n + [(-interval, interval)] * geometry.owner.size
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxfun": 10**6, "maxiter": 10**4}
    return -minimize(loss, x, method="L-BFGS-B", bounds=bounds, options=options).fun


def distance(geometry, y, other):
    """Compute the Bregman divergence V_y(y, y'); (28)."""
    squares = y.share[geometry.owner] * (y.alpha - other.alpha) ** 2
    return geometry.entropy_weight * rel_entr(y.share, other.share).sum() + squares.sum()


def linear_part(geometry, u, v, y):
    """Compute <(u, v), y> - d_y(y), with d_y of the paper's (25)."""
    share = y.share[geometry.owner]
    return u @ y.share + v @ (share * y.alpha) - (share * y.alpha**2).sum()


@pytest.mark.parametrize("seed", range(200))
def test_lemma_3_is_the_numerical_optimum(seed):
    rng = np.random.default_rng(seed)
    geometry, y, u, v = draw(rng)
    step = rng.uniform(0.1, 2.0) * (geometry.entropy_weight if seed % 2 else 1.0)

    def function(z):
        return linear_part(geometry, u, v, z) - distance(geometry, z, y) / step

    found = geometry.ascend(y, u, v, step)
    assert found.share.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.abs(found.alpha).max() <= geometry.interval
    value = function(found)
    assert maximise(function, geometry, y) <= value + 1e-8
    # The optimum is where the numerical one stays.
    assert maximise(function, geometry, found) == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("seed", range(200))
def test_lemma_4_is_the_largest_of_the_functions(seed):
    """The maximum is linear in the shares given alpha, and so lies at a corner of the simplex."""
    geometry, y, u, v = draw(np.random.default_rng(seed))

    def function(z):
        return linear_part(geometry, u, v, z)

    corners = []
    for o in range(geometry.n_functions):
        x = np.where(geometry.owner == o, y.alpha, 0.0)
        bound = geometry.interval
        best = minimize(
            lambda alpha, o=o: -function(Dual(np.eye(geometry.n_functions)[o], alpha)),
            x, method="L-BFGS-B", bounds=[(-bound, bound)] * x.size,
            options={"ftol": 1e-15, "gtol": 1e-11},
        )  # fmt: skip
        corners.append(-best.fun)
    found = geometry.largest_value(u, v)
    assert found == pytest.approx(max(corners), abs=1e-8)
    assert maximise(function, geometry, y) <= found + 1e-8


@given(seeds)
@random(200)
def test_the_distance_is_strongly_convex(seed):
    """V_y(y, y') >= (|share - share'|_1^2 + |scaled alpha - scaled alpha'|_2^2) / 2."""
    rng = np.random.default_rng(seed)
    geometry, y, _, _ = draw(rng)
    share = softmax(np.log(y.share) + rng.choice([1e-3, 0.1, 3.0]) * rng.normal(size=y.share.size))
    alpha = np.clip(y.alpha + rng.normal(size=y.alpha.size), -geometry.interval, geometry.interval)
    other = Dual(share, alpha)
    scaled = y.share[geometry.owner] * y.alpha - share[geometry.owner] * alpha
    least = (np.abs(y.share - share).sum() ** 2 + (scaled**2).sum()) / 2
    assert distance(geometry, y, other) >= least * (1 - 1e-9)
    assert distance(geometry, y, y) == pytest.approx(0.0, abs=1e-12)


def test_the_entropy_has_the_coefficient_of_the_paper_for_two_scalars():
    geometry = DualGeometry(np.array([0, 1, 1, 2, 2]), 3, 1.7)
    assert geometry.entropy_weight == pytest.approx(2 * (1 + np.sqrt(2) * 1.7) ** 2)


def saddle_problem(problem, rules, proximal_weight=0.0, batch_size=20):
    surrogate = SquareSurrogate.of(rules, N_SETS)
    score = LinearScore.of(problem.X)
    geometry = DualGeometry(surrogate.owner, surrogate.n_functions, 3.0)
    scale = score.mean_squared_gradient(score.start(None), problem.X)
    steps = 0.5, 5.0, scale, batch_size
    return SaddleProblem(surrogate, score, geometry, *steps, proximal_weight)


def start_of(saddle, d):
    return Primal(np.zeros(d), np.zeros(2 * saddle.surrogate.n_pairs))


def run(saddle, problem, level, order, batch_size, centre=None):
    start = start_of(saddle, problem.X.shape[1])
    oracle = MirrorDescent(saddle, level, start, start if centre is None else centre)
    for at in range(0, order.size, batch_size):
        rows = order[at : at + batch_size]
        oracle.step(problem.X[rows], problem.ratios[rows])
    return oracle


@pytest.mark.parametrize("metric", ["group AUC", "inter-group"])
def test_the_upper_bound_comes_close_to_the_level_function(metric):
    """H(r) by an exact solver: the level at which the optimum under rules moved by H(r) lies."""
    problem, bound = PairProblem(1, n=500), 0.1
    saddle = saddle_problem(problem, rules_of(metric, bound))
    order = np.random.default_rng(0).integers(0, 500, 60_000)
    level = 0.45
    oracle = run(saddle, problem, level, order, 20)
    # At the root t of f*(bound + t) = r + t the largest of f_0 - r and f_i - b_i is t.
    low, high = -0.1, 0.0
    for _ in range(40):
        t = (low + high) / 2
        surrogate = SquareSurrogate.of(rules_of(metric, bound + t), N_SETS)
        objective = find_optimum(surrogate, problem.X, problem.ratios).values[0]
        low, high = (t, high) if objective > level + t else (low, t)
    w = oracle.average.parameters
    surrogate = saddle.surrogate
    f = surrogate.values(surrogate.moments(problem.X @ w, problem.ratios)) - surrogate.limits
    worst = max(f[0] - level, *f[1:])
    assert low <= worst + 1e-9  # No point is better than the optimum.
    assert worst == pytest.approx(low, abs=0.01)
    assert oracle.upper_bound == pytest.approx(low, abs=0.015)


def test_batches_of_any_size_do_the_same():
    problem = PairProblem(2, n=500)
    saddle = saddle_problem(problem, rules_of("group AUC", 0.1))
    order = np.random.default_rng(1).integers(0, 500, 6_000)
    one, many = (run(saddle, problem, 0.45, order, size) for size in (1, 20))
    values = [
        saddle.surrogate.values(
            saddle.surrogate.moments(problem.X @ o.average.parameters, problem.ratios)
        )
        for o in (one, many)
    ]
    np.testing.assert_allclose(values[0], values[1], rtol=0.02)
    assert one.upper_bound == pytest.approx(many.upper_bound, abs=0.005)


def test_the_proximal_term_holds_iterates_near_its_centre():
    problem = PairProblem(3, n=200)
    order = np.random.default_rng(2).integers(0, 200, 10_000)
    centre = Primal(np.full(4, 0.3), np.zeros(2 * 5))
    rules = rules_of("group AUC", 0.3)
    distances = []
    for weight in (0.0, 0.1, 100.0):
        saddle = saddle_problem(problem, rules, proximal_weight=weight)
        oracle = run(saddle, problem, 0.5, order, 20, centre)
        distances.append(np.linalg.norm(oracle.average.parameters - centre.parameters))
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.05
