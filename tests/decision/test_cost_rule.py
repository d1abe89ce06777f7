"""Decisions of least cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from gbm_constrained.decision.rules import (
    CostRule,
    MarginShift,
    Mixture,
    decide_by_costs,
    mixture_shares,
    probabilities_of,
)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 3))
def test_no_other_decision_costs_less(seed, n_classes, n_groups):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(n_classes * n_groups), size=50)
    L = rng.normal(size=(n_classes * n_groups, n_classes))
    decided = decide_by_costs(P, L)
    expected = P @ L
    assert (expected[np.arange(50), decided] <= expected.min(axis=1) + 1e-12).all()
    shift_of_rows = L + rng.normal(size=(len(L), 1))
    assert (decide_by_costs(P, shift_of_rows) == decided).mean() > 0.99


def test_ties_go_to_the_larger_class():
    P = np.full((5, 3), 1 / 3)
    assert (decide_by_costs(P, 1.0 - np.eye(3)) == 2).all()
    assert (decide_by_costs(P, np.zeros((3, 3))) == 2).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_weights_of_classes_are_a_shift_of_scores(seed, n_classes):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 5.0, size=n_classes)
    factors = rng.uniform(0.5, 2.0, size=n_classes)
    rule = CostRule((1.0 - np.eye(n_classes)) * weights[:, None], factors)
    margin = rng.normal(size=(200, n_classes)) if n_classes > 2 else rng.normal(size=200)
    shift = rule.as_shift()
    assert rule.class_weights == pytest.approx(weights / weights.max())
    assert (rule.decide(lambda _: margin) == MarginShift(shift).decide(lambda _: margin)).all()


def test_other_costs_are_no_shift():
    ordinal = np.abs(np.subtract.outer(np.arange(3), np.arange(3))).astype(float)
    assert CostRule(ordinal, np.ones(3)).as_shift() is None
    assert CostRule(np.eye(2), np.ones(2)).as_shift() is None  # prefers the wrong class
    assert CostRule(np.ones((4, 2)), np.ones(4)).as_shift() is None


def test_probabilities_undo_the_weights_of_classes():
    rng = np.random.default_rng(0)
    scores, factors = rng.normal(size=(20, 3)), np.array([1.0, 2.0, 4.0])
    weighted = softmax(scores, axis=1)
    expected = weighted / factors / (weighted / factors).sum(axis=1, keepdims=True)
    assert probabilities_of(scores, factors) == pytest.approx(expected)
    binary = probabilities_of(scores[:, 0], np.array([1.0, 3.0]))
    odds = np.exp(scores[:, 0]) / 3.0
    assert binary[:, 1] == pytest.approx(odds / (1 + odds))


def test_a_mixture_draws_with_the_shares():
    rng = np.random.default_rng(0)
    margin = rng.normal(size=(40, 3))
    rules = tuple(CostRule(rng.normal(size=(3, 3)), np.ones(3)) for _ in range(3))
    probability = np.array([0.5, 0.3, 0.2])
    shares = mixture_shares([r.decide(lambda _: margin) for r in rules], probability, 3)
    assert shares.sum(axis=1) == pytest.approx(np.ones(40))
    drawn = np.zeros((40, 3))
    for seed in range(2000):
        codes = Mixture(rules, probability, seed).decide(lambda _: margin)
        drawn[np.arange(40), codes] += 1 / 2000
    error = np.sqrt(shares * (1 - shares) / 2000)
    assert (abs(drawn - shares) <= 4 * error + 1e-12).all()
