"""Data, a fitted model and decisions for the tests of figures."""

import matplotlib
import numpy as np
import pytest
from drawing import fitted
from sklearn.datasets import make_classification

import gbm_constrained as gc

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(400, 6, n_informative=4, weights=[0.8], random_state=0)
    return X[:300], y[:300], X[300:], y[300:]


@pytest.fixture(scope="module")
def two_constraints(data):
    return fitted(data, [gc.fnr() <= 0.05, gc.fpr() <= 0.2])


@pytest.fixture(scope="module")
def decided():
    """Labels, decisions, groups and weights of rows; small groups are none."""
    rng = np.random.default_rng(0)
    n = 600
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    predicted = np.where(rng.random(n) < 0.7, y, 1 - y)
    return y, predicted, {"g": group}, rng.choice([1.0, 2.0], n)
