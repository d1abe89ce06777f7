"""Statistics of cells: sums of blocks of rows, against their definitions."""

import copy

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

N = 500
everywhere = pytest.mark.parametrize("n_masks", [0, 12])  # In several views changes are tracked.
per_class_count = pytest.mark.parametrize("n_classes", [2, 3])


def draw(n_classes):
    rng = np.random.default_rng(n_classes)
    y = rng.integers(n_classes, size=N)
    margin = rng.normal(size=N if n_classes == 2 else (N, n_classes))
    return y, margin, rng.integers(1, 4, size=N).astype(float)


def make(y, weight, n_masks=0, rules=None, repeats=1, **options):
    masks = np.random.default_rng(1).random((n_masks, N)) < 0.5
    rules = [gc.log_loss(on=gc.label(0)) <= 1.0] if rules is None else rules
    rules = [*rules, *(gc.error_rate(on=np.repeat(mask, repeats)) <= 0.1 for mask in masks)]
    cells, compiled = compile_constraints(rules, Rows(y, np.unique(y), weight))
    return Lagrangian(y, cells, compiled, weight=weight, **options)


@everywhere
@per_class_count
def test_weights_are_repeated_rows(n_classes, n_masks):
    y, margin, weight = draw(n_classes)
    times = weight.astype(int)
    found = make(y, weight, n_masks, outlier_clip=1.0).at(margin).statistics()
    rows = make(np.repeat(y, times), None, n_masks, repeats=times, outlier_clip=1.0)
    repeated = rows.at(np.repeat(margin, times, axis=0)).statistics()
    for name in ("predicted", "loss", "clipped_loss"):
        np.testing.assert_allclose(getattr(found, name), getattr(repeated, name), rtol=1e-12)


@everywhere
@per_class_count
def test_a_restored_lagrangian_goes_on_as_the_first(n_classes, n_masks):
    y, margin, weight = draw(n_classes)
    one, other = make(y, weight, n_masks), make(y, weight, n_masks)
    assert one.is_tracked == (n_masks > 0)
    one.at(margin).statistics()
    other.restore(copy.deepcopy(one.state()))  # which holds buffers
    moved = margin[::-1].copy()
    found, expected = (lagrangian.at(moved).statistics() for lagrangian in (other, one))
    np.testing.assert_array_equal(found.predicted, expected.predicted)


@per_class_count
def test_values_are_those_of_the_rows(n_classes):
    """Fractions and losses of the cell of each label, from the definition."""
    y, margin, weight = draw(n_classes)
    found = make(y, weight, outlier_clip=0.5).at(margin).statistics()
    scores = margin if n_classes > 2 else np.stack([np.zeros(N), margin], axis=1)
    predicted = scores.argmax(axis=1)
    loss = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(N), y]
    clipped = np.minimum(loss, np.logaddexp(0.0, 0.5))
    for c in range(n_classes):
        inside, w = y == c, weight[y == c]
        expected = [np.average(predicted[inside] == k, weights=w) for k in range(n_classes)]
        np.testing.assert_allclose(found.predicted[c], expected, atol=1e-12)
        assert found.loss[c] == pytest.approx(np.average(loss[inside], weights=w))
        assert found.clipped_loss[c] == pytest.approx(np.average(clipped[inside], weights=w))


def test_losses_of_cells_are_summed_where_a_constraint_needs_them():
    y, margin, weight = draw(2)
    for rules, names in (([gc.fpr() <= 0.1], {"predicted"}), (None, {"loss"})):
        lagrangian = make(y, weight, rules=rules)
        assert lagrangian.constraints.statistics == names
        assert (lagrangian.at(margin).statistics().loss.std() > 0.0) == ("loss" in names)


def test_changes_are_tracked_where_rows_are_in_several_views():
    y, margin, weight = draw(2)
    tracked = make(y, weight, 12)
    for scores in (margin, -margin, margin[::-1].copy()):
        found, counted = tracked.at(scores).statistics(), make(y, weight, 12)
        counted.is_tracked = False
        expected = counted.at(scores).statistics()
        np.testing.assert_allclose(found.predicted, expected.predicted, atol=1e-12)
