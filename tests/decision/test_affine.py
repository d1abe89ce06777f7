"""Maps of scores: scale and shift of regressors, and of probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicted_rows import hold_out
from scipy.special import expit

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.regression import (
    Affine,
    Criterion,
    choose_affine,
    choose_map,
    credible_rows,
    standard_errors,
)
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.losses import RegressionObjective


def draw(n=600, seed=0):
    """Targets, scores and groups; scores of group 1 are larger by one, and too large."""
    rng = np.random.default_rng(seed)
    group = (rng.random(n) < 0.4).astype(int)
    score = rng.normal(size=n) + group
    return score + rng.normal(size=n) - 0.3 * group, score, group


def gap_of(score, group):
    return abs(score[group == 1].mean() - score[group == 0].mean())


def test_a_map_multiplies_and_adds():
    score = np.array([1.0, -2.0])
    np.testing.assert_array_equal(Affine(0.5, 3.0)(score), [3.5, 2.0])
    assert Affine()(score) is score
    assert Affine().is_identity
    assert not Affine(1.0, 0.1).is_identity


def test_scores_that_meet_the_rules_stay_as_they_are():
    targets, score, group = draw()
    rows = hold_out(targets, [gc.gap(gc.mean_prediction(), by="g") <= 3.0], group)
    choice = choose_affine(rows, score)
    assert choice.affine.is_identity
    assert (choice.violations <= 0.0).all()
    assert choice.loss == pytest.approx(np.mean((targets - score) ** 2) / 2)


def test_a_gap_of_means_is_closed_by_the_scale():
    targets, score, group = draw()
    before = gap_of(score, group)
    rows = hold_out(targets, [gc.gap(gc.mean_prediction(), by="g") <= 0.9 * before], group)
    choice = choose_affine(rows, score)
    after = choice.affine(score)
    assert gap_of(after, group) <= 0.9 * before + 1e-9
    assert choice.affine.scale == pytest.approx(0.9, abs=0.02)
    assert choice.loss == pytest.approx(np.mean((targets - after) ** 2) / 2)


def test_a_mean_is_moved_by_the_shift():
    targets, score, _ = draw()
    bound = score.mean() - 0.2
    choice = choose_affine(hold_out(targets, [gc.mean_prediction() <= bound]), score)
    assert bound - 0.05 <= choice.affine(score).mean() <= bound + 1e-9


def test_without_a_scale_scores_are_shifted_alone():
    targets, score, group = draw()
    bound = score.mean() - 0.2
    rows = hold_out(targets, [gc.mean_prediction() <= bound], group)
    choice = choose_affine(rows, score, has_scale=False)
    assert choice.affine.scale == 1.0
    assert bound - 0.05 <= choice.affine(score).mean() <= bound + 1e-9
    apart = hold_out(targets, [gc.gap(gc.mean_prediction(), by="g") <= 0.5], group)
    choice = choose_affine(apart, score, has_scale=False)
    assert choice.affine.scale == 1.0
    assert choice.violations.max() == pytest.approx(gap_of(score, group) - 0.5), "no shift helps"


def test_a_gap_is_left_where_closing_it_would_leave_nothing_of_the_model():
    """A gap of mean losses is closed by predictions of no use, whose price is higher."""
    targets, score, group = draw()
    rows = hold_out(targets, [gc.gap(gc.mean_loss("squared"), by="g") <= 0.0], group)
    choice = choose_affine(rows, score)
    before = rows.measure_scores(score)[0]
    assert choice.loss < 1.1 * before


RULES = [
    gc.gap(gc.mean_prediction(), by="g") <= 0.85,
    gc.mean_residual() <= -0.15,
    gc.mean_prediction() >= 0.6,
    gc.share_above(1.0) <= 0.2,
    gc.each(gc.mean_loss("squared"), by="g") <= 1.02,
    gc.gap(gc.mean_loss("absolute"), by="g") <= 0.02,
]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(RULES), st.sampled_from(RULES))
def test_no_map_of_a_grid_is_better(seed, first, second):
    """The criterion prefers none of a grid to the one chosen."""
    targets, score, group = draw(200, seed)
    rows = hold_out(targets, [first, second], group)
    choice = choose_affine(rows, score)
    loss, violations = rows.measure_scores(choice.affine(score))
    assert loss == pytest.approx(choice.loss)
    np.testing.assert_allclose(violations, choice.violations, atol=1e-9)
    if (rows.measure_scores(score)[1] <= 0.0).all():
        assert choice.affine.is_identity
        return
    criterion = Criterion.from_rows(rows, score)
    found = [(loss - 1e-3, violations)]
    for scale in np.linspace(0.0, 1.4, 8):
        for shift in np.linspace(-1.0, 1.0, 9):
            affine = Affine(scale, score.mean() * (1 - scale) + shift * score.std())
            found.append(rows.measure_scores(affine(score)))
    losses, of_rows = (np.array(one) for one in zip(*found, strict=True))
    assert criterion.pick_map(losses, of_rows) == 0


def test_scores_of_a_log_link_are_mapped_before_the_link():
    rng = np.random.default_rng(0)
    score = rng.normal(size=500)
    targets = rng.poisson(np.exp(score)).astype(float)
    rows = hold_out(
        targets, [gc.mean_prediction() <= 1.5], objective=RegressionObjective("poisson")
    )
    choice = choose_affine(rows, score)
    assert np.exp(score).mean() > 1.5
    assert np.exp(choice.affine(score)).mean() <= 1.5 + 1e-9


def test_weights_count_in_means_and_losses():
    targets, score, group = draw()
    weight = np.random.default_rng(2).gamma(1.0, size=score.size)
    bound = np.average(score, weights=weight) - 0.1
    rows = hold_out(targets, [gc.mean_prediction() <= bound], group, weight)
    choice = choose_affine(rows, score)
    after = choice.affine(score)
    assert np.average(after, weights=weight) <= bound + 1e-9
    expected = np.average((targets - after) ** 2, weights=weight) / 2
    assert choice.loss == pytest.approx(expected)


def test_standard_errors_are_those_of_each_row():
    """A gap of two means has the error of their difference, in both directions."""
    targets, score, group = draw()
    rows = hold_out(targets, [gc.gap(gc.mean_prediction(), by="g") <= 0.5], group)
    errors = standard_errors(rows, score)
    parts = [score[group == g] for g in (0, 1)]
    expected = np.sqrt(sum(part.var() / part.size for part in parts))
    np.testing.assert_allclose(errors, expected, rtol=0.03)
    rows = hold_out(targets, [gc.each(gc.mean_prediction(), by="g") <= 0.5], group)
    own = [part.std() / np.sqrt(part.size) for part in parts]
    np.testing.assert_allclose(standard_errors(rows, score), own, rtol=0.03)


@pytest.mark.filterwarnings("ignore:.*min_group_size")
def test_groups_that_differ_by_chance_alone_do_not_act():
    """Buehlmann and Straub's estimate, of groups that are alike and of groups that are not."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(10), [4, 6, 10, 20, 40, 60, 100, 200, 400, 800])
    alike = rng.normal(size=group.size)
    rules = [gc.gap(gc.mean_prediction(), by="g") <= 0.1]
    rows = hold_out(alike, rules, group)
    assert credible_rows(rows, alike).min() > 200
    apart = alike + rng.normal(0.0, 0.5, size=10)[group]
    found = credible_rows(hold_out(apart, rules, group), apart)
    assert (found == found[0]).all()
    assert 0.0 < found[0] / (10 - 2) < 40  # for each group beyond two
    rows.half = credible_rows(rows, alike)
    _, violations = rows.credible.measure_scores(alike)
    assert violations.max() <= 0.0 < rows.measure_scores(alike)[1].max()


