"""Products of sparse coefficients, against those of scipy."""

import numpy as np
from scipy import sparse

from gbm_constrained.problem.linear_constraints import LinearMap


def test_linear_maps_add_up_as_scipy_does():
    """Products equal scipy's to the last bit, and keep the order that scipy changes in place."""
    rng = np.random.default_rng(0)
    left, right = (
        sparse.random_array(shape, density=0.4, rng=rng, format="csr")[:, ::-1].tocsr()
        for shape in ((6, 9), (9, 7))
    )
    vector, costs = rng.normal(size=9), rng.normal(size=6)
    expected, transposed = left @ vector, left.T @ costs
    of_left = LinearMap.from_csr(left)
    entries, product = of_left.times(LinearMap.from_csr(right))
    left.sort_indices()
    np.testing.assert_array_equal(of_left(vector), expected)
    np.testing.assert_array_equal(of_left.transposed(costs), transposed)
    at = product.row, product.column
    np.testing.assert_allclose(
        sparse.csr_array((product.data, at), shape=product.shape).toarray(),
        (left @ right).toarray(),
        rtol=1e-15,
    )
    other = rng.normal(size=right.nnz)
    right.data[:] = other
    np.testing.assert_allclose(
        sparse.csr_array((entries(other), at), shape=product.shape).toarray(),
        (left @ right).toarray(),
        rtol=1e-14,
        atol=1e-15,
    )


def test_linear_maps_without_entries_give_numbers_of_zero():
    empty = LinearMap.from_csr(sparse.csr_array((2, 3)))
    assert empty(np.ones(3)).dtype == np.float64
    np.testing.assert_array_equal(empty(np.ones(3)), np.zeros(2))
    np.testing.assert_array_equal(empty.transposed(np.ones(2)), np.zeros(3))
