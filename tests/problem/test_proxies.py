"""Proxies of 0-1 rates."""

import numpy as np
import pytest
from kernel_rows import (
    CLASS_COUNTS,
    N,
    Rows,
    chosen,
    full,
    proxy_tables,
)
from scipy.special import softmax

from gbm_constrained.problem.kernels import PROXIES, KernelTables, loss_lipschitz, rate_lipschitz


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_the_logistic_proxy_is_a_convex_upper_bound_of_the_cost(n_classes):
    """Up to the constant of its derivation, at any scores and for any costs."""
    rng = np.random.default_rng(6)
    rows = Rows(n_classes, seed=6)
    cost = rng.normal(size=(2 * n_classes, n_classes))
    target, expected_cost = proxy_tables(cost, "logistic")
    assert not expected_cost.any()
    assert (target >= 0).all()
    labels, zeros = rows.tables.cell_labels, np.zeros(2 * n_classes)
    rows.tables = KernelTables(target, expected_cost, zeros, labels, np.dtype(float))
    a = cost[rows.codes]
    spare = a.max(axis=1, keepdims=True) - a
    constant = spare.sum(axis=1) - a.max(axis=1)
    for scale in (0.0, 1.0, 10.0):
        margin = scale * rows.margin
        paid = a[np.arange(N), full(margin).argmax(axis=1)]
        assert (rows.value(margin) >= paid + constant - 1e-12).all()
    curvature = rows.hessians()
    least = curvature.min() if n_classes == 2 else np.linalg.eigvalsh(curvature).min()
    assert least >= -1e-12


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_the_sigmoid_proxy_becomes_the_cost_of_the_decision(n_classes):
    """Expected cost at the mean probabilities; the decision's own cost when scores grow."""
    rng = np.random.default_rng(7)
    rows = Rows(n_classes, seed=7)
    cost = rng.normal(size=(2 * n_classes, n_classes))
    labels, zeros = rows.tables.cell_labels, np.zeros(2 * n_classes)
    rows.tables = KernelTables(np.zeros_like(cost), cost, zeros, labels, np.dtype(float))
    a = cost[rows.codes]
    soft = (a * chosen(rows.margin)).sum(axis=1)
    np.testing.assert_allclose(rows.value(rows.margin), soft, rtol=1e-12)
    margin = rng.permuted(np.tile(np.arange(n_classes), (N, 1)), axis=1) * 1e3
    margin = margin if n_classes > 2 else margin[:, 1] - margin[:, 0]
    decided = a[np.arange(N), rows.kernel.predict(margin).astype(int)]
    np.testing.assert_allclose(rows.value(margin), decided, rtol=1e-12)


@pytest.mark.parametrize("proxy", ["logistic", "sigmoid"])
def test_proxies_do_not_see_a_common_shift_of_costs(proxy):
    """Predicted fractions sum to one, so only differences of costs matter to gradients."""
    rng = np.random.default_rng(8)
    cost = rng.normal(size=(6, 3))
    gradients = []
    for shift in (0.0, 5.0):
        rows = Rows(3, seed=8)
        target, q = proxy_tables(cost + shift, proxy)
        labels = rows.tables.cell_labels
        rows.tables = KernelTables(target, q, np.zeros(6), labels, np.dtype(float))
        gradients.append(rows.gradient(rows.margin))
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("part", ["loss", "rate"])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_lipschitz_constants_hold_and_are_attained(n_classes, part):
    """The largest gradient norm of the cross-entropy, and of a probability p.

    The sigmoid proxy is three quarters as steep as p: q is half as steep, at the same scores.
    """
    rows = Rows(n_classes)
    wrong = np.arange(n_classes) != rows.tables.cell_labels[:, None]
    target, cost = (1.0 - wrong, 0.0 * wrong) if part == "loss" else (0.0 * wrong, 1.0 * wrong)
    zeros = np.zeros(2 * n_classes)
    rows.tables = KernelTables(target, cost, zeros, rows.tables.cell_labels, np.dtype(float))
    bound = (loss_lipschitz if part == "loss" else rate_lipschitz)(n_classes)
    rng, largest, of_p = np.random.default_rng(9), 0.0, 0.0
    for scale in np.geomspace(0.01, 100, 200):
        margin = scale * rng.normal(size=rows.margin.shape)
        if n_classes > 2 and part == "rate":  # two classes share the mass at the maximum
            margin[np.arange(N), rows.y] = margin[:, 0] = 40.0
        grad = rows.gradient(margin)[0]
        norm = np.abs(grad) if n_classes == 2 else np.linalg.norm(grad, axis=1)
        largest = max(largest, norm.max())
        p = softmax(full(margin), axis=1)
        own = p[np.arange(N), rows.y][:, None]
        slope = own * (np.eye(n_classes)[rows.y] - p)
        of_p = max(of_p, np.linalg.norm(slope if n_classes > 2 else slope[:, 1:], axis=1).max())
    if part == "rate":
        assert 0.99 * bound <= of_p <= bound * (1 + 1e-12)
        bound *= 0.75
    assert 0.99 * bound <= largest <= bound * (1 + 1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_the_concavity_of_the_sigmoid_proxy_is_bounded(n_classes):
    """No curvature is below the constant that CBPR takes, and some come near it."""
    rng, least = np.random.default_rng(11), 0.0
    rows = Rows(n_classes)
    zeros, labels = np.zeros(2 * n_classes), rows.tables.cell_labels
    for scale in np.geomspace(0.1, 30, 100):
        cost = rng.random((2 * n_classes, n_classes)).round()
        spread = np.ptp(cost, axis=1)[rows.codes]
        rows.tables = KernelTables(np.zeros_like(cost), cost, zeros, labels, np.dtype(float))
        rows.margin = scale * rng.normal(size=rows.margin.shape)
        curvature = rows.hessians()
        curvature = curvature if n_classes == 2 else np.linalg.eigvalsh(curvature).min(axis=1)
        bound = PROXIES["sigmoid"].concavity(n_classes)
        assert (curvature >= -bound * spread - 1e-12).all()
        least = min(least, curvature.min())
    assert least < -0.3 * PROXIES["sigmoid"].concavity(n_classes)
