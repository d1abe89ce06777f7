"""Centres of mass of convex bodies against closed forms and samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from references import random, seeds

from gbm_constrained.solvers.cutting_plane import Body, find_centroid, find_volume, hypograph_of


def cone(m, limit, height):
    """A linear model that falls to the level 0 where the sum of v reaches the limit: a simplex."""
    objectives, violations = np.array([height]), np.full((1, m), -height / limit)
    return hypograph_of(objectives, violations, limit, 0.0)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 6])
def test_simplex(m):
    """The centre is the mean of the corners; exact up to three rules, sampled beyond."""
    body = cone(m, limit=5.0, height=2e-4)
    centre = find_centroid(body, np.random.default_rng(0))
    expected = np.append(np.full(m, 5.0), 2e-4) / (m + 2)
    np.testing.assert_allclose(centre, expected, rtol=1e-7 if m <= 3 else 0.08)
    if m <= 3:
        factorial = np.prod(np.arange(1, m + 2))
        assert find_volume(body) == pytest.approx(5.0**m * 2e-4 / factorial, rel=1e-7)


@random(10)
@given(seeds)
def test_centre_and_volume_against_samples_of_a_box(seed):
    rng = np.random.default_rng(seed)
    d = 2 + seed % 3
    normals = np.vstack([np.eye(d), -np.eye(d), rng.normal(size=(4, d))])
    offsets = np.concatenate([np.ones(2 * d), rng.uniform(0.2, 1.0, 4)])
    body = Body(normals, offsets)
    drawn = rng.uniform(-1, 1, size=(40_000, d))
    inside = drawn[(drawn @ normals.T <= offsets).all(axis=1)]
    share = inside.shape[0] / 40_000
    error = 5 * np.sqrt(share * (1 - share) / 40_000) * 2**d
    assert find_volume(body) == pytest.approx(share * 2**d, abs=error)
    centre = find_centroid(body, rng)
    np.testing.assert_allclose(centre, inside.mean(axis=0), atol=5 * np.sqrt(1 / inside.shape[0]))


def test_a_body_without_volume_has_no_centre():
    rng = np.random.default_rng(0)
    flat = hypograph_of(np.array([1.0]), np.array([[0.0]]), 1.0, 1.0)
    empty = hypograph_of(np.array([1.0]), np.array([[0.0]]), 1.0, 2.0)
    for body in (flat, empty):
        assert find_centroid(body, rng) is None
        assert find_volume(body) == 0.0
