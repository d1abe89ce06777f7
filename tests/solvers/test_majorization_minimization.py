"""Majorisation-minimisation: a verified example, its promises, and degenerate starts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from dataset_rate_problems import RateProblemDraw
from scipy import sparse

import gbm_constrained as gc
import gbm_constrained.linear_model
import gbm_constrained.solvers
from gbm_constrained.exceptions import InfeasibleConstraintsError
from gbm_constrained.linear_model.hinge import WeightedSVM
from gbm_constrained.solvers.cutting_plane import CuttingPlane
from gbm_constrained.solvers.dataset_rates import (
    ConvexProblem,
    Losses,
    MajorizationMinimization,
    RateProblem,
    find_factor,
    find_start,
)

EXACT = MajorizationMinimization(tol=-1.0, gap=1e-9, first_gap=1e-9, max_iter=4)


def neyman_pearson(fpr=0.1, fnr=None):
    """The example of 25 positives and 35 negatives; both features are independent normals."""
    r = np.random.default_rng(3)
    P = r.normal(size=(25, 2)) * 0.9 + [1.2, 0.4]
    N = r.normal(size=(35, 2)) * 0.9 - [0.3, 0.2]
    members = np.vstack([np.repeat([1 / 25, 0], [25, 35]), np.repeat([0, 1 / 35], [25, 35])])
    costs = np.zeros((2 if fnr is None else 3, 2, 2))
    costs[0, 0, 0] = costs[1, 1, 1] = 1.0
    bounds, names = [fpr], ["fpr"]
    if fnr is not None:
        costs[2, 0, 0] = 1.0
        bounds, names = [fpr, fnr], ["fpr", "fnr"]
    problem = RateProblem.of(sparse.csr_array(members), costs, np.array(bounds), tuple(names))
    return problem, WeightedSVM(np.vstack([P, N]), 0.01)


def test_the_objective_may_be_a_sum_of_rates_of_several_data_sets():
    """Problem 1: errors of one data set and selections of another, under a recall."""
    rng = np.random.default_rng(0)
    X, unlabelled = rng.normal(size=(80, 2)), rng.normal(size=(40, 2)) + 0.5
    y = X[:, 0] + rng.normal(size=80) > 0
    members = np.zeros((3, 120))
    members[0, :80], members[1, :80], members[2, 80:] = y / y.sum(), ~y / (~y).sum(), 1 / 40
    positive, negative = np.zeros((2, 2, 3))
    negative[0, 0] = positive[0, 1] = 0.5
    positive[0, 2] = 0.3  # The further selections are in the objective.
    negative[1, 0] = 1.0
    problem = gc.solvers.RateProblem(
        sparse.csr_array(members), positive, negative, np.zeros(2), np.array([0.1]), ("fnr",)
    )
    model = gc.linear_model.WeightedSVM(np.vstack([X, unlabelled]), 0.01)
    steps = gc.solvers.MajorizationMinimization().solve(problem, model, np.array([0, 0, 0.45]))
    z = model.scores(steps[-1].coefficients)
    of_y, others = 0.5 + np.clip(z[:80], -0.5, 0.5), 0.5 + np.clip(z[80:], -0.5, 0.5)
    errors = (1 - of_y[y]).mean() / 2 + of_y[~y].mean() / 2
    penalty = model.penalty(steps[-1].coefficients)
    assert steps[-1].objective == pytest.approx(errors + 0.3 * others.mean() + penalty)
    assert steps[-1].objective < steps[0].objective - 0.1
    assert (1 - of_y[y]).mean() <= 0.1 + 1e-9


@pytest.mark.parametrize("chooser", ["maximum", "centroid"])
def test_verified_example(chooser):
    """Optima and multipliers of Problem 3 by an exact quadratic programme, to printed digits."""
    problem, model = neyman_pearson()
    method = replace(EXACT, search=CuttingPlane(1.0, chooser))
    steps = method.solve(problem, model, np.array([0.0, 0.0, -0.4]))
    assert steps[0].objective == pytest.approx(0.9)
    expected = [
        (0.376303, 1.7704, 0.306915, 0.100000, 0.32, 0.0571),
        (0.278794, 0.9768, 0.278794, 0.098126, 0.28, 0.0857),
        (0.274572, 1.0841, 0.274572, 0.100000, 0.28, 0.0857),
        (0.274572, 1.0841, 0.274572, 0.100000, 0.28, 0.0857),
    ]
    for step, (optimum, multiplier, objective, fpr, hard_fnr, hard_fpr) in zip(
        steps[1:], expected, strict=True
    ):
        assert [step.lower, step.upper] == pytest.approx([optimum] * 2, abs=1e-6)
        assert step.multipliers == pytest.approx([multiplier], abs=1e-4)
        assert step.objective == pytest.approx(objective, abs=1e-6)
        z = model.scores(step.coefficients)
        assert problem.ramp_values(z)[1] == pytest.approx(fpr, abs=1e-6)
        assert problem.hard_values(z) == pytest.approx([hard_fnr, hard_fpr], abs=1e-4)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_promises_of_every_step(first):
    """Rough bounds of Problem 3 change nothing of it."""
    for seed in range(first, first + 50):
        draw = RateProblemDraw(seed, 1 + seed % 3, n=40, slack=0.01)
        method = MajorizationMinimization(max_iter=3, gap=1e-4, first_gap=1e-2)
        steps = method.solve(draw.problem, draw.model, draw.zeros)
        for last, step in pairwise(steps):
            assert step.objective <= last.objective + 1e-9
            assert step.violation <= 1e-9
            assert step.lower <= step.upper
            assert step.upper - step.lower <= 1e-2
            z = draw.model.scores(step.coefficients)
            values = draw.problem.ramp_values(z)
            assert step.violation == draw.problem.violations(values).max()


def test_oracle_of_saturated_rows():
    """Costs that no coefficients avoid are part of objective, bounds and Lagrangian."""
    draw = RateProblemDraw(1, 2)
    oracle = ConvexProblem(draw.problem, draw.model, draw.rng.normal(size=4))
    assert (np.abs(oracle.reference) > 0.5).mean() > 0.3
    multipliers = np.array([0.3, 0.7])
    cut = oracle.minimize(multipliers, 1e-7)
    at_cut = cut.objective + multipliers @ cut.violations
    assert cut.lower <= at_cut <= cut.lower + 1e-7
    for _ in range(50):
        other = oracle.at(cut.point + draw.rng.normal(size=4) * 0.05)
        assert other.objective + multipliers @ other.violations >= cut.lower
    assert oracle.start().lower <= oracle.minimize(np.zeros(2), 1e-7).lower


def test_tight_convex_problem_is_a_fixed_point():
    """Groups that differ much hold the zero start at a constant; exact value of 27 / 80."""
    r = np.random.default_rng(7)
    XA = np.array([0.8, 0.3]) + r.normal(size=(40, 2))
    yA = XA @ [1, 0.5] + 0.6 * r.normal(size=40) > 0.6
    XB = r.normal(size=(40, 2)) - [0.4, 0]
    yB = XB @ [1, 0.5] + 0.6 * r.normal(size=40) > 0.6
    y, in_a = np.r_[yA, yB], np.repeat([True, False], 40)
    shares = np.vstack([y / 80, ~y / 80, in_a / 40, ~in_a / 40])
    costs = np.zeros((2, 4, 2))
    costs[0, 0, 0] = costs[0, 1, 1] = costs[1, 3, 0] = 1.0
    costs[1, 2, 1] = 0.8
    problem = RateProblem.of(sparse.csr_array(shares), costs, np.ones(1), ("ratio",))
    model = WeightedSVM(np.vstack([XA, XB]), 0.02)
    method = MajorizationMinimization(tol=1e-9, gap=1e-8)
    steps = method.solve(problem, model, np.zeros(3))
    assert steps[-1].objective == pytest.approx(27 / 80, abs=1e-6)
    np.testing.assert_allclose(steps[-1].coefficients, [0, 0, -0.5], atol=1e-3)


def test_saturated_start_is_a_fixed_point_and_is_shrunk():
    problem, model = neyman_pearson()
    saturated = np.array([0.0, 0.0, -10.0])
    steps = EXACT.solve(problem, model, saturated)
    assert [step.objective for step in steps] == pytest.approx([1.0] * 5)
    start = find_start(problem, model, EXACT, saturated)
    np.testing.assert_array_equal(start.coefficients, start.factor * saturated)
    assert 0.04 <= start.factor <= 0.05
    moved = EXACT.solve(problem, model, start.coefficients)
    assert moved[-1].objective < 0.28
    assert moved[-1].violation <= 1e-9


def test_start_that_moves_is_kept():
    problem, model = neyman_pearson()
    good = EXACT.solve(problem, model, np.array([0.0, 0.0, -0.4]))[-1].coefficients
    assert find_start(problem, model, EXACT, good).factor == 1.0
    # Larger scores meet a rule on decisions that the ramp of these scores violates.
    tight, _ = neyman_pearson(fpr=0.09)
    factor = find_factor(tight, model.scores(good), EXACT.losses)
    assert factor > 1.0
    assert tight.violations(tight.ramp_values(factor * model.scores(good))).max() <= 1e-9


def test_constant_start_is_the_one_nearest_to_even_odds():
    problem, model = neyman_pearson()
    np.testing.assert_allclose(find_start(problem, model, EXACT).coefficients, [0, 0, -0.4])
    loose, _ = neyman_pearson(fpr=0.7)
    np.testing.assert_array_equal(find_start(loose, model, EXACT).coefficients, np.zeros(3))


@pytest.mark.parametrize("fnr", [0.35, 0.29])
def test_rules_that_no_constant_meets(fnr):
    problem, model = neyman_pearson(fnr=fnr)
    assert problem.feasible_shares() is None
    start = find_start(problem, model, MajorizationMinimization(max_iter=1))
    assert start.n_iter == 2  # Most steps are those of the objective.
    assert problem.violations(problem.ramp_values(model.scores(start.coefficients))).max() <= 0
    steps = MajorizationMinimization().solve(problem, model, start.coefficients)
    assert steps[-1].objective < steps[0].objective
    assert steps[-1].violation <= 1e-9


def test_rules_in_conflict_are_named():
    problem, model = neyman_pearson(fpr=0.02, fnr=0.02)
    with pytest.raises(InfeasibleConstraintsError, match="fpr and fnr in conflict"):
        find_start(problem, model, MajorizationMinimization())


def test_without_rules_and_with_rules_that_cost_nothing():
    problem, model = neyman_pearson(fpr=1.0)
    none = RateProblem(
        problem.shares, problem.positive[:1], problem.negative[:1], np.zeros(1), np.zeros(0), ()
    )
    method = MajorizationMinimization(gap=1e-9, first_gap=1e-9)
    free = method.solve(none, model, find_start(none, model, method).coefficients)
    loose = method.solve(problem, model, np.zeros(3))
    assert loose[-1].multipliers.tolist() == [0.0]
    assert free[-1].objective == pytest.approx(loose[-1].objective, abs=1e-6)


def test_progress_ends_the_steps():
    problem, model = neyman_pearson()
    start = np.array([0.0, 0.0, -0.4])
    steps = MajorizationMinimization().solve(problem, model, start)
    assert len(steps) < 10
    assert steps[-2].objective - steps[-1].objective <= 1e-4
    assert len(MajorizationMinimization(max_iter=2).solve(problem, model, start)) == 3


def test_cuts_of_the_last_step_are_cuts_of_the_next():
    """A search that knows nothing needs more answers for the same convex problem."""
    continued = anew = 0
    for seed in range(6):
        draw = RateProblemDraw(seed, 2, slack=0.0)
        method = MajorizationMinimization(tol=0.0, max_iter=3)
        for last, step in pairwise(method.solve(draw.problem, draw.model, draw.zeros)[1:]):
            oracle = ConvexProblem(draw.problem, draw.model, last.coefficients)
            continued += step.n_cuts
            anew += CuttingPlane(step.asked).solve(oracle.minimize, [oracle.start()]).n_cuts
    assert 0 < 1.5 * continued <= anew


def test_steps_ask_for_no_more_than_their_end_needs():
    problem, model = neyman_pearson()
    for tol in (1e-2, 1e-4):
        method = MajorizationMinimization(tol=tol)
        steps = method.solve(problem, model, np.array([0.0, 0.0, -0.4]))
        for last, step in pairwise(steps[1:]):
            assert step.upper - step.lower <= step.asked
            assert step.asked >= tol * last.objective
    assert steps[1].asked == method.first_gap


HINGES = Losses("hinge", "hinge")


def test_hinges_are_one_convex_problem():
    draw = RateProblemDraw(2, 2)
    method = MajorizationMinimization(losses=HINGES, gap=1e-8, first_gap=1e-8)
    steps = method.solve(draw.problem, draw.model, draw.zeros)
    for step in steps[1:]:
        assert step.lower - 1e-9 <= steps[-1].objective <= step.upper + 1e-9
    z = draw.model.scores(steps[-1].coefficients)
    ramps = draw.problem.ramp_values(z)
    hinges = HINGES.values(draw.problem, z)
    assert (ramps <= hinges + 1e-12).all()
    assert draw.problem.violations(hinges).max() <= 1e-9


@pytest.mark.parametrize("losses", [Losses("ramp", "hinge"), Losses("hinge", "ramp")])
def test_a_hinge_in_one_place(losses):
    draw = RateProblemDraw(4, 3)
    steps = MajorizationMinimization(losses=losses).solve(draw.problem, draw.model, draw.zeros)
    z = draw.model.scores(steps[-1].coefficients)
    values = losses.values(draw.problem, z)
    ramps, hinges = draw.problem.ramp_values(z), HINGES.values(draw.problem, z)
    is_hinge = np.array([losses.objective == "hinge", *[losses.constraints == "hinge"] * 3])
    np.testing.assert_allclose(values, np.where(is_hinge, hinges, ramps), atol=1e-12)
    assert all(step.objective <= last.objective + 1e-9 for last, step in pairwise(steps))
    assert max(step.violation for step in steps) <= 1e-9


def with_outlier(distance):
    """Rows that one feature tells apart, and a rule on 20 of them, one of which lies far away."""
    rng = np.random.default_rng(0)
    n = 400
    y = rng.random(n) < 0.5
    X = np.column_stack([rng.normal(size=n) + np.where(y, 1.2, -1.2), rng.normal(size=n)])
    in_rule = np.arange(n) < 20
    y[:20], X[:20, 0] = False, -1.0 + 0.3 * rng.normal(size=20)
    X[0] = [distance, 0.0]
    labelled = np.arange(n) > 0
    shares = sparse.csr_array(np.vstack([labelled * y / n, labelled * ~y / n, in_rule / 20]))
    costs = np.zeros((2, 3, 2))
    costs[0, 0, 0] = costs[0, 1, 1] = costs[1, 2, 1] = 1.0
    problem = RateProblem.of(shares, costs, np.array([0.1]), ("false alarms",))
    return problem, WeightedSVM(X, 1e-3)


def test_one_outlier_breaks_a_hinge_and_costs_a_ramp_its_share():
    """The ramp pays one row in twenty for the outlier, and keeps nearly all of its accuracy."""
    method = MajorizationMinimization(max_iter=20)
    errors = {}
    for distance in (-1.0, 1e4):
        problem, model = with_outlier(distance)
        for losses in (Losses(), Losses("ramp", "hinge")):
            tried = replace(method, losses=losses)
            start = find_start(problem, model, tried).coefficients
            step = tried.solve(problem, model, start)[-1]
            assert step.violation <= 1e-9
            hard = problem.hard_values(model.scores(step.coefficients))
            errors[distance, losses.constraints] = hard[0]
            assert hard[1] <= 0.1
    assert errors[1e4, "ramp"] <= errors[-1.0, "ramp"] + 0.02
    assert errors[1e4, "hinge"] >= errors[-1.0, "hinge"] + 0.2
