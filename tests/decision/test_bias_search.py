"""Class biases of least error, against trying all and the dual."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from references import best_shift
from scipy.optimize import minimize
from scipy.special import softmax
from shift_problems import EXACT, Problem, measured, random, seeds

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.search import BiasSearch, ShiftSearch
from gbm_constrained.problem.compiler import compile_constraints

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")


@random(25)
@given(seed=seeds, weighted=st.booleans())
def test_biases_are_never_worse_than_a_constant_decision(seed, weighted):
    """Scores far apart, so that no line leads to deciding all rows alike at once."""
    problem = Problem(seed, n=40, k=3, weighted=weighted)
    problem.margin = problem.margin * 20.0
    cells, compiled = problem.compiled(problem.rules())
    found = best_shift(problem.margin, cells, compiled)
    for always in 1e4 * np.eye(3):
        error, excess, _ = measured(problem, cells, compiled, always)
        assert found.violation <= excess + 1e-10
        if abs(found.violation - excess) <= 1e-10:
            assert found.error <= error + 1e-10


def every_bias(problem, cells, compiled):
    """Errors and violations of all decisions that biases of three classes can make.

    A row changes its decision where two classes tie. With one bias kept at zero, the others lie in
    a plane that these ties cut along lines of three directions, and all points of a face decide
    alike: the sectors around each crossing are tried, and far lines give the outer faces crossings
    as well. Classes that no constraint distinguishes have the same bias, which leaves a line.
    """
    scores, n = problem.margin, problem.n
    costs = compiled.A.toarray().reshape(-1, len(cells), 3)
    alike = [
        [i, j]
        for i, j in itertools.combinations(range(3), 2)
        if np.array_equal(costs[..., i], costs[..., j])
    ]
    assert len(alike) < 2
    if alike:
        (other,) = {0, 1, 2} - set(alike[0])
        ties = np.unique(scores[:, alike[0]].max(axis=1) - scores[:, other])
        values = np.zeros((ties.size + 1, 3))
        values[:, other] = [ties[0] - 1, *(ties[1:] + ties[:-1]) / 2, ties[-1] + 1]
    else:
        far = 2 * np.ptp(scores) + 1
        first, second, between = (
            np.unique([*(scores[:, i] - scores[:, j]), -far, far])
            for i, j in ((2, 0), (2, 1), (1, 0))
        )
        crossings = [
            np.stack(np.broadcast_arrays(x, y), axis=-1).reshape(-1, 2)
            for x, y in (
                (first[:, None], second),
                (first[:, None], first[:, None] - between),
                (second[:, None] + between, second[:, None]),
            )
        ]
        angles = np.radians([22.5, 67.5, 135.0, 202.5, 247.5, 315.0])
        sectors = 1e-4 * np.column_stack([np.cos(angles), np.sin(angles)])
        around = np.concatenate(crossings)[:, None] + sectors
        values = np.pad(around.reshape(-1, 2), ((0, 0), (0, 1)))
    decided = (scores + values[:, None]).argmax(axis=2).astype(np.int8)
    decided = np.unique(decided, axis=0)
    w = np.ones(n) if problem.weight is None else problem.weight
    wrong = w[:, None] * (np.arange(3) != problem.y[:, None]) / w.sum()
    share = w / cells.total(w)[cells.codes]
    # Of each row and decision: what it adds to the left-hand sides, and to the error.
    table = np.concatenate([costs[:, cells.codes] * share[:, None], wrong[None]])
    found = sum((decided == k) @ table[..., k].T for k in range(3))
    return found[:, -1], np.maximum(found[:, :-1] - compiled.b, 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_biases_by_trying_all(seed):
    """The search looks along lines only, and yet nothing is better on these rows."""
    problem = Problem(seed, n=32, k=3, weighted=seed % 2 == 0)
    cells, compiled = problem.compiled(problem.rules())
    assert len(cells.views) == 1
    found = best_shift(problem.margin, cells, compiled)
    error, excess, functionals = measured(problem, cells, compiled, found.value)
    np.testing.assert_allclose(found.error, error, **EXACT)
    np.testing.assert_allclose(found.violation, excess, **EXACT)
    np.testing.assert_allclose(found.functionals, functionals, **EXACT)
    assert found.value.sum() == pytest.approx(0.0, abs=1e-12)
    errors, violations = every_bias(problem, cells, compiled)
    worst = violations.max(axis=1)
    assert found.violation == pytest.approx(worst.min(), abs=1e-11)
    least = errors[worst <= worst.min() + 1e-11].min()
    assert found.error == pytest.approx(least, abs=1e-12)


def of_five_classes(seed, n, offset):
    """Log-probabilities of five normal classes, the last one's raised, and their labels."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(5), rng.integers(0, 5, n - 5))
    centre = 0.8 * np.random.default_rng(0).normal(size=(5, 3))
    x = centre[y] + rng.normal(size=(n, 3))
    margin = -((x[:, None] - centre) ** 2).sum(axis=2) / 2
    margin[:, 4] += offset
    return margin, y


@pytest.mark.parametrize(("n", "offset"), [(400, 0.0), (4000, 0.0), (100, 0.5)])
def test_classes_that_no_rule_tells_apart_keep_their_order(n, offset):
    """Their biases are equal, and those of the others are what a search over these alone finds."""
    margin, y = of_five_classes(1, n, offset)
    rules = [gc.class_error(1) <= 0.1, gc.selection_rate(3) <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(5)))
    found = best_shift(margin, cells, compiled)
    assert found.is_feasible
    assert np.ptp(found.value[[0, 2, 4]]) == 0.0
    assert len(set(found.value[[0, 1, 3]])) == 3
    kept = margin[:, [0, 2, 4]].argmax(axis=1)
    shifted = (margin + found.value)[:, [0, 2, 4]].argmax(axis=1)
    np.testing.assert_array_equal(shifted, kept)
    every = [gc.error_rate() <= 0.01]  # an error of any class counts
    alone = best_shift(margin, *compile_constraints(every, Rows(y, np.arange(5))))
    assert len(set(alone.value)) == 5


