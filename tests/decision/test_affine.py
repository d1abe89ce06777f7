"""Maps of the scores of regressors: scale, shift, shifts of groups, and their guarantees."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicted_rows import hold_out
from scipy import stats
from scipy.special import expit
from shift_problems import random

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.decision.guarantees import (
    certify_affine,
    check_observed,
    tighten_for_certificate,
)
from gbm_constrained.decision.regression import (
    Affine,
    Criterion,
    choose_affine,
    choose_map,
    credible_rows,
    find_largest_multipliers,
    find_prices,
    list_group_shifts,
    standard_errors_of_numbers,
)
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.losses import RegressionObjective
from gbm_constrained.statistics.p_values import BoundedMeans


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
    errors = standard_errors_of_numbers(rows, score)
    parts = [score[group == g] for g in (0, 1)]
    expected = np.sqrt(sum(part.var() / part.size for part in parts))
    np.testing.assert_allclose(errors, expected, rtol=0.03)
    rows = hold_out(targets, [gc.each(gc.mean_prediction(), by="g") <= 0.5], group)
    own = [part.std() / np.sqrt(part.size) for part in parts]
    np.testing.assert_allclose(standard_errors_of_numbers(rows, score), own, rtol=0.03)


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


MEAN = gc.mean_prediction(range=(-1, 2))


def draw_targets(n, seed=0):
    """Scores that are uniform, and targets around them."""
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    return score + rng.uniform(-0.1, 0.1, n), score


def certified(rule, n=800, n_selection=1500, delta=0.1, seed=0):
    targets, score = draw_targets(n_selection + n, seed)
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
    targets, score = draw_targets(2500)
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
    delta, repetitions = 0.2, 10
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
    targets, _ = draw_targets(400)
    rows = hold_out(targets, rules, np.arange(400) % 2)
    aimed = tighten_for_certificate(rows.compiled, rows, 0.1)
    # The test of a mean in [-1, 2] with the bound in the middle allows 3 sqrt(1 / 4 / 400).
    expected = 0.5 - (stats.norm.isf(0.1) + 1.0) * 3.0 * 0.5 / 20.0
    assert aimed.b[0] == pytest.approx(expected)
    # Two-sided rows keep half of the room between them.
    np.testing.assert_allclose(aimed.b[1:], 0.005)


def test_rows_outside_of_the_stated_range_are_named():
    targets, score = draw_targets(50)
    score[:3] = 5.0
    rows = hold_out(targets, [MEAN <= 0.9])
    message = (
        "constraints: mean_prediction(range=[-1, 2]) <= 0.9 states that the value of each row is "
        "from -1 to 2, and 3 of 50 unseen rows (held out) have others, from 5 to 5: give a range"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        check_observed(rows, score)


def draw_with_groups(seed=0, n=300, n_groups=2):
    """Targets, scores that grow with the group too fast, and groups."""
    rng = np.random.default_rng(seed)
    group = np.r_[np.repeat(np.arange(n_groups), 40), rng.integers(0, n_groups, n)]
    score = rng.normal(size=group.size) + 0.8 * group
    return score + rng.normal(size=group.size) - 0.3 * group, score, group


def choose(rows, score):
    """The choice among shifts of scores as they are, and the units of violations."""
    criterion = Criterion.from_rows(rows, score)
    common = choose_affine(rows, score, criterion.pick_map, has_scale=False)
    return choose_among_shifts(rows, score, common, criterion), criterion.errors


def choose_among_shifts(rows, score, common, criterion):
    """The shifts of groups that the criterion prefers."""
    groups = GroupOffsets.none(("g",), rows.cells.rows)
    found = list_group_shifts(rows, score, common, groups, criterion)
    return found[criterion.best_of(found)]


def measure_scores(rows, score, errors):
    """Largest violation of scores in standard errors, and mean loss."""
    loss, violations = rows.measure_scores(score)
    return worst(violations, errors), loss


def worst(violations, errors):
    return max((violations / errors).max(initial=0.0), 0.0)


def means(values, group, weight=None):
    weight = np.ones(values.size) if weight is None else weight
    return np.bincount(group, weight * values) / np.bincount(group, weight)


def closed_gap(targets, score, group, weight, bound):
    """Shifts of two groups of least squared loss under a gap of means that binds."""
    share = np.bincount(group, weight) / weight.sum()
    mean, residual = means(score, group, weight), means(targets - score, group, weight)
    excess = np.diff(mean + residual)[0] - bound
    return residual + excess * np.array([share[1], -share[0]])


def test_prices_of_shifts_are_the_multipliers_of_their_problem():
    """Two means that are D apart are brought to a bound b at the price (D - b) p (1 - p)."""
    targets, score, group = draw_with_groups()
    rows = hold_out(targets, [gc.gap(gc.mean_prediction(), by="g") <= 0.3], group)
    p = np.bincount(group) / group.size
    price = (np.diff(means(score, group))[0] - 0.3) * p.prod()
    np.testing.assert_allclose(prices(rows, score), [0.0, price], atol=1e-12)
    rows = hold_out(targets, [gc.mean_prediction() <= -1.0, gc.mean_prediction() >= 1.0], group)
    assert not prices(rows, score).any(), "no shifts meet both"


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e6])
def test_prices_of_shifts_do_not_depend_on_the_unit_of_the_targets(unit):
    """A violation and a multiplier both grow with the unit."""
    targets, score, group = draw_with_groups()
    found = [
        prices(hold_out(k * targets, [gc.gap(gc.mean_prediction(), by="g") <= 0.3 * k], group),
               k * score) / k
        for k in (1.0, unit)
    ]  # fmt: skip
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-12)
    assert found[0].any()


def test_prices_of_contradictory_constraints_are_worth_the_price_of_a_violation():
    """Means of residuals and of predictions that no shifts of groups bring together."""
    targets, score, group = draw_with_groups()
    rules = [
        gc.gap(gc.mean_prediction(), by="g") <= 0.01,
        gc.each(gc.mean_residual(), by="g") <= 0.01,
        gc.each(gc.mean_residual(), by="g") >= -0.01,
    ]
    rows = hold_out(targets, rules, group)
    found = prices(rows, score) / find_largest_multipliers(rows.lagrangian.rows)
    assert found.sum() == pytest.approx(1.0, abs=0.02)


def prices(rows, score):
    """Multipliers of shifts of groups, in the units of these scores."""
    return find_prices(rows, score, Criterion.from_rows(rows, score))


@random(10)
@given(seed=st.integers(0, 1000), bound=st.sampled_from([0.05, 0.1, 0.3]))
def test_a_gap_of_two_means_has_a_closed_form(seed, bound):
    targets, score, group = draw_with_groups(seed)
    weight = np.random.default_rng(seed).gamma(2.0, size=score.size)
    rows = hold_out(targets, [gc.gap(gc.mean_prediction(), by="g") <= bound], group, weight)
    choice, _ = choose(rows, score)
    expected = closed_gap(targets, score, group, weight, bound)
    found = choice.affine.shift + choice.offsets.values
    np.testing.assert_allclose(found, expected, atol=2e-5)
    after = means(choice.apply(score, rows.cells.rows), group, weight)
    assert np.ptp(after) <= bound + 1e-9


def by_solver(targets, score, group, rule):
    """Least mean loss over shifts of groups, by a convex solver."""
    cp = pytest.importorskip("cvxpy")
    shift = cp.Variable(group.max() + 1)
    residual = targets - score
    mean, of_residual = means(score, group), means(residual, group)
    constraints = {
        "prediction": [cp.max(mean + shift) - cp.min(mean + shift) <= 0.2],
        "residual": [cp.max(of_residual - shift) - cp.min(of_residual - shift) <= 0.05],
        "loss": [
            cp.sum_squares(residual[group == g] - shift[g]) / (group == g).sum() <= 1.3
            for g in range(group.max() + 1)
        ],
    }[rule]
    loss = cp.sum_squares(residual - shift[group]) / (2.0 * group.size)
    problem = cp.Problem(cp.Minimize(loss), constraints)
    problem.solve(cp.CLARABEL)
    return problem.value


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("prediction", gc.gap(gc.mean_prediction(), by="g") <= 0.2),
        ("residual", gc.gap(gc.mean_residual(), by="g") <= 0.05),
        ("loss", gc.each(gc.mean_loss("squared"), by="g") <= 1.3),
    ],
)
def test_four_groups_by_a_convex_solver(name, rule):
    targets, score, group = draw_with_groups(n_groups=4)
    rows = hold_out(targets, [rule], group)
    choice, _ = choose(rows, score)
    assert rows.measure_scores(score)[1].max() > 0.0
    assert worst(choice.violations, 1.0) <= 1e-9
    assert choice.loss == pytest.approx(by_solver(targets, score, group, name), abs=5e-6)


def least_by_trying_all(targets, score, group, threshold, bound):
    """Least loss of two groups: between steps of its share a group's loss is a parabola."""
    found = []
    for g in (0, 1):
        own, residual = score[group == g], (targets - score)[group == g]
        steps = np.sort(threshold - own)  # One more row is above beyond each of them.
        ends = np.r_[-np.inf, steps], np.r_[steps, np.inf]
        best = np.clip(residual.mean(), *ends)
        losses = np.square(residual[:, None] - best).sum(axis=0)
        found.append((np.arange(own.size + 1) / own.size, losses))
    pairs = product(zip(*found[0], strict=True), zip(*found[1], strict=True))
    allowed = (a[1] + b[1] for a, b in pairs if abs(a[0] - b[0]) <= bound + 1e-12)
    return min(allowed) / (2.0 * group.size)


