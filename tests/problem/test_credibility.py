"""Credibility: how far groups move a model, against formulas by hand and simulated samples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from machines import run_on_machines
from predicted_rows import hold_out

import gbm_constrained as gc
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.regression import credible_rows
from gbm_constrained.decision.violations import standard_errors
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import FitProblem, LibrarySettings
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import CREDIBLE_ROWS
from gbm_constrained.statistics.counts import CellCounts, functionals_of

OF_NINE = (5, 10, 20, 40, 80, 160, 320, 640, 1280)
EXACT = {"rtol": 0.0, "atol": 1e-12}


def draw(sizes, seed=0, weighted=False):
    """Rows of groups of given sizes, in any order, and scores."""
    rng = np.random.default_rng(seed)
    g = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    y = (rng.random(g.size) < 0.4).astype(int)
    weight = rng.integers(1, 4, g.size).astype(float) if weighted else None
    return Rows(y, np.arange(2), weight, {"g": g}), y - 0.5 + rng.normal(size=g.size)


def credible(sizes, rule, **options):
    """Rows, their scores and cells, and the constraints as stated and as they act."""
    rows, margin = draw(sizes, **options)
    cells, compiled = compile_constraints([rule], rows)
    return rows, margin, cells, compiled, compiled.make_credible(cells)


def rates_by_group(rows, margin, at):
    """Share of rows that are selected in each group, among the rows in question; and rows."""
    g, weight = rows.columns["g"], np.ones(len(rows)) if rows.weight is None else rows.weight
    inside = [at & (g == k) for k in np.unique(g)]
    rates = np.array([np.average(margin[i] > 0, weights=weight[i]) for i in inside])
    return rates, np.array([i.sum() for i in inside], dtype=float)


# --- the formula --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [(100, 300), (3, 40, 4000), OF_NINE], ids=["two", "rare", "nine"]
)
@pytest.mark.parametrize("of_label", [False, True])
def test_rates_act_by_n_over_n_plus_25_for_each_group_beyond_two(sizes, of_label):
    """Rates of groups lean to the rate of all their rows together."""
    rate = gc.fpr() if of_label else gc.selection_rate()
    rows, margin, cells, _, acting = credible(sizes, gc.gap(rate, by="g", min_group_size=1) <= 0.1)
    at = rows.y == 0 if of_label else np.ones(len(rows), dtype=bool)
    rates, n = rates_by_group(rows, margin, at)
    own = n / (n + 25.0 * (len(sizes) - 2))
    expected = own * rates + (1.0 - own) * np.mean(margin[at] > 0)
    counts = CellCounts.of(cells, (margin > 0).astype(int))
    np.testing.assert_allclose(functionals_of(acting, counts), expected, **EXACT)
    if not of_label and len(sizes) == 9:
        assert own[[0, 8]] == pytest.approx([5 / 180, 1280 / 1455])


def test_rows_of_a_constraint_compare_credible_rates():
    sizes = (50, 75, 100)  # These count 2/3, 3/4 and 4/5.
    _, margin, cells, compiled, acting = credible(
        sizes, gc.gap(gc.selection_rate(), by="g") <= 0.1
    )
    counts = CellCounts.of(cells, (margin > 0).astype(int))
    f = functionals_of(compiled, counts)
    mean = np.average(f, weights=sizes)
    own = np.array([2 / 3, 3 / 4, 4 / 5])
    rates = own * f + (1.0 - own) * mean
    assert CREDIBLE_ROWS == 25.0
    gaps = [a - b for a, b in itertools.permutations(rates, 2)]
    found = acting.rows_of(functionals_of(acting, counts))
    np.testing.assert_allclose(np.sort(found), np.sort(gaps))
    np.testing.assert_array_equal(acting.b, compiled.b)


@pytest.mark.parametrize("reference", [2, gc.overall], ids=["a group", "all rows"])
def test_rates_lean_to_the_reference_that_groups_are_compared_with(reference):
    sizes = (10, 40, 200)
    rule = gc.gap(gc.selection_rate(), by="g", min_group_size=1, reference=reference) <= 0.1
    rows, margin, cells, compiled, acting = credible(sizes, rule)
    counts = CellCounts.of(cells, (margin > 0).astype(int))
    stated = functionals_of(compiled, counts)
    _, n = rates_by_group(rows, margin, np.ones(len(rows), dtype=bool))
    n = n[: stated.size - 1]
    own = n / (n + 25.0 * (stated.size - 2))
    expected = [*(own * stated[:-1] + (1.0 - own) * stated[-1]), stated[-1]]
    np.testing.assert_allclose(functionals_of(acting, counts), expected, **EXACT)


def test_a_sum_of_rates_acts_by_the_smaller_of_their_rows():
    sizes = (30, 90, 400)
    rule = gc.gap(gc.tpr() - gc.fpr(), by="g", min_group_size=1) <= 0.1
    rows, margin, cells, _, acting = credible(sizes, rule)
    found = functionals_of(acting, CellCounts.of(cells, (margin > 0).astype(int)))
    rates1, n1 = rates_by_group(rows, margin, rows.y == 1)
    rates0, n0 = rates_by_group(rows, margin, rows.y == 0)
    n, f = np.minimum(n1, n0), rates1 - rates0
    own = n / (n + 25.0)
    expected = own * f + (1.0 - own) * (n @ f) / n.sum()
    np.testing.assert_allclose(found, expected, **EXACT)


@pytest.mark.parametrize("n_groups", [2, 3, 9])
def test_means_of_numbers_act_by_the_ratio_of_variances_for_each_group_beyond_two(n_groups):
    """The ratio is that of Buehlmann and Straub, of the variance within groups to that between."""
    rng = np.random.default_rng(n_groups)
    sizes = rng.integers(20, 60, n_groups)
    group = np.repeat(np.arange(n_groups), sizes)
    score = rng.normal(size=group.size) + rng.normal(size=n_groups)[group]
    rows = hold_out(score, [gc.gap(gc.mean_prediction(), by="g", min_group_size=1) <= 0.1], group)
    mean = np.bincount(group, score) / sizes
    within = ((score - mean[group]) ** 2).sum() / (group.size - n_groups)
    between = sizes @ (mean - score.mean()) ** 2 - (n_groups - 1) * within
    ratio = within * (group.size - sizes @ sizes / group.size) / between
    expected = np.full(n_groups, ratio * (n_groups - 2))
    np.testing.assert_allclose(credible_rows(rows, score), expected, rtol=1e-9)
    alike = np.tile([-1.0, 1.0], group.size)[: group.size]  # No group differs from another.
    assert (credible_rows(rows, alike) >= 1e3 * (n_groups - 2)).all()


# --- where groups act in full -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        (OF_NINE, gc.gap(gc.fpr(), by="g", min_group_size=1, small_groups="hold") <= 0.1),
        ((300,), gc.each(gc.fpr(), by="g") <= 0.1),
        ((100, 300), gc.gap(gc.fpr(), by="g") <= 0.1),
        ((100, 300), gc.fpr() <= 0.1),
        ((100, 300), gc.fpr(on={"g": 0}) - gc.fpr(on={"g": 1}) <= 0.1),
    ],
    ids=["hold", "one group", "two groups", "no groups", "named groups"],
)
def test_other_constraints_act_as_they_are_stated(sizes, rule):
    *_, compiled, acting = credible(sizes, rule)
    assert acting is compiled


def test_a_constraint_that_is_held_leaves_others_as_they_are():
    rows, margin = draw((20, 80, 60))
    rules = [gc.gap(gc.fpr(), by="g", min_group_size=1, small_groups=s) <= 0.1
             for s in ("keep", "hold")]  # fmt: skip
    cells, compiled = compile_constraints([*rules, gc.fnr() <= 0.2], rows)
    counts = CellCounts.of(cells, (margin > 0).astype(int))
    stated = functionals_of(compiled, counts)
    found = functionals_of(compiled.make_credible(cells), counts)
    keep, hold, single = compiled.spans
    assert (found[keep] != stated[keep]).all()
    np.testing.assert_array_equal(found[hold], stated[hold])
    np.testing.assert_array_equal(found[single], stated[single])


def test_credible_constraints_are_mixed_once():
    *_, cells, _, acting = credible((20, 80), gc.gap(gc.fpr(), by="g", min_group_size=1) <= 0.1)
    assert acting.make_credible(cells) is acting


@pytest.mark.parametrize("guarantee", [None, "expected", "high_probability"])
def test_with_a_guarantee_every_group_acts_in_full(guarantee):
    rows, margin = draw((200, 800, 500))
    model = gc.ConstrainedLGBMClassifier(
        constraints=[gc.gap(gc.fpr(), by="g") <= 0.1], guarantee=guarantee
    )
    data = FitArguments(margin[:, None], rows.y, sensitive_features={"g": rows.columns["g"]})
    _, problem = FitProblem.of(SolverOptions.of(model), data, LibrarySettings(0.1, 5))
    assert (problem.acting is problem.compiled) == (guarantee is not None)
    held = EvaluationSet(
        problem.cells, problem.compiled, "test", holds_groups=guarantee is not None
    )
    assert (held.credible is held) == (guarantee is not None)
    assert held.credible is held.credible


# --- tables of cells, parts of rows and machines ------------------------------------------------


RULES = [
    gc.gap(gc.fpr(), by="g", min_group_size=1) <= 0.1,
    gc.each(gc.fnr(), by="g", min_group_size=1) <= 0.1,
    gc.ratio(gc.selection_rate(), by="g", min_group_size=1) >= 0.8,
    gc.gap(gc.error_rate(), by="g", min_group_size=1, reference=gc.overall) <= 0.1,
    gc.fnr() <= 0.5,
]


@pytest.mark.parametrize("weighted", [False, True])
def test_functionals_of_tables_are_those_of_counts(weighted):
    rows, margin = draw(OF_NINE, weighted=weighted)
    cells, compiled = compile_constraints(RULES, rows)
    acting = compiled.make_credible(cells)
    statistics = (
        Lagrangian(rows.y, cells, acting, weight=rows.weight).at(margin).statistics(is_exact=True)
    )
    counts = CellCounts.of(cells, (margin > 0).astype(int))
    of_counts = functionals_of(acting, counts)
    np.testing.assert_allclose(acting.functionals(statistics), of_counts, **EXACT)
    np.testing.assert_allclose(
        acting.mixing @ functionals_of(compiled, counts), of_counts, **EXACT
    )
    stated = acting.find_stated(statistics, acting.functionals(statistics))
    np.testing.assert_allclose(stated, functionals_of(compiled, counts), **EXACT)


def test_a_group_that_a_part_leaves_without_rows_moves_no_other():
    """Its own rate is unknown, and binds nothing; the others act by the rows that they have."""
    rows, margin = draw((100, 200, 400))
    g = rows.columns["g"]
    cells, compiled = compile_constraints([gc.gap(gc.fpr(), by="g") <= 0.1], rows)
    acting = compiled.make_credible(cells)
    kept = np.flatnonzero((g > 0) & (np.arange(g.size) % 2 == 0))
    part = cells.take(kept)
    found = acting.on(part)
    statistics = Lagrangian(rows.y[kept], part, found).at(margin[kept]).statistics(is_exact=True)
    functionals = found.functionals(statistics)
    assert np.isnan(functionals[0])
    mine = [kept[(g[kept] == k) & (rows.y[kept] == 0)] for k in (1, 2)]
    n = np.array([m.size for m in mine], dtype=float)
    rates = np.array([np.mean(margin[m] > 0) for m in mine])
    own, mean = n / (n + 25.0), n @ rates / n.sum()
    np.testing.assert_allclose(functionals[1:], own * rates + (1 - own) * mean, **EXACT)
    violations = found.rows_of(functionals) - found.b
    assert np.isfinite(violations).all()
    of_first = [j for j, name in enumerate(found.rows) if "g=0" in name]
    assert len(of_first) == 4
    assert (violations[of_first] == 0.0).all()
    assert np.isfinite(standard_errors(found, CellCounts.of(part, margin[kept] > 0))).all()


def test_standard_errors_are_the_spread_of_credible_rows_over_samples():
    """Of 20,000 samples with the same rows in each group and the same rates."""
    sizes, rates = (15, 60, 600), np.array([0.3, 0.5, 0.2])
    rows, _ = draw(sizes)
    rule = gc.gap(gc.selection_rate(), by="g", min_group_size=1) <= 0.1
    cells, compiled = compile_constraints([rule], rows)
    acting = compiled.make_credible(cells)
    rng = np.random.default_rng(0)
    drawn = rng.binomial(sizes, rates, (20_000, 3)) / np.array(sizes)
    samples = drawn @ acting.mixing.T @ acting.R.T
    expected = np.std(samples, axis=0)
    n = np.array(sizes)
    # The same rates in each cell of a group.
    first_row = np.array([np.flatnonzero(cells.codes == c)[0] for c in range(len(cells))])
    of_cell = rates[rows.columns["g"][first_row]]
    counts = CellCounts.of_shares(cells, np.column_stack([1.0 - of_cell, of_cell]))
    np.testing.assert_allclose(standard_errors(acting, counts), expected, rtol=0.03)
    stated = standard_errors(compiled, counts)
    assert stated.max() == pytest.approx(np.sqrt((rates * (1 - rates) / n)[:2].sum()))
    assert (standard_errors(acting, counts) < stated).all()


@pytest.mark.parametrize("n_machines", [2, 3])
def test_machines_mix_as_one_does(n_machines):
    rows, margin = draw(OF_NINE)
    cells, compiled = compile_constraints(RULES, rows)
    alone = compiled.make_credible(cells)
    counts = CellCounts.of(cells, (margin > 0).astype(int))
    deal = np.array_split(np.arange(len(rows)), n_machines)  # Some lack the small groups.

    def run(communicator):
        mine = deal[communicator.rank]
        columns = {"g": rows.columns["g"][mine]}
        machine = Machine(communicator, mine)
        own = Rows(rows.y[mine], rows.classes, None, columns, machine=machine)
        own_cells, own_compiled = compile_constraints(RULES, own)
        acting = own_compiled.make_credible(own_cells)
        found = CellCounts.of(own_cells, (margin[mine] > 0).astype(int))
        return acting.mixing.toarray(), functionals_of(acting, found)

    for mixing, functionals in run_on_machines(run, n_machines):
        np.testing.assert_array_equal(mixing, alone.mixing.toarray())
        np.testing.assert_array_equal(functionals, functionals_of(alone, counts))
