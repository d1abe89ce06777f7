"""Rows in cells, and sums over all pairs of them for kernels of pair rates."""

from __future__ import annotations

import numpy as np

N_CELLS = 5


def draw(seed, n=200, spread=2.0, weighted=True):
    """Draw margins with ties, cells of which the last is empty, weights, and a derivative."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, N_CELLS - 1, n)
    margin = spread * rng.standard_t(3, size=n) + cells
    margin[::7] = margin[0]
    weight = rng.gamma(2.0, size=n) if weighted else None
    return margin, cells, weight, rng.normal(size=(N_CELLS, N_CELLS))


def mean_over_pairs(values, cells, weight):
    """Average a table of pairs of rows by the cells of both; NaN for empty cells."""
    weight = np.ones(cells.size) if weight is None else weight
    inside = np.where(cells == np.arange(N_CELLS)[:, None], weight, 0.0)
    total = inside.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return inside @ values @ inside.T / np.outer(total, total)


def slow_table(margin, cells, weight, step):
    """Average a function of the differences of all pairs."""
    return mean_over_pairs(step(margin[:, None] - margin), cells, weight)


def slow_gradient(margin, cells, weight, coefficients, slope):
    """Differentiate ``sum(coefficients * table)`` in each margin, times the weight of all rows."""
    weight = np.ones(cells.size) if weight is None else weight
    of_cells = np.bincount(cells, weight, N_CELLS)[cells]
    mass = np.outer(weight / of_cells, weight / of_cells)
    of_pairs = coefficients[cells[:, None], cells] * mass * slope(margin[:, None] - margin)
    return weight.sum() * (of_pairs.sum(axis=1) - of_pairs.sum(axis=0))


def slow_hessian_product(margin, cells, weight, coefficients, direction, curvature):
    """Differentiate :func:`slow_gradient` along a direction, given the second derivative."""
    weight = np.ones(cells.size) if weight is None else weight
    mass = np.outer(*2 * [weight / np.bincount(cells, weight, N_CELLS)[cells]])
    of_pairs = coefficients[cells[:, None], cells] * mass * curvature(margin[:, None] - margin)
    of_pairs *= direction[:, None] - direction
    return weight.sum() * (of_pairs.sum(axis=1) - of_pairs.sum(axis=0))
