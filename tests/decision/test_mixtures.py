"""Choice of one prefix by its records, or of a mixture of prefixes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from references import solve_mixture

from gbm_constrained.decision.rules import find_best_prefix, find_last_prefix, find_mixture


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


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=150, deadline=None)
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
    for _ in range(300):
        n, m = rng.integers(2, 40), rng.integers(1, 6)
        errors, violations = rng.random(n), rng.integers(-9, 20, (n, m)) / rng.integers(37, 500)
        chosen, probability = find_mixture(errors, violations)
        expected = (probability @ violations[chosen]).max()
        assert expected <= 1e-13 or expected > 1e-6
        assert probability.min() > 1e-6
        mixed += violations.max(axis=1).min() > 0 and expected <= 1e-13
    assert mixed > 20, "no rule is met by a mixture only, so that nothing is proved"


@settings(max_examples=100, deadline=None)
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
