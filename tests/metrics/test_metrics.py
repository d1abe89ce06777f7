"""Metrics: values, gradients and kinds, against formulas and scikit-learn, and bounds of them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pasted import paste
from scipy.optimize import approx_fprime
from sklearn import metrics as skm
from sklearn.base import clone

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.evaluation.audit import MetricOnRows
from gbm_constrained.fit.model_note import dumps, loads
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
from gbm_constrained.metrics.callables import NamedMetric
from gbm_constrained.metrics.reading import RateMetric, read_objective
from gbm_constrained.metrics.text import NAMES
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of

CLASSES = np.array(["a", "b", "c"])
BUILT_IN = [
    g_mean(),
    h_mean(),
    q_mean(),
    min_recall(),
    balanced_accuracy(),
    f1_micro(),
    f1_macro(),
]


def draw(seed, n=300, n_classes=3):
    """Labels and decisions; every class has rows and decisions."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    decided = np.where(rng.random(n) < 0.6, y, rng.integers(n_classes, size=n))
    return y, decided, rng.integers(1, 4, size=n).astype(float)


def value_of(found, y, decided, weight=None, classes=CLASSES, **columns):
    rows = Rows(y, classes, weight, columns)
    return MetricOnRows(found, rows).value(np.eye(classes.size)[decided])


def from_recalls(u):
    n = u.size
    return {
        "g_mean": np.prod(u) ** (1 / n),
        "h_mean": n / np.sum(1 / u),
        "q_mean": 1 - np.sqrt(np.mean((1 - u) ** 2)),
        "min_recall": u.min(),
        "balanced_accuracy": u.mean(),
    }


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_means_of_recalls_are_their_formulas(seed, has_weights):
    y, decided, weight = draw(seed)
    weight = weight if has_weights else None
    recalls = skm.recall_score(y, decided, average=None, sample_weight=weight)
    for name, expected in from_recalls(recalls).items():
        assert value_of(NAMES[name](), y, decided, weight) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_f_measures_and_costs_are_those_of_scikit_learn(seed):
    y, decided, w = draw(seed)
    f = skm.f1_score(y, decided, average="macro", sample_weight=w)
    assert value_of(f1_macro(), y, decided, w) == pytest.approx(f, abs=1e-12)
    default = int(np.bincount(y, w).argmax())
    others = [k for k in range(3) if k != default]
    micro = skm.f1_score(y, decided, labels=others, average="micro", sample_weight=w)
    assert value_of(f1_micro(), y, decided, w) == pytest.approx(micro, abs=1e-12)
    given_default = skm.f1_score(y, decided, labels=[0, 1], average="micro", sample_weight=w)
    assert value_of(f1_micro("c"), y, decided, w) == pytest.approx(given_default, abs=1e-12)
    two = skm.fbeta_score(y == 1, decided == 1, beta=2.0, sample_weight=w)
    assert value_of(f_beta(2.0, "b"), y, decided, w) == pytest.approx(two, abs=1e-12)
    M = np.array([[0.0, 1.0, 2.0], [3.0, -1.0, 0.5], [0.0, 4.0, 0.0]])
    C = skm.confusion_matrix(y, decided, sample_weight=w, normalize="all")
    assert value_of(RateMetric(cost(M)), y, decided, w) == pytest.approx((M * C).sum(), abs=1e-12)
    own = metric(lambda C: C[0, 0] ** 2 - C[1, 2], kind="other")
    assert value_of(own, y, decided, w) == pytest.approx(C[0, 0] ** 2 - C[1, 2], abs=1e-12)


def test_a_random_rule_and_a_perfect_one():
    y = np.repeat(np.arange(4), [10, 20, 30, 40])
    rows = Rows(y, np.arange(4))
    for found in (g_mean(), h_mean(), q_mean(), min_recall(), balanced_accuracy()):
        assert MetricOnRows(found, rows).value(np.full((100, 4), 0.25)) == pytest.approx(0.25)
    for found in BUILT_IN:
        assert MetricOnRows(found, rows).value(np.eye(4)[y]) == pytest.approx(1.0, abs=1e-12)


