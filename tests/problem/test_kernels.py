"""Row kernels: probabilities, losses, gradients, curvatures, tables and proxies."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
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
    proxy_tables,
    reference_loss,
)
from scipy.special import expit, log_softmax, softmax

from gbm_constrained.problem.kernels import (
    CONCAVITIES,
    END,
    KINK,
    BinaryKernel,
    KernelBlock,
    KernelTables,
    RampKernel,
    clip_cap,
    loss_lipschitz,
    rate_lipschitz,
)
from gbm_constrained.solvers import ABPP, CBPR, AutoSolver


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
    BinaryKernel().link(margin, labels, p)
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
    BinaryKernel().link(margin, labels, p)
    codes = np.array([1, 1, 0, 0])
    block = KernelBlock(p, margin, labels, codes, t, clip_cap(clip))
    BinaryKernel().gradient(block, grad, hess)
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
        labels = BinaryKernel().encode(np.full(7, y), np.dtype(dtype))
        wrong = np.empty(7, dtype=dtype)
        BinaryKernel().link(margin, labels, wrong)
        np.testing.assert_allclose(wrong, expit(-labels * margin), rtol=1e-5, atol=1e-37)
        loss = BinaryKernel().loss(wrong, margin, labels)
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


@settings(max_examples=60, deadline=None)
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
    codes, labels = np.array([y]), BinaryKernel().encode(np.array([y]), dtype)

    def at(score, rate=1.0):
        scores = np.array([score], dtype=dtype)
        a, grad, own, hess = (np.empty(1, dtype=dtype) for _ in range(4))
        BinaryKernel().link(scores, labels, a)
        block = KernelBlock(a, scores, labels, codes, t, np.inf)
        value = BinaryKernel().value(block)
        BinaryKernel().gradient(block, grad, own)
        BinaryKernel().gradient(block, grad, hess, rate)
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
        bound = CONCAVITIES["sigmoid"][n_classes > 2]
        assert (curvature >= -bound * spread - 1e-12).all()
        least = min(least, curvature.min())
    assert least < -0.3 * CONCAVITIES["sigmoid"][n_classes > 2]


GRID = np.linspace(-12, 12, 4801)


def at(margin, cost, dtype=np.float64):
    """Value, gradient and Hessian of rows whose only coefficient is the cost of class 1."""
    margin = np.atleast_1d(np.asarray(margin, dtype=dtype))
    costs = np.array([[0.0, cost], [0.0, cost]])
    t = KernelTables(np.zeros((2, 2)), costs, np.zeros(2), np.arange(2), margin.dtype)
    labels = -np.ones_like(margin)
    p, grad, hess = (np.empty_like(margin) for _ in range(3))
    RampKernel().link(margin, labels, p)
    block = KernelBlock(p, margin, labels, np.zeros(margin.size, int), t, np.inf)
    RampKernel().gradient(block, grad, hess)
    return RampKernel().value(block), grad, hess


def bound(margin, reference, cost):
    """Convex bound of the ramp at a reference: the paper's (4), with a ramp of half-width 2."""
    s = np.sign(cost)
    constant, hinge = max(-cost, 0.0), abs(cost) * np.maximum(0.0, 0.5 + s * margin / 4)
    of_negative = hinge - constant  # r(m) = 1 - r(-m)
    return of_negative if s * reference < END else abs(cost) - constant + 0.0 * margin


def test_the_ramp_is_as_steep_at_zero_as_the_probability():
    value, gradient, _ = at([-9, -2, -1, 0, 1, 2, 9], 1.0)
    assert value.tolist() == [0, 0, 0.25, 0.5, 0.75, 1, 1]
    assert gradient.tolist() == [0, 0, 0.25, 0.25, 0.25, 0, 0]
    assert gradient[3] == expit(0.0) * (1 - expit(0.0)) == rate_lipschitz(2)


