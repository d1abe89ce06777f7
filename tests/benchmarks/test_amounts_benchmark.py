"""The benchmark of amounts: its threshold and its figures, by hand."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    """The script, whose name is also that of a module of the tests."""
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("amounts_benchmark", FOLDER / "amounts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_threshold_is_the_highest_that_misses_a_tenth_of_the_value(benchmark):
    rng = np.random.default_rng(0)
    score, y, amount = rng.random(200), np.arange(200) % 2, rng.gamma(0.5, size=200)
    found = benchmark.threshold_for_value(score, y, amount)
    value = amount[y == 1]

    def missed(threshold):
        return value[score[y == 1] < threshold].sum() / value.sum()

    assert missed(found) <= benchmark.BOUND < missed(np.nextafter(found, 1.0))


def test_figures_are_counted_by_value_and_by_rows(benchmark):
    y, amount = np.array([1, 1, 1, 0, 0]), np.array([1.0, 2.0, 7.0, 5.0, 5.0])
    found = benchmark.measure(np.array([0, 1, 1, 1, 0]), y, amount, 0.05)
    assert found["missed_value"] == pytest.approx(0.1)
    assert found["missed_rows"] == pytest.approx(1 / 3)
    assert found["false_alarms"] == 0.5
    assert 0.0 < found["standard_error"] < 0.5
