"""Violations of many decisions at once, the least violation, and curved constraints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import best_shift
from scipy.optimize import linprog
from scipy.special import softmax

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision import violations
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.decision.violations import MIN_ROWS, ViolationBound
from gbm_constrained.metrics import f1_macro, g_mean
from gbm_constrained.metrics.base import MetricValue
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")


@pytest.mark.parametrize(
    ("rule", "pairs"),
    [
        (gc.gap(gc.fpr(), by="g") <= 0.05, True),
        (gc.gap(gc.error_rate(), by="g") <= 0.0, True),
        (gc.ratio(gc.selection_rate(), by="g") >= 0.8, True),
        (gc.gap(gc.fpr(), by="g", reference="g0") <= 0.05, False),
        (gc.gap(gc.fpr(), by="g", reference=gc.overall) <= 0.05, False),
    ],
)
def test_of_all_pairs_the_extremes_decide(rule, pairs):
    """The largest violation is that of the rows one by one, to the last bit."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(0, 2, 600), rng.integers(0, 7, 600)
    columns = {"g": np.array([f"g{k}" for k in group])}
    rules = [rule, gc.fpr(on={"g": "g1"}) <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2), columns=columns))
    found = violations.ErrorAndViolations(cells, compiled, compiled.b)
    of_pairs = [part.func is violations._violate_pairs for part in found.others]
    assert sum(of_pairs) == pairs
    for share in (0.0, 0.1, 0.5, 1.0):
        decided = (rng.random(600) < share).astype(np.intp)
        fractions = found.linear.fractions(decided)
        functionals = compiled.U @ fractions.ravel() + compiled.constant
        excess = compiled.rows_of(functionals) - compiled.b
        assert found.measure(decided)[1] == pytest.approx(max(excess.max(), 0.0), abs=1e-12)
    tighter = compiled.b - 0.01 * np.arange(len(compiled))  # no longer alike: row by row
    others = violations.ErrorAndViolations(cells, compiled, tighter).others
    assert not any(part.func is violations._violate_pairs for part in others)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rules_that_are_left_out_have_infinite_bounds(n_classes):
    """Alone and beside another rule, as gaps of few groups and of many."""
    rng = np.random.default_rng(1)
    y, group = rng.integers(0, n_classes, 400), rng.integers(0, 5, 400)
    margin = rng.normal(size=(400, n_classes))
    margin[np.arange(400), y] += 1.0
    margin = margin if n_classes > 2 else margin[:, 1] - margin[:, 0]
    columns = {"g": np.array([f"g{k}" for k in group])}
    rules = [gc.gap(gc.error_rate(), by="g") <= 0.01, gc.class_error(1) <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(n_classes), columns=columns))
    for j in (0, 1):
        bounds = np.where(compiled.owner == j, np.inf, compiled.b)
        found = best_shift(margin, cells, compiled, bounds=bounds)
        alone = compile_constraints([rules[1 - j]], Rows(y, np.arange(n_classes), columns=columns))
        expected = best_shift(margin, *alone)
        assert found.violation == pytest.approx(expected.violation)
        if n_classes == 2:  # the search over several classes is not exact
            assert found.value == expected.value


