"""The Lagrangian of a regression, its objectives, and smooth forms of row functions."""

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given
from hypothesis import strategies as st
from references import random, seeds
from regressions import LOSSES, MEANS, OBJECTIVES, SQUARED, build, draw, mixed_rules
from sklearn import metrics

import gbm_constrained as gc
from gbm_constrained.constraints import rates
from gbm_constrained.constraints.rates import (
    coverage,
    mean_loss,
    mean_prediction,
    mean_residual,
    row_functions_of,
    share_above,
)
from gbm_constrained.constraints.selectors import dataset
from gbm_constrained.problem.losses import (
    KINK_WIDTH,
    KINKS,
    STEP_WIDTH,
    RegressionObjective,
    curvature_range,
    row_derivatives,
    row_values,
    smooth_function,
    smooth_loss,
    unit_of,
)

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


@random(5)
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


@random(8)
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


SCALE, WIDTH = 1.3, 0.05
FUNCTIONS = {name: row_functions_of([rate <= 0.5])[0] for name, rate in MEANS.items()}
SEEDS = st.integers(0, 2**32 - 1)


def draw_pairs(seed=0, n=400):
    rng = np.random.default_rng(seed)
    return rng.gamma(3.0, 0.5, n), rng.gamma(3.0, 0.5, n), rng.gamma(2.0, size=n)


@pytest.mark.parametrize("name", rates.LOSSES)
def test_each_loss_has_the_mean_that_another_library_computes(name):
    y, f, weight = draw_pairs()
    y[::7] = 0.0
    _, reference = LOSSES[name]
    found = np.average(row_values(FUNCTIONS[name], y, f), weights=weight)
    assert found == pytest.approx(reference(y, f, sample_weight=weight), rel=1e-12)


def test_shares_and_means_count():
    y, f, _ = draw_pairs()
    f[:3] = y[:3] = 1.2
    values = {name: row_values(FUNCTIONS[name], y, f) for name in FUNCTIONS}
    np.testing.assert_array_equal(values["share"], f > 1.2)
    np.testing.assert_array_equal(values["coverage"], y <= f)
    np.testing.assert_array_equal(values["prediction"], f)
    np.testing.assert_array_equal(values["residual"], y - f)


def differences(function, x, step=STEP):
    return (function(x + step) - function(x - step)) / (2 * step)


def is_far(y, f):
    """Rows that no finite difference crosses a kink at."""
    r = np.abs(y - f)
    return (r > 1e-3) & (np.abs(r - 0.7) > 1e-3) & (np.abs(r - WIDTH) > 1e-3)


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_are_finite_differences(name):
    y, f, _ = draw_pairs(1)
    function, far = FUNCTIONS[name], is_far(y, f)
    slope, _ = row_derivatives(function, y, f, SCALE)
    expected = differences(lambda x: row_values(function, y, x), f)
    np.testing.assert_allclose(slope[far], expected[far], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["share", "coverage"])
def test_steps_have_the_slope_of_a_sigmoid(name):
    y, f, _ = draw_pairs(2)
    function, width = FUNCTIONS[name], STEP_WIDTH * SCALE
    at = y if name == "coverage" else 1.2
    expected = differences(lambda x: 1 / (1 + np.exp(-(x - at) / width)), f)
    slope, _ = row_derivatives(function, y, f, SCALE)
    np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_smooth_functions_hang_together(name):
    """Slope and curvature are finite differences of value and slope."""
    y, f, _ = draw_pairs(3)
    f[:50] = y[:50] + np.linspace(-WIDTH, WIDTH, 50) * 0.9
    function, far = FUNCTIONS[name], is_far(y, f) | (np.abs(y - f) < 0.95 * WIDTH)
    found = smooth_function(function, y, f, SCALE, WIDTH)
    for got, of in ((found.slope, "value"), (found.curvature, "slope")):
        expected = differences(
            lambda x, of=of: getattr(smooth_function(function, y, x, SCALE, WIDTH), of), f
        )
        np.testing.assert_allclose(got[far], expected[far], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rounding_a_kink_adds_at_most_half_its_width(name):
    y, f, _ = draw_pairs(5)
    f[:50] = y[:50] + np.linspace(-WIDTH, WIDTH, 50)
    function = FUNCTIONS[name]
    if function.is_step:
        return
    more = smooth_function(function, y, f, SCALE, WIDTH).value - row_values(function, y, f)
    assert more.min() >= -1e-12
    assert more.max() <= WIDTH / 2 + 1e-12


@pytest.mark.parametrize("loss", ["absolute", "pinball"])
def test_a_kink_rounded_about_a_slope_is_an_augmented_lagrangian(loss):
    """The value is the largest over slopes of the kink, and its derivatives follow."""
    y, f, _ = draw_pairs(6)
    f[:50] = y[:50] + np.linspace(-WIDTH, WIDTH, 50)
    s = np.random.default_rng(7).uniform(-1, 1, y.size)
    parameter, weight, tilt = {"absolute": (None, 1.0, 0.0), "pinball": (0.8, 0.5, 0.3)}[loss]
    u = np.linspace(-1.0, 1.0, 4001)[:, None]
    largest = (u * (y - f) - WIDTH / 2 * (u - s) ** 2).max(axis=0) + WIDTH / 2

    def rounded(x):
        return smooth_loss(loss, parameter, y, x, WIDTH, s)

    found = rounded(f)
    np.testing.assert_allclose(found.value, weight * largest + tilt * (y - f), atol=1e-7)
    far = np.abs(np.abs(s + (y - f) / WIDTH) - 1.0) > 1e-3
    for got, of in ((found.slope, "value"), (found.curvature, "slope")):
        expected = differences(lambda x, of=of: getattr(rounded(x), of), f)
        np.testing.assert_allclose(got[far], expected[far], rtol=1e-5, atol=1e-6)


def value_of(function, y, f):
    """The function that gradients see."""
    if function.is_step:
        return smooth_function(function, y, f, SCALE, WIDTH).value
    return row_values(function, y, f)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "poisson"])
