"""Views that share look-ups give each row what it has in all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

N, UNLABELLED = 400, 60


def compiled(n_masks, *, weighted=False, with_data_set=False, seed=0):
    """Constraints on masks, ten of which make a view, on groups and on a further data set."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, N)
    rates = [gc.fpr, gc.selection_rate, gc.error_rate, gc.fnr, gc.log_loss]
    rules = [rates[i % 5](on=rng.random(N) < 0.5) <= 0.1 for i in range(n_masks)]
    rules.append(gc.gap(gc.fpr(), by="group", min_group_size=1) <= 0.1)
    sizes, sources = [N], []
    if with_data_set:
        rules.append(gc.selection_rate(on=gc.dataset("monitor")) <= 0.1)
        y = np.concatenate([y, np.full(UNLABELLED, -1)])
        sizes, sources = [N, UNLABELLED], ["monitor"]
    weight = None
    if weighted:
        weight = rng.gamma(1.0, size=y.size)
        weight[rng.random(y.size) < 0.1] = 0.0
    group = np.array([*"abc"], dtype=object)[rng.integers(0, 3, y.size)]
    rows = Rows(
        y, np.arange(2), weight, {"group": group[:N]}, sources=sources,
        sizes=sizes if with_data_set else None,
    )  # fmt: skip
    return y, *compile_constraints(rules, rows)


def coefficients(lagrangian, multipliers):
    """Of each row, from the definition: over all views the sum of the entries of its cells."""
    constraints, cells = lagrangian.constraints, lagrangian.cells
    weight = lagrangian.cell_weight
    density = np.zeros(len(cells))
    density[weight > 0] = lagrangian.total_weight / weight[weight > 0]
    costs = (constraints.A.T @ multipliers).reshape(-1, 2)
    table = density[:, None] * np.column_stack(
        [costs[:, 1] - costs[:, 0], constraints.B.T @ multipliers]
    )
    return sum(table[view.codes] for view in cells.views)


def parts_of(lagrangian, multipliers):
    """The partitions and tables, by the multipliers of the functionals in the rows."""
    of_functionals = lagrangian.constraints.R.T @ multipliers
    return list(lagrangian.views.look_up(of_functionals[:, None]))


def looked_up(lagrangian, multipliers):
    """The same by shared partitions, and the number of partitions."""
    parts = parts_of(lagrangian, multipliers)
    total = np.zeros((lagrangian.n_samples, 2))
    for view, tables in parts:
        for k, table in enumerate(tables):  # no loss where no constraint is about one
            total[:, k] += table[view.small_codes, 0]
    return total, len(parts)


@settings(derandomize=True, deadline=None, max_examples=8)
@given(
    st.integers(8, 33),
    st.booleans(),
    st.booleans(),
    st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=8),
    st.integers(0, 10**6),
)
def test_coefficients_are_those_of_all_views(n_masks, weighted, with_data_set, at_work, seed):
    """Whatever was at work before, and for rows that weigh something."""
    y, cells, constraints = compiled(
        n_masks, weighted=weighted, with_data_set=with_data_set, seed=seed
    )
    factor = np.where(y == 1, 3.0, 1.0)  # as class_weight makes it
    weight = factor if cells.rows.weight is None else cells.rows.weight * factor
    lagrangian = Lagrangian(y, cells, constraints, weight=weight)
    rng = np.random.default_rng(seed)
    for chosen in at_work:
        multipliers = np.zeros(len(constraints))
        multipliers[np.array(chosen, dtype=int) % multipliers.size] = rng.gamma(1.0)
        found, n_partitions = looked_up(lagrangian, multipliers)
        expected = coefficients(lagrangian, multipliers)
        np.testing.assert_allclose(found[weight > 0], expected[weight > 0], rtol=1e-9, atol=1e-12)
        assert n_partitions <= len(cells.views)


