"""Data that the tests of decisions share."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def table():
    """Features, labels by number of classes, and a group. A third of the labels are drawn."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 700)
    X = rng.normal(size=(700, 5))
    X[:, 0] += 0.6 * sex
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=700)
    y = {"binary": (score > 0.7).astype(int), "several": np.digitize(score, [-0.3, 1.0])}
    noise = rng.random(700) < 0.3
    return X, {k: np.where(noise, rng.permutation(v), v) for k, v in y.items()}, sex


@pytest.fixture(scope="module")
def problem():
    """Two groups, and labels that are a coin's in a third of the rows: rules cost errors."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 700)
    X = rng.normal(size=(700, 5))
    X[:, 0] += 0.8 * sex
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.8 * rng.normal(size=700) > 0.7).astype(int)
    rng = np.random.default_rng(1)
    return X, np.where(rng.random(700) < 0.33, rng.integers(0, 2, 700), y), sex