@settings(max_examples=60, deadline=None)
@given(reference=st.floats(-10, 10), cost=st.floats(0.01, 50), sign=st.sampled_from([-1, 1]))
@example(reference=END, cost=1.0, sign=1)
@example(reference=-END, cost=1.0, sign=-1)
@example(reference=-END, cost=1.0, sign=1)
def test_hessians_are_those_of_parabolas_above_the_bounds_of_the_ramp(reference, cost, sign):
    """Ramp <= convex bound <= parabola, all equal at the reference; tight at the mirrored score.

    Nearer to the lower end than KINK the parabola may be below, by at most a fourth of KINK.
    """
    cost *= sign
    ramp, (value, gradient, hessian) = at(GRID, cost)[0], at(reference, cost)
    convex, rounding = bound(GRID, reference, cost), 1e-12 * abs(cost)
    assert bound(reference, reference, cost) == pytest.approx(value[0], abs=rounding)
    assert (convex >= ramp - rounding).all()
    step = GRID - reference
    parabola = value + gradient * step + hessian * step**2 / 2
    distance = abs(sign * reference + END)
    short = max(KINK - distance, 0.0) / 4 * abs(cost)
    assert (parabola >= convex - short - rounding).all()
    if sign * reference >= END:
        assert hessian[0] == 0.0
    elif distance >= KINK:
        mirrored = -reference - 2 * sign * END
        step = mirrored - reference
        touching = value + gradient * step + hessian * step**2 / 2
        assert touching[0] == pytest.approx(bound(mirrored, reference, cost), abs=100 * rounding)


@pytest.mark.parametrize("cost", [-3.0, 0.4])
def test_gradients_are_those_of_bounds_renewed_at_each_score(cost):
    """Algorithm 1 of the paper with new bounds in every round has the gradient of the ramp."""
    off = GRID[(np.abs(np.abs(GRID) - END) > 1e-3)]
    h = 1e-5
    difference = [(bound(m + h, m, cost) - bound(m - h, m, cost)) / (2 * h) for m in off]
    np.testing.assert_allclose(at(off, cost)[1], difference, atol=1e-9)


def test_no_row_holds_its_leaf():
    """The Hessian of a unit cost is at most 1 / (8 KINK), also at the ramp's lower end."""
    for sign in (-1, 1):
        hessian = at(np.append(GRID, [-END, END]), sign)[2]
        assert np.isfinite(hessian).all()
        assert hessian.max() == pytest.approx(1 / (8 * KINK))


def test_the_concavity_is_that_of_the_ramp_with_rounded_ends():
    """A moving mean over KINK on either side: near the ramp, and attained by its curvature."""
    u = (np.arange(-5000, 5000) + 0.5) * KINK / 5000
    grid = np.linspace(-4, 4, 161)
    rounded = at(np.add.outer(grid, u).ravel(), 1.0)[0].reshape(grid.size, -1).mean(axis=1)
    apart = np.abs(rounded - at(grid, 1.0)[0])
    assert apart.max() == pytest.approx(KINK / 16, rel=1e-3)
    h = grid[1] - grid[0]
    curvature = (rounded[2:] - 2 * rounded[1:-1] + rounded[:-2]) / h**2
    assert -curvature.min() == pytest.approx(CONCAVITIES["ramp"][0], rel=1e-2)


def test_single_precision_has_the_digits_of_double():
    margin = np.random.default_rng(0).normal(scale=3, size=500).astype(np.float32)
    for narrow, wide in zip(at(margin, -1.7, np.float32), at(margin, -1.7), strict=True):
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, wide, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("solver", [ABPP, CBPR, AutoSolver])
def test_the_ramp_is_refused_for_several_classes(solver):
    method = solver(proxy="ramp")
    method.check()
    method.check_classes(2)
    with pytest.raises(ValueError, match=r"proxy='ramp' is .* and y has 3: use proxy='sigmoid'"):
        method.check_classes(3)
    solver(proxy="sigmoid").check_classes(3)
