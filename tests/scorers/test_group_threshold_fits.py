"""Fits whose decisions use the group, in both libraries."""

from __future__ import annotations

import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, margins_of

import gbm_constrained as gc
from gbm_constrained.fit.fit import warn_of_groups

pytestmark = pytest.mark.filterwarnings("ignore:group_thresholds=True lets the group")
OPTIONS = {
    "xgboost": {"max_depth": 2, "enable_categorical": True, "verbosity": 0},
    "lightgbm": {"num_leaves": 4, "verbose": -1},
}
RULE = gc.gap(gc.tpr(), by="sex") <= 0.05
HELD = ("met", "missed within sampling error")  # Cross-fitted values lie on either side.


@pytest.fixture(scope="module")
def table():
    """Rows on which a common threshold leaves a gap: one group has lower scores."""
    rng = np.random.default_rng(0)
    n = 1500
    sex = pd.Categorical(rng.choice(["F", "M"], n))
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    score = X["a"] + 1.5 * (sex == "M") - 1.0 + rng.normal(size=n)
    X["sex"], X["region"] = sex, rng.choice([0.0, 1.0, 2.0], n)
    X.loc[::40, "region"] = np.nan
    return X, (score > 0).astype(int).to_numpy()


def make(library, rules=RULE, **options):
    options = {"n_estimators": 12, "n_jobs": 1, "random_state": 0, "measure_on": gc.CrossFit(3),
               "group_thresholds": True, **OPTIONS[library], **options}  # fmt: skip
    return CLASSIFIERS[library](constraints=rules, **options)


def plain_decisions(model, X):
    """Decisions of the plain library, which knows the booster alone."""
    if isinstance(model, xgb.XGBClassifier):
        native = xgb.Booster(model_file=model.get_booster().save_raw())
        probability = native.predict(xgb.DMatrix(X, enable_categorical=True))
    else:
        probability = lgb.Booster(model_str=model.booster_.model_to_string()).predict(X)
    return model.classes_[(probability > 0.5).astype(int)]


@EITHER
def test_better_than_with_a_common_threshold(library, table):
    """Held-out rows of both fits are the same, and the group is of help here.

    A point of violation counts as one of errors, as in the choice of all fits.
    """
    X, y = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        common = make(library, group_thresholds=False).fit(X, y)
    model = make(library).fit(X, y)
    merits = [
        1.0 - float(one.unseen_accuracy_)
        + max(one.constraint_report_["held_out"].item() - 0.05, 0.0)
        for one in (model, common)
    ]  # fmt: skip
    assert merits[0] < merits[1] - 0.01
    np.testing.assert_allclose(model.cost_report_.loc["plain"], common.cost_report_.loc["plain"])
    assert model.constraint_report_["verdict"].item() in HELD
    report = gc.audit(model, X, y, constraints=[RULE])
    assert report.frame["value"].item() == pytest.approx(model.constraint_report_["train"].item())


@EITHER
def test_calibrated_probabilities_stay_as_trained(library, table):
    X, y = table
    shifted, beside = (
        make(library, probabilities=kept).fit(X, y) for kept in ("shifted", "calibrated")
    )
    np.testing.assert_array_equal(shifted.predict(X), beside.predict(X))
    shifts = beside.group_shifts_.set_index("sex")["shift"]
    added = margins_of(shifted, X) - margins_of(beside, X)
    np.testing.assert_allclose(added, shifts[X["sex"]], atol=1e-5)


@EITHER
@pytest.mark.parametrize("kept", ["shifted", "calibrated"])
def test_saved_models_decide_and_report_alike(library, kept, table, tmp_path):
    X, y = table
    model = make(library, probabilities=kept).fit(X, y)
    path = tmp_path / ("model.json" if library == "xgboost" else "model.txt")
    model.save_model(path)
    loaded = CLASSIFIERS[library]()
    loaded.load_model(path)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    pd.testing.assert_frame_equal(loaded.group_shifts_, model.group_shifts_)
    assert loaded.group_thresholds


@EITHER
@pytest.mark.filterwarnings("ignore:.*fewer than min_group_size", "ignore:Too few rows to assess")
def test_several_columns_and_missing_values(library, table):
    X, y = table
    rule = gc.gap(gc.selection_rate(), by=["sex", "region"]) <= 0.1
    model = make(library, rule).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), plain_decisions(model, X))
    table = model.group_shifts_
    assert list(table.columns) == ["sex", "region", "shift", "rows"]
    np.testing.assert_allclose(table["shift"][table["region"].isna()], model.shift_[0])


@EITHER
@pytest.mark.parametrize("iterate", ["last", "best"])
@pytest.mark.parametrize("solver", ["threshold", "abpp"])
def test_solvers_and_iterates(library, iterate, solver, table):
    X, y = table
    model = make(library, iterate=iterate, solver=solver).fit(X, y)
    assert model.constraint_report_["verdict"].item() in HELD
    np.testing.assert_array_equal(model.predict(X), plain_decisions(model, X))


@EITHER
def test_guarantee_holds_at_the_shifts_of_groups(library, table):
    X, y = table
    rule = gc.gap(gc.selection_rate(), by="sex") <= 0.4
    model = make(library, [rule], guarantee="high_probability").fit(X, y)
    assert model.constraint_report_["rows"].item() == "certification"
    assert model.constraint_report_["verdict"].item() == "met"
    np.testing.assert_array_equal(model.predict(X), plain_decisions(model, X))


