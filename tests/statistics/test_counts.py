"""Counts of decisions, and their blocks."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import Data, binary_rules, by, random
from dealt_rows import assert_close, assert_identical, measure_deals, take_rows
from hypothesis import given
from hypothesis import strategies as st

import gbm_constrained as gc
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.influence import estimate_between_fold_deviation
from gbm_constrained.statistics.intervals import (
    MeanIntervals,
    constraint_intervals,
    functional_intervals,
)
from gbm_constrained.statistics.order_statistics import expected_bounds
from gbm_constrained.statistics.p_values import constraint_p_values, row_p_values
from gbm_constrained.statistics.sampled_intervals import Sampled


@random(15)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans())
def test_parts_add_up_to_the_functionals(seed, weighted):
    """On rules of every form, in several views: sum of coefficient times fraction, + constant."""
    data = Data(seed, weighted=weighted)
    cells, compiled = compile_constraints(binary_rules(), data.rows)
    assert len(cells.views) > 1
    counts = CellCounts.of(cells, data.decided)
    np.testing.assert_allclose(counts.weight.sum(axis=1), cells.weight)
    np.testing.assert_allclose(counts.count.sum(axis=1), cells.count)
    predicted = counts.weight / np.maximum(cells.weight, 1e-300)[:, None]
    nothing = np.zeros(len(cells))
    expected = compiled.functionals(CellStatistics(predicted, nothing, nothing))
    found = [
        compiled.constant[k]
        + sum(
            part.coefficient
            * (counts.weight[part.cells] * part.event).sum()
            / counts.weight[part.cells].sum()
            for part in parts
        )
        for k, parts in enumerate(compiled.parts)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(functionals_of(compiled, counts), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_are_those_of_the_rows(weighted):
    data = Data(3, n_classes=4, weighted=weighted)
    w = data.weight if weighted else np.ones(200)
    if weighted:
        w[::5] = 0.0
    rules = [gc.class_error(1) <= 0.2, gc.selection_rate(2) <= 0.3]
    cells, _ = compile_constraints(rules, data.rows)
    counts = CellCounts.of(cells, data.decided)
    for c in range(len(cells)):
        for k in range(4):
            own = (cells.codes == c) & (data.decided == k)
            assert counts.weight[c, k] == pytest.approx(w[own].sum())
            assert counts.square[c, k] == pytest.approx((w[own] ** 2).sum())
            assert counts.count[c, k] == (w[own] > 0).sum()


@pytest.mark.parametrize("weighted", [False, True])
def test_thresholds_are_counted_together_as_one_by_one(weighted):
    """In any order, with ties between scores and thresholds, and so are their p-values."""
    data = Data(1, weighted=weighted)
    rng = np.random.default_rng(0)
    scores, thresholds = np.round(rng.normal(size=200), 1), rng.permutation(11) / 5 - 1.0
    rules = [
        gc.fpr() <= 0.2,
        gc.precision() >= 0.4,
        gc.f1() >= 0.3,
        by(gc.selection_rate()) <= 0.3,
    ]
    cells, compiled = compile_constraints(rules, data.rows)
    together = CellCounts.at_thresholds(cells, scores, thresholds)
    p, f = row_p_values(compiled, together), functionals_of(compiled, together)
    for i, threshold in enumerate(thresholds):
        counts = CellCounts.of(cells, scores > threshold)
        for name in ("weight", "square", "count"):
            found = getattr(together, name)[i]
            np.testing.assert_allclose(found, getattr(counts, name), rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(p[i], row_p_values(compiled, counts), rtol=1e-9)
        np.testing.assert_allclose(f[i], functionals_of(compiled, counts), rtol=1e-9, atol=1e-12)
    assert constraint_p_values(compiled, together).max(axis=-1).shape == (11,)
    assert expected_bounds(compiled, together).shape == (11, len(compiled))


def test_mean_losses_have_no_parts():
    """No interval, p-value 1."""
    data = Data()
    rules = [
        gc.log_loss() <= 0.5,
        gc.fpr() <= 0.99,
        gc.fpr() + gc.log_loss() <= 2.0,
        by(gc.log_loss()) <= 1.0,
    ]
    compiled, counts = data.measured(*rules)
    assert [p is None for p in compiled.parts] == [True, False, True, True, True]
    assert constraint_p_values(compiled, counts).tolist()[0::2] == [1.0, 1.0]
    assert constraint_p_values(compiled, counts)[1] < 1e-10
    assert constraint_p_values(compiled, counts).max() == 1.0
    for ends in (constraint_intervals(compiled, counts), functional_intervals(compiled, counts)):
        assert np.isnan(ends[[0, 2, 3]]).all()
        assert np.isfinite(ends[1]).all()
    assert np.isnan(expected_bounds(compiled, counts)).tolist() == [True, False] + [True] * 3


def test_what_these_rows_do_not_have_is_not_certified():
    """A group without rows, here or in its base set: p = 1 and no interval.

    Unless no decisions violate the rule.
    """
    data = Data(n=400)
    data.decided = data.y
    in_groups = gc.each(gc.fnr(), by="sex", min_group_size=1)
    rules = [in_groups <= 0.5, gc.fnr() <= 0.5, in_groups <= 1.0]
    _, compiled = compile_constraints(rules, data.rows)
    men = data.sex == "M"
    rows = Rows(
        data.y[men], data.classes, None, {"sex": data.sex[men]}, like=data.rows
    )  # fmt: skip
    data.rows.attribute(("sex",))
    cells, here = compile_constraints(rules, rows, like=compiled)
    counts = CellCounts.of(cells, data.decided[men])
    assert constraint_p_values(here, counts)[0] == 1.0
    assert constraint_p_values(here, counts)[1] < 1e-9
    assert constraint_p_values(here, counts)[2] == 0.0
    assert np.isnan(functional_intervals(here, counts)[0]).all()
    compiled, counts = Data().measured(gc.fpr() <= 1.0, by(gc.fpr()) <= 0.5, gc.precision() >= 0.1)
    nothing = CellCounts(*(np.zeros_like(t) for t in (counts.weight,) * 3))
    assert row_p_values(compiled, nothing).tolist() == [1.0] * len(compiled)
    assert expected_bounds(compiled, nothing).tolist() == [-np.inf] * len(compiled)


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
