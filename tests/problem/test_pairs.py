"""Pair rates: tables, kernels and rows, against sums over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import random
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import run_on_machines
from pair_kernels import N_CELLS, draw, slow_gradient, slow_hessian_product, slow_table
from pair_references import PairData, count_pairs
from scipy import sparse
from scipy.special import expit, log_softmax
from sklearn.metrics import roc_auc_score

import gbm_constrained as gc
from gbm_constrained import auc, cross_auc, each, gap, mean_rank, ratio
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.pairs import (
    DensityKernel,
    SquareKernel,
    find_prices,
    pair_rate,
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
    kernel.bins = 16
    coarse = kernel.gradient(margin, coefficients)[0]
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
@settings(max_examples=8, deadline=None)
def test_densities_are_within_their_bound(seed, spread, bins):
    margin, cells, weight, _ = draw(seed, n=40, spread=spread)
    kernel = DensityKernel(cells, weight, N_CELLS)
    kernel.bins = bins
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
@settings(max_examples=15, deadline=None)
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
    kernel = SquareKernel(cells, weight, N_CELLS)
    kernel.c1, kernel.c2 = c1, c2
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


EXACT = 1e-12


@st.composite
def rows(draw):
    """Draw scores with ties and infinities, cells with empty ones, and weights with zeros."""
    n = draw(st.integers(0, 200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_cells = draw(st.integers(1, 6))
    scores = rng.normal(size=n).round(draw(st.sampled_from([0, 1, 12])))
    for extreme in draw(st.sets(st.sampled_from([-np.inf, np.inf]))):
        scores[rng.random(n) < 0.1] = extreme
    cells = rng.integers(0, draw(st.integers(1, n_cells)), n)
    weight = rng.uniform(0.0, 3.0, n) * (rng.random(n) < 0.8)
    return scores, cells, weight, n_cells


@given(rows(), st.sampled_from([1, 7, 1 << 18]))
@settings(max_examples=15, deadline=None)
def test_every_entry_is_the_count_of_all_pairs(case, entries):
    scores, cells, weight, n_cells = case
    with pytest.MonkeyPatch.context() as patch:
        # Blocks of few scores: what one block leaves to the next is part of the sum.
        patch.setattr("gbm_constrained.problem.pairs.ENTRIES", entries)
        table = pair_table(scores, cells, weight, n_cells)
    counted = [
        [count_pairs(scores, cells == c, cells == d, weight) for d in range(n_cells)]
        for c in range(n_cells)
    ]
    np.testing.assert_allclose(table, counted, rtol=0, atol=EXACT)
    known = ~np.isnan(table)
    np.testing.assert_allclose((table + table.T)[known], 1.0, rtol=0, atol=EXACT)


@given(rows(), st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_pair_rates_of_overlapping_unions_are_the_count_of_all_pairs(case, seed):
    scores, cells, weight, n_cells = case
    u, v = np.random.default_rng(seed).random((2, n_cells)) < 0.6
    of_cells = np.bincount(cells, weight, n_cells)
    rate = pair_rate(pair_table(scores, cells, weight, n_cells), of_cells * u, of_cells * v)
    expected = count_pairs(scores, u[cells], v[cells], weight)
    np.testing.assert_allclose(rate, expected, rtol=0, atol=EXACT)


@given(rows(), st.integers(1, 50))
@settings(max_examples=15, deadline=None)
def test_binned_tables_are_within_their_bound(case, bins):
    scores, cells, weight, n_cells = case
    exact = pair_table(scores, cells, weight, n_cells)
    binned = pair_table(scores, cells, weight, n_cells, bins=bins)
    finite = scores[np.isfinite(scores)]
    if not finite.size or np.ptp(finite) == 0:
        np.testing.assert_array_equal(binned, exact)
        return
    width = np.ptp(finite) / bins
    inside = np.clip(scores, finite.min() - width, finite.max() + width)
    at = np.floor((inside - finite.min()) / width)
    shares = np.zeros((n_cells, bins + 3))
    np.add.at(shares, (cells, at.astype(int) + 1), weight)
    with np.errstate(invalid="ignore"):
        shares /= shares.sum(axis=1, keepdims=True)
    known = ~np.isnan(exact)
    assert (known == ~np.isnan(binned)).all()
    bound = 0.5 * shares @ shares.T
    assert (np.abs(binned - exact)[known] <= bound[known] + EXACT).all()


def test_many_bins_come_close_to_the_exact_table():
    rng = np.random.default_rng(0)
    scores, cells = rng.normal(size=50_000), rng.integers(0, 8, 50_000)
    error = np.abs(
        pair_table(scores, cells, None, 8, bins=4096) - pair_table(scores, cells, None, 8)
    )
    assert error.max() < 2e-5


def test_equal_scores_are_all_ties():
    table = pair_table(np.full(5, 7.0), np.array([0, 0, 2, 2, 2]), None, 3)
    np.testing.assert_array_equal(table[[0, 0, 2, 2], [0, 2, 0, 2]], 0.5)
    assert np.isnan(table[1]).all()
    assert np.isnan(table[:, 1]).all()


def test_unions_without_weight_have_no_rate():
    table = pair_table(np.arange(4.0), np.array([0, 0, 1, 1]), None, 2)
    assert np.isnan(pair_rate(table, [2.0, 0.0], [0.0, 0.0]))
    assert pair_rate(table, [2.0, 0.0], [0.0, 2.0]) == 0.0


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="1 of 3 are NaN"):
        pair_table(np.array([0.0, np.nan, 1.0]), np.zeros(3, int), None, 1)


SMALL = {"min_group_size": 1}


@pytest.mark.parametrize("weighted", [False, True])
def test_auc_of_rows_is_that_of_scikit_learn(weighted):
    data = PairData(weighted=weighted)
    expected = roc_auc_score(data.y, data.margin, sample_weight=data.weight)
    assert data.value(auc() >= 0.5) == pytest.approx(expected, abs=1e-12)
    assert data.value(auc(0) >= 0.5) == pytest.approx(expected, abs=1e-12)
    # A class is ranked by its own score: that of class 0 falls with the margin.
    assert data.value(auc(0, on={"sex": "F"}) >= 0.5) == pytest.approx(
        data.count((data.y == 1) & (data.sex == "F"), (data.y == 0) & (data.sex == "F")), abs=1e-12
    )


def sides(data, rate, inside):
    """The masks of both sides of a rate in one group, by hand."""
    positive, everyone = data.y == 1, np.ones(data.y.size, dtype=bool)
    return {
        "auc": (positive & inside, ~positive & inside),
        "cross": (positive & inside, ~positive & ~inside),
        "cross negatives": (positive & ~inside, ~positive & inside),
        "cross all": (positive & inside, ~positive),
        "rank": (inside, everyone),
        "rank of positives": (positive & inside, positive),
    }[rate]


RATES = {
    "auc": auc(),
    "cross": cross_auc(),
    "cross negatives": cross_auc(group="negatives"),
    "cross all": cross_auc(background="all"),
    "rank": mean_rank(),
    "rank of positives": mean_rank(on=gc.label(1)),
}


@random(8)
@given(st.integers(0, 10_000), st.sampled_from([*RATES]), st.sampled_from(["sex", "region"]))
def test_functionals_of_groups(seed, name, by):
    data = PairData(seed)
    column = getattr(data, by)
    expected = [data.count(*sides(data, name, column == g)) for g in np.unique(column)]
    rule = gap(RATES[name], by=by, **SMALL) <= 0.1
    np.testing.assert_allclose(data.functionals(rule), expected, rtol=0, atol=1e-12)
    assert data.value(rule) == pytest.approx(np.ptp(expected), abs=1e-12)
    worst = each(RATES[name], by=by, **SMALL) >= 0.1
    assert data.value(worst) == pytest.approx(min(expected), abs=1e-12)
    quotient = ratio(RATES[name], by=by, **SMALL) >= 0.1
    assert data.value(quotient) == pytest.approx(min(expected) / max(expected), abs=1e-12)


def test_identities_of_the_metrics():
    """Examples 1, 2, 4 and 5 of the source paper, with two groups."""
    data = PairData(3)
    F, positive = data.sex == "F", data.y == 1
    group_auc = data.count(F, ~F)
    rule = gap(mean_rank(), by="sex", **SMALL) <= 0.1
    assert data.value(rule) == pytest.approx(abs(group_auc - 0.5), abs=1e-12)
    equality = gap(mean_rank(on=gc.label(1)), by="sex", reference=gc.overall, **SMALL) <= 0.1
    *of_groups, of_all = data.functionals(equality)
    assert of_all == pytest.approx(0.5, abs=1e-12)
    assert of_groups[0] == pytest.approx(data.count(positive & F, positive), abs=1e-12)
    background = auc(negatives={"sex": "F"}) - auc(positives={"sex": "F"}) <= 0.1
    expected = data.count(positive, ~positive & F) - data.count(positive & F, ~positive)
    assert data.value(background) == pytest.approx(expected, abs=1e-12)
    # With the complement as background, the two sides of one group are the inter-group pairs.
    crossed = data.functionals(gap(cross_auc(), by="sex", **SMALL) <= 0.1)
    assert crossed[0] == pytest.approx(data.count(positive & F, ~positive & ~F), abs=1e-12)
    assert crossed[1] == pytest.approx(data.count(positive & ~F, ~positive & F), abs=1e-12)


def test_masks_and_views_beside_other_rates():
    """Rates in one fit share views; cells that no pair rate tells apart are one part."""
    data = PairData(4)
    mask = np.random.default_rng(0).random(data.y.size) < 0.6
    rules = [
        gap(auc(), by="sex", **SMALL) <= 0.1,
        gap(gc.fpr(), by="region", **SMALL) <= 0.1,
        auc(on=mask) >= 0.5,
        gc.log_loss() <= 0.5,
    ]
    lagrangian = data.lagrangian(*rules)
    compiled = lagrangian.constraints
    statistics = lagrangian.at(data.margin).statistics()
    found = compiled.values(compiled.functionals(statistics))
    positive = data.y == 1
    groups = data.sex == "F", data.sex == "M"
    of_sex = [data.count(positive & own, ~positive & own) for own in groups]
    assert found[0] == pytest.approx(abs(of_sex[0] - of_sex[1]), abs=1e-12)
    assert found[2] == pytest.approx(data.count(positive & mask, ~positive & mask), abs=1e-12)
    alone = data.lagrangian(rules[1], rules[3])
    others = alone.constraints.values(
        alone.constraints.functionals(alone.at(data.margin).statistics())
    )
    np.testing.assert_allclose(found[[1, 3]], others, rtol=0, atol=1e-12)
    assert sum(block.n_parts for block in compiled.pair_blocks) <= 8


@pytest.mark.parametrize("change", ["order", "groups", "constant", "weights", "repetition"])
def test_invariances(change):
    data, rng = PairData(5), np.random.default_rng(0)
    rules = [gap(rate, by="sex", **SMALL) <= 0.1 for rate in RATES.values()]
    before = data.functionals(*rules)
    if change == "order":
        order = rng.permutation(data.y.size)
        for name in ("y", "sex", "region", "weight", "margin"):
            setattr(data, name, getattr(data, name)[order])
    elif change == "groups":
        data.sex = np.where(data.sex == "F", "a", "b")
    elif change == "constant":
        data.margin = data.margin + 0.5
    elif change == "weights":
        data.weight = 2 * data.weight
    else:
        data.weight = rng.integers(0, 3, data.y.size).astype(float)
        before = data.functionals(*rules)
        times = data.weight.astype(int)
        for name in ("y", "sex", "region", "margin"):
            setattr(data, name, np.repeat(getattr(data, name), times))
        data.weight = None
    np.testing.assert_allclose(data.functionals(*rules), before, rtol=0, atol=1e-12)


def test_tables_of_many_rows_are_from_bins_in_training():
    data = PairData(6, n=60_000)
    data.margin = np.random.default_rng(0).normal(size=data.y.size)
    lagrangian = data.lagrangian(gap(auc(), by="region", **SMALL) <= 0.1)
    exact = lagrangian.rows.pairs.tables(data.margin)
    binned = lagrangian.at(data.margin).statistics().pairs
    np.testing.assert_allclose(binned, exact, rtol=0, atol=1e-5)
    assert not np.array_equal(binned, exact)


@pytest.mark.parametrize("name", [*RATES])
def test_lipschitz_constants_bound_changes(name):
    data = PairData(9)
    lagrangian = data.lagrangian(gap(RATES[name], by="region", **SMALL) <= 0.1)
    own, coupled = lagrangian.constants.lipschitz()
    rng = np.random.default_rng(2)
    largest = np.zeros(own.size)
    for size in (0.01, 0.1, 1.0):
        for _ in range(3):
            start = size * rng.normal(size=data.margin.size)
            end = start + size * rng.normal(size=data.margin.size)
            moved = [
                abs(
                    lagrangian.rows.pairs.value(row, end) - lagrangian.rows.pairs.value(row, start)
                )
                for row in np.eye(own.size)
            ]
            largest = np.maximum(largest, moved / np.sqrt(2 * lagrangian.bregman(end, start)))
    assert (largest <= own * (1 + 1e-9)).all()
    assert (own > 0).all()
    assert coupled >= 1.0


def test_constant_scores_and_empty_parts():
    data = PairData(10)
    data.margin = np.zeros(data.y.size)
    rules = [auc() >= 0.5, gap(mean_rank(), by="sex", **SMALL) <= 0.1]
    np.testing.assert_allclose(data.functionals(*rules), 0.5, rtol=0, atol=1e-12)
    lagrangian = data.lagrangian(*rules)
    gradient, _ = lagrangian.at(data.margin).gradient(np.ones(3))
    assert np.isfinite(gradient).all()
    part = lagrangian.cells.take(np.flatnonzero(data.sex == "F"))
    left = lagrangian.constraints.on(part)
    assert left.is_known.tolist() == [True, False, False]


def test_several_machines_are_refused():
    def compile_part(communicator):
        rows = PairData().rows
        rows.machine = Machine(communicator)
        compile_constraints([auc() >= 0.5], rows)

    with pytest.raises(ValueError, match="train on one machine"):
        run_on_machines(compile_part, 2)


PROXIES = ("auto", "square")
STEPS = {"auto": expit, "square": lambda u: 0.5 * (u + 1.0) ** 2}


def rules(label):
    return [
        gap(auc(label), by="sex", min_group_size=1) <= 0.1,
        gap(cross_auc(label), by="sex", min_group_size=1) <= 0.1,
        gap(mean_rank(label), by="region", min_group_size=1) <= 0.1,
    ]


def pair_mass(data, label):
    """What each ordered pair of rows adds to each row of the rules, (m, n, n), opposites net."""
    weight = np.ones(data.y.size) if data.weight is None else data.weight
    positive = data.y == label

    def mass(first, second):
        table = np.outer(weight * first, weight * second)
        return table / table.sum()

    groups = [data.sex == "F", data.sex == "M"]
    sides = [
        [mass(positive & own, ~positive & own) for own in groups],
        [mass(positive & own, ~positive & ~own) for own in groups],
        [mass(data.region == name, np.ones(data.y.size)) for name in "abc"],
    ]
    tables = [a - b for rates in sides for a in rates for b in rates if a is not b]
    return np.array([np.maximum(table - table.T, 0.0) for table in tables])


def scores_of(margin, label):
    if margin.ndim == 1:
        return margin
    of_label = log_softmax(margin, axis=1)[:, label]
    return of_label - np.log1p(-np.exp(of_label))


@pytest.fixture(params=[2, 3], ids=["two classes", "three classes"])
def case(request):
    """Rows, the label that is ranked, and multipliers of which opposite ones are not alike."""
    data = PairData(11, n=70, n_classes=request.param)
    multipliers = np.random.default_rng(1).gamma(1.0, size=10)
    return data, 1, multipliers


@pytest.mark.parametrize("proxy", PROXIES)
def test_the_value_is_the_sum_over_all_pairs(case, proxy):
    data, label, multipliers = case
    lagrangian = data.lagrangian(*rules(label), proxy=proxy)
    moved = data.margin + np.random.default_rng(2).normal(size=data.margin.shape)
    mass = np.tensordot(multipliers, pair_mass(data, label), 1)
    found, expected = [], []
    for margin in (data.margin, moved):
        at = lagrangian.at(margin)
        found.append(at.value(multipliers) - at.value(np.zeros(10)))
        score = scores_of(margin, label)
        expected.append((mass * STEPS[proxy](score[:, None] - score)).sum())
    # Values are known up to a constant: opposite entries of the table of pairs add up to one.
    assert found[1] - found[0] == pytest.approx(
        expected[1] - expected[0], abs=1e-5 if proxy == "auto" else 1e-10
    )


@pytest.mark.parametrize("proxy", PROXIES)
def test_derivatives_are_differences(case, proxy):
    """Gradients of the sum over all pairs, and Hessian products of the gradient."""
    data, label, multipliers = case
    lagrangian = data.lagrangian(*rules(label), proxy=proxy)
    mass = np.tensordot(multipliers, pair_mass(data, label), 1)
    zeros, rng = np.zeros(10), np.random.default_rng(3)

    def slow(margin):
        score = scores_of(margin, label)
        at = lagrangian.at(margin)
        return at.value(zeros) + (mass * STEPS[proxy](score[:, None] - score)).sum()

    gradient, curvature = (x.copy() for x in lagrangian.at(data.margin).gradient(multipliers))
    assert (curvature >= 0).all()
    h, tolerance = 1e-5, 1e-4 if proxy == "auto" else 1e-7
    for _ in range(5):
        u = rng.normal(size=data.margin.shape)
        expected = (slow(data.margin + h * u) - slow(data.margin - h * u)) / (2 * h)
        found = (gradient * u).sum() / lagrangian.total_weight
        assert found == pytest.approx(expected, abs=tolerance)

    # Differences of interpolated densities are those of a table: a wider step averages over it.
    h, tolerance = (3e-2, 3e-3) if proxy == "auto" else (1e-5, 1e-6)
    u = rng.normal(size=data.margin.shape)
    up, down = (
        lagrangian.at(data.margin + d * u).gradient(multipliers)[0].copy() for d in (h, -h)
    )
    expected = (up - down) / (2 * h)
    product = lagrangian.at(data.margin).hessian_product(multipliers, u)
    np.testing.assert_allclose(product, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_opposite_surrogates_do_not_cancel():
    data = PairData(12, n=60)
    rule = gap(auc(), by="sex", min_group_size=1) <= 0.1
    both = np.array([1.0, 1.0])
    for proxy, cancels in (("auto", True), ("square", False)):
        lagrangian = data.lagrangian(rule, proxy=proxy)
        bare = lagrangian.at(data.margin).gradient(np.zeros(2))[0].copy()
        gradient, _ = lagrangian.at(data.margin).gradient(both)
        assert np.allclose(gradient, bare, rtol=0, atol=1e-12) == cancels


@pytest.mark.parametrize("proxy", ["logistic", "sigmoid", "ramp"])
def test_pair_rates_have_the_density_under_the_proxies_of_other_rates(proxy):
    data = PairData(12, n=60)
    found = [
        data.lagrangian(auc() >= 0.6, proxy=name).at(data.margin).gradient(np.ones(1))
        for name in ("auto", proxy)
    ]
    np.testing.assert_array_equal(*found)


def test_other_rates_have_the_proxies_of_auto_beside_the_square():
    data = PairData(13, n=60)
    others = [gc.selection_rate() <= 0.3, gc.fnr() <= 0.3]
    found = [
        data.lagrangian(auc() >= 0.6, *others, proxy=proxy).rows.is_bounded.tolist()
        for proxy in PROXIES
    ]
    assert found[0] == found[1]
    assert found[0][1:] == [True, False]


def test_slopes_are_geometric_means_of_those_of_rate_and_proxy():
    data = PairData(14, n=60)
    margin = 2 * data.margin
    rule = gap(cross_auc(), by="sex", min_group_size=1) <= 0.1
    density, square = (data.lagrangian(rule, proxy=proxy).rows.pairs for proxy in PROXIES)
    positive, F = data.y == 1, data.sex == "F"
    cells = [positive & F, positive & ~F, ~positive & F, ~positive & ~F]
    means = [np.average(margin[c], weights=data.weight[c]) for c in cells]
    largest = [
        max(
            np.average((margin[c] - m + sign) ** 2, weights=data.weight[c])
            for m in means[:i] + means[i + 1 :]
            for sign in (-1, 1)
        )
        for i, c in enumerate(cells)
    ]
    of_rate = density.slopes(margin)
    assert (of_rate <= 0.25).all()
    at = of_rate > 0
    found = square.slopes(margin)[at] ** 2 / of_rate[at]
    np.testing.assert_allclose(np.sort(found), np.sqrt(sorted(largest)), rtol=1e-10)

    # Scores that are close together: the proxy is flat, and the rate is not.
    centred = margin - np.average(margin, weights=data.weight)
    width = np.sqrt(np.average(centred**2, weights=data.weight)) / 2
    near = density.slopes(1e-3 * margin / width)[at]
    steep = density.slopes(margin / width)[at]
    np.testing.assert_allclose(near, np.sqrt(0.25 * steep * 1e3), rtol=1e-5)
    assert density.slopes(np.zeros(margin.size))[at] == pytest.approx(0.25)


@pytest.mark.parametrize("solver", [gc.solvers.ABPP, gc.solvers.AutoSolver])
def test_the_square_is_refused_without_a_pair_rate(solver):
    data = PairData(15, n=60)
    method = solver(proxy="square")
    method.check()
    method.check_problem(data.lagrangian(auc() >= 0.5, gc.fnr() <= 0.2).constraints)
    with pytest.raises(ValueError, match="proxy='square' is a surrogate of pair rates"):
        method.check_problem(data.lagrangian(gc.fnr() <= 0.2).constraints)
