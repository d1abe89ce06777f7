"""The benchmark of amounts: its thresholds, weights and figures, by hand."""

import amounts as benchmark
import numpy as np
import pytest


def test_the_threshold_is_the_highest_that_misses_a_tenth_of_the_value():
    rng = np.random.default_rng(0)
    score, y, amount = rng.random(200), np.arange(200) % 2, rng.gamma(0.5, size=200)
    found = benchmark.threshold_for_value(score, y, amount)
    value = amount[y == 1]

    def missed(threshold):
        return value[score[y == 1] < threshold].sum() / value.sum()

    assert missed(found) <= benchmark.BOUND < missed(np.nextafter(found, 1.0))


def test_figures_are_counted_by_value_and_by_rows():
    y, amount = np.array([1, 1, 1, 0, 0]), np.array([1.0, 2.0, 7.0, 5.0, 5.0])
    found = benchmark.measure(np.array([0, 1, 1, 1, 0]), y, amount, 0.05)
    assert found["missed_value"] == pytest.approx(0.1)
    assert found["missed_rows"] == pytest.approx(1 / 3)
    assert found["false_alarms"] == 0.5
    assert 0.0 < found["standard_error"] < 0.5


def test_no_other_threshold_costs_less():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        score, y = rng.random(30).round(1), rng.integers(0, 2, 30)
        amount = rng.exponential(5.0, size=30)
        found = benchmark.cheapest_threshold(score, y, amount)
        cost = benchmark.cost_of(score > found, y, amount).sum()
        tried = [-1.0, *np.arange(0.05, 1.0, 0.1), 2.0]
        others = [benchmark.cost_of(score > t, y, amount).sum() for t in tried]
        assert cost == pytest.approx(min(others), abs=1e-9)


def test_costs_and_weights_are_those_of_the_matrix():
    y, amount = np.array([1, 1, 0, 0]), np.array([10.0, 10.0, 8.0, 8.0])
    alarm = np.array([True, False, True, False])
    np.testing.assert_array_equal(benchmark.cost_of(alarm, y, amount), [3.0, 10.0, 3.0, 0.0])
    np.testing.assert_allclose(
        benchmark.weights_of_errors(y, amount), np.array([7.0, 7.0, 3.0, 3.0]) / 5.0
    )
