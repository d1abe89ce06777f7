"""Sums of rows over machines: exact, whatever their order, and counts of rows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from counted_data import random
from dealt_rows import list_deals, measure_deals
from hypothesis import given
from hypothesis import strategies as st
from machines import run_on_machines

from gbm_constrained.data.exact_sums import SingleMachine, sum_over_machines

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed, n=60):
    """Values of many magnitudes, weights of three sizes, and booleans; a code below 4 by row."""
    rng = np.random.default_rng(seed)
    wide = rng.normal(size=n) * 10.0 ** rng.integers(-30, 30, n)
    return wide, rng.choice([0.1, 0.3, 1.7], n), rng.random(n) < 0.4, rng.integers(0, 4, n)


@random(25)
@given(seed=SEEDS)
def test_sums_depend_on_no_deal_of_the_rows(seed):
    wide, weight, flag, codes = draw(seed)
    values = [wide, None, weight, flag]

    def measure(at, communicator):
        def add(x):
            return np.bincount(codes[at], x, 4)

        of_rows = [None if x is None else x[at] for x in values]
        return list(sum_over_machines(add, of_rows, communicator))

    found = measure_deals(measure, codes.size, seed)
    for code in range(4):
        own = codes == code
        error = codes.size**2 * 2.0**-52 * np.abs(wide).max()
        assert abs(found[0][code] - math.fsum(wide[own])) <= error
        assert found[1][code] == own.sum()
        assert abs(found[2][code] - math.fsum(weight[own])) <= codes.size**2 * 2.0**-52 * 1.7
        assert found[3][code] == flag[own].sum()


@random(25)
@given(seed=SEEDS)
def test_multiples_of_a_small_number_are_added_without_error(seed):
    """Such as weights that have been rounded: their sum is that of fractions."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2**40, 50) * 2.0**-43
    exact = float(sum(map(Fraction, x)))
    for parts in list_deals(x.size, seed).values():

        def work(communicator, parts=parts):
            return sum_over_machines(np.sum, [x[parts[communicator.rank]]], communicator)

        assert all(found[0] == exact for found in run_on_machines(work, len(parts)))


@pytest.mark.parametrize("x", [np.zeros(5), np.full(5, 5e-324), np.zeros(0)])
def test_zeros_tiny_values_and_no_rows_have_a_sum(x):
    (found,) = run_on_machines(lambda machine: sum_over_machines(np.sum, [x], machine), 1)
    assert abs(found[0] - x.sum()) < 1e-300


def test_a_machine_with_all_rows_adds_as_numpy_does():
    wide, weight, _, codes = draw(0)
    found = sum_over_machines(lambda x: np.bincount(codes, x, 4), [wide, weight], SingleMachine())
    np.testing.assert_array_equal(found[0], np.bincount(codes, wide, 4))
    np.testing.assert_array_equal(found[1], np.bincount(codes, weight, 4))
