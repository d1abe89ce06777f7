"""Ramp rates on a9a: the fairness and churn experiments of the source paper, with its method."""

from __future__ import annotations

import time

import numpy as np
import pytest
from a9a import FEMALE, MALE, load_a9a
from scipy import sparse

from gbm_constrained.linear_model.hinge import WeightedSVM
from gbm_constrained.solvers.dataset_rates import (
    MajorizationMinimization,
    RateProblem,
    find_start,
    ramp,
)


class Linear:
    """Decisions of coefficients on rows of another table."""

    def __init__(self, X, coefficients):
        self.z = X @ coefficients[:-1] + coefficients[-1]
        self.decided = self.z >= 0

    def error(self, y):
        return (self.decided != y).mean()


def problem_of(members, costs, bounds, names):
    """Data sets as rows of indicators, each divided by its size."""
    members = np.array(members, dtype=float)
    shares = sparse.csr_array(members / members.sum(axis=1, keepdims=True))
    return RateProblem.of(shares, costs, np.array(bounds), names)


def test_without_a_rule():
    """Errors and the ratio of men to women that are selected, of a support vector machine."""
    X, y = load_a9a()
    test_X, test_y = load_a9a("a9a.t")
    costs = ~y / y.size, y / y.size
    test = Linear(test_X, WeightedSVM(X, 2 / y.size).minimize(*costs, 1e-5).coefficients)
    is_male, is_female = (test_X[:, [sex]].toarray().ravel() == 1 for sex in (MALE, FEMALE))
    ratio = test.decided[is_male].mean() / test.decided[is_female].mean()
    assert test.error(test_y) == pytest.approx(0.150, abs=0.001)
    assert ratio == pytest.approx(3.46, abs=0.1)


@pytest.mark.parametrize(("u", "error"), [(2.0, 0.1565), (1.25, 0.164), (1.0, 0.17)])
def test_ratio_of_selection_rates_by_sex(u, error):
    """Men are selected at most u times as often as women; 20 s are allowed on one core."""
    X, y = load_a9a()
    test_X, test_y = load_a9a("a9a.t")
    is_male = X[:, [MALE]].toarray().ravel() == 1
    costs = np.zeros((2, 4, 2))
    costs[0, 0, 0], costs[0, 1, 1] = y.mean(), 1 - y.mean()
    costs[1, 2, 1], costs[1, 3, 0] = 1 / u, 1.0
    problem = problem_of([y, ~y, is_male, ~is_male], costs, [1.0], ("ratio",))
    model, method = WeightedSVM(X, 2 / y.size), MajorizationMinimization()
    began = time.process_time()
    steps = method.solve(problem, model, find_start(problem, model, method).coefficients)
    assert time.process_time() - began <= 20.0
    assert max(step.violation for step in steps) <= 1e-9
    assert (np.diff([step.objective for step in steps]) <= 1e-9).all()
    z = model.scores(steps[-1].coefficients)
    assert ramp(z)[is_male].mean() / ramp(z)[~is_male].mean() <= u + 1e-6
    assert (z >= 0)[is_male].mean() / (z >= 0)[~is_male].mean() == pytest.approx(u, abs=0.05)
    test = Linear(test_X, steps[-1].coefficients)
    is_male = test_X[:, [MALE]].toarray().ravel() == 1
    is_female = test_X[:, [FEMALE]].toarray().ravel() == 1
    assert test.decided[is_male].mean() / test.decided[is_female].mean() <= u + 0.05
    assert test.error(test_y) <= error


def test_churn_and_recall_against_a_deployed_model():
    """Errors on labelled rows, churn on unlabelled ones, and recall no worse than deployed."""
    X, y = load_a9a()
    test_X, test_y = load_a9a("a9a.t")
    rows = np.random.default_rng(0).permutation(y.size)
    old, labelled, unlabelled = rows[:3000], rows[3000:13_000], rows[13_000:23_000]
    deployed = WeightedSVM(X[old], 2 / 3000).minimize(~y[old] / 3000, y[old] / 3000, 1e-5)
    deployed = deployed.coefficients
    on_labelled, on_unlabelled = Linear(X[labelled], deployed), Linear(X[unlabelled], deployed)
    none, positive = np.zeros(10_000), y[labelled]
    recall = on_labelled.decided[positive].mean()
    selected = on_unlabelled.decided
    members = [
        np.append(positive, none),
        np.append(~positive, none),
        np.append(none, selected),
        np.append(none, ~selected),
    ]
    costs = np.zeros((3, 4, 2))
    costs[0, 0, 0], costs[0, 1, 1] = positive.mean(), 1 - positive.mean()
    costs[1, 2, 0], costs[1, 3, 1] = selected.mean(), 1 - selected.mean()
    costs[2, 0, 0] = 1.0
    problem = problem_of(members, costs, [0.02, 1 - recall], ("churn", "recall"))
    model = WeightedSVM(sparse.csr_array(sparse.vstack([X[labelled], X[unlabelled]])), 2 / 10_000)
    method = MajorizationMinimization()
    began = time.process_time()
    start = find_start(problem, model, method, deployed)
    steps = method.solve(problem, model, start.coefficients)
    assert time.process_time() - began <= 20.0
    z = model.scores(steps[-1].coefficients)
    assert 0.8 * 0.02 <= problem.ramp_values(z)[1] <= 0.02 + 1e-6
    assert problem.hard_values(z)[1] <= 0.02
    test, before = Linear(test_X, steps[-1].coefficients), Linear(test_X, deployed)
    assert test.error(test_y) <= min(0.151, before.error(test_y))
    assert (test.decided != before.decided).mean() <= 0.02
    assert test.decided[test_y].mean() >= before.decided[test_y].mean() - 0.005
