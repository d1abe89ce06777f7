"""Values of audits agree with scikit-learn and with counting."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from audited import Decides
from helpers import BOTH, CLASSIFIERS
from lightgbm import LGBMClassifier
from scipy import stats
from sklearn import metrics
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import gbm_constrained as gc
from gbm_constrained.cli.model_files import open_model, save_estimator
from gbm_constrained.constraints.comparisons import Ratio
from gbm_constrained.constraints.presets import DemographicParity, EqualizedOdds, NeymanPearson
from gbm_constrained.datasets import load_compas


def value_by_hand(y, decided, sensitive, probability, weight):
    """Each rule of RULES, with scikit-learn or by counting."""

    def mean(event, inside=True):
        inside = np.broadcast_to(inside, y.shape)
        return np.average(event[inside], weights=weight[inside])

    sex, site = sensitive["sex"].to_numpy(), sensitive["site"].to_numpy()
    selected = {s: mean(decided == 1, sex == s) for s in "FM"}
    false_alarms = {s: mean(decided == 1, (site == s) & (y == 0)) for s in "abc"}
    given = {"sample_weight": weight}
    return [
        1 - metrics.recall_score(y, decided, **given),
        1 - metrics.recall_score(y, decided, pos_label=0, **given),
        metrics.precision_score(y, decided, **given),
        metrics.f1_score(y, decided, **given),
        metrics.accuracy_score(y, decided, **given),
        abs(selected["F"] - selected["M"]),
        min(selected.values()) / max(selected.values()),
        max(false_alarms.values()),
        max(false_alarms.values()) - min(false_alarms.values()),
        max(abs(v - mean(decided == 1, y == 0)) for v in false_alarms.values()),
        metrics.log_loss(y, probability, **given),
        mean(-np.log(probability[:, 1].astype(float)), y == 1),
        mean(decided == 1, sex == "F") - 0.5 * mean(decided == 1),
    ]


RULES = [
    gc.fnr() <= 0.3,
    gc.fpr() <= 0.1,
    gc.precision() >= 0.6,
    gc.f1() >= 0.4,
    gc.accuracy() >= 0.7,
    gc.gap(gc.selection_rate(), by="sex") <= 0.05,
    gc.ratio(gc.selection_rate(), by="sex") >= 0.8,
    gc.each(gc.fpr(), by="site") <= 0.2,
    gc.gap(gc.fpr(), by="site") <= 0.05,
    gc.gap(gc.fpr(), by="site", reference=gc.overall) <= 0.05,
    gc.log_loss() <= 0.5,
    gc.log_loss(on=gc.label(1)) <= 0.9,
    gc.selection_rate(on={"sex": "F"}) - 0.5 * gc.selection_rate() <= 0.2,
]


@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_scikit_learn(fitted, unseen, weighted):
    X, y, sensitive, weight = unseen
    weight = weight if weighted else np.ones(y.size)
    of = gc.audit(
        fitted, X, y, RULES,
        sensitive_features=sensitive, sample_weight=weight if weighted else None,
    )  # fmt: skip
    probability = fitted.predict_proba(X)
    expected = value_by_hand(y, fitted.predict(X), sensitive, probability, weight)
    # XGBoost's probabilities are in single precision, and so is scikit-learn's loss of them.
    np.testing.assert_allclose(of.frame["value"], expected, rtol=1e-6)
    assert of.accuracy.value == pytest.approx(expected[4])
    assert (of.frame["low"] <= of.frame["value"]).all()
    assert (of.frame["value"] <= of.frame["high"]).all()
    assert of.model == type(fitted).__name__
    assert of.weighted is weighted
    n, negatives, positives = y.size, int((y == 0).sum()), int((y == 1).sum())
    over = [positives, negatives, n, n, n, n, n, negatives, negatives, negatives, n, positives, n]
    assert of.frame["rows"].tolist() == over
    assert of.groups.columns.tolist() == ["constraint", "group", "rows", "rate", "low", "high"]
    assert len(of.groups) == 2 + 2 + 3 + 3 + 3


def test_weights_are_repetitions_in_values(unseen, binary):
    X, y, sensitive, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    times = np.random.default_rng(7).integers(1, 4, y.size)
    weighted = gc.audit(model, X, y, RULES, sensitive_features=sensitive, sample_weight=times)
    again = np.repeat(np.arange(y.size), times)
    repeated = gc.audit(model, X[again], y[again], RULES, sensitive_features=sensitive.iloc[again])
    np.testing.assert_allclose(weighted.frame["value"], repeated.frame["value"])
    np.testing.assert_allclose(weighted.groups["rate"], repeated.groups["rate"])
    # Repeated rows are not more rows: weights make intervals longer than counting twice does.
    widths = [a.frame["high"] - a.frame["low"] for a in (weighted, repeated)]
    assert (widths[0] > widths[1]).all()


def test_rows_of_weight_zero_are_left_out(unseen, binary):
    X, y, sensitive, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    kept = np.arange(y.size) % 3 > 0
    weighted = gc.audit(model, X, y, RULES, sensitive_features=sensitive, sample_weight=kept)
    part = gc.audit(model, X[kept], y[kept], RULES, sensitive_features=sensitive[kept])
    for name in ("frame", "groups"):
        pd.testing.assert_frame_equal(getattr(weighted, name), getattr(part, name))


def test_several_classes(several):
    X, y = several
    names = np.array(["w", "x", "y", "z"])
    model = LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1).fit(X[:800], names[y[:800]])
    X, y = X[800:], names[y[800:]]
    rules = [
        *NeymanPearson({"w": 0.2, "z": 0.5}),
        gc.confusion("w", "x") <= 0.2,
        gc.log_loss() <= 1.0,
    ]
    rules += [gc.tnr("w") >= 0.5]
    of = gc.audit(model, X, y, rules)
    decided = model.predict(X)
    table = metrics.confusion_matrix(y, decided, normalize="true")
    expected = [1 - table[0, 0], 1 - table[3, 3], table[0, 1],
                metrics.log_loss(y, model.predict_proba(X)),
                (decided[y != "w"] != "w").mean()]  # fmt: skip
    np.testing.assert_allclose(of.frame["value"], expected)
    assert of.classes == ("w", "x", "y", "z")
    w, z = ((y == name).sum() for name in "wz")
    assert of.frame["rows"].tolist() == [w, z, w, y.size, y.size - w]


def test_presets_and_fairlearn_s_constraints(unseen, binary):
    fairlearn = pytest.importorskip("fairlearn.reductions")
    X, y, sensitive, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    sex = {"sensitive_features": sensitive[["sex"]]}
    ours = gc.audit(model, X, y, DemographicParity(difference_bound=0.02), **sex)
    theirs = gc.audit(model, X, y, fairlearn.DemographicParity(difference_bound=0.02), **sex)
    pd.testing.assert_frame_equal(ours.frame, theirs.frame)
    assert len(gc.audit(model, X, y, [EqualizedOdds(), gc.fnr() <= 0.1], **sex).frame) == 3


def test_other_models_decisions(unseen, binary):
    X, y, _, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    old = LogisticRegression(C=1e-3).fit(binary[0][:500], binary[1][:500])
    rules = [gc.churn(to=old) <= 0.1, gc.churn(to=old.predict(X)) <= 0.1,
             gc.wins(over=old) / gc.losses(to=old) >= 1.0]  # fmt: skip
    of = gc.audit(model, X, y, rules)
    new, before = model.predict(X), old.predict(X)
    changed = np.mean(new != before)
    won, lost = ((new == y) & (before != y)).sum(), ((new != y) & (before == y)).sum()
    assert of.frame["value"].tolist() == pytest.approx([changed, changed, won / lost])


@pytest.fixture(scope="module")
def constrained(binary):
    X, y = binary
    model = gc.ConstrainedLGBMClassifier(
        constraints=[gc.fnr() <= 0.2, gc.fpr() <= 0.3], n_estimators=20, verbose=-1, n_jobs=1
    )
    return model.fit(X[:500], y[:500])


def test_history_is_taken_along(constrained, unseen, binary):
    X, y, _, _ = unseen
    of = gc.audit(constrained, X, y, constrained.constraints)
    pd.testing.assert_frame_equal(of.history, constrained.history_)
    piped = make_pipeline(StandardScaler(), constrained).fit(binary[0][:500], binary[1][:500])
    assert gc.audit(piped, X, y, gc.fnr() <= 0.2).history is not None
    plain = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    plain.history_ = [1, 2]  # others have histories, too
    assert gc.audit(plain, X, y, gc.fnr() <= 0.2).history is None
    search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2).fit(X, y)
    assert gc.audit(search, X, y, gc.fnr() <= 0.2).history is None


@BOTH
def test_drawn_decisions_are_drawn_alike(library, unseen, binary, tmp_path):
    """Wherever the classifier that draws them is: by itself, wrapped, in a file."""
    X, y = pd.DataFrame(unseen[0]).add_prefix("x"), unseen[1]
    model = CLASSIFIERS[library](
        constraints=[gc.fnr() <= 0.1], iterate="randomized", n_estimators=20, n_jobs=1,
        **({"verbose": -1} if library == "lightgbm" else {}),
    ).fit(pd.DataFrame(binary[0][:500]).add_prefix("x"), binary[1][:500])  # fmt: skip
    model.prefixes_ = pd.DataFrame({"rounds": [1, 20], "probability": [0.5, 0.5]})
    assert (model.predict(X, random_state=0) != model.predict(X, random_state=1)).any()
    piped = make_pipeline(FunctionTransformer().fit(X), model)
    search = GridSearchCV(piped, {})
    search.best_estimator_ = piped
    save_estimator(model, tmp_path / "model.json", X)
    file = open_model(tmp_path / "model.json").name_classes([0, 1])
    for way in (model, piped, Pipeline([("only", model)]), search, file):
        first, second = (gc.audit(way, X, y, gc.fnr() <= 0.1).frame for _ in range(2))
        pd.testing.assert_frame_equal(first, second)


def test_other_models_are_compared(constrained, unseen, binary):
    X, y, _, _ = unseen
    plain = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    of = gc.audit(constrained, X, y, constrained.constraints, others={"plain": plain})
    alone = gc.audit(plain, X, y, constrained.constraints)
    assert of.models["model"].tolist() == ["ConstrainedLGBMClassifier", "plain"]
    pd.testing.assert_series_equal(of.models.iloc[1, 1:], alone.models.iloc[0, 1:],
                                   check_names=False)  # fmt: skip
    excess = np.maximum(alone.frame["value"] - alone.frame["bound"], 0).max()
    assert of.models["violation"][1] == pytest.approx(excess)
    assert of.models["accuracy"][1] == pytest.approx(plain.score(X, y))


def test_no_rules_leave_the_accuracy(unseen, binary):
    X, y, _, _ = unseen
    of = gc.audit(LogisticRegression().fit(X, y), X, y, [])
    assert of.frame.empty
    assert of.headline.startswith("No constraint was given; accuracy is 0.")
    again = gc.Audit.from_json(of.to_json())
    assert again.to_json() == of.to_json()
    one = gc.audit(LogisticRegression().fit(X, y), X, y, gc.gap(gc.fnr(), by="g") <= 0.5,
                sensitive_features={"g": np.arange(len(y)) % 2})  # fmt: skip
    for name in ("frame", "groups"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(of, name))
        # An empty table has the types of others.
        pd.testing.assert_series_equal(getattr(of, name).dtypes, getattr(one, name).dtypes)
    assert str(of)
    assert "No constraint was given" in of.to_html()


def decisions(wrong, n=1000):
    """All rows positive, the first so many missed; the negatives are right."""
    decided = np.ones(n)
    decided[:wrong] = 0
    return np.ones((2 * n, 1)), np.repeat([1, 0], n), Decides(np.r_[decided, np.zeros(n)])


@pytest.mark.parametrize(
    ("wrong", "rule", "verdict", "satisfied"),
    [
        (10, gc.fnr() <= 0.05, "met", True),
        (45, gc.fnr() <= 0.05, "met", True),
        (55, gc.fnr() <= 0.05, "missed within sampling error", False),
        (90, gc.fnr() <= 0.05, "missed", False),
        (10, gc.recall() >= 0.95, "met", True),
        (45, gc.recall() >= 0.95, "met", True),
        (55, gc.recall() >= 0.95, "missed within sampling error", False),
        (90, gc.recall() >= 0.95, "missed", False),
        (0, gc.fnr() <= 0.0, "met", True),
        (0, gc.fnr() <= 1.0, "met", True),
    ],
)
def test_verdicts(wrong, rule, verdict, satisfied):
    X, y, model = decisions(wrong)
    of = gc.audit(model, X, y, rule)
    assert of.frame["verdict"].tolist() == [verdict]
    assert of.frame["satisfied"].tolist() == [satisfied]
    low, high = of.frame.loc[0, ["low", "high"]]
    wrong_side = low > rule.bound if rule.sense == "<=" else high < rule.bound
    assert (verdict == "missed") == wrong_side
    beyond = high > rule.bound if rule.sense == "<=" else low < rule.bound
    (detail,) = of.frame["detail"]
    assert detail.startswith(verdict.split()[0])
    if verdict == "met":
        assert ("but the interval reaches beyond the bound" in detail) == beyond


def test_rules_that_print_alike_have_names_of_their_own():
    X, y = np.ones((100, 1)), np.repeat([0, 1], 50)
    of = gc.audit(Decides(y), X, y, [gc.selection_rate(on=y == k) <= 0.4 for k in (0, 1)])
    names = [f"selection_rate[mask of 50 rows] <= 0.4{suffix}" for suffix in ("", " #2")]
    assert of.frame["constraint"].tolist() == names
    assert of.models[[f"value[{name}]" for name in names]].iloc[0].tolist() == [0.0, 1.0]
    pd.testing.assert_frame_equal(gc.Audit.from_json(of.to_json()).models, of.models)


def test_of_an_undefined_value_nothing_can_be_told():
    X, y = np.ones((100, 1)), np.repeat([0, 1], 50)
    of = gc.audit(Decides(np.zeros(100)), X, y, [gc.precision() >= 0.5, gc.fnr() <= 0.1])
    assert of.frame["verdict"].tolist() == ["cannot be told", "missed"]
    assert of.frame["satisfied"].isna().tolist() == [True, False]
    assert np.isnan(of.models["value[precision >= 0.5]"][0])
    assert of.models["violation"][0] == pytest.approx(0.9)
    assert "value" in json.loads(of.to_json())["constraints"][0]
    assert json.loads(of.to_json())["constraints"][0]["value"] is None
    assert "no value" in of.to_html()


@pytest.mark.filterwarnings("ignore:.*fewer than min_group_size")
def test_a_small_group_without_an_event_is_not_certified():
    """Nine rows without an error say little: resampling them would say that none ever has one."""
    group = np.repeat(["large", "small"], [2000, 9])
    decided = np.where(np.arange(2009) < 20, 0, 1)
    y = np.r_[np.ones(2009), [0]]
    model = Decides(np.r_[decided, [0]])
    given = {"sensitive_features": {"g": np.r_[group, ["large"]]}}
    rules = [gc.each(gc.fnr(), by="g") <= 0.05, gc.each(gc.recall(), by="g") >= 0.95]
    of = gc.audit(model, np.ones((2010, 1)), y, rules, **given)
    assert of.frame["value"].tolist() == pytest.approx([0.01, 0.99])
    assert of.frame["verdict"].tolist() == ["cannot be told", "cannot be told"]
    assert of.frame["detail"].str.contains("9 rows of g=small").all()
    small = 1 - 0.025 ** (1 / 9)
    assert of.frame.loc[0, "high"] == pytest.approx(small)
    assert of.frame.loc[1, "low"] == pytest.approx(1 - small)
    of = gc.audit(model, np.ones((2010, 1)), y, gc.each(gc.fnr(), by="g") <= 0.05 + small, **given)
    assert of.frame["verdict"].tolist() == ["met"]
    # Nor is the rule missed for certain because nobody of nine was found to be wrong.
    of = gc.audit(model, np.ones((2010, 1)), y, gc.ratio(gc.fnr(), by="g") >= 0.8, **given)
    assert of.frame.loc[0, "value":"high"].tolist() == pytest.approx([0.0, 0.0, 1.0])
    assert of.frame["verdict"].tolist() == ["cannot be told"]


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


def test_intervals_of_rates_are_exact(unseen, binary):
    X, y, sensitive, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    of = gc.audit(model, X, y, [gc.fnr() <= 0.3, gc.gap(gc.fpr(), by="sex") <= 0.1],
               sensitive_features=sensitive, level=0.9)  # fmt: skip
    decided = model.predict(X)
    exact = stats.binomtest(int(((y == 1) & (decided == 0)).sum()), int((y == 1).sum()))
    low, high = exact.proportion_ci(0.9, method="exact")
    assert of.frame.loc[0, ["low", "high"]].tolist() == pytest.approx([low, high])
    right = stats.binomtest(int((y == decided).sum()), y.size).proportion_ci(0.9, method="exact")
    assert of.accuracy[1:] == pytest.approx(tuple(right))
    women = (y == 0) & (sensitive["sex"] == "F").to_numpy()
    of_women = stats.binomtest(int((women & (decided == 1)).sum()), int(women.sum()))
    expected = [women.sum(), of_women.statistic, *of_women.proportion_ci(0.9, method="exact")]
    shown = of.groups.set_index("group").loc["sex=F", ["rows", "rate", "low", "high"]]
    assert shown.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("expression", "rates", "truth"),
    [
        (gc.gap(gc.fnr(), by="g"), (0.1, 0.1, 0.1, 0.1), 0.0),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (gc.each(gc.fnr(), by="g"), (0.1, 0.1, 0.1, 0.1), 0.1),
                (gc.gap(gc.fnr(), by="g"), (0.05, 0.1, 0.1, 0.15), 0.1),
                (gc.gap(gc.fnr(), by="g", reference="3"), (0.05, 0.1, 0.1, 0.15), 0.1),
                (gc.ratio(gc.fnr(), by="g"), (0.4, 0.5, 0.6, 0.8), 0.5),
                (gc.ratio(gc.fnr(), by="g"), (0.5, 0.5, 0.5, 0.5), 1.0),
            )
        ),
    ],
)
def test_intervals_of_several_groups_cover(expression, rates, truth):
    """The true worst group or pair lies within, in at least as many samples as the level says."""
    rng = np.random.default_rng(8)
    n, covered, repeats = 150, 0, 60
    given = {"sensitive_features": {"g": [*np.repeat(list("0123"), n), "0"]}}
    y, X = np.r_[np.ones(4 * n), [0]], np.ones((4 * n + 1, 1))
    for _ in range(repeats):
        decided = np.concatenate([rng.random(n) >= rate for rate in rates])
        rule = expression >= 0.5 if isinstance(expression, Ratio) else expression <= 0.5
        of = gc.audit(Decides(np.r_[decided, [0]]), X, y, rule, level=0.9, **given)
        covered += of.frame.loc[0, "low"] <= truth <= of.frame.loc[0, "high"]
    assert covered / repeats >= 0.9 - 3 * np.sqrt(0.09 / repeats)


@pytest.mark.slow
def test_intervals_of_losses_cover():
    """Means, gaps and ratios of mean losses: about as often as the level says."""
    rng = np.random.default_rng(9)
    n, repeats = 400, 120
    y = np.tile([0, 1], n // 2)
    group = np.repeat(["a", "b"], n // 2)

    class Gives:
        classes_ = np.array([0, 1])

        def predict(self, X):
            return (X[:, 0] > 0.5).astype(int)

        def predict_proba(self, X):
            return np.column_stack([1 - X[:, 0], X[:, 0]])

    rules = [
        gc.log_loss() <= 0.5,
        gc.gap(gc.log_loss(), by="g") <= 0.2,
        gc.ratio(gc.log_loss(), by="g") >= 0.2,
        gc.log_loss(on={"g": "b"}) - gc.error_rate() <= 0.5,
    ]
    # Losses are exponential with means 0.4 and 0.6; a row is an error when its loss is > log 2.
    means = {"a": 0.4, "b": 0.6}
    errors = np.mean([np.exp(-np.log(2) / m) for m in means.values()])
    truth = np.array([0.5, 0.2, 2 / 3, 0.6 - errors])
    inside = np.zeros(4)
    for _ in range(repeats):
        loss = rng.exponential([means[g] for g in group])
        right = np.exp(-loss)
        X = np.where(y == 1, right, 1 - right)[:, None]
        frame = gc.audit(Gives(), X, y, rules, sensitive_features={"g": group}, level=0.9).frame
        inside += (frame["low"] <= truth) & (truth <= frame["high"])
    assert (np.abs(inside / repeats - 0.9) <= 0.09).all(), inside / repeats


def test_intervals_of_mean_losses_do_not_go_below_zero():
    """One row has nearly all of the loss."""
    y = np.zeros(80, dtype=int)
    y[-1] = 1

    class Sure:
        classes_ = np.array([0, 1])

        def predict(self, X):
            return np.zeros(len(X), dtype=int)

        def predict_proba(self, X):
            return np.tile([0.99, 0.01], (len(X), 1))

    rules = [
        gc.log_loss() <= 1.0,
        gc.each(gc.log_loss(), by="g") >= 0.01,
        gc.ratio(gc.log_loss(), by="g") >= 0.1,
    ]
    group = {"sensitive_features": {"g": ["a"] * 40 + ["b"] * 40}}
    report = gc.audit(Sure(), np.zeros((80, 1)), y, rules, **group)
    for table, name in ((report.frame, "value"), (report.groups, "rate")):
        assert (table["low"] >= 0.0).all()
        assert ((table["low"] <= table[name]) & (table[name] <= table["high"])).all()
    assert report.frame["low"].tolist()[0] == 0.0
    assert report.groups["low"].iloc[-1] == 0.0


def test_wins_over_losses_have_an_exact_interval():
    """Two wins and no loss prove nothing, whatever resampling says; a hundred do."""
    y = np.ones(1000, dtype=int)
    y[0] = 0
    for won, lost, verdict in ((2, 0, "cannot be told"), (100, 0, "met"), (30, 30, "missed")):
        old, new = y.copy(), y.copy()
        old[1 : 1 + won] = 0
        new[500 : 500 + lost] = 0
        rule = gc.wins(over=old) / gc.losses(to=old) >= 2.0
        frame = gc.audit(Decides(new), np.ones((1000, 1)), y, rule).frame
        low, high = stats.binomtest(won, won + lost).proportion_ci(0.95, method="exact")
        expected = [low / (1 - low), np.inf if high == 1.0 else high / (1 - high)]
        assert frame.loc[0, ["low", "high"]].tolist() == pytest.approx(expected)
        assert frame["verdict"].tolist() == [verdict]


@pytest.mark.parametrize("errors", [0, 3])
def test_odds_of_errors_have_an_exact_interval(errors):
    """A part of every row is a constant: thirty right rows prove little."""
    y = np.arange(30) % 2
    new = np.where(np.arange(30) < errors, 1 - y, y)
    rules = [
        gc.error_rate() / (1 - gc.error_rate()) <= 0.01,
        gc.error_rate() / gc.accuracy() <= 0.01,
        (1 - gc.accuracy()) / (2 - gc.error_rate()) <= 0.01,
    ]
    frame = gc.audit(Decides(new), np.ones((30, 1)), y, rules).frame
    p = np.array(stats.binomtest(errors, 30).proportion_ci(0.95, method="exact"))
    expected = [*[p / (1 - p)] * 2, p / (2 - p)]
    np.testing.assert_allclose(frame[["low", "high"]], expected, atol=1e-12)
    assert (frame["verdict"] == ("missed" if errors else "met")).all()


@pytest.fixture(scope="module")
def rows():
    """Rows with a group, numbers as labels of two and of three classes, and weights."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(600, 3)), columns=list("abc"))
    X["g"] = rng.integers(0, 2, 600)
    y = (X["a"] + 0.8 * X["g"] * X["b"] + rng.normal(size=600) > 0).to_numpy().astype(int)
    return X, y, y + (X["c"] > 0.3).to_numpy(), rng.gamma(2.0, size=600)


