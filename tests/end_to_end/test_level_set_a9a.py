"""The level-set method on a9a, by sex: the data, the metric and the bounds of its paper."""

from __future__ import annotations

import io
import lzma
import os
from pathlib import Path

import numpy as np
import pytest
from pair_problems import bound_difference
from sklearn.datasets import load_svmlight_file
from sklearn.metrics import roc_auc_score

from gbm_constrained.linear_model.auc_scorer import LinearScore
from gbm_constrained.solvers.level_set import (
    LevelSetSearch,
    SaddleProblem,
    SquareSurrogate,
    density_ratios,
    find_optimum,
    follow_levels,
    shuffled_batches,
)

FEMALE = 71  # Column of X; the 72nd of the file. The 39th is an education bin.


def load(name):
    path = Path(os.environ.get("GBM_CONSTRAINED_DATA", "")) / f"{name}.xz"
    if not path.is_file():
        pytest.skip(f"{name}.xz is not committed and was not found.")
    X, y = load_svmlight_file(io.BytesIO(lzma.decompress(path.read_bytes())), n_features=123)
    X = X.toarray()
    return X, y > 0, X[:, FEMALE] == 1


@pytest.fixture(scope="module")
def a9a():
    """90 % of the training rows, and the test rows."""
    X, y, female = load("a9a")
    rows = np.random.RandomState(0).permutation(y.size)[: int(0.9 * y.size)]
    return (X[rows], y[rows], female[rows]), load("a9a.t")


@pytest.mark.parametrize(
    ("kappa", "least", "auc", "gap"),
    [(0.3, 0.2078, 0.8848, -0.035), (0.1, 0.2726, 0.8781, -0.003)],
)
def test_group_auc(a9a, kappa, least, auc, gap):
    """Reference values are those of a conic solver for problem (10) on all training rows."""
    (X, y, female), (X_test, y_test, female_test) = a9a
    members = np.stack([y, ~y, female, ~female, np.ones_like(y)], axis=1).astype(float)
    ratios = density_ratios(members)
    surrogate = SquareSurrogate.of(bound_difference((2, 3), (4, 4), kappa), 5)
    *_, exact = find_optimum(surrogate, X, ratios)
    assert exact[0] == pytest.approx(least, abs=5e-4)

    score = LinearScore.of(X)
    parameters = np.zeros(X.shape[1])
    steps = 3.0, 0.5, 2.0, score.mean_squared_gradient(parameters, X), 100
    problem = SaddleProblem(surrogate, score, *steps)
    start = problem.start(parameters)
    search = LevelSetSearch(problem, start, 0.5, 100_000, theta=1.0, tol=5e-3, max_levels=15)
    batches = shuffled_batches(y.size, 100, np.random.RandomState(0))
    values = []
    for level in follow_levels(search, X, ratios, batches):
        scores = score.scores(level.point.parameters, X)
        values.append(surrogate.values(surrogate.moments(scores, ratios)) - surrogate.limits)
    assert (np.array(values)[:, 1:] <= 0).all()  # Every level is feasible.
    assert exact[0] <= values[-1][0] <= 1.03 * exact[0]
    scores = score.scores(level.point.parameters, X_test)
    assert roc_auc_score(y_test, scores) == pytest.approx(auc, abs=0.004)
    assert roc_auc_score(female_test, scores) - 0.5 == pytest.approx(gap, abs=0.02)
