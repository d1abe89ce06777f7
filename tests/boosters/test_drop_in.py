"""The classifiers in the places where scikit-learn's and the parents' own stand."""

from __future__ import annotations

import inspect
import io
import pickle
import re

import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from helpers import quiet
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, precision_score
from sklearn.metrics import log_loss as mean_log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedLogisticRegression,
    ConstrainedXGBClassifier,
    churn,
    dataset,
    each,
    error_rate,
    f1,
    fnr,
    fpr,
    gap,
    log_loss,
    precision,
    ratio,
    recall,
    selection_rate,
    tpr,
)
from gbm_constrained.solvers import ABPP, AutoSolver

CLASSIFIERS = {
    "xgboost": ConstrainedXGBClassifier,
    "lightgbm": ConstrainedLGBMClassifier,
    "logistic": ConstrainedLogisticRegression,
}
DEFAULTS = {
    "xgboost": {"n_estimators": 100, "max_depth": 2, "n_jobs": 1, "measure_on": "train"},
    "lightgbm": {
        "n_estimators": 100, "num_leaves": 4, "learning_rate": 0.3, "n_jobs": 1, "verbose": -1,
        "measure_on": "train",
    },
    "logistic": {"n_iterations": 80},
}  # fmt: skip
EACH = pytest.mark.parametrize("library", list(CLASSIFIERS))
BOOSTERS = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
# Boosters also where the default says: on rows that the trees have not seen.
WHERE = pytest.mark.parametrize(
    ("library", "where"),
    [
        *((library, {"measure_on": "auto"}) for library in ("xgboost", "lightgbm")),
        *((library, {}) for library in CLASSIFIERS),
    ],
)
ROUTING = {"enable_metadata_routing": True}
PARITY = gap(selection_rate(), min_group_size=1) <= 0.04
SLACK = 0.025  # A few rows of a group.


def with_solver(library, **options):
    """Parameter that gives a classifier a solver with options."""
    name = "constraint_solver" if library == "logistic" else "solver"
    return {name: AutoSolver(**options)}


def make(library, rules, **options):
    """Rules are measured on training rows, unless `options` say otherwise."""
    return CLASSIFIERS[library](constraints=rules, **{**DEFAULTS[library], **options})


def rates_of(decisions, groups, weight=None):
    """Selection rate of each group, by counting; no value is a group."""
    groups = pd.Series(groups).astype(object)
    weight = np.ones(len(decisions)) if weight is None else weight
    table = pd.DataFrame({"w": weight, "wd": weight * decisions, "g": groups.to_numpy()})
    sums = table.groupby("g", dropna=False)[["wd", "w"]].sum()
    return sums.wd / sums.w


def apart(values):
    return float(np.max(values) - np.min(values))


def gap_of(decisions, groups, weight=None):
    return apart(rates_of(decisions, groups, weight))


