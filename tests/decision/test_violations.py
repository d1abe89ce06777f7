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
from shift_problems import EXACT, Problem, measured, random, seeds, state_ratios
from tabled_rows import Dealt

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision import violations
from gbm_constrained.decision.choose import Prefixes, choose_prefix
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.decision.violations import (
    MIN_ROWS,
    PriorityLevels,
    ViolationBound,
    anticipate_standard_errors,
)
from gbm_constrained.metrics import f1_macro, g_mean
from gbm_constrained.metrics.base import MetricValue
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")


def is_of_pairs(part):
    """Whether the largest and the smallest value tell the violation."""
    return violations._violate_pairs in (part.func, getattr(part.args[-1], "func", None))


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
    assert sum(map(is_of_pairs, found._fastest[1])) == pairs
    for share in (0.0, 0.1, 0.5, 1.0):
        decided = (rng.random(600) < share).astype(np.intp)
        fractions = found.linear.fractions(decided)
        functionals = compiled.U @ fractions.ravel() + compiled.constant
        excess = compiled.rows_of(functionals) - compiled.b
        excess = state_ratios(compiled, excess, functionals, 600)
        assert found.measure(decided)[1] == pytest.approx(max(excess.max(), 0.0), abs=1e-12)
        values = found.linear.measure(decided)[:, None]
        (fastest,) = found.violations(values, has_total=False)[0]
        assert fastest == pytest.approx(max(excess.max(), 0.0), abs=1e-12)
    tighter = compiled.b - 0.01 * np.arange(len(compiled))  # no longer alike: row by row
    _, others = violations.ErrorAndViolations(cells, compiled, tighter)._fastest
    assert not any(map(is_of_pairs, others))


@pytest.mark.parametrize("has_total", [True, False])
@pytest.mark.parametrize(
    "rule", [gc.gap(gc.fpr(), by="g") <= 0.1, gc.gap(gc.tpr(), by="g") <= 0.3]
)
def test_rows_that_no_candidate_violates_are_passed_over(rule, has_total):
    """Of 30 groups, with a bound for each pair, against all rows at each threshold."""
    rng = np.random.default_rng(2)
    y, group = rng.integers(0, 2, 3000), rng.integers(0, 30, 3000)
    margin = rng.normal(size=3000) + y + 0.05 * group
    columns = {"g": np.array([f"g{k}" for k in group])}
    cells, compiled = compile_constraints([rule], Rows(y, np.arange(2), columns=columns))
    right = compiled.b - rng.uniform(0.0, 0.05, len(compiled))
    found = violations.ErrorAndViolations(cells, compiled, right)
    low = np.column_stack(
        [found.linear.measure((margin > at).astype(np.intp)) for at in np.linspace(-3, 5, 1100)]
    )
    high = low + 0.01
    combine = compiled.R[:, np.unique(compiled.R.indices)].toarray()
    for ends in ((low, None), (low, high)):
        top = low if ends[1] is None else high
        excess = np.maximum(combine, 0) @ low[1:] + np.minimum(combine, 0) @ top[1:]
        excess = np.maximum(excess - right[:, None], 0.0)
        largest, total = found.violations(*ends, has_total=has_total)
        np.testing.assert_allclose(largest, excess.max(axis=0), atol=1e-6)
        assert (excess.max(axis=0) > 0.0).any()
        if has_total:
            np.testing.assert_allclose(total, excess.sum(axis=0), atol=1e-4)


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


PRIORITIES = st.lists(st.integers(1, 3), min_size=4, max_size=4)
WEIGHTS = st.lists(st.sampled_from([1.0, 0.2, 5.0]), min_size=4, max_size=4)


def prioritise(rules, priorities, weights=(1.0,) * 20):
    """Give priorities and weights to rules; further rules repeat them."""
    n = len(priorities)
    return [
        rule.with_priority(priorities[i % n], weight=weights[i % n])
        for i, rule in enumerate(rules)
    ]


def violations_of(problem, cells, compiled, shift):
    """Error, and the violation of each row of constraints, by the solver's own means."""
    error, _, functionals = measured(problem, cells, compiled, shift)
    excess = compiled.rows_of(functionals) - compiled.b
    return error, state_ratios(compiled, excess, functionals, problem.n)


