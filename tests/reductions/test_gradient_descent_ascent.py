"""Gradient descent and ascent: averages, re-weighted pools, and projections."""

from __future__ import annotations

import numpy as np
import pytest
from atoms import AtomOracle, coverage_rows, paper_synthetic, recalls, shares
from reference_losses import KullbackLeibler, MinMax, QMean
from scipy.optimize import minimize

from gbm_constrained.reductions.methods import (
    project_on_ball,
    project_on_corner,
    solve,
)
from gbm_constrained.reductions.mixtures import MixtureProgramme

SYNTHETIC = paper_synthetic(500)
PRIORS = SYNTHETIC.priors
EFFECT = np.concatenate([recalls(SYNTHETIC.W), shares(SYNTHETIC.W)])
COVERAGE = coverage_rows(3, 3, PRIORS, 0.01)


@pytest.mark.parametrize(
    ("objective", "steps", "gap"),
    [(QMean(3), [(0.1, 0.01)], 2e-4), (MinMax(3), [(0.01, 0.01)], 1e-3)],
)
def test_averages_without_constraints(objective, steps, gap):
    """The average of 5000 rules itself, before the pool is re-weighted."""
    programme = MixtureProgramme(objective, np.zeros((0, 3)), np.zeros(0))
    oracle = AtomOracle(recalls(SYNTHETIC.W))
    best = solve(programme, oracle)
    found = solve(programme, oracle, "gda", 5002, steps=steps)
    assert best.bound - 1e-9 <= found.history[-2].value <= best.value + gap
    assert found.value == pytest.approx(best.value, abs=1e-6)
    assert found.bound <= best.value + 1e-9


def test_coverage():
    programme = MixtureProgramme(QMean(3, 6), *COVERAGE)
    best = solve(programme, AtomOracle(EFFECT))
    found = solve(programme, AtomOracle(EFFECT), "gda", 5000, steps=[(0.01, 0.1)])
    assert found.violation <= 1e-9
    assert best.bound - 1e-9 <= found.value <= best.value + 1e-4
    # The average violates by a part of the slack, which re-weighting repairs.
    assert 1e-9 < found.history[-2].violation < 0.01


def test_the_worst_recall_under_coverage():
    programme = MixtureProgramme(MinMax(3, 6), *COVERAGE)
    best = solve(programme, AtomOracle(EFFECT))
    found = solve(programme, AtomOracle(EFFECT), "gda", 5000, steps=[(0.01, 0.1)])
    assert found.violation <= 1e-9
    assert best.bound - 1e-9 <= found.value <= best.value + 1e-4


def test_a_convex_constraint():
    phi = KullbackLeibler(PRIORS, 0.05, 3)
    programme = MixtureProgramme(QMean(3, 6), np.zeros((0, 6)), np.zeros(0), convex=[phi])
    best = solve(programme, AtomOracle(EFFECT))
    found = solve(programme, AtomOracle(EFFECT), "gda", 4000, steps=[(0.01, 0.1)])
    assert found.violation <= 1e-9
    assert best.bound - 1e-9 <= found.value <= best.value + 1e-3


def test_calls_are_divided_among_the_steps():
    oracle = AtomOracle(EFFECT)
    found = solve(MixtureProgramme(QMean(3, 6), *COVERAGE), oracle, "gda", 400)
    assert oracle.calls == len(found.history) <= 400
    assert found.violation <= 1e-9


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
    on_ball = project_on_ball(x, 0.5)
    assert np.linalg.norm(on_ball) == pytest.approx(0.5)
    np.testing.assert_allclose(on_ball / 0.5, x / np.linalg.norm(x))
    np.testing.assert_array_equal(project_on_ball(x, 100.0), x)