@pytest.fixture(scope="module")
def problem():
    """Features, labels, and a group that one feature and the labels depend on."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 600)
    X = rng.normal(size=(600, 4))
    X[:, 0] += 1.2 * sex
    y = (X[:, 0] + 0.5 * X[:, 1] + 0.8 * rng.normal(size=600) > 0.6).astype(int)
    return X, y, sex


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


@EACH
@pytest.mark.parametrize(
    ("by_row", "by_column"),
    [
        (lambda chosen: fpr(on=chosen) <= 0.05, fpr(on={"given": True}) <= 0.05),
        (lambda old: churn(to=old.astype(int)) <= 0.1, churn(to="given") <= 0.1),
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
        model = make(library, by_column).set_fit_request(sensitive_features=True)
        found = cross_validate(
            model, X, y, cv=2, params={"sensitive_features": pd.Series(given, name="given")},
            return_estimator=True, return_indices=True,
        )  # fmt: skip
    for fitted, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
        direct = make(library, by_row(given[rows])).fit(X[rows], y[rows])
        np.testing.assert_array_equal(fitted.predict_proba(X), direct.predict_proba(X))
        assert fitted.constraint_report_.train.tolist() == direct.constraint_report_.train.tolist()


@BOOSTERS
@pytest.mark.parametrize("rules", [[], [fpr() <= 0.05]], ids=["no rule", "a rule"])
def test_groups_of_a_splitter_arrive_in_the_fit(library, rules, problem):
    """They are asked for by default, as the splitters do; without a rule they do nothing."""
    X, y, _ = problem
    groups = np.arange(y.size) // 5
    with config_context(**ROUTING):
        found = cross_validate(
            make(library, rules, measure_on="crossfit"), X, y, cv=GroupKFold(2),
            params={"groups": groups}, return_estimator=True, return_indices=True,
        )  # fmt: skip
    for fitted, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
        together, split = (
            clone(fitted).fit(X[rows], y[rows], groups=given) for given in (groups[rows], None)
        )
        np.testing.assert_array_equal(fitted.predict_proba(X), together.predict_proba(X))
        if rules:  # other folds may lead to the same threshold
            assert fitted.constraint_report_.equals(together.constraint_report_)
            assert not fitted.constraint_report_.equals(split.constraint_report_)
        else:
            np.testing.assert_array_equal(fitted.predict_proba(X), split.predict_proba(X))


@EACH
def test_cross_val_score_and_what_was_not_requested(library, problem):
    """Without a request scikit-learn refuses, rather than fit without the features."""
    X, y, sex = problem
    with config_context(**ROUTING):
        model = make(library, PARITY)
        with pytest.raises(ValueError, match="sensitive_features"):
            cross_val_score(model, X, y, cv=2, params={"sensitive_features": sex})
        model.set_fit_request(sensitive_features=True)
        scores = cross_val_score(model, X, y, cv=2, params={"sensitive_features": sex})
    assert scores.min() > 0.6


@EACH
def test_bounds_are_searched_over_with_routing(library, problem, free_gap):
    """The refit estimator keeps the gap that it was chosen with, and needs X only to predict."""
    X, y, sex = problem
    rules = [[gap(selection_rate(), min_group_size=1) <= b] for b in (0.04, 0.15)]
    found = {}
    for wanted in (0, 1) if library != "logistic" else (0,):  # which takes longest
        with config_context(**ROUTING):
            model = make(library, None).set_fit_request(sensitive_features=True)
            search = GridSearchCV(
                model, {"constraints": rules}, cv=2, refit=lambda results, i=wanted: i
            )
            search.fit(X, y, sensitive_features=sex)
        assert search.best_estimator_.constraints == rules[wanted]
        found[wanted] = gap_of(search.predict(X), sex)
    assert found[0] <= 0.04 + SLACK
    if library != "logistic":
        assert 0.1 < found[1] <= 0.15 + SLACK


@WHERE
def test_columns_of_a_frame_need_no_routing(library, where, problem):
    X, y, sex = problem
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=sex)
    rule = gap(selection_rate(), by="sex", min_group_size=1) <= 0.04
    found = cross_validate(
        make(library, rule, **where), frame, y, cv=2, return_estimator=True, return_indices=True
    )
    for fitted, rows in zip(found["estimator"], found["indices"]["train"], strict=True):
        counted = gap_of(fitted.predict(frame.iloc[rows]), sex[rows])
        assert fitted.constraint_report_.train[0] == pytest.approx(counted, abs=1e-6)
        if not where:
            assert counted <= 0.04 + SLACK


# --- groups, weights and labels of every kind ---------------------------------------------------


def with_gaps(values, none):
    """Every fifth value missing."""
    return [none if i % 5 == 0 else v for i, v in enumerate(values)]


GROUPS = {
    "far integers": (lambda s: np.where(s == 1, 7, 0), ["0", "7"]),
    "strings": (lambda s: np.array(["F", "M"])[s], ["F", "M"]),
    "booleans": (lambda s: s == 1, ["False", "True"]),
    "categories": (
        lambda s: pd.Categorical(np.array(["v", "u"])[s], categories=["z", "v", "u", "a"]),
        ["u", "v"],
    ),
    "missing strings": (
        lambda s: np.array(with_gaps(np.array(["F", "M"])[s], None), dtype=object),
        ["F", "M", "missing"],
    ),
    "missing numbers": (lambda s: np.array(with_gaps(s, np.nan)), ["0.0", "1.0", "missing"]),
    "missing categories": (
        lambda s: pd.Categorical(with_gaps(np.array(["v", "u"])[s], None)),
        ["u", "v", "missing"],
    ),
    "nullable strings": (
        lambda s: pd.array(with_gaps(np.array(["F", "M"])[s], pd.NA), dtype="string"),
        ["F", "M", "missing"],
    ),
}


@pytest.mark.parametrize(
    ("library", "kind"),
    [
        *((library, kind) for library in ("xgboost", "lightgbm") for kind in GROUPS),
        *(("logistic", kind) for kind in ("far integers", "booleans", "missing categories")),
    ],
)
def test_groups_of_every_kind(library, kind, problem):
    X, y, sex = problem
    make_groups, names = GROUPS[kind]
    groups = make_groups(sex)
    more = {"n_iterations": 150} if library == "logistic" and len(names) > 2 else {}
    fitted = make(library, PARITY, **more).fit(X, y, sensitive_features={"g": groups})
    report = fitted.group_report_
    assert report.group.tolist() == [f"g={name}" for name in names]
    assert report.rows.sum() == y.size
    found = gap_of(fitted.predict(X), groups)
    assert fitted.constraint_report_.train[0] == pytest.approx(found, abs=1e-6)
    assert found <= 0.04 + SLACK


@EACH
def test_missing_groups_can_be_refused(library, problem):
    X, y, sex = problem
    rule = gap(selection_rate(), missing="raise") <= 0.1
    with pytest.raises(ValueError, match="sensitive_feature_0 has missing values: fill them in"):
        make(library, rule).fit(X, y, sensitive_features=np.array(with_gaps(sex, np.nan)))


@EACH
def test_a_weight_is_a_repeated_row_in_a_gap(library, problem):
    """The same model, whose reported gap is that of the repeated rows."""
    X, y, sex = problem
    X = np.round(2 * X)  # few values: both fits cut at the same ones
    weight = np.random.default_rng(2).integers(1, 4, y.size)
    rows = np.repeat(np.arange(y.size), weight)
    options = {
        "xgboost": {"n_estimators": 12},
        "lightgbm": {"n_estimators": 12, "min_child_samples": 1, "min_data_in_bin": 1},
        "logistic": {},
    }[library]
    weighted = make(library, PARITY, **options)
    weighted.fit(X, y, sensitive_features=sex, sample_weight=weight)
    repeated = make(library, PARITY, **options)
    repeated.fit(X[rows], y[rows], sensitive_features=sex[rows])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=2e-3)
    found = gap_of(weighted.predict(X[rows]), sex[rows])
    assert weighted.constraint_report_.train[0] == pytest.approx(found, abs=1e-6)
    assert repeated.constraint_report_.train[0] == pytest.approx(found, abs=0.01)


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("xgboost", {"scale_pos_weight": 3.0}),
        ("lightgbm", {"scale_pos_weight": 3.0}),
        ("lightgbm", {"is_unbalance": True}),
        ("lightgbm", {"class_weight": "balanced"}),
        ("lightgbm", {"class_weight": {0: 1.0, 1: 4.0}}),
        ("logistic", {"class_weight": "balanced"}),
    ],
)
def test_class_weights_move_the_objective_and_not_the_rates(library, options, problem):
    X, y, sex = problem
    kept = np.flatnonzero((y == 0) | (np.arange(y.size) % 3 == 0))
    X, y, sex = X[kept], y[kept], sex[kept]
    plain = make(library, PARITY).fit(X, y, sensitive_features=sex)
    fitted = make(library, PARITY, **options).fit(X, y, sensitive_features=sex)
    assert fitted.predict(X).mean() > plain.predict(X).mean() + 0.03
    found = gap_of(fitted.predict(X), sex)
    assert fitted.constraint_report_.train[0] == pytest.approx(found, abs=1e-6)
    assert found <= 0.04 + SLACK


@EACH
def test_three_classes(library, problem):
    X, _, sex = problem
    score = X[:, 0] + 0.5 * X[:, 1] + np.random.default_rng(3).normal(size=600) * (0.3 + 1.5 * sex)
    y = np.digitize(score, [0.0, 1.2])
    labels = y if library == "xgboost" else np.array(["low", "mid", "top"])[y]
    top = 2 if library == "xgboost" else "top"
    rules = [
        gap(error_rate(), min_group_size=1) <= 0.1,
        gap(recall(top), min_group_size=1) <= 0.1,
    ]
    options = {"n_iterations": 120}
    if library != "logistic":
        options = {"n_estimators": 120, "learning_rate": 0.3 if library == "xgboost" else 0.2}
    fitted = make(library, rules, **options).fit(X, labels, sensitive_features=sex)
    right = fitted.predict(X) == labels
    found = [
        apart([right[rows & (sex == s)].mean() for s in (0, 1)])
        for rows in (np.ones(600, bool), labels == top)
    ]
    np.testing.assert_allclose(fitted.constraint_report_.train, found, atol=1e-6)
    assert max(found) <= 0.1 + SLACK
    right = make(library, [], **options).fit(X, labels).predict(X) == labels
    assert apart([right[sex == s].mean() for s in (0, 1)]) > 0.125
    with pytest.raises(ValueError, match="name one of them as label="):
        make(library, gap(tpr()) <= 0.1).fit(X, labels, sensitive_features=sex)


@BOOSTERS
def test_early_stopping_and_the_held_out_gap(library, problem):
    """Held-out rows bring their own groups; the report is that of the best iteration."""
    X, y, sex = problem
    held, train = slice(0, 200), slice(200, 600)
    labels = y if library == "xgboost" else np.array(["no", "yes"])[y]
    given = {
        "sensitive_features": pd.Series(sex[train], name="sex"),
        "eval_set": [(X[held], labels[held])],
        "sensitive_features_eval_set": [pd.Series(sex[held], name="sex")],
        **quiet(library),
    }
    stopping = {"early_stopping_rounds": 5} if library == "xgboost" else {}
    if library == "lightgbm":
        given["callbacks"] = [lgb.early_stopping(5, verbose=False)]
    rule = gap(selection_rate(), by="sex", min_group_size=1) <= 0.04
    options = {"n_estimators": 300, "learning_rate": 0.5, **stopping}
    fitted = make(library, rule, **options).fit(X[train], labels[train], **given)
    best = fitted.best_iteration + 1 if library == "xgboost" else fitted.best_iteration_
    assert best < fitted.get_params()["n_estimators"] - 5
    report = fitted.constraint_report_
    for name, part in (("train", train), ("held_out", held)):
        chosen = fitted.predict(X[part]) == fitted.classes_[1]
        assert report[name][0] == pytest.approx(gap_of(chosen, sex[part]), abs=1e-9)
    assert fitted.history_["rounds"].iloc[-1] == best
    assert report.satisfied[0] == (report.held_out[0] <= 0.04)
    held_rates = rates_of(fitted.predict(X[held]) == fitted.classes_[1], sex[held])
    np.testing.assert_allclose(fitted.group_report_.held_out, held_rates, atol=1e-9)


# --- further data sets --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def elsewhere(problem):
    """Unlabelled rows of another mixture, and positive ones that look negative."""
    rng = np.random.default_rng(5)
    monitor = rng.normal([0.5, -0.5, 0, 0], size=(300, 4))
    egregious = rng.normal([-0.6, 0, 0, 2.5], 0.5, size=(60, 4))
    return monitor, egregious


@EACH
@pytest.mark.parametrize("weighted", [False, True])
def test_coverage_and_egregious_examples(library, weighted, problem, elsewhere):
    """Rules on other rows bind with class weights, evaluation sets and string labels as well."""
    X, y, _ = problem
    monitor, egregious = elsewhere
    labels = y if library == "xgboost" else np.array(["no", "yes"])[y]
    yes = labels[y == 1][0]
    rules = [
        recall(on=dataset("egregious")) >= 0.95,
        selection_rate(on=dataset("monitor")) <= 0.3,
    ]
    given = {
        "datasets": {"monitor": monitor, "egregious": (egregious, np.full(60, yes))},
        "sample_weight": np.random.default_rng(0).gamma(3.0, size=y.size) if weighted else None,
    }
    if library != "logistic":
        given.update(eval_set=[(X[:100], labels[:100])], **quiet(library))
    fitted = make(library, rules).fit(X, labels, **given)
    found = [(fitted.predict(rows) == yes).mean() for rows in (egregious, monitor)]
    np.testing.assert_allclose(fitted.constraint_report_.train, found, atol=1e-6)
    assert found[0] >= 0.95 - SLACK
    assert found[1] <= 0.3 + SLACK
    free = make(library, []).fit(X, labels, sample_weight=given["sample_weight"])
    assert (free.predict(egregious) == yes).mean() < 0.5
    assert np.isnan(fitted.constraint_report_.held_out).all()


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("xgboost", {"gamma": 1e9}),
        ("xgboost", {"gamma": 1e9, "scale_pos_weight": 2.5}),
        ("lightgbm", {"min_split_gain": 1e9}),
        ("lightgbm", {"min_split_gain": 1e9, "class_weight": "balanced"}),
        ("lightgbm", {"min_split_gain": 1e9, "is_unbalance": True}),
        ("logistic", {"C": 1e-9}),
        ("logistic", {"C": 1e-9, "class_weight": "balanced"}),
    ],
)
def test_other_rows_leave_the_intercept_alone(library, options, problem):
    """Where nothing is learnt, a model is its intercept: that of the training rows."""
    X, y, _ = problem
    weight = np.where(y == 1, 0.5, 2.0)
    other = (X[:500], np.ones(500, dtype=int))
    rule = error_rate(on=dataset("other")) <= 1.0
    without = make(library, [], **options).fit(X, y, sample_weight=weight)
    fitted = make(library, rule, **options)
    fitted.fit(X, y, sample_weight=weight, datasets={"other": other})
    p = fitted.predict_proba(X)[:, 1]
    assert np.ptp(p) < 1e-5
    np.testing.assert_allclose(p, without.predict_proba(X)[:, 1], atol=1e-5)


@BOOSTERS
def test_metrics_do_not_see_other_rows(library, problem, elsewhere):
    """What the parent records of an evaluation set is its own loss, the training rows' too."""
    X, y, _ = problem
    rule = selection_rate(on=dataset("monitor")) <= 0.3
    fitted = make(library, rule, n_estimators=8)
    fitted.fit(
        X, y, datasets={"monitor": elsewhere[0]}, eval_set=[(X, y), (X[:50], y[:50])],
        **quiet(library),
    )  # fmt: skip
    recorded = fitted.evals_result() if library == "xgboost" else fitted.evals_result_
    for scores, rows in zip(recorded.values(), (slice(None), slice(50)), strict=True):
        (values,) = scores.values()
        expected = mean_log_loss(y[rows], fitted.predict_proba(X[rows]))
        assert values[-1] == pytest.approx(expected, rel=1e-5)