def test_views_share_the_attributes_of_active_constraints():
    """Ten masks make a partition, which is made anew when most of them are idle."""
    y, cells, constraints = compiled(40)
    lagrangian = Lagrangian(y, cells, constraints)
    views = lagrangian.views
    assert len(cells.views) == 5
    multipliers = np.zeros(len(constraints))
    multipliers[:40:2] = 1.0  # five in each of four views
    assert looked_up(lagrangian, multipliers)[1] == 2
    assert len(views.packed) == 20
    multipliers[:40] = 1.0
    assert looked_up(lagrangian, multipliers)[1] == 4
    assert len(views.packed) == 40
    chosen = [1, 12, 13, 25, 38, 39]
    multipliers[:40] = 0.0
    multipliers[chosen] = 1.0
    assert looked_up(lagrangian, multipliers)[1] == 1
    assert views.packed == chosen
    multipliers[chosen[3]] = 0.0  # one more idle constraint leaves the partition as it is
    assert looked_up(lagrangian, multipliers)[1] == 1
    assert views.packed == chosen
    multipliers[:] = 0.0
    assert looked_up(lagrangian, multipliers)[1] == 0


def test_weights_in_single_precision_are_in_proportion():
    """Those of the objective are rounded, those that constraints are compiled against are not."""
    y, cells, constraints = compiled(24, weighted=True)
    weight = cells.rows.weight * np.where(y == 1, 0.7, 1.3)
    lagrangian = Lagrangian(y, cells, constraints, weight=weight, dtype=np.float32)
    multipliers = np.linspace(0.5, 1.0, len(constraints))
    multipliers[np.arange(multipliers.size) % 4 > 0] = 0.0
    found, n_partitions = looked_up(lagrangian, multipliers)
    assert n_partitions < len(cells.views)
    expected = coefficients(lagrangian, multipliers)
    np.testing.assert_allclose(found[weight > 0], expected[weight > 0], rtol=1e-5, atol=1e-6)


def test_cells_of_a_part_in_other_proportions_stay_as_they_are():
    """A fold's cells have the weights of all rows: each view is looked up by itself."""
    y, cells, constraints = compiled(12)
    rng = np.random.default_rng(3)
    index = np.flatnonzero(rng.random(N) < 0.5)
    lagrangian = Lagrangian(y[index], cells.take(index), constraints)
    multipliers = rng.gamma(1.0, size=len(constraints))
    found, n_partitions = looked_up(lagrangian, multipliers)
    np.testing.assert_allclose(found, coefficients(lagrangian, multipliers), rtol=1e-12)
    assert n_partitions == len(cells.views)


@pytest.mark.parametrize("seed", range(2))
def test_partitions_are_made_again_as_they_were(seed):
    """From the constraints they are by, in their order."""
    y, cells, constraints = compiled(24, seed=seed)
    rng = np.random.default_rng(seed)
    one, other = Lagrangian(y, cells, constraints), Lagrangian(y, cells, constraints)
    for _ in range(12):
        multipliers = rng.gamma(1.0, size=len(constraints)) * (rng.random(len(constraints)) < 0.2)
        looked_up(one, multipliers)
    other.views.pack(one.views.packed)
    parts = [parts_of(lag, multipliers) for lag in (one, other)]
    assert len(parts[0]) == len(parts[1])
    for (view, tables), (again, same) in zip(*parts, strict=True):
        np.testing.assert_array_equal(view.small_codes, again.small_codes)
        np.testing.assert_array_equal(np.array(tables), np.array(same))


@pytest.mark.parametrize("by_constraint", [True, False])
def test_the_largest_entry_after_other_constraints_were_active(by_constraint):
    """Tables by active constraints take shared partitions, and other tables each view."""
    y, cells, constraints = compiled(64)
    lagrangian = Lagrangian(y, cells, constraints)
    rng = np.random.default_rng(4)
    for _ in range(6):
        active = rng.random(len(constraints)) < 0.12
        looked_up(lagrangian, active.astype(float))
        table = np.where(active @ lagrangian.constants.sensitivities > 0, 2.0, 1.0)
        if not by_constraint:
            table = rng.integers(0, 3, len(cells)) / 4.0
        by_view = [table[view.codes] for view in cells.views]
        found = np.broadcast_to(lagrangian.per_row(table), y.size)
        np.testing.assert_array_equal(found, np.max(by_view, axis=0))
        partitions = list(lagrangian.views.largest(table))
        assert (len(partitions) < len(cells.views)) or not by_constraint or not active.any()
