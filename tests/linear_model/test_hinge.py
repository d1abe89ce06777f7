"""Weighted support vector machines against exact minima, and their certificates."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from a9a import load_a9a
from hypothesis import given
from references import random, seeds
from scipy import sparse
from scipy.optimize import minimize_scalar

from gbm_constrained.linear_model import WeightedSVM


class Draw:
    """Rows with duplicates and collinear columns, and costs with zeros among them."""

    def __init__(self, seed, n=None, d=None):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 150)) if n is None else n
        d = int(rng.integers(1, 7)) if d is None else d
        self.X = rng.normal(size=(n, d)) * 10 ** rng.uniform(-2, 2)
        if seed % 3 == 0:
            self.X = np.hstack([self.X, 2 * self.X[:, :1], np.ones((n, 1))])
        if seed % 4 == 0:
            self.X = np.vstack([self.X, self.X[: n // 3]])
        self.n = self.X.shape[0]
        costs = rng.gamma(1.0, size=(2, self.n)) * (rng.random((2, self.n)) < 0.7) / self.n
        self.a, self.b = costs * [[seed % 7 > 0], [seed % 11 > 0]]
        self.l2 = 10 ** rng.uniform(-6, 0)

    def value(self, coefficients):
        z = self.X @ coefficients[:-1] + coefficients[-1]
        losses = self.a * np.maximum(0.5 + z, 0) + self.b * np.maximum(0.5 - z, 0)
        return losses.sum() + self.l2 / 2 * coefficients[:-1] @ coefficients[:-1]

    def dual_value(self, xi):
        w = self.X.T @ xi / self.l2
        return np.minimum(self.b - xi / 2, self.a + xi / 2).sum() - self.l2 / 2 * w @ w

    def assert_solves(self, found, gap):
        """Recompute both values, and whether the slopes are feasible for the dual."""
        scale = 1 + self.a.sum() + self.b.sum()
        assert found.primal == pytest.approx(self.value(found.coefficients), abs=1e-9 * scale)
        assert found.dual == pytest.approx(self.dual_value(found.slopes), abs=1e-9 * scale)
        assert (found.slopes >= -self.a).all()
        assert (found.slopes <= self.b).all()
        assert abs(found.slopes.sum()) <= 1e-14 * scale
        assert found.primal - found.dual <= gap

    def exact_minimum_of_one_feature(self):
        """Minimise over w by a search in one dimension, and over c by trying every kink."""
        x = self.X[:, 0]

        def best_of(w):
            kinks = np.concatenate([-0.5 - w * x, 0.5 - w * x])
            z = w * x + kinks[:, None]
            losses = self.a * np.maximum(0.5 + z, 0) + self.b * np.maximum(0.5 - z, 0)
            return losses.sum(axis=1).min() + self.l2 / 2 * w * w

        # The value at zero bounds the penalty of the minimum.
        end = np.sqrt(2 * best_of(0.0) / self.l2) + 1e-9
        return minimize_scalar(best_of, bounds=(-end, end), options={"xatol": 1e-12 * end}).fun


@random(60)
@given(seeds)
def test_one_feature_against_a_search(seed):
    draw = Draw(seed // 12 * 12 + 1, n=1 + seed % 40, d=1)
    found = WeightedSVM(draw.X, draw.l2).minimize(draw.a, draw.b, 1e-7)
    draw.assert_solves(found, 1e-7)
    exact = draw.exact_minimum_of_one_feature()
    assert found.dual <= exact + 1e-10
    assert exact <= found.primal + 1e-7  # The search is exact to the root of its precision.


@pytest.mark.parametrize("seed", range(15))
def test_against_a_conic_solver(seed):
    cp = pytest.importorskip("cvxpy")
    draw = Draw(seed)
    found = WeightedSVM(draw.X, draw.l2).minimize(draw.a, draw.b, 1e-7)
    draw.assert_solves(found, 1e-7)
    w, c = cp.Variable(draw.X.shape[1]), cp.Variable()
    losses = draw.a @ cp.pos(0.5 + draw.X @ w + c) + draw.b @ cp.pos(0.5 - draw.X @ w - c)
    problem = cp.Problem(cp.Minimize(losses + draw.l2 / 2 * cp.sum_squares(w)))
    exact = problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert found.dual <= exact + 1e-9
    assert exact <= found.primal + 1e-9
    assert found.primal == pytest.approx(exact, abs=1e-6)


@random(40)
@given(seeds)
def test_certificate_holds_at_every_scale_and_start(seed):
    draw = Draw(seed)
    rng = np.random.default_rng(seed)
    start = rng.normal(size=draw.X.shape[1] + 1) * 10 ** rng.uniform(-3, 3)
    for gap in (1e-2, 1e-5, 1e-8):
        found = WeightedSVM(draw.X, draw.l2).minimize(draw.a, draw.b, gap, start)
        draw.assert_solves(found, gap)


def test_weights_are_duplicates_and_order_is_nothing():
    draw = Draw(5, n=60, d=3)
    model, rng = WeightedSVM(draw.X, 0.1), np.random.default_rng(0)
    times = rng.integers(0, 3, draw.n)
    weighted = model.minimize(times * draw.a, times * draw.b, 1e-10)
    rows = rng.permutation(np.repeat(np.arange(draw.n), times))
    repeated = WeightedSVM(draw.X[rows], 0.1).minimize(draw.a[rows], draw.b[rows], 1e-10)
    np.testing.assert_allclose(weighted.coefficients, repeated.coefficients, atol=1e-6)
    assert weighted.primal == pytest.approx(repeated.primal, abs=1e-10)


def test_start_of_a_similar_problem_takes_fewer_steps():
    draw = Draw(1, n=2000, d=5)
    model = WeightedSVM(draw.X, 1e-3)
    cold = model.minimize(draw.a, 1.01 * draw.b, 1e-6)
    near = model.minimize(draw.a, draw.b, 1e-6).coefficients
    warm = model.minimize(draw.a, 1.01 * draw.b, 1e-6, near)
    assert warm.n_steps < cold.n_steps
    assert warm.primal == pytest.approx(cold.primal, abs=1e-6)


def test_costs_of_one_decision_or_none_are_avoided():
    X = np.random.default_rng(0).normal(size=(20, 2))
    model, ones, zeros = WeightedSVM(X, 1.0), np.full(20, 0.05), np.zeros(20)
    for costs, sign in (((ones, zeros), -1), ((zeros, ones), 1)):
        found = model.minimize(*costs, 1e-9)
        assert found.primal <= 1e-9
        assert (sign * model.scores(found.coefficients) >= 0.5 - 1e-6).all()
    assert model.minimize(zeros, zeros, 1e-9).primal == 0.0


def test_all_rows_at_one_kink():
    """Where a penalty holds all weights at zero, every row is at a kink."""
    rng = np.random.default_rng(1)
    X, b = rng.normal(size=(50, 2)), np.full(50, 0.02)
    found = WeightedSVM(X, 100.0).minimize(0.5 * b, b, 1e-10)
    assert found.primal == pytest.approx(0.5, abs=1e-10)
    assert found.coefficients == pytest.approx([0.0, 0.0, 0.5], abs=1e-6)


def test_many_features_by_conjugate_gradients():
    """In coordinates of the space of its rows, the problem has as many features as rows."""
    rng = np.random.default_rng(2)
    X = sparse.random_array((60, 2500), density=0.02, rng=rng, format="csr")
    a, b = rng.gamma(1.0, size=(2, 60)) / 60
    found = WeightedSVM(X, 1e-3).minimize(a, b, 1e-7)
    q, r = np.linalg.qr(X.toarray().T)
    small = WeightedSVM(np.ascontiguousarray(r.T), 1e-3).minimize(a, b, 1e-9)
    assert found.dual <= small.primal
    assert found.primal == pytest.approx(small.primal, abs=1e-6)
    np.testing.assert_allclose(found.coefficients[:-1], q @ small.coefficients[:-1], atol=2e-2)


def test_sparse_features_are_never_dense_nor_copied():
    rng = np.random.default_rng(3)
    n, d = 60_000, 300
    X = sparse.random_array((n, d), density=0.01, rng=rng, format="csr")
    y = X @ rng.normal(size=d) > 0
    model = WeightedSVM(X, 1e-3)
    assert model.X is X
    tracemalloc.start()
    found = model.minimize(~y / n, y / n, 1e-3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * d * 8 / 3  # Most of it are vectors of rows, and blocks of at most 12 MB.
    few = slice(0, 3000)
    costs = (~y[few] / n, y[few] / n, 1e-7)
    as_sparse = WeightedSVM(X[few], 1e-3).minimize(*costs)
    as_dense = WeightedSVM(X[few].toarray(), 1e-3).minimize(*costs)
    np.testing.assert_allclose(as_sparse.coefficients, as_dense.coefficients, atol=1e-8)
    assert found.gap <= 1e-3


def test_a9a():
    """The value of a reference with a free intercept, within 4 s of one core."""
    X, y = load_a9a()
    n = y.size
    began = time.process_time()
    found = WeightedSVM(X, 2 / n).minimize(~y / n, y / n, 5e-6)
    assert time.process_time() - began <= 4.0
    assert found.gap <= 5e-6
    assert found.primal == pytest.approx(0.17557, abs=2e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"l2": 0.0}, "l2 must be a positive number, got 0.0"),
        ({"l2": np.nan}, "l2 must be a positive number, got nan"),
        ({"gap": 0.0}, "gap must be a positive number, got 0.0"),
        ({"a": [-1.0, 1.0]}, "positive must hold 2 finite costs of at least zero"),
        ({"b": [np.nan, 1.0]}, "negative must hold 2 finite costs of at least zero"),
        ({"b": [1.0]}, "negative must hold 2 finite costs"),
    ],
)
def test_bad_input(change, message):
    given = {"l2": 1.0, "a": [1.0, 0.0], "b": [0.0, 1.0], "gap": 1e-6} | change
    with pytest.raises(ValueError, match=message):
        WeightedSVM(np.eye(2), given["l2"]).minimize(given["a"], given["b"], given["gap"])


def test_gap_below_the_precision_of_doubles():
    draw = Draw(13, n=50, d=3)
    with pytest.raises(RuntimeError, match=r"duality gap of the SVM is .* ask for more"):
        WeightedSVM(draw.X, draw.l2).minimize(1e6 * draw.a, 1e6 * draw.b, 1e-14)