# --- what is reported ---------------------------------------------------------------------------


def counted(rules, y, decisions, sex, old):
    """Values of the rules below, by counting."""
    selected = [decisions[sex == s].mean() for s in (0, 1)]
    hits = [decisions[(sex == s) & (y == 1)].mean() for s in (0, 1)]
    wrong = [(decisions != y)[sex == s].mean() for s in (0, 1)]
    values = [
        apart(selected),
        min(1.0, min(hits) / max(hits)),
        max(wrong),
        min(hits),
        precision_score(y, decisions),
        f1_score(y, decisions),
        (decisions != old).mean(),
        decisions[(sex == 1) & (y == 0)].mean(),
    ]
    assert len(values) == len(rules)
    return values


@EACH
def test_reports_are_what_counting_gives(library, problem):
    X, y, sex = problem
    old = LogisticRegression().fit(X[:, ::-1], y)

    class Deployed:
        def predict(self, rows):
            return old.predict(np.asarray(rows)[:, ::-1])

    size = {"by": "sex", "min_group_size": 1}
    rules = [
        gap(selection_rate(), **size) <= 0.2,
        ratio(tpr(), **size) >= 0.9,
        each(error_rate(), **size) <= 0.3,
        each(recall(), **size) >= 0.7,
        precision() >= 0.7,
        f1() >= 0.6,
        churn(to=Deployed()) <= 0.3,
        fpr(on={"sex": 1}) <= 0.5,
    ]
    held, train = slice(0, 200), slice(200, 600)
    given = {"sensitive_features": {"sex": sex[train]}}
    if library != "logistic":
        given.update(
            eval_set=[(X[held], y[held])],
            sensitive_features_eval_set=[{"sex": sex[held]}],
            **quiet(library),
        )
    options = (
        {}
        if library == "logistic"
        else {"n_estimators": 14, "solver": AutoSolver(rounds_per_iteration=3)}
    )
    fitted = make(library, rules, **options).fit(X[train], y[train], **given)
    report, history, groups = fitted.constraint_report_, fitted.history_, fitted.group_report_
    parts = {"train": train} if library == "logistic" else {"train": train, "held_out": held}
    for name, part in parts.items():
        decisions = fitted.predict(X[part])
        y_part, sex_part = y[part], sex[part]
        values = counted(rules, y_part, decisions, sex_part, Deployed().predict(X[part]))
        np.testing.assert_allclose(report[name], values, atol=1e-6)
        column = "value" if name == "train" else name
        last = [history[f"{column}[{rule}]"].iloc[-1] for rule in rules]
        np.testing.assert_array_equal(last, report[name])
        of_groups = [
            what[rows & (sex_part == s)].mean()
            for what, rows in (
                (decisions, y_part >= 0),
                (decisions, y_part == 1),
                (decisions != y_part, y_part >= 0),
                (decisions, y_part == 1),
            )
            for s in (0, 1)
        ]
        np.testing.assert_allclose(groups[name], of_groups, atol=1e-6)
    sizes = [((y[train] >= k) & (sex[train] == s)).sum() for k in (0, 1, 0, 1) for s in (0, 1)]
    assert groups.rows.tolist() == sizes
    assert groups.constraint.tolist() == [str(rule) for rule in rules[:4] for _ in range(2)]
    assert groups.group.tolist() == ["sex=0", "sex=1"] * 4
    met = [
        v <= rule.bound if rule.sense == "<=" else v >= rule.bound
        for rule, v in zip(rules, report.train, strict=True)
    ]
    assert report.train_satisfied.tolist() == met


