"""Data of the linear models."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def data():
    """Overlapping classes, 0 to 2; the binary problem is class 2 against the others."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 600, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(3, 4))[y] + rng.normal(size=(600, 4))
    return X, y, rng.uniform(0.5, 2.0, 600)


@pytest.fixture(scope="module")
def grouped_rows():
    """Two classes of two groups, one of which is positive more often."""
    rng = np.random.default_rng(0)
    group = rng.choice(["a", "b"], 800)
    y = (rng.random(800) < np.where(group == "a", 0.55, 0.3)).astype(int)
    X = rng.normal(size=(800, 3)) + np.outer(y, [1.2, 0.5, 0.0])
    X[:, 2] += group == "a"
    return X, y, group, rng.uniform(0.5, 2.0, 800)
