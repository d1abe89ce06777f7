"""Intervals of binomials: published examples and simulated populations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gbm_constrained.statistics.binomial import (
    GAMMA,
    Binomial,
    clopper_pearson,
    learn_then_test,
    newcombe_difference,
    sum_p_value,
)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_clopper_pearson_is_scipys(level):
    for n in (1, 7, 100, 20000):
        for events in {0, 1, n // 3, n - 1, n}:
            expected = stats.binomtest(events, n).proportion_ci(level, "exact")
            np.testing.assert_allclose(
                clopper_pearson(events, n, level), (expected.low, expected.high), atol=1e-11
            )
    assert np.isnan(clopper_pearson(0, 0)).all()


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((6, 7, 2, 7), 0.0582, 0.8062),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((0, 10, 0, 20), -0.1611, 0.2775),
        ((0, 10, 0, 10), -0.2775, 0.2775),
        ((10, 10, 0, 20), 0.6791, 1.0),
        ((10, 10, 0, 10), 0.6075, 1.0),
    ],
)
def test_newcombe_published_examples(counts, low, high):
    """Table II of the paper, method 10."""
    assert np.round(newcombe_difference(*counts), 4).tolist() == [low, high]
    assert np.isnan(newcombe_difference(*counts[:2], 0, 0)).all()


def test_sequences_stop_at_the_first_failure():
    p = np.array([0.001, 0.02, 0.06, 0.001])
    assert learn_then_test([p], 0.05).tolist() == [[True, True, False, False]]
    assert not learn_then_test([p], 0.0001).any()
    two = learn_then_test([p, p[::-1]], 0.05)
    assert two.tolist() == [[True, True, False, False], [True, False, False, False]]
    assert not learn_then_test([p, p], 0.03)[:, 1].any()
    assert learn_then_test([[0.01, np.nan, 0.01]], 0.05).tolist() == [[True, False, False]]


DELTAS = (0.005, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5)


def p_value(x, n_1, y, n_2, bound, w_1=1.0, w_2=1.0):
    return sum_p_value(Binomial(x, n_1, w_1), Binomial(y, n_2, w_2), bound)


def table(n_1, n_2, bound, *weights):
    """P-values of all counts."""
    return np.array(
        [
            [p_value(x, n_1, y, n_2, bound, *weights) for y in range(n_2 + 1)]
            for x in range(n_1 + 1)
        ]
    )


def probabilities(n, q):
    return stats.binom.pmf(np.arange(n + 1)[:, None], n, q)


def rejected(p, delta, q_1, q_2):
    """``P(p <= delta)`` at pairs of probabilities."""
    n_1, n_2 = np.array(p.shape) - 1
    first, second = probabilities(n_1, q_1), probabilities(n_2, q_2)
    return np.einsum("xg,xy,yg->g", first, p <= delta, second)


CASES = [
    (10, 10, 1.1, 1.0, 1.0),
    (25, 12, 1.3, 1.0, 1.0),
    (12, 40, 1.05, 1.0, 1.0),
    (30, 30, 0.4, 1.0, 1.0),  # both events rare
    (40, 30, 1.9, 1.0, 1.0),  # both common
    (20, 20, 1.0, 1.0, 0.8),  # a ratio
    (20, 15, 0.2, 1.0, 0.8),
    (1, 3, 1.0, 2.0, 1.0),
    (45, 45, 1.02, 1.0, 1.0),
]


@pytest.mark.parametrize(("n_1", "n_2", "bound", "w_1", "w_2"), CASES)
def test_the_size_is_held_by_enumeration(n_1, n_2, bound, w_1, w_2):
    """On the line of the bound and beyond it; and it is not far from what it may be."""
    p = table(n_1, n_2, bound, w_1, w_2)
    q_2 = np.linspace(0.0, 1.0, 1001)
    q_1 = (bound - w_2 * q_2) / w_1
    on_line = (q_1 >= 0) & (q_1 <= 1)
    worse = np.clip(q_1, 0.0, 1.0) + np.outer([0.02, 0.1, 0.3], np.ones(q_2.size))
    sizes = []
    for delta in DELTAS:
        sizes.append(rejected(p, delta, q_1[on_line], q_2[on_line]).max())
        assert sizes[-1] <= delta
        for q in worse:
            possible = (q <= 1.0) & (w_1 * q + w_2 * q_2 >= bound)
            assert rejected(p, delta, q[possible], q_2[possible]).max(initial=0.0) <= delta
    if min(n_1, n_2) >= 30:
        assert sizes[2] >= 0.03


def union_p_value(x, n_1, y, n_2, bound):
    """Clopper-Pearson limits with half the level each."""
    low, high = GAMMA, 1.0
    for _ in range(20):
        middle = np.sqrt(low * high)
        total = clopper_pearson(x, n_1, 1 - middle)[1] + clopper_pearson(y, n_2, 1 - middle)[1]
        low, high = (low, middle) if total <= bound else (middle, high)
    return high


def test_it_certifies_what_the_union_does_and_more():
    n, bound, delta = 30, 1.15, 0.05
    p = table(n, n, bound)
    counts = range(n + 1)
    union = np.array([[union_p_value(x, n, y, n, bound) for y in counts] for x in counts])
    assert ((union > delta) | (p <= delta)).all()
    # Equal rates of 0.1, 0.3 and 0.5: how often is their difference certified to be below 0.15?
    q = np.array([0.1, 0.3, 0.5])
    power, before = rejected(p, delta, q, 1 - q), rejected(union, delta, q, 1 - q)
    assert (power > before + 0.1).all()


def test_many_rows_have_the_normal_test():
    for q, gap, bound in ((0.05, 0.0, 0.003), (0.3, 0.01, 0.019), (0.5, 0.0, 0.009)):
        n = 50_000
        x, y = round(n * (q + gap)), n - round(n * q)
        error = np.sqrt(((q + gap) * (1 - q - gap) + q * (1 - q)) / n)
        normal = stats.norm.sf((bound - gap) / error)
        assert 0.0 <= p_value(x, n, y, n, 1.0 + bound) - normal <= 0.1 * normal + 2e-4


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    n_1=st.integers(1, 400),
    n_2=st.integers(1, 400),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    bound=st.floats(0.01, 2.2),
    weight=st.floats(0.3, 1.5),
    step=st.floats(0.0, 0.5),
)
def test_it_falls_with_the_bound_and_grows_with_events(n_1, n_2, shares, bound, weight, step):
    x, y = (int(share * n) for share, n in zip(shares, (n_1, n_2), strict=True))
    p = p_value(x, n_1, y, n_2, bound, 1.0, weight)
    assert 0.0 <= p <= 1.0
    assert p == p_value(y, n_2, x, n_1, bound, weight, 1.0) or n_2 == n_1 * weight**2
    assert p_value(x, n_1, y, n_2, bound + step, 1.0, weight) <= p + 1e-9
    tested = 1.0 / n_1 >= weight**2 / n_2  # the other is the nuisance parameter
    more = (x + 1, y) if tested else (x, y + 1)
    if more[0] <= n_1 and more[1] <= n_2:
        assert p_value(more[0], n_1, more[1], n_2, bound, 1.0, weight) >= p - 1e-9


def test_nothing_and_everything():
    assert p_value(0, 0, 5, 10, 1.1) == p_value(5, 10, 0, 0, 1.1) == 1.0
    assert p_value(10, 10, 10, 10, 2.0) == 0.0  # no sum exceeds two
    assert p_value(5, 10, 5, 10, 0.9) == 1.0
    assert GAMMA < p_value(0, 1000, 0, 1000, 1.0) < 2.0 * GAMMA


def test_the_p_value_of_the_same_counts_is_computed_once():
    """As a threshold moves, most of the pairs of many groups are as they were."""
    sum_p_value.cache_clear()
    assert len({p_value(300, 1000, 700, 1000, 1.4) for _ in range(3)}) == 1
    p_value(301, 1000, 700, 1000, 1.4)
    assert sum_p_value.cache_info().misses == 2
