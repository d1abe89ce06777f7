"""Rows dealt to machines in several ways, and what must not depend on it."""

from __future__ import annotations

from itertools import starmap

import numpy as np
from machines import run_on_machines

from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of


def list_deals(n, seed=0, group=None):
    """Positions of the rows of each machine, by a name of the deal.

    In all deals but the first the rows of a machine are in no order. One of four machines has no
    rows, and in one deal a machine has the rows of a single group.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    half, third = rng.integers(1, n), n // 3
    nobody = order[:0]
    deals = {
        "one": [np.arange(n)],
        "two": [order[:half], order[half:]],
        "four": [order[:third], nobody, order[third : third + 2], order[third + 2 :]],
    }
    if group is not None:
        inside = np.asarray(group)[order] == np.asarray(group)[0]
        deals["by group"] = [order[~inside], order[inside]]
    return deals


def measure_deals(measure, n, seed=0, group=None):
    """Call ``measure(rows, communicator)`` on the machines of each deal of n rows.

    All machines must come to the same result, to the last bit, by the same calls of each other;
    so must all deals. The result, a list of arrays, is returned.
    """
    found = None
    for name, parts in list_deals(n, seed, group).items():

        def work(communicator, parts=parts):
            result = measure(parts[communicator.rank], communicator)
            return result, communicator.shapes, communicator.n_gathered

        of_machines = run_on_machines(work, len(parts))
        for result, shapes, n_gathered in of_machines:
            assert (shapes, n_gathered) == of_machines[0][1:], f"other calls by {name}"
            assert_identical(result, of_machines[0][0], f"other results by {name}")
        found = of_machines[0][0] if found is None else found
        assert_identical(of_machines[0][0], found, f"other results by {name} than by one")
    return found


def assert_identical(first, second, what=""):
    """Assert that arrays are equal to the last bit, NaN equal to NaN."""
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=what)


def assert_close(first, second, **tolerance):
    """Assert that arrays are nearly equal."""
    list(
        starmap(
            lambda one, other: np.testing.assert_allclose(one, other, **tolerance),
            zip(first, second, strict=True),
        )
    )


def take_rows(data, at, communicator=None):
    """Make rows of those of :class:`counted_data.Data` at some positions, on a machine."""
    machine = Machine() if communicator is None else Machine(communicator, at)
    table = {"sex": data.sex[at], "region": data.region[at], "old": data.other[at]}
    weight = None if data.weight is None else data.weight[at]
    return Rows(data.y[at], data.classes, weight, columns_of(table, at.size), machine=machine)
