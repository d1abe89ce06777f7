"""Thresholds of groups, against trying all of them and against mixtures of thresholds."""

from __future__ import annotations

import itertools
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from references import best_shift
from shift_problems import Problem, random, seeds

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.decision.groups import GroupThresholds
from gbm_constrained.decision.search import best_pair, search_group_thresholds
from gbm_constrained.problem.compiler import compile_constraints
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


@random(12)
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


def test_thresholds_of_three_groups_cost_little_more_than_a_mixture():
    """A threshold of each group, of 80 rows, is near the optimum of mixtures in the mean."""
    excess = []
    for seed, rate in product(range(6), ["fpr", "tpr", "selection"]):
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


@random(10)
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


CLOSE = 1e-6  # What the linear programme leaves.


def needed(rules, margin, y, group, weight=None, **others):
    y = np.asarray(y, dtype=np.intp)
    rows = Rows(y, np.arange(2), weight, columns={"g": np.asarray(group)})
    cells, compiled = compile_constraints(rules, rows)
    return least(cells, compiled, np.asarray(margin, dtype=float), **others)


def least(cells, compiled, margin, bounds=None, shift=None):
    """Candidates of two classes do not depend on the shift."""
    shift = np.zeros(1 if margin.ndim == 1 else margin.shape[1]) if shift is None else shift
    return GroupThresholds(cells, compiled, margin, shift).find_error_and_prices(bounds)[0]


def least_error(candidates, low, high):
    """Try all mixtures that a linear programme of one constraint can end at.

    Of each of two groups a list of (error, value); one group is decided by one of its candidates,
    the other one by two. The sum of the values is within `low` and `high`.
    """
    best = np.inf
    for single, mixed in (candidates, candidates[::-1]):
        for (e, v), (e_1, v_1), (e_2, v_2) in itertools.product(single, mixed, mixed):
            shares = [0.0, 1.0]
            if v_1 != v_2:
                ends = [(end - v - v_1) / (v_2 - v_1) for end in (low, high)]
                shares += [share for share in ends if 0.0 <= share <= 1.0]
            for share in shares:
                if low - 1e-9 <= v + v_1 + share * (v_2 - v_1) <= high + 1e-9:
                    best = min(best, e + e_1 + share * (e_2 - e_1))
    return best


def candidates_of(margin, y, group, part):
    """Error and value of each threshold of each group; `part` gives its part of the value."""
    found = []
    for g in (0, 1):
        mine = group == g
        cuts = [-np.inf, *np.unique(margin[mine])]
        decided = [(margin > cut) & mine for cut in cuts]
        found.append([(np.mean((d != y) & mine), part(d, mine, g)) for d in decided])
    return found


RULES = {
    "misses": (gc.fnr(), lambda d, mine, g, y: np.sum(~d & mine & (y == 1)) / np.sum(y == 1)),
    "selected": (
        gc.gap(gc.selection_rate(), by="g"),
        lambda d, mine, g, y: (1 - 2 * g) * d[mine].mean(),
    ),
    "errors": (
        gc.gap(gc.error_rate(), by="g"),
        lambda d, mine, g, y: (1 - 2 * g) * np.mean(d[mine] != y[mine]),
    ),
    "alarms": (
        gc.gap(gc.fpr(), by="g"),
        lambda d, mine, g, y: (1 - 2 * g) * d[mine & (y == 0)].mean(),
    ),
}


@pytest.mark.parametrize("name", RULES)
@given(
    scores=st.lists(st.integers(-3, 3), min_size=12, max_size=12),
    labels=st.lists(st.integers(0, 1), min_size=12, max_size=12),
    bound=st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.5]),
)
@settings(derandomize=True, deadline=None, max_examples=12)
def test_by_trying_all_mixtures(name, scores, labels, bound):
    """A dozen rows, each many times over: small groups would be put together."""
    margin, y = np.array(scores, dtype=float), np.array(labels)
    group = np.arange(12) % 2
    assume(all((y[group == g] == k).any() for g in (0, 1) for k in (0, 1)))
    rate, part = RULES[name]
    low = -np.inf if name == "misses" else -bound
    candidates = candidates_of(margin, y, group, lambda d, mine, g: part(d, mine, g, y))
    expected = least_error(candidates, low, bound)
    assert np.isfinite(expected)  # always or never would do
    many = [np.repeat(values, 30) for values in (margin, y, group)]
    apart = (
        gc.gap(gc.selection_rate(), by="g") <= 1.0
    )  # This is always met, and distinguishes the groups.
    assert needed([rate <= bound, apart], *many) == pytest.approx(expected, abs=CLOSE)


