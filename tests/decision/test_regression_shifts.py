"""Shifts of groups of a regressor's scores, against closed forms, solvers and trying all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from predicted_rows import hold_out
from shift_problems import random

import gbm_constrained as gc
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.decision.regression import (
    Criterion,
    choose_affine,
    find_largest_multipliers,
    find_prices,
    list_group_shifts,
)
from gbm_constrained.problem.losses import RegressionObjective


def draw(seed=0, n=300, n_groups=2):
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
    targets, score, group = draw()
    rows = hold_out(targets, [gc.gap(gc.mean_prediction(), by="g") <= 0.3], group)
    p = np.bincount(group) / group.size
    price = (np.diff(means(score, group))[0] - 0.3) * p.prod()
    np.testing.assert_allclose(prices(rows, score), [0.0, price], atol=1e-12)
    rows = hold_out(targets, [gc.mean_prediction() <= -1.0, gc.mean_prediction() >= 1.0], group)
    assert not prices(rows, score).any(), "no shifts meet both"


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e6])
def test_prices_of_shifts_do_not_depend_on_the_unit_of_the_targets(unit):
    """A violation and a multiplier both grow with the unit."""
    targets, score, group = draw()
    found = [
        prices(hold_out(k * targets, [gc.gap(gc.mean_prediction(), by="g") <= 0.3 * k], group),
               k * score) / k
        for k in (1.0, unit)
    ]  # fmt: skip
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-12)
    assert found[0].any()


def test_prices_of_contradictory_constraints_are_worth_the_price_of_a_violation():
    """Means of residuals and of predictions that no shifts of groups bring together."""
    targets, score, group = draw()
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
    targets, score, group = draw(seed)
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
    targets, score, group = draw(n_groups=4)
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
    targets, score, group = draw(seed, n=40)
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
    _, score, group = draw()
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
    targets, score, group = draw()
    rule = gc.each(gc.mean_loss("squared"), by="g") <= 0.5
    rows = hold_out(targets, [rule], group)
    choice, errors = choose(rows, score)
    centred = score + means(targets - score, group)[group]
    least, _ = measure_scores(rows, centred, errors)
    assert worst(choice.violations, errors) == pytest.approx(least, rel=0.01)


def test_scores_that_meet_the_rules_stay_as_they_are():
    targets, score, group = draw()
    rows = hold_out(targets, [gc.gap(gc.mean_prediction(), by="g") <= 3.0], group)
    choice, _ = choose(rows, score)
    assert choice.affine.is_identity
    assert choice.offsets.values.tolist() == [0.0, 0.0]
    assert choice.loss == rows.measure_scores(score)[0]


def test_a_common_scale_stands_beside_the_shifts_where_it_helps():
    """Flat scores need to be spread, which no shift of a group does."""
    targets, score, group = draw()
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
    targets, score, group = draw(n_groups=2)
    group[:2] = 2
    rule = gc.each(gc.mean_prediction(), by="g", min_group_size=1) <= 0.5
    rows = hold_out(targets, [rule], group)
    choice, _ = choose(rows, score)
    assert choice.offsets.levels == ((0,), (1,), (2,))
    assert choice.offsets.values[2] == 0.0


AMOUNT = np.random.default_rng(8).gamma(1.0, size=380)
RULES = {
    "ratio": gc.ratio(gc.share_above(0.5), by="g") >= 0.9,
    "amounts": gc.gap(gc.mean_prediction(weight=AMOUNT), by="g") <= 0.1,
    "rows": gc.gap(gc.mean_residual(on=AMOUNT > 0.5), by="g") <= 0.01,
    "coverage": gc.each(gc.coverage(), by="g") <= 0.5,
    "losses": gc.gap(gc.mean_loss("absolute"), by="g") <= 0.01,
    "sum": gc.gap(gc.mean_prediction(), by="g") + gc.gap(gc.coverage(), by="g") <= 0.3,
}


@pytest.mark.parametrize("name", RULES)
def test_what_the_search_meets_is_met_on_the_rows(name):
    """The search adds up groups, and the rules are measured on all rows at once."""
    targets, score, group = draw(seed=1)
    rows = hold_out(targets, [RULES[name], gc.mean_prediction() <= 0.4], group, AMOUNT[::-1])
    choice, errors = choose(rows, score)
    assert rows.measure_scores(score)[1].max() > 0.0
    assert worst(choice.violations, 1.0) <= 1e-9
    moved = choice.apply(score, rows.cells.rows)
    assert measure_scores(rows, moved, errors) == (worst(choice.violations, errors), choice.loss)
