"""Rows as kernels see them: weights, buffers, blocks, and mean residuals of bins."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pytest
from counted_data import random
from hypothesis import given
from hypothesis import strategies as st
from lagrangians import (
    CASES,
    CLASS_COUNTS,
    CLIP,
    DTYPES,
    N,
    build,
    draw,
    keep_off_the_kinks,
    kinds,
    log_probability,
    proxies_of,
    sixty_four,
    spread_over_views,
    state,
)
from scipy.special import expit, logit
from sklearn.calibration import calibration_curve

import gbm_constrained as gc
from gbm_constrained import calibration_error, each, gap
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.rows import BLOCK, MIN_ROWS, count_threads


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
def test_scores_of_a_thousand(n_classes, dtype, proxy):
    """Statistics are exact, everything else is finite, and nothing warns."""
    y, margin, weight, masks = draw(n_classes)
    margin = (1e3 * np.sign(margin)).astype(dtype)
    constraints = kinds(n_classes, masks)["several"]
    lag = build(y, constraints, weight=weight, proxy=proxy, dtype=dtype)
    multipliers = np.ones(len(constraints))
    point = lag.at(margin)
    statistics = point.statistics()
    loss = -log_probability(margin.astype(float))[np.arange(N), y]
    expected = [
        weight[rows] @ loss[rows] / weight[rows].sum()
        for rows in (lag.cells.codes == c for c in range(len(lag.cells)))
        if rows.any()
    ]
    occupied = np.bincount(lag.cells.codes, minlength=len(lag.cells)) > 0
    tolerance = 1e-6 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(statistics.loss[occupied], expected, rtol=tolerance, atol=tolerance)
    anchor = np.zeros_like(margin)
    assert np.isfinite(point.value(multipliers, anchor, 0.1))
    grad, hess = point.gradient(multipliers, anchor, 0.1)
    assert np.isfinite(grad).all()
    assert np.isfinite(hess).all()
    assert (hess >= 0).all()
    assert np.isfinite(point.hessian_product(multipliers, margin, 0.1)).all()


@pytest.mark.parametrize("clip", [None, CLIP])
@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
def test_single_and_double_precision_agree(n_classes, proxy, clip):
    y, margin, weight, masks = draw(n_classes, n=500)
    margin = keep_off_the_kinks(y, margin).astype(np.float32)
    constraints = kinds(n_classes, masks)["several"]
    multipliers = np.linspace(0.1, 1, len(constraints))
    single, double = (
        state(build(y, constraints, weight=weight, proxy=proxy, outlier_clip=clip, dtype=dtype),
              margin.astype(dtype), multipliers, np.ones_like(margin, dtype))
        for dtype in DTYPES
    )  # fmt: skip
    np.testing.assert_allclose(single[0], double[0], rtol=2e-6)
    assert single[1].dtype == single[2].dtype == np.float32
    scale = np.abs(double[1]).max()
    np.testing.assert_allclose(single[1], double[1], rtol=1e-4, atol=1e-6 * scale)
    np.testing.assert_allclose(single[2], double[2], rtol=1e-4, atol=1e-6 * scale)


@pytest.mark.parametrize(("n_classes", "scores"), [(2, "equal"), (3, "varied")])
def test_statistics_of_a_million_rows_in_single_precision(n_classes, scores):
    """Relative error below 1e-6, also where all rows are alike and rounding has a direction."""
    n = 1_000_000
    rng = np.random.default_rng(8)
    y = rng.integers(0, n_classes, n)
    shape = (n,) if n_classes == 2 else (n, n_classes)
    margin = np.full(shape, 1.7, np.float32) if scores == "equal" else (
        3 * rng.standard_normal(shape, np.float32)
    )  # fmt: skip
    single, double = (
        build(y, dtype=dtype, outlier_clip=2.0).at(margin.astype(dtype)).statistics()
        for dtype in DTYPES
    )
    np.testing.assert_allclose(single.loss, double.loss, rtol=1e-6)
    np.testing.assert_allclose(single.clipped_loss, double.clipped_loss, rtol=1e-6)
    assert np.array_equal(single.predicted, double.predicted)


@pytest.mark.parametrize("n_views", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_weighted_shares_end_at_one_in_single_precision(dtype, n_views):
    """Where all rows of a cell are decided alike, also after the kernels became narrower."""
    y, _, _, masks = draw(2, 5000)
    columns, selectors = ({}, masks) if n_views == 1 else spread_over_views(masks)
    weight = 3.3**y * np.random.default_rng(9).random(5000)
    rules = [gc.error_rate(on=chosen) <= 0.1 for chosen in selectors]
    lagrangian = build(
        y, rules, weight=weight, columns=columns, dtype=dtype, gradient_dtype=np.float32
    )
    assert len(lagrangian.cells.views) == n_views
    right = np.where(y == 1, 2.0, -2.0).astype(dtype)
    for margin in (-right, right, -right):
        expected = lagrangian.at(margin).statistics().predicted
        assert np.abs(expected - expected.round()).max() < 1e-13
        lagrangian.narrow()
        found = lagrangian.at(margin.astype(np.float32)).statistics().predicted
        assert np.abs(found - expected.round()).max() < 1e-13


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_gradients_of_another_type_are_those_of_the_kernel_rounded_once(n_classes):
    """float32 out of float64 kernels, as LightGBM takes them."""
    y, margin, weight, masks = draw(n_classes)
    constraints = kinds(n_classes, masks)["several"]
    at = np.ones(len(constraints)), np.zeros_like(margin), 0.3
    double = build(y, constraints, weight=weight).at(margin).gradient(*at)
    mixed = (
        build(y, constraints, weight=weight, gradient_dtype=np.float32).at(margin).gradient(*at)
    )
    for exact, rounded in zip(double, mixed, strict=True):
        assert rounded.dtype == np.float32
        assert np.array_equal(rounded, exact.astype(np.float32))


@pytest.mark.parametrize("proxy", proxies_of(3))
def test_fortran_order_changes_the_layout_alone(proxy):
    """Scores and gradients class by class in memory, as LightGBM has them."""
    y, margin, weight, masks = draw(3)
    constraints = kinds(3, masks)["several"]
    at = np.ones(len(constraints)), np.zeros((N, 3)), 0.3
    c = build(y, constraints, weight=weight, proxy=proxy)
    f = build(y, constraints, weight=weight, proxy=proxy, order="F")
    rows = c.at(margin)
    columns = f.at(np.asfortranarray(margin))
    assert all(g.flags.f_contiguous for g in columns.gradient(*at))
    np.testing.assert_allclose(columns.gradient(*at), rows.gradient(*at), rtol=1e-12, atol=1e-14)
    assert columns.value(*at) == pytest.approx(rows.value(*at), rel=1e-13)
    np.testing.assert_allclose(columns.statistics().loss, rows.statistics().loss, rtol=1e-13)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_blocks_of_rows_are_seamless(n_classes):
    """Rows repeated over several blocks have the derivatives of the rows in one block."""
    y, margin, weight, masks = draw(n_classes)
    repeats = 2 * BLOCK // N + 1
    constraints = kinds(n_classes, masks)["several"]
    multipliers = np.ones(len(constraints))
    one = build(y, constraints, weight=weight, outlier_clip=CLIP)
    tiled = np.tile(margin, repeats if n_classes == 2 else (repeats, 1))
    constraints = kinds(n_classes, np.tile(masks, repeats))["several"]
    several = build(
        np.tile(y, repeats), constraints, weight=np.tile(weight, repeats), outlier_clip=CLIP
    )
    numbers, *derivatives = state(one, margin, multipliers, 0 * margin)
    found, *repeated = state(several, tiled, multipliers, 0 * tiled)
    numbers[3] *= repeats  # the total weight
    np.testing.assert_allclose(found, numbers, rtol=1e-12)
    derivatives.append(one.at(margin).hessian_product(multipliers, np.ones_like(margin), 0.2))
    repeated.append(several.at(tiled).hessian_product(multipliers, np.ones_like(tiled), 0.2))
    for expected, of_all in zip(derivatives, repeated, strict=True):
        parts = of_all.reshape(repeats, *expected.shape)
        np.testing.assert_allclose(parts, np.broadcast_to(expected, parts.shape), rtol=1e-10)


@pytest.mark.parametrize(("n_classes", "weighted"), [(2, False), (3, True)])
def test_no_array_of_rows_times_constraints(n_classes, weighted):
    """64 constraints: a round allocates a few vectors of one number per row, and blocks."""
    n = 400_000
    rng = np.random.default_rng(14)
    y = rng.integers(0, n_classes, n)
    masks = rng.random((2, n)) < 0.5
    constraints = sixty_four(masks, n_classes)
    weight = rng.gamma(2.0, size=n) if weighted else None
    lag = build(y, constraints, weight=weight)
    margin = rng.normal(size=n if n_classes == 2 else (n, n_classes))
    anchor, multipliers = np.zeros_like(margin), np.ones(64)
    lag.at(margin).statistics()  # cell codes are packed on first use
    tracemalloc.start()
    try:
        point = lag.at(margin)
        point.statistics()
        point.gradient(multipliers, anchor, 0.1)
        point.value(multipliers, anchor, 0.1)
        lag.bregman(margin, anchor)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 8 * n


@pytest.mark.parametrize(("n_classes", "kind"), [(2, "mixed"), (3, "several")])
def test_threads_change_no_bit(n_classes, kind):
    """Statistics, values, gradients and distances of weighted rows in several blocks."""
    rng = np.random.default_rng(n_classes)
    n = MIN_ROWS
    y = rng.integers(0, n_classes, n)
    margin = rng.normal(size=n if n_classes == 2 else (n, n_classes)).astype(np.float32)
    weight, masks = rng.gamma(2.0, size=n), rng.random((2, n)) < 0.5
    rules = kinds(n_classes, masks)[kind]
    one, two = (
        build(y, rules, weight=weight, dtype=np.float32, n_threads=threads) for threads in (1, 3)
    )
    assert (one.rows.n_threads, two.rows.n_threads) == (1, 3)
    multipliers = np.linspace(0.5, 2.0, len(one.constraints))
    a, b = one.at(margin), two.at(margin)
    for name, values in vars(a.statistics()).items():
        np.testing.assert_array_equal(values, getattr(b.statistics(), name))
    assert a.value(multipliers) == b.value(multipliers)
    assert one.bregman(margin, margin[::-1]) == two.bregman(margin, margin[::-1])
    pairs = zip(*(point.gradient(multipliers, margin, 0.3) for point in (a, b)), strict=True)
    for x, z in pairs:
        np.testing.assert_array_equal(x, z)


def test_few_rows_stay_in_one_thread():
    y = np.arange(1000) % 2
    assert build(y, [], n_threads=4).rows.n_threads == 1


def test_threads_are_half_of_those_of_the_library():
    """``n_jobs`` of zero or None is every core, and minus one as well."""
    half = max(len(os.sched_getaffinity(0)) // 2, 1)
    assert count_threads(None) == count_threads(0) == count_threads(-1) == half
    assert count_threads(1) == count_threads(2) == 1
    assert count_threads(10_000) == half
    assert count_threads(-10_000) == 1


def test_results_of_threads_are_in_the_order_of_rows():
    rows = build(np.arange(MIN_ROWS) % 2, [], n_threads=3).rows
    for are_summed in (True, False):
        found = rows.map_blocks(lambda part: part, are_summed=are_summed)
        assert [0, *(part.stop for part in found)][:-1] == [part.start for part in found]
        assert found[-1].stop == MIN_ROWS


def test_an_error_of_a_thread_reaches_the_caller():
    rows = build(np.arange(MIN_ROWS) % 2, [], n_threads=2).rows
    with pytest.raises(ZeroDivisionError):
        rows.map_blocks(lambda part: 1 / part.start)


SMALL = {"min_group_size": 1}


def draw_calibration(seed, n=60, *, weighted=True):
    rng = np.random.default_rng(seed)
    y, margin = rng.integers(0, 2, n), rng.normal(size=n) * 2.0
    y[:2] = 0, 1
    columns = {"sex": np.concatenate([["F", "F"], rng.choice(["F", "M"], n - 2)])}
    return y, margin, rng.gamma(2.0, size=n) if weighted else None, columns


def error_by_rows(y, p, weight, bins):
    """Add up the residuals of each bin, one row after the other."""
    sums = np.zeros(bins)
    for label, probability, w in zip(y, p, weight, strict=True):
        above = [k for k in range(bins) if probability > np.linspace(0.0, 1.0, bins + 1)[k]]
        sums[max(above, default=0)] += w * (label - probability)
    return np.abs(sums).sum() / weight.sum()


@random(6)
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_errors_are_those_of_sums_over_rows(seed, bins):
    y, margin, weight, columns = draw_calibration(seed)
    error = calibration_error(bins=bins)
    rules = [
        error <= 0.1,
        calibration_error(bins=bins, on={"sex": "F"}) <= 0.1,
        each(error, by="sex", **SMALL) <= 0.1,
        gap(error, by="sex", **SMALL) <= 0.1,
        gap(error, by="sex", reference=gc.overall, **SMALL) <= 0.1,
        gc.fpr() <= 0.1,
    ]
    lagrangian = build(y, rules, weight=weight, columns=columns)
    functionals = lagrangian.constraints.functionals(lagrangian.at(margin).statistics())
    found = lagrangian.constraints.values(functionals)
    p = expit(margin)
    whole = error_by_rows(y, p, weight, bins)
    groups = [
        error_by_rows(y[at], p[at], weight[at], bins)
        for at in (columns["sex"] == g for g in np.unique(columns["sex"]))
    ]
    expected = [
        whole,
        groups[0],
        max(groups),
        np.ptp(groups),
        np.abs(np.array(groups) - whole).max(),
    ]
    np.testing.assert_allclose(found[:-1], expected, rtol=0, atol=1e-12)


def test_bins_are_those_of_scikit_learn():
    """Probabilities on the edges are in the lower bin."""
    y, margin, *_ = draw_calibration(3, 400, weighted=False)
    p = np.r_[np.linspace(0.1, 0.9, 9), np.round(expit(margin), 2)[9:]]
    positive, mean = calibration_curve(y, p, n_bins=10, strategy="uniform")
    bins = np.searchsorted(np.linspace(0, 1, 11)[1:-1], p)
    expected = (np.unique(bins, return_counts=True)[1] * np.abs(positive - mean)).sum() / y.size
    lagrangian = build(y, [calibration_error() <= 0.1])
    tables = lagrangian.rows.residuals.tables(p)
    found = np.abs(lagrangian.constraints.tables["residuals"] @ tables).sum()
    assert found == pytest.approx(expected, abs=1e-12)


def far_from_edges(margin, bins):
    """Move scores away from the edges of bins, over which residuals jump."""
    edges = np.linspace(0.0, 1.0, bins + 1)[1:-1]
    near = np.abs(margin[:, None] - logit(edges)).min(axis=1) < 1e-3
    return np.where(near, margin + 3e-3, margin)


@random(4)
@given(st.integers(0, 10_000))
def test_gradients_and_products_against_finite_differences(seed):
    y, margin, weight, columns = draw_calibration(seed, 30)
    rules = [
        calibration_error(bins=4) <= 0.1,
        gap(calibration_error(bins=3), by="sex", **SMALL) <= 0.1,
        gc.log_loss() <= 0.1,
    ]
    factor = np.array([1.0, 3.0])  # Weights of classes are in the objective alone.
    lagrangian = build(y, rules, weight=weight, columns=columns, factor=factor)
    margin = far_from_edges(far_from_edges(margin, 4), 3)
    rng = np.random.default_rng(seed)
    multipliers = rng.random(len(lagrangian.constraints))
    total, step = lagrangian.total_weight, 1e-5
    gradient = lagrangian.at(margin).gradient(multipliers)[0].copy()
    u = rng.normal(size=margin.size)
    product = lagrangian.at(margin).hessian_product(multipliers, u).copy()
    slopes = []
    for i in range(margin.size):
        ends = [margin + sign * step * np.eye(margin.size)[i] for sign in (1, -1)]
        high, low = (lagrangian.at(end).value(multipliers) for end in ends)
        slopes.append((high - low) / (2 * step))
    np.testing.assert_allclose(gradient / total, slopes, atol=1e-6)
    ends = [margin + sign * step * u for sign in (1, -1)]
    high, low = (lagrangian.at(end).gradient(multipliers)[0].copy() for end in ends)
    np.testing.assert_allclose(product / total, (high - low) / (2 * step) / total, atol=1e-6)


def test_the_tangent_of_an_error_has_its_gradient():
    """Moving scores a little moves the error by what its directions say."""
    y, margin, weight, columns = draw_calibration(5)
    rules = [gap(calibration_error(), by="sex", **SMALL) <= 0.1]
    lagrangian = build(y, rules, weight=weight, columns=columns)
    compiled, margin = lagrangian.constraints, far_from_edges(margin, 10)
    curve = compiled.curves.items[0]

    def value(scores):
        return compiled.curves.values(compiled.functionals(lagrangian.at(scores).statistics()))[0]

    functionals = compiled.functionals(lagrangian.at(margin).statistics())
    multipliers = np.zeros(len(compiled))
    multipliers[curve.rows] = compiled.curves.derivatives(functionals)[curve.rows]
    plain = lagrangian.at(margin).gradient(np.zeros(len(compiled)))[0].copy()
    slope = lagrangian.at(margin).gradient(multipliers)[0] - plain
    u = np.random.default_rng(0).normal(size=margin.size)
    moved = (value(margin + 1e-6 * u) - value(margin - 1e-6 * u)) / 2e-6
    assert slope @ u / lagrangian.total_weight == pytest.approx(moved, abs=1e-6)


def test_cells_that_are_left_out_have_no_part():
    y, *_, columns = draw_calibration(6, weighted=False)
    rules = [each(calibration_error(bins=3), by="sex", **SMALL) <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2), columns=columns))
    some = np.flatnonzero((columns["sex"] == "F") & (y == 1))
    left = compiled.on(cells.take(some))
    rates = left.tables["residuals"].toarray()[:3]
    np.testing.assert_allclose(rates.sum(axis=1), 1.0)
    assert np.isnan(left.constant[3:]).all()
    assert not left.curves.items[0].first
    assert len(left.curves.items) == 1


def test_more_than_two_classes_are_refused():
    with pytest.raises(ValueError, match=r"y has 3 classes: bound log_loss\(\)"):
        build(np.arange(30) % 3, [calibration_error() <= 0.1])


def test_dual_steps_take_the_constant_of_all_bins_together():
    """Probabilities are 1/4 steep, in whichever bins they are and however signs average."""
    y, _, weight, columns = draw_calibration(7)
    rules = [calibration_error(bins=3) <= 0.1, gc.fpr() <= 0.1]
    lagrangian = build(y, rules, weight=weight, columns=columns)
    before = np.full(len(lagrangian.constraints), 7.0)
    for derivatives in (np.zeros_like(before), np.ones_like(before)):
        found = lagrangian.constants.curve_lipschitz(before, derivatives)
        np.testing.assert_allclose(found, [0.25] * 6 + [7.0])


def test_prices_are_those_of_bins_that_still_have_residuals():
    """A start at constant scores has one bin, while multipliers are of all."""
    y, *_ = draw_calibration(8)
    curves = build(y, [calibration_error(bins=3) <= 0.1]).constraints.curves
    up = np.array([1.0, 0.0] * 3)
    now = np.array([0.0, 0.0, 0.8, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(curves.prices(5.0 * up, up), 5.0)
    np.testing.assert_allclose(curves.prices(5.0 * up, now), 5.0 / 0.8)
    np.testing.assert_allclose(curves.prices(5.0 * up, 1.0 - up), 0.0)