class Ranks:
    """A classifier of given scores, which may have no order, and may be of any shape."""

    classes_ = np.array([0, 1])

    def __init__(self, scores):
        self.scores = np.asarray(scores)

    def predict(self, X):
        return np.arange(len(X)) % 2

    def decision_function(self, X):
        return self.scores


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "model",
    [LinearSVC(), make_pipeline(StandardScaler(), LogisticRegression()), GaussianNB()],
    ids=["scores", "pipeline", "probabilities"],
)
def test_pair_rates_are_those_of_scikit_learn(model, weighted, rows):
    X, y, _, weight = rows
    w = weight if weighted else None
    model = model.fit(X, y)
    ask = getattr(model, "decision_function", lambda X: model.predict_proba(X)[:, 1])
    of = gc.audit(
        model,
        X,
        y,
        [gc.auc() >= 0.7, gc.gap(gc.auc(), by="g") <= 0.2, gc.fpr() <= 0.5],
        sample_weight=w,
    )
    assert of.frame["value"][0] == pytest.approx(
        roc_auc_score(y, ask(X), sample_weight=w), abs=1e-12
    )
    for k, rate in enumerate(of.groups["rate"]):
        own = (X["g"] == k).to_numpy()
        weight_of_group = None if w is None else w[own]
        expected = roc_auc_score(y[own], ask(X)[own], sample_weight=weight_of_group)
        assert rate == pytest.approx(expected, abs=1e-12)
        assert of.groups["rows"][k] == min((y[own] == 0).sum(), (y[own] == 1).sum())
    assert of.frame["value"][1] == pytest.approx(np.ptp(of.groups["rate"]), abs=1e-12)
    assert (of.frame["low"] <= of.frame["value"]).all()
    assert (of.frame["value"] <= of.frame["high"]).all()
    assert (of.groups["low"] < of.groups["rate"]).all()