def drawn(seed=0, n=400):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    score = rng.normal(size=n) + 0.7 * group
    y = (score + rng.normal(size=n) > 0.5).astype(int)
    return score - 0.3, y, group


def test_no_rule_costs_nothing_more_than_the_best_threshold_of_each_group():
    margin, y, group = drawn()
    best = sum(
        min(np.sum((margin[group == g] > cut) != y[group == g]) for cut in [-9, *margin])
        for g in (0, 1)
    )
    found = needed([gc.gap(gc.fpr(), by="g") <= 1.0], margin, y, group)
    assert found == pytest.approx(best / y.size, abs=0.005)  # quantiles only
    assert found >= best / y.size - CLOSE


def test_tighter_bounds_cost_no_less():
    margin, y, group = drawn(1)
    rules = [gc.gap(gc.fpr(), by="g") <= 0.5, gc.fnr() <= 0.5]
    rows = Rows(y.astype(np.intp), np.arange(2), columns={"g": group})
    cells, compiled = compile_constraints(rules, rows)
    assert len(compiled) == 3
    errors = np.empty((5, 5))
    for (i, of_gap), (j, misses) in itertools.product(
        enumerate([0.0, 0.02, 0.05, 0.2, 1.0]), enumerate([0.02, 0.1, 0.2, 0.4, 1.0])
    ):
        bounds = np.where(compiled.owner == 0, of_gap, misses)
        errors[i, j] = least(cells, compiled, margin, bounds)
    assert np.isfinite(errors).all()
    assert (np.diff(errors, axis=0) <= CLOSE).all()
    assert (np.diff(errors, axis=1) <= CLOSE).all()
    assert errors[0, 0] > errors[-1, -1] + 0.05
    everything = np.full(3, np.inf)
    assert least(cells, compiled, margin, everything) == pytest.approx(errors[-1, -1], abs=CLOSE)


