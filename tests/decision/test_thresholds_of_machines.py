"""Thresholds of rows on many machines, against a sort of all scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shift_problems import EXACT, random, seeds
from tabled_rows import Dealt

import gbm_constrained as gc
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.groups import GroupThresholds
from gbm_constrained.decision.histograms import list_thresholds
from gbm_constrained.decision.search import (
    ShiftSearch,
    match_selection_rate,
    spread_thresholds,
    threshold_curve,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")


def assert_same(found, other):
    """The same shift to the bit, and the same of all that is said of it."""
    np.testing.assert_array_equal(found.value, other.value)
    np.testing.assert_allclose(found.error, other.error, **EXACT)
    np.testing.assert_allclose(found.violation, other.violation, **EXACT)
    np.testing.assert_allclose(found.functionals, other.functionals, **EXACT)
    assert found.is_feasible == other.is_feasible
    assert found.ignored == other.ignored


CASES = {
    "seed": seeds, "weighted": st.booleans(), "penalty": st.sampled_from([None, 0.5, 10]),
    "tighter": st.sampled_from([1.0, 0.6, 0.0]), "penalised": st.booleans(),
    "class_weight": st.sampled_from([1.0, 8.0]),
}  # fmt: skip


@random(60)
@given(n=st.sampled_from([60, 700, 3000]), **CASES)
def test_thresholds_are_those_of_a_sort(**case):
    """Ties, weights, bounds that can be met and not, and penalties."""
    compare_with_sort(many=False, **case)


@random(20)
@given(n=st.just(300), **CASES)
def test_thresholds_under_rules_of_several_views(**case):
    compare_with_sort(many=True, **case)


def compare_with_sort(*, many, n, seed, weighted, penalty, tighter, penalised, class_weight):
    problem = Dealt(seed, n, weighted=weighted)
    rules = problem.rules(many)
    cells, compiled = problem.compiled(rules)
    cells.class_weight[1] = class_weight
    options = {"bounds": tighter * compiled.b, "penalty": penalty}
    if penalised and penalty is not None:
        options["is_penalised"] = problem.rng.random(len(compiled)) < 0.5
    expected = ShiftSearch(problem.margin, cells, compiled).find(**options)
    decided = problem.margin.astype(np.float64) + expected.value > 0

    def work(communicator, index):
        cells, compiled = problem.compiled(rules, index, communicator)
        cells.class_weight[1] = class_weight
        assert len(cells.views) == 1 + many
        found = ShiftSearch(problem.margin[index], cells, compiled).find(**options)
        own = problem.margin[index].astype(np.float64) + found.value > 0
        np.testing.assert_array_equal(own, decided[index])
        return found

    for of_ranks in problem.on_machines(work):
        for found in of_ranks:
            assert_same(found, expected)


def test_an_exact_threshold_adds_less_than_three_tables_of_4096_bins():
    """Where it is hardest: near the fewest errors, many thresholds have about as many."""
    problem = Dealt(0, 200_000, weighted=False)
    problem.margin = problem.rng.normal(size=problem.n) + problem.y
    rules = [gc.fpr() <= 0.99]
    expected = ShiftSearch(problem.margin, *problem.compiled(rules)).find()

    def work(communicator, index):
        cells, compiled = problem.compiled(rules, index, communicator)
        start = len(communicator.shapes)
        found = ShiftSearch(problem.margin[index], cells, compiled).find()
        return found, communicator.shapes[start:]

    for of_ranks in problem.on_machines(work):
        for found, shapes in of_ranks:
            assert_same(found, expected)
            assert sum(map(np.prod, shapes)) < 3 * 4096 * 2


@pytest.mark.parametrize("weighted", [False, True])
def test_a_coarse_search_is_near_and_the_same_on_any_machines(weighted):
    for seed in range(4):
        problem = Dealt(seed, 5000, weighted=weighted)
        rules = [gc.fpr() <= 0.2, gc.gap(gc.fnr(), by="group") <= 0.1]
        expected = ShiftSearch(problem.margin, *problem.compiled(rules)).find(penalty=10.0)

        def work(communicator, index, problem=problem, rules=rules):
            cells, compiled = problem.compiled(rules, index, communicator)
            search = ShiftSearch(problem.margin[index], cells, compiled, most_splits=0)
            return search.find(penalty=10.0)

        found = [one for of_ranks in problem.on_machines(work) for one in of_ranks]
        for one in found:
            assert one.value == found[0].value
            assert one.error == found[0].error
            assert expected.loss - 1e-12 <= one.loss <= expected.loss + 0.01


@random(60)
@given(
    seed=seeds, n=st.integers(40, 2000), share=st.floats(-0.1, 1.1), is_reached=st.booleans(),
    weighted=st.booleans(),
)  # fmt: skip
def test_a_share_is_reached_where_a_sort_reaches_it(seed, n, share, is_reached, weighted):
    """Also where rows without weight lie at the threshold, or many thresholds have the share."""
    problem = Dealt(seed, n, weighted=weighted)
    margin, weight = problem.margin, problem.rng.integers(0, 3, problem.n).astype(float)
    weight[0] = 1.0
    if is_reached:
        share = weight[margin > problem.rng.normal()].sum() / weight.sum()
    expected = match_selection_rate(margin, share, weight)

    def work(communicator, index):
        return match_selection_rate(margin[index], share, weight[index], communicator)

    for of_ranks in problem.on_machines(work):
        for found in of_ranks:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n", [200, 4000])
def test_curves_are_on_the_curve_of_a_sort(n):
    problem = Dealt(5, n)
    problem.margin = np.asarray(problem.margin, dtype=np.float64)
    rules = [gc.fpr() <= 0.2, gc.gap(gc.fnr(), by="group") <= 0.1]
    expected = threshold_curve(problem.margin, *problem.compiled(rules))
    at = {count: i for i, count in enumerate(expected.n_positive)}

    def work(communicator, index):
        return threshold_curve(
            problem.margin[index], *problem.compiled(rules, index, communicator)
        )

    curves = [curve for of_ranks in problem.on_machines(work) for curve in of_ranks]
    for curve in curves:
        positions = [at[count] for count in curve.n_positive]
        np.testing.assert_array_equal(curve.shift, expected.shift[positions])
        np.testing.assert_allclose(curve.error, expected.error[positions], **EXACT)
        np.testing.assert_allclose(curve.functionals, expected.functionals[positions], **EXACT)
        np.testing.assert_array_equal(curve.functionals, curves[0].functionals)
        assert len(positions) > min(n // 2, 300)


@pytest.mark.parametrize("k", [2, 3])
def test_group_thresholds_need_about_as_many_errors(k):
    for seed in range(2):
        problem = Dealt(seed, 3000, k)
        rules = [gc.gap(gc.selection_rate(1), by="group") <= 0.02]
        shift = np.zeros(1 if k == 2 else k)
        expected = GroupThresholds(
            *problem.compiled(rules), problem.margin, shift
        ).find_error_and_prices()[0]

        def work(communicator, index, problem=problem, rules=rules, shift=shift):
            cells, compiled = problem.compiled(rules, index, communicator)
            return GroupThresholds(
                cells, compiled, problem.margin[index], shift
            ).find_error_and_prices()[0]

        found = [one for of_ranks in problem.on_machines(work) for one in of_ranks]
        assert set(found) == {found[0]}
        assert found[0] == pytest.approx(expected, abs=0.003 if k == 2 else 1e-9)


def test_small_groups_decide_together_by_the_rows_of_all_machines():
    """Rows of a group are counted over machines, and not the entries of a table."""
    problem = Dealt(1, 2000)
    rules = [gc.each(gc.fpr(), by="u") <= 0.5]  # About 50 rows in each of 33 groups.

    def work(communicator, index):
        cells, compiled = problem.compiled(rules, index, communicator)
        return len(GroupThresholds(cells, compiled, problem.margin[index], np.zeros(1)).errors)

    cells, compiled = problem.compiled(rules)
    expected = len(GroupThresholds(cells, compiled, problem.margin, np.zeros(1)).errors)
    assert expected == 33
    assert {n for of_ranks in problem.on_machines(work) for n in of_ranks} == {expected}


@pytest.mark.parametrize("n", [300, 5000])
def test_the_auc_is_that_of_all_pairs(n):
    """Apart from those within a bin, of which half count; to the bit the same on any machines."""
    problem = Dealt(2, n)
    rules = [gc.fpr() <= 0.2]
    expected = EvaluationSet(*problem.compiled(rules), "test").auc(problem.margin)

    def work(communicator, index):
        rows = EvaluationSet(*problem.compiled(rules, index, communicator), "test")
        return rows.auc(problem.margin[index])

    found = [auc for of_ranks in problem.on_machines(work) for auc in of_ranks]
    assert set(found) == {found[0]}
    assert found[0] == pytest.approx(expected, abs=1e-3 if n == 300 else 1e-4)


def test_thresholds_are_spread_over_quantiles_of_the_bins():
    problem = Dealt(4, 5000)
    problem.margin = problem.rng.normal(size=problem.n) + 2.0 * problem.y
    rules = [gc.fpr() <= 0.2]

    def work(communicator, index):
        cells, _ = problem.compiled(rules, index, communicator)
        return spread_thresholds(problem.margin[index], cells, 100)

    found = [at for of_ranks in problem.on_machines(work) for at in of_ranks]
    for at in found:
        np.testing.assert_array_equal(at, found[0])
    assert found[0][0] == problem.margin.min() - 1.0
    for k in (0, 1):
        shares = (
            np.searchsorted(np.sort(problem.margin[problem.y == k]), found[0])
            / (problem.y == k).sum()
        )
        assert np.diff(shares).max() < 0.025


@pytest.mark.parametrize(("k", "seed"), [(3, 1), (4, 0)])
def test_biases_are_the_same_on_any_machines_and_nearly_as_good(k, seed):
    problem = Dealt(seed, 200, k, weighted=bool(seed % 2))
    rules = problem.rules()
    cells, compiled = problem.compiled(rules)
    expected = ShiftSearch(problem.margin, cells, compiled).find(penalty=3.0)

    def work(communicator, index):
        cells, compiled = problem.compiled(rules, index, communicator)
        return ShiftSearch(problem.margin[index], cells, compiled).find(penalty=3.0)

    found = [one for of_ranks in problem.on_machines(work) for one in of_ranks]
    for one in found:
        np.testing.assert_array_equal(one.value, found[0].value)
        np.testing.assert_array_equal(one.functionals, found[0].functionals)
    decided = (problem.margin.astype(np.float64) + found[0].value).argmax(axis=1)
    own = ShiftSearch(problem.margin, cells, compiled).merits.measure(decided)
    np.testing.assert_allclose([found[0].error, found[0].violation], own[:2], **EXACT)
    assert found[0].loss <= expected.loss + 0.01


def test_entries_count_all_rows():
    problem = Dealt(7, 500)

    def work(communicator, index):
        cells, _ = problem.compiled([gc.fpr() <= 0.2], index, communicator)
        return list_thresholds(problem.margin[index], cells)

    for of_ranks in problem.on_machines(work):
        for table in of_ranks:
            assert table.count.sum() == problem.n
            assert table.weight.sum() == pytest.approx(problem.weight.sum())
            assert table.cells.rows.weight.sum() == table.weight.sum()
            assert (np.diff(table.scores) <= 0).all()
