"""Square surrogate of pair rates, against sums over all pairs of rows."""

from __future__ import annotations

import numpy as np
import pytest
from pair_kernels import N_CELLS, draw, slow_gradient, slow_table
from scipy import sparse

from gbm_constrained.problem.pairs import SquareKernel, find_prices, pair_table


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
