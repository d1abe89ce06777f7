"""The Lagrangian of a regression: means, derivatives, constants, amounts, data sets, views."""

import numpy as np
import pytest
from hypothesis import given
from references import random, seeds
from regressions import MEANS, OBJECTIVES, SQUARED, build, draw, mixed_rules

import gbm_constrained as gc
from gbm_constrained.constraints.rates import (
    coverage,
    mean_loss,
    mean_prediction,
    mean_residual,
    share_above,
)
from gbm_constrained.constraints.selectors import dataset
from gbm_constrained.problem.losses import row_values, smooth_function

STEP = 1e-6
IDENTITY = [objective for objective in OBJECTIVES if not objective.has_log_link]


def multipliers_of(lagrangian, seed=1):
    return np.random.default_rng(seed).gamma(1.0, size=len(lagrangian.constraints))


def functionals(rules, score, targets, weight=None, table=None, **given):
    lagrangian = build(targets, rules, SQUARED, weight, table, **given)
    return lagrangian.constraints.functionals(lagrangian.at(score).statistics())


@pytest.mark.parametrize("name", MEANS)
def test_means_of_groups_are_counted(name):
    targets, score, weight, table = draw()
    score = np.maximum(score, 0.1)
    rule = gc.each(MEANS[name], by="group", min_group_size=1) <= 0.5
    found = functionals([rule], score, targets, weight, table)
    function = next(iter(build(targets, [rule], table=table).rows.functions))
    values = row_values(function, targets, score)
    expected = [
        np.average(values[table["group"] == g], weights=weight[table["group"] == g]) for g in "abc"
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_amounts_multiply_weights():
    targets, score, weight, table = draw()
    rules = [mean_loss(weight="amount", on={"group": "a"}) <= 1, mean_prediction() <= 1]
    found = functionals(rules, score, targets, weight, table)
    inside = table["group"] == "a"
    whole = (weight * table["amount"])[inside]
    expected = [np.average((targets - score)[inside] ** 2, weights=whole)]
    expected.append(np.average(score, weights=weight))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@random(20)
@given(seeds)
def test_integer_weights_equal_repetition(seed):
    targets, score, _, table = draw(seed=seed)
    times = np.random.default_rng(seed).integers(0, 4, targets.size)
    times[:6] = 1
    repeated = {name: np.repeat(values, times) for name, values in table.items()}
    found = build(targets, mixed_rules(), SQUARED, times.astype(float), table)
    expected = build(np.repeat(targets, times), mixed_rules(), SQUARED, None, repeated)
    y = multipliers_of(found)
    at, many = found.at(score), expected.at(np.repeat(score, times))
    rates = [
        lag.constraints.rates(point.statistics()) for lag, point in ((found, at), (expected, many))
    ]
    np.testing.assert_allclose(*rates, rtol=1e-10)
    grad, hess = at.gradient(y, score + 1, 0.3)
    grads, hesses = many.gradient(y, np.repeat(score + 1, times), 0.3)
    used = times > 0
    last = np.cumsum(times)[used] - 1
    np.testing.assert_allclose(grad[used] / times[used], grads[last], rtol=1e-9)
    np.testing.assert_allclose(hess[used] / times[used], hesses[last], rtol=1e-9)
    np.testing.assert_allclose(
        found.constants.lipschitz()[0], expected.constants.lipschitz()[0], rtol=1e-9
    )


def value_by_hand(lagrangian, score, y, anchor, inverse_tau):
    """Compute the Lagrangian from its definition, with proxies for steps."""
    rows = lagrangian.rows
    f = rows.objective.predict(score)
    means = np.empty((len(rows.cells), len(rows.functions)))
    for s, function in enumerate(rows.functions):
        values = row_values(function, rows.targets, f)
        if function.is_step:
            values = smooth_function(function, rows.targets, f, rows.scale, 1.0).value
        means[:, s] = rows.cells.total(rows.row_weight * values) / rows.divisor
    total = rows.mean(rows.objective.values(rows.targets, score))
    total += rows.constraints.costs(y) @ means.ravel()
    distance = rows.row_weight @ (score - anchor) ** 2
    return total + inverse_tau * distance / (2 * rows.total_weight)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: one.name)
