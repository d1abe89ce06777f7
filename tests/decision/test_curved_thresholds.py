"""Thresholds under rules that are no linear functions of rates, against all thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.decision.violations import FEWEST_ROWS
from gbm_constrained.metrics import f1_macro, g_mean
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of

AVERAGE_ODDS = (gc.gap(gc.fpr(), by="g") + gc.gap(gc.tpr(), by="g")) / 2
RULES = (
    gc.gap(gc.precision(), by="g") <= 0.1,
    gc.gap(gc.f1(), by="g") <= 0.1,
    AVERAGE_ODDS <= 0.1,
    gc.gap_norm([gc.fpr(), gc.tpr()], by="g") <= 0.1,
    gc.gap_norm([gc.precision(), gc.tpr()], by="g", p=np.inf) <= 0.2,
    g_mean() >= 0.7,
    f1_macro() >= 0.7,
)


def draw(seed, n=200):
    rng = np.random.default_rng(seed)
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b"], n)
    margin = 1.5 * y + 0.5 * (group == "a") + rng.normal(size=n) - 0.75
    return y, group, margin


def bind(rule, y, group):
    expression = rule.expression
    if expression.needs_classes:
        rule = gc.Constraint(expression.with_classes(np.arange(2)), rule.sense, rule.bound)
    return rule, *compile_constraints([rule], Rows(y, np.arange(2), columns={"g": group}))


@pytest.mark.parametrize("rule", RULES, ids=str)
@given(seed=st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_the_search_finds_the_best_of_all_thresholds(rule, seed):
    y, group, margin = draw(seed)
    rule, cells, compiled = bind(rule, y, group)
    cuts = np.sort(margin)
    cuts = np.concatenate([[cuts[0] - 1], (cuts[1:] + cuts[:-1]) / 2, [cuts[-1] + 1]])
    best = np.inf
    for cut in cuts:
        decided = (margin > cut).astype(np.intp)
        if any(of.is_quotient for _, of in getattr(rule.expression, "parts", ())):
            counted = [decided[group == g].sum() for g in "ab"]
            if "f1" in str(rule):  # Its denominator is the selected and the positive rows.
                counted = [n + y[group == g].sum() for n, g in zip(counted, "ab", strict=True)]
            if min(counted) < FEWEST_ROWS:
                continue
        value = compiled.values(functionals_of(compiled, CellCounts.of(cells, decided)))[0]
        if rule.sign * (value - rule.bound) <= 1e-12:
            best = min(best, float((decided != y).mean()))
    found = ShiftSearch(margin, cells, compiled).find()
    if np.isfinite(best):
        assert found.is_feasible
        assert found.error == pytest.approx(best, abs=1e-12)
    else:
        assert not found.is_feasible


def test_a_left_out_rule_binds_nothing():
    y, group, margin = draw(1)
    _, cells, compiled = bind(gc.gap(gc.precision(), by="g") <= 0.0, y, group)
    free = ShiftSearch(margin, cells, compiled).find(bounds=np.full(len(compiled), np.inf))
    errors = [((margin > cut) != y).mean() for cut in np.append(margin, margin.min() - 1)]
    assert free.error == pytest.approx(min(errors))


@pytest.mark.parametrize("at", [0, 1])
def test_a_calibration_error_beside_a_curve_of_rates_moves_no_threshold(at):
    """Thresholds do not change it, and its functionals are not among those that are counted."""
    y, group, margin = draw(1)
    rule, cells, compiled = bind(g_mean() >= 0.75, y, group)
    alone = ShiftSearch(margin, cells, compiled).find()
    rules = [rule]
    rules.insert(at, gc.calibration_error() <= 0.9)
    both = compile_constraints(rules, Rows(y, np.arange(2), columns={"g": group}))
    found = ShiftSearch(margin, *both).find()
    assert found.value == alone.value
    assert found.violation == alone.violation == 0.0
