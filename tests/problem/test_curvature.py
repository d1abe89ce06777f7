"""Bounds of the curvature of row kernels."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_rows import (
    CLASS_COUNTS,
    PARTS,
    Rows,
    full,
    proxy_tables,
)
from scipy.special import softmax

from gbm_constrained.problem.kernels import BinaryKernel, Block, KernelTables


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ramp", [False, True])
def test_the_binary_hessian_bounds_the_second_derivative(ramp, parts, seed):
    rows = Rows(2, parts, seed, ramp=ramp)
    second, hess = rows.hessians(), rows.gradient(rows.margin)[1]
    assert (hess >= np.abs(second) * (1 - 1e-12)).all()
    if parts in ("target", "clipped"):
        np.testing.assert_allclose(hess, second, rtol=1e-12)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("n_classes", [3, 7])
def test_the_softmax_hessian_bounds_each_second_derivative(n_classes, parts):
    """The diagonal of the exact Hessian is below; equal to it for cross-entropies."""
    rows = Rows(n_classes, parts, seed=4)
    second = np.diagonal(rows.hessians(), axis1=1, axis2=2)
    hess = rows.gradient(rows.margin)[1]
    assert (hess >= np.abs(second) * (1 - 1e-12)).all()
    if parts in ("target", "clipped"):
        np.testing.assert_allclose(hess, second, rtol=1e-10)


@settings(max_examples=300, deadline=None)
@given(
    margin=st.floats(-30, 30), step=st.floats(-60, 60), y=st.integers(0, 1),
    target=st.lists(st.floats(0.01, 50), min_size=2, max_size=2), rate=st.floats(0.01, 1),
    narrow=st.booleans(),
)  # fmt: skip
@example(margin=29.0, step=60.0, y=1, target=[1.0, 1.0], rate=1.0, narrow=True)
def test_steps_of_bounded_hessians_do_not_overshoot(margin, step, y, target, rate, narrow):
    """A shrunken step is never worse than none; at rate one a parabola is above the kernel."""
    dtype = np.dtype(np.float32 if narrow else np.float64)
    t = KernelTables(
        np.array([target, target]), np.zeros((2, 2)), np.zeros(2), np.arange(2), dtype
    )
    codes, labels = np.array([y]), BinaryKernel.encode(np.array([y]), dtype)

    def at(score, rate=1.0):
        scores = np.array([score], dtype=dtype)
        a, grad, own, hess = (np.empty(1, dtype=dtype) for _ in range(4))
        BinaryKernel.link(scores, labels, a)
        block = Block(a, scores, labels, codes, t, np.inf)
        value = BinaryKernel.value(block)
        BinaryKernel.gradient(block, grad, own)
        BinaryKernel.gradient(block, grad, hess, rate)
        return float(value[0]), float(grad[0]), float(own[0]), float(hess[0])

    value, slope, own, curvature = at(margin)
    rounding = (
        200 * float(np.finfo(dtype).eps) * (1.0 + sum(target)) * (1.0 + abs(margin) + step**2)
    )
    assert at(margin + step)[0] <= value + slope * step + curvature * step**2 / 2 + rounding
    # No smaller curvature would do: the parabola touches at the mirrored score again.
    there = value - 2 * margin * slope + 2 * curvature * margin**2
    assert at(-margin)[0] == pytest.approx(there, rel=1e-3, abs=1e-2 + rounding)
    shrunken = at(margin, rate)[3]
    assert shrunken >= own * (1 - 1e-3)
    assert shrunken >= rate * curvature * (1 - 1e-3)
    assert shrunken <= max(own, rate * curvature) * (1 + 1e-3)
    if shrunken > 0:
        assert at(margin - rate * slope / shrunken)[0] <= value + rounding * (1 + value)


def gap(rows):
    """Smallest eigenvalue of (diagonal majoriser - exact Hessian) over rows."""
    hess = rows.gradient(rows.margin)[1]
    difference = hess[:, :, None] * np.eye(rows.n_classes) - rows.hessians()
    return np.linalg.eigvalsh(difference).min()


@pytest.mark.parametrize("parts", ["target", "clipped"])
@pytest.mark.parametrize("n_classes", [3, 7])
def test_factor_two_majorises_the_whole_softmax_hessian(n_classes, parts):
    """Eigenvalues of (diagonal - Hessian) are non-negative; with factor one they are not."""
    for seed in range(5):
        assert gap(Rows(n_classes, parts, seed, factor=2.0)) >= -1e-12
    assert gap(Rows(n_classes, parts, 0, factor=1.0)) < -1e-3


@pytest.mark.parametrize("n_classes", [3, 7])
def test_lightgbms_factor_majorises_at_uniform_probabilities_but_not_everywhere(n_classes):
    """K / (K - 1) is the least factor for equal scores, and too small for two rival classes."""
    for factor, sign in [
        (n_classes / (n_classes - 1), 1),
        (0.99 * n_classes / (n_classes - 1), -1),
    ]:
        rows = Rows(n_classes, "target", factor=factor)
        rows.margin[...] = 0.0
        assert sign * (gap(rows) + 1e-9) > 0
    rows = Rows(n_classes, "target", factor=n_classes / (n_classes - 1))
    rows.margin[:, 2:] = -20.0
    rows.margin[:, :2] = 0.0
    assert gap(rows) < -1e-3


@pytest.mark.parametrize(
    ("n_classes", "proxy"), [*product(CLASS_COUNTS, ["logistic", "sigmoid"]), (2, "ramp")]
)
def test_newton_steps_of_a_proxy_are_bounded(n_classes, proxy):
    """|gradient| / Hessian of a pure rate is at most 1 / p or 1 / (1 - p); 2 by the sigmoid.

    It is 8 by the ramp, twice its width: a step mirrors a row at the ramp's lower end.

    With |Q_k - Q_p| <= range(Q) (1 - p_k) and the same of q, its gradient is at most
    range(Q) (p (1 - p) / 2 + q (1 - q) / 4), and its Hessian has an 8 where that has a 4.
    """
    rng = np.random.default_rng(5)
    rows = Rows(n_classes, seed=5, ramp=proxy == "ramp")
    target, cost = proxy_tables(rng.random((2 * n_classes, n_classes)), proxy)
    zeros = np.zeros(2 * n_classes)
    rows.tables = KernelTables(target, cost, zeros, rows.tables.cell_labels, np.dtype(float))
    grad, hess = rows.gradient(rows.margin)
    p = softmax(full(rows.margin), axis=1)
    largest = 1 / p.min(axis=1) if n_classes == 2 else 1 / np.minimum(p, 1 - p)
    if proxy != "ramp":
        assert (np.abs(grad) <= hess * largest * (1 + 1e-12)).all()
    if proxy != "logistic":
        most = {"sigmoid": 2, "ramp": 8}[proxy]
        assert (np.abs(grad) <= most * hess * (1 + 1e-12)).all()
