"""Sensitive features, weights and groups arrive where scikit-learn routes them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from drop_in_fits import ANY, BOOSTERS, CLASSIFIERS, PARITY, SLACK, gap_of, make
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gbm_constrained as gc
from gbm_constrained.metrics import BlackBox, metric

ROUTING = {"enable_metadata_routing": True}
# Each library once, and rows that the trees have not seen once.
WHERE = pytest.mark.parametrize(
    ("library", "where"),
    [
        ("xgboost", {"measure_on": gc.CrossFit(2), "max_bin": 256}),
        ("lightgbm", {}),
        ("logistic", {}),
    ],
)
FEW = {
    "xgboost": {"n_estimators": 10}, "lightgbm": {"n_estimators": 10},
    "logistic": {"n_iterations": 10},
}  # fmt: skip


@pytest.fixture(scope="module")
def free_gap(problem):
    """Gap of each classifier without constraints: what there is to do."""
    X, y, sex = problem
    gaps = {name: gap_of(make(name, []).fit(X, y).predict(X), sex) for name in CLASSIFIERS}
    assert min(gaps.values()) > 0.3
    return gaps


# --- metadata routing -----------------------------------------------------------------------


@WHERE
def test_a_pipeline_routes_features_and_weights(library, where, problem, free_gap):
    """The fit at the end of a pipeline is the one on scaled features; prediction needs X only."""
    X, y, sex = problem
    weight = np.random.default_rng(1).integers(1, 4, y.size).astype(float)
    with config_context(**ROUTING):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        model = make(library, PARITY, **where)
        model.set_fit_request(sensitive_features=True, sample_weight=True)
        pipe = make_pipeline(scaler, model)
        pipe.fit(X, y, sensitive_features=sex, sample_weight=weight)
        with pytest.raises(TypeError, match="unexpected"):
            pipe.fit(X, y, colour=sex)
    direct = make(library, PARITY, **where)
    scaled = StandardScaler().fit_transform(X)
    direct.fit(scaled, y, sensitive_features=sex, sample_weight=weight)
    np.testing.assert_array_equal(pipe.predict_proba(X), direct.predict_proba(scaled))
    found = gap_of(pipe.predict(X), sex, weight)
    report = pipe[-1].constraint_report_
    assert report.train[0] == pytest.approx(found, abs=1e-6)
    assert (report.held_out[0] if where else found) <= 0.04 + SLACK


@pytest.mark.parametrize(
    ("library", "kind"),
    [
        ("xgboost", lambda s: pd.DataFrame({"sex": s})),
        ("lightgbm", list),
        ("lightgbm", lambda s: pd.Series(s, name="sex")),
        ("logistic", np.asarray),
    ],
)
def test_each_fold_sees_its_own_rows(library, kind, problem, free_gap):
    X, y, sex = problem
    order = np.argsort(sex, kind="stable")  # rows of a fold differ from any first rows
    X, y, sex = X[order], y[order], sex[order]
    with config_context(**ROUTING):
        model = make(library, PARITY).set_fit_request(sensitive_features=True)
        cv = KFold(2, shuffle=True, random_state=0)
        found = cross_validate(
            model, X, y, cv=cv, params={"sensitive_features": kind(sex)},
            return_estimator=True, return_indices=True,
        )  # fmt: skip
    for fitted, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
        assert fitted.group_report_.rows.tolist() == np.bincount(sex[rows]).tolist()
        counted = gap_of(fitted.predict(X[rows]), sex[rows])
        assert fitted.constraint_report_.train[0] == pytest.approx(counted, abs=1e-6)
        assert counted <= 0.04 + SLACK


@ANY
@pytest.mark.parametrize(
    ("by_row", "by_column"),
    [
        (lambda chosen: gc.fpr(on=chosen) <= 0.05, gc.fpr(on={"given": True}) <= 0.05),
        (lambda old: gc.churn(to=old.astype(int)) <= 0.1, gc.churn(to="given") <= 0.1),
    ],
    ids=["mask", "decisions"],
)
def test_what_is_given_by_row_is_a_column_where_rows_are_split(
    library, by_row, by_column, problem
):
    """A fold has fewer rows than a mask, or another model's decisions; a column is split."""
    X, y, _ = problem
    given = X[:, 1] > 0.3
    with config_context(**ROUTING):
        with pytest.raises(ValueError, match="Where rows are split"):
            cross_val_score(make(library, by_row(given)), X, y, cv=2, error_score="raise")
        model = make(library, by_column, **FEW[library])
        model.set_fit_request(sensitive_features=True)
        found = cross_validate(
            model, X, y, cv=2, params={"sensitive_features": pd.Series(given, name="given")},
            return_estimator=True, return_indices=True,
        )  # fmt: skip
    for fitted, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
        direct = make(library, by_row(given[rows]), **FEW[library]).fit(X[rows], y[rows])
        np.testing.assert_array_equal(fitted.predict_proba(X), direct.predict_proba(X))
        assert fitted.constraint_report_.train.tolist() == direct.constraint_report_.train.tolist()


