"""Row functions and their smooth forms, against scikit-learn, differences, and parabolas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from references import random
from regressions import LOSSES, MEANS, OBJECTIVES
from sklearn import metrics

from gbm_constrained.constraints.rates import mean_loss, row_functions_of
from gbm_constrained.problem.losses import (
    KINK_WIDTH,
    STEP_WIDTH,
    curvature_range,
    row_derivatives,
    row_values,
    smooth_function,
    smooth_loss,
    smooth_objective,
    unit_of,
)

SCALE, WIDTH, STEP = 1.3, 0.05, 1e-6
FUNCTIONS = {name: row_functions_of([rate <= 0.5])[0] for name, rate in MEANS.items()}
IDENTITY = [objective for objective in OBJECTIVES if not objective.has_log_link]
SEEDS = st.integers(0, 2**32 - 1)


def draw(seed=0, n=400):
    rng = np.random.default_rng(seed)
    return rng.gamma(3.0, 0.5, n), rng.gamma(3.0, 0.5, n), rng.gamma(2.0, size=n)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("squared", metrics.mean_squared_error),
        ("absolute", metrics.mean_absolute_error),
        ("pinball", lambda y, f, **w: metrics.mean_pinball_loss(y, f, alpha=0.8, **w)),
        ("poisson", metrics.mean_poisson_deviance),
    ],
)
def test_means_are_those_of_scikit_learn(name, reference):
    y, f, weight = draw()
    y[::7] = 0.0
    found = np.average(row_values(FUNCTIONS[name], y, f), weights=weight)
    assert found == pytest.approx(reference(y, f, sample_weight=weight), rel=1e-12)


def test_huber_is_that_of_the_field():
    y, f, _ = draw()
    r = np.abs(y - f)
    expected = np.where(r <= 0.7, r**2 / 2, 0.7 * (r - 0.35))
    np.testing.assert_allclose(row_values(FUNCTIONS["huber"], y, f), expected, rtol=1e-12)


def test_shares_and_means_count():
    y, f, _ = draw()
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
    y, f, _ = draw(1)
    function, far = FUNCTIONS[name], is_far(y, f)
    slope, _ = row_derivatives(function, y, f, SCALE)
    expected = differences(lambda x: row_values(function, y, x), f)
    np.testing.assert_allclose(slope[far], expected[far], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["share", "coverage"])
def test_steps_have_the_slope_of_a_sigmoid(name):
    y, f, _ = draw(2)
    function, width = FUNCTIONS[name], STEP_WIDTH * SCALE
    at = y if name == "coverage" else 1.2
    expected = differences(lambda x: 1 / (1 + np.exp(-(x - at) / width)), f)
    slope, _ = row_derivatives(function, y, f, SCALE)
    np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_smooth_functions_hang_together(name):
    """Slope and curvature are finite differences of value and slope."""
    y, f, _ = draw(3)
    f[:50] = y[:50] + np.linspace(-WIDTH, WIDTH, 50) * 0.9
    function, far = FUNCTIONS[name], is_far(y, f) | (np.abs(y - f) < 0.95 * WIDTH)
    found = smooth_function(function, y, f, SCALE, WIDTH)
    for got, of in ((found.slope, "value"), (found.curvature, "slope")):
        expected = differences(
            lambda x, of=of: getattr(smooth_function(function, y, x, SCALE, WIDTH), of), f
        )
        np.testing.assert_allclose(got[far], expected[far], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("objective", IDENTITY, ids=lambda one: one.name)
def test_smooth_objectives_hang_together(objective):
    y, f, _ = draw(4)
    far = is_far(y, f) & (np.abs(np.abs(y - f) - 0.8) > 1e-3)
    found = smooth_objective(objective, y, f, WIDTH)
    for got, of in ((found.slope, "value"), (found.curvature, "slope")):
        expected = differences(
            lambda x, of=of: getattr(smooth_objective(objective, y, x, WIDTH), of), f
        )
        np.testing.assert_allclose(got[far], expected[far], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rounding_a_kink_adds_at_most_half_its_width(name):
    y, f, _ = draw(5)
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
    y, f, _ = draw(6)
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
@random(30)
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
    assert slack.min() >= (-2 * KINK_WIDTH * SCALE if name in ("absolute", "pinball") else -1e-9)
    if function.is_step:
        below = above - curvature * (x - f) ** 2
        assert (value_of(function, y, x) - below).min() >= -1e-9


@pytest.mark.parametrize("name", FUNCTIONS)
def test_curvatures_stay_in_their_range(name):
    y, f, _ = draw(6)
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
