"""Counts, intervals and p-values of rows on several machines are those of all rows."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import Data, binary_rules, by, random
from dealt_rows import assert_close, assert_identical, measure_deals, take_rows
from hypothesis import given
from hypothesis import strategies as st

import gbm_constrained as gc
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.influence import estimate_between_fold_deviation
from gbm_constrained.statistics.intervals import (
    MeanIntervals,
    constraint_intervals,
    functional_intervals,
)
from gbm_constrained.statistics.p_values import constraint_p_values
from gbm_constrained.statistics.sampled_intervals import Sampled

N = 200
RULES = binary_rules()[:17]  # Without masks, which machines do not share.
LOSSES = [
    gc.log_loss() <= 0.7,
    by(gc.log_loss(), "region") <= 0.2,
    by(gc.log_loss()) <= 0.2,
    2 * gc.log_loss(on={"sex": "F"}) - 0.5 * gc.fnr(on={"sex": "M"}) + 0.1 <= 0.3,
    gc.ratio(gc.log_loss(), by="region", min_group_size=1) >= 0.6,
]
WEIGHTED = pytest.mark.parametrize("weighted", [False, True])


def bind(data, rules, at=None, communicator=None):
    return compile_constraints(
        rules, take_rows(data, np.arange(N) if at is None else at, communicator)
    )


def list_tables(*counts):
    return [table for one in counts for table in (one.weight, one.square, one.count)]


def count_in_all_ways(data, at, communicator=None):
    """Decisions, shares, probabilities and thresholds."""
    cells, _ = bind(data, RULES, at, communicator)
    score = np.sin(np.arange(N)) + data.y
    shares = np.column_stack([np.cos(np.arange(N)) ** 2, np.sin(np.arange(N)) ** 2])
    of_cells = np.column_stack(
        [np.linspace(0.1, 0.9, len(cells)), np.linspace(0.9, 0.1, len(cells))]
    )
    return list_tables(
        CellCounts.of(cells, data.decided[at]),
        CellCounts.of_shares(cells, of_cells),
        CellCounts.of_probabilities(cells, shares[at]),
        CellCounts.at_thresholds(cells, score[at], [0.7, -2.0, 0.0, 9.0]),
    )


@random(8)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans())
def test_counts_are_those_of_all_rows(seed, weighted):
    data = Data(seed, weighted=weighted)
    if weighted:
        data.weight = np.ceil(16.0 * data.weight) / 16.0
        data.weight[::7] = 0.0
    found = measure_deals(
        lambda at, machine: count_in_all_ways(data, at, machine), N, seed, data.sex
    )
    expected = count_in_all_ways(data, np.arange(N))
    assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if not weighted:
        assert_identical(found[:6] + found[9:], expected[:6] + expected[9:])


@WEIGHTED
def test_intervals_and_p_values_are_those_of_all_rows(weighted):
    data = Data(3, weighted=weighted)

    def measure(at, communicator=None):
        cells, compiled = bind(data, RULES, at, communicator)
        counts = CellCounts.of(cells, data.decided[at])
        return [
            constraint_intervals(compiled, counts),
            functional_intervals(compiled, counts),
            constraint_p_values(compiled, counts),
        ]

    found = measure_deals(measure, N, group=data.sex)
    expected = measure(np.arange(N))
    assert_close(found, expected, rtol=1e-9, atol=1e-9)
    if not weighted:
        assert_identical(found, expected)


def test_weights_that_are_equal_in_a_class_stay_equal():
    """Weights of 1 and 0.3 by class have the p-values of binomials, on one machine and on four."""
    data = Data(5, weighted=True)
    data.weight = np.where(data.y == 1, 0.3, 1.0)
    own = [gc.fpr() <= 0.3, gc.recall(1) >= 0.5]

    def measure(at, communicator=None):
        cells, compiled = bind(data, own, at, communicator)
        return [constraint_p_values(compiled, CellCounts.of(cells, data.decided[at]))]

    (weighted,) = measure_deals(measure, N)
    data.weight = None
    np.testing.assert_allclose(weighted, measure(np.arange(N))[0], rtol=1e-12)


@WEIGHTED
def test_intervals_of_losses_are_those_of_all_rows(weighted):
    data = Data(7, weighted=weighted)
    loss = np.random.default_rng(7).exponential(size=N)

    def measure(at, communicator=None):
        cells, compiled = bind(data, LOSSES, at, communicator)
        counts = CellCounts.of(cells, data.decided[at])
        f = np.linspace(0.3, 0.9, compiled.constant.size)
        sampled = Sampled.of(compiled, counts)
        found = MeanIntervals(cells, compiled, data.decided[at], loss[at])
        return [*found.complete(f, *sampled)]

    found = measure_deals(measure, N, group=data.sex)
    expected = measure(np.arange(N))
    assert np.isfinite(found[0]).all()
    assert_close(found, expected, rtol=1e-9, atol=1e-9)


@WEIGHTED
def test_boosters_differ_as_they_do_on_all_rows(weighted):
    data = Data(9, weighted=weighted)
    fold_of = np.random.default_rng(9).integers(0, 3, N)
    fold_of[data.sex == "F"] = np.minimum(fold_of[data.sex == "F"], 1)
    others = np.where(np.arange(N) == 0, 1 - data.decided, data.decided)  # on one machine alone
    rules = [gc.fpr() <= 0.2, by(gc.selection_rate(), "region") <= 0.2]

    def measure(at, communicator=None):
        cells, compiled = bind(data, rules, at, communicator)
        folds = [np.flatnonzero(fold_of[at] == i) for i in range(3)]
        return [
            *estimate_between_fold_deviation(compiled, cells, folds, data.decided[at], others[at])
        ]

    found = measure_deals(measure, N, group=data.sex)
    expected = measure(np.arange(N))
    assert expected[0].any()
    assert_close(found, expected, rtol=1e-9, atol=1e-9)
    if not weighted:
        assert_identical(found, expected)
