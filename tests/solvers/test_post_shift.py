"""Shifts of scores, against trying every threshold."""

import itertools

import numpy as np
import pytest
from black_box_problems import Loss
from hypothesis import given, settings
from hypothesis import strategies as st

from gbm_constrained.solvers.post_shift import find_group_shifts, find_shift


def draw(seed, n=60):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    return y, np.round(rng.normal(size=n) + y, 1), np.arange(n) % 2


def g_mean_loss(y, decided):
    return 1.0 - np.sqrt(decided[y].mean() * (~decided[~y]).mean())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_one_threshold_is_the_best_of_all(seed):
    y, scores, _ = draw(seed)
    loss = Loss(lambda s: g_mean_loss(y, s > 0))
    shift, value = find_shift(loss, scores, 100)
    every = [g_mean_loss(y, scores > t) for t in [*np.unique(scores), -np.inf]]
    assert loss.calls == len(every)
    assert value == min(every)
    assert g_mean_loss(y, scores + shift > 0) == value


def test_few_calls_find_the_best_of_a_loss_with_one_valley():
    scores = np.linspace(-3.0, 5.0, 2000)
    loss = Loss(lambda s: abs((s > 0).mean() - 0.3))
    shift, value = find_shift(loss, scores, 90)
    assert loss.calls <= 90
    assert value <= 1.5 / 2000, "an even spread of 45 thresholds would be off by 1 / 90"
    assert (scores + shift > 0).mean() == pytest.approx(0.3, abs=1.5 / 2000)


def test_equal_losses_take_the_smallest_shift():
    scores = np.array([-2.0, -1.0, 3.0])
    assert find_shift(lambda s: 0.0, scores, 10) == (-1.0, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_thresholds_of_groups_are_best_group_by_group(seed):
    y, scores, groups = draw(seed, n=24)

    def by_group(s):
        return max(g_mean_loss(y[groups == g], s[groups == g] > 0) for g in (0, 1))

    y[:4] = [True, True, False, False]
    loss = Loss(by_group)
    shifts, value = find_group_shifts(loss, scores, groups, 200)
    assert loss.calls <= 200
    assert by_group(scores + shifts[groups]) == value
    levels = [[*np.unique(scores[groups == g]), -np.inf] for g in (0, 1)]
    best = min(
        max(g_mean_loss(y[groups == g], scores[groups == g] > t[g]) for g in (0, 1))
        for t in itertools.product(*levels)
    )
    assert value == best
