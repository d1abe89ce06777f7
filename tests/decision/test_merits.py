"""Errors and violations of many decisions at once."""

from __future__ import annotations

import numpy as np
import pytest
from references import best_shift

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision import histograms, violations
from gbm_constrained.problem.compiler import compile_constraints

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")


@pytest.mark.parametrize(
    ("rule", "pairs"),
    [
        (gc.gap(gc.fpr(), by="g") <= 0.05, True),
        (gc.gap(gc.error_rate(), by="g") <= 0.0, True),
        (gc.ratio(gc.selection_rate(), by="g") >= 0.8, True),
        (gc.gap(gc.fpr(), by="g", reference="g0") <= 0.05, False),
        (gc.gap(gc.fpr(), by="g", reference=gc.overall) <= 0.05, False),
    ],
)
def test_of_all_pairs_the_extremes_decide(rule, pairs):
    """The largest violation is that of the rows one by one, to the last bit."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(0, 2, 600), rng.integers(0, 7, 600)
    columns = {"g": np.array([f"g{k}" for k in group])}
    rules = [rule, gc.fpr(on={"g": "g1"}) <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2), columns=columns))
    decisions = histograms.DecisionCounts(cells)
    found = violations.ErrorAndViolations(decisions, compiled, compiled.b)
    of_pairs = [isinstance(part, violations._Pairs) for part in found.others]
    assert sum(of_pairs) == pairs
    for share in (0.0, 0.1, 0.5, 1.0):
        decided = (rng.random(600) < share).astype(np.intp)
        fractions = decisions.fractions(decided)
        functionals = compiled.U @ fractions.ravel() + compiled.constant
        excess = compiled.rows_of(functionals) - compiled.b
        assert found.measure(decided)[1] == pytest.approx(max(excess.max(), 0.0), abs=1e-12)
    tighter = compiled.b - 0.01 * np.arange(len(compiled))  # no longer alike: row by row
    others = violations.ErrorAndViolations(decisions, compiled, tighter).others
    assert not any(isinstance(part, violations._Pairs) for part in others)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rules_that_are_left_out_have_infinite_bounds(n_classes):
    """Alone and beside another rule, as gaps of few groups and of many."""
    rng = np.random.default_rng(1)
    y, group = rng.integers(0, n_classes, 400), rng.integers(0, 5, 400)
    margin = rng.normal(size=(400, n_classes))
    margin[np.arange(400), y] += 1.0
    margin = margin if n_classes > 2 else margin[:, 1] - margin[:, 0]
    columns = {"g": np.array([f"g{k}" for k in group])}
    rules = [gc.gap(gc.error_rate(), by="g") <= 0.01, gc.class_error(1) <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(n_classes), columns=columns))
    for j in (0, 1):
        bounds = np.where(compiled.owner == j, np.inf, compiled.b)
        found = best_shift(margin, cells, compiled, bounds=bounds)
        alone = compile_constraints([rules[1 - j]], Rows(y, np.arange(n_classes), columns=columns))
        expected = best_shift(margin, *alone)
        assert found.violation == pytest.approx(expected.violation)
        if n_classes == 2:  # the search over several classes is not exact
            assert found.value == expected.value