def test_what_no_decisions_meet_is_no_number():
    """One score for all: p is selected, p of the negatives and 1 - p of the positives wrongly."""
    y, group = np.arange(400) % 2, np.arange(400) // 2 % 2
    flat = np.zeros(400)
    assert np.isnan(needed([gc.fnr() <= 0.4, gc.fpr() <= 0.4], flat, y, group))
    assert needed([gc.fnr() <= 0.4, gc.fpr() <= 0.7], flat, y, group) == pytest.approx(
        0.5, abs=CLOSE
    )
    few = y[y.size // 4 :].copy()
    few[::10] = 0
    found = needed([gc.fnr() <= 0.4], np.zeros(few.size), few, group[: few.size])
    expected = few.mean() * 0.4 + (1 - few.mean()) * 0.6  # 0.6 of all are selected
    assert found == pytest.approx(expected, abs=CLOSE)


def test_weights_are_repetitions():
    margin, y, group = drawn(2, 100)
    margin = np.round(margin, 1)
    weight = np.random.default_rng(0).integers(1, 3, 100) * np.where(y == 1, 2, 1)
    rules = [gc.gap(gc.selection_rate(), by="g") <= 0.03, gc.fnr() <= 0.2]
    found = needed(rules, margin, y, group, weight.astype(float))
    many = [np.repeat(values, weight) for values in (margin, y, group)]
    assert found == pytest.approx(needed(rules, *many), abs=1e-3)  # other quantiles
    assert found != pytest.approx(needed(rules, margin, y, group), abs=5e-3)


def test_several_classes():
    """Constants are among the candidates, and each group has its own."""
    y = np.arange(600) % 3
    group = np.repeat([0, 1], 300)
    rows = Rows(y.astype(np.intp), np.arange(3), columns={"g": group})
    flat = np.zeros((600, 3))
    cells, compiled = compile_constraints([gc.class_error(1) <= 0.4], rows)
    # All rows of one class at a time: six in ten are decided as class 1, whatever the others are.
    assert least(cells, compiled, flat) == pytest.approx(2 / 3, abs=CLOSE)
    cells, compiled = compile_constraints([gc.class_error(k) <= 0.5 for k in range(3)], rows)
    assert np.isnan(least(cells, compiled, flat))
    # Scores that know class 2 of one group, and nothing else.
    known = flat.copy()
    known[(group == 1) & (y == 2), 2] = 1.0
    known[(group == 1) & (y != 2), 2] = -1.0
    cells, compiled = compile_constraints([gc.class_error(2) <= 0.5], rows)
    assert least(cells, compiled, known) == pytest.approx(0.5, abs=CLOSE)
    noise = np.random.default_rng(0).normal(size=(600, 3)) + 1.5 * np.eye(3)[y]
    rules = [gc.class_error(2) <= 0.1]
    cells, compiled = compile_constraints(rules, rows)
    common = best_shift(noise, cells, compiled)
    found = least(cells, compiled, noise, shift=common.value)
    free = least(cells, compiled, noise, np.array([np.inf]), shift=common.value)
    assert free <= np.mean(noise.argmax(axis=1) != y)
    assert free < found <= common.error + CLOSE  # the shift itself is a candidate


def test_several_views_data_sets_and_masks():
    """Rows of further data sets have groups of their own, and may be in no objective."""
    margin, y, group = drawn(3, 400)
    other_margin, other_y, _ = drawn(4, 200)
    labels = np.concatenate([y, other_y]).astype(np.intp)
    scores = np.concatenate([margin, other_margin])
    rules = [
        gc.gap(gc.fpr(), by="g") <= 0.01,
        gc.fnr(on=np.arange(400) % 5 > 0) <= 0.1,
        gc.fnr(on=gc.dataset("more")) <= 0.1,
        gc.ratio(gc.selection_rate(), by=["g", "h"]) >= 0.5,
    ]
    table = {"g": group, "h": np.arange(400) % 2}
    frames = pd.DataFrame({"x": scores[:400]}), pd.DataFrame({"x": scores[400:]})
    columns = columns_of(table, 400)
    rows = Rows(labels, np.arange(2), None, columns, frames, ("more",), (400, 200))
    cells, compiled = compile_constraints(rules, rows)
    found = least(cells, compiled, scores)
    alone = least(cells, compiled, scores, np.where(compiled.owner == 2, compiled.b, np.inf))
    free = least(cells, compiled, scores, np.full(len(compiled), np.inf))
    assert free == pytest.approx(alone, abs=CLOSE)  # errors of the data set do not count
    assert free < found < 0.5


def test_losses_are_left_out():
    margin, y, group = drawn(5, 200)
    alone = needed([gc.fnr() <= 0.2], margin, y, group)
    assert needed([gc.fnr() <= 0.2, gc.log_loss() <= 1e-6], margin, y, group) == alone


def test_many_small_groups_are_one():
    """Groups of few rows would have thresholds that fit their labels."""
    rng = np.random.default_rng(0)
    margin, y = np.round(rng.normal(size=1200), 2), rng.integers(0, 2, 1200)
    rule = [gc.each(gc.selection_rate(), by="g") <= 1.0]
    found = needed(rule, margin, y, np.arange(1200) // 4)
    common = needed([gc.fnr() <= 1.0], margin, y, np.zeros(1200, int))
    assert found == pytest.approx(common, abs=CLOSE)
    own = needed(rule, margin, y, np.arange(1200) // (60))
    assert own < found - 0.03


def test_the_number_of_groups_is_bounded():
    n = 128
    group = np.repeat(np.arange(n), np.arange(n) + 30)
    rng = np.random.default_rng(0)
    margin, y = rng.normal(size=group.size), rng.integers(0, 2, group.size)
    rows = Rows(y, np.arange(2), columns={"g": group})
    found = compile_constraints([gc.each(gc.selection_rate(), by="g") <= 1.0], rows)
    assert len(GroupThresholds(*found, margin, np.zeros(1)).errors) == 64 + 1