def test_gradients_are_finite_differences(objective):
    targets, f, weight, table = draw()
    f = np.maximum(f, 0.2)
    near = np.abs(np.abs(targets - f)[:, None] - [0.0, 0.5, 0.8]).min(axis=1) < 1e-2
    f[near] = targets[near] + 1.7  # off the kinks
    lagrangian = build(targets, mixed_rules(), objective, weight, table)
    score, y = objective.score_of(f), multipliers_of(lagrangian)
    anchor = score + 0.3
    gradient, _ = lagrangian.at(score).gradient(y, anchor, 0.4)
    for i in range(0, targets.size, 7):
        up, down = score.copy(), score.copy()
        up[i] += STEP
        down[i] -= STEP
        ends = [value_by_hand(lagrangian, at, y, anchor, 0.4) for at in (up, down)]
        expected = (ends[0] - ends[1]) / (2 * STEP) * lagrangian.total_weight
        assert gradient[i] == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("objective", IDENTITY, ids=lambda one: one.name)
def test_smooth_points_hang_together(objective):
    targets, score, weight, table = draw()
    near = np.abs(np.abs(targets - score)[:, None] - [0.0, 0.5, 0.8]).min(axis=1) < 1e-2
    score[near] = targets[near] + 1.7
    lagrangian = build(targets, mixed_rules(), objective, weight, table, is_smooth=True)
    y, anchor = multipliers_of(lagrangian), score + 0.3
    direction = np.random.default_rng(3).normal(size=score.size)
    at = lagrangian.at(score)
    ends = [lagrangian.at(score + s * direction) for s in (STEP, -STEP)]
    slope = (ends[0].value(y, anchor, 0.4) - ends[1].value(y, anchor, 0.4)) / (2 * STEP)
    gradient, _ = at.gradient(y, anchor, 0.4)
    assert gradient @ direction / lagrangian.total_weight == pytest.approx(slope, rel=1e-6)
    grads = [end.gradient(y, anchor, 0.4)[0] for end in ends]
    expected = (grads[0] - grads[1]) / (2 * STEP)
    found = at.hessian_product(y, direction, 0.4)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: one.name)
def test_hessians_are_those_of_parabolas_above(objective):
    """Near the scores the Hessian majorises, whatever the signs of coefficients."""
    targets, f, weight, table = draw(seed=2)
    f = np.maximum(f, 0.3)
    f[np.abs(targets - f) < 0.3] += 0.6  # off the kinks
    rules = [rule for rule in mixed_rules() if "share" not in str(rule)]
    lagrangian = build(targets, rules, objective, weight, table)
    score, y = objective.score_of(f), multipliers_of(lagrangian)
    gradient, hessian = lagrangian.at(score).gradient(y)
    move = 0.02 * np.random.default_rng(4).normal(size=score.size)
    rise = value_by_hand(lagrangian, score + move, y, score, 0.0)
    rise -= value_by_hand(lagrangian, score, y, score, 0.0)
    parabola = (gradient @ move + hessian @ move**2 / 2) / lagrangian.total_weight
    assert rise <= parabola + 1e-9


def test_further_data_sets_are_in_rules_and_not_in_the_objective():
    targets, score, _, _ = draw(n=40)
    new, on_new = np.zeros((5, 1)), np.linspace(0.5, 2.5, 5)
    known = np.array([1.0, 2.0, 0.5, 1.5, 3.0])
    rules = [
        mean_prediction(on=dataset("new")) <= 1.0,
        mean_loss(on=dataset("known")) <= 1.0,
        mean_loss() <= 1.0,
    ]
    datasets = {"new": new, "known": (new, known)}
    lagrangian = build(targets, rules, datasets=datasets)
    whole = np.concatenate([score, on_new, on_new])
    at = lagrangian.at(whole)
    found = lagrangian.constraints.functionals(at.statistics())
    expected = [on_new.mean(), ((known - on_new) ** 2).mean(), ((targets - score) ** 2).mean()]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert lagrangian.objective(at.statistics()) == pytest.approx(expected[-1] / 2)
    gradient, _ = at.gradient(np.zeros(3))
    np.testing.assert_allclose(gradient[:40], score - targets)
    np.testing.assert_array_equal(gradient[40:], 0.0)
    y = np.array([2.0, 3.0, 0.0])
    gradient, _ = at.gradient(y)
    total = lagrangian.total_weight
    np.testing.assert_allclose(gradient[40:45], 2.0 * total / 5)
    np.testing.assert_allclose(gradient[45:], 3.0 * total / 5 * 2 * (on_new - known))
    # The distance is one of all rows, as the proximal term is.
    assert lagrangian.bregman(whole, whole + 1) == pytest.approx(50 / (2 * 40))