def test_constant_scores_have_a_map():
    targets = np.arange(50.0)
    choice = choose_affine(hold_out(targets, [gc.mean_prediction() >= 21.0]), np.full(50, 20.0))
    assert choice.affine(np.array([20.0]))[0] >= 21.0 - 1e-9


def draw_scores(n=20_000):
    """Rows whose scores are half of their log-odds, less one quarter."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=n) * 2.0
    y = (rng.random(n) < expit(log_odds)).astype(int)
    return y, log_odds / 2.0 - 0.25


def held_out(y, *rules):
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2)))
    return EvaluationSet(cells, compiled, "held out")


def test_the_map_is_that_of_maximum_likelihood():
    y, margin = draw_scores()
    found = choose_map(held_out(y, gc.calibration_error() <= 0.03, gc.auc() >= 0.9), margin)
    assert found.scale == pytest.approx(2.0, abs=0.06)  # A standard error is 0.02.
    assert found.shift == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("rule", [gc.calibration_error() <= 0.5, gc.auc() >= 0.99])
def test_scores_stay_where_no_calibration_error_is_above_its_bound(rule):
    y, margin = draw_scores(500)
    assert choose_map(held_out(y, rule), margin).is_identity


def test_scores_of_maximum_likelihood_stay_though_the_error_is_above_its_bound():
    y, margin = draw_scores(4000)
    rows = held_out(y, gc.calibration_error() <= 0.001)
    mapped = choose_map(rows, margin)(margin)
    assert rows.violations(mapped).max() > 0.0
    again = choose_map(rows, mapped)
    np.testing.assert_allclose(again(mapped), mapped, atol=1e-3)
