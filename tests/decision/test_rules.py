"""Decisions by shifts, costs and mixtures, and probabilities of joint cells."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from references import solve_mixture
from scipy.special import softmax

from gbm_constrained.decision.rules import (
    OTHER_DATA,
    CellScores,
    CostRule,
    MarginShift,
    Mixture,
    Scores,
    decide_by_costs,
    find_best_prefix,
    find_last_prefix,
    find_mixture,
    mixture_shares,
    probabilities_of,
    shift_scores,
)

N = 400


def margins_of(n_classes):
    """Scores that grow with the rounds of the prefix."""
    rng = np.random.default_rng(n_classes)
    shape = (N,) if n_classes == 2 else (N, n_classes)
    noise, signal = rng.normal(size=shape), rng.normal(size=shape)
    return lambda rounds: noise + 0.1 * rounds * signal


def rules_of(n_classes):
    """List one rule of each kind."""
    shift = np.array([0.4]) if n_classes == 2 else 0.4 - 0.2 * np.arange(n_classes)
    shifts = MarginShift(shift, 5), MarginShift(-shift, 10)
    return {
        "shift": shifts[0],
        "mixture": Mixture(shifts, np.array([0.3, 0.7]), random_state=0),
        "mixture of a mixture": Mixture(
            (shifts[0], Mixture(shifts, np.array([0.5, 0.5]), 1)), np.array([0.2, 0.8]), 2
        ),
    }


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kind", rules_of(2))
def test_every_rule_decides_class_indices_of_rows(kind, n_classes):
    rule, margins = rules_of(n_classes)[kind], margins_of(n_classes)
    decisions = rule.decide(margins)
    assert decisions.shape == (N,)
    assert decisions.dtype == np.intp
    assert set(decisions) == set(range(n_classes))
    np.testing.assert_array_equal(rule.decide(margins), decisions)  # the same draws again
    single = rule.decide(lambda rounds: margins(rounds).astype(np.float32))
    assert np.mean(single == decisions) > 0.99


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kind", rules_of(2))
def test_every_rule_follows_scores_that_leave_no_doubt(kind, n_classes):
    sure = np.arange(N) % n_classes
    far = np.where(sure == 1, 50.0, -50.0) if n_classes == 2 else 50.0 * np.eye(n_classes)[sure]
    np.testing.assert_array_equal(rules_of(n_classes)[kind].decide(lambda rounds: far), sure)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_shift_is_added_to_the_scores_of_its_prefix(n_classes):
    rule, margins = rules_of(n_classes)["shift"], margins_of(n_classes)
    scores = shift_scores(margins(5), rule.shift)
    expected = scores > 0 if n_classes == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(rule.decide(margins), expected)
    moved = scores - margins(5)
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_mixture_draws_each_row_by_the_probabilities(n_classes):
    margins, table = margins_of(n_classes), {"rounds": [0, 5, 20], "probability": [0.2, 0.5, 0.3]}
    columns = 1 if n_classes == 2 else n_classes
    alone = [MarginShift(np.zeros(columns), r).decide(margins) for r in table["rounds"]]
    shares = np.zeros((N, n_classes))
    for seed in range(300):
        mixture = Mixture.of_prefixes(pd.DataFrame(table), n_classes, seed)
        shares[np.arange(N), mixture.decide(margins)] += 1 / 300
    parts = zip(table["probability"], alone, strict=True)
    expected = sum(p * np.eye(n_classes)[decisions] for p, decisions in parts)
    assert np.abs(shares - expected).max() < 5 * np.sqrt(0.25 / 300)
    assert not shares[expected == 0.0].any()


def test_scores_beside_a_shift_are_those_of_probabilities():
    margin, shift = np.array([-1.0, 0.5]), np.array([0.7])
    inside, beside = (Scores.of(margin, shift, beside=b) for b in (False, True))
    np.testing.assert_array_equal(beside.for_decisions, margin + 0.7)
    assert beside.for_probabilities is margin
    assert inside.for_probabilities is inside.for_decisions
    unmoved = Scores.of(margin, np.zeros(1), beside=True)
    assert unmoved.for_probabilities is unmoved.for_decisions


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


@st.composite
def tables(draw):
    """Errors and violations: fractions of few rows, which tie often, or numbers of five digits.

    A linear programme is solved to 1e-7: finer ones are equal for the solver.
    """
    n, m = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["fractions", "numbers"]))
    low = draw(st.sampled_from([-20, -8, 0, 1]))
    if kind == "fractions":
        errors = draw(arrays(np.int64, n, elements=st.integers(0, 20))) / 20
        violations = draw(arrays(np.int64, (n, m), elements=st.integers(low, 20))) / 40
        return errors, violations
    unit = st.floats(0, 1, allow_subnormal=False)
    errors, violations = draw(arrays(float, n, elements=unit)), draw(
        arrays(float, (n, m), elements=unit)
    )  # fmt: skip
    return np.round(errors, 5), np.round(violations, 5) + low / 40


@settings(max_examples=60, deadline=None)
@given(tables())
def test_best_prefix_by_trying_all(table):
    """The last of least error among the feasible, or the least infeasible."""
    errors, violations = table
    chosen = find_best_prefix(errors, violations)
    worst = [max(0.0, *row) for row in violations.tolist()]
    feasible = [t for t, w in enumerate(worst) if w <= 1e-12]
    cost = errors if feasible else worst
    candidates = feasible or range(len(errors))
    least = min(cost[t] for t in candidates)
    assert chosen == max(t for t in candidates if cost[t] == least)


@settings(max_examples=60, deadline=None)
@given(tables())
def test_last_prefix_by_trying_all(table):
    """The very last if feasible; else the last of the least infeasible in the later half."""
    _, violations = table
    chosen = find_last_prefix(violations)
    worst = [max(0.0, *row) for row in violations.tolist()]
    n = len(worst)
    if worst[-1] <= 1e-12:
        assert chosen == n - 1
        return
    late = [t for t in range(n) if 2 * t >= n - 1]  # as few as make a half
    assert chosen == max(t for t in late if worst[t] == min(worst[i] for i in late))


@settings(max_examples=60, deadline=None)
@given(tables())
def test_mixture_is_the_optimum_of_the_linear_programme(table):
    errors, violations = table
    n, m = violations.shape
    chosen, probability = find_mixture(errors, violations)
    assert chosen.size == probability.size <= m + 1
    assert (np.diff(chosen) > 0).all()
    assert chosen.min() >= 0
    assert chosen.max() < n
    assert (probability > 0).all()
    assert probability.sum() == pytest.approx(1, abs=1e-12)
    expected = probability @ violations[chosen]
    excess = max(0.0, solve_mixture(errors, violations, slack=True))
    assert expected.max() <= excess + 1e-7
    if excess < 1e-7:
        excess = 0.0
    optimum = solve_mixture(errors, violations - excess)
    if optimum is not None:
        assert probability @ errors[chosen] == pytest.approx(optimum, abs=1e-5)


def test_rules_met_in_the_mean_are_met_to_rounding():
    """Reports count a violation of 1e-12; nor is a prefix kept whose probability is nothing."""
    rng = np.random.default_rng(0)
    mixed = 0
    for _ in range(150):
        n, m = rng.integers(2, 40), rng.integers(1, 6)
        errors, violations = rng.random(n), rng.integers(-9, 20, (n, m)) / rng.integers(37, 500)
        chosen, probability = find_mixture(errors, violations)
        expected = (probability @ violations[chosen]).max()
        assert expected <= 1e-13 or expected > 1e-6
        assert probability.min() > 1e-6
        mixed += violations.max(axis=1).min() > 0 and expected <= 1e-13
    assert mixed > 20, "no rule is met by a mixture only, so that nothing is proved"


@settings(max_examples=50, deadline=None)
@given(tables())
def test_mixture_under_one_constraint_by_trying_all_pairs(table):
    """Two prefixes are enough: the best pair whose mean meets the bound."""
    errors, violations = table
    g = violations[:, 0]
    chosen, probability = find_mixture(errors, g[:, None])
    found = probability @ errors[chosen]
    if g.min() > 0:
        assert probability @ g[chosen] == pytest.approx(g.min(), abs=1e-7)
        near = errors[g <= g.min() + 1e-12].min()
        assert found <= near + 1e-7
        return
    best = errors[g <= 0].min()
    for low in np.flatnonzero(g < 0):
        for high in np.flatnonzero(g > 0):
            share = g[high] / (g[high] - g[low])
            best = min(best, share * errors[low] + (1 - share) * errors[high])
    assert found == pytest.approx(best, abs=1e-6)
    assert probability @ g[chosen] <= 1e-7


def test_mixture_by_hand():
    errors = np.array([0.1, 0.4, 0.2])
    violations = np.array([[0.1, -0.1], [-0.3, -0.3], [0.1, 0.3]])
    assert find_best_prefix(errors, violations) == 1
    chosen, probability = find_mixture(errors, violations)
    assert chosen.tolist() == [0, 1]
    np.testing.assert_allclose(probability, [0.75, 0.25], atol=1e-9)
    # None is feasible: the largest expected violation is least at equal parts of the two.
    chosen, probability = find_mixture(np.array([0.1, 0.2]), np.array([[0.3, 0], [0, 0.3]]))
    np.testing.assert_allclose(probability, [0.5, 0.5], atol=1e-6)
    assert find_best_prefix(np.array([0.1, 0.2]), np.array([[0.3, 0], [0, 0.2]])) == 1
    # Each violates one rule, and their mean meets both.
    chosen, probability = find_mixture(np.array([0.1, 0.2]), np.array([[0.2, -0.4], [-0.2, 0.2]]))
    np.testing.assert_allclose(probability, [0.5, 0.5], atol=1e-9)