@EACH
def test_multipliers_are_of_linear_rows(library, problem):
    X, y, sex = problem
    rules = [gap(selection_rate(), by="sex", min_group_size=1) <= 0.04, fnr() <= 0.3]
    fitted = make(library, rules).fit(X, y, sensitive_features={"sex": sex})
    multipliers = fitted.multipliers_
    assert multipliers.index.tolist() == [
        "selection_rate[sex=0] - selection_rate[sex=1] <= 0.04",
        "selection_rate[sex=1] - selection_rate[sex=0] <= 0.04",
        "fnr <= 0.3",
    ]
    assert multipliers.iloc[1] > 0
    report = fitted.constraint_report_
    totals = [multipliers.iloc[:2].sum(), multipliers.iloc[2]]
    np.testing.assert_allclose(report.multiplier, totals, atol=1e-12)
    last = fitted.history_.iloc[-1]
    assert [last[f"multiplier[{rule}]"] for rule in rules] == report.multiplier.tolist()

    # A warm start takes them as they are, and names the rows where their number is wrong.
    warm = make(library, rules, **with_solver(library, initial_multipliers=multipliers))
    warm.fit(X, y, sensitive_features={"sex": sex})
    assert warm.history_[f"multiplier[{rules[0]}]"].iloc[0] > 0.5 * report.multiplier[0]
    assert warm.constraint_report_.train[0] <= 0.04 + SLACK
    assert repr(clone(warm))
    warm.set_params(**with_solver(library, initial_multipliers=multipliers.iloc[:2]))
    with pytest.raises(ValueError, match=r"3 rows.*got 2.*selection_rate\[sex=1\] - .*fnr <= 0.3"):
        warm.fit(X, y, sensitive_features={"sex": sex})


