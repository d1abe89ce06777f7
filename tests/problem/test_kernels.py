"""Row kernels: probabilities, losses, gradients and tables."""

import numpy as np
import pytest
from kernel_rows import (
    CAP,
    CLASS_COUNTS,
    DTYPES,
    KERNELS,
    PARTS,
    N,
    Rows,
    chosen,
    full,
    reference_loss,
)
from scipy.special import expit, log_softmax, softmax

from gbm_constrained.problem.kernels import BinaryKernel, Block, KernelTables, clip_cap


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_probabilities_are_those_of_scipy(n_classes, dtype):
    rows = Rows(n_classes, dtype=dtype)
    p = rows.probability(rows.margin)
    scores = rows.margin.astype(np.float64)
    expected = (
        expit(np.where(rows.y == 1, -1, 1) * scores) if n_classes == 2 else softmax(scores, 1)
    )
    np.testing.assert_allclose(p, expected, rtol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_probability_of_being_wrong_keeps_its_digits_where_the_model_is_right(dtype):
    """sigmoid(-s m) is computed as such, never as 1 - p."""
    margin = np.array([20, -20, 50, -50], dtype=dtype)
    labels = np.array([1, -1, 1, -1], dtype=dtype)
    p = np.empty_like(margin)
    BinaryKernel.link(margin, labels, p)
    np.testing.assert_allclose(p, expit([-20, -20, -50, -50]), rtol=10 * np.finfo(dtype).eps)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3, 3e4])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_losses_are_cross_entropies_at_any_scores(n_classes, dtype, scale):
    """Relative error of a few ulp (absolute for losses near zero), never negative."""
    rows = Rows(n_classes, dtype=dtype)
    margin = rows.margin * dtype(scale)
    margin[0] = scale * np.arange(n_classes) if n_classes > 2 else scale
    margin[1] = -scale * np.arange(n_classes) if n_classes > 2 else -scale
    loss = rows.kernel.loss(rows.probability(margin), margin, rows.labels)
    eps = 8 * np.finfo(dtype).eps
    np.testing.assert_allclose(loss, reference_loss(margin, rows.y), rtol=eps, atol=eps)
    assert (loss >= 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_common_shift_of_all_scores_costs_no_digits(dtype):
    """Scores near 4096 that differ by little have the losses of the differences."""
    rows = Rows(3, dtype=dtype)
    margin = np.round(rows.margin * 256) / 256
    shifted = margin + dtype(4096)
    assert (shifted - 4096 == margin).all()
    losses = [rows.kernel.loss(rows.probability(x), x, rows.labels) for x in (margin, shifted)]
    np.testing.assert_array_equal(*losses)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n_classes", "ramp"), KERNELS)
def test_extreme_scores_give_finite_kernels(n_classes, ramp, dtype):
    """Scores of a thousand: values are those of the formula, gradients and curvatures finite."""
    rows = Rows(n_classes, dtype=dtype, ramp=ramp)
    margin = np.sign(rows.margin) * dtype(1e3)
    t = rows.tables
    log_p = log_softmax(full(margin.astype(np.float64)), axis=1)
    expected = (t.cost[rows.codes] * chosen(margin, ramp) - t.target[rows.codes] * log_p).sum(1)
    expected += t.clipped[rows.codes] * np.minimum(reference_loss(margin, rows.y), CAP)
    np.testing.assert_allclose(rows.value(margin), expected, rtol=20 * np.finfo(dtype).eps)
    grad, hess = rows.gradient(margin)
    assert np.isfinite(grad).all()
    assert (hess >= 0).all()
    assert np.isfinite(hess).all()
    assert np.isfinite(rows.product(margin, np.ones_like(margin))).all()


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize(("n_classes", "ramp"), KERNELS)
def test_values_are_those_of_the_formula(n_classes, ramp, parts):
    """Sum of T (-log p) + Q (p + q) / 2, or Q times a ramp, + clipped loss, from scipy."""
    rows = Rows(n_classes, parts, ramp=ramp)
    t, log_p = rows.tables, log_softmax(full(rows.margin), axis=1)
    of_cost = t.cost[rows.codes] * chosen(rows.margin, ramp)
    expected = (of_cost - t.target[rows.codes] * log_p).sum(1)
    expected += t.clipped[rows.codes] * np.minimum(-log_p[np.arange(N), rows.y], CAP)
    np.testing.assert_allclose(rows.value(rows.margin), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize(("n_classes", "ramp"), KERNELS)
def test_gradients_are_central_differences_of_values(n_classes, ramp, parts):
    rows, h = Rows(n_classes, parts, seed=1, ramp=ramp), 1e-5
    differences = [
        (rows.value(rows.margin + h * u) - rows.value(rows.margin - h * u)) / (2 * h)
        for u in rows.directions()
    ]
    expected = differences[0] if n_classes == 2 else np.stack(differences, axis=1)
    np.testing.assert_allclose(rows.gradient(rows.margin)[0], expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize(("n_classes", "ramp"), KERNELS)
def test_hessian_products_are_central_differences_of_gradients(n_classes, ramp, parts):
    rows, h = Rows(n_classes, parts, seed=2, ramp=ramp), 1e-5
    u = np.random.default_rng(2).normal(size=rows.margin.shape)
    up, down = (rows.gradient(rows.margin + d * u)[0].copy() for d in (h, -h))
    expected = (up - down) / (2 * h)
    np.testing.assert_allclose(rows.product(rows.margin, u), expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_beyond_the_cap_a_clipped_loss_pulls_no_more(n_classes):
    """Rows on both sides of the cap: gradient of the loss itself, or nothing."""
    rows = Rows(n_classes, "clipped", seed=3)
    free = reference_loss(rows.margin, rows.y) < CAP
    assert 0 < free.sum() < N
    grad, hess = rows.gradient(rows.margin)
    assert not grad[~free].any()
    assert not hess[~free].any()
    p = softmax(full(rows.margin), axis=1)
    expected = (p - np.eye(n_classes)[rows.y]) * rows.tables.clipped[rows.codes, None]
    found = grad if n_classes > 2 else np.stack([-grad, grad], axis=1)
    np.testing.assert_allclose(found[free], expected[free], rtol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("clip", [7.0, 20.0, 30.0, 60.0])
def test_a_far_cap_lets_rows_pull_up_to_it(dtype, clip):
    """Hopeless rows, whose probability of being wrong rounds to one, still pull below the cap."""
    margin = np.array([-0.99, -1.01, 0.99, 1.01], dtype=dtype) * dtype(clip)
    labels = np.array([1, 1, -1, -1], dtype=dtype)
    t = KernelTables(np.zeros((2, 2)), np.zeros((2, 2)), np.ones(2), np.arange(2), np.dtype(dtype))
    p, grad, hess = (np.empty_like(margin) for _ in range(3))
    BinaryKernel.link(margin, labels, p)
    codes = np.array([1, 1, 0, 0])
    block = Block(p, margin, labels, codes, t, clip_cap(clip))
    BinaryKernel.gradient(block, grad, hess)
    np.testing.assert_allclose(grad, [-1, 0, 1, 0], atol=2e-3)


def test_the_cap_is_the_loss_at_the_clip():
    assert clip_cap(None) == np.inf
    assert clip_cap(0.0) == pytest.approx(np.log(2))
    assert clip_cap(30.0) == pytest.approx(-np.log(expit(-30.0)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_of_any_size_have_probabilities(dtype):
    """Also where the exponential is no longer a number: without a warning, and finite."""
    margin = np.array([-1e30, -800, -89, 0, 89, 800, 1e30], dtype=dtype)
    for y in (0, 1):
        labels = BinaryKernel.encode(np.full(7, y), np.dtype(dtype))
        wrong = np.empty(7, dtype=dtype)
        BinaryKernel.link(margin, labels, wrong)
        np.testing.assert_allclose(wrong, expit(-labels * margin), rtol=1e-5, atol=1e-37)
        loss = BinaryKernel.loss(wrong, margin, labels)
        np.testing.assert_allclose(loss, np.logaddexp(0.0, -labels * margin), rtol=1e-5, atol=1e-7)


def test_tables_that_agree_are_one_number():
    """Cells with equal coefficients need no look-up; the values are the same."""
    equal = np.array([2.0, 2.0])
    t = KernelTables(np.ones((2, 2)), np.zeros((2, 2)), equal, np.arange(2), np.dtype(np.float32))
    codes = np.array([0, 1, 1])
    assert t.rows(equal, codes).shape == ()
    assert t.rows(equal, codes).dtype == np.float32
    assert t.rows(np.array([2.0, 3.0]), codes).tolist() == [2.0, 3.0, 3.0]
    assert t.rows(np.eye(2), codes).tolist() == [[1, 0], [0, 1], [0, 1]]


@pytest.mark.parametrize(("n_classes", "ramp"), KERNELS)
def test_cells_that_agree_give_the_gradient_of_cells_that_do_not(n_classes, ramp):
    """The short cut for equal coefficients changes no result beyond rounding."""
    rows = Rows(n_classes, seed=10, ramp=ramp)
    t = rows.tables
    cells = np.arange(2 * n_classes)
    target = np.full_like(t.target, 0.7)
    target[cells, t.cell_labels] = 1.9
    results = []
    for nudge in (0.0, 1e-13):
        clipped = np.full(2 * n_classes, 0.4)
        clipped[0] += nudge
        table = target.copy()
        table[0] += nudge
        cost = np.tile(np.arange(float(n_classes)), (2 * n_classes, 1))
        cost[0, 0] -= nudge
        rows.tables = KernelTables(table, cost, clipped, t.cell_labels, np.dtype(float))
        grad, hess = rows.gradient(rows.margin)
        results.append((grad, hess, rows.product(rows.margin, np.ones_like(grad))))
    for short, long in zip(*results, strict=True):
        np.testing.assert_allclose(short, long, rtol=1e-9, atol=1e-11)
