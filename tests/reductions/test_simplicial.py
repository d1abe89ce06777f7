"""Mixtures for smooth objectives, against projections onto simplices and random mixtures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_losses import GMean, HMean, QMean

from gbm_constrained.reductions.mixtures import Master, MixtureProgramme, mix_smoothly


class Distance:
    """Squared distance to a point."""

    kind = "smooth"

    def __init__(self, target):
        self.target = target

    def value(self, u):
        return float(np.sum((u - self.target) ** 2))

    def gradient(self, u):
        return 2 * (u - self.target)


def make_programme(objective, d):
    return MixtureProgramme(objective, np.zeros((0, d)), np.zeros(0))


def project_onto_simplex(target):
    """Project onto the probability simplex by sorting (Held, Wolfe and Crowder, 1974)."""
    ordered = np.sort(target)[::-1]
    shift = (np.cumsum(ordered) - 1) / np.arange(1, len(target) + 1)
    return np.maximum(target - shift[np.flatnonzero(ordered > shift)[-1]], 0.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1, 2), min_size=2, max_size=12))
def test_distance_to_the_simplex_is_that_of_the_projection(target):
    target = np.array(target)
    d = len(target)
    weight, gap = mix_smoothly(make_programme(Distance(target), d), np.eye(d), None, 1e-6)
    expected = project_onto_simplex(target)
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert (weight >= 0.0).all()
    assert Distance(target).value(weight) <= Distance(target).value(expected) + max(gap, 1e-12)
    assert gap <= 1e-5


@pytest.mark.parametrize("make", [GMean, HMean, QMean])
@pytest.mark.parametrize("seed", range(3))
def test_no_mixture_is_below_the_value_minus_the_gap(make, seed):
    random = np.random.default_rng(seed)
    points, loss = random.uniform(size=(40, 4)), make(4, 4)
    weight, gap = mix_smoothly(make_programme(loss, 4), points, None, 1e-5)
    bound = loss.value(weight @ points) - gap
    assert gap <= 1e-5
    mixtures = np.concatenate([np.eye(40), random.dirichlet(np.full(40, 0.05), 3000)])
    assert min(map(loss.value, mixtures @ points)) >= bound


@pytest.mark.parametrize("make", [GMean, HMean, QMean])
def test_a_pool_that_has_grown_is_searched_from_the_last_mixture(make):
    points, loss = np.random.default_rng(0).uniform(size=(40, 4)), make(4, 4)
    start, _ = mix_smoothly(make_programme(loss, 4), points[:20], None, 1e-6)
    warm, _ = mix_smoothly(make_programme(loss, 4), points, start, 1e-6)
    cold, _ = mix_smoothly(make_programme(loss, 4), points, None, 1e-6)
    assert warm.shape == cold.shape
    assert loss.value(warm @ points) == pytest.approx(loss.value(cold @ points), abs=2e-6)


def test_a_gap_below_the_tolerance_is_left_to_linear_programmes():
    points, loss = np.random.default_rng(0).uniform(size=(40, 4)), HMean(4, 4)
    programme = make_programme(loss, 4)
    exact = Master(programme).optimise(points, 1e-9)
    assert exact is not None
    assert loss.value(exact.u) - exact.model <= 1e-9
    weight, gap = mix_smoothly(programme, points, None, 1e-6)
    assert loss.value(weight @ points) - gap <= loss.value(exact.u) + 1e-12


@pytest.mark.parametrize("recall", [0.0, 1e-12])
def test_a_pool_without_a_class_has_no_gap_in_the_others(recall):
    """The G-mean has no gradient where a recall is zero."""
    points = np.random.default_rng(0).uniform(size=(10, 3))
    points[:, 0] = recall
    weight, gap = mix_smoothly(make_programme(GMean(3, 3), 3), points, None, 1e-6)
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert GMean(3, 3).value(weight @ points) - gap <= GMean(3, 3).value(points.mean(axis=0))
