"""The outer loop: schedule, dual step, proximal centre, history."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from gbm_constrained.constraints.rates import (
    accuracy,
    class_error,
    error_rate,
    fnr,
    fpr,
    gap,
    log_loss,
)
from gbm_constrained.constraints.selectors import label
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem import linear_constraints
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.kernels.base import rate_lipschitz
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers import ABPPSolver, outer_loop
from gbm_constrained.solvers.step_sizes import cancel_opposites

Y = np.repeat([0, 1], 4)
# Four positives, of which 2, 1 and 0 are missed; all negatives are recognised.
HALF, QUARTER, NONE = (
    np.array([-1.0] * (4 + missed) + [1.0] * (4 - missed)) for missed in (2, 1, 0)
)


def build(y, constraints=(), weight=None, **options):
    cells, compiled = compile_constraints(constraints, Rows(y, np.unique(y), weight))
    return Lagrangian(y, cells, compiled, weight=weight, **options)


def draw(n_classes, n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    scores = rng.normal(size=n if n_classes == 2 else (n, n_classes))
    return y, scores, rng.gamma(2.0, size=n), rng.random(n) < 0.5


def run(solver, n_rounds, start, rate=0.3):
    """Descend as a booster of one-row leaves does; every answer of the solver."""
    margin, answers = start.copy(), []
    for _ in range(n_rounds):
        grad, hess = (x.copy() for x in solver(margin))
        answers.append((grad, hess))
        margin -= rate * grad / (hess + 1e-3)
    return answers


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_rates_a_schedule_is_followed_alike(n_classes, mu):
    """To the last bit where step sizes stay, as they do by default."""
    y, scores, weight, _ = draw(n_classes)
    rules = [error_rate() <= 0.1, class_error(1) <= 0.2]
    schedule = [np.array([0.0, 0.0]), np.array([0.5, 0.0]), np.array([1.0, 2.0])]
    options = {"schedule": schedule, "lazy": True, "rounds_per_iteration": 2, "mu": mu}
    full, bare = (
        ABPPSolver(build(y, rules, weight), has_rates=has_rates, **options)
        for has_rates in (True, False)
    )
    for (g, h), (g_bare, h_bare) in zip(
        run(full, 9, 0.0 * scores), run(bare, 9, 0.0 * scores), strict=True
    ):
        np.testing.assert_allclose(g_bare, g, rtol=1e-12 * (mu > 0))
        np.testing.assert_allclose(h_bare, h, rtol=1e-12 * (mu > 0))
    assert len(full.history) == len(bare.history) == 5
    assert [r.rounds for r in bare.history] == [0, 2, 4, 6, 8]
    assert all(np.isnan(r.rates).all() for r in bare.history)
    np.testing.assert_allclose(bare.ergodic_weights, full.ergodic_weights, rtol=1e-12)


@pytest.mark.parametrize("most", [0, 10_000])
def test_products_of_constraints_are_those_of_scipy(most, monkeypatch):
    """To the last bit, whether a matrix is small or large, and where scipy sorts it in place."""
    monkeypatch.setattr(linear_constraints, "SMALL_MATRIX", most)
    rng = np.random.default_rng(0)
    for shape in ((7, 9), (1, 4), (5, 1), (0, 3)):
        matrix = sparse.random_array(shape, density=0.6, format="csr", rng=rng)
        matrix.indices[:2] = matrix.indices[:2][::-1].copy()
        across, down = rng.normal(size=shape[1]), rng.normal(size=shape[0])
        expected = matrix @ across, matrix.T @ down
        products = (
            linear_constraints._product_with(matrix),
            linear_constraints._product_with(matrix, transposed=True),
        )
        matrix.sort_indices()
        assert np.array_equal(products[0](across), expected[0])
        assert np.array_equal(products[1](down), expected[1])


# Schedule


def trajectory(mu, n_iterations, tau=0.5, **options):
    """1 / tau_k and sigma_k of each iteration."""
    solver = ABPPSolver(build(Y, [fnr() <= 0.1]), tau=tau, mu=mu, **options)
    taus, sigmas = [], []
    for _ in range(n_iterations):
        solver(HALF)
        taus.append(1 / solver.inverse_tau)
        sigmas.append(solver.ergodic_weights[-1] * solver.dual.sigma)
    return np.array(taus), np.array(sigmas)


def test_without_strong_convexity_the_steps_stay():
    taus, sigmas = trajectory(0.0, 20)
    np.testing.assert_allclose(taus, 0.5, rtol=1e-15)
    np.testing.assert_allclose(sigmas, 2.0, rtol=1e-15)


@pytest.mark.parametrize("mu", [0.01, 1.0, 30.0])
def test_with_strong_convexity_the_steps_follow_the_algorithm(mu):
    """gamma grows by 1 + mu tau, tau shrinks by its root, and tau sigma is constant."""
    taus, sigmas = trajectory(mu, 50)
    np.testing.assert_allclose(taus[1:], taus[:-1] / np.sqrt(1 + mu * taus[:-1]), rtol=1e-12)
    np.testing.assert_allclose(taus * sigmas, 1.0, rtol=1e-12)
    gammas = sigmas / taus
    np.testing.assert_allclose(gammas[1:], gammas[:-1] * (1 + mu * taus[:-1]), rtol=1e-12)


def test_with_strong_convexity_the_steps_have_their_known_limit():
    """tau_k mu k -> 2, hence sigma_k / k -> mu / 2 where tau sigma = 1: the O(1 / k^2) regime."""
    taus, sigmas = trajectory(3.0, 3000)
    assert taus[-1] * 3.0 * 3000 == pytest.approx(2.0, rel=0.01)
    assert sigmas[-1] / 3000 == pytest.approx(3.0 / 2.0, rel=0.01)


@pytest.mark.parametrize("mu", [0.0, 2.0])
def test_ergodic_weights_and_extrapolation_fit_together(mu):
    """t_k = sigma_k / sigma_0 starts at one and t_k theta_k = t_{k-1}: what the proof sums over.

    theta is read off the multipliers: all else in the dual step is known.
    """
    solver = ABPPSolver(build(Y, [fnr() <= 0.1]), mu=mu, initial_multipliers=np.array([100.0]))
    for margin in (HALF, QUARTER, HALF, QUARTER, NONE):
        solver(margin)
    t = np.array(solver.ergodic_weights)
    assert t[0] == 1.0
    rates = np.array([r.rates[0] for r in solver.history])
    multipliers = np.array([r.multipliers[0] for r in solver.history])
    step = solver.dual.sigma * t[1:] / 0.125
    z = np.diff(multipliers) / step
    theta = (z - (rates[1:] - 0.1)) / np.diff(rates)
    np.testing.assert_allclose(t[1:] * theta, t[:-1], rtol=1e-9)


# Step sizes


@pytest.mark.parametrize(("n_classes", "tau"), [(2, 4.0), (3, 2.0), (7, 2.0)])
def test_default_steps_are_the_largest_the_theory_allows(n_classes, tau):
    """tau sigma L^2 = 1, L the norm of the constraints scaled to their own constants."""
    y, _, weight, mask = draw(n_classes)
    overlapping = [class_error(0) <= 0.1, error_rate(on=mask) <= 0.1, log_loss() <= 1]
    disjoint = [class_error(0) <= 0.1, log_loss(on=label(1)) <= 0.1]
    for constraints, alone in ((overlapping, False), (disjoint, True)):
        lag = build(y, constraints, weight)
        solver = ABPPSolver(lag)
        own, norm = lag.constants.lipschitz()
        scaled = lag.constants.sensitivities.toarray() / own[:, None]
        assert norm == pytest.approx(np.linalg.norm(scaled, 2), rel=1e-12)
        assert np.array_equal(solver.dual.lipschitz, own)
        assert solver.dual.tau == tau
        assert solver.dual.tau * solver.dual.sigma * norm**2 == pytest.approx(1.0, rel=1e-12)
        assert np.isclose(norm, 1.0) == alone
        assert ABPPSolver(lag, tau=0.1).dual.sigma == pytest.approx(solver.dual.sigma * tau / 0.1)
        assert ABPPSolver(lag, tau=0.1, sigma=7.0).dual.sigma == 7.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_boosters_take_losses_to_be_no_steeper_than_rates(n_classes):
    """Lazy solvers: a mean loss moves its multiplier in steps as long as those of its rate."""
    y, _, weight, mask = draw(n_classes)
    losses = [log_loss(on=label(0)) <= 0.1, log_loss(on=mask) <= 1]
    rates = [class_error(0) <= 0.1, error_rate(on=mask) <= 0.1]
    lag = build(y, losses, weight)
    lazy, exact = ABPPSolver(lag, lazy=True), ABPPSolver(lag)
    slope = rate_lipschitz(n_classes)
    np.testing.assert_allclose(
        lazy.dual.lipschitz, build(y, rates, weight).constants.lipschitz()[0]
    )
    np.testing.assert_allclose(lazy.dual.lipschitz, lag.constants.lipschitz(slope)[0])
    np.testing.assert_allclose(exact.dual.lipschitz, 4 * lazy.dual.lipschitz)
    assert lazy.dual.sigma == pytest.approx(exact.dual.sigma)


def test_the_dual_step_of_each_constraint_is_over_its_squared_constant():
    """Of a rare and of a common class; from one iteration at known rates."""
    y = np.repeat([0, 1], [90, 10])
    lag = build(y, [fpr() <= 0.1, fnr() <= 0.2])
    solver = ABPPSolver(lag)
    solver(np.where(y == 1, -1.0, 1.0))
    squares = (0.25 / np.sqrt([0.9, 0.1])) ** 2
    np.testing.assert_allclose(
        solver.multipliers, solver.dual.sigma / squares * [0.9, 0.8], rtol=1e-12
    )


def test_steps_do_not_depend_on_the_number_of_rows():
    y, scores, weight, _ = draw(2)
    paths = []
    for copies in (1, 5):
        rows = np.repeat(np.arange(60), copies)
        solver = ABPPSolver(build(y[rows], [fnr() <= 0.01], weight[rows]))
        run(solver, 5, scores[rows])
        paths.append([r.multipliers[0] for r in solver.history])
    np.testing.assert_allclose(paths[0], paths[1], rtol=1e-10)
    assert paths[0][-1] > 0


def test_lipschitz_constants_of_another_distance():
    """Given constants replace those in scores; the default sigma is safe for any m constraints."""
    lag = build(Y, [fpr() <= 0.1, fnr() <= 0.1])
    solver = ABPPSolver(lag, tau=0.5, lipschitz=np.array([1.0, 10.0]))
    assert solver.dual.sigma == pytest.approx(1 / (0.5 * 2))
    solver(-NONE)
    np.testing.assert_allclose(solver.multipliers, solver.dual.sigma * np.array([0.9, 0.009]))


# Dual step, by hand: L^2 = (1/4)^2 / (1/2) = 1/8, tau = 4, sigma = 1/4, so sigma / L^2 = 2


def test_the_dual_step_extrapolates():
    """z_0 = g_0, then z_1 = g_1 + (g_1 - g_0): rates 0.5 and 0.25 against 0.1."""
    solver = ABPPSolver(build(Y, [fnr() <= 0.1]))
    assert (solver.dual.tau, solver.dual.sigma) == pytest.approx((4.0, 0.25))
    solver(HALF)
    assert solver.multipliers == pytest.approx([2 * 0.4])
    solver(QUARTER)
    assert solver.multipliers == pytest.approx([0.8 + 2 * (0.15 - 0.25)])


def test_multipliers_are_projected():
    """The step would leave -0.1: the multiplier is zero, and grows again from there."""
    solver = ABPPSolver(build(Y, [fnr() <= 0.1]))
    for margin in (HALF, QUARTER):
        solver(margin)
    solver(NONE)
    assert solver.multipliers.tolist() == [0.0]
    solver(QUARTER)
    assert solver.multipliers == pytest.approx([2 * (0.15 + 0.25)])


def test_progress_divides_the_observed_change():
    """A learner that goes half of the way is extrapolated twice as far."""
    solver = ABPPSolver(build(Y, [fnr() <= 0.1]), progress=0.5)
    solver(HALF)
    assert solver.multipliers == pytest.approx([0.8])
    solver(QUARTER)
    assert solver.multipliers == pytest.approx([0.8 + 2 * (0.15 - 0.25 / 0.5)])


def test_an_accelerated_dual_step():
    """mu = 1, tau = 4: theta_1 = 1 / sqrt 5 and sigma_1 = sqrt 5 / 4."""
    solver = ABPPSolver(build(Y, [fnr() <= 0.1]), mu=1.0)
    solver(HALF)
    solver(QUARTER)
    root = np.sqrt(5)
    assert solver.multipliers == pytest.approx([0.8 + 2 * root * (0.15 - 0.25 / root)])
    assert solver.inverse_tau == pytest.approx(root / 4)


def test_a_warm_start():
    """y_0 enters the first dual step, and the caller's array is left alone."""
    start = np.array([3.0])
    solver = ABPPSolver(build(Y, [fnr() <= 0.1]), initial_multipliers=start)
    solver(NONE)
    assert solver.multipliers == pytest.approx([3.0 - 2 * 0.1])
    assert start.tolist() == [3.0]
    with_integers = ABPPSolver(build(Y, [fnr() <= 0.1]), initial_multipliers=[3])
    with_integers(NONE)
    assert with_integers.multipliers == pytest.approx([2.8])


