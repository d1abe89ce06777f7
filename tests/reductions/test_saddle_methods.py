"""The ellipsoid method, and gradient descent and ascent: updates, projections, and optima."""

from __future__ import annotations

import numpy as np
import pytest
from atoms import AtomOracle, coverage_rows, paper_synthetic, recalls, shares
from reference_losses import GMean, HMean, KullbackLeibler, MinMax, QMean
from scipy.optimize import minimize

from gbm_constrained.reductions.methods import (
    SplitLagrangian,
    cut_ellipsoid,
    project_on_corner,
    solve,
)
from gbm_constrained.reductions.mixtures import MixtureProgramme

SYNTHETIC = paper_synthetic()
COARSE = paper_synthetic(500)
FREE = np.zeros((0, 6)), np.zeros(0)


def draw_ellipsoid(d, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    return rng, root @ root.T + 0.1 * np.eye(d), rng.normal(size=d), rng.normal(size=d)


def cut_by_square_roots(P, c, w):
    """Algorithm 3a of the paper, as printed."""
    d = len(c)
    values, vectors = np.linalg.eigh(P)
    root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    unit = root @ w / np.linalg.norm(root @ w)
    t = 1 / (d + 1)
    along = np.outer(unit, unit)
    inner = along / (1 - t) ** 2 + (1 - 2 * t) / (1 - t) ** 2 * (np.eye(d) - along)
    inverse = np.linalg.inv(root)
    return c + t * root @ unit, np.linalg.inv(inverse @ inner @ inverse)


@pytest.mark.parametrize("d", [2, 3, 7, 12])
@pytest.mark.parametrize("seed", range(3))
def test_the_form_without_square_roots_is_the_papers(d, seed):
    _, P, c, w = draw_ellipsoid(d, seed)
    centre, shape = cut_ellipsoid(P, c, w)
    expected_centre, expected = cut_by_square_roots(P, c, w)
    np.testing.assert_allclose(centre, expected_centre, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(shape, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 3, 12])
def test_half_of_the_ellipsoid_is_inside_and_the_volume_shrinks(d):
    rng, P, c, w = draw_ellipsoid(d, 0)
    centre, shape = cut_ellipsoid(P, c, w)
    ratio = np.sqrt(np.linalg.det(shape) / np.linalg.det(P))
    assert ratio <= np.exp(-1 / (2 * d))  # Lemma 34
    directions = rng.normal(size=(5000, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    surface = c + directions @ np.linalg.cholesky(P).T
    half = surface[(surface - c) @ w >= 0] - centre
    assert len(half) > 1000
    inside = np.einsum("xi,xi->x", half, np.linalg.solve(shape, half.T).T)
    assert inside.max() <= 1 + 1e-9


@pytest.mark.parametrize(
    ("objective", "reference", "radius", "calls"),
    [
        (QMean(3), 0.5219926226, 1.2, 100),
        (QMean(3), 0.5219926226, 1000.0, 200),
        (MinMax(3), 0.5239125183, 2.0, 100),
        (MinMax(3), 0.5239125183, 1000.0, 300),
    ],
)
def test_without_constraints(objective, reference, radius, calls):
    programme = MixtureProgramme(objective, np.zeros((0, 3)), np.zeros(0))
    found = solve(programme, AtomOracle(recalls(SYNTHETIC.W)), "ellipsoid", calls, radius=radius)
    assert found.value == pytest.approx(reference, abs=1e-5)
    assert found.bound <= reference + 2e-6


@pytest.mark.parametrize("objective", [HMean(8), GMean(8)])
def test_the_inner_step_does_not_stay_on_a_face_of_zero_recall(objective, monkeypatch):
    """It then needs no cuts, which take a hundred times as long."""
    monkeypatch.delattr(SplitLagrangian, "_cut")
    inner = SplitLagrangian(MixtureProgramme(objective, np.zeros((0, 8)), np.zeros(0)))
    rng = np.random.default_rng(0)
    for _ in range(20):
        joint = -(rng.uniform(0.0, 1.0, 8) ** 4)
        xi, bound = inner.minimise(joint, np.zeros(0), 0.02)
        value = inner.value(xi, joint, np.zeros(0))
        assert bound <= value <= bound + 0.02
        others = rng.uniform(size=(200, 8)) ** rng.uniform(0.1, 3.0, (200, 1))
        assert min(inner.value(at, joint, np.zeros(0)) for at in others) >= bound


def test_the_dual_value_rises_to_the_optimum():
    """The bounds of the calls themselves, before the last one, come near with the first radius."""
    programme = MixtureProgramme(QMean(3), np.zeros((0, 3)), np.zeros(0))
    found = solve(programme, AtomOracle(recalls(SYNTHETIC.W)), "ellipsoid", 120, radius=1.2)
    assert 0 <= 0.5219926226 + 2e-6 - found.history[-2].bound <= 1e-4


EFFECT = np.concatenate([recalls(COARSE.W), shares(COARSE.W)])
ONE_STEP = {"steps": [(0.01, 0.1)]}


@pytest.mark.parametrize(
    ("solver", "objective", "within", "calls", "settings", "gap"),
    [
        ("ellipsoid", QMean(3, 6), None, 250, {}, 2e-2),
        pytest.param(
            "ellipsoid", QMean(3, 6), None, 1000, {"radius": 20}, 1e-5, marks=pytest.mark.slow
        ),
        pytest.param(  # The paper's radius.
            "ellipsoid", QMean(3, 6), None, 1000, {"radius": 1000}, 1e-3, marks=pytest.mark.slow
        ),
        ("ellipsoid", QMean(3, 6), 0.05, 150, {}, 2e-2),
        pytest.param("ellipsoid", QMean(3, 6), 0.05, 1000, {}, 1e-3, marks=pytest.mark.slow),
        pytest.param("ellipsoid", QMean(3, 6), 0.01, 1000, {}, 1e-3, marks=pytest.mark.slow),
        ("gda", QMean(3, 6), None, 5000, ONE_STEP, 1e-4),
        ("gda", MinMax(3, 6), None, 5000, ONE_STEP, 1e-4),
        ("gda", QMean(3, 6), 0.05, 4000, ONE_STEP, 1e-3),
    ],
)
def test_under_coverage_or_a_divergence(solver, objective, within, calls, settings, gap):
    """`within` is the bound of a divergence; coverage is bounded where it is None."""
    rows = coverage_rows(3, 3, COARSE.priors, 0.01) if within is None else FREE
    convex = [] if within is None else [KullbackLeibler(COARSE.priors, within, 3)]
    programme = MixtureProgramme(objective, *rows, convex=convex)
    best = solve(programme, AtomOracle(EFFECT))
    found = solve(programme, AtomOracle(EFFECT), solver, calls, **settings)
    assert found.violation <= 1e-9
    assert best.bound - 1e-9 <= found.value <= best.value + gap
    assert found.bound <= best.value + 1e-9
    if solver == "gda" and within is None and objective.kind == "smooth":
        # The average violates by a part of the slack, which re-weighting repairs.
        assert 1e-9 < found.history[-2].violation < 0.01


@pytest.mark.parametrize("solver", ["ellipsoid", "gda", "columns"])
def test_nothing_feasible_is_said(solver):
    programme = MixtureProgramme(
        QMean(3, 6), *coverage_rows(3, 3, np.array([0.6, 0.6, 0.0]), 0.01)
    )
    found = solve(programme, AtomOracle(EFFECT), solver)
    assert found.status == "infeasible"
    assert found.violation == pytest.approx(0.09, abs=1e-8)
    assert len(found.history) < 30


@pytest.mark.parametrize(
    ("objective", "steps", "gap"),
    [(QMean(3), [(0.1, 0.01)], 2e-4), (MinMax(3), [(0.01, 0.01)], 1e-3)],
)
def test_averages_without_constraints(objective, steps, gap):
    """The average of 5000 rules itself, before the pool is re-weighted."""
    programme = MixtureProgramme(objective, np.zeros((0, 3)), np.zeros(0))
    oracle = AtomOracle(recalls(COARSE.W))
    best = solve(programme, oracle)
    found = solve(programme, oracle, "gda", 5002, steps=steps)
    assert best.bound - 1e-9 <= found.history[-2].value <= best.value + gap
    assert found.value == pytest.approx(best.value, abs=1e-6)
    assert found.bound <= best.value + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_projections(seed):
    rng = np.random.default_rng(seed)
    x = rng.exponential(size=4)
    nearest = minimize(
        lambda y: ((y - x) ** 2).sum(),
        np.full(4, 0.1),
        bounds=[(0, None)] * 4,
        constraints={"type": "ineq", "fun": lambda y: 1.0 - y.sum()},
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(project_on_corner(x, 1.0), nearest.x, atol=1e-6)
    np.testing.assert_array_equal(project_on_corner(x, x.sum() + 0.1), x)
