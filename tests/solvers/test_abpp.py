"""ABPP: its step sizes, those of boosters, its dual steps by hand, and sums of multipliers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from solver_problems import HALF, NONE, QUARTER, Y, build, draw, run, with_groups

import gbm_constrained as gc
from gbm_constrained.problem.kernels import rate_lipschitz
from gbm_constrained.solvers import ABPPSolver
from gbm_constrained.solvers.abpp import cancel_opposites, hold_sum


def trajectory(mu, n_iterations, tau=0.5, **options):
    """1 / tau_k and sigma_k of each iteration."""
    solver = ABPPSolver(build(Y, [gc.fnr() <= 0.1]), tau=tau, mu=mu, **options)
    taus, sigmas = [], []
    for _ in range(n_iterations):
        solver(HALF)
        taus.append(1 / solver.inverse_tau)
        sigmas.append(solver.ergodic_weights[-1] * solver.sigma)
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
    solver = ABPPSolver(build(Y, [gc.fnr() <= 0.1]), mu=mu, initial_multipliers=np.array([100.0]))
    for margin in (HALF, QUARTER, HALF, QUARTER, NONE):
        solver(margin)
    t = np.array(solver.ergodic_weights)
    assert t[0] == 1.0
    rates = np.array([r.rates[0] for r in solver.history])
    multipliers = np.array([r.multipliers[0] for r in solver.history])
    step = solver.sigma * t[1:] / 0.125
    z = np.diff(multipliers) / step
    theta = (z - (rates[1:] - 0.1)) / np.diff(rates)
    np.testing.assert_allclose(t[1:] * theta, t[:-1], rtol=1e-9)


@pytest.mark.parametrize(("n_classes", "tau"), [(2, 4.0), (3, 2.0), (7, 2.0)])
def test_default_steps_are_the_largest_the_theory_allows(n_classes, tau):
    """tau sigma L^2 = 1, L the norm of the constraints scaled to their own constants."""
    y, _, weight, mask = draw(n_classes)
    overlapping = [gc.class_error(0) <= 0.1, gc.error_rate(on=mask) <= 0.1, gc.log_loss() <= 1]
    disjoint = [gc.class_error(0) <= 0.1, gc.log_loss(on=gc.label(1)) <= 0.1]
    for constraints, alone in ((overlapping, False), (disjoint, True)):
        lag = build(y, constraints, weight)
        solver = ABPPSolver(lag)
        own, norm = lag.constants.lipschitz()
        scaled = lag.constants.sensitivities.toarray() / own[:, None]
        assert norm == pytest.approx(np.linalg.norm(scaled, 2), rel=1e-12)
        assert np.array_equal(solver.current_lipschitz, own)
        assert solver.tau == tau
        assert solver.tau * solver.sigma * norm**2 == pytest.approx(1.0, rel=1e-12)
        assert np.isclose(norm, 1.0) == alone
        assert ABPPSolver(lag, tau=0.1).sigma == pytest.approx(solver.sigma * tau / 0.1)
        assert ABPPSolver(lag, tau=0.1, sigma=7.0).sigma == 7.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_boosters_take_losses_to_be_no_steeper_than_rates(n_classes):
    """Lazy solvers: a mean loss moves its multiplier in steps as long as those of its rate."""
    y, _, weight, mask = draw(n_classes)
    losses = [gc.log_loss(on=gc.label(0)) <= 0.1, gc.log_loss(on=mask) <= 1]
    rates = [gc.class_error(0) <= 0.1, gc.error_rate(on=mask) <= 0.1]
    lag = build(y, losses, weight)
    lazy, exact = ABPPSolver(lag, lazy=True), ABPPSolver(lag)
    slope = rate_lipschitz(n_classes)
    np.testing.assert_allclose(
        lazy.current_lipschitz, build(y, rates, weight).constants.lipschitz()[0]
    )
    np.testing.assert_allclose(lazy.current_lipschitz, lag.constants.lipschitz(slope)[0])
    np.testing.assert_allclose(exact.current_lipschitz, 4 * lazy.current_lipschitz)
    assert lazy.sigma == pytest.approx(exact.sigma)


def test_the_dual_step_of_each_constraint_is_over_its_squared_constant():
    """Of a rare and of a common class; from one iteration at known rates."""
    y = np.repeat([0, 1], [90, 10])
    lag = build(y, [gc.fpr() <= 0.1, gc.fnr() <= 0.2])
    solver = ABPPSolver(lag)
    solver(np.where(y == 1, -1.0, 1.0))
    squares = (0.25 / np.sqrt([0.9, 0.1])) ** 2
    np.testing.assert_allclose(solver.multipliers, solver.sigma / squares * [0.9, 0.8], rtol=1e-12)


def test_steps_do_not_depend_on_the_number_of_rows():
    y, scores, weight, _ = draw(2)
    paths = []
    for copies in (1, 5):
        rows = np.repeat(np.arange(60), copies)
        solver = ABPPSolver(build(y[rows], [gc.fnr() <= 0.01], weight[rows]))
        run(solver, 5, scores[rows])
        paths.append([r.multipliers[0] for r in solver.history])
    np.testing.assert_allclose(paths[0], paths[1], rtol=1e-10)
    assert paths[0][-1] > 0


def test_lipschitz_constants_of_another_distance():
    """Given constants replace those in scores; the default sigma is safe for any m constraints."""
    lag = build(Y, [gc.fpr() <= 0.1, gc.fnr() <= 0.1])
    solver = ABPPSolver(lag, tau=0.5, lipschitz=np.array([1.0, 10.0]))
    assert solver.sigma == pytest.approx(1 / (0.5 * 2))
    solver(-NONE)
    np.testing.assert_allclose(solver.multipliers, solver.sigma * np.array([0.9, 0.009]))


def test_the_dual_step_extrapolates():
    """z_0 = g_0, then z_1 = g_1 + (g_1 - g_0): rates 0.5 and 0.25 against 0.1.

    In this test and the next ones L^2 = (1/4)^2 / (1/2) = 1/8, tau = 4 and sigma = 1/4, so that
    sigma / L^2 = 2.
    """
    solver = ABPPSolver(build(Y, [gc.fnr() <= 0.1]))
    assert (solver.tau, solver.sigma) == pytest.approx((4.0, 0.25))
    solver(HALF)
    assert solver.multipliers == pytest.approx([2 * 0.4])
    solver(QUARTER)
    assert solver.multipliers == pytest.approx([0.8 + 2 * (0.15 - 0.25)])


def test_multipliers_are_projected():
    """The step would leave -0.1: the multiplier is zero, and grows again from there."""
    solver = ABPPSolver(build(Y, [gc.fnr() <= 0.1]))
    for margin in (HALF, QUARTER):
        solver(margin)
    solver(NONE)
    assert solver.multipliers.tolist() == [0.0]
    solver(QUARTER)
    assert solver.multipliers == pytest.approx([2 * (0.15 + 0.25)])


def test_progress_divides_the_observed_change():
    """A learner that goes half of the way is extrapolated twice as far."""
    solver = ABPPSolver(build(Y, [gc.fnr() <= 0.1]), progress=0.5)
    solver(HALF)
    assert solver.multipliers == pytest.approx([0.8])
    solver(QUARTER)
    assert solver.multipliers == pytest.approx([0.8 + 2 * (0.15 - 0.25 / 0.5)])


def test_an_accelerated_dual_step():
    """mu = 1, tau = 4: theta_1 = 1 / sqrt 5 and sigma_1 = sqrt 5 / 4."""
    solver = ABPPSolver(build(Y, [gc.fnr() <= 0.1]), mu=1.0)
    solver(HALF)
    solver(QUARTER)
    root = np.sqrt(5)
    assert solver.multipliers == pytest.approx([0.8 + 2 * root * (0.15 - 0.25 / root)])
    assert solver.inverse_tau == pytest.approx(root / 4)


def test_a_warm_start():
    """y_0 enters the first dual step, and the caller's array is left alone."""
    start = np.array([3.0])
    solver = ABPPSolver(build(Y, [gc.fnr() <= 0.1]), initial_multipliers=start)
    solver(NONE)
    assert solver.multipliers == pytest.approx([3.0 - 2 * 0.1])
    assert start.tolist() == [3.0]
    with_integers = ABPPSolver(build(Y, [gc.fnr() <= 0.1]), initial_multipliers=[3])
    with_integers(NONE)
    assert with_integers.multipliers == pytest.approx([2.8])