# Outer iterations and proximal centre


def test_multipliers_and_centre_move_every_r_calls():
    """R = 3: seven calls are three iterations, begun at calls 0, 3 and 6."""
    y, scores, weight, _ = draw(2)
    solver = ABPPSolver(build(y, [fnr() <= 0.01], weight), rounds_per_iteration=3)
    seen = []
    for i in range(7):
        margin = scores - 0.2 * i
        solver(margin)
        seen.append((solver.multipliers.tolist(), solver.centre.tolist()))
        assert seen[i] == seen[i - i % 3]
        assert solver.centre.tolist() == (scores - 0.2 * (i - i % 3)).tolist()
        assert solver.rounds == i + 1
    assert len({str(s) for s in seen}) == 3
    assert [r.iteration for r in solver.history] == [0, 1, 2]
    assert [r.rounds for r in solver.history] == [0, 3, 6]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_pull_to_the_centre(n_classes):
    """Within an iteration: w (F - anchor) / tau on top of f + <y, g>, and w / tau of curvature."""
    y, scores, weight, _ = draw(n_classes)
    lag = build(y, [class_error(1) <= 0.01], weight)
    solver = ABPPSolver(lag, tau=0.4, rounds_per_iteration=2)
    first = [x.copy() for x in solver(scores)]
    moved = scores + np.random.default_rng(1).normal(size=scores.shape)
    second = [x.copy() for x in solver(moved)]
    w = weight if n_classes == 2 else weight[:, None]
    for margin, (grad, hess) in ((scores, first), (moved, second)):
        free_grad, free_hess = lag.at(margin).gradient(solver.multipliers)
        np.testing.assert_allclose(grad, free_grad + w * (margin - scores) / 0.4, atol=1e-10)
        np.testing.assert_allclose(hess, free_hess + w / 0.4, rtol=1e-12)
    assert solver.multipliers.any()


