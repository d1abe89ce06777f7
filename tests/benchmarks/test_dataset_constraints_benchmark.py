"""The benchmark of dataset constraints: thresholds and covariances are what they are called."""

import dataset_constraints as data
import numpy as np
import pytest
from scipy import sparse


@pytest.fixture
def grouped():
    """Rows of two groups that differ in both features."""
    rng = np.random.default_rng(0)
    group = rng.random(120) < 0.6
    X = rng.normal(size=(120, 2)) + np.outer(group, [0.8, 0.3])
    y = X @ [1.0, 0.5] + rng.normal(size=120) > 0.6
    return data.Table(sparse.csr_array(X), y), group


@pytest.mark.parametrize("share", [0.0, 0.31, 0.5, 0.97])
def test_shifts_are_the_least_that_keep_a_share(share):
    scores = np.random.default_rng(1).normal(size=200)
    tried = np.array([(scores > t).mean() for t in scores])
    most = (scores + data.find_shift(scores, share, at_least=False) > 0).mean()
    assert most == tried[tried <= share].max()
    if share:
        least = (scores + data.find_shift(scores, share, at_least=True) > 0).mean()
        assert least == min((tried[tried >= share]).min(), 1.0)


@pytest.mark.parametrize("multiplier", [0.0, 0.02, 0.1])
def test_covariances_by_hinges_against_a_conic_solver(grouped, multiplier):
    cp = pytest.importorskip("cvxpy")
    (X, y), group = grouped
    rows, n = X.toarray(), y.size
    difference = rows[group].mean(axis=0) - rows[~group].mean(axis=0)
    sign = np.where(y, 1.0, -1.0)
    w, c = cp.Variable(2), cp.Variable()
    hinges = cp.sum(cp.pos(0.5 - cp.multiply(sign, rows @ w + c))) / n
    exact = cp.Problem(
        cp.Minimize(hinges + cp.sum_squares(w) / n + multiplier * difference @ w)
    ).solve(solver="CLARABEL")
    *found, intercept = data.fit_zafar_hinge(grouped[0], group, multiplier)
    z = rows @ found + intercept
    value = np.maximum(0.5 - sign * z, 0).mean() + np.dot(found, found) / n
    assert value + multiplier * difference @ found == pytest.approx(exact, abs=5e-5)


def test_covariances_by_ramps_fall_to_zero(grouped):
    table, group = grouped
    X = table.X.toarray()
    difference = X[group].mean(axis=0) - X[~group].mean(axis=0)
    covariances = [
        abs(difference @ data.fit_zafar_ramp(table, group, strength)[:-1])
        for strength in (0.0, 0.9, 1.0)
    ]
    assert covariances[0] > covariances[1] > 0.01
    assert covariances[2] == pytest.approx(0.0, abs=1e-12)
