"""Values of rates: against counting, row by row, and against scikit-learn."""

from __future__ import annotations

import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from hypothesis import given
from hypothesis import strategies as st
from references import (
    CLASSES,
    EXACT,
    Constant,
    Problem,
    counted,
    random,
    seeds,
    written,
)
from sklearn import metrics
from sklearn.linear_model import LogisticRegression

import gbm_constrained as gc


@pytest.mark.parametrize("classes", CLASSES)
@random(3)
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
        (gc.label(positive), problem.y == positive),
    ]
    for on, rows in restrictions:
        expected = counted(problem, positive, rows)
        rates = written(problem, positive, on)
        # Undefined ones have no rows (refused), or nothing is selected.
        names = [name for name in expected if not np.isnan(expected[name])]
        found = problem.measured(*(rates[name] <= 0.5 for name in names))[0]
        np.testing.assert_allclose(found, [expected[name] for name in names], **EXACT)


@pytest.mark.parametrize("classes", CLASSES)
@random(3)
@given(seed=seeds, weighted=st.booleans())
def test_rates_are_those_of_scikit_learn(classes, seed, weighted):
    """Including every entry of the confusion matrix in each of its normalisations."""
    p = Problem(seed, classes, weighted=weighted)
    y, predicted, rows = p.y, p.predicted, {"sample_weight": p.weight}
    expected = {
        gc.accuracy(): metrics.accuracy_score(y, predicted, **rows),
        gc.error_rate(): metrics.zero_one_loss(y, predicted, **rows),
        gc.log_loss(): metrics.log_loss(y, np.exp(p.log_probability), labels=p.classes, **rows),
    }
    options = {"labels": p.classes, "average": None, "zero_division": np.nan, **rows}
    recalls = metrics.recall_score(y, predicted, **options)
    precisions = metrics.precision_score(y, predicted, **options)
    f1s = metrics.f1_score(y, predicted, **options)
    for k, value in enumerate(classes):
        expected |= {
            gc.recall(value): recalls[k],
            gc.tpr(value): recalls[k],
            gc.fnr(value): 1 - recalls[k],
            gc.class_error(value): 1 - recalls[k],
            gc.precision(value): precisions[k],
            gc.f1(value): f1s[k],
            gc.tnr(value): metrics.recall_score(
                y != value, predicted != value, zero_division=np.nan, **rows
            ),
        }
    if len(classes) == 2:
        expected |= {
            f(): expected[f(classes[1])]
            for f in (gc.recall, gc.tpr, gc.fnr, gc.precision, gc.f1, gc.tnr)
        }
    for how in ("true", "pred", "all"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # 0 / 0 where nothing is predicted
            matrix = metrics.confusion_matrix(
                y, predicted, labels=p.classes, normalize=how, **rows
            )
        for i, true in enumerate(classes):
            for j, guess in enumerate(classes):
                expected[gc.confusion(true, guess, normalize=how)] = matrix[i, j]
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
    on_monitor = gc.dataset("monitor")
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
        for name in named:
            with pytest.raises(ValueError, match="needs labels, which rows of a data set do"):
                p.value(rates[name])
        known = [name for name in rates if name not in named]
        found = p.measured(*(rates[name] <= 0.5 for name in known))[0]
        np.testing.assert_allclose(found, [expected[name] for name in known], **EXACT)


def test_no_name_of_a_data_set_means_the_training_rows():
    p = Problem(0)
    p.sizes, p.sources = [100, 50], ("train",)
    expected = np.average(p.predicted[100:], weights=p.w[100:])
    np.testing.assert_allclose(
        p.value(gc.selection_rate(on=gc.dataset("train"))), expected, **EXACT
    )


def test_no_joint_rate_is_silently_zero_without_labels():
    p = Problem(0)
    p.sizes, p.sources, p.codes[100:] = [100, 50], ("monitor",), -1
    for how in ("true", "pred", "all"):
        with pytest.raises(ValueError, match="needs labels"):
            p.value(gc.confusion(0, 1, normalize=how, on=gc.dataset("monitor")))


DAYS = tuple(np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]"))


@pytest.mark.parametrize("unit", ["ns", "us", "D"])
def test_a_label_may_be_a_date(unit):
    p = Problem(0, np.array(DAYS, dtype=f"datetime64[{unit}]"))
    of_first = p.codes == 0
    expected = np.average(p.predicted[of_first] != p.classes[0], weights=p.w[of_first])
    for day in (DAYS[0], p.classes[0], pd.Timestamp(DAYS[0])):
        np.testing.assert_allclose(p.value(gc.class_error(day)), expected, **EXACT)
    old = p.classes[p.other]
    p.features = [np.zeros((p.n, 1))]
    changed = np.average(p.predicted != old, weights=p.w)
    for to in ("old", old, pd.Series(old), Constant(lambda X: old)):
        np.testing.assert_allclose(p.value(gc.churn(to=to)), changed, **EXACT)


@pytest.mark.parametrize("classes", [(0, 1), ("x", "y", "z")])
def test_another_model_is_a_classifier_a_column_or_its_decisions(classes):
    p = Problem(3, classes)
    old = p.classes[p.other]
    p.features = [pd.DataFrame({"row": np.arange(p.n), "in_X": old})]
    model = Constant(lambda X: old[X["row"]])
    column = Constant(lambda X: old[X["row"]].astype(object)[:, None])
    for rate, expected in [
        (gc.churn, "churn"),
        (lambda to: gc.wins(over=to), "wins"),
        (gc.losses, "losses"),
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
        p.value(gc.churn(to=model))


def test_another_model_must_be_fitted():
    p = Problem(0)
    p.features = [np.zeros((p.n, 1))]
    with pytest.raises(ValueError, match="other model, a LogisticRegression, is not fitted: fit"):
        p.value(gc.churn(to=LogisticRegression()))


@pytest.mark.parametrize("shape", [(1,), (), (50, 2), (50, 1, 1)])
def test_another_model_decides_once_for_each_row(shape):
    p = Problem(0)
    p.features = [np.zeros((p.n, 1))]
    answers = np.full(shape, p.classes[0]) if len(shape) < 2 else np.full((p.n, *shape[1:]), 0)
    with pytest.raises(ValueError, match=rf"answers with shape .* for {p.n} rows"):
        p.value(gc.churn(to=Constant(lambda X: answers)))


@pytest.mark.parametrize("missing", [None, np.nan, np.ma.masked])
def test_another_model_decides_every_row(missing):
    p = Problem(0)
    answers = np.ma.array(p.y, dtype=object)
    answers[7] = missing
    p.features = [pd.DataFrame({"decided": answers})]
    for to in (Constant(lambda X: answers), "decided"):
        with pytest.raises(ValueError, match="The other model's decisions hold missing values"):
            p.value(gc.churn(to=to))


@pytest.mark.parametrize("chunked", [True, False])
def test_decisions_in_a_dictionary_of_pyarrow(chunked):
    pyarrow = pytest.importorskip("pyarrow")
    p = Problem(0, ("x", "y"))
    decisions = pyarrow.array(p.classes[p.other].tolist()).dictionary_encode()
    missing = pyarrow.array(["x", None, "y"]).dictionary_encode()
    if chunked:
        decisions, missing = pyarrow.chunked_array([decisions]), pyarrow.chunked_array([missing])
    assert gc.churn(to=decisions) == gc.churn(to=p.classes[p.other])
    with pytest.raises(ValueError, match=r"to= has 1 missing .*, the first in row 1"):
        gc.churn(to=missing)


def test_a_quotient_over_rows_that_are_not_there_has_no_value():
    """As a gap has none: no rate of such rows is zero."""
    for rule in (
        gc.tpr(on={"s": "a"}) / gc.tpr(on={"s": "b"}) >= 0.8,
        gc.tpr(on={"s": "a"}) / gc.tpr(on={"s": "b"}) <= 1.2,
    ):
        for f in ([0.5, np.nan], [np.nan, 0.5], [np.nan, np.nan], [0.0, 0.0]):
            assert np.isnan(rule.value(np.array(f)))
        assert rule.value(np.array([0.5, 0.0])) == np.inf
        assert rule.value(np.array([0.5, 0.25])) == 2.0


@pytest.mark.parametrize("bound", [-2.5, -0.1, 0.0, 3.0])
def test_a_quotient_that_can_be_negative_has_negative_bounds(bound):
    p = Problem(1)
    rate = (gc.fpr() - gc.tpr()) / gc.selection_rate()
    value = (p.value(gc.fpr()) - p.value(gc.tpr())) / p.value(gc.selection_rate())
    assert value < 0
    values, rows, satisfied, _ = p.measured(rate >= bound, rate <= bound)
    np.testing.assert_allclose(values, value, **EXACT)
    assert satisfied.tolist() == (rows <= 0).tolist() == [value >= bound, value <= bound]
    assert (rate >= bound).expression.range == (-np.inf, np.inf)


def test_decisions_are_not_known_on_other_rows():
    """Given decisions are of training rows: churn on a data set would be one."""
    p = Problem(0)
    p.sizes, p.sources = [100, 50], ("monitor",)
    decisions = p.classes[p.other[:100]]
    with pytest.raises(ValueError, match="needs the other model's decisions"):
        p.value(gc.churn(to=decisions, on=gc.dataset("monitor")))
    with pytest.raises(ValueError, match="needs the other model's decisions"):
        p.value(gc.wins(over=decisions, on=gc.dataset("monitor")))
    assert 0 < p.value(gc.churn(to=decisions)) < 1


def test_where_nothing_is_selected():
    """Precision is undefined and its row met; wins without losses are infinitely many."""
    p = Problem(0)
    p.margin[:] = -1.0
    values, rows, _, _ = p.measured(gc.precision() >= 0.9, gc.precision() <= 0.1)
    assert np.isnan(values).all()
    assert (rows <= 0).all()
    p.margin = np.where(p.codes == 1, 1.0, -1.0)
    rate = gc.wins(over=1 - p.codes) / gc.losses(to=1 - p.codes)
    values, rows, satisfied, _ = p.measured(rate >= 2, rate <= 2)
    assert values.tolist() == [np.inf, np.inf]
    assert satisfied.tolist() == [True, False]
    assert (rows <= 0).tolist() == [True, False]