def test_the_centre_is_a_copy_of_the_scores():
    """A booster that overwrites its scores in place does not move the centre."""
    y, scores, *_ = draw(2)
    solver = ABPPSolver(build(y, [fnr() <= 0.01]), rounds_per_iteration=2)
    buffer = scores.copy()
    solver(buffer)
    buffer += 1.0
    solver(buffer)
    assert np.array_equal(solver.centre, scores)
    buffer += 1.0
    solver(buffer)
    assert np.array_equal(solver.centre, buffer)
    assert solver.history[1].bregman == pytest.approx(2.0)  # half of 2 squared


def test_one_round_per_iteration_has_no_pull():
    """The centre is the point itself: the gradient is that of f + <y, g>."""
    y, scores, weight, _ = draw(3)
    lag = build(y, [class_error(1) <= 0.01], weight)
    solver = ABPPSolver(lag)
    solver(scores)
    grad = solver(scores + 1.0)[0].copy()
    assert np.array_equal(grad, lag.at(scores + 1.0).gradient(solver.multipliers)[0])


@pytest.mark.parametrize("keep", [True, False])
def test_the_proximal_term_of_idle_multipliers(keep):
    """Kept by default; dropped, with `lazy`, exactly while no multiplier works."""
    lag = build(Y, [fnr() <= 0.1])
    solver = ABPPSolver(lag, lazy=not keep)
    hess = solver(NONE)[1].copy()
    free = lag.at(NONE).gradient(np.zeros(1))[1].copy()
    assert not solver.multipliers.any()
    np.testing.assert_allclose(hess - free, 0.25 * keep, atol=1e-15)
    assert solver.inverse_tau == 0.25 * keep
    solver(HALF)
    assert solver.multipliers.any()
    assert solver.inverse_tau == 0.25


