"""Bregman distance and Lipschitz constants."""

from itertools import product

import numpy as np
import pytest
from lagrangians import (
    CLASS_COUNTS,
    CLIP,
    N,
    build,
    draw,
    kinds,
)

import gbm_constrained as gc
from gbm_constrained.problem.kernels import CONCAVITIES


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
    constraints = [gc.log_loss(on=gc.label(k)) <= 1 for k in range(n_classes)]
    constraints += [gc.log_loss(on=masks[0]) <= 1, gc.log_loss() <= 1]
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
        lag = build(y, [gc.log_loss(on=gc.label(k)) <= 1], weight=weight, factor=factor)
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


@pytest.mark.parametrize(
    ("n_classes", "proxy"), [*product(CLASS_COUNTS, ["sigmoid"]), (2, "ramp")]
)
def test_bounded_proxies_of_rates_are_lipschitz_too(n_classes, proxy):
    """The constants that step sizes assume of a rate hold for its smooth proxy."""
    y, _, weight, masks = draw(n_classes, n=200)
    shape = (200,) if n_classes == 2 else (200, n_classes)
    rng = np.random.default_rng(12)
    for constraint in kinds(n_classes, masks)["several"][:3]:
        lag = build(y, [constraint], weight=weight, proxy=proxy)
        (constant,), _ = lag.constants.lipschitz()
        for scale in np.geomspace(0.01, 30, 20):
            start, step = rng.normal(size=shape), scale * rng.normal(size=shape)
            values = [
                lag.at(x).value(np.ones(1)) - lag.at(x).value(np.zeros(1))
                for x in (start, start + step)
            ]
            length = np.sqrt(2 * lag.bregman(start, start + step))
            assert abs(values[1] - values[0]) <= constant * length * (1 + 1e-9)


def test_the_concavity_of_a_rate_is_that_of_its_proxy():
    """Times the range of costs and the density of the cell; the logistic proxy is convex."""
    y, _, weight, _ = draw(2, n=200)
    for proxy in ("logistic", "sigmoid", "ramp"):
        lag = build(y, [gc.fpr() <= 0.1], weight=weight, proxy=proxy)
        cell = int(np.flatnonzero(lag.cells.labels == 0)[0])
        density = weight.sum() / weight[y == 0].sum()
        expected = 3.0 * CONCAVITIES[proxy][0] * density
        assert lag.constants.concavity(np.array([3.0]))[cell] == pytest.approx(expected)
