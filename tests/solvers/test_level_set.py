"""The level-set method: levels, its surrogate, its dual steps, and the exact optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_problems import (
    METRICS,
    N_SETS,
    PairProblem,
    count_functions,
    members_of,
    rules_of,
)
from references import random, seeds
from scipy.optimize import minimize
from scipy.special import rel_entr, softmax

from gbm_constrained.linear_model.auc_scorer import LinearScore, SigmoidNetwork
from gbm_constrained.solvers.level_set import (
    Iterate,
    LevelSetSearch,
    MirrorDescent,
    PairRule,
    PairTerm,
    SaddleProblem,
    SquareSurrogate,
    density_ratios,
    find_optimum,
    follow_levels,
    quadratics_of,
    shuffled_batches,
)

N, BATCH = 500, 100


def make_saddle(problem, rules, score, learning_rate=0.5, proximal_weight=0.0):
    surrogate = SquareSurrogate.of(rules, N_SETS)
    parameters = score.start(np.random.RandomState(0))
    scale = score.mean_squared_gradient(parameters, problem.X)
    steps = 3.0, learning_rate, 2.0, scale, BATCH
    saddle = SaddleProblem(surrogate, score, *steps, proximal_weight)
    return saddle, saddle.start(parameters)


def evaluate(saddle, problem, level):
    scores = saddle.score.scores(level.point.parameters, problem.X)
    values = saddle.surrogate.values(saddle.surrogate.moments(scores, problem.ratios))
    return values - saddle.surrogate.limits


@pytest.mark.parametrize(("metric", "theta"), [("group AUC", 2.0), ("inter-group", 1.0)])
def test_levels_fall_to_the_optimum_by_feasible_iterates(metric, theta):
    problem = PairProblem(1, n=N)
    saddle, start = make_saddle(problem, rules_of(metric, 0.1), LinearScore.of(problem.X))
    search = LevelSetSearch(saddle, start, 0.5, 40_000, theta, tol=3e-3, max_levels=40)
    batches = shuffled_batches(N, BATCH, np.random.RandomState(0))
    levels = list(follow_levels(search, problem.X, problem.ratios, batches))
    _, multipliers, exact = find_optimum(saddle.surrogate, problem.X, problem.ratios)
    values = np.array([evaluate(saddle, problem, level) for level in levels])
    assert (values[:, 1:] <= 0).all()  # The method is feasible.
    r = np.array([level.level for level in levels])
    assert (np.diff(r) < 0).all()
    moves = [level.upper_bound / (2 * theta) for level in levels[:-1]]
    np.testing.assert_allclose(np.diff(r), moves, rtol=1e-9)
    assert levels[-1].upper_bound >= -3e-3
    assert exact[0] <= values[-1, 0] <= 1.03 * exact[0]
    np.testing.assert_allclose(levels[-1].multipliers, multipliers, atol=0.15)


def test_the_number_of_levels_has_an_end():
    problem = PairProblem(2, n=N)
    saddle, start = make_saddle(problem, rules_of("group AUC", 0.1), LinearScore.of(problem.X))
    search = LevelSetSearch(saddle, start, 0.5, 2_000, 2.0, tol=0.0, max_levels=3)
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
    search = LevelSetSearch(saddle, start, 0.5, 4_000, 2.0, tol=1e-3, max_levels=3)
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
    search = LevelSetSearch(saddle, start, 0.5, 50_000, 1.0, tol=1e-3, max_levels=6)
    batches = shuffled_batches(N, BATCH, np.random.RandomState(0))
    levels = list(follow_levels(search, problem.X, problem.ratios, batches, n_points=2))
    values = np.array([evaluate(saddle, problem, level) for level in levels])
    assert (values[:, 1:] <= 1e-3).all()
    *_, linear = find_optimum(saddle.surrogate, problem.X, problem.ratios)
    assert values[-1, 0] < 0.9 * linear[0]
    assert max(level.proximal_point for level in levels) == 1


def test_batches_hold_each_row_once_in_a_pass():
    batches = shuffled_batches(60, 20, np.random.RandomState(0))
    for _ in range(3):
        rows = np.concatenate([next(batches) for _ in range(3)])
        np.testing.assert_array_equal(np.sort(rows), np.arange(60))
    last = shuffled_batches(50, 20, np.random.RandomState(0))
    sizes = [next(last).size for _ in range(6)]
    assert sizes == [20, 20, 10, 20, 20, 10]


C1 = [0.3, 0.5, 1.0, 2.0]
cases = pytest.mark.parametrize("metric", METRICS)


def surrogate_of(rules, c1=0.5, c2=1.0):
    return SquareSurrogate.of(rules, N_SETS, c1, c2)


@cases
@pytest.mark.parametrize("c1", C1)
@pytest.mark.parametrize("c2", [1.0, 0.6])
def test_functions_are_those_of_all_pairs(metric, c1, c2):
    problem, rules = PairProblem(), rules_of(metric, 0.1)
    surrogate = surrogate_of(rules, c1, c2)
    values = surrogate.values(surrogate.moments(problem.scores, problem.ratios))
    counted, _, limits = count_functions(problem.scores, problem.members, rules, c1, c2)
    np.testing.assert_allclose(values, counted, rtol=1e-12)
    np.testing.assert_allclose(surrogate.limits, limits, rtol=1e-15)


@given(seeds, st.integers(1, 4), st.sampled_from(C1))
@random(40)
def test_sums_of_any_multiples_of_pair_rates(seed, n_terms, c1):
    rng = np.random.default_rng(seed)
    problem = PairProblem(seed, n=60)
    terms = tuple(PairTerm(rng.normal(), *rng.choice(N_SETS, 2)) for _ in range(n_terms))
    rules = [PairRule(terms, 0.3), PairRule(terms[:1], 0.7)]
    surrogate = surrogate_of(rules, c1)
    values = surrogate.values(surrogate.moments(problem.scores, problem.ratios))
    counted, _, limits = count_functions(problem.scores, problem.members, rules, c1, 1.0)
    np.testing.assert_allclose(values, counted, rtol=1e-10)
    np.testing.assert_allclose(surrogate.limits, limits, rtol=1e-12)


@cases
@pytest.mark.parametrize("c1", C1)
def test_row_gradient_is_that_of_all_pairs_and_of_the_saddle_form(metric, c1):
    problem, rules = PairProblem(1), rules_of(metric, 0.1)
    surrogate = surrogate_of(rules, c1)
    share = np.array([0.5, 0.2, 0.3])
    moments = surrogate.moments(problem.scores, problem.ratios)
    best = surrogate.best_scalars(moments)
    rows = surrogate.row_gradient(problem.scores, problem.ratios, share, best)
    _, gradients, _ = count_functions(problem.scores, problem.members, rules, c1, 1.0)
    np.testing.assert_allclose(rows / rows.size, share @ gradients, rtol=0, atol=1e-10)


@cases
def test_the_saddle_form_has_the_functions_for_its_optimum(metric):
    """At the scalars of Lemma 1 the derivatives by a, b and alpha vanish, and the value is f."""
    problem, rules = PairProblem(2), rules_of(metric, 0.1)
    surrogate = surrogate_of(rules)
    moments = surrogate.moments(problem.scores, problem.ratios)
    a, b, alpha = best = surrogate.best_scalars(moments)
    F, G = surrogate.saddle_terms(moments, a, b)
    found = F + surrogate.limits + surrogate.sum_by_function(alpha * G - alpha**2)
    np.testing.assert_allclose(found, surrogate.values(moments), rtol=1e-12)
    np.testing.assert_allclose(G - 2 * alpha, 0.0, atol=1e-12)
    share = np.array([0.5, 0.2, 0.3])
    np.testing.assert_allclose(surrogate.scalar_gradient(moments, share, best), 0.0, atol=1e-12)


def test_scalar_gradient_is_that_of_differences_on_a_batch():
    problem, rules = PairProblem(4), rules_of("inter-group", 0.1)
    surrogate, share = surrogate_of(rules), np.array([0.5, 0.2, 0.3])
    moments = surrogate.moments(problem.scores[:20], problem.ratios[:20])
    rng = np.random.default_rng(0)
    x, alpha = rng.normal(size=2 * surrogate.owner.size), rng.normal(size=surrogate.owner.size)

    def value(x, h=problem.scores[:20]):
        a, b = x.reshape(2, -1)
        F, G = surrogate.saddle_terms(surrogate.moments(h, problem.ratios[:20]), a, b)
        return share @ F + (share[surrogate.owner] * alpha) @ G

    scalars = (*x.reshape(2, -1), alpha)
    eye = np.eye(x.size) * 1e-5
    numerical = [(value(x + e) - value(x - e)) / 2e-5 for e in eye]
    found = surrogate.scalar_gradient(moments, share, scalars)
    np.testing.assert_allclose(found, numerical, atol=1e-7)
    h, step = problem.scores[:20], np.eye(20) * 1e-5
    by_rows = [(value(x, h + e) - value(x, h - e)) / 2e-5 for e in step]
    rows = surrogate.row_gradient(h, problem.ratios[:20], share, scalars)
    np.testing.assert_allclose(rows / 20, by_rows, atol=1e-7)


@given(seeds, st.sampled_from(sorted(METRICS)))
@random(40)
def test_no_scores_have_a_smaller_worst_side_than_constant_ones(seed, metric):
    """max(f1, f2) >= 2 c1 c2^2, with equality at constant scores; section 2 of the docstring."""
    problem = PairProblem(seed % 1000, n=60)
    c1, c2 = 0.7, 1.3
    surrogate = surrogate_of(rules_of(metric, 0.0), c1, c2)
    least = 2 * c1 * c2**2
    scores = np.random.default_rng(seed).normal(size=60)
    assert surrogate.values(surrogate.moments(scores, problem.ratios))[1:].max() >= least
    constant = surrogate.values(surrogate.moments(np.full(60, 0.4), problem.ratios))
    np.testing.assert_allclose(constant[1:], least, rtol=1e-12)


def test_added_constants_and_copies_of_rows_change_nothing():
    problem, rules = PairProblem(5, n=80), rules_of("BPSN - BNSP", 0.1)
    surrogate = surrogate_of(rules)
    values = surrogate.values(surrogate.moments(problem.scores, problem.ratios))
    moved = surrogate.values(surrogate.moments(problem.scores + 3.0, problem.ratios))
    np.testing.assert_allclose(moved, values, rtol=1e-12)
    times = np.random.default_rng(0).integers(1, 4, 80)
    weighted = density_ratios(problem.members * times[:, None])
    copied = density_ratios(np.repeat(problem.members, times, axis=0))
    of_copies = surrogate.moments(np.repeat(problem.scores, times), copied)
    of_weights = surrogate.moments(problem.scores, weighted)
    np.testing.assert_allclose(of_weights, of_copies, rtol=1e-12)


def test_sets_without_weight_are_refused():
    members = np.ones((5, 3))
    members[:, 2] = 0.0
    with pytest.raises(ValueError, match="set 2 of the pair rules has no row"):
        density_ratios(members)


def test_moments_of_a_batch_are_means_over_its_rows():
    problem, surrogate = PairProblem(6), surrogate_of([])
    h, ratios = problem.scores[:7], problem.ratios[:7]
    found = surrogate.moments(h, ratios)
    expected = [(h[:, None] ** j * ratios).mean(axis=0) for j in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def solve_with_cvxpy(surrogate, X, ratios):
    """Solve the quadratically constrained problem, each function as a sum of squares of rows."""
    cp = pytest.importorskip("cvxpy")
    w = cp.Variable(X.shape[1])
    n = X.shape[0]
    functions = [0.0] * surrogate.n_functions
    pairs = (surrogate.owner, surrogate.upper, surrogate.lower, surrogate.curvature)
    mean = ratios.T @ X / n
    for o, upper, lower, c in zip(*pairs, strict=True):
        spread = [
            cp.sum_squares(cp.multiply(np.sqrt(ratios[:, s] / n), (X - mean[s]) @ w))
            for s in (upper, lower)
        ]
        shift = (mean[upper] - mean[lower]) @ w - surrogate.c2
        functions[o] += c * (spread[0] + spread[1] + cp.square(shift))
    rules = [f <= b for f, b in zip(functions[1:], surrogate.limits[1:], strict=True)]
    return cp.Problem(cp.Minimize(functions[0]), rules).solve(solver="CLARABEL")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bound", [1.0, 0.1, 0.03])
def test_optimum_is_that_of_a_conic_solver(metric, bound):
    problem = PairProblem(7, n=500, d=6)
    surrogate = SquareSurrogate.of(rules_of(metric, bound), N_SETS)
    weights, multipliers, values = find_optimum(surrogate, problem.X, problem.ratios)
    expected = solve_with_cvxpy(surrogate, problem.X, problem.ratios)
    assert values[0] == pytest.approx(expected, rel=1e-5)
    slack = (surrogate.limits - values)[1:]
    assert slack.min() >= -1e-7
    np.testing.assert_allclose(multipliers * slack, 0.0, atol=1e-6)
    scores = surrogate.moments(problem.X @ weights, problem.ratios)
    np.testing.assert_allclose(surrogate.values(scores), values, rtol=1e-10)


def test_several_metrics_at_once():
    problem = PairProblem(8, n=500, d=6)
    rules = [rule for metric in METRICS for rule in rules_of(metric, 0.15)]
    surrogate = SquareSurrogate.of(rules, N_SETS)
    *_, found = find_optimum(surrogate, problem.X, problem.ratios)
    expected = solve_with_cvxpy(surrogate, problem.X, problem.ratios)
    assert found[0] == pytest.approx(expected, rel=1e-5)


def test_a_tighter_bound_costs_and_opposite_rules_exchange():
    problem = PairProblem(9, n=300)
    objectives = []
    for bound in (1.0, 0.3, 0.1, 0.03, 0.01, 0.003):
        first, second = rules_of("intra-group", bound)
        one, other = (
            find_optimum(SquareSurrogate.of(rules, N_SETS), problem.X, problem.ratios)
            for rules in ([first, second], [second, first])
        )
        np.testing.assert_allclose(one[1], other[1][::-1], rtol=1e-6, atol=1e-9)
        objectives.append(one[2][0])
    assert (np.diff(objectives) >= -1e-12).all()
    assert objectives[-1] > objectives[0] + 0.05


def test_without_rules_the_optimum_has_no_slope():
    problem = PairProblem(10, n=300)
    surrogate = SquareSurrogate.of([], N_SETS)
    weights, multipliers, _ = find_optimum(surrogate, problem.X, problem.ratios)
    Q, q, _ = quadratics_of(surrogate, problem.X, problem.ratios)
    np.testing.assert_allclose(Q[0] @ weights, q[0], atol=1e-12)
    assert multipliers.size == 0


def test_columns_that_others_determine_change_nothing():
    problem = PairProblem(11, n=300)
    surrogate = SquareSurrogate.of(rules_of("inter-group", 0.1), N_SETS)
    alone, _, expected = find_optimum(surrogate, problem.X, problem.ratios)
    more = np.hstack([problem.X, problem.X[:, :2] @ [[1.0], [2.0]], np.ones((300, 1))])
    weights, _, values = find_optimum(surrogate, more, problem.ratios)
    np.testing.assert_allclose(values, expected, rtol=1e-9)
    np.testing.assert_allclose(
        (more - more.mean(axis=0)) @ weights,
        (problem.X - problem.X.mean(axis=0)) @ alone,
        atol=1e-6,
    )


def test_rules_that_no_score_meets_are_refused():
    problem = PairProblem(12, n=200)
    floor = PairRule(((-1.0, 0, 1),), -0.999)
    surrogate = SquareSurrogate.of([floor], N_SETS)
    with pytest.raises(ValueError, match="no linear score meets the surrogate rules"):
        find_optimum(surrogate, problem.X, problem.ratios)


def draw(rng):
    """Draw a set with one to three scalars of each function, a point and coefficients."""
    n = rng.integers(2, 6)
    owner = np.sort(np.append(np.arange(n), rng.integers(0, n, n)))
    saddle = dual_set(owner, n, interval=rng.uniform(0.3, 3.0))
    y = dual(softmax(rng.normal(size=n)), rng.uniform(-1, 1, owner.size) * saddle.interval)
    return saddle, y, rng.normal(size=n), 3 * rng.normal(size=owner.size)


def dual_set(owner, n_functions, interval):
    """Make a problem of which the dual set alone is looked at."""
    none = np.zeros(0)
    surrogate = SquareSurrogate(none, none, owner, none, 1.0, np.zeros(n_functions), 0)
    return SaddleProblem(surrogate, None, interval, 1.0, 1.0, 1.0, 1)


def dual(share, alpha):
    return Iterate(np.zeros(0), np.zeros(0), share, alpha)


def maximise(function, saddle, start):
    """Maximise over Y by L-BFGS in the shares' logits and the bounded alphas."""
    n, interval = saddle.surrogate.n_functions, saddle.interval

    def loss(x):
        return -function(dual(softmax(x[:n]), x[n:]))

    x = np.concatenate([np.log(start.share), start.alpha])
    bounds = [(-40, 40)] * n + [(-interval, interval)] * saddle.surrogate.owner.size
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxfun": 10**6, "maxiter": 10**4}
    return -minimize(loss, x, method="L-BFGS-B", bounds=bounds, options=options).fun