@pytest.mark.parametrize("lazy", [True, False])
def test_steps_of_boosters_do_not_overshoot_where_a_rule_is_at_work(lazy):
    """Only then: a fit that no rule touches is the library's own. Exact learners know better."""
    lag = build(Y, [fnr() <= 0.1])
    margin = 5.0 * HALF
    for initial in (0.0, 5.0):
        solver = ABPPSolver(
            lag, tau=1e12, lazy=lazy, initial_multipliers=np.full(1, initial),
            rounds_per_iteration=3, progress=1.0 - 0.6**3,
        )  # fmt: skip
        solver.bounds = np.ones(1) if initial == 0 else np.full(1, 0.5)  # never violated
        hess = solver(margin)[1].copy()
        own, bounded = (
            lag.at(margin).gradient(solver.multipliers, learning_rate=rate)[1].copy()
            for rate in (0.0, 0.4)
        )
        assert solver.multipliers.any() == (initial > 0)
        assert (bounded > 1.5 * own).all()
        np.testing.assert_allclose(hess, bounded if lazy and initial > 0 else own, rtol=1e-5)


@pytest.mark.parametrize("schedule", [None, [np.ones(1)]])
@pytest.mark.parametrize("progress", [1.0, 0.6, 0.51, 0.19])
def test_shrinkage_counts_as_proximal(progress, schedule):
    """What a booster's learning rate holds already is not held twice, until the path is long."""
    lag = build(Y, [fnr() <= 0.1])
    solver = ABPPSolver(lag, lazy=True, progress=progress, schedule=schedule)
    slope = np.exp(1) / (1 + np.exp(1)) ** 2  # of the probability, at a margin of one
    early = max(0.25 - slope * (1 / progress - 1), 0.0)
    begins, is_whole = (5, 10) if schedule is None else (10, 30)
    for k in range(1, 200):
        hess = solver(HALF)[1].copy()
        free = lag.at(HALF).gradient(solver.multipliers, learning_rate=progress)[1].copy()
        late = 0.25 * min(max((k * progress - begins) / (is_whole - begins), 0.0), 1.0)
        np.testing.assert_allclose(hess, free + max(early, late), rtol=1e-15)
    assert late == 0.25
    exact = ABPPSolver(lag, progress=progress)  # an exact learner has no such rate
    exact(HALF)
    assert exact.proximal_weight == 0.25