@BOOSTERS
@pytest.mark.parametrize("rules", [[], [gc.fpr() <= 0.05]], ids=["no rule", "a rule"])
def test_groups_of_a_splitter_arrive_in_the_fit(library, rules, problem):
    """They are asked for by default, as the splitters do; without a constraint they do nothing."""
    X, y, _ = problem
    groups = np.arange(y.size) // 5
    with config_context(**ROUTING):
        found = cross_validate(
            make(library, rules, measure_on="crossfit", n_estimators=20), X, y, cv=GroupKFold(2),
            params={"groups": groups}, return_estimator=True, return_indices=True,
        )  # fmt: skip
    are_alike = []
    for fitted, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
        together, split = (
            clone(fitted).fit(X[rows], y[rows], groups=given) for given in (groups[rows], None)
        )
        np.testing.assert_array_equal(fitted.predict_proba(X), together.predict_proba(X))
        if rules:  # other folds may lead to the same threshold
            assert fitted.constraint_report_.equals(together.constraint_report_)
            are_alike.append(fitted.constraint_report_.equals(split.constraint_report_))
        else:
            np.testing.assert_array_equal(fitted.predict_proba(X), split.predict_proba(X))
    assert not rules or not all(are_alike)


@ANY
def test_cross_val_score_and_what_was_not_requested(library, problem):
    """Without a request scikit-learn refuses, rather than fit without the features."""
    X, y, sex = problem
    with config_context(**ROUTING):
        model = make(library, PARITY, **FEW[library])
        with pytest.raises(ValueError, match="sensitive_features"):
            cross_val_score(model, X, y, cv=2, params={"sensitive_features": sex})
        model.set_fit_request(sensitive_features=True)
        scores = cross_val_score(model, X, y, cv=2, params={"sensitive_features": sex})
    assert scores.min() > 0.6


@pytest.mark.parametrize(("library", "wanted"), [("xgboost", 1), ("lightgbm", 0), ("logistic", 0)])
def test_bounds_are_searched_over_with_routing(library, wanted, problem, free_gap):
    """The refit estimator keeps the gap that it was chosen with, and needs X only to predict."""
    X, y, sex = problem
    rules = [[gc.gap(gc.selection_rate(), min_group_size=1) <= b] for b in (0.04, 0.15)]
    with config_context(**ROUTING):
        model = make(library, None).set_fit_request(sensitive_features=True)
        search = GridSearchCV(model, {"constraints": rules}, cv=2, refit=lambda results: wanted)
        search.fit(X, y, sensitive_features=sex)
    assert search.best_estimator_.constraints == rules[wanted]
    low, high = ((-1.0, 0.04), (0.1, 0.15))[wanted]
    assert low < gap_of(search.predict(X), sex) <= high + SLACK


@WHERE
def test_columns_of_a_frame_need_no_routing(library, where, problem):
    X, y, sex = problem
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=sex)
    rule = gc.gap(gc.selection_rate(), by="sex", min_group_size=1) <= 0.04
    found = cross_validate(
        make(library, rule, **where), frame, y, cv=2, return_estimator=True, return_indices=True
    )
    for fitted, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
        counted = gap_of(fitted.predict(frame.iloc[rows]), sex[rows])
        assert fitted.constraint_report_.train[0] == pytest.approx(counted, abs=1e-6)
        if not where:
            assert counted <= 0.04 + SLACK


def worst_error(y_true, scores, sensitive):
    """The larger error rate of two groups; lower is better."""
    wrong = (scores > 0) != (y_true == 1)
    return float(max(wrong[sensitive == group].mean() for group in (0, 1)))


def mean_share_of_right(C):
    """The mean of two groups' accuracies."""
    return float(np.mean([np.trace(each) / each.sum() for each in C.values()]))


@pytest.mark.parametrize(
    ("library", "objective"),
    [
        ("xgboost", {"maximize": metric(mean_share_of_right, kind="other", by="sex")}),
        ("logistic", {"maximize": metric(mean_share_of_right, kind="other", by="sex")}),
        ("lightgbm", {"minimize": BlackBox(worst_error, by="sex", max_calls=400)}),
    ],
)
def test_scores_that_look_at_groups_get_them(library, objective, problem):
    X, y, sex = problem
    X, y, sex = np.tile(X, (4, 1)), np.tile(y, 4), np.tile(sex, 4)
    groups = pd.Series(sex, name="sex")
    options = {} if library == "logistic" else {"n_estimators": 5, "measure_on": "auto"}
    with config_context(**ROUTING):
        model = make(library, None, **objective, **options).set_fit_request(
            sensitive_features=True
        )
        model.set_score_request(sensitive_features=True)
        found = cross_validate(
            model, X, y, cv=2, params={"sensitive_features": groups},
            return_estimator=True, return_indices=True, error_score="raise",
        )  # fmt: skip
    for fitted, rows, score in zip(
        found["estimator"], found["indices"]["test"], found["test_score"], strict=True
    ):
        expected = fitted.score(X[rows], y[rows], sensitive_features=groups[rows])
        assert score == pytest.approx(expected)