def distance(saddle, y, other):
    """Compute the Bregman divergence V_y(y, y'); (28)."""
    squares = y.share[saddle.surrogate.owner] * (y.alpha - other.alpha) ** 2
    return saddle.entropy_weight * rel_entr(y.share, other.share).sum() + squares.sum()


def linear_part(saddle, u, v, y):
    """Compute <(u, v), y> - d_y(y), with d_y of the paper's (25)."""
    share = y.share[saddle.surrogate.owner]
    return u @ y.share + v @ (share * y.alpha) - (share * y.alpha**2).sum()


@pytest.mark.parametrize("seed", range(40))
def test_lemma_3_is_the_numerical_optimum(seed):
    rng = np.random.default_rng(seed)
    saddle, y, u, v = draw(rng)
    step = rng.uniform(0.1, 2.0) * (saddle.entropy_weight if seed % 2 else 1.0)

    def function(z):
        return linear_part(saddle, u, v, z) - distance(saddle, z, y) / step

    found = dual(*saddle.ascend(y, u, v, step))
    assert found.share.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.abs(found.alpha).max() <= saddle.interval
    value = function(found)
    assert maximise(function, saddle, y) <= value + 1e-8
    # The optimum is where the numerical one stays.
    assert maximise(function, saddle, found) == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("seed", range(40))
