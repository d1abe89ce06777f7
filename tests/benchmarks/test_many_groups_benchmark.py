"""The benchmark of many groups: the reimplemented peer, and accuracies at equal gaps."""

from __future__ import annotations

import many_groups
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightgbm import LGBMClassifier
from peer_runs.catalogue import split_of
from peer_runs.methods import GAP_RULES, Split, merit
from peer_runs.others import MinMaxObjective, decide_by, project_to_simplex
from peer_runs.report import Cell
from scipy.optimize import minimize
from scipy.special import log_expit
from shift_problems import random

N = 400


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(N, 3)), rng.integers(0, 3, N)
    y = (X[:, 0] + 0.5 * groups + rng.normal(size=N) > 1.0).astype(int)
    return Split(X, y, groups, np.arange(N) % 4 == 0, X, groups)


@random(30)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=5))
def test_the_projection_is_the_nearest_point_of_the_simplex(point):
    found = project_to_simplex(np.array(point))
    assert found.min() >= 0.0
    assert found.sum() == pytest.approx(1.0)
    nearest = minimize(
        lambda x: ((x - point) ** 2).sum(), np.full(len(point), 1 / len(point)), method="SLSQP",
        bounds=[(0, 1)] * len(point), constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-14},
    ).x  # fmt: skip
    np.testing.assert_allclose(found, nearest, atol=1e-5)


def test_gradient_and_hessian_are_those_of_the_lagrangian_at_the_new_dual(split):
    y, groups, weight = split.y, split.groups, 0.3
    objective = MinMaxObjective(y, groups, weight, 0.05)
    score = np.random.default_rng(1).normal(size=N)
    before = objective.dual.copy()
    gradient, hessian = objective(y, score)

    def losses(score):
        return -log_expit(np.where(y == 1, score, -score))

    means = [losses(score)[(y == 1) & (groups == g)].mean() for g in range(3)]
    np.testing.assert_allclose(before, 1 / 3)
    np.testing.assert_allclose(objective.dual, project_to_simplex(before + 0.05 * np.array(means)))

    def lagrangian(score):
        loss = losses(score)
        largest = [loss[(y == 1) & (groups == g)].mean() for g in range(3)]
        return N * ((1 - weight) * loss.mean() + weight * objective.dual @ largest)

    for i in range(0, N, 37):
        step = 1e-4 * (np.arange(N) == i)
        values = [lagrangian(score + k * step) for k in (-1, 0, 1)]
        assert gradient[i] == pytest.approx((values[2] - values[0]) / 2e-4, abs=1e-5)
        assert hessian[i] == pytest.approx(
            (values[2] - 2 * values[1] + values[0]) / 1e-8, abs=1e-3
        )


def test_without_weight_it_is_the_plain_booster(split):
    booster = {"n_estimators": 20, "num_leaves": 7}
    decisions = decide_by(split, booster, (0.0, 0.1))(split.X)
    plain = LGBMClassifier(**booster, n_jobs=1, random_state=0, verbose=-1).fit(split.X, split.y)
    np.testing.assert_array_equal(decisions, plain.predict(split.X))


def test_weight_raises_the_smallest_true_positive_rate(split):
    booster = {"n_estimators": 20, "num_leaves": 7}

    def smallest(weight):
        found = decide_by(split, booster, (weight, 0.1))(split.X)[split.y == 1]
        return min(found[split.groups[split.y == 1] == g].mean() for g in range(3))

    assert smallest(0.5) > smallest(0.0)


def test_merit_prefers_bounds_that_hold_and_then_fewer_errors():
    y, groups = np.array([1, 1, 1, 1, 0, 0]), np.array([0, 0, 1, 1, 0, 1])
    rule = GAP_RULES["tpr_gap"]
    decisions = {
        "all right": y,
        "a false alarm": np.array([1, 1, 1, 1, 1, 0]),
        "a miss": np.array([1, 0, 1, 1, 0, 0]),
    }
    ranked = sorted(decisions, key=lambda name: merit(rule, 0.2, y, decisions[name], groups))
    assert ranked == ["all right", "a false alarm", "a miss"]
    assert merit(rule, 0.2, y, decisions["a miss"], groups) == pytest.approx((0.3, 1 / 6, 0.5))


@random(50)
@given(
    st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=6),
    st.floats(0.02, 0.9),
)
def test_accuracy_at_a_gap_is_the_best_of_all_lots(points, gap):
    values, accuracies = np.array(points).T
    cell = Cell("data", "tpr_gap", 1.0, 0.6, {"it": np.array([values, accuracies])[:, None]})
    found = many_groups.accuracy_of(cell, "it", gap)
    best = 0.6
    for v, a in points:
        for w, b in [(0.0, 0.6), *points]:
            share = np.linspace(0, 1, 201)
            mixed = share * v + (1 - share) * w <= gap
            best = max(best, (share * a + (1 - share) * b)[mixed].max(initial=0.0))
    assert best - 1e-9 <= found <= best + 0.006  # Shares lie 0.005 apart.


def test_groups_of_adult_have_the_same_shares_in_all_parts():
    data, y_test = split_of("adult_by_race_and_sex", 0)
    assert np.unique(data.groups).tolist() == list(range(6))
    assert data.y.size == pytest.approx(y_test.size, abs=1)
    positives = np.bincount(data.groups_test[y_test == 1])
    assert positives.min() == pytest.approx(48, abs=1)
    np.testing.assert_allclose(np.bincount(data.groups[data.y == 1]), positives, atol=1)