@BOOSTERS
def test_history_is_of_the_ensemble_as_it_grew(library, problem):
    """Rates after r rounds are those of the first r rounds of the returned booster."""
    X, y, sex = problem
    options = {"n_estimators": 10, "solver": AutoSolver(rounds_per_iteration=3)}
    fitted = make(library, PARITY, **options)
    fitted.fit(
        X[200:], y[200:], sensitive_features=sex[200:], eval_set=[(X[:200], y[:200])],
        sensitive_features_eval_set=[sex[:200]], **quiet(library),
    )  # fmt: skip
    history = fitted.history_
    assert history["rounds"].tolist() == [0, 3, 6, 9, 10]
    for _, row in history.iloc[1:].iterrows():
        r = int(row["rounds"])
        some = {"iteration_range": (0, r)} if library == "xgboost" else {"num_iteration": r}
        for column, part in (("value", slice(200, 600)), ("held_out", slice(200))):
            value = gap_of(fitted.predict(X[part], **some), sex[part])
            assert row[f"{column}[{PARITY}]"] == pytest.approx(value, abs=1e-9)


# --- copies and parameters ----------------------------------------------------------------------


def through_joblib(model):
    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    buffer.seek(0)
    return joblib.load(buffer)


@WHERE
@pytest.mark.parametrize(
    "travel", [lambda model: pickle.loads(pickle.dumps(model)), through_joblib]
)
def test_a_fitted_classifier_survives_a_file(library, where, travel, problem):
    X, y, sex = problem
    options = {"n_iterations": 20} if library == "logistic" else {"n_estimators": 20}
    fitted = make(library, [PARITY, log_loss() <= 2.0], **options, **where)
    fitted.fit(X, y, sensitive_features=sex)
    copy = travel(fitted)
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    for name in ("constraint_report_", "group_report_", "history_"):
        pd.testing.assert_frame_equal(getattr(copy, name), getattr(fitted, name))
    pd.testing.assert_series_equal(copy.multipliers_, fitted.multipliers_)
    assert copy.constraints == fitted.constraints
    again = clone(copy)
    assert not hasattr(again, "multipliers_")
    again.fit(X, y, sensitive_features=sex)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


