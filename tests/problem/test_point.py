"""Derivatives of the Lagrangian at fixed scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lagrangians import (
    CASES,
    CLASS_COUNTS,
    CLIP,
    KINDS,
    N,
    build,
    draw,
    keep_off_the_kinks,
    kinds,
    log_probability,
    proxies_of,
)
from scipy.special import expit

import gbm_constrained as gc


def differences(function, margin, h=1e-5):
    """Central differences of a scalar function, one score at a time."""
    result = np.empty_like(margin)
    for at in np.ndindex(margin.shape):
        step = np.zeros_like(margin)
        step[at] = h
        result[at] = (function(margin + step) - function(margin - step)) / (2 * h)
    return result


@pytest.mark.parametrize("clip", [None, CLIP])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
def test_derivatives_are_central_differences(n_classes, kind, proxy, clip):
    """Gradient / W of the value, and Hessian products of the gradient; weights, class factors."""
    y, margin, weight, masks = draw(n_classes, n=20)
    keep_off_the_kinks(y, margin)
    constraints = kinds(n_classes, masks)[kind]
    rng = np.random.default_rng(1)
    lag = build(y, constraints, weight=weight, factor=rng.gamma(2.0, size=n_classes), proxy=proxy,
                outlier_clip=clip)  # fmt: skip
    multipliers = rng.gamma(1.0, size=len(constraints))
    anchor, u = rng.normal(size=(2, *margin.shape))
    at = (multipliers, anchor, 0.7)

    grad = lag.at(margin).gradient(*at)[0].copy()
    expected = differences(lambda x: lag.at(x).value(*at), margin)
    np.testing.assert_allclose(grad / lag.total_weight, expected, rtol=1e-6, atol=1e-8)

    h = 1e-5
    up, down = (lag.at(margin + d * u).gradient(*at)[0].copy() for d in (h, -h))
    product = lag.at(margin).hessian_product(multipliers, u, 0.7)
    np.testing.assert_allclose(product, (up - down) / (2 * h), rtol=1e-6, atol=1e-7)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    st.sampled_from(CASES),
    st.sampled_from(KINDS),
    st.sampled_from([None, CLIP]),
    st.lists(st.floats(0, 20), min_size=7, max_size=7),
    st.floats(0, 10),
    st.floats(0.01, 5),
    st.integers(0, 10**6),
)
def test_derivatives_along_random_directions(
    case, kind, clip, multipliers, inverse_tau, scale, seed
):
    """The same for any multipliers, step size and scale of the scores."""
    n_classes, proxy = case
    y, margin, weight, masks = draw(n_classes, seed=seed)
    margin = keep_off_the_kinks(y, scale * margin)
    constraints = kinds(n_classes, masks)[kind]
    lag = build(y, constraints, weight=weight, proxy=proxy, outlier_clip=clip)
    multipliers = np.array(multipliers[: len(constraints)])
    anchor, u = np.random.default_rng(seed).uniform(-1, 1, size=(2, *margin.shape))
    at, h = (multipliers, anchor, inverse_tau), 1e-4
    size = 1 + multipliers.sum() + inverse_tau
    slope = (lag.at(margin + h * u).value(*at) - lag.at(margin - h * u).value(*at)) / (2 * h)
    found = np.vdot(lag.at(margin).gradient(*at)[0], u) / lag.total_weight
    assert abs(slope - found) <= 1e-6 * size
    h = 1e-5
    up, down = (lag.at(margin + d * u).gradient(*at)[0].copy() for d in (h, -h))
    product = lag.at(margin).hessian_product(multipliers, u, inverse_tau)
    largest = np.abs(product).max()
    np.testing.assert_allclose(product, (up - down) / (2 * h), atol=1e-6 * (1 + largest + size))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
def test_hessians_bound_the_second_derivatives(n_classes, kind, proxy):
    """In each score, with the proximal term; exact for binary rows when the problem is convex."""
    y, margin, weight, masks = draw(n_classes)
    constraints = kinds(n_classes, masks)[kind]
    lag = build(y, constraints, weight=weight, proxy=proxy)
    multipliers = np.random.default_rng(2).gamma(1.0, size=len(constraints))
    point = lag.at(margin)
    hess = point.gradient(multipliers, margin, 0.3)[1]
    second = np.empty_like(margin)
    for k in range(1 if n_classes == 2 else n_classes):
        u = np.zeros_like(margin)
        u.reshape(N, -1)[:, k] = 1.0
        product = point.hessian_product(multipliers, u, 0.3)
        second.reshape(N, -1)[:, k] = product.reshape(N, -1)[:, k]
    assert (hess >= np.abs(second) * (1 - 1e-10)).all()
    convex = kind in ("none", "loss") or proxy == "logistic"
    if convex or (proxy == "auto" and kind != "mixed"):
        np.testing.assert_allclose(hess, second, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
@pytest.mark.parametrize("clip", [None, CLIP])
def test_hessians_are_bounded_of_convex_problems_with_a_binary_margin(
    n_classes, kind, proxy, clip
):
    """Everywhere else the Hessian stays; the gradient does so, too, and the proximal term."""
    y, margin, weight, masks = draw(n_classes)
    constraints = kinds(n_classes, masks)[kind]
    lag = build(y, constraints, weight=weight, proxy=proxy, outlier_clip=clip)
    multipliers = np.random.default_rng(2).gamma(1.0, size=len(constraints))
    point = lag.at(margin)
    grad, own = (x.copy() for x in point.gradient(multipliers, None, 0.3))
    found, bound = point.gradient(multipliers, None, 0.3, learning_rate=0.7)
    np.testing.assert_array_equal(found, grad)
    _, has_cost, has_clipped = lag.coefficients.tables(multipliers).parts
    if n_classes > 2 or has_cost or has_clipped:
        np.testing.assert_array_equal(bound, own)
        return
    w = weight * 0.3
    p = expit(margin)
    expected = (own - w) * np.maximum(0.7 * (p - 0.5) / margin / (p * (1 - p)), 1.0) + w
    np.testing.assert_allclose(bound, expected, rtol=1e-9, atol=1e-12)
    assert (bound[weight > 0] > own[weight > 0]).any()


@pytest.mark.parametrize("n_classes", [3, 7])
def test_factor_two_majorises_each_rows_hessian(n_classes):
    """Of a logistic-proxy Lagrangian: diagonal minus Hessian has no negative eigenvalue."""
    y, margin, weight, masks = draw(n_classes)
    weight[:] = np.maximum(weight, 0.1)
    constraints = kinds(n_classes, masks)["several"]
    lag = build(y, constraints, weight=weight, proxy="logistic", majoriser_factor=2.0)
    multipliers = np.random.default_rng(3).gamma(1.0, size=len(constraints))
    point = lag.at(margin)
    hess = point.gradient(multipliers)[1]
    steps = [np.tile(e, (N, 1)) for e in np.eye(n_classes)]
    exact = np.stack([point.hessian_product(multipliers, u) for u in steps], axis=2)
    eigenvalues = np.linalg.eigvalsh(hess[:, :, None] * np.eye(n_classes) - exact)
    assert eigenvalues.min() >= -1e-10


def test_the_proxy_of_each_constraint_is_chosen_by_whether_it_minds_the_label():
    """By default; each of the others is for all constraints alike."""
    y, _, weight, masks = draw(3)
    rules = kinds(3, masks)["mixed"]
    chosen = {
        proxy: build(y, rules, weight=weight, proxy=proxy).rows.is_bounded
        for proxy in proxies_of(3)
    }
    assert chosen["auto"].tolist() == [True, False, True]
    assert not chosen["logistic"].any()
    assert chosen["sigmoid"].all()
    assert np.array_equal(build(y, rules, weight=weight).rows.is_bounded, chosen["auto"])
    y, _, weight, masks = draw(2)
    ramp = build(y, kinds(2, masks)["mixed"], weight=weight, proxy="ramp").rows
    assert ramp.is_bounded.all()


def test_the_logistic_proxy_is_the_loss_rescaled():
    """A binary logistic rate of y / log 2 and a mean loss: one and the same gradient."""
    y, margin, weight, _ = draw(2)
    rate = build(y, [gc.class_error(1) <= 0.1], weight=weight, proxy="logistic")
    loss = build(y, [gc.log_loss(on=gc.label(1)) <= 0.1], weight=weight)
    by_rate = rate.at(margin).gradient(np.array([2.0 * np.log(2)]))
    by_loss = loss.at(margin).gradient(np.array([2.0]))
    np.testing.assert_allclose(by_rate, by_loss, rtol=1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_gradients_by_hand(n_classes):
    """w (p - e_y) (1 + y W / W_c) + w (F - anchor) / tau, from scipy's softmax."""
    y, margin, weight, _ = draw(n_classes)
    lag = build(y, [gc.log_loss(on=gc.label(1)) <= 0.1], weight=weight)
    anchor = margin[::-1].copy()
    grad, hess = lag.at(margin).gradient(np.array([0.8]), anchor, 0.25)
    p = np.exp(log_probability(margin))
    factor = weight * (1 + 0.8 * (y == 1) * weight.sum() / weight[y == 1].sum())
    first = factor[:, None] * (p - np.eye(n_classes)[y])
    second = factor[:, None] * p * (1 - p) + 0.25 * weight[:, None]
    if n_classes == 2:
        first, second = first[:, 1], second[:, 1]
        pull = 0.25 * weight * (margin - anchor)
    else:
        pull = 0.25 * weight[:, None] * (margin - anchor)
    np.testing.assert_allclose(grad, first + pull, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(hess, second, rtol=1e-11)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_no_anchor_means_the_scores_themselves(n_classes):
    """The proximal term then adds to the Hessian alone."""
    y, margin, weight, _ = draw(n_classes)
    lag = build(y, weight=weight)
    free = [x.copy() for x in lag.at(margin).gradient(np.zeros(0))]
    centred = [x.copy() for x in lag.at(margin).gradient(np.zeros(0), None, 0.5)]
    at_itself = [x.copy() for x in lag.at(margin).gradient(np.zeros(0), margin.copy(), 0.5)]
    assert np.array_equal(free[0], centred[0])
    assert np.array_equal(centred, at_itself)
    row_weight = weight if n_classes == 2 else weight[:, None]
    np.testing.assert_allclose(centred[1] - free[1], 0.5 * row_weight + 0 * margin, rtol=1e-12)


def test_a_hessian_floor_keeps_confident_rows_from_a_zero_hessian():
    y = np.array([0, 1, 1])
    weight = np.array([1.0, 2.0, 3.0])
    hess = build(y, weight=weight, hessian_floor=1e-16).at(np.array([-900.0, 900.0, 0.0]))
    found = hess.gradient(np.zeros(0))[1]
    np.testing.assert_allclose(found, [1e-16, 2e-16, 0.75], rtol=1e-12)
