"""Rates, their algebra and their linear rows: against counting, scikit-learn and fairlearn."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn import metrics
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    parse_constraint,
)
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.grouped import overall
from gbm_constrained.constraints.rates import (
    accuracy,
    churn,
    class_error,
    confusion,
    each,
    error_rate,
    f1,
    fnr,
    fpr,
    gap,
    log_loss,
    losses,
    precision,
    ratio,
    recall,
    selection_rate,
    tnr,
    tpr,
    wins,
)
from gbm_constrained.constraints.selectors import MISSING, dataset, label
from gbm_constrained.data.cells import VIEW_CELLS
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

EXACT = {"rtol": 1e-10, "atol": 1e-13}
seeds = st.integers(0, 2**32 - 1)


def random(examples):
    return settings(derandomize=True, deadline=None, max_examples=examples)


class Problem:
    """Random rows: labels, scores with ties, weights (some zero), groups, another model."""

    def __init__(self, seed, classes=(0, 1), n=150, weighted=True):
        rng = np.random.default_rng(seed)
        self.rng, self.n = rng, n
        self.classes = np.array(classes)
        k = self.classes.size
        self.codes = np.concatenate([np.arange(k), np.arange(k), rng.integers(0, k, n - 2 * k)])
        self.margin = 2 * rng.normal(size=n if k == 2 else (n, k))
        self.margin[3::7] = np.round(self.margin[3::7])
        self.weight = rng.gamma(2.0, size=n) * (rng.random(n) > 0.1) if weighted else None
        if weighted:
            self.weight[:10] = 1.0
        self.sex = rng.choice(["F", "M"], n)
        self.region = rng.choice(["a", "b", "c"], n)
        self.sex[:6], self.region[:6] = list("FMFMFM"), list("abcabc")
        self.other = rng.integers(0, k, n)
        self.sizes, self.sources, self.features = None, (), ()

    @property
    def columns(self):
        table = {"sex": self.sex, "region": self.region, "old": self.classes[self.other]}
        training = self.n if self.sizes is None else self.sizes[0]
        return columns_of({name: x[:training] for name, x in table.items()}, training)

    @property
    def rows(self):
        return Rows(
            self.codes,
            self.classes,
            self.weight,
            self.columns,
            self.features,
            self.sources,
            self.sizes,
        )

    @property
    def w(self):
        return np.ones(self.n) if self.weight is None else self.weight

    @property
    def y(self):
        return self.classes[self.codes]

    @property
    def predicted(self):
        several = self.margin.ndim == 2
        return self.classes[self.margin.argmax(1) if several else (self.margin > 0).astype(int)]

    @property
    def log_probability(self):
        several = self.margin.ndim == 2
        scores = self.margin if several else np.stack([0 * self.margin, self.margin], 1)
        return log_softmax(scores, axis=1)

    def measured(self, *constraints):
        """Constraints' values, their violated rows, whether satisfied, and the compiled rows."""
        cells, compiled = compile_constraints(constraints, self.rows)
        lagrangian = Lagrangian(np.asarray(self.codes), cells, compiled, weight=self.weight)
        statistics = lagrangian.at(self.margin).statistics()
        values = compiled.values(compiled.functionals(statistics))
        return values, compiled.violations(statistics), compiled.satisfied(values), compiled

    def value(self, expression):
        """Value of a rate or a comparison."""
        lower = isinstance(expression, type(ratio(fpr())))
        constraint = Constraint(expression, ">=", 0.5) if lower else expression <= 0.5
        return self.measured(constraint)[0][0]


def mean(event, w, rows):
    """Weighted mean by counting, row by row."""
    total = sum(w[i] for i in np.flatnonzero(rows))
    return sum(w[i] for i in np.flatnonzero(rows) if event[i]) / total if total > 0 else np.nan


def over(a, b):
    return a / b if b > 1e-12 else (np.inf if a > 1e-12 else np.nan)


def counted(problem, positive, rows):
    """Every rate by counting, on some rows."""
    p, w, y, n = problem.predicted, problem.w, problem.y, problem.n
    old = problem.classes[problem.other]
    everything = np.ones(n, dtype=bool) & rows
    true, chosen, wrong = y == positive, p == positive, p != y
    loss = -problem.log_probability[np.arange(n), np.maximum(problem.codes, 0)]
    tp, fp = mean(true & chosen, w, everything), mean(~true & chosen, w, everything)
    fn = mean(true & ~chosen, w, everything)
    return {
        "selection_rate": mean(chosen, w, everything),
        "error_rate": mean(wrong, w, everything),
        "accuracy": mean(~wrong, w, everything),
        "tpr": mean(chosen, w, rows & true),
        "recall": mean(chosen, w, rows & true),
        "fnr": mean(~chosen, w, rows & true),
        "fpr": mean(chosen, w, rows & ~true),
        "tnr": mean(~chosen, w, rows & ~true),
        "precision": over(tp, tp + fp),
        "f1": over(2 * tp, 2 * tp + fp + fn),
        "class_error": mean(wrong, w, rows & true),
        "log_loss": float((w * loss)[rows].sum() / w[rows].sum()),
        "churn": mean(p != old, w, everything),
        "wins": mean((p == y) & (old != y), w, everything),
        "losses": mean((p != y) & (old == y), w, everything),
        "win_loss": over(
            mean((p == y) & (old != y), w, everything), mean((p != y) & (old == y), w, everything)
        ),
    }


def written(problem, positive, on):
    """The same rates in the language."""
    k = positive if problem.classes.size > 2 else None
    old = problem.classes[problem.other]
    old = old if problem.sizes is None else "old"
    return {
        "selection_rate": selection_rate(positive, on=on),
        "error_rate": error_rate(on=on),
        "accuracy": accuracy(on=on),
        "tpr": tpr(k, on=on),
        "recall": recall(positive, on=on),
        "fnr": fnr(k, on=on),
        "fpr": fpr(positive, on=on),
        "tnr": tnr(k, on=on),
        "precision": precision(k, on=on),
        "f1": f1(k, on=on),
        "class_error": class_error(positive, on=on),
        "log_loss": log_loss(on=on),
        "churn": churn(to=old, on=on),
        "wins": wins(over=old, on=on),
        "losses": losses(to=old, on=on),
        "win_loss": wins(over=old, on=on) / losses(to=old, on=on),
    }


CLASSES = [(0, 1), ("no", "yes"), (0, 1, 2), ("a", "b", "c", "d")]


# --- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", CLASSES)
@random(6)
@given(seed=seeds, weighted=st.booleans())
def test_every_rate_is_what_counting_gives(classes, seed, weighted):
    """Over all rows, a mask, a label, column values, and intersections of them."""
    problem = Problem(seed, classes, weighted=weighted)
    positive = classes[-1] if len(classes) == 2 else classes[seed % len(classes)]
    mask = problem.rng.random(problem.n) < 0.5
    mask[: 2 * len(classes)] = True
    F, of_a = problem.sex == "F", problem.region == "a"
    restrictions = [
        (None, np.ones(problem.n, dtype=bool)),
        (mask, mask),
        ({"sex": "F"}, F),
        ((mask, {"sex": "F"}), mask & F),
        ({"sex": "F", "region": "a"}, F & of_a),
        (label(positive), problem.y == positive),
    ]
    for on, rows in restrictions:
        expected = counted(problem, positive, rows)
        rates = written(problem, positive, on)
        for name in expected:
            if np.isnan(expected[name]):  # undefined: no rows (refused), or nothing selected
                continue
            found = problem.value(rates[name])
            np.testing.assert_allclose(found, expected[name], **EXACT, err_msg=str(rates[name]))


