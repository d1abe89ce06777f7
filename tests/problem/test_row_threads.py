"""Blocks of rows that several threads share."""

import os

import numpy as np
import pytest
from lagrangians import build, kinds

from gbm_constrained.problem.rows import MIN_ROWS, count_threads, map_in_order


@pytest.mark.parametrize("kind", ["mixed", "several"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_threads_change_no_bit(n_classes, kind):
    """Statistics, values, gradients and distances of weighted rows in several blocks."""
    rng = np.random.default_rng(n_classes)
    n = MIN_ROWS
    y = rng.integers(0, n_classes, n)
    margin = rng.normal(size=n if n_classes == 2 else (n, n_classes)).astype(np.float32)
    weight, masks = rng.gamma(2.0, size=n), rng.random((2, n)) < 0.5
    rules = kinds(n_classes, masks)[kind]
    one, two = (
        build(y, rules, weight=weight, dtype=np.float32, n_threads=threads) for threads in (1, 3)
    )
    assert (one.rows.n_threads, two.rows.n_threads) == (1, 3)
    multipliers = np.linspace(0.5, 2.0, len(one.constraints))
    a, b = one.at(margin), two.at(margin)
    for name, values in vars(a.statistics()).items():
        np.testing.assert_array_equal(values, getattr(b.statistics(), name))
    assert a.value(multipliers) == b.value(multipliers)
    assert one.bregman(margin, margin[::-1]) == two.bregman(margin, margin[::-1])
    pairs = zip(*(point.gradient(multipliers, margin, 0.3) for point in (a, b)), strict=True)
    for x, z in pairs:
        np.testing.assert_array_equal(x, z)


def test_few_rows_stay_in_one_thread():
    y = np.arange(1000) % 2
    assert build(y, [], n_threads=4).rows.n_threads == 1


def test_threads_are_half_of_those_of_the_library():
    """``n_jobs`` of zero or None is every core, and minus one as well."""
    half = max(len(os.sched_getaffinity(0)) // 2, 1)
    assert count_threads(None) == count_threads(0) == count_threads(-1) == half
    assert count_threads(1) == count_threads(2) == 1
    assert count_threads(10_000) == half
    assert count_threads(-10_000) == 1


def test_results_are_in_order():
    assert map_in_order(lambda x: x * x, range(100), 4) == [x * x for x in range(100)]


def test_an_error_of_a_thread_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        map_in_order(lambda x: 1 / x, [1, 0], 2)
