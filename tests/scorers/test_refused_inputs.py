"""Inputs and metrics that are refused before any tree is grown."""

from __future__ import annotations

import functools

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, KINDS, PARENTS, quiet
from input_data import (
    ALWAYS,
    FRAME,
    HELD,
    HELD_Y,
    LINEAR,
    PAIR,
    RNG,
    SEVERAL,
    SEX,
    TABLES,
    X,
    Y,
    make,
    refuses,
)

import gbm_constrained as gc


@EITHER
def test_sensitive_features_of_evaluation_sets_are_one_entry_for_each(library):
    held = {"eval_set": [(X[:100], Y[:100])], "sensitive_features": {"sex": SEX}}
    own = {"sex": SEX[:100]}
    for wrong in (own, pd.DataFrame(own), [own, own], []):
        with pytest.raises(ValueError, match="a list with one entry for each of the 1 evaluation"):
            make(library, [gc.gap(gc.fpr(), by="sex") <= 0.1]).fit(
                X, Y, sensitive_features_eval_set=wrong, **held
            )


WEIGHTS = ("sample_weight_eval_set", "eval_sample_weight")
STARTING = ("base_margin_eval_set", "eval_init_score")
WRONG_SETS = {
    "unknown label": ([(HELD, HELD_Y + 1)], r"eval_set\[0\] holds label 2, .*\[0, 1\]"),
    "missing label": ([PAIR, (HELD, np.full(100, np.nan))], r"y of eval_set\[1\] has 100 missing"),
    "labels of another type": ([(HELD, HELD_Y.astype(str))], r"eval_set\[0\] holds label '[01]'"),
    "labels missing": ([(HELD, None)], r"y of eval_set\[0\] is None"),
    "other columns": ([(HELD[:, :3], HELD_Y)], r"X of eval_set\[0\] has 3 columns, .* have 4"),
    "fewer labels": ([(HELD, HELD_Y[1:])], r"eval_set\[0\] has 100 rows of X and 99 values of y"),
    "one column": ([(HELD[:, 0], HELD_Y)], r"X of eval_set\[0\] must have two dimensions"),
    "a triple": ([(HELD, HELD_Y, HELD_Y)], "list of pairs .*entry 0 is a tuple of 3"),
    "no pairs": (HELD, "list of pairs .*a ndarray whose entry 0 is a ndarray"),
    "a number": (3, "list of pairs .*a int whose entry 0 is a int"),
}
WRONG_OF_SETS = {
    "short weight": (WEIGHTS, [np.ones(3)], "one weight for each of the 100 rows"),
    "negative weight": (WEIGHTS, [-HELD_Y], "must be finite and non-negative, got -1"),
    "short scores": (STARTING, [np.ones(3)], r"\[0\] must hold one score for each of the 100"),
}


@EITHER
@pytest.mark.parametrize("case", list(WRONG_SETS))
def test_evaluation_sets_that_do_not_fit_are_refused(library, case):
    eval_set, message = WRONG_SETS[case]
    refuses(library, message, {"eval_set": eval_set})


@EITHER
@pytest.mark.parametrize("case", list(WRONG_OF_SETS))
def test_arguments_of_evaluation_sets_that_do_not_fit_are_refused(library, case):
    names, value, message = WRONG_OF_SETS[case]
    name = names[0] if library == "xgboost" else names[1]
    refuses(library, message, {"eval_set": [PAIR], name: value})


@EITHER
def test_sensitive_features_of_evaluation_sets_that_do_not_fit_are_refused(library):
    given = {"eval_set": [PAIR], "sensitive_features": {"sex": SEX}}
    given["sensitive_features_eval_set"] = [{"sex": SEX[:99]}]
    refuses(
        library, r"eval_set\[0\].*99.* 100 rows", given, rules=[gc.gap(gc.fpr(), by="sex") <= 0.1]
    )


@EITHER
def test_callbacks_that_are_none_are_refused(library):
    for wrong, message in (([3], "holds 3"), (3, "got 3")):
        message = f"callbacks must be a list of .*{message}"
        if library == "xgboost":
            refuses(library, message, callbacks=wrong)
        else:
            refuses(library, message, {"callbacks": wrong})


