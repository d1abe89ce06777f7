"""Properties of linear rows."""

from __future__ import annotations

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian


def test_rows_that_reward_errors_of_all_labels():
    """Gaps of error rates do; those that one decision for a whole group meets do not."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    columns = {"g": rng.integers(0, 2, 300), "deployed": rng.integers(0, 3, 300)}
    cases = {
        gc.gap(gc.error_rate(), by="g") <= 0.1: True,
        gc.gap(gc.accuracy(), by="g") <= 0.1: True,
        gc.error_rate(on={"g": 0}) >= 0.3: True,
        gc.error_rate(on=gc.label(1)) >= 0.3: False,
        gc.gap(gc.class_error(0), by="g") <= 0.1: False,
        gc.gap(gc.class_error(0) + gc.class_error(1), by="g") <= 0.1: False,
        gc.gap(gc.class_error(0) + gc.class_error(1) + gc.class_error(2), by="g") <= 0.1: True,
        gc.gap(gc.selection_rate(label=1), by="g") <= 0.1: False,
        gc.gap(gc.recall(label=1), by="g") <= 0.1: False,
        gc.gap(gc.log_loss(), by="g") <= 0.1: False,
        gc.error_rate() <= 0.1: False,
        gc.selection_rate(label=2) <= 0.1: False,
        gc.churn(to="deployed") <= 0.1: False,
    }
    for rule, expected in cases.items():
        _, compiled = compile_constraints([rule], Rows(y, np.arange(3), None, columns))
        assert (compiled.must_reward_errors == expected).all(), rule
        assert (compiled.may_reward_errors >= compiled.must_reward_errors).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_constraints_that_forbid_one_class_of_several_split_targets(n_classes):
    """Their rows may be decided as any other; and one class alone is the other of two."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, 300)
    deployed = {"deployed": rng.integers(0, n_classes, 300)}
    cases = {
        gc.fpr(label=1) <= 0.1: True,
        gc.precision(label=1) >= 0.9: True,
        gc.confusion(0, 1) <= 0.1: True,
        gc.selection_rate(label=1) <= 0.1: True,
        gc.selection_rate(label=1) >= 0.1: False,
        gc.recall(label=1) >= 0.9: False,
        gc.class_error(1) <= 0.1: False,
        gc.error_rate() <= 0.1: False,
        gc.accuracy() >= 0.9: False,
        gc.churn(to="deployed") <= 0.1: False,
        gc.log_loss() <= 0.1: False,
    }
    for rule, splits in cases.items():
        cells, compiled = compile_constraints(
            [rule], Rows(y, np.arange(n_classes), None, deployed)
        )
        assert (compiled.splits_targets == (splits and n_classes > 2)).all(), rule
        bounded = compiled.splits_targets | compiled.may_reward_errors
        assert np.array_equal(Lagrangian(y, cells, compiled).rows.is_bounded, bounded)
