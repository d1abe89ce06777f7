"""Intervals and tests of rules that are no linear functions of rates."""

from __future__ import annotations

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.metrics import g_mean
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.intervals import constraint_intervals
from gbm_constrained.statistics.tangents import find_violated_curves, standard_error_of_sum

AVERAGE_ODDS = (gc.gap(gc.fpr(), by="g") + gc.gap(gc.tpr(), by="g")) / 2
# Shares of decisions for the positive class in the population, by group and label.
SELECTED = {("a", 0): 0.2, ("a", 1): 0.7, ("b", 0): 0.3, ("b", 1): 0.85}
PRECISION = {g: SELECTED[g, 1] / (SELECTED[g, 0] + SELECTED[g, 1]) for g in "ab"}
TRUTHS = {
    "precision": (
        gc.gap(gc.precision(), by="g") <= 0.01, PRECISION["a"] - PRECISION["b"]
    ),
    "average odds": (AVERAGE_ODDS <= 0.01, 0.125),
    "norm": (gc.gap_norm([gc.fpr(), gc.tpr()], by="g") <= 0.01, np.hypot(0.1, 0.15)),
    "g_mean": (g_mean() >= 0.9, np.sqrt(0.75 * 0.775)),
}  # fmt: skip


def draw(rng, n=800):
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b"], n)
    shares = np.array([SELECTED[g, k] for g, k in zip(group, y, strict=True)])
    return y, group, (rng.random(n) < shares).astype(np.intp)


def bind(rule, y, group, decided):
    expression = rule.expression
    if expression.needs_classes:
        rule = gc.Constraint(expression.with_classes(np.arange(2)), rule.sense, rule.bound)
    cells, compiled = compile_constraints([rule], Rows(y, np.arange(2), columns={"g": group}))
    return compiled, CellCounts.of(cells, decided)


@pytest.mark.parametrize("name", TRUTHS)
def test_intervals_cover_the_population(name):
    """Of 200 samples at level 0.95 the binomial 99.9% range of misses is 2 to 22."""
    rule, truth = TRUTHS[name]
    rng, missed = np.random.default_rng(0), 0
    for _ in range(200):
        low, high = constraint_intervals(*bind(rule, *draw(rng)))[0]
        missed += not low <= abs(truth) <= high
    assert missed <= 22


@pytest.mark.parametrize("name", ["precision", "norm", "g_mean"])
def test_rules_that_are_violated_far_are_found_and_those_that_hold_are_not(name):
    rule, _ = TRUTHS[name]
    y, group, decided = draw(np.random.default_rng(1), 4000)
    if name == "precision":  # Its gap of 0.04 is hardly beyond the bound.
        decided = np.where((group == "b") & (y == 0), 1, decided)
    compiled, counts = bind(rule, y, group, decided)
    assert find_violated_curves(compiled, counts, 1e-3).any()
    worst = 1.0 if rule.sense == "<=" else 0.0
    held, counts = bind(gc.Constraint(rule.expression, rule.sense, worst), y, group, decided)
    assert not find_violated_curves(held, counts, 0.4).any()


def test_the_error_of_a_sum_over_common_rows_is_that_of_their_scores():
    """Precision of one group: q (1 - q) / selected rows, by the delta method."""
    y, group, decided = draw(np.random.default_rng(2))
    compiled, counts = bind(gc.precision(on={"g": "a"}) >= 0.5, y, group, decided)
    n, d = functionals_of(compiled, counts)
    slopes = np.array([1.0 / d, -n / d**2])
    parts = [
        type(p)(a * p.coefficient, p.cells, p.event)
        for of_one, a in zip(compiled.parts, slopes, strict=True)
        for p in of_one
    ]
    q, selected = n / d, decided[group == "a"].sum()
    assert standard_error_of_sum(parts, counts) == pytest.approx(np.sqrt(q * (1 - q) / selected))