@EACH
def test_parameters_of_the_solver(library, problem):
    """They are set, cloned and refused by name, act, and never reach the parent's learner."""
    X, y, sex = problem
    solver = "constraint_solver" if library == "logistic" else "solver"
    options = {"n_iterations": 30} if library == "logistic" else {"n_estimators": 40}
    model = make(library, PARITY, **options)
    names = set(inspect.signature(type(model)).parameters) - {"kwargs"}
    assert names <= set(model.get_params())
    model.set_params(**{solver: ABPP(proxy="sigmoid")})
    copy = clone(model)
    assert copy.get_params()[f"{solver}__proxy"] == "sigmoid"
    given = {"sensitive_features": sex}
    default = make(library, PARITY, **options).fit(X, y, **given).predict_proba(X)
    np.testing.assert_array_equal(copy.fit(X, y, **given).predict_proba(X), default)
    convex = (
        clone(model)
        .set_params(**{f"{solver}__proxy": "logistic"})
        .fit(X, y, **given)
        .predict_proba(X)
    )
    assert abs(convex - default).max() > 0.01
    if library == "xgboost":
        assert not any(map(re.compile("solver|constraints").match, copy.get_xgb_params()))
    elif library == "lightgbm":
        assert not any(map(re.compile("solver|constraints").match, copy.booster_.params))
    else:
        own = clone(model).set_params(solver="newton-cg").fit(X, y, **given)
        np.testing.assert_allclose(own.predict_proba(X), default, atol=0.02)
    with pytest.raises(ValueError, match=rf"^{solver} must be one of .*'newton'"):
        clone(model).set_params(**{solver: "newton"}).fit(X, y, **given)