def test_a_class_that_is_never_predicted_makes_three_means_zero():
    y = np.repeat(np.arange(3), 10)
    decided = np.where(y == 2, 0, y)
    for found in (g_mean(), h_mean(), min_recall()):
        assert value_of(found, y, decided) == 0.0
    assert value_of(q_mean(), y, decided) == pytest.approx(1 - np.sqrt(1 / 3))


@pytest.mark.parametrize("found", BUILT_IN, ids=str)
def test_gradients_are_those_of_finite_differences(found):
    rng = np.random.default_rng(0)
    bound = found.bind(CLASSES, np.array([0.5, 0.3, 0.2]))
    n = sum(len(e.rates) if e.is_quotient else 1 for e in bound.expressions)
    for _ in range(20):
        u = rng.uniform(0.2, 0.9, size=n)
        numeric = sum(approx_fprime(u, bound.function, h) for h in (1e-6, -1e-6)) / 2  # central
        assert bound.derivative(u) == pytest.approx(numeric, abs=1e-6)


@pytest.mark.parametrize("found", [m for m in BUILT_IN if m.bind(CLASSES, np.ones(3)).kind in
                                   ("linear", "smooth", "convex")], ids=str)  # fmt: skip
def test_concave_metrics_lie_above_their_chords(found):
    rng = np.random.default_rng(1)
    bound = found.bind(CLASSES, np.ones(3) / 3)
    n = len(bound.expressions)
    for u, v in rng.uniform(0.0, 1.0, size=(200, 2, n)):
        middle = bound.function((u + v) / 2)
        assert middle >= (bound.function(u) + bound.function(v)) / 2 - 1e-12


def test_a_restriction_counts_these_rows_alone():
    y, decided, _ = draw(3)
    mask = np.arange(y.size) < 100
    recalls = skm.recall_score(y[mask], decided[mask], average=None)
    found = value_of(g_mean(on={"part": "first"}), y, decided, part=np.where(mask, "first", "x"))
    assert found == pytest.approx(np.prod(recalls) ** (1 / 3), abs=1e-12)


def test_a_function_is_handed_the_matrix_of_each_group():
    y, decided, w = draw(4)
    sex = np.array(["F", "M"])[np.arange(y.size) % 2]
    seen = {}

    def spread(C):
        seen.update(C)
        return abs(np.trace(C["F"]) - np.trace(C["M"]))

    found = value_of(metric(spread, kind="other", by="sex"), y, decided, w, sex=sex)
    of_group = {g: skm.confusion_matrix(y[sex == g], decided[sex == g],
                                        sample_weight=w[sex == g], normalize="all")
                for g in ("F", "M")}  # fmt: skip
    for group, C in of_group.items():
        assert seen[group] == pytest.approx(C, abs=1e-12)
    assert found == pytest.approx(abs(np.trace(of_group["F"]) - np.trace(of_group["M"])))


def test_own_gradients_and_numeric_ones_agree():
    def function(C):
        return C[0, 0] / C[0].sum() - 0.3 * C[0, 1] ** 2

    def gradient(C):
        g = np.zeros_like(C)
        g[0] = -C[0, 0] / C[0].sum() ** 2
        g[0, 0] += 1 / C[0].sum()
        g[0, 1] -= 0.6 * C[0, 1]
        return g

    u = np.array([0.3, 0.1, 0.2, 0.4])
    classes = np.arange(2)
    own = metric(function, kind="concave", gradient=gradient).bind(classes, np.ones(2) / 2)
    numeric = metric(function, kind="concave").bind(classes, np.ones(2) / 2)
    assert own.derivative(u) == pytest.approx(numeric.derivative(u), abs=1e-6)


def test_metrics_are_descriptions_that_copy_and_compare():
    for found in [*BUILT_IN, cost([[0, 1], [2, 0]]), f_beta(2.0, "b")]:
        assert pickle.loads(pickle.dumps(found)) == found == copy.deepcopy(found)
        hash(found)
        model = gc.ConstrainedXGBClassifier(maximize=found)
        assert clone(model).maximize == found
    assert repr(g_mean()) == "g_mean()"
    assert str(f_beta(2.0)) == "f_beta(2)"


