"""Errors that constraints cost, and when a fit warns of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.evaluation.assessment import describe_cost
from gbm_constrained.evaluation.verdicts import MAX_EXCESS_ERROR, Cost, measure_cost
from gbm_constrained.problem.compiler import compile_constraints

OPTIONS = {
    "xgboost": {"n_jobs": 1, "max_depth": 3},
    "lightgbm": {"n_jobs": 1, "num_leaves": 7, "verbose": -1},
}


# --- the figures and the message ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "noise", "is_costly"),
    [
        (0.1 + MAX_EXCESS_ERROR + 1e-9, 0.0, True),
        (0.1 + MAX_EXCESS_ERROR - 1e-9, 0.0, False),
        (0.1 + 0.08 + 1e-9, 0.04, True),  # two standard errors
        (0.1 + 0.08 - 1e-9, 0.04, False),
        (0.05, 0.0, False),
    ],
)
def test_when_constraints_are_costly(error, noise, is_costly):
    cost = Cost(error, needed_error=0.1, unconstrained_error=0.08, noise=noise)
    assert cost.is_costly == is_costly
    assert bool(describe_cost(cost)) == is_costly


def test_what_is_not_known_is_not_costly():
    assert not Cost().is_costly
    assert describe_cost(Cost()) == ""
    assert not Cost(0.5, np.nan, 0.1, np.nan).is_costly  # no group thresholds meet them


def test_the_message_has_the_figures_and_the_remedy():
    cost = Cost(0.31, 0.1, 0.08, 0.01, "fnr <= 0.2", 0.12, "900 unseen rows")
    message = describe_cost(cost)
    for part in ("900 unseen rows", "0.3100", "0.1000", "0.0800", "fnr <= 0.2", "0.1200"):
        assert part in message
    assert message.endswith(
        "Give more boosting rounds or a larger learning_rate, or relax the bound of fnr <= 0.2."
    )
    assert "costs most" not in describe_cost(Cost(0.31, 0.1, 0.08, 0.01))


# --- the rule that costs most -------------------------------------------------------------------


def drawn(n=300, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    margin = rng.normal(size=n) + 1.5 * group - 0.5
    y = (margin + rng.normal(size=n) > 0.3).astype(np.intp)
    return margin, y, group


def errors_without(rules, left_out, margin, y, values):
    """Smallest error of a threshold that meets the others, by trying all of them."""
    best = 1.0
    for cut in [-np.inf, *margin]:
        decided = margin > cut
        if all(values[j](decided) <= rules[j][1] for j in range(len(rules)) if j != left_out):
            best = min(best, np.mean(decided != y))
    return best


def test_the_costliest_rule_by_trying_all():
    for seed in range(4):
        margin, y, group = drawn(seed=seed)
        values = [
            lambda d, y=y: np.mean(~d[y == 1]),
            lambda d, y=y: np.mean(d[y == 0]),
            lambda d, g=group: abs(d[g == 0].mean() - d[g == 1].mean()),
        ]
        rules = [(gc.fnr(), 0.3), (gc.fpr(), 0.5), (gc.gap(gc.selection_rate(), by="g"), 0.1)]
        rows = Rows(y, np.arange(2), columns={"g": group})
        cells, compiled = compile_constraints([rate <= bound for rate, bound in rules], rows)
        unseen = EvaluationSet(cells, compiled, "test")
        found = measure_cost(unseen, margin, np.zeros(1), compiled.b, 0.49, np.nan)
        assert found.is_costly
        without = [errors_without(rules, j, margin, y, values) for j in range(3)]
        assert found.error_without_costliest == pytest.approx(min(without))
        assert found.costliest == str(compiled.constraints[int(np.argmin(without))])
        assert found.error == 0.49
        assert found.unconstrained_error <= found.needed_error <= 0.49
        needed = found.needed_error
        assert found.noise == pytest.approx(np.sqrt(needed * (1 - needed) / 300))


def test_nothing_is_searched_for_where_constraints_are_not_costly():
    margin, y, group = drawn()
    rows = Rows(y, np.arange(2), columns={"g": group})
    cells, compiled = compile_constraints([gc.fnr() <= 0.5], rows)
    unseen = EvaluationSet(cells, compiled, "test")
    error = float(np.mean((margin > 0) != y))
    found = measure_cost(unseen, margin, np.zeros(1), compiled.b, error, 0.17)
    assert not found.is_costly
    assert found.costliest == ""
    assert np.isnan(found.error_without_costliest)
    assert found.unconstrained_error == 0.17


def test_bounds_in_the_place_of_those_of_the_constraints():
    margin, y, group = drawn()
    rows = Rows(y, np.arange(2), columns={"g": group})
    cells, compiled = compile_constraints([gc.fnr() <= 0.5], rows)
    unseen = EvaluationSet(cells, compiled, "test")
    loose, tight = (
        measure_cost(unseen, margin, np.zeros(1), np.array([b]), 0.3, np.nan).needed_error
        for b in (0.5, 0.02)
    )
    assert tight > loose + 0.03


# --- whole fits ---------------------------------------------------------------------------------


@BOTH
def test_a_fit_tells_of_costly_constraints(library):
    """Groups that a threshold cannot separate, and a model that must not see them."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 1500)
    X = rng.normal(size=(1500, 4))
    y = (X[:, 0] + 2.0 * group + 0.3 * rng.normal(size=1500) > 1.5).astype(int)
    options = {"n_estimators": 6, "learning_rate": 0.05, **OPTIONS[library]}
    rules = [gc.gap(gc.fpr(), by="g") <= 0.005, gc.fnr() <= 0.15]
    model = CLASSIFIERS[library](constraints=rules, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sensitive_features={"g": group})
    cost = model.feasibility_.cost
    found = [w.message for w in caught if issubclass(w.category, gc.CostlyConstraintsWarning)]
    assert cost.is_costly
    (message,) = map(str, found)
    message = message.removesuffix(" [GC117]")
    assert message == describe_cost(cost)
    assert cost.rows == "1,500 unseen rows (out of fold)"
    assert f"on {cost.rows}: " in message
    assert cost.costliest in map(str, rules)
    assert message in model.feasibility_.message
    assert cost.unconstrained_error <= cost.error


