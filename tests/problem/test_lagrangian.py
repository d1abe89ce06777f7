"""The Lagrangian: derivatives, invariances, extremes, machines and memory."""

from __future__ import annotations

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from sklearn import metrics

from gbm_constrained.constraints.rates import (
    class_error,
    error_rate,
    fnr,
    fpr,
    log_loss,
    selection_rate,
)
from gbm_constrained.constraints.selectors import label
from gbm_constrained.data import cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem import problem_rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.kernels.binary import BinaryKernel
from gbm_constrained.problem.kernels.softmax import SoftmaxKernel
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.problem_rows import BLOCK

CLASS_COUNTS = [2, 3, 7]
DTYPES = [np.float32, np.float64]
CLIP = 1.5
N = 40


PROXIES = ("auto", "logistic", "sigmoid")


def build(y, constraints=(), n_classes=None, weight=None, factor=None, reduce_sum=None, **options):
    """Lagrangian of rows; `factor` multiplies the objective of each class."""
    classes = np.arange(n_classes or y.max() + 1)
    reduction = {} if reduce_sum is None else {"communicator": SimpleNamespace(sum=reduce_sum)}
    cells, compiled = compile_constraints(constraints, Rows(y, classes, weight), **reduction)
    if factor is not None:
        weight = (1.0 if weight is None else weight) * factor[y]
    return Lagrangian(y, cells, compiled, weight=weight, **options)


def draw(n_classes, n=N, seed=0):
    """Labels with every class present, scores, weights (one is zero) and two masks."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    margin = 2 * rng.normal(size=n if n_classes == 2 else (n, n_classes))
    weight = rng.gamma(2.0, size=n)
    weight[-1] = 0.0
    masks = rng.random((2, n)) < 0.5
    masks[:, :n_classes] = True
    return y, margin, weight, masks


def kinds(n_classes, masks):
    """Constraint lists that between them use everything a constraint can be."""
    several = [
        class_error(0) <= 0.1,
        class_error(n_classes - 1, on=masks[1]) <= 0.1,
        error_rate(on=masks[0]) <= 0.2,
        log_loss(on=label(1)) <= 0.5,
        log_loss(on=masks[1]) <= 0.5,
    ]
    return {
        "none": [],
        "rate": [class_error(1) <= 0.1],
        "error": [error_rate() <= 0.1],
        "loss": [log_loss(on=label(0)) <= 0.2],
        "masked": [error_rate(on=masks[0]) <= 0.1],
        "mixed": [
            selection_rate(1) <= 0.1,
            class_error(0) <= 0.1,
            error_rate(on=masks[0]) - error_rate(on=masks[1]) <= 0.1,
        ],
        "several": several + ([fpr() <= 0.1, fnr() <= 0.1] if n_classes == 2 else []),
    }


KINDS = list(kinds(2, np.eye(2, dtype=bool)))


def log_probability(margin):
    scores = np.stack([np.zeros_like(margin), margin], axis=1) if margin.ndim == 1 else margin
    return log_softmax(scores, axis=1)


def keep_off_the_cap(y, margin):
    """Move rows whose loss is at the kink of the clipped loss."""
    loss = -log_probability(margin)[np.arange(y.size), y]
    margin[np.abs(loss - np.logaddexp(0, CLIP)) < 1e-2] = 0.1
    return margin


# Derivatives


def differences(function, margin, h=1e-5):
    """Central differences of a scalar function, one score at a time."""
    result = np.empty_like(margin)
    for at in np.ndindex(margin.shape):
        step = np.zeros_like(margin)
        step[at] = h
        result[at] = (function(margin + step) - function(margin - step)) / (2 * h)
    return result


@pytest.mark.parametrize("clip", [None, CLIP])
@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_derivatives_are_central_differences(n_classes, kind, proxy, clip):
    """Gradient / W of the value, and Hessian products of the gradient; weights, class factors."""
    y, margin, weight, masks = draw(n_classes, n=20)
    keep_off_the_cap(y, margin)
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
    st.sampled_from(CLASS_COUNTS),
    st.sampled_from(KINDS),
    st.sampled_from(PROXIES),
    st.sampled_from([None, CLIP]),
    st.lists(st.floats(0, 20), min_size=7, max_size=7),
    st.floats(0, 10),
    st.floats(0.01, 5),
    st.integers(0, 10**6),
)
def test_derivatives_along_random_directions(
    n_classes, kind, proxy, clip, multipliers, inverse_tau, scale, seed
):
    """The same for any multipliers, step size and scale of the scores."""
    y, margin, weight, masks = draw(n_classes, seed=seed)
    margin = keep_off_the_cap(y, scale * margin)
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


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
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


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
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


def test_the_proxy_of_each_rule_is_chosen_by_whether_it_minds_the_label():
    """By default; the two others are for all constraints alike."""
    y, _, weight, masks = draw(3)
    rules = kinds(3, masks)["mixed"]
    chosen = {
        proxy: build(y, rules, weight=weight, proxy=proxy).rows.is_sigmoid for proxy in PROXIES
    }
    assert chosen["auto"].tolist() == [True, False, True]
    assert not chosen["logistic"].any()
    assert chosen["sigmoid"].all()
    assert np.array_equal(build(y, rules, weight=weight).rows.is_sigmoid, chosen["auto"])


def test_the_logistic_proxy_is_the_loss_rescaled():
    """A binary logistic rate of y / log 2 and a mean loss: one and the same gradient."""
    y, margin, weight, _ = draw(2)
    rate = build(y, [class_error(1) <= 0.1], weight=weight, proxy="logistic")
    loss = build(y, [log_loss(on=label(1)) <= 0.1], weight=weight)
    by_rate = rate.at(margin).gradient(np.array([2.0 * np.log(2)]))
    by_loss = loss.at(margin).gradient(np.array([2.0]))
    np.testing.assert_allclose(by_rate, by_loss, rtol=1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_gradients_by_hand(n_classes):
    """w (p - e_y) (1 + y W / W_c) + w (F - anchor) / tau, from scipy's softmax."""
    y, margin, weight, _ = draw(n_classes)
    lag = build(y, [log_loss(on=label(1)) <= 0.1], weight=weight)
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


