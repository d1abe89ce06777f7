"""Values of the Lagrangian, and its invariances."""

import numpy as np
import pytest
from lagrangians import (
    CASES,
    CLASS_COUNTS,
    CLIP,
    KINDS,
    N,
    build,
    draw,
    kinds,
    log_probability,
    state,
)
from sklearn import metrics

import gbm_constrained as gc


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
