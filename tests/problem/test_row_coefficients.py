"""Coefficients of rows from several views."""

import numpy as np
import pytest
from lagrangians import (
    CASES,
    CLIP,
    build,
    draw,
    sixty_four,
    spread_over_views,
)

import gbm_constrained as gc


@pytest.mark.parametrize("clip", [None, CLIP])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n_classes", "proxy"), [c for c in CASES if c[0] <= 3])
def test_several_views_are_one(n_classes, weighted, proxy, clip):
    """Constraints in several views have the derivatives and the counts of one partition.

    At scores that move, so that decisions are; under multipliers of all kinds of constraints, then
    of one kind alone, whose coefficients must not remember the others.
    """
    n = 3000
    y, _, weight, _ = draw(n_classes, n=n, seed=21)
    rng = np.random.default_rng(22)
    masks = rng.random((6, n)) < 0.5
    columns, values = spread_over_views(masks)
    built = []
    for selectors in (masks, values):
        rules = [gc.error_rate(on=selectors[0]) <= 0.1, gc.class_error(0, on=selectors[1]) <= 0.1]
        rules += [gc.selection_rate(1, on=chosen) <= 0.2 for chosen in selectors[2:4]]
        rules += [gc.log_loss(on=chosen) <= 0.2 for chosen in selectors[4:]]
        options = {"proxy": proxy, "outlier_clip": clip, "columns": columns}
        built.append(build(y, rules, weight=weight if weighted else None, **options))
    assert [len(lag.cells.views) for lag in built] == [1, 6]
    multipliers = rng.uniform(0.5, 2.0, 6)
    kinds = [
        [1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0] * 6,
    ]
    shape = n if n_classes == 2 else (n, n_classes)
    margin, anchor, u = (2 * rng.normal(size=shape) for _ in range(3))
    for kind in kinds:
        margin += 0.3 * rng.normal(size=shape)
        one, several = (lag.at(margin.copy()) for lag in built)
        values = [
            lag.constraints.rates(point.statistics())
            for lag, point in zip(built, (one, several), strict=True)
        ]
        np.testing.assert_allclose(*values, rtol=1e-11)
        y_k = multipliers * kind
        expected, found = (point.gradient(y_k, anchor, 0.3) for point in (one, several))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        # Costs of a row count from another zero: values differ by a constant.
        moved = margin + u
        rises = [lag.at(moved).value(y_k) - lag.at(margin).value(y_k) for lag in built]
        np.testing.assert_allclose(*rises, rtol=1e-9, atol=1e-10)
        products = [lag.at(margin).hessian_product(y_k, u, 0.1) for lag in built]
        np.testing.assert_allclose(*products, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_largest_entry_of_a_rows_cells(n_classes):
    """Whatever was looked up before: two levels, many, one, and the same ones moved."""
    rng = np.random.default_rng(17)
    y = rng.integers(0, n_classes, 500)
    lag = build(y, sixty_four(rng.random((16, 500)) < 0.5, n_classes))
    views = lag.cells.views
    assert len(views) > 1
    size = len(lag.cells)
    rare = np.where(rng.random(size) < 0.01, 2.0, 1.0)
    tables = [rare, rng.random(size), np.ones(size), 3.0 * rare, rng.integers(0, 3, size) / 4.0]
    for table in (*tables, *tables[::-1], np.roll(rare, 1)):
        found = np.broadcast_to(np.ravel(lag.coefficients.per_row(table)), 500)
        by_view = [table[view.codes] for view in views]
        np.testing.assert_array_equal(found, np.max(by_view, axis=0).astype(lag.rows.dtype))