@EITHER
def test_early_stopping_without_an_evaluation_set_is_refused(library):
    name = "early_stopping_rounds"
    refuses(library, f"{name[:-1]}.*and there is none: give eval_set=", **{name: 3})
    if library == "lightgbm":
        message = r"lightgbm\.early_stopping.*and there is none: give eval_set="
        refuses(library, message, {"callbacks": [lgb.early_stopping(3)]})
        refuses(library, message, {"eval_set": [PAIR]}, early_stopping_rounds=3, metric="None")


def test_numbers_of_rounds_that_lightgbm_refuses_are_refused():
    for wrong in (np.int64(3), "3"):
        message = "early_stopping_round should be an integer"
        refuses("lightgbm", message, {"eval_set": [PAIR]}, early_stopping_round=wrong)


@pytest.mark.parametrize("rounds", [0, -1])
def test_early_stopping_that_lightgbm_disables_is_none(rounds):
    """A number of rounds that is not positive."""
    held = {"eval_set": [PAIR]}
    by_callback = {**held, "callbacks": [lgb.early_stopping(rounds)]}
    for given, options in ((by_callback, {}), (held, {"early_stopping_round": rounds})):
        model = make("lightgbm", **options).fit(X, Y, **given)
        assert model.n_iter_ == ALWAYS["lightgbm"]["n_estimators"]
        message = "does not say after how many rounds"
        refuses("lightgbm", message, given, early_stopping_on="constraints", **options)


def test_weights_of_classes_that_lightgbm_cannot_read_are_refused():
    given = {"eval_set": [PAIR]}
    refuses(
        "lightgbm", "must be a list or dict .*a str", {**given, "eval_class_weight": "balanced"}
    )
    for wrong, message in (
        ({5: 1.0}, r"eval_class_weight\[0\] holds label 5, .*\[0, 1\]"),
        ("nonsense", r"eval_class_weight\[0\] must be a dict .*got 'nonsense'"),
    ):
        refuses("lightgbm", message, {**given, "eval_class_weight": [wrong]})
    for right in ({1: 2.0}, "balanced", None):
        make("lightgbm").fit(X, Y, **given, eval_class_weight=[right])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("library", [*CLASSIFIERS, "linear"])
def test_masked_features_are_refused(library):
    """The libraries train on what is below the mask."""
    masked = np.ma.masked_greater(X, 1.0)
    model = LINEAR if library == "linear" else make(library)
    with pytest.raises(ValueError, match=r"X is a masked array.*give X\.filled\(np\.nan\)"):
        model.fit(masked, Y)
    with pytest.raises(ValueError, match=r"datasets\['more'\] is a masked array"):
        model.fit(X, Y, datasets={"more": masked})
    model.fit(np.ma.array(X), Y)  # of which nothing is masked
    model.fit(pd.DataFrame(X, columns=["_mask", "data", "c", "d"]), Y)
    if library != "linear":
        refuses(library, r"X of eval_set\[0\] is a masked", {"eval_set": [(masked, Y)]})


@EITHER
def test_categories_of_another_type_are_refused(library):
    """All of them would be missing values."""
    codes = np.arange(len(Y)) % 3

    def table(values):
        return pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(values)})

    more = {"enable_categorical": True} if library == "xgboost" else {}
    model = make(library, **more)
    texts, numbers, plain = table(codes.astype(str)), table(codes), table(codes).astype({"b": int})
    for ours, theirs in ((texts, numbers), (numbers, texts), (texts, plain)):
        with pytest.raises(TypeError, match=r"datasets\['more'\] has .* in column 'b'"):
            model.fit(ours, Y, datasets={"more": theirs})
    for theirs, message in (
        (numbers, r"has 0 in column 'b', .* '0'"),
        (plain, "has no categories"),
    ):
        given = {"eval_set": [(theirs, Y)], "constraint_callbacks": [pytest.fail]}
        with pytest.raises(TypeError, match=rf"X of eval_set\[0\] {message}"):
            model.fit(texts, Y, **given)
    for given in (numbers, plain, table(codes + 10), table([None] * len(Y))):
        model.fit(numbers, Y, datasets={"more": given})


def test_missing_labels_among_texts_of_numpy():
    texts = np.array(["no", "yes", None], dtype=np.dtypes.StringDType(na_object=None))
    where = np.where(np.arange(len(Y)) == 3, 2, Y)
    refuses("lightgbm", "y has 1 missing values .* the first in row 3", y=texts[where])