def test_lemma_4_is_the_largest_of_the_functions(seed):
    """The maximum is linear in the shares given alpha, and so lies at a corner of the simplex."""
    saddle, y, u, v = draw(np.random.default_rng(seed))

    def function(z):
        return linear_part(saddle, u, v, z)

    corners = []
    for o in range(saddle.surrogate.n_functions):
        x = np.where(saddle.surrogate.owner == o, y.alpha, 0.0)
        bound = saddle.interval
        best = minimize(
            lambda alpha, o=o: -function(dual(np.eye(saddle.surrogate.n_functions)[o], alpha)),
            x, method="L-BFGS-B", bounds=[(-bound, bound)] * x.size,
            options={"ftol": 1e-15, "gtol": 1e-11},
        )  # fmt: skip
        corners.append(-best.fun)
    found = saddle.largest_value(u, v)
    assert found == pytest.approx(max(corners), abs=1e-8)
    assert maximise(function, saddle, y) <= found + 1e-8


@given(seeds)
@random(60)
def test_the_distance_is_strongly_convex(seed):
    """V_y(y, y') >= (|share - share'|_1^2 + |scaled alpha - scaled alpha'|_2^2) / 2."""
    rng = np.random.default_rng(seed)
    saddle, y, _, _ = draw(rng)
    share = softmax(np.log(y.share) + rng.choice([1e-3, 0.1, 3.0]) * rng.normal(size=y.share.size))
    alpha = np.clip(y.alpha + rng.normal(size=y.alpha.size), -saddle.interval, saddle.interval)
    other = dual(share, alpha)
    scaled = y.share[saddle.surrogate.owner] * y.alpha - share[saddle.surrogate.owner] * alpha
    least = (np.abs(y.share - share).sum() ** 2 + (scaled**2).sum()) / 2
    assert distance(saddle, y, other) >= least * (1 - 1e-9)
    assert distance(saddle, y, y) == pytest.approx(0.0, abs=1e-12)