@random(30)
@given(seeds)
def test_slopes_bound_steps_of_squared_losses(seed):
    """The larger constant of two scores bounds the change between them."""
    targets, score, weight, table = draw(seed=seed)
    rules = [
        gc.each(mean_loss(), by="group", min_group_size=1) <= 0.1,
        mean_loss(weight="amount") <= 1.0,
        gc.each(mean_loss(), by="side", min_group_size=1) <= 0.2,
        mean_prediction() + mean_residual(on={"side": "left"}) <= 1.0,
    ]
    lagrangian = build(targets, rules, SQUARED, weight, table)
    other = score + np.random.default_rng(seed).normal(size=score.size)
    constants, rates = [], []
    for at in (score, other):
        rates.append(lagrangian.constraints.rates(lagrangian.at(at).statistics()))
        constants.append(lagrangian.constants.lipschitz())
    distance = np.sqrt(2 * lagrangian.bregman(score, other))
    own = np.maximum(constants[0][0], constants[1][0])
    change = np.abs(rates[1] - rates[0]) / own
    assert (change <= distance * (1 + 1e-9)).all()
    # Rows of several views share rows of data: the norm of all is above one.
    together = max(constants[0][1], constants[1][1])
    assert 1.0 < together <= np.sqrt(len(rates[0]))


def test_concavity_makes_differences_convex():
    targets, score, weight, table = draw()
    rules = [
        gc.gap(mean_loss(), by="group", min_group_size=1) <= 0.1,
        share_above(1.0, weight="amount") <= 0.3,
    ]
    lagrangian = build(targets, rules, SQUARED, weight, table, is_smooth=True)
    y = multipliers_of(lagrangian)
    table = lagrangian.constants.concavity(y)
    pull = sum(table[view.cells][view.small_codes] for view in lagrangian.cells.views)
    assert len(lagrangian.cells.views) > 1
    _, of_loss = lagrangian.at(score).gradient(np.zeros_like(y))
    for seed in range(20):
        at = lagrangian.at(score + np.random.default_rng(seed).normal(size=score.size))
        _, curvature = at.gradient(y)
        assert (curvature + weight * pull - of_loss).min() >= -1e-9
    _, alone = at.gradient(y)
    assert (alone - of_loss).min() < -0.1  # and it is not convex without


@pytest.mark.parametrize(
    ("rule", "is_convex"),
    [
        (mean_loss() <= 1, True),
        (mean_loss() >= 1, False),
        (gc.each(mean_loss("huber"), by="group", min_group_size=1) <= 1, True),
        (gc.gap(mean_loss(), by="group", min_group_size=1) <= 1, False),
        (gc.gap(mean_prediction(), by="group", min_group_size=1) <= 1, True),
        (mean_residual() >= 1, True),
        (mean_loss() - mean_prediction() <= 1, True),
        (share_above(1.0) <= 0.5, True),  # as rates are
        (gc.gap(mean_loss("absolute"), by="group", min_group_size=1) <= 1, True),
    ],
)
def test_differences_of_losses_of_bounded_curvature_are_not_convex(rule, is_convex):
    targets, _, _, table = draw()
    constraints = build(targets, [rule], table=table).constraints
    assert constraints.is_convex == is_convex
    assert constraints.has_rates.all() == ("share" in str(rule))
    assert not constraints.has_rates.any() or "share" in str(rule)


def test_rows_with_steps_are_found_beside_others():
    targets, _, _, table = draw()
    rules = [mean_loss() <= 1, coverage() >= 0.9, mean_loss() + share_above(1) <= 1]
    assert build(targets, rules, table=table).constraints.has_rates.tolist() == [False, True, True]


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e5])
def test_units_follow_those_of_the_targets(unit):
    targets, _, _, table = draw()
    rules = [mean_loss() <= 1, mean_prediction() <= 1, coverage() >= 0.9]
    one = build(targets, rules, table=table).constants.units
    many = build(unit * targets, rules, table=table).constants.units
    np.testing.assert_allclose(many.rows / one.rows, [unit**2, unit, 1.0])
    assert many.objective / one.objective == pytest.approx(unit**2)
    assert many.score / one.score == pytest.approx(unit)


def test_targets_that_are_all_alike_have_a_scale():
    assert build(np.full(7, 0.1), [mean_loss() <= 1]).rows.scale == 1.0


def test_scores_of_another_length_are_refused():
    lagrangian = build(np.arange(5.0), [mean_loss() <= 1])
    with pytest.raises(ValueError, match=r"built on scores of shape \(5,\), got \(4,\)"):
        lagrangian.at(np.zeros(4))
