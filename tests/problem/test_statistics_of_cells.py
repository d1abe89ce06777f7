"""Statistics of cells: sums of blocks and machines, and a statistic that is not built in."""

import copy
from itertools import pairwise

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import (
    STATISTICS,
    CellStatistic,
    Lagrangian,
    MeanLosses,
    PredictedFractions,
    TrackedFractions,
)
from gbm_constrained.problem.rows import ProblemRows

N = 500


class MeanMargins(CellStatistic):
    """Weighted mean score of each cell: a statistic that the package does not have."""

    name = "margin"

    def begin(self, margin):
        return np.zeros(len(self.rows.cells))

    def sum_block(self, margin, block):
        total = margin if margin.ndim == 1 else margin.sum(axis=1)
        return self.rows.cells.sum_by_cell(self.rows.apply_weights(total.copy(), block), block)

    def values(self, sums):
        return {"margin": sums / self.rows.divisor}


KINDS = [PredictedFractions, TrackedFractions, MeanLosses, MeanMargins]
everywhere = pytest.mark.parametrize("kind", KINDS)
per_class_count = pytest.mark.parametrize("n_classes", [2, 3])


def draw(n_classes, repeats=None):
    rng = np.random.default_rng(n_classes)
    y = rng.integers(n_classes, size=N)
    margin = rng.normal(size=N if n_classes == 2 else (N, n_classes))
    weight = rng.integers(1, 4, size=N).astype(float)
    if repeats is not None:
        return (
            np.repeat(y, weight.astype(int)),
            np.repeat(margin, weight.astype(int), axis=0),
            None,
        )
    return y, margin, weight


def make_rows(y, margin, weight, rules=(), **options):
    cells, compiled = compile_constraints(
        rules or [gc.log_loss(on=gc.label(0)) <= 1.0], Rows(y, np.unique(y), weight)
    )
    rows = ProblemRows(y, cells, compiled, weight=weight, **options)
    rows.kernel.link(margin, rows.labels, rows.probability)
    return rows


def measure(statistic, margin, ends=(0, N)):
    """Compute values from blocks of rows that end at the given rows."""
    sums = statistic.begin(margin)
    for start, end in pairwise(ends):
        part = statistic.sum_block(margin[start:end], slice(start, end))
        if part is not None:
            sums += part
    return statistic.values(sums)


@everywhere
@per_class_count
def test_blocks_of_rows_add_up(kind, n_classes):
    y, margin, weight = draw(n_classes)
    rows = make_rows(y, margin, weight, outlier_clip=1.0)
    one, several = measure(kind(rows), margin), measure(kind(rows), margin, (0, 17, 300, N))
    assert one.keys() == several.keys()
    for name, values in one.items():
        np.testing.assert_allclose(several[name], values, rtol=1e-12)


@everywhere
@per_class_count
def test_weights_are_repeated_rows(kind, n_classes):
    y, margin, weight = draw(n_classes)
    found = measure(kind(make_rows(y, margin, weight, outlier_clip=1.0)), margin)
    y, margin, _ = draw(n_classes, repeats=True)
    rows = make_rows(y, margin, None, outlier_clip=1.0)
    repeated = measure(kind(rows), margin, (0, len(y)))
    for name, values in found.items():
        np.testing.assert_allclose(values, repeated[name], rtol=1e-12)


@everywhere
@per_class_count
def test_a_restored_statistic_goes_on_as_the_first(kind, n_classes):
    y, margin, weight = draw(n_classes)
    rows = make_rows(y, margin, weight)
    one, other = kind(rows), kind(rows)
    measure(one, margin)
    other.restore(copy.deepcopy(one.state()))  # which holds buffers
    moved = margin[::-1].copy()
    rows.kernel.link(moved, rows.labels, rows.probability)
    for name, values in measure(one, moved).items():
        np.testing.assert_array_equal(measure(other, moved)[name], values)


@per_class_count
def test_values_are_those_of_the_rows(n_classes):
    """Fractions, losses and margins of the cell of each label, from the definition."""
    y, margin, weight = draw(n_classes)
    rows = make_rows(y, margin, weight, outlier_clip=0.5)
    scores = margin if n_classes > 2 else np.stack([np.zeros(N), margin], axis=1)
    predicted = scores.argmax(axis=1)
    loss = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(N), y]
    values = {k: v for kind in KINDS for k, v in measure(kind(rows), margin).items()}
    for c in range(n_classes):
        inside, w = y == c, weight[y == c]
        expected = [np.average(predicted[inside] == k, weights=w) for k in range(n_classes)]
        np.testing.assert_allclose(values["predicted"][c], expected, atol=1e-12)
        assert values["loss"][c] == pytest.approx(np.average(loss[inside], weights=w))
        clipped = np.minimum(loss[inside], np.logaddexp(0.0, 0.5))
        assert values["clipped_loss"][c] == pytest.approx(np.average(clipped, weights=w))
        total = margin if margin.ndim == 1 else margin.sum(axis=1)
        assert values["margin"][c] == pytest.approx(np.average(total[inside], weights=w))


def test_losses_of_cells_are_summed_where_a_constraint_needs_them():
    y, margin, weight = draw(2)
    without = make_rows(y, margin, weight, rules=[gc.fpr() <= 0.1])
    assert without.constraints.statistics == {"predicted"}
    assert measure(MeanLosses(without), margin)["loss"].std() == 0.0
    with_losses = make_rows(y, margin, weight)
    assert with_losses.constraints.statistics == {"loss"}
    assert measure(MeanLosses(with_losses), margin)["loss"].std() > 0.0


@pytest.mark.parametrize("n_masks", [2, 12])
def test_changes_are_tracked_where_rows_are_in_several_views(n_masks):
    y, margin, weight = draw(2)
    masks = np.random.default_rng(1).random((n_masks, N)) < 0.5
    rows = make_rows(y, margin, weight, rules=[gc.fpr(on=mask) <= 0.1 for mask in masks])
    statistics = Lagrangian(y, rows.cells, rows.constraints, weight=weight).statistics
    assert tuple(one.name for one in statistics) == STATISTICS[:2]
    assert isinstance(statistics[0], TrackedFractions) == (n_masks == 12)
    tracked, counted = TrackedFractions(rows), PredictedFractions(rows)
    for scores in (margin, -margin, margin[::-1].copy()):
        found, expected = (measure(one, scores)["predicted"] for one in (tracked, counted))
        np.testing.assert_allclose(found, expected, atol=1e-12)