def test_the_entropy_has_the_coefficient_of_the_paper_for_two_scalars():
    saddle = dual_set(np.array([0, 1, 1, 2, 2]), 3, 1.7)
    assert saddle.entropy_weight == pytest.approx(2 * (1 + np.sqrt(2) * 1.7) ** 2)


def saddle_problem(problem, rules, proximal_weight=0.0, batch_size=20):
    surrogate = SquareSurrogate.of(rules, N_SETS)
    score = LinearScore.of(problem.X)
    scale = score.mean_squared_gradient(score.start(None), problem.X)
    return SaddleProblem(surrogate, score, 3.0, 0.5, 5.0, scale, batch_size, proximal_weight)


def run(saddle, problem, level, order, batch_size, centre=None):
    start = saddle.start(np.zeros(problem.X.shape[1]))
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
        objective = find_optimum(surrogate, problem.X, problem.ratios)[2][0]
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
    rules = rules_of("group AUC", 0.3)
    distances = []
    for weight in (0.0, 0.1, 100.0):
        saddle = saddle_problem(problem, rules, proximal_weight=weight)
        centre = saddle.start(np.full(4, 0.3))
        oracle = run(saddle, problem, 0.5, order, 20, centre)
        distances.append(np.linalg.norm(oracle.average.parameters - centre.parameters))
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.05
