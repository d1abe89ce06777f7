"""The benchmark of costs in amounts: its threshold and its weights, by hand."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("amount_costs")


def test_no_other_threshold_costs_less(benchmark):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        score, y = rng.random(30).round(1), rng.integers(0, 2, 30)
        amount = rng.exponential(5.0, size=30)
        found = benchmark.cheapest_threshold(score, y, amount)
        cost = benchmark.cost_of(score > found, y, amount).sum()
        tried = [-1.0, *np.arange(0.05, 1.0, 0.1), 2.0]
        others = [benchmark.cost_of(score > t, y, amount).sum() for t in tried]
        assert cost == pytest.approx(min(others), abs=1e-9)


def test_costs_and_weights_are_those_of_the_matrix(benchmark):
    y, amount = np.array([1, 1, 0, 0]), np.array([10.0, 10.0, 8.0, 8.0])
    alarm = np.array([True, False, True, False])
    np.testing.assert_array_equal(benchmark.cost_of(alarm, y, amount), [3.0, 10.0, 3.0, 0.0])
    np.testing.assert_allclose(
        benchmark.weights_of_errors(y, amount), np.array([7.0, 7.0, 3.0, 3.0]) / 5.0
    )
