"""Thresholds and biases under constraints with priorities, against trying all in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from references import best_shift
from shift_problems import EXACT, Problem, measured, random, seeds
from tabled_rows import Dealt

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import Prefixes, choose_prefix
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.decision.violations import PriorityLevels, anticipate_standard_errors
from gbm_constrained.problem.compiler import compile_constraints

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")
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
    return error, compiled.rows_of(functionals) - compiled.b


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


@random(150)
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


@random(40)
@given(seed=seeds, k=st.sampled_from([2, 3]), priority=st.integers(1, 5))
def test_one_priority_is_no_priority(seed, k, priority):
    problem = Problem(seed, k=k)
    rules = problem.rules()
    plain = best_shift(problem.margin, *problem.compiled(rules), penalty=3.0)
    alike = prioritise(rules, [priority])
    found = best_shift(problem.margin, *problem.compiled(alike), penalty=3.0)
    np.testing.assert_array_equal(found.value, plain.value)
    assert (found.error, found.loss) == (plain.error, plain.loss)


@random(60)
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


@random(20)
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
    for violations, expected in (
        ([-0.1, 0.0, 0.2, -0.1, 0.0], [1, 1, 0, 0, 0]),
        ([0.1, 0.0, 0.2, -0.1, 0.0], [0, 1, 0, 0, 0]),
        ([-0.1, 0.0, 0.2, -0.1, 0.3], [1, 1, 0, 1, 0]),
        ([0.1, -0.1, 0.0, 0.0, 0.0], [0, 0, 0, 0, 0]),
        ([0.0, -0.1, 0.0, 0.0, 0.0], [0, 0, 0, 0, 0]),
    ):
        found = levels.find_met_above(np.array(violations))
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