@random(8)
@given(SEEDS)
def test_parabolas_are_nowhere_below(name, seed):
    """The parabola of slope and curvature touches the function, and is above it elsewhere.

    Nearer to a kink than the smallest distance of its curvature, the parabola is below by less
    than twice that distance. A step is bounded from both sides, as a rule may reward it.
    """
    rng = np.random.default_rng(seed)
    y, f, x = rng.gamma(3.0, 0.5, (3, 200))
    function = FUNCTIONS[name]
    slope, curvature = row_derivatives(function, y, f, SCALE)
    above = value_of(function, y, f) + slope * (x - f) + curvature * (x - f) ** 2 / 2
    slack = above - value_of(function, y, x)
    assert slack.min() >= (-2 * KINK_WIDTH * SCALE if name in KINKS else -1e-9)
    if function.is_step:
        below = above - curvature * (x - f) ** 2
        assert (value_of(function, y, x) - below).min() >= -1e-9


@pytest.mark.parametrize("name", FUNCTIONS)
def test_curvatures_stay_in_their_range(name):
    y, f, _ = draw_pairs(6)
    lowest, highest = curvature_range(FUNCTIONS[name], SCALE)
    found = smooth_function(FUNCTIONS[name], y, f, SCALE, WIDTH).curvature
    assert lowest - 1e-12 <= found.min()
    assert found.max() <= highest + 1e-12
    if name in ("share", "coverage"):  # The range is reached.
        width = STEP_WIDTH * SCALE
        x = np.linspace(-3, 3, 4001) * width
        at = smooth_function(FUNCTIONS["coverage"], np.zeros_like(x), x, SCALE, WIDTH)
        assert at.curvature.max() == pytest.approx(highest, rel=1e-4)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_units_follow_that_of_the_target(unit):
    assert unit_of(FUNCTIONS["squared"], unit) == pytest.approx(unit**2)
    assert unit_of(FUNCTIONS["prediction"], unit) == unit
    assert unit_of(FUNCTIONS["pinball"], unit) == pytest.approx(0.8 * unit)
    assert unit_of(FUNCTIONS["share"], unit) == 1.0
    wide = row_functions_of([mean_loss("huber", delta=2 * unit) <= 1])[0]
    assert unit_of(wide, unit) == pytest.approx(unit**2 / 2)


IDS = [objective.name for objective in OBJECTIVES]


def draw_scores(objective, seed=0, n=300):
    """Draw targets, and scores of predictions near them."""
    rng = np.random.default_rng(seed)
    y, f = rng.gamma(3.0, 0.5, (2, n))
    return y, objective.score_of(f)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("squared", 1.0),
        ("pseudo_huber", 1.0),
        ("tweedie", 1.0),
        ("gamma", 1.0),
        ("fair", 1.0),
        ("poisson", 2.0137527),
    ],
)
def test_hessians_are_finite_differences(name, factor):
    """The libraries' Poisson Hessian is taken exp(0.7) further."""
    objective = next(one for one in OBJECTIVES if one.name == name)
    y, score = draw_scores(objective, 1)
    up, down = (objective.derivatives(y, score + s, 1.0)[0] for s in (STEP, -STEP))
    _, hessian = objective.derivatives(y, score, 1.0)
    np.testing.assert_allclose(hessian, factor * (up - down) / (2 * STEP), rtol=1e-6)


@pytest.mark.parametrize("name", ["huber", "absolute", "quantile"])
def test_hessians_of_other_losses_bound_them_from_above(name):
    objective = next(one for one in OBJECTIVES if one.name == name)
    y, score = draw_scores(objective, 2)
    _, other = draw_scores(objective, 3)
    far = np.abs(y - score) > KINK_WIDTH
    gradient, hessian = objective.derivatives(y, score, 1.0)
    move = other - score
    above = objective.values(y, score) + gradient * move + hessian * move**2 / 2
    assert (above - objective.values(y, other))[far].min() >= -1e-12


