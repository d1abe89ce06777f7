"""Rows on several machines, which add tables of cells."""

import numpy as np
import pytest
from lagrangians import (
    CLASS_COUNTS,
    CLIP,
    build,
    draw,
    kinds,
    state,
)
from machines import run_on_machines

import gbm_constrained as gc


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_rows_on_two_machines_are_rows_on_one(n_classes, weighted):
    """Only tables of cells travel; statistics, objective, distance and gradients are the same."""
    y, margin, weight, masks = draw(n_classes, n=150)
    weight = weight if weighted else None
    multipliers = np.linspace(0.5, 1, len(kinds(n_classes, masks)["several"]))
    anchor = np.cos(margin)

    def run(rows, communicator=None):
        lag = build(
            y[rows], kinds(n_classes, masks[:, rows])["several"], n_classes=n_classes,
            weight=None if weight is None else weight[rows], communicator=communicator,
            outlier_clip=CLIP,
        )  # fmt: skip
        return state(lag, margin[rows], multipliers, anchor[rows])

    parts, shapes = [slice(0, 60), slice(60, 150)], set[tuple[int, ...]]()

    def run_part(communicator):
        found = run(parts[communicator.rank], communicator)
        shapes.update(communicator.shapes)
        return found

    first, second = run_on_machines(run_part, 2)
    whole = run(slice(None))
    np.testing.assert_allclose(first[0], whole[0], rtol=1e-12)
    assert np.array_equal(first[0], second[0])
    for i in (1, 2):
        joined = np.concatenate([first[i], second[i]])
        np.testing.assert_allclose(joined, whole[i], rtol=1e-11, atol=1e-13)
    n_cells = 4 * n_classes
    assert shapes == {(1,), (n_cells,), (n_cells * (n_classes + 1),)}


def test_a_machine_without_rows_of_a_class_takes_part():
    """The second machine holds one class only; its numbers are still those of all rows."""
    y, margin, weight, _ = draw(2, n=60)
    order = np.argsort(y, kind="stable")
    y, margin, weight = y[order], margin[order], weight[order]
    half = int((y == 0).sum()) - 5

    def run(rows, communicator=None):
        lag = build(
            y[rows], [gc.fpr() <= 0.1, gc.fnr() <= 0.1], n_classes=2, weight=weight[rows],
            communicator=communicator,
        )  # fmt: skip
        return lag.constraints.rates(lag.at(margin[rows]).statistics())

    parts = [slice(half, 60), slice(0, half)]
    results = run_on_machines(lambda machine: run(parts[machine.rank], machine), 2)
    np.testing.assert_allclose(results, [run(slice(None))] * 2, rtol=1e-12)
