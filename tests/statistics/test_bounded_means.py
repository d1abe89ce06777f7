"""P-values of means with stated ranges, against closed forms and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from predicted_rows import hold_out
from scipy import stats

import gbm_constrained as gc
from gbm_constrained.statistics.binomial import Binomial, sum_p_value
from gbm_constrained.statistics.p_values import BoundedMeans, hoeffding_bentkus_p_value

N = 200
RNG = np.random.default_rng(0)
TARGETS = RNG.uniform(0.0, 1.0, N)
SCORES = np.clip(TARGETS + RNG.normal(0.0, 0.1, N), 0.0, 1.0)
GROUPS = RNG.integers(0, 2, N)
SQUARED, ABSOLUTE = (TARGETS - SCORES) ** 2, np.abs(TARGETS - SCORES)
ABOVE = SCORES > 0.5
MEMBERS = [np.flatnonzero(GROUPS - 1), np.flatnonzero(GROUPS)]


def p_value_of(rule, targets=TARGETS, scores=SCORES, groups=GROUPS, weight=None):
    rows = hold_out(targets, [rule], groups, weight)
    (p,) = BoundedMeans(rows.cells, rows.compiled).p_values(rows.row_values(scores))
    return p


def hoeffding_bentkus(mean, n, bound):
    """The definition, term by term: Bates et al. (2021), section 3.1."""
    a = min(mean, bound)
    h = a * np.log(a / bound) + (1 - a) * np.log((1 - a) / (1 - bound))
    return min(np.exp(-n * h), np.e * stats.binom.cdf(np.ceil(n * mean), n, bound))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            gc.mean_loss("squared", range=(0, 2)) <= 0.03,
            hoeffding_bentkus(SQUARED.mean() / 2.0, N, 0.015),
        ),
        (
            gc.mean_residual(range=(-1, 1)) >= -0.1,
            hoeffding_bentkus((1.0 + (SCORES - TARGETS).mean()) / 2.0, N, 0.55),
        ),
        (
            gc.each(gc.mean_loss("absolute", range=(0, 1)), by="g") <= 0.13,
            max(hoeffding_bentkus(ABSOLUTE[at].mean(), at.size, 0.13) for at in MEMBERS),
        ),
        (
            gc.mean_loss("squared", range=(0, 1)) + 2 * gc.mean_loss("absolute", range=(0, 1))
            <= 0.5,
            hoeffding_bentkus((SQUARED + 2 * ABSOLUTE).mean() / 3.0, N, 0.5 / 3.0),
        ),
        (gc.share_above(0.5) <= 0.6, stats.binom.cdf(ABOVE.sum(), N, 0.6)),
        (gc.coverage() >= 0.4, stats.binom.cdf(np.sum(TARGETS > SCORES), N, 0.6)),
        (
            gc.gap(gc.share_above(0.5), by="g") <= 0.3,
            max(
                sum_p_value(
                    Binomial(ABOVE[at].sum(), at.size, 1.0),
                    Binomial((~ABOVE)[other].sum(), other.size, 1.0),
                    1.3,
                )
                for at, other in (MEMBERS, MEMBERS[::-1])
            ),
        ),
        (gc.mean_loss("squared", range=(0, 1)) <= 1.0, 0.0),
    ],
)
def test_p_values_are_those_of_the_definition(rule, expected):
    assert p_value_of(rule) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_two_base_sets_share_delta():
    """Limits at p / 2 of both groups, by Hoeffding, add up to the bound."""
    p = p_value_of(gc.gap(gc.mean_prediction(range=(0, 1)), by="g") <= 0.3)
    means = [SCORES[at].mean() for at in MEMBERS]
    limit = sum(np.sqrt(-np.log(p / 2) / (2 * at.size)) for at in MEMBERS)
    assert abs(means[1] - means[0]) + limit == pytest.approx(0.3, abs=1e-9)


def test_unequal_weights_have_hoeffdings_bound():
    weight = np.where(GROUPS == 1, 3.0, 1.0)
    p = p_value_of(gc.mean_loss("absolute", range=(0, 1)) <= 0.15, weight=weight)
    share = weight / weight.sum()
    assert p == pytest.approx(np.exp(-2 * (0.15 - share @ ABSOLUTE) ** 2 / (share @ share)))
    assert p_value_of(
        gc.mean_loss("absolute", range=(0, 1)) <= 0.15, weight=np.full(N, 3.0)
    ) == pytest.approx(p_value_of(gc.mean_loss("absolute", range=(0, 1)) <= 0.15))


def test_amounts_are_tested_by_their_excess_over_the_bound():
    """E[a (loss - b)] <= 0, where a (loss - b) + C b lies between 0 and C."""
    amounts = np.where(GROUPS == 1, 4.0, 1.0)
    rule = gc.mean_loss("absolute", range=(0, 1), weight="g", cap=5.0) <= 0.2
    mean = 0.2 + (amounts * (ABSOLUTE - 0.2)).mean() / 5.0
    assert p_value_of(rule, groups=amounts) == pytest.approx(hoeffding_bentkus(mean, N, 0.2))


def test_values_outside_of_their_range_are_counted_where_they_are():
    """Rows of weight zero and of another group do not count."""
    rule = gc.mean_loss("absolute", range=(0, 1), on={"g": 1}) <= 0.5
    scores, groups = np.array([0.5, 2.5, 4.0, 9.0, 9.0]), np.array([1, 1, 1, 1, 0])
    rows = hold_out(np.zeros(5), [rule], groups, np.array([1.0, 1.0, 1.0, 0.0, 1.0]))
    tests, values = BoundedMeans(rows.cells, rows.compiled), rows.row_values(scores)
    (outside,) = tests.find_outside(values)
    assert outside == (0, 2, (0.0, 1.0), (2.5, 4.0))
    assert tests.p_values(values).tolist() == [1.0]
    assert tests.find_outside(rows.row_values(np.full(5, 0.5))) == []


def test_the_smallest_p_value_is_that_of_the_best_predictions():
    rules = [
        gc.mean_loss("squared", range=(0, 4)) <= 0.1,
        gc.gap(gc.mean_prediction(range=(0, 1)), by="g") <= 0.3,
        gc.mean_residual(range=(-1, 1)) <= 0.1,
        gc.mean_residual(range=(-1, 1)) >= -0.1,
    ]
    rows = hold_out(TARGETS, rules, GROUPS)
    smallest = BoundedMeans(rows.cells, rows.compiled).smallest_p_values()
    assert smallest[0] == pytest.approx(hoeffding_bentkus_p_value(0.0, N, 0.025))
    alike = p_value_of(rules[1], scores=np.full(N, 0.5))
    assert smallest[1] == pytest.approx(alike)
    # Both sides of the residual are certified at once, and no better than in their middle.
    assert smallest[2] == smallest[3] == pytest.approx(hoeffding_bentkus_p_value(0.5, N, 0.55))


@pytest.mark.parametrize("is_extreme", [True, False])
def test_a_mean_at_its_bound_is_certified_as_rarely_as_delta_says(is_extreme):
    """A thousand samples at the bound; values at both ends of the range vary most."""
    rng, delta, repetitions, n = np.random.default_rng(1), 0.1, 1000, 100
    rows = hold_out(np.zeros(n), [gc.mean_prediction(range=(0, 2)) <= 0.6])
    tests = BoundedMeans(rows.cells, rows.compiled)
    draws = rng.random((repetitions, n))
    scores = 2.0 * (draws < 0.3) if is_extreme else 1.2 * draws
    wrong = sum(tests.p_values(rows.row_values(score))[0] <= delta for score in scores)
    assert wrong <= stats.binom.isf(1e-4, repetitions, delta)
