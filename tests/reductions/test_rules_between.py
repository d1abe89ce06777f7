"""Rules on the segments between plug-in rules, against all rules on a fine grid of them."""

from __future__ import annotations

import numpy as np
import pytest

from gbm_constrained.problem.compiler import Coefficients, JointCells
from gbm_constrained.reductions.plug_in import MAX_SEGMENT_RULES, PlugIn, list_rules_between

N_CLASSES = 3


def make_oracle(n, seed, weight=None):
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
    oracle = make_oracle(80, seed, weight)
    between, points = list_rules_between(oracle, draw_rules(3, seed))
    assert between
    np.testing.assert_allclose(points, [oracle.functionals(c) for c in between], atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_no_decisions_of_two_classes_between_two_rules_are_left_out(seed):
    oracle = make_oracle(30, seed)
    first, second = (rule * np.array([1.0, 1.0, 0.0]) + [0.0, 0.0, 9.0]
                     for rule in draw_rules(2, seed))  # fmt: skip
    between, _ = list_rules_between(oracle, [first, second])
    found = {oracle.decide(c).tobytes() for c in (first, *between, second)}
    steps = np.linspace(0.0, 1.0, 20_001)
    tried = {oracle.decide((1 - t) * first + t * second).tobytes() for t in steps}
    assert tried <= found


def test_many_rules_share_the_largest_number():
    oracle = make_oracle(2_000, 0)
    for n_rules in (2, 4):
        between, _ = list_rules_between(oracle, draw_rules(n_rules, 1))
        assert 0 < len(between) <= MAX_SEGMENT_RULES


def test_one_rule_has_nothing_between():
    assert list_rules_between(make_oracle(10, 0), draw_rules(1, 0)) == ([], [])
