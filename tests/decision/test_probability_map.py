"""The map of probabilities that held-out rows choose."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.regression import choose_map
from gbm_constrained.problem.compiler import compile_constraints


def draw(n=20_000):
    """Rows whose scores are half of their log-odds, less one quarter."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=n) * 2.0
    y = (rng.random(n) < expit(log_odds)).astype(int)
    return y, log_odds / 2.0 - 0.25


def held_out(y, *rules):
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2)))
    return EvaluationSet(cells, compiled, "held out")


def test_the_map_is_that_of_maximum_likelihood():
    y, margin = draw()
    found = choose_map(held_out(y, gc.calibration_error() <= 0.03, gc.auc() >= 0.9), margin)
    assert found.scale == pytest.approx(2.0, abs=0.06)  # A standard error is 0.02.
    assert found.shift == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("rule", [gc.calibration_error() <= 0.5, gc.auc() >= 0.99])
def test_scores_stay_where_no_calibration_error_is_above_its_bound(rule):
    y, margin = draw(500)
    assert choose_map(held_out(y, rule), margin).is_identity


def test_scores_of_maximum_likelihood_stay_though_the_error_is_above_its_bound():
    y, margin = draw(4000)
    rows = held_out(y, gc.calibration_error() <= 0.001)
    mapped = choose_map(rows, margin)(margin)
    assert rows.violations(mapped).max() > 0.0
    again = choose_map(rows, mapped)
    np.testing.assert_allclose(again(mapped), mapped, atol=1e-3)
