"""The joint partition, and functionals in weights of its cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import JointCells, compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of_weights

CONSTRAINTS = [
    gc.gap(gc.error_rate(), by="sex", min_group_size=1) <= 0.1,
    gc.class_error(2) <= 0.3,
    gc.gap(gc.selection_rate(1), by="age", min_group_size=1) <= 0.2,
    gc.precision(0) >= 0.5,
]
REVIEW = np.ones((3, 3)) - np.eye(3)
OF_AMOUNTS = [
    gc.class_error(1, weight="amount") <= 0.3,
    gc.cost([[0, 2, 1], [3, 0, 0], [-1, 0, 0]], weight="amount") + gc.cost(REVIEW) <= 0.5,
]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.booleans())
def test_functionals_of_joint_counts_are_those_of_the_compiler(seed, is_weighted, is_part):
    rng = np.random.default_rng(seed)
    n = 400
    y = rng.integers(3, size=n)
    columns = {"sex": rng.integers(2, size=n), "age": rng.integers(3, size=n)}
    columns["amount"] = rng.exponential(size=n).round(1)
    weight = rng.uniform(0.5, 2.0, size=n) if is_weighted else None
    constraints = [*CONSTRAINTS, *OF_AMOUNTS] if seed % 2 else CONSTRAINTS
    cells, compiled = compile_constraints(constraints, Rows(y, np.arange(3), weight, columns))
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


def test_costs_of_resampled_rows_are_divided_by_their_number():
    rng = np.random.default_rng(2)
    y, amount, decided = (
        rng.integers(3, size=80),
        rng.exponential(size=80),
        rng.integers(3, size=80),
    )
    cells, compiled = compile_constraints(
        [OF_AMOUNTS[1]], Rows(y, np.arange(3), None, {"amount": amount})
    )
    joint, drawn = JointCells.of(cells), rng.exponential(size=80)
    counts = joint.counts(decided, drawn, np.arange(80))
    tables, as_ones = (joint.spread(counts, len(cells), as_ones=ones) for ones in (False, True))
    matrix = np.array([[0, 2, 1], [3, 0, 0], [-1, 0, 0]])
    cost = amount * matrix[y, decided] + REVIEW[y, decided]
    found = functionals_of_weights(compiled, tables, as_ones)
    assert found == pytest.approx([drawn @ cost / drawn.sum()], abs=1e-12)
