"""Sums over the rows of several machines, to the last bit."""

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

from gbm_constrained.data.exact_sums import (
    BITS,
    Communicator,
    ExactSums,
    Machine,
    round_weights,
    sum_over_machines,
)
from gbm_constrained.data.rows import Rows

MOST_ROWS = 1 << 27


class SeveralMachines(Communicator):
    """The only one of several machines, whose sums are rounded as if there were others."""

    holds_all_rows = False


def rounded(values, bound, n_rows):
    return ExactSums(SeveralMachines(), n_rows).round(values, bound)


def exact_sum(values):
    return sum(map(Fraction, values.tolist()), Fraction(0))


@random(25)
@given(
    n=st.integers(1, 300),
    exponent=st.integers(-200, 200),
    spread=st.floats(0.0, 30.0),
    seed=st.integers(0, 1000),
)
def test_sums_are_exact_in_any_order(n, exponent, spread, seed):
    """Values of both signs and many sizes: running, pairwise and grouped sums have no error."""
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.normal(size=n) * 2.0 ** -rng.uniform(0, spread, n), exponent)
    bound = float(np.abs(values).max())
    found = rounded(values, bound, n)
    total = exact_sum(found)
    order = rng.permutation(n)
    codes = rng.integers(0, 4, n)
    assert Fraction(float(found.cumsum()[-1])) == total
    assert Fraction(float(found[order].cumsum()[-1])) == total
    assert Fraction(float(found.sum())) == total
    assert Fraction(float(np.bincount(codes[order], found[order]).sum())) == exact_sum(
        found[order]
    )
    error = max(abs(found - values).tolist())  # Exact, as numbers so near each other differ.
    assert error <= max(n, 4) * Fraction(bound) / 2 ** (BITS - 1)


@random(25)
@given(n=st.integers(1, MOST_ROWS), bound=st.floats(1e-30, 1e30))
def test_the_sum_of_so_many_rows_fits(n, bound):
    """Sums of all rows are at most 2^53 steps, and the step is as small as that allows."""
    step = ExactSums(SeveralMachines(), n).step(bound)
    steps = n * Fraction(bound) / Fraction(step)
    assert steps <= 2**BITS
    assert n < 4 or steps >= 2 ** (BITS - 2)


@random(25)
@given(n=st.integers(1, MOST_ROWS), k=st.integers(-(2**20), 2**20), seed=st.integers(0, 99))
def test_rounding_is_to_the_nearest_multiple(n, k, seed):
    sums = ExactSums(SeveralMachines(), n)
    step = sums.step(1.0)
    shift = np.random.default_rng(seed).uniform(-0.49, 0.49)
    near = np.array([(k + shift) * step])
    assert sums.round(near, 1.0)[0] == k * step


def test_single_precision_leaves_multiples_of_the_step():
    """Weights are rounded, then held in single precision: their sums stay exact."""
    rng = np.random.default_rng(0)
    sums = ExactSums(SeveralMachines(), 1 << 20)
    weight = sums.round(rng.gamma(0.3, size=1000), 16.0).astype(np.float32)
    steps = weight.astype(np.float64) / sums.step(16.0)
    np.testing.assert_array_equal(steps, np.round(steps))


@pytest.mark.parametrize("bound", [0.0, 1e-320, np.inf, np.nan])
def test_strange_bounds_change_no_value_for_worse(bound):
    values = np.array([0.0, bound, -bound])
    np.testing.assert_allclose(rounded(values, bound, 10), values, atol=1e-300)


def test_the_machine_that_holds_all_rows_rounds_nothing():
    values = np.array([0.1, 0.2])
    assert ExactSums(Communicator(), 2).round(values, 1.0) is values
    assert round_weights(values, Communicator()) is values


def test_weights_are_rounded_alike_on_all_machines():
    """By the largest weight and the number of rows of all; a second time changes nothing."""
    weight = np.random.default_rng(1).gamma(0.2, size=200)
    parts = [np.arange(0), np.arange(150), np.arange(150, 200)]

    def work(communicator):
        mine = parts[communicator.rank]
        y = np.zeros(mine.size, dtype=np.intp)
        machine = Machine(communicator, mine)
        found = Rows(y, np.arange(2), weight[mine], machine=machine).weight
        np.testing.assert_array_equal(round_weights(found, communicator), found)
        return found

    found = np.concatenate(run_on_machines(work, 3))
    np.testing.assert_array_equal(found, rounded(weight, weight.max(), 200))
    assert np.abs(found - weight).max() <= 200 * weight.max() * 2.0 ** (1 - BITS)
    assert (found != weight).any()


SEEDS = st.integers(0, 2**32 - 1)


def draw(seed, n=60):
    """Values of many magnitudes, weights of three sizes, and booleans; a code below 4 by row."""
    rng = np.random.default_rng(seed)
    wide = rng.normal(size=n) * 10.0 ** rng.integers(-30, 30, n)
    return wide, rng.choice([0.1, 0.3, 1.7], n), rng.random(n) < 0.4, rng.integers(0, 4, n)


@random(8)
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


@random(8)
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
    found = sum_over_machines(lambda x: np.bincount(codes, x, 4), [wide, weight], Communicator())
    np.testing.assert_array_equal(found[0], np.bincount(codes, wide, 4))
    np.testing.assert_array_equal(found[1], np.bincount(codes, weight, 4))