def draw(n, k, seed=0):
    """Log-odds of normal classes, and labels that they are the probabilities of."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, k)) * 1.5
    return scores, (rng.random((n, 1)) > softmax(scores, axis=1).cumsum(axis=1)).sum(axis=1)


def bound_of(rules, y, scores, groups=None):
    columns = {} if groups is None else {"g": groups}
    cells, compiled = compile_constraints(rules, Rows(y, np.unique(y), None, columns))
    return cells, compiled, ViolationBound.of(scores, cells, compiled)


def least_class_error(probabilities):
    """Smallest bound that all class errors keep, by one linear programme over all rows."""
    n, k = probabilities.shape
    share = probabilities / probabilities.sum(axis=0)
    right = np.zeros((k, n, k))
    right[np.arange(k), :, np.arange(k)] = -share.T
    return linprog(
        np.append(np.zeros(n * k), 1.0),
        A_ub=np.hstack([right.reshape(k, -1), -np.ones((k, 1))]),
        b_ub=-np.ones(k),
        A_eq=np.hstack([np.kron(np.eye(n), np.ones(k)), np.zeros((n, 1))]),
        b_eq=np.ones(n),
    ).fun


@pytest.mark.parametrize("k", [3, 6])
def test_bounds_are_refuted_up_to_the_value_of_the_programme(k):
    """Against all rows and decisions at once, for labels that are as the probabilities say."""
    p = softmax(draw(200, k)[0], axis=1)
    costs = np.zeros((k, k, k))
    for j, mass in enumerate(p.sum(axis=0)):
        costs[j, j] = (np.arange(k) != j) / mass
    labels = np.tile(np.arange(k), 200)
    limit = ViolationBound(np.repeat(p, k, axis=0), labels, p.ravel(), costs)
    least = least_class_error(p)
    assert limit.find_refuted(np.full(k, least + 0.001)) is None
    assert limit.find_refuted(np.full(k, least - 0.001)).any()
    assert len(limit.decisions) < 100


def test_no_biases_meet_what_is_refuted():
    """The bound is about the constraints that are named, and others need not hold."""
    scores, y = draw(2000, 6)
    rules = [gc.class_error(j) <= 0.1 + 0.05 * j for j in range(6)]
    cells, compiled, limit = bound_of(rules, y, scores)
    found = limit.find_refuted(compiled.b)
    assert found.any()
    bounds = np.where(found, compiled.b, np.inf)
    assert not ShiftSearch(scores, cells, compiled).find(bounds=bounds).is_feasible


def test_labels_have_to_agree():
    """The probabilities promise two errors in five, and the labels have none."""
    sure = np.repeat([[0.6, 0.4], [0.4, 0.6]], 50, axis=0)
    labels = np.repeat([0, 1], 50)
    costs = np.zeros((2, 2, 2))
    costs[0, 0, 1] = costs[1, 1, 0] = 1.0 / 50
    limit = ViolationBound(sure, labels, np.ones(100), costs)
    assert limit.find_refuted(np.full(2, 0.2)) is None
    other = np.where(np.random.default_rng(0).random(100) < 0.4, 1 - labels, labels)
    limit = ViolationBound(sure, other, np.ones(100), costs)
    np.testing.assert_array_equal(limit.find_refuted(np.full(2, 0.2)), [True, True])


def test_rows_without_a_bound_are_left_out():
    scores, y = draw(400, 4)
    _, _, limit = bound_of([gc.class_error(j) <= 0.05 for j in range(4)], y, scores)
    found = limit.find_refuted(np.array([0.05, 0.05, np.inf, np.inf]))
    assert found.tolist() == [True, True, False, False]
    assert limit.find_refuted(np.array([0.0, np.inf, np.inf, np.inf])) is None
    assert limit.find_refuted(np.full(4, np.inf)) is None


@pytest.mark.parametrize(
    "rule", [gc.gap(gc.class_error(0), by="g") <= 0.1, g_mean() >= 0.9], ids=str
)
def test_rates_of_groups_and_curved_rows_have_no_bound(rule):
    scores, y = draw(400, 3)
    if isinstance(rule.expression, MetricValue):
        rule = replace(rule, expression=rule.expression.with_classes([0, 1, 2]))
    groups = np.arange(400) % 2
    assert bound_of([rule], y, scores, groups)[2] is None


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


def draw_curved(seed, n=200):
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
    y, group, margin = draw_curved(seed)
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
            if min(counted) < MIN_ROWS:
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
    y, group, margin = draw_curved(1)
    _, cells, compiled = bind(gc.gap(gc.precision(), by="g") <= 0.0, y, group)
    free = ShiftSearch(margin, cells, compiled).find(bounds=np.full(len(compiled), np.inf))
    errors = [((margin > cut) != y).mean() for cut in np.append(margin, margin.min() - 1)]
    assert free.error == pytest.approx(min(errors))


@pytest.mark.parametrize("at", [0, 1])
def test_a_calibration_error_beside_a_curve_of_rates_moves_no_threshold(at):
    """Thresholds do not change it, and its functionals are not among those that are counted."""
    y, group, margin = draw_curved(1)
    rule, cells, compiled = bind(g_mean() >= 0.75, y, group)
    alone = ShiftSearch(margin, cells, compiled).find()
    rules = [rule]
    rules.insert(at, gc.calibration_error() <= 0.9)
    both = compile_constraints(rules, Rows(y, np.arange(2), columns={"g": group}))
    found = ShiftSearch(margin, *both).find()
    assert found.value == alone.value
    assert found.violation == alone.violation == 0.0