def levels_of(cells, compiled):
    """Rows, weights and tolerance of each priority, written out."""
    owners = [compiled.constraints[j] for j in compiled.owner]
    weights = np.array([rule.violation_weight for rule in owners])
    errors = anticipate_standard_errors(compiled, cells)
    for level in sorted({rule.priority for rule in owners}):
        rows = np.array([rule.priority == level for rule in owners])
        yield rows, weights, (weights * errors)[rows].max()


def worst_of(table, rows, weights):
    """Largest weighed violation of some rows, of each candidate."""
    worst = [max(0.0, ((v * weights)[rows]).max(initial=0.0)) for _, v in table]
    return np.array([w if w > 1e-12 else 0.0 for w in worst])


def every_threshold(problem):
    """Shifts that decide each number of rows for class 1, and none."""
    scores = np.unique(problem.margin.astype(np.float64))
    return [0.0, -scores[0] + 1.0, -scores[-1] - 1.0, *(-(scores[1:] + scores[:-1]) / 2)]


def best_by_trying_all(problem, cells, compiled, penalty, priced):
    """Error and violations of the best of all thresholds, one priority after the other."""
    table = [violations_of(problem, cells, compiled, shift) for shift in every_threshold(problem)]
    *above, (last, weights, _) = levels_of(cells, compiled)
    for rows, _, tolerance in above:
        worst = worst_of(table, rows & ~priced, weights)
        most = worst.min() + tolerance if worst.min() > 0.0 else 0.0
        table = [row for row, w in zip(table, worst, strict=True) if w <= most + 1e-12]
        if (rows & priced).any():
            worst = worst_of(table, rows & priced, weights)
            merit = np.array([error for error, _ in table]) + penalty * worst
            most = worst[merit <= merit.min() + 1e-12].min() + tolerance
            table = [row for row, w in zip(table, worst, strict=True) if w <= most + 1e-12]
    error, worst = np.array([error for error, _ in table]), worst_of(table, last, weights)
    strict = worst_of(table, last & ~priced, weights)
    if (last & priced).any() and (strict == 0.0).any():
        return (error + penalty * worst)[strict == 0.0].min()
    if penalty is not None and worst.min() > 0.0:
        return (error + penalty * worst).min()
    return min(zip(worst.round(11), error.round(11), strict=True))


@random(60)
@given(
    seed=seeds, weighted=st.booleans(), many=st.booleans(), priorities=PRIORITIES,
    weights=WEIGHTS, penalty=st.sampled_from([None, 0.5, 10.0]), are_priced=st.booleans(),
)  # fmt: skip
def test_thresholds_by_trying_all(seed, weighted, many, priorities, weights, penalty, are_priced):
    """Rules may have a price also where they can be met, at any priority."""
    problem = Problem(seed, weighted=weighted)
    rules = prioritise(problem.rules(many), priorities, weights)
    cells, compiled = problem.compiled(rules)
    priced = np.zeros(len(compiled), dtype=bool)
    if are_priced and penalty is not None:
        priced = (problem.rng.random(len(rules)) < 0.5)[compiled.owner]
    found = best_shift(problem.margin, cells, compiled, penalty=penalty, is_penalised=priced)
    error, violations = violations_of(problem, cells, compiled, found.value)
    last, weights, _ = [*levels_of(cells, compiled)][-1]
    (worst,) = worst_of([(error, violations)], last, weights)
    expected = best_by_trying_all(problem, cells, compiled, penalty, priced)
    if isinstance(expected, tuple):
        assert (worst, error) == pytest.approx(expected, abs=1e-10)
    else:
        assert error + penalty * worst == pytest.approx(expected, abs=1e-10)
    largest = max(0.0, (violations * weights).max())
    assert found.violation == pytest.approx(largest, abs=1e-10)
    assert found.is_feasible == (violations <= 1e-12).all()


@random(15)
@given(seed=seeds, k=st.sampled_from([2, 3]), priority=st.integers(1, 5))
def test_one_priority_is_no_priority(seed, k, priority):
    problem = Problem(seed, k=k)
    rules = problem.rules()
    plain = best_shift(problem.margin, *problem.compiled(rules), penalty=3.0)
    alike = prioritise(rules, [priority])
    found = best_shift(problem.margin, *problem.compiled(alike), penalty=3.0)
    np.testing.assert_array_equal(found.value, plain.value)
    assert (found.error, found.loss) == (plain.error, plain.loss)


