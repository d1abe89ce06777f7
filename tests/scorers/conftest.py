"""Fixtures of the tests of the boosters."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def problem():
    """Features, labels, and a group that one feature and the labels depend on."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 600)
    X = rng.normal(size=(600, 4))
    X[:, 0] += 1.2 * sex
    y = (X[:, 0] + 0.5 * X[:, 1] + 0.8 * rng.normal(size=600) > 0.6).astype(int)
    return X, y, sex