@pytest.mark.parametrize(
    "model", [LogisticRegression(max_iter=500), DecisionTreeClassifier()], ids=["soft", "certain"]
)
def test_one_class_against_the_rest_is_ranked_by_its_probability(model, rows):
    X, _, y, weight = rows
    model = model.fit(X[:400], y[:400])
    rules = [gc.auc(label=k) >= 0.5 for k in range(3)]
    of = gc.audit(model, X, y, rules, sample_weight=weight)
    p = model.predict_proba(X)
    expected = [roc_auc_score(y == k, p[:, k], sample_weight=weight) for k in range(3)]
    np.testing.assert_allclose(of.frame["value"], expected, rtol=0, atol=1e-12)


def test_classes_that_are_not_sorted_turn_the_scores(rows):
    X, y, *_ = rows
    scores = X["a"].to_numpy()
    turned = Ranks(-scores)
    turned.classes_ = np.array([1, 0])
    found = [gc.audit(m, X, y, gc.auc() >= 0.5).frame["value"][0] for m in (Ranks(scores), turned)]
    assert found[0] == found[1] == pytest.approx(roc_auc_score(y, scores), abs=1e-12)
    positive = gc.audit(Ranks(scores), X, y, gc.auc() >= 0.1, positive=0).frame["value"][0]
    assert positive == pytest.approx(roc_auc_score(y == 0, -scores), abs=1e-12)


