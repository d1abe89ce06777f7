"""Black-box metrics: what the function gets, how it is called and counted, and what is refused."""

import copy
from types import MappingProxyType
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import f1_score, fbeta_score, log_loss, make_scorer, roc_auc_score

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.metrics import BlackBox, g_mean, surrogate

LABELS = np.array(["no", "yes", "yes", "no", "yes", "no"])
CLASSES = np.array(["no", "yes"])
Y = np.searchsorted(CLASSES, LABELS)
SCORES = np.array([-1.0, 2.0, 0.0, 0.5, -0.3, -2.0])


def rows(weight=None, **columns):
    return Rows(Y, CLASSES, weight, columns)


def measured(function, *, at=None, **options):
    return BlackBox(function, **options).bind(rows() if at is None else at, LABELS)


def test_the_function_gets_read_only_arrays_and_nothing_else():
    function = Mock(return_value=0.25)
    group = np.array(list("ababab"))
    metric = measured(function, at=rows(group=group))
    given = SCORES.copy()
    assert metric(given) == 0.25
    (call,) = function.mock_calls
    y_true, scores, sensitive = call.args
    assert call.kwargs == {}
    np.testing.assert_array_equal(y_true, LABELS)
    np.testing.assert_array_equal(scores, SCORES)
    np.testing.assert_array_equal(sensitive, group)
    for array in call.args:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
    given[0] = 99.0
    assert scores[0] == -1.0, "the function's array is a copy"


def test_several_features_are_a_read_only_mapping():
    function = Mock(return_value=0.0)
    measured(function, at=rows(a=np.arange(6), b=np.arange(6.0)))(SCORES)
    sensitive = function.mock_calls[0].args[2]
    assert isinstance(sensitive, MappingProxyType)
    assert list(sensitive) == ["a", "b"]
    assert not sensitive["b"].flags.writeable


def test_calls_are_counted_and_end():
    function = Mock(return_value=0.5)
    metric = measured(function, at=rows(group=Y), max_calls=3)
    for left in (2, 1, 0):
        metric(SCORES)
        assert metric.budget.left == left
    with pytest.raises(RuntimeError, match=r"max_calls=3 times.*raise max_calls"):
        metric(SCORES)
    assert metric.budget.calls == function.call_count == 3


@pytest.mark.parametrize(
    ("predict", "expected"),
    [
        ("scores", SCORES),
        ("labels", np.array(["no", "yes", "no", "yes", "no", "no"])),
        ("probabilities", expit(SCORES)),
    ],
)
def test_predictions(predict, expected):
    seen = []
    measured(lambda y, p: seen.append(p) or 0.0, predict=predict)(SCORES)
    np.testing.assert_array_equal(seen[0], expected)


def test_losses_are_between_zero_and_one():
    assert measured(lambda y, s: 4.0, bounds=(2, 10))(SCORES) == 0.25
    assert measured(lambda y, s: 4.0, bounds=(2, 10), maximize=True)(SCORES) == 0.75
    assert measured(lambda y, s: 4.0, bounds=(2, 10), maximize=True).measure(SCORES) == 4.0


def test_weights_and_sensitive_features_go_where_the_signature_has_them():
    seen = {}

    def weighted(y, s, sample_weight=None):
        seen["weight"] = sample_weight
        return 0.0

    def named(y, s, sensitive=None):
        seen["sensitive"] = sensitive
        return 0.0

    def other(y, s, threshold=0.5):
        seen["threshold"] = threshold
        return 0.0

    weight = np.arange(1.0, 7.0)
    for function in (weighted, named, other):
        measured(function, at=rows(weight, group=Y))(SCORES)
    np.testing.assert_array_equal(seen["weight"], weight)
    np.testing.assert_array_equal(seen["sensitive"], Y)
    assert seen["threshold"] == 0.5
    measured(weighted)(SCORES)
    np.testing.assert_array_equal(seen["weight"], np.ones(6))


