"""Values, gradients and kinds of the metrics, against formulas, scikit-learn and differences."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from sklearn import metrics as skm
from sklearn.base import clone

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.evaluation.audit import measure_metric
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
from gbm_constrained.metrics.reading import RateMetric, read_objective
from gbm_constrained.metrics.text import NAMES

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
    return measure_metric(found, rows, np.eye(classes.size)[decided])


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
        assert measure_metric(found, rows, np.full((100, 4), 0.25)) == pytest.approx(0.25)
    for found in BUILT_IN:
        assert measure_metric(found, rows, np.eye(4)[y]) == pytest.approx(1.0, abs=1e-12)


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
