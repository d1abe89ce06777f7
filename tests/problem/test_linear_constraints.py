"""Linear rows of constraints, and their values."""

from __future__ import annotations

import numpy as np
import pytest
from random_rows import draw, log_probability, measure
from scipy import sparse

import gbm_constrained as gc
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import SMALL_MATRIX, product_with


def part_with_empty_cells():
    """Rows of which a part is taken that has nobody of class 1 in group a, nor of group c."""
    y, margin, weight, _ = draw(2, n=400)
    group = np.random.default_rng(1).choice(list("abc"), y.size, p=[0.2, 0.5, 0.3])
    group[:6], y[:6] = list("aabbcc"), [0, 1] * 3
    kept = np.flatnonzero(((y == 0) | (group != "a")) & (group != "c") & (np.arange(400) % 3 > 0))
    return y, margin, weight, group, kept


@pytest.mark.parametrize("weighted", [False, True])
def test_what_a_part_leaves_empty_is_stood_for_by_the_other_cells(weighted):
    """Row by row: means of the cells that have rows, in their shares of the whole."""
    y, margin, weight, group, kept = part_with_empty_cells()
    own = weight if weighted else np.ones(y.size)
    rules = [
        gc.recall() >= 0.5,
        gc.fnr(on={"g": "a"}) <= 0.5,
        gc.gap(gc.recall(), by="g") <= 0.1,
        gc.gap(gc.fpr(), by="g") <= 0.1,
        gc.fpr() + gc.recall() <= 1.2,
        gc.log_loss(on=gc.label(1)) <= 0.5,
        gc.log_loss(on=gc.label(1)) - gc.log_loss(on=gc.label(0)) <= 0.1,
        gc.log_loss(on={"g": "c"}) <= 0.5,
        gc.error_rate() + gc.log_loss() <= 2,
        gc.log_loss() - 0.5 * gc.log_loss(on={"g": "b"}) <= 1,
        gc.log_loss(on={"g": "b"}) + gc.log_loss(on={"g": "c"}) <= 2,
    ]
    rows = Rows(y, np.arange(2), weight if weighted else None, {"g": group})
    cells, compiled = compile_constraints(rules, rows)
    part = cells.take(kept)
    found = compiled.on(part)
    lagrangian = Lagrangian(y[kept], part, found, weight=own[kept])
    functionals = found.functionals(lagrangian.at(margin[kept]).statistics())
    loss = -log_probability(margin)[np.arange(y.size), y]

    def mean(values, label=None, groups="abc"):
        inside = np.isin(group, list(groups)) & ((y == label) if label is not None else True)
        total = share = 0.0
        for c in {*zip(y[inside], group[inside], strict=True)}:
            of_cell = (y == c[0]) & (group == c[1])
            at = kept[of_cell[kept]]
            if at.size:
                total += own[of_cell].sum() * np.average(values[at], weights=own[at])
                share += own[of_cell].sum()
        return total / share if share else np.nan

    positive = (margin > 0).astype(float)
    caught, alarms = mean(positive, 1), mean(positive, 0)
    expected = [
        caught, np.nan, np.nan, mean(positive, 1, "b"), np.nan, mean(positive, 0, "a"),
        mean(positive, 0, "b"), np.nan, alarms + caught, mean(loss, 1),
        mean(loss, 1) - mean(loss, 0), np.nan, mean(positive != y) + mean(loss),
        mean(loss) - 0.5 * mean(loss, None, "b"), np.nan,
    ]  # fmt: skip
    np.testing.assert_allclose(functionals, expected, atol=1e-12)
    violations = dict(zip(found.rows, found.rows_of(functionals) - found.b, strict=True))
    silent = {name for name, value in violations.items() if value == 0.0}
    told = {
        "recall >= 0.5", "fpr[g=a] - fpr[g=b] <= 0.1", "fpr[g=b] - fpr[g=a] <= 0.1",
        "fpr + recall <= 1.2", "log_loss[y=1] <= 0.5",
        "log_loss[y=1] - log_loss[y=0] <= 0.1", "error_rate + log_loss <= 2",
        "log_loss - 0.5 * log_loss[g=b] <= 1",
    }  # fmt: skip
    assert silent == set(compiled.rows) - told
    again = found.on(part)
    np.testing.assert_allclose((found.U - again.U).toarray(), 0.0, atol=1e-15)
    assert compiled.on(cells.take(np.arange(y.size)[::-1])) is compiled


def test_violations_are_rates_minus_bounds():
    y, margin, weight, _ = draw(3, seed=9)
    constraints = [gc.class_error(1) <= 0.25, gc.log_loss() <= 1.5]
    cells, compiled = compile_constraints(constraints, Rows(y, np.arange(3), weight))
    assert len(compiled) == 2
    statistics = Lagrangian(y, cells, compiled, weight=weight).at(margin).statistics()
    rates = measure(constraints, y, margin, weight)
    np.testing.assert_allclose(compiled.violations(statistics), rates - [0.25, 1.5], rtol=1e-12)