@EITHER
def test_evaluation_sets_are_measured_with_the_shifts(library, table):
    X, y = table
    given = {"verbose": False} if library == "xgboost" else {}
    model = make(library).fit(X[:1000], y[:1000], eval_set=[(X[1000:], y[1000:])], **given)
    value = gc.audit(model, X[1000:], y[1000:], constraints=[RULE]).frame["value"].item()
    assert model.constraint_report_["held_out"].item() == pytest.approx(value)


@EITHER
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_thresholds": "yes"}, "group_thresholds must be True or False, got 'yes'"),
        ({"rules": []}, "there are no constraints"),
        ({"rules": gc.fnr() <= 0.1}, "no constraint names one"),
        ({"rules": [RULE, gc.log_loss() <= 0.6]}, "moves decisions, and log_loss.* about scores"),
        ({"rules": gc.gap(gc.fpr(), by="race") <= 0.1}, "'race', which is of sensitive_features"),
        ({"iterate": "randomized"}, "iterate='randomized' is a mean of several"),
        ({"measure_on": "train"}, "on rows that the trees have not seen"),
        ({"maximize": "g_mean"}, "group_thresholds=True has no meaning"),
    ],
)
def test_bad_input(library, options, message, table):
    X, y = table
    race = pd.Series(np.resize(["a", "b"], len(y)), X.index, name="race")
    with pytest.raises(ValueError, match=message):
        make(library, **options).fit(X, y, sensitive_features=race)


@EITHER
def test_bad_rows(library, table):
    X, y = table
    of_class = gc.gap(gc.selection_rate(2), by="sex") <= 0.1
    with pytest.raises(ValueError, match="a threshold of two classes, and y has 3"):
        make(library, of_class).fit(X, np.resize([0, 1, 2], len(y)))
    further = [RULE, gc.selection_rate(on=gc.dataset("more")) <= 0.5]
    with pytest.raises(ValueError, match=r"about the data sets \['more'\]"):
        make(library, further).fit(X, y, datasets={"more": X[:100]})
    numbers = X.assign(sex=np.where(X["sex"] == "F", 16777216.0, 16777217.0))
    with pytest.raises(ValueError, match="values are equal in single precision"):
        make(library).fit(numbers, y)
    with pytest.raises(ValueError, match=r"column 'sex' is neither in|'sex', which is not of X"):
        make(library).fit(X[["a", "b"]].to_numpy(), y)


def make_numbers(table, codes):
    X, y = table
    return X[["a", "b"]].assign(g=np.where(X["sex"] == "F", *codes), h=X["a"] > 0), y


@pytest.mark.parametrize(
    ("library", "codes", "options", "message"),
    [
        ("xgboost", (0.0, 1.0), {"missing": 0.0}, r"value 0\.0 is missing=0\.0 to the trees"),
        ("lightgbm", (0.0, np.inf), {}, "value inf is infinite to the trees"),
        ("lightgbm", (-np.inf, 1.0), {}, "value -inf is infinite to the trees"),
        ("lightgbm", (0.0, 1e39), {}, r"value 1e\+39 is infinite to the trees"),
        ("xgboost", (0, 1), {"monotone_constraints": (0, 0, 1)}, "'g', which need not be mono"),
        ("xgboost", (0, 1), {"monotone_constraints": "(0,0,-1,0)"}, "'g', which need not be"),
        ("xgboost", (0, 1), {"monotone_constraints": {"g": 1}}, "'g', which need not be"),
        ("lightgbm", (0, 1), {"mc": [0, 0, -1, 0]}, "'g', which need not be monotone in it"),
    ],
)
def test_groups_that_trees_do_not_tell_apart_or_must_keep_in_order(
    library, codes, options, message, table
):
    X, y = make_numbers(table, codes)
    rule = gc.gap(gc.selection_rate(), by="g") <= 0.02
    with pytest.raises(ValueError, match=message):
        make(library, rule, **options).fit(X, y)


def test_categories_in_the_place_of_a_missing_value(table):
    X, y = table
    with pytest.raises(ValueError, match=r"value 'F' is missing=0\.0 to the trees"):
        make("xgboost", missing=0.0).fit(X, y)


@EITHER
@pytest.mark.parametrize("written", [[[0, 1], [2], [3]], "[[0, 1], [2], [3]]", "[0,1],[2],[3]"])
def test_interaction_constraints_that_part_the_columns_of_groups(library, written, table):
    if library == "xgboost" and isinstance(written, list):
        written = [["a", "b"], ["g"], ["h"]]
    X, y = make_numbers(table, (0, 1))
    rule = gc.gap(gc.selection_rate(), by=["g", "h"]) <= 0.1
    with pytest.raises(ValueError, match=r"no set of interaction_constraints holds all of these"):
        make(library, rule, interaction_constraints=written).fit(X, y)


@EITHER
def test_limits_of_other_columns_and_of_both_columns_of_groups_are_kept(library, table):
    X, y = make_numbers(table, (0, 1))
    rule = gc.gap(gc.selection_rate(), by=["g", "h"]) <= 0.1
    sets = [["a", "b"], ["g", "h"]] if library == "xgboost" else "[0,1],[2,3]"
    limits = {"monotone_constraints": (1, 0, 0, 0), "interaction_constraints": sets}
    model = make(library, rule, n_estimators=5, **limits).fit(X, y)
    more = np.linspace(-2, 2, 5)
    ladder = X.iloc[[0] * 5].assign(a=more)
    assert (np.diff(margins_of(model, ladder)) >= 0).all()


def test_a_warning_says_once_that_groups_decide(table):
    X, y = table
    warn_of_groups.cache_clear()
    with pytest.warns(UserWarning, match=r"unlawful in places .*\[GC122\]"):
        make("lightgbm", n_estimators=2).fit(X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="group_thresholds")
        make("lightgbm", n_estimators=2).fit(X, y)
