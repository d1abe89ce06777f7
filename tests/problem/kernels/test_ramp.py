"""Ramps of a binary margin as expected costs: bounds, curvature, and what is refused."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit

from gbm_constrained.problem.kernels import (
    END,
    KINK,
    PROXIES,
    Block,
    KernelTables,
    RampKernel,
    rate_lipschitz,
)
from gbm_constrained.solvers import ABPP, CBPR, AutoSolver

GRID = np.linspace(-12, 12, 4801)


def at(margin, cost, dtype=np.float64):
    """Value, gradient and Hessian of rows whose only coefficient is the cost of class 1."""
    margin = np.atleast_1d(np.asarray(margin, dtype=dtype))
    costs = np.array([[0.0, cost], [0.0, cost]])
    t = KernelTables(np.zeros((2, 2)), costs, np.zeros(2), np.arange(2), margin.dtype)
    labels = -np.ones_like(margin)
    p, grad, hess = (np.empty_like(margin) for _ in range(3))
    RampKernel.link(margin, labels, p)
    block = Block(p, margin, labels, np.zeros(margin.size, int), t, np.inf)
    RampKernel.gradient(block, grad, hess)
    return RampKernel.value(block), grad, hess


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


@settings(max_examples=300, deadline=None)
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
    assert -curvature.min() == pytest.approx(PROXIES["ramp"].concavity(2), rel=1e-2)


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
