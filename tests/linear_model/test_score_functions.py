"""Gradients of scores, against central differences."""

from __future__ import annotations

import numpy as np
import pytest
from pair_problems import PairProblem

from gbm_constrained.linear_model.auc_scorer import LinearScore, SigmoidNetwork


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_pull_back_is_the_gradient_of_scores(kind):
    problem = PairProblem(5, n=30)
    score = LinearScore.of(problem.X) if kind == "linear" else SigmoidNetwork.of(problem.X, 3)
    rng = np.random.default_rng(0)
    parameters = rng.normal(size=score.start(np.random.RandomState(0)).size)
    rows = rng.normal(size=30)
    numerical = [
        rows @ (score.scores(parameters + e, problem.X) - score.scores(parameters - e, problem.X))
        for e in np.eye(parameters.size) * 1e-5
    ]
    found = score.pull_back(parameters, problem.X, rows)
    np.testing.assert_allclose(found, np.array(numerical) / 2e-5, rtol=1e-6, atol=1e-8)
    squares = [
        (score.pull_back(parameters, problem.X[[i]], np.ones(1)) ** 2).sum() for i in range(30)
    ]
    mean = score.mean_squared_gradient(parameters, problem.X)
    assert mean == pytest.approx(np.mean(squares), rel=1e-10)


def test_networks_start_at_equal_scores_with_different_units():
    problem = PairProblem(6, n=30)
    network = SigmoidNetwork.of(problem.X, 5)
    parameters = network.start(np.random.RandomState(0))
    np.testing.assert_array_equal(network.scores(parameters, problem.X), 0.0)
    gradient = network.pull_back(parameters, problem.X, problem.scores)
    assert np.unique(gradient[-5:]).size == 5


def test_scores_of_networks_do_not_depend_on_the_scale_of_features():
    problem = PairProblem(7, n=30)
    scores = []
    for factor in (1.0, 100.0):
        network = SigmoidNetwork.of(factor * problem.X, 5)
        parameters = network.start(np.random.RandomState(0))
        parameters[-5:] = np.arange(5.0)
        scores.append(network.scores(parameters, factor * problem.X))
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-10)
