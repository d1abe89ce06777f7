"""Rows, labels and models that an audit takes, and those that an audit refuses."""

import numpy as np
import pandas as pd
import pytest
from audited import Decides
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import gbm_constrained as gc


@pytest.mark.parametrize("in_table", [False, True])
def test_groups_that_a_dictionary_lacks_are_missing(in_table):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is in the extra 'datasets'")
    names = ["a"] * 40 + [None] * 30 + ["b"] * 30
    given = {"g": arrow.array(names).dictionary_encode()}
    given = arrow.table(given) if in_table else given
    y = np.arange(100) % 2
    rule = gc.each(gc.selection_rate(), by="g", min_group_size=1) <= 1
    groups = gc.audit(Decides(y), np.ones((100, 1)), y, rule, sensitive_features=given).groups
    assert groups["rows"].tolist() == [40, 30, 30]
    assert groups["group"].str.contains("missing").sum() == 1


def test_missing_labels_of_a_dictionary_are_refused():
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is in the extra 'datasets'")
    y = arrow.chunked_array([arrow.array(["n", None, "p"]).dictionary_encode()])
    with pytest.raises(ValueError, match="y has 1 missing values"):
        gc.audit(Decides(["n", "p", "p"]), np.ones((3, 1)), y, [])


def test_classes_are_the_model_s_or_those_that_occur(unseen, binary):
    X, y, _, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    negatives = y == 0
    of = gc.audit(model, X[negatives], y[negatives], gc.fpr() <= 0.2)
    assert of.classes == (0, 1)
    of = gc.audit(Decides(["no", "yes", "no"]), np.ones(3), ["no", "no", "no"], gc.fpr() <= 0.5)
    assert of.classes == ("no", "yes")
    assert of.frame["value"].tolist() == pytest.approx([1 / 3])


def test_columns_of_probabilities_follow_the_model_s_classes():
    class Turned:
        classes_ = ("yes", "no")

        def predict(self, X):
            return np.where(X[:, 0] > 0.5, "yes", "no")

        def predict_proba(self, X):
            return np.column_stack([X[:, 0], 1 - X[:, 0]])

    X = np.array([[0.9], [0.2], [0.6]])
    of = gc.audit(Turned(), X, ["yes", "no", "no"], gc.log_loss() <= 1.0)
    assert of.frame.loc[0, "value"] == pytest.approx(-np.log([0.9, 0.8, 0.4]).mean())


def test_masks_and_columns_are_those_of_these_rows(unseen):
    X, y, sensitive, _ = unseen
    table = pd.DataFrame(X).assign(site=sensitive["site"].to_numpy())
    decided = np.where(np.arange(y.size) < 200, 1 - y, y)
    first = np.arange(y.size) < 300
    rules = [gc.error_rate(on=first) <= 0.5, gc.error_rate(on={"site": "a"}) <= 0.5]
    of = gc.audit(Decides(decided), table, y, rules)
    wrong = decided != y
    at_a = (sensitive["site"] == "a").to_numpy()
    assert of.frame["value"].tolist() == pytest.approx([200 / 300, wrong[at_a].mean()])
    assert of.frame["rows"].tolist() == [300, at_a.sum()]


X4, Y4 = np.ones((4, 1)), np.array([0, 1, 0, 1])
RIGHT = Decides(Y4)


