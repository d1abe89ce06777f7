"""Groups in fits of both libraries, and what fits say of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from grouped_fits import BOOSTER, fitted, problem
from scipy import sparse

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedLogisticRegression,
    Expected,
    HighProbability,
    fpr,
)
from gbm_constrained.constraints.rates import each, error_rate, gap, selection_rate, tpr
from gbm_constrained.constraints.selectors import dataset


@BOOSTER
def test_every_form_gives_the_same_model(booster):
    X, y, sex = problem()
    rules = [gap(selection_rate()) <= 0.05, each(error_rate()) <= 0.4]
    forms = [sex, list(sex), pd.Series(sex), sex[:, None], {"s": sex}, pd.Categorical(sex)]
    scores = [
        fitted(rules, X, y, booster, sensitive_features=form).predict_proba(X) for form in forms
    ]
    for other in scores[1:]:
        np.testing.assert_array_equal(scores[0], other)
    free = fitted([], X, y, booster).predict(X)
    apart = [
        abs(p[sex == "F"].mean() - p[sex == "M"].mean()) for p in (free, scores[0][:, 1] > 0.5)
    ]
    assert apart[1] < apart[0] - 0.05


@BOOSTER
def test_classes_of_equal_shares_are_not_one_class_for_all(booster):
    """A gap of zero has its price with several classes as with two; one class has .42 right."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["F", "M"], 1500)
    X = rng.normal(size=(1500, 3))
    score = X[:, 0] + 0.5 * X[:, 1] + np.where(sex == "M", 0.5, 0.0) + rng.normal(size=1500)
    y = np.digitize(score, [-0.5, 1.0])
    rules = [gap(selection_rate(k)) <= 0.0 for k in range(3)]
    model = fitted(rules, np.column_stack([X, sex == "M"]), y, booster, sensitive_features=sex)
    assert float(model.unseen_accuracy_) > np.bincount(y).max() / 1500 + 0.1
    assert (model.constraint_report_.held_out < 0.05).all()


def test_a_feature_is_as_good_as_a_sensitive_feature():
    X, y, sex = problem()
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=pd.Categorical(sex))
    rules = [gap(selection_rate(), by="sex") <= 0.05]
    inside = fitted(rules, frame, y)
    outside = fitted(rules, frame, y, sensitive_features=pd.Series(sex, name="sex"))
    np.testing.assert_array_equal(inside.predict_proba(frame), outside.predict_proba(frame))
    report = inside.group_report_
    assert report.group.tolist() == ["sex=F", "sex=M"]
    assert report.rows.tolist() == [(sex == "F").sum(), (sex == "M").sum()]
    chosen = inside.predict(frame)
    np.testing.assert_allclose(report.train, [chosen[sex == s].mean() for s in "FM"], atol=1e-12)


def test_evaluation_rows_without_groups_report_none():
    X, y, sex = problem()
    model = fitted(
        [gap(selection_rate()) <= 0.05], X[200:], y[200:], sensitive_features=sex[200:],
        measure_on="train", eval_set=[(X[:200], y[:200])],
    )  # fmt: skip
    assert model.constraint_report_["rows"].tolist() == ["training rows"]
    assert model.constraint_report_.held_out.isna().all()
    assert model.constraint_report_.satisfied.isna().all()


NEW_GROUPS = "eval_set\\[0\\] has groups that a constraint has no training rows of: "


def test_numbers_and_texts_that_print_alike_are_quoted_in_the_report():
    X, y, sex = problem()
    codes = np.where(sex == "F", "0", "1")
    held = np.array([0, "0", "1"] * 67, dtype=object)[:200]
    with pytest.warns(UserWarning, match=NEW_GROUPS + "c=0"):
        model = fitted(
            [gap(selection_rate(), by="c") <= 0.1], X[200:], y[200:],
            sensitive_features={"c": codes[200:]}, eval_set=[(X[:200], y[:200])],
            sensitive_features_eval_set=[{"c": held}],
        )  # fmt: skip
    assert model.group_report_.group.tolist() == ["c='0'", "c=1", "c=0"]


