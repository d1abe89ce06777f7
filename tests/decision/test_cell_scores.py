"""Scores of joint cells, on distributions of finitely many atoms whose joint tables are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbm_constrained.decision.rules import (
    OTHER_DATA,
    CellScores,
    CostRule,
    decide_by_costs,
    probabilities_of,
)

LABELS = np.array([0, 0, 1, 1, 2])  # of five cells: the last class has no groups


def draw_table(seed, n_cells=5, n_atoms=40):
    """Draw the probability of each cell at each atom."""
    return np.random.default_rng(seed).dirichlet(np.full(n_cells, 0.7), n_atoms)


def sum_by_label(table, labels=LABELS):
    return np.stack([table[:, labels == k].sum(axis=1) for k in range(labels.max() + 1)], axis=1)


def plain_scores(labels=LABELS):
    return CellScores(labels, np.ones(labels.max() + 1), 1.0, np.ones(labels.size), 1.0)


def probabilities(margin):
    return probabilities_of(margin, np.ones(margin.shape[1]))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_right_boosters_give_the_joint_table(seed):
    table = draw_table(seed)
    margin = plain_scores().combine(np.log(sum_by_label(table)), np.log(table))
    np.testing.assert_allclose(probabilities(margin), table, rtol=1e-12, atol=1e-15)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_booster_of_the_cells_has_no_say_on_the_labels(seed):
    """The joint table is found where the second booster knows the group of each label alone."""
    random = np.random.default_rng(seed)
    table = draw_table(seed)
    misled = table * random.uniform(0.1, 10.0, (len(table), 3))[:, LABELS]
    margin = plain_scores().combine(np.log(sum_by_label(table)), np.log(misled))
    np.testing.assert_allclose(probabilities(margin), table, rtol=1e-12, atol=1e-15)


def test_factors_and_scales_of_both_boosters_are_taken_out():
    random, table = np.random.default_rng(0), draw_table(0)
    of_labels, of_cells = random.uniform(0.2, 5.0, 3), random.uniform(0.2, 5.0, 5)
    scores = CellScores(LABELS, of_labels, 2.5, of_cells, 0.4)
    margin = scores.combine(
        np.log(sum_by_label(table) * of_labels) / 2.5, np.log(table * of_cells) / 0.4
    )
    np.testing.assert_allclose(probabilities(margin), table, rtol=1e-12, atol=1e-15)


def test_two_classes_have_one_score():
    table, labels = draw_table(1, 3), np.array([0, 1, 1])
    P = sum_by_label(table, labels)
    margin = plain_scores(labels).combine(np.log(P[:, 1] / P[:, 0]), np.log(table))
    np.testing.assert_allclose(probabilities(margin), table, rtol=1e-12, atol=1e-15)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rules_decide_as_all_labelings_of_an_atom_say(seed):
    table = draw_table(seed)
    costs = np.random.default_rng(seed).normal(size=(5, 3))
    margin = plain_scores().combine(np.log(sum_by_label(table)), np.log(table))
    found = CostRule(costs, np.ones(5)).decide(lambda _: margin)
    expected = [min(range(3), key=lambda j: sum(p * costs[:, j])) for p in table]
    np.testing.assert_array_equal(found, expected)


def test_cells_of_further_data_keep_their_probability():
    """The labels of the first booster are those of a row that is in none of these cells."""
    table, labels = draw_table(2), np.array([0, OTHER_DATA, 1, 1, OTHER_DATA])
    P = np.random.default_rng(2).dirichlet(np.ones(2), len(table))
    scores = CellScores(labels, np.ones(2), 1.0, np.ones(5), 1.0)
    found = probabilities(scores.combine(np.log(P), np.log(table)))
    inside = table[:, [0, 2, 3]].sum(axis=1)
    expected = table.copy()
    expected[:, 0] = inside * P[:, 0]
    expected[:, 2:4] *= (inside * P[:, 1] / table[:, 2:4].sum(axis=1))[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("unknown", [[2], [2, 3], [0, 1, 2]])
def test_cells_that_a_booster_has_not_seen(unknown):
    table = draw_table(3)
    scores = np.log(table)
    scores[:, unknown] = -np.inf
    found = probabilities(plain_scores().combine(np.log(sum_by_label(table)), scores))
    np.testing.assert_allclose(sum_by_label(found), sum_by_label(table), rtol=1e-12, atol=1e-15)
    known = np.setdiff1d(np.arange(5), unknown)
    for label in range(3):
        cells = np.flatnonzero(label == LABELS)
        seen = np.intersect1d(cells, known)
        if seen.size:
            assert (found[:, np.setdiff1d(cells, seen)] == 0.0).all()
        else:  # All cells of the label are alike.
            np.testing.assert_allclose(found[:, cells], found[:, cells[:1]] + 0 * found[:, cells])


def test_certain_labels_leave_no_other_cells():
    margin = plain_scores().combine(np.array([[900.0, 0.0, 0.0]]), np.log(draw_table(4, 5, 1)))
    found = probabilities(margin)
    assert (found[0, 2:] == 0.0).all()
    costs = np.array([[0.0, 1, 1]] * 2 + [[1.0, 0, 1]] * 2 + [[1.0, 1, 0]])
    assert decide_by_costs(found, costs).tolist() == [0]