@random(25)
@given(
    seed=seeds, n=st.sampled_from([60, 700]), weighted=st.booleans(), priorities=PRIORITIES,
    penalty=st.sampled_from([None, 10.0]), are_priced=st.booleans(),
)  # fmt: skip
def test_tables_of_many_machines_find_the_threshold_of_a_sort(
    seed, n, weighted, priorities, penalty, are_priced
):
    problem = Dealt(seed, n, weighted=weighted)
    rules = prioritise(problem.rules(), priorities)
    cells, compiled = problem.compiled(rules)
    options = {"penalty": penalty}
    if are_priced and penalty is not None:
        options["is_penalised"] = problem.rng.random(len(compiled)) < 0.5
    expected = ShiftSearch(problem.margin, cells, compiled).find(**options)

    def work(communicator, index):
        cells, compiled = problem.compiled(rules, index, communicator)
        return ShiftSearch(problem.margin[index], cells, compiled).find(**options)

    for of_ranks in problem.on_machines(work):
        for found in of_ranks:
            np.testing.assert_array_equal(found.value, expected.value)
            np.testing.assert_allclose(found.functionals, expected.functionals, **EXACT)
            np.testing.assert_allclose(found.loss, expected.loss, **EXACT)


def largest_by_priority(problem, cells, compiled, shift):
    """Largest violation of each priority, and the error."""
    error, violations = violations_of(problem, cells, compiled, shift)
    levels = [max(0.0, violations[rows].max()) for rows, *_ in levels_of(cells, compiled)]
    return [*levels, error]


def is_no_worse(found, other):
    """Whether the first number that differs is the smaller one."""
    for own, others in zip(found, other, strict=True):
        if abs(own - others) > 1e-9:
            return own < others
    return True


@random(10)
@given(seed=seeds)
def test_biases_of_several_classes_violate_what_comes_first_least(seed):
    """Never worse than a constant decision, and than the best biases for the first rule alone."""
    problem = Problem(seed, n=80, k=3)
    rules = [gc.class_error(0) <= 0.02, gc.class_error(2) <= 0.05, gc.class_error(1) <= 0.1]
    cells, compiled = problem.compiled(prioritise(rules, [1, 2, 3]))
    found = best_shift(problem.margin, cells, compiled, penalty=3.0)
    own = largest_by_priority(problem, cells, compiled, found.value)
    for always in 1e4 * np.eye(3):
        assert is_no_worse(own, largest_by_priority(problem, cells, compiled, always))
    alone = best_shift(problem.margin, *problem.compiled(rules[:1]))
    of_first = largest_by_priority(problem, cells, compiled, alone.value)
    assert own[0] <= of_first[0] + 1e-9
    assert is_no_worse(own, of_first)


