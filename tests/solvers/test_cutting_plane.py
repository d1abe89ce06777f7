"""Cutting planes over multipliers: bounds around known optima, and the point that is returned."""

from __future__ import annotations

import numpy as np
import pytest
from dataset_rate_problems import RateProblemDraw
from hypothesis import given
from references import random, seeds
from scipy.optimize import minimize
from scipy.spatial import ConvexHull, HalfspaceIntersection, QhullError

from gbm_constrained.solvers.cutting_plane import (
    FEASIBLE,
    CuttingPlane,
    DualCut,
    _minimize,
    find_centroid,
    hypograph_of,
)
from gbm_constrained.solvers.dataset_rates import ConvexProblem

CHOOSERS = ["maximum", "centroid"]


def find_volume(normals, offsets):
    """The volume by corners, in coordinates in which the box of the body is the unit cube."""
    axes = np.eye(normals.shape[1])
    low, high = (
        np.array([sign * _minimize(sign * axis, normals, offsets)[-1] for axis in axes])
        for sign in (1.0, -1.0)
    )
    if not (high > low).all():
        return 0.0
    normals, offsets = normals * (high - low), offsets - normals @ low
    norms = np.linalg.norm(normals, axis=1)
    kept = norms > 0
    normals, offsets = normals[kept] / norms[kept, None], offsets[kept] / norms[kept]
    costs = -np.eye(low.size + 1)[-1]
    ball = _minimize(costs, np.column_stack([normals, np.ones(kept.sum())]), offsets)
    if not ball[low.size] > 1e-10:
        return 0.0
    faces = np.column_stack([normals, -offsets])
    try:
        corners = HalfspaceIntersection(faces, ball[: low.size]).intersections
        hull = ConvexHull(corners[np.isfinite(corners).all(axis=1)])
    except QhullError:
        return 0.0
    return hull.volume * np.prod(high - low)


def cone(m, limit, height):
    """A linear model that falls to the level 0 where the sum of v reaches the limit: a simplex."""
    objectives, violations = np.array([height]), np.full((1, m), -height / limit)
    return hypograph_of(objectives, violations, limit, 0.0)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 6])
def test_simplex(m):
    """The centre is the mean of the corners; exact up to three rules, sampled beyond."""
    body = cone(m, limit=5.0, height=2e-4)
    centre = find_centroid(*body, np.random.default_rng(0))
    expected = np.append(np.full(m, 5.0), 2e-4) / (m + 2)
    np.testing.assert_allclose(centre, expected, rtol=1e-7 if m <= 3 else 0.08)
    if m <= 3:
        factorial = np.prod(np.arange(1, m + 2))
        assert find_volume(*body) == pytest.approx(5.0**m * 2e-4 / factorial, rel=1e-7)


@random(10)
@given(seeds)
def test_centre_and_volume_against_samples_of_a_box(seed):
    rng = np.random.default_rng(seed)
    d = 2 + seed % 3
    normals = np.vstack([np.eye(d), -np.eye(d), rng.normal(size=(4, d))])
    offsets = np.concatenate([np.ones(2 * d), rng.uniform(0.2, 1.0, 4)])
    body = normals, offsets
    drawn = rng.uniform(-1, 1, size=(40_000, d))
    inside = drawn[(drawn @ normals.T <= offsets).all(axis=1)]
    share = inside.shape[0] / 40_000
    error = 5 * np.sqrt(share * (1 - share) / 40_000) * 2**d
    assert find_volume(*body) == pytest.approx(share * 2**d, abs=error)
    centre = find_centroid(*body, rng)
    np.testing.assert_allclose(centre, inside.mean(axis=0), atol=5 * np.sqrt(1 / inside.shape[0]))


def test_a_body_without_volume_has_no_centre():
    rng = np.random.default_rng(0)
    flat = hypograph_of(np.array([1.0]), np.array([[0.0]]), 1.0, 1.0)
    empty = hypograph_of(np.array([1.0]), np.array([[0.0]]), 1.0, 2.0)
    for body in (flat, empty):
        assert find_centroid(*body, rng) is None
        assert find_volume(*body) == 0.0


