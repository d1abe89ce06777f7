"""What is given for each row with a pandas index: in the order of X, in another, or of others."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import gbm_constrained as gc
from gbm_constrained.data.validation import RowAlignment, check_alignment
from gbm_constrained.evaluation.np_roc import np_roc_band
from gbm_constrained.fit.model_note import dumps, loads
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
from gbm_constrained.plotting import (
    GroupConfusionDisplay,
    GroupRatesDisplay,
    plot_np_roc,
    plot_threshold_curve,
)
from gbm_constrained.tradeoff import tradeoff_curve

N = 240
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"), index=RNG.permutation(N) + 100)
Y = pd.Series((X["a"] + 0.3 * RNG.normal(size=N) > 0.4).astype(int), name="y")
SEX = pd.Series(np.where(X["b"] > 0, "F", "M"), index=X.index, name="sex")
WEIGHT = pd.Series(RNG.uniform(1.0, 2.0, N), index=X.index)
GROUPS = pd.Series(np.arange(N) // 3, index=X.index)
SCORES = pd.Series(np.zeros(N), index=X.index)
RULE = gc.gap(gc.fpr(), by="sex") <= 0.9
OTHER = "has the row labels of {} in another order: row 0 is "
LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm", "linear"])
BOOSTERS = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
ARGUMENTS = ("y", "sample_weight", "sensitive_features")
STARTS = {"xgboost": "base_margin", "lightgbm": "init_score"}
WAYS = ("crossfit", "holdout", "train", "crossfit", "train")


def make(library, rules, **options):
    if library == "linear":
        return ConstrainedLogisticRegression(constraints=rules, n_iterations=20)
    tiny = {"n_estimators": 4, "n_jobs": 1, "measure_on": gc.CrossFit(2), **options}
    if library == "xgboost":
        return gc.ConstrainedXGBClassifier(constraints=rules, **tiny)
    return gc.ConstrainedLGBMClassifier(constraints=rules, verbose=-1, **tiny)


def moved(values):
    """The same labels in another order."""
    return values.sort_index()


def other(values):
    """Other labels, in the order of the rows."""
    return values.set_axis(range(N))


TWO_FOLDS = gc.CrossFit(2)


def fit(library, rules=(RULE,), measure_on=TWO_FOLDS, **given):
    given = {"X": X, "y": Y, "sensitive_features": SEX, **given}
    options = {} if library == "linear" else {"measure_on": measure_on}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The solver stopped")
        if library == "xgboost":
            given["verbose"] = False
        return make(library, list(rules), **options).fit(**given)


@pytest.mark.parametrize(
    ("library", "measure_on", "name"),
    [
        *((library, measure_on, name) for library, start in STARTS.items()
          for name, measure_on in zip((*ARGUMENTS, "groups", start), WAYS, strict=True)),
        *(("linear", "train", name) for name in ARGUMENTS),
    ],
)  # fmt: skip
def test_equal_labels_in_another_order_are_refused(library, measure_on, name):
    given = {"y": Y, "sample_weight": WEIGHT, "sensitive_features": SEX, "groups": GROUPS,
             "base_margin": SCORES, "init_score": SCORES}[name]  # fmt: skip
    with pytest.raises(ValueError, match="in another order") as error:
        fit(library, measure_on=measure_on, **{name: moved(given)})
    message = str(error.value)
    assert message.startswith(name + " " + OTHER.format("X"))
    assert f"row 0 is {X.index[0]} in X and 100 in {name}, row 1 is {X.index[1]}" in message
    assert f"give {name}.loc[X.index]" in message
    by_position = "set_axis(X.index)" if name == "sensitive_features" else "to_numpy()"
    assert message.endswith(f"if the positions are, {name}.{by_position}.")
    # Both remedies are right, and the order of the labels is that of the values.
    fit(library, measure_on=measure_on, **{name: moved(given).loc[X.index]})


def test_the_gap_that_was_reported_is_not_that_of_other_rows():
    """As it was found: the report was of other groups than the user's."""
    rule = gc.gap(gc.selection_rate(), by="sex") <= 0.05
    as_table = SEX.to_frame()
    for given in (moved(SEX), moved(as_table), {"sex": moved(SEX)}):
        with pytest.raises(ValueError, match="in another order"):
            fit("lightgbm", [rule], sensitive_features=given)
        with pytest.raises(ValueError, match="in another order"):
            gc.audit(fit("lightgbm", []), X, Y, [rule], sensitive_features=given)
    with pytest.raises(ValueError, match=r"sensitive_features\['sex'\] has the row labels of X"):
        fit("lightgbm", [rule], sensitive_features={"sex": moved(SEX)})