# --- many masks ---------------------------------------------------------------------------------


@EACH
def test_thirty_masks(library, problem):
    """Far more masks than one partition of the rows can hold, all obeyed."""
    X, y, _ = problem
    masks = np.random.default_rng(6).random((30, y.size)) < 0.5
    bound = 0.12 if library == "logistic" else 0.06
    rules = [fnr(on=mask) <= bound for mask in masks]
    options = {"n_iterations": 150}
    if library != "logistic":
        options = {"n_estimators": 60, "learning_rate": 0.3 if library == "xgboost" else 0.2}
    fitted = make(library, rules, **options).fit(X, y)
    missed = np.array([(fitted.predict(X) == 0)[mask & (y == 1)].mean() for mask in masks])
    np.testing.assert_allclose(fitted.constraint_report_.train, missed, atol=1e-6)
    assert missed.max() <= bound + 0.02
    free = make(library, [], **options).fit(X, y).predict(X)
    assert (free == 0)[y == 1].mean() > bound + 0.03


@EACH
def test_partitions_do_not_matter(library, problem, monkeypatch):
    """One partition by six masks, or three by two each: the same model, given the dual step.

    Without it the steps differ: of several partitions only a bound of the norm is known, and the
    floor of slopes is one of cells.
    """
    X, y, _ = problem
    monkeypatch.setattr("gbm_constrained.solvers.step_sizes.MIN_SLOPE", 0.0)
    masks = np.random.default_rng(7).random((6, y.size)) < 0.5
    rules = [(fnr if j % 2 else error_rate)(on=mask) <= 0.1 for j, mask in enumerate(masks)]
    options = {"n_iterations": 25} if library == "logistic" else {"n_estimators": 25}
    probabilities = []
    for cells in (2048, 8):
        monkeypatch.setattr("gbm_constrained.data.cells.VIEW_CELLS", cells)
        fitted = make(library, rules, **with_solver(library, sigma=0.05), **options).fit(X, y)
        probabilities.append(fitted.predict_proba(X))
    assert fitted.multipliers_.max() > 0.01
    np.testing.assert_allclose(*probabilities, atol=1e-5)
