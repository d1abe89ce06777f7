"""Certified maps of a regressor's scores."""

from __future__ import annotations

import re

import numpy as np
import pytest
from predicted_rows import hold_out
from scipy import stats

import gbm_constrained as gc
from gbm_constrained.decision.guarantees import (
    certify_affine,
    check_observed,
    tighten_for_certificate,
)
from gbm_constrained.statistics.p_values import BoundedMeans

MEAN = gc.mean_prediction(range=(-1, 2))


def draw(n, seed=0):
    """Scores that are uniform, and targets around them."""
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    return score + rng.uniform(-0.1, 0.1, n), score


def certified(rule, n=800, n_selection=1500, delta=0.1, seed=0):
    targets, score = draw(n_selection + n, seed)
    parts = np.split(np.arange(targets.size), [n_selection])
    pairs = [(hold_out(targets[part], [rule]), score[part]) for part in parts]
    return pairs, certify_affine(*pairs, delta)


def test_scores_that_pass_stay_as_they_are():
    _, found = certified(MEAN <= 0.9)
    assert found.affine.is_identity
    assert found.p_values.max() <= found.level == 0.1


def test_the_map_of_least_loss_that_passes_is_returned():
    """The mean score is 0.5: it has to fall, by as much as the certification rows ask for."""
    pairs, found = certified(MEAN <= 0.5)
    rows, score = pairs[1]
    tests = BoundedMeans(rows.cells, rows.compiled)
    mapped = found.affine(score)
    np.testing.assert_array_equal(found.p_values, tests.p_values(rows.row_values(mapped)))
    assert found.p_values.max() <= 0.1
    # A map that is nearer to the scores by half a standard deviation of the test fails.
    nearer = mapped + 0.5 * tests.deviations()[0]
    assert tests.p_values(rows.row_values(nearer)).max() > 0.1


def test_maps_under_which_rows_leave_the_stated_range_are_no_candidates():
    """The safest shifts would make predictions negative, which the range excludes."""
    _, found = certified(gc.mean_prediction(range=(0, 1)) <= 0.5, n=600)
    assert found.p_values.max() <= 0.1
    assert found.affine.shift >= 0.0 or found.affine.scale < 1.0


def test_maps_are_ordered_by_all_constraints_together():
    """The shift that covers more rows adds to the loss: none is pushed beyond what both allow."""
    rules = [gc.coverage() >= 0.5, gc.mean_loss("absolute", range=(0, 2)) <= 0.25]
    targets, score = draw(2500)
    parts = np.split(np.arange(2500), [1500])
    pairs = [(hold_out(targets[part], rules), score[part]) for part in parts]
    found = certify_affine(*pairs, 0.1)
    assert found.p_values.max() <= 0.1
    assert 0.0 < found.affine.shift < 0.1


def test_without_a_certificate_the_map_is_that_of_no_guarantee():
    """A loss below the noise of the targets is out of reach."""
    _, found = certified(gc.mean_loss("squared", range=(0, 1)) <= 0.0036, n=3000)
    assert found.p_values.max() > found.level
    assert found.affine.is_identity


def test_the_promise_is_kept_over_samples():
    """The population mean of mapped scores is known: the scale times a half, and the shift."""
    delta, repetitions = 0.2, 20
    wrong = 0
    for seed in range(repetitions):
        _, (affine, p_values, level) = certified(
            gc.share_above(0.7) <= 0.25, 150, 150, delta, seed
        )
        above = 1.0 - np.clip((0.7 - affine.shift) / max(affine.scale, 1e-12), 0.0, 1.0)
        wrong += p_values.max() <= level and above > 0.25
    assert wrong <= stats.binom.isf(1e-3, repetitions, delta)


def test_training_aims_at_what_would_be_certified():
    rules = [MEAN <= 0.5, gc.each(gc.mean_residual(range=(-1, 1)), by="g") <= 0.01]
    rules.append(gc.each(gc.mean_residual(range=(-1, 1)), by="g") >= -0.01)
    targets, _ = draw(400)
    rows = hold_out(targets, rules, np.arange(400) % 2)
    aimed = tighten_for_certificate(rows.compiled, rows, 0.1)
    # The test of a mean in [-1, 2] with the bound in the middle allows 3 sqrt(1 / 4 / 400).
    expected = 0.5 - (stats.norm.isf(0.1) + 1.0) * 3.0 * 0.5 / 20.0
    assert aimed.b[0] == pytest.approx(expected)
    # Two-sided rows keep half of the room between them.
    np.testing.assert_allclose(aimed.b[1:], 0.005)


def test_rows_outside_of_the_stated_range_are_named():
    targets, score = draw(50)
    score[:3] = 5.0
    rows = hold_out(targets, [MEAN <= 0.9])
    message = (
        "constraints: mean_prediction(range=[-1, 2]) <= 0.9 states that the value of each row is "
        "from -1 to 2, and 3 of 50 unseen rows (held out) have others, from 5 to 5: give a range"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        check_observed(rows, score)
