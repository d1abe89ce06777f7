"""Lagrangians: points, several views, and rows on a graphics card."""

import device_arrays
import numpy as np
import pytest
from lagrangians import (
    CASES,
    CLASS_COUNTS,
    CLIP,
    DTYPES,
    KINDS,
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
from scipy.special import expit
from sklearn import metrics

import gbm_constrained as gc
from gbm_constrained.solvers.abpp import ABPP


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
    lag = build(y, [gc.log_loss() <= 0.1], weight=weight, factor=factor)
    statistics = lag.at(margin).statistics()
    p, labels = np.exp(log_probability(margin)), np.arange(n_classes)
    unweighted = metrics.log_loss(y, p, sample_weight=weight, labels=labels)
    assert lag.constraints.rates(statistics)[0] == pytest.approx(unweighted, rel=1e-10)


@pytest.mark.parametrize("clip", [None, CLIP])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_the_value_adds_objective_constraints_and_distance(n_classes, clip):
    """For mean losses, which need no proxy: f + <y, g + b> + D / tau."""
    y, margin, weight, masks = draw(n_classes)
    constraints = [gc.log_loss(on=gc.label(0)) <= 0.3, gc.log_loss(on=masks[0]) <= 0.7]
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
    lag = build(y, [gc.log_loss() <= 0.1], weight=weight, outlier_clip=CLIP)
    statistics = lag.at(margin).statistics()
    clipped = np.average(np.minimum(loss, np.logaddexp(0, CLIP)), weights=weight)
    plain = np.average(loss, weights=weight)
    assert clipped < 0.9 * plain
    assert lag.constraints.rates(statistics)[0] == pytest.approx(clipped, rel=1e-12)
    assert lag.objective(statistics) == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
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


@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
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


@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
def test_the_names_of_classes_do_not_matter(n_classes, proxy):
    """Classes renumbered, their scores moved along: for a binary margin, its sign."""
    y, margin, weight, masks = draw(n_classes)
    to = np.random.default_rng(7).permutation(n_classes) if n_classes > 2 else np.array([1, 0])
    multipliers = np.array([0.7, 1.1, 0.3, 2.0])

    def constraints(name):
        return [
            gc.class_error(name[0]) <= 0.1,
            gc.error_rate(on=masks[0]) <= 0.1,
            gc.log_loss(on=gc.label(name[1])) <= 0.3,
            gc.class_error(name[1], on=masks[1]) <= 0.2,
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


@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
def test_a_constraint_of_multiplier_zero_changes_nothing(n_classes, proxy):
    """Values and gradients to the last digit, although masks split the cells further."""
    y, margin, weight, masks = draw(n_classes)
    active, idle = (
        [gc.class_error(0) <= 0.1],
        [gc.error_rate(on=masks[0]) <= 1, gc.log_loss() <= 9],
    )
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


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_scores_of_another_shape_are_refused(n_classes):
    y, margin, *_ = draw(n_classes)
    with pytest.raises(ValueError, match="must pass every training row, in order") as error:
        build(y).at(margin[:-1])
    assert f"scores of shape {margin.shape}, got {margin[:-1].shape}" in str(error.value)


# Losses alone are clipped.
KINDS_AND_CLIPS = [*((kind, None) for kind in KINDS), ("loss", CLIP), ("several", CLIP)]


def differences(function, margin, h=1e-5):
    """Central differences of a scalar function, one score at a time."""
    result = np.empty_like(margin)
    for at in np.ndindex(margin.shape):
        step = np.zeros_like(margin)
        step[at] = h
        result[at] = (function(margin + step) - function(margin - step)) / (2 * h)
    return result


@pytest.mark.parametrize(("kind", "clip"), KINDS_AND_CLIPS)
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


@pytest.mark.parametrize(("kind", "clip"), KINDS_AND_CLIPS)
@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
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
    _, has_cost, has_clipped = lag.tables(multipliers).parts
    if n_classes > 2 or has_cost or has_clipped:
        np.testing.assert_array_equal(bound, own)
        return
    w = weight * 0.3
    p = expit(margin)
    expected = (own - w) * np.maximum(0.7 * (p - 0.5) / margin / (p * (1 - p)), 1.0) + w
    np.testing.assert_allclose(bound, expected, rtol=1e-9, atol=1e-12)
    assert (bound[weight > 0] > own[weight > 0]).any()


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


@pytest.mark.parametrize(("weighted", "clip"), [(False, None), (True, CLIP)])
@pytest.mark.parametrize(("n_classes", "proxy"), [c for c in CASES if c[0] <= 3])
def test_several_views_are_one(n_classes, weighted, proxy, clip):
    """Constraints in several views have the derivatives and the counts of one partition.

    At scores that move, so that decisions are; under multipliers of all kinds of constraints, then
    of one kind alone, whose coefficients must not remember the others.
    """
    n = 3000
    y, _, weight, _ = draw(n_classes, n=n, seed=21)
    rng = np.random.default_rng(22)
    masks = rng.random((6, n)) < 0.5
    columns, values = spread_over_views(masks)
    built = []
    for selectors in (masks, values):
        rules = [gc.error_rate(on=selectors[0]) <= 0.1, gc.class_error(0, on=selectors[1]) <= 0.1]
        rules += [gc.selection_rate(1, on=chosen) <= 0.2 for chosen in selectors[2:4]]
        rules += [gc.log_loss(on=chosen) <= 0.2 for chosen in selectors[4:]]
        options = {"proxy": proxy, "outlier_clip": clip, "columns": columns}
        built.append(build(y, rules, weight=weight if weighted else None, **options))
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
        found = np.broadcast_to(np.ravel(lag.per_row(table)), 500)
        by_view = [table[view.codes] for view in views]
        np.testing.assert_array_equal(found, np.max(by_view, axis=0).astype(lag.rows.dtype))


def both(y, constraints, **options):
    """Build the same Lagrangian in main memory and on the card."""
    return [
        build(y, constraints, array_module=module, **options) for module in (np, device_arrays)
    ]


def to_host(x):
    """Copy an array to main memory, unless it is there."""
    return x if isinstance(x, np.ndarray) else x.get()


def check_equal(here, there, margin, *, learning_rate=0.0):
    """Compare statistics and gradients at scores, with a proximal term about others."""
    anchor = np.ones_like(margin)
    m = len(here.constraints)
    for multipliers in (np.zeros(m), np.linspace(0.5, 2.0, m)):
        a, b = here.at(margin), there.at(margin)
        of_a, of_b = a.statistics(), b.statistics()
        np.testing.assert_array_equal(of_a.predicted, of_b.predicted)
        np.testing.assert_allclose(of_a.loss, of_b.loss, rtol=1e-6)
        np.testing.assert_allclose(a.losses(), b.losses(), rtol=1e-6)
        centre = there.rows.array_module.asarray(anchor)
        expected = a.gradient(multipliers, anchor, 0.3, learning_rate=learning_rate)
        found = b.gradient(multipliers, centre, 0.3, learning_rate=learning_rate)
        for x, z in zip(expected, found, strict=True):
            np.testing.assert_array_equal(x, to_host(z))
        by_cell = np.linspace(0.1, 0.4, len(here.cells))
        np.testing.assert_array_equal(
            a.gradient(multipliers, None, by_cell)[1],
            to_host(b.gradient(multipliers, None, by_cell)[1]),
        )
        np.testing.assert_array_equal(here.constants.slopes(), there.constants.slopes())
        assert here.bregman(margin, anchor) == there.bregman(
            there.rows.array_module.asarray(margin), centre
        )


@pytest.mark.parametrize("kind", ["none", "mixed", "several"])
@pytest.mark.parametrize(("n_classes", "proxy"), CASES)
def test_rows_on_a_card_give_the_same_numbers(n_classes, kind, proxy):
    """With weights, a clipped loss and the bound of steps that do not overshoot."""
    y, margin, weight, masks = draw(n_classes)
    constraints = kinds(n_classes, masks)[kind]
    for options in ({}, {"weight": weight, "outlier_clip": 1.5}):
        pair = both(y, constraints, proxy=proxy, **options)
        check_equal(*pair, margin, learning_rate=0.3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_several_views_give_the_same_numbers(n_classes, dtype):
    """Constraints in views of their own, as a hundred constraints are."""
    y, margin, weight, masks = draw(n_classes, n=300)
    columns, selectors = spread_over_views(masks)
    constraints = [gc.error_rate(on=on) <= 0.1 for on in selectors]
    constraints += [gc.selection_rate(1, on=selectors[0]) <= 0.1]
    pair = both(y, constraints, columns=columns, weight=weight, dtype=dtype)
    assert pair[1].rows.has_several_views
    check_equal(*pair, margin.astype(dtype), learning_rate=0.1)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_a_solver_takes_the_same_path(n_classes):
    """Gradients of ABPP over rounds, in the precision that a booster has."""
    y, margin, _, masks = draw(n_classes, n=500)
    constraints = [gc.error_rate(on=masks[0]) <= 0.1, gc.selection_rate(1) <= 0.1]
    solvers = [
        ABPP().begin(lagrangian, lazy=True, progress=0.5)
        for lagrangian in both(y, constraints, dtype=np.float32)
    ]
    scores = margin.astype(np.float32)
    for _ in range(8):
        (grad, hess), (other, of_other) = (solver(scores) for solver in solvers)
        np.testing.assert_array_equal(grad, to_host(other))
        np.testing.assert_array_equal(hess, to_host(of_other))
        scores = scores - 0.3 * grad / hess
    assert solvers[0].multipliers.any()
    np.testing.assert_array_equal(solvers[0].multipliers, solvers[1].multipliers)


def test_pair_rates_stay_in_main_memory():
    y, _, _, masks = draw(2)
    lagrangian = build(y, [gc.auc(on=masks[0]) >= 0.7], array_module=device_arrays)
    assert lagrangian.rows.array_module is np
