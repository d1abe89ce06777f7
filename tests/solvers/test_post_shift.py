"""Shifts of scores, against trying every threshold."""

import itertools

import numpy as np
import pytest
from black_box_problems import Loss
from hypothesis import given, settings
from hypothesis import strategies as st

from gbm_constrained.solvers.black_box import find_group_shifts, find_shift


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
    shifts, value = find_group_shifts(loss, scores, groups, 2, 200)
    assert loss.calls <= 200
    assert by_group(scores + shifts[groups]) == value
    levels = [[*np.unique(scores[groups == g]), -np.inf] for g in (0, 1)]
    best = min(
        max(g_mean_loss(y[groups == g], scores[groups == g] > t[g]) for g in (0, 1))
        for t in itertools.product(*levels)
    )
    assert value == best


def test_rows_of_no_group_and_groups_without_rows_are_not_shifted():
    y, scores, groups = draw(3, n=24)
    y[:4] = [True, True, False, False]
    known = groups == 0

    def of_known(s):
        return g_mean_loss(y[known], s[known] > 0)

    asked = np.where(known, 0, 7)  # Group 1 has no row, and 7 is none of the three groups.
    shifts, value = find_group_shifts(Loss(of_known), scores, asked, 3, 300)
    assert shifts.shape == (3,)
    np.testing.assert_array_equal(shifts[1:], 0.0)
    expected = min(of_known(scores - t) for t in [*(scores[known] - 1e-9), scores.max() + 1.0])
    assert value == of_known(scores + shifts[0]) == pytest.approx(expected)