def test_labels_that_the_parents_refuse_are_refused():
    for labels in (Y * 2 - 1, Y + 1, np.array(["no", "yes"])[Y]):
        refuses("xgboost", r"Invalid classes inferred .*Expected: \[0 1\], got", y=labels)
    refuses("lightgbm", "Unknown label type", y=Y.astype(object))
    mixed = np.where(Y == 1, "yes", Y.astype(object))
    for library in ("xgboost", "lightgbm"):
        refuses(library, r"y holds labels of several types \(int, str\)", y=mixed)


def test_xgboost_refuses_other_names_of_columns():
    for other in (FRAME[list("dcba")], FRAME.rename(columns={"a": "z"}), X):
        with pytest.raises(ValueError, match=r"X of eval_set\[0\] has the columns .*'a', 'b'"):
            make("xgboost").fit(FRAME, Y, eval_set=[(other, Y)], verbose=False)
    with pytest.raises(ValueError, match=r"'a'.* have columns without names"):
        make("xgboost").fit(X, Y, eval_set=[(FRAME, Y)], verbose=False)
    for other in (FRAME.iloc[:100], TABLES["pyarrow"]()):
        make("xgboost").fit(FRAME, Y, eval_set=[(other, Y[: len(other)])], verbose=False)


def test_xgboost_wants_an_entry_for_each_evaluation_set():
    for name in ("sample_weight_eval_set", "base_margin_eval_set"):
        for eval_set in ([PAIR, PAIR], None):
            message = f"{name} must hold one entry for each of the"
            refuses("xgboost", message, {"eval_set": eval_set, name: [np.ones(100)]})
    refuses("xgboost", "eval_metric must be a name", eval_metric=3)


def test_lightgbm_refuses_evaluation_sets_that_it_cannot_read():
    refuses("lightgbm", "either 'eval_set' or", {"eval_set": [PAIR], "eval_X": X, "eval_y": Y})
    refuses("lightgbm", "not just one of them", {"eval_X": X})
    refuses("lightgbm", "tuples of the same length", {"eval_X": (X, X), "eval_y": (Y,)})
    refuses("lightgbm", r"eval_set\[0\] is a list", {"eval_set": [(HELD.tolist(), HELD_Y)]})
    refuses("lightgbm", r"eval_set\[0\] has no rows", {"eval_set": [(X[:0], Y[:0])]})
    given = {"eval_set": [PAIR], "eval_sample_weight": (np.ones(100),)}
    refuses("lightgbm", "eval_sample_weight must be a list or dict .* got a tuple", given)


def test_lightgbm_takes_evaluation_sets_and_their_arguments_of_many_forms():
    """Lists that are too short or long, dicts, and what can be gone through once."""
    weight, sets = RNG.random(100), [(X[100:200], Y[100:200]), PAIR]
    expected = make("lightgbm").fit(X, Y, eval_set=sets).evals_result_
    for eval_set, more in (
        (tuple(sets), {}),
        (iter(sets), {"eval_init_score": [None] * 3}),
        ([list(pair) for pair in sets], {"eval_sample_weight": []}),
    ):
        model = make("lightgbm").fit(X, Y, eval_set=eval_set, **more)
        assert model.evals_result_ == expected
    lists = X.tolist(), Y.tolist()
    assert make("lightgbm").fit(*lists, eval_set=[lists]).evals_result_["training"]
    found = [
        make("lightgbm").fit(X, Y, eval_set=sets, eval_sample_weight=given).evals_result_
        for given in ([weight], {0: weight}, [weight, np.ones(100), weight])
    ]
    assert found[0] == found[1]
    assert found[0]["valid_0"] == found[2]["valid_0"] != expected["valid_0"]


@EITHER
@KINDS
def test_metrics_that_cannot_be_evaluated_are_refused(library, kind):
    y = Y if kind == "binary" else SEVERAL
    rules = [gc.accuracy() >= 0.01]
    wrong = {
        ("xgboost", "binary"): "mlogloss",
        ("xgboost", "several"): "error",
        ("lightgbm", "binary"): "ndcg",
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


@EITHER
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