# Values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_the_objective_is_the_log_loss_of_scikit_learn(n_classes, kind):
    """With sample weights and class factors, which count in the objective only.

    Whether or not constraints need the losses of cells.
    """
    y, margin, weight, masks = draw(n_classes)
    factor = np.random.default_rng(4).gamma(2.0, size=n_classes)
    lag = build(y, kinds(n_classes, masks)[kind], weight=weight, factor=factor)
    statistics = lag.at(margin).statistics()
    p, labels = np.exp(log_probability(margin)), np.arange(n_classes)
    expected = metrics.log_loss(y, p, sample_weight=weight * factor[y], labels=labels)
    assert lag.objective(statistics) == pytest.approx(expected, rel=1e-10)
    idle = np.zeros(len(lag.constraints))
    assert lag.at(margin).value(idle) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_class_factors_are_not_in_mean_losses(n_classes):
    y, margin, weight, _ = draw(n_classes)
    factor = np.random.default_rng(4).gamma(2.0, size=n_classes)
    lag = build(y, [log_loss() <= 0.1], weight=weight, factor=factor)
    statistics = lag.at(margin).statistics()
    p, labels = np.exp(log_probability(margin)), np.arange(n_classes)
    unweighted = metrics.log_loss(y, p, sample_weight=weight, labels=labels)
    assert lag.constraints.rates(statistics)[0] == pytest.approx(unweighted, rel=1e-10)


@pytest.mark.parametrize("clip", [None, CLIP])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_the_value_adds_objective_constraints_and_distance(n_classes, clip):
    """For mean losses, which need no proxy: f + <y, g + b> + D / tau."""
    y, margin, weight, masks = draw(n_classes)
    constraints = [log_loss(on=label(0)) <= 0.3, log_loss(on=masks[0]) <= 0.7]
    lag = build(y, constraints, weight=weight, outlier_clip=clip)
    multipliers, anchor = np.array([1.5, 0.4]), np.ones_like(margin)
    point = lag.at(margin)
    statistics = point.statistics()
    expected = lag.objective(statistics) + 0.3 * lag.bregman(margin, anchor)
    expected += multipliers @ lag.constraints.rates(statistics)
    assert point.value(multipliers, anchor, 0.3) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_clipped_losses_count_in_constraints_only(n_classes):
    """The constraint's value is the mean of min(loss, cap); the objective is not clipped."""
    y, margin, weight, _ = draw(n_classes)
    margin *= 3
    loss = -log_probability(margin)[np.arange(N), y]
    lag = build(y, [log_loss() <= 0.1], weight=weight, outlier_clip=CLIP)
    statistics = lag.at(margin).statistics()
    clipped = np.average(np.minimum(loss, np.logaddexp(0, CLIP)), weights=weight)
    plain = np.average(loss, weights=weight)
    assert clipped < 0.9 * plain
    assert lag.constraints.rates(statistics)[0] == pytest.approx(clipped, rel=1e-12)
    assert lag.objective(statistics) == pytest.approx(plain, rel=1e-12)