@pytest.mark.parametrize("scale", [0.1, 1.0, 2.0, 4.0, 9.0])
def test_the_proximal_term_of_several_classes_falls_with_the_square_of_the_slopes(scale):
    """Where they are below those of the constant model: the dual steps then need no more."""
    y = np.tile([0, 1, 2], 3)
    margin = scale * np.eye(3)[np.roll(y, 1)]
    p = np.exp(margin) / np.exp(margin).sum(axis=1, keepdims=True)
    slope = np.sqrt(((p * (1.0 - p)) ** 2).sum(axis=1).mean())
    share = min(1.0, 1.5 * slope / (np.sqrt(3.0) * 2.0 / 9.0)) ** 2
    assert (share == 1.0) == (scale <= 1.0)
    solver = ABPPSolver(
        build(y, [error_rate() <= 0.1]), lazy=True
    )  # of all rows, at a rate of one
    solver(margin)
    np.testing.assert_allclose(solver.proximal_weight, 0.5 * share, rtol=1e-12)


def test_the_proximal_term_of_two_classes_stays():
    solver = ABPPSolver(build(Y, [error_rate() <= 0.1]), lazy=True)
    solver(9.0 * HALF)
    assert np.array_equal(solver.proximal_weight, [0.25, 0.25])


# Three rows: two of the gap.
GAP = [gap(error_rate(), by="g", min_group_size=1) <= 0.1, fnr() <= 0.1]