@pytest.mark.parametrize("keep", [True, False])
def test_the_proximal_term_of_idle_multipliers(keep):
    """Kept by default; dropped, with `lazy`, exactly while no multiplier works."""
    lag = build(Y, [gc.fnr() <= 0.1])
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
def test_steps_of_boosters_do_not_overshoot_under_a_multiplier(lazy):
    """Without multipliers a fit is the library's own; exact learners keep their own steps."""
    lag = build(Y, [gc.fnr() <= 0.1])
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
    lag = build(Y, [gc.fnr() <= 0.1])
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
    assert exact.proximal_term[1] == 0.25


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
        build(y, [gc.error_rate() <= 0.1]), lazy=True
    )  # of all rows, at a rate of one
    solver(margin)
    np.testing.assert_allclose(solver.proximal_term[1], 0.5 * share, rtol=1e-12)


def test_the_proximal_term_of_two_classes_stays():
    solver = ABPPSolver(build(Y, [gc.error_rate() <= 0.1]), lazy=True)
    solver(9.0 * HALF)
    assert np.array_equal(solver.proximal_term[1], [0.25, 0.25])


def test_dual_steps_grow_while_a_constraint_does_not_move():
    """By 1 + p while it stays violated, by half back when crossed, from one to fifty."""
    margins = [*[HALF] * 4, NONE, QUARTER, NONE, NONE, HALF]
    #           1/2 - 1/8: first seen, 3 times the same, crossed 3 times, inside, crossed
    bound, p = 0.125, 0.4
    solver = ABPPSolver(build(Y, [gc.fnr() <= bound]), lazy=True, progress=p)
    still = ABPPSolver(
        build(Y, [gc.fnr() <= bound]), lazy=True, progress=p, lipschitz=solver.current_lipschitz
    )
    grown, strides = 1.0, []
    for margin in margins:
        solver(margin)
        strides.append(solver.strides[0])
    for step in ("first", "same", "same", "same", "cross", "cross", "cross", "inside", "cross"):
        factor = {"first": 1.0, "same": 1.4, "inside": 1.4, "cross": 0.5}[step]
        grown = max(grown * factor, 1.0)
        assert strides.pop(0) == pytest.approx(grown)
    for _ in range(200):
        solver(HALF)
    assert solver.strides[0] == 50
    before = still.multipliers.copy()
    still(HALF)
    first = still.multipliers - before
    still(HALF)
    np.testing.assert_allclose(still.multipliers - before - first, 1.4 * first)
    exact = ABPPSolver(build(Y, [gc.fnr() <= bound]), progress=p)
    for _ in range(5):
        exact(HALF)
    assert exact.strides[0] == 1.0


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


@pytest.mark.parametrize("seed", range(8))
def test_the_nearest_multipliers_have_one_violation_in_common(seed):
    """They are max(y - theta s c, 0) with the theta that a root finder gives."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 30))
    y, step, shares = rng.exponential(5.0, (3, m))
    shares[rng.random(m) < 0.2] = 0.0  # of strict rows
    y[rng.random(m) < 0.2] = 0.0

    def moved(theta):
        return np.maximum(y - theta * step * shares, 0.0)

    expected = y
    if shares @ y > 1.0:
        expected = moved(brentq(lambda theta: shares @ moved(theta) - 1.0, 0.0, 1e6, xtol=1e-14))
        assert shares @ expected == pytest.approx(1.0)
    np.testing.assert_allclose(hold_sum(y, step, shares), expected, rtol=1e-6, atol=1e-9)


def test_multipliers_within_the_sum_stay_as_they_are():
    y = np.array([0.5, 0.0, 3.0])
    assert hold_sum(y, np.ones(3), np.array([1.0, 9.0, 0.0])) is y
    stuck = np.array([4.0])  # No step moves it.
    np.testing.assert_array_equal(hold_sum(stuck, np.zeros(1), np.ones(1)), stuck)