def test_infinite_scores_are_ordered_and_constant_ones_tie(rows):
    X, y, *_ = rows
    scores = X["a"].to_numpy().copy()
    scores[:20], scores[20:40] = np.inf, -np.inf
    of = gc.audit(Ranks(scores), X, y, gc.auc() >= 0.5)
    finite = np.where(np.isinf(scores), np.sign(scores) * 1e9, scores)
    assert of.frame["value"][0] == pytest.approx(roc_auc_score(y, finite), abs=1e-12)
    of = gc.audit(DummyClassifier().fit(X, y), X, y, gc.auc() >= 0.6)
    assert of.frame[["value", "low", "high"]].to_numpy().tolist() == [[0.5, 0.5, 0.5]]
    assert of.frame["verdict"].tolist() == ["missed"]


def test_rows_of_both_sides_are_counted_and_few_of_one_side_cannot_be_told(rows):
    X, y, *_ = rows
    few = np.r_[np.flatnonzero(y == 1)[:12], np.flatnonzero(y == 0)]
    scores = X["a"].to_numpy()[few]
    of = gc.audit(Ranks(scores), X.iloc[few], y[few], gc.auc() >= 0.75)
    assert of.frame["rows"].tolist() == [few.size]
    assert of.frame["verdict"].tolist() == ["cannot be told"]
    assert "12 rows" in of.frame["detail"][0]