def test_many_small_groups_are_told_of_once_and_listed():
    """Five names, the number of all, and the list in `small_groups_`."""
    rng = np.random.default_rng(0)
    X, y, region = rng.normal(size=(800, 3)), rng.integers(0, 2, 800), rng.integers(0, 60, 800)
    rules = [gap(rate, by="region") <= 0.9 for rate in (fpr(), tpr())]
    with pytest.warns(UserWarning, match="fewer than min_group_size") as told:
        model = fitted(rules, X, y, sensitive_features={"region": region}, measure_on="train")
    (text,) = [str(w.message) for w in told if "min_group_size" in str(w.message)]
    assert text.startswith(f"{rules[0]}, {rules[1]}: some groups have fewer")
    assert text.count("region=") == 5
    assert "and 55 more, 60 groups in all. They are kept" in text
    assert text.endswith("small_groups_ lists all of them. [GC204]")
    assert len(text) < 500
    listed = model.small_groups_
    sizes = pd.Series(region[y == 1]).value_counts()
    of_tpr = listed[listed.constraint == str(rules[1])].set_index("group")["rows"]
    assert {int(g.removeprefix("region=")): n for g, n in of_tpr.items()} == sizes.to_dict()
    assert listed.treatment.unique().tolist() == ["kept"]
    model = ConstrainedLogisticRegression(constraints=rules)
    with pytest.warns(UserWarning, match="fewer than min_group_size") as told:
        model.fit(X, y, sensitive_features={"region": region})
    assert len([w for w in told if "min_group_size" in str(w.message)]) == 1
    assert len(model.small_groups_) == len(listed)


@BOOSTER
def test_rows_of_data_sets_have_groups_from_columns_of_the_features_only(booster):
    X, y, sex = problem()
    monitor = {"mon": X[:100]}
    for rule in (
        gap(selection_rate(on=dataset("mon")), by="sex") <= 0.1,
        gap(selection_rate(on=dataset("mon"))) <= 0.1,
        each(selection_rate(on=dataset("mon")), by="sex") <= 0.1,
        selection_rate(on=(dataset("mon"), {"sex": "F"})) <= 0.1,
    ):
        with pytest.raises(ValueError, match="as sensitive_features are of the training rows"):
            fitted([rule], X, y, booster, sensitive_features={"sex": sex}, datasets=monitor)
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=(sex == "F").astype(int))
    rule = gap(selection_rate(on=dataset("mon")), by="sex") <= 0.1
    model = fitted([rule], frame, y, booster, datasets={"mon": frame[:100]})
    sizes = [(sex[:100] == s).sum() for s in "MF"]
    assert model.group_report_.rows.tolist() == sizes


@pytest.mark.parametrize("guarantee", [Expected, HighProbability])
@pytest.mark.parametrize(
    "rule",
    [
        gap(selection_rate(on=dataset("mon")), by="sex") <= 0.6,
        selection_rate(on=(dataset("mon"), {"sex": 0})) <= 0.6,
    ],
)
def test_rows_of_data_sets_have_groups_where_some_are_set_aside(rule, guarantee):
    X, y, sex = problem()
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=(sex == "F").astype(int))
    model = ConstrainedLGBMClassifier(
        constraints=[rule], guarantee=guarantee(fraction=0.5),
        n_estimators=5, n_jobs=1, num_leaves=7, verbose=-1,
    ).fit(frame, y, datasets={"mon": frame[:300]})  # fmt: skip
    assert model.constraint_report_.rows.tolist() == ["certification"]
    assert model.constraint_report_.satisfied.all()


def test_numbers_that_are_no_groups_are_refused():
    """A gap by income would have a row for each pair of incomes."""
    income = np.random.default_rng(0).normal(size=800)
    y = np.arange(800) % 2
    clf = ConstrainedLGBMClassifier(n_estimators=2, verbose=-1)
    for rule in (gap(selection_rate(), by="income"), each(selection_rate(), by="income")):
        clf.set_params(constraints=rule <= 0.1)
        with (
            pytest.raises(ValueError, match=r"800 groups by income, more than 500.*pandas\.cut"),
            pytest.warns(UserWarning, match=r"and 795 more, 800 groups in all\. They are kept"),
        ):
            clf.fit(np.zeros((800, 1)), y, sensitive_features={"income": income})


@BOOSTER
def test_a_fit_names_what_is_wrong_with_groups(booster):
    X, y, sex = problem()
    with pytest.raises(ValueError, match="groups are made by no column"):
        fitted([gap(tpr()) <= 0.1], X, y, booster)
    with pytest.raises(ValueError, match="column 'age' is neither"):
        fitted([gap(tpr(), by="age") <= 0.1], X, y, booster, sensitive_features=sex)
    with pytest.raises(ValueError, match="give one value per row"):
        fitted([gap(tpr()) <= 0.1], X, y, booster, sensitive_features=sex[:-1])
    with pytest.raises(ValueError, match=r"1 is left \(s=a\): at least 2 are needed"):
        fitted([gap(tpr()) <= 0.1], X, y, booster, sensitive_features={"s": ["a"] * len(y)})
    with pytest.raises(ValueError, match="column 'sex' is neither"):
        fitted([gap(tpr(), by="sex") <= 0.1], sparse.csr_array(X), y, booster)
