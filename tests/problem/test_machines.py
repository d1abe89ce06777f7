"""Rows on several machines, which add tables of cells."""

import threading
from concurrent.futures import ThreadPoolExecutor

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

import gbm_constrained as gc


class Machines:
    """An all-reduce between threads, each of which holds some of the rows."""

    def __init__(self, n):
        self._tables = [None] * n
        self._barrier = threading.Barrier(n, timeout=20)
        self.shapes = set()

    def reduce_sum(self, rank):
        def reduce(table):
            self._tables[rank] = table.copy()
            self._barrier.wait()
            total = sum(self._tables)
            self._barrier.wait()
            self.shapes.add(table.shape)
            return total

        return reduce


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_rows_on_two_machines_are_rows_on_one(n_classes, weighted):
    """Only tables of cells travel; statistics, objective, distance and gradients are the same."""
    y, margin, weight, masks = draw(n_classes, n=150)
    weight = weight if weighted else None
    multipliers = np.linspace(0.5, 1, len(kinds(n_classes, masks)["several"]))
    anchor = np.cos(margin)

    def run(rows, reduce_sum=None):
        lag = build(
            y[rows], kinds(n_classes, masks[:, rows])["several"], n_classes=n_classes,
            weight=None if weight is None else weight[rows], reduce_sum=reduce_sum,
            outlier_clip=CLIP,
        )  # fmt: skip
        return state(lag, margin[rows], multipliers, anchor[rows])

    machines = Machines(2)
    parts = [slice(0, 60), slice(60, 150)]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(run, part, machines.reduce_sum(i)) for i, part in enumerate(parts)]
        first, second = (f.result() for f in futures)
    whole = run(slice(None))
    np.testing.assert_allclose(first[0], whole[0], rtol=1e-12)
    assert np.array_equal(first[0], second[0])
    for i in (1, 2):
        joined = np.concatenate([first[i], second[i]])
        np.testing.assert_allclose(joined, whole[i], rtol=1e-11, atol=1e-13)
    n_cells = 4 * n_classes
    assert machines.shapes == {(1,), (n_cells,), (n_cells * (n_classes + 1),)}


def test_a_machine_without_rows_of_a_class_takes_part():
    """The second machine holds one class only; its numbers are still those of all rows."""
    y, margin, weight, _ = draw(2, n=60)
    order = np.argsort(y, kind="stable")
    y, margin, weight = y[order], margin[order], weight[order]
    half = int((y == 0).sum()) - 5
    machines = Machines(2)

    def run(rows, reduce_sum=None):
        lag = build(
            y[rows], [gc.fpr() <= 0.1, gc.fnr() <= 0.1], n_classes=2, weight=weight[rows],
            reduce_sum=reduce_sum,
        )  # fmt: skip
        return lag.constraints.rates(lag.at(margin[rows]).statistics())

    parts = [slice(half, 60), slice(0, half)]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(run, part, machines.reduce_sum(i)) for i, part in enumerate(parts)]
        results = [f.result() for f in futures]
    np.testing.assert_allclose(results, [run(slice(None))] * 2, rtol=1e-12)