def test_models_without_scores_are_refused_before_anything_is_asked(rows):
    X, y, *_ = rows

    class Untouchable:
        classes_ = np.array([0, 1])

        def predict(self, X):
            raise AssertionError("asked")

    message = r"auc >= 0\.5 compares scores, and {} has neither decision_function nor"
    with pytest.raises(TypeError, match=message.format("Untouchable")):
        gc.audit(Untouchable(), X, y, gc.auc() >= 0.5)
    ranks = Ranks(X["a"])
    with pytest.raises(TypeError, match=message.format("plain")):
        gc.audit(ranks, X, y, gc.auc() >= 0.5, others={"plain": Untouchable()})
    with pytest.raises(ValueError, match="bounds a rate of predicted classes, and a regressor"):
        gc.audit(LinearRegression().fit(X, y), X, y, gc.auc() >= 0.5)
    with pytest.raises(AssertionError, match="asked"):
        gc.audit(Untouchable(), X, y, gc.fpr() <= 0.5)


def test_scores_without_order_and_of_other_shapes_are_refused(rows):
    X, y, *_ = rows
    scores = X["a"].to_numpy().copy()
    scores[:7] = np.nan
    with pytest.raises(ValueError, match="Ranks returned NaN as the score of 7 of 600 rows"):
        gc.audit(Ranks(scores), X, y, gc.auc() >= 0.5)
    with pytest.raises(ValueError, match=r"Ranks.decision_function returned an array of shape"):
        gc.audit(Ranks(np.zeros((600, 2))), X, y, gc.auc() >= 0.5)


