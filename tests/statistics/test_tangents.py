"""Intervals and tests of rules that are no linear functions of rates."""

from __future__ import annotations

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import Estimate
from gbm_constrained.decision.violations import standard_errors
from gbm_constrained.evaluation.verdicts import Verdict
from gbm_constrained.metrics import g_mean, metric
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.influence import (
    estimate_between_fold_deviation,
    find_violated_curves,
)
from gbm_constrained.statistics.intervals import constraint_intervals


def fowlkes_mallows(C):
    return C[1, 1] / np.sqrt(C[:, 1].sum() * C[1].sum())


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
    "f1": (gc.gap(gc.f1(), by="g") <= 0.01, 1.7 / 2.15 - 1.4 / 1.9),
    "own": (metric(fowlkes_mallows, kind="other") >= 0.9, 0.3875 / np.sqrt(0.5125 * 0.5)),
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


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("g_mean", "own") else pytest.param(name, marks=pytest.mark.slow)
        for name in TRUTHS
    ],
)
def test_intervals_and_standard_errors_are_those_of_samples_from_a_population(name):
    """Of 200 samples at level 0.95 the binomial 99.9% range of misses is 2 to 22.

    Their standard deviation is estimated with an error of one in twenty.
    """
    rule, truth = TRUTHS[name]
    rng, missed, left, errors = np.random.default_rng(0), 0, [], []
    for _ in range(200):
        compiled, counts = bind(rule, *draw(rng))
        low, high = constraint_intervals(compiled, counts)[0]
        missed += not low <= abs(truth) <= high
        left.append(compiled.rows_of(functionals_of(compiled, counts)))
        errors.append(standard_errors(compiled, counts))
    assert 2 <= missed <= 22
    worst = np.mean(left, axis=0).argmax()
    ratio = np.mean(errors, axis=0)[worst] / np.std(left, axis=0)[worst]
    assert ratio == pytest.approx(1.0, abs=0.16)


@pytest.mark.parametrize("seed", range(3))
def test_a_curved_gap_is_judged_as_the_same_linear_one(seed):
    """The norm of one gap is the gap: interval, deviation between folds and verdict agree."""
    y, group, decided = draw(np.random.default_rng(seed), 4000)
    rules = gc.gap(gc.fpr(), by="g") <= 0.02, gc.gap_norm([gc.fpr()], by="g", p=2) <= 0.02
    folds, judged = np.array_split(np.arange(4000), 4), []
    for rule in rules:
        compiled, counts = bind(rule, y, group, decided)
        cells, _ = compile_constraints([rule], Rows(y, np.arange(2), columns={"g": group}))
        ends = constraint_intervals(compiled, counts)[0]
        apart = estimate_between_fold_deviation(compiled, cells, folds, decided).constraints[0]
        value = compiled.values(functionals_of(compiled, counts))[0]
        judged.append(([value, *ends, apart], Verdict.of(rule, Estimate(value, *ends), 4000).kind))
    (linear, kind), (curved, other) = judged
    assert curved == pytest.approx(linear, abs=1e-9)
    assert kind == other == "missed"


@pytest.mark.parametrize("seed", range(3))
def test_gaps_with_all_rows_vary_as_groups_that_are_a_part_of_them(seed):
    """Ends of the curved gap are normal, which moves them by a tenth at most.

    Independent rates would make them 1.2 to 1.8 times as far from the value.
    """
    rng, n = np.random.default_rng(seed), 3000
    group = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    decided = (rng.random(n) < np.where(group == "a", 0.5, 0.2)).astype(np.intp)
    of_all = {"by": "g", "reference": gc.overall}
    rules = (
        gc.gap(gc.selection_rate(), **of_all),
        gc.gap_norm([gc.selection_rate()], p=2, **of_all),
    )
    ends, curved = (
        constraint_intervals(*bind(rule <= 0.05, np.arange(n) % 2, group, decided))[0]
        for rule in rules
    )
    assert np.diff(ends) == pytest.approx(np.diff(curved), rel=0.1)


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