@LIBRARIES
@pytest.mark.parametrize(
    ("rule", "called"),
    [
        (lambda rows: gc.fnr(on=rows(SEX == "F")) <= 0.9, "the mask of fnr[mask of"),
        (lambda rows: gc.churn(to=rows(Y)) <= 0.9, "the decisions of churn <= 0.9"),
        (lambda rows: gc.wins(over=rows(Y)) >= 0.0, "the decisions of wins >= 0"),
    ],
)
def test_masks_and_decisions_in_another_order_are_refused(rule, called, library):
    with pytest.raises(ValueError, match="in another order") as error:
        fit(library, [rule(moved)])
    assert str(error.value).startswith(called)
    assert "give it.loc[X.index]; if the positions are, it.to_numpy()." in str(error.value)
    with pytest.raises(ValueError, match="in another order"):
        gc.audit(fit("lightgbm", []), X, Y, [rule(moved)])
    fit(library, [rule(lambda values: values)])
    # A file holds the constraint without its row labels; the constraint is the same one.
    assert loads(dumps([rule(moved)])) == [rule(moved)]
    assert loads(dumps([rule(moved)]))[0] == rule(lambda values: moved(values).to_numpy())


@LIBRARIES
def test_other_labels_are_taken_by_position_and_warned_of_once(library):
    given = {"y": other(Y), "sample_weight": other(WEIGHT), "sensitive_features": other(SEX)}
    with pytest.warns(UserWarning, match="Rows are taken by position") as caught:
        model = fit(library, **given)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert f"y (row 0 is {X.index[0]} in X and 0 in y); sample_weight (row 0" in text
    assert "sensitive_features (row 0" in text
    assert caught[0].filename == __file__
    by_position = {name: value.to_numpy() for name, value in given.items()}
    same = fit(library, **{**by_position, "sensitive_features": {"sex": SEX.to_numpy()}})
    assert (model.predict(X) == same.predict(X)).all()


@BOOSTERS
@pytest.mark.parametrize("of", ["y", "sample weight", "initial scores", "sensitive features"])
def test_evaluation_sets_have_their_own_order(of, library):
    def given(change):
        by = {name: change if name == of else (lambda values: values) for name in
              ("y", "sample weight", "initial scores", "sensitive features")}  # fmt: skip
        weight, scores = [by["sample weight"](WEIGHT)], [by["initial scores"](SCORES)]
        names = ("sample_weight_eval_set", "base_margin_eval_set")
        if library == "lightgbm":
            names = ("eval_sample_weight", "eval_init_score")
        return {
            "eval_set": [(X.copy(), by["y"](Y))],
            "sensitive_features_eval_set": [by["sensitive features"](SEX)],
            **dict(zip(names, (weight, scores), strict=True)),
        }

    with pytest.raises(ValueError, match=f"^{of} of eval_set.0. has the row labels of X of"):
        fit(library, **given(moved))
    with pytest.warns(UserWarning, match=rf"{of} of eval_set\[0\] \(row 0 is") as caught:
        fit(library, **given(other), sample_weight=other(WEIGHT))
    told = [w for w in caught if "pandas indexes" in str(w.message)]  # LightGBM warns as well
    assert len(told) == 1
    assert "sample_weight (row 0" in str(told[0].message)


@LIBRARIES
def test_data_sets_have_their_own_order(library):
    rule = gc.error_rate(on=gc.dataset("more")) <= 0.9
    with pytest.raises(ValueError, match=r"y of datasets\['more'\] has the row labels of X of"):
        fit(library, [rule], datasets={"more": (X, moved(Y))})
    fit(library, [rule], datasets={"more": (X.set_axis(range(N)), other(Y))})


