"""Partitions of rows into cells."""

import numpy as np
import pytest
from random_rows import N, decisions, draw, measure, some_constraints

import gbm_constrained as gc
from gbm_constrained.constraints.selectors import Mask
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_small_and_large_numbers_of_cells_are_summed_alike(n_classes, dtype):
    """The two ways of summing by cell agree: idle masks make more cells, and other sums."""
    y, margin, weight, masks = draw(n_classes, n=3000, seed=4)
    idle = np.random.default_rng(4).random((3, 3000)) < 0.5
    few = some_constraints(n_classes, [masks[0], masks[0]])
    many = [*few, *(gc.error_rate(on=mask) <= 0.1 for mask in idle)]
    assert n_cells(few, y, n_classes) <= 12
    assert n_cells(many, y, n_classes) > 12
    tables = [
        measure(constraints, y, margin.astype(dtype), weight, dtype=dtype)[: len(few)]
        for constraints in (few, many)
    ]
    np.testing.assert_allclose(*tables, rtol=1e-6 if dtype == np.float32 else 1e-12)


def n_cells(constraints, y, n_classes):
    return len(compile_constraints(constraints, Rows(y, np.arange(n_classes)))[0])


def test_more_cells_than_a_byte_can_number():
    """Eight masks make 512 cells; their sums are right and add up to those of the rows."""
    rng = np.random.default_rng(5)
    y, margin, weight, _ = draw(2, n=4000, seed=5)
    masks = rng.random((8, 4000)) < 0.5
    constraints = [gc.error_rate(on=mask) <= 0.1 for mask in masks]
    cells, _ = compile_constraints(constraints, Rows(y, np.arange(2), weight))
    assert len(cells) == 512
    sums = cells.sum_by_cell(margin, slice(0, 4000))
    expected = [margin[cells.codes == c].sum() for c in range(512)]
    np.testing.assert_allclose(sums, expected, atol=1e-12)
    found = measure(constraints, y, margin, weight)
    wrong = (decisions(margin) != y) * weight
    np.testing.assert_allclose(found, masks @ wrong / (masks @ weight), rtol=1e-12)


def test_the_sum_of_a_block_is_that_of_its_rows_alone():
    y, _, weight, masks = draw(3, seed=6)
    rule = gc.error_rate(on=masks[0]) <= 0.1
    cells, _ = compile_constraints([rule], Rows(y, np.arange(3), weight))
    parts = [cells.sum_by_cell(weight[s], s) for s in (slice(0, 17), slice(17, N))]
    np.testing.assert_allclose(sum(parts), cells.weight, rtol=1e-12)


def test_cells_are_the_rows_that_share_label_and_masks():
    """Each combination has one cell, whether a row is in it or not."""
    y, _, weight, masks = draw(3, seed=7)
    constraints = [gc.error_rate(on=masks[0]) <= 0.1, gc.class_error(0, on=masks[1]) <= 0.1]
    constraints.append(gc.log_loss(on=masks[0]) <= 0.1)
    cells, _ = compile_constraints(constraints, Rows(y, np.arange(3), weight))
    assert len(cells) == 3 * 2 * 2
    (view,) = cells.views
    keys = [Mask.from_array(mask) for mask in masks]
    assert set(view.levels) == {"label", *keys}
    for i, c in enumerate(cells.codes):
        assert cells.labels[c] == y[i]
        assert [bool(view.levels[key][c]) for key in keys] == masks[:, i].tolist()
    attributes = {
        (cells.labels[c], *(bool(view.levels[key][c]) for key in keys)) for c in range(len(cells))
    }
    assert len(attributes) == len(cells)
    np.testing.assert_allclose(cells.weight, np.bincount(cells.codes, weight, len(cells)))
    assert cells.count.tolist() == np.bincount(cells.codes, minlength=len(cells)).tolist()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1001])
def test_the_size_of_a_mask_is_its_number_of_rows(n):
    """Bits beyond the last row do not count."""
    rows = np.random.default_rng(n).random(n) < 0.4
    packed = bytearray(Mask.from_array(rows).packed)
    assert Mask(bytes(packed), n).size == rows.sum()
    if n % 8:
        packed[-1] |= 1
    mask = Mask(bytes(packed), n)
    assert mask.size == rows.sum()
    assert mask.to_array().tolist() == rows.tolist()


def test_a_mask_given_twice_adds_no_cells():
    y, *_, masks = draw(2)
    one = [gc.error_rate(on=masks[0]) <= 0.1]
    two = [*one, gc.fnr(on=masks[0].copy()) <= 0.2]
    for constraints in (one, two, [*one, *two]):
        cells, _ = compile_constraints(constraints, Rows(y, np.arange(2)))
        assert len(cells) == 4
    cells, _ = compile_constraints([gc.error_rate(on=(masks[0], masks[0])) <= 0.1], cells.rows)
    assert len(cells) == 4


def test_cells_without_rows_change_nothing():
    """A mask that is a class leaves half of the combinations empty."""
    y, margin, weight, _ = draw(2, seed=8)
    found = measure([gc.error_rate(on=y == 1) <= 0.1, gc.fnr() <= 0.1], y, margin, weight)
    assert found[0] == pytest.approx(found[1], rel=1e-14)
