"""Bounds of the violation by any decisions on the scores of several classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import softmax

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.decision.violations import ViolationBound
from gbm_constrained.metrics import g_mean
from gbm_constrained.metrics.base import MetricValue
from gbm_constrained.problem.compiler import compile_constraints


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