def test_an_audit_and_a_curve_of_test_rows():
    model = fit("lightgbm", [])
    for name, value in (("y", Y), ("sample_weight", WEIGHT), ("sensitive_features", SEX)):
        given = {"y": Y, "sensitive_features": SEX, name: moved(value)}
        with pytest.raises(ValueError, match=f"^{name} has the row labels of X in another order"):
            gc.audit(model, X, constraints=[RULE], **given)
    with pytest.warns(UserWarning, match=r"Rows are taken by position.*y \(row 0") as caught:
        gc.audit(model, X, other(Y), [RULE], sensitive_features=SEX)
    assert len(caught) == 1
    test = {"X_test": X, "y_test": Y, "sensitive_features_test": moved(SEX)}
    clf = make("lightgbm", [RULE])
    with pytest.raises(ValueError, match="sensitive_features has the row labels of X"):
        tradeoff_curve(clf, X, Y, [0.5], sensitive_features=SEX, **test)


def test_figures_and_the_band():
    model = fit("lightgbm", [])
    decided = pd.Series(model.predict(X), index=X.index)
    score = pd.Series(model.predict_proba(X)[:, 1], index=X.index)
    for draw in (
        lambda y: np_roc_band(score, y),
        lambda y: plot_np_roc(model, X, y),
        lambda y: plot_np_roc(score, None, y),
        lambda y: plot_threshold_curve(y, score),
        lambda y: GroupConfusionDisplay.from_estimator(model, X, y, sensitive_features=SEX),
        lambda y: GroupConfusionDisplay.from_predictions(y, decided, sensitive_features=SEX),
        lambda y: GroupRatesDisplay.from_predictions(y, decided, RULE, sensitive_features=SEX),
        lambda y: GroupRatesDisplay.from_estimator(model, X, y, RULE, sensitive_features=SEX),
    ):
        with pytest.raises(ValueError, match="in another order"):
            draw(moved(Y))
        draw(Y)


def test_labels_are_compared_where_features_have_no_index():
    """The features of a Pipeline's last step may be an array; labels and groups still differ."""
    with pytest.raises(ValueError, match="sensitive_features has the row labels of y in another"):
        fit("lightgbm", X=X.to_numpy(), sensitive_features=moved(SEX))


def index(values):
    return pd.DataFrame(index=values)


@pytest.mark.parametrize(
    ("one", "two", "found"),
    [
        (range(4), range(4), "equal"),
        (range(4), [0, 1, 2, 3], "equal"),
        ([0.0, 1.0], [0, 1], "equal"),
        (range(4), range(3, -1, -1), "order"),
        (range(4), range(1, 5), "other"),
        (["a", "a", "b"], ["a", "a", "b"], "equal"),
        (["a", "a", "b"], ["a", "b", "a"], "order"),
        (["a", "a", "b"], ["a", "b", "b"], "other"),
        (["a", 1, None], ["a", None, 1], "order"),
        (pd.date_range("2020", periods=3), pd.date_range("2020", periods=3)[::-1], "order"),
        (pd.MultiIndex.from_product([[1, 2], [0]]), pd.MultiIndex.from_product([[2, 1], [0]]),
         "order"),
        (["1", "2"], [2, 1], "other"),
    ],
)  # fmt: skip
def test_labels_of_any_kind(one, two, found):
    given = {"X": index(one), "y": index(two)}
    if found == "order":
        with pytest.raises(ValueError, match="y has the row labels of X in another order: row"):
            check_alignment(given)
    elif found == "other":
        with pytest.warns(UserWarning, match="the pandas indexes differ: y .row"):
            check_alignment(given)
    else:
        check_alignment(given)


def test_repeated_labels_cannot_put_rows_in_order():
    with pytest.raises(ValueError, match=r"give both in one order.*y.to_numpy\(\)"):
        check_alignment({"X": index(["a", "a", "b"]), "y": index(["b", "a", "a"])})


def test_what_has_no_index_is_taken_by_position():
    alignment = RowAlignment()
    alignment.check({"X": X, "y": Y.tolist(), "w": WEIGHT.to_numpy(), "s": None})
    alignment.check({"X": X.to_numpy(), "y": moved(Y)})
    alignment.warn()
    polars = pytest.importorskip("polars")
    alignment.check({"X": X, "s": polars.Series(SEX.to_numpy())})
    alignment.warn()
