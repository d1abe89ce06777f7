"""Rates as linear maps of cell statistics, against counting row by row and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from random_rows import (
    CLASS_COUNTS,
    N,
    decisions,
    draw,
    log_probability,
    measure,
    some_constraints,
)
from sklearn import metrics

import gbm_constrained as gc


def brute_force(constraint, y, margin, weight):
    """Weighted mean over selected rows, row by row."""
    (term,) = constraint.terms
    first = term.name
    total = value = 0.0
    log_p, predicted = log_probability(margin), decisions(margin)
    for i in range(y.size):
        inside = True
        if first.startswith("class_error"):
            inside = y[i] == int(first[len("class_error(") : -1])
        elif first in {"fpr", "fnr"}:
            inside = y[i] == (first == "fnr")
        for selector in term.on:
            if hasattr(selector, "to_array"):
                inside &= bool(selector.to_array()[i])
            elif hasattr(selector, "value"):
                inside &= bool(y[i] == selector.value)
        if inside:
            total += weight[i]
            value += weight[i] * (-log_p[i, y[i]] if first == "log_loss" else predicted[i] != y[i])
    return value / total


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_rates_are_what_counting_row_by_row_gives(n_classes, weighted):
    y, margin, weight, masks = draw(n_classes)
    constraints = some_constraints(n_classes, masks)
    w = weight if weighted else np.ones(N)
    found = measure(constraints, y, margin, weight if weighted else None)
    expected = [brute_force(c, y, margin, w) for c in constraints]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
@pytest.mark.parametrize("subset", [False, True])
def test_rates_are_those_of_scikit_learn(n_classes, subset):
    y, margin, weight, masks = draw(n_classes, seed=1)
    on = masks[0] if subset else np.ones(N, dtype=bool)
    mask = {"on": masks[0]} if subset else {}
    constraints = [gc.error_rate(**mask) <= 0.1, gc.log_loss(**mask) <= 0.1]
    constraints += [gc.class_error(k, **mask) <= 0.1 for k in range(n_classes)]
    found = measure(constraints, y, margin, weight)
    rows = {"sample_weight": weight[on]}
    predicted, truth = decisions(margin)[on], y[on]
    probability = np.exp(log_probability(margin))[on]
    labels = np.arange(n_classes)
    recall = metrics.recall_score(truth, predicted, labels=labels, average=None, **rows)
    expected = [
        metrics.zero_one_loss(truth, predicted, **rows),
        metrics.log_loss(truth, probability, labels=labels, **rows),
        *(1 - recall),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-15)


def test_false_positive_and_negative_rates_are_those_of_the_confusion_matrix():
    y, margin, weight, _ = draw(2, seed=2)
    confusion = metrics.confusion_matrix(y, margin > 0, sample_weight=weight, normalize="true")
    found = measure([gc.fpr() <= 0.1, gc.fnr() <= 0.1], y, margin, weight)
    np.testing.assert_allclose(found, [confusion[0, 1], confusion[1, 0]], rtol=1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_an_integer_weight_is_a_repeated_row(n_classes):
    y, margin, _, masks = draw(n_classes, seed=3)
    repeats = np.random.default_rng(3).integers(0, 4, N)
    repeats[:n_classes] = 2
    once = measure(some_constraints(n_classes, masks), y, margin, repeats.astype(float))
    masks = np.repeat(masks, repeats, axis=1)
    again = measure(
        some_constraints(n_classes, masks), np.repeat(y, repeats), np.repeat(margin, repeats, 0)
    )
    np.testing.assert_allclose(once, again, rtol=1e-12)


def test_ties():
    """Zero margin is the negative class, equal scores the first class: as in argmax."""
    y = np.array([0, 0, 1, 1])
    assert measure([gc.fpr() <= 0.1, gc.fnr() <= 0.1], y, np.zeros(4)).tolist() == [0.0, 1.0]
    y = np.array([0, 1, 2])
    found = measure([gc.class_error(k) <= 0.1 for k in range(3)], y, np.zeros((3, 3)))
    assert found.tolist() == [0.0, 1.0, 1.0]
