"""Kernels of pair rates against sums over all pairs of rows: the density, and the square."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_kernels import N_CELLS, draw, slow_gradient, slow_hessian_product, slow_table
from scipy import sparse
from scipy.special import expit

from gbm_constrained.problem.pairs import (
    DensityKernel,
    SquareKernel,
    find_prices,
    pair_sensitivities,
    pair_table,
)


def density(x):
    return expit(x) * expit(-x)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spread", [0.01, 2.0, 30.0])
def test_density_gradient_is_the_sum_over_all_pairs(weighted, spread):
    margin, cells, weight, coefficients = draw(0, spread=spread, weighted=weighted)
    kernel = DensityKernel(cells, weight, N_CELLS)
    gradient, curvature = kernel.gradient(margin, coefficients)
    expected = slow_gradient(margin, cells, weight, coefficients, density)
    size = np.abs(expected).max()
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-4 * size)
    np.testing.assert_array_equal(curvature, np.abs(gradient))
    coarse = DensityKernel(cells, weight, N_CELLS, bins=16).gradient(margin, coefficients)[0]
    np.testing.assert_allclose(coarse, expected, rtol=0, atol=5e-4 * size)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spread", [0.01, 2.0])
def test_density_hessian_is_the_sum_over_all_pairs(weighted, spread):
    margin, cells, weight, coefficients = draw(13, spread=spread, weighted=weighted)
    direction = np.random.default_rng(0).normal(size=margin.size)
    kernel = DensityKernel(cells, weight, N_CELLS)
    found = kernel.hessian_product(margin, coefficients, direction)
    data = margin, cells, weight, coefficients
    expected = slow_hessian_product(*data, direction, lambda u: density(u) * (1 - 2 * expit(u)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    # A common shift of all margins changes no pair.
    same = kernel.hessian_product(margin, coefficients, np.ones(margin.size))
    np.testing.assert_allclose(same, 0.0, atol=1e-10 * np.abs(expected).max())
    symmetric = coefficients + coefficients.T
    assert not kernel.hessian_product(margin, symmetric, direction).any()


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 1e6), st.sampled_from([4, 64, 2048]))
@settings(max_examples=40, deadline=None)
def test_densities_are_within_their_bound(seed, spread, bins):
    margin, cells, weight, _ = draw(seed, n=40, spread=spread)
    kernel = DensityKernel(cells, weight, N_CELLS, bins=bins)
    width = 1 / 32  # Forty rows span 1,600 units at most after gaps are closed.
    weights = kernel.cell_weight
    for c, d in ((0, 1), (2, 3)):
        only = np.zeros((N_CELLS, N_CELLS))
        only[c, d] = 1.0
        found = kernel.gradient(margin, only)[0]
        expected = slow_gradient(margin, cells, weight, only, density)
        scale = weight * weights.sum() / np.maximum(weights[cells], 1e-300)
        assert np.all(np.abs(found - expected) <= scale * (width**2 / 32 + 1e-12))
    error = kernel.table(margin) - slow_table(margin, cells, weight, expit)
    assert np.nanmax(np.abs(error)) <= width**2 / 41 + 1e-12


def test_density_gradient_is_the_slope_of_the_smoothed_rates():
    margin, cells, weight, coefficients = draw(1, n=80)
    gradient = DensityKernel(cells, weight, N_CELLS).gradient(margin, coefficients)[0]
    step, found = 1e-4, np.empty(margin.size)
    for i in range(margin.size):
        ends = []
        for sign in (-1, 1):
            moved = margin.copy()
            moved[i] += sign * step
            table = slow_table(moved, cells, weight, expit)
            ends.append(np.nansum(coefficients * table))
        found[i] = weight.sum() * (ends[1] - ends[0]) / (2 * step)
    np.testing.assert_allclose(gradient, found, rtol=0, atol=1e-5 * np.abs(found).max())


def test_smoothed_table_is_the_mean_over_all_pairs():
    margin, cells, weight, _ = draw(2)
    table = DensityKernel(cells, weight, N_CELLS).table(margin)
    expected = slow_table(margin, cells, weight, expit)
    np.testing.assert_allclose(table, expected, rtol=0, atol=1e-5)
    known = table[:-1, :-1]
    np.testing.assert_allclose(known + known.T, 1.0, rtol=0, atol=1e-12)
    # Far apart the step is all that remains of the logistic function.
    order = np.argsort(np.argsort(margin))
    far = DensityKernel(cells, weight, N_CELLS).table(1e4 * order)
    exact = pair_table(order, cells, weight, N_CELLS)
    inside = ~np.eye(N_CELLS, dtype=bool)
    np.testing.assert_allclose(far[inside], exact[inside], rtol=0, atol=1e-4)


def test_equal_rates_of_opposite_sign_have_no_gradient():
    margin, cells, weight, coefficients = draw(3)
    kernel = DensityKernel(cells, weight, N_CELLS)
    gradient, curvature = kernel.gradient(margin, coefficients + coefficients.T)
    np.testing.assert_array_equal(gradient, 0.0)
    np.testing.assert_array_equal(curvature, 0.0)


def test_density_gradient_of_constant_margins_moves_cells_apart():
    _, cells, _, coefficients = draw(4)
    gradient = DensityKernel(cells, None, N_CELLS).gradient(np.full(cells.size, 3.0), coefficients)
    expected = slow_gradient(np.zeros(cells.size), cells, None, coefficients, density)
    np.testing.assert_allclose(gradient[0], expected, rtol=1e-10)


@pytest.mark.parametrize("end", [np.inf, np.nan])
def test_margins_without_distances_are_refused(end):
    margin, cells, weight, coefficients = draw(5)
    margin[3] = end
    with pytest.raises(ValueError, match="finite numbers"):
        DensityKernel(cells, weight, N_CELLS).gradient(margin, coefficients)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 10.0))
@settings(max_examples=60, deadline=None)
def test_rates_change_no_faster_than_the_sensitivities_say(seed, step):
    margin, cells, weight, _ = draw(seed, n=60)
    rng = np.random.default_rng(seed)
    moved = margin + step * rng.normal(size=margin.size) + rng.normal(size=N_CELLS)[cells]
    coefficients = rng.normal(size=(3, N_CELLS, N_CELLS))
    coefficients[:, -1], coefficients[:, :, -1] = 0.0, 0.0
    kernel = DensityKernel(cells, weight, N_CELLS)
    tables = [slow_table(at, cells, weight, expit)[:-1, :-1] for at in (margin, moved)]
    change = ((tables[1] - tables[0]) * coefficients[:, :-1, :-1]).sum(axis=(1, 2))
    distance = np.sqrt(weight @ (moved - margin) ** 2 / weight.sum())
    found = pair_sensitivities(sparse.csr_array(coefficients.reshape(3, -1)), kernel.density)
    own = sparse.linalg.norm(found, axis=1)
    assert (np.abs(change) <= own * distance + 1e-12).all()
    assert np.linalg.norm(change) <= np.linalg.norm(found.toarray(), 2) * distance + 1e-12


def test_sensitivities_are_reached_by_two_groups_that_part():
    cells = np.repeat([0, 1], 50)
    kernel = DensityKernel(cells, None, 2)
    only = sparse.csr_array(([1.0], ([0], [1])), shape=(1, 4))
    constant = sparse.linalg.norm(pair_sensitivities(only, kernel.density))
    step = 1e-3
    change = expit(2 * step) - 0.5
    assert change == pytest.approx(constant * step, rel=1e-5)


def prices_of(coefficients):
    """Prices of one constraint, as a table."""
    row = sparse.csr_array(coefficients.reshape(1, -1))
    return find_prices(row, N_CELLS).toarray().reshape(coefficients.shape)


def test_prices_of_several_constraints_are_found_one_by_one():
    _, _, _, coefficients = draw(12)
    rows = np.stack([coefficients, -coefficients]).reshape(2, -1)
    found = find_prices(sparse.csr_array(rows), N_CELLS).toarray().reshape(2, N_CELLS, N_CELLS)
    np.testing.assert_array_equal(found[0], prices_of(coefficients))
    np.testing.assert_array_equal(found[1], found[0].T)


@pytest.mark.parametrize(("c1", "c2"), [(0.5, 1.0), (1.0, 0.3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_square_kernel_is_the_sum_over_all_pairs(weighted, c1, c2):
    margin, cells, weight, coefficients = draw(6, weighted=weighted)
    prices = prices_of(coefficients)
    kernel = SquareKernel(cells, weight, N_CELLS, c1=c1, c2=c2)
    expected = slow_table(margin, cells, weight, lambda u: c1 * (-u - c2) ** 2)
    np.testing.assert_allclose(kernel.table(margin), expected, rtol=1e-10)
    gradient, curvature = kernel.gradient(margin, prices)
    expected = slow_gradient(margin, cells, weight, prices, lambda u: -2 * c1 * (-u - c2))
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    # The diagonal of the full Hessian but for what a row adds to the mean of its own cell.
    weights = np.ones(cells.size) if weight is None else weight
    slope = (prices + prices.T)[cells][:, :-1].sum(axis=1)
    expected = 2 * c1 * slope * weights * weights.sum() / kernel.cell_weight[cells]
    np.testing.assert_allclose(curvature, expected, rtol=1e-12)


def test_square_hessian_is_between_zero_and_twice_its_diagonal():
    margin, cells, weight, coefficients = draw(7, n=60)
    prices = prices_of(coefficients)
    kernel = SquareKernel(cells, weight, N_CELLS)
    start, curvature = kernel.gradient(margin, prices)
    full = np.stack(
        [kernel.gradient(margin + row, prices)[0] - start for row in np.eye(margin.size)]
    )
    np.testing.assert_allclose(full, full.T, atol=1e-9)
    products = [kernel.hessian_product(margin, prices, row) for row in np.eye(margin.size)]
    np.testing.assert_allclose(products, full, atol=1e-9)
    diagonal = np.diag(curvature)
    assert np.linalg.eigvalsh(full)[0] > -1e-9
    assert np.linalg.eigvalsh(2 * diagonal - full)[0] > -1e-9


def test_square_kernel_is_the_saddle_form_at_its_optimum():
    margin, cells, weight, _ = draw(8)
    c1, c2, price = 0.5, 1.0, 0.7
    weights = np.bincount(cells, weight, N_CELLS)
    u, v = (np.isin(np.arange(N_CELLS), some) for some in ([0, 1], [1, 3]))
    prices = price * np.outer(weights * v, weights * u) / (weights @ v) / (weights @ u)
    # Min over a and b, max over alpha: equation 7 with the corrected G of twice the root of c1.
    a, b = (np.average(margin[w[cells]], weights=weight[w[cells]]) for w in (u, v))
    alpha = np.sqrt(c1) * (a - b)
    in_u, in_v = (w[cells] * weight.sum() / (weights @ w) for w in (u, v))
    of_u = in_u * (2 * c1 * (margin - a - c2) + 2 * np.sqrt(c1) * alpha)
    of_v = in_v * (2 * c1 * (margin - b + c2) - 2 * np.sqrt(c1) * alpha)
    gradient = SquareKernel(cells, weight, N_CELLS, c1=c1, c2=c2).gradient(margin, prices)[0]
    np.testing.assert_allclose(gradient, price * weight * (of_u + of_v), rtol=0, atol=1e-10)


def saddle_value(h, u, v, c1, c2, factor):
    """Evaluate the saddle form at its optimum, with `factor` in G and the penalty alpha ** 2."""
    m_u, m_v = h[u].mean(), h[v].mean()
    spread = c1 * (h[u].var() + h[v].var())
    linear = c1 * c2**2 - 2 * c1 * c2 * (m_u - m_v)
    return spread + linear + (factor * (m_u - m_v) / 2) ** 2


def test_printed_lemma_1_fails_where_c1_is_not_one():
    rng = np.random.default_rng(9)
    h, u = rng.normal(size=80), np.arange(80) < 30
    h[u] += 1.0
    for c1 in (0.5, 1.0, 2.0):
        pairs = (c1 * (h[u][:, None] - h[~u] - 1.0) ** 2).mean()
        assert saddle_value(h, u, ~u, c1, 1.0, 2 * np.sqrt(c1)) == pytest.approx(pairs, rel=1e-12)
        printed = saddle_value(h, u, ~u, c1, 1.0, 2 * c1)
        error = (c1**2 - c1) * (h[u].mean() - h[~u].mean()) ** 2
        assert printed - pairs == pytest.approx(error, abs=1e-12)
        assert (abs(error) > 0.1) == (c1 != 1.0)


def test_opposite_surrogates_are_at_least_half_on_average():
    margin, cells, weight, _ = draw(10)
    table = SquareKernel(cells, weight, N_CELLS).table(margin)[:-1, :-1]
    assert (table + table.T).min() >= 1.0
    flat = SquareKernel(cells, weight, N_CELLS).table(np.zeros(margin.size))[:-1, :-1]
    np.testing.assert_allclose(flat, 0.5, rtol=1e-12)


def test_prices_are_the_coefficients_up_to_a_constant():
    margin, cells, weight, coefficients = draw(11)
    prices = prices_of(coefficients)
    assert prices.min() >= 0
    table = pair_table(margin, cells, weight, N_CELLS)[:-1, :-1]
    # Opposite entries of the table add up to one, so that C P is M+ P and a constant.
    constant = (coefficients - np.maximum(coefficients - coefficients.T, 0.0))[:-1, :-1]
    constant = (constant + constant.T).sum() / 4
    total = (prices[:-1, :-1] * table).sum() + constant
    assert total == pytest.approx((coefficients[:-1, :-1] * table).sum(), abs=1e-12)
    assert not np.minimum(prices, prices.T).any()