def test_compiled_tables_by_hand():
    """Weights 1, 1, 2 of class 0 and 4 of class 1: shares within and over cells."""
    y, weight = np.array([0, 0, 0, 1]), np.array([1.0, 1.0, 2.0, 4.0])
    constraints = [gc.class_error(0) <= 0.1, gc.error_rate() <= 0.2, gc.log_loss() <= 0.3]
    _, compiled = compile_constraints(constraints, Rows(y, np.arange(2), weight))
    A = compiled.A.toarray().reshape(3, 2, 2)
    assert A.tolist() == [[[0, 1], [0, 0]], [[0, 0.5], [0.5, 0]], [[0, 0], [0, 0]]]
    assert compiled.cost_range.toarray().tolist() == [[1, 0], [0.5, 0.5], [0, 0]]
    assert compiled.B.toarray().tolist() == [[0, 0], [0, 0], [0.5, 0.5]]
    assert compiled.b.tolist() == [0.1, 0.2, 0.3]
    statistics = CellStatistics(
        np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([9.0, 9.0]), np.array([1.0, 3.0])
    )
    assert compiled.rates(statistics).tolist() == [0.25, 0.375, 2.0]
    functionals = compiled.functionals(statistics)
    assert compiled.values(functionals).tolist() == [0.25, 0.375, 2.0]
    assert compiled.rows == ("class_error(0) <= 0.1", "error_rate <= 0.2", "log_loss <= 0.3")
    assert compiled.owner.tolist() == [0, 1, 2]


def test_sensitivities_by_hand():
    """|share| kappa / sqrt(fraction of the weight), zero for cells without weight."""
    y, weight = np.array([0, 0, 1, 2]), np.array([1.0, 2.0, 9.0, 0.0])
    constraints = [
        gc.class_error(0) <= 0.1,
        gc.log_loss(on=gc.label(1)) <= 0.1,
        gc.error_rate() <= 0.1,
    ]
    cells, compiled = compile_constraints(constraints, Rows(y, np.arange(3), weight))
    lagrangian = Lagrangian(y, cells, compiled, weight=weight)
    rates, losses, _ = (part.toarray() for part in lagrangian.constants.reactions)
    root, kappa = np.sqrt([0.25, 0.75]), np.sqrt(2) / 4
    of_rates = kappa * np.array([[1 / root[0], 0, 0], [0, 0, 0], [*root, 0]])
    of_losses = np.array([[0, 0, 0], [0, 1 / root[1], 0], [0, 0, 0]])
    np.testing.assert_allclose(rates, of_rates, rtol=1e-14)
    np.testing.assert_allclose(losses, of_losses, rtol=1e-14)
    for slope, found in (
        (np.sqrt(2), lagrangian.constants.lipschitz()),
        (3.0, lagrangian.constants.lipschitz(3.0)),
    ):
        expected = of_rates + slope * of_losses
        own = np.linalg.norm(expected, axis=1)
        np.testing.assert_allclose(found[0], own, rtol=1e-14)
        assert found[1] == pytest.approx(np.linalg.norm(expected / own[:, None], 2), rel=1e-14)
    expected = of_rates + np.sqrt(2) * of_losses
    np.testing.assert_allclose(lagrangian.constants.sensitivities.toarray(), expected, rtol=1e-14)


def test_opposite_rows():
    """All that there are, each once; brute force."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    columns = {"two": rng.integers(0, 2, 400), "four": rng.integers(0, 4, 400)}
    cases = {
        gc.gap(gc.error_rate(), by="two") <= 0.1: 1,
        gc.gap(gc.recall(), by="four") <= 0.1: 6,
        gc.gap(gc.fpr(), by="four", reference=2) <= 0.1: 3,
        gc.gap(gc.log_loss(), by="two") <= 0.1: 1,
        gc.ratio(gc.selection_rate(), by="two") >= 0.8: 0,
        gc.fnr() <= 0.1: 0,
    }
    for some in [*([rule] for rule in cases), [*cases], [*cases, *cases]]:
        _, compiled = compile_constraints(some, Rows(y, np.arange(2), None, columns))
        first, second = compiled.opposites
        table = compiled.R.toarray()
        np.testing.assert_array_equal(table[first], -table[second])
        assert np.unique([first, second]).size == 2 * first.size
        assert first.size == sum(cases[rule] for rule in some)
        left = np.delete(table, np.concatenate([first, second]), axis=0)
        assert not any((left == -row).all(axis=1).any() for row in left)


@pytest.mark.parametrize("shape", [(7, 9), (1, 4), (5, 1), (0, 3), (130, 140), (140, 130)])
def test_products_of_constraints_are_those_of_scipy(shape):
    """To the last bit, whether a matrix is small or large, and where scipy sorts it in place."""
    rng = np.random.default_rng(0)
    matrix = sparse.random_array(shape, density=0.6, format="csr", rng=rng)
    assert (matrix.nnz > SMALL_MATRIX) == (shape[0] >= 130)
    matrix.indices[:2] = matrix.indices[:2][::-1].copy()
    across, down = rng.normal(size=shape[1]), rng.normal(size=shape[0])
    expected = matrix @ across, matrix.T @ down
    products = product_with(matrix), product_with(matrix, transposed=True)
    if matrix.nnz <= SMALL_MATRIX:
        matrix.sort_indices()
    assert np.array_equal(products[0](across), expected[0])
    assert np.array_equal(products[1](down), expected[1])
