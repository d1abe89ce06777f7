"""Expected costs of decisions: sums over rows by brute force, gradients, thresholds, intervals."""

import numpy as np
import pytest
from amount_rows import compile_rows, draw, lagrangian
from hypothesis import given, settings
from hypothesis import strategies as st

import gbm_constrained as gc
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.evaluation.audit import MeasuredRows
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.sampled_intervals import ScoredDecisions

EXACT = {"rtol": 1e-12, "atol": 1e-12}
PER_AMOUNT = {2: [[0, 0.5], [2, -1]], 3: [[0, 1, 2], [3, -1, 0.5], [0, 4, 0]]}
PER_ROW = {2: [[0, 3], [1, 3]], 3: [[0, 1, 1], [0, 1, 1], [0, 1, 1]]}


def costs_of_rows(n_classes, y, amount, decided):
    by_amount, by_row = np.array(PER_AMOUNT[n_classes]), np.array(PER_ROW[n_classes])
    return amount * by_amount[y, decided] + by_row[y, decided]


def rule_of(n_classes, on=None, bound=1e3):
    per_amount = gc.cost(PER_AMOUNT[n_classes], weight="amount", on=on)
    return per_amount + gc.cost(PER_ROW[n_classes], on=on) <= bound


def decide(margin):
    return (margin > 0).astype(int) if margin.ndim == 1 else margin.argmax(axis=1)


@given(seed=st.integers(0, 2**16), n_classes=st.sampled_from([2, 3]))
@settings(derandomize=True, deadline=None, max_examples=25)
def test_values_are_means_of_the_costs_of_rows(seed, n_classes):
    y, margin, amount, group = draw(n_classes, seed=seed)
    rng = np.random.default_rng(seed)
    weight, amount = rng.gamma(2.0, size=y.size), amount * rng.gamma(1.0, size=y.size)
    rules = [
        rule_of(n_classes),
        rule_of(n_classes, on={"group": 1}),
        gc.each(rule_of(n_classes).expression, by="group", min_group_size=1) <= 1e3,
        gc.cost(PER_ROW[n_classes]) <= 1,
        gc.class_error(1) <= 0.1,
    ]
    columns = {"amount": amount, "group": group}
    lag = lagrangian(rules, y, columns, weight, n_classes)
    decided = decide(margin)
    cost = costs_of_rows(n_classes, y, amount, decided)
    of_group = [np.average(cost[group == g], weights=weight[group == g]) for g in (0, 1)]
    plain = costs_of_rows(n_classes, y, 0.0, decided)
    wrong = (decided != y)[y == 1]
    expected = [
        np.average(cost, weights=weight), of_group[1], *of_group,
        np.average(plain, weights=weight), np.average(wrong, weights=weight[y == 1]),
    ]  # fmt: skip
    statistics = lag.at(margin).statistics()
    np.testing.assert_allclose(lag.constraints.functionals(statistics), expected, **EXACT)
    counts = CellCounts.of(lag.cells, decided)
    np.testing.assert_allclose(functionals_of(lag.constraints, counts), expected, **EXACT)


@pytest.mark.parametrize("proxy", ["logistic", "sigmoid"])
def test_whole_amounts_are_repeated_rows(proxy):
    """A cost per amount is the sum over the copies of a row, divided by the rows themselves."""
    y, margin, amount, _ = draw(2)
    amount = np.maximum(amount, 1)
    lag = lagrangian([gc.cost(PER_AMOUNT[2], weight="amount") <= 2], y, {"amount": amount},
                     proxy=proxy)  # fmt: skip
    copies = np.repeat(np.arange(y.size), amount)
    repeated = lagrangian([gc.cost(PER_AMOUNT[2]) <= 2], y[copies], {}, proxy=proxy)
    values, added = [], []
    for one, at in ((lag, margin), (repeated, margin[copies])):
        point = one.at(at)
        values.append(one.constraints.functionals(point.statistics())[0])
        gradients = [np.array(point.gradient(np.array([m]))[0], copy=True) for m in (0.0, 2.0)]
        # Of the cost itself: multipliers are of rows that are scaled by their units.
        added.append((gradients[1] - gradients[0]) * one.constraints.unit / one.total_weight)
    per_row = amount.mean()
    assert values[0] == pytest.approx(values[1] * per_row, rel=1e-12)
    of_copies = np.bincount(copies, added[1])
    np.testing.assert_allclose(added[0], of_copies * per_row, **EXACT)