def budget_rows(n, share, seed=0):
    """Rows whose scores rank the positives of two classes well, and not perfectly."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) < share * n).astype(int)
    return y, rng.normal(size=n) + 1.5 * y - 1.0


@pytest.mark.parametrize("n", [400, 5000])
def test_a_budget_that_comes_first_is_kept_with_a_standard_error_to_spare(n):
    """As many rows are selected as that leaves, up to the last one of the class."""
    y, margin = budget_rows(n, 0.3)
    rules = [gc.selection_rate() <= 0.1, (gc.recall() >= 0.6).with_priority(2)]
    rows = EvaluationSet(*compile_constraints(rules, Rows(y, np.array([0, 1]))), "test")
    choice = choose_prefix(ScoredRows(rows, lambda rounds: margin), Prefixes(1, 1))
    selected = margin + choice.shift[0] > 0
    most = int(n * (0.1 - np.sqrt(0.1 * 0.9 / n)))
    highest = np.argsort(-margin)[:most]
    last = np.flatnonzero(y[highest])[-1]
    assert selected.sum() == last + 1
    assert selected[highest[: last + 1]].all()
    assert choice.violation == pytest.approx(0.6 - selected[y == 1].mean(), abs=1e-12)


def test_room_is_left_by_what_is_met_before_a_priority_that_is_not():
    """Beside a rule of its own priority that is missed, too, and never by one that follows."""
    y, _ = budget_rows(40, 0.3)
    priorities = [1, 1, 2, 2, 3]
    rules = [(gc.selection_rate() <= 0.1 + 0.1 * p).with_priority(p) for p in priorities]
    cells, compiled = compile_constraints(rules, Rows(y, np.array([0, 1])))
    levels = PriorityLevels.from_constraints(compiled, cells)
    for left, expected in (
        ([-0.1, 0.0, 0.2, -0.1, 0.0], [1, 1, 0, 0, 0]),
        ([0.1, 0.0, 0.2, -0.1, 0.0], [0, 1, 0, 0, 0]),
        ([-0.1, 0.0, 0.2, -0.1, 0.3], [1, 1, 0, 1, 0]),
        ([0.1, -0.1, 0.0, 0.0, 0.0], [0, 0, 0, 0, 0]),
        ([0.0, -0.1, 0.0, 0.0, 0.0], [0, 0, 0, 0, 0]),
    ):
        found = levels.find_met_above(np.array(left))
        np.testing.assert_array_equal(found, np.array(expected, dtype=bool))


def test_prices_rise_tenfold_with_each_priority_before():
    y, _ = budget_rows(40, 0.3)
    rules = [(gc.fpr() <= 0.1).with_priority(7, weight=2.0), gc.fnr() <= 0.1]
    levels = PriorityLevels.from_constraints(
        *compile_constraints(rules, Rows(y, np.array([0, 1])))[::-1]
    )
    assert levels.price_rows(np.array([0.1, 0.3])) == pytest.approx(0.1 * 2.0 + 10.0 * 0.3)
    assert levels.price_rows(np.array([-0.1, -0.3])) == 0.0


def test_a_rule_that_comes_first_decides_which_is_given_up():
    y, margin = budget_rows(3000, 0.3)
    budget, recall = gc.selection_rate() <= 0.1, gc.recall() >= 0.6
    rates = {}
    for first, second in ((budget, recall), (recall, budget)):
        rules = [second.with_priority(2), first]
        rows = EvaluationSet(*compile_constraints(rules, Rows(y, np.array([0, 1]))), "test")
        choice = choose_prefix(ScoredRows(rows, lambda rounds: margin), Prefixes(1, 1))
        selected = margin + choice.shift[0] > 0
        rates[first] = selected.mean(), selected[y == 1].mean()
    assert rates[budget][0] <= 0.1
    assert rates[budget][1] < 0.5
    assert rates[recall][1] >= 0.6
    assert rates[recall][0] > 0.2


@pytest.mark.parametrize("weight", [0.01, 100.0])
def test_weights_decide_between_rules_of_one_priority(weight):
    """Two shares that contradict each other: the heavier one gives way less."""
    y, margin = budget_rows(2000, 0.3)
    rules = [gc.selection_rate() <= 0.1, (gc.recall() >= 0.6).with_priority(1, weight=weight)]
    rows = Rows(y, np.array([0, 1]))
    found = best_shift(margin, *compile_constraints(rules, rows))
    missed = found.functionals[0] - 0.1, 0.6 - found.functionals[1]
    assert missed[0] == pytest.approx(weight * missed[1], abs=5e-3 * max(1.0, weight))
    assert found.violation == pytest.approx(max(missed[0], weight * missed[1]), abs=1e-12)


def test_a_ratio_is_not_met_by_decisions_for_hardly_anybody():
    """Nobody selected costs one error in ten, and no ratio; in rates the violation is small."""
    rng = np.random.default_rng(0)
    group, y = np.repeat([0, 1], 2000), (rng.random(4000) < 0.1).astype(np.intp)
    margin = 2.0 * y + rng.normal(size=4000) - 2.0 - 0.4 * group
    rule = gc.ratio(gc.selection_rate(), by="g") >= 0.9
    rows = Rows(y, np.arange(2), columns={"g": np.array(["a", "b"])[group]})
    cells, compiled = compile_constraints([rule], rows)
    priced = np.ones(len(compiled), dtype=bool)
    found = ShiftSearch(margin, cells, compiled).find(penalty=1.0, is_penalised=priced)
    selected = margin + found.value > 0
    assert selected.sum() >= 20
    rates = [selected[group == g].mean() for g in (0, 1)]
    assert found.violation == pytest.approx(max(0.9 - min(rates) / max(rates), 0.0))
    others = []
    for cut in np.unique(margin):
        decided = margin > cut
        low, high = sorted(decided[group == g].mean() for g in (0, 1))
        violation = 0.9 if high * 4000 < 20 else max(0.9 - low / high, 0.0)
        others.append((decided != y).mean() + violation)
    assert found.loss == pytest.approx(min(others))