@pytest.mark.parametrize("weighted", [False, True])
def test_classes_that_no_rule_tells_apart_are_moved_where_that_surely_pays(weighted):
    """Scores that are too high for one of them are brought back to what they were, nearly."""
    margin, y = of_five_classes(1, 4000, 1.5)
    weight = 1.0 + np.arange(4000) % 3 if weighted else np.ones(4000)
    rules = [gc.class_error(1) <= 0.1, gc.selection_rate(3) <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(5), weight))
    found = best_shift(margin, cells, compiled)
    right = best_shift(margin - 1.5 * (np.arange(5) == 4), cells, compiled)
    assert found.is_feasible
    assert found.error <= right.error + 0.005
    assert found.value[4] < found.value[0] - 1.0
    wrong = (margin + found.value).argmax(axis=1) != y
    np.testing.assert_allclose(found.error, np.average(wrong, weights=weight), **EXACT)
    together = []  # errors of biases that are equal for these classes
    for one, three in itertools.product(np.arange(0, 4, 0.1), np.arange(-1, 3, 0.1)):
        decided = (margin + np.array([0, one, 0, three, 0])).argmax(axis=1)
        misses = np.average(decided[y == 1] != 1, weights=weight[y == 1])
        if misses <= 0.1 and np.average(decided == 3, weights=weight) <= 0.1:
            together.append(np.average(decided != y, weights=weight))
    assert found.error < min(together) - 0.02


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("penalty", [0.5, 3.0])
def test_penalised_violations_by_trying_all(seed, penalty):
    problem = Problem(seed, n=32, k=3, weighted=seed % 2 == 0)
    rules = [gc.class_error(j) <= 0.02 * (j + 1) for j in range(3)]
    cells, compiled = problem.compiled(rules)
    found = best_shift(problem.margin, cells, compiled, penalty=penalty)
    assert not found.is_feasible
    error, _, functionals = measured(problem, cells, compiled, found.value)
    violations = np.maximum(0.0, compiled.rows_of(functionals) - compiled.b)
    assert found.loss == pytest.approx(error + penalty * violations.sum(), abs=1e-12)
    errors, violations = every_bias(problem, cells, compiled)
    least = (errors + penalty * violations.sum(axis=1)).min()
    assert found.loss == pytest.approx(least, abs=1e-12)
    strict = best_shift(problem.margin, cells, compiled)
    assert strict.loss == strict.violation <= found.violation


def test_seven_classes_against_the_dual():
    """At the dual solution's own violations, class weights of Lagrange multipliers do no better.

    The dual of Neyman-Pearson classification weighs the posterior of each bounded class; it is
    concave in the multipliers, and maximised over them.
    """
    rng = np.random.default_rng(0)
    n, k = 3000, 7
    centre, prior = 1.8 * rng.normal(size=(k, 3)), rng.dirichlet(np.full(k, 3.0))
    y = np.append(np.arange(k), rng.choice(k, n - k, p=prior))
    x = centre[y] + rng.normal(size=(n, 3))
    margin = np.log(prior) - ((x[:, None] - centre) ** 2).sum(axis=2) / 2
    margin += 0.3 * rng.normal(size=(n, k))
    wrong = margin.argmax(axis=1) != y
    errors = np.array([wrong[y == j].mean() for j in range(k)])
    bounded = np.argsort(errors)[-4:]
    bounds = 0.8 * errors[bounded]
    p, share = softmax(margin, axis=1), np.bincount(y) / n

    def weights(multipliers):
        weight = np.ones(k)
        weight[bounded] += np.abs(multipliers) / share[bounded]
        return weight

    def minus_dual(multipliers):
        weighed = p * weights(multipliers)
        least = (weighed.sum(axis=1) - weighed.max(axis=1)).mean()
        return np.abs(multipliers) @ bounds - least

    solved = minimize(minus_dual, np.full(4, 0.05), method="Nelder-Mead", options={"maxiter": 900})
    decided = (margin + np.log(weights(solved.x))).argmax(axis=1)
    reached = np.array([(decided != y)[y == j].mean() for j in bounded])
    rules = [gc.class_error(int(j)) <= b for j, b in zip(bounded, bounds, strict=True)]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(k)))
    found = best_shift(margin, cells, compiled)
    assert found.violation <= max(0.0, (reached - bounds).max()) + 1e-12
    relaxed = best_shift(margin, cells, compiled, bounds=np.maximum(reached, bounds))
    assert relaxed.is_feasible
    assert relaxed.error <= (decided != y).mean()
    again = best_shift(margin, cells, compiled)
    np.testing.assert_array_equal(again.value, found.value)


@pytest.mark.parametrize(("k", "n", "fewest"), [(3, 800, 1500), (20, 3000, 300)])
def test_the_lines_of_a_search_cost_the_same_for_few_and_many_classes(k, n, fewest):
    """A line sorts all rows, compares all classes and measures all constraints."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, k, n)
    rules = [gc.class_error(j) <= 0.1 for j in range(k)]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(k)))
    found = ShiftSearch(rng.normal(size=(n, k)), cells, compiled)
    search = BiasSearch(found.classes, found.merits, found.levels)
    assert fewest <= search.lines_left
    assert search.lines_left * n * k <= 30_000_000