@random(8)
@given(seed=st.integers(0, 1000), bound=st.sampled_from([0.02, 0.1]))
def test_shares_of_two_groups_by_trying_all(seed, bound):
    targets, score, group = draw_with_groups(seed, n=40)
    rows = hold_out(targets, [gc.gap(gc.share_above(1.0), by="g") <= bound], group)
    choice, _ = choose(rows, score)
    if rows.measure_scores(score)[1].max() <= 0.0:
        assert not choice.offsets.values.any()
        return
    least = least_by_trying_all(targets, score, group, 1.0, bound)
    assert worst(choice.violations, 1.0) <= 1e-9
    assert least - 1e-9 <= choice.loss <= 1.02 * least, "the grid begins coarse, and is refined"


def test_shifts_multiply_predictions_under_a_log_link():
    """The second factor follows from the first one where the means of both are to be equal."""
    _, score, group = draw_with_groups()
    score = 0.5 * score
    targets = np.random.default_rng(0).poisson(np.exp(score - 0.1 * group)).astype(float)
    rule = gc.gap(gc.mean_prediction(), by="g") <= 0.3
    objective = RegressionObjective("poisson")
    rows = hold_out(targets, [rule], group, objective=objective)
    choice, _ = choose(rows, score)
    mean = means(np.exp(score), group)
    first = np.linspace(-0.5, 0.5, 20_001)
    second = np.log((mean[0] * np.exp(first) + 0.3) / mean[1])
    total, prediction = np.bincount(group, targets), np.bincount(group, np.exp(score))
    losses = [
        prediction[g] * np.exp(s) - total[g] * s - targets[group == g] @ score[group == g]
        for g, s in enumerate((first, second))
    ]
    assert np.diff(means(np.exp(choice.apply(score, rows.cells.rows)), group))[0] <= 0.3 + 1e-9
    assert choice.loss == pytest.approx(min(sum(losses)) / group.size, abs=1e-5)


