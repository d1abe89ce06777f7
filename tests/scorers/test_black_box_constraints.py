"""Fits for a black-box metric under constraints: decisions that keep them come first."""

from functools import partial

import numpy as np
import pytest
from black_box_fits import draw, make, mean_g_mean_loss
from helpers import EITHER

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.fit.black_box_fit import PENALTY, largest_violation
from gbm_constrained.metrics import BlackBox
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.solvers import AdaptiveSurrogates

TRAINING, VALIDATION, TEST = draw(2, 1500, 0.8), draw(102, 600), draw(3, 3000)
RULE = gc.gap(gc.fpr(), by="group") <= 0.02


def rows_of(part):
    _, y, group = part
    return Rows(y, np.array([0, 1]), None, {"group": group.to_numpy()})


def gap_by_hand(scores, part):
    _, y, group = part
    rates = [(scores[(group == g) & (y == 0)] > 0).mean() for g in (0, 1)]
    return abs(rates[0] - rates[1])


@pytest.mark.parametrize("seed", range(4))
def test_violations_are_those_by_hand(seed):
    scores = np.random.default_rng(seed).normal(size=600) + seed * VALIDATION[2].to_numpy() / 3
    found = largest_violation(*compile_constraints([RULE], rows_of(VALIDATION)), scores)
    assert found == pytest.approx(max(gap_by_hand(scores, VALIDATION) - 0.02, 0.0), abs=1e-8)


@pytest.mark.filterwarnings("ignore:.*fewer than min_group_size")
def test_groups_act_on_the_choice_as_far_as_their_rows_show():
    """By hand: k of n rows and 25 (G - 2) rows of the mean of all, for each of three groups."""
    rng = np.random.default_rng(0)
    group, scores = np.repeat([0, 1, 2], [300, 290, 10]), rng.normal(size=600)
    scores[590:] = 1.0  # A group of ten rows that are all selected.
    cells, compiled = compile_constraints(
        [gc.gap(gc.selection_rate(), by="g") <= 0.1],
        Rows(rng.integers(0, 2, 600), np.array([0, 1]), None, {"g": group}),
    )
    rates = np.array([(scores[group == g] > 0).mean() for g in range(3)])
    n, mean = np.bincount(group), (scores > 0).mean()
    credible = (n * rates + 25.0 * mean) / (n + 25.0)
    assert largest_violation(cells, compiled, scores) == pytest.approx(np.ptp(rates) - 0.1)
    found = largest_violation(cells, compiled.make_credible(cells), scores)
    assert found == pytest.approx(max(np.ptp(credible) - 0.1, 0.0))
    assert np.ptp(credible) < 0.5 * np.ptp(rates)


def test_no_model_that_breaks_a_rule_is_better_than_one_that_keeps_it():
    rows = rows_of(VALIDATION)
    metric = BlackBox(lambda y, s: 0.25).bind(rows, VALIDATION[1])
    cells, compiled = compile_constraints([RULE], rows)
    violation = partial(largest_violation, cells, compiled.make_credible(cells))
    choice, searched = (metric.under(violation, price) for price in (np.inf, PENALTY))
    kept, broken = np.ones(600), np.where(VALIDATION[2] == 1, 1.0, -1.0)
    assert choice(kept) == searched(kept) == 0.25
    excess = gap_by_hand(broken, VALIDATION) - 0.02
    assert choice(broken) == pytest.approx(1.0 + excess)
    assert searched(broken) == pytest.approx(0.25 + PENALTY * excess)
    assert metric.budget.left == 3000 - 3  # Broken rules are known without a call.


@EITHER
def test_constraints_are_kept_on_the_rows_that_choose(library):
    X, y, g = TRAINING
    solver = AdaptiveSurrogates(n_perturbations=20, n_iterations=15)
    free, ruled = (
        make(library, solver=solver, max_calls=1200)
        .set_params(constraints=constraints)
        .fit(X, y, sensitive_features=g, validation=VALIDATION, evaluation=TEST)
        for constraints in (None, [RULE])
    )
    V, _, h = VALIDATION
    assert gap_by_hand(ruled.decision_scores(V, h), VALIDATION) <= 0.02 + 1e-9
    assert gap_by_hand(free.decision_scores(V, h), VALIDATION) > 0.02
    report = ruled.blackbox_report_.set_index("model")
    scores = ruled.decision_scores(TEST[0], TEST[2])
    expected = max(gap_by_hand(scores, TEST) - 0.02, 0.0)
    assert report.violation["this model"] == pytest.approx(expected, abs=1e-8)
    assert report.calls.iloc[0] <= 1200
    value = mean_g_mean_loss(TEST[1], scores, TEST[2].to_numpy())
    assert report.evaluation["this model"] == value
    # The rule costs something, and trees know a better way to keep it than one threshold.
    assert report.validation["this model"] > free.blackbox_report_.validation.iloc[-1] - 1e-9
    assert report.evaluation["this model"] < report.evaluation["threshold"] + 0.02
