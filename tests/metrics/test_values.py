"""Metrics as rules: values, rows, texts, derivatives and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pasted import paste
from sklearn import metrics as sk

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.search import BiasSearch, ShiftSearch
from gbm_constrained.metrics import (
    balanced_accuracy,
    cost,
    f1_macro,
    f1_micro,
    f_beta,
    g_mean,
    h_mean,
    metric,
    min_recall,
    q_mean,
)
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of


def own(C):
    return C[1, 1] / C[1].sum() - 0.5 * C[0, 1] ** 2


def recalls(y, d):
    return sk.recall_score(y, d, average=None)


RULES = {
    "g_mean": (g_mean() >= 0.7, lambda y, d: np.sqrt(recalls(y, d).prod())),
    "h_mean": (h_mean() >= 0.7, lambda y, d: 2 / (1 / recalls(y, d)).sum()),
    "q_mean": (q_mean() >= 0.7, lambda y, d: 1 - np.sqrt(np.mean((1 - recalls(y, d)) ** 2))),
    "min_recall": (min_recall() >= 0.7, lambda y, d: recalls(y, d).min()),
    "balanced": (balanced_accuracy() >= 0.7, sk.balanced_accuracy_score),
    "f1_macro": (f1_macro() >= 0.7, lambda y, d: sk.f1_score(y, d, average="macro")),
    "f_beta": (f_beta(2) >= 0.7, lambda y, d: sk.fbeta_score(y, d, beta=2)),
    "f1_micro": (f1_micro(default=0) >= 0.7, sk.f1_score),
    "cost": (cost([[0, 1], [3, 0]]) <= 0.7, lambda y, d: ((d > y) + 3.0 * (d < y)).mean()),
    "own": (
        metric(own, kind="other") >= 0.4,
        lambda y, d: own(sk.confusion_matrix(y, d, normalize="all")),
    ),
}


TRACE = metric(np.trace, kind="linear")


def draw(seed):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([0, 1], [60, 40]))
    return y, np.where(rng.random(100) < rng.uniform(0.1, 0.9), y, rng.integers(0, 2, 100))


def compiled_of(constraint, y):
    rows = Rows(y, np.arange(2))
    named = gc.Constraint(
        constraint.expression.with_classes(np.arange(2)), constraint.sense, constraint.bound
    )
    return named, *compile_constraints([named], rows)


@pytest.mark.parametrize("name", RULES)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_values_and_rows_agree_with_counting(name, seed):
    rule, count = RULES[name]
    y, decided = draw(seed)
    if (recalls(y, decided) == 0).any():
        return
    constraint, cells, compiled = compiled_of(rule, y)
    functionals = functionals_of(compiled, CellCounts.of(cells, decided))
    value = float(count(y, decided))
    assert compiled.values(functionals)[0] == pytest.approx(value, abs=1e-9)
    is_met = constraint.sign * (value - constraint.bound) <= 1e-12
    assert (compiled.rows_of(functionals) <= compiled.b + 1e-12).all() == is_met


@pytest.mark.parametrize("name", [name for name in RULES if RULES[name][0].expression.is_curved])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_multipliers_of_directions_are_the_chain_rule(name, seed):
    y, decided = draw(seed)
    if (recalls(y, decided) < 0.1).any():
        return
    _, cells, compiled = compiled_of(RULES[name][0], y)
    functionals = functionals_of(compiled, CellCounts.of(cells, decided))
    gradient = compiled.R.T @ compiled.curves.derivatives(functionals)
    step = 1e-6
    for k, found in enumerate(gradient):
        moved = step * (np.arange(functionals.size) == k)
        inside = (functionals > 2 * step) & (functionals < 1 - 2 * step)
        if not inside[k]:
            continue
        ends = [compiled.rows_of(functionals + sign * moved)[0] for sign in (1.0, -1.0)]
        assert found == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-5)
    tangent = compiled.tangent(functionals)
    assert tangent.rows_of(functionals) - tangent.b == pytest.approx(
        compiled.rows_of(functionals) - compiled.b, abs=1e-12
    )
    prices = compiled.curves.prices(
        2.5 * compiled.curves.derivatives(functionals), compiled.curves.derivatives(functionals)
    )
    assert prices == pytest.approx(np.full(len(compiled), 2.5))


@pytest.mark.parametrize(
    "text",
    ["g_mean >= 0.8", "f1_macro(on={sex: F}) >= 0.7", "f_beta(2, fraud) >= 0.5",
     "min_recall >= 0.6", "f1_micro(default=0) >= 0.2"],
)  # fmt: skip
def test_texts_are_read_and_written(text):
    found = gc.parse_constraint(text)
    assert paste(found) == gc.parse_constraint(gc.format_constraint(found)) == found


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: f1_micro() >= 0.3, TypeError, "name it, f1_micro(default=...)"),
        (
            lambda: metric(own, kind="other", by="s") >= 0.1,
            TypeError,
            "bound one of each, with on",
        ),
        (lambda: min_recall() <= 0.5, ValueError, "The sense of a bound of min_recall"),
        (lambda: g_mean() >= 1.5, ValueError, "The bound of g_mean must be a rate in [0, 1]"),
        (lambda: gc.format_constraint(metric(own, kind="other") >= 0), ValueError, "has no text"),
    ],
)
def test_what_is_no_rule_is_refused(make, error, message):
    with pytest.raises(error) as refused:
        make()
    assert message in str(refused.value)


@pytest.mark.parametrize("metric", [g_mean(), h_mean(), q_mean(), f1_macro(), TRACE], ids=str)
def test_several_choices_of_rates_at_once(metric):
    """Columns have the values that each has by itself; unknown rates have none."""
    value = (metric >= 0.5).expression.with_classes([0, 1, 2])
    u = np.random.default_rng(0).uniform(-1e-12, 1.0, (len(value.rates), 40))
    u[0, :3], u[1, 5] = 0.0, np.nan
    alone = np.array([value.value(column, ">=") for column in u.T])
    np.testing.assert_array_equal(value.values(u), alone)
    assert np.flatnonzero(np.isnan(alone)).tolist() == [5]
    for i in (0, 7, 20):
        of_metric = value.bound.function(np.clip(u[:, i], 0.0, value.bound.ranges[1]))
        assert alone[i] == pytest.approx(float(of_metric), rel=1e-14)


@pytest.mark.parametrize("metric", [g_mean(), f1_macro()], ids=str)
def test_biases_are_searched_with_one_call_of_the_metric_for_a_block_of_a_line(metric):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    value = (metric >= 0.99).expression.with_classes([0, 1, 2])
    cells, compiled = compile_constraints(
        [gc.Constraint(value, ">=", 0.99)], Rows(y, np.arange(3))
    )
    search = ShiftSearch(rng.normal(size=(600, 3)) + np.eye(3)[y], cells, compiled)
    calls, lines = [], []
    of_columns, along = type(value).values, BiasSearch._along

    def count_call(self, columns):
        calls.append(columns.shape[1])
        return of_columns(self, columns)

    def count_line(self, *arguments):
        lines.append(None)
        return along(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(value), "values", count_call)
        patch.setattr(BiasSearch, "_along", count_line)
        search.find()
    assert sum(calls) > 100 * len(lines)
    assert len(calls) <= 3 * len(lines)
