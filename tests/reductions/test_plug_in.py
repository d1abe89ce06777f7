"""Plug-in oracles: rules between rules, and prices of missing a class, by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbm_constrained.problem.compiler import Coefficients, JointCells
from gbm_constrained.reductions.plug_in import (
    MAX_SEGMENT_RULES,
    PlugIn,
    improve_rule,
    list_rules_between,
)

N_CLASSES = 3


def draw_oracle(n, seed, weight=None):
    """Make an oracle whose functionals are the weights of each label decided as each class."""
    random = np.random.default_rng(seed)
    P = random.dirichlet(np.ones(N_CLASSES), n)
    codes = np.array([random.choice(N_CLASSES, p=p) for p in P])
    joint = JointCells(codes, np.arange(N_CLASSES)[:, None], np.arange(N_CLASSES), N_CLASSES)
    n_counts = N_CLASSES**2
    table = np.eye(n_counts).reshape(n_counts, N_CLASSES, N_CLASSES)
    return PlugIn(P, joint, np.arange(n), weight, Coefficients(table, np.zeros(n_counts)))


def draw_rules(n_rules, seed):
    costs = np.random.default_rng(seed).uniform(size=(n_rules, N_CLASSES, N_CLASSES))
    return [one / one.max() for one in costs]


@pytest.mark.parametrize("seed", range(5))
def test_functionals_are_those_that_the_oracle_counts(seed):
    weight = np.random.default_rng(seed).uniform(size=80)
    oracle = draw_oracle(80, seed, weight)
    between = list_rules_between(oracle, draw_rules(3, seed))
    assert between
    for costs, u in between:
        np.testing.assert_allclose(u, oracle.functionals(costs), atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_no_decisions_of_two_classes_between_two_rules_are_left_out(seed):
    oracle = draw_oracle(30, seed)
    first, second = (rule * np.array([1.0, 1.0, 0.0]) + [0.0, 0.0, 9.0]
                     for rule in draw_rules(2, seed))  # fmt: skip
    between = [costs for costs, _ in list_rules_between(oracle, [first, second])]
    found = {oracle.decide(c).tobytes() for c in (first, *between, second)}
    steps = np.linspace(0.0, 1.0, 20_001)
    tried = {oracle.decide((1 - t) * first + t * second).tobytes() for t in steps}
    assert tried <= found


def test_many_rules_share_the_largest_number():
    oracle = draw_oracle(2_000, 0)
    for n_rules in (2, 4):
        between = list_rules_between(oracle, draw_rules(n_rules, 1))
        assert 0 < len(between) <= MAX_SEGMENT_RULES


def test_one_rule_has_nothing_between():
    assert list_rules_between(draw_oracle(10, 0), draw_rules(1, 0)) == []


def make_oracle(P, y, amount, matrix):
    """Make an oracle whose one functional is the expected cost, of amounts times a matrix."""
    k = P.shape[1]
    joint = JointCells(
        y, np.tile(np.arange(k), (2, 1)).T, np.arange(k), k, (None, amount), np.arange(2)
    )
    table = np.concatenate([np.zeros((k, k)), matrix])[None] / len(y)
    return PlugIn(P, joint, np.arange(len(y)), None, Coefficients(table, np.zeros(1)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 40))
def test_two_classes_get_the_best_threshold(seed, n):
    rng = np.random.default_rng(seed)
    p = np.round(rng.random(n), 2)  # with ties
    y, amount = (rng.random(n) < p**2).astype(int), rng.exponential(size=n).round(1)
    oracle = make_oracle(np.column_stack([1 - p, p]), y, amount, [[0.0, 1.0], [4.0, 0.0]])
    start, _ = oracle.minimise(np.ones(1))
    rule = improve_rule(oracle, start, np.ones(1))
    # Thresholds below the smallest and above the largest of these decide certain rows wrongly.
    thresholds = np.unique(np.append(p[(p > 0.0) & (p < 1.0)], 0.5))
    cost = [amount @ np.where(p > t, y == 0, 4.0 * (y == 1)) / n for t in (0.0, *thresholds)]
    assert oracle.functionals(rule)[0] == pytest.approx(min(cost), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_several_classes_cost_no_more_than_with_any_other_price(seed):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(3), 60)
    y, amount = np.array([rng.choice(3, p=p) for p in P[:, ::-1]]), rng.exponential(size=60)
    oracle = make_oracle(P, y, amount, 1.0 - np.eye(3))
    start, before = oracle.minimise(np.ones(1))
    rule = improve_rule(oracle, start, np.ones(1))
    after = oracle.functionals(rule)[0]
    assert after < before[0] - 0.05  # Probabilities of other classes are far from the best.
    for j in range(3):  # No other price of one class costs less.
        for price in np.linspace(-rule[j].max(), 3.0, 200):
            other = rule.copy()
            other[j] += price * (np.arange(3) != j)
            assert oracle.functionals(other)[0] >= after - 1e-12


def test_a_rule_that_no_price_betters_stays_as_it_is():
    y = np.array([0, 0, 1, 1])
    P = np.column_stack([1 - y, y]).astype(float)
    oracle = make_oracle(P, y, np.ones(4), 1.0 - np.eye(2))
    start, _ = oracle.minimise(np.ones(1))
    assert improve_rule(oracle, start, np.ones(1)) is start