def with_groups(lazy=True, **options):
    groups = np.tile([0, 1], 4)
    cells, compiled = compile_constraints(GAP, Rows(Y, np.array([0, 1]), None, {"g": groups}))
    return ABPPSolver(Lagrangian(Y, cells, compiled), lazy=lazy, **options)


def path_of(solver):
    """Multipliers along scores that miss two positives of one group, or four of both."""
    for scores in (HALF, HALF, -HALF, HALF, NONE, HALF):
        margin = scores.copy()
        margin[4::2] = 1.0  # the first group is never missed
        solver(margin)
    return np.array([record.multipliers for record in solver.history])


@pytest.mark.parametrize("higher", [0.0, 0.05, -0.2])
def test_corrected_rows_take_steps_of_their_own(higher, monkeypatch):
    """Those of rates that are so much higher, near to the schedule; others follow it."""
    bounds = np.array([0.02, 0.03, 0.1])
    schedule = [np.array([0.1, 0.3, 0.2]) * k for k in range(1, 5)]
    optimism = lambda k: (np.full(3, higher), bounds)  # noqa: E731
    corrected = np.array([True, True, False])
    options = {"schedule": schedule, "optimism": optimism, "corrected": corrected}
    found = path_of(with_groups(**options))
    given = np.array([schedule[min(k, 3)] for k in range(6)])
    np.testing.assert_array_equal(found[:, 2], given[:, 2])
    distance = np.abs(found - given)[:, :2].max(axis=1)
    assert (distance <= outer_loop.MAX_DEPARTURE * given[:, 1] * (1 + 1e-12)).all()
    assert distance.max() > 0.0
    np.testing.assert_array_equal(found[:2], given[:2])  # half of the schedule
    options["corrected"] = False
    np.testing.assert_array_equal(path_of(with_groups(**options)), given)
    options["corrected"] = corrected
    monkeypatch.setattr(outer_loop, "SETTLED", 0.0)
    monkeypatch.setattr(outer_loop, "MAX_DEPARTURE", np.inf)
    own = path_of(with_groups(**options))
    free = with_groups()
    free.bounds = bounds - higher
    np.testing.assert_allclose(own[:, :2], path_of(free)[:, :2], rtol=1e-12)


def test_dual_steps_grow_while_a_constraint_does_not_move():
    """By 1 + p while it stays violated, by half back when crossed, from one to fifty."""
    margins = [*[HALF] * 4, NONE, QUARTER, NONE, NONE, HALF]
    #           1/2 - 1/8: first seen, 3 times the same, crossed 3 times, inside, crossed
    bound, p = 0.125, 0.4
    solver = ABPPSolver(build(Y, [fnr() <= bound]), lazy=True, progress=p)
    still = ABPPSolver(
        build(Y, [fnr() <= bound]), lazy=True, progress=p, lipschitz=solver.dual.lipschitz
    )
    grown, strides = 1.0, []
    for margin in margins:
        solver(margin)
        strides.append(solver.dual.strides.factors[0])
    for step in ("first", "same", "same", "same", "cross", "cross", "cross", "inside", "cross"):
        factor = {"first": 1.0, "same": 1.4, "inside": 1.4, "cross": 0.5}[step]
        grown = max(grown * factor, 1.0)
        assert strides.pop(0) == pytest.approx(grown)
    for _ in range(200):
        solver(HALF)
    assert solver.dual.strides.factors[0] == 50
    before = still.multipliers.copy()
    still(HALF)
    first = still.multipliers - before
    still(HALF)
    np.testing.assert_allclose(still.multipliers - before - first, 1.4 * first)
    exact = ABPPSolver(build(Y, [fnr() <= bound]), progress=p)
    for _ in range(5):
        exact(HALF)
    assert exact.dual.strides.factors[0] == 1.0


