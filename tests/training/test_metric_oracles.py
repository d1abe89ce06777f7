"""Oracles of a metric: weights of costs, what is grown with them, and which one auto takes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS
from sklearn.base import clone

import gbm_constrained as gc
from gbm_constrained.metrics import cost, g_mean, h_mean
from gbm_constrained.problem.joint_cells import Coefficients, JointCells
from gbm_constrained.reductions.cost_sensitive import CostSensitive, weigh_cells
from gbm_constrained.reductions.plug_in import PlugIn

OPTIONS = {
    "xgboost": {"max_depth": 2, "n_estimators": 12, "n_jobs": 1},
    "lightgbm": {"num_leaves": 4, "n_estimators": 12, "n_jobs": 1, "verbose": -1},
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.choice(3, 1500, p=[0.75, 0.18, 0.07])
    X = rng.normal(size=(1500, 3)) + 0.9 * y[:, None]
    return X, y, rng.choice(["a", "b"], 1500)


def _make(library, **options):
    return CLASSIFIERS[library](**OPTIONS[library], **options)


# -- weights -------------------------------------------------------------------------------------


def test_weights_are_the_ranges_of_costs():
    mass = np.array([80.0, 15.0, 5.0])
    costs = -np.diag([0.2, 1.0, 4.0])
    weights = weigh_cells(costs, mass)
    assert mass @ weights == pytest.approx(mass.sum(), abs=1e-12)
    np.testing.assert_allclose(weights / weights[0], [1.0, 5.0, 20.0], atol=1e-12)
    # A constant on a row of the costs changes no decision, and no weight.
    np.testing.assert_allclose(
        weigh_cells(costs + np.array([[3.0], [-1.0], [0.5]]), mass), weights
    )
    # Costs of several decisions count by their range.
    ordinal = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    relative = weigh_cells(ordinal, np.ones(3))
    np.testing.assert_allclose(relative / relative[1], [2.0, 1.0, 2.0])


def test_costs_without_decisions_weigh_all_alike():
    np.testing.assert_array_equal(weigh_cells(np.ones((3, 3)), np.array([2.0, 1.0, 5.0])), 1.0)


def _oracle(probabilities, y):
    joint = JointCells(y, np.arange(2)[:, None], np.arange(2), 2)
    table = np.eye(4).reshape(4, 2, 2) / len(y)
    return PlugIn(probabilities, joint, np.arange(len(y)), None, Coefficients(table, np.zeros(4)))


def test_boosters_grown_at_costs_beat_wrong_probabilities():
    # Atoms 0, 1, 2 with P(1 | atom) = .1, .3, .6. The model without weights sees no difference
    # between the first two; grown with a larger weight of class 1, it does.
    atoms = np.repeat([0, 1, 2], 100)
    y = np.concatenate([np.arange(100) < 100 * p for p in (0.1, 0.3, 0.6)]).astype(int)
    truth, seen = np.array([0.1, 0.3, 0.6]), []

    def grow(weights):
        seen.append(weights)
        at = truth if weights[1] > 2 * weights[0] else np.array([0.2, 0.2, 0.6])
        return np.column_stack([1 - at, at])[atoms]

    plain = _oracle(grow(np.ones(2)), y)
    oracle = CostSensitive(plain, grow, np.ones(2))
    cost_of = np.array([0.0, 1.0, 4.0, 0.0])  # a false negative costs four times a false positive
    values = [rule.minimise(cost_of)[1] @ cost_of for rule in (plain, oracle)]
    # Brute force over the eight decisions on atoms.
    best = min(
        np.mean(np.where(decision[atoms] == 1, 1.0 - y, 4.0 * y))
        for decision in np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, 8).T
    )
    assert values[1] == pytest.approx(best, abs=1e-12)
    assert values[0] > best + 0.01
    np.testing.assert_allclose(seen[-1][1] / seen[-1][0], 4.0, atol=1e-9)


def test_weights_move_by_their_geometric_mean():
    y = np.array([0, 0, 0, 1])
    oracle = _oracle(np.full((4, 2), 0.5), y)
    start = CostSensitive(oracle, lambda weights: np.full((4, 2), 0.5), np.ones(2))
    costs = np.array([[0.0, 1.0], [16.0, 0.0]])
    moved = start.grow_at(costs, 0.5)
    assert moved.weights[1] / moved.weights[0] == pytest.approx(4.0)
    assert oracle.mass @ moved.weights == pytest.approx(4.0)
    again = moved.grow_at(costs, 0.5)
    assert again.weights[1] / again.weights[0] == pytest.approx(8.0)


# -- fits ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("oracle", ["refit", "in_training"])
def test_model_is_the_parents_with_the_weights_and_decides_by_the_rules(data, library, oracle):
    X, y, _ = data
    # Of fixed costs, a refit has the weights of these.
    costs = np.array([[0.0, 1, 1], [3, 0, 3], [9, 9, 0]])
    model = _make(library, minimize=cost(costs), oracle=oracle).fit(X, y)
    report = model.metric_report_
    assert set(report["oracle"]) == {oracle, "plug_in"}
    assert list(report.loc[report["is_returned"], "oracle"]) == [oracle]
    assert -model.score(X, y) == pytest.approx(report["train"].max(), abs=1e-9)
    if oracle == "refit":
        factor = np.array([1.0, 3.0, 9.0])[y]
        factor *= len(y) / factor.sum()
        parent = next(k for k in type(model).__mro__ if k.__module__.startswith(library))
        plain = parent(**OPTIONS[library]).fit(X, y, sample_weight=factor)
        raw = {"raw_score": True} if library == "lightgbm" else {"output_margin": True}
        given = model.predict(X, **raw)
        own = plain.predict(X, **raw)
        shift = given - own
        np.testing.assert_allclose(shift, shift[:1].repeat(len(X), 0), atol=2e-4)


@BOTH
def test_auto_takes_the_plug_in_where_nothing_is_better(data, library):
    X, y, _ = data
    auto = _make(library, maximize=h_mean()).fit(X, y)
    plug_in = _make(library, maximize=h_mean(), oracle="plug_in").fit(X, y)
    returned = auto.metric_report_.query("is_returned")
    if returned["oracle"].iloc[0] == "plug_in":
        np.testing.assert_array_equal(auto.predict(X), plug_in.predict(X))
    else:  # by more than a standard error
        best = plug_in.metric_report_.query("is_returned")["held_out"].iloc[0]
        assert returned["held_out"].iloc[0] > best


def test_weights_of_groups_are_those_of_joint_cells(data):
    X, y, group = data
    rules = [gc.gap(gc.tpr(), by="g") <= 0.03]
    model = _make("lightgbm", maximize=g_mean(), constraints=rules, oracle="refit")
    model.fit(X, y > 0, sensitive_features={"g": group})
    assert model._rules["factors"].shape == (4,)
    assert np.ptp(model._rules["factors"]) > 0.1
    report = model.metric_report_.query("is_returned")
    assert report["violation"].iloc[0] <= 1e-6
    # The booster of the labels has no weights.
    plain = clone(model).set_params(oracle="plug_in")
    plain.fit(X, y > 0, sensitive_features={"g": group})
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


def test_unknown_oracle(data):
    X, y, _ = data
    with pytest.raises(ValueError, match=r"oracle must be one of .*'best'"):
        _make("lightgbm", maximize=h_mean(), oracle="best").fit(X, y)
