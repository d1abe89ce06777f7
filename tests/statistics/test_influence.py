"""Sampling variances by the influence of rows, against derivatives by the weight of each row."""

from __future__ import annotations

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.violations import standard_errors
from gbm_constrained.metrics import f1_macro, g_mean, metric
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.influence import Influence, RowGroups

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")


def fowlkes_mallows(C):
    return C[1, 1] / np.sqrt(C[:, 1].sum() * C[1].sum())


RULES = (
    gc.gap(gc.precision(), by="g") <= 0.1,
    gc.gap(gc.f1(), by="g") <= 0.1,
    gc.precision() >= 0.8,
    (gc.gap(gc.fpr(), by="g") + 2 * gc.gap(gc.precision(), by="g")) / 2 <= 0.1,
    gc.gap_norm([gc.fpr(), gc.tpr()], by="g", p=2) <= 0.1,
    gc.gap_norm([gc.precision(), gc.tpr()], by="g", p=3) <= 0.1,
    gc.gap(gc.fpr(), by="g", reference=gc.overall) <= 0.1,
    gc.ratio(gc.selection_rate(), by="g", reference=gc.overall) >= 0.8,
    g_mean() >= 0.7,
    f1_macro() >= 0.7,
    metric(fowlkes_mallows, kind="other") >= 0.7,
)


def draw(seed=0, n=127):  # No two rates are equal, where norms have no derivative.
    rng = np.random.default_rng(seed)
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    decided = (y + rng.normal(size=n) + 0.5 * (group == "a") > 0.5).astype(np.intp)
    return y, group, decided, rng.uniform(0.5, 2.0, n)


def bind(rule, y, group, weight=None):
    expression = rule.expression
    if expression.needs_classes:
        rule = gc.Constraint(expression.with_classes(np.arange(2)), rule.sense, rule.bound)
    rows = Rows(y, np.arange(2), columns={"g": group}, weight=weight)
    return compile_constraints([rule], rows)


def table_of(cells, decided, weight):
    """Weights by cell and decision, added up one row after the other."""
    table = np.zeros((len(cells), 2))
    np.add.at(table, (cells.codes, decided), weight)
    return table


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_standard_errors_are_those_of_each_rows_influence(rule, is_weighted):
    """A row of weight w has the influence w dv / dw on a left-hand side v, by differences."""
    y, group, decided, weight = draw()
    w = weight if is_weighted else np.ones(y.size)
    cells, compiled = bind(rule, y, group, weight if is_weighted else None)

    def left(weights):
        table = CellCounts(*[table_of(cells, decided, weights)] * 3)
        return compiled.rows_of(functionals_of(compiled, table))

    step = 1e-5
    influence = [
        (left(w + step * one) - left(w - step * one)) / (2 * step) for one in np.eye(y.size)
    ]
    expected = np.sqrt(((np.array(influence) * w[:, None]) ** 2).sum(axis=0))
    found = standard_errors(compiled, CellCounts.of(cells, decided))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_bound_on_precision_has_the_error_of_one_mean():
    """``0.8 D - N`` is the mean of 0.8 less the label over all rows, zero where not selected."""
    y, group, decided, _ = draw(1)
    rule = gc.precision() >= 0.8
    cells, compiled = bind(rule, y, group)
    score = np.where(decided == 1, 0.8 - y, 0.0)
    found = standard_errors(compiled, CellCounts.of(cells, decided))
    assert found == pytest.approx(score.std() / np.sqrt(y.size))


def test_covariances_are_those_of_means_over_common_rows():
    """The false positive rates of a group and of all rows share the group's negatives."""
    y, group, decided, _ = draw(2)
    cells, compiled = bind(gc.gap(gc.fpr(), by="g", reference=gc.overall) <= 0.1, y, group)
    found = Influence(compiled, CellCounts.of(cells, decided)).covariance()
    inside = [(y == 0) & (group == g) for g in "abc"] + [y == 0]
    influence = np.array([m * (decided - decided[m].mean()) / m.sum() for m in inside])
    np.testing.assert_allclose(found, influence @ influence.T, atol=1e-12)


def test_groups_hold_all_rows_and_weights():
    rng = np.random.default_rng(0)
    cells, decisions = rng.integers(3, size=200), rng.integers(2, size=(2, 200))
    weight = rng.integers(1, 4, size=200).astype(float)
    groups = RowGroups(cells, decisions, weight)
    assert groups.weight.sum() == weight.sum()
    assert groups.square.sum() == (weight**2).sum()
    tables = groups.tables(groups.weight[None], np.eye(2)[groups.decisions[0]], 3)
    expected = np.zeros((3, 2))
    np.add.at(expected, (cells, decisions[0]), weight)
    assert tables[0] == pytest.approx(expected)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_rate_varies_as_on_new_rows(is_weighted):
    """Bayesian bootstrap of a mean: variance sum w^2 (x - mean)^2 / (sum w)^2, nearly."""
    rng = np.random.default_rng(1)
    x = (rng.random(1000) < 0.3).astype(int)
    weight = rng.uniform(0.5, 2.0, size=1000) if is_weighted else None
    groups = RowGroups(np.zeros(1000, dtype=int), x[None], weight)
    drawn = groups.resample(4000)
    tables = groups.tables(drawn, np.eye(2)[groups.decisions[0]], 1)[:, 0]
    rates = tables[:, 1] / tables.sum(axis=1)
    w = np.ones(1000) if weight is None else weight
    mean = np.average(x, weights=w)
    variance = (w**2 * (x - mean) ** 2).sum() / w.sum() ** 2
    assert rates.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / 4000))
    assert rates.var() == pytest.approx(variance, rel=0.1)


def test_rows_without_weight_are_never_drawn():
    groups = RowGroups(np.zeros(4, dtype=int), np.array([[0, 0, 1, 1]]), np.array([1.0, 1, 0, 0]))
    assert (groups.resample(10)[:, groups.decisions[0] == 1] == 0).all()


def test_the_mean_of_amounts_varies_as_on_new_rows():
    """Sums of amounts and of rows vary together: sum (a x - mean)^2 / n^2."""
    rng = np.random.default_rng(3)
    n, x = 1000, (rng.random(1000) < 0.3).astype(int)
    amount = np.where(rng.random(n) < 0.1, 0.0, np.exp(1.5 * rng.normal(size=n)))
    groups = RowGroups(np.zeros(n, dtype=int), x[None], None, [amount])
    assert groups.weight.size < n / 4
    weights = np.vstack([groups.weight, groups.resample(4000)])
    ones, amounts = groups.tables(weights, np.eye(2)[groups.decisions[0]], 1).swapaxes(0, 1)
    means = amounts[:, 1] / ones.sum(axis=1)
    assert means[0] == pytest.approx((amount * x).mean(), abs=1e-12)
    variance = ((amount * x - means[0]) ** 2).sum() / n**2
    assert means[1:].mean() == pytest.approx(means[0], abs=4 * np.sqrt(variance / 4000))
    assert means[1:].var() == pytest.approx(variance, rel=0.1)
