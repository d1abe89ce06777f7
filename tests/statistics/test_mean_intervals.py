"""Intervals of means of row functions: Student's where they should be, and their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from predicted_rows import hold_out
from scipy import stats

import gbm_constrained as gc

SINGLE = gc.mean_residual() <= 1.0
DRAWS = 500


def intervals(rules, targets, score, groups=None, weight=None, level=0.95):
    return hold_out(targets, rules, groups, weight).intervals(score, level)


def half_of(values, share):
    """Half the width of an interval, by the effective number of equal deviations (Kish).

    There is at least one degree of freedom.
    """
    deviation = share * (values - share @ values)
    square = deviation @ deviation
    effective = square**2 / np.sum(deviation**4)
    return stats.t.isf(0.025, max(effective - 1, 1)) * np.sqrt(square)


@pytest.mark.parametrize("n", [10, 60, 400])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_a_mean_of_a_sample_of_equal_deviations_has_students_interval(n, level):
    """Deviations of one size leave all n rows to the effective number."""
    residual = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) + 0.3
    _, found, _ = intervals([SINGLE], residual, np.zeros(n), level=level)
    factor = stats.t.isf((1 - level) / 2, n - 1)
    half = factor * residual.std() / np.sqrt(n)
    np.testing.assert_allclose(found[0], [0.3 - half, 0.3 + half], rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_normal_sample_has_nearly_the_interval_of_a_t_test(seed):
    """The effective number is below n, and the empirical variance has n in its denominator."""
    residual = np.random.default_rng(seed).normal(0.4, 2.0, 300)
    _, found, _ = intervals([SINGLE], residual, np.zeros(300))
    expected = stats.ttest_1samp(residual, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose(found[0].mean(), residual.mean(), rtol=1e-12)
    assert np.diff(found[0])[0] == pytest.approx(expected.high - expected.low, rel=0.02)


def test_large_samples_have_the_normal_interval():
    residual = np.random.default_rng(0).normal(size=20_000)
    _, found, _ = intervals([SINGLE], residual, np.zeros(20_000))
    half = stats.norm.isf(0.025) * residual.std() / np.sqrt(20_000)
    np.testing.assert_allclose(np.diff(found[0]), 2 * half, rtol=1e-3)


def test_intervals_are_of_the_function_that_a_rule_names():
    rng = np.random.default_rng(0)
    y, f = rng.normal(size=(2, 500))
    rules = [
        gc.mean_loss("squared") <= 9,
        gc.mean_prediction() <= 9,
        gc.share_above(0.5) <= 0.9,
        gc.coverage() <= 0.9,
    ]
    values = [(y - f) ** 2, f, f > 0.5, y <= f]
    functionals, found, of_functionals = intervals(rules, y, f)
    for value, functional, interval in zip(values, functionals, found, strict=True):
        assert functional == pytest.approx(np.mean(value), rel=1e-12)
        assert interval.mean() == pytest.approx(np.mean(value), rel=1e-9)
        half = half_of(value, np.full(500, 1 / 500))
        assert np.diff(interval)[0] == pytest.approx(2 * half, rel=1e-9)
    np.testing.assert_allclose(found[:2], of_functionals[:2])


def test_a_repeated_row_counts_once_where_it_has_a_weight():
    """Weight is no number of rows: ten rows of weight 100 leave a mean of ten rows."""
    residual = np.random.default_rng(1).normal(size=10)
    _, light, _ = intervals([SINGLE], residual, np.zeros(10))
    _, heavy, _ = intervals([SINGLE], residual, np.zeros(10), weight=np.full(10, 100.0))
    np.testing.assert_allclose(heavy, light, rtol=1e-12)
    uneven = np.where(np.arange(10) < 2, 100.0, 1.0)
    _, few, _ = intervals([SINGLE], residual, np.zeros(10), weight=uneven)
    half = half_of(residual, uneven / uneven.sum())
    assert np.diff(few[0])[0] == pytest.approx(2 * half, rel=1e-9)


def test_one_row_has_an_interval_of_no_width():
    """A deviation of one row from its own mean says nothing, as for counted losses."""
    _, found, _ = intervals([SINGLE], [2.0], np.zeros(1))
    np.testing.assert_allclose(found[0], [2.0, 2.0])


SIZES = {"few": 8, "some": 30, "unequal": 90}
GROUPS = {name: (np.arange(n) < n // 4).astype(int) for name, n in SIZES.items()}


def uniform(rng, group):
    return rng.uniform(size=group.size)


def normal(rng, group):
    return rng.normal(1.0 + group, 1.0 + group)


APART = gc.gap(gc.mean_prediction(), by="g", min_group_size=1) <= 1.0
DIFFERENCE = gc.mean_prediction(on={"g": 1}) - gc.mean_prediction(on={"g": 0}) <= 2.0
COVERED = {
    "mean of 8": (gc.mean_prediction(on={"g": 0}) <= 9.0, normal, "few", 1.0),
    "mean of 30": (gc.mean_prediction(on={"g": 0}) <= 9.0, normal, "some", 1.0),
    "loss": (gc.mean_loss("absolute") <= 9.0, uniform, "some", 0.5),
    "square": (gc.mean_loss("squared") <= 9.0, uniform, "some", 1 / 3),
    "share": (gc.share_above(0.3) <= 1.0, uniform, "unequal", 0.7),
    "gap": (APART, normal, "unequal", 1.0),
    "difference": (DIFFERENCE, normal, "unequal", 1.0),
}


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("name", COVERED)
def test_intervals_cover_the_true_value(name, is_weighted):
    """As often as they say, within three standard errors of the simulation; targets are zero."""
    rule, sample, size, truth = COVERED[name]
    rng = np.random.default_rng(0)
    group = GROUPS[size]
    weight = rng.uniform(0.5, 1.5, group.size) if is_weighted else None
    rows = hold_out(np.zeros(group.size), [rule], group, weight)
    hits = 0
    for _ in range(DRAWS):
        low, high = rows.intervals(sample(rng, group))[1][0]
        hits += low <= truth <= high
    nominal = 0.95
    assert hits / DRAWS >= nominal - 3 * np.sqrt(nominal * (1 - nominal) / DRAWS)


def test_a_sum_of_gaps_has_the_interval_of_its_normal_groups():
    """With two groups and one sign, the sum of two gaps of a mean is twice a normal difference."""
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b"], 400)
    score = rng.normal(size=800) + np.where(groups == "a", 1.0, 0.0)
    gap = gc.gap(gc.mean_prediction(), by="g")
    _, found, _ = intervals([gap + gap <= 1.0], np.zeros(800), score, groups)
    first, second = score[groups == "a"], score[groups == "b"]
    error = np.sqrt(first.var() / 400 + second.var() / 400)
    middle = 2.0 * (first.mean() - second.mean())
    expected = middle + 2.0 * error * np.array([-1.96, 1.96])
    np.testing.assert_allclose(found[0], expected, atol=0.02)
