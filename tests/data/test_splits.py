"""Splits of rows: strata of cells, whole groups, and reproducible draws."""

from __future__ import annotations

import numpy as np
import pytest

from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import parts_by_cell, parts_by_group


def cells_of(n, n_classes=3, n_groups=2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(n_classes, size=n, p=rng.dirichlet(np.ones(n_classes) * 2)).astype(np.intp)
    y[:n_classes] = range(n_classes)
    s = rng.integers(0, n_groups, n)
    return Cells(Rows(y, np.arange(n_classes), columns={"s": s}), [["label", ("s",)]])


@pytest.mark.parametrize(
    "shares", [[0.5, 0.5], [0.25] * 4, [0.1] * 10, [0.2, 0.8], [0.25, 0.75], [0.37, 0.63]]
)
@pytest.mark.parametrize("n", [40, 999, 20_000])
def test_each_part_has_its_share_of_each_cell_within_a_row(shares, n):
    for seed in range(3):
        cells = cells_of(n, seed=seed)
        rows = np.sort(np.random.default_rng(seed).permutation(n)[: n - n // 7])
        parts = parts_by_cell(rows, cells, shares, np.random.RandomState(seed))
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
        assert all((np.diff(part) > 0).all() for part in parts)
        counts = [np.bincount(cells.codes[part], minlength=len(cells)) for part in parts]
        whole = np.bincount(cells.codes[rows], minlength=len(cells))
        for share, count in zip(shares, counts, strict=True):
            assert abs(count - share * whole).max() <= 1.0 + 1e-9
            assert abs(count.sum() - share * rows.size) <= 1.0 + 1e-9


def test_parts_are_random_and_reproducible():
    cells = cells_of(500)
    rows = np.arange(500)
    first, again, other = (
        parts_by_cell(rows, cells, [0.2, 0.8], np.random.RandomState(seed))[0]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.intersect1d(first, other).size < 0.5 * first.size
    # Every row may be in every part.
    drawn = np.concatenate(
        [parts_by_cell(rows, cells, [0.2, 0.8], np.random.RandomState(s))[0] for s in range(300)]
    )
    share = np.bincount(drawn, minlength=500) / 300
    assert abs(share - 0.2).max() < 5 * np.sqrt(0.16 / 300)


@pytest.mark.parametrize("share", [0.2, 0.25, 0.3, 1 / 3])
def test_rows_of_small_cells_may_be_in_every_part(share):
    """Of the first cell and of the last as well, though they have fewer rows than parts fit in."""
    cells = cells_of(40, n_classes=5, n_groups=4)
    sizes = np.bincount(cells.codes)
    assert max(sizes[0], sizes[-1]) < 1 / share
    shares = [share, 1.0 - share]
    draws = range(1000)
    drawn = np.zeros(40)
    for seed in draws:
        drawn[parts_by_cell(np.arange(40), cells, shares, np.random.RandomState(seed))[0]] += 1
    chance = np.sqrt(share * (1.0 - share) / len(draws))
    assert abs(drawn / len(draws) - share).max() < 5 * chance


def test_groups_are_not_split():
    cells = cells_of(900, n_classes=2)
    groups = np.random.default_rng(1).integers(0, 60, 900)
    rows = np.arange(30, 900)
    parts = parts_by_group(rows, cells, 4, groups, 900, np.random.RandomState(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
    for i, part in enumerate(parts):
        others = np.concatenate(parts[:i] + parts[i + 1 :])
        assert not np.intersect1d(groups[part], groups[others]).size
        assert abs(part.size - rows.size / 4) < 60
    again = parts_by_group(rows, cells, 4, groups, 900, np.random.RandomState(0))
    for one, two in zip(parts, again, strict=True):
        np.testing.assert_array_equal(one, two)


def test_cells_smaller_than_the_number_of_parts():
    """They are no stratum where groups are kept together, and scikit-learn does not warn."""
    cells = cells_of(200, n_classes=4, n_groups=8)
    groups = np.arange(200) // 3
    parts = parts_by_group(np.arange(200), cells, 5, groups, 200, np.random.RandomState(0))
    assert sum(part.size for part in parts) == 200