def test_what_no_shifts_meet_is_violated_least():
    """The loss of a group is at least the variance of its residuals."""
    targets, score, group = draw_with_groups()
    rule = gc.each(gc.mean_loss("squared"), by="g") <= 0.5
    rows = hold_out(targets, [rule], group)
    choice, errors = choose(rows, score)
    centred = score + means(targets - score, group)[group]
    least, _ = measure_scores(rows, centred, errors)
    assert worst(choice.violations, errors) == pytest.approx(least, rel=0.01)


def test_scores_that_meet_the_rules_have_no_shifts_of_groups():
    targets, score, group = draw_with_groups()
    rows = hold_out(targets, [gc.gap(gc.mean_prediction(), by="g") <= 3.0], group)
    choice, _ = choose(rows, score)
    assert choice.affine.is_identity
    assert choice.offsets.values.tolist() == [0.0, 0.0]
    assert choice.loss == rows.measure_scores(score)[0]


def test_a_common_scale_stands_beside_the_shifts_where_it_helps():
    """Flat scores need to be spread, which no shift of a group does."""
    targets, score, group = draw_with_groups()
    rows = hold_out(targets, [gc.each(gc.mean_loss(), by="g") <= 1.15], group)
    flat = 0.5 * score
    criterion = Criterion.from_rows(rows, flat)
    common = choose_affine(rows, flat, criterion.pick_map)
    choice = choose_among_shifts(rows, flat, common, criterion)
    without, _ = choose(rows, flat)
    assert choice.affine.scale == common.affine.scale > 1.3
    assert choice.offsets.values.any()
    assert choice.loss < common.loss
    assert worst(choice.violations, 1.0) <= 1e-9 < worst(without.violations, 1.0)


def test_groups_of_few_rows_have_no_shift_of_their_own():
    targets, score, group = draw_with_groups(n_groups=2)
    group[:2] = 2
    rule = gc.each(gc.mean_prediction(), by="g", min_group_size=1) <= 0.5
    rows = hold_out(targets, [rule], group)
    choice, _ = choose(rows, score)
    assert choice.offsets.levels == ((0,), (1,), (2,))
    assert choice.offsets.values[2] == 0.0


AMOUNT = np.random.default_rng(8).gamma(1.0, size=380)
RULES_OF_SHIFTS = {
    "ratio": gc.ratio(gc.share_above(0.5), by="g") >= 0.9,
    "amounts": gc.gap(gc.mean_prediction(weight=AMOUNT), by="g") <= 0.1,
    "rows": gc.gap(gc.mean_residual(on=AMOUNT > 0.5), by="g") <= 0.01,
    "coverage": gc.each(gc.coverage(), by="g") <= 0.5,
    "losses": gc.gap(gc.mean_loss("absolute"), by="g") <= 0.01,
    "sum": gc.gap(gc.mean_prediction(), by="g") + gc.gap(gc.coverage(), by="g") <= 0.3,
}


@pytest.mark.parametrize("name", RULES_OF_SHIFTS)
def test_what_the_search_meets_is_met_on_the_rows(name):
    """The search adds up groups, and the rules are measured on all rows at once."""
    targets, score, group = draw_with_groups(seed=1)
    rows = hold_out(
        targets,
        [RULES_OF_SHIFTS[name], gc.mean_prediction() <= 0.4],
        group,
        AMOUNT[::-1],
    )
    choice, errors = choose(rows, score)
    assert rows.measure_scores(score)[1].max() > 0.0
    assert worst(choice.violations, 1.0) <= 1e-9
    moved = choice.apply(score, rows.cells.rows)
    assert measure_scores(rows, moved, errors) == (worst(choice.violations, errors), choice.loss)
