"""Rows of constraints that are violated beyond doubt."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import Data, by

import gbm_constrained as gc
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.binomial import clopper_pearson, sum_p_value
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.p_values import find_violated_rows, row_p_values


def unseen(rules, y, sensitive=None, classes=None, weight=None):
    columns = {name: np.asarray(v) for name, v in (sensitive or {}).items()}
    classes = np.unique(y) if classes is None else classes
    rows = Rows(y, classes, weight, columns)
    return EvaluationSet(*compile_constraints(rules, rows), "test")


def count_calls(function):
    """Calls of a function that remembers its results, since it last forgot them."""
    found = function.cache_info()
    return found.hits + found.misses


def test_rows_beyond_doubt_are_the_opposite_of_certificates():
    rng = np.random.default_rng(6)
    n = 600
    y, g = rng.integers(0, 2, n), rng.integers(0, 2, n).astype(str)
    decided = np.where(rng.random(n) < 0.7, y, 1 - y)
    skewed = (rng.random(n) < np.where(g == "1", 0.8, 0.2)).astype(int)
    sensitive = {"g": g}
    undecided = open_to_limits = 0
    for bound in np.linspace(0.02, 0.98, 97):
        high = unseen([gc.fnr() <= bound, gc.precision() <= bound], y, sensitive)
        low = unseen([gc.fnr() >= bound, gc.precision() >= bound], y, sensitive)
        counts = CellCounts.of(high.cells, decided)
        opposite = row_p_values(low.compiled, CellCounts.of(low.cells, decided))
        np.testing.assert_array_equal(
            find_violated_rows(high.compiled, counts, 0.025), opposite <= 0.025
        )
        undecided += ((opposite > 0.025) & (opposite <= 0.05)).sum()
        # Two groups: the exact test that one of them is higher by as much, either way round.
        apart = unseen([gc.gap(gc.selection_rate(), by="g") <= bound], y, sensitive)
        counts = CellCounts.of(apart.cells, skewed)
        first, second = (gc.selection_rate(on={"g": k}) for k in "01")
        signed = unseen([first - second >= bound, second - first >= bound], y, sensitive)
        opposite = row_p_values(signed.compiled, CellCounts.of(signed.cells, skewed))
        found = find_violated_rows(apart.compiled, counts, 0.025)
        assert sorted(found) == sorted(opposite <= 0.025)
        ends = [clopper_pearson(skewed[g == k].sum(), (g == k).sum(), 0.975) for k in "01"]
        open_to_limits += found.any() and ends[1][0] - ends[0][1] <= bound
    assert undecided, "no p-value is near the level, so that nothing is proved"
    assert open_to_limits, "limits of each group refute as much, so that nothing is proved"


def test_two_rates_are_beyond_doubt_as_their_exact_test_says():
    """Whatever is counted: what limits settle before it, one way or the other, it agrees with."""
    wrong = np.arange(31)
    weight = np.zeros((31 * 31, 2, 2))
    weight[:, 0, 1], weight[:, 1, 0] = np.repeat(wrong, 31), np.tile(wrong, 31)
    weight[:, 0, 0], weight[:, 1, 1] = 30 - weight[:, 0, 1], 30 - weight[:, 1, 0]
    counts = CellCounts(weight, weight, weight)
    for bound in (0.3, 0.9):
        rows, opposite = (
            unseen([rule], np.repeat([0, 1], 30))
            for rule in (gc.fpr() + gc.fnr() <= bound, gc.fpr() + gc.fnr() >= bound)
        )
        p = row_p_values(opposite.compiled, counts)
        for level in (0.025, 1e-4):
            np.testing.assert_array_equal(
                find_violated_rows(rows.compiled, counts, level), p <= level
            )


def test_of_the_pairs_of_groups_the_furthest_is_tested():
    """One exact test for each decision at most, and none where limits refute the gap."""
    rng = np.random.default_rng(4)
    y, g = rng.integers(0, 2, 1200), rng.integers(0, 4, 1200).astype(str)
    rows = unseen([gc.gap(gc.selection_rate(), by="g") <= 0.02, gc.fnr() <= 0.4], y, {"g": g})
    margin = rng.normal(size=1200) + 0.35 * (g == "0") + 0.3 * (g == "1")
    counts = CellCounts.at_thresholds(rows.cells, margin, np.linspace(-2.0, 2.0, 81))
    of_gap = rows.compiled.owner == 0
    sum_p_value.cache_clear()
    every = find_violated_rows(rows.compiled, counts, 0.002)
    n_every = count_calls(sum_p_value)
    sum_p_value.cache_clear()
    levels = np.full(len(rows.compiled), 0.002)
    one = find_violated_rows(rows.compiled, counts, levels, one_test_each=True)
    n_one = count_calls(sum_p_value)
    np.testing.assert_array_equal(one[:, of_gap].any(axis=1), every[:, of_gap].any(axis=1))
    np.testing.assert_array_equal(one[:, ~of_gap], every[:, ~of_gap])
    selected = margin > np.linspace(-2.0, 2.0, 81)[:, None]
    ends = np.array(
        [clopper_pearson(selected[:, g == k].sum(axis=1), (g == k).sum(), 0.998) for k in "0123"]
    )  # by group, end and decision
    by_limits = ends[:, 0].max(axis=0) - ends[:, 1].min(axis=0) > 0.02
    assert 0 < n_one <= (~by_limits).sum()
    assert n_one < n_every
    assert by_limits.any()
    assert (one[:, of_gap].any(axis=1) & ~by_limits).any()


@pytest.mark.parametrize("weighted", [False, True])
def test_constraints_that_hold_are_seldom_doubted(weighted):
    """At their bound in the population, rows are beyond doubt at the level at most."""
    rng = np.random.default_rng(8)
    n, repeats, doubted = 400, 200, np.zeros(4)
    for _ in range(repeats):
        y, g = rng.integers(0, 2, n), rng.integers(0, 2, n)
        wrong = rng.random(n) < np.where(g == 1, 0.3, 0.2)
        decided = np.where(wrong, 1 - y, y)
        rules = [gc.error_rate(on={"g": "1"}) <= 0.3, gc.gap(gc.error_rate(), by="g") <= 0.1,
                 gc.precision(on={"g": "0"}) >= 0.8]  # fmt: skip
        weight = rng.uniform(0.5, 1.5, n) if weighted else None
        rows = unseen(rules, y, {"g": g.astype(str)}, weight=weight)
        beyond = find_violated_rows(rows.compiled, CellCounts.of(rows.cells, decided), 0.025)
        doubted += beyond
    assert (doubted / repeats <= 0.025 + 2.5 * np.sqrt(0.025 / repeats)).all()


def test_cells_without_rows_are_not_beyond_doubt():
    rows = unseen([gc.fpr(on={"g": "x"}) <= 0.1], np.array([0, 1, 0, 1]), {"g": list("xxyy")})
    nobody = rows.cells.take(np.array([2, 3]))
    assert isinstance(nobody, Cells)
    assert not find_violated_rows(
        rows.compiled, CellCounts.of(nobody, np.ones(2, int)), 0.025
    ).any()


@pytest.mark.parametrize(
    "rule", [gc.fnr() <= 0.0, gc.tpr() >= 1.0, gc.accuracy() >= 1.0, gc.tpr() + gc.tnr() >= 2.0]
)
def test_constraints_at_the_end_of_their_range_are_broken_by_an_error_and_not_without(rule):
    y = np.repeat([0, 1], 200)
    rows = unseen([rule], y)
    for wrong in (0, 1, 150):  # of 200 rows of class 1
        decided = np.where(np.arange(400) < 200 + wrong, 0, 1)
        found = find_violated_rows(rows.compiled, CellCounts.of(rows.cells, decided), 0.025)
        assert found.tolist() == [wrong > 0]


def test_means_of_two_groups_are_certified_when_hoeffdings_limits_meet_the_bound():
    """Scores of -1, 0 and 1 are no binomials: their limits are Hoeffding's at p / 2 each."""
    data = Data(11, n=2000)
    right, before = data.y == data.decided, data.y == data.other
    score = (before & ~right).astype(float) - (right & ~before)
    own = [score[data.sex == sex] for sex in "FM"]
    each_limit = sum(2.0 / np.sqrt(2.0 * x.size) for x in own)  # for one unit of log(2 / p)
    rule = by(gc.losses(to="old") - gc.wins(over="old")) <= 0.25
    compiled, counts = data.measured(rule)
    p = row_p_values(compiled, counts)
    apart = own[0].mean() - own[1].mean()
    expected = [2.0 * np.exp(-(((0.25 - d) / each_limit) ** 2)) for d in (apart, -apart)]
    assert max(expected) < 0.5
    assert sorted(p) == pytest.approx(sorted(expected), rel=1e-6)
    # Beyond doubt is a bound that the opposite limit is above.
    limit = abs(apart) - each_limit * np.sqrt(np.log(2.0 / 0.9))
    for bound, is_beyond in ((limit - 1e-6, True), (limit + 1e-6, False)):
        signed = gc.losses(to="old", on={"sex": "F"}) - gc.wins(over="old", on={"sex": "F"})
        signed -= gc.losses(to="old", on={"sex": "M"}) - gc.wins(over="old", on={"sex": "M"})
        rule = (signed if apart > 0 else -1 * signed) <= bound
        assert find_violated_rows(*data.measured(rule), 0.9).tolist() == [is_beyond]


def test_unequal_weights_count_as_their_effective_number_beyond_doubt():
    data = Data(3, n=400, weighted=True)
    ends = []
    for sex, tail in (("F", 0), ("M", 1)):
        v = data.weight[data.sex == sex]
        n, rate = v.sum() ** 2 / (v**2).sum(), np.average(data.decided[data.sex == sex], weights=v)
        ends.append(clopper_pearson(rate * n, n, 0.5)[tail])
    limit = ends[0] - ends[1]  # at 0.25 on each side
    signed = gc.selection_rate(on={"sex": "F"}) - gc.selection_rate(on={"sex": "M"})
    for bound, is_beyond in ((limit - 1e-6, True), (limit + 1e-6, False)):
        assert find_violated_rows(*data.measured(signed <= bound), 0.5).tolist() == [is_beyond]
