"""Held-out rows count once."""

from __future__ import annotations

import numpy as np
import pytest
from small_fits import clopper_pearson

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.problem.compiler import compile_constraints


def test_rows_in_several_views_are_counted_once():
    """The accuracy is that of the rows, and its interval that of so many."""
    rng = np.random.default_rng(0)
    y, decided = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    rules = [gc.selection_rate(on=rng.random(300) < 0.7) <= 0.9 for _ in range(14)]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2)))
    assert len(cells.views) > 1
    rows = EvaluationSet(cells, compiled, "test")
    right = (decided == y).sum()
    expected = (right / 300, *clopper_pearson(right, 300))
    np.testing.assert_allclose(rows.accuracy(rows.counts(decided)), expected, rtol=1e-12)
    assert rows.error(decided) == pytest.approx(1.0 - right / 300)
