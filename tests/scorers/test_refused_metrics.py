"""Metrics that cannot be evaluated are refused before any tree is grown."""

import functools

import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH, KINDS, PARENTS, quiet
from input_data import HELD, PAIR, SEVERAL, X, Y, make, refuses

import gbm_constrained as gc


@BOTH
@KINDS
def test_metrics_that_cannot_be_evaluated_are_refused(library, kind):
    y = Y if kind == "binary" else SEVERAL
    rules = [gc.accuracy() >= 0.01]
    wrong = {
        ("xgboost", "binary"): "mlogloss",
        ("xgboost", "several"): "error",
        ("lightgbm", "binary"): "auc_mu",
        ("lightgbm", "several"): "auc",
    }[library, kind]
    for metric in ("nonsense", [wrong], ["nonsense"]):
        given = {"eval_set": [(HELD, y[:100])]}
        options = {"eval_metric": metric} if library == "xgboost" else {}
        given |= {} if library == "xgboost" else {"eval_metric": metric}
        name = metric if isinstance(metric, str) else metric[0]
        message = f"metric '{name}' cannot be evaluated"
        refuses(library, message, given, y, rules, **options)


def test_functions_that_xgboost_cannot_record_are_refused():
    """It records a function by its name, and reads none that is alone in a list."""

    def mean(y_true, p):
        return float(p.mean())

    given = {"eval_set": [PAIR]}
    nameless = functools.partial(mean)
    for metric in (nameless, ["auc", nameless]):
        refuses("xgboost", "has no __name__", given, eval_metric=metric)
    make("xgboost", eval_metric=nameless).fit(X, Y)  # No value is recorded.
    refuses("xgboost", "give the function itself", given, eval_metric=[mean])


@BOTH
def test_functions_of_other_arguments_are_refused(library):
    """XGBoost gives weights by name, if there are any; LightGBM counts the parameters."""

    def of_one(y_true):
        return 0.0

    def of_two(y_true, y_pred):
        return ("zero", 0.0, False) if library == "lightgbm" else 0.0

    def of_five(y_true, y_pred, weight, group, more):
        return 0.0

    @functools.wraps(of_one)
    def wrapped(y_true, y_pred):
        return of_one(y_true)

    given = {"eval_set": [PAIR]}
    for wrong in (of_one, of_five):
        if library == "xgboost":
            refuses(library, "'of_.*' cannot be called with", given, eval_metric=wrong)
        else:
            message = "should have 2, 3 or 4 arguments, got .: eval_metric 'of_.*' is called with"
            refuses(library, message, {**given, "eval_metric": wrong})
    if library == "xgboost":
        for right in (of_two, wrapped):
            make(library, eval_metric=right).fit(X, Y, **given, verbose=False)
        given["sample_weight_eval_set"] = [np.ones(100)]
        refuses(library, r"'of_two' .*sample_weight=\.\.\.\), as", given, eval_metric=of_two)
        make(library, eval_metric=of_one).fit(X, Y)  # Nothing calls it.
    else:
        make(library).fit(X, Y, **given, eval_metric=of_two)
        make(library).fit(X, Y, eval_metric=of_one)


def test_early_stopping_of_xgboost_by_what_is_not_there_is_refused():
    given, stopping = {"eval_set": [PAIR]}, xgb.callback.EarlyStopping
    refuses("xgboost", "early_stopping_rounds must be a number", given, early_stopping_rounds="3")
    wrong = {
        "rounds of EarlyStopping must be a number, got '3'": stopping(rounds="3"),
        "data_name='held', and .*\\['validation_0'\\]": stopping(rounds=3, data_name="held"),
        "metric_name='auc', .*the metrics are \\['logloss'\\]": stopping(
            rounds=3, metric_name="auc"
        ),
    }
    for message, callback in wrong.items():
        refuses("xgboost", message, given, callbacks=[callback])

    def mean(y_true, p):
        return float(p.mean())

    for metric, names in (
        (["auc", "error@0.3", mean], ["auc", "error@0.3", "mean"]),
        (mean, ["logloss", "mean"]),
        ("aucpr", ["aucpr"]),
    ):
        for name in names:
            callbacks = [stopping(rounds=3, metric_name=name, data_name="validation_0")]
            make("xgboost", eval_metric=metric, callbacks=callbacks).fit(
                X, Y, **given, verbose=False
            )


def of_one(y_true):
    return 0.0


WRONG_TYPES = {
    "xgboost": [
        *(({"eval_metric": wrong}, {}) for wrong in (3, 2.5, {"a": 1}, {"auc"}, b"auc", [3])),
        ({"eval_metric": ["auc", None]}, {}),
        ({"eval_metric": ("auc", ["error"])}, {}),
    ],
    "lightgbm": [
        *(({"metric": wrong}, {}) for wrong in (3, 2.5, {"a": 1}, {"auc"}, b"auc", ("auc",))),
        ({}, {"eval_metric": [["auc"]]}),
        ({}, {"eval_metric": ["auc", {}]}),
        ({}, {"eval_metric": of_one}),
    ],
}


@pytest.mark.parametrize(
    ("library", "options", "given"),
    [(library, *case) for library, cases in WRONG_TYPES.items() for case in cases],
)
def test_metrics_of_a_wrong_type_are_refused_in_the_parents_words(library, options, given):
    """The words that follow name the parameter and its value."""
    given = {"eval_set": [PAIR], **given, **quiet(library)}
    with pytest.raises(TypeError) as of_parent:
        PARENTS[library](n_estimators=2, **options).fit(X, Y, **given)
    with pytest.raises(type(of_parent.value)) as of_ours:
        make(library, **options).fit(X, Y, **given)
    assert str(of_ours.value).startswith(str(of_parent.value))
    (name,) = options or {"eval_metric"}
    assert name in str(of_ours.value).removeprefix(str(of_parent.value))


def test_unknown_metrics_raise_the_error_of_xgboost():
    for classifier in (
        xgb.XGBClassifier(eval_metric="nonsense"),
        make("xgboost", eval_metric="nonsense"),
    ):
        with pytest.raises(xgb.core.XGBoostError, match="Unknown metric function nonsense"):
            classifier.fit(X, Y)