@BOTH
def test_rules_that_the_plain_model_meets_cost_nothing(library):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    model = CLASSIFIERS[library](
        constraints=[gc.fnr() <= 0.9], n_estimators=20, measure_on="crossfit", **OPTIONS[library]
    ).fit(X, y)
    cost = model.feasibility_.cost
    assert cost.error == cost.needed_error == cost.unconstrained_error
    assert cost.error == pytest.approx(1 - model.unseen_accuracy_.value)
    assert not cost.is_costly


@BOTH
@pytest.mark.parametrize("guarantee", [None, "expected"])
def test_the_error_is_that_of_the_shift_returned(library, guarantee, conclusions):
    """Those of the folds may be far from it: a gap within noise turns with every row.

    Costs are measured on the rows that decisions are chosen by, with a guarantee as well.
    """
    rng = np.random.default_rng(2)
    group = rng.integers(0, 2, 1500)
    X = rng.normal(size=(1500, 5))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * group + rng.normal(size=1500) > 0.5).astype(int)
    rules = [gc.gap(gc.fpr(), by="g") <= 0.1, gc.fnr() <= (0.2 if guarantee is None else 0.1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CLASSIFIERS[library](
            constraints=rules, n_estimators=20, guarantee=guarantee, **OPTIONS[library]
        ).fit(X, y, sensitive_features={"g": group})
    (conclusion,) = conclusions
    fit, choice = conclusion.fit, conclusion.choice
    scores = fit.measured.boosters.held_margin(choice.rounds) + choice.shift[0]
    rows = fit.measured.controller.rows
    cost = model.feasibility_.cost
    inside = np.arange(1500) if guarantee is None else fit.data.training
    assert cost.rows == f"{inside.size:,} unseen rows (out of fold)"
    assert cost.error == pytest.approx(np.mean((scores > 0) != y[inside][rows]))


@BOTH
def test_training_rows_have_no_cost(library):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    model = CLASSIFIERS[library](
        constraints=[gc.fnr() <= 0.2], n_estimators=6, measure_on="train", **OPTIONS[library]
    ).fit(X, y)
    assert repr(model.feasibility_.cost) == repr(Cost())