@pytest.mark.parametrize(
    ("scorer", "expected"),
    [
        (
            make_scorer(fbeta_score, beta=2, pos_label="yes"),
            1 - fbeta_score(LABELS, CLASSES[(SCORES > 0) * 1], beta=2, pos_label="yes"),
        ),
        (
            make_scorer(roc_auc_score, response_method=("decision_function", "predict_proba")),
            1 - roc_auc_score(LABELS, SCORES),
        ),
        (
            make_scorer(log_loss, greater_is_better=False, response_method="predict_proba"),
            log_loss(LABELS, expit(SCORES)),
        ),
    ],
)
def test_scorers_of_scikit_learn(scorer, expected):
    weight = np.arange(1.0, 7.0)
    assert measured(scorer)(SCORES) == pytest.approx(expected)
    assert measured(scorer, at=rows(weight))(SCORES) != pytest.approx(expected)


def test_errors_of_the_function_name_the_iteration():
    def fails(y, s):
        raise ZeroDivisionError("no positives")

    metric = measured(fails)
    metric.budget.place = "iteration 7"
    with pytest.raises(ZeroDivisionError, match="no positives") as error:
        metric(SCORES)
    assert error.value.__notes__ == [
        "BlackBox(fails) raised this error in iteration 7, at call 1."
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "returned nan in iteration 2, at call 1: return a finite number"),
        (-np.inf, "returned -inf"),
        (np.zeros(3), "must return one number, got array.*return a float"),
        (None, "must return one number, got None"),
        (1.5, r"returned 1.5 .*outside of bounds=\(0.0, 1.0\): give"),
    ],
)
def test_bad_values_are_errors(value, message):
    metric = measured(lambda y, s: value)
    metric.budget.place = "iteration 2"
    with pytest.raises((TypeError, ValueError), match=message):
        metric(SCORES)


def loss(y, s):
    return 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"function": 3}, "function must be callable as function"),
        ({"function": lambda y: 0.0}, "takes the arguments y: write it as"),
        ({"function": lambda: 0.0}, "takes no arguments"),
        ({"function": lambda y, s, g, more: 0.0}, "takes the arguments y, s, g, more"),
        ({"function": lambda y, s, *, cost: 0.0}, "cost= by keyword"),
        ({"function": g_mean()}, r"metric of the confusion matrix.*maximize="),
        ({"function": g_mean}, r"function=g_mean\(\) is a metric of the confusion matrix"),
        ({"function": gc.tpr()}, "function=tpr is a metric of the confusion matrix"),
        ({"function": loss, "predict": "classes"}, "predict must be one of"),
        ({"function": loss, "maximize": 1}, "maximize must be True or False, got 1"),
        ({"function": loss, "bounds": (1, 0)}, "bounds must be the smallest and the largest"),
        ({"function": loss, "bounds": (0, np.inf)}, "bounds must be"),
        ({"function": loss, "bounds": 1}, "bounds must be"),
        ({"function": loss, "max_calls": 0}, "max_calls must be an integer >= 1, got 0"),
        ({"function": loss, "by": []}, "by= is empty"),
        ({"function": loss, "surrogates": ["hinge"]}, "surrogates holds 'hinge'"),
        ({"function": make_scorer(f1_score), "predict": "probabilities"}, "takes labels"),
        (
            {"function": make_scorer(f1_score, greater_is_better=False), "maximize": True},
            "maximize=True, but smaller values",
        ),
    ],
)
def test_bad_descriptions_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        BlackBox(**arguments)


def test_a_function_of_sensitive_features_needs_them():
    with pytest.raises(ValueError, match="give them as sensitive_features="):
        measured(lambda y, s, g: 0.0)


def test_surrogates_are_bound_to_both_kinds_of_rows():
    group = np.array(list("aabbab"))
    training = rows(group=group)
    box = BlackBox(loss, by="group")
    assert len(box.bind_surrogates(training)) == 4
    same = Rows(Y, CLASSES, None, {"group": group}, like=training)
    assert box.bind_surrogates(same, training, "validation")
    only_a = Rows(Y, CLASSES, None, {"group": np.full(6, "a")}, like=training)
    with pytest.raises(ValueError, match=r"y='no', group=b.* is taken over no validation row"):
        box.bind_surrogates(only_a, training, "validation")
    own = BlackBox(loss, surrogates=[surrogate("hinge")], by="group")
    assert own.bind_surrogates(training).names == ("surrogate('hinge')",)


def test_descriptions_are_copied():
    box = copy.deepcopy(BlackBox(loss, by="group"))
    assert repr(box) == "BlackBox(loss)"
    assert box.columns == ("group",)