def test_an_audit_of_pair_rates_is_written_and_read(rows, tmp_path):
    X, y, *_ = rows
    rules = [gc.gap(gc.cross_auc(), by="g") <= 0.1, gc.gap(gc.mean_rank(), by="g") <= 0.1]
    of = gc.audit(LogisticRegression().fit(X, y), X, y, rules, others={"other": Ranks(X["b"])})
    again = type(of).from_json(of.to_json())
    for name in ("frame", "groups", "models"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(of, name))
    of.groups.to_csv(tmp_path / "groups.csv", index=False)
    read = pd.read_csv(tmp_path / "groups.csv")
    np.testing.assert_allclose(read["low"], of.groups["low"], rtol=1e-12)
    assert of.models["value[gap(cross_auc, by='g') <= 0.1]"].notna().all()
    page = of.to_html()
    assert "gap(cross_auc, by=&#39;g&#39;) &lt;= 0.1" in page
    assert "<svg" in page


@pytest.mark.parametrize("labels", [(0, 1), ("stays", "returns")], ids=str)
def test_batches_keep_the_groups_of_the_fit(labels, tmp_path):
    """Groups of the fit are compared by name in batches of few rows, also by a loaded model.

    Batches lack groups; with labels as text the constraint names its class.
    """
    compas = load_compas()
    X, y = compas.data.select_dtypes("number"), compas.target.map(dict(enumerate(labels)))
    race = compas.sensitive_features[["race"]]
    rule = gc.gap(gc.fpr(), by="race", small_groups="merge", min_group_size=100) <= 0.1
    options = {"n_estimators": 10, "n_jobs": 1, "verbose": -1, "measure_on": "train"}
    model = gc.ConstrainedLGBMClassifier(constraints=[rule], positive=labels[1], **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:3500], y[:3500], sensitive_features=race[:3500])
        model.save_model(tmp_path / "model.txt")
        loaded = gc.ConstrainedLGBMClassifier().load_model(tmp_path / "model.txt")
        known = {f"race={name}" for name in ("African-American", "Caucasian", "Hispanic", "Other")}
        of_group = race["race"].to_numpy()
        for n, absent in ((100, ""), (2500, ""), (600, "Hispanic"), (600, "Caucasian")):
            rows = np.arange(3500, 3500 + n)
            rows = rows[of_group[rows] != absent]
            batch = X.iloc[rows], y.iloc[rows]
            found = [
                gc.audit(one, *batch, rule, sensitive_features=race.iloc[rows])
                for one in (model, loaded, make_pipeline(FunctionTransformer(), model))
            ]
            there = known - {f"race={absent}"}
            assert there <= {*found[0].groups["group"]} <= there | {"race=small groups"}
            assert found[0].groups.equals(found[1].groups)
            assert found[0].groups.equals(found[2].groups)
            # Each group's rate is that of its own rows.
            rates = found[0].groups.set_index("group")["rate"]
            negative = (batch[1] == labels[0]).to_numpy()
            for name in {"Caucasian", "African-American"} - {absent}:
                pressed = model.predict(batch[0])[negative & (of_group[rows] == name)]
                assert rates[f"race={name}"] == pytest.approx(np.mean(pressed == labels[1]))
        few, given = slice(3500, 3600), {"sensitive_features": race[3500:3600]}
        for grouping, words in (("rows", "1 is left"), ("batch", "grouping must be")):
            with pytest.raises(ValueError, match=words):
                gc.audit(model, X[few], y[few], rule, grouping=grouping, **given)