@pytest.mark.parametrize(
    ("maximize", "minimize", "error", "words"),
    [
        ("g_mean", "error_rate", ValueError, "cannot both be given"),
        ("xyz", None, ValueError, "maximize='xyz': unknown metric xyz: must be one of"),
        (None, "g_mean", ValueError, "use maximize="),
        (3, None, TypeError, "maximize must be a metric"),
        (g_mean, None, TypeError, r"Write g_mean\(\)"),
        (gc.recall, None, TypeError, r"Write recall\(\)"),
        (None, skm.zero_one_loss, TypeError, r"Write minimize=BlackBox\(...\) for a function"),
        (skm.make_scorer(skm.f1_score), None, TypeError, r"Write maximize=BlackBox\(...\)"),
        (gc.log_loss(), None, ValueError, "mean loss"),
        (gc.gap(gc.tpr(), by="sex"), None, TypeError, "maximize must be a metric"),
    ],
)  # fmt: skip
def test_objectives_that_are_none_are_refused(maximize, minimize, error, words):
    with pytest.raises(error, match=words):
        read_objective(maximize, minimize)


def test_bad_arguments_of_metrics_are_refused():
    with pytest.raises(ValueError, match="square matrix"):
        cost([[0, 1]])
    with pytest.raises(ValueError, match="not all zero"):
        cost([[0, 0], [0, 0]])
    with pytest.raises(ValueError, match="beta must be"):
        f_beta(0)
    with pytest.raises(ValueError, match="kind must be one of"):
        metric(np.trace, kind="ratio")
    with pytest.raises(TypeError, match="function must be callable"):
        metric("trace", kind="other")
    with pytest.raises(ValueError, match="not among the classes"):
        f1_micro("z").bind(CLASSES, np.ones(3))
    with pytest.raises(ValueError, match="two or more classes"):
        g_mean().bind(CLASSES[:1], np.ones(1))
    bad = metric(lambda C: np.nan, kind="smooth").bind(CLASSES, np.ones(3))
    with pytest.raises(ValueError, match="gradient of"):
        bad.derivative(np.ones(9) / 9)


def own(C):
    return C[1, 1] / C[1].sum() - 0.5 * C[0, 1] ** 2


def recalls(y, d):
    return skm.recall_score(y, d, average=None)


RULES = {
    "g_mean": (g_mean() >= 0.7, lambda y, d: np.sqrt(recalls(y, d).prod())),
    "h_mean": (h_mean() >= 0.7, lambda y, d: 2 / (1 / recalls(y, d)).sum()),
    "q_mean": (q_mean() >= 0.7, lambda y, d: 1 - np.sqrt(np.mean((1 - recalls(y, d)) ** 2))),
    "min_recall": (min_recall() >= 0.7, lambda y, d: recalls(y, d).min()),
    "balanced": (balanced_accuracy() >= 0.7, skm.balanced_accuracy_score),
    "f1_macro": (f1_macro() >= 0.7, lambda y, d: skm.f1_score(y, d, average="macro")),
    "f_beta": (f_beta(2) >= 0.7, lambda y, d: skm.fbeta_score(y, d, beta=2)),
    "f1_micro": (f1_micro(default=0) >= 0.7, skm.f1_score),
    "cost": (cost([[0, 1], [3, 0]]) <= 0.7, lambda y, d: ((d > y) + 3.0 * (d < y)).mean()),
    "own": (
        metric(own, kind="other") >= 0.4,
        lambda y, d: own(skm.confusion_matrix(y, d, normalize="all")),
    ),
}


TRACE = metric(np.trace, kind="linear")


def draw_labels(seed):
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
    y, decided = draw_labels(seed)
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
    y, decided = draw_labels(seed)
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


@pytest.mark.parametrize("name", [name for name in RULES if name != "own"])
def test_metrics_survive_in_the_note_of_a_file(name):
    rule, _ = RULES[name]
    assert loads(dumps(rule)) == rule
    objective = getattr(rule.expression, "metric", rule.expression)
    assert loads(dumps(objective)) == objective


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


def test_each_metric_is_compared_with_counting():
    compared = {getattr(rule.expression, "metric", None) for rule, _ in RULES.values()}
    assert {one.name for one in compared if isinstance(one, NamedMetric)} == {*NAMES}
