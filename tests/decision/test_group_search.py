"""Thresholds of groups, against trying all of them and against mixtures of thresholds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from shift_problems import Problem, random, seeds

import gbm_constrained as gc
from gbm_constrained.decision.groups import GroupThresholds
from gbm_constrained.decision.search import best_pair, search_group_thresholds
from gbm_constrained.statistics.counts import CellCounts, functionals_of

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")
RATES = {"fpr": gc.fpr, "tpr": gc.tpr, "selection": gc.selection_rate, "error": gc.error_rate}


def problem_of(seed, n, n_groups, rate, bound):
    """Rows of some groups under one gap, with the code of each group."""
    problem = Problem(seed, n=n)
    problem.group[:] = problem.rng.choice(list("abc")[:n_groups], n)
    problem.group[:n_groups] = list("abc")[:n_groups]
    cells, compiled = problem.compiled([gc.gap(RATES[rate](), by="group") <= bound])
    return problem, cells, compiled, np.searchsorted(list("abc"), problem.group)


def measure(cells, compiled, decided):
    """Error and largest violation of decisions, by counts."""
    counts = CellCounts.of(cells, decided)
    wrong = counts.weight[cells.labelled].sum() - sum(
        counts.weight[i, cells.labels[i]] for i in np.flatnonzero(cells.labelled)
    )
    left = compiled.rows_of(np.nan_to_num(functionals_of(compiled, counts))) - compiled.b
    return wrong / counts.weight[cells.labelled].sum(), left[compiled.is_known].max(initial=0.0)


def every_threshold(problem, cells, compiled, groups):
    """Smallest error over all combinations of thresholds that satisfy the constraints."""
    shifts = []
    for g in range(groups.max() + 1):
        scores = np.unique(problem.margin[groups == g])
        middle = -(scores[1:] + scores[:-1]) / 2
        shifts.append([-scores[0] + 1.0, -scores[-1] - 1.0, *middle])
    tried = (
        measure(cells, compiled, (problem.margin + np.array(each)[groups] > 0).astype(int))
        for each in product(*shifts)
    )
    return min((error for error, violation in tried if violation <= 1e-12), default=None)


def search(problem, cells, compiled, groups):
    common = np.zeros(groups.max() + 1)
    return search_group_thresholds(problem.margin, cells, compiled, groups, common).find(
        compiled.b
    )


@random(25)
@given(seed=seeds, rate=st.sampled_from(list(RATES)), bound=st.sampled_from([0.0, 0.05, 0.2]))
def test_two_groups_by_trying_all(seed, rate, bound):
    problem, cells, compiled, groups = problem_of(seed, 30, 2, rate, bound)
    found, least = (f(problem, cells, compiled, groups) for f in (search, every_threshold))
    assert (found is None) == (least is None), "no two error rates of groups may be equal"
    if found is None:
        return
    decided = (problem.margin + found.values[groups] > 0).astype(int)
    error, violation = measure(cells, compiled, decided)
    assert found.violation == 0.0
    assert violation <= 1e-12
    assert found.error == pytest.approx(error, abs=1e-12)
    assert error == pytest.approx(least, abs=1e-12)


@random(25)
@given(seed=seeds, rate=st.sampled_from(["fpr", "tpr", "selection"]))
def test_three_groups_lie_between_the_mixture_and_a_common_decision(seed, rate):
    """No group may draw lots, so that the optimum of mixtures is a bound from below."""
    problem, cells, compiled, groups = problem_of(seed, 240, 3, rate, 0.1)
    assume(np.bincount(groups).min() >= 30)
    found = search(problem, cells, compiled, groups)
    least = GroupThresholds(cells, compiled, problem.margin, np.zeros(1)).find_error_and_prices()[
        0
    ]
    constant = min(measure(cells, compiled, np.full(240, k))[0] for k in (0, 1))
    assert found.violation == 0.0
    assert least - 1e-9 <= found.error <= constant + 1e-12


def test_thresholds_of_three_groups_cost_little_more_than_a_mixture():
    """A threshold of each group, of 80 rows, is near the optimum of mixtures in the mean."""
    excess = []
    for seed, rate in product(range(20), ["fpr", "tpr", "selection"]):
        problem, cells, compiled, groups = problem_of(seed, 240, 3, rate, 0.1)
        least = GroupThresholds(
            cells, compiled, problem.margin, np.zeros(1)
        ).find_error_and_prices()[0]
        excess.append(search(problem, cells, compiled, groups).error - least)
    assert min(excess) >= -1e-9
    assert np.mean(excess) <= 0.01


def test_three_groups_by_trying_all():
    """The search by pairs is no exact one; on these rows it finds the optimum or nearly so."""
    excess = []
    for seed in range(8):
        problem, cells, compiled, groups = problem_of(seed, 18, 3, "fpr", 0.1)
        found = search(problem, cells, compiled, groups)
        excess.append(found.error - every_threshold(problem, cells, compiled, groups))
    assert min(excess) >= -1e-12
    assert np.mean(np.array(excess) <= 1e-12) >= 0.75
    assert max(excess) <= 0.05


@random(20)
@given(seed=seeds)
def test_both_searches_of_a_pair_agree(seed):
    """Rates that rise or fall have a faster search than all pairs, whose error is the same."""
    problem, cells, compiled, groups = problem_of(seed, 60, 2, "tpr", 0.1)
    of_pairs = search_group_thresholds(problem.margin, cells, compiled, groups, np.zeros(2))
    first, second = of_pairs.tables
    assert first.is_monotone
    assert second.is_monotone
    i, j = best_pair(first, second, compiled.b)
    total = first.error[:, None] + second.error
    is_met = np.ones(total.shape, dtype=bool)
    for a, c, most in zip(first.rates, second.rates, compiled.b, strict=True):
        is_met &= a[:, None] + c <= most + 1e-12
    assert first.error[i] + second.error[j] == pytest.approx(total[is_met].min(), abs=1e-12)
    alike = is_met & (total <= total[is_met].min() + 1e-12)
    size = np.abs(first.shift)[:, None] + np.abs(second.shift)
    assert size[i, j] == pytest.approx(size[alike].min())


def test_rows_of_no_group_keep_the_common_threshold():
    problem, cells, compiled, groups = problem_of(3, 80, 2, "selection", 0.1)
    groups = np.where(np.arange(80) < 10, -1, groups)
    common = np.full(2, 0.4)
    found = search_group_thresholds(problem.margin, cells, compiled, groups, common).find(
        compiled.b
    )
    shift = np.where(groups < 0, 0.4, found.values[groups])
    error, violation = measure(cells, compiled, (problem.margin + shift > 0).astype(int))
    assert violation <= 1e-12
    assert found.error == pytest.approx(error, abs=1e-12)


def test_constraints_that_no_thresholds_meet_have_no_shifts():
    problem, _, _, groups = problem_of(0, 40, 2, "fpr", 0.1)
    cells, compiled = problem.compiled(
        [gc.selection_rate() <= 0.1, gc.recall() >= 1.0, gc.gap(gc.fpr(), by="group") <= 0.1]
    )
    assert search(problem, cells, compiled, groups) is None