class Probabilities(Decides):
    def predict_proba(self, X):
        return np.ones((3, 2))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "match"),
    [
        ((object(), X4, Y4, []), {}, TypeError, "model must be a fitted classifier with predict"),
        ((LinearSVC, X4, Y4, []), {}, TypeError, "model must be a fitted classifier with predict"),
        ((np.zeros(999), X4, Y4, []), {}, TypeError, r"got array\(\[0\., .{,60}\]\): wrap"),
        ((RIGHT, X4, Y4[:3], []), {}, ValueError, "X has 4 rows and y 3 values"),
        ((RIGHT, X4[:0], Y4[:0], []), {}, ValueError, "give at least one row"),
        ((RIGHT, X4, [0, None, 1, 1], []), {}, ValueError, "y has 1 missing values"),
        ((RIGHT, X4, ["a", np.nan, "b", "b"], []), {}, ValueError, "y has 1 missing values"),
        ((RIGHT, X4, Y4, gc.fnr()), {}, TypeError, "constraints must be a sequence"),
        ((RIGHT, X4, Y4, [3]), {}, TypeError, "constraints holds 3"),
        ((RIGHT, X4, Y4, []), {"level": 95}, ValueError, "level must lie strictly"),
        ((RIGHT, X4, Y4, []), {"sample_weight": [1, 2]}, ValueError, "sample_weight must hold"),
        ((RIGHT, X4, Y4, []), {"sample_weight": ["a"] * 4}, ValueError, "weight must hold numb"),
        ((RIGHT, X4, Y4, []), {"sample_weight": [0] * 4}, ValueError, "zero on every row"),
        ((RIGHT, X4, Y4, []), {"sensitive_features": [1]}, ValueError, "one value per row"),
        ((RIGHT, X4, Y4, [gc.gap(gc.fpr(), by="sex") <= 0.1]), {}, ValueError,
         "column 'sex' is neither in sensitive_features nor in X: give it as sensitive_features"),
        ((RIGHT, X4, Y4, [gc.fpr(on=np.ones(3, bool)) <= 0.1]), {}, ValueError,
         "mask or decisions of 3 rows, but 4 rows are audited"),
        ((RIGHT, X4, Y4, [gc.churn(to=[0, 1]) <= 0.1]), {}, ValueError, "decisions of 2 rows"),
        ((RIGHT, X4, Y4, [gc.fpr(on=gc.dataset("m")) <= 0.1]), {}, ValueError,
         "speaks of a named data set, which an audit has none of"),
        ((RIGHT, X4, Y4, [gc.class_error(7) <= 0.1]), {}, ValueError, "names class 7"),
        ((RIGHT, X4, Y4, [gc.log_loss() <= 0.5]), {}, TypeError,
         "log_loss <= 0.5 needs probabilities, and Decides has no predict_proba: wrap it in"),
        ((Probabilities(Y4), X4, Y4, [gc.log_loss() <= 0.5]), {}, ValueError,
         r"returned an array of shape \(3, 2\)"),
        ((Decides(Y4[:3]), X4, Y4, []), {}, ValueError, r"returned an array of shape \(3,\)"),
        ((Decides(np.ones((4, 2))), X4, Y4, []), {}, ValueError, "not probabilities"),
        ((Decides([0.1, 0.9, 0.2, 0.8]), X4, Y4, []), {}, ValueError,
         "returned 0.1, which is no label"),
        ((Decides([0, 1, np.nan, 1]), X4, Y4, []), {}, ValueError, "missing labels"),
        ((Decides(["a", 1, None, 1]), X4, Y4, []), {}, ValueError, "missing labels"),
        ((Decides(np.ma.array(Y4, mask=[0, 1, 0, 0])), X4, Y4, []), {}, ValueError,
         "missing labels"),
        ((Decides(np.array(["a", 1, "b", 1], object)), X4, Y4, []), {}, ValueError,
         "types that cannot be compared"),
        ((Decides(np.array(["a", "b", "a", "b"])), X4, Y4, []), {}, ValueError,
         "types that cannot be compared"),
        ((Decides(np.ones(4)), X4, np.ones(4), []), {}, ValueError, "hold one class only"),
        ((RIGHT, X4, Y4, []), {"others": [RIGHT]}, TypeError, "others must map names to models"),
        ((RIGHT, X4, Y4, []), {"others": {"Decides": RIGHT}}, ValueError, "rename it"),
        ((RIGHT, X4, Y4, []), {"others": {"p": 3}}, TypeError, "model must be a fitted"),
    ],
)  # fmt: skip
def test_errors(arguments, options, error, match):
    with pytest.raises(error, match=match):
        gc.audit(*arguments, **options)


def test_labels_unknown_to_the_model(unseen):
    X, y, _, _ = unseen
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"y holds 'yes', which is not among \[0, 1\], the class"):
        gc.audit(model, X[:2], ["yes", "no"], [])
    other = LogisticRegression().fit(X, np.where(y, "b", "a"))
    with pytest.raises(ValueError, match=r"words.predict returned 'a', which is not among \[0, 1"):
        gc.audit(model, X, y, [], others={"words": other})


def test_the_remedy_for_missing_probabilities_works(unseen):
    X, y, _, _ = unseen
    with pytest.raises(TypeError, match="LinearSVC has no predict_proba"):
        gc.audit(LinearSVC().fit(X, y), X, y, gc.log_loss() <= 0.6)
    model = CalibratedClassifierCV(LinearSVC(), cv=2).fit(X, y)
    assert gc.audit(model, X, y, gc.log_loss() <= 0.6).frame["value"].notna().all()
