"""Step sizes of boosters: proximal weights, strides, opposite rows."""

import numpy as np
import pytest
from solver_problems import HALF, NONE, QUARTER, Y, build, with_groups

import gbm_constrained as gc
from gbm_constrained.solvers import ABPPSolver
from gbm_constrained.solvers.abpp import cancel_opposites


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
    assert exact.subproblem.proximal_weight == 0.25


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
    np.testing.assert_allclose(solver.subproblem.proximal_weight, 0.5 * share, rtol=1e-12)


def test_the_proximal_term_of_two_classes_stays():
    solver = ABPPSolver(build(Y, [gc.error_rate() <= 0.1]), lazy=True)
    solver(9.0 * HALF)
    assert np.array_equal(solver.subproblem.proximal_weight, [0.25, 0.25])


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