@pytest.mark.parametrize("classes", CLASSES)
@random(6)
@given(seed=seeds, weighted=st.booleans())
def test_rates_are_those_of_scikit_learn(classes, seed, weighted):
    """Including every entry of the confusion matrix in each of its normalisations."""
    p = Problem(seed, classes, weighted=weighted)
    y, predicted, rows = p.y, p.predicted, {"sample_weight": p.weight}
    expected = {
        accuracy(): metrics.accuracy_score(y, predicted, **rows),
        error_rate(): metrics.zero_one_loss(y, predicted, **rows),
        log_loss(): metrics.log_loss(y, np.exp(p.log_probability), labels=p.classes, **rows),
    }
    options = {"labels": p.classes, "average": None, "zero_division": np.nan, **rows}
    recalls = metrics.recall_score(y, predicted, **options)
    precisions = metrics.precision_score(y, predicted, **options)
    f1s = metrics.f1_score(y, predicted, **options)
    for k, value in enumerate(classes):
        expected |= {
            recall(value): recalls[k],
            tpr(value): recalls[k],
            fnr(value): 1 - recalls[k],
            class_error(value): 1 - recalls[k],
            precision(value): precisions[k],
            f1(value): f1s[k],
            tnr(value): metrics.recall_score(
                y != value, predicted != value, zero_division=np.nan, **rows
            ),
        }
    if len(classes) == 2:
        expected |= {f(): expected[f(classes[1])] for f in (recall, tpr, fnr, precision, f1, tnr)}
    for how in ("true", "pred", "all"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # 0 / 0 where nothing is predicted
            matrix = metrics.confusion_matrix(
                y, predicted, labels=p.classes, normalize=how, **rows
            )
        for i, true in enumerate(classes):
            for j, guess in enumerate(classes):
                expected[confusion(true, guess, normalize=how)] = matrix[i, j]
    found = p.measured(*[rate <= 0.5 for rate in expected])[0]
    named = dict(zip(map(str, expected), zip(found, expected.values(), strict=True), strict=True))
    for name, (a, b) in named.items():
        if np.isnan(a) and "/pred" in name:
            assert b == 0.0  # scikit-learn's 0 / 0 in a confusion matrix
        else:
            np.testing.assert_allclose(a, b, **EXACT, err_msg=name)


@pytest.mark.parametrize("classes", [(0, 1), (0, 1, 2)])
@pytest.mark.parametrize("labelled", [True, False])
def test_rates_on_another_data_set(classes, labelled):
    """They see its rows only; those of the training rows do not see them."""
    p = Problem(0, classes)
    p.sizes, p.sources = [100, 50], ("monitor",)
    frame = pd.DataFrame({"old": p.classes[p.other], "sex": p.sex})
    p.features = [frame[:100], frame[100:]]
    if not labelled:
        p.codes[100:] = -1
    training = np.arange(p.n) < 100
    on_monitor = dataset("monitor")
    needs_label = set() if labelled else {
        "error_rate", "accuracy", "tpr", "recall", "fnr", "fpr", "tnr", "precision", "f1",
        "class_error", "log_loss", "wins", "losses", "win_loss",
    }  # fmt: skip
    for on, rows, named in [
        (None, training, set()),
        ({"sex": "F"}, training & (p.sex == "F"), set()),
        (on_monitor, ~training, needs_label),
        ((on_monitor, {"sex": "F"}), ~training & (p.sex == "F"), needs_label),
    ]:
        expected, rates = counted(p, classes[-1], rows), written(p, classes[-1], on)
        for name, rate in rates.items():
            if name in named:
                with pytest.raises(ValueError, match="needs labels, which rows of a data set do"):
                    p.value(rate)
            else:
                np.testing.assert_allclose(p.value(rate), expected[name], **EXACT, err_msg=name)


def test_no_name_of_a_data_set_means_the_training_rows():
    p = Problem(0)
    p.sizes, p.sources = [100, 50], ("train",)
    expected = np.average(p.predicted[100:], weights=p.w[100:])
    np.testing.assert_allclose(p.value(selection_rate(on=dataset("train"))), expected, **EXACT)


def test_no_joint_rate_is_silently_zero_without_labels():
    p = Problem(0)
    p.sizes, p.sources, p.codes[100:] = [100, 50], ("monitor",), -1
    for how in ("true", "pred", "all"):
        with pytest.raises(ValueError, match="needs labels"):
            p.value(confusion(0, 1, normalize=how, on=dataset("monitor")))


DAYS = tuple(np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]"))


@pytest.mark.parametrize("unit", ["ns", "us", "D"])
def test_a_label_may_be_a_date(unit):
    p = Problem(0, np.array(DAYS, dtype=f"datetime64[{unit}]"))
    of_first = p.codes == 0
    expected = np.average(p.predicted[of_first] != p.classes[0], weights=p.w[of_first])
    for day in (DAYS[0], p.classes[0], pd.Timestamp(DAYS[0])):
        np.testing.assert_allclose(p.value(class_error(day)), expected, **EXACT)
    old = p.classes[p.other]
    p.features = [np.zeros((p.n, 1))]
    changed = np.average(p.predicted != old, weights=p.w)
    for to in ("old", old, pd.Series(old), Constant(lambda X: old)):
        np.testing.assert_allclose(p.value(churn(to=to)), changed, **EXACT)


class Constant:
    """Another model, which has looked at the features it is given."""

    def __init__(self, decide):
        self.predict = decide


@pytest.mark.parametrize("classes", [(0, 1), ("x", "y", "z")])
def test_another_model_is_a_classifier_a_column_or_its_decisions(classes):
    p = Problem(3, classes)
    old = p.classes[p.other]
    p.features = [pd.DataFrame({"row": np.arange(p.n), "in_X": old})]
    model = Constant(lambda X: old[X["row"]])
    column = Constant(lambda X: old[X["row"]].astype(object)[:, None])
    for rate, expected in [
        (churn, "churn"),
        (lambda to: wins(over=to), "wins"),
        (losses, "losses"),
    ]:
        wanted = counted(p, classes[0], np.ones(p.n, dtype=bool))[expected]
        for to in (model, column, "old", "in_X", old, list(old), pd.Series(old)):
            np.testing.assert_allclose(p.value(rate(to=to)), wanted, **EXACT)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        xgb.XGBClassifier(n_estimators=1),
        lgb.LGBMClassifier(n_estimators=1, verbose=-1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_another_model_must_know_the_features(model):
    p = Problem(0)
    p.features = [np.zeros((p.n, 1))]
    model.fit(np.random.default_rng(0).normal(size=(p.n, 2)), p.codes)
    with pytest.raises(ValueError, match=rf"a \w+, fails to decide on {p.n} rows\. \w+: .* 2"):
        p.value(churn(to=model))


def test_another_model_must_be_fitted():
    p = Problem(0)
    p.features = [np.zeros((p.n, 1))]
    with pytest.raises(ValueError, match="other model, a LogisticRegression, is not fitted: fit"):
        p.value(churn(to=LogisticRegression()))


@pytest.mark.parametrize("shape", [(1,), (), (50, 2), (50, 1, 1)])
def test_another_model_decides_once_for_each_row(shape):
    p = Problem(0)
    p.features = [np.zeros((p.n, 1))]
    answers = np.full(shape, p.classes[0]) if len(shape) < 2 else np.full((p.n, *shape[1:]), 0)
    with pytest.raises(ValueError, match=rf"answers with shape .* for {p.n} rows"):
        p.value(churn(to=Constant(lambda X: answers)))


@pytest.mark.parametrize("missing", [None, np.nan, np.ma.masked])
def test_another_model_decides_every_row(missing):
    p = Problem(0)
    answers = np.ma.array(p.y, dtype=object)
    answers[7] = missing
    p.features = [pd.DataFrame({"decided": answers})]
    for to in (Constant(lambda X: answers), "decided"):
        with pytest.raises(ValueError, match="The other model's decisions hold missing values"):
            p.value(churn(to=to))


@pytest.mark.parametrize("chunked", [True, False])
def test_decisions_in_a_dictionary_of_pyarrow(chunked):
    pyarrow = pytest.importorskip("pyarrow")
    p = Problem(0, ("x", "y"))
    decisions = pyarrow.array(p.classes[p.other].tolist()).dictionary_encode()
    missing = pyarrow.array(["x", None, "y"]).dictionary_encode()
    if chunked:
        decisions, missing = pyarrow.chunked_array([decisions]), pyarrow.chunked_array([missing])
    assert churn(to=decisions) == churn(to=p.classes[p.other])
    with pytest.raises(ValueError, match=r"to= has 1 missing .*, the first in row 1"):
        churn(to=missing)


def test_a_quotient_over_rows_that_are_not_there_has_no_value():
    """As a gap has none: no rate of such rows is zero."""
    for rule in (
        tpr(on={"s": "a"}) / tpr(on={"s": "b"}) >= 0.8,
        tpr(on={"s": "a"}) / tpr(on={"s": "b"}) <= 1.2,
    ):
        for f in ([0.5, np.nan], [np.nan, 0.5], [np.nan, np.nan], [0.0, 0.0]):
            assert np.isnan(rule.value(np.array(f)))
        assert rule.value(np.array([0.5, 0.0])) == np.inf
        assert rule.value(np.array([0.5, 0.25])) == 2.0


@pytest.mark.parametrize("bound", [-2.5, -0.1, 0.0, 3.0])
def test_a_quotient_that_can_be_negative_has_negative_bounds(bound):
    p = Problem(1)
    rate = (fpr() - tpr()) / selection_rate()
    value = (p.value(fpr()) - p.value(tpr())) / p.value(selection_rate())
    assert value < 0
    values, rows, satisfied, _ = p.measured(rate >= bound, rate <= bound)
    np.testing.assert_allclose(values, value, **EXACT)
    assert satisfied.tolist() == (rows <= 0).tolist() == [value >= bound, value <= bound]
    assert (rate >= bound).range == (-np.inf, np.inf)


def test_decisions_are_not_known_on_other_rows():
    """Given decisions are of training rows: churn on a data set would be one."""
    p = Problem(0)
    p.sizes, p.sources = [100, 50], ("monitor",)
    decisions = p.classes[p.other[:100]]
    with pytest.raises(ValueError, match="needs the other model's decisions"):
        p.value(churn(to=decisions, on=dataset("monitor")))
    with pytest.raises(ValueError, match="needs the other model's decisions"):
        p.value(wins(over=decisions, on=dataset("monitor")))
    assert 0 < p.value(churn(to=decisions)) < 1


def test_where_nothing_is_selected():
    """Precision is undefined and its row met; wins without losses are infinitely many."""
    p = Problem(0)
    p.margin[:] = -1.0
    values, rows, _, _ = p.measured(precision() >= 0.9, precision() <= 0.1)
    assert np.isnan(values).all()
    assert (rows <= 0).all()
    p.margin = np.where(p.codes == 1, 1.0, -1.0)
    rate = wins(over=1 - p.codes) / losses(to=1 - p.codes)
    values, rows, satisfied, _ = p.measured(rate >= 2, rate <= 2)
    assert values.tolist() == [np.inf, np.inf]
    assert satisfied.tolist() == [True, False]
    assert (rows <= 0).tolist() == [True, False]


# --- groups, against fairlearn --------------------------------------------------------------

BINARY_METRICS = {
    "selection_rate": selection_rate(),
    "tpr": tpr(),
    "fpr": fpr(),
    "error_rate": error_rate(),
}


@pytest.mark.parametrize("name", BINARY_METRICS)
@pytest.mark.parametrize("by", ["sex", "region", ["sex", "region"]])
@random(4)
@given(seed=seeds)
def test_comparisons_are_those_of_fairlearn(name, by, seed):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    p, rate = Problem(seed, n=300), BINARY_METRICS[name]
    p.weight += 0.01
    function = {
        "selection_rate": fairlearn.selection_rate,
        "tpr": fairlearn.true_positive_rate,
        "fpr": fairlearn.false_positive_rate,
        "error_rate": metrics.zero_one_loss,
    }[name]
    frame = fairlearn.MetricFrame(
        metrics=function,
        y_true=p.y,
        y_pred=p.predicted,
        sensitive_features=pd.DataFrame({"sex": p.sex, "region": p.region})[
            [by] if isinstance(by, str) else by
        ],
        sample_params={"sample_weight": p.weight},
    )
    options = {"by": by, "min_group_size": 1}
    to_all = {**options, "reference": overall}
    found, _, _, compiled = p.measured(
        gap(rate, **options) <= 0.5,
        gap(rate, **to_all) <= 0.5,
        ratio(rate, **options) >= 0.5,
        ratio(rate, **to_all) >= 0.5,
        each(rate, **options) <= 0.5,
        each(rate, **options) >= 0.5,
    )
    expected = [
        frame.difference(),
        frame.difference(method="to_overall"),
        frame.ratio(),
        frame.ratio(method="to_overall"),
        frame.group_max(),
        frame.group_min(),
    ]
    np.testing.assert_allclose(found, expected, **EXACT)
    names = [g.name if len(g.name) > 1 else g.name[0] for g in compiled.groups[0]]
    assert names == frame.by_group.index.tolist()
    cells, alone = compile_constraints([each(rate, **options) <= 0.5], p.rows)
    st_ = Lagrangian(p.codes, cells, alone, weight=p.weight).at(p.margin).statistics()
    np.testing.assert_allclose(alone.functionals(st_), frame.by_group.to_numpy(), **EXACT)


@random(20)
@given(seed=seeds)
def test_a_reference_group_is_compared_with_all_others(seed):
    p = Problem(seed)
    value = {g: p.value(tpr(on={"region": g})) for g in "abc"}
    options = {"by": "region", "reference": "b", "min_group_size": 1}
    away = [abs(value[g] - value["b"]) for g in "ac"]
    np.testing.assert_allclose(p.value(gap(tpr(), **options)), max(away), **EXACT)
    low, high = min(value["a"], value["c"]), max(value["a"], value["c"])
    if min(low, value["b"]) > 0:
        expected = min(1.0, low / value["b"], value["b"] / high)
        np.testing.assert_allclose(p.value(ratio(tpr(), **options)), expected, **EXACT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pairs = {"by": ["sex", "region"], "reference": ("F", "a"), "min_group_size": 1}
        found = p.value(gap(selection_rate(), **pairs))
    rates = {
        (s, r): p.value(selection_rate(on={"sex": s, "region": r})) for s in "FM" for r in "abc"
    }
    expected = max(abs(v - rates["F", "a"]) for v in rates.values())
    np.testing.assert_allclose(found, expected, **EXACT)


def test_a_reference_makes_two_rows_for_each_group():
    p = Problem(0)
    options = {"by": "region", "min_group_size": 1}
    compiled = p.measured(gap(tpr(), reference="b", **options) <= 0.1)[3]
    assert compiled.rows == (
        "tpr[region=a] - tpr[region=b] <= 0.1",
        "tpr[region=b] - tpr[region=a] <= 0.1",
        "tpr[region=c] - tpr[region=b] <= 0.1",
        "tpr[region=b] - tpr[region=c] <= 0.1",
    )
    compiled = p.measured(ratio(tpr(), by="sex", reference=overall, slack=0.1) >= 0.8)[3]
    assert compiled.rows[:2] == (
        "tpr[sex=F] >= 0.8 * (tpr) - 0.1",
        "tpr >= 0.8 * (tpr[sex=F]) - 0.1",
    )
    assert len(p.measured(gap(tpr(), **options) <= 0.1)[3].rows) == 6


@random(20)
@given(seed=seeds)
def test_a_ratio_of_rates_that_are_zero_is_one(seed):
    """Weights leave 1e-16 of a rate that is zero, and no group is worse than another."""
    p = Problem(seed)
    p.margin[:] = 1.0
    for rate in (fnr(), 1 - fpr(), error_rate(on=label(1))):
        for reference in (None, overall, "F"):
            compared = ratio(rate, by="sex", reference=reference, min_group_size=1)
            values, _, satisfied, _ = p.measured(compared >= 0.8)
            assert values.tolist() == [1.0]
            assert satisfied.all()


def test_rows_of_a_compound_rate_print_with_parentheses():
    p = Problem(0)
    compiled = p.measured(gap(fpr() - fnr(), by="sex", min_group_size=1) <= 0.1)[3]
    assert compiled.rows[0] == "fpr[sex=F] - fnr[sex=F] - (fpr[sex=M] - fnr[sex=M]) <= 0.1"


def with_small_groups():
    """Groups a (60 rows), b (30), c (3), d (2)."""
    p = Problem(1, n=95)
    p.region = np.repeat(list("abcd"), [60, 30, 3, 2])
    p.weight = None
    p.margin = np.where(np.arange(95) % 3, 1.0, -1.0)
    return p


@pytest.mark.parametrize(
    ("small_groups", "expected", "told"),
    [
        ("keep", ["a", "b", "c", "d"], "kept"),
        ("merge", ["a", "b", "small groups"], "merged into one group"),
        ("drop", ["a", "b"], "left out"),
    ],
)
def test_small_groups(small_groups, expected, told):
    """They are named with their sizes; merged, they are one group of all their rows."""
    p = with_small_groups()
    rate = each(selection_rate(), by="region", small_groups=small_groups)
    with pytest.warns(UserWarning, match=rf"region=c \(3\), region=d \(2\)\. They are {told}"):
        _, _, _, compiled = p.measured(rate <= 0.5)
    assert [g.name[0] for g in compiled.groups[0]] == expected
    sizes = {"a": 60, "b": 30, "c": 3, "d": 2, "small groups": 5}
    assert [g.size for g in compiled.groups[0]] == [sizes[name] for name in expected]
    with pytest.warns(UserWarning, match="min_group_size=30"):
        found = p.value(gap(selection_rate(), by="region", small_groups=small_groups))
    groups = {g: p.predicted[p.region == g].mean() for g in "abcd"}
    groups["small groups"] = p.predicted[90:].mean()
    values = [groups[name] for name in expected]
    np.testing.assert_allclose(found, max(values) - min(values), **EXACT)


def test_size_is_that_of_the_rows_of_the_rate():
    """Of a false positive rate, a group's negative rows; groups without any are left out."""
    p = with_small_groups()
    p.codes[p.region == "c"] = 1
    p.codes[p.region == "d"] = 0
    negatives = {g: int((p.codes[p.region == g] == 0).sum()) for g in "abd"}
    rate = each(fpr(), by="region", min_group_size=3)
    with pytest.warns(UserWarning, match=r"region=c \(0\), region=d \(2\)\..*are left out\."):
        compiled = p.measured(rate <= 0.5)[3]
    assert {g.name[0]: g.size for g in compiled.groups[0]} == negatives
    p.weight = np.where(p.region == "b", 0.0, 1.0)
    with pytest.warns(UserWarning, match=r"region=b \(0\)"):
        compiled = p.measured(each(error_rate(), by="region", min_group_size=1) <= 0.5)[3]
    assert [g.name[0] for g in compiled.groups[0]] == ["a", "c", "d"]
    # A weight of zero leaves a row out.
    p.weight = np.where(p.region == "a", np.arange(p.n) < 5, 1.0)
    left = int((p.region[:5] == "a").sum())
    with pytest.warns(UserWarning, match=rf"rows that the rate is .*: region=a \({left}\)"):
        compiled = p.measured(each(error_rate(), by="region", min_group_size=6) <= 0.5)[3]
    assert compiled.groups[0][0].size == left


def test_rows_without_a_value():
    """They are a group of their own, or an error; other data sets' rows do not count."""
    p = Problem(0)
    p.sex = p.sex.astype(object)
    rate = {"by": "sex", "min_group_size": 1}
    full = gap(tpr(), missing="raise", **rate) <= 0.5
    p.measured(full)
    p.sizes, p.sources = [100, 50], ("monitor",)
    p.measured(full)
    p.sizes, p.sources = None, ()
    p.sex[::3] = None
    compiled = p.measured(each(tpr(), **rate) <= 0.5)[3]
    assert [g.name[0] for g in compiled.groups[0]] == ["F", "M", MISSING]
    for nothing in (None, np.nan, pd.NA, pd.NaT):
        found = p.value(selection_rate(on={"sex": nothing}))
        np.testing.assert_allclose(found, np.average(p.predicted[::3], weights=p.w[::3]), **EXACT)
    with pytest.raises(ValueError, match=r"'M', missing\]\. on=\{'sex': None\} selects the"):
        p.value(selection_rate(on={"sex": "missing"}))
    with pytest.raises(ValueError, match="sex has missing values: fill them in"):
        p.measured(full)
    p.sex[::3] = "missing"  # a value like any other
    p.measured(full)
    p.sex[1::3] = None
    compared = gap(tpr(), by="sex", reference=np.nan, min_group_size=1) <= 0.5
    groups = p.measured(compared)[3].groups[0]
    assert [g.name[0] for g in groups] == ["F", "M", "missing", MISSING]
    values = [p.value(selection_rate(on={"sex": value})) for value in ("missing", None)]
    expected = [np.average(p.predicted[i::3], weights=p.w[i::3]) for i in (0, 1)]
    np.testing.assert_allclose(values, expected, **EXACT)
    by_default = gap(tpr(), by="sex", min_group_size=1) <= 0.5
    assert (gap(tpr(), by="sex", reference=None, min_group_size=1) <= 0.5) == by_default
    unknown = gap(tpr(), by="sex", reference="X", min_group_size=1) <= 0.5
    with pytest.raises(ValueError, match=r"missing\]\. reference=numpy\.nan is the group of the"):
        p.measured(unknown)


# --- linear rows ----------------------------------------------------------------------------


def every_kind(p, rng):
    """Constraints of every kind with random bounds, both senses where there are two."""
    old = p.classes[p.other]
    F, M = {"sex": "F"}, {"sex": "M"}
    by = {"by": "region", "min_group_size": 1}
    both = [
        error_rate(),
        fpr(on=F),
        log_loss(),
        tnr(1),
        2 * tpr() - 0.5 * fpr() + 0.1,
        precision(),
        f1(on=M),
        confusion(0, 1, normalize="pred"),
        wins(over=old) / losses(to=old),
        wins(over=old) / (wins(over=old) + losses(to=old)),
        churn(to=old, on=F),
        each(tpr(), **by),
        each(error_rate() + fpr(), **by),
    ]
    for rate in both:
        bound = rng.uniform(0.02, 0.98)
        yield rate <= bound
        yield rate >= bound
    yield fpr(on=F) <= fpr(on=M)
    yield fpr(on=F) >= 0.8 * tpr(on=M)
    for reference in (None, "b", overall):
        bound = rng.uniform(0, 0.5)
        yield gap(error_rate(), reference=reference, **by) <= bound
        yield gap(tpr() - fpr(), reference=reference, **by) <= bound
        yield gap(log_loss(), reference=reference, **by) <= bound
        for slack in (0.0, 0.1):
            options = {"reference": reference, "slack": slack, **by}
            yield ratio(selection_rate(), **options) >= rng.uniform(0.3, 1)
            yield ratio(tnr(1), **options) >= rng.uniform(0.3, 1)


@random(30)
@given(seed=seeds, extreme=st.sampled_from([None, -1.0, 1.0]))
def test_the_linear_rows_mean_what_was_written(seed, extreme):
    """A constraint is satisfied where and only where all its rows are at most zero."""
    p = Problem(seed, n=120)
    if extreme:
        p.margin[p.rng.random(p.n) < 0.97] = extreme
    constraints = list(every_kind(p, np.random.default_rng(seed)))
    values, violations, satisfied, compiled = p.measured(*constraints)
    for j, constraint in enumerate(constraints):
        own = violations[compiled.owner == j]
        assert own.size
        if np.isnan(values[j]):  # 0 / 0
            assert (own <= 1e-12).all()
        elif abs(own).min() > 1e-9:  # not where rounding decides
            assert satisfied[j] == (own <= 0).all(), constraint


def test_many_ratios_as_linear_rows():
    """Goh et al. (2016), Appendix B: on 2,000 random predictions, by direct evaluation."""
    p = Problem(0, n=40, weighted=False)
    old, y = p.other, p.codes
    k = {"precision": 0.6, "f1": 0.55, "win_loss": 1.2, "win_change": 0.5}
    w, lost = wins(over=old), losses(to=old)
    rates = [precision(), f1(), w / lost, w / (w + lost)]
    constraints = [rate >= bound for rate, bound in zip(rates, k.values(), strict=True)]
    cells, compiled = compile_constraints(constraints, p.rows)
    lagrangian = Lagrangian(p.codes, cells, compiled)
    rng = np.random.default_rng(1)
    met = np.zeros(4)
    for _ in range(2000):
        predicted = rng.random(40) < rng.choice([0.02, 0.3, 0.5, 0.9])
        if rng.random() < 0.5:  # nearer the truth
            predicted = np.where(rng.random(40) < 0.4, y == 1, predicted)
        statistics = lagrangian.at(np.where(predicted, 1.0, -1.0)).statistics()
        g = compiled.violations(statistics)
        right, old_right = predicted == y, old == y
        tp, fp = (predicted & (y == 1)).sum(), (predicted & (y == 0)).sum()
        fn = (~predicted & (y == 1)).sum()
        won, gone = (right & ~old_right).sum(), (~right & old_right).sum()
        direct = [
            tp - k["precision"] * (tp + fp),
            2 * tp - k["f1"] * (2 * tp + fp + fn),
            won - k["win_loss"] * gone,
            won - k["win_change"] * (won + gone),
        ]
        np.testing.assert_allclose(-40 * g, direct, atol=1e-12)
        fractions = [over(tp, tp + fp), over(2 * tp, 2 * tp + fp + fn), over(won, gone)]
        fractions.append(over(won, won + gone))
        values = compiled.values(compiled.functionals(statistics))
        np.testing.assert_allclose(values, fractions, **EXACT)
        met += g <= 1e-12
    assert ((met > 100) & (met < 1900)).all()


@random(2)
@given(seed=seeds)
def test_many_masks_are_spread_over_views(seed):
    """Forty masks would make 2^40 cells; each constraint still counts its own rows."""
    p = Problem(seed, n=400)
    masks = p.rng.random((40, p.n)) < p.rng.uniform(0.2, 0.9, (40, 1))
    masks[:, :10] = True
    everything = np.ones(p.n, dtype=bool)
    constraints = [
        rate <= 0.5
        for mask in masks
        for rate in (error_rate(on=mask), tpr(on=(mask, {"sex": "F"})), log_loss(on=mask))
    ]
    constraints += [error_rate() <= 0.5, gap(fpr(), by="sex", min_group_size=1) <= 0.5]
    cells, compiled = compile_constraints(constraints, p.rows)
    assert len(cells.views) > 3
    for view in cells.views:
        assert view.cells.stop - view.cells.start <= VIEW_CELLS
    lagrangian = Lagrangian(p.codes, cells, compiled, weight=p.weight)
    statistics = lagrangian.at(p.margin).statistics()
    expected = []
    for mask in masks:
        of_mask = counted(p, 1, mask)
        of_F = counted(p, 1, mask & (p.sex == "F"))
        expected += [of_mask["error_rate"], of_F["tpr"], of_mask["log_loss"]]
    in_all = counted(p, 1, everything)
    apart = [counted(p, 1, p.sex == s)["fpr"] for s in "FM"]
    expected += [in_all["error_rate"], abs(apart[0] - apart[1])]
    found = compiled.values(compiled.functionals(statistics))
    np.testing.assert_allclose(found, expected, **EXACT)
    np.testing.assert_allclose(lagrangian.objective(statistics), in_all["log_loss"], **EXACT)
    np.testing.assert_allclose(lagrangian.error(statistics), in_all["error_rate"], **EXACT)
    np.testing.assert_allclose(lagrangian.total_weight, p.weight.sum(), **EXACT)


# --- algebra --------------------------------------------------------------------------------


@random(40)
@given(seed=seeds, a=st.floats(-3, 3), b=st.floats(0.1, 3))
def test_the_value_of_a_combination_is_the_combination_of_values(seed, a, b):
    p = Problem(seed, n=60)
    x, y, z = tpr(on={"sex": "F"}), fpr(), log_loss()
    vx, vy, vz = p.value(x), p.value(y), p.value(z)
    for rate, expected in {
        x + y: vx + vy,
        x - y: vx - vy,
        -x + 1: 1 - vx,
        1 - x: 1 - vx,
        y + 0.25: vy + 0.25,
        y - 0.25: vy - 0.25,
        (x + 0.2) - (y + 0.5): vx - vy - 0.3,
        b * x + a * y: b * vx + a * vy,
        (x + y) / b: (vx + vy) / b,
        x * b + z * b: b * (vx + vz),
        sum([x, y, z]): vx + vy + vz,
        x + x - 0.5 * x: 1.5 * vx,
        0.5 * (x + (y - x)) + x: 0.5 * vy + vx,
    }.items():
        low, high = rate.range
        bound = min(max(0.3, low), high)
        np.testing.assert_allclose(p.measured(rate <= bound)[0][0], expected, **EXACT)


def test_a_rate_is_restricted_as_on_reads_it():
    rows = ({"sex": "F", "region": None}, label(1), dataset("m"))
    assert fpr().restricted(*rows) == fpr(on=rows)
    both = fpr() - fpr(on={"sex": "F"})
    assert both.restricted(MASK) == fpr(on=MASK) - fpr(on=({"sex": "F"}, MASK))
    assert both.restricted() == both


def test_equal_terms_merge():
    assert fpr() + fpr() == 2 * fpr()
    assert 3 * fpr() - fpr() == 2.0 * fpr()
    assert fpr() + fnr() - fpr() == fnr()
    assert (fpr() - fpr()).terms == ()
    assert 0 * fpr() + fnr() == fnr()
    assert fpr() + fpr(on={"sex": "F"}) != 2 * fpr()


MASK = np.array([True, False, True, True, False])
OLD = [0, 1, 1, 0, 1]
F, M = {"sex": "F"}, {"sex": "M"}
PRINTED = {
    "fnr <= 0.05": fnr() <= 0.05,
    "fpr[sex=F] - fpr[sex=M] <= 0.02": fpr(on=F) - fpr(on=M) <= 0.02,
    "fpr[sex=F] - fpr[sex=M] <= 0": fpr(on=F) <= fpr(on=M),
    "fpr[sex=F] - 0.8 * fpr[sex=M] >= 0": fpr(on=F) >= 0.8 * fpr(on=M),
    "log_loss[sex=F] - log_loss[sex=M] <= 0": log_loss(on=F) <= log_loss(on=M),
    "0.5 * fpr + 2 * fnr <= 0.3": 0.5 * fpr() + 2 * fnr() <= 0.3,
    "-fpr + 1 >= 0.9": 1 - fpr() >= 0.9,
    "-0.5 * fpr - fnr - 0.1 <= -0.2": -0.5 * fpr() - fnr() - 0.1 <= -0.2,
    "error_rate[y='SIRA'] <= 0.1": error_rate(on=label("SIRA")) <= 0.1,
    "error_rate[mask of 3 rows] <= 0.1": error_rate(on=MASK) <= 0.1,
    "fpr[mask of 3 rows, sex=F, y=1] <= 0.1": fpr(on=(MASK, F, label(1))) <= 0.1,
    "selection_rate[monitor] >= 0.2": selection_rate(on=dataset("monitor")) >= 0.2,
    "selection_rate('b') >= 0.2": selection_rate("b") >= 0.2,
    "class_error(3) <= 0.1": class_error(np.int64(3)) <= 0.1,
    "tnr('a') >= 0.9": tnr("a") >= 0.9,
    "precision >= 0.9": precision() >= 0.9,
    "precision(2)[sex=F] >= 0.9": precision(2, on=F) >= 0.9,
    "f1 >= 0.5": f1() >= 0.5,
    "confusion(0, 2) <= 0.1": confusion(0, 2) <= 0.1,
    "confusion(0, 2)/all <= 0.1": confusion(0, 2, normalize="all") <= 0.1,
    "confusion(0, 2)/pred[sex=F] <= 0.1": confusion(0, 2, normalize="pred", on=F) <= 0.1,
    "churn <= 0.1": churn(to=OLD) <= 0.1,
    "(wins) / (losses) >= 2": wins(over=OLD) / losses(to=OLD) >= 2,
    "(wins) / (wins + losses) >= 0.6": wins(over=OLD) / (wins(over=OLD) + losses(to=OLD)) >= 0.6,
    "gap(tpr, by='sex') <= 0.02": gap(tpr(), by="sex") <= 0.02,
    "gap(tpr) <= 0.02": gap(tpr()) <= 0.02,
    "gap(tpr, by=['sex', 'age']) <= 0.02": gap(tpr(), by=["sex", "age"]) <= 0.02,
    "gap(tpr, by='sex', reference='F') <= 0.1": gap(tpr(), by="sex", reference="F") <= 0.1,
    "gap(tpr, reference=overall) <= 0.1": gap(tpr(), reference=overall) <= 0.1,
    "fpr[sex=missing] <= 0.1": fpr(on={"sex": None}) <= 0.1,
    "gap(tpr, by='sex', reference=missing) <= 0.1": gap(tpr(), by="sex", reference=np.nan) <= 0.1,
    "gap(fpr[mask of 3 rows], by='sex', drop below 5) <= 0.1": gap(
        fpr(on=MASK), by="sex", small_groups="drop", min_group_size=5
    )
    <= 0.1,
    "ratio(selection_rate, by='sex', slack=0.03) >= 0.8": ratio(
        selection_rate(), by="sex", slack=0.03
    )
    >= 0.8,
    "gap(tpr, by='sex', missing='raise', min_group_size=5) <= 0.1": gap(
        tpr(), by="sex", missing="raise", min_group_size=5
    )
    <= 0.1,
    "ratio(selection_rate, by='sex') >= 0.8": ratio(selection_rate(), by="sex") >= 0.8,
    "each(recall, by='region') >= 0.8": each(recall(), by="region") >= 0.8,
    "each(log_loss) <= 2.5": each(log_loss()) <= 2.5,
}


def test_a_comparison_prints_as_it_is_read():
    comparison = ratio(fpr(), by="g", reference="a", slack=0.03, missing="raise", min_group_size=9)
    assert parse_constraint(str(comparison >= 0.8)) == (comparison >= 0.8)


@pytest.mark.parametrize("text", PRINTED)
def test_a_constraint_prints_as_it_is_written(text):
    assert str(PRINTED[text]) == repr(PRINTED[text]) == text
    assert str(PRINTED[text].expression) == repr(PRINTED[text].expression)


class Holder(BaseEstimator):
    """What scikit-learn clones: an estimator that stores its constraints."""

    def __init__(self, constraints=()):
        self.constraints = constraints


TRAVELS = [
    lambda x: pickle.loads(pickle.dumps(x)),
    copy.deepcopy,
    copy.copy,
    lambda x: clone(Holder([x])).constraints[0],
    lambda x: clone(Holder(x)).constraints,
]


@pytest.mark.parametrize("text", PRINTED)
@pytest.mark.parametrize("travel", TRAVELS)
def test_a_constraint_survives_a_copy(text, travel):
    """Pickle, deepcopy and sklearn.clone return an equal constraint with an equal hash."""
    twin = travel(PRINTED[text])
    assert twin == PRINTED[text]
    assert hash(twin) == hash(PRINTED[text])
    assert str(twin) == text


def test_equality_is_by_content():
    assert len(set(PRINTED.values())) == len(PRINTED)
    assert (fnr(on=MASK) <= 0.1) == (fnr(on=MASK.tolist()) <= 0.1)
    assert fnr(on=MASK) != fnr(on=~MASK)
    assert churn(to=OLD) == churn(to=np.array(OLD))
    assert churn(to=OLD) != churn(to=OLD[::-1])
    assert (fnr() <= 0.1) != (fnr() <= 0.2) != (fnr() >= 0.2)
    assert gap(fnr(), by="sex") == gap(fnr(), by=["sex"]) != gap(fnr())
    assert fpr(on={"age": np.int64(3)}) == fpr(on={"age": 3})
    by = ["sex", "age"]
    assert gap(fnr(), by=by, reference=["F", 3]) == gap(fnr(), by=by, reference=("F", 3))


MODELS = {
    "logistic": LogisticRegression,
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": lambda: RandomForestClassifier(5, random_state=0),
    "lightgbm": lambda: ConstrainedLGBMClassifier(n_estimators=3, verbose=-1),
    "xgboost": lambda: ConstrainedXGBClassifier(n_estimators=3, verbosity=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_rules_with_another_model_are_equal_by_what_it_is(name):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    model, other = MODELS[name]().fit(X, y), MODELS[name]().fit(X, 1 - y)
    rule = churn(to=model) <= 0.1
    copied = pickle.loads(pickle.dumps(model))
    twins = [travel(rule) for travel in TRAVELS]
    for twin in (*twins, churn(to=copied) <= 0.1):
        assert twin == rule
        assert hash(twin) == hash(rule)
        assert pickle.loads(pickle.dumps(twin)) == rule
    assert rule != (churn(to=other) <= 0.1)
    assert churn(to=model) - churn(to=copied) == 0 * churn(to=model)


def test_a_model_without_a_pickle_equals_itself_alone():
    constant = lambda X: np.zeros(len(X))  # noqa: E731
    model = Constant(constant)
    assert churn(to=model) == churn(to=model) == copy.deepcopy(churn(to=model))
    assert churn(to=model) != churn(to=Constant(constant))


class Counting(BaseEstimator):
    """A model that counts how often it is asked."""

    asked = 0

    def predict(self, X):
        Counting.asked += 1
        return np.zeros(len(X), dtype=int)


def test_equal_models_are_asked_once():
    p = Problem(0)
    p.features = [np.zeros((p.n, 1))]
    rules = [churn(to=Counting()) <= 0.1, wins(over=Counting()) <= 0.2]
    p.measured(*rules, *clone(Holder(rules)).constraints)
    assert Counting.asked == 1


@pytest.mark.parametrize("text", PRINTED)
def test_nothing_can_be_changed(text):
    constraint = PRINTED[text]
    for thing in (constraint, constraint.expression, constraint.terms[0]):
        for name in [*(f.name for f in dataclasses.fields(thing)), "other"]:
            with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
                setattr(thing, name, 0.5)


def test_a_rate_keeps_its_own_copy_of_what_it_was_given():
    mask, old = MASK.copy(), list(OLD)
    rates = error_rate(on=mask), churn(to=old)
    mask[:], old[0] = False, 5
    assert rates == (error_rate(on=MASK), churn(to=OLD))


@pytest.mark.parametrize("number", [float, np.float64, np.float32])
def test_numbers_of_numpy_and_either_side(number):
    assert (number(0.25) >= fnr()) == (fnr() <= number(0.25)) == Constraint(fnr(), "<=", 0.25)
    assert (number(0.25) <= fnr()) == (fnr() >= number(0.25)) == Constraint(fnr(), ">=", 0.25)
    assert number(2) * fnr() == fnr() * number(2) == fnr() + fnr()
    assert number(1) - fnr() == -fnr() + number(1)
    assert type((fnr() <= number(0.25)).bound) is float
    assert (number(0.5) <= ratio(fnr())) == (ratio(fnr()) >= 0.5)
    assert (number(0.5) >= gap(fnr())) == (gap(fnr()) <= 0.5)


@pytest.mark.parametrize("Classifier", [ConstrainedLGBMClassifier, ConstrainedXGBClassifier])
def test_bounds_are_searched_over(Classifier):
    """GridSearchCV tries constraints; columns of groups travel inside X."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    X["sex"] = rng.integers(0, 2, 300)
    y = (X["a"] + X["sex"] + 0.5 * rng.normal(size=300) > 0).astype(int)
    model = Classifier(n_estimators=5, n_jobs=1, **(
        {"verbose": -1} if Classifier is ConstrainedLGBMClassifier else {"verbosity": 0}
    ))  # fmt: skip
    grid = [
        [gap(selection_rate(), by="sex", min_group_size=1) <= b, fnr() <= 0.9] for b in (0.05, 0.5)
    ]
    search = GridSearchCV(model, {"constraints": [*grid, None, fnr() <= 0.3]}, cv=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["constraints"] in [*grid, None, fnr() <= 0.3]
    assert "fnr <= 0.3" in repr(model.set_params(constraints=[fnr() <= 0.3]))
    assert clone(model).constraints == [fnr() <= 0.3]


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: fpr() * fnr(), "fpr times fnr is not linear in the predictions"),
        (lambda: fpr() * gap(fnr()), "not linear"),
        (lambda: gap(fpr(), by="s") + gap(fnr(), by="s"), "only plain rates have sums"),
        (lambda: sum([gap(fpr()), gap(fnr())]), "only plain rates have sums"),
        (lambda: gap(fpr()) - 0.1, "only plain rates have sums"),
        (lambda: fpr() + gap(fnr()), "a gap is not linear"),
        (lambda: fpr() - precision(), "a quotient is not linear"),
        (lambda: 2 * precision(), "a quotient is not linear"),
        (lambda: precision() / f1(), "a quotient is not linear"),
        (lambda: 1 / fpr(), "1 / (fpr) is not linear in the predictions: rates divide rates"),
        (lambda: "a" / fpr(), "unsupported operand"),
        (
            lambda: gap(fpr),
            "gap takes a rate, and 'fpr' is a function that makes one: write fpr()",
        ),
        (lambda: churn(to=LogisticRegression), "LogisticRegression is a class: make one of it"),
        (lambda: dataset(1), "a string; got 1"),
        (lambda: fpr(["a"]), "A label is one value of y: write a rate for each of several"),
        (lambda: fpr(on={"g": ["a", "b"]}), "on= takes one value of column 'g', or a mask of"),
        (lambda: gap(fpr(), by=[["g"]]), "by= must be the name of a column, or a list of names"),
        (lambda: gap(fpr(), reference=[["a"]]), "reference= must be a group's value, or a tuple"),
        (lambda: gap(fpr()) >= 0.1, "a gap can only be bounded from above"),
        (lambda: ratio(fpr()) <= 0.8, "a ratio of groups can only be bounded from below"),
        (lambda: gap(precision()), "gap compares a plain rate between groups, got precision"),
        (lambda: each(gap(fpr())), "each compares a plain rate between groups"),
        (lambda: gap("fpr"), "gap takes a rate, and 'fpr' is a text: write fpr()"),
        (lambda: each("tpr", by="sex"), "each takes a rate, and 'tpr' is a text: write tpr()"),
        (lambda: ratio("fpr"), "ratio takes a rate, and 'fpr' is a text: write fpr()"),
        (
            lambda: gap("false alarms"),
            "gap compares a plain rate between groups, such as fpr(), got",
        ),
        (lambda: fpr() - fnr, "A sum with fpr takes a rate, and 'fnr' is a function that makes"),
        (lambda: fnr + fpr(), "write fnr()"),
        (lambda: fpr() + "fnr", "A sum with fpr takes a rate, and 'fnr' is a text: write fnr()"),
        (lambda: tpr() / fpr, "A quotient of tpr takes a rate"),
        (lambda: fpr() <= fnr, "A bound of fpr takes a rate, and 'fnr' is a function"),
        (lambda: Constraint(fpr, "<=", 0.1), "A constraint takes a rate"),
        (lambda: 0.01 <= fpr() <= 0.05, "A rate between two bounds takes two constraints"),
        (lambda: fpr() <= precision(), "must be a number, got precision"),
        (lambda: gap(fpr()) <= gap(fnr()), "must be a number, got gap"),
        (lambda: fpr() < 0.05, "fpr and 0.05 cannot be compared by < or >: a bound is never"),
        (lambda: gap(fpr()) > 0.05, "a bound is never strict, write <= or >="),
        (lambda: max(fpr(), fnr()), "of two rates is bounded by a constraint for each"),
        (lambda: abs(fpr() - fnr()), "abs(fpr - fnr) is not linear in the predictions: bound it"),
        (lambda: fpr() + "0.1", "unsupported operand"),
        (lambda: fpr() * True, "unsupported operand"),
        (lambda: error_rate(MASK), "positional"),
        (lambda: churn(to=3), "to= must be a fitted classifier, the name of a column"),
        (lambda: wins(over=[[0, 1]]), "over= must be a fitted classifier"),
    ],
)
def test_what_is_not_linear_is_refused(make, reason):
    with pytest.raises(TypeError) as error:
        make()
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: fpr() / 0, "(fpr) / 0: rates are divided by finite numbers, not by 0"),
        (lambda: fpr() / np.float64(0.0), "not by 0"),
        (lambda: fpr() / np.inf, "not by 0"),
        (lambda: fpr() * np.nan, "(fpr) * nan: only finite numbers multiply rates"),
        (lambda: 10**400 * fpr(), f"(fpr) * 1{36 * '0'}...: only finite numbers multiply"),
        (lambda: fpr() + 10**400, "(fpr) + 1000000"),
        (lambda: 10**400 - fpr(), "only finite numbers are added to rates"),
        (lambda: fpr() - np.inf, "(fpr) - inf: only finite numbers are added to rates"),
        (lambda: fpr() <= 10**400, "must be a rate in [0, 1]: 5 per cent is written 0.05; got 10"),
        (lambda: log_loss() <= 10**400, "finite mean cross-entropy in nats; got 1000"),
        (lambda: ratio(fpr(), slack=10**400), "slack must be a non-negative number, got 1000"),
        (lambda: losses(to=[0, None]), "to= has 1 missing decisions (NaN or None), the first in"),
        (lambda: wins(over=["a", np.nan]), "over= has 1 missing decisions"),
        (lambda: churn(to=[np.nan] * 150), "to= has 150 missing decisions"),
        (lambda: churn(to=pd.array([1, None])), "to= has 1 missing decisions"),
        (lambda: churn(to=np.ma.array([1, 0], mask=[True, False])), "the first in row 0"),
        (lambda: fpr() / (tpr() - tpr()), "divides by zero"),
        (lambda: confusion(0, 1, normalize="pred") <= 10, "90 per cent is written 0.9"),
        (lambda: fpr() / (tpr() - fnr()), "divides by a rate that can be negative"),
        (lambda: fpr() / (0.5 - fnr()), "divides by a rate that can be negative"),
        (lambda: ratio(tpr() - fpr()), "divides by a rate that can be negative"),
        (lambda: ratio(tpr(), slack=-0.1), "slack must be a non-negative number, got -0.1"),
        (lambda: ratio(tpr(), slack="0.1"), "slack must be a non-negative number, got '0.1'"),
        (lambda: gap(fpr(), by=[]), "by= is empty"),
        (lambda: gap(fpr(), missing="drop"), "missing must be one of ['group', 'raise']"),
        (lambda: gap(fpr(), small_groups="no"), "small_groups must be one of ['keep', 'merge'"),
        (lambda: gap(fpr(), min_group_size=0), "min_group_size must be an integer >= 1, got 0"),
        (lambda: gap(fpr(), min_group_size=1.5), "min_group_size must be an integer >= 1"),
        (lambda: gap(fpr(), min_group_size=True), "min_group_size must be an integer >= 1"),
        (lambda: confusion(0, 1, normalize=None), "normalize must be 'true', 'pred' or 'all'"),
        (lambda: fpr() - fpr() <= 0, "does not depend on predictions"),
        (lambda: Constraint(fpr(), "<", 0.1), "must be one of ['<=', '>='], got '<'"),
        (lambda: Constraint(gap(fpr()), ">=", 0.1), "must be one of ['<=']"),
        (lambda: Constraint(ratio(fpr()), "<=", 0.1), "must be one of ['>=']"),
        (lambda: log_loss() <= 0, "must be a positive, finite mean cross-entropy in nats"),
        (lambda: each(log_loss()) <= 0, "must be a positive, finite mean cross-entropy in nats"),
        (lambda: ratio(fpr()) >= 80, "a ratio in [0, 1]: four fifths is written 0.8; got 80.0"),
        (lambda: precision() >= 90, "a fraction in [0, 1]: 90 per cent is written 0.9"),
        (lambda: f1() >= 1.01, "a fraction in [0, 1]"),
        (lambda: fpr(on=F) - fpr(on=M) <= 1.5, "must be in [-1, 1], the values it can have"),
        (lambda: 2 * fpr() + 0.5 <= 0.4, "must be in [0.5, 2.5], the values it can have"),
        (lambda: gap(2 * fpr()) <= 2.1, "must be in [0, 2]"),
        (lambda: gap(tpr() - fpr()) <= 2.1, "must be in [0, 2]"),
        (lambda: wins(over=OLD) / losses(to=OLD) >= -1, "must be not negative"),
        (lambda: (tpr() - fpr()) / tpr() >= -np.inf, "must be finite; got -inf"),
    ],
)
def test_what_has_no_meaning_is_refused(make, reason):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the reason is compared below
        make()
    assert reason in str(error.value)


RATES = [fnr(), class_error(3, on=MASK), gap(fpr(), by="s"), each(recall()), precision()]


@pytest.mark.parametrize("bound", [-0.01, 1.01, 5, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_a_bound_outside_the_range(rate, bound):
    with pytest.raises(ValueError, match=r"must be a .* in \[0, 1\]: .* per cent") as error:
        _ = rate <= bound
    assert str(error.value).startswith(f"The bound of {rate} must be a ")
    assert str(error.value).endswith(f"got {float(bound)}.")


@pytest.mark.parametrize("bound", [np.nan, np.inf])
@pytest.mark.parametrize("rate", [log_loss(), fpr() / fnr(), gap(log_loss())], ids=str)
def test_a_bound_is_finite(rate, bound):
    with pytest.raises(ValueError, match=r"The bound of .* must be"):
        _ = rate <= bound


@pytest.mark.parametrize("bound", [0, 1, np.int64(1), 0.0, 1.0])
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_the_ends_of_the_range_are_bounds(rate, bound):
    assert (rate <= bound).bound == float(bound)


@pytest.mark.parametrize("bound", ["0.05", None, True, np.True_, 1j, [0.05], np.array([0.05])])
@pytest.mark.parametrize("rate", [*RATES, log_loss()], ids=str)
def test_a_bound_that_is_not_a_number(rate, bound):
    with pytest.raises(TypeError, match="must be a number") as error:
        Constraint(rate, "<=", bound)
    assert f"The bound of {rate} " in str(error.value)
    assert f"got {bound!r}" in str(error.value)
    assert re.search(r"`\w+\(\.\.\.\) <= 0\.05`", str(error.value))


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (class_error(7) <= 0.1, "it names class 7, which is not in y: its classes are [0, 1]"),
        (error_rate(on=label("a")) <= 0.1, "it names class 'a'"),
        (selection_rate(5) <= 0.1, "it names class 5"),
        (fpr(on={"sex": "X"}) <= 0.1, "sex=X selects no row: the values of 'sex' are ['F', 'M']"),
        (fpr(on={"age": 3}) <= 0.1, "column 'age' is neither in sensitive_features nor in X"),
        (gap(fpr(), by="age") <= 0.1, "the columns known are ['sex', 'region', 'old']"),
        (fpr(on=dataset("m")) <= 0.1, "data set 'm' was not given"),
        (fpr(on=dataset("train")) <= 0.1, "data set 'train' was not given"),
        (fpr(on=MASK) <= 0.1, "a mask of 5 rows, but the training data have 150 rows"),
        (churn(to=OLD) <= 0.1, "decisions have 5 entries, but the training data have 150 rows"),
        (churn(to=[2] * 150) <= 0.1, "The other model decides 2, which is not among the classes"),
        (churn(to=["0"] * 150) <= 0.1, "The other model decides '0'"),
        (churn(to="sex") <= 0.1, "The other model decides 'F', which is not among the classes"),
        (churn(to="age") <= 0.1, "column 'age' is neither"),
        (fpr(on=(label(1), label(0))) <= 0.1, "is taken over no rows at all"),
        (fpr(on=label(1)) <= 0.1, "is taken over no rows at all"),
        (gap(fpr(), by="sex", reference="X") <= 0.1, "reference='X' is not among the groups"),
        (gap(fpr(on={"sex": "F"}), by="sex") <= 0.1, "1 is left (sex=F): at least 2 are needed"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*some groups have fewer:UserWarning")
def test_what_the_data_do_not_have_is_refused(constraint, reason):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the reason is compared below
        Problem(0).measured(constraint)
    assert reason in str(error.value)


def test_of_many_values_some_are_named():
    p = Problem(0)
    columns = {"id": np.arange(p.n)}
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        compile_constraints([fpr(on={"id": -1}) <= 0.1], Rows(p.codes, p.classes, None, columns))
    first = ", ".join(map(str, range(20)))
    assert f"the values of 'id' are [{first} and {p.n - 20} more]." in str(error.value)


def test_rows_without_weight_are_refused():
    p = Problem(0)
    p.weight[p.sex == "F"] = 0.0
    with pytest.raises(ValueError, match="is taken over rows whose total weight is zero"):
        p.measured(fpr(on={"sex": "F"}) <= 0.1)


@pytest.mark.parametrize("rate", [fpr, fnr, tpr, tnr, recall, selection_rate, precision, f1])
def test_binary_rates_need_a_label_for_three_classes(rate):
    p = Problem(0, (0, 1, 2))
    with pytest.raises(ValueError, match="rate of binary classifiers, but y has 3 classes"):
        p.measured(rate() <= 0.1)
    assert 0 <= p.measured(rate(label=2) <= 0.1)[0][0] <= 1


def test_groups_by_nothing():
    p = Problem(0)
    rows = Rows(p.codes, p.classes)
    with pytest.raises(ValueError, match="groups are made by no column: give sensitive_features"):
        compile_constraints([gap(fpr()) <= 0.1], rows)


def test_an_attribute_soup_is_refused():
    """One constraint that looks at 25 masks cannot be cut into cells."""
    p = Problem(0)
    masks = tuple(p.rng.random((25, p.n)) < 0.9)
    with pytest.raises(ValueError, match=r"one constraint looks at 2[56] attributes"):
        p.measured(error_rate(on=masks) <= 0.1)
