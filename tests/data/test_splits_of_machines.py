"""Splits of rows that are on several machines: by hashes of row numbers."""

from __future__ import annotations

import numpy as np
import pytest
from machines import run_on_machines

from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import parts_by_hash

N = 3000


def draw(seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, N, p=[0.6, 0.39, 0.01]).astype(np.intp)
    return y, rng.integers(0, 2, N), rng.integers(0, 200, N)


def deal(n_machines, seed):
    """Deal the rows, in random order, to machines of very different sizes; the first has none."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(N)
    if n_machines == 1:
        return [order]
    ends = np.sort(rng.integers(0, N, n_machines - 2))
    return [order[:0], *np.split(order, ends)]


def split(n_machines, shares, seed=0, by_group=False, random_state=0):
    """Numbers of the rows in each part, sorted, by all machines together."""
    y, s, group = draw()
    parts = deal(n_machines, seed)

    def work(communicator):
        mine = parts[communicator.rank]
        rows = Rows(
            y[mine], np.arange(3), columns={"s": s[mine]}, machine=Machine(communicator, mine)
        )
        cells = Cells(rows, [["label", ("s",)]])
        groups = group[mine] if by_group else None
        everyone = np.arange(mine.size)
        found = parts_by_hash(everyone, cells, shares, np.random.RandomState(random_state), groups)
        assert all((np.diff(part) > 0).all() for part in found)
        return [mine[part] for part in found]

    by_machine = run_on_machines(work, n_machines)
    return [np.sort(np.concatenate(part)) for part in zip(*by_machine, strict=True)]


@pytest.mark.parametrize("by_group", [False, True])
@pytest.mark.parametrize("shares", [[0.25] * 4, [0.2, 0.8]])
def test_parts_do_not_depend_on_machines(shares, by_group):
    one = split(1, shares, by_group=by_group)
    for n_machines, seed in [(1, 5), (2, 0), (4, 1), (4, 2)]:
        other = split(n_machines, shares, seed, by_group)
        for part, again in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, again)


@pytest.mark.parametrize("shares", [[0.25] * 4, [0.2, 0.8], [0.37, 0.63]])
def test_each_part_has_its_share_of_each_cell(shares):
    """Up to the rows of one interval of hashes at either end."""
    y, s, _ = draw()
    cell = y * 2 + s
    parts = split(2, shares)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(N))
    whole = np.bincount(cell, minlength=6)
    for share, part in zip(shares, parts, strict=True):
        count = np.bincount(cell[part], minlength=6)
        assert (np.abs(count - share * whole) <= 2 + 3 * 3 * whole / 256).all()


def test_rows_of_a_group_stay_together():
    _, _, group = draw()
    parts = split(4, [0.25] * 4, by_group=True)
    groups = [set(group[part].tolist()) for part in parts]
    assert sum(map(len, groups)) == np.unique(group).size


def test_other_random_states_make_other_parts():
    first, other = (split(2, [0.2, 0.8], random_state=state)[0] for state in (0, 1))
    assert np.intersect1d(first, other).size < 0.4 * first.size
