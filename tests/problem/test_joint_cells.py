"""The joint partition, and functionals in weights of its cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.joint_cells import JointCells
from gbm_constrained.statistics.counts import CellCounts

CONSTRAINTS = [
    gc.gap(gc.error_rate(), by="sex", min_group_size=1) <= 0.1,
    gc.class_error(2) <= 0.3,
    gc.gap(gc.selection_rate(1), by="age", min_group_size=1) <= 0.2,
    gc.precision(0) >= 0.5,
]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.booleans())
def test_functionals_of_joint_counts_are_those_of_the_compiler(seed, is_weighted, is_part):
    rng = np.random.default_rng(seed)
    n = 400
    y = rng.integers(3, size=n)
    columns = {"sex": rng.integers(2, size=n), "age": rng.integers(3, size=n)}
    weight = rng.uniform(0.5, 2.0, size=n) if is_weighted else None
    cells, compiled = compile_constraints(CONSTRAINTS, Rows(y, np.arange(3), weight, columns))
    joint = JointCells.of(cells)
    rows = np.sort(rng.choice(n, 200, replace=False)) if is_part else np.arange(n)
    part = cells.take(rows)
    on_part = compiled.on(part)
    decided = rng.integers(3, size=rows.size)
    w = None if weight is None else weight[rows]
    found = joint.coefficients(part, on_part).functionals(joint.counts(decided, w, rows))
    counts = CellCounts.of(part, decided).weight
    total = counts.sum(axis=1, keepdims=True)
    predicted = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    expected = on_part.U @ predicted.ravel() + on_part.constant
    assert found == pytest.approx(expected, abs=1e-12)


def test_costs_are_the_change_of_a_functional_by_a_decision():
    rng = np.random.default_rng(0)
    y, columns = rng.integers(3, size=60), {"sex": rng.integers(2, size=60)}
    constraints = CONSTRAINTS[:1]
    cells, compiled = compile_constraints(constraints, Rows(y, np.arange(3), None, columns))
    joint = JointCells.of(cells)
    coefficients = joint.coefficients(cells, compiled)
    cost = rng.normal(size=compiled.constant.size)
    everyone, decided = np.arange(60), rng.integers(3, size=60)
    before = cost @ coefficients.functionals(joint.counts(decided, None, everyone))
    changed = decided.copy()
    changed[7] = (decided[7] + 1) % 3
    after = cost @ coefficients.functionals(joint.counts(changed, None, everyone))
    table = coefficients.costs(cost)[joint.codes[7]]
    assert after - before == pytest.approx(table[changed[7]] - table[decided[7]])


def test_labels_alone_are_recognised():
    y = np.arange(3).repeat(4)
    cells, _ = compile_constraints([gc.class_error(2) <= 0.3], Rows(y, np.arange(3)))
    assert JointCells.of(cells).are_labels
    sex = {"sex": np.arange(12) % 2}
    cells, _ = compile_constraints(CONSTRAINTS[:1], Rows(y, np.arange(3), None, sex))
    assert not JointCells.of(cells).are_labels


def test_too_many_combinations_are_refused():
    rng = np.random.default_rng(0)
    y, columns = rng.integers(3, size=4000), {"zip": rng.integers(300, size=4000)}
    constraints = [gc.each(gc.error_rate(), by="zip", min_group_size=1) <= 0.9]
    cells, _ = compile_constraints(constraints, Rows(y, np.arange(3), None, columns))
    with pytest.raises(ValueError, match="combinations of label and groups"):
        JointCells.of(cells)