class Quadratics:
    """Least ``|x - c|^2 / 2`` with ``k_j |x - c_j|^2 / 2 <= r_j``, whose dual function is known.

    The oracle answers with a point and a bound that are `inexact` times its tolerance away.
    """

    def __init__(self, seed, m, inexact=0.0, d=4, room=0.02):
        rng = np.random.default_rng(seed)
        self.c, self.centres = rng.normal(size=d), rng.normal(size=(m, d))
        self.k, self.inside = rng.uniform(0.5, 2.0, m), rng.normal(size=d) / 2
        self.r = self.k * ((self.inside - self.centres) ** 2).sum(axis=1) / 2 + room
        self.inexact, self.rng, self.asked = inexact, rng, []

    def at(self, x, lower=-np.inf):
        violations = self.k * ((x - self.centres) ** 2).sum(axis=1) / 2 - self.r
        return DualCut(x, ((x - self.c) ** 2).sum() / 2, violations, lower)

    def best(self, v):
        x = (self.c + (v * self.k) @ self.centres) / (1 + v @ self.k)
        cut = self.at(x)
        return cut._replace(lower=cut.objective + v @ cut.violations)

    def minimize(self, multipliers, tolerance):
        self.asked.append(tolerance)
        best = self.best(multipliers)
        away = self.rng.normal(size=self.c.size)
        curvature = 1 + multipliers @ self.k
        away *= np.sqrt(self.inexact * tolerance / curvature) / np.linalg.norm(away)
        return self.at(best.point + away, best.lower - self.inexact * tolerance / 2)

    @property
    def start(self):
        return [self.at(self.inside, 0.0)]

    @property
    def optimum(self):
        found = minimize(
            lambda x: self.at(x).objective,
            self.inside,
            method="SLSQP",
            constraints={"type": "ineq", "fun": lambda x: -self.at(x).violations},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return found.fun


@pytest.mark.parametrize("chooser", CHOOSERS)
@pytest.mark.parametrize(
    ("inexact", "m"), [*((inexact, m) for inexact in (0.0, 1.0) for m in (1, 2, 3)), (1.0, 5)]
)
def test_bounds_enclose_the_optimum(chooser, inexact, m):
    for seed in range(1 if m > 3 else 2):
        problem = Quadratics(seed, m, inexact)
        found = CuttingPlane(1e-5, chooser).solve(problem.minimize, problem.start)
        optimum = problem.optimum
        assert found.upper - found.lower <= 1e-5
        assert found.lower <= optimum + 1e-8
        assert optimum <= found.upper + 1e-8
        at_point = problem.at(found.point)
        assert found.violations.max() <= FEASIBLE
        assert (at_point.violations <= found.violations + 1e-12).all()
        assert at_point.objective <= found.objective + 1e-12
        assert found.objective <= found.upper + 1e-9
        assert problem.best(found.multipliers).lower >= found.lower - 1e-12


def test_half_of_the_gap_is_asked_for():
    """The oracle's tolerance falls with the bounds, and early answers may be far from exact."""
    problem = Quadratics(0, 2, inexact=1.0)
    CuttingPlane(1e-6).solve(problem.minimize, problem.start)
    assert (np.diff(problem.asked) <= 0).all()
    assert problem.asked[0] > 0.01
    assert problem.asked[-1] >= 1e-6 / 2


@pytest.mark.parametrize("m", [1, 3])
def test_exact_cuts_at_the_centre_leave_at_most_a_known_share_of_the_volume(m):
    """Gruenbaum's bound, ``1 - 1 / e``."""
    rng, n_cuts = np.random.default_rng(0), 0

    def body_of(cuts):
        _, objectives, violations, lower = map(np.array, zip(*cuts, strict=True))
        return hypograph_of(objectives, violations, 10.0, lower.max())

    for seed in range(1, 3):
        problem = Quadratics(seed, m)
        cuts = problem.start
        body = body_of(cuts)
        volume = find_volume(*body)
        while (centre := find_centroid(*body, rng)) is not None and volume > 1e-20:
            cuts.append(problem.best(np.maximum(centre[:-1], 0.0)))
            body = body_of(cuts)
            left = find_volume(*body)
            assert left <= 0.633 * volume
            volume, n_cuts = left, n_cuts + 1
    assert n_cuts > 20


@pytest.mark.parametrize("chooser", CHOOSERS)
def test_a_limit_that_binds_is_raised(chooser):
    problem = Quadratics(3, 2, room=1e-4)
    loose = CuttingPlane(1e-5, chooser, limit=1e3).solve(problem.minimize, problem.start)
    assert loose.multipliers.sum() > 0.5
    # A start that violates the rules leaves it to the limit how much is paid for that.
    start = [problem.best(np.zeros(2))]
    assert start[0].violations.max() > 0
    found = CuttingPlane(1e-5, chooser, limit=0.01).solve(problem.minimize, start)
    assert found.limit > 0.01
    assert found.violations.max() <= FEASIBLE
    assert found.upper == pytest.approx(loose.upper, abs=2e-5)


def test_rules_that_cannot_be_met_are_not_reported_as_met():
    """With a limit of the multipliers, their violation is paid for at that price."""
    problem = Quadratics(4, 2)
    problem.r[:] = -0.1
    found = CuttingPlane(1e-5, limit=50.0, max_limit=50.0).solve(
        problem.minimize, [problem.best(np.zeros(2))]
    )
    assert found.violations.max() > FEASIBLE
    assert found.multipliers.sum() == pytest.approx(50.0)

    def priced(x):
        cut = problem.at(x[:-1])
        return cut.objective + 50.0 * x[-1]

    slack = {
        "type": "ineq",
        "fun": lambda x: np.append(x[-1] - problem.at(x[:-1]).violations, x[-1]),
    }
    start = np.append(problem.inside, 1.0)
    exact = minimize(priced, start, method="SLSQP", constraints=slack, options={"ftol": 1e-14})
    assert found.lower - 1e-7 <= exact.fun <= found.upper + 1e-7
    assert found.violations.max() == pytest.approx(exact.x[-1], abs=1e-3)


@pytest.mark.parametrize("chooser", CHOOSERS)
def test_rules_that_cost_nothing_have_no_multipliers(chooser):
    problem = Quadratics(5, 2)
    problem.r += 100.0
    found = CuttingPlane(1e-8, chooser).solve(problem.minimize, problem.start)
    assert found.multipliers.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(found.point, problem.c, atol=1e-4)


def test_without_rules_one_answer_is_enough():
    problem = Quadratics(6, 0)
    found = CuttingPlane(1e-8).solve(problem.minimize, problem.start)
    assert len(problem.asked) == 1
    np.testing.assert_array_equal(found.point, problem.c)


def test_an_early_end_reports_the_bounds_so_far():
    problem = Quadratics(7, 3)
    found = CuttingPlane(1e-9, max_cuts=3).solve(problem.minimize, problem.start)
    assert found.n_cuts == 3
    assert found.upper - found.lower > 1e-9
    assert found.lower <= problem.optimum <= found.upper
    assert found.violations.max() <= FEASIBLE


def test_a_search_ends_when_it_is_told():
    """What is known before the first answer is a point that meets the rules, and its bounds."""
    problem = Quadratics(7, 3)
    answers = iter([False, False, True])
    found = CuttingPlane(1e-9, is_over=lambda: next(answers)).solve(
        problem.minimize, problem.start
    )
    assert found.n_cuts == 2 == len(problem.asked)
    found = CuttingPlane(1e-9, is_over=lambda: True).solve(problem.minimize, problem.start)
    assert found.n_cuts == 0
    np.testing.assert_array_equal(found.point, problem.inside)
    assert found.lower <= problem.optimum <= found.upper


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_problem_3_against_a_conic_solver(m):
    """Problem 3 at random scores, and the same with slack for rules that these violate."""
    cp = pytest.importorskip("cvxpy")
    for seed in range(3):
        draw = RateProblemDraw(seed, m)
        reference = draw.rng.normal(size=draw.zeros.size) * 0.2 * (seed > 0)
        oracle = ConvexProblem(draw.problem, draw.model, reference)
        start = oracle.start()
        slack = np.maximum(start.violations, 0.0) + 1e-3
        draw.problem.bounds[:] += slack
        found = CuttingPlane(1e-5).solve(oracle.minimize, [oracle.start()])
        w, c = cp.Variable(draw.X.shape[1]), cp.Variable()
        z, z0 = draw.X @ w + c, draw.model.scores(reference)
        up = cp.multiply(z0 <= 0.5, cp.pos(0.5 + z)) + (z0 > 0.5)
        down = cp.multiply(z0 >= -0.5, cp.pos(0.5 - z)) + (z0 < -0.5)
        total = draw.members.sum(axis=1, keepdims=True)
        least = draw.costs.min(axis=2)
        functions = [
            (costs[:, 1] - floor) @ (draw.members / total @ up)
            + (costs[:, 0] - floor) @ (draw.members / total @ down)
            + floor.sum()
            for costs, floor in zip(draw.costs, least, strict=True)
        ]
        rules = [f <= b for f, b in zip(functions[1:], draw.problem.bounds, strict=True)]
        penalty = draw.model.l2 / 2 * cp.sum_squares(w)
        optimum = cp.Problem(cp.Minimize(functions[0] + penalty), rules).solve(solver="CLARABEL")
        assert found.lower - 1e-7 <= optimum <= found.upper + 1e-7
        assert found.upper - found.lower <= 1e-5
        assert oracle.at(found.point).violations.max() <= 1e-6
        assert oracle.at(found.point).objective <= found.upper + 1e-9