def test_differences_of_values_are_those_of_scikit_learn():
    """Half the squared error and half the deviances, up to a constant of the targets."""
    references = {
        "squared": (metrics.mean_squared_error, 2.0),
        "absolute": (metrics.mean_absolute_error, 1.0),
        "quantile": (lambda y, f: metrics.mean_pinball_loss(y, f, alpha=0.3), 1.0),
        "poisson": (metrics.mean_poisson_deviance, 2.0),
        "gamma": (metrics.mean_gamma_deviance, 2.0),
        "tweedie": (lambda y, f: metrics.mean_tweedie_deviance(y, f, power=1.5), 2.0),
    }
    for objective in OBJECTIVES:
        if objective.name not in references:
            continue
        reference, factor = references[objective.name]
        y, one = draw_scores(objective, 4)
        _, two = draw_scores(objective, 5)
        found = factor * (objective.values(y, one) - objective.values(y, two)).mean()
        expected = reference(y, objective.predict(one)) - reference(y, objective.predict(two))
        assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=IDS)
def test_scores_and_predictions_are_inverse(objective):
    f = np.array([0.1, 1.0, 7.0])
    np.testing.assert_allclose(objective.predict(objective.score_of(f)), f, rtol=1e-12)


def test_poisson_values_at_targets_of_zero():
    objective = RegressionObjective("poisson")
    np.testing.assert_allclose(
        objective.values(np.zeros(2), np.array([0.0, -1.0])), np.exp([0, -1])
    )


def test_negative_targets_of_positive_predictions_are_refused():
    objective = RegressionObjective("poisson")
    with pytest.raises(ValueError, match=r"y holds -2 in row 1, and the poisson objective"):
        objective.check_targets(np.array([1.0, -2.0]))
    with pytest.raises(ValueError, match="y is zero in every row"):
        objective.check_targets(np.zeros(3))
    objective.check_targets(np.array([0.0, 1.0]))
    RegressionObjective("squared").check_targets(np.array([-1.0]))


XGB = {
    "squared": ("reg:squarederror", {}),
    "pseudo_huber": ("reg:pseudohubererror", {"huber_slope": 0.8}),
    "poisson": ("count:poisson", {"max_delta_step": 0.7}),
    "tweedie": ("reg:tweedie", {"tweedie_variance_power": 1.5}),
}
LGB = {
    "squared": ("regression", {}),
    "huber": ("huber", {"alpha": 0.8}),
    "poisson": ("poisson", {"poisson_max_delta_step": 0.7}),
    "tweedie": ("tweedie", {"tweedie_variance_power": 1.5}),
}


def rows(seed=6, n=500):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = np.round(np.exp(0.4 * X[:, 0] + 0.2 * X[:, 1]) * rng.gamma(4.0, 0.25, n), 3)
    return X, y, rng.gamma(2.0, size=n)


def own_objective(objective):
    def derivatives(score, data):
        y, weight = data.get_label().astype(float), data.get_weight()
        gradient, hessian = objective.derivatives(y, np.asarray(score, float), float(y.std()))
        return gradient * weight, hessian * weight

    return derivatives


@pytest.mark.parametrize("name", XGB)
def test_trees_are_those_of_xgboost(name):
    objective = next(one for one in OBJECTIVES if one.name == name)
    X, y, weight = rows()
    library, given = XGB[name]
    base = {"max_depth": 3, "base_score": 0.5, "nthread": 1, "tree_method": "hist"}
    if name == "poisson":  # The step of a leaf is bounded as well.
        base |= given
    # The base score of a library's own objective is a prediction, and of others a score.
    score = float(objective.score_of(np.array(0.5)))
    data = xgb.DMatrix(X, y, weight=weight)
    own = xgb.train({**base, "objective": library, **given}, data, 5)
    ours = xgb.train(
        {**base, "base_score": score, "disable_default_eval_metric": True}, data, 5,
        obj=own_objective(objective),
    )  # fmt: skip
    one, two = own.trees_to_dataframe(), ours.trees_to_dataframe()
    np.testing.assert_array_equal(one["Feature"], two["Feature"])
    np.testing.assert_allclose(one["Split"], two["Split"])
    np.testing.assert_allclose(
        own.predict(data, output_margin=True), ours.predict(data, output_margin=True), rtol=1e-4
    )


@pytest.mark.parametrize("name", LGB)
def test_trees_are_those_of_lightgbm(name):
    objective = next(one for one in OBJECTIVES if one.name == name)
    X, y, weight = rows()
    library, given = LGB[name]
    base = {
        "num_leaves": 8, "verbose": -1, "num_threads": 1, "deterministic": True,
        "boost_from_average": False, "learning_rate": 0.3, **given,
    }  # fmt: skip

    def data():
        return lgb.Dataset(X, y, weight=weight)

    own = lgb.train({**base, "objective": library}, data(), 5)
    ours = lgb.train({**base, "objective": own_objective(objective)}, data(), 5)
    one, two = own.trees_to_dataframe(), ours.trees_to_dataframe()
    assert one["split_feature"].equals(two["split_feature"])
    np.testing.assert_allclose(
        own.predict(X, raw_score=True), ours.predict(X, raw_score=True), rtol=1e-5, atol=1e-6
    )