# Weights, order of rows, names of classes, idle constraints


def state(lag, margin, multipliers, anchor):
    """Everything a solver reads at one point."""
    point = lag.at(margin)
    statistics = point.statistics()
    numbers = [
        lag.objective(statistics),
        point.value(multipliers, anchor, 0.4),
        lag.bregman(margin, anchor),
        lag.total_weight,
        *lag.constraints.rates(statistics),
        *lag.constants.lipschitz()[0],
    ]
    grad, hess = point.gradient(multipliers, anchor, 0.4)
    return np.array(numbers), grad.copy(), hess.copy()


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_a_weight_is_a_repeated_row(n_classes, proxy):
    """Values, rates, distances and Lipschitz constants; gradients add up over the copies."""
    y, margin, _, masks = draw(n_classes)
    rng = np.random.default_rng(5)
    repeats = rng.integers(0, 4, N)
    repeats[:n_classes] = 3
    multipliers = rng.gamma(1.0, size=len(kinds(n_classes, masks)["several"]))
    anchor = rng.normal(size=margin.shape)
    options = {"proxy": proxy, "outlier_clip": CLIP, "n_classes": n_classes}
    once = build(y, kinds(n_classes, masks)["several"], weight=repeats.astype(float), **options)
    numbers, *derivatives = state(once, margin, multipliers, anchor)

    masks = np.repeat(masks, repeats, axis=1)
    again = build(np.repeat(y, repeats), kinds(n_classes, masks)["several"], **options)
    copies = np.repeat(margin, repeats, 0), multipliers, np.repeat(anchor, repeats, 0)
    expected, *copied = state(again, *copies)
    np.testing.assert_allclose(numbers, expected, rtol=1e-12)
    rows = np.repeat(np.arange(N), repeats)
    for weighted, repeated in zip(derivatives, copied, strict=True):
        total = np.zeros_like(weighted)
        np.add.at(total, rows, repeated)
        np.testing.assert_allclose(weighted, total, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_a_common_factor_of_all_weights_scales_gradients_alone(n_classes):
    y, margin, weight, masks = draw(n_classes)
    constraints = kinds(n_classes, masks)["several"]
    multipliers = np.ones(len(constraints))
    one, ten = (
        state(build(y, constraints, weight=c * weight), margin, multipliers, 0 * margin)
        for c in (1.0, 10.0)
    )
    scale = np.ones_like(one[0])
    scale[3] = 10.0
    np.testing.assert_allclose(ten[0], scale * one[0], rtol=1e-12)
    np.testing.assert_allclose(ten[1:], 10 * np.array(one[1:]), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_no_weights_are_weights_of_one(n_classes):
    y, margin, _, masks = draw(n_classes)
    constraints = kinds(n_classes, masks)["several"]
    multipliers = np.ones(len(constraints))
    states = [
        state(build(y, constraints, weight=w), margin, multipliers, 0 * margin)
        for w in (None, np.ones(N))
    ]
    for none, ones in zip(*states, strict=True):
        np.testing.assert_allclose(none, ones, rtol=1e-14)


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_the_order_of_rows_does_not_matter(n_classes, proxy):
    y, margin, weight, masks = draw(n_classes)
    rng = np.random.default_rng(6)
    order = rng.permutation(N)
    anchor = rng.normal(size=margin.shape)
    multipliers = np.ones(len(kinds(n_classes, masks)["several"]))
    sorted_, shuffled = (
        state(
            build(y[i], kinds(n_classes, masks[:, i])["several"], weight=weight[i], proxy=proxy),
            margin[i], multipliers, anchor[i],
        )
        for i in (np.arange(N), order)
    )  # fmt: skip
    np.testing.assert_allclose(shuffled[0], sorted_[0], rtol=1e-12)
    for found, expected in zip(shuffled[1:], sorted_[1:], strict=True):
        np.testing.assert_allclose(found, expected[order], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_the_names_of_classes_do_not_matter(n_classes, proxy):
    """Classes renumbered, their scores moved along: for a binary margin, its sign."""
    y, margin, weight, masks = draw(n_classes)
    to = np.random.default_rng(7).permutation(n_classes) if n_classes > 2 else np.array([1, 0])
    multipliers = np.array([0.7, 1.1, 0.3, 2.0])

    def constraints(name):
        return [
            class_error(name[0]) <= 0.1,
            error_rate(on=masks[0]) <= 0.1,
            log_loss(on=label(name[1])) <= 0.3,
            class_error(name[1], on=masks[1]) <= 0.2,
        ]

    plain = build(y, constraints(range(n_classes)), weight=weight, proxy=proxy)
    renamed = build(to[y], constraints(to.tolist()), weight=weight, proxy=proxy)
    back = -1.0 if n_classes == 2 else None
    moved = -margin if n_classes == 2 else margin[:, np.argsort(to)]
    numbers, grad, hess = state(plain, margin, multipliers, np.zeros_like(margin))
    found = state(renamed, moved, multipliers, np.zeros_like(margin))
    np.testing.assert_allclose(found[0], numbers, rtol=1e-12)
    np.testing.assert_allclose(
        back * found[1] if back else found[1][:, to], grad, rtol=1e-11, atol=1e-13
    )
    np.testing.assert_allclose(found[2] if back else found[2][:, to], hess, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_a_constraint_of_multiplier_zero_changes_nothing(n_classes, proxy):
    """Values and gradients to the last digit, although masks split the cells further."""
    y, margin, weight, masks = draw(n_classes)
    active, idle = [class_error(0) <= 0.1], [error_rate(on=masks[0]) <= 1, log_loss() <= 9]
    anchor = np.ones_like(margin)
    alone = build(y, active, weight=weight, proxy=proxy).at(margin)
    value, derivatives = (
        alone.value(np.ones(1), anchor, 0.2),
        alone.gradient(np.ones(1), anchor, 0.2),
    )
    among = build(y, active + idle, weight=weight, proxy=proxy).at(margin)
    multipliers = np.array([1.0, 0.0, 0.0])
    assert among.value(multipliers, anchor, 0.2) == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(among.gradient(multipliers, anchor, 0.2), derivatives, rtol=1e-12)

    none = build(y, weight=weight, proxy=proxy).at(margin).gradient(np.zeros(0))
    only_idle = build(y, idle, weight=weight, proxy=proxy).at(margin).gradient(np.zeros(2))
    assert np.array_equal(none, only_idle)


# Extremes and precision


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
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
@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_single_and_double_precision_agree(n_classes, proxy, clip):
    y, margin, weight, masks = draw(n_classes, n=500)
    margin = keep_off_the_cap(y, margin).astype(np.float32)
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


@pytest.mark.parametrize("scores", ["equal", "varied"])
@pytest.mark.parametrize("n_classes", [2, 3])
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
def test_weighted_shares_end_at_one_in_single_precision(dtype, n_views, monkeypatch):
    """Where all rows of a cell are decided alike, also after the kernels became narrower."""
    if n_views == 2:
        monkeypatch.setattr(cells, "VIEW_CELLS", 4)
    y, _, _, masks = draw(2, 5000)
    weight = 3.3**y * np.random.default_rng(9).random(5000)
    rules = [error_rate(on=masks[0]) <= 0.1, error_rate(on=masks[1]) <= 0.1]
    lagrangian = build(y, rules, weight=weight, dtype=dtype, gradient_dtype=np.float32)
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


@pytest.mark.parametrize("proxy", PROXIES)
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


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_blocks_of_rows_are_seamless(n_classes, monkeypatch):
    """Blocks of 7 of 40 rows give what one block gives."""
    y, margin, weight, masks = draw(n_classes)
    constraints = kinds(n_classes, masks)["several"]
    lag = build(y, constraints, weight=weight, outlier_clip=CLIP)
    multipliers, u = np.ones(len(constraints)), np.ones_like(margin)
    states = []
    for rows in (BLOCK, 7):
        monkeypatch.setattr(problem_rows, "BLOCK", rows)
        product = lag.at(margin).hessian_product(multipliers, u, 0.2)
        states.append((*state(lag, margin, multipliers, 0 * margin), product))
    for one, many in zip(*states, strict=True):
        np.testing.assert_allclose(many, one, rtol=1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_scores_of_another_shape_are_refused(n_classes):
    y, margin, *_ = draw(n_classes)
    with pytest.raises(ValueError, match="must pass every training row, in order") as error:
        build(y).at(margin[:-1])
    assert f"scores of shape {margin.shape}, got {margin[:-1].shape}" in str(error.value)


# Bregman distance and Lipschitz constants


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_the_bregman_distance_is_half_the_mean_square_of_score_differences(n_classes, weighted):
    y, margin, weight, _ = draw(n_classes)
    other = np.random.default_rng(9).normal(size=margin.shape)
    w = weight if weighted else np.ones(N)
    total = sum(w[i] * np.sum((margin[i] - other[i]) ** 2) for i in range(N))
    found = build(y, weight=weight if weighted else None).bregman(margin, other)
    assert found == pytest.approx(total / (2 * w.sum()), rel=1e-13)


@pytest.mark.parametrize("clip", [None, CLIP])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_constraints_are_lipschitz_in_the_bregman_distance(n_classes, clip):
    """|g(F) - g(F')| <= L_g sqrt(2 D): each mean loss with its own constant, all with the norm."""
    y, _, weight, masks = draw(n_classes, n=200)
    constraints = [log_loss(on=label(k)) <= 1 for k in range(n_classes)]
    constraints += [log_loss(on=masks[0]) <= 1, log_loss() <= 1]
    factor = np.random.default_rng(10).gamma(2.0, size=n_classes)
    lag = build(y, constraints, weight=weight, factor=factor, outlier_clip=clip)
    own, together = lag.constants.lipschitz()
    joint = np.linalg.norm(lag.constants.sensitivities.toarray(), 2)
    rng = np.random.default_rng(11)
    shape = (200,) if n_classes == 2 else (200, n_classes)
    for scale in np.geomspace(0.01, 100, 50):
        start, step = 3 * rng.normal(size=shape), scale * rng.normal(size=shape)
        before = lag.constraints.rates(lag.at(start).statistics())
        after = lag.constraints.rates(lag.at(start + step).statistics())
        length = np.sqrt(2 * lag.bregman(start + step, start))
        assert (np.abs(after - before) <= own * length * (1 + 1e-12)).all()
        assert np.linalg.norm(after - before) <= joint * length * (1 + 1e-12)
        scaled = np.linalg.norm((after - before) / own)
        assert scaled <= together * length * (1 + 1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_lipschitz_constants_of_mean_losses_are_sharp(n_classes):
    """Hopeless rows moved along their gradients change their class's loss by L_g sqrt(2 D).

    With class factors, which weigh in the distance but not in the constraint.
    """
    y, _, weight, _ = draw(n_classes, n=200)
    factor = np.random.default_rng(10).gamma(2.0, size=n_classes)
    for k in range(n_classes):
        lag = build(y, [log_loss(on=label(k)) <= 1], weight=weight, factor=factor)
        other = (k + 1) % n_classes
        if n_classes == 2:
            away = np.where(y == k, 1.0 if other == 1 else -1.0, 0.0)
        else:
            away = (y == k)[:, None] * (np.eye(n_classes)[other] - np.eye(n_classes)[k])
        rates = [lag.constraints.rates(lag.at(s * away).statistics())[0] for s in (30.0, 31.0)]
        length = np.sqrt(2 * lag.bregman(30 * away, 31 * away))
        (constant,), together = lag.constants.lipschitz()
        assert together == pytest.approx(1.0, rel=1e-14)
        assert rates[1] - rates[0] == pytest.approx(constant * length, rel=1e-9)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_sigmoid_proxies_of_rates_are_lipschitz_too(n_classes):
    """The constants that step sizes assume of a rate hold for its smooth proxy."""
    y, _, weight, masks = draw(n_classes, n=200)
    shape = (200,) if n_classes == 2 else (200, n_classes)
    rng = np.random.default_rng(12)
    for constraint in kinds(n_classes, masks)["several"][:3]:
        lag = build(y, [constraint], weight=weight, proxy="sigmoid")
        (constant,), _ = lag.constants.lipschitz()
        for scale in np.geomspace(0.01, 30, 20):
            start, step = rng.normal(size=shape), scale * rng.normal(size=shape)
            proxy = [
                lag.at(x).value(np.ones(1)) - lag.at(x).value(np.zeros(1))
                for x in (start, start + step)
            ]
            length = np.sqrt(2 * lag.bregman(start, start + step))
            assert abs(proxy[1] - proxy[0]) <= constant * length * (1 + 1e-9)


# Machines


class Machines:
    """An all-reduce between threads, each of which holds some of the rows."""

    def __init__(self, n):
        self._tables = [None] * n
        self._barrier = threading.Barrier(n, timeout=20)
        self.shapes = set()

    def reduce_sum(self, rank):
        def reduce(table):
            self._tables[rank] = table.copy()
            self._barrier.wait()
            total = sum(self._tables)
            self._barrier.wait()
            self.shapes.add(table.shape)
            return total

        return reduce


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_rows_on_two_machines_are_rows_on_one(n_classes, weighted):
    """Only tables of cells travel; statistics, objective, distance and gradients are the same."""
    y, margin, weight, masks = draw(n_classes, n=150)
    weight = weight if weighted else None
    multipliers = np.linspace(0.5, 1, len(kinds(n_classes, masks)["several"]))
    anchor = np.cos(margin)

    def run(rows, reduce_sum=None):
        lag = build(
            y[rows], kinds(n_classes, masks[:, rows])["several"], n_classes=n_classes,
            weight=None if weight is None else weight[rows], reduce_sum=reduce_sum,
            outlier_clip=CLIP,
        )  # fmt: skip
        return state(lag, margin[rows], multipliers, anchor[rows])

    machines = Machines(2)
    parts = [slice(0, 60), slice(60, 150)]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(run, part, machines.reduce_sum(i)) for i, part in enumerate(parts)]
        first, second = (f.result() for f in futures)
    whole = run(slice(None))
    np.testing.assert_allclose(first[0], whole[0], rtol=1e-12)
    assert np.array_equal(first[0], second[0])
    for i in (1, 2):
        joined = np.concatenate([first[i], second[i]])
        np.testing.assert_allclose(joined, whole[i], rtol=1e-11, atol=1e-13)
    n_cells = 4 * n_classes
    assert machines.shapes == {(1,), (n_cells,), (n_cells * (n_classes + 1),)}


def test_a_machine_without_rows_of_a_class_takes_part():
    """The second machine holds one class only; its numbers are still those of all rows."""
    y, margin, weight, _ = draw(2, n=60)
    order = np.argsort(y, kind="stable")
    y, margin, weight = y[order], margin[order], weight[order]
    half = int((y == 0).sum()) - 5
    machines = Machines(2)

    def run(rows, reduce_sum=None):
        lag = build(
            y[rows], [fpr() <= 0.1, fnr() <= 0.1], n_classes=2, weight=weight[rows],
            reduce_sum=reduce_sum,
        )  # fmt: skip
        return lag.constraints.rates(lag.at(margin[rows]).statistics())

    parts = [slice(half, 60), slice(0, half)]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(run, part, machines.reduce_sum(i)) for i, part in enumerate(parts)]
        results = [f.result() for f in futures]
    np.testing.assert_allclose(results, [run(slice(None))] * 2, rtol=1e-12)


# Cost


@pytest.mark.parametrize("clip", [None, CLIP])
@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_several_views_are_one(n_classes, weighted, proxy, clip, monkeypatch):
    """Rules spread over views have the derivatives and the counts of one partition.

    At scores that move, so that decisions are; under multipliers of all kinds of rules, then of
    none but one kind, whose coefficients must not remember the others.
    """
    n = 3000
    y, _, weight, _ = draw(n_classes, n=n, seed=21)
    rng = np.random.default_rng(22)
    masks = rng.random((6, n)) < 0.5
    rules = [error_rate(on=masks[0]) <= 0.1, class_error(0, on=masks[1]) <= 0.1]
    rules += [selection_rate(1, on=mask) <= 0.2 for mask in masks[2:4]]
    rules += [log_loss(on=mask) <= 0.2 for mask in masks[4:]]
    built = []
    for most in (2048, 2 * n_classes):
        monkeypatch.setattr("gbm_constrained.data.cells.VIEW_CELLS", most)
        lag = build(y, rules, weight=weight if weighted else None, proxy=proxy, outlier_clip=clip)
        built.append(lag)
    assert [len(lag.cells.views) for lag in built] == [1, 6]
    multipliers = rng.uniform(0.5, 2.0, 6)
    kinds = [
        [1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0] * 6,
    ]
    shape = n if n_classes == 2 else (n, n_classes)
    margin, anchor, u = (2 * rng.normal(size=shape) for _ in range(3))
    for kind in kinds:
        margin += 0.3 * rng.normal(size=shape)
        one, several = (lag.at(margin.copy()) for lag in built)
        values = [
            lag.constraints.rates(point.statistics())
            for lag, point in zip(built, (one, several), strict=True)
        ]
        np.testing.assert_allclose(*values, rtol=1e-11)
        y_k = multipliers * kind
        expected, found = (point.gradient(y_k, anchor, 0.3) for point in (one, several))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        # Costs of a row count from another zero: values differ by a constant.
        moved = margin + u
        rises = [lag.at(moved).value(y_k) - lag.at(margin).value(y_k) for lag in built]
        np.testing.assert_allclose(*rises, rtol=1e-9, atol=1e-10)
        products = [lag.at(margin).hessian_product(y_k, u, 0.1) for lag in built]
        np.testing.assert_allclose(*products, rtol=1e-9, atol=1e-9)


def sixty_four(masks, n_classes):
    """64 constraints over few cells."""
    rng = np.random.default_rng(13)
    rates = [class_error(k, on=mask) for k in range(n_classes) for mask in masks]
    return [rates[i % len(rates)] <= b for i, b in enumerate(rng.uniform(0.1, 0.9, 64))]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
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


@pytest.mark.parametrize("n_classes", [2, 3])
def test_building_with_many_constraints_needs_few_vectors(n_classes):
    n = 200_000
    rng = np.random.default_rng(15)
    y = rng.integers(0, n_classes, n)
    constraints = sixty_four(rng.random((2, n)) < 0.5, n_classes)
    tracemalloc.start()
    try:
        build(y, constraints)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * n * (6 + 3 * n_classes)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_largest_entry_of_a_rows_cells(n_classes):
    """Whatever was looked up before: two levels, many, one, and the same ones moved."""
    rng = np.random.default_rng(17)
    y = rng.integers(0, n_classes, 500)
    lag = build(y, sixty_four(rng.random((16, 500)) < 0.5, n_classes))
    views = lag.cells.views
    assert len(views) > 1
    size = len(lag.cells)
    rare = np.where(rng.random(size) < 0.01, 2.0, 1.0)
    tables = [rare, rng.random(size), np.ones(size), 3.0 * rare, rng.integers(0, 3, size) / 4.0]
    for table in (*tables, *tables[::-1], np.roll(rare, 1)):
        found = np.broadcast_to(np.ravel(lag.coefficients.per_row(table)), 500)
        by_view = [table[view.codes] for view in views]
        np.testing.assert_array_equal(found, np.max(by_view, axis=0).astype(lag.rows.dtype))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_fused_pass_whatever_the_number_of_constraints(n_classes, monkeypatch):
    """Each kernel is called once per block of rows, for 1 constraint as for 64."""
    n = 2 * BLOCK + 5
    rng = np.random.default_rng(16)
    y = rng.integers(0, n_classes, n)
    margin = rng.normal(size=n if n_classes == 2 else (n, n_classes))
    masks = rng.random((2, n)) < 0.5
    kernel = BinaryKernel if n_classes == 2 else SoftmaxKernel
    calls = []
    for name in ("link", "loss", "gradient"):
        original = getattr(kernel, name)
        monkeypatch.setattr(
            kernel, name,
            staticmethod(
                lambda *a, _f=original, _n=name, **k: (calls.append(_n), _f(*a, **k))[1]
            )
            if name != "gradient" or n_classes == 2
            else lambda self, *a, _f=original, _n=name: (calls.append(_n), _f(self, *a))[1],
        )  # fmt: skip
    for constraints in ([class_error(0) <= 0.1], sixty_four(masks, n_classes)):
        calls.clear()
        point = build(y, constraints).at(margin)
        point.statistics()
        point.gradient(np.ones(len(constraints)))
        blocks = 3 if n_classes == 2 else 5  # of several scores each, half as many rows
        assert sorted(calls) == sorted(["gradient", "link", "loss"] * blocks)