def test_rows_of_costs_do_not_depend_on_the_unit():
    y, margin, amount, _ = draw(2)
    found = []
    for unit in (1.0, 100.0):
        rule = unit * rule_of(2).expression <= 1.5 * unit
        lag = lagrangian([rule], y, {"amount": amount})
        point = lag.at(margin)
        gradient = np.array(point.gradient(np.ones(1))[0], copy=True)
        violations = lag.constraints.violations(point.statistics())
        found.append([violations, gradient, lag.constraints.unit / unit])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, **EXACT)


@given(seed=st.integers(0, 2**16), bound=st.sampled_from([0.8, 1.5, 3.0]))
@settings(derandomize=True, deadline=None, max_examples=30)
def test_the_threshold_has_the_fewest_errors_of_all_that_cost_so_little(seed, bound):
    y, margin, amount, _ = draw(seed=seed)
    cells, compiled = compile_rows([rule_of(2, bound=bound)], y, {"amount": amount})
    found = ShiftSearch(margin, cells, compiled).find()
    tried = []
    for threshold in [-np.inf, *np.sort(margin)]:
        decided = (margin > threshold).astype(int)
        cost = costs_of_rows(2, y, amount, decided).mean()
        tried.append((max(cost - bound, 0.0), np.mean(decided != y)))
    least, errors = min(tried)
    assert found.violation == pytest.approx(least / compiled.unit[0], abs=1e-12)
    assert found.error == pytest.approx(errors, abs=1e-12)


def test_intervals_have_the_empirical_variance_of_costs():
    y, margin, amount, _ = draw(2, n=400)
    weight = np.random.default_rng(1).gamma(2.0, size=y.size)
    cells, compiled = compile_rows([rule_of(2)], y, {"amount": amount}, weight)
    decided = decide(margin)
    measured = MeasuredRows.of(cells, compiled, ScoredDecisions(decided), 0.95)
    cost = costs_of_rows(2, y, amount, decided)
    mean = np.average(cost, weights=weight)
    error = np.sqrt((weight**2) @ (cost - mean) ** 2) / weight.sum()
    assert measured.values[0] == pytest.approx(mean, rel=1e-12)
    expected = mean + 1.959963984540054 * error * np.array([-1.0, 1.0])
    np.testing.assert_allclose(measured.sampled.constraints[0], expected, rtol=1e-9)
    np.testing.assert_allclose(measured.sampled.functionals[0], expected, rtol=1e-9)


def test_intervals_cover_the_expected_cost_of_the_population():
    """Amounts are log-normal, and every fifth positive is missed."""
    rng, n, covered = np.random.default_rng(2), 400, 0
    truth = 0.5 * 0.2 * 2.0 * np.exp(0.5) + 0.5 * 0.8 * (3.0 - np.exp(0.5)) + 0.5 * 1.0 * 0.2
    for _ in range(200):
        y, amount = rng.integers(0, 2, n), rng.lognormal(size=n)
        decided = np.where(rng.random(n) < 0.2, 0, y)
        cells, compiled = compile_rows([rule_of(2)], y, {"amount": amount})
        measured = MeasuredRows.of(cells, compiled, ScoredDecisions(decided), 0.95)
        low, high = measured.sampled.constraints[0]
        covered += low <= truth <= high
    assert covered >= 0.95 * 200 - 3 * np.sqrt(200 * 0.95 * 0.05)


def test_a_matrix_of_other_classes_is_refused():
    y, _, amount, _ = draw(3)
    with pytest.raises(ValueError, match=r"has 2 rows and y has 3 classes, \[0, 1, 2\]"):
        compile_rows([rule_of(2)], y, {"amount": amount}, n_classes=3)
