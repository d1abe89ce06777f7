"""The positive class by its label: what rates are about, and how reports and files say so."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

import gbm_constrained as gc
from gbm_constrained.constraints.checking import (
    check_constraints,
    find_positive_class,
    name_positive_class,
    resolve_positive_class,
)
from gbm_constrained.constraints.presets import (
    EqualizedOdds,
    EqualOpportunity,
    FourFifths,
    NeymanPearson,
    SubgroupAUC,
)
from gbm_constrained.plotting import GroupRatesDisplay, plot_np_roc
from gbm_constrained.reporting.notebook import html_of

N = 400
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"))
IS_FRAUD = (X["a"] + 0.5 * RNG.normal(size=N) > 0.8).to_numpy()
NAMES = np.where(IS_FRAUD, "fraud", "legit")
SEX = {"sex": np.where(X["b"] > 0, "F", "M")}
ALPHABET = np.array(["fraud", "legit"])
RULES = {
    "rate": (gc.fnr() <= 0.1, gc.fnr("fraud") <= 0.1),
    "sum": (gc.fpr() + 0.5 * gc.fnr() <= 0.5, gc.fpr("fraud") + 0.5 * gc.fnr("fraud") <= 0.5),
    "quotient": (gc.precision() >= 0.5, gc.precision("fraud") >= 0.5),
    "own quotient": (
        gc.tpr() / gc.selection_rate() >= 0.5, gc.tpr("fraud") / gc.selection_rate("fraud") >= 0.5,
    ),
    "groups": (gc.gap(gc.recall(), by="sex") <= 0.3, gc.gap(gc.recall("fraud"), by="sex") <= 0.3),
    "rows": (
        gc.f1(on={"sex": "F"}) >= 0.1, gc.f1("fraud", on={"sex": "F"}) >= 0.1,
    ),
    "difference": (
        gc.tnr(on={"sex": "F"}) - gc.tnr(on={"sex": "M"}) <= 0.4,
        gc.tnr("fraud", on={"sex": "F"}) - gc.tnr("fraud", on={"sex": "M"}) <= 0.4,
    ),
}  # fmt: skip


def make(library, constraints, **options):
    if library == "linear":
        return gc.ConstrainedLogisticRegression(
            constraints=constraints, n_iterations=20, **options
        )
    options = {"n_estimators": 6, "n_jobs": 1, "measure_on": gc.CrossFit(2), **options}
    if library == "xgboost":
        return gc.ConstrainedXGBClassifier(constraints=constraints, **options)
    return gc.ConstrainedLGBMClassifier(constraints=constraints, verbose=-1, **options)


def labels_of(library):
    """Frauds come first among the sorted labels, of XGBoost the numbers 0 and 1."""
    return (~IS_FRAUD).astype(int) if library == "xgboost" else NAMES


def fit(library, constraints, positive=None, **options):
    given = {"verbose": False} if library == "xgboost" else {}
    clf = make(library, constraints, positive=positive, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The solver stopped")
        return clf.fit(X, labels_of(library), sensitive_features=SEX, **given)


@pytest.mark.parametrize("kind", RULES)
def test_rates_are_those_of_the_label(kind):
    plain, labelled = RULES[kind]
    assert name_positive_class(plain, "fraud") == labelled
    assert str(name_positive_class(plain, "fraud")) == str(labelled)
    assert gc.parse_constraint(gc.format_constraint(plain), positive="fraud") == labelled
    assert gc.parse_constraint(gc.format_constraint(labelled)) == labelled
    assert name_positive_class(labelled, "legit") == labelled
    assert resolve_positive_class([plain], ALPHABET) == (name_positive_class(plain, "legit"),)


def test_rates_of_no_class_stay_as_they_are():
    constraints = [gc.error_rate() <= 0.1, gc.log_loss() <= 0.5, gc.class_error("legit") <= 0.1,
             gc.churn(to="old") <= 0.1, gc.confusion("legit", "fraud") <= 0.1]  # fmt: skip
    assert all(
        name_positive_class(constraint, "fraud") is constraint for constraint in constraints
    )
    # Rates that become equal are added up.
    both = gc.fnr() + gc.fnr("fraud") <= 0.4
    assert name_positive_class(both, "fraud") == (2 * gc.fnr("fraud") <= 0.4)


@pytest.mark.parametrize(
    ("classes", "positive", "expected"),
    [
        ([0, 1], None, None),
        ([0, 1], 1, None),
        ([0, 1], 0, 0),
        ([0, 1], np.int64(0), 0),
        ([False, True], None, None),
        ([False, True], True, None),
        ([False, True], False, False),
        ([0.0, 1.0], None, None),
        ([-1, 1], None, 1),
        ([1, 2], None, 2),
        (["fraud", "legit"], None, "legit"),
        (["fraud", "legit"], "fraud", "fraud"),
        (["a", "b", "c"], None, None),
        (["a", "b", "c"], "b", "b"),
    ],
)
def test_the_label_that_is_named(classes, positive, expected):
    found = find_positive_class(np.array(classes), positive)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("kind", "library"),
    list(zip(RULES, 3 * ["xgboost", "lightgbm", "linear"], strict=False)),
)
def test_a_fit_is_that_of_the_named_rates(kind, library):
    """And its report says which class they are about."""
    label = 0 if library == "xgboost" else "fraud"
    constraint = RULES[kind][0]
    labelled = name_positive_class(constraint, label)
    options = {} if library == "linear" else {"measure_on": gc.CrossFit(2)}
    model, named = (
        fit(library, [constraint], label, **options),
        fit(library, [labelled], **options),
    )
    assert (model.predict_proba(X) == named.predict_proba(X)).all()
    assert model.constraint_report_["constraint"].tolist() == [str(labelled)]
    pd.testing.assert_frame_equal(model.constraint_report_, named.constraint_report_)
    assert model.classes_.tolist() == sorted(set(labels_of(library)))
    assert model.constraints == [constraint]  # a parameter, which stays as it was given
    other = fit(library, [constraint], **options)
    assert other.constraint_report_["constraint"][0] != str(labelled)


@pytest.mark.parametrize("measure_on", ["train", "holdout", "crossfit"])
def test_what_the_alphabet_calls_positive_is_said(measure_on):
    """As it was found: the miss rate of a fit on ["fraud", "legit"] was that of "legit"."""
    seen: list[gc.ConstraintState] = []
    clf = make(
        "lightgbm", [gc.fnr() <= 0.05, gc.gap(gc.fpr(), by="sex") <= 0.9], measure_on=measure_on
    )
    clf.fit(X, NAMES, sensitive_features=SEX, constraint_callbacks=[seen.append])
    names = ["fnr('legit') <= 0.05", "gap(fpr('legit'), by='sex') <= 0.9"]
    assert clf.constraint_report_["constraint"].tolist() == names
    assert {f"value[{name}]" for name in names} < set(clf.history_)
    assert clf.multipliers_.index[0] == names[0]
    assert seen[-1].values.index.tolist() == names
    assert seen[-1].rates.index.tolist()[0] == "fnr('legit')"
    missed = clf.predict(X)[~IS_FRAUD] == "fraud"
    assert clf.constraint_report_["train"][0] == pytest.approx(missed.mean())
    assert "fnr(&#39;legit&#39;) &lt;= 0.05" in html_of(clf)


def test_the_miss_rate_is_that_of_the_frauds():
    clf = fit("lightgbm", [gc.fnr() <= 0.05], "fraud", measure_on="train", n_estimators=20)
    missed = clf.predict(X)[IS_FRAUD] == "legit"
    assert clf.constraint_report_["train"][0] == pytest.approx(missed.mean())
    found = gc.audit(clf, X, NAMES, [gc.fnr() <= 0.05])
    assert found.frame["constraint"].tolist() == ["fnr('fraud') <= 0.05"]
    assert found.frame["value"][0] == pytest.approx(missed.mean())


def test_binary_labels_keep_the_short_names():
    for y in (IS_FRAUD, IS_FRAUD.astype(int), IS_FRAUD.astype(float)):
        clf = make("lightgbm", [gc.fnr() <= 0.9], measure_on="train").fit(X, y)
        assert clf.constraint_report_["constraint"].tolist() == ["fnr <= 0.9"]
        assert gc.audit(clf, X, y, [gc.fnr() <= 0.9]).frame["constraint"].tolist() == [
            "fnr <= 0.9"
        ]


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "linear"])
def test_an_unknown_label_is_refused_before_training(library):
    classes = "[0, 1]" if library == "xgboost" else "['fraud', 'legit']"
    with pytest.raises(ValueError, match="is not among the classes of y") as error:
        fit(library, [gc.fnr() <= 0.1], "frauds")
    text = f"positive='frauds' is not among the classes of y: give one of {classes}."
    assert str(error.value) == text
    with pytest.raises(TypeError, match="positive= takes one label"):
        fit(library, [gc.fnr() <= 0.1], ["fraud"])
    with pytest.raises(ValueError, match="is not among the classes"):
        fit(library, [gc.error_rate() <= 0.4], "frauds")


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "linear"])
def test_one_class_against_several(library):
    y = np.digitize(X["a"], [-0.5, 0.5])
    given = {"verbose": False} if library == "xgboost" else {}
    with pytest.raises(ValueError, match="or as positive= of all rates"):
        make(library, [gc.recall() >= 0.1]).fit(X, y, **given)
    clf = make(library, [gc.recall() >= 0.1], positive=2).fit(X, y, **given)
    assert clf.constraint_report_["constraint"].tolist() == ["recall(2) >= 0.1"]
    hits = clf.predict(X)[y == 2] == 2
    assert clf.constraint_report_["train"][0] == pytest.approx(hits.mean())
    assert not get_tags(make(library, [gc.recall() >= 0.1])).classifier_tags.multi_class
    assert get_tags(make(library, [gc.recall() >= 0.1], positive=2)).classifier_tags.multi_class


PRESETS = {
    "EqualOpportunity": (
        EqualOpportunity(0.5, by="sex"),
        [gc.gap(gc.tpr("fraud"), by="sex") <= 0.5],
    ),
    "FourFifths": (FourFifths(by="sex"), [gc.ratio(gc.selection_rate("fraud"), by="sex") >= 0.8]),
    "SubgroupAUC": (SubgroupAUC(0.5, by="sex"), [gc.gap(gc.auc("fraud"), by="sex") <= 0.5]),
    "NeymanPearson": (NeymanPearson({"legit": 0.4}), [gc.class_error("legit") <= 0.4]),
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_about_the_positive_class(name):
    given, expected = PRESETS[name]
    named = resolve_positive_class(check_constraints(given), ALPHABET, "fraud")
    assert named == tuple(expected)


def test_presets_of_fairlearn():
    given = EqualizedOdds(difference_bound=0.5, by="sex")
    clf = fit("lightgbm", given, "fraud", measure_on="train")
    named = resolve_positive_class(given, ALPHABET, "fraud")
    assert clf.constraint_report_["constraint"].tolist() == list(map(str, named))
    reductions = pytest.importorskip("fairlearn.reductions")
    clf = fit("lightgbm", reductions.TruePositiveRateParity(difference_bound=0.5), "fraud")
    assert clf.constraint_report_["constraint"][0].startswith("gap(tpr('fraud'), reference=")


def test_a_false_positive_rate_of_a_label_is_an_error_rate_of_two_classes():
    options = {"measure_on": "train"}
    unnamed, named = (gc.as_log_loss([rate <= 0.3], 2) for rate in (gc.fpr(), gc.fpr("fraud")))
    clf = fit("lightgbm", unnamed, "fraud", **options)
    assert clf.constraint_report_["constraint"].tolist() == list(map(str, named))
    assert (clf.predict(X) == fit("lightgbm", named, **options).predict(X)).all()
    with pytest.raises(ValueError, match="is for upper bounds of error rates"):
        gc.as_log_loss([gc.fpr(2) <= 0.3], 3)


def test_rates_of_further_data_sets():
    clf = make("lightgbm", [gc.fnr(on=gc.dataset("more")) <= 0.5], positive="fraud")
    clf.fit(X, NAMES, datasets={"more": (X[:100], NAMES[:100])})
    assert clf.constraint_report_["constraint"].tolist() == ["fnr('fraud')[more] <= 0.5"]


def test_an_audit_asks_the_model_or_its_user():
    plain = LogisticRegression().fit(X, NAMES)
    constraints = [gc.fnr() <= 0.5, gc.each(gc.fpr(), by="sex") <= 0.5]

    def names(model, **given):
        found = gc.audit(model, X, NAMES, constraints, sensitive_features=SEX, **given)
        return found.frame["constraint"].tolist()

    expected = {k: [f"fnr('{k}') <= 0.5", f"each(fpr('{k}'), by='sex') <= 0.5"] for k in ALPHABET}
    assert names(plain) == expected["legit"]
    assert names(plain, positive="fraud") == expected["fraud"]
    clf = fit("lightgbm", [gc.fnr() <= 0.5], "fraud", measure_on="train")
    assert names(clf) == expected["fraud"]
    assert names(clf, positive="legit") == expected["legit"]
    in_pipeline = make_pipeline(FunctionTransformer(), clf)
    assert names(in_pipeline) == expected["fraud"]
    with pytest.raises(ValueError, match="positive='frauds' is not among the classes of y"):
        names(plain, positive="frauds")
    text = str(gc.audit(plain, X, NAMES, constraints, sensitive_features=SEX, positive="fraud"))
    assert "fnr('fraud') <= 0.5" in text
    page = gc.audit(plain, X, NAMES, constraints, sensitive_features=SEX).to_html()
    assert "the last one is positive" not in page


def test_a_curve_of_bounds():
    clf = make("lightgbm", [gc.fnr() <= 0.5], positive="fraud", n_estimators=3)
    for test in ({}, {"X_test": X, "y_test": NAMES}):
        curve = gc.tradeoff_curve(clf, X, NAMES, [0.4, 0.5], **test)
        assert curve["constraint"].tolist() == ["fnr('fraud') <= 0.5", "fnr('fraud') <= 0.4"]


def test_the_band_of_a_score():
    score = RNG.normal(size=N) + IS_FRAUD
    expected = gc.np_roc_band(score, IS_FRAUD)
    pd.testing.assert_frame_equal(gc.np_roc_band(score, NAMES, positive="fraud"), expected)
    pd.testing.assert_frame_equal(gc.np_roc_band(-score, NAMES), gc.np_roc_band(-score, ~IS_FRAUD))
    with pytest.raises(ValueError, match="positive='x' is not among the classes of y"):
        gc.np_roc_band(score, NAMES, positive="x")


@pytest.mark.parametrize("method", ["decision_function", "predict_proba"])
def test_the_figure_of_the_band(method):
    named, plain = (LogisticRegression().fit(X, y) for y in (NAMES, IS_FRAUD))
    if method == "predict_proba":
        named, plain = (make("lightgbm", []).fit(X, y) for y in (NAMES, IS_FRAUD))
    lines = [ax.get_lines() for ax in (
        plot_np_roc(named, X, NAMES, positive="fraud"), plot_np_roc(plain, X, IS_FRAUD)
    )]  # fmt: skip
    for one, other in zip(*lines, strict=True):
        np.testing.assert_allclose(one.get_xydata(), other.get_xydata(), atol=1e-12)


def test_rates_of_groups_are_drawn_of_the_class():
    clf = fit("lightgbm", [gc.gap(gc.fpr(), by="sex") <= 0.5], "fraud", measure_on="train")
    rates = {"sensitive_features": SEX}
    drawn = GroupRatesDisplay.from_estimator(clf, X, NAMES, **rates)
    of_frauds = gc.audit(clf, X, NAMES, [gc.each(gc.fpr("fraud"), by="sex") <= 1], **rates).groups[
        "rate"
    ]
    constraint = gc.gap(gc.fpr(), by="sex") <= 0.5
    predicted = GroupRatesDisplay.from_predictions(
        NAMES, clf.predict(X), constraint, positive="fraud", **rates
    )
    for display in (drawn, predicted):
        assert display.rates["rate"].tolist() == of_frauds.tolist()
        assert display.rate_name == "fpr('fraud')"
        assert str(display.constraint) == "gap(fpr('fraud'), by='sex') <= 0.5"


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_clones_and_files_keep_it(library, tmp_path):
    label = 0 if library == "xgboost" else "fraud"
    model = fit(library, [gc.fnr() <= 0.3], label)
    assert clone(model).get_params()["positive"] == label
    path = tmp_path / ("model.json" if library == "xgboost" else "model.txt")
    model.save_model(path)
    loaded = type(model)().load_model(path)
    assert loaded.positive == label
    assert loaded.constraint_report_["constraint"].tolist() == [f"fnr({label!r}) <= 0.3"]
    found = gc.audit(loaded, X, labels_of(library), loaded.constraints)
    assert found.frame["constraint"].tolist() == [f"fnr({label!r}) <= 0.3"]
    assert f'"constraints":["fnr({label!r})' in path.read_text().replace("\\", "")


def test_a_view_names_the_class():
    fitted = fit("lightgbm", [gc.fnr() <= 0.1], "fraud", measure_on="train")
    assert "fnr(&#39;fraud&#39;) &lt;= 0.1" in html_of(fitted)
    # A view does not fail: it says what a fit would say.
    assert "positive=&#39;x&#39; is not among" in html_of(fitted.set_params(positive="x"))
    assert "fnr(&#39;fraud&#39;) &lt;= 0.1" in html_of(
        make("lightgbm", [gc.fnr() <= 0.1], positive="fraud")
    )
    assert "<code>fnr &lt;= 0.1" in html_of(make("lightgbm", [gc.fnr() <= 0.1]))