def swing(lazy):
    """Multipliers of a gap where each group in turn is the one whose rows are missed."""
    solver = with_groups(lazy=lazy)
    for k in range(12):
        margin = np.where(Y == 1, -1.0, 1.0)
        margin[k // 3 % 2 :: 2] *= -1.0
        solver(margin)
    return np.array([record.multipliers for record in solver.history])


def test_opposite_rows_of_a_booster_keep_only_their_difference():
    kept = swing(lazy=True)
    assert (kept[:, :2].min(axis=1) == 0.0).all()
    assert (kept[:, :2].max(axis=0) > 0.0).all()
    exact = swing(lazy=False)
    assert exact[:, :2].min(axis=1).max() > 0.0  # the proof is of multipliers as they are


def test_gradients_know_the_difference_of_opposite_rows_alone():
    lagrangian = with_groups().lagrangian
    both, difference = np.array([3.0, 1.0, 0.5]), np.array([3.0, 1.0, 0.5])
    cancel_opposites(difference, lagrangian.constraints.opposites)
    assert difference.tolist() == [2.0, 0.0, 0.5]
    point = lagrangian.at(HALF)
    gradients = [point.gradient(multipliers)[0].copy() for multipliers in (both, difference)]
    np.testing.assert_allclose(*gradients, rtol=1e-12)


# Constraints that do nothing


@pytest.mark.parametrize("rounds_per_iteration", [1, 3])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_always_satisfied_constraint_leaves_every_gradient_alone(
    n_classes, rounds_per_iteration
):
    """Its multiplier stays zero and twelve rounds are those of the problem without it."""
    y, scores, weight, mask = draw(n_classes)
    idle = [class_error(1) <= 1, error_rate(on=mask) <= 1, log_loss() <= 50]
    options = {"lazy": True, "rounds_per_iteration": rounds_per_iteration}
    solver = ABPPSolver(build(y, idle, weight), **options)
    constrained = run(solver, 12, scores)
    assert not any(r.multipliers.any() for r in solver.history)
    free = run(lambda m: build(y, weight=weight).at(m).gradient(np.zeros(0)), 12, scores)
    assert np.array_equal(constrained, free)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_constraint_that_no_prediction_changes(lazy):
    """It has no multiplier, whether it can be met or not, and the others move as without it."""
    y, scores, weight, mask = draw(2)
    constant = accuracy(on=mask) + error_rate(on=mask)
    active = [fnr() <= 0.02]
    alone = ABPPSolver(build(y, active, weight), lazy=lazy)
    among = ABPPSolver(build(y, [*active, constant <= 1, constant <= 0.5], weight), lazy=lazy)
    answers = run(alone, 10, scores), run(among, 10, scores)
    np.testing.assert_allclose(*answers, rtol=1e-9, atol=1e-12)
    assert among.dual.lipschitz[1:].tolist() == [0.0, 0.0]
    moved = np.array([r.multipliers for r in among.history])
    assert moved[:, 0].max() > 0
    assert not moved[:, 1:].any()


def test_an_always_satisfied_constraint_beside_an_active_one():
    """The other multiplier takes the same path at the same steps."""
    y, scores, weight, mask = draw(2)
    active, idle = [fnr() <= 0.02], [fpr() <= 1, error_rate(on=mask) <= 1]
    alone = ABPPSolver(build(y, active, weight))
    steps = {"tau": alone.dual.tau, "sigma": alone.dual.sigma}
    among = ABPPSolver(build(y, active + idle, weight), **steps)
    answers = run(alone, 10, scores), run(among, 10, scores)
    np.testing.assert_allclose(*answers, rtol=1e-9, atol=1e-12)
    path = np.array([r.multipliers for r in among.history])
    np.testing.assert_allclose(path[:, 0], [r.multipliers[0] for r in alone.history], rtol=1e-9)
    assert path[:, 0].any()
    assert not path[:, 1:].any()
    disjoint = ABPPSolver(build(y, [*active, fpr() <= 1], weight))
    assert disjoint.dual.sigma == pytest.approx(alone.dual.sigma, rel=1e-12)


def test_no_constraint_at_all():
    """A plain proximal method."""
    y, scores, *_ = draw(2)
    solver = ABPPSolver(build(y))
    grad, hess = solver(scores)
    free = build(y).at(scores).gradient(np.zeros(0), None, 0.25)
    assert np.array_equal([grad, hess], free)
    assert solver.history[0].rates.shape == (0,)
    assert ABPPSolver(build(y), lazy=True).inverse_tau == 0.0


# History


def test_records_say_what_happened():
    """Exact rates, objective, distance to the centre before, multipliers of what follows."""
    y, scores, weight, _ = draw(3)
    lag = build(y, [class_error(0) <= 0.05, log_loss() <= 0.5], weight)
    called = []
    solver = ABPPSolver(lag, rounds_per_iteration=2, callback=called.append)
    points, multipliers = [], []
    for i in range(6):
        margin = scores * (1 + 0.1 * i)
        solver(margin)
        if i % 2 == 0:
            points.append(margin)
            multipliers.append(solver.multipliers.copy())
    assert called == solver.history
    assert all(a is b for a, b in zip(called, solver.history, strict=True))
    for k, record in enumerate(solver.history):
        statistics = lag.at(points[k]).statistics()
        assert record.objective == pytest.approx(lag.objective(statistics), rel=1e-12)
        np.testing.assert_allclose(record.rates, lag.constraints.rates(statistics), rtol=1e-12)
        functionals = lag.constraints.functionals(statistics)
        np.testing.assert_allclose(record.functionals, functionals, rtol=1e-12)
        wrong = points[k].argmax(axis=1) != y
        assert record.error == pytest.approx(np.average(wrong, weights=weight), rel=1e-12)
        assert np.isnan(record.fritz_john)
        np.testing.assert_array_equal(record.multipliers, multipliers[k])
        assert record.bounds.tolist() == [0.05, 0.5]
        moved = lag.bregman(points[k], points[k - 1]) if k else 0.0
        assert record.bregman == pytest.approx(moved, rel=1e-12)
    seconds = [r.seconds for r in solver.history]
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] <= seconds[-1] <= solver.elapsed


