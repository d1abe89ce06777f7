"""Lagrangians whose rows are on a (pretended) graphics card, against those in main memory."""

import device_arrays
import numpy as np
import pytest
from lagrangians import CLASS_COUNTS, DTYPES, KINDS, PROXIES, build, draw, kinds, spread_over_views

import gbm_constrained as gc
from gbm_constrained.solvers.abpp import ABPP


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


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
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