@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_outer_iteration_may_be_begun_by_hand(n_classes):
    """Exact learners start iterations themselves and get the path of the calls."""
    y, scores, weight, _ = draw(n_classes)
    called, begun = (ABPPSolver(build(y, [class_error(1) <= 0.02], weight)) for _ in range(2))
    for i in range(4):
        margin = scores + 0.1 * i
        answer = [x.copy() for x in called(margin)]
        point = begun.lagrangian.at(margin)
        begun.begin_iteration(point)
        assert np.array_equal(answer, begun.gradient(point))
    assert [r.multipliers.tolist() for r in called.history] == [
        r.multipliers.tolist() for r in begun.history
    ]


def test_single_precision_takes_the_path_of_double_precision():
    y, scores, weight, _ = draw(3, n=300)
    constraints = [class_error(0) <= 0.05, log_loss(on=label(1)) <= 0.3]
    paths = []
    for dtype in (np.float32, np.float64):
        solver = ABPPSolver(build(y, constraints, weight, dtype=dtype), rounds_per_iteration=2)
        answers = run(solver, 8, scores.astype(np.float32).astype(dtype))
        assert answers[0][0].dtype == dtype
        paths.append(np.array([r.multipliers for r in solver.history]))
    assert paths[1].any(axis=0).all()
    np.testing.assert_allclose(*paths, rtol=1e-4, atol=1e-5)
